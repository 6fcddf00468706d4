// The playground: one prompt to several models, side by side. Each question is an ordinary run with a budget.

import { api, attempt, badge, byId, el, format, query, remember, remembered, toast, watch } from "./app.js";
import { askTestCase } from "./test_cases.js";
import { visible } from "./texts.js";

const MOST_MODELS = 12;
const MODELS_KEY = "proctor-playground-models";
let stopWatching = () => {};

const names = () => [...new Set(byId("models").value.split(",").map((name) => name.trim()).filter(Boolean))];

/** The plan of a question. Every JSON document is YAML. */
function planText() {
  const settings = byId("tokens").value ? { max_tokens: Number(byId("tokens").value) } : null;
  const entry = {
    prompt: byId("prompt").value,
    model: names(),
    runs: Number(byId("repeats").value),
    ...(byId("system").value.trim() ? { system: byId("system").value } : {}),
    ...(settings ? { settings } : {}),
  };
  return JSON.stringify({ concurrency: 8, budget: Number(byId("budget").value), matrix: [entry] });
}

async function send() {
  if (!byId("question").reportValidity()) return;
  if (names().length > MOST_MODELS) {
    toast("Too many models", "bad", `Choose at most ${MOST_MODELS}, or start a batch.`);
    return;
  }
  remember(MODELS_KEY, byId("models").value);
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
    byId("status").textContent = about.status === "running" ? `${about.finishedCount} of ${format.plural(about.itemCount, "answer")}…` : `${about.status} · ${format.money(about.costUsd)}`;
    byId("answers").replaceChildren(...(await Promise.all(items.map(card))));
  } catch (error) {
    byId("status").textContent = error.message;
  }
}

const texts = new Map();

/** The whole answer of a finished item; the list has only its beginning. */
async function answerOf(item) {
  if (!texts.has(item.sessionId)) {
    const { events } = await api.get(`/api/sessions/${encodeURIComponent(item.sessionId)}/events?limit=50`);
    const answer = events.filter((event) => event.role === "assistant").at(-1);
    texts.set(item.sessionId, answer?.content?.text ?? "");
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
    el("div", { class: "text", tabindex: "0", role: "group", "aria-label": `Answer of ${title}` }, visible(text || item.error || (isFinished ? "(no text)" : "…"))),
    el("div", { class: "actions" }, isFinished && text ? save : null, item.sessionId ? el("a", { href: `/sessions/${encodeURIComponent(item.sessionId)}` }, "Session") : null),
  );
}

byId("send").addEventListener("click", send);
byId("question").addEventListener("submit", (event) => event.preventDefault());
byId("question").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send();
});

async function open() {
  const given = new URLSearchParams(location.search);
  byId("models").value = given.get("models") || remembered(MODELS_KEY, "");
  if (given.get("prompt")) byId("prompt").value = given.get("prompt");
  if (given.get("session")) {
    const session = given.get("session");
    const { text } = await api.get(`/api/sessions/${encodeURIComponent(session)}/prompt`);
    byId("prompt").value = text;
    byId("origin").hidden = false;
    byId("origin").replaceChildren("The prompt of session ", el("a", { href: `/sessions/${encodeURIComponent(session)}` }, session), ". Only the prompt is sent: no files, tools, or earlier messages.");
  }
  if (given.get("run")) show(given.get("run"));
  const { models } = await api.get("/api/models");
  byId("model-names").replaceChildren(...models.slice(0, 1000).map((model) => el("option", { value: model.name })));
}

open().catch((error) => toast(error.message, "bad", error.remedy));
