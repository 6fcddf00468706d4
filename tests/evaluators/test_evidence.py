"""What evaluators see of a session is made from its rows, whatever job they came from."""

from datetime import UTC, datetime

import pytest

from proctor.errors import NotFound
from proctor.score import Score
from proctor.session import Iteration, Message, ModelCall, ToolCall, Usage
from proctor.store import Recorder
from proctor.store.annotations import Label

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def record(store, *events, session_id="abc123", scores=(), **columns):
    row = {"job": "coding", "status": "running", "startedAt": "2026-01-02T12:00:00.000Z", **columns}
    writer = store.writer()
    recorder = Recorder(writer, session_id, row, lambda: NOON)
    for event in events:
        recorder.record(event)
    for score in scores:
        recorder.score(score)
    recorder.end("success", "completed", "", work_seconds=1.0, waiting_seconds=0.0)
    writer.close()


def said(role, text):
    return Message(role=role, content=text)


def test_a_step_is_a_turn_with_what_was_asked_done_and_answered(store):
    look = ToolCall(name="look", args={"at": "x"}, success=True, result="y" * 10_000)
    record(
        store,
        said("system", "Be brief."),
        said("user", "Look."),
        said("assistant", "I look."),
        look,
        said("assistant", "It is y."),
        Iteration(),
        said("user", "Again."),
        ToolCall(name="look", call_id="span-7"),
        said("assistant", "Still y."),
        Iteration(trace_id="t" * 32),
    )

    evidence = store.read.evidence("abc123")

    first, second = evidence.traces
    assert (first.id, first.prompt, first.answer) == ("turn-1", "Look.", "It is y.")
    assert (second.id, second.prompt, second.answer) == ("t" * 32, "Again.", "Still y.")
    assert [type(event).__name__ for event in first.events] == ["Message"] * 3 + ["ToolCall", "Message"]
    assert first.tool_calls[0].args == {"at": "x"} and first.tool_calls[0].result == "y" * 10_000
    assert [call.call_id for call in evidence.tool_calls] == ["call-4", "span-7"]
    assert (evidence.session_id, evidence.system_prompt) == ("abc123", "Be brief.")
    assert evidence.attributes["job"] == "coding"


def test_a_turn_that_was_cut_off_is_a_turn_too(store):
    record(store, said("user", "One."), Iteration(), said("user", "Two."))

    assert [trace.prompt for trace in store.read.evidence("abc").traces] == ["One.", "Two."]


def test_the_tools_of_an_agent_of_ours_are_read_from_its_first_request(store):
    request = '{"tools": [{"type": "function", "function": {"name": "look", "description": "looks"}}]}'
    call = ModelCall(model="m", usage=Usage(input_tokens=3), request=request)
    record(store, said("user", "Go."), call, ToolCall(name="look"))

    evidence = store.read.evidence("abc123")

    assert evidence.tools == [{"name": "look", "description": "looks", "parameters": {}}]
    assert evidence.model_calls[0].usage.input_tokens == 3 and evidence.model_calls[0].request == ""


def test_a_session_that_is_not_there_is_said(store):
    with pytest.raises(NotFound):
        store.read.evidence("nope")


def test_votes_are_kept_with_their_score(store):
    record(store, said("user", "Hi"), scores=[Score(evaluator="e", value=0.5, votes=(1.0, 0.0, "Yes"))])

    (row,) = store.read.of_session("scores", "abc123")

    assert row["votes"] == '[1.0, 0.0, "Yes"]'


def test_labels_go_with_the_batch_their_session_belongs_to(store):
    record(store, said("user", "Hi"), runId="run-1")
    store.save_label(Label(session_id="abc123", evaluator="e", who="ana", label="Yes"), NOON)

    store.delete_batch("run-1")

    assert store.labels() == []
