"""What happened in an attempt, as rows: in order, summed up, and safe whatever an agent says."""

import hashlib
import json
import math
import re
import zlib
from datetime import timedelta
from pathlib import Path

import pytest

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
from proctor.store.tables import MOST
from stocked import NOW, at, session
from waiting import TIME_LIMIT_SECONDS
from whole_events import CALL, SCORE, TOOL_CALL

DATABASES = ["sqlite"]
ENDED = {"work_seconds": 1.0, "waiting_seconds": 0.0}
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


def record_everywhere(recorder, text):
    """Events and a score with this text wherever there may be one; then the session ends with it."""
    merge = Merge(base_branch=text, result="error", message=text, error=text, conflict_files=(text,))
    for event in (
        Message(role="assistant", content=text, name=text),
        ToolCall(name=text, args={"text": text, text: [text]}, result=text + "x" * 5000),
        ModelCall(model=text, provider=text, error=text, request=text, response=text, status=text),
        Metric(name=text, value=text),
        Note(text=text),
        Iteration(output=text, test_output=text, model=text),
        Workspace(name=text, branch=text, thread=text),
        merge,
    ):
        recorder.record(event)
    recorder.score(Score(evaluator=text, label=text, explanation=text, error=text, target=text))
    recorder.end("error", "internal_error", text, **ENDED)


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
def test_hostile_text_is_kept_wherever_it_occurs(store, writer):
    texts = ["nul \0 inside", "half \ud800 of a pair", "\ud83d", "ünïcödé \U0001f600 \x07 \u202e"]
    for number, text in enumerate(texts):
        record_everywhere(session(writer, f"s{number}"), text)
    for number, text in enumerate(texts):
        kept = text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
        assert rows(store, writer, "messages", f"s{number}")[0]["content"] == kept
        assert the_session(store, writer, f"s{number}")["error"] == kept
        assert rows(store, writer, "scores", f"s{number}")[0]["target"] == kept


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
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


def test_secrets_are_blotted_out_of_everything_that_is_kept(tmp_path: Path):
    secret = 'sk-live-"quoted"-123456789'
    with Store(str(tmp_path / "proctor.db")) as store:
        writer = store.writer()
        blot = redactor({"OPENAI_API_KEY": secret, "PATH": "/usr/bin"})
        record_everywhere(session(writer, "s1", redact=blot), f"the key is {secret}!")
        session(writer, "s2", redact=blot).end(
            "error", "internal_error", "x" * 4090 + secret + "x" * 9000, **ENDED
        )
        writer.close()

        (message,) = store.read.of_session("messages", "s1")
        assert message["content"] == "the key is [secret]!"
    written = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"sk-live" not in written


def test_a_text_of_4096_characters_stays_in_its_row_and_a_longer_one_is_a_blob():
    assert split_long_text("x" * 4096) == ("x" * 4096, None)
    inline, blob = split_long_text("é" * 4097)
    assert inline == "" and blob is not None
    digest, size, data = blob
    assert (digest, size) == (hashlib.sha256(("é" * 4097).encode()).hexdigest(), 2 * 4097)
    assert zlib.decompress(data).decode() == "é" * 4097


def values(row, columns):
    return tuple(row[name] for name in columns.split())


def in_words(row, like):
    """The columns of a row that another text names, in the same words."""
    return " ".join(f"{name}={row[name]}" for name in re.findall(r"(\w+)=", like))


def recorded(writer, *events, times=(0,)):
    """A session whose clock shows these seconds after its start, and then the last of them."""
    left = list(times)

    def now():
        return NOW + timedelta(seconds=left.pop(0) if len(left) > 1 else left[0])

    row = {"runId": "run", "job": "coding", "status": "running", "startedAt": at(0)}
    recorder = Recorder(writer, "s1", row, now)
    for event in events:
        recorder.score(event) if isinstance(event, Score) else recorder.record(event)
    return recorder


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
def test_every_value_of_an_event_is_in_its_column_and_all_share_one_running_number(store, writer):
    metrics = [(2, 7), ("calm", 8), (None, 9), (True, 10)]
    recorded(
        writer,
        CALL,
        Message(role="user", content="hi", name="ann"),
        TOOL_CALL,
        SCORE,
        *(Metric(name="mood", value=value, step=step) for value, step in metrics),
        Merge(base_branch="main", mode="squash", result="conflict", message="m", conflict_files=("a.py",)),
    )

    shown = f"position=1 step=1 timestamp={at(0)} provider=p model=m promptTokens=10 cachedTokens=2 "
    shown += "completionTokens=5 reasoningTokens=1 costUsd=0.5 priceSource=plan latencyMs=7.0 waitingMs=8.0 "
    shown += "status=ok error=none request=asked response=answered callId=c1 speaker=ann purpose=turn"
    (call,) = rows(store, writer, "model_calls")
    assert in_words(call, shown) == shown
    assert call["price"] == '{"input": 1.0}'
    shown = f"position=2 step=1 timestamp={at(0)} role=user name=ann content=hi"
    (message,) = rows(store, writer, "messages")
    assert in_words(message, shown) == shown
    shown = f"position=3 step=1 timestamp={at(0)} toolName=bash success=1 durationMs=3.0 result=r callId=c"
    (tool,) = rows(store, writer, "tool_calls")
    assert in_words(tool, shown) == shown
    assert tool["argsJson"] == '{"a": 1}'
    shown = f"position=4 timestamp={at(0)} evaluator=tidy evaluatorDigest=d level=session target=t value=0.5 "
    shown += "label=good explanation=why error=e costUsd=0.25 dimension=x errorCode=ec inputTokens=3 "
    shown += 'outputTokens=4 ignored=["i"] scoredSessionId=j'
    (score,) = rows(store, writer, "scores")
    assert in_words(score, shown) == shown
    assert json.loads(score["votes"]) == ["yes", 0.5, True]
    found = [values(row, "position step value label") for row in rows(store, writer, "metrics")]
    assert found == [(5, 7, 2.0, None), (6, 8, None, "calm"), (7, 9, None, None), (8, 10, 1.0, None)]
    shown = 'position=9 baseBranch=main mode=squash result=conflict squashMessage=m conflictFiles=["a.py"]'
    (merge,) = rows(store, writer, "merge_history")
    assert in_words(merge, shown) == shown


def test_a_step_has_its_own_sums_events_and_times_and_the_next_begins_anew(store, writer):
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
    recorder = recorded(writer, CALL, CALL, step, CALL, step, times=(0, 1, 2, 3, 4, 5, 6))
    recorder.begin_step()
    recorder.record(step)

    first, second, third = rows(store, writer, "iterations")
    shown = (
        f"step=1 startTime={at(0)} endTime={at(2)} commitSha=sha changedFiles=1 linesAdded=2 linesRemoved=3 "
    )
    shown += "testResult=fail testExitCode=4 testDurationMs=5.0 model=m exitCode=6 promptTokens=20 "
    shown += "completionTokens=10 totalTokens=30 costUsd=1.0 output=built traceId=t"
    assert in_words(first, shown) == shown
    assert first["testOutput"] == "3 failed"
    assert values(second, "step startTime endTime costUsd") == (2, at(2), at(4), 0.5)
    assert values(third, "step startTime endTime totalTokens costUsd") == (3, at(5), at(6), 0, None)
    assert [row["step"] for row in rows(store, writer, "model_calls")] == [1, 1, 2]
    assert (recorder.totals.cost_usd, recorder.totals.usage.total_tokens) == (1.5, 45)


def test_a_session_ends_with_the_sums_of_its_calls_and_its_times(store, writer):
    unpriced = ModelCall(model="other", usage=Usage(output_tokens=3))
    refused = ModelCall(model="m", status="rate_limit")
    asked = Intervention(kind="question", text="How?")
    recorder = recorded(writer, CALL, CALL, unpriced, refused, TOOL_CALL, asked, Note(text="odd"))
    assert recorder.main_model == "m"
    phases = {"setup": 1.0}
    recorder.end(
        "fail",
        "loop",
        "it fell",
        work_seconds=3.0,
        waiting_seconds=4.0,
        phase_seconds=phases,
        answered_model="n",
    )

    found = the_session(store, writer)
    columns = (
        "status endReason error workSeconds waitingSeconds setupSeconds finishedAt answeredModel costUsd"
    )
    assert values(found, columns) == ("fail", "loop", "it fell", 3.0, 4.0, 1.0, at(0), "n", 1.0)
    columns = "promptTokens cachedTokens completionTokens reasoningTokens totalTokens modelCalls toolCalls"
    assert values(found, columns + " interventions unpricedCalls") == (20, 4, 13, 2, 33, 4, 1, 1, 1)
    assert json.loads(found["notes"]) == ["question: How?", "odd"]
    other = session(writer, "s2")
    assert other.main_model == ""
    other.record(unpriced)
    other.end("success", "completed", "", **ENDED)
    assert the_session(store, writer, "s2")["costUsd"] is None, "no price is not no cost"


def test_a_clock_that_is_set_back_is_noted_once_and_no_event_is_before_another(store, writer):
    message = Message(role="user", content="hi")
    recorded(writer, message, message, message, message, message, times=(-1, 2, 1, 0.5, 3))
    times = [row["timestamp"] for row in rows(store, writer, "messages")]
    assert times == [at(second) for second in (0, 2, 2, 2, 3)]
    notes = json.loads(the_session(store, writer)["notes"])
    assert [note.partition(":")[0] for note in notes] == ["the clock was set back to 2026-03-01T11"]


def test_what_is_known_of_a_workspace_is_added_to_its_session(store, writer):
    known = {"name": "n", "branch": "b", "worktree": "w", "repo": "r", "base_branch": "main", "base_sha": "s"}
    known |= {"agent_version": "1", "thread": "t", "sandbox": "x", "baseline": "pass"}
    recorded(writer, Workspace(**known), Workspace(branch="c"), Workspace())
    columns = "name branch worktree repo baseBranch baseSha agentVersion thread sandbox baseline"
    found = values(the_session(store, writer), columns)
    assert found == ("n", "c", "w", "r", "main", "s", "1", "t", "x", "pass")


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
def test_token_counts_that_cannot_be_are_kept_as_something_that_adds_up(store, writer):
    claims = {HUGE: MOST, -HUGE: 0, math.nan: 0, math.inf: 0, -1: 0, 2.9: 2}
    for number, claimed in enumerate(claims):
        others = {"cached_tokens": claimed, "reasoning_tokens": claimed, "output_tokens": claimed}
        for name, rest in (("a", {"output_tokens": 7}), ("b", others)):
            recorder = session(writer, f"{number}{name}")
            recorder.record(ModelCall(model="m", usage=Usage(input_tokens=claimed, **rest)))
            recorder.end("success", "completed", "", **ENDED)
    writer.flush().result(TIME_LIMIT_SECONDS)

    columns = '"promptTokens", "cachedTokens", "completionTokens", "reasoningTokens"'
    found = query(store, f'SELECT {columns} FROM "sessions" ORDER BY "id"')
    assert [tuple(row.values()) for row in found] == [
        row for kept in claims.values() for row in ((kept, 0, 7, 0), (kept, kept, kept, kept))
    ]
    total = query(store, 'SELECT SUM("promptTokens") AS "n" FROM "sessions"')
    assert total == [{"n": 2 * sum(claims.values())}]


@pytest.mark.parametrize("claimed", [math.nan, math.inf, -math.inf, 10**400, -5.0])
def test_a_cost_or_a_duration_that_cannot_be_is_unknown(store, writer, claimed):
    recorder = recorded(
        writer,
        ModelCall(model="m", cost_usd=0.5, latency_ms=claimed),
        ModelCall(model="m", cost_usd=claimed),
        ToolCall(name="t", duration_ms=claimed),
        Metric(name="m", value=claimed),
    )
    recorder.end("success", "completed", "", **ENDED)

    assert recorder.totals.cost_usd == 0.5
    assert the_session(store, writer)["unpricedCalls"] == 1


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
def test_true_and_false_are_numbers_however_many_there_are(store, writer):
    """PostgreSQL copies rows from eight on."""
    recorder = session(writer, "s1")
    for number in range(20):
        recorder.score(Score(evaluator=f"e{number}", value=number % 2 == 0))
    assert [row["value"] for row in rows(store, writer, "scores")] == [1.0, 0.0] * 10
