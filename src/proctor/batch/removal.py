"""Take a batch away: its rows, its work trees and its branches, and nothing else.

Knows nothing of who asked whether the user is sure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from proctor.errors import ProctorError
from proctor.git import Git
from proctor.store import Scope, Store
from proctor.workspace.source import SESSION_REFS
from proctor.workspace.tree import remove_folder, session_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """What went and what stayed."""

    branches: int
    """Session branches that were removed from the user's repositories."""
    kept: list[str]
    """What could not be removed, and why."""


def delete_run(
    store: Store, run_id: str, home: Path, environment: Mapping[str, str], *, branches: bool
) -> Removal:
    """Delete a batch that nobody carries out any more."""
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
