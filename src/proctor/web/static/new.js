// New Batch: write a plan, see what is wrong with it while typing, validate it, start it.

import { api, attempt, byId, debounced, el, format, toast } from "./app.js";
import "./editor.js";

const MOST_BYTES = 16 * 1024 * 1024;
const DRAFT = "proctor-draft";
const FIELDS = {
  models: { label: "Models", type: "text", placeholder: "provider/model, …", help: "Names with commas between" },
  concurrency: { label: "Concurrency", type: "number", min: 1, step: 1, placeholder: "the plan's" },
  agent: { label: "Agent", type: "text", placeholder: "of items that name none" },
  model: { label: "Model", type: "text", placeholder: "of items that name none" },
  runs: { label: "Runs", type: "number", min: 1, step: 1, placeholder: "of each combination" },
  timeoutSec: { label: "Timeout, s", type: "number", min: 0.001, step: "any", placeholder: "the plan's" },
  retries: { label: "Retries", type: "number", min: 0, step: 1, placeholder: "the plan's" },
  mergeOnPass: { label: "Merge on pass", type: "choice" },
  budget: { label: "Budget, USD", type: "number", min: 0.000001, step: "any", placeholder: "the plan's" },
  seed: { label: "Seed", type: "number", step: 1, placeholder: "the config's" },
  runId: { label: "Name of the run", type: "text", placeholder: "the plan's, or a new one", pattern: "[A-Za-z0-9_][A-Za-z0-9._\\-]{0,127}" },
};

const editor = byId("editor");
const state = { jobs: [], examples: [], job: "", asking: null };

function typed() {
  return { text: editor.value, job: byId("job").value, overrides: overrides() };
}

function overrides() {
  const given = {};
  for (const field of byId("overrides").elements) {
    if (!field.name || field.value === "" || !field.checkValidity()) continue;
    const kind = FIELDS[field.name].type;
    given[field.name] = kind === "number" ? Number(field.value) : kind === "choice" ? field.value === "yes" : field.value.trim();
  }
  return given;
}

const areFieldsRight = () => byId("overrides").reportValidity();

function drawOverrides(names, values = {}) {
  const before = { ...overrides(), ...values };
  const fields = names.map((name) => {
    const { label, type, ...more } = FIELDS[name];
    const value = before[name];
    if (type === "choice") {
      const option = (id, text) => el("option", { value: id, selected: value === { yes: true, no: false }[id] && value !== undefined }, text);
      return el("label", { class: "field" }, label, el("select", { name }, option("", "The plan's"), option("yes", "Yes"), option("no", "No")));
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
  byId("about-job").textContent = byId("job").value ? "" : `Seems to be: ${job.title.toLowerCase()}.`;
}

function tell(text, kind = "") {
  byId("verdict").textContent = text;
  byId("verdict").className = `verdict ${kind}`;
}

function showProblems(problems) {
  editor.mark(problems);
  tell(problems.length ? format.plural(problems.length, "problem") : "", "bad");
  const rows = problems.map((each) => {
    const at = el("span", { class: "at" }, each.line ? `Line ${each.line}` : each.file ? "Elsewhere" : "Plan");
    const text = el("span", {}, each.problem, each.file ? el("span", { class: "soft" }, ` (${each.file})`) : null);
    const remedy = each.remedy ? el("span", { class: "remedy" }, each.remedy) : null;
    if (!each.line) return el("li", {}, el("div", { class: "row" }, at, text, remedy));
    return el("li", {}, el("button", { type: "button", onclick: () => editor.goTo(each.line, each.column || 1) }, at, text, remedy));
  });
  byId("result").replaceChildren(...(rows.length ? [el("ul", { class: "problems", "aria-label": "Problems" }, ...rows)] : []));
}

async function check() {
  state.asking?.abort();
  const asking = (state.asking = new AbortController());
  if (!editor.value.trim()) {
    editor.mark([]);
    byId("result").replaceChildren();
    tell("");
    return;
  }
  try {
    const found = await api.post("/api/plans/check", typed(), { signal: asking.signal });
    setJob(found.job);
    showProblems(found.problems);
    if (!found.problems.length) tell(found.itemCount === null ? "Well formed" : format.plural(found.itemCount, "item"), "good");
  } catch (error) {
    if (error.name !== "AbortError") tell(error.message, "bad");
  }
}

async function validate() {
  if (!areFieldsRight()) return;
  state.asking?.abort();
  tell("Looking at all it names…");
  const found = await attempt(byId("validate"), () => api.post("/api/plans/validate", typed()));
  if (!found) {
    tell("");
    return;
  }
  setJob(found.job);
  showProblems(found.problems);
  if (!found.problems.length) showGood(found);
}

function showGood(found) {
  const { forecast } = found;
  const tile = (value, what) => el("div", { class: "tile" }, el("b", {}, value), el("span", {}, what));
  tell("All it names is here", "good");
  byId("result").replaceChildren(
    el(
      "div",
      { class: "notice good good-plan" },
      el("h3", {}, "The plan is good. Nothing was started."),
      el(
        "div",
        { class: "tiles" },
        tile(format.number(found.itemCount), found.itemCount === 1 ? "item" : "items"),
        tile(format.number(found.concurrency), "at a time"),
        tile(forecast?.costUsd === null || !forecast ? "unknown" : format.money(forecast.costUsd), "predicted cost"),
        tile(forecast?.seconds === null || !forecast ? "unknown" : format.seconds(forecast.seconds), "predicted time"),
      ),
      forecast ? el("p", { class: "soft small" }, forecast.basis) : null,
      ...found.remarks.map((remark) => el("p", { class: "small" }, `Note: ${remark}.`)),
    ),
  );
}

async function start() {
  if (!areFieldsRight()) return;
  if (!editor.value.trim()) {
    toast("There is no plan yet", "bad", "Write one, or begin with an example.");
    return;
  }
  state.asking?.abort();
  const button = byId("start");
  const begun = await attempt(button, () => api.post("/api/runs", typed()));
  if (begun) {
    leaveBehind();
    location.assign(`/runs/${encodeURIComponent(begun.runId)}`);
  } else validate();
}

/** The next New Batch begins afresh; who goes back to this page finds what they had written. */
function leaveBehind() {
  sessionStorage.removeItem(DRAFT);
  try {
    history.replaceState(typed(), "");
  } catch {
    // What is too large for the browser to remember is in the plan of the run.
  }
}

async function take(file) {
  if (file.size > MOST_BYTES) toast(`${file.name} is too large`, "bad", "A plan may have 16 MiB.");
  else editor.value = await file.text();
}

function begin(example) {
  byId("job").value = "";
  state.job = "";
  editor.value = example.text;
  setJob(example.job);
  drawOverrides(state.jobs.find((each) => each.name === example.job)?.overrides || [], example.overrides);
}

function takeUp({ text, job, overrides: given }) {
  byId("job").value = job;
  if (job) setJob(job);
  drawOverrides(state.jobs.find((each) => each.name === state.job)?.overrides || [], given);
  editor.value = text;
}

byId("validate").addEventListener("click", validate);
byId("start").addEventListener("click", start);
byId("load").addEventListener("click", () => byId("file").click());
byId("file").addEventListener("change", (event) => {
  if (event.target.files[0]) take(event.target.files[0]);
  event.target.value = "";
});
byId("example").addEventListener("change", (event) => {
  const example = state.examples[Number(event.target.value)];
  if (example && event.target.value !== "") begin(example);
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
    // A draft that is too large is not kept.
  }
  soon();
});
for (const kind of ["dragover", "dragleave", "drop"])
  editor.addEventListener(kind, (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    editor.classList.toggle("dropping", kind === "dragover");
    if (kind === "drop" && event.dataTransfer.files[0]) take(event.dataTransfer.files[0]);
  });

async function open() {
  [state.jobs, state.examples] = await Promise.all([api.get("/api/plans/jobs"), api.get("/api/plans/examples")]);
  byId("job").append(...state.jobs.map((job) => el("option", { value: job.name }, job.title)));
  byId("example").append(...state.examples.map((example, number) => el("option", { value: number }, example.name)));
  setJob(state.jobs[0].name);
  const draft = sessionStorage.getItem(DRAFT);
  const before = history.state;
  if (draft) editor.value = draft;
  else if (before?.text) takeUp(before);
  else begin(state.examples[1]);
}

open().catch((error) => toast(error.message, "bad", error.remedy));
