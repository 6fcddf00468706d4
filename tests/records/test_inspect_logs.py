"""Inspect's logs as sessions."""

import json
import zipfile

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
    spoken,
    tool_calls,
    write_eval,
    write_json,
)

from proctor.records import _reading, find_kind
from proctor.score import Score
from proctor.session import ToolCall, Usage


def test_a_sample_is_a_session_whether_the_log_is_packed_or_not(tmp_path):
    packed = only("inspect", write_eval(tmp_path / "a.eval", inspect_sample()))
    plain = only(
        "inspect", write_json(tmp_path / "a.json", {**inspect_header(), "samples": [inspect_sample()]})
    )

    assert packed == plain
    assert (packed.external_id, packed.model, packed.agent) == (
        "sample-1",
        "openai/gpt-4o",
        "use_tools, generate",
    )
    assert packed.attributes["task"] == "sums"


def test_the_conversation_is_told_with_the_calls_and_tools_behind_it(tmp_path):
    session = only("inspect", write_eval(tmp_path / "a.eval", inspect_sample()))

    assert order(session) == ["uMaTMaM"]
    assert spoken(session) == [("user", "2 + 2?"), ("assistant", "I add."), ("assistant", "It is 4.")]
    assert tool_calls(session) == [
        ToolCall(name="add", args={"x": 2, "y": 2}, success=True, result="4", duration_ms=200, call_id="t1")
    ]
    assert [tool["name"] for tool in session.tools] == ["add"]


def test_calls_have_tokens_cost_and_latency_with_the_cache_in_the_prompt(tmp_path):
    call = model_calls(only("inspect", write_eval(tmp_path / "a.eval", inspect_sample())))[0]

    assert call.usage == Usage(input_tokens=50, cached_tokens=30, output_tokens=5)
    assert (call.cost_usd, call.latency_ms) == (0.0005, 1500)


@pytest.mark.parametrize(
    ("value", "scores"),
    [
        ("C", [(1.0, "C", "")]),
        ("I", [(0.0, "I", "")]),
        ("P", [(0.5, "P", "")]),
        (True, [(1.0, "", "")]),
        (7, [(7.0, "", "")]),
        ("polite", [(None, "polite", "")]),
        ({"tone": 3, "facts": "C"}, [(3.0, "", "tone"), (1.0, "C", "facts")]),
        ([1, 0], [(1.0, "", "1"), (0.0, "", "2")]),
        (None, []),
    ],
)
def test_a_score_is_a_number_a_label_or_several(tmp_path, value, scores):
    sample = inspect_sample(scores={"match": {"value": value}})

    found = only("inspect", write_eval(tmp_path / "a.eval", sample)).scores

    assert [(score.value, score.label, score.dimension) for score in found] == scores


def test_a_score_keeps_its_explanation_and_a_wrong_answer_is_a_fail(tmp_path):
    sample = inspect_sample(scores={"match": {"value": "I", "explanation": "it is 4"}})

    session = only("inspect", write_eval(tmp_path / "a.eval", sample))

    assert session.scores == [Score(evaluator="match", value=0.0, label="I", explanation="it is 4")]
    assert (session.status, session.end_reason) == ("fail", "checks_failed")


@pytest.mark.parametrize(
    ("more", "status", "reason"),
    [
        ({"error": {"message": "boom", "traceback": ""}}, "error", "internal_error"),
        ({"limit": {"type": "time", "limit": 60}}, "timeout", "timeout"),
        ({"limit": {"type": "token", "limit": 60}}, "fail", "cost_limit"),
        ({"limit": {"type": "message", "limit": 60}}, "fail", "agent_failed"),
    ],
)
def test_how_a_sample_ended_is_told_in_our_words(tmp_path, more, status, reason):
    session = only("inspect", write_eval(tmp_path / "a.eval", inspect_sample(**more)))

    assert (session.status, session.end_reason) == (status, reason)


def test_a_tool_that_failed_says_so(tmp_path):
    sample = inspect_sample()
    sample["messages"][2] |= {"content": "", "error": {"type": "timeout", "message": "too slow"}}

    (call,) = tool_calls(only("inspect", write_eval(tmp_path / "a.eval", sample)))

    assert (call.success, call.result) == (False, "too slow")


def test_a_log_without_ids_and_events_is_read_with_its_usage_in_sum(tmp_path):
    sample = inspect_sample(
        uuid=None, events=[], model_usage={"openai/gpt-4o": {"input_tokens": 9, "total_tokens": 9}}
    )

    session = only("inspect", write_eval(tmp_path / "a.eval", sample))

    assert session.external_id == "eval-1/1/1"
    assert [call.usage.input_tokens for call in model_calls(session)] == [9]


def test_old_messages_without_ids_are_known_by_what_they_say(tmp_path):
    sample = inspect_sample()
    for message in sample["messages"]:
        del message["id"]
    for event in sample["events"]:
        if event["event"] == "model":
            del event["output"]["choices"][0]["message"]["id"]

    assert order(only("inspect", write_eval(tmp_path / "a.eval", sample))) == ["uMaTMaM"]


def test_a_log_whose_run_broke_off_is_read_as_far_as_it_goes(tmp_path):
    path = tmp_path / "a.eval"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("_journal/start.json", json.dumps(inspect_header()))
        packed.writestr("samples/1_epoch_1.json", json.dumps(inspect_sample()))

    assert only("inspect", path).external_id == "sample-1"


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


def test_a_zip_that_unpacks_to_more_than_a_sample_can_be_is_refused_without_unpacking_it(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(_reading, "MOST_BYTES", 1_000_000)
    path = tmp_path / "bomb.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("header.json", json.dumps(inspect_header()))
        packed.writestr("samples/1_epoch_1.json", b" " * 50_000_000)
        packed.writestr("samples/2_epoch_1.json", json.dumps(inspect_sample(id=2)))

    (problem,) = problems("inspect", path)

    assert "larger than" in problem


def write_zstandard(path, frames):
    """As Inspect packs: Zstandard, a long member in several frames."""
    with zstandard_zipfile.ZipFile(path, "w", zstandard_zipfile.ZIP_ZSTANDARD) as packed:
        packed.writestr("header.json", json.dumps(inspect_header()))
        packed.writestr("samples/1_epoch_1.json", json.dumps(inspect_sample()))
    if frames > 1:
        text = json.dumps(inspect_sample()).encode()
        size = len(text) // frames + 1
        data = b"".join(zstd.compress(text[at : at + size]) for at in range(0, len(text), size))
        member = zipfile.ZipInfo("samples/2_epoch_1.json")
        with zipfile.ZipFile(path, "a") as packed:
            packed.writestr(member, data)
            # Stored as it is, and said to be packed.
            member.compress_type, member.file_size = 93, len(text)
    return path


@pytest.mark.parametrize(("frames", "samples"), [(1, 1), (3, 2)])
def test_what_inspect_packs_today_is_unpacked(tmp_path, frames, samples):
    path = write_zstandard(tmp_path / "a.eval", frames)

    assert [session.external_id for session in sessions("inspect", path)] == ["sample-1"] * samples


def test_a_bomb_of_todays_packing_and_one_that_breaks_off_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(_reading, "MOST_BYTES", 1_000_000)
    bomb, cut = tmp_path / "bomb.eval", write_zstandard(tmp_path / "cut.eval", 1)
    with zstandard_zipfile.ZipFile(bomb, "w", zstandard_zipfile.ZIP_ZSTANDARD) as packed:
        packed.writestr("header.json", json.dumps(inspect_header()))
        packed.writestr("samples/1_epoch_1.json", b" " * 50_000_000)
    data = bytearray(cut.read_bytes())
    at = data.index(b"samples/1_epoch_1.json") + len("samples/1_epoch_1.json")
    data[at + 20 : at + 60] = bytes(40)
    cut.write_bytes(data)

    assert "larger than" in problems("inspect", bomb)[0]
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
