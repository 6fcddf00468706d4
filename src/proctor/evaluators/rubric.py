"""A shipped rubric as an evaluator of any session: the assistant is the therapist, the user the client."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from proctor.errors import EvaluatorError
from proctor.evaluator import Evidence
from proctor.item import digest_of
from proctor.judging.engine import Criterion, Judge, TranscriptLine, score_criterion
from proctor.score import Level, Score

SIDES = {"assistant": "therapist", "user": "client"}


@dataclass(frozen=True, kw_only=True)
class RubricEvaluator:
    """The criteria of one rubric, judged by a model."""

    name: str
    criteria: Sequence[Criterion]
    judge_model: Judge
    level: Level = "session"

    @property
    def digest(self) -> str:
        """Changes with the criteria."""
        return digest_of([criterion.digest for criterion in self.criteria])[:16]

    async def judge(self, evidence: Evidence) -> Sequence[Score]:
        """The scores of all criteria, with the digests that simulations give them."""
        lines, profile = _lines(evidence), _profile(evidence)
        scores = list[Score]()
        for criterion in self.criteria:
            if not lines:
                scores.append(_failed(criterion, "the session has no messages"))
            elif criterion.sees_profile and not profile:
                scores.append(_failed(criterion, "the session has no profile to compare with"))
            else:
                try:
                    scores += await score_criterion(criterion, lines, self.judge_model, profile=profile)
                except EvaluatorError as error:
                    scores.append(_failed(criterion, str(error)))
        return scores


def _failed(criterion: Criterion, problem: str) -> Score:
    return Score(evaluator=criterion.name, evaluator_digest=criterion.digest, error=problem)


def _lines(evidence: Evidence) -> list[TranscriptLine]:
    known = set(SIDES.values())
    return [
        TranscriptLine(
            speaker=message.name if message.name in known else SIDES[message.role], text=message.content
        )
        for message in evidence.messages
        if message.role in SIDES
    ]


def _profile(evidence: Evidence) -> str:
    """The profiles of the roles, or else the instructions they were given; empty: unknown."""
    profiles = evidence.attributes.get("profiles")
    if profiles:
        return json.dumps(profiles, ensure_ascii=False, indent=1)
    prompts = [each.content for each in evidence.messages if each.name.startswith("instructions of the ")]
    return "\n\n".join(prompts) or evidence.system_prompt
