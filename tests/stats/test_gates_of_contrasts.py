"""What gates say of one contrast, and when errors decide it."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from proctor.job import StopRule
from proctor.stats.comparison import (
    Contrast,
    Mean,
    _direction,
    _reason,
    _valid_at_any_time,
    _verdict,
    _while_running,
    gate_of,
)
from proctor.stats.differences import FAIL, INCONCLUSIVE, PASS, Difference, GateVerdict, difference, gate


def contrast(change: Difference | None, baseline: float | None = 0.5, **more: object) -> Contrast:
    known = {
        "metric": "success",
        "baseline": "a",
        "candidate": "b",
        "baseline_mean": Mean(value=baseline),
        "candidate_mean": Mean(value=baseline),
        "difference": change,
        "is_member": True,
    }
    return Contrast(**known | more)  # type: ignore[arg-type]


SAME = difference([0.5] * 20, [0.5] * 20, lo=0.0, hi=1.0)
BETTER = difference([0.0] * 20, [1.0] * 20, lo=0.0, hi=1.0)
WORSE = difference([1.0] * 20, [0.0] * 20, lo=0.0, hi=1.0)
OPEN = difference([0.0, 1.0] * 10, [1.0, 0.0] * 10, lo=0.0, hi=1.0)


@pytest.mark.parametrize(
    ("gate", "verdict"),
    [("cost<=0", PASS), ("cost<=10%", PASS), ("cost<=-10%", FAIL), ("cost>=-10%", PASS), ("cost>=5%", PASS)],
)
def test_what_costs_nothing_on_both_sides_passes_unless_it_should_fall(gate: str, verdict: str) -> None:
    one = contrast(SAME, 0.0, metric="cost")
    result = _verdict(gate_of(gate), one)
    assert (result.verdict, result.words) == (verdict, "both have a cost of 0 in every task")
    assert (result.gate, result.candidate) == (gate, "b")


def test_a_gate_without_a_difference_or_a_base_says_why() -> None:
    result = _verdict(gate_of("success>=-0.1"), contrast(None, remarks=("one of them has no value",)))
    assert (result.verdict, result.words) == (INCONCLUSIVE, "one of them has no value")
    result = _verdict(gate_of("success>=-10%"), contrast(SAME, 0.0))
    assert (result.verdict, result.words) == (
        INCONCLUSIVE,
        "the baseline's mean is 0, of which nothing is a share",
    )


@pytest.mark.parametrize(
    ("change", "gate", "verdict"),
    [
        (BETTER, "success>=0", PASS),
        (WORSE, "success>=-0.1", FAIL),
        (OPEN, "success>=-0.1", INCONCLUSIVE),
        (SAME, "success>=-0.5", PASS),
        (SAME, "success>=-0.01", INCONCLUSIVE),
    ],
)
def test_a_gate_has_the_verdict_of_its_interval(change: Difference, gate: str, verdict: str) -> None:
    result = _verdict(gate_of(gate), contrast(change))
    assert result.verdict == verdict
    if result.needs is None or verdict != INCONCLUSIVE:
        assert result.more_pairs is None and "more task" not in result.words
    else:
        assert result.more_pairs == max(1, result.needs - change.n)
        assert result.words.endswith(f"({result.more_pairs:,} more tasks)")


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
def test_the_margin_of_a_gate_is_on_the_scale_of_the_difference(
    gate: str, is_ratio: bool, base: float | None, margin: float | None
) -> None:
    change = Difference(value=1.0, null=1.0 if is_ratio else 0.0)
    assert gate_of(gate).margin(contrast(change, base)) == (None if margin is None else pytest.approx(margin))


@pytest.mark.parametrize(
    ("metric", "change", "words"),
    [
        ("success", {"low": 0.1, "high": 0.3}, "the difference is +20.0 pp (+10.0 pp to +30.0 pp); it is so"),
        ("score:x", {"low": -0.1}, "the difference is +0.2 (-0.1 to no upper limit); it is so"),
        ("score:x", {"high": 0.3}, "the difference is +0.2 (no lower limit to +0.3); it is so"),
        ("score:x", {}, "the difference is +0.2 (no interval); it is so"),
        (
            "cost",
            {"null": 1.0, "value": 1.25, "low": 1.0, "high": 1.5},
            "the difference is +25.0% (+0.0% to +50.0%); it is so",
        ),
        ("cost", {"value": None}, "it is so"),
    ],
)
def test_the_reason_of_a_verdict_has_the_difference_and_its_limits(
    metric: str, change: dict[str, float], words: str
) -> None:
    one = replace(Difference(value=0.2), **change)  # type: ignore[arg-type]
    verdict = GateVerdict(verdict=PASS, note="It is so.")
    assert _reason(metric, one, verdict) == words


def test_a_run_that_is_still_going_passes_no_gate() -> None:
    passed = _verdict(gate_of("success>=0"), contrast(BETTER))
    assert _while_running(passed, {}) is passed
    running = _while_running(passed, {"a": 1000, "b": 234})
    assert running.verdict == INCONCLUSIVE
    assert running.words.startswith(
        "1,234 items have no result yet: a gate needs a finished run (so far pass); the"
    )
    open_one = _verdict(gate_of("success>=-0.1"), contrast(OPEN))
    assert _while_running(open_one, {"a": 1}) is open_one


def test_errors_decide_where_counting_them_as_failures_changes_the_direction() -> None:
    assert [_direction(each) for each in (BETTER, WORSE, OPEN)] == [1, -1, 0]
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


@pytest.mark.parametrize(
    ("low", "high", "margin", "n", "verdict", "note"),
    [
        (-0.1, 0.1, 0.2, 40, PASS, "Within the margin."),
        (-0.1, 0.0, 0.2, 40, PASS, "Within the margin."),
        (-0.1, -0.05, 0.2, 40, PASS, "Worse, but within the margin."),
        (-0.1, 0.1, 0.1, 40, INCONCLUSIVE, None),
        (0.0, 0.1, 0.0, 40, INCONCLUSIVE, None),
        (0.01, 0.1, 0.0, 40, PASS, "Within the margin."),
        (-0.3, -0.2, 0.1, 40, FAIL, "Significantly worse."),
        (-0.3, 0.0, 0.1, 40, INCONCLUSIVE, None),
        (0.3, 0.4, -0.2, 40, PASS, "Improved as required."),
        (0.0, 0.1, -0.2, 40, FAIL, "The required improvement is excluded."),
        (0.0, 0.2, -0.2, 40, INCONCLUSIVE, None),
        (-0.3, -0.2, 0.1, 6, FAIL, "Significantly worse."),
        (-0.3, -0.2, 0.1, 5, INCONCLUSIVE, None),
        (-0.1, 0.1, 1.0, 1, PASS, "No loss can exceed the margin."),
        (None, None, 0.1, 40, INCONCLUSIVE, "No interval."),
    ],
)
def test_a_gate_is_decided_by_the_ends_of_the_interval(
    low: float | None, high: float | None, margin: float, n: int, verdict: str, note: str | None
) -> None:
    change = replace(SAME, low=low, high=high, n=n, note="", needs=None)
    result = gate(change, margin)
    assert result.verdict == verdict
    assert note is None or result.note == note
    if low is not None and high is not None:
        mirrored = replace(change, value=0.0, low=-high, high=-low)
        assert gate(mirrored, margin, lower_is_better=True).verdict == verdict


@pytest.mark.parametrize(
    ("n", "words"), [(35, "35 tasks: fewer than 36 cannot show"), (36, "Not enough tasks: about ")]
)
def test_a_gate_that_is_open_says_whether_there_are_enough_tasks(n: int, words: str) -> None:
    change = replace(OPEN, low=-0.2, high=0.2, n=n)
    result = gate(change, 0.1)
    assert (result.verdict, result.fewest) == (INCONCLUSIVE, 36)
    assert result.note.startswith(words)


def test_confidence_sequences_share_the_error_rate_of_the_family() -> None:
    rules: list[StopRule] = []

    class Monitored:
        names = ("a", "b", "c")
        results = SimpleNamespace(metrics={"cost": np.asarray([0.5, 2.0])}, scales={})

        def anytime(self, rule: StopRule) -> None:
            rules.append(rule)

    own = StopRule(by="agent", metric="score:x", decided=True, scale=(1.0, 5.0), unit="repeat")
    open_ones = [
        contrast(None, metric="score:x"),
        contrast(None, metric="cost"),
        contrast(None, metric="cost"),
    ]
    for size in (8, 1):
        _valid_at_any_time(Monitored(), replace(own), open_ones, size)  # type: ignore[arg-type]
    assert [(rule.metric, rule.baseline, rule.by, rule.unit, rule.scale) for rule in rules[:2]] == [
        ("score:x", "a", "agent", "repeat", (1.0, 5.0)),
        ("cost", "a", "agent", "repeat", (0.0, 1.0)),
    ]
    assert [rule.confidence for rule in rules] == [
        pytest.approx(each) for each in (0.9875, 0.9875, 0.95, 0.95)
    ]


def test_a_gate_without_errors_says_nothing_about_them():
    one = difference([1, 0] * 60, [1, 0] * 60, lo=0, hi=1)
    assert gate(one, 0.05, with_errors=one) == gate(one, 0.05, with_errors=one, errors=0)
    assert gate(one, 0.05) == gate(one, 0.05, errors=0)
