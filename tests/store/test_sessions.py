"""Sessions as they come back from a store, and as evaluators see them."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

import stocked
from databases import query
from proctor.session import Event, Message, ModelCall, Session, Step, TimedEvent, ToolCall, Usage
from proctor.store.sessions import evidence_of_session, tools_of_request
from stocked import LONG, NOW
from whole_events import CALL, SCORE, TOOL_CALL, whole_session

DATABASES = ["sqlite"]


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
        "one",
        "two",
        "a",
        "three",
        "b",
        "four",
        "c",
    ]
    assert seen.model_calls == [call]
    assert (seen.session_id, seen.system_prompt) == ("outside", "Be brief.")
    known = {"agent": "amp", "source": "phoenix", "status": "success"}
    assert seen.attributes == known | {"model": "n", "x": 1}


def test_a_trace_without_prompt_or_answer_has_none():
    seen = evidence_of_session(session(("t", [said("assistant", "hello")]), ("u", [])))
    assert [(trace.prompt, trace.answer) for trace in seen.traces] == [("", "hello"), ("", "")]
    assert seen.system_prompt == ""


def timed(number: int, *events: Event) -> Step:
    """A step of ten seconds, with an event in each."""
    moments = [NOW + timedelta(seconds=10 * number + second) for second in range(11)]
    happened = [TimedEvent(event=event, at=at) for event, at in zip(events, moments[1:], strict=False)]
    return Step(trace_id=f"t{number}", events=happened, started_at=moments[0], finished_at=moments[10])


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
def test_a_session_comes_back_from_the_store_as_the_record_it_was_made_from(store):
    used = replace(TOOL_CALL, success=False, result=LONG)
    # What only sessions of our own have is not part of the record.
    call = replace(CALL, price={}, request="", response="", speaker="", purpose="")
    score = replace(SCORE, explanation=LONG, votes=(), ignored=(), judged_session="")
    tools = [{"name": "bash", "description": LONG}]
    steps = [timed(0, said("user", "hi"), used, said("assistant", LONG)), timed(1, said("user", "go"), call)]
    end = NOW + timedelta(seconds=20)
    record = whole_session(finished_at=end, steps=steps, tools=tools, scores=[score])
    session_id = store.save_imported(record, NOW)

    assert store.read.recorded(session_id) == record
    seen, expected = store.read.evidence(session_id), evidence_of_session(record)
    assert (seen.traces, seen.model_calls) == (expected.traces, expected.model_calls)
    assert (seen.session_id, seen.tools) == ("outside", tools)
    assert seen.attributes == {**expected.attributes, "job": "imported", "name": "A title", "id": session_id}
    # Events without an id or a trace get one, and one that was written late is seen in its place.
    query(store, 'UPDATE "tool_calls" SET "callId" = \'\'')
    query(store, 'UPDATE "model_calls" SET "callId" = \'\'')
    query(store, 'UPDATE "iterations" SET "traceId" = \'\'')
    query(store, 'UPDATE "messages" SET "position" = 9 WHERE "position" = 1')
    first, second = store.read.recorded(session_id).steps
    assert [type(each.event).__name__ for each in first.events] == ["ToolCall", "Message", "Message"]
    assert [second.events[1].event.call_id, second.trace_id] == ["call-5", "turn-2"]
    traces = store.read.evidence(session_id).traces
    assert [(trace.id, trace.prompt, trace.answer) for trace in traces] == [
        ("turn-1", "hi", LONG),
        ("turn-2", "go", ""),
    ]
    assert traces[0].tool_calls == [replace(used, call_id="call-2")]
    changed = '"toolsJsonBlob" = NULL, "toolsJson" = \'[7, {"name": "b"}]\', "attributesJson" = \'[]\''
    query(store, f'UPDATE "sessions" SET {changed}')
    assert store.read.evidence(session_id).tools == [{"name": "b"}], "JSON of another kind is empty"


@pytest.mark.parametrize(
    ("factors", "task", "left"),
    [
        ({"task": "sum", "agent": "amp", "mood": "calm"}, "sum", {"mood": "calm"}),
        ({"scenario": "market", "model": "m"}, "market", {"scenario": "market"}),
        ({}, "question 0", {}),
    ],
)
def test_the_task_of_a_recorded_session_is_that_of_its_item_in_its_run(proctor_store, factors, task, left):
    (item,) = stocked.items(1, factors=factors, repeat=4)
    row = {"createdAt": stocked.at(0), "job": "coding", "status": "running"}
    for run_id in ("run", "other"):
        proctor_store.create_batch(row | {"runId": run_id}, [item])
    writer = proctor_store.writer()
    for name, run_id, item_id in (("s1", "run", item.id), ("s2", "run", "gone"), ("s3", "", None)):
        recorder = stocked.session(writer, name, run_id, item_id)
        recorder.end("success", "completed", "", work_seconds=1.0, waiting_seconds=0.0)
    writer.close()
    recorded = [proctor_store.read.recorded(name) for name in ("s1", "s2", "s3")]
    assert [(each.external_id, each.source, each.task, each.factors) for each in recorded] == [
        ("s1", "coding", task, left),
        ("s2", "coding", "", {}),
        ("s3", "coding", "", {}),
    ]
    assert recorded[0].repeat == 4


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
