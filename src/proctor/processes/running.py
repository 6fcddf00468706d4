"""Run a program so that everything it starts can be ended.

Each program runs under a warden (`warden.py`), which ends all that came of it when the program
exits, when the caller is cancelled, and when this process dies. Only pipes are awaited, so hundreds
can run at once, in the event loop of any thread.

    async with started(["make"], folder=tree, environment=env, attempt=session) as program:
        async for line in program.lines():
            ...
        exit_code = await program.ended()

    finished = await run("npm test", folder=tree, environment=env, attempt=session, time_limit=900)

Knows nothing of agents, items or git.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from proctor.processes.program import (
    ATTEMPT_MARKER,
    Launch,
    Program,
    at_most,
    end_marked,
    start,
    undisturbed,
)
from proctor.processes.streams import KEPT_CHARACTERS, Clip, text_decoder

GRACE_SECONDS = 5.0
"""How long a program that was told to end may take before it is killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A program that was run to its end, and what it printed."""

    exit_code: int
    """Its own, or 128 + n when signal n ended it."""
    output: str
    """Standard output and standard error as they came, head and tail."""
    duration_ms: float
    timed_out: bool = False
    """It was ended because its time was over."""
    signal: int | None = None
    """The signal that ended it; None: it exited by itself."""
    leftovers: tuple[str, ...] = ()
    """Commands it had left running, which were ended."""


@asynccontextmanager
async def started(
    command: Sequence[str] | str,
    *,
    folder: Path,
    environment: Mapping[str, str],
    attempt: str,
    typed: str | None = None,
    grace_seconds: float = GRACE_SECONDS,
) -> AsyncIterator[Program]:
    """Start a program and watch it; when the block is left, however, all of it has ended.

    A list is a program and its arguments, a string is for `/bin/sh -c`. `environment` is the whole
    environment, `typed` what stands on standard input (None: nothing does). Raises `CouldNotStart`.
    """
    launch = Launch(
        command=command,
        folder=folder,
        environment=environment,
        attempt=attempt,
        typed=typed,
        grace_seconds=grace_seconds,
        together=False,
    )
    program = await start(launch)
    try:
        yield program
    finally:
        try:
            await undisturbed(program.end())
        finally:
            program.let_go()


async def run(
    command: Sequence[str] | str,
    *,
    folder: Path,
    environment: Mapping[str, str],
    attempt: str,
    typed: str | None = None,
    time_limit: float | None = None,
    grace_seconds: float = GRACE_SECONDS,
    keep: int = KEPT_CHARACTERS,
) -> Finished:
    """Run a program to its end, or to its time limit in seconds, and say what came of it.

    The first arguments are those of `started`; `keep` is how many characters of the output's head,
    and of its tail, are kept.
    """
    launch = Launch(
        command=command,
        folder=folder,
        environment=environment,
        attempt=attempt,
        typed=typed,
        grace_seconds=grace_seconds,
        together=True,
    )
    began = time.monotonic()
    program = await start(launch)
    output = _Output(program, keep)
    timed_out = await _within(time_limit, program, output)
    ending = await program.ending()
    return Finished(
        exit_code=ending.exit_code,
        output=output.clip.text,
        duration_ms=(time.monotonic() - began) * 1000,
        timed_out=timed_out,
        signal=ending.signal,
        leftovers=ending.leftovers,
    )


async def _within(time_limit: float | None, program: Program, output: "_Output") -> bool:
    """Let a program run to its end or its time limit; whether it was the limit."""
    try:
        async with asyncio.timeout(time_limit):
            await output.to_the_end()
            await program.ending()
        return False
    except TimeoutError:
        return True
    finally:
        try:
            await undisturbed(program.end())
            # What it had printed when it was ended is still in the pipe.
            await at_most(1, output.to_the_end())
        finally:
            program.let_go()


class _Output:
    """What a program printed, head and tail, as far as it has been read."""

    def __init__(self, program: Program, keep: int) -> None:
        self.clip = Clip(keep)
        self._decode = text_decoder()
        self._program = program
        program.expect_reader()

    async def to_the_end(self) -> None:
        while chunk := await self._program.output.chunk():
            self.clip.add(self._decode(chunk))


def end_attempt(attempt: str, *, grace_seconds: float = GRACE_SECONDS) -> list[str]:
    """End what an attempt of a process that died has left running; the commands that were ended.

    Found by the marker in their environment. Never ends this process or one it descends from.
    Blocks for up to the grace period, so call it from a thread.
    """
    return end_marked(f"{ATTEMPT_MARKER}={attempt}", grace_seconds)
