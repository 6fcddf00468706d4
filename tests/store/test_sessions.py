"""Sessions from their rows, and as evaluators see them."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
import stocked

from proctor.session import Event, Message, ModelCall, Session, Step, TimedEvent, ToolCall, Usage
from proctor.store.sessions import (
    evidence_of,
    evidence_of_session,
    model_call_of,
    parsed,
    session_of_rows,
    tools_of_request,
    with_item,
)


def said(role: str, content: str) -> Message:
    return Message(role=role, content=content)


def session(*steps: tuple[str, list[Event]], **values: Any) -> Session:
    return Session(
        external_id="outside",
        source="phoenix",
        steps=[
            Step(trace_id=trace, events=[TimedEvent(event=event) for event in events])
            for trace, events in steps
        ],
        **values,
    )


def test_a_session_that_is_not_stored_is_seen_by_traces_with_ids_for_all():
    call = ModelCall(model="m", usage=Usage(output_tokens=3))
    opening = [said("system", "Be brief."), said("user", "one"), said("user", "two"), said("assistant", "a")]
    later = [said("user", "three"), call, ToolCall(name="bash"), ToolCall(name="read", call_id="own")]
    later += [said("assistant", "b"), said("user", "four"), said("assistant", "c")]

    seen = evidence_of_session(
        session(("", opening), ("t2", later), agent="amp", model="m", attributes={"model": "n", "x": 1})
    )

    assert [trace.id for trace in seen.traces] == ["turn-1", "t2"]
    assert [(trace.prompt, trace.answer) for trace in seen.traces] == [("one\n\ntwo", "a"), ("three", "c")]
    assert [(used.name, used.call_id) for used in seen.tool_calls] == [("bash", "call-7"), ("read", "own")]
    assert seen.traces[1].tool_calls == seen.tool_calls and seen.traces[0].tool_calls == []
    assert [message.content for message in seen.messages] == [
        "Be brief.",
        *["one", "two", "a", "three", "b", "four", "c"],
    ]
    assert seen.model_calls == [call]
    assert (seen.session_id, seen.system_prompt) == ("outside", "Be brief.")
    known = {"agent": "amp", "source": "phoenix", "status": "success"}
    assert seen.attributes == known | {"model": "n", "x": 1}


def test_a_trace_without_prompt_or_answer_has_none():
    seen = evidence_of_session(session(("t", [said("assistant", "hello")]), ("u", [])))
    assert [(trace.prompt, trace.answer) for trace in seen.traces] == [("", "hello"), ("", "")]
    assert seen.system_prompt == ""


def rows_of(**tables: list[dict[str, Any]]) -> Any:
    names = ("messages", "tool_calls", "model_calls", "iterations")
    return SimpleNamespace(**{name: lambda name=name: tables.get(name, []) for name in names})


def message(position: int, step: int, role: str, content: str) -> dict[str, Any]:
    row = {"position": position, "step": step, "role": role, "content": content, "name": ""}
    return row | {"timestamp": "2026-05-01T12:00:00+00:00"}


TOOL_CALL = {"position": 3, "step": 1, "toolName": "bash", "argsJson": '{"a":1}', "success": 0, "result": "r"}
TOOL_CALL |= {"durationMs": 5.0, "callId": "", "timestamp": None}
MODEL_CALL = {"position": 5, "step": 2, "model": "m", "provider": "p", "promptTokens": 1, "cachedTokens": 2}
MODEL_CALL |= {"completionTokens": 3, "reasoningTokens": 4, "costUsd": 0.5, "priceSource": "plan"}
MODEL_CALL |= {
    "latencyMs": 6.0,
    "waitingMs": 7.0,
    "status": "ok",
    "error": "",
    "callId": "",
    "timestamp": None,
}
SESSION = dict.fromkeys(
    (
        "service",
        "logGroup",
        "agentVersion",
        "endReason",
        "error",
        "startedAt",
        "finishedAt",
        "attributesJson",
    ),
    "",
)
SESSION |= {"id": "s1", "externalId": "", "source": "", "job": "coding", "name": "n", "agent": "amp"}
SESSION |= {"model": "m", "standIn": 1, "status": "fail", "notes": '["seen"]', "runId": "run", "itemId": None}
SESSION |= {"toolsJson": '[{"name":"bash"}, 7]'}


def stored() -> Any:
    return rows_of(
        messages=[
            message(4, 2, "user", "go"),
            message(1, 1, "user", "hi"),
            message(6, 2, "assistant", "done"),
        ],
        tool_calls=[TOOL_CALL],
        model_calls=[MODEL_CALL],
        iterations=[
            {"step": 1, "traceId": "t1", "startTime": "2026-05-01T12:00:00+00:00", "endTime": None},
            {"step": 3, "traceId": "", "startTime": None, "endTime": None},
        ],
    )


def test_a_stored_session_is_seen_in_the_order_of_its_events():
    seen = evidence_of(SESSION, stored())  # type: ignore[arg-type]

    assert [trace.id for trace in seen.traces] == ["t1", "turn-2", "turn-3"]
    assert [len(trace.happened) for trace in seen.traces] == [2, 2, 0]
    assert [(used.call_id, used.success, used.args) for used in seen.tool_calls] == [
        ("call-3", False, {"a": 1})
    ]
    assert (seen.session_id, seen.tools) == ("s1", [{"name": "bash"}])
    known = {"job": "coding", "agent": "amp", "model": "m", "status": "fail", "runId": "run", "name": "n"}
    assert seen.attributes == known | {"id": "s1"}
    assert evidence_of(SESSION | {"externalId": "outside"}, stored()).session_id == "outside"  # type: ignore[operator]


def test_a_stored_session_is_the_record_it_was_made_from():
    record = session_of_rows(SESSION, stored(), [])  # type: ignore[arg-type]

    assert (record.external_id, record.source, record.is_stand_in, record.notes) == (
        "s1",
        "coding",
        True,
        ["seen"],
    )
    assert record.tools == [{"name": "bash"}, 7]
    assert [step.trace_id for step in record.steps] == ["t1", "turn-2", "turn-3"]
    assert [type(timed.event).__name__ for step in record.steps for timed in step.events] == [
        *("Message", "ToolCall", "Message", "ModelCall", "Message")
    ]
    assert record.steps[0].started_at is not None and record.steps[1].started_at is None
    assert record.steps[1].events[1].event.call_id == "call-5"
    assert model_call_of(MODEL_CALL) == ModelCall(  # type: ignore[arg-type]
        model="m",
        provider="p",
        usage=Usage(input_tokens=1, cached_tokens=2, output_tokens=3, reasoning_tokens=4),
        cost_usd=0.5,
        price_source="plan",
        latency_ms=6.0,
        waiting_ms=7.0,
        status="ok",
    )


@pytest.mark.parametrize(
    ("factors", "task", "left"),
    [
        ({"task": "sum", "agent": "amp", "mood": "calm"}, "sum", {"mood": "calm"}),
        ({"scenario": "market", "model": "m"}, "market", {"scenario": "market"}),
        ({"n": 3}, "the prompt", {}),
    ],
)
def test_the_task_of_a_session_is_that_of_its_item(factors, task, left):
    item = {"factors": json.dumps(factors), "prompt": "the prompt", "repeat": 4}
    named = with_item(session(), item)  # type: ignore[arg-type]
    assert (named.task, named.repeat, named.factors) == (task, 4, left)


def test_stored_json_of_another_kind_is_empty():
    assert parsed('{"a": 1}', dict) == {"a": 1}
    assert parsed("[1]", dict) == {} and parsed("{", list) == [] and parsed("[" * 100_000, list) == []


def test_the_tools_of_a_request_are_read_from_any_usual_form():
    schema = {"type": "object"}
    request = {
        "tools": [
            {"type": "function", "function": {"name": "a", "description": "does a", "parameters": schema}},
            {"name": "b", "input_schema": schema},
            {"name": ""},
            {"function": 7},
            "c",
        ]
    }
    assert tools_of_request(json.dumps(request)) == [
        {"name": "a", "description": "does a", "parameters": schema},
        {"name": "b", "description": "", "parameters": schema},
    ]
    for nothing in ("", "[]", '{"tools": {"name": "x"}}', '{"tools": null}'):
        assert tools_of_request(nothing) == []


def test_tools_are_those_of_the_session_or_of_its_first_request_if_it_called_any(proctor_store):
    own, asked = [{"name": "own"}], json.dumps({"tools": [{"name": "asked"}]})
    writer = proctor_store.writer()
    for session_id, tools, calls in (("a", own, 1), ("b", [], 1), ("c", [], 0)):
        recorder = stocked.session(writer, session_id)
        recorder.record_tools(tools)
        recorder.record(ModelCall(model="m", request=asked))
        for _ in range(calls):
            recorder.record(ToolCall(name="own"))
    writer.close()
    found = {each: proctor_store.read.evidence(each).tools for each in "abc"}
    assert {each: [tool["name"] for tool in tools] for each, tools in found.items()} == {
        "a": ["own"],
        "b": ["asked"],
        "c": [],
    }


def test_messages_and_tool_calls_of_a_turn_are_seen_in_the_order_of_their_positions():
    rows = rows_of(
        messages=[
            message(4, 1, "assistant", "done"),
            message(1, 1, "user", "hi"),
            message(5, 2, "user", "go"),
        ],
        tool_calls=[TOOL_CALL | {"position": 6, "step": 2}, TOOL_CALL],
    )
    seen = evidence_of(SESSION, rows)  # type: ignore[arg-type]
    order = [[type(event).__name__ for event in trace.happened] for trace in seen.traces]
    assert order == [["Message", "ToolCall", "Message"], ["Message", "ToolCall"]]
    assert [trace.prompt for trace in seen.traces] == ["hi", "go"]
    assert seen.traces[0].answer == "done"
