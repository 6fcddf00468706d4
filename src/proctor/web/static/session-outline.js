// The outline of a session: its messages and tool calls in short, and tokens and cost over its model calls.

import { api } from "./api.js";
import { el, scrollable, svg } from "./dom.js";
import { money, number, plural, short } from "./format.js";
import { firstLine, visible } from "./texts.js";

const WIDTH = 1000;
const HEIGHT = 48;

export class Outline extends HTMLElement {
  /** `chosen(position)` is called when an entry is selected. */
  async begin({ session, chosen }) {
    Object.assign(this, { address: `/api/sessions/${encodeURIComponent(session)}/outline`, chosen });
    await this.refresh();
  }

  async refresh() {
    const response = await api.get(this.address);
    const lines = grouped(response.entries);
    const list = scrollable(el("ol", { class: "outline-list" }, lines.map((line) => this.line(line)), response.isCut ? el("li", { class: "soft" }, "…") : null), "Outline");
    list.removeAttribute("role");
    // Closed where it would push the transcript below the fold.
    const wide = matchMedia("(min-width: 1100px)").matches;
    const open = this.querySelector("details")?.open ?? wide;
    this.replaceChildren(el("details", { class: "outline", open }, el("summary", {}, "Outline"), timeline(response.entries, this.chosen), list));
  }

  line({ entry, count, failed }) {
    const isTool = entry.kind === "tool_call";
    const name = visible(isTool ? entry.name : entry.name || entry.role);
    const words = isTool ? "" : firstLine(entry.text, 80).replace(/^#+\s*|[*`]{1,3}/g, "");
    const content = [
      el("i", { class: failed ? "b-fail" : isTool ? "wf-dot-tool" : `outline-${entry.role}` }),
      el("b", {}, count > 1 ? `${count} × ${name}` : name),
      words ? el("span", { class: "one-line" }, words) : null,
      failed ? el("span", { class: "unseen" }, "failed") : null,
    ];
    return el("li", {}, el("button", { type: "button", class: "outline-line", title: words || null, onclick: () => this.chosen(entry.position) }, content));
  }
}
customElements.define("session-outline", Outline);

/** Messages and tool calls; calls of the same tool in a row are one line. */
function grouped(entries) {
  const lines = [];
  for (const entry of entries) {
    if (entry.kind === "model_call") continue;
    const last = lines.at(-1);
    const failed = entry.success === false;
    if (entry.kind === "tool_call" && last?.entry.kind === "tool_call" && last.entry.name === entry.name && last.failed === failed) last.count++;
    else lines.push({ entry, count: 1, failed });
  }
  return lines;
}

/** Tokens of each model call as bars, the cost so far as a line. A click goes to the call. */
function timeline(entries, chosen) {
  const calls = entries.filter(({ kind }) => kind === "model_call");
  if (calls.length < 2) return null;
  const tokens = calls.map((call) => call.promptTokens + call.completionTokens);
  const most = Math.max(...tokens, 1);
  const costs = calls.map((call) => call.costUsd ?? 0);
  const total = costs.reduce((sum, cost) => sum + cost, 0);
  const width = WIDTH / calls.length;
  const bars = calls.map((call, at) => {
    const height = Math.max(1, (HEIGHT * tokens[at]) / most);
    const words = `${visible(call.name)}: ${number(call.promptTokens)} tokens in, ${number(call.completionTokens)} out${call.costUsd === undefined ? "" : `, ${money(call.costUsd)}`}`;
    return svg("g", { class: "tl-call", onclick: () => chosen(call.position) }, svg("title", {}, words), svg("rect", { x: at * width, y: 0, width, height: HEIGHT, class: "tl-hit" }), svg("rect", { x: at * width + width * 0.1, y: HEIGHT - height, width: width * 0.8, height, class: "tl-bar" }));
  });
  let sum = 0;
  const points = costs.map((cost, at) => `${((at + 0.5) * width).toFixed(1)},${(HEIGHT - 1 - ((HEIGHT - 2) * (sum += cost)) / (total || 1)).toFixed(1)}`);
  const words = `${plural(calls.length, "model call")}, ${short(tokens.reduce((all, one) => all + one, 0))} tokens, ${money(total)}`;
  const picture = svg("svg", { class: "timeline", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `Tokens and cost over time: ${words}` }, bars, total ? svg("polyline", { points: points.join(" "), class: "tl-cost" }) : null);
  return el("div", { class: "timeline-box" }, picture, el("p", { class: "soft small figures" }, el("span", { class: "tl-key-bar" }), `tokens per call, at most ${short(most)}`, total ? [" · ", el("span", { class: "tl-key-cost" }), `cost ${money(total)}`] : null));
}
