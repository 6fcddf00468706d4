// Ages of timestamps that stay current while a page is open.

import { el } from "./dom.js";
import { ago, moment } from "./format.js";

const SECONDS = 5;

/** The age of a timestamp, with a word before it: `created 16 s ago`. */
export function since(word, timestamp) {
  const age = el("time", { datetime: timestamp, title: moment(timestamp), dataset: { since: word } });
  show(age);
  return age;
}

function show(age) {
  const text = [age.dataset.since, ago(age.dateTime)].filter(Boolean).join(" ");
  if (age.textContent !== text) age.textContent = text;
}

setInterval(() => document.hidden || document.querySelectorAll("time[data-since]").forEach(show), SECONDS * 1000);
document.addEventListener("visibilitychange", () => document.querySelectorAll("time[data-since]").forEach(show));
