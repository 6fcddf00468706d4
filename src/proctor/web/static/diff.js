// A patch as files and highlighted lines. Long files are rendered when they are opened.

import { el, scrollable } from "./dom.js";
import { number, plural } from "./format.js";
import { highlight } from "./richtext.js";
import { visible } from "./texts.js";

const FOLDED_LINES = 400;
const MOST_LINES = 5000;
/** Longer lines are truncated. */
const LONGEST = 2000;

/** Parse a patch into files: [{path, from, added, removed, lines: [{kind, text, before, after}], note}]. */
export function filesOf(patch) {
  const files = [];
  let file = null;
  let [before, after] = [0, 0];
  for (const line of patch.split("\n")) {
    if (line.startsWith("diff --git ")) {
      file = { path: line.slice(11).split(" b/").pop(), from: "", added: 0, removed: 0, lines: [], note: "", inside: false };
      files.push(file);
    } else if (!file) continue;
    else if (line.startsWith("@@")) {
      const [, first, second] = /^@@ -(\d+)(?:,\d+)? \+(\d+)/.exec(line) || [0, 1, 1];
      [before, after] = [Number(first), Number(second)];
      file.inside = true;
      file.lines.push({ kind: "hunk", text: line });
    } else if (!file.inside) headLine(file, line);
    else if (line.startsWith("+")) {
      file.added++;
      file.lines.push({ kind: "added", text: line.slice(1), after: after++ });
    } else if (line.startsWith("-")) {
      file.removed++;
      file.lines.push({ kind: "removed", text: line.slice(1), before: before++ });
    } else if (line.startsWith(" ")) file.lines.push({ kind: "same", text: line.slice(1), before: before++, after: after++ });
    else if (line.startsWith("\\")) file.lines.push({ kind: "remark", text: line.slice(2) });
  }
  return files;
}

function headLine(file, line) {
  if (line.startsWith("+++ b/")) file.path = line.slice(6).replace(/\t$/, "");
  else if (line.startsWith("rename from ")) file.from = line.slice(12);
  else if (line.startsWith("new file")) file.note = "new";
  else if (line.startsWith("deleted file")) file.note = "deleted";
  else if (line.startsWith("Binary files")) file.note = "binary";
  else if (line.startsWith("rename to ")) file.path = line.slice(10);
}

/**
 * Elements for a whole patch: a list of its files if there are several, then each file.
 * With `comments` (`ReviewComments`), line numbers are buttons that open a form for a comment.
 */
export function diffView(patch, comments = null) {
  const files = filesOf(patch);
  const entry = (file, index) =>
    el("li", {}, el("a", { href: `#file-${index}`, onclick: (event) => openFile(event, index) }, visible(file.path)), counts(file));
  const list = files.length > 1 ? el("ul", { class: "diff-list" }, files.map(entry)) : null;
  return el("div", { class: "diff" }, list, files.map((file, index) => fileView(file, index, comments)));
}

function openFile(event, index) {
  event.preventDefault();
  const fold = document.getElementById(`file-${index}`);
  fold.open = true;
  fold.scrollIntoView({ block: "start" });
  fold.querySelector("summary").focus();
}

function counts(file) {
  const [added, removed] = [`+${number(file.added)}`, `−${number(file.removed)}`];
  return el("span", { class: "diff-counts figures" }, el("span", { class: "plus" }, added), " ", el("span", { class: "minus" }, removed));
}

function fileView(file, index, comments) {
  const name = file.from && file.from !== file.path ? `${file.from} → ${file.path}` : file.path;
  const box = scrollable(el("div", { class: "diff-lines" }), `Changes in ${visible(file.path)}`);
  const note = file.note ? el("span", { class: "tag" }, file.note) : null;
  const fold = el("details", { class: "diff-file", id: `file-${index}` }, el("summary", {}, el("code", {}, visible(name)), note, counts(file)), box);
  const fill = () => fold.open && !box.children.length && (box.append(...linesOf(file, comments)), scrollable(box, `Changes in ${visible(file.path)}`));
  fold.addEventListener("toggle", fill);
  fold.open = file.lines.length <= FOLDED_LINES;
  fill();
  return fold;
}

const SHOWN_LINES = 30;

/** One edit of a file in a transcript; a long one is folded. */
export function editView({ path, note, lines }) {
  const file = { path, note, lines, added: lines.filter(({ kind }) => kind === "added").length, removed: lines.filter(({ kind }) => kind === "removed").length };
  const box = scrollable(el("div", { class: "diff-lines edit-lines" }), `Changes in ${visible(path)}`);
  const fold = el("details", { class: "diff-file" }, el("summary", {}, el("code", {}, visible(path)), note ? el("span", { class: "tag" }, visible(note)) : null, counts(file)), box);
  const fill = () => fold.open && !box.children.length && (box.append(...linesOf(file)), scrollable(box, `Changes in ${visible(path)}`));
  fold.addEventListener("toggle", fill);
  fold.open = lines.length <= SHOWN_LINES;
  fill();
  return fold;
}

/** Lines of a difference: [{kind, text}]. */
export const diffLines = (lines, path = "") => scrollable(el("div", { class: "diff-lines edit-lines" }, linesOf({ path, lines, note: "" })), "Differences");

function linesOf(file, comments = null) {
  if (!file.lines.length) return [el("p", { class: "soft diff-none" }, file.note === "binary" ? "Binary file." : "No changed lines.")];
  const code = { lines: [], boxes: [] };
  const rows = file.lines.slice(0, MOST_LINES).flatMap((line) => [lineView(line, code, file.path, comments), ...(comments?.on(placeOf(line, file.path)) ?? [])]);
  if (file.path.includes(".") && code.lines.length) highlight(file.path.slice(-200), code.lines, code.boxes);
  const rest = file.lines.length - MOST_LINES;
  return rest > 0 ? [...rows, el("p", { class: "soft diff-none" }, `… ${plural(rest, "more line")}; download the patch to see all.`)] : rows;
}

/** What a comment on a line is about: the line as it is now, or a removed one as it was. */
const placeOf = (line, file) => ({ file, line: line.after ?? line.before ?? 0, side: line.after ? "new" : "old" });

function lineView(line, code, file = "", comments = null) {
  const place = placeOf(line, file);
  const numbers = [line.before, line.after].map((at, side) =>
    comments && at && (side === 1) === (place.side === "new")
      ? el("button", { type: "button", class: "ln", "aria-label": `Comment on line ${at}`, onclick: (event) => comments.open(place, event.currentTarget.parentElement) }, at)
      : el("span", { class: "ln" }, at ?? ""),
  );
  const sign = { added: "+", removed: "−", same: " " }[line.kind];
  const text = line.text.length > LONGEST ? `${line.text.slice(0, LONGEST)}…` : line.text;
  const box = el("span", {}, visible(text));
  if (sign) {
    code.lines.push(text);
    code.boxes.push(box);
  }
  const content = sign ? [el("span", { class: "sign" }, sign), box] : box;
  return el("div", { class: `dl ${line.kind}` }, numbers, el("span", { class: "lt" }, [content].flat(2)));
}
