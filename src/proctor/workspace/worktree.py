"""The worktree and repository of one coding session.

    home/worktrees/<session>/<repository's name>/   the tree the agent works in
    home/worktrees/<session>/git/                   the repository that tree belongs to
    home/worktrees/<session>/home/                  the agent's HOME

The worktree belongs to a repository created for this session alone. It shares the objects of the user's
repository (git alternates), so creating it copies nothing; branches, stash, settings and locks are its own.
git commands of an agent therefore affect neither the user's repository nor other sessions, and many
sessions can start at once. It has no remote to push to.

A sealed repository shares nothing: it has its own copy of the objects that its base commit reaches, and no
other reference, so that git cannot show an agent what came later.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from proctor.errors import WorkspaceError
from proctor.git import Git, GitError
from proctor.workspace.source_repository import SESSION_REFS, SourceRepository

_GIT_IDENTITY = """[user]
	name = Proctor agent
	email = agent@proctor.localhost
[safe]
	directory = *
[init]
	defaultBranch = main
[advice]
	detachedHead = false
"""


OWN_NAMES = frozenset(
    {"git", "home", "logs", "check_files", "solution", "nested", "judged"}
    | {"tree-aside", "removed-link", "agents-git", "agents-settings"}
)
"""Names that Proctor uses beside the worktree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worktree:
    """A worktree and the repository it belongs to."""

    folder: Path
    repository: Path
    branch: str
    base_sha: str
    source: SourceRepository
    settings: str
    """Original configuration of the repository; an agent may change the file."""
    references: Mapping[str, str]
    """Initial references of the repository and their commits."""
    is_sealed: bool = False
    """Whether the repository has its own objects, only those that the base commit reaches."""

    @property
    def admin(self) -> Path:
        """Administrative folder of the worktree: HEAD, index, a merge in progress."""
        return self.repository / "worktrees" / self.folder.name

    @property
    def git(self) -> Git:
        """git in this worktree, even if its `.git` link is broken."""
        places = {"GIT_DIR": str(self.admin), "GIT_WORK_TREE": str(self.folder)}
        # An agent could replace the commit that its changes are compared with.
        return self.source.git.at(self.folder, **places, GIT_NO_REPLACE_OBJECTS="1")


def session_folder(home: Path, session: str) -> Path:
    """Folder of a session's worktree, repository and HOME."""
    name = session.replace("/", "-")
    if not name.strip("."):
        # It would be the folder of all sessions, or its parent.
        raise ValueError(f"{session!r} is not a valid session ID")
    return home / "worktrees" / name


def make_tree(
    place: Path,
    source: SourceRepository,
    branch: str,
    base_sha: str,
    references: Mapping[str, str],
    *,
    sealed: bool = False,
) -> Worktree:
    """Create a session's repository and an empty worktree; `fill` writes the files.

    A sealed one has none of the `references`.
    """
    # git stores resolved paths; these must match.
    place = place.resolve()
    if place.exists():
        # Left by an earlier process that died in this attempt.
        remove_folder(place)
    place.mkdir(parents=True)
    tree = Worktree(
        folder=place / tree_name(source),
        repository=place / "git",
        branch=branch,
        base_sha=base_sha,
        source=source,
        settings=configuration(source),
        references={} if sealed else references,
        is_sealed=sealed,
    )
    make_repository(tree)
    add_tree(tree)
    return tree


def reopen_tree(place: Path, source: SourceRepository, branch: str, base_sha: str) -> Worktree:
    """The worktree that an earlier process has made in `place`."""
    place = place.resolve()
    return Worktree(
        folder=place / tree_name(source),
        repository=place / "git",
        branch=branch,
        base_sha=base_sha,
        source=source,
        settings=configuration(source),
        references={},
    )


def tree_name(source: SourceRepository) -> str:
    """Folder name of the worktree: the repository's name, unless another folder has it."""
    safe = "".join(c if c.isalnum() or c in "._-" else "-" for c in source.name).strip(".-")
    # git does not allow these in the name of its administrative folder.
    safe = safe.replace("..", "-").removesuffix(".lock")
    return safe if safe and safe not in OWN_NAMES else f"{safe or 'repository'}-tree"


def visible_references(references: Mapping[str, str], base: str, base_sha: str) -> dict[str, str]:
    """The references a session sees: the base branch, and tags, which builds use.

    Other branches may contain solutions of other sessions.
    """
    visible = {name: sha for name, sha in references.items() if name.startswith("refs/tags/")}
    if {f"refs/heads/{base}", f"refs/remotes/origin/{base}"} & references.keys():
        visible[f"refs/heads/{base}"] = base_sha
    return visible


def make_repository(tree: Worktree) -> None:
    """Write the files of the session's repository, with the user's repository as alternate unless sealed."""
    repository, source = tree.repository, tree.source
    for folder in ("objects/info", "objects/pack", "refs/heads", "info"):
        (repository / folder).mkdir(parents=True, exist_ok=True)
    (repository / "HEAD").write_text("ref: refs/heads/none\n")
    (repository / "config").write_text(tree.settings)
    if tree.is_sealed:
        _copy_objects(tree)
    alternates = repository / "objects/info/alternates"
    alternates.write_text(alternates_text(tree), errors="surrogateescape")
    packed = "".join(f"{sha} {name}\n" for name, sha in sorted(tree.references.items()))
    (repository / "packed-refs").write_text(packed)
    for file in ("shallow", "info/exclude", "info/attributes"):
        if (source.common / file).is_file():
            shutil.copyfile(source.common / file, repository / file)
    if tree.is_sealed and (repository / "shallow").is_file():
        # Of the commits where a shallow history ends, name only those of this one.
        ends = (repository / "shallow").read_text().split()
        git = source.git.at(repository, GIT_DIR=str(repository))
        own = [end for end in ends if git.run("cat-file", "-e", end)[0] == 0]
        (repository / "shallow").write_text("".join(f"{end}\n" for end in own))


def _copy_objects(tree: Worktree) -> None:
    """Copy the objects that the base commit reaches, and no other, into the session's repository."""
    pack = tree.repository / "objects/pack/pack"
    try:
        tree.source.git("pack-objects", "--quiet", "--revs", str(pack), stdin=f"{tree.base_sha}\n")
    except GitError as error:
        raise WorkspaceError(f"copying the history of {tree.source.root}: {error}") from error


def alternates_text(tree: Worktree) -> str:
    """The folders of objects that a session borrows, as git's list of alternates; none if it is sealed."""
    folders = [] if tree.is_sealed else tree.source.object_folders()
    return "".join(f"{_quoted(folder)}\n" for folder in folders)


def add_tree(tree: Worktree) -> None:
    """Add an empty worktree on the session's branch.

    Writes the files that `git worktree add --no-checkout` writes, which starts four processes for it.
    """
    branch = tree.repository / "refs/heads" / tree.branch
    for folder in (tree.admin, branch.parent):
        folder.mkdir(parents=True, exist_ok=True)
    tree.folder.mkdir(parents=True)
    branch.write_text(f"{tree.base_sha}\n")
    (tree.admin / "HEAD").write_text(f"ref: refs/heads/{tree.branch}\n")
    (tree.admin / "commondir").write_text("../..\n")
    (tree.admin / "gitdir").write_text(f"{tree.folder}/.git\n")
    (tree.folder / ".git").write_text(f"gitdir: {tree.admin}\n")


def fill(tree: Worktree) -> None:
    """Write the files of the base commit. This is the slow part."""
    try:
        tree.git("reset", "--hard", "--quiet", tree.base_sha)
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
        own = tree.source.git.at(source) if is_inside and (source / ".git").exists() else None
        if own is None or not own.commit_of(sha):
            empty.append(str(path))
            continue
        index = tree.repository / f"submodule-{len(filled)}.index"
        target.mkdir(parents=True, exist_ok=True)
        directory = own.line("rev-parse", "--path-format=absolute", "--git-dir")
        checkout = own.at(target, GIT_DIR=directory, GIT_WORK_TREE=str(target), GIT_INDEX_FILE=str(index))
        try:
            checkout("read-tree", sha)
            checkout("checkout-index", "--all", "--force")
            filled.append(str(path))
            _fill_submodules(checkout, tree, path, filled, empty)
        except GitError:
            empty.append(str(path))
        finally:
            index.unlink(missing_ok=True)


def restore(tree: Worktree) -> None:
    """Bring the files back to the base commit; ignored files, such as those of setup, stay."""
    try:
        tree.git("reset", "--hard", "--quiet", tree.base_sha)
        tree.git("clean", "-d", "--force", "--quiet")
    except GitError as error:
        raise WorkspaceError(f"restoring the work tree of {tree.source.root}: {error}") from error


def ignore_untracked(tree: Worktree) -> list[str]:
    """Make git ignore the untracked files that setup created; returns their names."""
    flags = ("--porcelain", "-z", "--no-renames", "--untracked-files=normal", "--ignore-submodules=all")
    listed = tree.git("status", *flags).split("\0")
    names = [entry[3:] for entry in listed if entry.startswith("??")]
    with (tree.repository / "info/exclude").open("a") as patterns:
        patterns.writelines(f"/{_literal(name)}\n" for name in names if "\n" not in name)
    return names


def _literal(name: str) -> str:
    """A name as an ignore pattern that matches only itself."""
    return re.sub(r"([\\*?\[\]! #])", r"\\\1", name)


def publish(tree: Worktree) -> None:
    """Copy the session's branch to the user's repository; nothing else there changes."""
    reference = f"refs/heads/{tree.branch}"
    if not reference.startswith(SESSION_REFS):
        raise WorkspaceError(f"{tree.branch} is not a session branch: it is not under batch/")
    quietly = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--no-prune")
    arguments = (*quietly, "--no-recurse-submodules", str(tree.repository), f"+{reference}:{reference}")
    try:
        tree.source.git("fetch", *arguments)
    except GitError as error:
        problem = f"copying {tree.branch} to {tree.source.root}: {error}"
        raise WorkspaceError(problem, reason="publish_failed") from error
    if (tree.repository / "lfs/objects").is_dir():
        _publish_large_files(tree)


_POINTER = re.compile(r"^oid sha256:([0-9a-f]{64})$", re.MULTILINE)
_LONGEST_POINTER = 1024
"""Bytes; git-lfs takes no longer file for a pointer."""


def _publish_large_files(tree: Worktree) -> None:
    """Copy the objects of git-lfs that the session's commits point to, which git does not copy."""
    git = tree.source.git
    tip = f"refs/heads/{tree.branch}"
    try:
        listed = git("rev-list", "--objects", "--no-object-names", tip, f"^{tree.base_sha}")
        about = git("cat-file", "--batch-check=%(objecttype) %(objectsize) %(objectname)", stdin=listed)
        rows = (line.split() for line in about.splitlines())
        small = [name for kind, size, name in rows if kind == "blob" and int(size) <= _LONGEST_POINTER]
        contents = git("cat-file", "--batch", stdin="".join(f"{name}\n" for name in small))
        store = git.line("config", "--path", "lfs.storage") or "lfs"
        for digest in sorted(set(_POINTER.findall(contents))):
            place = Path("objects", digest[:2], digest[2:4], digest)
            _copy_large_file(tree.repository / "lfs" / place, tree.source.common / store / place, digest)
    except (GitError, OSError, ValueError) as error:
        problem = f"copying large files of {tree.branch} to {tree.source.root}: {error}"
        raise WorkspaceError(problem, reason="publish_failed") from error


def _copy_large_file(file: Path, target: Path, digest: str) -> None:
    """Copy an object under its digest, if the agent has it and it is what it says."""
    if target.exists() or file.resolve() != file or not file.is_file():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{digest}.{os.getpid()}.part")
    shutil.copyfile(file, partial, follow_symlinks=False)
    with partial.open("rb") as opened:
        is_whole = hashlib.file_digest(opened, "sha256").hexdigest() == digest
    if is_whole:
        partial.rename(target)
    else:
        partial.unlink()


def remove_folder(folder: Path) -> str:
    """Remove a folder, including unwritable files; returns why it could not be removed, or an empty text."""
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


def remove_home(home: Path) -> None:
    """Remove the home of a worker on another machine, unless it has worktrees: they need the rest."""
    worktrees = home / "worktrees"
    if not worktrees.is_dir() or not any(worktrees.iterdir()):
        remove_folder(home)


def _make_writable(folder: Path) -> None:
    """Make all folders writable."""
    folder.chmod(0o700)
    for parent, names, _ in os.walk(folder):
        for path in (Path(parent) / name for name in names):
            if not path.is_symlink():
                path.chmod(0o700)


def configuration(source: SourceRepository) -> str:
    """The git configuration of a bare repository with the objects of `source`."""
    version = 1 if source.object_format != "sha1" else 0
    text = f"[core]\n\trepositoryformatversion = {version}\n\tbare = true\n\tlogAllRefUpdates = true\n"
    if version:
        text += f"[extensions]\n\tobjectFormat = {source.object_format}\n"
    # Maintenance would copy the shared objects, or run on after the agent has ended.
    return text + "[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n" + source.settings()


def _quoted(folder: Path) -> str:
    text = os.fspath(folder)
    if "\n" not in text and not text.startswith('"'):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def make_home(home: Path) -> None:
    """Create a HOME with a git identity."""
    for folder in ("", ".config", ".local/share", ".local/state", ".cache", "tmp"):
        (home / folder).mkdir(parents=True, exist_ok=True)
    (home / ".gitconfig").write_text(_GIT_IDENTITY)
