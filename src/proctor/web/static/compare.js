// The Compare page: what is chosen stands in the address, so that a link shows the same.

import { api, attempt, byId, DataTable, debounced, el, format, query, toast } from "./app.js";
import { chartCard } from "./charts.js";
import { gatesSection } from "./gates.js";
import { visible } from "./texts.js";

const { number, plural } = format;
const SIZE = 25;
const address = new URLSearchParams(location.search);
const wanted = {
  run: address.getAll("run"),
  by: address.get("by") || "",
  metric: address.getAll("metric"),
  pair: address.get("pair") || "",
  mixed: address.get("mixed") || "",
  gate: address.getAll("gate"),
};
const looked = { metric: address.get("at") || "", candidate: address.get("candidate") || "", search: "", direction: "", offset: 0 };
const NAMES = { success: "Success", cost: "Cost", time: "Time", tokens: "Tokens" };
const named = (metric) => NAMES[metric] || visible(metric.replace(/^(score|metric):/, "").replace(/^Builtin\./, ""));
/** Whether a gate is about something every run has; others may not have what it is about. */
const isOfAnyRun = (gate) => Object.keys(NAMES).some((name) => gate.trim().startsWith(name));
let asked = 0;
let comparison = null;

// ---- What is compared

function chosenRun(id, place) {
  const isFirst = place === 0 && wanted.run.length > 1;
  const remove = el("button", { type: "button", class: "quiet icon small-icon", "aria-label": `Remove ${id}`, onclick: () => choose(wanted.run.filter((run) => run !== id)) }, "×");
  const first = place > 0 ? el("button", { type: "button", class: "quiet compact", "aria-label": `Hold the others against ${id}`, onclick: () => choose([id, ...wanted.run.filter((run) => run !== id)]) }, "Make baseline") : null;
  return el("li", { class: isFirst ? "is-first" : null }, el("a", { href: `/runs/${encodeURIComponent(id)}` }, visible(id)), isFirst ? el("span", { class: "tag" }, "baseline") : first, remove);
}

function choose(runs) {
  const isOther = runs.length !== 1 || runs[0] !== wanted.run[0];
  Object.assign(wanted, { run: runs, metric: [], mixed: "", gate: wanted.gate.filter(isOfAnyRun) });
  if (isOther) wanted.by = "";
  Object.assign(looked, { metric: "", candidate: "", offset: 0 });
  changed();
}

async function drawChooser() {
  byId("chosen").replaceChildren(...wanted.run.map(chosenRun));
  byId("by-field").hidden = wanted.run.length !== 1;
  byId("pair-field").hidden = !wanted.run.length;
  byId("pair").value = wanted.pair;
  byId("add").placeholder = wanted.run.length ? "Add another run…" : "Choose a run…";
  if (wanted.run.length !== 1) return;
  const [run] = wanted.run;
  let factors = [];
  try {
    ({ factors } = await api.get(`/api/runs/${encodeURIComponent(run)}`));
  } catch {
    // The comparison itself says what is wrong.
  }
  if (wanted.run[0] !== run) return;
  byId("by").replaceChildren(el("option", { value: "" }, "…"), ...factors.map((factor) => el("option", { value: factor }, visible(factor))));
  if (wanted.by && !factors.includes(wanted.by)) byId("by").append(el("option", { value: wanted.by }, visible(wanted.by)));
  byId("by").value = wanted.by;
}

byId("by").addEventListener("change", () => {
  Object.assign(wanted, { by: byId("by").value, metric: [], mixed: "", gate: wanted.gate.filter(isOfAnyRun) });
  Object.assign(looked, { metric: "", candidate: "", offset: 0 });
  changed();
});
byId("pair").addEventListener("change", () => {
  wanted.pair = byId("pair").value;
  changed();
});

// ---- Choosing a run

const field = byId("add");
const found = byId("found");
let pointed = -1;

async function look() {
  try {
    const { runs } = await api.get(`/api/runs${query({ search: field.value.trim(), limit: 12 })}`);
    if (document.activeElement !== field) return;
    const left = runs.filter((run) => !wanted.run.includes(run.runId));
    pointed = -1;
    found.replaceChildren(
      ...left.map((run, place) =>
        el("li", { role: "option", id: `option-${place}`, "aria-selected": "false", dataset: { run: run.runId }, onmousedown: (event) => event.preventDefault(), onclick: () => add(run.runId) },
          el("b", {}, visible(run.runId)), el("span", { class: "soft" }, `${run.job} · ${plural(run.itemCount, "item")} · ${format.ago(run.createdAt)}`)),
      ),
      left.length ? "" : el("li", { class: "soft none" }, "No other run"),
    );
    open(true);
  } catch (error) {
    toast(error.message, "bad", error.remedy);
  }
}

function open(shown) {
  found.hidden = !shown;
  field.setAttribute("aria-expanded", String(shown));
  if (!shown) field.removeAttribute("aria-activedescendant");
}

function add(id) {
  field.value = "";
  open(false);
  choose([...wanted.run, id]);
}

function point(place) {
  const options = [...found.querySelectorAll("[role=option]")];
  if (!options.length) return;
  pointed = (place + options.length) % options.length;
  options.forEach((option, at) => option.setAttribute("aria-selected", String(at === pointed)));
  options[pointed].scrollIntoView({ block: "nearest" });
  field.setAttribute("aria-activedescendant", options[pointed].id);
}

field.addEventListener("input", debounced(look, 150));
field.addEventListener("focus", look);
field.addEventListener("blur", () => open(false));
field.addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown") point(pointed + 1);
  else if (event.key === "ArrowUp") point(pointed - 1);
  else if (event.key === "Enter") found.querySelectorAll("[role=option]")[Math.max(0, pointed)]?.click();
  else if (event.key === "Escape") open(false);
  else return;
  event.preventDefault();
});

// ---- What it comes to

const isEnough = () => wanted.run.length > 1 || (wanted.run.length === 1 && wanted.by);
const asQuery = () => query(wanted);

function changed() {
  history.replaceState(null, "", `/compare${query({ ...wanted, at: looked.metric, candidate: looked.candidate })}`);
  drawChooser();
  load();
}

async function load() {
  const mine = ++asked;
  for (const name of ["share", "report"]) byId(name).hidden = !isEnough();
  if (!isEnough()) {
    byId("result").replaceChildren(begin());
    return;
  }
  byId("report").href = `/api/compare/report${asQuery()}`;
  if (!comparison) byId("result").replaceChildren(el("p", { class: "loading" }, "Comparing…"));
  byId("result").setAttribute("aria-busy", "true");
  try {
    const answer = await api.get(`/api/compare${asQuery()}`);
    if (mine !== asked) return;
    comparison = answer;
    show();
  } catch (error) {
    if (mine !== asked) return;
    comparison = null;
    byId("result").replaceChildren(el("div", { class: "empty", role: "alert" }, el("h2", {}, visible(error.message)), el("p", {}, visible(error.remedy))));
  } finally {
    if (mine === asked) byId("result").removeAttribute("aria-busy");
  }
}

function begin() {
  if (wanted.run.length === 1) return el("div", { class: "empty" }, el("h2", {}, "One run is chosen"), el("p", {}, "Add another run, or choose what divides this one: its models, its agents, or anything else that varies in it."));
  return el("div", { class: "empty" }, el("h2", {}, "What is the difference worth?"), el("p", {}, "Choose two or more runs, or one run and what varies in it. Items that ask the same are paired; each difference comes with its interval, and with what it leaves open."));
}

function show() {
  const metrics = [...new Set(comparison.contrasts.map((each) => each.metric))];
  if (!metrics.includes(looked.metric)) looked.metric = metrics[0] || "";
  const candidates = comparison.groups.slice(1);
  if (!candidates.includes(looked.candidate)) looked.candidate = candidates[0] || "";
  const parts = [notices(), metricChips(), findings(), gatesSection(comparison, { add: addGate, remove: removeGate }), el("section", { "aria-labelledby": "plots-title" }, el("h2", { id: "plots-title" }, "Differences"), el("div", { class: "charts" }, comparison.charts.map((chart) => chartCard({ ...chart, caption: named(chart.caption) })))), disagreements(metrics, candidates)];
  byId("result").replaceChildren(el("div", { class: "stack result" }, parts.filter(Boolean)));
}

function addGate(text, button) {
  const before = wanted.gate;
  // Asked for first: one that cannot be read is told, and changes nothing.
  return attempt(button, async () => {
    const answer = await api.get(`/api/compare${query({ ...wanted, gate: [...before, text] })}`);
    if (wanted.gate !== before) return;
    wanted.gate = [...before, text];
    comparison = answer;
    remember();
    byId("report").href = `/api/compare/report${asQuery()}`;
    show();
    byId("gate").focus();
  });
}

function removeGate(text) {
  wanted.gate = wanted.gate.filter((gate) => gate.trim() !== text);
  changed();
}

function notices() {
  const said = [];
  const { groups, varied, pairedBy, standIns, contrasts } = comparison;
  const differs = varied.length ? `; what differs: ${varied.slice(0, 6).map(visible).join(", ")}` : "";
  said.push(el("p", { class: "soft" }, `Held against `, el("b", {}, visible(groups[0])), `, paired by ${pairedBy}${differs}. 95 % intervals; all comparisons shown are corrected together.`));
  if (standIns.length) said.push(el("div", { class: "notice warn" }, el("p", {}, `${standIns.map(visible).join(", ")} only rehearse: these figures say nothing about real ones.`)));
  const lost = contrasts.filter((each) => each.metric === contrasts[0].metric && each.errors[0] + each.errors[1]);
  if (lost.length) said.push(el("div", { class: "notice" }, el("p", {}, "Items that ended in an error of ours are left out."), lost.map(errors)));
  if (contrasts.some((each) => each.remarks.some((remark) => remark.includes("versions"))) && !wanted.mixed)
    said.push(el("div", { class: "notice warn" }, el("p", {}, "Some scores are of different versions of an evaluator, and not compared. "), el("button", { type: "button", class: "compact", onclick: () => { wanted.mixed = "true"; changed(); } }, "Compare them all the same")));
  return el("div", { class: "stack notes" }, said);
}

function errors(each) {
  const [before, after] = each.errors;
  const parts = [before ? `${number(before)} of ${visible(each.baseline)}` : "", after ? `${number(after)} of ${visible(each.candidate)}` : ""].filter(Boolean).join(", ");
  const points = each.ifErrorsFailed === null ? "" : `; counted as failures, success would differ by ${each.ifErrorsFailed < 0 ? "−" : "+"}${Math.abs(each.ifErrorsFailed * 100).toFixed(1)} points`;
  return el("p", { class: "soft small" }, parts + points);
}

function metricChips() {
  const shown = new Set(comparison.contrasts.map((each) => each.metric));
  const chips = comparison.metrics.map((metric) =>
    el("button", { type: "button", class: "chip", "aria-pressed": String(shown.has(metric)), title: metric, onclick: () => toggle(metric, shown) }, named(metric)));
  return el("div", { class: "chips metric-chips", role: "group", "aria-label": "Metrics" }, chips);
}

function toggle(metric, shown) {
  const next = comparison.metrics.filter((each) => (each === metric ? !shown.has(each) : shown.has(each)));
  if (!next.length) return;
  wanted.metric = next;
  changed();
}

function finding(each) {
  const mark = { higher: "↑", lower: "↓" }[each.finding] || "";
  const kind = each.isBetter === null ? (each.isSignificant ? "s-running" : "s-queued") : each.isBetter ? "s-success" : "s-fail";
  if (each.difference && each.difference.low === 0 && each.difference.high === 0) return el("span", { class: "status s-queued" }, "no difference");
  const words = each.isSignificant ? (each.isBetter === null ? each.finding : each.isBetter ? "better" : "worse") : each.difference && each.difference.low !== null ? "inconclusive" : "cannot be said";
  return el("span", { class: `status ${kind}` }, `${words} ${mark}`.trim());
}

function findings() {
  const several = comparison.groups.length > 2;
  const table = new DataTable({
    label: "Differences",
    rowKey: (each) => `${each.metric} ${each.candidate}`,
    open: (each) => lookAt(each.metric, each.candidate),
    columns: [
      { key: "metric", title: "Metric", class: "col-metric", cell: (each) => el("b", { title: each.metric }, named(each.metric)) },
      ...(several ? [{ key: "candidate", title: "Candidate", class: "col-candidate", cell: (each) => visible(each.candidate) }] : []),
      { key: "baseline", title: several ? "Baseline" : visible(comparison.groups[0]), numeric: true, class: "col-mean", cell: (each) => mean(each.baselineMean) },
      { key: "value", title: several ? "Mean" : visible(comparison.groups[1] || ""), numeric: true, class: "col-mean", cell: (each) => mean(each.candidateMean) },
      { key: "difference", title: "Difference", numeric: true, class: "col-difference", cell: (each) => el("b", {}, each.difference ? each.difference.said : "–") },
      { key: "interval", title: "95 % interval", numeric: true, class: "col-interval", cell: (each) => (each.difference && each.difference.low !== null ? each.difference.interval : el("span", { class: "soft" }, "too few")) },
      { key: "finding", title: "Finding", class: "col-finding", cell: finding },
      { key: "words", title: "In words", class: "col-words", cell: (each) => el("span", {}, visible(each.words), each.unpaired ? el("span", { class: "soft" }, ` ${plural(each.unpaired, "task")} only one of them has.`) : null, each.difference ? each.remarks.map((remark) => el("span", { class: "soft" }, ` ${visible(remark)}.`)) : null) },
    ],
  });
  table.show(comparison.contrasts);
  return el("div", { class: "findings" }, table.element);
}

const mean = (one) => el("span", { title: one.low === null ? `${number(one.tasks)} tasks, ${number(one.items)} items` : `${one.low.toPrecision(4)} to ${one.high.toPrecision(4)}; ${number(one.tasks)} tasks, ${number(one.items)} items` }, one.said);

// ---- Where they disagree

function lookAt(metric, candidate) {
  Object.assign(looked, { metric, candidate, offset: 0 });
  byId("at-metric").value = metric;
  byId("at-candidate").value = candidate;
  remember();
  loadItems();
  byId("disagree").scrollIntoView({ behavior: "smooth", block: "start" });
}

const remember = () => history.replaceState(null, "", `/compare${query({ ...wanted, at: looked.metric, candidate: looked.candidate })}`);

function disagreements(metrics, candidates) {
  const metric = el("select", { id: "at-metric", "aria-label": "Metric" }, metrics.map((each) => el("option", { value: each, selected: each === looked.metric }, named(each))));
  const candidate = el("select", { id: "at-candidate", "aria-label": "Candidate", hidden: candidates.length < 2 }, candidates.map((each) => el("option", { value: each, selected: each === looked.candidate }, visible(each))));
  const direction = el("select", { id: "at-direction", "aria-label": "Direction" }, [["", "Either way"], ["higher", "Candidate higher"], ["lower", "Candidate lower"]].map(([value, words]) => el("option", { value, selected: value === looked.direction }, words)));
  const search = el("input", { type: "search", id: "at-search", placeholder: "Search tasks", "aria-label": "Search tasks", autocomplete: "off", maxlength: 500, value: looked.search });
  for (const [name, control] of [["metric", metric], ["candidate", candidate], ["direction", direction]])
    control.addEventListener("change", () => {
      Object.assign(looked, { [name]: control.value, offset: 0 });
      remember();
      loadItems();
    });
  search.addEventListener("input", debounced(() => {
    Object.assign(looked, { search: search.value.trim(), offset: 0 });
    loadItems();
  }, 200));
  const section = el("section", { id: "disagree", "aria-labelledby": "disagree-title" }, el("h2", { id: "disagree-title" }, "Where they disagree"), el("div", { class: "tools" }, metric, candidate, direction, search), el("div", { id: "items" }, el("p", { class: "loading" }, "Loading…")));
  queueMicrotask(loadItems);
  return section;
}

let itemsAsked = 0;
async function loadItems() {
  const mine = ++itemsAsked;
  const box = byId("items");
  if (!box || !looked.metric) return;
  try {
    const answer = await api.get(`/api/compare/items${query({ run: wanted.run, by: wanted.by, pair: wanted.pair, ...looked, limit: SIZE })}`);
    if (mine === itemsAsked) box.replaceChildren(...itemTable(answer));
  } catch (error) {
    if (mine === itemsAsked) box.replaceChildren(el("div", { class: "notice bad", role: "alert" }, el("p", {}, visible(error.message)), el("p", { class: "soft" }, visible(error.remedy))));
  }
}

function itemTable(answer) {
  if (!answer.total) return [el("div", { class: "empty" }, el("h3", {}, looked.search || looked.direction ? "Nothing fits" : "They agree on every task they share"), el("p", {}, looked.search || looked.direction ? "No task on which they disagree is like that." : "Or they share none: then there is nothing to hold against each other."))];
  const table = new DataTable({
    label: "Tasks on which they disagree",
    rowKey: (one) => `${one.words} ${one.baselineItems[0]?.itemId}`,
    columns: [
      { key: "task", title: "Task", class: "col-task", cell: (one) => el("span", { class: "task", title: visible(one.words) }, visible(one.words)) },
      { key: "before", title: visible(comparison.groups[0]), numeric: true, class: "col-before", cell: (one) => sides(one.baselineItems, one.baselineSaid) },
      { key: "after", title: visible(answer.candidate), numeric: true, class: "col-after", cell: (one) => sides(one.candidateItems, one.candidateSaid) },
      { key: "difference", title: "Difference", numeric: true, class: "col-by", cell: (one) => el("b", {}, one.differenceSaid) },
      { key: "actions", title: "", class: "actions-cell", cell: beside },
    ],
  });
  table.show(answer.items);
  const last = answer.offset + answer.items.length;
  const turn = (by) => () => {
    looked.offset = Math.max(0, looked.offset + by);
    loadItems();
  };
  const pager = el("nav", { class: "pager", "aria-label": "Pages", hidden: answer.total <= SIZE },
    el("span", { class: "figures" }, `${number(answer.offset + 1)} – ${number(last)} of ${number(answer.total)}`),
    el("span", { class: "actions" }, el("button", { type: "button", class: "compact", disabled: !answer.offset, onclick: turn(-SIZE) }, "Previous"), el("button", { type: "button", class: "compact", disabled: last >= answer.total, onclick: turn(SIZE) }, "Next")));
  return [table.element, pager];
}

function sides(items, said) {
  const first = items[0];
  const link = first?.sessionId ? el("a", { href: `/sessions/${encodeURIComponent(first.sessionId)}` }, said) : said;
  return el("span", {}, link, items.length > 1 ? el("span", { class: "soft small" }, ` ×${items.length}`) : null);
}

function beside(one) {
  const [left, right] = [one.baselineItems, one.candidateItems].map((items) => items.find((item) => item.sessionId)?.sessionId);
  if (!left || !right || left === right) return "";
  return el("a", { class: "button quiet compact", href: `/compare/sessions${query({ left, right })}`, "aria-label": `Side by side: ${visible(one.words).slice(0, 80)}` }, "Side by side");
}

byId("share").addEventListener("click", ({ currentTarget }) =>
  attempt(currentTarget, async () => {
    try {
      await navigator.clipboard.writeText(location.href);
      toast("The link is copied.", "good");
    } catch {
      toast("The link is in the address bar.");
    }
  }),
);

drawChooser();
load();
