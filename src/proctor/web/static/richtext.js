// Untrusted text as nodes: Markdown, code, JSON, and terminal output. Builds elements from text alone; no markup is parsed.

import { highlighted, languageOf } from "./code.js";
import { el } from "./dom.js";
import { pretty, terminal, visible } from "./texts.js";

/** Longer texts and lines are shown as they are: formatting them would block the page. */
const LONGEST_TEXT = 400_000;
const LONGEST_LINE = 5000;
const MOST_BLOCKS = 4000;
/** Cells of all tables of a text: rows of one character have as many as their head. */
const MOST_CELLS = 5000;
/** Nested lists, quotations, and emphasis below this depth are shown as text. */
const DEEPEST = 6;
const LANGUAGE_NAMES = { python: "py", python3: "py", javascript: "js", typescript: "ts", shell: "sh", console: "sh", zsh: "sh", golang: "go", rust: "rs", "c++": "cpp", csharp: "cs", "c#": "cs", kotlin: "kt", ruby: "rb", jsonc: "json", json5: "json", docker: "sh", dockerfile: "sh", makefile: "mk", htm: "html" };
const ESCAPE = "\u001b";

/** A text in the form that suits it: JSON indented, terminal output in color, Markdown formatted. */
export function richText(text, { markdown = true } = {}) {
  if (text.length > LONGEST_TEXT) return [plain(text)];
  if (text.includes(`${ESCAPE}[`)) return [el("pre", { class: "rich-terminal" }, terminal(text))];
  if (isJson(text)) return [jsonBlock(text)];
  return markdown ? markdownNodes(text) : [plain(text)];
}

const plain = (text) => el("div", { class: "rich-plain" }, visible(text));

function isJson(text) {
  const trimmed = text.trim();
  if (!/^[[{]/.test(trimmed) || !/[\]}]$/.test(trimmed)) return false;
  try {
    return typeof JSON.parse(trimmed) === "object";
  } catch {
    return false;
  }
}

/** Indented JSON with highlighted values. Deeply nested documents stay as they are: indenting them takes the square of their size. */
function jsonBlock(text) {
  const indented = pretty(text.trim());
  return codeBlock(indented.length > 10 * text.length + 1000 ? text : indented, "json");
}

/** Lines of code, highlighted if the language is known. */
export function codeBlock(text, name = "") {
  const language = name ? languageOf(`x.${LANGUAGE_NAMES[name.toLowerCase()] || name.toLowerCase()}`) : null;
  const isPatch = /^(diff|patch)$/i.test(name);
  const lines = visible(text).split("\n");
  const nodes = lines.length > MOST_BLOCKS ? [visible(text)] : lines.flatMap((line, index) => [index ? "\n" : "", isPatch ? patchLine(line) : highlighted(line, language)].flat());
  // Wide code scrolls by itself; the keyboard must reach it.
  return el("pre", { class: "rich-code", dir: "ltr", tabindex: "0", role: "group", "aria-label": name ? visible(`Code, ${name.slice(0, 20)}`) : "Code" }, nodes.filter((node) => node !== ""));
}

function patchLine(line) {
  const kind = line.startsWith("+") ? "plus" : line.startsWith("-") ? "minus" : line.startsWith("@@") ? "k-comment" : "";
  return kind ? el("span", { class: kind }, line) : line;
}

// ---- Markdown blocks

// Each takes linear time: no two neighboring parts can match the same characters.
const FENCE = /^ {0,3}(`{3,}|~{3,}(?!~))([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*)$/;
const RULE = /^ {0,3}(?:(?:\*\s*){3,}|(?:-\s*){3,}|(?:_\s*){3,})$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const QUOTE = /^ {0,3}>\s?(.*)$/;

/** Markdown as nodes. Line ends stay, HTML is shown as text, and images are not loaded. */
export function markdownNodes(text) {
  return blocks(visible(text).split("\n"), 0, { left: MOST_BLOCKS, cells: MOST_CELLS });
}

function blocks(lines, depth, budget) {
  const nodes = [];
  let paragraph = [];
  const flush = () => {
    const kept = paragraph.join("\n");
    if (kept.trim()) nodes.push(el("p", { dir: "auto" }, inlineText(kept)));
    paragraph = [];
  };
  for (let at = 0; at < lines.length; ) {
    if (budget.left-- <= 0) {
      paragraph = paragraph.concat(lines.slice(at));
      break;
    }
    const next = depth > DEEPEST ? null : blockAt(lines, at, depth, budget);
    if (next) {
      flush();
      nodes.push(next.node);
      at = next.end;
    } else {
      if (!lines[at].trim()) flush();
      else paragraph.push(lines[at]);
      at++;
    }
  }
  if (budget.left <= 0 && paragraph.length) {
    nodes.push(el("div", { class: "rich-plain" }, paragraph.join("\n")));
    return nodes;
  }
  flush();
  return nodes;
}

/** The block that begins at a line and the line after it; null: a paragraph. */
function blockAt(lines, at, depth, budget) {
  const line = lines[at];
  if (line.length > LONGEST_LINE) return null;
  const fence = FENCE.exec(line);
  if (fence) return fenced(lines, at, fence[1], /^[\w+#.-]{0,30}/.exec(fence[2].trimStart())[0]);
  const heading = HEADING.exec(line);
  // No heading elements: the outline of the page is ours, not the text's.
  if (heading) return { node: el("p", { class: `rich-heading rich-h${heading[1].length}`, dir: "auto" }, inlineText(headingText(heading[2]))), end: at + 1 };
  if (RULE.test(line)) return { node: el("hr"), end: at + 1 };
  if (QUOTE.test(line)) return quoted(lines, at, depth, budget);
  if (ITEM.test(line)) return listed(lines, at, depth, budget);
  if (line.includes("|") && budget.cells > 0 && isTableRule(lines[at + 1] ?? "")) return tabled(lines, at, budget);
  return null;
}

/** A heading without the marks that may close it. */
function headingText(text) {
  let end = text.trimEnd().length;
  while (end && text[end - 1] === "#") end--;
  return text.slice(0, end).trimEnd();
}

const rowCells = (line) => line.trim().replace(/^\||\|$/g, "").split("|");
const isTableRule = (line) => line.length <= LONGEST_LINE && rowCells(line).every((cell) => /^:?-+:?$/.test(cell.trim()));

function fenced(lines, at, marks, name) {
  let end = at + 1;
  while (end < lines.length && !(lines[end].trim().startsWith(marks) && /^[`~]+\s*$/.test(lines[end].trim()))) end++;
  return { node: codeBlock(lines.slice(at + 1, end).join("\n"), name), end: end + 1 };
}

function quoted(lines, at, depth, budget) {
  let end = at;
  while (end < lines.length && QUOTE.test(lines[end])) end++;
  const inner = lines.slice(at, end).map((line) => QUOTE.exec(line)[1]);
  return { node: el("blockquote", {}, blocks(inner, depth + 1, budget)), end };
}

/** A list: items at the indent of the first; lines that are indented further belong to the item before. */
function listed(lines, at, depth, budget) {
  const [, indent, mark] = ITEM.exec(lines[at]);
  const isOrdered = /\d/.test(mark);
  const items = [];
  let end = at;
  for (; end < lines.length && budget.left > 0; end++) {
    const item = lines[end].length <= LONGEST_LINE ? ITEM.exec(lines[end]) : null;
    const isEmpty = !lines[end].trim();
    if (item && item[1].length <= indent.length + 1 && /\d/.test(item[2]) === isOrdered && item[1].length >= indent.length) {
      items.push([item[3]]);
      budget.left--;
    } else if (!isEmpty && /^\s/.test(lines[end]) && lines[end].search(/\S/) > indent.length) items.at(-1).push(lines[end]);
    else if (isEmpty && /^\s+\S/.test(lines[end + 1] ?? "") && lines[end + 1].search(/\S/) > indent.length) items.at(-1).push("");
    else break;
  }
  const first = isOrdered ? Number.parseInt(mark, 10) : 1;
  const content = (parts) => {
    const rest = parts.slice(1);
    const deeper = rest.reduce((least, line) => (line.trim() ? Math.min(least, line.search(/\S/)) : least), 1e9);
    const nested = rest.length ? blocks(rest.map((line) => line.slice(Math.min(deeper, line.length))), depth + 1, budget) : [];
    const task = /^\[([ xX])\]\s+(.*)$/s.exec(parts[0]);
    return el("li", {}, task ? [task[1] === " " ? "☐ " : "☑ ", ...inlineText(task[2])] : inlineText(parts[0]), nested);
  };
  return { node: el(isOrdered ? "ol" : "ul", { dir: "auto", start: isOrdered && first !== 1 ? first : null }, items.map(content)), end };
}

function tabled(lines, at, budget) {
  const cells = (line) => rowCells(line).slice(0, 50).map((cell) => cell.trim());
  const heads = cells(lines[at]);
  let end = at + 2;
  const rows = [];
  while (end < lines.length && lines[end].includes("|") && lines[end].length <= LONGEST_LINE && rows.length < 500 && budget.cells > 0) {
    rows.push(cells(lines[end++]));
    budget.cells -= heads.length;
  }
  const row = (tag, content) => el("tr", {}, heads.map((_, place) => el(tag, tag === "th" ? { scope: "col" } : {}, inlineText(content[place] ?? "") )));
  const hasHead = heads.every(Boolean);
  const table = el("table", {}, hasHead ? el("thead", {}, row("th", heads)) : null, el("tbody", {}, hasHead ? null : row("td", heads), rows.map((each) => row("td", each))));
  return { node: el("div", { class: "rich-table", tabindex: "0", role: "group", "aria-label": "Table" }, table), end };
}

// ---- Markdown inside of a line

// Every part is bounded, so that no text takes more than linear time.
const INLINE = new RegExp(
  [
    String.raw`\\([\\${"`"}*_{}\[\]()#+.!~|>-])`,
    "(`{1,3})([^`\\n](?:[^\\n]{0,400}?[^`\\n])?)\\2(?!`)",
    String.raw`(!?)\[([^\[\]\n]{0,300})\]\(([^()\s<>]{1,1000})(?:\s+"[^"\n]{0,200}")?\)`,
    String.raw`\*\*(?=\S)([^\n]{0,300}?\S)\*\*`,
    String.raw`(?<![\w*])\*(?=[^\s*])([^\n*]{0,200}[^\s*])\*(?![\w*])`,
    String.raw`(?<!\w)__(?=\S)([^\n]{0,300}?\S)__(?!\w)`,
    String.raw`(?<!\w)_(?=[^\s_])([^\n_]{0,200}[^\s_])_(?!\w)`,
    String.raw`~~(?=\S)([^\n]{0,300}?\S)~~`,
    String.raw`(https?:\/\/[^\s<>"'${"`"}]{1,1000}[^\s<>"'${"`"}.,;:!?)\]}])`,
  ].join("|"),
  "g",
);

function inlineText(text, depth = 0) {
  if (depth > DEEPEST || text.length > LONGEST_LINE) return [text];
  const nodes = [];
  let at = 0;
  for (const match of text.matchAll(INLINE)) {
    const [whole, escaped, , code, image, label, target, bold, italic, strong, emphasis, struck, address] = match;
    nodes.push(text.slice(at, match.index));
    at = match.index + whole.length;
    const inner = (content) => inlineText(content, depth + 1);
    if (escaped) nodes.push(escaped);
    else if (code) nodes.push(el("code", {}, code));
    else if (target) nodes.push(...linked(inner(label), label, target, Boolean(image), whole));
    else if (bold || strong) nodes.push(el("strong", {}, inner(bold || strong)));
    else if (italic || emphasis) nodes.push(el("em", {}, inner(italic || emphasis)));
    else if (struck) nodes.push(el("s", {}, inner(struck)));
    else if (address) nodes.push(...linked([address], address, address, false, whole));
  }
  nodes.push(text.slice(at));
  return nodes.filter((node) => node !== "");
}

/** A link to a web page, with the host it leads to; anything else stays text. */
function linked(content, label, target, isImage, whole) {
  let address;
  try {
    address = new URL(target);
  } catch {
    return [whole];
  }
  if (!/^(https?|mailto):$/.test(address.protocol)) return [whole];
  const host = address.host || "mail";
  const anchor = el("a", { href: address.href, rel: "noopener noreferrer nofollow", target: "_blank", title: visible(address.href) }, isImage ? `image: ${label || host}` : content.length ? content : host);
  // The words of a link may name another place than it leads to.
  return label === target ? [anchor] : [anchor, el("span", { class: "soft small" }, ` (${visible(host)})`)];
}
