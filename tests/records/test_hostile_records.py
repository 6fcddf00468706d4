"""Whatever is in a file, it becomes sessions or a line that says what is wrong; what comes can be kept."""

import json
import zipfile
from datetime import UTC, datetime

import pytest
from backports.zstd import zipfile as zstandard_zipfile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from records_by_hand import inspect_header, write_eval, write_every_kind

from proctor.records import find_kind, kind_names, recognised
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
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_value_of_the_wrong_kind_anywhere_never_breaks_the_reading_or_the_keeping(
    kind, data, tmp_path, store
):
    path = write_every_kind(tmp_path)[kind]
    document, write = document_of(path)
    where = data.draw(st.sampled_from(list(places(document))))
    write(changed(document, where, data.draw(odd)))

    for found in read(kind, path):
        if isinstance(found, Session):
            session_id = store.save_imported(found, NOW)
            store.read.recorded(session_id)
            store.read.evidence(session_id)


@pytest.mark.parametrize("packing", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, 93])
@settings(max_examples=80, suppress_health_check=list(HealthCheck))
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
        recognised(path)


@pytest.mark.parametrize("kind", kind_names())
@pytest.mark.parametrize(
    "data", [b"", b"\xff\xfe\x00\x01" * 100, DEEP.encode(), b"null", b"3", b'"x"', b"[]", b"{}", b"[[1],{}]"]
)
def test_what_is_no_record_is_named_and_recognised_as_none(kind, good, data):
    path = good[kind]
    path.write_bytes(data)

    # A list may be a list of records in two formats; two are recognised by the name of the file, if it
    # begins like JSON.
    records = {b"[]": 0, b"[[1],{}]": 2}.get(data, 1) if kind in ("tau-bench", "patienthub") else 1
    assert [type(each) for each in read(kind, path)] == [Unreadable] * records
    by_name = data[:1] in {"swe-agent": (b"{",), "mini-swe-agent": (b"{", b"[")}.get(kind, ())
    assert recognised(path) is (find_kind(kind) if by_name else None)


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
        assert not find_kind(kind).recognises(path)


def test_each_record_is_recognised_as_what_it_is_and_as_nothing_else(good):
    for kind, path in good.items():
        assert [name for name in kind_names() if find_kind(name).recognises(path)] == [kind]


def test_other_peoples_files_are_recognised_as_none(tmp_path):
    others = {
        "package.json": '{"name": "shop", "version": "1.0.0", "dependencies": {}}',
        "messages.json": '[{"role": "user", "content": "hi"}]',
        "data.jsonl": '{"prompt": "a", "completion": "b"}\n',
        "spans.jsonl": '{"resourceSpans": []}\n',
        "sums.eval": "print(2)",
    }
    for name, text in others.items():
        (tmp_path / name).write_text(text)
        assert recognised(tmp_path / name) is None, name
