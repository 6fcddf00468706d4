// Actions on a run that several pages offer.

import { api } from "./api.js";
import { attempt, confirmed, toast } from "./dialogs.js";
import { number, plural } from "./format.js";

/** Ask, then delete a run; whether it was deleted. */
export async function deleteRun(run, button) {
  const agreed = await confirmed({
    title: `Delete ${run.runId}?`,
    text: [`${plural(run.itemCount, "item")} with all recorded data, worktrees, and session branches.`, "This cannot be undone."],
    action: "Delete",
  });
  if (!agreed) return false;
  const done = await attempt(button, () => api.delete(`/api/runs/${encodeURIComponent(run.runId)}`));
  if (done) toast(`Deleted ${run.runId}`, "good", done.kept.join("; "));
  return Boolean(done);
}

export const hasStoppedEarly = (run) => Boolean(run.status === "completed" && run.stopWhen && run.counts.queued > 0);

/** A status of items; what a run that stopped early left is not waiting for anything. */
export const statusWord = (run, status) => (status === "queued" && hasStoppedEarly(run) ? "not needed" : status);

/** How many items have finished: those that an abort ended have not. */
export function doneWords(run, noun = "") {
  const total = noun ? plural(run.itemCount, noun) : number(run.itemCount);
  return `${number(run.finishedCount - run.abortedCount)} of ${total}${run.abortedCount ? `, ${number(run.abortedCount)} aborted` : ""}`;
}
