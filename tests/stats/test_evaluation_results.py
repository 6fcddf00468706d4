"""What an evaluation came to: averages over results, intervals over sessions, failures left out and said."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from proctor.evaluators.model_judge import FAILURES, INTENT, NO_FAILURE, SUMMARY, family_of, kind_of
from proctor.evaluators.registry import criterion_scale, declared_scale
from proctor.item import Item
from proctor.jobs.evaluation.evaluator_results import (
    EvaluatorResult,
    JudgeNoise,
    average_of,
    evaluator_results,
    high_is_bad,
    session_values,
)
from proctor.jobs.evaluation.insights import InsightFinding, bare, clusters, findings_of, insights_of
from proctor.jobs.evaluation.results import evaluator_summary, failed_targets, results_of, worst_targets
from proctor.score import Score
from proctor.stats.intervals import Estimate
from proctor.store import RetrySelection, annotations
from proctor.store.annotations import CalibrationRecord, Label
from stocked import add_batch, finish_item

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def store(proctor_store):
    return proctor_store


def judged(store, sessions, *, level="trace", digest="v1"):
    """A job of one evaluator, `tone`; `sessions` are the scores of each: values, or whole scores."""
    items = [
        Item(
            runner="evaluation",
            prompt=f"s{number}",
            details={"evaluator": "tone", "evaluatorDigest": digest, "level": level, "session": f"s{number}"},
            settings={"evaluator": "tone-0123456789", "session": f"id{number}"},
        )
        for number in range(len(sessions))
    ]
    add_batch(store, "job", items, job="evaluation", status="running", owner="a:1:1:x")
    writer = store.writer()
    for number, (item, values) in enumerate(zip(items, sessions, strict=True)):
        scores = [
            value if isinstance(value, Score) else tone(value, target=f"t{place}", digest=digest)
            for place, value in enumerate(values)
        ]
        status = "error" if any(score.error for score in scores) else "success"
        scores = [replace(score, judged_session=f"id{number}") for score in scores]
        finish_item(
            writer, item.id, f"a{number}", *scores, run_id="job", columns={"status": status}, job="evaluation"
        )
    writer.close()
    return results_of(store, "job")


def tone(value=None, *, digest="v1", **more):
    return Score(evaluator="tone", value=value, evaluator_digest=digest, **more)


def test_results_of_one_session_do_not_pass_for_results_of_many(store):
    (found,) = judged(store, [[value] * 10 for value in (1.0, 0.0, 1.0, 0.5, 0.0, 0.5)]).summaries

    # As six numbers and one at each end of the scale: 0.5 ± 2.570582 · √(1.5 / (7 · 8)).
    assert found.average.value == pytest.approx(0.5)
    assert (found.average.low, found.average.high) == pytest.approx((0.079290, 0.920710), abs=1e-5)
    assert (found.average.n, found.average.runs, found.evaluated, found.sessions) == (6, 60, 60, 6)
    assert (found.average.scope, found.average.note) == ("sessions like these", "")


def test_a_value_that_is_no_number_is_a_failure_with_words(either_store):
    (found,) = judged(either_store, [[tone(float("nan")), tone(1.0)], [tone(1e300)], [tone(0.0)]]).summaries

    assert (found.evaluated, found.failed, found.average.value) == (2, 2, 0.5)
    errors = {each.error for each in failed_targets(either_store.read, "job", found)}
    assert errors == {"the value is NaN: no usable number", "the value is beyond 1e150: no usable number"}
    json.dumps(evaluator_summary(found), allow_nan=False)


def test_each_dimension_has_an_average_and_a_target_that_failed_failed_on_all(either_store):
    both = [tone(0.5, dimension="warmth"), tone(0.9, dimension="clarity")]

    clarity, warmth = judged(either_store, [both, [tone(error="unreadable")]]).summaries

    assert (warmth.dimension, warmth.average.value, warmth.failed) == ("warmth", 0.5, 1)
    assert (clarity.dimension, clarity.average.value, clarity.failed) == ("clarity", 0.9, 1)
    assert warmth.requested_as == "tone-0123456789"


def test_what_could_not_be_judged_is_left_out_counted_and_weighed(either_store):
    results = judged(either_store, [[0.8, tone(error="cut off", error_code="ThrottlingException")], [0.4]])

    (found,) = results.summaries
    assert (found.evaluated, found.failed, found.average.value) == (2, 1, pytest.approx(0.6))
    assert found.if_failures_were_zero == pytest.approx(0.4)
    assert (results.completed, results.failed) == (1, 1)
    assert [each.error for each in failed_targets(either_store.read, "job", found)] == ["cut off"]


def test_labels_are_counted_votes_show_noise_and_the_worst_come_first_and_the_best_not_at_all(store):
    labels = [tone(label="warm"), tone(label="cold"), tone(label="warm")]
    votes = [tone(0.9, votes=(0.8, 1.0)), tone(0.1, votes=(0.1, 0.1)), tone(0.9)]

    counted, measured = judged_again(store, [[each] for each in labels]), judged_again(store, [votes, [0.9]])

    assert counted.labels == {"warm": 2, "cold": 1}
    assert (counted.evaluated, counted.average.value, counted.if_failures_were_zero) == (3, None, None)
    assert measured.judge_standard_deviation == pytest.approx(0.1)
    assert [each.value for each in worst_targets(store.read, "job", measured)] == [0.1]


def judged_again(store, sessions):
    """The results of a job in the place of the one before."""
    if store.read.batches(NOW):
        store.delete_batch("job")
    (found,) = judged(store, sessions, level="session").summaries
    return found


def test_two_versions_of_an_evaluator_are_never_averaged_together(store):
    results = judged(store, [[tone(0.0)], [tone(1.0, digest="v2")]])

    assert [(one.digest, one.average.value) for one in results.summaries] == [("v1", 0.0), ("v2", 1.0)]
    assert "tone: results of 2 versions, which are not comparable" in results.remarks[0]


def test_sessions_that_agree_are_no_surer_than_the_judge_that_wavers(store):
    wavers = [[tone(0.5, votes=(0.0, 1.0))] for _ in range(16)]

    results = judged(store, wavers, level="session")

    # Votes have a variance of 0.5; two of them leave half of it in each of 16 results: √(0.25 / 16) = 0.125.
    (found,) = results.summaries
    assert found.average.high - found.average.value == pytest.approx(2.131450 * 0.125, abs=1e-5)
    assert found.is_noise
    assert any("the CI reflects judge noise" in remark for remark in results.remarks)


def test_ground_truth_that_nobody_had_a_use_for_is_told(either_store):
    unused = Score(evaluator="length", value=1.0, ignored=("assertions", "expectedTrajectory"))
    results = judged(either_store, [[tone(1.0, ignored=("assertions",)), unused], [tone(0.0)]])

    assert results.remarks == (
        "Unused ground truth: assertions by any evaluator; expectedTrajectory by length",
    )


def test_an_item_that_waits_to_be_done_again_has_no_results_yet(either_store):
    judged(either_store, [[1.0], [tone(error="cut off at the budget")]])
    either_store.end_batch("job", "halted", "halted", "", NOW)
    either_store.resume_batch("job", "a:2:2:y", RetrySelection(errors=True), NOW)

    results = results_of(either_store, "job")

    (found,) = results.summaries
    assert (found.evaluated, found.failed, results.in_progress) == (1, 0, 1)
    assert failed_targets(either_store.read, "job", found) == []


@pytest.mark.parametrize(("harmful", "bad"), [(None, True), (1, True), (0, False)])
def test_where_harm_counts_as_nothing_its_low_values_are_the_bad_ones(harmful, bad):
    names = high_is_bad({} if harmful is None else {"harmfulValue": harmful})

    assert ("Builtin.Harmfulness" in names, "Builtin.Refusal" in names) == (bad, True)


def test_a_built_in_judge_has_the_interval_of_its_own_scale():
    row = {"valued": 1, "total": 1.0, "low": 1.0, "high": 1.0, "n": 8}
    totals = [{"evaluator": "Builtin.Helpfulness", "evaluatorDigest": "", "dimension": "", **row}]

    assert declared_scale("Builtin.Helpfulness", "") == (0.0, 1.0)
    # Eight ones: 0.9 ± 2.364624 · 0.1.
    assert average_of(totals, None, (0.0, 1.0)).estimate.low == pytest.approx(0.663538, abs=1e-6)
    wide = average_of(totals, None, (1.0, 5.0)).estimate
    assert (wide.low, wide.high) == (1.0, pytest.approx(2.345850, abs=1e-6))
    outside = average_of(totals, None, (2.0, 5.0)).estimate
    assert outside.low is None and outside.note.startswith("Values lie outside the scale 2 to 5")


def test_intervals_cover_the_mean_where_sessions_differ_and_have_unequal_numbers_of_turns():
    """400 runs of 30 sessions with 1 to 8 turns each, alike within a session."""
    rng, covered = np.random.default_rng(1), 0
    for _ in range(400):
        size, share = rng.integers(1, 9, 30), rng.beta(1.4, 0.6, 30)
        rows = [
            {"valued": int(m), "total": float(rng.binomial(m, p)), "low": 0.0, "high": 1.0, "n": 1}
            for m, p in zip(size, share, strict=True)
        ]
        estimate = average_of(rows, None).estimate
        covered += estimate.low <= 0.7 <= estimate.high

    # Over the turns as if independent it covers in 70 %.
    assert 0.93 <= covered / 400 <= 0.99


def calibrated(store, pairs, *, digest="v1", at=NOW, **results):
    record = CalibrationRecord(
        evaluator="tone",
        evaluator_digest=digest,
        targets=len(pairs),
        document={"results": results, "scale": [0.0, 1.0], "pairs": pairs},
    )
    store.change(annotations.save_calibration, record, at)


def test_a_stored_calibration_of_the_same_version_corrects_the_average(either_store):
    # People say yes where the judge says no in a third of its noes.
    pairs = [[f"c{n}", float(n % 2 or n % 3 == 0), float(n % 2)] for n in range(60)]
    calibrated(either_store, [["x", 0.0, 1.0]] * 30, at=NOW - timedelta(days=1))
    calibrated(either_store, pairs)
    calibrated(either_store, [["x", 0.0, 1.0]] * 30, digest="v2", at=NOW + timedelta(days=1))

    (found,) = judged(either_store, [[float(n % 2)] for n in range(40)], level="session").summaries

    assert found.average.value == 0.5
    assert found.corrected.value == pytest.approx(2 / 3, abs=0.05)
    assert found.corrected.low < 2 / 3 < found.corrected.high
    assert "Corrected for the judge's errors: 0." in found.correction and "60 labels" in found.correction
    assert evaluator_summary(found)["corrected"]["method"].startswith("corrected for misclassification")


def test_a_calibration_with_labels_of_the_sessions_few_labels_or_another_scale(store):
    assert judged_again(store, [[1.0], [0.0]]).correction == "", "there is none"
    calibrated(store, [["a", 1.0, 1.0]])
    few = judged_again(store, [[1.0], [0.0]])
    assert few.correction == "Calibration: 1 labeled session: a correction needs at least 20."

    calibrated(store, [[f"id{n}", 1.0, float(n % 2)] for n in range(30)], at=NOW + timedelta(days=1))
    labeled = judged_again(store, [[float(n % 2)] for n in range(40)]).corrected
    assert (labeled.method, labeled.value) == ("rectified by labeled sessions", 1.0)
    assert labeled.low < 0.95

    outside = judged_again(store, [[float(n % 5)] for n in range(40)])
    assert outside.corrected.value is None
    assert outside.correction.startswith("Calibration: Values lie outside the scale 0 to 1")


def test_labels_correct_an_average_at_once_when_there_are_more_than_in_the_calibration(store):
    calibrated(store, [["a", 1.0, 1.0]])
    judged(store, [[float(n % 2)] for n in range(40)], level="session")
    for n in range(30):
        store.save_label(Label(session_id=f"id{n}", evaluator="tone", who="ann", target="t0", value=1.0), NOW)

    (found,) = results_of(store, "job").summaries

    assert (found.average.value, found.corrected.value) == (0.5, 1.0)
    assert found.corrected.method == "rectified by labeled sessions"


def test_noise_measured_by_a_calibration_counts_where_each_target_has_one_vote(store):
    calibrated(store, [], noiseVariance=0.01, repeats=3)

    once = judged_again(store, [[tone(0.5)]])
    assert (once.judge_standard_deviation, once.noise_from) == (pytest.approx(0.1), "calibration")
    assert once.average.high - once.average.value == pytest.approx(1.959964 * 0.1, abs=1e-5)
    assert once.corrected is None and evaluator_summary(once)["judgeStandardDeviationFrom"] == "calibration"

    voted = judged_again(store, [[tone(0.5, votes=(0.4, 0.6))]])
    assert (voted.judge_standard_deviation, voted.noise_from) == (pytest.approx(0.02**0.5), "votes")
    # Two votes halve the variance of the noise.
    assert voted.average.high - voted.average.value == pytest.approx(1.959964 * 0.1, abs=1e-5)
    assert voted.average.scope == "these sessions"


def sums(evaluator, dimension="", **more):
    row = {"evaluator": evaluator, "evaluatorDigest": "v1", "dimension": dimension, "level": "trace"}
    known = {"n": 4, "failed": 1, "valued": 3, "total": 6.0, "sessions": 2}
    return row | known | {"read": None, "written": None, "cost": None} | more


def requested(name, requested_as):
    details = {"evaluator": name, "evaluatorDigest": "v1", "level": "session"}
    return {"details": json.dumps(details), "settings": json.dumps({"evaluator": requested_as})}


def five_points(low, high, dimension=""):
    scale = {"numerical": [{"label": "bad", "value": low}, {"label": "good", "value": high}]}
    if dimension:
        scale = {"multiDimensional": [{"dimensionName": dimension, "dimensionRatingScale": scale}]}
    return {"evaluatorConfig": {"llmAsAJudge": {"ratingScale": scale}}}


def test_each_evaluator_has_its_figures_in_the_order_of_the_request():
    rows = [
        sums("kind", "warmth", read=70, written=9, cost=0.5),
        sums("kind", "", n=2, failed=2, valued=0, total=0.0, sessions=1),
        sums("tone", n=3, failed=3, valued=0, total=0.0),
        sums("extra"),
    ]
    totals = [
        {"evaluator": name, "evaluatorDigest": "v1", "dimension": dimension, "valued": valued}
        | {"total": total, "low": total / valued, "high": total / valued, "n": 1}
        for name, dimension, valued, total in (
            ("kind", "warmth", 1, 2.0),
            ("kind", "warmth", 2, 8.0),
            ("extra", "", 1, 2.0),
            ("extra", "", 1, 5.0),
        )
    ]
    key = {"evaluatorDigest": "v1", "dimension": "warmth"}
    labels = [{"evaluator": "kind", **key, "label": label, "n": n} for label, n in (("good", 2), ("bad", 1))]
    votes = [{"evaluator": "kind", **key, "votes": text} for text in ("[1, 3]", "[2, 2, null]", "[]")]
    results = evaluator_results(
        rows,
        [requested("none", "none-7"), requested("tone", "tone-7"), requested("kind", "kind-7")],
        labels,
        votes,
        totals,
        inverted=["kind"],
        definitions={"kind-7": five_points(1.0, 5.0, "warmth"), "extra": five_points(2.0, 6.0)},
    )
    asked = [(one.evaluator, one.requested_as, one.level, one.dimension) for one in results]
    assert asked[:2] == [("none", "none-7", "session", ""), ("tone", "tone-7", "trace", "")]
    assert asked[2:] == [("kind", "kind-7", "trace", "warmth"), ("extra", "extra", "trace", "")]
    none, tone, kind, extra = results
    assert (none.evaluated, none.failed, none.sessions) == (0, 0, 0)
    assert (tone.evaluated, tone.failed, tone.if_failures_were_zero, tone.average.value) == (0, 3, None, None)
    # A target that failed as a whole failed on each dimension.
    assert (kind.evaluated, kind.failed, kind.sessions) == (3, 3, 2)
    assert (kind.if_failures_were_zero, extra.if_failures_were_zero) == (1.0, 1.5)
    assert (kind.high_is_bad, extra.high_is_bad) == (True, False)
    assert (kind.input_tokens, kind.output_tokens, kind.cost_usd) == (70, 9, 0.5)
    assert (extra.input_tokens, extra.output_tokens, extra.cost_usd) == (0, 0, None)
    assert (dict(kind.labels), dict(extra.labels)) == ({"good": 2, "bad": 1}, {})
    assert (kind.noise_from, kind.judge_standard_deviation) == ("votes", 1.0)
    assert (extra.noise_from, extra.judge_standard_deviation) == ("", None)
    # Both are on the scale that their definition declares, by the name of the request or their own.
    assert [one.average.method for one in (kind, extra)] == ["plus", "plus"]
    assert (kind.average.value, extra.average.value) == (10 / 3, 3.5)
    assert (kind.average.low, kind.average.high) == (1.0, 5.0)
    assert (extra.average.low, extra.average.high) == (2.0, 6.0)


def test_without_a_scale_the_interval_is_at_least_as_wide_as_the_noise():
    totals = [{"valued": 1, "total": value, "low": value, "high": value, "n": 1} for value in (4.0, 4.1, 4.2)]
    quiet = average_of(totals, JudgeNoise(vote_variance=1e-6, left=1.0))
    noisy = average_of(totals, JudgeNoise(vote_variance=3.0, left=1.0))
    # 4.302653 is the quantile of two degrees of freedom, 1 the error of the noise.
    limits = (noisy.estimate.low, noisy.estimate.high)
    assert limits == pytest.approx((4.1 - 4.302653, 4.1 + 4.302653), abs=1e-6)
    assert (noisy.is_noise, quiet.is_noise) == (True, False)
    assert quiet.estimate.low is None


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ((0.5, 0.4, 0.6), "Corrected for the judge's errors: 0.500 (95% CI 0.400 to 0.600), m, 9 labels. A."),
        ((0.5, None, 0.6), "Calibration: A."),
        ((0.5, 0.4, None), "Calibration: A."),
        ((None, 0.4, 0.6), "Calibration: A."),
        (None, ""),
    ],
)
def test_a_corrected_mean_is_a_sentence_if_it_has_both_limits(limits, words):
    estimate = None
    if limits:
        value, low, high = limits
        estimate = Estimate(value=value, low=low, high=high, method="m", runs=9, note="A.")
    result = EvaluatorResult(evaluator="e", requested_as="e", digest="", level="trace", corrected=estimate)
    assert result.correction == words


# Insights


def finding(session: str, label: str, **details: object) -> InsightFinding:
    return InsightFinding(session=session, label=label, details=details)


def test_findings_of_one_spelling_or_another_are_one_cluster() -> None:
    assert bare("Book a Flight!") == bare("book,  a flight") == "book a flight"
    found = [finding("1", "b"), finding("2", "a"), finding("3", "B"), finding("3", "b."), finding("4", "c")]
    grouped = clusters(found, lambda each: bare(each.label))
    assert [(each.id, each.key, each.sessions, each.first.session) for each in grouped] == [
        (1, "b", 2, "1"),
        (2, "a", 1, "2"),
        (3, "c", 1, "4"),
    ]


def test_insights_have_a_title_an_example_and_their_sessions() -> None:
    label = "tool-misuse.wrong-arguments"
    insights = insights_of(
        {
            FAILURES: [finding("1", label, root_cause="a typo", description="other")],
            INTENT: [
                finding("1", "Book", description="wants a flight"),
                finding("2", "book"),
                finding("1", "book"),
            ],
            SUMMARY: [finding("1", "Short", final_outcome="")],
        }
    )
    assert [(each.insight, each.found, each.example, each.sessions) for each in insights] == [
        (FAILURES, f"{family_of(label)}: {kind_of(label)}", "a typo", ["1"]),
        (INTENT, "Book", "wants a flight", ["1", "2"]),
        (SUMMARY, "Short", "", ["1"]),
    ]


def test_sessions_without_a_failure_are_no_findings() -> None:
    bare_row = {"label": "x", "details": "{}", "explanation": "{}", "scoredSessionId": "j"}
    own = {"details": json.dumps({"session": "s"}), "explanation": '{"a": 1}'}
    rows = [bare_row | own, bare_row, bare_row | {"label": NO_FAILURE}]
    found = findings_of(rows)  # type: ignore[arg-type]
    assert [(each.session, each.details) for each in found] == [("s", {"a": 1}), ("j", {})]
    assert found[0].text("a") == "1" and found[0].text("b") == ""


def test_sessions_with_more_results_weigh_more() -> None:
    even = [{"n": 2, "valued": 2, "total": 1.0}, {"n": 1, "valued": 2, "total": 2.0}]
    assert session_values(even).tolist() == [0.5, 0.5, 1.0]  # type: ignore[arg-type]
    uneven = [{"n": 1, "valued": 1, "total": 1.0}, {"n": 1, "valued": 3, "total": 0.0}]
    values = session_values(uneven)  # type: ignore[arg-type]
    assert values.tolist() == [0.625, -0.125]
    assert values.mean() == 0.25, "the mean over results"


@pytest.mark.parametrize(
    ("criterion", "scale"),
    [
        ({"scale": "binary", "low": 1, "high": 5}, (0.0, 1.0)),
        ({"scale": "scalar", "low": 1, "high": 5}, (1.0, 5.0)),
        ({"scale": "scalar", "low": 1}, None),
        ({"scale": "categorical", "low": 1, "high": 5}, None),
    ],
)
def test_the_scale_of_a_criterion(criterion: dict[str, object], scale: tuple[float, float] | None) -> None:
    assert criterion_scale(criterion) == scale  # type: ignore[arg-type]
