"""What the server does unasked: go on with jobs whose process died, and judge sessions as they arrive.

Knows nothing of requests.
"""

import asyncio
import logging
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
_log = logging.getLogger("proctor.web")


class Watch:
    """Starts what has to be done, each at most once in a while."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._started: dict[str, tuple[Launched, datetime]] = {}
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

    def look(self) -> None:
        """Have sessions judged that online configurations wait for."""
        for evaluation_id in self._online.look(self._service.now):
            self._start(evaluation_id)

    def _start(self, evaluation_id: str) -> None:
        now = self._service.now
        if evaluation_id in self._started:
            earlier, at = self._started[evaluation_id]
            ended_as = earlier.process.poll()
            if ended_as is None or (ended_as not in FINISHED and now - at < FAILED_AGAIN_AFTER):
                return
        self._started[evaluation_id] = (self._service.start(evaluation_id), now)


@asynccontextmanager
async def watched(service: Service) -> AsyncIterator[None]:
    """Look after jobs and configurations for as long as the server lives."""
    watch = Watch(service)
    await _safely(watch.resume)
    looking = asyncio.create_task(_look_again_and_again(watch, service.limits.watch_seconds))
    try:
        yield
    finally:
        looking.cancel()
        with suppress(asyncio.CancelledError):
            await looking
        await service.close()


async def _look_again_and_again(watch: Watch, seconds: float) -> None:
    while True:
        await _safely(watch.look)
        await asyncio.sleep(seconds)


async def _safely(work: Callable[[], None]) -> None:
    """Do some work; what goes wrong with it must not keep the server from serving."""
    try:
        await run_in_threadpool(work)
    except Exception:
        _log.exception("looking after evaluations failed")
