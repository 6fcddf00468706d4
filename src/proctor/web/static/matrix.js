// The Matrix tab of the Run page: tasks by models or levels of another factor, and a drawer with the session of a cell.

import { api, query } from "./api.js";
import { byId, debounced, el, urlOf } from "./dom.js";
import { money, number, plural, readingText, seconds } from "./format.js";
import { PAGE, PagedGrid } from "./paged_grid.js";
import { badge } from "./status.js";
import { visible } from "./texts.js";
import "./transcript.js";
import { marked, wordDiff } from "./text_diff.js";

const ROW = 60;
const DIFF_ROW = 152;
/** Characters of an answer in a cell, and where two columns are compared. */
const SHORT = 300;
const LONG = 2000;
/** How often the matrix of a running run is loaded anew, in milliseconds. */
const REFRESH = 10_000;
/** Seconds that a request waits for all items of a large run, once the first tasks are shown. */
const WAIT = 5;
const PARAMETERS = { by: "", task: "", evaluator: "", disagree: "", left: "", right: "" };

const digits = (value) => String(Number(value.toFixed(2)));

/** The verdict of a cell: a word for one item, a fraction for several. */
function verdict(cell) {
  if (cell.items === 1) return badge(cell.status, cell.reason);
  if (!cell.decided) return badge(cell.status, cell.reason);
  const status = cell.passed === cell.decided ? "success" : cell.passed ? "timeout" : "fail";
  return el("span", { class: `status s-${status}`, title: `${cell.passed} of ${plural(cell.decided, "item")} passed` }, `${number(cell.passed)} of ${number(cell.decided)} passed`);
}

class MatrixGrid extends PagedGrid {
  /** `fetch(page, options)` loads a page, `changed(response)` is called with each, `open(cell, level)` on a click on a cell. */
  begin({ fetch, changed, openCell }) {
    Object.assign(this, { fetch, changed, openCell, levels: [], columns: [], column: 0 });
    this.build("Matrix", { rowHeight: ROW });
    this.load(0);
  }

  async fetchPage(page, options) {
    return this.fetch(page, options);
  }

  stored(response) {
    this.changed(response);
    this.showLevels(response.levels, response.figures);
    if (response.total) this.empty.hidden = true;
    else if (!response.isCurrent) this.showEmpty(readingText(response.reading, "Reading all items…"), "The matrix of a large run takes some seconds.");
    else if (response.tasks) this.showEmpty("No matching tasks.", "Change the search, or show all tasks.");
    else this.showEmpty("No finished items yet.", "");
  }

  showLevels(levels, figures) {
    const columns = this.pair || levels;
    const state = JSON.stringify([this.pair, levels, figures]);
    if (state === this.shownLevels) return;
    this.shownLevels = state;
    this.levels = levels;
    this.figures = figures;
    this.columns = columns;
    this.rowHeight = this.pair ? DIFF_ROW : ROW;
    this.body.style.setProperty("--row", `${this.rowHeight}px`);
    this.classList.toggle("comparing", Boolean(this.pair));
    this.column = Math.min(this.column, columns.length - 1);
    const [task, level] = matchMedia("(max-width: 760px)").matches ? [110, 200] : [180, 210];
    this.setWidths([`minmax(${task}px, ${this.pair ? 0.5 : 1.2}fr)`, ...columns.map(() => `minmax(${level}px, 1fr)`)]);
  }

  headings() {
    const heading = (title, figures = "") => el("div", { role: "columnheader", title: visible(`${title} ${figures}`.trim()) }, visible(title), figures ? el("span", { class: "level-figures" }, figures) : null);
    return [heading("Task"), ...this.columns.map((level) => heading(level, this.figures?.[this.levels.indexOf(level)]))];
  }

  cells(row) {
    if (!row) return [null, ...this.columns].map(() => el("div", { role: "gridcell" }, el("span", { class: "bone" })));
    const chosen = this.columns.map((level) => row.cells[this.levels.indexOf(level)]);
    const answers = this.pair && chosen[0] && chosen[1] ? wordDiff(chosen[0].answer, chosen[1].answer) : null;
    const words = (cell, index) => (answers ? marked(answers, index ? "added" : "removed") : visible(cell.answer));
    const cell = (one, index) =>
      el(
        "div",
        { role: "gridcell", class: "matrix-cell", dataset: { column: index } },
        one
          ? [
              el("span", { class: "matrix-line" }, verdict(one), one.score === null ? null : el("b", { class: "figures" }, digits(one.score)), el("span", { class: "soft figures" }, money(one.costUsd))),
              el("span", { class: "matrix-answer", title: answers ? null : visible(one.answer) }, words(one, index)),
            ]
          : el("span", { class: "soft" }, "–"),
      );
    return [el("div", { role: "rowheader", class: "matrix-task", title: visible(row.task) }, visible(row.task)), ...chosen.map(cell)];
  }

  drawRow(index, y) {
    const entry = super.drawRow(index, y);
    for (const [column, cell] of [...entry.element.querySelectorAll(".matrix-cell")].entries()) {
      const isActive = index === this.active && column === this.column;
      cell.classList.toggle("active-cell", isActive);
      if (isActive) cell.id = "matrix-active";
      else cell.removeAttribute("id");
    }
    return entry;
  }

  draw() {
    super.draw();
    if (this.querySelector("#matrix-active")) this.body.setAttribute("aria-activedescendant", "matrix-active");
  }

  clicked(event) {
    const index = this.indexOf(event.target);
    const cell = event.target.closest(".matrix-cell");
    if (index === undefined || !cell || getSelection().toString()) return;
    this.active = index;
    this.column = Number(cell.dataset.column);
    this.draw();
    this.open();
  }

  keyed(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return false;
    this.column = Math.min(this.columns.length - 1, Math.max(0, this.column + step));
    this.draw();
    this.querySelector("#matrix-active")?.scrollIntoView({ block: "nearest", inline: "nearest" });
    event.preventDefault();
    return true;
  }

  open() {
    const level = this.columns[this.column];
    const row = this.rowAt(this.active);
    const cell = row?.cells[this.levels.indexOf(level)];
    if (cell?.sessionId) this.openCell(cell, row.task, level);
  }
}
customElements.define("matrix-grid", MatrixGrid);

export class MatrixPanel {
  /** `current()` returns the run as it is now. */
  constructor(run, current) {
    Object.assign(this, { run, current, address: `/api/runs/${encodeURIComponent(run.runId)}/matrix` });
    const parameters = new URLSearchParams(location.search);
    this.choice = Object.fromEntries(Object.keys(PARAMETERS).map((name) => [name, parameters.get(name) || ""]));
  }

  /** Show the matrix; it is loaded when its tab is opened for the first time. */
  open() {
    if (this.grid) return;
    this.grid = document.createElement("matrix-grid");
    byId("matrix").replaceChildren(this.grid);
    const { choice } = this;
    byId("matrix-by").replaceChildren(...this.run.factors.map((name) => el("option", { value: name }, visible(name))));
    byId("matrix-task").value = choice.task;
    byId("matrix-disagree").checked = choice.disagree === "true";
    byId("matrix-by").addEventListener("change", ({ target }) => this.choose({ by: target.value, left: "", right: "" }));
    byId("matrix-evaluator").addEventListener("change", ({ target }) => this.choose({ evaluator: target.value }));
    byId("matrix-disagree").addEventListener("change", ({ target }) => this.choose({ disagree: target.checked ? "true" : "" }));
    byId("matrix-task").addEventListener("input", debounced(({ target }) => this.choose({ task: target.value.trim() }), 200));
    for (const side of ["left", "right"]) byId(`matrix-${side}`).addEventListener("change", ({ target }) => this.choose({ [side]: target.value }));
    this.applyPair();
    setInterval(() => this.current().status === "running" && !document.hidden && this.grid.offsetParent && this.grid.refresh(), REFRESH);
    this.grid.begin({ fetch: (page, options) => this.fetch(choice, page, options), changed: (response) => this.changed(response), openCell: (...cell) => this.showDrawer(...cell) });
  }

  async fetch(choice, page, options) {
    const { by, task, evaluator, disagree } = choice;
    const parameters = { by, search: task, score: evaluator, disagree, characters: this.grid.pair ? LONG : SHORT, offset: page * PAGE, limit: PAGE, wait: this.isComplete ? WAIT : 0 };
    return api.get(`${this.address}${query(parameters)}`, options);
  }

  /** Load the rest when the first tasks are shown. */
  complete() {
    if (this.completing) return;
    this.completing = setTimeout(async () => {
      // What is shown stays as it is, and where it was scrolled to, until all items are there.
      for (let isCurrent = false, reading; !isCurrent; ) {
        this.isComplete = true;
        ({ isCurrent, reading } = await this.fetch(this.choice, 0).catch(() => ({ isCurrent: true })));
        if (!isCurrent) this.showReading(reading);
      }
      this.isComplete = true;
      await this.grid.replace((options) => this.fetch(this.choice, 0, options));
      this.completing = 0;
    }, 0);
  }

  showReading(reading) {
    byId("matrix-count").textContent = `The first tasks. ${readingText(reading, "All items are being read…")}`;
  }

  choose(changes) {
    Object.assign(this.choice, changes);
    this.applyPair();
    this.grid.replace((options) => this.fetch(this.choice, 0, options));
  }

  /** Two different columns are compared word by word. */
  applyPair() {
    const { left, right } = this.choice;
    this.grid.pair = left && right && left !== right ? [left, right] : null;
  }

  changed({ by, levels, scores, total, tasks, hasMoreLevels, isCurrent, reading }) {
    this.isComplete = isCurrent;
    if (!isCurrent) this.complete();
    this.choice.by ||= by;
    byId("matrix-by").value = by;
    byId("matrix-compare").href = urlOf(`/compare${query({ run: this.run.runId, by })}`);
    const options = (first, names, chosen) => [el("option", { value: "" }, first), ...names.map((name) => el("option", { value: name, selected: name === chosen }, visible(name)))];
    byId("matrix-evaluator").replaceChildren(...options("Verdict", scores, this.choice.evaluator));
    byId("matrix-evaluator").closest("label").hidden = !scores.length;
    byId("matrix-left").replaceChildren(...options("All columns", levels, this.choice.left));
    byId("matrix-right").replaceChildren(...options("All columns", levels, this.choice.right));
    if (!isCurrent) this.showReading(reading);
    else byId("matrix-count").textContent = `${total === tasks ? plural(tasks, "task") : `${number(total)} of ${plural(tasks, "task")}`}${hasMoreLevels ? `; the first ${levels.length} levels` : ""}`;
    this.writeAddress();
  }

  writeAddress() {
    const parameters = new URLSearchParams(location.search);
    for (const name of Object.keys(PARAMETERS)) parameters.delete(name);
    for (const [name, value] of Object.entries(this.choice)) if (value) parameters.set(name, value);
    const text = parameters.toString();
    history.replaceState(history.state, "", `${location.pathname}${text ? `?${text}` : ""}${location.hash}`);
  }

  /** The list of the items of a cell. */
  itemsAddress(task, level) {
    const named = ["task", "scenario"].find((name) => this.run.factors.includes(name) && name !== this.choice.by);
    const levels = [`${this.choice.by}=${level}`, ...(named ? [`${named}=${task}`] : [])];
    return `/runs/${encodeURIComponent(this.run.runId)}${query({ factor: levels, search: named ? "" : task.slice(0, 200) })}#items`;
  }

  /** A drawer with the session of a cell's first item; the others are a click away. */
  async showDrawer(cell, task, level) {
    const close = el("button", { type: "button", class: "quiet icon", "aria-label": "Close" }, "×");
    const facts = el("p", { class: "soft" }, visible(level));
    const body = el("div", { class: "drawer-body", tabindex: "0", role: "region", "aria-label": "Session" });
    // With an address from the start: it has the focus, not the Close button, which the Enter key would press.
    const link = el("a", { class: "button compact", href: `/sessions/${encodeURIComponent(cell.sessionId)}` }, "Open session");
    const all = cell.items > 1 ? el("a", { class: "button compact", href: this.itemsAddress(task, level) }, `All ${plural(cell.items, "item")}`) : null;
    const repeats = el("div", { class: "chips drawer-repeats", role: "group", "aria-label": "Repeats", hidden: true });
    const drawer = el("dialog", { class: "drawer", "aria-labelledby": "drawer-title" }, el("header", {}, el("div", {}, el("h2", { id: "drawer-title" }, visible(task)), facts), all, link, close), repeats, body);
    close.addEventListener("click", () => drawer.close());
    drawer.addEventListener("click", (event) => event.target === drawer && drawer.close());
    drawer.addEventListener("close", () => {
      drawer.remove();
      this.grid.body.focus({ preventScroll: true });
    });
    document.body.append(drawer);
    drawer.showModal();
    const show = (id) => this.showSession(id, level, { body, facts, link });
    if (cell.items > 1) this.showRepeats(cell, repeats, show);
    await show(cell.sessionId);
  }

  /** The repeats of a cell with their verdicts and scores; each opens its session in the drawer. */
  async showRepeats(cell, box, show) {
    const { items } = await api.get(`${this.address}/items${query({ item: cell.itemIds })}`).catch(() => ({ items: [] }));
    const button = (item) => {
      const scores = Object.values(item.outcome?.scores || {}).map((score) => score.value).filter((value) => value !== null && value !== undefined);
      const open = () => {
        for (const one of box.children) one.setAttribute("aria-pressed", String(one === element));
        show(item.sessionId);
      };
      const words = [`Repeat ${number(item.repeat)}`, badge(item.status, item.reason), scores.length === 1 ? el("span", { class: "figures" }, digits(scores[0])) : null];
      const element = el("button", { type: "button", class: "chip", disabled: !item.sessionId, title: visible(item.outcome?.answer || ""), "aria-pressed": String(item.sessionId === cell.sessionId), onclick: open }, words);
      return element;
    };
    box.replaceChildren(...items.map(button), ...(cell.items > items.length ? [el("span", { class: "soft" }, `and ${number(cell.items - items.length)} more`)] : []));
    box.hidden = !items.length;
  }

  async showSession(id, level, { body, facts, link }) {
    link.href = urlOf(`/sessions/${encodeURIComponent(id)}`);
    body.dataset.session = id;
    body.replaceChildren(el("p", { class: "loading" }, "Loading session…"));
    try {
      const session = await api.get(`/api/sessions/${encodeURIComponent(id)}`);
      // Another repeat was chosen meanwhile.
      if (body.dataset.session !== id) return;
      facts.replaceChildren(badge(session.status, session.endReason), ` ${visible(level)} · ${seconds(session.workSeconds)} · ${money(session.costUsd)}`);
      const transcript = document.createElement("session-transcript");
      const scores = session.scores.map((score) => el("li", {}, el("b", {}, visible(score.evaluator)), ` ${score.value === null ? visible(score.label) : digits(score.value)}`, score.explanation ? el("span", { class: "soft" }, ` ${visible(score.explanation)}`) : null));
      body.replaceChildren(...(session.error ? [el("div", { class: "notice bad" }, el("pre", { class: "said" }, visible(session.error)))] : []), ...(scores.length ? [el("ul", { class: "drawer-scores" }, scores)] : []), transcript);
      transcript.begin({ session: session.id, started: session.startedAt });
      await transcript.open();
    } catch (error) {
      if (body.dataset.session === id) body.replaceChildren(el("div", { class: "notice bad", role: "alert" }, el("p", {}, error.message)));
    }
  }
}
