"""Commit the changes of an agent to the session's branch.

An agent may commit or not, change branches, stop in the middle of a rebase, leave repositories in the
worktree, or remove the worktree's `.git` link. In every case, all files that are not ignored are committed,
the agent's own commits stay, and the session's branch points to the result.
"""

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from proctor.errors import WorkspaceError
from proctor.git import Changes, GitError
from proctor.workspace.source_repository import SourceRepository
from proctor.workspace.worktree import (
    Worktree,
    add_tree,
    alternates_text,
    make_repository,
    publish,
    reopen_tree,
)

_IN_PROGRESS = ("*_HEAD", "MERGE_*", "SQUASH_MSG", "AUTO_MERGE", "BISECT_*")
_IN_PROGRESS_FOLDERS = ("rebase-merge", "rebase-apply", "sequencer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The committed changes of an agent."""

    sha: str
    """Last commit of the session branch; empty when nothing changed."""
    changes: Changes
    notes: tuple[str, ...] = ()
    """Remarks on the state of the worktree, for the session's record."""


def commit_changes(tree: Worktree, message: str) -> Committed:
    """Commit all changes; the worktree is then clean and on the session's branch."""
    notes = _repair(tree)
    try:
        sha, more = _commit(tree, message)
        changes = tree.git.changes(tree.base_sha, sha)
    except (GitError, OSError) as error:
        raise WorkspaceError(f"committing the agent's changes: {error}", reason="workspace_broken") from error
    return Committed(
        sha="" if sha == tree.base_sha else sha,
        changes=changes,
        notes=(*notes, *more, *_other_branches(tree)),
    )


def rescue(place: Path, source: SourceRepository, branch: str, base_sha: str) -> None:
    """Save the work of an attempt whose process was killed: commit it, and copy its branch."""
    tree = reopen_tree(place, source, branch, base_sha)
    restore_settings(tree)
    # git writes the index once all files are there: without one, the files are not the agent's work.
    if (tree.admin / "index").is_file():
        commit_changes(tree, f"Interrupted attempt\n\n{branch}\n")
    publish(tree)


def _repair(tree: Worktree) -> list[str]:
    """Restore what the agent may have removed, broken or turned against us."""
    notes = restore_settings(tree)
    if not tree.folder.is_dir():
        tree.folder.mkdir(parents=True)
        notes.append("the agent removed its work tree")
    if not _is_intact(tree):
        _rebuild(tree)
        notes.append("the agent broke its repository; its own commits are lost, its files are not")
    notes += _restore_link(tree)
    _remove_locks(tree)
    return notes


def restore_settings(tree: Worktree) -> list[str]:
    """Restore what decides where git reads and writes and which programs it runs, before it is called.

    We are not confined as the agent is: a link would lead us out, a setting would start a program for it.
    """
    # First those beside the repository: it may itself be a link to a folder of someone else.
    removed = [path for path in tree.repository.parent.iterdir() if path.is_symlink()]
    _unlink(removed)
    inside = [*_special_files(tree.repository, with_links=True), *_special_files(tree.folder)]
    _unlink(inside)
    removed += inside
    settings = {
        tree.repository / "config": tree.settings,
        tree.repository / "objects/info/alternates": alternates_text(tree),
        tree.admin / "commondir": "../..\n",
        tree.admin / "gitdir": f"{tree.folder}/.git\n",
    }
    for file, text in settings.items():
        if file.parent.is_dir() and not (file.is_file() and file.read_text(errors="replace") == text):
            _move_away(file, tree.repository.with_name("agents-settings"))
            file.write_text(text, errors="surrogateescape")
    (tree.admin / "config.worktree").unlink(missing_ok=True)
    (tree.repository / "info/grafts").unlink(missing_ok=True)
    names = ", ".join(sorted(path.name for path in removed)[:10])
    return [f"the agent left links or pipes where git reads; they were removed: {names}"] if removed else []


def _special_files(top: Path, *, with_links: bool = False) -> Iterator[Path]:
    """Pipes, sockets and devices below a folder, at which git would wait; with links if those count, too."""
    waiting = [os.fspath(top)] if top.is_dir() else []
    while waiting:
        try:
            entries = [*os.scandir(waiting.pop())]
        except PermissionError:
            # git cannot read it either; `_make_readable` does what is needed.
            continue
        for entry in entries:
            if entry.is_symlink():
                if with_links:
                    yield Path(entry.path)
            elif entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
            elif not entry.is_file(follow_symlinks=False):
                yield Path(entry.path)


def _unlink(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def _is_intact(tree: Worktree) -> bool:
    return tree.git.commit_of(tree.base_sha) != "" and (tree.admin / "HEAD").is_file()


def _rebuild(tree: Worktree) -> None:
    """Recreate the session's repository around the existing files."""
    aside = tree.repository.with_name("tree-aside")
    shutil.rmtree(tree.repository, ignore_errors=True)
    _move_away(tree.folder / ".git", tree.repository.with_name("removed-link"))
    tree.folder.rename(aside)
    make_repository(tree)
    add_tree(tree)
    (tree.folder / ".git").rename(aside / ".git")
    tree.folder.rmdir()
    aside.rename(tree.folder)
    tree.git("read-tree", tree.base_sha)


def _restore_link(tree: Worktree) -> list[str]:
    link, right = tree.folder / ".git", f"gitdir: {tree.admin}\n"
    if link.is_file() and not link.is_symlink() and link.read_text(errors="replace") == right:
        return []
    _move_away(link, tree.repository.with_name("agents-git"))
    link.write_text(right)
    return ["the agent removed or replaced the tree's link to its repository; it was restored"]


def _move_away(path: Path, where: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(where, ignore_errors=True)
        path.rename(where)


def _remove_locks(tree: Worktree) -> None:
    """Remove stale locks: all processes have ended, so they belong to a git that was killed."""
    for lock in (*tree.repository.glob("*.lock"), *tree.admin.glob("*.lock")):
        lock.unlink(missing_ok=True)
    for lock in (tree.repository / "refs").rglob("*.lock"):
        lock.unlink(missing_ok=True)


def _commit(tree: Worktree, message: str) -> tuple[str, list[str]]:
    git, branch = tree.git, f"refs/heads/{tree.branch}"
    interrupted = _abort_operation(tree)
    notes = ["the agent stopped in the middle of a merge or rebase"] if interrupted else []
    tip = git.commit_of(branch) or tree.base_sha
    head = git.commit_of("HEAD") or tip
    written = _write_tree(tree)
    clean = written == git.line("rev-parse", f"{head}^{{tree}}")
    behind = head != tip and git.is_ancestor(head, tip)
    if head != tip:
        where = git.line("symbolic-ref", "--short", "-q", "HEAD") or "no branch"
        notes.append(f"the agent left its tree on {where}, not on the session's branch")
    if behind and clean and not interrupted:
        # It committed to the session's branch and then checked out another commit.
        sha = tip
    else:
        loose = dict.fromkeys((*interrupted, tip))
        others = [other for other in loose if not git.is_ancestor(other, head)]
        sha = head if clean and not others else git.commit_tree(written, (head, *others), message)
    git("update-ref", branch, sha)
    git("symbolic-ref", "HEAD", branch)
    git("reset", "--hard" if sha == tip and behind else "--mixed", "--quiet")
    return sha, notes


def _abort_operation(tree: Worktree) -> list[str]:
    """Abort a merge or rebase without changing files; returns the commits that took part in it."""
    about = [_first_line(tree.admin / name) for name in ("MERGE_HEAD", "rebase-merge/orig-head")]
    commits = [sha for line in about if (sha := tree.git.commit_of(line) if line else "")]
    for pattern in _IN_PROGRESS:
        for file in tree.admin.glob(pattern):
            file.unlink()
    for name in _IN_PROGRESS_FOLDERS:
        shutil.rmtree(tree.admin / name, ignore_errors=True)
    return commits


def _first_line(file: Path) -> str:
    try:
        return file.read_text(errors="replace").partition("\n")[0].strip()
    except OSError:
        return ""


def _write_tree(tree: Worktree) -> str:
    """Write all files that are not ignored as a tree object."""
    try:
        if _hides_files(tree):
            raise GitError(("ls-files",), 1, "the index hides changes")
        return _stage(tree)
    except GitError:
        # The agent may have broken the index or made files unreadable: start from the commit.
        (tree.admin / "index").unlink(missing_ok=True)
        _make_readable(tree.folder)
        _unlink([*_special_files(tree.folder)])
        tree.git("read-tree", tree.git.commit_of("HEAD") or tree.base_sha)
        return _stage(tree)


def _hides_files(tree: Worktree) -> bool:
    """Whether the index hides changes (`assume-unchanged`, `skip-worktree`)."""
    marks = (line[:1] for line in tree.git("ls-files", "-v").splitlines())
    return any(mark == "S" or mark.islower() for mark in marks)


def _stage(tree: Worktree) -> str:
    with _nested_repositories_hidden(tree):
        tree.git("add", "--all", "--", ":/")
    return tree.git("write-tree").strip()


@contextmanager
def _nested_repositories_hidden(tree: Worktree) -> Iterator[None]:
    """Move nested `.git` folders away, so that git adds the files of nested repositories.

    Those of submodules, too: git would look for changes with the filters that their own settings name.
    """
    moved: list[tuple[Path, Path]] = []
    shelter = tree.repository.with_name("nested")
    try:
        while links := _nested(tree):
            for link in links:
                shelter.mkdir(exist_ok=True)
                moved.append((link, shelter / str(len(moved))))
                link.rename(moved[-1][1])
        yield
    finally:
        for link, place in reversed(moved):
            place.rename(link)


def _nested(tree: Worktree) -> Sequence[Path]:
    # git lists the files of untracked folders, but nested repositories as folders.
    listed = tree.git("ls-files", "--others", "--exclude-standard", "-z").split("\0")
    folders = [name for name in listed if name.endswith("/")]
    staged = tree.git("ls-files", "--stage", "-z").split("\0")
    folders += [entry.partition("\t")[2] for entry in staged if entry.startswith("160000 ")]
    links = [tree.folder / name / ".git" for name in folders]
    return [link for link in links if link.exists() or link.is_symlink()]


def _make_readable(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink() and (path.is_dir() or path.is_file()):
            path.chmod(path.stat().st_mode | (0o700 if path.is_dir() else 0o600))


def _other_branches(tree: Worktree) -> list[str]:
    """A note on commits that the agent left on other branches."""
    listed = tree.git("for-each-ref", "--format=%(refname:short)", "refs/heads", "--no-merged", tree.branch)
    names = [name for name in listed.splitlines() if name != tree.branch][:10]
    return [f"the agent left commits on other branches: {', '.join(names)}"] if names else []
