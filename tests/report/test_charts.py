"""Plots: well-formed, in scale, and safe with any label."""

import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proctor.report import charts
from proctor.report.charts import Bar, Point

SVG = "{http://www.w3.org/2000/svg}"


def parsed(plot):
    return ElementTree.fromstring(plot)


def test_the_names_of_points_that_coincide_do_not_cover_each_other():
    points = [Point(label=name, x=1, y=0.5) for name in ("one", "two", "three")]
    plot = parsed(charts.scatter("t", points, x_axis="x", y_axis="y", y_top=1.0))
    heights = [
        float(text.attrib["y"]) for text in plot.iter(f"{SVG}text") if text.attrib["class"] == "c-label"
    ]

    assert len(heights) == 3
    assert min(abs(a - b) for i, a in enumerate(heights) for b in heights[:i]) >= 12


def test_an_interval_far_beyond_the_bars_is_cut_with_an_arrow():
    entries = [charts.Bar(label="a", value=1.0, low=0.5, high=3000.0), charts.Bar(label="b", value=0.8)]
    plot = parsed(charts.bars("t", entries))

    widths = [float(bar.attrib["width"]) for bar in plot.iter(f"{SVG}rect")]
    assert min(widths) > 50
    whiskers = [line for line in plot.iter(f"{SVG}line") if line.attrib["class"] == "c-whisker"]
    assert (
        sum(
            line.attrib["y1"] != line.attrib["y2"] and line.attrib["x1"] != line.attrib["x2"]
            for line in whiskers
        )
        == 2
    )


def test_costs_of_different_size_have_an_axis_of_ratios_with_legible_labels():
    points = [
        Point(label=name, x=x, y=0.5, is_marked=True) for name, x in (("a", 0.0006), ("b", 0.11), ("c", 4.0))
    ]
    plot = parsed(
        charts.scatter("t", points, x_axis="c", y_axis="y", say_x=charts.usd, y_top=1.0, is_log=True)
    )

    at = [
        float(mark.attrib["cx"]) for mark in plot.iter(f"{SVG}circle") if "c-ring" not in mark.attrib["class"]
    ]
    assert at == sorted(at) and at[1] - at[0] > 80 and at[2] - at[1] > 40
    money = [text.text for text in plot.iter(f"{SVG}text") if (text.text or "").startswith("$")]
    assert len(set(money)) == len(money) >= 2


def test_no_two_ticks_of_small_amounts_of_money_have_the_same_label():
    points = [Point(label="a", x=0.00002, y=1.0), Point(label="b", x=0.00011, y=0.5)]
    plot = parsed(charts.scatter("t", points, x_axis="cost", y_axis="y", say_x=charts.usd, y_top=1.0))

    money = [text.text for text in plot.iter(f"{SVG}text") if (text.text or "").startswith("$")]

    assert len(money) > 3
    assert len(set(money)) == len(money)


@pytest.mark.parametrize(
    ("top", "expected"),
    [
        (1.0, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (7, [0, 2, 4, 6, 8]),
        (0, [0, 1]),
        (1234, [0, 250, 500, 750, 1000, 1250]),
    ],
)
def test_ticks_are_round_numbers_that_reach_the_top(top, expected):
    assert charts.ticks(top) == pytest.approx(expected)


@given(st.floats(1e-9, 1e15))
def test_there_are_never_too_many_ticks(top):
    found = charts.ticks(top)

    assert 2 <= len(found) <= 7
    assert found[-1] >= top * (1 - 1e-9)


@given(st.floats(0, 1e9), st.floats(-1e9, 0))
def test_ticks_from_below_nothing_go_through_nothing(top, bottom):
    found = charts.ticks(top, bottom=bottom)

    assert 2 <= len(found) <= 8
    assert 0.0 in found
    slack = (top - bottom) * 1e-6
    assert found[0] <= bottom + max(slack, 1e-12) and found[-1] >= top - slack


@given(st.text(), st.floats(0, 1e9))
@example("\ufffe\uffff\ud800", 1.0)
def test_any_label_gives_a_well_formed_plot(label, value):
    for plot in (
        charts.bars(label, [Bar(label=label, value=value)]),
        charts.stacked(label, [Bar(label=label, value=value)]),
        charts.histogram(label, [(0.0, 1.0)], [3], axis=label),
        charts.scatter(label, [Point(label=label, x=value, y=value)], x_axis=label, y_axis=label),
        charts.line(label, [Point(label=label, x=value, y=value, low=0, high=value)], x_axis=label),
    ):
        assert parsed(plot).attrib["role"] == "img"
