"""A tree of our own for combining commits, gone afterwards.

Merging and rebasing need files to work on. They are done here, never in the user's checkout; only the
commits that come of it are brought over.

Knows nothing of sessions, checks or queues.
"""

import asyncio
import uuid
from pathlib import Path
from typing import NoReturn

from proctor.git import Git, GitError
from proctor.processes import undisturbed
from proctor.workspace.source import Source
from proctor.workspace.surroundings import make_home
from proctor.workspace.tree import Tree, fill, make_tree, remove_folder, session_folder


class Conflict(Exception):
    """Two commits change the same lines."""

    def __init__(self, files: tuple[str, ...]) -> None:
        super().__init__(", ".join(files))
        self.files = files


class Scratch:
    """A tree of our own for combining, gone afterwards."""

    def __init__(self, home: Path, source: Source, sha: str) -> None:
        self._place = session_folder(home, f"merging-{uuid.uuid4().hex[:12]}")
        self._source, self._sha = source, sha

    async def __aenter__(self) -> Tree:
        try:
            return await undisturbed(asyncio.to_thread(self._make))
        except BaseException:
            await undisturbed(asyncio.to_thread(remove_folder, self._place))
            raise

    def _make(self) -> Tree:
        tree = make_tree(self._place, self._source, "batch/scratch", self._sha, {})
        make_home(tree.repository.with_name("home"))
        fill(tree)
        return tree

    async def __aexit__(self, *_: object) -> None:
        await undisturbed(asyncio.to_thread(remove_folder, self._place))


def raise_conflict(git: Git, command: tuple[str, ...], said: str) -> NoReturn:
    """Say why git could not combine: the files in conflict, or something else."""
    unmerged = git("diff", "--name-only", "--diff-filter=U", "-z").split("\0")
    if files := tuple(name for name in unmerged if name):
        raise Conflict(files)
    raise GitError(command, 1, said)


def fetch_objects(tree: Tree, reference: str) -> None:
    """Copy a commit to the user's repository without giving it a name there."""
    quietly = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance")
    tree.source.git("fetch", *quietly, "--no-recurse-submodules", str(tree.repository), reference)
