"""The program of a worker process, and of the launcher that forks workers.

A worker runs the items that the driver sends and reports what they record. When the driver has died, both end
at once; the supervisor processes of programs that attempts have started notice, and end those.
"""

import asyncio
import gc
import os
import pickle
import signal
import socket
import struct
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, cast

from proctor.batch.engines import loop_factory
from proctor.batch.engines.messages import (
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
    SetConcurrency,
    Stop,
    UserMessage,
    WorkChunk,
    WorkerSpec,
)
from proctor.batch.engines.worker import Worker, make_worker_context
from proctor.batch.queue import WorkItem
from proctor.errors import AttemptError, Interrupted, ProctorError
from proctor.models.rate_limits import PoolState
from proctor.processes import undisturbed
from proctor.runner import MergeRequest, MergeResult
from proctor.store import Drawn
from proctor.store.writer import RowGroups, this_process

if TYPE_CHECKING:
    from proctor.evaluator import Evidence
    from proctor.workspace.starting_files import Files
    from proctor.workspace.transfer import FileCopy, RepositoryCopy

REPORT_SECONDS = 0.005
"""A worker sends what it has recorded this often: two hundred messages a second cost little."""
MANY_ROWS = 100
BUSY_SECONDS = 0.02
"""A worker that has sent more than `MANY_ROWS` waits this long: short items begin and end in one message."""
IDLE_SECONDS = 0.05
"""Pause of a worker that had nothing to send."""
REPORT_ROWS = 500
"""More recorded rows are sent at once."""
READ_BYTES = 1 << 20
CLEANUP_SECONDS = 5
"""For tasks that are cancelled at the end of a worker: ending a program takes half a second."""
HEADER = struct.Struct("!I")


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
        if self._writer.is_closing():
            return
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


def become_launcher(end: int) -> NoReturn:
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
    """Fork a worker for each connection that arrives; when the driver has ended, kill them all.

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
            # Their supervisor processes notice, and end everything that was started.
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os._exit(0)


def _run_worker(end: int) -> NoReturn:
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(_work_for_driver(socket.socket(fileno=end)))
    finally:
        os._exit(0)


async def _work_for_driver(end: socket.socket) -> None:
    channel = await Channel.open(end)
    try:
        spec = await channel.receive()
    except Exception as error:
        # A function in it cannot be imported here.
        channel.send(Ended(picklable(error)))
    else:
        if isinstance(spec, WorkerSpec):
            spec = replace(spec, holder=this_process())
            channel.send(Ready(spec.holder))
            failure = await _ProcessWorker(channel, spec).run()
            # The driver ends this process as soon as it knows: what still runs has cleaned up by then.
            await _end_other_tasks()
            channel.send(Ended(failure))
    await channel.drain()


async def _end_other_tasks() -> None:
    """Cancel what runs beside this task, such as idle processes of evaluator functions; wait for its end."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=CLEANUP_SECONDS)


class RemoteHost:
    """The host of a worker, in the driver's process."""

    def __init__(self, channel: Channel, send_rows: Callable[[RowGroups], None]) -> None:
        """`send_rows` sends rows together with the attempts that have ended with them."""
        self._channel = channel
        self._send_rows = send_rows
        self._calls: dict[int, asyncio.Future[object]] = {}
        self._number = 0

    async def write(self, batch: RowBatch) -> None:
        """Send rows to the driver, which writes all messages in order."""
        self._send_rows(batch.rows)

    async def committed(self) -> None:
        """Wait until all rows so far are committed."""
        await self._call("committed")

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
        """The answer of the person who plays an actor; empty: there is none."""
        return cast("str", await self._call("ask_person", item_id, actor, prompt))

    async def copy_files(self, path: Path) -> "FileCopy":
        """A file or folder of the driver as data."""
        return cast("FileCopy", await self._call("copy_files", path))

    async def copy_repository(self, path: Path, base: str, have: Collection[str]) -> "RepositoryCopy":
        """What a session that starts from `base` needs of a repository, without the commits `have`."""
        return cast("RepositoryCopy", await self._call("copy_repository", path, base, have))

    async def starting_repository(self, files: "Files | None", digest: str) -> Path:
        """The repository of a task's starting files, on the driver's machine."""
        return cast("Path", await self._call("starting_repository", files, digest))

    async def publish_branch(self, repository: Path, branch: str, sha: str, bundle: bytes) -> None:
        """Fetch a session's branch into a repository of the driver."""
        await self._call("publish_branch", repository, branch, sha, bundle)

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
        self._concurrency = self._wanted_concurrency = spec.concurrency
        self._host = RemoteHost(channel, self._send_rows)
        self._rows = RowBuffer()
        self._ends: list[PackedEnd] = []
        self._waiting: deque[WorkItem] = deque()
        self._attempts: set[asyncio.Task[None]] = set()
        self._worker: Worker | None = None
        self._has_ended = asyncio.Event()
        """Set when an attempt ends: that is sent soon, also by a worker that had nothing to send."""
        self._finishing = False
        self._finished = asyncio.Event()
        self._returning = set[asyncio.Task[None]]()
        self._error: Exception | None = None

    async def run(self) -> Exception | None:
        """Work until the driver says that there is nothing left; the error that ended it before."""
        reading = asyncio.create_task(self._read())
        reading.add_done_callback(self._reading_done)
        reporting: asyncio.Task[None] | None = None
        try:
            context = make_worker_context(self._spec)
            context.models.pools.notify = lambda text: self._channel.send(UserMessage(text))
            worker = Worker(self._spec, context, self._host, self._rows)
            await worker.open()
            self._worker = worker
            reporting = asyncio.create_task(self._report_regularly())
            self._start_waiting()
            self._end_if_idle()
            await self._finished.wait()
            await worker.close()
            await context.models.close()
        except Exception as error:
            self._error = self._error or picklable(error)
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
            elif isinstance(message, SetConcurrency):
                # A lower one is reached as attempts end: the items that are here were sent to be run.
                self._wanted_concurrency = message.concurrency
                self._concurrency = max(self._concurrency, message.concurrency)
                self._start_waiting()
            elif isinstance(message, HostReply):
                self._host.answered(message)
            elif isinstance(message, ReturnMoney) and self._worker:
                task = asyncio.create_task(self._return_money(self._worker))
                self._returning.add(task)
                task.add_done_callback(self._returning.discard)
            elif isinstance(message, Finish):
                self._finish()
            elif isinstance(message, Stop):
                self._stop(message.reason)
        # The driver has died. What attempts have started ends with this process.
        os._exit(1)

    @staticmethod
    async def _return_money(worker: Worker) -> None:
        # The driver knows of its errors.
        with suppress(ProctorError):
            await worker.return_money()

    def _reading_done(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()):
            # An item cannot be read here.
            self._fail(error)

    def _start_waiting(self) -> None:
        while self._worker and self._waiting and len(self._attempts) < self._concurrency:
            task = asyncio.create_task(self._run_items(self._worker, self._waiting.popleft()))
            self._attempts.add(task)
            task.add_done_callback(self._attempt_done)

    async def _run_items(self, worker: Worker, work: WorkItem) -> None:
        while True:
            end = await worker.run(work)
            self._ends.append(end.pack())
            self._has_ended.set()
            if self._rows.count > REPORT_ROWS:
                self._report()
            if self._concurrency > self._wanted_concurrency:
                self._concurrency -= 1
            if not self._waiting or len(self._attempts) > self._concurrency:
                return
            work = self._waiting.popleft()

    def _attempt_done(self, task: "asyncio.Task[None]") -> None:
        self._attempts.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            # Only what ends the batch is raised.
            self._fail(error)
        # Items that arrived after this task had taken its last one, and before this call, found no room.
        self._start_waiting()
        self._end_if_idle()

    def _fail(self, error: BaseException) -> None:
        self._error = self._error or picklable(error)
        self._stop(Interrupted("the batch was stopped"))

    def _finish(self) -> None:
        self._finishing = True
        self._waiting.clear()
        self._end_if_idle()

    def _stop(self, reason: AttemptError) -> None:
        if self._worker:
            self._worker.stop_reason = reason
        for task in self._attempts:
            task.cancel()
        self._finish()

    def _end_if_idle(self) -> None:
        if self._finishing and not self._attempts:
            self._finished.set()

    async def _report_regularly(self) -> None:
        while True:
            rows = self._rows.count
            self._has_ended.clear()
            if not self._report():
                with suppress(TimeoutError):
                    async with asyncio.timeout(IDLE_SECONDS):
                        await self._has_ended.wait()
            else:
                await asyncio.sleep(BUSY_SECONDS if rows > MANY_ROWS else REPORT_SECONDS)

    def _report(self) -> bool:
        """Send what was recorded; whether there was anything."""
        if not self._rows.count and not self._ends:
            return False
        self._send_rows(self._rows.take())
        return True

    def _send_rows(self, rows: RowGroups) -> None:
        # Always with the ends: an item whose last rows are written must not run again when this process dies.
        ends, self._ends = self._ends, []
        self._channel.send(Report(rows, ends))


def picklable(error: BaseException) -> Exception:
    """The error, or one with its message where it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return ProctorError(f"{type(error).__name__}: {error}")
    return error if isinstance(error, Exception) else ProctorError(repr(error))
