"""What a report says about a batch, counted by hand."""

from datetime import timedelta

import pytest

from databases import query
from filled import NOW, add_batch, carry_out, items, new_store
from proctor.api.run_state import RunFollower
from proctor.errors import NotFound
from proctor.item import Item
from proctor.results.stopping import arranged, rule_resource, stop_document
from proctor.results.summary import Bin, SlowCall, durations, nice_step, slow_calls, summarize
from proctor.session import ModelCall
from proctor.stop_rule import StopRule
from proctor.store import Recorder, Scope, timestamp
from proctor.store.aggregates import RankedDuration, ToolSums

LATER = NOW + timedelta(hours=1)


@pytest.fixture
def summary(store):
    return summarize(store.read, Scope(run_id="compare"), LATER)


def test_items_attempts_and_tokens_of_a_batch_are_counted(summary):
    assert summary.counts == {"queued": 0, "running": 0, "success": 18, "fail": 6, "timeout": 6, "error": 6}
    assert [tuple(row.values()) for row in summary.outcomes] == [
        ("success", "completed", 18),
        ("fail", "checks_failed", 6),
        ("timeout", "timeout", 6),
        ("error", "setup_failed", 6),
    ]
    (batch,) = summary.batches
    assert (batch.row["runId"], batch.row["status"], batch.row["concurrency"]) == ("compare", "completed", 4)
    assert (batch.row["budgetUsd"], batch.spent_usd) == (5.0, 0.0)
    assert (batch.row["planPath"], batch.row["finishedAt"][:10]) == ("plans/compare.yaml", "2026-03-01")
    # 36 items, of which the 6 errors were tried twice.
    repeated = sum(range(36)) + sum(range(5, 36, 6))
    assert (summary.attempts["n"], summary.attempts["retried"]) == (42, 6)
    assert summary.tokens["prompt"] == 42 * 1000 + repeated
    assert summary.tokens["completion"] == 42 * 100
    assert (summary.tokens["cached"], summary.tokens["reasoning"]) == (42 * 500, 42 * 20)
    assert summary.average_tokens == pytest.approx(summary.tokens["total"] / 42)


def test_times_tools_checks_changes_and_merges_of_a_batch_are_counted(summary):
    times = summary.durations
    assert (times.items, times.mean, times.median, times.p90, times.longest) == (36, 27.5, 27.5, 42, 45)
    assert [one.count for one in times.bins] == [0, 0, 5, 5, 5, 5, 5, 5, 5, 1]
    assert times.bins[0].low == 0 and times.bins[-1].high >= 45
    slowest = [call.duration_ms for call in summary.slowest]
    assert slowest == [3500, 3500, 3400, 3300, 3200, 3100, 3000, 2900, 2900, 2800]
    assert "rm -rf" in summary.slowest[0].arguments
    bash, edit = sorted(summary.tools, key=lambda tool: tool["tool"])
    assert (bash["calls"], bash["judged"], bash["succeeded"]) == (42, 42, 27 + 6)
    assert (edit["calls"], edit["judged"], edit["ms"]) == (42, 0, None)
    steps = summary.steps
    assert (steps["n"], steps["checks"], steps["passed"]) == (24, 24, 18)
    assert (steps["files"], steps["added"], steps["removed"]) == (48, 240, 72)
    assert summary.merges == {"conflict": 12, "success": 6}


def test_a_missing_price_is_said_and_never_taken_for_nothing(summary):
    by_model = {usage["model"]: usage for usage in summary.models}

    assert by_model["gpt-5"]["cost"] == pytest.approx(0.12)
    assert by_model["qwen3:8b"]["cost"] is None
    assert by_model["qwen3:8b"]["unpriced"] == 18
    assert summary.cost.known_usd == pytest.approx(0.24)
    assert not summary.cost.is_complete
    assert summary.cost_per_success.value is None
    assert summary.cost_per_success.note == "Some prices are missing."


@pytest.mark.parametrize("status", ["model_failed", "auth", "quota", "cost_limit", "halted"])
def test_a_call_that_nobody_charges_for_does_not_make_the_cost_unknown(tmp_path, status):
    with new_store(tmp_path, "one", [Item(runner="prompt", prompt="a", model="m")]) as store:
        writer = store.writer()
        (row,) = store.read.queued("one", after=-1, limit=1)
        attempt = {"runId": "one", "itemId": row["id"], "attempt": 1, "job": "coding", "status": "running"}
        recorder = Recorder(writer, "s", attempt | {"startedAt": timestamp(NOW)}, lambda: NOW)
        recorder.record(ModelCall(model="m", cost_usd=0.25))
        recorder.record(ModelCall(model="m", status=status))
        recorder.end("success", "completed", "", work_seconds=1.0, waiting_seconds=0.0)
        writer.close()
        (used,) = summarize(store.read, Scope(run_id="one"), LATER).models

    assert (used["calls"], used["failed"], used["unpriced"], used["cost"]) == (2, 1, 0, 0.25)
    assert recorder.totals.unpriced_calls == 0


def test_failures_are_listed_in_the_order_of_the_plan(summary):
    assert len(summary.failures) == summary.failure_count == 18
    assert {failure["status"] for failure in summary.failures} == {"fail", "timeout", "error"}
    assert summary.failures[2]["sessionId"].endswith("-2")


def test_the_cost_of_a_run_whose_process_was_killed_is_a_lower_limit(store):
    query(store, 'UPDATE "batches" SET "crashes" = 2')
    priced = [row["id"] for row in store.read.sessions(Scope()) if row["model"] == "gpt-5"]

    cost = summarize(store.read, Scope(session_ids=priced), LATER).cost

    assert (cost.crashes, cost.judging_usd, cost.unpriced_calls, cost.is_complete) == (2, None, 0, False)


def test_a_run_with_a_rule_that_stops_it_has_the_state_of_the_rule(tmp_path):
    with new_store(tmp_path) as store:
        summary = summarize(store.read, Scope(run_id="compare"), LATER)
        assert (summary.batch_count, summary.batches[0].stop_when) == (1, None)
        row = {"runId": "stops", "createdAt": timestamp(NOW), "job": "coding", "status": "running"}
        ordered, rule = arranged(items(), StopRule(decided=True), 0, store.read)
        store.create_batch(row, ordered, [rule_resource(rule)])
        (facts,) = summarize(store.read, Scope(run_id="stops"), LATER).batches
        assert facts.stop_when == stop_document(store.read, "stops")
        assert facts.stop_when is not None
        assert RunFollower(store.read, "stops").look(LATER).stop_when == facts.stop_when
        assert RunFollower(store.read, "compare").look(LATER).stop_when is None


def test_a_run_may_be_named_by_its_beginning_and_must_exist(store):
    assert summarize(store.read, Scope(run_id="comp"), LATER).scope.run_id == "compare"
    with pytest.raises(NotFound, match="no run nothing"):
        summarize(store.read, Scope(run_id="nothing"), LATER)


def test_another_run_in_the_store_changes_nothing(store, summary):
    add_batch(store, "other", items())
    carry_out(store, "other", finished=0)
    assert summarize(store.read, Scope(run_id="compare"), LATER) == summary

    add_batch(store, "third", items())
    carry_out(store, "third")
    assert summarize(store.read, Scope(run_id="compare"), LATER) == summary
    assert summarize(store.read, Scope(run_id="other"), LATER).tokens["calls"] == 1


# Time, tokens, cost and tools, from sums of the store


def ranked(*values: float, only: set[int] | None = None) -> list[RankedDuration]:
    """Rows of ordered durations; `only` leaves out all but some ranks."""
    n, total, squares = len(values), sum(values), sum(value * value for value in values)
    return [
        {"n": n, "total": total, "squares": squares, "rank": rank, "v": value}
        for rank, value in enumerate(values, 1)
        if only is None or rank in only
    ]


def bars(*values: float) -> list[tuple[float, float, int]]:
    return [(each.low, each.high, each.count) for each in durations(ranked(*values)).bins]


def test_durations_have_mean_spread_median_and_tail():
    even = durations(ranked(1, 2, 4, 9))
    assert (even.items, even.mean, even.median, even.p90, even.longest) == (4, 4.0, 3.0, 9, 9)
    assert even.std == pytest.approx(3.559026)
    assert durations(ranked(1, 2, 9)).median == 2.0
    ten = durations(ranked(*range(1, 11)))
    assert (ten.median, ten.p90, ten.longest) == (5.5, 9, 10)
    eleven = durations(ranked(*range(1, 12)))
    assert (eleven.median, eleven.p90) == (6.0, 10)


def test_a_duration_is_not_negative_though_a_clock_was_set_back():
    back = durations(ranked(-5.0, 3.0))
    assert back.median == 1.5
    assert back.bins[0].low == 0.0 and sum(each.count for each in back.bins) == 2


def test_bars_have_round_widths_and_the_last_includes_its_end():
    assert bars(0.5, 1.0, 1.5, 11.0) == [
        (0.0, 1.0, 1),
        (1.0, 2.0, 2),
        *((low, low + 1.0, 0) for low in range(2, 11)),
        (11.0, 12.0, 1),
    ]
    assert bars(24.0)[1:3] == [(2.0, 4.0, 0), (4.0, 6.0, 0)]
    assert bars(24.0)[-1] == (24.0, 26.0, 1)


def test_a_long_tail_is_one_bar_so_that_the_rest_can_be_seen():
    values = [*range(1, 200), 1000.0]
    shown = durations(ranked(*values)).bins
    assert shown[0] == Bin(low=0.0, high=20.0, count=19)
    assert shown[-1] == Bin(low=200.0, high=1000.0, count=1)
    assert sum(each.count for each in shown) == 200

    usual = durations(ranked(*range(1, 200), 297.0)).bins
    assert usual[-1].low < 297.0 < usual[-1].high, "one and a half times the 99th percentile is no long tail"
    assert durations(ranked(*range(1, 200), 298.0)).bins[-1].high == 298.0


def test_steps_are_numbers_that_people_count_in():
    steps = {0.7: 1, 1.0: 1, 1.1: 2, 2.0: 2, 2.1: 5, 5.0: 5, 5.1: 10, 0.03: 0.05, 200.0: 200, 3e-4: 5e-4}
    for rough, step in steps.items():
        assert nice_step(rough) == pytest.approx(step), rough
        assert nice_step(rough * (1 + 1e-12)) == pytest.approx(step), "but for rounding"


def tool(name: str, **more: object) -> ToolSums:
    row = {"tool": name, "calls": 4, "succeeded": 1, "judged": 2, "ms": 30.0, "measured": 3}
    return row | {"session": None, "position": None} | more  # type: ignore[return-value]


def test_the_slowest_calls_come_first_with_their_arguments():
    calls = [
        tool("a", session="s2", position=1, ms=5.0, succeeded=0, judged=1),
        tool("b", session="s1", position=7, ms=5.0, succeeded=None, judged=0),
        tool("c", session="s1", position=3, ms=5.0),
        tool("d", session="s3", position=0, ms=9.0),
        tool("e", session="s3", position=2, ms=None),
    ]
    slow = slow_calls(calls, lambda session, position: f"{session}:{position}")
    assert [(call.tool, call.arguments, call.success) for call in slow] == [
        ("d", "s3:0", True),
        ("c", "s1:3", True),
        ("b", "s1:7", None),
        ("a", "s2:1", False),
    ]
    assert slow[0] == SlowCall(tool="d", duration_ms=9.0, success=True, session_id="s3", arguments="s3:0")


def test_a_run_that_has_not_begun_has_items_and_no_figures(tmp_path):
    with new_store(tmp_path) as store:
        found = summarize(store.read, Scope(run_id="compare"), LATER)

    assert found.counts["queued"] == 36
    assert (found.figures.overall.success.value, found.cost.known_usd, found.durations.median) == (
        None,
        None,
        None,
    )
    assert set(found.steps.values()) == set(found.attempts.values()) == {0}
