// New Batch: edit a plan with validation while typing, validate it fully, and start it.

import { api, attempt, byId, debounced, el, format, go, query, toast } from "./app.js";
import "./editor.js";

const MOST_BYTES = 16 * 1024 * 1024;
const DRAFT = "proctor-draft";
const FIELDS = {
  models: { label: "Models", type: "text", placeholder: "provider/model, …", help: "Comma-separated model names" },
  concurrency: { label: "Concurrency", type: "number", min: 1, step: 1, placeholder: "from plan" },
  workers: { label: "Worker processes", type: "number", min: 1, step: 1, placeholder: "automatic" },
  engine: { label: "Engine", type: "text", placeholder: "local, or ray", pattern: "local|ray" },
  agent: { label: "Agent", type: "text", placeholder: "for items that don't set one" },
  model: { label: "Model", type: "text", placeholder: "for items that don't set one" },
  runs: { label: "Repeats", type: "number", min: 1, step: 1, placeholder: "per combination" },
  timeoutSec: { label: "Timeout (s)", type: "number", min: 0.001, step: "any", placeholder: "from plan" },
  retries: { label: "Retries", type: "number", min: 0, step: 1, placeholder: "from plan" },
  mergeOnPass: { label: "Merge on pass", type: "choice" },
  budget: { label: "Budget (USD)", type: "number", min: 0.000001, step: "any", placeholder: "from plan" },
  seed: { label: "Seed", type: "number", step: 1, placeholder: "from config" },
  runId: { label: "Run name", type: "text", placeholder: "from plan, or generated", pattern: "[A-Za-z0-9_][A-Za-z0-9._\\-]{0,127}" },
};

const editor = byId("editor");
const state = { jobs: [], examples: [], job: "", request: null };

function planRequest() {
  return { text: editor.value, job: byId("job").value, overrides: overrides() };
}

function overrides() {
  const values = {};
  for (const field of byId("overrides").elements) {
    if (!field.name || field.value === "" || !field.checkValidity()) continue;
    const kind = FIELDS[field.name].type;
    values[field.name] = kind === "number" ? Number(field.value) : kind === "choice" ? field.value === "yes" : field.value.trim();
  }
  return values;
}

const areOverridesValid = () => byId("overrides").reportValidity();

function drawOverrides(names, values = {}) {
  const current = { ...overrides(), ...values };
  const fields = names.map((name) => {
    const { label, type, ...more } = FIELDS[name];
    const value = current[name];
    if (type === "choice") {
      const option = (id, text) => el("option", { value: id, selected: value === { yes: true, no: false }[id] && value !== undefined }, text);
      return el("label", { class: "field" }, label, el("select", { name }, option("", "From plan"), option("yes", "Yes"), option("no", "No")));
    }
    const { help, ...attributes } = more;
    const field = el("input", { name, type, ...attributes, value: value ?? null, maxlength: type === "text" ? 500 : null, title: help || null });
    return el("label", { class: type === "text" ? "field wide" : "field" }, label, field);
  });
  byId("overrides").replaceChildren(...fields);
}

function setJob(name) {
  if (name === state.job) return;
  state.job = name;
  const job = state.jobs.find((each) => each.name === name);
  if (!job) return;
  editor.schema = job.schema;
  drawOverrides(job.overrides);
  byId("about-job").textContent = byId("job").value ? "" : `Detected: ${job.title.toLowerCase()}.`;
}

function showVerdict(text, kind = "") {
  byId("verdict").textContent = text;
  byId("verdict").className = `verdict ${kind}`;
}

function showProblems(problems) {
  editor.mark(problems);
  showVerdict(problems.length ? format.plural(problems.length, "problem") : "", "bad");
  const rows = problems.map((each) => {
    const at = el("span", { class: "at" }, each.line ? `Line ${each.line}` : each.file ? "Other file" : "Plan");
    const text = el("span", {}, each.problem, each.file ? el("span", { class: "soft" }, ` (${each.file})`) : null);
    const remedy = each.remedy ? el("span", { class: "remedy" }, each.remedy) : null;
    if (!each.line) return el("li", {}, el("div", { class: "row" }, at, text, remedy));
    return el("li", {}, el("button", { type: "button", onclick: () => editor.goTo(each.line, each.column || 1) }, at, text, remedy));
  });
  byId("result").replaceChildren(...(rows.length ? [el("ul", { class: "problems", "aria-label": "Problems" }, ...rows)] : []));
}

async function check() {
  state.request?.abort();
  const controller = (state.request = new AbortController());
  if (!editor.value.trim()) {
    editor.mark([]);
    byId("result").replaceChildren();
    showVerdict("");
    return;
  }
  try {
    const response = await api.post("/api/plans/check", planRequest(), { signal: controller.signal });
    setJob(response.job);
    showProblems(response.problems);
    if (!response.problems.length) showVerdict(response.itemCount === null ? "Valid syntax" : format.plural(response.itemCount, "item"), "good");
  } catch (error) {
    if (error.name !== "AbortError") showVerdict(error.message, "bad");
  }
}

async function validate() {
  if (!areOverridesValid()) return;
  // A check while typing, under way or due, must not replace the full validation.
  soon.cancel();
  state.request?.abort();
  showVerdict("Validating…");
  const response = await attempt(byId("validate"), () => api.post("/api/plans/validate", planRequest()));
  if (!response) {
    showVerdict("");
    return;
  }
  setJob(response.job);
  showProblems(response.problems);
  if (!response.problems.length) showValid(response);
  // The editor fills the window: without this, the result would be below it.
  byId("result").scrollIntoView({ block: "nearest" });
}

function showValid(response) {
  const { forecast } = response;
  const tile = (value, what) => el("div", { class: "tile" }, el("b", {}, value), el("span", {}, what));
  showVerdict("Valid", "good");
  byId("result").replaceChildren(
    el(
      "div",
      { class: "notice good good-plan" },
      el("h2", {}, "Plan is valid. Nothing was started."),
      el(
        "div",
        { class: "tiles" },
        tile(format.number(response.itemCount), response.itemCount === 1 ? "item" : "items"),
        tile(format.number(response.concurrency), "concurrency"),
        tile(forecast?.costUsd === null || !forecast ? "unknown" : format.money(forecast.costUsd), "estimated cost"),
        tile(forecast?.seconds === null || !forecast ? "unknown" : format.seconds(forecast.seconds), "estimated time"),
      ),
      forecast ? el("p", { class: "soft small" }, forecast.basis) : null,
      ...response.notes.map((remark) => el("p", { class: "small" }, `Note: ${remark}.`)),
    ),
  );
}

async function start() {
  if (!areOverridesValid()) return;
  if (!editor.value.trim()) {
    toast("The plan is empty", "bad", "Enter a plan, or choose an example.");
    return;
  }
  soon.cancel();
  state.request?.abort();
  const button = byId("start");
  const started = await attempt(button, () => api.post("/api/runs", planRequest()));
  if (started) {
    clearDraft();
    go(`/runs/${encodeURIComponent(started.runId)}`);
  } else validate();
}

/** Clear the draft for the next New Batch; going back in the browser history restores the text. */
function clearDraft() {
  sessionStorage.removeItem(DRAFT);
  try {
    history.replaceState(planRequest(), "");
  } catch {
    // Text too large for the history state is available as the run's plan.
  }
}

async function loadFile(file) {
  if (file.size > MOST_BYTES) toast(`${file.name} is too large`, "bad", "The maximum plan size is 16 MiB.");
  else editor.value = await file.text();
}

function loadExample(example) {
  byId("job").value = "";
  state.job = "";
  editor.value = example.text;
  setJob(example.job);
  drawOverrides(state.jobs.find((each) => each.name === example.job)?.overrides || [], example.overrides);
}

function restore({ text, job, overrides: values }) {
  byId("job").value = job;
  if (job) setJob(job);
  drawOverrides(state.jobs.find((each) => each.name === state.job)?.overrides || [], values);
  editor.value = text;
}

byId("validate").addEventListener("click", validate);
byId("start").addEventListener("click", start);
byId("load").addEventListener("click", () => byId("file").click());
byId("file").addEventListener("change", (event) => {
  if (event.target.files[0]) loadFile(event.target.files[0]);
  event.target.value = "";
});
byId("example").addEventListener("change", (event) => {
  const example = state.examples[Number(event.target.value)];
  if (example && event.target.value !== "") loadExample(example);
  event.target.value = "";
});
byId("job").addEventListener("change", () => {
  setJob(byId("job").value);
  check();
});
const soon = debounced(check, 250);
byId("overrides").addEventListener("input", soon);
byId("overrides").addEventListener("submit", (event) => event.preventDefault());
editor.addEventListener("edited", () => {
  try {
    sessionStorage.setItem(DRAFT, editor.value);
  } catch {
    // A draft that is too large is not stored.
  }
  soon();
});
for (const kind of ["dragover", "dragleave", "drop"])
  editor.addEventListener(kind, (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    editor.classList.toggle("dropping", kind === "dragover");
    if (kind === "drop" && event.dataTransfer.files[0]) loadFile(event.dataTransfer.files[0]);
  });

async function open() {
  [state.jobs, state.examples] = await Promise.all([api.get("/api/plans/jobs"), api.get("/api/plans/examples")]);
  byId("job").append(...state.jobs.map((job) => el("option", { value: job.name }, job.title)));
  byId("example").append(...state.examples.map((example, number) => el("option", { value: number }, example.name)));
  setJob(state.jobs[0].name);
  const copied = new URLSearchParams(location.search).get("run");
  if (copied) return copyPlan(copied);
  const draft = sessionStorage.getItem(DRAFT);
  const before = history.state;
  if (draft) editor.value = draft;
  else if (before?.text) restore(before);
  else loadExample(state.examples[1]);
}

/** The plan of a run, to be edited as a new one. */
/** A name for a copy of a run that no run has. */
async function freeName(run) {
  const base = `${run.replace(/-copy(-\d+)?$/, "").slice(0, 110)}-copy`;
  const { runs } = await api.get(`/api/runs${query({ search: base, limit: 200 })}`);
  const taken = new Set(runs.map(({ runId }) => runId));
  let name = base;
  for (let count = 2; taken.has(name); count++) name = `${base}-${count}`;
  return name;
}

async function copyPlan(run) {
  const address = `/api/runs/${encodeURIComponent(run)}`;
  const [plan, about] = await Promise.all([api.get(`${address}/plan`), api.get(address)]);
  const overrides = /(?:^|[{,])\s*["']?runId["']?\s*:/m.test(plan.text) ? { runId: await freeName(run) } : {};
  const job = state.jobs.some((each) => each.name === about.job) ? about.job : "";
  restore({ text: plan.text, job, overrides });
  showVerdict(`Copy of the plan of ${run}`);
  const isElsewhere = plan.path && plan.path.includes("/") && !plan.path.includes("/serve/plans/");
  if (isElsewhere) byId("result").replaceChildren(el("div", { class: "notice" }, el("p", {}, `The plan was read from ${plan.path}. Here, relative paths are resolved from the folder the server was started in.`)));
}

open().catch((error) => toast(error.message, "bad", error.remedy));
