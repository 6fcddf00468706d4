"""The repository that an agent sees in its worktree, read and written as data.

The agent can put anything into it: settings that start programs, links, pipes, broken objects. Proctor's git
never opens it. References are read as bounded text; commits come over as a pack that git makes inside a
sandbox, without a network, and that our control repository checks as it would one of a stranger
(`index-pack --strict`). What Proctor changes in it, it writes file by file, never through a link.
"""

import asyncio
import os
import re
import stat
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, TypeVar

from proctor.errors import ProctorError
from proctor.git import GitError
from proctor.processes import ProgramResult, run
from proctor.sandbox import Sandbox
from proctor.workspace import beneath
from proctor.workspace.tree_git import absolute_path

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from proctor.workspace.worktree import Worktree

FILES_OF_SOURCE = ("info/exclude", "info/attributes")
"""Files of the user's repository that affect sessions."""
LARGEST_PACK = 4 << 30
"""Bytes of what an agent's commits add."""
CONFINED_SECONDS = 300.0
_REFERENCE_BYTES = 4096
_LIST_BYTES = 32 << 20
_MOST_BRANCHES = 1000
_SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_NAME = re.compile(r"refs/(?!.*(\.\.|//|@\{))[^\x00-\x20\x7f~^:?*\[\\]+")
_IN_PROGRESS = re.compile(r".*_HEAD|MERGE_.*|SQUASH_MSG|AUTO_MERGE|BISECT_.*")
_IN_PROGRESS_FOLDERS = ("rebase-merge", "rebase-apply", "sequencer")
_LOST = "the agent broke its repository; its own commits are lost, its files are not"
_KEPT = re.compile(
    r"HEAD|ORIG_HEAD|config|packed-refs|shallow|info|info/(exclude|attributes)|objects(/.*)?|refs(/.*)?|logs(/.*)?"
    r"|lfs(/.*)?|worktrees|worktrees/[^/]+(/(HEAD|ORIG_HEAD|index|commondir|gitdir|logs(/.*)?))?"
)
"""What stays in the repository of a kept worktree: nothing that can name a program."""


def make_repository(tree: "Worktree") -> None:
    """Write the files of the agent's repository, with a worktree on the session's branch.

    They are those of `git init` and `git worktree add --no-checkout`, which start many processes for it.
    """
    place = tree.place
    for folder in ("objects/info", "objects/pack", "refs/heads", "info"):
        beneath.make_folder(place, f"git/{folder}")
    packed = "".join(f"{sha} {name}\n" for name, sha in sorted(tree.references.items()))
    files = {
        "git/HEAD": "ref: refs/heads/none\n",
        "git/packed-refs": packed,
        **({"git/shallow": tree.base.shallow} if tree.base.shallow else {}),
        f"git/refs/heads/{tree.branch}": f"{tree.base_sha}\n",
        f"{_admin(tree)}/HEAD": f"ref: refs/heads/{tree.branch}\n",
        **_settings(tree),
    }
    for name, text in files.items():
        beneath.write_text(place, name, text)
    for file in FILES_OF_SOURCE:
        if (tree.control / file).is_file():
            beneath.copy_in(tree.control / file, place, f"git/{file}")


def _admin(tree: "Worktree") -> PurePosixPath:
    return PurePosixPath(tree.admin.relative_to(tree.place))


def _settings(tree: "Worktree") -> dict[str, str]:
    """The files that decide where git reads and writes and which programs it starts, below `place`."""
    admin = _admin(tree)
    return {
        "git/config": tree.settings,
        "git/objects/info/alternates": tree.base.alternates,
        f"{admin}/commondir": "../..\n",
        f"{admin}/gitdir": f"{tree.folder}/.git\n",
        f"{tree.folder.name}/.git": f"gitdir: {tree.admin}\n",
    }


def share_index(tree: "Worktree") -> None:
    """Give the agent's repository the index of the control repository: it describes the same files."""
    beneath.copy_in(tree.control / "index", tree.place, _admin(tree) / "index")


@dataclass(slots=True, kw_only=True)
class AgentState:
    """What the agent's repository says, as far as the control repository has its commits."""

    head: str
    """Commit that is checked out."""
    tip: str
    """Commit of the session's branch."""
    head_name: str = ""
    """Branch that is checked out; empty if none is."""
    interrupted: tuple[str, ...] = ()
    """Commits that took part in a merge or rebase that was not completed."""
    other_branches: tuple[str, ...] = ()
    """Names of other branches with commits that the session's branch may not have."""
    staged: tuple[str, ...] = ()
    """Paths that the agent added to its index, which may be ignored ones."""
    unstaged: tuple[str, ...] = ()
    """Paths that it removed from its index, whose files may be there."""
    notes: list[str] = field(default_factory=list)


def take_over(tree: "Worktree") -> AgentState:
    """Repair the agent's repository, and bring its commits into the control repository. Blocks."""
    notes = _repair(tree)
    branches = _branches(tree)
    own = f"refs/heads/{tree.branch}"
    name, head = _head(tree, branches)
    tip = branches.get(own, tree.base_sha)
    merging = [line for file in ("MERGE_HEAD", "rebase-merge/orig-head") if (line := _line(tree, file))]
    interrupted = tuple(line for line in merging if _SHA.fullmatch(line))
    if not head:
        return _lost(tree, notes)
    staged = _index_changes(tree, [head, tip, *interrupted])
    if staged is None:
        return _lost(tree, notes)
    others = [each for each, sha in branches.items() if each != own and not _is_merged(tree, sha, tip)]
    return AgentState(
        head=head,
        tip=tip,
        head_name=name.removeprefix("refs/heads/"),
        interrupted=tuple(dict.fromkeys(sha for sha in interrupted if tree.git.commit_of(sha))),
        other_branches=tuple(each.removeprefix("refs/heads/") for each in others),
        staged=tuple(staged["A"]),
        unstaged=tuple(staged["D"]),
        notes=notes,
    )


def _lost(tree: "Worktree", notes: list[str]) -> AgentState:
    """Make the agent's repository again: it cannot be read."""
    current = tree.git.commit_of(f"refs/heads/{tree.branch}") or tree.base_sha
    beneath.remove(tree.place, "git")
    make_repository(tree)
    return AgentState(head=current, tip=current, head_name=tree.branch, notes=[*notes, _LOST])


def _is_merged(tree: "Worktree", sha: str, tip: str) -> bool:
    return sha == tip or (bool(tree.git.commit_of(sha)) and tree.git.is_ancestor(sha, tip))


def _repair(tree: "Worktree") -> list[str]:
    """Restore what decides where git reads and writes, for the agent's own git and that in the sandbox."""
    place, notes = tree.place, list[str]()
    removed = [entry.name for entry in _special(place)]
    for name, text in _settings(tree).items():
        data = text.encode("utf-8", "surrogateescape")
        if beneath.read(place, name, len(data) + 1) == data:
            continue
        beneath.write(place, name, data)
        if name.endswith("/.git"):
            notes.append("the agent removed or replaced the tree's link to its repository; it was restored")
    admin = _admin(tree)
    for name in (f"{admin}/config.worktree", "git/config.worktree", "git/info/grafts"):
        beneath.remove(place, name)
    if removed:
        names = ", ".join(sorted(removed)[:10])
        notes.insert(0, f"the agent left links or pipes where git reads; they were removed: {names}")
    return notes


def _special(path: Path) -> Iterable[beneath.TreeEntry]:
    """Links and pipes of the repository, and locks of a git that was killed; removed as they are listed."""
    with beneath.opened(path) as folder:
        for name in beneath.names(folder):
            if stat.S_ISLNK(os.lstat(name, dir_fd=folder).st_mode):
                beneath.clear(folder, name)
                yield beneath.TreeEntry(name, folder, name, 0)
    for entry in beneath.entries(path, "git"):
        if not (entry.is_folder or entry.is_file):
            entry.remove()
            yield entry
        elif entry.name.endswith(".lock") and not entry.path.startswith("objects/"):
            entry.remove()


def _text(tree: "Worktree", path: str | PurePosixPath) -> str:
    return beneath.read_text(tree.place, path, _REFERENCE_BYTES).partition("\n")[0].strip()


def _line(tree: "Worktree", name: str) -> str:
    return _text(tree, _admin(tree) / name)


def _head(tree: "Worktree", branches: dict[str, str]) -> tuple[str, str]:
    """The branch that is checked out, if any, and its commit; that of the session if it has none."""
    text = _line(tree, "HEAD")
    if _SHA.fullmatch(text):
        return "", text
    name = text.removeprefix("ref:").strip()
    if not text.startswith("ref:") or not _NAME.fullmatch(name):
        return "", ""
    return name, branches.get(name, branches.get(f"refs/heads/{tree.branch}", tree.base_sha))


def _branches(tree: "Worktree") -> dict[str, str]:
    """The branches of the agent's repository and their commits."""
    branches = dict[str, str]()
    for line in beneath.read_text(tree.place, "git/packed-refs", _LIST_BYTES).splitlines():
        sha, _, name = line.partition(" ")
        if name.startswith("refs/heads/") and _NAME.fullmatch(name) and _SHA.fullmatch(sha):
            branches[name] = sha
    for entry in beneath.entries(tree.place, "git/refs/heads"):
        name = f"refs/heads/{entry.path}"
        if len(branches) > _MOST_BRANCHES:
            break
        if entry.is_file and _NAME.fullmatch(name) and _SHA.fullmatch(sha := _text(tree, f"git/{name}")):
            branches[name] = sha
    return branches


def _index_changes(tree: "Worktree", commits: Sequence[str]) -> dict[str, list[str]] | None:
    """Bring commits into the control repository, and return the paths that the agent staged, by `A` and `D`.

    None if the commits cannot be had. Starts no program if the agent has neither committed nor staged.
    """
    changes: dict[str, list[str]] = {"A": [], "D": []}
    new = dict.fromkeys(sha for sha in commits if sha != tree.base_sha)
    lacking = [sha for sha in new if not tree.git.commit_of(sha)]
    index = beneath.open_file(tree.place, _admin(tree) / "index")
    is_same = index is None or _is_same(index, tree.control / "index")
    if not lacking and is_same:
        return changes
    for wanted in (lacking, [sha for sha in lacking if sha in commits[:2]]):
        pack, listing = (f"{kind}-{uuid.uuid4().hex}" for kind in ("pack", "staged"))
        try:
            revisions = " ".join((*wanted, f"^{tree.base_sha}")) if wanted else ""
            run_confined(tree, _SCRIPT, str(tree.place / pack), str(tree.place / listing), revisions)
            if wanted and not _receive(tree, pack, wanted):
                continue
            fields = beneath.read_text(tree.place, listing, _LIST_BYTES).split("\0")
            for kind, path in zip(fields[::2], fields[1::2], strict=False):
                if kind in changes and path and not path.startswith("/") and ".." not in path.split("/"):
                    changes[kind].append(path)
            return changes
        finally:
            for name in (pack, listing):
                beneath.remove(tree.place, name)
    return None


def _is_same(file: IO[bytes], other: Path) -> bool:
    with file:
        return file.read(_LIST_BYTES) == other.read_bytes() if other.is_file() else False


_SCRIPT = """
[ -z "$3" ] || printf '%s\\n' $3 | git pack-objects --quiet --revs --thin --delta-base-offset --stdout > "$1"
git diff-index --cached --no-renames --name-status -z HEAD > "$2"
"""


def run_confined(tree: "Worktree", script: str, *arguments: str, folder: Path | None = None) -> None:
    """Run a shell script on the agent's repository inside a sandbox, without a network and the user's files.

    What it prints is lost; it may leave files below `place`. Blocks.
    """
    place = tree.place
    users = tree.source.git.environment
    environment = {
        "PATH": absolute_path(users.get("PATH", os.defpath)),
        "HOME": str(place / "git"),
        "GIT_DIR": str(tree.admin),
        "GIT_WORK_TREE": str(tree.folder),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_NO_REPLACE_OBJECTS": "1",
        "LC_ALL": "C",
    }
    sandbox = Sandbox(
        settings={"kind": "auto", "limits": {"file_size": LARGEST_PACK}},
        user_home=Path(users.get("HOME") or "/nonexistent").resolve(),
    )
    confinement = sandbox.confine(
        "check", None, folders=[place], home=place / "git", read=list(tree.base.folders)
    )

    def work() -> "Coroutine[object, object, ProgramResult]":
        return run(
            ["/bin/sh", "-c", script, "sh", *arguments],
            folder=folder or place,
            environment=environment,
            attempt=f"git-{uuid.uuid4().hex}",
            time_limit=CONFINED_SECONDS,
            confinement=confinement,
        )

    _in_own_loop(work)


T = TypeVar("T")


def _in_own_loop(work: "Callable[[], Coroutine[object, object, T]]") -> T:
    """The result of a coroutine, from a function that blocks."""
    results = list[T]()
    errors = list[BaseException]()

    def call() -> None:
        try:
            results.append(asyncio.run(work()))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=call, name="confined-git")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def _receive(tree: "Worktree", pack: str, commits: Sequence[str]) -> bool:
    """Add a pack of the agent's to the control repository; whether it has the commits and all they need."""
    file = beneath.open_file(tree.place, pack)
    if file is None:
        return False
    with file:
        try:
            limit = f"--max-input-size={LARGEST_PACK}"
            tree.git("index-pack", "--stdin", "--fix-thin", "--strict", limit, stdin=file)
            for sha in commits:
                # Every object is there, not only the commits.
                tree.git("rev-list", "--objects", "--quiet", f"{sha}^{{commit}}", f"^{tree.base_sha}")
        except (GitError, ProctorError):
            return False
    return True


def renew_repository(tree: "Worktree", sha: str, known: Sequence[str] = ()) -> None:
    """Bring the agent's repository to the state of the control repository: `sha` on the session's branch.

    The agent's repository has the commits `known` and what they reach.
    """
    place, admin = tree.place, _admin(tree)
    _repair(tree)
    _send_objects(tree, sha, known)
    with beneath.opened(place, admin, make=True) as folder:
        for name in beneath.names(folder):
            if _IN_PROGRESS.fullmatch(name) or name in _IN_PROGRESS_FOLDERS:
                beneath.clear(folder, name)
    beneath.write_text(place, f"git/refs/heads/{tree.branch}", f"{sha}\n")
    beneath.write_text(place, admin / "HEAD", f"ref: refs/heads/{tree.branch}\n")
    share_index(tree)


def _send_objects(tree: "Worktree", sha: str, known: Sequence[str]) -> None:
    """Copy the objects of a commit to the agent's repository: copies, since it may change its files."""
    if sha in (tree.base_sha, *known):
        return
    outgoing = tree.control / "outgoing"
    outgoing.mkdir(exist_ok=True)
    revisions = [sha, f"^{tree.base_sha}", *(f"^{each}" for each in known)]
    tree.git(
        "pack-objects",
        "--quiet",
        "--revs",
        "--delta-base-offset",
        str(outgoing / "pack"),
        stdin="".join(f"{line}\n" for line in revisions),
    )
    # The index of a pack last: git takes a pack without one for none.
    for file in sorted(outgoing.iterdir(), key=lambda path: path.suffix == ".idx"):
        beneath.copy_in(file, tree.place, f"git/objects/pack/{file.name}")
        file.unlink()


def disarm(tree: "Worktree") -> list[str]:
    """Leave nothing in a kept worktree that names a program for the user's git to start; notes on the rest.

    Its repository keeps objects, references, reflogs and index. Repositories that the agent made inside the
    tree become plain folders, with their `.git` renamed.
    """
    from proctor.workspace.worktree import configuration

    place, settings = tree.place, tree.file_settings
    _repair(tree)
    names = {name.rpartition(".")[0] for name, _ in settings.filters if not name.startswith("filter.lfs.")}
    # A filter of the user's may be a program that it finds in the tree.
    disabled = [(f"{name}.{key}", "") for name in sorted(names) for key in ("clean", "smudge", "process")]
    disabled += [(f"{name}.required", "false") for name in sorted(names)]
    # The user's own settings may name a folder of hooks that is looked for in the tree.
    disabled += [("core.hooksPath", os.devnull)]
    beneath.write_text(place, "git/config", configuration(tree.source, (*settings.core, *disabled)))
    for entry in beneath.entries(place, "git"):
        if not _KEPT.fullmatch(entry.path):
            entry.remove()
    renamed = list[str]()
    # Again, since a folder that was renamed may itself contain some.
    while more := list(_disable_nested(tree)):
        renamed += more
    if not renamed:
        return []
    return [f"repositories in the kept worktree were disabled: {', '.join(sorted(renamed)[:10])}"]


def _disable_nested(tree: "Worktree") -> Iterable[str]:
    """Rename what makes a folder below `place` a repository to git, besides our own.

    Without HEAD a folder is none. Its settings may be anywhere: `commondir` names another folder for them.
    """
    own = (f"{tree.folder.name}/.git", "git/HEAD", str(_admin(tree) / "HEAD"))
    for entry in beneath.entries(tree.place):
        if entry.path in own:
            continue
        if entry.name.lower() == ".git":
            yield _rename(entry, "nested-repository")
        elif entry.name == "HEAD" and _is_bare(entry):
            yield _rename(entry, "HEAD-of-nested-repository")


def _is_bare(head: beneath.TreeEntry) -> bool:
    """Whether a folder with HEAD looks like a repository to git, although it is not called `.git`."""
    names = set(beneath.names(head.folder))
    return "commondir" in names or {"objects", "refs"} <= names


def _rename(entry: beneath.TreeEntry, name: str) -> str:
    target, number = name, 1
    while target in beneath.names(entry.folder):
        number += 1
        target = f"{name}-{number}"
    os.rename(entry.name, target, src_dir_fd=entry.folder, dst_dir_fd=entry.folder)
    return entry.path
