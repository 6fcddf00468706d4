"""Evaluators with a model judge, on a scale of labels.

Built-in and custom evaluators differ only in their question. A question that needs ground truth may have an
alternative for sessions without it. Insights (what went wrong, what the user wanted, which approach was
taken) are labels with details as JSON in the explanation; sessions with the same label are grouped elsewhere.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from itertools import chain

from proctor.errors import ModelError
from proctor.evaluator import Evidence, failed_score
from proctor.evaluators.answer_parser import TEXT, AnswerField, instructions_for
from proctor.evaluators.judging import (
    OF_GROUND_TRUTH,
    OF_SKILLS,
    RULES,
    UNREADABLE,
    Judge,
    JudgeUsage,
    Question,
    ask_for_fields,
    fenced,
    messages_of,
    schema_of,
    verdicts,
)
from proctor.evaluators.rendering import (
    EvaluationTarget,
    Skill,
    ignored_of,
    numbered,
    pieces_of,
    skill_of,
    targets_of,
    turns_of,
)
from proctor.item import digest_of
from proctor.json_values import JsonMap, as_integer
from proctor.model_client import together
from proctor.score import Level, Score

MOST_INPUT_TOKENS = 200_000
"""Maximum prompt size of one target; the API's own limit."""
AT_ONCE = 4
"""Targets of one session that are scored concurrently."""


@dataclass(frozen=True, kw_only=True)
class ModelJudge:
    """A question about each target of a level, answered by a model."""

    name: str
    level: Level
    judge_model: Judge
    question: Question
    with_reference: Question | None = None
    """Used instead of `question` where its ground truth is available."""
    only_skills: bool = False
    """Whether only tool calls that loaded a skill are scored."""
    sees_all: bool = False
    """Whether the judge sees the session after the target."""

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
                    return [self._failed(evidence, target, error)]

        targets = self._targets(evidence)
        scores = await together([score_target(target, skill) for target, skill in targets])
        if failures and len(failures) == len(targets):
            raise failures[0]
        return list(chain.from_iterable(scores))

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
        if problem := too_long(messages, "score"):
            return [self._failed(evidence, target, problem, NOT_VALID)]
        about = Score(
            evaluator=self.name,
            evaluator_digest=self.digest,
            level=target.level,
            target=target.id,
            ignored=ignored_of(evidence, question.uses),
        )
        return await verdicts(self.judge_model, question, messages, about)

    def _question(self, pieces: Mapping[str, str]) -> Question:
        other = self.with_reference
        return other if other and other.places <= pieces.keys() else self.question

    def _failed(
        self, evidence: Evidence, target: EvaluationTarget, problem: ModelError | str, code: str = ""
    ) -> Score:
        ignored = ignored_of(evidence, self.question.uses)
        return replace(failed_score(self, problem, code, target=target.id), ignored=ignored)


NOT_VALID, NOTHING_THERE = "ValidationException", "SessionValidationException"


def estimated_tokens(text: str) -> int:
    """Estimated tokens of a text: four ASCII characters each, and one for every other character."""
    if text.isascii():
        return len(text) // 4
    beyond = sum(not letter.isascii() for letter in text)
    return (len(text) - beyond) // 4 + beyond


def too_long(messages: Sequence[Mapping[str, str]], purpose: str) -> str:
    """Why messages are not sent; empty: they may be."""
    size = sum(estimated_tokens(message["content"]) for message in messages)
    if size <= MOST_INPUT_TOKENS:
        return ""
    return f"about {size:,} tokens to {purpose}, more than the limit of {MOST_INPUT_TOKENS:,}"


OTHER = "other"
_BETWEEN = "-category-"
CATEGORIES: Mapping[str, str] = {
    "execution-error-category-authentication": "a call was refused for want of credentials or rights",
    "execution-error-category-resource-not-found": "something that was asked for is not there",
    "execution-error-category-service-errors": "a service or tool failed on its own side",
    "execution-error-category-rate-limiting": "a service refused because it was asked too often",
    "execution-error-category-formatting": "a call or an answer was malformed and could not be read",
    "execution-error-category-timeout": "something took too long and was given up",
    "execution-error-category-resource-exhaustion": "memory, disk, tokens or another means ran out",
    "execution-error-category-environment": "the place it worked in lacked something or was set up wrongly",
    "execution-error-category-tool-schema": "a tool was called with arguments its schema does not allow",
    "task-instruction-category-non-compliance": "an instruction was known and not obeyed",
    "task-instruction-category-problem-id": "the agent took the task for another one",
    "incorrect-actions-category-tool-selection": "another tool, or none, was called for",
    "incorrect-actions-category-poor-information-retrieval": "it looked in the wrong place, or for the wrong",
    "incorrect-actions-category-clarification": "it did not ask back where it had to, or asked without need",
    "incorrect-actions-category-inappropriate-info-request": "it asked for what is none of its business",
    "context-handling-error-category-context-handling-failures": "it lost or mixed up what was said",
    "hallucination-category-hall-capabilities": "it claimed to be able to do what it cannot",
    "hallucination-category-hall-misunderstand": "it stated what the material it had does not say",
    "hallucination-category-hall-usage": "it used something that does not exist",
    "hallucination-category-hall-history": "it referred to something that never happened",
    "hallucination-category-hall-params": "it made up the arguments of a call",
    "hallucination-category-fabricate-tool-outputs": "it told results of a tool that the tool did not give",
    "repetitive-behavior-category-repetition-tool": "it made the same call again and again",
    "repetitive-behavior-category-repetition-info": "it told or asked for the same thing again and again",
    "repetitive-behavior-category-step-repetition": "it went through steps again that were done",
    "orchestration-related-errors-category-reasoning-mismatch": "it did not do what it had reasoned",
    "orchestration-related-errors-category-goal-deviation": "it went after something else",
    "orchestration-related-errors-category-premature-termination": "it ended before it was done",
    "orchestration-related-errors-category-unaware-termination": "it did not notice its end",
    "llm-output-category-nonsensical": "what it said makes no sense",
    "configuration-mismatch-category-tool-definition": "a tool is described as something it is not",
    "coding-use-case-specific-failure-types-category-edge-case-oversights": "cases at the edge are forgotten",
    "coding-use-case-specific-failure-types-category-dependency-issues": "a dependency is missing or broken",
    OTHER: "it failed in a way that none of the others names",
}
"""Meaning of each category, as the prompt describes it."""


def family_of(category: str) -> str:
    """Family of a category, for people: `execution error`."""
    return category.partition(_BETWEEN)[0].replace("-", " ")


def kind_of(category: str) -> str:
    """A category within its family, for people: `tool schema`."""
    return (category.partition(_BETWEEN)[2] or category).replace("-", " ")


FAILURES, INTENT, SUMMARY = (
    f"Builtin.Insight.{name}" for name in ("FailureAnalysis", "UserIntent", "ExecutionSummary")
)
NO_FAILURE = "none"
"""Label of a session without a failure."""
MOST_MESSAGES, LONGEST_MESSAGE, LONGEST_NAME = 5, 500, 200
FIELDS: Mapping[str, Mapping[str, AnswerField]] = {
    FAILURES: {
        "evidence": TEXT,
        "category": AnswerField(kind="choice", choices=(*CATEGORIES, NO_FAILURE)),
        "confidence": AnswerField(kind="number", low=0.0, high=1.0),
        "turn": AnswerField(kind="integer"),
        "tool": TEXT,
        "root_cause_name": TEXT,
        "root_cause": TEXT,
        "recommendation": TEXT,
        "fix_type": TEXT,
    },
    INTENT: {"description": TEXT, "intent": TEXT},
    SUMMARY: {"approach_taken": TEXT, "final_outcome": TEXT, "approach": TEXT},
}
"""Fields of the answer by insight; reasons come before the label."""
LABELS = {FAILURES: "category", INTENT: "intent", SUMMARY: "approach"}


@dataclass(frozen=True, kw_only=True)
class InsightJudge:
    """A model that produces one insight about a session."""

    name: str
    """One of the three insights."""
    judge_model: Judge

    @property
    def level(self) -> Level:
        return "session"

    @property
    def digest(self) -> str:
        """Changes with the question and the judge."""
        return digest_of(
            [_instructions(self.name), instructions_for(FIELDS[self.name]), self.judge_model.plain]
        )[:16]

    async def judge(self, evidence: Evidence) -> Sequence[Score]:
        """One finding. Raises `ModelError` when the call fails."""
        if not turns_of(evidence):
            return [failed_score(self, "the session is empty", NOTHING_THERE)]
        messages, fields, usage = self._messages(evidence), FIELDS[self.name], JudgeUsage()
        if problem := too_long(messages, "analyze"):
            return [failed_score(self, problem, NOT_VALID)]
        values = await ask_for_fields(
            self.judge_model, messages, fields, [LABELS[self.name]], usage, schema_of(fields)
        )
        if not values.get(LABELS[self.name]):
            problem = "the judge gave no finding that could be read"
            return [usage.bill(failed_score(self, problem, UNREADABLE))]
        return [usage.bill(self._insight_score(evidence, values))]

    def _messages(self, evidence: Evidence) -> list[dict[str, str]]:
        instructions = _instructions(self.name).replace("{context}", fenced("context", numbered(evidence)))
        prompt = f"{instructions.strip()}\n\n{instructions_for(FIELDS[self.name])}"
        return [{"role": "system", "content": RULES}, {"role": "user", "content": prompt}]

    def _insight_score(self, evidence: Evidence, values: JsonMap) -> Score:
        details = {name: value for name, value in values.items() if name != LABELS[self.name]}
        if self.name == FAILURES:
            details |= _place(evidence, values)
        if self.name == INTENT:
            prompts = [trace.prompt for trace in turns_of(evidence) if trace.prompt]
            details["userMessages"] = [text[:LONGEST_MESSAGE] for text in prompts[:MOST_MESSAGES]]
        return Score(
            evaluator=self.name,
            evaluator_digest=self.digest,
            label=str(values[LABELS[self.name]])[:LONGEST_NAME],
            explanation=json.dumps(details, ensure_ascii=False),
        )


def _place(evidence: Evidence, values: JsonMap) -> dict[str, str]:
    """Ids of the turn and call the judge refers to; either may be wrong."""
    turns = turns_of(evidence)
    number = as_integer(values, "turn") or 1
    turn = turns[number - 1] if 1 <= number <= len(turns) else turns[0]
    call = next((each for each in turn.tool_calls if each.name == values.get("tool") and each.call_id), None)
    return {"traceId": turn.id, "spanId": call.call_id if call else turn.id}


def _instructions(name: str) -> str:
    folder = resources.files("proctor.evaluators") / "instructions"
    text = (folder / f"{name.removeprefix('Builtin.')}.txt").read_text(encoding="utf-8")
    meanings = "\n".join(f"- {category}: {meaning}" for category, meaning in CATEGORIES.items())
    return text.replace("{categories}", meanings)
