"""Factors associated with success, failure and metrics of an experiment: statements with their evidence.

A statement gives the effect, its confidence interval and its p-value, corrected for the number of statements
tested. Where there is not enough data, a note says so.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

from proctor.formatting import figure
from proctor.stats import contrasts
from proctor.stats.contrasts import LEVEL, Difference

# The runs of an experiment, read from its folder.


Number = float
OF_ITS_OWN = ("validation_failed", "checks_failed", "timeout", "cost_limit")
"""Reasons of failures that the run itself caused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunData:
    """One run, as the analysis needs it."""

    run_id: str
    variation_id: int
    repeat: int
    """Runs of the same number have the same seed in every variation."""
    status: str
    """`completed`, `failed`, `halted` or `running`."""
    reason: str = ""
    error: str = ""
    metrics: Mapping[str, Number] = field(default_factory=dict)
    """The last value of each numeric metric."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """The last value of each text metric."""
    by_turn: Mapping[int, Mapping[str, Number]] = field(default_factory=dict)
    cost_usd: float | None = None
    tokens: int = 0
    seed: int | None = None

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
    planned: int
    stand_ins: tuple[str, ...] = ()
    description: str = ""
    """Description by the author."""


FEWEST = 3
"""Minimum number of runs in a group for a test."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelContrast:
    """Runs with one level of a factor against all others."""

    factor: str
    level: str
    metric: str
    """Empty: the success rate."""
    difference: Difference
    p_corrected: float | None

    @property
    def is_clear(self) -> bool:
        return self.p_corrected is not None and self.p_corrected < LEVEL


def level_contrasts(study: Study, metric: str = "") -> list[LevelContrast]:
    """Contrasts of every level of every factor with the rest, for the success rate or a metric."""
    found: list[tuple[str, str, Difference]] = []
    for factor, levels in levels_of(study).items():
        for level in levels:
            difference = _in_metric(study, factor, level, metric) if metric else _rates(study, factor, level)
            if difference is not None:
                found.append((factor, level, difference))
            if len(levels) == 2:
                # The contrast of the other level is the same with the opposite sign.
                break
    corrected = contrasts.holm([difference.p for _, _, difference in found])
    return [
        LevelContrast(factor=factor, level=level, metric=metric, difference=difference, p_corrected=p)
        for (factor, level, difference), p in zip(found, corrected, strict=True)
    ]


def statement(contrast: LevelContrast) -> dict[str, Any]:
    """A contrast as a record with its sentence."""
    one, what = contrast.difference, contrast.metric or "the success rate"
    rate = not contrast.metric
    size = (
        f"{_said(abs(one.value), rate)} {'higher' if one.value > 0 else 'lower'}" if one.value else "the same"
    )
    interval = "no interval" if one.low is None or one.high is None else _interval(one.low, one.high, rate)
    chance = "not tested" if contrast.p_corrected is None else f"{_chance(contrast.p_corrected)}, corrected"
    text = f"With {contrast.factor} = {contrast.level}, {what} is {size} ({interval}; {chance}; "
    text += f"{one.test})."
    return {
        "statement": text,
        "factor": contrast.factor,
        "level": contrast.level,
        "metric": contrast.metric or None,
        **asdict(one),
        "p_corrected": contrast.p_corrected,
    }


def failure_clusters(study: Study) -> list[dict[str, Any]]:
    """Runs that did not succeed, by reason and error, the most frequent first."""
    groups: dict[tuple[str, str], list[RunData]] = defaultdict(list)
    for run in study.runs:
        if not run.is_success:
            groups[run.reason or run.status, _shape(_line(run.error))].append(run)
    total = len(study.runs)
    clusters = []
    for (reason, shape), runs in sorted(groups.items(), key=lambda entry: (-len(entry[1]), entry[0])):
        where = Counter(study.descriptions.get(run.variation_id, "") for run in runs)
        most, number = where.most_common(1)[0]
        if len({_line(run.error) for run in runs}) == 1:
            # All of them said the same, so it can be told with its figures.
            shape = _line(runs[0].error)
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


def honest_words(study: Study, tried: Sequence[LevelContrast]) -> list[str]:
    """Limits of the analysis, with their reasons."""
    words: list[str] = []
    if not study.runs:
        return ["There are no runs yet."]
    smallest = min(Counter(run.variation_id for run in study.runs).values())
    if smallest < FEWEST:
        words.append(
            f"Some variations have only {smallest} run{'s' if smallest > 1 else ''}: "
            f"nothing is tested below {FEWEST} runs in a group."
        )
    if not any(levels_of(study).values()):
        words.append("Nothing was varied, so there is nothing to compare; the spread between runs is above.")
        return words
    if all(run.is_success for run in study.runs):
        words.append("Every run was completed, so nothing can be said of what makes runs succeed.")
    elif not any(run.is_success for run in study.runs):
        words.append("No run was completed, so nothing can be said of what makes runs succeed.")
    elif not any(contrast.is_clear for contrast in tried):
        seen = [c.difference.smallest_detectable for c in tried if c.difference.smallest_detectable]
        if seen:
            words.append(
                "No level changes the success rate beyond chance; with this many runs, differences below "
                f"{min(seen) * 100:.0f} percentage points could not be expected to show."
            )
    return words


def never_differs(study: Study, metric: str) -> bool:
    """Whether repeats told nothing: in each variation, every run came to the same value of a metric.

    A deterministic model does that. So many runs are one, and no test may count them as more.
    """
    values: dict[int, list[float]] = defaultdict(list)
    for run in study.runs:
        if run.is_success and metric in run.metrics:
            values[run.variation_id].append(run.metrics[metric])
    repeated = [each for each in values.values() if len(each) > 1]
    return bool(repeated) and all(len(set(each)) == 1 for each in repeated)


def of_no_spread(study: Study, metrics: Sequence[str]) -> list[str]:
    """A sentence on metrics that do not vary between repeats."""
    alike = [metric for metric in metrics if never_differs(study, metric)]
    if not alike:
        return []
    return [
        f"All runs of a variation came to the same {', '.join(alike)}: repeats say no more than one run, "
        "and no difference in it can be tested."
    ]


def levels_of(study: Study) -> dict[str, list[str]]:
    """The factors that vary, with their levels in order of appearance."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for number in sorted({run.variation_id for run in study.runs}):
        for factor, level in study.factors.get(number, {}).items():
            found[factor][level] = None
    return {factor: list(levels) for factor, levels in found.items() if len(levels) > 1}


def level_of(study: Study, run: RunData, factor: str) -> str:
    """The level of a factor in a run; empty: none."""
    return study.factors.get(run.variation_id, {}).get(factor, "")


def _in_metric(study: Study, factor: str, level: str, metric: str) -> Difference | None:
    """Paired by seed where possible, else as two groups."""
    runs = [run for run in study.runs if run.is_success and metric in run.metrics]
    first, second = _by_seed(study, runs, factor, level, metric)
    if len(first) >= FEWEST:
        return contrasts.paired(first, second)
    inside = [run.metrics[metric] for run in runs if level_of(study, run, factor) == level]
    outside = [run.metrics[metric] for run in runs if level_of(study, run, factor) != level]
    return None if min(len(inside), len(outside)) < FEWEST else contrasts.welch(inside, outside)


def _by_seed(
    study: Study, runs: Sequence[RunData], factor: str, level: str, metric: str
) -> tuple[list[float], list[float]]:
    """For each seed, a metric's mean with a level and without it, all other factors being equal.

    One pair for each seed and not for each run: what runs of one seed share is no evidence twice over.
    """
    blocks: dict[int, dict[tuple[str, ...], dict[bool, list[float]]]] = {}
    others = [name for name in levels_of(study) if name != factor]
    for run in runs:
        if run.seed is not None:
            around = tuple(level_of(study, run, name) for name in others)
            block = blocks.setdefault(run.seed, {}).setdefault(around, {True: [], False: []})
            block[level_of(study, run, factor) == level].append(run.metrics[metric])
    first, second = list[float](), list[float]()
    for around_seed in blocks.values():
        whole = [block for block in around_seed.values() if block[True] and block[False]]
        if whole:
            first.append(fmean(fmean(block[True]) for block in whole))
            second.append(fmean(fmean(block[False]) for block in whole))
    return first, second


def _rates(study: Study, factor: str, level: str) -> Difference | None:
    judged = [run for run in study.runs if run.is_judged]
    inside = [run for run in judged if level_of(study, run, factor) == level]
    outside = [run for run in judged if level_of(study, run, factor) != level]
    if min(len(inside), len(outside)) < FEWEST:
        return None
    passed, others = sum(run.is_success for run in inside), sum(run.is_success for run in outside)
    return contrasts.rates(passed, len(inside), others, len(outside))


def _line(error: str) -> str:
    """The first line of an error that is not empty."""
    return next((line.strip() for line in error.splitlines() if line.strip()), "")[:160]


def _shape(line: str) -> str:
    """An error with what differs from run to run taken out, so that equal ones meet.

    A figure within a word belongs to a name: `gpt-4o` stays what it is.
    """
    return re.sub(r"(?<![\w-])\$?\d[\d.,]*(?![\w-])", "#", line)


def _chance(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def _said(value: float, is_rate: bool) -> str:
    return f"{value * 100:.0f} percentage points" if is_rate else figure(value)


def _interval(low: float, high: float, is_rate: bool) -> str:
    if is_rate:
        return f"95 % interval {low * 100:.0f} to {high * 100:.0f}"
    return f"95 % interval {figure(low)} to {figure(high)}"
