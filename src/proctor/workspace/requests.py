"""What people ask of a running agent: messages for it, and to stop it.

Requests are lines of a file in the folder of the session, where no confined program sees it: every process on
this machine can add one. The file exists while the agent works.
"""

import asyncio
import fcntl
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

from proctor.errors import Aborted, Contradiction
from proctor.json_values import as_text, json_object

FILE = "requests.jsonl"
POLL_SECONDS = 0.25


@asynccontextmanager
async def followed(
    folder: Path, deliver: Callable[[str], None], *, takes_messages: bool
) -> AsyncIterator[None]:
    """While an agent works: pass each message to `deliver`. Raises `Aborted` once somebody stops it."""
    try:
        file = (folder / FILE).open("a+b", buffering=0)
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
            (folder / FILE).unlink(missing_ok=True)


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
        with (folder / FILE).open("rb") as file:
            head = json_object(file.readline().decode("utf-8", "replace"))
    except OSError:
        return None
    return bool(head and head.get("takesMessages"))


def send(folder: Path, request: Mapping[str, object]) -> None:
    """Ask something of the agent of a session. Raises `Contradiction` if none works on this machine."""
    nobody = "the agent of this session does not work on this machine, or not anymore"
    try:
        file = (folder / FILE).open("r+b", buffering=0)
    except OSError:
        raise Contradiction(nobody) from None
    with file:
        # Whoever waited for the lock may find that the agent has ended.
        fcntl.flock(file, fcntl.LOCK_EX)
        if not (folder / FILE).exists():
            raise Contradiction(nobody)
        file.seek(0, 2)
        _write(file, request)


def _write(file: IO[bytes], request: Mapping[str, object]) -> None:
    file.write(json.dumps(request).encode() + b"\n")
