"""Comparison of runs, or of groups within a run, with tests and confidence intervals.

Items are paired by their inputs; repeats of one task count once, as their mean. Without pairs, groups are
compared as independent samples. Infrastructure errors are excluded and counted. All comparisons of one
question are corrected together (Holm).
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain
from operator import ge, gt, le, lt
from statistics import fmean

from proctor.errors import NotFound, UsageError
from proctor.stats import contrasts as pairing
from proctor.stats.contrasts import Difference, holm, paired, rates, welch
from proctor.stats.matching import (
    FIGURES,
    MEASURE,
    SCORE,
    ComparedItem,
    Groups,
    groups_of_runs,
    groups_within,
)
from proctor.store import StoreReader

# Conditions that a change has to meet: `score:Builtin.Helpfulness>=-0.02`, `cost<=+10%`.


PASS, FAIL, INCONCLUSIVE = "pass", "fail", "inconclusive"
_GATE = re.compile(
    r"\s*(?P<metric>.+?)\s*(?P<sign>>=|<=|>|<)\s*(?P<number>[+-]?\d*\.?\d+)\s*(?P<share>%?)\s*"
)
_SIGNS: Mapping[str, Callable[[float, float], bool]] = {">=": ge, ">": gt, "<=": le, "<": lt}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One condition."""

    text: str
    metric: str
    sign: str
    threshold: float
    is_share: bool = False
    """Whether the threshold is a share of the baseline's mean."""

    def judge(self, value: float | None, low: float | None, high: float | None) -> str:
        """`pass`, `fail` or `inconclusive`, for a difference and its interval."""
        if value is None or low is None or high is None:
            return INCONCLUSIVE
        meets = _SIGNS[self.sign]
        ends = (meets(low, self.threshold), meets(high, self.threshold))
        return PASS if all(ends) else INCONCLUSIVE if any(ends) else FAIL

    def verdict(
        self,
        candidate: str,
        difference: tuple[float, float | None, float | None],
        baseline: float | None,
        pairs: int,
    ) -> "GateResult":
        """What it says of a candidate: of a difference with its interval, and of so many pairs."""
        scale = abs(baseline or 0.0) if self.is_share else 1.0
        if baseline == 0.0 and self.is_share and not any(difference):
            # Two that are free differ by nothing, whatever it is a share of.
            scale = 1.0
        if not scale:
            why = "the baseline's mean is 0, of which nothing is a share"
            return GateResult(gate=self.text, candidate=candidate, verdict=INCONCLUSIVE, words=why)
        value, low, high = (None if each is None else each / scale for each in difference)
        verdict = self.judge(value, low, high)
        more = self._more_pairs(value, low, high, pairs) if verdict == INCONCLUSIVE else None
        sentence = self._sentence(value, low, high)
        return GateResult(
            gate=self.text, candidate=candidate, verdict=verdict, words=sentence, more_pairs=more
        )

    def _sentence(self, value: float | None, low: float | None, high: float | None) -> str:
        def say(number: float) -> str:
            return f"{number:+.1%}" if self.is_share else f"{number:+.4g}"

        if value is None or low is None or high is None:
            return (
                "too few to say" if value is None else f"the difference is {say(value)}; too few to say more"
            )
        return f"the difference is {say(value)} ({say(low)} to {say(high)})"

    def _more_pairs(
        self, value: float | None, low: float | None, high: float | None, pairs: int
    ) -> int | None:
        """How many more pairs would bring the interval to one side of the threshold."""
        if value is None or low is None or high is None or not pairs or value == self.threshold:
            return None
        # An interval shrinks with the root of the number of pairs.
        needed = pairs * ((high - low) / 2 / abs(value - self.threshold)) ** 2
        return max(1, round(needed) - pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """What one gate says of one candidate."""

    gate: str
    candidate: str
    verdict: str
    words: str
    """Why."""
    more_pairs: int | None = None
    """About how many more would decide it, if the difference stays as it is. None: cannot be said."""


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
    """Items of each that ended in an infrastructure error and are excluded."""
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
    verdicts: tuple[GateResult, ...] = ()
    stand_ins: tuple[str, ...] = ()
    metrics: tuple[str, ...] = field(default=())
    """All that could have been compared."""

    @property
    def verdict(self) -> str:
        """Of all gates together: one that fails fails all. Without gates: `pass`."""
        verdicts = {verdict.verdict for verdict in self.verdicts}
        return FAIL if FAIL in verdicts else INCONCLUSIVE if INCONCLUSIVE in verdicts else PASS


def compare_runs(
    read: StoreReader,
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
    read: StoreReader,
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
    names = list(dict.fromkeys([*metrics, *(gate.metric for gate in gates)])) if metrics or gates else []
    for metric in names:
        _require(groups, metric)
    chosen = names or [name for name in groups.metrics if not name.startswith(MEASURE)]
    by_group: dict[str, list[ComparedItem]] = defaultdict(list)
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
    metric: str, baseline: str, candidate: str, by_group: Mapping[str, list[ComparedItem]], mixed: bool
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


def _is_one(before: Sequence[ComparedItem], after: Sequence[ComparedItem]) -> bool:
    return len(before) == len(after) == 1


@dataclass(frozen=True, slots=True)
class _Task:
    items: tuple[ComparedItem, ...]
    mean: float


def _by_task(items: Iterable[ComparedItem], metric: str) -> dict[str, _Task]:
    """The mean of each task over its repeats."""
    values: dict[str, list[tuple[ComparedItem, float]]] = defaultdict(list)
    for item in items:
        value = item.values.get(metric)
        if value is not None:
            values[item.key].append((item, value))
    return {
        key: _Task(tuple(item for item, _ in members), fmean(value for _, value in members))
        for key, members in values.items()
    }


def _paired(metric: str, after: Sequence[float], before: Sequence[float]) -> Difference:
    if metric in LEANING:
        return pairing.leaning(after, before)
    if {*after, *before} <= {0.0, 1.0}:
        return pairing.yes_or_no(after, before)
    return paired(after, before)


def _alone(items: Sequence[ComparedItem], metric: str) -> list[float]:
    """The values of a group that pairs with no other: one for each task; of a single task, its repeats."""
    values: dict[str, list[float]] = defaultdict(list)
    for item in items:
        if (value := item.values.get(metric)) is not None:
            # By its words: where nothing pairs, the task itself may be what is varied.
            values[item.words].append(value)
    return [fmean(own) for own in values.values()] if len(values) > 1 else [*chain(*values.values())]


def _unpaired(before: Sequence[float], after: Sequence[float]) -> Difference | None:
    if not before or not after:
        return None
    if {*before, *after} <= {0.0, 1.0}:
        return rates(int(sum(after)), len(after), int(sum(before)), len(before))
    return welch(after, before)


def _versions(metric: str, before: Sequence[ComparedItem], after: Sequence[ComparedItem]) -> list[str]:
    """The digests of an evaluator, if there are several."""
    digests = {item.digests[metric] for item in (*before, *after) if metric in item.digests}
    return sorted(digests) if len(digests) > 1 else []


def _mean(tasks: Mapping[str, _Task], items: Sequence[ComparedItem], metric: str) -> Mean:
    if not tasks:
        return Mean(value=None)
    value, low, high = pairing.around([task.mean for task in tasks.values()])
    counted = sum(item.values.get(metric) is not None for item in items)
    return Mean(value=value, low=low, high=high, items=counted, tasks=len(tasks))


def _if_errors_failed(before: Sequence[ComparedItem], after: Sequence[ComparedItem]) -> float | None:
    def rate(items: Sequence[ComparedItem]) -> float | None:
        return fmean(item.values.get("success") or 0.0 for item in items) if items else None

    first, second = rate(before), rate(after)
    return None if first is None or second is None else second - first


def _disagreements(
    first: Mapping[str, _Task], second: Mapping[str, _Task], shared: Sequence[str]
) -> tuple[Disagreement, ...]:
    contrasts_ = [
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
    return tuple(sorted(contrasts_, key=lambda each: (-abs(each.difference), each.words))[:LISTED])


def _verdict(gate: Gate, contrast: Contrast) -> GateResult:
    difference = contrast.difference
    if difference is None:
        why = "; ".join(contrast.remarks)
        return GateResult(gate=gate.text, candidate=contrast.candidate, verdict=INCONCLUSIVE, words=why)
    ends = (difference.value, difference.low, difference.high)
    return gate.verdict(contrast.candidate, ends, contrast.baseline_mean.value, contrast.pairs)


# The tasks on which two groups came to something different: all of them, searched and a page at a time.


HIGHER, LOWER = "higher", "lower"


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreements:
    """One task that came out differently."""

    words: str
    """What people call it."""
    baseline: float
    """The mean over its repeats, as `candidate`."""
    candidate: float
    baseline_items: tuple[ComparedItem, ...]
    candidate_items: tuple[ComparedItem, ...]

    @property
    def difference(self) -> float:
        """Candidate minus baseline."""
        return self.candidate - self.baseline


def disagreements(
    groups: Groups, metric: str, candidate: str, *, search: str = "", direction: str = ""
) -> list[Disagreements]:
    """The tasks on which a candidate differs from the baseline, the largest differences first.

    `direction` keeps those where the candidate is `higher` or `lower`; `search` those whose words hold it.
    """
    baseline = groups.names[0]
    if candidate not in groups.names[1:]:
        raise NotFound(f"{candidate} is not compared here\nThere are: {', '.join(groups.names[1:])}.")
    first, second = (_disagreements_by_task(groups.items, name, metric) for name in (baseline, candidate))
    pairs = [_disagreement(first[key], second[key], metric) for key in first if key in second]
    matching = [each for each in pairs if _matches(each, search.casefold(), direction)]
    return sorted(matching, key=lambda each: (-abs(each.difference), each.words))


def _matches(each: Disagreements, search: str, direction: str) -> bool:
    if each.difference == 0 or search not in each.words.casefold():
        return False
    return not direction or (each.difference > 0) == (direction == HIGHER)


def _disagreements_by_task(
    items: Iterable[ComparedItem], group: str, metric: str
) -> Mapping[str, Sequence[ComparedItem]]:
    groups: dict[str, list[ComparedItem]] = defaultdict(list)
    for item in items:
        if item.group == group and item.values.get(metric) is not None:
            groups[item.key].append(item)
    return groups


def _disagreement(
    before: Sequence[ComparedItem], after: Sequence[ComparedItem], metric: str
) -> Disagreements:
    return Disagreements(
        words=before[0].words,
        baseline=fmean(item.values[metric] or 0.0 for item in before),
        candidate=fmean(item.values[metric] or 0.0 for item in after),
        baseline_items=tuple(before),
        candidate_items=tuple(after),
    )
