// The playground: one prompt to several models, side by side. Each question is an ordinary run with a budget.

import { api, attempt, badge, byId, el, format, query, remember, remembered, toast, watch } from "./app.js";
import { wholeText } from "./api.js";
import { askTestCase } from "./test_cases.js";
import { visible } from "./texts.js";

const MOST_MODELS = 12;
const MODELS_KEY = "proctor-playground-models";
let stopWatching = () => {};

const names = () => [...new Set(byId("models").value.split(",").map((name) => name.trim()).filter(Boolean))];

/** The plan of a question. Every JSON document is YAML, but for characters that YAML does not accept unescaped. */
function planText() {
  const settings = byId("tokens").value ? { max_tokens: Number(byId("tokens").value) } : null;
  const entry = {
    prompt: byId("prompt").value,
    model: names(),
    runs: Number(byId("repeats").value),
    ...(byId("system").value.trim() ? { system: byId("system").value } : {}),
    ...(settings ? { settings } : {}),
  };
  const budget = byId("budget").value ? { budget: Number(byId("budget").value) } : {};
  const [input, output] = ["input", "output"].map((kind) => byId(`${kind}-price`).value);
  const declared = input || output ? { prices: Object.fromEntries(names().map((name) => [name, { input: Number(input), output: Number(output) }])) } : {};
  const text = JSON.stringify({ concurrency: 8, ...budget, ...declared, matrix: [entry] });
  return text.replace(/[\u007f-\u009f\ufeff\ufffe\uffff]/g, (mark) => `\\u${mark.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

async function send() {
  if (!byId("question").reportValidity()) return;
  if (names().length > MOST_MODELS) {
    toast("Too many models", "bad", `Choose at most ${MOST_MODELS}, or start a batch.`);
    return;
  }
  remember(MODELS_KEY, byId("models").value);
  // What was wrong with the last question is no longer true of this one.
  byId("toasts").replaceChildren();
  const started = await attempt(byId("send"), () => api.post("/api/runs", { text: planText() }));
  if (started) show(started.runId);
}

function show(run) {
  stopWatching();
  history.replaceState(null, "", `?run=${encodeURIComponent(run)}`);
  byId("run-link").href = `${document.documentElement.dataset.root || ""}/runs/${encodeURIComponent(run)}`;
  byId("run-link").hidden = false;
  byId("answers").replaceChildren();
  const refresh = () => load(run);
  refresh();
  stopWatching = watch("run", run, refresh, (error) => toast(error.problem, "bad", error.remedy)) || (() => {});
}

async function load(run) {
  try {
    const [{ items }, about] = await Promise.all([
      api.get(`/api/runs/${encodeURIComponent(run)}/items${query({ limit: 200, outcomes: true })}`),
      api.get(`/api/runs/${encodeURIComponent(run)}`),
    ]);
    byId("status").textContent = about.status === "running" ? `${format.number(about.finishedCount)} of ${format.plural(about.itemCount, "answer")}…` : `${about.status} · ${format.money(about.costUsd)}`;
    byId("answers").replaceChildren(...(await Promise.all(items.map(card))));
  } catch (error) {
    byId("status").textContent = visible(error.message);
  }
}

const texts = new Map();

/** The whole answer of a finished item; the list has only its beginning. */
async function answerOf(item) {
  if (!texts.has(item.sessionId)) {
    const { events } = await api.get(`/api/sessions/${encodeURIComponent(item.sessionId)}/events?limit=50`);
    const answer = events.findLast((event) => event.kind === "message" && event.role === "assistant");
    texts.set(item.sessionId, answer ? await wholeText(item.sessionId, answer) : "");
  }
  return texts.get(item.sessionId);
}

async function card(item) {
  const isFinished = !["queued", "running"].includes(item.status);
  const text = isFinished && item.sessionId ? await answerOf(item).catch(() => item.outcome?.answer || "") : "";
  const facts = [item.seconds === null ? "" : format.seconds(item.seconds), item.tokensTotal ? `${format.number(item.tokensTotal)} tokens` : "", item.costUsd === null ? "" : format.money(item.costUsd)].filter(Boolean);
  const save = el("button", { type: "button", class: "compact", dataset: { needs: "label" }, onclick: () => askTestCase({ prompt: byId("prompt").value, expected: text, sessionId: item.sessionId }) }, "Save as test case");
  const title = item.model + (item.repeat > 1 ? ` #${item.repeat}` : "");
  return el(
    "article",
    { class: "card" },
    el("h2", {}, visible(title)),
    item.status === "success" ? null : badge(item.status, item.reason),
    el("p", { class: "facts" }, facts.join(" · ") || "…"),
    el("div", { class: "text", tabindex: "0", role: "group", "aria-label": visible(`Answer of ${title}`) }, visible(text || item.error || (isFinished ? "(no text)" : "…"))),
    el("div", { class: "actions" }, isFinished && text ? save : null, item.sessionId ? el("a", { href: `/sessions/${encodeURIComponent(item.sessionId)}` }, "Session") : null),
  );
}

byId("send").addEventListener("click", send);
byId("question").addEventListener("submit", (event) => event.preventDefault());
byId("question").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send();
});

async function open() {
  const parameters = new URLSearchParams(location.search);
  byId("models").value = parameters.get("models") || remembered(MODELS_KEY, "");
  if (parameters.get("prompt")) byId("prompt").value = parameters.get("prompt");
  if (parameters.get("session")) {
    const session = parameters.get("session");
    const { text } = await api.get(`/api/sessions/${encodeURIComponent(session)}/prompt`);
    byId("prompt").value = text;
    byId("origin").hidden = false;
    byId("origin").replaceChildren("The prompt of session ", el("a", { href: `/sessions/${encodeURIComponent(session)}` }, visible(session)), ". Only the prompt is sent: no files, tools, or earlier messages.");
  }
  if (parameters.get("run")) show(parameters.get("run"));
  const { models } = await api.get("/api/models");
  byId("model-names").replaceChildren(...models.slice(0, 1000).map((model) => el("option", { value: model.name })));
}

open().catch((error) => toast(error.message, "bad", error.remedy));
