"""A measured number as people read it: the digits that matter, and no powers of ten before they are needed.

Knows nothing of what is measured, or of where it is shown.
"""

# From here on the whole number has more than four digits; from there on nobody reads it out.
WHOLE_FROM, WHOLE_TO = 9999.5, 1e15


def figure(value: float | None) -> str:
    """0.0042, 43.83, 12,346; a dash for what there is not."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if WHOLE_FROM <= abs(value) < WHOLE_TO else f"{value:.4g}"
