"""The state of a run, looked at again and again."""

from datetime import datetime, timedelta
from functools import partial

import pytest

from filled import AGENTS, MODELS, NOW, filled_store, new_store, task_items
from proctor.api.run_state import PoolUse, RunFollower, RunState, agents_and_models, rates_over_tasks
from proctor.results.loading import load_results
from proctor.stats.figures import factor_figures
from proctor.stop_rule import StopState, stop_lines
from proctor.store import Store, ledger, timestamp


def look(store: Store, now: datetime) -> RunState:
    """The state of the run at a first look."""
    return RunFollower(store.read, "compare").look(now)


def test_a_batch_under_way_says_how_far_it_is_and_what_runs(tmp_path):
    with filled_store(tmp_path, finished=12) as store:
        found = look(store, NOW + timedelta(minutes=10))
        rows = agents_and_models(store.read, "compare")
        dead = look(store, NOW + timedelta(days=400))

    assert (found.item_count, found.finished_count, found.counts["running"]) == (36, 12, 1)
    by_name = {row.name: (row.items, row.finished, row.tokens) for row in rows}
    assert {name: counts[:2] for name, counts in by_name.items()} == {
        f"{agent} {model}": (6, 2) for agent in AGENTS for model in MODELS
    }
    # 1,100 tokens a session and one more for each item; errors were tried twice.
    assert by_name["amp gpt-5"][2] == 2 * 1100 + 0 + 1
    (running,) = found.running
    assert running.tokens == 1112
    assert running.elapsed_seconds > 300
    assert found.budget_usd == 5.0
    assert (dead.status, dead.eta_seconds) == ("interrupted", None), "its process died"


@pytest.mark.parametrize(
    ("position", "status", "tokens", "difference"),
    [(9, "success", 500, 500 - 1109), (2, "queued", 0, -1102)],
    ids=["ended", "taken up again"],
)
def test_going_on_from_the_previous_answer_gives_the_same_sums(
    tmp_path, position, status, tokens, difference
):
    with filled_store(tmp_path, finished=9) as store:
        follower = RunFollower(store.read, "compare")
        first = follower.look(NOW)
        writer = store.writer()
        (row,) = store.read.items("compare", limit=1, offset=position)
        writer.change("batch_items", ("compare", row["id"]), {"status": status, "tokensTotal": tokens})
        writer.close()

        again = follower.look(NOW)

        assert again.tokens == look(store, NOW).tokens == first.tokens + difference


def test_a_finished_batch_stands_still(tmp_path):
    with filled_store(tmp_path) as store:
        early = look(store, NOW + timedelta(hours=1))
        late = look(store, NOW + timedelta(hours=2))

    assert early.elapsed_seconds == late.elapsed_seconds > 0
    assert (list(early.running), early.eta_seconds) == ([], None)


def test_what_runs_is_timed_from_its_start_and_calls_of_pools_are_held_until_a_time(tmp_path):
    with filled_store(tmp_path, finished=0) as store:
        (running,) = look(store, NOW + timedelta(seconds=90)).running
        (early,) = look(store, NOW - timedelta(seconds=90)).running
        row = {"runId": "compare", "limit": 2.75, "inUse": 2, "waiting": 3, "calls": 9, "limited": 1}
        row |= {"waitedSeconds": 1.5, "cutAt": None}
        rows = [
            row | {"name": name, "heldUntil": moment and timestamp(moment)}
            for name, moment in (
                ("a", NOW + timedelta(seconds=30)),
                ("b", NOW - timedelta(seconds=30)),
                ("c", None),
            )
        ]
        writer = store.writer()
        writer.submit(partial(ledger.exchange, owner="elsewhere", rows=rows, now=NOW)).result()
        writer.close()

        held, over, free = look(store, NOW).pools

    assert running.elapsed_seconds == 90.0
    assert early.elapsed_seconds == 0.0, "the clock of another machine may be behind"
    assert (running.repo, running.model, running.agent) == ("/projects/shop", "gpt-5", "amp")
    assert running.session_id == f"compare-{running.item_id}-1"
    assert held == PoolUse(
        name="a", limit=2, in_use=2, waiting=3, rate_limited=1, waited_seconds=1.5, paused_seconds=30.0
    )
    assert (over.paused_seconds, free.paused_seconds) == (0.0, 0.0)


def _look(store: Store, seconds: float, follower: RunFollower, *, finished: int = 0) -> RunState:
    """The state so many seconds after the start, with so many items finished."""
    writer = store.writer()
    moment = NOW + timedelta(seconds=seconds)
    writer.change("batches", ("compare",), {"owner": "elsewhere:1:1:x", "heartbeatAt": timestamp(moment)})
    for row in store.read.items("compare", limit=finished):
        writer.change("batch_items", ("compare", row["id"]), {"status": "success"})
    writer.close()
    return follower.look(moment)


def test_at_first_the_rate_is_that_since_the_start(tmp_path):
    with new_store(tmp_path) as store:
        follower = RunFollower(store.read, "compare")
        first = _look(store, 10, follower, finished=5)
        soon = _look(store, 11, follower, finished=11)

    assert first.items_per_minute == 30.0
    assert first.eta_seconds == 62
    assert soon.items_per_minute == 60.0, "a second is too short for a rate of its own"
    assert first.elapsed_seconds == 10.0


def test_the_rate_is_that_of_the_last_half_minute(tmp_path):
    with new_store(tmp_path) as store:
        follower = RunFollower(store.read, "compare")
        looks = [
            _look(store, seconds, follower, finished=finished)
            for seconds, finished in ((100, 0), (102, 4), (130, 10), (131, 10))
        ]

    assert looks[1].items_per_minute == 120.0, "two seconds are enough"
    assert looks[2].items_per_minute == 20.0, "since the first look"
    assert looks[3].items_per_minute == 12.41, "since the second"


def test_a_rate_is_not_negative_when_items_are_taken_up_again(tmp_path):
    with new_store(tmp_path) as store:
        follower = RunFollower(store.read, "compare")
        _look(store, 100, follower, finished=2)
        writer = store.writer()
        for row in store.read.items("compare", limit=2):
            writer.change("batch_items", ("compare", row["id"]), {"status": "queued"})
        writer.close()
        after = _look(store, 110, follower)

    assert after.items_per_minute == 0.0
    assert after.eta_seconds is None


def test_the_lines_of_a_stopping_rule_have_each_level_and_each_goal():
    state: StopState = {
        "by": "model",
        "metric": "success",
        "confidence": 0.95,
        "unit": "task",
        "isDecided": False,
        "taskCount": 12,
        "mode": "watch",
        "tolerance": None,
        "race": [],
        "finishedRuns": 3,
        "plannedRuns": 12,
        "decisions": [
            {"outcome": "open", "reason": "too wide", "undecided": []},
            {"outcome": "reached", "reason": "gpt is best", "undecided": []},
        ],
        "intervals": [
            {"name": "gpt", "value": 0.5, "low": 0.25, "high": 0.75, "tasks": 1, "isUndecided": False},
            {"name": "qwen3", "value": None, "low": None, "high": 0.5, "tasks": 0, "isUndecided": False},
            {"name": "x", "value": 0.5, "low": 0.5, "high": None, "tasks": 2, "isUndecided": False},
        ],
    }

    assert stop_lines(state) == [
        "success by model with 95% intervals that are valid at any time:",
        "  gpt    0.5  (0.25 to 0.75), 1 task",
        "  qwen3  –  (no interval yet), 0 tasks",
        "  x      0.5  (no interval yet), 2 tasks",
        "undecided: too wide",
        "decided: gpt is best",
    ]


def test_rates_by_agent_and_model_are_those_of_the_results_page(tmp_path):
    ends = {0: "success", 1: "fail", 2: "success", 3: "error", 4: "timeout", 5: "unchecked"}
    batch_items = task_items(tasks=10, repeats=3)
    with new_store(tmp_path, batch_items=batch_items) as store:
        writer = store.writer()
        for number, each in enumerate(batch_items):
            # The tasks of `a` have equal repeats, those of `b` differ.
            place = int(each.prompt.split()[1]) if each.model == "a" else number
            end = {"status": ends[place % 6], "reason": "completed", "startedAt": timestamp(NOW)}
            if end["status"] == "unchecked":
                end |= {"status": "success", "reason": "unchecked"}
            writer.change("batch_items", ("compare", each.id), end | {"finishedAt": timestamp(NOW)})
        writer.close()
        store.end_batch("compare", "completed", "", "", NOW)
        results = load_results(store.read, ["compare"], NOW)
        levels = {each.name: each.success for each in factor_figures(results, "model").levels}
        pairs = rates_over_tasks(store.read, "compare", is_running=False)
        assert rates_over_tasks(store.read, "other", is_running=False) == []

    rates = {progress.name: rate for progress, rate in pairs}

    assert rates.keys() == levels.keys()
    for name, rate in rates.items():
        assert (rate.n, rate.runs, rate.method) == (levels[name].n, levels[name].runs, "plus")
        expected = (levels[name].value, levels[name].low, levels[name].high)
        assert (rate.value, rate.low, rate.high) == pytest.approx(expected)
    assert (rates["a"].n, rates["a"].runs) == (7, 21)


@pytest.mark.parametrize(("large", "seconds", "tokens"), [(36, 1, 500), (35, 1.9, 0), (35, 2, 500)])
def test_agents_and_models_of_a_large_run_are_counted_anew_after_two_seconds(
    tmp_path, monkeypatch, large, seconds, tokens
):
    # White-box: a run is large from ten thousand items on.
    monkeypatch.setattr("proctor.api.run_state.LARGE", large)
    with new_store(tmp_path) as store:
        follower = RunFollower(store.read, "compare")
        before = follower.agents_and_models(_look(store, 0, follower), NOW)
        writer = store.writer()
        (row,) = store.read.items("compare", limit=1)
        writer.change("batch_items", ("compare", row["id"]), {"status": "success", "tokensTotal": 500})
        writer.close()
        again = follower.agents_and_models(_look(store, seconds, follower), NOW + timedelta(seconds=seconds))

    assert sum(row.tokens for row in before) == 0
    assert sum(row.tokens for row in again) == tokens
