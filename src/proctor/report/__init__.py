"""Reports: a summary or a comparison as Markdown or a self-contained HTML page."""

from proctor.report.render import html, markdown

__all__ = ["html", "markdown"]
