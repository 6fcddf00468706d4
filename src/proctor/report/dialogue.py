"""What a simulation's sessions show, as a page: means by combination, and where the variance comes from.

Knows nothing of folders or stores; computes nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from proctor.report.charts import Bar, bars
from proctor.report.render import page, text

DRAWN_CELLS = 40


def dialogue_html(document: Mapping[str, Any]) -> str:
    """The analysis as one HTML file that needs nothing else."""
    plots = {
        each["measure"]: [Markup(_means(each)), Markup(_shares(each["components"]))]
        for each in document["measures"]
    }
    return page("dialogue.html.j2", document=document, plots=plots, figure=figure, around=around)


def dialogue_markdown(document: Mapping[str, Any]) -> str:
    """The analysis as Markdown."""
    return text("dialogue.md.j2", document=document, figure=figure, around=around)


def figure(value: float | None) -> str:
    """A measure's value with the digits that matter."""
    return "–" if value is None else f"{value:.4g}"


def around(estimate: Mapping[str, Any]) -> str:
    """An interval in words."""
    if estimate["low"] is None:
        return "too few to say"
    return f"{figure(estimate['low'])} to {figure(estimate['high'])}"


def _means(measure: Mapping[str, Any]) -> str:
    entries = [
        Bar(
            label=f"{cell['client']} × {cell['therapist']}",
            value=cell["mean"]["value"],
            low=cell["mean"]["low"],
            high=cell["mean"]["high"],
        )
        for cell in measure["cells"][:DRAWN_CELLS]
    ]
    return bars(f"{measure['measure']} by combination", entries, say=figure)


def _shares(components: Sequence[Mapping[str, Any]]) -> str:
    told = [
        Bar(label=each["source"], value=each["share"]) for each in components if each["share"] is not None
    ]
    return bars("Share of the variance", told, top=1.0, say=lambda share: f"{share:.0%}") if told else ""
