"""Coverage and error rates of `proctor.stats`, by simulation.

    python benchmarks/statistics_simulation.py [REPLICATIONS]

prints the tables of the manual; `tests/stats/test_coverage.py` runs the same functions with fewer
replications. Every function takes a seeded generator and returns shares: of intervals that cover the truth,
or of false verdicts.
"""

import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
from scipy import special

from proctor.stats import (
    difference,
    gate,
    geometric_mean,
    mean,
    mean_cost,
    per_success,
    ranks,
    ratio,
    tasks_needed,
)
from proctor.stats.differences import adjust
from proctor.stats.drift import BLOCK, DriftMonitor, DriftSettings
from proctor.stats.effects import anova, association, hedges_g, rank_test
from proctor.stats.experiment import RunData, Study, level_contrasts
from proctor.stats.intervals import Rate, anytime_rate, rate_over_tasks, wilson, wilson_limits
from proctor.stats.odds import odds_model
from proctor.stats.samples import FloatArray, plus_interval, t_quantile
from proctor.stats.sequential import DifferenceGoal, Monitor, RankGoal

COARSE = {
    "near ceiling": (0.02, 0.03, 0.05, 0.90),
    "rare zero": (0.05, 0.0, 0.0, 0.95),
    "spread": (0.1, 0.2, 0.3, 0.4),
    "two-point": (0.0, 0.5, 0.5, 0.0),
    "0 or 1": (0.5, 0.0, 0.0, 0.5),
}
"""Shares of the scores 0, 1/3, 2/3 and 1."""


def task_rates(rng: np.random.Generator, mu: float, icc: float, size: tuple[int, ...]) -> FloatArray:
    """Success probabilities of tasks with this mean and intra-class correlation."""
    if icc == 0:
        return np.full(size, mu)
    concentration = (1 - icc) / icc
    return rng.beta(mu * concentration, (1 - mu) * concentration, size)


def coarse_scores(rng: np.random.Generator, shares: Sequence[float], size: tuple[int, ...]) -> FloatArray:
    """Scores on the scale 0, 1/3, 2/3, 1."""
    return rng.choice(4, size=size, p=shares) / 3


def covered(
    means: FloatArray, truth: float | FloatArray, lo: float, hi: float, method: str = "plus"
) -> tuple[float, float]:
    """Share of intervals over the last axis that cover the truth, and their mean width."""
    tasks = means.shape[-1]
    if method == "plus":
        low, high = plus_interval(means, lo, hi).interval()
    else:
        reach = t_quantile(0.975, tasks - 1) * means.std(axis=-1, ddof=1) / math.sqrt(tasks)
        low, high = means.mean(axis=-1) - reach, means.mean(axis=-1) + reach
    inside = (low <= truth) & (truth <= high)
    return float(inside.mean()), float((high - low).mean())


def rate(
    rng: np.random.Generator,
    tasks: int,
    repeats: int,
    mu: float,
    icc: float,
    replications: int,
    method: str = "plus",
) -> tuple[float, float]:
    """Coverage and width of a success rate over tasks like these."""
    rates = task_rates(rng, mu, icc, (replications, tasks))
    return covered(rng.binomial(repeats, rates) / repeats, mu, 0, 1, method)


def rate_with_unequal_repeats(
    rng: np.random.Generator, tasks: int, mu: float, icc: float, replications: int
) -> float:
    """Coverage where tasks have 1 to 5 repeats."""
    repeats = rng.integers(1, 6, (replications, tasks))
    rates = task_rates(rng, mu, icc, (replications, tasks))
    return covered(rng.binomial(repeats, rates) / repeats, mu, 0, 1)[0]


def rate_of_these_tasks(
    rng: np.random.Generator, tasks: int, repeats: int, mu: float, icc: float, replications: int
) -> float:
    """Coverage of the rate of fixed tasks."""
    inside = 0
    labels = np.repeat(np.arange(tasks), repeats)
    for _ in range(replications):
        rates = task_rates(rng, mu, icc, (tasks,))
        passed = rng.random((tasks, repeats)) < rates[:, None]
        estimate = mean(passed.ravel(), labels, lo=0, hi=1, scope="these")
        assert estimate.low is not None and estimate.high is not None
        inside += estimate.low <= rates.mean() <= estimate.high
    return inside / replications


def wilson_over_runs(
    rng: np.random.Generator, tasks: int, repeats: int, mu: float, icc: float, replications: int
) -> float:
    """Coverage for tasks like these if runs are counted as independent: the fault to avoid."""
    rates = task_rates(rng, mu, icc, (replications, tasks))
    shares = rng.binomial(repeats, rates).mean(axis=1) / repeats
    limits = [wilson_limits(float(share), tasks * repeats) for share in shares]
    return float(np.mean([low <= mu <= high for low, high in limits]))


def rate_from_counts(
    rng: np.random.Generator, tasks: int, repeats: int, mu: float, icc: float, replications: int
) -> float:
    """Coverage of the rate that `proctor show` prints by model: from counts of successes and runs."""
    passed = rng.binomial(repeats, task_rates(rng, mu, icc, (replications, tasks)))
    estimates = [
        rate_over_tasks((successes, repeats, number) for successes, number in enumerate(np.bincount(row)))
        for row in passed
    ]
    return float(np.mean([(each.low or 0.0) <= mu <= (each.high or 0.0) for each in estimates]))


def anytime_rate_over_runs(
    rng: np.random.Generator, tasks: int, repeats: int, mu: float, icc: float, replications: int
) -> float:
    """Share of replications in which `anytime_rate` over runs contains the rate at every look: with repeats,
    the fault to avoid."""
    rates = np.repeat(task_rates(rng, mu, icc, (replications, tasks)), repeats, axis=1)
    passed = np.cumsum(rng.random(rates.shape) < rates, axis=1)
    trials = np.arange(1, rates.shape[1] + 1)
    likelihood = passed * math.log(mu) + (trials - passed) * math.log(1 - mu)
    bound = special.betaln(passed + 1, trials - passed + 1) + math.log(0.05)
    return float((likelihood > bound).all(axis=1).mean())


def score(
    rng: np.random.Generator, tasks: int, shares: Sequence[float], replications: int, method: str = "plus"
) -> tuple[float, float]:
    """Coverage and width of a mean score on a coarse scale."""
    truth = sum(share * place / 3 for place, share in enumerate(shares))
    return covered(coarse_scores(rng, shares, (replications, tasks)), truth, 0, 1, method)


def costs(rng: np.random.Generator, kind: str, size: tuple[int, ...]) -> tuple[FloatArray, float, float]:
    """Skewed values, with their true mean and their true geometric mean."""
    if kind.startswith("lognormal"):
        sigma = float(kind.split()[1])
        return rng.lognormal(0, sigma, size), math.exp(sigma**2 / 2), 1.0
    if kind == "gamma":
        # exp(digamma(0.5)), digamma(0.5) = -1.9635100
        return rng.gamma(0.5, 1.0, size), 0.5, math.exp(-1.96351002602142)
    if kind == "rare":
        values = rng.lognormal(0, 0.5, size) * np.where(rng.random(size) < 0.05, 20.0, 1.0)
        return values, math.exp(0.125) * 1.95, 20**0.05
    raise ValueError(kind)


def arithmetic_mean_cost(rng: np.random.Generator, tasks: int, kind: str, replications: int) -> float:
    """Coverage of a mean cost."""
    values, truth, _ = costs(rng, kind, (replications, tasks))
    inside = 0
    for row in values:
        estimate = mean_cost(row, resamples=999)
        inside += (estimate.low or 0.0) <= truth <= (math.inf if estimate.high is None else estimate.high)
    return inside / replications


def typical_cost(rng: np.random.Generator, tasks: int, kind: str, replications: int) -> float:
    """Coverage of a typical cost."""
    values, _, truth = costs(rng, kind, (replications, tasks))
    inside = 0
    for row in values:
        estimate = geometric_mean(row)
        assert estimate.low is not None and estimate.high is not None
        inside += estimate.low <= truth <= estimate.high
    return inside / replications


def cost_per_success(
    rng: np.random.Generator, tasks: int, mu: float, replications: int
) -> tuple[float, float]:
    """Coverage of the cost per success, and the share without an upper limit; failures cost 1.5 times as
    much."""
    repeats, icc = 3, 0.5
    truth = math.exp(0.125) * (mu + 1.5 * (1 - mu)) / mu
    labels = np.repeat(np.arange(tasks), repeats)
    inside = open_above = 0
    for _ in range(replications):
        rates = task_rates(rng, mu, icc, (tasks,))
        passed = (rng.random((tasks, repeats)) < rates[:, None]).ravel()
        spent = rng.lognormal(0, 0.5, tasks * repeats) * np.where(passed, 1.0, 1.5)
        estimate = per_success(spent, passed, labels)
        open_above += estimate.high is None
        inside += (estimate.low or 0.0) <= truth <= (math.inf if estimate.high is None else estimate.high)
    return inside / replications, open_above / replications


def paired_rates(
    rng: np.random.Generator, tasks: int, mu_a: float, mu_b: float, size: int
) -> tuple[FloatArray, FloatArray]:
    """Success probabilities of two models: equal on 70% of tasks, with this difference on average."""
    icc = 0.5
    base = task_rates(rng, mu_a, icc, (size, tasks))
    # On the other tasks the second model has a rate of its own whose mean makes up for those that are equal.
    own_mean = min(0.99, max(0.01, mu_a + (mu_b - mu_a) / 0.3))
    own = task_rates(rng, own_mean, icc, (size, tasks))
    return base, np.where(rng.random((size, tasks)) < 0.7, base, own)


def paired_difference(
    rng: np.random.Generator,
    tasks: int,
    repeats: int,
    mu_a: float,
    mu_b: float,
    replications: int,
    method: str = "plus",
) -> tuple[float, float]:
    """Coverage and width of a paired difference of success rates."""
    first, second = paired_rates(rng, tasks, mu_a, mu_b, replications)
    truth = 0.7 * mu_a + 0.3 * min(0.99, max(0.01, mu_a + (mu_b - mu_a) / 0.3)) - mu_a
    deltas = (rng.binomial(repeats, second) - rng.binomial(repeats, first)) / repeats
    return covered(deltas, truth, -1, 1, method)


def unpaired_difference(
    rng: np.random.Generator, tasks: tuple[int, int], repeats: int, mu: tuple[float, float], replications: int
) -> float:
    """Coverage of an unpaired difference of success rates."""
    sides = []
    for number, mean_rate in zip(tasks, mu, strict=True):
        rates = task_rates(rng, mean_rate, 0.5, (replications, number))
        sides.append(rng.binomial(repeats, rates) / repeats)
    plus = [plus_interval(side, 0, 1) for side in sides]
    center = plus[1].center - plus[0].center
    errors = [each.se**2 for each in plus]
    se = np.sqrt(errors[0] + errors[1])
    df = se**4 / (errors[0] ** 2 / (tasks[0] - 1) + errors[1] ** 2 / (tasks[1] - 1))
    reach = t_quantile(0.975, df) * se
    # The function itself gives the same limits: checked on the first replications.
    for row in range(min(20, replications)):
        single = difference(sides[0][row], sides[1][row], lo=0, hi=1, paired=False)
        assert single.low is not None and math.isclose(
            single.low, max(-1.0, center[row] - reach[row]), abs_tol=1e-9
        )
    return float((np.abs(center - (mu[1] - mu[0])) <= reach).mean())


def cost_ratio(rng: np.random.Generator, tasks: int, kind: str, replications: int) -> float:
    """Coverage of a ratio of costs."""
    first, second = costs(rng, kind, (replications, tasks))[0], costs(rng, kind, (replications, tasks))[0]
    inside = 0
    for a, b in zip(first, second, strict=True):
        change = ratio(a, b)
        assert change.low is not None and change.high is not None
        inside += change.low <= 1 <= change.high
    return inside / replications


def pass_k(
    rng: np.random.Generator, tasks: int, k: int, mu: float, replications: int, *, every: bool
) -> float:
    """Coverage of pass^k (`every`) or pass@k with 5 repeats and an intra-class correlation of 0.5."""
    repeats, icc = 5, 0.5
    rates = task_rates(rng, mu, icc, (replications, tasks))
    successes = rng.binomial(repeats, rates)
    a, b = mu * (1 - icc) / icc, (1 - mu) * (1 - icc) / icc
    if not every:
        a, b = b, a
    # The k-th moment of a beta distribution.
    truth = math.prod((a + j) / (a + b + j) for j in range(k))
    counted = successes if every else repeats - successes
    shares = np.ones(counted.shape)
    for already in range(k):
        shares *= np.maximum(counted - already, 0) / (repeats - already)
    return covered(shares if every else 1 - shares, truth if every else 1 - truth, 0, 1)[0]


GATE_TRUTHS: dict[str, tuple[tuple[float, float], ...]] = {
    # Differences of a task, with their shares.
    "-0.05, gains on 2%": ((-1 / 3, 0.17), (1 / 3, 0.02)),
    "-0.02, gains on 2%": ((-1 / 3, 0.08), (1 / 3, 0.02)),
    "-0.02, gains on 10%": ((-1 / 3, 0.16), (1 / 3, 0.10)),
    "-0.02, losses only": ((-1 / 3, 0.06),),
    "-0.02, 2% collapse": ((-1.0, 0.02),),
}


def gate_deltas(rng: np.random.Generator, truth: str, size: tuple[int, ...]) -> FloatArray:
    """Differences of tasks on a coarse scale."""
    parts = GATE_TRUTHS[truth]
    values = np.asarray([0.0, *(value for value, _ in parts)])
    shares = [1 - sum(share for _, share in parts), *(share for _, share in parts)]
    return values[rng.choice(len(values), size=size, p=shares)]


def gate_passes(
    rng: np.random.Generator,
    tasks: int,
    truth: str,
    replications: int,
    *,
    margin: float = 0.02,
    method: str = "plus",
) -> float:
    """Share of false passes of a gate; `gate` is the whole rule, `plus` and `t` are intervals alone."""
    deltas = gate_deltas(rng, truth, (replications, tasks))
    if method == "gate":
        base = np.full(tasks, 0.0)
        verdicts = [gate(difference(base, row, lo=-1, hi=1, span=1), margin).verdict for row in deltas]
        return verdicts.count("pass") / replications
    if method == "plus":
        low = plus_interval(deltas, -1, 1).limits()[0]
    else:
        reach = t_quantile(0.975, tasks - 1) * deltas.std(axis=-1, ddof=1) / math.sqrt(tasks)
        low = deltas.mean(axis=-1) - reach
    return float((low > -margin).mean())


def success_gate(
    rng: np.random.Generator, tasks: int, repeats: int, replications: int, *, loss: float
) -> float:
    """Share of passes with base rate 0.9 and margin 0.05, for a candidate worse by `loss`."""
    first, second = paired_rates(rng, tasks, 0.9, 0.9 - loss, replications)
    if not loss:
        second = first
    deltas = (rng.binomial(repeats, second) - rng.binomial(repeats, first)) / repeats
    low = plus_interval(deltas, -1, 1).limits()[0]
    return float((low > -0.05).mean())


def gate_with_errors(rng: np.random.Generator, tasks: int, replications: int) -> tuple[float, float]:
    """Passes of a candidate that errors on the hardest 40% of tasks: errors dropped, and by the whole
    rule."""
    dropped_passes = passes = 0
    for _ in range(replications):
        rates = task_rates(rng, 0.7, 0.2, (tasks,))
        hard = rates <= np.quantile(rates, 0.4)
        first, second = (rng.binomial(3, rates) / 3 for _ in range(2))
        finished = [None if is_hard else x for x, is_hard in zip(second, hard, strict=True)]
        dropped = difference(first, finished, lo=0, hi=1)
        failed = difference(first, np.where(hard, 0.0, second), lo=0, hi=1)
        dropped_passes += gate(dropped, 0.1).verdict == "pass"
        passes += gate(dropped, 0.1, with_errors=failed, errors=int(hard.sum())).verdict == "pass"
    return dropped_passes / replications, passes / replications


def false_separation(
    rng: np.random.Generator, tasks: int, repeats: int, kind: str, replications: int
) -> float:
    """Share of rankings of six identical models that separate any two."""
    wrong = 0
    for _ in range(replications):
        if kind == "success":
            rates = task_rates(rng, 0.6, 0.5, (tasks,))
            values = rng.binomial(repeats, rates, (6, tasks)) / repeats
        else:
            level = coarse_scores(rng, COARSE["spread"], (6, tasks, repeats))
            values = level.mean(axis=2)
        table = {f"m{row}": dict(enumerate(values[row].tolist())) for row in range(6)}
        ranked = ranks(table, lo=0, hi=1)
        wrong += any(each.rank_low > 1 or each.rank_high < 6 for each in ranked)
    return wrong / replications


def family_errors(rng: np.random.Generator, tasks: int, replications: int) -> tuple[float, float]:
    """Ten correlated coarse differences without any effect: share of pages with a false finding, adjusted
    and raw."""
    shared = rng.normal(size=(replications, 1, tasks))
    own = rng.normal(size=(replications, 10, tasks))
    latent = math.sqrt(0.5) * shared + math.sqrt(0.5) * own
    deltas = np.clip(np.round(latent), -1, 1) * np.where(np.abs(latent) > 1, 2, 1) / 3
    p = plus_interval(deltas, -1, 1).p(0.0)
    return float((p.min(axis=1) * 10 <= 0.05).mean()), float((p.min(axis=1) <= 0.05).mean())


def tasks_needed_power(
    rng: np.random.Generator, pilot: int, detect: float, repeats: int, replications: int
) -> float:
    """Share of designs from a pilot that detect the difference: one study of the size it asks for, each."""
    found = 0
    labels = np.repeat(np.arange(pilot), repeats)

    def rates(tasks: int, shift: float) -> tuple[FloatArray, FloatArray]:
        base = rng.beta(2, 2, tasks) * 0.7 + 0.05
        moved = np.clip(base + shift + rng.normal(0, 0.1, tasks), 0.0, 1.0)
        return base, moved

    for _ in range(replications):
        first, second = rates(pilot, detect)
        a = (rng.random((pilot, repeats)) < first[:, None]).ravel()
        b = (rng.random((pilot, repeats)) < second[:, None]).ravel()
        needed = tasks_needed(a, b, labels, detect=detect, repeats=repeats, lo=0, hi=1).tasks
        assert needed is not None
        first, second = rates(needed, detect)
        deltas = (rng.binomial(repeats, second) - rng.binomial(repeats, first)) / repeats
        found += bool(plus_interval(deltas, -1, 1).p(0.0) <= 0.05)
    return found / replications


def more_tasks_decide(
    rng: np.random.Generator, pilot: int, effect: float, replications: int, *, near: float | None = None
) -> tuple[float, float]:
    """Of comparisons that are not significant and state how many tasks would do: share that these decide, and
    share of comparisons that state it.

    `near` keeps those whose observed difference has the true sign and is at most this many times as large.
    """
    stated = decided = undecided = 0
    for _ in range(replications):
        rates = rng.beta(2, 2, pilot)
        b = np.clip(rates + effect, 0, 1)
        first, second = rng.binomial(3, rates) / 3, rng.binomial(3, b) / 3
        change = difference(first, second, lo=0, hi=1)
        if change.is_significant:
            continue
        undecided += 1
        if change.needs is None or (near and not 0 < (change.value or 0.0) <= near * effect):
            continue
        stated += 1
        more = min(change.needs, 5000) - pilot
        rates = rng.beta(2, 2, more)
        b = np.clip(rates + effect, 0, 1)
        deltas = np.concatenate([second - first, (rng.binomial(3, b) - rng.binomial(3, rates)) / 3])
        decided += bool(plus_interval(deltas, -1, 1).p(0.0) <= 0.05)
    return decided / max(stated, 1), stated / max(undecided, 1)


def more_tasks_separate(
    rng: np.random.Generator,
    pilot: int,
    effect: float,
    replications: int,
    *,
    near: float | None = None,
    most: int = 10,
) -> tuple[float, float, float, float, float]:
    """ "About N more tasks would decide it" on the page of a run that two models share, after some tasks.

    Of the runs that are not decided then: share that state N, share of these that N more tasks decide, and
    the 10%, 50% and 90% quantiles of the tasks that it takes, as multiples of N; runs that `most` times N do
    not decide count as that. `near` keeps runs whose observed difference has the true sign and is at most
    this many times as large.
    """
    undecided, ratios = 0, []
    for _ in range(replications):
        monitor = Monitor([RankGoal(cells=("a", "b"))], lo=0.0, hi=1.0, alpha=0.05)
        observed = _feed(monitor, rng, 0, pilot, effect)
        needed = monitor.tasks_to_separate("a", "b")
        if needed == 0:
            continue
        undecided += 1
        if needed is None or (near and not 0 < observed <= near * effect):
            continue
        step = max(1, needed // 20)
        taken = step
        _feed(monitor, rng, pilot, step, effect)
        while not _is_separated(monitor) and taken < most * needed:
            _feed(monitor, rng, pilot + taken, step, effect)
            taken += step
        ratios.append(taken / needed if _is_separated(monitor) else float(most))
    quantiles = np.quantile(ratios, [0.1, 0.5, 0.9]).tolist() if ratios else [math.nan] * 3
    within = float(np.mean(np.asarray(ratios) <= 1.05)) if ratios else math.nan
    low, middle, high = quantiles
    return len(ratios) / max(undecided, 1), within, low, middle, high


def _feed(monitor: Monitor, rng: np.random.Generator, first: int, tasks: int, effect: float) -> float:
    """Add tasks with one repeat of each model; the mean difference in them."""
    base = rng.beta(2, 2, tasks) * (1 - effect)
    values = (rng.random((2, tasks)) < np.stack([base, base + effect])).astype(float)
    for task in range(tasks):
        for name, row in zip("ab", values, strict=True):
            monitor.add(name, first + task, [row[task]])
    return float((values[1] - values[0]).mean())


def _is_separated(monitor: Monitor) -> bool:
    return any(low > 1 for low, _ in monitor.ranks().values())


def stopped_ranks(rng: np.random.Generator, tasks: int, replications: int) -> float:
    """Share of runs of six identical models that separate any two, looked at after each task."""
    names = [f"m{row}" for row in range(6)]
    wrong = 0
    for _ in range(replications):
        monitor = Monitor([RankGoal(cells=tuple(names))], lo=0.0, hi=1.0, alpha=0.05, tasks=tasks)
        rates = task_rates(rng, 0.6, 0.5, (tasks,))
        values = (rng.random((6, tasks)) < rates).astype(float)
        for task in range(tasks):
            for name, row in zip(names, values, strict=True):
                monitor.add(name, task, [row[task]])
        wrong += any(low > 1 for low, _ in monitor.ranks().values())
    return wrong / replications


def stopped_comparison(
    rng: np.random.Generator, tasks: int, effect: float, replications: int
) -> tuple[float, float, float]:
    """A comparison that stops once it is decided: share decided, share of false decisions, and coverage of
    the interval at the end."""
    decided = wrong = inside = 0
    for _ in range(replications):
        monitor = Monitor(
            [DifferenceGoal(baseline="a", candidate="b")], lo=0.0, hi=1.0, alpha=0.05, tasks=tasks
        )
        base = rng.beta(2, 2, tasks) * (1 - effect)
        first, second = (rng.random((2, tasks)) < np.stack([base, base + effect])).astype(float)
        for task in range(tasks):
            monitor.add("a", task, [first[task]])
            monitor.add("b", task, [second[task]])
            if not monitor.undecided():
                break
        estimate = monitor.estimate("a", "b")
        assert estimate.low is not None and estimate.high is not None
        is_decided = not monitor.undecided()
        decided += is_decided
        wrong += is_decided and not estimate.low <= effect <= estimate.high
        inside += estimate.low <= effect <= estimate.high
    return decided / replications, wrong / replications, inside / replications


def level_effect(
    rng: np.random.Generator, seeds: int, share: float, replications: int
) -> tuple[float, float, float]:
    """Coverage of the interval of a level's effect: for other seeds, for these seeds, and for other seeds if
    all pairs of runs were independent.

    An experiment of two levels and six settings, one run of each for each seed. `share` of the variance of
    pairs is due to the seed.
    """
    settings, effect = 6, 1.0
    cells = [(level, str(setting)) for level in ("on", "off") for setting in range(settings)]
    about = Study(
        name="",
        runs=(),
        descriptions=dict.fromkeys(range(len(cells)), ""),
        factors={
            number: {"level": level, "setting": setting} for number, (level, setting) in enumerate(cells)
        },
        planned=0,
    )
    inside = np.zeros(3)
    for _ in range(replications):
        effects = effect + rng.normal(0, math.sqrt(share), seeds)
        noise = rng.normal(0, math.sqrt((1 - share) / 2), (len(cells), seeds))
        values = noise + rng.normal(0, 1, seeds)
        values[:settings] += effects
        runs = tuple(
            RunData(
                run_id=f"{number}-{seed}",
                variation_id=number,
                repeat=seed,
                seed=seed,
                status="completed",
                metrics={"value": float(values[number, seed])},
            )
            for number in range(len(cells))
            for seed in range(seeds)
        )
        contrasts = level_contrasts(replace(about, runs=runs), ["value"])
        (contrast,) = (each for each in contrasts if each.factor == "level" and each.metric)
        alone = adjust(contrast.difference, 1)
        assert alone.low is not None and alone.high is not None
        pairs = values[:settings] - values[settings:]
        reach = float(t_quantile(0.975, pairs.size - 1)) * pairs.std(ddof=1) / math.sqrt(pairs.size)
        inside += [
            alone.low <= effect <= alone.high,
            alone.low <= effects.mean() <= alone.high,
            abs(pairs.mean() - effect) <= reach,
        ]
    others, these, independent = (inside / replications).tolist()
    return others, these, independent


def factorial(
    rng: np.random.Generator,
    seeds: int,
    replications: int,
    *,
    varying: float = 0.0,
    ratings: bool = False,
) -> dict[str, float]:
    """Share of 3 × 2 experiments without effects in which a test finds one at 5%, by test.

    Seeds shift all runs; by `varying` (a standard deviation), they also shift the first factor's levels.
    """
    cells = [(seed, first, second) for seed in range(seeds) for first in range(3) for second in range(2)]
    levels = [str(first) for _, first, _ in cells]
    factors = {"a": levels, "b": [str(second) for *_, second in cells]}
    blocks = [seed for seed, *_ in cells]
    found = dict.fromkeys(("a", "b", "a × b", "ranks", "odds", "labels"), 0.0)
    for _ in range(replications):
        of_seed, of_level = rng.normal(0, 1, seeds), rng.normal(0, varying, (seeds, 3))
        values = np.array([of_seed[s] + of_level[s, a] for s, a, _ in cells]) + rng.normal(0, 1, len(cells))
        if ratings:
            values = np.clip(np.round(3.8 + values), 1, 5)
        rows = {row.source: row for row in anova(values.tolist(), factors, blocks)}
        for name in ("a", "b", "a × b"):
            found[name] += (rows[name].p or 0.0) <= 0.05
        pairs = list(zip(blocks, factors["b"], strict=True))
        ranked = rank_test(values.tolist(), levels, blocks if rows["a"].error != "residual" else pairs)[1]
        found["ranks"] += ranked is not None and ranked <= 0.05
        if ratings:
            (ratio, *_) = odds_model(values.tolist(), factors, blocks).ratios
            found["odds"] += ratio.p is not None and ratio.p <= 0.05
        if not varying and not ratings:
            words = [str(value > 0) for value in values]
            found["labels"] += (association(words, levels, pairs).p or 1.0) <= 0.05
    return {name: number / replications for name, number in found.items()}


def effect_sizes(
    rng: np.random.Generator, seeds: int, effect: float, replications: int
) -> tuple[float, float]:
    """Coverage of Hedges g of paired runs (correlation 0.6), and of an odds ratio of two levels."""
    inside = np.zeros(2)
    for _ in range(replications):
        shared = rng.normal(0, math.sqrt(0.6), seeds)
        first, second = (shared + rng.normal(0, math.sqrt(0.4), seeds) for _ in range(2))
        change = second + effect - first
        limits = hedges_g(change.mean(), change.std(ddof=1) / math.sqrt(seeds), list(first), list(second))
        assert limits is not None
        inside[0] += limits[1] <= effect <= limits[2]
        latent = rng.logistic(size=2 * seeds) + np.repeat([0.0, effect], seeds)
        values = np.digitize(latent, [-1.0, 0.0, 1.0]).astype(float).tolist()
        model = odds_model(values, {"a": ["0"] * seeds + ["1"] * seeds}, [*range(seeds)] * 2)
        (ratio,) = model.ratios
        inside[1] += ratio.low is not None and ratio.low <= math.exp(effect) <= (ratio.high or math.inf)
    return inside[0] / replications, inside[1] / replications


RATINGS = {
    "middle": (0.1, 0.2, 0.4, 0.2, 0.1),
    "near ceiling": (0.02, 0.03, 0.05, 0.2, 0.7),
    "both ends": (0.4, 0.1, 0.0, 0.1, 0.4),
}
"""Shares of the ratings from 1 to 5."""
HIGHER = (0.05, 0.1, 0.25, 0.4, 0.2)


def rating_difference(
    rng: np.random.Generator,
    runs: int,
    before: Sequence[float],
    after: Sequence[float],
    replications: int,
    *,
    paired: bool,
    method: str = "permutation",
) -> tuple[float, float]:
    """Share of differences of ratings from 1 to 5 with p ≤ 0.05, and share of intervals that cover."""
    truth = float(np.dot(np.arange(1, 6), np.subtract(after, before)))
    scale = {} if method == "t" else {"lo": 1.0, "hi": 5.0}
    significant = inside = 0
    for _ in range(replications):
        sides = (rng.choice(5, size=runs, p=shares) + 1.0 for shares in (before, after))
        found = difference(*sides, paired=paired, permuted=method == "permutation", **scale)
        significant += found.p is not None and found.p <= 0.05
        inside += found.low is not None and found.low <= truth <= (found.high or math.inf)
    return significant / replications, inside / replications


def ever_missed(
    rng: np.random.Generator,
    share: float,
    *,
    items: int,
    spread: float = 0.0,
    replications: int = 300,
    limits: Callable[[int, int], Rate] = anytime_rate,
) -> float:
    """Share of runs in which the interval of a success rate misses the rate at some look.

    One looks after every fifth item. With a `spread`, the items differ in difficulty, and the rate is the
    mean probability of the items so far.
    """
    known = cache(limits)
    missed = 0
    for _ in range(replications):
        rates = np.clip(share + rng.uniform(-spread, spread, items), 0, 1)
        successes = np.cumsum(rng.random(items) < rates)
        truth = np.cumsum(rates) / np.arange(1, items + 1)
        for looked in range(4, items, 5):
            rate = known(int(successes[looked]), looked + 1)
            if not (rate.low or 0.0) <= truth[looked] <= (1.0 if rate.high is None else rate.high):
                missed += 1
                break
    return missed / replications


def drift(
    rng: np.random.Generator, before: float, after: float, *, change: int, sessions: int, replications: int
) -> tuple[float, float, float]:
    """A rate that changes after some sessions, looked at after each (alpha 5%): share of lines crossed before
    the change, share crossed after it, and the median number of sessions from the change to the crossing."""
    early, delays = 0, list[float]()
    for _ in range(replications):
        monitor = DriftMonitor(DriftSettings(alpha=0.05))
        rates = np.where(np.arange(sessions) < change, before, after)
        values = (rng.random(sessions) < rates).astype(float).tolist()
        for start in range(0, sessions, BLOCK):
            # Each observation of a block is a look: a mean that is excluded once stays excluded.
            if crossing := monitor.add(values[start : start + BLOCK]):
                early += crossing.position <= change
                if crossing.position > change:
                    delays.append(crossing.position - change)
                break
    delay = float(np.median(delays)) if delays else float("nan")
    return early / replications, len(delays) / replications, delay


def main(replications: int) -> None:
    """Print every table."""
    started = time.perf_counter()
    fewer = max(100, replications // 10)

    def table(title: str, rows: dict[str, Sequence[object]]) -> None:
        print(f"\n{title}")
        for name, cells in rows.items():
            texts = [f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in cells]
            print(f"  {name:44}" + "".join(f"{text:>9}" for text in texts))

    def rng() -> np.random.Generator:
        return np.random.default_rng(20)

    sizes = (2, 3, 5, 8, 15, 30, 80)
    worst: Callable[[int, str], float] = lambda tasks, method: min(  # noqa: E731
        rate(rng(), tasks, r, mu, icc, replications, method)[0]
        for r in (1, 3, 5)
        for mu in (0.1, 0.5, 0.9)
        for icc in (0.0, 0.3, 0.5, 0.8)
    )
    table(
        "Success rate, tasks like these: worst coverage over repeats, rates and correlations",
        {
            "tasks": sizes,
            "plus": [worst(tasks, "plus") for tasks in sizes],
            "t on task means": [worst(tasks, "t") for tasks in sizes],
            "unequal repeats, plus": [
                min(
                    rate_with_unequal_repeats(rng(), tasks, mu, icc, replications)
                    for mu in (0.1, 0.5, 0.9)
                    for icc in (0.3, 0.8)
                )
                for tasks in sizes
            ],
        },
    )
    table(
        "Success rate, these tasks: coverage of Wilson over runs (3 repeats, correlation 0.5)",
        {"tasks": sizes, "coverage": [rate_of_these_tasks(rng(), t, 3, 0.5, 0.5, fewer) for t in sizes]},
    )
    table(
        "Mean score on a coarse scale: coverage",
        {"tasks": sizes[2:]}
        | {
            f"{name}, {method}": [score(rng(), t, shares, replications, method)[0] for t in sizes[2:]]
            for name, shares in COARSE.items()
            for method in ("plus", "t")
        },
    )
    kinds, cost_sizes = ("lognormal 1.0", "lognormal 1.5", "gamma", "rare"), (5, 8, 15, 30, 80)
    simulations = {"bill": arithmetic_mean_cost, "typical": typical_cost, "ratio": cost_ratio}
    table(
        "Mean cost (bill), typical cost and ratio of costs: coverage",
        {"tasks": cost_sizes}
        | {
            f"{name}, {kind}": [simulate(rng(), t, kind, fewer) for t in cost_sizes]
            for name, simulate in simulations.items()
            for kind in kinds
        },
    )
    table(
        "Cost per success: coverage, share without an upper limit",
        {"tasks": (5, 8, 15, 30)}
        | {
            f"rate {mu}, {what}": [cost_per_success(rng(), t, mu, fewer)[part] for t in (5, 8, 15, 30)]
            for mu in (0.5, 0.2)
            for part, what in enumerate(("coverage", "open above"))
        },
    )
    table(
        "Paired difference of success rates: coverage",
        {"tasks": sizes[2:]}
        | {
            f"{a} to {b}, {r} repeats, {method}": [
                paired_difference(rng(), t, r, a, b, replications, method)[0] for t in sizes[2:]
            ]
            for a, b in ((0.6, 0.6), (0.9, 0.8), (0.6, 0.4))
            for r in (1, 3)
            for method in ("plus", "t")
        },
    )
    designs = ((5, 5), (8, 8), (15, 15), (30, 30), (10, 40), (80, 80))
    table(
        "Unpaired difference: worst coverage",
        {
            "tasks": ["+".join(map(str, design)) for design in designs],
            "plus, Welch": [
                min(
                    unpaired_difference(rng(), design, r, mu, replications)
                    for r in (1, 3)
                    for mu in ((0.5, 0.5), (0.9, 0.9), (0.9, 0.7), (0.95, 0.95))
                )
                for design in designs
            ],
        },
    )
    table(
        "pass^k and pass@k, 5 repeats: coverage",
        {"tasks": sizes[2:]}
        | {
            f"{'pass^' if every else 'pass@'}{k}, rate {mu}": [
                pass_k(rng(), t, k, mu, replications, every=every) for t in sizes[2:]
            ]
            for every in (True, False)
            for mu in (0.5, 0.9)
            for k in (2, 3, 5)
        },
    )
    gate_sizes = (2, 5, 8, 15, 30, 80, 200, 400)
    table(
        "Gate, margin 0.02, steps of 1/3: share of false passes (nominal 0.025)",
        {"tasks": gate_sizes}
        | {
            f"{truth}, {method}": [
                gate_passes(rng(), t, truth, replications, method=method) for t in gate_sizes
            ]
            for truth in GATE_TRUTHS
            for method in ("plus", "t")
        }
        | {
            f"{truth}, whole rule": [gate_passes(rng(), t, truth, fewer, method="gate") for t in gate_sizes]
            for truth in GATE_TRUTHS
        },
    )
    table(
        "Gate with errors on the hardest 40% of tasks, margin 0.1: passes with errors dropped, whole rule",
        {str(t): gate_with_errors(rng(), t, fewer) for t in (30, 80, 200)},
    )
    table(
        "Six identical models: share of rankings with a false separation (success, scores)",
        {
            f"{t} tasks, {r} repeats": [
                false_separation(rng(), t, r, kind, fewer) for kind in ("success", "coarse")
            ]
            for t, r in ((2, 3), (5, 3), (15, 3), (30, 5), (80, 5))
        },
    )
    table(
        "Ten metrics without an effect: share of pages with a false finding (adjusted, raw)",
        {str(t): family_errors(rng(), t, fewer) for t in (8, 15, 30, 80)},
    )
    table(
        "Tasks needed, from a pilot, for a difference of 0.1: power reached",
        {str(pilot): [tasks_needed_power(rng(), pilot, 0.1, 3, fewer)] for pilot in (10, 20, 40)},
    )
    table(
        "Tasks that would decide a comparison of an observed difference: share decided, share that say it",
        {
            f"{pilot} tasks, effect {effect}": more_tasks_decide(rng(), pilot, effect, fewer)
            for pilot in (20, 40, 80)
            for effect in (0.05, 0.1, 0.2)
        }
        | {
            f"{pilot} tasks, effect {effect}, as observed": more_tasks_decide(
                rng(), pilot, effect, fewer, near=1.5
            )
            for pilot in (20, 40, 80)
            for effect in (0.05, 0.1, 0.2)
        },
    )
    table(
        "About so many more tasks would decide a running run of two models: share of undecided runs that "
        "state it, share that these decide, tasks taken as a multiple (10%, 50%, 90%; 5: undecided)",
        {
            f"{pilot} tasks, effect {effect}": more_tasks_separate(
                rng(), pilot, effect, max(60, fewer // 8), most=5
            )
            for effect in (0.2, 0.1, 0.05)
            for pilot in (20, 50, 100)
        },
    )
    table(
        "Stopped once decided, looked at after each task: six identical models with a false separation",
        {f"{t} tasks": [stopped_ranks(rng(), t, fewer)] for t in (30, 100)},
    )
    table(
        "A comparison stopped once decided: share decided, false decisions, coverage (nominal 0.95)",
        {
            f"up to {t} tasks, effect {effect}": stopped_comparison(rng(), t, effect, fewer)
            for t in (50, 150)
            for effect in (0.0, 0.1, 0.2, 0.3)
        },
    )
    table(
        "A success rate looked at after every fifth of 400 items: share of runs with a miss (nominal 0.05)",
        {
            f"{share}, {name}": [
                ever_missed(rng(), share, items=400, spread=each, limits=limits) for each in (0.0, 0.3)
            ]
            for share in (0.05, 0.5, 0.9)
            for name, limits in (("anytime", anytime_rate), ("Wilson", wilson))
        },
    )
    shares = (0.0, 0.1, 0.3, 0.6)
    effects = {seeds: [level_effect(rng(), seeds, share, fewer) for share in shares] for seeds in (4, 6, 20)}
    kinds_of_coverage = ("other seeds", "these seeds", "other seeds, pairs as independent")
    table(
        "Effect of a level in an experiment, by the share of the variance of pairs due to the seed: coverage",
        {"share": shares}
        | {
            f"{seeds} seeds: {kind}": [cell[part] for cell in cells]
            for seeds, cells in effects.items()
            for part, kind in enumerate(kinds_of_coverage)
        },
    )
    table(
        "Drift, alpha 0.05, each session a look: crossed before a change after 400 sessions, crossed within "
        "1600 sessions after it, median delay in sessions",
        {
            f"{before} to {after}": drift(
                rng(), before, after, change=400, sessions=2000, replications=max(40, fewer // 4)
            )
            for before, after in (
                (0.5, 0.5),
                (0.8, 0.8),
                (0.95, 0.95),
                (0.9, 0.8),
                (0.9, 0.7),
                (0.9, 0.5),
                (0.8, 0.6),
                (0.6, 0.9),
            )
        },
    )
    seconds = time.perf_counter() - started
    print(f"\n{replications} replications ({fewer} where each is a call), {seconds:.0f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4000)
