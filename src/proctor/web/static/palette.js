// The palette: actions of the page, runs, sessions, and full-text search over all transcripts. Opened by Ctrl-K.

import { api, query } from "./api.js";
import { byId, debounced, el, go } from "./dom.js";
import { ago, number, plural } from "./format.js";
import { badge } from "./status.js";
import { visible } from "./texts.js";

const PAGE = 12;
const AGAIN_MILLISECONDS = 600;
const MOST_ACTIONS = 8;

let dialog = null;

/** Open the palette, or focus it if it is open; `typed` is what the user has typed already. */
export function openPalette(typed = "") {
  if (!dialog) dialog = new Palette();
  dialog.open(typed);
}

class Palette {
  constructor() {
    this.input = el("input", { type: "text", role: "combobox", "aria-expanded": "true", "aria-controls": "palette-list", "aria-autocomplete": "list", "aria-label": "Search runs, sessions, transcripts, and actions", placeholder: "Search runs, sessions, transcripts, and actions", maxlength: 500, autocomplete: "off", spellcheck: "false" });
    this.list = el("div", { id: "palette-list", class: "palette-list", role: "listbox", "aria-label": "Results", tabindex: "-1" });
    this.note = el("p", { class: "soft small palette-note", role: "status" });
    this.box = el("dialog", { class: "dialog palette", "aria-label": "Search" }, this.input, this.list, this.note);
    document.body.append(this.box);
    this.search = debounced(() => this.load(), 150);
    this.input.addEventListener("input", () => this.changed());
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.box.addEventListener("click", (event) => event.target === this.box && this.box.close());
    this.box.addEventListener("close", () => this.stop());
    this.list.addEventListener("click", (event) => this.choose(event.target.closest("[role=option]"), event));
  }

  open(typed) {
    if (!this.box.open) {
      this.actions = actions();
      this.box.showModal();
    }
    this.input.select();
    if (typed) this.input.value = typed;
    this.changed();
  }

  stop() {
    this.search.cancel();
    clearTimeout(this.again);
    this.request?.abort();
  }

  changed() {
    this.stop();
    const text = this.input.value.trim();
    this.offset = 0;
    this.found = null;
    this.draw();
    if (text) this.search();
    else this.recent();
  }

  async recent() {
    try {
      const { runs } = await api.get(`/api/runs${query({ limit: 6 })}`);
      if (!this.input.value.trim()) {
        this.found = { runs: runs.slice(0, 6), sessions: [], hits: [], problem: "", pending: 0 };
        this.draw();
      }
    } catch {
      // Actions still work.
    }
  }

  async load({ more = false } = {}) {
    const text = this.input.value.trim();
    if (!text) return;
    this.request?.abort();
    this.request = new AbortController();
    try {
      const response = await api.get(`/api/search${query({ text, offset: more ? this.offset + PAGE : this.offset, limit: PAGE })}`, { signal: this.request.signal });
      if (text !== this.input.value.trim()) return;
      if (more) {
        this.offset += PAGE;
        this.found = { ...this.found, hits: [...this.found.hits, ...response.hits], hasMore: response.hasMore };
      } else this.found = response;
      this.draw();
      // Each request indexes more of a large store.
      if (response.pending && !more) this.again = setTimeout(() => !this.offset && this.load(), AGAIN_MILLISECONDS);
    } catch (error) {
      if (error.name === "AbortError") return;
      this.note.textContent = visible(error.message);
    }
  }

  draw() {
    const text = this.input.value.trim().toLowerCase();
    const selected = this.current?.id;
    const groups = [
      ["Actions", this.actions.filter(({ name }) => name.toLowerCase().includes(text)).slice(0, MOST_ACTIONS).map((one) => option(one.name, one.hint, { run: one.run }))],
      [text ? "Runs" : "Recent runs", (this.found?.runs ?? []).map(runOption)],
      ["Sessions", (this.found?.sessions ?? []).map(sessionOption)],
      ["Transcripts", (this.found?.hits ?? []).map(hitOption)],
    ];
    if (this.found?.hasMore) groups.push(["", [option("More results", "", { run: () => this.load({ more: true }), stays: true })]]);
    const nodes = groups.filter(([, options]) => options.length).map(([name, options]) => el("div", { role: "group", "aria-label": name || "More" }, name ? el("p", { class: "palette-group", "aria-hidden": "true" }, name) : null, options));
    this.list.replaceChildren(...nodes);
    this.options = [...this.list.querySelectorAll("[role=option]")];
    for (const [at, one] of this.options.entries()) one.id = `palette-${at}`;
    this.select(this.options.find((one) => one.id === selected && this.offset) ?? this.options[0]);
    this.note.textContent = this.words(text);
  }

  words(text) {
    if (!text) return "";
    if (!this.found) return "Searching…";
    if (this.found.problem) return visible(this.found.problem);
    if (this.found.pending) return `Indexing transcripts: ${number(this.found.indexed)} of ${plural(this.found.indexed + this.found.pending, "session")}.`;
    return this.options.length ? "" : "No match.";
  }

  select(one) {
    this.current?.removeAttribute("aria-selected");
    this.current = one;
    if (!one) return this.input.removeAttribute("aria-activedescendant");
    one.setAttribute("aria-selected", "true");
    one.scrollIntoView({ block: "nearest" });
    return this.input.setAttribute("aria-activedescendant", one.id);
  }

  key(event) {
    if (event.key === "Enter") {
      event.preventDefault();
      this.choose(this.current, event);
    }
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 }[event.key];
    if (!step || !this.options.length) return;
    event.preventDefault();
    const at = this.options.indexOf(this.current) + step;
    this.select(this.options[Math.abs(step) > 1 ? Math.max(0, Math.min(this.options.length - 1, at)) : (at + this.options.length) % this.options.length]);
  }

  choose(one, event) {
    if (!one) return;
    const { run, path, stays } = one.palette;
    if (path && (event.ctrlKey || event.metaKey)) return void open(document.documentElement.dataset.root + path, "_blank", "noopener");
    if (!stays) this.box.close();
    if (run) run();
    else go(path);
  }
}

function option(name, hint, { path = "", run = null, stays = false }, ...more) {
  const node = el("div", { role: "option", class: "palette-option" }, el("span", { class: "palette-name" }, name), hint ? el("span", { class: "soft small palette-hint" }, hint) : null, more);
  node.palette = { path, run, stays };
  return node;
}

const runOption = (run) => option(visible(run.runId), [run.job, run.createdAt ? ago(run.createdAt) : ""].filter(Boolean).join(" · "), { path: `/runs/${encodeURIComponent(run.runId)}` }, badge(run.status));

const sessionOption = (session) => option(visible(session.name || session.id), [session.runId, session.agent, session.model].filter(Boolean).map(visible).join(" · "), { path: `/sessions/${encodeURIComponent(session.id)}` }, badge(session.status));

function hitOption(hit) {
  const snippet = el("span", { class: "palette-snippet", dir: "auto" }, hit.snippet.map(({ text, isMatch }) => (isMatch ? el("mark", {}, visible(text)) : visible(text.replace(/\s+/g, " ")))));
  const where = [hit.runId || hit.sessionId, hit.model, `${hit.name} #${hit.position}`].filter(Boolean).map(visible).join(" · ");
  const node = option("", "", { path: `/sessions/${encodeURIComponent(hit.sessionId)}#m${hit.position}` });
  node.replaceChildren(el("span", { class: "palette-hit" }, snippet, el("span", { class: "soft small one-line" }, where)), badge(hit.status));
  return node;
}

/** What can be done on this page: its pages, tabs, and buttons. */
function actions() {
  const isShown = (element) => element.checkVisibility?.() ?? true;
  const links = [...document.querySelectorAll("#navigation a")].filter((link) => getComputedStyle(link).display !== "none");
  const tabs = [...document.querySelectorAll("[role=tab]:not([hidden])")].filter(isShown);
  const buttons = [...document.querySelectorAll(".head .actions :is(button, a), .branch-head .actions :is(button, a)")].filter((one) => isShown(one) && !one.disabled && one.textContent.trim());
  const named = (element) => (element.getAttribute("aria-label") || element.firstChild?.textContent || element.textContent).trim();
  return [
    ...buttons.map((button) => ({ name: named(button), hint: "this page", run: () => button.click() })),
    ...tabs.map((tab) => ({ name: named(tab), hint: "tab", run: () => tab.click() })),
    ...links.map((link) => ({ name: named(link), hint: "page", run: () => link.click() })),
    { name: "Switch theme", hint: "", run: () => byId("theme-button")?.click() },
    { name: "Show keys", hint: "?", run: () => document.dispatchEvent(new KeyboardEvent("keydown", { key: "?" })) },
  ];
}
