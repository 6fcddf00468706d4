"""Renders a summary as Markdown or as one HTML file.

The HTML is self-contained: no script, no external resource, and a content security policy that forbids
both. It follows the reader's light or dark mode, and prints.
"""

import base64
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from proctor import formatting
from proctor.report import charts
from proctor.report.charts import as_file
from proctor.stats.intervals import Estimate
from proctor.stats.summary import Summary

if TYPE_CHECKING:
    from proctor.stats.ranking import Rank

_TEMPLATES = (
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


PLOTS = "plots"
"""The folder beside a Markdown report in which its plots are."""
Drawn = tuple[str, str]
"""What a plot shows, in words, and the plot, or its file."""


def filed(plots: Mapping[str, Sequence[Drawn]]) -> tuple[dict[str, list[Drawn]], dict[str, str]]:
    """The same plots by the names of their files, and the files by name, numbered in order."""
    named: dict[str, list[Drawn]] = {}
    files: dict[str, str] = {}
    for part, drawn in plots.items():
        named[part] = []
        for caption, plot in drawn:
            file = f"{PLOTS}/{len(files) + 1:02d}-{_slug(caption)}.svg"
            files[file] = as_file(plot)
            named[part].append((caption, file))
    return named, files


def _slug(caption: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", caption.lower()).strip("-")[:60].strip("-")
