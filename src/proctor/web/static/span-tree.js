// The spans of a received session as a tree on a common time scale, beside its transcript. Nested agents are folded at first.

import { api } from "./api.js";
import { el, svg } from "./dom.js";
import { money, number, plural, seconds } from "./format.js";
import { visible } from "./texts.js";
import "./transcript.js";

const ROW = 24;
const INDENT = 14;
const KINDS = { inference: "model", tool: "tool", agent: "agent", step: "step" };

export class SpanTree extends HTMLElement {
  async begin({ session, started }) {
    this.address = `/api/sessions/${encodeURIComponent(session)}/spans`;
    const answer = await api.get(this.address);
    this.spans = answer.spans;
    this.last = Math.max(answer.durationMs, 1);
    this.folded = new Set(this.spans.filter((span) => span.kind === "agent" && span.depth && span.descendants).map((span) => this.key(span)));
    this.rows = el("div", { class: "waterfall" });
    const transcript = document.createElement("session-transcript");
    const note = answer.total > this.spans.length ? el("p", { class: "soft small" }, `The first ${number(this.spans.length)} of ${plural(answer.total, "span")}.`) : null;
    this.replaceChildren(el("div", { class: "span-side" }, this.rows, note || ""), el("div", { class: "span-transcript" }, transcript));
    if (!this.spans.length) return this.rows.replaceChildren(el("p", { class: "empty" }, "The spans of this session are not kept."));
    transcript.begin({ session, started });
    transcript.open();
    this.draw();
    return undefined;
  }

  key = ({ traceId, spanId }) => `${traceId} ${spanId}`;

  draw() {
    const rows = [];
    let hiddenBelow = null;
    for (const span of this.spans) {
      if (hiddenBelow !== null && span.depth > hiddenBelow) continue;
      hiddenBelow = this.folded.has(this.key(span)) ? span.depth : null;
      rows.push(this.row(span));
    }
    const scale = [0, 0.5, 1].map((share) => el("span", {}, seconds((this.last * share) / 1000)));
    this.rows.replaceChildren(el("div", { class: "wf-row span-row wf-scale", "aria-hidden": "true" }, el("span", {}), el("span", { class: "wf-ticks" }, scale), el("span", {})), ...rows);
  }

  row(span) {
    const kind = KINDS[span.kind] || "step";
    const name = visible([span.label, span.name].find(Boolean) || span.spanId);
    const isFolded = this.folded.has(this.key(span));
    const fold = span.descendants
      ? el("button", { type: "button", class: "quiet span-fold", "aria-expanded": String(!isFolded), "aria-label": `${isFolded ? "Unfold" : "Fold"} ${name}`, onclick: () => this.toggle(span) }, isFolded ? "›" : "⌄")
      : el("span", { class: "span-fold" });
    const title = el("button", { type: "button", class: "quiet span-name", title: visible(span.name), "aria-expanded": "false" }, el("i", { class: span.hasFailed ? "b-fail" : `wf-dot-${kind}` }), el("span", {}, name));
    const indent = svg("svg", { width: span.depth * INDENT, height: 1, "aria-hidden": "true" });
    const row = el("div", { class: "wf-row span-row" }, el("span", { class: "wf-name" }, indent, fold, title), this.bar(span, span.hasFailed ? "failed" : kind, name), el("span", { class: "wf-facts figures" }, this.facts(span, isFolded)));
    const detail = el("div", { class: "span-detail", hidden: true });
    title.addEventListener("click", () => this.open(span, title, detail));
    return el("div", {}, row, span.error ? el("p", { class: "problem small span-error" }, visible(span.error)) : "", detail);
  }

  bar(span, kind, name) {
    const at = (value) => (1000 * value) / this.last;
    return svg("svg", { class: "wf-bar", viewBox: `0 0 1000 ${ROW}`, preserveAspectRatio: "none", "aria-hidden": "true" },
      svg("title", {}, `${name}: starts at ${seconds(span.startMs / 1000)}, ${seconds(span.durationMs / 1000)}`),
      [250, 500, 750].map((x) => svg("line", { x1: x, x2: x, y1: 0, y2: ROW, class: "wf-grid" })),
      svg("rect", { x: Math.min(997, at(span.startMs)), y: 6, width: Math.max(3, at(span.durationMs)), height: 12, class: `wf-${kind}` }));
  }

  /** Of a folded span and of an agent, all below it; of others, its own. */
  facts(span, isFolded) {
    const all = isFolded || span.kind === "agent" || span.depth === 0;
    const tokens = all ? (span.totalTokens ? `${number(span.totalTokens)} tokens` : "") : span.inputTokens || span.outputTokens ? `${number(span.inputTokens)} → ${number(span.outputTokens)}` : "";
    const cost = all ? span.totalCostUsd : span.costUsd;
    return [tokens, cost === null ? "" : money(cost), seconds(span.durationMs / 1000)].filter(Boolean).join(" · ");
  }

  toggle(span) {
    const key = this.key(span);
    if (!this.folded.delete(key)) this.folded.add(key);
    this.draw();
    [...this.rows.querySelectorAll(".span-fold")].find((one) => one.getAttribute("aria-label")?.endsWith(visible([span.label, span.name].find(Boolean) || span.spanId)))?.focus();
  }

  /** The span as it was received. */
  async open(span, title, detail) {
    detail.hidden = !detail.hidden;
    title.setAttribute("aria-expanded", String(!detail.hidden));
    if (detail.hidden || detail.childElementCount) return;
    try {
      const document_ = await api.get(`${this.address}/${encodeURIComponent(span.traceId)}/${encodeURIComponent(span.spanId)}`);
      const attributes = Object.entries(document_.attributes || {});
      detail.replaceChildren(
        el("dl", { class: "span-attributes" }, attributes.flatMap(([name, value]) => [el("dt", {}, visible(name)), el("dd", {}, visible(typeof value === "string" ? value : JSON.stringify(value)).slice(0, 4000))])),
        el("details", {}, el("summary", {}, "Whole span"), el("pre", { class: "small" }, visible(JSON.stringify(document_, null, 2)).slice(0, 200_000))));
    } catch (error) {
      detail.replaceChildren(el("p", { class: "problem" }, visible(error.message)));
    }
  }
}
customElements.define("span-tree", SpanTree);
