// Tasks of files with their results over the newest runs, and datasets of test cases.

import { api, attempt, byId, confirmed, DataTable, debounced, el, format, go, query, remember, remembered } from "./app.js";
import { itemsAddress } from "./charts.js";
import { visible } from "./texts.js";

const PATH_KEY = "proctor-task-path";
const { number, plural } = format;
let results = new Map();
let listed = [];

const known = (task) => results.get(task.id);
const soft = (text) => el("span", { class: "soft" }, text);
const state = (status, good) => (status ? el("span", { class: status === good ? "ready" : "wrong" }, status) : soft("not run"));

function rate(task) {
  const result = known(task);
  if (!result) return soft("no results");
  const judged = result.passed + result.failed;
  const share = judged ? `${Math.round((100 * result.passed) / judged)}%` : "–";
  return el("span", { title: `${plural(result.passed, "success", "successes")} of ${plural(judged, "result")}; ${plural(result.errors, "error")} excluded` }, `${share} of ${number(judged)}`);
}

const taskTable = new DataTable({
  label: "Tasks",
  rowKey: (task) => task.id,
  columns: [
    { key: "task", title: "Task", class: "wide", cell: (task) => el("div", {}, el("b", {}, visible(task.id)), task.title && task.title !== task.id ? el("span", { class: "cell-text soft", title: visible(task.title) }, visible(task.title)) : null) },
    { key: "format", title: "Format", class: "col-listed", cell: (task) => task.format || soft("not listed") },
    { key: "checks", title: "Checks", class: "col-listed", numeric: true, cell: (task) => (task.format ? number(task.checks) : "–") },
    { key: "oracle", title: "Oracle", cell: (task) => state(known(task)?.oracle, "success") },
    { key: "noop", title: "Noop", cell: (task) => state(known(task)?.noop, "fail") },
    { key: "rate", title: "Success", numeric: true, cell: rate },
    { key: "last", title: "Last run", cell: (task) => (known(task) ? el("a", { href: itemsAddress(known(task).lastRun, { factor: [`task=${task.id}`] }) }, visible(known(task).lastRun)) : "–") },
  ],
});

function drawTasks() {
  const search = byId("search").value.trim().toLowerCase();
  const names = new Set(listed.map((task) => task.id));
  const others = [...results.keys()].filter((task) => !names.has(task)).map((task) => ({ id: task, title: "", format: "", checks: 0 }));
  const all = [...listed, ...others].filter((task) => `${task.id} ${task.title}`.toLowerCase().includes(search));
  taskTable.show(all.slice(0, 1000));
  const empty = el("div", { class: "empty" }, el("p", {}, "No tasks yet. List a file or folder of tasks, or run one with proctor bench."));
  byId("tasks").replaceChildren(all.length ? taskTable.element : empty, all.length > 1000 ? el("p", { class: "soft small" }, `${number(all.length - 1000)} more. Use the search to narrow the list.`) : "");
}

async function list(path) {
  const answer = await attempt(byId("list"), () => api.get(`/api/tasks${query({ path })}`));
  if (!answer) return;
  listed = answer.tasks;
  remember(PATH_KEY, path);
  byId("unread").replaceChildren(...(answer.skipped.length ? [el("div", { class: "notice warn" }, el("p", {}, `${plural(answer.skipped.length, "task")} could not be read: ${visible(answer.skipped.slice(0, 3).map((each) => `${each.file}: ${each.reason}`).join("; "))}`))] : []));
  drawTasks();
}

byId("open").addEventListener("submit", (event) => {
  event.preventDefault();
  list(byId("path").value.trim());
});
byId("search").addEventListener("input", debounced(drawTasks, 100));

// ---- Test cases

let datasets = [];
let datasetCount = 0;
/** Test cases that are listed at a time; the server lists at most as many datasets. */
const SIZE = 1000;

const datasetTable = new DataTable({
  label: "Datasets",
  rowKey: (dataset) => dataset.id,
  columns: [
    { key: "name", title: "Dataset", class: "wide", cell: (dataset) => el("button", { type: "button", class: "quiet compact", onclick: () => showCases(dataset) }, visible(dataset.name)) },
    { key: "examples", title: "Test cases", numeric: true, cell: (dataset) => number(dataset.examples) },
    { key: "versions", title: "Versions", numeric: true, cell: (dataset) => number(dataset.versions) },
    { key: "updated", title: "Changed", cell: (dataset) => format.ago(dataset.updatedAt) },
    { key: "run", title: "Actions", cell: (dataset) => el("button", { type: "button", class: "compact", dataset: { needs: "run" }, onclick: ({ currentTarget }) => runAll(currentTarget, dataset) }, "Run on models") },
  ],
});

function drawDatasets() {
  datasetTable.show(datasets);
  const empty = el("div", { class: "empty" }, el("p", {}, "No test cases yet. Save one from a session or from the playground."));
  const rest = datasetCount - datasets.length;
  const more = el("button", { type: "button", class: "compact", onclick: ({ currentTarget }) => moreDatasets(currentTarget) }, `Show ${number(Math.min(rest, SIZE))} more of ${number(datasetCount)}`);
  byId("datasets").replaceChildren(...(datasets.length ? [datasetTable.element, ...(rest > 0 ? [more] : [])] : [empty]));
}

async function moreDatasets(button) {
  const stored = await attempt(button, () => api.get(`/api/datasets${query({ offset: datasets.length })}`));
  if (!stored) return;
  datasets = [...datasets, ...stored.datasets];
  datasetCount = stored.total;
  drawDatasets();
}

/** The models that were asked last in the playground. */
const lastModels = () => String(remembered("proctor-playground-models", "")).split(",").map((name) => name.trim()).filter(Boolean);

async function runAll(button, dataset) {
  const plan = await attempt(button, () => api.get(`/api/datasets/${encodeURIComponent(dataset.id)}/plan${query({ model: lastModels() })}`));
  if (!plan) return;
  const words = `The plan has the first ${number(plan.cases)} test cases; ${number(plan.omitted)} are left out. A plan of all of them is written by a script (GET /api/datasets/…/examples).`;
  if (plan.omitted && !(await confirmed({ title: "Run a part of the dataset?", text: words, action: "Continue" }))) return;
  try {
    sessionStorage.setItem("proctor-draft", plan.text);
  } catch {
    return;
  }
  go("/new");
}

/** `shown` are the test cases that are listed already. */
async function showCases(dataset, shown = []) {
  const answer = await attempt(null, () => api.get(`/api/datasets/${encodeURIComponent(dataset.id)}/examples${query({ limit: SIZE, after: shown.at(-1)?.position || "" })}`));
  if (!answer) return;
  const cases = [...shown, ...answer.examples];
  const remove = async (button, example) => {
    if (!await confirmed({ title: "Delete the test case?", text: example.prompt.slice(0, 200), action: "Delete" })) return;
    const done = await attempt(button, () => api.delete(`/api/datasets/${encodeURIComponent(dataset.id)}/examples/${encodeURIComponent(example.id)}`));
    if (!done) return;
    datasets = done.datasets;
    datasetCount = done.total;
    drawDatasets();
    showCases(datasets.find((one) => one.id === dataset.id) || dataset);
  };
  const table = new DataTable({
    label: `Test cases of ${dataset.name}`,
    rowKey: (example) => example.id,
    columns: [
      { key: "prompt", title: "Prompt", class: "wide", cell: (example) => el("span", { class: "cell-text", title: visible(example.prompt) }, visible(example.prompt || "(no prompt)")) },
      { key: "expected", title: "Expected", cell: (example) => el("span", { class: "cell-text", title: visible(example.expected) }, visible(example.expected || "anything")) },
      { key: "from", title: "From", cell: (example) => (example.content.metadata?.sessionId ? el("a", { href: `/sessions/${encodeURIComponent(example.content.metadata.sessionId)}` }, "session") : "–") },
      { key: "actions", title: "Actions", cell: (example) => el("button", { type: "button", class: "compact", dataset: { needs: "run" }, "aria-label": `Delete ${example.id}`, onclick: ({ currentTarget }) => remove(currentTarget, example) }, "Delete") },
    ],
  });
  table.show(cases);
  const rest = answer.examples.length === SIZE ? dataset.examples - cases.length : 0;
  const more = el("button", { type: "button", class: "compact", onclick: () => showCases(dataset, cases) }, `Show ${number(Math.min(rest, SIZE))} more of ${number(dataset.examples)}`);
  byId("cases").replaceChildren(el("h3", {}, visible(dataset.name)), cases.length ? table.element : el("p", { class: "soft" }, "This dataset has no test cases."), ...(rest > 0 ? [more] : []));
}

async function open() {
  const path = new URLSearchParams(location.search).get("path") || remembered(PATH_KEY, "");
  byId("path").value = path;
  const [history, stored] = await Promise.all([api.get("/api/tasks/history"), api.get("/api/datasets")]);
  results = new Map(history.tasks.map((task) => [task.task, task]));
  datasets = stored.datasets;
  datasetCount = stored.total;
  drawTasks();
  drawDatasets();
}

open().catch((error) => {
  for (const id of ["tasks", "datasets"]) byId(id).replaceChildren(el("div", { class: "notice bad", role: "alert" }, visible(error.message), " ", visible(error.remedy || "")));
});
