"""Estimates of cost and time from earlier work.

A scenario is estimated from the calls and tokens that each role (an actor, the narrator, the summarizer, …)
took per turn in earlier runs, priced by the model it has now. A role with a new model is expected to need the
tokens it needed with another; a role without earlier runs is a guess. Both are noted. The interval is that of
the runs to come, not of the average: it covers their own spread too.
"""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, variance

from proctor.item import FAIL, SUCCESS, TIMEOUT
from proctor.scenario.state import ScenarioCall, calls_of
from proctor.stats.intervals import Estimate, mean_from_sums, mean_of, student_quantile
from proctor.store import StoreReader, aggregates
from proctor.store.aggregates import WorkerSums


@dataclass(frozen=True, slots=True, kw_only=True)
class PastUsage:
    """Calls, tokens and cost of completed runs of a scenario."""

    runs: int
    calls: Estimate
    tokens: Estimate
    cost_usd: Estimate


def experience(read: StoreReader, scenario: str) -> PastUsage:
    """Usage of the completed runs of a scenario."""
    rows = aggregates.scenario_totals(read, scenario)
    return PastUsage(
        runs=len(rows),
        calls=mean_of([float(row["calls"] or 0) for row in rows]),
        tokens=mean_of([float(row["tokensTotal"]) for row in rows]),
        cost_usd=mean_of([row["costUsd"] for row in rows if row["costUsd"] is not None]),
    )


def as_document(usage: PastUsage) -> dict[str, object]:
    """Earlier runs as JSON."""
    figures = {"calls": usage.calls, "tokens": usage.tokens, "cost_usd": usage.cost_usd}
    return {
        "runs": usage.runs,
        **{
            name: {"mean": one.value, "low": one.low, "high": one.high, "n": one.n}
            for name, one in figures.items()
        },
    }


ENDED = (SUCCESS, FAIL, TIMEOUT)
"""Statuses of sessions used for estimates; infrastructure errors are excluded."""


@dataclass(frozen=True, slots=True)
class AgentModel:
    """Agent and model of an item."""

    agent: str
    """Empty: the model is called directly."""
    model: str

    def __str__(self) -> str:
        return " with ".join(part for part in (self.agent, self.model) if part) or "items without a model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Expected cost and time of a batch."""

    items: int
    known_items: int
    """Items of agents and models with earlier sessions; the figures cover only these."""
    sessions: int
    """Number of earlier sessions used."""
    cost_usd: float | None
    """None: unknown."""
    seconds: float | None
    unknown: tuple[str, ...] = field(default=())
    """Agents and models without earlier sessions."""

    @property
    def basis(self) -> str:
        """A sentence on the data behind the estimate."""
        if not self.known_items:
            return "Nothing like it was done here before, so nothing can be said."
        many = "an earlier session" if self.sessions == 1 else f"{self.sessions:,} earlier sessions"
        basis = f"From {many} of the same agents and models"
        if self.unknown:
            some = ", ".join(self.unknown[:3]) + (" and others" if len(self.unknown) > 3 else "")
            return f"{basis}, for {self.known_items:,} of {self.items:,} items: nothing is known of {some}."
        return f"{basis}."


def forecast(read: StoreReader, job: str, work: Mapping[AgentModel, int], *, concurrency: int) -> Forecast:
    """Estimate the cost and time of a number of items per agent and model."""
    known, sessions, cost, seconds, longest = 0, 0, None, 0.0, 0.0
    unknown = list[str]()
    for worker, items in work.items():
        time, money = _means(aggregates.worker_sums(read, job, worker.agent, worker.model, ENDED))
        if time.value is None:
            unknown.append(str(worker))
            continue
        known += items
        sessions += time.n
        seconds += time.value * items
        longest = max(longest, time.value)
        if money.value is not None:
            cost = (cost or 0.0) + money.value * items
    total = sum(work.values())
    at_once = max(1, min(concurrency, total))
    return Forecast(
        items=total,
        known_items=known,
        sessions=sessions,
        cost_usd=cost,
        seconds=max(seconds / at_once, longest) if known else None,
        unknown=tuple(unknown),
    )


def _means(row: WorkerSums) -> tuple[Estimate, Estimate]:
    """Seconds and USD of a session."""
    time = mean_from_sums(row["n"], row["time"] or 0.0, row["time2"] or 0.0)
    return time, mean_from_sums(row["priced"], row["cost"] or 0.0, row["cost2"] or 0.0)


Price = Callable[[str, float, float], float | None]
"""USD of a model call by input and output tokens; None: unknown."""
FIGURES = ("calls", "tokens", "cost_usd")


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptShare:
    """Average usage of one role per turn of a run."""

    who: str
    model: str
    calls: float
    input_tokens: float
    output_tokens: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Predicted usage of one run and of all runs."""

    runs: int
    """Number of earlier runs used."""
    one: Mapping[str, Estimate]
    """By figure: `calls`, `tokens`, `cost_usd`."""
    everything: Mapping[str, Estimate]
    notes: tuple[str, ...] = ()
    """Assumptions."""

    def document(self) -> dict[str, object]:
        """As JSON."""
        return {
            "runs": self.runs,
            "a_run": {name: _plain(estimate) for name, estimate in self.one.items()},
            "all_runs": {name: _plain(estimate) for name, estimate in self.everything.items()},
            "notes": list(self.notes),
        }


@dataclass(slots=True)
class _Sum:
    """A sum of averages, each over several runs."""

    mean: float = 0.0
    spread: float = 0.0
    """The variance of one run."""
    doubt: float = 0.0
    """The variance of the average itself."""
    fewest: int | None = None
    is_known: bool = True

    def add(self, values: Sequence[float | None], turns: int, *, is_seen: bool) -> None:
        """`is_seen` is false for a guess, whose variance is unknown."""
        known = [value * turns for value in values if value is not None]
        if len(known) < len(values):
            self.is_known = False
            return
        self.mean += fmean(known)
        if is_seen:
            self.fewest = min(self.fewest or len(known), len(known))
        if len(known) > 1:
            spread = variance(known)
            self.spread, self.doubt = self.spread + spread, self.doubt + spread / len(known)

    def estimate(self, runs: int) -> Estimate:
        if not self.is_known:
            return Estimate(value=None)
        n, value = self.fewest or 0, self.mean * runs
        if n < 2:
            return Estimate(value=value, n=n)
        reach = student_quantile(0.975, n - 1) * math.sqrt(runs * runs * self.doubt + runs * self.spread)
        return Estimate(value=value, low=max(0.0, value - reach), high=value + reach, n=n)


@dataclass(slots=True)
class _EarlierCalls:
    sums: dict[str, _Sum] = field(default_factory=lambda: {name: _Sum() for name in FIGURES})
    notes: list[str] = field(default_factory=list)
    runs: int = 0


def earlier_runs(read: StoreReader, scenario: str) -> list[list[PromptShare]]:
    """Usage by role of the completed runs of a scenario, latest first."""
    rows = aggregates.scenario_items(read, scenario)
    runs = [parts_of(_turns(read, row["runId"], row["id"])) for row in rows]
    return [parts for parts in runs if parts]


def parts_of(turns: Sequence[Sequence[ScenarioCall]]) -> list[PromptShare]:
    """Average usage by role and turn. Turns without calls were replayed and are excluded."""
    played = [calls for calls in turns if calls]
    grouped: dict[tuple[str, str], list[ScenarioCall]] = defaultdict(list)
    for calls in played:
        for call in calls:
            grouped[call.who, call.model].append(call)
    return [
        PromptShare(
            who=who,
            model=model,
            calls=len(calls) / len(played),
            input_tokens=sum(call.input_tokens for call in calls) / len(played),
            output_tokens=sum(call.output_tokens for call in calls) / len(played),
        )
        for (who, model), calls in grouped.items()
    ]


def predict(
    earlier: Sequence[Sequence[PromptShare]],
    guess: Sequence[PromptShare],
    *,
    turns: int,
    runs: int,
    price: Price,
) -> Prediction | None:
    """Predict the usage of runs with the roles of `guess`; None without earlier runs."""
    if not earlier:
        return None
    collected = _EarlierCalls()
    for expected in guess:
        samples = _samples(earlier, expected, collected)
        figures: dict[str, list[float | None]] = {
            "calls": [part.calls for part in samples],
            "tokens": [part.input_tokens + part.output_tokens for part in samples],
            "cost_usd": [_cost(part, expected.model, price) for part in samples],
        }
        for name, values in figures.items():
            collected.sums[name].add(values, turns, is_seen=samples != [expected])
    return Prediction(
        runs=collected.runs,
        one={name: total.estimate(1) for name, total in collected.sums.items()},
        everything={name: total.estimate(runs) for name, total in collected.sums.items()},
        notes=tuple(collected.notes),
    )


def _samples(
    earlier: Sequence[Sequence[PromptShare]], expected: PromptShare, collected: _EarlierCalls
) -> list[PromptShare]:
    theirs = [[part for part in parts if part.who == expected.who] for parts in earlier]
    same = [part for parts in theirs for part in parts if part.model == expected.model]
    if same:
        collected.runs = max(collected.runs, len(same))
        return same
    others = [parts[0] for parts in theirs if parts]
    if others:
        collected.runs = max(collected.runs, len(others))
        models = ", ".join(sorted({part.model for part in others}))
        collected.notes.append(
            f"{expected.who} never had {expected.model}: counted as if it wrote as much as {models}"
        )
        return others
    collected.notes.append(f"{expected.who} took no part in earlier runs: a guess")
    return [expected]


def _cost(part: PromptShare, model: str, price: Price) -> float | None:
    if not part.calls:
        return 0.0
    one = price(model, part.input_tokens / part.calls, part.output_tokens / part.calls)
    return None if one is None else one * part.calls


def _turns(read: StoreReader, run_id: str, item_id: str) -> list[Sequence[ScenarioCall]]:
    turns: dict[int, Sequence[ScenarioCall]] = {}
    for attempt in read.attempts(run_id, item_id):
        for step in read.of_session("iterations", attempt["id"]):
            try:
                turn = json.loads(step["output"])
                turns[int(turn["number"])] = calls_of(turn["calls"])
            except (ValueError, KeyError, TypeError):
                continue
    return list(turns.values())


def _plain(estimate: Estimate) -> dict[str, float | int | None]:
    return {"mean": estimate.value, "low": estimate.low, "high": estimate.high, "n": estimate.n}
