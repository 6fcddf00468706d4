// What can be done with the prompt of a session: ask other models, and save it as a test case.

import { api } from "./api.js";
import { toast } from "./dialogs.js";
import { byId, el } from "./dom.js";
import { askTestCase } from "./test_cases.js";

const session = byId("session")?.dataset.session;

async function save() {
  try {
    const { text } = await api.get(`/api/sessions/${encodeURIComponent(session)}/prompt`);
    await askTestCase({ prompt: text, sessionId: session });
  } catch (error) {
    toast(error.message, "bad", error.remedy);
  }
}

if (session)
  byId("prompt-actions")?.append(
    el("a", { class: "button", dataset: { needs: "run" }, href: `/playground?session=${encodeURIComponent(session)}` }, "Ask other models"),
    el("button", { type: "button", dataset: { needs: "label" }, onclick: save }, "Save as test case"),
  );
