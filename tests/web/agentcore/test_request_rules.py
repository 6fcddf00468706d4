"""Bounds of shapes and the rules beyond them, value by value."""

from datetime import UTC, datetime
from typing import Any

import pytest

from proctor.agentcore import request_rules
from proctor.agentcore.shapes import (
    BATCH,
    EVALUATOR_NAMES,
    Anything,
    Flag,
    Many,
    MapShape,
    Names,
    Number,
    ObjectShape,
    Structure,
    Text,
    TimestampShape,
    Union,
    is_managed,
    moment_of,
    new_id,
    read_arn,
)


def violations(shape: Any, value: object, name: str = "it") -> list[tuple[str, str]]:
    return [
        (violation.name, violation.constraint.removeprefix("Member must "))
        for violation in shape.violations(value, name)
    ]


@pytest.mark.parametrize(
    ("shape", "good"),
    [
        (Text(least=2, most=3), ["ab", "abc"]),
        (Text(pattern="[a-z]"), ["a"]),
        (Text(allowed=("A", "B")), ["A", "B"]),
        (Text(), [""]),
        (Number(least=1, most=2), [1, 2, 1.5]),
        (Number(whole=True), [-(10**30), 0]),
        (Flag(), [True, False]),
        (TimestampShape(), [0, 1.5, "2026-01-01T00:00:00Z", "2026-01-01T00:00:00+01:00"]),
        (Anything(), [None, 1, "x", []]),
        (ObjectShape(), [{}, {"a": 1}]),
        (ObjectShape(or_text=True), [{}, "x"]),
        (Many(of=Text(), least=1, most=2), [["a"], ["a", "b"]]),
        (MapShape(most=1), [{}, {"a": "b"}]),
        (Structure({"a": Text()}), [{}, {"a": None}, {"a": "x", "other": 1}]),
        (Union({"a": Text(), "b": Flag()}), [{"a": "x"}, {"b": True}, {"a": "x", "b": None}]),
    ],
)
def test_values_within_the_bounds_are_taken(shape: Any, good: list[object]) -> None:
    assert [violations(shape, value) for value in good] == [[]] * len(good)


@pytest.mark.parametrize(
    ("shape", "value", "constraint"),
    [
        (Text(least=2), "a", "Member must have length greater than or equal to 2"),
        (Text(most=2), "abc", "Member must have length less than or equal to 2"),
        (Text(pattern="[a-z]+"), "a\n", "Member must satisfy regular expression pattern: [a-z]+"),
        (Text(allowed=("A", "B")), "C", "Member must satisfy enum value set: [A, B]"),
        (Text(), 1, "Member must be a string"),
        (Number(least=1), 0, "Member must have value greater than or equal to 1"),
        (Number(most=1), 10**400, "Member must have value less than or equal to 1"),
        (Number(whole=True), 1.5, "Member must be an integer"),
        (Number(), True, "Member must be a number"),
        (Flag(), "true", "Member must be a boolean"),
        (TimestampShape(), "yesterday", "Member must be a timestamp"),
        (TimestampShape(), "2026-01-01T00:00:00", "Member must be a timestamp"),
        (TimestampShape(), 10**30, "Member must be a timestamp"),
        (Many(of=Text()), {}, "Member must be a list"),
        (Many(of=Text(), most=1), ["a", "b"], "Member must have length less than or equal to 1"),
        (MapShape(most=1), {"a": "b", "c": "d"}, "Member must have length less than or equal to 1"),
        (Union({"a": Text(), "b": Text()}), {}, "Member must have exactly one of: a, b"),
        (Union({"a": Text(), "b": Text()}), {"a": "x", "b": "y"}, "Member must have exactly one of: a, b"),
        (Union({"a": Text(), "b": Text()}), {"c": "x"}, "Member must have exactly one of: a, b"),
        (Structure({}), [], "Member must be an object"),
        (Number(least=1), 0.999, "Member must have value greater than or equal to 1"),
        (Number(), float("inf"), "Member must be a number"),
        (Number(whole=True), True, "Member must be an integer"),
        (TimestampShape(), True, "Member must be a timestamp"),
        (ObjectShape(), "x", "Member must be an object"),
        (ObjectShape(or_text=True), "", "Member must be a string that is not empty or an object"),
        (Many(of=Text(), least=1), [], "Member must have length greater than or equal to 1"),
        (MapShape(), [], "Member must be a map"),
        (Union({"a": Text()}), {"a": None}, "Member must have exactly one of: a"),
    ],
)
def test_a_member_that_is_not_as_it_should_be_is_told_in_the_services_words(shape, value, constraint):
    assert violations(shape, value) == [("it", constraint.removeprefix("Member must "))]


def test_members_are_named_by_their_path() -> None:
    expected = [("it", "have length less than or equal to 2"), ("it.2.member", "be a boolean")]
    assert violations(Many(of=Flag(), most=2), [True, 1, 1]) == expected
    assert violations(Many(of=Text()), [None]) == [("it.1.member", "not be null")]
    assert violations(Many(of=Anything()), [None]) == []
    shape = MapShape(key=Text(most=1), value=Text(most=1), most=2)
    assert violations(shape, {"a": "xx", "bb": None, "c": "xx"}) == [
        ("it", "have length less than or equal to 2"),
        ("it.a.member", "have length less than or equal to 1"),
        ("it.key", "have length less than or equal to 1"),
        ("it.bb.member", "not be null"),
    ]
    assert violations(MapShape(value=Text(most=0)), {"k" * 200: "x"})[0][0] == f"it.{'k' * 128}.member"
    nested = Structure({"a": Structure({"b": Text()}, required=["b"])}, required=["a"])
    assert violations(nested, {}, "") == [("a", "not be null")]
    assert violations(nested, {"a": {}}, "") == [("a.b", "not be null")]
    assert violations(nested, {"a": {}}) == [("it.a.b", "not be null")]
    assert violations(Union({"a": nested}), {"a": {}}) == [("it.a.a", "not be null")]


@pytest.mark.parametrize(
    ("value", "moment"),
    [
        ("2026-01-01T02:00:00+02:00", datetime(2026, 1, 1, tzinfo=UTC)),
        (1_767_225_600, datetime(2026, 1, 1, tzinfo=UTC)),
        (1_767_225_600.5, datetime(2026, 1, 1, 0, 0, 0, 500_000, tzinfo=UTC)),
        ("2026-01-01T00:00:00", None),
        ("x", None),
        (10**30, None),
        (False, None),
        (None, None),
    ],
)
def test_a_moment_has_a_time_zone_or_is_seconds(value: object, moment: datetime | None) -> None:
    assert moment_of(value) == moment


def test_ids_and_arns_name_resources() -> None:
    names = Names(region="eu-west-1", account="123456789012")
    arn = names.arn(BATCH, "night-0123456789")
    assert arn == "arn:aws:bedrock-agentcore:eu-west-1:123456789012:batch-evaluate/night-0123456789"
    assert read_arn(arn) == (BATCH, "night-0123456789")
    builtin = names.arn(EVALUATOR_NAMES, "Builtin.Helpfulness")
    assert builtin == "arn:aws:bedrock-agentcore:::evaluator/Builtin.Helpfulness"
    assert read_arn(builtin) == (EVALUATOR_NAMES, "Builtin.Helpfulness")
    assert names.arn(BATCH, "Builtin.X").endswith(":123456789012:batch-evaluate/Builtin.X")
    for wrong in (
        "",
        "x",
        f"{arn}/x",
        arn.replace("bedrock-agentcore", "s3"),
        arn.replace("batch-evaluate", "x"),
    ):
        assert read_arn(wrong) is None
    expected = [True, True, False, False]
    assert [is_managed(each) for each in ("Builtin.X", "ThirdParty.X.Y", "mine-1", "builtin.X")] == expected
    made = new_id("name")
    assert made.startswith("name-") and len(made) == 15 and made[5:].isalnum() and new_id("name") != made
    assert set(new_id("name", "AB")[5:]) <= set("AB")


# Rules beyond shapes

HIGH, LOW = "2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z"
LOGS, ONLINE = "dataSourceConfig.cloudWatchLogs", "dataSourceConfig.onlineEvaluationConfigSource"


def logs(**filters):
    return {"cloudWatchLogs": {"logGroupNames": ["a"], "filterConfig": filters or None}}


def online(times):
    return {"onlineEvaluationConfigSource": {"timeRange": times}}


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ({"cloudWatchLogs": {"logGroupNamePrefixes": ["a"]}}, []),
        ({"cloudWatchLogs": {"logGroupNames": ["a"], "logGroupNamePrefixes": []}}, []),
        ({"cloudWatchLogs": {"logGroupNames": ["a"], "logGroupNamePrefixes": ["b"]}}, [LOGS]),
        ({"cloudWatchLogs": {}}, [LOGS]),
        (logs(), []),
        (logs(timeRange={"startTime": LOW, "endTime": HIGH}), []),
        (logs(timeRange={"startTime": HIGH, "endTime": LOW}), [f"{LOGS}.filterConfig.timeRange"]),
        (logs(timeRange={"startTime": LOW, "endTime": LOW}), [f"{LOGS}.filterConfig.timeRange"]),
        (logs(timeRange={"startTime": HIGH}), []),
        (logs(timeRange={"endTime": LOW}), []),
        (online({"startTime": HIGH, "endTime": LOW}), [f"{ONLINE}.timeRange"]),
        (online({"startTime": LOW, "endTime": HIGH}), []),
        (online(None), []),
    ],
)
def test_sessions_come_from_named_groups_or_prefixes_in_an_ordered_time(source, names) -> None:
    found = request_rules.source_violations({"dataSourceConfig": source})
    assert [violation.name for violation in found] == names


@pytest.mark.parametrize(
    ("output", "found"),
    [
        ({"logGroupName": "/mine"}, []),
        ({"logGroupName": "/aws/bedrock-agentcore/evaluations/batch-evaluations/results/default"}, []),
        (
            {"logGroupName": "/aws/bedrock-agentcore/evaluations/x"},
            [("logGroupName", "Member must not begin with /aws/bedrock-agentcore/evaluations/")],
        ),
        (
            {"logGroupName": "/mine", "resultDestination": "SOURCE_LOG_GROUP"},
            [("logGroupName", "Member must be absent when resultDestination is SOURCE_LOG_GROUP")],
        ),
        ({"logGroupName": "", "resultDestination": "SOURCE_LOG_GROUP"}, []),
        ({"logGroupName": "/mine", "resultDestination": "DEDICATED_LOG_GROUP"}, []),
        ({"metricsNamespace": "AWS/x"}, [("metricsNamespace", "Member must not begin with AWS/")]),
        ({"metricsNamespace": None, "logGroupName": None}, []),
    ],
)
def test_results_go_to_a_group_that_is_the_callers(output, found) -> None:
    violations = request_rules.output_violations({"outputConfig": {"cloudWatchConfig": output}})
    expected = [(f"outputConfig.cloudWatchConfig.{name}", text) for name, text in found]
    assert [(violation.name, violation.constraint) for violation in violations] == expected
