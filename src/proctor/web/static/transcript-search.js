// Search inside a transcript: the server searches the whole transcript; a hit scrolls to its event.

import { api, query } from "./api.js";
import { debounced, el } from "./dom.js";
import { plural } from "./format.js";
import { visible } from "./texts.js";

const MOST_HITS = 500;
const PARTS = { argsJson: "arguments", result: "result" };

/** `address` is the session's API URL; `show(position, text)` scrolls to an event. */
export class TranscriptSearch extends HTMLElement {
  begin({ address, show }) {
    Object.assign(this, { address, show, hits: [], current: -1, latestRequest: 0 });
    this.field = el("input", { type: "search", placeholder: "Search transcript…", "aria-label": "Search transcript", title: "Press / to focus, Enter for the next hit", autocomplete: "off", spellcheck: "false", maxlength: "500" });
    this.status = el("span", { class: "soft figures", role: "status" });
    const button = (words, name, by) => el("button", { type: "button", class: "compact icon", "aria-label": name, title: name, disabled: true, onclick: () => this.go(by) }, words);
    this.steps = [button("↑", "Previous hit", -1), button("↓", "Next hit", 1)];
    this.list = el("ol", { class: "hits", "aria-label": "Hits", hidden: true });
    this.replaceChildren(el("div", { class: "tools" }, this.field, this.steps, this.status), this.list);
    this.field.addEventListener("input", debounced(() => this.search(), 250));
    this.field.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.go(event.shiftKey ? -1 : 1);
      else if (event.key === "Escape") this.clear();
    });
  }

  clear() {
    this.field.value = "";
    this.search();
  }

  async search() {
    const request = ++this.latestRequest;
    const text = this.field.value.trim();
    this.hits = [];
    this.current = -1;
    this.draw(text ? "Searching…" : "");
    if (!text) return;
    try {
      await this.collect(text, () => request === this.latestRequest);
    } catch (error) {
      if (request === this.latestRequest) this.draw(error.message);
    }
  }

  /** Search a long transcript part by part, showing hits as they arrive. */
  async collect(text, isCurrent) {
    let [after, hasMore] = [0, true];
    while (hasMore && this.hits.length < MOST_HITS) {
      const response = await api.get(`${this.address}/search${query({ text, after: after || "" })}`);
      if (!isCurrent()) return;
      this.hits.push(...response.hits);
      [after, hasMore] = [response.lastPosition, response.hasMore];
      this.draw(hasMore ? "Searching…" : "");
    }
    this.draw(hasMore ? `first ${plural(this.hits.length, "hit")}` : this.hits.length ? "" : "No hits.");
  }

  draw(words) {
    for (const step of this.steps) step.disabled = !this.hits.length;
    const place = this.current < 0 ? plural(this.hits.length, "hit") : `${this.current + 1} of ${plural(this.hits.length, "hit")}`;
    this.status.textContent = words || (this.hits.length ? place : "");
    this.list.hidden = !this.hits.length;
    while (this.list.children.length > this.hits.length) this.list.lastChild.remove();
    if (!this.hits.length) return;
    const known = this.list.children.length;
    this.list.append(...this.hits.slice(known).map((hit, index) => this.line(hit, known + index)));
    for (const [index, line] of [...this.list.children].entries()) line.firstChild.setAttribute("aria-current", String(index === this.current));
  }

  line(hit, index) {
    const flat = (text) => visible(text).replaceAll(/\s+/g, " ");
    const where = [hit.name, PARTS[hit.part]].filter(Boolean).join(", ");
    const words = el("span", { class: "one-line" }, flat(hit.before).slice(-60), el("mark", {}, flat(hit.match)), flat(hit.after));
    return el("li", {}, el("button", { type: "button", onclick: () => this.choose(index) }, el("span", { class: "soft figures" }, `#${hit.position}`), el("b", {}, visible(where)), words));
  }

  go(by) {
    if (!this.hits.length) return;
    this.choose((this.current + by + this.hits.length) % this.hits.length);
  }

  choose(index) {
    this.current = index;
    this.draw("");
    this.list.children[index].scrollIntoView({ block: "nearest" });
    this.show(this.hits[index].position, this.hits[index].match);
  }
}
customElements.define("transcript-search", TranscriptSearch);
