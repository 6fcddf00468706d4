// The Run page: live progress, results, items, charts, plan, and actions.

import { api, attempt, badge, byId, confirmed, el, format, go, query, remember, remembered, since, STATUSES, toast, urlOf, watch } from "./app.js";
import { chartCard } from "./charts.js";
import { scrollable } from "./dom.js";
import { listQuery, readFilters } from "./item_query.js";
import { onKeys } from "./keys.js";
import { firstItems, ItemsPanel } from "./items_panel.js";
import { ending } from "./notify.js";
import { ResultsPanel } from "./results.js";
import { deleteRun, doneWords, hasStoppedEarly, statusWord } from "./run_actions.js";
import { foreignNotice } from "./signatures.js";
import { menu, Tabs } from "./tabs.js";
import { visible } from "./texts.js";

const { money, number, plural, seconds, short } = format;
const page = byId("run");
const RUN = page.dataset.run;
const ADDRESS = `/api/runs/${encodeURIComponent(RUN)}`;
const TABLES = [
  ["", "All tables"], ["batch_items", "Items"], ["sessions", "Sessions"], ["iterations", "Steps"], ["messages", "Messages"],
  ["tool_calls", "Tool calls"], ["model_calls", "Model calls"], ["scores", "Scores"], ["metrics", "Metrics"],
];
const FORMATS = { json: "JSON", ndjson: "NDJSON", csv: "CSV", parquet: "Parquet" };

let run = null;
let seenAt = 0;
/** The last update from the live channel. It is newer than any response that was pending when it arrived. */
let liveRun = {};
const notifyOfEnd = ending();
const results = new ResultsPanel(RUN, { stop: abort });
const tabs = new Tabs(byId("tabs"), (name) => {
  ({ matrix: showMatrix, charts: drawCharts, plan: showPlan })[name]?.();
  name === "results" ? results.open() : results.close();
});

const TABS = ["results", "items", "matrix", "charts", "plan"];
onKeys("Run", {
  "1 – 5": ["Results, Items, Matrix, Charts, Plan", null],
  ...Object.fromEntries(TABS.map((name, place) => [place + 1, ["", () => tabs.open(name, { updateUrl: true, focus: true })]])),
});
onKeys("List of items, and matrix", {
  "↑ ↓": ["Move; in the matrix also ← →", null],
  Enter: ["Open the session", null],
  Space: ["Select an item", null],
  "Shift ↑↓": ["Select a range", null],
  "Ctrl A": ["Select all items", null],
  Escape: ["Select none", null],
});

// ---- Header and progress

function showRun(next) {
  run = { ...run, ...next };
  seenAt = Date.now();
  notifyOfEnd(run);
  byId("status").replaceChildren(run.isStopping ? el("span", { class: "status s-running" }, "stopping…") : badge(run.status, run.reason));
  byId("progress").update(run.counts);
  const counted = (status) => el("span", {}, el("i", { class: `b-${status}` }), el("b", {}, number(run.counts[status])), ` ${statusWord(run, status)}`);
  byId("tally").replaceChildren(...STATUSES.filter((status) => run.counts[status]).map(counted));
  byId("done").textContent = doneWords(run, "item");
  byId("items-count").textContent = number(run.itemCount);
  showTiles();
  showBudget();
  showPools();
  showStopWhen();
  showNotices();
  showActions();
  results.update(run.counts, run.status);
}

function tile(value, words, title = "") {
  return el("div", { class: "tile", title: title || null }, el("b", {}, value), el("span", {}, words));
}

function showTiles() {
  const isRunning = run.status === "running";
  const passed = sinceSeen() / 1000;
  const unchecked = run.uncheckedCount || 0;
  const succeeded = run.counts.success - unchecked;
  const evaluated = succeeded + run.counts.fail + run.counts.timeout;
  const excluded = [run.counts.error ? plural(run.counts.error, "error") : "", unchecked ? `${number(unchecked)} unchecked` : ""].filter(Boolean);
  const left = run.etaSeconds === null ? null : Math.max(0, run.etaSeconds - passed);
  byId("tiles").replaceChildren(
    tile(evaluated ? `${Math.round((100 * succeeded) / evaluated)}%` : "–", excluded.length ? `of items succeeded; ${excluded.join(", ")} excluded` : "of items succeeded", "Share of finished items with status success; rates in Results are over tasks. Infrastructure errors and unchecked items are excluded."),
    // Imported runs have no duration.
    tile(isRunning || run.elapsedSeconds ? seconds(run.elapsedSeconds + passed) : "–", isRunning ? "elapsed" : "duration"),
    isRunning ? tile(left === null ? "–" : `~${seconds(left)}`, "remaining (est.)") : tile(since("", run.finishedAt || run.createdAt), "ended"),
    tile(run.itemsPerMinute === null ? "–" : short(run.itemsPerMinute), "items/min"),
    tile(`${run.costIsLowerBound ? "≥ " : ""}${money(run.costUsd)}`, run.costUsd === null && hasFinished() ? "cost: prices unknown" : "cost"),
    tile(short(run.tokens), "tokens", number(run.tokens)),
  );
}

const hasFinished = () => run.counts.success + run.counts.fail + run.counts.timeout + run.counts.error > 0;

const sinceSeen = () => (run.status === "running" ? Date.now() - seenAt : 0);

function showBudget() {
  const box = byId("budget");
  box.hidden = run.budgetUsd === null;
  if (box.hidden) return;
  const share = (value) => Math.min(100, run.budgetUsd ? (100 * value) / run.budgetUsd : 100);
  // Calls that were cut off have no known cost: the budget is charged with the most they can have cost.
  const known = run.costUsd ?? run.spentUsd;
  const atMost = run.status === "running" ? 0 : Math.max(0, run.spentUsd - known);
  const unknown = atMost > 1e-6 ? `up to ${money(atMost)} more for interrupted calls` : "";
  const reserved = run.reservedUsd ? `${money(run.reservedUsd)} reserved` : "";
  const rest = [unknown, reserved].filter(Boolean).join(", ");
  const words = [`${money(known)} of ${money(run.budgetUsd)} spent`, rest].filter(Boolean).join(", ");
  const bar = el("div", { class: "budget-bar", role: "img", "aria-label": words }, el("i", { class: "spent" }), el("i", { class: "reserved" }));
  bar.children[0].style.width = `${share(known)}%`;
  bar.children[1].style.width = `${Math.min(100 - share(known), share(run.reservedUsd + atMost))}%`;
  const title = unknown ? "The cost of calls that were cut off is not known. The budget is charged with the most that they can have cost." : null;
  box.replaceChildren(el("span", {}, el("b", {}, money(known)), ` of ${money(run.budgetUsd)} spent`), bar, rest ? el("span", { class: "soft", title }, rest) : "");
}

for (const [id, label] of [["pools", "Rate limits"], ["stop-when", "Decisions"]]) scrollable(byId(id), label);

function showPools() {
  const box = byId("pools");
  box.hidden = !run.pools.length;
  if (box.hidden) return;
  const cells = (pool) => [
    el("td", {}, visible(pool.name)),
    el("td", { class: "n" }, `${number(pool.inUse)} of ${number(pool.limit)}`),
    el("td", { class: "n" }, number(pool.waiting)),
    el("td", { class: "n" }, pool.waitedSeconds >= 1 ? seconds(pool.waitedSeconds) : "–"),
    el("td", { class: "n" }, number(pool.rateLimited)),
    el("td", {}, pool.pausedSeconds ? el("span", { class: "tag warn" }, `paused for ${seconds(pool.pausedSeconds)}`) : el("span", { class: "soft" }, "open")),
  ];
  const heads = ["Provider and model", "Concurrent calls", "Waiting", "Time waited", "Rate limited (429)", "Status"];
  box.replaceChildren(
    el("table", { class: "pools", "aria-label": "Rate limits" },
      el("thead", {}, el("tr", {}, heads.map((head, index) => el("th", { scope: "col", class: index && index < 5 ? "n" : null }, head)))),
      el("tbody", {}, run.pools.map((pool) => el("tr", {}, cells(pool))))),
  );
}

function showStopWhen() {
  const box = byId("stop-when"), state = run.stopWhen;
  box.hidden = !state;
  if (box.hidden) return;
  const digits = (value) => (value === null ? "–" : Number(value.toPrecision(3)).toString());
  const limits = (one) => (one.low === null || one.high === null ? "no interval yet" : `${digits(one.low)} to ${digits(one.high)}`);
  const race = new Map(state.race.map((level) => [level.name, level]));
  const words = { picked: "use this", in: "in the race", out: "out", open: "open", pass: "pass", fail: "fail" };
  const standing = (level) => [
    el("progress", { max: 1, value: level.share, "aria-label": `${visible(level.name)}: share of the way to its end` }),
    " ",
    el("span", { class: { picked: "tag good", pass: "tag good", fail: "tag bad" }[level.state] || "soft" }, words[level.state]),
    level.against && level.state !== "picked" ? ` against ${visible(level.against)}` : "",
  ];
  const decided = (one) => (one.isUndecided ? el("span", { class: "tag warn" }, "undecided") : el("span", { class: "soft" }, "decided"));
  const cells = (one) => [
    el("td", {}, visible(one.name)),
    el("td", { class: "n" }, digits(one.value)),
    el("td", { class: "n" }, limits(one)),
    el("td", { class: "n" }, number(race.get(one.name)?.tasks ?? one.tasks)),
    el("td", {}, race.has(one.name) ? standing(race.get(one.name)) : decided(one)),
  ];
  const heads = [state.by, state.metric, `${Number((100 * state.confidence).toPrecision(4))}% interval`, state.unit === "repeat" ? "Repeats" : "Tasks", "Status"];
  box.replaceChildren(
    el("table", { class: "pools", "aria-label": "Decisions" },
      el("thead", {}, el("tr", {}, heads.map((head, index) => el("th", { scope: "col", class: index && index < 4 ? "n" : null }, visible(head))))),
      el("tbody", {}, state.intervals.map((one) => el("tr", {}, cells(one))))),
    el("ul", {}, state.decisions.map((one) => el("li", {}, `${one.outcome === "open" ? "Undecided" : "Decided"}: ${visible(one.reason)}`))),
    el("p", { class: "soft" }, "These intervals are valid at any time, also while the run goes on. Ordinary figures of a running run, or of one that stopped early, are not."),
  );
}

const HALT_REASONS = {
  budget: "The budget is reached: the next call could exceed it.",
  agent_start: "An agent started in none of its items. Repair it, then retry the errors.",
};
const isOutOfBudget = () => run.status === "halted" && run.reason === "budget" && run.budgetUsd !== null;

function showNotices() {
  const notices = [];
  if (run.mocks?.length) {
    // The participants of a conversation share one entry; each is listed once here.
    const named = new Set(run.mocks.flatMap(({ agent, model }) => model.split(/, | \+ /).map((one) => `${agent} ${one}`.trim())));
    const who = visible([...named].slice(0, 6).join(", ")) + (named.size > 6 ? " and others" : "");
    // Where all models are mock, the line above lists them.
    const isMixed = run.mocks.length < run.agentsAndModels.length || run.agentsAndModels.length > 8;
    const text = `Uses scripted or replayed models${isMixed ? ` (${who})` : ""}; draw no conclusions about real models.`;
    notices.push(el("div", { class: "notice warn" }, el("p", {}, el("b", {}, "Mock run. "), text)));
  }
  const invalid = Object.entries(run.validity || {}).map(([kind, { events, sessions }]) => `${events} ${kind.replaceAll("_", " ")} in ${sessions} session${sessions === 1 ? "" : "s"}`);
  if (invalid.length) notices.push(el("div", { class: "notice warn" }, el("p", {}, el("b", {}, "Less valid as data. "), `${invalid.join(", ")}.`)));
  for (const [model, names] of Object.entries(run.servedModels || {}))
    if (Object.keys(names).length > 1) notices.push(el("div", { class: "notice warn" }, el("p", {}, el("b", {}, "Several models answered. "), `As ${visible(model)}: ${visible(Object.keys(names).join(", "))}.`)));
  const words = {
    halted: "The run was halted. Finished items are saved.",
    interrupted: run.reason === "interrupted" ? "The run was stopped before its end. Finished items are saved." : "The run's process died. Finished items are saved.",
    aborted: "The run was aborted.",
  }[run.status];
  if (words) {
    const reason = run.reason && run.reason !== run.status && run.status !== "interrupted" ? ` ${visible(HALT_REASONS[run.reason] || run.reason)}` : "";
    const remedy = run.status === "aborted" ? null : el("p", { class: "soft" }, isOutOfBudget() ? "Resume with a larger budget to run the rest." : "Resume to run the rest.");
    notices.push(el("div", { class: "notice bad" }, el("p", {}, el("b", {}, words), reason), remedy));
  }
  if (foreign) notices.push(foreign);
  byId("notices").replaceChildren(...notices);
}

let foreign = null;
async function checkSignatures() {
  foreign = await foreignNotice(RUN);
  if (foreign) showNotices();
}

function showFacts() {
  const name = ({ agent, model }) => visible([agent, model].filter(Boolean).join(" · ") || "–");
  const mix = run.agentsAndModels.filter(({ agent, model }) => agent || model).slice(0, 8).map((maker) => el("span", { class: "tag", title: plural(maker.items, "item") }, name(maker)));
  byId("facts").replaceChildren(
    el("span", {}, run.job),
    since("created", run.createdAt),
    run.planPath ? el("code", { title: run.planPath }, visible(run.planPath.split("/").pop())) : "",
    el("span", {}, `concurrency ${run.concurrency}`),
    ...mix,
    run.evaluations.length ? el("span", {}, "evaluated in ", run.evaluations.flatMap((id, place) => [place ? ", " : "", el("a", { href: `/evaluations/${encodeURIComponent(id)}` }, visible(id))])) : "",
    run.agentsAndModels.length > 8 ? el("span", { class: "tag" }, `+${run.agentsAndModels.length - 8}`) : "",
  );
}

// ---- Actions

const retried = () => run.counts.error + run.counts.fail + run.counts.timeout;

function showActions() {
  byId("abort").hidden = !["running", "halted", "interrupted"].includes(run.status);
  byId("abort").disabled = run.isStopping;
  // Of a run that is not running, an abort only gives up the rest: that is not its main action.
  byId("abort").classList.toggle("quiet", run.status !== "running");
  byId("resume").hidden = !["halted", "interrupted", "aborted"].includes(run.status) && !hasStoppedEarly(run);
  byId("resume").textContent = hasStoppedEarly(run) ? "Run the rest" : "Resume";
  byId("delete").hidden = run.status === "running";
  byId("retry").hidden = run.status === "running" || !retried() || !byId("resume").hidden;
}

async function abort(button) {
  const left = run.counts.queued + run.counts.running;
  const text = `${plural(left, "item")} will not be finished. Finished items are saved.`;
  const agreed = await confirmed({ title: `Abort ${RUN}?`, text, action: "Abort run" });
  if (!agreed) return;
  const done = await attempt(button, () => api.post(`${ADDRESS}/abort`));
  if (done) toast(done.status === "aborted" ? "Run aborted." : "Stopping the run…", "good");
  if (done) load();
}
byId("abort").addEventListener("click", ({ currentTarget }) => abort(currentTarget));

byId("delete").addEventListener("click", async ({ currentTarget }) => {
  if (await deleteRun(run, currentTarget)) go("/");
});

byId("resume").addEventListener("click", async ({ currentTarget }) => {
  if (hasStoppedEarly(run)) {
    const text = "What the plan wanted to know is decided. The intervals stay valid while the rest runs.";
    const action = `Run ${plural(run.counts.queued, "item")}`;
    if (!await confirmed({ title: "Run the rest?", text, action, danger: false })) return;
  }
  const changes = { stopEarly: hasStoppedEarly(run) ? "false" : "" };
  if (isOutOfBudget()) {
    const field = el("input", { type: "number", min: run.budgetUsd, step: "any", value: Number((2 * run.budgetUsd).toPrecision(3)), required: true });
    const text = `${money(run.spentUsd)} of ${money(run.budgetUsd)} is spent. Finished items are not repeated.`;
    if (!await confirmed({ title: "Resume with a larger budget?", text, fields: [el("label", { class: "field" }, "Budget of the run (USD)", field)], action: "Resume", danger: false })) return;
    changes.budget = field.value;
  }
  const done = await attempt(currentTarget, () => api.post(`${ADDRESS}/resume${query(changes)}`));
  if (done) toast("Run resumed.", "good");
  if (done) load();
});

byId("retry").addEventListener("click", async ({ currentTarget }) => {
  const text = "Each item gets one more attempt. Earlier attempts stay in the store.";
  const agreed = await confirmed({ title: `Retry ${plural(retried(), "item")}?`, text, action: "Retry failed", danger: false });
  if (!agreed) return;
  const done = await attempt(currentTarget, () => api.post(`${ADDRESS}/retry`));
  if (done) toast("Retrying failed items.", "good");
  if (done) load();
});

function makeMenus() {
  const table = el("select", { "aria-label": "Table to export" }, TABLES.map(([value, title]) => el("option", { value }, title)));
  const links = Object.entries(FORMATS).map(([form, title]) => el("a", { class: "menu-item", dataset: { form }, download: "" }, title));
  const setLinks = () => links.forEach((link) => (link.href = urlOf(`${ADDRESS}/export${query({ format: link.dataset.form, table: table.value })}`)));
  table.addEventListener("change", setLinks);
  setLinks();
  menu(byId("export"), [el("div", { class: "menu-field" }, table), ...links]);
  const opens = { class: "menu-item", target: "_blank", rel: "noopener" };
  const downloads = { class: "menu-item", download: "" };
  menu(byId("report"), [
    el("a", { ...opens, href: `${ADDRESS}/report?format=html` }, "Open report"),
    el("a", { ...downloads, href: `${ADDRESS}/report?format=html&download=true` }, "Download as HTML"),
    el("a", { ...downloads, href: `${ADDRESS}/report?format=portable` }, "Download with all items"),
    el("a", { ...downloads, href: `${ADDRESS}/report?format=md&download=true` }, "Download as Markdown"),
    run.hasAnalysis ? el("a", { ...opens, href: `${ADDRESS}/analysis` }, page.dataset.analysis) : null,
  ]);
}

let matrix = null;

/** The matrix and its code are loaded when its tab is opened. */
async function showMatrix() {
  const { MatrixPanel } = await import("./matrix.js");
  matrix ||= new MatrixPanel(run, () => run);
  matrix.open();
}

// ---- Charts and plan

let drawnFor = "";

/** Seconds that the server may take for the charts of a large run, once those that are there are shown. */
const CHARTS_WAIT = 20;

async function drawCharts(wait = 0) {
  const by = byId("by").value;
  const box = byId("charts");
  try {
    const [all, grouped] = await Promise.all([api.get(`${ADDRESS}/charts`), by ? api.get(`${ADDRESS}/charts${query({ by, wait })}`) : null]);
    if (by !== byId("by").value) return;
    const cards = [...all.charts, ...(grouped?.charts || [])].map((chart) => chartCard(chart, { run: RUN }));
    box.replaceChildren(...cards, ...(grouped?.note ? [el("p", { class: "soft" }, grouped.note)] : []));
    drawnFor = JSON.stringify(run.counts);
    if (grouped && !grouped.isCurrent) drawCharts(CHARTS_WAIT);
  } catch (error) {
    box.replaceChildren(el("div", { class: "notice bad" }, el("p", {}, error.message)));
  }
}

function makeGrouping() {
  const groupBy = remembered("proctor-group-by", "model");
  byId("by").append(...run.factors.map((name) => el("option", { value: name, selected: name === groupBy }, name)));
  byId("by").closest(".tools").hidden = !run.factors.length;
  const setLink = () => (byId("compare-link").href = urlOf(`/compare${query({ run: RUN, by: byId("by").value })}`));
  setLink();
  byId("by").addEventListener("change", () => {
    remember("proctor-group-by", byId("by").value);
    setLink();
    drawCharts();
  });
  setInterval(() => {
    if (tabs.current === "charts" && !document.hidden && drawnFor !== JSON.stringify(run.counts)) drawCharts();
  }, 5000);
}

async function showPlan() {
  const box = byId("plan");
  if (box.dataset.shown) return;
  try {
    const plan = await api.get(`${ADDRESS}/plan`);
    box.dataset.shown = "yes";
    const copy = el("button", { type: "button", class: "compact", onclick: () => navigator.clipboard.writeText(plan.text).then(() => toast("Copied.", "good")) }, "Copy");
    const edit = el("a", { class: "button compact", dataset: { needs: "run" }, href: `/new?run=${encodeURIComponent(RUN)}` }, "Edit as new batch");
    box.replaceChildren(
      el("div", { class: "plan-head" }, el("code", {}, visible(plan.path || "entered in browser")), el("div", { class: "actions" }, copy, plan.text ? edit : null)),
      plan.text ? el("pre", { class: "plan-text", tabindex: "0" }, visible(plan.text)) : el("p", { class: "soft" }, "This run has no plan file."),
    );
  } catch (error) {
    box.replaceChildren(el("div", { class: "notice bad" }, el("p", {}, error.message)));
  }
}

// ---- Loading

async function load() {
  const before = liveRun;
  try {
    const response = await api.get(ADDRESS);
    showRun(liveRun === before ? response : { ...response, ...liveRun });
    return true;
  } catch (error) {
    byId("notices").replaceChildren(el("div", { class: "notice bad", role: "alert" }, el("p", {}, el("b", {}, error.message)), el("p", { class: "soft" }, error.remedy)));
    return false;
  }
}

async function begin() {
  const first = firstItems(RUN);
  first.catch(() => {});
  if (!(await load())) {
    page.classList.add("unknown");
    return;
  }
  showFacts();
  checkSignatures();
  const items = new ItemsPanel(page, run, first);
  makeMenus();
  makeGrouping();
  // An address with filters shows the items that they are about.
  tabs.open(location.hash.slice(1) || (listQuery(readFilters()) ? "items" : "results"));
  setInterval(() => run.status === "running" && showTiles(), 1000);
  watch("run", RUN, (changes, { full }) => {
    const before = run.status;
    liveRun = changes.run;
    showRun(liveRun);
    // Items may have finished between the first page and the first live update.
    items.update(changes, { reload: changes.reset || (full && [before, run.status].includes("running")) });
  }, (error) => toast(error.problem, "bad", error.remedy));
}

begin();
