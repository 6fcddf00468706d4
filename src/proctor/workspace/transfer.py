"""Files and repositories of the driver as data, for attempts on a machine that does not share its disk.

A repository travels as a pack of what the base branch and the tags reach, and is a bare repository on the
other machine. The branch of a session travels back as a git bundle and is fetched into the user's repository.
"""

import hashlib
import io
import json
import shutil
import tarfile
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from proctor.errors import WorkspaceError
from proctor.git import GitError
from proctor.processes.scratch import scratch_folder
from proctor.workspace.source_repository import (
    COPY_FILE,
    SESSION_REFS,
    SourceRepository,
    open_source,
)
from proctor.workspace.worktree import Worktree, configuration

_FILES = ("shallow", "info/exclude", "info/attributes")
"""Files of a repository that affect sessions."""
MAX_FOLDER_BYTES = 1 << 30
MAX_MODULES = 2000
"""Python files of a plan's folder that are sent. A folder with more is no folder of evaluators."""
_NOT_CODE = frozenset({"__pycache__", "node_modules", "site-packages"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCopy:
    """A file, or a folder with everything below it."""

    name: str
    digest: str
    """Of the content."""
    content: bytes | Path = field(repr=False)
    """An archive, or where it is on the machine that receives it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryCopy:
    """What a session needs of a repository."""

    root: str
    """Its top folder on the driver's machine."""
    is_inside: bool
    """Whether the plan names a folder below the top folder."""
    configuration: str
    base: str
    """The branch, tag or commit that a session starts from."""
    base_sha: str
    references: Mapping[str, str]
    """The base branch and the tags, with their objects."""
    files: Mapping[str, str]
    """Further files of the repository, by their path in it."""
    digest: str
    """Of the content."""
    content: bytes | Path = field(repr=False)
    """A pack of the objects that the receiver lacks, or where it is on its machine; empty: it lacks none."""


def copy_files(path: Path) -> FileCopy:
    """A file or folder as data. Raises `WorkspaceError` if it cannot be read or is too large. Blocks."""
    return _archived(path, [path])


def copy_code(folder: Path, named: Collection[str]) -> FileCopy | None:
    """The Python modules below a folder, and the files in it that are `named`, as data. Blocks.

    None: there are too many modules to be the code of one plan.
    """
    paths = [path for name in named if (path := folder / name).is_file() and path.is_relative_to(folder)]
    waiting = [folder]
    while waiting:
        for path in sorted(waiting.pop().iterdir()):
            if path.name.startswith(".") or path.name in _NOT_CODE or path.is_symlink():
                continue
            if path.is_dir():
                if not (path / "pyvenv.cfg").is_file():
                    waiting.append(path)
            elif path.suffix == ".py" and path not in paths:
                paths.append(path)
        if len(paths) > MAX_MODULES or len(waiting) > MAX_MODULES:
            return None
    return _archived(folder, paths)


def _archived(top: Path, paths: Collection[Path]) -> FileCopy:
    """Files and folders as an archive with the folder `top`, or the file, at its top."""
    buffer, size = io.BytesIO(), 0

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        nonlocal size
        size += entry.size
        if size > MAX_FOLDER_BYTES:
            raise WorkspaceError(f"{top} is too large for another machine: more than 1 GiB")
        if Path(entry.name).name in ("__pycache__", ".git"):
            return None
        # The same content has the same digest, whoever has written it and when.
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        return entry

    name = top.name or "files"
    try:
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for path in paths:
                archive.add(path, arcname=Path(name) / path.relative_to(top), filter=plain)
    except OSError as error:
        raise WorkspaceError(f"cannot read {top}: {error.strerror}") from error
    content = buffer.getvalue()
    return FileCopy(name=name, digest=hashlib.sha256(content).hexdigest(), content=content)


def place_files(copy: FileCopy, folder: Path) -> Path:
    """Write a copied file or folder below `folder`; its path. Blocks."""
    target = folder / copy.digest[:32]
    if not target.exists():
        partial = Path(tempfile.mkdtemp(dir=folder, prefix="making-"))
        content = copy.content if isinstance(copy.content, bytes) else copy.content.read_bytes()
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            archive.extractall(partial, filter="tar")
        if not (partial / copy.name).exists():
            # A folder without files that were sent.
            (partial / copy.name).mkdir()
        partial.rename(target)
    return target / copy.name


def copy_repository(
    path: Path, base: str, have: Collection[str], environment: Mapping[str, str]
) -> RepositoryCopy:
    """What a session that starts from `base` needs of a repository, without the commits `have` and what they
    reach. Raises `WorkspaceError`. Blocks."""
    source = open_source(path, environment)
    base_sha = source.base_commit(base)
    try:
        references, settings = source.references(), source.settings()
        source.check_names(references)
        base_names = {f"refs/heads/{base}", f"refs/remotes/origin/{base}"}
        references = {
            name: sha
            for name, sha in references.items()
            if name.startswith("refs/tags/") or name in base_names
        }
        lacking = sorted({base_sha, *references.values()} - set(have))
        return RepositoryCopy(
            root=str(source.root),
            is_inside=path.resolve() not in (source.root.resolve(), source.common.resolve()),
            configuration=configuration(source, (*settings.core, *settings.filters)),
            base=base,
            base_sha=base_sha,
            references=references,
            files={name: text for name in _FILES if (text := _text_of(source.common / name))},
            digest=hashlib.sha256(f"{source.common}\0{lacking}\0{sorted(have)}".encode()).hexdigest(),
            content=_pack(source, lacking, have) if lacking else b"",
        )
    except (GitError, OSError) as error:
        raise WorkspaceError(f"reading the repository {source.root}: {error}") from error


def _text_of(path: Path) -> str:
    try:
        return path.read_text(errors="surrogateescape")
    except OSError:
        return ""


def _pack(source: SourceRepository, commits: Collection[str], have: Collection[str]) -> bytes:
    revisions = "".join(f"{sha}\n" for sha in (*commits, *(f"^{each}" for each in have)))
    # Not into a file: git writes that in the user's repository first, and cannot move it to another disk.
    return source.git.binary("pack-objects", "--quiet", "--revs", "--stdout", stdin=revisions)


def place_of_copy(root: str, folder: Path) -> Path:
    """Where the copy of a repository is in `folder`; `root` is the top folder of the original."""
    name = Path(root).name.removesuffix(".git") or "repository"
    return folder / hashlib.sha256(root.encode()).hexdigest()[:16] / f"{name}.git"


def place_repository(copy: RepositoryCopy, folder: Path, environment: Mapping[str, str]) -> Path:
    """Create or update the copy of a repository in `folder`; its path. Blocks."""
    path = place_of_copy(copy.root, folder)
    try:
        for part in ("objects/info", "objects/pack", "refs/heads", "info"):
            (path / part).mkdir(parents=True, exist_ok=True)
        for file, text in {
            "HEAD": "ref: refs/heads/none\n",
            "config": copy.configuration,
            **copy.files,
        }.items():
            _write(path / file, text)
        if copy.content:
            pack = path / "objects" / "pack" / f"pack-{copy.digest[:40]}.pack"
            if isinstance(copy.content, bytes):
                pack.write_bytes(copy.content)
            else:
                shutil.copyfile(copy.content, pack)
            open_source(path, environment).git("index-pack", str(pack))
        packed = "".join(f"{sha} {name}\n" for name, sha in sorted(copy.references.items()))
        _write(path / "packed-refs", packed)
        bases = json.loads(_text_of(path / COPY_FILE) or "{}").get("bases", {})
        about = {"root": copy.root, "isInside": copy.is_inside, "bases": {**bases, copy.base: copy.base_sha}}
        _write(path / COPY_FILE, json.dumps(about))
    except (GitError, OSError) as error:
        raise WorkspaceError(f"copying the repository {copy.root}: {error}") from error
    return path


def _write(path: Path, text: str) -> None:
    partial = path.with_name(f"{path.name}.new")
    partial.write_text(text, errors="surrogateescape")
    partial.rename(path)


def bundle_branch(tree: Worktree) -> tuple[str, bytes]:
    """The commit of a session's branch, and a git bundle of what it adds to its base. Blocks.

    The bundle is empty if it adds no commit.
    """
    git, reference = tree.git, f"refs/heads/{tree.branch}"
    try:
        sha = git.commit_of(reference)
        if not git("rev-list", "--max-count=1", reference, f"^{tree.base_sha}").strip():
            return sha, b""
        with scratch_folder("bundle") as folder:
            file = folder / "bundle"
            git("bundle", "create", "--quiet", str(file), reference, f"^{tree.base_sha}")
            return sha, file.read_bytes()
    except (GitError, OSError) as error:
        raise WorkspaceError(f"packing {tree.branch}: {error}", reason="publish_failed") from error


def receive_branch(source: SourceRepository, branch: str, sha: str, bundle: bytes) -> None:
    """Fetch a session's branch into the user's repository; nothing else there changes. Blocks."""
    reference = f"refs/heads/{branch}"
    if not reference.startswith(SESSION_REFS):
        raise WorkspaceError(f"{branch} is not a session branch: it is not under batch/")
    quietly = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--no-prune")
    try:
        if not bundle:
            source.git("update-ref", reference, sha)
            return
        with tempfile.NamedTemporaryFile(prefix="proctor-", suffix=".bundle") as file:
            file.write(bundle)
            file.flush()
            source.git("fetch", *quietly, "--no-recurse-submodules", file.name, f"+{reference}:{reference}")
    except (GitError, OSError) as error:
        problem = f"copying {branch} to {source.root}: {error}"
        raise WorkspaceError(problem, reason="publish_failed") from error
