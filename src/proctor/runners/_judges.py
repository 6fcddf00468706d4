"""Judge a dialogue as soon as it has ended, in the same attempt, so that the verdicts' cost is its own.

Knows nothing of how the dialogue came about.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from proctor.dialogue.seats import Asking
from proctor.errors import EvaluatorError, ModelError
from proctor.judging import Criterion, Line, Verdict, judge
from proctor.runner import Services
from proctor.score import Score

PARAMETERS = {"temperature": 0.0}


class Judges(Asking):
    """Those who judge one dialogue."""

    def __init__(self, services: Services, seed: int) -> None:
        super().__init__(services, seed)
        self._keep_score = services.score

    async def judge(
        self,
        criterion: Criterion,
        model: str,
        lines: Sequence[tuple[str, str]],
        profile: Mapping[str, Any],
    ) -> list[str]:
        """Keep the verdicts; what to say of those below the pass mark."""

        async def ask(messages: Sequence[Mapping[str, str]]) -> Verdict:
            answer = await self.put(model, messages, PARAMETERS, keep=True)
            return Verdict(text=answer.text, cost_usd=answer.call.cost_usd)

        shown = json.dumps(dict(profile), ensure_ascii=False, indent=1)
        spoken = [Line(speaker=speaker, text=text) for speaker, text in lines]
        try:
            scores = await judge(criterion, spoken, ask, profile=shown)
        except (EvaluatorError, ModelError) as error:
            # The dialogue is what it is, whether or not it could be judged.
            scores = [Score(evaluator=criterion.name, evaluator_digest=criterion.digest, error=str(error))]
        for score in scores:
            self._keep_score(score)
        return [_said(criterion, score) for score in scores if _is_below(criterion, score)]


def _is_below(criterion: Criterion, score: Score) -> bool:
    mark = criterion.passes_at
    return mark is not None and score.value is not None and score.value < mark


def _said(criterion: Criterion, score: Score) -> str:
    where = f" of {score.target}" if score.target else ""
    return f"{criterion.name}{where} is {score.value:g}, below its pass mark {criterion.passes_at:g}"
