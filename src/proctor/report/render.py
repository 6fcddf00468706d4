"""Renders a summary as Markdown or as one HTML file.

The HTML is self-contained: no script, no external resource, and a content security policy that forbids
both. It follows the reader's light or dark mode, and prints.
"""

import base64
import hashlib
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from proctor import formatting
from proctor.report import charts
from proctor.report.charts import as_file
from proctor.report.print_figures import print_pdf, print_svg
from proctor.stats.intervals import Estimate
from proctor.stats.summary import Summary

if TYPE_CHECKING:
    from proctor.stats.ranking import Rank

_TEMPLATES = (
    "figures.html.j2",
    "report.html.j2",
    "report.md.j2",
    "report.css",
    "benchmark.html.j2",
    "dialogue.html.j2",
    "dialogue.md.j2",
    "comparison.html.j2",
    "comparison.md.j2",
    "evaluation.html.j2",
    "evaluation.md.j2",
    "experiment.html.j2",
    "experiment.md.j2",
)


def html(summary: Summary) -> str:
    """The report as one HTML file that needs nothing else."""
    figures = summary.figures
    plots = {
        "outcomes": charts.outcome_bar(summary.counts),
        "factors": {factor.name: Markup(charts.rates(factor)) for factor in figures.factors if factor.levels},
        "repeats": charts.pass_curves(figures.overall),
        "durations": charts.duration_histogram(summary.durations) if summary.durations.items else "",
        "cost": charts.cost_against_success(figures.main) if figures.main else "",
        "tokens": charts.tokens_by_model(summary.models) if summary.models else "",
    }
    safe = {name: Markup(plot) if isinstance(plot, str) else plot for name, plot in plots.items()}
    return page("report.html.j2", s=summary, title=title(summary), plots=safe)


def page(template: str, **values: Any) -> str:
    """Render an HTML page with the style sheet and the digest for its content security policy."""
    style = f"{charts.COLOURS}{_template('report.css')}{charts.STYLE}"
    source = _environment(escaped=True).get_template(template)
    return source.render(style=Markup(style), digest=_sha256(style), **values)


def markdown(summary: Summary) -> str:
    """The report as Markdown."""
    return text("report.md.j2", s=summary, title=title(summary))


def text(template: str, **values: Any) -> str:
    """Render a Markdown text with at most one empty line in a row."""
    text = _environment(escaped=False).get_template(template).render(**values)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def title(summary: Summary) -> str:
    """Title of the report."""
    scope = summary.scope
    if scope.run_id:
        return f"Run {scope.run_id}"
    if scope.session_ids:
        return formatting.plural(len(scope.session_ids), "session")
    start = f"from {scope.start:%Y-%m-%d} " if scope.start else ""
    # The end is exclusive; people expect the last day included.
    end = f"until {scope.end - timedelta(microseconds=1):%Y-%m-%d}" if scope.end else ""
    return f"Sessions {start}{end}".strip() if start or end else "All sessions"


@cache
def _environment(*, escaped: bool) -> Environment:
    environment = Environment(
        loader=DictLoader({name: _template(name) for name in _TEMPLATES}),
        autoescape=escaped,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {
        name: getattr(formatting, name)
        for name in ("whole", "short", "percent", "usd", "seconds", "milliseconds", "moment", "one_line")
    }
    environment.filters["md"] = formatting.in_markdown
    environment.filters["zip"] = zip
    environment.globals |= {
        "plural": formatting.plural,
        "interval": formatting.interval,
        "limits": limits,
        "places": places,
        "usd": formatting.usd,
        "seconds": formatting.seconds,
        "figure": formatting.figure,
        "order": charts.ORDER,
    }
    return environment


def limits(estimate: Estimate, say: Callable[[float | None], str] = formatting.percent) -> str:
    """The confidence interval of an estimate as text."""
    if estimate.low is None and estimate.high is None:
        return formatting.UNKNOWN
    if estimate.high is None:
        return f"from {say(estimate.low)}, no upper limit"
    if say is formatting.percent:
        return formatting.interval(estimate.low, estimate.high)
    low, high = say(estimate.low), say(estimate.high)
    if low == high and estimate.low is not None:
        # No interval has zero width: not on the page either.
        return f"{say(estimate.value)} ± {(estimate.high - estimate.low) / 2:.1g}"
    return f"{low} to {high}"


def places(rank: "Rank | None") -> str:
    """A rank with its interval: `2`, or `2 (1 to 3)`."""
    if rank is None or rank.value is None:
        return formatting.UNKNOWN
    return formatting.rank(rank.rank, rank.rank_low, rank.rank_high)


def _template(name: str) -> str:
    return files("proctor.report").joinpath("templates", name).read_text(encoding="utf-8")


def _sha256(style: str) -> str:
    return base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()


_METHODS = {
    "plus": "the plus interval within the scale",
    "Wilson": "Wilson",
    "Student's t": "Student's t",
}


def method_text(methods: Iterable[str], *, prefix: str = "95% CI: ") -> str:
    """The methods of the intervals of a figure, in words."""
    names = [_METHODS.get(method, method) for method in dict.fromkeys(methods) if method]
    return f"{prefix}{' or '.join(names)}" if names else "without intervals, which need more runs"


def sample_text(counts: Sequence[int], unit: str, group: str, *, total: bool = True) -> str:
    """The sizes of the samples of a figure: `n = 12 runs per variation, 24 in all`."""
    low, high = min(counts, default=0), max(counts, default=0)
    number = formatting.plural(high, unit) if low == high else f"{low:,} to {formatting.plural(high, unit)}"
    everything = f", {sum(counts):,} in all" if total and len(counts) > 1 else ""
    return f"n = {number} per {group}{everything}"


PLOTS, FIGURES = "plots", "figures"
"""The folders beside a report with its plots, and with the same figures for print."""
Drawn = tuple[str, str]
"""The caption of a plot, and the plot, or its file."""
PageFiles = dict[str, str | bytes]
"""Contents of files by name."""


@dataclass(frozen=True, slots=True)
class PagePlot:
    """A plot of an HTML page."""

    caption: str
    plot: Markup
    file: str = ""
    """Path of its print version without suffix; empty: there is none."""


def plots_in_page(plots: Mapping[str, Sequence[Drawn]], *, files: bool) -> dict[str, list[PagePlot]]:
    """The plots of an HTML page; with `files`, with the paths of their print versions."""
    names = _file_names(plots)
    return {
        part: [
            PagePlot(caption, Markup(plot), f"{FIGURES}/{names[part, number]}" if files else "")
            for number, (caption, plot) in enumerate(drawn)
        ]
        for part, drawn in plots.items()
    }


def filed(
    plots: Mapping[str, Sequence[Drawn]], *, methods: str = ""
) -> tuple[dict[str, list[Drawn]], PageFiles]:
    """The same plots by the names of their files, and the files by name, numbered in order.

    Each is there as a plot for screens and as SVG and PDF for print; `captions.md` has the captions.
    """
    named: dict[str, list[Drawn]] = {}
    files: PageFiles = {}
    names, captions = _file_names(plots), list[str]()
    for part, drawn in plots.items():
        named[part] = []
        for number, (caption, plot) in enumerate(drawn):
            name = names[part, number]
            files[f"{PLOTS}/{name}.svg"] = as_file(plot)
            files[f"{FIGURES}/{name}.svg"] = print_svg(plot, caption)
            files[f"{FIGURES}/{name}.pdf"] = print_pdf(plot, caption)
            captions.append(f"**{name}**: {formatting.in_markdown(caption, 2000)}\n")
            named[part].append((caption, f"{PLOTS}/{name}.svg"))
    if captions:
        about = [f"## Methods\n\n{formatting.in_markdown(methods, 5000)}\n"] if methods else []
        files[f"{FIGURES}/captions.md"] = "\n".join(["# Captions\n", *captions, *about])
    return named, files


def write_pages(target: Path, pages: PageFiles) -> list[Path]:
    """Write a report and its figures into the folder of an analysis; the files."""
    for folder in (PLOTS, FIGURES):
        # Plots of an earlier report would be misleading.
        shutil.rmtree(target / folder, ignore_errors=True)
        (target / folder).mkdir(parents=True)
    for name, content in pages.items():
        (target / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return [target / name for name in pages]


def _file_names(plots: Mapping[str, Sequence[Drawn]]) -> dict[tuple[str, int], str]:
    """The name of the file of each plot, by part and position."""
    places = [
        (part, number, drawn[number][0]) for part, drawn in plots.items() for number in range(len(drawn))
    ]
    return {
        (part, number): f"{index:02d}-{_slug(caption.partition('. ')[0])}"
        for index, (part, number, caption) in enumerate(places, start=1)
    }


def _slug(caption: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", caption.lower()).strip("-")[:60].strip("-")
