"""Comparison of runs, or of groups within a run, with one family of tests, intervals and verdicts.

Items are paired by their inputs; repeats of one task count once, as their mean. Means, difference, interval
and p of a contrast are of the same tasks. Infrastructure errors are excluded and counted, and everything
about success is computed a second time with errors as failures: where that changes a verdict, there is none.
"""

import heapq
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from proctor.errors import NotFound, UsageError
from proctor.formatting import plural, relative_change
from proctor.json_values import CamelJson
from proctor.metric import MEASURE, METRICS, METRICS_HELP, SCORE, find_metric
from proctor.score import CHECK, EXPECT
from proctor.stats.differences import (
    FAIL,
    INCONCLUSIVE,
    PASS,
    Difference,
    GateVerdict,
    adjust,
    difference,
    family,
    gate,
    ratio,
)
from proctor.stats.experiment import in_runs
from proctor.stats.intervals import CONFIDENCE, Estimate, mean, mean_cost
from proctor.stats.results import Floats, Ints, Labels, Mask, Results
from proctor.stop_rule import StopRule

ONE_TASK = "only one task: results do not generalize"
LISTED_VERSIONS = 3
LISTED = 20
"""Tasks with the largest differences that a contrast lists."""
_GATE = re.compile(
    r"\s*(?P<metric>.+?)\s*(?P<sign>>=|<=|>|<)\s*(?P<number>[+-]?\d*\.?\d+)\s*(?P<share>%?)\s*"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A required difference, candidate − baseline: `score:Builtin.Helpfulness>=-0.02`, `cost<=+10%`."""

    text: str
    metric: str
    sign: str
    threshold: float
    is_share: bool = False
    """Whether the threshold is a share of the baseline's mean."""

    @property
    def wants_less(self) -> bool:
        """Whether a smaller value is better."""
        return self.sign.startswith("<")

    def margin(self, contrast: "Contrast") -> float | None:
        """How much worse the candidate may be, on the scale of the difference; None: unknown."""
        margin = self.threshold if self.wants_less else -self.threshold
        base = contrast.baseline_mean.value
        is_ratio = contrast.difference is not None and contrast.difference.is_ratio
        if is_ratio == self.is_share:
            return margin
        if not base:
            return None
        return margin / base if is_ratio else margin * abs(base)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult(CamelJson):
    """What one gate says of one candidate."""

    gate: str
    candidate: str
    verdict: str
    """`pass`, `fail` (a regression) or `inconclusive`."""
    text: str
    """Why."""
    more_pairs: int | None = None
    """About how many more tasks would decide it if there is no difference; None: decided, or unknown."""
    needs: int | None = None
    """Tasks that would decide it if there is no difference; None: unknown."""


def gate_of(text: str) -> Gate:
    """Read a gate; raises with what one looks like."""
    match = _GATE.fullmatch(text)
    if match is None:
        raise UsageError(
            f"`{text}` is no gate\n"
            "Write a metric, >= or <=, and the difference that is allowed: score:Builtin.Helpfulness>=-0.02, "
            "cost<=10%."
        )
    is_share = bool(match["share"])
    number = float(match["number"]) / (100 if is_share else 1)
    return Gate(
        text=text.strip(), metric=match["metric"], sign=match["sign"], threshold=number, is_share=is_share
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """One group's mean on a metric, over the tasks that are compared."""

    value: float | None
    low: float | None = None
    high: float | None = None
    items: int = 0
    tasks: int = 0
    sem: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """A task on which the results of two groups differ."""

    words: str
    """What people call it."""
    baseline: float
    """The mean over its repeats, as `candidate`."""
    candidate: float
    baseline_items: tuple[tuple[str, str], ...]
    """Run and id of its items."""
    candidate_items: tuple[tuple[str, str], ...]

    @property
    def difference(self) -> float:
        """Candidate minus baseline."""
        return self.candidate - self.baseline


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """One candidate against the baseline, on one metric."""

    metric: str
    baseline: str
    candidate: str
    baseline_mean: Mean
    candidate_mean: Mean
    difference: Difference | None
    """Candidate minus baseline, or their ratio. None: it would mean nothing."""
    is_member: bool = False
    """Whether it is one of the family that is corrected together; others are descriptive."""
    pairs: int = 0
    """Tasks that both have."""
    unpaired: int = 0
    """Tasks that only one of them has."""
    errors: tuple[int, int] = (0, 0)
    """Items of each that ended in an infrastructure error and are excluded."""
    with_errors: Difference | None = None
    """The same with every error as a failure. None: no errors, or it is neither a rate nor a score."""
    disagreements: tuple[Disagreement, ...] = ()
    """The largest differences first."""
    remarks: tuple[str, ...] = ()

    @property
    def p_corrected(self) -> float | None:
        """Corrected for all comparisons that are made together; None: not tested, or descriptive."""
        return self.difference.p_adjusted if self.difference and self.is_member else None

    @property
    def if_errors_failed(self) -> float | None:
        """The difference, had every error counted as a failure."""
        return self.with_errors.value if self.with_errors else None

    @property
    def errors_decide(self) -> bool:
        """Whether counting errors as failures changes the conclusion."""
        if self.difference is None or self.with_errors is None:
            return False
        return _direction(self.difference) != _direction(self.with_errors)

    @property
    def is_significant(self) -> bool:
        """Whether it is more than chance, after correction, however errors are counted."""
        is_clear = self.difference is not None and self.is_member and self.difference.is_significant
        return is_clear and not self.errors_decide


def _direction(difference: Difference) -> int:
    if not difference.is_significant or difference.value is None:
        return 0
    return 1 if difference.value > difference.null else -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All that was compared, and what the gates say."""

    groups: tuple[str, ...]
    """The first is the baseline."""
    pair: str
    varied: tuple[str, ...]
    contrasts: tuple[Contrast, ...]
    verdicts: tuple[GateResult, ...] = ()
    stand_ins: tuple[str, ...] = ()
    metrics: tuple[str, ...] = field(default=())
    """All that could have been compared."""
    family_size: int = 0
    """Contrasts that are corrected together."""
    unfinished: Mapping[str, int] = field(default_factory=dict)
    """Items without a result yet, by run: ordinary intervals are not valid while one looks."""

    @property
    def has_errors(self) -> bool:
        """Whether any contrast has a second figure, with errors as failures."""
        return any(each.with_errors for each in self.contrasts)

    @property
    def is_one_task(self) -> bool:
        """Whether all items are of a single task, so that runs of it are compared."""
        units = {each.difference.unit for each in self.contrasts if each.difference}
        return units == {"run"}

    @property
    def is_anytime(self) -> bool:
        """Whether intervals are valid at any time, because the run could stop early."""
        return any(each.difference and each.difference.is_anytime for each in self.contrasts)

    @property
    def verdict(self) -> str:
        """Of all gates together: one that fails fails all. Without gates: `pass`."""
        verdicts = {verdict.verdict for verdict in self.verdicts}
        return FAIL if FAIL in verdicts else INCONCLUSIVE if INCONCLUSIVE in verdicts else PASS


class AnytimeIntervals(Protocol):
    """Intervals of the levels of a run that stay valid while it runs."""

    def intervals(self) -> Mapping[str, Estimate]:
        """Of each level."""

    def difference(self, baseline: str, candidate: str, *, errors_fail: bool = False) -> Estimate:
        """Of a difference, or ratio."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Items to compare, by group."""

    names: tuple[str, ...]
    """The first is the baseline."""
    results: Results
    group: Ints
    """An index of `names` for each row; -1: it is in none."""
    tasks: Labels
    pair: str
    varied: tuple[str, ...] = ()
    rule: StopRule | None = None
    """The rule by which the run could stop early: ordinary intervals are then too narrow. None: none."""
    anytime: "Callable[[StopRule], AnytimeIntervals] | None" = None
    """Makes a monitor with intervals that are valid all the same. None: not of these groups."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics with a value in at least one item, in display order."""
        present = [name for name, values in self.results.metrics.items() if not bool(np.isnan(values).all())]
        return (*(name for name in METRICS if name in present), *sorted(set(present) - METRICS.keys()))

    def rows(self, name: str) -> Mask:
        """The rows of a group that have a task."""
        return np.asarray((self.group == self.names.index(name)) & (self.tasks.codes >= 0))


def groups_of(results: Results, *, pair: str = "") -> Groups:
    """Each run of the results a group, the first one the baseline."""
    if len(results.runs.labels) < 2:
        raise UsageError("there is nothing to compare with\nPass two different runs.")
    return _grouped(results, results.runs, pair)


def groups_by(results: Results, factor: str, *, pair: str = "", against: str = "") -> Groups:
    """Each level of a factor a group; the baseline is `against`, or the first one."""
    levels = results.column(factor)
    if against and against not in levels.labels:
        known = ", ".join(levels.labels)
        raise NotFound(f"no item has {against} as its {factor}\nThere are: {known}.")
    if len(levels.labels) < 2:
        runs = ", ".join(results.runs.labels)
        raise UsageError(f"all items of {runs} have the same {factor}\nThere is nothing to compare.")
    return _grouped(results, levels, pair, against)


def _grouped(results: Results, levels: Labels, pair: str, against: str = "") -> Groups:
    pair = pair or results.pairing()
    tasks, varied = results.tasks(levels, pair)
    names = list(levels.labels)
    if against:
        names.insert(0, names.pop(names.index(against)))
    places = np.asarray([names.index(label) for label in levels.labels] + [-1], dtype=np.int64)
    return Groups(
        names=tuple(names), results=results, group=places[levels.codes], tasks=tasks, pair=pair, varied=varied
    )


def compare_groups(
    groups: Groups, *, metrics: Sequence[str] = (), gates: Sequence[Gate] = (), mixed: bool = False
) -> Comparison:
    """Compare groups with the first of them.

    The family that is corrected together is the metrics of the gates; without gates, those that are named;
    else all of them. Metrics that never vary or copy another are no members.
    """
    named = list(dict.fromkeys([*metrics, *(each.metric for each in gates)]))
    for metric in named:
        _require(groups, metric)
    chosen = named or [name for name in groups.metrics if not name.startswith(MEASURE)]
    baseline, *candidates = groups.names
    contrasts = [
        _contrast(groups, metric, baseline, candidate, mixed) for metric in chosen for candidate in candidates
    ]
    judged = {each.metric for each in gates} or set(chosen)
    corrected, size = _corrected(contrasts, judged)
    if groups.rule:
        corrected = _valid_at_any_time(groups, groups.rule, corrected, size)
    unfinished = {} if all(map(_is_anytime, corrected)) else groups.results.unfinished
    verdicts = [
        _while_running(_verdict(gate, contrast), {} if _is_anytime(contrast) else unfinished)
        for gate in gates
        for contrast in corrected
        if contrast.metric == gate.metric
    ]
    return Comparison(
        groups=groups.names,
        pair=groups.pair,
        varied=groups.varied,
        contrasts=tuple(corrected),
        verdicts=tuple(verdicts),
        stand_ins=groups.results.stand_ins,
        metrics=groups.metrics,
        family_size=size,
        unfinished=unfinished,
    )


def first_contrast(groups: Groups, metric: str) -> Contrast:
    """The first candidate against the baseline in one metric, not corrected."""
    _require(groups, metric)
    baseline, candidate, *_ = groups.names
    return _contrast(groups, metric, baseline, candidate, mixed=False)


def corrected_contrasts(contrasts: Sequence[Contrast]) -> list[Contrast]:
    """Contrasts of different candidates as one family, corrected together."""
    return _corrected(contrasts, {each.metric for each in contrasts})[0]


def _is_anytime(contrast: Contrast) -> bool:
    return contrast.difference is not None and contrast.difference.is_anytime


def _valid_at_any_time(
    groups: Groups, rule: StopRule, contrasts: Sequence[Contrast], size: int
) -> list[Contrast]:
    """The contrasts of a run that could stop early, with confidence sequences in place of intervals.

    Where there is none, a remark: an ordinary interval takes no account of when the run stopped.
    """
    candidates = groups.names[1:]
    monitors: dict[str, AnytimeIntervals] = {}
    for metric in dict.fromkeys(each.metric for each in contrasts):
        scale = rule.scale if metric == rule.metric else scale_of(groups.results, metric)
        if groups.anytime and (find_metric(metric).is_skewed or scale):
            monitors[metric] = groups.anytime(
                StopRule(
                    by=rule.by,
                    metric=metric,
                    decided=True,
                    baseline=groups.names[0],
                    confidence=1 - (1 - CONFIDENCE) * len(candidates) / max(size, len(candidates)),
                    scale=scale or (0.0, 1.0),
                    unit=rule.unit,
                    tasks=rule.tasks,
                    first_runs=rule.is_adaptive,
                )
            )
    return [_sequential(each, monitors.get(each.metric)) for each in contrasts]


def _sequential(contrast: Contrast, monitor: AnytimeIntervals | None) -> Contrast:
    change = contrast.difference
    if change is None:
        return contrast
    if monitor is None:
        remark = (
            "the run could stop early by its results: this interval takes no account of it, and is too narrow"
        )
        return replace(contrast, remarks=(*contrast.remarks, remark))
    levels = monitor.intervals()
    pair = contrast.baseline, contrast.candidate
    with_errors = contrast.with_errors
    if with_errors is not None:
        with_errors = _anytime_difference(with_errors, monitor.difference(*pair, errors_fail=True))
    return replace(
        contrast,
        difference=_anytime_difference(change, monitor.difference(*pair)),
        with_errors=with_errors,
        baseline_mean=_anytime_mean(contrast.metric, contrast.baseline_mean, levels[contrast.baseline]),
        candidate_mean=_anytime_mean(contrast.metric, contrast.candidate_mean, levels[contrast.candidate]),
    )


def _anytime_difference(change: Difference, valid: Estimate) -> Difference:
    return replace(
        change,
        value=change.value if valid.value is None else valid.value,
        low=valid.low,
        high=valid.high,
        p=None,
        p_adjusted=None,
        n=valid.n,
        method=valid.method,
        note=valid.note or "Valid at any time: the run could stop early.",
        needs=valid.needs,
        effect_size=None,
        detectable=None,
        center=None,
        se=None,
        df=None,
        is_anytime=True,
    )


def _anytime_mean(metric: str, mean: Mean, valid: Estimate) -> Mean:
    if find_metric(metric).is_skewed:
        # The sequence is of the geometric mean.
        return replace(mean, low=None, high=None, note="no interval: the run could stop early")
    return replace(mean, low=valid.low, high=valid.high, sem=None, note="valid at any time")


def _require(groups: Groups, metric: str) -> None:
    if metric in groups.metrics or metric in METRICS:
        return
    known = ", ".join(groups.metrics) or "none"
    raise NotFound(f"nothing here has a value of {metric}\nA metric is {METRICS_HELP}. There are: {known}.")


def scale_of(results: Results, metric: str) -> tuple[float, float] | None:
    """The ends of a metric's scale; None: it has none, none is declared, or there are values outside.

    Scores without a declared scale that all lie between 0 and 1 are taken to have this one.
    """
    if metric == "success":
        return 0.0, 1.0
    values = results.metrics[metric]
    known = values[~np.isnan(values)]
    if (scale := results.scales.get(metric)) and len(known):
        return scale if known.min() >= scale[0] and known.max() <= scale[1] else None
    if metric.startswith(SCORE) and len(known) and known.min() >= 0 and known.max() <= 1:
        return 0.0, 1.0
    return None


@dataclass(frozen=True, slots=True)
class _ComparedRows:
    """The rows of one group that have a value, and their tasks."""

    values: Floats
    tasks: Ints
    missing: int
    errors: int


def _side(groups: Groups, values: Floats, name: str) -> _ComparedRows:
    rows = groups.rows(name)
    errors = rows & groups.results.is_error
    excluded = errors & np.isnan(values)
    known = rows & ~np.isnan(values)
    # An item of an evaluation has the scores of one evaluator: those of others are not missing.
    missing = int((rows & ~errors & ~groups.results.is_evaluation & np.isnan(values)).sum())
    return _ComparedRows(values[known], groups.tasks.codes[known], missing, int(excluded.sum()))


def _contrast(groups: Groups, metric: str, baseline: str, candidate: str, mixed: bool) -> Contrast:
    values = groups.results.metrics[metric]
    first, second = _side(groups, values, baseline), _side(groups, values, candidate)
    size = len(groups.tasks.labels)
    has_task = [np.bincount(side.tasks, minlength=size) > 0 for side in (first, second)]
    is_shared = has_task[0] & has_task[1]
    shared = int(is_shared.sum())
    is_paired = shared > 1
    remarks = _same_name(groups, has_task, is_shared) if is_paired else []
    if not is_paired:
        first, second, remark = _independent(groups, values, baseline, candidate)
        remarks.append(remark)
    scale = scale_of(groups.results, metric)
    change: Difference | None = None
    versions = _versions(groups, metric, baseline, candidate)
    if versions:
        remarks.append(f"judged by different versions of the evaluator ({_some(versions)})")
    if versions and not mixed:
        remarks.append("such scores are not comparable; --mixed compares them all the same")
    elif len(first.values) and len(second.values):
        change = _difference(metric, first, second, scale, is_paired)
        if ONE_TASK in remarks:
            change = replace(change, unit="run", note=in_runs(change.note))
    else:
        remarks = ["one of them has no value"]
    if is_paired:
        # Means are of the tasks that are compared, as the difference is.
        sides = [_of_tasks(side, is_shared) for side in (first, second)]
    else:
        sides = [first, second]
    return Contrast(
        metric=metric,
        baseline=baseline,
        candidate=candidate,
        baseline_mean=_mean(metric, sides[0], scale),
        candidate_mean=_mean(metric, sides[1], scale),
        difference=change,
        pairs=shared if is_paired else 0,
        unpaired=int((has_task[0] ^ has_task[1]).sum()) if is_paired else 0,
        errors=(first.errors, second.errors),
        with_errors=_with_errors(groups, metric, baseline, candidate, scale, is_paired) if change else None,
        disagreements=_largest(groups, metric, (baseline, first), (candidate, second)) if is_paired else (),
        remarks=tuple(remarks),
    )


def _independent(groups: Groups, values: Floats, *names: str) -> tuple[_ComparedRows, _ComparedRows, str]:
    """Two groups that do not pair, by the names of their tasks; of a single task, by its runs."""
    named = replace(groups, tasks=Labels.of(groups.results.labels))
    first, second = (_side(named, values, name) for name in names)
    if len(np.union1d(first.tasks, second.tasks)) > 1:
        return first, second, "fewer than two tasks pair: the groups are compared as independent samples"
    repeats = [replace(side, tasks=np.arange(len(side.values), dtype=np.int64)) for side in (first, second)]
    return repeats[0], repeats[1], ONE_TASK


def _of_tasks(side: _ComparedRows, is_shared: Mask) -> _ComparedRows:
    is_kept = is_shared[side.tasks]
    if bool(is_kept.all()):
        return side
    return _ComparedRows(side.values[is_kept], side.tasks[is_kept], side.missing, side.errors)


def _difference(
    metric: str,
    first: _ComparedRows,
    second: _ComparedRows,
    scale: tuple[float, float] | None,
    is_paired: bool,
) -> Difference:
    if find_metric(metric).is_skewed and is_paired:
        change = ratio(first.values, second.values, task_a=first.tasks, task_b=second.tasks)
    else:
        lo, hi = scale or (None, None)
        change = difference(
            first.values,
            second.values,
            task_a=first.tasks,
            task_b=second.tasks,
            lo=lo,
            hi=hi,
            paired=is_paired,
        )
    return replace(change, missing=first.missing + second.missing)


def _with_errors(
    groups: Groups,
    metric: str,
    baseline: str,
    candidate: str,
    scale: tuple[float, float] | None,
    is_paired: bool,
) -> Difference | None:
    """The difference with every infrastructure error as a failure, or as the lowest score."""
    is_error = groups.results.is_error
    if scale is None or not bool((is_error & (groups.rows(baseline) | groups.rows(candidate))).any()):
        return None
    lowest = np.where(is_error, scale[0], groups.results.metrics[metric])
    if is_paired:
        first, second = (_side(groups, lowest, name) for name in (baseline, candidate))
    else:
        first, second, _ = _independent(groups, lowest, baseline, candidate)
    return _difference(metric, first, second, scale, is_paired)


def _same_name(groups: Groups, has_task: Sequence[Mask], is_shared: Mask) -> list[str]:
    """A remark on tasks of one name whose content differs: versions are not pooled."""
    labels = groups.tasks.labels
    sides = [{labels[code] for code in np.flatnonzero(own & ~is_shared)} for own in has_task]
    versions = sides[0] & sides[1]
    if not versions:
        return []
    which = f"{len(versions)} tasks have" if len(versions) > 1 else "one task has"
    return [f"{which} the same name and different content in both: not paired"]


def _versions(groups: Groups, metric: str, baseline: str, candidate: str) -> list[str]:
    """The digests of an evaluator that differ between the groups; none if each task was judged alike in both.

    What an item expects is part of its task: items with different checks have different digests.
    """
    digests = groups.results.evaluators.get(metric)
    if digests is None:
        return []
    by_task: list[dict[int, set[int]]] = []
    for name in (baseline, candidate):
        rows = groups.rows(name) & (digests.codes >= 0)
        of_tasks = dict[int, set[int]]()
        for task, code in zip(groups.tasks.codes[rows].tolist(), digests.codes[rows].tolist(), strict=True):
            of_tasks.setdefault(task, set()).add(code)
        by_task.append(of_tasks)
    first, second = by_task
    differing = [
        first[task] | second[task] for task in first.keys() & second.keys() if first[task] != second[task]
    ]
    if not first.keys() & second.keys() and not metric.removeprefix(SCORE).startswith((CHECK, EXPECT)):
        everything = set[int]().union(*first.values(), *second.values())
        differing = [everything] if len(everything) > 1 else []
    return sorted({digests.labels[code] for codes in differing for code in codes})


def _some(names: Sequence[str]) -> str:
    listed = " and ".join(names[:LISTED_VERSIONS])
    return f"{listed}, and {len(names) - LISTED_VERSIONS} more" if len(names) > LISTED_VERSIONS else listed


def _mean(metric: str, side: _ComparedRows, scale: tuple[float, float] | None) -> Mean:
    if not len(side.values):
        return Mean(value=None)
    estimate: Estimate
    if find_metric(metric).is_skewed:
        estimate = mean_cost(side.values, side.tasks)
    else:
        lo, hi = scale or (None, None)
        estimate = mean(side.values, side.tasks, lo=lo, hi=hi)
    return Mean(
        value=estimate.value,
        low=estimate.low,
        high=estimate.high,
        items=len(side.values),
        tasks=estimate.n,
        sem=estimate.sem,
        note=estimate.note,
    )


def _corrected(contrasts: Sequence[Contrast], judged: set[str]) -> tuple[list[Contrast], int]:
    """The contrasts as one family: those of judged metrics corrected together, others as they are."""
    differences = {
        f"{contrast.metric}, {contrast.candidate}": contrast.difference
        for contrast in contrasts
        if contrast.difference is not None and contrast.metric in judged
    }
    together = family(differences)
    corrected = []
    for contrast in contrasts:
        name = f"{contrast.metric}, {contrast.candidate}"
        if name in together.members:
            again = contrast.with_errors and adjust(contrast.with_errors, max(1, together.size))
            corrected.append(
                replace(contrast, difference=together.members[name], with_errors=again, is_member=True)
            )
        elif name in together.left_out and contrast.difference is not None:
            reason = together.left_out[name]
            why = f"descriptive, no verdict: {reason[0].lower()}{reason[1:]}"
            corrected.append(replace(contrast, remarks=(*contrast.remarks, why)))
        else:
            corrected.append(contrast)
    return corrected, together.size


# The tasks on which the results of two groups differ.


HIGHER, LOWER, ALL = "higher", "lower", "all"


def disagreements(
    groups: Groups,
    metric: str,
    candidate: str,
    *,
    search: str = "",
    direction: str = "",
    offset: int = 0,
    limit: int | None = None,
) -> tuple[list[Disagreement], int]:
    """The tasks on which a candidate differs from the baseline, the largest differences first; and how many.

    `direction` keeps those where the candidate is `higher` or `lower`, and `all` every task that both have;
    `search` those whose words hold it. `offset` and `limit` are of one page.
    """
    if candidate not in groups.names[1:]:
        raise NotFound(f"{candidate} is not compared here\nThere are: {', '.join(groups.names[1:])}.")
    _require(groups, metric)
    values = groups.results.metrics[metric]
    codes, means = _task_means(
        groups, *(_side(groups, values, name) for name in (groups.names[0], candidate))
    )
    gaps = means[1] - means[0]
    differs = {HIGHER: gaps > 0, LOWER: gaps < 0, ALL: np.ones(len(gaps), bool)}.get(direction, gaps != 0)
    labels = groups.tasks.labels
    places = [at for at in np.flatnonzero(differs) if search.casefold() in labels[codes[at]].casefold()]
    places.sort(key=lambda at: (-abs(gaps[at]), labels[codes[at]]))
    page = places[offset : None if limit is None else offset + limit]
    listed = _disagreements(groups, metric, groups.names[0], candidate, codes[page], means[:, page])
    return listed, len(places)


def _largest(
    groups: Groups, metric: str, baseline: tuple[str, _ComparedRows], candidate: tuple[str, _ComparedRows]
) -> tuple[Disagreement, ...]:
    codes, means = _task_means(groups, baseline[1], candidate[1])
    gaps = np.abs(means[1] - means[0])
    places = np.flatnonzero(gaps > 0)
    labels = groups.tasks.labels
    if len(places) > LISTED:
        # Of many with the same difference, only those that can be listed are sorted by name.
        least = np.partition(gaps[places], len(places) - LISTED)[len(places) - LISTED]
        larger, equal = places[gaps[places] > least], places[gaps[places] == least]
        names = map(labels.__getitem__, codes[equal].tolist())
        listed = heapq.nsmallest(LISTED - len(larger), zip(names, equal.tolist(), strict=True))
        places = np.asarray([*larger, *(at for _, at in listed)], dtype=np.int64)
    order = sorted(places.tolist(), key=lambda at: (-gaps[at], labels[codes[at]]))
    return tuple(_disagreements(groups, metric, baseline[0], candidate[0], codes[order], means[:, order]))


def _task_means(groups: Groups, *sides: _ComparedRows) -> tuple[Ints, Floats]:
    """The tasks that both sides have, and the mean of each side in two rows."""
    size = len(groups.tasks.labels)
    counts = np.asarray([np.bincount(side.tasks, minlength=size) for side in sides])
    sums = np.asarray([np.bincount(side.tasks, weights=side.values, minlength=size) for side in sides])
    codes = np.flatnonzero(counts.min(axis=0) > 0)
    return codes, sums[:, codes] / counts[:, codes]


def _disagreements(
    groups: Groups, metric: str, baseline: str, candidate: str, codes: Ints, means: Floats
) -> list[Disagreement]:
    is_listed_row = ~np.isnan(groups.results.metrics[metric])
    row_of_task = {int(code): at for at, code in enumerate(codes)}
    is_listed = np.zeros(len(groups.tasks.labels) + 1, dtype=bool)
    # The last one is of rows without a task.
    is_listed[codes] = True
    is_listed_row &= is_listed[groups.tasks.codes]
    items: list[list[list[tuple[str, str]]]] = []
    for name in (baseline, candidate):
        lists: list[list[tuple[str, str]]] = [[] for _ in codes]
        rows = np.flatnonzero(groups.rows(name) & is_listed_row)
        for row in rows:
            run = groups.results.runs.labels[groups.results.runs.codes[row]]
            lists[row_of_task[int(groups.tasks.codes[row])]].append((run, groups.results.item_ids[row]))
        items.append(lists)
    return [
        Disagreement(
            words=groups.tasks.labels[code],
            baseline=float(means[0, at]),
            candidate=float(means[1, at]),
            baseline_items=tuple(items[0][at]),
            candidate_items=tuple(items[1][at]),
        )
        for at, code in enumerate(codes)
    ]


# Gates.


def _verdict(one: Gate, contrast: Contrast) -> GateResult:
    change = contrast.difference
    if change is None:
        words = "; ".join(contrast.remarks)
        return GateResult(gate=one.text, candidate=contrast.candidate, verdict=INCONCLUSIVE, text=words)
    means = contrast.baseline_mean.value, contrast.candidate_mean.value
    if find_metric(one.metric).is_skewed and means == (0, 0):
        words = f"both have a {one.metric} of 0 in every task"
        verdict = PASS if one.threshold >= 0 or not one.wants_less else FAIL
        return GateResult(gate=one.text, candidate=contrast.candidate, verdict=verdict, text=words)
    margin = one.margin(contrast)
    if margin is None:
        words = "the baseline's mean is 0, of which nothing is a share"
        return GateResult(gate=one.text, candidate=contrast.candidate, verdict=INCONCLUSIVE, text=words)
    result = gate(
        change,
        margin,
        with_errors=contrast.with_errors,
        errors=sum(contrast.errors),
        lower_is_better=one.wants_less,
    )
    more = None
    if result.verdict == INCONCLUSIVE and result.needs is not None:
        more = max(1, result.needs - change.n)
    words = _reason(one.metric, change, result) + (f" ({plural(more, 'more task')})" if more else "")
    if change.unit == "run":
        words = f"{ONE_TASK}; {in_runs(words)}"
    return GateResult(
        gate=one.text,
        candidate=contrast.candidate,
        verdict=result.verdict,
        text=words,
        more_pairs=more,
        needs=result.needs,
    )


def _reason(metric: str, change: Difference, result: GateVerdict) -> str:
    note = result.note[:1].lower() + result.note[1:].rstrip(".")
    if change.value is None:
        return note

    def signed(value: float) -> str:
        return relative_change(value) if change.is_ratio else find_metric(metric).say_change(value)

    if change.low is None and change.high is None:
        limits = "no interval"
    else:
        low = "no lower limit" if change.low is None else signed(change.low)
        high = "no upper limit" if change.high is None else signed(change.high)
        limits = f"{low} to {high}"
    return f"the difference is {signed(change.value)} ({limits}); {note}"


def _while_running(verdict: GateResult, unfinished: Mapping[str, int]) -> GateResult:
    """A run that is still going can pass no ordinary gate: looking often makes chance findings likely."""
    if not unfinished or verdict.verdict == INCONCLUSIVE:
        return verdict
    left = sum(unfinished.values())
    words = f"{left:,} items have no result yet: a gate needs a finished run (so far {verdict.verdict}); "
    return replace(verdict, verdict=INCONCLUSIVE, text=words + verdict.text)
