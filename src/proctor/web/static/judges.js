// Agreement of judges with human labels, as cards with confusion matrices.

import { el } from "./dom.js";
import { number, plural } from "./format.js";
import { visible } from "./texts.js";

const figure = (value) => (value === null ? "–" : value.toFixed(2).replace("-", "−"));
const around = ({ low, high }) => (low === null ? "not enough data" : `${figure(low)} to ${figure(high)}`);
export const shortName = (name) => visible(name.replace(/^Builtin\./, ""));

/** One card per judge, or an empty state. */
export function judgeCards(judges) {
  if (!judges.length)
    return el("div", { class: "empty" }, el("h2", {}, "No labels yet"), el("p", {}, "Open a session of an evaluation and label its results. This page then shows the agreement of each judge with the human labels. Collect at least 30 labels for a useful estimate."));
  return el("div", { class: "judge-cards" }, judges.map(card));
}

function card(judge) {
  const tiles = [
    tile(judge.agreement.value === null ? "–" : `${Math.round(judge.agreement.value * 100)}%`, "agreement", judge.agreement.low === null ? "" : `${Math.round(judge.agreement.low * 100)} to ${Math.round(judge.agreement.high * 100)}%`),
    tile(figure(judge.kappa.value), judge.weighted ? "weighted kappa" : "kappa", around(judge.kappa)),
    tile(figure(judge.alpha.value), "alpha", judge.humanAlpha === null ? around(judge.alpha) : `humans only ${figure(judge.humanAlpha)}`),
    tile(judge.bias.value === null ? "–" : figure(judge.bias.value), "bias (judge − human)", judge.bias.value === null ? "labels without values" : around(judge.bias)),
  ];
  return el(
    "article",
    { class: "card judge", "aria-label": visible(`${judge.evaluator} ${judge.dimension}`.trim()) },
    el("div", { class: "judge-head" }, el("h3", { title: visible(judge.evaluator) }, shortName(judge.evaluator), judge.dimension ? ` · ${visible(judge.dimension)}` : ""), el("span", { class: "soft small" }, `${plural(judge.targets, "labeled target")}, ${plural(judge.sessions, "session")}, ${plural(judge.people, "labeler")}`)),
    el("p", {}, judge.text),
    el("div", { class: "tiles judge-tiles" }, tiles),
    judge.confusion.length ? confusion(judge.confusion, judge.order) : null,
    judge.notes.map((remark) => el("p", { class: "soft small" }, visible(remark))),
  );
}

const tile = (value, words, more) => el("div", { class: "tile" }, el("b", {}, value), el("span", {}, words), el("span", { class: "interval" }, more));

/** `words` are the labels in the order of their scale. */
function confusion(entries, words) {
  if (words.length > 8) return null;
  const most = Math.max(...entries.map(({ count }) => count));
  const cell = (human, judge) => {
    const count = entries.find((each) => each.human === human && each.judge === judge)?.count || 0;
    const shade = count ? Math.max(1, Math.ceil((4 * count) / most)) : 0;
    return el("td", { class: `n shade-${shade} ${human === judge ? "same" : "other"}` }, count ? number(count) : "·");
  };
  return el("div", { class: "table-frame confusion" }, el("table", { "aria-label": "Confusion matrix: human labels in rows, judge labels in columns" },
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, el("span", { class: "small" }, "human ↓ · judge →")), words.map((word) => el("th", { scope: "col", class: "n" }, visible(word))))),
    el("tbody", {}, words.map((human) => el("tr", {}, el("th", { scope: "row" }, visible(human)), words.map((judge) => cell(human, judge)))))));
}
