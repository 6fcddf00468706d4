// The Items tab of the Run page: search, filters, groups of failures, columns, the grid, and actions on selected items.

import { api, attempt, byId, confirmed, copyLink, debounced, el, format, go, query, remember, remembered, STATUSES, toast, urlOf } from "./app.js";
import { activeFilters, isStatusOnly, isUnfiltered, listQuery, parametersOf, readColumns, readFilters, without, writeQuery } from "./item_query.js";
import { columnsFor, itemsOf } from "./items.js";
import { statusWord } from "./run_actions.js";
import { menu } from "./tabs.js";
import { visible } from "./texts.js";

const { number, plural } = format;
const NARROW_SCREEN = "(max-width: 760px)";
/** Columns of scores that are shown unless others are chosen. */
const USUAL_SCORES = 3;
/** How often groups of failures are loaded while a run goes on, in milliseconds. */
const FAILURES_REFRESH = 5000;
const FORMATS = { json: "JSON", ndjson: "NDJSON", csv: "CSV", parquet: "Parquet" };

const isNarrow = () => matchMedia(NARROW_SCREEN).matches;

/** The promise of the first page of items, as the address asks for them. */
export const firstItems = (run) => itemsOf(run, readFilters());

export class ItemsPanel {
  /** `page` has the job's columns, `run` is the API's answer, `first` the promise of the first page of items. */
  constructor(page, run, first) {
    Object.assign(this, { page, run, address: `/api/runs/${encodeURIComponent(run.runId)}` });
    this.scores = [];
    this.constants = [];
    this.hasAnswers = false;
    this.columns = this.knownColumns();
    this.chosen = readColumns();
    this.grid = document.createElement("item-grid");
    this.filters = readFilters();
    byId("search").value = this.filters.search;
    byId("items").replaceChildren(this.grid);
    this.makeColumnMenu();
    this.makeFilterMenu();
    this.makeFailures();
    this.makeSelectionBar();
    this.grid.begin({
      run: run.runId,
      columns: this.chosenColumns(),
      filters: this.filters,
      changed: (response) => this.changed(response),
      list: () => this.listQuery,
      chose: (selected) => this.showSelection(selected),
      first,
    });
    byId("copy-items").addEventListener("click", ({ currentTarget }) => copyLink(currentTarget));
    // At once, so that nothing moves when the items arrive.
    this.showFilters();
    matchMedia(NARROW_SCREEN).addEventListener("change", () => this.grid.setColumns(this.chosenColumns()));
    byId("search").addEventListener("input", debounced(({ target }) => this.grid.reload({ search: target.value.trim() }), 200));
    byId("search").addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown" || event.key === "Enter") {
        event.preventDefault();
        this.grid.body.focus();
      }
    });
    // An entry of the history whose filters differ: a link within the page, or Back to it.
    addEventListener("popstate", () => this.followAddress());
  }

  followAddress() {
    const filters = readFilters();
    if (listQuery(filters) === listQuery(this.grid.wanted)) return;
    byId("search").value = filters.search;
    this.grid.reload(filters);
  }

  get listQuery() {
    return listQuery(this.grid.filters, this.chosen);
  }

  /** Apply a live update; `reload` if items may have changed that it does not list. */
  update(changes, { reload }) {
    if (isStatusOnly(this.grid.filters)) this.showChips(changes.run.counts);
    if (reload) this.grid.refresh();
    if (changes.items?.length) this.grid.update(changes.items);
    this.run = { ...this.run, ...changes.run };
    this.showFailureCount();
  }

  /** A page of items has been loaded. */
  changed(response) {
    this.learnColumns(response.items, response.total);
    this.showChips(response.counts);
    this.showFilters();
    this.showFailureCount();
    writeQuery(this.grid.filters, this.chosen);
  }

  // ---- Columns

  get columnsKey() {
    return `proctor-columns-${this.page.dataset.job}${isNarrow() ? "-narrow" : ""}`;
  }

  knownColumns() {
    return columnsFor(this.run.factors, JSON.parse(this.page.dataset.columnTitles), "evaluates" in this.page.dataset, this.scores, (status) => statusWord(this.run, status));
  }

  /** Columns of scores and answers exist once an item has one. */
  learnColumns(items, total) {
    this.learnConstants(items, total);
    const names = new Set(this.scores);
    for (const { outcome } of items) for (const name of Object.keys(outcome?.scores || {})) names.add(name);
    const hasAnswers = this.hasAnswers || items.some(({ outcome }) => outcome?.answer);
    if (names.size === this.scores.length && hasAnswers === this.hasAnswers) return;
    this.scores = [...names].sort();
    this.hasAnswers = hasAnswers;
    this.columns = this.knownColumns();
    this.grid.setColumns(this.chosenColumns());
    this.fillColumnMenu();
  }

  /** Factors with one level in all items are no default columns. */
  learnConstants(items, total) {
    if (this.constants.length || items.length < total || items.length < 2 || !isUnfiltered(this.grid.filters)) return;
    const levels = (name) => new Set(items.map((item) => item.factors[name] ?? ""));
    this.constants = this.run.factors.filter((name) => levels(name).size === 1).map((name) => `factor:${name}`);
    if (!this.constants.length) return;
    this.grid.setColumns(this.chosenColumns());
    this.fillColumnMenu();
  }

  /** The columns of the address, those the user selected last, or the non-empty default columns of the job type. */
  chosenColumns() {
    const known = new Map(this.columns.map((column) => [column.key, column]));
    const chosen = (this.chosen || remembered(this.columnsKey, null))?.filter((key) => known.has(key));
    if (chosen?.length) return chosen.map((key) => known.get(key));
    const every = (key) => {
      if (!key.endsWith(":*")) return [key];
      const all = this.columns.map((column) => column.key).filter((name) => name.startsWith(key.slice(0, -1)));
      return key === "score:*" ? all.slice(0, USUAL_SCORES) : all.filter((name) => !this.constants.includes(name));
    };
    const usual = new Set(JSON.parse(isNarrow() ? this.page.dataset.narrowColumns : this.page.dataset.columns).flatMap(every));
    const empty = new Set([
      this.run.factors.includes("repository") || this.run.factors.includes("repo") ? "" : "repo",
      this.run.agentsAndModels.some(({ agent }) => agent) ? "" : "agent",
      this.run.agentsAndModels.some(({ model }) => model) ? "" : "model",
      this.hasAnswers ? "" : "answer",
    ]);
    return [...usual].filter((key) => known.has(key) && !empty.has(key)).map((key) => known.get(key));
  }

  makeColumnMenu() {
    this.columnBoxes = el("div", {});
    menu(byId("columns"), this.columnBoxes, { stays: true });
    this.fillColumnMenu();
  }

  fillColumnMenu() {
    const shown = new Set(this.chosenColumns().map(({ key }) => key));
    const boxes = this.columns.map((column) => {
      const box = el("input", { type: "checkbox", value: column.key });
      box.checked = shown.has(column.key);
      box.addEventListener("change", () => {
        const chosen = boxes.map((label) => label.firstChild).filter((one) => one.checked).map((one) => one.value);
        if (!chosen.length) return (box.checked = true);
        this.chosen = chosen;
        remember(this.columnsKey, chosen);
        this.grid.setColumns(this.chosenColumns());
        writeQuery(this.grid.filters, this.chosen);
      });
      return el("label", { class: "check menu-item" }, box, column.title === "#" ? "Position in plan" : visible(column.longTitle || column.title));
    });
    this.columnBoxes.replaceChildren(...boxes);
  }

  // ---- Filters

  showChips(counts) {
    const all = Object.values(counts).reduce((sum, count) => sum + count, 0);
    const chosen = this.grid.filters.status;
    const chip = (status, count) => {
      const pressed = status ? chosen.includes(status) : !chosen.length;
      return el(
        "button",
        { type: "button", class: "chip", "aria-pressed": String(pressed), dataset: { status }, onclick: () => this.choose(status) },
        status ? el("i", { class: `b-${status}` }) : null,
        status ? statusWord(this.run, status) : "all",
        el("span", { class: "figures" }, number(count)),
      );
    };
    const focusedStatus = document.activeElement?.closest?.("#chips .chip")?.dataset.status;
    byId("chips").replaceChildren(chip("", all), ...STATUSES.filter((status) => counts[status] || chosen.includes(status)).map((status) => chip(status, counts[status])));
    if (focusedStatus !== undefined) byId("chips").querySelector(`[data-status="${focusedStatus}"]`)?.focus();
  }

  choose(status) {
    const before = this.grid.wanted.status;
    const next = !status ? [] : before.includes(status) ? before.filter((one) => one !== status) : [...before, status];
    this.grid.reload({ status: next });
  }

  /** The active filters, each with a button that removes it. */
  showFilters() {
    const active = activeFilters(this.grid.filters);
    const box = byId("filters");
    const remove = (name, value) => {
      this.grid.reload(without(this.grid.wanted, name, value));
      byId("filter").focus();
    };
    const cross = () => el("span", { "aria-hidden": "true" }, "×");
    const chips = active.map(([name, value, words]) =>
      el("button", { type: "button", class: "chip filter", "aria-label": `Remove filter: ${words}`, title: words, onclick: () => remove(name, value) }, el("span", { class: "filter-words" }, visible(name === "group" ? this.groupWords(value) : words)), cross()),
    );
    const none = Object.fromEntries(active.map(([name]) => [name, without(this.grid.filters, name, null)[name]]).map(([name, value]) => [name, Array.isArray(value) ? [] : value]));
    if (chips.length) chips.push(el("button", { type: "button", class: "quiet compact", onclick: () => this.grid.reload(none) }, "Clear filters"));
    box.hidden = !chips.length;
    box.replaceChildren(...chips);
  }

  makeFilterMenu() {
    const fields = [
      this.run.agentsAndModels.some(({ model }) => model) ? ["model", "Model"] : null,
      this.run.agentsAndModels.some(({ agent }) => agent) ? ["agent", "Agent"] : null,
      ["reason", "Reason"],
      ...this.run.factors.filter((name) => !["model", "agent"].includes(name)).map((name) => [`factor:${name}`, name]),
      ["score", "Score"],
      ["duration", "Time"],
      ["tag", "Tag"],
      ["marks", "Notes and stars"],
    ].filter(Boolean);
    const field = el("select", { "aria-label": "Filter by" }, fields.map(([value, title]) => el("option", { value }, visible(title))));
    const box = el("div", { class: "filter-values" });
    const show = () => this.showValues(field.value, box);
    field.addEventListener("change", show);
    menu(byId("filter"), [el("div", { class: "menu-field" }, field), box], { stays: true });
    byId("filter").addEventListener("click", show);
  }

  async showValues(field, box) {
    // Of several requests, only the answer to the last is shown.
    this.shownField = field;
    if (field === "marks") return box.replaceChildren(...["noted", "starred"].map((name) => this.flagBox(name)));
    if (field === "duration") return box.replaceChildren(this.durationField());
    box.setAttribute("aria-busy", "true");
    try {
      const { levels } = await api.get(`${this.address}/levels${query({ of: field })}`);
      if (this.shownField !== field) return undefined;
      const make = field === "score" ? (level) => this.rangeField(level) : (level) => this.levelBox(field, level);
      box.replaceChildren(...(levels.length ? levels.map(make) : [el("p", { class: "soft menu-note" }, field === "score" ? "No scores yet." : field === "tag" ? "No tags yet." : "No values.")]));
    } catch (error) {
      if (this.shownField === field) box.replaceChildren(el("p", { class: "soft menu-note" }, visible(error.message)));
    } finally {
      if (this.shownField === field) box.removeAttribute("aria-busy");
    }
    return undefined;
  }

  flagBox(name) {
    const box = el("input", { type: "checkbox", onchange: () => this.grid.reload({ [name]: box.checked }) });
    box.checked = this.grid.wanted[name];
    return el("label", { class: "check menu-item" }, box, { noted: "With a note", starred: "With a star" }[name]);
  }

  levelBox(field, { value, items }) {
    const isFactor = field.startsWith("factor:");
    const name = isFactor ? "factor" : field;
    const parameter = isFactor ? `${field.slice("factor:".length)}=${value}` : value;
    const box = el("input", { type: "checkbox" });
    box.checked = this.grid.wanted[name].includes(parameter);
    box.addEventListener("change", () => {
      const others = this.grid.wanted[name].filter((one) => one !== parameter);
      this.grid.reload({ [name]: box.checked ? [...others, parameter] : others });
    });
    return el("label", { class: "check menu-item" }, box, el("span", { class: "level", title: value }, visible(value)), el("span", { class: "figures soft" }, number(items)));
  }

  /** Two fields for the range of the time of an item. */
  durationField() {
    const current = this.grid.wanted.duration[0]?.split("..") || ["", ""];
    const input = (label, value) => el("input", { type: "number", min: "0", step: "any", "aria-label": `${label} time in seconds`, value });
    const [from, to] = [input("Lowest", current[0]), input("Highest", current[1])];
    const apply = () => this.grid.reload({ duration: from.value || to.value ? [`${from.value}..${to.value}`] : [] });
    for (const one of [from, to]) one.addEventListener("change", apply);
    return el("div", { class: "score-range" }, el("span", { class: "level" }, "Seconds"), from, "to", to);
  }

  /** Two fields for the range of a score. */
  rangeField({ value: name, low, high }) {
    const current = this.grid.wanted.score.find((one) => one.startsWith(`${name}=`))?.slice(name.length + 1).split("..") || ["", ""];
    const input = (label, value, placeholder) => el("input", { type: "number", step: "any", "aria-label": `${label} ${name}`, value, placeholder: placeholder === null ? "" : String(Number(placeholder.toFixed(3))) });
    const [from, to] = [input("Lowest", current[0], low), input("Highest", current[1], high)];
    const apply = () => {
      const others = this.grid.wanted.score.filter((one) => !one.startsWith(`${name}=`));
      this.grid.reload({ score: from.value || to.value ? [...others, `${name}=${from.value}..${to.value}`] : others });
    };
    for (const one of [from, to]) one.addEventListener("change", apply);
    return el("div", { class: "score-range" }, el("span", { class: "level", title: name }, visible(name)), from, "to", to);
  }

  // ---- Groups of failures

  makeFailures() {
    this.failures = byId("failures");
    this.groups = [];
    this.failures.open = remembered("proctor-failures-open", false);
    this.failures.addEventListener("toggle", () => {
      remember("proctor-failures-open", this.failures.open);
      this.loadFailures();
    });
    this.showFailureCount();
    this.loadFailures();
  }

  get failureCount() {
    const { fail, timeout, error } = this.run.counts;
    return fail + timeout + error;
  }

  /** Show how many failures there are at once, and their groups when they are loaded. */
  showFailureCount() {
    const count = this.failureCount;
    this.failures.hidden = !count;
    const filters = JSON.stringify({ ...parametersOf(this.grid.filters || this.filters), group: "", order: "", descending: "", status: "" });
    const state = `${count} ${filters}`;
    if (state === this.failureState || !count) return;
    this.failureState = state;
    clearTimeout(this.failureTimer);
    this.failureTimer = setTimeout(() => this.loadFailures(), this.groups.length && this.run.status === "running" ? FAILURES_REFRESH : 0);
  }

  async loadFailures({ limit = this.failureLimit || 8 } = {}) {
    if (!this.failureCount) return;
    this.failureLimit = limit;
    try {
      const parameters = { ...parametersOf(this.grid.filters || this.filters), limit };
      const answer = await api.get(`${this.address}/failures${query(parameters)}`);
      this.groups = answer.groups;
      this.showFailures(answer);
    } catch {
      // The grid says that the server is down.
    }
  }

  showFailures({ groups, groupCount, items }) {
    const summary = this.failures.querySelector("summary");
    const [first] = groups;
    summary.replaceChildren(
      el("b", {}, groups.length ? plural(items, "failure") : "No failures among these items"),
      ...(first ? [el("span", { class: "failure-first" }, `${number(first.items)} × ${this.patternOf(first)}`), groupCount > 1 ? el("span", { class: "soft" }, `and ${plural(groupCount - 1, "other kind")}`) : ""] : []),
    );
    const more = groupCount > groups.length ? el("button", { type: "button", class: "quiet compact", onclick: () => this.loadFailures({ limit: 100 }) }, `Show ${groupCount > 100 ? "100 of " : "all "}${plural(groupCount, "kind")}`) : null;
    const focusedKey = document.activeElement?.closest?.(".failure-group")?.dataset.key;
    byId("failure-groups").replaceChildren(...groups.map((group) => this.failureButton(group)), more || "");
    if (focusedKey) byId("failure-groups").querySelector(`[data-key="${focusedKey}"]`)?.focus();
    this.showFilters();
  }

  failureButton(group) {
    const pressed = this.grid.wanted?.group === group.key;
    return el(
      "button",
      { type: "button", class: "failure-group", dataset: { key: group.key }, "aria-pressed": String(pressed), title: visible(group.pattern), onclick: ({ currentTarget }) => this.chooseGroup(group, currentTarget) },
      el("span", { class: "figures" }, `${number(group.items)} ×`),
      el("span", { class: "tag" }, visible(group.reason)),
      el("span", { class: "failure-pattern" }, visible(group.example || group.pattern)),
    );
  }

  chooseGroup(group, button) {
    const next = this.grid.wanted.group === group.key ? "" : group.key;
    for (const one of byId("failure-groups").querySelectorAll(".failure-group")) one.setAttribute("aria-pressed", String(one === button && Boolean(next)));
    this.grid.reload({ group: next });
  }

  patternOf(group) {
    return visible([group.reason.replaceAll("_", " "), group.example || group.pattern].filter(Boolean).join(": "));
  }

  groupWords(key) {
    const group = this.groups.find((one) => one.key === key);
    return group ? this.patternOf(group) : "one kind of failure";
  }

  // ---- Selected items

  makeSelectionBar() {
    this.bar = byId("selection");
    this.bar.querySelector("[data-action=compare]").addEventListener("click", () => this.compare());
    this.bar.querySelector("[data-action=evaluate]").addEventListener("click", () => this.evaluate());
    this.bar.querySelector("[data-action=retry]").addEventListener("click", ({ currentTarget }) => this.retry(currentTarget));
    this.bar.querySelector("[data-action=clear]").addEventListener("click", () => {
      this.grid.select([], { only: true });
      this.grid.body.focus();
    });
    const links = Object.entries(FORMATS).map(([form, title]) => el("a", { class: "menu-item", dataset: { form }, download: "" }, title));
    this.exportLinks = links;
    menu(this.bar.querySelector("[data-action=export]"), links).box.classList.add("upward");
    const tag = el("input", { type: "text", maxlength: "100", placeholder: "Tag", "aria-label": "Tag" });
    const form = el("form", { class: "menu-field tag-form" }, tag, el("button", { class: "compact primary" }, "Add"));
    const tagMenu = menu(this.bar.querySelector("[data-action=tag]"), form, { stays: true });
    tagMenu.box.classList.add("upward");
    this.bar.querySelector("[data-action=tag]").addEventListener("click", () => tag.focus());
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (!tag.value.trim()) return;
      const sessionIds = this.sessions;
      const done = await attempt(form.lastChild, () => api.post("/api/annotations", { sessionIds, kind: "tag", text: tag.value }));
      if (!done) return;
      toast(`${plural(sessionIds.length, "session")} tagged.`, "good");
      tag.value = "";
      tagMenu.show(false);
      this.grid.refresh();
    });
  }

  get sessions() {
    return [...this.grid.selected.values()].map((row) => row.sessionId).filter(Boolean);
  }

  showSelection(selected) {
    this.bar.hidden = !selected.size;
    if (!selected.size) return;
    const rows = [...selected.values()];
    const sessions = this.sessions;
    const button = (action) => this.bar.querySelector(`[data-action=${action}]`);
    byId("selection-count").textContent = `${number(rows.length)} selected`;
    button("compare").disabled = sessions.length !== 2;
    button("compare").title = sessions.length === 2 ? "" : "Select two items that have started.";
    button("evaluate").disabled = button("tag").disabled = button("export").disabled = !sessions.length;
    button("retry").disabled = this.run.status === "running" || !rows.some(({ status }) => ["fail", "timeout", "error"].includes(status));
    for (const link of this.exportLinks) link.href = urlOf(`${this.address}/export${query({ format: link.dataset.form, session: sessions })}`);
  }

  compare() {
    const [left, right] = this.sessions;
    go(`/compare/sessions${query({ left, right })}`);
  }

  evaluate() {
    go(`/evaluations/new${query({ run: this.run.runId, session: this.sessions })}`);
  }

  async retry(button) {
    const rows = [...this.grid.selected.values()].filter(({ status }) => ["fail", "timeout", "error"].includes(status));
    const text = "Each of these items gets one more attempt. Earlier attempts stay in the store. Items that have not finished are run too.";
    if (!(await confirmed({ title: `Retry ${plural(rows.length, "item")}?`, text, action: "Retry", danger: false }))) return;
    const done = await attempt(button, () => api.post(`${this.address}/retry${query({ item: rows.map(({ id }) => id) })}`));
    if (!done) return;
    toast("Retrying the selected items.", "good");
    this.grid.select([], { only: true });
    this.grid.refresh();
  }
}
