// Tabs and menus, usable with the keyboard as both are everywhere else.

import { el } from "./dom.js";

/**
 * Tabs over panels: `list` is the element with role=tablist. `opened(name)` is called when a panel is shown.
 * The address keeps which one is open, behind #.
 */
export class Tabs {
  constructor(list, opened = () => {}) {
    this.list = list;
    this.opened = opened;
    this.list.addEventListener("click", (event) => {
      const tab = event.target.closest("[role=tab]");
      if (tab) this.open(tab.dataset.panel, { told: true });
    });
    this.list.addEventListener("keydown", (event) => this.walk(event));
  }

  get shown() {
    return [...this.list.querySelectorAll("[role=tab]")].filter((tab) => !tab.hidden);
  }

  get current() {
    return this.list.querySelector("[aria-selected=true]")?.dataset.panel;
  }

  open(name, { told = false, focus = false } = {}) {
    const wanted = this.shown.find((tab) => tab.dataset.panel === name) || this.shown[0];
    for (const tab of this.list.querySelectorAll("[role=tab]")) {
      const isOpen = tab === wanted;
      tab.setAttribute("aria-selected", String(isOpen));
      tab.tabIndex = isOpen ? 0 : -1;
      document.getElementById(tab.getAttribute("aria-controls")).hidden = !isOpen;
    }
    if (focus) wanted.focus();
    if (told) history.replaceState(history.state, "", `#${wanted.dataset.panel}`);
    this.opened(wanted.dataset.panel);
  }

  walk(event) {
    const tabs = this.shown;
    const here = tabs.indexOf(event.target);
    const next = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (here < 0 || next === undefined) return;
    event.preventDefault();
    this.open(tabs[(next + tabs.length) % tabs.length].dataset.panel, { told: true, focus: true });
  }
}

/** A button that opens a menu below itself; one that waits for its menu is enabled. Escape, a click elsewhere or a choice closes it. */
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
    // Kept inside the window, whichever side the button is on.
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
