"""The three matchers compare the tools that were called with those that should have been."""

import pytest
from judged_sessions import Judge, called, session, turn

from proctor.evaluator import Reference
from proctor.evaluators import EvaluationSettings, find_evaluator

EXACT, IN_ORDER, ANY_ORDER = (
    f"Builtin.Trajectory{kind}Match" for kind in ("ExactOrder", "InOrder", "AnyOrder")
)


async def judged(name, expected, actual):
    evaluator = find_evaluator(name, models=Judge("never"), settings=EvaluationSettings())
    reference = None if expected is None else Reference(trajectory=expected)
    evidence = session(turn(1, "go", "done", *called(*actual)), reference=reference)
    (score,) = await evaluator.judge(evidence)
    return score


@pytest.mark.parametrize(
    ("expected", "actual", "exact", "in_order", "any_order"),
    [
        (["a", "b"], ["a", "b"], "Yes", "Yes", "Yes"),
        (["a", "b"], ["a", "x", "b"], "No", "Yes", "Yes"),
        (["a", "b"], ["b", "a"], "No", "No", "Yes"),
        (["a", "b"], ["a"], "No", "No", "No"),
        (["a", "a"], ["a"], "No", "No", "No"),
        (["a", "a"], ["a", "b", "a"], "No", "Yes", "Yes"),
        ([], [], "Yes", "Yes", "Yes"),
        ([], ["a"], "No", "Yes", "Yes"),
        (["a"], [], "No", "No", "No"),
    ],
)
async def test_each_matcher_says_yes_only_to_what_it_stands_for(expected, actual, exact, in_order, any_order):
    found = {name: await judged(name, expected, actual) for name in (EXACT, IN_ORDER, ANY_ORDER)}

    assert {name: score.label for name, score in found.items()} == {
        EXACT: exact,
        IN_ORDER: in_order,
        ANY_ORDER: any_order,
    }
    assert all(score.value == (1.0 if score.label == "Yes" else 0.0) for score in found.values())
    assert all(score.input_tokens == 0 and score.cost_usd is None for score in found.values())


async def test_the_explanation_says_what_is_missing():
    score = await judged(ANY_ORDER, ["search", "search", "buy"], ["search"])

    assert "missing [buy, search]" in score.explanation


@pytest.mark.parametrize("name", [EXACT, IN_ORDER, ANY_ORDER])
async def test_without_an_expected_trajectory_the_result_is_an_error_and_no_score(name):
    score = await judged(name, None, ["a"])

    assert (score.value, score.label, score.error_code) == (None, "", "ValidationException")
    assert "expectedTrajectory" in score.error


async def test_ground_truth_a_matcher_has_no_use_for_is_named():
    evaluator = find_evaluator(EXACT, models=Judge("never"), settings=EvaluationSettings())
    truth = Reference(trajectory=["a"], assertions=["it ended"], responses={0: "yes"})

    (score,) = await evaluator.judge(session(turn(1, "go", "done", *called("a")), reference=truth))

    assert score.ignored == ("assertions", "expectedResponse")
