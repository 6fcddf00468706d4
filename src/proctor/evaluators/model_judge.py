"""Judge a session by asking a model, with a scale of labels.

Used for the built-in evaluators and for those that users define: only the question differs. Where a
question needs ground truth, there may be another for when there is none.

Knows nothing of providers or of where definitions come from.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from proctor.errors import ModelError, RateLimited
from proctor.evaluator import Evidence
from proctor.evaluators.rendering import (
    EvaluationTarget,
    Skill,
    ignored_of,
    pieces_of,
    skill_of,
    targets_of,
    turns_of,
)
from proctor.item import digest_of
from proctor.judging.engine import DimensionVerdict, Judge, JudgeUsage, verdicts
from proctor.judging.question import OF_GROUND_TRUTH, OF_SKILLS, Question, messages_of
from proctor.score import Level, Score

MOST_INPUT_TOKENS = 200_000
"""What may be asked about one target; the interface's own limit."""


AT_ONCE = 4
"""Targets of one session that are judged at the same time."""


ERROR_CODES = {"rate_limit": "ThrottlingException", "bad_request": "ValidationException"}


@dataclass(frozen=True, kw_only=True)
class ModelJudge:
    """A question about each target of a level, put to a model."""

    name: str
    level: Level
    judge_model: Judge
    question: Question
    with_reference: Question | None = None
    """Asked instead where the ground truth it shows is given."""
    only_skills: bool = False
    """Whether only tool calls that loaded a skill are judged."""
    sees_all: bool = False
    """Whether the judge also sees what came after the target."""

    @property
    def digest(self) -> str:
        """Changes with the questions, their scales, and who is asked how often."""
        other = self.with_reference.plain if self.with_reference else None
        return digest_of([self.level, self.question.plain, other, self.judge_model.plain])[:16]

    async def judge(self, evidence: Evidence) -> Sequence[Score]:
        """A score for each target and dimension. Raises `ModelError` when the model answers nothing."""
        places, failures = asyncio.Semaphore(AT_ONCE), list[ModelError]()

        async def judged(target: EvaluationTarget, skill: Skill | None) -> list[Score]:
            async with places:
                try:
                    return await self._judged(evidence, target, skill)
                except ModelError as error:
                    failures.append(error)
                    return [self._failed(evidence, target, str(error), _code(error))]

        wanted = self._targets(evidence)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(judged(target, skill)) for target, skill in wanted]
        except BaseExceptionGroup as group_error:
            raise group_error.exceptions[0] from group_error
        if failures and len(failures) == len(wanted):
            raise failures[0]
        return [score for task in tasks for score in task.result()]

    def _targets(self, evidence: Evidence) -> list[tuple[EvaluationTarget, Skill | None]]:
        found = targets_of(evidence, self.level)
        if self.level != "tool_call":
            return [(target, None) for target in found]
        turns = turns_of(evidence)
        skilled = [(target, skill_of(evidence, turns[target.turn], target.call)) for target in found]
        needs_skill = self.only_skills or not self.question.places.isdisjoint(OF_SKILLS)
        return [(target, skill) for target, skill in skilled if skill or not needs_skill]

    async def _judged(self, evidence: Evidence, target: EvaluationTarget, skill: Skill | None) -> list[Score]:
        if not turns_of(evidence):
            return [self._failed(evidence, target, "nothing was said or done in this session", NOTHING_THERE)]
        pieces = pieces_of(evidence, target, skill, sees_all=self.sees_all)
        question = self._question(pieces)
        if missing := sorted(question.places - pieces.keys()):
            names = ", ".join(OF_GROUND_TRUTH.get(place, place) for place in missing)
            return [self._failed(evidence, target, f"needs {names}, which was not given", NOT_VALID)]
        messages = messages_of(question, pieces)
        if (size := sum(estimated_tokens(message["content"]) for message in messages)) > MOST_INPUT_TOKENS:
            said = f"about {size:,} tokens to be judged; {MOST_INPUT_TOKENS:,} can be"
            return [self._failed(evidence, target, said, NOT_VALID)]
        bill = JudgeUsage()
        found = await verdicts(self.judge_model, question, messages, bill)
        return self._scores(evidence, target, question, found, bill)

    def _question(self, pieces: Mapping[str, str]) -> Question:
        other = self.with_reference
        return other if other and other.places <= pieces.keys() else self.question

    def _scores(
        self,
        evidence: Evidence,
        target: EvaluationTarget,
        question: Question,
        found: Mapping[str, DimensionVerdict],
        bill: JudgeUsage,
    ) -> list[Score]:
        about = replace(self._about(target), ignored=ignored_of(evidence, question.uses))
        scores = [_scored(about, dimension, verdict) for dimension, verdict in found.items()]
        # Money and tokens are of the call, which all dimensions share: they are told once.
        first = replace(
            scores[0],
            cost_usd=bill.cost_usd,
            input_tokens=bill.input_tokens,
            output_tokens=bill.output_tokens,
        )
        return [first, *scores[1:]]

    def _failed(self, evidence: Evidence, target: EvaluationTarget, error: str, code: str) -> Score:
        ignored = ignored_of(evidence, self.question.uses)
        return replace(self._about(target), error=error, error_code=code, ignored=ignored)

    def _about(self, target: EvaluationTarget) -> Score:
        return Score(evaluator=self.name, evaluator_digest=self.digest, level=target.level, target=target.id)


NOT_VALID, NOTHING_THERE, UNREADABLE = (
    "ValidationException",
    "SessionValidationException",
    "UnreadableVerdict",
)


def _scored(about: Score, dimension: str, verdict: DimensionVerdict) -> Score:
    if verdict.error:
        return replace(about, dimension=dimension, error=verdict.error, error_code=UNREADABLE)
    return replace(
        about,
        dimension=dimension,
        value=verdict.value,
        label=verdict.label,
        explanation=verdict.explanation,
        votes=verdict.votes,
    )


def estimated_tokens(text: str) -> int:
    """About how many tokens a text is: four letters each, and every letter beyond ASCII one of its own."""
    if text.isascii():
        return len(text) // 4
    beyond = sum(not letter.isascii() for letter in text)
    return (len(text) - beyond) // 4 + beyond


def _code(error: ModelError) -> str:
    if isinstance(error, RateLimited):
        return "ThrottlingException"
    return ERROR_CODES.get(error.reason, "InternalServerException")
