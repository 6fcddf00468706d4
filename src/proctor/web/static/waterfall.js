// Start and duration of each model and tool call, one row per call, on a common time scale.

import { api, query } from "./api.js";
import { attempt } from "./dialogs.js";
import { el, svg } from "./dom.js";
import { money, number, seconds } from "./format.js";
import { visible } from "./texts.js";

const PAGE = 200;
const ROW = 24;

export class Waterfall extends HTMLElement {
  /** `chosen(position)` is called when a row is clicked. */
  async begin({ session, started, chosen }) {
    Object.assign(this, { address: `/api/sessions/${encodeURIComponent(session)}/calls`, started: Date.parse(started), chosen, after: 0, calls: [] });
    this.more = el("button", { type: "button", class: "compact", hidden: true, onclick: () => attempt(this.more, () => this.load()) }, "Show more calls");
    this.box = el("div", { class: "waterfall" });
    this.replaceChildren(this.box, this.more);
    await this.load();
  }

  async load() {
    const response = await api.get(`${this.address}${query({ after: this.after, limit: PAGE })}`);
    this.calls.push(...response.events.map((event) => this.timed(event)));
    this.after = response.lastPosition;
    this.more.hidden = !response.hasMore;
    this.draw();
  }

  /** Start and duration in seconds. The timestamp of an event is its end. */
  timed(event) {
    const end = event.timestamp ? (Date.parse(event.timestamp) - this.started) / 1000 : 0;
    const took = (event.kind === "tool_call" ? event.durationMs : event.latencyMs) ?? null;
    const waited = (event.waitingMs || 0) / 1000;
    const start = Math.max(0, end - (took || 0) / 1000 - waited);
    return { event, start, waited, took: took === null ? null : took / 1000, end: Math.max(end, 0) };
  }

  draw() {
    const last = Math.max(...this.calls.map((call) => call.end), 0.001);
    const rows = this.calls.map((call) => this.row(call, last));
    const scale = [0, 0.25, 0.5, 0.75, 1].map((share) => el("span", {}, seconds(last * share)));
    const head = el("div", { class: "wf-row wf-scale", "aria-hidden": "true" }, el("span", {}), el("span", { class: "wf-ticks" }, scale), el("span", {}));
    this.box.replaceChildren(head, ...rows);
  }

  row(call, last) {
    const { event } = call;
    const isTool = event.kind === "tool_call";
    const name = visible(isTool ? event.toolName : event.model);
    const failed = isTool ? event.success === false : event.status !== "ok";
    const kind = isTool ? "tool" : "model";
    return el(
      "button",
      { type: "button", class: "wf-row", onclick: () => this.chosen(event.position), title: "Show in transcript" },
      el("span", { class: "wf-name" }, el("i", { class: failed ? "b-fail" : `wf-dot-${kind}` }), name),
      this.bar(call, last, failed ? "failed" : kind, name),
      el("span", { class: "wf-facts figures" }, factsOf(call, isTool)),
    );
  }

  bar(call, last, kind, name) {
    const at = (value) => (1000 * value) / last;
    const took = call.took === null ? "not measured" : seconds(call.took);
    return svg(
      "svg",
      { class: "wf-bar", viewBox: `0 0 1000 ${ROW}`, preserveAspectRatio: "none", "aria-hidden": "true" },
      svg("title", {}, `${name}: starts at ${seconds(call.start)}, ${took}${call.waited ? `, waited ${seconds(call.waited)}` : ""}`),
      [250, 500, 750].map((x) => svg("line", { x1: x, x2: x, y1: 0, y2: ROW, class: "wf-grid" })),
      call.waited ? svg("rect", { x: at(call.start), y: 8, width: Math.max(1, at(call.waited)), height: 8, class: "wf-waited" }) : null,
      svg("rect", { x: Math.min(997, at(call.start + call.waited)), y: 6, width: Math.max(3, at(call.took || 0)), height: 12, class: `wf-${kind}` }),
    );
  }
}
customElements.define("call-waterfall", Waterfall);

function factsOf({ event, took }, isTool) {
  const time = took === null ? "" : seconds(took);
  if (isTool) return time || "not measured";
  const tokens = `${number(event.promptTokens)} → ${number(event.completionTokens)}`;
  return [tokens, event.costUsd === undefined ? "" : money(event.costUsd), time].filter(Boolean).join(" · ");
}
