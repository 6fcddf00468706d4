"""Remove and copy folders that programs of others have written.

Removal works by descriptor: it follows no link, and neither depth, length of paths, modes nor number of files
limit it. A folder gets another name first, so that one whose removal was cut short is not taken for a
worktree; `remove_abandoned` removes the rest.
"""

import asyncio
import fcntl
import itertools
import os
import stat
import subprocess
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path

from proctor.errors import WorkspaceError
from proctor.processes import end_attempt, undisturbed
from proctor.processes.scratch import abandoned_folders

REMOVED = "removed-"
"""Start of the name of a folder that is being removed."""
# Each level takes two descriptors; to move a folder takes longer than to remove it.
_MOST_DEPTH = 50
LOCK = ".lock"
"""End of the name of the file that the owner of a temporary folder keeps locked."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Opens a folder that cannot be read, to make it readable. Other systems than Linux have none.
_ANY_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_folder(folder: Path) -> str:
    """Remove a folder, including unreadable files; returns why it could not be removed, or an empty text."""
    try:
        parent = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return str(error)
    try:
        remove_at(parent, folder.name)
    except FileNotFoundError:
        # Another process removes it, too.
        return ""
    except OSError as error:
        return f"{folder}: {error}"
    finally:
        os.close(parent)
    return ""


def remove_at(parent: int, name: str) -> None:
    """Remove a file, link or folder from a folder that is open. Raises `OSError`, also if there is none."""
    if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=parent)
        return
    if not name.startswith(REMOVED):
        marked = f"{REMOVED}{uuid.uuid4().hex}"
        # Where the parent cannot be changed, what is inside can.
        with suppress(PermissionError):
            os.rename(name, marked, src_dir_fd=parent, dst_dir_fd=parent)
            name = marked
    top = _open(name, parent)
    try:
        _empty(top)
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=parent)


def _empty(top: int) -> None:
    """Remove everything in a folder; what is too deep inside it becomes its own entry first."""
    names = (f"{REMOVED}{uuid.uuid4().hex}-{number}" for number in itertools.count())

    def remove(folder: int, depth: int, name: str, is_folder: bool) -> None:
        if not is_folder:
            os.unlink(name, dir_fd=folder)
            return
        inner = _open(name, folder)
        try:
            if depth == _MOST_DEPTH:
                os.rename(name, next(names), src_dir_fd=folder, dst_dir_fd=top)
                return
            _each(inner, partial(remove, inner, depth + 1))
        finally:
            os.close(inner)
        os.rmdir(name, dir_fd=folder)

    _each(top, partial(remove, top, 0))


def _each(folder: int, remove: Callable[[str, bool], None]) -> None:
    """Remove the entries of a folder until none is left. Raises the first error if some stay."""
    while True:
        removed, problem = 0, None
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    remove(entry.name, entry.is_dir(follow_symlinks=False))
                    removed += 1
                except FileNotFoundError:
                    continue
                except OSError as error:
                    problem = problem or error
        # Those that were added in the meantime, such as folders that were deeper, are in the next round.
        if removed == 0:
            if problem is not None:
                raise problem
            return


def _open(name: str, parent: int) -> int:
    """Open a folder so that its entries can be listed and removed."""
    try:
        folder = os.open(name, _FOLDER, dir_fd=parent)
        os.fchmod(folder, 0o700)
    except PermissionError:
        path = os.open(name, _ANY_FOLDER, dir_fd=parent)
        try:
            Path(f"/proc/self/fd/{path}").chmod(0o700)
        finally:
            os.close(path)
        folder = os.open(name, _FOLDER, dir_fd=parent)
    return folder


def files_above(folder: Path, limit: int) -> Iterator[Path]:
    """Files of more than `limit` bytes, as far as their paths can be opened."""
    waiting = [os.fspath(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif entry.is_file(follow_symlinks=False) and entry.stat().st_size > limit:
                        yield Path(entry.path)
        except OSError:
            # Too deep, or not readable: git says so.
            continue


def copy_folder(source: Path, target: Path) -> None:
    """Copy a folder with links, modes and times; blocks are shared where the file system can.

    Raises `WorkspaceError`.
    """
    # One process for all files: twice as fast as `shutil.copytree`, and keeps hard links.
    ended = subprocess.run(
        ["cp", "-a", "--", str(source), str(target)],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if ended.returncode:
        remove_folder(target)
        raise WorkspaceError(f"copying {source}: {ended.stderr.strip()[:1000]}")


@asynccontextmanager
async def temporary_folder(home: Path, name: str) -> AsyncIterator[Path]:
    """The path of a folder among the worktrees that is removed afterward; the body creates it.

    A lock shows that its process lives: `remove_abandoned` removes those of others.
    """
    folder = home / "worktrees" / name
    lock = folder.with_name(f"{name}{LOCK}")
    lock.parent.mkdir(parents=True, exist_ok=True)
    with _locked(lock):
        try:
            yield folder
        finally:
            await undisturbed(asyncio.to_thread(remove_folder, folder))
            lock.unlink(missing_ok=True)


@contextmanager
def _locked(lock: Path) -> Iterator[None]:
    while True:
        with lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            # `remove_abandoned` may have seen the file before it was locked.
            if lock.exists() and os.path.samestat(os.fstat(file.fileno()), lock.stat()):
                yield
                return


def remove_abandoned(home: Path) -> list[str]:
    """End the programs and remove the temporary folders of processes that died, and what is partly removed.

    Returns what could not be removed. Folders of living processes, and worktrees of sessions, stay.
    """
    problems = [remove_folder(folder) for folder in abandoned_folders()]
    try:
        paths = list((home / "worktrees").iterdir())
    except FileNotFoundError:
        paths = []
    for path in paths:
        if path.name.startswith(REMOVED):
            problems.append(remove_folder(path))
        elif path.name.endswith(LOCK):
            problems.append(_remove_unlocked(path))
    return [problem for problem in problems if problem]


def _remove_unlocked(lock: Path) -> str:
    try:
        with lock.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A lock that another process has just removed says nothing about a folder.
            if not os.path.samestat(os.fstat(file.fileno()), lock.stat()):
                return ""
            end_attempt(lock.stem)
            problem = remove_folder(lock.with_suffix(""))
            if not problem:
                lock.unlink(missing_ok=True)
            return problem
    except (BlockingIOError, FileNotFoundError):
        return ""
    except OSError as error:
        return f"{lock}: {error.strerror}"
