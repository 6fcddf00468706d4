"""Judge a session by asking a model, on any scale.

Knows nothing of providers or of who spoke.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from proctor.evaluator import Evidence
from proctor.item import digest_of
from proctor.judging.engine import CriteriaVerdict, Criterion, TranscriptLine, judge
from proctor.model import Model, Request
from proctor.score import Level, Score


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

    @property
    def name(self) -> str:
        return self.criterion.name

    @property
    def level(self) -> Level:
        return "session" if self.criterion.level == "session" else "trace"

    @property
    def digest(self) -> str:
        """Changes with the question, its scale, and who is asked."""
        return digest_of([self.criterion.digest, self.model, dict(self.parameters)])[:16]

    async def judge(self, evidence: Evidence) -> Sequence[Score]:
        """Every verdict: one of the session, or one for each message that is judged."""
        lines = [
            TranscriptLine(speaker=message.name or message.role, text=message.content)
            for message in evidence.messages
            if message.role != "system"
        ]
        profile = json.dumps(self.profile, ensure_ascii=False, indent=1) if self.profile else ""
        scores = await judge(self.criterion, lines, self._ask, profile=profile)
        return [replace(score, evaluator_digest=self.digest) for score in scores]

    async def _ask(self, messages: Sequence[Mapping[str, str]]) -> CriteriaVerdict:
        answer = await self.models.answer(
            Request(model=self.model, messages=messages, parameters=self.parameters)
        )
        return CriteriaVerdict(text=answer.text, cost_usd=answer.call.cost_usd)
