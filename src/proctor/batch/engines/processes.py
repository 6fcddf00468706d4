"""Several worker processes on one machine share a batch.

The driver stays the only owner of queue, store, ledger, merges and people. Each worker process runs attempts
on its own event loop and exchanges pickled messages with the driver over a socket: items in chunks, recorded
rows and ended attempts many at a time. Workers are forked by a launcher process that has no threads and ends
all workers when the driver dies.
"""

import asyncio
import gc
import json
import math
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, cast

from proctor.batch.engines import DriverHost
from proctor.batch.engines.messages import (
    AttemptEnd,
    Ended,
    Finish,
    HostCall,
    HostCancel,
    HostReply,
    PackedEnd,
    Ready,
    Report,
    ReturnMoney,
    RowBatch,
    RowBuffer,
    Stop,
    WorkChunk,
    WorkerSpec,
)
from proctor.batch.engines.worker import Worker, make_worker_context
from proctor.batch.queue import WorkItem, WorkQueue
from proctor.batch.rate_limit_sync import limit_and_share
from proctor.context import Functions
from proctor.errors import AttemptError, Interrupted, ProctorError, StoreError, WorkerError
from proctor.formatting import plural
from proctor.models.rate_limits import PoolState
from proctor.processes import undisturbed
from proctor.runner import MergeRequest, MergeResult
from proctor.store import Drawn
from proctor.store.writer import this_process

if TYPE_CHECKING:
    from proctor.evaluator import Evidence

REPORT_SECONDS = 0.005
"""A busy worker sends what it has recorded this often: two hundred messages a second cost little."""
IDLE_SECONDS = 0.05
"""Pause of a worker that had nothing to send."""
REPORT_ROWS = 500
"""More recorded rows are sent at once."""
AHEAD_SECONDS = 0.1
"""A worker has as many items ahead as it finishes in this time: longer than a message takes both ways."""
RATE_SECONDS = 0.1
"""Window in which finished items are counted. A shorter one would mistake two ends of long items for many."""
RESTARTS = 3
"""Replacements for each worker. More deaths have a cause that another worker would meet too."""
READ_BYTES = 1 << 20
HEADER = struct.Struct("!I")
HOST_METHODS = frozenset(
    {"draw", "give_back", "share_limits", "load_session", "resource", "merge", "ask_person"}
)
"""What a worker may call on the driver."""
PRELOADED = ("proctor.agents", "proctor.evaluators", "proctor.models", "proctor.runners")
"""What a launcher that was not forked loads of the driver's modules, with all that they import."""
LAUNCHER = (
    "import json, sys; path, modules, end = map(json.loads, sys.argv[1:]); sys.path[:] = path; "
    "from proctor.batch.engines.processes import launch_workers; launch_workers(end, modules)"
)


def can_fork() -> bool:
    """Whether this process can be copied as it is: a thread might hold a lock that nobody would release."""
    try:
        return len(list(Path("/proc/self/task").iterdir())) == 1
    except OSError:
        return False


def can_be_sent(functions: Functions) -> bool:
    """Whether worker processes can have these functions: they are imported there by name."""
    try:
        sent = pickle.dumps(functions)
    except Exception:
        return False
    # A launcher that was not forked does not have the module that was started as a program.
    return can_fork() or b"__main__" not in sent


class Channel:
    """Messages between driver and worker: pickles with their length."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, end: socket.socket) -> "Channel":
        """A channel over one end of a pair of sockets."""
        return cls(*await asyncio.open_unix_connection(sock=end, limit=READ_BYTES))

    def send(self, message: object) -> None:
        """Send a message; to a process that has died, nothing is sent."""
        data = pickle.dumps(message, protocol=5)
        self._writer.write(HEADER.pack(len(data)) + data)

    async def receive(self) -> object | None:
        """The next message; None when the other process has died."""
        try:
            (size,) = HEADER.unpack(await self._reader.readexactly(HEADER.size))
            message: object = pickle.loads(await self._reader.readexactly(size))
        except (asyncio.IncompleteReadError, OSError):
            return None
        return message

    async def drain(self) -> None:
        """Wait until everything is sent."""
        transport = self._writer.transport
        transport.set_write_buffer_limits(0)
        with suppress(OSError):
            await self._writer.drain()

    def close(self) -> None:
        """Close this end."""
        self._writer.close()


# The launcher: forks workers, and kills them when the driver has died.


class Launcher:
    """The driver's connection to the process that forks its workers. Close it to end them."""

    def __init__(self) -> None:
        """Fork this process where that is safe: then workers have loaded everything. If not, start Python."""
        self._control, end = socket.socketpair()
        self._program: subprocess.Popen[bytes] | None = None
        self._pid = 0
        if can_fork():
            self._pid = os.fork()
            if not self._pid:
                _become_launcher(end.fileno())
        else:
            modules = [name for name in sys.modules if name.startswith(PRELOADED)]
            words = [json.dumps(each) for each in (sys.path, modules, end.fileno())]
            self._program = subprocess.Popen(
                [sys.executable, "-c", LAUNCHER, *words],
                pass_fds=[end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        end.close()

    def start_worker(self) -> socket.socket:
        """Start a worker; the driver's end of its connection. Raises `WorkerError`."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._control, [b"w"], [theirs.fileno()])
            except OSError as error:
                ours.close()
                raise WorkerError(f"no worker process can be started: {error}") from error
        return ours

    def close(self) -> None:
        """End the launcher and whatever is left of its workers."""
        self._control.close()
        if self._program:
            self._program.wait()
        elif self._pid:
            with suppress(ChildProcessError):
                os.waitpid(self._pid, 0)
            self._pid = 0


def _become_launcher(end: int) -> NoReturn:
    """Continue as the launcher in a copy of the driver, whose files and connections are not ours."""
    try:
        # What the driver has open must be neither used nor closed here: collecting a copy of its database
        # connection would delete the log of the database.
        gc.freeze()
        nothing = os.open(os.devnull, os.O_RDWR)
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 (the numbers, not paths)
            if int(name) not in (2, end, nothing):
                os.dup2(nothing, int(name), inheritable=int(name) < 2)
        signal.set_wakeup_fd(-1)
        launch_workers(end)
    finally:
        os._exit(1)


def launch_workers(end: int, modules: Sequence[str] = ()) -> NoReturn:
    """Fork a worker for each connection that arrives; when the driver has gone, kill them all.

    `modules` are loaded first, so that no worker has to.
    """
    workers = set[int]()

    def reap(*_: object) -> None:
        with suppress(ChildProcessError):
            while pid := os.waitpid(-1, os.WNOHANG)[0]:
                workers.discard(pid)

    try:
        for name in modules:
            with suppress(ImportError):
                __import__(name)
        gc.collect()
        gc.freeze()
        control = socket.socket(fileno=end)
        # Ctrl-C at the terminal reaches every process; the driver decides. Handlers, unlike ignored signals,
        # are not inherited by the programs that workers start.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        signal.signal(signal.SIGCHLD, reap)
        while connections := socket.recv_fds(control, 1, 1)[1]:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
            pid = os.fork()
            if not pid:
                control.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
                _run_worker(connections[0])
            workers.add(pid)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            os.close(connections[0])
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        for pid in workers:
            # Their wardens notice, and end everything that was started.
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os._exit(0)


# The worker process.


def _run_worker(end: int) -> NoReturn:
    try:
        asyncio.run(_work_for_driver(socket.socket(fileno=end)))
    finally:
        os._exit(0)


async def _work_for_driver(end: socket.socket) -> None:
    channel = await Channel.open(end)
    spec = await channel.receive()
    if isinstance(spec, WorkerSpec):
        spec = replace(spec, holder=this_process())
        channel.send(Ready(spec.holder))
        channel.send(Ended(await _ProcessWorker(channel, spec).run()))
        await channel.drain()


class RemoteHost:
    """The host of a worker, in the driver's process."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._calls: dict[int, asyncio.Future[object]] = {}
        self._number = 0

    async def draw(self, holder: str, *, wanted_usd: float, least_usd: float) -> Drawn:
        """Draw money from the ledger."""
        return cast("Drawn", await self._call("draw", holder, wanted_usd=wanted_usd, least_usd=least_usd))

    async def give_back(self, holder: str, usd: float) -> None:
        """Return drawn money."""
        await self._call("give_back", holder, usd)

    async def share_limits(self, holder: str, states: Sequence[PoolState]) -> Sequence[PoolState]:
        """Publish the rate limits of this worker; those of all others on the store."""
        return cast("Sequence[PoolState]", await self._call("share_limits", holder, states))

    async def load_session(
        self, session_id: str, traces: Sequence[str] = (), scenario: str = ""
    ) -> "Evidence":
        """A recorded session with its ground truth."""
        return cast("Evidence", await self._call("load_session", session_id, traces, scenario))

    async def resource(self, digest: str) -> str:
        """The text of a resource of the run."""
        return cast("str", await self._call("resource", digest))

    async def merge(self, request: MergeRequest) -> MergeResult:
        """Merge a session to its base branch, after all earlier requests."""
        return cast("MergeResult", await self._call("merge", request))

    async def ask_person(self, item_id: str, actor: str, prompt: str) -> str:
        """The answer of the person who plays an actor; empty: nobody is there."""
        return cast("str", await self._call("ask_person", item_id, actor, prompt))

    def answered(self, reply: HostReply) -> None:
        """Pass a reply on to its call."""
        call = self._calls.pop(reply.number)
        if reply.error:
            call.set_exception(reply.error)
        else:
            call.set_result(reply.value)

    async def _call(self, method: str, *arguments: object, **options: object) -> object:
        self._number += 1
        number = self._number
        reply = self._calls[number] = asyncio.get_running_loop().create_future()
        self._channel.send(HostCall(number, method, arguments, options))
        try:
            return await asyncio.shield(reply)
        except asyncio.CancelledError:
            # The driver cancels the call or, like a merge, brings it to its end first.
            self._channel.send(HostCancel(number))
            await undisturbed(_wait(reply))
            raise


async def _wait(future: "asyncio.Future[object]") -> None:
    await asyncio.wait([future])
    if not future.cancelled():
        future.exception()


class _ProcessWorker:
    """Runs the items that the driver sends, and reports what they record."""

    def __init__(self, channel: Channel, spec: WorkerSpec) -> None:
        self._channel = channel
        self._spec = spec
        self._host = RemoteHost(channel)
        self._rows = RowBuffer()
        self._ends: list[PackedEnd] = []
        self._waiting: deque[WorkItem] = deque()
        self._attempts: set[asyncio.Task[None]] = set()
        self._worker: Worker | None = None
        self._finishing = False
        self._finished = asyncio.Event()
        self._returning: asyncio.Task[None] | None = None
        self._error: Exception | None = None

    async def run(self) -> Exception | None:
        """Work until the driver says that there is nothing left; the error that ended it before."""
        reading = asyncio.create_task(self._read())
        reporting: asyncio.Task[None] | None = None
        try:
            context, models = make_worker_context(self._spec)
            worker = Worker(self._spec, context, self._host, self._rows)
            await worker.open()
            self._worker = worker
            reporting = asyncio.create_task(self._report_regularly())
            self._start_waiting()
            self._end_if_idle()
            await self._finished.wait()
            await worker.close()
            await context.gateway.close()
            await models.close()
        except Exception as error:
            self._error = self._error or _picklable(error)
        finally:
            for task in (reading, reporting):
                if task:
                    task.cancel()
        self._report()
        return self._error

    async def _read(self) -> None:
        while (message := await self._channel.receive()) is not None:
            if isinstance(message, WorkChunk):
                self._waiting.extend(message.items)
                self._start_waiting()
            elif isinstance(message, HostReply):
                self._host.answered(message)
            elif isinstance(message, ReturnMoney) and self._worker:
                self._returning = asyncio.create_task(self._worker.return_money())
            elif isinstance(message, Finish):
                self._finish()
            elif isinstance(message, Stop):
                self._stop(message.reason)
        # The driver has died. What attempts have started ends with this process.
        os._exit(1)

    def _start_waiting(self) -> None:
        while self._worker and self._waiting and len(self._attempts) < self._spec.concurrency:
            task = asyncio.create_task(self._run_items(self._worker, self._waiting.popleft()))
            self._attempts.add(task)
            task.add_done_callback(self._attempt_done)

    async def _run_items(self, worker: Worker, work: WorkItem) -> None:
        while True:
            end = await worker.run(work)
            self._ends.append(end.pack())
            if self._rows.count > REPORT_ROWS:
                self._report()
            if not self._waiting:
                return
            work = self._waiting.popleft()

    def _attempt_done(self, task: "asyncio.Task[None]") -> None:
        self._attempts.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and self._error is None:
            # Only what ends the batch is raised.
            self._error = _picklable(error)
            self._stop(Interrupted("the batch was stopped"))
        self._end_if_idle()

    def _finish(self) -> None:
        self._finishing = True
        self._waiting.clear()
        self._end_if_idle()

    def _stop(self, reason: AttemptError) -> None:
        if self._worker:
            self._worker.stop(reason)
        for task in self._attempts:
            task.cancel()
        self._finish()

    def _end_if_idle(self) -> None:
        if self._finishing and not self._attempts:
            self._finished.set()

    async def _report_regularly(self) -> None:
        while True:
            await asyncio.sleep(REPORT_SECONDS if self._report() else IDLE_SECONDS)

    def _report(self) -> bool:
        """Send what was recorded; whether there was anything."""
        if not self._rows.count and not self._ends:
            return False
        ends, self._ends = self._ends, []
        self._channel.send(Report(self._rows.take(), ends))
        return True


def _picklable(error: BaseException) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return ProctorError(f"{type(error).__name__}: {error}")
    return error if isinstance(error, Exception) else ProctorError(repr(error))


# The driver.


@dataclass(slots=True, eq=False)
class _Link:
    """A worker process, as the driver sees it."""

    channel: Channel
    concurrency: int
    now: Callable[[], float]
    holder: str = ""
    """Its name in the ledger; empty until it has started."""
    items: dict[str, WorkItem] = field(default_factory=dict)
    """Items that it has and has not finished."""
    sessions: dict[str, str] = field(default_factory=dict)
    """Sessions of its running attempts, by item."""
    calls: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    """Its calls that are being answered."""
    slots: dict[str, int] = field(default_factory=dict)
    """Concurrent calls that it may make, by rate limit; none: as many as each worker begins with."""
    _ahead: int = 0
    _ends: int = 0
    _counted_at: float = 0.0

    @property
    def room(self) -> int:
        """How many more items it can have."""
        return max(0, self.concurrency + self._ahead - len(self.items))

    def give(self, items: Sequence[WorkItem]) -> None:
        """Send it items."""
        for work in items:
            self.items[work.id] = work
        self.channel.send(WorkChunk(tuple(items)))

    def count_ends(self, ends: int) -> None:
        """Have as many items ahead as it finishes while a message is under way; none when they take long."""
        self._ends += ends
        seconds = self.now() - self._counted_at
        if seconds >= RATE_SECONDS:
            self._ahead = int(self._ends / seconds * AHEAD_SECONDS)
            self._ends, self._counted_at = 0, self.now()


class ProcessEngine:
    """Runs the items of a batch in several worker processes on this machine. Use once."""

    def __init__(self, workers: int, *, note: Callable[[str], None] = lambda _: None) -> None:
        """`note` receives remarks for the user."""
        self._workers = workers
        self._note = note
        self._launcher: Launcher | None = None
        self._links: set[_Link] = set()
        self._has_room = asyncio.Event()
        self._feeding: asyncio.Task[None] | None = None
        self._ending = False
        """Whether workers have been told to finish or to stop."""
        self._stop_reason: AttemptError | None = None
        self._restarts = RESTARTS * workers

    def launch(self) -> None:
        """Start the launcher: cheapest before this process has any threads."""
        if self._launcher is None:
            self._launcher = Launcher()

    def close(self) -> None:
        """End all processes."""
        if self._launcher:
            self._launcher.close()
            self._launcher = None

    async def run(self, queue: WorkQueue, host: DriverHost, spec: WorkerSpec) -> None:
        """Run everything in the queue."""
        self.launch()
        running = asyncio.create_task(self._run(queue, host, spec))
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            self._stop_workers()
            with suppress(Exception):
                await undisturbed(_result(running))
            raise
        finally:
            await undisturbed(asyncio.to_thread(self.close))

    def stop(self, reason: AttemptError) -> None:
        """Set the outcome of attempts that are cancelled from now on."""
        self._stop_reason = reason

    async def _run(self, queue: WorkQueue, host: DriverHost, spec: WorkerSpec) -> None:
        if self._ending:
            return
        workers = min(self._workers, spec.concurrency)
        spec = replace(spec, limit_share=1 / workers)
        self._feeding = asyncio.create_task(self._feed(queue))
        tasks = {self._feeding}
        for number in range(workers):
            concurrency = len(range(number, spec.concurrency, workers))
            tasks.add(asyncio.create_task(self._serve(queue, host, replace(spec, concurrency=concurrency))))
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        if pending:
            self._stop_workers()
            done |= (await asyncio.wait(pending))[0]
        for task in done:
            if not task.cancelled():
                task.result()

    async def _feed(self, queue: WorkQueue) -> None:
        """Send items to the workers until there are none."""
        while True:
            link = await self._link_with_room()
            share = math.ceil(queue.ready / len(self._links))
            items = await queue.chunk(min(link.room, max(1, share)))
            if not items:
                break
            while items:
                link = await self._link_with_room()
                room = link.room
                link.give(items[:room])
                items = items[room:]
        self._end_workers(Finish())

    async def _link_with_room(self) -> _Link:
        while True:
            if (link := max(self._links, key=lambda link: link.room, default=None)) and link.room:
                return link
            self._has_room.clear()
            await self._has_room.wait()

    async def _serve(self, queue: WorkQueue, host: DriverHost, spec: WorkerSpec) -> None:
        """Follow one worker to its end; replace it when it dies."""
        assert self._launcher
        while True:
            channel = await Channel.open(self._launcher.start_worker())
            clock = asyncio.get_running_loop().time
            link = _Link(channel, spec.concurrency, clock, _counted_at=clock())
            channel.send(spec)
            self._links.add(link)
            self._has_room.set()
            if self._ending:
                channel.send(self._last_message())
            try:
                ended = await self._follow(link, host)
            finally:
                self._links.discard(link)
                for call in link.calls.values():
                    call.cancel()
                channel.close()
            if ended:
                if ended.error:
                    raise ended.error
                return
            await self._recover(link, queue, host)
            if self._ending:
                return
            if not self._restarts:
                raise WorkerError(
                    f"worker processes of this run died {RESTARTS * self._workers + 1} times\n"
                    "Look for what ends them, such as a lack of memory; then resume the run."
                )
            self._restarts -= 1

    async def _follow(self, link: _Link, host: DriverHost) -> Ended | None:
        """Handle the messages of a worker; its last one, or None when it died."""
        while (message := await link.channel.receive()) is not None:
            if isinstance(message, Report):
                await self._write(link, message, host)
            elif isinstance(message, HostCall):
                task = asyncio.create_task(self._answer(link, message, host))
                link.calls[message.number] = task
            elif isinstance(message, HostCancel):
                if call := link.calls.get(message.number):
                    call.cancel()
            elif isinstance(message, Ready):
                link.holder = message.holder
            elif isinstance(message, Ended):
                return message
        return None

    async def _write(self, link: _Link, report: Report, host: DriverHost) -> None:
        for (table, key), row in report.rows.added.items():
            if table == "sessions":
                link.sessions[str(row["itemId"])] = key[0]
        ends = list[AttemptEnd]()
        for packed in report.ends:
            link.sessions.pop(packed[0], None)
            ends.append(AttemptEnd.unpack(packed, link.items.pop(packed[0])))
        await host.write(RowBatch(report.rows, tuple(ends)))
        link.count_ends(len(ends))
        if link.room:
            self._has_room.set()

    async def _answer(self, link: _Link, call: HostCall, host: DriverHost) -> None:
        reply = HostReply(call.number)
        try:
            if call.method not in HOST_METHODS:
                raise TypeError(f"workers cannot call {call.method}")
            value = await getattr(host, call.method)(*call.arguments, **call.options)
            if call.method == "share_limits":
                value = self._split_limits(link, cast("Sequence[PoolState]", call.arguments[1]), value)
            if isinstance(value, Drawn) and value.others_hold:
                self._reclaim_money(link)
            reply = HostReply(call.number, value)
        except Exception as error:
            reply = HostReply(call.number, error=_picklable(error))
        finally:
            # A call that was cancelled is answered too: the worker waits for its end.
            link.calls.pop(call.number, None)
            link.channel.send(reply)

    def _split_limits(
        self, link: _Link, states: Sequence[PoolState], others: Sequence[PoolState]
    ) -> Sequence[PoolState]:
        """What a worker needs to know of the limits of others, so that all workers together keep them.

        Another worker counts with the calls that it may make, also while it makes fewer.
        """
        workers = {each.holder: each for each in self._links if each is not link}
        counted = [
            other if other.holder not in workers else _with_slots(other, workers[other.holder].slots)
            for other in others
        ]
        for state in states:
            published = {other.holder for other in others if other.name == state.name}
            first = max(1, int(state.limit_of_all / len(self._links)))
            counted += [
                replace(
                    state, holder=holder, in_use=first, waiting=-first, held_seconds=0.0, cut_seconds_ago=None
                )
                for holder in workers.keys() - published
            ]
            rest = [other for other in counted if other.name == state.name]
            limit, share = limit_and_share(state.limit_of_all, state, rest)
            link.slots[state.name] = max(1, int(limit * share))
        return counted

    def _reclaim_money(self, short: _Link) -> None:
        """Another worker may have drawn what this one needs and reserved it for nothing."""
        for link in self._links - {short}:
            link.channel.send(ReturnMoney())

    async def _recover(self, link: _Link, queue: WorkQueue, host: DriverHost) -> None:
        """Queue the items of a worker that died."""
        if link.items and not self._ending:
            again = plural(len(link.items), "item")
            self._note(f"a worker process died; {again} that it had will be run again")
        sessions = {}
        if link.holder:
            try:
                rows = await host.worker_lost(link.holder, list(link.sessions.values()))
            except StoreError:
                # Nothing more can be written, which ends the batch anyway.
                return
            sessions = {row["itemId"]: row for row in rows}
        for work in link.items.values():
            if row := sessions.get(work.id):
                work.attempts = row["attempt"]
                work.tokens += row["totalTokens"]
                work.tool_calls += row["toolCalls"]
                if row["costUsd"] is not None:
                    work.cost_usd = (work.cost_usd or 0.0) + row["costUsd"]
                work.started_at = work.started_at or row["startedAt"]
            queue.retry(work, 0.0)

    def _stop_workers(self) -> None:
        if self._feeding:
            self._feeding.cancel()
        self._stop_reason = self._stop_reason or Interrupted("the batch was stopped")
        self._end_workers(self._last_message())

    def _last_message(self) -> Stop | Finish:
        return Stop(self._stop_reason) if self._stop_reason else Finish()

    def _end_workers(self, message: Stop | Finish) -> None:
        # Also sent to workers that start later.
        self._ending = True
        for link in self._links:
            link.channel.send(message)


def _with_slots(other: PoolState, slots: Mapping[str, int]) -> PoolState:
    allowed = slots.get(other.name, other.in_use)
    return replace(other, in_use=allowed, waiting=other.in_use + other.waiting - allowed)


async def _result(task: "asyncio.Task[None]") -> None:
    await task
