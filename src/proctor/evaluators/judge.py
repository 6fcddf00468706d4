"""Judge a session by asking a model, on any scale.

Knows nothing of providers or of who spoke.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from proctor.evaluator import Evidence
from proctor.judging import Criterion, Line, Verdict, judge
from proctor.model import Model, Request
from proctor.score import Score


@dataclass(frozen=True, kw_only=True)
class Judge:
    """A model that answers one question about a session."""

    criterion: Criterion
    models: Model
    model: str
    """Who judges, as `provider/model`."""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"temperature": 0.0})
    profile: Mapping[str, Any] = field(default_factory=dict)
    """Who the people in it are meant to be, for criteria that ask about it."""

    async def judge(self, evidence: Evidence) -> Score:
        """The verdict on the whole session; of messages judged one by one, the mean."""
        scores = await self.judge_all(evidence)
        if len(scores) == 1:
            return scores[0]
        values = [score.value for score in scores if score.value is not None]
        return Score(
            evaluator=self.criterion.name,
            evaluator_digest=self.criterion.digest,
            value=sum(values) / len(values) if values else None,
            explanation=f"the mean of {len(values)} messages",
        )

    async def judge_all(self, evidence: Evidence) -> list[Score]:
        """Every verdict: one of the session, or one for each message that is judged."""
        lines = [
            Line(speaker=message.name or message.role, text=message.content)
            for message in evidence.messages
            if message.role != "system"
        ]
        profile = json.dumps(self.profile, ensure_ascii=False, indent=1) if self.profile else ""
        return await judge(self.criterion, lines, self._ask, profile=profile)

    async def _ask(self, messages: Sequence[Mapping[str, str]]) -> Verdict:
        answer = await self.models.answer(
            Request(model=self.model, messages=messages, parameters=self.parameters)
        )
        return Verdict(text=answer.text, cost_usd=answer.call.cost_usd)
