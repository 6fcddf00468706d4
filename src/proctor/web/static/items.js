// The items of a run, however many: only the rows in sight exist, and only their pages are asked for.

import { api, query } from "./api.js";
import { el } from "./dom.js";
import { ago, moment, money, number, seconds } from "./format.js";
import { badge } from "./status.js";
import { visible } from "./texts.js";

const PAGE = 100;
const ROW = 40;
// Browsers lose count of pixels beyond some ten millions; longer lists are scrolled in larger steps.
const TALLEST = 8_000_000;
const REFRESH = 1500;
// What columns take on a phone: three of them must fit.
const NARROW = { status: "104px", seconds: "76px" };

const shortRepo = (repo) => repo.replace(/\/+$/, "").split("/").pop() || "";
const text = (key) => (row) => visible(row[key] || "");

// What a column holds is called otherwise in some jobs.
const TITLES = {
  evaluation: { prompt: "Session", model: "Judge", "factor:model": "judged model" },
  dialogue: { prompt: "Dialogue", model: "Models" },
  scenario: { prompt: "Scenario", model: "Models" },
};

/** Every column there can be: key, title, how wide, what a cell shows. */
export function columnsFor(factors, job) {
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
  // Those that are columns of their own; of an evaluation the model is its judge, not whom it judges.
  const own = new Set(job === "evaluation" ? [] : ["model", "agent", "repository"]);
  const varied = factors
    .filter((name) => !own.has(name))
    .map((name) => ({ key: `factor:${name}`, title: name, width: name === "evaluator" ? "minmax(170px, 2fr)" : "minmax(110px, 1fr)", cell: factorCell(name) }));
  return [...plain, ...varied].map((column) => ({ ...column, title: TITLES[job]?.[column.key] || column.title }));
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
  const asked = { search, status, order, descending: descending || "", offset: page * PAGE, limit: PAGE };
  return api.get(`/api/runs/${encodeURIComponent(run)}/items${query(asked)}`, options);
}

export class ItemGrid extends HTMLElement {
  /** `changed(answer)` is called with each answer's totals; `first` is the first page, asked for already. */
  begin({ run, columns, changed, first }) {
    Object.assign(this, { run, columns, changed });
    this.wanted = { search: "", status: [], order: "position", descending: false };
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
    first.then((answer) => this.take(0, answer)).catch((error) => this.failed(0, error));
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
    const { order, descending } = this.wanted;
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
    const { order, descending } = this.wanted;
    // Once more turns it round; a third time goes back to the order of the plan.
    if (order !== key) this.ask({ order: key, descending: false });
    else if (!descending) this.ask({ order: key, descending: true });
    else this.ask({ order: "position", descending: false });
    this.drawHeading();
    this.heading.querySelector("[aria-sort] .sort")?.focus();
  }

  /** Other items, or another order. */
  ask(wanted) {
    Object.assign(this.wanted, wanted);
    this.asking?.abort();
    this.pages.clear();
    this.active = 0;
    this.body.scrollTop = 0;
    this.classList.add("waiting");
    this.load(0);
  }

  get plain() {
    return !this.wanted.search && !this.wanted.status.length && this.wanted.order === "position";
  }

  async load(page) {
    if (this.pages.has(page)) return;
    this.pages.set(page, null);
    const wanted = JSON.stringify(this.wanted);
    if (!this.asking || this.asking.signal.aborted) this.asking = new AbortController();
    try {
      const answer = await itemsOf(this.run, this.wanted, page, { signal: this.asking.signal });
      if (wanted === JSON.stringify(this.wanted)) this.take(page, answer);
    } catch (error) {
      this.failed(page, error);
    }
  }

  failed(page, error) {
    this.pages.delete(page);
    if (error.name === "AbortError") return;
    this.classList.remove("waiting");
    this.showEmpty("The items cannot be shown.", `${error.message} ${error.remedy || ""}`);
  }

  take(page, answer) {
    this.classList.remove("waiting");
    this.pages.set(page, answer.items.map((row) => ({ ...row, runId: this.run })));
    this.total = answer.total;
    this.body.setAttribute("aria-rowcount", answer.total + 1);
    this.changed(answer);
    if (answer.total) this.empty.hidden = true;
    else if (this.wanted.search || this.wanted.status.length) this.showEmpty("No item fits.", "Try another word, or another status.");
    else this.showEmpty("This run has no items.", "");
    this.draw();
  }

  showEmpty(title, words) {
    this.empty.replaceChildren(el("b", {}, title), el("p", { class: "soft" }, words));
    this.empty.hidden = false;
  }

  /** Items that have changed: in place, without asking for anything. */
  update(items) {
    const known = new Map();
    for (const rows of this.pages.values()) for (const [index, row] of (rows || []).entries()) known.set(row.id, [rows, index]);
    for (const item of items) {
      const place = known.get(item.id);
      if (place) place[0][place[1]] = { ...item, runId: this.run };
    }
    if (!this.plain) this.refresh();
    this.draw();
  }

  /** Ask again for what is in sight, now and then: another order or another number of items may hold. */
  refresh() {
    if (this.refreshing) return;
    this.refreshing = setTimeout(async () => {
      this.refreshing = 0;
      const [first, last] = this.inSight();
      const wanted = JSON.stringify(this.wanted);
      for (const page of [...this.pages.keys()]) if (page < Math.floor(first / PAGE) || page > Math.floor(last / PAGE)) this.pages.delete(page);
      for (let page = Math.floor(first / PAGE); page <= Math.floor(last / PAGE); page++) {
        const answer = await itemsOf(this.run, this.wanted, page).catch(() => null);
        if (answer && wanted === JSON.stringify(this.wanted)) this.take(page, answer);
      }
    }, REFRESH);
  }

  get step() {
    return Math.min(ROW, TALLEST / Math.max(1, this.total || 1));
  }

  inSight() {
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
    // As tall as its rows, up to what the stylesheet allows; room for a scroll bar below them.
    this.body.style.height = `${Math.max(4, Math.min(this.total, 100)) * ROW + 52}px`;
    const [first, last] = this.inSight();
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
    const found = [...this.rows].find(([, entry]) => entry.element === element);
    if (!found || event.target.closest("a") || getSelection().toString()) return;
    this.active = found[0];
    this.open();
  }

  open() {
    const row = this.rowAt(this.active);
    if (row) location.assign(addressOf(row));
  }

  walk(event) {
    if (event.target !== this.body || !this.total) return;
    const fit = Math.max(1, Math.floor(this.body.clientHeight / ROW) - 2);
    const next = { ArrowDown: this.active + 1, ArrowUp: this.active - 1, PageDown: this.active + fit, PageUp: this.active - fit, Home: 0, End: this.total - 1 }[event.key];
    if (event.key === "Enter") this.open();
    else if (next !== undefined) {
      event.preventDefault();
      this.active = Math.min(this.total - 1, Math.max(0, next));
      this.bringIntoSight();
      this.draw();
    }
  }

  bringIntoSight() {
    const [y, height] = [this.active * this.step, this.body.clientHeight - this.heading.offsetHeight];
    if (y < this.body.scrollTop) this.body.scrollTop = y;
    else if (y + ROW > this.body.scrollTop + height) this.body.scrollTop = y + ROW - height;
  }
}
customElements.define("item-grid", ItemGrid);
