// The changes of a session, and actions on its branch: merge, discard, send back with comments, download.

import { api } from "./api.js";
import { attempt, confirmed, toast } from "./dialogs.js";
import { diffView } from "./diff.js";
import { el, go } from "./dom.js";
import { ago, number, plural } from "./format.js";
import { ReviewComments } from "./review-comments.js";
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
  const button = el("button", { type: "button", class: "compact", dataset: { needs: "run" } });
  const comments = canContinue(response, session()) ? new ReviewComments(session().id, () => (button.textContent = backWords(comments))) : null;
  if (comments) {
    button.textContent = backWords(comments);
    button.addEventListener("click", () => sendBack(button, comments, address));
  }
  panel.replaceChildren(
    head(response, session(), address, refresh, comments ? button : null),
    history(session().merges),
    comments && response.diff ? el("p", { class: "soft small" }, "Click the number of a line to comment on it.") : "",
    body(response, comments),
    response.isCut ? el("p", { class: "soft" }, "The patch is truncated. Download it to see all changes.") : "",
  );
}

/** Only sessions of coding batches are continued, once. */
const canContinue = (response, session) => response.state === "published" && session.status !== "running" && session.job === "coding" && !session.continuedBy && Boolean(session.item);

const backWords = ({ list }) => (list.length ? `Send back (${plural(list.length, "comment")})` : "Send back");

function head(response, session, address, refresh, back) {
  const [kind, words] = STATES[response.state] || ["queued", response.state];
  const actions = el("div", { class: "actions" });
  if (response.diff) actions.append(el("a", { class: "button compact", href: `${address}/diff?format=patch`, download: "" }, "Download patch"));
  if (response.state === "published" && session.status !== "running")
    actions.append(
      el("button", { type: "button", class: "compact", dataset: { needs: "run" }, onclick: (event) => discard(event.currentTarget, address, refresh) }, "Discard"),
      back ?? "",
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

function body(response, comments) {
  if (response.problem) return el("div", { class: "notice bad" }, el("p", {}, visible(response.problem)));
  if (response.diff) return diffView(response.diff, comments);
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

async function sendBack(button, comments, address) {
  const message = el("textarea", { rows: 4, maxlength: 20_000, "aria-label": "Comment on the whole", placeholder: "What should the agent change?", required: !comments.list.length });
  const text = [
    comments.list.length ? `The agent gets ${plural(comments.list.length, "comment")} on lines, and this one on the whole:` : "The agent gets this comment:",
    "It continues on top of its branch, in a new run that is checked and priced as any other.",
  ];
  const agreed = await confirmed({ title: "Send back to the agent?", text, action: "Send back", danger: false, fields: [message] });
  const done = agreed && (await attempt(button, () => api.post(`${address}/continue`, { message: message.value, comments: comments.list })));
  if (!done) return;
  comments.clear();
  go(`/runs/${encodeURIComponent(done.runId)}`);
}
