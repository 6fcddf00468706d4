"""Several worker processes on one machine share a batch.

Each worker process runs attempts on its own event loop and exchanges pickled messages with the driver over a
socket. A launcher process without threads forks the workers, and ends all of them when the driver dies.
"""

import asyncio
import json
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from proctor.batch.engines.messages import WorkerSpec
from proctor.batch.engines.remote import Link, RemoteEngine
from proctor.batch.engines.worker_process import Channel, become_launcher
from proctor.context import Functions
from proctor.errors import WorkerError

if TYPE_CHECKING:
    from proctor.batch.host import DriverHost

RESTARTS = 3
"""Replacements for each worker. More deaths have a cause that another worker would meet too."""
PRELOADED = ("proctor.agents", "proctor.evaluators.registry", "proctor.models", "proctor.runners")
"""What a launcher that was not forked loads of the driver's modules, with all that they import."""
LAUNCHER = (
    "import json, sys; path, modules, end = map(json.loads, sys.argv[1:]); "
    "sys.path[:] = path or sys.path[1:]; from proctor.batch.engines.worker_process import launch_workers; "
    "launch_workers(end, modules)"
)


def can_fork() -> bool:
    """Whether this process can be forked safely: another thread might hold a lock, which the copy would never
    release."""
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


class WorkerLauncher:
    """The driver's connection to the process that forks its workers. Close it to end them."""

    def __init__(self, path: Sequence[str] = sys.path) -> None:
        """Fork this process where that is safe: then workers have loaded everything. If not, start Python.

        `path` is where Python then looks for modules; empty: where it does by itself."""
        self._control, end = socket.socketpair()
        self._program: subprocess.Popen[bytes] | None = None
        self._pid = 0
        if can_fork():
            self._pid = os.fork()
            if not self._pid:
                become_launcher(end.fileno())
        else:
            modules = [name for name in sys.modules if name.startswith(PRELOADED)]
            arguments = [json.dumps(each) for each in (list(path), modules, end.fileno())]
            self._program = subprocess.Popen(
                [sys.executable, "-c", LAUNCHER, *arguments],
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
                raise WorkerError(
                    f"the process that starts workers died ({error})\nResume the run: proctor resume RUN."
                ) from error
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


class ProcessEngine(RemoteEngine):
    """Runs the items of a batch in several worker processes on this machine. Use once."""

    def __init__(
        self,
        workers: int,
        *,
        note: Callable[[str], None] = lambda _: None,
        info: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`note` and `info` receive messages for the user."""
        super().__init__(note=note, info=info)
        self._workers = workers
        self._launcher: WorkerLauncher | None = None
        self._restarts = RESTARTS * workers

    def launch(self) -> None:
        """Start the launcher: cheapest before this process has any threads."""
        if self._launcher is None:
            self._launcher = WorkerLauncher()

    def close(self) -> None:
        """End all processes."""
        if self._launcher:
            self._launcher.close()
            self._launcher = None

    async def _start_workers(self, host: "DriverHost", spec: WorkerSpec) -> "set[asyncio.Task[None]]":
        self.launch()
        workers = min(self._workers, spec.concurrency)
        spec = replace(spec, limit_share=1 / workers)
        return {
            asyncio.create_task(
                self._serve(host, replace(spec, concurrency=len(range(number, spec.concurrency, workers))))
            )
            for number in range(workers)
        }

    async def _serve(self, host: "DriverHost", spec: WorkerSpec) -> None:
        """Follow one worker to its end; replace it when it dies."""
        assert self._launcher
        while True:
            channel = await Channel.open(self._launcher.start_worker())
            clock = asyncio.get_running_loop().time
            link = Link(channel, spec.concurrency, clock, _counted_at=clock())
            if await self._follow_worker(link, spec, host) or self._ending:
                return
            if not self._restarts:
                raise WorkerError(
                    f"worker processes of this run died {RESTARTS * self._workers + 1} times\n"
                    "Look for what ends them, such as a lack of memory; then resume the run."
                )
            self._restarts -= 1
