"""What we write as spans we read back as it was."""

import hashlib
import json
import string
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.evaluator import Evidence, Trace
from proctor.session import Message, ModelCall, Session, Step, TimedEvent, ToolCall, Usage
from proctor.store.sessions import evidence_of_session
from proctor.telemetry import documents_of, normalized, sessions_of, spans_of
from proctor.telemetry.otlp import decode_json, encode_spans
from session_strategies import messages, model_calls, names, tool_calls

ids = st.text(string.ascii_lowercase + string.digits + "-", min_size=1, max_size=20).filter(
    lambda t: t.strip("0")
)
milliseconds = st.none() | st.integers(0, 10**9).map(lambda n: n / 1000)


@st.composite
def traces(draw):
    happened = draw(st.lists(messages | tool_calls(ids, milliseconds), min_size=1, max_size=6))
    said = [event for event in happened if isinstance(event, Message)]
    return Trace(
        id="",
        tool_calls=[event for event in happened if isinstance(event, ToolCall)],
        messages=said,
        events=happened,
    )


@st.composite
def evidences(draw):
    turns = draw(st.lists(traces(), min_size=1, max_size=4))
    steps = [
        Step(trace_id=f"turn-{number}", events=[TimedEvent(event=event) for event in turn.events])
        for number, turn in enumerate(turns, start=1)
    ]
    calls = [TimedEvent(event=call) for call in draw(st.lists(model_calls(ids, milliseconds), max_size=3))]
    steps[0] = Step(trace_id=steps[0].trace_id, events=[*steps[0].events, *calls])
    tools = draw(
        st.lists(st.fixed_dictionaries({"name": names, "description": names}), max_size=2, unique_by=str)
    )
    return Session(external_id=draw(ids), source="otlp", steps=steps, tools=_distinct(tools))


def _distinct(tools):
    return list({tool["name"]: tool for tool in tools}.values())


def told(evidence: Evidence):
    return (
        evidence.session_id,
        list(evidence.messages),
        list(evidence.tool_calls),
        list(evidence.model_calls),
        [(trace.id, trace.prompt, trace.answer, list(trace.events)) for trace in evidence.traces],
        list(evidence.tools),
        evidence.system_prompt,
    )


@settings(max_examples=25)
@given(evidences())
def test_what_an_evaluator_sees_survives_being_written_as_spans_and_sent(session):
    evidence = evidence_of_session(session)

    documents = [normalized(json.loads(json.dumps(document))) for document in spans_of(evidence)]
    line = json.dumps(encode_spans(documents_of(session)))

    for span in json.loads(line)["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        assert len(bytes.fromhex(span["traceId"])) == 16
        assert len(bytes.fromhex(span["spanId"])) == 8
    for read in (documents, decode_json(line).documents):
        (back,) = sessions_of(read)
        assert told(evidence_of_session(back)) == told(evidence)


def test_times_ids_and_places_of_an_imported_session_stay():
    start = datetime(2026, 4, 23, 12, 0, tzinfo=UTC)
    session = Session(
        external_id="s-1",
        source="otlp",
        service="Calc.DEFAULT",
        log_group="/calc",
        agent="Calc",
        model="large",
        steps=[
            Step(
                trace_id="ab" * 16,
                started_at=start,
                finished_at=start + timedelta(seconds=9),
                events=[
                    TimedEvent(event=Message(role="user", content="hi"), at=start + timedelta(seconds=1)),
                    TimedEvent(
                        event=ToolCall(name="t", call_id="cd" * 8, duration_ms=1500.0),
                        at=start + timedelta(seconds=4),
                    ),
                ],
            )
        ],
    )
    documents = documents_of(session)

    assert [document["traceId"] for document in documents] == ["ab" * 16] * 2
    assert documents[1]["spanId"] == "cd" * 8 and documents[1]["parentSpanId"] == documents[0]["spanId"]
    assert documents[1]["durationNano"] == 1_500_000_000
    (back,) = sessions_of(documents)
    assert (back.service, back.log_group, back.agent) == ("Calc.DEFAULT", "/calc", "Calc")
    assert (back.started_at, back.finished_at) == (start, start + timedelta(seconds=9))


@pytest.mark.parametrize(
    ("status", "end_reason"),
    [("success", "completed"), ("fail", "checks_failed"), ("timeout", "timeout"), ("error", "model_failed")],
)
def test_how_a_session_ended_who_it_was_and_that_it_only_rehearsed_comes_back(status, end_reason):
    asked = TimedEvent(event=Message(role="user", content="hi"))
    called = TimedEvent(event=ModelCall(model="scripted/client", usage=Usage(input_tokens=1)))
    session = Session(
        external_id="s-1",
        source="coding",
        name="batch/fix",
        model="scripted/therapist + scripted/client",
        is_mock=True,
        status=status,
        end_reason=end_reason,
        error="" if status == "success" else "why",
        steps=[Step(trace_id=f"turn-{turn}", events=[asked, called]) for turn in (1, 2)],
    )

    (back,) = sessions_of(decode_json(json.dumps(encode_spans(documents_of(session))).encode()).documents)

    for member in ("name", "model", "is_mock", "status", "end_reason", "error"):
        assert getattr(back, member) == getattr(session, member), member


def test_those_who_follow_the_conventions_can_read_what_we_write():
    evidence = Evidence(
        session_id="s-1",
        traces=[
            Trace(
                id="turn-1",
                messages=[Message(role="user", content="hi"), Message(role="assistant", content="ho")],
                tool_calls=[ToolCall(name="t", args={"a": 1}, result="42", call_id="call-3")],
            )
        ],
        tools=[{"name": "t", "description": "does it"}],
    )

    agent, tool = spans_of(evidence)

    assert agent["attributes"]["gen_ai.operation.name"] == "invoke_agent"
    assert json.loads(agent["attributes"]["gen_ai.input.messages"])[0]["parts"][0]["content"] == "hi"
    assert json.loads(agent["attributes"]["gen_ai.output.messages"])[0]["parts"][0]["content"] == "ho"
    assert tool["spanId"] == "call-3" and tool["attributes"]["gen_ai.tool.name"] == "t"
    assert {document["attributes"]["session.id"] for document in (agent, tool)} == {"s-1"}


@pytest.mark.parametrize(("success", "code"), [(True, "OK"), (None, "OK"), (False, "ERROR")])
def test_calls_with_one_id_become_spans_with_different_ids_and_their_success(success, code):
    calls = [
        ToolCall(name="a", args={"x": 1}, call_id="same", success=success, duration_ms=5.0),
        ToolCall(name="b", args={}, call_id="same"),
        ModelCall(model="m"),
        ModelCall(model="m"),
    ]
    steps = [Step(trace_id="t", events=[TimedEvent(event=call) for call in calls])] * 2

    documents = documents_of(Session(external_id="s", source="x", steps=steps))

    ids = [(document["traceId"], document["spanId"]) for document in documents]
    assert len(ids) == 10 and len(set(ids)) == 10
    first, tool, *others = documents[:5]
    assert tool["spanId"] == "same" and {other["parentSpanId"] for other in others} == {first["spanId"]}
    times = [document["startTimeUnixNano"] for document in (first, *others)]
    assert times == sorted(set(times))
    assert first["endTimeUnixNano"] > others[-1]["endTimeUnixNano"]
    assert (tool["name"], tool["status"]) == ("execute_tool a", {"code": code})
    assert tool["attributes"].get("proctor.success") is success
    assert tool["attributes"]["proctor.duration_ms"] == 5.0


def test_ids_that_are_not_hexadecimal_are_digests_of_where_they_stand():
    document = {
        "traceId": "turn-1",
        "spanId": "call-1",
        "parentSpanId": "call-0",
        "scope": {"name": "x"},
        "resource": {"attributes": {}},
        "events": [],
        "name": "n",
        "kind": "CLIENT",
        "startTimeUnixNano": 1,
        "endTimeUnixNano": 2,
        "attributes": {"session.id": "s"},
        "status": {"code": "ERROR", "message": "m"},
    }

    def written(**more):
        (resource,) = encode_spans([document | more])["resourceSpans"]
        return resource["scopeSpans"][0]["spans"][0]

    def digest(digits, *parts):
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:digits]

    span = written()
    assert span["traceId"] == digest(32, "s", "turn-1")
    assert span["spanId"] == digest(16, "s", "turn-1", "call-1")
    assert span["parentSpanId"] == digest(16, "s", "turn-1", "call-0")
    assert (span["kind"], span["status"]) == (3, {"code": 2, "message": "m"})
    known = {"traceId": "0af" + "1" * 29, "spanId": "f" * 16, "parentSpanId": ""}
    span = written(**known, kind="x", status={})
    assert {name: span[name] for name in known} == known
    assert (span["kind"], span["status"]) == (0, {"code": 0})
