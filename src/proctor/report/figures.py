"""The figures of a run as JSON: `proctor report --format json`."""

from collections.abc import Sequence
from dataclasses import asdict

from proctor.stats.figures import FactorFigures, Figures, PassAtK
from proctor.stats.intervals import Estimate
from proctor.stats.ranking import Rank
from proctor.stats.summary import Summary


def figures_document(summary: Summary) -> dict[str, object]:
    """The documented JSON of a report: overall, by factor, ranks, flaky tasks, and reasons of failures."""
    batch, figures = (summary.batches[0] if summary.batches else None), summary.figures
    return {
        "runId": batch.run_id if batch else None,
        "job": batch.job if batch else None,
        "status": batch.status if batch else None,
        "createdAt": batch.created_at if batch else None,
        "finishedAt": (batch.finished_at or None) if batch else None,
        "unfinished": figures.unfinished,
        **({"stopWhen": batch.stop_when} if batch and batch.stop_when else {}),
        "standIns": list(figures.stand_ins),
        **({"otherModels": [asdict(each) for each in figures.answered]} if figures.answered else {}),
        "costUsd": summary.cost.known_usd,
        "tokensTotal": summary.tokens.total,
        **level_document(figures.overall),
        "factors": {each.name: factor_document(each) for each in figures.factors},
        "flakyTaskCount": figures.flaky_count,
        "flakyTasks": [
            {"task": each.words, "by": each.group, "successes": each.successes, "runs": each.runs}
            for each in figures.flaky
        ],
        "failureReasons": dict(figures.reasons),
        "paretoFront": list(figures.front),
    }


def factor_document(factor: FactorFigures) -> dict[str, object]:
    """One factor: its levels by name, and their ranks by success and by pass^k."""
    return {
        "levels": {each.name: level_document(each) for each in factor.levels},
        "tooManyLevels": factor.is_too_many,
        "ranks": [rank_document(each) for each in factor.ranks],
        "ranksByPassHatK": {"k": factor.k, "ranks": [rank_document(each) for each in factor.reliability]},
        "paretoFront": list(factor.front),
        "errorsDecideOrder": factor.errors_decide,
    }


def rank_document(each: Rank) -> dict[str, object]:
    """One row of a ranking."""
    return {
        "name": each.name,
        "value": each.value,
        "sem": each.sem,
        "low": each.low,
        "high": each.high,
        "rank": each.rank,
        "rankLow": each.rank_low,
        "rankHigh": each.rank_high,
        "tasks": each.tasks,
        "runs": each.runs,
        "note": each.note,
    }


def level_document(each: Figures) -> dict[str, object]:
    """The figures of one group of items."""
    return {
        "counts": dict(each.counts),
        **({"unchecked": each.unchecked} if each.unchecked else {}),
        "success": estimate_document(each.success),
        "successWithErrors": estimate_document(each.with_errors),
        "passAtK": _of_k(each.pass_at),
        "passHatK": _of_k(each.pass_hat),
        "cost": estimate_document(each.cost_usd),
        "typicalCost": estimate_document(each.typical_cost_usd),
        "seconds": estimate_document(each.seconds),
        "typicalSeconds": estimate_document(each.typical_seconds),
        "costPerSuccess": estimate_document(each.cost_per_success_usd),
        "scores": {name: estimate_document(one) for name, one in each.scores.items()},
        "metrics": {name: estimate_document(one) for name, one in each.metrics.items()},
    }


def estimate_document(one: Estimate) -> dict[str, object]:
    """An estimate with its interval, what the interval is about, and what limits it."""
    return {
        "value": one.value,
        "sem": one.sem,
        "low": one.low,
        "high": one.high,
        "level": one.level,
        "scope": one.scope,
        "tasks": one.n,
        "runs": one.runs,
        "leftOut": one.left_out,
        "method": one.method,
        "note": one.note,
    }


def _of_k(entries: Sequence[PassAtK]) -> list[dict[str, object]]:
    return [
        {
            "k": each.k,
            "value": each.estimate.value,
            "sem": each.estimate.sem,
            "low": each.estimate.low,
            "high": each.estimate.high,
            "tasks": each.estimate.n,
            "leftOut": each.estimate.left_out,
        }
        for each in entries
    ]
