"""Delete imported sessions by id, log group or age, runs with their sessions, and old runs or their texts.

A session of a run is deleted only with its run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TypedDict

from proctor.batch.ingest import build_sessions
from proctor.context import RunContext
from proctor.errors import ProctorError, UsageError
from proctor.git import Git
from proctor.item import RUNNING
from proctor.json_values import JsonObject
from proctor.store import Scope, Store
from proctor.workspace.base_objects import remove_unused_bases
from proctor.workspace.folders import remove_abandoned, remove_folder
from proctor.workspace.source_repository import SESSION_REFS
from proctor.workspace.worktree import session_folder

AT_ONCE = 200
"""Sessions per transaction: other writers wait that long."""


def imported_sessions(
    store: Store,
    now: datetime,
    *,
    session_ids: Sequence[str] = (),
    log_group: str = "",
    before: datetime | None = None,
) -> list[str]:
    """Ids in the store of the imported sessions that match all conditions.

    `session_ids` may be external ids; `before`: without activity since then.
    """
    # Spans that are not built into sessions yet would reappear as a session after the deletion.
    build_sessions(store, now)
    ids = store.read.imported_session_ids(log_group=log_group, before=before)
    if not session_ids:
        return ids
    named = {_named(store, session_id) for session_id in session_ids}
    return [session_id for session_id in ids if session_id in named]


def delete_sessions(store: Store, session_ids: Sequence[str]) -> None:
    """Delete imported sessions with their documents. Scores of them in evaluation runs stay."""
    for start in range(0, len(session_ids), AT_ONCE):
        store.delete_imported(session_ids[start : start + AT_ONCE])
    store.search_index.compact()


def _named(store: Store, session_id: str) -> str:
    row = store.read.session(session_id)
    if row["runId"]:
        raise UsageError(
            f"session {row['id']} belongs to the run {row['runId']}\n"
            f"It goes with its run:  proctor delete {row['runId']}"
        )
    return str(row["id"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """What was deleted, and what could not be."""

    branches: int
    """Session branches that were removed from the user's repositories."""
    problems: list[str]
    """What could not be removed, and why."""


def delete_run(
    store: Store, run_id: str, home: Path, environment: Mapping[str, str], *, branches: bool
) -> Removal:
    """Delete a run that is not running, and its words from the search index."""
    remove_abandoned(home)
    removal = _delete_run(store, run_id, home, environment, branches=branches)
    store.search_index.compact()
    return removal


def _delete_run(
    store: Store, run_id: str, home: Path, environment: Mapping[str, str], *, branches: bool
) -> Removal:
    removed, problems = 0, _remove_worktrees(store, run_id, home)
    for session in store.read.table("sessions", Scope(run_id=run_id)):
        if branches and session["branch"] and session["repo"]:
            try:
                removed += _delete_branch(Path(session["repo"]), session["branch"], environment)
            except (ProctorError, OSError) as error:
                problems.append(f"the branch {session['branch']} in {session['repo']}: {error}")
    store.delete_batch(run_id)
    return Removal(branches=removed, problems=problems)


class PrunedRun(TypedDict):
    """A run that is pruned."""

    runId: str
    createdAt: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedRuns:
    """Old runs that were deleted, or would be."""

    runs: list[PrunedRun]
    keep_scores: bool
    dry_run: bool
    file_bytes: int | None = None
    """By how much the store's file became smaller; None: it did not, or there is none."""
    problems: list[str] = field(default_factory=list)

    def document(self) -> JsonObject:
        """The JSON document of `proctor prune`."""
        return {
            "runs": self.runs,
            "bytes": sum(run["bytes"] for run in self.runs),
            "keepScores": self.keep_scores,
            "dryRun": self.dry_run,
            "freedBytes": self.file_bytes,
            "problems": self.problems,
        }


def prune_runs(ctx: RunContext, before: datetime, *, keep_scores: bool, dry_run: bool) -> PrunedRuns:
    """Delete runs that ended before a time, or only their texts, with their worktrees; branches stay."""
    store, problems = ctx.store, list[str]()
    batches = [store.read.batch(run_id, ctx.now()) for run_id in store.runs_ended_before(before)]
    batches = [batch for batch in batches if batch["status"] != RUNNING]
    sizes = store.run_sizes([batch["runId"] for batch in batches])
    runs: list[PrunedRun] = [
        {"runId": batch["runId"], "createdAt": batch["createdAt"], "bytes": sizes[batch["runId"]]}
        for batch in batches
    ]
    freed = None
    if not dry_run:
        problems += remove_abandoned(ctx.home)
    if runs and not dry_run:
        size = store.file_bytes()
        for run in runs:
            if keep_scores:
                problems += _remove_worktrees(store, run["runId"], ctx.home)
                store.delete_texts(run["runId"])
            else:
                environment = ctx.settings.user_environment
                problems += _delete_run(store, run["runId"], ctx.home, environment, branches=False).problems
        store.search_index.compact()
        if any(batch["status"] == RUNNING for batch in store.read.batches(ctx.now())):
            problems.append("a run is active: the space is used again, but the file is not made smaller")
        else:
            store.purge()
            after = store.file_bytes()
            freed = size - after if size is not None and after is not None else None
    return PrunedRuns(
        runs=runs, keep_scores=keep_scores, dry_run=dry_run, file_bytes=freed, problems=problems
    )


def _remove_worktrees(store: Store, run_id: str, home: Path) -> list[str]:
    """Remove the worktrees of a run; what could not be removed."""
    try:
        present = {folder.name for folder in (home / "worktrees").iterdir()}
    except FileNotFoundError:
        return []
    # A process that was killed may not have recorded the worktree with its session.
    folders = (session_folder(home, row["id"]) for row in store.read.table("sessions", Scope(run_id=run_id)))
    problems = [remove_folder(folder) for folder in folders if folder.name in present]
    remove_unused_bases(home)
    return [problem for problem in problems if problem]


def _delete_branch(repo: Path, branch: str, environment: Mapping[str, str]) -> bool:
    """Remove a branch of a session; never another branch, and never one that is checked out."""
    reference = f"refs/heads/{branch}"
    git = Git(repo, environment)
    if not repo.is_dir() or not reference.startswith(SESSION_REFS) or not git.commit_of(reference):
        return False
    git("branch", "-D", "--", branch)
    return True
