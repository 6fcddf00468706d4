// A table of a page of rows: sorted by the server, changed in place, walked through with the keyboard.

import { el } from "./dom.js";

/**
 * `columns`: [{key, title, cell(row) → Node|string, sort, numeric, class}]. `rowKey(row)` names a row, `open(row)` is what
 * Enter and a click on a row do, `sorted(key, descending)` is called when a heading is chosen.
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
        return el("th", { scope: "col", class: classOf(column), "aria-sort": sorting }, title || el("span", { class: "unseen" }, "Actions"));
      }),
    );
  }

  sortBy(key) {
    this.order = { key, descending: this.order.key === key ? !this.order.descending : false };
    this.drawHeading();
    this.sorted?.(this.order.key, this.order.descending);
  }

  /** Show exactly these rows, in this order; those already there keep their elements. */
  show(rows) {
    const before = this.rows;
    this.rows = new Map();
    const shown = rows.map((row) => {
      const key = this.rowKey(row);
      const entry = before.get(key) || { element: this.makeRow() };
      this.rows.set(key, entry);
      this.fill(entry, row);
      return entry.element;
    });
    this.body.replaceChildren(...shown);
    if (shown.length && !this.body.querySelector("tr[tabindex='0']")) shown[0].tabIndex = 0;
  }

  /** Change one row where it is shown; false when it is not. */
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
    const held = entry.element.contains(document.activeElement) ? document.activeElement.dataset.action : null;
    entry.row = row;
    entry.element.replaceChildren(...this.columns.map((column) => el("td", { class: classOf(column) }, column.cell(row))));
    entry.element.classList.toggle("opens", Boolean(this.open));
    if (held) entry.element.querySelector(`[data-action="${held}"]`)?.focus();
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
