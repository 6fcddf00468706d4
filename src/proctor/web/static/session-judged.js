// Results of a session: output of its check commands, scores of its evaluators.

import { el } from "./dom.js";
import { money, seconds } from "./format.js";
import { longText, terminal, visible } from "./texts.js";

const rounded = (value) => String(Math.round(value * 1000) / 1000);
const linkTo = (id, words) => el("a", { href: `/sessions/${encodeURIComponent(id)}`, class: "soft" }, words);

/** The check results, one per step with a check command. */
export function checksOf(session, address) {
  return session.steps.filter((step) => step.testResult).map((step) => checkOf(step, session, address));
}

/** The result of one check, with its output. */
export function checkOf(step, session, address, title = "") {
  const passed = step.testResult === "pass";
  const duration = step.testDurationMs === null ? "" : seconds(step.testDurationMs / 1000);
  const facts = [step.testExitCode === null ? "" : `exit code ${step.testExitCode}`, duration].filter(Boolean).join(" · ");
  const command = session.item?.details.scriptCommand;
  const output = { show: terminal, className: "terminal", label: "Check output" };
  return el(
    "section",
    { class: "card check-card", "aria-label": title || null },
    el(
      "div",
      { class: "check-head" },
      title ? el("b", {}, title) : null,
      el("span", { class: `status s-${passed ? "success" : "fail"}` }, passed ? "passed" : "failed"),
      session.steps.length > 1 ? el("span", { class: "soft" }, `step ${step.step}`) : null,
      el("span", { class: "soft figures" }, facts),
    ),
    command ? el("code", { class: "command" }, `$ ${visible(command)}`) : null,
    step.testOutput.size ? longText(step.testOutput, `${address}/steps/${step.step}/testOutput`, output) : el("p", { class: "soft" }, "No output."),
  );
}

/** A score as a colored word if it is pass or fail, otherwise as a number. */
export function scoreValue(score) {
  if (score.error) return el("span", { class: "status s-error" }, "failed");
  const good = score.label === "pass" || (score.value === 1 && !score.label);
  const bad = score.label === "fail" || (score.value === 0 && !score.label);
  const text = [score.value === null ? "" : rounded(score.value), visible(score.label)].filter(Boolean).join(" · ");
  if (good || bad) return el("span", { class: `status s-${good ? "success" : "fail"}` }, text);
  return el("b", { class: "figures" }, text);
}

/** All scores as a table. */
export function scoresTable(session) {
  const heads = ["Evaluator", "Score", "Target", "Explanation"].map((head) => el("th", { scope: "col" }, head));
  const rows = session.scores.map((score) => scoreRow(score, session.id));
  const table = el("table", { "aria-label": "Scores", class: "scores" }, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, rows));
  return el("div", { class: "table-frame" }, table);
}

function scoreRow(score, id) {
  const about = score.scoredSessionId && score.scoredSessionId !== id;
  return el(
    "tr",
    {},
    el(
      "td",
      {},
      el("b", {}, visible(score.evaluator)),
      score.dimension ? el("div", { class: "soft" }, visible(score.dimension)) : null,
      score.sessionId !== id ? el("div", {}, linkTo(score.sessionId, "evaluation session")) : null,
      about ? el("div", {}, linkTo(score.scoredSessionId, "evaluated session")) : null,
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

/** The evaluated part of the session. Trace IDs are truncated: their beginnings differ. */
function target({ level, target: id }) {
  const whole = visible(id);
  return el("span", { title: whole || null }, [level.replace("_", " "), whole.length > 16 ? `${whole.slice(0, 12)}…` : whole].filter(Boolean).join(" "));
}
