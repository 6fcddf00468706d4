// One evaluation: averages per evaluator, results per session with explanations, and human labels.

import { api, attempt, byId, confirmed, debounced, el, format, go, query, since, toast, urlOf, watch } from "./app.js";
import { fromSvg } from "./charts.js";
import { judgeCards, shortName } from "./judges.js";
import { menu } from "./tabs.js";
import { visible } from "./texts.js";
import "./labels.js";

const { number, money, plural, short } = format;
const ID = byId("evaluation").dataset.evaluation;
const ADDRESS = `/api/evaluations/${encodeURIComponent(ID)}`;
const SIZE = 25;
const KINDS = { COMPLETED: "success", COMPLETED_WITH_ERRORS: "timeout", IN_PROGRESS: "running", PENDING: "queued", STOPPING: "timeout", STOPPED: "halted", FAILED: "fail" };
const address = new URLSearchParams(location.search);
const filters = { by: address.get("by") || "", order: address.get("order") || "lowest", search: address.get("search") || "", offset: Number(address.get("offset")) || 0 };
const opened = new Set([address.get("session")].filter(Boolean));
let job = null;
const isActive = () => ["PENDING", "IN_PROGRESS", "STOPPING"].includes(job.state);

const figure = (value, digits = 3) => (value === null ? "–" : value.toFixed(digits).replace("-", "−"));
const keyOf = (one) => (one.dimension ? `${one.evaluator}\u0000${one.dimension}` : one.evaluator);
const nameOf = (one) => `${shortName(one.evaluator)}${one.dimension ? ` · ${visible(one.dimension)}` : ""}`;

// ---- Header

function showHead() {
  byId("status").replaceChildren(el("span", { class: `status s-${KINDS[job.state] || "queued"}` }, job.state.toLowerCase().replaceAll("_", " ")), job.isOnline ? el("span", { class: "tag" }, "online") : "");
  const facts = [sourceParts(job.source), job.judge ? `judge ${visible(job.judge)}` : "", job.votes > 1 ? `${job.votes} votes` : "", job.groundTruth.length ? `ground truth ${job.groundTruth.map(visible).join(", ")}` : ""];
  byId("facts").replaceChildren(...facts.filter((fact) => fact.length).map((fact) => el("span", {}, fact)), since("started", job.createdAt));
  byId("stop").hidden = !isActive() || job.state === "STOPPING";
  byId("delete").hidden = isActive();
  byId("resume").hidden = !["STOPPED", "COMPLETED_WITH_ERRORS"].includes(job.state);
  byId("resume").textContent = job.state === "STOPPED" ? "Resume" : "Retry failed";
  byId("notices").replaceChildren(
    ...[job.description ? el("p", { class: "soft description" }, visible(job.description)) : null, ...job.details.map((words) => el("div", { class: `notice ${job.state === "FAILED" ? "bad" : "warn"}` }, el("p", {}, visible(words)))), ...job.notes.map((words) => el("div", { class: "notice warn" }, el("p", {}, visible(words))))].filter(Boolean),
  );
  showProgress(job.counts, job.finishedCount, job.itemCount);
  byId("evaluators-title").textContent = job.pairwise ? "Ranking" : "Evaluators";
  byId("sessions-title").textContent = job.pairwise ? "Pairs" : "Sessions";
  byId("tiles").replaceChildren(
    tile(number(job.sessions), `${job.pairwise ? "pairs of sessions" : "sessions"}${job.ignored ? `; ${number(job.ignored)} older skipped` : ""}`),
    tile(number(job.completed), "fully evaluated"),
    tile(number(job.failed), "partially evaluated"),
    tile(money(job.costUsd), job.budgetUsd === null ? "cost" : `of ${money(job.budgetUsd)}`),
    tile(short(job.tokens), "judge tokens"),
  );
}

const tile = (value, words) => el("div", { class: "tile" }, el("b", {}, value), el("span", {}, words));

function showProgress(counts, finished, total) {
  byId("progress").update(counts);
  byId("done").textContent = total ? `${number(finished)} of ${number(total)} items` : job?.state === "PENDING" ? "pending" : "no items";
}

/** Where the sessions come from, with links back to the runs that they belong to. */
function sourceParts(source) {
  const [kind] = Object.keys(source);
  const settings = source[kind] || {};
  const runs = (ids) => (ids?.length ? ["runs ", ...ids.slice(0, 3).flatMap((id, place) => [place ? ", " : "", el("a", { href: `/runs/${encodeURIComponent(id)}` }, visible(id))]), ids.length > 3 ? " …" : ""] : []);
  const list = (values, words) => (values?.length ? `${words} ${values.slice(0, 3).map(visible).join(", ")}${values.length > 3 ? " …" : ""}` : "");
  if (kind === "files") return list(settings.paths.map((path) => path.split("/").pop()), "from");
  if (kind === "store") {
    const rest = [list(settings.jobs, "jobs"), list(settings.models, "models"), list(settings.sessionIds, "sessions")].filter(Boolean).join(", ");
    return [...runs(settings.runIds), settings.runIds?.length && rest ? ", " : "", rest].filter(Boolean);
  }
  return [list(settings.logGroupNames, ""), list(settings.serviceNames, "service")].filter(Boolean).join(", ").trim() || "all received traces";
}

// ---- Evaluators

function showSummaries() {
  const open = new Set([...document.querySelectorAll(".summary details[open]")].map((one) => one.dataset.key));
  if (!job.averages.length) {
    byId("summaries").replaceChildren(el("div", { class: "empty" }, el("h3", {}, "No results yet"), el("p", {}, "Averages appear after the first result.")));
    return;
  }
  byId("summaries").replaceChildren(...(job.pairwise ? [ranking(job.pairwise)] : []), el("div", { class: "summaries" }, (job.pairwise ? [] : job.averages).map((one) => summary(one, open))));
}

/** Who won against whom, of an evaluation that compares sessions in pairs. */
function ranking(pairs) {
  const signed = (value) => `${value > 0 ? "+" : ""}${figure(value, 2)}`;
  const rank = (one) => `${one.rank}${one.rankLow === one.rankHigh ? "" : ` (${one.rankLow} to ${one.rankHigh})`}`;
  const rows = pairs.ranking.map((one) => el("tr", {}, el("td", {}, visible(one.name)), ...[rank(one), signed(one.strength), one.low === null ? "–" : `${signed(one.low)} to ${signed(one.high)}`, number(one.wins), number(one.ties), number(one.losses)].map((value) => el("td", { class: "n" }, value))));
  const heads = ["Name", "Rank", "Strength", "95% CI", "Wins", "Ties", "Losses"].map((head, place) => el("th", { scope: "col", class: place ? "n" : null }, head));
  return el("div", { class: "stack" },
    el("p", {}, `${plural(pairs.pairs, "pair")} on ${plural(pairs.tasks, "task")}, each judged in both orders: ${number(pairs.decided)} with the same winner in both; the others are ties. The place decided ${number(pairs.firstPlace + pairs.secondPlace)} (first ${number(pairs.firstPlace)}, second ${number(pairs.secondPlace)}).`),
    rows.length ? el("div", { class: "table-frame" }, el("table", { "aria-label": "Ranking" }, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, rows))) : el("p", { class: "soft" }, "No ranking: not every name was compared with the others."),
    el("p", { class: "soft small" }, "Strength: log-odds of winning against an average one (Bradley-Terry; a tie is half a win)."));
}

function summary(one, open) {
  const average = one.average;
  const key = `${keyOf(one)} ${one.digest}`;
  const interval = average.value === null ? (one.evaluated ? "labels without values" : "no results yet") : average.low === null ? "not enough data for a CI" : `95% CI ${figure(average.low)} to ${figure(average.high)}, ${one.scope}`;
  const facts = [`${number(one.evaluated)} results in ${plural(one.sessions, "session")}`, one.costUsd ? money(one.costUsd) : "", one.judgeStandardDeviation === null ? "" : `${one.noiseFrom === "calibration" ? "judge SD (calibration)" : "vote SD"} ${figure(one.judgeStandardDeviation, 2)}`].filter(Boolean).join(" · ");
  const share = average.value === null ? null : meter(average);
  return el("article", { class: "card summary", "aria-label": visible(one.evaluator) },
    el("div", { class: "summary-head" }, el("h3", { title: visible(one.evaluator) }, nameOf(one)), el("span", { class: "tag" }, one.level.replace("_", " ")), one.highIsBad ? el("span", { class: "tag warn" }, "lower is better") : null),
    el("div", { class: "summary-figure" }, el("b", { class: "figures" }, average.value === null ? visible(Object.keys(one.labels)[0] || "–") : figure(average.value)), el("span", { class: "soft figures" }, interval)),
    share,
    el("p", { class: "soft small" }, facts),
    one.correction ? el("p", { class: "small" }, visible(one.correction)) : null,
    one.failed ? el("p", { class: "problem small" }, `${number(one.failed)} failed${one.ifFailuresWereZero === null ? "" : `; counted as 0, the average would be ${figure(one.ifFailuresWereZero)}`}`) : null,
    one.labelsChart ? el("details", { open: open.has(key) || job.averages.length < 4, dataset: { key } }, el("summary", {}, "Labels"), fromSvg(one.labelsChart)) : null);
}

function showInsights() {
  byId("insights-part").hidden = !job.insights.length;
  const named = (sessions) => `${sessions.slice(0, 5).map(visible).join(", ")}${sessions.length > 5 ? " …" : ""}`;
  const rows = job.insights.map((one) => el("tr", {}, el("td", {}, shortName(one.insight).replace("Insight.", "")), el("td", {}, visible(one.found)), el("td", { class: "n" }, number(one.sessions.length)), el("td", {}, named(one.sessions)), el("td", {}, visible(one.example))));
  const heads = ["Insight", "Finding", "Sessions", "Session names", "Example"].map((head) => el("th", { scope: "col", class: head === "Sessions" ? "n" : null }, head));
  byId("insights").replaceChildren(el("div", { class: "table-frame" }, el("table", { "aria-label": "Insights" }, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, rows))));
}

/** A bar for an average between 0 and 1 with its CI; null for other scales. */
function meter(average) {
  if (average.value < 0 || average.value > 1) return null;
  const box = el("div", { class: "meter", "aria-hidden": "true" }, el("i", { class: "meter-value" }), el("i", { class: "meter-interval" }));
  const [value, interval] = box.children;
  value.style.width = `${average.value * 100}%`;
  if (average.low === null) interval.remove();
  else {
    interval.style.left = `${Math.max(0, average.low) * 100}%`;
    interval.style.width = `${(Math.min(1, average.high) - Math.max(0, average.low)) * 100}%`;
  }
  return box;
}

// ---- Sessions

let latestRequest = 0;
async function loadSessions() {
  const request = ++latestRequest;
  const [evaluator, dimension] = filters.by.split("\u0000");
  const order = filters.order === "highest" ? { order: "mean", descending: true } : { order: filters.order, descending: filters.order === "failed" };
  try {
    const response = await api.get(`${ADDRESS}/sessions${query({ evaluator, dimension, search: filters.search, ...order, offset: filters.offset, limit: SIZE })}`);
    if (request === latestRequest) showSessions(response);
  } catch (error) {
    if (request === latestRequest) byId("sessions").replaceChildren(el("div", { class: "notice bad", role: "alert" }, visible(error.message)));
  }
}

function showSessions(response) {
  const evaluators = job.averages.filter((one, place, all) => all.findIndex((other) => keyOf(other) === keyOf(one)) === place);
  const columns = evaluators.length <= 5 ? evaluators : [];
  if (!response.total) {
    byId("sessions").replaceChildren(el("div", { class: "empty" }, el("h3", {}, filters.search ? "No matching sessions" : job.state === "PENDING" ? "Pending" : "No sessions"), el("p", {}, filters.search ? "Change or clear the search." : "Sessions appear here when the evaluation has selected them.")));
  } else {
    // Keep open rows: the user may be reading or labeling in one.
    const kept = new Map([...document.querySelectorAll("#sessions .reasons")].map((row) => [row.dataset.session, row]));
    const heads = ["Session", ...columns.map((one) => el("span", { title: visible(one.evaluator) }, nameOf(one))), ...(columns.length ? [] : ["Mean"]), "Lowest", ""];
    const rows = response.sessions.flatMap((one) => {
      const row = sessionRow(one, columns);
      return opened.has(one.sessionId) ? [row, kept.get(one.sessionId) || reasonsRow(one, heads.length)] : [row];
    });
    byId("sessions").replaceChildren(el("div", { class: "table-frame" }, el("table", { "aria-label": "Sessions", class: "judged" }, el("thead", {}, el("tr", {}, heads.map((head, place) => el("th", { scope: "col", class: place && place < heads.length - 1 ? "n" : null }, head || "Details")))), el("tbody", {}, rows))));
  }
  const last = response.offset + response.sessions.length;
  byId("pager").hidden = response.total <= SIZE;
  byId("range").textContent = `${number(response.offset + 1)} – ${number(last)} of ${number(response.total)}`;
  byId("before").disabled = !response.offset;
  byId("after").disabled = last >= response.total;
}

function sessionRow(one, columns) {
  const scoreOf = (evaluator) => one.scores.find((score) => keyOf(score) === keyOf(evaluator));
  const cells = columns.map((evaluator) => el("td", { class: "n", dataset: { title: nameOf(evaluator) } }, scoreCell(scoreOf(evaluator), evaluator)));
  if (!columns.length) cells.push(el("td", { class: "n", dataset: { title: "Mean" } }, figure(one.mean, 2)));
  const isOpen = opened.has(one.sessionId);
  const button = el("button", { type: "button", class: "quiet compact", "aria-expanded": String(isOpen), "aria-label": `Details of ${visible(one.name)}` }, "Details");
  button.addEventListener("click", () => toggle(one, button));
  return el("tr", { dataset: { session: one.sessionId } },
    el("td", { class: "col-session" }, el("a", { href: `/sessions/${encodeURIComponent(one.sessionId)}#scores` }, visible(one.name)), one.isOpen ? el("span", { class: "tag" }, "in progress") : null, one.failed ? el("span", { class: "problem small" }, ` ${number(one.failed)} failed`) : null),
    cells,
    el("td", { class: "n", dataset: { title: "Lowest" } }, lowestCell(one)),
    el("td", { class: "actions-cell" }, button));
}

/** The lowest score with the evaluator that gave it; where high values are bad, the one with the highest. */
function lowestCell(one) {
  if (one.lowest === null) return "–";
  const goodness = (score) => (job.averages.find((each) => keyOf(each) === keyOf(score))?.highIsBad ? 1 - score.mean : score.mean);
  const known = one.scores.filter((score) => score.mean !== null);
  const worst = known.reduce((lowest, score) => (lowest && goodness(lowest) <= goodness(score) ? lowest : score), null);
  const shown = worst && known.length > 1 ? el("span", { class: "soft small lowest-name" }, nameOf(worst)) : null;
  return el("span", {}, el("b", { class: one.lowest < 0.5 ? "low" : null }, figure(one.lowest, 2)), " ", shown);
}

function scoreCell(score, evaluator) {
  if (!score) return el("span", { class: "soft" }, "–");
  if (score.mean === null) return score.failed === score.results ? el("span", { class: "status s-error" }, "failed") : visible(score.label || `${score.results} labels`);
  const bad = evaluator.highIsBad ? score.mean > 0.5 : score.mean < 0.5;
  return el("span", { class: bad ? "low" : null, title: visible(score.label) || null }, figure(score.mean, 2));
}

function toggle(one, button) {
  const row = button.closest("tr");
  const isOpen = opened.has(one.sessionId);
  if (isOpen) {
    opened.delete(one.sessionId);
    row.nextElementSibling?.matches(".reasons") && row.nextElementSibling.remove();
  } else {
    opened.add(one.sessionId);
    row.after(reasonsRow(one, row.cells.length));
  }
  button.setAttribute("aria-expanded", String(!isOpen));
}

function reasonsRow(one, width) {
  const labels = el("proctor-labels", { session: one.sessionId });
  return el("tr", { class: "reasons", dataset: { session: one.sessionId } }, el("td", { colspan: width }, labels));
}

// ---- Agreement with human labels

async function showJudges() {
  const own = [...new Set(job.averages.map((one) => one.evaluator))];
  const { judges } = await api.get("/api/judges");
  const selected = judges.filter((judge) => own.includes(judge.evaluator));
  byId("judges-part").hidden = !selected.length;
  byId("judges").replaceChildren(judgeCards(selected));
}
addEventListener("labeled", debounced(() => showJudges().catch(() => {}), 300));

// ---- Actions

byId("stop").addEventListener("click", async ({ currentTarget }) => {
  const isConfirmed = await confirmed({ title: `Stop ${visible(job.name)}?`, text: ["Finished results are saved; the rest is not evaluated.", "You can resume the evaluation later."], action: "Stop" });
  if (isConfirmed && (await attempt(currentTarget, () => api.post(`${ADDRESS}/stop`)))) await load();
});
byId("delete").addEventListener("click", async ({ currentTarget }) => {
  const isConfirmed = await confirmed({ title: `Delete ${visible(job.name)}?`, text: "The evaluation is removed from this list. Its results, the sessions, and the labels stay in the store.", action: "Delete" });
  if (isConfirmed && (await attempt(currentTarget, () => api.delete(ADDRESS)))) go("/evaluations");
});
byId("resume").addEventListener("click", async ({ currentTarget }) => {
  const action = job.state === "STOPPED" ? "resume" : "retry?failed=false";
  if (await attempt(currentTarget, () => api.post(`/api/runs/${encodeURIComponent(ID)}/${action}`))) {
    toast("Evaluation resumed.", "good");
    await load();
  }
});

const item = (words, where, download = false) => el("a", { class: "menu-item", href: where, ...(download ? { download: "" } : { target: "_blank", rel: "noopener" }) }, words);
menu(byId("export"), [item("Results as JSON Lines", `${ADDRESS}/records`, true), ...["json", "ndjson", "csv", "parquet"].map((kind) => item(`All tables as ${kind.toUpperCase()}`, `/api/runs/${encodeURIComponent(ID)}/export?format=${kind}`, true))]);
menu(byId("report"), [item("Open report", `${ADDRESS}/report`), item("Download HTML", `${ADDRESS}/report?download=true`, true), item("Download Markdown", `${ADDRESS}/report?format=md&download=true`, true)]);

// ---- Controls and loading

function fillControls() {
  const options = job.averages.filter((one, place, all) => all.findIndex((other) => keyOf(other) === keyOf(one)) === place);
  byId("by").replaceChildren(el("option", { value: "" }, "All evaluators"), ...options.map((one) => el("option", { value: keyOf(one) }, nameOf(one))));
  byId("by").value = filters.by;
  byId("order").value = filters.order;
}

function changed() {
  history.replaceState(history.state, "", urlOf(`/evaluations/${encodeURIComponent(ID)}${query({ ...filters, order: filters.order === "lowest" ? "" : filters.order, offset: filters.offset || "" })}`));
  loadSessions();
}

for (const name of ["by", "order"]) byId(name).addEventListener("change", () => changedTo({ [name]: byId(name).value }));
byId("search").value = filters.search;
byId("search").addEventListener("input", debounced(() => changedTo({ search: byId("search").value.trim() }), 200));
const changedTo = (values) => {
  Object.assign(filters, values, { offset: 0 });
  changed();
};
for (const [name, by] of [["before", -SIZE], ["after", SIZE]])
  byId(name).addEventListener("click", () => {
    filters.offset = Math.max(0, filters.offset + by);
    changed();
  });

let latestLoad = 0;

async function load() {
  const request = ++latestLoad;
  try {
    const response = await api.get(ADDRESS);
    // Ignore a response that arrives after a newer one.
    if (request !== latestLoad) return;
    job = response;
  } catch (error) {
    byId("facts").replaceChildren();
    byId("summaries").replaceChildren(el("div", { class: "empty", role: "alert" }, el("h2", {}, visible(error.message)), el("p", {}, visible(error.remedy || ""))));
    return;
  }
  showHead();
  showSummaries();
  showInsights();
  fillControls();
  await loadSessions();
}

const reload = debounced(load, 700);
load().then(() => {
  showJudges().catch(() => {});
  watch("run", ID, ({ run }, { full }) => {
    showProgress(run.counts, run.finishedCount, run.itemCount);
    // It may have ended between the first response and the first live update.
    if (!full || run.status !== "completed" || isActive()) reload();
  });
});
