"""Any evaluator of the product, at the end of an attempt: found by name, asked once, its scores kept.

Whoever cannot judge leaves a score that says so; what was judged stays what it is.

Knows nothing of what kind of session it is.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from proctor.errors import CostLimit, EvaluatorError, ModelError, blame
from proctor.evaluator import Evidence
from proctor.runner import Services
from proctor.score import Score


async def judged_by(wanted: Mapping[str, Any], evidence: Evidence, services: Services) -> Sequence[Score]:
    """The scores of one evaluator, which are kept: `name`, and `judging`, whom it asks and how."""
    name = str(wanted["name"])
    try:
        with blame(EvaluatorError, name):
            evaluator = services.evaluator(name, wanted["judging"])
            scores = await evaluator.judge(evidence)
    except CostLimit:
        raise
    except (EvaluatorError, ModelError) as error:
        scores = [Score(evaluator=name, error=str(error))]
    for score in scores:
        services.score(score)
    return scores


def below(mark: float | None, scores: Sequence[Score]) -> list[str]:
    """What to say of scores that did not reach a pass mark. None: there is no mark."""
    if mark is None:
        return []
    return [
        f"{score.evaluator}{f' of {score.target}' if score.target else ''} is {score.value:g}, "
        f"below its pass mark {mark:g}"
        for score in scores
        if score.value is not None and score.value < mark
    ]
