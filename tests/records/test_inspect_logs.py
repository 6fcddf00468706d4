"""Inspect's logs as sessions."""

import json
import zipfile
from datetime import UTC, datetime

import pytest
from backports import zstd
from backports.zstd import zipfile as zstandard_zipfile
from records_by_hand import (
    inspect_header,
    inspect_sample,
    model_calls,
    only,
    order,
    problems,
    sessions,
    told,
    write_eval,
    write_json,
)

from proctor.records import _reading, find_kind, inspect


def test_a_sample_is_a_session_whether_the_log_is_packed_or_not(tmp_path):
    plain = write_json(tmp_path / "a.json", {**inspect_header(), "samples": [inspect_sample()]})
    with zipfile.ZipFile(tmp_path / "cut.eval", "w") as packed:
        # The run broke off before its header was written.
        packed.writestr("_journal/start.json", json.dumps(inspect_header()))
        packed.writestr("samples/1_epoch_1.json", json.dumps(inspect_sample()))

    session = only("inspect", write_eval(tmp_path / "a.eval", inspect_sample()))
    assert session == only("inspect", plain) == only("inspect", tmp_path / "cut.eval")


def test_old_messages_without_ids_are_known_by_what_they_say(tmp_path):
    sample = inspect_sample()
    for message in sample["messages"]:
        del message["id"]
    for event in sample["events"]:
        if event["event"] == "model":
            del event["output"]["choices"][0]["message"]["id"]

    assert order(only("inspect", write_eval(tmp_path / "a.eval", sample))) == ["uMaTMaM"]


def test_a_sample_that_cannot_be_read_is_named_and_the_others_are(tmp_path):
    path = tmp_path / "a.eval"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("header.json", json.dumps(inspect_header()))
        packed.writestr("samples/1_epoch_1.json", "{broken")
        packed.writestr("samples/2_epoch_1.json", json.dumps(inspect_sample(id=2)))
        packed.writestr("samples/3_epoch_1.json", '{"messages": 3}')

    found = list(find_kind("inspect").read(path))

    assert [type(each).__name__ for each in found] == ["Unreadable", "Session", "Unreadable"]
    assert "samples/1_epoch_1.json" in str(found[0])


def test_a_sample_written_twice_counts_as_written_last(tmp_path):
    path = write_eval(tmp_path / "a.eval", inspect_sample(uuid="old"))
    with zipfile.ZipFile(path, "a") as packed, pytest.warns(UserWarning, match="Duplicate"):
        packed.writestr("samples/1_epoch_1.json", json.dumps(inspect_sample(uuid="new")))

    assert [session.external_id for session in sessions("inspect", path)] == ["new"]


def write_zstandard(path, frames, missing=0):
    """As Inspect packs: Zstandard, a long member in several frames; `missing` bytes of it are not there."""
    with zstandard_zipfile.ZipFile(path, "w", zstandard_zipfile.ZIP_ZSTANDARD) as packed:
        packed.writestr("header.json", json.dumps(inspect_header()))
        packed.writestr("samples/1_epoch_1.json", json.dumps(inspect_sample()))
    if frames > 1:
        text = json.dumps(inspect_sample()).encode()
        size = len(text) // frames + 1
        data = b"".join(zstd.compress(text[at : at + size]) for at in range(0, len(text), size))
        member = zipfile.ZipInfo("samples/2_epoch_1.json")
        with zipfile.ZipFile(path, "a") as packed:
            packed.writestr(member, data[: len(data) - missing])
            # Stored as it is, and said to be packed.
            member.compress_type, member.file_size = 93, len(text)
    return path


@pytest.mark.parametrize(("frames", "samples"), [(1, 1), (3, 2)])
def test_what_inspect_packs_today_is_unpacked(tmp_path, frames, samples):
    path = write_zstandard(tmp_path / "a.eval", frames)

    assert [session.external_id for session in sessions("inspect", path)] == ["sample-1"] * samples
    if frames > 1:
        (problem,) = problems("inspect", write_zstandard(tmp_path / "b.eval", frames, missing=5))
        assert "it breaks off" in problem


@pytest.mark.parametrize("packing", [zipfile.ZIP_DEFLATED, zstandard_zipfile.ZIP_ZSTANDARD])
def test_a_bomb_is_refused_without_unpacking_it(tmp_path, monkeypatch, packing):
    # White box: the real limit is hundreds of megabytes.
    monkeypatch.setattr(_reading, "MOST_BYTES", 1_000_000)
    bomb = tmp_path / "bomb.eval"
    with zstandard_zipfile.ZipFile(bomb, "w", packing) as packed:
        packed.writestr("header.json", json.dumps(inspect_header()))
        packed.writestr("samples/1_epoch_1.json", b" " * 50_000_000)
        packed.writestr("samples/2_epoch_1.json", json.dumps(inspect_sample(id=2)))

    (problem,) = problems("inspect", bomb)

    assert "larger than" in problem


def test_a_member_that_is_damaged_is_named(tmp_path):
    cut = write_zstandard(tmp_path / "cut.eval", 1)
    data = bytearray(cut.read_bytes())
    at = data.index(b"samples/1_epoch_1.json") + len("samples/1_epoch_1.json")
    data[at + 20 : at + 60] = bytes(40)
    cut.write_bytes(data)

    assert "cannot be unpacked" in problems("inspect", cut)[0]


@pytest.mark.parametrize("data", [b"PK\x03\x04 and nothing more", b"PK", b"", b"\x00\xff"])
def test_a_file_that_is_no_zip_is_named(tmp_path, data):
    path = tmp_path / "a.eval"
    path.write_bytes(data)

    assert len(problems("inspect", path)) == 1


@pytest.mark.parametrize(
    ("used", "input_tokens"),
    [
        # The total shows whether cached tokens are part of the prompt's count or beside it.
        ({"input_tokens": 20, "input_tokens_cache_read": 30, "input_tokens_cache_write": 10}, 60),
        ({"input_tokens": 60, "input_tokens_cache_read": 30, "input_tokens_cache_write": 10}, 60),
        ({"input_tokens": 60, "input_tokens_cache_read": 0, "input_tokens_cache_write": 50}, 60),
        ({"input_tokens": 10, "input_tokens_cache_read": 0, "input_tokens_cache_write": 50}, 60),
        ({"input_tokens": 60, "input_tokens_cache_read": 0, "input_tokens_cache_write": 8}, 60),
    ],
)
def test_tokens_that_were_written_to_a_cache_are_counted_once(tmp_path, used, input_tokens):
    used = {**used, "output_tokens": 5, "total_tokens": 65}
    sample = inspect_sample(events=[], model_usage={"anthropic/claude": used})

    (call,) = model_calls(only("inspect", write_eval(tmp_path / "a.eval", sample)))

    assert (call.usage.input_tokens, call.usage.output_tokens) == (input_tokens, 5)
    assert call.usage.cached_tokens == used["input_tokens_cache_read"]
    assert call.usage.cache_write_tokens == used["input_tokens_cache_write"]


# Members of samples


def moment(second):
    return datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)


def sample(**more):
    return {"id": 7, "epoch": 2, "messages": [], **more}


def of_inspect(header=None, **more):
    return inspect.session_of(sample(**more), {"eval": {}} if header is None else header, "inspect")


@pytest.mark.parametrize(
    ("spec", "more", "identity"),
    [
        ({"eval_id": "e", "run_id": "r", "created": "c"}, {}, "e/7/2"),
        ({"run_id": "r", "created": "c"}, {}, "r/7/2"),
        ({"created": "c"}, {}, "c/7/2"),
        ({}, {}, "/7/2"),
        ({"eval_id": "e"}, {"uuid": "u"}, "u"),
    ],
)
def test_the_id_of_a_sample(spec, more, identity):
    assert of_inspect({"eval": spec}, **more).external_id == identity


def test_what_a_log_says_of_a_sample():
    header = {
        "eval": {
            "task": "t",
            "model": "m",
            "eval_id": "e",
            "dataset": {"name": "d"},
            "packages": {"inspect_ai": "1.0"},
        },
        "plan": {"steps": [{"solver": "one"}, {}, {"solver": "two"}]},
    }
    session = of_inspect(header)
    assert (session.name, session.agent, session.model) == ("t 7", "one, two", "m")
    assert (session.task, session.repeat, session.is_mock) == ("t/7", 2, False)
    assert session.attributes == {
        "task": "t",
        "sample_id": "7",
        "epoch": "2",
        "eval_id": "e",
        "dataset": "d",
        "inspect_version": "1.0",
    }
    header["eval"]["solver"] = "own"
    assert of_inspect(header).agent == "own"
    assert of_inspect({}, epoch=0, id=None).repeat is None


def model_event(at=3, **more):
    return {"event": "model", "model": "m", "timestamp": moment(at).isoformat(), **more}


def test_the_times_of_a_sample():
    events = [model_event(3), model_event(5)]
    times = {"started_at": moment(1).isoformat(), "completed_at": moment(9).isoformat()}
    without, known = of_inspect(events=events), of_inspect(events=events, **times)
    assert (without.started_at, without.finished_at) == (moment(3), moment(5))
    assert (known.started_at, known.finished_at) == (moment(1), moment(9))


def test_model_calls_stand_before_the_messages_that_came_of_them():
    messages = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "id": "m1", "content": "a"},
        {"role": "assistant", "content": "attachment://x"},
        {"role": "tool", "content": "alone"},
    ]
    events = [
        model_event(model="one", output={"choices": [{"message": {"id": "m1"}}]}, tools=[{"name": "t"}]),
        model_event(model="two", output={"choices": [{"message": {"content": "long"}}]}),
        model_event(model="judge", output={"choices": [{"message": {"content": "other"}}]}),
        model_event(model="pending", pending=True),
    ]
    session = of_inspect(messages=messages, events=events, attachments={"x": "long"})
    assert told(session) == [
        ("user", "q"),
        ("model", "one"),
        ("assistant", "a"),
        ("model", "two"),
        ("assistant", "long"),
        ("tool", "alone"),
        ("model", "judge"),
    ]
    assert [tool["name"] for tool in session.tools] == ["t"]


def test_usage_without_events_comes_first():
    session = of_inspect(
        messages=[{"role": "user", "content": "q"}],
        model_usage={"m": {"input_tokens": 3, "output_tokens": 4, "total_cost": 0.5}, "n": {}},
    )
    calls = [each.event for step in session.steps for each in step.events][:2]
    assert {call.model: (call.cost_usd, call.price_source) for call in calls} == {
        "m": (0.5, "agent"),
        "n": (None, ""),
    }
    with_events = of_inspect(events=[{"event": "tool"}], model_usage={"m": {"input_tokens": 3}})
    assert told(with_events) == [("model", "m")]
    assert told(of_inspect(events=[model_event()], model_usage={"other": {}})) == [("model", "m")]


def model_call_of(event):
    (call,) = model_calls(of_inspect(messages=[], events=[{"event": "model", **event}]))
    return call


def test_a_model_call_has_its_time_cost_and_error():
    plain = model_call_of({"model": "m", "uuid": "u", "output": {"time": 1.5, "error": "no"}})
    assert (plain.latency_ms, plain.status, plain.error, plain.call_id) == (1500.0, "error", "no", "u")
    assert (plain.cost_usd, plain.price_source, plain.waiting_ms) == (None, "", 0.0)
    ours = {"latency_ms": 0, "waiting_ms": 4, "provider": "p", "call_id": "c", "price_source": "list"}
    output = {"time": 2, "usage": {"total_cost": 0.25}}
    own = model_call_of({"model": "m", "uuid": "u", "metadata": {"proctor": ours}, "output": output})
    assert (own.latency_ms, own.waiting_ms, own.provider, own.call_id) == (0, 4.0, "p", "c")
    assert (own.status, own.error, own.cost_usd, own.price_source) == ("ok", "", 0.25, "list")
    assert model_call_of({"error": "first", "output": {"error": "second"}}).error == "first"
    assert model_call_of({"output": {"usage": {"total_cost": 1}}}).price_source == "agent"


def test_calls_of_tools_and_their_results():
    messages = [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "1", "function": "f", "arguments": {"x": 1}}, {"id": "2", "function": "g"}],
        },
        {"role": "tool", "tool_call_id": "1", "content": "fine"},
        {"role": "tool", "tool_call_id": "2", "content": "", "error": {"message": "broken"}},
    ]
    events = [{"event": "tool", "id": "1", "timestamp": moment(4).isoformat(), "working_time": 0.25}]
    session = of_inspect(messages=messages, events=events)
    assert told(session) == [("call", "f", "fine", True), ("call", "g", "broken", False)]
    first = session.steps[0].events[0]
    assert (first.at, first.event.duration_ms, first.event.args) == (moment(4), 250.0, {"x": 1})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("C", [("", 1.0, "C")]),
        ("P", [("", 0.5, "P")]),
        ("I", [("", 0.0, "I")]),
        ("other", [("", None, "other")]),
        (True, [("", 1.0, "")]),
        (0.25, [("", 0.25, "")]),
        ([1, "C"], [("1", 1.0, ""), ("2", 1.0, "C")]),
        ({"a": 0, "b": None}, [("a", 0.0, "")]),
        (None, []),
        ("", []),
    ],
)
def test_the_scores_of_a_sample(value, expected):
    found = of_inspect(scores={"n": {"value": value, "explanation": "why"}}).scores
    assert [(score.dimension, score.value, score.label) for score in found] == expected
    assert all((score.evaluator, score.explanation) == ("n", "why") for score in found)
    old = of_inspect(score={"value": value}).scores
    assert [(score.evaluator, score.value) for score in old] == [("score", each[1]) for each in expected]


@pytest.mark.parametrize(
    ("more", "ending"),
    [
        ({}, ("success", "completed", "")),
        ({"error": "no"}, ("error", "internal_error", "no")),
        ({"error": {"message": "no"}, "limit": {"type": "time"}}, ("error", "internal_error", "no")),
        ({"limit": {"type": "time"}}, ("timeout", "timeout", "it reached its time limit")),
        ({"limit": {"type": "token"}}, ("fail", "cost_limit", "it reached its token limit")),
        ({"limit": {"type": "operator"}}, ("error", "aborted", "it reached its operator limit")),
        ({"limit": {"type": "message"}}, ("fail", "agent_failed", "it reached its message limit")),
        ({"scores": {"a": {"value": "C"}, "b": {"value": "I"}}}, ("fail", "checks_failed", "")),
        ({"scores": {"a": {"value": "C"}, "b": {"value": "P"}}}, ("success", "completed", "")),
        ({"scores": {"a": {"value": 0}}}, ("success", "completed", "")),
        ({"metadata": {"proctor": {"x": 1}}, "error": "no"}, ("success", "completed", "no")),
        (
            {"metadata": {"proctor": {"status": "fail", "end_reason": "timeout"}}, "limit": {"type": "time"}},
            ("fail", "timeout", ""),
        ),
    ],
)
def test_how_a_sample_ended(more, ending):
    session = of_inspect(**more)
    assert (session.status, session.end_reason, session.error) == ending
