"""File locks between processes of this machine.

A process that dies releases its locks. Within one event loop, waiting tasks get the lock in order; waiting
blocks no thread, because the holder may need one.
"""

import asyncio
import fcntl
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

# Polling interval for a lock of another process; doubles up to the limit.
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.005, 0.25
_queues: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Lock]]" = (
    weakref.WeakKeyDictionary()
)


@asynccontextmanager
async def file_lock(path: Path) -> AsyncIterator[None]:
    """Hold the lock `path` in the body; waits without a limit."""
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
