"""Delete imported sessions by id, log group or age, and runs with their sessions.

A session of a run is deleted only with its run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from proctor.batch.ingest import build_sessions
from proctor.errors import ProctorError, UsageError
from proctor.git import Git
from proctor.store import Scope, Store
from proctor.workspace.source_repository import SESSION_REFS
from proctor.workspace.worktree import remove_folder, session_folder

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


def forget_sessions(store: Store, session_ids: Sequence[str]) -> None:
    """Delete imported sessions with their documents. Scores of them in evaluation runs stay."""
    for start in range(0, len(session_ids), AT_ONCE):
        store.delete_imported(session_ids[start : start + AT_ONCE])


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
    """Delete a run that is not running."""
    removed, problems = 0, list[str]()
    for session in store.read.table("sessions", Scope(run_id=run_id)):
        if session["worktree"] and (problem := remove_folder(session_folder(home, session["id"]))):
            problems.append(problem)
        if branches and session["branch"] and session["repo"]:
            try:
                removed += _delete_branch(Path(session["repo"]), session["branch"], environment)
            except (ProctorError, OSError) as error:
                problems.append(f"the branch {session['branch']} in {session['repo']}: {error}")
    store.delete_batch(run_id)
    return Removal(branches=removed, problems=problems)


def _delete_branch(repo: Path, branch: str, environment: Mapping[str, str]) -> bool:
    """Remove a branch of a session; never another branch, and never one that is checked out."""
    reference = f"refs/heads/{branch}"
    git = Git(repo, environment)
    if not repo.is_dir() or not reference.startswith(SESSION_REFS) or not git.commit_of(reference):
        return False
    git("branch", "-D", "--", branch)
    return True
