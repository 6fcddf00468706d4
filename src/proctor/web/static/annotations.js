// `<proctor-annotations session="…">`: star, rating, tags, and notes of a session.

import { api } from "./api.js";
import { attempt } from "./dialogs.js";
import { el, remember, remembered } from "./dom.js";
import { ago, moment } from "./format.js";
import { authorName, NOBODY, visible } from "./texts.js";

const WHO = "proctor-labels-who";
const RATING = "Human.Rating";

export class Annotations extends HTMLElement {
  connectedCallback() {
    if (this.started) return;
    this.started = true;
    this.session = this.getAttribute("session");
    this.address = `/api/sessions/${encodeURIComponent(this.session)}`;
    this.who = el("input", { type: "text", class: "compact", "aria-label": "Your name", placeholder: "Your name", maxlength: 100, value: document.documentElement.dataset.person || remembered(WHO, ""), hidden: Boolean(document.documentElement.dataset.person), autocomplete: "off" });
    this.who.addEventListener("change", () => {
      remember(WHO, this.who.value.trim());
      this.draw();
    });
    this.star = el("button", { type: "button", class: "compact star", "aria-pressed": "false", dataset: { needs: "label" } });
    this.star.addEventListener("click", () => this.toggleStar());
    this.rating = el("fieldset", { class: "rating", dataset: { needs: "label" } }, el("legend", { class: "unseen" }, "Rating"));
    this.buttons = [1, 2, 3, 4, 5].map((value) => el("button", { type: "button", class: "compact", "aria-pressed": "false", "aria-label": `Rate ${value} of 5`, onclick: (event) => this.rate(event.currentTarget, value) }, String(value)));
    this.rating.append(...this.buttons);
    this.ratings = el("span", { class: "soft small figures", hidden: true });
    this.tags = el("span", { class: "tag-list" });
    this.known = el("datalist", { id: "known-tags" });
    this.newTag = el("input", { type: "text", class: "compact", "aria-label": "Add a tag", placeholder: "Add a tag", maxlength: 100, list: "known-tags", autocomplete: "off" });
    this.newTag.addEventListener("focus", () => this.suggest(), { once: true });
    const tagForm = el("form", { class: "tag-form", dataset: { needs: "label" } }, this.newTag, this.known);
    tagForm.addEventListener("submit", (event) => this.addTag(event));
    this.notes = el("ul", { class: "note-list" });
    this.newNote = el("textarea", { rows: 2, "aria-label": "New note", placeholder: "Write a note", maxlength: 20_000 });
    const save = el("button", { type: "submit", class: "compact" }, "Add note");
    const noteForm = el("form", { class: "note-form", dataset: { needs: "label" } }, this.newNote, el("div", { class: "note-actions" }, this.who, save));
    noteForm.addEventListener("submit", (event) => this.addNote(event, save));
    this.summary = el("summary", {}, "Notes");
    this.fold = el("details", { class: "notes" }, this.summary, this.notes, noteForm);
    this.replaceChildren(el("div", { class: "annotation-bar" }, this.star, this.rating, this.ratings, this.tags, tagForm), this.fold);
    this.draw();
    this.load();
  }

  get author() {
    return this.who.value.trim() || NOBODY;
  }

  async load() {
    try {
      await this.update(api.get(`${this.address}/annotations`));
    } catch {
      // The page itself shows why the session cannot be read.
    }
  }

  async update(request) {
    const before = this.response;
    const response = await request;
    // Another answer came meanwhile, and nobody knows which of the two is newer.
    if (this.response !== before) return this.load();
    this.response = response;
    this.draw();
  }

  draw() {
    const { annotations = [], ratings = [] } = this.response ?? {};
    const kind = (name) => annotations.filter((one) => one.kind === name);
    const stars = kind("star");
    const mine = stars.some((one) => one.author === this.author);
    this.star.setAttribute("aria-pressed", String(mine));
    this.star.setAttribute("aria-label", mine ? "Remove star" : "Star");
    this.star.textContent = `${mine ? "★" : "☆"}${stars.length > 1 ? ` ${stars.length}` : ""}`;
    const own = ratings.find((one) => one.author === this.author)?.value;
    for (const [at, button] of this.buttons.entries()) button.setAttribute("aria-pressed", String(own === at + 1));
    const others = ratings.filter((one) => one.author !== this.author);
    this.ratings.textContent = others.map((one) => `${authorName(one.author)}: ${one.value}`).slice(0, 5).join(" · ");
    this.ratings.hidden = !others.length;
    const tags = kind("tag");
    this.tags.hidden = !tags.length;
    this.tags.replaceChildren(...tags.map((one) => this.tag(one)));
    const notes = kind("note");
    this.summary.textContent = notes.length ? `Notes (${notes.length})` : "Notes";
    this.notes.replaceChildren(...notes.map((one) => this.note(one)));
    if (notes.length && !this.wasDrawn) this.fold.open = true;
    this.wasDrawn = Boolean(this.response);
  }

  tag(one) {
    const remove = el("button", { type: "button", class: "quiet tag-remove", dataset: { needs: "label" }, "aria-label": `Remove tag ${visible(one.text)}`, onclick: (event) => this.remove(event.currentTarget, one) }, "×");
    return el("span", { class: "tag", title: `${authorName(one.author)}, ${moment(one.createdAt)}` }, visible(one.text), remove);
  }

  note(one) {
    const remove = el("button", { type: "button", class: "quiet compact", dataset: { needs: "label" }, "aria-label": `Delete note of ${authorName(one.author)}`, onclick: (event) => this.remove(event.currentTarget, one) }, "Delete");
    return el("li", {}, el("div", { class: "note-head" }, el("b", {}, authorName(one.author)), el("span", { class: "soft small", title: moment(one.createdAt) }, ago(one.createdAt)), remove), el("p", { class: "note-text", dir: "auto" }, visible(one.text)));
  }

  focusTag() {
    this.newTag.focus();
  }

  focusNote() {
    this.fold.open = true;
    this.newNote.focus();
  }

  async suggest() {
    try {
      const { tags } = await api.get("/api/tags");
      this.known.replaceChildren(...tags.slice(0, 100).map((tag) => el("option", { value: tag.text })));
    } catch {
      // Without suggestions, a tag can still be typed.
    }
  }

  save(button, kind, text = "") {
    return attempt(button, async () => (await this.update(api.post(`${this.address}/annotations`, { kind, text, author: this.who.value.trim() }))) ?? true);
  }

  remove(button, one) {
    return attempt(button, () => this.update(api.delete(`${this.address}/annotations/${encodeURIComponent(one.id)}`)));
  }

  toggleStar() {
    const mine = this.response?.annotations.find((one) => one.kind === "star" && one.author === this.author);
    return mine ? this.remove(this.star, mine) : this.save(this.star, "star");
  }

  rate(button, value) {
    return attempt(button, async () => {
      await api.post(`${this.address}/labels`, { evaluator: RATING, author: this.who.value.trim(), value });
      await this.load();
    });
  }

  async addTag(event) {
    event.preventDefault();
    if (this.newTag.value.trim() && (await this.save(null, "tag", this.newTag.value))) this.newTag.value = "";
  }

  async addNote(event, button) {
    event.preventDefault();
    if (this.newNote.value.trim() && (await this.save(button, "note", this.newNote.value))) this.newNote.value = "";
  }
}
customElements.define("proctor-annotations", Annotations);
