"""Which sessions online evaluation judges, and which ones recommendations are made from."""

import math
from typing import Any

import pytest

from proctor.errors import AttemptError, UsageError
from proctor.evaluator import Evidence
from proctor.jobs.evaluation import recommendation
from proctor.jobs.evaluation.online import does_match, is_sampled
from proctor.jobs.evaluation.recommendation import TracedSession
from proctor.score import Score


@pytest.mark.parametrize(
    ("value", "operator", "expected", "matches"),
    [
        ("a", "Equals", "a", True),
        ("a", "Equals", "b", False),
        (None, "Equals", "a", False),
        (None, "NotEquals", "a", True),
        ("a", "NotEquals", "a", False),
        ("1.0", "Equals", 1, True),
        ("x", "Equals", 1, False),
        (0, "Equals", 0, True),
        (True, "Equals", "TRUE", True),
        ("false", "Equals", False, True),
        (True, "Equals", 1, False),
        ("abc", "Contains", "b", True),
        ("abc", "NotContains", "b", False),
        (["ab", 5], "Contains", "5", True),
        (["ab", 5], "Contains", "a", False),
        (None, "Contains", "a", False),
        (2, "GreaterThan", 2, False),
        (3, "GreaterThan", 2, True),
        (2, "GreaterThanOrEqual", 2, True),
        (1, "GreaterThanOrEqual", 2, False),
        (2, "LessThan", 2, False),
        ("1", "LessThan", 2, True),
        (2, "LessThanOrEqual", 2, True),
        (3, "LessThanOrEqual", 2, False),
        ("x", "LessThan", 2, False),
        (1, "LessThan", "x", False),
        ([1], "LessThan", 2, False),
    ],
)
def test_a_filter_compares_an_attribute(value: Any, operator: str, expected: Any, matches: bool) -> None:
    condition = {"key": "k", "operator": operator, "value": {"someValue": expected}}
    assert does_match({} if value is None else {"k": value}, condition) is matches


def test_a_sample_has_its_share_and_grows_with_the_percentage() -> None:
    names = [f"session-{number}" for number in range(2000)]
    shares = {share: {name for name in names if is_sampled("c", name, share)} for share in (0, 10, 50, 100)}
    assert not shares[0] and shares[100] == set(names)
    assert shares[10] < shares[50]
    # Within five standard deviations of the expected number.
    assert abs(len(shares[10]) - 200) < 5 * math.sqrt(180)
    assert abs(len(shares[50]) - 1000) < 5 * math.sqrt(500)
    assert shares[50] != {name for name in names if is_sampled("other", name, 50)}


# --- Recommendations ---


def score(value: float | None = None, **changes: Any) -> Score:
    return Score(**{"evaluator": "e", "value": value} | changes)


def traced(*scores: Score, reversed_: Any = ()) -> TracedSession:
    return TracedSession(evidence=Evidence(), scores=scores, high_is_bad=reversed_)


@pytest.mark.parametrize(
    ("session", "rank"),
    [
        (traced(), math.inf),
        (traced(score()), math.inf),
        (traced(score(0.0)), 0.0),
        (traced(score(0.5), score(), score(1.0)), 0.75),
        (traced(score(0.25), score(0.5, evaluator="f"), reversed_=["e"]), 0.625),
    ],
)
def test_sessions_are_ranked_by_the_mean_of_their_scores(session: TracedSession, rank: float) -> None:
    assert session.rank == rank


async def test_sessions_without_scores_are_evaluated_first() -> None:
    class Judge:
        name = "Builtin.Harmfulness"

        async def judge(self, evidence: Any) -> list[Score]:
            return [score(0.9, evaluator=self.name), score(0.1, evaluator=self.name, error="no")]

    known = traced(score(0.5))
    judge: Any = Judge()
    first, second = await recommendation.with_scores([known, traced()], judge, 1.0)
    # A high value is bad: 1 - 0.9.
    assert second is known and first.rank == pytest.approx(0.1) and len(first.scores) == 1
    first, second = await recommendation.with_scores([traced(), known], judge, 0.0)
    assert first is known and second.rank == pytest.approx(0.9)

    async def fail(evidence: Any) -> list[Score]:
        raise AttemptError("down")

    judge.judge = fail
    with pytest.raises(UsageError, match=r"Builtin\.Harmfulness could not evaluate the sessions: down"):
        await recommendation.with_scores([traced()], judge, 1.0)
