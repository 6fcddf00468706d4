"""One attempt at one item: give it a session, let a runner work, write down what it came to.

Whatever happens inside becomes a status and a reason; nothing escapes but what ends the whole
batch. The session is written as it grows, so that a killed attempt leaves its transcript.

Knows nothing of queues; does not know what the runner does.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache
from typing import Any

from proctor import secrets
from proctor.agent import Access, Agent, reach_of, tells_all
from proctor.batch.queue import WorkItem
from proctor.budget.allocation import BatchBudget
from proctor.budget.budgeted_model import BudgetedModel, SpendGuard
from proctor.budget.reservation import Reservation
from proctor.context import AttemptContext
from proctor.errors import AttemptError, CostLimit, Interrupted, StoreError, TimeLimit
from proctor.evaluator import Evaluator
from proctor.expect import scores_of
from proctor.item import ERROR, FAIL, QUEUED, RUNNING, SUCCESS, Item
from proctor.job import ItemFinished
from proctor.model import Model
from proctor.model_client import ModelClient
from proctor.models.gateway.access import Caller
from proctor.runner import FindEvidence, Outcome, Services, no_evidence
from proctor.session import Event, Message, ModelCall, Note
from proctor.store import Recorder, Totals, Writer, timestamp

# Time that counts: limits and measurements that leave out what an attempt had to wait for.


class WorkClock:
    """Measures one attempt."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._started = monotonic()
        self._limits: list[asyncio.Timeout] = []
        self.waiting_seconds = 0.0
        """How long the attempt was held back so far."""

    @property
    def work_seconds(self) -> float:
        """How long it worked so far."""
        return max(0.0, self._monotonic() - self._started - self.waiting_seconds)

    @asynccontextmanager
    async def time_limit(self, seconds: float | None, what: str) -> AsyncIterator[None]:
        """End what is inside with a `TimeLimit` once it has worked so long. None: no limit."""
        if seconds is None:
            yield
            return
        try:
            async with asyncio.timeout(seconds) as limit:
                self._limits.append(limit)
                try:
                    yield
                finally:
                    self._limits.remove(limit)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise TimeLimit(f"{what} did not finish within {seconds:g} s") from error

    def waited(self, seconds: float) -> None:
        """Say, before it begins, that the attempt is going to be held back for so long."""
        self.waiting_seconds += seconds
        for limit in self._limits:
            ends = limit.when()
            if ends is not None and not limit.expired():
                limit.reschedule(ends + seconds)


class Attempts:
    """Carries out the items of one batch, one attempt a call."""

    def __init__(
        self,
        *,
        run_id: str,
        job: str,
        seed: int,
        context: AttemptContext,
        writer: Writer,
        budget: BatchBudget,
        stop_queue: Callable[[], None],
        finished: Callable[[ItemFinished], None] | None = None,
        evidence: FindEvidence = no_evidence,
    ) -> None:
        self._run_id = run_id
        self._job = job
        self._context = context
        self._writer = writer
        self._budget = budget
        self._stop_queue = stop_queue
        self._finished = finished
        self._evidence = evidence
        self._rng = random.Random(seed)
        self._id_rng = random.Random()
        self._runner = cache(context.find_runner)
        self._redact = secrets.redactor(context.environment)
        self.stopping: AttemptError | None = None
        """Why everything under way is being cancelled; set before cancelling."""
        self.halted_by = ""
        """The limit that nothing more is handed out because of: `budget`, `store_budget`, or one item's
        `cost_limit`."""

    async def run(self, work: WorkItem) -> float | None:
        """Make one attempt; seconds until the next one, None when the item is finished."""
        item, cap_usd = work.item, _cap_usd(work)
        if cap_usd is not None and cap_usd <= 0 and _halts_at_its_limit(item):
            # What its earlier attempts have spent is all it may.
            self._halt("cost_limit")
            return None
        account = await self._budget.open(
            self._new_session_id(),
            work.id,
            kind=item.model or item.agent,
            cap_usd=cap_usd,
            asks_first=not item.agent,
        )
        if account is None:
            self._halt(self._budget.short_of)
            return None
        work.attempts += 1
        attempt = _Attempt(self, work, account)
        outcome = await attempt.make()
        work.tries += 1
        return self._finish(work, attempt, outcome)

    def _finish(self, work: WorkItem, attempt: "_Attempt", outcome: Outcome) -> float | None:
        settings = work.item.settings
        delay = self._context.retry.delay(
            status=outcome.status,
            reason=outcome.reason,
            tries=work.tries,
            retries=settings.get("retries", 0),
            retry_on=settings.get("retryOn", ("error", "timeout")),
            rng=self._rng,
        )
        of_its_own = outcome.reason == "cost_limit" and _halts_at_its_limit(work.item)
        halted = outcome.reason == "halted" or of_its_own
        if halted:
            self._halt("cost_limit" if of_its_own else self._budget.short_of)
        waits = halted or delay is not None
        attempt.write_item(outcome, waits=waits)
        if self._finished and not waits:
            self._finished(attempt.end_of_item(outcome))
        return delay

    def _new_session_id(self) -> str:
        # Sorts by time. Not `secrets`, whose call into the system costs more than writing the session.
        return f"{int(self._context.now().timestamp() * 1000):012x}{self._id_rng.getrandbits(32):08x}"

    def _halt(self, limit: str) -> None:
        self.halted_by = self.halted_by or limit
        self._stop_queue()


class _Attempt:
    """The state of one attempt while it runs."""

    def __init__(self, owner: Attempts, work: WorkItem, account: Reservation) -> None:
        self._owner = owner
        self._context = owner._context
        self._work = work
        self._account = account
        self._session_id = account.session_id
        self._clock = WorkClock(owner._context.monotonic)
        self._limit_reached: CostLimit | None = None
        self._task: asyncio.Task[Any] | None = None
        self._stand_in = False
        self._agent_was_called = False
        self._answer = ""
        self._token = ""
        self._recorder = self._begin()
        account.stop = self._cut_off
        account.waited = self._clock.waited
        self._purse = SpendGuard(account, self._cut_off)

    async def make(self) -> Outcome:
        """Let the runner work; never raises but to end the batch."""
        self._task = asyncio.current_task()
        assert self._task is not None
        outcome: Outcome | None = None
        try:
            outcome = await self._run()
            if self._limit_reached:
                # We cancelled ourselves, and that must not hit what this task does next.
                await asyncio.sleep(0)
                self._task.uncancel()
        except asyncio.CancelledError:
            # Once by ourselves to stop the spending, or also by someone who wants all of it to stop.
            if self._limit_reached is None or self._task.uncancel():
                outcome = _as_outcome(self._owner.stopping or Interrupted("the batch was stopped"))
                self._write_end(outcome)
                self.write_item(outcome, waits=outcome.reason == "interrupted")
                raise
        outcome = self._within_limits(outcome)
        self._write_end(outcome)
        return outcome

    def _within_limits(self, outcome: Outcome | None) -> Outcome:
        limit = self._limit_reached
        if limit is None:
            assert outcome is not None
            return outcome
        if outcome and limit.reason == "halted" and outcome.reason in ("completed", "checks_failed"):
            # It came to its end all the same; doing it again would only cost more.
            return outcome
        return _as_outcome(limit)

    async def _run(self) -> Outcome:
        try:
            item = self._work.item
            outcome = await self._owner._runner(item.runner).run(item, self._services())
            return self._judge_answer(item, outcome)
        except StoreError:
            raise
        except AttemptError as error:
            return _as_outcome(error)
        except Exception as error:
            # A fault of ours or of an adapter costs one item, not the batch.
            said = f"{type(error).__name__}: {error}"
            return Outcome(status=ERROR, reason="internal_error", error=said)
        finally:
            self._context.gateway.shut(self._token)

    def _judge_answer(self, item: Item, outcome: Outcome) -> Outcome:
        """What was expected of an agent's last words, when its work has passed otherwise."""
        if not item.agent or "expect" not in item.details or outcome.status != SUCCESS:
            return outcome
        scores = scores_of(item.details["expect"], self._answer)
        for score in scores:
            self._recorder.score(score)
        unmet = "; ".join(score.explanation for score in scores if not score.value)
        return replace(outcome, status=FAIL, reason="checks_failed", error=unmet) if unmet else outcome

    def _begin(self) -> Recorder:
        item, now = self._work.item, timestamp(self._context.now())
        self._stand_in = bool(item.model) and self._context.is_stand_in(item.model)
        row = {
            "runId": self._owner._run_id,
            "itemId": self._work.id,
            "attempt": self._work.attempts,
            "job": self._owner._job,
            "agent": item.agent,
            "model": item.model,
            "standIn": int(self._stand_in),
            "status": RUNNING,
            "source": "batch",
            "startedAt": now,
        }
        self._work.started_at = self._work.started_at or now
        change = {"status": RUNNING, "startedAt": self._work.started_at, "sessionId": self._session_id}
        self._owner._writer.change("batch_items", (self._owner._run_id, self._work.id), change)
        return Recorder(self._owner._writer, self._session_id, row, self._context.now, self._owner._redact)

    def _services(self) -> Services:
        return Services(
            attempt=self._session_id,
            number=self._work.attempts,
            record=self._record,
            score=self._recorder.score,
            models=self._models(),
            access=self._access,
            agent=self._agent,
            home=self._context.home,
            environment=self._environment(self._work.item),
            now=self._context.now,
            time_limit=self._clock.time_limit,
            evaluator=self._evaluator,
            evidence=self._owner._evidence,
        )

    def _evaluator(self, name: str, settings: Mapping[str, Any]) -> Evaluator:
        return self._context.find_evaluator(name, settings, ModelClient(self._models(), self._record))

    def _models(self) -> Model:
        models = self._context.models(
            self._clock.waited, item_id=self._work.id, volatile=self._own_texts(), say=self._say
        )
        if not self._account.is_limited:
            return models
        return BudgetedModel(models, self._purse, worst_case=self._context.worst_case, record=self._record)

    def _say(self, text: str) -> None:
        self._record(Note(text=text))

    def _own_texts(self) -> tuple[str, ...]:
        return (str(self._context.home), self._session_id)

    async def _access(self, agent: Agent) -> Access | None:
        if reach_of(agent) != "gateway":
            return None
        caller = Caller(
            record=self._record,
            model=self._work.item.model,
            waited=self._clock.waited,
            spend=self._purse.grant,
            tell=not tells_all(agent),
            item_id=self._work.id,
            volatile=self._own_texts(),
        )
        access = await self._context.gateway.open(caller)
        self._token = access.token
        return access

    def _cut_off(self, over: CostLimit) -> None:
        if self._limit_reached is None and self._task:
            self._limit_reached = over
            self._task.cancel()

    def _agent(self, name: str, settings: Mapping[str, Any]) -> Agent:
        self._agent_was_called = True
        agent = self._context.find_agent(name, settings)
        self._account.is_blind = reach_of(agent) == "own"
        if agent.stand_in and not self._stand_in:
            self._stand_in = True
            self._owner._writer.change("sessions", (self._session_id,), {"standIn": 1})
        return agent

    def _environment(self, item: Item) -> dict[str, str]:
        if not item.agent:
            return {}
        named = secrets.referenced(map(str, item.details.get("env", {}).values()))
        return secrets.visible(self._context.environment, named={"HOME", *named})

    def _record(self, event: Event) -> None:
        self._recorder.record(event)
        if isinstance(event, ModelCall) and self._limit_reached is None:
            if over := self._account.charge(self._recorder.totals.cost_usd or 0.0):
                self._cut_off(over)
        elif isinstance(event, Message) and event.role == "assistant":
            self._answer = event.content

    def _write_end(self, outcome: Outcome) -> None:
        self._recorder.end(
            outcome.status,
            outcome.reason,
            outcome.error,
            work_seconds=self._clock.work_seconds,
            waiting_seconds=self._clock.waiting_seconds,
        )
        totals = self._recorder.totals
        self._account.settle(self._spent(totals))
        work = self._work
        work.tokens += totals.usage.total_tokens
        work.tool_calls += totals.tool_calls
        if totals.cost_usd is not None:
            work.cost_usd = (work.cost_usd or 0.0) + totals.cost_usd

    def _spent(self, totals: Totals) -> float | None:
        """What is to be settled; None when money may have been spent that nobody told us of."""
        silent_agent = self._agent_was_called and not totals.model_calls
        # Of calls that were cut off the account knows what they could have come to.
        unpriced = totals.unpriced_calls > self._account.calls_lost
        if totals.cost_usd is None and not self._stand_in and (silent_agent or unpriced):
            return None
        return totals.cost_usd or 0.0

    def end_of_item(self, outcome: Outcome) -> ItemFinished:
        """What watchers are told."""
        work = self._work
        return ItemFinished(
            id=work.id,
            item=work.item,
            session_id=self._session_id,
            outcome=outcome,
            attempts=work.attempts,
            tokens=work.tokens,
            cost_usd=work.cost_usd,
            work_seconds=self._clock.work_seconds,
        )

    def write_item(self, outcome: Outcome, *, waits: bool) -> None:
        """Write what the item has come to: its end, or that it is to be taken up again."""
        work = self._work
        values = {
            "status": QUEUED if waits else outcome.status,
            "reason": outcome.reason,
            "error": "" if outcome.status == SUCCESS else self._recorder.line(outcome.error),
            "finishedAt": None if waits else timestamp(self._context.now()),
            "tokensTotal": work.tokens,
            "toolCalls": work.tool_calls,
            "costUsd": work.cost_usd,
            **outcome.result,
        }
        self._owner._writer.change("batch_items", (self._owner._run_id, work.id), values)


def _halts_at_its_limit(item: Item) -> bool:
    """Whether an item that has spent what it may halts the batch and waits for more."""
    return bool(item.settings.get("haltAtLimit"))


def _cap_usd(work: WorkItem) -> float | None:
    """What the next attempt may spend. One that goes on where the last one stopped has what that left."""
    cap: float | None = work.item.settings.get("budget")
    if cap is None or not _halts_at_its_limit(work.item):
        return cap
    return cap - (work.cost_usd or 0.0)


def _as_outcome(error: AttemptError) -> Outcome:
    return Outcome(status=error.status, reason=error.reason, error=str(error))
