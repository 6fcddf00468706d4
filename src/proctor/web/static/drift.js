// Drift of the scores of online evaluation, as cards with a plot and the crossings.

import { fromSvg } from "./charts.js";
import { el } from "./dom.js";
import { ago, moment, number, plural } from "./format.js";
import { shortName } from "./judges.js";
import { visible } from "./texts.js";

const figure = (value) => (value === null ? "–" : value.toFixed(2).replace("-", "−"));
const ALERTS = { none: "no alert", pending: "alert pending", sent: "alert sent", failed: "alert failed" };

/** One card per line, or an empty state. */
export function driftCards(lines) {
  if (!lines.length)
    return el("div", { class: "empty" }, el("h2", {}, "No online evaluation yet"), el("p", {}, "Add a [[watch]] section to proctor.toml, or create an online configuration. Proctor then evaluates sessions as they arrive and shows each evaluator's scores over time."));
  return el("div", { class: "judge-cards" }, lines.map(card));
}

function card(line) {
  const title = `${line.evaluator} ${line.dimension}`.trim();
  return el(
    "article",
    { class: "card judge", "aria-label": visible(`${line.name} ${title}`) },
    el("div", { class: "judge-head" }, el("h3", { title: visible(line.evaluator) }, shortName(line.evaluator), line.dimension ? ` · ${visible(line.dimension)}` : ""), el("span", { class: "soft small" }, `${visible(line.name)} · ${plural(line.sessions, "session")} · `, el("time", { datetime: line.updatedAt, title: moment(line.updatedAt) }, ago(line.updatedAt)))),
    el("p", {}, visible(line.state)),
    line.chart ? fromSvg(line.chart) : el("p", { class: "soft small" }, "The line starts after 25 sessions."),
    line.crossings.length ? crossings(line.crossings) : null,
  );
}

function crossings(entries) {
  const heads = ["Detected", "Session", "Change", "Before", "After", "Alert"];
  return el("div", { class: "table-frame", tabindex: "0", role: "region", "aria-label": "Crossings" }, el("table", { "aria-label": "Crossings" },
    el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, head)))),
    el("tbody", {}, [...entries].reverse().slice(0, 20).map(row))));
}

const row = (each) =>
  el("tr", {},
    el("td", {}, el("time", { datetime: each.at, title: moment(each.at) }, ago(each.at))),
    el("td", { class: "n" }, number(each.position)),
    el("td", {}, each.direction),
    el("td", { class: "n" }, range(each.beforeMean, each.beforeLow, each.beforeHigh)),
    el("td", { class: "n" }, range(each.afterMean, each.afterLow, each.afterHigh)),
    el("td", { title: visible(each.problem) || null }, ALERTS[each.alert] || visible(each.alert)));

const range = (mean, low, high) => (mean === null ? "–" : [figure(mean), el("span", { class: "soft small" }, ` ${figure(low)} to ${figure(high)}`)]);
