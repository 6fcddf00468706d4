// Browser notifications when a run ends, for those who asked for them in the settings.

import { remember, remembered } from "./dom.js";

const NAME = "proctor-notifications";

/** `on`, `off`, or why they cannot be had: `denied`, `unsupported`. */
export function state() {
  if (!("Notification" in window)) return "unsupported";
  if (Notification.permission === "denied") return "denied";
  return remembered(NAME, false) && Notification.permission === "granted" ? "on" : "off";
}

/** Turn them on or off; asks the browser when need be. The state then. */
export async function turn(on) {
  if (on && "Notification" in window && Notification.permission === "default") await Notification.requestPermission();
  remember(NAME, on);
  return state();
}

/** Tell that a run has ended. */
export function announce(run) {
  if (state() !== "on") return;
  const passed = run.counts?.success ?? 0;
  const shown = new Notification(`${run.runId}: ${run.status}`, { body: `${passed} of ${run.itemCount} succeeded`, tag: run.runId });
  shown.onclick = () => {
    window.focus();
    location.assign(`/runs/${encodeURIComponent(run.runId)}`);
  };
}

/** Tells when one run ends while it is looked at: hand in what is seen of it, each time; `before` is known already. */
export function ending(before = "") {
  return (run) => {
    if (before === "running" && run.status !== "running") announce(run);
    before = run.status;
  };
}
