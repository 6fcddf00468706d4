// Save a prompt as a test case of a dataset.

import { api } from "./api.js";
import { toast } from "./dialogs.js";
import { el } from "./dom.js";
import { plural } from "./format.js";

const NAME = "[A-Za-z][A-Za-z0-9_]{0,47}";

/** Ask for the dataset and the expected text, and save. Resolves when the dialog is closed. */
export function askTestCase({ prompt, expected = "", sessionId = "" }) {
  return new Promise((resolve) => {
    const dataset = el("input", { required: true, pattern: NAME, value: "test_cases", maxlength: 48, title: "Letters, digits, and underscores; the first is a letter" });
    const right = el("textarea", { rows: 4, maxlength: 1000000 });
    right.value = expected.trim();
    const form = el(
      "form",
      { method: "dialog" },
      el("h2", { id: "case-title" }, "Save as test case"),
      el("label", { class: "field" }, "Dataset", dataset),
      el("label", { class: "field" }, "A right answer contains", right),
      el("p", { class: "soft small" }, "Leave it empty to accept any answer."),
      el("div", { class: "actions" }, el("button", { value: "no", class: "quiet", formnovalidate: true }, "Cancel"), el("button", { value: "yes", class: "primary" }, "Save")),
    );
    const dialog = el("dialog", { class: "dialog", "aria-labelledby": "case-title" }, form);
    dialog.addEventListener("close", async () => {
      dialog.remove();
      if (dialog.returnValue === "yes") {
        try {
          const saved = await api.post("/api/test-cases", { dataset: dataset.value, prompt, expected: right.value.trim(), sessionId: sessionId || "" });
          toast(`Saved. ${dataset.value} has ${plural(saved.examples, "test case")}.`, "good");
        } catch (error) {
          toast(error.message, "bad", error.remedy);
        }
      }
      resolve();
    });
    document.body.append(dialog);
    dialog.showModal();
    dataset.select();
  });
}
