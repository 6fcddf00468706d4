"""What happened in an attempt, as rows: in order, summed up, and safe whatever an agent says."""

import hashlib
import json
import math
import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from stocked import NOW, at, session

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
from proctor.store import Recorder, Store
from proctor.store.recorder import split_long_text
from proctor.store.tables import COLUMNS
from waiting import TIME_LIMIT_SECONDS

ENDED = {"work_seconds": 1.0, "waiting_seconds": 0.0}
SURROGATE = "half \ud800 of a pair"
HUGE = 10**30


@pytest.fixture
def writer(store):
    opened = store.writer()
    yield opened
    opened.close()


def rows(store, writer, table, session_id="s1"):
    writer.flush().result(TIME_LIMIT_SECONDS)
    return store.read.of_session(table, session_id)


def the_session(store, writer, session_id="s1"):
    writer.flush().result(TIME_LIMIT_SECONDS)
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
    writer.flush().result(TIME_LIMIT_SECONDS)

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
    writer.flush().result(TIME_LIMIT_SECONDS)

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


class Collected:
    """Rows by table, each with the names of its columns; of sessions, the last values."""

    def __init__(self):
        self.tables, self.session = {}, {}

    def append(self, table, row):
        named = dict(zip(COLUMNS[table], row, strict=True))
        self.tables.setdefault(table, []).append(named)

    def add(self, table, key, row):
        assert (table, key) == ("sessions", ("s1",))
        self.session.update(row)

    change = add


def recorded(*events, times=(), started="2026-05-01T12:00:00.000Z"):
    """The rows of a session whose clock shows these seconds after its start, and then the last of them."""
    left = list(times) or [0]

    def now():
        seconds = left.pop(0) if len(left) > 1 else left[0]
        return datetime(2026, 5, 1, 12, 0, tzinfo=UTC) + timedelta(seconds=seconds)

    rows = Collected()
    recorder = Recorder(rows, "s1", {"startedAt": started}, now)
    for event in events:
        recorder.score(event) if isinstance(event, Score) else recorder.record(event)
    return recorder, rows


CALL = ModelCall(
    model="m",
    provider="p",
    usage=Usage(input_tokens=10, cached_tokens=2, output_tokens=5, reasoning_tokens=1),
    cost_usd=0.5,
    price={"input": 1.0},
    price_source="plan",
    latency_ms=7.0,
    waiting_ms=8.0,
    status="ok",
    error="none",
    request="asked",
    response="answered",
    call_id="c1",
    speaker="ann",
    purpose="turn",
)


def test_the_row_of_a_model_call_has_each_value_in_its_column():
    _, rows = recorded(CALL)
    (row,) = rows.tables["model_calls"]
    assert row == {
        "sessionId": "s1",
        "position": 1,
        "step": 1,
        "timestamp": "2026-05-01T12:00:00.000Z",
        "provider": "p",
        "model": "m",
        "promptTokens": 10,
        "cachedTokens": 2,
        "completionTokens": 5,
        "reasoningTokens": 1,
        "costUsd": 0.5,
        "priceSource": "plan",
        "price": '{"input": 1.0}',
        "latencyMs": 7.0,
        "waitingMs": 8.0,
        "status": "ok",
        "error": "none",
        "request": "asked",
        "requestBlob": None,
        "response": "answered",
        "responseBlob": None,
        "callId": "c1",
        "speaker": "ann",
        "purpose": "turn",
    }


def test_the_rows_of_messages_tools_scores_and_metrics_have_each_value_in_its_column():
    _, rows = recorded(
        Message(role="user", content="hi", name="ann"),
        ToolCall(name="bash", args={"a": 1}, success=True, duration_ms=3.0, result="r", call_id="c"),
        Score(
            evaluator="tidy",
            evaluator_digest="d",
            level="session",
            target="t",
            value=0.5,
            label="good",
            explanation="why",
            error="e",
            cost_usd=0.25,
            dimension="x",
            error_code="ec",
            input_tokens=3,
            output_tokens=4,
            votes=("yes", 0.5),
            ignored=("i",),
            judged_session="j",
        ),
        Metric(name="depth", value=2, step=7),
        Metric(name="mood", value="calm", step=8),
    )
    at = "2026-05-01T12:00:00.000Z"
    head = {"sessionId": "s1", "step": 1, "timestamp": at}
    assert rows.tables["messages"] == [
        {**head, "position": 1, "role": "user", "name": "ann", "content": "hi", "contentBlob": None}
    ]
    assert rows.tables["tool_calls"] == [
        {
            **head,
            "position": 2,
            "toolName": "bash",
            "argsJson": '{"a": 1}',
            "argsJsonBlob": None,
            "success": 1,
            "durationMs": 3.0,
            "result": "r",
            "resultBlob": None,
            "callId": "c",
        }
    ]
    assert rows.tables["scores"] == [
        {
            "sessionId": "s1",
            "position": 3,
            "timestamp": at,
            "evaluator": "tidy",
            "evaluatorDigest": "d",
            "level": "session",
            "target": "t",
            "value": 0.5,
            "label": "good",
            "explanation": "why",
            "explanationBlob": None,
            "error": "e",
            "costUsd": 0.25,
            "dimension": "x",
            "errorCode": "ec",
            "inputTokens": 3,
            "outputTokens": 4,
            "ignored": '["i"]',
            "judgedSessionId": "j",
            "votes": '["yes", 0.5]',
        }
    ]
    assert [tuple(row.values()) for row in rows.tables["metrics"]] == [
        ("s1", 4, 7, "depth", 2.0, None),
        ("s1", 5, 8, "mood", None, "calm"),
    ]


def test_the_row_of_a_step_has_its_sums_and_times_and_the_next_begins_anew():
    step = Iteration(
        commit_sha="sha",
        changed_files=1,
        lines_added=2,
        lines_removed=3,
        test_result="fail",
        test_exit_code=4,
        test_duration_ms=5.0,
        test_output="3 failed",
        model="m",
        exit_code=6,
        output="built",
        trace_id="t",
    )
    recorder, rows = recorded(CALL, CALL, step, CALL, step, step, times=(0, 1, 2, 3, 4, 5))
    first, second, third = rows.tables["iterations"]
    assert first == {
        "sessionId": "s1",
        "step": 1,
        "startTime": "2026-05-01T12:00:00.000Z",
        "endTime": "2026-05-01T12:00:02.000Z",
        "commitSha": "sha",
        "changedFiles": 1,
        "linesAdded": 2,
        "linesRemoved": 3,
        "testResult": "fail",
        "testExitCode": 4,
        "testDurationMs": 5.0,
        "testOutput": "3 failed",
        "testOutputBlob": None,
        "model": "m",
        "exitCode": 6,
        "promptTokens": 20,
        "completionTokens": 10,
        "totalTokens": 30,
        "costUsd": 1.0,
        "output": "built",
        "outputBlob": None,
        "traceId": "t",
    }
    assert (second["step"], second["startTime"], second["costUsd"]) == (2, first["endTime"], 0.5)
    assert (third["step"], third["totalTokens"], third["costUsd"]) == (3, 0, None)
    assert [row["step"] for row in rows.tables["model_calls"]] == [1, 1, 2]
    assert (recorder.totals.cost_usd, recorder.totals.model_calls) == (1.5, 3)
    assert recorder.totals.usage.total_tokens == 45


def test_the_end_of_a_session_has_sums_counts_and_times():
    unpriced = ModelCall(model="other", usage=Usage(output_tokens=3))
    refused = ModelCall(model="m", status="rate_limit")
    tool = ToolCall(name="bash")
    events = (CALL, unpriced, refused, tool, Intervention(kind="question", text="How?"), Note(text="odd"))
    recorder, rows = recorded(*events)
    recorder.end(
        "fail",
        "loop",
        "it fell",
        work_seconds=3.0,
        waiting_seconds=4.0,
        phase_seconds={"setup": 1.0},
        answered_model="n",
    )
    assert rows.session == {
        "id": "s1",
        "startedAt": "2026-05-01T12:00:00.000Z",
        "notes": '["question: How?", "odd"]',
        "status": "fail",
        "endReason": "loop",
        "error": "it fell",
        "workSeconds": 3.0,
        "finishedAt": "2026-05-01T12:00:00.000Z",
        "waitingSeconds": 4.0,
        "setupSeconds": 1.0,
        "answeredModel": "n",
        "promptTokens": 10,
        "cachedTokens": 2,
        "completionTokens": 8,
        "reasoningTokens": 1,
        "totalTokens": 18,
        "costUsd": 0.5,
        "modelCalls": 3,
        "toolCalls": 1,
        "interventions": 1,
        "unpricedCalls": 1,
    }
    assert recorder.main_model == "m"
    assert recorded()[0].main_model == ""


def test_a_clock_that_is_set_back_is_noted_once_and_no_event_is_before_another():
    message = Message(role="user", content="hi")
    _, rows = recorded(message, message, message, message, times=(2, 1, 0.5, 3))
    assert [row["timestamp"][17:19] for row in rows.tables["messages"]] == ["02", "02", "02", "03"]
    (note,) = json.loads(rows.session["notes"])
    assert note == "the clock was set back to 2026-05-01T12:00:01.000Z: times from then on are not exact"


def test_a_text_of_4096_characters_stays_in_its_row_and_a_longer_one_is_a_blob():
    assert split_long_text("x" * 4096) == ("x" * 4096, None)
    inline, blob = split_long_text("é" * 4097)
    assert inline == "" and blob is not None
    digest, size, data = blob
    assert (digest, size) == (hashlib.sha256(("é" * 4097).encode()).hexdigest(), 2 * 4097)
    assert zlib.decompress(data).decode() == "é" * 4097


def test_what_is_known_of_a_workspace_is_added_to_its_session():
    known = {"name": "n", "branch": "b", "worktree": "w", "repo": "r", "base_branch": "main", "base_sha": "s"}
    known |= {"agent_version": "1", "thread": "t", "sandbox": "x", "baseline": "pass"}
    _, rows = recorded(Workspace(**known), Workspace(branch="c"), Workspace())
    assert rows.session == {
        "id": "s1",
        "startedAt": "2026-05-01T12:00:00.000Z",
        "name": "n",
        "branch": "c",
        "worktree": "w",
        "repo": "r",
        "baseBranch": "main",
        "baseSha": "s",
        "agentVersion": "1",
        "thread": "t",
        "sandbox": "x",
        "baseline": "pass",
    }


@pytest.mark.parametrize("count", [1, 20])
def test_true_and_false_are_numbers_in_both_databases_however_many_there_are(store, writer, count):
    recorder = session(writer, "s1")
    for number in range(count):
        recorder.score(Score(evaluator=f"e{number}", value=number % 2 == 0, votes=(True, False)))
        recorder.record(Metric(name="ok", value=True))

    scores = rows(store, writer, "scores")
    assert [row["value"] for row in scores] == [float(number % 2 == 0) for number in range(count)]
    assert {row["value"] for row in rows(store, writer, "metrics")} == {1.0}


def test_a_step_begins_where_it_is_told_to(store):
    times = iter([NOW + timedelta(seconds=second) for second in (1, 5)])
    writer = store.writer()
    recorder = Recorder(
        writer,
        "s1",
        {"runId": "run", "job": "coding", "startedAt": at(0), "status": "running"},
        lambda: next(times),
    )
    recorder.begin_step()
    recorder.record(Iteration())
    writer.close()
    (row,) = store.read.of_session("iterations", "s1")
    assert (row["startTime"], row["endTime"]) == (at(1), at(5))


def test_a_first_event_is_not_before_the_start_of_its_session(store):
    writer = store.writer()
    row = {"runId": "run", "job": "coding", "startedAt": at(10), "status": "running"}
    Recorder(writer, "s1", row, lambda: NOW).record(Message(role="user", content="x"))
    writer.close()
    (message,) = store.read.of_session("messages", "s1")
    assert message["timestamp"] == at(10)
