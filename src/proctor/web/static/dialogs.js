// Questions and news: a dialog that asks before something is lost, a toast that tells what happened.

import { byId, el } from "./dom.js";

/**
 * Ask before something that cannot be undone. Resolves to true when the user agrees.
 * `action` is the word on the button, as `Abort`; `danger` makes it red.
 */
export function confirmed({ title, text, action, danger = true }) {
  return new Promise((resolve) => {
    const dialog = el(
      "dialog",
      { class: "dialog", "aria-labelledby": "dialog-title" },
      el(
        "form",
        { method: "dialog" },
        el("h2", { id: "dialog-title" }, title),
        ...[text].flat().map((line) => el("p", {}, line)),
        el(
          "div",
          { class: "actions" },
          el("button", { value: "no", class: "quiet", autofocus: true }, "Cancel"),
          el("button", { value: "yes", class: danger ? "danger" : "primary" }, action),
        ),
      ),
    );
    dialog.addEventListener("close", () => {
      resolve(dialog.returnValue === "yes");
      dialog.remove();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Tell what happened; `kind` is `info`, `good` or `bad`. What went wrong stays until it is closed. */
export function toast(text, kind = "info", remedy = "") {
  const close = el("button", { class: "quiet icon", "aria-label": "Close", type: "button" }, "×");
  const shown = el(
    "div",
    { class: `toast ${kind}`, role: kind === "bad" ? "alert" : null },
    el("div", {}, el("b", {}, text), remedy ? el("div", { class: "soft" }, remedy) : null),
    close,
  );
  close.addEventListener("click", () => shown.remove());
  byId("toasts").append(shown);
  if (kind !== "bad") setTimeout(() => shown.remove(), 6000);
}

/** Do something on the server and tell when it fails; the button waits meanwhile. Undefined on failure. */
export async function attempt(button, action) {
  button?.setAttribute("aria-busy", "true");
  if (button) button.disabled = true;
  try {
    return await action();
  } catch (error) {
    toast(error.message, "bad", error.remedy);
    return undefined;
  } finally {
    button?.removeAttribute("aria-busy");
    if (button) button.disabled = false;
  }
}
