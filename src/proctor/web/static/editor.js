// Plan editor: a native textarea, so that undo, search, and screen readers work, with syntax highlighting
// behind it, line numbers, error markers, and completion.

import { completions } from "./complete.js";
import { el } from "./dom.js";
import { highlighted, states } from "./highlight.js";

const LINE = 20;
const MARGIN = 15;

export class PlanEditor extends HTMLElement {
  connectedCallback() {
    if (this.field) return;
    this.field = el("textarea", { spellcheck: "false", autocapitalize: "off", autocomplete: "off", wrap: "off", "aria-label": this.getAttribute("label") || "Plan", "aria-describedby": "editor-keys" });
    this.numbers = el("div", { class: "numbers" });
    this.gutter = el("div", { class: "gutter", "aria-hidden": "true" }, this.numbers);
    this.lines_ = el("div", { class: "lines" });
    this.behind = el("div", { class: "behind", "aria-hidden": "true" }, this.lines_);
    this.menu = el("ul", { class: "completions", role: "listbox", id: "completions", hidden: true });
    const keys = el("span", { id: "editor-keys", class: "unseen" }, "Tab indents. Press Escape, then Tab, to leave the editor. Press Ctrl+Space for completions.");
    this.append(this.gutter, el("div", { class: "sheet" }, this.behind, this.field, this.menu), keys);
    this.problems = [];
    this.completion = null;
    this.field.addEventListener("input", () => this.typed());
    this.field.addEventListener("scroll", () => this.draw());
    this.field.addEventListener("keydown", (event) => this.pressed(event));
    this.field.addEventListener("blur", () => this.close());
    this.field.addEventListener("click", () => this.close());
    new ResizeObserver(() => this.draw()).observe(this);
    this.measure();
    this.changed();
  }

  measure() {
    const probe = el("span", { class: "probe" }, "0".repeat(100));
    this.behind.append(probe);
    this.charWidth = probe.getBoundingClientRect().width / 100 || 8;
    probe.remove();
  }

  get value() {
    return this.field.value;
  }

  /** Replace the whole text. */
  set value(text) {
    this.field.value = text;
    this.field.scrollTop = 0;
    this.changed();
    this.dispatchEvent(new CustomEvent("edited"));
  }

  typed() {
    this.changed();
    this.dispatchEvent(new CustomEvent("edited"));
    this.complete(false);
  }

  changed() {
    this.text = this.field.value.split("\n");
    this.states = states(this.text);
    const widest = this.text.reduce((most, line) => Math.max(most, line.length), 0);
    this.lines_.style.width = `${widest * this.charWidth + 40}px`;
    this.gutter.style.width = `${Math.max(3, String(this.text.length).length) * this.charWidth + 28}px`;
    this.draw();
  }

  /** Mark problems: [{line, column, problem, remedy}]. */
  mark(problems) {
    this.problems = problems.filter((each) => each.line);
    this.field.setAttribute("aria-invalid", String(problems.length > 0));
    this.draw();
  }

  /** Move the caret to a line and column, both 1-based. */
  goTo(line, column = 1) {
    const before = this.text.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
    const at = before + Math.min(column - 1, (this.text[line - 1] || "").length);
    this.field.focus();
    this.field.setSelectionRange(at, at);
    this.field.scrollTop = Math.max(0, (line - 1) * LINE - this.field.clientHeight / 2);
    this.field.scrollLeft = 0;
    this.draw();
  }

  // Only visible lines are drawn: drawing ten thousand takes half a second per key press.
  draw() {
    const first = Math.max(0, Math.floor(this.field.scrollTop / LINE) - MARGIN);
    const last = Math.min(this.text.length, Math.ceil((this.field.scrollTop + this.field.clientHeight) / LINE) + MARGIN);
    const problems = new Map(this.problems.map((each) => [each.line, each]));
    const lines = [];
    const numbers = [];
    for (let number = first; number < last; number += 1) {
      const problem = problems.get(number + 1);
      const line = highlighted(this.text[number], this.states[number]);
      if (problem) line.append(this.wave(problem, this.text[number]));
      lines.push(line);
      numbers.push(el("div", { class: problem ? "wrong" : null, title: problem ? problem.problem : null }, String(number + 1)));
    }
    this.lines_.replaceChildren(...lines);
    this.numbers.replaceChildren(...numbers);
    this.lines_.style.transform = `translate(${-this.field.scrollLeft}px, ${first * LINE - this.field.scrollTop}px)`;
    this.numbers.style.transform = `translateY(${first * LINE - this.field.scrollTop}px)`;
  }

  wave(problem, text) {
    const from = Math.min(Math.max(0, (problem.column || 1) - 1), Math.max(0, text.length - 1));
    const until = Math.max(from + 1, text.trimEnd().length);
    const mark = el("span", { class: "wave" });
    mark.style.left = `${from * this.charWidth}px`;
    mark.style.width = `${(until - from) * this.charWidth}px`;
    return mark;
  }

  caret() {
    const before = this.field.value.slice(0, this.field.selectionStart).split("\n");
    return { line: before.length - 1, column: before[before.length - 1].length };
  }

  pressed(event) {
    if (this.completion && this.completionKey(event)) return;
    if (event.key === " " && event.ctrlKey) {
      event.preventDefault();
      this.complete(true);
    } else if (event.key === "Escape") this.leaving = true;
    else if (event.key === "Tab" && !event.altKey && !event.ctrlKey && !this.leaving) {
      event.preventDefault();
      if (event.shiftKey) this.outdent();
      else document.execCommand("insertText", false, "  ");
    } else if (event.key === "Enter" && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      const { line, column } = this.caret();
      const text = this.text[line].slice(0, column);
      const indent = text.match(/^\s*(?:-\s+)?/)[0].replace(/-/g, " ");
      const more = /:\s*$/.test(text) && this.states[line] === "yaml" ? "  " : "";
      document.execCommand("insertText", false, `\n${text.trim() ? indent + more : text}`);
    }
    if (event.key !== "Escape" && event.key !== "Shift") this.leaving = false;
  }

  outdent() {
    const { line, column } = this.caret();
    const spaces = Math.min(2, this.text[line].search(/\S|$/));
    if (!spaces) return;
    const start = this.field.selectionStart - column;
    this.field.setSelectionRange(start, start + spaces);
    document.execCommand("delete");
    const at = start + Math.max(0, column - spaces);
    this.field.setSelectionRange(at, at);
  }

  /** Show the completions at the caret. */
  complete(always) {
    this.close();
    const { line, column } = this.caret();
    if (!this.schema || this.states[line] !== "yaml" || this.field.selectionStart !== this.field.selectionEnd) return;
    const result = completions(this.schema, this.text, line, column);
    // Without Ctrl+Space, only while a word is being typed.
    if (!result || (!always && result.from === column)) return;
    this.completion = { ...result, column, active: 0 };
    this.menu.replaceChildren(
      ...result.options.map((option, number) =>
        el(
          "li",
          { role: "option", id: `completion-${number}`, onmousedown: (event) => this.pick(event, number) },
          el("b", {}, option.label),
          option.info ? el("span", {}, option.info) : null,
        ),
      ),
    );
    this.menu.style.left = `${Math.max(0, Math.min(result.from * this.charWidth - this.field.scrollLeft, this.field.clientWidth - 260))}px`;
    this.menu.style.top = `${(line + 1) * LINE - this.field.scrollTop + 10}px`;
    this.menu.hidden = false;
    this.field.setAttribute("aria-controls", "completions");
    this.activate(0);
  }

  activate(number) {
    this.completion.active = number;
    [...this.menu.children].forEach((option, index) => option.setAttribute("aria-selected", String(index === number)));
    this.menu.children[number].scrollIntoView({ block: "nearest" });
    this.field.setAttribute("aria-activedescendant", `completion-${number}`);
  }

  completionKey(event) {
    const count = this.completion.options.length;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") this.activate((this.completion.active + (event.key === "ArrowDown" ? 1 : count - 1)) % count);
    else if (event.key === "Enter" || event.key === "Tab") this.insert(this.completion.active);
    else if (event.key === "Escape") this.close();
    else return false;
    event.preventDefault();
    return true;
  }

  pick(event, number) {
    event.preventDefault();
    this.insert(number);
  }

  insert(number) {
    const { from, column, options } = this.completion;
    const at = this.field.selectionStart;
    this.close();
    this.field.setSelectionRange(at - (column - from), at);
    document.execCommand("insertText", false, options[number].insert);
    this.close();
  }

  close() {
    this.completion = null;
    this.menu.hidden = true;
    this.field.removeAttribute("aria-activedescendant");
  }
}
customElements.define("plan-editor", PlanEditor);
