// Finished sessions whose changes wait for a review.

import { api, badge, byId, DataTable, el, format, go, query } from "./app.js";
import { visible } from "./texts.js";

const run = new URLSearchParams(location.search).get("run") || "";
const { money, number } = format;
const address = (row) => `/sessions/${encodeURIComponent(row.sessionId)}#changes`;
const checks = { pass: ["success", "passed"], fail: ["fail", "failed"] };

const table = new DataTable({
  label: "Sessions to review",
  rowKey: (row) => row.sessionId,
  open: (row) => go(address(row)),
  columns: [
    { key: "task", title: "Task", class: "wide", cell: (row) => el("a", { href: address(row) }, visible(row.task) || row.sessionId) },
    { key: "status", title: "Status", cell: (row) => badge(row.status, row.reason) },
    { key: "check", title: "Check", cell: (row) => (checks[row.check] ? el("span", { class: `status s-${checks[row.check][0]}` }, checks[row.check][1]) : "–") },
    { key: "files", title: "Files", numeric: true, cell: (row) => number(row.files) },
    { key: "lines", title: "Lines", numeric: true, cell: (row) => `+${number(row.linesAdded)} −${number(row.linesRemoved)}` },
    { key: "iteration", title: "Iteration", numeric: true, cell: (row) => number(row.iteration) },
    { key: "cost", title: "Cost", numeric: true, cell: (row) => money(row.costUsd) },
    { key: "agent", title: "Agent", cell: (row) => visible([row.agent, row.model].filter(Boolean).join(", ")) },
    { key: "run", title: "Run", cell: (row) => el("a", { href: `/runs/${encodeURIComponent(row.runId)}` }, visible(row.runId)) },
  ],
});

api.get(`/api/review${query({ run })}`).then(
  ({ sessions }) => {
    table.show(sessions);
    const empty = el("div", { class: "empty" }, el("b", {}, "No sessions to review."), el("p", {}, "Run a coding batch; its sessions with changes appear here."));
    byId("review").replaceChildren(sessions.length ? table.element : empty);
  },
  (error) => byId("review").replaceChildren(el("div", { class: "notice bad" }, el("p", {}, error.message))),
);
