"""One session is judged at once: spans in, results out."""

import asyncio
import json
import threading

import pytest
from botocore.exceptions import ClientError
from wire_server import servers
from wire_spans import span, spans, tool_span_id, trace_id

from proctor.testing.model_server import ModelServer, reply

YES = '{"reason": "It is right.", "score": "Yes"}'
EXACT = "Builtin.TrajectoryExactOrderMatch"
TWO_TURNS = (
    ("What is 15 + 27?", "It is 42.", ("calculator",)),
    ("And twice that?", "84.", ("calculator", "printer")),
)


def about(session, **trace):
    return {"context": {"spanContext": {"sessionId": session, **trace}}}


def evaluate(served, evaluator, documents, **members):
    answer = served.data.evaluate(
        evaluatorId=evaluator, evaluationInput={"sessionSpans": documents}, **members
    )
    return answer["evaluationResults"]


def refused(call, *words, **members):
    with pytest.raises(ClientError) as caught:
        call(*words, **members)
    return caught.value.response


def test_a_trajectory_is_matched_without_any_model(shared):
    expected = {**about("s-1"), "expectedTrajectory": {"toolNames": ["calculator"]}}

    (result,) = evaluate(shared, EXACT, spans("s-1"), evaluationReferenceInputs=[expected])

    assert (result["value"], result["label"]) == (1.0, "Yes")
    assert result["context"] == {"spanContext": {"sessionId": "s-1"}}
    assert (result["evaluatorId"], result["evaluatorName"]) == (EXACT, EXACT)
    assert result["evaluatorArn"] == f"arn:aws:bedrock-agentcore:::evaluator/{EXACT}"
    assert result["tokenUsage"] == {"inputTokens": 0, "outputTokens": 0, "totalTokens": 0}


def test_spans_may_come_as_the_text_they_are_logged_as(shared):
    expected = {**about("s-1"), "expectedTrajectory": {"toolNames": ["other"]}}

    (result,) = evaluate(
        shared, EXACT, [json.dumps(each) for each in spans("s-1")], evaluationReferenceInputs=[expected]
    )

    assert (result["value"], result["label"]) == (0.0, "No")


def test_a_span_that_was_sent_twice_counts_once(shared):
    expected = {**about("s-1"), "expectedTrajectory": {"toolNames": ["calculator"]}}
    twice = [*spans("s-1"), *(json.dumps(each) for each in spans("s-1"))]

    (result,) = evaluate(shared, EXACT, twice, evaluationReferenceInputs=[expected])

    assert (result["value"], result["label"]) == (1.0, "Yes")


def test_ground_truth_nobody_uses_is_named(shared):
    expected = {**about("s-1"), "expectedTrajectory": {"toolNames": []}, "assertions": [{"text": "It adds"}]}

    (result,) = evaluate(shared, EXACT, spans("s-1"), evaluationReferenceInputs=[expected])

    assert result["ignoredReferenceInputFields"] == ["assertions"]


def test_what_cannot_be_judged_is_a_result_with_an_error(shared):
    (result,) = evaluate(shared, EXACT, spans("s-1"))

    assert result["errorCode"] == "ValidationException"
    assert "expectedTrajectory" in result["errorMessage"]
    assert not {"value", "label"} & set(result)


@pytest.fixture(scope="module")
def judged(tmp_path_factory, command_server):
    """A server with a scripted judge, which says Yes; it keeps nothing of what it judges."""
    folder = tmp_path_factory.mktemp("judged")
    (folder / "judge.yaml").write_text(f"rules: [{{reply: '{YES}'}}]\n")
    with servers(folder, command_server.program) as start:
        yield start(evaluation={"judge": "scripted/judge"})


def results_by_target(results):
    return [
        (each["context"]["spanContext"].get("traceId"), each["context"]["spanContext"].get("spanId"))
        for each in results
    ]


def test_each_trace_has_a_result_of_its_own(judged):
    results = evaluate(judged, "Builtin.InstructionFollowing", spans("s-1", TWO_TURNS))

    assert results_by_target(results) == [(trace_id("s-1", 0), None), (trace_id("s-1", 1), None)]
    assert [each.get("label") for each in results] == ["Yes", "Yes"], results
    assert all(each["tokenUsage"]["totalTokens"] > 0 for each in results)


def test_each_tool_call_has_a_result_of_its_own(judged):
    results = evaluate(judged, "Builtin.ToolSelectionAccuracy", spans("s-1", TWO_TURNS))

    assert results_by_target(results) == [
        (trace_id("s-1", 0), tool_span_id("s-1", 0, 0)),
        (trace_id("s-1", 1), tool_span_id("s-1", 1, 0)),
        (trace_id("s-1", 1), tool_span_id("s-1", 1, 1)),
    ]


def test_targets_choose_what_is_judged(judged):
    one = trace_id("s-1", 1)

    results = evaluate(
        judged, "Builtin.InstructionFollowing", spans("s-1", TWO_TURNS), evaluationTarget={"traceIds": [one]}
    )

    assert results_by_target(results) == [(one, None)]


def test_of_many_targets_the_last_ten_are_judged(judged):
    turns = [(f"Question {number}", "An answer.", ()) for number in range(13)]

    results = evaluate(judged, "Builtin.InstructionFollowing", spans("s-1", turns))

    assert results_by_target(results) == [(trace_id("s-1", turn), None) for turn in range(3, 13)]


@pytest.mark.parametrize(
    ("evaluator", "target"),
    [
        (EXACT, {"traceIds": ["a" * 32]}),
        ("Builtin.InstructionFollowing", {"spanIds": ["a" * 16]}),
        ("Builtin.ToolSelectionAccuracy", {"traceIds": ["a" * 32]}),
        ("Builtin.InstructionFollowing", {"traceIds": ["a" * 32]}),
    ],
)
def test_targets_of_another_level_or_session_are_refused(judged, evaluator, target):
    answer = refused(evaluate, judged, evaluator, spans("s-1"), evaluationTarget=target)

    assert answer["Error"]["Code"] == "ValidationException"
    assert answer["fieldList"][0]["name"].startswith("evaluationTarget")


@pytest.mark.parametrize(
    ("documents", "words"),
    [
        ([{"traceId": "a" * 32, "spanId": "b" * 16, "body": {"input": {}}, "timeUnixNano": 1}],
         "contains 1 log event(s) but no span documents"),
        ([span("s", "a" * 32, "b" * 16, "GET /", 1, "x", {"http.method": "GET"})],
         "no spans with supported scope"),
        ([*spans("s-1"), *spans("s-2")], "spans of 2 sessions"),
        ([1, None, "x", []], "no readable span documents"),
    ],
)  # fmt: skip
def test_spans_that_tell_of_no_session_are_refused_with_the_reason(shared, documents, words):
    answer = refused(evaluate, shared, EXACT, documents)

    assert answer["Error"]["Code"] == "ValidationException"
    assert words in answer["Error"]["Message"]


def test_ground_truth_of_another_session_is_refused(shared):
    expected = {**about("other"), "expectedTrajectory": {"toolNames": []}}

    answer = refused(evaluate, shared, EXACT, spans("s-1"), evaluationReferenceInputs=[expected])

    assert (
        answer["fieldList"][0]["name"] == "evaluationReferenceInputs.1.member.context.spanContext.sessionId"
    )


def test_an_expected_response_belongs_to_its_trace(judged):
    expected = {**about("s-1", traceId=trace_id("s-1", 1)), "expectedResponse": {"text": "84"}}

    results = evaluate(
        judged, "Builtin.Correctness", spans("s-1", TWO_TURNS), evaluationReferenceInputs=[expected]
    )

    assert len(results) == 2


@pytest.mark.parametrize("evaluator", ["Builtin.Nothing", "mine-0123456789", "ThirdParty.DeepEval.Bias"])
def test_an_evaluator_that_is_not_there_is_not_found(shared, evaluator):
    answer = refused(evaluate, shared, evaluator, spans("s-1"))

    assert (answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]) == (
        "ResourceNotFoundException",
        404,
    )


def test_an_arn_is_no_evaluator_id(shared):
    answer = refused(evaluate, shared, f"arn:aws:bedrock-agentcore:::evaluator/{EXACT}", spans("s-1"))

    assert answer["Error"]["Code"] == "ValidationException"
    assert answer["fieldList"][0]["name"] == "evaluatorId"


def test_too_many_spans_are_refused(shared):
    answer = refused(evaluate, shared, EXACT, [{}] * 20_001)

    assert "less than or equal to 20000" in answer["Error"]["Message"]


def test_a_body_beyond_the_limit_is_refused(serve):
    served = serve(evaluation={"limits": {"evaluate_bytes": 100_000}})

    answer = refused(evaluate, served, EXACT, ["x" * 150_000])

    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 413


async def test_what_is_not_judged_in_time_says_so(serve):
    async with ModelServer([reply(YES, delay_seconds=30)]) as models:
        served = serve(
            evaluation={"judge": "openai/slow", "limits": {"evaluate_seconds": 0.5}},
            environment={"OPENAI_BASE_URL": models.url, "OPENAI_API_KEY": "sk-test"},
        )
        (result,) = await asyncio.to_thread(evaluate, served, "Builtin.InstructionFollowing", spans("s-1"))

    assert result["errorCode"] == "TimeoutException"
    assert result["context"]["spanContext"]["traceId"] == trace_id("s-1")


async def test_the_same_request_sent_again_while_it_is_under_way_is_judged_once(serve):
    async with ModelServer([reply(YES, delay_seconds=0.5)]) as models:
        served = serve(
            evaluation={"judge": "openai/slow"},
            environment={"OPENAI_BASE_URL": models.url, "OPENAI_API_KEY": "sk-test"},
        )
        client = served.data
        barrier = threading.Barrier(3)

        def call():
            barrier.wait()
            return client.evaluate(
                evaluatorId="Builtin.InstructionFollowing", evaluationInput={"sessionSpans": spans("s-1")}
            )["evaluationResults"]

        answers = await asyncio.gather(*(asyncio.to_thread(call) for _ in range(3)))

    assert answers[0] == answers[1] == answers[2]
    assert len(models.requests) == 1
