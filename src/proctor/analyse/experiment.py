"""What the runs of an experiment show: statistics, comparisons, effects of what was varied, patterns.

    analyzer = BatchAnalyzer("experiments/my-experiment")
    analyzer.collect_run_data()
    metrics = analyzer.calculate_metric_statistics()
    comparison = analyzer.compare_variations("cooperation_level")
    patterns = analyzer.identify_patterns()

Statistics of metrics are over the runs that were completed; how many were not is always said beside.

Knows nothing of the store, of models or of how a report looks.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import combinations
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from proctor.analyse import contrasts, patterns
from proctor.analyse.experiment_runs import RunData, Study, read_study
from proctor.analyse.intervals import mean_of, wilson
from proctor.errors import UsageError

FOLDER = "analysis"
MOST_PAIRED = 12
"""With more variations than this, each is compared with the first only: all pairs would drown the rest."""


class BatchAnalyzer:
    """Analyses one experiment's folder."""

    def __init__(self, experiment_dir: str | Path, *, metric: str = "") -> None:
        """`metric` narrows everything to one."""
        self.folder = Path(experiment_dir)
        self._metric = metric
        self._study: Study | None = None

    @property
    def study(self) -> Study:
        """The runs, read when they are first needed."""
        if self._study is None:
            self.collect_run_data()
        assert self._study is not None
        return self._study

    def collect_run_data(self) -> list[RunData]:
        """Read the runs anew. Whoever calls it twice has the same runs, not twice as many."""
        if not (self.folder / "runs").is_dir():
            raise UsageError(f"{self.folder} holds no runs\nGive the folder of an experiment.")
        self._study = read_study(self.folder)
        return list(self._study.runs)

    @property
    def metrics(self) -> list[str]:
        """The names of all metrics that are numbers."""
        names = sorted({name for run in self.study.runs for name in run.metrics})
        if not self._metric:
            return names
        if self._metric not in names:
            raise UsageError(f"there is no metric `{self._metric}`\nThere are: {', '.join(names) or 'none'}.")
        return [self._metric]

    def calculate_metric_statistics(self) -> dict[str, dict[str, Any]]:
        """Each metric over all completed runs."""
        done = [run for run in self.study.runs if run.is_success]
        return {name: _statistics(_values(done, name), len(done)) for name in self.metrics}

    def calculate_variation_statistics(self) -> dict[int, dict[str, Any]]:
        """Each variation: how often it succeeded, its metrics, its cost."""
        return {number: self._variation(number) for number in self.study.descriptions}

    def compare_variations(self, metric_name: str) -> list[tuple[int, float]]:
        """The variations with the mean of a metric, the highest first."""
        means = []
        for number in self.study.descriptions:
            values = _values([run for run in self._of(number) if run.is_success], metric_name)
            if values:
                means.append((number, fmean(values)))
        return sorted(means, key=lambda entry: (-entry[1], entry[0]))

    def compare_pairs(self, metric_name: str) -> list[dict[str, Any]]:
        """Variations against each other: paired by seed where seeds pair, corrected for their number."""
        numbers = [number for number, _ in self.compare_variations(metric_name)]
        pairs = list(combinations(sorted(numbers), 2))
        if len(numbers) > MOST_PAIRED:
            first = min(numbers)
            pairs = [(first, number) for number in sorted(numbers) if number != first]
        found = [(a, b, self._pair(a, b, metric_name)) for a, b in pairs]
        tested = [(a, b, difference) for a, b, difference in found if difference is not None]
        corrected = contrasts.holm([difference.p for _, _, difference in tested])
        return [
            {
                "variations": [a, b],
                "descriptions": [self.study.descriptions[a], self.study.descriptions[b]],
                **asdict(difference),
                "p_corrected": p,
            }
            for (a, b, difference), p in zip(tested, corrected, strict=True)
        ]

    def factor_effects(self, metric_name: str) -> list[dict[str, Any]]:
        """How much of a metric's spread goes with each factor, and with two of them together."""
        runs = [run for run in self.study.runs if run.is_success and metric_name in run.metrics]
        levels = patterns.levels_of(self.study)
        if len(runs) < 3 or not levels:
            return []
        values = [run.metrics[metric_name] for run in runs]
        coded = {factor: self._coded(runs, factor, names) for factor, names in levels.items()}
        found: list[tuple[str, contrasts.Share]] = []
        for factor in coded:
            others = _joined([coded[other] for other in coded if other != factor], len(runs))
            found.append((factor, contrasts.factor_test(values, others, coded[factor])))
        everything = _joined(list(coded.values()), len(runs))
        for one, other in combinations(coded, 2):
            product = [
                [a * b for a in first for b in second]
                for first, second in zip(coded[one], coded[other], strict=True)
            ]
            found.append((f"{one} × {other}", contrasts.factor_test(values, everything, product)))
        if patterns.never_differs(self.study, metric_name):
            found = [(name, replace(share, p=None)) for name, share in found]
        corrected = contrasts.holm([share.p for _, share in found])
        return [
            {"factor": name, **asdict(share), "p_corrected": p, "n": len(runs)}
            for (name, share), p in zip(found, corrected, strict=True)
        ]

    def identify_patterns(self) -> dict[str, Any]:
        """What goes with success and failure, and what cannot be said."""
        study, total = self.study, len(self.study.runs)
        passed = sum(run.is_success for run in study.runs)
        judged = sum(run.is_judged for run in study.runs)
        errors = sum(run.is_error for run in study.runs)
        rate = wilson(passed, judged)
        tried = patterns.level_contrasts(study)
        clear = [patterns.statement(one) for one in tried if one.is_clear]
        by_metric = [
            patterns.statement(one)
            for name in self.metrics
            for one in patterns.level_contrasts(study, name)
            if one.is_clear
        ]
        statistics = self.calculate_variation_statistics()
        rates = [(one["success_rate"], -number) for number, one in statistics.items() if one["judged_runs"]]
        best = max(rates, default=None)
        return {
            "success_factors": [one for one in clear if one["value"] > 0],
            "failure_modes": [
                *patterns.failure_clusters(study),
                *(one for one in clear if one["value"] < 0),
            ],
            "metric_effects": by_metric,
            "tested_levels": [patterns.statement(one) for one in tried],
            "cost_efficiency": self._cost_efficiency(),
            "success_rate": passed / judged if judged else 0.0,
            "success_rate_interval": [rate.low, rate.high],
            "success_rate_if_errors_failed": passed / (judged + errors) if judged + errors else 0.0,
            "total_runs": total,
            "judged_runs": judged,
            "successful_runs": passed,
            "failed_runs": judged - passed,
            "errors": errors,
            "unfinished_runs": total - judged - errors,
            "best_variation": None if best is None else {"variation_id": -best[1], "success_rate": best[0]},
            "notes": [*patterns.honest_words(study, tried), *patterns.of_no_spread(study, self.metrics)],
            "stand_ins": list(study.stand_ins),
        }

    def turns_of(self, metric_name: str, number: int | None = None) -> list[dict[str, Any]]:
        """A metric's mean after each turn, with its interval; of one variation, or of all."""
        runs = [run for run in (self.study.runs if number is None else self._of(number)) if run.is_success]
        turns = sorted({turn for run in runs for turn in run.by_turn})
        found = []
        for turn in turns:
            values = [
                run.by_turn[turn][metric_name] for run in runs if metric_name in run.by_turn.get(turn, {})
            ]
            if values:
                estimate = mean_of(values)
                found.append(
                    {"turn": turn, "mean": estimate.value, "low": estimate.low, "high": estimate.high}
                    | {"n": len(values)}
                )
        return found

    def documents(self) -> dict[str, Any]:
        """Every file of the analysis by name."""
        return {
            "metrics-analysis.json": self.calculate_metric_statistics(),
            "variation-statistics.json": {
                str(number): one for number, one in self.calculate_variation_statistics().items()
            },
            "patterns.json": self.identify_patterns(),
            "comparisons.json": {name: self.compare_pairs(name) for name in self.metrics},
            "effects.json": {name: self.factor_effects(name) for name in self.metrics},
        }

    def save(self, target: Path | None = None) -> list[Path]:
        """Write the analysis into the experiment's folder, or into another; the files."""
        target = target or self.folder / FOLDER
        target.mkdir(parents=True, exist_ok=True)
        written = []
        for name, document in self.documents().items():
            path = target / name
            path.write_text(json.dumps(document, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
            written.append(path)
        return written

    def _of(self, number: int) -> list[RunData]:
        return [run for run in self.study.runs if run.variation_id == number]

    def _variation(self, number: int) -> dict[str, Any]:
        runs = self._of(number)
        done = [run for run in runs if run.is_success]
        judged = sum(run.is_judged for run in runs)
        rate = wilson(len(done), judged)
        costs = [run.cost_usd for run in runs if run.cost_usd is not None]
        return {
            "variation_id": number,
            "description": self.study.descriptions[number],
            "factors": dict(self.study.factors.get(number, {})),
            "total_runs": len(runs),
            "successful_runs": len(done),
            "errors": sum(run.is_error for run in runs),
            "judged_runs": judged,
            "success_rate": len(done) / judged if judged else 0.0,
            "success_rate_interval": [rate.low, rate.high],
            "metrics": {
                name: _statistics(values, len(done))
                for name in self.metrics
                if (values := _values(done, name))
            },
            "labels": _label_counts(done),
            "cost": {
                "total": sum(costs),
                "mean": fmean(costs) if costs else None,
                "min": min(costs, default=None),
                "max": max(costs, default=None),
                "unknown": len(runs) - len(costs),
            },
        }

    def _pair(self, a: int, b: int, metric: str) -> contrasts.Difference | None:
        first = {run.repeat: run for run in self._of(a) if run.is_success and metric in run.metrics}
        second = {run.repeat: run for run in self._of(b) if run.is_success and metric in run.metrics}
        # Runs of a system that drew no seeds have none, and nothing that pairs them.
        common = [
            n for n in first if n in second and first[n].seed is not None and first[n].seed == second[n].seed
        ]
        if len(common) >= max(2, min(len(first), len(second)) // 2):
            return contrasts.paired(
                [first[n].metrics[metric] for n in common], [second[n].metrics[metric] for n in common]
            )
        if not first or not second:
            return None
        return contrasts.welch(
            [run.metrics[metric] for run in first.values()], [run.metrics[metric] for run in second.values()]
        )

    def _coded(self, runs: Sequence[RunData], factor: str, levels: Sequence[str]) -> list[list[float]]:
        return [
            [float(patterns.level_of(self.study, run, factor) == level) for level in levels[1:]]
            for run in runs
        ]

    def _cost_efficiency(self) -> list[dict[str, Any]]:
        found = []
        for number in self.study.descriptions:
            runs = [run for run in self._of(number) if run.cost_usd is not None]
            spent, passed = sum(run.cost_usd or 0.0 for run in runs), sum(run.is_success for run in runs)
            if runs and spent > 0:
                found.append(
                    {
                        "variation_id": number,
                        "runs_per_dollar": passed / spent,
                        "cost_per_success": spent / passed if passed else None,
                        "total_cost": spent,
                    }
                )
        return sorted(found, key=lambda one: -float(one["runs_per_dollar"] or 0))


def _values(runs: Sequence[RunData], metric: str) -> list[float]:
    return [run.metrics[metric] for run in runs if metric in run.metrics]


def _statistics(values: Sequence[float], runs: int) -> dict[str, Any]:
    if not values:
        return {"count": 0, "n": 0, "missing": runs}
    estimate = mean_of(values)
    return {
        "count": len(values),
        "mean": fmean(values),
        "median": median(values),
        "min": min(values),
        "max": max(values),
        "stdev": stdev(values) if len(values) > 1 else 0.0,
        "n": len(values),
        "low": estimate.low,
        "high": estimate.high,
        "missing": runs - len(values),
    }


def _label_counts(runs: Sequence[RunData]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for run in runs:
        for name, label in run.labels.items():
            counts = found.setdefault(name, {})
            counts[label] = counts.get(label, 0) + 1
    return found


def _joined(parts: Sequence[Sequence[Sequence[float]]], rows: int) -> list[list[float]]:
    return [[value for part in parts for value in part[row]] for row in range(rows)]
