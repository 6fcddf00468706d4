"""What can be done with a session's branch after the session: look at it, squash, rebase, clear away.

Merging it goes through the same queue as the sessions of a running batch (`queueing.py`).

Only ever changes branches under `batch/`. Knows nothing of agents, items or the record.
"""

import asyncio
from pathlib import Path

from proctor.errors import WorkspaceError
from proctor.workspace.queueing import Check, Merged, Request, checker, merge, squashed
from proctor.workspace.scratch import Conflict, Scratch, fetch_objects, raise_conflict
from proctor.workspace.source import SESSION_REFS, Source
from proctor.workspace.tree import Tree, remove_folder, session_folder

__all__ = ["Check", "Merged", "Request", "checker", "clean_up", "diff", "log", "merge", "rebase", "squash"]


def squash(source: Source, branch: str, base_branch: str, message: str) -> str:
    """Make a published session one commit on the commit it began from; that commit. Blocks."""
    git, old = source.git, _session_tip(source, branch)
    start = git("merge-base", source.base_commit(base_branch), old).strip()
    new = squashed(git, old, start, message)
    git("update-ref", "-m", "proctor: squash", f"refs/heads/{branch}", new, old)
    return new


async def rebase(source: Source, branch: str, base_branch: str, home: Path) -> tuple[str, tuple[str, ...]]:
    """Move a published session's commits onto the base branch as it is now.

    Returns the new commit, or the files in conflict; then the session stays as it was.
    """
    old = _session_tip(source, branch)
    onto = source.base_commit(base_branch)
    async with Scratch(home, source, old) as tree:
        return await asyncio.to_thread(_rebase, tree, branch, old, onto)


def _rebase(tree: Tree, branch: str, old: str, onto: str) -> tuple[str, tuple[str, ...]]:
    exit_code, printed, said = tree.git.ask("rebase", "--no-autostash", onto)
    if exit_code != 0:
        try:
            raise_conflict(tree.git, ("rebase", onto), printed + said)
        except Conflict as conflict:
            return "", conflict.files
    new = tree.git.commit_of("HEAD")
    fetch_objects(tree, f"refs/heads/{tree.branch}")
    tree.source.git("update-ref", "-m", "proctor: rebase", f"refs/heads/{branch}", new, old)
    return new, ()


def diff(source: Source, branch: str, base_branch: str, *flags: str) -> str:
    """What a published session changed since it began, as a patch. Blocks."""
    base, tip = source.base_commit(base_branch), _session_tip(source, branch)
    return source.git("diff", "--no-ext-diff", "--no-textconv", "--no-color", *flags, f"{base}...{tip}", "--")


def log(source: Source, branch: str, base_branch: str) -> str:
    """The commits of a published session, the newest first. Blocks."""
    base, tip = source.base_commit(base_branch), _session_tip(source, branch)
    return source.git("log", "--no-color", "--stat", f"{base}..{tip}", "--")


def clean_up(home: Path, session: str, source: Source | None = None, branch: str = "") -> str:
    """Remove a session's tree and HOME, and its branch when named; what could not be removed. Blocks."""
    if branch and source is not None:
        tip = _session_tip(source, branch)
        source.git("update-ref", "-d", f"refs/heads/{branch}", tip)
    return remove_folder(session_folder(home, session))


def _session_tip(source: Source, branch: str) -> str:
    if not f"refs/heads/{branch}".startswith(SESSION_REFS):
        raise WorkspaceError(f"{branch} is not a session's branch: it is not under batch/")
    sha = source.git.commit_of(f"refs/heads/{branch}")
    if not sha:
        raise WorkspaceError(f"{source.root} has no branch {branch}")
    return sha
