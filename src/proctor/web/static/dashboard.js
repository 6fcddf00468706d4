// Sessions over time: a chart per metric, each point opens its sessions.

import { api, byId, el, format, go, query, urlOf } from "./app.js";
import { chartCard } from "./charts.js";
import { visible } from "./texts.js";

const { money, number, plural, share, short } = format;
const NAMES = { sessions: "Sessions", errors: "Failed", cost: "Mean cost", seconds: "Mean time" };
const LISTS = ["service", "agent", "version", "prompt", "model", "status", "run", "tool", "score", "label", "tag"];
const address = new URLSearchParams(location.search);
const filters = Object.fromEntries([...new Set(address.keys())].map((name) => [name, LISTS.includes(name) ? address.getAll(name) : address.get(name)]));
let latest = 0;

const title = (metric) => NAMES[metric] || visible(metric.replace(/^score:(Builtin\.)?/, ""));

function card(group, line, by) {
  const marks = line.chart.marks.map((mark) => ({ ...mark, opens: true }));
  const open = (mark) => {
    const point = line.points.find(({ start }) => start === mark.label);
    const more = by ? { [by]: [group.name] } : {};
    go(`/sessions${query({ ...sessionFilters(), ...more, since: point.start, until: point.end })}`);
  };
  return chartCard({ ...line.chart, marks, caption: title(line.metric) }, { open });
}

const sessionFilters = () => Object.fromEntries(Object.entries(filters).filter(([name]) => name !== "by"));

function section(group, by) {
  const facts = [plural(group.sessions, "session"), `${share(group.sessions ? group.failed / group.sessions : 0)} failed`, group.costUsd === null ? "" : money(group.costUsd), `${short(group.tokens)} tokens`].filter(Boolean).join(" · ");
  return el("section", { class: "trend", "aria-label": visible(group.name) || "All sessions" }, el("div", { class: "trend-head" }, by ? el("h2", {}, visible(group.name) || `no ${by}`) : null, el("span", { class: "soft small" }, facts)), el("div", { class: "trends" }, group.lines.map((line) => card(group, line, by))));
}

async function load() {
  const request = ++latest;
  history.replaceState(null, "", urlOf(`/dashboard${query(filters)}`));
  byId("to-sessions").href = urlOf(`/sessions${query(sessionFilters())}`);
  try {
    const answer = await api.get(`/api/session-trend${query(filters)}`);
    if (request !== latest) return;
    byId("about").textContent = answer.groups.length ? `By ${answer.period} (UTC). Bars are 95% bands that hold for all points of a line together; a point opens its sessions.${answer.omitted ? ` ${plural(answer.omitted, "smaller group")} not shown.` : ""}` : "";
    byId("groups").replaceChildren(...(answer.groups.length ? answer.groups.map((group) => section(group, answer.by)) : [el("div", { class: "empty" }, el("h2", {}, "No sessions in this time"), el("p", {}, "Choose a longer time or another service."))]));
    // On a phone a chart is wider than the page: the latest points are what people look for.
    for (const frame of document.querySelectorAll(".chart-frame")) frame.scrollLeft = frame.scrollWidth;
  } catch (error) {
    if (request === latest) byId("groups").replaceChildren(el("div", { class: "notice bad", role: "alert" }, el("p", {}, visible(error.message)), el("p", { class: "soft" }, visible(error.remedy || ""))));
  }
}

async function loadServices() {
  const { facets } = await api.get("/api/sessions?limit=1");
  const names = facets.service.map(({ value }) => value).filter(Boolean);
  for (const name of filters.service || []) if (!names.includes(name)) names.unshift(name);
  byId("service").append(...names.map((name) => el("option", { value: name, selected: filters.service?.[0] === name }, visible(name))));
}

filters.since ||= "30d";
for (const name of ["since", "by"]) {
  const field = byId(name);
  const value = filters[name] || "";
  if (![...field.options].some((option) => option.value === value)) field.append(el("option", { value }, visible(value)));
  field.value = value;
  field.addEventListener("change", () => {
    filters[name] = field.value;
    if (name === "since") delete filters.until;
    load();
  });
}
byId("service").addEventListener("change", ({ target }) => {
  filters.service = target.value ? [target.value] : [];
  load();
});
load();
loadServices().catch(() => {});
