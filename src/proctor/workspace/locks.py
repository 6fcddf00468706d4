"""One at a time, among all processes of this machine.

A lock is a file that the system locks for whoever has it open, so a process that dies lets go of it.
Within one event loop those who wait are served in the order they came; no thread waits for it, since
the few threads there are must stay free for the one who holds it.
"""

import asyncio
import fcntl
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

# How often a lock held by another process is tried again; the longer the wait, the less often.
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.005, 0.25


_queues: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Lock]]" = (
    weakref.WeakKeyDictionary()
)


@asynccontextmanager
async def file_lock(path: Path) -> AsyncIterator[None]:
    """Hold the lock `path` while inside; wait for it as long as it takes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    queues = _queues.setdefault(asyncio.get_running_loop(), {})
    async with queues.setdefault(str(path), asyncio.Lock()):
        with path.open("w") as file:
            await _lock(file)
            yield


async def _lock(file: IO[str]) -> None:
    wait = FIRST_WAIT_SECONDS
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            await asyncio.sleep(wait)
            wait = min(wait * 2, LONGEST_WAIT_SECONDS)
