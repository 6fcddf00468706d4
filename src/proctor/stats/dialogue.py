"""Results of a dialogue simulation by combination: turns, ends, scores, and where their variance comes from.

One rule says which dialogues are data, in the summary, in tables and in the analysis: those that came to
their end (`is_data`). The number of others is given beside them. Standard deviations are of the sample.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from proctor.errors import NotFound, UsageError
from proctor.item import FAIL, FINISHED, SUCCESS
from proctor.stats.experiment import Scale, estimate_of, scale_of
from proctor.stats.intervals import CONFIDENCE, Estimate
from proctor.store import StoreReader
from proctor.store.items import dialogue_items
from proctor.store.scores import item_scores

if TYPE_CHECKING:
    from proctor.stats.variance import Component

# Which dialogues are data.


ENDED_AS_FAILED = ("checks_failed", "loop")
"""Reasons of failed dialogues that are complete: judged too low, or both sides repeating themselves."""
DATA_RULE = (
    "Dialogues that came to their end are counted, also those that failed their evaluators or ended in a "
    "loop. Dialogues broken off (errors, timeouts, limits, a side without a usable message) are excluded."
)


def is_data(status: str, reason: str = "") -> bool:
    """Whether a dialogue is complete, and so counts in every figure."""
    return status == SUCCESS or (status == FAIL and (reason or "checks_failed") in ENDED_AS_FAILED)


# Means by combination, variance components, and the effect of one factor.


SIDES = ("client", "therapist")
RANDOM = ("client", "therapist", "profile")
"""Factors whose levels are a sample: there could be other clients, therapists and profiles."""
SETTINGS = ("therapist_profile", "temperature")
"""Settings that a simulation can vary; models are part of the sides."""
NOT_MEASURES = frozenset({"run_id", "seed", "repeat", "temperature"})
LARGEST = 1e150
"""Values beyond it are excluded: their squares overflow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One client with one therapist, and one value of each varied setting."""

    client: str
    therapist: str
    mean: Estimate
    std: float | None
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class VarianceShare:
    """The variance that one source contributes."""

    source: str
    """A factor, factors joined by `:` for their combination, or `repeat`."""
    variance: float | None
    """None: the data cannot tell it from the others, and `note` says from which."""
    share: float | None
    """Its share of the variance that could be estimated, between 0 and 1."""
    low: float | None = None
    high: float | None = None
    levels: int = 0
    note: str = ""
    method: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The difference of two levels of the factor that was chosen."""

    contrast: str
    value: float | None
    low: float | None
    high: float | None
    p: float | None
    p_corrected: float | None
    """Corrected for all contrasts of all measures."""
    note: str = ""
    method: str = ""

    @property
    def is_significant(self) -> bool:
        return self.p_corrected is not None and self.p_corrected <= 1 - CONFIDENCE


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleCrossing:
    """One measure over all combinations."""

    measure: str
    overall: Estimate
    cells: tuple[Cell, ...]
    components: tuple[VarianceShare, ...]
    """`client`, `therapist`, `profile` and their combinations, as far as they vary, and `repeat`."""
    by: str = ""
    """The factor whose effect is estimated. Empty: none has two levels."""
    effects: tuple[Effect, ...] = ()
    missing: int = 0
    """Dialogues without a value."""
    note: str = ""


def measures_of(rows: Sequence[Mapping[str, object]]) -> list[str]:
    """The numeric columns there are."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [name for name in names if name not in NOT_MEASURES and _numbers(rows, name)]


def measure_estimate(rows: Sequence[Mapping[str, object]], measure: str) -> Estimate:
    """The mean of a measure over dialogues, with its interval for dialogues like these."""
    values = _values(rows, measure)
    return estimate_of(values, _scale(measure, values), "dialogue")


def crossing(
    rows: Sequence[Mapping[str, object]],
    measure: str,
    *,
    by: str = "",
    against: str = "",
    family: int = 0,
) -> RoleCrossing:
    """The figures of the combinations in one measure. Rows without it are left out.

    `by` is the factor whose effect is estimated, `against` its baseline level, and `family` the number of
    contrasts corrected together (0: those of this measure).
    """
    settings = _varied_settings(rows)
    values = _values(rows, measure)
    scale = _scale(measure, values)
    components, note = _components(rows, measure, settings)
    chosen = by if by and _varies(rows, by) else ""
    return RoleCrossing(
        measure=measure,
        overall=estimate_of(values, scale, "dialogue"),
        cells=cells_of(rows, measure, settings),
        components=components,
        by=chosen,
        effects=_effects(rows, measure, chosen, against, family, scale) if chosen else (),
        missing=len(rows) - len(values),
        note=note,
    )


def cells_of(
    rows: Sequence[Mapping[str, object]], measure: str, settings: Sequence[str] = ()
) -> tuple[Cell, ...]:
    """The mean of a measure in each combination of client, therapist and settings."""
    cells: dict[tuple[str, ...], list[float]] = {}
    for row in rows:
        if (value := _number(row.get(measure))) is not None:
            key = tuple(str(row.get(name) or "?") for name in (*SIDES, *settings))
            cells.setdefault(key, []).append(value)
    scale = _scale(measure, _values(rows, measure))
    return tuple(
        Cell(
            client=key[0],
            therapist=key[1],
            settings=dict(zip(settings, key[2:], strict=True)),
            mean=estimate_of(mine, scale, "dialogue"),
            std=stdev(mine) if len(mine) > 1 else None,
        )
        for key, mine in cells.items()
    )


def _components(
    rows: Sequence[Mapping[str, object]], measure: str, settings: Sequence[str]
) -> tuple[tuple[VarianceShare, ...], str]:
    """The variance components, with the varied settings as fixed effects, and a note on all of them."""
    # Late: it loads numpy.
    from proctor.stats.variance import RESIDUAL, components, mixed_model

    table = _table(rows, measure)
    varying = [name for name in RANDOM if _varies(rows, name)] or ["client"]
    if settings:
        fitted = mixed_model(table, measure, fixed=settings, random=varying)
        parts, note = fitted.components, fitted.note
    else:
        crossed = components(table, varying, measure)
        parts, note = crossed.components, crossed.note
    # One run of a combination tells nothing of it: its variance is in that of the repeats. Combinations
    # with the groups of another source are that source.
    parts = tuple(_without_rounding(each, parts) for each in parts)
    hidden = [each for each in parts if each.variance.value is None and ":" in each.source]
    within = [each.source for each in hidden if each.variance.note.startswith("one run of each")]
    shares = [
        VarianceShare(
            source=each.source,
            variance=each.variance.value,
            share=each.share,
            low=each.variance.low,
            high=each.variance.high,
            levels=0
            if each.source == RESIDUAL
            else len(
                {
                    tuple(row[name] for name in each.source.split(":"))
                    for row in table
                    if row[measure] is not None
                }
            ),
            note="; ".join(
                [each.variance.note] * bool(each.variance.note)
                + [f"includes {', '.join(within)} (one run of each)"]
                * (bool(within) and each.source == RESIDUAL)
            ),
            method=each.variance.method,
        )
        for each in parts
        if each not in hidden
    ]
    shares += [
        VarianceShare(
            source=name,
            variance=None,
            share=None,
            levels=1,
            note=f"one {name} only: its variance cannot be told from the mean",
        )
        for name in RANDOM
        if name not in varying
    ]
    return tuple(shares), note


ROUNDING = 1e-8
"""Variances below this part of their sum are rounding errors of equal values."""


def _without_rounding(component: "Component", every: "Sequence[Component]") -> "Component":
    """A component whose variance is a rounding error becomes 0, without an interval."""
    limit = ROUNDING * sum(each.variance.value or 0.0 for each in every)
    variance = component.variance
    if variance.value is None or max(variance.value, variance.high or 0.0) > limit:
        return component
    if variance.value == 0 and variance.high is None:
        return component
    note = "no variation seen: no interval"
    return replace(component, variance=replace(variance, value=0.0, low=None, high=None, note=note))


def _effects(
    rows: Sequence[Mapping[str, object]],
    measure: str,
    by: str,
    against: str,
    family: int,
    scale: Scale | None,
) -> tuple[Effect, ...]:
    """Differences of the levels of a factor from its baseline, by a mixed model of the other factors."""
    from proctor.stats.variance import mixed_model

    levels = list(dict.fromkeys(str(row.get(by) or "?") for row in rows))
    others = [name for name in RANDOM if name != by and _varies(rows, name)]
    others += [name for name in _varied_settings(rows) if name != by]
    size = family or len(levels) - 1
    if against and against not in levels:
        raise UsageError(f"{by} has no level {against}\nThere are: {', '.join(levels)}.")
    if not others:
        return _plain_effects(rows, measure, by, against or levels[0], size, scale)
    level = 1 - (1 - CONFIDENCE) / size
    fitted = mixed_model(
        _table(rows, measure), measure, fixed=by, random=others, baseline=against, level=level, draws=100
    )
    few = [name for name in others if len({row.get(name) for row in rows}) < 3]
    proviso = f"fewer than 3 levels of {', '.join(few)}: they tell little of others like them" if few else ""
    width = None if scale is None else scale[1] - scale[0]
    return tuple(
        Effect(
            contrast=name,
            value=each.value,
            low=_cut(each.low, width),
            high=_cut(each.high, width),
            p=each.p,
            p_corrected=None if each.p is None else min(1.0, each.p * size),
            note="; ".join(part for part in (each.note, proviso) if part),
            method=each.method,
        )
        for name, each in fitted.contrasts.items()
    )


def _plain_effects(
    rows: Sequence[Mapping[str, object]],
    measure: str,
    by: str,
    baseline: str,
    family: int,
    scale: Scale | None,
) -> tuple[Effect, ...]:
    """The same where nothing else varies: independent dialogues of each level."""
    from proctor.stats.differences import difference
    from proctor.stats.experiment import TESTS, in_runs

    values = {
        name: _values([row for row in rows if str(row.get(by) or "?") == name], measure)
        for name in dict.fromkeys(str(row.get(by) or "?") for row in rows)
    }
    lo, hi = scale or (None, None)
    effects = []
    for name in values:
        if name != baseline:
            one = difference(values[baseline], values[name], paired=False, lo=lo, hi=hi, family=family)
            effects.append(
                Effect(
                    contrast=f"{name} - {baseline}",
                    value=one.value,
                    low=one.low,
                    high=one.high,
                    p=one.p,
                    p_corrected=one.p_adjusted if one.needs is None else None,
                    note=in_runs(one.note, "dialogue"),
                    method=TESTS.get(one.method, one.method),
                )
            )
    return tuple(effects)


def _cut(limit: float | None, width: float | None) -> float | None:
    return limit if limit is None or width is None else max(-width, min(width, limit))


def analysis(
    rows: Sequence[Mapping[str, object]], measure: str = "", *, by: str = "", against: str = ""
) -> list[dict[str, Any]]:
    """Every measure there is, or the one that is named, as plain data.

    `by` is the factor whose effect is estimated; without one, the therapist. All effects are one family.
    """
    known = measures_of(rows)
    if measure and measure not in known:
        raise NotFound(f"the sessions have no numeric column `{measure}`\nThere are: {', '.join(known)}.")
    factors = (*RANDOM, *SETTINGS, *(f"{side}_model" for side in SIDES))
    if by and not any(row.get(by) is not None for row in rows):
        raise NotFound(f"the sessions have no factor `{by}`\nThere are: {', '.join(factors)}.")
    chosen = [measure] if measure else known
    factor = by or SIDES[1]
    # Measures that never vary have nothing to test.
    varying = sum(len(set(_values(rows, name))) > 1 for name in chosen)
    levels = len({row.get(factor) for row in rows})
    size = max(1, varying * (levels - 1))
    return [asdict(crossing(rows, name, by=factor, against=against, family=size)) for name in chosen]


def with_distinct_names(rows: Sequence[Mapping[str, object]]) -> list[dict[str, Any]]:
    """The rows, with names that tell levels apart: a side that several models played is several sides, and
    profiles of one name and different people are several profiles.
    """
    models: dict[tuple[str, object], set[object]] = {}
    people: dict[object, set[object]] = {}
    for row in rows:
        people.setdefault(row.get("profile"), set()).add(row.get("patient_name"))
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
            **(
                {"profile": f"{row['profile']} ({row.get('patient_name')})"}
                if row.get("profile") is not None and len(people[row["profile"]]) > 1
                else {}
            ),
        }
        for row in rows
    ]


def _table(rows: Sequence[Mapping[str, object]], measure: str) -> list[dict[str, object]]:
    names = (*RANDOM, *SETTINGS, *(f"{side}_model" for side in SIDES))
    return [
        {**{name: str(row.get(name) or "?") for name in names}, measure: _number(row.get(measure))}
        for row in rows
    ]


def _varied_settings(rows: Sequence[Mapping[str, object]]) -> list[str]:
    """The settings of which some pair of roles has several values; others are part of a role."""
    values: dict[tuple[object, ...], set[object]] = {}
    for row in rows:
        for name in SETTINGS:
            values.setdefault((name, row.get("client"), row.get("therapist")), set()).add(row.get(name))
    return [name for name in SETTINGS if any(len(mine) > 1 for key, mine in values.items() if key[0] == name)]


def _varies(rows: Sequence[Mapping[str, object]], name: str) -> bool:
    return len({row.get(name) for row in rows}) > 1


def _values(rows: Sequence[Mapping[str, object]], measure: str) -> list[float]:
    return [value for row in rows if (value := _number(row.get(measure))) is not None]


def _scale(measure: str, values: Sequence[float]) -> Scale | None:
    # Only scores of 0 and 1 are shares; a count may happen to be 0 or 1.
    return scale_of(measure, values, None, is_boolean=False) if measure.startswith("score.") else None


def _number(value: object) -> float | None:
    if isinstance(value, bool):
        return float(value)
    return float(value) if isinstance(value, int | float) and abs(value) <= LARGEST else None


def _numbers(rows: Sequence[Mapping[str, object]], name: str) -> bool:
    values = [row[name] for row in rows if row.get(name) is not None]
    return (
        bool(values)
        and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
        and any(_number(value) is not None for value in values)
    )


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


def measure_rows(runs: Iterable[DialogueRun]) -> list[dict[str, object]]:
    """The dialogues that are data, one row each: client, therapist, turns and scores."""
    return [
        {
            "client": run.client,
            "therapist": run.therapist,
            "num_turns": run.turns,
            **{f"score.{name}": value for name, value in run.scores.items()},
        }
        for run in runs
        if is_data(run.status, run.reason)
    ]


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
    """The score of each evaluator; of messages judged one by one, the mean."""
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
    """The documented record of a run that failed, followed by the reason and the side that caused it."""
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
        """Count a run; turns and scores only of runs that are data."""
        self._statuses[run.status] += 1
        if run.end_reason:
            self._ends[run.end_reason] += 1
        if is_data(run.status, run.reason) and run.turns is not None:
            self._turns.append(run.turns)
            for name, value in run.scores.items():
                self._scores.setdefault(name, []).append(value)

    def document(self) -> dict[str, object]:
        """As JSON."""
        failed = sum(number for status, number in self._statuses.items() if status in FINISHED)
        document: dict[str, object] = {
            "num_runs": self._statuses.total(),
            "avg_turns": _rounded(fmean(self._turns)) if self._turns else None,
            "std_turns": _rounded(stdev(self._turns)) if len(self._turns) > 1 else None,
            "successful": self._statuses[SUCCESS],
            "failed": failed - self._statuses[SUCCESS],
            "end_reasons": dict(self._ends),
            "counted": len(self._turns),
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
