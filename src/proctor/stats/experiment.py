"""Factors associated with success, failure and metrics of an experiment: statements with their evidence.

The unit is the run: figures are about runs of this scenario with these variations. A level of a factor is
compared with the other levels block by block. A block is one seed with one combination of the other factors,
so that runs differ in the factor alone, and every run counts. All levels of all factors, for the success rate
and every metric, are one family: interval, p and verdict are of one method and hold together (Bonferroni).
"""

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from statistics import fmean, median, stdev
from typing import TYPE_CHECKING, Any

from proctor.formatting import chance, figure, plural
from proctor.stats.intervals import FEWEST_TASKS, Estimate, mean, wilson
from proctor.stats.outcomes import first_line

if TYPE_CHECKING:
    # It loads numpy, which a plain run does not.
    from proctor.stats.differences import Difference

# The runs of an experiment, read from its folder.


Number = float
Scale = tuple[float, float]
OF_ITS_OWN = ("validation_failed", "checks_failed", "timeout", "cost_limit")
"""Reasons of failures that the run itself caused."""
RUNS_LIKE_THESE = "runs like these"
"""What every interval is about: further runs of this scenario with these variations."""
BINARY: Scale = (0.0, 1.0)
POOLED = 0.25
"""Pairs of one seed count as independent if an F test of seeds has at least this p (Bancroft 1964)."""
VERSION, TREND = "scenario version", "linear trend"
"""The factor that keeps apart runs of a scenario that was changed, and the contrast of numeric levels."""
MOST_PAIRED_LEVELS = 12
"""Levels of a factor up to which all pairs are compared."""
EXCLUDED = "excluded"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunData:
    """One run, as the analysis needs it."""

    run_id: str
    variation_id: int
    repeat: int
    """Runs of the same number have the same seed in every variation."""
    status: str
    """`completed`, `excluded` (completed, and excluded by the config's `exclude_when`), `failed`, `halted` or
    `running`."""
    reason: str = ""
    error: str = ""
    metrics: Mapping[str, Number] = field(default_factory=dict)
    """The last value of each numeric metric."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """The last value of each text metric."""
    unusable: frozenset[str] = frozenset()
    """Metrics whose value is NaN, infinite or too large to compute with; they count as missing."""
    by_turn: Mapping[int, Mapping[str, Number]] = field(default_factory=dict)
    cost_usd: float | None = None
    tokens: int = 0
    seconds: float | None = None
    """Duration of its turns; None: unknown."""
    turns: int = 0
    """Number of completed turns."""
    seed: int | None = None
    checks: Mapping[str, int] = field(default_factory=dict)
    """How many checks of its turns were run, found issues, and could not be read."""
    served: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By requested model, the calls that each model answered."""
    invalid: Mapping[str, int | None] = field(default_factory=dict)
    """Counts of what makes it less valid as data. None: unknown."""

    @property
    def is_success(self) -> bool:
        return self.status == "completed"

    @property
    def is_error(self) -> bool:
        """Whether it ended in an infrastructure error."""
        return self.status == "failed" and self.reason not in OF_ITS_OWN

    @property
    def is_judged(self) -> bool:
        """Whether it counts for the success rate: it succeeded, or failed by itself."""
        return self.is_success or (self.status == "failed" and not self.is_error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """The runs of an experiment."""

    name: str
    runs: tuple[RunData, ...]
    descriptions: Mapping[int, str]
    factors: Mapping[int, Mapping[str, str]]
    """The level of each factor, by variation."""
    damaged: tuple[str, ...] = ()
    """Files of runs that cannot be read."""
    planned: int
    metrics: tuple[str, ...] = ()
    """Metrics that are numbers, also those that no run has a value of."""
    scales: Mapping[str, Scale] = field(default_factory=dict)
    """Smallest and largest possible value, by metric. Metrics without one are unbounded."""
    variables: tuple[str, ...] = ()
    """Those of the metrics that are variables of the world."""
    manipulated: tuple[str, ...] = ()
    """Variables that a factor sets and no run changes: not outcomes, and not among the metrics."""
    stand_ins: tuple[str, ...] = ()
    description: str = ""
    """Description by the author."""

    @property
    def completed(self) -> list[RunData]:
        """The runs that came to their end, of which metrics are summarized."""
        return [run for run in self.runs if run.is_success]

    @property
    def excluded(self) -> list[RunData]:
        """The runs that came to their end and are excluded by the config's `exclude_when`."""
        return [run for run in self.runs if run.status == EXCLUDED]

    @property
    def levels(self) -> dict[str, list[str]]:
        """The factors that vary, with their levels in order of appearance."""
        levels_by_factor: dict[str, dict[str, None]] = defaultdict(dict)
        for number in sorted({run.variation_id for run in self.runs}):
            for factor, level in self.factors.get(number, {}).items():
                levels_by_factor[factor][level] = None
        return {factor: list(levels) for factor, levels in levels_by_factor.items() if len(levels) > 1}

    def level(self, run: RunData, factor: str) -> str:
        """The level of a factor in a run; empty: none."""
        return self.factors.get(run.variation_id, {}).get(factor, "")

    def of(self, variation: int) -> list[RunData]:
        """The runs of a variation."""
        return [run for run in self.runs if run.variation_id == variation]

    def measured(self, metric: str) -> list[RunData]:
        """The completed runs that have a value of a metric."""
        return [run for run in self.completed if metric in run.metrics]

    def values(self, runs: Sequence[RunData], metric: str) -> list[float]:
        """The values of a metric in the runs that have one."""
        return [run.metrics[metric] for run in runs if metric in run.metrics]

    def estimate(self, runs: Sequence[RunData], metric: str) -> Estimate:
        """The mean of a metric over the runs that have one."""
        return estimate_of(self.values(runs, metric), self.scales.get(metric))


def scale_of(metric: str, values: Sequence[float], declared: Scale | None, is_boolean: bool) -> Scale | None:
    """The ends of a metric's scale: declared, 0 and 1 for booleans and shares; None: unbounded.

    What is declared counts whatever the values happen to be: ratings from 1 to 5 may all be 1.
    """
    if is_boolean:
        return BINARY
    if declared is not None:
        return declared if all(declared[0] <= value <= declared[1] for value in values) else None
    if values and set(values) <= {0.0, 1.0}:
        return BINARY
    is_share = metric.startswith("score.") and values and all(0 <= value <= 1 for value in values)
    return BINARY if is_share else None


# Means over runs.


def estimate_of(values: Sequence[float], scale: Scale | None, unit: str = "run") -> Estimate:
    """The mean of independent runs: Wilson's interval for 0/1 values, else `mean` on the scale."""
    scope = f"{unit}s like these"
    if scale == BINARY and values and set(values) <= {0.0, 1.0}:
        rate = wilson(int(sum(values)), len(values))
        about = mean(values, lo=0, hi=1)
        return replace(about, low=rate.low, high=rate.high, method="Wilson", note="", scope=scope)
    lo, hi = scale or (None, None)
    about = mean(values, lo=lo, hi=hi)
    return replace(about, note=in_runs(about.note, unit), scope=scope)


def in_runs(note: str, unit: str = "run") -> str:
    """A note of the general statistics in the words of an experiment, where the unit is the run."""
    note = note.replace("common tasks", f"pairs of {unit}s").replace("tasks", f"{unit}s")
    note = note.replace("task", unit)
    return note.replace(" Declare the scale.", " Only a declared range would allow one.")


def statistics_of(study: Study, runs: Sequence[RunData], metric: str) -> dict[str, Any]:
    """A metric over runs, as plain data. No value: how many are missing, in words too."""
    values = study.values(runs, metric)
    missing = len(runs) - len(values)
    unusable = sum(metric in run.unusable for run in runs)
    notes = [f"missing in {missing} of {len(runs)} runs"] if missing else []
    if unusable:
        notes.append(f"in {unusable} of them not a number that can be computed with")
    scale = study.scales.get(metric)
    estimate = study.estimate(runs, metric) if values else Estimate(value=None, note="no value")
    notes += [estimate.note.rstrip(".")] if estimate.note else []
    return {
        "count": len(values),
        "mean": fmean(values) if values else None,
        "median": median(values) if values else None,
        "min": min(values, default=None),
        "max": max(values, default=None),
        "stdev": stdev(values) if len(values) > 1 else 0.0 if values else None,
        "n": len(values),
        "low": estimate.low,
        "high": estimate.high,
        "missing": missing,
        "sem": estimate.sem,
        "scale": None if scale is None else list(scale),
        "method": estimate.method,
        "needs": estimate.needs,
        "scope": RUNS_LIKE_THESE,
        "note": "; ".join(notes),
    }


# Levels of factors, compared with the others.


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelContrast:
    """Runs with one level of a factor against all others, in equal blocks."""

    factor: str
    level: str
    metric: str
    """Empty: the success rate."""
    difference: "Difference"
    """The level minus the others, adjusted for the family."""
    against: str = ""
    """The level that it is compared with. Empty: all others."""
    hedges_g: tuple[float, float, float] | None = None
    """In standard deviations within the sides, with its 95% CI. None: of rates, or nothing varies."""
    left_out: str = ""
    """Why it is not a member of the family, and has no verdict. Empty: it is one."""
    mcnemar: float | None = None
    """Exact McNemar p of pairs of 0/1 values, unadjusted. None: the values are others."""

    @property
    def name(self) -> str:
        """The levels that are compared, and the metric."""
        what = self.metric or "the success rate"
        if self.level == TREND:
            return f"{what}, {TREND} over {self.factor}"
        against = f" against {self.against}" if self.against else ""
        return f"{what}, {self.factor} = {self.level}{against}"

    @property
    def is_clear(self) -> bool:
        return not self.left_out and self.difference.is_significant

    @property
    def p_corrected(self) -> float | None:
        return None if self.left_out else self.difference.p_adjusted


def level_contrasts(study: Study, metrics: Sequence[str] = ()) -> list[LevelContrast]:
    """Every level of every factor against the others, for the success rate and metrics: one family."""
    return one_family(
        _contrast(study, factor, level, metric)
        for metric in ("", *metrics)
        for factor, levels in study.levels.items()
        # The contrast of the second of two levels is the same with the opposite sign.
        for level in (levels if len(levels) > 2 else levels[:1])
    )


def pairs_and_trends(study: Study, metrics: Sequence[str] = ()) -> list[LevelContrast]:
    """Each pair of levels of factors with three and more, and the trend over numeric levels: one family."""
    contrasts = list[LevelContrast]()
    for metric in ("", *metrics):
        for factor, levels in study.levels.items():
            if not 2 < len(levels) <= MOST_PAIRED_LEVELS:
                continue
            contrasts += [
                _contrast(study, factor, level, metric, against) for against, level in combinations(levels, 2)
            ]
            if (trend := _trend(study, factor, metric)) is not None:
                contrasts.append(trend)
    return one_family(contrasts)


def one_family(contrasts: Iterable[LevelContrast]) -> list[LevelContrast]:
    """Contrasts corrected for their number."""
    from proctor.stats.differences import family

    named = {each.name: each for each in contrasts}
    members = family({name: each.difference for name, each in named.items()})
    adjusted = {**members.members, **members.descriptive}
    return [
        replace(each, difference=adjusted[name], left_out=in_runs(members.left_out.get(name, "")))
        for name, each in named.items()
    ]


def is_rating(study: Study, metric: str) -> bool:
    """Whether a metric has a scale and other values than 0 and 1: its tests are permutations."""
    values = set(study.values(study.completed, metric))
    return metric in study.scales and not values <= {0.0, 1.0}


def _trend(study: Study, factor: str, metric: str) -> LevelContrast | None:
    """The slope over the numbers that are the levels of a factor; None: they are no numbers.

    Block by block where runs have seeds or other factors, so that only the factor differs.
    """
    import numpy as np

    from proctor.stats.differences import Difference
    from proctor.stats.samples import standard_error

    try:
        numbers = {level: float(level) for level in study.levels[factor]}
    except ValueError:
        return None
    about = LevelContrast(factor=factor, level=TREND, metric=metric, difference=Difference(value=None))
    runs = study.measured(metric) if metric else [run for run in study.runs if run.is_judged]
    if metric and never_differs(study, metric):
        return None
    others = [name for name in study.levels if name != factor]
    blocks: dict[Hashable, list[tuple[float, float]]] = defaultdict(list)
    has_seeds = all(run.seed is not None for run in runs)
    for run in runs:
        key = (run.seed if has_seeds else run.repeat, *(study.level(run, name) for name in others))
        value = run.metrics[metric] if metric else float(run.is_success)
        blocks[key].append((numbers[study.level(run, factor)], value))
    if not has_seeds and not others:
        blocks = defaultdict(list, {"all": [pair for pairs in blocks.values() for pair in pairs]})
    complete = [pairs for pairs in blocks.values() if len({x for x, _ in pairs}) == len(numbers)]
    if not complete:
        return None
    slopes = [_slope(pairs) for pairs in complete]
    value, n = fmean(slope for slope, _ in slopes), len(slopes)
    if n > 1:
        error, freedom = standard_error(np.array([slope for slope, _ in slopes])), n - 1
    else:
        n = len(complete[0])
        error, freedom = slopes[0][1], n - 2
    if not error or freedom < 1:
        return replace(about, difference=Difference(value=value, note="no spread to test it against"))
    method = "linear trend"
    values = [y for pairs in complete for _, y in pairs]
    result = Difference(
        value=value, center=value, se=error, df=freedom, n=n, tasks=(n, n), runs=len(values), method=method,
        spread=error * n**0.5, p=1.0, total=len(values),
    )  # fmt: skip
    return replace(about, difference=result)


def _contrast(study: Study, factor: str, level: str, metric: str, against: str = "") -> LevelContrast:
    from proctor.stats.classical import mcnemar
    from proctor.stats.differences import Difference, difference

    others = [name for name in study.levels if name != factor]
    if metric:
        runs, scale = study.completed, study.scales.get(metric)
    else:
        runs, scale = [run for run in study.runs if run.is_judged], BINARY
    if against:
        runs = [run for run in runs if study.level(run, factor) in (level, against)]
    about = LevelContrast(
        factor=factor, level=level, metric=metric, difference=Difference(value=None), against=against
    )
    if metric and never_differs(study, metric):
        note = "repeats never differ: they say no more than one run"
        inside, outside = (
            study.values([run for run in runs if (study.level(run, factor) == level) is side], metric)
            for side in (True, False)
        )
        value = fmean(inside) - fmean(outside) if inside and outside else None
        return replace(about, difference=Difference(value=value, note=note))
    sides: dict[bool, tuple[list[float | None], list[Hashable]]] = {True: ([], []), False: ([], [])}
    has_seeds = all(run.seed is not None for run in runs)
    # Side and other levels of each variation.
    places: dict[int, tuple[bool, tuple[str, ...]]] = {}
    for run in runs:
        if run.variation_id not in places:
            around = tuple(study.level(run, name) for name in others)
            places[run.variation_id] = study.level(run, factor) == level, around
        side, around = places[run.variation_id]
        values, blocks = sides[side]
        values.append(run.metrics.get(metric) if metric else float(run.is_success))
        # Without seeds, runs of one number are compared: any two runs of a block are alike.
        blocks.append((run.seed if has_seeds else run.repeat, *around))
    lo, hi = scale or (None, None)
    (with_it, at), (without, elsewhere) = sides[True], sides[False]
    # One factor and no seeds: nothing pairs the runs.
    is_paired = has_seeds or bool(others)
    if not is_paired:
        at, elsewhere = list(range(len(at))), list(range(len(elsewhere)))
    result = difference(
        without,
        with_it,
        task_a=elsewhere,
        task_b=at,
        lo=lo,
        hi=hi,
        paired=is_paired,
        permuted=bool(metric) and is_rating(study, metric),
    )
    if has_seeds:
        result = _clustered_by_seed(result, (elsewhere, without), (at, with_it))
    if metric and not (scale == BINARY and not is_rating(study, metric)):
        about = replace(about, hedges_g=_standardized(result, without, with_it))
    about = replace(about, difference=replace(result, note=in_runs(result.note)))
    if others and with_it and without and set(at).isdisjoint(elsewhere):
        note = f"no two runs differ in {factor} alone: its effect is confounded with {', '.join(others)}"
        return replace(about, difference=replace(result, note=note, needs=None))
    if not (
        is_paired and scale == BINARY and len(set(at)) == len(at) and len(set(elsewhere)) == len(elsewhere)
    ):
        return about
    first, second = (dict(zip(*side, strict=True)) for side in ((at, with_it), (elsewhere, without)))
    pairs = [(first[block], second[block]) for block in first if block in second]
    if not pairs or not {value for pair in pairs for value in pair} <= {0.0, 1.0}:
        return about
    return replace(about, mcnemar=mcnemar(pairs.count((1.0, 0.0)), pairs.count((0.0, 1.0))))


def _standardized(
    difference: "Difference", without: Sequence[float | None], with_it: Sequence[float | None]
) -> tuple[float, float, float] | None:
    from proctor.stats.effects import hedges_g

    error = difference.se
    if difference.method.startswith("plus") and difference.spread and difference.n:
        error = difference.spread / difference.n**0.5
    if difference.value is None or not error:
        return None
    sides = ([value for value in side if value is not None] for side in (without, with_it))
    return hedges_g(difference.value, error, *sides)


def _slope(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The least-squares slope of y over x, and its standard error (0 with two points)."""
    center, middle = fmean(x for x, _ in pairs), fmean(y for _, y in pairs)
    width = sum((x - center) ** 2 for x, _ in pairs)
    slope = sum((x - center) * (y - middle) for x, y in pairs) / width
    rest = sum((y - middle - slope * (x - center)) ** 2 for x, y in pairs)
    return slope, (rest / (len(pairs) - 2) / width) ** 0.5 if len(pairs) > 2 else 0.0


def _clustered_by_seed(
    result: "Difference",
    without: tuple[Sequence[Hashable], Sequence[float | None]],
    with_it: tuple[Sequence[Hashable], Sequence[float | None]],
) -> "Difference":
    """The same difference with seeds as the unit where an F test suggests that its size varies with the seed.

    The blocks of a seed are then alike, and the standard error is that between seeds, with a degree of
    freedom for each seed but one. Fewer than six seeds are too few for that: a note says so.
    """
    from scipy import special

    from proctor.stats.differences import adjust

    if result.se is None or not result.spread:
        return result
    sides = [_block_means(*side) for side in (without, with_it)]
    by_seed: dict[object, list[float]] = defaultdict(list)
    for block in sides[0].keys() & sides[1].keys():
        seed = block[0] if isinstance(block, tuple) else block
        by_seed[seed].append(sides[1][block] - sides[0][block])
    seeds, blocks = len(by_seed), result.n
    if seeds == blocks:
        # One block each: the spread between blocks is that between seeds.
        return result
    center = fmean(value for values in by_seed.values() for value in values)
    within = sum((value - fmean(values)) ** 2 for values in by_seed.values() for value in values)
    if seeds > 1 and within:
        between = sum(len(values) * (fmean(values) - center) ** 2 for values in by_seed.values())
        f = between / (seeds - 1) / (within / (blocks - seeds))
        if float(special.fdtrc(seeds - 1, blocks - seeds, f)) >= POOLED:
            return result
    if seeds < FEWEST_TASKS:
        note = f"The effect may vary with the seed: this holds for {plural(seeds, 'seed')} only."
        return replace(result, note=f"{result.note} {note}".strip())
    note = f"The effect may vary with the seed: {seeds} seeds count, not {blocks} pairs."
    total = sum(sum(value - center for value in values) ** 2 for values in by_seed.values())
    error = (total * seeds / (seeds - 1)) ** 0.5 / blocks
    growth = max(1.0, error / (result.spread / blocks**0.5))
    wider = replace(
        result,
        se=result.se * growth,
        spread=result.spread * growth,
        df=seeds - 1,
        note=f"{result.note} {note}".strip(),
    )
    return adjust(wider, result.family, result.level)


def _block_means(blocks: Sequence[Hashable], values: Sequence[float | None]) -> dict[Hashable, float]:
    known: dict[Hashable, list[float]] = defaultdict(list)
    for block, value in zip(blocks, values, strict=True):
        if value is not None:
            known[block].append(value)
    return {block: fmean(each) for block, each in known.items()}


TESTS = {
    "Student's t, paired": "paired t-test",
    "Welch's t": "Welch's t-test",
    "plus, paired": "paired, plus interval",
    "plus, Welch": "Welch's t-test, plus interval",
    "permutation, paired": "paired permutation and t-test",
    "permutation": "permutation and Welch's t-test",
    "linear trend": "t-test of the slope",
}
"""Names of the methods on the page."""


def difference_record(difference: "Difference", left_out: str = "") -> dict[str, Any]:
    """A difference as plain data."""
    return {
        "value": difference.value,
        "low": difference.low,
        "high": difference.high,
        "p": difference.p,
        "effect_size": difference.effect_size,
        "smallest_detectable": difference.detectable,
        "runs_needed": difference.needs,
        "n": difference.tasks,
        "is_paired": difference.is_paired,
        "test": TESTS[difference.method or ("Student's t, paired" if difference.is_paired else "Welch's t")],
        "p_corrected": None if left_out else difference.p_adjusted,
        "is_significant": not left_out and difference.is_significant,
        "family": difference.family,
        "note": "; ".join(
            dict.fromkeys(part.rstrip(".") for part in (left_out, in_runs(difference.note)) if part)
        ),
    }


def statement(contrast: LevelContrast) -> dict[str, Any]:
    """A contrast as a record with its sentence."""
    difference, what = contrast.difference, contrast.metric or "the success rate"
    rate = not contrast.metric
    record = difference_record(difference, contrast.left_out)
    g = contrast.hedges_g or (None, None, None)
    if difference.value is None:
        size = "not comparable"
    elif difference.value:
        size = f"{_amount(abs(difference.value), rate)} {'higher' if difference.value > 0 else 'lower'}"
    else:
        size = "the same"
    interval = (
        "no interval"
        if difference.low is None or difference.high is None
        else _interval(difference.low, difference.high, rate)
    )
    tested = "not tested" if record["p_corrected"] is None else f"{_chance(record['p_corrected'])}, corrected"
    parts = [interval, tested, record["test"], *([record["note"]] if record["note"] else [])]
    if contrast.mcnemar is not None:
        parts.append(f"McNemar {_chance(contrast.mcnemar)}")
    where = f"With {contrast.factor} = {contrast.level}"
    where += f" against {contrast.against}" if contrast.against else ""
    found = f"{where}, {what} is {size}"
    if contrast.level == TREND:
        # A slope of a rate may be small: in percentage points, with digits.
        slope = (difference.value or 0.0) * (100 if rate else 1)
        unit = " percentage points" if rate else ""
        found = f"Per unit of {contrast.factor}, {what} changes by {figure(slope)}{unit}"
    text = f"{found} ({'; '.join(dict.fromkeys(parts))})."
    return {
        "statement": text,
        "factor": contrast.factor,
        "level": contrast.level,
        "metric": contrast.metric or None,
        **record,
        "hedges_g": g[0],
        "hedges_g_interval": [g[1], g[2]],
        "mcnemar_p": contrast.mcnemar,
    }


def failure_clusters(study: Study) -> list[dict[str, Any]]:
    """Runs that did not succeed, by reason and error, the most frequent first."""
    groups: dict[tuple[str, str], list[RunData]] = defaultdict(list)
    for run in study.runs:
        if not run.is_success:
            groups[run.reason or run.status, _shape(_first_line(run.error))].append(run)
    total = len(study.runs)
    clusters = []
    for (reason, shape), runs in sorted(groups.items(), key=lambda entry: (-len(entry[1]), entry[0])):
        where = Counter(study.descriptions.get(run.variation_id, "") for run in runs)
        most, number = where.most_common(1)[0]
        if len({_first_line(run.error) for run in runs}) == 1:
            # All runs agree, so it can be reported with its figures.
            shape = _first_line(runs[0].error)
        text = f"{len(runs)} of {total} runs ended with {reason}"
        text += f": {shape}" if shape else ""
        text += f" (most often with {most}: {number})" if len(study.descriptions) > 1 else ""
        clusters.append(
            {
                "statement": f"{text}.",
                "reason": reason,
                "message": shape,
                "runs": len(runs),
                "share": len(runs) / total,
                "is_ours": runs[0].is_error,
                "by_variation": dict(where),
                "examples": [run.run_id for run in runs[:5]],
            }
        )
    return clusters


def limitations(study: Study, tried: Sequence[LevelContrast]) -> list[str]:
    """Limits of the analysis, with their reasons."""
    notes: list[str] = []
    if not study.runs:
        return ["There are no runs yet."]
    if versions := study.levels.get(VERSION):
        notes.append(
            f"The scenario was changed: these are runs of {len(versions)} versions of it. Versions are "
            f"compared as the factor `{VERSION}`; figures over all runs pool them."
        )
    levels = {name: values for name, values in study.levels.items() if name != VERSION}
    short = [each for each in tried if each.difference.value is not None and each.difference.n < FEWEST_TASKS]
    if levels and short:
        fewest = plural(min(each.difference.n for each in short), "pair")
        notes.append(
            f"{len(short)} of {plural(len(tried), 'comparison')} of levels without a verdict: at least "
            f"{FEWEST_TASKS} pairs of runs (of equal seed and equal other factors), or as many runs on each "
            f"side, are needed, and the smallest has {fewest}."
        )
    if study.manipulated:
        notes.append(
            f"Not analyzed as outcomes: {', '.join(study.manipulated)} (set by a factor, changed by no run)."
        )
    if not levels:
        notes.append("Nothing was varied, so there is nothing to compare; the spread between runs is above.")
        return notes
    if all(run.is_success for run in study.runs):
        notes.append("Every run was completed, so nothing can be said of what makes runs succeed.")
    elif not any(run.is_success for run in study.runs):
        notes.append("No run was completed, so nothing can be said of what makes runs succeed.")
    elif not any(contrast.is_clear for contrast in tried if not contrast.metric):
        detectable = [c.difference.detectable for c in tried if not c.metric and c.difference.detectable]
        if detectable:
            notes.append(
                "No level changes the success rate beyond chance; with this many runs, differences below "
                f"{min(detectable) * 100:.0f} percentage points could not be expected to show."
            )
    return notes


def never_differs(study: Study, metric: str) -> bool:
    """Whether repeats added nothing: in each variation, every run had the same value of a metric.

    A deterministic model does that. So many runs are one, and no test may count them as more. Not so for
    values of 0 and 1, which are often equal by chance.
    """
    values: dict[int, list[float]] = defaultdict(list)
    for run in study.measured(metric):
        values[run.variation_id].append(run.metrics[metric])
    repeated = [own for own in values.values() if len(own) > 1]
    is_binary = {value for own in values.values() for value in own} <= {0.0, 1.0}
    return bool(repeated) and not is_binary and all(len(set(own)) == 1 for own in repeated)


def of_no_spread(study: Study, metrics: Sequence[str]) -> list[str]:
    """A sentence on metrics that do not vary between repeats."""
    alike = [metric for metric in metrics if never_differs(study, metric)]
    if not alike:
        return []
    return [
        f"All runs of a variation came to the same {', '.join(alike)}: repeats say no more than one run, "
        "and no difference in it can be tested."
    ]


def _first_line(error: str) -> str:
    return first_line(error)[:160]


def _shape(line: str) -> str:
    """An error with what differs from run to run taken out, so that equal ones meet.

    A figure within a word belongs to a name: `gpt-4o` stays what it is.
    """
    return re.sub(r"(?<![\w-])\$?\d[\d.,]*(?![\w-])", "#", line)


def _chance(p: float) -> str:
    return f"p {chance(p)}" if p < 0.001 else f"p = {chance(p)}"


def _amount(value: float, is_rate: bool) -> str:
    return f"{value * 100:.0f} percentage points" if is_rate else figure(value)


def _interval(low: float, high: float, is_rate: bool) -> str:
    if is_rate:
        return f"95% CI {low * 100:.0f} to {high * 100:.0f}"
    return f"95% CI {figure(low)} to {figure(high)}"
