"""Rules that stop a run: their goals, the order of the tasks, and what one finished item adds."""

import dataclasses
import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from comparisons import compare_within
from filled import task_items
from proctor.errors import UsageError
from proctor.item import Item
from proctor.job import StopRule
from proctor.stats import stopping
from proctor.stats.intervals import Estimate
from proctor.stats.sequential import DifferenceGoal, RankGoal, WidthGoal
from proctor.stats.stopping import (
    StopFollower,
    StopMonitor,
    arranged,
    check_items,
    goals_of,
    is_same_rule,
    level_of,
    rule_resource,
    stop_document,
    stored_rule,
)
from proctor.store import Store

LEVELS = ("a", "b", "c")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(str(tmp_path / "proctor.db")) as opened:
        yield opened


def started(store: Store, made: list[Item], rule: StopRule) -> tuple[list[Item], StopMonitor]:
    ordered, rule = arranged(made, rule, 0)
    row = {"runId": "run", "createdAt": "2026-03-01T12:00:00.000Z", "job": "coding", "status": "running"}
    store.create_batch(row | {"owner": "me"}, ordered, [rule_resource(rule)])
    return ordered, StopMonitor(rule, store.read, "run")


def row(item: Item, status: str = "success", **values: object) -> Any:
    known = {"id": item.id, "status": status, "reason": "completed", "sessionId": None, "costUsd": None}
    whole = known | {"workSeconds": None, "tokensTotal": 0} | values
    return {name: [value] for name, value in whole.items()}


def test_a_rule_has_a_goal_for_each_thing_to_decide():
    assert goals_of(StopRule(decided=True, margin=0.1), LEVELS) == [
        DifferenceGoal(baseline="a", candidate="b", margin=0.1),
        DifferenceGoal(baseline="a", candidate="c", margin=0.1),
    ]
    assert goals_of(StopRule(decided=True, baseline="b"), LEVELS) == [
        DifferenceGoal(baseline="b", candidate="a"),
        DifferenceGoal(baseline="b", candidate="c"),
    ]
    assert goals_of(StopRule(width=0.0), LEVELS[:2]) == [
        WidthGoal(cell="a", width=0.0),
        WidthGoal(cell="b", width=0.0),
    ]
    assert goals_of(StopRule(ranks=2), LEVELS) == [RankGoal(cells=LEVELS, places=2)]
    assert goals_of(StopRule(ranks=0), LEVELS[:2]) == [RankGoal(cells=("a", "b"), places=None)]
    assert goals_of(StopRule(ranks=1), LEVELS[:1]) == []
    with pytest.raises(UsageError, match=r"no item has z as its model\nThere are: a, b, c\."):
        goals_of(StopRule(baseline="z"), LEVELS)


def test_a_rule_that_items_cannot_decide_is_refused():
    check_items(task_items(), StopRule(decided=True))
    check_items(task_items("a"), StopRule(width=0.1))
    for rule in (StopRule(decided=True), StopRule(ranks=0)):
        with pytest.raises(UsageError, match="all items have a as their model, so there is nothing"):
            check_items(task_items("a"), rule)
    with pytest.raises(UsageError, match=r"no item has a factor mood\n.* There are: model, task\."):
        check_items(task_items(), StopRule(by="mood", width=0.1))
    with pytest.raises(UsageError, match=r"There are: none\."):
        check_items([], StopRule(width=0.1))


def test_the_level_of_an_item_is_text_or_json():
    assert [level_of({"n": value}, "n") for value in ("x", 3, [1])] == ["x", "3", "[1]"]
    assert level_of({}, "n") == ""


def test_a_rule_is_the_same_whatever_one_observation_is():
    rule = StopRule(decided=True)
    assert is_same_rule(None, None)
    assert not is_same_rule(rule, None) and not is_same_rule(None, rule)
    assert is_same_rule(rule, dataclasses.replace(rule, unit="repeat"))
    assert not is_same_rule(rule, dataclasses.replace(rule, margin=0.1))


def test_a_rule_is_stored_with_its_run(store):
    rule = StopRule(decided=True, metric="score:tidy", scale=(1.0, 5.0), margin=0.5)
    started(store, task_items(), rule)
    assert stored_rule(store.read, "run") == rule
    document = stop_document(store.read, "run")
    assert document is not None and document["metric"] == "score:tidy" and document["taskCount"] == 3
    store.create_batch({"runId": "other", "createdAt": "", "job": "coding", "status": "running"}, [])
    assert stored_rule(store.read, "other") is None and stop_document(store.read, "other") is None


def test_tasks_are_shuffled_and_repeats_follow_each_other_by_number():
    ordered, rule = arranged(task_items("ab", 12, 2), StopRule(decided=True), 3)
    assert rule.unit == "task"
    places = [(item.prompt, item.repeat, item.model) for item in ordered]
    assert [place[1:] for place in places[:4]] == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]
    assert [place[0] for place in places[::4]] != [f"task {number}" for number in range(12)]
    assert arranged([], rule, 1) == ([], rule)
    single, of_repeats = arranged(task_items("ab", 1, 5), StopRule(decided=True), 1)
    assert of_repeats.unit == "repeat"
    assert [item.model for item in single] == list("ab" * 5)
    assert arranged(task_items("ab", 1, 1), StopRule(decided=True), 1)[1].unit == "task"


def test_an_item_adds_to_its_task_once_and_the_task_when_it_is_complete(store):
    ordered, monitor = started(store, task_items("ab", 2, 2), StopRule(decided=True))
    mine = [item for item in ordered if item.model == "a" and item.prompt == ordered[0].prompt]
    adds = [monitor._add(row(item)) for item in (mine[0], mine[0], mine[1], mine[1])]
    assert adds == [False, False, True, False]
    assert not monitor._add(row(task_items("z")[0]))
    assert [each["tasks"] for each in monitor.document()["intervals"]] == [1, 0]


@pytest.mark.parametrize(
    ("metric", "values", "expected"),
    [
        ("success", {"status": "success"}, 1.0),
        ("success", {"status": "fail"}, 0.0),
        ("success", {"status": "success", "reason": "unchecked"}, None),
        ("cost", {"costUsd": 0.5, "workSeconds": 3.0, "tokensTotal": 7}, 0.5),
        ("time", {"costUsd": 0.5, "workSeconds": 3.0, "tokensTotal": 7}, 3.0),
        ("tokens", {"costUsd": 0.5, "workSeconds": 3.0, "tokensTotal": 7}, 7),
        ("cost", {"costUsd": 0.0}, None),
        ("score:tidy", {}, None),
    ],
)
def test_the_value_of_an_item_is_that_of_the_metric(store, metric, values, expected):
    ordered, monitor = started(store, task_items(), StopRule(decided=True, metric=metric))
    # Scores are not in the row: an item without a session has none.
    assert (monitor._values(row(ordered[0], **values)) or [monitor._scored(None)]) == [expected]


@pytest.mark.parametrize(
    ("metric", "measured", "expected"),
    [
        ("score:tidy", [2.0, 5.0], 3.5),
        ("score:tidy", [9.0], 5.0),
        ("score:tidy", [-3.0, 0.5], 1.0),
        ("score:tidy/depth", [2.0, 5.0], 4.0),
        ("score:depth/tidy", [2.0, 5.0], None),
        ("metric:depth", [2.0, 4.0], 4.0),
    ],
)
def test_scores_are_averaged_on_their_scale_and_of_numbers_the_last_counts(store, metric, measured, expected):
    ordered, monitor = started(store, task_items(), StopRule(decided=True, metric=metric, scale=(1.0, 5.0)))
    scores = [{"evaluator": "tidy", "dimension": "", "value": value} for value in (*measured, None)]
    scores += [{"evaluator": "other", "dimension": "", "value": 3.3}]
    if "/" in metric:
        scores += [{"evaluator": "tidy", "dimension": "depth", "value": 4.0}]
    numbers = [{"name": "depth", "value": value} for value in (*measured, None)]
    numbers += [{"name": "width", "value": 9.0}]
    tables = {"scores": scores, "metrics": numbers}
    monitor._read = SimpleNamespace(of_session=lambda table, session: tables[table])
    assert monitor._values(row(ordered[0], sessionId="s")) == ()
    assert monitor._scored("s") == expected
    assert monitor._scored(None) is None


def test_factors_of_a_large_run_are_parsed_a_page_at_a_time(store, monkeypatch):
    _, monitor = started(store, task_items("ab", 60), StopRule(ranks=0))
    parsed = []
    monkeypatch.setattr(
        "proctor.stats.stopping.json",
        SimpleNamespace(loads=lambda text: (parsed.append(text), json.loads(text))[1], dumps=json.dumps),
    )

    again = StopMonitor(monitor.rule, store.read, "run")

    assert len(parsed) == 1 and (again.levels, again.task_count) == (monitor.levels, 60)


def test_what_is_decided_is_not_wanted_any_more(store):
    ordered, monitor = started(store, task_items("ab", 60), StopRule(decided=True))
    assert not monitor.is_decided and all(monitor.wants(item.id) for item in ordered)
    outcome = {"a": "fail", "b": "success"}
    for item in ordered:
        ended = SimpleNamespace(status=outcome[item.model], reason="completed")
        monitor.finished(
            SimpleNamespace(
                id=item.id, outcome=ended, session_id=None, cost_usd=None, work_seconds=None, tokens=0
            )
        )
    assert monitor.is_decided and not monitor.wants(ordered[0].id)
    assert monitor.wants("of no level")
    state = monitor.document()
    assert (state["isDecided"], state["decisions"][0]["outcome"]) == (True, "better")
    assert [(each["name"], each["value"], each["isUndecided"]) for each in state["intervals"]] == [
        (level, value, False) for level, value in sorted({"a": 0.0, "b": 1.0}.items())
    ]
    difference = monitor.difference("a", "b")
    assert difference.value == 1.0 and difference.low > 0.5


def test_costs_are_compared_as_ratios_of_which_less_is_better(store):
    ordered, monitor = started(store, task_items("ab", 60), StopRule(decided=True, metric="cost"))
    for number, item in enumerate(ordered):
        monitor._add(row(item, costUsd=(1.0 if item.model == "a" else 0.25) * (1 + number % 3 / 10)))
    (decision,) = monitor.decisions()
    assert decision.outcome == "better"
    assert monitor.difference("a", "b").value == pytest.approx(0.25, rel=0.1)


def test_a_follower_looks_again_after_a_second_or_when_items_are_added_or_repeated(store, monkeypatch):
    _, monitor = started(store, task_items("ab", 5), StopRule(decided=True))
    clock, made = [100.0], list[int]()
    monkeypatch.setattr(stopping, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    class Counted(StopMonitor):
        def __init__(self, *arguments: Any) -> None:
            made.append(1)
            super().__init__(*arguments)

    monkeypatch.setattr(stopping, "StopMonitor", Counted)
    follower = StopFollower(monitor.rule, store.read, "run")
    first = follower.document(10, 4)
    clock[0] += 0.99
    assert follower.document(10, 5) is first
    clock[0] += 0.01
    second = follower.document(10, 5)
    assert second is not first and len(made) == 1
    clock[0] += 9.0
    assert follower.document(10, 5) is second, "nothing has ended"
    assert follower.document(10, 4) is not second and len(made) == 2, "one is executed again"
    third = follower.document(12, 4)
    assert len(made) == 3, "there are more"
    assert follower.document(12, 12) is not third and len(made) == 3, "all have ended"


def test_a_follower_that_failed_reads_anew(store, monkeypatch):
    _, monitor = started(store, task_items("ab", 5), StopRule(decided=True))
    follower = StopFollower(monitor.rule, store.read, "run")
    with monkeypatch.context() as patch:
        patch.setattr(StopMonitor, "document", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            follower.document(10, 4)
    assert follower.document(10, 4)["intervals"]


def test_a_follower_of_a_large_run_reads_a_tenth_of_the_time(store, monkeypatch):
    _, monitor = started(store, task_items("ab", 5), StopRule(decided=True))
    times = iter([100.0, 101.0, 110.9, 111.0, 112.0])
    monkeypatch.setattr(stopping, "time", SimpleNamespace(monotonic=lambda: next(times)))
    follower = StopFollower(monitor.rule, store.read, "run")
    first = follower.document(10, 4)
    assert follower.document(10, 5) is first, "9.9 s after a read of one second"
    assert follower.document(10, 5) is not first


def test_repeats_of_a_single_task_are_followed_one_by_one(store):
    ordered, monitor = started(store, task_items("ab", 1, 5), StopRule(decided=True))
    assert (monitor.rule.unit, monitor.task_count) == ("repeat", 5)
    assert monitor._add(row(ordered[0]))
    assert [each["tasks"] for each in monitor.document()["intervals"]] == [1, 0]


def test_a_follower_sees_items_that_have_ended_since(store):
    ordered, monitor = started(store, task_items("ab", 2), StopRule(decided=True))
    follower = StopFollower(monitor.rule, store.read, "run")
    assert [each["tasks"] for each in follower.document(4, 0)["intervals"]] == [0, 0]
    writer = store.writer()
    for item in ordered:
        writer.change("batch_items", ("run", item.id), {"status": "success", "reason": "completed"})
    writer.close()
    assert [each["tasks"] for each in follower.document(4, 4)["intervals"]] == [2, 2]


def test_a_comparison_of_a_run_that_could_stop_early_is_valid_at_any_time(store):
    """Metrics on a scale and costs have confidence sequences; of others a remark says that there are none."""
    ordered, _ = started(store, task_items("ab", 40), StopRule(decided=True))
    writer = store.writer()
    for number, item in enumerate(ordered):
        session = f"s{number}"
        row = {"id": session, "runId": "run", "itemId": item.id, "job": "coding", "status": "success"}
        writer.add("sessions", (session,), row)
        depth = 10.0 * number + (5.0 if item.model == "a" else 0.0)
        writer.append("metrics", (session, 1, 0, "depth", depth, None))
        status = "success" if item.model == "a" or number % 3 else "fail"
        cost = (0.5 if item.model == "a" else 0.25) * (1 + number % 3 / 10)
        changes = {"status": status, "reason": "completed", "costUsd": cost, "sessionId": session}
        writer.change("batch_items", ("run", item.id), changes)
    writer.close()

    compared = compare_within(
        store.read,
        "run",
        "model",
        datetime(2026, 3, 2, tzinfo=UTC),
        metrics=["success", "cost", "metric:depth"],
    )

    found = {
        contrast.metric: (
            contrast.difference.is_anytime,
            any("too narrow" in each for each in contrast.remarks),
        )
        for contrast in compared.contrasts
    }
    assert found == {"success": (True, False), "cost": (True, False), "metric:depth": (False, True)}


def test_who_leads_is_told_with_its_rivals_and_what_would_decide_it(store):
    ordered, monitor = started(store, task_items("abc", 60), StopRule(ranks=1))
    assert monitor.standing() is None, "no task counts yet"
    values = {"a": 1.0, "b": 0.0, "c": 1.0}
    for number, item in enumerate(ordered[:90]):
        passed = values[item.model] and (item.model != "c" or number % 10)
        monitor._add(row(item, "success" if passed else "fail"))
    standing = monitor.standing()
    assert (standing.leader, standing.rivals, standing.unit) == ("a", ("c",), "task")
    assert (standing.tasks, standing.left) == (30, 30)
    assert standing.needs is not None and standing.needs > 0
    for item in ordered[90:]:
        monitor._add(row(item, "success" if item.model == "a" else "fail"))
    decided = monitor.standing()
    assert (decided.leader, decided.rivals, decided.needs, decided.left) == ("a", (), 0, 0)


def test_tasks_of_the_leader_that_ended_in_an_infrastructure_error_are_not_among_those_of_its_rate(store):
    ordered, monitor = started(store, task_items("ab", 40), StopRule(ranks=1))
    for number, item in enumerate(ordered):
        status = "error" if item.model == "a" and number < 20 else "success" if item.model == "a" else "fail"
        monitor._add(row(item, status))

    standing = monitor.standing()

    assert standing.leader == "a"
    assert standing.tasks == sum(item.model == "a" for item in ordered[20:])
    assert standing.left == 0


def test_of_costs_the_lowest_leads_and_a_rule_without_ranks_has_no_leader(store):
    ordered, monitor = started(store, task_items("ab", 40), StopRule(ranks=1, metric="cost"))
    for number, item in enumerate(ordered):
        monitor._add(row(item, costUsd=(1.0 if item.model == "a" else 0.25) * (1 + number % 3 / 10)))
    assert monitor.standing().leader == "b"
    monitor.rule = StopRule(decided=True)
    assert monitor.standing() is None


def test_a_level_that_lacks_a_task_is_not_held_up_by_it(store):
    items = [item for item in task_items("ab", 12) if (item.model, item.prompt) != ("a", "task 5")]
    ordered, monitor = started(store, items, StopRule(width=0.1))
    for item in ordered:
        monitor._add(row(item))
    intervals = monitor.intervals()
    assert {level: (one.n, one.left_out) for level, one in intervals.items()} == {"a": (11, 1), "b": (12, 0)}
    assert monitor.task_count == 12


def test_a_monitor_refuses_a_rule_that_its_items_cannot_decide(store):
    started(store, task_items("ab", 2), StopRule(decided=True))
    for rule in (StopRule(by="mood", decided=True), StopRule(decided=True, baseline="z")):
        with pytest.raises(UsageError):
            StopMonitor(rule, store.read, "run")


def test_tasks_are_in_the_random_order_of_a_seed_and_repeats_of_a_task_in_theirs():
    items = task_items("ab", 7, 2)
    places = list(range(7))
    random.Random(3).shuffle(places)

    ordered, _ = arranged(items, StopRule(decided=True), 3)

    prompts = list(dict.fromkeys(item.prompt for item in items))
    assert list(dict.fromkeys(item.prompt for item in ordered)) == [
        prompt for _, prompt in sorted(zip(places, prompts, strict=True))
    ]
    first = [(item.repeat, item.model) for item in ordered[:4]]
    assert first == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]


@pytest.mark.parametrize(
    ("metric", "expected"),
    [("success", (0.0, 1.0)), ("cost", (0.0, 1.0)), ("score:tidy", (1.0, 5.0)), ("metric:depth", (1.0, 5.0))],
)
def test_values_have_the_scale_of_the_rule_unless_they_are_successes_or_amounts(store, metric, expected):
    _, monitor = started(store, task_items(), StopRule(decided=True, metric=metric, scale=(1.0, 5.0)))
    assert (monitor._monitor.lo, monitor._monitor.hi) == expected


@pytest.mark.parametrize(
    ("needs", "expected"),
    [
        ({"b": 5, "c": 9}, (("b", "c"), 9)),
        ({"b": 9, "c": 5}, (("b", "c"), 9)),
        ({"b": 0, "c": 5}, (("c",), 5)),
        ({"b": None, "c": 5}, (("b", "c"), None)),
        ({"b": 0, "c": 0}, ((), 0)),
    ],
)
def test_the_leader_is_known_when_the_last_rival_is_separated(store, needs, expected):
    _, monitor = started(store, task_items(LEVELS, 5), StopRule(ranks=1))
    values = {"a": 0.9, "b": 0.5, "c": 0.4}
    monitor._monitor = SimpleNamespace(
        estimate=lambda name: Estimate(value=values[name], n=2),
        tasks_to_separate=lambda leader, name: needs[name],
        finished=lambda name: 2,
    )
    standing = monitor.standing()
    assert (standing.leader, standing.tasks, standing.left) == ("a", 2, 3)
    assert (standing.rivals, standing.needs) == expected
