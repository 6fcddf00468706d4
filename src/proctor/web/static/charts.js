// Plots rendered by the server as SVG. Only known elements and attributes are copied: no scripts, styles, or URLs.
// Marks with figures (`data-mark`) show them on hover and focus, and open their items; a plot can be downloaded.

import { query } from "./api.js";
import { el, go, scrollable, svg } from "./dom.js";
import { number } from "./format.js";
import { menu } from "./tabs.js";
import { breakable, visible } from "./texts.js";

const TAGS = new Set(["svg", "g", "rect", "line", "text", "circle", "polygon", "polyline", "path", "title"]);
const ATTRIBUTES = new Set([
  ...["viewBox", "role", "aria-label", "class", "x", "y", "x1", "y1", "x2", "y2", "cx", "cy", "r", "rx"],
  ...["width", "height", "points", "d", "text-anchor", "data-mark"],
]);
/** Computed styles that a downloaded plot needs, because it has no style sheet. */
const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-weight", "font-family"];
const SCALE = 2;

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

/** The address of the items behind a figure: the Items tab with their filter. */
export const itemsAddress = (run, items) => `/runs/${encodeURIComponent(run)}${query(items)}#items`;

/** A figure in words: value, interval, n, and note. */
export function figureWords(one) {
  const digits = (value) => Number(value.toPrecision(4)).toString().replace("-", "−");
  const interval = one.low === null || one.low === undefined ? "" : one.high === null ? `95% CI from ${digits(one.low)}` : `95% CI ${digits(one.low)} to ${digits(one.high)}`;
  const count = one.n === null || one.n === undefined ? "" : `n = ${number(one.n)} ${one.unit}${one.n === 1 ? "" : "s"}`;
  return [visible(one.text), interval, count, visible(one.note || "")].filter(Boolean);
}

/**
 * A card with a plot and its caption. `marks` are the figures of its marks; `run` is the run whose items they select, or
 * `open(mark)` opens what is behind one.
 */
export function chartCard({ caption, svg: text, marks = [], title = "" }, { run = "", open = null } = {}) {
  const plot = fromSvg(text);
  const name = title || caption;
  const download = el("button", { type: "button", class: "quiet compact chart-download", "aria-label": `Download ${visible(name)}` }, "Download");
  const tools = el("span", {}, download);
  const card = el("figure", { class: "card chart-card" },
    el("figcaption", {}, el("span", {}, breakable(name)), tools),
    scrollable(el("div", { class: "chart-frame" }, plot), visible(name)),
    title && caption ? el("p", { class: "soft small" }, visible(caption)) : null);
  const opens = open || (run ? (mark) => mark.items && go(itemsAddress(run, mark.items)) : null);
  if (plot.localName === "svg" && marks.length) answer(plot, marks, opens);
  menu(download, [
    el("button", { type: "button", class: "menu-item quiet", onclick: () => saveSvg(plot, name) }, "SVG"),
    el("button", { type: "button", class: "menu-item quiet", onclick: () => savePng(plot, name) }, "PNG"),
    marks.length ? el("button", { type: "button", class: "menu-item quiet", onclick: () => saveCsv(marks, name) }, "CSV") : null,
  ]);
  return card;
}

// ---- Marks

/** The mark whose figures are shown. */
let tipped = null;
const tip = el("div", { class: "chart-tip", role: "tooltip", id: "chart-tip", hidden: true });

function showTip(shape, one, canOpen) {
  if (!tip.isConnected) document.body.append(tip);
  tip.replaceChildren(el("b", {}, visible(one.label)), ...figureWords(one).map((words) => el("span", {}, words)), canOpen ? el("span", { class: "soft" }, "Click to list the items") : "");
  tip.hidden = false;
  tipped = shape;
  placeTip();
}

function placeTip() {
  if (tip.hidden) return;
  const place = tipped.getBoundingClientRect();
  const [width, height] = [tip.offsetWidth, tip.offsetHeight];
  const left = Math.min(Math.max(8, place.left + place.width / 2 - width / 2), document.documentElement.clientWidth - width - 8);
  const above = place.top - height - 8;
  tip.style.left = `${left}px`;
  tip.style.top = `${above > 8 ? above : place.bottom + 8}px`;
}

const hideTip = () => (tip.hidden = true);
// Focusing a mark may scroll to it.
addEventListener("scroll", placeTip, { passive: true, capture: true });

/** Make the marks of a plot show their figures. One of them is in the tab order; arrow keys go to the others. */
function answer(plot, marks, open) {
  const shapes = [...plot.querySelectorAll("[data-mark]")].filter((shape) => marks[shape.dataset.mark]);
  if (!shapes.length) return;
  // An image has no parts that can be focused.
  plot.setAttribute("role", "group");
  shapes.forEach((shape, place) => {
    const one = marks[shape.dataset.mark];
    const canOpen = Boolean(open && (one.items || one.opens));
    shape.querySelector("title")?.remove();
    shape.classList.add("c-mark");
    if (canOpen) shape.classList.add("c-opens");
    shape.setAttribute("tabindex", place ? "-1" : "0");
    shape.setAttribute("role", canOpen ? "link" : "img");
    shape.setAttribute("aria-label", [visible(one.label), ...figureWords(one)].join(", "));
    const show = () => showTip(shape, one, canOpen);
    shape.addEventListener("mouseenter", show);
    shape.addEventListener("focus", show);
    shape.addEventListener("mouseleave", hideTip);
    shape.addEventListener("blur", hideTip);
    shape.addEventListener("click", () => (canOpen ? open(one) : show()));
    shape.addEventListener("keydown", (event) => walk(event, shapes, place, () => canOpen && open(one)));
  });
}

function walk(event, shapes, place, open) {
  const next = { ArrowRight: place + 1, ArrowDown: place + 1, ArrowLeft: place - 1, ArrowUp: place - 1, Home: 0, End: shapes.length - 1 }[event.key];
  if (event.key === "Escape") hideTip();
  if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    open();
  }
  if (next === undefined) return;
  event.preventDefault();
  const shape = shapes[(next + shapes.length) % shapes.length];
  shapes[place].setAttribute("tabindex", "-1");
  shape.setAttribute("tabindex", "0");
  shape.focus();
}

// ---- Downloads

const fileName = (name, ending) => `${name.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "").slice(0, 80) || "chart"}.${ending}`;

function save(content, name) {
  const address = URL.createObjectURL(content);
  el("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** A plot as the text of a file of its own, in the colors of the page. */
function standalone(plot) {
  const copy = plot.cloneNode(true);
  const sources = [plot, ...plot.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((node, place) => {
    const style = getComputedStyle(sources[place]);
    for (const name of STYLES) node.setAttribute(name, style.getPropertyValue(name));
    for (const name of ["class", "tabindex", "data-mark"]) node.removeAttribute(name);
  });
  const [, , width, height] = plot.getAttribute("viewBox").split(" ").map(Number);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  copy.prepend(svg("rect", { width, height, fill: getComputedStyle(document.body).backgroundColor }));
  return { text: new XMLSerializer().serializeToString(copy), width, height };
}

const saveSvg = (plot, name) => save(new Blob([standalone(plot).text], { type: "image/svg+xml" }), fileName(name, "svg"));

async function savePng(plot, name) {
  const { text, width, height } = standalone(plot);
  const image = new Image(width * SCALE, height * SCALE);
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = el("canvas", { width: width * SCALE, height: height * SCALE });
  canvas.getContext("2d").drawImage(image, 0, 0, width * SCALE, height * SCALE);
  canvas.toBlob((content) => save(content, fileName(name, "png")), "image/png");
}

function saveCsv(marks, name) {
  // A cell that begins like a formula would be one in a spreadsheet.
  const cell = (value) => {
    const text = value === null || value === undefined ? "" : String(value);
    const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const rows = marks.map((one) => [one.label, one.value, one.low, one.high, one.n, one.unit, one.note]);
  const lines = [["label", "value", "low", "high", "n", "unit", "note"], ...rows].map((row) => row.map(cell).join(","));
  save(new Blob([`${lines.join("\r\n")}\r\n`], { type: "text/csv" }), fileName(name, "csv"));
}
