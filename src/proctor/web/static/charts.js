// Plots that the server drew. Only what a plot is made of is taken over: no script, no style, no address.

import { el, svg } from "./dom.js";

const TAGS = new Set(["svg", "g", "rect", "line", "text", "circle", "polygon", "polyline", "path", "title"]);
const ATTRIBUTES = new Set([
  ...["viewBox", "role", "aria-label", "class", "x", "y", "x1", "y1", "x2", "y2", "cx", "cy", "r", "rx"],
  ...["width", "height", "points", "d", "text-anchor"],
]);

/** The plot as elements. */
export function drawn(text) {
  const parsed = new DOMParser().parseFromString(text, "image/svg+xml");
  if (parsed.querySelector("parsererror")) return el("p", { class: "soft" }, "This plot cannot be shown.");
  return copied(parsed.documentElement);
}

function copied(node) {
  if (!TAGS.has(node.localName)) return null;
  const kept = [...node.attributes].filter(({ name }) => ATTRIBUTES.has(name)).map(({ name, value }) => [name, value]);
  const children = [...node.childNodes].map((child) => (child.nodeType === Node.TEXT_NODE ? child.data : child.nodeType === Node.ELEMENT_NODE ? copied(child) : null));
  return svg(node.localName, Object.fromEntries(kept), children);
}

/** A plot with its caption, as a card. */
export function chartCard({ caption, svg: text }) {
  return el("figure", { class: "card chart-card" }, el("figcaption", {}, caption), drawn(text));
}
