// Create elements from data. Text is inserted as text; nothing here parses markup.

/** Create an element: `el("td", {class: "n", onclick: f, title: "…"}, "text", child)`. `null` children are skipped. */
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
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
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
