"""Templates and expressions of roles: what they need, what they may say, and what is wrong with them."""

import math
from typing import Any

import pytest

from proctor.dialogue.templating import (
    check_expression,
    check_template,
    distance,
    evaluate,
    fill,
    members_needed,
    names_in,
    nearest,
    value_of,
)
from proctor.errors import UsageError


@pytest.mark.parametrize(
    ("template", "needed"),
    [
        ("{{ profile.name }} {{ profile['age'] }}", {"name", "age"}),
        ("{{ other.name }} {{ other['age'] }} {{ profile }}", set()),
        ("{{ profile.name | default('x') }}{{ profile.a | d('x') }}{{ profile.b | upper }}", {"b"}),
        ("{{ profile.get('name', 'x') }} {{ other.get('age') }}", set()),
        ("{{ profile.age }} {{ profile.get('age') }}", set()),
        ("{{ other.get('age') }} {{ profile.age }}", {"age"}),
        ("{% if profile.ill %}{{ profile.since }}{% else %}{{ profile.well }}{% endif %}", {"ill"}),
        ("{% if profile.x is defined %}{{ profile.x }}{% endif %}", set()),
        ("{% for each in profile.list %}{{ profile.inside }}{% endfor %}", {"list"}),
        ("{{ profile.items() }} {{ profile[key] }}", set()),
        ("{{ profile.a or profile.b }} {{ profile.c if profile.d else profile.e }}", {"a", "d"}),
    ],
)
def test_the_members_a_template_cannot_do_without(template: str, needed: set[str]) -> None:
    assert members_needed(template, "profile") == needed


def test_errors_of_templates_and_expressions_are_described() -> None:
    assert check_template("{{ a }}") == (0, "")
    line, message = check_template("one\n{{ a }\n")
    assert line == 2 and message
    assert check_expression("a + 1") == "" and check_expression("a +") != ""


def test_names_that_are_used_and_not_defined() -> None:
    assert names_in("{% set a = 1 %}{{ a }} {{ b }} {{ clamp(c, 1, 2) }}") == {"b", "c"}
    assert names_in("a + min(b, 2)", is_expression=True) == {"a", "b"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("clamp(5, 1, 3)", 3),
        ("clamp(0, 1, 3)", 1),
        ("clamp(2, 1, 3)", 2),
        ("mixed({'a': 1, 'b': 'x'}, {'a': 2, 'c': 3})", {"a": 3.0, "b": 0.0, "c": 3.0}),
        ("without({'a': 1, 'b': 2, 'c': 3}, 'a', 'c')", {"b": 2}),
        ("sharing([{'n': 1, 't': ['Sad', 'x']}, {'n': 2, 't': ['y']}, {'n': 3}], 't', ['SAD'])",
         [{"n": 1, "t": ["Sad", "x"]}]),
        ("average([1, 2, 6])", 3.0),
        ("average([])", 0.0),
        ("'No, never' is no", True),
        ("'nothing' is no", False),
        ("' - nein' is no", True),
        ("'I say no' is no", False),
        ("max(1, 2) - min(1, 2)", 1),
    ],
)  # fmt: skip
def test_the_functions_of_expressions(text: str, value: object) -> None:
    assert evaluate(text, {}, "it") == value


def test_a_value_is_an_expression_only_as_a_text() -> None:
    assert value_of("1 + 1", {}, "it") == 2 and value_of(["1 + 1"], {}, "it") == ["1 + 1"]


@pytest.mark.parametrize("text", ["missing", "missing.member", "1 / 0", "[][1]"])
def test_an_expression_without_a_value_names_where_it_stands(text: str) -> None:
    with pytest.raises(UsageError, match=r"^`set x`: `"):
        evaluate(text, {}, "`set x`")
    with pytest.raises(UsageError, match=r"^the template: "):
        fill("{{ " + text + " }}", {}, "the template")


def test_a_filled_template_is_stripped_and_cut() -> None:
    assert fill(" \n{% if 1 %}\n  a\n{% endif %}\n b \n", {}, "t") == "a\n b"
    values: dict[str, Any] = {"x": "x" * 199_999}
    assert len(fill("{{ x }}y", values, "t")) == 200_000
    assert len(fill("{{ x }}yz", values, "t")) == 200_000


def test_topics_are_as_near_as_their_shortest_path() -> None:
    graph = {"a": {"b": 1.0, "c": 5.0}, "b": {"c": 1.0}, "d": {}}
    assert distance(graph, "a", "a") == 0
    assert distance(graph, "a", "c") == 2
    assert distance(graph, "c", "a") == 2
    assert distance(graph, "a", "d") == math.inf
    assert distance({"a": {"b": 1.0}, "b": {"a": 7.0}}, "b", "a") == 7


def test_rare_words_count_more_than_common_ones() -> None:
    passages = {"Sleep": "common words and night", "Work": "common words and office"}
    assert nearest("working in the offices", passages) == "Work"
    assert nearest("common night", passages) == "Sleep"
    assert nearest("it is", passages) == nearest("", passages) == nearest("office", {}) == ""
    # Two common words weigh less than one rare one among many topics.
    many = {f"t{n}": "alpha beta" for n in range(20)} | {"special": "gamma"}
    assert nearest("alpha gamma", many) == "special"
