"""Figures of studies: every label is whole and in the picture, and nothing covers it."""

import re
from itertools import combinations
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_recorded_charts import BARS, DRAWINGS, LONG

from proctor.document import Chart, Document
from proctor.report.charts import Bar, Box, Point, bars, forest, scatter
from proctor.report.panels import dots
from proctor.report.render import method_text, sample_text, with_files
from proctor.report.svg import SPACIOUS, text_width, wrapped

SVG = "{http://www.w3.org/2000/svg}"
SIZES = {"c-tick": 11.0, "c-small": 11.0, "c-small c-inverse": 11.0, "c-caption": 11.0}


def boxes(plot):
    """The text and the place of each label, in the widest usual font."""
    found = []
    for text in ElementTree.fromstring(plot).iter(f"{SVG}text"):
        size = SIZES.get(text.attrib["class"], 12.0)
        width = text_width(text.text, size) * 1.17
        x, y = float(text.attrib["x"]), float(text.attrib["y"])
        left = x - {"start": 0, "middle": width / 2, "end": width}[text.attrib.get("text-anchor", "start")]
        found.append((text.text, Box(left, y - size * 0.7, left + width, y)))
    return found


def check(plot):
    """Labels are in the picture and do not cover each other."""
    width, height = map(float, ElementTree.fromstring(plot).attrib["viewBox"].split()[2:])
    placed = boxes(plot)
    for text, box in placed:
        assert box.left >= -1 and box.right <= width + 1 and box.bottom <= height, (text, box, width, height)
    for (one, first), (other, second) in combinations(placed, 2):
        assert not first.overlaps(second), (one, other)


def written(plot):
    return "".join(text for text, _ in boxes(plot)).replace(" ", "")


LONG_AXES = {"dot-table-tall", "dots-flat", "scatter-mixed"} | {name for name in DRAWINGS if "-axes" in name}
CROWDED = {"histogram", "scatter-crowd", "factor"}
"""Drawings of many bars or points, or of several plots."""


@pytest.mark.parametrize("name", sorted(DRAWINGS.keys() - LONG_AXES - CROWDED))
def test_labels_are_in_the_picture_and_do_not_cover_each_other(name):
    check(DRAWINGS[name]())


@pytest.mark.parametrize(
    "name", ["scatter-numbers", "dots", "dot-table", "multiples", "grid", "interaction", "heat-map"]
)
def test_long_labels_are_whole(name):
    plot = DRAWINGS[name]()
    assert LONG.replace(" ", "") in written(plot)
    assert name != "dot-table" or written(plot).count(LONG.replace(" ", "")) == 1, (
        "equal levels are written once"
    )


@pytest.mark.parametrize("label", ["calm", LONG, "x" * 80, "港口费谈判" * 8])
def test_bars_and_differences_have_whole_labels(label):
    for draw in (bars, forest):
        plot = draw("t", [Bar(label=label, value=3, low=1, high=4)] * 2)
        check(plot)
        assert label.replace(" ", "") in written(plot)


@given(st.lists(st.tuples(st.floats(0.01, 1), st.floats(-3, 9)), min_size=2, max_size=27), st.booleans())
def test_the_names_of_points_never_cover_each_other(places, is_long):
    label = LONG if is_long else "calm"
    points = [
        Point(label=f"{n}: {label}", x=x, y=y, low=y - 1, high=y + 1) for n, (x, y) in enumerate(places, 1)
    ]
    plot = scatter("t", points, x_axis="cost", y_axis="trust")
    width = float(ElementTree.fromstring(plot).attrib["viewBox"].split()[2])
    labels = [box for text, box in boxes(plot) if re.fullmatch(r"\d+(: calm)?", text)]

    assert all(box.left >= -1 and box.right <= width + 1 for box in labels)
    assert written(plot).count(label.replace(" ", "")) == len(points)


@given(st.text(min_size=1, max_size=200), st.floats(20, 300))
def test_wrapped_lines_have_all_of_a_text(text, width):
    lines = wrapped(text, width, 12)

    assert "".join(lines).replace(" ", "") == "".join(text.split())
    assert all(text_width(line, 12) * SPACIOUS <= width or len(line) == 1 for line in lines)


def test_each_figure_is_filed_for_screens_and_for_print():
    caption = "trust by variation. Mean of the last value of each run; n = 8 runs per variation."
    title, _, rest = caption.partition(". ")

    charts = [Chart(title=title, caption=rest, svg=dots("t", {"": BARS}))]
    named, files = with_files(Document(sections=charts), methods="We ran it.")

    assert [chart.file for chart in named.sections] == ["01-trust-by-variation"]
    assert sorted(files) == [
        "figures/01-trust-by-variation.svg",
        "figures/captions.md",
        "plots/01-trust-by-variation.svg",
    ]
    assert "We ran it" in files["figures/captions.md"]


def test_captions_state_sizes_and_methods():
    assert sample_text([8, 8, 8], "run", "variation") == "n = 8 runs per variation, 24 in all"
    assert sample_text([7, 8], "run", "level", total=False) == "n = 7 to 8 runs per level"
    assert method_text(["Student's t", "Student's t", "plus"]) == (
        "95% CI: Student's t or the plus interval within the scale"
    )
    assert method_text([]) == "without intervals, which need more runs"
