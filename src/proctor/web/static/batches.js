// The list of runs: one page from the API, updated over the live channel.

import { api, attempt, badge, byId, confirmed, DataTable, debounced, el, format, go, ProgressBar, query, toast, urlOf, watch } from "./app.js";
import { announce } from "./notify.js";
import { deleteRun, doneWords } from "./run_actions.js";
import { breakable } from "./texts.js";

const SIZE = 50;
const FORMATS = { json: "JSON", ndjson: "NDJSON", csv: "CSV", parquet: "Parquet" };
const address = new URLSearchParams(location.search);
const filters = {
  search: address.get("search") || "",
  status: address.get("status") || "",
  job: address.get("job") || "",
  offset: Number(address.get("offset")) || 0,
};
const statuses = new Map();
/** Selected runs, by ID. */
const selected = new Map();
let latestRequest = 0;
let shownRequest = 0;

const table = new DataTable({
  label: "Runs",
  rowKey: (run) => run.runId,
  open: (run) => go(`/runs/${encodeURIComponent(run.runId)}`),
  columns: [
    { key: "select", title: el("span", { role: "img", "aria-label": "Select" }, "✓"), class: "col-select", cell: selectCell },
    { key: "run", title: "Run", class: "col-name", cell: nameCell },
    { key: "status", title: "Status", class: "col-status", cell: statusCell },
    { key: "progress", title: "Progress", class: "col-progress", cell: progressCell },
    { key: "rate", title: "Success", numeric: true, class: "col-rate", cell: rateCell },
    { key: "cost", title: "Cost", numeric: true, class: "col-cost", cell: costCell },
    { key: "job", title: "Job type", class: "col-job", cell: (run) => el("span", { class: "tag job" }, run.job) },
    { key: "created", title: "Created", class: "col-created", cell: (run) => el("time", { datetime: run.createdAt, title: format.moment(run.createdAt) }, format.ago(run.createdAt)) },
    { key: "actions", title: "", class: "actions-cell", cell: actionsCell },
  ],
});

function nameCell(run) {
  const link = el("a", { href: `/runs/${encodeURIComponent(run.runId)}` }, breakable(run.runId));
  return el("div", { class: "run-name" }, link, planOf(run));
}

/** The plan's path. CSS truncates the folders of a long path, not the file name. */
function planOf({ planPath }) {
  if (!planPath) return null;
  if (planPath.includes("/serve/plans/")) return el("span", { class: "soft", title: planPath }, "entered in browser");
  const end = planPath.lastIndexOf("/") + 1;
  return el("span", { class: "soft plan-path", title: planPath }, el("span", {}, planPath.slice(0, end)), el("span", {}, planPath.slice(end)));
}

function selectCell(run) {
  if (selected.has(run.runId)) selected.set(run.runId, run);
  const choose = ({ target }) => {
    if (target.checked) selected.set(run.runId, run);
    else selected.delete(run.runId);
    showSelection();
  };
  return el("input", { type: "checkbox", "aria-label": `Select ${run.runId}`, checked: selected.has(run.runId), dataset: { action: "Select" }, onchange: choose });
}

/** The status with its outcome: a completed run may have failed. */
function statusCell(run) {
  const { success = 0, fail = 0, timeout = 0, error = 0 } = run.counts;
  const errors = error - run.abortedCount;
  const parts = [fail + timeout ? `${format.number(fail + timeout)} failed` : "", errors > 0 ? format.plural(errors, "error") : ""].filter(Boolean);
  const shown = badge(run.status, run.reason);
  if (run.status === "completed" && parts.length) shown.className = `status s-${success ? "timeout" : "fail"}`;
  return el("span", { class: "run-status" }, shown, parts.length ? el("span", { class: "soft" }, `, ${parts.join(", ")}`) : null);
}

function progressCell(run) {
  const bar = new ProgressBar();
  bar.setAttribute("aria-label", `Progress of ${run.runId}`);
  bar.update(run.counts);
  return el("div", { class: "progress-cell" }, bar, el("span", { class: "soft small figures" }, doneWords(run)));
}

/** Of checked items. On a phone, where heads are hidden, with its unit. */
function rateCell({ successRate }) {
  if (successRate === null) return el("span", { class: "soft" }, "–");
  return el("span", { title: "Share of checked items that succeeded, infrastructure errors excluded" }, format.share(successRate), el("span", { class: "unit" }, " success"));
}

function costCell(run) {
  const budget = run.budgetUsd === null ? null : el("span", { class: "soft small" }, ` of ${format.money(run.budgetUsd)}`);
  return el("span", {}, `${run.costIsLowerBound ? "≥ " : ""}${format.money(run.costUsd)}`, budget);
}

function actionsCell(run) {
  return el("button", { type: "button", class: "quiet compact more", "aria-label": `Actions of ${run.runId}`, "aria-haspopup": "true", dataset: { action: "More" }, onclick: ({ currentTarget }) => openMenu(run, currentTarget) }, "⋯");
}

const rowMenu = el("div", { class: "menu popup", popover: "auto", "aria-label": "Actions" });
document.body.append(rowMenu);

/** One menu for all rows, which are drawn anew with each update. */
function openMenu(run, button) {
  const id = encodeURIComponent(run.runId);
  const closing = { onclick: () => rowMenu.hidePopover() };
  const link = (name, href, more = {}) => el("a", { class: "menu-item", href, "aria-label": `${name} ${run.runId}`, ...closing, ...more }, name);
  const act = (name, action, needs) => el("button", { type: "button", class: "menu-item", "aria-label": `${name} ${run.runId}`, dataset: { needs }, onclick: () => (rowMenu.hidePopover(), action(run, button)) }, name);
  rowMenu.replaceChildren(
    link("View", `/runs/${id}`),
    link("Report", `/api/runs/${id}/report?format=html`, { target: "_blank", rel: "noopener" }),
    link("Compare", `/compare?run=${id}`),
    link("Evaluate", `/evaluations/new?run=${id}`, { dataset: { needs: "run" } }),
    ...Object.entries(FORMATS).map(([form, title]) => link(`Export ${title}`, `/api/runs/${id}/export?format=${form}`, { download: "" })),
    run.status === "running" ? act("Abort", abort, "run") : act("Delete", remove, "admin"),
  );
  rowMenu.showPopover();
  const { bottom, right, top } = button.getBoundingClientRect();
  const below = bottom + rowMenu.offsetHeight + 8 < innerHeight;
  rowMenu.style.top = `${Math.max(8, below ? bottom + 4 : top - rowMenu.offsetHeight - 4)}px`;
  rowMenu.style.left = `${Math.max(8, right - rowMenu.offsetWidth)}px`;
  rowMenu.firstChild.focus();
}

/** What can be done with the selected runs. */
function showSelection() {
  const ids = [...selected.keys()];
  byId("selection").hidden = !ids.length;
  byId("selected-count").textContent = `${format.plural(ids.length, "run")} selected`;
  byId("compare-selected").href = urlOf(`/compare${query({ run: ids })}`);
  byId("evaluate-selected").href = urlOf(`/evaluations/new${query({ run: ids })}`);
}

function clearSelection() {
  selected.clear();
  for (const box of document.querySelectorAll("#list .col-select input")) box.checked = false;
  showSelection();
}

async function deleteSelected({ currentTarget }) {
  const runs = [...selected.values()];
  const items = runs.reduce((sum, run) => sum + run.itemCount, 0);
  const text = [`${format.plural(items, "item")} with all recorded data, worktrees, and session branches.`, "This cannot be undone."];
  if (!await confirmed({ title: `Delete ${format.plural(runs.length, "run")}?`, text, action: "Delete" })) return;
  for (const { runId } of runs) {
    // The first that cannot be deleted, such as one that is running, says why; the others stay selected.
    if (!await attempt(currentTarget, () => api.delete(`/api/runs/${encodeURIComponent(runId)}`))) break;
    selected.delete(runId);
  }
  showSelection();
  await load();
}

async function abort(run, button) {
  const agreed = await confirmed({
    title: `Abort ${run.runId}?`,
    text: ["Running items stop within seconds; queued items do not start.", "Finished items are saved. You can resume the run later."],
    action: "Abort",
  });
  if (!agreed) return;
  const done = await attempt(button, () => api.post(`/api/runs/${encodeURIComponent(run.runId)}/abort`));
  if (done) toast(`Stopping ${run.runId}`);
}

async function remove(run, button) {
  if (await deleteRun(run, button)) await load();
}

async function load() {
  const request = ++latestRequest;
  let response;
  try {
    response = await api.get(`/api/runs${query({ ...filters, limit: SIZE })}`);
  } catch (error) {
    if (request !== latestRequest) return;
    shownRequest = latestRequest;
    byId("list").replaceChildren(errorView(error));
    byId("pager").hidden = true;
    return;
  }
  // Ignore a response that arrives after a newer one.
  if (request !== latestRequest) return;
  if (!response.runs.length && filters.offset) {
    filters.offset = Math.max(0, Math.floor((response.total - 1) / SIZE) * SIZE);
    await load();
    return;
  }
  show(response);
}

function show(response) {
  shownRequest = latestRequest;
  for (const run of response.runs) statuses.set(run.runId, run.status);
  byId("tools").hidden = !response.all;
  const jobs = byId("job");
  for (const job of response.jobs) if (![...jobs.options].some((option) => option.value === job)) jobs.append(el("option", {}, job));
  jobs.value = filters.job;
  const list = byId("list");
  if (response.runs.length) {
    table.show(response.runs);
    if (list.firstElementChild !== table.element) list.replaceChildren(table.element);
  } else list.replaceChildren(response.all ? noMatches() : emptyState());
  const last = filters.offset + response.runs.length;
  byId("pager").hidden = response.total <= SIZE;
  byId("range").textContent = `${format.number(filters.offset + 1)} – ${format.number(last)} of ${format.number(response.total)}`;
  byId("newer").disabled = !filters.offset;
  byId("older").disabled = last >= response.total;
}

function emptyState() {
  return el(
    "div",
    { class: "empty" },
    el("h2", {}, "No batches yet"),
    el("p", {}, "A batch is one execution of a plan: many repositories and prompts, many models on one task, all variations of a scenario, or every client × every therapist."),
    el("p", {}, "Start with an example, which needs no API key and no network, or use the command line:"),
    el("pre", {}, "proctor batch plan.yaml"),
    el("a", { class: "button primary", href: "/new", dataset: { needs: "run" } }, "Open example"),
  );
}

function noMatches() {
  const clear = el("button", { type: "button", onclick: clearFilters }, "Clear filters");
  return el("div", { class: "empty" }, el("h2", {}, "No matching runs"), el("p", {}, "Change or clear the filters."), clear);
}

function errorView(error) {
  const retry = el("button", { type: "button", onclick: load }, "Retry");
  return el("div", { class: "empty", role: "alert" }, el("h2", {}, error.message), el("p", {}, error.remedy), retry);
}

function clearFilters() {
  Object.assign(filters, { search: "", status: "", job: "", offset: 0 });
  fillTools();
  changed();
}

function fillTools() {
  for (const name of ["search", "status", "job"]) byId(name).value = filters[name];
}

function changed() {
  history.replaceState(null, "", urlOf(`/${query({ ...filters, offset: filters.offset || "" })}`));
  load();
}

const filter = (name) => () => {
  filters[name] = byId(name).value.trim();
  filters.offset = 0;
  changed();
};
byId("search").addEventListener("input", debounced(filter("search"), 200));
byId("status").addEventListener("change", filter("status"));
byId("job").addEventListener("change", filter("job"));
const turn = (by) => () => {
  filters.offset = Math.max(0, filters.offset + by);
  changed();
};
byId("newer").addEventListener("click", turn(-SIZE));
byId("older").addEventListener("click", turn(SIZE));

const reload = debounced(load, 300);

function live({ changed: runs, removed }, { full }) {
  // The full state has no line for a run that ended after the first response.
  let isNew = full && [...statuses].some(([id, status]) => status === "running" && !runs.some((run) => run.runId === id));
  for (const run of runs) {
    const before = statuses.get(run.runId);
    statuses.set(run.runId, run.status);
    if (before === "running" && run.status !== "running") announce(run);
    if (!table.update(run) && before === undefined && !full) isNew = true;
    // A row that no longer matches the filter is removed by the reload.
    if (filters.status && before && before !== run.status) isNew = true;
  }
  // A pending response may be older than this update.
  if (runs.length && shownRequest !== latestRequest) isNew = true;
  if (isNew || removed.some((id) => table.rows.has(id))) reload();
}

byId("delete-selected").addEventListener("click", deleteSelected);
byId("clear-selected").addEventListener("click", clearSelection);
fillTools();
load().then(() => watch("runs", "", live));
setInterval(() => {
  for (const time of document.querySelectorAll("#list time")) time.textContent = format.ago(time.dateTime);
}, 20_000);
