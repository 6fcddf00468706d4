// Details of a session: prompt, participants, workspace, usage.

import { byId, el } from "./dom.js";
import { moment, money, number, seconds } from "./format.js";
import { longText, terminal, visible } from "./texts.js";

/** The two participants of a dialogue: left and right. */
const SIDES = ["client", "therapist"];

const code = (text) => (text ? el("code", {}, visible(text)) : "");
const card = (title, ...content) => el("section", { class: "card" }, el("h2", {}, title), ...content);

function facts(entries) {
  const known = entries.filter(([, value]) => value !== "" && value !== null && value !== undefined && value !== 0);
  const content = (value) => (value instanceof Node ? value : visible(String(value)));
  return el("dl", { class: "facts" }, known.flatMap(([name, value]) => [el("dt", {}, visible(name)), el("dd", {}, content(value))]));
}

/** The content of the panel. */
export function detailsOf(session, address) {
  const parts = [prompt(session, address), ...SIDES.map((side) => profile(session, side)), about(session), usage(session), metrics(session), ...outputs(session, address)];
  return el("div", { class: "details-grid" }, parts.filter(Boolean));
}

function prompt({ item }, address) {
  if (!item) return null;
  const tags = Object.entries(item.factors).map(([name, value]) => el("span", { class: "tag" }, visible(`${name}: ${value}`)));
  return card("Prompt", longText(item.prompt, `${address}/prompt`), tags.length ? el("div", { class: "factor-tags" }, tags) : "");
}

function profile(session, side) {
  const role = session.item?.details[side];
  if (!role || typeof role !== "object") return null;
  const fields = Object.entries(role.profile || {}).map(([name, value]) => [name, asText(value)]);
  return card(visible(`${side}: ${role.label || role.role || ""}`), role.model ? el("p", { class: "soft" }, visible(role.model)) : "", facts(fields));
}

function asText(value) {
  if (Array.isArray(value) && value.every((one) => typeof one !== "object")) return value.join(", ");
  return typeof value === "object" ? JSON.stringify(value) : value;
}

function about(session) {
  const base = [session.baseBranch, session.baseSha.slice(0, 12)].filter(Boolean).join(" ");
  return card(
    "About",
    facts([
      ["Session", code(session.id)],
      ["Item", code(session.item?.id)],
      ["Name", session.name],
      ["Agent", [session.agent, session.agentVersion].filter(Boolean).join(" ")],
      ["Model", session.model],
      ["Answered by", session.answeredModel],
      ["Check before", session.baseline],
      ["End reason", session.endReason],
      ["Started", moment(session.startedAt)],
      ["Finished", moment(session.finishedAt)],
      ["Repository", code(session.repo)],
      ["Branch", code(session.branch)],
      ["Base", code(base)],
      ["Worktree", code(session.worktree)],
      ["Sandbox", session.sandbox],
      ["Conversation", code(session.thread)],
      ["Source", session.source],
      ["Service", session.service],
    ]),
  );
}

function usage(session) {
  return card(
    "Usage",
    facts([
      ["Tokens in", number(session.promptTokens)],
      ["of which cached", number(session.cachedTokens)],
      ["Tokens out", number(session.completionTokens)],
      ["of which reasoning", number(session.reasoningTokens)],
      ["Cost", money(session.costUsd)],
      ["Unpriced calls", session.unpricedCalls || ""],
      ["Work time", seconds(session.workSeconds)],
      ["of which checkout", session.checkoutSeconds === null ? "" : seconds(session.checkoutSeconds)],
      ["of which setup", session.setupSeconds === null ? "" : seconds(session.setupSeconds)],
      ["of which agent", session.agentSeconds === null ? "" : seconds(session.agentSeconds)],
      ["of which check", session.checkSeconds === null ? "" : seconds(session.checkSeconds)],
      ["Waiting time", session.waitingSeconds ? seconds(session.waitingSeconds) : ""],
    ]),
  );
}

function metrics(session) {
  // Metrics of a single step are shown with that step.
  const whole = session.metrics.filter((metric) => !metric.step).slice(0, 60);
  return whole.length ? card("Metrics", facts(whole.map((metric) => [metric.name, metric.label ?? String(metric.value ?? "–")]))) : null;
}

function outputs(session, address) {
  // The output of a turn is the recorded turn, which the transcript or the World tab shows.
  if ("stepsAreTurns" in byId("session").dataset) return [];
  const folded = (step, part, title, ended = "") => {
    const text = longText(step[part], `${address}/steps/${step.step}/${part}`, { show: terminal, className: "terminal" });
    return el("details", { class: "card" }, el("summary", {}, title, ended), text);
  };
  return session.steps.slice(0, 50).flatMap((step) => {
    const title = session.steps.length > 1 ? `Output of step ${step.step}` : "Agent output";
    const ended = step.exitCode === null ? "" : el("span", { class: "soft" }, ` exit code ${step.exitCode}`);
    return [
      step.setupOutput.size ? folded(step, "setupOutput", "Setup output") : null,
      step.output.size ? folded(step, "output", title, ended) : null,
    ].filter(Boolean);
  });
}
