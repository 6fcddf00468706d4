"""Evaluators that ask a model judge, on a scale of labels.

Built-in and custom evaluators differ only in their question. A question that needs ground truth may have an
alternative for sessions without it. A shipped rubric is applied to any session: the assistant is the
therapist, the user the client.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from proctor.errors import EvaluatorError, ModelError, RateLimited
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
from proctor.judging.engine import (
    Criterion,
    DimensionVerdict,
    Judge,
    JudgeUsage,
    TranscriptLine,
    score_criterion,
    verdicts,
)
from proctor.judging.question import OF_GROUND_TRUTH, OF_SKILLS, Question, messages_of
from proctor.score import Level, Score

MOST_INPUT_TOKENS = 200_000
"""Maximum prompt size of one target; the API's own limit."""
AT_ONCE = 4
"""Targets of one session that are scored concurrently."""
ERROR_CODES = {"rate_limit": "ThrottlingException", "bad_request": "ValidationException"}


@dataclass(frozen=True, kw_only=True)
class ModelJudge:
    """A question about each target of a level, answered by a model."""

    name: str
    level: Level
    judge_model: Judge
    question: Question
    with_reference: Question | None = None
    """Asked instead where its ground truth is available."""
    only_skills: bool = False
    """Whether only tool calls that loaded a skill are scored."""
    sees_all: bool = False
    """Whether the judge sees what came after the target."""

    @property
    def digest(self) -> str:
        """Changes with the questions, their scales, the judge and its votes."""
        other = self.with_reference.plain if self.with_reference else None
        return digest_of([self.level, self.question.plain, other, self.judge_model.plain])[:16]

    async def judge(self, evidence: Evidence) -> Sequence[Score]:
        """A score for each target and dimension. Raises `ModelError` when every call failed."""
        slots, failures = asyncio.Semaphore(AT_ONCE), list[ModelError]()

        async def score_target(target: EvaluationTarget, skill: Skill | None) -> list[Score]:
            async with slots:
                try:
                    return await self._score_target(evidence, target, skill)
                except ModelError as error:
                    failures.append(error)
                    return [self._failed(evidence, target, str(error), _code(error))]

        targets = self._targets(evidence)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(score_target(target, skill)) for target, skill in targets]
        except BaseExceptionGroup as group_error:
            raise group_error.exceptions[0] from group_error
        if failures and len(failures) == len(targets):
            raise failures[0]
        return [score for task in tasks for score in task.result()]

    def _targets(self, evidence: Evidence) -> list[tuple[EvaluationTarget, Skill | None]]:
        targets = targets_of(evidence, self.level)
        if self.level != "tool_call":
            return [(target, None) for target in targets]
        turns = turns_of(evidence)
        with_skills = [(target, skill_of(evidence, turns[target.turn], target.call)) for target in targets]
        needs_skill = self.only_skills or not self.question.places.isdisjoint(OF_SKILLS)
        return [(target, skill) for target, skill in with_skills if skill or not needs_skill]

    async def _score_target(
        self, evidence: Evidence, target: EvaluationTarget, skill: Skill | None
    ) -> list[Score]:
        if not turns_of(evidence):
            return [self._failed(evidence, target, "the session is empty", NOTHING_THERE)]
        pieces = pieces_of(evidence, target, skill, sees_all=self.sees_all)
        question = self._question(pieces)
        if missing := sorted(question.places - pieces.keys()):
            names = ", ".join(OF_GROUND_TRUTH.get(place, place) for place in missing)
            return [self._failed(evidence, target, f"needs {names}, which was not given", NOT_VALID)]
        messages = messages_of(question, pieces)
        if (size := sum(estimated_tokens(message["content"]) for message in messages)) > MOST_INPUT_TOKENS:
            message = f"about {size:,} tokens to score, more than the limit of {MOST_INPUT_TOKENS:,}"
            return [self._failed(evidence, target, message, NOT_VALID)]
        usage = JudgeUsage()
        verdict_by_dimension = await verdicts(self.judge_model, question, messages, usage)
        return self._scores(evidence, target, question, verdict_by_dimension, usage)

    def _question(self, pieces: Mapping[str, str]) -> Question:
        other = self.with_reference
        return other if other and other.places <= pieces.keys() else self.question

    def _scores(
        self,
        evidence: Evidence,
        target: EvaluationTarget,
        question: Question,
        verdict_by_dimension: Mapping[str, DimensionVerdict],
        usage: JudgeUsage,
    ) -> list[Score]:
        about = replace(self._about(target), ignored=ignored_of(evidence, question.uses))
        scores = [
            _dimension_score(about, dimension, verdict) for dimension, verdict in verdict_by_dimension.items()
        ]
        # Cost and tokens belong to the call, which all dimensions share: they are set once.
        first = replace(
            scores[0],
            cost_usd=usage.cost_usd,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
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


def _dimension_score(about: Score, dimension: str, verdict: DimensionVerdict) -> Score:
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
    """Estimated tokens of a text: four ASCII characters each, and one for every other character."""
    if text.isascii():
        return len(text) // 4
    beyond = sum(not letter.isascii() for letter in text)
    return (len(text) - beyond) // 4 + beyond


def _code(error: ModelError) -> str:
    if isinstance(error, RateLimited):
        return "ThrottlingException"
    return ERROR_CODES.get(error.reason, "InternalServerException")


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
