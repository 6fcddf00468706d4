// Tabs and menus with keyboard navigation.

import { el } from "./dom.js";

/**
 * Tabs over panels: `list` is the element with role=tablist. `opened(name)` is called when a panel is shown.
 * The URL fragment stores which one is open.
 */
export class Tabs {
  constructor(list, opened = () => {}) {
    this.list = list;
    this.opened = opened;
    this.list.addEventListener("click", (event) => {
      const tab = event.target.closest("[role=tab]");
      if (tab) this.open(tab.dataset.panel, { updateUrl: true });
    });
    this.list.addEventListener("keydown", (event) => this.walk(event));
    addEventListener("hashchange", () => this.follow(location.hash.slice(1)));
  }

  /** Show the tab that the URL fragment names, if there is one. */
  follow(name) {
    if (name !== this.current && this.visibleTabs.some((tab) => tab.dataset.panel === name)) this.open(name);
  }

  get visibleTabs() {
    return [...this.list.querySelectorAll("[role=tab]")].filter((tab) => !tab.hidden);
  }

  get current() {
    return this.list.querySelector("[aria-selected=true]")?.dataset.panel;
  }

  open(name, { updateUrl = false, focus = false } = {}) {
    const selected = this.visibleTabs.find((tab) => tab.dataset.panel === name) || this.visibleTabs[0];
    for (const tab of this.list.querySelectorAll("[role=tab]")) {
      const isOpen = tab === selected;
      tab.setAttribute("aria-selected", String(isOpen));
      tab.tabIndex = isOpen ? 0 : -1;
      document.getElementById(tab.getAttribute("aria-controls")).hidden = !isOpen;
    }
    if (focus) selected.focus();
    if (updateUrl) history.replaceState(history.state, "", `#${selected.dataset.panel}`);
    this.opened(selected.dataset.panel);
  }

  walk(event) {
    const tabs = this.visibleTabs;
    const here = tabs.indexOf(event.target);
    const next = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (here < 0 || next === undefined) return;
    event.preventDefault();
    this.open(tabs[(next + tabs.length) % tabs.length].dataset.panel, { updateUrl: true, focus: true });
  }
}

/** Attach a menu to a button and enable the button. Escape, a click elsewhere, or a choice closes the menu. */
export function menu(button, content, { stays = false } = {}) {
  const box = el("div", { class: "menu", hidden: true }, content);
  button.setAttribute("aria-haspopup", "true");
  button.setAttribute("aria-expanded", "false");
  const holder = el("span", { class: "menu-holder" });
  button.replaceWith(holder);
  holder.append(button, box);
  button.disabled = false;
  const show = (open) => {
    box.hidden = !open;
    button.setAttribute("aria-expanded", String(open));
    if (!open) return;
    // Keep the menu inside the window.
    box.classList.remove("to-left");
    if (box.getBoundingClientRect().right > document.documentElement.clientWidth - 8) box.classList.add("to-left");
  };
  button.addEventListener("click", () => show(box.hidden));
  box.addEventListener("click", (event) => {
    if (!stays && event.target.closest("a, button")) show(false);
  });
  holder.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !box.hidden) {
      show(false);
      button.focus();
      event.stopPropagation();
    }
    if ((event.key === "ArrowDown" || event.key === "ArrowUp") && !box.hidden && event.target.tagName !== "SELECT") {
      const items = [...box.querySelectorAll("a, button, input, select")];
      const next = items.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1);
      items[(next + items.length) % items.length]?.focus();
      event.preventDefault();
    }
  });
  document.addEventListener("click", (event) => {
    if (!holder.contains(event.target)) show(false);
  });
  return { show, box };
}
