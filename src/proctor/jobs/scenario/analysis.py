"""Analysis of an experiment: statistics, comparisons, effects of factors, and patterns.

    analyzer = BatchAnalyzer("experiments/my-experiment")
    analyzer.collect_run_data()
    metrics = analyzer.calculate_metric_statistics()
    comparison = analyzer.compare_variations("cooperation_level")
    patterns = analyzer.identify_patterns()

Statistics of metrics cover the completed runs; the number of the others is always given too.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from proctor.errors import UsageError
from proctor.export.tables import write_csv
from proctor.formatting import chance, elapsed, figure, interval, limits_text, percent, usd
from proctor.jobs.scenario.codes import coded_values
from proctor.jobs.scenario.experiment import slug_of
from proctor.json_values import JsonMap, as_datetime, as_list, as_map, as_number, as_text, maps_in
from proctor.scenario.run_files import OF_VARIABLES
from proctor.scenario.state import CheckCounts
from proctor.score import LARGEST
from proctor.stats import experiment
from proctor.stats.experiment import LevelContrast, Number, RunData, Scale, Study
from proctor.stats.intervals import per_success, wilson
from proctor.validity import INVALID_KINDS, count_columns, exclusion_reason, served_of, served_text

if TYPE_CHECKING:
    import pandas

    from proctor.stats.differences import Difference
    from proctor.stats.factorial import FactorialTests

_LABEL = re.compile(r"var-(\d+)-run-(\d+)")


def read_study(folder: Path) -> Study:
    """Read every run of an experiment. A folder without runs is an empty study."""
    state = as_map(_read(folder / "batch-state.json"))
    summary = as_map(_read(folder / "batch-summary.json"))
    rule = {name: when for name, when in as_map(summary, "exclude_when").items() if isinstance(when, str)}
    reasons = {as_text(each, "run_id"): each for each in maps_in(state, "failed_runs")}
    paths = sorted(path for path in (folder / "runs").glob("var-*") if path.is_dir())
    damaged: list[str] = []
    runs = [run for path in paths if (run := _run(path, reasons, damaged, rule)) is not None]
    codes = coded_values(folder)
    runs = [_with_codes(run, codes.get(run.run_id, {})) for run in runs]
    variations = maps_in(state, "variations")
    numbered = {_id_of(one, position): one for position, one in enumerate(variations, 1)}
    present = {run.variation_id for run in runs}
    names, scales, variables = _metrics_of(paths, runs, as_map(state, "score_scales"))
    manipulated = _manipulated(variables, runs, variations)
    return Study(
        name=str(state.get("experiment_name") or folder.name),
        runs=tuple(runs),
        descriptions={
            number: str(numbered.get(number, {}).get("description") or f"variation {number}")
            for number in sorted(present | numbered.keys())
        },
        factors=_with_versions({number: _factors(one) for number, one in numbered.items()}, numbered),
        metrics=tuple(name for name in names if name not in manipulated),
        scales=scales,
        variables=variables,
        manipulated=manipulated,
        planned=_whole(summary.get("total_runs_planned")) or len(runs),
        damaged=tuple(damaged),
        stand_ins=tuple(map(str, as_list(summary, "stand_ins"))),
        description=str(summary.get("description") or ""),
    )


def _with_codes(run: RunData, codes: Mapping[str, float | str]) -> RunData:
    """A run with what people coded of it."""
    words = {name: value for name, value in codes.items() if isinstance(value, str)}
    numbers = {name: value for name, value in codes.items() if not isinstance(value, str)}
    return replace(run, metrics={**run.metrics, **numbers}, labels={**run.labels, **words})


def exclusions_text(excluded: Mapping[str, str], *, analyzed: int) -> str:
    """What `exclude_when` has excluded, with the numbers of runs before and after."""
    listed = "; ".join(f"{run}: {reason}" for run, reason in list(excluded.items())[:LISTED_DAMAGE])
    more = f"; and {len(excluded) - LISTED_DAMAGE} more" if len(excluded) > LISTED_DAMAGE else ""
    completed = analyzed + len(excluded)
    return (
        f"{len(excluded)} of {completed} completed runs excluded by exclude_when, {analyzed} analyzed "
        f"({listed}{more})."
    )


def _with_versions(
    factors: Mapping[int, dict[str, str]], variations: Mapping[int, Mapping[str, Any]]
) -> dict[int, dict[str, str]]:
    """The factors, with the version of the scenario as one of them where there are several.

    A variation of equal levels and another number is a version as well: folders of earlier versions have no
    digest.
    """
    digests: dict[str, str] = {}
    levels: dict[int, str] = {}
    seen: dict[tuple[object, ...], int] = {}
    for number in sorted(factors):
        key = tuple(sorted(factors[number].items()))
        seen[key] = seen.get(key, 0) + 1
        digest = str(variations[number].get("scenario_digest") or f"number {seen[key]}")
        levels[number] = digests.setdefault(digest, str(len(digests) + 1))
    if len(digests) < 2:
        return dict(factors)
    return {number: {**each, experiment.VERSION: levels[number]} for number, each in factors.items()}


def _metrics_of(
    paths: Sequence[Path], runs: Sequence[RunData], score_scales: Mapping[str, Any]
) -> tuple[tuple[str, ...], dict[str, Scale], tuple[str, ...]]:
    """The metrics that are numbers, also those never extracted, the scales of those that have one, and which
    of them are variables of the world."""
    names = {name for run in runs for name in (*run.metrics, *run.unusable)}
    labels = {name for run in runs for name in run.labels}
    definitions: dict[str, JsonMap] = {}
    booleans: set[str] = set()
    for path in paths:
        document = as_map(_read(path / "metrics.json"))
        definitions |= {
            str(name): as_map(one) for name, one in as_map(document, "metrics_definitions").items()
        }
        values = [
            as_map(document, "final_metrics"),
            *as_map(document, "metrics_by_turn").values(),
        ]
        for turn_values in map(as_map, values):
            # A value that is missing in every turn is null, and still a metric.
            names |= {str(name) for name, value in turn_values.items() if value is None}
            booleans |= {str(name) for name, value in turn_values.items() if isinstance(value, bool)}
    texts = {name for name, one in definitions.items() if one.get("type") == "string"}
    # Metrics of actors have the actor behind a dot.
    of_actors = {name for name in definitions if any(other.startswith(f"{name}.") for other in names)}
    names = (names | set(definitions)) - labels - texts - of_actors
    names -= {name for name in names if name.rpartition(".")[0] in texts}
    scales, variables = dict[str, Scale](), list[str]()
    for name in sorted(names):
        definition = definitions.get(name) or definitions.get(name.rpartition(".")[0]) or {}
        if definition.get("method") == OF_VARIABLES:
            variables.append(name)
        ends = definition.get("range") or score_scales.get(name.removeprefix("score."))
        limits = [end for each in as_list(ends) if (end := as_number(each)) is not None]
        scale = experiment.scale_of(
            name,
            [run.metrics[name] for run in runs if name in run.metrics],
            (limits[0], limits[1]) if len(limits) == 2 and limits[0] < limits[1] else None,
            is_boolean=name in booleans or definition.get("type") == "boolean",
        )
        if scale is not None:
            scales[name] = scale
    return tuple(sorted(names)), scales, tuple(variables)


def _manipulated(
    variables: Sequence[str], runs: Sequence[RunData], variations: Sequence[Mapping[str, Any]]
) -> tuple[str, ...]:
    """The variables of the world that a variation sets and that have one value in all runs of each."""
    changed = {
        steps[1]
        for variation in variations
        for path in as_map(as_map(variation, "modifications").get("scenario_overrides"))
        if (steps := path.split("."))[0] == "variables" and len(steps) > 1
    }
    chosen = []
    for name in variables:
        seen: dict[int, set[float]] = {}
        for run in runs:
            values = [run.metrics, *run.by_turn.values()]
            seen.setdefault(run.variation_id, set()).update(turn[name] for turn in values if name in turn)
        if name.partition(".")[0] in changed and all(len(values) < 2 for values in seen.values()):
            chosen.append(name)
    return tuple(chosen)


def _run(
    folder: Path, reasons: Mapping[str, Mapping[str, Any]], damaged: list[str], rule: Mapping[str, str]
) -> RunData | None:
    named = _LABEL.fullmatch(folder.name)
    if named is None:
        return None
    state = as_map(_read(folder / "scenario-state.json", damaged))
    known = reasons.get(folder.name, {})
    status = str(state.get("status") or "failed")
    if known and status != "completed":
        status = "failed"
    excluded = exclusion_reason(rule, as_map(state, "validity")) if status == "completed" else ""
    status = experiment.EXCLUDED if excluded else status
    final, by_turn = _metrics(_read(folder / "metrics.json", damaged))
    costs = as_map(_read(folder / "costs.json", damaged))
    totals = as_map(costs, "totals")
    cost = costs.get("total_cost", totals.get("total_cost_usd"))
    seed = as_map(state, "execution_metadata").get("seed")
    return RunData(
        run_id=folder.name,
        variation_id=int(named[1]),
        repeat=int(named[2]),
        status=status,
        reason=excluded
        or str(known.get("reason") or state.get("halt_reason") or ("" if state else "no state")),
        error=str(known.get("error") or state.get("error") or ""),
        metrics=_numbers(final),
        labels={name: value for name, value in final.items() if isinstance(value, str)},
        unusable=frozenset(
            name for name, value in final.items() if isinstance(value, int | float) and not _is_number(value)
        ),
        by_turn={turn: _numbers(values) for turn, values in by_turn.items()},
        cost_usd=_numbers({"cost": cost}).get("cost"),
        tokens=_whole(totals.get("total_tokens")),
        seconds=_duration([as_map(turn) for turn in as_list(state, "turns")]),
        turns=len(as_list(state, "completed_turns")) or len(by_turn),
        seed=seed if isinstance(seed, int) else None,
        checks=asdict(sum((_checks(as_map(turn)) for turn in as_list(state, "turns")), CheckCounts())),
        served=served_of(state),
        invalid=count_columns(state),
    )


def _duration(turns: Sequence[Mapping[str, Any]]) -> float | None:
    """Seconds that the turns took, without the time between them."""
    durations = [elapsed(as_datetime(turn, "started_at"), as_datetime(turn, "ended_at")) for turn in turns]
    known = [seconds for seconds in durations if seconds is not None]
    return round(sum(known), 3) if known else None


def _checks(turn: Mapping[str, Any]) -> CheckCounts:
    return CheckCounts(
        run=_whole(turn.get("checks_run")),
        issues=len(as_list(turn, "issues")),
        unread=_whole(turn.get("checks_unread")),
    )


def _metrics(document: Any) -> tuple[dict[str, Any], dict[int, dict[str, Any]]]:
    """Final values and values by turn, from either dialect of metrics.json."""
    if isinstance(document, list):
        by_turn: dict[int, dict[str, Any]] = {}
        for entry in document:
            if isinstance(entry, dict) and "name" in entry:
                by_turn.setdefault(_whole(entry.get("turn")), {})[str(entry["name"])] = entry.get("value")
        final: dict[str, Any] = {}
        for turn in sorted(by_turn):
            final |= by_turn[turn]
        return final, by_turn
    document = as_map(document)
    final = document.get("final_metrics")
    scores = document.get("scores")
    if isinstance(final, dict) and isinstance(scores, dict):
        final = final | {f"score.{name}": value for name, value in scores.items()}
    turns = document.get("metrics_by_turn")
    return (
        final if isinstance(final, dict) else {},
        {
            int(turn): values
            for turn, values in (turns.items() if isinstance(turns, dict) else ())
            if str(turn).isdigit() and isinstance(values, dict)
        },
    )


def _numbers(values: Mapping[str, Any]) -> dict[str, Number]:
    return {name: float(value) for name, value in values.items() if _is_number(value)}


def _is_number(value: Any) -> bool:
    # An integer of 400 digits does not fit into a float: not a number either.
    return isinstance(value, int | float) and value == value and abs(value) <= LARGEST


def _whole(value: Any) -> int:
    return int(value) if _is_number(value) else 0


def _factors(variation: Mapping[str, Any]) -> dict[str, str]:
    factors = variation.get("factors")
    if isinstance(factors, dict):
        return {str(name): str(level) for name, level in factors.items()}
    levels: dict[str, str] = {}
    for part in as_map(variation, "modifications").values():
        levels |= {str(name): str(level) for name, level in as_map(part).items()}
    return levels


def _id_of(variation: Mapping[str, Any], position: int) -> int:
    variation_id = variation.get("variation_id", position)
    return variation_id if isinstance(variation_id, int) else position


def _read(path: Path, damaged: list[str] | None = None) -> Any:
    """A JSON document; empty when it cannot be read, which is added to `damaged` if the file is there."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        if damaged is not None and path.exists():
            damaged.append(f"{path.parent.name}/{path.name}")
        return {}


FOLDER = "analysis"
RUNS = "runs.csv"
_RUN_COLUMNS = ("run_id", "variation_id", "variation", "repeat", "seed", "status", "reason")
_COST_COLUMNS = ("turns_completed", "cost_usd", "tokens", "duration_seconds")
_DATA_COLUMNS = ("served_models", *INVALID_KINDS)
_OWN_COLUMNS = (*_RUN_COLUMNS, *_COST_COLUMNS, *_DATA_COLUMNS)
LISTED_DAMAGE = 5
"""Damaged files that are named; the others are counted."""
LISTED_PAIRS, LISTED_STATEMENTS = 10, 20
"""Comparisons of a metric, and statements, that the terminal lists."""
MOST_PAIRED = 12
"""With more variations than this, each is compared only with the first: all pairs would be too many."""


class BatchAnalyzer:
    """Analyzes one experiment's folder."""

    def __init__(self, experiment_dir: str | Path, *, metric: str = "") -> None:
        """`metric` restricts the analysis to one metric."""
        self.folder = Path(experiment_dir)
        self._metric = metric
        self._study: Study | None = None

    @property
    def study(self) -> Study:
        """The runs, read on first use."""
        if self._study is None:
            self.collect_run_data()
        assert self._study is not None
        return self._study

    def collect_run_data(self) -> list[RunData]:
        """Read the runs again, replacing those read before."""
        if not (self.folder / "runs").is_dir():
            raise UsageError(f"{self.folder} holds no runs\nGive the folder of an experiment.")
        self._study = read_study(self.folder)
        for computed in ("_pairs", "level_contrasts", "tests"):
            self.__dict__.pop(computed, None)
        return list(self._study.runs)

    @property
    def metrics(self) -> list[str]:
        """The names of all metrics that are numbers."""
        names = list(self.study.metrics)
        if not self._metric:
            return names
        if self._metric not in names:
            raise UsageError(f"there is no metric `{self._metric}`\nThere are: {', '.join(names) or 'none'}.")
        return [self._metric]

    def calculate_metric_statistics(self) -> dict[str, dict[str, Any]]:
        """Each metric over all completed runs."""
        done = self.study.completed
        return {name: experiment.statistics_of(self.study, done, name) for name in self.metrics}

    def calculate_variation_statistics(self) -> dict[int, dict[str, Any]]:
        """Success rate, metrics and cost of each variation."""
        return {number: self._variation(number) for number in self.study.descriptions}

    def compare_variations(self, metric_name: str) -> list[tuple[int, float]]:
        """The variations with the mean of a metric, the highest first."""
        means = []
        for number in self.study.descriptions:
            values = [
                run.metrics[metric_name]
                for run in self.study.measured(metric_name)
                if run.variation_id == number
            ]
            if values:
                means.append((number, fmean(values)))
        return sorted(means, key=lambda entry: (-entry[1], entry[0]))

    def compare_pairs(self, metric_name: str) -> list[dict[str, Any]]:
        """Pairwise comparisons of variations, the first minus the second: paired by seed where possible."""
        return [
            {
                "variations": list(pair),
                "descriptions": [self.study.descriptions[number] for number in pair],
                **experiment.difference_record(difference, left_out),
            }
            for metric, pair, difference, left_out in self._pairs
            if metric == metric_name
        ]

    @cached_property
    def _pairs(self) -> list[tuple[str, tuple[int, int], "Difference", str]]:
        """Variations compared in every metric, as one family, with the reasons of those left out of it."""
        from proctor.stats.differences import family

        differences: dict[str, tuple[str, tuple[int, int], Difference]] = {}
        for metric in self.metrics:
            numbers = sorted(number for number, _ in self.compare_variations(metric))
            pairs = list(combinations(numbers, 2))
            if len(numbers) > MOST_PAIRED:
                pairs = [(numbers[0], number) for number in numbers[1:]]
            for pair in pairs:
                name = f"{metric}, {' and '.join(self.study.descriptions[number] for number in pair)}"
                differences[f"{name} ({pair[0]}, {pair[1]})"] = metric, pair, self._pair(*pair, metric)
        page = family({name: difference for name, (_, _, difference) in differences.items()})
        adjusted = {**page.members, **page.descriptive}
        return [
            (metric, pair, adjusted[name], experiment.in_runs(page.left_out.get(name, "")))
            for name, (metric, pair, _) in differences.items()
        ]

    @cached_property
    def level_contrasts(self) -> list[LevelContrast]:
        """Levels of factors against the others, in the success rate and every metric: one family."""
        return experiment.level_contrasts(self.study, self.metrics)

    @cached_property
    def tests(self) -> "FactorialTests":
        """Analyses of variance, contrasts of levels, odds ratios, and tests of labels."""
        # Late: it loads numpy.
        from proctor.stats.factorial import factorial_tests

        return factorial_tests(self.study, self.metrics)

    def factor_effects(self, metric_name: str) -> list[dict[str, Any]]:
        """Variance of a metric explained by each factor, and by interactions of two."""
        from proctor.stats.factorial import metric_anova

        runs, levels = self.study.measured(metric_name), self.study.levels
        if len(runs) < 3 or not levels:
            return []
        effects = []
        # Metrics without tests still have shares.
        for row in self.tests.anova.get(metric_name) or metric_anova(self.study, metric_name):
            is_factor, is_tested = row.source in levels, metric_name in self.tests.anova
            if not is_factor and " × " not in row.source:
                continue
            contrasts = [
                each
                for each in self.level_contrasts
                if (each.metric, each.factor) == (metric_name, row.source)
            ]
            p, corrected = (row.p, row.p_corrected) if is_tested else (None, None)
            is_clear = corrected is not None and corrected < 0.05
            if is_factor:
                # The p of a factor is that of its levels, so that the two agree.
                tested = [each.difference for each in contrasts if not each.left_out]
                p = min((each.p * len(contrasts) for each in tested if each.p is not None), default=None)
                adjusted = [each.p_adjusted for each in tested if each.p_adjusted is not None]
                corrected, is_clear = min(adjusted, default=None), any(each.is_clear for each in contrasts)
            effects.append(
                {
                    "factor": row.source,
                    "p": None if p is None else min(1.0, p),
                    "explained": row.explained,
                    "freedom": row.df,
                    "p_corrected": None if corrected is None else min(1.0, corrected),
                    "n": len(runs),
                    "test": "its levels" if is_factor else "F test",
                    "is_significant": is_clear,
                    "note": "; ".join(dict.fromkeys(each.left_out for each in contrasts if each.left_out)),
                }
            )
        return effects

    def test_tables(self) -> dict[str, Any]:
        """The tests as plain data: by metric its analysis of variance, contrasts of levels, and odds ratios;
        of categorical metrics, how they go with each factor."""
        tests = self.tests
        return {
            "metrics": {
                metric or "success": {
                    "anova": [asdict(row) for row in tests.anova.get(metric, ())],
                    "contrasts": [
                        {"against": each.against or None, **experiment.statement(each)}
                        for each in tests.contrasts
                        if each.metric == metric
                    ],
                    "model": asdict(tests.odds[metric]) if metric in tests.odds else None,
                }
                for metric in ("", *self.metrics)
            },
            "categories": {
                name: {factor: asdict(each) for factor, each in by_factor.items()}
                for name, by_factor in tests.associations.items()
            },
        }

    def identify_patterns(self) -> dict[str, Any]:
        """Factors associated with success and failure, and the limits of the analysis."""
        study, total = self.study, len(self.study.runs)
        passed = sum(run.is_success for run in study.runs)
        judged = sum(run.is_judged for run in study.runs)
        errors = sum(run.is_error for run in study.runs)
        rate = wilson(passed, judged)
        tried, checks = self.level_contrasts, self.checks
        clear = [experiment.statement(one) for one in tried if one.is_clear and not one.metric]
        by_metric = [experiment.statement(one) for one in tried if one.is_clear and one.metric]
        statistics = self.calculate_variation_statistics()
        rates = [(one["success_rate"], -number) for number, one in statistics.items() if one["judged_runs"]]
        best = max(rates, default=None)
        return {
            "success_factors": [one for one in clear if one["value"] > 0],
            "failure_modes": [
                *experiment.failure_clusters(study),
                *(one for one in clear if one["value"] < 0),
            ],
            "metric_effects": by_metric,
            "tested_levels": [experiment.statement(one) for one in tried if not one.metric],
            "tested_metric_levels": [experiment.statement(one) for one in tried if one.metric],
            "family": sum(not one.left_out for one in tried),
            "cost_efficiency": self._cost_efficiency(),
            "success_rate": passed / judged if judged else 0.0,
            "success_rate_interval": [rate.low, rate.high],
            "success_rate_if_errors_failed": passed / (judged + errors) if judged + errors else 0.0,
            "total_runs": total,
            "judged_runs": judged,
            "successful_runs": passed,
            "failed_runs": judged - passed,
            "errors": errors,
            "unfinished_runs": total - judged - errors - len(study.excluded),
            **(
                {"excluded_runs": {run.run_id: run.reason for run in study.excluded}}
                if study.excluded
                else {}
            ),
            "best_variation": None if best is None else {"variation_id": -best[1], "success_rate": best[0]},
            "notes": [
                *self._damage(),
                *experiment.limitations(study, tried),
                *experiment.of_no_spread(study, self.metrics),
            ],
            "stand_ins": list(study.stand_ins),
            **({"checks": asdict(checks)} if checks.run else {}),
        }

    def _damage(self) -> list[str]:
        """Which files of runs could not be read."""
        names = self.study.damaged
        if not names:
            return []
        more = f" and {len(names) - LISTED_DAMAGE} more" if len(names) > LISTED_DAMAGE else ""
        return [
            f"Damaged, and not in these figures: {', '.join(names[:LISTED_DAMAGE])}{more}. "
            "Resume the experiment (--resume): files are rebuilt from the store, nothing is run again."
        ]

    @property
    def checks(self) -> CheckCounts:
        """The number of checks in all runs."""
        return sum((CheckCounts(**run.checks) for run in self.study.runs), CheckCounts())

    def turns_of(self, metric_name: str, number: int | None = None) -> list[dict[str, Any]]:
        """A metric's mean after each turn with its CI, for one variation or for all."""
        by_turn: dict[int, list[float]] = {}
        for run in self.study.completed:
            if number in (None, run.variation_id):
                for turn, values in run.by_turn.items():
                    if metric_name in values:
                        by_turn.setdefault(turn, []).append(values[metric_name])
        scale = self.study.scales.get(metric_name)
        means = {turn: experiment.estimate_of(values, scale) for turn, values in sorted(by_turn.items())}
        return [
            {"turn": turn, "mean": mean.value, "low": mean.low, "high": mean.high, "n": mean.runs}
            for turn, mean in means.items()
        ]

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
            "tests.json": self.test_tables(),
        }

    def run_rows(self) -> list[dict[str, Any]]:
        """One row per run: its variation, the levels of the factors, seed, final metrics, cost and duration,
        which models answered, and what makes it less valid as data.

        The rows have the same columns. A factor or metric with the name of another column has a prefix.
        """
        study = self.study
        factors = list(dict.fromkeys(name for levels in study.factors.values() for name in levels))
        labels = sorted({name for run in study.runs for name in run.labels})
        columns = dict.fromkeys(_OWN_COLUMNS)
        named: dict[str, dict[str, str]] = {"factor": {}, "metric": {}}
        for kind, names in (("factor", factors), ("metric", [*self.metrics, *study.manipulated, *labels])):
            for name in names:
                column = f"{kind}.{name}" if name in columns else name
                columns[column] = None
                named[kind][name] = column
        return [self._run_row(run, named) for run in study.runs]

    def _run_row(self, run: RunData, named: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
        levels = self.study.factors.get(run.variation_id, {})
        values = {**run.labels, **run.metrics}
        return {
            "run_id": run.run_id,
            "variation_id": run.variation_id,
            "variation": self.study.descriptions[run.variation_id],
            "repeat": run.repeat,
            "seed": run.seed,
            "status": run.status,
            "reason": run.reason,
            **{column: levels.get(name) for name, column in named["factor"].items()},
            **{column: values.get(name) for name, column in named["metric"].items()},
            "turns_completed": run.turns,
            "cost_usd": run.cost_usd,
            "tokens": run.tokens,
            "duration_seconds": run.seconds,
            "served_models": served_text(run.served),
            **{kind: run.invalid.get(kind) for kind in INVALID_KINDS},
        }

    def to_dataframe(self) -> "pandas.DataFrame":
        """The rows of `run_rows` as a pandas DataFrame."""
        # pandas is an optional dependency.
        try:
            import pandas
        except ImportError as error:
            raise UsageError("this needs pandas\nInstall it: pip install 'proctor[pandas]'") from error
        return pandas.DataFrame(self.run_rows())

    def save(self, target: Path | None = None) -> list[Path]:
        """Write the analysis into the experiment's folder, or into another; the files."""
        target = target or self.folder / FOLDER
        target.mkdir(parents=True, exist_ok=True)
        rows = self.run_rows()
        write_csv(target / RUNS, list(rows[0]) if rows else _OWN_COLUMNS, rows)
        written = [target / RUNS]
        for name, document in self.documents().items():
            path = target / name
            path.write_text(json.dumps(document, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
            written.append(path)
        return written

    def _variation(self, number: int) -> dict[str, Any]:
        runs = self.study.of(number)
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
                name: experiment.statistics_of(self.study, done, name)
                for name in self.metrics
                if self.study.values(done, name)
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

    def _pair(self, a: int, b: int, metric: str) -> "Difference":
        from proctor.stats.differences import difference

        measured = self.study.measured(metric)
        first, second = (
            {run.repeat: run for run in measured if run.variation_id == number} for number in (a, b)
        )
        # Runs imported without seeds cannot be paired.
        common = [
            n for n in first if n in second and first[n].seed is not None and first[n].seed == second[n].seed
        ]
        # Equal repeats are one run: neither pairs nor a scale make more of them.
        is_constant = experiment.never_differs(self.study, metric)
        lo, hi = (None if is_constant else self.study.scales.get(metric)) or (None, None)
        is_paired = len(common) >= max(2, min(len(first), len(second)) // 2)
        chosen = (common, common) if is_paired else (list(first), list(second))
        values = [
            [runs[n].metrics[metric] for n in numbers]
            for runs, numbers in zip((first, second), chosen, strict=True)
        ]
        permuted = experiment.is_rating(self.study, metric)
        return difference(values[1], values[0], lo=lo, hi=hi, paired=is_paired, permuted=permuted)

    def _cost_efficiency(self) -> list[dict[str, Any]]:
        """The cost of a completed run of each variation, failures included, with Fieller's interval."""
        rows = []
        for number in self.study.descriptions:
            runs = [run for run in self.study.of(number) if run.cost_usd is not None]
            spent, passed = sum(run.cost_usd or 0.0 for run in runs), sum(run.is_success for run in runs)
            if runs and spent > 0:
                estimate = per_success([run.cost_usd for run in runs], [run.is_success for run in runs])
                rows.append(
                    {
                        "variation_id": number,
                        "runs_per_dollar": passed / spent,
                        "cost_per_success": spent / passed if passed else None,
                        "low": estimate.low,
                        "high": estimate.high,
                        "note": experiment.in_runs(estimate.note),
                        "total_cost": spent,
                    }
                )
        return sorted(rows, key=lambda one: -float(one["runs_per_dollar"] or 0))


def _label_counts(runs: Sequence[RunData]) -> dict[str, dict[str, int]]:
    by_outcome: dict[str, dict[str, int]] = {}
    for run in runs:
        for name, label in run.labels.items():
            counts = by_outcome.setdefault(name, {})
            counts[label] = counts.get(label, 0) + 1
    return by_outcome


def analysis_folder(folder: Path, metric: str) -> Path:
    """The folder of an analysis. One metric has its own, so that it does not replace all others."""
    target = folder / FOLDER / f"only-{slug_of(metric)}" if metric else folder / FOLDER
    target.mkdir(parents=True, exist_ok=True)
    return target


def experiment_text(document: Mapping[str, Any]) -> str:
    """The analysis of an experiment in a few lines."""
    patterns = document["patterns"]
    low, high = patterns["success_rate_interval"]
    lines = [
        f"{patterns['successful_runs']} of {patterns['total_runs']} runs completed: "
        f"{percent(patterns['success_rate'])} (95% CI {interval(low, high)})"
    ]
    if patterns["errors"]:
        lower_bound = percent(patterns["success_rate_if_errors_failed"])
        lines.append(
            f"{patterns['errors']} excluded: ended in an infrastructure error; "
            f"counted as failures, the success rate is {lower_bound}."
        )
    if excluded := patterns.get("excluded_runs"):
        lines.append(exclusions_text(excluded, analyzed=patterns["successful_runs"]))
    if patterns["stand_ins"]:
        lines.append("Mock models took part: these results say nothing about real models.")
    for name, statistics in document["metrics_analysis"].items():
        if statistics["n"]:
            lines.append(
                f"{name}: {figure(statistics['mean'])} (95% CI {around(statistics)}, n = {statistics['n']})"
            )
        if statistics["note"]:
            lines.append(f"{name}: {statistics['note']}")
        pairs = document["comparisons"].get(name, ())
        for pair in pairs[:LISTED_PAIRS]:
            first, second = pair["descriptions"]
            corrected = pair["p_corrected"]
            p_value = "not tested" if corrected is None else f"{p_text(corrected)}, corrected"
            lines.append(f"  {first} − {second}: {figure(pair['value'])} ({p_value}; {pair['test']})")
        if len(pairs) > LISTED_PAIRS:
            lines.append(f"  … and {len(pairs) - LISTED_PAIRS} more in comparisons.json")
        lines += _anova_lines(document["tests"]["metrics"][name]["anova"])
    for name, by_factor in document["tests"]["categories"].items():
        lines += [f"{name}: {association_text(factor, each)}" for factor, each in by_factor.items()]
    statements = [*patterns["success_factors"], *patterns["failure_modes"], *patterns["metric_effects"]]
    lines += [each["statement"] for each in statements[:LISTED_STATEMENTS]]
    if len(statements) > LISTED_STATEMENTS:
        lines.append(f"… and {len(statements) - LISTED_STATEMENTS} more in patterns.json")
    return "\n".join([*lines, *patterns["notes"]])


def _anova_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The tests of an analysis of variance, a line for each factor and interaction."""
    tested = [row for row in rows if row["p_corrected"] is not None]
    lines = [
        f"  {row['source']}: F({row['df']}, {row['df_error']}) = {figure(row['f'])}, "
        f"{p_text(row['p_corrected'])}, corrected; partial η² {row['partial_eta_squared']:.2f} "
        f"(90% CI {row['low']:.2f} to {row['high']:.2f})"
        for row in tested[:LISTED_PAIRS]
    ]
    more = len(tested) - LISTED_PAIRS
    return [*lines, f"  … and {more} more in tests.json"] if more > 0 else lines


def association_text(factor: str, row: Mapping[str, Any]) -> str:
    """How a categorical metric goes with a factor, in one line."""
    if row["p"] is None:
        return f"{factor}: {row['note']}"
    low, high = row["low"], row["high"]
    return (
        f"{factor}: Cramér's V {row['cramers_v']:.2f} (95% CI {low:.2f} to {high:.2f}), "
        f"{p_text(row['p_corrected'])}, corrected; {row['test']}, n = {row['n']}"
    )


def p_text(p: float) -> str:
    """`p = 0.012` or `p < 0.001`."""
    text = chance(p)
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def around_g(row: Mapping[str, Any]) -> str:
    """Hedges g with its interval; a dash: none."""
    low, high = row["hedges_g_interval"]
    return "–" if row["hedges_g"] is None else f"{row['hedges_g']:.2f} ({low:.2f} to {high:.2f})"


def around(row: Mapping[str, Any]) -> str:
    """A confidence interval as text; without one, what it would need."""
    return limits_text(row["low"], row["high"], row.get("needs") or row.get("runs_needed"))


def cost_limits(costs: Mapping[str, Any]) -> str:
    """The confidence interval of a cost as text."""
    if costs["low"] is None:
        return "none"
    return (
        f"{usd(costs['low'])} to {usd(costs['high'])}"
        if costs["high"]
        else f"from {usd(costs['low'])}, no upper limit"
    )
