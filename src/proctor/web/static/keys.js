// Keys of a page, and the list of them that `?` shows.

import { el } from "./dom.js";

const groups = new Map([["Everywhere", { "Ctrl K": ["Search runs, sessions, transcripts, and actions", null], "/": ["Focus the search field", null], "?": ["Show the keys", () => showKeys()] }]]);

/** Whether somebody types, or a dialog is open. */
export const isTyping = (target) => Boolean(target.closest?.("input, textarea, select, [contenteditable]"));

/** Add keys of a page: `{j: ["Next", action]}`; an action of null is only listed, one without words is not. */
export function onKeys(group, keys) {
  groups.set(group, { ...groups.get(group), ...keys });
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || isTyping(event.target) || document.querySelector("dialog[open]")) return;
  for (const keys of groups.values()) {
    const action = keys[event.key]?.[1];
    if (!action) continue;
    event.preventDefault();
    action();
    return;
  }
});

function showKeys() {
  const rows = [...groups].flatMap(([name, keys]) => [el("h3", {}, name), el("dl", { class: "keys" }, Object.entries(keys).filter(([, [words]]) => words).flatMap(([key, [words]]) => [el("dt", {}, key.split(" ").flatMap((part, at) => [at ? " " : "", el("kbd", {}, part.length === 1 ? part.toUpperCase() : part)])), el("dd", {}, words)]))]);
  const dialog = el("dialog", { class: "dialog keys-dialog", "aria-labelledby": "keys-title" }, el("form", { method: "dialog" }, el("h2", { id: "keys-title" }, "Keys"), rows, el("div", { class: "actions" }, el("button", { autofocus: true }, "Close"))));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
