// The list of evaluations, updated over the live channel, and the agreement of judges with human labels.

import { api, attempt, byId, confirmed, DataTable, debounced, el, format, go, ProgressBar, query, toast, urlOf, watch } from "./app.js";
import { driftCards } from "./drift.js";
import { judgeCards, shortName } from "./judges.js";
import { Tabs } from "./tabs.js";
import { visible } from "./texts.js";

const { number, money, plural } = format;
const SIZE = 50;
const evaluationJobs = new Set(byId("list").dataset.evaluationJobs.split(" "));
const address = new URLSearchParams(location.search);
const filters = { search: address.get("search") || "", offset: Number(address.get("offset")) || 0 };
const KINDS = { COMPLETED: "success", COMPLETED_WITH_ERRORS: "timeout", IN_PROGRESS: "running", PENDING: "queued", STOPPING: "timeout", STOPPED: "halted", FAILED: "fail" };
let latestRequest = 0;
let hasActive = false;

// The state of an evaluation as a colored word.
const state = (job) => el("span", { class: `status s-${KINDS[job.state] || "queued"}`, title: visible(job.details.join(" ")) || null }, job.state.toLowerCase().replaceAll("_", " "));
const isActive = (job) => ["PENDING", "IN_PROGRESS", "STOPPING"].includes(job.state);
const href = (job) => `/evaluations/${encodeURIComponent(job.id)}`;

const table = new DataTable({
  label: "Evaluations",
  rowKey: (job) => job.id,
  open: (job) => go(href(job)),
  columns: [
    { key: "name", title: "Evaluation", class: "col-name", cell: (job) => el("div", { class: "run-name" }, el("a", { href: href(job) }, visible(job.name)), el("span", { class: "soft small" }, visible(job.id), job.isOnline ? " · online" : "")) },
    { key: "state", title: "Status", class: "col-status", cell: state },
    { key: "progress", title: "Progress", class: "col-progress", cell: progress },
    { key: "averages", title: "Averages", class: "col-averages", cell: averages },
    { key: "cost", title: "Cost", numeric: true, class: "col-cost", cell: (job) => money(job.costUsd) },
    { key: "created", title: "Created", class: "col-created", cell: (job) => el("time", { datetime: job.createdAt, title: format.moment(job.createdAt) }, format.ago(job.createdAt)) },
    { key: "actions", title: "", class: "actions-cell", cell: actions },
  ],
});

function progress(job) {
  const bar = new ProgressBar();
  bar.setAttribute("aria-label", `Progress of ${job.id}`);
  bar.update(job.counts);
  return el("div", { class: "progress-cell" }, bar, el("div", { class: "line" }, el("span", {}, plural(job.sessions, "session")), el("span", {}, `${number(job.finishedCount)} of ${number(job.itemCount)}`)));
}

function averages(job) {
  const tags = job.averages.slice(0, 4).map((one) =>
    el("span", { class: "average", title: visible(one.evaluator) }, el("span", { class: "soft" }, shortName(one.evaluator), one.dimension ? ` · ${visible(one.dimension)}` : ""), el("b", { class: "figures" }, one.average.value === null ? mostFrequent(one) : one.average.value.toFixed(2)), one.failed ? el("span", { class: "problem small" }, `${number(one.failed)} failed`) : null));
  const hidden = job.averages.length - 4;
  return el("div", { class: "averages" }, tags, hidden > 0 ? el("span", { class: "soft small" }, `and ${hidden} more`) : null);
}

const mostFrequent = (one) => visible(Object.keys(one.labels)[0] || "–");

function actions(job) {
  const button = (name, action, needs) => el("button", { type: "button", class: "quiet compact", "aria-label": `${name} ${job.id}`, dataset: { action: name, needs }, onclick: (event) => action(job, event.currentTarget) }, name);
  return isActive(job) ? button("Stop", stop, "run") : button("Delete", remove, "admin");
}

async function stop(job, button) {
  const agreed = await confirmed({ title: `Stop ${visible(job.name)}?`, text: ["Finished results are saved; the rest is not evaluated.", "You can resume the evaluation later."], action: "Stop" });
  if (agreed && (await attempt(button, () => api.post(`/api${href(job)}/stop`)))) await load();
}

async function remove(job, button) {
  const agreed = await confirmed({ title: `Delete ${visible(job.name)}?`, text: "The evaluation is removed from this list. Its results, the sessions, and the labels stay in the store.", action: "Delete" });
  if (!agreed || !(await attempt(button, () => api.delete(`/api${href(job)}`)))) return;
  toast(`Deleted ${job.name}`, "good");
  await load();
}

async function load() {
  const request = ++latestRequest;
  try {
    const response = await api.get(`/api/evaluations${query({ ...filters, limit: SIZE })}`);
    if (request === latestRequest) show(response);
  } catch (error) {
    if (request === latestRequest) byId("list").replaceChildren(el("div", { class: "empty", role: "alert" }, el("h2", {}, visible(error.message)), el("p", {}, visible(error.remedy || "")), el("button", { type: "button", onclick: load }, "Retry")));
  }
}

function show(response) {
  hasActive = response.evaluations.some(isActive);
  byId("tools").hidden = !response.all;
  byId("jobs-count").textContent = response.all ? number(response.all) : "";
  if (response.evaluations.length) {
    table.show(response.evaluations);
    if (byId("list").firstElementChild !== table.element) byId("list").replaceChildren(table.element);
  } else byId("list").replaceChildren(response.all ? el("div", { class: "empty" }, el("h2", {}, "No matching evaluations"), el("p", {}, "Change or clear the search.")) : emptyState());
  const last = filters.offset + response.evaluations.length;
  byId("pager").hidden = response.total <= SIZE;
  byId("range").textContent = `${number(filters.offset + 1)} – ${number(last)} of ${number(response.total)}`;
  byId("newer").disabled = !filters.offset;
  byId("older").disabled = last >= response.total;
}

const emptyState = () =>
  el("div", { class: "empty" }, el("h2", {}, "No evaluations yet"), el("p", {}, "An evaluation scores recorded sessions from runs, received traces, or files. Evaluators are models or code."), el("a", { class: "button primary", href: "/evaluations/new" }, "Evaluate sessions"));

function changed() {
  history.replaceState(history.state, "", urlOf(`/evaluations${query({ ...filters, offset: filters.offset || "" })}${location.hash}`));
  load();
}

byId("search").value = filters.search;
byId("search").addEventListener("input", debounced(() => {
  Object.assign(filters, { search: byId("search").value.trim(), offset: 0 });
  changed();
}, 200));
for (const [name, by] of [["newer", -SIZE], ["older", SIZE]])
  byId(name).addEventListener("click", () => {
    filters.offset = Math.max(0, filters.offset + by);
    changed();
  });

const loaded = new Set();
/** Load the content of a tab once: `request` gives the entries, `cards` shows them. */
async function showOnce(name, request, cards) {
  if (loaded.has(name)) return;
  loaded.add(name);
  try {
    const entries = await request();
    byId(name).replaceChildren(cards(entries));
    byId(`${name}-count`).textContent = entries.length ? number(entries.length) : "";
  } catch (error) {
    loaded.delete(name);
    byId(name).replaceChildren(el("div", { class: "notice bad", role: "alert" }, visible(error.message)));
  }
}

const TABS = {
  judges: () => showOnce("judges", async () => (await api.get("/api/judges")).judges, judgeCards),
  drift: () => showOnce("drift", async () => (await api.get("/api/drift")).lines, driftCards),
};
const tabs = new Tabs(byId("tabs"), (name) => TABS[name]?.());
tabs.open(location.hash.slice(1) || "jobs");
const reload = debounced(load, 400);
load().then(() => watch("runs", "", ({ changed: runs, removed }, { full }) => {
  // An active one may have ended between the first response and the first live update.
  if (full ? hasActive : runs.some((run) => evaluationJobs.has(run.job)) || removed.some((id) => table.rows.has(id))) reload();
}));
setInterval(() => {
  for (const time of document.querySelectorAll("#list time")) time.textContent = format.ago(time.dateTime);
}, 20_000);
