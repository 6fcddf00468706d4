"""How far a batch is, asked again and again."""

import sys
from datetime import timedelta
from functools import partial

import pytest

from filled import AGENTS, MODELS, NOW, filled_store, new_store, task_items
from proctor.job import StopState
from proctor.stats.figures import factor_figures
from proctor.stats.progress import PoolUse, Progress, makers_of, progress, stop_lines, task_rates
from proctor.stats.results import load_results
from proctor.store import Store, ledger, timestamp


def test_a_batch_under_way_says_how_far_it_is_and_what_runs(tmp_path):
    with filled_store(tmp_path, finished=12) as store:
        found = progress(store.read, "compare", NOW + timedelta(minutes=10))
        makers = makers_of(store.read, "compare")
        dead = progress(store.read, "compare", NOW + timedelta(days=400))

    assert (found.total, found.finished, found.counts["running"]) == (36, 12, 1)
    by_maker = {each.name: (each.items, each.finished, each.tokens) for each in makers}
    assert {name: counts[:2] for name, counts in by_maker.items()} == {
        f"{agent} {model}": (6, 2) for agent in AGENTS for model in MODELS
    }
    # 1,100 tokens a session and one more for each item; errors were tried twice.
    assert by_maker["amp gpt-5"][2] == 2 * 1100 + 0 + 1
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
        first = progress(store.read, "compare", NOW)
        writer = store.writer()
        (row,) = store.read.items("compare", limit=1, offset=position)
        writer.change("batch_items", ("compare", row["id"]), {"status": status, "tokensTotal": tokens})
        writer.close()

        again = progress(store.read, "compare", NOW, first)

        assert again.tokens == progress(store.read, "compare", NOW).tokens == first.tokens + difference


def test_a_finished_batch_stands_still(store):
    early = progress(store.read, "compare", NOW + timedelta(hours=1))
    late = progress(store.read, "compare", NOW + timedelta(hours=2))

    assert early.elapsed_seconds == late.elapsed_seconds > 0
    assert (early.running, early.eta_seconds) == ((), None)


def test_what_runs_is_timed_from_its_start_and_calls_of_pools_are_held_until_a_time(tmp_path):
    with filled_store(tmp_path, finished=0) as store:
        (running,) = progress(store.read, "compare", NOW + timedelta(seconds=90)).running
        (early,) = progress(store.read, "compare", NOW - timedelta(seconds=90)).running
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

        held, over, free = progress(store.read, "compare", NOW).pools

    assert running.elapsed_seconds == 90.0
    assert early.elapsed_seconds == 0.0, "the clock of another machine may be behind"
    assert (running.repo, running.model, running.agent) == ("/projects/shop", "gpt-5", "amp")
    assert running.session_id == f"compare-{running.item_id}-1"
    assert held == PoolUse(
        name="a", limit=2, in_use=2, waiting=3, refused=1, waited_seconds=1.5, held_seconds=30.0
    )
    assert (over.held_seconds, free.held_seconds) == (0.0, 0.0)


def _look(
    store: Store, seconds: float, previous: Progress | None = None, *, finished: int = 0, makers: bool = False
) -> Progress:
    """Progress so many seconds after the start, with so many items finished."""
    writer = store.writer()
    moment = NOW + timedelta(seconds=seconds)
    writer.change("batches", ("compare",), {"owner": "elsewhere:1:1:x", "heartbeatAt": timestamp(moment)})
    for row in store.read.items("compare", limit=finished):
        writer.change("batch_items", ("compare", row["id"]), {"status": "success"})
    writer.close()
    return progress(store.read, "compare", moment, previous, with_makers=makers)


def test_at_first_the_rate_is_that_since_the_start(tmp_path):
    with new_store(tmp_path) as store:
        first = _look(store, 10, finished=5)
        soon = _look(store, 11, first, finished=11)

    assert first.items_per_second == 0.5
    assert first.eta_seconds == 62.0
    assert soon.items_per_second == 1.0, "a second is too short for a rate of its own"
    assert first.elapsed_seconds == 10.0


def test_the_rate_is_that_of_the_last_half_minute(tmp_path):
    with new_store(tmp_path) as store:
        looks = [_look(store, 100)]
        looks.append(_look(store, 102, looks[-1], finished=4))
        looks.append(_look(store, 130, looks[-1], finished=10))
        looks.append(_look(store, 131, looks[-1], finished=10))

    assert looks[1].items_per_second == 2.0, "two seconds are enough"
    assert looks[2].items_per_second == pytest.approx(10 / 30), "since the first look"
    assert looks[3].items_per_second == pytest.approx(6 / 29), "since the second"


def test_a_rate_is_not_negative_when_items_are_taken_up_again(tmp_path):
    with new_store(tmp_path) as store:
        before = _look(store, 100, finished=2)
        writer = store.writer()
        for row in store.read.items("compare", limit=2):
            writer.change("batch_items", ("compare", row["id"]), {"status": "queued"})
        writer.close()
        after = _look(store, 110, before)

    assert after.items_per_second == 0.0
    assert after.eta_seconds is None


def test_the_lines_of_a_stopping_rule_have_each_level_and_each_goal():
    state: StopState = {
        "by": "model",
        "metric": "success",
        "confidence": 0.95,
        "unit": "task",
        "isDecided": False,
        "taskCount": 12,
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
        rates = task_rates(store.read, "compare")
        assert task_rates(store.read, "other") == {}

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
    monkeypatch.setattr(sys.modules[Progress.__module__], "LARGE", large)
    with new_store(tmp_path) as store:
        first = _look(store, 0, makers=True)
        writer = store.writer()
        (row,) = store.read.items("compare", limit=1)
        writer.change("batch_items", ("compare", row["id"]), {"status": "success", "tokensTotal": 500})
        writer.close()
        unasked = _look(store, 0.5, first)
        again = _look(store, seconds, unasked, makers=True)

    assert sum(maker.tokens for maker in unasked.makers) == 0
    assert sum(maker.tokens for maker in again.makers) == tokens
