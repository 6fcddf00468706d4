"""State of a run while it is executed, cheap enough to compute several times a second.

Counts come from an index alone. Sums would need every row; but finished items do not change, so those at
the start of the plan are summed once and cached.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from proctor.cache import ResultCache
from proctor.context import RunContext
from proctor.item import ERROR, FAIL, FINISHED, RUNNING, SUCCESS, TIMEOUT
from proctor.jobs import job_of_run
from proctor.json_values import CamelJson
from proctor.results.summary import MockUsage, stand_ins
from proctor.stats.intervals import Estimate, Rate, anytime_rate, rate_over_tasks
from proctor.stop_rule import STOP_RULE, StopState
from proctor.store import Scope, StoreReader, aggregates
from proctor.store.aggregates import MakerSums, TaskSums, UsageSums
from proctor.store.batches import ABORTED
from proctor.store.evaluations import evaluations_of_run
from proctor.store.items import agent_model_counts, factor_names, status_counts
from proctor.store.runs import cut_off_counts
from proctor.store.tables import BatchRow
from proctor.validity import sum_counts, sum_served

if TYPE_CHECKING:
    from proctor.results.stopping import StopFollower

RATE_SECONDS = 30
"""The rate is that of the last half minute: long enough for items of some seconds, short enough to
notice that a provider has slowed down."""
# Below this, a single item would change the rate too much.
SHORTEST_RATE_SECONDS = 2
SUMS_AGE = timedelta(seconds=2)
"""Sums over all attempts and, in large runs, over all items are renewed less often than the rest."""
SIGNATURES_AGE = timedelta(seconds=30)
"""How long a check of signatures is valid."""
LARGE = 10_000
"""Items from which a run is large."""
NO_RATE = Estimate(value=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningItem(CamelJson):
    """A running item."""

    item_id: str
    repo: str
    prompt: str
    model: str
    agent: str
    repeat: int
    session_id: str
    elapsed_seconds: float
    tokens: int
    """So far, in this attempt."""
    action: str = ""
    """Its last recorded action: a tool call, or who wrote the last message. Empty: nothing yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolUse(CamelJson):
    """Concurrency of calls to one provider and model."""

    name: str
    limit: int
    """Current limit of concurrent calls."""
    in_use: int
    waiting: int
    rate_limited: int
    """Rate-limit errors of the provider."""
    waited_seconds: float
    """All calls together."""
    paused_seconds: float
    """Seconds until calls resume; 0: not paused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState(CamelJson):
    """State of a run: what changes while it is executed."""

    run_id: str
    status: str
    reason: str
    finished_at: str | None
    is_stopping: bool
    """A stop was requested and has not completed."""
    counts: Mapping[str, int]
    """Items by status, with every status."""
    unchecked_count: int = 0
    """Successes that nothing checked."""
    item_count: int
    finished_count: int
    aborted_count: int = 0
    """Of them, ended by an abort before they finished."""
    tokens: int
    cost_usd: float | None
    """Null: unknown price."""
    cost_is_lower_bound: bool
    """Whether a process of the run died: calls may have cost money that is not recorded."""
    budget_usd: float | None
    spent_usd: float
    """Charged to the budget."""
    reserved_usd: float
    """Reserved for running attempts."""
    elapsed_seconds: float
    items_per_minute: float | None
    """In the last half minute; of a run that has ended, in all of its time. Null: unknown."""
    eta_seconds: float | None
    """Until the last item ends at this rate. Null: unknown."""
    pools: Sequence[PoolUse]
    running: Sequence[RunningItem]
    """The ten longest-running items."""
    stop_when: StopState | None = None
    """What the rule to stop early has decided. Null: the plan has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentModel(CamelJson):
    """An agent and model, and the number of their items."""

    agent: str
    model: str
    items: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDetails(RunState):
    """A run."""

    job: str
    evaluations: Sequence[str] = ()
    """Evaluations of its sessions, newest first."""
    created_at: str
    plan_path: str
    concurrency: int
    seed: int | None
    proctor_version: str
    agents_and_models: Sequence[AgentModel]
    mocks: Sequence[MockUsage]
    validity: Mapping[str, Mapping[str, int]]
    """What makes sessions less valid as data, by kind: how many `events` in how many `sessions`."""
    served_models: Mapping[str, Mapping[str, int]]
    """By requested model, the calls that each model answered, as the providers say."""
    factors: Sequence[str]
    """Factors to group items by."""
    has_analysis: bool
    """Whether its job has an analysis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentModelProgress:
    """Progress of one agent and model."""

    name: str
    finished: int
    items: int
    rate: Rate
    """Successes of the items that were checked. Its interval holds at every look; where several tasks
    are repeated there is none, since repeats of a task are not independent."""
    tokens: int
    cost_usd: float | None
    """None: no price is known."""


@dataclass(frozen=True, slots=True)
class _Sums:
    """Tokens and money of the finished items before a position of the plan."""

    before: int = 0
    tokens: int = 0
    cost_usd: float | None = None
    unchecked: int = 0

    def plus(self, row: UsageSums) -> "_Sums":
        """The sums with those of a row."""
        return _Sums(
            self.before,
            self.tokens + (row["tokens"] or 0),
            _added(self.cost_usd, row["cost"]),
            self.unchecked + (row["unchecked"] or 0),
        )


class RunFollower:
    """Looks at a run again and again: each look reuses what earlier ones have summed. Not thread-safe."""

    def __init__(self, read: StoreReader, run_id: str) -> None:
        self._read = read
        self._run_id = run_id
        self._settled = _Sums()
        self._marks: list[tuple[datetime, int]] = []
        """When how many items had finished, over the last half minute."""
        self._stop: StopFollower | None = None
        self._money: tuple[datetime, tuple[float, float]] | None = None
        self._agents_and_models: tuple[datetime, Sequence[AgentModelProgress]] | None = None
        self._has_looked = False

    def look(self, now: datetime) -> RunState:
        """The state of the run. The amounts of its budget may be two seconds old while it is executed."""
        read = self._read
        batch = read.batch(self._run_id, now)
        run_id, is_running = batch["runId"], batch["status"] == RUNNING
        counts = status_counts(read, run_id)
        total, finished = sum(counts.values()), sum(counts[status] for status in FINISHED)
        if not self._has_looked:
            self._stop, self._has_looked = _stop_follower(read, run_id), True
        sums = self._sums(run_id)
        elapsed = _elapsed(batch, now)
        aborted = cut_off_counts(read, [run_id] if batch["status"] == ABORTED else []).get(run_id, 0)
        # An abort ends items in errors.
        done = finished - (counts[ERROR] if batch["status"] == ABORTED else 0)
        rate = self._rate(now, finished, elapsed) if is_running else _mean_rate(done, elapsed)
        reserved, spent = self._reserved_and_spent(batch, now)
        return RunState(
            run_id=run_id,
            status=batch["status"],
            reason=batch["reason"],
            finished_at=batch["finishedAt"],
            is_stopping=bool(batch["abortRequestedAt"]) and is_running,
            counts=counts,
            unchecked_count=sums.unchecked,
            item_count=total,
            finished_count=finished,
            aborted_count=aborted,
            tokens=sums.tokens,
            cost_usd=sums.cost_usd,
            cost_is_lower_bound=bool(batch["crashes"] and sums.cost_usd),
            budget_usd=batch["budgetUsd"],
            spent_usd=spent,
            reserved_usd=reserved,
            elapsed_seconds=round(elapsed, 3),
            items_per_minute=None if rate is None else round(60 * rate, 2),
            eta_seconds=round((total - finished) / rate) if is_running and rate else None,
            pools=_pools(read, run_id, now),
            running=_running(read, run_id, now),
            stop_when=self._stop.document(total, finished) if self._stop else None,
        )

    def agents_and_models(self, state: RunState, now: datetime) -> Sequence[AgentModelProgress]:
        """Each agent and model, at the last look; in a large run that is executed, up to two seconds old."""
        last = self._agents_and_models
        is_recent = last is not None and now - last[0] < SUMS_AGE
        if last is None or not is_recent or state.item_count <= LARGE or state.status != RUNNING:
            last = self._agents_and_models = now, agents_and_models(self._read, state.run_id)
        return last[1]

    def _sums(self, run_id: str) -> _Sums:
        """The sums of everything: what is settled, what finished after it, and what is running."""
        read = self._read
        # The plan's beginning, up to the first item that has not finished.
        before = aggregates.finished_prefix(read, run_id)
        if self._settled.before > before:
            # Items that had finished are retried.
            self._settled = _Sums()
        added = aggregates.sums_between(read, run_id, self._settled.before, before)
        self._settled = replace(self._settled.plus(added), before=before)
        finished = aggregates.finished_sums(read, run_id, before)
        return self._settled.plus(finished).plus(aggregates.running_sums(read, run_id))

    def _rate(self, now: datetime, finished: int, elapsed: float) -> float | None:
        """Finished items per second, lately."""
        oldest = now - timedelta(seconds=RATE_SECONDS)
        self._marks = [*(mark for mark in self._marks if mark[0] >= oldest), (now, finished)]
        first, had_finished = self._marks[0]
        span, added = (now - first).total_seconds(), finished - had_finished
        # If none finished lately, items take longer than that: the rate is that since the start.
        if span >= SHORTEST_RATE_SECONDS and (added or not finished):
            return max(0, added) / span
        return _mean_rate(finished, elapsed)

    def _reserved_and_spent(self, batch: BatchRow, now: datetime) -> tuple[float, float]:
        """Sums over all attempts."""
        if batch["budgetUsd"] is None:
            return 0.0, 0.0
        last = self._money
        if last is None or batch["status"] != RUNNING or abs(now - last[0]) >= SUMS_AGE:
            last = self._money = now, self._read.reserved_and_spent(batch["runId"])
        return last[1]


def _mean_rate(finished: int, elapsed: float) -> float | None:
    return finished / elapsed if finished and elapsed > 0 else None


def _stop_follower(read: StoreReader, run_id: str) -> "StopFollower | None":
    """Follows the rule of a run to stop early; None: it has none."""
    if read.resource(run_id, STOP_RULE) is None:
        return None
    # Loads numpy, which no other run needs.
    from proctor.results.stopping import StopFollower, stored_rule

    rule = stored_rule(read, run_id)
    return StopFollower(rule, read, run_id) if rule else None


class RunningRuns:
    """Looks at the runs that are executed, again and again. Not thread-safe."""

    def __init__(self, ctx: RunContext) -> None:
        self._ctx = ctx
        self._followers: dict[str, RunFollower] = {}

    def look(self) -> list[RunState]:
        """The state of each, newest first."""
        read, now = self._ctx.store.read, self._ctx.now()
        known = self._followers
        run_ids = [row["runId"] for row in read.live_batches(now)]
        self._followers = {run_id: known.get(run_id) or RunFollower(read, run_id) for run_id in run_ids}
        return [follower.look(now) for follower in self._followers.values()]


class RunDetailsCache:
    """Runs with all that a page shows of them; thread-safe."""

    def __init__(self, ctx: RunContext) -> None:
        self._ctx = ctx
        self._details = ResultCache[RunDetails](ctx.now, while_running=timedelta(0))
        self._followers = ResultCache[RunFollower](ctx.now, while_running=timedelta(days=1))
        self._factors = ResultCache[tuple[Sequence[AgentModel], Sequence[str]]](
            ctx.now, while_running=timedelta(hours=1)
        )

    def of(self, run_id: str) -> RunDetails:
        """A run, by its ID or an unambiguous prefix."""
        read = self._ctx.store.read
        batch = read.batch(run_id, self._ctx.now())
        details = self._details.get(batch, "", lambda: self._look(batch))
        # An evaluation may start at any time, and changes nothing of the run.
        return replace(details, evaluations=evaluations_of_run(read, batch["runId"]))

    def _look(self, batch: BatchRow) -> RunDetails:
        read, run_id = self._ctx.store.read, batch["runId"]
        # The follower of the last call, so that this one is quick.
        follower = self._followers.get(batch, "", lambda: RunFollower(read, run_id))
        state = follower.look(self._ctx.now())
        # They stay as they are as long as the run has the same items.
        agents_and_models, factors = self._factors.get(
            batch,
            state.item_count,
            lambda: (
                [AgentModel(**row) for row in agent_model_counts(read, run_id)],
                factor_names(read, run_id),
            ),
        )
        return RunDetails(
            **{member.name: getattr(state, member.name) for member in fields(state)},
            job=batch["job"],
            created_at=batch["createdAt"],
            plan_path=batch["planPath"],
            concurrency=batch["concurrency"],
            seed=batch["seed"],
            proctor_version=batch["proctorVersion"],
            agents_and_models=agents_and_models,
            mocks=stand_ins(aggregates.mock_sessions(aggregates.select(read, Scope(run_id=run_id)))),
            validity=sum_counts(read.last_sessions(run_id, "validity")),
            served_models=sum_served(read.last_sessions(run_id, "servedModels")),
            factors=factors,
            has_analysis=bool(job_of_run(batch["job"]).view.analysis_title),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSignatures(CamelJson):
    """Whether somebody else has written to the results of a run."""

    is_forged: bool
    notes: Sequence[str]
    changed_items: Sequence[str]
    """Items that somebody else has written or changed."""


class SignatureChecks:
    """Checks the signatures of all results of a run; a running run is not checked. Thread-safe."""

    def __init__(self, ctx: RunContext) -> None:
        self._ctx = ctx
        self._checks = ResultCache[RunSignatures](ctx.now, while_running=SIGNATURES_AGE)

    def of(self, run_id: str) -> RunSignatures:
        """The check of a run, at most `SIGNATURES_AGE` old."""
        batch = self._ctx.store.read.batch(run_id, self._ctx.now())
        # Forging leaves the row of the run as it is: the check is repeated after a while.
        period = self._ctx.now().timestamp() // SIGNATURES_AGE.total_seconds()
        return self._checks.get(batch, period, lambda: self._check(batch["runId"]))

    def _check(self, run_id: str) -> RunSignatures:
        check = self._ctx.store.check_signatures(run_id, self._ctx.now())
        return RunSignatures(
            is_forged=check.is_forged, notes=check.notes(unsigned=False), changed_items=check.foreign
        )


def _running(read: StoreReader, run_id: str, now: datetime) -> tuple[RunningItem, ...]:
    return tuple(
        RunningItem(
            item_id=row["id"],
            repo=row["repo"],
            prompt=row["prompt"],
            model=row["model"],
            agent=row["agent"],
            repeat=row["repeat"],
            session_id=row["sessionId"] or "",
            elapsed_seconds=_seconds(row["startedAt"], now),
            tokens=row["tokens"] or 0,
            action=(row["toolName"] if row["isTool"] else row["speaker"]) or "",
        )
        for row in aggregates.running_items(read, run_id)
    )


def agents_and_models(read: StoreReader, run_id: str) -> tuple[AgentModelProgress, ...]:
    """Each agent and model of a run, in alphabetical order."""
    grouped: dict[str, list[MakerSums]] = {}
    for row in aggregates.maker_sums(read, run_id):
        grouped.setdefault(_name(row), []).append(row)
    return tuple(_progress(name, rows) for name, rows in grouped.items())


def rates_over_tasks(
    read: StoreReader, run_id: str, *, is_running: bool
) -> list[tuple[AgentModelProgress, Estimate]]:
    """Each agent and model of a run with its success rate over tasks, as on the results page.

    The interval of a run that has ended is valid for one look; while the run is executed, users look
    repeatedly: then it is the one of `AgentModelProgress.rate`, which is valid at any time.
    """
    grouped: dict[str, list[tuple[int, int, int]]] = {}
    for row in aggregates.task_sums(read, run_id):
        grouped.setdefault(_name(row), []).append((row["passed"], row["judged"], row["tasks"]))
    rates = {name: rate_over_tasks(counts) for name, counts in grouped.items()}
    return [
        (row, replace(rate, low=row.rate.low, high=row.rate.high) if is_running else rate)
        for row in agents_and_models(read, run_id)
        for rate in [rates.get(row.name, NO_RATE)]
    ]


def _name(row: MakerSums | TaskSums) -> str:
    return " ".join(part for part in (row["agent"], row["model"]) if part)


def _progress(name: str, rows: Sequence[MakerSums]) -> AgentModelProgress:
    def count(*statuses: str) -> int:
        return sum(row["items"] for row in rows if row["status"] in statuses)

    costs = [row["cost"] for row in rows if row["cost"] is not None]
    succeeded = count(SUCCESS) - sum(row["unchecked"] for row in rows)
    judged = succeeded + count(FAIL, TIMEOUT)
    items, repeats = sum(row["items"] for row in rows), max(row["repeats"] for row in rows)
    # The repeats of a single task are independent, and the interval is about this task.
    is_clustered = 1 < repeats < items
    return AgentModelProgress(
        name=name,
        finished=count(*FINISHED),
        items=items,
        rate=Rate(successes=succeeded, trials=judged) if is_clustered else anytime_rate(succeeded, judged),
        tokens=sum(row["tokens"] or 0 for row in rows),
        cost_usd=sum(costs) if costs else None,
    )


def _pools(read: StoreReader, run_id: str, now: datetime) -> tuple[PoolUse, ...]:
    return tuple(
        PoolUse(
            name=row["name"],
            limit=int(row["limit"]),
            in_use=row["inUse"],
            waiting=row["waiting"],
            rate_limited=row["limited"],
            waited_seconds=row["waitedSeconds"],
            paused_seconds=_until(row["heldUntil"], now),
        )
        for row in read.pools(run_id)
    )


def _until(moment: str | None, now: datetime) -> float:
    return max(0.0, (datetime.fromisoformat(moment) - now).total_seconds()) if moment else 0.0


def _elapsed(batch: BatchRow, now: datetime) -> float:
    end = batch["finishedAt"]
    if end is None and batch["status"] != RUNNING:
        end = batch["heartbeatAt"]
    return _seconds(batch["createdAt"], datetime.fromisoformat(end) if end else now)


def _seconds(since: str | None, until: datetime) -> float:
    return max(0.0, (until - datetime.fromisoformat(since)).total_seconds()) if since else 0.0


def _added(first: float | None, other: float | None) -> float | None:
    return first if other is None else (first or 0.0) + other
