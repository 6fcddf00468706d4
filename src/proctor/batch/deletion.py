"""Take away sessions that came from elsewhere: by name, by log group, or because they are old.

What was carried out here belongs to a run and goes with it.
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
"""Sessions that go in one transaction: others who want to write wait for so long."""


def imported_sessions(
    store: Store,
    now: datetime,
    *,
    session_ids: Sequence[str] = (),
    log_group: str = "",
    before: datetime | None = None,
) -> list[str]:
    """The imported sessions that are meant, in the store's words; all of what is given must hold.

    `session_ids` may be the names their sources have for them; `before`: nothing happened since.
    """
    # What has arrived and is not told yet would come back as a session after all was deleted.
    build_sessions(store, now)
    ids = store.read.imported_session_ids(log_group=log_group, before=before)
    if not session_ids:
        return ids
    named = {_named(store, session_id) for session_id in session_ids}
    return [session_id for session_id in ids if session_id in named]


def forget_sessions(store: Store, session_ids: Sequence[str]) -> None:
    """Delete imported sessions with all that was kept of them. What was judged about them stays."""
    for start in range(0, len(session_ids), AT_ONCE):
        store.forget_imported(session_ids[start : start + AT_ONCE])


def _named(store: Store, session_id: str) -> str:
    row = store.read.session(session_id)
    if row["runId"]:
        raise UsageError(
            f"session {row['id']} belongs to the run {row['runId']}\n"
            f"It goes with its run:  proctor delete {row['runId']}"
        )
    return str(row["id"])


# Deletion of runs: rows, worktrees and session branches.


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """What was deleted, and what could not be."""

    branches: int
    """Session branches that were removed from the user's repositories."""
    kept: list[str]
    """What could not be removed, and why."""


def delete_run(
    store: Store, run_id: str, home: Path, environment: Mapping[str, str], *, branches: bool
) -> Removal:
    """Delete a run that is not running."""
    removed, kept = 0, list[str]()
    for session in store.read.table("sessions", Scope(run_id=run_id)):
        if session["worktree"] and (problem := remove_folder(session_folder(home, session["id"]))):
            kept.append(problem)
        if branches and session["branch"] and session["repo"]:
            try:
                removed += _delete_branch(Path(session["repo"]), session["branch"], environment)
            except (ProctorError, OSError) as error:
                kept.append(f"the branch {session['branch']} in {session['repo']}: {error}")
    store.delete_batch(run_id)
    return Removal(branches=removed, kept=kept)


def _delete_branch(repo: Path, branch: str, environment: Mapping[str, str]) -> bool:
    """Remove a session's branch; only ever one of ours, and never one that is checked out."""
    reference = f"refs/heads/{branch}"
    git = Git(repo, environment)
    if not repo.is_dir() or not reference.startswith(SESSION_REFS) or not git.commit_of(reference):
        return False
    git("branch", "-D", "--", branch)
    return True
