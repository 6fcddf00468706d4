"""Figures of fixed data to nine digits: no change of a formula, a constant or a seed goes unnoticed.

Other tests show that the figures are right. What is recorded may differ by rounding on another machine, so
`pinned_figures.json` is compared figure by figure.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmark_runs import run
from comparisons import compare_runs, compare_within, groups_of_runs
from proctor.batch.estimate import Group, predict_total
from proctor.jobs.benchmark import leaderboard
from proctor.jobs.dialogue.results import analysis
from proctor.jobs.evaluation import evaluator_results
from proctor.results.loading import load_results
from proctor.stats import (
    agreement,
    classical,
    comparison,
    differences,
    drift,
    experiment,
    figures,
    intervals,
    power,
    samples,
    sequential,
    variance,
)
from proctor.stats.calibration import CalibrationPair, JudgedTargetPair, LabelValue, calibrate
from proctor.stats.corrected_means import corrected_mean
from proctor.stats.ranking import ranks, table_of, undominated
from proctor.store import Store, StoreReader
from proctor.store.imported_runs import ImportedFile, TableOutcome
from recorded_files import is_recording

RECORDED = Path(__file__).with_name("pinned_figures.json")
PROSE = {"note", "reason", "scope", "needs_words", "remarks", "text"}
"""Sentences for people: only whether there is one is recorded."""

TASKS = [f"t{index // 3}" for index in range(24)]
PASSED = [1, 1, 0, 1, 0, 0, 1, 1, 1, 0, 0, 0, 1, 0, 1, 1, 1, 0, 0, 1, 0, 1, 1, 1]
BETTER = [1, 1, 1, 1, 0, 1, 1, 1, 1, 0, 1, 0, 1, 1, 1, 1, 1, 0, 1, 1, 0, 1, 1, 1]
SCORES = [0.62, 0.55, None, 0.9, 0.85, 0.8, 0.1, 0.3, 0.2, 0.45, 0.5, 0.4, 0.95, 1.0, 0.9, 0.0, 0.05, 0.1]
SCORES += [0.7, 0.65, 0.75, 0.33, 0.31, 0.4]
OTHER = [0.7, 0.6, 0.66, 0.92, 0.8, None, 0.25, 0.35, 0.15, 0.5, 0.55, 0.5, 0.99, 1.0, 0.95, 0.1, 0.0, 0.2]
OTHER += [0.72, 0.8, 0.7, 0.3, 0.45, 0.5]
COSTS = [0.12, 0.5, 0.08, 1.9, 0.33, 0.21, 0.6, 0.05, 4.2, 0.9, 0.14, 0.27, 0.0, 0.41, 0.75, 0.18, 2.4, 0.36]
COSTS += [0.22, 0.09, 1.1, 0.3, 0.47, 0.16]
DEARER = [cost * (1.3 if index % 4 else 0.8) + 0.01 for index, cost in enumerate(COSTS)]
LEVELS = ("bad", "fair", "good", "best")
FIRST = [LEVELS[index * 7 % 11 % 4] for index in range(20)]
SECOND = [LEVELS[(index * 7 % 11 + (index % 5 == 0)) % 4] for index in range(20)]
UNITS = [index // 2 for index in range(20)]


def plain(value: object) -> Any:
    """A result as JSON, its numbers to nine significant digits."""
    if is_dataclass(value) and not isinstance(value, type):
        named = {field.name: getattr(value, field.name) for field in fields(value)}
        return {name: bool(each) if name in PROSE else plain(each) for name, each in named.items()}
    if isinstance(value, Mapping):
        return {str(key): bool(each) if key in PROSE else plain(each) for key, each in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, np.generic):
        value = value.item()
    return float(f"{value:.9g}") if isinstance(value, float) else value


def crossed(
    tasks: int, models: Sequence[str], repeats: int, *, holes: bool = False
) -> list[dict[str, object]]:
    """Scores of models on tasks, with effects of task, model and their combination."""
    rng = np.random.default_rng(4)
    rows = [
        {
            "task": f"t{task}",
            "model": model,
            "judge": f"j{repeat % 2}",
            "score": round(0.5 + 0.1 * place + 0.07 * (task % 5) + 0.05 * rng.standard_normal(), 4),
        }
        for task in range(tasks)
        for place, model in enumerate(models)
        for repeat in range(repeats)
    ]
    return [row for index, row in enumerate(rows) if not (holes and index % 7 == 3)]


def judged(*, repeats: int = 1, labels: bool = True, targets: int = 20) -> list[JudgedTargetPair]:
    """What two people and a judge gave to targets, two of a session."""

    def given(index: int, shift: int) -> LabelValue:
        place = (index * 7 % 11 + shift) % 4
        return LabelValue(label=LEVELS[place]) if labels else LabelValue(value=place / 3)

    return [
        JudgedTargetPair(
            session=f"s{index // 2}",
            target=str(index % 2),
            human={"ann": given(index, 0), "bob": given(index, int(index % 6 == 0))},
            machine=[given(index, int((index + repeat) % 4 == 0)) for repeat in range(repeats)],
            position=index % 2,
            length=100 + 13 * index,
        )
        for index in range(targets)
    ]


def followed(sequence: Any, values: Iterable[float]) -> list[Any]:
    """The interval after each value."""
    return [sequence.add(value).interval() for value in values]


def monitored(**options: Any) -> list[Any]:
    """The decisions while three models work through sixty tasks."""
    goals = [
        sequential.DifferenceGoal(baseline="a", candidate="b"),
        sequential.DifferenceGoal(baseline="a", candidate="c", margin=0.1),
        sequential.WidthGoal(cell="a", width=0.3),
        sequential.RankGoal(cells=("a", "b", "c"), places=1),
    ]
    monitor = sequential.Monitor(goals, **options)
    rng, results = np.random.default_rng(2), []
    for position in range(60):
        for cell, center in (("a", 0.4), ("b", 0.75), ("c", 0.45)):
            repeats = [round(float(np.clip(center + 0.2 * rng.standard_normal(), 0.01, 1)), 3) for _ in "12"]
            monitor.add(cell, position, [*repeats, None] if position % 9 == 0 else repeats)
        if position % 10 == 9:
            pairs = [
                monitor.estimate("a"),
                monitor.estimate("b", errors_fail=True),
                monitor.estimate("a", "b"),
            ]
            results.append([monitor.decisions(), monitor.undecided(), monitor.ranks(), pairs])
    return results


def separation(gap: float, **options: Any) -> list[int | None]:
    """The tasks that would separate two cells, after more and more of them."""
    monitor = sequential.Monitor([sequential.RankGoal(cells=("a", "b"), places=1)], **options)
    projected = []
    for position, score in enumerate(MORE_SCORES):
        monitor.add("a", position, [0.01 + 0.8 * score])
        monitor.add("b", position, [0.01 + 0.8 * MORE_OTHER[position * 7 % 60] + gap])
        if position in (4, 9, 19, 39, 59):
            projected.append(monitor.tasks_to_separate("a", "b"))
    return projected


def difference(**options: Any) -> differences.Difference:
    return differences.difference(PASSED, BETTER, TASKS, lo=0.0, hi=1.0, **options)


def pilot(items: int, seed: int = 5) -> list[float]:
    return [round(value, 4) for value in np.random.default_rng(seed).lognormal(0, 1, items).tolist()]


DRIFTING = [float(index * 7 % 10 < (8 if index < 150 else 3)) for index in range(300)]
DRIFTING += [0.8 + 0.02 * (index % 5) for index in range(150)]


def drifted(
    settings: drift.DriftSettings,
    values: Sequence[float],
    *,
    chunk: int = 25,
    latest: tuple[float, float] | None = None,
) -> list[object]:
    """The crossings of a series, its points, and the last interval."""
    monitor = drift.DriftMonitor(settings, latest=latest)
    crossings = [monitor.add(values[start : start + chunk]) for start in range(0, len(values), chunk)]
    points = monitor.points[:: max(1, len(monitor.points) // 6)]
    return [[each for each in crossings if each], points, monitor.interval(), monitor.clipped]


def seeded_study(seeds: int, shift: float) -> experiment.Study:
    """Two factors and several seeds: the effect of one varies with the seed."""
    cells = [(tone, pace, seed) for tone in (0, 1) for pace in (0, 1, 2) for seed in range(seeds)]
    runs = [
        experiment.RunData(
            run_id=f"{tone}{pace}{seed}",
            variation_id=1 + tone * 3 + pace,
            repeat=seed + 1,
            seed=seed + 7,
            status="completed",
            metrics={"trust": tone * (0.4 + shift * (seed % 3)) + score},
        )
        for tone, pace, seed in cells
        for score in [MORE_SCORES[(tone * 17 + pace * 5 + seed * 3) % 60]]
    ]
    return experiment.Study(
        name="study",
        runs=tuple(runs),
        descriptions={},
        factors={1 + tone * 3 + pace: {"tone": "ab"[tone], "pace": "xyz"[pace]} for tone, pace, _ in cells},
        planned=len(runs),
        metrics=("trust",),
    )


UNPAIRED = {"paired": False, "lo": 0.0, "hi": 1.0}
FIGURES: dict[str, Callable[[], object]] = {
    # Means
    "mean of shares": lambda: intervals.mean(PASSED, TASKS, lo=0, hi=1),
    "mean of shares of these tasks": lambda: intervals.mean(PASSED, TASKS, lo=0, hi=1, scope="these"),
    "mean of scores": lambda: intervals.mean(SCORES, TASKS, lo=0, hi=1, level=0.9),
    "mean of scores of these tasks": lambda: intervals.mean(SCORES, TASKS, scope="these", level=0.9),
    "typical": lambda: [intervals.geometric_mean(COSTS[:n], TASKS[:n]) for n in (5, 9, 24)],
    "per success": lambda: [
        intervals.per_success(COSTS, PASSED, TASKS),
        intervals.per_success(COSTS[:12], PASSED[:12], level=0.8),
        intervals.per_success(COSTS, [0] * 24, TASKS),
    ],
    "pass hat": lambda: [intervals.pass_hat([0, 1, 2, 3, 4, 2], [4, 4, 5, 4, 4, 3], k) for k in (1, 2, 3)],
    "sample_std": lambda: [intervals.sample_std(n, 6.0, 14.0) for n in (1, 2, 3, 4)],
    # Differences
    "difference of shares": difference,
    "difference of scores": lambda: differences.difference(SCORES, OTHER, TASKS, span=1.0),
    "difference of numbers": lambda: differences.difference(COSTS, DEARER, TASKS),
    "difference of unpaired": lambda: differences.difference(
        PASSED, BETTER[:15], task_a=TASKS, task_b=TASKS[9:], **UNPAIRED
    ),
    "difference of unpaired numbers": lambda: differences.difference(COSTS, DEARER[:9], paired=False),
    "difference of common tasks": lambda: differences.difference(
        SCORES[:18], OTHER[6:], task_a=TASKS[:18], task_b=TASKS[6:], lo=0.0, hi=1.0
    ),
    "difference that is constant": lambda: differences.difference([0.0] * 9, [1.0] * 9, lo=0.0, hi=1.0),
    "ratio": lambda: [differences.ratio(COSTS, DEARER, TASKS), differences.ratio(DEARER, COSTS, family=3)],
    "adjust": lambda: [differences.adjust(difference(), size) for size in (1, 2, 10)],
    "holm": lambda: differences.holm([0.01, 0.04, None, 0.03, 0.005, 0.9]),
    # Power
    "variation": lambda: [
        power.variation(PASSED, BETTER, TASKS, lo=0.0, hi=1.0),
        power.variation(SCORES, None, TASKS, correlation=0.3),
        power.variation(COSTS),
    ],
    "tasks needed": lambda: (
        [power.tasks_needed(PASSED, BETTER, TASKS, detect=detect, lo=0.0, hi=1.0) for detect in (0.05, 0.2)]
        + [
            power.tasks_needed(
                SCORES, OTHER, TASKS, detect=0.1, repeats=repeats, assurance=assurance, family=2
            )
            for repeats in (1, 4)
            for assurance in (None, 0.9)
        ]
        + [power.tasks_needed(SCORES, None, TASKS, detect=0.1, task_cost=2.0, run_cost=0.5)]
    ),
    "fewest for a gate": lambda: [power.tasks_for_gate(margin) for margin in (0.01, 0.05, 0.2, 0.5)],
    "detectable": lambda: [
        power.detectable(PASSED, BETTER, TASKS, lo=0.0, hi=1.0),
        power.detectable(SCORES, OTHER, TASKS, tasks=50, repeats=2, family=3),
        power.detectable(COSTS, None, TASKS, tasks=20),
    ],
    "smallest detectable": lambda: [power.smallest_detectable(0.1, df) for df in (1, 3.5, 30)],
    # Tests of the literature
    "factor test": lambda: (
        [
            classical.factor_test(COSTS[:12], base, added)
            for base in ([()] * 12, [[float(index % 2)] for index in range(12)])
            for added in (
                [[-1.0 if index % 3 else 2.0] for index in range(12)],
                [[1e-9 * index, 1e9 * (index % 5)] for index in range(12)],
                [[1.0, 0.0] for _ in range(12)],
                [[float(index == place) for place in range(12)] for index in range(12)],
            )
        ]
        + [
            classical.factor_test([0.0, 0.0, 1.0, 1.0], [()] * 4, [[0], [0], [1], [1]]),
            classical.factor_test([2.0] * 4, [()] * 4, [[0], [0], [1], [1]]),
        ]
    ),
    # Samples
    "sample": lambda: [
        (each.means, each.counts, each.sums, each.within, each.left_out)
        for each in (
            samples.sample(SCORES, TASKS),
            samples.sample(COSTS),
            samples.sample([None, 1.0], ["a", "a"]),
        )
    ],
    # Ranks
    "ranks": lambda: [
        ranks(table_of("abc" * 8, [t for t in TASKS[::3] for _ in "abc"], values), **options)
        for values, options in (
            (PASSED, {"lo": 0.0, "hi": 1.0}),
            (SCORES, {"higher_is_better": False}),
            (DEARER, {"log": True, "higher_is_better": False, "level": 0.8}),
        )
    ],
    "undominated": lambda: undominated({"a": (1, 2), "b": (2, 1), "c": (0, 1), "d": (1, 2)}),
    # Agreement
    # Judges
    "calibrate three labels": lambda: calibrate(
        [
            replace(pair, human=human, machine=[LabelValue(label=LEVELS[place * 3 % 8 % 3])])
            for place, pair in enumerate(judged(targets=40))
            for human in [
                {who: LabelValue(label=LEVELS[(place * 5 + len(who)) % 7 % 3]) for who in ("a", "bo")}
            ]
        ],
        order=LEVELS[:3],
    ),
    # Variance
    "components": lambda: variance.components(
        crossed(6, ("a", "b", "c"), 2), ["task", "model"], "score", draws=200
    ),
    "mixed model with holes": lambda: variance.mixed_model(
        crossed(6, ("a", "b"), 4, holes=True),
        "score",
        fixed=["model"],
        random=["task", "judge"],
        contrasts={"gain": {"b": 1.0, "a": -1.0}},
        draws=200,
        level=0.9,
    ),
    # At any time
    "confidence sequence of a scale": lambda: followed(
        sequential.ConfidenceSequence(1.0, 5.0, 0.1), [1 + 4 * (each or 0.5) for each in SCORES[:9]]
    ),
    "asymptotic reach": lambda: [
        sequential.asymptotic_reach(n, alpha) for n in (2, 10, 100, 10_000) for alpha in (0.01, 0.1)
    ],
    "monitor": monitored,
    "monitor of costs": lambda: monitored(ratio=True, higher_is_better=False, alpha=0.1),
    "tasks that would separate": lambda: [
        *(separation(gap) for gap in (0.0, 0.05, 0.15)),
        *(separation(gap, ratio=True, higher_is_better=False) for gap in (0.05, 0.15)),
    ],
    # Predictions
    "predicted total of many": lambda: [
        predict_total([Group(past={"": pilot(n)}, planned={"": 3000})], draws=400) for n in (5, 1500)
    ],
    "predicted total with zeros": lambda: predict_total(
        [
            Group(past={"a": [0.0, 1.0, 2.0, 0.0], "b": [0.0, 0.5, 0.7]}, planned={"a": 5, "b": 7}),
            Group(past={"c": [0.0, 3.0]}, planned={"c": 2}),
        ],
        level=0.8,
        draws=500,
    ),
    "draws are bounded": lambda: predict_total(
        [
            Group(
                past={"a": pilot(4), "b": pilot(3, 1)},
                planned={f"n{k}": 2000 for k in range(9)} | {"a": 4000},
            )
        ]
    ),
}


MANY = range(60)
MORE_SCORES = [round((index * 37 % 101) / 100, 2) for index in MANY]
MORE_OTHER = [round(min(1.0, (index * 37 % 101) / 100 + (index % 7) / 40), 2) for index in MANY]
MORE_TASKS = [f"t{index // 2}" for index in MANY]
SHARES = [float(index % 3 != 1) for index in MANY]
MORE_SHARES = [float(index % 4 != 1 or index % 3 != 1) for index in MANY]
LOPSIDED = ["yes" if index % 10 else "no" for index in MANY]
LESS_LOPSIDED = ["yes" if index % 9 else "no" for index in MANY]
MORE_COSTS = [round(0.05 + (index * 53 % 97) ** 2 / 4000, 4) for index in MANY]
MORE_DEARER = [round(cost * (1.2 if index % 3 else 0.95), 4) for index, cost in enumerate(MORE_COSTS)]
MISSING = [None if index % 5 == 0 else score for index, score in enumerate(MORE_SCORES)]


def brief(result: Any) -> list[Any]:
    """The figures of an estimate or difference, and whether it says why there are none."""
    names = ("value", "low", "high", "sem", "p", "needs", "detectable")
    return [*(getattr(result, name, None) for name in names), bool(result.note)]


def by_size(figure: Callable[[int], Any], sizes: Iterable[int] = range(1, 32)) -> list[list[Any]]:
    """A figure of more and more data: where it begins, and where its method changes."""
    return [brief(figure(size)) for size in sizes]


BY_SIZE: dict[str, Callable[[int], Any]] = {
    "mean": lambda n: intervals.mean(MORE_SCORES[:n], lo=0, hi=1),
    "mean of tasks": lambda n: intervals.mean(SHARES[:n], MORE_TASKS[:n], lo=0, hi=1),
    "mean of these tasks": lambda n: intervals.mean(SHARES[:n], MORE_TASKS[:n], lo=0, hi=1, scope="these"),
    "mean without limits": lambda n: intervals.mean(MORE_COSTS[:n]),
    "typical": lambda n: intervals.geometric_mean(MORE_COSTS[:n]),
    "bill of tasks": lambda n: intervals.mean_cost(MORE_COSTS[:n], MORE_TASKS[:n], resamples=99),
    "per success": lambda n: intervals.per_success(MORE_COSTS[:n], SHARES[:n]),
    "pass at": lambda n: intervals.pass_at([index % 4 for index in range(n)], 4, 2),
    "difference": lambda n: differences.difference(MORE_SCORES[:n], MORE_OTHER[:n], lo=0.0, hi=1.0),
    "difference of tasks": lambda n: differences.difference(
        SHARES[:n], MORE_SHARES[:n], MORE_TASKS[:n], lo=0.0, hi=1.0
    ),
    "difference without limits": lambda n: differences.difference(MORE_COSTS[:n], MORE_DEARER[:n]),
    "unpaired difference": lambda n: differences.difference(MORE_SCORES[:n], MORE_OTHER[: n + 3], **UNPAIRED),
    "difference with missing": lambda n: differences.difference(MISSING[:n], MORE_OTHER[:n], lo=0.0, hi=1.0),
    "ratio": lambda n: differences.ratio(MORE_COSTS[:n], MORE_DEARER[:n]),
}
BY_LARGER_SIZE: dict[str, Callable[[int], Any]] = {
    "kappa": lambda n: agreement.kappa(LOPSIDED[:n], LESS_LOPSIDED[:n]),
    "kappa of units": lambda n: agreement.kappa((FIRST * 3)[:n], (SECOND * 3)[:n], unit=MORE_TASKS[:n]),
    "alpha": lambda n: agreement.alpha(list(zip((FIRST * 3)[:n], (SECOND * 3)[:n], strict=True))),
    "rank correlation": lambda n: agreement.rank_correlation(MORE_COSTS[:n], MORE_SCORES[:n]),
    "log confidence sequence": lambda n: sequential.LogConfidenceSequence().add(*MORE_DEARER[:n]).interval(),
}
for name, figure in BY_SIZE.items():
    FIGURES[f"{name} by size"] = partial(by_size, figure)
for name, figure in BY_LARGER_SIZE.items():
    FIGURES[f"{name} by size"] = partial(by_size, figure, range(1, 60))
FIGURES |= {
    "per success that is rare": lambda: (
        [
            brief(
                intervals.per_success(
                    [1 + (index % 7) / spread for index in range(30)],
                    [float(index % 15 == 2) for index in range(n)],
                )
            )
            for spread in (200, 20, 1)
            for n in (30,)
        ]
        + [
            brief(
                intervals.per_success([1.0, 1.1, 0.9, 1.0, 1.05, 8.0 * far], [1.0, 0.0, 0.0, 0.0, 0.0, 0.0])
            )
            for far in (0.12, 1.0)
        ]
    ),
    "gate by size": lambda: [
        (verdict.verdict, verdict.needs, verdict.fewest)
        for n in range(1, 32)
        for verdict in (
            differences.gate(
                differences.difference(SHARES[:n], MORE_SHARES[:n], lo=0.0, hi=1.0), 0.1, loss=1.0
            ),
        )
    ],
    "calibrate sixty targets": lambda: [
        calibrate(judged(repeats=2, targets=60), order=LEVELS),
        calibrate(judged(repeats=3, labels=False, targets=60), scale=(0.0, 1.0)),
    ],
    "kappa of thirty units": lambda: [
        agreement.kappa(FIRST * 3, SECOND * 3, unit=MORE_TASKS, order=order) for order in ((), LEVELS)
    ],
    "alpha of thirty clusters": lambda: [
        agreement.alpha(
            [[LEVELS.index(word) for word in words] for words in zip(FIRST * 3, SECOND * 3, strict=True)],
            metric,
            cluster=MORE_TASKS,
            level=0.9,
        )
        for metric in ("nominal", "ordinal", "interval")
    ],
    "rank correlation of thirty units": lambda: agreement.rank_correlation(
        MORE_COSTS, MORE_DEARER, unit=MORE_TASKS
    ),
    "corrected mean by pairs": lambda: by_size(
        lambda n: corrected_mean(
            np.asarray(SHARES),
            [
                CalibrationPair(session=str(index), human=SHARES[index], judge=MORE_SHARES[index])
                for index in range(n)
            ],
            lo=0.0,
            hi=1.0,
            evaluated=["3", "4"],
        )
    ),
    "corrected share": lambda: [
        corrected_mean(
            np.asarray([lo + (hi - lo) * share for share in SHARES[:judged_sessions]]),
            [
                CalibrationPair(
                    session=str(index),
                    human=lo + (hi - lo) * human,
                    judge=lo + (hi - lo) * (1 - human if index % 7 == 3 else human),
                )
                for index, human in enumerate([float(index % 5 not in (1, 3)) for index in range(labeled)])
            ],
            lo=lo,
            hi=hi,
            evaluated=evaluated,
            level=level,
        )
        for labeled, judged_sessions in ((20, 60), (45, 60), (60, 12))
        for lo, hi, level in ((0.0, 1.0, 0.95), (1.0, 5.0, 0.8))
        for evaluated in ((), [str(index) for index in range(60)])
    ],
    "confidence sequence of hundreds": lambda: by_size(
        lambda n: sequential.ConfidenceSequence().add(*(MORE_SCORES * 9)[:n]).interval(), (255, 256, 257, 520)
    ),
    "predicted total by size": lambda: [
        predict_total([Group(past={"": MORE_COSTS[:n]}, planned={"": 9})], draws=400) for n in range(1, 12)
    ],
    "predicted total of tasks by number": lambda: [
        predict_total(
            [
                Group(
                    past={f"t{k}": MORE_COSTS[k : k + 2] for k in range(n)}, planned={"t0": 4, "x": 1, "y": 3}
                )
            ],
            draws=400,
        )
        for n in range(1, 10)
    ],
    "variation of sides with tasks of their own": lambda: [
        power.variation(SHARES[:8], MORE_COSTS[:5], task_a=MORE_TASKS[:8], task_b=MORE_TASKS[:5]),
        power.variation(MORE_COSTS[:5], SHARES[:8], task_a=MORE_TASKS[:5], task_b=MORE_TASKS[:8]),
    ],
    "kappa with an order of two labels": lambda: agreement.kappa(
        FIRST * 2, SECOND * 2, order=("good", "bad")
    ),
    "kappa with a label outside of the order": lambda: agreement.kappa(
        FIRST * 2, SECOND * 2, order=LEVELS[:3]
    ),
    "rank correlation of units": lambda: agreement.rank_correlation(
        MORE_COSTS[:45], MORE_SCORES[:45], unit=[index // 2 for index in range(45)], level=0.9
    ),
    "agreement of hundreds": lambda: [
        agreement.kappa(FIRST * 23, SECOND * 23, unit=[index % 430 for index in range(460)]),
        agreement.alpha([[a, b] for a, b in zip(FIRST * 23, SECOND * 23, strict=True)]),
        agreement.rank_correlation(
            [float(index * 7 % 430) for index in range(430)],
            [float(index * 7 % 430 // 3) for index in range(430)],
        ),
    ],
    "alpha of perfect agreement": lambda: agreement.alpha(
        [[index % 3] * 2 for index in range(24)], "interval"
    ),
    "difference with a span": lambda: [
        differences.difference([0.1] * 3 + [0.5] * 6, [0.5] * 3 + [0.4] * 6, lo=0, hi=1, span=span)
        for span in (0.3, 0.4, 0.5)
    ],
    "difference of scores that changed by all of the scale": lambda: differences.difference(
        [1.0] * 8, [5.0] * 4 + [1.0] * 4, lo=1, hi=5
    ),
    "difference by size with its needs": lambda: [
        differences.difference(
            MORE_COSTS[:n], [value * 1.4 + 0.1 for value in MORE_DEARER[:n]], family=family
        )
        for n in (9, 12, 20, 40)
        for family in (1, 4)
    ],
    "variation without spread": lambda: [
        power.variation([0.5] * 6, other, lo=0.0, hi=hi) for other in ([0.5] * 6, None) for hi in (1.0, 2.0)
    ],
    "variation of broken values": lambda: [
        power.variation(one, other)
        for one, other in (
            ([1.0, 2.0, float("nan")], [1.0, 2.0, 3.0]),
            ([1.0, 2.0, 3.0], [1.0, 2.0, float("inf")]),
            ([1.0], [2.0]),
            ([1.0], None),
        )
    ],
    "drift": lambda: [
        drifted(drift.DriftSettings(lo=lo, hi=hi, **options), [lo + (hi - lo) * value for value in DRIFTING])
        for lo, hi in ((0.0, 1.0), (1.0, 5.0))
        for options in (
            {},
            {"alpha": 0.2, "margin": 0.1},
            {"reference": 0.6 * (hi - lo) + lo, "margin": 0.05},
        )
    ],
    "drift of a long line": lambda: drifted(
        drift.DriftSettings(alpha=0.05), [float(index * 7 % 11 > 4) for index in range(1700)], chunk=100
    ),
    "drift on from a crossing": lambda: [
        drifted(drift.DriftSettings(reference=0.5, margin=0.1), values, latest=latest)
        for values in ([0.9] * 100, [0.5] * 100, [0.1] * 100, [0.55] * 150, [0.45] * 150)
        for latest in (None, (0.7, 0.8), (0.1, 0.2), (0.45, 0.55), (0.55, 0.65))
    ],
    "mean of sessions": lambda: [
        evaluator_results.average_of(
            [
                {
                    "n": 1 + index % 2,
                    "valued": 2,
                    "total": 2 * scale[1] * value,
                    "low": value,
                    "high": value * 1.5,
                }
                for index, value in enumerate(MORE_SCORES[:size])
            ],
            noise,
            given,
        )
        for size in (1, 3, 9)
        for noise in (None, evaluator_results.JudgeNoise(vote_variance=0.04, left=0.5))
        for scale, given in (((0.0, 1.0), None), ((0.0, 5.0), (0.0, 5.0)), ((0.0, 9.0), None))
    ],
    "study with several blocks of a seed": lambda: [
        experiment.level_contrasts(seeded_study(seeds, shift), ["trust"])
        for seeds in (3, 8)
        for shift in (0.0, 1.5)
    ],
    "components with one degree of freedom left": lambda: variance.components(
        [{"task": task, "score": score} for task, score in zip("aabc", (0.1, 0.3, 0.9, 0.4), strict=True)],
        ["task"],
        "score",
        draws=50,
    ),
    "components of nested profiles": lambda: variance.components(
        [
            {"client": client, "profile": f"{client}{profile}", "therapist": therapist}
            | {"score": 0.2 * client + MORE_SCORES[(client * 17 + profile * 7 + therapist * 3 + run) % 60]}
            for client in range(5)
            for profile in range(3)
            for therapist in range(4)
            for run in range(2)
        ],
        ["client", "therapist", "profile"],
        "score",
        draws=200,
    ),
    "components of incomplete designs": lambda: [
        variance.components(crossed(tasks, ("a", "b", "c"), 2, holes=True), factors, "score", draws=50)
        for tasks, factors in ((3, ["task", "judge"]), (5, ["task", "model"]), (5, ["model", "task"]))
    ],
    "components by size": lambda: [
        variance.components(crossed(n, ("a", "b"), 2), ["task", "model"], "score", draws=50)
        for n in range(1, 7)
    ],
}


STATUSES = ("success", "success", "fail", "success", "timeout", "error", "success")
NOW = datetime(2026, 5, 1, tzinfo=UTC)


def outcomes(shift: int) -> list[TableOutcome]:
    """Three repeats of nine tasks by three models."""
    return [
        TableOutcome(
            task=f"t{task}",
            model=model,
            repeat=repeat,
            status=STATUSES[(task * 5 + place * 3 + repeat * 2 + shift) % 7],
            reason="",
            cost_usd=MORE_COSTS[(task * 9 + place * 3 + repeat + shift) % 60],
            seconds=10 * MORE_DEARER[(task * 7 + place + repeat) % 60],
            tokens=100 + task * 13 + place * 7 + repeat,
            scores=[("tidy", MORE_SCORES[(task * 11 + place * 5 + repeat + shift) % 60])],
            file="f",
            place="f:1",
        )
        for task in range(9)
        for place, model in enumerate(("gpt", "qwen", "yi"))
        for repeat in (1, 2, 3)
    ]


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreReader]:
    """A store with two imported runs."""
    file = ImportedFile(key="f", path="f", digest="d")
    with Store(str(tmp_path_factory.mktemp("runs") / "proctor.db")) as store:
        for shift, run in enumerate(("one", "two")):
            store.imported_runs.save_table(run, lambda _, shift=shift: ([file], outcomes(shift)), NOW, "1")
        yield store.read


GATES = [comparison.gate_of("success>=-0.1"), comparison.gate_of("cost<=1.2")]
DIALOGUES = [
    {
        "client": client,
        "therapist": therapist,
        "profile": f"p{profile}",
        "alliance": round(
            3 + 0.2 * row + 0.1 * column + MORE_SCORES[(7 * row + 5 * column + profile) % 60], 3
        ),
        "depth": MORE_SCORES[(3 * row + column + 2 * profile) % 60],
    }
    for row, client in enumerate("abcd")
    for column, therapist in enumerate("xyz")
    for profile in range(3)
]
BENCHMARK = [
    run(
        model,
        f"t{task}",
        STATUSES[(task * 5 + place * 3 + number * 2) % 7],
        run=number,
        display_name=model.upper(),
        completion_time=10 * MORE_DEARER[(task * 7 + place + number) % 60],
        wall_time=11 * MORE_DEARER[(task * 7 + place + number) % 60],
        prompts_sent=1 + (task + place) % 4,
        tool_calls=(task + number) % 5,
        files_modified=1 + task % 3,
        lines_added=10 + task,
        lines_removed=task % 4,
        prompt_tokens=100 + task,
        completion_tokens=10 + place,
        human_interventions=(task + place) % 2,
        total_tokens=110 + task + place,
        cost_usd=MORE_COSTS[(task * 9 + place * 3 + number) % 60],
        unchecked=task == 7,
        is_after_cutoff=None if task == 8 else task > 3,
    )
    for task in range(9)
    for place, model in enumerate(("gpt", "qwen", "yi"))
    for number in (1, 2)
]
STUDY = experiment.Study(
    name="study",
    runs=tuple(
        experiment.RunData(
            run_id=f"r{variation}{repeat}",
            variation_id=variation,
            repeat=repeat,
            status="failed" if (variation, repeat) in ((1, 3), (2, 5), (2, 6)) else "completed",
            reason="checks_failed" if variation == 2 else "timeout",
            error="it broke at 7" if repeat > 4 else "it broke at 9",
            metrics={
                "trust": round(0.2 * variation + MORE_SCORES[(variation * 11 + repeat * 7) % 60], 3),
                "agreed": float((variation + repeat) % 3 > 0),
                "turns": float(5 + (variation * repeat) % 4),
            },
            cost_usd=MORE_COSTS[(variation * 13 + repeat) % 60],
            tokens=100 * variation + repeat,
            seconds=10.0 * repeat,
            turns=repeat,
        )
        for variation in range(1, 5)
        for repeat in range(1, 10)
    ),
    descriptions={variation: f"variation {variation}" for variation in range(1, 5)},
    factors={
        variation: {"tone": "warm" if variation < 3 else "cold", "pace": "slow" if variation % 2 else "fast"}
        for variation in range(1, 5)
    },
    planned=40,
    metrics=("trust", "agreed", "turns"),
    scales={"trust": (0.0, 2.0), "agreed": (0.0, 1.0)},
)


def of_study() -> list[object]:
    contrasts = experiment.level_contrasts(STUDY)
    return [
        *(experiment.statistics_of(STUDY, STUDY.runs, metric) for metric in STUDY.metrics),
        contrasts,
        experiment.failure_clusters(STUDY),
        STUDY.levels,
    ]


OWN = ("runs", "means")
OF_RUNS: dict[str, Callable[[StoreReader], object]] = {
    "figures of models": lambda _: [
        {
            field.name: getattr(model, field.name)
            for field in fields(model)
            if field.name not in ("runs", "means")
        }
        | dict(model.means)
        | {"cost per run": model.cost_per_run_usd}
        for model in leaderboard.models_of(BENCHMARK)
    ],
    "rankings of models": lambda _: leaderboard.rankings_of(leaderboard.models_of(BENCHMARK)),
    "rankings of models with runs that cost nothing": lambda _: leaderboard.rankings_of(
        leaderboard.models_of(
            [replace(one, cost_usd=None) if place % 5 == 2 else one for place, one in enumerate(BENCHMARK)]
        )
    ),
    "study": lambda _: of_study(),
    "figures of a run": lambda read: figures.run_figures(load_results(read, ["one"], NOW)),
    "flaky tasks": lambda read: figures.flaky_tasks(load_results(read, ["one", "two"], NOW)),
    "ranks of models": lambda read: [
        figures.rank_levels(load_results(read, ["one"], NOW), "model", metric)
        for metric in ("success", "cost", "time", "tokens", "score:tidy")
    ],
    "ranks by reliability": lambda read: figures.reliability_ranks(load_results(read, ["one"], NOW), "model"),
    "comparison of runs": lambda read: compare_runs(read, ["one", "two"], NOW, gates=GATES, mixed=True),
    "comparison of models": lambda read: compare_within(
        read, "one", "model", NOW, metrics=["success", "cost", "score:tidy"], mixed=True, against="qwen"
    ),
    "disagreements": lambda read: comparison.disagreements(
        groups_of_runs(read, ["one", "two"], NOW), "success", "two"
    ),
    "analysis of dialogues": lambda _: analysis(DIALOGUES),
    "analysis of dialogues by client": lambda _: analysis(DIALOGUES, "alliance", by="client", against="b"),
    "noise of judges": lambda _: evaluator_results.judge_noise(
        [[0.5, 0.7, 0.6], [0.1, 0.2], [1.0, 1.0], [0.3, 0.6]]
    ),
}


def recorded() -> dict[str, Any]:
    return json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.exists() else {}


@pytest.fixture(scope="module")
def pinned() -> Iterable[dict[str, Any]]:
    """The recorded figures; what a test puts there is recorded."""
    known = recorded()
    yield known
    if is_recording():
        names = [name for name in (*FIGURES, *OF_RUNS) if name in known]
        lines = [f"{json.dumps(name)}: {json.dumps(known[name])}" for name in names]
        RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


@pytest.mark.parametrize("name", FIGURES)
def test_figures_of_fixed_data_stay_as_they_are(name: str, pinned: dict[str, Any]) -> None:
    check(pinned, name, FIGURES[name]())


@pytest.mark.parametrize("name", OF_RUNS)
def test_figures_of_fixed_runs_stay_as_they_are(name: str, read: StoreReader, pinned: dict[str, Any]) -> None:
    check(pinned, name, OF_RUNS[name](read))


def check(pinned: dict[str, Any], name: str, value: object) -> None:
    now = json.loads(json.dumps(plain(value)))
    if is_recording():
        pinned[name] = now
    assert differing(now, pinned[name]) == {}


def differing(new: Any, old: Any, path: str = "") -> dict[str, tuple[Any, Any]]:
    """What differs by more than rounding on another machine, by its place."""
    if isinstance(new, dict) and isinstance(old, dict) and new.keys() == old.keys():
        places = [differing(new[key], old[key], f"{path}/{key}") for key in new]
    elif isinstance(new, list) and isinstance(old, list) and len(new) == len(old):
        places = [differing(new[index], old[index], f"{path}/{index}") for index in range(len(new))]
    elif isinstance(new, float) and isinstance(old, float):
        places = [{} if new == pytest.approx(old, rel=1e-6, abs=1e-9, nan_ok=True) else {path: (new, old)}]
    else:
        places = [{} if new == old else {path: (new, old)}]
    return {key: pair for place in places for key, pair in place.items()}


def test_all_recorded_figures_are_compared() -> None:
    assert set(recorded()) == {*FIGURES, *OF_RUNS}
