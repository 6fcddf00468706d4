"""Findings of insights: alike ones together, the most frequent first."""

import json

import pytest

from proctor.evaluators.model_judge import FAILURES, INTENT, NO_FAILURE, SUMMARY, family_of, kind_of
from proctor.stats.evaluation import (
    InsightFinding,
    bare,
    clusters,
    criterion_scale,
    findings_of,
    insights_of,
    session_values,
)


def finding(session: str, label: str, **details: object) -> InsightFinding:
    return InsightFinding(session=session, label=label, details=details)


def test_findings_of_one_spelling_or_another_are_one_cluster() -> None:
    assert bare("Book a Flight!") == bare("book,  a flight") == "book a flight"
    found = [finding("1", "b"), finding("2", "a"), finding("3", "B"), finding("3", "b."), finding("4", "c")]
    grouped = clusters(found, lambda each: bare(each.label))
    assert [(each.id, each.key, each.sessions, each.first.session) for each in grouped] == [
        (1, "b", 2, "1"),
        (2, "a", 1, "2"),
        (3, "c", 1, "4"),
    ]


def test_insights_have_a_title_an_example_and_their_sessions() -> None:
    label = "tool-misuse.wrong-arguments"
    insights = insights_of(
        {
            FAILURES: [finding("1", label, root_cause="a typo", description="other")],
            INTENT: [
                finding("1", "Book", description="wants a flight"),
                finding("2", "book"),
                finding("1", "book"),
            ],
            SUMMARY: [finding("1", "Short", final_outcome="")],
        }
    )
    assert [(each.insight, each.found, each.example, each.sessions) for each in insights] == [
        (FAILURES, f"{family_of(label)}: {kind_of(label)}", "a typo", ["1"]),
        (INTENT, "Book", "wants a flight", ["1", "2"]),
        (SUMMARY, "Short", "", ["1"]),
    ]


def test_sessions_without_a_failure_are_no_findings() -> None:
    rows = [
        {
            "label": "x",
            "details": json.dumps({"session": "s"}),
            "explanation": '{"a": 1}',
            "judgedSessionId": "j",
        },
        {"label": "x", "details": "{}", "explanation": "{}", "judgedSessionId": "j"},
        {"label": NO_FAILURE, "details": "{}", "explanation": "{}", "judgedSessionId": "j"},
    ]
    found = findings_of(rows)  # type: ignore[arg-type]
    assert [(each.session, each.details) for each in found] == [("s", {"a": 1}), ("j", {})]
    assert found[0].text("a") == "1" and found[0].text("b") == ""


def test_sessions_with_more_results_weigh_more() -> None:
    even = [{"n": 2, "valued": 2, "total": 1.0}, {"n": 1, "valued": 2, "total": 2.0}]
    assert session_values(even).tolist() == [0.5, 0.5, 1.0]  # type: ignore[arg-type]
    uneven = [{"n": 1, "valued": 1, "total": 1.0}, {"n": 1, "valued": 3, "total": 0.0}]
    values = session_values(uneven)  # type: ignore[arg-type]
    assert values.tolist() == [0.625, -0.125]
    assert values.mean() == 0.25, "the mean over results"


@pytest.mark.parametrize(
    ("criterion", "scale"),
    [
        ({"scale": "binary", "low": 1, "high": 5}, (0.0, 1.0)),
        ({"scale": "scalar", "low": 1, "high": 5}, (1.0, 5.0)),
        ({"scale": "scalar", "low": 1}, None),
        ({"scale": "categorical", "low": 1, "high": 5}, None),
    ],
)
def test_the_scale_of_a_criterion(criterion: dict[str, object], scale: tuple[float, float] | None) -> None:
    assert criterion_scale(criterion) == scale  # type: ignore[arg-type]
