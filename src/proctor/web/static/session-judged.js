// How a session was judged: what its checks printed, what evaluators said.

import { el } from "./dom.js";
import { money, seconds } from "./format.js";
import { longText, terminal, visible } from "./texts.js";

const rounded = (value) => String(Math.round(value * 1000) / 1000);
const linkTo = (id, words) => el("a", { href: `/sessions/${encodeURIComponent(id)}`, class: "soft" }, words);

/** The checks of each step that had one. */
export function checksOf(session, address) {
  return session.steps.filter((step) => step.testResult).map((step) => check(step, session, address));
}

function check(step, session, address) {
  const passed = step.testResult === "pass";
  const took = step.testDurationMs === null ? "" : seconds(step.testDurationMs / 1000);
  const facts = [step.testExitCode === null ? "" : `exit code ${step.testExitCode}`, took].filter(Boolean).join(" · ");
  const command = session.item?.details.scriptCommand;
  const output = { show: terminal, className: "terminal" };
  return el(
    "section",
    { class: "card check-card" },
    el(
      "div",
      { class: "check-head" },
      el("span", { class: `status s-${passed ? "success" : "fail"}` }, passed ? "passed" : "did not pass"),
      session.steps.length > 1 ? el("span", { class: "soft" }, `step ${step.step}`) : null,
      el("span", { class: "soft figures" }, facts),
    ),
    command ? el("code", { class: "command" }, `$ ${visible(command)}`) : null,
    step.testOutput.size ? longText(step.testOutput, `${address}/steps/${step.step}/testOutput`, output) : el("p", { class: "soft" }, "It printed nothing."),
  );
}

/** A score as a coloured word where it is a verdict, else as a figure. */
export function scoreValue(score) {
  if (score.error) return el("span", { class: "status s-error" }, "not judged");
  const good = score.label === "pass" || (score.value === 1 && !score.label);
  const bad = score.label === "fail" || (score.value === 0 && !score.label);
  const text = [score.value === null ? "" : rounded(score.value), visible(score.label)].filter(Boolean).join(" · ");
  if (good || bad) return el("span", { class: `status s-${good ? "success" : "fail"}` }, text);
  return el("b", { class: "figures" }, text);
}

/** All scores as a table. */
export function scoresTable(session) {
  const heads = ["Evaluator", "Score", "Of", "Why"].map((head) => el("th", { scope: "col" }, head));
  const rows = session.scores.map((score) => scoreRow(score, session.id));
  const table = el("table", { "aria-label": "Scores", class: "scores" }, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, rows));
  return el("div", { class: "table-frame" }, table);
}

function scoreRow(score, id) {
  const about = score.judgedSessionId && score.judgedSessionId !== id;
  return el(
    "tr",
    {},
    el(
      "td",
      {},
      el("b", {}, visible(score.evaluator)),
      score.dimension ? el("div", { class: "soft" }, visible(score.dimension)) : null,
      score.sessionId !== id ? el("div", {}, linkTo(score.sessionId, "judged elsewhere")) : null,
      about ? el("div", {}, linkTo(score.judgedSessionId, "about another session")) : null,
    ),
    el("td", {}, scoreValue(score)),
    el("td", {}, score.level === "session" ? "session" : target(score)),
    el(
      "td",
      { class: "why" },
      el("pre", { class: "said", dir: "auto" }, visible(score.error || score.explanation)),
      score.costUsd ? el("span", { class: "soft figures" }, money(score.costUsd)) : null,
    ),
  );
}

/** What of the session was judged. Ids of traces are long, and their beginning tells them apart. */
function target({ level, target: id }) {
  const whole = visible(id);
  return el("span", { title: whole || null }, [level.replace("_", " "), whole.length > 16 ? `${whole.slice(0, 12)}…` : whole].filter(Boolean).join(" "));
}
