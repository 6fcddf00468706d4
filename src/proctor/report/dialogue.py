"""What a simulation's sessions show, as a page: means by combination, and where the variance comes from.

Knows nothing of folders or stores; computes nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from proctor.figures import figure
from proctor.report.charts import Bar, bars
from proctor.report.plot_files import Drawn, filed
from proctor.report.render import page, text
from proctor.report.words import percent

DRAWN_CELLS = 40


def dialogue_html(document: Mapping[str, Any]) -> str:
    """The analysis as one HTML file that needs nothing else."""
    plots = {
        name: [(caption, Markup(plot)) for caption, plot in drawn] for name, drawn in _plots(document).items()
    }
    return page("dialogue.html.j2", document=document, plots=plots, figure=figure, around=around)


def dialogue_markdown(document: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """The analysis as Markdown, and the plots it shows: SVG files by the names it looks for them under."""
    plots, files = filed(_plots(document))
    return _markdown(document, plots), files


def dialogue_words(document: Mapping[str, Any]) -> str:
    """The analysis as text for a terminal, which shows no plots."""
    return _markdown(document, {})


def _markdown(document: Mapping[str, Any], plots: Mapping[str, Sequence[Drawn]]) -> str:
    return text("dialogue.md.j2", document=document, plots=plots, figure=figure, around=around)


def around(estimate: Mapping[str, Any]) -> str:
    """An interval in words."""
    if estimate["low"] is None:
        return "too few to say"
    return f"{figure(estimate['low'])} to {figure(estimate['high'])}"


def _plots(document: Mapping[str, Any]) -> dict[str, list[Drawn]]:
    """The plots of each measure by its name."""
    return {
        each["measure"]: [
            *_means(each["measure"], each["cells"]),
            *_shares(each["measure"], each["components"]),
        ]
        for each in document["measures"]
    }


def _means(measure: str, cells: Sequence[Mapping[str, Any]]) -> list[Drawn]:
    entries = [
        Bar(
            label=f"{cell['client']} × {cell['therapist']}",
            value=cell["mean"]["value"],
            low=cell["mean"]["low"],
            high=cell["mean"]["high"],
            note=figure(cell["mean"]["value"]),
        )
        for cell in cells[:DRAWN_CELLS]
    ]
    # A bar begins at 0; what lies below it cannot be drawn as one.
    if any((entry.value or 0) < 0 for entry in entries):
        return []
    title = f"{measure} by combination: means with 95 % intervals"
    return [(title, bars(title, entries))]


def _shares(measure: str, components: Sequence[Mapping[str, Any]]) -> list[Drawn]:
    told = [
        Bar(label=each["source"], value=each["share"]) for each in components if each["share"] is not None
    ]
    if not told:
        return []
    title = f"{measure}: share of the variance"
    return [(title, bars(title, told, top=1.0, say=percent))]
