// New Evaluation: which sessions, who judges, what was expected; previewed as it is chosen, started as a job of its own.

import { api, attempt, byId, debounced, el, format, query, toast } from "./app.js";
import { shortName } from "./judges.js";
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
const chosen = { groups: new Map(), runs: new Set(), evaluators: new Set() };
let evaluators = [];
const truth = byId("truth");
const lines = (id) => byId(id).value.split("\n").map((line) => line.trim()).filter(Boolean);
const kind = () => document.querySelector("input[name=kind]:checked").value;
const moment = (id) => (byId(id).value ? new Date(byId(id).value).toISOString().replace(/\.\d+Z$/, "Z") : "");

// ---- What stands on the page

function source() {
  const narrower = { sessionIds: lines("session-ids"), start: moment("from"), end: moment("until") };
  if (kind() === "files") return { kind: "files", paths: lines("paths"), fileKind: byId("file-kind").value };
  if (kind() === "runs") return { kind: "runs", runIds: [...chosen.runs], ...narrower };
  const picked = [...chosen.groups.values()];
  return { kind: "arrived", logGroups: [...new Set(picked.map((one) => one.logGroup).filter(Boolean))], services: [...new Set(picked.map((one) => one.service).filter(Boolean))], ...narrower };
}

function document_() {
  const number_ = (id) => (byId(id).value === "" ? null : Number(byId(id).value));
  return {
    name: byId("name").value.trim(),
    source: source(),
    evaluators: [...chosen.evaluators, ...lines("others")],
    judge: byId("judge").value.trim(),
    votes: number_("votes") || 1,
    budget: number_("budget"),
    maxSessions: number_("max-sessions"),
    concurrency: number_("concurrency"),
    description: byId("description").value.trim(),
    groundTruth: truth.value,
  };
}

/** What has to be there before the server is asked; with the field it is missing in. */
function missing() {
  const found = [];
  const name = byId("name").value.trim();
  if (kind() === "files" && !lines("paths").length) found.push(["Name a file, or choose one.", "paths"]);
  if (kind() === "runs" && !chosen.runs.size && !lines("session-ids").length && !byId("from").value) found.push(["Choose a run.", "run-search"]);
  if (!chosen.evaluators.size && !lines("others").length) found.push(["Choose at least one evaluator.", "evaluator-search"]);
  if (!/^[A-Za-z][A-Za-z0-9_]{0,47}$/.test(name)) found.push(["Give the job a name: a letter, then letters, digits or underscores.", "name"]);
  return found;
}

function tellProblems(problems) {
  byId("outcome").replaceChildren(el("div", { class: "notice bad", role: "alert" }, problems.map(([words, id]) => el("p", {}, id ? el("button", { type: "button", class: "quiet compact", onclick: () => byId(id).focus() }, words) : words))));
  byId("outcome").scrollIntoView({ block: "nearest" });
}

// ---- The sources

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
              if (input.checked) chosen.groups.set(place, one);
              else chosen.groups.delete(place);
              preview();
            });
            return pick(input, visible(one.logGroup || "no log group"), `${visible(one.service || "no service")} · ${plural(one.sessions, "session")} · ${format.ago(one.last)}`);
          })
        : [el("p", { class: "soft" }, "Nothing has arrived yet. Send telemetry to this server, or import files with "), el("code", {}, "proctor import")]),
    );
    if (!arrived.length) document.querySelector("input[value=runs]").click();
  } catch (error) {
    byId("groups").replaceChildren(el("p", { class: "problem" }, visible(error.message)));
  }
}

let listed = 0;
async function loadRuns() {
  const mine = ++listed;
  const search = byId("run-search").value.trim();
  let runs = [];
  try {
    ({ runs } = await api.get(`/api/runs${query({ search, limit: 30 })}`));
  } catch (error) {
    if (mine === listed) byId("runs").replaceChildren(el("p", { class: "problem" }, visible(error.message)));
    return;
  }
  // An answer that was long on its way replaces nothing newer.
  if (mine !== listed) return;
  const shown = runs.filter((run) => run.job !== "evaluation");
  byId("runs").replaceChildren(
    ...(shown.length
      ? shown.map((run) => {
          const input = el("input", { type: "checkbox" });
          input.checked = chosen.runs.has(run.runId);
          input.addEventListener("change", () => {
            if (input.checked) chosen.runs.add(run.runId);
            else chosen.runs.delete(run.runId);
            preview();
          });
          return pick(input, visible(run.runId), `${run.job} · ${plural(run.itemCount, "item")} · ${format.ago(run.createdAt)}`);
        })
      : [el("p", { class: "soft" }, search ? "No run is called that." : "There are no runs yet whose sessions could be judged.")]),
  );
}

function chooseKind() {
  for (const part of document.querySelectorAll(".source")) part.hidden = part.dataset.kind !== kind();
  byId("narrower").hidden = kind() === "files";
  preview();
}

let looked = 0;
const preview = debounced(async () => {
  const mine = ++looked;
  const place = byId("preview");
  const wanted = source();
  if ((wanted.kind === "files" && !wanted.paths.length) || (wanted.kind === "runs" && !wanted.runIds.length && !wanted.sessionIds.length && !wanted.start && !wanted.end)) {
    place.replaceChildren(wanted.kind === "files" ? "Name the files that hold the sessions." : "Choose the runs whose sessions are to be judged.");
    place.className = "preview soft";
    return;
  }
  try {
    const found = await api.post("/api/evaluations/preview", wanted);
    if (mine !== looked) return;
    place.className = `preview ${found.problem ? "problem" : ""}`;
    if (found.problem) place.replaceChildren(visible(found.problem));
    else if (wanted.kind === "files") place.replaceChildren("The sessions in them are counted when they are imported; Check does that.");
    else place.replaceChildren(wanted.kind === "arrived" && !chosen.groups.size ? "All that has arrived: " : "", el("b", { class: "figures" }, plural(found.sessions, "session")), el("span", { class: "soft" }, ` · ${found.examples.map(visible).join(" · ")}${found.sessions > found.examples.length ? " …" : ""}`));
  } catch (error) {
    if (mine !== looked) return;
    place.className = "preview problem";
    place.replaceChildren(visible(error.message));
  }
}, 200);

// ---- The evaluators

function drawEvaluators() {
  const text = byId("evaluator-search").value.trim().toLowerCase();
  const fits = evaluators.filter((one) => !text || `${one.name} ${one.judges} ${one.source}`.toLowerCase().includes(text));
  const groups = Object.entries(LEVELS).map(([level, title]) => [title, fits.filter((one) => one.level === level)]);
  const broken = fits.filter((one) => one.problem);
  byId("evaluators").replaceChildren(
    ...groups.filter(([, members]) => members.length).map(([title, members]) => el("div", { class: "level", role: "group", "aria-label": title }, el("h3", {}, title), el("div", { class: "picks" }, members.map(evaluatorPick)))),
    ...broken.map((one) => el("p", { class: "problem small" }, `${visible(one.source)}: ${visible(one.problem)}`)),
    fits.length ? "" : el("p", { class: "soft" }, "No evaluator is like that."),
  );
  tellChosen();
}

function evaluatorPick(one) {
  const input = el("input", { type: "checkbox" });
  input.checked = chosen.evaluators.has(one.id);
  input.addEventListener("change", () => {
    if (input.checked) chosen.evaluators.add(one.id);
    else chosen.evaluators.delete(one.id);
    tellChosen();
  });
  const tags = [one.asksModel ? null : el("span", { class: "tag" }, "no model"), one.needsReference ? el("span", { class: "tag warn" }, "needs ground truth") : null, one.source === "Proctor" ? null : el("span", { class: "tag" }, visible(one.source))].filter(Boolean);
  return pick(input, el("span", { title: visible(one.name) }, shortName(one.name), " ", ...tags), visible(one.judges));
}

function tellChosen() {
  const count = chosen.evaluators.size + lines("others").length;
  byId("chosen-count").textContent = count ? `${number(count)} chosen` : "";
  const asks = evaluators.some((one) => one.asksModel && chosen.evaluators.has(one.id));
  byId("judge-fields").hidden = !asks && !lines("others").length;
}

async function loadEvaluators() {
  try {
    const found = await api.get("/api/evaluations/evaluators");
    evaluators = found.evaluators;
    if (found.judge) byId("judge").placeholder = found.judge;
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
    // A name can be typed all the same.
  }
});

// ---- What was expected

let checkedTruth = 0;
const checkTruth = debounced(async () => {
  const mine = ++checkedTruth;
  const [verdict, list] = [byId("truth-verdict"), byId("truth-problems")];
  if (!truth.value.trim()) {
    truth.mark([]);
    verdict.textContent = "";
    list.hidden = true;
    return;
  }
  try {
    const found = await api.post("/api/evaluations/truth", { text: truth.value });
    if (mine !== checkedTruth) return;
    truth.mark(found.problems);
    verdict.className = `verdict ${found.problems.length ? "bad" : "good"}`;
    verdict.textContent = found.problems.length ? plural(found.problems.length, "problem") : `${found.name ? `${visible(found.name)}: ` : ""}${found.entries === 1 ? "1 entry" : `${number(found.entries)} entries`}`;
    list.hidden = !found.problems.length;
    list.replaceChildren(...found.problems.map((each) => el("li", {}, el("button", { type: "button", onclick: () => truth.goTo(each.line || 1, each.column || 1) }, el("span", { class: "at" }, each.line ? `line ${each.line}` : ""), el("span", {}, visible(each.problem)), each.remedy ? el("span", { class: "remedy" }, visible(each.remedy)) : null))));
  } catch (error) {
    if (mine === checkedTruth) verdict.textContent = error.message;
  }
}, 300);

truth.addEventListener("edited", checkTruth);
byId("truth-example").addEventListener("click", () => {
  if (!truth.value.trim()) truth.value = EXAMPLE;
  truth.field.focus();
});
byId("truth-file").addEventListener("change", async ({ target }) => {
  const [file] = target.files;
  if (file && file.size > 10_000_000) toast("That file is too large to be typed in here.", "bad", "Give it on the command line: proctor evaluate start --ground-truth FILE.");
  else if (file) truth.value = await file.text();
  target.value = "";
});
byId("files").addEventListener("change", async ({ target }) => {
  for (const file of target.files) {
    if (file.size > 10_000_000) {
      toast(`${file.name} is too large to be sent from here.`, "bad", "Put it on the server's machine and name its path.");
      continue;
    }
    const text = await file.text();
    const kept = await attempt(null, () => api.post("/api/evaluations/files", { name: file.name, text }));
    if (kept) byId("paths").value = [...lines("paths"), kept.path].join("\n");
  }
  target.value = "";
  preview();
});

// ---- Check and start

function forecast(found) {
  const rows = found.evaluators.map((one) => el("tr", {}, el("td", {}, el("b", {}, shortName(one.evaluator))), el("td", { class: "n" }, number(one.results)), el("td", {}, one.model ? `${number(one.calls)} calls of ${visible(one.model)}` : el("span", { class: "soft" }, "no model is asked")), el("td", { class: "n" }, one.model ? money(one.costUsd) : "–")));
  return el("div", { class: "notice good" }, el("p", {}, el("b", {}, `${plural(found.sessions, "session")}, ${plural(found.itemCount, "judgement")}`), `, about ${found.costUsd === null ? "an unknown cost" : money(found.costUsd)}. Nothing was started.`),
    el("div", { class: "forecast" }, el("table", { "aria-label": "What each evaluator takes" }, el("thead", {}, el("tr", {}, ["Evaluator", "Results", "Asks", "About"].map((head, place) => el("th", { scope: "col", class: place % 2 ? "n" : null }, head)))), el("tbody", {}, rows))));
}

byId("check").addEventListener("click", async ({ currentTarget }) => {
  const problems = missing();
  if (problems.length) return tellProblems(problems);
  const found = await attempt(currentTarget, () => api.post("/api/evaluations/check", document_()));
  if (!found) return undefined;
  if (found.problems.length) tellProblems(found.problems.map((each) => [`${each.line ? `line ${each.line}: ` : ""}${visible(each.problem)}${each.remedy ? ` ${visible(each.remedy)}` : ""}`, null]));
  else byId("outcome").replaceChildren(forecast(found));
  return byId("outcome").scrollIntoView({ block: "nearest" });
});

byId("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const problems = missing();
  if (problems.length) return tellProblems(problems);
  byId("outcome").replaceChildren();
  const started = await attempt(byId("start"), () => api.post("/api/evaluations", document_()));
  return started && location.assign(`/evaluations/${encodeURIComponent(started.id)}`);
});

for (const input of document.querySelectorAll("input[name=kind]")) input.addEventListener("change", chooseKind);
for (const id of ["paths", "session-ids", "from", "until", "file-kind"]) byId(id).addEventListener("input", preview);
byId("others").addEventListener("input", tellChosen);
byId("evaluator-search").addEventListener("input", drawEvaluators);
byId("run-search").addEventListener("input", debounced(loadRuns, 200));
const from = new URLSearchParams(location.search).getAll("run");
for (const run of from) chosen.runs.add(run);
if (from.length) document.querySelector("input[value=runs]").checked = true;
chooseKind();
tellChosen();
loadEvaluators();
loadRuns();
if (from.length) preview();
loadSources();
