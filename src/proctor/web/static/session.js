// The Session page: one attempt, from prompt to scores. Live while it runs.

import "./annotations.js";
import { api, badge, byId, el, format, go, since, toast, watch } from "./app.js";
import { onKeys } from "./keys.js";
import "./labels.js";
import { ending } from "./notify.js";
import { showBranch } from "./session-branch.js";
import { detailsOf } from "./session-details.js";
import { followAgent } from "./session-live.js";
import "./session-outline.js";
import { checkOf, checksOf, scoresTable, scoreValue } from "./session-judged.js";
import { foreignNotice } from "./signatures.js";
import { Tabs } from "./tabs.js";
import { firstLine, visible } from "./texts.js";
import "./transcript.js";
import "./transcript-search.js";
import "./turns.js";
import "./span-tree.js";
import "./waterfall.js";

const { money, number, plural, seconds, short } = format;
const page = byId("session").dataset;
const ID = page.session;
const hasTurns = "hasTurns" in page;
const evaluates = "evaluates" in page;
const ADDRESS = `/api/sessions/${encodeURIComponent(ID)}`;

let session = null;
const transcript = document.createElement("session-transcript");
const search = document.createElement("transcript-search");
const outline = document.createElement("session-outline");
const turns = document.createElement("scenario-turns");
const labels = el("proctor-labels", { session: ID, heading: "h2" });
const openedPanels = new Set();
const tabs = new Tabs(byId("tabs"), (name) => openPanel(name));

// ---- Header

function showHead() {
  // A Markdown task starts with its title.
  const prompt = firstLine(session.item?.prompt.text || "", 200).replace(/^#+\s*(Task:\s*)?/, "");
  byId("title").textContent = prompt || visible(session.name) || `Session ${session.id}`;
  const reason = session.endReason && session.endReason !== session.status ? visible(session.endReason.replaceAll("_", " ")) : "";
  byId("status").replaceChildren(
    badge(session.status, session.endReason),
    reason ? el("span", { class: "soft" }, reason) : "",
    session.isMock ? el("span", { class: "tag warn" }, "mock") : "",
  );
  showFacts();
  showAttempts();
  showTiles();
  showNotices();
}

function showFacts() {
  const facts = [
    session.job,
    [session.agent, session.model].filter(Boolean).map(visible).join(" · "),
    visible(session.repo.split("/").filter(Boolean).pop() || ""),
    visible((evaluates && session.item?.factors.evaluator) || ""),
    session.item && session.item.repeat > 1 ? `repeat ${session.item.repeat}` : "",
    session.source && session.source !== "batch" ? `from ${visible(session.source)}` : "",
  ];
  const started = session.startedAt ? since("started", session.startedAt) : el("span", {}, "not started");
  const evaluatedId = session.scores.find((score) => score.scoredSessionId && score.scoredSessionId !== session.id)?.scoredSessionId;
  const iteration = (id, text) => (id ? el("a", { href: `/sessions/${encodeURIComponent(id)}` }, text) : "");
  const link = evaluatedId ? el("a", { href: `/sessions/${encodeURIComponent(evaluatedId)}` }, "evaluated session") : "";
  byId("facts").replaceChildren(...facts.filter(Boolean).map((fact) => el("span", {}, fact)), link, iteration(session.continues, "earlier iteration"), iteration(session.continuedBy, "next iteration"), started);
}

function showAttempts() {
  const box = byId("attempts");
  box.hidden = session.attempts.length < 2;
  const link = (one) =>
    el(
      "a",
      { href: `/sessions/${encodeURIComponent(one.id)}`, "aria-current": one.id === session.id ? "page" : null, title: `${one.status}: ${one.endReason}` },
      el("i", { class: `b-${one.status}` }),
      `Attempt ${one.attempt}`,
    );
  const at = session.attempts.findIndex((one) => one.id === session.id);
  const other = session.attempts[at - 1] ?? session.attempts[at + 1];
  const compare = other ? el("a", { href: `/compare/sessions?left=${encodeURIComponent(at ? other.id : session.id)}&right=${encodeURIComponent(at ? session.id : other.id)}` }, "Compare") : "";
  box.replaceChildren(...session.attempts.map(link), compare);
}

const tile = (value, words, title = "") => el("div", { class: "tile", title: title || null }, el("b", {}, value), el("span", {}, words));
const counted = (count, noun) => tile(number(count), count === 1 ? noun : `${noun}s`);

function showTiles() {
  const isRunning = session.status === "running";
  const elapsed = isRunning ? (Date.now() - Date.parse(session.startedAt)) / 1000 : session.workSeconds;
  const timeLabel = session.waitingSeconds >= 1 ? `work time; ${seconds(session.waitingSeconds)} waiting` : "work time";
  const tokens = `${number(session.promptTokens)} in, of which ${number(session.cachedTokens)} cached; ${number(session.completionTokens)} out, of which ${number(session.reasoningTokens)} reasoning`;
  byId("tiles").replaceChildren(
    tile(seconds(elapsed), isRunning ? "elapsed" : timeLabel),
    tile(money(session.costUsd), session.unpricedCalls ? `${plural(session.unpricedCalls, "unpriced call")}` : "cost"),
    tile(short(session.totalTokens), "tokens", tokens),
    counted(session.modelCalls, "model call"),
    counted(session.toolCalls, "tool call"),
    workTile(),
  );
}

/** Changed lines in a repository, or the number of steps. */
function workTile() {
  const sum = (name) => session.steps.reduce((total, step) => total + step[name], 0);
  const files = sum("changedFiles");
  if (session.branch || files) return tile(`+${number(sum("linesAdded"))} −${number(sum("linesRemoved"))}`, `in ${plural(files, "file")}`);
  return counted(session.steps.length, "stepsAreTurns" in page ? "turn" : "step");
}

function showNotices() {
  const notices = [];
  if (session.error) notices.push(el("div", { class: "notice bad" }, el("pre", { class: "said" }, visible(session.error))));
  if (session.interventions) notices.push(el("div", { class: "notice warn" }, el("p", {}, `${plural(session.interventions, "human intervention")}: the agent asked a human, or a human sent it a message.`)));
  if (session.notes.length) {
    const notes = el("ul", {}, session.notes.slice(0, 100).map((note) => el("li", {}, visible(note))));
    const many = session.notes.length > 3;
    notices.push(many ? el("details", { class: "notice" }, el("summary", {}, plural(session.notes.length, "note")), notes) : el("div", { class: "notice" }, notes));
  }
  if (foreign) notices.push(foreign);
  byId("notices").replaceChildren(...notices);
}

let foreign = null;
async function checkSignatures() {
  if (!session.runId || !session.item || session.status === "running") return;
  foreign = await foreignNotice(session.runId, session.item.id);
  if (foreign) showNotices();
}

// ---- Place in the list this page was opened from

const ORIGIN = new URLSearchParams(location.search).get("from");
const LIST = ORIGIN || "";
const listPage = () => (LIST.startsWith("/") ? LIST : `/runs/${encodeURIComponent(session.runId)}${LIST ? `?${LIST}` : ""}${ORIGIN === null ? "" : "#items"}`);
let neighbors = { previous: null, next: null };

const PAGES = { compare: "Compare", trends: "Trends", evaluations: "Evaluation", tasks: "Tasks" };

/** Lead back to another page of this server that a link was followed from, such as a comparison. */
function showOrigin() {
  const root = document.documentElement.dataset.root || "";
  if (LIST || !document.referrer.startsWith(`${location.origin}${root}/`)) return;
  const name = PAGES[document.referrer.slice(location.origin.length + root.length + 1).split(/[/?#]/)[0]];
  const crumb = document.querySelector(".crumbs a");
  if (!name || !crumb) return;
  crumb.textContent = name;
  crumb.setAttribute("href", document.referrer);
}

/** Lead back to the list with its filters, and to the sessions before and after this one in it. */
async function showPlace() {
  const crumb = byId("crumb-list");
  if (crumb && /^\/(?!\/)/.test(listPage())) crumb.setAttribute("href", document.documentElement.dataset.root + listPage());
  if (!session.runId || !session.item) return;
  const filters = new URLSearchParams(LIST.startsWith("/") ? LIST.split("?")[1] ?? "" : LIST);
  filters.delete("session");
  filters.append("session", ID);
  try {
    neighbors = await api.get(`/api/runs/${encodeURIComponent(session.runId)}/neighbors?${filters}`);
  } catch {
    // A filter that no longer exists: the page works without its neighbors.
    return;
  }
  byId("place").hidden = neighbors.total < 2;
  for (const name of ["previous", "next"]) byId(name).disabled = !neighbors[name];
  byId("place-words").textContent = neighbors.position ? `${number(neighbors.position)} of ${number(neighbors.total)}` : "not in this list";
}

function openNeighbor(name) {
  if (neighbors[name]) go(`/sessions/${encodeURIComponent(neighbors[name])}${LIST ? `?from=${encodeURIComponent(LIST)}` : ""}${tabs.current === "transcript" ? "" : `#${tabs.current}`}`);
}

for (const name of ["previous", "next"]) byId(name)?.addEventListener("click", () => openNeighbor(name));
onKeys("Session", {
  j: ["Next session of the list", () => openNeighbor("next")],
  k: ["Previous session of the list", () => openNeighbor("previous")],
  u: ["Back to the list", () => byId("crumb-list")?.click()],
  s: ["Star", () => byId("annotations").querySelector(".star")?.click()],
  t: ["Add a tag", () => byId("annotations").focusTag()],
  n: ["Write a note", () => byId("annotations").focusNote()],
  "1 – 5": ["Rate the session", null],
  ...Object.fromEntries([1, 2, 3, 4, 5].map((value) => [value, ["", () => byId("annotations").buttons[value - 1].click()]])),
});

// ---- Tabs

function showTabs() {
  const checks = session.steps.filter((step) => step.testResult);
  const calls = session.modelCalls + session.toolCalls;
  const parts = {
    world: [hasTurns, session.steps.length],
    transcript: [session.eventCount || !evaluates || !session.scores.length, session.eventCount],
    changes: [session.branch, null],
    check: [checks.length, null],
    scores: [session.scores.length, session.scores.length],
    calls: [calls, calls],
    spans: [session.source === "otlp", null],
    details: [true, null],
  };
  for (const [name, [isThere, count]] of Object.entries(parts)) {
    const tab = byId(`tab-${name}`);
    tab.hidden = !isThere;
    if (count) tab.querySelector(".count").textContent = number(count);
  }
  const failed = checks.some((step) => step.testResult === "fail");
  const verdict = el("span", { class: `status s-${failed ? "fail" : "success"}` }, failed ? "failed" : "passed");
  byId("tab-check").querySelector(".count").replaceChildren(checks.length ? verdict : "");
  for (const name of ["check", "scores", "details"]) if (openedPanels.has(name)) PANELS[name]();
}

const PANELS = {
  world: () => {
    byId("panel-world").replaceChildren(turns);
    return turns.begin({ session: ID });
  },
  changes: () =>
    showBranch({ panel: byId("panel-changes"), tab: byId("tab-changes"), address: ADDRESS, session: () => session, changed: reload }),
  check: () => byId("panel-check").replaceChildren(...checksOf(session, ADDRESS)),
  // Labels belong to the evaluated session, not to the evaluation session.
  scores: () => byId("panel-scores").replaceChildren(scoresTable(session), evaluates ? "" : labels),
  calls: () => {
    const fall = document.createElement("call-waterfall");
    byId("panel-calls").replaceChildren(fall);
    return fall.begin({ session: ID, started: session.startedAt, chosen: goTo });
  },
  spans: () => {
    const tree = document.createElement("span-tree");
    byId("panel-spans").replaceChildren(tree);
    return tree.begin({ session: ID, started: session.startedAt });
  },
  details: () => byId("panel-details").replaceChildren(detailsOf(session, ADDRESS)),
};

function openPanel(name) {
  if (openedPanels.has(name)) return;
  openedPanels.add(name);
  guarded(`panel-${name}`, () => PANELS[name]?.());
}

/** Run an action; show its error in the panel. */
async function guarded(panel, action) {
  try {
    await action();
  } catch (error) {
    const words = [el("p", {}, el("b", {}, error.message)), el("p", { class: "soft" }, error.remedy || "")];
    byId(panel).replaceChildren(el("div", { class: "notice bad", role: "alert" }, words));
  }
}

function goTo(position, text = "") {
  tabs.open("transcript");
  history.replaceState(history.state, "", `#m${position}`);
  return transcript.show(position, text);
}

// `/` focuses the search field, which is in this panel.
document.addEventListener("keydown", ({ key, target }) => key === "/" && !target.closest?.("input, textarea, select") && tabs.open("transcript"), { capture: true });

/** Scores and metrics shown below an utterance of a dialogue. */
function scoredUtterance(name, index) {
  const scores = session.scores.filter((score) => score.target === `${name}.turn_${index}`);
  const metrics = session.metrics.filter((metric) => metric.name.startsWith(`${name}.`) && metric.step === index + 1).slice(0, 6);
  if (!scores.length && !metrics.length) return null;
  return el(
    "div",
    { class: "under" },
    scores.map((score) => el("span", { class: "tag", title: score.explanation }, visible(score.evaluator), " ", scoreValue(score))),
    metrics.map((metric) => el("span", { class: "tag" }, visible(`${metric.name.slice(name.length + 1)}: ${metric.label ?? metric.value}`))),
  );
}

// ---- Loading

let latestLoad = 0;

async function reload() {
  const request = ++latestLoad;
  const response = await api.get(ADDRESS);
  // Ignore a response that arrives after a newer one.
  if (request !== latestLoad) return;
  session = response;
  showHead();
  showTabs();
}

const linkedTo = () => Number(/^#m(\d+)$/.exec(location.hash)?.[1] || 0);

/** The result of the check, below the last step. */
function checkAtEnd() {
  const last = session.steps.filter((step) => step.testResult).at(-1);
  return last && session.status !== "running" ? checkOf(last, session, ADDRESS, "Check after the last step") : null;
}

async function showTranscript() {
  const plain = el("input", { type: "checkbox" });
  plain.addEventListener("change", () => transcript.setPlain(plain.checked));
  byId("panel-transcript").replaceChildren(el("div", { class: "transcript-tools" }, search, el("label", { class: "check small" }, plain, "Plain text")), el("div", { class: "transcript-layout" }, outline, transcript));
  search.begin({ address: ADDRESS, show: (position, text) => goTo(position, text).catch((error) => toast(error.message, "bad", error.remedy)) });
  search.hidden = !session.eventCount;
  transcript.begin({ session: ID, started: session.startedAt, sides: page.speakers ? page.speakers.split(" ") : null, scored: scoredUtterance, ending: checkAtEnd });
  plain.checked = transcript.isPlain;
  // Decided before anything is shown, so that nothing moves.
  outline.hidden = session.eventCount - session.modelCalls < 4;
  outline.begin({ session: ID, chosen: goTo }).catch(() => {
    outline.hidden = true;
  });
  await transcript.open(linkedTo());
  if (session.status === "running") transcript.showEmpty("No messages yet.", "Messages appear here while the session runs.");
  else transcript.showEmpty("No messages.", "The attempt ended before any message was recorded.");
}

async function follow(state) {
  await transcript.catchUp(state.lastPosition);
  search.hidden = !state.eventCount;
  const isSame = state.status === session.status && state.eventCount === session.eventCount && state.stepCount === session.steps.length;
  if (isSame) return;
  await reload();
  transcript.showEnding();
  outline.hidden = session.eventCount - session.modelCalls < 4;
  outline.refresh().catch(() => {});
  if (openedPanels.has("world")) await turns.catchUp();
  if (state.status !== "running" && openedPanels.has("changes")) await guarded("panel-changes", PANELS.changes);
}

async function begin() {
  try {
    await reload();
  } catch (error) {
    byId("panel-transcript").replaceChildren(el("div", { class: "empty", role: "alert" }, el("b", {}, error.message), el("p", {}, error.remedy)));
    return;
  }
  checkSignatures();
  showOrigin();
  showPlace();
  const first = hasTurns ? "world" : evaluates && session.scores.length ? "scores" : "transcript";
  tabs.open(linkedTo() ? "transcript" : location.hash.slice(1) || first);
  await guarded("panel-transcript", showTranscript);
  addEventListener("hashchange", () => linkedTo() && goTo(linkedTo()));
  setInterval(() => session.status === "running" && showTiles(), 1000);
  watch("session", ID, follow);
  if (session.branch && session.status === "running") followAgent({ panel: byId("panel-transcript"), address: ADDRESS, session: () => session });
  if (session.runId) awaitEndOfRun();
}

/** Notify when the run of this session ends, and stop watching it then. */
function awaitEndOfRun() {
  const notify = ending(session.status);
  const stop = watch("run", session.runId, ({ run }) => {
    notify(run);
    if (run.status !== "running") stop();
  });
}

begin();
