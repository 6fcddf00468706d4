// One evaluation: what each evaluator found, session by session with the reasons, and what people say of it.

import { api, attempt, byId, confirmed, debounced, el, format, query, toast, watch } from "./app.js";
import { drawn } from "./charts.js";
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
const wanted = { by: address.get("by") || "", order: address.get("order") || "lowest", search: address.get("search") || "", offset: Number(address.get("offset")) || 0 };
const opened = new Set([address.get("session")].filter(Boolean));
let job = null;

const figure = (value, digits = 3) => (value === null ? "–" : value.toFixed(digits).replace("-", "−"));
const keyOf = (one) => (one.dimension ? `${one.evaluator}\u0000${one.dimension}` : one.evaluator);
const nameOf = (one) => `${shortName(one.evaluator)}${one.dimension ? ` · ${visible(one.dimension)}` : ""}`;

// ---- The job

function showHead() {
  byId("status").replaceChildren(el("span", { class: `status s-${KINDS[job.state] || "queued"}` }, job.state.toLowerCase().replaceAll("_", " ")), job.isOnline ? el("span", { class: "tag" }, "online") : "");
  const facts = [sourceWords(job.source), job.judge ? `judged by ${visible(job.judge)}` : "", job.votes > 1 ? `${job.votes} votes` : "", job.groundTruth.length ? `against ${job.groundTruth.map(visible).join(", ")}` : ""];
  byId("facts").replaceChildren(...facts.filter(Boolean).map((fact) => el("span", {}, fact)), el("span", { title: format.moment(job.createdAt) }, `started ${format.ago(job.createdAt)}`));
  const underWay = ["PENDING", "IN_PROGRESS", "STOPPING"].includes(job.state);
  byId("stop").hidden = !underWay || job.state === "STOPPING";
  byId("delete").hidden = underWay;
  byId("resume").hidden = !["STOPPED", "COMPLETED_WITH_ERRORS"].includes(job.state);
  byId("resume").textContent = job.state === "STOPPED" ? "Resume" : "Retry failed";
  byId("notices").replaceChildren(
    ...[job.description ? el("p", { class: "soft description" }, visible(job.description)) : null, ...job.details.map((words) => el("div", { class: `notice ${job.state === "FAILED" ? "bad" : "warn"}` }, el("p", {}, visible(words)))), ...job.remarks.map((words) => el("div", { class: "notice warn" }, el("p", {}, visible(words))))].filter(Boolean),
  );
  showProgress(job.counts, job.finishedCount, job.itemCount);
  byId("tiles").replaceChildren(
    tile(number(job.sessions), job.ignored ? `sessions, ${number(job.ignored)} older ignored` : "sessions"),
    tile(number(job.completed), "judged in full"),
    tile(number(job.failed), "with something not judged"),
    tile(money(job.costUsd), job.budgetUsd === null ? "cost" : `of ${money(job.budgetUsd)}`),
    tile(short(job.tokens), "tokens of judges"),
  );
}

const tile = (value, words) => el("div", { class: "tile" }, el("b", {}, value), el("span", {}, words));

function showProgress(counts, finished, total) {
  byId("progress").update(counts);
  byId("done").textContent = total ? `${number(finished)} of ${number(total)} judgements` : job?.state === "PENDING" ? "about to begin" : "no judgements";
}

function sourceWords(source) {
  const [kind] = Object.keys(source);
  const given = source[kind] || {};
  const list = (values, words) => (values?.length ? `${words} ${values.slice(0, 3).map(visible).join(", ")}${values.length > 3 ? " …" : ""}` : "");
  if (kind === "files") return list(given.paths.map((path) => path.split("/").pop()), "from");
  if (kind === "store") return [list(given.runIds, "runs"), list(given.jobs, "jobs"), list(given.models, "models"), list(given.sessionIds, "sessions")].filter(Boolean).join(", ");
  return [list(given.logGroupNames, ""), list(given.serviceNames, "service")].filter(Boolean).join(", ").trim() || "all that arrived";
}

// ---- The evaluators

function showSummaries() {
  const open = new Set([...document.querySelectorAll(".summary details[open]")].map((one) => one.dataset.key));
  if (!job.averages.length) {
    byId("summaries").replaceChildren(el("div", { class: "empty" }, el("h3", {}, "Nothing was judged yet"), el("p", {}, "Averages appear here with the first judgement.")));
    return;
  }
  byId("summaries").replaceChildren(el("div", { class: "summaries" }, job.averages.map((one) => summary(one, open))));
}

function summary(one, open) {
  const average = one.average;
  const key = `${keyOf(one)} ${one.digest}`;
  const interval = average.value === null ? (one.evaluated ? "labels without values" : "nothing yet") : average.low === null ? "too few for an interval" : `${figure(average.low)} to ${figure(average.high)}`;
  const facts = [`${number(one.evaluated)} results in ${plural(one.sessions, "session")}`, one.costUsd ? money(one.costUsd) : "", one.wavering === null ? "" : `votes lie ${figure(one.wavering, 2)} apart`].filter(Boolean).join(" · ");
  const share = average.value === null ? null : meter(average);
  return el("article", { class: "card summary", "aria-label": visible(one.evaluator) },
    el("div", { class: "summary-head" }, el("h3", { title: visible(one.evaluator) }, nameOf(one)), el("span", { class: "tag" }, one.level.replace("_", " ")), one.highIsBad ? el("span", { class: "tag warn" }, "high is bad") : null),
    el("div", { class: "summary-figure" }, el("b", { class: "figures" }, average.value === null ? visible(Object.keys(one.labels)[0] || "–") : figure(average.value)), el("span", { class: "soft figures" }, interval)),
    share,
    el("p", { class: "soft small" }, facts),
    one.failed ? el("p", { class: "problem small" }, `${number(one.failed)} could not be judged${one.ifFailuresWereZero === null ? "" : `; counted as 0, the average would be ${figure(one.ifFailuresWereZero)}`}`) : null,
    one.labelsChart ? el("details", { open: open.has(key) || job.averages.length < 4, dataset: { key } }, el("summary", {}, "Labels"), drawn(one.labelsChart)) : null);
}

function showInsights() {
  byId("insights-part").hidden = !job.insights.length;
  const named = (sessions) => `${sessions.slice(0, 5).map(visible).join(", ")}${sessions.length > 5 ? " …" : ""}`;
  const rows = job.insights.map((one) => el("tr", {}, el("td", {}, shortName(one.insight).replace("Insight.", "")), el("td", {}, visible(one.found)), el("td", { class: "n" }, number(one.sessions.length)), el("td", {}, named(one.sessions)), el("td", {}, visible(one.example))));
  const heads = ["Insight", "Found", "Sessions", "Which", "For example"].map((head) => el("th", { scope: "col", class: head === "Sessions" ? "n" : null }, head));
  byId("insights").replaceChildren(el("div", { class: "table-frame" }, el("table", { "aria-label": "Insights" }, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, rows))));
}

/** The average between 0 and 1 with its interval; nothing for other scales. */
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

// ---- The sessions

let asked = 0;
async function loadSessions() {
  const mine = ++asked;
  const [evaluator, dimension] = wanted.by.split("\u0000");
  const order = wanted.order === "highest" ? { order: "mean", descending: true } : { order: wanted.order, descending: wanted.order === "failed" };
  try {
    const answer = await api.get(`${ADDRESS}/sessions${query({ evaluator, dimension, search: wanted.search, ...order, offset: wanted.offset, limit: SIZE })}`);
    if (mine === asked) showSessions(answer);
  } catch (error) {
    if (mine === asked) byId("sessions").replaceChildren(el("div", { class: "notice bad", role: "alert" }, visible(error.message)));
  }
}

function showSessions(answer) {
  const evaluators = job.averages.filter((one, place, all) => all.findIndex((other) => keyOf(other) === keyOf(one)) === place);
  const columns = evaluators.length <= 5 ? evaluators : [];
  if (!answer.total) {
    byId("sessions").replaceChildren(el("div", { class: "empty" }, el("h3", {}, wanted.search ? "Nothing matches" : job.state === "PENDING" ? "About to look for sessions" : "No sessions"), el("p", {}, wanted.search ? "No session is called that." : "Sessions appear here as soon as they are found.")));
  } else {
    // A row that somebody reads or labels in stays as it is.
    const kept = new Map([...document.querySelectorAll("#sessions .reasons")].map((row) => [row.dataset.session, row]));
    const heads = ["Session", ...columns.map((one) => el("span", { title: visible(one.evaluator) }, nameOf(one))), ...(columns.length ? [] : ["Mean"]), "Lowest", ""];
    const rows = answer.sessions.flatMap((one) => {
      const row = sessionRow(one, columns);
      return opened.has(one.sessionId) ? [row, kept.get(one.sessionId) || reasonsRow(one, heads.length)] : [row];
    });
    byId("sessions").replaceChildren(el("div", { class: "table-frame" }, el("table", { "aria-label": "Sessions", class: "judged" }, el("thead", {}, el("tr", {}, heads.map((head, place) => el("th", { scope: "col", class: place && place < heads.length - 1 ? "n" : null }, head || el("span", { class: "unseen" }, "Reasons"))))), el("tbody", {}, rows))));
  }
  const last = answer.offset + answer.sessions.length;
  byId("pager").hidden = answer.total <= SIZE;
  byId("range").textContent = `${number(answer.offset + 1)} – ${number(last)} of ${number(answer.total)}`;
  byId("before").disabled = !answer.offset;
  byId("after").disabled = last >= answer.total;
}

function sessionRow(one, columns) {
  const scoreOf = (evaluator) => one.scores.find((score) => keyOf(score) === keyOf(evaluator));
  const cells = columns.map((evaluator) => el("td", { class: "n", dataset: { title: nameOf(evaluator) } }, scoreCell(scoreOf(evaluator), evaluator)));
  if (!columns.length) cells.push(el("td", { class: "n", dataset: { title: "Mean" } }, figure(one.mean, 2)));
  const isOpen = opened.has(one.sessionId);
  const button = el("button", { type: "button", class: "quiet compact", "aria-expanded": String(isOpen), "aria-label": `Reasons for ${visible(one.words)}` }, "Reasons");
  button.addEventListener("click", () => toggle(one, button));
  return el("tr", { dataset: { session: one.sessionId } },
    el("td", { class: "col-session" }, el("a", { href: `/sessions/${encodeURIComponent(one.sessionId)}#scores` }, visible(one.words)), one.isOpen ? el("span", { class: "tag" }, "under way") : null, one.failed ? el("span", { class: "problem small" }, ` ${number(one.failed)} not judged`) : null),
    cells,
    el("td", { class: "n", dataset: { title: "Lowest" } }, one.lowest === null ? "–" : el("b", { class: one.lowest < 0.5 ? "low" : null }, figure(one.lowest, 2))),
    el("td", { class: "actions-cell" }, button));
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

// ---- People

async function showJudges() {
  const mine = [...new Set(job.averages.map((one) => one.evaluator))];
  const { judges } = await api.get("/api/judges");
  const those = judges.filter((judge) => mine.includes(judge.evaluator));
  byId("judges-part").hidden = !those.length;
  byId("judges").replaceChildren(judgeCards(those));
}
addEventListener("labelled", debounced(() => showJudges().catch(() => {}), 300));

// ---- What can be done

byId("stop").addEventListener("click", async ({ currentTarget }) => {
  const agreed = await confirmed({ title: `Stop ${visible(job.name)}?`, text: ["What is judged already stays; the rest is left.", "The job can be resumed later."], action: "Stop" });
  if (agreed && (await attempt(currentTarget, () => api.post(`${ADDRESS}/stop`)))) await load();
});
byId("delete").addEventListener("click", async ({ currentTarget }) => {
  const agreed = await confirmed({ title: `Delete ${visible(job.name)}?`, text: "It is taken off the list. Its results stay in the record, and so do the sessions and labels.", action: "Delete" });
  if (agreed && (await attempt(currentTarget, () => api.delete(ADDRESS)))) location.assign("/evaluations");
});
byId("resume").addEventListener("click", async ({ currentTarget }) => {
  const way = job.state === "STOPPED" ? "resume" : "retry?failed=false";
  if (await attempt(currentTarget, () => api.post(`/api/runs/${encodeURIComponent(ID)}/${way}`))) {
    toast("It goes on.", "good");
    await load();
  }
});

const item = (words, where, download = false) => el("a", { class: "menu-item", href: where, ...(download ? { download: "" } : { target: "_blank", rel: "noopener" }) }, words);
menu(byId("export"), [item("Results, a JSON line each", `${ADDRESS}/records`, true), ...["json", "ndjson", "csv", "parquet"].map((kind) => item(`All rows as ${kind.toUpperCase()}`, `/api/runs/${encodeURIComponent(ID)}/export?format=${kind}`, true))]);
menu(byId("report"), [item("Open as a page", `${ADDRESS}/report`), item("Download HTML", `${ADDRESS}/report?download=true`, true), item("Download Markdown", `${ADDRESS}/report?format=md&download=true`, true)]);

// ---- From the first look on

function fillControls() {
  const options = job.averages.filter((one, place, all) => all.findIndex((other) => keyOf(other) === keyOf(one)) === place);
  byId("by").replaceChildren(el("option", { value: "" }, "By all evaluators"), ...options.map((one) => el("option", { value: keyOf(one) }, `By ${nameOf(one)}`)));
  byId("by").value = wanted.by;
  byId("order").value = wanted.order;
}

function changed() {
  history.replaceState(history.state, "", `/evaluations/${encodeURIComponent(ID)}${query({ ...wanted, order: wanted.order === "lowest" ? "" : wanted.order, offset: wanted.offset || "" })}`);
  loadSessions();
}

for (const name of ["by", "order"]) byId(name).addEventListener("change", () => changedTo({ [name]: byId(name).value }));
byId("search").value = wanted.search;
byId("search").addEventListener("input", debounced(() => changedTo({ search: byId("search").value.trim() }), 200));
const changedTo = (values) => {
  Object.assign(wanted, values, { offset: 0 });
  changed();
};
for (const [name, by] of [["before", -SIZE], ["after", SIZE]])
  byId(name).addEventListener("click", () => {
    wanted.offset = Math.max(0, wanted.offset + by);
    changed();
  });

let loads = 0;

async function load() {
  const mine = ++loads;
  try {
    const found = await api.get(ADDRESS);
    // A slow answer must not replace a newer one.
    if (mine !== loads) return;
    job = found;
  } catch (error) {
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
    if (!full || run.status !== "completed") reload();
  });
});
