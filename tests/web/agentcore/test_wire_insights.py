"""Insights: what went wrong, what was wanted and how it was gone about, put together over sessions."""

import json

import wire_server
from test_wire_jobs import GROUP, SOURCE, ended
from wire_spans import root_span_id, spans, tool_span_id, trace_id

from proctor.jobs.evaluation.results import all_insights, results_of
from proctor.testing import eventually

FAILURES, INTENT, SUMMARY = (
    {"insightId": f"Builtin.Insight.{name}"} for name in ("FailureAnalysis", "UserIntent", "ExecutionSummary")
)
SCHEMA = "execution-error-category-tool-schema"


def failed(category, cause, **more):
    return json.dumps(
        {
            "evidence": "Tool (failed): no such field",
            "category": category,
            "confidence": 0.9,
            "turn": 1,
            "tool": "calculator",
            "root_cause_name": cause,
            "root_cause": "The sum was sent as a text.",
            "recommendation": "Describe the field.",
            "fix_type": "tool",
            **more,
        }
    )


def arrive(served, **answers):
    for session, answer in answers.items():
        turns = [("Add 15 and 27.", answer, ("calculator",))]
        wire_server.arrive(served.store, spans(session.replace("_", "-"), turns), GROUP)


def judged(serve, rules, insights, **members):
    served = serve(evaluation={"judge": "scripted/judge"})
    (served.site.folder / "judge.yaml").write_text(json.dumps({"rules": rules}))
    arrive(served, s_1="It broke.", s_2="It broke too.", s_3="It is 42.")
    asked = {"batchEvaluationName": "why", "insights": insights, "dataSourceConfig": SOURCE}
    started = served.data.start_batch_evaluation(**asked, **members)
    return ended(served.data, started["batchEvaluationId"])


def test_sessions_that_failed_alike_are_put_together_with_what_shows_it(serve):
    rules = [
        {"match": "It broke too", "reply": failed(SCHEMA, "sum sent as text")},
        {"match": "It broke", "reply": failed(SCHEMA, "Sum sent as text.")},
        {"reply": failed("none", "", turn=0)},
    ]

    job = judged(serve, rules, [FAILURES])

    assert (job["status"], job["insights"]) == ("COMPLETED", [FAILURES])
    assert job["evaluationResults"]["evaluatorSummaries"] == []
    (family,) = job["failureAnalysisResult"]["failures"]
    (kind,) = family.pop("subCategories")
    (cause,) = kind.pop("rootCauses")
    meaning = "a tool was called with arguments its schema does not allow"
    head = {"clusterId": 1, "description": meaning, "affectedSessionCount": 2}
    assert family == {**head, "name": "execution error"} and kind == {**head, "name": "tool schema"}
    sessions = {each["sessionId"]: each for each in cause.pop("affectedSessions")}
    assert cause.pop("name").lower().rstrip(".") == "sum sent as text"
    assert cause == {
        "clusterId": 1,
        "rootCause": "The sum was sent as a text.",
        "recommendation": "Describe the field.",
        "affectedSessionCount": 2,
    }
    evidence = "Tool (failed): no such field"
    assert set(sessions) == {"s-1", "s-2"} and sessions["s-1"] == {
        "sessionId": "s-1",
        "explanation": "The sum was sent as a text.",
        "fixType": "tool",
        "recommendation": "Describe the field.",
        "failureSpans": [
            {
                "spanId": tool_span_id("s-1", 0, 0),
                "traceId": trace_id("s-1"),
                "signals": [{"category": SCHEMA, "evidence": evidence, "confidence": 0.9}],
            }
        ],
    }
    (result,) = job["insightResults"]
    expected = ("FAILURE", "execution error: tool schema", 2)
    assert (result["type"], result["name"], result["affectedSessionCount"]) == expected
    samples = {each["sessionId"]: each["findings"] for each in result["sampleSessions"]}
    assert set(samples) == {"s-1", "s-2"} and samples["s-1"] == [
        {
            "description": evidence,
            "category": SCHEMA,
            "confidence": 0.9,
            "targetId": tool_span_id("s-1", 0, 0),
            "targetType": "SPAN_ID",
        }
    ]
    (cause,) = result["rootCauses"]
    assert cause["suggestedFix"] == "Describe the field."


def test_what_the_judge_left_out_is_not_said_and_long_texts_are_cut(serve):
    bare = {"evidence": "x" * 900, "category": SCHEMA, "confidence": 0, "turn": 1}
    long = dict.fromkeys(("root_cause_name", "root_cause", "recommendation"), "y" * 9000)
    rules = [
        {"match": "It broke too", "reply": failed("execution-error-category-timeout", "", **long)},
        {"match": "It broke", "reply": json.dumps(bare)},
        {"reply": failed("none", "", turn=0)},
    ]

    job = judged(serve, rules, [FAILURES])

    (family,) = job["failureAnalysisResult"]["failures"]
    assert sorted(family["description"].split("; ")) == [
        "a tool was called with arguments its schema does not allow",
        "something took too long and was given up",
    ]
    kinds = {kind["name"]: kind for kind in family["subCategories"]}
    assert sorted(kinds) == ["timeout", "tool schema"]
    assert sorted(kind["clusterId"] for kind in kinds.values()) == [1, 2]
    (cause,) = kinds["tool schema"]["rootCauses"]
    (session,) = cause["affectedSessions"]
    (failure,) = session["failureSpans"]
    assert (failure["traceId"], failure["spanId"]) == (trace_id("s-1"), root_span_id("s-1"))
    told = [cause[name] for name in ("name", "rootCause", "recommendation")]
    told += [session[name] for name in ("explanation", "fixType", "recommendation")]
    assert set(told) == {"not said"}
    results = {each["name"].rpartition(": ")[2]: each for each in job["insightResults"]}
    schema, timeout = results["tool schema"], results["timeout"]
    ((finding,),) = (each["findings"] for each in schema["sampleSessions"])
    assert (finding["description"], finding["confidence"]) == ("x" * 500, 0.0)
    assert (finding["targetId"], finding["targetType"]) == (trace_id("s-1"), "TRACE_ID")
    (cause,) = timeout["rootCauses"]
    assert [len(cause[name]) for name in ("name", "explanation", "suggestedFix")] == [200, 4000, 4000]


def test_what_users_wanted_and_how_it_was_gone_about_is_told_beside_scores(serve):
    wanted = {"description": "A sum of two numbers.", "intent": "Add numbers"}
    done = {"approach_taken": "One call.", "final_outcome": "A sum.", "approach": "Call a calculator"}
    rules = [
        {"match": "What did the user", "reply": json.dumps(wanted)},
        {"match": "How did the agent", "reply": json.dumps(done)},
        {"reply": '{"reasoning": "so", "score": "Yes"}'},
    ]
    refusal = {"evaluatorId": "Builtin.Refusal"}

    job = judged(serve, rules, [INTENT, SUMMARY], evaluators=[refusal])

    (intent,) = job["userIntentResult"]["userIntents"]
    sessions = sorted(intent.pop("affectedSessions"), key=lambda each: each["sessionId"])
    head = {"clusterId": 1, "affectedSessionCount": 3}
    assert intent == {**head, "name": "Add numbers", "description": "A sum of two numbers."}
    assert sessions[0] == {"sessionId": "s-1", "userMessages": ["Add 15 and 27."]}
    (summary,) = job["executionSummaryResult"]["executionSummaries"]
    sessions = sorted(summary.pop("affectedSessions"), key=lambda each: each["sessionId"])
    assert {**head, "name": "Call a calculator"}.items() <= summary.items()
    assert sessions[0] == {"sessionId": "s-1", "approachTaken": "One call.", "finalOutcome": "A sum."}
    expected = ["Builtin.Refusal"]
    assert [each["evaluatorId"] for each in job["evaluationResults"]["evaluatorSummaries"]] == expected
    assert "failureAnalysisResult" not in job


def test_a_finding_that_cannot_be_read_fails_its_session_and_is_no_finding(serve):
    job = judged(serve, [{"reply": "I would rather not say."}], [FAILURES])

    assert job["status"] == "COMPLETED_WITH_ERRORS"
    assert job["failureAnalysisResult"] == {"failures": []}


def test_sessions_that_arrive_are_put_together_by_an_online_configuration(serve):
    limits = {"watch_seconds": 0.2, "session_timeout_seconds": 1}
    served = serve(evaluation={"judge": "scripted/judge", "limits": limits})
    wish = json.dumps({"intent": "Add numbers", "details": "Two numbers."})
    (served.site.folder / "judge.yaml").write_text(json.dumps({"rules": [{"reply": wish}]}))
    made = served.control.create_online_evaluation_config(
        onlineEvaluationConfigName="why",
        rule={"samplingConfig": {"samplingPercentage": 100.0}},
        dataSourceConfig=SOURCE,
        insights=[INTENT],
        clusteringConfig={"frequencies": ["DAILY"]},
        evaluationExecutionRoleArn="arn:aws:iam::123456789012:role/evaluations",
        enableOnCreate=True,
    )
    config_id = made["onlineEvaluationConfigId"]
    assert served.control.get_online_evaluation_config(onlineEvaluationConfigId=config_id)["insights"] == [
        INTENT
    ]
    arrive(served, s_1="It is 42.", s_2="It is 43.")

    def insights():
        run_id = served.store.definitions.config(config_id)["runId"]
        return all_insights(served.store, results_of(served.store, run_id)) if run_id else []

    eventually(lambda: [len(each.sessions) for each in insights()] == [2])
    (intent,) = insights()
    assert (intent.insight, intent.found) == (INTENT["insightId"], "Add numbers")
    assert served.store.drift.lines() == [], "what is found has no value to follow"
