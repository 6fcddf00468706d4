// Gates on a comparison, as in `proctor compare --gate`, and their verdicts.

import { el } from "./dom.js";
import { visible } from "./texts.js";

const KINDS = { pass: "s-success", fail: "s-fail", inconclusive: "s-queued" };
const WORDS = { pass: "All gates pass.", fail: "At least one gate fails.", inconclusive: "Inconclusive: not enough data for all gates." };

/** The gates of a comparison; `add(text, button)` and `remove(text)` are called to change them. */
export function gatesSection({ gates, verdict }, { add, remove }) {
  const field = el("input", { type: "text", id: "gate", "aria-label": "Gate", placeholder: "success>=-0.02", autocomplete: "off", spellcheck: "false", maxlength: 300, required: true });
  const button = el("button", { type: "submit" }, "Add gate");
  const form = el("form", { class: "tools" }, field, button);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (field.value.trim()) add(field.value.trim(), button);
  });
  return el("section", { "aria-labelledby": "gates-title" },
    el("h2", { id: "gates-title" }, "Gates"),
    el("p", { class: "soft" }, verdict ? el("b", {}, WORDS[verdict]) : "Required difference, candidate − baseline, in the metric's unit or as a percentage of the baseline: success>=-0.02, cost<=10%. A gate passes if the whole 95% CI meets it, there are enough tasks, and errors counted as failures change nothing."),
    gates.length ? el("ul", { class: "gates", "aria-label": "Gates" }, gates.map((gate) => line(gate, remove))) : null,
    form);
}

function line({ gate, candidate, verdict, text }, remove) {
  return el("li", {},
    el("span", { class: `status ${KINDS[verdict]}` }, verdict),
    el("code", {}, visible(gate)),
    el("span", { class: "gate-words" }, el("b", {}, visible(candidate)), `: ${visible(text)}.`),
    el("button", { type: "button", class: "quiet icon small-icon", "aria-label": `Remove ${visible(gate)}`, onclick: () => remove(gate) }, "×"));
}
