"""The user's repository that a coding session starts from.

Sessions only read it. Proctor writes new branches under `batch/`, and the base branch if the plan merges.
Fingerprints before and after a session show whether anything else changed.
"""

import asyncio
import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from proctor.errors import WorkspaceError
from proctor.formatting import clipped, plural
from proctor.git import Git, GitError, is_address
from proctor.processes import undisturbed
from proctor.workspace.locks import file_lock

SESSION_REFS = "refs/heads/batch/"
"""Namespace of session branches: the only references that sessions write."""
FETCHING_SECONDS = 3600.0
"""For the files of a very large repository, once."""
COPY_FILE = "proctor-copy.json"
"""In a copy of a repository on another machine than the driver's: what it is a copy of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOf:
    """What a copy of a repository on another machine knows of the original."""

    bases: Mapping[str, str]
    """Commits of the names that sessions start from."""
    is_inside: bool
    """Whether the plan names a folder below the top folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRepository:
    """A repository of the user's."""

    root: Path
    """Top folder of its checkout; for a bare repository, the repository. Of a copy: that of the original, on
    the driver's machine."""
    common: Path
    """Folder of its objects, references and settings, also if `root` is a linked worktree."""
    object_format: str
    """`sha1` or `sha256`."""
    git: Git
    copy: CopyOf | None = None
    """None: the user's own repository, on this machine."""

    @property
    def name(self) -> str:
        """Its folder name."""
        return self.root.name.removesuffix(".git") or "repository"

    @property
    def key(self) -> str:
        """Unique name of Proctor's files about it."""
        digest = hashlib.sha256(os.fsencode(self.common)).hexdigest()[:12]
        return re.sub(r"[^A-Za-z0-9._-]+", "-", self.name)[:40] + "-" + digest

    def base_commit(self, name: str) -> str:
        """The commit a session starts from: a branch, one of origin's, a tag or a commit id."""
        if self.copy and name in self.copy.bases:
            return self.copy.bases[name]
        for candidate in (f"refs/heads/{name}", f"refs/remotes/origin/{name}", f"refs/tags/{name}", name):
            if sha := self.git.commit_of(candidate):
                return sha
        branches = ", ".join(self.git.branches()) or "none: it has no commit yet"
        raise WorkspaceError(f"{self.root} has no branch, tag or commit `{name}`. Branches: {branches}")

    def base_remark(self, name: str) -> str:
        """Which commit sessions start from, where that is not what the checkout shows; empty: it is."""
        git = self.git
        if self.root == self.common:
            return ""
        head = git.line("symbolic-ref", "--quiet", "--short", "HEAD")
        flags = ("--porcelain", "--untracked-files=no", "--ignore-submodules=dirty")
        sha, differences = self.base_commit(name), list[str]()
        if head != name:
            commit = git.commit_of("HEAD")
            # A tag or commit that is checked out is what the checkout shows.
            if commit != sha or git.commit_of(f"refs/heads/{name}"):
                differences.append(f"{head} is checked out" if head else f"HEAD is detached at {commit[:12]}")
        if git.line("status", *flags):
            differences.append("uncommitted changes are not included")
        return (
            f"{self.root}: sessions start from {name} ({sha[:12]}); {', '.join(differences)}"
            if differences
            else ""
        )

    @property
    def is_partial(self) -> bool:
        """Whether git may have left objects where it cloned the repository from."""
        return any(next((folder / "pack").glob("*.promisor"), None) for folder in self.object_folders())

    def missing_objects(self, sha: str) -> list[str]:
        """Files and folders of a commit that a partial clone has not fetched yet. Blocks."""
        if not self.is_partial:
            return []
        listed = self.git("rev-list", "--objects", "--missing=print", f"{sha}^{{tree}}")
        return [line[1:] for line in listed.splitlines() if line.startswith("?")]

    def fetch_missing(self, sha: str) -> None:
        """Fetch what a partial clone lacks of a commit, as git does for a checkout. Blocks."""
        flags = ("--no-tags", "--no-write-fetch-head", "--recurse-submodules=no", "--filter=blob:none")
        git = replace(self.git, time_limit=FETCHING_SECONDS)
        # A folder that is missing hides what is in it.
        while missing := self.missing_objects(sha):
            setting = ("-c", "fetch.negotiationAlgorithm=noop")
            git(
                *setting,
                "fetch",
                "--quiet",
                self.promisor,
                *flags,
                "--stdin",
                stdin="\n".join(missing) + "\n",
            )

    @property
    def promisor(self) -> str:
        """The remote that has what a partial clone lacks."""
        listed = self.git.line("config", "--get-regexp", r"^remote\..*\.promisor$", "true")
        named = listed.partition(" ")[0].removeprefix("remote.").removesuffix(".promisor")
        return self.git.line("config", "extensions.partialClone") or named or "origin"

    def partial_problem(self, name: str) -> str:
        """Why files of a base that a partial clone lacks cannot be fetched; empty: they can."""
        missing = self.missing_objects(self.base_commit(name)) if self.is_partial else []
        if not missing:
            return ""
        exit_code, _, stderr = self.git.run("ls-remote", "--quiet", self.promisor, "HEAD")
        if exit_code == 0:
            return ""
        return (
            f"{self.root} is a partial clone that lacks {plural(len(missing), 'file')} of `{name}`, "
            f"and its remote `{self.promisor}` cannot be read: {clipped(stderr.strip(), 300)}"
        )

    def write_problem(self) -> str:
        """Why session branches cannot be added; empty: they can."""
        for name in ("objects", "refs/heads"):
            if not os.access(self.common / name, os.W_OK | os.X_OK):
                return f"{self.common / name} cannot be written"
        if self.git.run("rev-parse", "--verify", "--quiet", "refs/heads/batch")[0] == 0:
            return f"{self.root} has a branch `batch`, so git allows none called `batch/…`"
        return ""

    def all_references(self) -> dict[str, str]:
        """All references and their objects."""
        listed = self.git("for-each-ref", "--format=%(objectname) %(refname)")
        pairs = (line.split(" ", 1) for line in listed.splitlines())
        return {name: sha for sha, name in pairs}

    def check_names(self, references: Mapping[str, str]) -> None:
        """Raise `WorkspaceError` if the repository can have no session branches."""
        if SESSION_REFS.rstrip("/") in references:
            raise WorkspaceError(f"{self.root} has a branch `batch`, so git allows none called `batch/…`")

    def create_branch(self, name: str, sha: str) -> bool:
        """Create a session's branch; False if there is one of this name already."""
        reference = f"refs/heads/{name}"
        # An empty old value: it must not exist.
        exit_code, _, problem = self.git.run("update-ref", reference, sha, "")
        if exit_code and not self.git.commit_of(reference):
            raise WorkspaceError(f"creating {name} in {self.root}: {problem.strip()}")
        return exit_code == 0

    def remove_branch(self, name: str, sha: str) -> None:
        """Remove a session's branch, if it is still where it was created."""
        self.git.run("update-ref", "-d", f"refs/heads/{name}", sha)

    def references(self) -> dict[str, str]:
        """All references except session branches, and their objects."""
        return own_references(self.all_references())

    def object_folders(self) -> list[Path]:
        """Its object folder, then those of its alternates, recursively.

        git does not follow relative alternates of an alternate, so all are listed.
        """
        folders: list[Path] = []
        waiting = [self.common / "objects"]
        while waiting:
            folder = waiting.pop(0)
            if folder in folders:
                continue
            folders.append(folder)
            waiting.extend(_borrowed_by(folder))
        return folders

    def settings(self) -> "FileSettings":
        """Its settings that affect checked-out files."""
        # Includes the user's global settings, because the agent has another HOME.
        core = "autocrlf|eol|safecrlf|filemode|symlinks|ignorecase|precomposeunicode"
        users = r"core\.(excludesfile|attributesfile)"
        listed = self.git.run("config", "-z", "--get-regexp", rf"^(core\.({core})|{users}|filter\..*)$")[1]
        pairs = [entry.partition("\n")[::2] for entry in listed.split("\0") if entry]
        return FileSettings(
            core=tuple(pair for pair in pairs if not re.fullmatch(rf"{users}|filter\..*", pair[0])),
            files=tuple(pair for pair in pairs if re.fullmatch(users, pair[0])),
            filters=tuple(pair for pair in pairs if pair[0].startswith("filter.")),
        )

    def is_session_work(self, sha: str) -> bool:
        """Whether only branches of sessions reach a commit: an agent may have written it."""
        listed = self.git("for-each-ref", "--format=%(refname)", f"--contains={sha}")
        return not any(not name.startswith(SESSION_REFS) for name in listed.splitlines())


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSettings:
    """Settings that affect checked-out files, as pairs of a name and a value."""

    core: Sequence[tuple[str, str]] = ()
    files: Sequence[tuple[str, str]] = ()
    """Those that name the user's own lists of ignored files and attributes."""
    filters: Sequence[tuple[str, str]] = ()
    """Programs that change files as git reads and writes them."""

    @property
    def has_large_files(self) -> bool:
        """Whether git-lfs is set up."""
        return any(name.startswith("filter.lfs.") for name, _ in self.filters)


def settings_text(pairs: Iterable[tuple[str, str]]) -> str:
    """Settings as a git configuration."""
    return "".join(_setting(name, value) for name, value in pairs)


async def open_repository(repo: str, environment: Mapping[str, str], home: Path) -> SourceRepository:
    """The repository at a path, or the mirror of an address below Proctor's home, which is made once."""
    if not is_address(repo):
        return await undisturbed(asyncio.to_thread(open_source, Path(repo), environment))
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", repo.rstrip("/").rpartition("/")[2].removesuffix(".git")).strip(
        ".-"
    )
    digest = hashlib.sha256(repo.encode()).hexdigest()[:12]
    path = home / "mirrors" / digest / f"{name or 'repository'}.git"
    async with file_lock(home / "mirrors" / f"{digest}.lock"):
        if not path.is_dir():
            await undisturbed(asyncio.to_thread(_clone, repo, path, environment))
    return await undisturbed(asyncio.to_thread(open_source, path, environment))


def _clone(address: str, path: Path, environment: Mapping[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"making-{uuid.uuid4().hex[:12]}")
    try:
        git = Git(path.parent, environment)
        # Branches of the origin, not of its sessions or pull requests.
        git("clone", "--quiet", "--bare", "--no-hardlinks", "--", address, temporary.name)
        git.at(temporary)("remote", "remove", "origin")
        temporary.rename(path)
    except (GitError, OSError) as error:
        raise WorkspaceError(f"mirroring {address}: {error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def address_problem(address: str, environment: Mapping[str, str], base: str) -> str:
    """Why an address cannot be mirrored, or has no such branch; empty: it can. Copies nothing."""
    git = Git(Path("/"), environment)
    exit_code, listed, stderr = git.run("ls-remote", "--", address)
    if exit_code != 0:
        return f"the repository {address} cannot be read: {stderr.strip()[:300]}"
    names = {line.partition("\t")[2] for line in listed.splitlines()}
    is_commit = re.fullmatch("[0-9a-f]{7,64}", base)
    if not is_commit and not {base, f"refs/heads/{base}", f"refs/tags/{base}"} & names:
        return f"the repository {address} has no branch or tag `{base}`"
    return ""


USUAL_BRANCH = "main"


def default_branch(path: Path) -> str:
    """The branch that work in a repository starts from unless a plan says otherwise: `main` if there is one,
    else the one that is checked out. Reads files only: plans are expanded without starting git."""
    for folder in (path, *path.parents):
        if (folder / ".git").exists() or (folder / "HEAD").is_file():
            break
    else:
        return USUAL_BRANCH
    try:
        link = folder / ".git"
        admin = link if link.is_dir() else folder
        if link.is_file():
            admin = (folder / link.read_text().partition("gitdir:")[2].strip()).resolve()
        common = admin
        if (admin / "commondir").is_file():
            common = (admin / (admin / "commondir").read_text().strip()).resolve()
        packed = common / "packed-refs"
        listed = packed.read_text(errors="replace") if packed.is_file() else ""
        named = (f"refs/heads/{USUAL_BRANCH}", f"refs/remotes/origin/{USUAL_BRANCH}")
        if any((common / name).is_file() or f" {name}\n" in listed for name in named):
            return USUAL_BRANCH
        head = (admin / "HEAD").read_text(errors="replace").strip()
    except OSError:
        return USUAL_BRANCH
    branch = head.removeprefix("ref: refs/heads/")
    return USUAL_BRANCH if branch == head or branch == ".invalid" else branch


def own_references(references: Mapping[str, str]) -> dict[str, str]:
    """The references that are not session branches."""
    return {name: sha for name, sha in references.items() if not name.startswith(SESSION_REFS)}


def open_source(path: Path, environment: Mapping[str, str]) -> SourceRepository:
    """The repository that contains `path`; raises `WorkspaceError` if there is none."""
    if not path.is_dir():
        raise WorkspaceError(f"there is no folder {path}")
    git = Git(path, environment)
    questions = ("--git-common-dir", "--show-object-format", "--show-toplevel")
    try:
        exit_code, listed, stderr = git.run("rev-parse", "--path-format=absolute", *questions)
    except OSError as error:
        raise WorkspaceError(f"git cannot be run: {error}") from error
    answers = listed.splitlines()
    if len(answers) < 2:
        raise WorkspaceError(f"{path} is not a git repository: {stderr.strip()}")
    common, object_format = answers[:2]
    # A bare repository has no top folder: that question alone fails.
    root = Path(answers[2]) if exit_code == 0 else Path(common)
    if exit_code and (about := Path(common) / COPY_FILE).is_file():
        facts = json.loads(about.read_text())
        return SourceRepository(
            root=Path(facts["root"]),
            common=Path(common),
            object_format=object_format,
            git=git.at(Path(common)),
            copy=CopyOf(bases=facts["bases"], is_inside=facts["isInside"]),
        )
    return SourceRepository(root=root, common=Path(common), object_format=object_format, git=git.at(root))


def fingerprint(source: SourceRepository, references: Mapping[str, str]) -> dict[str, str]:
    """State that a session must not change, by name; of a copy, nothing: its driver changes it."""
    if source.copy:
        return {}
    facts = dict(references)
    facts["its config"] = _digest_of_file(source.common / "config")
    facts["its hooks"] = _listing_of(source.common / "hooks")
    if source.root != source.common:
        return facts | _checkout(source)
    git = source.git
    return facts | {"HEAD": git.line("symbolic-ref", "-q", "HEAD") or git.line("rev-parse", "HEAD")}


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Descriptions of the differences between two fingerprints."""
    names = sorted(before.keys() | after.keys())
    return [_difference(name, before, after) for name in names if before.get(name) != after.get(name)]


def _difference(name: str, before: Mapping[str, str], after: Mapping[str, str]) -> str:
    if name not in after:
        return f"{name} is gone"
    return f"{name} is new" if name not in before else f"{name} changed"


def _checkout(source: SourceRepository) -> dict[str, str]:
    """HEAD of the checkout, what its index has besides that commit, and uncommitted files and their states.

    In one call of git: this is done before each session.
    """
    flags = ("--porcelain=v2", "--branch", "-z", "--no-renames", "--untracked-files=normal")
    commit = head = ""
    staged, files = hashlib.sha256(), dict[str, str]()
    for entry in source.git("status", *flags).split("\0"):
        kind, _, rest = entry.partition(" ")
        if kind == "#":
            name, _, value = rest.partition(" ")
            commit = value if name == "branch.oid" else commit
            head = value if name == "branch.head" else head
        elif kind == "?":
            files[rest] = f"?{_stamp(source.root / rest)}"
        elif kind in _FIELDS_BEFORE_PATH:
            *about, path = rest.split(" ", _FIELDS_BEFORE_PATH[kind])
            files[path] = about[0] + _stamp(source.root / path)
            if about[0][0] != ".":
                staged.update(f"{entry}\0".encode("utf-8", "surrogateescape"))
    return {"HEAD": commit if head == "(detached)" else head, "its index": staged.hexdigest(), **files}


_FIELDS_BEFORE_PATH = {"1": 7, "u": 9}
"""Of an entry of `git status --porcelain=v2`, by its kind."""


def _stamp(path: Path) -> str:
    try:
        stat = path.lstat()
    except OSError:
        return ""
    return f" {stat.st_size} {stat.st_mtime_ns}"


def _digest_of_file(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def _listing_of(folder: Path) -> str:
    try:
        return " ".join(sorted(f"{path.name}{_stamp(path)}" for path in folder.iterdir()))
    except OSError:
        return ""


def _borrowed_by(objects: Path) -> list[Path]:
    try:
        lines = (objects / "info" / "alternates").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return []
    return [Path(os.path.normpath(objects / line)) for line in lines if line and not line.startswith("#")]


def _setting(name: str, value: str) -> str:
    """One setting as a section of its own: `filter.lfs.clean` → `[filter "lfs"] clean = …`."""
    section, _, rest = name.partition(".")
    middle, _, key = rest.rpartition(".")
    quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    inside = middle.replace("\\", "\\\\").replace('"', '\\"')
    head = f'[{section} "{inside}"]' if middle else f"[{section}]"
    return f'{head}\n\t{key} = "{quoted}"\n'
