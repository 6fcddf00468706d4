// `<proctor-questions run="…">`: open questions to human participants of a run, with a form to answer. Empty if there are none.

import { api } from "./api.js";
import { attempt, toast } from "./dialogs.js";
import { el } from "./dom.js";
import { ago } from "./format.js";
import { watch } from "./live.js";

class Questions extends HTMLElement {
  connectedCallback() {
    this.run = this.getAttribute("run");
    this.cards = new Map();
    this.status = el("p", { class: "soft small", role: "status" });
    this.stop = watch("questions", this.run, ({ questions }) => this.show(questions));
  }

  disconnectedCallback() {
    this.stop?.();
  }

  show(questions) {
    const open = new Set(questions.map((question) => question.id));
    for (const [id, card] of this.cards)
      if (!open.has(id)) {
        card.remove();
        this.cards.delete(id);
      }
    if (questions.length) this.status.remove();
    // Existing cards are kept: the user may be typing in one.
    for (const question of questions)
      if (!this.cards.has(question.id)) {
        const card = this.card(question);
        this.cards.set(question.id, card);
        this.append(card);
      }
  }

  card(question) {
    const field = el("textarea", { rows: 4, required: true, maxlength: 200_000, "aria-label": `Answer as ${question.actor}` });
    const button = el("button", { class: "primary", type: "submit" }, "Answer");
    const form = el("form", { class: "stack", dataset: { needs: "label" } }, el("label", { class: "field" }, "Your answer", field), el("div", { class: "actions" }, button));
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const address = `/api/runs/${encodeURIComponent(this.run)}/questions/${encodeURIComponent(question.id)}`;
      const accepted = await attempt(button, () => api.post(address, { answer: field.value }));
      if (!accepted) return;
      toast(`Answer sent as ${question.actor}`, "good");
      this.status.textContent = "Your answer was sent. Waiting for the next question.";
      this.append(this.status);
    });
    const prompt = el("details", { open: question.prompt.length < 1500 }, el("summary", {}, "Question"), el("pre", { class: "question-text" }, question.prompt));
    return el("section", { class: "card question", "aria-label": `Question to ${question.actor}` }, el("h2", {}, `You are ${question.actor}`), el("p", { class: "soft small" }, `asked ${ago(question.askedAt)} · ${question.itemId}`), prompt, form);
  }
}
customElements.define("proctor-questions", Questions);
