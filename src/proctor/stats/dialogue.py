"""Results of a dialogue simulation by combination: turns, ends and scores.

Averages are over successful runs; the number of others is given beside them. Standard deviations are of the
sample.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean, stdev
from typing import Any

from proctor.errors import NotFound
from proctor.item import FINISHED, SUCCESS
from proctor.stats.intervals import Estimate, mean_of
from proctor.stats.reliability import (
    COLUMN,
    PAIRING,
    REPEAT,
    ROW,
    CrossedComponent,
    Observation,
    variance_components,
)
from proctor.store import StoreReader
from proctor.store.items import dialogue_items
from proctor.store.scores import item_scores

# Effect of pairing clients with therapists on a measure: means by combination, variance components.


SPOKEN = {ROW: "client", COLUMN: "therapist", PAIRING: "pairing", REPEAT: "repeat"}
SIDES = ("client", "therapist")
NOT_MEASURES = frozenset({"run_id", "seed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One client with one therapist."""

    client: str
    therapist: str
    mean: Estimate
    std: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleCrossing:
    """One measure over all combinations."""

    measure: str
    overall: Estimate
    cells: tuple[Cell, ...]
    components: tuple[CrossedComponent, ...]
    """`client`, `therapist`, `pairing`, `repeat`."""


def measures_of(rows: Sequence[Mapping[str, object]]) -> list[str]:
    """The numeric columns there are."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [name for name in names if name not in NOT_MEASURES and _numbers(rows, name)]


def crossing(rows: Sequence[Mapping[str, object]], measure: str) -> RoleCrossing:
    """What the combinations come to in one measure. Rows without it are left out."""
    cells: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        value = row.get(measure)
        if isinstance(value, int | float) and _is_number(value):
            key = (str(row.get("client") or "?"), str(row.get("therapist") or "?"))
            cells.setdefault(key, []).append(float(value))
    observations = [
        Observation(client, therapist, v) for (client, therapist), vs in cells.items() for v in vs
    ]
    return RoleCrossing(
        measure=measure,
        overall=mean_of([observation.value for observation in observations]),
        cells=tuple(
            Cell(client=client, therapist=therapist, mean=mean_of(values), std=_std(values))
            for (client, therapist), values in cells.items()
        ),
        components=tuple(
            CrossedComponent(SPOKEN[each.source], each.variance, each.share)
            for each in variance_components(observations)
        ),
    )


def analysis(rows: Sequence[Mapping[str, object]], measure: str = "") -> list[dict[str, Any]]:
    """Every measure there is, or the one that is named, as plain data."""
    known = measures_of(rows)
    if measure and measure not in known:
        raise NotFound(f"the sessions have no numeric column `{measure}`\nThere are: {', '.join(known)}.")
    return [asdict(crossing(rows, name)) for name in ([measure] if measure else known)]


def told_apart(rows: Sequence[Mapping[str, object]]) -> list[dict[str, Any]]:
    """The rows, each side named with its model where it was played by several: those are several sides."""
    models: dict[tuple[str, object], set[object]] = {}
    for row in rows:
        for side in SIDES:
            models.setdefault((side, row.get(side)), set()).add(row.get(f"{side}_model"))
    return [
        {
            **row,
            **{
                side: f"{row[side]} ({row[f'{side}_model']})"
                for side in SIDES
                if len(models[side, row.get(side)]) > 1
            },
        }
        for row in rows
    ]


def _numbers(rows: Sequence[Mapping[str, object]], name: str) -> bool:
    values = [row[name] for row in rows if row.get(name) is not None]
    return bool(values) and all(map(_is_number, values))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _std(values: Sequence[float]) -> float | None:
    return stdev(values) if len(values) > 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DialogueRun:
    """One dialogue, as far as sums are concerned."""

    combination: str
    client: str
    therapist: str
    status: str
    run: int = 0
    turns: int | None = None
    """None: it did not come so far."""
    end_reason: str = ""
    caused_by: str = ""
    error: str = ""
    reason: str = ""
    scores: Mapping[str, float] = field(default_factory=dict)
    """By evaluator; of messages judged one by one, the mean."""


def runs_of(reader: StoreReader, run_id: str) -> Iterator[DialogueRun]:
    """The dialogues of one batch, in its order."""
    scores = _scores(reader, run_id)
    for row in dialogue_items(reader, run_id):
        factors, settings = json.loads(row["factors"]), json.loads(row["settings"])
        yield DialogueRun(
            combination=settings["combination"],
            client=factors["client"],
            therapist=factors["therapist"],
            status=row["status"],
            run=settings["run"],
            turns=None if row["turns"] is None else int(row["turns"]),
            end_reason=row["ended"] or "",
            caused_by=row["caused"] or "",
            error=row["error"],
            reason=row["reason"],
            scores=scores.get(row["id"], {}),
        )


def run_of_result(result: Mapping[str, Any]) -> DialogueRun:
    """One dialogue, from what a run of the Python interface or a session file says."""
    client, therapist = str(result.get("client", "")), str(result.get("therapist", ""))
    return DialogueRun(
        combination=str(result.get("combination") or f"{client}_{therapist}"),
        client=client,
        therapist=therapist,
        status=str(result.get("status", SUCCESS)),
        run=int(result.get("run_id") or 0),
        turns=result.get("num_turns"),
        end_reason=str(result.get("end_reason") or ""),
        caused_by=str(result.get("caused_by") or ""),
        error=str(result.get("error") or ""),
        reason=str(result.get("reason") or ""),
        scores=mean_scores(result.get("scores") or ()),
    )


def mean_scores(scores: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """The number each evaluator came to; of messages judged one by one, the mean."""
    by_evaluator: dict[str, list[float]] = {}
    for score in scores:
        if score.get("value") is not None:
            by_evaluator.setdefault(score["evaluator"], []).append(score["value"])
    return {name: fmean(values) for name, values in by_evaluator.items()}


def summary_of(runs: Iterable[DialogueRun]) -> dict[str, Any]:
    """The documented summary, followed by further members."""
    by_combination: dict[str, _Tally] = {}
    total, successful, failed = 0, 0, 0
    errors = list[dict[str, object]]()
    for run in runs:
        total += 1
        by_combination.setdefault(run.combination, _Tally()).add(run)
        if run.status == SUCCESS:
            successful += 1
        elif run.status in FINISHED:
            failed += 1
            errors.append(error_record(run))
    return {
        "total_runs": total,
        "successful": successful,
        "failed": failed,
        "by_combination": {name: tally.document() for name, tally in by_combination.items()},
        "unfinished": total - successful - failed,
        "errors": errors,
    }


def error_record(run: DialogueRun) -> dict[str, object]:
    """The documented record of a run that failed, with why and through whom behind it."""
    return {
        "status": run.status,
        "client": run.client,
        "therapist": run.therapist,
        "run_id": run.run,
        "error": run.error or run.reason,
        "reason": run.reason,
        "caused_by": run.caused_by or "infrastructure",
        "combination": run.combination,
    }


class _Tally:
    """The runs of one combination."""

    def __init__(self) -> None:
        self._statuses: Counter[str] = Counter()
        self._ends: Counter[str] = Counter()
        self._turns: list[int] = []
        self._scores: dict[str, list[float]] = {}

    def add(self, run: DialogueRun) -> None:
        self._statuses[run.status] += 1
        if run.end_reason:
            self._ends[run.end_reason] += 1
        if run.status == SUCCESS and run.turns is not None:
            self._turns.append(run.turns)
            for name, value in run.scores.items():
                self._scores.setdefault(name, []).append(value)

    def document(self) -> dict[str, object]:
        failed = sum(number for status, number in self._statuses.items() if status in FINISHED)
        document: dict[str, object] = {
            "num_runs": self._statuses.total(),
            "avg_turns": _rounded(fmean(self._turns)) if self._turns else None,
            "std_turns": _rounded(stdev(self._turns)) if len(self._turns) > 1 else None,
            "successful": self._statuses[SUCCESS],
            "failed": failed - self._statuses[SUCCESS],
            "end_reasons": dict(self._ends),
        }
        if self._scores:
            document["scores"] = {
                name: {
                    "mean": _rounded(fmean(values)),
                    "std": _rounded(stdev(values)) if len(values) > 1 else None,
                    "n": len(values),
                }
                for name, values in self._scores.items()
            }
        return document


def _rounded(value: float) -> float:
    return round(value, 6)


def _scores(reader: StoreReader, run_id: str) -> dict[str, dict[str, float]]:
    scores: dict[str, dict[str, float]] = {}
    for row in item_scores(reader, run_id):
        scores.setdefault(row["id"], {})[row["evaluator"]] = row["value"]
    return scores
