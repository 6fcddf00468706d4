"""The summary of some sessions: all figures of a report, as plain records.

Outcomes are of items, by their last attempt; tokens, tools, time and cost are of all sessions.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from proctor.item import ERROR, FAIL, TIMEOUT
from proctor.job import STOP_RULE, StopState
from proctor.stats.intervals import Estimate
from proctor.stats.outcomes import (
    AttemptCounts,
    Failure,
    MockUsage,
    ReasonCount,
    attempts,
    counts_of,
    failures,
    outcomes_of,
    stand_ins,
)
from proctor.stats.progress import stop_lines
from proctor.stats.usage import (
    Cost,
    Durations,
    ModelUsage,
    SlowCall,
    Steps,
    Tokens,
    ToolUsage,
    cost_of,
    durations,
    merges,
    model_usage,
    steps,
    tokens_of,
    tool_usage,
)
from proctor.store import Scope, StoreReader, aggregates
from proctor.store.aggregates import Selection, call_arguments, select
from proctor.store.tables import BatchRow

if TYPE_CHECKING:
    from proctor.stats.figures import RunFigures

LISTED_BATCHES = 50

# The database works outside the GIL, so two queries at a time take half as long. Kept for the
# life of the process: each thread holds a connection to the store, and new threads would open more.
_QUERIES = ThreadPoolExecutor(max_workers=2, thread_name_prefix="analyse")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFacts:
    """What there is to say about a batch as a whole."""

    run_id: str
    job: str
    status: str
    reason: str
    created_at: str
    finished_at: str
    """Empty: not yet."""
    plan_path: str
    concurrency: int
    seed: int | None
    budget_usd: float | None
    """None: it has none."""
    spent_usd: float | None
    """What was charged to the budget; None without one."""
    proctor_version: str
    stop_when: StopState | None = None
    """What its rule to stop early has decided; None: it has none, or the report is of several batches."""

    @property
    def stop_lines(self) -> list[str]:
        """The same for people, with intervals that are valid at any time."""
        return stop_lines(self.stop_when) if self.stop_when else []


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
    outcomes: tuple[ReasonCount, ...]
    """Items by status and reason."""
    figures: "RunFigures"
    """Rates, means and ratios over tasks, of the finished items."""
    attempts: AttemptCounts
    steps: Steps
    tokens: Tokens
    models: tuple[ModelUsage, ...]
    cost: Cost
    durations: Durations
    tools: tuple[ToolUsage, ...]
    slowest: tuple[SlowCall, ...]
    merges: Mapping[str, int]
    """By result."""
    failures: tuple[Failure, ...]
    stand_ins: tuple[MockUsage, ...]
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
        if not self.cost.is_complete:
            return Estimate(value=None, note="Some prices are missing.")
        return self.figures.overall.cost_per_success_usd

    @property
    def average_tokens(self) -> float | None:
        """Per session; None without any."""
        return self.tokens.total / self.attempts.sessions if self.attempts.sessions else None


def summarise(read: StoreReader, scope: Scope, now: datetime) -> Summary:
    """Compute everything a report shows. The run's id may be abbreviated."""
    # numpy, which a plain run that names this module does not need.
    from proctor.stats.figures import run_figures
    from proctor.stats.results import load_scope

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
    models, sessions = model_usage(model_rows.result()), attempts(session_sums.result())
    figures = run_figures(load_scope(read, scope, now))
    ended = outcome_rows.result()
    tools, slowest = tool_usage(tool_rows.result(), partial(call_arguments, read))
    return Summary(
        scope=scope,
        made_at=now,
        batches=facts,
        batch_count=batch_count,
        counts=counts_of(ended),
        outcomes=outcomes_of(ended),
        figures=figures,
        attempts=sessions,
        steps=steps(step_sums.result()),
        tokens=tokens_of(models),
        models=models,
        cost=cost_of(models, judging_usd),
        durations=durations(duration_rows.result()),
        tools=tools,
        slowest=slowest,
        merges=merges(merged),
        failures=failures(failed),
        unchecked_successes=aggregates.unchecked_successes(selection),
        stand_ins=stand_ins(aggregates.mock_sessions(selection)) if sessions.by_stand_ins else (),
    )


def _batches(selection: Selection, scope: Scope, now: datetime) -> tuple[tuple[BatchFacts, ...], int]:
    if scope.run_id:
        facts = _facts(selection.read, selection.read.batch(scope.run_id, now))
        return (replace(facts, stop_when=_stop_state(selection.read, facts.run_id)),), 1
    run_ids = aggregates.newest_run_ids(selection)
    newest = [selection.read.batch(run_id, now) for run_id in run_ids[:LISTED_BATCHES]]
    return tuple(_facts(selection.read, row) for row in newest), len(run_ids)


def _stop_state(read: StoreReader, run_id: str) -> StopState | None:
    if read.resource(run_id, STOP_RULE) is None:
        return None
    # Loads numpy, which the report of no other run needs.
    from proctor.stats.stopping import stop_document

    return stop_document(read, run_id)


def _facts(read: StoreReader, row: BatchRow) -> BatchFacts:
    has_budget = row["budgetUsd"] is not None
    return BatchFacts(
        run_id=row["runId"],
        job=row["job"],
        status=row["status"],
        reason=row["reason"],
        created_at=row["createdAt"],
        finished_at=row["finishedAt"] or "",
        plan_path=row["planPath"],
        concurrency=row["concurrency"],
        seed=row["seed"],
        budget_usd=row["budgetUsd"],
        spent_usd=read.reserved_and_spent(row["runId"])[1] if has_budget else None,
        proctor_version=row["proctorVersion"],
    )
