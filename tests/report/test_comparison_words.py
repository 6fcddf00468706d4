"""Differences, trends and predictions in words."""

import re
from dataclasses import replace

import pytest

from proctor.batch.estimate import Forecast, Predicted
from proctor.json_values import camel_document
from proctor.report.comparison import (
    amounts,
    around,
    change,
    change_text,
    comparison_junit,
    difference_document,
    figure,
    finding,
    headline,
    is_better,
    is_regression,
    method,
    numbers,
    plot_of,
    sentence,
    shift,
    size,
    trend_plot,
    trend_summary,
    with_errors,
)
from proctor.report.estimate import basis, forecast_lines
from proctor.stats.comparison import Comparison, Contrast, GateResult, Mean
from proctor.stats.differences import Difference
from proctor.stats.figures import TrendPoint
from proctor.stats.intervals import Estimate

CLEAR = Difference(
    value=0.25, low=0.1, high=0.4, n=12, tasks=(12, 12), p=0.01, p_adjusted=0.01, method="plus, paired"
)
OPEN = replace(CLEAR, value=0.05, low=-0.1, high=0.2, p=0.3, p_adjusted=0.3, detectable=0.2, needs=90)
LESS = replace(CLEAR, value=-0.25, low=-0.4, high=-0.1)
RATIO = replace(CLEAR, value=1.25, low=1.1, high=1.5, null=1.0)
CHEAPER = replace(RATIO, value=0.5, low=0.4, high=0.75)
BARE = replace(OPEN, low=None, high=None, note="Few tasks.")


def contrast(one: Difference | None = CLEAR, metric: str = "success", **more: object) -> Contrast:
    known = {
        "metric": metric,
        "baseline": "a",
        "candidate": "b",
        "difference": one,
        "is_member": True,
        "pairs": 12,
    }
    known |= {"baseline_mean": Mean(value=0.5), "candidate_mean": Mean(value=0.75)}
    return Contrast(**known | more)  # type: ignore[arg-type]


def comparison(*contrasts: Contrast, verdicts: tuple[GateResult, ...] = ()) -> Comparison:
    return Comparison(groups=("a", "b"), pair="task", varied=(), contrasts=contrasts, verdicts=verdicts)


@pytest.mark.parametrize(
    ("metric", "value", "level", "difference"),
    [
        ("success", 0.25, "25%", "+25.0 pp"),
        ("cost", 0.25, "$0.25", "+$0.25"),
        ("time", 90.0, "1 min 30 s", "+1 min 30 s"),
        ("tokens", 12_345.0, "12.3 k", "+12.3 k"),
        ("score:x", 1.23456, "1.235", "+1.235"),
    ],
)
def test_values_and_differences_have_the_unit_of_their_metric(
    metric: str, value: float, level: str, difference: str
) -> None:
    assert (figure(value, metric), change(value, metric)) == (level, difference)
    assert change(-value, metric) == difference.replace("+", "−")
    assert change(0.0, metric).startswith("±")
    assert figure(None, metric) == change(None, metric) == "–"


@pytest.mark.parametrize(
    ("values", "read"),
    [
        ((5.214e-6, 0.00042), ["$0.00521 per 1,000", "$0.420 per 1,000"]),
        ((0.0, 5.2e-5), ["$0.00 per 1,000", "$0.0520 per 1,000"]),
        ((0.0042, None), ["$0.0042", "–"]),
    ],
)
def test_tiny_costs_beside_each_other_are_those_of_a_thousand(values: tuple[float, ...], read: list[str]):
    assert list(map(amounts("cost", *values), values)) == read


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (1.25, "+25.0%"),
        (0.5, "−50.0%"),
        (1.0, "±0.0%"),
        (2.99, "+199.0%"),
        (3.0, "×3"),
        (12.345, "×12.3"),
        (None, "–"),
    ],
)
def test_a_ratio_is_a_relative_change(value: float | None, words: str) -> None:
    assert shift(RATIO, value, "cost") == words
    assert shift(None, value, "cost") == "–"
    assert shift(CLEAR, -0.1, "success") == "−10.0 pp"


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (CLEAR, "+10.0 pp to +40.0 pp"),
        (replace(CLEAR, low=None), "no lower limit to +40.0 pp"),
        (replace(CLEAR, high=None), "+10.0 pp to no upper limit"),
        (BARE, "not enough data"),
        (replace(BARE, spread=0.0), "the same in every task"),
        (None, "not comparable"),
    ],
)
def test_an_interval_in_words(one: Difference | None, words: str) -> None:
    assert around(contrast(one)) == words


def test_without_values_there_is_not_enough_data() -> None:
    one = contrast(None, baseline_mean=Mean(value=None))
    other = contrast(None, candidate_mean=Mean(value=None))
    assert around(one) == finding(one) == around(other) == "not enough data"
    assert (size(one), with_errors(one), numbers(one)) == ("–", "–", "–")


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (contrast(), "higher"),
        (contrast(LESS), "lower"),
        (contrast(CHEAPER, "cost"), "lower"),
        (contrast(OPEN), "not significant"),
        (contrast(replace(OPEN, needs=6)), "too few tasks"),
        (contrast(replace(OPEN, needs=7)), "not significant"),
        (contrast(replace(OPEN, needs=None)), "not significant"),
        (contrast(is_member=False), "not tested"),
        (contrast(with_errors=OPEN), "depends on errors"),
        (contrast(replace(BARE, value=0.0, spread=0.0)), "equal"),
        (contrast(replace(BARE, spread=0.0)), "not tested"),
        (contrast(BARE), "not enough data"),
        (contrast(replace(CLEAR, value=None)), "not enough data"),
        (contrast(replace(CLEAR, low=None)), "higher"),
    ],
)
def test_a_finding_in_a_word(one: Contrast, words: str) -> None:
    assert finding(one) == words


def test_numbers_are_of_pairs_or_of_both_sides() -> None:
    assert numbers(contrast(pairs=1200)) == "1,200"
    assert numbers(contrast(pairs=0)) == "12 + 12"
    assert method(CLEAR) == "plus interval of paired differences"
    assert method(replace(CLEAR, method="Fieller")) == "Fieller"


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (
            contrast(),
            "Significant: b succeeds more often, +25.0 pp (95% CI +10.0 pp to +40.0 pp, p = 0.010, 12 "
            "paired tasks).",
        ),
        (
            contrast(LESS, "score:x"),
            "Significant: b is lower, −0.25 (95% CI −0.4 to −0.1, p = 0.010, 12 paired tasks).",
        ),
        (
            contrast(CHEAPER, "cost"),
            "Significant: b costs less, −50.0% (95% CI −60.0% to −25.0%, p = 0.010, 12 paired tasks).",
        ),
        (
            contrast(OPEN, pairs=0),
            "No significant difference: +5.0 pp (95% CI −10.0 pp to +20.0 pp, p = 0.300, 12 + 12 tasks). "
            "Minimum detectable effect: 20.0 pp at 80% power. A verdict needs about 90 tasks if the true "
            "difference is about as observed.",
        ),
        (
            contrast(is_member=False),
            "Descriptive, no verdict: +25.0 pp (95% CI +10.0 pp to +40.0 pp, 12 paired tasks).",
        ),
        (
            contrast(with_errors=OPEN),
            "Inconclusive: infrastructure errors decide it. Errors excluded +25.0 pp, errors as failures "
            "+5.0 pp, 12 paired tasks.",
        ),
        (contrast(BARE), "+5.0 pp; no confidence interval: Few tasks."),
        (contrast(replace(BARE, note="")), "+5.0 pp; no confidence interval: too few tasks."),
        (contrast(None), "Not enough data: too few values."),
        (contrast(None, remarks=("one", "two")), "Not enough data: one; two."),
        (contrast(replace(BARE, value=None)), "Not enough data: Few tasks."),
    ],
)
def test_a_contrast_in_a_sentence(one: Contrast, words: str) -> None:
    assert sentence(one) == words


def test_the_headline_is_about_the_first_metric() -> None:
    assert headline(comparison(contrast())) == (
        "b succeeds more often than a: +25.0 pp (95% CI +10.0 pp to +40.0 pp, 12 paired tasks)."
    )
    assert headline(comparison(contrast(LESS, "score:Builtin.Tone"))).startswith(
        "b is lower in Tone than a: "
    )
    assert headline(comparison(contrast(OPEN))).startswith("b and a do not differ significantly in success: ")
    assert headline(comparison(contrast(with_errors=OPEN))).startswith(
        "Infrastructure errors decide whether b and a "
    )
    assert headline(comparison(contrast(BARE))) == "There is not enough data to compare success of b and a."
    many = [contrast(candidate=f"c{number}") for number in range(6)]
    assert headline(comparison(*many, contrast(OPEN, candidate="d"), contrast(CLEAR, "cost"))) == (
        "6 of 7 candidates differ significantly from a in success: c0 (+25.0 pp), c1 (+25.0 pp), c2 (+25.0 "
        "pp), c3 (+25.0 pp) and 2 more."
    )
    assert headline(comparison(*many[:4], contrast(OPEN))).endswith("c3 (+25.0 pp).")
    assert headline(comparison(contrast(OPEN), contrast(OPEN))) == (
        "None of the 2 candidates differs significantly from a in success."
    )


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (contrast(), True),
        (contrast(LESS), False),
        (contrast(OPEN), None),
        (contrast(RATIO, "cost"), False),
        (contrast(CHEAPER, "time"), True),
        (contrast(CLEAR, "metric:depth"), None),
        (contrast(CLEAR, "score:harm"), False),
        (contrast(LESS, "score:harm/tone"), True),
        (contrast(CLEAR, "score:harmony"), True),
        (contrast(None), None),
    ],
)
def test_whether_a_difference_is_for_the_better(one: Contrast, expected: bool | None) -> None:
    assert is_better(one, ["harm"]) is expected
    if not one.metric.startswith("score:harm"):
        assert is_regression(one) is (None if expected is None else not expected)


def test_a_difference_as_json_is_a_distance_from_none() -> None:
    document = difference_document(replace(RATIO, detectable=1.5, needs=9, note="Few."))
    values = [document[name] for name in ("value", "low", "high", "smallestDetectable")]
    assert values == [pytest.approx(0.25), pytest.approx(0.1), pytest.approx(0.5), pytest.approx(0.5)]
    assert document["isRatio"] is True and document["note"] == "Few."
    assert difference_document(CLEAR)["value"] == 0.25


def test_gates_are_test_cases_for_other_tools() -> None:
    verdicts = tuple(
        GateResult(gate="g\x00", candidate="b\ufffe", verdict=verdict, text=f"{verdict}\x1b\tso")
        for verdict in ("pass", "fail", "inconclusive", "fail")
    )
    xml = comparison_junit(comparison(contrast(), verdicts=verdicts))
    assert 'tests="4" failures="2" errors="1"' in xml
    assert xml.count('<testcase classname="b" name="g">') == 4
    assert xml.count('type="regression"') == 2 and xml.count('type="inconclusive"') == 1
    assert "<system-out>pass\tso</system-out>" in xml


def test_a_plot_of_differences_has_a_mark_for_each_candidate() -> None:
    contrasts = [contrast(RATIO, "cost"), contrast(None, "cost"), contrast(CLEAR)]
    plot = plot_of(contrasts, "cost", "a", is_marked=True)
    assert "cost: relative change from a, with 95% CI" in plot and "+40%" in plot
    assert plot.count("data-mark") == 1 and 'data-mark="0"' in plot
    assert "success: difference from a, with 95% CI" in plot_of(contrasts, "success", "a")
    assert "data-mark" not in plot_of(contrasts, "success", "a")


def test_the_axis_of_a_cost_begins_at_minus_100_percent_whatever_the_interval() -> None:
    wide = replace(RATIO, value=1.2, low=0.5, high=50.0)
    plot = plot_of([contrast(wide, "cost")], "cost", "a")
    ticks = re.findall(r'class="c-tick" text-anchor="middle">([^<]+)<', plot)
    assert ticks == ["−50%", "+50%", "+100%", "0"]


# Trends


def trend_point(name: str, one: Difference | None, value: float | None = 0.5, **more: object) -> TrendPoint:
    estimate = Estimate(value=value, low=0.25, high=0.75, n=12)
    change = None if one is None else contrast(one, baseline="before", **more)
    return TrendPoint(run_id=name, estimate=estimate, change=change)


def test_a_trend_marks_significant_changes() -> None:
    points = [
        trend_point("first", None),
        trend_point("better", CLEAR),
        trend_point("worse", LESS),
        trend_point("same", OPEN),
        trend_point("unknown", None, None),
        trend_point("aimless", CLEAR, metric="metric:x"),
    ]
    at = {point.run_id: f"2026-03-0{number + 1}T12:00" for number, point in enumerate(points)}
    plot, figures = trend_plot("plan", points, "success", at)
    assert [figure.label for figure in figures] == ["first", "better", "worse", "same", "aimless"]
    assert [figure.note for figure in figures] == [
        "",
        "+25.0 pp against before",
        "−25.0 pp against before",
        "+5.0 pp against before, not significant",
        "+0.25 against before",
    ]
    assert (plot.count("c-success"), plot.count("c-fail")) == (1, 1)
    assert "03-01" in plot and "03-05" not in plot and "plan: success of each run, with 95% CI" in plot


def test_the_first_run_of_a_day_has_its_date_and_the_others_their_time() -> None:
    at = {"a": "2026-03-01T08:00:07", "b": "2026-03-01T09:30:00", "c": "2026-03-02T07:15:00"}
    plot, _ = trend_plot("plan", [trend_point(name, None) for name in at], "success", at)
    assert re.findall(r">(\d\d[-:]\d\d)<", plot) == ["03-01", "09:30", "03-02"]


def test_a_trend_is_summarized_by_its_last_value_and_latest_change() -> None:
    first, better, same = (
        trend_point("first", None),
        trend_point("up", CLEAR),
        trend_point("last", OPEN, 0.75),
    )
    assert trend_summary([first, same], "success") == (
        "75% in the last of 2 runs; no significant change from run to run."
    )
    assert trend_summary([first, trend_point("down", LESS), better, same], "success") == (
        "75% in the last of 4 runs; latest improvement: up, +25.0 pp (95% CI +10.0 pp to +40.0 pp, 12 "
        "paired tasks)."
    )
    assert "; latest regression: down, " in trend_summary(
        [first, better, trend_point("down", LESS)], "success"
    )
    assert change_text(contrast(pairs=0)) == "+25.0 pp (95% CI +10.0 pp to +40.0 pp)"


# Predictions


def forecast(cost: Predicted, time: Predicted, items: int = 8) -> Forecast:
    return Forecast(items=items, cost_usd=cost, seconds=time)


def test_a_prediction_has_its_interval_and_what_it_rests_on() -> None:
    cost = Predicted(value=1.5, low=1.0, high=2.5, sessions=12, items=8)
    time = Predicted(value=90.0, low=60.0, high=120.0, sessions=1, items=8)
    assert forecast_lines(forecast(cost, time)) == [
        "cost: about $1.50 (1.00 to 2.50), from 12 like sessions",
        "time: about 1 min 30 s (1 min to 2 min), from 1 like session",
    ]
    assert forecast_lines(
        forecast(Predicted(value=0.0, low=0.0, high=0.0, sessions=3, items=8), Predicted())
    ) == [
        "cost: $0.00, from 3 like sessions",
        "time: unknown, no like sessions in the store",
    ]
    few = Predicted(value=1.5, sessions=1, items=8, unknown=("a", "b", "c", "d"))
    assert forecast_lines(forecast(few, replace(few, items=1000, unknown=("a", "b", "c")), 2000)) == [
        (
            "cost: about $1.50, from 1 like session, too few for an interval for 8 of 2,000 items; unknown: "
            "a, b, c and others"
        ),
        (
            "time: about 1.5 s, from 1 like session, too few for an interval for 1,000 of 2,000 items; "
            "unknown: a, b, c"
        ),
    ]
    assert forecast_lines(forecast(few, few))[0].endswith(
        "too few for an interval; unknown: a, b, c and others"
    )
    assert forecast_lines(forecast(Predicted(unknown=("m",)), time))[0].endswith("in the store (m)")


def test_the_basis_of_a_prediction_in_a_sentence() -> None:
    time = Predicted(value=90.0, sessions=1, items=8)
    assert basis(forecast(Predicted(), Predicted())).startswith("Nothing like it was done here before")
    assert basis(forecast(Predicted(), time)) == "From an earlier session of the same agents and models."
    more = replace(time, sessions=1200, unknown=("a", "b"))
    assert basis(forecast(Predicted(unknown=("b", "c")), more, 9)) == (
        "From 1,200 earlier sessions of the same agents and models, for 8 of 9 items: nothing is known of "
        "a, b, c."
    )
    document = camel_document(forecast(Predicted(value=1.0, low=0.5, high=2.0, sessions=3, items=4), time))
    assert document["items"] == 8
    cost = {"value": 1.0, "low": 0.5, "high": 2.0, "sessions": 3, "items": 4, "unknown": []}
    assert document["costUsd"] == cost
