// A transcript: messages, tool calls, and model calls in order.

import { api, query } from "./api.js";
import { attempt, copyLink } from "./dialogs.js";
import { editsOf } from "./edits.js";
import { el, remember, remembered } from "./dom.js";
import { moment, money, number, seconds } from "./format.js";
import { editView } from "./diff.js";
import { richText } from "./richtext.js";
import { firstLine, longText, visible } from "./texts.js";

const PAGE = 100;
// Events shown before the target of a link into a long transcript.
const BEFORE = 20;
// A target further away than this is opened separately, without loading everything in between.
const FAR = 3 * PAGE;
const PLAIN = "proctor-transcript-plain";
// Tools whose arguments may be a diff that is too long to come with the event.
const MAY_EDIT = /edit|write|patch|replace|create|update|change/i;

export class Transcript extends HTMLElement {
  /** `sides` are the two participants of a dialogue; `scored(name, index)` returns what is shown below an utterance. */
  begin({ session, started, sides = null, scored = () => null, ending = () => null }) {
    this.address = `/api/sessions/${encodeURIComponent(session)}`;
    this.started = started ? Date.parse(started) : null;
    Object.assign(this, { sides, scored, ending });
    this.isPlain = remembered(PLAIN, false);
    this.first = this.last = 0;
    this.step = 0;
    this.spoken = new Map();
    this.hasMore = false;
    this.list = el("div", { class: "events", role: "log", "aria-label": "Transcript", "aria-live": "off" });
    this.earlier = el("button", { type: "button", class: "compact", hidden: true, onclick: () => attempt(this.earlier, () => this.loadEarlier()) }, "Show earlier");
    this.more = el("button", { type: "button", class: "compact", hidden: true, onclick: () => attempt(this.more, () => this.loadMore()) }, "Show more");
    this.empty = el("div", { class: "empty", hidden: true });
    this.end = el("div", { class: "events-end", hidden: true });
    this.replaceChildren(this.earlier, this.list, this.end, this.empty, this.more);
    new IntersectionObserver((seen) => seen.some((one) => one.isIntersecting) && this.hasMore && this.loadMore(), { rootMargin: "800px" }).observe(this.more);
  }

  /** Load the first events, or those around a linked position. */
  async open(position = 0, text = "") {
    // Utterances of a dialogue are numbered from its beginning.
    if (position > PAGE && !this.sides) this.first = this.last = Math.max(0, position - BEFORE);
    await this.loadMore();
    this.earlier.hidden = !this.first;
    if (position) await this.show(position, text);
  }

  /** Reload around a position far from the loaded events. */
  async reopen(position, text) {
    await this.loading;
    this.list.replaceChildren();
    this.spoken.clear();
    this.first = this.last = this.step = 0;
    await this.open(position, text);
  }

  async loadMore() {
    if (this.loading) return this.loading;
    this.loading = this.fetchEvents(this.last, PAGE).then((response) => {
      const before = this.list.lastElementChild;
      for (const event of formatted(response)) if (event.position > this.last) this.append(event);
      this.last = Math.max(this.last, response.lastPosition);
      this.hasMore = response.hasMore;
      this.more.hidden = !response.hasMore;
      this.showEnding();
      return before;
    });
    try {
      await this.loading;
    } finally {
      this.loading = null;
    }
    return undefined;
  }

  /** What follows the last event, such as the result of the check. */
  showEnding() {
    const ending = this.hasMore ? null : this.ending();
    this.end.hidden = !ending;
    this.end.replaceChildren(ending ?? "");
  }

  /** Show texts as they were written, or formatted. */
  async setPlain(isPlain) {
    this.isPlain = isPlain;
    remember(PLAIN, isPlain);
    await this.reopen(0, "");
  }

  async loadEarlier() {
    const after = Math.max(0, this.first - PAGE);
    const response = await this.fetchEvents(after, PAGE);
    const events = formatted(response).filter((event) => event.position <= this.first);
    this.list.prepend(...events.map((event) => this.render(event)));
    this.first = after;
    this.earlier.hidden = !after;
  }

  fetchEvents(after, limit) {
    return api.get(`${this.address}/events${query({ after, limit, rich: this.isPlain ? "" : "true" })}`);
  }

  /** Load new events, if any. */
  async catchUp(lastPosition) {
    if (lastPosition <= this.last || this.hasMore) return;
    const atEnd = innerHeight + scrollY > document.documentElement.scrollHeight - 120;
    await this.loadMore();
    if (atEnd && !this.closest("[hidden]")) scrollTo({ top: document.documentElement.scrollHeight });
  }

  showEmpty(title, words) {
    this.empty.replaceChildren(el("b", {}, title), el("p", {}, words));
    this.empty.hidden = Boolean(this.list.children.length);
  }

  /** Scroll to an event and highlight `text` in it. */
  async show(position, text = "") {
    const isShown = () => this.list.querySelector(`#m${position}`);
    const isFar = position <= this.first || position > this.last + FAR;
    if (!isShown() && isFar && (this.first || !this.sides)) return this.reopen(position, text);
    while (!isShown() && this.hasMore && this.last < position) await this.loadMore();
    return this.point(position, text);
  }

  point(position, text) {
    const target = this.list.querySelector(`#m${position}`);
    if (!target) return;
    for (const fold of target.querySelectorAll("details")) fold.open = true;
    this.list.querySelector(".pointed")?.classList.remove("pointed");
    target.classList.add("pointed");
    // During a search the focus stays in the field, so that Enter goes to the next hit.
    if (!text) target.focus({ preventScroll: true });
    target.scrollIntoView({ block: "center" });
    // The content of a fold is created by its toggle event, which fires later.
    setTimeout(async () => {
      await Promise.all([...target.querySelectorAll("details")].map((fold) => fold.filled));
      mark(target, text);
    }, 50);
  }

  append(event) {
    if (this.step && event.step > this.step && !this.sides)
      this.list.append(el("div", { class: "step-rule", role: "separator" }, `step ${event.step}`));
    this.step = event.step;
    this.list.append(this.render(event));
    this.empty.hidden = true;
  }

  render(event) {
    const make = { message: this.message, tool_call: this.toolCall, model_call: this.modelCall }[event.kind];
    return make.call(this, event);
  }

  link(event) {
    const button = el("button", { type: "button", class: "quiet anchor", "aria-label": `Copy link to ${event.position}`, title: "Copy link" }, `#${event.position}`);
    button.addEventListener("click", () => {
      history.replaceState(history.state, "", `#m${event.position}`);
      copyLink(button);
    });
    return button;
  }

  when(event) {
    if (!event.timestamp) return null;
    const offset = this.started === null ? null : (Date.parse(event.timestamp) - this.started) / 1000;
    const words = offset === null || offset < 0 ? "" : `+${seconds(offset)}`;
    return el("time", { class: "when", datetime: event.timestamp, title: moment(event.timestamp) }, words);
  }

  /** The element of an event, with its anchor and link. */
  article(event, kind, ...content) {
    return el("article", { class: `event ${kind}`, id: `m${event.position}`, tabindex: "-1" }, content, this.link(event));
  }

  /** A fold whose content is created when it is opened: `parts` are [title, piece, part]. */
  fold(event, summary, parts) {
    const body = el("div", { class: "fold-body" });
    const fold = el("details", {}, el("summary", {}, summary), body);
    const content = async (title, piece, part) => {
      if (!piece.size) return el("p", { class: "soft" }, "Empty.");
      const options = { rich: "data", className: "code", label: title };
      if (this.isPlain || !/^\s*[[{]/.test(piece.text)) return this.text(piece, event, part, options);
      const limit = piece.isCut ? [...piece.text].length : "";
      const shown = await api.get(`${this.address}/texts/${event.position}/${part}${query({ limit, rich: "data" })}`).catch(() => piece);
      return this.text(shown, event, part, options);
    };
    fold.addEventListener("toggle", () => {
      if (!fold.open || fold.filled) return;
      const contents = parts.map(async (part) => [el("p", { class: "fold-title" }, part[0]), await content(...part)]);
      fold.filled = Promise.all(contents).then((all) => body.replaceChildren(...all.flat()));
    });
    return fold;
  }

  /** A text of an event: formatted, or as it was written. */
  text(piece, event, part, { rich = "markdown", className = "said rich", label }) {
    const show = this.isPlain ? (text) => [visible(text)] : richText;
    const parameters = this.isPlain ? {} : { rich };
    return longText(piece, `${this.address}/texts/${event.position}/${part}`, { show, className, tag: this.isPlain ? "pre" : "div", label, parameters });
  }

  message(event) {
    const body = this.text(event.content, event, "content", { rich: event.role === "tool" ? "data" : "markdown", label: `Message ${event.position}` });
    const who = el("b", { class: "who" }, visible(event.name || event.role));
    const side = this.sides?.indexOf(event.name) ?? -1;
    // The moderator's messages are part of a dialogue; the system prompts of the participants are not.
    if (event.role === "system" && event.name !== "moderator") {
      // System prompts are long and the same in every session.
      const line = el("span", { class: "soft one-line" }, firstLine(event.content.text));
      return this.article(event, "role-system", el("details", {}, el("summary", {}, who, line, this.when(event)), body));
    }
    const role = event.name && !this.sides && event.role !== "assistant" ? el("span", { class: "soft" }, event.role) : null;
    const head = el("div", { class: "event-head" }, who, role, this.when(event));
    if (side < 0) return this.article(event, this.sides && event.name === "moderator" ? "aside" : `role-${event.role}`, head, body);
    const index = this.spoken.get(event.name) || 0;
    this.spoken.set(event.name, index + 1);
    return this.article(event, `side side-${side}`, head, body, this.scored(event.name, index));
  }

  toolCall(event) {
    const kind = event.success ? "success" : "fail";
    const summary = [
      el("code", { class: "tool" }, visible(event.toolName)),
      el("span", { class: "one-line mono" }, argument(event.argsJson.text)),
      event.success === undefined ? null : el("span", { class: `status s-${kind}` }, event.success ? "ok" : "failed"),
      event.durationMs === undefined ? null : el("span", { class: "soft figures" }, seconds(event.durationMs / 1000)),
    ];
    const parts = [
      ["Arguments", event.argsJson, "argsJson"],
      ["Result", event.result, "result"],
    ];
    return this.article(event, "tool-call", this.fold(event, summary, parts), this.edits(event));
  }

  /** The edits of a tool call as diffs; those with long arguments on request. */
  edits(event) {
    if (!event.argsJson.isCut) return views(event.toolName, event.argsJson.text);
    if (!MAY_EDIT.test(event.toolName) && !event.argsJson.text.includes("*** Begin Patch")) return null;
    const box = el("div", { class: "edits" });
    const button = el("button", { type: "button", class: "compact" }, "Show diff");
    button.addEventListener("click", () =>
      attempt(button, async () => {
        const whole = await api.get(`${this.address}/texts/${event.position}/argsJson`);
        const shown = whole.isCut ? null : views(event.toolName, whole.text);
        box.replaceChildren(shown ?? el("p", { class: "soft" }, whole.isCut ? "The arguments are too long for a diff." : "No diff in these arguments."));
      }),
    );
    box.append(button);
    return box;
  }

  modelCall(event) {
    const cached = event.cachedTokens ? ` (${number(event.cachedTokens)} cached)` : "";
    const facts = [
      `${number(event.promptTokens)} in${cached}`,
      `${number(event.completionTokens)} out`,
      event.costUsd === undefined ? "price unknown" : money(event.costUsd),
      event.latencyMs === undefined ? "" : seconds(event.latencyMs / 1000),
      event.waitingMs ? `${seconds(event.waitingMs / 1000)} waiting` : "",
    ];
    const line = [
      el("span", { class: "model" }, visible(event.model)),
      el("span", { class: "figures" }, facts.filter(Boolean).join(" · ")),
      event.status === "ok" ? null : el("span", { class: "status s-error" }, visible(event.status)),
      event.error ? el("span", { class: "problem one-line" }, visible(event.error)) : null,
    ];
    const parts = [
      ["Request", event.request, "request"],
      ["Response", event.response, "response"],
    ].filter(([, piece]) => piece.size);
    return this.article(event, "model-call", parts.length ? this.fold(event, line, parts) : el("div", { class: "line" }, line));
  }
}
customElements.define("session-transcript", Transcript);

/** The events of a page, with the formatted text of each message at its content. */
function formatted({ events, nodes = {} }) {
  for (const event of events) if (nodes[event.position]) event.content.nodes = nodes[event.position];
  return events;
}

/** Highlight all occurrences of a text in an element, and scroll to the first. */
function mark(element, text) {
  if (!text || !CSS.highlights) return;
  const needle = visible(text).toLowerCase();
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  const ranges = [];
  while (walker.nextNode() && ranges.length < 1000) {
    const data = walker.currentNode.data.toLowerCase();
    for (let at = data.indexOf(needle); at >= 0 && ranges.length < 1000; at = data.indexOf(needle, at + needle.length)) {
      const range = new Range();
      range.setStart(walker.currentNode, at);
      range.setEnd(walker.currentNode, Math.min(at + needle.length, walker.currentNode.length));
      ranges.push(range);
    }
  }
  CSS.highlights.set("hits", new Highlight(...ranges));
  const first = ranges.find((range) => range.getClientRects().length)?.getBoundingClientRect();
  if (first && (first.top < 80 || first.bottom > innerHeight - 20)) scrollBy({ top: first.top - innerHeight / 2 });
}

function views(toolName, json) {
  let edits = [];
  try {
    edits = editsOf(toolName, JSON.parse(json));
  } catch {
    // Not JSON: no edits that could be shown.
  }
  return edits.length ? el("div", { class: "edits" }, edits.map(editView)) : null;
}

/** The main argument on one line: a command, a path, or all arguments. */
function argument(json) {
  try {
    const args = JSON.parse(json);
    const first = args.command ?? args.cmd ?? args.path ?? args.file_path ?? args.pattern ?? args.query;
    return firstLine(typeof first === "string" ? first : json);
  } catch {
    return firstLine(json);
  }
}
