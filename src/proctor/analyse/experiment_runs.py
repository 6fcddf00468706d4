"""The runs of an experiment, read from its folder.

Whatever wrote the folder: our own files, and those of the system whose format this is, in both of its
dialects. A run that cannot be read is counted as one that failed, with the reason.

Knows nothing of statistics.
"""

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_LABEL = re.compile(r"var-(\d+)-run-(\d+)")
Number = float
LARGEST = sys.float_info.max
OF_ITS_OWN = ("validation_failed", "checks_failed", "timeout", "cost_limit")
"""Why a run fails through nobody's fault but its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunData:
    """One run, as far as analysis cares."""

    run_id: str
    variation_id: int
    repeat: int
    """Runs of the same number have the same seed in every variation."""
    status: str
    """`completed`, `failed`, `halted` or `running`."""
    reason: str = ""
    error: str = ""
    metrics: Mapping[str, Number] = field(default_factory=dict)
    """The last value of each metric that is a number."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """The last value of each metric that is a word."""
    by_turn: Mapping[int, Mapping[str, Number]] = field(default_factory=dict)
    cost_usd: float | None = None
    tokens: int = 0
    seed: int | None = None

    @property
    def is_success(self) -> bool:
        return self.status == "completed"

    @property
    def is_error(self) -> bool:
        """It failed for a reason that is not its own: ours, or the provider's."""
        return self.status == "failed" and self.reason not in OF_ITS_OWN

    @property
    def is_judged(self) -> bool:
        """It has come to an end of its own, good or bad: what success rates are made of."""
        return self.is_success or (self.status == "failed" and not self.is_error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """An experiment's folder, read."""

    name: str
    runs: tuple[RunData, ...]
    descriptions: Mapping[int, str]
    factors: Mapping[int, Mapping[str, str]]
    """The level of each factor, by variation."""
    planned: int
    stand_ins: tuple[str, ...] = ()
    description: str = ""
    """What its author says it is for."""


def read_study(folder: Path) -> Study:
    """Read every run of an experiment. A folder without runs is an empty study."""
    state = _mapping(_read(folder / "batch-state.json"))
    summary = _mapping(_read(folder / "batch-summary.json"))
    failed = [_mapping(one) for one in _list(state.get("failed_runs"))]
    reasons = {one["run_id"]: one for one in failed if isinstance(one.get("run_id"), str)}
    paths = sorted(path for path in (folder / "runs").glob("var-*") if path.is_dir())
    runs = [run for path in paths if (run := _run(path, reasons)) is not None]
    variations = [one for one in _list(state.get("variations")) if isinstance(one, dict)]
    numbered = {_id_of(one, position): one for position, one in enumerate(variations, 1)}
    found = {run.variation_id for run in runs}
    return Study(
        name=str(state.get("experiment_name") or folder.name),
        runs=tuple(runs),
        descriptions={
            number: str(numbered.get(number, {}).get("description") or f"variation {number}")
            for number in sorted(found | numbered.keys())
        },
        factors={number: _factors(one) for number, one in numbered.items()},
        planned=_whole(summary.get("total_runs_planned")) or len(runs),
        stand_ins=tuple(map(str, _list(summary.get("stand_ins")))),
        description=str(summary.get("description") or ""),
    )


def _run(folder: Path, reasons: Mapping[str, Mapping[str, Any]]) -> RunData | None:
    named = _LABEL.fullmatch(folder.name)
    if named is None:
        return None
    state, known = _mapping(_read(folder / "scenario-state.json")), reasons.get(folder.name, {})
    status = str(state.get("status") or "failed")
    if known and status != "completed":
        status = "failed"
    final, by_turn = _metrics(_read(folder / "metrics.json"))
    costs = _mapping(_read(folder / "costs.json"))
    totals = _mapping(costs.get("totals"))
    cost = costs.get("total_cost", totals.get("total_cost_usd"))
    seed = _mapping(state.get("execution_metadata")).get("seed")
    return RunData(
        run_id=folder.name,
        variation_id=int(named[1]),
        repeat=int(named[2]),
        status=status,
        reason=str(known.get("reason") or state.get("halt_reason") or ("" if state else "no state")),
        error=str(known.get("error") or state.get("error") or ""),
        metrics=_numbers(final),
        labels={name: value for name, value in final.items() if isinstance(value, str)},
        by_turn={turn: _numbers(values) for turn, values in by_turn.items()},
        cost_usd=_numbers({"cost": cost}).get("cost"),
        tokens=_whole(totals.get("total_tokens")),
        seed=seed if isinstance(seed, int) else None,
    )


def _metrics(document: Any) -> tuple[dict[str, Any], dict[int, dict[str, Any]]]:
    """Final values and values by turn, from either dialect of metrics.json."""
    if isinstance(document, list):
        by_turn: dict[int, dict[str, Any]] = {}
        for one in document:
            if isinstance(one, dict) and "name" in one:
                by_turn.setdefault(_whole(one.get("turn")), {})[str(one["name"])] = one.get("value")
        final: dict[str, Any] = {}
        for turn in sorted(by_turn):
            final |= by_turn[turn]
        return final, by_turn
    document = _mapping(document)
    final = document.get("final_metrics")
    scores = document.get("scores")
    if isinstance(final, dict) and isinstance(scores, dict):
        final = final | {f"score.{name}": value for name, value in scores.items()}
    turns = document.get("metrics_by_turn")
    return (
        final if isinstance(final, dict) else {},
        {
            int(turn): values
            for turn, values in (turns.items() if isinstance(turns, dict) else ())
            if str(turn).isdigit() and isinstance(values, dict)
        },
    )


def _numbers(values: Mapping[str, Any]) -> dict[str, Number]:
    return {name: float(value) for name, value in values.items() if _is_number(value)}


def _is_number(value: Any) -> bool:
    # Also what is too large to be one of our numbers, as a whole number of 400 digits is, is none.
    return isinstance(value, int | float) and value == value and abs(value) <= LARGEST


def _whole(value: Any) -> int:
    return int(value) if _is_number(value) else 0


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _factors(variation: Mapping[str, Any]) -> dict[str, str]:
    given = variation.get("factors")
    if isinstance(given, dict):
        return {str(name): str(level) for name, level in given.items()}
    made: dict[str, str] = {}
    for part in _mapping(variation.get("modifications")).values():
        made |= {str(name): str(level) for name, level in _mapping(part).items()}
    return made


def _id_of(variation: Mapping[str, Any], position: int) -> int:
    given = variation.get("variation_id", position)
    return given if isinstance(given, int) else position


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
