"""JSON that someone else wrote."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.json_values import as_whole_number, parse_json

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


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


@pytest.mark.parametrize("value", [-1, 0, 1.5, "7", None, True, 10**30, []])
def test_what_is_no_count_counts_as_none(value):
    assert as_whole_number(value) == 0


def test_a_count_is_a_count():
    assert as_whole_number(7) == 7
