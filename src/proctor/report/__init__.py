"""Renderers of documents and reports: text, Markdown, and self-contained HTML."""
