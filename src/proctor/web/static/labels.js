// `<proctor-labels session="…">`: what evaluators said of a session, and what people say of the same.
// Give `evaluator="…"` to show one of them alone. Tells of a new label with the event `labelled`.

import { api, query } from "./api.js";
import { attempt, toast } from "./dialogs.js";
import { el, remember, remembered } from "./dom.js";
import { ago } from "./format.js";
import { visible } from "./texts.js";

const WHO = "proctor-labels-who";
const BLIND = "proctor-labels-blind";
const shortName = (name) => visible(name.replace(/^Builtin\./, ""));
const cut = (id) => (id.length > 18 ? `${id.slice(0, 12)}…` : id);
const worth = (value) => (value === null ? "" : String(Math.round(value * 1000) / 1000));

export class Labels extends HTMLElement {
  connectedCallback() {
    if (this.started) return;
    this.started = true;
    this.address = `/api/sessions/${encodeURIComponent(this.getAttribute("session"))}/labels`;
    this.who = el("input", { type: "text", "aria-label": "Your name", placeholder: "Your name", maxlength: 100, value: remembered(WHO, ""), autocomplete: "off" });
    this.who.addEventListener("change", () => remember(WHO, this.who.value.trim()));
    this.blind = el("input", { type: "checkbox" });
    this.blind.checked = remembered(BLIND, false);
    this.blind.addEventListener("change", () => {
      remember(BLIND, this.blind.checked);
      this.draw();
    });
    this.agreement = el("p", { class: "soft small labels-agreement", role: "status" });
    this.list = el("div", { class: "label-list" }, el("p", { class: "loading" }, "Loading…"));
    this.replaceChildren(
      el("div", { class: "labels-head" }, el("h3", {}, "What do you think?"), el("label", { class: "check small" }, this.blind, "Hide verdicts until I have answered"), this.who),
      this.agreement,
      this.list,
    );
    this.load();
  }

  async load() {
    try {
      this.take(await api.get(this.address));
    } catch (error) {
      this.list.replaceChildren(el("div", { class: "notice bad", role: "alert" }, visible(error.message)));
    }
  }

  take(answer) {
    const only = this.getAttribute("evaluator");
    this.things = answer.things.filter((thing) => !only || thing.evaluator === only);
    this.draw();
    this.tellAgreement();
  }

  draw() {
    if (!this.things) return;
    // What is being written in a row must not be lost when another is saved.
    const drafts = new Map([...this.list.querySelectorAll("form")].map((form) => [form.dataset.key, [...form.elements].map((field) => field.value)]));
    this.list.replaceChildren(...(this.things.length ? this.things.map((thing) => this.row(thing)) : [el("p", { class: "soft" }, "Nothing has been judged here yet.")]));
    for (const form of this.list.querySelectorAll("form")) {
      const draft = drafts.get(form.dataset.key);
      if (draft && draft.length === form.elements.length) [...form.elements].forEach((field, place) => field.type !== "submit" && draft[place] && (field.value = draft[place]));
    }
  }

  row(thing) {
    const mine = thing.labels.find((label) => label.who === (this.who.value.trim() || "someone"));
    const isHidden = this.blind.checked && !mine;
    const verdict = thing.verdict;
    const judged = !verdict ? el("span", { class: "soft" }, "not judged") : verdict.error ? el("span", { class: "status s-error" }, "not judged") : isHidden ? el("span", { class: "soft" }, "hidden") : el("b", {}, [visible(verdict.label), worth(verdict.value)].filter(Boolean).join(" · "));
    const why = verdict && !isHidden ? visible(verdict.error || verdict.explanation) : "";
    return el(
      "section",
      { class: "label-row", "aria-label": visible(`${thing.evaluator} ${thing.target}`.trim()) },
      el("div", { class: "label-about" }, el("b", { title: visible(thing.evaluator) }, shortName(thing.evaluator)), thing.dimension ? el("span", { class: "tag" }, visible(thing.dimension)) : null, el("span", { class: "soft small target", title: visible(thing.target) || null }, thing.level === "session" ? "the session" : `${thing.level.replace("_", " ")} ${cut(visible(thing.target))}`)),
      el("div", { class: "label-verdict" }, el("span", { class: "soft small" }, "Judge"), judged, why ? el("p", { class: "why", dir: "auto" }, why) : null),
      el("div", { class: "label-people" }, thing.labels.length ? thing.labels.map((label) => this.said(label, verdict)) : null, this.form(thing, mine)),
    );
  }

  said(label, verdict) {
    const same = verdict && !verdict.error ? (label.label ? label.label === verdict.label : label.value === verdict.value) : null;
    return el("div", { class: "said-line" }, el("b", {}, visible(label.who)), " says ", el("b", { class: same === null ? null : same ? "agrees" : "differs" }, [visible(label.label), label.label ? "" : worth(label.value)].filter(Boolean).join("")), el("span", { class: "soft small" }, ` ${same === null ? "" : same ? "like the judge · " : "unlike the judge · "}${ago(label.at)}`), label.note ? el("p", { class: "soft small", dir: "auto" }, visible(label.note)) : null);
  }

  form(thing, mine) {
    const name = visible(`${thing.evaluator} ${thing.target}`.trim());
    const choices = thing.ratings.length
      ? el("select", { required: true, "aria-label": `Your label for ${name}` }, el("option", { value: "" }, mine ? "Change your mind…" : "Choose…"), thing.ratings.map((rating) => el("option", { value: rating.label }, visible(rating.label))))
      : el("input", { type: "text", required: true, maxlength: 200, placeholder: thing.verdict?.label ? `A word, like ${visible(thing.verdict.label)}` : "A word or a number", "aria-label": `Your label for ${name}`, autocomplete: "off" });
    const note = el("input", { type: "text", class: "note", placeholder: "Why (optional)", maxlength: 2000, "aria-label": `Why, for ${name}`, autocomplete: "off" });
    const button = el("button", { type: "submit", class: "compact" }, "Save");
    const form = el("form", { class: "label-form", dataset: { key: `${thing.evaluator} ${thing.dimension} ${thing.target}` } }, choices, note, button);
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const typed = choices.value.trim();
      const isNumber = !thing.ratings.length && typed !== "" && Number.isFinite(Number(typed));
      const said = { evaluator: thing.evaluator, dimension: thing.dimension, target: thing.target, who: this.who.value.trim(), note: note.value.trim(), ...(isNumber ? { value: Number(typed) } : { label: typed }) };
      const answer = await attempt(button, () => api.post(this.address, said));
      if (!answer) return;
      form.reset();
      choices.value = note.value = "";
      this.take(answer);
      toast("Your label is kept.", "good");
      this.dispatchEvent(new CustomEvent("labelled", { bubbles: true, detail: { evaluator: thing.evaluator } }));
    });
    return form;
  }

  /** How far people and judges agree so far, over all sessions. */
  async tellAgreement() {
    const labelled = [...new Set(this.things.filter((thing) => thing.labels.length).map((thing) => thing.evaluator))].slice(0, 5);
    const told = [];
    for (const evaluator of labelled) {
      try {
        const { judges } = await api.get(`/api/judges${query({ evaluator })}`);
        for (const judge of judges) if (judge.things) told.push(`${shortName(judge.evaluator)}: the judge says what people say in ${judge.agreement.n ? `${Math.round(judge.agreement.value * judge.agreement.n)} of ${judge.agreement.n}` : "none"}${judge.kappa.value === null ? "" : `, kappa ${judge.kappa.value.toFixed(2)}`}`);
      } catch {
        // It is only a remark.
      }
    }
    this.agreement.textContent = told.length ? `So far, over all sessions. ${told.join(". ")}.` : "";
  }
}
customElements.define("proctor-labels", Labels);
