// The Sessions page: filters with counts, a list that is read in pages, and actions on a selection.

import { api, attempt, badge, byId, confirmed, DataTable, debounced, el, format, go, query, toast, urlOf } from "./app.js";
import { keepSelection } from "./selection.js";
import { menu } from "./tabs.js";
import { visible } from "./texts.js";

const { number, plural, money, seconds, ago, moment, short } = format;
const FACETS = { service: "Service", agent: "Agent", version: "Version", prompt: "Prompt", model: "Model", status: "Status" };
const FIELDS = ["text", "since", "until", "cost", "tokens", "seconds", "tool", "score", "label", "tag", "run"];
const LISTS = ["tool", "score", "label", "tag", "run"];
const FORMATS = { json: "JSON", ndjson: "NDJSON", csv: "CSV", parquet: "Parquet" };
/** Values of a facet that are shown before the rest is asked for. */
const USUAL = 8;
const MOST_SELECTED = 1000;
const form = byId("filters-form");
const selected = new Set();
const unfolded = new Set();
let filters = fromAddress(new URLSearchParams(location.search));
let rows = [];
let next = "";
let total = 0;
let latest = 0;

function fromAddress(parameters) {
  const read = {};
  for (const name of [...FIELDS, ...Object.keys(FACETS)]) {
    const values = parameters.getAll(name);
    read[name] = name in FACETS || LISTS.includes(name) ? values : values[0] || "";
  }
  read.judges = parameters.get("judges") === "true" || "";
  return read;
}

const table = new DataTable({
  label: "Sessions",
  rowKey: (row) => row.session.id,
  open: (row) => go(`/sessions/${encodeURIComponent(row.session.id)}`),
  columns: [
    { key: "check", title: "Select", class: "col-check", cell: checkCell },
    { key: "session", title: "Session", class: "col-session", cell: nameCell },
    { key: "status", title: "Status", class: "col-status", cell: ({ session }) => badge(session.status, session.endReason) },
    { key: "agent", title: "Agent and model", class: "col-agent", cell: ({ session }) => el("div", {}, visible(session.agent || session.service || "–"), el("div", { class: "soft small" }, visible([session.model, session.agentVersion].filter(Boolean).join(" · ")))) },
    { key: "tokens", title: "Tokens", numeric: true, class: "col-tokens", cell: ({ session }) => short(session.tokens) },
    { key: "cost", title: "Cost", numeric: true, class: "col-cost", cell: ({ session }) => money(session.costUsd) },
    { key: "time", title: "Time", numeric: true, class: "col-time", cell: ({ session }) => seconds(session.seconds) },
    { key: "scores", title: "Scores", class: "col-scores", cell: scoresCell },
    { key: "started", title: "Started", class: "col-started", cell: ({ session }) => (session.startedAt ? el("time", { datetime: session.startedAt, title: moment(session.startedAt) }, ago(session.startedAt)) : "–") },
  ],
});

function checkCell({ session, prompt }) {
  const box = el("input", { type: "checkbox", "aria-label": `Select ${visible(prompt || session.name || session.id)}` });
  box.checked = selected.has(session.id);
  box.addEventListener("change", () => {
    if (box.checked) selected.add(session.id);
    else selected.delete(session.id);
    showSelection();
  });
  return box;
}

function nameCell({ session, prompt, outcome }) {
  const name = visible(prompt || session.name || session.id);
  const about = [session.service, session.runId, session.externalId || session.id.slice(0, 12)].filter(Boolean).map(visible).join(" · ");
  const tags = outcome.tags.map((tag) => el("span", { class: "tag" }, visible(tag)));
  return el("div", { class: "session-name" }, el("a", { href: `/sessions/${encodeURIComponent(session.id)}`, dir: "auto", title: name }, outcome.isStarred ? "★ " : "", name), el("span", { class: "soft" }, about), tags.length ? el("span", {}, tags) : null);
}

function scoresCell({ outcome }) {
  const entries = Object.entries(outcome.scores).slice(0, 3);
  if (!entries.length) return el("span", { class: "soft" }, "–");
  return el("div", { class: "score-list" }, entries.map(([name, { value, label }]) => el("span", { class: "tag", title: visible(name) }, `${visible(name.replace(/^Builtin\./, ""))} ${visible(label || (value === null ? "–" : String(Math.round(value * 100) / 100)))}`)));
}

async function load({ more = false } = {}) {
  const request = ++latest;
  try {
    const answer = await api.get(`/api/sessions${query({ ...filters, after: more ? next : "" })}`);
    // Ignore a response that arrives after a newer one.
    if (request !== latest) return;
    rows = more ? [...rows, ...answer.sessions] : answer.sessions;
    next = answer.next;
    total = answer.total;
    show(answer, more);
  } catch (error) {
    if (request !== latest) return;
    byId("total").textContent = "";
    byId("more").hidden = byId("select-all").hidden = true;
    byId("list").replaceChildren(el("div", { class: "empty", role: "alert" }, el("h2", {}, visible(error.message)), el("p", {}, visible(error.remedy || "")), el("button", { type: "button", onclick: () => load() }, "Retry")));
  }
}

function show(answer, more) {
  byId("over-time").href = urlOf(`/dashboard${query(filters)}`);
  const least = answer.isCut ? "at least " : "";
  byId("total").textContent = `${least}${plural(total, "session")}${answer.pending ? ` · ${number(answer.pending)} not searchable yet` : ""}`;
  byId("more").hidden = !next;
  byId("select-all").hidden = !rows.length;
  byId("select-all").textContent = total > MOST_SELECTED ? `Select the newest ${number(MOST_SELECTED)}` : "Select all";
  if (!rows.length) byId("list").replaceChildren(isFiltered() ? noMatches() : noSessions());
  else {
    table.show(rows);
    if (byId("list").firstElementChild !== table.element) byId("list").replaceChildren(table.element);
  }
  if (!more) drawFacets(answer.facets);
}

const isFiltered = () => Object.values(filters).some((value) => (Array.isArray(value) ? value.length : value));

function noMatches() {
  return el("div", { class: "empty" }, el("h2", {}, "No matching sessions"), el("p", {}, "Change or clear the filters."), el("button", { type: "button", onclick: () => apply(fromAddress(new URLSearchParams())) }, "Clear filters"));
}

function noSessions() {
  return el("div", { class: "empty" }, el("h2", {}, "No sessions yet"), el("p", {}, "Sessions come from batches, from traces that agents send to this server, and from files:"), el("pre", {}, "proctor import auto traces.jsonl"));
}

function drawFacets(facets) {
  const focused = document.activeElement?.closest?.(".facet")?.dataset.key;
  const groups = Object.entries(FACETS).map(([name, title]) => {
    const values = facets[name] || [];
    const chosen = filters[name];
    const missing = chosen.filter((value) => !values.some((one) => one.value === value)).map((value) => ({ value, sessions: 0 }));
    const all = [...missing, ...values];
    if (all.length < 2 && !chosen.length) return null;
    const shown = unfolded.has(name) ? all : all.filter((one, place) => place < USUAL || chosen.includes(one.value));
    const rest = all.length > shown.length ? el("button", { type: "button", class: "quiet compact", onclick: () => { unfolded.add(name); drawFacets(facets); } }, `Show all ${number(all.length)}`) : null;
    return el("fieldset", {}, el("legend", {}, title), shown.map((one) => facetBox(name, one)), rest);
  });
  byId("facet-list").replaceChildren(...groups.filter(Boolean));
  byId("facets").hidden = !groups.some(Boolean);
  if (focused) [...document.querySelectorAll(".facet")].find((one) => one.dataset.key === focused)?.firstChild.focus();
}

function facetBox(name, { value, sessions }) {
  const box = el("input", { type: "checkbox" });
  box.checked = filters[name].includes(value);
  box.addEventListener("change", () => apply({ ...filters, [name]: box.checked ? [...filters[name], value] : filters[name].filter((one) => one !== value) }));
  return el("label", { class: "facet", dataset: { key: `${name} ${value}` } }, box, el("span", { title: visible(value) || null }, visible(value) || "none"), el("span", { class: "figures" }, number(sessions)));
}

// ---- Filters

function apply(changed) {
  filters = changed;
  history.replaceState(null, "", urlOf(`/sessions${query(filters)}`));
  fillForm();
  load();
}

function fillForm() {
  for (const name of FIELDS) {
    const field = form.elements[name];
    const value = LISTS.includes(name) ? filters[name].join(", ") : filters[name];
    if (name === "since" && !/^\d+[hdw]$/.test(value)) {
      field.value = "";
      form.elements.from.value = value;
    } else if (document.activeElement !== field) field.value = value;
  }
  form.elements.judges.checked = Boolean(filters.judges);
}

function readForm() {
  const read = { ...filters };
  for (const name of FIELDS) {
    const text = form.elements[name].value.trim();
    read[name] = LISTS.includes(name) ? text.split(",").map((one) => one.trim()).filter(Boolean) : text;
  }
  read.since ||= form.elements.from.value;
  read.judges = form.elements.judges.checked || "";
  return read;
}

const changed = debounced(() => form.reportValidity() && apply(readForm()), 300);
form.addEventListener("input", changed);
form.addEventListener("submit", (event) => event.preventDefault());
byId("more").addEventListener("click", ({ currentTarget }) => attempt(currentTarget, () => load({ more: true })));
if ([...FIELDS.slice(2), "from"].some((name) => (filters[name] || "").length)) byId("more-filters").open = true;
if (matchMedia("(max-width: 760px)").matches) byId("facets").open = false;

// ---- Saved filters

let saved = [];
function showSaved(answer) {
  saved = answer.filters;
  const choose = byId("saved");
  choose.replaceChildren(el("option", { value: "" }, "Saved filters…"), ...saved.map(({ name }) => el("option", { value: name }, visible(name))));
  choose.hidden = byId("compare-saved").hidden = !saved.length;
  byId("forget").hidden = true;
}

byId("saved").addEventListener("change", ({ target }) => {
  const found = saved.find(({ name }) => name === target.value);
  byId("forget").hidden = !found;
  if (found) apply(fromAddress(new URLSearchParams(query(found.filter))));
});
/** Compare the shown sessions with those of a saved filter. */
byId("compare-saved").addEventListener("click", ({ currentTarget }) => {
  const choose = el("select", { "aria-label": "Saved filter" }, saved.map(({ name }) => el("option", { value: name }, visible(name))));
  const result = el("div", { role: "status" });
  const load_ = async () => {
    const answer = await attempt(currentTarget, () => api.get(`/api/session-compare${query({ ...filters, with: choose.value })}`));
    if (!answer) return result.replaceChildren();
    const digits = (value) => (value === null ? "–" : Number(value.toPrecision(3)).toString().replace("-", "−"));
    const line = (one) => el("tr", {}, el("td", {}, visible(one.metric.replace(/^score:(Builtin\.)?/, ""))), [one.first, one.second, one.difference].map((value) => el("td", { class: "n" }, digits(value))), el("td", { class: "n" }, one.low === null ? "–" : `${digits(one.low)} to ${digits(one.high)}`), el("td", {}, one.isSignificant ? "significant" : "not significant"));
    return result.replaceChildren(
      el("p", { class: "soft small" }, `${plural(answer.firstSessions, "session")} shown, ${plural(answer.secondSessions, "session")} of the saved filter. All intervals hold together at 95%.`),
      el("div", { class: "table-frame" }, el("table", { "aria-label": "Comparison of selections" }, el("thead", {}, el("tr", {}, ["Metric", "Shown", "Saved", "Difference", "95% CI", "Verdict"].map((head, place) => el("th", { class: place && place < 5 ? "n" : null, scope: "col" }, head)))), el("tbody", {}, answer.metrics.map(line)))),
    );
  };
  choose.addEventListener("change", load_);
  const dialog = el("dialog", { class: "dialog comparison-dialog", "aria-labelledby": "compare-title" }, el("form", { method: "dialog" }, el("h2", { id: "compare-title" }, "Compare with saved filter"), choose, result, el("div", { class: "actions" }, el("button", { class: "primary" }, "Close"))));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  load_();
});

byId("forget").addEventListener("click", async ({ currentTarget }) => {
  const name = byId("saved").value;
  if (!(await confirmed({ title: `Delete the filter ${name}?`, text: "Sessions are not changed.", action: "Delete" }))) return;
  const answer = await attempt(currentTarget, () => api.delete(`/api/session-filters/${encodeURIComponent(name)}`));
  if (answer) showSaved(answer);
});
byId("save").addEventListener("click", async ({ currentTarget }) => {
  const name = await askText("Save filter", "Name", byId("saved").value);
  if (!name) return;
  const answer = await attempt(currentTarget, () => api.post(`/api/session-filters/${encodeURIComponent(name)}${query(filters)}`));
  if (!answer) return;
  showSaved(answer);
  byId("saved").value = name;
  byId("forget").hidden = false;
  toast("Filter saved.", "good");
});

/** Ask for one line of text; resolves with it, or with an empty text. */
function askText(title, label, value, pattern = null) {
  return new Promise((resolve) => {
    const input = el("input", { required: true, maxlength: 100, value, pattern });
    const dialog = el("dialog", { class: "dialog", "aria-labelledby": "ask-title" }, el("form", { method: "dialog" }, el("h2", { id: "ask-title" }, title), el("label", { class: "field" }, label, input), el("div", { class: "actions" }, el("button", { value: "no", class: "quiet", formnovalidate: true }, "Cancel"), el("button", { value: "yes", class: "primary" }, "Save"))));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes" ? input.value.trim() : "");
    });
    document.body.append(dialog);
    dialog.showModal();
    input.select();
  });
}

// ---- Selection

const bar = byId("selection");
const button = (action) => bar.querySelector(`[data-action=${action}]`);
const exportLinks = Object.entries(FORMATS).map(([form_, title]) => el("a", { class: "menu-item", dataset: { form: form_ }, download: "" }, title));
menu(button("export"), exportLinks).box.classList.add("upward");

function showSelection() {
  bar.hidden = !selected.size;
  byId("selection-count").textContent = `${number(selected.size)} selected`;
  button("compare").disabled = selected.size !== 2;
  button("compare").title = selected.size === 2 ? "" : "Select two sessions.";
  const some = [...selected].slice(0, 400);
  // More than an address takes: all that the filter selects.
  const isAll = selected.size > some.length;
  for (const link of exportLinks) link.href = urlOf(`/api/session-export${query({ ...(isAll ? filters : { session: some }), format: link.dataset.form })}`);
}

byId("select-all").addEventListener("click", async ({ currentTarget }) => {
  const answer = await attempt(currentTarget, () => api.get(`/api/session-ids${query({ ...filters, limit: MOST_SELECTED })}`));
  if (!answer) return;
  for (const id of answer.sessionIds) selected.add(id);
  table.show(rows);
  showSelection();
});
button("clear").addEventListener("click", () => {
  selected.clear();
  table.show(rows);
  showSelection();
});
button("compare").addEventListener("click", () => {
  const [left, right] = selected;
  go(`/compare/sessions${query({ left, right })}`);
});
for (const [action, path] of [["evaluate", "/evaluations/new?"], ["pairs", "/evaluations/new?pairs=1&"], ["label", "/labeling?"]])
  button(action).addEventListener("click", () => {
    keepSelection([...selected]);
    go(`${path}selection=1`);
  });
button("cases").addEventListener("click", async ({ currentTarget }) => {
  const dataset = await askText(`Make ${plural(selected.size, "test case")}`, "Dataset", "test_cases", "[A-Za-z][A-Za-z0-9_]{0,47}");
  if (!dataset) return;
  const answer = await attempt(currentTarget, () => api.post("/api/test-cases/from-sessions", { dataset, sessionIds: [...selected] }));
  if (answer) toast(`Saved ${plural(answer.saved, "test case")}. ${visible(dataset)} has ${number(answer.examples)}.`, "good");
});
button("tag").addEventListener("click", async ({ currentTarget }) => {
  const text = await askText(`Tag ${plural(selected.size, "session")}`, "Tag", "");
  if (!text) return;
  const done = await attempt(currentTarget, () => api.post("/api/annotations", { sessionIds: [...selected], kind: "tag", text }));
  if (!done) return;
  toast(`${plural(selected.size, "session")} tagged.`, "good");
  load();
});

fillForm();
load();
api.get("/api/session-filters").then(showSaved, () => {});
