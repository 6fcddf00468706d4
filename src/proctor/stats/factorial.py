"""The tests of an experiment with several factors: analyses of variance, contrasts, odds ratios, and labels.

Seeds are blocks. Each kind of table is a family of its own, over all metrics: its corrected p values hold
together (Bonferroni).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from proctor.stats.effects import BLOCK, AnovaRow, Association, anova, association, rank_test
from proctor.stats.experiment import (
    LevelContrast,
    RunData,
    Study,
    is_rating,
    never_differs,
    pairs_and_trends,
)
from proctor.stats.odds import MOST_CATEGORIES, OddsModel, OddsRatio, odds_model


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorialTests:
    """What a study tests, by metric. The success rate has the empty name."""

    anova: Mapping[str, Sequence[AnovaRow]]
    contrasts: Sequence[LevelContrast]
    """Pairs of levels, and trends over numeric levels, of factors with three and more."""
    odds: Mapping[str, OddsModel]
    """Of the success rate, of metrics of 0 and 1, and of ratings."""
    associations: Mapping[str, Mapping[str, Association]]
    """Of each categorical metric, by factor."""


def factorial_tests(study: Study, metrics: Sequence[str]) -> FactorialTests:
    """The tests of a study. Metrics that never differ between repeats have none: repeats are one run."""
    chosen = [metric for metric in metrics if not never_differs(study, metric)] if study.levels else []
    labels = dict.fromkeys(name for run in study.completed for name in run.labels)
    return FactorialTests(
        anova=_corrected_rows({metric: metric_anova(study, metric) for metric in chosen}),
        contrasts=pairs_and_trends(study, chosen),
        odds=_corrected_odds(
            {
                metric: model
                for metric in ("", *chosen)
                if study.levels and (model := _odds(study, metric)) is not None and model.ratios
            }
        ),
        associations=_corrected_labels({name: _associations(study, name) for name in labels}),
    )


def _levels(study: Study, runs: Sequence[RunData]) -> dict[str, list[str]]:
    levels = {factor: [study.level(run, factor) for run in runs] for factor in study.levels}
    return {factor: column for factor, column in levels.items() if len(set(column)) > 1}


def _seeds(runs: Sequence[RunData]) -> list[int] | None:
    """The blocks of runs. None: not every run has a seed, or none is shared."""
    seeds = [run.seed for run in runs if run.seed is not None]
    return seeds if len(seeds) == len(runs) and len(set(seeds)) < len(seeds) else None


def metric_anova(study: Study, metric: str) -> list[AnovaRow]:
    """The analysis of variance of one metric, not corrected."""
    runs = study.measured(metric)
    values, levels, seeds = study.values(runs, metric), _levels(study, runs), _seeds(runs)
    rows = []
    for row in anova(values, levels, seeds):
        if row.source in levels:
            others = [column for name, column in levels.items() if name != row.source]
            blocks = None
            if seeds is not None:
                # Where the effect varies with the seed, a seed is one observation.
                varies = row.error.endswith(BLOCK)
                blocks = list(zip(seeds, *([] if varies else others), strict=True))
            name, p = rank_test(values, levels[row.source], blocks)
            row = replace(row, rank_test=name, rank_p=p)
        rows.append(row)
    return rows


def _odds(study: Study, metric: str) -> OddsModel | None:
    runs = study.measured(metric) if metric else [run for run in study.runs if run.is_judged]
    values = study.values(runs, metric) if metric else [float(run.is_success) for run in runs]
    different = set(values)
    is_ordered = different <= {0.0, 1.0} or (is_rating(study, metric) and len(different) <= MOST_CATEGORIES)
    if len(different) < 2 or not is_ordered:
        return None
    return odds_model(values, _levels(study, runs), _seeds(runs))


def _associations(study: Study, name: str) -> dict[str, Association]:
    runs = [run for run in study.completed if name in run.labels]
    levels, seeds = _levels(study, runs), _seeds(runs)
    found = {}
    for factor, column in levels.items():
        others = [other for key, other in levels.items() if key != factor]
        blocks = (
            None
            if seeds is None and not others
            else list(zip(*([seeds] if seeds else []), *others, strict=True))
        )
        found[factor] = association([run.labels[name] for run in runs], column, blocks)
    return found


def _corrected_rows(tables: Mapping[str, Sequence[AnovaRow]]) -> dict[str, list[AnovaRow]]:
    # The test of seeds asks no question of the study.
    size = sum(row.p is not None and row.source != BLOCK for rows in tables.values() for row in rows)
    return {
        metric: [
            row if row.source == BLOCK else replace(row, p_corrected=_times(row.p, size)) for row in rows
        ]
        for metric, rows in tables.items()
    }


def _corrected_odds(models: Mapping[str, OddsModel]) -> dict[str, OddsModel]:
    size = sum(ratio.p is not None for model in models.values() for ratio in model.ratios)

    def corrected(ratio: OddsRatio) -> OddsRatio:
        return replace(ratio, p_corrected=_times(ratio.p, size))

    return {
        metric: replace(model, ratios=tuple(map(corrected, model.ratios))) for metric, model in models.items()
    }


def _corrected_labels(
    tables: Mapping[str, Mapping[str, Association]],
) -> dict[str, dict[str, Association]]:
    size = sum(each.p is not None for by_factor in tables.values() for each in by_factor.values())
    return {
        name: {factor: replace(each, p_corrected=_times(each.p, size)) for factor, each in by_factor.items()}
        for name, by_factor in tables.items()
    }


def _times(p: float | None, size: int) -> float | None:
    return None if p is None else min(1.0, p * size)
