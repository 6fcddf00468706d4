"""The worktree and repositories of one coding session.

    home/worktrees/<session>/work/<repository's name>/   the tree the agent works in
    home/worktrees/<session>/work/git/                   the repository that the agent sees in that tree
    home/worktrees/<session>/work/home/                  the agent's HOME
    home/worktrees/<session>/work-control/               Proctor's own repository of the tree

Confined programs can change everything below `work`, and nothing else. The agent's repository has its own
branches, stash, settings and locks, no remote, and the history that its base commit reaches, which it borrows
from a store that all sessions with that base share (`base_objects`).

Proctor uses the other one, the control repository, which no confined program sees (`tree_git`). The state of
the agent's repository is read as data (`commit`), and files below `work` are reached without following links
(`beneath`).
"""

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from proctor.errors import WorkspaceError
from proctor.git import Git, GitError
from proctor.workspace import beneath
from proctor.workspace.agent_repository import FILES_OF_SOURCE, make_repository, renew_repository, share_index
from proctor.workspace.base_objects import CONTROL_END, USED_BASE, BaseObjects, base_objects, reopened
from proctor.workspace.folders import remove_folder
from proctor.workspace.large_files import LONGEST_POINTER, keep_object, object_path
from proctor.workspace.nested_repositories import index_submodules
from proctor.workspace.source_repository import (
    SESSION_REFS,
    FileSettings,
    SourceRepository,
    settings_text,
)
from proctor.workspace.tree_git import TreeGit, large_file_settings
from proctor.workspace.user_filters import keep_filtered, restore_filtered

GIT_IDENTITY = """[user]
	name = Proctor agent
	email = agent@proctor.localhost
[safe]
	directory = *
[init]
	defaultBranch = main
[advice]
	detachedHead = false
"""


HOME_FOLDERS = (".config", ".local", ".local/share", ".local/state", ".cache", "tmp")
OWN_NAMES = frozenset({"git", "home", "logs", "check_files", "solution"})
"""Names that Proctor uses beside the worktree."""
WORK = "work"
"""Folder of a session that confined programs can change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worktree:
    """A worktree, the repository that its agent sees, and the control repository."""

    folder: Path
    repository: Path
    """The agent's."""
    control: Path
    branch: str
    base_sha: str
    source: SourceRepository
    base: BaseObjects
    file_settings: FileSettings
    references: Mapping[str, str]
    """Initial references of the agent's repository and their commits."""

    @property
    def place(self) -> Path:
        """The folder of all that confined programs can change; itself ours."""
        return self.folder.parent

    @property
    def admin(self) -> Path:
        """Administrative folder of the worktree in the agent's repository: HEAD, index, an open merge."""
        return self.repository / "worktrees" / self.folder.name

    @property
    def settings(self) -> str:
        """Original configuration of the agent's repository, whose programs may change the file."""
        return configuration(self.source, (*self.file_settings.core, *self.file_settings.filters))

    @property
    def git(self) -> TreeGit:
        """git in this worktree with the control repository."""
        git = self.source.git
        return TreeGit(self.folder, git.environment, root=self.place, control=self.control)

    def inside(self, path: Path) -> PurePosixPath:
        """A path below `place`, relative to it."""
        return PurePosixPath(path.relative_to(self.place))


def session_folder(home: Path, session: str) -> Path:
    """Folder of everything that a session has on the disk."""
    name = session.replace("/", "-")
    if not name.strip("."):
        # It would be the folder of all sessions, or its parent.
        raise ValueError(f"{session!r} is not a valid session ID")
    return home / "worktrees" / name


def make_tree(
    path: Path,
    source: SourceRepository,
    branch: str,
    base_sha: str,
    references: Mapping[str, str],
    *,
    base: BaseObjects | None = None,
) -> Worktree:
    """Create the repositories of a session and an empty worktree in `path`; `fill` writes the files.

    The agent sees those of the `references` that are branches, and the tags that the base reaches. `base` is
    the store of its objects if it is known.
    """
    # git stores resolved paths; these must match.
    path = path.resolve()
    control = path.with_name(f"{path.name}{CONTROL_END}")
    for folder in (path, control):
        # Left by an earlier process that died in this attempt.
        remove_folder(folder)
        folder.mkdir(parents=True)
    base = base or base_objects(_bases(path), source, base_sha, references)
    tree = Worktree(
        folder=path / tree_name(source),
        repository=path / "git",
        control=control,
        branch=branch,
        base_sha=base_sha,
        source=source,
        base=base,
        file_settings=source.settings(),
        references={
            **{name: sha for name, sha in references.items() if not name.startswith("refs/tags/")},
            **base.tags,
        },
    )
    make_control(tree)
    beneath.make_folder(path, tree.folder.name)
    make_repository(tree)
    return tree


def reopen_tree(folder: Path, source: SourceRepository, branch: str, base_sha: str) -> Worktree:
    """The worktree that an earlier process has made in the folder of a session, or in this place."""
    folder = folder.resolve()
    # Earlier versions had the tree in the folder of the session, and no control repository.
    path = folder / WORK if beneath.is_folder(folder, WORK) else folder
    control = path.with_name(f"{path.name}{CONTROL_END}")
    if path == folder and folder.parent.name == "worktrees":
        control = folder / f"{WORK}{CONTROL_END}"
        # A program could write there.
        beneath.remove(folder, control.name)
    return Worktree(
        folder=path / tree_name(source),
        repository=path / "git",
        control=control,
        branch=branch,
        base_sha=base_sha,
        source=source,
        base=reopened(control) or base_objects(_bases(path), source, base_sha, {}),
        file_settings=source.settings(),
        references={},
    )


def _bases(path: Path) -> Path:
    """The folder of base stores in the home that contains a session's folder."""
    home = next((parent.parent for parent in path.parents if parent.name == "worktrees"), path.parent)
    return home / "bases"


def tree_name(source: SourceRepository) -> str:
    """Folder name of the worktree: the repository's name, unless another folder has it."""
    safe = "".join(c if c.isalnum() or c in "._-" else "-" for c in source.name).strip(".-")
    # git does not allow these in the name of its administrative folder.
    safe = safe.replace("..", "-").removesuffix(".lock")
    return safe if safe and safe not in OWN_NAMES else f"{safe or 'repository'}-tree"


def visible_references(references: Mapping[str, str], base: str, base_sha: str) -> dict[str, str]:
    """The references a session may see: the base branch, and of the tags, which builds use, those it reaches.

    Other branches may contain solutions of other sessions.
    """
    visible = {name: sha for name, sha in references.items() if name.startswith("refs/tags/")}
    if {f"refs/heads/{base}", f"refs/remotes/origin/{base}"} & references.keys():
        visible[f"refs/heads/{base}"] = base_sha
    return visible


def make_control(tree: Worktree) -> None:
    """Write the files of the control repository, on the session's branch at its base."""
    control = tree.control
    branch = control / "refs/heads" / tree.branch
    for folder in (control / "objects/info", control / "objects/pack", control / "info", branch.parent):
        folder.mkdir(parents=True, exist_ok=True)
    files = {
        "HEAD": f"ref: refs/heads/{tree.branch}\n",
        "config": configuration(tree.source),
        "objects/info/alternates": tree.base.alternates,
        f"refs/heads/{tree.branch}": f"{tree.base_sha}\n",
        USED_BASE: os.fspath(tree.base.place),
        **({"shallow": tree.base.shallow} if tree.base.shallow else {}),
    }
    for name, text in files.items():
        (control / name).write_text(text, errors="surrogateescape")
    for file in FILES_OF_SOURCE:
        if (tree.source.common / file).is_file():
            shutil.copyfile(tree.source.common / file, control / file)


def _control_settings(tree: Worktree) -> str:
    """The configuration of the control repository for all but `fill`: no filter but our own."""
    settings = tree.file_settings
    text = configuration(tree.source, (*settings.core, *settings.files))
    if not settings.has_large_files:
        return text
    users = Path(tree.source.git.line("config", "--path", "lfs.storage") or "lfs")
    stores = [tree.control / "lfs/objects", tree.source.common / users / "objects"]
    return text + large_file_settings(stores)


def fill(tree: Worktree) -> None:
    """Write the files of the base commit. This is the slow part.

    With the user's filters, as a checkout of the user's would have them, unless the commit is the work of a
    session: filters may be programs in the tree.
    """
    settings, git, config = tree.file_settings, tree.git, tree.control / "config"
    try:
        if settings.filters and not tree.source.is_session_work(tree.base_sha):
            git = git.with_user_filters(dict((*settings.core, *settings.filters)))
        else:
            config.write_text(_control_settings(tree), errors="surrogateescape")
        git("reset", "--hard", "--quiet", tree.base_sha)
        config.write_text(_control_settings(tree), errors="surrogateescape")
        keep_filtered(tree)
        share_index(tree)
    except GitError as error:
        raise WorkspaceError(f"filling the work tree of {tree.source.root}: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Submodules:
    """Submodules of a worktree, by their path."""

    filled: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()
    """Those whose files are not on this machine."""


def fill_all(tree: Worktree) -> Submodules:
    """Write the files of the base commit and of its submodules, as far as the user's checkout has those."""
    fill(tree)
    if not (tree.folder / ".gitmodules").exists():
        return Submodules()
    filled, empty = list[str](), list[str]()
    _fill_submodules(tree.git, tree, Path(), filled, empty)
    index_submodules(tree)
    return Submodules(filled=tuple(filled), empty=tuple(empty))


def _fill_submodules(git: Git, tree: Worktree, below: Path, filled: list[str], empty: list[str]) -> None:
    """Fill the submodules of the index of `git`, whose files are in the folder `below` of the worktree.

    As plain files: a repository of their own, which an agent could give settings, is not needed to read them.
    """
    for entry in git("ls-files", "--stage", "-z").split("\0"):
        if not entry.startswith("160000 "):
            continue
        about, _, name = entry.partition("\t")
        path, sha = below / name, about.split()[1]
        source, target = tree.source.root / path, tree.folder / path
        # Neither side may lead elsewhere by a link.
        is_inside = target.resolve() == target and source.resolve() == tree.source.root.resolve() / path
        own_git = tree.source.git.at(source) if is_inside and (source / ".git").exists() else None
        if own_git is None or not own_git.commit_of(sha):
            empty.append(str(path))
            continue
        index = tree.control / f"submodule-{len(filled)}.index"
        target.mkdir(parents=True, exist_ok=True)
        directory = own_git.line("rev-parse", "--path-format=absolute", "--git-dir")
        checkout = own_git.at(target, GIT_DIR=directory, GIT_WORK_TREE=str(target), GIT_INDEX_FILE=str(index))
        try:
            checkout("read-tree", sha)
            checkout("checkout-index", "--all", "--force")
            filled.append(str(path))
            _fill_submodules(checkout, tree, path, filled, empty)
        except GitError:
            empty.append(str(path))
        finally:
            index.unlink(missing_ok=True)


def settle(tree: Worktree) -> list[str]:
    """Make a tree safe to open after confined programs have run in it; notes on what was in the way.

    A worktree that is no longer a folder is made again, empty. Pipes, sockets and devices, at which git would
    wait, are removed.
    """
    notes = list[str]()
    if beneath.make_folder(tree.place, tree.folder.name):
        notes.append("the agent removed its work tree")
    special = list[str]()
    for entry in beneath.entries(tree.place, tree.folder.name):
        if not (entry.is_folder or entry.is_file or entry.is_link):
            entry.remove()
            special.append(entry.name)
    if special:
        names = ", ".join(sorted(special)[:10])
        notes.append(f"the agent left links or pipes where git reads; they were removed: {names}")
    return notes


def restore(tree: Worktree) -> None:
    """Bring the files back to the base commit; ignored files, such as those of setup, stay."""
    settle(tree)
    try:
        tree.git("reset", "--hard", "--quiet", tree.base_sha)
        tree.git("clean", "-d", "--force", "--quiet")
        restore_filtered(tree)
    except GitError as error:
        raise WorkspaceError(f"restoring the work tree of {tree.source.root}: {error}") from error
    renew_repository(tree, tree.base_sha)


def restore_files(tree: Worktree, paths: Iterable[str]) -> None:
    """Remove files, then bring all files of the last commit back as they are in it."""
    settle(tree)
    for path in paths:
        beneath.remove(tree.place, PurePosixPath(tree.folder.name) / path)
    tree.git("checkout", "--quiet", "HEAD", "--", ".")
    restore_filtered(tree)


def ignore_untracked(tree: Worktree) -> list[str]:
    """Make git ignore the untracked files that setup created; returns their names."""
    settle(tree)
    flags = ("--porcelain", "-z", "--no-renames", "--untracked-files=normal", "--ignore-submodules=all")
    listed = tree.git("status", *flags).split("\0")
    names = [entry[3:] for entry in listed if entry.startswith("??")]
    with (tree.control / "info/exclude").open("a", errors="surrogateescape") as patterns:
        patterns.writelines(f"/{_literal(name)}\n" for name in names if "\n" not in name)
    beneath.copy_in(tree.control / "info/exclude", tree.place, "git/info/exclude")
    return names


def _literal(name: str) -> str:
    """A name as an ignore pattern that matches only itself."""
    return re.sub(r"([\\*?\[\]! #])", r"\\\1", name)


def bring_commit(tree: Worktree, sha: str) -> None:
    """Copy a commit of the user's repository, and what it adds to the base, to the control repository."""
    if not tree.git.commit_of(sha):
        revisions = f"{sha}\n^{tree.base_sha}\n"
        pack = tree.source.git.binary("pack-objects", "--quiet", "--revs", "--stdout", stdin=revisions)
        tree.git("index-pack", "--stdin", stdin=pack)


def publish(tree: Worktree) -> None:
    """Copy the session's branch to the user's repository; nothing else there changes."""
    reference = f"refs/heads/{tree.branch}"
    if not reference.startswith(SESSION_REFS):
        raise WorkspaceError(f"{tree.branch} is not a session branch: it is not under batch/")
    quietly = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--no-prune")
    arguments = (*quietly, "--no-recurse-submodules", str(tree.control))
    lock = tree.source.common / f"{reference}.lock"
    try:
        # Of a git that was killed: only this attempt writes its branch.
        lock.unlink(missing_ok=True)
        if tree.source.git.run("fetch", *arguments, f"{reference}:{reference}")[0] != 0:
            lock.unlink(missing_ok=True)
            # The agent has rewritten what was published, unless somebody else has moved the branch.
            tip = tree.source.git.commit_of(reference)
            if tip and tree.git.run("cat-file", "-e", tip)[0] != 0:
                problem = f"{tree.branch} was changed by another program; the work is in {tree.folder}"
                raise WorkspaceError(problem, reason="publish_failed")
            tree.source.git("fetch", *arguments, f"+{reference}:{reference}")
    except (GitError, OSError) as error:
        problem = f"copying {tree.branch} to {tree.source.root}: {error}"
        raise WorkspaceError(problem, reason="publish_failed") from error
    if (tree.control / "lfs/objects").is_dir() or beneath.is_folder(tree.place, "git/lfs/objects"):
        _publish_large_files(tree)


_POINTER = re.compile(r"^oid sha256:([0-9a-f]{64})$", re.MULTILINE)


def _publish_large_files(tree: Worktree) -> None:
    """Copy the objects of git-lfs that the session's commits point to, which git does not copy."""
    git = tree.source.git
    tip = f"refs/heads/{tree.branch}"
    try:
        listed = git("rev-list", "--objects", "--no-object-names", tip, f"^{tree.base_sha}")
        about = git("cat-file", "--batch-check=%(objecttype) %(objectsize) %(objectname)", stdin=listed)
        rows = (line.split() for line in about.splitlines())
        small = [name for kind, size, name in rows if kind == "blob" and int(size) <= LONGEST_POINTER]
        contents = git("cat-file", "--batch", stdin="".join(f"{name}\n" for name in small))
        store = git.line("config", "--path", "lfs.storage") or "lfs"
        for digest in sorted(set(_POINTER.findall(contents))):
            _copy_large_file(tree, tree.source.common / store / "objects", digest)
    except (GitError, OSError, ValueError) as error:
        problem = f"copying large files of {tree.branch} to {tree.source.root}: {error}"
        raise WorkspaceError(problem, reason="publish_failed") from error


def _copy_large_file(tree: Worktree, store: Path, digest: str) -> None:
    """Copy an object under its digest, if we or the agent have it and it is what it says."""
    path = object_path(digest)
    if (store / path).exists():
        return
    if (own := tree.control / "lfs/objects" / path).is_file():
        with own.open("rb") as content:
            keep_object(content, store, digest)
    elif (agents := beneath.open_file(tree.place, PurePosixPath("git/lfs/objects") / path)) is not None:
        with agents:
            keep_object(agents, store, digest)


def remove_home(home: Path) -> None:
    """Remove the home of a worker on another machine, unless it has worktrees: they need the rest."""
    worktrees = home / "worktrees"
    if not worktrees.is_dir() or not any(worktrees.iterdir()):
        remove_folder(home)


def configuration(source: SourceRepository, settings: Iterable[tuple[str, str]] = ()) -> str:
    """The git configuration of a bare repository with the objects of `source` and these settings."""
    version = 1 if source.object_format != "sha1" else 0
    text = f"[core]\n\trepositoryformatversion = {version}\n\tbare = true\n\tlogAllRefUpdates = true\n"
    if version:
        text += f"[extensions]\n\tobjectFormat = {source.object_format}\n"
    # Maintenance would copy the shared objects, or run on after the agent has ended.
    return text + "[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n" + settings_text(settings)


def make_home(home: Path) -> None:
    """Create a HOME with a git identity."""
    for folder in ("", *HOME_FOLDERS):
        (home / folder).mkdir(parents=True, exist_ok=True)
    (home / ".gitconfig").write_text(GIT_IDENTITY)
