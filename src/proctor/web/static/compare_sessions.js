// Two transcripts side by side: turn k of one next to turn k of the other.

import { api, attempt, badge, byId, el, format, go, query, urlOf } from "./app.js";
import { diffLines, filesOf } from "./diff.js";
import { lineDiff, marked, near, wordDiff } from "./text_diff.js";
import { visible } from "./texts.js";
import "./transcript.js";

const { money, plural, seconds, short } = format;
const { left, right } = byId("pair").dataset;
const PAGE = 100;
// Turns shown at once; scrolling or a click loads more.
const ROWS = 40;

class Side {
  constructor(id, name) {
    Object.assign(this, { id, name, last: 0, hasMore: true, turns: [], address: `/api/sessions/${encodeURIComponent(id)}` });
    this.transcript = document.createElement("session-transcript");
  }

  async begin() {
    this.session = await api.get(this.address);
    this.transcript.begin({ session: this.id, started: this.session.startedAt });
  }

  /** The last thing the agent said; empty: nothing. */
  async answer() {
    // The end of the transcript, and more if it ends with many tool calls.
    for (let after = this.session.lastPosition, step = 20; ; step = Math.min(4 * step, 400)) {
      after = Math.max(0, after - step);
      const { events } = await api.get(`${this.address}/events${query({ after, limit: 500 })}`);
      const last = events.findLast((event) => event.kind === "message" && event.role === "assistant");
      if (last) return last.content.isCut ? (await api.get(`${this.address}/texts/${last.position}/content`)).text : last.content.text;
      if (!after) return "";
    }
  }

  /** The patch of the session; empty: it has none. */
  async patch() {
    return this.session.branch ? (await api.get(`${this.address}/diff`)).diff : "";
  }

  /** Load events until there are `count` complete turns, or no more. */
  async reach(count) {
    while (this.hasMore && this.turns.length <= count) {
      const response = await api.get(`${this.address}/events${query({ after: this.last, limit: PAGE })}`);
      for (const event of response.events) this.add(event);
      this.last = response.lastPosition;
      this.hasMore = response.hasMore;
    }
  }

  /** Add an event: a message starts a turn, other events belong to the current one. */
  add(event) {
    const current = this.turns.at(-1);
    if (!current || event.kind === "message" || event.step !== current.step) this.turns.push({ step: event.step, events: [event] });
    else current.events.push(event);
  }

  cell(turn) {
    if (!turn) return el("div", { class: "half nothing" }, el("span", { class: "unseen" }, `${this.name}: no turn`));
    return el("div", { class: "half" }, el("span", { class: "side-name" }, visible(this.short)), turn.events.map((event) => this.render(event)));
  }

  render(event) {
    const element = this.transcript.render(event);
    element.removeAttribute("id");
    // Link a message to its session page.
    element.querySelector(".anchor")?.replaceWith(el("a", { class: "anchor link-anchor", href: `/sessions/${encodeURIComponent(this.id)}#m${event.position}`, "aria-label": `Open message ${event.position} in its session` }, `#${event.position}`));
    return element;
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
let shownTurns = 0;

async function more() {
  await Promise.all(sides.map((side) => side.reach(shownTurns + ROWS)));
  const rows = byId("rows");
  if (!shownTurns) rows.replaceChildren();
  const total = Math.max(...sides.map((side) => side.turns.length));
  // The last turn of a side that has more events may be incomplete.
  const until = Math.min(shownTurns + ROWS, total);
  for (; shownTurns < until; shownTurns++) {
    rows.append(el("div", { class: "pair-row", role: "group", "aria-label": `Turn ${shownTurns + 1}` }, el("span", { class: "turn-number", "aria-hidden": "true" }, String(shownTurns + 1)), sides.map((side) => side.cell(side.turns[shownTurns]))));
  }
  byId("more").hidden = shownTurns >= total && !sides.some((side) => side.hasMore);
  // Observe again each time: with short turns, the end may still be visible.
  nearEnd.unobserve(byId("more"));
  nearEnd.observe(byId("more"));
  if (!total) rows.replaceChildren(el("div", { class: "empty" }, el("h2", {}, "No messages in either session.")));
}

// ---- What differs: the answers, and the changes

const LONGEST_ANSWER = 20_000;

async function showAnswers() {
  const [one, other] = await Promise.all(sides.map((side) => side.answer()));
  if (!one && !other) return;
  const words = one === other ? "The last messages are the same." : one.length + other.length > LONGEST_ANSWER ? "" : "Words only one has are marked.";
  const content =
    one === other
      ? el("p", { class: "word-diff", dir: "auto" }, visible(one))
      : one.length + other.length > LONGEST_ANSWER
        ? diffLines(near(lineDiff(one, other)))
        : el("div", { class: "two" }, ["removed", "added"].map((kind, at) => el("p", { class: "word-diff", dir: "auto", "aria-label": `${sides[at].name} answer` }, marked(wordDiff(one, other), kind))));
  byId("differences").append(el("section", { class: "card", "aria-label": "Answers" }, el("h2", {}, "Answers"), words ? el("p", { class: "soft small" }, words) : null, content));
}

async function showPatches() {
  const [one, other] = (await Promise.all(sides.map((side) => side.patch()))).map((patch) => new Map(filesOf(patch).map((file) => [file.path, file])));
  const paths = [...new Set([...one.keys(), ...other.keys()])].sort();
  if (!paths.length) return;
  const rows = paths.map((path) => patchRow(path, one.get(path), other.get(path)));
  byId("differences").append(el("section", { class: "card", "aria-label": "Changes" }, el("h2", {}, "Changes"), el("p", { class: "soft small" }, "Lines of the patches that only the left (−) or only the right (+) session has."), rows));
}

/** A file that both changed alike, differently, or only one of them. */
function patchRow(path, one, other) {
  const text = (file) => (file ? file.lines.filter(({ kind }) => kind !== "hunk").map(({ kind, text }) => ({ added: "+", removed: "-" }[kind] ?? " ") + text).join("\n") : "");
  const diff = lineDiff(text(one), text(other));
  const isSame = one && other && diff.every(({ kind }) => kind === "same");
  const words = isSame ? "same change" : !other ? `only ${sides[0].name.toLowerCase()}` : !one ? `only ${sides[1].name.toLowerCase()}` : "changed differently";
  const summary = el("summary", {}, el("code", {}, visible(path)), el("span", { class: `tag${isSame ? "" : " warn"}` }, words));
  const fold = el("details", { class: "diff-file" }, summary);
  fold.addEventListener("toggle", () => fold.open && fold.children.length < 2 && fold.append(diffLines(isSame ? diff : near(diff), path)));
  fold.open = !isSame && diff.length < 200;
  return fold;
}

async function begin() {
  if (!left || !right) {
    byId("rows").replaceChildren(el("div", { class: "empty" }, el("h2", {}, "Select two sessions"), el("p", {}, "Compare two runs, then choose a task with different results."), el("a", { class: "button primary", href: "/compare" }, "Compare runs")));
    return;
  }
  try {
    await Promise.all(sides.map((side) => side.begin()));
    byId("heads").replaceChildren(...sides.map((side) => side.head()));
    const prompt = sides[0].session.item?.prompt.text;
    if (prompt) document.querySelector("h1").textContent = visible(prompt).slice(0, 160);
    // The transcripts are shown even if these cannot be, or take long. Before them, nothing moves.
    const differences = showAnswers()
      .then(showPatches)
      .catch(() => {});
    await Promise.race([differences, new Promise((resolve) => setTimeout(resolve, 1500))]);
    await more();
  } catch (error) {
    byId("rows").replaceChildren(el("div", { class: "empty", role: "alert" }, el("h2", {}, visible(error.message)), el("p", {}, visible(error.remedy || ""))));
  }
}

byId("more").addEventListener("click", ({ currentTarget }) => attempt(currentTarget, more));
const nearEnd = new IntersectionObserver((seen) => seen.some((one) => one.isIntersecting) && !byId("more").hidden && byId("more").click(), { rootMargin: "600px" });
byId("swap").addEventListener("click", () => go(`/compare/sessions${query({ left: right, right: left })}`));
byId("calls").addEventListener("change", () => byId("rows").classList.toggle("with-calls", byId("calls").checked));
// Link back to the comparison this page was opened from, with its selection.
if (document.referrer.startsWith(`${location.origin}${urlOf("/compare?")}`)) byId("back").href = document.referrer;

begin();
