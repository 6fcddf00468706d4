"""What pairing clients with therapists did to a measure: means by combination, and where variance lies.

Knows nothing of files, or of how the measures came about.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import stdev
from typing import Any

from proctor.analyse.components import (
    COLUMN,
    PAIRING,
    REPEAT,
    ROW,
    Component,
    Observation,
    variance_components,
)
from proctor.analyse.intervals import Estimate, mean_of
from proctor.errors import NotFound

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
class Crossing:
    """One measure over all combinations."""

    measure: str
    overall: Estimate
    cells: tuple[Cell, ...]
    components: tuple[Component, ...]
    """`client`, `therapist`, `pairing`, `repeat`."""


def measures_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The numeric columns there are."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [name for name in names if name not in NOT_MEASURES and _numbers(rows, name)]


def crossing(rows: Sequence[Mapping[str, Any]], measure: str) -> Crossing:
    """What the combinations come to in one measure. Rows without it are left out."""
    cells: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        value = row.get(measure)
        if isinstance(value, int | float) and _is_number(value):
            key = (str(row.get("client") or "?"), str(row.get("therapist") or "?"))
            cells.setdefault(key, []).append(float(value))
    seen = [Observation(client, therapist, v) for (client, therapist), vs in cells.items() for v in vs]
    return Crossing(
        measure=measure,
        overall=mean_of([observation.value for observation in seen]),
        cells=tuple(
            Cell(client=client, therapist=therapist, mean=mean_of(values), std=_std(values))
            for (client, therapist), values in cells.items()
        ),
        components=tuple(
            Component(SPOKEN[each.source], each.variance, each.share) for each in variance_components(seen)
        ),
    )


def analysis(rows: Sequence[Mapping[str, Any]], measure: str = "") -> list[dict[str, Any]]:
    """Every measure there is, or the one that is named, as plain data."""
    known = measures_of(rows)
    if measure and measure not in known:
        raise NotFound(f"the sessions have no numeric column `{measure}`\nThere are: {', '.join(known)}.")
    return [asdict(crossing(rows, name)) for name in ([measure] if measure else known)]


def told_apart(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows, each side named with its model where it was played by several: those are several sides."""
    models: dict[tuple[str, Any], set[Any]] = {}
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


def _numbers(rows: Sequence[Mapping[str, Any]], name: str) -> bool:
    values = [row[name] for row in rows if row.get(name) is not None]
    return bool(values) and all(map(_is_number, values))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _std(values: Sequence[float]) -> float | None:
    return stdev(values) if len(values) > 1 else None
