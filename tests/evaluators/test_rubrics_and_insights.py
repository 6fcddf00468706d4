"""Rubrics judge the two sides of any session; insights name the turn and the call where it failed."""

import json

import pytest
from judged_sessions import Judge as Answers
from judged_sessions import session, turn, weather

from proctor.evaluator import Evidence
from proctor.evaluators.criteria import Criterion, RubricEvaluator
from proctor.evaluators.judging import Judge
from proctor.evaluators.model_judge import (
    CATEGORIES,
    FAILURES,
    InsightJudge,
    family_of,
    kind_of,
)
from proctor.session import Message

PLAIN = Criterion(name="c", instructions="?")
SEEING = Criterion(name="s", instructions="?", sees_profile=True)


def judge(*answers):
    models = Answers(*answers)
    return Judge(models=models, model="p/m", parameters={"temperature": 0}), models


def rubric(judge_model, *criteria):
    return RubricEvaluator(name="r", criteria=criteria or [PLAIN, SEEING], judge_model=judge_model)


async def test_a_rubric_judges_the_sides_of_any_session():
    asked, models = judge('{"score": 3}')

    first, second = await rubric(asked).judge(session(turn(1, "hello", "hi")))
    (empty, _) = await rubric(asked).judge(Evidence(session_id="s"))

    assert (first.value, second.error) == (3.0, "the session has no profile to compare with")
    assert "client: hello\ntherapist: hi" in models.asked(0)
    assert (empty.error, empty.evaluator_digest) == ("the session has no messages", PLAIN.digest)
    assert rubric(asked).digest != rubric(asked, PLAIN).digest


async def test_the_profile_comes_from_the_session_or_from_the_instructions_of_the_client():
    asked, models = judge('{"score": 3}')
    messages = [
        Message(role="system", name="instructions of the client", content="Be Ann."),
        Message(role="user", name="therapist", content="swapped"),
    ]

    await rubric(asked).judge(Evidence(session_id="s", messages=messages))
    assert "therapist: swapped" in models.asked(-1) and "Be Ann." in models.asked(-1)
    profiles = {"profiles": {"client": "Bo"}}
    await rubric(asked).judge(Evidence(session_id="s", messages=messages, attributes=profiles))
    assert '"client": "Bo"' in models.asked(-1) and "Be Ann." not in models.asked(-1)


async def test_a_criterion_whose_judge_makes_no_sense_is_an_error():
    asked, _ = judge("?")
    (failed,) = await rubric(asked, PLAIN).judge(session(turn(1, "hello", "hi")))
    assert "gave no verdict that could be read" in failed.error


@pytest.mark.parametrize(
    ("values", "trace", "span"),
    [
        ({"turn": 2, "tool": "book"}, "turn-2", "span-2"),
        ({"turn": 1, "tool": "book"}, "turn-1", "turn-1"),
        ({"turn": 3, "tool": "forecast"}, "turn-1", "span-1"),
        ({"turn": 0}, "turn-1", "turn-1"),
    ],
)
async def test_a_failure_names_the_turn_and_the_call(values, trace, span):
    category = next(iter(CATEGORIES))
    asked, models = judge(json.dumps({"category": category, "confidence": 0.5, **values}))

    (score,) = await InsightJudge(name=FAILURES, judge_model=asked).judge(weather())

    details = json.loads(score.explanation)
    assert (details["traceId"], details["spanId"]) == (trace, span) and "category" not in details
    assert (score.label, score.cost_usd, score.input_tokens, score.output_tokens) == (category, 0.01, 100, 10)
    assert category in models.asked() and models.requests[0].messages[0]["role"] == "system"


def test_a_category_has_a_family_and_a_kind():
    name = "execution-error-category-tool-schema"
    assert (family_of(name), kind_of(name), kind_of("other")) == ("execution error", "tool schema", "other")
