// The agent of a running session: what its program prints, a message to it, and its stop.

import { api, query } from "./api.js";
import { attempt, confirmed, toast } from "./dialogs.js";
import { el } from "./dom.js";
import { terminal, visible } from "./texts.js";

const MOST_OUTPUT = 100_000;

/** What the program of a running agent prints, below the transcript, until it is recorded; a message to it, and its stop. */
export async function followAgent({ panel, address, session }) {
  const text = el("pre", { class: "terminal", hidden: true });
  const field = el("input", { type: "text", required: true, maxlength: 20_000, "aria-label": "Message to the agent", placeholder: "Message to the agent" });
  const send = el("button", { class: "compact primary" }, "Send");
  const form = el("form", { class: "live-message", hidden: true, onsubmit: tell }, field, send);
  const stop = el("button", { type: "button", class: "compact", onclick: stopAgent }, "Stop agent");
  const actions = el("div", { class: "live-actions", hidden: true, dataset: { needs: "run" } }, form, stop);
  const where = session().worktree ? el("p", { class: "soft small" }, "Worktree: ", el("code", {}, visible(session().worktree))) : "";
  const box = el("details", { class: "card live-output", open: true }, el("summary", {}, "Agent at work"), where, text, actions);
  panel.append(box);

  async function tell(event) {
    event.preventDefault();
    const done = await attempt(send, () => api.post(`${address}/messages`, { text: field.value }));
    if (!done) return;
    field.value = "";
    toast("Sent. The agent reads it after its current step.", "good");
  }

  async function stopAgent() {
    const words = ["Its changes are committed to its branch, where you can continue, or send it back with comments.", "The other items of the run go on."];
    const agreed = await confirmed({ title: "Stop this agent?", text: words, action: "Stop agent" });
    if (agreed) await attempt(stop, () => api.post(`${address}/stop`));
  }

  let [printed, after] = ["", 0];
  while (session().status === "running") {
    const answer = await api.get(`${address}/output${query({ after })}`).catch(() => null);
    if (answer?.text) {
      printed = (printed + answer.text).slice(-MOST_OUTPUT);
      text.replaceChildren(...terminal(printed));
      text.hidden = false;
      text.scrollTop = text.scrollHeight;
    }
    actions.hidden = !answer?.canBeStopped;
    form.hidden = !answer?.takesMessages;
    after = answer?.offset ?? after;
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
  box.remove();
}
