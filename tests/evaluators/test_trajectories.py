"""The matchers compare the tools that were called with those that should have been."""

import pytest
from judged_sessions import Judge, called, session, turn

from proctor.evaluator import Evidence, Reference
from proctor.evaluators.matchers import MOST_SHOWN, TrajectoryMatcher, match_trajectory
from proctor.evaluators.registry import EvaluationSettings, find_evaluator
from proctor.jobs.evaluation.request import reference_of
from proctor.session import ToolCall

MATCHERS = [
    f"Builtin.Trajectory{kind}Match"
    for kind in ("ExactOrder", "InOrder", "AnyOrder", "Unordered", "Subset", "Superset")
]
EXACT, IN_ORDER, ANY_ORDER, UNORDERED, _, _ = MATCHERS


async def judged(name, expected, actual):
    evaluator = find_evaluator(name, models=Judge("never"), settings=EvaluationSettings())
    reference = None if expected is None else Reference(trajectory=expected)
    evidence = session(turn(1, "go", "done", *called(*actual)), reference=reference)
    (score,) = await evaluator.judge(evidence)
    return score


@pytest.mark.parametrize(
    ("expected", "actual", "matches"),
    [
        # In exact order, in order, in any order; the same set, a part of it, more than it.
        ("ab", "ab", "111 111"),
        ("ab", "axb", "011 001"),
        ("ab", "ba", "001 111"),
        ("ab", "a", "000 010"),
        ("aa", "a", "000 010"),
        ("aa", "aba", "011 001"),
        ("", "", "111 111"),
        ("", "a", "011 001"),
        ("a", "", "000 010"),
    ],
)
async def test_each_matcher_says_yes_only_to_what_it_stands_for(expected, actual, matches):
    scores = [await judged(name, list(expected), list(actual)) for name in MATCHERS]

    assert [score.value for score in scores] == [float(each) for each in matches.replace(" ", "")]
    assert [score.label for score in scores] == ["Yes" if score.value else "No" for score in scores]
    assert all(score.input_tokens == 0 and score.cost_usd is None for score in scores)


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


@pytest.mark.parametrize(
    ("how", "given", "value"),
    [
        ("exact", {"day": "Monday", "seat": "aisle"}, 1.0),
        ("exact", {"day": "Monday"}, 0.0),
        ("subset", {"day": "Monday"}, 1.0),
        ("subset", {"day": "Sunday"}, 0.0),
        ("superset", {"day": "Monday", "seat": "aisle", "meal": "none"}, 1.0),
        ("superset", {"day": "Monday"}, 0.0),
        ("ignore", {"day": "Sunday"}, 1.0),
    ],
)
@pytest.mark.parametrize("name", [EXACT, IN_ORDER, ANY_ORDER, UNORDERED])
async def test_arguments_are_compared_as_the_ground_truth_says(name, how, given, value):
    entry = {
        "groundTruth": {
            "inline": {"expectedTrajectory": ["look", {"name": "book", "arguments": given, "match": how}]}
        }
    }
    calls = [ToolCall(name="look"), ToolCall(name="book", args={"day": "Monday", "seat": "aisle"})]

    (score,) = await TrajectoryMatcher(name).judge(Evidence(tool_calls=calls, reference=reference_of(entry)))

    assert score.value == value


async def test_a_call_with_arguments_gets_the_one_that_fits_it():
    """Without pairing anew, the first expected call would take what only the second can use."""
    calls = [ToolCall(name="get", args={"x": 1, "y": 2}), ToolCall(name="get", args={"x": 1})]

    def differs(*expected):
        return match_trajectory(expected, calls, mode="any_order", arguments="subset")

    assert differs(("get", {"x": 1}), ("get", {"y": 2})) == ""
    assert differs(("get", {"y": 2}), ("get", {"y": 2})) == "missing [get]"


def test_evaluators_of_ones_own_compare_arguments_in_their_own_way():
    calls = [ToolCall(name="search", args={"q": "WEATHER"})]

    def alike(expected, actual):
        return expected["q"].lower() == actual["q"].lower()

    expected = [("search", {"q": "weather"})]
    assert match_trajectory(expected, calls, overrides={"search": alike}) == ""
    assert match_trajectory(expected, calls) == "call 1, search, has other arguments"
    with pytest.raises(ValueError, match="there is no mode sideways"):
        match_trajectory(expected, calls, mode="sideways")


async def test_a_long_list_of_calls_is_cut():
    score = await judged(EXACT, ["x" * 101, *["a"] * (MOST_SHOWN + 1)], [])
    assert f"[{'x' * 100}, a" in score.explanation and "a, … 2 more]" in score.explanation
    assert "more]" not in (await judged(EXACT, ["a"] * MOST_SHOWN, [])).explanation
