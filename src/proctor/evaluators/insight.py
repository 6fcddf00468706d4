"""Insights about a session: what went wrong, what the user wanted, and which approach was taken.

A finding is a label (a category, an intent or an approach) with details as JSON in the explanation of the
score. Sessions with the same label are grouped elsewhere.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources

from proctor.answer_parser import AnswerField, instructions_for, read_answer
from proctor.evaluator import Evidence
from proctor.evaluators.model_judge import (
    MOST_INPUT_TOKENS,
    NOT_VALID,
    NOTHING_THERE,
    UNREADABLE,
    estimated_tokens,
)
from proctor.evaluators.rendering import numbered, turns_of
from proctor.item import digest_of
from proctor.json_values import JsonMap, JsonObject, as_integer
from proctor.judging.engine import Judge, JudgeUsage, ask_until_readable
from proctor.judging.question import RULES, fenced
from proctor.score import Level, Score

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
TEXT = AnswerField(kind="text")
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
            return [self._failed("the session is empty", NOTHING_THERE)]
        messages = self._messages(evidence)
        size = sum(estimated_tokens(message["content"]) for message in messages)
        if size > MOST_INPUT_TOKENS:
            too_long = f"about {size:,} tokens to analyze, more than the limit of {MOST_INPUT_TOKENS:,}"
            return [self._failed(too_long, NOT_VALID)]
        fields, usage = FIELDS[self.name], JudgeUsage()
        values = await ask_until_readable(
            self.judge_model,
            messages,
            lambda text: read_answer(text, fields).values,
            lambda parsed: bool(parsed.get(LABELS[self.name])),
            usage,
            schema=_schema(fields),
        )
        if not values.get(LABELS[self.name]):
            return [_billed(self._failed("the judge gave no finding that could be read", UNREADABLE), usage)]
        return [self._insight_score(evidence, values, usage)]

    def _messages(self, evidence: Evidence) -> list[dict[str, str]]:
        instructions = _instructions(self.name).replace("{context}", fenced("context", numbered(evidence)))
        prompt = f"{instructions.strip()}\n\n{instructions_for(FIELDS[self.name])}"
        return [{"role": "system", "content": RULES}, {"role": "user", "content": prompt}]

    def _insight_score(self, evidence: Evidence, values: JsonMap, usage: JudgeUsage) -> Score:
        details = {name: value for name, value in values.items() if name != LABELS[self.name]}
        if self.name == FAILURES:
            details |= _place(evidence, values)
        if self.name == INTENT:
            prompts = [trace.prompt for trace in turns_of(evidence) if trace.prompt]
            details["userMessages"] = [text[:LONGEST_MESSAGE] for text in prompts[:MOST_MESSAGES]]
        score = Score(
            evaluator=self.name,
            evaluator_digest=self.digest,
            label=str(values[LABELS[self.name]])[:LONGEST_NAME],
            explanation=json.dumps(details, ensure_ascii=False),
        )
        return _billed(score, usage)

    def _failed(self, error: str, code: str) -> Score:
        return Score(evaluator=self.name, evaluator_digest=self.digest, error=error, error_code=code)


def _place(evidence: Evidence, values: JsonMap) -> dict[str, str]:
    """Ids of the turn and call the judge refers to; either may be wrong."""
    turns = turns_of(evidence)
    number = as_integer(values, "turn") or 1
    turn = turns[number - 1] if 1 <= number <= len(turns) else turns[0]
    call = next((each for each in turn.tool_calls if each.name == values.get("tool") and each.call_id), None)
    return {"traceId": turn.id, "spanId": call.call_id if call else turn.id}


def _billed(score: Score, usage: JudgeUsage) -> Score:
    return replace(
        score, cost_usd=usage.cost_usd, input_tokens=usage.input_tokens, output_tokens=usage.output_tokens
    )


def _schema(fields: Mapping[str, AnswerField]) -> JsonObject:
    kinds: Mapping[str, JsonObject] = {
        "text": {"type": "string"},
        "number": {"type": "number"},
        "integer": {"type": "integer"},
    }
    properties = {
        name: {"type": "string", "enum": list(field.choices)} if field.choices else kinds[field.kind]
        for name, field in fields.items()
    }
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _instructions(name: str) -> str:
    folder = resources.files("proctor.evaluators") / "instructions"
    text = (folder / f"{name.removeprefix('Builtin.')}.txt").read_text(encoding="utf-8")
    meanings = "\n".join(f"- {category}: {meaning}" for category, meaning in CATEGORIES.items())
    return text.replace("{categories}", meanings)
