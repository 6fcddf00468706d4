"""Validation of plans: what is wrong in words, at its place, and with a remedy."""

from typing import Annotated, Literal

import pytest
from pydantic import Field, TypeAdapter, ValidationError

from proctor.errors import UsageError
from proctor.plan.validate import (
    Expectation,
    PlanModel,
    Price,
    ResourcesValue,
    SandboxValue,
    Seconds,
    Seed,
    StopWhen,
    Text,
    Texts,
    Usd,
    check_shape,
    did_you_mean,
    sections_of,
    stop_settings,
    subject,
    suggestion,
    value_text,
)
from proctor.plan.yaml_loader import read_source


class Entry(PlanModel):
    name: Text
    time_limit: Seconds | None = None
    mode: Literal["fast", "slow"] = "fast"
    count: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    ratio: float = 0.5
    on: bool = False
    tags: list[str] = Field(default_factory=list)
    token: str = ""
    only: Literal["this"] = "this"


class Plan(PlanModel):
    title: Text
    items: Annotated[list[Entry], Field(min_length=1)]


MAY_HAVE = "An item may have: name, timeLimit, mode, count, ratio, on, tags, token, only."


vocabulary = sections_of(Plan, "plan")


def problems(text: str) -> list[str]:
    result = check_shape(read_source(text, file="p"), Plan, vocabulary)
    assert len(result.paths) <= len(result.problems)
    return [str(problem) for problem in result.problems]


QUOTES, TRUTH = "Put it in quotes.", "Write `true` or `false`, without quotes."


@pytest.mark.parametrize(
    ("entry", "column", "problem", "remedy"),
    [
        ("{}", 20, "item 1 has no `name`", "An item needs one. Add `name`."),
        ("{name: 3}", 27, "`name` of item 1 should be text, not the number 3", QUOTES),
        ("{name: [a]}", 27, "`name` of item 1 should be text, not a list", ""),
        ("{name: ' '}", 27, "`name` of item 1 should not be empty", ""),
        ("x", 20, "item 1 should be a mapping of names to values, not the text 'x'", ""),
        ("tme_limit: 1", 30, "item 1 has no setting `tme_limit`", f"Did you mean `timeLimit`? {MAY_HAVE}"),
        ("zzzz: 1", 30, "item 1 has no setting `zzzz`", MAY_HAVE),
        ("timeLimit: 0", 41, "should be more than 0, not the number 0", ""),
        ("timeLimit: .inf", 41, "should be a finite number, not the number inf", ""),
        ("mode: fat", 36, "should be one of `fast`, `slow`, not the text 'fat'", "Did you mean `fast`?"),
        ("mode: x", 36, "should be one of `fast`, `slow`, not the text 'x'", ""),
        ("only: x", 36, "should be `this`, not the text 'x'", ""),
        ("count: 0", 37, "should be at least 1, not the number 0", ""),
        ("count: 1000001", 37, "should be at most 1,000,000, not the number 1000001", ""),
        ("count: 1.5", 37, "should be a whole number, not the number 1.5", ""),
        ("ratio: x", 37, "should be a number, not the text 'x'", ""),
        (
            "on: 1",
            34,
            "should be true or false, not the number 1",
            "Write `true` or `false`, without quotes.",
        ),
        ("tags: x", 36, "should be a list, not the text 'x'", ""),
        ("tags: [x, true]", 40, "`tags[2]` of item 1 should be text, not true", QUOTES),
        ("tags: [~]", 37, "`tags[1]` of item 1 should be text, not nothing", ""),
        ("token: 5", 37, "should be text, not a number or a truth value", QUOTES),
        ("token: {x: y}", 37, "should be text, not a mapping", ""),
    ],
)
def test_a_value_that_is_not_right_is_explained(entry: str, column: int, problem: str, remedy: str) -> None:
    setting = entry.partition(":")[0]
    whole = f"{{name: a, {entry}}}" if setting.isidentifier() and setting != entry else entry
    text = f"{{title: t, items: [{whole}]}}"
    (found,) = check_shape(read_source(text, file="p"), Plan, vocabulary).problems
    assert (found.at.line, found.at.column) == (1, column)
    expected = f"`{setting}` of item 1 {problem}" if problem.startswith("should") else problem
    assert (found.problem, found.remedy) == (expected, remedy)


def test_problems_of_the_text_come_with_those_of_its_values() -> None:
    found = problems("title: t\ntitle: u\nitems: [{}]\n")
    assert [each.split("\n")[0] for each in found] == [
        "p:2:1: `title` is given twice",
        "p:3:9: item 1 has no `name`",
    ]
    assert problems("title: t\nitems: [{name: a}]\n") == []


def test_what_stands_in_no_section_is_a_part_of_the_file() -> None:
    assert subject(("a", 0, "b"), lambda _: None) == "`a[1].b` of the file"
    assert subject((), vocabulary) == "the plan"
    assert subject(("items", 2), vocabulary) == "item 3"
    assert subject(("x" * 70,), vocabulary) == f"`{'x' * 59}…` of the plan"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "nothing"),
        (True, "true"),
        (False, "false"),
        (1.5, "the number 1.5"),
        (10**50, f"the number 1{'0' * 38}…"),
        ("a" * 50, f"the text '{'a' * 38}…"),
        ([1], "a list"),
        ({}, "a mapping"),
    ],
)
def test_a_value_in_a_message_is_short_and_has_its_type(value: object, text: str) -> None:
    assert value_text(value) == text


def test_names_are_suggested_whatever_their_case_and_separators() -> None:
    known = ["timeoutSec", "model", "max_tokens"]
    assert suggestion("timeout_sec", known) == suggestion("TIMEOUT-SECS", known) == "timeoutSec"
    assert suggestion("modle", known) == "model"
    assert suggestion("zzz", known) is None
    # Seven of ten letters are near enough.
    assert suggestion("abcdefgxyz", ["abcdefgklm"]) == "abcdefgklm"
    assert suggestion("abcdefwxyz", ["abcdefgklm"]) is None
    assert suggestion("m" * 70, ["m" * 60]) == "m" * 60
    assert did_you_mean("modle", known) == "Did you mean `model`?"
    assert did_you_mean("zzz", known) == ""


GOAL = {"decided": True}


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ({}, "names no goal: give `pick`, `check`, `decided: true`, `width` or `ranks`"),
        ({"decided": False}, "names no goal"),
        ({**GOAL, "scale": [1.0, 1.0]}, "has a `scale` whose ends are not in order"),
        ({"pick": 0.1, "scale": [1.0, 1.0]}, "has a `scale` whose ends are not in order"),
        ({"check": 0.1, "metric": "score:tidy"}, r"ends are unknown: add `scale: \[WORST, BEST\]`"),
        ({"pick": 0.1, "metric": "metric:words"}, r"ends are unknown: add `scale: \[WORST, BEST\]`"),
        ({**GOAL, "scale": [2.0, 1.0]}, "has a `scale` whose ends are not in order"),
        ({**GOAL, "scale": [2.0]}, "at least 2 items"),
        ({**GOAL, "scale": [1.0, 2.0, 3.0]}, "at most 2 items"),
        ({**GOAL, "margin": 0.0}, "greater than 0"),
        ({"width": 0.0}, "greater than 0"),
        ({"ranks": -1}, "greater than or equal to 0"),
        ({**GOAL, "confidence": 0.5}, "greater than 0.5"),
        ({**GOAL, "confidence": 1.0}, "less than 1"),
        ({**GOAL, "by": " "}, "should not be empty"),
    ],
)
def test_a_rule_to_stop_that_cannot_be_is_refused(rule: dict[str, object], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        StopWhen.model_validate(rule)


def test_settings_of_a_rule_to_stop_are_those_that_were_given() -> None:
    assert stop_settings(None) is None
    entry = {"decided": True, "width": None, "ranks": "settled", "scale": [1, 5]}
    assert stop_settings(entry) == {"decided": True, "ranks": 0, "scale": (1.0, 5.0)}
    assert stop_settings({"ranks": 2}) == {"ranks": 2}


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        (Usd, [0.01], [0, -1.0, float("inf"), float("nan")]),
        (Price, [3.5], [-0.1, float("inf")]),
        (Seconds, [0.5], [0.0, float("nan")]),
        (Seed, [2**63 - 1, 1 - 2**63], [2**63, -(2**63)]),
        (Texts, ["a", ["a", "b"]], [[], "", [" "]]),
        (SandboxValue, ["none"], ["nothing"]),
        (ResourcesValue, [{"cpu": 1}], [{"cpus": 1}]),
        (
            Expectation,
            [{"contains": "a"}, {"regex": "a+"}, {"json_schema": {"a": [1]}}],
            [
                {"regex": "("},
                {"json_schema": {"a": [float("inf")]}},
                {"json_schema": {"a": {"b": float("nan")}}},
                {"contain": "a"},
            ],
        ),
    ],
)
def test_shared_types_take_what_makes_sense(kind: object, right: list[object], wrong: list[object]) -> None:
    adapter: TypeAdapter[object] = TypeAdapter(kind)
    for value in right:
        assert adapter.validate_python(value)
    for value in wrong:
        with pytest.raises((ValidationError, UsageError)):
            adapter.validate_python(value)
