"""Processes that run functions of the user's own, kept for as long as they are used.

Starting Python and importing a module takes longer than most functions, so a process serves many
sessions. One that hangs, dies or eats its memory is ended with all it started, and only what it was
doing is lost. Processes nobody has used for a while end by themselves, and all of them end with the
event loop they belong to.

Knows nothing of evaluators or scores.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from proctor.errors import EvaluatorError
from proctor.evaluators import function_worker
from proctor.processes import CouldNotStart, Program, started
from proctor.untrusted import parse_json

MOST_AT_ONCE = 4
"""Processes for one function. More would only wait for the machine's cores."""
IDLE_SECONDS = 30.0
START_SECONDS = 30.0
"""For a process to report; what the function's module does when imported counts as the function's time."""
LONGEST_ANSWER = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Which function is run, where, and with how much."""

    function: str
    """`module:function`."""
    folder: Path
    environment: tuple[tuple[str, str], ...]
    """All of it, in order: part of what tells one pool of processes from another."""
    attempt: str
    megabytes: int
    version: str = ""
    """What the function's file holds: a process that has loaded it sees no later change."""


class Died(EvaluatorError):
    """The function's process ended before it answered."""


class Worker:
    """One process, for one function."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._over = asyncio.Event()
        self._living = asyncio.create_task(self._live())
        self.retiring: asyncio.TimerHandle | None = None

    @property
    def is_alive(self) -> bool:
        return not self._living.done() and not self._over.is_set()

    async def send(self, message: Mapping[str, Any]) -> None:
        """Tell it something that it does not answer."""
        await asyncio.wait_for(asyncio.shield(self._ready()), START_SECONDS)
        assert self._writer is not None
        body = json.dumps(message, default=str).encode("utf-8", "replace")
        try:
            self._writer.write(b"%d\n" % len(body) + body)
            await self._writer.drain()
        except OSError as gone:
            raise Died("the function's process ended") from gone

    async def answer(self) -> Any:
        """The next thing it says."""
        assert self._reader is not None
        try:
            size = int(await self._reader.readline() or b"-1")
            if not 0 <= size <= LONGEST_ANSWER:
                raise Died("the function's process ended without an answer")
            return parse_json(await self._reader.readexactly(size))
        except (OSError, ValueError, asyncio.IncompleteReadError) as broken:
            raise Died("the function's process ended without an answer") from broken

    async def end(self) -> None:
        """End it, and everything it has started."""
        self._over.set()
        self._living.cancel()
        await asyncio.wait({self._living})

    async def _ready(self) -> None:
        await asyncio.wait({self._connected, self._living}, return_when=asyncio.FIRST_COMPLETED)
        if not self._connected.done():
            self._living.result()
            raise Died("the function's process ended before it had begun")

    async def _live(self) -> None:
        """Hold the process for as long as this task is: whoever cancels it ends the process."""
        job = self._job
        with tempfile.TemporaryDirectory(prefix="proctor-function-") as folder:
            address = f"{folder}/link"
            server = await asyncio.start_unix_server(self._met, address, limit=LONGEST_ANSWER)
            # Compiled files would hide a change within the second they were written in.
            command = [sys.executable, "-P", "-B", function_worker.__file__, address, job.function]
            command += [str(job.folder.resolve()), str(job.megabytes)]
            async with server, _running(command, job) as program:
                await program.ended()
        self._over.set()

    def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        if not self._connected.done():
            self._connected.set_result(None)


@asynccontextmanager
async def _running(command: Sequence[str], job: Job) -> AsyncIterator[Program]:
    try:
        async with started(
            command,
            folder=job.folder,
            environment=dict(job.environment),
            attempt=job.attempt,
            # It has nothing to tidy up.
            grace_seconds=0.5,
        ) as program:
            yield program
    except CouldNotStart as problem:
        raise EvaluatorError(f"starting {job.function}: {problem}") from problem


class Pool:
    """The processes of one function."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._idle: list[Worker] = []
        self._places = asyncio.Semaphore(MOST_AT_ONCE)

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[Worker]:
        """One process, for as long as the block; one that failed in it is not used again."""
        async with self._places:
            worker = self._take()
            try:
                yield worker
            except BaseException:
                await worker.end()
                raise
            self._put_back(worker)

    def _take(self) -> Worker:
        while self._idle:
            worker = self._idle.pop()
            if worker.retiring:
                worker.retiring.cancel()
            if worker.is_alive:
                return worker
        return Worker(self._job)

    def _put_back(self, worker: Worker) -> None:
        self._idle.append(worker)
        loop = asyncio.get_running_loop()
        worker.retiring = loop.call_later(IDLE_SECONDS, self._retire, worker)

    def _retire(self, worker: Worker) -> None:
        if worker in self._idle:
            self._idle.remove(worker)
            # Nobody waits for it; the loop must hold on to the task that ends it.
            _ending.add(task := asyncio.ensure_future(worker.end()))
            task.add_done_callback(_ending.discard)


# Evaluators are made anew for every item; the processes outlive them. They belong to their event loop.
_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Job, Pool]] = WeakKeyDictionary()
_ending: set[asyncio.Future[None]] = set()


def pool_of(job: Job) -> Pool:
    """The processes that do this job on the running event loop."""
    pools = _pools.setdefault(asyncio.get_running_loop(), {})
    if job not in pools:
        pools[job] = Pool(job)
    return pools[job]
