"""The Python library: run plans, read results, start detached runs."""
