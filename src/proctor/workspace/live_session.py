"""What passes between a running agent and others on this machine: what it prints, and what they ask of it.

Both are files in the folder of the session, where no confined program sees them, and are removed when the
agent has ended: its output is then in the store. Requests are lines that every process can add: messages for
the agent, and to stop it.
"""

import asyncio
import fcntl
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO

from proctor.errors import Aborted, Contradiction
from proctor.formatting import Clip
from proctor.json_values import as_text, json_object

LOG = "output.log"
LARGEST_LOG = 20_000_000
"""Characters; what an agent prints beyond is only in the store, clipped."""


class LiveOutput(Clip):
    """Collects what an agent prints, and writes it to the file at once."""

    def __init__(self, folder: Path, redact: Callable[[str], str]) -> None:
        super().__init__()
        self._path = folder / LOG
        self._redact = redact
        self._room = LARGEST_LOG

    def add(self, text: str) -> None:
        """Add the next chunk."""
        super().add(text)
        shown = self._redact(text)[: self._room]
        self._room -= len(shown)
        # Whether others can follow it does not matter to the agent.
        with suppress(OSError):
            if shown:
                with self._path.open("a", encoding="utf-8", errors="replace") as log:
                    log.write(shown)

    def close(self) -> None:
        """Remove the file."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


def read_live_output(folder: Path, offset: int = 0) -> tuple[str, int]:
    """What the agent has printed after `offset` bytes, in whole lines, and where they end."""
    try:
        with (folder / LOG).open("rb") as log:
            log.seek(offset)
            data = log.read(1_000_000)
    except OSError:
        return "", offset
    whole = data[: data.rfind(b"\n") + 1]
    return whole.decode("utf-8", "replace"), offset + len(whole)


REQUESTS = "requests.jsonl"
POLL_SECONDS = 0.25


@asynccontextmanager
async def followed(
    folder: Path, deliver: Callable[[str], None], *, takes_messages: bool
) -> AsyncIterator[None]:
    """While an agent works: pass each message to `deliver`. Raises `Aborted` once somebody stops it."""
    try:
        file = (folder / REQUESTS).open("a+b", buffering=0)
    except OSError:
        # Whether others can reach it does not matter to the agent.
        yield
        return
    with file:
        _write(file, {"takesMessages": takes_messages})
        file.seek(0)
        try:
            async with asyncio.timeout(None) as limit:
                following = asyncio.create_task(_follow(file, deliver, limit))
                try:
                    yield
                finally:
                    following.cancel()
        except TimeoutError as error:
            if limit.expired():
                raise Aborted("somebody stopped this session") from error
            raise
        finally:
            fcntl.flock(file, fcntl.LOCK_EX)
            (folder / REQUESTS).unlink(missing_ok=True)


async def _follow(file: IO[bytes], deliver: Callable[[str], None], limit: asyncio.Timeout) -> None:
    begun = b""
    while True:
        *lines, begun = (begun + file.read()).split(b"\n")
        for line in lines:
            request = json_object(line.decode("utf-8", "replace")) or {}
            if text := as_text(request, "message"):
                deliver(text)
            if request.get("stop"):
                limit.reschedule(asyncio.get_running_loop().time())
                return
        await asyncio.sleep(POLL_SECONDS)


def takes_messages(folder: Path) -> bool | None:
    """Whether the agent of a session reads messages while it works; None: none works on this machine."""
    try:
        with (folder / REQUESTS).open("rb") as file:
            head = json_object(file.readline().decode("utf-8", "replace"))
    except OSError:
        return None
    return bool(head and head.get("takesMessages"))


def send(folder: Path, request: Mapping[str, object]) -> None:
    """Ask something of the agent of a session. Raises `Contradiction` if none works on this machine."""
    nobody = "the agent of this session does not work on this machine, or not anymore"
    try:
        file = (folder / REQUESTS).open("r+b", buffering=0)
    except OSError:
        raise Contradiction(nobody) from None
    with file:
        # Whoever waited for the lock may find that the agent has ended.
        fcntl.flock(file, fcntl.LOCK_EX)
        if not (folder / REQUESTS).exists():
            raise Contradiction(nobody)
        file.seek(0, 2)
        _write(file, request)


def _write(file: IO[bytes], request: Mapping[str, object]) -> None:
    file.write(json.dumps(request).encode() + b"\n")
