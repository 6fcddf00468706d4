"""Parts of telemetry on their own: spans of tools, comparisons and paths of queries, nested messages."""

import zlib
from pathlib import Path

import pytest

from proctor.session import ToolCall
from proctor.telemetry.dialects.llama_index import _with_output
from proctor.telemetry.log_query import _COMPARED, at_path
from proctor.telemetry.messages import DEEPEST, parse_messages
from proctor.telemetry.otlp import TooLarge, unpacked
from proctor.telemetry.sessions import _attributes, _short, _span_key
from proctor.telemetry.sources import Unreadable, _printed
from proctor.telemetry.span import SpanReading
from proctor.telemetry.span_writer import _tool_span


@pytest.mark.parametrize(("success", "code"), [(True, "OK"), (None, "OK"), (False, "ERROR")])
def test_the_span_of_a_tool_has_its_success(success, code):
    call = ToolCall(name="look", args={"a": 1}, success=success, result="x", duration_ms=5.0)
    span = _tool_span(call)

    assert span["status"] == {"code": code}
    assert span["name"] == "execute_tool look"
    assert span["attributes"].get("proctor.success") is success
    assert ("proctor.success" in span["attributes"]) is (success is not None)
    assert span["attributes"]["proctor.duration_ms"] == 5.0


@pytest.mark.parametrize(
    ("symbol", "orders"),
    [
        ("=", {0}),
        ("!=", {-1, 1, None}),
        ("<", {-1}),
        ("<=", {-1, 0}),
        (">", {1}),
        (">=", {0, 1}),
    ],
)
def test_values_that_cannot_be_compared_are_only_different(symbol, orders):
    assert {order for order in (-1, 0, 1, None) if _COMPARED[symbol](order)} == orders


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("a.b", 1),
        ("a.c", 2),
        ("a.b.c", 3),
        ("x.y.z.w", 4),
        (".x.y.z.w", 4),
        ("l.1", "second"),
        ("l.2", None),
        ("l.1.k", None),
        ("l.123456", None),
        ("k.0", None),
        ("..a", None),
    ],
)
def test_a_path_is_found_by_its_longest_key_first(path, value):
    document = {
        "a.b": 1,
        "a": {"c": 2, "b": {"c": 3}},
        "x.y": {"other": 0},
        "x": {"y.z": {"w": 4}},
        "l": ["first", "second"],
        "k": {"a": 1},
    }
    assert at_path(document, path) == value


@pytest.mark.parametrize(
    ("output", "result", "has_failed"),
    [
        ({"blocks": [{"text": "a"}, {"text": "b"}], "tool_name": "t"}, "a\nb", False),
        ({"blocks": [], "tool_name": "t", "raw_output": "raw"}, "raw", False),
        ({"blocks": [{"text": "a"}], "tool_name": "t", "raw_output": "raw"}, "a", False),
        ({"blocks": [{"text": "a"}], "tool_name": "t", "is_error": True}, "a", True),
        ({"blocks": [{"text": "a"}]}, "before", False),
        ({"tool_name": "t"}, "before", False),
    ],
)
def test_the_result_of_a_tool_of_llama_index(output, result, has_failed):
    reading = _with_output(SpanReading(kind="tool", tool_result="before"), output)
    assert (reading.tool_result, reading.has_failed) == (result, has_failed)

    failed = SpanReading(kind="tool", tool_result="before", has_failed=True)
    assert _with_output(failed, output).has_failed


def nested(wrap, times, value):
    for _ in range(times):
        value = wrap(value)
    return value


@pytest.mark.parametrize(
    ("wrap", "times"),
    [
        (lambda value: [value], DEEPEST),
        (lambda value: {"messages": value}, DEEPEST),
        # A message within a message is two levels.
        (lambda value: {"role": "user", "content": {"messages": value}}, DEEPEST // 2),
    ],
    ids=["lists", "wrappers", "contents"],
)
def test_messages_are_read_to_a_depth(wrap, times):
    message = {"role": "user", "content": "deep"}
    read = parse_messages(nested(wrap, times, message), "user")
    assert [each.text for each in read] == ["deep"]
    assert "deep" not in [each.text for each in parse_messages(nested(wrap, times + 1, message), "user")]


def test_data_is_unpacked_up_to_a_size():
    packed = zlib.compress(b"x" * 100)
    assert unpacked(packed, most=100) == b"x" * 100
    with pytest.raises(TooLarge, match="more than 99 bytes"):
        unpacked(packed, most=99)


def test_values_of_a_console_are_read_with_the_line_of_their_beginning():
    text = b'noise\n{"a": 1}\n{\n  "b": 2\n}\n{\n  bad\n}\n{\n'
    problems = [each for each in _printed(text, Path("x.log")) if isinstance(each, Unreadable)]
    assert [(each.path, each.line) for each in problems if "JSON" in each.problem] == [
        ("x.log", 6),
        ("x.log", 9),
    ]


def test_messages_have_24_levels():
    assert DEEPEST == 24


@pytest.mark.parametrize(
    ("key", "value", "is_kept"),
    [
        ("customer", "x" * 200, True),
        ("customer", "x" * 201, False),
        ("customer", ["x"], False),
        ("customer", None, False),
        ("customer", 3, True),
        ("customer", 2.5, True),
        ("customer", False, True),
        ("Prompt", "x", False),
        ("prompt", 3, True),
        ("gen_ai.usage", "x", True),
        ("gen_ai.usage", 3, False),
        ("token_count", 3, False),
        ("proctor.x", "x", False),
        ("proctor.x", 3, False),
        ("proctor", "x", True),
    ],
)
def test_short_attributes_are_kept_without_messages_and_figures(key, value, is_kept):
    assert list(_short({key: value})) == ([(key, value)] if is_kept else [])


@pytest.mark.parametrize(("count", "kept"), [(99, 99), (100, 100), (101, 100)])
def test_up_to_100_attributes_are_kept_of_the_first_span_that_has_each(count, kept):
    spans = [
        {
            "spanId": f"{number:016x}",
            "traceId": "1" * 32,
            "name": "x",
            "startTimeUnixNano": "1",
            "endTimeUnixNano": "2",
        }
        for number in (1, 2, 3)
    ]
    spans[0]["attributes"] = {"a0": "first"}
    spans[0]["resource"] = {"attributes": {"a0": "resource", "a1": "of the resource"}}
    spans[1]["attributes"] = {f"a{number}": number for number in range(count)}
    spans[2]["attributes"] = {"later": "x"}
    read = {_span_key(span) for span in spans}

    attributes = _attributes(spans[:2], read)
    assert len(attributes) == kept
    assert attributes["a0"] == "first" and attributes["a1"] == "of the resource" and attributes["a98"] == 98
    assert ("later" in _attributes(spans, read)) is (count < 100)
    assert _attributes(spans, {_span_key(spans[2])}) == {"later": "x"}
