"""What the server does unasked: go on with jobs whose process died, and judge sessions as they arrive.

Knows nothing of requests.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta

from starlette.concurrency import run_in_threadpool

from proctor import __version__
from proctor.batch.evaluation import interrupted_evaluations
from proctor.batch.online import OnlineWatch, Watching
from proctor.web.agentcore.service import Service
from proctor.web.launching import Launched

FAILED_AGAIN_AFTER = timedelta(seconds=30)
"""A process that came to nothing is not started again before this: most reasons for it stay for a while."""
FINISHED = (0, 1)
"""How a process ends that has done its job, whatever the job came to."""
MOST_TAKEN_UP = 5
"""A job that dies each time it is taken up is not taken up for ever: what kills it stays."""
_log = logging.getLogger("proctor.web")


class Watch:
    """Starts what has to be done, each at most once in a while."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._started: dict[str, tuple[Launched, datetime]] = {}
        self._seen_alone: set[str] = set()
        self._taken_up: Counter[str] = Counter()
        self._online = OnlineWatch(
            service.store,
            Watching(
                judging=service.judging,
                version=__version__,
                region=service.names.region,
                account=service.names.account,
                quiet_seconds=service.limits.session_timeout_seconds,
            ),
        )

    def resume(self) -> None:
        """Go on with every job that nobody carries out though it is not at its end."""
        for evaluation_id in list(interrupted_evaluations(self._service.store, self._service.now)):
            self._start(evaluation_id)

    def take_up(self) -> None:
        """Go on with jobs whose process died while the server lives.

        Only with those that nobody sits before, and not at first sight: the process of a job that has just
        been started takes a moment until it is heard of.
        """
        service = self._service
        alone = set(interrupted_evaluations(service.store, service.now, only_detached=True))
        for evaluation_id in sorted(alone & self._seen_alone):
            if self._taken_up[evaluation_id] < MOST_TAKEN_UP and self._start(evaluation_id):
                self._taken_up[evaluation_id] += 1
        self._seen_alone = alone

    def look(self) -> None:
        """Have sessions judged that online configurations wait for."""
        for evaluation_id in self._online.look(self._service.now):
            self._start(evaluation_id)

    def _start(self, evaluation_id: str) -> bool:
        """Start a job's process, unless the one before it is at work or has just failed."""
        now = self._service.now
        if evaluation_id in self._started:
            earlier, at = self._started[evaluation_id]
            ended_as = earlier.process.poll()
            if ended_as is None or (ended_as not in FINISHED and now - at < FAILED_AGAIN_AFTER):
                return False
        self._started[evaluation_id] = (self._service.start(evaluation_id), now)
        return True


@asynccontextmanager
async def watched(service: Service) -> AsyncIterator[None]:
    """Look after jobs and configurations for as long as the server lives."""
    watch = Watch(service)
    await _safely(watch.resume)
    limits = service.limits
    looking = [
        asyncio.create_task(_again_and_again(watch.look, limits.watch_seconds)),
        asyncio.create_task(_again_and_again(watch.take_up, limits.take_up_seconds)),
    ]
    try:
        yield
    finally:
        for task in looking:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await service.close()


async def _again_and_again(work: Callable[[], None], seconds: float) -> None:
    while True:
        await _safely(work)
        await asyncio.sleep(seconds)


async def _safely(work: Callable[[], None]) -> None:
    """Do some work; what goes wrong with it must not keep the server from serving."""
    try:
        await run_in_threadpool(work)
    except Exception:
        _log.exception("looking after evaluations failed")
