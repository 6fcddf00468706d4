// Differences of two texts by lines or by words.

import { el } from "./dom.js";
import { visible } from "./texts.js";

/** Larger differences are shown as removed and added as a whole. */
const MOST_CELLS = 4_000_000;

/** The longest common subsequence as pairs of indexes. */
function common(left, right) {
  let start = 0;
  while (start < left.length && start < right.length && left[start] === right[start]) start++;
  let tail = 0;
  while (tail < left.length - start && tail < right.length - start && left[left.length - 1 - tail] === right[right.length - 1 - tail]) tail++;
  const pairs = Array.from({ length: start }, (_, at) => [at, at]);
  const [rows, columns] = [left.length - start - tail, right.length - start - tail];
  if (rows && columns && rows * columns <= MOST_CELLS) {
    const width = columns + 1;
    const lengths = new Uint32Array((rows + 1) * width);
    for (let row = rows - 1; row >= 0; row--)
      for (let column = columns - 1; column >= 0; column--)
        lengths[row * width + column] =
          left[start + row] === right[start + column] ? lengths[(row + 1) * width + column + 1] + 1 : Math.max(lengths[(row + 1) * width + column], lengths[row * width + column + 1]);
    for (let row = 0, column = 0; row < rows && column < columns; ) {
      if (left[start + row] === right[start + column]) pairs.push([start + row++, start + column++]);
      else if (lengths[(row + 1) * width + column] >= lengths[row * width + column + 1]) row++;
      else column++;
    }
  }
  for (let at = tail; at > 0; at--) pairs.push([left.length - at, right.length - at]);
  return pairs;
}

/** Parts in order: {kind: "same" | "removed" | "added", text}. */
function parts(left, right) {
  const result = [];
  let [row, column] = [0, 0];
  for (const [there, here] of [...common(left, right), [left.length, right.length]]) {
    while (row < there) result.push({ kind: "removed", text: left[row++] });
    while (column < here) result.push({ kind: "added", text: right[column++] });
    if (row < left.length) result.push({ kind: "same", text: left[row] });
    row++;
    column++;
  }
  return result;
}

const lines = (text) => (text === "" ? [] : text.replace(/\r\n?/g, "\n").replace(/\n$/, "").split("\n"));

/** The lines of two texts: what only the first has, only the second, and both. */
export const lineDiff = (before, after) => parts(lines(before), lines(after));

/** The same by words; neighbors of one kind are joined. */
export function wordDiff(before, after) {
  const words = (text) => text.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) ?? [];
  const joined = [];
  for (const part of parts(words(before), words(after))) {
    if (joined.at(-1)?.kind === part.kind) joined.at(-1).text += part.text;
    else joined.push({ ...part });
  }
  return joined;
}

/** One side of a difference by words as nodes: what only it has is marked, what only the other has is left out. `kind` is "removed" (the first text) or "added". */
export const marked = (parts, kind) => parts.filter((part) => part.kind === "same" || part.kind === kind).map((part) => (part.kind === "same" ? visible(part.text) : el(kind === "added" ? "ins" : "del", {}, visible(part.text))));

/** Only lines near a change; those left out are counted in a line of the kind `hunk`. */
export function near(diff, context = 3) {
  const shown = new Set();
  for (const [at, { kind }] of diff.entries()) if (kind !== "same") for (let place = at - context; place <= at + context; place++) shown.add(place);
  const result = [];
  let left = 0;
  for (const [at, line] of diff.entries()) {
    if (shown.has(at)) {
      if (left) result.push({ kind: "hunk", text: `… ${left} unchanged` });
      left = 0;
      result.push(line);
    } else left++;
  }
  if (left) result.push({ kind: "hunk", text: `… ${left} unchanged` });
  return result;
}
