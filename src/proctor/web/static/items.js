// Virtualized grid of the items of a run: only visible rows exist, and only their pages are loaded.

import { api, query } from "./api.js";
import { el, go } from "./dom.js";
import { ago, moment, money, number, seconds } from "./format.js";
import { badge } from "./status.js";
import { visible } from "./texts.js";

const PAGE = 100;
const ROW = 40;
// Browsers limit element heights to some ten million pixels; longer lists scroll in larger steps.
const TALLEST = 8_000_000;
const REFRESH = 1500;
// Column widths on a phone, where three must fit.
const NARROW = { status: "104px", seconds: "76px" };

const shortRepo = (repo) => repo.replace(/\/+$/, "").split("/").pop() || "";
const text = (key) => (row) => visible(row[key] || "");

/** All available columns: key, title, width, and cell content. `titles` has those that the job changes. */
export function columnsFor(factors, titles, evaluates) {
  const plain = [
    { key: "status", title: "Status", width: "112px", cell: (row) => badge(row.status, row.reason) },
    { key: "reason", title: "Reason", width: "minmax(110px, 1fr)", cell: text("reason") },
    { key: "id", title: "Item", width: "150px", cell: (row) => el("code", {}, row.id) },
    { key: "position", title: "#", width: "64px", numeric: true, cell: (row) => number(row.position + 1) },
    { key: "repo", title: "Repository", width: "minmax(90px, 1fr)", cell: (row) => el("span", { title: row.repo }, visible(shortRepo(row.repo))) },
    { key: "prompt", title: "Prompt", width: "minmax(200px, 3fr)", cell: (row) => el("a", { href: addressOf(row), tabindex: "-1", title: row.prompt }, visible(row.prompt)) },
    { key: "agent", title: "Agent", width: "minmax(80px, .8fr)", cell: text("agent") },
    { key: "model", title: "Model", width: "minmax(120px, 1.2fr)", cell: (row) => el("span", { title: row.model }, visible(row.model)) },
    { key: "repeat", title: "Repeat", width: "76px", numeric: true, cell: (row) => number(row.repeat) },
    { key: "startedAt", title: "Started", width: "100px", cell: (row) => el("span", { title: moment(row.startedAt) }, ago(row.startedAt)) },
    { key: "seconds", title: "Time", width: "92px", numeric: true, cell: (row) => timeOf(row) },
    { key: "tokensTotal", title: "Tokens", width: "92px", numeric: true, cell: (row) => (row.tokensTotal ? number(row.tokensTotal) : "–") },
    { key: "toolCalls", title: "Tools", width: "72px", numeric: true, cell: (row) => number(row.toolCalls) },
    { key: "costUsd", title: "Cost", width: "88px", numeric: true, cell: (row) => money(row.costUsd) },
    { key: "iterSha", title: "Commit", width: "100px", cell: (row) => el("code", {}, (row.iterSha || "").slice(0, 10)) },
    { key: "error", title: "Error", width: "minmax(160px, 2fr)", cell: (row) => el("span", { title: row.error }, visible(row.error)) },
  ];
  // Factors with their own column. In an evaluation, the model column is the judge, not the evaluated model.
  const own = new Set(evaluates ? [] : ["model", "agent", "repository"]);
  const varied = factors
    .filter((name) => !own.has(name))
    .map((name) => ({ key: `factor:${name}`, title: name, width: name === "evaluator" ? "minmax(170px, 2fr)" : "minmax(110px, 1fr)", cell: factorCell(name) }));
  return [...plain, ...varied].map((column) => ({ ...column, title: titles[column.key] || column.title }));
}

const factorCell = (name) => (row) => {
  const level = String(row.factors[name] ?? "");
  return el("span", { title: level }, visible(level));
};

function timeOf(row) {
  if (row.status === "running" && row.startedAt) return el("span", { class: "ticking" }, seconds((Date.now() - Date.parse(row.startedAt)) / 1000));
  return seconds(row.seconds);
}

const addressOf = (row) => (row.sessionId ? `/sessions/${encodeURIComponent(row.sessionId)}` : `/runs/${encodeURIComponent(row.runId)}/items/${row.id}`);

/** A page of a run's items. */
export function itemsOf(run, { search = "", status = [], order = "position", descending = false } = {}, page = 0, options = {}) {
  const parameters = { search, status, order, descending: descending || "", offset: page * PAGE, limit: PAGE };
  return api.get(`/api/runs/${encodeURIComponent(run)}/items${query(parameters)}`, options);
}

export class ItemGrid extends HTMLElement {
  /** `changed(response)` is called with each response's totals; `first` is the promise of the first page. */
  begin({ run, columns, changed, first }) {
    Object.assign(this, { run, columns, changed });
    this.filters = { search: "", status: [], order: "position", descending: false };
    this.pages = new Map();
    this.rows = new Map();
    this.total = null;
    this.active = 0;
    this.heading = el("div", { class: "grid-row grid-heading", role: "row", "aria-rowindex": "1" });
    this.tall = el("div", { class: "grid-tall", role: "rowgroup" });
    const head = el("div", { role: "rowgroup", class: "grid-head" }, this.heading);
    this.body = el("div", { class: "grid-body", role: "grid", "aria-label": "Items", tabindex: "0" }, head, this.tall);
    this.empty = el("div", { class: "grid-empty", hidden: true });
    this.replaceChildren(this.body, this.empty);
    this.body.addEventListener("scroll", () => this.later(), { passive: true });
    this.body.addEventListener("keydown", (event) => this.walk(event));
    this.tall.addEventListener("click", (event) => this.clicked(event));
    new ResizeObserver(() => this.later()).observe(this.body);
    setInterval(() => this.tick(), 1000);
    this.setColumns(columns);
    this.pages.set(0, null);
    first.then((response) => this.store(0, response)).catch((error) => this.failed(0, error));
  }

  setColumns(columns) {
    this.columns = columns;
    const narrow = matchMedia("(max-width: 760px)").matches;
    const width = (column) => (narrow ? NARROW[column.key] || column.width.replace(/minmax\(\d+px/, "minmax(88px") : column.width);
    this.body.style.setProperty("--columns", columns.map(width).join(" "));
    this.body.setAttribute("aria-colcount", columns.length);
    this.drawHeading();
    this.rows.clear();
    this.tall.replaceChildren();
    this.draw();
  }

  drawHeading() {
    const { order, descending } = this.filters;
    this.heading.replaceChildren(
      ...this.columns.map((column) =>
        el(
          "div",
          { role: "columnheader", class: column.numeric ? "n" : null, "aria-sort": order === column.key ? (descending ? "descending" : "ascending") : null },
          el("button", { type: "button", class: "sort", onclick: () => this.sortBy(column.key) }, column.title),
        ),
      ),
    );
  }

  sortBy(key) {
    const { order, descending } = this.filters;
    // The second click reverses the order; the third restores the order of the plan.
    if (order !== key) this.reload({ order: key, descending: false });
    else if (!descending) this.reload({ order: key, descending: true });
    else this.reload({ order: "position", descending: false });
    this.drawHeading();
    this.heading.querySelector("[aria-sort] .sort")?.focus();
  }

  /** Change the filters or the order, and reload. */
  reload(changes) {
    Object.assign(this.filters, changes);
    this.controller?.abort();
    this.pages.clear();
    this.active = 0;
    this.body.scrollTop = 0;
    this.classList.add("waiting");
    this.load(0);
  }

  get isUnfiltered() {
    return !this.filters.search && !this.filters.status.length && this.filters.order === "position";
  }

  async load(page) {
    if (this.pages.has(page)) return;
    this.pages.set(page, null);
    const filters = JSON.stringify(this.filters);
    if (!this.controller || this.controller.signal.aborted) this.controller = new AbortController();
    try {
      const response = await itemsOf(this.run, this.filters, page, { signal: this.controller.signal });
      if (filters === JSON.stringify(this.filters)) this.store(page, response);
    } catch (error) {
      this.failed(page, error);
    }
  }

  failed(page, error) {
    this.pages.delete(page);
    if (error.name === "AbortError") return;
    this.classList.remove("waiting");
    this.showEmpty("The items could not be loaded.", `${error.message} ${error.remedy || ""}`);
  }

  store(page, response) {
    this.classList.remove("waiting");
    this.pages.set(page, response.items.map((row) => ({ ...row, runId: this.run })));
    this.total = response.total;
    this.body.setAttribute("aria-rowcount", response.total + 1);
    this.changed(response);
    if (response.total) this.empty.hidden = true;
    else if (this.filters.search || this.filters.status.length) this.showEmpty("No matching items.", "Change the search or the status filter.");
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
    for (const item of items) {
      const place = known.get(item.id);
      if (place) place[0][place[1]] = { ...item, runId: this.run };
    }
    if (!this.isUnfiltered) this.refresh();
    this.draw();
  }

  /** Reload the visible pages, throttled: the order or the number of items may have changed. */
  refresh() {
    if (this.refreshing) return;
    this.refreshing = setTimeout(async () => {
      this.refreshing = 0;
      const [first, last] = this.visibleRange();
      const filters = JSON.stringify(this.filters);
      for (const page of [...this.pages.keys()]) if (page < Math.floor(first / PAGE) || page > Math.floor(last / PAGE)) this.pages.delete(page);
      for (let page = Math.floor(first / PAGE); page <= Math.floor(last / PAGE); page++) {
        const response = await itemsOf(this.run, this.filters, page).catch(() => null);
        if (response && filters === JSON.stringify(this.filters)) this.store(page, response);
      }
    }, REFRESH);
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
    if (entry.row === row) return;
    entry.row = row;
    entry.element.classList.toggle("pending", !row);
    const cell = (column) => el("div", { role: "gridcell", class: column.numeric ? "n" : null }, row ? column.cell(row) : el("span", { class: "bone" }));
    entry.element.replaceChildren(...this.columns.map(cell));
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
    if (!entry || event.target.closest("a") || getSelection().toString()) return;
    this.active = entry[0];
    this.open();
  }

  open() {
    const row = this.rowAt(this.active);
    if (row) go(addressOf(row));
  }

  walk(event) {
    if (event.target !== this.body || !this.total) return;
    const fit = Math.max(1, Math.floor(this.body.clientHeight / ROW) - 2);
    const next = { ArrowDown: this.active + 1, ArrowUp: this.active - 1, PageDown: this.active + fit, PageUp: this.active - fit, Home: 0, End: this.total - 1 }[event.key];
    if (event.key === "Enter") this.open();
    else if (next !== undefined) {
      event.preventDefault();
      this.active = Math.min(this.total - 1, Math.max(0, next));
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
