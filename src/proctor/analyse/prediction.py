"""What runs of a scenario are going to take, from what earlier ones took.

Everyone who is asked (an actor, the narrator, who summarises, measures or checks) took so many calls and
tokens a turn, with the model they had; runs to come are counted up from that, turn by turn, and priced as
their own models are. Somebody who has a new model is expected to need the tokens they needed with another;
somebody who was never there is left to a guess. Both are said.

The interval is that of the runs to come, not of the average: it covers their own spread too.

Knows nothing of how a run is played, or where prices come from.
"""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, variance
from typing import Any

from proctor.analyse.intervals import Estimate, student_quantile
from proctor.item import SUCCESS
from proctor.scenario.state import Call, calls_of
from proctor.store import Reader

MOST_RUNS = 200
"""Earlier runs that are looked at, the latest first: more would change no digit that matters."""

Price = Callable[[str, float, float], float | None]
"""USD of a call to a model with so many tokens in and out; None: nobody knows."""
FIGURES = ("calls", "tokens", "cost_usd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one who is asked takes in a turn, on average over a run."""

    who: str
    model: str
    calls: float
    input_tokens: float
    output_tokens: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What one run takes, and what all of them take together."""

    runs: int
    """Earlier runs that it rests on."""
    one: Mapping[str, Estimate]
    """By figure: `calls`, `tokens`, `cost_usd`."""
    everything: Mapping[str, Estimate]
    notes: tuple[str, ...] = ()
    """What had to be assumed."""

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "runs": self.runs,
            "a_run": {name: _plain(found) for name, found in self.one.items()},
            "all_runs": {name: _plain(found) for name, found in self.everything.items()},
            "notes": list(self.notes),
        }


@dataclass(slots=True)
class _Sum:
    """A sum of averages that were each taken over several runs."""

    mean: float = 0.0
    spread: float = 0.0
    """The variance of one run."""
    doubt: float = 0.0
    """The variance of the average itself."""
    fewest: int | None = None
    is_known: bool = True

    def add(self, values: Sequence[float | None], turns: int, *, is_seen: bool) -> None:
        """`is_seen` is false for a guess, of whose spread nobody knows anything."""
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
class _Found:
    sums: dict[str, _Sum] = field(default_factory=lambda: {name: _Sum() for name in FIGURES})
    notes: list[str] = field(default_factory=list)
    runs: int = 0


def earlier_runs(read: Reader, scenario: str) -> list[list[Part]]:
    """What completed runs of a scenario took, each as its parts; the latest first."""
    rows = read.query(
        'SELECT i."runId", i."id" FROM "batch_items" i JOIN "batches" b ON b."runId" = i."runId" '
        'WHERE b."job" = ? AND i."status" = ? AND i."prompt" = ? ORDER BY i."finishedAt" DESC LIMIT ?',
        ("scenario", SUCCESS, scenario, MOST_RUNS),
    )
    runs = [parts_of(_turns(read, row["runId"], row["id"])) for row in rows]
    return [parts for parts in runs if parts]


def parts_of(turns: Sequence[Sequence[Call]]) -> list[Part]:
    """A run's calls as what everyone took in a turn. A turn without calls was paid for elsewhere."""
    played = [calls for calls in turns if calls]
    grouped: dict[tuple[str, str], list[Call]] = defaultdict(list)
    for calls in played:
        for call in calls:
            grouped[call.who, call.model].append(call)
    return [
        Part(
            who=who,
            model=model,
            calls=len(calls) / len(played),
            input_tokens=sum(call.input_tokens for call in calls) / len(played),
            output_tokens=sum(call.output_tokens for call in calls) / len(played),
        )
        for (who, model), calls in grouped.items()
    ]


def predict(
    earlier: Sequence[Sequence[Part]], guess: Sequence[Part], *, turns: int, runs: int, price: Price
) -> Prediction | None:
    """What runs take in which those of `guess` are asked; None when there are no earlier ones."""
    if not earlier:
        return None
    found = _Found()
    for expected in guess:
        samples = _samples(earlier, expected, found)
        figures: dict[str, list[float | None]] = {
            "calls": [part.calls for part in samples],
            "tokens": [part.input_tokens + part.output_tokens for part in samples],
            "cost_usd": [_cost(part, expected.model, price) for part in samples],
        }
        for name, values in figures.items():
            found.sums[name].add(values, turns, is_seen=samples != [expected])
    return Prediction(
        runs=found.runs,
        one={name: total.estimate(1) for name, total in found.sums.items()},
        everything={name: total.estimate(runs) for name, total in found.sums.items()},
        notes=tuple(found.notes),
    )


def _samples(earlier: Sequence[Sequence[Part]], expected: Part, found: _Found) -> list[Part]:
    theirs = [[part for part in parts if part.who == expected.who] for parts in earlier]
    same = [part for parts in theirs for part in parts if part.model == expected.model]
    if same:
        found.runs = max(found.runs, len(same))
        return same
    others = [parts[0] for parts in theirs if parts]
    if others:
        found.runs = max(found.runs, len(others))
        models = ", ".join(sorted({part.model for part in others}))
        found.notes.append(
            f"{expected.who} never had {expected.model}: counted as if it wrote as much as {models}"
        )
        return others
    found.notes.append(f"{expected.who} took no part in earlier runs: a guess")
    return [expected]


def _cost(part: Part, model: str, price: Price) -> float | None:
    if not part.calls:
        return 0.0
    one = price(model, part.input_tokens / part.calls, part.output_tokens / part.calls)
    return None if one is None else one * part.calls


def _turns(read: Reader, run_id: str, item_id: str) -> list[Sequence[Call]]:
    found: dict[int, Sequence[Call]] = {}
    for attempt in read.attempts(run_id, item_id):
        for step in read.of_session("iterations", attempt["id"]):
            try:
                turn = json.loads(step["output"])
                found[int(turn["number"])] = calls_of(turn["calls"])
            except (ValueError, KeyError, TypeError):
                continue
    return list(found.values())


def _plain(found: Estimate) -> dict[str, float | int | None]:
    return {"mean": found.value, "low": found.low, "high": found.high, "n": found.n}
