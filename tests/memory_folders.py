"""Folders of tests in memory, where there is room: a disk takes milliseconds for each transaction of a store.

They are named after their process, so that those of killed processes are found and removed.
"""

import os
import re
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from proctor.processes.warden import is_alive

SHARED_MEMORY = Path("/dev/shm")


def make_folder(prefix: str, *, room_bytes: int) -> Path:
    """A new folder in memory, or on disk if less than `room_bytes` of memory are free."""
    _remove_abandoned(prefix)
    parent = SHARED_MEMORY if _has_room(room_bytes) else None
    return Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=parent))


def _has_room(room_bytes: int) -> bool:
    """Whether file system and memory have room: the first may be allowed more than there is."""
    if not os.access(SHARED_MEMORY, os.W_OK) or os.statvfs(SHARED_MEMORY).f_flag & os.ST_NOEXEC:
        # Tests write programs and start them.
        return False
    free = shutil.disk_usage(SHARED_MEMORY).free
    with suppress(OSError):
        match = re.search(r"MemAvailable: *([0-9]+) kB", Path("/proc/meminfo").read_text())
        free = min(free, int(match[1]) << 10 if match else free)
    return free > room_bytes


def _remove_abandoned(prefix: str) -> None:
    """Delete the folders of processes that were killed: they would fill the memory."""
    for parent in (SHARED_MEMORY, Path(tempfile.gettempdir())):
        for folder in parent.glob(f"{prefix}*-*"):
            owner = folder.name.removeprefix(prefix).partition("-")[0]
            if owner.isdigit() and not is_alive(int(owner)):
                shutil.rmtree(folder, ignore_errors=True)
