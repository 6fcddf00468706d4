// Create elements from data. Text is inserted as text; nothing here parses markup.

/** Path below which a proxy serves this server; empty: none. */
const ROOT = document.documentElement.dataset.root || "";

/** The address of a path of this server: `urlOf("/runs/x")`. */
export const urlOf = (path) => ROOT + path;

/** The path of the open page with its tab, as `urlOf` takes it. */
export const here = () => location.pathname.slice(ROOT.length) + location.search + location.hash;

/** Open a path of this server. */
export const go = (path) => location.assign(urlOf(path));

/** Create an element: `el("td", {class: "n", onclick: f, title: "…"}, "text", child)`. `null` children are skipped; `href: "/…"` is a path of this server. */
export function el(tag, properties = {}, ...children) {
  return filled(document.createElement(tag), properties, children);
}

/** Create an SVG element. */
export function svg(tag, properties = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), properties, children);
}

function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "dataset") Object.assign(element.dataset, value);
    else if (name === "href" && String(value).startsWith("/")) element.setAttribute(name, urlOf(value));
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  // One by one: a call takes about a hundred thousand arguments at most.
  for (const child of children.flat()) if (child !== null && child !== undefined && child !== false) element.append(child);
  return element;
}

/**
 * Make `old` what `fresh` is, with as few changes as possible, so that focus, selection and scrolling survive. Children
 * with `data-key` are matched by it, others by their place. Listeners of elements that stay are those of `old`.
 */
export function updated(old, fresh) {
  if (old.nodeName !== fresh.nodeName) {
    old.replaceWith(fresh);
    return fresh;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return old;
  }
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  // The policy of the page forbids to set the attribute.
  for (const { name, value } of fresh.attributes) if (name === "style") old.style.cssText = value;
    else if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  const [before, after] = [[...old.childNodes], [...fresh.childNodes]];
  const keyed = new Map(before.filter((node) => node.dataset?.key).map((node) => [node.dataset.key, node]));
  const children = after.map((node, at) => {
    const match = node.dataset?.key ? keyed.get(node.dataset.key) : before[at]?.dataset?.key ? null : before[at];
    return match ? updated(match, node) : node;
  });
  place(old, children);
  return old;
}

/** Give an element these children in this order, and the focus back to what had it: an element that moves loses it. */
export function place(parent, children) {
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  const kept = new Set(children);
  for (const node of [...parent.childNodes]) if (!kept.has(node)) node.remove();
  for (const [at, node] of children.entries()) if (parent.childNodes[at] !== node) parent.insertBefore(node, parent.childNodes[at] ?? null);
  if (focused && document.activeElement !== focused && focused.isConnected) focused.focus({ preventScroll: true });
}

/** The element with this ID. */
export const byId = (id) => document.getElementById(id);

/** Call `action` once no further call has come for `milliseconds`. `cancel()` drops a pending call. */
export function debounced(action, milliseconds) {
  let timer = 0;
  const later = (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...args), milliseconds);
  };
  later.cancel = () => clearTimeout(timer);
  return later;
}

// Regions that scroll take the keyboard focus, so that they can be scrolled without a mouse; others do not.
const watched = new ResizeObserver((entries) => entries.forEach(({ target }) => update(target.scrolled ?? target)));
function update(box) {
  const scrolls = box.scrollHeight > box.clientHeight + 1 || box.scrollWidth > box.clientWidth + 1;
  if (scrolls) box.tabIndex = 0;
  else if (document.activeElement !== box && !box.isLong) box.removeAttribute("tabindex");
}

/** Let the keyboard reach an element while its content is larger than it; always if it `isLong`: what is not drawn yet has no size. */
export function scrollable(box, label, isLong = false) {
  box.isLong = isLong;
  if (isLong) box.tabIndex = 0;
  // Not a region: a transcript would have hundreds of landmarks.
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", label);
  watched.observe(box);
  for (const child of box.children) {
    child.scrolled = box;
    watched.observe(child);
  }
  return box;
}

/** The value stored in localStorage under a name, or the fallback if it is missing or not readable. */
export function remembered(name, fallback) {
  try {
    return JSON.parse(localStorage.getItem(name)) ?? fallback;
  } catch {
    return fallback;
  }
}

export function remember(name, value) {
  try {
    localStorage.setItem(name, JSON.stringify(value));
  } catch {
    // Storage is optional.
  }
}
