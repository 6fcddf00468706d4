"""Rules that stop a run: their goals, the order of the tasks, and what finished items decide."""

import random
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from comparisons import compare_within
from filled import task_items
from proctor.errors import UsageError
from proctor.item import Item
from proctor.results import stopping
from proctor.results.stopping import (
    StopFollower,
    StopMonitor,
    arranged,
    check_items,
    goals_of,
    is_same_rule,
    rule_resource,
    stop_document,
    stored_rule,
)
from proctor.score import Score
from proctor.session import Metric
from proctor.stats.sequential import DifferenceGoal, Monitor, RankGoal, WidthGoal
from proctor.stop_rule import StopRule
from proctor.store import Recorder, Store

LEVELS = ("a", "b", "c")
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def store(proctor_store: Store) -> Store:
    return proctor_store


def started(store: Store, made: list[Item], rule: StopRule) -> tuple[list[Item], StopMonitor]:
    ordered, rule = arranged(made, rule, 0, store.read)
    row = {"runId": "run", "createdAt": "2026-03-01T12:00:00.000Z", "job": "coding", "status": "running"}
    store.create_batch(row | {"owner": "me"}, ordered, [rule_resource(rule)])
    return ordered, StopMonitor(rule, store.read, "run")


def finish(store: Store, items: Iterable[Item], status: str = "success") -> None:
    writer = store.writer()
    for item in items:
        writer.change("batch_items", ("run", item.id), {"status": status, "reason": "completed"})
    writer.close()


def end(
    store: Store,
    monitor: StopMonitor,
    item: Item,
    status: str = "success",
    reason: str = "completed",
    session_id: str = "",
    **amounts: object,
) -> None:
    """End an item, as a run does: with its row and its session, where it has amounts, committed before."""
    if amounts:
        seconds = {"workSeconds": amounts.pop("workSeconds", 0.0)}
        session = {"id": item.id, "runId": "run", "itemId": item.id, "job": "coding", "status": status}
        writer = store.writer()
        writer.add("sessions", (item.id,), session | seconds)
        row = {"status": status, "reason": reason, "sessionId": item.id, **amounts}
        writer.change("batch_items", ("run", item.id), row)
        writer.close()
    monitor.finished(item.id, status, reason, session_id)


def tasks_of(state: object) -> list[int]:
    return [each["tasks"] for each in state["intervals"]]  # type: ignore[index]


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


def test_a_rule_that_items_cannot_decide_is_refused(store):
    check_items(task_items(), StopRule(decided=True), store.read)
    check_items(task_items("a"), StopRule(width=0.1), store.read)
    for rule in (StopRule(decided=True), StopRule(ranks=0)):
        with pytest.raises(UsageError, match="all items have a as their model, so there is nothing"):
            check_items(task_items("a"), rule, store.read)
    with pytest.raises(UsageError, match=r"no item has a factor mood\n.* There are: model, task\."):
        check_items(task_items(), StopRule(by="mood", width=0.1), store.read)
    with pytest.raises(UsageError, match=r"There are: none\."):
        check_items([], StopRule(width=0.1), store.read)
    with pytest.raises(UsageError, match=r"no item has z as its model\nThere are: a, b\."):
        check_items(task_items("ab"), StopRule(baseline="z"), store.read)
    started(store, task_items("ab", 2), StopRule(decided=True))
    with pytest.raises(UsageError, match="no item has a factor mood"):
        StopMonitor(StopRule(by="mood", decided=True), store.read, "run")


def test_a_rule_is_stored_with_its_run_and_the_same_whatever_one_observation_is(store):
    rule = StopRule(decided=True, metric="score:tidy", scale=(1.0, 5.0), margin=0.5)
    started(store, task_items(), rule)
    assert stored_rule(store.read, "run") == replace(rule, tasks=3)
    document = stop_document(store.read, "run")
    assert document is not None and document["metric"] == "score:tidy" and document["taskCount"] == 3
    store.create_batch({"runId": "other", "createdAt": "", "job": "coding", "status": "running"}, [])
    assert stored_rule(store.read, "other") is None and stop_document(store.read, "other") is None
    assert is_same_rule(None, None) and is_same_rule(rule, replace(rule, unit="repeat"))
    for other in (None, replace(rule, margin=0.1)):
        assert not is_same_rule(rule, other) and not is_same_rule(other, rule)


def with_baseline(store: Store, items: list[Item], succeeded: list[Item]) -> None:
    """The finished run `base`."""
    row = {"runId": "base", "createdAt": "2026-03-01T12:00:00.000Z", "job": "coding", "status": "completed"}
    store.create_batch(row, items)
    writer = store.writer()
    for item in items:
        status = "success" if item in succeeded else "fail"
        writer.change("batch_items", ("base", item.id), {"status": status, "reason": "completed"})
    writer.close()


@pytest.mark.parametrize("agents", [("amp",), ("amp", "codex")])
def test_a_stored_baseline_is_read_task_by_task_and_agent_by_agent(store, agents):
    earlier = [replace(item, agent=agent) for item in task_items("a", 40) for agent in ("amp", "codex")]
    right = [item for item in earlier if item.agent == "amp" and item.prompt[-1] in "0369"]
    with_baseline(store, earlier, right)
    items = [replace(item, agent=agent) for item in task_items("b", 40) for agent in agents]

    ordered, rule = arranged(items, StopRule(check=0.2, baseline="base"), 0, store.read)

    known = {(item.agent, item.prompt): float(item in right) for item in earlier}
    values = [known[item.agent, item.prompt] for item in ordered]
    assert rule.stored == {"b": [(value, value) for value in values]}


def test_repeats_of_a_single_task_are_checked_against_those_of_a_stored_run(store):
    earlier = task_items("a", 1, 60)
    with_baseline(store, earlier, earlier)
    rule = StopRule(check=0.2, baseline="base")

    assert arranged(task_items("b", 1, 60), rule, 0, store.read)[1].stored == {"b": [(1.0, 1.0)] * 60}
    other = [replace(item, prompt="another task") for item in task_items("b", 1, 60)]
    with pytest.raises(UsageError, match="has finished none of the tasks of this plan"):
        arranged(other, rule, 0, store.read)


def test_the_tasks_that_a_check_needs_are_those_of_its_confidence(store):
    check_items(task_items("ab", 45), StopRule(check=0.1), store.read)
    with pytest.raises(UsageError, match="needs at least 54 tasks to pass"):
        check_items(task_items("ab", 45), StopRule(check=0.1, confidence=0.99), store.read)


@pytest.mark.parametrize("rule", [StopRule(pick=0.3), StopRule(check=0.3)])
def test_levels_that_share_too_few_tasks_are_refused(store, rule):
    missing = [("b", task) for task in range(7, 40)] + [("c", 3)]
    with pytest.raises(UsageError, match=r"the plan has 40, of which a model and another share [67]"):
        check_items(task_items("abc", 40, missing=missing), rule, store.read)


def test_tasks_are_in_the_random_order_of_a_seed_and_their_repeats_follow_by_number(store):
    items = task_items("ab", 7, 2)
    places = list(range(7))
    random.Random(3).shuffle(places)

    ordered, rule = arranged(items, StopRule(decided=True), 3, store.read)

    prompts = list(dict.fromkeys(item.prompt for item in items))
    assert list(dict.fromkeys(item.prompt for item in ordered)) == [
        prompt for _, prompt in sorted(zip(places, prompts, strict=True))
    ]
    assert [(item.repeat, item.model) for item in ordered[:4]] == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]
    assert rule.unit == "task" and arranged([], rule, 1, store.read) == ([], replace(rule, tasks=0))
    single, of_repeats = arranged(task_items("ab", 1, 5), StopRule(decided=True), 1, store.read)
    assert of_repeats.unit == "repeat"
    assert [item.model for item in single] == list("ab" * 5)
    assert arranged(task_items("ab", 1, 1), StopRule(decided=True), 1, store.read)[1].unit == "task"


def test_a_task_counts_once_all_its_repeats_have_ended(store):
    ordered, monitor = started(store, task_items("ab", 2, 2), StopRule(decided=True))
    mine = [item for item in ordered if item.model == "a" and item.prompt == ordered[0].prompt]
    counted = []
    for item in (mine[0], mine[0], mine[1], mine[1], task_items("z")[0]):
        end(store, monitor, item)
        counted.append(tasks_of(monitor.document()))
    assert counted == [[0, 0], [0, 0], [1, 0], [1, 0], [1, 0]]


def test_repeats_of_a_single_task_are_followed_one_by_one(store):
    ordered, monitor = started(store, task_items("ab", 1, 5), StopRule(decided=True))
    end(store, monitor, ordered[0])
    assert (monitor.rule.unit, monitor.task_count) == ("repeat", 5)
    assert tasks_of(monitor.document()) == [1, 0]


AMOUNTS = {"costUsd": 0.5, "workSeconds": 3.0, "tokensTotal": 7}


@pytest.mark.parametrize(
    ("metric", "item", "value"),
    [
        ("success", {"status": "success"}, 1.0),
        ("success", {"status": "fail"}, 0.0),
        ("success", {"status": "success", "reason": "unchecked"}, None),
        ("success", {"status": "error"}, None),
        ("cost", AMOUNTS, 0.5),
        ("time", AMOUNTS, 3.0),
        ("tokens", AMOUNTS, 7.0),
        ("cost", AMOUNTS | {"costUsd": 0.0}, None),
        ("score:tidy", {}, None),
    ],
)
def test_the_value_of_an_item_is_that_of_the_metric(store, metric, item, value):
    ordered, monitor = started(store, task_items(), StopRule(decided=True, metric=metric))
    end(store, monitor, ordered[0], **item)
    found = monitor.intervals()[ordered[0].model].value
    assert found == (value if value is None else pytest.approx(value))


@pytest.mark.parametrize(
    ("metric", "measured", "value"),
    [
        ("score:tidy", [2.0, 5.0], 11 / 3),
        ("score:tidy", [9.0], 5.0),
        ("score:tidy", [-3.0, -2.5], 1.0),
        ("score:tidy/depth", [2.0, 5.0], 4.0),
        ("score:depth/tidy", [2.0, 5.0], None),
        ("metric:depth", [2.0, 4.0], 4.0),
    ],
)
def test_scores_are_averaged_on_their_scale_and_of_numbers_the_last_counts(store, metric, measured, value):
    ordered, monitor = started(store, task_items(), StopRule(decided=True, metric=metric, scale=(1.0, 5.0)))
    writer = store.writer()
    row = {"runId": "run", "itemId": ordered[0].id, "job": "coding", "status": "running", "startedAt": ""}
    recorder = Recorder(writer, "s", row, lambda: NOW)
    for number in measured:
        recorder.score(Score(evaluator="tidy", value=number))
        recorder.record(Metric(name="depth", value=number))
    recorder.score(Score(evaluator="tidy", label="no number"))
    recorder.score(Score(evaluator="tidy", dimension="depth", value=4.0))
    recorder.score(Score(evaluator="other", value=3.3))
    recorder.record(Metric(name="width", value=9.0))
    writer.close()

    end(store, monitor, ordered[0], session_id="s")

    found = monitor.intervals()[ordered[0].model].value
    assert found == (value if value is None else pytest.approx(value))


def test_a_race_by_a_number_of_which_less_is_better_names_the_level_with_less(store):
    rule = StopRule(pick=0.1, metric="metric:words", scale=(100.0, 0.0))
    ordered, monitor = started(store, task_items("ab", 30), rule)
    writer = store.writer()
    row = {"runId": "run", "job": "coding", "status": "running", "startedAt": ""}
    for item in ordered:
        recorder = Recorder(writer, item.id, {**row, "itemId": item.id}, lambda: NOW)
        recorder.record(Metric(name="words", value={"a": 80.0, "b": 5.0}[item.model]))
    writer.close()

    for item in ordered:
        end(store, monitor, item, session_id=item.id)

    assert monitor.decisions()[0]["reason"].startswith("use b: it is at most 0.1 worse")
    assert {level: interval.value for level, interval in monitor.intervals().items()} == {"a": 80.0, "b": 5.0}


def test_what_is_decided_is_not_wanted_any_more(store):
    ordered, monitor = started(store, task_items("ab", 60), StopRule(decided=True))
    assert not monitor.is_decided and all(monitor.wants(item.id) for item in ordered)
    for item in ordered:
        end(store, monitor, item, "success" if item.model == "b" else "fail")
    assert monitor.is_decided and not monitor.wants(ordered[0].id)
    assert monitor.wants("of no level")
    state = monitor.document()
    assert (state["isDecided"], state["decisions"][0]["outcome"]) == (True, "better")
    assert [(each["name"], each["value"], each["isUndecided"]) for each in state["intervals"]] == [
        (level, value, False) for level, value in sorted({"a": 0.0, "b": 1.0}.items())
    ]
    failed, passed = state["intervals"]
    assert (failed["low"], passed["high"]) == (0.0, 1.0)
    assert failed["high"] == pytest.approx(1 - passed["low"])
    difference = monitor.difference("a", "b")
    assert difference.value == 1.0 and difference.low > 0.5


def spend(store: Store, monitor: StopMonitor, ordered: list[Item]) -> None:
    for number, item in enumerate(ordered):
        dollars = (1.0 if item.model == "a" else 0.25) * (1 + number % 3 / 10)
        end(store, monitor, item, costUsd=dollars)


def test_costs_are_compared_as_ratios_of_which_less_is_better(store):
    ordered, monitor = started(store, task_items("ab", 60), StopRule(ranks=1, decided=True, metric="cost"))
    spend(store, monitor, ordered)
    assert [each["outcome"] for each in monitor.decisions()] == ["better", "settled"]
    assert monitor.difference("a", "b").value == pytest.approx(0.25, rel=0.1)
    assert monitor.standing().leader == "b"
    monitor.rule = StopRule(decided=True)
    assert monitor.standing() is None, "a rule without ranks has no leader"


def test_the_leader_is_known_when_the_last_rival_is_separated(store):
    ordered, monitor = started(store, task_items(LEVELS, 60), StopRule(ranks=1))
    assert monitor.standing() is None, "no task counts yet"
    alone = Monitor([RankGoal(cells=LEVELS, places=1)], tasks=60)
    share, seen = {"a": 5, "b": 3, "c": 4}, {}
    for number, item in enumerate(ordered):
        is_passed = number // 3 % 5 < share[item.model]
        end(store, monitor, item, "success" if is_passed else "fail")
        alone.add(item.model, number // 3, [float(is_passed)])
        if number in (14, 26, 29, 47, 119):
            needs = {rival: alone.tasks_to_separate("a", rival) for rival in "bc"}
            seen[number // 3 + 1] = (needs, monitor.standing().rivals, monitor.standing().needs)
    assert seen[5] == ({"b": None, "c": None}, ("b", "c"), None), "too few tasks for a projection"
    assert seen[9] == seen[5] and None not in seen[10][0].values()
    needs, rivals, needed = seen[16]
    assert (rivals, needed) == (("b", "c"), max(needs.values())) and 0 < needs["b"] < needs["c"]
    needs, rivals, needed = seen[40]
    assert (rivals, needed) == (("c",), needs["c"]) and needs["b"] == 0
    standing = monitor.standing()
    assert (standing.leader, standing.unit, standing.tasks, standing.left) == ("a", "task", 60, 0)


def test_tasks_of_the_leader_that_ended_in_an_infrastructure_error_are_not_among_those_of_its_rate(store):
    ordered, monitor = started(store, task_items("ab", 40), StopRule(ranks=1))
    for number, item in enumerate(ordered):
        status = "error" if item.model == "a" and number < 20 else "success" if item.model == "a" else "fail"
        end(store, monitor, item, status)

    standing = monitor.standing()

    assert (standing.leader, standing.left) == ("a", 0)
    assert standing.tasks == sum(item.model == "a" for item in ordered[20:])


def test_a_level_that_never_succeeded_does_not_lead(store):
    ordered, monitor = started(store, task_items("ab", 20), StopRule(ranks=1))
    for number, item in enumerate(ordered):
        end(store, monitor, item, "success" if item.model == "b" and number % 4 == 1 else "fail")
    assert {name: one.value for name, one in monitor.intervals().items()} == {"a": 0.0, "b": 0.5}
    assert monitor.standing().leader == "b"


def test_a_level_that_lacks_a_task_is_not_held_up_by_it(store):
    items = [item for item in task_items("ab", 12) if (item.model, item.prompt) != ("a", "task 5")]
    ordered, monitor = started(store, items, StopRule(width=0.1))
    for item in ordered:
        end(store, monitor, item)
    counts = {level: (one.n, one.left_out) for level, one in monitor.intervals().items()}
    assert counts == {"a": (11, 1), "b": (12, 0)}
    assert monitor.task_count == 12


def test_a_follower_sees_what_has_ended_was_added_and_is_executed_again(store):
    ordered, monitor = started(store, task_items("ab", 2), StopRule(decided=True))
    follower = StopFollower(monitor.rule, store.read, "run")
    assert tasks_of(follower.document(4, 0)) == [0, 0]
    finish(store, ordered)
    assert tasks_of(follower.document(4, 4)) == [2, 2]
    finish(store, ordered[:1], "queued")
    assert sorted(tasks_of(follower.document(4, 3))) == [0, 2], "a task of one level is executed again"
    finish(store, ordered[:1])
    assert tasks_of(follower.monitor(4, 4).document()) == [2, 2]


def test_a_follower_reads_again_after_a_second_or_ten_times_as_long_as_reading_took(store, monkeypatch):
    # White-box: nothing public sets the clock.
    _, monitor = started(store, task_items("ab", 5), StopRule(decided=True))
    times = iter([100.0, 100.0, 100.99, 101.0, 102.0, 111.9, 112.0, 112.0, 112.1, 112.2, 112.3])
    monkeypatch.setattr(stopping, "time", SimpleNamespace(monotonic=lambda: next(times)))
    follower = StopFollower(monitor.rule, store.read, "run")
    first = follower.document(10, 4)
    assert follower.document(10, 5) is first
    second = follower.document(10, 5)
    assert second is not first
    assert follower.document(10, 6) is second, "9.9 s after a read of one second"
    third = follower.document(10, 6)
    assert third is not second
    assert follower.document(10, 6) is third, "nothing has ended"
    assert follower.document(12, 6) is not third, "items were added"


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
        status = "error" if number == 8 else "success" if item.model == "a" or number % 3 else "fail"
        cost = (0.5 if item.model == "a" else 0.25) * (1 + number % 3 / 10)
        changes = {"status": status, "reason": "completed", "costUsd": cost, "sessionId": session}
        writer.change("batch_items", ("run", item.id), changes)
    writer.close()

    compared = compare_within(store.read, "run", "model", NOW, metrics=["success", "cost", "metric:depth"])

    found = {
        contrast.metric: (
            contrast.difference.is_anytime,
            any("too narrow" in each for each in contrast.remarks),
        )
        for contrast in compared.contrasts
    }
    assert found == {"success": (True, False), "cost": (True, False), "metric:depth": (False, True)}
    # The estimates of a monitor with the error rate of one test of the family.
    rule = StopRule(decided=True, confidence=1 - 0.05 / compared.family_size, tasks=40)
    monitor = StopMonitor(rule, store.read, "run")
    success = compared.contrasts[0]
    for one, errors_fail in ((success.difference, False), (success.with_errors, True)):
        expected = monitor.difference("a", "b", errors_fail=errors_fail)
        assert (one.value, one.low, one.high, one.n) == pytest.approx(
            (expected.value, expected.low, expected.high, expected.n)
        )
        assert one.is_anytime and one.p is None
