// Models and agents: what is found here, and, on request, whether it answers.

import { api, byId, DataTable, debounced, el, format, toast } from "./app.js";

const MOST = 300;
let models = [];
let silent = {};

const verdicts = new Map();
const checking = new Set();

function checkCell(kind, name, label, redraw) {
  const key = `${kind} ${name}`;
  const found = verdicts.get(key);
  const busy = checking.has(key);
  const button = el(
    "button",
    { type: "button", class: "compact", "aria-label": `Check ${name}`, "aria-busy": busy ? "true" : null, disabled: busy, dataset: { action: "check" }, onclick: () => check(kind, name, redraw) },
    label,
  );
  return { button, line: found ? el("span", { class: `verdict-line ${found.well ? "well" : "wrong"}`, role: "status" }, found.said, found.remedy ? el("span", { class: "soft" }, ` ${found.remedy}`) : null) : null };
}

async function check(kind, name, redraw) {
  const key = `${kind} ${name}`;
  checking.add(key);
  redraw();
  try {
    const model = kind === "agent" ? byId("agent-model").value.trim() : "";
    verdicts.set(key, await api.post("/api/trials", { [kind]: name, ...(model ? { model } : {}) }));
  } catch (error) {
    verdicts.set(key, { well: false, said: error.message, remedy: error.remedy });
  }
  checking.delete(key);
  redraw();
}

const modelTable = new DataTable({
  label: "Models",
  rowKey: (model) => model.name,
  columns: [
    { key: "name", title: "Model", class: "wide", cell: (model) => el("div", {}, el("span", { class: "name" }, model.name), " ", model.standIn ? el("span", { class: "tag warn" }, "stand-in") : null, model.remark ? el("span", { class: "verdict-line soft" }, model.remark) : null, checkCell("model", model.name, "Check", drawModels).line) },
    { key: "from", title: "From", class: "col-from", cell: (model) => model.source },
    { key: "price", title: "In / out, $ per M", numeric: true, cell: (model) => (model.price ? `${figure(model.price.input)} / ${figure(model.price.output)}` : el("span", { class: "soft" }, "unknown")) },
    { key: "check", title: "", class: "actions-cell", cell: (model) => checkCell("model", model.name, "Check", drawModels).button },
  ],
});

const agentTable = new DataTable({
  label: "Agents",
  rowKey: (agent) => agent.name,
  columns: [
    { key: "name", title: "Agent", class: "wide", cell: (agent) => el("div", {}, el("span", { class: "name" }, agent.name), " ", agent.standIn ? el("span", { class: "tag warn" }, "stand-in") : null, agent.ready ? null : el("span", { class: "verdict-line soft" }, `${agent.problem}. To get it: `, el("code", {}, agent.remedy)), checkCell("agent", agent.name, "Check", drawAgents).line) },
    { key: "ready", title: "Here", cell: (agent) => (agent.ready ? el("span", { class: "ready" }, "ready") : el("span", { class: "soft" }, "not installed")) },
    { key: "version", title: "Version", class: "col-version", cell: (agent) => agent.version || "–" },
    { key: "check", title: "", class: "actions-cell", cell: (agent) => (agent.ready && !agent.standIn && agent.name !== "command" ? checkCell("agent", agent.name, "Check", drawAgents).button : "") },
  ],
});

const figure = (value) => (value === 0 ? "0" : value.toLocaleString("en-US", { maximumSignificantDigits: 4 }));

function drawModels() {
  const search = byId("search").value.trim().toLowerCase();
  const found = models.filter((model) => model.name.toLowerCase().includes(search));
  modelTable.show(found.slice(0, MOST));
  const parts = [];
  for (const [name, why] of Object.entries(silent)) parts.push(el("div", { class: "notice warn" }, `${name} did not list its models: ${why}`));
  parts.push(found.length ? modelTable.element : el("div", { class: "empty" }, el("p", {}, "No model of that name was found.")));
  if (found.length > MOST) parts.push(el("p", { class: "soft small" }, `${format.number(found.length - MOST)} more; search to see them.`));
  byId("models").replaceChildren(...parts);
}

let agents = [];
function drawAgents() {
  agentTable.show(agents);
  byId("agents").replaceChildren(agentTable.element);
}

async function look() {
  const wrong = (id) => (error) => byId(id).replaceChildren(el("div", { class: "notice bad", role: "alert" }, error.message, " ", error.remedy));
  const asked = api.get("/api/models").then((found) => {
    ({ models, silent } = found);
    byId("model-names").replaceChildren(...models.slice(0, 1000).map((model) => el("option", { value: model.name })));
    drawModels();
  }, wrong("models"));
  const others = api.get("/api/agents").then((found) => {
    agents = found.agents.sort((one, other) => other.ready - one.ready);
    drawAgents();
  }, wrong("agents"));
  await Promise.all([asked, others]);
}

byId("search").addEventListener("input", debounced(drawModels, 100));
byId("again").addEventListener("click", async (event) => {
  event.target.disabled = true;
  await look();
  event.target.disabled = false;
  toast("Looked again");
});
look();
