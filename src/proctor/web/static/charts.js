// Plots rendered by the server as SVG. Only known elements and attributes are copied: no scripts, styles, or URLs.

import { el, svg } from "./dom.js";

const TAGS = new Set(["svg", "g", "rect", "line", "text", "circle", "polygon", "polyline", "path", "title"]);
const ATTRIBUTES = new Set([
  ...["viewBox", "role", "aria-label", "class", "x", "y", "x1", "y1", "x2", "y2", "cx", "cy", "r", "rx"],
  ...["width", "height", "points", "d", "text-anchor"],
]);

/** Convert SVG text to elements. */
export function fromSvg(text) {
  const parsed = new DOMParser().parseFromString(text, "image/svg+xml");
  if (parsed.querySelector("parsererror")) return el("p", { class: "soft" }, "The plot could not be displayed.");
  return sanitized(parsed.documentElement);
}

function sanitized(node) {
  if (!TAGS.has(node.localName)) return null;
  const attributes = [...node.attributes].filter(({ name }) => ATTRIBUTES.has(name)).map(({ name, value }) => [name, value]);
  const children = [...node.childNodes].map((child) => (child.nodeType === Node.TEXT_NODE ? child.data : child.nodeType === Node.ELEMENT_NODE ? sanitized(child) : null));
  return svg(node.localName, Object.fromEntries(attributes), children);
}

/** A card with a plot and its caption. */
export function chartCard({ caption, svg: text }) {
  return el("figure", { class: "card chart-card" }, el("figcaption", {}, caption), fromSvg(text));
}
