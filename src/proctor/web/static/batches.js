// The list of runs: a page of it from the store, then kept up to date by what the server tells.

import { api, attempt, badge, byId, confirmed, DataTable, debounced, el, format, ProgressBar, query, tally, toast, watch } from "./app.js";
import { announce } from "./notify.js";

const SIZE = 50;
const address = new URLSearchParams(location.search);
const wanted = {
  search: address.get("search") || "",
  status: address.get("status") || "",
  job: address.get("job") || "",
  offset: Number(address.get("offset")) || 0,
};
const statuses = new Map();
let asked = 0;
let shown = 0;

const table = new DataTable({
  label: "Runs",
  rowKey: (run) => run.runId,
  open: (run) => location.assign(`/runs/${encodeURIComponent(run.runId)}`),
  columns: [
    { key: "run", title: "Run", class: "col-name", cell: nameCell },
    { key: "status", title: "Status", class: "col-status", cell: (run) => badge(run.status, run.reason) },
    { key: "progress", title: "Progress", class: "col-progress", cell: progressCell },
    { key: "items", title: "Items", numeric: true, class: "col-items", cell: (run) => format.number(run.itemCount) },
    { key: "cost", title: "Cost", numeric: true, class: "col-cost", cell: costCell },
    { key: "job", title: "Job", class: "col-job", cell: (run) => el("span", { class: "tag job" }, run.job) },
    { key: "created", title: "Created", class: "col-created", cell: (run) => el("time", { datetime: run.createdAt, title: format.moment(run.createdAt) }, format.ago(run.createdAt)) },
    { key: "actions", title: "", class: "actions-cell", cell: actionsCell },
  ],
});

function nameCell(run) {
  const link = el("a", { href: `/runs/${encodeURIComponent(run.runId)}` }, run.runId);
  return el("div", { class: "run-name" }, link, planOf(run));
}

/** Where the plan is: of a long path, the folders are cut and the file stays. */
function planOf({ planPath }) {
  if (!planPath) return null;
  if (planPath.includes("/serve/plans/")) return el("span", { class: "soft", title: planPath }, "typed in here");
  const end = planPath.lastIndexOf("/") + 1;
  return el("span", { class: "soft plan-path", title: planPath }, el("span", {}, planPath.slice(0, end)), el("span", {}, planPath.slice(end)));
}

function progressCell(run) {
  const bar = new ProgressBar();
  bar.setAttribute("aria-label", `Progress of ${run.runId}`);
  bar.update(run.counts);
  const done = el("span", {}, `${format.number(run.finishedCount)} of ${format.number(run.itemCount)}`);
  return el("div", { class: "progress-cell" }, bar, el("div", { class: "line" }, done, tally(run.counts)));
}

function costCell(run) {
  const budget = run.budgetUsd === null ? null : el("span", { class: "soft small" }, ` of ${format.money(run.budgetUsd)}`);
  return el("span", {}, format.money(run.costUsd), budget);
}

function actionsCell(run) {
  const button = (name, action) =>
    el("button", { type: "button", class: "quiet compact", "aria-label": `${name} ${run.runId}`, dataset: { action: name }, onclick: (event) => action(run, event.currentTarget) }, name);
  const view = el("a", { class: "button quiet compact", href: `/runs/${encodeURIComponent(run.runId)}`, "aria-label": `View ${run.runId}`, dataset: { action: "View" } }, "View");
  return el("span", {}, view, run.status === "running" ? button("Abort", abort) : button("Delete", remove));
}

async function abort(run, button) {
  const agreed = await confirmed({
    title: `Abort ${run.runId}?`,
    text: ["Items that are running stop within seconds, and those in the queue never start.", "What has finished is kept. The run can be resumed later."],
    action: "Abort",
  });
  if (!agreed) return;
  const done = await attempt(button, () => api.post(`/api/runs/${encodeURIComponent(run.runId)}/abort`));
  if (done) toast(`${run.runId} is being stopped`);
}

async function remove(run, button) {
  const agreed = await confirmed({
    title: `Delete ${run.runId}?`,
    text: [`${format.plural(run.itemCount, "item")} with everything recorded about them, their work trees and session branches.`, "This cannot be undone."],
    action: "Delete",
  });
  if (!agreed) return;
  const done = await attempt(button, () => api.delete(`/api/runs/${encodeURIComponent(run.runId)}`));
  if (!done) return;
  toast(`${run.runId} is deleted`, "good", done.kept.join("; "));
  await load();
}

async function load() {
  const mine = ++asked;
  let found;
  try {
    found = await api.get(`/api/runs${query({ ...wanted, limit: SIZE })}`);
  } catch (error) {
    if (mine !== asked) return;
    shown = asked;
    byId("list").replaceChildren(wrong(error));
    byId("pager").hidden = true;
    return;
  }
  // A slow answer must not replace a newer one.
  if (mine !== asked) return;
  if (!found.runs.length && wanted.offset) {
    wanted.offset = Math.max(0, Math.floor((found.total - 1) / SIZE) * SIZE);
    await load();
    return;
  }
  show(found);
}

function show(found) {
  shown = asked;
  for (const run of found.runs) statuses.set(run.runId, run.status);
  byId("tools").hidden = !found.all;
  const jobs = byId("job");
  for (const job of found.jobs) if (![...jobs.options].some((option) => option.value === job)) jobs.append(el("option", {}, job));
  jobs.value = wanted.job;
  const list = byId("list");
  if (found.runs.length) {
    table.show(found.runs);
    if (list.firstElementChild !== table.element) list.replaceChildren(table.element);
  } else list.replaceChildren(found.all ? nothingLeft() : nothingYet());
  const last = wanted.offset + found.runs.length;
  byId("pager").hidden = found.total <= SIZE;
  byId("range").textContent = `${format.number(wanted.offset + 1)} – ${format.number(last)} of ${format.number(found.total)}`;
  byId("newer").disabled = !wanted.offset;
  byId("older").disabled = last >= found.total;
}

function nothingYet() {
  return el(
    "div",
    { class: "empty" },
    el("h2", {}, "No batches yet"),
    el("p", {}, "A batch is a plan carried out: many repositories and prompts, many models on one task, every variation of a scenario, or every client with every therapist."),
    el("p", {}, "Begin with an example, which needs no key and no network, or on the command line:"),
    el("pre", {}, "proctor batch plan.yaml"),
    el("a", { class: "button primary", href: "/new" }, "Begin with an example"),
  );
}

function nothingLeft() {
  const clear = el("button", { type: "button", onclick: clearFilters }, "Show all runs");
  return el("div", { class: "empty" }, el("h2", {}, "Nothing matches"), el("p", {}, "No run has what you are looking for."), clear);
}

function wrong(error) {
  const again = el("button", { type: "button", onclick: load }, "Try again");
  return el("div", { class: "empty", role: "alert" }, el("h2", {}, error.message), el("p", {}, error.remedy), again);
}

function clearFilters() {
  Object.assign(wanted, { search: "", status: "", job: "", offset: 0 });
  fillTools();
  changed();
}

function fillTools() {
  for (const name of ["search", "status", "job"]) byId(name).value = wanted[name];
}

function changed() {
  history.replaceState(null, "", `/${query({ ...wanted, offset: wanted.offset || "" })}`);
  load();
}

const filter = (name) => () => {
  wanted[name] = byId(name).value.trim();
  wanted.offset = 0;
  changed();
};
byId("search").addEventListener("input", debounced(filter("search"), 200));
byId("status").addEventListener("change", filter("status"));
byId("job").addEventListener("change", filter("job"));
const turn = (by) => () => {
  wanted.offset = Math.max(0, wanted.offset + by);
  changed();
};
byId("newer").addEventListener("click", turn(-SIZE));
byId("older").addEventListener("click", turn(SIZE));

const reload = debounced(load, 300);

function live({ changed: runs, removed }, { full }) {
  let isNew = false;
  for (const run of runs) {
    const before = statuses.get(run.runId);
    statuses.set(run.runId, run.status);
    if (before === "running" && run.status !== "running") announce(run);
    if (!table.update(run) && before === undefined && !full) isNew = true;
    // What no longer fits the filter goes with the next look at the list.
    if (wanted.status && before && before !== run.status) isNew = true;
  }
  // An answer that is on its way may be older than this.
  if (runs.length && shown !== asked) isNew = true;
  if (isNew || removed.some((id) => table.rows.has(id))) reload();
}

fillTools();
load().then(() => watch("runs", "", live));
setInterval(() => {
  for (const time of document.querySelectorAll("#list time")) time.textContent = format.ago(time.dateTime);
}, 20_000);
