// What every page has: the menu, the theme, word of a lost connection. Re-exports the shared pieces.

import { byId } from "./dom.js";
import { onConnection } from "./live.js";

export { api, ApiError, query } from "./api.js";
export { attempt, confirmed, toast } from "./dialogs.js";
export { byId, debounced, el, remember, remembered, svg } from "./dom.js";
export * as format from "./format.js";
export { onConnection, watch } from "./live.js";
export { badge, ProgressBar, RUN_STATUSES, STATUSES, tally, words } from "./status.js";
export { DataTable } from "./table.js";

const menu = byId("menu-button");
menu?.addEventListener("click", () => {
  const open = document.body.classList.toggle("menu-open");
  menu.setAttribute("aria-expanded", String(open));
});

/** The theme that is shown: the chosen one, else the system's. */
export function theme() {
  return document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

/** Choose a theme: `light`, `dark`, or `` for the system's. */
export function chooseTheme(chosen) {
  if (chosen) document.documentElement.dataset.theme = chosen;
  else delete document.documentElement.dataset.theme;
  try {
    if (chosen) localStorage.setItem("proctor-theme", chosen);
    else localStorage.removeItem("proctor-theme");
  } catch {
    // Then it holds for this page.
  }
}

byId("theme-button")?.addEventListener("click", () => chooseTheme(theme() === "dark" ? "light" : "dark"));

// A short break is no news: pages catch up by themselves.
let broken = 0;
onConnection((connected) => {
  const shown = byId("connection");
  if (connected) {
    clearTimeout(broken);
    broken = 0;
    shown.hidden = true;
  } else
    // Counted from the first that was lost: each try that fails tells the same again.
    broken ||= setTimeout(() => {
      shown.textContent = "Reconnecting…";
      shown.hidden = false;
    }, 2000);
});

// `/` goes to the search field, where there is one and nothing is being typed.
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
  const search = document.querySelector("input[type=search]");
  if (event.key === "/" && !typing && search && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    search.focus();
  }
});
