"""What a report says about a batch, counted by hand."""

from datetime import timedelta
from types import SimpleNamespace

import pytest

from filled import MODELS, NOW, add_batch, carry_out, filled_store, items, new_store
from proctor.errors import NotFound
from proctor.item import Item
from proctor.job import StopRule
from proctor.session import ModelCall
from proctor.stats import progress
from proctor.stats.stopping import arranged, rule_resource, stop_document
from proctor.stats.summary import _facts, summarise
from proctor.store import Recorder, Scope, timestamp

LATER = NOW + timedelta(hours=1)


@pytest.fixture
def summary(store):
    return summarise(store.read, Scope(run_id="compare"), LATER)


def test_items_are_counted_by_status_and_reason(summary):
    assert summary.counts == {"queued": 0, "running": 0, "success": 18, "fail": 6, "timeout": 6, "error": 6}
    assert [(reason.status, reason.reason, reason.items) for reason in summary.outcomes] == [
        ("success", "completed", 18),
        ("fail", "checks_failed", 6),
        ("timeout", "timeout", 6),
        ("error", "setup_failed", 6),
    ]


def test_the_success_rate_leaves_errors_out_and_says_what_they_would_change(summary):
    overall = summary.figures.overall
    rate, with_errors = overall.success, overall.with_errors

    assert (overall.counts["success"], rate.runs, rate.value) == (18, 30, pytest.approx(0.6))
    # Three repositories are three tasks, each with ten runs: too few for any limit but the ends of the scale.
    assert (rate.n, rate.low, rate.high, rate.scope) == (3, 0.0, 1.0, "tasks like these")
    assert (with_errors.runs, with_errors.value) == (36, 0.5)


def test_every_factor_that_varies_is_compared_and_no_other(summary):
    factors = {factor.name: factor for factor in summary.figures.factors}

    assert sorted(factors) == ["agent", "model", "repo"]
    levels = {level.name: level for level in factors["model"].levels}
    # Items 0 and 1 of every six are gpt-5's, 2 and 3 claude-opus's, 4 and 5 qwen3's.
    assert [levels[model].success.value for model in MODELS] == [1.0, 0.5, 0.0]
    assert [levels[model].counts["error"] for model in MODELS] == [0, 0, 6]
    assert [level.name for level in factors["model"].levels] == list(MODELS)


def test_a_factor_with_a_level_for_every_task_is_named_and_not_compared(tmp_path):
    many = [
        Item(runner="prompt", prompt=f"p{n}", factors={"task": f"t{n}", "model": f"m{n % 2}", 'odd"': f"{n}"})
        for n in range(120)
    ]
    with new_store(tmp_path, "many", many) as store:
        carry_out(store, "many")
        found = summarise(store.read, Scope(run_id="many"), LATER).figures.factors

    assert {factor.name: (len(factor.levels), factor.is_too_many) for factor in found} == {
        "model": (2, False),
        'odd"': (0, True),
        "task": (0, True),
    }


def test_items_without_a_factor_are_a_level_of_their_own(tmp_path):
    mixed = [Item(runner="prompt", prompt="a", factors={"model": "m"}), Item(runner="prompt", prompt="b")]
    with new_store(tmp_path, "mixed", mixed) as store:
        carry_out(store, "mixed")
        (factor,) = summarise(store.read, Scope(run_id="mixed"), LATER).figures.factors

    assert sorted(level.name for level in factor.levels) == ["", "m"]


def test_tokens_and_money_are_those_of_every_attempt(summary):
    # 36 items, of which the 6 errors were tried twice.
    repeated = sum(range(36)) + sum(range(5, 36, 6))
    assert summary.attempts.sessions == 42
    assert summary.attempts.retried_items == 6
    assert summary.tokens.prompt == 42 * 1000 + repeated
    assert summary.tokens.completion == 42 * 100
    assert (summary.tokens.cached, summary.tokens.reasoning) == (42 * 500, 42 * 20)
    assert summary.average_tokens == pytest.approx(summary.tokens.total / 42)


def test_a_missing_price_is_said_and_never_taken_for_nothing(summary):
    by_model = {usage.model: usage for usage in summary.models}

    assert by_model["gpt-5"].cost_usd == pytest.approx(0.12)
    assert by_model["qwen3:8b"].cost_usd is None
    assert by_model["qwen3:8b"].unpriced_calls == 18
    assert summary.cost.known_usd == pytest.approx(0.24)
    assert not summary.cost.is_complete
    assert summary.cost_per_success.value is None
    assert summary.cost_per_success.note == "Some prices are missing."


@pytest.mark.parametrize("status", ["model_failed", "auth", "quota", "cost_limit", "halted"])
def test_a_call_that_nobody_charges_for_does_not_make_the_cost_unknown(tmp_path, status):
    with new_store(tmp_path, "one", [Item(runner="prompt", prompt="a", model="m")]) as store:
        writer = store.writer()
        (row,) = store.read.queued("one", after=-1, limit=1)
        attempt = {"runId": "one", "itemId": row["id"], "attempt": 1, "job": "coding"}
        recorder = Recorder(writer, "s", attempt | {"startedAt": timestamp(NOW)}, lambda: NOW)
        recorder.record(ModelCall(model="m", cost_usd=0.25))
        recorder.record(ModelCall(model="m", status=status))
        recorder.end("success", "completed", "", work_seconds=1.0, waiting_seconds=0.0)
        writer.close()
        (used,) = summarise(store.read, Scope(run_id="one"), LATER).models

    assert (used.calls, used.failed_calls, used.unpriced_calls, used.cost_usd) == (2, 1, 0, 0.25)
    assert recorder.totals.unpriced_calls == 0


def test_with_all_prices_known_a_success_has_a_cost(store):
    priced = [row["id"] for row in store.read.sessions(Scope()) if row["model"] == "gpt-5"]

    summary = summarise(store.read, Scope(session_ids=priced), LATER)

    assert summary.cost_per_success.value == pytest.approx(0.01)


def test_durations_are_of_items_from_start_to_end(summary):
    durations = summary.durations

    assert durations.items == 36
    assert durations.mean == 27.5
    assert durations.median == 27.5
    assert durations.p90 == 42
    assert durations.longest == 45
    assert [one.count for one in durations.bins] == [0, 0, 5, 5, 5, 5, 5, 5, 5, 1]
    assert durations.bins[0].low == 0 and durations.bins[-1].high >= 45


def test_work_and_waiting_are_kept_apart(summary):
    assert summary.attempts.waiting_seconds == 42 * 2
    assert summary.attempts.work_seconds == pytest.approx(
        sum(8 + n for n in range(36)) + sum(8 + n for n in range(5, 36, 6))
    )


def test_tools_are_counted_with_how_they_ended(summary):
    bash, edit = sorted(summary.tools, key=lambda tool: tool.tool)

    assert (bash.calls, bash.judged, bash.succeeded) == (42, 42, 27 + 6)
    assert (edit.calls, edit.success_rate, edit.average_ms) == (42, None, None)


def test_the_ten_slowest_calls_come_slowest_first(summary):
    slowest = [call.duration_ms for call in summary.slowest]

    assert slowest == [3500, 3500, 3400, 3300, 3200, 3100, 3000, 2900, 2900, 2800]
    assert "rm -rf" in summary.slowest[0].arguments


def test_checks_changes_and_merges_are_counted(summary):
    steps = summary.steps

    assert (steps.iterations, steps.checks, steps.checks_passed) == (24, 24, 18)
    assert (steps.changed_files, steps.lines_added, steps.lines_removed) == (48, 240, 72)
    assert summary.merges == {"conflict": 12, "success": 6}


def test_stand_ins_and_interventions_are_told(summary):
    assert {(one.agent, one.model): one.sessions for one in summary.stand_ins} == {
        ("scripted", "gpt-5"): 6,
        ("scripted", "claude-opus"): 6,
        ("scripted", "qwen3:8b"): 9,
    }
    assert (summary.attempts.interventions, summary.attempts.sessions_with_notes) == (1, 1)


def test_failures_are_listed_with_the_first_line_of_their_error(summary):
    assert len(summary.failures) == summary.failure_count == 18
    assert {failure.status for failure in summary.failures} == {"fail", "timeout", "error"}
    assert all("second line" not in failure.error for failure in summary.failures)
    assert summary.failures[2].session_id.endswith("-2")


def test_the_facts_of_the_batch_are_there(summary):
    (batch,) = summary.batches

    assert (batch.run_id, batch.status, batch.budget_usd, batch.concurrency) == (
        "compare",
        "completed",
        5.0,
        4,
    )
    assert batch.plan_path == "plans/compare.yaml"


@pytest.mark.parametrize(
    ("budget", "finished", "expected"),
    [(5.0, "2026-03-01T13:00:00.000Z", (0.75, "2026-03-01T13:00:00.000Z")), (None, None, (None, ""))],
)
def test_a_batch_has_spent_something_of_a_budget_and_ended_at_some_time(store, budget, finished, expected):
    row = store.read.batch("compare", LATER) | {"budgetUsd": budget, "finishedAt": finished}
    read = SimpleNamespace(reserved_and_spent=lambda run_id: {"compare": (2.0, 0.75)}[run_id])
    facts = _facts(read, row)
    assert (facts.spent_usd, facts.finished_at, facts.budget_usd) == (*expected, budget)


def test_a_run_with_a_rule_that_stops_it_has_the_state_of_the_rule(tmp_path):
    with new_store(tmp_path) as store:
        summary = summarise(store.read, Scope(run_id="compare"), LATER)
        assert (summary.batch_count, summary.batches[0].stop_when) == (1, None)
        row = {"runId": "stops", "createdAt": timestamp(NOW), "job": "coding", "status": "running"}
        ordered, rule = arranged(items(), StopRule(by="model", metric="success", decided=True), 0)
        store.create_batch(row, ordered, [rule_resource(rule)])
        (facts,) = summarise(store.read, Scope(run_id="stops"), LATER).batches
        assert facts.stop_when == stop_document(store.read, "stops")
        assert facts.stop_when is not None
        assert progress(store.read, "stops", LATER).stop_when == facts.stop_when
        assert progress(store.read, "compare", LATER).stop_when is None


def test_a_run_may_be_named_by_its_beginning_and_must_exist(store):
    assert summarise(store.read, Scope(run_id="comp"), LATER).scope.run_id == "compare"
    with pytest.raises(NotFound, match="no run nothing"):
        summarise(store.read, Scope(run_id="nothing"), LATER)


def test_another_run_in_the_store_changes_nothing(store, summary):
    add_batch(store, "other", items())
    carry_out(store, "other", finished=0)
    assert summarise(store.read, Scope(run_id="compare"), LATER) == summary

    add_batch(store, "third", items())
    carry_out(store, "third")
    assert summarise(store.read, Scope(run_id="compare"), LATER) == summary
    assert summarise(store.read, Scope(run_id="other"), LATER).tokens.calls == 1


def test_sessions_that_never_began_belong_to_no_range_of_dates(store):
    writer = store.writer()
    (row,) = store.read.sessions(Scope(run_id="compare"), limit=1)
    writer.change("sessions", (row["id"],), {"startedAt": None})
    writer.close()

    found = summarise(store.read, Scope(start=NOW, end=LATER), LATER)

    assert (found.attempts.sessions, found.tokens.calls) == (41, 41)


def test_a_scope_of_sessions_counts_their_items_and_batches(store, summary):
    chosen = [row["id"] for row in store.read.sessions(Scope())][:5]

    found = summarise(store.read, Scope(session_ids=chosen), LATER)

    assert (found.attempts.sessions, found.batch_count) == (5, 1)
    assert found.item_count == 4


def test_a_range_of_dates_without_sessions_is_an_empty_summary(store):
    found = summarise(store.read, Scope(start=LATER + timedelta(days=1)), LATER)

    assert (found.item_count, found.attempts.sessions, found.batches) == (0, 0, ())
    assert found.figures.overall.success.value is None
    assert found.durations.median is None
    assert found.cost.known_usd is None


def test_a_batch_that_has_not_begun_has_items_and_no_figures(tmp_path):
    with new_store(tmp_path) as store:
        found = summarise(store.read, Scope(run_id="compare"), LATER)

    assert found.counts["queued"] == 36
    assert found.figures.overall.success.value is None
    assert found.cost.known_usd is None


def test_a_batch_under_way_is_counted_as_far_as_it_is(tmp_path):
    with filled_store(tmp_path, finished=6) as store:
        found = summarise(store.read, Scope(run_id="compare"), LATER)

    assert found.counts["running"] == 1
    assert found.figures.overall.success.runs == 5
    assert found.tokens.calls == 8
