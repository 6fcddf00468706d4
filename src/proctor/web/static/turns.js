// The turns of a scenario: world state, decisions, conversations, and metrics.

import { api, query } from "./api.js";
import { attempt } from "./dialogs.js";
import { el } from "./dom.js";
import { chartCard } from "./charts.js";
import { plural } from "./format.js";
import { visible } from "./texts.js";

const PAGE = 10;

export class Turns extends HTMLElement {
  async begin({ session }) {
    this.address = `/api/sessions/${encodeURIComponent(session)}`;
    this.last = 0;
    this.charts = el("div", { class: "charts" });
    this.list = el("div", { class: "turns" });
    this.more = el("button", { type: "button", class: "compact", hidden: true, onclick: () => attempt(this.more, () => this.load()) }, "Show more turns");
    this.replaceChildren(this.charts, this.list, this.more);
    await Promise.all([this.load(), this.drawCharts()]);
  }

  async drawCharts() {
    const { charts } = await api.get(`${this.address}/charts`);
    this.charts.replaceChildren(...charts.map(chartCard));
  }

  async load() {
    const { turns, total } = await api.get(`${this.address}/turns${query({ after: this.last, limit: PAGE })}`);
    for (const turn of turns) {
      this.list.append(turnCard(turn));
      this.last = turn.number;
    }
    const count = this.list.children.length;
    this.more.hidden = count >= total || !turns.length;
    if (!count) this.list.replaceChildren(el("div", { class: "empty" }, el("b", {}, "No completed turns yet."), el("p", {}, "Turns appear here when they are completed.")));
  }

  /** Load new turns, if any. */
  async catchUp() {
    if (!this.more.hidden) return;
    if (!this.last) this.list.replaceChildren();
    await Promise.all([this.load(), this.drawCharts()]);
  }
}
customElements.define("scenario-turns", Turns);

const paragraph = (title, text) => (text ? [el("h3", {}, title), el("pre", { class: "said", dir: "auto" }, visible(text))] : []);

function turnCard(turn) {
  const metrics = Object.entries(turn.metrics || {});
  return el(
    "article",
    { class: "card turn", id: `turn-${turn.number}`, "aria-label": `Turn ${turn.number}` },
    el("div", { class: "turn-head" }, el("h2", {}, `Turn ${turn.number}`), (turn.events || []).map(eventTag)),
    metrics.length ? el("dl", { class: "metrics" }, metrics.map(metric)) : null,
    ...paragraph("World state", turn.world_state),
    ...paragraph("Key changes", turn.key_changes),
    ...paragraph("Consequences", turn.consequences),
    el("h3", {}, "Decisions"),
    el("div", { class: "decisions" }, Object.entries(turn.decisions).map(([actor, choice]) => decision(actor, choice))),
    ...(turn.talks || []).map(talk),
    (turn.issues || []).length ? el("ul", { class: "issues" }, turn.issues.map(issueLine)) : null,
  );
}

const eventTag = (name) => el("span", { class: "tag warn", title: "Event" }, visible(name));

function metric([name, value]) {
  const rounded = typeof value === "number" ? Math.round(value * 1000) / 1000 : value;
  return el("div", {}, el("dt", {}, visible(name)), el("dd", { class: "figures" }, rounded === null ? "–" : visible(String(rounded))));
}

function issueLine(issue) {
  const where = visible([issue.check, issue.actor].filter(Boolean).join(", "));
  return el("li", {}, el("span", { class: "tag warn" }, visible(issue.severity)), ` ${where}: ${visible(issue.text)}`);
}

function decision(actor, choice) {
  const parts = [
    ["Reasoning", choice.reasoning],
    ["Long-term goals", choice.long_term_goals],
    ["Priorities", choice.short_term_priorities],
  ];
  const why = parts.flatMap(([title, text]) => paragraph(title, text));
  return el(
    "div",
    { class: "decision" },
    el("b", { class: "who" }, visible(actor)),
    el("pre", { class: "said", dir: "auto" }, visible(choice.action)),
    choice.statement ? el("blockquote", {}, visible(choice.statement)) : null,
    why.length ? el("details", {}, el("summary", {}, "Reasoning"), why) : null,
  );
}

function talk(one) {
  const title = `${one.kind === "coalition" ? "Coalition conversation" : "Private conversation"}: ${one.participants.map(visible).join(", ")}`;
  const outcome = one.outcome ? el("span", { class: "tag" }, visible(one.outcome)) : null;
  const line = ([who, text]) =>
    el("div", { class: "talk-line" }, el("b", { class: "who" }, visible(who)), el("pre", { class: "said", dir: "auto" }, visible(text)));
  return el(
    "details",
    { class: "talk" },
    el("summary", {}, title, outcome, el("span", { class: "soft" }, plural(one.messages.length, "message"))),
    el("div", { class: "fold-body" }, one.purpose ? el("p", { class: "soft" }, visible(one.purpose)) : null, one.messages.map(line)),
  );
}
