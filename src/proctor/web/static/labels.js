// `<proctor-labels session="…">`: evaluator results of a session, with human labels for the same targets.
// Set `evaluator="…"` to show only one evaluator, `heading="h2"` where no heading is above it. Dispatches the event `labeled` when a label is saved.

import { api, query } from "./api.js";
import { attempt, toast } from "./dialogs.js";
import { el, remember, remembered } from "./dom.js";
import { ago } from "./format.js";
import { authorName, NOBODY, visible } from "./texts.js";

const WHO = "proctor-labels-who";
const BLIND = "proctor-labels-blind";
const shortName = (name) => visible(name.replace(/^Builtin\./, ""));
const truncated = (id) => (id.length > 18 ? `${id.slice(0, 12)}…` : id);
const rounded = (value) => (value === null ? "" : String(Math.round(value * 1000) / 1000));

export class Labels extends HTMLElement {
  connectedCallback() {
    if (this.started) return;
    this.started = true;
    this.address = `/api/sessions/${encodeURIComponent(this.getAttribute("session"))}/labels`;
    this.who = el("input", { type: "text", "aria-label": "Your name", placeholder: "Your name", maxlength: 100, value: document.documentElement.dataset.person || remembered(WHO, ""), hidden: Boolean(document.documentElement.dataset.person), autocomplete: "off" });
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
      el("div", { class: "labels-head" }, el(this.getAttribute("heading") || "h3", {}, "Human labels"), el("label", { class: "check small" }, this.blind, "Hide scores until labeled"), this.who),
      this.agreement,
      this.list,
    );
    this.load();
  }

  async load() {
    try {
      this.update(await api.get(this.address));
    } catch (error) {
      this.list.replaceChildren(el("div", { class: "notice bad", role: "alert" }, visible(error.message)));
    }
  }

  update(response) {
    const only = this.getAttribute("evaluator");
    this.targets = response.targets.filter((thing) => !only || thing.evaluator === only);
    this.draw();
    this.showAgreement();
  }

  draw() {
    if (!this.targets) return;
    // Keep unsaved input in other rows when one row is saved.
    const drafts = new Map([...this.list.querySelectorAll("form")].map((form) => [form.dataset.key, [...form.elements].map((field) => field.value)]));
    this.list.replaceChildren(...(this.targets.length ? this.targets.map((thing) => this.row(thing)) : [el("p", { class: "soft" }, "No evaluation results yet.")]));
    for (const form of this.list.querySelectorAll("form")) {
      const draft = drafts.get(form.dataset.key);
      if (draft && draft.length === form.elements.length) [...form.elements].forEach((field, place) => field.type !== "submit" && draft[place] && (field.value = draft[place]));
    }
  }

  row(thing) {
    const ownLabel = thing.labels.find((label) => label.author === (this.who.value.trim() || NOBODY));
    const isHidden = this.blind.checked && !ownLabel;
    const verdict = thing.verdict;
    const result = !verdict ? el("span", { class: "soft" }, "not evaluated") : verdict.error ? el("span", { class: "status s-error" }, "failed") : isHidden ? el("span", { class: "soft" }, "hidden") : el("b", {}, [visible(verdict.label), rounded(verdict.value)].filter(Boolean).join(" · "));
    const explanation = verdict && !isHidden ? visible(verdict.error || verdict.explanation) : "";
    return el(
      "section",
      { class: "label-row", "aria-label": visible(`${thing.evaluator} ${thing.target}`.trim()) },
      el("div", { class: "label-about" }, el("b", { title: visible(thing.evaluator) }, shortName(thing.evaluator)), thing.dimension ? el("span", { class: "tag" }, visible(thing.dimension)) : null, el("span", { class: "soft small target", title: visible(thing.target) || null }, thing.level === "session" ? "session" : `${thing.level.replace("_", " ")} ${truncated(visible(thing.target))}`)),
      el("div", { class: "label-verdict" }, el("span", { class: "soft small" }, "Judge"), result, explanation ? el("p", { class: "why", dir: "auto" }, explanation) : null),
      el("div", { class: "label-people" }, thing.labels.length ? thing.labels.map((label) => this.labelLine(label, verdict)) : null, this.form(thing, ownLabel)),
    );
  }

  labelLine(label, verdict) {
    const same = verdict && !verdict.error ? (label.label ? label.label === verdict.label : label.value === verdict.value) : null;
    return el("div", { class: "said-line" }, el("b", {}, authorName(label.author)), ": ", el("b", { class: same === null ? null : same ? "agrees" : "differs" }, [visible(label.label), label.label ? "" : rounded(label.value)].filter(Boolean).join("")), el("span", { class: "soft small" }, ` ${same === null ? "" : same ? "agrees with the judge · " : "differs from the judge · "}${ago(label.at)}`), label.note ? el("p", { class: "soft small", dir: "auto" }, visible(label.note)) : null);
  }

  form(thing, ownLabel) {
    const name = visible(`${thing.evaluator} ${thing.target}`.trim());
    const choices = thing.ratings.length
      ? el("select", { required: true, "aria-label": `Your label for ${name}` }, el("option", { value: "" }, ownLabel ? "Change label…" : "Choose…"), thing.ratings.map((rating) => el("option", { value: rating.label }, visible(rating.label))))
      : el("input", { type: "text", required: true, maxlength: 200, placeholder: thing.verdict?.label ? `Label, such as ${visible(thing.verdict.label)}` : "Label or number", "aria-label": `Your label for ${name}`, autocomplete: "off" });
    const note = el("input", { type: "text", class: "note", placeholder: "Note (optional)", maxlength: 2000, "aria-label": `Note for ${name}`, autocomplete: "off" });
    const button = el("button", { type: "submit", class: "compact" }, "Save");
    const form = el("form", { class: "label-form", dataset: { needs: "label", key: `${thing.evaluator} ${thing.dimension} ${thing.target}` } }, choices, note, button);
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const typed = choices.value.trim();
      const isNumber = !thing.ratings.length && typed !== "" && Number.isFinite(Number(typed));
      const label = { evaluator: thing.evaluator, dimension: thing.dimension, target: thing.target, author: this.who.value.trim(), note: note.value.trim(), ...(isNumber ? { value: Number(typed) } : { label: typed }) };
      const response = await attempt(button, () => api.post(this.address, label));
      if (!response) return;
      form.reset();
      choices.value = note.value = "";
      this.update(response);
      toast("Label saved.", "good");
      this.dispatchEvent(new CustomEvent("labeled", { bubbles: true, detail: { evaluator: thing.evaluator } }));
    });
    return form;
  }

  /** Show the agreement of judges with human labels so far, over all sessions. */
  async showAgreement() {
    const labeled = [...new Set(this.targets.filter((thing) => thing.labels.length).map((thing) => thing.evaluator))].slice(0, 5);
    const lines = [];
    for (const evaluator of labeled) {
      try {
        const { judges } = await api.get(`/api/judges${query({ evaluator })}`);
        for (const judge of judges) if (judge.targets) lines.push(`${shortName(judge.evaluator)}: judge and humans agree on ${judge.agreement.n ? `${Math.round(judge.agreement.value * judge.agreement.n)} of ${judge.agreement.n}` : "none"}${judge.kappa.value === null ? "" : `, kappa ${judge.kappa.value.toFixed(2)}`}`);
      } catch {
        // The agreement line is optional.
      }
    }
    this.agreement.textContent = lines.length ? `Over all sessions: ${lines.join(". ")}.` : "";
  }
}
customElements.define("proctor-labels", Labels);
