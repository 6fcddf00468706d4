// The changes of a session, and actions on its branch: merge, discard, download.

import { api } from "./api.js";
import { attempt, confirmed, toast } from "./dialogs.js";
import { diffView } from "./diff.js";
import { el } from "./dom.js";
import { ago, number } from "./format.js";
import { badge } from "./status.js";
import { visible } from "./texts.js";

const STATES = {
  published: ["queued", "not merged"],
  merged: ["merged", "merged"],
  gone: ["aborted", "discarded"],
  unavailable: ["error", "unavailable"],
};

/** Fill the panel. `session()` returns the current session; `changed()` reloads it after an action. */
export async function showBranch({ panel, tab, address, session, changed }) {
  const refresh = async () => {
    await changed();
    await showBranch({ panel, tab, address, session, changed });
  };
  const response = await api.get(`${address}/diff`);
  tab.querySelector(".count").textContent = response.files ? number(response.files) : "";
  panel.replaceChildren(
    head(response, session(), address, refresh),
    history(session().merges),
    body(response),
    response.isCut ? el("p", { class: "soft" }, "The patch is truncated. Download it to see all changes.") : "",
  );
}

function head(response, session, address, refresh) {
  const [kind, words] = STATES[response.state] || ["queued", response.state];
  const actions = el("div", { class: "actions" });
  if (response.diff) actions.append(el("a", { class: "button compact", href: `${address}/diff?format=patch`, download: "" }, "Download patch"));
  if (response.state === "published" && session.status !== "running")
    actions.append(
      el("button", { type: "button", class: "compact", dataset: { needs: "run" }, onclick: (event) => discard(event.currentTarget, address, refresh) }, "Discard"),
      el("button", { type: "button", class: mayMerge(session) ? "compact primary" : "compact", dataset: { needs: "run" }, onclick: (event) => merge(event.currentTarget, session, address, refresh) }, "Merge"),
    );
  const warning = response.state === "published" ? doubt(session) : "";
  const where = el(
    "div",
    {},
    el("span", { class: `status s-${kind}` }, words),
    " ",
    el("code", {}, visible(response.branch)),
    response.baseBranch ? el("span", { class: "soft" }, ` from ${visible(response.baseBranch)}`) : null,
    warning ? el("span", { class: "status s-fail branch-doubt" }, warning) : null,
  );
  return el("div", { class: "branch-head" }, where, actions);
}

const mayMerge = (session) => !doubt(session);

/** Why these changes should not be merged without a look; empty: nothing speaks against it. */
function doubt(session) {
  const last = session.steps.filter((step) => step.testResult).at(-1);
  if (last?.testResult === "fail") return "The check failed";
  return session.status === "success" ? "" : `The session ended with ${visible(session.status)}`;
}

function body(response) {
  if (response.problem) return el("div", { class: "notice bad" }, el("p", {}, visible(response.problem)));
  if (response.diff) return diffView(response.diff);
  const why = response.state === "gone" ? "The branch no longer exists in git." : "The agent made no changes to its worktree.";
  return el("div", { class: "empty" }, el("b", {}, "No changes."), el("p", {}, why));
}

function history(merges) {
  if (!merges.length) return "";
  const line = (one) => {
    const merged = one.result === "success";
    const why = visible(one.conflictFiles.join(", ") || one.error);
    return el(
      "li",
      {},
      badge(merged ? "merged" : "fail"),
      merged ? ` onto ${visible(one.baseBranch)} as ` : ` ${visible(one.result)}: ${why}`,
      one.afterSha ? el("code", {}, one.afterSha.slice(0, 12)) : null,
      el("span", { class: "soft" }, ` ${ago(one.startedAt)}`),
    );
  };
  return el("ul", { class: "merges" }, merges.map(line));
}

async function merge(button, session, address, refresh) {
  const text = [
    "The changes become one commit on the base branch of your repository, if the check command still passes there.",
    "Nothing is pushed.",
  ];
  if (doubt(session)) text.unshift(`${doubt(session)}.`);
  const agreed = await confirmed({ title: `Merge onto ${visible(session.baseBranch)}?`, text, action: "Merge", danger: false });
  const done = agreed && (await attempt(button, () => api.post(`${address}/merge`)));
  if (!done) return;
  if (done.result === "success") toast("Merged.", "good");
  else toast(`Not merged: ${done.result}`, "bad", done.message);
  await refresh();
}

async function discard(button, address, refresh) {
  const text = "The branch and the worktree are deleted. The session stays in the store.";
  const agreed = await confirmed({ title: "Discard these changes?", text, action: "Discard" });
  const done = agreed && (await attempt(button, () => api.post(`${address}/discard`)));
  if (!done) return;
  toast("Discarded.", "good", done.message);
  await refresh();
}
