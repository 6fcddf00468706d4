"""Whatever is in a file, it becomes sessions or a line that says what is wrong; what comes can be kept."""

import json
import zipfile
from datetime import UTC, datetime

import pytest
from backports.zstd import zipfile as zstandard_zipfile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from records_by_hand import inspect_header, write_eval, write_every_kind

from proctor.errors import NotFound
from proctor.records import (
    _reading,
    atif,
    claude_code,
    codex,
    find_kind,
    inspect,
    kind_names,
    mini_swe_agent,
    patienthub,
    recognized,
    swe_agent,
    tau_bench,
)
from proctor.session import Message, Session, Unreadable

NOW = datetime(2026, 3, 1, tzinfo=UTC)
DEEP = "[" * 100_000 + "]" * 100_000
odd = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=True)
    | st.text(max_size=8)
    | st.sampled_from(
        ["\ud800", "\x00", 10**400, "attachment://", "2026-13-45T99:99", -1, 1e308, "#", "\u2028"]
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture
def good(tmp_path):
    return write_every_kind(tmp_path)


def read(kind, path):
    found = list(find_kind(kind).read(path))
    assert all(isinstance(each, Session | Unreadable) for each in found)
    return found


def is_said(event):
    return isinstance(event, Message)


def places(value, path=()):
    """The path to each value inside a document."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inner:
        yield from places(each, (*path, name))


def changed(document, path, value):
    """A copy with another value at a path."""
    if not path:
        return value
    copy = dict(document) if isinstance(document, dict) else list(document)
    copy[path[0]] = changed(document[path[0]], path[1:], value)
    return copy


def document_of(path):
    """What a record says, however it is packed, and how to write it back."""
    if path.suffix == ".eval":
        with zipfile.ZipFile(path) as packed:
            sample = json.loads(packed.read("samples/1_epoch_1.json"))

        def write(value):
            if isinstance(value, dict):
                write_eval(
                    path, {"id": 1, "epoch": 1, **value}, header=value.get("header") or inspect_header()
                )

        return sample, write
    if path.suffix == ".jsonl":
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        return lines, lambda value: path.write_text(
            "\n".join(map(json.dumps, value)) if isinstance(value, list) else json.dumps(value)
        )
    return json.loads(path.read_text()), lambda value: path.write_text(json.dumps(value))


@pytest.mark.parametrize("kind", kind_names())
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_value_of_the_wrong_kind_anywhere_never_breaks_the_reading_or_the_keeping(
    kind, data, tmp_path, store
):
    path = write_every_kind(tmp_path, kind)[kind]
    document, write = document_of(path)
    where = data.draw(st.sampled_from(list(places(document))))
    write(changed(document, where, data.draw(odd)))

    for found in read(kind, path):
        if isinstance(found, Session):
            session_id = store.save_imported(found, NOW)
            store.read.recorded(session_id)
            store.read.evidence(session_id)


@pytest.mark.parametrize("packing", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, 93])
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_packed_log_with_any_byte_changed_is_read_or_named(packing, data, tmp_path):
    path = tmp_path / "a.eval"
    with zstandard_zipfile.ZipFile(path, "w", packing) as packed:
        packed.writestr("header.json", json.dumps(inspect_header()))
        packed.writestr(
            "samples/1_epoch_1.json", json.dumps({"messages": [{"role": "user", "content": "x"}]})
        )
    whole = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(whole)

    assert len(read("inspect", path)) <= 1


@pytest.mark.parametrize("kind", kind_names())
def test_a_record_cut_off_anywhere_is_read_or_named(kind, good):
    path = good[kind]
    whole = path.read_bytes()

    for size in range(0, len(whole), max(1, len(whole) // 40)):
        path.write_bytes(whole[:size])
        assert read(kind, path)
        recognized(path)


@pytest.mark.parametrize("kind", kind_names())
@pytest.mark.parametrize(
    "data", [b"", b"\xff\xfe\x00\x01" * 100, DEEP.encode(), b"null", b"3", b'"x"', b"[]", b"{}", b"[[1],{}]"]
)
def test_what_is_no_record_is_named_and_recognized_as_none(kind, good, data):
    path = good[kind]
    path.write_bytes(data)

    # A list may be a list of records in two formats; two are recognized by the name of the file, if it
    # begins like JSON.
    records = {b"[]": 0, b"[[1],{}]": 2}.get(data, 1) if kind in ("tau-bench", "patienthub") else 1
    assert [type(each) for each in read(kind, path)] == [Unreadable] * records
    by_name = data[:1] in {"swe-agent": (b"{",), "mini-swe-agent": (b"{", b"[")}.get(kind, ())
    assert recognized(path) is (find_kind(kind) if by_name else None)


@pytest.mark.parametrize("kind", sorted({*kind_names()} - {"inspect"}))
def test_letters_that_are_no_utf8_are_replaced(kind, good):
    path = good[kind]
    path.write_bytes(path.read_bytes().replace(b"?", b"\xff").replace(b'."', b'\xe9"'))

    (session,) = read(kind, path)

    said = [each.event.content for step in session.steps for each in step.events if is_said(each.event)]
    assert any("\ufffd" in text for text in said)


@pytest.mark.parametrize("kind", kind_names())
def test_a_file_that_is_gone_or_a_folder_is_named(kind, tmp_path):
    missing, folder = tmp_path / "no.such", tmp_path / "folder"
    folder.mkdir()

    for path in (missing, folder):
        assert [type(each) for each in read(kind, path)] == [Unreadable]
        assert not find_kind(kind).recognizes(path)


def test_each_record_is_recognized_as_what_it_is_and_as_nothing_else(good):
    for kind, path in good.items():
        assert [name for name in kind_names() if find_kind(name).recognizes(path)] == [kind]


def test_other_peoples_files_are_recognized_as_none(tmp_path):
    others = {
        "package.json": '{"name": "shop", "version": "1.0.0", "dependencies": {}}',
        "messages.json": '[{"role": "user", "content": "hi"}]',
        "data.jsonl": '{"prompt": "a", "completion": "b"}\n',
        "spans.jsonl": '{"resourceSpans": []}\n',
        "sums.eval": "print(2)",
    }
    for name, text in others.items():
        (tmp_path / name).write_text(text)
        assert recognized(tmp_path / name) is None, name


RECOGNIZED = {
    (inspect, "a.json"): ['"eval"', '"task_id"', '"dataset"', '"status"'],
    (atif, "a.json"): ['"ATIF-v1"'],
    (claude_code, "a.jsonl"): ['"sessionId"', '"parentUuid"'],
    (claude_code, "b.jsonl"): ['"sessionId"', '"leafUuid"'],
    (codex, "a.jsonl"): ['"payload"', '"session_meta"'],
    (codex, "rollout-1.jsonl"): ['"instructions"'],
    (mini_swe_agent, "a.json"): ["{", '"mini_version"'],
    (patienthub, "a.json"): ['"profile"', '"messages"', '"role"', '"therapist"'],
    (patienthub, "b.json"): ['"profile"', '"messages"', '"role"', '"client"'],
    (tau_bench, "a.json"): ["[", '"task_id"', '"reward"'],
    (tau_bench, "b.json"): ['"num_trials"', '"agent_info"', '"user_info"'],
}


@pytest.mark.parametrize(("reader", "name"), list(RECOGNIZED))
def test_a_record_is_known_by_all_words_of_its_beginning(tmp_path, reader, name):
    words = RECOGNIZED[reader, name]
    file = tmp_path / name
    file.write_text(" ".join(words))
    assert reader.recognizes(file) is True
    other = tmp_path / "other.txt"
    other.write_text(" ".join(words))
    assert not reader.recognizes(other)
    for missing in words:
        file.write_text(" ".join(word for word in words if word != missing))
        assert not reader.recognizes(file)
    assert not reader.recognizes(tmp_path / f"absent-{name}")


def test_records_known_by_their_names(tmp_path):
    for reader, name, good, bad in (
        (inspect, "a.eval", "PK", "eval"),
        (swe_agent, "a.traj", " {", "["),
        (mini_swe_agent, f"a{mini_swe_agent.SUFFIXES[0]}", "[", "x"),
    ):
        file = tmp_path / name
        file.write_text(good)
        assert reader.recognizes(file)
        file.write_text(bad)
        assert not reader.recognizes(file)
    summary = tmp_path / patienthub.SUMMARY
    summary.write_text(" ".join(RECOGNIZED[patienthub, "a.json"]))
    assert not patienthub.recognizes(summary)


def test_a_folder_of_results_has_simulations_and_results(tmp_path):
    assert not tau_bench.recognizes(tmp_path)
    (tmp_path / "simulations").mkdir()
    assert not tau_bench.recognizes(tmp_path)
    (tmp_path / "results.json").write_text(" ".join(RECOGNIZED[tau_bench, "b.json"]))
    assert tau_bench.recognizes(tmp_path)
    (tmp_path / "simulations").rmdir()
    assert not tau_bench.recognizes(tmp_path)


def test_a_kind_that_is_misspelt_is_suggested():
    with pytest.raises(NotFound, match=r"no kind of record `codx`\nDid you mean `codex`\? There are: atif, "):
        find_kind("codx")
    with pytest.raises(NotFound, match=r"`q`\nThere are: "):
        find_kind("q")
    assert "mini-swe-agent" in kind_names() == sorted(kind_names())


@pytest.mark.parametrize(("size", "problems"), [(1 << 20, []), ((1 << 20) + 1, ["it is larger than 1 MB"])])
def test_a_file_is_read_up_to_a_size(good, monkeypatch, size, problems):
    # White box: the real limit is hundreds of megabytes.
    monkeypatch.setattr(_reading, "MOST_BYTES", 1 << 20)
    path = good["atif"]
    path.write_bytes(path.read_bytes().ljust(size))

    assert [each.problem for each in read("atif", path) if isinstance(each, Unreadable)] == problems


def test_a_packed_member_that_is_encrypted_is_named(good):
    data = bytearray(good["inspect"].read_bytes())
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = data.find(mark)
        while place >= 0:
            data[place + at] |= 1
            place = data.find(mark, place + 1)
    good["inspect"].write_bytes(data)

    (problem,) = read("inspect", good["inspect"])
    assert "is encrypted" in problem.problem
