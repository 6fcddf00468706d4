"""Parts of evidence: turns, lines that a judge sees, sessions and ground truth as documents, definitions."""

import pytest

from proctor.errors import UsageError
from proctor.evaluator import Evidence, Reference, Trace
from proctor.evaluators.code import (
    base_event,
    event_target,
    evidence_of_document,
    reference_document,
    reference_of,
    scored,
    session_document,
)
from proctor.evaluators.definition import (
    BEDROCK,
    RESPONSES,
    _derived,
    _dimensions,
    _ratings,
    problems_of,
    problems_of_model,
)
from proctor.evaluators.rendering import (
    NOTHING,
    EvaluationTarget,
    calls_of,
    happened,
    numbered,
    tools,
    turns_of,
)
from proctor.score import Score
from proctor.session import Message, ToolCall

USER, ANSWER = Message(role="user", content="hi"), Message(role="assistant", content="ho")
RESULT = Message(role="tool", content="raw")
CALL = ToolCall(name="run", args={"a": 1}, result="done", success=False)


def test_a_session_without_turns_is_one_turn():
    evidence = Evidence(session_id="s", messages=[USER, ANSWER], tool_calls=[CALL])
    (only,) = turns_of(evidence)
    assert (only.id, only.prompt, only.answer, list(only.tool_calls)) == ("turn-1", "hi", "ho", [CALL])
    (calls,) = turns_of(Evidence(session_id="s", tool_calls=[CALL]))
    assert calls.prompt == ""
    assert list(turns_of(Evidence(session_id="s"))) == []
    traced = Evidence(session_id="s", traces=[Trace(id="t", tool_calls=[CALL])])
    assert list(calls_of(traced)) == [CALL] and list(turns_of(traced)) == list(traced.traces)


def test_what_happened_is_in_the_usual_order_where_it_is_not_known():
    known = Trace(id="t", messages=[USER, ANSWER], tool_calls=[CALL], happened=[ANSWER, USER])
    assert list(happened(known)) == [ANSWER, USER]
    assert happened(Trace(id="t", messages=[USER, ANSWER], tool_calls=[CALL])) == [USER, CALL, ANSWER]
    assert happened(Trace(id="t", messages=[USER], tool_calls=[CALL])) == [USER, CALL]
    assert happened(Trace(id="t", prompt="hi", answer="ho", tool_calls=[CALL])) == [USER, CALL, ANSWER]
    assert happened(Trace(id="t")) == []


def test_results_are_shown_once_and_turns_are_numbered():
    first = Trace(id="a", happened=[USER, CALL, RESULT, ANSWER])
    second = Trace(id="b", happened=[USER, RESULT])
    assert numbered(Evidence(session_id="s", traces=[first, second])).splitlines() == [
        *("Turn 1", "User: hi", 'Action: run({"a": 1})', "Tool (failed): done", "Assistant: ho"),
        *("Turn 2", "User: hi", "Tool: raw"),
    ]
    silent = ToolCall(name="run")
    assert f"Tool: {NOTHING}" in numbered(Evidence(session_id="s", tool_calls=[silent]))
    assert numbered(Evidence(session_id="s")) == NOTHING
    assert tools([{"name": "a"}, {"name": "b", "description": "d", "parameters": {"x": 1}}]) == (
        '- a: not described\n- b: d Parameters: {"x": 1}'
    )


def test_ground_truth_is_read_in_both_forms():
    plain = {"assertions": ["a"], "expectedTrajectory": ["t"], "turns": [{}, {"expectedResponse": "r"}]}
    wrapped = {
        "assertions": [{"text": "a"}],
        "expectedTrajectory": {"toolNames": ["t"]},
        "turns": [{}, {"expectedResponse": {"text": "r"}}],
    }
    for document in (plain, wrapped):
        reference = reference_of(document)
        assert (reference.assertions, reference.trajectory, dict(reference.responses)) == (
            *(("a",), ("t",), {1: "r"}),
        )
    assert reference_of({}).trajectory is None and reference_of({"expectedTrajectory": {}}).trajectory == ()


@pytest.mark.parametrize(
    ("read", "document", "problem"),
    [
        (reference_of, [], "ground truth is a map"),
        (reference_of, {"turn": []}, "ground truth has no `turn`\nThere are: assertions"),
        (evidence_of_document, {}, "it has no list of `turns`"),
        (evidence_of_document, [], "it has no list of `turns`"),
        (evidence_of_document, {"turns": [{}, 3]}, "turn 2 is not a map"),
    ],
)
def test_what_is_no_session_and_no_ground_truth_is_refused(read, document, problem):
    with pytest.raises(UsageError, match=problem):
        read(document)


def code(**config):
    return {"evaluatorName": "e", "level": "SESSION", "evaluatorConfig": {"codeBased": config}}


def problems(document):
    return [str(problem) for problem in problems_of(document)]


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"function": "m:f"}, ""),
        ({"function": "m"}, "should be `module:function`"),
        ({"command": ["x"]}, ""),
        ({"command": []}, "should be a list: a program and its arguments"),
        ({"command": ["x", ""]}, "should be a list: a program and its arguments"),
        ({"command": "x"}, "should be a list: a program and its arguments"),
        ({"function": "m:f", "command": ["x"]}, "should have exactly one of"),
        ({}, "should have exactly one of"),
        ({"function": "m:f", "timeoutSeconds": 3600}, ""),
        ({"function": "m:f", "timeoutSeconds": 3601}, "should be a number above 0 and up to 3,600"),
        ({"function": "m:f", "timeoutSeconds": 0}, "should be a number above 0 and up to 3,600"),
        ({"function": "m:f", "timeoutSeconds": True}, "should be a number above 0 and up to 3,600"),
        ({"function": "m:f", "memoryMegabytes": 1_000_001}, "up to 1,000,000"),
        ({"lambdaConfig": {"lambdaArn": "x"}}, "should be the ARN of a Lambda function"),
        ({"lambdaConfig": 3}, "should be a map"),
    ],
)
def test_code_of_an_evaluator_is_checked(config, problem):
    found = problems(code(**config))
    assert len(found) == bool(problem) and all(problem in each for each in found), found


@pytest.mark.parametrize("seconds", [0, 1, 300, 301, 1.5])
def test_a_lambda_function_has_up_to_five_minutes(seconds):
    arn = "arn:aws:lambda:us-east-1:123456789012:function:judge"
    found = problems(code(lambdaConfig={"lambdaArn": arn, "lambdaTimeoutInSeconds": seconds}))
    assert len(found) == (seconds not in (1, 300))


def rating(label="good", value=1, **more):
    return {"label": label, "value": value, "definition": "d", **more}


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ([rating(), rating("bad", 0)], ""),
        ([], "should be a list of ratings"),
        ("text", "should be a list of ratings"),
        ([3], "r.0: should be a map"),
        ([rating("x" * 100)], ""),
        ([rating("x" * 101)], "r.0.label: should be 1 to 100"),
        ([rating(" ")], "r.0.label: should be 1 to 100"),
        ([rating(definition=1)], "r.0.definition: should be text"),
        ([rating(value=-0.5)], "r.0.value: should be a number that is not negative"),
        ([rating(value=float("inf"))], "r.0.value: should be a number"),
        ([rating(value=True)], "r.0.value: should be a number"),
        ([rating(), rating(" GOOD")], "r: has a label twice"),
    ],
)
def test_ratings_are_checked(entries, problem):
    found = [str(each) for each in _ratings("r", entries, numerical=True)]
    assert len(found) == bool(problem) and all(problem in each for each in found), found


def dimension(name="warmth", instruction="x", scale=None):
    scale = scale or {"numerical": [rating()]}
    return {"dimensionName": name, "dimensionInstruction": instruction, "dimensionRatingScale": scale}


@pytest.mark.parametrize(
    ("dimensions", "problem"),
    [
        ([dimension()], ""),
        ([], "d: should be a list of 1 to 50 dimensions"),
        ([dimension(f"d{number}") for number in range(50)], ""),
        ([dimension(f"d{number}") for number in range(51)], "d: should be a list of 1 to 50 dimensions"),
        ([3], "d.0: should be a map"),
        ([dimension("1x")], "d.0.dimensionName: should be a letter"),
        ([dimension(instruction="x" * 4000)], ""),
        ([dimension(instruction="x" * 4001)], "d.0.dimensionInstruction: should be 1 to 4000"),
        ([dimension(instruction="")], "d.0.dimensionInstruction: should be 1 to 4000"),
        ([dimension(scale={"categorical": []})], "should be a list of ratings"),
        ([dimension("a_b"), dimension("AB")], "names differ only in case or underscores"),
    ],
)
def test_dimensions_are_checked(dimensions, problem):
    found = [str(each) for each in _dimensions("d", dimensions)]
    assert len(found) == bool(problem) and all(problem in each for each in found), found


def test_a_definition_is_a_map_with_a_name_a_level_and_a_short_description():
    valid = code(function="m:f")
    assert problems([]) == ["an evaluator's definition is a map"]
    for change, count in (
        *(({"description": "x" * 200}, 0), ({"description": "x" * 201}, 1), ({"description": ""}, 0)),
        *(({"level": "session"}, 1), ({"evaluatorName": "x" * 48}, 0), ({"evaluatorName": "x" * 49}, 1)),
    ):
        assert len(problems(valid | change)) == count, change
    assert str(next(iter(problems_of(valid | {"description": ""}, wire=True)))) == (
        "description: should be 1 to 200 characters of text"
    )


def test_a_session_of_a_document_has_what_its_events_say_where_it_says_nothing():
    events = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "first"},
        {"tool": "run", "args": {"a": 1}, "result": "ok", "success": True, "spanId": "c"},
        {"role": "odd", "content": "last", "name": "Ann"},
    ]
    document = {
        "sessionId": "s",
        "turns": [{"events": events}, {"traceId": "t", "prompt": "p", "answer": "a"}],
    }
    evidence = evidence_of_document(document | {"systemPrompt": "be kind", "tools": [{"name": "run"}, 3]})
    first, second = evidence.traces
    assert (first.id, first.prompt, first.answer) == ("turn-1", "one", "last")
    assert (second.id, second.prompt, second.answer) == ("t", "p", "a")
    (call,) = evidence.tool_calls
    assert (call.name, call.args, call.result, call.success, call.call_id) == (
        "run",
        {"a": 1},
        "ok",
        True,
        "c",
    )
    assert [(each.role, each.name) for each in first.messages][-1] == ("assistant", "Ann")
    assert (evidence.system_prompt, list(evidence.tools)) == ("be kind", [{"name": "run"}])


@pytest.mark.parametrize(
    ("outcome", "value", "label", "error", "code"),
    [
        (True, 1.0, "pass", "", ""),
        (False, 0.0, "fail", "", ""),
        (0.5, 0.5, "", "", ""),
        ("good", None, "good", "", ""),
        ("x" * 1001, None, "x" * 1000, "", ""),
        ({"label": "good", "value": 1}, 1, "good", "", ""),
        ({"errorCode": "C", "errorMessage": "m"}, None, "", "m", "C"),
        ({"errorCode": "C"}, None, "", "C", "C"),
        ({"errorMessage": "m"}, None, "", "m", "EvaluatorError"),
    ],
)
def test_the_result_of_a_function_is_a_score(outcome, value, label, error, code):
    score = scored(Score(evaluator="e"), outcome)
    assert (score.value, score.label, score.error, score.error_code) == (value, label, error, code)


@pytest.mark.parametrize(
    ("outcome", "problem"),
    [
        (None, "it is nothing"),
        ([], "it is list"),
        (" ", "no label"),
        ({}, "it has neither label nor value"),
        ({"label": []}, "its label is not text"),
    ],
)
def test_what_is_no_score_says_why(outcome, problem):
    score = scored(Score(evaluator="e"), outcome)
    assert problem in score.error and score.error_code == "InvalidResult"


@pytest.mark.parametrize(
    ("base", "level", "problem"),
    [
        ("Builtin.Refusal", "trace", None),
        ("Builtin.Refusal", None, None),
        ("Builtin.Refusal", "session", "is not that of Builtin.Refusal"),
        ("Builtin.TrajectoryExactOrderMatch", "session", "does not use a model, so there is none to replace"),
        ("Builtin.Refusall", "trace", "is not a built-in evaluator"),
        ("mine-0123456789", "trace", None),
        (5, "trace", "should be an evaluator's id"),
    ],
)
def test_the_base_of_a_derived_evaluator_is_checked(base, level, problem):
    found = [str(each) for each in _derived("base", {"baseEvaluatorId": base}, level, False)]
    assert len(found) == (problem is not None) and all(problem in each for each in found), found


@pytest.mark.parametrize(
    ("kind", "name", "well", "wrong", "problem"),
    [
        (BEDROCK, "temperature", (0, 0.5, 1), (-0.1, 1.1, "hot", None), "should be a number from 0 to 1"),
        (RESPONSES, "temperature", (0, 1.1, 2), (-0.1, 2.1, "hot", None), "should be a number from 0 to 2"),
        (BEDROCK, "topP", (0, 1), (-0.1, 1.01, None), "should be a number from 0 to 1"),
        (RESPONSES, "topP", (0, 1), (-0.1, 1.01, None), "should be a number from 0 to 1"),
        (BEDROCK, "maxTokens", (1, 9), (0, -1, 1.5, "x"), "should be a whole number of at least 1"),
        (RESPONSES, "maxOutputTokens", (1, 9), (0, -1, 1.5), "should be a whole number of at least 1"),
        (BEDROCK, "stopSequences", ([], ["x"]), ("x", [""], [1]), "should be a list of texts"),
    ],
)
def test_settings_of_a_judge_are_checked(kind, name, well, wrong, problem):
    def found(value):
        setting = {"inferenceConfig": {name: value}} if kind == BEDROCK else {name: value}
        return [text for _, text in problems_of_model("model", {kind: {"modelId": "m", **setting}})]

    assert [found(value) for value in well] == [[]] * len(well)
    assert [found(value) for value in wrong] == [[problem]] * len(wrong)


TRUTH = Reference(assertions=("kind",), trajectory=("run",), responses={1: "ho", 2: "hu", 5: "late"})
TURNS = Evidence(
    session_id="s",
    traces=[
        Trace(
            id=f"t{number}", prompt="p", answer="a", tool_calls=[ToolCall(name="run", call_id=f"c{number}")]
        )
        for number in range(3)
    ],
    system_prompt="be kind",
    tools=[{"name": "run"}],
    attributes={"a": 1},
    reference=TRUTH,
)
OF_SESSION = {
    "context": {"spanContext": {"sessionId": "s"}},
    "assertions": [{"text": "kind"}],
    "expectedTrajectory": {"toolNames": ["run"]},
}


def of_turn(number, text):
    place = {"sessionId": "s", "traceId": f"t{number}"}
    return {"context": {"spanContext": place}, "expectedResponse": {"text": text}}


@pytest.mark.parametrize(
    ("target", "place", "expected"),
    [
        (EvaluationTarget(level="session"), None, [of_turn(1, "ho"), of_turn(2, "hu")]),
        (EvaluationTarget(level="trace", id="t0", turn=0), {"traceIds": ["t0"]}, []),
        (EvaluationTarget(level="trace", id="t1", turn=1), {"traceIds": ["t1"]}, [of_turn(1, "ho")]),
        (
            EvaluationTarget(level="tool_call", id="c2", turn=2, call=0),
            {"traceIds": ["t2"], "spanIds": ["c2"]},
            [of_turn(2, "hu")],
        ),
    ],
)
def test_an_event_has_the_ground_truth_of_its_target(target, place, expected):
    assert event_target(TURNS, target) == {
        "evaluationTarget": place,
        "evaluationReferenceInputs": [OF_SESSION, *expected],
    }


def test_an_event_without_ground_truth_has_none():
    session = EvaluationTarget(level="session")
    assert event_target(Evidence(session_id="s"), session)["evaluationReferenceInputs"] == []
    only = Evidence(session_id="s", traces=TURNS.traces, reference=Reference(responses={0: "hi"}))
    assert event_target(only, session)["evaluationReferenceInputs"] == [of_turn(0, "hi")]
    assert reference_document(Reference()) == {}
    assert reference_document(Reference(trajectory=(), responses={1: "x"})) == {
        "expectedTrajectory": {"toolNames": []},
        "turns": [{}, {"expectedResponse": {"text": "x"}}],
    }


@pytest.mark.parametrize(
    ("level", "word"), [("session", "SESSION"), ("trace", "TRACE"), ("tool_call", "TOOL_CALL")]
)
def test_an_event_names_its_evaluator_and_contains_the_session(level, word):
    event = base_event(TURNS, name="mine", identity="mine-1", level=level)
    assert event["evaluationInput"]["sessionSpans"]
    assert {key: event[key] for key in event if key not in ("evaluationInput", "session")} == {
        "schemaVersion": "1.0",
        "evaluatorId": "mine-1",
        "evaluatorName": "mine",
        "evaluationLevel": word,
    }
    again = evidence_of_document(event["session"])
    assert again.reference == TRUTH and session_document(again) == event["session"]
    assert evidence_of_document(event["session"], Reference(assertions=("other",))).reference.assertions == (
        "other",
    )
