"""Figures of studies: every label is whole and in the picture, and nothing covers it."""

import re
from itertools import combinations
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.report.charts import Bar, Box, Point, bars, forest, scatter
from proctor.report.charts import Bar as Difference
from proctor.report.panels import (
    HeatCell,
    Panel,
    TableRow,
    dot_table,
    dots,
    heat_map,
    interaction,
    small_multiples,
)
from proctor.report.render import filed, method_text, sample_text
from proctor.report.text_layout import SPACIOUS, text_width, wrapped

SVG = "{http://www.w3.org/2000/svg}"
SIZES = {"c-tick": 11.0, "c-small": 11.0, "c-small c-inverse": 11.0, "c-caption": 11.0}
LONG = "anthropic/claude-3-5-sonnet-20241022 with the prompt »Give way wherever you can, and never threaten.«"


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


def check(plot, labels):
    """Labels are whole, inside of the picture, and do not cover each other."""
    width, height = map(float, ElementTree.fromstring(plot).attrib["viewBox"].split()[2:])
    placed = boxes(plot)
    for text, box in placed:
        assert box.left >= -1 and box.right <= width + 1 and box.bottom <= height, (text, box, width, height)
    for (one, first), (other, second) in combinations(placed, 2):
        assert not first.overlaps(second), (one, other)
    written = "".join(text for text, _ in placed).replace(" ", "")
    for label in labels:
        assert label.replace(" ", "") in written, label


def variations(number, label=LONG):
    return [
        Bar(
            label=f"{index}: {label}",
            value=index % 7 - 2.5,
            low=index % 7 - 3.0,
            high=index % 7 - 1.0,
            note="1.2 (n = 8)",
        )
        for index in range(1, number + 1)
    ]


@pytest.mark.parametrize("label", ["calm", LONG, "x" * 80, "港口费谈判" * 8])
def test_bars_and_differences_have_whole_labels(label):
    check(bars("t", [Bar(label=label, value=3, low=1, high=4)] * 2), [label])
    check(forest("t", [Difference(label=label, value=3, low=1, high=4)] * 2), [label])


def test_a_table_of_dots_writes_equal_levels_once():
    rows = [
        TableRow(cells=[one, other, str(index)], entry=entry)
        for index, (one, other, entry) in enumerate(
            zip([LONG] * 3 + ["calm"] * 3, ["a", "b", "c"] * 2, variations(6), strict=True)
        )
    ]
    plot = dot_table("t", ["port", "actors.ferry.system_prompt", "no."], rows, axis="trust")

    check(plot, [LONG, "calm", "actors.ferry.system_prompt"])
    written = "".join(text for text, _ in boxes(plot)).replace(" ", "")
    assert written.count(LONG.replace(" ", "")) == 1


@pytest.mark.parametrize("is_grid", [True, False])
@pytest.mark.parametrize("y_axis", ["cooperation_level", "cooperation_level of the captain and of the crew"])
def test_small_multiples_have_common_axes(is_grid, y_axis):
    points = [Point(label="t", x=turn, y=turn * 2.0, low=turn * 1.0, high=turn * 3.0) for turn in (1, 2, 3)]
    panels = [
        Panel(
            label=f"{number}: {LONG}",
            points=points if number else points[:2],
            row=f"port = {LONG} {number // 2}" if is_grid else "",
            column=f"turns = {number % 2}" if is_grid else "",
        )
        for number in range(6)
    ]
    plot = small_multiples("t", panels, x_axis="turn", y_axis=y_axis)

    axis = next(box for text, box in boxes(plot) if text == y_axis)
    headings = [box for text, box in boxes(plot) if text.startswith(("turns = ", "0: ", "1: ", "2: "))]
    assert not [box for box in headings if box.overlaps(axis)], "the name of the axis is apart"
    check(plot, [panels[0].row, "turns = 1"] if is_grid else [panel.label for panel in panels])
    ends = {
        each.attrib["points"].split()[0].split(",")[0]
        for each in ElementTree.fromstring(plot).iter(f"{SVG}polyline")
    }
    assert len(ends) == (2 if is_grid else 3), "panels of one column begin at the same place"


def test_an_interaction_has_a_line_for_each_level_and_a_whole_legend():
    cells = {
        level: {
            other: HeatCell(value=index + number, low=index, high=index + number + 1, n=8)
            for number, other in enumerate((LONG, "calm", "rash"))
        }
        for index, level in enumerate(("gpt-4o", LONG))
    }
    plot = interaction("t", "port", cells, by="ferry", axis="trust")

    check(plot, [LONG, "calm", "rash", "ferry", "port"])
    assert len(list(ElementTree.fromstring(plot).iter(f"{SVG}polyline"))) == 3


@pytest.mark.parametrize("therapists", [1, 3, 14])
def test_a_heat_map_has_the_interval_and_n_of_every_cell(therapists):
    rows, columns = ["patientPsi", LONG], [f"therapist number {index}" for index in range(therapists)]
    cells = {
        (row, column): HeatCell(value=index / 3, low=index / 3 - 1, high=index / 3 + 1, n=index + 1)
        for index, (row, column) in enumerate((r, c) for r in rows for c in columns)
    }
    del cells[rows[1], columns[-1]]
    plot = heat_map(
        "t",
        cells,
        rows=rows,
        columns=columns,
        row_axis="client",
        column_axis="therapist",
        say="{:.2f}".format,
    )

    check(plot, [*rows, *columns])
    texts = [text for text, _ in boxes(plot)]
    assert sum(text.startswith("n = ") for text in texts) == len(cells)
    assert sum(" to " in text for text in texts) == len(cells)
    assert "–" in texts


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
    written = "".join(text for text, _ in boxes(plot)).replace(" ", "")
    assert written.count(label.replace(" ", "")) == len(points)


@given(st.text(min_size=1, max_size=200), st.floats(20, 300))
def test_wrapped_lines_have_all_of_a_text(text, width):
    lines = wrapped(text, width, 12)

    assert "".join(lines).replace(" ", "") == "".join(text.split())
    assert all(text_width(line, 12) * SPACIOUS <= width or len(line) == 1 for line in lines)


CAPTION = (
    "trust by variation. Mean of the last value of each run; 95% CI: Student's t; n = 8 runs per variation."
)


def test_each_figure_is_filed_for_screens_and_for_print():
    plots = {"": [(CAPTION, dots("t", {"": variations(2, "calm")}))]}

    named, files = filed(plots, methods="We ran it.")

    assert named == {"": [(CAPTION, "plots/01-trust-by-variation.svg")]}
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
