"""What races and checks of `stop_when` cost, and how often they err: simulated, and on a table of results.

    python benchmarks/adaptive.py                       pick and check on simulated models, in minutes
    python benchmarks/adaptive.py --table RESULTS.csv   replay real results: columns model, task, passed

Simulated: the success of a model on a task has a Beta distribution with the model's mean and the correlation
ICC between runs of a task; how difficult a task is for two models is correlated (normal copula, 0.75). The
boundaries and stakes are those of `proctor.stats.adaptive`, applied to many runs at once.
"""

import argparse
import csv
import math
from collections import defaultdict
from pathlib import Path

import numpy as np
from scipy.stats import beta, norm

from proctor.stats.adaptive import (
    FEWEST_TASKS,
    STAKES,
    SUCCESS_WEIGHT,
    boundary_of,
    check_limit,
    race_constant,
    variance_of,
)

SHARED = 0.75
"""Correlation between models of how difficult a task is."""


def chances(rng, runs, tasks, means, icc):
    """The chance of success by run, model and task."""
    shared = rng.standard_normal((runs, 1, tasks))
    own = rng.standard_normal((runs, len(means), tasks))
    uniform = norm.cdf(math.sqrt(SHARED) * shared + math.sqrt(1 - SHARED) * own)
    scale = 1 / icc - 1
    return np.stack(
        [beta.ppf(uniform[:, at], mean * scale, (1 - mean) * scale) for at, mean in enumerate(means)], axis=1
    )


def races(outcomes, tolerance):
    """The model that each race names (-1: open), and its runs; outcomes by run, model, task and repeat."""
    runs, models, tasks, repeats = outcomes.shape
    constant = race_constant(models)
    sums = np.zeros((runs, models, tasks))
    total, squares = np.zeros((2, runs, models, models))
    is_in, paid, named = np.ones((runs, models), dtype=bool), np.zeros(runs), np.full(runs, -1)
    for position in range(tasks * repeats):
        task, repeat = position % tasks, position // tasks
        is_open = named < 0
        if not is_open.any():
            break
        before = sums[:, :, task] / max(repeat, 1)
        sums[:, :, task] += outcomes[:, :, task, repeat]
        after = sums[:, :, task] / (repeat + 1)
        old, new = (values[:, :, None] - values[:, None, :] for values in (before, after))
        total += new - old if repeat else new
        squares += new**2 - old**2 if repeat else new**2
        paid += np.where(is_open, is_in.sum(axis=1), 0)
        seen = min(position + 1, tasks)
        if seen < FEWEST_TASKS:
            continue
        boundary = boundary_of(total, squares, seen, tolerance, constant, SUCCESS_WEIGHT)
        leads = (total >= boundary) & (total > 0) & is_in[:, :, None] & is_in[:, None, :]
        out = leads.any(axis=1) & is_open[:, None]
        none_left = (is_in & ~out).sum(axis=1) == 0
        best = np.where(is_in, sums.sum(axis=2), -1).argmax(axis=1)
        out[none_left, best[none_left]] = False
        is_in &= ~out
        is_last = is_open & (is_in.sum(axis=1) == 1)
        named[is_last] = is_in[is_last].argmax(axis=1)
    return named, paid


def checks(differences, margin, limit):
    """1: pass, -1: fail, 0: open; and the tasks that were read, of differences by run and task."""
    runs, tasks = differences.shape
    total, squares = np.zeros(runs), np.zeros(runs)
    wealth = np.zeros((2, len(STAKES), runs))
    verdict, read = np.zeros(runs, dtype=int), np.zeros(runs)
    for task in range(tasks):
        is_open = verdict == 0
        if not is_open.any():
            break
        difference = differences[:, task]
        variance = variance_of(total, squares, task, SUCCESS_WEIGHT)
        for at, stake in enumerate(STAKES):
            rate = stake * margin / variance
            wealth[0, at] += np.log1p(np.minimum(rate, 0.9 / (1 - margin)) * (difference + margin))
            wealth[1, at] += np.log1p(-np.minimum(rate, 0.9) * difference)
        evidence = np.logaddexp(wealth[:, 0], wealth[:, 1]) - math.log(2)
        total, squares = total + difference, squares + difference**2
        read += is_open
        verdict[is_open & (evidence[0] >= limit)] = 1
        verdict[is_open & (verdict == 0) & (evidence[1] >= limit)] = -1
    return verdict, read


def simulated_races(runs, seed):
    """Runs and errors of `pick` by number of models and gap."""
    print(f"\npick, one repeat, ICC 0.5, best model 0.6, others lower by the gap, {runs} races a row")
    print("models  gap   tolerance  runs   open   wrong")
    rng = np.random.default_rng(seed)
    for models in (2, 6):
        for tolerance in (0.1, 0.05):
            for gap in (0.0, 0.05, 0.1, 0.2, 0.3):
                tasks = 1600 if tolerance == 0.05 else 600
                count = max(100, runs // (1 if models == 2 else 3) // (4 if tolerance == 0.05 else 1))
                means = [0.6] + [0.6 - gap] * (models - 1)
                probability = chances(rng, count, tasks, means, 0.5)
                named, paid = races((rng.random(probability.shape) < probability)[..., None], tolerance)
                wrong = (named > 0).mean() if gap >= tolerance else math.nan
                unnamed = (named < 0).mean()
                print(
                    f"{models:>6}  {gap:<5g} {tolerance:<9g} {paid.mean():>6.0f}  {unnamed:.3f}  {wrong:.3f}"
                )


def simulated_checks(runs, seed):
    """Runs and errors of `check` by the candidate's difference."""
    print(f"\ncheck, ICC 0.5, baseline 0.6, {runs} checks a row (a task is two runs)")
    print("candidate      margin  tasks  pass   fail")
    rng = np.random.default_rng(seed)
    for margin in (0.1, 0.05):
        for name, factor in (("worse by 2m", -2), ("worse by m", -1), ("equal", 0), ("better by m", 1)):
            tasks, count = (1500, runs) if margin == 0.1 else (5000, max(100, runs // 4))
            probability = chances(rng, count, tasks, [0.6, 0.6 + factor * margin], 0.5)
            outcomes = (rng.random(probability.shape) < probability).astype(float)
            verdict, read = checks(outcomes[:, 1] - outcomes[:, 0], margin, check_limit(1, 1))
            passed, failed = (verdict > 0).mean(), (verdict < 0).mean()
            print(f"{name:<13}  {margin:<6g}  {read.mean():>5.0f}  {passed:.3f}  {failed:.3f}")


def replayed(path, runs, seed, tolerances=(0.1, 0.05)):
    """Races of random sets of models on suites that are drawn from a table of results."""
    cells = defaultdict(list)
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            cells[row["model"], row["task"]].append(float(row["passed"]))
    models = sorted({model for model, _ in cells})
    tasks = sorted({task for _, task in cells})
    share = np.array([[np.mean(cells.get((model, task), [0.0])) for task in tasks] for model in models])
    repeats = min(len(values) for values in cells.values())
    print(f"\n{path.name}: {len(models)} models, {len(tasks)} tasks, {repeats} repeats; {runs} races a row")
    print("models  tolerance  full   runs           open   wrong")
    rng = np.random.default_rng(seed)
    truth = share.mean(axis=1)
    for count in (2, 6):
        if count > len(models):
            continue
        for tolerance in tolerances:
            chosen = np.array([rng.choice(len(models), count, replace=False) for _ in range(runs)])
            suite = rng.integers(len(tasks), size=(runs, 1, len(tasks)))
            probability = share[chosen[:, :, None], suite][..., None]
            shape = (runs, count, len(tasks), repeats)
            named, paid = races(rng.random(shape) < probability, tolerance)
            means = truth[chosen]
            lost = means.max(axis=1) - means[np.arange(runs), np.maximum(named, 0)]
            wrong = ((named >= 0) & (lost > tolerance + 1e-12)).mean()
            full = count * len(tasks) * repeats
            print(
                f"{count:>6}  {tolerance:<9g}  {full:<5}  {paid.mean():>5.0f} ({paid.mean() / full:.2f})   "
                f"{(named < 0).mean():.3f}  {wrong:.3f}"
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=2000, help="simulated runs of each row")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--table", type=Path, action="append", default=[], help="CSV with model, task, passed"
    )
    options = parser.parse_args()
    for path in options.table:
        replayed(path, options.runs, options.seed)
    if not options.table:
        simulated_races(options.runs, options.seed)
        simulated_checks(options.runs, options.seed)


if __name__ == "__main__":
    main()
