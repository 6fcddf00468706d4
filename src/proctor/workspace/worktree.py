"""A place of its own for one coding session.

    home/worktrees/<session>/<repository's name>/   the tree the agent works in
    home/worktrees/<session>/git/                   the repository that tree belongs to
    home/worktrees/<session>/home/                  the agent's HOME

The tree is a linked work tree of a repository made for this session alone. It borrows the objects of
the user's repository, so making it copies nothing; but branches, stash, settings and locks are its
own. Whatever an agent does with git it does to that, neither to the user's repository nor to a
session beside it, and many can start at once without waiting for each other. It has no remote:
there is nothing to push to.
"""

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from proctor.errors import WorkspaceError
from proctor.git import Git, GitError
from proctor.workspace.source_repository import SESSION_REFS, SourceRepository


@dataclass(frozen=True, slots=True, kw_only=True)
class Worktree:
    """A work tree and the repository it belongs to."""

    folder: Path
    repository: Path
    branch: str
    base_sha: str
    source: SourceRepository
    settings: str
    """The repository's configuration as it was made; an agent may change the file."""
    references: Mapping[str, str]
    """The names the repository began with, and their commits."""

    @property
    def admin(self) -> Path:
        """Where git keeps what belongs to this tree: HEAD, index, a merge in progress."""
        return self.repository / "worktrees" / self.folder.name

    @property
    def git(self) -> Git:
        """git in this tree, whatever became of the tree's own link to its repository."""
        return self.source.git.at(self.folder, GIT_DIR=str(self.admin), GIT_WORK_TREE=str(self.folder))


def session_folder(home: Path, session: str) -> Path:
    """Everything a session has on disk."""
    name = session.replace("/", "-")
    if not name.strip("."):
        # It would be the folder of all sessions, or of everything.
        raise ValueError(f"{session!r} is no session's id")
    return home / "worktrees" / name


def make_tree(
    place: Path, source: SourceRepository, branch: str, base_sha: str, references: Mapping[str, str]
) -> Worktree:
    """Make a session's repository and an empty tree of it, quickly; `fill` does the rest."""
    # git itself writes down real paths; ours must be the same.
    place = place.resolve()
    if place.exists():
        # An earlier process died in this very attempt.
        remove_folder(place)
    place.mkdir(parents=True)
    tree = Worktree(
        folder=place / tree_name(source),
        repository=place / "git",
        branch=branch,
        base_sha=base_sha,
        source=source,
        settings=_configuration(source),
        references=references,
    )
    make_repository(tree)
    try:
        add_tree(tree)
    except GitError as error:
        raise WorkspaceError(f"making a work tree of {source.root}: {error}") from error
    return tree


def tree_name(source: SourceRepository) -> str:
    """The tree's folder is called as the repository, unless that is the name of something beside it."""
    safe = "".join(c if c.isalnum() or c in "._-" else "-" for c in source.name).strip(".-")
    # git would call its own part of the tree otherwise.
    safe = safe.replace("..", "-").removesuffix(".lock")
    return safe if safe and safe not in ("git", "home") else f"{safe or 'repository'}-tree"


def visible_references(references: Mapping[str, str], base: str, base_sha: str) -> dict[str, str]:
    """Of the user's references those a session sees: the base branch, and the tags builds ask for.

    Other branches may hold the answers of others.
    """
    visible = {name: sha for name, sha in references.items() if name.startswith("refs/tags/")}
    if {f"refs/heads/{base}", f"refs/remotes/origin/{base}"} & references.keys():
        visible[f"refs/heads/{base}"] = base_sha
    return visible


def make_repository(tree: Worktree) -> None:
    """Write the session's repository: a few small files, and where to borrow objects from."""
    repository, source = tree.repository, tree.source
    for folder in ("objects/info", "refs/heads", "info"):
        (repository / folder).mkdir(parents=True, exist_ok=True)
    (repository / "HEAD").write_text("ref: refs/heads/none\n")
    (repository / "config").write_text(tree.settings)
    borrowed = "".join(f"{_quoted(folder)}\n" for folder in source.object_folders())
    (repository / "objects/info/alternates").write_text(borrowed, errors="surrogateescape")
    packed = "".join(f"{sha} {name}\n" for name, sha in sorted(tree.references.items()))
    (repository / "packed-refs").write_text(packed)
    for file in ("shallow", "info/exclude", "info/attributes"):
        if (source.common / file).is_file():
            shutil.copyfile(source.common / file, repository / file)


def add_tree(tree: Worktree) -> None:
    """Link an empty tree to the repository, on the session's branch."""
    git = tree.source.git.at(tree.repository, GIT_DIR=str(tree.repository))
    arguments = ("worktree", "add", "--no-checkout", "--no-track", "-B", tree.branch)
    git(*arguments, str(tree.folder), tree.base_sha)


def fill(tree: Worktree) -> None:
    """Put the base commit's files into the tree: the slow part, as slow as the disk."""
    try:
        tree.git("reset", "--hard", "--quiet", tree.base_sha)
    except GitError as error:
        raise WorkspaceError(f"filling the work tree of {tree.source.root}: {error}") from error


def ignore_untracked(tree: Worktree) -> list[str]:
    """Have git ignore whatever is in the tree now and not in its commit; the names. For what setup makes."""
    listed = tree.git("status", "--porcelain", "-z", "--no-renames", "--untracked-files=normal").split("\0")
    names = [entry[3:] for entry in listed if entry.startswith("??")]
    with (tree.repository / "info/exclude").open("a") as patterns:
        patterns.writelines(f"/{_literal(name)}\n" for name in names if "\n" not in name)
    return names


def _literal(name: str) -> str:
    """A name as a pattern that fits only itself."""
    return re.sub(r"([\\*?\[\]! #])", r"\\\1", name)


def publish(tree: Worktree) -> None:
    """Bring the session's branch into the user's repository; nothing else there changes."""
    reference = f"refs/heads/{tree.branch}"
    if not reference.startswith(SESSION_REFS):
        raise WorkspaceError(f"{tree.branch} is no session's branch: it is not under batch/")
    quietly = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--no-prune")
    arguments = (*quietly, "--no-recurse-submodules", str(tree.repository), f"+{reference}:{reference}")
    try:
        tree.source.git("fetch", *arguments)
    except GitError as error:
        problem = f"bringing {tree.branch} to {tree.source.root}: {error}"
        raise WorkspaceError(problem, reason="publish_failed") from error


def remove_folder(folder: Path) -> str:
    """Remove a folder with all that agents leave in it; why it could not be removed, or nothing."""
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return ""
    except OSError:
        _make_writable(folder)
        try:
            shutil.rmtree(folder)
        except OSError as problem:
            return str(problem)
    return ""


def _make_writable(folder: Path) -> None:
    """Give ourselves back what an agent took away: the right to change folders."""
    folder.chmod(0o700)
    for parent, names, _ in os.walk(folder):
        for path in (Path(parent) / name for name in names):
            if not path.is_symlink():
                path.chmod(0o700)


def _configuration(source: SourceRepository) -> str:
    version = 1 if source.object_format != "sha1" else 0
    text = f"[core]\n\trepositoryformatversion = {version}\n\tbare = true\n\tlogAllRefUpdates = true\n"
    if version:
        text += f"[extensions]\n\tobjectFormat = {source.object_format}\n"
    # Upkeep would copy the borrowed objects, or run on after the agent has ended.
    return text + "[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n" + source.settings()


def _quoted(folder: Path) -> str:
    text = os.fspath(folder)
    if "\n" not in text and not text.startswith('"'):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
