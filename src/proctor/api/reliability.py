"""Measure how far several judges and people agree on one evaluator, and find the targets they differ on."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from proctor.api.calibration import (
    human_labels,
    labeled_sessions,
    scale_in,
    scores_by_session,
)
from proctor.api.evaluators import EvaluatorWorkbench
from proctor.context import RunContext
from proctor.errors import AttemptError, UsageError
from proctor.evaluator import Evaluator, judges_of
from proctor.json_values import JsonObject
from proctor.score import Score
from proctor.stats.calibration import LabelValue, on_scale, order_of
from proctor.stats.intervals import Estimate
from proctor.stats.reliability import RatedTarget, RaterPair, Reliability, reliability

__all__ = ["RaterPair", "Reliability", "ReliabilityResult", "measure_reliability"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliabilityResult:
    """Agreement of judges and people, by dimension."""

    evaluators: Sequence[Evaluator]
    """The evaluator, once with each judge."""
    dimensions: Mapping[str, Reliability]
    """By dimension; empty: the evaluator has none."""
    errors: Sequence[str]
    """Why judgments failed; they are left out."""
    cost_usd: float | None

    def document(self) -> JsonObject:
        """The result as JSON."""
        return {
            "evaluator": self.evaluators[0].name,
            "errors": len(self.errors),
            "costUsd": self.cost_usd,
            "dimensions": {name: _document(each) for name, each in self.dimensions.items()},
        }


def measure_reliability(
    ctx: RunContext, name: str, *, judges: Sequence[str], labels: Path | None = None
) -> ReliabilityResult:
    """Have each judge rate the targets that people labeled, in a CSV file or in the store, and compare all.

    Nothing is stored. People keep their own ratings: no two of them are merged into one label.
    """
    results: dict[str, Sequence[list[Score] | AttemptError]] = {}
    evaluators: list[Evaluator] = []
    for judge in judges or [""]:
        with EvaluatorWorkbench(ctx, judge=judge) as workbench:
            evaluator = workbench.evaluator(name)
            called = ", ".join(judges_of(evaluator)) or evaluator.name
            if called in results:
                raise UsageError(
                    f"{called} would judge twice\nName each judge once. An evaluator that defines its own "
                    "judge asks that one, whichever is named."
                )
            if not results:
                human = human_labels(ctx, evaluator, labels)
                sessions = labeled_sessions(ctx.store, human)
            evaluators.append(evaluator)
            results[called] = asyncio.run(workbench.judged(evaluator, list(sessions.values())))
    scores = {judge: scores_by_session(list(sessions), own) for judge, own in results.items()}
    dimensions: dict[str, Reliability] = {}
    for dimension, targets in human.items():
        scale = scale_in(evaluator, dimension)
        people = sorted({who for labeled in targets.values() for who in labeled})
        if clash := results.keys() & set(people):
            raise UsageError(f"`{min(clash)}` is a judge and a person\nRename the person in the labels.")
        rated = [
            RatedTarget(
                session=session,
                target=target,
                ratings={
                    **{who: on_scale(scale, opinion).word for who, opinion in labeled.items()},
                    **{
                        judge: LabelValue(label=own[0].label, value=own[0].value).word
                        for judge, found in scores.items()
                        if (own := found.get((session, target, dimension)))
                    },
                },
            )
            for (session, target), labeled in targets.items()
        ]
        dimensions[dimension] = reliability(rated, people=people, judges=list(results), order=order_of(scale))
    every = [each for own in results.values() for each in own]
    given = [score for each in every if not isinstance(each, AttemptError) for score in each]
    costs = [score.cost_usd for score in given if score.cost_usd is not None]
    return ReliabilityResult(
        evaluators=evaluators,
        dimensions=dimensions,
        errors=[
            *(str(each) for each in every if isinstance(each, AttemptError)),
            *(score.error for score in given if score.error),
        ],
        cost_usd=sum(costs) if costs else None,
    )


def _document(found: Reliability) -> JsonObject:
    def around(estimate: Estimate) -> JsonObject:
        return {"value": estimate.value, "low": estimate.low, "high": estimate.high, "note": estimate.note}

    return {
        "people": list(found.people),
        "judges": list(found.judges),
        "targets": found.targets,
        "weighted": found.weighted,
        "offScale": found.off_scale,
        "alpha": around(found.alpha),
        "peopleAlpha": around(found.people_alpha),
        "judgesAlpha": around(found.judges_alpha),
        "pairs": [
            {
                "first": pair.first,
                "second": pair.second,
                "targets": pair.targets,
                "agreement": pair.same / pair.targets if pair.targets else None,
                "kappa": around(pair.kappa),
            }
            for pair in found.pairs
        ],
        "disagreements": [
            {"session": each.session, "target": each.target, "ratings": dict(each.ratings)}
            for each in found.disagreements
        ],
    }
