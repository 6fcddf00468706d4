"""Measures over the combinations of two crossed factors: means, where their variance comes from, and effects.

Observations are rows with the levels of the factors and numbers. Standard deviations are of the sample.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import stdev
from typing import TYPE_CHECKING

from proctor.errors import UsageError
from proctor.score import LARGEST
from proctor.stats.experiment import Scale, estimate_of, scale_of
from proctor.stats.intervals import CONFIDENCE, Estimate

if TYPE_CHECKING:
    from proctor.stats.variance import Component

Rows = Sequence[Mapping[str, object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """The factors of crossed observations."""

    sides: tuple[str, str]
    """The factors whose combinations are the cells."""
    random: Sequence[str]
    """Factors whose levels are a sample: there could be others. The sides are among them."""
    settings: Sequence[str]
    """Factors that a design can vary, with fixed levels; where a cell has one value, it is part of a side."""
    others: Sequence[str] = ()
    """Further factors whose effect can be estimated."""
    unit: str
    """What one observation is called."""

    @property
    def factors(self) -> tuple[str, ...]:
        return (*self.random, *self.settings, *self.others)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One level of each side, and one value of each varied setting."""

    levels: Mapping[str, str]
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
class Crossing:
    """One measure over all combinations."""

    measure: str
    overall: Estimate
    cells: tuple[Cell, ...]
    components: tuple[VarianceShare, ...]
    """The random factors and their combinations, as far as they vary, and `repeat`."""
    by: str = ""
    """The factor whose effect is estimated. Empty: none has two levels."""
    effects: tuple[Effect, ...] = ()
    missing: int = 0
    """Observations without a value."""
    note: str = ""


def measures_of(rows: Rows, *, ignored: Collection[str] = ()) -> list[str]:
    """The numeric columns there are."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [name for name in names if name not in ignored and _numbers(rows, name)]


def measure_estimate(rows: Rows, measure: str, unit: str) -> Estimate:
    """The mean of a measure, with its interval for observations like these."""
    values = _values(rows, measure)
    return estimate_of(values, _scale(measure, values), unit)


def crossings(
    design: Design,
    rows: Rows,
    measures: Sequence[str],
    *,
    by: str,
    against: str = "",
    scales: Mapping[str, Scale] | None = None,
) -> list[Crossing]:
    """The figures of several measures; the effects of the factor `by` in all of them are one family.

    `scales` are those that measures declare.
    """
    # Measures that never vary have nothing to test.
    varying = sum(len(set(_values(rows, name))) > 1 for name in measures)
    levels = len({row.get(by) for row in rows})
    size = max(1, varying * (levels - 1))
    declared = scales or {}
    return [
        crossing(design, rows, name, by=by, against=against, family=size, declared=declared.get(name))
        for name in measures
    ]


def crossing(
    design: Design,
    rows: Rows,
    measure: str,
    *,
    by: str = "",
    against: str = "",
    family: int = 0,
    declared: Scale | None = None,
) -> Crossing:
    """The figures of the combinations in one measure. Rows without it are left out.

    `by` is the factor whose effect is estimated, `against` its baseline level, and `family` the number of
    contrasts corrected together (0: those of this measure).
    """
    settings = _varied_settings(design, rows)
    values = _values(rows, measure)
    scale = _scale(measure, values, declared)
    components, note = _components(design, rows, measure, settings)
    chosen = by if by and _varies(rows, by) else ""
    return Crossing(
        measure=measure,
        overall=estimate_of(values, scale, design.unit),
        cells=cells_of(design, rows, measure, settings, declared),
        components=components,
        by=chosen,
        effects=_effects(design, rows, measure, chosen, against, family, scale) if chosen else (),
        missing=len(rows) - len(values),
        note=note,
    )


def cells_of(
    design: Design,
    rows: Rows,
    measure: str,
    settings: Sequence[str] = (),
    declared: Scale | None = None,
) -> tuple[Cell, ...]:
    """The mean of a measure in each combination of both sides and settings."""
    cells: dict[tuple[str, ...], list[float]] = {}
    for row in rows:
        if (value := _number(row.get(measure))) is not None:
            key = tuple(str(row.get(name) or "?") for name in (*design.sides, *settings))
            cells.setdefault(key, []).append(value)
    scale = _scale(measure, _values(rows, measure), declared)
    return tuple(
        Cell(
            levels=dict(zip(design.sides, key, strict=False)),
            settings=dict(zip(settings, key[2:], strict=True)),
            mean=estimate_of(mine, scale, design.unit),
            std=stdev(mine) if len(mine) > 1 else None,
        )
        for key, mine in cells.items()
    )


def _components(
    design: Design, rows: Rows, measure: str, settings: Sequence[str]
) -> tuple[tuple[VarianceShare, ...], str]:
    """The variance components, with the varied settings as fixed effects, and a note on all of them."""
    # Late: it loads numpy.
    from proctor.stats.variance import RESIDUAL, components, mixed_model

    table = _table(design, rows, measure)
    varying = [name for name in design.random if _varies(rows, name)] or [design.sides[0]]
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
            source=part.source,
            variance=part.variance.value,
            share=part.share,
            low=part.variance.low,
            high=part.variance.high,
            levels=0
            if part.source == RESIDUAL
            else len(
                {
                    tuple(row[name] for name in part.source.split(":"))
                    for row in table
                    if row[measure] is not None
                }
            ),
            note="; ".join(
                [part.variance.note] * bool(part.variance.note)
                + [f"includes {', '.join(within)} (one run of each)"]
                * (bool(within) and part.source == RESIDUAL)
            ),
            method=part.variance.method,
        )
        for part in parts
        if part not in hidden
    ]
    shares += [
        VarianceShare(
            source=name,
            variance=None,
            share=None,
            levels=1,
            note=f"one {name} only: its variance cannot be told from the mean",
        )
        for name in design.random
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
    design: Design,
    rows: Rows,
    measure: str,
    by: str,
    against: str,
    family: int,
    scale: Scale | None,
) -> tuple[Effect, ...]:
    """Differences of the levels of a factor from its baseline, by a mixed model of the other factors."""
    from proctor.stats.variance import mixed_model

    levels = list(dict.fromkeys(str(row.get(by) or "?") for row in rows))
    others = [name for name in design.random if name != by and _varies(rows, name)]
    others += [name for name in _varied_settings(design, rows) if name != by]
    size = family or len(levels) - 1
    if against and against not in levels:
        raise UsageError(f"{by} has no level {against}\nThere are: {', '.join(levels)}.")
    if not others:
        return _plain_effects(design.unit, rows, measure, by, against or levels[0], size, scale)
    level = 1 - (1 - CONFIDENCE) / size
    fitted = mixed_model(
        _table(design, rows, measure),
        measure,
        fixed=by,
        random=others,
        baseline=against,
        level=level,
        draws=100,
    )
    few = [name for name in others if len({row.get(name) for row in rows}) < 3]
    proviso = f"fewer than 3 levels of {', '.join(few)}: they tell little of others like them" if few else ""
    width = None if scale is None else scale[1] - scale[0]
    return tuple(
        Effect(
            contrast=name,
            value=contrast.value,
            low=_cut(contrast.low, width),
            high=_cut(contrast.high, width),
            p=contrast.p,
            p_corrected=None if contrast.p is None else min(1.0, contrast.p * size),
            note="; ".join(part for part in (contrast.note, proviso) if part),
            method=contrast.method,
        )
        for name, contrast in fitted.contrasts.items()
    )


def _plain_effects(
    unit: str,
    rows: Rows,
    measure: str,
    by: str,
    baseline: str,
    family: int,
    scale: Scale | None,
) -> tuple[Effect, ...]:
    """The same where nothing else varies: independent observations of each level."""
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
            contrast = difference(values[baseline], values[name], paired=False, lo=lo, hi=hi, family=family)
            effects.append(
                Effect(
                    contrast=f"{name} - {baseline}",
                    value=contrast.value,
                    low=contrast.low,
                    high=contrast.high,
                    p=contrast.p,
                    p_corrected=contrast.p_adjusted if contrast.needs is None else None,
                    note=in_runs(contrast.note, unit),
                    method=TESTS.get(contrast.method, contrast.method),
                )
            )
    return tuple(effects)


def _cut(limit: float | None, width: float | None) -> float | None:
    return limit if limit is None or width is None else max(-width, min(width, limit))


def _table(design: Design, rows: Rows, measure: str) -> list[dict[str, object]]:
    return [
        {
            **{name: str(row.get(name) or "?") for name in design.factors},
            measure: _number(row.get(measure)),
        }
        for row in rows
    ]


def _varied_settings(design: Design, rows: Rows) -> list[str]:
    """The settings of which some combination of sides has several values; others are part of a side."""
    values: dict[tuple[object, ...], set[object]] = {}
    for row in rows:
        for name in design.settings:
            key = (name, *(row.get(side) for side in design.sides))
            values.setdefault(key, set()).add(row.get(name))
    return [
        name
        for name in design.settings
        if any(len(mine) > 1 for key, mine in values.items() if key[0] == name)
    ]


def _varies(rows: Rows, name: str) -> bool:
    return len({row.get(name) for row in rows}) > 1


def _values(rows: Rows, measure: str) -> list[float]:
    return [value for row in rows if (value := _number(row.get(measure))) is not None]


def _scale(measure: str, values: Sequence[float], declared: Scale | None = None) -> Scale | None:
    # Only scores of 0 and 1 are shares; a count may happen to be 0 or 1.
    return scale_of(measure, values, declared, is_boolean=False) if measure.startswith("score.") else None


def _number(value: object) -> float | None:
    if isinstance(value, bool):
        return float(value)
    return float(value) if isinstance(value, int | float) and abs(value) <= LARGEST else None


def _numbers(rows: Rows, name: str) -> bool:
    values = [row[name] for row in rows if row.get(name) is not None]
    return (
        bool(values)
        and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
        and any(_number(value) is not None for value in values)
    )
