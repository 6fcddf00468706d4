// What a session changed, and what becomes of its branch: merged, discarded, or left as it is.

import { api } from "./api.js";
import { attempt, confirmed, toast } from "./dialogs.js";
import { diffView } from "./diff.js";
import { el } from "./dom.js";
import { ago, number } from "./format.js";
import { badge } from "./status.js";
import { visible } from "./texts.js";

const STATES = {
  published: ["queued", "on its branch"],
  merged: ["merged", "merged"],
  gone: ["aborted", "discarded"],
  unavailable: ["error", "cannot be looked at"],
};

/** Fill the panel. `session()` is what is known of the session, `changed()` is called when that may differ now. */
export async function showBranch({ panel, tab, address, session, changed }) {
  const again = async () => {
    await changed();
    await showBranch({ panel, tab, address, session, changed });
  };
  const found = await api.get(`${address}/diff`);
  tab.querySelector(".count").textContent = found.files ? number(found.files) : "";
  panel.replaceChildren(
    head(found, session(), address, again),
    history(session().merges),
    body(found),
    found.isCut ? el("p", { class: "soft" }, "This is the beginning of a very long patch; download it to see all of it.") : "",
  );
}

function head(found, session, address, again) {
  const [kind, words] = STATES[found.state] || ["queued", found.state];
  const actions = el("div", { class: "actions" });
  if (found.diff) actions.append(el("a", { class: "button compact", href: `${address}/diff?format=patch`, download: "" }, "Download patch"));
  if (found.state === "published" && session.status !== "running")
    actions.append(
      el("button", { type: "button", class: "compact", onclick: (event) => discard(event.currentTarget, address, again) }, "Discard"),
      el("button", { type: "button", class: "compact primary", onclick: (event) => merge(event.currentTarget, session, address, again) }, "Merge"),
    );
  const where = el(
    "div",
    {},
    el("span", { class: `status s-${kind}` }, words),
    " ",
    el("code", {}, visible(found.branch)),
    found.baseBranch ? el("span", { class: "soft" }, ` from ${visible(found.baseBranch)}`) : null,
  );
  return el("div", { class: "branch-head" }, where, actions);
}

function body(found) {
  if (found.problem) return el("div", { class: "notice bad" }, el("p", {}, visible(found.problem)));
  if (found.diff) return diffView(found.diff);
  const why = found.state === "gone" ? "Git no longer knows what this branch held." : "The agent left its work tree as it was.";
  return el("div", { class: "empty" }, el("b", {}, "Nothing was changed."), el("p", {}, why));
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

async function merge(button, session, address, again) {
  const text = [
    "The work becomes one commit on the base branch of your repository, if its check still passes there.",
    "Nothing is pushed.",
  ];
  const agreed = await confirmed({ title: `Merge onto ${visible(session.baseBranch)}?`, text, action: "Merge", danger: false });
  const done = agreed && (await attempt(button, () => api.post(`${address}/merge`)));
  if (!done) return;
  if (done.result === "success") toast("Merged.", "good");
  else toast(`Not merged: ${done.result}`, "bad", done.message);
  await again();
}

async function discard(button, address, again) {
  const text = "Its branch and its work tree are removed from this machine. The record of the session stays.";
  const agreed = await confirmed({ title: "Discard this work?", text, action: "Discard" });
  const done = agreed && (await attempt(button, () => api.post(`${address}/discard`)));
  if (!done) return;
  toast("Discarded.", "good", done.message);
  await again();
}
