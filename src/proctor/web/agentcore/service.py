"""What every operation stands on: the site, its limits, and the names of its resources."""

import asyncio
import base64
import binascii
import json
import logging
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from difflib import get_close_matches
from functools import cached_property
from typing import Any

from starlette.concurrency import run_in_threadpool

from proctor import __version__
from proctor.api.launch import LaunchedProcess
from proctor.errors import UsageError
from proctor.jobs.evaluation.online import OnlineEvaluationState, OnlineWatch
from proctor.jobs.evaluation.request import JUDGE
from proctor.jobs.evaluation.state import interrupted_evaluations
from proctor.models import ModelRouter
from proctor.secrets import redactor
from proctor.store import Store
from proctor.store.batches import moment
from proctor.store.definitions import Token
from proctor.store.tables import clean
from proctor.web.agentcore.errors import ThrottlingException, told
from proctor.web.agentcore.shapes import Members, Names, ShapeProblem
from proctor.web.auth import ServiceGuard
from proctor.web.launching import execute_evaluation
from proctor.web.state import AppState

# How much there may be of everything, and how often it may be asked for.


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLimits:
    """Quotas of this server. A rate of 0 is no limit."""

    active_jobs: int = 5
    jobs: int = 2000
    evaluators: int = 1000
    online_configs: int = 1000
    start_per_second: float = 3
    stop_per_second: float = 3
    delete_per_second: float = 3
    get_per_second: float = 60
    list_per_second: float = 60
    evaluate_seconds: float = 55
    """When Evaluate answers with what it has. The client gives up after 60 and sends the same again."""
    evaluate_bytes: int = 200 * 1024 * 1024
    body_bytes: int = 32 * 1024 * 1024
    """What any other operation reads: 500 sessions with ample ground truth."""
    session_timeout_seconds: float | None = None
    """How long a session must have been quiet before an online configuration judges it, for all of them;
    None: as each configuration says, in minutes."""
    watch_seconds: float = 5
    """How often the server looks for sessions that online configurations wait for."""
    take_up_seconds: float = 15
    """How often it looks for jobs whose process died. One that it finds so twice in a row, it takes up."""

    @property
    def rates(self) -> Mapping[str, float]:
        """Calls a second, by operation."""
        return {
            "StartBatchEvaluation": self.start_per_second,
            "StopBatchEvaluation": self.stop_per_second,
            "DeleteBatchEvaluation": self.delete_per_second,
            "GetBatchEvaluation": self.get_per_second,
            "ListBatchEvaluations": self.list_per_second,
        }


def limits_of(settings: Mapping[str, Any]) -> ServiceLimits:
    """The limits with some of them set otherwise."""
    known = [field.name for field in fields(ServiceLimits)]
    for name, value in settings.items():
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"Did you mean `{near[0]}`? " if near else ""
            raise UsageError(f"[evaluation.limits] has no `{name}`\n{hint}There are: {', '.join(known)}.")
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise UsageError(f"[evaluation.limits]: `{name}` should be a number that is not negative")
    return replace(ServiceLimits(), **settings)


# How often an operation may be called: a bucket of tokens that fills again by itself.


class RateBuckets:
    """One bucket an operation. A bucket holds what a second allows, and at least one call."""

    def __init__(self, per_second: Mapping[str, float], now: Callable[[], datetime]) -> None:
        """Operations that are not in `per_second`, or have 0 there, are not limited."""
        self._per_second = per_second
        self._now = now
        self._lock = threading.Lock()
        self._left: dict[str, tuple[float, datetime]] = {}

    def take(self, operation: str) -> None:
        """Count one call, or refuse it."""
        rate = self._per_second.get(operation, 0)
        if rate <= 0:
            return
        now, most = self._now(), max(1.0, rate)
        with self._lock:
            left, at = self._left.get(operation, (most, now))
            # A clock that was set back must not fill or drain anything.
            left = min(most, left + max(0.0, (now - at).total_seconds()) * rate)
            if left < 1:
                raise ThrottlingException(f"Rate exceeded: {operation} takes {rate:g} calls a second.")
            self._left[operation] = (left - 1, now)


@dataclass(frozen=True)
class Service:
    """One server, as the operations see it."""

    site: AppState

    @property
    def store(self) -> Store:
        return self.site.store

    @property
    def now(self) -> datetime:
        return self.site.now()

    @cached_property
    def limits(self) -> ServiceLimits:
        return limits_of(self.site.evaluation.get("limits", {}))

    @property
    def judge(self) -> str:
        """Who judges where an evaluator does not say, as `provider/model`."""
        return str(self.site.evaluation.get("judge") or JUDGE)

    @property
    def judging(self) -> dict[str, Any]:
        """What jobs of this server are asked for beside what their callers say."""
        return {"judge": self.judge, "harmfulValue": self.harmful_value}

    @property
    def harmful_value(self) -> float:
        """What a judgement `Harmful` is worth."""
        return float(self.site.evaluation.get("harmful_value", 1.0))

    @cached_property
    def names(self) -> Names:
        return Names(region=self.site.region, account=self.site.account)

    @cached_property
    def rates(self) -> RateBuckets:
        return RateBuckets(self.limits.rates, self.site.now)

    @cached_property
    def models(self) -> ModelRouter:
        """Every model that can be reached, for all who ask at once: so they share one set of limits."""
        return self.site.make_models()

    @cached_property
    def under_way(self) -> dict[str, asyncio.Task[Mapping[str, Any]]]:
        """Evaluations that callers wait for, by what they asked."""
        return {}

    def start(self, evaluation_id: str) -> LaunchedProcess:
        """Execute an evaluation in a process that outlives the server."""
        return execute_evaluation(self.site, evaluation_id)

    async def close(self) -> None:
        """Let go of what was opened."""
        if "models" in self.__dict__:
            await self.models.close()

    @cached_property
    def blot(self) -> Callable[[str], str]:
        """Takes the user's secrets out of a text."""
        return redactor(self.site.environment)

    @cached_property
    def guard(self) -> ServiceGuard:
        return ServiceGuard(token=self.site.token, access_keys=self.site.access_keys)


# What operations on kept things share: their times, and requests that can be sent again.


def seconds(stamp: str) -> float:
    """A time of the store as the control plane tells it: seconds since 1970."""
    at = moment(stamp)
    return at.timestamp() if at else 0.0


def token_of(operation: str, asked: Members) -> Token:
    """What makes a request one that can be sent again."""
    rest = {name: value for name, value in asked.items() if name != "clientToken"}
    return Token(operation=operation, token=asked.get("clientToken", ""), asked=rest)


# One page of a long list, and the token that leads to the next.


PAGE = 100
"""How many entries a page has when nobody says."""


FARTHEST = 10**12
"""No list has so many entries; a position beyond it was made up."""


def page_token_of(kind: str, key: Sequence[Any]) -> str:
    """The token for what comes after the entry with this key."""
    return base64.urlsafe_b64encode(json.dumps([kind, *key]).encode()).decode()


def key_of(kind: str, token: str | None, *parts: type) -> list[Any] | None:
    """The key in a token of this kind, whose parts are texts and positions; None: the list begins."""
    if token is None:
        return None
    try:
        found = json.loads(base64.urlsafe_b64decode(token.encode()))
    except (ValueError, binascii.Error, RecursionError):
        found = None
    if isinstance(found, list) and len(found) == len(parts) + 1 and found[0] == kind:
        key = found[1:]
        if all(_is_a(part, wanted) for part, wanted in zip(key, parts, strict=True)):
            return [clean(part) if isinstance(part, str) else part for part in key]
    raise told([ShapeProblem("nextToken", "Member must be a token that this operation returned")])


def _is_a(value: Any, wanted: type) -> bool:
    return type(value) is wanted and (not isinstance(value, int) or 0 <= value < FARTHEST)


# What the server does unasked: go on with jobs whose process died, and judge sessions as they arrive.


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
        self._started: dict[str, tuple[LaunchedProcess, datetime]] = {}
        self._seen_alone: set[str] = set()
        self._taken_up: Counter[str] = Counter()
        self._online = OnlineWatch(
            service.store,
            OnlineEvaluationState(
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
