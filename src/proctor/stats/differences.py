"""Differences of two sides: paired by task or not, ratios of costs, families of comparisons, and gates.

Side `a` is the baseline, side `b` the candidate; a difference is b − a. Means, difference, interval and p
describe the same tasks and come from one method, so they cannot contradict each other: p_adjusted ≤ 1 −
level exactly when the interval excludes no difference.
"""

import hashlib
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist

import numpy as np

from proctor.stats.intervals import (
    CONFIDENCE,
    FEWEST_COSTS,
    FEWEST_NORMAL,
    FEWEST_TASKS,
    FEWEST_TYPICAL,
)
from proctor.stats.permutation import shuffled, sign_flip
from proctor.stats.power import ASSURANCE, required_tasks, smallest_detectable, tasks_for_gate
from proctor.stats.samples import (
    FloatArray,
    common_means,
    common_tasks,
    plus_interval,
    samples_of_sides,
    standard_error,
    t_quantile,
    t_tails,
)

PASS, FAIL, INCONCLUSIVE = "pass", "fail", "inconclusive"
MOST_LOG = 350.0
"""Largest logarithm of a ratio that is printed; a number has at most 709."""
FEWEST_TO_EXTRAPOLATE = 20
"""Tasks below which the tasks needed for the observed difference hold too seldom to be stated."""
MOST_EXTRAPOLATED = 20
"""Multiple of the tasks at hand above which the tasks needed are not stated."""
MOST_MISSING = 0.2
"""Share of runs without a value above which a metric is not part of a family."""

Labels = Iterable[Hashable]
Numbers = Iterable[float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Candidate (`b`) minus baseline (`a`), or their ratio. Never NaN: None, with a sentence in `note`."""

    value: float | None
    low: float | None = None
    """Limits at `level` for the whole family; None: `note` says why."""
    high: float | None = None
    p: float | None = None
    """Two-sided, of no difference; of the same method as the interval."""
    p_adjusted: float | None = None
    """Times the comparisons of the family (Bonferroni)."""
    level: float = CONFIDENCE
    family: int = 1
    """Comparisons that hold together at `level`."""
    n: int = 0
    """Common tasks; unpaired: of the smaller side."""
    tasks: tuple[int, int] = (0, 0)
    """Tasks compared on each side."""
    runs: int = 0
    """Observations of both sides in the tasks compared."""
    left_out: int = 0
    """Tasks that only one side has."""
    missing: int = 0
    """Runs without a value."""
    total: int = 0
    """Runs of both sides, with those left out and those without a value."""
    mean_a: float | None = None
    """Mean over the tasks compared; for a ratio, the geometric mean."""
    mean_b: float | None = None
    method: str = ""
    note: str = ""
    needs: int | None = None
    """Tasks that a verdict would need. None: there is one, or the number cannot be given. Above the least
    number of tasks, it holds if the true difference is about as observed."""
    effect_size: float | None = None
    """In standard deviations of the task differences (paired) or of the task means (unpaired)."""
    detectable: float | None = None
    """Smallest true difference that this comparison detects with 80% power."""
    null: float = 0.0
    """The value that means no difference: 1 for a ratio."""
    scale: tuple[float, float] | None = None
    """Smallest and largest possible difference. None: unbounded."""
    center: float | None = field(default=None, repr=False)
    """With `se` and `df`, what the interval is computed from; logarithms for a ratio."""
    se: float | None = field(default=None, repr=False)
    df: float | None = field(default=None, repr=False)
    spread: float | None = field(default=None, repr=False)
    """Standard deviation of the task differences."""
    is_paired: bool = True
    is_anytime: bool = False
    """Whether the interval is valid however often one looked, as of a run that could stop early; no p."""
    is_constant: bool = False
    """Whether all values of both sides are equal."""
    fingerprint: str = field(default="", repr=False)
    """Equal for metrics that are copies, or linear copies, of each other over the same runs."""
    unit: str = "task"
    """What `n`, `tasks` and `needs` count: tasks, or the runs of a single task."""

    @property
    def is_ratio(self) -> bool:
        return self.null == 1.0

    @property
    def fewest(self) -> int:
        """Tasks below which there is no verdict."""
        return FEWEST_TYPICAL if self.is_ratio else FEWEST_TASKS

    @property
    def needs_words(self) -> str:
        """What a verdict needs, with the condition under which the number holds; empty: nothing to say."""
        if self.needs is None or self.needs <= self.n or self.is_significant:
            return ""
        if self.needs <= self.fewest:
            return f"A verdict needs at least {self.needs:,} {self.unit}s."
        condition = "if the true difference is about as observed"
        return f"A verdict needs about {self.needs:,} {self.unit}s {condition}."

    @property
    def is_significant(self) -> bool:
        """Whether the interval, at the level of the family, excludes no difference."""
        enough = self.n >= self.fewest
        if self.is_anytime:
            ends = self.low is not None and self.high is not None
            return enough and ends and not self.low <= self.null <= self.high  # type: ignore[operator]
        return enough and self.p_adjusted is not None and self.p_adjusted <= 1 - self.level + 1e-12


def difference(
    a: Numbers,
    b: Numbers,
    task: Labels | None = None,
    *,
    task_a: Labels | None = None,
    task_b: Labels | None = None,
    lo: float | None = None,
    hi: float | None = None,
    span: float | None = None,
    family: int = 1,
    paired: bool = True,
    permuted: bool = False,
    level: float = CONFIDENCE,
) -> Difference:
    """Candidate `b` minus baseline `a`, over tasks, on a scale from `lo` to `hi`.

    `task` has the tasks of both sides, or `task_a` and `task_b` those of each; without any, values at the
    same place belong together. Paired: the `plus` interval of the differences of tasks that both sides have;
    `span` declares the largest possible change of one task where that is less than the scale. Unpaired:
    Welch's interval of the `plus` means. Without a scale: Student's or Welch's interval. `permuted`: for
    ratings on a scale, Student's or Welch's interval, wider where a permutation test (mid-p) is less sure;
    with fewer than six values that differ, the `plus` interval. `family` is the number of comparisons that
    are to hold together. Missing and broken values as in `mean`. Costs and times: `ratio`.

    >>> change = difference([0, 0, 1, 0, 0, 1, 0, 0], [1, 1, 1, 1, 0, 1, 1, 1], lo=0, hi=1)
    >>> print(f"{change.value:+.3f} ({change.low:+.3f} to {change.high:+.3f}), p = {change.p:.3f}")
    +0.625 (-0.029 to +1.000), p = 0.060
    """
    _check(level, family, lo, hi, span)
    pair = _Sides(a, b, task, task_a, task_b)
    refused = pair.refusal()
    if refused:
        return refused
    bounded = lo is not None and hi is not None
    if bounded:
        assert lo is not None and hi is not None
        values = np.concatenate([pair.a.values, pair.b.values])
        outside = int(((values < lo) | (values > hi)).sum())
        if outside:
            note = f"{outside} of {len(values)} values lie outside the scale {lo:g} to {hi:g}: no interval."
            return pair.result(note=note)
    if not paired:
        return _unpaired(pair, lo if bounded else None, hi if bounded else None, family, level, permuted)
    first, second, runs = common_means(pair.a, pair.b)
    tasks = len(first)
    about = replace(pair.about(first, second), runs=runs)
    if not tasks:
        return replace(about, note="The two sides have no task in common.", needs=FEWEST_TASKS)
    deltas = second - first
    if tasks < 2:
        note = f"One common task: no interval; needs at least {FEWEST_TASKS}."
        return replace(about, note=note, needs=FEWEST_TASKS)
    sem = standard_error(deltas)
    spread = sem * math.sqrt(tasks)
    about = replace(about, spread=spread, effect_size=float(deltas.mean()) / spread if spread else None)
    if bounded:
        assert lo is not None and hi is not None
        reach = span or hi - lo
        if float(np.abs(deltas).max()) > reach * (1 + 1e-9):
            note = f"A task changed by more than the declared span of {reach:g}: no interval."
            return replace(about, note=note)
        plus = plus_interval(np.clip(deltas, -reach, reach), -reach, reach)
        center, se, method, scale = float(plus.center), float(plus.se), "plus, paired", (-reach, reach)
        if permuted and int((np.abs(deltas) > 1e-9 * reach).sum()) >= FEWEST_TASKS:
            center, method = float(deltas.mean()), "permutation, paired"
            se = _at_least(sem, center, tasks - 1, sign_flip(deltas, mid_p=True))
        note = "" if spread else "All tasks differ by the same amount."
        if span is not None:
            note = f"{note} Assumes that no task changes by more than {span:g}.".strip()
    else:
        scale, center, se, method = None, float(deltas.mean()), sem, "Student's t, paired"
        if refusal := _no_student(tasks, spread):
            return replace(about, note=refusal, needs=FEWEST_TASKS if spread else None)
        note = _normal_note(tasks)
    about = replace(about, center=center, se=se, df=tasks - 1, scale=scale, method=method, note=note)
    return _with_needs(adjust(about, family, level))


def _at_least(se: float, center: float, df: float, p: float) -> float:
    """A standard error with which Student's test has no smaller p than another test has."""
    quantile = float(t_quantile(1 - p / 2, df)) if p < 1 else 0.0
    return max(se, abs(center) / quantile) if quantile else se


def _unpaired(
    pair: "_Sides", lo: float | None, hi: float | None, family: int, level: float, permuted: bool = False
) -> Difference:
    first, second = pair.a.means, pair.b.means
    tasks = min(len(first), len(second))
    about = replace(pair.about(first, second), is_paired=False, left_out=0, n=tasks)
    if tasks < 2:
        return replace(about, note="One task on a side: no interval.", needs=FEWEST_TASKS)
    pooled = math.sqrt(
        float(np.var(first, ddof=1) * (len(first) - 1) + np.var(second, ddof=1) * (len(second) - 1))
        / (len(first) + len(second) - 2)
    )
    value = float(second.mean() - first.mean())
    about = replace(about, effect_size=value / pooled if pooled > 1e-12 else None)
    if lo is not None and hi is not None:
        sides = [plus_interval(means, lo, hi) for means in (first, second)]
        errors = [float(side.se) for side in sides]
        center = float(sides[1].center - sides[0].center)
        method, scale, note = "plus, Welch", (lo - hi, hi - lo), ""
    else:
        errors = [standard_error(means) for means in (first, second)]
        center, method, scale = value, "Welch's t", None
        if refusal := _no_student(tasks, min(errors)):
            return replace(about, note=refusal, needs=FEWEST_TASKS if min(errors) else None)
        note = _normal_note(tasks)
    is_permuted = permuted and scale is not None and min(map(_differing, (first, second))) >= 3
    if is_permuted:
        errors = [standard_error(means) for means in (first, second)]
        center, method = value, "permutation"
    se = math.hypot(*errors)
    # Shares of the error: their fourth powers do not overflow.
    shares = [error / se for error in errors]
    df = 1 / (shares[0] ** 4 / (len(first) - 1) + shares[1] ** 4 / (len(second) - 1))
    se = _at_least(se, center, df, shuffled(first, second, mid_p=True)) if is_permuted else se
    about = replace(about, center=center, se=se, df=df, scale=scale, method=method, note=note)
    return _with_needs(adjust(about, family, level))


def _differing(values: FloatArray) -> int:
    """How many values differ from the most common one."""
    _, counts = np.unique(np.round(values, 9), return_counts=True)
    return len(values) - int(counts.max())


def ratio(
    a: Numbers,
    b: Numbers,
    task: Labels | None = None,
    *,
    task_a: Labels | None = None,
    task_b: Labels | None = None,
    family: int = 1,
    level: float = CONFIDENCE,
) -> Difference:
    """The typical ratio b / a of costs or times: Student's interval of the log ratios of task means.

    `mean_a` and `mean_b` are the geometric means of the same tasks. Needs three common tasks and positive
    values.

    >>> change = ratio([1.0, 2.0, 4.0, 3.0, 1.5, 2.5], [0.8, 1.5, 3.9, 2.2, 1.0, 2.4])
    >>> print(f"{change.value:.2f} ({change.low:.2f} to {change.high:.2f})")
    0.81 (0.69 to 0.95)
    """
    _check(level, family)
    pair = _Sides(a, b, task, task_a, task_b)
    refused = pair.refusal()
    if refused:
        return replace(refused, null=1.0)
    first, second, runs = common_means(pair.a, pair.b)
    about = replace(pair.about(first, second), runs=runs, null=1.0, value=None, mean_a=None, mean_b=None)
    if not len(first):
        note = "The two sides have no task in common."
        return replace(about, note=note, needs=FEWEST_TYPICAL)
    if float(min(first.min(), second.min())) <= 0:
        bad = int(((first <= 0) | (second <= 0)).sum())
        note = f"{bad} of {len(first)} common tasks have no positive value: no ratio."
        return replace(about, note=note)
    logs = np.log(second) - np.log(first)
    center, se, tasks = float(logs.mean()), standard_error(logs), len(logs)
    if abs(center) > MOST_LOG:
        return replace(about, note="The ratio is too far from 1 to be computed: no ratio.")
    # A constant ratio leaves nothing but rounding.
    se = 0.0 if se <= 1e-12 else se
    about = replace(
        about,
        value=math.exp(center),
        mean_a=math.exp(float(np.log(first).mean())),
        mean_b=math.exp(float(np.log(second).mean())),
    )
    if tasks < FEWEST_TYPICAL:
        note = f"Fewer than {FEWEST_TYPICAL} common tasks: no interval."
        return replace(about, note=note, needs=FEWEST_TYPICAL)
    if not se:
        note = "The ratio is the same in every task (imported constants?): no interval."
        return replace(about, note=note, spread=0.0)
    spread = se * math.sqrt(tasks)
    about = replace(
        about,
        center=center,
        se=se,
        df=tasks - 1,
        spread=spread,
        effect_size=center / spread,
        method="Student's t of log ratios",
    )
    return _with_needs(adjust(about, family, level))


def adjust(difference: Difference, family: int, level: float = CONFIDENCE) -> Difference:
    """The same difference as one of `family` comparisons that hold together at `level` (Bonferroni)."""
    center, se, df = difference.center, difference.se, difference.df
    if center is None or se is None or df is None:
        return replace(difference, family=family, level=level)
    reach = float(t_quantile(1 - (1 - level) / family / 2, df)) * se
    low: float | None
    high: float | None
    if difference.is_ratio:
        low, high = math.exp(max(-2 * MOST_LOG, center - reach)), None
        note = difference.note
        if center + reach < MOST_LOG:
            high = math.exp(center + reach)
        else:
            note = f"{note} No upper limit: the ratios spread too far.".strip()
        detect = smallest_detectable(se, df, level=level, family=family)
        largest = math.exp(detect) if detect < MOST_LOG else None
        difference = replace(difference, note=note, detectable=largest)
        null = 0.0
    else:
        low, high, null = center - reach, center + reach, difference.null
        detect = smallest_detectable(se, df, level=level, family=family)
        if difference.scale is not None:
            low, high = max(low, difference.scale[0]), min(high, difference.scale[1])
            detect = min(detect, difference.scale[1])
        assert difference.value is not None
        low, high = min(low, difference.value), max(high, difference.value)
        difference = replace(difference, detectable=detect)
    p = float(t_tails((center - null) / se, df))
    return replace(
        difference, low=low, high=high, p=p, p_adjusted=min(1.0, p * family), family=family, level=level
    )


def _with_needs(difference: Difference) -> Difference:
    """With what a verdict would need, where there is none."""
    difference = replace(difference, needs=None)
    fewest = difference.fewest
    if difference.n < fewest:
        where = "common tasks" if difference.is_paired else "tasks on a side"
        sentence = f"Fewer than {fewest} {where}: no verdict."
        note = difference.note if sentence in difference.note else f"{difference.note} {sentence}".strip()
        return replace(difference, note=note, needs=fewest)
    if difference.is_significant or not difference.is_paired:
        return difference
    center, spread = difference.center, difference.spread
    if center is None or not spread or difference.n < FEWEST_TO_EXTRAPOLATE:
        return difference
    observed = abs(center if difference.is_ratio else (difference.value or 0.0))
    # The true difference exceeds this one in four of five cases. The observed one is too large half of the
    # time, and a number of tasks computed from it would be too small.
    cautious = observed - NormalDist().inv_cdf(ASSURANCE) * spread / math.sqrt(difference.n)
    if cautious <= 0:
        return difference
    tasks = required_tasks(spread**2, cautious, level=difference.level, family=difference.family)
    if tasks > MOST_EXTRAPOLATED * difference.n:
        return difference
    return replace(difference, needs=max(tasks, difference.n + 1))


class _Sides:
    """Two samples, and the tasks they share."""

    def __init__(
        self, a: Numbers, b: Numbers, task: Labels | None, task_a: Labels | None, task_b: Labels | None
    ) -> None:
        self.a, self.b = samples_of_sides(a, b, task, task_a, task_b)

    def refusal(self) -> Difference | None:
        """A difference that says why there is none."""
        if self.a.problem or self.b.problem:
            sides = [
                f"{name}: {side.problem}"
                for name, side in (("Baseline", self.a), ("Candidate", self.b))
                if side.problem
            ]
            return Difference(value=None, note=" ".join(sides))
        if not self.a.runs or not self.b.runs:
            which = "Neither side has" if not self.a.runs and not self.b.runs else "One side has no"
            note = f"{which} values." if which.startswith("One") else f"{which} any values."
            missing = self.a.left_out + self.b.left_out
            return Difference(
                value=None, note=note, missing=missing, total=missing + self.a.runs + self.b.runs
            )
        return None

    def about(self, first: FloatArray, second: FloatArray) -> Difference:
        """Everything but the interval, for the task means compared."""
        mean_a = float(first.mean()) if len(first) else None
        mean_b = float(second.mean()) if len(second) else None
        return replace(
            self.result(),
            value=None if mean_a is None or mean_b is None else float(second.mean() - first.mean()),
            mean_a=mean_a,
            mean_b=mean_b,
            n=min(len(first), len(second)),
            tasks=(len(first), len(second)),
            left_out=self.a.tasks + self.b.tasks - 2 * common_tasks(self.a, self.b),
        )

    def result(self, note: str = "") -> Difference:
        """Means and counts of both sides, without an interval."""
        values = np.concatenate([self.a.values, self.b.values])
        mean_a, mean_b = float(self.a.means.mean()), float(self.b.means.mean())
        is_constant = float(np.ptp(values)) <= 1e-12 * float(np.abs(values).max())
        return Difference(
            value=mean_b - mean_a,
            mean_a=mean_a,
            mean_b=mean_b,
            n=min(self.a.tasks, self.b.tasks),
            tasks=(self.a.tasks, self.b.tasks),
            runs=len(values),
            missing=self.a.left_out + self.b.left_out,
            total=len(values) + self.a.left_out + self.b.left_out,
            note=note,
            is_constant=is_constant,
            fingerprint="" if is_constant else _fingerprint(values),
        )


def _fingerprint(values: FloatArray) -> str:
    """Equal for values that are linear copies of each other, in the same order."""
    # Around 1, so that neither the largest nor the smallest numbers leave the range of a float.
    values = values / float(np.abs(values).max())
    standardized = (values - values.mean()) / values.std()
    # A copy may be reversed: the first value that is not 0 is made positive.
    sign = np.sign(standardized[np.argmax(np.abs(standardized) > 1e-6)])
    rounded = np.round(standardized * sign, 6) + 0.0
    return hashlib.blake2b(rounded.tobytes(), digest_size=16).hexdigest()


def _no_student(tasks: int, spread: float) -> str:
    """Why Student's interval is refused. Empty: it is not."""
    if spread <= 0:
        return "No spread between tasks: no interval. Declare the scale."
    if tasks < FEWEST_COSTS:
        return f"Fewer than {FEWEST_COSTS} tasks: no interval without a declared scale."
    return ""


def _normal_note(tasks: int) -> str:
    few = f"Fewer than {FEWEST_NORMAL} tasks: valid only for roughly normal values."
    return few if tasks < FEWEST_NORMAL else ""


# Families: comparisons on one page that hold together.


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Comparisons whose verdicts hold together, and those that are descriptive."""

    members: Mapping[str, Difference]
    """With intervals and p adjusted for their number."""
    descriptive: Mapping[str, Difference]
    """Unadjusted and without a verdict."""
    left_out: Mapping[str, str]
    """Why each descriptive one is not a member."""
    level: float = CONFIDENCE

    @property
    def size(self) -> int:
        return len(self.members)


def family(differences: Mapping[str, Difference], *, level: float = CONFIDENCE) -> Family:
    """Adjust comparisons for their number (Bonferroni), so that all their intervals hold together.

    Not members: metrics that never vary, copies and linear copies of an earlier metric, metrics missing in
    more than 20% of runs, and those without a p.

    >>> a, b = [0, 0, 1, 0, 0, 1, 0, 0], [1, 1, 1, 1, 0, 1, 1, 1]
    >>> page = family({"success": difference(a, b, lo=0, hi=1), "expect": difference(a, b, lo=0, hi=1)})
    >>> page.size, page.left_out["expect"]
    (1, 'a copy of success')
    """
    members: dict[str, Difference] = {}
    left_out: dict[str, str] = {}
    known: dict[str, str] = {}
    for name, difference in differences.items():
        if difference.missing > MOST_MISSING * difference.total:
            left_out[name] = f"missing in {difference.missing} of {difference.total} runs"
        elif difference.is_constant:
            left_out[name] = "all values are equal"
        elif difference.p is None:
            left_out[name] = difference.note.rstrip(".") or "not tested"
        elif difference.fingerprint in known:
            original = known[difference.fingerprint]
            same = _is_copy(difference, differences[original])
            left_out[name] = f"a {'copy' if same else 'linear copy'} of {original}"
        else:
            known[difference.fingerprint or f"name:{name}"] = name
            members[name] = difference
    return Family(
        members={name: _with_needs(adjust(each, len(members), level)) for name, each in members.items()},
        descriptive={name: adjust(differences[name], 1, level) for name in left_out},
        left_out=left_out,
        level=level,
    )


def _is_copy(difference: Difference, other: Difference) -> bool:
    pairs = ((difference.mean_a, other.mean_a), (difference.mean_b, other.mean_b))
    return all(a is not None and b is not None and math.isclose(a, b, abs_tol=1e-12) for a, b in pairs)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down correction; None is not tested and does not count.

    >>> holm([0.001, 0.011, None, 0.3])
    [0.003, 0.022, None, 0.3]
    """
    tested = sorted((float(p), place) for place, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, index) in enumerate(tested):
        highest = max(highest, min(1.0, p * (len(tested) - rank)))
        adjusted[index] = highest
    return adjusted


# Gates: non-inferiority with a margin.


@dataclass(frozen=True, slots=True, kw_only=True)
class GateVerdict:
    """What a gate decides, and why."""

    verdict: str
    """`pass`, `fail` (a regression) or `inconclusive`."""
    note: str
    needs: int | None = None
    """Tasks that would decide it if there is no difference; None: decided, or more tasks may not."""
    fewest: int | None = None
    """Tasks below which the gate cannot pass. None: the loss of a task has no bound."""
    difference: Difference | None = None
    """With errors excluded."""
    with_errors: Difference | None = None
    """With errors counted as failures. None: there were no errors."""


def gate(
    difference: Difference,
    margin: float,
    *,
    with_errors: Difference | None = None,
    errors: int = 0,
    loss: float | None = None,
    lower_is_better: bool = False,
) -> GateVerdict:
    """Whether a candidate is not worse than the baseline by `margin` or more.

    Passes when the interval, at the level of its family, lies within the margin and there are enough tasks
    to have seen a collapse (`tasks_for_gate`; `loss` is the largest loss of one task, else the scale of
    the difference). Fails when the interval lies below no difference. A negative margin demands an
    improvement. For a `ratio` the margin is a share: 0.1 allows 10% more. `with_errors` is the same
    difference with infrastructure errors counted as failures: where the two verdicts differ, the gate is
    inconclusive.

    >>> same = difference([1, 0] * 60, [1, 0] * 60, lo=0, hi=1)
    >>> gate(same, 0.05).verdict
    'pass'
    """
    if not math.isfinite(margin):
        raise ValueError("the margin must be a number")
    result = _gate(difference, margin, loss, lower_is_better)
    if with_errors is None:
        return result
    other = _gate(with_errors, margin, loss, lower_is_better)
    result = replace(result, with_errors=with_errors)
    if result.verdict == other.verdict:
        return result
    number = (
        f"{errors} infrastructure error{'s' if errors != 1 else ''}" if errors else "Infrastructure errors"
    )
    note = (
        f"{number} decide{'s' if errors == 1 else ''} it: {result.verdict} with errors excluded, "
        f"{other.verdict} with errors as failures."
    )
    return replace(result, verdict=INCONCLUSIVE, note=note, needs=None)


def _gate(difference: Difference, margin: float, loss: float | None, lower_is_better: bool) -> GateVerdict:
    if difference.is_ratio:
        # Costs and times: less is better, and a margin is a share of the baseline.
        lower_is_better, threshold = True, math.log1p(margin) if margin > -1 else -math.inf
    else:
        threshold = margin
    largest = loss
    if largest is None and difference.scale is not None:
        largest = difference.scale[1]
    fewest = None
    if not difference.is_ratio and largest is not None and margin >= largest and difference.n:
        return GateVerdict(verdict=PASS, note="No loss can exceed the margin.", difference=difference)
    # A confidence sequence allows for a collapse that was not seen yet; ordinary intervals do not.
    if margin > 0 and largest is not None and not difference.is_anytime:
        fewest = tasks_for_gate(margin, largest, level=difference.level)
    least = max(FEWEST_TASKS, fewest or 0)
    result = GateVerdict(verdict=INCONCLUSIVE, note="", fewest=fewest, difference=difference)
    low, high = difference.low, difference.high
    if low is None and high is None:
        return replace(result, note=difference.note or "No interval.", needs=difference.needs or least)
    if difference.is_ratio:
        low = None if low is None else math.log(low) if low > 0 else -math.inf
        high = None if high is None else math.log(high)
    if lower_is_better:
        low, high = (None if high is None else -high), (None if low is None else -low)
    # From here on more is better, and the candidate must stay above −threshold.
    is_within = low is not None and low > -threshold
    is_worse = high is not None and high < 0
    is_short = high is not None and margin < 0 and high < -threshold
    if is_within and difference.n >= least:
        sentence = "Worse, but within the margin." if is_worse else "Within the margin."
        return replace(result, verdict=PASS, note=sentence if margin >= 0 else "Improved as required.")
    if difference.n >= FEWEST_TASKS and (is_worse or is_short):
        note = "Significantly worse." if is_worse else "The required improvement is excluded."
        return replace(result, verdict=FAIL, note=note)
    needs = _gate_needs(difference, threshold, least)
    if difference.n < least:
        note = f"{difference.n} tasks: fewer than {least} cannot show that the loss stays within the margin."
        if needs is not None and needs > least:
            note = f"{note} About {needs} would decide it if there is no difference."
    elif needs is None:
        note = "The difference lies near the margin: more tasks may not decide it."
    else:
        note = f"Not enough tasks: about {needs} would decide it if there is no difference."
    return replace(result, note=note, needs=needs)


def _gate_needs(difference: Difference, threshold: float, least: int) -> int | None:
    """Tasks at which a candidate equal to the baseline passes in four of five cases."""
    if threshold <= 0 or not math.isfinite(threshold):
        return least if difference.n < least else None
    tasks = least
    # Fewer tasks, or tasks without spread, tell nothing of the variance: then it is the least that may do.
    if difference.spread and difference.n >= FEWEST_TASKS:
        needed = required_tasks(
            difference.spread**2,
            threshold,
            level=difference.level,
            family=difference.family,
            pilot=difference.n,
        )
        tasks = max(least, needed)
    return tasks if tasks > difference.n else None


def _check(
    level: float,
    family: int,
    lo: float | None = None,
    hi: float | None = None,
    span: float | None = None,
) -> None:
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, not {level!r}")
    if family < 1:
        raise ValueError("a family has at least one comparison")
    if lo is not None and hi is not None and not (math.isfinite(lo) and math.isfinite(hi) and lo < hi):
        raise ValueError(f"the scale must have finite ends lo < hi, not {lo!r} and {hi!r}")
    if span is not None and not 0 < span < math.inf:
        raise ValueError("span must be positive")
