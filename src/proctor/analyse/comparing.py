"""What a difference is worth: runs, or parts of a run, held against each other.

Items are paired by what they ask; repeats of one task count once, as their mean, so that ten runs of one
task do not pass for ten tasks. Where nothing pairs, groups are compared as they are. Errors of ours are
left out and counted. All comparisons of one question are corrected together (Holm).

Knows nothing of pages or terminals.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain
from statistics import fmean

from proctor.analyse import pairing
from proctor.analyse.compared_items import (
    FIGURES,
    MEASURE,
    SCORE,
    Compared,
    Groups,
    groups_of_runs,
    groups_within,
)
from proctor.analyse.contrasts import Difference, holm, paired, rates, welch
from proctor.analyse.gates import FAIL, INCONCLUSIVE, PASS, Gate, Verdict
from proctor.errors import NotFound
from proctor.store import Reader

LEANING = ("cost", "time", "tokens")
LISTED = 20
"""Items on which two groups disagree most that are told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """One group's mean on a metric, over tasks."""

    value: float | None
    low: float | None = None
    high: float | None = None
    items: int = 0
    tasks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """A task on which two groups came to something different."""

    words: str
    baseline: float
    candidate: float
    baseline_items: tuple[str, ...]
    candidate_items: tuple[str, ...]

    @property
    def difference(self) -> float:
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
    """Candidate minus baseline. None: there is too little, or it would mean nothing."""
    p_corrected: float | None = None
    """`difference.p`, corrected for all comparisons that were made together."""
    pairs: int = 0
    """Tasks that both have."""
    unpaired: int = 0
    """Tasks that only one of them has."""
    pairs_needed: int | None = None
    """Pairs that would find this difference in four of five cases."""
    errors: tuple[int, int] = (0, 0)
    """Items of each that ended in an error of ours, and are left out."""
    if_errors_failed: float | None = None
    """The difference in success, had those counted as failures."""
    disagreements: tuple[Disagreement, ...] = ()
    """The largest differences first."""
    remarks: tuple[str, ...] = ()

    @property
    def is_significant(self) -> bool:
        """Whether it is more than chance, after correction."""
        return self.p_corrected is not None and self.p_corrected < 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All that was compared, and what the gates say."""

    groups: tuple[str, ...]
    """The first is the baseline."""
    pair: str
    varied: tuple[str, ...]
    contrasts: tuple[Contrast, ...]
    verdicts: tuple[Verdict, ...] = ()
    stand_ins: tuple[str, ...] = ()
    metrics: tuple[str, ...] = field(default=())
    """All that could have been compared."""

    @property
    def verdict(self) -> str:
        """Of all gates together: one that fails fails all. Without gates: `pass`."""
        said = {verdict.verdict for verdict in self.verdicts}
        return FAIL if FAIL in said else INCONCLUSIVE if INCONCLUSIVE in said else PASS


def compare_runs(
    read: Reader,
    runs: Sequence[str],
    now: datetime,
    *,
    metrics: Sequence[str] = (),
    gates: Sequence[Gate] = (),
    pair: str = "",
    mixed: bool = False,
) -> Comparison:
    """Hold runs of any job against the first of them. Without `metrics`: success, cost, time, tokens and
    every score they share. `mixed` compares scores of different versions of an evaluator too."""
    groups = groups_of_runs(read, runs, now, pair=pair)
    return compare_groups(groups, metrics=metrics, gates=gates, mixed=mixed)


def compare_within(
    read: Reader,
    run: str,
    factor: str,
    now: datetime,
    *,
    metrics: Sequence[str] = (),
    gates: Sequence[Gate] = (),
    pair: str = "",
    mixed: bool = False,
) -> Comparison:
    """Hold the levels of a factor of one run against the first of them."""
    groups = groups_within(read, run, factor, now, pair=pair)
    return compare_groups(groups, metrics=metrics, gates=gates, mixed=mixed)


def compare_groups(
    groups: Groups, *, metrics: Sequence[str] = (), gates: Sequence[Gate] = (), mixed: bool = False
) -> Comparison:
    """Hold groups of items that were read before against the first of them."""
    # A metric may be named for more than the gates need; those of the gates are always told.
    asked = list(dict.fromkeys([*metrics, *(gate.metric for gate in gates)])) if metrics or gates else []
    for metric in asked:
        _require(groups, metric)
    chosen = asked or [name for name in groups.metrics if not name.startswith(MEASURE)]
    by_group: dict[str, list[Compared]] = defaultdict(list)
    for item in groups.items:
        by_group[item.group].append(item)
    baseline, *candidates = groups.names
    contrasts = [
        _contrast(metric, baseline, candidate, by_group, mixed)
        for metric in chosen
        for candidate in candidates
    ]
    chances = [each.difference.p if each.difference else None for each in contrasts]
    corrected = [replace(each, p_corrected=p) for each, p in zip(contrasts, holm(chances), strict=True)]
    verdicts = [_verdict(gate, each) for gate in gates for each in corrected if each.metric == gate.metric]
    return Comparison(
        groups=groups.names,
        pair=groups.pair,
        varied=groups.varied,
        contrasts=tuple(corrected),
        verdicts=tuple(verdicts),
        stand_ins=groups.stand_ins,
        metrics=groups.metrics,
    )


def _require(groups: Groups, metric: str) -> None:
    if metric in groups.metrics or metric in FIGURES:
        return
    known = ", ".join(groups.metrics) or "none"
    kinds = f"{', '.join(FIGURES)}, {SCORE}EVALUATOR or {MEASURE}NAME"
    raise NotFound(f"nothing here has a value of {metric}\nA metric is {kinds}. There are: {known}.")


def _contrast(
    metric: str, baseline: str, candidate: str, by_group: Mapping[str, list[Compared]], mixed: bool
) -> Contrast:
    before, after = by_group[baseline], by_group[candidate]
    first, second = _by_task(before, metric), _by_task(after, metric)
    shared = [key for key in first if key in second]
    remarks = list[str]()
    is_paired = len(shared) > 1 or (
        len(shared) == 1 and len(first) == len(second) == 1 and _is_one(before, after)
    )
    difference: Difference | None = None
    if versions := _versions(metric, before, after):
        remarks.append(f"judged by different versions of the evaluator ({' and '.join(versions)})")
    if versions and not mixed:
        remarks.append("such scores are not comparable; --mixed compares them all the same")
    elif is_paired:
        difference = _paired(
            metric, [second[key].mean for key in shared], [first[key].mean for key in shared]
        )
    elif first and second:
        if len({item.words for item in (*before, *after)}) == 1:
            remarks.append("there is only one task: this speaks of that task alone")
        else:
            remarks.append("fewer than two tasks pair: the groups are compared as they are")
        difference = _unpaired(_alone(before, metric), _alone(after, metric))
    else:
        remarks.append("one of them has no value")
    differences = [second[key].mean - first[key].mean for key in shared] if is_paired else []
    return Contrast(
        metric=metric,
        baseline=baseline,
        candidate=candidate,
        baseline_mean=_mean(first, before, metric),
        candidate_mean=_mean(second, after, metric),
        difference=difference,
        pairs=len(shared) if is_paired else 0,
        unpaired=len(first) + len(second) - 2 * len(shared) if is_paired else 0,
        pairs_needed=pairing.pairs_needed(differences, difference.value) if difference else None,
        errors=(sum(item.is_error for item in before), sum(item.is_error for item in after)),
        if_errors_failed=_if_errors_failed(before, after) if metric == "success" else None,
        disagreements=_disagreements(first, second, shared) if is_paired else (),
        remarks=tuple(remarks),
    )


def _is_one(before: Sequence[Compared], after: Sequence[Compared]) -> bool:
    return len(before) == len(after) == 1


@dataclass(frozen=True, slots=True)
class _Task:
    items: tuple[Compared, ...]
    mean: float


def _by_task(items: Iterable[Compared], metric: str) -> dict[str, _Task]:
    """The mean of each task over its repeats."""
    found: dict[str, list[tuple[Compared, float]]] = defaultdict(list)
    for item in items:
        value = item.values.get(metric)
        if value is not None:
            found[item.key].append((item, value))
    return {
        key: _Task(tuple(item for item, _ in members), fmean(value for _, value in members))
        for key, members in found.items()
    }


def _paired(metric: str, after: Sequence[float], before: Sequence[float]) -> Difference:
    if metric in LEANING:
        return pairing.leaning(after, before)
    if {*after, *before} <= {0.0, 1.0}:
        return pairing.yes_or_no(after, before)
    return paired(after, before)


def _alone(items: Sequence[Compared], metric: str) -> list[float]:
    """The values of a group that pairs with no other: one for each task; of a single task, its repeats."""
    found: dict[str, list[float]] = defaultdict(list)
    for item in items:
        if (value := item.values.get(metric)) is not None:
            # By its words: where nothing pairs, the task itself may be what is varied.
            found[item.words].append(value)
    return [fmean(own) for own in found.values()] if len(found) > 1 else [*chain(*found.values())]


def _unpaired(before: Sequence[float], after: Sequence[float]) -> Difference | None:
    if not before or not after:
        return None
    if {*before, *after} <= {0.0, 1.0}:
        return rates(int(sum(after)), len(after), int(sum(before)), len(before))
    return welch(after, before)


def _versions(metric: str, before: Sequence[Compared], after: Sequence[Compared]) -> list[str]:
    """The digests of an evaluator, if there are several."""
    found = {item.digests[metric] for item in (*before, *after) if metric in item.digests}
    return sorted(found) if len(found) > 1 else []


def _mean(tasks: Mapping[str, _Task], items: Sequence[Compared], metric: str) -> Mean:
    if not tasks:
        return Mean(value=None)
    value, low, high = pairing.around([task.mean for task in tasks.values()])
    counted = sum(item.values.get(metric) is not None for item in items)
    return Mean(value=value, low=low, high=high, items=counted, tasks=len(tasks))


def _if_errors_failed(before: Sequence[Compared], after: Sequence[Compared]) -> float | None:
    def rate(items: Sequence[Compared]) -> float | None:
        return fmean(item.values.get("success") or 0.0 for item in items) if items else None

    first, second = rate(before), rate(after)
    return None if first is None or second is None else second - first


def _disagreements(
    first: Mapping[str, _Task], second: Mapping[str, _Task], shared: Sequence[str]
) -> tuple[Disagreement, ...]:
    found = [
        Disagreement(
            words=first[key].items[0].words,
            baseline=first[key].mean,
            candidate=second[key].mean,
            baseline_items=tuple(item.item_id for item in first[key].items),
            candidate_items=tuple(item.item_id for item in second[key].items),
        )
        for key in shared
        if first[key].mean != second[key].mean
    ]
    return tuple(sorted(found, key=lambda each: (-abs(each.difference), each.words))[:LISTED])


def _verdict(gate: Gate, contrast: Contrast) -> Verdict:
    difference = contrast.difference
    if difference is None:
        why = "; ".join(contrast.remarks)
        return Verdict(gate=gate.text, candidate=contrast.candidate, verdict=INCONCLUSIVE, words=why)
    ends = (difference.value, difference.low, difference.high)
    return gate.verdict(contrast.candidate, ends, contrast.baseline_mean.value, contrast.pairs)
