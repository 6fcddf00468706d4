"""One session is judged at once: spans in, results out."""

import asyncio
import json
import threading

import pytest
from wire_server import ACCOUNT, refused, servers
from wire_spans import span, spans, tool_span_id, trace_id

from proctor.agentcore.errors import ValidationException
from proctor.agentcore.evaluate import evidence_of_spans
from proctor.testing.model_server import ModelServer, failure, reply

YES = '{"reason": "It is right.", "score": "Yes"}'
EXACT = "Builtin.TrajectoryExactOrderMatch"
TWO_TURNS = (
    ("What is 15 + 27?", "It is 42.", ("calculator",)),
    ("And twice that?", "84.", ("calculator", "printer")),
)


def about(session, **trace):
    return {"context": {"spanContext": {"sessionId": session, **trace}}}


def evaluate(served, evaluator, documents, **members):
    spans_of_session = {"sessionSpans": documents}
    answer = served.data.evaluate(evaluatorId=evaluator, evaluationInput=spans_of_session, **members)
    return answer["evaluationResults"]


def test_a_trajectory_is_matched_without_any_model(shared):
    expected = {**about("s-1"), "expectedTrajectory": {"toolNames": ["calculator"]}}

    (result,) = evaluate(shared, EXACT, spans("s-1"), evaluationReferenceInputs=[expected])

    assert (result["value"], result["label"]) == (1.0, "Yes")
    assert result["context"] == {"spanContext": {"sessionId": "s-1"}}
    assert (result["evaluatorId"], result["evaluatorName"]) == (EXACT, EXACT)
    assert result["evaluatorArn"] == f"arn:aws:bedrock-agentcore:::evaluator/{EXACT}"
    assert result["tokenUsage"] == {"inputTokens": 0, "outputTokens": 0, "totalTokens": 0}


def test_spans_may_come_as_the_text_they_are_logged_as_and_twice(shared):
    texts = [json.dumps(each) for each in spans("s-1")]
    for documents, tool, judged in (
        (texts, "other", (0.0, "No")),
        (texts, "calculator", (1.0, "Yes")),
        ([*spans("s-1"), *texts], "calculator", (1.0, "Yes")),
    ):
        trajectory = {"expectedTrajectory": {"toolNames": [tool]}, "assertions": [{"text": "It adds"}]}
        expected = {**about("s-1"), **trajectory}
        (result,) = evaluate(shared, EXACT, documents, evaluationReferenceInputs=[expected])
        assert (result["value"], result["label"]) == judged
        # Ground truth that nobody uses is named.
        assert result["ignoredReferenceInputFields"] == ["assertions"]


def test_what_cannot_be_judged_is_a_result_with_an_error(shared):
    (result,) = evaluate(shared, EXACT, spans("s-1"))

    assert result["errorCode"] == "ValidationException"
    assert "expectedTrajectory" in result["errorMessage"]
    assert not {"value", "label"} & set(result)


@pytest.fixture(scope="module")
def judged(tmp_path_factory, command_server, empty_store_file):
    """A server with a scripted judge, which says Yes; it keeps nothing of what it judges."""
    folder = tmp_path_factory.mktemp("judged")
    (folder / "judge.yaml").write_text(f"rules: [{{reply: '{YES}'}}]\n")
    with servers(folder, command_server.program, empty_store_file) as start:
        yield start(evaluation={"judge": "scripted/judge"})


def results_by_target(results):
    return [
        (each["context"]["spanContext"].get("traceId"), each["context"]["spanContext"].get("spanId"))
        for each in results
    ]


def test_each_trace_and_each_tool_call_has_a_result_of_its_own_and_targets_choose_among_them(judged):
    documents, call = spans("s-1", TWO_TURNS), tool_span_id("s-1", 1, 1)
    results = evaluate(judged, FOLLOWING, documents)

    assert results_by_target(results) == [(trace_id("s-1", 0), None), (trace_id("s-1", 1), None)]
    assert [each.get("label") for each in results] == ["Yes", "Yes"], results
    assert all(each["tokenUsage"]["totalTokens"] > 0 for each in results)
    assert results_by_target(evaluate(judged, SELECTION, documents)) == [
        (trace_id("s-1", 0), tool_span_id("s-1", 0, 0)),
        (trace_id("s-1", 1), tool_span_id("s-1", 1, 0)),
        (trace_id("s-1", 1), call),
    ]

    of_trace = evaluate(judged, FOLLOWING, documents, evaluationTarget={"traceIds": [LAST.upper()]})
    of_call = evaluate(judged, SELECTION, documents, evaluationTarget={"spanIds": [call]})

    assert results_by_target(of_trace) == [(LAST, None)]
    assert results_by_target(of_call) == [(LAST, call)]


def test_of_many_targets_the_last_ten_are_judged(judged):
    turns = [(f"Question {number}", "An answer.", ()) for number in range(13)]

    results = evaluate(judged, "Builtin.InstructionFollowing", spans("s-1", turns))

    assert results_by_target(results) == [(trace_id("s-1", turn), None) for turn in range(3, 13)]


FIRST, LAST = trace_id("s-1", 0), trace_id("s-1", 1)
FOLLOWING, SELECTION = "Builtin.InstructionFollowing", "Builtin.ToolSelectionAccuracy"


@pytest.mark.parametrize(
    ("evaluator", "target", "violation"),
    [
        (EXACT, {"traceIds": [FIRST]}, ("", "Member must be absent for this evaluator")),
        (FOLLOWING, {"spanIds": ["a" * 16]}, ("", "Member must be traceIds for this evaluator")),
        (SELECTION, {"traceIds": [FIRST]}, ("", "Member must be spanIds for this evaluator")),
        (
            FOLLOWING,
            {"traceIds": [FIRST, "b" * 32, "c" * 32]},
            (".traceIds", f"Member must be in the provided spans: {'b' * 32}"),
        ),
    ],
)
def test_targets_of_another_level_or_session_are_refused(judged, evaluator, target, violation):
    refusal = refused(evaluate, judged, evaluator, spans("s-1"), evaluationTarget=target)

    name, constraint = violation
    assert refusal.fields == {f"evaluationTarget{name}": constraint}


def test_a_session_without_tool_calls_has_nothing_for_an_evaluator_of_them(judged):
    refusal = refused(evaluate, judged, SELECTION, spans("s-1", [("hi", "hello", ())]))

    assert (refusal.code, refusal.message) == ("ValidationException", "no spans to evaluate")


def unnamed(documents):
    return [{**each, "attributes": {**each["attributes"], "session.id": ""}} for each in documents]


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        (
            [{"traceId": "a" * 32, "spanId": "b" * 16, "body": {"input": {}}, "timeUnixNano": 1}],
            "Provided input contains 1 log event(s) but no span documents. "
            "Log events alone cannot be evaluated",
        ),
        (
            [span("s", "a" * 32, "b" * 16, "GET /", 1, "x", {"http.method": "GET"})],
            "Provided input has no spans with supported scope",
        ),
        (
            [each for name in "abcd" for each in spans(name)],
            "Provided input has spans of 4 sessions (a, b, c); evaluate one at a time",
        ),
        (
            unnamed(spans("s-1", TWO_TURNS)),
            "Provided input has 2 traces and no span says which session they are of: "
            "attribute session.id is missing",
        ),
        ([[], None, "x", 1], "Provided input has no readable span documents (1: it is no JSON object)"),
    ],
)
def test_spans_that_tell_of_no_session_are_refused_with_the_reason(shared, documents, message):
    refusal = refused(evaluate, shared, EXACT, documents)

    assert (refusal.code, refusal.message) == ("ValidationException", message)


def test_a_trace_without_a_session_is_one_and_what_cannot_be_read_is_passed_over():
    assert evidence_of_spans(unnamed(spans("s-1")), ()).session_id == FIRST
    assert evidence_of_spans([[], *spans("s-1")], ()).session_id == "s-1"


# Ground truth


def test_ground_truth_is_put_together_from_all_references():
    references = [
        {**about("s-1"), "assertions": [{"text": "a"}, {"text": "b"}]},
        {**about("s-1"), "assertions": [{"text": "c"}], "expectedTrajectory": {"toolNames": ["x"]}},
        {**about("s-1", traceId=LAST.upper()), "expectedResponse": {"text": "second"}},
        {**about("s-1", traceId=FIRST), "expectedResponse": {"text": "first"}},
    ]

    reference = evidence_of_spans(spans("s-1", TWO_TURNS), references).reference

    assert (reference.assertions, reference.trajectory) == (["a", "b", "c"], ["x"])
    assert reference.responses == {0: "first", 1: "second"}


def test_ground_truth_without_a_trace_is_that_of_the_only_one():
    truth = {**about("s-1"), "expectedResponse": {"text": "42"}, "expectedTrajectory": {}}
    reference = evidence_of_spans(spans("s-1"), [truth]).reference
    assert (reference.responses, reference.trajectory, reference.assertions) == ({0: "42"}, [], [])

    plain = evidence_of_spans(spans("s-1"), [about("s-1")]).reference
    assert (plain.responses, plain.trajectory) == ({}, None)
    assert evidence_of_spans(spans("s-1"), ()).reference is None


def test_ground_truth_that_is_about_nothing_here_is_refused():
    references = [
        about("s-1"),
        about("other", traceId="f" * 32),
        {**about("s-1"), "expectedResponse": {"text": "x"}},
    ]

    with pytest.raises(ValidationException) as caught:
        evidence_of_spans(spans("s-1", TWO_TURNS), references)

    where = "evaluationReferenceInputs.{}.member.context.spanContext.{}"
    assert [(violation.name, violation.constraint) for violation in caught.value.violations] == [
        (where.format(2, "sessionId"), "Member must be the session of the provided spans"),
        (where.format(2, "traceId"), "Member must be a trace of the provided spans"),
        (where.format(3, "traceId"), "Member must not be null where there are several traces"),
    ]


@pytest.mark.parametrize("evaluator", ["Builtin.Nothing", "mine-0123456789", "ThirdParty.DeepEval.Bias"])
def test_an_evaluator_that_is_not_there_is_not_found_in_one_line(shared, evaluator):
    refusal = refused(evaluate, shared, evaluator, spans("s-1"))

    assert (refusal.code, refusal.status) == ("ResourceNotFoundException", 404)
    assert evaluator in refusal.message and "\n" not in refusal.message


def test_an_arn_is_no_evaluator_id(shared):
    refusal = refused(evaluate, shared, f"arn:aws:bedrock-agentcore:::evaluator/{EXACT}", spans("s-1"))

    assert (refusal.code, list(refusal.fields)) == ("ValidationException", ["evaluatorId"])


LAMBDA = "arn:aws:lambda:us-east-1:123456789012:function:mine"
FUNCTION = """
def judge(event):
    target = event["evaluationTarget"] or {}
    trace = (target.get("traceIds") or [""])[0]
    if trace == "%s":
        return {"errorCode": "z" * 2000, "errorMessage": "sk-verysecretverysecret " + "y" * 3000}
    return {"label": "Bad", "value": 0.0, "explanation": "x" * 3000}
"""


def test_a_result_has_what_the_evaluator_said_and_never_a_secret(serve, tmp_path):
    (tmp_path / "mine.py").write_text(FUNCTION % FIRST)
    served = serve(
        evaluation={"lambdas": {LAMBDA: "mine:judge"}},
        environment={"OPENAI_API_KEY": "sk-verysecretverysecret"},
    )
    config = {"codeBased": {"lambdaConfig": {"lambdaArn": LAMBDA}}}
    evaluator = served.control.create_evaluator(evaluatorName="mine", level="TRACE", evaluatorConfig=config)

    failed, good = evaluate(served, evaluator["evaluatorId"], spans("s-1", TWO_TURNS))

    assert good == {
        "evaluatorArn": f"{ACCOUNT}:evaluator/{evaluator['evaluatorId']}",
        "evaluatorId": evaluator["evaluatorId"],
        "evaluatorName": "mine",
        "context": {"spanContext": {"sessionId": "s-1", "traceId": LAST}},
        "tokenUsage": {"inputTokens": 0, "outputTokens": 0, "totalTokens": 0},
        "ignoredReferenceInputFields": [],
        "explanation": "x" * 2048,
        "label": "Bad",
        "value": 0.0,
    }
    assert not {"value", "label", "explanation"} & set(failed)
    assert failed["context"]["spanContext"]["traceId"] == FIRST
    assert failed["errorMessage"].startswith("[secret] y") and len(failed["errorMessage"]) == 2048
    assert failed["errorCode"] == "z" * 1000


def judged_by(serve, models, **evaluation):
    environment = {"OPENAI_BASE_URL": models.url, "OPENAI_API_KEY": "sk-test"}
    return serve(evaluation={"judge": "openai/judge", **evaluation}, environment=environment)


@pytest.mark.parametrize(("status", "code"), [(400, "ValidationException"), (401, "InternalServerException")])
async def test_a_judge_that_fails_is_a_result_with_the_code_of_its_reason(serve, status, code):
    async with ModelServer([failure(status, "no")] * 3) as models:
        served = judged_by(serve, models)
        (result,) = await asyncio.to_thread(evaluate, served, FOLLOWING, spans("s-1"))

    assert result["errorCode"] == code and "value" not in result


def test_a_body_beyond_the_limit_is_refused(serve):
    served = serve(evaluation={"limits": {"evaluate_bytes": 100_000}})

    refusal = refused(evaluate, served, EXACT, ["x" * 150_000])

    assert (refusal.status, refusal.message) == (413, "The body may have at most 100,000 bytes.")


async def test_what_is_not_judged_in_time_says_so(serve):
    async with ModelServer([reply(YES, delay_seconds=30)]) as models:
        served = judged_by(serve, models, limits={"evaluate_seconds": 0.5})
        (result,) = await asyncio.to_thread(evaluate, served, "Builtin.InstructionFollowing", spans("s-1"))

    assert result["errorCode"] == "TimeoutException"
    assert result["context"]["spanContext"]["traceId"] == trace_id("s-1")


async def test_the_same_request_sent_again_while_it_is_under_way_is_judged_once(serve):
    async with ModelServer([reply(YES, delay_seconds=0.5)]) as models:
        served = judged_by(serve, models)
        barrier = threading.Barrier(3)
        # Made here: three threads would each make one.
        assert served.data

        def call():
            barrier.wait()
            return evaluate(served, FOLLOWING, spans("s-1"))

        answers = await asyncio.gather(*(asyncio.to_thread(call) for _ in range(3)))

    assert answers[0] == answers[1] == answers[2]
    assert len(models.requests) == 1
