"""Plots as files beside a Markdown report, which can show them only from there.

Knows nothing of what is drawn, or of folders.
"""

import re
from collections.abc import Mapping, Sequence

from proctor.report.charts import as_file

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
