// Edits of files in tool calls of several agents, as lines of a diff.

import { lineDiff } from "./text_diff.js";

const PATH = ["file_path", "path", "filePath", "target_file", "notebook_path", "absolute_path", "filename", "file"];
const OLD = ["old_string", "old_str", "oldString", "oldText", "find", "search"];
const NEW = ["new_string", "new_str", "newString", "newText", "replace", "replacement"];
const CONTENT = ["content", "file_text", "contents", "new_source", "code_edit", "text"];
const LISTS = ["edits", "replacements", "changes", "operations"];
const PATCH = ["patch", "input", "diff", "unified_diff", "patch_text", "patchText"];
/** Names of tools that replace a whole file; a tool of another name with a path and a text may only read or search. */
const WRITES = /write|create|save|overwrite|edit|replace|put/i;
const MOST_EDITS = 50;

const first = (args, names) => names.map((name) => args[name]).find((value) => typeof value === "string");

/**
 * The edits of a tool call: [{path, note, lines: [{kind, text}]}], empty if it edits nothing. Understands the
 * arguments of Claude Code, Codex, Gemini, Amp, OpenHands, OpenCode, Cline, and Proctor's own agents.
 */
export function editsOf(toolName, args) {
  if (!args || typeof args !== "object") return [];
  const patch = patchText(args);
  if (patch) return fromPatch(patch);
  const path = first(args, PATH) ?? "";
  for (const name of LISTS) {
    if (Array.isArray(args[name]) && args[name].some((one) => one && typeof one === "object")) return args[name].slice(0, MOST_EDITS).flatMap((one) => edit(toolName, { ...one, path: first(one ?? {}, PATH) ?? path }));
  }
  return edit(toolName, args);
}

function edit(toolName, args) {
  if (!args || typeof args !== "object") return [];
  const path = first(args, PATH) ?? "";
  if (typeof args.diff === "string" || typeof args.unified_diff === "string") return fromPatch(args.diff ?? args.unified_diff, path);
  const [before, after] = [first(args, OLD), first(args, NEW)];
  if (path && after !== undefined && before !== undefined) return [{ path, note: args.replace_all || args.replaceAll ? "all occurrences" : "", lines: lineDiff(before, after) }];
  if (path && after !== undefined && (args.insert_line ?? args.line) !== undefined) return [{ path, note: `after line ${args.insert_line ?? args.line}`, lines: lineDiff("", after) }];
  const content = first(args, CONTENT);
  if (path && content !== undefined && (WRITES.test(toolName) || WRITES.test(args.command ?? ""))) return [{ path, note: "whole file", lines: lineDiff("", content) }];
  return [];
}

function patchText(args) {
  const texts = [...PATCH.map((name) => args[name]), ...[args.command, args.cmd, args.args].flat()];
  return texts.find((text) => typeof text === "string" && (text.includes("*** Begin Patch") || /^(diff --git |--- \S.*\n\+\+\+ )/m.test(text)));
}

/** Files of a unified diff, or of a patch of Codex (`*** Update File: …`). */
function fromPatch(text, path = "") {
  const files = [];
  let file = path ? { path, note: "", lines: [] } : null;
  if (file) files.push(file);
  const begin = (name, note = "") => {
    if (files.length >= MOST_EDITS) return;
    file = { path: name, note, lines: [] };
    files.push(file);
  };
  for (const line of text.split("\n")) {
    const action = /^\*\*\* (Update|Add|Delete) File: (.+)$/.exec(line);
    if (action) begin(action[2], { Add: "new", Delete: "deleted", Update: "" }[action[1]]);
    else if (line.startsWith("*** Move to: ") && file) file.note = `moved to ${line.slice(13)}`;
    else if (line.startsWith("*** ") || line.startsWith("diff --git ") || line.startsWith("index ")) continue;
    else if (line.startsWith("--- ")) continue;
    else if (line.startsWith("+++ ")) path || begin(line.slice(4).replace(/^b\//, "").replace(/\t.*$/, ""));
    else if (!file) continue;
    else if (line.startsWith("@@")) file.lines.push({ kind: "hunk", text: line });
    else if (line.startsWith("+")) file.lines.push({ kind: "added", text: line.slice(1) });
    else if (line.startsWith("-")) file.lines.push({ kind: "removed", text: line.slice(1) });
    else if (line.startsWith(" ")) file.lines.push({ kind: "same", text: line.slice(1) });
  }
  return files.filter((one) => one.lines.length || one.note);
}
