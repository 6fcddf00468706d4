"""Bring a session's work onto its base branch, one at a time, as a merge queue does.

The session's commits become one commit on top of the base branch as it is now. If that has moved
since the session began, the check runs again on the result. Only then is the user's base branch
moved, forwards, never by force; nothing is ever pushed. Whatever stands in the way, the session's
branch stays as it is.

Knows nothing of agents or items.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from proctor.git import Git, GitError
from proctor.processes import Finished, run, undisturbed
from proctor.session import Merge
from proctor.workspace.locks import held
from proctor.workspace.scratch import Conflict, Scratch, fetch_objects, raise_conflict
from proctor.workspace.source import Source
from proctor.workspace.tree import Tree

# The user may commit to the base branch while we check; after so many times it is theirs to merge.
TRIES = 3

Check = Callable[[Path, Path], Awaitable[Finished]]
"""Runs the check in a tree (first), with a HOME (second)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """What came of bringing one session onto its base branch."""

    merges: tuple[Merge, ...]
    """Every try; the last one says how it ended."""
    recheck: Finished | None = None
    """The check on the moved base, when there was one."""

    @property
    def result(self) -> Merge:
        return self.merges[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One session to be merged."""

    source: Source
    branch: str
    """The session's, in the user's repository."""
    base_branch: str
    message: str
    home: Path
    """Proctor's own folder."""


class _CheckFailed(Exception):
    def __init__(self, finished: Finished) -> None:
        super().__init__(f"exited with {finished.exit_code}")
        self.finished = finished


async def merge(request: Request, check: Check | None) -> Merged:
    """Merge one session when it is its turn; wait for those before it."""
    tries: list[Merge] = []
    async with held(request.home / "repos" / f"{request.source.key}.merge.lock"):
        while True:
            tried, recheck, again = await _try(request, check)
            tries.append(tried)
            if not again or len(tries) == TRIES:
                return Merged(merges=tuple(tries), recheck=recheck)


async def _try(request: Request, check: Check | None) -> tuple[Merge, Finished | None, bool]:
    """One try: how it ended, the check that failed if one did, and whether to try again."""
    git, base = request.source.git, f"refs/heads/{request.base_branch}"
    before = await asyncio.to_thread(git.commit_of, base)
    if not before:
        problem = (
            f"{request.base_branch} is not a branch of {request.source.root}, so nothing can be merged to it"
        )
        return _merge(request, error=problem), None, False
    try:
        after = await _combine(request, before, check)
        await undisturbed(asyncio.to_thread(_advance, request, before, after))
    except Conflict as conflict:
        return _merge(request, before=before, conflicts=conflict.files), None, False
    except _CheckFailed as failed:
        problem = f"the check {failed} on top of the moved {request.base_branch}"
        return _merge(request, before=before, error=problem), failed.finished, False
    except GitError as error:
        moved = await asyncio.to_thread(git.commit_of, base) != before
        return _merge(request, before=before, error=str(error)), None, moved
    return _merge(request, before=before, after=after), None, False


def _merge(
    request: Request, *, before: str = "", after: str = "", conflicts: tuple[str, ...] = (), error: str = ""
) -> Merge:
    return Merge(
        base_branch=request.base_branch,
        result="conflict" if conflicts else "error" if error else "success",
        conflict_files=conflicts,
        message=request.message,
        before_sha=before,
        after_sha=after,
        error=error,
    )


async def _combine(request: Request, before: str, check: Check | None) -> str:
    """The one commit that is to be the base branch's next, in the user's repository, on no branch."""
    git = request.source.git
    tip = await asyncio.to_thread(git.commit_of, f"refs/heads/{request.branch}")
    if not tip:
        raise GitError(("merge",), 1, f"there is no branch {request.branch}")
    if await asyncio.to_thread(git.is_ancestor, before, tip):
        # The base has not moved: this is the very state that was checked.
        return await asyncio.to_thread(squashed, git, tip, before, request.message)
    async with Scratch(request.home, request.source, before) as tree:
        await asyncio.to_thread(_apply, tree, tip)
        if check is not None:
            finished = await check(tree.folder, tree.repository.with_name("home"))
            if finished.exit_code != 0 or finished.timed_out:
                raise _CheckFailed(finished)
        return await asyncio.to_thread(_bring, tree, before, request.message)


def squashed(git: Git, tip: str, parent: str, message: str) -> str:
    """One commit on `parent` with everything `tip` has; on no branch."""
    return git.commit_tree(git("rev-parse", f"{tip}^{{tree}}").strip(), [parent], message)


def _apply(tree: Tree, tip: str) -> None:
    """Put a session's changes on top of the scratch tree and stage them."""
    exit_code, printed, said = tree.git.ask("merge", "--squash", tip)
    if exit_code != 0:
        raise_conflict(tree.git, ("merge", "--squash", tip), printed + said)
    # The index is what counts: a check may leave files of its own in the tree.
    (tree.repository / "combined").write_text(tree.git("write-tree"))


def _bring(tree: Tree, parent: str, message: str) -> str:
    """Commit what was combined, and copy the commit's objects to the user's repository."""
    combined = (tree.repository / "combined").read_text().strip()
    sha = tree.git.commit_tree(combined, [parent], message)
    reference = f"refs/heads/{tree.branch}"
    tree.git("update-ref", reference, sha)
    fetch_objects(tree, reference)
    return sha


def _advance(request: Request, before: str, after: str) -> None:
    """Move the base branch forwards; where it is checked out, the checkout with it."""
    git, base = request.source.git, f"refs/heads/{request.base_branch}"
    # Noted before it happens, so that no session can see the move and not know that it is ours.
    with (request.home / "repos" / f"{request.source.key}.merged").open("a") as merged:
        merged.write(f"{after}\n")
    checkout = _checkout_of(git, base)
    if checkout is None:
        git("update-ref", "-m", "proctor: merge", base, after, before)
    else:
        # git refuses when that would overwrite what the user has not committed.
        git.at(checkout)("merge", "--ff-only", "--quiet", after)


def merged_by_us(home: Path, source: Source, sha: str) -> bool:
    """Whether a base branch is where it is because a session was merged to it."""
    try:
        return sha in (home / "repos" / f"{source.key}.merged").read_text().split()
    except OSError:
        return False


def _checkout_of(git: Git, reference: str) -> Path | None:
    """The work tree of the user's that has a branch checked out."""
    folder = None
    for line in git("worktree", "list", "--porcelain").splitlines():
        word, _, rest = line.partition(" ")
        if word == "worktree":
            folder = Path(rest)
        elif word == "branch" and rest == reference:
            return folder
    return None


def checker(command: str, environment: Mapping[str, str], attempt: str, time_limit: float | None) -> Check:
    """A check that runs `command` as a session's own check would, in another tree and HOME."""

    async def check(folder: Path, home: Path) -> Finished:
        here = {**environment, "HOME": str(home), "PWD": str(folder), "TMPDIR": str(home / "tmp")}
        return await run(command, folder=folder, environment=here, attempt=attempt, time_limit=time_limit)

    return check
