// A table for one page of rows: sorted by the server, updated in place, with keyboard navigation.

import { el } from "./dom.js";

/**
 * `columns`: [{key, title, cell(row) → Node|string, sort, numeric, class}]. `rowKey(row)` identifies a row, `open(row)` is
 * called on Enter or a click on a row, `sorted(key, descending)` when a sortable heading is clicked.
 */
export class DataTable {
  constructor({ columns, rowKey, open = null, sorted = null, label }) {
    Object.assign(this, { columns, rowKey, open, sorted, order: { key: "", descending: false } });
    this.rows = new Map();
    this.heading = el("tr", {});
    this.body = el("tbody", {});
    this.element = el("div", { class: "table-frame" }, el("table", { "aria-label": label }, el("thead", {}, this.heading), this.body));
    this.body.addEventListener("keydown", (event) => this.walk(event));
    this.drawHeading();
  }

  drawHeading() {
    this.heading.replaceChildren(
      ...this.columns.map((column) => {
        const { key, descending } = this.order;
        const sorting = key === column.key ? (descending ? "descending" : "ascending") : null;
        const title = column.sort ? el("button", { type: "button", class: "sort", onclick: () => this.sortBy(column.key) }, column.title) : column.title;
        return el("th", { scope: "col", class: classOf(column), "aria-sort": sorting }, title || "Actions");
      }),
    );
  }

  sortBy(key) {
    this.order = { key, descending: this.order.key === key ? !this.order.descending : false };
    this.drawHeading();
    this.sorted?.(this.order.key, this.order.descending);
  }

  /** Show these rows in this order; rows that are already shown keep their elements. */
  show(rows) {
    const before = this.rows;
    this.rows = new Map();
    const elements = rows.map((row) => {
      const key = this.rowKey(row);
      const entry = before.get(key) || { element: this.makeRow() };
      this.rows.set(key, entry);
      this.fill(entry, row);
      return entry.element;
    });
    this.body.replaceChildren(...elements);
    if (elements.length && !this.body.querySelector("tr[tabindex='0']")) elements[0].tabIndex = 0;
  }

  /** Update one row in place; returns false if it is not shown. */
  update(row) {
    const entry = this.rows.get(this.rowKey(row));
    if (entry) this.fill(entry, { ...entry.row, ...row });
    return Boolean(entry);
  }

  makeRow() {
    const row = el("tr", { tabindex: "-1" });
    row.addEventListener("click", (event) => {
      if (this.open && !event.target.closest("a, button, input, select") && !getSelection().toString()) this.open(this.rowOf(row));
    });
    return row;
  }

  fill(entry, row) {
    const focusedAction = entry.element.contains(document.activeElement) ? document.activeElement.dataset.action : null;
    entry.row = row;
    entry.element.replaceChildren(...this.columns.map((column) => el("td", { class: classOf(column) }, column.cell(row))));
    entry.element.classList.toggle("opens", Boolean(this.open));
    if (focusedAction) entry.element.querySelector(`[data-action="${focusedAction}"]`)?.focus();
  }

  rowOf(element) {
    return [...this.rows.values()].find((entry) => entry.element === element)?.row;
  }

  walk(event) {
    const current = event.target.closest("tr");
    if (event.target !== current) return;
    const next = { ArrowDown: current.nextElementSibling, ArrowUp: current.previousElementSibling, Home: this.body.firstElementChild, End: this.body.lastElementChild }[event.key];
    if (next) {
      current.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
      event.preventDefault();
    } else if (event.key === "Enter" && this.open) this.open(this.rowOf(current));
  }
}

const classOf = (column) => [column.numeric ? "n" : "", column.class || ""].join(" ").trim() || null;
