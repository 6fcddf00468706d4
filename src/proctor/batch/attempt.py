"""One attempt at one item: opens a session, runs the runner, and records the outcome.

Every failure becomes a status and a reason; only what ends the whole batch is raised. The session is written
while it grows, so that a killed attempt leaves its transcript.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

from proctor import secrets
from proctor.batch.engines.messages import AttemptEnd
from proctor.batch.queue import WorkItem
from proctor.budget.reservation import BudgetedModel, Reservation, spend_guard
from proctor.errors import (
    AgentNotStarted,
    AttemptError,
    CostLimit,
    EvaluatorError,
    Interrupted,
    StoreError,
    TimeLimit,
    blame,
)
from proctor.item import ERROR, FAIL, QUEUED, RUNNING, SUCCESS, UNCHECKED, Item
from proctor.job import ItemFinished
from proctor.json_values import JsonMap
from proctor.model import Model, is_same_model
from proctor.model_client import JUDGE_SECONDS, ModelClient
from proctor.runner import Outcome, Services, SessionPhase
from proctor.session import Event, Message, ModelCall, Note, Workspace
from proctor.store import Recorder, Totals, timestamp

if TYPE_CHECKING:
    from proctor.agent import Access, Agent
    from proctor.batch.engines.worker import Worker
    from proctor.evaluator import Evaluator

PAUSE_SECONDS = 0.25
"""While a person answers, time limits are extended by this much at a time."""
LONG_LIMIT_SECONDS = 20.0
TICK_SECONDS = 0.25
"""How much later than it should a limit of `LONG_LIMIT_SECONDS` or more may expire."""


class WorkClock:
    """Work time of one attempt: limits and measurements exclude the time it had to wait."""

    def __init__(self, monotonic: Callable[[], float], timers: "SharedTimers | None" = None) -> None:
        self._monotonic = monotonic
        self._timers = timers or SharedTimers()
        self._started = monotonic()
        self._limits: list[_WorkLimit] = []
        self.phase_seconds: dict[str, float] = {}
        """Work time by part of the session."""
        self.waiting_seconds = 0.0
        """How long the attempt had to wait so far: for rate limits, retries or money."""

    @property
    def work_seconds(self) -> float:
        """How long it has worked so far."""
        return max(0.0, self._monotonic() - self._started - self.waiting_seconds)

    @contextmanager
    def phase(self, name: SessionPhase) -> Iterator[None]:
        """Add the work time of the body to a part of the session."""
        started = self.work_seconds
        try:
            yield
        finally:
            seconds = max(0.0, self.work_seconds - started)
            self.phase_seconds[name] = self.phase_seconds.get(name, 0.0) + seconds

    def time_limit(self, seconds: float | None, what: str) -> AbstractAsyncContextManager[None]:
        """Raise a `TimeLimit` once the body has worked this long. None: no limit."""
        return nullcontext() if seconds is None else _WorkLimit(self._timers, self._limits, seconds, what)

    def waited(self, seconds: float) -> None:
        """Announce a pause of this length before it starts."""
        self.waiting_seconds += seconds
        for limit in self._limits:
            limit.extend(seconds)


class SharedTimers:
    """Timers of limits. Long ones share one timer of the event loop for each quarter of a second: a timer of
    its own takes longer than all else that a limit does. Use it on one event loop."""

    def __init__(self) -> None:
        self._due: dict[int, set[_WorkLimit]] = {}

    def start(self, limit: "_WorkLimit") -> None:
        """Expire a limit at its time of the event loop, or up to `TICK_SECONDS` later."""
        loop, when = asyncio.get_running_loop(), limit.when
        if when - loop.time() < LONG_LIMIT_SECONDS:
            limit.timer = loop.call_at(when, limit.expire)
            return
        tick = int(when / TICK_SECONDS) + 1
        group = self._due.get(tick)
        if group is None:
            group = self._due[tick] = set()
            loop.call_at(tick * TICK_SECONDS, self._expire, tick)
        group.add(limit)
        limit.timer = group

    def _expire(self, tick: int) -> None:
        for limit in list(self._due.pop(tick)):
            limit.expire()


class _WorkLimit:
    """A time limit that pauses extend: as `asyncio.timeout`, which takes several times as long."""

    __slots__ = (
        "_before",
        "_is_expired",
        "_limits",
        "_seconds",
        "_task",
        "_timers",
        "_what",
        "timer",
        "when",
    )

    def __init__(self, timers: SharedTimers, limits: "list[_WorkLimit]", seconds: float, what: str) -> None:
        self._timers, self._limits, self._seconds, self._what = timers, limits, seconds, what
        self._is_expired = False
        self.when: float
        """In the time of the event loop."""
        self.timer: set[_WorkLimit] | asyncio.TimerHandle

    async def __aenter__(self) -> None:
        # Starts now, which may be later than this object was made.
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None
        self._task, self._before = task, task.cancelling()
        self.when = loop.time() + self._seconds
        self._timers.start(self)
        self._limits.append(self)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._limits.remove(self)
        self._stop_timer()
        # Only a cancellation by the limit itself ends here; any other is passed on.
        if (
            self._is_expired
            and self._task.uncancel() <= self._before
            and kind is not None
            and issubclass(kind, asyncio.CancelledError)
        ):
            raise TimeLimit(f"{self._what} did not finish within {self._seconds:g} s") from error

    def extend(self, seconds: float) -> None:
        """Extend the limit by this many seconds."""
        if not self._is_expired:
            self._stop_timer()
            self.when += seconds
            self._timers.start(self)

    def _stop_timer(self) -> None:
        if isinstance(self.timer, set):
            self.timer.discard(self)
        else:
            self.timer.cancel()

    def expire(self) -> None:
        """Cancel the task that works."""
        self._is_expired = True
        self._task.cancel()


class Attempt:
    """One attempt at an item, from its reservation to its end."""

    def __init__(self, worker: "Worker", work: WorkItem) -> None:
        self._worker = worker
        self._context = worker.context
        self._work = work
        self._session_id = worker.new_session_id()
        self._reservation: Reservation
        self._clock: WorkClock
        self._recorder: Recorder
        self._limit_reached: CostLimit | None = None
        self._task: asyncio.Task[Any] | None = None
        self._is_mock = False
        self._agent_was_called = False
        self._answer = ""
        self._token = ""

    async def run(self) -> AttemptEnd:
        """Run the item; raises nothing but what ends the batch."""
        worker, work, item = self._worker, self._work, self._work.item
        cap_usd = _cap_usd(work)
        if cap_usd is not None and cap_usd <= 0 and _halts_at_limit(item):
            # Its earlier attempts have spent everything it may spend.
            return AttemptEnd(work=work, halted_by="cost_limit")
        reservation = await worker.budget.open(
            self._session_id,
            work.id,
            kind=item.model or item.agent,
            cap_usd=cap_usd,
            asks_first=not item.agent,
        )
        if reservation is None:
            return AttemptEnd(work=work, halted_by=worker.budget.short_of)
        work.attempts += 1
        self._begin(reservation)
        if cap_usd is not None and cap_usd <= 0:
            spent = f"earlier attempts have spent ${_spent_usd(work):.4f}, or may have"
            limit = CostLimit(f"{spent}, of the ${item.settings['budget']:.4f} of the item")
            return self._end(_as_outcome(limit))
        self._task = asyncio.current_task()
        assert self._task is not None
        outcome: Outcome | None = None
        try:
            try:
                outcome = await worker.find_runner(item.runner).run(item, self._services())
                outcome = self._check_answer(item, outcome)
            except StoreError:
                raise
            except TimeLimit as limit:
                # Calls that are still running are recorded.
                self._shut_gateway()
                is_silent = self._token and not self._recorder.totals.model_calls
                outcome = _as_outcome(
                    AgentNotStarted(f"{limit}, and had called no model") if is_silent else limit
                )
            except Exception as error:
                outcome = _failed(error)
            finally:
                self._shut_gateway()
            if self._limit_reached:
                # `_cut_off` cancelled this task; that must not reach what the task does next.
                await asyncio.sleep(0)
                self._task.uncancel()
        except asyncio.CancelledError:
            # Cancelled by `_cut_off` alone, or also (or only) because the batch stops.
            if self._limit_reached is None or self._task.uncancel():
                outcome = _as_outcome(worker.stop_reason or Interrupted("the batch was stopped"))
                self._write_end(outcome)
                self._write_item(outcome, waits=outcome.reason == "interrupted")
                raise
        return self._end(self._within_limits(outcome))

    def _shut_gateway(self) -> None:
        if self._token:
            self._context.models.gateway.shut(self._token)

    def _within_limits(self, outcome: Outcome | None) -> Outcome:
        limit = self._limit_reached
        if limit is None:
            assert outcome is not None
            return outcome
        if (
            outcome
            and limit.reason == "halted"
            and outcome.reason in ("completed", "checks_failed", UNCHECKED)
        ):
            # It finished all the same; another attempt would only cost more.
            return outcome
        return _as_outcome(limit)

    def _check_answer(self, item: Item, outcome: Outcome) -> Outcome:
        """Check the agent's last message against `expect`, when everything else has passed."""
        if not item.agent or "expect" not in item.details or outcome.is_answer_checked:
            return outcome
        if outcome.status != SUCCESS:
            return outcome
        from proctor.evaluators.expect import check_expectations

        checked = check_expectations(item.details["expect"], self._answer, self._recorder.score)
        if checked.unmet:
            return replace(outcome, status=FAIL, reason="checks_failed", error="; ".join(checked.unmet))
        return replace(outcome, reason="completed") if outcome.reason == UNCHECKED else outcome

    def _begin(self, reservation: Reservation) -> None:
        """Open the session."""
        worker, item, now = self._worker, self._work.item, timestamp(self._context.now())
        self._clock = WorkClock(self._context.monotonic, worker.timers)
        self._is_mock = bool(item.model) and self._context.models.is_mock(item.model)
        row = {
            "runId": worker.run_id,
            "itemId": self._work.id,
            "attempt": self._work.attempts,
            "job": worker.job,
            "agent": item.agent,
            "model": item.model,
            "isMock": int(self._is_mock),
            "status": RUNNING,
            "source": "batch",
            "startedAt": now,
        }
        self._work.started_at = self._work.started_at or now
        change = {"status": RUNNING, "startedAt": self._work.started_at, "sessionId": self._session_id}
        worker.rows.change("batch_items", (worker.run_id, self._work.id), change)
        self._recorder = Recorder(worker.rows, self._session_id, row, self._context.now, worker.redact)
        self._reservation = reservation
        reservation.stop = self._cut_off
        reservation.waited = self._clock.waited
        reservation.note = self._note

    def _services(self) -> Services:
        worker = self._worker
        return Services(
            session_id=self._session_id,
            attempt=self._work.attempts,
            record=self._record,
            score=self._recorder.score,
            models=self._models(),
            access=self._access,
            agent=self._agent,
            home=self._context.settings.home,
            environment=self._environment(self._work.item) if self._work.item.agent else {},
            now=self._context.now,
            time_limit=self._clock.time_limit,
            phase=self._clock.phase,
            model_calls=lambda: self._recorder.totals.model_calls,
            evaluator=self._evaluator,
            sessions=worker.host.load_session,
            resource=worker.load_resource,
            ask_person=self._ask_person,
            merge=worker.host.merge,
            commit=worker.commit,
            redact=worker.redact,
            sandbox=worker.sandbox,
            driver_files=worker.files,
            checkpoint=self._work.checkpoint,
        )

    def _evaluator(self, name: str, settings: JsonMap) -> "Evaluator":
        # Loaded with the first evaluator.
        from proctor.evaluator import sandbox_of

        client = ModelClient(
            self._models(),
            self._record,
            call_limit=lambda: self._clock.time_limit(JUDGE_SECONDS, "a call of the judge"),
        )
        evaluator = self._context.find_evaluator(name, settings, client)
        if sandbox := sandbox_of(evaluator):
            with blame(EvaluatorError, "confining the evaluator"):
                self._record(Workspace(sandbox=sandbox.kind_of(None)))
        return evaluator

    def _models(self) -> Model:
        models = self._context.models.for_attempt(
            self._clock.waited, item_id=self._work.id, volatile=self._volatile_texts(), note=self._note
        )
        return BudgetedModel(
            models, self._reservation, worst_case=self._context.models.worst_case, record=self._record
        )

    async def _ask_person(self, actor: str, prompt: str) -> str:
        answering = asyncio.ensure_future(self._worker.host.ask_person(self._work.id, actor, prompt))
        clock = asyncio.get_running_loop().time
        try:
            while not answering.done():
                started = clock()
                self._clock.waited(PAUSE_SECONDS)
                await asyncio.wait([answering], timeout=PAUSE_SECONDS)
                # On a busy machine the pause is longer than announced.
                self._clock.waited(max(0.0, clock() - started - PAUSE_SECONDS))
        finally:
            answering.cancel()
            await asyncio.wait([answering])
        return answering.result()

    def _note(self, text: str) -> None:
        self._record(Note(text=text))

    def _volatile_texts(self) -> tuple[str, ...]:
        return (str(self._context.settings.home), self._session_id)

    async def _access(self, agent: "Agent") -> "Access | None":
        if agent.reach != "gateway":
            return None
        # Loaded for agents that use the gateway.
        from proctor.models.gateway.access import Caller

        caller = Caller(
            record=self._record,
            model=self._work.item.model,
            waited=self._clock.waited,
            spend=spend_guard(self._reservation, self._cut_off),
            reads_traffic=not agent.records_transcript,
            item_id=self._work.id,
            volatile=self._volatile_texts(),
        )
        access = await self._context.models.gateway.open(caller)
        self._token = access.token
        return access

    def _cut_off(self, limit: CostLimit) -> None:
        if self._limit_reached is None and self._task:
            self._limit_reached = limit
            self._task.cancel()

    def _agent(self, name: str, settings: JsonMap) -> "Agent":
        self._agent_was_called = True
        agent = self._context.find_agent(name, settings)
        self._reservation.is_blind = agent.reach == "own"
        if agent.is_mock and not self._is_mock:
            self._is_mock = True
            self._worker.rows.change("sessions", (self._session_id,), {"isMock": 1})
        return agent

    def _environment(self, item: Item) -> dict[str, str]:
        named = secrets.referenced(map(str, item.details.get("env", {}).values()))
        visible = secrets.visible(self._context.environment, named={"HOME", *named})
        return {**visible, **self._work.variables}

    def _record(self, event: Event) -> None:
        self._recorder.record(event)
        if isinstance(event, ModelCall) and self._limit_reached is None:
            if limit := self._reservation.charge(self._recorder.cost_usd or 0.0):
                self._cut_off(limit)
        elif isinstance(event, Message) and event.role == "assistant":
            self._answer = event.content

    def _end(self, outcome: Outcome) -> AttemptEnd:
        """Write the outcome; the item is finished, waits for another attempt, or halts the batch."""
        self._write_end(outcome)
        worker, work, settings = self._worker, self._work, self._work.item.settings
        work.tries += 1
        # The driver has the next one.
        work.checkpoint = None
        delay = None
        if outcome.status != SUCCESS:
            delay = worker.retry.delay(
                status=outcome.status,
                reason=outcome.reason,
                tries=work.tries,
                retries=settings.get("retries", 0),
                retry_on=settings.get("retryOn", ("error", "timeout")),
                rng=worker.rng,
            )
        halted_by = ""
        if outcome.reason == "cost_limit" and _halts_at_limit(work.item):
            halted_by = "cost_limit"
        elif outcome.reason == "halted":
            halted_by = worker.budget.short_of
        waits = bool(halted_by) or delay is not None
        self._write_item(outcome, waits=waits)
        if waits:
            return AttemptEnd(work=work, delay_seconds=delay, halted_by=halted_by)
        finished = ItemFinished(
            id=work.id,
            item=work.item,
            session_id=self._session_id,
            outcome=outcome,
            attempts=work.attempts,
            tokens=work.tokens,
            cost_usd=work.cost_usd,
            work_seconds=self._clock.phase_seconds.get("agent", self._clock.work_seconds),
        )
        return AttemptEnd(work=work, finished=finished)

    def _write_end(self, outcome: Outcome) -> None:
        self._recorder.end(
            outcome.status,
            outcome.reason,
            outcome.error,
            work_seconds=self._clock.work_seconds,
            waiting_seconds=self._clock.waiting_seconds,
            phase_seconds=self._clock.phase_seconds,
            answered_model=self._answered_model(),
        )
        totals = self._recorder.totals
        work = self._work
        work.spent_usd += self._reservation.close(self._spent(totals))
        work.tokens += totals.usage.total_tokens
        work.tool_calls += totals.tool_calls
        if totals.cost_usd is not None:
            work.cost_usd = (work.cost_usd or 0.0) + totals.cost_usd

    def _answered_model(self) -> str:
        """The model that an agent with a service of its own has used, if it is not the requested one."""
        if not self._agent_was_called or not self._reservation.is_blind or self._is_mock:
            return ""
        model = self._recorder.main_model
        return model if model and not is_same_model(self._work.item.model, model) else ""

    def _spent(self, totals: Totals) -> float | None:
        """The cost of the attempt; None when it is unknown whether more was spent."""
        # What goes through the gateway is seen: no call costs nothing.
        silent_agent = self._agent_was_called and self._reservation.is_blind and not totals.model_calls
        # The reservation knows the worst case of calls that were cut off.
        unpriced = totals.unpriced_calls > self._reservation.calls_lost
        if totals.cost_usd is None and not self._is_mock and (silent_agent or unpriced):
            return None
        return totals.cost_usd or 0.0

    def _write_item(self, outcome: Outcome, *, waits: bool) -> None:
        """Write the status of the item: final, or queued again when it `waits` for another attempt."""
        work = self._work
        values = {
            "status": QUEUED if waits else outcome.status,
            "reason": outcome.reason,
            "error": "" if outcome.status == SUCCESS else self._recorder.line(outcome.error),
            # Not before its start, even if the clock was set back meanwhile.
            "finishedAt": None if waits else max(work.started_at or "", timestamp(self._context.now())),
            "tokensTotal": work.tokens,
            "toolCalls": work.tool_calls,
            "costUsd": work.cost_usd,
            "merge": "",
            **outcome.result,
        }
        self._worker.rows.change("batch_items", (self._worker.run_id, work.id), values)


def _as_outcome(error: AttemptError) -> Outcome:
    return Outcome(status=error.status, reason=error.reason, error=str(error))


def _failed(error: Exception) -> Outcome:
    if isinstance(error, AttemptError):
        return _as_outcome(error)
    # A bug in Proctor or in an adapter costs one item, not the batch.
    return Outcome(status=ERROR, reason="internal_error", error=f"{type(error).__name__}: {error}")


def _halts_at_limit(item: Item) -> bool:
    """Whether an item that has spent what it may spend halts the batch and waits for more."""
    return bool(item.settings.get("haltAtLimit"))


def _cap_usd(work: WorkItem) -> float | None:
    """What the next attempt may spend: what earlier ones have left, also those of processes that died."""
    cap: float | None = work.item.settings.get("budget")
    return None if cap is None else max(0.0, cap - _spent_usd(work))


def _spent_usd(work: WorkItem) -> float:
    """What earlier attempts have spent or may have; records of older versions have only the former."""
    return max(work.cost_usd or 0.0, work.spent_usd)
