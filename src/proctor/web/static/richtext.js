// Texts that the server formatted, as elements. They are `[tag, attributes, ...children]`; only what is listed here is built.

import { api } from "./api.js";
import { el } from "./dom.js";
import { terminal, visible } from "./texts.js";

const TAGS = new Set("a blockquote code div em hr li ol p pre s span strong table tbody td th thead tr ul".split(" "));
const CLASSES = /^(rich-[a-z0-9-]+( rich-h\d)?|k-[a-z]+|plus|minus|soft small)$/;
const MOST_FILES = 100;
const SCROLLS = new Set(["pre", "div"]);

/** Nodes of the server as elements and texts. */
export const built = (nodes) => nodes.map((node) => (typeof node === "string" ? visible(node) : element(node)));

function element([tag, { href, start, dir, ...attributes }, ...children]) {
  if (!TAGS.has(tag)) return el("span", {}, built(children));
  const kind = CLASSES.test(attributes.class ?? "") ? attributes.class : null;
  // What is wide scrolls by itself; the keyboard must reach it.
  const box = SCROLLS.has(tag) ? { tabindex: "0", role: "group", "aria-label": visible(String(attributes["aria-label"] ?? "Text")) } : {};
  const link = tag === "a" && /^(https?:\/\/|mailto:)/i.test(href) ? { href, rel: "noopener noreferrer nofollow", target: "_blank", title: visible(href) } : {};
  return el(tag, { class: kind, dir: dir === "auto" || dir === "ltr" ? dir : null, start: Number.isInteger(start) ? start : null, ...box, ...link }, built(children));
}

/** A text in the form that suits it: formatted by the server, terminal output in color, or as it is. */
export function richText(text, { nodes }) {
  if (nodes) return built(nodes);
  return [text.includes("\u001b[") ? el("pre", { class: "rich-terminal" }, terminal(text)) : el("div", { class: "rich-plain" }, visible(text))];
}

let waiting = [];

/** Highlight code as soon as the server has done so: `boxes` hold `lines` of a file. All files of a moment are one request. */
export function highlight(name, lines, boxes) {
  if (!waiting.length) setTimeout(send);
  waiting.push({ name, lines, boxes });
}

async function send() {
  const files = waiting;
  waiting = [];
  for (let at = 0; at < files.length; at += MOST_FILES) {
    const some = files.slice(at, at + MOST_FILES);
    const { code } = await api.post("/api/highlighted", { code: some.map(({ name, lines }) => ({ name, lines })) }).catch(() => ({ code: [] }));
    for (const [index, shown] of code.entries())
      for (const [line, nodes] of shown.entries()) if (nodes.length > 1 || typeof nodes[0] !== "string") some[index].boxes[line].replaceChildren(...built(nodes));
  }
}
