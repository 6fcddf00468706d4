// Shared by every page: menu, theme, connection indicator. Re-exports the shared modules.

import { byId } from "./dom.js";
import "./keys.js";
import { onConnection } from "./live.js";

export { api, ApiError, query } from "./api.js";
export { attempt, confirmed, copyLink, toast } from "./dialogs.js";
export { byId, debounced, el, go, remember, remembered, svg, urlOf } from "./dom.js";
export * as format from "./format.js";
export { onConnection, watch } from "./live.js";
export { since } from "./time.js";
export { badge, ProgressBar, RUN_STATUSES, STATUSES, words } from "./status.js";
export { DataTable } from "./table.js";

const menu = byId("menu-button");
menu?.addEventListener("click", () => {
  const open = document.body.classList.toggle("menu-open");
  menu.setAttribute("aria-expanded", String(open));
});

/** The active theme: the selected one, or the system's. */
export function theme() {
  return document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

/** Select a theme: `light`, `dark`, or `` for the system's. */
export function chooseTheme(chosen) {
  if (chosen) document.documentElement.dataset.theme = chosen;
  else delete document.documentElement.dataset.theme;
  try {
    if (chosen) localStorage.setItem("proctor-theme", chosen);
    else localStorage.removeItem("proctor-theme");
  } catch {
    // Without storage, the theme applies to this page only.
  }
}

byId("theme-button")?.addEventListener("click", () => chooseTheme(theme() === "dark" ? "light" : "dark"));

// Short interruptions are not shown: pages catch up after reconnecting.
let timer = 0;
onConnection((connected) => {
  const indicator = byId("connection");
  if (connected) {
    clearTimeout(timer);
    timer = 0;
    indicator.hidden = true;
  } else
    // The timer starts at the first disconnect; every failed retry calls this again.
    timer ||= setTimeout(() => {
      indicator.textContent = "Reconnecting…";
      indicator.hidden = false;
    }, 2000);
});

// Ctrl-K opens the palette, which is loaded then.
let isOpening = false;
async function openPalette() {
  if (isOpening) return;
  isOpening = true;
  // What is typed while it loads belongs into its field.
  let typed = "";
  const collect = (event) => {
    if (event.key.length !== 1 || event.ctrlKey || event.metaKey || event.altKey) return;
    typed += event.key;
    event.preventDefault();
    event.stopPropagation();
  };
  addEventListener("keydown", collect, { capture: true });
  try {
    const palette = await import("./palette.js");
    palette.openPalette(typed);
  } finally {
    removeEventListener("keydown", collect, { capture: true });
    isOpening = false;
  }
}
byId("palette-button")?.addEventListener("click", openPalette);
document.addEventListener("keydown", (event) => {
  if (!byId("palette-button") || !(event.ctrlKey || event.metaKey) || event.shiftKey || event.altKey || event.key.toLowerCase() !== "k") return;
  event.preventDefault();
  openPalette();
});

// `/` focuses the search field, unless the user is typing.
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
  const search = [...document.querySelectorAll("input[type=search]")].find((one) => one.checkVisibility());
  if (event.key === "/" && !typing && search && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    search.focus();
  }
});
