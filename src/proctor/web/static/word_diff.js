// Differences between two texts, word by word.

import { el } from "./dom.js";
import { visible } from "./texts.js";

/** Longer texts are compared as a whole: the table of their words would be too large. */
const MOST_WORDS = 1500;

const wordsOf = (text) => text.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) || [];

/** The two texts as parts [{same, text}]: words that the other text does not have at that place are not the same. */
export function wordDiff(left, right) {
  const [before, after] = [wordsOf(left), wordsOf(right)];
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start++;
  let end = 0;
  while (end < before.length - start && end < after.length - start && before[before.length - 1 - end] === after[after.length - 1 - end]) end++;
  const [middleLeft, middleRight] = [before.slice(start, before.length - end), after.slice(start, after.length - end)];
  const [sameLeft, sameRight] = common(middleLeft, middleRight);
  const parts = (words, middle, same) =>
    joined([...words.slice(0, start).map((text) => [true, text]), ...middle.map((text, index) => [same[index], text]), ...words.slice(words.length - end).map((text) => [true, text])]);
  return { left: parts(before, middleLeft, sameLeft), right: parts(after, middleRight, sameRight) };
}

/** Which words of two lists belong to a longest common subsequence. */
function common(left, right) {
  const same = [new Array(left.length).fill(false), new Array(right.length).fill(false)];
  if (!left.length || !right.length || left.length > MOST_WORDS || right.length > MOST_WORDS) return same;
  const width = right.length + 1;
  const lengths = new Uint16Array((left.length + 1) * width);
  for (let row = left.length - 1; row >= 0; row--)
    for (let column = right.length - 1; column >= 0; column--)
      lengths[row * width + column] = left[row] === right[column] ? lengths[(row + 1) * width + column + 1] + 1 : Math.max(lengths[(row + 1) * width + column], lengths[row * width + column + 1]);
  for (let row = 0, column = 0; row < left.length && column < right.length; ) {
    if (left[row] === right[column]) {
      same[0][row++] = true;
      same[1][column++] = true;
    } else if (lengths[(row + 1) * width + column] >= lengths[row * width + column + 1]) row++;
    else column++;
  }
  return same;
}

function joined(words) {
  const parts = [];
  for (const [same, text] of words) {
    const last = parts.at(-1);
    if (last?.same === same) last.text += text;
    else parts.push({ same, text });
  }
  return parts;
}

/** Parts as nodes; `tag` marks what differs: `del` or `ins`. */
export const marked = (parts, tag) => parts.map(({ same, text }) => (same ? visible(text) : el(tag, {}, visible(text))));
