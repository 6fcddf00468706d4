// The Labeling page: sessions one by one with the rubric, labeled with one key each; scores and other labels are not shown.

import { api, attempt, byId, debounced, el, format, query, remember, remembered, toast } from "./app.js";
import { isTyping, onKeys } from "./keys.js";
import { takeSelection } from "./selection.js";
import { visible } from "./texts.js";
import "./transcript.js";

const { number, plural } = format;
const WHO = "proctor-labels-who";
const person = document.documentElement.dataset.person;
const sessionIds = takeSelection();
const address = new URLSearchParams(location.search);
let queue = null;
let place = 0;
/** Labels given on this page, by place in the queue. */
const given = new Map();

const who = () => person || byId("who").value.trim();
const chosen = () => JSON.parse(byId("evaluator").value);
const current = () => queue.targets[place];

async function loadEvaluators() {
  const { evaluators } = await api.get("/api/labeling");
  const wanted = address.get("evaluator");
  if (wanted && !evaluators.some((one) => one.evaluator === wanted)) evaluators.unshift({ evaluator: wanted, dimension: "" });
  byId("evaluator").replaceChildren(...evaluators.map(({ evaluator, dimension }) => el("option", { value: JSON.stringify([evaluator, dimension]), selected: evaluator === wanted }, visible([evaluator.replace(/^Builtin\./, ""), dimension].filter(Boolean).join(" · ")))));
  byId("start").disabled = !evaluators.length;
  if (evaluators.length) return;
  byId("setup").hidden = true;
  byId("done").hidden = false;
  byId("done").replaceChildren(el("h2", {}, "Nothing to label yet"), el("p", {}, "People label what an evaluator has scored. Evaluate sessions first."), el("a", { class: "button primary", href: "/evaluations/new", dataset: { needs: "run" } }, "New Evaluation"));
}

async function start() {
  const [evaluator, dimension] = chosen();
  if (!person) remember(WHO, who());
  queue = await attempt(byId("start"), () => api.post("/api/labeling", { evaluator, dimension, author: who(), order: byId("order").value, sessionIds }));
  if (!queue) return;
  place = 0;
  given.clear();
  byId("setup").hidden = byId("selection-note").hidden = true;
  byId("rubric").replaceChildren(el("summary", {}, "Rubric"), ...Object.entries(queue.rubric).flatMap(([title, text]) => [el("h3", {}, title), el("p", {}, visible(text))]));
  byId("rubric").open = !matchMedia("(max-width: 860px)").matches;
  byId("rubric").hidden = !Object.keys(queue.rubric).length;
  show();
  showProgress();
}

function show() {
  const isDone = place >= queue.targets.length;
  byId("work").hidden = isDone;
  byId("done").hidden = !isDone;
  if (isDone) return showEnd();
  const { sessionId, target } = current();
  byId("about").replaceChildren(el("a", { href: `/sessions/${encodeURIComponent(sessionId)}`, target: "_blank", rel: "noopener" }, visible(sessionId.slice(0, 12))), target ? ` · label the turn ${visible(target)}` : " · label the whole session");
  byId("place").textContent = `${number(place + 1)} of ${number(queue.targets.length)} · ${number(queue.labeled + given.size)} of ${number(queue.total)} labeled by you`;
  drawChoices();
  const transcript = document.createElement("session-transcript");
  byId("transcript").replaceWith(transcript);
  transcript.id = "transcript";
  transcript.begin({ session: sessionId, started: null });
  transcript.open();
  byId("back").disabled = !place;
  return undefined;
}

function drawChoices() {
  const mine = given.get(place);
  if (queue.ratings.length) {
    byId("choices").replaceChildren(...queue.ratings.map(({ label }, at) => el("button", { type: "button", "aria-pressed": String(mine === label), onclick: () => give({ label }) }, el("kbd", {}, String(at + 1)), visible(label))));
    return;
  }
  const input = el("input", { type: "text", maxlength: 200, "aria-label": "Label or number", placeholder: "Label or number, then Enter", value: mine || "", autocomplete: "off" });
  const form = el("form", {}, input);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const text = input.value.trim();
    if (text) give(Number.isFinite(Number(text)) ? { value: Number(text) } : { label: text });
  });
  byId("choices").replaceChildren(form);
  input.focus();
}

let saving = false;
async function give(label) {
  if (saving) return;
  saving = true;
  const at = place;
  const { sessionId, target } = current();
  const { evaluator, dimension } = queue;
  try {
    await api.post(`/api/sessions/${encodeURIComponent(sessionId)}/labels`, { evaluator, dimension, target, author: who(), ...label });
    given.set(at, label.label ?? String(label.value));
    place = at + 1;
    show();
    showProgress();
  } catch (error) {
    toast(error.message, "bad", error.remedy);
  } finally {
    saving = false;
  }
}

const figure = (value) => (value === null ? "–" : value.toFixed(2).replace("-", "−"));
const showProgress = debounced(async () => {
  const { evaluator, dimension } = queue;
  let progress;
  try {
    progress = await api.get(`/api/labeling/progress${query({ evaluator, dimension, width: byId("width").value })}`);
  } catch {
    // The next label asks again.
    return;
  }
  const facts = [
    ["Labels", `${number(progress.labels)} by ${plural(progress.people, "person", "people")}`],
    progress.shared ? ["People agree on", `${number(progress.peopleAgree)} of ${number(progress.shared)}`] : null,
    progress.humanAlpha === null ? null : ["Alpha of people", figure(progress.humanAlpha)],
    progress.kappa === null ? null : ["Kappa with judge", figure(progress.kappa)],
    ["Judge mean", figure(progress.judgeMean)],
    progress.corrected === null ? null : ["Corrected mean", figure(progress.corrected)],
    progress.low === null ? null : ["95% CI", `${figure(progress.low)} to ${figure(progress.high)}`],
  ].filter(Boolean);
  byId("progress").replaceChildren(...facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
  const biased = byId("order").value === "unsure" ? " Labels of unsure sessions are no random sample: for the corrected mean, label in random order." : "";
  byId("needs").textContent = `${(progress.needs || progress.note).replace(/^./, (first) => first.toUpperCase())}.${biased}`.replace("..", ".");
}, 150);

function showEnd() {
  byId("done").replaceChildren(el("h2", {}, queue.targets.length ? "All labeled" : "Nothing left to label"), el("p", {}, `You have labeled ${number(queue.labeled + given.size)} of ${number(queue.total)}.`), el("div", { class: "actions" }, el("a", { class: "button", href: "/evaluations#judges" }, "Agreement of judges"), el("button", { type: "button", class: "primary", onclick: () => location.reload() }, "Label more")));
}

const skip = () => {
  if (!queue || place >= queue.targets.length) return;
  place += 1;
  show();
};
const back = () => {
  if (!queue || !place) return;
  place -= 1;
  show();
};
byId("skip").addEventListener("click", skip);
byId("back").addEventListener("click", back);
byId("width").addEventListener("change", showProgress);
byId("setup").addEventListener("submit", (event) => {
  event.preventDefault();
  start();
});
onKeys("Labeling", { "1 … 9": ["Give the label with this number", null], s: ["Skip", skip], b: ["Back", back] });
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || !queue || place >= queue.targets.length || document.querySelector("dialog[open]")) return;
  const rating = queue.ratings[Number(event.key) - 1];
  if (rating) give({ label: rating.label });
});

byId("who-field").hidden = Boolean(person);
byId("who").value = remembered(WHO, "");
if (sessionIds.length) {
  byId("selection-note").hidden = false;
  byId("selection-note").textContent = `${plural(sessionIds.length, "selected session")}.`;
}
loadEvaluators().catch((error) => toast(error.message, "bad", error.remedy));
