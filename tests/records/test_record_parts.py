"""Parts of the readers of records: bounded files, endings, costs, and what tells one message from another."""

import io
import json
import zipfile
from pathlib import Path

import pytest
from backports import zstd

from proctor.errors import NotFound
from proctor.records import _reading, atif, find_kind, kind_names, mini_swe_agent, swe_agent, tau_bench
from proctor.records._reading import (
    TranscriptBuilder,
    ZipMembers,
    _unpacked,
    head_of,
    json_lines,
    load_json,
    place_of,
    read_session,
    unreadable,
)
from proctor.session import Message, ModelCall, Session, ToolCall


def events(transcript):
    """What was said and done, as short tuples."""
    found = []
    for step in transcript.steps:
        for timed in step.events:
            event = timed.event
            if isinstance(event, Message):
                found.append((event.role, event.content))
            elif isinstance(event, ToolCall):
                found.append((event.name, event.args, event.result))
            elif isinstance(event, ModelCall):
                found.append((event.model, event.cost_usd, event.usage.total_tokens))
    return found


def test_a_file_is_read_up_to_a_size(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(_reading, "MOST_BYTES", 1 << 20)
    path = tmp_path / "a.json"
    path.write_bytes(b'"' + b"x" * ((1 << 20) - 2) + b'"')
    assert len(load_json(path)) == (1 << 20) - 2
    path.write_bytes(b'"' + b"x" * ((1 << 20) - 1) + b'"')
    with pytest.raises(ValueError, match="it is larger than 1 MB"):
        load_json(path)
    for text, problem in ((" \n", "it is empty"), ("{", "it is not JSON")):
        path.write_text(text)
        with pytest.raises(ValueError, match=problem):
            load_json(path)
    assert head_of(path, (".txt",)) == head_of(tmp_path) == head_of(tmp_path / "none") == b""
    assert head_of(path, (".json",)) == b"{"


def test_a_line_that_breaks_off_at_the_end_is_unfinished(tmp_path: Path, monkeypatch):
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n\n{\n{"b"')
    lines = list(json_lines(path))
    assert [(line.number, line.value, bool(line.problem), line.is_unfinished) for line in lines] == [
        *((1, {"a": 1}, False, False), (3, None, True, False), (4, None, True, True)),
    ]
    monkeypatch.setattr(_reading, "MOST_BYTES", 4)
    path.write_text('{"b"')
    assert [line.is_unfinished for line in json_lines(path)] == [False]


def test_problems_are_one_line_and_name_their_part(tmp_path: Path):
    path = tmp_path / "a"
    assert unreadable(path, RecursionError()).problem == "it is nested too deeply"
    assert unreadable(path, FileNotFoundError(2, "No such file")).problem == "No such file"
    assert unreadable(path, ValueError()).problem == "ValueError"
    assert unreadable(path, "broken", "sample 1").problem == "sample 1: broken"
    empty = Session(external_id="x", source="s")
    assert read_session(path, lambda: empty).problem == "nothing was said or done in it"
    failed = Session(external_id="x", source="s", status="fail")
    assert read_session(path, lambda: failed) is failed
    assert place_of(Path("/x/run/task.json"), "task") == "run/task"
    assert place_of(Path("/x/run/task/a.json"), "task") == "run/task"
    assert place_of(Path("/a.json"), "task") == "task"


def test_data_of_several_frames_is_unpacked_up_to_a_size(monkeypatch):
    monkeypatch.setattr(_reading, "_CHUNK", 10)
    frames = zstd.compress(b"a" * 25) + zstd.compress(b"b" * 7)
    assert _unpacked(frames) == b"a" * 25 + b"b" * 7
    assert _unpacked(b"") == b""
    with pytest.raises(ValueError, match="it breaks off"):
        _unpacked(frames[:-5])
    with pytest.raises(ValueError, match="it cannot be unpacked"):
        _unpacked(b"no frame at all")
    monkeypatch.setattr(_reading, "MOST_BYTES", 20)
    assert len(_unpacked(zstd.compress(b"a" * 1000))) == 30


def test_members_of_a_zip_file_are_read_up_to_a_size(monkeypatch):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.json", '{"n": 1}')
        archive.writestr("b.json", json.dumps("x" * 100))
    members = ZipMembers(stream)
    assert (members.names, members.load("a.json")) == (["a.json", "b.json"], {"n": 1})
    monkeypatch.setattr(_reading, "MOST_BYTES", 102)
    assert members.load("b.json") == "x" * 100
    monkeypatch.setattr(_reading, "MOST_BYTES", 101)
    with pytest.raises(ValueError, match="larger than 0 MB when unpacked"):
        members.load("b.json")
    with pytest.raises(ValueError, match="it is not a readable zip file"):
        ZipMembers(io.BytesIO(b"none"))
    member = members._members["a.json"]
    assert members._raw(member) != b""
    member.flag_bits |= 1
    with pytest.raises(ValueError, match="it is encrypted"):
        members._raw(member)


def test_a_kind_that_is_misspelt_is_suggested():
    assert find_kind("codex").__name__.endswith(".codex")
    with pytest.raises(NotFound, match=r"no kind of record `codx`\nDid you mean `codex`\? There are: atif, "):
        find_kind("codx")
    with pytest.raises(NotFound, match=r"`q`\nThere are: "):
        find_kind("q")
    assert "mini-swe-agent" in kind_names() == sorted(kind_names())


@pytest.mark.parametrize(
    ("trial", "ours", "ending"),
    [
        ({}, {}, ("success", "completed", "")),
        ({}, {"status": "fail", "end_reason": "loop", "error": "e"}, ("fail", "loop", "e")),
        ({}, {"x": 1}, ("success", "completed", "")),
        (
            {"exception_info": {"exception_type": "AgentTimeoutError", "exception_message": "m"}},
            {},
            ("timeout", "timeout", "m"),
        ),
        (
            {"exception_info": {"exception_type": "KeyError", "exception_message": "m"}},
            {},
            ("error", "internal_error", "KeyError: m"),
        ),
        ({"verifier_result": {"rewards": {"a": 0.5, "b": 0}}}, {}, ("fail", "checks_failed", "")),
        ({"verifier_result": {"rewards": {"a": 1, "b": 0}}}, {}, ("success", "completed", "")),
    ],
)
def test_how_a_trial_of_harbor_ended(trial, ours, ending):
    assert atif._ending(trial, ours) == ending


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"content": "x", "extra": {"returncode": 0}}, True),
        ({"content": " <returncode>0</returncode>"}, True),
        ({"content": "Observation: x"}, True),
        ({"content": "x"}, False),
    ],
)
def test_results_of_commands_are_told_from_messages_of_the_user(message, expected):
    assert mini_swe_agent._is_result(message) is expected


@pytest.mark.parametrize(
    ("message", "calls"),
    [
        ({}, []),
        ({"cost": 0}, []),
        ({"cost": 0.5}, [("m", 0.5, 0)]),
        ({"usage": {"prompt_tokens": 3, "completion_tokens": 2}}, [("m", None, 5)]),
        ({"usage": {"prompt_tokens": 3, "completion_tokens": 2}, "cost": 0}, [("m", 0, 5)]),
    ],
)
def test_a_call_is_recorded_if_its_cost_or_its_tokens_are_known(message, calls):
    transcript = TranscriptBuilder()
    transcript.add_message("assistant", "hi")
    tau_bench._add_model_call(transcript, message, "m")
    assert [event for event in events(transcript) if event[0] == "m"] == calls


def test_a_history_without_a_trajectory_is_told_message_by_message():
    history = [
        {"role": "user", "content": "demo", "is_demo": True},
        {"role": "user", "content": "fix it"},
        {"role": "assistant", "content": "look", "action": "ls -l"},
        {"role": "tool", "content": "a.txt", "tool_call_ids": [""]},
        {"role": "assistant", "content": "done", "action": " "},
    ]
    transcript = TranscriptBuilder()
    swe_agent._add_transcript(transcript, [], history)
    assert events(transcript) == [
        ("user", "fix it"),
        ("assistant", "look"),
        ("bash", {"command": "ls -l"}, "a.txt"),
        ("assistant", "done"),
    ]


@pytest.mark.parametrize(
    ("info", "ending"),
    [
        ({}, ("success", "completed", "")),
        ({"submission": "x"}, ("error", "interrupted", "it does not say how it ended")),
        ({"exit_status": "submitted"}, ("success", "completed", "")),
        ({"exit_status": "odd"}, ("fail", "agent_failed", "odd")),
    ],
)
def test_how_a_trajectory_ended(info, ending):
    assert swe_agent._ending(info) == ending


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"t/report.json": {"i": {"resolved": True}}}, True),
        ({"t/report.json": {"i": {"resolved": False}}, "results.json": {"resolved": ["i"]}}, False),
        ({"t/results.json": {"resolved": ["other"]}}, False),
        ({"results.json": {"resolved_ids": ["i"], "resolved": []}}, True),
        ({"t/report.json": {"other": {}}}, None),
    ],
)
def test_whether_an_instance_was_resolved_stands_in_a_report(tmp_path: Path, files, expected):
    for name, value in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(value))
    assert swe_agent._resolved(tmp_path / "t" / "a.traj", "i") is expected


def test_a_call_that_waited_for_nothing_has_waited_no_time():
    assert atif._exported_call({}).waiting_ms == 0.0
    assert atif._exported_call({"waiting_ms": 3}).waiting_ms == 3
    assert atif._exported_call({}).status == "ok" and atif._exported_call({}).latency_ms is None
