"""What happened in an attempt, as rows: in order, summed up, and safe whatever an agent says."""

import json
import math
from pathlib import Path

import pytest
from stocked import session

from databases import query
from proctor.score import Score
from proctor.secrets import redactor
from proctor.session import (
    Intervention,
    Iteration,
    Merge,
    Message,
    Metric,
    ModelCall,
    Note,
    ToolCall,
    Usage,
    Workspace,
)
from proctor.store import Store

ENDED = {"work_seconds": 1.0, "waiting_seconds": 0.0}
SURROGATE = "half \ud800 of a pair"
HUGE = 10**30


@pytest.fixture
def writer(store):
    opened = store.writer()
    yield opened
    opened.close()


def rows(store, writer, table, session_id="s1"):
    writer.flush().result(10)
    return store.read.of_session(table, session_id)


def the_session(store, writer, session_id="s1"):
    writer.flush().result(10)
    return store.read.session(session_id)


def test_events_of_all_kinds_share_one_running_number(store, writer):
    recorder = session(writer, "s1")
    recorder.record(Message(role="user", content="Fix it."))
    recorder.record(ModelCall(model="m"))
    recorder.record(ToolCall(name="edit"))
    recorder.record(Metric(name="trust", value=0.5))
    recorder.record(Message(role="assistant", content="Done."))
    recorder.score(Score(evaluator="tidy", value=1.0))
    recorder.record(Merge(base_branch="main", result="success"))

    tables = ("messages", "model_calls", "tool_calls", "metrics", "scores", "merge_history")
    found = sorted((row["position"], table) for table in tables for row in rows(store, writer, table))
    assert found == [
        (1, "messages"),
        (2, "model_calls"),
        (3, "tool_calls"),
        (4, "metrics"),
        (5, "messages"),
        (6, "scores"),
        (7, "merge_history"),
    ]


def test_a_session_ends_with_the_sums_of_its_calls(store, writer):
    recorder = session(writer, "s1")
    usage = Usage(input_tokens=10, cached_tokens=4, output_tokens=3, reasoning_tokens=2)
    for cost in (0.5, 0.25, None):
        recorder.record(ModelCall(model="m", usage=usage, cost_usd=cost))
    recorder.record(ToolCall(name="run"))
    recorder.record(Intervention(kind="question", text="May I?"))
    recorder.end("success", "completed", "", work_seconds=3.5, waiting_seconds=1.5)

    found = the_session(store, writer)
    assert {name: found[name] for name in ("promptTokens", "cachedTokens", "completionTokens")} == {
        "promptTokens": 30,
        "cachedTokens": 12,
        "completionTokens": 9,
    }
    assert (found["reasoningTokens"], found["totalTokens"], found["costUsd"]) == (6, 39, 0.75)
    assert (found["modelCalls"], found["unpricedCalls"], found["toolCalls"]) == (3, 1, 1)
    assert (found["interventions"], json.loads(found["notes"])) == (1, ["question: May I?"])
    assert (found["workSeconds"], found["waitingSeconds"]) == (3.5, 1.5)


def test_a_session_whose_calls_have_no_price_has_no_cost_rather_than_none_to_pay(store, writer):
    recorder = session(writer, "s1")
    recorder.record(ModelCall(model="m", usage=Usage(input_tokens=5)))
    recorder.end("success", "completed", "", **ENDED)

    assert the_session(store, writer)["costUsd"] is None


def test_each_step_has_its_own_sums_and_its_own_events(store, writer):
    recorder = session(writer, "s1")
    for tokens in (10, 20):
        recorder.record(Message(role="assistant", content="…"))
        recorder.record(ModelCall(model="m", usage=Usage(input_tokens=tokens), cost_usd=0.1))
        recorder.record(Iteration(test_result="pass", test_exit_code=0, changed_files=1, exit_code=0))

    found = rows(store, writer, "iterations")
    assert [(row["step"], row["promptTokens"], row["costUsd"]) for row in found] == [
        (1, 10, 0.1),
        (2, 20, 0.1),
    ]
    assert [row["step"] for row in rows(store, writer, "messages")] == [1, 2]


def test_long_text_is_kept_once_however_often_it_is_said(store, writer):
    text = "a long tool result\n" * 1000
    for name in ("s1", "s2"):
        recorder = session(writer, name)
        recorder.record(Message(role="tool", content=text))
        recorder.record(ToolCall(name="read", args={"text": text}, result=text))
    writer.flush().result(10)

    assert {row["result"] for name in ("s1", "s2") for row in rows(store, writer, "tool_calls", name)} == {
        text
    }
    assert [row["content"] for row in rows(store, writer, "messages")] == [text]
    assert json.loads(rows(store, writer, "tool_calls")[0]["argsJson"]) == {"text": text}
    kept = query(store, 'SELECT * FROM "blobs"')
    assert len(kept) == 2
    assert all(len(row["data"]) < row["size"] / 10 for row in kept)


@pytest.mark.parametrize("text", ["nul \0 inside", SURROGATE, "\ud83d", "ünïcödé \U0001f600 \x07 \u202e"])
def test_hostile_text_is_kept_wherever_it_occurs(store, writer, text):
    recorder = session(writer, "s1")
    recorder.record(Message(role="assistant", content=text, name=text))
    recorder.record(ToolCall(name=text, args={"text": text, text: [text]}, result=text + "x" * 5000))
    recorder.record(
        ModelCall(model=text, provider=text, error=text, request=text, response=text, status=text)
    )
    recorder.record(Metric(name=text, value=text))
    recorder.record(Note(text=text))
    recorder.record(Iteration(output=text, test_output=text, model=text))
    recorder.record(Workspace(name=text, branch=text, thread=text))
    recorder.record(Merge(base_branch=text, result="error", message=text, error=text, conflict_files=(text,)))
    recorder.score(Score(evaluator=text, label=text, explanation=text, error=text, target=text))
    recorder.end("error", "internal_error", text, **ENDED)

    kept = text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    assert rows(store, writer, "messages")[0]["content"] == kept
    assert the_session(store, writer)["error"] == kept
    assert rows(store, writer, "scores")[0]["target"] == kept


def test_ten_megabytes_are_kept_whole_in_a_transcript_and_short_in_a_line(store, writer):
    text = "0123456789" * 1_000_000
    recorder = session(writer, "s1")
    recorder.record(Message(role="assistant", content=text))
    recorder.record(ToolCall(name=text))
    recorder.record(Note(text=text))
    recorder.end("error", "internal_error", text, **ENDED)

    assert rows(store, writer, "messages")[0]["content"] == text
    assert len(rows(store, writer, "tool_calls")[0]["toolName"]) < 10_000
    found = the_session(store, writer)
    assert len(found["error"]) < 10_000
    assert "characters left out" in found["error"]
    assert len(found["notes"]) < 10_000


def test_an_agent_that_asks_a_thousand_times_is_counted_and_its_notes_stay_few(store, writer):
    recorder = session(writer, "s1")
    for number in range(1000):
        recorder.record(Intervention(kind="permission", text=f"may I? {number}"))
    recorder.end("fail", "agent_failed", "", **ENDED)

    found = the_session(store, writer)
    assert found["interventions"] == 1000
    assert len(json.loads(found["notes"])) == 100


@pytest.mark.parametrize("claimed", [HUGE, -HUGE, math.nan, math.inf, -1])
def test_token_counts_that_cannot_be_are_kept_as_something_that_adds_up(store, writer, claimed):
    for name in ("s1", "s2"):
        recorder = session(writer, name)
        for _ in range(3):
            usage = Usage(input_tokens=claimed, cached_tokens=claimed, output_tokens=claimed)
            recorder.record(ModelCall(model="m", usage=usage))
        recorder.record(Iteration())
        recorder.end("success", "completed", "", **ENDED)
    writer.flush().result(10)

    (found,) = query(
        store, 'SELECT SUM("totalTokens") AS "n", MIN("promptTokens") AS "least" FROM "sessions"'
    )
    assert found["n"] >= 0
    assert found["least"] >= 0


@pytest.mark.parametrize("claimed", [math.nan, math.inf, -math.inf, 10**400, -5.0])
def test_a_cost_that_cannot_be_is_no_cost(store, writer, claimed):
    recorder = session(writer, "s1")
    recorder.record(ModelCall(model="m", cost_usd=0.5, latency_ms=claimed))
    recorder.record(ModelCall(model="m", cost_usd=claimed))
    recorder.record(ToolCall(name="t", duration_ms=claimed))
    recorder.record(Metric(name="m", value=claimed))
    recorder.end("success", "completed", "", **ENDED)

    assert recorder.totals.cost_usd == 0.5
    assert the_session(store, writer)["unpricedCalls"] == 1


def test_arguments_that_have_no_json_do_not_end_the_attempt(store, writer):
    circle: dict[str, object] = {}
    circle["self"] = circle
    deep: object = []
    for _ in range(100_000):
        deep = [deep]
    recorder = session(writer, "s1")
    for args in (circle, {"deep": deep}, {(1, 2): "a pair"}):
        recorder.record(ToolCall(name="odd", args=args))

    assert [json.loads(row["argsJson"]) for row in rows(store, writer, "tool_calls")] == [
        {"unreadable": True}
    ] * 3


def test_a_metric_is_a_number_or_a_label_or_missing(store, writer):
    recorder = session(writer, "s1")
    for value in (0.25, 3, "calm", None):
        recorder.record(Metric(name="mood", value=value, step=7))

    found = [(row["value"], row["label"], row["step"]) for row in rows(store, writer, "metrics")]
    assert found == [(0.25, None, 7), (3.0, None, 7), (None, "calm", 7), (None, None, 7)]


def test_secrets_are_blotted_out_of_everything_that_is_kept(tmp_path: Path):
    secret = 'sk-live-"quoted"-123456789'
    with Store(str(tmp_path / "proctor.db")) as store:
        writer = store.writer()
        blot = redactor({"OPENAI_API_KEY": secret, "PATH": "/usr/bin"})
        recorder = session(writer, "s1", redact=blot)
        said = f"the key is {secret}!"
        recorder.record(Message(role="assistant", content=said, name=said))
        recorder.record(ToolCall(name=said, args={"key": secret}, result=said))
        recorder.record(ModelCall(model=said, provider=said, error=said, request=said, response=said))
        recorder.record(Metric(name=said, value=said))
        recorder.record(Note(text=said))
        recorder.record(Iteration(output=said, test_output=said))
        recorder.record(Workspace(name=said, branch=said))
        merge = Merge(base_branch="main", result="error", message=said, error=said, conflict_files=(secret,))
        recorder.record(merge)
        recorder.score(Score(evaluator=said, label=said, explanation=said, error=said, target=said))
        recorder.end("error", "internal_error", "x" * 4090 + said + "x" * 9000, **ENDED)
        writer.close()

        (message,) = store.read.of_session("messages", "s1")
        assert message["content"] == "the key is [secret]!"
    written = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"sk-live" not in written
