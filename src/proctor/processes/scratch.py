"""Temporary folders for programs, among the temporary files of all users.

The owner of a folder keeps it locked: one that nobody has locked belongs to a process that died.
"""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

START = "proctor-tmp-"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def scratch_folder(kind: str) -> Iterator[Path]:
    """A folder that is removed afterward, or with `abandoned_folders` if this process dies."""
    while True:
        holder = tempfile.TemporaryDirectory(prefix=f"{START}{kind}-", ignore_cleanup_errors=True)
        folder = Path(holder.name)
        try:
            lock = _locked(folder, fcntl.LOCK_EX)
        except OSError:
            # No other process can lock it either.
            lock = -1
        if lock is None:
            # Another process has found and removed it before it was locked.
            holder.cleanup()
            continue
        try:
            yield folder
            return
        finally:
            if lock >= 0:
                os.close(lock)
            # Folders too deep for that are left to whoever removes abandoned ones.
            with suppress(RecursionError):
                holder.cleanup()


def abandoned_folders() -> Iterator[Path]:
    """Folders of this user's processes that died; each is locked until the next."""
    for folder in Path(tempfile.gettempdir()).glob(f"{START}*"):
        try:
            lock = _locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        if lock is not None:
            try:
                yield folder
            finally:
                os.close(lock)


def _locked(folder: Path, how: int) -> int | None:
    """A descriptor that holds the lock of a folder of this user; None: another process has it, or it is gone.

    Raises `OSError` where folders cannot be locked.
    """
    try:
        lock = os.open(folder, _FOLDER)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, how)
        state = os.fstat(lock)
        if state.st_uid == os.getuid() and os.path.samestat(state, folder.lstat()):
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    except OSError:
        os.close(lock)
        raise
    os.close(lock)
    return None
