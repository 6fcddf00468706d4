// Browser notifications when a run ends, if enabled in the settings.

import { go, remember, remembered } from "./dom.js";
import { number } from "./format.js";

const NAME = "proctor-notifications";

/** `on`, `off`, or why notifications are unavailable: `denied`, `unsupported`. */
export function state() {
  if (!("Notification" in window)) return "unsupported";
  if (Notification.permission === "denied") return "denied";
  return remembered(NAME, false) && Notification.permission === "granted" ? "on" : "off";
}

/** Turn notifications on or off, requesting permission if needed. Returns the new state. */
export async function turn(on) {
  if (on && "Notification" in window && Notification.permission === "default") await Notification.requestPermission();
  remember(NAME, on);
  return state();
}

/** Notify that a run has ended. */
export function announce(run) {
  if (state() !== "on") return;
  const passed = run.counts?.success ?? 0;
  const notification = new Notification(`${run.runId}: ${run.status}`, { body: `${number(passed)} of ${number(run.itemCount)} succeeded`, tag: run.runId });
  notification.onclick = () => {
    window.focus();
    go(`/runs/${encodeURIComponent(run.runId)}`);
  };
}

/** Returns a function to call with each update of a run; it notifies when the run ends. `before` is the known status. */
export function ending(before = "") {
  return (run) => {
    if (before === "running" && run.status !== "running") announce(run);
    before = run.status;
  };
}
