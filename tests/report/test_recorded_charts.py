"""Drawings of fixed figures, compared element by element: no place, size or label changes unnoticed.

Other tests say what a drawing must have. After recording drawings anew, open them in a browser before
committing them.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from proctor.document import Figure, FigureList
from proctor.formatting import percent, seconds, usd
from proctor.report import charts, panels, run_charts, svg
from proctor.report.charts import Bar, Point
from proctor.report.panels import HeatCell, Panel, TableRow
from proctor.report.render import print_svg
from proctor.report.svg import SPACIOUS, text_width, wrapped
from proctor.results.summary import Bin, Durations
from proctor.stats.figures import FactorFigures, Figures, PassAtK
from proctor.stats.intervals import Estimate
from recorded_files import check, check_text

RECORDED = Path(__file__).parent / "recorded"
LONG = "anthropic/claude-3-5-sonnet-20241022 with the prompt »Give way wherever you can«"


def bar(label: str, value: float | None, reach: float | None = 0.5, **more: object) -> Bar:
    if value is None or reach is None:
        return Bar(label=label, value=value, **more)  # type: ignore[arg-type]
    return Bar(label=label, value=value, low=value - reach, high=value + 2 * reach, **more)  # type: ignore[arg-type]


def point(label: str, x: float, y: float, reach: float | None = 0.5, **more: object) -> Point:
    if reach is None:
        return Point(label=label, x=x, y=y, **more)  # type: ignore[arg-type]
    return Point(label=label, x=x, y=y, low=y - reach, high=y + 2 * reach, **more)  # type: ignore[arg-type]


BARS = [
    bar("calm", 3.25, mark=0),
    bar(LONG, 0.25, note="0.3 of 7"),
    bar("no interval", 1.5, None, kind="fail"),
    bar("unknown", None),
    Bar(label="half", value=2.0, low=1.0),
]
LINE = [point("a", 1, 2.5), point("b", 2, -1.5, None), point("c", 4, 3.0, mark=7), point("d", 7, 0.25)]
CLOSE = [point(f"{n}: {LONG}", 0.5 + n / 100, 3 + n % 2, None if n % 3 else 0.4) for n in range(1, 8)]
CROWD = [point(f"m{n}", 1.0, 0.5, None) for n in range(40)]
PANELS = [
    Panel(
        label=f"{number}: {LONG}" if number % 2 else f"{number}: calm",
        points=[point(f"t{turn}", turn, turn * number - 1.5) for turn in range(1, 5 + number)],
    )
    for number in range(5)
]
GRID = [
    Panel(label="", points=panel.points, row=f"port = {LONG} {index // 2}", column=f"turns = {index % 2}")
    for index, panel in enumerate(PANELS)
]
CELLS = {
    "gpt-4o": {"calm": HeatCell(value=1.5, low=0.5, high=2.0, n=8), "rash": HeatCell(value=-0.5, n=2)},
    LONG: {
        "calm": HeatCell(value=2.25, low=1.0, high=3.5, n=7),
        "rash": HeatCell(value=0.75, low=0.0, high=1.0, n=3),
        **{f"other {n}": HeatCell(value=n / 4, low=n / 5, high=n / 3, n=n) for n in range(6)},
    },
}
HEATS = {
    (row, f"therapist {column}"): HeatCell(
        value=index * 5 % 7 + column / 3, low=-1.0 * column, high=9.5, n=index + column, mark=column or None
    )
    for index, row in enumerate(("patientPsi", LONG))
    for column in range(9)
    if (index, column) != (1, 4)
}

AXIS = "x" * 250
MIXED = [point(f"{n}: {LONG}" if n % 3 else f"{n}: calm", 0.5 + n / 99, 3, None) for n in range(1, 9)]


def level(name: str, rate: float, reach: float | None, cost: float | None = None) -> Figures:
    def around(value: float | None) -> Estimate:
        if value is None or reach is None:
            return Estimate(value=value, n=4, note="Few tasks.")
        return Estimate(value=value, low=value - reach, high=value + reach / 2, n=9)

    def series(sign: int) -> tuple[PassAtK, ...]:
        values = (*(around(rate + sign * k / 20) for k in range(3)), Estimate(value=None))
        return tuple(PassAtK(k + 1, each) for k, each in enumerate(values))

    return Figures(
        name=name,
        counts={},
        unchecked=0,
        success=around(rate),
        with_errors=around(rate),
        pass_at=series(1),
        pass_hat=series(-1),
        cost_usd=around(cost),
        typical_cost_usd=around(cost),
        seconds=around(90 * rate),
        typical_seconds=around(rate),
        cost_per_success_usd=around(cost),
        scores={},
        metrics={},
    )


LEVELS = (level("a", 0.75, 0.25, 0.125), level("", 0.5, None, 0.25), level("c", 0.25, 0.5))
FACTOR = FactorFigures(name="model", levels=LEVELS, front=("a",))


def after_one_mark() -> FigureList:
    marks = FigureList()
    marks.add(Figure(label="", text=""))
    return marks


DRAWINGS: dict[str, Callable[[], str]] = {
    "bars": lambda: charts.bars("Bars", BARS),
    "bars-to-one": lambda: charts.bars(
        "Bars", [bar("a", 0.5, 0.2), bar("b", 0.75, None)], top=1.0, say=percent
    ),
    "stacked": lambda: charts.stacked(
        "Stacked",
        [
            Bar(label="success", value=700, kind="success", mark=0),
            Bar(label="fail", value=290, kind="fail"),
            Bar(label="nothing", value=0, kind="main"),
            Bar(label="unknown", value=None, kind="main"),
            Bar(label="a part whose long name has no room in the first line", value=97, kind="error"),
            Bar(label="few", value=3, kind="timeout"),
        ],
    ),
    "stacked-empty": lambda: charts.stacked("Nothing", [Bar(label="success", value=0)]),
    "histogram": lambda: charts.histogram(
        "Times",
        [(n * 10.0, n * 10.0 + 10) for n in range(16)] + [(160.0, 400.0)],
        [3, 7, 12, 9, 5, 4, 4, 3, 2, 2, 1, 0, 1, 0, 0, 1, 6],
        say=seconds,
        axis="from start to end",
        marks=range(17),
    ),
    "histogram-small": lambda: charts.histogram("Few", [(0.0, 1.0), (1.0, 2.0)], [1, 0]),
    "scatter": lambda: charts.scatter(
        "Scatter",
        [
            point("one", 0.02, 0.5, 0.1, is_marked=True, mark=1),
            point("two", 0.5, 0.75, None),
            point("x", 0.9, 0.2),
        ],
        x_axis="cost",
        y_axis="success",
        say_x=usd,
        say_y=percent,
        y_top=1.0,
    ),
    "scatter-negative": lambda: charts.scatter("Scatter", LINE, x_axis="x", y_axis="y"),
    "scatter-numbers": lambda: charts.scatter("Scatter", CLOSE, x_axis="cost", y_axis="trust"),
    "scatter-crowd": lambda: charts.scatter("Scatter", CROWD, x_axis="cost", y_axis="trust"),
    "scatter-long": lambda: charts.scatter(
        "Scatter", [point(LONG, 1, 1, None), point(LONG, 1.01, 1.01, None)], x_axis="cost", y_axis="trust"
    ),
    "line": lambda: charts.line(
        "Line", LINE, x_axis="turn", events={4: "a change", 2: "another"}, fits=[point("z", 1, 12.0)]
    ),
    "line-empty": lambda: charts.line("Line", []),
    "curves": lambda: charts.curves(
        "Curves",
        {
            "pass@k": [point(f"pass@{k}", k, 1 - 0.5**k, 0.05) for k in range(1, 41)],
            "pass^k": [point(f"pass^{k}", k, 0.97 - k / 200, None) for k in range(1, 41)],
            "third": [point("third", 1, 0.5), point("third", 30, 0.9)],
            "fourth": [point("fourth", 1, 0.5), point("fourth", 40, 0.93)],
        },
        x_axis="k",
        say_y=percent,
    ),
    "trend": lambda: charts.trend(
        "Trend",
        [point(f"run {n}", n, 0.3 + n / 25, None if n % 4 == 1 else 0.1, mark=n) for n in range(12)],
        [f"11-{n + 1:02}" for n in range(12)],
        [0, 1, -1, 0, 0, 1, 0, 0, 0, 0, -1, 0],
        say_y=percent,
    ),
    "trend-numbers": lambda: charts.trend(
        "Trend", [point("a", 0, -3.5), point("b", 1, 2.25)], ["11-01", "11-02"], [0, 1], say_y=usd
    ),
    "trend-one": lambda: charts.trend("Trend", [point("a", 0, 1.0, None)], ["11-01"], [0], say_y=percent),
    "forest": lambda: charts.forest(
        "Forest",
        [
            Bar(label="calm", value=1.5, low=-0.5, high=2.5, mark=3),
            Bar(label=LONG, value=-3.0, low=-4.0, high=-2.0, note="−3 (n = 8)"),
            Bar(label="no interval", value=0.5),
            Bar(label="unknown", value=None),
        ],
    ),
    "forest-limits": lambda: charts.forest(
        "Forest",
        [
            Bar(label="much more", value=0.8, low=-0.9, high=49.0),
            Bar(label="less", value=-0.3, low=-0.5, high=-0.05),
        ],
        say=percent,
        limits=(-1.0, 2.4),
    ),
    "forest-above": lambda: charts.forest(
        "Forest", [Bar(label="more", value=8.0, low=5.0, high=12.0)], limits=(-1.0, 24.0)
    ),
    "forest-empty": lambda: charts.forest("Forest", [Bar(label="calm", value=0.0)]),
    "dots": lambda: panels.dots(
        "Dots",
        {
            "port": [bar("calm", 1.5, note="1.5 (n = 8)", mark=2), bar(LONG, -0.5, None, note="−0.5")],
            LONG * 2: BARS,
        },
        axis="trust",
        reference=0.5,
    ),
    "dots-narrow": lambda: panels.dots("Dots", {"": [bar("a", 1.0), bar("b", None)]}, limits=(0.0, 4.0)),
    "dot-table": lambda: panels.dot_table(
        "Table",
        ["port", "actors.ferry.system_prompt", "no."],
        [
            TableRow(cells=[one, other, str(index)], entry=entry)
            for index, (one, other, entry) in enumerate(
                zip([LONG] * 3 + ["calm"] * 2, ["a", "b", "b", "b", "c"], BARS, strict=True)
            )
        ],
        axis="trust",
    ),
    "dot-table-narrow": lambda: panels.dot_table(
        "Table", ["n"], [TableRow(cells=["1"], entry=bar("", 1.0))], limits=(0.0, 2.0)
    ),
    "multiples": lambda: panels.small_multiples("Multiples", PANELS, x_axis="turn", y_axis="trust"),
    "multiples-two": lambda: panels.small_multiples("Multiples", PANELS[:2], x_axis="turn", y_axis="trust"),
    "grid": lambda: panels.small_multiples("Grid", GRID, x_axis="turn", y_axis="cooperation_level"),
    "grid-columns": lambda: panels.small_multiples(
        "Grid",
        [Panel(label="", points=LINE, column=f"{LONG} {n}") for n in range(2)],
        x_axis="turn",
        y_axis="cooperation_level",
    ),
    "interaction": lambda: panels.interaction("Interaction", "port", CELLS, by="ferry", axis="trust"),
    "interaction-narrow": lambda: panels.interaction(
        "Interaction",
        LONG,
        {"a": {"b": HeatCell(value=1.0, n=1)}, "c": {"b": HeatCell(value=2.0)}},
        by="ferry",
    ),
    "heat-map": lambda: panels.heat_map(
        "Heat",
        HEATS,
        rows=["patientPsi", LONG],
        columns=[f"therapist {column}" for column in range(9)],
        row_axis="client",
        column_axis="therapist",
    ),
    "heat-map-flat": lambda: panels.heat_map(
        "Heat", {("a", "b"): HeatCell(value=1.0)}, rows=["a"], columns=["b"], row_axis="r", column_axis="c"
    ),
    "file": lambda: re.sub(
        "<style>.*</style>", "", svg.as_file(charts.bars("Bars", BARS[:1])), flags=re.DOTALL
    ),
    "print": lambda: re.sub(
        "<style>.*</style>",
        "",
        print_svg(charts.bars("Bars", BARS[:1]), f"A caption. {LONG}."),
        flags=re.DOTALL,
    ),
    "markers": lambda: svg.svg(
        "Markers",
        20,
        [charts.marker(n, 10.0 * n, 10.0, size=4.0, title=f"{n}" if n else "") for n in range(8)],
    ),
}

DRAWINGS |= {
    "bars-none": lambda: charts.bars("Bars", []),
    "bars-words": lambda: charts.bars(
        "Bars", [Bar(label="x" * 80, value=1, low=0.0, high=2.0), Bar(label="a bb " * 12, value=1, high=3.0)]
    ),
    "histogram-none": lambda: charts.histogram("None", [], []),
    "histogram-eight": lambda: charts.histogram(
        "Eight", [(n, n + 1.0) for n in range(8)], [5, 1, 1, 1, 1, 1, 1, 2]
    ),
    "histogram-names": lambda: charts.histogram(
        "Names", [(n, n + 1.0) for n in range(9)], [*range(9)], names=[f"level {n}" for n in range(9)]
    ),
    "scatter-none": lambda: charts.scatter("Scatter", [], x_axis="x", y_axis="y"),
    "scatter-mixed": lambda: charts.scatter("Scatter", MIXED, x_axis=AXIS, y_axis=AXIS),
    "scatter-beside": lambda: charts.scatter(
        "Scatter", [point(f"name {n}", 1 + n / 9, 1 + n / 40, 0.05) for n in range(4)], x_axis="x", y_axis="y"
    ),
    "legend": lambda: svg.svg(
        "Legend",
        100,
        charts.legend_marks([(str(n), "word " * (1 + 9 * (n % 2))) for n in range(7)], 20, width=700)[0],
        width=700,
    ),
    "curves-some": lambda: charts.curves(
        "Curves", {"pass@k": [point(f"pass@{k}", k, k / 30, 0.05) for k in range(3, 27)]}, x_axis="k"
    ),
    "curves-one": lambda: charts.curves("Curves", {"pass@k": [point("pass@1", 1, 0.5, 0.05)]}, x_axis="k"),
    "trend-zero": lambda: charts.trend(
        "Trend", [point("a", 0, 0.0, None), point("b", 1, 0.5, None)], ["1", "2"], [0, 0], say_y=percent
    ),
    "trend-below": lambda: charts.trend(
        "Trend", [point("a", 0, -0.5, None), point("b", 1, 0.5, None)], ["1", "2"], [0, 0], say_y=percent
    ),
    "forest-none": lambda: charts.forest("Forest", []),
    "forest-zero": lambda: charts.forest("Forest", [Bar(label="", value=0.0, low=0.0)]),
    "dots-flat": lambda: panels.dots("Dots", {"": [bar("a", 2.0, None)]}, axis=AXIS),
    "dots-flat-zero": lambda: panels.dots("Dots", {"": [bar("a", 0.0, None)]}),
    "dots-flat-below": lambda: panels.dots("Dots", {"": [bar("a", -3.0, None), bar("b", -3.0, None)]}),
    "dots-none": lambda: panels.dots("Dots", {}),
    "dots-opposite": lambda: panels.dots("Dots", {"": [bar("a", -2.0, None), bar("b", 1.5, None)]}),
    "dot-table-tall": lambda: panels.dot_table(
        "Table",
        [LONG, "b", "c"],
        [
            TableRow(cells=[f"{LONG} {LONG}", LONG, f"{LONG} {index}"], entry=Bar(label="", value=index))
            for index in range(3)
        ],
        axis=AXIS,
    ),
    "dot-table-none": lambda: panels.dot_table("Table", ["n"], []),
    "multiples-axes": lambda: panels.small_multiples("Multiples", PANELS[:1], x_axis=AXIS, y_axis=AXIS),
    "grid-axes": lambda: panels.small_multiples(
        "Grid", [Panel(label="", points=LINE[:1], row="a", column="b")], x_axis="x", y_axis=AXIS
    ),
    "interaction-axes": lambda: panels.interaction(
        "Interaction",
        "port",
        {"a": {"b": HeatCell(value=1.0, low=0.5)}, LONG * 2: {"b": HeatCell(value=1.0, high=0.5)}},
        by=AXIS,
        axis=AXIS,
    ),
    "heat-map-axes": lambda: panels.heat_map(
        "Heat",
        {("a", "b"): HeatCell(value=1.0, low=0.5), ("a", "c"): HeatCell(value=1.6, high=2.0)},
        rows=["a"],
        columns=["b", "c"],
        row_axis=AXIS,
        column_axis=AXIS,
    ),
    "outcomes": lambda: run_charts.outcome_bar(
        {status: 10 - n for n, status in enumerate(run_charts.ORDER)}, FigureList()
    ),
    "outcomes-none": lambda: run_charts.outcome_bar(dict.fromkeys(run_charts.ORDER, 0)),
    "rates": lambda: run_charts.rates(FACTOR, FigureList()),
    "pass-curves": lambda: run_charts.pass_curves(LEVELS[0]),
    "durations": lambda: run_charts.duration_histogram(
        Durations(
            items=3,
            mean=None,
            std=None,
            median=None,
            p90=None,
            longest=None,
            bins=(Bin(low=0.0, high=60.0, count=2), Bin(low=60.0, high=120.0, count=1)),
        )
    ),
    "cost-against-success": lambda: run_charts.cost_against_success(FACTOR, after_one_mark()),
    "tokens": lambda: run_charts.tokens_by_model(
        [
            {"model": f"m{n}", "total": n * 1001}  # type: ignore[typeddict-item]
            for n in range(17)
        ]
    ),
    "factor": lambda: "".join(
        f"{each.title}\n{each.svg}\n{each.marks}\n" for each in run_charts.plots(FACTOR)
    ),
}


def test_charts_without_figures_are_left_out() -> None:
    assert run_charts.plots(replace(FACTOR, levels=())) == []
    assert run_charts.cost_against_success(replace(FACTOR, levels=LEVELS[:1])) == ""
    assert run_charts.pass_curves(replace(LEVELS[0], pass_hat=())) == ""
    unknown = replace(LEVELS[0], cost_usd=Estimate(value=None), seconds=Estimate(value=None))
    assert [each.title for each in run_charts.plots(replace(FACTOR, levels=(unknown,)))] == ["Success rate"]


def test_the_bars_of_a_histogram_open_the_items_that_took_as_long() -> None:
    bins = (Bin(low=0.0, high=0.5, count=2), Bin(low=0.5, high=1.0, count=0), Bin(low=1.0, high=9.0, count=1))
    unknown = dict.fromkeys(("mean", "std", "median", "p90", "longest"))
    marks = FigureList()
    run_charts.duration_histogram(Durations(items=3, bins=bins, **unknown), marks)
    selections = [figure.items for figure in marks.figures]
    assert selections == [{"duration": ["0.0..0.5"]}, None, {"duration": ["1.0.."]}]


def test_boxes_that_only_touch_do_not_overlap() -> None:
    box = charts.Box(0.0, 0.0, 2.0, 2.0)
    apart = [(2.0, 0.0, 3.0, 2.0), (-1.0, 0.0, 0.0, 2.0), (0.0, 2.0, 2.0, 3.0), (0.0, -1.0, 2.0, 0.0)]
    assert not any(box.overlaps(charts.Box(*ends)) for ends in apart)
    assert box.overlaps(charts.Box(1.9, 1.9, 3.0, 3.0)) and box.overlaps(charts.Box(-1.0, -1.0, 0.1, 0.1))


def elements(drawing: str) -> str:
    """One element a line, for a difference that can be read."""
    return re.sub(r"(?<!^)<(?!/|title)", "\n<", drawing.strip()) + "\n"


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_drawing_is_as_recorded(name: str) -> None:
    check_text(RECORDED / f"{name}.svg", elements(DRAWINGS[name]()))


@pytest.mark.parametrize(
    ("text", "letters", "lines"),
    [
        ("xxxxxxxxxx", 4, ["xxxx", "xxxx", "xx"]),
        ("xxxxxxxxxx", 5, ["xxxxx", "xxxxx"]),
        ("xxxxx", 4, ["xxxx", "x"]),
        ("xx xx", 0, ["x", "x", "x", "x"]),
        ("xx xx xx", 6, ["xx xx", "xx"]),
        ("xx/xx-xx_xx", 6, ["xx/xx-", "xx_xx"]),
        (" xx  \n xx ", 9, ["xx xx"]),
        ("", 9, []),
    ],
)
def test_a_line_has_as_many_letters_as_fit(text: str, letters: int, lines: list[str]) -> None:
    assert wrapped(text, text_width("x" * letters, 12) * SPACIOUS + 1e-9, 12) == lines


def test_widths_of_letters_are_those_of_helvetica() -> None:
    widths = {character: round(text_width(character, 1000)) for character in map(chr, range(32, 127))}
    assert (widths[" "], widths["@"], widths["W"], widths["i"], widths["~"]) == (278, 1015, 944, 222, 584)
    others = {
        character: round(text_width(character, 1000)) for character in "–—−×±·…’\u00a0é港\u0301\x1f\x7f"
    }
    check(RECORDED / "widths.txt", {f"{ord(each):04x}": width for each, width in (widths | others).items()})
