// Virtualized grid of the items of a run: only visible rows exist, and only their pages are loaded.

import { api, query } from "./api.js";
import { el, go } from "./dom.js";
import { ago, moment, money, number, seconds } from "./format.js";
import { isUnfiltered, parametersOf } from "./item_query.js";
import { badge } from "./status.js";
import { visible } from "./texts.js";

const PAGE = 100;
const ROW = 40;
// Browsers limit element heights to some ten million pixels; longer lists scroll in larger steps.
const TALLEST = 8_000_000;
const REFRESH = 1500;
const SELECT_WIDTH = "36px";
/** Items that can be selected at once: more than anybody reads. */
const MOST_SELECTED = 500;
// Column widths on a phone, where three must fit.
const NARROW = { status: "104px", seconds: "76px" };

const shortRepo = (repo) => repo.replace(/\/+$/, "").split("/").pop() || "";
const text = (key) => (row) => visible(row[key] || "");
const full = (words) => el("span", { title: words }, visible(words));
/** What came out of an item, if it was loaded. */
const outcome = (row) => row.outcome || { answer: "", checkOutput: "", scores: {}, tags: [], notes: 0, isStarred: false };

/** All available columns: key, title, width, and cell content. `titles` has those that the job changes. */
export function columnsFor(factors, titles, evaluates, scores = []) {
  const plain = [
    { key: "status", title: "Status", width: "112px", cell: (row) => badge(row.status, row.reason) },
    { key: "reason", title: "Reason", width: "minmax(110px, 1fr)", cell: text("reason") },
    { key: "id", title: "Item", width: "150px", cell: (row) => el("code", {}, row.id) },
    { key: "position", title: "#", width: "64px", numeric: true, cell: (row) => number(row.position + 1) },
    { key: "repo", title: "Repository", width: "minmax(90px, 1fr)", cell: (row) => el("span", { title: row.repo }, visible(shortRepo(row.repo))) },
    { key: "prompt", title: "Prompt", width: "minmax(200px, 3fr)", cell: (row, href) => el("a", { href, tabindex: "-1", title: row.prompt }, visible(row.prompt)) },
    { key: "agent", title: "Agent", width: "minmax(80px, .8fr)", cell: text("agent") },
    { key: "model", title: "Model", width: "minmax(140px, 1.2fr)", cell: (row) => full(row.model) },
    { key: "answer", title: "Answer", width: "minmax(160px, 2fr)", sortable: false, cell: (row) => full(outcome(row).answer) },
    { key: "checkOutput", title: "Check output", width: "minmax(160px, 2fr)", sortable: false, cell: (row) => full(outcome(row).checkOutput) },
    { key: "repeat", title: "Repeat", width: "76px", numeric: true, cell: (row) => number(row.repeat) },
    { key: "startedAt", title: "Started", width: "100px", cell: (row) => el("span", { title: moment(row.startedAt) }, ago(row.startedAt)) },
    { key: "seconds", title: "Time", width: "92px", numeric: true, cell: (row) => timeOf(row) },
    { key: "tokensTotal", title: "Tokens", width: "92px", numeric: true, cell: (row) => (row.tokensTotal ? number(row.tokensTotal) : "–") },
    { key: "toolCalls", title: "Tools", width: "72px", numeric: true, cell: (row) => number(row.toolCalls) },
    { key: "costUsd", title: "Cost", width: "88px", numeric: true, cell: (row) => money(row.costUsd) },
    { key: "iterSha", title: "Commit", width: "100px", cell: (row) => el("code", {}, (row.iterSha || "").slice(0, 10)) },
    { key: "error", title: "Error", width: "minmax(160px, 2fr)", cell: (row) => full(row.error) },
    { key: "notes", title: "Notes and tags", width: "minmax(120px, 1fr)", sortable: false, cell: (row) => annotationsOf(outcome(row)) },
  ];
  // Factors with their own column. In an evaluation, the model column is the judge, not the evaluated model.
  const own = new Set(evaluates ? [] : ["model", "agent", "repository"]);
  const varied = factors
    .filter((name) => !own.has(name))
    .map((name) => ({ key: `factor:${name}`, title: name, width: name === "evaluator" ? "minmax(170px, 2fr)" : "minmax(110px, 1fr)", cell: factorCell(name) }));
  const scored = scores.map((name) => ({ key: `score:${name}`, title: name, width: "minmax(96px, .8fr)", numeric: true, cell: (row) => scoreOf(outcome(row).scores[name]) }));
  return [...plain, ...scored, ...varied].map((column) => ({ ...column, title: titles[column.key] || column.title }));
}

const factorCell = (name) => (row) => full(String(row.factors[name] ?? ""));

/** A score as a number, a label, or both. */
export function scoreOf(score) {
  if (!score) return "";
  const digits = score.value === null ? "" : String(Number(score.value.toFixed(2)));
  return el("span", { title: score.label || null }, digits || visible(score.label));
}

function annotationsOf({ tags, notes, isStarred }) {
  const marks = [isStarred ? "★" : "", notes ? `${notes === 1 ? "note" : `${notes} notes`}` : ""].filter(Boolean).join(" ");
  return el("span", { title: [marks, ...tags].join(" · ") }, marks, ...tags.map((tag) => el("span", { class: "tag" }, visible(tag))));
}

function timeOf(row) {
  if (row.status === "running" && row.startedAt) return el("span", { class: "ticking" }, seconds((Date.now() - Date.parse(row.startedAt)) / 1000));
  return seconds(row.seconds);
}

/** The address of an item's session; `list` is the query of the list it is in. */
export function addressOf(row, list = "") {
  if (!row.sessionId) return `/runs/${encodeURIComponent(row.runId)}/items/${row.id}`;
  return `/sessions/${encodeURIComponent(row.sessionId)}?from=${encodeURIComponent(list)}`;
}

/** A page of a run's items. */
export function itemsOf(run, filters, page = 0, options = {}) {
  const parameters = { ...parametersOf(filters), outcomes: "true", offset: page * PAGE, limit: PAGE };
  return api.get(`/api/runs/${encodeURIComponent(run)}/items${query(parameters)}`, options);
}

export class ItemGrid extends HTMLElement {
  /**
   * `changed(response)` is called with each response's totals, `list()` returns the list's query for links to sessions,
   * `chose(selected)` is called with the selected rows; `first` is the promise of the first page.
   */
  begin({ run, columns, filters, changed, list, chose, first }) {
    Object.assign(this, { run, columns, filters, changed, list, chose });
    /** The filters of the last request: those of the rows, unless they are still loading. */
    this.wanted = filters;
    this.pages = new Map();
    this.rows = new Map();
    this.selected = new Map();
    this.total = null;
    this.active = 0;
    this.heading = el("div", { class: "grid-row grid-heading", role: "row", "aria-rowindex": "1" });
    this.tall = el("div", { class: "grid-tall", role: "rowgroup" });
    const head = el("div", { role: "rowgroup", class: "grid-head" }, this.heading);
    this.body = el("div", { class: "grid-body", role: "grid", "aria-label": "Items", "aria-multiselectable": "true", tabindex: "0" }, head, this.tall);
    this.empty = el("div", { class: "grid-empty", hidden: true });
    this.problem = el("div", { class: "notice bad grid-problem", role: "alert", hidden: true });
    this.all = el("input", { type: "checkbox", "aria-label": "Select all items", onclick: () => this.selectAll(this.all.checked) });
    this.replaceChildren(this.body, this.empty, this.problem);
    this.body.addEventListener("scroll", () => this.later(), { passive: true });
    this.body.addEventListener("keydown", (event) => this.walk(event));
    this.tall.addEventListener("click", (event) => this.clicked(event));
    new ResizeObserver(() => this.later()).observe(this.body);
    setInterval(() => this.tick(), 1000);
    this.setColumns(columns);
    this.pages.set(0, null);
    first.then((response) => this.store(0, response)).then(() => this.restorePlace()).catch((error) => this.failed(0, error));
  }

  setColumns(columns) {
    this.columns = columns;
    const narrow = matchMedia("(max-width: 760px)").matches;
    const width = (column) => (narrow ? NARROW[column.key] || column.width.replace(/minmax\(\d+px/, "minmax(88px") : column.width);
    this.body.style.setProperty("--columns", [SELECT_WIDTH, ...columns.map(width)].join(" "));
    this.body.setAttribute("aria-colcount", columns.length + 1);
    this.drawHeading();
    this.rows.clear();
    this.tall.replaceChildren();
    this.draw();
  }

  drawHeading() {
    const { order, descending } = this.wanted;
    const heading = (column) =>
      el(
        "div",
        { role: "columnheader", class: column.numeric ? "n" : null, title: column.title, "aria-sort": order === column.key ? (descending ? "descending" : "ascending") : null },
        column.sortable === false ? column.title : el("button", { type: "button", class: "sort", onclick: () => this.sortBy(column.key) }, column.title),
      );
    this.heading.replaceChildren(el("div", { role: "columnheader", class: "select" }, this.all), ...this.columns.map(heading));
  }

  sortBy(key) {
    const { order, descending } = this.wanted;
    // The second click reverses the order; the third restores the order of the plan.
    if (order !== key) this.reload({ order: key, descending: false });
    else if (!descending) this.reload({ order: key, descending: true });
    else this.reload({ order: "position", descending: false });
    this.drawHeading();
    this.heading.querySelector("[aria-sort] .sort")?.focus();
  }

  /** Change the filters or the order, and reload. The rows stay until the new ones are there, also if the server is down. */
  async reload(changes) {
    const filters = { ...this.wanted, ...changes };
    this.wanted = filters;
    this.controller?.abort();
    this.controller = new AbortController();
    this.classList.add("waiting");
    try {
      const response = await itemsOf(this.run, filters, 0, { signal: this.controller.signal });
      if (this.wanted !== filters) return;
      this.filters = filters;
      this.pages.clear();
      this.active = 0;
      this.body.scrollTop = 0;
      this.select([], { only: true });
      this.drawHeading();
      this.store(0, response);
    } catch (error) {
      if (this.wanted !== filters || error.name === "AbortError") return;
      this.wanted = this.filters;
      this.drawHeading();
      this.showProblem(error, () => this.reload(changes));
    }
  }

  get isUnfiltered() {
    return isUnfiltered(this.filters) && this.filters.order === "position";
  }

  async load(page) {
    if (this.pages.has(page)) return;
    this.pages.set(page, null);
    const filters = this.filters;
    if (!this.controller || this.controller.signal.aborted) this.controller = new AbortController();
    try {
      const response = await itemsOf(this.run, filters, page, { signal: this.controller.signal });
      if (filters === this.filters) this.store(page, response);
    } catch (error) {
      if (filters === this.filters) this.failed(page, error);
    }
  }

  failed(page, error) {
    this.pages.delete(page);
    if (error.name === "AbortError") return;
    this.showProblem(error, () => this.load(page));
  }

  showProblem(error, again) {
    this.classList.remove("waiting");
    const retry = el("button", { type: "button", class: "compact", onclick: () => ((this.problem.hidden = true), again()) }, "Retry");
    this.problem.replaceChildren(el("p", {}, el("b", {}, "The items could not be loaded. "), `${error.message} ${error.remedy || ""}`), retry);
    this.problem.hidden = false;
  }

  store(page, response) {
    this.classList.remove("waiting");
    this.problem.hidden = true;
    this.pages.set(page, response.items.map((row) => ({ ...row, runId: this.run })));
    this.total = response.total;
    this.body.setAttribute("aria-rowcount", response.total + 1);
    this.changed(response);
    if (response.total) this.empty.hidden = true;
    else if (!isUnfiltered(this.filters)) this.showEmpty("No matching items.", "Change the search or the filters.");
    else this.showEmpty("No items.", "");
    this.draw();
  }

  showEmpty(title, words) {
    this.empty.replaceChildren(el("b", {}, title), el("p", { class: "soft" }, words));
    this.empty.hidden = false;
  }

  /** Update changed items in place, without a request. */
  update(items) {
    const known = new Map();
    for (const rows of this.pages.values()) for (const [index, row] of (rows || []).entries()) known.set(row.id, [rows, index]);
    let hasFinished = false;
    for (const item of items) {
      const place = known.get(item.id);
      if (!place) continue;
      const before = place[0][place[1]];
      // Updates have no answers and scores: those of a finished item come with the next page.
      place[0][place[1]] = { ...item, outcome: item.outcome || before.outcome, runId: this.run };
      hasFinished ||= item.finishedAt !== before.finishedAt;
    }
    if (!this.isUnfiltered || hasFinished) this.refresh();
    this.draw();
  }

  /** Reload the visible pages, throttled: the order or the number of items may have changed. */
  refresh() {
    if (this.refreshing) return;
    this.refreshing = setTimeout(async () => {
      this.refreshing = 0;
      const [first, last] = this.visibleRange();
      const filters = this.filters;
      for (const page of [...this.pages.keys()]) if (page < Math.floor(first / PAGE) || page > Math.floor(last / PAGE)) this.pages.delete(page);
      for (let page = Math.floor(first / PAGE); page <= Math.floor(last / PAGE); page++) {
        const response = await itemsOf(this.run, filters, page).catch(() => null);
        if (response && filters === this.filters) this.store(page, response);
      }
    }, REFRESH);
  }

  // ---- Selection

  /** Select or deselect rows; `only`: deselect all others. */
  select(rows, { on = true, only = false } = {}) {
    if (only) this.selected.clear();
    for (const row of rows) {
      if (!on) this.selected.delete(row.id);
      else if (this.selected.size < MOST_SELECTED) this.selected.set(row.id, row);
    }
    this.all.checked = Boolean(this.total) && this.selected.size === this.total;
    this.all.indeterminate = this.selected.size > 0 && !this.all.checked;
    this.chose(this.selected);
    this.draw();
  }

  /** Select or deselect the rows from one index to another; rows that are not loaded are. */
  async selectRange(from, to, on = true) {
    const [first, last] = [Math.min(from, to), Math.min(Math.max(from, to), Math.min(from, to) + MOST_SELECTED - 1)];
    for (let page = Math.floor(first / PAGE); page <= Math.floor(last / PAGE); page++) {
      if (this.pages.get(page)) continue;
      const response = await itemsOf(this.run, this.filters, page).catch(() => null);
      if (response) this.store(page, response);
    }
    const rows = [];
    for (let index = first; index <= last; index++) if (this.rowAt(index)) rows.push(this.rowAt(index));
    this.select(rows, { on });
  }

  selectAll(on) {
    if (on && this.total) return this.selectRange(0, this.total - 1);
    return this.select([], { only: true });
  }

  toggle(index, extend = false) {
    const row = this.rowAt(index);
    if (!row) return;
    const on = !this.selected.has(row.id);
    if (extend && this.anchor !== undefined) this.selectRange(this.anchor, index, on);
    else this.select([row], { on });
    this.anchor = index;
  }

  get step() {
    return Math.min(ROW, TALLEST / Math.max(1, this.total || 1));
  }

  visibleRange() {
    const top = Math.floor(this.body.scrollTop / this.step);
    const fit = Math.ceil(this.body.clientHeight / ROW);
    return [Math.max(0, top - 5), Math.min((this.total || 0) - 1, top + fit + 5)];
  }

  later() {
    this.drawing ||= requestAnimationFrame(() => {
      this.drawing = 0;
      this.draw();
    });
  }

  draw() {
    if (this.total === null) return;
    this.tall.style.height = `${Math.min(TALLEST, this.total * ROW)}px`;
    // As tall as its rows, up to the maximum of the stylesheet, plus room for a scroll bar.
    this.body.style.height = `${Math.max(4, Math.min(this.total, 100)) * ROW + 52}px`;
    const [first, last] = this.visibleRange();
    for (let page = Math.floor(first / PAGE); page <= Math.floor(Math.max(last, 0) / PAGE); page++) this.load(page);
    for (const [index, entry] of this.rows) {
      if (index < first || index > last) {
        entry.element.remove();
        this.rows.delete(index);
      }
    }
    const top = Math.floor(this.body.scrollTop / this.step);
    for (let index = first; index <= last; index++) this.drawRow(index, this.step === ROW ? index * ROW : this.body.scrollTop + (index - top) * ROW);
    this.body.setAttribute("aria-activedescendant", this.rows.has(this.active) ? `item-row-${this.active}` : "");
  }

  drawRow(index, y) {
    const row = this.pages.get(Math.floor(index / PAGE))?.[index % PAGE] || null;
    let entry = this.rows.get(index);
    if (!entry) {
      entry = { element: el("div", { class: "grid-row", role: "row", id: `item-row-${index}`, "aria-rowindex": index + 2 }), row: undefined };
      this.rows.set(index, entry);
      this.tall.append(entry.element);
    }
    entry.element.style.transform = `translateY(${y}px)`;
    entry.element.classList.toggle("active", index === this.active);
    const isSelected = Boolean(row) && this.selected.has(row.id);
    entry.element.setAttribute("aria-selected", String(isSelected));
    if (entry.box) entry.box.checked = isSelected;
    if (entry.row === row) return;
    entry.row = row;
    entry.element.classList.toggle("pending", !row);
    const cell = (column) => el("div", { role: "gridcell", class: column.numeric ? "n" : null }, row ? column.cell(row, addressOf(row, this.list())) : el("span", { class: "bone" }));
    entry.box = row ? el("input", { type: "checkbox", tabindex: "-1", "aria-label": `Select item ${row.position + 1}` }) : null;
    if (entry.box) entry.box.checked = isSelected;
    entry.element.replaceChildren(el("div", { role: "gridcell", class: "select" }, entry.box), ...this.columns.map(cell));
  }

  tick() {
    for (const { element, row } of this.rows.values()) {
      const place = row?.status === "running" && row.startedAt && element.querySelector(".ticking");
      if (place) place.textContent = seconds((Date.now() - Date.parse(row.startedAt)) / 1000);
    }
  }

  rowAt(index) {
    return this.pages.get(Math.floor(index / PAGE))?.[index % PAGE];
  }

  clicked(event) {
    const element = event.target.closest(".grid-row");
    const entry = [...this.rows].find(([, entry]) => entry.element === element);
    if (!entry) return;
    this.active = entry[0];
    if (event.target.closest(".select")) {
      this.toggle(this.active, event.shiftKey);
      return;
    }
    this.savePlace();
    if (event.target.closest("a") || getSelection().toString()) return;
    this.open();
  }

  open() {
    const row = this.rowAt(this.active);
    if (!row) return;
    this.savePlace();
    go(addressOf(row, this.list()));
  }

  /** Keep the place in the list with the page's entry in the history, so that Back returns to it. */
  savePlace() {
    history.replaceState({ ...history.state, place: { active: this.active, top: this.body.scrollTop } }, "");
  }

  restorePlace() {
    const place = history.state?.place;
    if (!place || !this.total || place.active >= this.total) return;
    this.active = place.active;
    this.body.scrollTop = place.top;
    this.draw();
    if (this.offsetParent) this.body.focus({ preventScroll: true });
  }

  walk(event) {
    if (event.target !== this.body || !this.total) return;
    const fit = Math.max(1, Math.floor(this.body.clientHeight / ROW) - 2);
    const next = { ArrowDown: this.active + 1, ArrowUp: this.active - 1, PageDown: this.active + fit, PageUp: this.active - fit, Home: 0, End: this.total - 1 }[event.key];
    if (event.key === "Enter") this.open();
    else if (event.key === " ") {
      event.preventDefault();
      this.toggle(this.active, event.shiftKey);
    } else if (event.key === "Escape" && this.selected.size) this.select([], { only: true });
    else if (event.key.toLowerCase() === "a" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      this.selectAll(true);
    } else if (next !== undefined) {
      event.preventDefault();
      const before = this.active;
      this.active = Math.min(this.total - 1, Math.max(0, next));
      if (event.shiftKey) this.selectRange(before, this.active);
      this.scrollToActive();
      this.draw();
    }
  }

  scrollToActive() {
    const [y, height] = [this.active * this.step, this.body.clientHeight - this.heading.offsetHeight];
    if (y < this.body.scrollTop) this.body.scrollTop = y;
    else if (y + ROW > this.body.scrollTop + height) this.body.scrollTop = y + ROW - height;
  }
}
customElements.define("item-grid", ItemGrid);
