"""Evaluates one recorded session, or a pair of them, with one evaluator.

The session of the attempt is the evaluation: requests and answers of the judge, their cost, and the scores,
which name the session they are about. A target that could not be evaluated is a score with an error; the
item is then in error too, and the scores of the other targets stay.
"""

from dataclasses import replace
from functools import cache

from proctor.errors import AttemptError, EvaluatorError, blame
from proctor.evaluator import Evaluator, failed_score
from proctor.item import ERROR, Item
from proctor.runner import Outcome, Services
from proctor.score import Score
from proctor.session import Iteration, Note

MOST_ERRORS = 3
"""Errors that an item reports; all of them are scores of their own."""


class EvaluationRunner:
    """Runs items that are a session, or two to compare, and an evaluator."""

    async def run(self, item: Item, services: Services) -> Outcome:
        """Evaluate, and record every score."""
        settings = item.settings
        with blame(EvaluatorError, f"finding {settings['evaluator']}"):
            evaluator = services.evaluator(settings["evaluator"], settings["judging"])
        if evaluator.digest != item.details["evaluatorDigest"]:
            raise EvaluatorError(
                f"{evaluator.name} is no longer what it was when the job began (digest {evaluator.digest}, "
                f"then {item.details['evaluatorDigest']})"
            )
        try:
            scores = await self._judge(item, services, evaluator)
        except AttemptError as error:
            services.score(replace(failed_score(evaluator, error), judged_session=settings["session"]))
            raise
        for score in scores:
            services.score(replace(score, judged_session=settings["session"]))
        services.record(_step(item.model))
        if not scores:
            services.record(Note(text=f"there is no {evaluator.level} in this session to judge"))
        return _outcome(scores)

    async def _judge(self, item: Item, services: Services, evaluator: Evaluator) -> list[Score]:
        with blame(EvaluatorError, "reading the session"):
            evidence = await services.sessions(
                item.settings["session"], item.details.get("traces", ()), item.settings.get("scenario", "")
            )
            if other := item.settings.get("comparedWith"):
                evidence = replace(evidence, compared_with=await services.sessions(other))
        async with services.time_limit(item.settings.get("timeoutSec"), evaluator.name):
            with blame(EvaluatorError, evaluator.name):
                return list(await evaluator.judge(evidence))


@cache
def _step(model: str) -> Iteration:
    # One object for all items: the recorder makes its columns once.
    return Iteration(model=model)


def _outcome(scores: list[Score]) -> Outcome:
    failed = [score.error for score in scores if score.error]
    if not failed:
        return Outcome()
    errors = "; ".join(dict.fromkeys(failed[:MOST_ERRORS]))
    error = errors if len(failed) == len(scores) == 1 else f"{len(failed)} of {len(scores)}: {errors}"
    return Outcome(status=ERROR, reason="evaluator_failed", error=error)
