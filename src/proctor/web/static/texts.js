// Display of untrusted text: invisible characters are made visible, long texts are loaded in pieces.

import { el, scrollable } from "./dom.js";
import { number } from "./format.js";
import { api, query } from "./api.js";
import { attempt } from "./dialogs.js";

// Control characters except line ends and tabs; characters that reverse, hide, or join text.
const HIDDEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\ufff9-\ufffb\u{e0000}-\u{e0fff}]/gu;

/** The text with each invisible character replaced by a visible one. */
export function visible(text) {
  return text.replace(/\r\n?/g, "\n").replace(HIDDEN, (mark) => {
    const code = mark.codePointAt(0);
    if (code < 0x20) return String.fromCodePoint(0x2400 + code);
    return code === 0x7f ? "␡" : `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });
}

/** Terminal output as nodes: color codes become styles, other escape sequences are removed. */
export function terminal(text) {
  const nodes = [];
  let style = "";
  // Escape sequences: colors and cursor movement, titles and links, single letters.
  const parts = text.split(/(\u001b\[[0-9;:?<=>]*[ -/]*[@-~]|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)|\u001b[PX^_][^\u001b]*\u001b\\|\u001b[ -/]*[0-~])/);
  for (const [index, part] of parts.entries()) {
    if (index % 2) {
      const color = /^\u001b\[([0-9;]*)m$/.exec(part);
      if (color) style = styled(style, color[1]);
    } else if (part) {
      const content = visible(part);
      nodes.push(style ? el("span", { class: style }, content) : content);
    }
  }
  return nodes;
}

function styled(before, codes) {
  let classes = new Set(before.split(" ").filter(Boolean));
  const without = (start) => (classes = new Set([...classes].filter((name) => !name.startsWith(start))));
  const numbers = codes.split(";").map(Number);
  for (let at = 0; at < numbers.length; at++) {
    const code = numbers[at];
    if (code === 0) classes.clear();
    else if (code === 1) classes.add("ansi-bold");
    else if (code === 22) classes.delete("ansi-bold");
    else if (code === 39) without("ansi-c");
    else if ((code >= 30 && code <= 37) || (code >= 90 && code <= 97)) {
      without("ansi-c");
      classes.add(`ansi-c${code % 10}`);
    } else if (code === 38 || code === 48) at += numbers[at + 1] === 5 ? 2 : 4;
  }
  return [...classes].join(" ");
}

// Characters that may fill a box.
const LONG = 1500;
// Pieces loaded per click: more would block the browser for seconds.
const AT_ONCE = 20;
// What comes later in a text is shown as it is: formatted parts are small, and a text may have megabytes.
const MOST_FORMATTED = 100_000;
// The server counts code points, JavaScript UTF-16 units.
const characters = (text) => [...text].length;

/**
 * A text that may be long: its beginning, and a button that loads the rest. `piece` is {text, size, isCut},
 * `address` the URL of the rest with its `parameters`, `show` converts a text, and the piece it is of, to nodes.
 */
export function longText(piece, address, { show = (text) => [visible(text)], className = "said", tag = "pre", label = "Text", parameters = {} } = {}) {
  const box = scrollable(el(tag, { class: className, dir: "auto" }, el("span", { class: "piece-first" }, show(piece.text, piece))), label, piece.text.length > LONG);
  if (!piece.isCut) return box;
  let offset = characters(piece.text);
  const button = el("button", { type: "button", class: "compact show-more" }, `Show all (${number(piece.size)})`);
  const next = async () => {
    const more = await api.get(`${address}${query({ offset, ...(offset < MOST_FORMATTED ? parameters : {}) })}`);
    // Parts end at a line end: each is its own block, so that adding one does not lay out the whole text again.
    const line = more.isCut ? more.text.lastIndexOf("\n") + 1 : 0;
    const part = line ? more.text.slice(0, line) : more.text;
    box.append(el("span", { class: "piece" }, show(line ? part.slice(0, -1) : part, more)));
    offset += characters(part);
    button.textContent = `Show more (${number(offset)} of ${number(more.size)})`;
    return more.isCut;
  };
  button.addEventListener("click", () =>
    attempt(button, async () => {
      let left = true;
      for (let count = 0; left && count < AT_ONCE; count++) left = await next();
      if (!left) button.remove();
    }),
  );
  return el("div", { class: "long" }, box, button);
}

/** A name, such as that of a model, that may be broken into lines behind its parts, and not within one. */
export function breakable(name) {
  return visible(name).split(/(?<=[/_-])|(?<=[.:])(?!\d)/).flatMap((part, index) => (index ? [document.createElement("wbr"), part] : [part]));
}

/** The author of what nobody has signed, in the store. */
export const NOBODY = "someone";

/** Who wrote something. */
export const authorName = (author) => (author === NOBODY ? "unsigned" : visible(author));

/** The first line that is not blank, truncated. */
export function firstLine(text, longest = 160) {
  const line = visible(text).split("\n").find((one) => one.trim()) || "";
  return line.length > longest ? `${line.slice(0, longest - 1)}…` : line.trim();
}
