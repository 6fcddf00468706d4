"""Merge queue: merge sessions to their base branch, one at a time. Also squash, rebase and diff them.

The session's commits become one commit on top of the current base branch. If the base has moved since the
session began, the check runs again on the result. Then the base branch is fast-forwarded, never forced;
nothing is pushed. If merging fails, the session's branch stays unchanged.
"""

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from proctor.errors import WorkspaceError
from proctor.git import Git, GitError
from proctor.processes import ProgramResult, run, undisturbed
from proctor.runner import MergeRequest, MergeResult
from proctor.sandbox import NOT_CONFINED, Sandbox
from proctor.session import Merge
from proctor.workspace import beneath
from proctor.workspace.folders import remove_folder, temporary_folder
from proctor.workspace.homes import home_variables
from proctor.workspace.locks import file_lock
from proctor.workspace.source_repository import SESSION_REFS, SourceRepository, open_source
from proctor.workspace.worktree import (
    WORK,
    Worktree,
    bring_commit,
    fill,
    make_home,
    make_tree,
    session_folder,
)


class MergeConflict(Exception):
    """Two commits change the same lines."""

    def __init__(self, files: tuple[str, ...]) -> None:
        super().__init__(", ".join(files))
        self.files = files


@asynccontextmanager
async def scratch_clone(home: Path, source: SourceRepository, sha: str) -> AsyncIterator[Worktree]:
    """A temporary worktree for combining commits."""
    async with temporary_folder(home, f"merging-{uuid.uuid4().hex[:12]}") as path:
        yield await undisturbed(asyncio.to_thread(_make_clone, path, source, sha))


def _make_clone(path: Path, source: SourceRepository, sha: str) -> Worktree:
    tree = make_tree(path / WORK, source, "batch/scratch", sha, {})
    make_home(tree.place / "home")
    fill(tree)
    return tree


def raise_conflict(git: Git, command: tuple[str, ...], output: str) -> NoReturn:
    """Raise a conflict with its files, or the git error if there is none."""
    unmerged = git("diff", "--name-only", "--diff-filter=U", "-z").split("\0")
    if files := tuple(name for name in unmerged if name):
        raise MergeConflict(files)
    raise GitError(command, 1, output)


def fetch_objects(tree: Worktree, reference: str) -> None:
    """Copy a commit to the user's repository without giving it a name there."""
    quietly = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance")
    tree.source.git("fetch", *quietly, "--no-recurse-submodules", str(tree.control), reference)


# The user may commit to the base branch during the check; after this many tries, merging fails.
TRIES = 3


@dataclass(frozen=True, slots=True)
class _Merging:
    """A request while it is carried out."""

    request: MergeRequest
    source: SourceRepository
    home: Path
    """Proctor's own folder."""
    sandbox: Sandbox


class _CheckFailed(Exception):
    def __init__(self, finished: ProgramResult) -> None:
        super().__init__(f"exited with {finished.exit_code}")
        self.finished = finished


async def merge(
    request: MergeRequest, *, home: Path, environment: Mapping[str, str], sandbox: Sandbox = NOT_CONFINED
) -> MergeResult:
    """Merge one session, after earlier requests. `home` is Proctor's own folder; git gets `environment`."""
    source = await asyncio.to_thread(open_source, request.repo, environment)
    merging = _Merging(request, source, home, sandbox)
    tries: list[Merge] = []
    async with file_lock(home / "repos" / f"{source.key}.merge.lock"):
        while True:
            tried, recheck, again = await _try(merging)
            tries.append(tried)
            if not again or len(tries) == TRIES:
                notes: tuple[str, ...] = ()
                if tried.result == "success" and tried.after_sha == tried.before_sha:
                    notes = (f"no commit was made: {request.base_branch} has all of these changes",)
                elif tried.result == "success":
                    notes = await asyncio.to_thread(_deviations, source)
                return MergeResult(merges=tuple(tries), recheck=recheck, notes=notes)


# Those that `git merge` and `git commit` would run.
_HOOKS = ("pre-merge-commit", "pre-commit", "prepare-commit-msg", "commit-msg", "post-commit", "post-merge")


def hooks_of(source: SourceRepository) -> list[str]:
    """Hooks of a repository that merging by hand would run."""
    named = source.git.users_setting("core.hooksPath", "path")
    folder = source.root / named if named else source.common / "hooks"
    return [name for name in _HOOKS if os.access(folder / name, os.X_OK)]


def _deviations(source: SourceRepository) -> tuple[str, ...]:
    """How a merge differs from one by hand."""
    notes = []
    if hooks := hooks_of(source):
        notes.append(f"hooks of the repository were not run for the merge: {', '.join(hooks)}")
    if not source.git.user_identity():
        notes.append("git has no user.name and user.email here: the merge was committed by Proctor")
    return tuple(notes)


async def _try(merging: _Merging) -> tuple[Merge, ProgramResult | None, bool]:
    """One try: its result, the failed check if any, and whether to retry."""
    request, git = merging.request, merging.source.git
    base = f"refs/heads/{request.base_branch}"
    before = await asyncio.to_thread(git.commit_of, base)
    if not before:
        problem = (
            f"{request.base_branch} is not a branch of {merging.source.root}, so nothing can be merged to it"
        )
        return _merge(request, error=problem), None, False
    try:
        after = await _combine(merging, before)
        if after != before:
            await undisturbed(asyncio.to_thread(_advance, merging, before, after))
    except MergeConflict as conflict:
        return _merge(request, before=before, conflicts=conflict.files), None, False
    except _CheckFailed as failed:
        problem = f"the check {failed} on top of the moved {request.base_branch}"
        return _merge(request, before=before, error=problem), failed.finished, False
    except GitError as error:
        moved = await asyncio.to_thread(git.commit_of, base) != before
        return _merge(request, before=before, error=str(error)), None, moved
    return _merge(request, before=before, after=after), None, False


def _merge(
    request: MergeRequest,
    *,
    before: str = "",
    after: str = "",
    conflicts: tuple[str, ...] = (),
    error: str = "",
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


async def _combine(merging: _Merging, before: str) -> str:
    """Create the next commit of the base branch in the user's repository; on no branch yet.

    `before` where it has all changes already.
    """
    request, git = merging.request, merging.source.git
    tip = await asyncio.to_thread(git.commit_of, f"refs/heads/{request.branch}")
    if not tip:
        raise GitError(("merge",), 1, f"there is no branch {request.branch}")
    if await asyncio.to_thread(git.is_ancestor, before, tip):
        # The base has not moved: this state was checked already.
        return await asyncio.to_thread(_next_commit, git, tip, before, request.message)
    async with scratch_clone(merging.home, merging.source, before) as tree:
        combined = await asyncio.to_thread(_apply, tree, tip)
        if combined == await asyncio.to_thread(git.line, "rev-parse", f"{before}^{{tree}}"):
            return before
        if request.check:
            await _check(merging, tree)
        copied = await asyncio.to_thread(_copy_combined, tree, combined, before, request.message)
    # In the user's repository, whose settings say who commits and whether that is signed.
    return await asyncio.to_thread(squash_commit, git, copied, before, request.message)


def _next_commit(git: Git, tip: str, before: str, message: str) -> str:
    if git.line("rev-parse", f"{tip}^{{tree}}") == git.line("rev-parse", f"{before}^{{tree}}"):
        return before
    return squash_commit(git, tip, before, message)


def squash_commit(git: Git, tip: str, parent: str, message: str) -> str:
    """One commit on `parent` with everything `tip` has; on no branch."""
    return git.commit_tree(git("rev-parse", f"{tip}^{{tree}}").strip(), [parent], message, as_user=True)


def _apply(tree: Worktree, tip: str) -> str:
    """Apply a session's changes to the scratch worktree and stage them; the resulting tree object."""
    bring_commit(tree, tip)
    exit_code, stdout, stderr = tree.git.run("merge", "--squash", tip)
    if exit_code != 0:
        raise_conflict(tree.git, ("merge", "--squash", tip), stdout + stderr)
    # Written now: a check may leave files in the worktree.
    return tree.git("write-tree").strip()


def _copy_combined(tree: Worktree, combined: str, parent: str, message: str) -> str:
    """Copy the combined state to the user's repository, as a commit that no reference names."""
    sha = tree.git.commit_tree(combined, [parent], message)
    reference = f"refs/heads/{tree.branch}"
    tree.git("update-ref", reference, sha)
    fetch_objects(tree, reference)
    return sha


def _advance(merging: _Merging, before: str, after: str) -> None:
    """Fast-forward the base branch, and its checkout if it has one."""
    git, base = merging.source.git, f"refs/heads/{merging.request.base_branch}"
    # Recorded first, so that no session mistakes the move for a change by the user.
    with (merging.home / "repos" / f"{merging.source.key}.merged").open("a") as merged:
        merged.write(f"{after}\n")
    checkout = _checkout_of(git, base)
    if checkout is None:
        _run_again_if_killed(git, merging.source, ("update-ref", "-m", "proctor: merge", base, after, before))
        return
    git = git.at(checkout)
    git.run("update-index", "-q", "--refresh")
    is_clean = git.run("read-tree", "-m", "-u", "--dry-run", before, after)[0] == 0

    def undo() -> None:
        if is_clean and git.commit_of("HEAD") == before:
            _restore_files(git, before, after)

    # git refuses if that would overwrite uncommitted changes.
    _run_again_if_killed(git, merging.source, ("merge", "--ff-only", "--quiet", after), undo)


def _run_again_if_killed(
    git: Git, source: SourceRepository, command: tuple[str, ...], undo: Callable[[], None] = lambda: None
) -> None:
    """Run git in the user's repository. If it is killed, remove the locks that it left, and run it again.

    They would stop every later merge, and the user.
    """
    locks = _locks(source)
    exit_code, stdout, stderr = git.run(*command)
    if exit_code < 0:
        for lock in _locks(source) - locks:
            lock.unlink(missing_ok=True)
        undo()
        git(*command)
    elif exit_code:
        raise GitError(command, exit_code, stderr or stdout)


def _locks(source: SourceRepository) -> set[Path]:
    """The files with which git locks the indexes and references of a repository and its worktrees."""
    # Not `rglob`, which fails if git removes an empty folder of references meanwhile.
    walks = [os.walk(source.common / name) for name in ("refs", "worktrees")]
    inner = (Path(folder, name) for walk in walks for folder, _, names in walk for name in names)
    return {lock for lock in (*source.common.iterdir(), *inner) if lock.suffix == ".lock"}


def _restore_files(git: Git, before: str, after: str) -> None:
    """Bring the files that differ between two commits, and their index entries, back to the first.

    After a checkout that was cut short: they had no changes of the user's when it began.
    """
    listed = git("diff", "--name-only", "--no-renames", "--no-ext-diff", "-z", before, after).split("\0")[:-1]
    known = set(git("ls-tree", "-r", "--name-only", "--full-tree", "-z", before).split("\0"))
    added = [name for name in listed if name not in known]
    for name in added:
        beneath.remove(git.folder, name)
    git("update-index", "--force-remove", "-z", "--stdin", stdin="".join(f"{name}\0" for name in added))
    if changed := "".join(f"{name}\0" for name in listed if name in known):
        sources = (f"--source={before}", "--staged", "--worktree")
        paths = ("--pathspec-from-file=-", "--pathspec-file-nul")
        git("restore", *sources, *paths, stdin=changed, GIT_LITERAL_PATHSPECS="1")


def was_merged(home: Path, source: SourceRepository, sha: str) -> bool:
    """Whether this commit of a base branch is a merge of a session."""
    try:
        return sha in (home / "repos" / f"{source.key}.merged").read_text().split()
    except OSError:
        return False


def _checkout_of(git: Git, reference: str) -> Path | None:
    """The user's worktree in which a branch is checked out; None: none."""
    folder = None
    for line in git("worktree", "list", "--porcelain").splitlines():
        word, _, rest = line.partition(" ")
        if word == "worktree":
            folder = Path(rest)
        elif word == "branch" and rest == reference:
            return folder
    return None


async def _check(merging: _Merging, tree: Worktree) -> None:
    """Run the check like the session's own, in another worktree and HOME. Raises `_CheckFailed`."""
    request = merging.request
    folder, home = tree.folder, tree.place / "home"
    places = {**home_variables(home), "PWD": str(folder)}
    finished = await run(
        request.check,
        folder=folder,
        environment={**request.environment, **places},
        attempt=request.attempt,
        time_limit=request.time_limit,
        confinement=merging.sandbox.confine(
            "check",
            request.sandbox,
            folders=[tree.place],
            home=home,
            read=[*tree.base.folders, *request.read],
            named=[request.check],
        ),
    )
    if finished.exit_code != 0 or finished.timed_out:
        raise _CheckFailed(finished)


def squash(source: SourceRepository, branch: str, base_branch: str, message: str) -> str:
    """Squash a session into one commit on its starting commit; returns it. Blocks."""
    git, old = source.git, _session_tip(source, branch)
    start = git("merge-base", source.base_commit(base_branch), old).strip()
    new = squash_commit(git, old, start, message)
    git("update-ref", "-m", "proctor: squash", f"refs/heads/{branch}", new, old)
    return new


async def rebase(
    source: SourceRepository, branch: str, base_branch: str, home: Path
) -> tuple[str, tuple[str, ...]]:
    """Rebase the commits of a session onto the current base branch.

    Returns the new commit, or the files in conflict; then the session is unchanged.
    """
    old = _session_tip(source, branch)
    onto = source.base_commit(base_branch)
    async with scratch_clone(home, source, old) as tree:
        return await asyncio.to_thread(_rebase, tree, branch, old, onto)


def _rebase(tree: Worktree, branch: str, old: str, onto: str) -> tuple[str, tuple[str, ...]]:
    bring_commit(tree, onto)
    exit_code, stdout, stderr = tree.git.run("rebase", "--no-autostash", onto)
    if exit_code != 0:
        try:
            raise_conflict(tree.git, ("rebase", onto), stdout + stderr)
        except MergeConflict as conflict:
            return "", conflict.files
    new = tree.git.commit_of("HEAD")
    fetch_objects(tree, f"refs/heads/{tree.branch}")
    tree.source.git("update-ref", "-m", "proctor: rebase", f"refs/heads/{branch}", new, old)
    return new, ()


def diff(source: SourceRepository, branch: str, base_branch: str, *flags: str) -> str:
    """The changes of a session as a patch. Blocks."""
    base, tip = source.base_commit(base_branch), _session_tip(source, branch)
    return source.git("diff", "--no-ext-diff", "--no-textconv", "--no-color", *flags, f"{base}...{tip}", "--")


def log(source: SourceRepository, branch: str, base_branch: str) -> str:
    """The commits of a session, newest first. Blocks."""
    base, tip = source.base_commit(base_branch), _session_tip(source, branch)
    return source.git("log", "--no-color", "--stat", f"{base}..{tip}", "--")


def clean_up(home: Path, session: str, source: SourceRepository | None = None, branch: str = "") -> str:
    """Remove a session's worktree, HOME and, if named, branch; returns what could not be removed. Blocks."""
    if branch and source is not None:
        tip = _session_tip(source, branch)
        source.git("update-ref", "-d", f"refs/heads/{branch}", tip)
    return remove_folder(session_folder(home, session))


def _session_tip(source: SourceRepository, branch: str) -> str:
    if not f"refs/heads/{branch}".startswith(SESSION_REFS):
        raise WorkspaceError(f"{branch} is not a session branch: it is not under batch/")
    sha = source.git.commit_of(f"refs/heads/{branch}")
    if not sha:
        raise WorkspaceError(f"{source.root} has no branch {branch}")
    return sha
