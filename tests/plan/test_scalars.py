"""Values of YAML scalars, with and without tags, and those that cannot be passed on."""

import math

import pytest

from proctor.plan.validate import as_list, is_finite
from proctor.plan.yaml_loader import MOST_DIGITS, check_sayable, plain_scalar, tagged_scalar

CORE = "tag:yaml.org,2002:"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("~", None),
        ("NULL", None),
        ("True", True),
        ("FALSE", False),
        ("yes", "yes"),
        ("12", 12),
        ("-12", -12),
        ("+12", 12),
        ("0o17", 15),
        ("0x1f", 31),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1.", 1.0),
        ("1e3", 1000.0),
        ("-.inf", -math.inf),
        ("+.INF", math.inf),
        (".5.5", ".5.5"),
        ("-", "-"),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
    ],
)
def test_the_value_of_a_text_without_quotes(text: str, value: object) -> None:
    read = plain_scalar(text)
    assert (read, type(read)) == (value, type(value))


def test_numbers_have_so_many_digits_at_most() -> None:
    assert plain_scalar("1" * MOST_DIGITS) == int("1" * MOST_DIGITS)
    with pytest.raises(ValueError):
        plain_scalar("1" * (MOST_DIGITS + 1))
    assert math.isnan(plain_scalar(".nan"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "tag", "value"),
    [
        ("12", "str", "12"),
        ("12", "int", 12),
        ("12", "float", 12.0),
        ("1.5", "float", 1.5),
        ("true", "bool", True),
        ("~", "null", None),
    ],
)
def test_a_tag_says_what_a_text_is(text: str, tag: str, value: object) -> None:
    read = tagged_scalar(text, CORE + tag)
    assert (read, type(read)) == (value, type(value))
    assert tagged_scalar(text, "!") == text


@pytest.mark.parametrize(
    ("text", "tag", "message"),
    [
        ("x", CORE + "int", "the text is no `!!int`"),
        ("1.5", CORE + "int", "the text is no `!!int`"),
        ("true", CORE + "int", "the text is no `!!int`"),
        ("true", CORE + "float", "the text is no `!!float`"),
        ("1", CORE + "bool", "the text is no `!!bool`"),
        ("x", CORE + "binary", f"the tag `{CORE}binary` is not known here"),
        ("x", "!mine", "the tag `!mine` is not known here"),
        ("1", "int", "the tag `int` is not known here"),
    ],
)
def test_a_text_that_is_not_what_its_tag_says_is_refused(text: str, tag: str, message: str) -> None:
    with pytest.raises(ValueError) as refused:
        tagged_scalar(text, tag)
    assert str(refused.value) == message


@pytest.mark.parametrize("text", ["\0", "a\0b", "\ud800", "x\udfff"])
def test_text_that_no_program_can_be_given_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="holds a character that cannot be passed on"):
        check_sayable(text)


def test_all_other_text_can_be_passed_on() -> None:
    for text in ("", "a", "\x01", "\ud7ff", "\ue000", "\U0001f600"):
        check_sayable(text)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, [1, [math.inf]], {"a": {"b": [math.nan]}}])
def test_numbers_that_json_cannot_hold_are_refused_at_any_depth(value: object) -> None:
    with pytest.raises(ValueError, match="holds a number that is not finite"):
        is_finite(value)


def test_finite_values_are_returned_as_they_are() -> None:
    value = {"a": [1, 1.5, "inf", None, True]}
    assert is_finite(value) is value
    assert as_list(1) == [1] and as_list([1, 2]) == [1, 2]
