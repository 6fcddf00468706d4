"""Untrusted JSON values are read by type: what is not of the type is nothing, or refused."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor import json_values
from proctor.json_values import parse_json
from proctor.session import Usage

MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
CASES: dict[str, list[tuple[object, object]]] = {
    "as_amount": [
        (0, 0.0),
        (1.5, 1.5),
        (-1, None),
        (1e15, None),
        (True, None),
        ("1", None),
        (999_999_999_999_999, 999_999_999_999_999.0),
    ],
    "as_integer": [(3, 3), (-3, -3), (True, None), (3.0, None), ("3", None)],
    "parsed_integer": [(3, 3), ("12", 12), (3.9, 3), ("x", None), (None, None), (float("inf"), None)],
    "as_number": [(3, 3.0), (True, None), ("3", None), (float("nan"), None), (10**400, None), (-1.5, -1.5)],
    "as_cost": [(0, 0.0), (-0.1, None), (2, 2.0), (None, None)],
    "as_whole_number": [(1, 1), (0, 0), (-1, 0), (True, 0), (10**12, 10**12), (10**12 + 1, 0), (1.0, 0)],
    "as_name": [(7, "7"), ("x", "x"), (True, ""), (None, "")],
    "as_text": [("x", "x"), (1, "")],
    "as_list": [([1], [1]), ((1,), []), (None, [])],
    "as_sequence": [([1], [1]), ((1,), (1,)), ("ab", ())],
    "as_map": [({"a": 1}, {"a": 1}), ([1], {})],
    "maps_in": [([{"a": 1}, 2], [{"a": 1}]), (None, [])],
    "texts_in": [(["a", 2], ["a"])],
    "content_text": [("a", "a"), ([{"text": "a"}, {"x": 1}, {"text": "b"}], "a\nb"), (None, "")],
    "message_text": [
        ("a", "a"),
        (
            ["a", {"type": "image"}, {"text": "b"}, {"content": "c"}, {"refusal": "d"}, 3],
            "a\n[image]\nb\nc\nd",
        ),
        ({"type": "input_audio"}, "[audio]"),
        ({"type": "file"}, "[file]"),
        ({"type": "video"}, "[video]"),
        (3, ""),
    ],
    "args_of": [
        ('{"a": 1}', {"a": 1}),
        ("[1]", {"input": "[1]"}),
        ("x", {"input": "x"}),
        ({"a": 1}, {"a": 1}),
        (None, {}),
        ("", {}),
        (3, {"input": 3}),
    ],
    "tool_arguments": [
        ('{"a": 1}', {"a": 1}),
        ("", {}),
        (None, {}),
        ("x", {"unreadable": "x"}),
        ([1], {"unreadable": "[1]"}),
    ],
    "json_object": [(' {"a": 1}', {"a": 1}), ("[1]", None), ("{", None), ("", None)],
    "as_datetime": [
        ("2026-01-02T03:04:05", MOMENT),
        ("2026-01-02T04:04:05+01:00", MOMENT),
        (MOMENT.timestamp(), MOMENT),
        (MOMENT.timestamp() * 1000, MOMENT),
        ("x", None),
        (None, None),
        (1e30, None),
        (1e11, datetime(1973, 3, 3, 9, 46, 40, tzinfo=UTC)),
    ],
    "short_text": [("x" * 2001, "x" * 2000), ({"a": "ü"}, '{"a": "ü"}')],
}


@pytest.mark.parametrize("name", CASES)
def test_a_value_is_what_it_is_or_nothing(name: str) -> None:
    function = getattr(json_values, name)
    assert [function(value) for value, _ in CASES[name]] == [expected for _, expected in CASES[name]]
    if name not in ("json_object", "short_text", "tool_arguments", "as_sequence", "parsed_integer"):
        value, expected = CASES[name][0]
        assert function({"a": {"b": value}}, "a", "b") == expected


def test_a_path_leads_to_a_member_or_nowhere() -> None:
    assert json_values.member({"a": {"b": 1}}, "a", "b") == 1
    assert json_values.member({"a": [1]}, "a", "b") is None and json_values.member(3) == 3


@pytest.mark.parametrize(
    ("name", "good", "bad", "kind"),
    [
        ("require_map", {"a": 1}, [1], "object"),
        ("require_maps", [{"a": 1}], {}, "list"),
        ("require_maps", ({},), [1], "object"),
        ("require_text", "a", 1, "string"),
        ("require_number", 2, "2", "number"),
    ],
)
def test_what_is_required_is_refused_otherwise(name: str, good: Any, bad: Any, kind: str) -> None:
    function = getattr(json_values, name)
    assert function(good) == (list(good) if isinstance(good, tuple) else good)
    with pytest.raises(TypeError, match=f"is not an? {kind}"):
        function(bad)


def test_tokens_are_read_in_two_shapes() -> None:
    chat = {
        "prompt_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens": 5,
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    assert json_values.usage_of_chat({}) is None
    assert json_values.usage_of_chat(chat) == Usage(
        input_tokens=9, cached_tokens=4, output_tokens=5, reasoning_tokens=2
    )
    messages = {
        "input_tokens": 9,
        "cache_read_input_tokens": 4,
        "cache_creation_input_tokens": 2,
        "output_tokens": 5,
    }
    assert json_values.usage_of_messages(messages) == Usage(
        input_tokens=15, cached_tokens=4, cache_write_tokens=2, output_tokens=5
    )


def test_definitions_of_tools_are_plain_or_wrapped() -> None:
    wrapped = {"type": "function", "function": {"name": "a", "description": "d", "parameters": {"x": 1}}}
    assert json_values.tools_of(
        [wrapped, {"name": "b", "input_schema": {"y": 1}}, {"description": "no name"}, 3]
    ) == [
        {"name": "a", "description": "d", "parameters": {"x": 1}},
        {"name": "b", "description": "", "parameters": {"y": 1}},
    ]


def test_json_is_written_without_spaces_and_in_the_order_that_is_asked_for() -> None:
    value = {"b": [1, None, "ü"], "a": 1.5}
    assert json_values.compact_encoder()(value) == '{"b":[1,null,"ü"],"a":1.5}'
    assert json_values.compact_encoder(sort_keys=True)(value) == '{"a":1.5,"b":[1,null,"ü"]}'


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@settings(max_examples=30)
@given(plain)
def test_sound_json_is_read_as_it_is(value):
    assert parse_json(json.dumps(value)) == value
    assert parse_json(json.dumps(value, ensure_ascii=False).encode()) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": NaN, "b": [Infinity, -Infinity, 1e400]}', {"a": None, "b": [None, None, None]}),
        ('"a\\ud800b"', "a?b"),
        ('"\\uD83D\\uDE00"', "😀"),
        (b'"\xff"', "�"),
    ],
)
def test_what_could_not_be_stored_is_replaced(text, value):
    assert parse_json(text) == value


@given(st.text() | st.binary())
def test_anything_else_is_a_value_error(text):
    try:
        value = parse_json(text)
    except ValueError:
        return
    written = json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    assert parse_json(written) == value


def test_deep_nesting_is_a_value_error():
    with pytest.raises(ValueError):
        parse_json("[" * 100_000)
