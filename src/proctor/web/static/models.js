// Available models and agents, and on-demand checks of them.

import { api, byId, DataTable, debounced, el, format, toast } from "./app.js";
import { breakable } from "./texts.js";

const MOST = 300;
let models = [];
let unavailableProviders = {};

const verdicts = new Map();
const checking = new Set();

function checkCell(kind, name, label, redraw) {
  const key = `${kind} ${name}`;
  const verdict = verdicts.get(key);
  const busy = checking.has(key);
  const button = el(
    "button",
    { type: "button", class: "compact", "aria-label": `Check ${name}`, "aria-busy": busy ? "true" : null, disabled: busy, dataset: { action: "check", needs: "run" }, onclick: () => check(kind, name, redraw) },
    label,
  );
  return { button, line: verdict ? el("span", { class: `verdict-line ${verdict.ok ? "well" : "wrong"}`, role: "status" }, verdict.message, verdict.remedy ? el("span", { class: "soft" }, ` ${verdict.remedy}`) : null) : null };
}

async function check(kind, name, redraw) {
  const key = `${kind} ${name}`;
  checking.add(key);
  redraw();
  try {
    const model = kind === "agent" ? byId("agent-model").value.trim() : "";
    verdicts.set(key, await api.post("/api/trials", { [kind]: name, ...(model ? { model } : {}) }));
  } catch (error) {
    verdicts.set(key, { ok: false, message: error.message, remedy: error.remedy });
  }
  checking.delete(key);
  redraw();
}

const modelTable = new DataTable({
  label: "Models",
  rowKey: (model) => model.name,
  columns: [
    { key: "name", title: "Model", class: "wide", cell: (model) => el("div", {}, el("span", { class: "name" }, breakable(model.name)), " ", model.mock ? el("span", { class: "tag warn" }, "mock") : null, model.note ? el("span", { class: "verdict-line soft" }, model.note) : null, checkCell("model", model.name, "Check", drawModels).line) },
    { key: "from", title: "Source", class: "col-from", cell: (model) => model.source },
    { key: "price", title: "Price in / out, USD per 1M tokens", numeric: true, cell: (model) => (model.price ? `${figure(model.price.input)} / ${figure(model.price.output)}` : el("span", { class: "soft" }, "unknown")) },
    { key: "check", title: "Check", class: "actions-cell", cell: (model) => checkCell("model", model.name, "Check", drawModels).button },
  ],
});

const agentTable = new DataTable({
  label: "Agents",
  rowKey: (agent) => agent.name,
  columns: [
    { key: "name", title: "Agent", class: "wide", cell: (agent) => el("div", {}, el("span", { class: "name" }, agent.name), " ", agent.mock ? el("span", { class: "tag warn" }, "mock") : null, agent.ready ? null : el("span", { class: "verdict-line soft" }, `${agent.problem}. To install: `, el("code", {}, agent.remedy)), checkCell("agent", agent.name, "Check", drawAgents).line) },
    { key: "ready", title: "Status", cell: (agent) => (agent.ready ? el("span", { class: "ready" }, "ready") : el("span", { class: "soft" }, "not installed")) },
    { key: "version", title: "Version", class: "col-version", cell: (agent) => agent.version || "–" },
    { key: "check", title: "Check", class: "actions-cell", cell: (agent) => (agent.ready && !agent.mock && agent.name !== "command" ? checkCell("agent", agent.name, "Check", drawAgents).button : "") },
  ],
});

const figure = (value) => (value === 0 ? "0" : value.toLocaleString("en-US", { maximumSignificantDigits: 4 }));

function drawModels() {
  const search = byId("search").value.trim().toLowerCase();
  const matches = models.filter((model) => model.name.toLowerCase().includes(search));
  modelTable.show(matches.slice(0, MOST));
  const parts = [];
  for (const [name, why] of Object.entries(unavailableProviders)) parts.push(el("div", { class: "notice warn" }, `Could not list the models of ${name}: ${why}`));
  parts.push(matches.length ? modelTable.element : el("div", { class: "empty" }, el("p", {}, "No matching models.")));
  if (matches.length > MOST) parts.push(el("p", { class: "soft small" }, `${format.number(matches.length - MOST)} more. Use the search to narrow the list.`));
  byId("models").replaceChildren(...parts);
}

const providersTable = (label) => new DataTable({
  label,
  rowKey: (provider) => provider.name,
  columns: [
    { key: "name", title: "Provider", cell: (provider) => el("b", {}, provider.name) },
    { key: "address", title: "Address", class: "wide", cell: (provider) => el("span", { class: "soft provider-address" }, provider.address || "not set") },
    { key: "key", title: "Key", class: "provider-key", cell: (provider) => (provider.key === "missing" ? el("span", { class: "soft" }, "set ", el("code", {}, provider.keyVariable)) : el("span", { class: "ready" }, provider.key)) },
  ],
});

const providerTable = providersTable("Providers");
const otherTable = providersTable("Providers that are not configured");

function drawProviders(providers) {
  const isConfigured = (provider) => provider.key !== "missing" && provider.address;
  const configured = providers.filter(isConfigured);
  providerTable.show(configured);
  otherTable.show(providers.filter((provider) => !isConfigured(provider)));
  const none = configured.length ? null : el("div", { class: "notice warn" }, el("p", {}, "No provider is configured. Set a key, or use a model on this machine: pip install 'proctor[local]'."));
  const others = el("details", {}, el("summary", {}, "Providers that are not configured"), otherTable.element);
  byId("providers").replaceChildren(...[none, configured.length ? providerTable.element : null, others].filter(Boolean));
}

let agents = [];
function drawAgents() {
  agentTable.show(agents);
  byId("agents").replaceChildren(agentTable.element);
}

async function load() {
  const showError = (id) => (error) => byId(id).replaceChildren(el("div", { class: "notice bad", role: "alert" }, error.message, " ", error.remedy));
  const modelsRequest = api.get("/api/models").then((response) => {
    ({ models, unavailableProviders } = response);
    byId("model-names").replaceChildren(...models.slice(0, 1000).map((model) => el("option", { value: model.name })));
    drawModels();
  }, showError("models"));
  const agentsRequest = api.get("/api/agents").then((response) => {
    agents = response.agents.sort((one, other) => other.ready - one.ready);
    drawAgents();
  }, showError("agents"));
  const providersRequest = api.get("/api/settings").then((response) => drawProviders(response.providers), showError("providers"));
  await Promise.all([modelsRequest, agentsRequest, providersRequest]);
}

byId("search").addEventListener("input", debounced(drawModels, 100));
byId("again").addEventListener("click", async (event) => {
  event.target.disabled = true;
  await load();
  event.target.disabled = false;
  toast("Refreshed");
});
load();
