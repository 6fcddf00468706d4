"""Small SVG plots for reports and pages: bars, histograms, scatter and forest plots, lines."""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from proctor.document import Figure, FigureList
from proctor.formatting import one_line, short, usd
from proctor.report.svg import (
    LABEL_SIZE,
    LETTER,
    LINE,
    PHONE_SIZE,
    SPACIOUS,
    WIDTH,
    circle_mark,
    label_mark,
    line_mark,
    mark_number,
    rect_mark,
    svg,
    text_mark,
    text_width,
    tooltip,
    wrapped,
)

if TYPE_CHECKING:
    pass

ROW = 30
SMALLEST = 1e-300
Say = Callable[[float], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar, or one row of a forest plot: a labeled value and, where known, the interval around it."""

    label: str
    value: float | None
    low: float | None = None
    high: float | None = None
    note: str = ""
    """Text at the right; empty: the value."""
    kind: str = "main"
    """The class of its color: `main`, or a status."""
    mark: int | None = None
    """Its number among the marks of a page, which show their figures and open their items."""

    @classmethod
    def of(cls, figure: Figure, marks: FigureList | None, *, label: str = "", note: str = "") -> "Bar":
        """The bar of a figure, which is added to the marks. Without a note, it shows the value and n."""
        return cls(
            label=label or figure.label,
            value=figure.value,
            low=figure.low,
            high=figure.high,
            note=note or f"{figure.text} (n = {figure.n})",
            mark=None if marks is None else marks.add(figure),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One point of a scatter or a line, with the interval around its height."""

    label: str
    x: float
    y: float
    low: float | None = None
    high: float | None = None
    is_marked: bool = False
    """Drawn with a ring: on the Pareto front."""
    mark: int | None = None
    """Its number among the marks of a page, which show their figures and open their items."""

    @classmethod
    def of(
        cls, one: Figure, marks: FigureList | None, *, x: float, label: str = "", is_marked: bool = False
    ) -> "Point":
        """The point of a figure that has a value; the figure is added to the marks."""
        assert one.value is not None
        return cls(
            label=label or one.label,
            x=x,
            y=one.value,
            low=one.low,
            high=one.high,
            is_marked=is_marked,
            mark=None if marks is None else marks.add(one),
        )


def bars(title: str, entries: Sequence[Bar], *, top: float | None = None, say: Say = short) -> str:
    """Horizontal bars, one below the other, with their intervals as whiskers."""
    left = _label_width([entry.label for entry in entries])
    span = WIDTH - left - _note_width(entries, say)
    reach = top or _reach(entries)
    steps = ticks(reach)
    scale = span / max(reach, steps[-1])
    labels = [wrapped(entry.label, left - 10, LABEL_SIZE) for entry in entries]
    tops = _row_tops(labels)
    drawn = [_x_axis(steps, left, scale, 8, tops[-1], say)]
    for entry, lines, y, below in zip(entries, labels, tops, tops[1:], strict=False):
        drawn.append(label_mark(left - 10, (y + below) / 2 - 1, lines, "end", title=entry.label))
        drawn.append(_bar(entry, left, (y + below - ROW) / 2, scale, say, max(reach, steps[-1])))
    return svg(title, tops[-1] + 26, drawn)


LONGEST_WHISKER = 2.5
"""Times the longest bar: a longer interval is cut, so that bars stay legible."""


def _reach(entries: Sequence[Bar]) -> float:
    """The end of the axis of bars: of all intervals, unless these are far longer than the bars."""
    bars_end = _top([entry.value for entry in entries])
    return min(max(bars_end, _top([entry.high for entry in entries])), LONGEST_WHISKER * bars_end)


def stacked(title: str, entries: Sequence[Bar]) -> str:
    """One bar made of parts, with a legend that gives each part's size."""
    total = sum(entry.value or 0 for entry in entries)
    drawn, x, legend_x, legend_y = list[str](), 0.0, 0.0, 60.0
    for entry in entries:
        value = entry.value or 0
        if not value or not total:
            continue
        share = value / total
        width = WIDTH * share
        label = f"{entry.label}: {value:,.0f} ({share:.0%})"
        gap = min(2.0, width / 3)
        drawn.append(rect_mark(x, 8, width - gap, 30, f"c-fill c-{entry.kind}", label, mark=entry.mark))
        if width > 46:
            drawn.append(text_mark(x + (width - gap) / 2, 28, f"{share:.0%}", "c-on", "middle"))
        text = f"{entry.label} {value:,.0f}"
        if legend_x + len(text) * LETTER + 32 > WIDTH:
            legend_x, legend_y = 0.0, legend_y + 22
        drawn.append(rect_mark(legend_x, legend_y - 10, 11, 11, f"c-fill c-{entry.kind}", label))
        drawn.append(text_mark(legend_x + 17, legend_y, text, "c-label", "start"))
        legend_x += len(text) * LETTER + 38
        x += width
    if not total:
        drawn.append(text_mark(0, 28, "nothing yet", "c-tick", "start"))
    return svg(title, legend_y + 12, drawn)


def histogram(
    title: str,
    edges: Sequence[tuple[float, float]],
    counts: Sequence[int],
    *,
    say: Say = short,
    axis: str = "",
    marks: Sequence[int] = (),
    names: Sequence[str] = (),
) -> str:
    """How many values fall between which, as bars side by side; `names` are those of single bars."""
    left, base, plot_top = 44, 190, 12
    steps = ticks(max([*counts, 1]), 4)
    height = (base - plot_top) / max(max([*counts, 1]), steps[-1])
    width = (WIDTH - left - 8) / max(len(counts), 1)
    drawn = [_y_axis(steps, left, base, height, short)]
    every = max(1, math.ceil(len(counts) / 7))
    for index, ((low, high), count) in enumerate(zip(edges, counts, strict=True)):
        x, tall = left + index * width, count * height
        label = f"{names[index] if names else f'{say(low)} to {say(high)}'}: {count:,}"
        mark = marks[index] if marks else None
        drawn.append(
            rect_mark(x + 1, base - tall, max(width - 2, 1), tall, "c-fill c-main", label, mark=mark)
        )
        if names:
            if index % every == 0:
                drawn.append(text_mark(x + width / 2, base + 17, names[index], "c-tick", "middle"))
        elif high - low > 1.5 * (edges[0][1] - edges[0][0]):
            # The long tail, in one bar of its own.
            drawn.append(text_mark(x + width, base + 17, "more", "c-tick", "end"))
        elif index % every == 0 and (not index or index < len(counts) - 1):
            drawn.append(text_mark(x, base + 17, say(low), "c-tick", "middle" if index else "start"))
    drawn.append(text_mark(WIDTH - 8, base + 36, axis, "c-tick", "end"))
    return svg(title, base + 44, drawn)


def scatter(
    title: str,
    points: Sequence[Point],
    *,
    x_axis: str,
    y_axis: str,
    say_x: Say = short,
    say_y: Say = short,
    y_top: float | None = None,
    is_log: bool = False,
) -> str:
    """Points with the interval of their height, each with its name beside it.

    `is_log`: the horizontal axis shows ratios, and a line joins what is marked. Names that have no room there
    stand below the plot, by number: none is cut, and none covers another.
    """
    names = [one_line(point.label, 300) for point in points]
    axes = _ScatterAxes(points, x_axis, y_axis, say_x, say_y, y_top, WIDTH, is_log)
    labels = axes.labels(names)
    if labels is not None:
        return svg(title, axes.base + 46, [*axes.drawn, *labels, *axes.marks])
    # A name may begin with a number of its own.
    split = [name.partition(": ") for name in names]
    numbers = [str(number) for number in range(1, len(points) + 1)]
    if all(number.isdigit() and rest for number, _, rest in split):
        numbers, names = [number for number, _, _ in split], [rest for _, _, rest in split]
    axes = _ScatterAxes(points, x_axis, y_axis, say_x, say_y, y_top, WIDTH * 1.5, is_log)
    labels = axes.labels(numbers, is_forced=True) or []
    entries = list(zip(numbers, names, strict=True))
    legend, height = legend_marks(entries, axes.base + 58, width=axes.width)
    return svg(title, height, [*axes.drawn, *labels, *axes.marks, *legend], width=axes.width)


class _ScatterAxes:
    """The axes and marks of a scatter plot of this width."""

    base = 250

    def __init__(
        self,
        points: Sequence[Point],
        x_axis: str,
        y_axis: str,
        say_x: Say,
        say_y: Say,
        y_top: float | None,
        width: float,
        is_log: bool,
    ) -> None:
        left, plot_top, base = 54, 34, self.base
        y_values = [value for point in points for value in (point.y, point.low, point.high)]
        log = math.log10 if is_log else float
        x_steps = (
            log_ticks([point.x for point in points], say_x, width - left)
            if is_log
            else ticks(_top([p.x for p in points]))
        )
        x_low = log(x_steps[0])
        # Half of the last label of the axis is beyond its end; letters are larger on a phone.
        right = max(20.0, text_width(say_x(x_steps[-1]), PHONE_SIZE) * SPACIOUS / 2 + 2)
        y_steps = ticks(y_top or max(0.0, _top(y_values)), 4, bottom=_bottom(y_values))
        wide = (width - left - right) / (log(x_steps[-1]) - x_low)
        high = (base - plot_top) / (y_steps[-1] - y_steps[0])
        zero = base + y_steps[0] * high
        self.width = width
        self.drawn = [
            _y_axis(y_steps, left, zero, high, say_y, width=width),
            _x_axis(x_steps, left, wide, plot_top, base, say_x, place=lambda step: log(step) - x_low),
            text_mark(0, 12, y_axis, "c-tick", "start", longest=200),
            text_mark(width - right, base + 38, x_axis, "c-tick", "end", longest=200),
        ]
        self.marks: list[str] = []
        self._frame = Box(left, plot_top - 16, width, base)
        self._places = [(left + (log(point.x) - x_low) * wide, zero - point.y * high) for point in points]
        if is_log:
            marked = [at for at, point in zip(self._places, points, strict=True) if point.is_marked]
            joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in sorted(marked))
            self.drawn.append(f'<polyline points="{joined}" class="c-frontier"/>')
        self._occupied = [Box(x - 8, y - 8, x + 8, y + 8) for x, y in self._places]
        for (x, y), point in zip(self._places, points, strict=True):
            label = f"{point.label}: {say_x(point.x)}, {say_y(point.y)}"
            if point.low is not None and point.high is not None:
                low, top = zero - point.low * high, zero - point.high * high
                self.marks.append(line_mark(x, low, x, top, "c-whisker"))
                self._occupied.append(Box(x - 2, top, x + 2, low))
            self.marks.append(circle_mark(x, y, 6, label, mark=point.mark))
            if point.is_marked:
                self.marks.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="9.5" class="c-ring"/>')

    def labels(self, names: Sequence[str], *, is_forced: bool = False) -> list[str] | None:
        """The name of each point near it; None: one has no room."""
        return _placed(names, self._places, self._occupied, self._frame, is_forced=is_forced)


@dataclass(frozen=True, slots=True)
class Box:
    """A part of a plot that is covered."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: "Box") -> bool:
        """Whether the two have a common part."""
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )

    def is_within(self, other: "Box") -> bool:
        """Whether it lies in another one."""
        return (
            self.left >= other.left
            and self.right <= other.right
            and self.top >= other.top
            and self.bottom <= other.bottom
        )


def _placed(
    names: Sequence[str],
    places: Sequence[tuple[float, float]],
    occupied: Sequence[Box],
    frame: Box,
    *,
    is_forced: bool = False,
) -> list[str] | None:
    """Each name near its point, where it covers nothing; None: one has no such place.

    With `is_forced`, a name may be farther away, with a line to its point.
    """
    boxes, drawn = list(occupied), list[str]()
    distances = range(11, 120, 4) if is_forced else (11, 15)
    for name, (x, y) in zip(names, places, strict=True):
        width = text_width(name, LABEL_SIZE) * SPACIOUS
        free = (
            (box, distance)
            for distance in distances
            for box in _boxes_around(x, y, width, distance)
            if box.is_within(frame) and not any(box.overlaps(other) for other in boxes)
        )
        best = next(free, None)
        if best is None and not is_forced:
            return None
        box, distance = best or (Box(x + 11, y - 7, x + 11 + width, y + 7), 11)
        if distance > 15:
            drawn.append(line_mark(x, y, (box.left + box.right) / 2, (box.top + box.bottom) / 2, "c-axis"))
        boxes.append(box)
        drawn.append(
            text_mark((box.left + box.right) / 2, box.bottom - 3, name, "c-label", "middle", longest=300)
        )
    return drawn


def _boxes_around(x: float, y: float, width: float, distance: int) -> Iterator[Box]:
    """Places for a name of this width around a point, the best direction first."""
    for angle in (0, 180, 315, 45, 225, 135, 270, 90):
        middle_x = x + math.cos(math.radians(angle)) * (distance + width / 2)
        middle_y = y + math.sin(math.radians(angle)) * (distance + 6)
        yield Box(middle_x - width / 2, middle_y - 7, middle_x + width / 2, middle_y + 7)


def legend_marks(
    entries: Sequence[tuple[str, str]], top: float, *, width: float = WIDTH, kinds: Sequence[str] = ()
) -> tuple[list[str], float]:
    """A legend with the whole text of each entry behind its sign, in columns; and where it ends.

    `kinds` are classes of lines that are drawn in place of the signs.
    """
    sign_width = 34.0 if kinds else max((text_width(sign, LABEL_SIZE) for sign, _ in entries), default=0) + 12
    columns, texts = _legend_columns([text for _, text in entries], sign_width, width)
    column_width = width / columns
    drawn, y = list[str](), top
    for start in range(0, len(entries), columns):
        row = range(start, min(start + columns, len(entries)))
        for column, index in enumerate(row):
            x = column * column_width
            if kinds:
                drawn.append(line_mark(x, y - 4, x + 24, y - 4, kinds[index]))
                drawn.append(marker(index, x + 12, y - 4))
            else:
                drawn.append(text_mark(x + sign_width - 8, y, entries[index][0], "c-number", "end"))
            drawn += [
                text_mark(x + sign_width, y + LINE * number, text, "c-label", "start", longest=300)
                for number, text in enumerate(texts[index])
            ]
        y += LINE * max(len(texts[index]) for index in row) + 3
    return drawn, y


def _legend_columns(texts: Sequence[str], sign_width: float, width: float) -> tuple[int, list[list[str]]]:
    """The number of columns with which a legend is lowest, and its texts in lines."""
    choices = list[tuple[int, int, list[list[str]]]]()
    for columns in range(1, min(4, max(1, len(texts))) + 1):
        if columns > 1 and width / columns < 150:
            break
        lines = [wrapped(text, width / columns - sign_width - 10, LABEL_SIZE) for text in texts]
        starts = range(0, len(lines), columns)
        height = sum(max(len(each) for each in lines[start : start + columns]) for start in starts)
        choices.append((height, columns, lines))
    _, columns, lines = min(choices, key=lambda choice: choice[:2])
    return columns, lines


MARKERS = 6
"""Kinds of lines and markers. They differ in color, dashes and shape, also in print without colors."""


_CORNERS: Mapping[int, Sequence[tuple[float, float]]] = {
    1: [(-1, -1), (1, -1), (1, 1), (-1, 1)],
    2: [(0, -1.3), (1.2, 1), (-1.2, 1)],
    3: [(0, -1.4), (1.4, 0), (0, 1.4), (-1.4, 0)],
    4: [(0, 1.3), (1.2, -1), (-1.2, -1)],
    5: [(-1.4, -0.5), (1.4, -0.5), (1.4, 0.5), (-1.4, 0.5)],
}
"""Corners of the markers other than circles."""


def marker(series: int, x: float, y: float, *, size: float = 4.5, title: str = "") -> str:
    """The marker of a series at a place."""
    kind = f"c-fill c-series-{series % MARKERS}"
    more = tooltip(title) if title else ""
    shape = series % MARKERS
    if shape == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size:.1f}" class="{kind}">{more}</circle>'
    points = " ".join(f"{x + dx * size * 0.9:.1f},{y + dy * size * 0.9:.1f}" for dx, dy in _CORNERS[shape])
    return f'<polygon points="{points}" class="{kind}">{more}</polygon>'


def line(
    title: str,
    points: Sequence[Point],
    *,
    x_axis: str = "",
    say_y: Say = short,
    fits: Sequence[Point] = (),
    events: Mapping[float, str] | None = None,
) -> str:
    """A line through points, with a band where they have intervals; 0 is always in sight.

    There is room for what `fits` as well: plots that are to be compared have one scale. `events` are vertical
    lines, by place, with their names; the line starts anew after each.
    """
    left, right, base, plot_top = 54, 20, 200, 14
    if not points:
        return svg(title, 40, [text_mark(0, 28, "nothing yet", "c-tick", "start")])
    x_steps = ticks(_top([point.x for point in points]))
    y_values = [value for point in (*points, *fits) for value in (point.y, point.low, point.high)]
    y_steps = ticks(max(0.0, _top(y_values)), 4, bottom=_bottom(y_values))
    wide, high = (WIDTH - left - right) / x_steps[-1], (base - plot_top) / (y_steps[-1] - y_steps[0])
    zero = base + y_steps[0] * high

    def at(point: Point, y: float | None) -> str:
        return f"{left + point.x * wide:.1f},{zero - (point.y if y is None else y) * high:.1f}"

    drawn = [
        _y_axis(y_steps, left, zero, high, say_y),
        _x_axis(x_steps, left, wide, plot_top, base, short),
        text_mark(WIDTH - right, base + 36, x_axis, "c-tick", "end"),
    ]
    ends = sorted(events or ())
    for number in range(len(ends) + 1):
        part = [point for point in points if bisect_left(ends, point.x) == number]
        band = [at(point, point.high) for point in part] + [at(point, point.low) for point in reversed(part)]
        drawn.append(f'<polygon points="{" ".join(band)}" class="c-band"/>')
        drawn.append(f'<polyline points="{" ".join(at(point, None) for point in part)}" class="c-line"/>')
    for event_x, name in (events or {}).items():
        x_place = left + event_x * wide
        mark = line_mark(x_place, plot_top, x_place, base, "c-whisker c-dashed")
        drawn.append(f"<g>{tooltip(name)}{mark}</g>")
    for point in points:
        x, y = at(point, None).split(",")
        label = f"{point.label}: {say_y(point.y)}"
        drawn.append(circle_mark(float(x), float(y), 3.5, label, mark=point.mark))
    return svg(title, base + 44, drawn)


def curves(title: str, series: Mapping[str, Sequence[Point]], *, x_axis: str, say_y: Say = short) -> str:
    """Several lines on a scale from 0 to 1, with their intervals as whiskers, and names at their ends."""
    left, right, base, plot_top = 54, 84, 200, 14
    places = sorted({point.x for points in series.values() for point in points})
    wide, high = (WIDTH - left - right) / max(places[-1] - places[0], 1.0), base - plot_top
    drawn = [_y_axis(ticks(1.0, 4), left, base, high, say_y)]
    # Labels need about 16 units each.
    every = max(1, math.ceil(len(places) * 16 / (WIDTH - left - right)))
    for tick in places[::every]:
        drawn.append(text_mark(left + (tick - places[0]) * wide, base + 17, short(tick), "c-tick", "middle"))
    names = list[tuple[float, float]]()
    for number, (name, points) in enumerate(series.items()):
        kind = "c-line" if number == 0 else "c-line c-dashed"
        # Side by side: whiskers at the same place would hide each other.
        shift = 3.0 * (number - (len(series) - 1) / 2)
        at = [(left + (point.x - places[0]) * wide + shift, base - point.y * high, point) for point in points]
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in at)
        drawn.append(f'<polyline points="{joined}" class="{kind}"/>')
        for x, y, point in at:
            if point.low is not None and point.high is not None:
                drawn.append(line_mark(x, base - point.low * high, x, base - point.high * high, "c-whisker"))
            label = f"{point.label}: {say_y(point.y)}"
            drawn.append(circle_mark(x, y, 3.5, label, mark=point.mark))
        names.append((at[-1][0], _free_height(at[-1][0], at[-1][1] + 4, names)))
        drawn.append(text_mark(names[-1][0] + 10, names[-1][1], name, "c-label", "start", longest=12))
    drawn.append(text_mark(WIDTH - right, base + 36, x_axis, "c-tick", "end"))
    return svg(title, base + 44, drawn)


def trend(
    title: str,
    points: Sequence[Point],
    names: Sequence[str],
    changes: Sequence[int],
    *,
    say_y: Say,
    is_share: bool | None = None,
) -> str:
    """Values in the order of time with their intervals; `names` stand below them.

    `changes` are -1 and 1 for points that are significantly worse or better than the one before: triangles
    that point down and up. Shares have the whole scale in sight, other values their own range; None: values
    between 0 and 1 are shares.
    """
    left, right, base, plot_top = 54.0, 28.0, 200.0, 14.0
    values = [end for point in points for end in (point.y, point.low, point.high) if end is not None]
    if is_share is None:
        is_share = bool(values) and min(values) >= 0 and max(values) <= 1
    y_steps = ticks(1.0 if is_share else max(0.0, _top(values)), 4, bottom=_bottom(values))
    high = (base - plot_top) / (y_steps[-1] - y_steps[0])
    zero = base + y_steps[0] * high
    wide = (WIDTH - left - right) / max(len(points) - 1, 1)
    places = [(left + number * wide, zero - point.y * high) for number, point in enumerate(points)]
    drawn = [_y_axis(y_steps, left, zero, high, say_y)]
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    drawn.append(f'<polyline points="{joined}" class="c-line"/>')
    # Dates need about 52 units each.
    every = max(1, math.ceil(52 / wide)) if len(points) > 1 else 1
    for number, ((x, y), point) in enumerate(zip(places, points, strict=True)):
        if point.low is not None and point.high is not None:
            drawn.append(line_mark(x, zero - point.low * high, x, zero - point.high * high, "c-whisker"))
        if changes[number]:
            kind = "success" if changes[number] > 0 else "fail"
            tip, back = (-8.0, 6.0) if changes[number] > 0 else (8.0, -6.0)
            corners = f"{x:.1f},{y + tip:.1f} {x - 8:.1f},{y + back:.1f} {x + 8:.1f},{y + back:.1f}"
            drawn.append(
                f'<polygon points="{corners}" class="c-fill c-{kind}"{mark_number(point.mark)}>'
                f"{tooltip(point.label)}</polygon>"
            )
        else:
            drawn.append(circle_mark(x, y, 5, point.label, mark=point.mark))
        if (len(points) - 1 - number) % every == 0:
            drawn.append(text_mark(x, base + 17, names[number], "c-tick", "middle"))
    return svg(title, base + 26, drawn)


def ticks(top: float, count: int = 5, *, bottom: float = 0.0) -> list[float]:
    """Round numbers from `bottom`, which is 0 or below, to `top`, or just beyond them."""
    span = top - bottom
    # A span below anything measurable counts as 0, by which nothing can be divided.
    if not math.isfinite(span) or span < SMALLEST:
        return [0.0, 1.0]
    power = 10.0 ** math.floor(math.log10(span / count))
    step = next(
        factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power * count >= span * (1 - 1e-9)
    )
    first, last = math.floor(bottom / step + 1e-9), math.ceil(top / step - 1e-9)
    return [index * step for index in range(first, last + 1)]


LOG_FROM = 4
"""Costs of which the largest is so many times the smallest are shown as ratios."""


def log_ticks(values: Sequence[float], say: Say, width: float) -> list[float]:
    """Round numbers around positive values, for an axis of ratios; as many as have room for their labels."""
    low, high = min(values), max(values)
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    for factors in ((1, 2, 5), (1, 3), (1,)):
        every = [factor * 10.0**power for power in powers for factor in factors]
        first = max(index for index, step in enumerate(every) if step <= low * (1 + 1e-9))
        last = next(index for index, step in enumerate(every) if step >= high * (1 - 1e-9) and index > first)
        steps = every[first : last + 1]
        if sum(text_width(say(step), PHONE_SIZE) * SPACIOUS + LETTER for step in steps) < width:
            return steps
    return [steps[0], steps[-1]]


def _bar(entry: Bar, left: float, y: float, scale: float, say: Say, end: float) -> str:
    value = entry.note or _formatted(entry.value, say)
    label = f"{entry.label}: {value}"
    parts = list[str]()
    if entry.value is not None:
        # Lighter under a whisker, which would be lost on a full color.
        kind = f"c-fill c-{entry.kind}" + (" c-estimate" if entry.low is not None else "")
        parts.append(rect_mark(left, y + 5, entry.value * scale, ROW - 12, kind, label, mark=entry.mark))
    if entry.low is not None and entry.high is not None:
        # Below 0 there is no room, because of the names; a whisker without an end marks a cut, an arrow one
        # that goes on beyond the axis.
        low, high = left + max(0.0, entry.low) * scale, left + min(entry.high, end) * scale
        middle = y + ROW / 2 - 1
        ends = [low] * (entry.low >= 0) + [high] * (entry.high <= end)
        parts.append(line_mark(low, middle, high, middle, "c-whisker"))
        parts += [line_mark(x, middle - 4, x, middle + 4, "c-whisker") for x in ends]
        if entry.high > end:
            parts += [line_mark(high - 5, middle + side, high, middle, "c-whisker") for side in (-4, 4)]
    parts.append(text_mark(WIDTH, y + 19, value, "c-number", "end"))
    return "".join(parts)


def _x_axis(
    steps: Sequence[float],
    left: float,
    scale: float,
    top: float,
    base: float,
    say: Say,
    place: Callable[[float], float] = float,
) -> str:
    drawn = [line_mark(left, top, left, base, "c-axis")]
    for index, (step, label) in enumerate(zip(steps, _tick_labels(steps, say), strict=True)):
        x = left + place(step) * scale
        drawn.append(line_mark(x, top, x, base, "c-grid") if index else "")
        drawn.append(text_mark(x, base + 17, label, "c-tick", "middle"))
    return "".join(drawn)


def _y_axis(
    steps: Sequence[float], left: float, base: float, scale: float, say: Say, *, width: float = WIDTH
) -> str:
    drawn = []
    for step, label in zip(steps, _tick_labels(steps, say), strict=True):
        y = base - step * scale
        drawn.append(line_mark(left, y, width - 8, y, "c-grid" if step else "c-axis"))
        drawn.append(text_mark(left - 8, y + 4, label, "c-tick", "end"))
    return "".join(drawn)


def _tick_labels(steps: Sequence[float], say: Say) -> list[str]:
    """Labels of an axis. Small amounts of money have all their digits where rounded ones would be equal."""
    labels = [say(step) for step in steps]
    if say is usd and len(set(labels)) < len(labels):
        return [f"${step:.10f}".rstrip("0") if 0 < step < 0.1 else say(step) for step in steps]
    return labels


def _row_tops(labels: Sequence[Sequence[str]]) -> list[float]:
    """Where the rows of these labels begin, and where the last ends."""
    tops = [8.0]
    for lines in labels:
        tops.append(tops[-1] + max(ROW, len(lines) * LINE + 10))
    return tops


def _free_height(x: float, y: float, occupied: Sequence[tuple[float, float]]) -> float:
    """The next height below `y` at which a name collides with none of those already written."""
    while any(abs(x - other) < WIDTH / 4 and abs(y - height) < 14 for other, height in occupied):
        y += 4
    return y


def _label_width(labels: Sequence[str]) -> float:
    longest = max((len(one_line(label, 300)) for label in labels), default=0)
    return min(longest * LETTER + 30, WIDTH * 0.34)


def _note_width(entries: Sequence[Bar], say: Say) -> float:
    """Room for the texts at the right of bars."""
    return (
        max((len(entry.note or _formatted(entry.value, say)) for entry in entries), default=0) * LETTER + 14
    )


def _formatted(value: float | None, say: Say) -> str:
    return "–" if value is None else say(value)


def _top(values: Sequence[float | None]) -> float:
    return max((value for value in values if value is not None), default=0.0) or 1.0


def _bottom(values: Sequence[float | None]) -> float:
    return min((value for value in values if value is not None and value < 0), default=0.0)


TICK_ROOM = 36
"""Pixels that the label of a tick needs beside that of zero."""


def forest(
    title: str, entries: Sequence[Bar], *, say: Say = short, limits: tuple[float, float] | None = None
) -> str:
    """One row for each difference: a dot, its interval, and zero as a line through all rows.

    Both sides of zero are equally wide. With `limits` each is as wide as its entries need, and does not
    exceed its limit: intervals that do end in an arrow.
    """
    # Room for labels of wide letters: LETTER is that of an average one.
    left = min(max((len(entry.label) for entry in entries), default=0) * LETTER + 34, WIDTH * 0.36)
    low, high = _forest_ends(entries, limits)
    pad = 0.04 * (high - low)
    scale = (WIDTH - left - _note_width(entries, say)) / (high - low + 2 * pad)
    middle = left + (pad - low) * scale
    labels = [wrapped(entry.label, left - 10, LABEL_SIZE) for entry in entries]
    tops = _row_tops(labels)
    bottom = tops[-1]
    drawn = [line_mark(middle, 4, middle, bottom, "c-axis")]
    steps = [step for step in ticks(high, 4, bottom=low) if step and low <= step <= high]
    for value in steps:
        at = middle + value * scale
        drawn.append(line_mark(at, 8, at, bottom, "c-grid"))
        # Beside a narrow side there is room for the zero only; each label has the room of two.
        if abs(at - middle) > TICK_ROOM and (value in (steps[0], steps[-1]) or len(steps) <= 4):
            drawn.append(text_mark(at, bottom + 17, say(value), "c-tick", "middle"))
    drawn.append(text_mark(middle, bottom + 17, "0", "c-tick", "middle"))
    for entry, lines, y, below in zip(entries, labels, tops, tops[1:], strict=False):
        drawn.append(label_mark(left - 10, (y + below) / 2 - 1, lines, "end", title=entry.label))
        drawn.append(_row(entry, (y + below - ROW) / 2, middle, scale, say, (low, high)))
    return svg(title, bottom + 26, drawn)


def _forest_ends(entries: Sequence[Bar], limits: tuple[float, float] | None) -> tuple[float, float]:
    """The ends of the axis of differences, below and above zero."""
    ends = [end for entry in entries for end in (entry.value, entry.low, entry.high) if end is not None]
    reach = max(map(abs, ends), default=0.0) or 1.0
    if limits is None:
        return -reach, reach
    low, high = max(limits[0], min((0.0, *ends))), min(limits[1], max((0.0, *ends)))
    # Zero is not at the edge.
    room = 0.1 * (high - low) or min(-limits[0], limits[1])
    return min(low, -room), max(high, room)


def _row(entry: Bar, y: float, middle: float, scale: float, say: Say, ends: tuple[float, float]) -> str:
    value = entry.note or _formatted(entry.value, say)
    height = y + ROW / 2 - 1
    parts = list[str]()
    if entry.low is not None and entry.high is not None:
        low, high = (middle + min(max(end, ends[0]), ends[1]) * scale for end in (entry.low, entry.high))
        parts.append(line_mark(low, height, high, height, "c-whisker"))
        for end, x, inward in ((entry.low, low, 5), (entry.high, high, -5)):
            if ends[0] <= end <= ends[1]:
                parts.append(line_mark(x, height - 4, x, height + 4, "c-whisker"))
            else:
                parts += [line_mark(x + inward, height + side, x, height, "c-whisker") for side in (-4, 4)]
    if entry.value is not None:
        x = middle + entry.value * scale
        label = f"{entry.label}: {value}"
        parts.append(circle_mark(x, height, 5, label, mark=entry.mark))
    parts.append(text_mark(WIDTH, y + 19, value, "c-number", "end"))
    return "".join(parts)
