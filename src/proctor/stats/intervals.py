"""Estimates with confidence intervals: rates, means, costs, cost per success, pass@k and pass^k.

The task is the unit: repeats are averaged within their task first, and every task counts once. An interval
is either about "tasks like these" (the tasks are a sample) or about "these tasks" (only repeats vary), and
says which. No interval has zero width: where the data cannot carry one, the limits are None and `note` says
why.

Plain runs load this module, so numpy and scipy are imported inside the functions that need them.
"""

import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from proctor.stats.samples import FloatArray, Sample

CONFIDENCE = 0.95
FEWEST_TASKS = 6
"""Tasks below which there is no verdict: five unanimous tasks are not significant by any test."""
FEWEST_COSTS, FEWEST_TYPICAL, FEWEST_SKEWED = 5, 3, 80
"""Tasks that a mean cost and a typical cost need, and below which a mean cost has a proviso."""
FEWEST_NORMAL = 15
"""Tasks below which Student's interval of an unbounded value depends on its distribution."""
MOST_RESAMPLED = 2000
"""Tasks above which the delta method is as good as resampling."""
BLOCK = 1_000_000
"""Values drawn at once: bounds the memory of resampling to a few tens of MB."""

LIKE, THESE = "tasks like these", "these tasks"
NO_UPPER_LIMIT = "No upper limit: too few distinct values."
NO_SPREAD = "Standard error not estimable: all tasks have the same value."


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """An estimate with its confidence interval. Never NaN or infinite: None, with a sentence in `note`."""

    value: float | None
    """None: there is nothing to compute it from."""
    low: float | None = None
    """None, as `high`: the data carry no such limit, and `note` says why."""
    high: float | None = None
    n: int = 0
    """Tasks."""
    runs: int = 0
    """Observations: runs that have a value."""
    sem: float | None = None
    """Standard error of the mean. None: not estimable."""
    level: float = CONFIDENCE
    scope: str = LIKE
    """What the interval is about: "tasks like these" or "these tasks"."""
    left_out: int = 0
    """Runs without a value; for pass@k and pass^k, tasks with fewer than k runs."""
    method: str = ""
    p: float | None = None
    """Two-sided p of the hypothesis the estimate was tested against. None: there was none."""
    note: str = ""
    """What limits the estimate, as sentences."""
    needs: int | None = None
    """Tasks that an interval or a verdict would need at least. None: there are enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strength:
    """One name of a ranking by paired comparisons."""

    name: str
    strength: float
    """Log-odds of winning against an average one of those compared (Bradley-Terry)."""
    low: float | None
    """None, as `high`: fewer than 6 tasks."""
    high: float | None
    rank: int
    rank_low: int
    """Best rank that the data allow: 1 + those that are significantly stronger."""
    rank_high: int
    """Worst rank that the data allow."""
    wins: int
    ties: int
    losses: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """How many of how many, and the interval around their ratio."""

    successes: int
    trials: int
    low: float | None = None
    high: float | None = None

    @property
    def value(self) -> float | None:
        """Between 0 and 1; None when nothing was tried."""
        return self.successes / self.trials if self.trials else None


def wilson(successes: int, trials: int, *, level: float = CONFIDENCE) -> Rate:
    """A share of independent trials with Wilson's score interval.

    >>> rate = wilson(8, 10)
    >>> round(rate.low, 4), round(rate.high, 4)
    (0.4902, 0.9433)
    """
    if trials <= 0:
        return Rate(successes=0, trials=0)
    low, high = wilson_limits(successes / trials, trials, level)
    return Rate(successes=successes, trials=trials, low=low, high=high)


def wilson_limits(share: float, trials: float, level: float = CONFIDENCE) -> tuple[float, float]:
    """Wilson's interval of a share; `trials` may be an effective number."""
    z = NormalDist().inv_cdf(0.5 + level / 2)
    weight = z * z / trials
    center = (share + weight / 2) / (1 + weight)
    reach = z / (1 + weight) * math.sqrt(share * (1 - share) / trials + weight / (4 * trials))
    # At the ends the formula gives exactly 0 and 1, which rounding would miss by 1e-17.
    low = 0.0 if share <= 0 else max(0.0, center - reach)
    high = 1.0 if share >= 1 else min(1.0, center + reach)
    return low, high


def anytime_rate(successes: int, trials: int, *, level: float = CONFIDENCE) -> Rate:
    """A share of independent trials with an interval that holds at every look, however often one looks.

    The shares whose likelihood ratio against the uniform mixture of all shares stays above 1 − level
    (Robbins): the ratio is a martingale, which exceeds its bound at any time with at most this chance. Wider
    than Wilson's interval, which holds for one look at a fixed number of trials.

    >>> rate = anytime_rate(8, 10)
    >>> round(rate.low, 4), round(rate.high, 4)
    (0.353, 0.9895)
    """
    if trials <= 0:
        return Rate(successes=0, trials=0)
    failures = trials - successes
    bound = math.lgamma(successes + 1) + math.lgamma(failures + 1) - math.lgamma(trials + 2)
    bound += math.log(1 - level)

    def is_inside(share: float) -> bool:
        likelihood = successes * math.log(share) if successes else 0.0
        return likelihood + (failures * math.log1p(-share) if failures else 0.0) > bound

    value = successes / trials
    low = 0.0 if not successes else _boundary(is_inside, inside=value, outside=0.0)
    high = 1.0 if not failures else _boundary(is_inside, inside=value, outside=1.0)
    return Rate(successes=successes, trials=trials, low=low, high=high)


def _boundary(is_inside: Callable[[float], bool], *, inside: float, outside: float) -> float:
    for _ in range(50):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if is_inside(middle) else (inside, middle)
    return outside


def mean(
    values: Iterable[float | None],
    task: Iterable[Hashable] | None = None,
    *,
    lo: float | None = None,
    hi: float | None = None,
    level: float = CONFIDENCE,
    scope: Literal["like", "these"] = "like",
) -> Estimate:
    """The mean over tasks of a success, a score or any other number, with its interval.

    `values` has one number per run, `task` the task of each; without `task`, each run is a task of its own.
    `lo` and `hi` are the ends of the scale: 0 and 1 for successes. Values may be a sequence, a numpy array
    or a pandas Series. None is a missing value, left out and counted (NaN and NA likewise in a Series). NaN
    and infinity elsewhere, and values outside the scale, give a note instead of an interval. Booleans count
    as 0 and 1.

    `scope="like"`: the `plus` interval of the task means. Without a scale: Student's interval of the task
    means. `scope="these"`: Wilson's interval over the runs, on the scale; conservative, since tasks that
    differ vary less. The scores of a single task have the `plus` interval of its runs.

    >>> passed = [1, 1, 1, 0, 0, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 0, 1]
    >>> rate = mean(passed, task=[n // 3 for n in range(18)], lo=0, hi=1)
    >>> print(f"{rate.value:.3f} ({rate.low:.3f} to {rate.high:.3f}), {rate.n} tasks, {rate.scope}")
    0.611 (0.195 to 0.972), 6 tasks, tasks like these
    """
    from proctor.stats.samples import sample

    _check(level, lo, hi)
    if scope not in ("like", "these"):
        raise ValueError(f'scope must be "like" or "these", not {scope!r}')
    data = sample(values, task)
    scope_name = LIKE if scope == "like" else THESE
    if not data.runs or data.problem:
        return _nothing(data, level, scope_name)
    if lo is not None and hi is not None:
        outside = int(((data.values < lo) | (data.values > hi)).sum())
        if outside:
            note = f"{outside} of {data.runs} values lie outside the scale {lo:g} to {hi:g}: no interval."
            return replace(_blank(data, level, scope_name), value=float(data.means.mean()), note=note)
        if scope == "these":
            return _mean_of_these(data, lo, hi, level)
        return of_tasks(data.means, lo, hi, level=level, runs=data.runs, left_out=data.left_out)
    return _unbounded(data, lo, hi, level, scope_name)


def of_tasks(
    means: "FloatArray", lo: float, hi: float, *, level: float = CONFIDENCE, runs: int = 0, left_out: int = 0
) -> Estimate:
    """The mean of one value per task on a scale, with its `plus` interval for tasks like these."""
    from proctor.stats.samples import plus_interval, standard_error

    tasks, value = len(means), float(means.mean())
    estimate = Estimate(value=value, n=tasks, runs=runs or tasks, level=level, left_out=left_out)
    if tasks < 2:
        note = f"One task: no interval for tasks like these; needs at least {FEWEST_TASKS}."
        return replace(estimate, note=note, needs=FEWEST_TASKS)
    low, high = map(float, plus_interval(means, lo, hi).interval(level))
    sem = standard_error(means)
    notes = [] if sem else [NO_SPREAD]
    if tasks < FEWEST_TASKS:
        notes.append(f"Fewer than {FEWEST_TASKS} tasks: no verdict.")
    return replace(
        estimate,
        low=min(low, value),
        high=max(high, value),
        sem=sem or None,
        method="plus",
        note=" ".join(notes),
        needs=FEWEST_TASKS if tasks < FEWEST_TASKS else None,
    )


def rate_over_tasks(counts: Iterable[tuple[int, int, int]], *, level: float = CONFIDENCE) -> Estimate:
    """A success rate over tasks, from successes, runs, and the number of tasks that have these; with a single
    task, of that task alone. The same as `mean` of all runs, without a value for each.

    >>> rate = rate_over_tasks([(5, 5, 3), (0, 5, 3)])
    >>> print(f"{rate.value:.3f} ({rate.low:.3f} to {rate.high:.3f}), {rate.n} tasks, {rate.runs} runs")
    0.500 (0.014 to 0.986), 6 tasks, 30 runs
    """
    import numpy as np

    table = np.array([row for row in counts if row[1] and row[2]], dtype=np.int64).reshape(-1, 3)
    passed, judged, tasks = table.T
    if not len(table):
        return Estimate(value=None, level=level, note="No values.")
    if tasks.sum() == 1:
        rate = wilson(int(passed[0]), int(judged[0]), level=level)
        return Estimate(
            value=rate.value,
            low=rate.low,
            high=rate.high,
            n=1,
            runs=rate.trials,
            level=level,
            scope=THESE,
            method="Wilson",
        )
    return of_tasks(np.repeat(passed / judged, tasks), 0.0, 1.0, level=level, runs=int(judged @ tasks))


def _mean_of_these(data: "Sample", lo: float, hi: float, level: float) -> Estimate:
    """Wilson's interval over runs. With unequal repeats, over the number of runs with the same variance; for
    scores it is conservative, since no score on a scale varies more than a 0/1 outcome of the same mean."""
    value = float(data.means.mean())
    if data.tasks == 1 and data.runs > 1 and bool(((data.values > lo) & (data.values < hi)).any()):
        return _scores_of_one_task(data, lo, hi, level)
    trials = data.tasks**2 / float((1 / data.counts).sum())
    share = min(1.0, max(0.0, (value - lo) / (hi - lo)))
    low, high = (lo + (hi - lo) * limit for limit in wilson_limits(share, trials, level))
    sem = None
    if data.within is not None and bool((data.counts > 1).all()):
        sem = math.sqrt(data.within / trials) or None
    return replace(
        _blank(data, level, THESE),
        value=value,
        low=min(low, value),
        high=max(high, value),
        sem=sem,
        method="Wilson",
    )


def _scores_of_one_task(data: "Sample", lo: float, hi: float, level: float) -> Estimate:
    """The runs of one task are as independent as tasks are: the `plus` interval of their scores."""
    estimate = of_tasks(data.values, lo, hi, level=level)
    return replace(
        estimate, n=1, runs=data.runs, left_out=data.left_out, scope=THESE, method="plus", note="", needs=None
    )


def _unbounded(data: "Sample", lo: float | None, hi: float | None, level: float, scope: str) -> Estimate:
    """Student's interval of a value without a scale."""
    from proctor.stats.samples import standard_error, t_quantile

    value = float(data.means.mean())
    if scope == THESE:
        within = data.within
        if within is None or not bool((data.counts > 1).all()):
            return replace(
                _blank(data, level, scope), value=value, note="These tasks: needs repeats of every task."
            )
        freedom = data.runs - data.tasks
        sem = math.sqrt(within * float((1 / data.counts).sum())) / data.tasks
    else:
        if data.tasks < 2:
            note = f"One task: no interval for tasks like these; needs at least {FEWEST_TASKS}."
            return replace(_blank(data, level, scope), value=value, note=note, needs=FEWEST_TASKS)
        freedom, sem = data.tasks - 1, standard_error(data.means)
    if sem <= 1e-12 * abs(value):
        return replace(
            _blank(data, level, scope),
            value=value,
            note="All values are equal: no interval. Declare the scale.",
        )
    if data.tasks < FEWEST_COSTS and scope == LIKE:
        note = f"Fewer than {FEWEST_COSTS} tasks: no interval without a declared scale."
        return replace(_blank(data, level, scope), value=value, sem=sem, note=note, needs=FEWEST_COSTS)
    reach = float(t_quantile(0.5 + level / 2, freedom)) * sem
    low = value - reach if lo is None else max(lo, value - reach)
    high = value + reach if hi is None else min(hi, value + reach)
    note = ""
    if (data.tasks if scope == LIKE else data.runs) < FEWEST_NORMAL:
        unit = "tasks" if scope == LIKE else "runs"
        note = f"Fewer than {FEWEST_NORMAL} {unit}: valid only for roughly normal values."
    return replace(
        _blank(data, level, scope), value=value, low=low, high=high, sem=sem, method="Student's t", note=note
    )


def geometric_mean(
    values: Iterable[float | None], task: Iterable[Hashable] | None = None, *, level: float = CONFIDENCE
) -> Estimate:
    """The typical cost or time of a task: the geometric mean of the task means, with Student's interval of
    logs.

    It answers "what does a usual task cost?"; `mean_cost` answers "what does a task cost on average?". Values
    must be positive; missing and broken values as in `mean`.

    >>> cost = geometric_mean([1.2, 0.8, 3.5, 0.9, 14, 2.2, 1.1, 0.7, 5.6, 1.9])
    >>> print(f"{cost.value:.2f} ({cost.low:.2f} to {cost.high:.2f})")
    1.94 (0.97 to 3.87)
    """
    import numpy as np

    from proctor.stats.samples import sample, standard_error, t_quantile

    _check(level)
    data = sample(values, task)
    if not data.runs or data.problem:
        return _nothing(data, level, LIKE)
    not_positive = int((data.means <= 0).sum())
    if not_positive:
        note = f"{not_positive} of {data.tasks} tasks have no positive value: no geometric mean."
        return replace(_blank(data, level, LIKE), value=None, note=note)
    logs = np.log(data.means)
    center, sem = float(logs.mean()), standard_error(logs)
    value = math.exp(center)
    if data.tasks < FEWEST_TYPICAL:
        note = f"Fewer than {FEWEST_TYPICAL} tasks: no interval."
        return replace(_blank(data, level, LIKE), value=value, note=note, needs=FEWEST_TYPICAL)
    if not sem:
        note = "All tasks have the same value: no interval."
        return replace(_blank(data, level, LIKE), value=value, note=note)
    reach = float(t_quantile(0.5 + level / 2, data.tasks - 1)) * sem
    low, high, open_end = math.exp(center - reach), _exp(center + reach), ""
    if high is None:
        open_end = "No upper limit: the values spread too far."
    return replace(
        _blank(data, level, LIKE),
        value=value,
        low=low,
        high=high,
        sem=value * sem,
        method="Student's t of logs",
        note=open_end,
    )


def mean_cost(
    values: Iterable[float | None],
    task: Iterable[Hashable] | None = None,
    *,
    level: float = CONFIDENCE,
    resamples: int = 1999,
    seed: int = 0,
) -> Estimate:
    """The mean cost or time of a task: what the bill is divided by the number of tasks.

    The interval encloses that of Cox (lognormal values) and the bootstrap-t of the log mean, which
    resamples tasks with a fixed seed. Zeros leave the bootstrap alone; negative values have no interval.
    Missing and broken values as in `mean`.

    >>> cost = mean_cost([1.2, 0.8, 3.5, 0.9, 14, 2.2, 1.1, 0.7, 5.6, 1.9])
    >>> print(f"{cost.value:.2f} (from {cost.low:.2f})")
    3.19 (from 1.32)
    """
    import numpy as np

    from proctor.stats.samples import sample, standard_error, t_quantile

    _check(level)
    data = sample(values, task)
    if not data.runs or data.problem:
        return _nothing(data, level, LIKE)
    means, tasks = data.means, data.tasks
    value, sem = float(means.mean()), standard_error(means)
    if float(means.min()) < 0:
        return replace(
            _blank(data, level, LIKE), value=value, note="Negative values: no interval of a cost or a time."
        )
    if tasks < FEWEST_COSTS:
        note = f"Fewer than {FEWEST_COSTS} tasks: no interval of a mean cost or time."
        return replace(_blank(data, level, LIKE), value=value, sem=sem or None, note=note, needs=FEWEST_COSTS)
    if not sem:
        note = "All tasks have the same value: no interval."
        return replace(_blank(data, level, LIKE), value=value, note=note)
    quantile = float(t_quantile(0.5 + level / 2, tasks - 1))
    relative = sem / value
    if tasks > MOST_RESAMPLED:
        down, up, method = -quantile * relative, quantile * relative, "delta method on the log mean"
    else:
        lower, upper = _bootstrap_t(means, level, resamples, seed)
        down, up, method = -upper * relative, -lower * relative, "bootstrap-t of the log mean"
    low, high = value * math.exp(down), _times_exp(value, up)
    if float(means.min()) > 0:
        logs = np.log(means)
        spread = float(np.var(logs, ddof=1))
        center = float(logs.mean()) + spread / 2
        reach = quantile * math.sqrt(spread / tasks + spread**2 / (2 * (tasks - 1)))
        cox_high = _exp(center + reach)
        low = min(low, math.exp(min(700.0, center - reach)))
        high = None if high is None or cox_high is None else max(high, cox_high)
        method = f"wider of Cox's interval and {method}"
    notes = []
    if high is None:
        notes.append(NO_UPPER_LIMIT)
    if tasks < FEWEST_SKEWED:
        notes.append(f"Provided that no rare, very expensive item is missing from these {tasks} tasks.")
    return replace(
        _blank(data, level, LIKE),
        value=value,
        low=min(low, value),
        high=None if high is None else max(high, value),
        sem=sem,
        method=method,
        note=" ".join(notes),
    )


def _bootstrap_t(means: "FloatArray", level: float, resamples: int, seed: int) -> tuple[float, float]:
    """Quantiles of the studentized log mean over resampled tasks; infinite where resamples have no spread."""
    import numpy as np

    rng, tasks = np.random.default_rng(seed), len(means)
    # Scaled, so that squares neither overflow nor vanish.
    means = means / means.mean()
    block = max(1, BLOCK // tasks)
    parts = []
    for begin in range(0, resamples, block):
        rows = min(block, resamples - begin)
        drawn = means[rng.integers(0, tasks, size=(rows, tasks), dtype=np.int32)]
        average = drawn.mean(axis=1)
        error = drawn.std(axis=1, ddof=1) / math.sqrt(tasks)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.log(average) * average / error
        flat = error <= 1e-12
        t[flat] = np.where(np.abs(average[flat] - 1) <= 1e-12, 0.0, np.sign(average[flat] - 1) * np.inf)
        # Only zeros were drawn: as far below as can be.
        t[average == 0] = -np.inf
        parts.append(t)
    ordered = np.sort(np.concatenate(parts))
    tail = (1 - level) / 2
    first = max(0, math.floor((resamples + 1) * tail + 1e-9) - 1)
    return float(ordered[first]), float(ordered[resamples - 1 - first])


def per_success(
    cost: Iterable[float | None],
    success: Iterable[float | None],
    task: Iterable[Hashable] | None = None,
    *,
    level: float = CONFIDENCE,
) -> Estimate:
    """Cost, or time, per success: all costs, failures included, divided by all successes, with Fieller's
    interval.

    Runs without a cost or without an outcome are left out and counted. With few successes there is no upper
    limit, and `note` says so.

    >>> cost = per_success([2, 1.5, 4, 3, 2.5, 6, 1, 2], [3, 2, 1, 2, 3, 0, 3, 2])
    >>> print(f"{cost.value:.3f} ({cost.low:.3f} to {cost.high:.3f})")
    1.375 (0.502 to 3.589)
    """
    import numpy as np

    from proctor.stats.samples import parse, sample, t_quantile

    _check(level)
    labels = task if task is None or isinstance(task, np.ndarray) else list(task)
    (costs, has_cost), (outcomes, has_outcome) = parse(cost), parse(success)
    if len(costs) != len(outcomes):
        raise ValueError(f"{len(costs)} costs, but {len(outcomes)} outcomes")
    spent = sample(costs, labels, has_cost & has_outcome)
    passed = sample(outcomes, labels, has_cost & has_outcome)
    if not spent.runs or spent.problem or passed.problem:
        return _nothing(spent if spent.problem or not passed.problem else passed, level, LIKE)
    total, number, tasks = float(spent.sums.sum()), float(passed.sums.sum()), spent.tasks
    if float(spent.values.min()) < 0 or float(passed.values.min()) < 0:
        return replace(_blank(spent, level, LIKE), value=None, note="Negative values: no cost per success.")
    if number == 0:
        note = f"No success in {spent.runs} runs: more than the total cost of {total:.6g} per success."
        return replace(_blank(spent, level, LIKE), value=None, note=note)
    value = total / number
    if tasks < FEWEST_COSTS:
        note = f"Fewer than {FEWEST_COSTS} tasks: no interval of a cost per success."
        return replace(_blank(spent, level, LIKE), value=value, note=note, needs=FEWEST_COSTS)
    # In units of their means, so that neither tiny nor huge costs lose digits.
    c, s = spent.sums / (total / tasks or 1.0), passed.sums / (number / tasks)
    covariance = np.cov(c, s) / tasks if total else np.zeros((2, 2))
    v_c, v_s, c_cs = float(covariance[0, 0]), float(covariance[1, 1]), float(covariance[0, 1])
    residual = max(0.0, v_c - 2 * c_cs + v_s)
    if residual <= 1e-20:
        note = "Every task has the same cost per success: no interval."
        return replace(_blank(spent, level, LIKE), value=value, note=note)
    t2 = float(t_quantile(0.5 + level / 2, tasks - 1)) ** 2
    a, b, e = 1 - t2 * v_s, 1 - t2 * c_cs, 1 - t2 * v_c
    root = math.sqrt(max(0.0, b * b - a * e))
    sem = value * math.sqrt(residual)
    if a <= 1e-12:
        # The set of ratios that fit is open above; it reaches down to 0 where the mean cost may be 0 as well.
        low = max(0.0, (b - root) / a) if e > 0 and a < 0 else 0.0
        note = "No upper limit: too few successes."
        return replace(
            _blank(spent, level, LIKE),
            value=value,
            low=min(value, value * low),
            sem=sem,
            method="Fieller",
            note=note,
        )
    low, high = max(0.0, (b - root) / a), (b + root) / a
    return replace(
        _blank(spent, level, LIKE),
        value=value,
        low=min(value, value * low),
        high=max(value, value * high),
        sem=sem,
        method="Fieller",
    )


def pass_at(
    successes: Iterable[int], runs: Iterable[int] | int, k: int, *, level: float = CONFIDENCE
) -> Estimate:
    """pass@k: the chance that at least one of `k` runs of a task succeeds, over tasks.

    `successes` and `runs` have one number per task. Tasks with fewer than `k` runs are left out and counted.

    >>> estimate = pass_at([5, 4, 3, 0, 5, 1], 5, k=2)
    >>> round(estimate.value, 4)
    0.7167
    """
    return _of_k(successes, runs, k, level, every=False)


def pass_hat(
    successes: Iterable[int], runs: Iterable[int] | int, k: int, *, level: float = CONFIDENCE
) -> Estimate:
    """pass^k: the chance that all of `k` runs of a task succeed, over tasks. Arguments as in `pass_at`.

    >>> estimate = pass_hat([5, 4, 3, 0, 5, 1], 5, k=2)
    >>> print(f"{estimate.value:.3f} ({estimate.low:.3f} to {estimate.high:.3f})")
    0.483 (0.060 to 0.915)
    """
    return _of_k(successes, runs, k, level, every=True)


def _of_k(
    successes: Iterable[int], runs: Iterable[int] | int, k: int, level: float, *, every: bool
) -> Estimate:
    import numpy as np

    _check(level)
    if k < 1:
        raise ValueError("k must be at least 1")
    c = np.asarray(successes if hasattr(successes, "__len__") else list(successes), dtype=np.float64)
    n = np.broadcast_to(
        np.asarray(runs if isinstance(runs, int) or hasattr(runs, "__len__") else list(runs)), c.shape
    ).astype(np.float64)
    if not (np.isfinite(c).all() and np.isfinite(n).all() and (c >= 0).all() and (c <= n).all()):
        raise ValueError("successes must lie between 0 and the runs of their task")
    enough = n >= k
    left_out, name = int((~enough).sum()), f"pass^{k}" if every else f"pass@{k}"
    if not enough.any():
        note = f"No task has {k} runs (at most {int(n.max())}): no {name}." if len(n) else "No values."
        return Estimate(value=None, level=level, left_out=left_out, note=note)
    shares = shares_of_k(c[enough], n[enough], k, every=every)
    return of_tasks(shares, 0.0, 1.0, level=level, runs=int(n[enough].sum()), left_out=left_out)


def shares_of_k(passed: "FloatArray", runs: "FloatArray", k: int, *, every: bool) -> "FloatArray":
    """The share of the draws of `k` runs that all succeed, or with one that does, for each pair of successes
    and runs; `runs` are at least `k`."""
    import numpy as np

    drawn = passed if every else runs - passed
    shares = np.ones(len(runs))
    for already in range(k):
        shares *= np.maximum(drawn - already, 0) / (runs - already)
    return shares if every else 1 - shares


def _check(level: float, lo: float | None = None, hi: float | None = None) -> None:
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, not {level!r}")
    for end in (lo, hi):
        if end is not None and not math.isfinite(end):
            raise ValueError("the ends of a scale must be finite")
    if lo is not None and hi is not None and lo >= hi:
        raise ValueError(f"the scale must have lo < hi, not {lo!r} and {hi!r}")


def _nothing(data: "Sample", level: float, scope: str) -> Estimate:
    return replace(_blank(data, level, scope), value=None, note=data.problem or "No values.")


def _blank(data: "Sample", level: float, scope: str) -> Estimate:
    """An estimate without a value, with the counts of a sample."""
    return Estimate(
        value=None, n=data.tasks, runs=data.runs, level=level, scope=scope, left_out=data.left_out
    )


def _exp(exponent: float) -> float | None:
    """None: larger than a number may be."""
    return math.exp(exponent) if exponent < 350 else None


def _times_exp(value: float, exponent: float) -> float | None:
    factor = _exp(exponent)
    return None if factor is None or factor > 1e150 else value * factor


def sample_std(n: int, total: float, squares: float) -> float | None:
    """The sample standard deviation (n − 1) from sums; None for fewer than two numbers."""
    if n < 2:
        return None
    # Rounding can push the difference of two large sums just below zero.
    return math.sqrt(max(0.0, (squares - total * total / n) / (n - 1)))
