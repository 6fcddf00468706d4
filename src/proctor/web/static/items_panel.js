// The Items tab of the Run page: search, status chips, column menu, and the grid.

import { byId, debounced, el, format, remember, remembered, STATUSES } from "./app.js";
import { columnsFor } from "./items.js";
import { menu } from "./tabs.js";

const { number } = format;
const NARROW_SCREEN = "(max-width: 760px)";
const DEFAULTS = {
  coding: ["status", "repo", "prompt", "agent", "model", "seconds", "tokensTotal", "costUsd"],
  scenario: ["status", "factor:*", "repeat", "seconds", "tokensTotal", "costUsd"],
  dialogue: ["status", "factor:client", "factor:therapist", "factor:*", "repeat", "seconds", "tokensTotal", "costUsd"],
  benchmark: ["status", "factor:task", "model", "repeat", "seconds", "tokensTotal", "toolCalls", "costUsd"],
  evaluation: ["status", "factor:evaluator", "prompt", "factor:scenario", "model", "seconds", "tokensTotal", "costUsd"],
};
const NARROW = {
  coding: ["status", "prompt", "seconds"],
  scenario: ["status", "factor:variation", "seconds"],
  dialogue: ["status", "factor:client", "factor:therapist"],
  benchmark: ["status", "factor:task", "model"],
  evaluation: ["status", "factor:evaluator", "prompt"],
};

const isNarrow = () => matchMedia(NARROW_SCREEN).matches;

export class ItemsPanel {
  /** `page` has the job's columns, `run` is the API's answer, `first` the promise of the first page of items. */
  constructor(page, run, first) {
    Object.assign(this, { page, run });
    this.columns = columnsFor(run.factors, JSON.parse(page.dataset.columnTitles), "evaluates" in page.dataset);
    this.grid = document.createElement("item-grid");
    byId("items").replaceChildren(this.grid);
    this.grid.begin({ run: page.dataset.run, columns: this.chosenColumns(), changed: (response) => this.showChips(response.counts), first });
    this.makeColumnMenu();
    matchMedia(NARROW_SCREEN).addEventListener("change", () => this.grid.setColumns(this.chosenColumns()));
    byId("search").addEventListener("input", debounced(({ target }) => this.grid.reload({ search: target.value.trim() }), 200));
    byId("search").addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown" || event.key === "Enter") {
        event.preventDefault();
        this.grid.body.focus();
      }
    });
  }

  /** Apply a live update; `reload` if items may have changed that it does not list. */
  update(changes, { reload }) {
    if (this.grid.isUnfiltered && !this.grid.filters.search) this.showChips(changes.run.counts);
    if (reload) this.grid.refresh();
    if (changes.items?.length) this.grid.update(changes.items);
  }

  get columnsKey() {
    return `proctor-columns-${this.page.dataset.job}${isNarrow() ? "-narrow" : ""}`;
  }

  /** The columns the user selected, or the non-empty default columns of the job type. */
  chosenColumns() {
    const known = new Map(this.columns.map((column) => [column.key, column]));
    const chosen = remembered(this.columnsKey, null)?.filter((key) => known.has(key));
    if (chosen?.length) return chosen.map((key) => known.get(key));
    const kinds = isNarrow() ? NARROW : DEFAULTS;
    const every = (key) => (key === "factor:*" ? this.columns.map((column) => column.key).filter((name) => name.startsWith("factor:")) : [key]);
    const usual = new Set((kinds[this.run.job] || kinds.coding).flatMap(every));
    const empty = new Set([
      this.run.factors.includes("repository") || this.run.factors.includes("repo") ? "" : "repo",
      this.run.makers.some(({ agent }) => agent) ? "" : "agent",
      this.run.makers.some(({ model }) => model) ? "" : "model",
    ]);
    return [...usual].filter((key) => known.has(key) && !empty.has(key)).map((key) => known.get(key));
  }

  makeColumnMenu() {
    const boxes = this.columns.map((column) => {
      const box = el("input", { type: "checkbox", value: column.key });
      box.checked = this.chosenColumns().some(({ key }) => key === column.key);
      box.addEventListener("change", () => {
        const chosen = boxes.map((label) => label.firstChild).filter((one) => one.checked).map((one) => one.value);
        if (!chosen.length) return (box.checked = true);
        remember(this.columnsKey, chosen);
        this.grid.setColumns(this.chosenColumns());
      });
      return el("label", { class: "check menu-item" }, box, column.title === "#" ? "Position in plan" : column.title);
    });
    menu(byId("columns"), boxes, { stays: true });
  }

  showChips(counts) {
    const all = Object.values(counts).reduce((sum, count) => sum + count, 0);
    const chosen = this.grid.filters.status;
    const chip = (status, count) => {
      const pressed = status ? chosen.includes(status) : !chosen.length;
      return el(
        "button",
        { type: "button", class: "chip", "aria-pressed": String(pressed), dataset: { status }, onclick: () => this.choose(status) },
        status ? el("i", { class: `b-${status}` }) : null,
        status || "all",
        el("span", { class: "figures" }, number(count)),
      );
    };
    const focusedStatus = document.activeElement?.closest?.(".chip")?.dataset.status;
    byId("chips").replaceChildren(chip("", all), ...STATUSES.filter((status) => counts[status] || chosen.includes(status)).map((status) => chip(status, counts[status])));
    if (focusedStatus !== undefined) byId("chips").querySelector(`[data-status="${focusedStatus}"]`)?.focus();
  }

  choose(status) {
    const before = this.grid.filters.status;
    const next = !status ? [] : before.includes(status) ? before.filter((one) => one !== status) : [...before, status];
    this.grid.reload({ status: next });
  }
}
