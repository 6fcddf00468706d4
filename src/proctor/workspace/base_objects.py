"""Stores of the objects that a base commit reaches, shared by the sessions that start from it.

    home/bases/<repository>/<digest>/objects/     packs, and a list of the stores that this one continues
    home/bases/<repository>/<digest>/about.json   the base commit, its tags, where a shallow history ends

A session sees the history of its base and nothing else: neither other branches, the stash nor the work of
earlier attempts. The store is made once for a base; that of a later commit contains only what is new and
borrows the rest. Sessions read it and cannot change it.
"""

import fcntl
import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from proctor.errors import WorkspaceError
from proctor.git import Git, GitError
from proctor.workspace.source_repository import SourceRepository

LONGEST_CHAIN = 30
"""Stores that one may borrow from; git looks into each of them for an object."""
MAKING_SECONDS = 3600.0
"""For the history of a very large repository, once."""
UNUSED_SECONDS = 86_400.0
"""An unused store is removed after this time: the next run of a plan usually has the same base."""
CONTROL_END = "-control"
"""End of the name of a control repository, beside the folder of what programs may change."""
USED_BASE = "base"
"""File in a control repository that names the store it borrows."""
_ABOUT = "about.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseObjects:
    """The objects that a base commit reaches."""

    folders: tuple[Path, ...]
    """Object folders: that of this store, then those it borrows from."""
    tags: Mapping[str, str]
    """Tags that the base reaches, and their objects."""
    shallow: str
    """Commits where a shallow history ends, one per line; empty if it is complete."""

    @property
    def place(self) -> Path:
        """Folder of the store."""
        return self.folders[0].parent

    @property
    def alternates(self) -> str:
        """The object folders as git's list of alternates."""
        return alternates_text(self.folders)


def alternates_text(folders: Sequence[Path]) -> str:
    """Object folders as git's list of alternates."""
    return "".join(f"{_quoted(folder)}\n" for folder in folders)


def _quoted(folder: Path) -> str:
    text = os.fspath(folder)
    if "\n" not in text and not text.startswith('"'):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def base_objects(
    bases: Path, source: SourceRepository, base_sha: str, references: Mapping[str, str]
) -> BaseObjects:
    """The store of a base commit and of the tags in `references` that it reaches; made if needed.

    `bases` is the folder of all stores. Blocks.
    """
    tags = {name: sha for name, sha in references.items() if name.startswith("refs/tags/")}
    key = json.dumps([base_sha, sorted(tags.items()), source.object_format])
    group = bases.resolve() / source.key
    path = group / hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:32]
    try:
        if (found := _opened(path)) is None:
            group.mkdir(parents=True, exist_ok=True)
            with (group / "making.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                found = _opened(path) or _made(path, source, base_sha, tags)
            remove_unused_bases(bases.parent)
        # Those that are used are not removed.
        os.utime(path)
    except (GitError, OSError) as error:
        raise WorkspaceError(f"copying the history of {source.root}: {error}") from error
    return found


def reopened(control: Path) -> BaseObjects | None:
    """The store that a control repository borrows; None if it is no longer there."""
    try:
        return _opened(Path((control / USED_BASE).read_text(errors="surrogateescape")))
    except OSError:
        return None


def _opened(path: Path) -> BaseObjects | None:
    try:
        about = json.loads((path / _ABOUT).read_text())
    except FileNotFoundError:
        return None
    folders = [path / "objects", *(path.parent / name / "objects" for name in about["borrows"])]
    if not all(folder.is_dir() for folder in folders):
        shutil.rmtree(path)
        return None
    return BaseObjects(folders=tuple(folders), tags=about["tags"], shallow=about["shallow"])


def _made(path: Path, source: SourceRepository, base_sha: str, tags: Mapping[str, str]) -> BaseObjects:
    making = path.with_name(f"making-{uuid.uuid4().hex[:12]}")
    source.fetch_missing(base_sha)
    try:
        for folder in ("objects/info", "objects/pack", "refs"):
            (making / folder).mkdir(parents=True)
        (making / "HEAD").write_text("ref: refs/heads/none\n")
        version = 1 if source.object_format != "sha1" else 0
        text = f"[core]\n\trepositoryformatversion = {version}\n\tbare = true\n"
        text += f"[extensions]\n\tobjectFormat = {source.object_format}\n" if version else ""
        (making / "config").write_text(text)
        alternates = making / "objects/info/alternates"
        alternates.write_text(alternates_text(source.object_folders()), errors="surrogateescape")
        ends = _lines_of(source.common / "shallow")
        if ends:
            (making / "shallow").write_text("".join(f"{end}\n" for end in ends))
        # git reads the user's objects, but neither settings nor other files of that repository.
        git = source.git.at(making, GIT_DIR=str(making), GIT_NO_REPLACE_OBJECTS="1")
        git = replace(git, time_limit=MAKING_SECONDS)
        reached = _reached_tags(source, base_sha, tags)
        earlier = _earlier(path.parent, git, base_sha)
        wanted = [base_sha, *reached.values()]
        known = [f"^{earlier[1]}"] if earlier else []
        # A partial clone lacks old files that nobody has asked for yet.
        is_partial = any(_promised(folder) for folder in source.object_folders())
        missing = ["--missing=allow-any"] if is_partial else []
        git(
            "pack-objects",
            "--quiet",
            "--revs",
            "--delta-base-offset",
            *missing,
            "objects/pack/pack",
            stdin="".join(f"{line}\n" for line in (*wanted, *known)),
        )
        borrows = [folder.parent.name for folder in earlier[0].folders] if earlier else []
        folders = [path.parent / name / "objects" for name in borrows]
        alternates.write_text(alternates_text(folders), errors="surrogateescape")
        (making / "shallow").unlink(missing_ok=True)
        shallow = "".join(f"{end}\n" for end in ends if git.run("cat-file", "-e", end)[0] == 0)
        about = {"base": base_sha, "borrows": borrows, "tags": reached, "shallow": shallow}
        (making / _ABOUT).write_text(json.dumps(about))
        making.rename(path)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return BaseObjects(folders=(path / "objects", *folders), tags=reached, shallow=shallow)


def _reached_tags(source: SourceRepository, base_sha: str, tags: Mapping[str, str]) -> dict[str, str]:
    """The tags on commits that the base reaches: another one would show later history."""
    if not tags:
        return {}
    listed = source.git("for-each-ref", "--format=%(refname)", f"--merged={base_sha}", "refs/tags")
    return {name: tags[name] for name in listed.splitlines() if name in tags}


def _earlier(group: Path, git: Git, base_sha: str) -> tuple[BaseObjects, str] | None:
    """The store with the most of what a base reaches, and its commit; None if there is none."""
    stores = sorted(group.glob(f"*/{_ABOUT}"), key=lambda file: file.stat().st_mtime, reverse=True)
    for file in stores[:LONGEST_CHAIN]:
        about = json.loads(file.read_text())
        commit = about["base"]
        # A shallow history does not end where a later fetch made it end.
        if about["shallow"] or len(about["borrows"]) >= LONGEST_CHAIN:
            continue
        if git.is_ancestor(commit, base_sha) and (found := _opened(file.parent)):
            return found, commit
    return None


def _promised(objects: Path) -> bool:
    return any((objects / "pack").glob("*.promisor"))


def _lines_of(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []


def remove_unused_bases(home: Path, *, now: float | None = None) -> None:
    """Remove the stores that no worktree borrows and nobody has used for a day. Blocks."""
    latest = (time.time() if now is None else now) - UNUSED_SECONDS
    # Another process may remove worktrees or stores meanwhile; the rest is removed another time.
    with suppress(OSError):
        stores = {file.parent for file in (home / "bases").resolve().glob(f"*/*/{_ABOUT}")}
        controls = (home / "worktrees").glob(f"*/*{CONTROL_END}/{USED_BASE}")
        used = {Path(file.read_text(errors="surrogateescape")) for file in controls}
        used |= {place for place in stores if place.stat().st_mtime > latest}
        for store in used & stores:
            used = used | {
                store.parent / name for name in json.loads((store / _ABOUT).read_text())["borrows"]
            }
        for unused in stores - used:
            # Renamed first: half a store must not be opened.
            unused.rename(unused.with_name(f"making-{uuid.uuid4().hex[:12]}"))
        for unfinished in (home / "bases").glob("*/making-*"):
            if unfinished.stat().st_mtime <= latest:
                shutil.rmtree(unfinished)
