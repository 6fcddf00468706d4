// The list of evaluation jobs, kept up to date by what the server tells of runs; and how good the judges are.

import { api, attempt, byId, confirmed, DataTable, debounced, el, format, ProgressBar, query, toast, watch } from "./app.js";
import { judgeCards, shortName } from "./judges.js";
import { Tabs } from "./tabs.js";
import { visible } from "./texts.js";

const { number, money, plural } = format;
const SIZE = 50;
const address = new URLSearchParams(location.search);
const wanted = { search: address.get("search") || "", offset: Number(address.get("offset")) || 0 };
const KINDS = { COMPLETED: "success", COMPLETED_WITH_ERRORS: "timeout", IN_PROGRESS: "running", PENDING: "queued", STOPPING: "timeout", STOPPED: "halted", FAILED: "fail" };
let asked = 0;

// A job's state as a coloured word.
const state = (job) => el("span", { class: `status s-${KINDS[job.state] || "queued"}`, title: visible(job.details.join(" ")) || null }, job.state.toLowerCase().replaceAll("_", " "));
const isUnderWay = (job) => ["PENDING", "IN_PROGRESS", "STOPPING"].includes(job.state);
const href = (job) => `/evaluations/${encodeURIComponent(job.id)}`;

const table = new DataTable({
  label: "Evaluations",
  rowKey: (job) => job.id,
  open: (job) => location.assign(href(job)),
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
  const shown = job.averages.slice(0, 4).map((one) =>
    el("span", { class: "average", title: visible(one.evaluator) }, el("span", { class: "soft" }, shortName(one.evaluator), one.dimension ? ` · ${visible(one.dimension)}` : ""), el("b", { class: "figures" }, one.average.value === null ? commonest(one) : one.average.value.toFixed(2)), one.failed ? el("span", { class: "problem small" }, `${number(one.failed)} failed`) : null));
  const left = job.averages.length - 4;
  return el("div", { class: "averages" }, shown, left > 0 ? el("span", { class: "soft small" }, `and ${left} more`) : null);
}

const commonest = (one) => visible(Object.keys(one.labels)[0] || "–");

function actions(job) {
  const button = (name, action) => el("button", { type: "button", class: "quiet compact", "aria-label": `${name} ${job.id}`, dataset: { action: name }, onclick: (event) => action(job, event.currentTarget) }, name);
  return isUnderWay(job) ? button("Stop", stop) : button("Delete", remove);
}

async function stop(job, button) {
  const agreed = await confirmed({ title: `Stop ${visible(job.name)}?`, text: ["What is judged already stays; the rest is left.", "The job can be resumed later."], action: "Stop" });
  if (agreed && (await attempt(button, () => api.post(`/api${href(job)}/stop`)))) await load();
}

async function remove(job, button) {
  const agreed = await confirmed({ title: `Delete ${visible(job.name)}?`, text: "It is taken off the list. Its results stay in the record, and so do the sessions and labels.", action: "Delete" });
  if (!agreed || !(await attempt(button, () => api.delete(`/api${href(job)}`)))) return;
  toast(`${job.name} is deleted`, "good");
  await load();
}

async function load() {
  const mine = ++asked;
  try {
    const found = await api.get(`/api/evaluations${query({ ...wanted, limit: SIZE })}`);
    if (mine === asked) show(found);
  } catch (error) {
    if (mine === asked) byId("list").replaceChildren(el("div", { class: "empty", role: "alert" }, el("h2", {}, visible(error.message)), el("p", {}, visible(error.remedy || "")), el("button", { type: "button", onclick: load }, "Try again")));
  }
}

function show(found) {
  byId("tools").hidden = !found.all;
  byId("jobs-count").textContent = found.all ? number(found.all) : "";
  if (found.evaluations.length) {
    table.show(found.evaluations);
    if (byId("list").firstElementChild !== table.element) byId("list").replaceChildren(table.element);
  } else byId("list").replaceChildren(found.all ? el("div", { class: "empty" }, el("h2", {}, "Nothing matches"), el("p", {}, "No evaluation is called that.")) : nothingYet());
  const last = wanted.offset + found.evaluations.length;
  byId("pager").hidden = found.total <= SIZE;
  byId("range").textContent = `${number(wanted.offset + 1)} – ${number(last)} of ${number(found.total)}`;
  byId("newer").disabled = !wanted.offset;
  byId("older").disabled = last >= found.total;
}

const nothingYet = () =>
  el("div", { class: "empty" }, el("h2", {}, "No evaluations yet"), el("p", {}, "An evaluation judges recorded sessions: those of your runs, those that arrive by telemetry, or those in files, with evaluators that are models or code."), el("a", { class: "button primary", href: "/evaluations/new" }, "Judge some sessions"));

function changed() {
  history.replaceState(history.state, "", `/evaluations${query({ ...wanted, offset: wanted.offset || "" })}${location.hash}`);
  load();
}

byId("search").value = wanted.search;
byId("search").addEventListener("input", debounced(() => {
  Object.assign(wanted, { search: byId("search").value.trim(), offset: 0 });
  changed();
}, 200));
for (const [name, by] of [["newer", -SIZE], ["older", SIZE]])
  byId(name).addEventListener("click", () => {
    wanted.offset = Math.max(0, wanted.offset + by);
    changed();
  });

let hasJudges = false;
async function showJudges() {
  if (hasJudges) return;
  hasJudges = true;
  try {
    const { judges } = await api.get("/api/judges");
    byId("judges").replaceChildren(judgeCards(judges));
    byId("judges-count").textContent = judges.length ? number(judges.length) : "";
  } catch (error) {
    hasJudges = false;
    byId("judges").replaceChildren(el("div", { class: "notice bad", role: "alert" }, visible(error.message)));
  }
}

const tabs = new Tabs(byId("tabs"), (name) => name === "judges" && showJudges());
tabs.open(location.hash.slice(1) || "jobs");
const reload = debounced(load, 400);
load().then(() => watch("runs", "", ({ changed: runs, removed }, { full }) => {
  if (!full && (runs.some((run) => run.job === "evaluation") || removed.some((id) => table.rows.has(id)))) reload();
}));
setInterval(() => {
  for (const time of document.querySelectorAll("#list time")) time.textContent = format.ago(time.dateTime);
}, 20_000);
