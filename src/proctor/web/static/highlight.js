// Colour for YAML, and for Markdown with YAML above it, a line at a time.

import { el } from "./dom.js";

const KEY = /^(\s*(?:-\s+)*)("[^"]*"|'[^']*'|[^\s#&*!|>%@`"'[\]{},-][^:#]*?|-[^\s:][^:#]*?)(\s*)(:)(?=\s|$)/;
const VALUE = /(#.*$)|("(?:[^"\\]|\\.)*"?|'(?:[^']|'')*'?)|(\b(?:true|false|null|yes|no)\b|~(?=\s|$))|((?<![\w.-])-?\d[\d_]*(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.-]))|([[\]{},:](?=\s|$|[\]},])|[[\]{},]|^\s*-(?=\s)|[|>][+-]?\d?\s*$)/gi;
const BLOCK = /(?:^|[\s:-])[|>][+-]?\d?\s*(?:#.*)?$/;

/** What each line stands in: `yaml`, the inside of a block of `text`, or `markdown`. */
export function states(lines) {
  const found = [];
  let block = -1;
  let frontMatter = lines[0]?.trim() === "---" && lines.some((line, number) => number && /^#\s/.test(line));
  let markdown = !frontMatter && /^#\s*Task\b/.test(lines[0] || "");
  lines.forEach((line, number) => {
    const indent = line.search(/\S/);
    if (frontMatter && number && line.trim() === "---") {
      found.push("yaml");
      frontMatter = false;
      markdown = true;
      return;
    }
    if (markdown) {
      found.push("markdown");
      return;
    }
    if (block >= 0 && (indent === -1 || indent > block)) {
      found.push("text");
      return;
    }
    block = -1;
    found.push("yaml");
    if (indent >= 0 && BLOCK.test(line) && !line.trim().startsWith("#")) block = indent;
  });
  return found;
}

/** A line as coloured pieces, in an element. */
export function coloured(line, state) {
  const shown = el("div", { class: "line" });
  for (const [kind, text] of state === "yaml" ? yaml(line) : state === "markdown" ? markdownPieces(line) : [["string", line]])
    shown.append(kind ? el("span", { class: `k-${kind}` }, text) : text);
  // An empty line would have no height.
  if (!line) shown.append("\u200b");
  return shown;
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
  for (const found of text.matchAll(VALUE)) {
    // A # in the middle of a word begins no comment.
    if (found[1] && found.index && !/\s/.test(text[found.index - 1])) continue;
    if (found.index > last) pieces.push(["", text.slice(last, found.index)]);
    const [, comment, string, word, number] = found;
    pieces.push([comment ? "comment" : string ? "string" : word ? "word" : number ? "number" : "mark", found[0]]);
    last = found.index + found[0].length;
  }
  if (last < text.length) pieces.push(["", text.slice(last)]);
  return pieces.flatMap(([kind, piece], number) => {
    // In braces, names stand on the same line as their values.
    const name = !kind && pieces[number + 1]?.[1] === ":" ? /[\w.$-]+$/.exec(piece) : null;
    return name ? [["", piece.slice(0, name.index)], ["key", name[0]]] : [[kind, piece]];
  });
}

function markdownPieces(line) {
  if (/^#{1,6}\s/.test(line)) return [["key", line]];
  const pieces = [];
  let last = 0;
  for (const found of line.matchAll(/(`[^`]*`)|(\*\*[^*]+\*\*)|(^\s*[-*]\s+(?:\[[ x]\])?)/g)) {
    if (found.index > last) pieces.push(["", line.slice(last, found.index)]);
    pieces.push([found[1] ? "string" : found[2] ? "word" : "mark", found[0]]);
    last = found.index + found[0].length;
  }
  pieces.push(["", line.slice(last)]);
  return pieces;
}
