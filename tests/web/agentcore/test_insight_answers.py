"""Members of findings and results in answers about batch evaluations, without a server."""

from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from proctor.stats.evaluation import Cluster, InsightFinding, clusters
from proctor.web.agentcore import jobs

SCHEMA = "execution-error-category-tool-schema"
DETAILS = {
    "evidence": "no such field",
    "confidence": 0.75,
    "root_cause_name": "text sent",
    "root_cause": "The sum was a text.",
    "recommendation": "Describe it.",
    "fix_type": "tool",
    "traceId": "t1",
    "spanId": "s1",
}
FAILED = InsightFinding(session="one", label=SCHEMA, details=DETAILS)
BARE = InsightFinding(session="two", label=SCHEMA)


def cluster(*findings: InsightFinding, key: str = SCHEMA) -> Cluster:
    return Cluster(id=3, key=key, findings=findings)


def test_a_root_cause_has_the_sessions_it_shows_in() -> None:
    assert jobs._root_cause(cluster(FAILED, FAILED)) == {
        "clusterId": 3,
        "name": "text sent",
        "rootCause": "The sum was a text.",
        "recommendation": "Describe it.",
        "affectedSessionCount": 1,
        "affectedSessions": 2
        * [
            {
                "sessionId": "one",
                "explanation": "The sum was a text.",
                "fixType": "tool",
                "recommendation": "Describe it.",
                "failureSpans": [
                    {
                        "spanId": "s1",
                        "traceId": "t1",
                        "signals": [{"category": SCHEMA, "evidence": "no such field", "confidence": 0.75}],
                    }
                ],
            }
        ],
    }


def test_what_the_judge_left_out_is_not_said() -> None:
    said = "not said"
    assert jobs._root_cause(cluster(BARE)) == {
        "clusterId": 3,
        "name": said,
        "rootCause": said,
        "recommendation": said,
        "affectedSessionCount": 1,
        "affectedSessions": [
            {
                "sessionId": "two",
                "explanation": said,
                "fixType": said,
                "recommendation": said,
                "failureSpans": [
                    {
                        "spanId": "",
                        "traceId": "",
                        "signals": [{"category": SCHEMA, "evidence": said, "confidence": 0.0}],
                    }
                ],
            }
        ],
    }
    assert jobs._insight_cause(cluster(BARE)) == {
        "name": said,
        "explanation": said,
        "affectedSessionCount": 1,
        "suggestedFix": said,
        "sampleSessions": jobs._samples(cluster(BARE)),
    }
    (summary,) = jobs._insight_summary(cluster(BARE))["affectedSessions"]  # type: ignore[misc]
    assert summary == {"sessionId": "two", "approachTaken": said, "finalOutcome": said}
    assert jobs._intent(cluster(BARE)) == {
        "clusterId": 3,
        "name": SCHEMA,
        "description": said,
        "affectedSessionCount": 1,
        "affectedSessions": [{"sessionId": "two", "userMessages": []}],
    }


def test_an_intent_and_an_approach_have_their_words() -> None:
    details = {
        "description": "A sum.",
        "approach_taken": "A call.",
        "final_outcome": "42",
        "userMessages": ["hi"],
    }
    finding = InsightFinding(session="one", label="Add numbers", details=details)
    head = {"clusterId": 3, "name": "Add numbers", "affectedSessionCount": 1}
    assert jobs._intent(cluster(finding)) == {
        **head,
        "description": "A sum.",
        "affectedSessions": [{"sessionId": "one", "userMessages": ["hi"]}],
    }
    assert jobs._insight_summary(cluster(finding)) == {
        **head,
        "description": "A call.",
        "affectedSessions": [{"sessionId": "one", "approachTaken": "A call.", "finalOutcome": "42"}],
    }


def test_a_family_of_failures_has_its_kinds_with_their_meanings() -> None:
    timeout = InsightFinding(session="three", label="execution-error-category-timeout")
    (family,) = clusters([FAILED, BARE, timeout], lambda finding: "execution error")
    answer = jobs._family(family)
    assert (answer["name"], answer["affectedSessionCount"]) == ("execution error", 3)
    assert answer["description"] == (
        "a tool was called with arguments its schema does not allow; something took too long and was given up"
    )
    kinds: Any = answer["subCategories"]
    assert [(kind["name"], kind["clusterId"], kind["affectedSessionCount"]) for kind in kinds] == [
        ("tool schema", 1, 2),
        ("timeout", 2, 1),
    ]
    assert kinds[1]["description"] == "something took too long and was given up"
    # Causes are told apart by their name, or by their text where they have none.
    assert [cause["name"] for cause in kinds[0]["rootCauses"]] == ["not said", "text sent"]
    assert jobs._cause(InsightFinding(session="", label="", details={"root_cause": "A b."})) == "a b"
    assert jobs._cause(FAILED) == "text sent"


def test_failures_are_listed_with_samples_and_causes() -> None:
    (result,) = jobs._results([FAILED, FAILED], "2026-01-02T12:00:00.000Z")
    samples = 2 * [
        {
            "sessionId": "one",
            "findings": [
                {
                    "description": "no such field",
                    "category": SCHEMA,
                    "confidence": 0.75,
                    "targetId": "s1",
                    "targetType": "SPAN_ID",
                }
            ],
        }
    ]
    assert result == {
        "type": "FAILURE",
        "name": "execution error: tool schema",
        "description": "a tool was called with arguments its schema does not allow",
        "createdAt": "2026-01-02T12:00:00.000Z",
        "affectedSessionCount": 1,
        "sampleSessions": samples,
        "rootCauses": [
            {
                "name": "text sent",
                "explanation": "The sum was a text.",
                "affectedSessionCount": 1,
                "suggestedFix": "Describe it.",
                "sampleSessions": samples,
            }
        ],
    }


def test_ten_sessions_are_samples_and_only_those_with_a_plain_id() -> None:
    findings = [InsightFinding(session=f"s{number}", label=SCHEMA) for number in range(11)]
    names = ["a b", "", "-a", "x" * 101, "x" * 100, "a-_1", *(each.session for each in findings)]
    found = jobs._samples(cluster(*(InsightFinding(session=name, label=SCHEMA) for name in names)))
    assert [each["sessionId"] for each in found] == [
        "x" * 100,
        "a-_1",
        *(f"s{number}" for number in range(8)),
    ]


def test_texts_of_samples_and_causes_are_cut() -> None:
    long = dict.fromkeys(DETAILS, "x" * 9000) | {"confidence": "high"}
    finding = InsightFinding(session="one", label="y" * 300, details=long)
    ((sample,),) = [each["findings"] for each in jobs._samples(cluster(finding))]  # type: ignore[misc]
    lengths = {name: len(value) for name, value in sample.items() if isinstance(value, str)}
    assert lengths == {"description": 500, "category": 100, "targetId": 50, "targetType": 8}
    assert (sample["confidence"], sample["targetType"]) == (0.0, "TRACE_ID")
    cause = jobs._insight_cause(cluster(finding))
    assert [len(str(cause[name])) for name in ("name", "explanation", "suggestedFix")] == [200, 4000, 4000]
    assert jobs._confidence(InsightFinding(session="", label="", details={"confidence": 1})) == 1.0


def test_fifty_kinds_of_failures_with_fifty_causes_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "CATEGORIES", {f"c{number}": "meaning" for number in range(51)})
    findings = [InsightFinding(session="s", label=f"c{number}") for number in range(51)]
    assert len(jobs._results(findings, "")) == 50
    findings = [
        InsightFinding(session="s", label="c0", details={"root_cause_name": f"n{number}"})
        for number in range(51)
    ]
    (result,) = jobs._results(findings, "")
    assert len(result["rootCauses"]) == 50  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("average", "dimension", "members"),
    [
        (0.5, "", {"statistics": {"averageScore": 0.5}}),
        (0.0, "tone", {"statistics": {"averageScore": 0.0}, "evaluationDimensionName": "tone"}),
        (None, "", {"statistics": {}}),
    ],
)
def test_the_summary_of_an_evaluator(average: float | None, dimension: str, members: Any) -> None:
    result: Any = SimpleNamespace(
        average=SimpleNamespace(value=average), dimension=dimension, asked_as="e", evaluated=3, failed=1
    )
    assert jobs._result_summary(result) == {
        "evaluatorId": "e",
        "totalEvaluated": 3,
        "totalFailed": 1,
        **members,
    }


def test_a_time_of_the_data_plane_is_in_utc_with_milliseconds() -> None:
    at = datetime(2026, 1, 2, 13, 0, 0, 123_456, tzinfo=timezone(timedelta(hours=1)))
    assert jobs.moment_text(at) == "2026-01-02T12:00:00.123Z"
    assert jobs.moment_text(datetime(2026, 1, 2, tzinfo=UTC)) == "2026-01-02T00:00:00.000Z"
