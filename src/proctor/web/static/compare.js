// The Compare page. The URL contains the whole selection, so that a link shows the same comparison.

import { api, attempt, byId, copyLink, DataTable, debounced, el, format, query, toast, urlOf } from "./app.js";
import { chartCard, itemsAddress } from "./charts.js";
import { gatesSection } from "./gates.js";
import { metricTitle, metricTitles } from "./metrics.js";
import { breakable, visible } from "./texts.js";

const { number, plural } = format;
const SIZE = 25;
/** Milliseconds after which counts are shown if the comparison is not there. */
const COUNTS_AFTER = 400;
/** Seconds that a request waits for the items of large runs. */
const WAIT = 2;
const address = new URLSearchParams(location.search);
const selection = {
  run: address.getAll("run"),
  by: address.get("by") || "",
  against: address.get("against") || "",
  metric: address.getAll("metric"),
  pair: address.get("pair") || "",
  mixed: address.get("mixed") || "",
  gate: address.getAll("gate"),
};
const detail = {
  metric: address.get("at") || "",
  candidate: address.get("candidate") || "",
  search: address.get("search") || "",
  direction: address.get("direction") || "",
  offset: Number(address.get("offset")) || 0,
};
/** Whether a gate uses a metric that every run has. */
const isOfAnyRun = (gate) => Object.keys(metricTitles).some((name) => gate.trim().startsWith(name));
let latestRequest = 0;
let comparison = null;
/** Whether the details of the differences are open. */
let isDetailed = false;
/** Progress of reading the items of large runs. */
let reading = null;

// ---- Selected runs

function chosenRun(id, place) {
  const isFirst = place === 0 && selection.run.length > 1;
  const remove = el("button", { type: "button", class: "quiet icon small-icon", "aria-label": `Remove ${id}`, onclick: () => choose(selection.run.filter((run) => run !== id)) }, "×");
  const first = place > 0 ? el("button", { type: "button", class: "quiet compact", "aria-label": `Use ${id} as the baseline`, onclick: () => choose([id, ...selection.run.filter((run) => run !== id)]) }, "Set as baseline") : null;
  return el("li", { class: isFirst ? "is-first" : null }, el("a", { href: `/runs/${encodeURIComponent(id)}` }, visible(id)), isFirst ? el("span", { class: "tag" }, "baseline") : first, remove);
}

function choose(runs) {
  const isOther = runs.length !== 1 || runs[0] !== selection.run[0];
  Object.assign(selection, { run: runs, metric: [], mixed: "", gate: selection.gate.filter(isOfAnyRun) });
  if (isOther) Object.assign(selection, { by: "", against: "" });
  Object.assign(detail, { metric: "", candidate: "", offset: 0 });
  changed();
}

async function drawChooser() {
  byId("chosen").replaceChildren(...selection.run.map(chosenRun));
  byId("by-field").hidden = selection.run.length !== 1;
  byId("pair-field").hidden = !selection.run.length;
  if (!selection.by) byId("against-field").hidden = true;
  byId("pair").value = selection.pair;
  byId("add").placeholder = selection.run.length ? "Add a run…" : "Choose a run…";
  if (selection.run.length !== 1) return;
  const [run] = selection.run;
  let factors = [];
  try {
    ({ factors } = await api.get(`/api/runs/${encodeURIComponent(run)}`));
  } catch {
    // The comparison request reports the error.
  }
  if (selection.run[0] !== run) return;
  byId("by").replaceChildren(el("option", { value: "" }, "…"), ...factors.map((factor) => el("option", { value: factor }, visible(factor))));
  if (selection.by && !factors.includes(selection.by)) byId("by").append(el("option", { value: selection.by }, visible(selection.by)));
  byId("by").value = selection.by;
}

byId("by").addEventListener("change", () => {
  Object.assign(selection, { by: byId("by").value, against: "", metric: [], mixed: "", gate: selection.gate.filter(isOfAnyRun) });
  Object.assign(detail, { metric: "", candidate: "", offset: 0 });
  changed();
});
byId("against").addEventListener("change", () => {
  selection.against = byId("against").value;
  Object.assign(detail, { candidate: "", offset: 0 });
  changed();
});
byId("pair").addEventListener("change", () => {
  selection.pair = byId("pair").value;
  changed();
});

// ---- Run search

const field = byId("add");
const options = byId("found");
let active = -1;

async function searchRuns() {
  try {
    const { runs } = await api.get(`/api/runs${query({ search: field.value.trim(), limit: 12 })}`);
    if (document.activeElement !== field) return;
    const others = runs.filter((run) => !selection.run.includes(run.runId));
    active = -1;
    options.replaceChildren(
      ...others.map((run, place) =>
        el("li", { role: "option", id: `option-${place}`, "aria-selected": "false", dataset: { run: run.runId }, onmousedown: (event) => event.preventDefault(), onclick: () => add(run.runId) },
          el("b", {}, visible(run.runId)), el("span", { class: "soft" }, `${run.job} · ${plural(run.itemCount, "item")} · ${format.ago(run.createdAt)}`)),
      ),
      others.length ? "" : el("li", { class: "soft none" }, "No other runs"),
    );
    open(true);
  } catch (error) {
    toast(error.message, "bad", error.remedy);
  }
}

function open(isOpen) {
  options.hidden = !isOpen;
  field.setAttribute("aria-expanded", String(isOpen));
  if (!isOpen) field.removeAttribute("aria-activedescendant");
}

function add(id) {
  field.value = "";
  open(false);
  choose([...selection.run, id]);
}

function activate(place) {
  const entries = [...options.querySelectorAll("[role=option]")];
  if (!entries.length) return;
  active = (place + entries.length) % entries.length;
  entries.forEach((option, at) => option.setAttribute("aria-selected", String(at === active)));
  entries[active].scrollIntoView({ block: "nearest" });
  field.setAttribute("aria-activedescendant", entries[active].id);
}

field.addEventListener("input", debounced(searchRuns, 150));
field.addEventListener("focus", searchRuns);
field.addEventListener("blur", () => open(false));
field.addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown") activate(active + 1);
  else if (event.key === "ArrowUp") activate(active - 1);
  else if (event.key === "Enter") options.querySelectorAll("[role=option]")[Math.max(0, active)]?.click();
  else if (event.key === "Escape") open(false);
  else return;
  event.preventDefault();
});

// ---- Result

const isEnough = () => selection.run.length > 1 || (selection.run.length === 1 && selection.by);
const asQuery = () => query(selection);

function changed() {
  remember();
  drawChooser();
  load();
}

async function load() {
  const request = ++latestRequest;
  for (const name of ["share", "report"]) byId(name).hidden = !isEnough();
  if (!isEnough()) {
    byId("result").replaceChildren(emptyState());
    return;
  }
  byId("report").href = urlOf(`/api/compare/report${asQuery()}`);
  if (!comparison) byId("result").replaceChildren(el("p", { class: "loading" }, el("span", { class: "reading" }, "Loading comparison…")));
  byId("result").setAttribute("aria-busy", "true");
  // Large runs take seconds: counts come first.
  const counting = comparison ? 0 : setTimeout(() => showCounts(request), COUNTS_AFTER);
  try {
    // The items of large runs are read beside the requests.
    for (let wait = 1; ; wait = WAIT) {
      const response = await api.get(`/api/compare${query({ ...selection, wait })}`);
      if (request !== latestRequest) return;
      if (response.isCurrent) {
        comparison = response;
        drawLevels(response.groups);
        break;
      }
      reading = response.reading;
      showReading();
    }
    show();
  } catch (error) {
    if (request !== latestRequest) return;
    comparison = null;
    byId("result").replaceChildren(el("div", { class: "empty", role: "alert" }, el("h2", {}, visible(error.message)), el("p", {}, visible(error.remedy || ""))));
  } finally {
    clearTimeout(counting);
    if (request === latestRequest) reading = null;
    if (request === latestRequest) byId("result").removeAttribute("aria-busy");
  }
}

/** The levels of the factor, of which one is the baseline: the first of the groups. */
function drawLevels(levels) {
  byId("against-field").hidden = !selection.by;
  byId("against").replaceChildren(...(selection.by ? levels : []).map((level) => el("option", { value: level }, visible(level))));
}

function showReading() {
  const line = byId("result").querySelector(".loading .reading");
  if (line) line.textContent = format.readingText(reading, "Loading comparison…");
}

/** Success rates by counts alone, while the comparison is computed. */
async function showCounts(request) {
  const counts = await api.get(`/api/compare/counts${query({ run: selection.run, by: selection.by })}`).catch(() => null);
  // The comparison was quicker, or says what is wrong.
  if (!counts?.groups.length || comparison || request !== latestRequest || !byId("result").hasAttribute("aria-busy")) return;
  const table = new DataTable({
    label: "Success rates",
    rowKey: (group) => group.name,
    columns: [
      { key: "name", title: selection.by ? visible(selection.by) : "Run", cell: (group) => el("b", {}, breakable(group.name)) },
      { key: "success", title: "Success rate", numeric: true, cell: (group) => (group.judged ? `${((100 * group.succeeded) / group.judged).toFixed(1)}%` : "–") },
      { key: "items", title: "Items", numeric: true, cell: (group) => number(group.finished) },
    ],
  });
  table.show(counts.groups);
  byId("result").replaceChildren(el("div", { class: "stack result" }, el("p", { class: "loading" }, el("span", { class: "reading" }, format.readingText(reading, "Loading comparison…")), " Counts of all items, not paired by task:"), el("div", { class: "findings" }, table.element)));
}

function emptyState() {
  if (selection.run.length === 1) return el("div", { class: "empty" }, el("h2", {}, "One run selected"), el("p", {}, "Add another run, or choose a factor of this run to compare by, such as model or agent."));
  return el("div", { class: "empty" }, el("h2", {}, "Compare runs"), el("p", {}, "Choose two or more runs, or one run and a factor that varies in it. Items with the same task are paired. Each difference has a 95% CI, a p-value, and a minimum detectable effect."));
}

function show() {
  const metrics = [...new Set(comparison.contrasts.map((each) => each.metric))];
  if (!metrics.includes(detail.metric)) detail.metric = metrics[0] || "";
  const candidates = comparison.groups.slice(1);
  // Of several candidates, one that differs.
  const differing = comparison.contrasts.find((each) => each.isSignificant && each.metric === detail.metric)?.candidate;
  if (!candidates.includes(detail.candidate)) detail.candidate = differing || candidates[0] || "";
  const plots = comparison.charts.map((chart) => {
    const marks = chart.marks.map((mark) => ({ ...mark, opens: true }));
    return chartCard({ ...chart, marks, caption: metricTitle(chart.caption) }, { open: (mark) => lookAt(chart.caption, mark.label, "all") });
  });
  const [first, ...others] = plots;
  const parts = [
    headline(),
    el("section", { "aria-labelledby": "plots-title" }, el("h2", { id: "plots-title", class: "unseen" }, "Differences"), el("div", { class: "charts" }, first)),
    metricChips(),
    findings(),
    notices(),
    el("details", { class: "compare-details", open: isDetailed, ontoggle: ({ target }) => (isDetailed = target.open) }, el("summary", {}, "Details of each difference"), el("div", { class: "stack" }, inWords(), others.length ? el("div", { class: "charts" }, others) : null)),
    gatesSection(comparison, { add: addGate, remove: removeGate }),
    disagreements(metrics, candidates),
  ];
  byId("result").replaceChildren(el("div", { class: "stack result" }, parts.filter(Boolean)));
}

/** Each difference in a sentence, with what limits it. */
function inWords() {
  const several = comparison.groups.length > 2;
  const line = (each) => [
    el("dt", {}, metricTitle(each.metric), several ? `, ${visible(each.candidate)}` : null),
    el("dd", {}, visible(each.text), each.unpaired ? el("span", { class: "soft" }, ` ${plural(each.unpaired, "unpaired task")} excluded.`) : null, each.difference ? each.remarks.map((remark) => el("span", { class: "soft" }, ` ${visible(remark)}.`)) : null),
  ];
  return el("dl", { class: "in-words" }, comparison.contrasts.flatMap(line));
}

function headline() {
  const kind = comparison.isBetter === null ? "" : comparison.isBetter ? "good" : "bad";
  return el("div", { class: `notice headline ${kind}` }, el("p", {}, el("b", {}, visible(comparison.summary))));
}

function addGate(text, button) {
  const before = selection.gate;
  // Request first: an invalid gate shows an error and changes nothing.
  return attempt(button, async () => {
    const response = await api.get(`/api/compare${query({ ...selection, gate: [...before, text] })}`);
    if (!response.isCurrent) throw new Error(response.summary);
    if (selection.gate !== before) return;
    selection.gate = [...before, text];
    comparison = response;
    remember();
    byId("report").href = urlOf(`/api/compare/report${asQuery()}`);
    show();
    byId("gate").focus();
  });
}

function removeGate(text) {
  selection.gate = selection.gate.filter((gate) => gate.trim() !== text);
  changed();
}

function notices() {
  const notes = [];
  const { groups, differsIn, pairedBy, mocks, contrasts } = comparison;
  const varies = differsIn.length ? ` · varies: ${differsIn.slice(0, 6).map(visible).join(", ")}` : "";
  const hasIntervals = contrasts.some((each) => each.difference && each.difference.low !== null);
  const scope = hasIntervals ? "95% CIs and p-values hold for all comparisons shown together, for tasks like these." : "The figures describe these tasks only; there are too few for tasks like these.";
  notes.push(el("p", { class: "soft" }, `Baseline: `, el("b", {}, visible(groups[0])), ` · paired by ${pairedBy}${varies}. ${scope}`));
  if (mocks.length) notes.push(el("div", { class: "notice warn" }, el("p", {}, `Mock data. Uses scripted or replayed models (${mocks.map(visible).join(", ")}); draw no conclusions about real models.`)));
  const lost = contrasts.filter((each) => each.metric === contrasts[0].metric && each.errors[0] + each.errors[1]);
  if (lost.length) notes.push(el("div", { class: "notice" }, el("p", {}, "Items that ended in an infrastructure error are excluded."), lost.map(errors)));
  if (contrasts.some((each) => each.notes.some((note) => note.includes("versions"))) && !selection.mixed)
    notes.push(el("div", { class: "notice warn" }, el("p", {}, "Scores from different versions of an evaluator are not compared. "), el("button", { type: "button", class: "compact", onclick: () => { selection.mixed = "true"; changed(); } }, "Compare anyway")));
  return el("div", { class: "stack notes" }, notes);
}

function errors(each) {
  const [before, after] = each.errors;
  const parts = [before ? `${number(before)} of ${visible(each.baseline)}` : "", after ? `${number(after)} of ${visible(each.candidate)}` : ""].filter(Boolean).join(", ");
  const points = each.valueIfErrorsFail === null ? "" : `; counted as failures, the difference in success rate would be ${each.valueIfErrorsFail < 0 ? "−" : "+"}${Math.abs(each.valueIfErrorsFail * 100).toFixed(1)} pp`;
  return el("p", { class: "soft small" }, parts + points);
}

function metricChips() {
  const selected = new Set(comparison.contrasts.map((each) => each.metric));
  const chips = comparison.metrics.map((metric) =>
    el("button", { type: "button", class: "chip", "aria-pressed": String(selected.has(metric)), title: metric, onclick: () => toggle(metric, selected) }, metricTitle(metric)));
  return el("div", { class: "chips metric-chips", role: "group", "aria-label": "Metrics" }, chips);
}

function toggle(metric, selected) {
  const next = comparison.metrics.filter((each) => (each === metric ? !selected.has(each) : selected.has(each)));
  if (!next.length) return;
  selection.metric = next;
  changed();
}

function finding(each) {
  const mark = { higher: "↑", lower: "↓" }[each.finding] || "";
  const kind = each.isBetter === null ? (each.isSignificant ? "s-running" : "s-queued") : each.isBetter ? "s-success" : "s-fail";
  const words = each.isBetter === null ? each.finding : each.isBetter ? "better" : "worse";
  return el("span", { class: `status ${kind}` }, `${words} ${mark}`.trim());
}

function findings() {
  const several = comparison.groups.length > 2;
  const table = new DataTable({
    label: "Differences",
    rowKey: (each) => `${each.metric} ${each.candidate}`,
    open: (each) => lookAt(each.metric, each.candidate),
    columns: [
      { key: "metric", title: "Metric", class: "col-metric", cell: (each) => el("b", { title: each.metric }, metricTitle(each.metric)) },
      { key: "finding", title: "Result", class: "col-finding", cell: finding },
      ...(several ? [{ key: "candidate", title: "Candidate", class: "col-candidate", cell: (each) => el("span", {}, breakable(each.candidate)) }] : []),
      { key: "baseline", title: several ? "Baseline" : visible(comparison.groups[0]), numeric: true, class: "col-mean", cell: (each) => mean(each, each.baseline, each.baselineMean) },
      { key: "value", title: several ? "Mean" : visible(comparison.groups[1] || ""), numeric: true, class: "col-mean", cell: (each) => mean(each, each.candidate, each.candidateMean) },
      { key: "difference", title: "Difference", numeric: true, class: "col-difference", cell: (each) => el("b", {}, each.difference ? behind(each, each.difference.text) : "–") },
      { key: "interval", title: "95% CI", numeric: true, class: "col-interval", cell: (each) => (each.difference ? each.difference.interval : el("span", { class: "soft" }, "not enough data")) },
    ],
  });
  table.show(comparison.contrasts);
  return el("div", { class: "findings" }, table.element);
}

/** A figure as a link to the tasks it is computed from. */
function behind(each, text, title = null) {
  if (!each.pairs) return el("span", { title }, text);
  const at = { at: each.metric, candidate: each.candidate, direction: "all" };
  const open = (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    lookAt(each.metric, each.candidate, "all");
  };
  return el("a", { href: `/compare${query({ ...selection, ...at })}#disagree`, title, onclick: open }, text);
}

function mean(each, group, one) {
  const title = meanTitle(one);
  if (each.pairs) return behind(each, one.text, title);
  // Without pairs, the figure is of all items of the group.
  const [run, items] = selection.by ? [selection.run[0], { factor: [`${selection.by}=${group}`] }] : [group, {}];
  return el("a", { href: itemsAddress(run, items), title }, one.text);
}

function meanTitle(one) {
  const limits = [one.low === null ? "" : `from ${one.low.toPrecision(4)}`, one.high === null ? "" : `to ${one.high.toPrecision(4)}`].filter(Boolean);
  return `${limits.length ? `95% CI ${limits.join(" ")}; ` : ""}${plural(one.tasks, "task")}, ${plural(one.items, "item")}`;
}

// ---- Tasks with different results

function lookAt(metric, candidate, direction = "") {
  Object.assign(detail, { metric, candidate, direction, search: "", offset: 0 });
  byId("at-metric").value = metric;
  byId("at-candidate").value = candidate;
  byId("at-direction").value = direction;
  byId("at-search").value = "";
  remember();
  loadItems();
  byId("disagree").scrollIntoView({ behavior: "smooth", block: "start" });
}

/** Store what is shown in the URL, so that reload, Back, and sharing keep it. */
function remember() {
  const { metric: at, candidate, direction, search, offset } = detail;
  history.replaceState(null, "", urlOf(`/compare${query({ ...selection, at, candidate, direction, search, offset: offset || "" })}`));
}

function disagreements(metrics, candidates) {
  const metric = el("select", { id: "at-metric", "aria-label": "Metric" }, metrics.map((each) => el("option", { value: each, selected: each === detail.metric }, metricTitle(each))));
  const candidate = el("select", { id: "at-candidate", "aria-label": "Candidate", hidden: candidates.length < 2 }, candidates.map((each) => el("option", { value: each, selected: each === detail.candidate }, visible(each))));
  const direction = el("select", { id: "at-direction", "aria-label": "Direction" }, [["", "Any direction"], ["higher", "Candidate higher"], ["lower", "Candidate lower"], ["all", "All paired tasks"]].map(([value, words]) => el("option", { value, selected: value === detail.direction }, words)));
  const search = el("input", { type: "search", id: "at-search", placeholder: "Search tasks", "aria-label": "Search tasks", autocomplete: "off", maxlength: 500, value: detail.search });
  for (const [name, control] of [["metric", metric], ["candidate", candidate], ["direction", direction]])
    control.addEventListener("change", () => {
      Object.assign(detail, { [name]: control.value, offset: 0 });
      remember();
      loadItems();
    });
  search.addEventListener("input", debounced(() => {
    Object.assign(detail, { search: search.value.trim(), offset: 0 });
    remember();
    loadItems();
  }, 200));
  const section = el("section", { id: "disagree", "aria-labelledby": "disagree-title" }, el("h2", { id: "disagree-title" }, "Tasks behind the figures"), el("div", { class: "tools" }, metric, candidate, direction, search), el("div", { id: "items" }, el("p", { class: "loading" }, "Loading…")));
  queueMicrotask(loadItems);
  return section;
}

let latestItemsRequest = 0;
async function loadItems() {
  const request = ++latestItemsRequest;
  const box = byId("items");
  if (!box || !detail.metric) return;
  try {
    const response = await api.get(`/api/compare/items${query({ run: selection.run, by: selection.by, against: selection.against, pair: selection.pair, ...detail, limit: SIZE })}`);
    if (request === latestItemsRequest) box.replaceChildren(...itemTable(response));
  } catch (error) {
    if (request === latestItemsRequest) box.replaceChildren(el("div", { class: "notice bad", role: "alert" }, el("p", {}, visible(error.message)), el("p", { class: "soft" }, visible(error.remedy || ""))));
  }
}

function itemTable(response) {
  if (!response.total) return [el("div", { class: "empty" }, el("h3", {}, detail.search || detail.direction ? "No matching tasks" : "No differences"), el("p", {}, detail.search || detail.direction ? "Change or clear the filters." : "All paired tasks have equal results, or no tasks are paired."))];
  const table = new DataTable({
    label: "Tasks with different results",
    rowKey: (one) => `${one.task} ${one.baselineItems[0]?.itemId}`,
    columns: [
      { key: "task", title: "Task", class: "col-task", cell: (one) => el("span", { class: "task", title: visible(one.task) }, visible(one.task)) },
      { key: "before", title: visible(comparison.groups[0]), numeric: true, class: "col-before", cell: (one) => sides(one.baselineItems, one.baselineText) },
      { key: "after", title: visible(response.candidate), numeric: true, class: "col-after", cell: (one) => sides(one.candidateItems, one.candidateText) },
      { key: "difference", title: "Difference", numeric: true, class: "col-by", cell: (one) => el("b", {}, one.differenceText) },
      { key: "actions", title: "", class: "actions-cell", cell: compareLink },
    ],
  });
  table.show(response.items);
  const last = response.offset + response.items.length;
  const turn = (by) => () => {
    detail.offset = Math.max(0, detail.offset + by);
    remember();
    loadItems();
  };
  const pager = el("nav", { class: "pager", "aria-label": "Pages", hidden: response.total <= SIZE },
    el("span", { class: "figures" }, `${number(response.offset + 1)} – ${number(last)} of ${number(response.total)}`),
    el("span", { class: "actions" }, el("button", { type: "button", class: "compact", disabled: !response.offset, onclick: turn(-SIZE) }, "Previous"), el("button", { type: "button", class: "compact", disabled: last >= response.total, onclick: turn(SIZE) }, "Next")));
  return [table.element, pager];
}

function sides(items, text) {
  const first = items[0];
  const link = first?.sessionId ? el("a", { href: `/sessions/${encodeURIComponent(first.sessionId)}` }, text) : text;
  return el("span", {}, link, items.length > 1 ? el("span", { class: "soft small" }, ` ×${items.length}`) : null);
}

function compareLink(one) {
  const [left, right] = [one.baselineItems, one.candidateItems].map((items) => items.find((item) => item.sessionId)?.sessionId);
  if (!left || !right || left === right) return "";
  return el("a", { class: "button quiet compact", href: `/compare/sessions${query({ left, right })}`, "aria-label": `Compare sessions: ${visible(one.task).slice(0, 80)}` }, "Compare");
}

byId("share").addEventListener("click", ({ currentTarget }) => copyLink(currentTarget));

drawChooser();
load();
