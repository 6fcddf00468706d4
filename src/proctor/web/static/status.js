// Statuses of runs and items, always shown as a color and a word.

import { el } from "./dom.js";
import { number, percent } from "./format.js";

/** In display order. */
export const STATUSES = ["success", "fail", "timeout", "error", "running", "queued"];
export const RUN_STATUSES = ["running", "completed", "halted", "interrupted", "aborted"];

/** A status as a colored word. */
export function badge(status, reason = "", word = status) {
  // Nothing checked it, so it is no proven success.
  const shown = status === "success" && reason === "unchecked" ? "unchecked" : word;
  return el("span", { class: `status s-${shown === "unchecked" ? "queued" : status}`, title: reason || null }, shown);
}

/** A bar with one segment per status; `update(counts)` updates it in place. */
export class ProgressBar extends HTMLElement {
  connectedCallback() {
    this.setAttribute("role", "progressbar");
    this.setAttribute("aria-valuemin", "0");
    this.setAttribute("aria-valuemax", "100");
    if (!this.hasAttribute("aria-label")) this.setAttribute("aria-label", "Progress");
    this.build();
    if (this.counts) this.update(this.counts);
  }

  build() {
    if (this.segments) return;
    this.segments = new Map(STATUSES.filter((status) => status !== "queued").map((status) => [status, el("i", { class: `b-${status}` })]));
    this.append(...this.segments.values());
  }

  update(counts) {
    this.counts = counts;
    this.build();
    const total = Object.values(counts).reduce((sum, count) => sum + count, 0);
    for (const [status, segment] of this.segments) segment.style.width = total ? `${(100 * (counts[status] || 0)) / total}%` : "0";
    const finished = total - (counts.queued || 0) - (counts.running || 0);
    this.setAttribute("aria-valuenow", total ? Math.floor((100 * finished) / total) : 0);
    this.title = `${percent(finished, total)}: ${words(counts)}`;
    return this;
  }
}
customElements.define("progress-bar", ProgressBar);

/** The counts that are not 0, such as `12 success, 3 fail`. */
export function words(counts) {
  return STATUSES.filter((status) => counts[status]).map((status) => `${number(counts[status])} ${status}`).join(", ") || "no items";
}
