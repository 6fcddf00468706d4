/** A warning about results that somebody else than Proctor has written. */

import { api, el } from "./app.js";
import { visible } from "./texts.js";

/** The notice of a run, or of one of its items; null: nothing is wrong, or it cannot be checked now. */
export async function foreignNotice(run, item = "") {
  const check = await api.get(`/api/runs/${encodeURIComponent(run)}/signatures`).catch(() => null);
  if (!check?.notes.length || (item && !check.changedItems.includes(item))) return null;
  const texts = item ? ["This result was written or changed by someone else than Proctor."] : check.notes;
  return el("div", { class: `notice ${check.isForged ? "bad" : "warn"}`, role: "alert" }, texts.map((text) => el("p", {}, visible(text))));
}
