// New Evaluation: sessions, evaluators, and ground truth; previewed while they are chosen, started as an evaluation.

import { api, attempt, byId, debounced, el, format, go, query, toast } from "./app.js";
import { shortName } from "./judges.js";
import { takeSelection } from "./selection.js";
import { visible } from "./texts.js";
import "./editor.js";

const { number, money, plural } = format;
const LEVELS = { session: "Whole sessions", trace: "Each turn", tool_call: "Each tool call" };
const EXAMPLE = `sessionMetadata:
  - sessionId: one-of-your-sessions   # or testScenarioId, for every session of a scenario
    groundTruth:
      inline:
        assertions: [The agent names a price before it books]
        expectedTrajectory: [search_flights, book_flight]
`;
const selected = { groups: new Map(), runs: new Set(), evaluators: new Set() };
let evaluators = [];
/** Jobs whose items evaluate sessions: their own sessions are not offered. */
const evaluationJobs = new Set(byId("form").dataset.evaluationJobs.split(" "));
const truth = byId("truth");
const lines = (id) => byId(id).value.split("\n").map((line) => line.trim()).filter(Boolean);
const kind = () => document.querySelector("input[name=kind]:checked").value;
const isPairwise = () => document.querySelector("input[name=mode]:checked").value === "pairs";
const moment = (id) => (byId(id).value ? new Date(byId(id).value).toISOString().replace(/\.\d+Z$/, "Z") : "");

// ---- Form values

function source() {
  const narrower = { sessionIds: lines("session-ids"), start: moment("from"), end: moment("until") };
  if (kind() === "files") return { kind: "files", paths: lines("paths"), fileKind: byId("file-kind").value };
  if (kind() === "runs") return { kind: "runs", runIds: [...selected.runs], ...narrower };
  const picked = [...selected.groups.values()];
  return { kind: "arrived", logGroups: [...new Set(picked.map((one) => one.logGroup).filter(Boolean))], services: [...new Set(picked.map((one) => one.service).filter(Boolean))], ...narrower };
}

function document_() {
  const number_ = (id) => (byId(id).value === "" ? null : Number(byId(id).value));
  return {
    name: byId("name").value.trim(),
    source: source(),
    ...(isPairwise() ? { pairwise: { by: byId("pairs-by").value.trim() || "run", task: byId("pairs-task").value.trim(), question: byId("pairs-question").value.trim() } } : { evaluators: [...selected.evaluators, ...lines("others")] }),
    judge: byId("judge").value.trim(),
    votes: number_("votes") || 1,
    budget: number_("budget"),
    maxSessions: number_("max-sessions"),
    concurrency: number_("concurrency"),
    description: byId("description").value.trim(),
    groundTruth: isPairwise() ? "" : truth.value,
  };
}

/** Missing required values, each as [message, field ID]. */
function missing() {
  const problems = [];
  const name = byId("name").value.trim();
  if (kind() === "files" && !lines("paths").length) problems.push(["Enter a path or choose a file.", "paths"]);
  if (kind() === "runs" && !selected.runs.size && !lines("session-ids").length && !byId("from").value) problems.push(["Choose a run.", "run-search"]);
  if (!isPairwise() && !selected.evaluators.size && !lines("others").length) problems.push(["Choose at least one evaluator.", "evaluator-search"]);
  if (!/^[A-Za-z][A-Za-z0-9_]{0,47}$/.test(name)) problems.push(["Enter a name: a letter, followed by letters, digits, or underscores.", "name"]);
  return problems;
}

function showProblems(problems) {
  byId("outcome").replaceChildren(el("div", { class: "notice bad", role: "alert" }, problems.map(([words, id]) => el("p", {}, id ? el("button", { type: "button", class: "quiet compact", onclick: () => byId(id).focus() }, words) : words))));
  byId("outcome").scrollIntoView({ block: "nearest" });
}

// ---- Sources

function pick(input, title, more) {
  return el("label", { class: "pick" }, input, el("span", {}, el("b", {}, title), el("span", { class: "soft small" }, more)));
}

async function loadSources() {
  try {
    const { arrived, fileKinds } = await api.get("/api/evaluations/sources");
    byId("file-kind").append(...fileKinds.filter((each) => each !== "auto").map((each) => el("option", { value: each }, each)));
    byId("groups").replaceChildren(
      ...(arrived.length
        ? arrived.map((one, place) => {
            const input = el("input", { type: "checkbox" });
            input.addEventListener("change", () => {
              if (input.checked) selected.groups.set(place, one);
              else selected.groups.delete(place);
              preview();
            });
            return pick(input, visible(one.logGroup || "no log group"), `${visible(one.service || "no service")} · ${plural(one.sessions, "session")} · ${format.ago(one.last)}`);
          })
        : [el("p", { class: "soft" }, "No received traces yet. Send telemetry to this server, or import files with "), el("code", {}, "proctor import")]),
    );
    if (!arrived.length) document.querySelector("input[value=runs]").click();
  } catch (error) {
    byId("groups").replaceChildren(el("p", { class: "problem" }, visible(error.message)));
  }
}

let latestRunsRequest = 0;
async function loadRuns() {
  const request = ++latestRunsRequest;
  const search = byId("run-search").value.trim();
  let runs = [];
  try {
    ({ runs } = await api.get(`/api/runs${query({ search, limit: 30 })}`));
  } catch (error) {
    if (request === latestRunsRequest) byId("runs").replaceChildren(el("p", { class: "problem" }, visible(error.message)));
    return;
  }
  // Ignore a response that arrives after a newer one.
  if (request !== latestRunsRequest) return;
  const listed = runs.filter((run) => !evaluationJobs.has(run.job));
  byId("runs").replaceChildren(
    ...(listed.length
      ? listed.map((run) => {
          const input = el("input", { type: "checkbox" });
          input.checked = selected.runs.has(run.runId);
          input.addEventListener("change", () => {
            if (input.checked) selected.runs.add(run.runId);
            else selected.runs.delete(run.runId);
            preview();
          });
          return pick(input, visible(run.runId), `${run.job} · ${plural(run.itemCount, "item")} · ${format.ago(run.createdAt)}`);
        })
      : [el("p", { class: "soft" }, search ? "No matching runs." : "No runs with sessions yet.")]),
  );
}

function chooseKind() {
  for (const part of document.querySelectorAll(".source")) part.hidden = part.dataset.kind !== kind();
  byId("narrower").hidden = kind() === "files";
  preview();
}

let latestPreview = 0;
const preview = debounced(async () => {
  const request = ++latestPreview;
  const place = byId("preview");
  const selection = source();
  if ((selection.kind === "files" && !selection.paths.length) || (selection.kind === "runs" && !selection.runIds.length && !selection.sessionIds.length && !selection.start && !selection.end)) {
    place.replaceChildren(selection.kind === "files" ? "Enter the files that contain the sessions." : "Choose the runs to evaluate.");
    place.className = "preview soft";
    return;
  }
  try {
    const response = await api.post("/api/evaluations/preview", selection);
    if (request !== latestPreview) return;
    place.className = `preview ${response.problem ? "problem" : ""}`;
    if (response.problem) place.replaceChildren(visible(response.problem));
    else if (selection.kind === "files") place.replaceChildren("Click Check to import the files and count their sessions.");
    else place.replaceChildren(selection.kind === "arrived" && !selected.groups.size ? "All received traces: " : "", el("b", { class: "figures" }, plural(response.sessions, "session")), el("span", { class: "soft" }, ` · ${response.examples.map(visible).join(" · ")}${response.sessions > response.examples.length ? " …" : ""}`));
  } catch (error) {
    if (request !== latestPreview) return;
    place.className = "preview problem";
    place.replaceChildren(visible(error.message));
  }
}, 200);

// ---- Evaluators

function drawEvaluators() {
  const text = byId("evaluator-search").value.trim().toLowerCase();
  const matches = evaluators.filter((one) => !text || `${one.name} ${one.judges} ${one.source}`.toLowerCase().includes(text));
  const groups = Object.entries(LEVELS).map(([level, title]) => [title, matches.filter((one) => one.level === level)]);
  const broken = matches.filter((one) => one.problem);
  byId("evaluators").replaceChildren(
    ...groups.filter(([, members]) => members.length).map(([title, members]) => el("div", { class: "level", role: "group", "aria-label": title }, el("h2", {}, title), el("div", { class: "picks" }, members.map(evaluatorPick)))),
    ...broken.map((one) => el("p", { class: "problem small" }, `${visible(one.source)}: ${visible(one.problem)}`)),
    matches.length ? "" : el("p", { class: "soft" }, "No matching evaluators."),
  );
  showSelection();
}

function evaluatorPick(one) {
  const input = el("input", { type: "checkbox" });
  input.checked = selected.evaluators.has(one.id);
  input.addEventListener("change", () => {
    if (input.checked) selected.evaluators.add(one.id);
    else selected.evaluators.delete(one.id);
    showSelection();
  });
  const tags = [one.asksModel ? null : el("span", { class: "tag" }, "no model"), one.needsReference ? el("span", { class: "tag warn" }, "needs ground truth") : null, one.source === "Proctor" ? null : el("span", { class: "tag" }, visible(one.source))].filter(Boolean);
  return pick(input, el("span", { title: visible(one.name) }, shortName(one.name), " ", ...tags), visible(one.judges));
}

function showSelection() {
  const count = selected.evaluators.size + lines("others").length;
  byId("chosen-count").textContent = count ? `${number(count)} selected` : "";
  const needsJudge = evaluators.some((one) => one.asksModel && selected.evaluators.has(one.id));
  byId("judge-fields").hidden = !isPairwise() && !needsJudge && !lines("others").length;
}

function chooseMode() {
  byId("pairs").hidden = !isPairwise();
  for (const id of ["single", "truth-step"]) byId(id).hidden = isPairwise();
  showSelection();
}

async function loadEvaluators() {
  try {
    const response = await api.get("/api/evaluations/evaluators");
    evaluators = response.evaluators;
    if (response.judge) byId("judge").placeholder = response.judge;
    drawEvaluators();
  } catch (error) {
    byId("evaluators").replaceChildren(el("p", { class: "problem" }, visible(error.message)));
  }
}

let hasModels = false;
byId("judge").addEventListener("focus", async () => {
  if (hasModels) return;
  hasModels = true;
  try {
    const { models } = await api.get("/api/models");
    byId("models").replaceChildren(...models.map((model) => el("option", { value: model.name })));
  } catch {
    // The suggestions are optional.
  }
});

// ---- Ground truth

let latestTruthCheck = 0;
const checkTruth = debounced(async () => {
  const request = ++latestTruthCheck;
  const [verdict, list] = [byId("truth-verdict"), byId("truth-problems")];
  if (!truth.value.trim()) {
    truth.mark([]);
    verdict.textContent = "";
    list.hidden = true;
    return;
  }
  try {
    const response = await api.post("/api/evaluations/truth", { text: truth.value });
    if (request !== latestTruthCheck) return;
    truth.mark(response.problems);
    verdict.className = `verdict ${response.problems.length ? "bad" : "good"}`;
    verdict.textContent = response.problems.length ? plural(response.problems.length, "problem") : `${response.name ? `${visible(response.name)}: ` : ""}${response.entries === 1 ? "1 entry" : `${number(response.entries)} entries`}`;
    list.hidden = !response.problems.length;
    list.replaceChildren(...response.problems.map((each) => el("li", {}, el("button", { type: "button", onclick: () => truth.goTo(each.line || 1, each.column || 1) }, el("span", { class: "at" }, each.line ? `line ${each.line}` : ""), el("span", {}, visible(each.problem)), each.remedy ? el("span", { class: "remedy" }, visible(each.remedy)) : null))));
  } catch (error) {
    if (request === latestTruthCheck) verdict.textContent = error.message;
  }
}, 300);

truth.addEventListener("edited", checkTruth);
byId("truth-example").addEventListener("click", () => {
  if (!truth.value.trim()) truth.value = EXAMPLE;
  truth.field.focus();
});
byId("truth-file").addEventListener("change", async ({ target }) => {
  const [file] = target.files;
  if (file && file.size > 10_000_000) toast("The file is too large for the editor (maximum 10 MB).", "bad", "Use the command line: proctor evaluate start --ground-truth FILE");
  else if (file) truth.value = await file.text();
  target.value = "";
});
byId("files").addEventListener("change", async ({ target }) => {
  for (const file of target.files) {
    if (file.size > 10_000_000) {
      toast(`${file.name} is too large to upload (maximum 10 MB).`, "bad", "Copy it to the server and enter its path.");
      continue;
    }
    const text = await file.text();
    const saved = await attempt(null, () => api.post("/api/evaluations/files", { name: file.name, text }));
    if (saved) byId("paths").value = [...lines("paths"), saved.path].join("\n");
  }
  target.value = "";
  preview();
});

// ---- Check and start

function forecast(response) {
  const rows = response.evaluators.map((one) => el("tr", {}, el("td", {}, el("b", {}, shortName(one.evaluator))), el("td", { class: "n" }, number(one.results)), el("td", {}, one.model ? `${number(one.calls)} calls to ${visible(one.model)}` : el("span", { class: "soft" }, "no model calls")), el("td", { class: "n" }, one.model ? money(one.costUsd) : "–")));
  return el("div", { class: "notice good" }, el("p", {}, el("b", {}, `Valid: ${plural(response.sessions, "session")}, ${plural(response.itemCount, "item")}`), `, estimated cost ${response.costUsd === null ? "unknown" : money(response.costUsd)}. Nothing was started.`),
    el("div", { class: "forecast" }, el("table", { "aria-label": "Estimate per evaluator" }, el("thead", {}, el("tr", {}, ["Evaluator", "Results", "Model calls", "Cost (est.)"].map((head, place) => el("th", { scope: "col", class: place % 2 ? "n" : null }, head)))), el("tbody", {}, rows))));
}

byId("check").addEventListener("click", async ({ currentTarget }) => {
  const problems = missing();
  if (problems.length) return showProblems(problems);
  const response = await attempt(currentTarget, () => api.post("/api/evaluations/check", document_()));
  if (!response) return undefined;
  if (response.problems.length) showProblems(response.problems.map((each) => [`${each.line ? `line ${each.line}: ` : ""}${visible(each.problem)}${each.remedy ? ` ${visible(each.remedy)}` : ""}`, null]));
  else byId("outcome").replaceChildren(forecast(response));
  return byId("outcome").scrollIntoView({ block: "nearest" });
});

byId("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const problems = missing();
  if (problems.length) return showProblems(problems);
  byId("outcome").replaceChildren();
  const started = await attempt(byId("start"), () => api.post("/api/evaluations", document_()));
  return started && go(`/evaluations/${encodeURIComponent(started.id)}`);
});

for (const input of document.querySelectorAll("input[name=kind]")) input.addEventListener("change", chooseKind);
for (const input of document.querySelectorAll("input[name=mode]")) input.addEventListener("change", chooseMode);
for (const id of ["paths", "session-ids", "from", "until", "file-kind"]) byId(id).addEventListener("input", preview);
byId("others").addEventListener("input", showSelection);
byId("evaluator-search").addEventListener("input", drawEvaluators);
byId("run-search").addEventListener("input", debounced(loadRuns, 200));
const from = new URLSearchParams(location.search).getAll("run");
for (const run of from) selected.runs.add(run);
const named = [...new URLSearchParams(location.search).getAll("session"), ...takeSelection()];
byId("session-ids").value = named.join("\n");
if (named.length) byId("session-ids").closest("details").open = true;
if (from.length || named.length) document.querySelector("input[value=runs]").checked = true;
if (named.length && new URLSearchParams(location.search).has("pairs")) document.querySelector("input[value=pairs]").checked = true;
chooseKind();
chooseMode();
loadEvaluators();
loadRuns();
if (from.length || named.length) preview();
loadSources();
