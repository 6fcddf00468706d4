// The grid of the items of a run: columns, filters, live updates, and selected items.

import { api, query } from "./api.js";
import { el, go } from "./dom.js";
import { ago, moment, money, number, seconds } from "./format.js";
import { isUnfiltered, parametersOf } from "./item_query.js";
import { PAGE, PagedGrid } from "./paged_grid.js";
import { badge } from "./status.js";
import { visible } from "./texts.js";

const SELECT_WIDTH = "36px";
/** Items that can be selected at once: more than anybody reads. */
const MOST_SELECTED = 500;
// Column widths on a phone, where three must fit.
const NARROW = { status: "96px", seconds: "68px" };

const shortRepo = (repo) => repo.replace(/\/+$/, "").split("/").pop() || "";
const text = (key) => (row) => visible(row[key] || "");
const full = (words) => el("span", { title: words }, visible(words));
const isNarrow = () => matchMedia("(max-width: 760px)").matches;
/** Height of a row; on a phone it is a card. */
const rowHeight = () => (isNarrow() ? 94 : 40);

/** The prompt; on a phone with the model and the error, which have no columns there. */
function promptCell(row, href) {
  const link = el("a", { href, tabindex: "-1", title: visible(row.prompt) }, visible(row.prompt));
  if (!isNarrow()) return link;
  return el("span", { class: "item-card" }, link, el("span", { class: "soft small" }, visible(row.model || row.agent || "")), row.error ? el("span", { class: "soft small" }, visible(row.error)) : null);
}

/** What came out of an item, if it was loaded. */
const outcome = (row) => row.outcome || { answer: "", checkOutput: "", scores: {}, tags: [], notes: 0, isStarred: false };

/** All available columns: key, title, width, and cell content. `titles` has those that the job changes, `word` names a status. */
export function columnsFor(factors, titles, evaluates, scores = [], word = (status) => status) {
  const plain = [
    { key: "status", title: "Status", width: "112px", cell: (row) => badge(row.status, row.reason, word(row.status)) },
    { key: "reason", title: "Reason", width: "minmax(110px, 1fr)", cell: text("reason") },
    { key: "id", title: "Item", width: "150px", cell: (row) => el("code", {}, row.id) },
    { key: "position", title: "#", width: "64px", numeric: true, cell: (row) => number(row.position + 1) },
    { key: "repo", title: "Repository", width: "minmax(90px, 1fr)", cell: (row) => el("span", { title: row.repo }, visible(shortRepo(row.repo))) },
    { key: "prompt", title: "Prompt", width: "minmax(200px, 2.4fr)", cell: promptCell },
    { key: "agent", title: "Agent", width: "minmax(80px, .8fr)", cell: text("agent") },
    { key: "model", title: "Model", width: "minmax(160px, 1.4fr)", cell: (row) => full(row.model) },
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
  // Dimensions of one evaluator are told apart by their own names: its name alone would fill the heading.
  const evaluatorOf = (name) => name.slice(0, name.lastIndexOf(".") + 1);
  const isOneOfSeveral = (name) => evaluatorOf(name) && scores.filter((other) => evaluatorOf(other) === evaluatorOf(name)).length > 1;
  const short = (name) => (isOneOfSeveral(name) ? name.slice(evaluatorOf(name).length) : name);
  const scored = scores.map((name) => ({ key: `score:${name}`, title: short(name), longTitle: name, width: "minmax(96px, .8fr)", numeric: true, cell: (row) => scoreOf(outcome(row).scores[name]) }));
  return [...plain, ...scored, ...varied].map((column) => ({ ...column, title: titles[column.key] || column.title }));
}

const factorCell = (name) => (row) => full(String(row.factors[name] ?? ""));

/** A score as a number, a label, or both. */
export function scoreOf(score) {
  if (!score) return "";
  const digits = score.value === null ? "" : String(Number(score.value.toFixed(2)));
  return el("span", { title: visible(score.label) || null }, digits || visible(score.label));
}

function annotationsOf({ tags, notes, isStarred }) {
  const marks = [isStarred ? "★" : "", notes ? `${notes === 1 ? "note" : `${notes} notes`}` : ""].filter(Boolean).join(" ");
  return el("span", { title: visible([marks, ...tags].join(" · ")) }, marks, ...tags.map((tag) => el("span", { class: "tag" }, visible(tag))));
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

export class ItemGrid extends PagedGrid {
  /**
   * `changed(response)` is called with each response's totals, `list()` returns the list's query for links to sessions,
   * `chose(selected)` is called with the selected rows; `first` is the promise of the first page.
   */
  begin({ run, columns, filters, changed, list, chose, first }) {
    Object.assign(this, { run, columns, filters, changed, list, chose });
    /** The filters of the last request: those of the rows, unless they are still loading. */
    this.wanted = filters;
    this.selected = new Map();
    this.all = el("input", { type: "checkbox", "aria-label": "Select all items", onclick: () => this.selectAll(this.all.checked) });
    this.build("Items", { multiselectable: true, rowHeight: rowHeight() });
    setInterval(() => this.tick(), 1000);
    // Shift extends the selection of items, not that of text.
    this.tall.addEventListener("mousedown", (event) => event.shiftKey && event.target.closest(".select") && event.preventDefault());
    this.setColumns(columns);
    this.pages.set(0, null);
    first.then((response) => this.store(0, this.rowsOf(response))).then(() => this.restorePlace()).catch((error) => this.failed(0, error));
  }

  rowsOf(response) {
    return { ...response, rows: response.items.map((row) => ({ ...row, runId: this.run })) };
  }

  async fetchPage(page, options) {
    return this.rowsOf(await itemsOf(this.run, this.filters, page, options));
  }

  setColumns(columns) {
    this.columns = columns;
    this.rowHeight = rowHeight();
    this.body.style.setProperty("--row", `${this.rowHeight}px`);
    const width = (column) => (isNarrow() ? NARROW[column.key] || column.width.replace(/minmax\(\d+px/, "minmax(88px") : column.width);
    this.setWidths([SELECT_WIDTH, ...columns.map(width)]);
  }

  headings() {
    const { order, descending } = this.wanted;
    const heading = (column) =>
      el(
        "div",
        { role: "columnheader", class: column.numeric ? "n" : null, title: visible(column.longTitle || column.title), "aria-sort": order === column.key ? (descending ? "descending" : "ascending") : null },
        column.sortable === false ? visible(column.title) : el("button", { type: "button", class: "sort", onclick: () => this.sortBy(column.key) }, visible(column.title)),
      );
    return [el("div", { role: "gridcell", class: "select" }, this.all), ...this.columns.map(heading)];
  }

  drawHeading() {
    this.heading.replaceChildren(...this.headings());
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

  /** Change the filters or the order, and reload. */
  reload(changes) {
    const filters = { ...this.wanted, ...changes };
    this.wanted = filters;
    const accept = () => {
      this.filters = this.wanted = filters;
      this.select([], { only: true });
      this.drawHeading();
    };
    const refuse = () => {
      this.wanted = this.filters;
      this.drawHeading();
    };
    return this.replace(async (options) => this.rowsOf(await itemsOf(this.run, filters, 0, options)), { accept, refuse });
  }

  get isUnfiltered() {
    return isUnfiltered(this.filters) && this.filters.order === "position";
  }

  stored(response) {
    this.changed(response);
    if (response.total) this.empty.hidden = true;
    else if (!isUnfiltered(this.filters)) this.showEmpty("No matching items.", "Change the search or the filters.");
    else this.showEmpty("No items.", "");
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
      const response = await this.fetchPage(page).catch(() => null);
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

  // ---- Rows

  cells(row, entry) {
    entry.box = row ? el("input", { type: "checkbox", tabindex: "-1", "aria-label": `Select item ${row.position + 1}` }) : null;
    const cell = (column) => el("div", { role: "gridcell", class: column.numeric ? "n" : null }, row ? column.cell(row, addressOf(row, this.list())) : el("span", { class: "bone" }));
    return [el("div", { role: "gridcell", class: "select" }, entry.box), ...this.columns.map(cell)];
  }

  drawRow(index, y) {
    const entry = super.drawRow(index, y);
    const isSelected = Boolean(entry.row) && this.selected.has(entry.row.id);
    entry.element.setAttribute("aria-selected", String(isSelected));
    if (entry.box) entry.box.checked = isSelected;
    return entry;
  }

  tick() {
    for (const { element, row } of this.rows.values()) {
      const place = row?.status === "running" && row.startedAt && element.querySelector(".ticking");
      if (place) place.textContent = seconds((Date.now() - Date.parse(row.startedAt)) / 1000);
    }
  }

  clicked(event) {
    const index = this.indexOf(event.target);
    if (index === undefined) return;
    this.active = index;
    if (event.target.closest(".select")) {
      this.toggle(index, event.shiftKey);
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
    history.replaceState({ ...history.state, place: { active: this.active, top: scrollY } }, "");
  }

  restorePlace() {
    const place = history.state?.place;
    if (!place || !this.total || place.active >= this.total) return;
    this.active = place.active;
    scrollTo(0, place.top);
    this.draw();
    if (this.offsetParent) this.body.focus({ preventScroll: true });
  }

  keyed(event) {
    const next = this.moved(event.key);
    if (event.key === " ") this.toggle(this.active, event.shiftKey);
    else if (event.key === "Escape" && this.selected.size) this.select([], { only: true });
    else if (event.key.toLowerCase() === "a" && (event.ctrlKey || event.metaKey)) this.selectAll(true);
    else if (event.shiftKey && next !== undefined) {
      this.selectRange(this.active, next);
      this.active = next;
      this.scrollToActive();
      this.draw();
    } else return false;
    event.preventDefault();
    return true;
  }
}
customElements.define("item-grid", ItemGrid);
