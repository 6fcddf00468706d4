"""Engines run the items of a batch with workers: `LocalEngine` with one worker in this event loop."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, ClassVar

from proctor.batch.engines.messages import WorkerSpec
from proctor.batch.engines.worker import Worker
from proctor.errors import AttemptError
from proctor.models import ModelRouter
from proctor.processes import undisturbed
from proctor.store.tables import SessionRow

if TYPE_CHECKING:
    from proctor.batch.host import DriverHost

MANY_ITEMS = 10_000
"""Fewer take a few seconds in one process."""
MOST_WORKERS = 4
"""Maximum that is started by default: as many as one driver keeps busy with the shortest items."""
ATTEMPTS_EACH = 8
"""Attempts in parallel that make a worker worth it."""


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed: a call then takes half the processor time. None: the loop of asyncio."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


class Engine(ABC):
    """Runs the items of a batch. Use once."""

    shares_disk: ClassVar[bool] = True
    """Whether its workers see the files of the driver's machine."""

    def __init__(self) -> None:
        self._stop_reason: AttemptError | None = None

    @abstractmethod
    async def run(self, host: "DriverHost", spec: WorkerSpec) -> None:
        """Run everything in the queue, at most `spec.concurrency` items at a time.

        Returns when all rows are written and no money is being drawn. When cancelled, stop running attempts
        before the cancellation is passed on.
        """

    def add_lost(self, sessions: Iterable[SessionRow]) -> None:  # noqa: B027 (most engines need not know)
        """Add attempts that were cut off, whose files may be on the machines of workers."""

    def stop(self, reason: AttemptError) -> None:
        """Set the outcome of attempts that are cancelled from now on; the caller then cancels `run`."""
        self._stop_reason = reason


def automatic_workers(*, items: int, concurrency: int, models: ModelRouter, cores: int) -> int:
    """How many processes are worth it for these items, where neither the user nor the plan says.

    Several only where the processor time of one process is the limit: many items, and models that answer on
    this machine. Calls to providers take so long that one process has time for thousands of them.
    """
    if items < MANY_ITEMS or not models.are_on_this_machine:
        return 1
    return max(1, min(cores, MOST_WORKERS, concurrency // ATTEMPTS_EACH))


class LocalEngine(Engine):
    """One worker in this event loop, which writes straight to the store's writer."""

    def __init__(self) -> None:
        super().__init__()
        self._worker: Worker | None = None

    async def run(self, host: "DriverHost", spec: WorkerSpec) -> None:
        """Run everything in the queue."""
        worker = self._worker = Worker(spec, host.context, host, host.rows)
        if self._stop_reason:
            worker.stop_reason = self._stop_reason
        try:
            await worker.open()
            async with asyncio.TaskGroup() as group:
                for _ in range(spec.concurrency):
                    group.create_task(_work(worker, host))
        finally:
            await undisturbed(worker.close())

    def stop(self, reason: AttemptError) -> None:
        """Set the outcome of attempts that are cancelled from now on."""
        super().stop(reason)
        if self._worker:
            self._worker.stop_reason = reason


async def _work(worker: Worker, host: "DriverHost") -> None:
    while work := await host.queue.next():
        host.attempt_ended(await worker.run(work))
