"""The summary of some sessions: all figures of a report, as sums of the store and plain records.

Outcomes are of items, by their last attempt; tokens, tools, time and cost are of all sessions.
"""

import bisect
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from proctor.choice import Choice
from proctor.item import ERROR, FAIL, RUNNING, STATUSES, TIMEOUT
from proctor.json_values import CamelJson
from proctor.stats.intervals import Estimate, sample_std
from proctor.stop_rule import STOP_RULE, StopState, stop_lines
from proctor.store import Scope, StoreReader, aggregates
from proctor.store.aggregates import (
    FailedItem,
    MockSessions,
    ModelSums,
    OutcomeSums,
    RankedDuration,
    Selection,
    SessionSums,
    StepSums,
    ToolSums,
    call_arguments,
    select,
)
from proctor.store.tables import BatchRow
from proctor.validity import InvalidCount, sum_counts

if TYPE_CHECKING:
    from proctor.stats.figures import RunFigures

LISTED_BATCHES = 50

# The database works outside the GIL, so two queries at a time take half as long. Kept for the
# life of the process: each thread holds a connection to the store, and new threads would open more.
_QUERIES = ThreadPoolExecutor(max_workers=2, thread_name_prefix="analyze")


# Time, tokens, cost and tools, summed over every attempt, including retries


WANTED_BINS = 12
# A longer tail, in 99th percentiles, would compress everything else into one bar.
LONG_TAIL = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """One bar of a histogram."""

    low: float
    high: float
    """Not part of the bar, but for the last one."""
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """From the start of an item to its end, in seconds, over the items that ended. It describes these items;
    what tasks like these take is in the figures of the run."""

    items: int
    mean: float | None
    std: float | None
    median: float | None
    p90: float | None
    longest: float | None
    bins: tuple[Bin, ...]


@dataclass(frozen=True, slots=True)
class _Ranked:
    """Some of `n` ordered values, each with its rank, counted from 1. The last is always there."""

    n: int
    ranks: Sequence[int]
    values: Sequence[float]

    def at(self, rank: int) -> float:
        """The value of a rank from 1; ranks beyond the ends give the first or last value."""
        return self.values[bisect.bisect_left(self.ranks, min(max(rank, 1), self.n))]

    def below(self, value: float) -> int:
        """How many of the `n` are smaller."""
        index = bisect.bisect_left(self.values, value)
        return self.ranks[index - 1] if index else 0


def durations(rows: Sequence[RankedDuration]) -> Durations:
    """How long the finished items took; `rows` are ordered, and the first and last are among them."""
    if not rows:
        return Durations(
            items=0,
            mean=None,
            std=None,
            median=None,
            p90=None,
            longest=None,
            bins=(),
        )
    n, total, squares = rows[0]["n"], rows[0]["total"], rows[0]["squares"]
    ranked = _Ranked(n, [row["rank"] for row in rows], [max(0.0, row["v"]) for row in rows])
    return Durations(
        items=n,
        mean=total / n,
        std=sample_std(n, total, squares),
        median=(ranked.at((n + 1) // 2) + ranked.at(n // 2 + 1)) / 2,
        p90=ranked.at(math.ceil(0.9 * n)),
        longest=ranked.values[-1],
        bins=_bins(ranked),
    )


def _bins(ranked: _Ranked) -> tuple[Bin, ...]:
    longest, usual = ranked.values[-1], ranked.at(math.ceil(0.99 * ranked.n))
    top = usual if longest > LONG_TAIL * usual > 0 else longest
    width = nice_step(top / WANTED_BINS) if top > 0 else 1.0
    edges = [index * width for index in range(int(top / width) + 2)]
    counts = [ranked.below(edge) for edge in edges[1:]]
    bins = [
        Bin(low=low, high=high, count=until - before)
        for low, high, before, until in zip(edges, edges[1:], [0, *counts], counts, strict=False)
    ]
    if counts[-1] < ranked.n:
        bins.append(Bin(low=edges[-1], high=longest, count=ranked.n - counts[-1]))
    return tuple(bins)


def nice_step(rough: float) -> float:
    """The next 1, 2 or 5 times a power of ten: steps that people count in."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= rough * (1 - 1e-9))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The money spent on model calls."""

    known_usd: float | None
    """The sum of the calls whose price is known; None when none is."""
    unpriced_calls: int
    judging_usd: float | None
    """Cost of judge calls as the evaluators report it; not part of `known_usd`."""
    crashes: int = 0
    """How often a process died, with calls whose cost may not be recorded."""

    @property
    def is_complete(self) -> bool:
        """Whether every call is recorded and its price known."""
        return self.unpriced_calls == 0 and not (self.crashes and self.known_usd)


def usage_of(models: Sequence[ModelSums]) -> ModelSums:
    """The calls, tokens and money of all models together."""
    known = [row["cost"] for row in models if row["cost"] is not None]
    return ModelSums(
        model="",
        calls=sum(row["calls"] for row in models),
        failed=sum(row["failed"] for row in models),
        prompt=sum(row["prompt"] for row in models),
        cached=sum(row["cached"] for row in models),
        completion=sum(row["completion"] for row in models),
        reasoning=sum(row["reasoning"] for row in models),
        total=sum(row["total"] for row in models),
        cost=sum(known) if known else None,
        unpriced=sum(row["unpriced"] for row in models),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowCall:
    """One of the longest tool calls."""

    tool: str
    duration_ms: float
    success: bool | None
    session_id: str
    arguments: str
    """As JSON, the beginning."""


def slow_calls(rows: Iterable[ToolSums], arguments: Callable[[str, int], str]) -> tuple[SlowCall, ...]:
    """The slowest calls, longest first; `arguments` returns those of the call at a position of a session."""
    slow = [
        (row["ms"], row["session"], row["position"], row)
        for row in rows
        if row["ms"] is not None and row["session"] is not None and row["position"] is not None
    ]
    slow.sort(key=lambda call: (-call[0], call[1], call[2]))
    return tuple(
        SlowCall(
            tool=row["tool"],
            duration_ms=ms,
            success=bool(row["succeeded"]) if row["judged"] else None,
            session_id=session,
            arguments=arguments(session, position),
        )
        for ms, session, position, row in slow
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MockUsage(CamelJson):
    """A mock agent or model."""

    agent: str
    model: str
    sessions: int


def stand_ins(rows: Iterable[MockSessions]) -> tuple[MockUsage, ...]:
    """The mock agents and models, and how many sessions each had."""
    return tuple(MockUsage(agent=row["agent"], model=row["model"], sessions=row["n"]) for row in rows)


def counts_of(sums: Iterable[OutcomeSums]) -> dict[str, int]:
    """The items by status; every status is there."""
    counts = dict.fromkeys(STATUSES, 0)
    for row in sums:
        counts[row["status"]] += row["items"]
    return counts


def outcomes_of(sums: Iterable[OutcomeSums]) -> list[OutcomeSums]:
    """The items by status and reason, as far as they have one: best status first, then the most frequent."""
    counted: Counter[tuple[str, str]] = Counter()
    for row in sums:
        if row["reason"]:
            counted[row["status"], row["reason"]] += row["items"]
    ordered = sorted(counted.items(), key=lambda entry: (STATUSES.index(entry[0][0]), -entry[1], entry[0]))
    return [OutcomeSums(status=status, reason=reason, items=n) for (status, reason), n in ordered]


# The summary


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFacts:
    """A batch as a whole."""

    row: BatchRow
    spent_usd: float | None
    """What was charged to the budget; None without one."""
    stop_when: StopState | None = None
    """What its rule to stop early has decided; None: it has none, or the report is of several batches."""

    @property
    def stop_lines(self) -> list[str]:
        """The same for people, with intervals that are valid at any time."""
        return stop_lines(self.stop_when, has_bars=False) if self.stop_when else []


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Everything a report says."""

    scope: Scope
    made_at: datetime
    batches: tuple[BatchFacts, ...]
    """The newest first, at most fifty of them."""
    batch_count: int
    counts: Mapping[str, int]
    """Items by status; every status is there."""
    outcomes: Sequence[OutcomeSums]
    """Items by status and reason."""
    figures: "RunFigures"
    """Rates, means and ratios over tasks, of the finished items."""
    attempts: SessionSums
    steps: StepSums
    tokens: ModelSums
    """Of all models together."""
    models: Sequence[ModelSums]
    """The one with most tokens first."""
    cost: Cost
    durations: Durations
    tools: Sequence[ToolSums]
    """The most used first."""
    slowest: tuple[SlowCall, ...]
    merges: Mapping[str, int]
    """By result."""
    failures: Sequence[FailedItem]
    stand_ins: tuple[MockUsage, ...]
    validity: Mapping[str, InvalidCount]
    """What makes the sessions of one run less valid as data, by kind."""
    choice: Choice | None = None
    """Which model or agent to use; None: the run compares none, or is not finished, or could stop early."""
    unchecked_successes: int = 0
    """Imported sessions without a score that count as successes, since their source reports no failure."""

    @property
    def item_count(self) -> int:
        return sum(self.counts.values())

    @property
    def failure_count(self) -> int:
        """All of them; `failures` holds the first two hundred."""
        return self.counts[FAIL] + self.counts[TIMEOUT] + self.counts[ERROR]

    @property
    def cost_per_success(self) -> Estimate:
        """All money over all successes. No value when a price is missing or nothing succeeded."""
        if self.cost.unpriced_calls:
            return Estimate(value=None, note="Some prices are missing.")
        return self.figures.overall.cost_per_success_usd

    @property
    def average_tokens(self) -> float | None:
        """Per session; None without any."""
        return self.tokens["total"] / self.attempts["n"] if self.attempts["n"] else None


def summarize(read: StoreReader, scope: Scope, now: datetime) -> Summary:
    """Compute everything a report shows. The run's id may be abbreviated."""
    # numpy, which a plain run that names this module does not need.
    from proctor.results.loading import load_scope
    from proctor.stats.choice import choose
    from proctor.stats.figures import run_figures

    if scope.run_id:
        scope = replace(scope, run_id=read.batch(scope.run_id, now)["runId"])
    selection = select(read, scope)
    # The longest first, so that both threads end at about the same time.
    model_rows = _QUERIES.submit(aggregates.model_sums, selection)
    outcome_rows = _QUERIES.submit(aggregates.outcome_sums, selection)
    duration_rows = _QUERIES.submit(aggregates.ranked_durations, selection)
    tool_rows = _QUERIES.submit(aggregates.tool_sums, selection)
    step_sums = _QUERIES.submit(aggregates.step_sums, selection)
    session_sums = _QUERIES.submit(aggregates.session_sums, selection)
    facts, batch_count = _batches(selection, scope, now)
    failed, merged = aggregates.failed_items(selection), aggregates.merge_counts(selection)
    judging_usd = aggregates.judging_cost(selection)
    models, sessions = model_rows.result(), session_sums.result()
    usage = usage_of(models)
    results = load_scope(read, scope, now)
    figures = run_figures(results)
    is_finished = bool(scope.run_id) and facts[0].row["status"] != RUNNING and not facts[0].stop_when
    ended = outcome_rows.result()
    tools = tool_rows.result()
    return Summary(
        scope=scope,
        made_at=now,
        batches=facts,
        batch_count=batch_count,
        counts=counts_of(ended),
        outcomes=outcomes_of(ended),
        figures=figures,
        choice=choose(results, figures.main.name) if is_finished and figures.main else None,
        attempts=sessions,
        steps=step_sums.result(),
        tokens=usage,
        models=models,
        cost=Cost(
            known_usd=usage["cost"],
            unpriced_calls=usage["unpriced"],
            judging_usd=judging_usd,
            crashes=sum(batch.row["crashes"] for batch in facts),
        ),
        durations=durations(duration_rows.result()),
        tools=sorted(
            (row for row in tools if row["session"] is None), key=lambda row: (-row["calls"], row["tool"])
        ),
        slowest=slow_calls(tools, partial(call_arguments, read)),
        merges={row["result"]: row["n"] for row in merged},
        failures=failed,
        unchecked_successes=aggregates.unchecked_successes(selection),
        stand_ins=stand_ins(aggregates.mock_sessions(selection)) if sessions["mocks"] else (),
        validity=sum_counts(read.last_sessions(scope.run_id, "validity")) if scope.run_id else {},
    )


def _batches(selection: Selection, scope: Scope, now: datetime) -> tuple[tuple[BatchFacts, ...], int]:
    if scope.run_id:
        facts = _facts(selection.read, selection.read.batch(scope.run_id, now))
        return (replace(facts, stop_when=_stop_state(selection.read, facts.row["runId"])),), 1
    run_ids = aggregates.newest_run_ids(selection)
    newest = [selection.read.batch(run_id, now) for run_id in run_ids[:LISTED_BATCHES]]
    return tuple(_facts(selection.read, row) for row in newest), len(run_ids)


def _stop_state(read: StoreReader, run_id: str) -> StopState | None:
    if read.resource(run_id, STOP_RULE) is None:
        return None
    # Loads numpy, which the report of no other run needs.
    from proctor.results.stopping import stop_document

    return stop_document(read, run_id)


def _facts(read: StoreReader, row: BatchRow) -> BatchFacts:
    has_budget = row["budgetUsd"] is not None
    return BatchFacts(row=row, spent_usd=read.reserved_and_spent(row["runId"])[1] if has_budget else None)
