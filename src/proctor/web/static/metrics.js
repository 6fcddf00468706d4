// What metrics are called.

import { byId } from "./dom.js";
import { visible } from "./texts.js";

/** Titles of the metrics that every item may have, by name. */
export const metricTitles = JSON.parse(byId("main").dataset.metrics);

/** The title of any metric; that of a score or a measured number is its name. */
export const metricTitle = (metric) => metricTitles[metric] || visible(metric.replace(/^(score|metric):/, "").replace(/^Builtin\./, ""));
