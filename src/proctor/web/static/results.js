// The Results tab of the Run page: sections as the run's job has them, current while it runs.

import { api, byId, el, format, query } from "./app.js";
import { chartCard, figureWords, itemsAddress } from "./charts.js";
import { place, updated } from "./dom.js";
import { visible } from "./texts.js";

const { number, plural } = format;
const PAUSE = 3000;
/** How long results wait for the groups of failures, in milliseconds: what appears later moves what is there. */
const FAILURES_WAIT = 400;
const FAILURE_GROUPS = 5;
const SIGNS = { success: "✓", fail: "✗", timeout: "◔", error: "!" };

export class ResultsPanel {
  /** `stop(button)` stops the run. */
  constructor(run, { stop }) {
    Object.assign(this, { run, stop, box: byId("results"), seen: "", shown: [], failures: null, timer: 0, isOpen: false, allColumns: new Set() });
  }

  /** The tab is shown. */
  open() {
    this.isOpen = true;
    this.load();
  }

  close() {
    this.isOpen = false;
  }

  /** Load again if the counts of the run have changed, at most every few seconds. */
  update(counts, status) {
    // Also when only the status has changed: the answer of a finished run is another one.
    const state = JSON.stringify([counts, status]);
    if (state === this.seen) return;
    this.wanted = state;
    this.failed = counts.fail + counts.timeout + counts.error;
    if (!this.timer && this.isOpen) this.timer = setTimeout(() => this.load(), this.seen ? PAUSE : 0);
  }

  async load() {
    clearTimeout(this.timer);
    this.timer = 0;
    if (!this.isOpen) return;
    const state = this.wanted;
    try {
      const failures = this.loadFailures();
      const answer = await api.get(`/api/runs/${encodeURIComponent(this.run)}/results${query(this.wishes())}`);
      await Promise.race([failures, new Promise((done) => setTimeout(done, FAILURES_WAIT))]);
      this.seen = state;
      this.show(answer);
      failures.then(() => this.show(answer));
      // Computed beside the requests: ask again until it is current.
      if (!answer.isCurrent || this.wanted !== state) this.timer = setTimeout(() => this.load(), answer.isCurrent ? PAUSE : 1000);
    } catch (error) {
      // What is shown stays; the next change asks again.
      if (!this.shown.length) this.box.replaceChildren(el("div", { class: "notice bad", role: "alert" }, el("p", {}, visible(error.message)), el("p", { class: "soft" }, visible(error.remedy || ""))));
      this.timer = setTimeout(() => this.load(), 2 * PAUSE);
    }
  }

  /** The largest groups of failures, or what was known of them. */
  async loadFailures() {
    if (!this.failed) return;
    try {
      this.failures = await api.get(`/api/runs/${encodeURIComponent(this.run)}/failures${query({ limit: FAILURE_GROUPS })}`);
    } catch {
      // The results say why the server does not answer.
    }
  }

  /** Only sections that have changed are drawn again, so that the reader loses neither place nor focus. */
  show(answer) {
    const texts = answer.reading ? [...answer.notes, format.readingText(answer.reading)] : answer.notes;
    const remarks = texts.length ? [{ kind: "remarks", remarks: texts }] : [];
    const failed = this.failures && failedOnly(this.failures);
    const failures = failed?.groups.length ? [{ kind: "failures", ...failed }] : [];
    // After the answer, its picture and its table.
    const after = answer.sections.findIndex(({ kind }) => kind === "table") + 1 || answer.sections.filter(({ kind }) => kind === "sentence").length;
    const sections = [...answer.sections.slice(0, after), ...failures, ...answer.sections.slice(after), ...remarks];
    if (answer.choice) sections[0] = { ...sections[0], choice: answer.choice };
    const before = new Map(this.shown.map((one) => [one.key, one]));
    this.shown = sections.map((section) => {
      const [key, text] = [`${section.kind} ${section.title ?? ""}`, JSON.stringify(section)];
      const last = before.get(key);
      before.delete(key);
      if (last?.text === text) return last;
      const element = this.section(section);
      // Charts have listeners of their own on each mark.
      return { key, text, element: last && section.kind !== "chart" ? updated(last.element, element) : element };
    });
    const elements = this.shown.map((one) => one.element);
    if (!elements.length) elements.push(empty(answer));
    place(this.box, elements);
    this.box.dataset.current = String(answer.isCurrent);
  }

  section(section) {
    return {
      sentence: () => this.sentence(section),
      table: () => this.table(section),
      chart: () => chartCard(section, { run: this.run }),
      matrix: () => this.matrix(section),
      details: () => this.details(section),
      failures: () => this.failureGroups(section),
      remarks: () => el("div", { class: "soft small result-remarks" }, section.remarks.map((words) => el("p", {}, visible(words)))),
    }[section.kind]();
  }

  details({ title, sections, isFolded }) {
    const heading = title ? el(isFolded ? "summary" : "h2", {}, visible(title)) : null;
    return el(isFolded ? "details" : "section", { class: "stack" }, heading, sections.map((each) => this.section(each)));
  }

  /** The margin and the baseline of the answer, which are in the address. */
  wishes() {
    const found = new URLSearchParams(location.search);
    const points = Number.parseFloat(found.get("margin") ?? "");
    return { margin: Number.isFinite(points) ? points / 100 : "", baseline: found.get("baseline") ?? "" };
  }

  /** Fields for the margin and the baseline of the answer. */
  wishForm({ margin, baseline, options, factor }) {
    const wish = (name, value) => {
      const address = new URL(location.href);
      if (value) address.searchParams.set(name, value);
      else address.searchParams.delete(name);
      history.replaceState(history.state, "", address);
      this.load();
    };
    const points = Math.round(1000 * margin) / 10;
    const compared = `/compare${query({ run: this.run, by: factor, against: baseline })}`;
    return el("form", { class: "result-wishes soft small", onsubmit: (event) => event.preventDefault() },
      el("label", {}, "May be worse by ", el("input", { type: "number", min: 0, max: 100, step: "any", value: points, onchange: ({ target }) => wish("margin", target.value) }), " pp"),
      el("label", {}, "than ", el("select", { onchange: ({ target }) => wish("baseline", target.value) }, options.map(({ name }) => el("option", { value: name, selected: name === baseline }, visible(name))))),
      el("a", { href: compared }, "Compare in detail"));
  }

  sentence({ text, note, tone, offersStop, choice }) {
    const button = offersStop ? el("button", { type: "button", class: tone === "good" ? "primary" : null, "data-needs": "run" }, "Stop run") : null;
    button?.addEventListener("click", () => this.stop(button));
    return el("div", { class: `notice result-sentence ${tone === "good" ? "good" : ""}` }, el("div", {}, el("p", {}, el("b", {}, visible(text))), note ? el("p", { class: "soft small" }, visible(note)) : null, choice ? this.wishForm(choice) : null), button);
  }

  table({ title, caption, columns, rows, omitted }) {
    const kind = (column) => [column.isNumeric ? "n" : "", column.isOptional ? "optional" : ""].filter(Boolean).join(" ") || null;
    const heads = columns.map((column) => el("th", { scope: "col", class: kind(column), title: visible(column.title) }, visible(column.title)));
    const line = (cells) => el("tr", { dataset: { key: cells[0]?.text ?? "" } }, cells.map((cell, place) => el("td", { class: kind(columns[place]), dataset: { title: columns[place].title } }, this.cell(cell, columns[place], widths[place]))));
    // Intervals begin at the same place in all rows, so that they can be compared.
    const widths = columns.map(({ limits }, place) => (limits ? Math.max(...rows.map((cells) => cells[place].text.length)) : 0));
    const more = columns.filter((column) => column.isOptional).length;
    const words = (isOpen) => (isOpen ? "Fewer columns" : `${plural(more, "more column")}`);
    const toggle = el("button", { type: "button", class: "compact", "aria-expanded": String(this.allColumns.has(title)), onclick: ({ currentTarget }) => {
      if (!this.allColumns.delete(title)) this.allColumns.add(title);
      const isOpen = this.allColumns.has(title);
      currentTarget.closest("section").classList.toggle("all-columns", isOpen);
      currentTarget.setAttribute("aria-expanded", String(isOpen));
      currentTarget.textContent = words(isOpen);
    } }, words(this.allColumns.has(title)));
    return el("section", { class: `card result-table${this.allColumns.has(title) ? " all-columns" : ""}` },
      more ? el("div", { class: "result-head" }, el("h2", {}, visible(title)), toggle) : el("h2", {}, visible(title)),
      el("div", { class: "table-frame", tabindex: "0", role: "region", "aria-label": visible(title) }, el("table", {}, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, rows.map(line)))),
      el("p", { class: "soft small" }, visible(caption), omitted ? ` ${plural(omitted, "row")} not listed.` : ""));
  }

  cell({ text, figure, session }, { limits }, width) {
    const words = figure && (figure.n ?? null) !== null ? figureWords(figure).join(", ") : null;
    if (session) return el("a", { href: `/sessions/${encodeURIComponent(session)}` }, visible(text));
    const shown = figure?.items ? el("a", { href: itemsAddress(this.run, figure.items), title: words }, visible(text)) : el("span", { title: words }, visible(text));
    if (!limits || !figure) return shown;
    shown.style.minWidth = `${width}ch`;
    return el("span", { class: "ranged" }, range(figure, limits), shown);
  }

  failureGroups({ groups, groupCount, items }) {
    const line = ({ key, reason, pattern, example, items: count }) => el("a", { class: "failure-group", href: itemsAddress(this.run, { group: key }), title: visible(pattern) },
      el("span", { class: "figures" }, `${number(count)} ×`), el("span", { class: "tag" }, visible(reason.replaceAll("_", " "))), el("span", { class: "failure-pattern" }, visible(example || pattern)));
    const rest = groupCount - groups.length;
    return el("section", { class: "card result-failures" }, el("h2", {}, `${plural(items, "failure")}, by kind`), groups.map(line),
      rest > 0 ? el("p", { class: "soft small" }, `${plural(rest, "more kind")} on the Items tab.`) : null);
  }

  matrix({ title, caption, rowTitle, columns, rows, omitted }) {
    const heads = [rowTitle, ...columns].map((name) => el("th", { scope: "col" }, visible(name)));
    const line = ([name, cells]) => el("tr", {}, el("th", { scope: "row", title: visible(name) }, el("span", { class: "task-name" }, visible(name))), cells.map((cell) => el("td", {}, this.verdict(cell))));
    return el("section", { class: "card result-matrix" },
      el("h2", {}, visible(title)),
      el("div", { class: "table-frame", tabindex: "0", role: "region", "aria-label": visible(title) }, el("table", {}, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, rows.map(line)))),
      el("p", { class: "soft small" }, visible(caption), omitted ? ` ${number(omitted)} more not listed.` : ""));
  }

  verdict(cell) {
    if (!cell) return el("span", { class: "soft" }, "–");
    const words = `${cell.status}${cell.text ? `, ${cell.text}` : ""}`;
    const address = `/runs/${encodeURIComponent(this.run)}/items/${encodeURIComponent(cell.itemIds[0])}`;
    return el("a", { class: `verdict v-${cell.status}`, href: address, title: visible(cell.note), "aria-label": visible(`${words}: ${cell.note}`) }, el("b", { "aria-hidden": "true" }, SIGNS[cell.status] || ""), visible(cell.text || cell.status));
  }
}

/** Groups of failures without the items that an abort ended: these did not fail. */
function failedOnly({ groups, groupCount, items }) {
  const aborted = groups.filter(({ reason }) => reason === "aborted");
  const count = aborted.reduce((total, group) => total + group.items, 0);
  return { groups: groups.filter((group) => !aborted.includes(group)), groupCount: groupCount - aborted.length, items: items - count };
}

/** A value with its interval on a scale; the text beside it says the same. */
function range(figure, [low, high]) {
  const share = (value) => `${(100 * (Math.min(high, Math.max(low, value)) - low)) / (high - low)}%`;
  const box = el("span", { class: "range", "aria-hidden": "true" }, el("i", { class: "range-interval" }), el("i", { class: "range-value" }));
  const [interval, value] = box.children;
  value.style.left = share(figure.value ?? low);
  if (figure.value === null) value.remove();
  if (figure.low === null || figure.high === null) interval.remove();
  else {
    interval.style.left = share(figure.low);
    interval.style.right = `${100 - Number.parseFloat(share(figure.high))}%`;
  }
  return box;
}

function empty({ finishedCount }) {
  return el("div", { class: "empty" }, el("h2", {}, finishedCount ? "No results to show" : "No results yet"), el("p", {}, finishedCount ? "The finished items have nothing to compare. See the Items tab." : "Results appear when the first items have finished."));
}
