// The Trends page: one chart per plan, loaded when it comes into view.

import { api, byId, debounced, el, format, go, query, urlOf } from "./app.js";
import { chartCard } from "./charts.js";
import { metricTitle } from "./metrics.js";
import { visible } from "./texts.js";

const { plural } = format;
const PAGE = 12;
const address = new URLSearchParams(location.search);
const filters = { search: address.get("search") || "" };
let all = [];
let shown = PAGE;

function show() {
  const wanted = filters.search.toLowerCase();
  const matching = all.filter((one) => `${one.name} ${one.job}`.toLowerCase().includes(wanted));
  byId("tools").hidden = !all.length;
  byId("more").hidden = matching.length <= shown;
  if (matching.length) byId("trends").replaceChildren(...matching.slice(0, shown).map(card));
  else byId("trends").replaceChildren(el("div", { class: "empty" }, el("h2", {}, all.length ? "No matching plans" : "No trends yet"), el("p", {}, all.length ? "Change or clear the search." : "A trend appears when a plan, or an evaluation of the same name, has run twice.")));
}

const seen = new IntersectionObserver((entries) => entries.filter((entry) => entry.isIntersecting).forEach(({ target }) => {
  seen.unobserve(target);
  const isNamed = address.get("plan") === target.dataset.key;
  load(target, target.dataset.key, ...["metric", "model"].map((name) => (isNamed && address.get(name)) || ""));
}), { rootMargin: "300px" });

function card(one) {
  const body = el("div", { class: "trend-body", dataset: { key: one.key } }, el("p", { class: "loading" }, "Loading…"));
  seen.observe(body);
  return el("section", { class: "card trend", "aria-label": visible(one.name) },
    el("div", { class: "trend-head" }, el("h2", {}, visible(one.name)), el("span", { class: "soft small" }, `${one.job} · ${plural(one.runs, "run")}`)),
    body);
}

async function load(body, key, metric, model) {
  try {
    const answer = await api.get(`/api/trends/line${query({ key, metric, model })}`);
    body.replaceChildren(...parts(answer, body));
    // On a phone a chart is wider than the page: the latest runs are what people look for.
    const frame = body.querySelector(".chart-frame");
    if (frame) frame.scrollLeft = frame.scrollWidth;
  } catch (error) {
    body.replaceChildren(el("div", { class: "notice", role: "alert" }, el("p", {}, visible(error.message)), el("p", { class: "soft" }, visible(error.remedy || ""))));
  }
}

function parts(answer, body) {
  const choose = el("select", { "aria-label": "Metric" }, answer.metrics.map((name) => el("option", { value: name, selected: name === answer.metric }, metricTitle(name))));
  const of = el("select", { "aria-label": "Model" }, [["", "All models together"], ...answer.models.map((name) => [name, visible(name)])].map(([value, words]) => el("option", { value, selected: value === answer.model }, words)));
  const changed = () => {
    history.replaceState(null, "", urlOf(`/trends${query({ ...filters, plan: answer.key, metric: choose.value, model: of.value })}`));
    load(body, answer.key, choose.value, of.value);
  };
  choose.addEventListener("change", changed);
  of.addEventListener("change", changed);
  const marks = answer.chart.marks.map((mark) => ({ ...mark, opens: true }));
  const chart = chartCard({ ...answer.chart, marks, caption: metricTitle(answer.metric) }, { open: (mark) => go(`/runs/${encodeURIComponent(mark.label)}`) });
  return [
    el("p", {}, visible(answer.summary)),
    el("div", { class: "tools" }, answer.metrics.length > 1 ? choose : null, answer.models.length ? of : null),
    chart,
    el("ul", { class: "trend-changes" }, answer.changes.map((one) => change(one, answer.metric))),
    answer.omitted ? el("p", { class: "soft small" }, `${plural(answer.omitted, "earlier run")} not shown.`) : "",
  ];
}

function change(one, metric) {
  const [kind, word] = one.isRegression === null ? ["running", "change"] : one.isRegression ? ["fail", "regression"] : ["success", "improvement"];
  const flipped = `/compare${query({ run: [one.before, one.runId], at: metric, candidate: one.runId, direction: one.direction })}#disagree`;
  return el("li", {}, el("span", { class: `status s-${kind}` }, word), " ", el("a", { href: `/runs/${encodeURIComponent(one.runId)}` }, visible(one.runId)), `: ${visible(one.text)} against `, el("a", { href: `/runs/${encodeURIComponent(one.before)}` }, visible(one.before)), ". ", el("a", { href: flipped, "aria-label": `Tasks that changed from ${visible(one.before)} to ${visible(one.runId)}` }, "Tasks that changed"));
}

byId("search").value = filters.search;
byId("search").addEventListener("input", debounced(() => {
  filters.search = byId("search").value.trim();
  shown = PAGE;
  history.replaceState(null, "", urlOf(`/trends${query(filters)}`));
  show();
}, 150));
byId("more").addEventListener("click", () => {
  shown += PAGE;
  show();
});

api.get("/api/trends").then(({ trends }) => {
  all = trends;
  show();
}, (error) => byId("trends").replaceChildren(el("div", { class: "notice bad", role: "alert" }, el("p", {}, visible(error.message)), el("p", { class: "soft" }, visible(error.remedy || "")))));
