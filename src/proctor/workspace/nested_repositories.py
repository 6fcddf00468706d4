"""Repositories inside a worktree: submodules, and those that an agent makes.

git would take them for repositories of their own, with settings that name programs, and leave out their
files. Those of an agent are moved out of the way while git adds files. The files of submodules are watched
with an index of our own: the session's branch cannot contain what an agent changes in them, so the changes
are kept as a patch beside the worktree, and undone before the check, which sees what the branch has.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from proctor.git import GitError
from proctor.workspace import beneath

if TYPE_CHECKING:
    from proctor.workspace.tree_git import TreeGit
    from proctor.workspace.worktree import Worktree

PATCH = "submodules.patch"
"""File in the folder of a session with what its agent changed in submodules."""
_STATE = "submodules.json"
_DIFF = ("--no-ext-diff", "--no-textconv", "--no-color", "--no-renames")


def patch_of(tree: "Worktree") -> Path:
    """The file with the changes in submodules; it stays when the worktree is removed."""
    return tree.place.with_name(PATCH)


def index_submodules(tree: "Worktree") -> None:
    """List the files of submodules as they were filled in, ignored ones included."""
    listed = tree.git("ls-tree", "-r", "-z", tree.base_sha).split("\0")
    paths = [entry.partition("\t")[2] for entry in listed if entry.startswith("160000 ")]
    if paths:
        _save_state(tree, _written(tree, paths, "--force"), paths)


def watch_submodules(tree: "Worktree") -> None:
    """From now on, changes in submodules are the agent's. What setup made in them is not."""
    _, paths = _state(tree)
    if paths:
        _save_state(tree, _written(tree, paths), paths)


def undo_submodule_changes(tree: "Worktree") -> tuple[str, ...]:
    """Keep what an agent changed in submodules as a patch, and undo it; the submodules with changes."""
    before, paths = _state(tree)
    if not paths:
        return ()
    after = _written(tree, paths)
    if after == before:
        return ()
    with patch_of(tree).open("ab") as patch:
        patch.write(tree.git.binary("diff", "--binary", *_DIFF, before, after, "--"))
    names = tree.git("diff", "--name-only", "-z", *_DIFF, before, after, "--").split("\0")[:-1]
    _git(tree)("read-tree", "--reset", "-u", before)
    return tuple(path for path in paths if any(f"{name}/".startswith(f"{path}/") for name in names))


def _git(tree: "Worktree") -> "TreeGit":
    """git with the index of the files of submodules."""
    index = str(tree.control / "submodules.index")
    return replace(tree.git, settings={"GIT_INDEX_FILE": index, "GIT_LITERAL_PATHSPECS": "1"})


def _state(tree: "Worktree") -> tuple[str, list[str]]:
    """The files of submodules as a tree object, and the paths of the submodules; none: there are none."""
    file = tree.control / _STATE
    if not file.is_file():
        return "", []
    state = json.loads(file.read_text())
    return state["tree"], state["paths"]


def _save_state(tree: "Worktree", written: str, paths: Sequence[str]) -> None:
    (tree.control / _STATE).write_text(json.dumps({"tree": written, "paths": paths}))


def _written(tree: "Worktree", paths: Sequence[str], *flags: str) -> str:
    """Write the files of submodules, as they are now, as a tree object."""
    try:
        return _add(tree, paths, *flags)
    except GitError:
        # The agent may have made files unreadable.
        for path in paths:
            for entry in beneath.entries(tree.place, PurePosixPath(tree.folder.name) / path):
                entry.allow(0o700 if entry.is_folder else 0o600)
        return _add(tree, paths, *flags)


def _add(tree: "Worktree", paths: Sequence[str], *flags: str) -> str:
    top, git = PurePosixPath(tree.folder.name), _git(tree)
    listed = git("ls-files", "-z").split("\0")
    known = [path for path in paths if any(name.startswith(f"{path}/") for name in listed)]
    # git rejects a path at which nothing is, and nothing was.
    present = [path for path in paths if path in known or beneath.exists(tree.place, top / path)]
    if present:
        with nested_repositories_hidden(tree, git, present):
            git("add", "--all", *flags, "--", *present)
    return git("write-tree").strip()


@contextmanager
def nested_repositories_hidden(tree: "Worktree", git: "TreeGit", paths: Sequence[str] = ()) -> Iterator[None]:
    """Move nested `.git` folders away, so that git adds the files of nested repositories.

    Those of submodules, too: git would look for changes with the filters that their own settings name.
    With `paths`, only those there. `git` has the index that files are added to.
    """
    moved: list[tuple[PurePosixPath, Path]] = []
    shelter = tree.control / "nested"
    shelter.mkdir(exist_ok=True)
    try:
        while links := _nested(tree, git, paths):
            for link in links:
                moved.append((link, shelter / str(len(moved))))
                beneath.move(tree.place, link, moved[-1][1])
        yield
    finally:
        for link, hidden in reversed(moved):
            beneath.move_back(hidden, tree.place, link)


def _nested(tree: "Worktree", git: "TreeGit", paths: Sequence[str]) -> list[PurePosixPath]:
    # git lists the files of untracked folders, after `? `, but nested repositories as folders.
    which = ("-t", "--others", "--exclude-standard", "--stage", "-z")
    listed = git("ls-files", *which, "--", *paths).split("\0")
    folders = [entry[2:] for entry in listed if entry.startswith("? ") and entry.endswith("/")]
    folders += [entry.partition("\t")[2] for entry in listed if entry[1:].startswith(" 160000 ")]
    links = [PurePosixPath(tree.folder.name) / name / ".git" for name in (*folders, *paths)]
    return [link for link in dict.fromkeys(links) if beneath.exists(tree.place, link)]
