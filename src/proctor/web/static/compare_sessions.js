// Two transcripts, turn by turn: the k-th move of one stands beside the k-th move of the other.

import { api, attempt, badge, byId, el, format, query } from "./app.js";
import { visible } from "./texts.js";
import "./transcript.js";

const { money, plural, seconds, short } = format;
const { left, right } = byId("pair").dataset;
const PAGE = 100;
// Turns that are shown at once; more come with a click, or by scrolling.
const ROWS = 40;

class Side {
  constructor(id, name) {
    Object.assign(this, { id, name, last: 0, hasMore: true, turns: [], address: `/api/sessions/${encodeURIComponent(id)}` });
    this.voice = document.createElement("session-transcript");
  }

  async begin() {
    this.session = await api.get(this.address);
    this.voice.begin({ session: this.id, started: this.session.startedAt });
  }

  /** Read on until there are so many whole turns, or no more. */
  async reach(count) {
    while (this.hasMore && this.turns.length <= count) {
      const answer = await api.get(`${this.address}/events${query({ after: this.last, limit: PAGE })}`);
      for (const event of answer.events) this.take(event);
      this.last = answer.lastPosition;
      this.hasMore = answer.hasMore;
    }
  }

  /** A message begins a turn, what follows from it belongs to it. */
  take(event) {
    const current = this.turns.at(-1);
    if (!current || event.kind === "message" || event.step !== current.step) this.turns.push({ step: event.step, events: [event] });
    else current.events.push(event);
  }

  cell(turn) {
    if (!turn) return el("div", { class: "half nothing" }, el("span", { class: "unseen" }, `${this.name}: nothing`));
    return el("div", { class: "half" }, el("span", { class: "side-name" }, visible(this.short)), turn.events.map((event) => this.made(event)));
  }

  made(event) {
    const shown = this.voice.made(event);
    shown.removeAttribute("id");
    // A link to a message leads to the page of its session.
    shown.querySelector(".anchor")?.replaceWith(el("a", { class: "anchor link-anchor", href: `/sessions/${encodeURIComponent(this.id)}#m${event.position}`, "aria-label": `Message ${event.position} in its session` }, `#${event.position}`));
    return shown;
  }

  get short() {
    return [this.session.agent, this.session.model].filter(Boolean).join(" · ") || this.session.id;
  }

  head() {
    const { session } = this;
    const facts = [seconds(session.workSeconds), money(session.costUsd), `${short(session.totalTokens)} tokens`, plural(session.toolCalls, "tool call")];
    const scores = session.scores.filter((score) => !score.error && score.level === "session").slice(0, 8);
    return el("section", { class: "card side-head", "aria-label": this.name },
      el("div", { class: "side-title" }, el("a", { href: `/sessions/${encodeURIComponent(session.id)}` }, visible(this.short)), badge(session.status)),
      el("p", { class: "soft small" }, session.runId ? el("a", { class: "soft", href: `/runs/${encodeURIComponent(session.runId)}` }, visible(session.runId)) : visible(session.service || session.source), " · ", visible(session.id)),
      el("p", { class: "figures small" }, facts.join(" · ")),
      scores.length ? el("div", { class: "factor-tags" }, scores.map((score) => el("span", { class: "tag", title: visible(score.explanation) }, visible(`${score.evaluator}: ${score.label || Math.round(score.value * 1000) / 1000}`)))) : null);
  }
}

const sides = [new Side(left, "Left"), new Side(right, "Right")];
let shown = 0;

async function more() {
  await Promise.all(sides.map((side) => side.reach(shown + ROWS)));
  const rows = byId("rows");
  if (!shown) rows.replaceChildren();
  const total = Math.max(...sides.map((side) => side.turns.length));
  // The last turn of a side that has more may not be whole yet.
  const until = Math.min(shown + ROWS, total);
  for (; shown < until; shown++) {
    rows.append(el("div", { class: "pair-row", role: "group", "aria-label": `Turn ${shown + 1}` }, el("span", { class: "turn-number", "aria-hidden": "true" }, String(shown + 1)), sides.map((side) => side.cell(side.turns[shown]))));
  }
  byId("more").hidden = shown >= total && !sides.some((side) => side.hasMore);
  // Looked at anew each time: where turns are short, the end may still be in sight.
  nearEnd.unobserve(byId("more"));
  nearEnd.observe(byId("more"));
  if (!total) rows.replaceChildren(el("div", { class: "empty" }, el("h2", {}, "Nothing was said in either.")));
}

async function begin() {
  if (!left || !right) {
    byId("rows").replaceChildren(el("div", { class: "empty" }, el("h2", {}, "Two sessions are needed"), el("p", {}, "Compare two runs, and choose a task on which they disagree."), el("a", { class: "button primary", href: "/compare" }, "Compare runs")));
    return;
  }
  try {
    await Promise.all(sides.map((side) => side.begin()));
    byId("heads").replaceChildren(...sides.map((side) => side.head()));
    const asked = sides[0].session.item?.prompt.text;
    if (asked) document.querySelector("h1").textContent = visible(asked).slice(0, 160);
    await more();
  } catch (error) {
    byId("rows").replaceChildren(el("div", { class: "empty", role: "alert" }, el("h2", {}, visible(error.message)), el("p", {}, visible(error.remedy || ""))));
  }
}

byId("more").addEventListener("click", ({ currentTarget }) => attempt(currentTarget, more));
const nearEnd = new IntersectionObserver((seen) => seen.some((one) => one.isIntersecting) && !byId("more").hidden && byId("more").click(), { rootMargin: "600px" });
byId("swap").addEventListener("click", () => location.assign(`/compare/sessions${query({ left: right, right: left })}`));
byId("calls").addEventListener("change", () => byId("rows").classList.toggle("with-calls", byId("calls").checked));
// Back to the comparison one came from, with what was chosen there.
if (document.referrer.startsWith(`${location.origin}/compare?`)) byId("back").href = document.referrer;

begin();
