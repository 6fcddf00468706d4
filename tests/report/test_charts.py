"""Plots: well-formed, in scale, and safe with any label."""

import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proctor.report import charts
from proctor.report.charts import Bar, Point, line

SVG = "{http://www.w3.org/2000/svg}"


def parsed(plot):
    return ElementTree.fromstring(plot)


def rects(plot):
    return list(parsed(plot).iter(f"{SVG}rect"))


def test_bars_are_as_long_as_their_values():
    plot = charts.bars("t", [Bar(label="a", value=1), Bar(label="b", value=0.25)], top=1.0)
    long, quarter = [float(rect.attrib["width"]) for rect in rects(plot)]

    assert quarter == pytest.approx(long / 4, abs=0.1)


def test_an_unknown_value_has_no_bar():
    assert rects(charts.bars("t", [Bar(label="a", value=None)])) == []


def test_an_interval_is_drawn_where_it_lies():
    plot = charts.bars("t", [Bar(label="a", value=0.5, low=0.25, high=1.0)], top=1.0)
    (bar,) = rects(plot)
    whisker = next(line for line in parsed(plot).iter(f"{SVG}line") if line.attrib["class"] == "c-whisker")
    zero, half = float(bar.attrib["x"]), float(bar.attrib["width"])

    assert float(whisker.attrib["x1"]) == pytest.approx(zero + half / 2, abs=0.1)
    assert float(whisker.attrib["x2"]) == pytest.approx(zero + half * 2, abs=0.1)


def test_the_parts_of_a_stacked_bar_share_its_width():
    plot = charts.stacked(
        "t", [Bar(label="x", value=3, kind="success"), Bar(label="y", value=1, kind="fail")]
    )
    parts = [rect for rect in rects(plot) if rect.attrib["height"] == "30.0"]

    assert [float(part.attrib["x"]) for part in parts] == [0, charts.WIDTH * 0.75]
    assert [part.find(f"{SVG}title").text for part in parts] == ["x: 3 (75%)", "y: 1 (25%)"]


def test_a_long_label_is_whole_in_several_lines_and_in_its_tooltip():
    label = "anthropic/claude-opus-with-a-very-long-name-indeed-that-goes-on"
    plot = parsed(charts.bars("t", [Bar(label=label, value=1)]))
    lines = [text.text for text in plot.iter(f"{SVG}text") if text.attrib["class"] == "c-label"]

    assert "".join(lines) == label and len(lines) > 1
    assert max(map(len, lines)) < 30
    assert plot.find(f"{SVG}g/{SVG}title").text == label


def test_the_names_of_points_that_coincide_do_not_cover_each_other():
    points = [Point(label=name, x=1, y=0.5) for name in ("one", "two", "three")]
    plot = parsed(charts.scatter("t", points, x_axis="x", y_axis="y", y_top=1.0))
    heights = [
        float(text.attrib["y"]) for text in plot.iter(f"{SVG}text") if text.attrib["class"] == "c-label"
    ]

    assert len(heights) == 3
    assert min(abs(a - b) for i, a in enumerate(heights) for b in heights[:i]) >= 12


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


@pytest.mark.parametrize("heights", [[-3.0, 4.0, -0.5], [-3.0, -2.0, -1.0], [0.0, 0.0, 0.0], [2.0, 3.0, 9.0]])
def test_a_line_below_nothing_stays_in_the_plot(heights):
    points = [Point(label=str(x), x=x, y=y) for x, y in enumerate(heights)]

    plot = parsed(charts.line("trust", points))

    circles = [float(circle.attrib["cy"]) for circle in plot.iter(f"{SVG}circle")]
    (axis,) = {
        one.attrib["y1"]
        for one in plot.iter(f"{SVG}line")
        if one.attrib["class"] == "c-axis" and one.attrib["y1"] == one.attrib["y2"]
    }
    assert all(14 <= y <= 200.1 for y in circles)
    assert [y > float(axis) + 0.1 for y in circles] == [height < 0 for height in heights]


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


def test_lines_that_are_to_be_compared_have_one_scale():
    low = [Point(label="a", x=1, y=1), Point(label="b", x=2, y=1)]
    high = [Point(label="a", x=1, y=8), Point(label="b", x=2, y=8)]

    def height(plot):
        return {circle.attrib["cy"] for circle in parsed(plot).iter(f"{SVG}circle")}

    assert height(charts.line("t", low, fits=high)) != height(charts.line("t", low))
    assert height(charts.line("t", high, fits=low)) == height(charts.line("t", high))


@pytest.mark.parametrize(
    "plot",
    [
        charts.bars("t", []),
        charts.stacked("t", []),
        charts.histogram("t", [], []),
        charts.scatter("t", [], x_axis="x", y_axis="y"),
        charts.line("t", []),
    ],
)
def test_a_plot_of_nothing_is_still_a_plot(plot):
    assert parsed(plot).tag == f"{SVG}svg"


def test_a_whisker_that_goes_below_zero_stays_off_the_names_and_has_no_end_there():
    def whiskers(low):
        plot = parsed(charts.bars("t", [Bar(label="name", value=2, low=low, high=4)], top=4))
        return [line for line in plot.iter(f"{SVG}line") if "c-whisker" in line.attrib["class"]]

    within, beyond = whiskers(1), whiskers(-3)

    assert (len(within), len(beyond)) == (3, 2)
    bar = float(rects(charts.bars("t", [Bar(label="name", value=2)], top=4))[0].attrib["x"])
    assert min(float(line.attrib["x1"]) for line in beyond) == pytest.approx(bar, abs=0.1)


def test_the_ticks_of_a_line_stand_under_the_points_they_name():
    points = [Point(label=f"turn {x}", x=x, y=25 * x) for x in (0, 2, 4)]
    plot = parsed(line("t", points))

    places = [
        (float(circle.attrib["cx"]), float(circle.attrib["cy"])) for circle in plot.iter(f"{SVG}circle")
    ]
    texts = [text for text in plot.iter(f"{SVG}text") if text.attrib.get("class") == "c-tick"]
    below = [text for text in texts if text.attrib.get("text-anchor") == "middle"]
    at = {text.text: float(text.attrib["x"]) for text in below}

    assert [at["0"], at["2"], at["4"]] == pytest.approx([x for x, _ in places], abs=0.1)
    lowest, highest = max(y for _, y in places), min(y for _, y in places)
    assert [float(text.attrib["y"]) for text in below] == pytest.approx([lowest + 17] * len(below), abs=0.1)
    upright = [
        (float(each.attrib["y1"]), float(each.attrib["y2"]))
        for each in plot.iter(f"{SVG}line")
        if each.attrib["x1"] == each.attrib["x2"]
    ]
    assert len(upright) == len(below)
    assert [end for ends in upright for end in ends] == pytest.approx(
        [highest, lowest] * len(upright), abs=0.1
    )
