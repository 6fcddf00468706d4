// Confirmation dialogs and toasts.

import { byId, el } from "./dom.js";

/**
 * Ask for confirmation. Resolves to true when the user confirms.
 * `action` is the label of the button, such as `Abort`; `danger` makes it red; `fields` must be valid to confirm.
 */
export function confirmed({ title, text, action, danger = true, fields = [] }) {
  return new Promise((resolve) => {
    const dialog = el(
      "dialog",
      { class: "dialog", "aria-labelledby": "dialog-title" },
      el(
        "form",
        { method: "dialog" },
        el("h2", { id: "dialog-title" }, title),
        ...[text].flat().map((line) => el("p", {}, line)),
        ...fields,
        el(
          "div",
          { class: "actions" },
          el("button", { value: "no", class: "quiet", autofocus: true, formnovalidate: true }, "Cancel"),
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

/** Show a toast; `kind` is `info`, `good`, or `bad`. Errors stay until they are closed. */
export function toast(text, kind = "info", remedy = "") {
  const close = el("button", { class: "quiet icon", "aria-label": "Close", type: "button" }, "×");
  const element = el(
    "div",
    { class: `toast ${kind}`, role: kind === "bad" ? "alert" : null },
    el("div", {}, el("b", {}, text), remedy ? el("div", { class: "soft" }, remedy) : null),
    close,
  );
  close.addEventListener("click", () => element.remove());
  byId("toasts").append(element);
  if (kind !== "bad") setTimeout(() => element.remove(), 6000);
}

/** Run an action and show a toast if it fails; the button is disabled meanwhile. Returns undefined on failure. */
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

/** Copy the address of the page, which shows the same again. */
export const copyLink = (button) =>
  attempt(button, async () => {
    try {
      await navigator.clipboard.writeText(location.href);
      toast("Link copied.", "good");
    } catch {
      toast("Copying failed. Copy the link from the address bar.");
    }
  });
