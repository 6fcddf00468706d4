// Virtualized grid that scrolls with the page: only visible rows exist, and only their pages are loaded.

import { el } from "./dom.js";

export const PAGE = 100;
// Browsers limit element heights to some ten million pixels; longer lists scroll in larger steps.
const TALLEST = 8_000_000;
// Height of the bar at the top of every page, and of the heading, which stay in view.
const BAR = 52;
const LEAST_ROWS = 4;
const REFRESH = 1500;
// How far an arrow key scrolls sideways, in pixels.
const SIDE_STEP = 120;

/** The least width of a column such as `112px` or `minmax(110px, 1fr)`. */
const leastWidth = (width) => Number(/\d+/.exec(width)?.[0] || 0);

/**
 * Subclasses implement `fetchPage(page, options)` → `{rows, total, …}`, `cells(row)` → cell elements, `headings()` → heading
 * cells, and `open()` for the active row; they may extend `stored(response)` and `keyed(event)`.
 */
export class PagedGrid extends HTMLElement {
  build(label, { rowHeight = 40, multiselectable = false } = {}) {
    Object.assign(this, { rowHeight, pages: new Map(), rows: new Map(), total: null, active: 0, revision: 0 });
    this.heading = el("div", { class: "grid-row grid-heading", role: "row", "aria-rowindex": "1" });
    this.tall = el("div", { class: "grid-tall", role: "presentation" });
    this.head = el("div", { role: "rowgroup", class: "grid-head" }, this.heading);
    this.scroller = el("div", { class: "grid-scroll", role: "rowgroup" }, this.tall);
    this.body = el("div", { class: "grid-body", role: "grid", "aria-label": label, "aria-multiselectable": multiselectable ? "true" : null, tabindex: "0" }, this.head, this.scroller);
    this.body.style.setProperty("--row", `${rowHeight}px`);
    this.empty = el("div", { class: "grid-empty", hidden: true });
    this.problem = el("div", { class: "notice bad grid-problem", role: "alert", hidden: true });
    // The scroll bar of a long grid would be far below the window.
    this.bar = el("div", { class: "grid-bar", "aria-hidden": "true", hidden: true }, el("div", {}));
    this.replaceChildren(this.body, this.bar, this.empty, this.problem);
    this.body.addEventListener("keydown", (event) => this.walk(event));
    this.tall.addEventListener("click", (event) => this.clicked(event));
    this.scroller.addEventListener("scroll", () => this.follow(this.scroller), { passive: true });
    this.bar.addEventListener("scroll", () => this.follow(this.bar), { passive: true });
    addEventListener("scroll", () => this.later(), { passive: true });
    new ResizeObserver(() => this.later()).observe(this.body);
  }

  /** The heading, the rows and the extra scroll bar scroll sideways together. */
  follow(source) {
    for (const one of [this.head, this.scroller, this.bar]) if (one !== source && one.scrollLeft !== source.scrollLeft) one.scrollLeft = source.scrollLeft;
  }

  setWidths(widths) {
    this.body.style.setProperty("--columns", widths.join(" "));
    this.body.style.setProperty("--least", `${widths.reduce((sum, width) => sum + leastWidth(width), 16)}px`);
    this.body.setAttribute("aria-colcount", widths.length);
    this.heading.replaceChildren(...this.headings());
    this.redraw();
  }

  /** Draw all rows anew. */
  redraw() {
    this.rows.clear();
    this.tall.replaceChildren();
    this.draw();
  }

  // ---- Loading

  /** Replace all pages; the rows stay until the first new page is there, also if the server is down. */
  async replace(page, { accept = () => {}, refuse = () => {} } = {}) {
    const revision = ++this.revision;
    this.controller?.abort();
    this.controller = new AbortController();
    this.classList.add("waiting");
    try {
      const response = await page({ signal: this.controller.signal });
      if (revision !== this.revision) return;
      accept();
      this.pages.clear();
      this.active = 0;
      this.scrollToTop();
      this.store(0, response);
    } catch (error) {
      if (revision !== this.revision || error.name === "AbortError") return;
      refuse();
      this.showProblem(error, () => this.replace(page, { accept, refuse }));
    }
  }

  async load(page) {
    if (this.pages.has(page)) return;
    this.pages.set(page, null);
    const revision = this.revision;
    if (!this.controller || this.controller.signal.aborted) this.controller = new AbortController();
    try {
      const response = await this.fetchPage(page, { signal: this.controller.signal });
      if (revision === this.revision) this.store(page, response);
    } catch (error) {
      if (revision === this.revision) this.failed(page, error);
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
    this.pages.set(page, response.rows);
    this.total = response.total;
    this.body.setAttribute("aria-rowcount", response.total + 1);
    this.stored(response);
    this.draw();
  }

  /** A page has been loaded. */
  stored(response) {
    this.empty.hidden = response.total > 0;
  }

  showEmpty(title, words) {
    this.empty.replaceChildren(el("b", {}, title), el("p", { class: "soft" }, words));
    this.empty.hidden = false;
  }

  /** Reload the visible pages, throttled: the order or the number of items may have changed. */
  refresh() {
    if (this.refreshing) return;
    this.refreshing = setTimeout(async () => {
      this.refreshing = 0;
      const [first, last] = this.visibleRange();
      const revision = this.revision;
      for (const page of [...this.pages.keys()]) if (page < Math.floor(first / PAGE) || page > Math.floor(last / PAGE)) this.pages.delete(page);
      for (let page = Math.floor(first / PAGE); page <= Math.floor(last / PAGE); page++) {
        const response = await this.fetchPage(page).catch(() => null);
        if (response && revision === this.revision) this.store(page, response);
      }
    }, REFRESH);
  }

  rowAt(index) {
    return this.pages.get(Math.floor(index / PAGE))?.[index % PAGE];
  }

  // ---- Drawing

  get step() {
    return Math.min(this.rowHeight, TALLEST / Math.max(1, this.total || 1));
  }

  /** How far the rows are scrolled beyond the heading, in pixels. */
  get scrolled() {
    return this.offsetParent ? Math.max(0, BAR + this.heading.offsetHeight - this.tall.getBoundingClientRect().top) : 0;
  }

  visibleRange() {
    const top = Math.floor(this.scrolled / this.step);
    const fit = Math.ceil(innerHeight / this.rowHeight);
    return [Math.max(0, top - 5), Math.min((this.total || 0) - 1, top + fit + 5)];
  }

  later() {
    this.drawing ||= requestAnimationFrame(() => {
      this.drawing = 0;
      this.draw();
    });
  }

  draw() {
    // A hidden grid is drawn when its tab is opened.
    if (this.total === null || !this.offsetParent) return;
    this.tall.style.height = `${Math.max(LEAST_ROWS * this.rowHeight, Math.min(TALLEST, this.total * this.rowHeight))}px`;
    const [first, last] = this.visibleRange();
    for (let page = Math.floor(first / PAGE); page <= Math.floor(Math.max(last, 0) / PAGE); page++) this.load(page);
    for (const [index, entry] of this.rows) {
      if (index < first || index > last) {
        entry.element.remove();
        this.rows.delete(index);
      }
    }
    const scrolled = this.scrolled;
    const top = Math.floor(scrolled / this.step);
    for (let index = first; index <= last; index++) this.drawRow(index, this.step === this.rowHeight ? index * this.rowHeight : scrolled + (index - top) * this.rowHeight);
    this.body.setAttribute("aria-activedescendant", this.rows.has(this.active) ? this.idOf(this.active) : "");
    this.showBar();
  }

  showBar() {
    const { scrollWidth, clientWidth } = this.scroller;
    const isWide = scrollWidth > clientWidth + 1;
    // What scrolls takes the focus, so that it can be scrolled without a mouse.
    if (isWide) this.scroller.tabIndex = 0;
    else if (document.activeElement !== this.scroller) this.scroller.removeAttribute("tabindex");
    this.bar.hidden = !isWide || this.tall.getBoundingClientRect().bottom < innerHeight;
    this.bar.firstChild.style.width = `${scrollWidth}px`;
    if (!this.bar.hidden) this.follow(this.scroller);
  }

  idOf(index) {
    return `${this.localName}-row-${index}`;
  }

  drawRow(index, y) {
    const row = this.rowAt(index) || null;
    let entry = this.rows.get(index);
    if (!entry) {
      entry = { element: el("div", { class: "grid-row", role: "row", id: this.idOf(index), "aria-rowindex": index + 2 }), row: undefined };
      this.rows.set(index, entry);
      this.tall.append(entry.element);
    }
    entry.element.style.transform = `translateY(${y}px)`;
    entry.element.classList.toggle("active", index === this.active);
    if (entry.row !== row) {
      entry.row = row;
      entry.element.classList.toggle("pending", !row);
      entry.element.replaceChildren(...this.cells(row, entry));
    }
    return entry;
  }

  // ---- Keyboard and mouse

  indexOf(target) {
    const element = target.closest(".grid-tall > .grid-row");
    return [...this.rows].find(([, entry]) => entry.element === element)?.[0];
  }

  /** The index that a key moves to; undefined: another key. */
  moved(key) {
    const fit = Math.max(1, Math.floor((innerHeight - BAR - this.heading.offsetHeight) / this.rowHeight) - 1);
    const next = { ArrowDown: this.active + 1, ArrowUp: this.active - 1, PageDown: this.active + fit, PageUp: this.active - fit, Home: 0, End: this.total - 1 }[key];
    return next === undefined ? undefined : Math.min(this.total - 1, Math.max(0, next));
  }

  walk(event) {
    if (![this.body, this.scroller].includes(event.target) || !this.total || this.keyed(event)) return;
    const next = this.moved(event.key);
    const aside = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Enter") this.open();
    else if (aside) {
      this.scroller.scrollBy({ left: aside * SIDE_STEP });
      event.preventDefault();
    } else if (next !== undefined) {
      event.preventDefault();
      this.active = next;
      this.scrollToActive();
      this.draw();
    }
  }

  /** Handle a further key; true if it was one. */
  keyed() {
    return false;
  }

  scrollToActive() {
    const y = this.tall.getBoundingClientRect().top + this.active * this.step;
    const top = BAR + this.heading.offsetHeight;
    if (y < top) scrollBy(0, y - top);
    else if (y + this.rowHeight > innerHeight) scrollBy(0, y + this.rowHeight - innerHeight + 8);
  }

  /** Show the first row, unless the top of the grid is in view. */
  scrollToTop() {
    const top = this.body.getBoundingClientRect().top;
    if (this.offsetParent && top < BAR) scrollBy(0, top - BAR);
  }
}
