"""A summary as something to read: Markdown, or a page that needs nothing else."""

from proctor.report.render import html, markdown

__all__ = ["html", "markdown"]
