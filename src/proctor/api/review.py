"""Review finished coding sessions: list those that wait, and send comments back to their agent.

Accepting a session is `branches.SessionBranch.merge`, discarding it `branches.clean_up`. Comments make the
next iteration: a session of its own, on top of the earlier one's branch, checked and priced as any other.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Literal

from proctor.api.branches import SessionBranch, find_branch
from proctor.context import RunContext, Settings
from proctor.errors import ProctorError, UsageError
from proctor.formatting import clipped
from proctor.git import Changes
from proctor.item import RUNNING
from proctor.job import ReadPlan
from proctor.jobs import job_of_items
from proctor.json_values import CamelJson
from proctor.store import transcripts
from proctor.store.reviews import continued_by, iterations_of, waiting_sessions
from proctor.store.runs import batches_by_id
from proctor.store.tables import SessionRow
from proctor.workspace.source_repository import SESSION_REFS, SourceRepository, open_source

MOST_WAITING = 200
"""Sessions in the list of those that wait for a review."""
SHOWN_OUTPUT = 4000
"""Characters of the output of a failed check in the prompt."""
LONGEST_QUOTE = 300
LONGEST_RUN_ID = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Comment(CamelJson):
    """A comment on a session's changes."""

    file: str
    text: str
    line: int = 0
    """Counted from 1; 0: the whole file."""
    side: Literal["new", "old"] = "new"
    """`old`: a line that the session removed."""

    @classmethod
    def parse(cls, text: str) -> "Comment":
        """Read `FILE:LINE:TEXT`, or `FILE:TEXT` about a whole file."""
        match = re.fullmatch(r"(?P<file>[^:]+):(?:(?P<line>\d+):)?(?P<text>.+)", text, re.DOTALL)
        if match is None:
            raise UsageError(f"`{text}` is not a comment\nExample: --comment 'src/shop.py:14:Use a decimal'")
        return cls(file=match["file"], line=int(match["line"] or 0), text=match["text"].strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """What a reviewer sends back to the agent of a session."""

    session: str
    """Its ID, an unambiguous prefix, its name, or its branch."""
    message: str = ""
    comments: Sequence[Comment] = ()
    budget_usd: float | None = None
    """Budget of the next iteration; None: the item's own, if it has one."""

    @classmethod
    def from_dict(cls, members: dict[str, Any]) -> "Feedback":
        """Read what `dataclasses.asdict` made of one."""
        return cls(**{**members, "comments": [Comment(**each) for each in members["comments"]]})


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingSession(CamelJson):
    """A finished session whose changes were neither merged nor discarded nor sent back."""

    session_id: str
    run_id: str
    item_id: str
    task: str
    """The first line of the task description."""
    agent: str
    model: str
    status: str
    reason: str
    check: str
    """`pass`, `fail`, or empty: there was no check."""
    repo: str
    branch: str
    base_branch: str
    files: int
    lines_added: int
    lines_removed: int
    iteration: int
    """1 for a session that continues none."""
    cost_usd: float | None
    """Of all its iterations; null: unknown."""
    finished_at: str | None


@dataclass(slots=True)
class _Repositories:
    """Repositories with their session branches, each read once."""

    settings: Settings
    known: dict[str, tuple[SourceRepository | None, frozenset[str]]] = field(default_factory=dict)

    def source_of(self, row: SessionRow) -> SourceRepository | None:
        """The repository of a session; None: it no longer has the branch."""
        repo = row["repo"]
        if repo not in self.known:
            try:
                source = open_source(Path(repo), self.settings.user_environment)
                listed = source.git("for-each-ref", "--format=%(refname:short)", SESSION_REFS.rstrip("/"))
                self.known[repo] = source, frozenset(listed.split())
            except (ProctorError, OSError):
                self.known[repo] = None, frozenset()
        source_or_none, branches = self.known[repo]
        return source_or_none if row["branch"] in branches else None


def waiting(ctx: RunContext, *, run: str = "", limit: int = MOST_WAITING) -> list[WaitingSession]:
    """The sessions of a run, or of all runs, that wait for a review, newest first. Blocks."""
    run_id = ctx.store.read.batch(run, ctx.now())["runId"] if run else ""
    repositories = _Repositories(ctx.settings)
    rows = waiting_sessions(ctx.store.read, run_id, limit=limit)
    return [_waiting(ctx, row, source) for row in rows if (source := repositories.source_of(row))]


def _waiting(ctx: RunContext, row: SessionRow, source: SourceRepository) -> WaitingSession:
    read = ctx.store.read
    (item,) = read.exact_item(row["runId"] or "", row["itemId"] or "")
    last = transcripts.steps(read, row["id"])[-1]
    chain = iterations_of(read, row)
    costs = [each["costUsd"] for each in chain]
    changes = Changes(
        files=last["changedFiles"], lines_added=last["linesAdded"], lines_removed=last["linesRemoved"]
    )
    if len(chain) > 1 and (start := source.git.commit_of(chain[0]["baseSha"])):
        # Those that a merge would bring, not only those of the last iteration.
        changes = source.git.changes(start, f"refs/heads/{row['branch']}")
    return WaitingSession(
        session_id=row["id"],
        run_id=row["runId"] or "",
        item_id=item["id"],
        task=next(iter(item["prompt"].strip().splitlines()), ""),
        agent=row["agent"],
        model=row["model"],
        status=row["status"],
        reason=row["endReason"],
        check=last["testResult"],
        repo=row["repo"],
        branch=row["branch"],
        base_branch=row["baseBranch"],
        files=changes.files,
        lines_added=changes.lines_added,
        lines_removed=changes.lines_removed,
        iteration=len(chain),
        cost_usd=None if None in costs else sum(cost for cost in costs if cost is not None),
        finished_at=row["finishedAt"],
    )


def read_feedback(
    ctx: RunContext, feedback: Feedback, *, run_id: str = "", settings: Settings | None = None
) -> ReadPlan:
    """The plan of the next iteration of a session; its run is called `run_id`. Starts nothing. Blocks.

    Raises for a session that is still running, was merged, discarded or continued, for comments on lines that
    its changes do not have, and without any comment.
    """
    # Loads the checks of plans; the list of what waits needs none of them.
    from proctor.jobs.coding.continuation import continuation

    match = find_branch(ctx, feedback.session, settings)
    tip = _tip(ctx, match)
    prompt = _prompt(ctx, match, feedback, tip)
    assert match.item is not None
    plan = continuation(
        match.row,
        match.item,
        ctx.store.read.batch(match.item["runId"], ctx.now()),
        prompt=prompt,
        tip=tip,
        budget_usd=feedback.budget_usd,
    )
    return ReadPlan(job=job_of_items(), plan=plan, run_id=run_id or _new_run_id(ctx, match.item["runId"]))


def _tip(ctx: RunContext, match: SessionBranch) -> str:
    """The last commit of a session that can be continued. Raises `UsageError` for another one."""
    session_id, row = match.session_id, match.row
    if row["status"] == RUNNING:
        raise UsageError(f"session {session_id} is still running\nWait until it has finished.")
    if match.item is None or match.item["runner"] != "worktree":
        raise UsageError(
            f"session {session_id} cannot be continued\nOnly sessions of `proctor batch` in a repository can."
        )
    if later := continued_by(ctx.store.read, session_id):
        raise UsageError(f"session {session_id} is already continued\nContinue the later session: {later}")
    merges = ctx.store.read.of_session("merge_history", session_id)
    if any(merge["result"] == "success" for merge in merges):
        raise UsageError(f"session {session_id} is already merged\nStart a new run for further changes.")
    if not (tip := match.source.git.commit_of(f"refs/heads/{match.branch}")):
        raise UsageError(f"the branch of session {session_id} no longer exists\nStart a new run.")
    return tip


def _new_run_id(ctx: RunContext, run_id: str) -> str:
    start = re.sub(r"-review-\d+$", "", run_id)[:LONGEST_RUN_ID]
    names = (f"{start}-review-{number}" for number in count(1))
    return next(name for name in names if not batches_by_id(ctx.store.read, [name], ctx.now()))


def _prompt(ctx: RunContext, match: SessionBranch, feedback: Feedback, tip: str) -> str:
    """The earlier prompt, how the session ended, and the comments with the lines that they are about."""
    message = feedback.message.strip()
    if not message and not feedback.comments:
        raise UsageError("no comments\nExample: proctor sessions continue SESSION --message 'Add a test'")
    assert match.item is not None
    parts = [
        match.item["prompt"].rstrip(),
        "---",
        "You have worked on this already. Your changes are committed in this folder, and were reviewed.",
        _outcome(ctx, match),
        message,
        *_quoted(match, feedback.comments, tip),
        "Make the changes that the review asks for, and keep the rest.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _outcome(ctx: RunContext, match: SessionBranch) -> str:
    assert match.item is not None
    check = json.loads(match.item["details"]).get("scriptCommand", "")
    steps = ctx.store.read.of_session("iterations", match.session_id)
    last = steps[-1] if steps else None
    if last and last["testResult"] == "pass":
        return f"The check command `{check}` passed."
    if last and last["testResult"] == "fail":
        output = clipped(last["testOutput"].strip(), SHOWN_OUTPUT)
        return f"The check command `{check}` failed (exit code {last['testExitCode']}):\n\n```\n{output}\n```"
    row = match.row
    return f"The attempt ended with `{row['endReason']}`: {row['error']}" if row["error"] else ""


def _quoted(match: SessionBranch, comments: Iterable[Comment], tip: str) -> Iterable[str]:
    files: dict[tuple[str, str], list[str]] = {}
    git = match.source.git
    start = git.line("merge-base", match.source.base_commit(match.base_branch), tip)
    for comment in comments:
        commit = tip if comment.side == "new" else start
        if (commit, comment.file) not in files:
            exit_code, text, _ = git.run("show", "--no-textconv", f"{commit}:{comment.file}")
            if exit_code:
                raise UsageError(
                    f"session {match.session_id} has no file {comment.file}\n"
                    f"Its files:  proctor sessions diff {match.session_id} --name-only"
                )
            files[commit, comment.file] = text.splitlines()
        yield _quote(comment, files[commit, comment.file])


def _quote(comment: Comment, lines: Sequence[str]) -> str:
    if not comment.line:
        return f"{comment.file}:\n{comment.text.strip()}"
    if comment.line > len(lines):
        raise UsageError(f"{comment.file} has {len(lines)} lines, not {comment.line}")
    line = clipped(lines[comment.line - 1], LONGEST_QUOTE)
    removed = " (removed)" if comment.side == "old" else ""
    return f"{comment.file}, line {comment.line}{removed}:\n> {line}\n{comment.text.strip()}"
