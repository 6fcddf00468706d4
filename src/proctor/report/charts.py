"""Small SVG plots for reports and pages.

Plots have no script and no colors: elements have classes (`c-…`) that a stylesheet colors, in light and
dark mode. `STYLE` is such a stylesheet, `COLOURS` its colors; a plot in its own file includes both. Every
mark has a tooltip; every plot has a text description.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from proctor.formatting import UNKNOWN, interval, one_line, percent, seconds, short, usd
from proctor.item import ERROR, FAIL, QUEUED, RUNNING, SUCCESS, TIMEOUT
from proctor.stats.intervals import Estimate
from proctor.stats.usage import Durations, ModelUsage

if TYPE_CHECKING:
    from proctor.stats.figures import FactorFigures, Figures

_TEMPLATES = files("proctor.report").joinpath("templates")
STYLE = _TEMPLATES.joinpath("charts.css").read_text(encoding="utf-8")
COLOURS = _TEMPLATES.joinpath("colours.css").read_text(encoding="utf-8")
_ALONE = (
    'svg.chart { font-family: system-ui, "Segoe UI", Roboto, sans-serif; } .c-paper { fill: var(--paper); }'
)
WIDTH = 480
"""Of the drawing; a page scales it. Narrow, so that its letters can be read on a phone."""

# Approximate width of a letter in the label font.
LETTER = 6.6
ROW = 30
SMALLEST = 1e-300
Say = Callable[[float], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar: a value with what it is called and, where known, the interval around it."""

    label: str
    value: float | None
    low: float | None = None
    high: float | None = None
    note: str = ""
    """What stands at the right; empty: the value."""
    kind: str = "main"
    """The class of its colour: `main`, or a status."""


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


def bars(title: str, entries: Sequence[Bar], *, top: float | None = None, say: Say = short) -> str:
    """Horizontal bars, one below the other, with their intervals as whiskers."""
    left = _label_width([entry.label for entry in entries])
    right = (
        max([len(entry.note or _formatted(entry.value, say)) for entry in entries], default=0) * LETTER + 14
    )
    span = WIDTH - left - right
    reach = top or _top([value for entry in entries for value in (entry.value, entry.high)])
    steps = ticks(reach)
    scale = span / max(reach, steps[-1])
    bottom = 8 + ROW * len(entries)
    drawn = [_x_axis(steps, left, scale, 8, bottom, say)]
    for index, entry in enumerate(entries):
        drawn.append(_bar(entry, left, 8 + ROW * index, scale, say))
    return _svg(title, bottom + 26, drawn)


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
        drawn.append(_rect(x, 8, width - gap, 30, f"c-fill c-{entry.kind}", label))
        if width > 46:
            drawn.append(_text(x + (width - gap) / 2, 28, f"{share:.0%}", "c-on", "middle"))
        text = f"{entry.label} {value:,.0f}"
        if legend_x + len(text) * LETTER + 32 > WIDTH:
            legend_x, legend_y = 0.0, legend_y + 22
        drawn.append(_rect(legend_x, legend_y - 10, 11, 11, f"c-fill c-{entry.kind}", label))
        drawn.append(_text(legend_x + 17, legend_y, text, "c-label", "start"))
        legend_x += len(text) * LETTER + 38
        x += width
    if not total:
        drawn.append(_text(0, 28, "nothing yet", "c-tick", "start"))
    return _svg(title, legend_y + 12, drawn)


def histogram(
    title: str,
    edges: Sequence[tuple[float, float]],
    counts: Sequence[int],
    *,
    say: Say = short,
    axis: str = "",
) -> str:
    """How many values fall between which, as bars side by side."""
    left, base, plot_top = 44, 190, 12
    steps = ticks(max([*counts, 1]), 4)
    height = (base - plot_top) / max(max([*counts, 1]), steps[-1])
    width = (WIDTH - left - 8) / max(len(counts), 1)
    drawn = [_y_axis(steps, left, base, height, short)]
    every = max(1, math.ceil(len(counts) / 7))
    for index, ((low, high), count) in enumerate(zip(edges, counts, strict=True)):
        x, tall = left + index * width, count * height
        label = f"{say(low)} to {say(high)}: {count:,}"
        drawn.append(_rect(x + 1, base - tall, max(width - 2, 1), tall, "c-fill c-main", label))
        if high - low > 1.5 * (edges[0][1] - edges[0][0]):
            # The long tail, in one bar of its own.
            drawn.append(_text(x + width, base + 17, "more", "c-tick", "end"))
        elif index % every == 0 and (not index or index < len(counts) - 1):
            drawn.append(_text(x, base + 17, say(low), "c-tick", "middle" if index else "start"))
    drawn.append(_text(WIDTH - 8, base + 36, axis, "c-tick", "end"))
    return _svg(title, base + 44, drawn)


def scatter(
    title: str,
    points: Sequence[Point],
    *,
    x_axis: str,
    y_axis: str,
    say_x: Say = short,
    say_y: Say = short,
    y_top: float | None = None,
) -> str:
    """Points with the interval of their height, each with its name beside it."""
    left, right, base, plot_top = 54, 20, 250, 34
    x_steps = ticks(_top([point.x for point in points]))
    y_steps = ticks(y_top or _top([value for point in points for value in (point.y, point.high)]), 4)
    wide, high = (WIDTH - left - right) / x_steps[-1], (base - plot_top) / y_steps[-1]
    drawn = [
        _y_axis(y_steps, left, base, high, say_y),
        _x_axis(x_steps, left, wide, plot_top, base, say_x),
        _text(0, 12, y_axis, "c-tick", "start"),
        _text(WIDTH - right, base + 38, x_axis, "c-tick", "end"),
    ]
    names = list[tuple[float, float]]()
    for point in sorted(points, key=lambda point: -point.y):
        x, y = left + point.x * wide, base - point.y * high
        label = f"{point.label}: {say_x(point.x)}, {say_y(point.y)}"
        if point.low is not None and point.high is not None:
            drawn.append(_line(x, base - point.low * high, x, base - point.high * high, "c-whisker"))
        drawn.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" class="c-fill c-main">{_title(label)}</circle>'
        )
        if point.is_marked:
            drawn.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="9.5" class="c-ring"/>')
        names.append((x, _free_height(x, y - 7, names)))
        beside, anchor = (x + 11, "start") if x < WIDTH * 0.6 else (x - 11, "end")
        drawn.append(_text(beside, names[-1][1], point.label, "c-label", anchor, longest=26))
    return _svg(title, base + 46, drawn)


def line(
    title: str,
    points: Sequence[Point],
    *,
    x_axis: str = "",
    say_y: Say = short,
    fits: Sequence[Point] = (),
) -> str:
    """A line through points, with a band where they have intervals; 0 is always in sight.

    There is room for what `fits` as well: plots that are to be compared have one scale.
    """
    left, right, base, plot_top = 54, 20, 200, 14
    if not points:
        return _svg(title, 40, [_text(0, 28, "nothing yet", "c-tick", "start")])
    x_steps = ticks(_top([point.x for point in points]))
    y_values = [value for point in (*points, *fits) for value in (point.y, point.low, point.high)]
    y_steps = ticks(max(0.0, _top(y_values)), 4, bottom=_bottom(y_values))
    wide, high = (WIDTH - left - right) / x_steps[-1], (base - plot_top) / (y_steps[-1] - y_steps[0])
    zero = base + y_steps[0] * high

    def at(point: Point, y: float | None) -> str:
        return f"{left + point.x * wide:.1f},{zero - (point.y if y is None else y) * high:.1f}"

    band = [at(point, point.high) for point in points] + [at(point, point.low) for point in reversed(points)]
    drawn = [
        _y_axis(y_steps, left, zero, high, say_y),
        _x_axis(x_steps, left, wide, plot_top, base, short),
        f'<polygon points="{" ".join(band)}" class="c-band"/>',
        f'<polyline points="{" ".join(at(point, None) for point in points)}" class="c-line"/>',
        _text(WIDTH - right, base + 36, x_axis, "c-tick", "end"),
    ]
    for point in points:
        x, y = at(point, None).split(",")
        label = f"{point.label}: {say_y(point.y)}"
        drawn.append(f'<circle cx="{x}" cy="{y}" r="3.5" class="c-fill c-main">{_title(label)}</circle>')
    return _svg(title, base + 44, drawn)


def curves(title: str, series: Mapping[str, Sequence[Point]], *, x_axis: str, say_y: Say = short) -> str:
    """Several lines on a scale from 0 to 1, with their intervals as whiskers, and names at their ends."""
    left, right, base, plot_top = 54, 84, 200, 14
    places = sorted({point.x for points in series.values() for point in points})
    wide, high = (WIDTH - left - right) / max(places[-1] - places[0], 1.0), base - plot_top
    drawn = [_y_axis(ticks(1.0, 4), left, base, high, say_y)]
    # Labels need about 16 units each.
    every = max(1, math.ceil(len(places) * 16 / (WIDTH - left - right)))
    for place in places[::every]:
        drawn.append(_text(left + (place - places[0]) * wide, base + 17, short(place), "c-tick", "middle"))
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
                drawn.append(_line(x, base - point.low * high, x, base - point.high * high, "c-whisker"))
            label = f"{point.label}: {say_y(point.y)}"
            drawn.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" class="c-fill c-main">{_title(label)}</circle>'
            )
        names.append((at[-1][0], _free_height(at[-1][0], at[-1][1] + 4, names)))
        drawn.append(_text(names[-1][0] + 10, names[-1][1], name, "c-label", "start", longest=12))
    drawn.append(_text(WIDTH - right, base + 36, x_axis, "c-tick", "end"))
    return _svg(title, base + 44, drawn)


def as_file(plot: str) -> str:
    """A plot as a file of its own: with its colours, on paper, in the size it is meant to have."""
    head, _, drawn = plot.partition(">")
    _, _, box = head.partition('viewBox="0 0 ')
    width, height = box.partition('"')[0].split()
    sized = f'{head} width="{width}" height="{height}">'
    paper = f'<rect width="{width}" height="{height}" class="c-paper"/>'
    return f"{sized}<style>{COLOURS}{STYLE}{_ALONE}</style>{paper}{drawn}\n"


def ticks(top: float, count: int = 5, *, bottom: float = 0.0) -> list[float]:
    """Round numbers from `bottom`, which is 0 or below, to `top`, or just beyond them."""
    span = top - bottom
    # What is smaller than any figure we could have measured is nothing, and would divide by nothing.
    if not math.isfinite(span) or span < SMALLEST:
        return [0.0, 1.0]
    power = 10.0 ** math.floor(math.log10(span / count))
    step = next(
        factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power * count >= span * (1 - 1e-9)
    )
    first, last = math.floor(bottom / step + 1e-9), math.ceil(top / step - 1e-9)
    return [index * step for index in range(first, last + 1)]


def _bar(entry: Bar, left: float, y: float, scale: float, say: Say) -> str:
    value = entry.note or _formatted(entry.value, say)
    label = f"{entry.label}: {value}"
    parts = [_text(left - 10, y + 19, entry.label, "c-label", "end", longest=int((left - 10) / LETTER))]
    if entry.value is not None:
        # Lighter under a whisker, which would be lost on a full colour.
        kind = f"c-fill c-{entry.kind}" + (" c-estimate" if entry.low is not None else "")
        parts.append(_rect(left, y + 5, entry.value * scale, ROW - 12, kind, label))
    if entry.low is not None and entry.high is not None:
        # What lies below 0 has no place among the names; a whisker without an end says that it goes on.
        low, high, middle = left + max(0.0, entry.low) * scale, left + entry.high * scale, y + ROW / 2 - 1
        ends = (low, high) if entry.low >= 0 else (high,)
        parts.append(_line(low, middle, high, middle, "c-whisker"))
        parts += [_line(x, middle - 4, x, middle + 4, "c-whisker") for x in ends]
    parts.append(_text(WIDTH, y + 19, value, "c-number", "end"))
    return "".join(parts)


def _x_axis(steps: Sequence[float], left: float, scale: float, top: float, base: float, say: Say) -> str:
    drawn = [_line(left, top, left, base, "c-axis")]
    for index, step in enumerate(steps):
        x = left + step * scale
        drawn.append(_line(x, top, x, base, "c-grid") if index else "")
        drawn.append(_text(x, base + 17, say(step), "c-tick", "middle"))
    return "".join(drawn)


def _y_axis(steps: Sequence[float], left: float, base: float, scale: float, say: Say) -> str:
    drawn = []
    for step in steps:
        y = base - step * scale
        drawn.append(_line(left, y, WIDTH - 8, y, "c-grid" if step else "c-axis"))
        drawn.append(_text(left - 8, y + 4, say(step), "c-tick", "end"))
    return "".join(drawn)


def _svg(title: str, height: float, drawn: Sequence[str]) -> str:
    name = escape(one_line(title, 200), quote=True)
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{name}" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(drawn)}</svg>'
    )


def _text(x: float, y: float, text: str, kind: str, anchor: str, *, longest: int = 60) -> str:
    whole, cut = one_line(text, 300), one_line(text, max(longest, 4))
    more = _title(whole) if cut != whole else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(cut)}{more}</text>'
        if cut
        else ""
    )


def _rect(x: float, y: float, width: float, height: float, kind: str, title: str) -> str:
    size = f'x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{max(height, 0):.1f}" rx="2"'
    return f'<rect {size} class="{escape(kind, quote=True)}">{_title(title)}</rect>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def _free_height(x: float, y: float, occupied: Sequence[tuple[float, float]]) -> float:
    """The next height below `y` at which a name collides with none of those already written."""
    while any(abs(x - other) < WIDTH / 4 and abs(y - height) < 14 for other, height in occupied):
        y += 4
    return y


def _title(text: str) -> str:
    return f"<title>{escape(one_line(text, 300))}</title>"


def _label_width(labels: Sequence[str]) -> float:
    longest = max((len(one_line(label, 300)) for label in labels), default=0)
    return min(longest * LETTER + 30, WIDTH * 0.34)


def _formatted(value: float | None, say: Say) -> str:
    return "–" if value is None else say(value)


def _top(values: Sequence[float | None]) -> float:
    return max((value for value in values if value is not None), default=0.0) or 1.0


def _bottom(values: Sequence[float | None]) -> float:
    return min((value for value in values if value is not None and value < 0), default=0.0)


# Charts of a report.


ORDER = (SUCCESS, FAIL, TIMEOUT, ERROR, RUNNING, QUEUED)
DRAWN_MODELS = 15


def outcome_bar(counts: Mapping[str, int]) -> str:
    """How many items ended how, as one bar."""
    parts = [Bar(label=status, value=counts[status], kind=status) for status in ORDER]
    description = ", ".join(f"{part.label} {part.value:.0f}" for part in parts if part.value)
    return stacked(f"Items by status: {description or 'none'}", parts)


def rates(factor: "FactorFigures") -> str:
    """The success rate of each level with its interval."""
    entries = [
        Bar(
            label=level.name or "(none)",
            value=level.success.value,
            low=level.success.low,
            high=level.success.high,
            note=_rate(level.success),
        )
        for level in factor.levels
    ]
    return bars(f"Success rate by {factor.name}, with 95% CI", entries, top=1.0, say=percent)


def _rate(rate: Estimate) -> str:
    if rate.value is None:
        return UNKNOWN
    limits = f" ({interval(rate.low, rate.high)})" if rate.low is not None else ""
    return f"{percent(rate.value)}{limits}"


def pass_curves(figures: "Figures") -> str:
    """pass@k and pass^k for each k; empty without repeats."""
    series = {
        name: [
            Point(
                label=f"{name.replace('k', str(each.k))}",
                x=each.k,
                y=each.estimate.value,
                low=each.estimate.low,
                high=each.estimate.high,
            )
            for each in entries
            if each.estimate.value is not None
        ]
        for name, entries in (("pass@k", figures.pass_at), ("pass^k", figures.pass_hat))
    }
    if not all(series.values()):
        return ""
    title = "pass@k and pass^k by the number of runs k, with 95% CI"
    return curves(title, series, x_axis="k", say_y=percent)


def duration_histogram(durations: Durations) -> str:
    """How long items took."""
    return histogram(
        "How many items took how long",
        [(one.low, one.high) for one in durations.bins],
        [one.count for one in durations.bins],
        say=seconds,
        axis="from start to end of an item",
    )


def cost_against_success(factor: "FactorFigures") -> str:
    """What an item cost against how often it succeeded; empty unless two levels know both.

    Levels on the Pareto front of success, cost and time are marked.
    """
    points = [
        Point(
            label=level.name or "(none)",
            x=level.cost_usd.value,
            y=level.success.value,
            low=level.success.low,
            high=level.success.high,
            is_marked=level.name in factor.front,
        )
        for level in factor.levels
        if level.cost_usd.value is not None and level.success.value is not None
    ]
    if len(points) < 2:
        return ""
    return scatter(
        f"Mean cost of an item against success rate, by {factor.name}",
        points,
        x_axis="mean cost of an item",
        y_axis="success rate",
        say_x=usd,
        say_y=percent,
        y_top=1.0,
    )


def tokens_by_model(models: Sequence[ModelUsage]) -> str:
    """How many tokens each model used."""
    entries = [Bar(label=usage.model, value=usage.total_tokens) for usage in models[:DRAWN_MODELS]]
    return bars("Tokens by model", entries, say=short)


# Forest plots.


@dataclass(frozen=True, slots=True, kw_only=True)
class Stem:
    """One difference."""

    label: str
    value: float | None
    low: float | None = None
    high: float | None = None
    note: str = ""
    """What stands at the right; empty: the value."""


def forest(title: str, entries: Sequence[Stem], *, say: Say = short) -> str:
    """One row for each difference: a dot, its interval, and zero as a line through all rows."""
    # Room for labels of wide letters: LETTER is that of an average one.
    left = min(max((len(entry.label) for entry in entries), default=0) * LETTER + 34, WIDTH * 0.36)
    right = (
        max((len(entry.note or _formatted(entry.value, say)) for entry in entries), default=0) * LETTER + 14
    )
    ends = [abs(end) for entry in entries for end in (entry.value, entry.low, entry.high) if end is not None]
    reach = max(ends, default=0.0) * 1.08 or 1.0
    middle = left + (WIDTH - left - right) / 2
    scale = (WIDTH - left - right) / 2 / reach
    bottom = 8 + ROW * len(entries)
    drawn = [_line(middle, 4, middle, bottom, "c-axis")]
    for share in (-1.0, -0.5, 0.5, 1.0):
        at = middle + share * reach / 1.08 * scale
        drawn.append(_line(at, 8, at, bottom, "c-grid"))
        if abs(share) == 1.0:
            drawn.append(_text(at, bottom + 17, say(share * reach / 1.08), "c-tick", "middle"))
    drawn.append(_text(middle, bottom + 17, "0", "c-tick", "middle"))
    drawn += [_row(entry, 8 + ROW * number, left, middle, scale, say) for number, entry in enumerate(entries)]
    return _svg(title, bottom + 26, drawn)


def _row(entry: Stem, y: float, left: float, middle: float, scale: float, say: Say) -> str:
    value = entry.note or _formatted(entry.value, say)
    height = y + ROW / 2 - 1
    parts = [_text(left - 10, y + 19, entry.label, "c-label", "end", longest=int((left - 10) / LETTER))]
    if entry.low is not None and entry.high is not None:
        low, high = middle + entry.low * scale, middle + entry.high * scale
        parts.append(_line(low, height, high, height, "c-whisker"))
        parts += [_line(x, height - 4, x, height + 4, "c-whisker") for x in (low, high)]
    if entry.value is not None:
        x = middle + entry.value * scale
        dot = f'<circle cx="{x:.1f}" cy="{height:.1f}" r="5" class="c-fill c-main">'
        parts.append(f"{dot}{_title(f'{entry.label}: {value}')}</circle>")
    parts.append(_text(WIDTH, y + 19, value, "c-number", "end"))
    return "".join(parts)


# Charts of one factor.


def plots(factor: "FactorFigures") -> list[tuple[str, str]]:
    """Each plot with its caption; only those there are figures for."""
    if not factor.levels:
        return []
    drawn = [("Success rate", rates(factor))]
    costs = [(level.name, level.cost_usd) for level in factor.levels]
    times = [(level.name, level.seconds) for level in factor.levels]
    drawn += _means("Mean cost of an item", factor.name, costs, usd)
    drawn += _means("Mean time of an item", factor.name, times, seconds)
    return drawn


def _means(
    caption: str, factor: str, levels: Sequence[tuple[str, Estimate]], say: Callable[[float], str]
) -> list[tuple[str, str]]:
    if all(estimate.value is None for _, estimate in levels):
        return []
    entries = [
        Bar(
            label=name or "(none)",
            value=estimate.value,
            # Of money and time there is none below 0, whatever the interval says.
            low=None if estimate.low is None else max(0.0, estimate.low),
            high=estimate.high,
            note="" if estimate.value is None else say(estimate.value),
        )
        for name, estimate in levels
    ]
    return [(caption, bars(f"{caption} by {factor}, with 95% CI", entries, say=say))]
