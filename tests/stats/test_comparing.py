"""What a difference is worth: runs and parts of runs, held against each other task by task."""

import json
from datetime import UTC, datetime

import pytest

from comparisons import compare_runs, compare_within, groups_of_runs
from databases import query
from proctor.errors import NotFound, UsageError
from proctor.item import Item
from proctor.metric import METRICS
from proctor.results.loading import load_results
from proctor.score import Score
from proctor.session import Metric, ModelCall, Usage
from proctor.stats.comparison import Contrast, Mean, disagreements, first_contrast, gate_of
from proctor.stats.differences import Difference, difference
from proctor.stats.figures import run_figures
from proctor.stats.intervals import mean
from proctor.store import Recorder, Resource, timestamp
from proctor.store.tables import COLUMNS
from stocked import add_batch, finish_item

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def store(proctor_store):
    return proctor_store


def fill(store, run_id, rows, settings=None, expect=None):
    """A run whose items are (task, model, repeat, status, value of the score `tone`, its digest).

    `expect` is what answers must contain, by the place of the item.
    """
    items = [
        Item(
            runner="prompt",
            prompt=task,
            model=model,
            details={"expect": {"contains": (expect or {}).get(place, "x")}},
            factors={"model": model, "task": task},
            settings=settings or {},
            repeat=repeat,
        )
        for place, (task, model, repeat, *_) in enumerate(rows)
    ]
    add_batch(store, run_id, items, status="completed")
    writer = store.writer()
    for number, (item, row) in enumerate(zip(items, rows, strict=True)):
        _, model, _, status, tone, digest = row
        cost = 0.01 * (number + 1)
        usage = Usage(input_tokens=100 + number, output_tokens=10)
        finish_item(
            writer,
            item.id,
            f"{run_id}-{number}",
            ModelCall(model=model, usage=usage, cost_usd=cost),
            Metric(name="risk", value=float(number)),
            *([] if tone is None else [Score(evaluator="tone", value=tone, evaluator_digest=digest)]),
            run_id=run_id,
            status=status,
            seconds=number + 1.0,
            columns={"costUsd": cost, "tokensTotal": 110 + number},
            model=model,
        )
    writer.close()


def run_of(model, outcomes, *, repeats=1, tones=(), digest="v1", tasks=None):
    """One item for each outcome and repeat."""
    tasks = tasks or [f"task {number}" for number in range(len(outcomes))]
    return [
        (task, model, repeat, outcome, tone, digest)
        for task, outcome, tone in zip(tasks, outcomes, tones or [None] * len(outcomes), strict=True)
        for repeat in range(1, repeats + 1)
    ]


S, F, E = "success", "fail", "error"


def test_runs_that_differ_in_the_model_are_paired_by_everything_else(store):
    fill(store, "before", run_of("a", [S, F, F, F, F, F, F, F]))
    fill(store, "after", run_of("b", [S, S, S, S, S, S, S, F]))

    found = compare_runs(store.read, ["before", "after"], NOW, metrics=["success"])

    (success,) = found.contrasts
    assert found.varied == ("model",)
    assert (success.baseline, success.candidate, success.pairs) == ("before", "after", 8)
    assert success.baseline_mean.value == 1 / 8
    assert success.difference.value == pytest.approx(6 / 8)
    assert success.difference.method == "plus, paired"
    # Six tasks won, none lost: Bonett and Price's interval with Student's quantile.
    assert success.difference.p == pytest.approx(0.0300, abs=1e-4)
    assert 0 < success.difference.low < 6 / 8 < success.difference.high <= 1
    assert success.is_significant
    assert [each.words for each in success.disagreements] == [f"task {number}" for number in range(1, 7)]


def test_errors_of_ours_are_left_out_and_counted_and_what_they_would_change_is_said(store):
    fill(store, "before", run_of("a", [S, S, F, E, S]))
    fill(store, "after", run_of("b", [S, E, E, S, F]))

    (success,) = compare_runs(store.read, ["before", "after"], NOW, metrics=["success"]).contrasts

    assert success.errors == (1, 2)
    assert success.unpaired == 3
    # Two tasks have a result on both sides: means and difference are of these.
    assert (success.baseline_mean.value, success.candidate_mean.value) == (1.0, 0.5)
    assert success.difference.value == -0.5
    assert success.pairs == 2
    assert success.if_errors_failed == pytest.approx(2 / 5 - 3 / 5)


def test_parts_of_one_run_are_compared_by_a_factor(store):
    rows = [*run_of("a", [F, F, F, F, F, S]), *run_of("b", [S, S, S, S, S, S]), *run_of("c", [F] * 6)]
    fill(store, "run", rows)

    found = compare_within(store.read, "run", "model", NOW, metrics=["success"])

    assert found.groups == ("a", "b", "c")
    assert [each.candidate for each in found.contrasts] == ["b", "c"]
    assert found.contrasts[0].pairs == 6
    # Two tests at once: each chance counts double, and the intervals are wider for it.
    assert found.family_size == 2
    assert found.contrasts[0].p_corrected == pytest.approx(2 * found.contrasts[0].difference.p)
    alone = compare_within(store.read, "run", "model", NOW, metrics=["success"], against="b").contrasts[0]
    assert (alone.baseline, alone.candidate) == ("b", "a")
    assert alone.difference.value == -found.contrasts[0].difference.value


def test_without_a_metric_all_figures_and_all_scores_are_compared_but_no_measures(either_store):
    fill(either_store, "before", run_of("a", [S, F, S], tones=[0.5, 0.6, 0.7]))
    fill(either_store, "after", run_of("b", [S, S, S], tones=[0.6, 0.8, 0.9]))

    found = compare_runs(either_store.read, ["before", "after"], NOW)

    assert [each.metric for each in found.contrasts] == [*METRICS, "score:tone"]
    assert "metric:risk" in found.metrics
    tone = found.contrasts[-1]
    assert tone.difference.value == pytest.approx(0.5 / 3)
    assert tone.difference.method == "plus, paired"
    assert found.contrasts[1].difference.is_ratio
    (risk,) = compare_runs(either_store.read, ["before", "after"], NOW, metrics=["metric:risk"]).contrasts
    assert risk.difference.value == 0.0
    assert risk.difference.low is None and "No spread" in risk.difference.note


def test_tasks_with_checks_of_their_own_are_no_versions_of_an_evaluator(store):
    for run, model in (("before", "a"), ("after", "b")):
        rows = run_of(model, [S] * 9, tones=[0.1, 0.2, 0.3] * 3)
        fill(store, run, [(*row[:-1], f"check {number}") for number, row in enumerate(rows)])

    (tone,) = compare_runs(store.read, ["before", "after"], NOW, metrics=["score:tone"]).contrasts
    assert tone.difference.value == 0.0 and tone.remarks == ()


def test_scores_of_two_versions_of_an_evaluator_are_not_compared_silently(store):
    fill(store, "before", run_of("a", [S] * 9, tones=[0.1, 0.2, 0.3] * 3, digest="v1"))
    fill(store, "after", run_of("b", [S] * 9, tones=[0.7, 0.8, 1.0] * 3, digest="v2"))
    gates = [gate_of("score:tone>=0")]

    found = compare_runs(store.read, ["before", "after"], NOW, gates=gates)
    mixed = compare_runs(store.read, ["before", "after"], NOW, gates=gates, mixed=True)

    assert found.contrasts[0].difference is None
    assert "different versions of the evaluator (v1 and v2)" in found.contrasts[0].remarks[0]
    assert found.verdict == "inconclusive"
    assert mixed.contrasts[0].difference.value == pytest.approx(0.6333, abs=1e-3)
    assert mixed.verdict == "pass"


def test_scores_stay_on_the_scale_that_their_evaluator_declares(store):
    criterion = {"name": "tone", "scale": "scalar", "low": 1, "high": 5}
    settings = {"evaluators": [{"criterion": criterion, "model": "scripted/judge"}]}
    fill(store, "before", run_of("a", [S] * 8, tones=[5, 5, 5, 5, 5, 5, 5, 4]), settings)
    fill(store, "after", run_of("b", [S] * 8, tones=[5, 5, 5, 5, 5, 5, 5, 5]), settings)
    fill(store, "unknown", run_of("c", [S] * 8, tones=[5, 5, 5, 5, 5, 5, 3, 4]))
    fill(store, "neither", run_of("d", [S] * 8, tones=[5, 5, 5, 5, 5, 5, 5, 5]))

    (tone,) = compare_runs(store.read, ["before", "after"], NOW, metrics=["score:tone"]).contrasts
    (other,) = compare_runs(store.read, ["unknown", "neither"], NOW, metrics=["score:tone"]).contrasts

    assert tone.difference.method == "plus, paired" and tone.difference.scale == (-4, 4)
    expected = mean([5] * 7 + [4], lo=1, hi=5)
    assert (tone.baseline_mean.low, tone.baseline_mean.high) == (expected.low, expected.high)
    assert expected.low == pytest.approx(3.5509, abs=1e-4) and expected.high == 5
    assert tone.candidate_mean.high == 5 > tone.candidate_mean.low
    assert other.difference.method == "Student's t, paired" and other.difference.scale is None


SCENARIO_METRICS = {
    "trust": {"type": "float", "range": [0, 10]},
    "agreed": {"type": "boolean"},
    "fee": {"type": "float"},
    "flat": {"type": "float", "range": [3, 3]},
    "moved": {"type": "integer", "range": [0, 4]},
}


def fill_scenarios(store, run_id, values):
    """A run of scenarios with the values of a metric in each, by name."""
    text = json.dumps({"name": "Talks", "metrics": SCENARIO_METRICS})
    items = [
        Item(
            runner="scenario",
            prompt="Talks",
            details={"seed": number},
            settings={"scenarioDigest": "d1", "changes": {}, "label": f"run-{number}"},
        )
        for number in range(len(next(iter(values.values()))))
    ]
    batch = {"runId": run_id, "createdAt": timestamp(NOW), "job": "scenario", "status": "completed"}
    store.create_batch(batch, items, [Resource(kind="scenario", name="d1", digest="d1", content=text)])
    writer = store.writer()
    for number, item in enumerate(items):
        measured = [Metric(name=name, value=each[number]) for name, each in values.items()]
        finish_item(writer, item.id, f"{run_id}-{number}", *measured, run_id=run_id, job="scenario")
    writer.close()


def test_metrics_have_the_range_that_their_scenario_declares(either_store):
    first = {"trust": [9, 9, 9, 9, 9, 10, 10], "agreed": [True] * 7, "trust.port": [4] * 7, "flat": [3] * 7}
    second = {"trust": [10] * 7, "agreed": [False] * 6 + [True], "trust.port": [6] * 7}
    fill_scenarios(either_store, "before", first | {"fee": [0.1 * n for n in range(7)]})
    fill_scenarios(either_store, "after", second | {"fee": [0.2 * n for n in range(7)]})

    trust, agreed, fee, of_port = compare_runs(
        either_store.read,
        ["before", "after"],
        NOW,
        metrics=["metric:trust", "metric:agreed", "metric:fee", "metric:trust.port"],
    ).contrasts

    assert trust.difference.scale == of_port.difference.scale == (-10, 10)
    assert trust.difference.method == "plus, paired"
    assert trust.candidate_mean.low < 10 == trust.candidate_mean.high
    assert agreed.difference.scale == (-1, 1)
    # No range: a value between 0 and 1 does not make a scale.
    assert fee.difference.scale is None
    # Rank and report use the same scale.
    results = load_results(either_store.read, ["before", "after"], NOW)
    assert results.scales["metric:trust"] == (0, 10)
    assert not {"metric:fee", "metric:flat"} & results.scales.keys(), "a range of one value is none"
    report = run_figures(results).overall.metrics
    assert report["metric:trust"].method == "plus" and report["metric:trust"].high <= 10


def test_the_scale_of_a_later_evaluation_is_that_of_its_definition(either_store):
    fill(either_store, "before", run_of("a", [S] * 6))
    fill(either_store, "after", run_of("b", [S] * 6))
    ratings = [
        {"label": "bad", "value": 0, "definition": "x"},
        {"label": "good", "value": 10, "definition": "y"},
    ]
    definition = {
        "evaluatorName": "kind",
        "evaluatorConfig": {"llmAsAJudge": {"ratingScale": {"numerical": ratings}}},
    }
    item = Item(runner="evaluation", prompt="judge")
    batch = {"runId": "judging", "createdAt": timestamp(NOW), "job": "evaluation", "status": "completed"}
    either_store.create_batch(batch, [item])
    columns = [name for name in COLUMNS["evaluations"] if name != "metadataJsonBlob"]
    evaluation = {**dict.fromkeys(columns, ""), "id": "judging", "sessionsFound": 0, "sessionsIgnored": 0}
    evaluation["definitionsJson"] = json.dumps({"kind.yaml": definition})
    writer = either_store.writer()
    writer.submit(lambda connection: connection.insert("evaluations", evaluation)).result()
    for number, session_id in enumerate(f"{run}-{n}" for run in ("before", "after") for n in range(6)):
        row = {"runId": "judging", "itemId": item.id, "job": "evaluation", "status": "success"}
        recorder = Recorder(writer, f"later-{number}", {**row, "startedAt": timestamp(NOW)}, lambda: NOW)
        recorder.score(Score(evaluator="kind", value=float(number % 11), judged_session=session_id))
    writer.close()

    (kind,) = compare_runs(either_store.read, ["before", "after"], NOW, metrics=["score:kind"]).contrasts

    assert kind.pairs == 6 and kind.difference.value == pytest.approx(40 / 6 - 15 / 6)
    assert kind.difference.scale == (-10, 10)
    assert kind.baseline_mean.low >= 0 and kind.candidate_mean.high <= 10


def test_repeats_of_a_single_task_speak_of_that_task_alone(store):
    fill(store, "before", run_of("a", [F], repeats=8))
    fill(store, "after", run_of("b", [S], repeats=8))

    (success,) = compare_runs(store.read, ["before", "after"], NOW, metrics=["success"]).contrasts

    assert success.remarks == ("only one task: results do not generalize",)
    assert success.difference.p < 0.001


def test_a_gate_says_pass_fail_or_that_there_is_too_little_to_say(store):
    fill(store, "before", run_of("a", [S, F] * 20))
    fill(store, "same", run_of("b", [S, F] * 20))
    fill(store, "worse", run_of("c", [F, F] * 20))
    fill(store, "five", run_of("d", [S] * 5))

    def verdict(run, text):
        return compare_runs(store.read, ["before", run], NOW, gates=[gate_of(text)]).verdicts[0]

    assert verdict("same", "success>=-0.2").verdict == "pass"
    # 183 tasks are needed to have seen a collapse of two in a hundred.
    unsure = verdict("same", "success>=-0.02")
    assert (unsure.verdict, unsure.needs, unsure.more_pairs) == ("inconclusive", 183, 143)
    assert unsure.text.endswith("(143 more tasks)")
    few = verdict("five", "success>=-0.5")
    assert few.verdict == "inconclusive" and "5 tasks: fewer than 6 cannot show" in few.text
    assert verdict("worse", "success>=-0.1").verdict == "fail"


def costs(store, run_id, model, values):
    """A run whose items cost as much as this."""
    fill(store, run_id, run_of(model, [S] * len(values)))
    store.writer().close()
    writer = store.writer()
    for row, cost in zip(store.read.items(run_id), values, strict=True):
        writer.change("batch_items", (run_id, row["id"]), {"costUsd": cost})
    writer.close()


@pytest.mark.parametrize(
    ("factor", "spread", "verdict", "words"),
    [
        # 1.08 to the power of 2.200985 · √(12 / 11) / √12.
        (1.0, 1.08, "pass", "the difference is ±0.0% (−5.0% to +5.2%); within the margin"),
        (1.3, 1.08, "fail", "the difference is +30.0% (+23.5% to +36.8%); significantly worse"),
        (1.03, 1.2, "inconclusive", "not enough tasks"),
    ],
)
def test_a_gate_in_percent_is_of_the_typical_ratio(store, factor, spread, verdict, words):
    base = [0.1 * 1.3**number for number in range(12)]
    noise = [spread if number % 2 else 1 / spread for number in range(12)]
    costs(store, "before", "a", base)
    costs(store, "after", "b", [factor * cost * each for cost, each in zip(base, noise, strict=True)])

    (found,) = compare_runs(store.read, ["before", "after"], NOW, gates=[gate_of("cost<=10%")]).verdicts

    assert found.verdict == verdict
    assert words in found.text


def test_two_that_are_free_differ_by_nothing_and_a_share_of_nothing_is_refused(store):
    costs(store, "free", "a", [0.0] * 8)
    costs(store, "also free", "b", [0.0] * 8)
    costs(store, "dear", "c", [0.1] * 8)
    gates = [gate_of("cost<=10%")]

    assert compare_runs(store.read, ["free", "also free"], NOW, gates=gates).verdict == "pass"
    lower = compare_runs(store.read, ["free", "also free"], NOW, gates=[gate_of("cost<=-10%")]).verdicts[0]
    assert (lower.verdict, lower.text) == ("fail", "both have a cost of 0 in every task")
    assert compare_runs(store.read, ["free", "dear"], NOW, gates=gates).verdict == "inconclusive"


def test_a_gate_on_two_tasks_has_the_difference_and_no_interval(store):
    costs(store, "before", "a", [0.1, 0.2])
    costs(store, "after", "b", [0.1, 0.288])

    (found,) = compare_runs(store.read, ["before", "after"], NOW, gates=[gate_of("cost<=10%")]).verdicts

    assert found.text == (
        "the difference is +20.0% (no interval); fewer than 3 common tasks: no interval (1 more task)"
    )


def test_a_run_that_is_still_going_passes_no_gate(store):
    fill(store, "before", run_of("a", [S] * 40))
    fill(store, "after", run_of("b", [S] * 40))
    query(
        store,
        'UPDATE "batch_items" SET "status" = ? WHERE "position" = 0 AND "runId" = ?',
        ("queued", "after"),
    )

    found = compare_runs(store.read, ["before", "after"], NOW, gates=[gate_of("success>=-0.2")])

    assert (found.verdict, found.unfinished) == ("inconclusive", {"after": 1})
    assert found.verdicts[0].text.startswith(
        "1 items have no result yet: a gate needs a finished run (so far pass); the difference is"
    )


def test_errors_count_as_failures_also_where_no_task_is_in_both_runs(store):
    fill(store, "before", run_of("a", [S] * 8))
    fill(store, "after", run_of("b", [S] * 6 + [E] * 2, tasks=[f"other {number}" for number in range(8)]))
    contrast = first_contrast(groups_of_runs(store.read, ["before", "after"], NOW), "success")

    assert (contrast.difference.value, contrast.difference.is_paired) == (0.0, False)
    assert (contrast.pairs, contrast.unpaired) == (0, 0)
    assert contrast.with_errors.value == pytest.approx(-0.25)


def test_a_metric_that_only_one_side_has_is_not_compared(store):
    fill(store, "before", run_of("a", [S] * 8, tones=[0.5] * 8))
    fill(store, "after", run_of("b", [S] * 8))

    for names in (["before", "after"], ["after", "before"]):
        contrast = first_contrast(groups_of_runs(store.read, names, NOW), "score:tone")
        assert (contrast.difference, contrast.remarks) == (None, ("one of them has no value",))
        sides = {contrast.baseline: contrast.baseline_mean, contrast.candidate: contrast.candidate_mean}
        assert {name: side.items for name, side in sides.items()} == {"before": 8, "after": 0}


def test_tasks_of_one_name_and_different_content_are_not_paired(store):
    fill(store, "before", run_of("a", [S, F, S, F]))
    fill(store, "after", run_of("b", [S, F, F, F]), expect={0: "y", 1: "y"})

    contrast = first_contrast(groups_of_runs(store.read, ["before", "after"], NOW), "success")

    assert contrast.pairs == 2
    assert contrast.remarks == ("2 tasks have the same name and different content in both: not paired",)


def test_a_candidate_that_crashes_on_the_hard_tasks_does_not_pass(store):
    fill(store, "before", run_of("a", [S] * 60 + [F] * 40))
    fill(store, "after", run_of("b", [S] * 60 + [E] * 40))
    fill(store, "worse", run_of("c", [S] * 40 + [E] * 60))

    def verdict(run):
        return compare_runs(store.read, ["before", run], NOW, gates=[gate_of("success>=-0.1")]).verdicts[0]

    assert verdict("worse").verdict == "inconclusive"
    assert "60 infrastructure errors decide it" in verdict("worse").text
    # Here the errors change nothing: those tasks failed before.
    assert verdict("after").verdict == "pass"
    (success,) = compare_runs(store.read, ["before", "worse"], NOW, metrics=["success"]).contrasts
    assert (success.baseline_mean.value, success.candidate_mean.value) == (1.0, 1.0)
    assert success.with_errors.value == pytest.approx(-0.2)


def test_what_cannot_be_compared_is_told_with_what_can(store):
    fill(store, "before", run_of("a", [S]))
    fill(store, "after", run_of("b", [S]))

    with pytest.raises(NotFound, match="nothing here has a value of score:kind"):
        compare_runs(store.read, ["before", "after"], NOW, metrics=["score:kind"])
    with pytest.raises(NotFound, match="nothing here has a value of score:kind"):
        first_contrast(groups_of_runs(store.read, ["before", "after"], NOW), "score:kind")
    with pytest.raises(NotFound, match="have no factor color\nThere are: model, task"):
        compare_within(store.read, "before", "color", NOW)
    with pytest.raises(UsageError, match="all items of before have the same model"):
        compare_within(store.read, "before", "model", NOW)
    with pytest.raises(NotFound, match=r"no item has z as its model\nThere are: a\."):
        compare_within(store.read, "before", "model", NOW, against="z")
    with pytest.raises(UsageError, match="there is nothing to compare with\nPass two different runs"):
        compare_runs(store.read, ["before"], NOW)
    with pytest.raises(UsageError, match="cannot be compared with itself"):
        compare_runs(store.read, ["before", "before"], NOW)
    with pytest.raises(UsageError, match="cannot be paired by color"):
        compare_runs(store.read, ["before", "after"], NOW, pair="color")


def test_tasks_that_came_out_differently_are_listed_largest_first(either_store):
    def rows(model, values):
        return [(task, model, repeat, status, None, "") for task, repeat, status in values]

    before = [("Sum", 1, F), ("Sum", 2, F), ("Same", 1, S), ("Lost", 1, S), ("Alone", 1, S)]
    after = [("Sum", 1, S), ("Sum", 2, F), ("Same", 1, S), ("Lost", 1, F)]
    fill(either_store, "a", rows("m", before))
    fill(either_store, "b", rows("n", after))
    groups = groups_of_runs(either_store.read, ["a", "b"], NOW)

    found, total = disagreements(groups, "success", "b")
    assert total == len(found)
    assert disagreements(groups, "success", "b", offset=1, limit=1) == (found[1:2], total)
    every, paired = disagreements(groups, "success", "b", direction="all")
    assert paired > total and [each for each in every if each.difference] == found

    assert [(each.words, each.difference) for each in found] == [("Lost", -1.0), ("Sum", 0.5)]
    assert [len(each.baseline_items) for each in found] == [1, 2]
    assert {run for run, _ in found[0].baseline_items} == {"a"}
    assert [each.words for each in disagreements(groups, "success", "b", direction="higher")[0]] == ["Sum"]
    assert [each.words for each in disagreements(groups, "success", "b", search="lOs")[0]] == ["Lost"]
    with pytest.raises(NotFound, match="There are: b"):
        disagreements(groups, "success", "c")


@pytest.mark.parametrize("text", ["success", ">=1", "success>=much", "success==1", ""])
def test_what_is_no_gate_is_refused_with_an_example(text):
    with pytest.raises(UsageError, match=r"is no gate\nWrite a metric"):
        gate_of(text)


@pytest.mark.parametrize(("shared", "is_paired"), [(1, False), (2, True), (3, True)])
def test_runs_are_paired_from_two_shared_tasks_on(store, shared, is_paired):
    fill(store, "before", run_of("a", [S, F, S, S, F, S]))
    tasks = [f"task {number}" if number < shared else f"other {number}" for number in range(6)]
    fill(store, "after", run_of("b", [S, S, S, F, F, S], tasks=tasks))

    contrast = first_contrast(groups_of_runs(store.read, ["before", "after"], NOW), "success")

    assert contrast.difference.is_paired is is_paired
    assert contrast.pairs == (shared if is_paired else 0)
    # Six tasks of each, less those that are in both.
    assert contrast.unpaired == (12 - 2 * shared if is_paired else 0)
    assert contrast.baseline_mean.tasks == (shared if is_paired else 6)


# Contrasts


def contrast(change, baseline=0.5, **more):
    known = {"metric": "success", "baseline": "a", "candidate": "b", "difference": change, "is_member": True}
    known |= {"baseline_mean": Mean(value=baseline), "candidate_mean": Mean(value=baseline)}
    return Contrast(**known | more)


BETTER = difference([0.0] * 20, [1.0] * 20, lo=0.0, hi=1.0)
WORSE = difference([1.0] * 20, [0.0] * 20, lo=0.0, hi=1.0)
OPEN = difference([0.0, 1.0] * 10, [1.0, 0.0] * 10, lo=0.0, hi=1.0)


@pytest.mark.parametrize(
    ("gate", "is_ratio", "base", "margin"),
    [
        ("success>=-0.1", False, 0.5, 0.1),
        ("success>=-10%", False, 0.5, 0.05),
        ("success>=-10%", False, -0.5, 0.05),
        ("success<=0.1", False, 0.5, 0.1),
        ("cost<=10%", True, 2.0, 0.1),
        ("cost<=0.5", True, 2.0, 0.25),
        ("cost<=0.5", True, None, None),
    ],
)
def test_the_margin_of_a_gate_is_on_the_scale_of_the_difference(gate, is_ratio, base, margin):
    change = Difference(value=1.0, null=1.0 if is_ratio else 0.0)
    assert gate_of(gate).margin(contrast(change, base)) == (None if margin is None else pytest.approx(margin))


def test_errors_decide_where_counting_them_as_failures_changes_the_direction():
    assert contrast(BETTER, with_errors=WORSE).errors_decide
    assert contrast(BETTER, with_errors=OPEN).errors_decide
    assert not contrast(BETTER, with_errors=BETTER).errors_decide
    assert not contrast(BETTER).errors_decide and not contrast(None, with_errors=BETTER).errors_decide
    assert contrast(BETTER).is_significant and contrast(BETTER, with_errors=BETTER).is_significant
    assert not contrast(BETTER, with_errors=WORSE).is_significant
    assert not contrast(BETTER, is_member=False).is_significant and not contrast(None).is_significant
    assert contrast(BETTER, is_member=False).p_corrected is None
    assert contrast(BETTER).p_corrected == BETTER.p_adjusted
    assert contrast(BETTER, with_errors=WORSE).if_errors_failed == WORSE.value
    assert contrast(BETTER).if_errors_failed is None
