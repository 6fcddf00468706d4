// How good judges are: agreement with people, as cards with what they take for what.

import { el } from "./dom.js";
import { number, plural } from "./format.js";
import { visible } from "./texts.js";

const figure = (value) => (value === null ? "–" : value.toFixed(2).replace("-", "−"));
const around = ({ low, high }) => (low === null ? "too few to say" : `${figure(low)} to ${figure(high)}`);
export const shortName = (name) => visible(name.replace(/^Builtin\./, ""));

/** All judges, or word that there is none yet. */
export function judgeCards(judges) {
  if (!judges.length)
    return el("div", { class: "empty" }, el("h2", {}, "No labels yet"), el("p", {}, "Open a session of an evaluation and say what you think of what was judged. From the first label on, this shows how far each judge agrees with people; thirty or more begin to tell something."));
  return el("div", { class: "judge-cards" }, judges.map(card));
}

function card(judge) {
  const tiles = [
    tile(judge.agreement.value === null ? "–" : `${Math.round(judge.agreement.value * 100)} %`, "agreement", judge.agreement.low === null ? "" : `${Math.round(judge.agreement.low * 100)} to ${Math.round(judge.agreement.high * 100)} %`),
    tile(figure(judge.kappa.value), judge.weighted ? "kappa, weighted" : "kappa", around(judge.kappa)),
    tile(figure(judge.alpha.value), "alpha", judge.humanAlpha === null ? around(judge.alpha) : `people alone ${figure(judge.humanAlpha)}`),
    tile(judge.bias.value === null ? "–" : figure(judge.bias.value), "judge less people", judge.bias.value === null ? "labels have no values" : around(judge.bias)),
  ];
  return el(
    "article",
    { class: "card judge", "aria-label": visible(`${judge.evaluator} ${judge.dimension}`.trim()) },
    el("div", { class: "judge-head" }, el("h3", { title: visible(judge.evaluator) }, shortName(judge.evaluator), judge.dimension ? ` · ${visible(judge.dimension)}` : ""), el("span", { class: "soft small" }, `${plural(judge.things, "thing")}, ${plural(judge.sessions, "session")}, ${judge.people === 1 ? "1 person" : `${number(judge.people)} people`}`)),
    el("p", {}, judge.words),
    el("div", { class: "tiles judge-tiles" }, tiles),
    judge.confusion.length ? confusion(judge.confusion) : null,
    judge.remarks.map((remark) => el("p", { class: "soft small" }, visible(remark))),
  );
}

const tile = (value, words, more) => el("div", { class: "tile" }, el("b", {}, value), el("span", {}, words), el("span", { class: "interval" }, more));

function confusion(entries) {
  const words = [...new Set(entries.flatMap(({ human, judge }) => [human, judge]))].sort();
  if (words.length > 8) return null;
  const most = Math.max(...entries.map(({ count }) => count));
  const cell = (human, judge) => {
    const count = entries.find((each) => each.human === human && each.judge === judge)?.count || 0;
    const shade = count ? Math.max(1, Math.ceil((4 * count) / most)) : 0;
    return el("td", { class: `n shade-${shade} ${human === judge ? "same" : "other"}` }, count ? number(count) : "·");
  };
  return el("div", { class: "table-frame confusion" }, el("table", { "aria-label": "People said down, the judge said across" },
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, el("span", { class: "small" }, "people ↓ · judge →")), words.map((word) => el("th", { scope: "col", class: "n" }, visible(word))))),
    el("tbody", {}, words.map((human) => el("tr", {}, el("th", { scope: "row" }, visible(human)), words.map((judge) => cell(human, judge)))))));
}
