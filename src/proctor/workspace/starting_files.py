"""Starting files of tasks, stored by the digest of their contents.

    home/benchmarks/<digest>/files/          the files themselves
    home/benchmarks/<digest>/<name>/         a git repository with one commit of them

Created once and never changed: every model starts from the same commit, even if the original folder has
changed since or is on another machine.
"""

import asyncio
import hashlib
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from proctor.errors import WorkspaceError
from proctor.git import Git, GitError
from proctor.json_values import JsonMap, as_text
from proctor.processes import undisturbed
from proctor.workspace import beneath
from proctor.workspace.locks import file_lock

MAX_FILES = 20_000
MAX_BYTES = 512 * 1024 * 1024
NOTHING = "nothing"
"""Digest of a task without starting files."""
EXCLUDED_NAMES = frozenset({"__pycache__", ".git", ".DS_Store"})
"""Names that are not part of a task."""
IGNORED_BY_GIT = "__pycache__/\n*.pyc\n.pytest_cache/\n.mypy_cache/\n.ruff_cache/\nnode_modules/\n"
"""Files of programs that an agent runs; not part of its changes."""

# Fixed, so that the same files give the same commit on every machine.
COMMIT_DATE = "2000-01-01T00:00:00+00:00"


def digest_of_folder(folder: Path) -> str:
    """SHA-256 of the files of a folder: names, contents and executable bits."""
    whole, size = hashlib.sha256(), 0
    for number, path in enumerate(_files(folder), 1):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            kind, content = "link", os.fsencode(path.readlink())
            _check_inside(path, folder)
        else:
            size += path.stat().st_size
            if number > MAX_FILES or size > MAX_BYTES:
                raise WorkspaceError(f"{folder} is too large for a task: {number:,} files, {size:,} bytes")
            kind, content = "run" if os.access(path, os.X_OK) else "file", path.read_bytes()
        head = f"{kind} {len(content)} {name}\0".encode("utf-8", "surrogateescape")
        whole.update(head)
        whole.update(content)
    return whole.hexdigest()


def digest_of_texts(texts: Mapping[str, str]) -> str:
    """The digest of a folder with these files, by relative path; see `digest_of_folder`."""
    whole = hashlib.sha256()
    # Folder by folder, as `_files` lists them.
    for name in sorted(texts, key=lambda path: [os.fsencode(part) for part in path.split("/")]):
        content = texts[name].encode("utf-8", "surrogateescape")
        whole.update(f"file {len(content)} {name}\0".encode("utf-8", "surrogateescape"))
        whole.update(content)
    return whole.hexdigest()


def text_files(folder: Path) -> Iterator[tuple[str, str]]:
    """The relative path and text of each file. Raises `WorkspaceError` for a file that is not text."""
    for path in _files(folder):
        name = path.relative_to(folder).as_posix()
        try:
            yield name, path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise WorkspaceError(f"{path} cannot be read as text: {error}") from error


Files = Path | Mapping[str, str]
"""The files of a task: a folder, or texts by their relative path."""


def files_of(setting: object) -> Files | None:
    """The files that a setting of an item names; None: none."""
    if isinstance(setting, Mapping):
        return {str(name): str(text) for name, text in setting.items()}
    return Path(str(setting)) if setting else None


async def starting_repository(
    home: Path, folder: Files | None, digest: str, environment: Mapping[str, str]
) -> Path:
    """A repository whose branch `main` contains the files of `folder`; None: no files."""
    # The agent sees this name as the name of its folder.
    name = _plain(folder.name) if isinstance(folder, Path) else "task"
    path = home / "benchmarks" / digest / name
    async with file_lock(home / "benchmarks" / f"{digest[:16]}.lock"):
        if not path.exists():
            files = await undisturbed(asyncio.to_thread(_store_files, home, folder, digest))
            await undisturbed(asyncio.to_thread(_make_repository, files, path, environment))
    return path


async def image_repository(home: Path, image: JsonMap, digest: str, environment: Mapping[str, str]) -> Path:
    """A repository whose branch `main` contains the working folder of an image, which is made if needed.

    Raises `WorkspaceError`.
    """
    # Loaded here: few tasks have an image.
    from proctor.sandbox import container

    context, target = as_text(image, "context"), home / "benchmarks" / digest / "files"
    async with file_lock(home / "benchmarks" / f"{digest[:16]}.image.lock"):
        await container.make_image(as_text(image, "name"), Path(context) if context else None)
        if not target.exists():
            temporary = target.with_name(f"making-{uuid.uuid4().hex[:12]}")
            temporary.mkdir(parents=True)
            try:
                await container.copy_from_image(as_text(image, "name"), as_text(image, "work"), temporary)
                temporary.rename(target)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
    return await starting_repository(home, None, digest, environment)


async def stored_files(home: Path, folder: Files, digest: str) -> Path:
    """The stored copy of a folder with this digest, even if the folder has changed since."""
    async with file_lock(home / "benchmarks" / f"{digest[:16]}.lock"):
        return await undisturbed(asyncio.to_thread(_store_files, home, folder, digest))


def copy_over(files: Path, root: Path, relative: str = "") -> None:
    """Copy files into the folder `relative` below `root`, which is ours, replacing what is there."""
    root.mkdir(parents=True, exist_ok=True)
    for source in _files(files):
        beneath.copy_in(source, root, PurePosixPath(relative) / source.relative_to(files).as_posix())


def write_texts(texts: Mapping[str, str], root: Path, relative: str = "") -> None:
    """Write texts as files, by their path in the folder `relative` below `root`, which is ours.

    Raises `WorkspaceError` for a path outside of it.
    """
    root.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        try:
            beneath.write_text(root, PurePosixPath(relative) / name, text)
        except ValueError as error:
            raise WorkspaceError(f"{name} leads out of the task's folder") from error


def _files(folder: Path) -> Iterator[Path]:
    """All files and symlinks below a folder, in the same order on every machine."""
    try:
        entries = sorted(folder.iterdir(), key=lambda entry: os.fsencode(entry.name))
    except OSError as error:
        raise WorkspaceError(f"cannot read {folder}: {error.strerror}") from error
    for entry in entries:
        if entry.name in EXCLUDED_NAMES:
            continue
        if entry.is_dir() and not entry.is_symlink():
            yield from _files(entry)
        elif entry.is_symlink() or entry.is_file():
            yield entry


def _check_inside(link: Path, folder: Path) -> None:
    if not link.resolve().is_relative_to(folder.resolve()):
        raise WorkspaceError(f"{link} leads out of {folder}")


def _store_files(home: Path, folder: Files | None, digest: str) -> Path:
    target = home / "benchmarks" / digest / "files"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f"making-{uuid.uuid4().hex[:12]}")
    try:
        temporary.mkdir()
        if isinstance(folder, Mapping):
            write_texts(folder, temporary)
        elif folder is not None:
            if not folder.is_dir():
                raise WorkspaceError(f"there is no folder {folder}, where the task's files should be")
            copy_over(folder, temporary)
            if digest_of_folder(temporary) != digest:
                raise WorkspaceError(
                    f"the files in {folder} have changed since this was planned; start it again"
                )
        temporary.rename(target)
    except OSError as error:
        raise WorkspaceError(f"copying {folder}: {error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def _make_repository(files: Path, path: Path, environment: Mapping[str, str]) -> None:
    temporary = path.with_name(f"making-{uuid.uuid4().hex[:12]}")
    dates = {"GIT_AUTHOR_DATE": COMMIT_DATE, "GIT_COMMITTER_DATE": COMMIT_DATE}
    try:
        temporary.mkdir()
        git = Git(temporary, environment, dates)
        git("init", "--quiet", "--initial-branch=main", "--template=")
        copy_over(files, temporary)
        git("add", "--all", "--force")
        git("commit", "--quiet", "--allow-empty", "--no-verify", "--message", "The task begins here")
        (temporary / ".git" / "info").mkdir(exist_ok=True)
        (temporary / ".git" / "info" / "exclude").write_text(IGNORED_BY_GIT)
        temporary.rename(path)
    except (GitError, OSError) as error:
        raise WorkspaceError(f"making a repository of the task's files: {error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _plain(name: str) -> str:
    safe = "".join(c if c.isalnum() or c in "._-" else "-" for c in name).strip(".-")
    return safe if safe and safe != "files" else "task"
