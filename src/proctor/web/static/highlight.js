// Syntax highlighting, line by line, for YAML and for Markdown with YAML front matter.

import { el } from "./dom.js";

const KEY = /^(\s*(?:-\s+)*)("[^"]*"|'[^']*'|[^\s#&*!|>%@`"'[\]{},-][^:#]*?|-[^\s:][^:#]*?)(\s*)(:)(?=\s|$)/;
const VALUE = /(#.*$)|("(?:[^"\\]|\\.)*"?|'(?:[^']|'')*'?)|(\b(?:true|false|null|yes|no)\b|~(?=\s|$))|((?<![\w.-])-?\d[\d_]*(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.-]))|([[\]{},:](?=\s|$|[\]},])|[[\]{},]|^\s*-(?=\s)|[|>][+-]?\d?\s*$)/gi;
const BLOCK = /(?:^|[\s:-])[|>][+-]?\d?\s*(?:#.*)?$/;

/** The syntax of each line: `yaml`, `text` (inside a block scalar), or `markdown`. */
export function states(lines) {
  const result = [];
  let block = -1;
  let frontMatter = lines[0]?.trim() === "---" && lines.some((line, number) => number && /^#\s/.test(line));
  let markdown = !frontMatter && /^#\s*Task\b/.test(lines[0] || "");
  lines.forEach((line, number) => {
    const indent = line.search(/\S/);
    if (frontMatter && number && line.trim() === "---") {
      result.push("yaml");
      frontMatter = false;
      markdown = true;
      return;
    }
    if (markdown) {
      result.push("markdown");
      return;
    }
    if (block >= 0 && (indent === -1 || indent > block)) {
      result.push("text");
      return;
    }
    block = -1;
    result.push("yaml");
    if (indent >= 0 && BLOCK.test(line) && !line.trim().startsWith("#")) block = indent;
  });
  return result;
}

/** A line as an element with highlighted spans. */
export function highlighted(line, state) {
  const element = el("div", { class: "line" });
  for (const [kind, text] of state === "yaml" ? yaml(line) : state === "markdown" ? markdownPieces(line) : [["string", line]])
    element.append(kind ? el("span", { class: `k-${kind}` }, text) : text);
  // An empty line would have no height.
  if (!line) element.append("\u200b");
  return element;
}

function yaml(line) {
  const key = KEY.exec(line);
  if (!key) return values(line);
  const [, before, name, space, colon] = key;
  return [...values(before), ["key", name], ["", space], ["mark", colon], ...values(line.slice(key[0].length))];
}

function values(text) {
  const pieces = [];
  let last = 0;
  for (const match of text.matchAll(VALUE)) {
    // A # inside a word does not start a comment.
    if (match[1] && match.index && !/\s/.test(text[match.index - 1])) continue;
    if (match.index > last) pieces.push(["", text.slice(last, match.index)]);
    const [, comment, string, word, number] = match;
    pieces.push([comment ? "comment" : string ? "string" : word ? "word" : number ? "number" : "mark", match[0]]);
    last = match.index + match[0].length;
  }
  if (last < text.length) pieces.push(["", text.slice(last)]);
  return pieces.flatMap(([kind, piece], number) => {
    // In flow mappings, keys are on the same line as their values.
    const name = !kind && pieces[number + 1]?.[1] === ":" ? /[\w.$-]+$/.exec(piece) : null;
    return name ? [["", piece.slice(0, name.index)], ["key", name[0]]] : [[kind, piece]];
  });
}

function markdownPieces(line) {
  if (/^#{1,6}\s/.test(line)) return [["key", line]];
  const pieces = [];
  let last = 0;
  for (const match of line.matchAll(/(`[^`]*`)|(\*\*[^*]+\*\*)|(^\s*[-*]\s+(?:\[[ x]\])?)/g)) {
    if (match.index > last) pieces.push(["", line.slice(last, match.index)]);
    pieces.push([match[1] ? "string" : match[2] ? "word" : "mark", match[0]]);
    last = match.index + match[0].length;
  }
  pieces.push(["", line.slice(last)]);
  return pieces;
}
