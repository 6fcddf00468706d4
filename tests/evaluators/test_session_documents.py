"""Sessions as evaluators get them: turns and lines for a judge, documents and events for code."""

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
from proctor.evaluators.rendering import (
    NOTHING,
    EvaluationTarget,
    calls_of,
    events_of,
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
    known = Trace(id="t", messages=[USER, ANSWER], tool_calls=[CALL], events=[ANSWER, USER])
    assert list(events_of(known)) == [ANSWER, USER]
    assert events_of(Trace(id="t", messages=[USER, ANSWER], tool_calls=[CALL])) == [USER, CALL, ANSWER]
    assert events_of(Trace(id="t", messages=[USER], tool_calls=[CALL])) == [USER, CALL]
    assert events_of(Trace(id="t", prompt="hi", answer="ho", tool_calls=[CALL])) == [USER, CALL, ANSWER]
    assert events_of(Trace(id="t")) == []
    with pytest.warns(DeprecationWarning, match=r"Trace.happened is now Trace.events"):
        assert known.happened == known.events


def test_results_are_shown_once_and_turns_are_numbered():
    first = Trace(id="a", events=[USER, CALL, RESULT, ANSWER])
    second = Trace(id="b", events=[USER, RESULT])
    assert numbered(Evidence(session_id="s", traces=[first, second])).splitlines() == [
        "Turn 1",
        "User: hi",
        'Action: run({"a": 1})',
        "Tool (failed): done",
        "Assistant: ho",
        "Turn 2",
        "User: hi",
        "Tool: raw",
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
            ("a",),
            ("t",),
            {1: "r"},
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
    assert (call.name, call.args, call.result, call.success) == ("run", {"a": 1}, "ok", True)
    assert call.call_id == "c"
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
        (None, None, "", "it is nothing", "InvalidResult"),
        ([], None, "", "it is list", "InvalidResult"),
        (" ", None, "", "no label", "InvalidResult"),
        ({}, None, "", "it has neither label nor value", "InvalidResult"),
        ({"label": []}, None, "", "its label is not text", "InvalidResult"),
    ],
)
def test_the_result_of_a_function_is_a_score(outcome, value, label, error, code):
    score = scored(Score(evaluator="e"), outcome)
    assert (score.value, score.label, score.error_code) == (value, label, code)
    assert error in score.error and bool(score.error) is bool(error)


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
