"""Progress of a batch, cheap enough to compute several times a second.

Counts come from an index alone. Sums would need every row; but finished items do not change, so those at
the start of the plan are summed once and cached.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from proctor.formatting import plural
from proctor.item import FAIL, FINISHED, RUNNING, SUCCESS, TIMEOUT
from proctor.job import STOP_RULE, StopState
from proctor.stats.intervals import Estimate, Rate, anytime_rate, rate_over_tasks
from proctor.store import StoreReader, aggregates
from proctor.store.aggregates import MakerSums, TaskSums, UsageSums
from proctor.store.items import status_counts
from proctor.store.tables import BatchRow

if TYPE_CHECKING:
    from proctor.stats.stopping import StopFollower

RATE_SECONDS = 30
"""The rate is that of the last half minute: long enough for items of some seconds, short enough to
notice that a provider has slowed down."""

MAKERS_AGE = timedelta(seconds=2)
LARGE = 10_000
"""Figures by model read every item: in runs with more items they are renewed less often than the rest."""
# Below this, a single item would change the rate too much.
SHORTEST_RATE_SECONDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningItem:
    """An item under way."""

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
class MakerProgress:
    """How far one agent and model are."""

    name: str
    finished: int
    items: int
    rate: Rate
    """Successes of the items that were checked. Its interval holds at every look; where several tasks
    are repeated there is none, since repeats of a task are not independent."""
    tokens: int
    cost_usd: float | None
    """None: no price is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolUse:
    """The calls to one provider and model."""

    name: str
    limit: int
    """Calls at once; what was found out so far."""
    in_use: int
    waiting: int
    refused: int
    """Calls that the provider rate limited."""
    waited_seconds: float
    """All calls together."""
    held_seconds: float
    """Until calls are let through again; 0 when they are."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a batch is."""

    run_id: str
    status: str
    counts: Mapping[str, int]
    """Items by status; every status is there."""
    tokens: int
    cost_usd: float | None
    """None: no price is known."""
    budget_usd: float | None
    elapsed_seconds: float
    items_per_second: float | None
    """Over the last half minute, or since the start when this is the first look. None: unknown."""
    running: tuple[RunningItem, ...]
    """Those that take longest, at most ten."""
    pools: tuple[PoolUse, ...]
    """The calls to each provider; empty when there are none."""
    unchecked: int = 0
    """Successes that nothing checked."""
    stop_when: StopState | None = None
    """What `stop_when` has decided, and the interval of each level, valid at any time. None: no rule."""
    makers: tuple[MakerProgress, ...] = ()
    """By agent and model, if requested; in large runs up to two seconds old."""
    _makers_at: datetime | None = field(default=None, repr=False)
    _settled: _Sums = field(default=_Sums(), repr=False)
    _marks: tuple[tuple[datetime, int], ...] = field(default=(), repr=False)
    _follower: "StopFollower | None" = field(default=None, repr=False)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def finished(self) -> int:
        return sum(self.counts[status] for status in FINISHED)

    @property
    def eta_seconds(self) -> float | None:
        """Until the last item ends at this rate; None when unknown."""
        if self.status != RUNNING or not self.items_per_second:
            return None
        return (self.total - self.finished) / self.items_per_second


def progress(
    read: StoreReader,
    run_id: str,
    now: datetime,
    previous: Progress | None = None,
    *,
    with_makers: bool = False,
) -> Progress:
    """How far a batch is. Give the `previous` answer to make the next one quick and its rate current."""
    batch = read.batch(run_id, now)
    run_id = batch["runId"]
    if previous is not None and previous.run_id != run_id:
        previous = None
    counts = status_counts(read, run_id)
    finished = sum(counts[status] for status in FINISHED)
    settled = _settled(read, run_id, previous)
    sums = _unsettled(read, run_id, settled)
    elapsed = _elapsed(batch, now)
    marks = _marks(previous, now, finished)
    follower = previous._follower if previous else _follower(read, run_id)
    makers, makers_at = (previous.makers, previous._makers_at) if previous else ((), None)
    is_large = sum(counts.values()) > LARGE
    is_recent = is_large and makers_at is not None and now - makers_at < MAKERS_AGE
    if with_makers and (not is_recent or batch["status"] != RUNNING):
        makers, makers_at = makers_of(read, run_id), now
    return Progress(
        run_id=run_id,
        status=batch["status"],
        counts=counts,
        unchecked=sums.unchecked,
        tokens=sums.tokens,
        cost_usd=sums.cost_usd,
        budget_usd=batch["budgetUsd"],
        elapsed_seconds=elapsed,
        items_per_second=_rate(marks, finished, elapsed),
        running=_running(read, run_id, now),
        pools=_pools(read, run_id, now),
        stop_when=follower.document(sum(counts.values()), finished) if follower else None,
        makers=makers,
        _makers_at=makers_at,
        _settled=settled,
        _marks=marks,
        _follower=follower,
    )


def _follower(read: StoreReader, run_id: str) -> "StopFollower | None":
    """Follows the rule of a run; None: it has none."""
    if read.resource(run_id, STOP_RULE) is None:
        return None
    # Loads numpy, which no other run needs.
    from proctor.stats.stopping import StopFollower, stored_rule

    rule = stored_rule(read, run_id)
    return StopFollower(rule, read, run_id) if rule else None


def _settled(read: StoreReader, run_id: str, previous: Progress | None) -> _Sums:
    """The sums of the plan's beginning, up to the first item that has not ended."""
    before = aggregates.finished_prefix(read, run_id)
    known = previous._settled if previous is not None else _Sums()
    if known.before > before:
        # Items that had ended were taken up again.
        known = _Sums()
    total = known.plus(aggregates.sums_between(read, run_id, known.before, before))
    return replace(total, before=before)


def _unsettled(read: StoreReader, run_id: str, settled: _Sums) -> _Sums:
    """The sums of everything: what is settled, what ended after it, and what is under way."""
    finished = aggregates.finished_sums(read, run_id, settled.before)
    return settled.plus(finished).plus(aggregates.running_sums(read, run_id))


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


def makers_of(read: StoreReader, run_id: str) -> tuple[MakerProgress, ...]:
    """Each agent and model of a run, in alphabetical order."""
    grouped: dict[str, list[MakerSums]] = {}
    for row in aggregates.maker_sums(read, run_id):
        grouped.setdefault(_maker_name(row), []).append(row)
    return tuple(_maker(name, rows) for name, rows in grouped.items())


def task_rates(read: StoreReader, run_id: str) -> dict[str, Estimate]:
    """The success rate of each agent and model over tasks, by the name that `makers_of` gives it, with the
    interval of the results page. It holds for one look, at a run that has ended."""
    grouped: dict[str, list[tuple[int, int, int]]] = {}
    for row in aggregates.task_sums(read, run_id):
        grouped.setdefault(_maker_name(row), []).append((row["passed"], row["judged"], row["tasks"]))
    return {name: rate_over_tasks(counts) for name, counts in grouped.items()}


def _maker_name(row: MakerSums | TaskSums) -> str:
    return " ".join(part for part in (row["agent"], row["model"]) if part)


def _maker(name: str, rows: Sequence[MakerSums]) -> MakerProgress:
    def count(*statuses: str) -> int:
        return sum(row["items"] for row in rows if row["status"] in statuses)

    costs = [row["cost"] for row in rows if row["cost"] is not None]
    succeeded = count(SUCCESS) - sum(row["unchecked"] for row in rows)
    judged = succeeded + count(FAIL, TIMEOUT)
    items, repeats = sum(row["items"] for row in rows), max(row["repeats"] for row in rows)
    # The repeats of a single task are independent, and the interval is about this task.
    is_clustered = 1 < repeats < items
    return MakerProgress(
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
            refused=row["limited"],
            waited_seconds=row["waitedSeconds"],
            held_seconds=_until(row["heldUntil"], now),
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


def _marks(previous: Progress | None, now: datetime, finished: int) -> tuple[tuple[datetime, int], ...]:
    """When how many had ended, over the last half minute."""
    oldest = now - timedelta(seconds=RATE_SECONDS)
    marks = [mark for mark in previous._marks if mark[0] >= oldest] if previous is not None else []
    return (*marks, (now, finished))


def _rate(marks: tuple[tuple[datetime, int], ...], finished: int, elapsed: float) -> float | None:
    (first, had_ended), (last, _) = marks[0], marks[-1]
    span, ended = (last - first).total_seconds(), finished - had_ended
    # If none ended lately, items take longer than that: the rate is that since the start.
    if span >= SHORTEST_RATE_SECONDS and (ended or not finished):
        return max(0, ended) / span
    return finished / elapsed if finished and elapsed > 0 else None


def _seconds(since: str | None, until: datetime) -> float:
    return max(0.0, (until - datetime.fromisoformat(since)).total_seconds()) if since else 0.0


def _added(one: float | None, other: float | None) -> float | None:
    return one if other is None else (one or 0.0) + other


def stop_lines(state: StopState) -> list[str]:
    """What `stop_when` has decided, for people: a line for each level, and one for each goal."""
    width = max(len(each["name"]) for each in state["intervals"])
    lines = [
        f"{state['metric']} by {state['by']} with {100 * state['confidence']:g}% intervals that are valid at "
        "any time:"
    ]
    for each in state["intervals"]:
        low, high = each["low"], each["high"]
        limits = "no interval yet" if low is None or high is None else f"{low:.3g} to {high:.3g}"
        value = "–" if each["value"] is None else f"{each['value']:.3g}"
        tasks = plural(each["tasks"], state["unit"])
        lines.append(f"  {each['name']:<{width}}  {value}  ({limits}), {tasks}")
    lines += [
        f"{'undecided' if each['outcome'] == 'open' else 'decided'}: {each['reason']}"
        for each in state["decisions"]
    ]
    return lines
