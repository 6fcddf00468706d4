"""Figures of studies with whole labels: dot plots, small multiples, effects, interactions, heat maps.

They are drawn like the plots of `charts`, and wider where they have several columns. Estimates are dots with
their intervals: unlike bars, they need no zero.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from proctor.document import Figure, FigureList
from proctor.formatting import short
from proctor.report.charts import Bar, Point, Say, legend_marks, marker, ticks
from proctor.report.svg import (
    LINE,
    PHONE_SIZE,
    SPACIOUS,
    WIDTH,
    circle_mark,
    label_mark,
    line_mark,
    rect_mark,
    svg,
    text_mark,
    text_width,
    wrapped,
)

WIDE = 720
"""Width of figures with several columns."""
TICK_SIZE = 11.0
ROW = 24.0
DRAWN_VALUES = 200
"""Values of a level that are drawn, of more every second, third, …"""
HEATS = 10
"""Steps of the color scale of a heat map."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One of several small plots with common axes."""

    label: str
    points: Sequence[Point]
    row: str = ""
    column: str = ""
    """Where it stands in a grid of panels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatCell:
    """One combination of two factors."""

    value: float
    low: float | None = None
    high: float | None = None
    n: int = 0
    mark: int | None = None
    """Its number among the marks of a page, which show their figures and open their items."""

    @classmethod
    def of(cls, figure: Figure, marks: FigureList) -> "HeatCell":
        """The cell of a figure that has a value; the figure is added to the marks."""
        assert figure.value is not None
        return cls(
            value=figure.value, low=figure.low, high=figure.high, n=figure.n or 0, mark=marks.add(figure)
        )


def dots(
    title: str,
    groups: Mapping[str, Sequence[Bar]],
    *,
    say: Say = short,
    axis: str = "",
    reference: float | None = None,
    limits: tuple[float, float] | None = None,
) -> str:
    """Rows of dots with intervals on one axis, in groups with a heading; the notes stand at the right.

    `reference` is a line through all rows.
    """
    entries = [entry for group in groups.values() for entry in group]
    left = _column([entry.label for entry in entries], WIDTH * 0.42)
    right = max((text_width(entry.note, PHONE_SIZE) * SPACIOUS for entry in entries), default=0.0) + 16
    width = WIDTH if left + right < WIDTH * 0.62 else WIDE
    steps = _scale([value for entry in entries for value in (entry.value, entry.low, entry.high)], limits)
    inner = (width - left - right - 14) / (steps[-1] - steps[0])

    def at(value: float) -> float:
        return left + 7 + (value - steps[0]) * inner

    y, rows = 6.0, list[str]()
    for heading, group in groups.items():
        if heading:
            lines = wrapped(heading, width, PHONE_SIZE)
            rows.append(label_mark(0, y + len(lines) * LINE / 2 + 2, lines, "start", kind="c-strong"))
            y += len(lines) * LINE + 4
        for entry in group:
            lines = wrapped(entry.label, left - 12, PHONE_SIZE)
            height = max(ROW, len(lines) * LINE + 8)
            middle = y + height / 2
            rows.append(label_mark(left - 10, middle, lines, "end", title=entry.label))
            rows.append(text_mark(width, middle + 4, entry.note, "c-number", "end", longest=300))
            if entry.value is not None:
                rows.append(_dot(entry, at, middle))
            y += height
        y += 6 if heading else 0
    grid = [_grid_x(step, at(step), 4, y, say) for step in steps]
    if reference is not None:
        grid.append(line_mark(at(reference), 4, at(reference), y, "c-reference"))
    name = text_mark(width, y + 34, axis, "c-tick", "end", longest=200)
    return svg(title, y + (42 if axis else 24), [*grid, *rows, name], width=width)


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """One level of a factor: the value of each run, and their mean."""

    mean: Bar
    values: Sequence[float]


def strips(
    title: str,
    groups: Mapping[str, Sequence[Strip]],
    *,
    axis: str,
    joined: Collection[str] = (),
    reference: float | None = None,
) -> str:
    """The values of each level of factors as points over its name, with mean and interval; the outcome is
    the height, the same in all panels.

    The means of the factors in `joined`, whose levels have an order, are joined by a line.
    """
    left, height = 56.0, 150.0
    ends = [(s.mean.value, s.mean.low, s.mean.high, *s.values) for group in groups.values() for s in group]
    steps = _scale([value for values in ends for value in values], None)
    high = height / (steps[-1] - steps[0])
    top, drawn = 6.0, list[str]()
    for factor, group in groups.items():
        lines = wrapped(f"{factor} (outcome: {axis})", WIDTH, PHONE_SIZE)
        drawn.append(label_mark(0, top + len(lines) * LINE / 2, lines, "start", kind="c-strong"))
        base = top + len(lines) * LINE + 14 + height
        for step in steps:
            y = base - (step - steps[0]) * high
            drawn.append(line_mark(left, y, WIDTH, y, "c-grid"))
            drawn.append(text_mark(left - 6, y + 4, short(step), "c-tick", "end"))
        if reference is not None:
            y = base - (reference - steps[0]) * high
            drawn.append(line_mark(left, y, WIDTH, y, "c-reference"))
        column = (WIDTH - left) / len(group)
        labels = [wrapped(strip.mean.label, column - 8, PHONE_SIZE) for strip in group]
        means = list[str]()
        for number, (strip, label) in enumerate(zip(group, labels, strict=True)):
            x = left + (number + 0.5) * column
            drawn.append(label_mark(x, base + 8 + len(label) * LINE / 2, label, "middle"))
            shown = strip.values[:: max(1, len(strip.values) // DRAWN_VALUES)]
            for place, value in enumerate(shown):
                # Beside each other in an order that looks random and is always the same.
                across = x + (place * 0.618034 % 1 - 0.5) * min(column * 0.6, 60.0)
                y = base - (value - steps[0]) * high
                drawn.append(f'<circle cx="{across:.1f}" cy="{y:.1f}" r="2.5" class="c-main c-raw"/>')
            if strip.mean.value is None:
                continue
            middle = base - (strip.mean.value - steps[0]) * high
            means.append(f"{x:.1f},{middle:.1f}")
            if strip.mean.low is not None and strip.mean.high is not None:
                whiskers = [base - (end - steps[0]) * high for end in (strip.mean.low, strip.mean.high)]
                drawn.append(line_mark(x, whiskers[0], x, whiskers[1], "c-whisker"))
                drawn += [line_mark(x - 4, y, x + 4, y, "c-whisker") for y in whiskers]
            note = f"{strip.mean.label}: {strip.mean.note}"
            drawn.append(circle_mark(x, middle, 4.5, note, mark=strip.mean.mark))
        if factor in joined and len(means) > 1:
            drawn.append(f'<polyline points="{" ".join(means)}" class="c-line c-thin"/>')
        top = base + 22 + LINE * max(map(len, labels))
    return svg(title, top, drawn, width=WIDTH)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """One estimate of a table of dots, with the texts of its columns."""

    cells: Sequence[str]
    entry: Bar


def dot_table(
    title: str,
    headings: Sequence[str],
    rows: Sequence[TableRow],
    *,
    say: Say = short,
    axis: str = "",
    limits: tuple[float, float] | None = None,
) -> str:
    """Rows of dots with intervals on one axis, beside columns of texts; equal texts are one block."""
    widths = _column_widths(
        [[heading, *(row.cells[index] for row in rows)] for index, heading in enumerate(headings)]
    )
    left = sum(widths) + 10
    right = max((text_width(row.entry.note, PHONE_SIZE) * SPACIOUS for row in rows), default=0.0) + 16
    steps = _scale(
        [value for row in rows for value in (row.entry.value, row.entry.low, row.entry.high)], limits
    )
    inner = (WIDE - left - right - 14) / (steps[-1] - steps[0])
    names = [
        wrapped(heading, width - 10, PHONE_SIZE) for heading, width in zip(headings, widths, strict=True)
    ]
    top = max((len(lines) for lines in names), default=0) * LINE + 8
    blocks = _blocks([row.cells for row in rows], widths)
    heights = _row_heights(len(rows), blocks)
    tops = [top + sum(heights[:index]) for index in range(len(rows) + 1)]

    def at(value: float) -> float:
        return left + 7 + (value - steps[0]) * inner

    drawn = [_grid_x(step, at(step), top - 2, tops[-1], say) for step in steps]
    for column, lines in enumerate(names):
        middle = top - 4 - len(lines) * LINE / 2
        drawn.append(label_mark(sum(widths[:column]), middle, lines, "start", kind="c-strong"))
    for block in blocks:
        x, y = sum(widths[: block.column]), tops[block.first]
        drawn += [
            text_mark(x, y + 15 + LINE * number, line, "c-label", "start", longest=300)
            for number, line in enumerate(block.lines)
        ]
        if block.first:
            drawn.append(line_mark(x, y - 1, x + widths[block.column] - 6, y - 1, "c-grid"))
    for index, row in enumerate(rows):
        middle = tops[index] + 11
        drawn.append(_dot(row.entry, at, middle))
        drawn.append(text_mark(WIDE, middle + 4, row.entry.note, "c-number", "end", longest=300))
    drawn.append(text_mark(WIDE, tops[-1] + 34, axis, "c-tick", "end", longest=200))
    return svg(title, tops[-1] + (42 if axis else 24), drawn, width=WIDE)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """Rows of a table that have one text in a column."""

    column: int
    first: int
    last: int
    lines: Sequence[str]


def _blocks(rows: Sequence[Sequence[str]], widths: Sequence[float]) -> list[_Block]:
    """The blocks of all columns; one ends where a column to its left has a new text."""
    blocks: list[_Block] = []
    for column, width in enumerate(widths):
        first = 0
        for index in range(1, len(rows) + 1):
            if index == len(rows) or rows[index][: column + 1] != rows[first][: column + 1]:
                lines = wrapped(rows[first][column], width - 8, PHONE_SIZE)
                blocks.append(_Block(column=column, first=first, last=index, lines=lines))
                first = index
    return blocks


def _row_heights(number: int, blocks: Sequence[_Block]) -> list[float]:
    """Heights of rows that have room for every block."""
    heights = [ROW] * number
    for block in sorted(blocks, key=lambda block: block.last - block.first):
        missing = len(block.lines) * LINE + 8 - sum(heights[block.first : block.last])
        if missing > 0:
            for index in range(block.first, block.last):
                heights[index] += missing / (block.last - block.first)
    return heights


def _column_widths(columns: Sequence[Sequence[str]]) -> list[float]:
    """Widths of columns of texts, which are wrapped if all of them together take too much of the plot."""
    natural = [max(text_width(text, PHONE_SIZE) * SPACIOUS for text in texts) + 14 for texts in columns]
    # The longest give way first.
    while sum(natural) > WIDE * 0.56 and max(natural) > MIN_COLUMN:
        longest = natural.index(max(natural))
        natural[longest] = max(MIN_COLUMN, natural[longest] - 8)
    return natural


MIN_COLUMN = 60.0


@dataclass(frozen=True, slots=True)
class _Axes:
    """The common axes of panels: steps, and units of the drawing for each unit of the values."""

    x_steps: Sequence[float]
    y_steps: Sequence[float]
    wide: float
    high: float


def _axes(panels: Sequence[Panel], width: float, height: float) -> _Axes:
    points = [point for panel in panels for point in panel.points]
    x_steps = _whole_steps([point.x for point in points])
    y_steps = _scale([value for point in points for value in (point.y, point.low, point.high)], None, 3)
    return _Axes(
        x_steps, y_steps, width / max(x_steps[-1] - x_steps[0], 1e-9), height / (y_steps[-1] - y_steps[0])
    )


def small_multiples(title: str, panels: Sequence[Panel], *, x_axis: str, y_axis: str) -> str:
    """A line with its band in each panel, all on the same axes.

    Panels with a row and a column make a grid; the others follow each other under their labels.
    """
    if all(panel.row or panel.column for panel in panels):
        return _panel_grid(title, panels, x_axis=x_axis, y_axis=y_axis)
    columns = min(3, len(panels))
    gap, left, height = 18.0, 46.0, 104.0
    width = (WIDE - left - gap * columns) / columns
    axes = _axes(panels, width, height)
    titles = [wrapped(panel.label, width, PHONE_SIZE) for panel in panels]
    drawn = [text_mark(0, 12, y_axis, "c-tick", "start", longest=200)]
    # Below the name of the axis, also in the larger letters of a phone.
    top = 12.0 + LINE
    for start in range(0, len(panels), columns):
        row = range(start, min(start + columns, len(panels)))
        base = top + LINE * max(len(titles[index]) for index in row) + 8 + height
        for column, index in enumerate(row):
            x = left + column * (width + gap)
            first = base - height - 8 - LINE * len(titles[index])
            drawn += [
                text_mark(x, first + LINE * (number + 1) - 2, line, "c-label", "start", longest=300)
                for number, line in enumerate(titles[index])
            ]
            drawn.append(_panel(panels[index], axes, x, base, (width, height), names_y=column == 0))
            drawn.append(_names_x(axes, x, base))
        top = base + 26
    drawn.append(text_mark(WIDE, top + 6, x_axis, "c-tick", "end"))
    return svg(title, top + 14, drawn, width=WIDE)


def _panel_grid(title: str, panels: Sequence[Panel], *, x_axis: str, y_axis: str) -> str:
    rows = list(dict.fromkeys(panel.row for panel in panels))
    columns = list(dict.fromkeys(panel.column for panel in panels))
    labels_width = _column(rows, WIDE * 0.27) if any(rows) else 0.0
    left, gap = labels_width + 44, 20.0
    width = (WIDE - left) / len(columns) - gap
    labels = [wrapped(row, labels_width - 12, PHONE_SIZE) for row in rows]
    height = max([64.0, *(len(lines) * LINE for lines in labels)])
    axes = _axes(panels, width, height)
    headings = [wrapped(column, width, PHONE_SIZE) for column in columns]
    deepest = max(map(len, headings)) * LINE
    is_wide = text_width(y_axis, PHONE_SIZE) * SPACIOUS > left - 6
    anchor = (0.0, "start") if is_wide else (left - 6, "end")
    # Below the headings, in a line of its own.
    drawn = [text_mark(anchor[0], deepest + 6 + LINE, y_axis, "c-tick", anchor[1], longest=200)]
    for number, lines in enumerate(headings):
        x = left + number * (width + gap)
        drawn.append(label_mark(x, deepest - len(lines) * LINE / 2 + 4, lines, "start", kind="c-strong"))
    by_place = {(panel.row, panel.column): panel for panel in panels}
    base = deepest + LINE + 20.0
    for row, lines in zip(rows, labels, strict=True):
        base += height
        drawn.append(label_mark(0, base - height / 2, lines, "start", title=row))
        for number, column in enumerate(columns):
            x = left + number * (width + gap)
            panel = by_place.get((row, column))
            if panel is not None:
                drawn.append(_panel(panel, axes, x, base, (width, height), names_y=number == 0))
        base += 22
    drawn += [_names_x(axes, left + number * (width + gap), base - 22) for number in range(len(columns))]
    drawn.append(text_mark(WIDE - gap, base + 12, x_axis, "c-tick", "end"))
    return svg(title, base + 20, drawn, width=WIDE)


def _panel(
    panel: Panel, axes: _Axes, x: float, base: float, size: tuple[float, float], *, names_y: bool
) -> str:
    """One panel with its grid; the names of the steps are beside the first of a row."""
    parts = list[str]()
    for step in axes.y_steps:
        y = base - (step - axes.y_steps[0]) * axes.high
        parts.append(line_mark(x, y, x + size[0], y, "c-grid"))
        if names_y:
            parts.append(text_mark(x - 6, y + 4, short(step), "c-tick", "end"))
    parts.append(line_mark(x, base, x + size[0], base, "c-axis"))
    parts.append(_series(panel, x, base, (axes.x_steps[0], axes.wide), (axes.y_steps[0], axes.high)))
    return "".join(parts)


def _names_x(axes: _Axes, x: float, base: float) -> str:
    return "".join(
        text_mark(x + (step - axes.x_steps[0]) * axes.wide, base + 15, short(step), "c-tick", "middle")
        for step in axes.x_steps
    )


def interaction(
    title: str,
    factor: str,
    levels: Mapping[str, Mapping[str, HeatCell]],
    *,
    by: str,
    axis: str = "",
    joined: bool = True,
) -> str:
    """The cells of two factors: a column for each level of one, a series for each level of the other.

    `joined`: the levels of the columns have an order, and lines join the dots of a series.
    """
    series = list(dict.fromkeys(name for cells in levels.values() for name in cells))
    cells = [cell for row in levels.values() for cell in row.values()]
    steps = _scale([value for cell in cells for value in (cell.value, cell.low, cell.high)], None)
    width = WIDTH if len(levels) <= 5 else WIDE
    left, height = 56.0, 190.0
    column, high = (width - left) / len(levels), height / (steps[-1] - steps[0])
    base = 6.0 + LINE + 12 + height
    drawn = [text_mark(0, 6 + LINE, axis, "c-tick", "start", longest=200)]
    for step in steps:
        y = base - (step - steps[0]) * high
        drawn.append(line_mark(left, y, width, y, "c-grid"))
        drawn.append(text_mark(left - 6, y + 4, short(step), "c-tick", "end"))
    lines: dict[str, list[str]] = {name: [] for name in series}
    dots = list[str]()
    labels = [wrapped(level, column - 8, PHONE_SIZE) for level in levels]
    apart = min(18.0, column * 0.8 / len(series))
    for place, (level, row) in enumerate(levels.items()):
        center = left + (place + 0.5) * column
        dots.append(label_mark(center, base + 8 + len(labels[place]) * LINE / 2, labels[place], "middle"))
        for number, name in enumerate(series):
            cell = row.get(name)
            if cell is None:
                continue
            x = center + (number - (len(series) - 1) / 2) * apart
            y = base - (cell.value - steps[0]) * high
            lines[name].append(f"{x:.1f},{y:.1f}")
            if cell.low is not None and cell.high is not None:
                ends = [base - (end - steps[0]) * high for end in (cell.low, cell.high)]
                dots.append(line_mark(x, ends[0], x, ends[1], "c-whisker c-thin"))
            description = f"{factor} = {level}, {by} = {name}: {short(cell.value)}, n = {cell.n}"
            dots.append(marker(number, x, y, title=description))
    kinds = [f"c-line c-thin c-stroke-{number % 6}" for number in range(len(series))]
    drawn += [
        f'<polyline points="{" ".join(points)}" class="{kind}"/>'
        for points, kind in zip(lines.values(), kinds, strict=True)
        if joined and len(points) > 1
    ]
    heading = wrapped(factor, width - 12, PHONE_SIZE)
    y = base + 14 + LINE * max(map(len, labels))
    dots.append(label_mark(left, y + len(heading) * LINE / 2, heading, "start", kind="c-strong"))
    y += len(heading) * LINE + 22
    dots.append(text_mark(0, y, by, "c-strong", "start", longest=200))
    names = [("", name) for name in series]
    legend, bottom = legend_marks(names, y + 18, width=width, kinds=kinds if joined else [""] * len(series))
    return svg(title, bottom, [*drawn, *dots, *legend], width=width)


def heat_map(
    title: str,
    cells: Mapping[tuple[str, str], HeatCell],
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    row_axis: str,
    column_axis: str,
    say: Say = short,
) -> str:
    """Cells colored by value, each with its interval and n; many columns go into several bands."""
    left = _column([*rows, row_axis], WIDE * 0.3)
    texts = [part for cell in cells.values() for part in _in_cell(cell, say)]
    needed = max([*(text_width(part, TICK_SIZE) * SPACIOUS for part in texts), 60.0]) + 12
    per_band = max(1, min(len(columns), int((WIDE - left) // needed)))
    # Bands of about the same length.
    per_band = math.ceil(len(columns) / math.ceil(len(columns) / per_band))
    cell_width = min((WIDE - left) / per_band, 170.0)
    values = [cell.value for cell in cells.values()]
    low, high = min(values), max(values)
    cell_height = 52.0
    drawn, y = list[str](), 4.0
    for start in range(0, len(columns), per_band):
        band = columns[start : start + per_band]
        headings = [wrapped(name, cell_width - 8, PHONE_SIZE) for name in band]
        deepest = max(map(len, headings)) * LINE
        drawn.append(text_mark(left, y + 11, column_axis, "c-tick", "start", longest=200))
        y += 18
        for number, lines in enumerate(headings):
            middle = y + deepest - len(lines) * LINE / 2
            x = left + (number + 0.5) * cell_width
            drawn.append(label_mark(x, middle, lines, "middle", title=band[number]))
        drawn.append(text_mark(left - 10, y + deepest - 4, row_axis, "c-tick", "end", longest=200))
        y += deepest + 6
        for row in rows:
            lines = wrapped(row, left - 12, PHONE_SIZE)
            height = max(cell_height, len(lines) * LINE + 8)
            drawn.append(label_mark(left - 10, y + height / 2, lines, "end", title=row))
            for number, column in enumerate(band):
                x = left + number * cell_width
                drawn.append(_heat(cells.get((row, column)), (x, y, cell_width, height), (low, high), say))
            y += height
        y += 14
    drawn += _heat_scale(left, y, low, high, say)
    return svg(title, y + 34, drawn, width=WIDE)


def _heat(
    cell: HeatCell | None, box: tuple[float, float, float, float], ends: tuple[float, float], say: Say
) -> str:
    x, y, width, height = box
    middle = x + width / 2
    if cell is None:
        return text_mark(middle, y + height / 2 + 4, "–", "c-tick", "middle")
    heat = _heat_of(cell.value, *ends)
    value, interval, n = _in_cell(cell, say)
    on = "c-inverse" if heat >= HEATS * 0.6 else ""
    description = f"{value} ({interval}), {n}"
    parts = [rect_mark(x + 1, y + 1, width - 2, height - 2, f"c-heat-{heat}", description, mark=cell.mark)]
    for text, below, kind in ((value, -11.0, "c-strong"), (interval, 4.0, "c-small"), (n, 18.0, "c-small")):
        parts.append(text_mark(middle, y + height / 2 + below, text, f"{kind} {on}".strip(), "middle"))
    return "".join(parts)


def _heat_of(value: float, low: float, high: float) -> int:
    return min(HEATS - 1, int((value - low) / (high - low) * HEATS)) if high > low else HEATS // 3


def _in_cell(cell: HeatCell, say: Say) -> tuple[str, str, str]:
    limits = (
        "no interval" if cell.low is None or cell.high is None else f"{say(cell.low)} to {say(cell.high)}"
    )
    return say(cell.value), limits, f"n = {cell.n}"


def _heat_scale(left: float, y: float, low: float, high: float, say: Say) -> list[str]:
    if high <= low:
        return []
    drawn = [rect_mark(left + 16 * heat, y, 16, 10, f"c-heat-{heat}", "") for heat in range(HEATS)]
    drawn.append(text_mark(left, y + 24, say(low), "c-tick", "start"))
    drawn.append(text_mark(left + 16 * HEATS, y + 24, say(high), "c-tick", "end"))
    return drawn


def _dot(entry: Bar, position_of: Callable[[float], float], middle: float) -> str:
    parts = list[str]()
    if entry.low is not None and entry.high is not None:
        low, high = position_of(entry.low), position_of(entry.high)
        parts.append(line_mark(low, middle, high, middle, "c-whisker"))
        parts += [line_mark(x, middle - 4, x, middle + 4, "c-whisker") for x in (low, high)]
    if entry.value is not None:
        label = f"{entry.label}: {entry.note}"
        parts.append(circle_mark(position_of(entry.value), middle, 4.5, label, mark=entry.mark))
    return "".join(parts)


def _series(panel: Panel, x0: float, base: float, x: tuple[float, float], y: tuple[float, float]) -> str:
    """The line and the band of one panel; `x` and `y` are the first value and the scale of an axis."""

    def at(point: Point, value: float | None) -> str:
        height = base - ((point.y if value is None else value) - y[0]) * y[1]
        return f"{x0 + (point.x - x[0]) * x[1]:.1f},{height:.1f}"

    points = panel.points
    band = [at(point, point.high) for point in points] + [at(point, point.low) for point in reversed(points)]
    parts = [
        f'<polygon points="{" ".join(band)}" class="c-band"/>',
        f'<polyline points="{" ".join(at(point, None) for point in points)}" class="c-line"/>',
    ]
    for point in points:
        across, down = map(float, at(point, None).split(","))
        description = f"{panel.label}, {point.label}: {short(point.y)}"
        parts.append(circle_mark(across, down, 3, description, mark=point.mark))
    return "".join(parts)


def _grid_x(step: float, x: float, top: float, base: float, say: Say) -> str:
    return line_mark(x, top, x, base, "c-grid") + text_mark(x, base + 17, say(step), "c-tick", "middle")


def _column(labels: Sequence[str], most: float) -> float:
    """The width of a column with these labels, which are wrapped if they are longer than `most`."""
    longest = max((text_width(label, PHONE_SIZE) * SPACIOUS for label in labels), default=0.0)
    return min(longest, most) + 14


def _scale(values: Sequence[float | None], limits: tuple[float, float] | None, count: int = 5) -> list[float]:
    """Round steps around all values, or from limit to limit."""
    known = [value for value in values if value is not None]
    low, high = limits or (min(known, default=0.0), max(known, default=1.0))
    if high - low < 1e-12 * max(1.0, abs(high)):
        low, high = low - 0.5 * (abs(low) or 1.0), high + 0.5 * (abs(high) or 1.0)
    return ticks(high, count, bottom=low)


def _whole_steps(values: Sequence[float]) -> list[float]:
    """At most six whole numbers from the first to the last."""
    first, last = math.floor(min(values, default=0.0)), math.ceil(max(values, default=1.0))
    step = max(1, math.ceil((last - first) / 5))
    return [float(value) for value in range(first, max(last, first + 1) + 1, step)]
