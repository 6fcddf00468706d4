"""State shared by the operations: limits, rates, names, and the background tasks of the service."""

import asyncio
import base64
import json
import logging
import secrets
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, fields, replace
from datetime import datetime
from difflib import get_close_matches
from functools import cached_property
from typing import Any

from starlette.concurrency import run_in_threadpool

from proctor.agentcore.errors import ThrottlingException, validation_error
from proctor.agentcore.shapes import ALPHABET, Members, Names, ShapeProblem, new_id
from proctor.api.definitions import Datasets, Definitions, NewResource, Recommendations, Token
from proctor.api.evaluation import JUDGE, EvaluationWatch, ModelRouter, detach_evaluation
from proctor.api.launch import LaunchedProcess
from proctor.config import WatchSection
from proctor.context import ModelOptions, RunContext
from proctor.errors import UsageError
from proctor.json_values import JsonMap, JsonObject, parse_json
from proctor.secrets import redactor
from proctor.web.state import AppState


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLimits:
    """Quotas of this server. A rate of 0 is no limit."""

    active_jobs: int = 5
    jobs: int = 2000
    evaluators: int = 1000
    online_configs: int = 1000
    datasets: int = 1000
    bundles: int = 1000
    ab_tests: int = 1000
    dataset_examples: int = 10_000
    """Examples in the draft of one dataset."""
    active_recommendations: int = 5
    start_per_second: float = 3
    stop_per_second: float = 3
    delete_per_second: float = 3
    get_per_second: float = 60
    list_per_second: float = 60
    evaluate_seconds: float = 55
    """Deadline of Evaluate. The client times out after 60 seconds and retries."""
    evaluate_bytes: int = 200 * 1024 * 1024
    body_bytes: int = 32 * 1024 * 1024
    """Maximum body of the other operations: 500 sessions with ground truth."""
    session_timeout_seconds: float | None = None
    """Overrides the idle time after which online configurations evaluate a session;
    None: as each configuration says, in minutes."""
    watch_seconds: float = 5
    """Interval of the search for sessions to evaluate online."""
    take_up_seconds: float = 15
    """Interval of the search for evaluations whose process died. One seen twice in a row is restarted."""

    @property
    def rates(self) -> Mapping[str, float]:
        """Calls per second, by operation."""
        return {
            "StartBatchEvaluation": self.start_per_second,
            "StopBatchEvaluation": self.stop_per_second,
            "DeleteBatchEvaluation": self.delete_per_second,
            "GetBatchEvaluation": self.get_per_second,
            "ListBatchEvaluations": self.list_per_second,
        }


def limits_of(settings: Mapping[str, Any]) -> ServiceLimits:
    """The limits, overridden by settings."""
    known = [field.name for field in fields(ServiceLimits)]
    for name, value in settings.items():
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"Did you mean `{near[0]}`? " if near else ""
            raise UsageError(f"[evaluation.limits] has no `{name}`\n{hint}There are: {', '.join(known)}.")
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise UsageError(f"[evaluation.limits]: `{name}` should be a number that is not negative")
    return replace(ServiceLimits(), **settings)


class RateBuckets:
    """Token buckets that limit the rate of each operation: the calls of one second, at least one."""

    def __init__(self, per_second: Mapping[str, float], now: Callable[[], datetime]) -> None:
        """Operations that are missing or 0 in `per_second` are not limited."""
        self._per_second = per_second
        self._now = now
        self._lock = threading.Lock()
        self._left: dict[str, tuple[float, datetime]] = {}

    def take(self, operation: str) -> None:
        """Count a call; raises if the rate is exceeded."""
        rate = self._per_second.get(operation, 0)
        if rate <= 0:
            return
        now, most = self._now(), max(1.0, rate)
        with self._lock:
            available, at = self._left.get(operation, (most, now))
            # A clock that was set back must not change the bucket.
            available = min(most, available + max(0.0, (now - at).total_seconds()) * rate)
            if available < 1:
                raise ThrottlingException(f"Rate exceeded: {operation} takes {rate:g} calls a second.")
            self._left[operation] = (available - 1, now)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryAnswer:
    """The rows of a log query, as the client gets them."""

    rows: Sequence[Sequence[JsonMap]]
    scanned: int
    scanned_bytes: int
    at: datetime


@dataclass(frozen=True)
class Service:
    """The server, for operations."""

    site: AppState

    @property
    def context(self) -> RunContext:
        return self.site.context

    @property
    def definitions(self) -> Definitions:
        return self.context.store.definitions

    @property
    def datasets(self) -> Datasets:
        return self.context.store.datasets

    @property
    def recommendations(self) -> Recommendations:
        return self.context.store.recommendations

    @property
    def now(self) -> datetime:
        return self.site.now()

    @cached_property
    def limits(self) -> ServiceLimits:
        return limits_of(self.site.evaluation.get("limits", {}))

    @property
    def judge(self) -> str:
        """Default judge model, as `provider/model`."""
        return str(self.site.evaluation.get("judge") or JUDGE)

    @property
    def judging(self) -> JsonObject:
        """Members added to the requests of evaluations."""
        return {"judge": self.judge, "harmfulValue": self.harmful_value}

    @property
    def harmful_value(self) -> float:
        """Value of the label `Harmful`."""
        return float(self.site.evaluation.get("harmful_value", 1.0))

    @property
    def watches(self) -> Sequence[WatchSection]:
        """Services to watch, as `[[watch]]` says."""
        return self.site.context.settings.watches

    @cached_property
    def names(self) -> Names:
        return Names(region=self.site.region, account=self.site.account)

    @cached_property
    def rates(self) -> RateBuckets:
        return RateBuckets(self.limits.rates, self.site.now)

    @cached_property
    def models(self) -> ModelRouter:
        """All reachable models; shared, so that all requests share their rate limits."""
        return self.context.models(ModelOptions(folders=self.context.settings.folders))

    @cached_property
    def queries(self) -> dict[str, QueryAnswer]:
        """Answers of log queries by id, the oldest first."""
        return {}

    @cached_property
    def link_secret(self) -> bytes:
        """Signs the links of files that are downloaded without a token. A restart ends them."""
        return secrets.token_bytes(32)

    @cached_property
    def recommendation_started(self) -> asyncio.Event:
        """Set on the server's loop when a recommendation was stored."""
        return asyncio.Event()

    @cached_property
    def evaluations_in_progress(self) -> dict[str, asyncio.Task[JsonMap]]:
        """Running Evaluate requests by digest."""
        return {}

    def start(self, evaluation_id: str) -> LaunchedProcess:
        """Execute an evaluation in a process that outlives the server."""
        return detach_evaluation(self.context, evaluation_id, launcher=self.site.launcher)

    async def close(self) -> None:
        """Close the models if they were opened."""
        if "models" in self.__dict__:
            await self.models.close()

    @cached_property
    def redact(self) -> Callable[[str], str]:
        """Redacts secrets in a text."""
        return redactor(self.site.environment)


def seconds(stamp: str) -> float:
    """A time of the store in seconds since 1970, as the control plane returns it."""
    return datetime.fromisoformat(stamp).timestamp() if stamp else 0.0


def token_of(operation: str, request: Members) -> Token:
    """The idempotency token of a request."""
    rest = {name: value for name, value in request.items() if name != "clientToken"}
    return Token(operation=operation, token=request.get("clientToken", ""), request=rest)


def new_resource(
    service: Service, operation: str, kind: str, name: str, request: Members, *, alphabet: str = ALPHABET
) -> NewResource:
    """A resource of this kind and name that a request creates."""
    resource_id = new_id(name, alphabet)
    return NewResource(
        id=resource_id,
        name=name,
        arn=service.names.arn(kind, resource_id),
        token=token_of(operation, request),
        description=request.get("description", ""),
        kms_key_arn=request.get("kmsKeyArn", ""),
        tags=request.get("tags", {}),
    )


PAGE = 100
"""Default page size."""
MOST_POSITION = 10**12
"""Positions in page tokens are below this."""


def page_token_of(kind: str, key: Sequence[object]) -> str:
    """The page token for the entries after this key."""
    return base64.urlsafe_b64encode(json.dumps([kind, *key]).encode()).decode()


def key_of(kind: str, token: str | None, *parts: type) -> list[Any] | None:
    """The key in a page token of this kind; None: the first page."""
    if token is None:
        return None
    try:
        decoded = parse_json(base64.urlsafe_b64decode(token.encode()))
    except ValueError:
        decoded = None
    if isinstance(decoded, list) and len(decoded) == len(parts) + 1 and decoded[0] == kind:
        key = decoded[1:]
        if all(_is_a(part, type_) for part, type_ in zip(key, parts, strict=True)):
            # Databases reject NUL.
            return [part.replace("\0", "\ufffd") if isinstance(part, str) else part for part in key]
    raise validation_error([ShapeProblem("nextToken", "Member must be a token that this operation returned")])


def _is_a(value: object, type_: type) -> bool:
    return type(value) is type_ and (not isinstance(value, int) or 0 <= value < MOST_POSITION)


_log = logging.getLogger("proctor.web")


@asynccontextmanager
async def watched(service: Service, recommend: Callable[[Service], Awaitable[None]]) -> AsyncIterator[None]:
    """Run the background tasks while the server runs; `recommend` computes pending recommendations."""
    watch = EvaluationWatch(
        service.context,
        service.start,
        judging=service.judging,
        region=service.names.region,
        account=service.names.account,
        quiet_seconds=service.limits.session_timeout_seconds,
    )
    await _log_errors(watch.resume)
    limits = service.limits
    tasks = [
        asyncio.create_task(_repeat(watch.evaluate_arrivals, limits.watch_seconds)),
        asyncio.create_task(_repeat(watch.follow_drift, limits.watch_seconds)),
        asyncio.create_task(_send_alerts(watch, limits.watch_seconds)),
        asyncio.create_task(_repeat(watch.restart_dead, limits.take_up_seconds)),
        asyncio.create_task(_recommend(service, recommend)),
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await service.close()


async def _repeat(work: Callable[[], None], seconds: float) -> None:
    while True:
        await _log_errors(work)
        await asyncio.sleep(seconds)


async def _send_alerts(watch: EvaluationWatch, seconds: float) -> None:
    while True:
        try:
            await watch.send_alerts()
        except Exception:
            _log.exception("sending alerts failed")
        await asyncio.sleep(seconds)


async def _recommend(service: Service, compute: Callable[[Service], Awaitable[None]]) -> None:
    while True:
        try:
            await compute(service)
        except Exception:
            _log.exception("a background task of the evaluation service failed")
        # A new one is computed at once; others are those of a server that died.
        with suppress(TimeoutError):
            await asyncio.wait_for(service.recommendation_started.wait(), service.limits.take_up_seconds)
        service.recommendation_started.clear()


async def _log_errors(work: Callable[[], None]) -> None:
    """Do some work in a thread; errors are logged, so that the server stays up."""
    try:
        await run_in_threadpool(work)
    except Exception:
        _log.exception("a background task of the evaluation service failed")
