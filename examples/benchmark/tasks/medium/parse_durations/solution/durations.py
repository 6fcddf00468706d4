"""Durations as people write them."""

import re

UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PART = re.compile(r"\s*([0-9]+)(\.[0-9]+)?(ms|[dhms])")


def seconds(text):
    """The seconds that a text such as `1h30m` stands for."""
    rest, total, before, last_was_fraction = text, 0.0, -1, False
    while rest.strip():
        part = _PART.match(rest)
        order = list(UNITS).index(part[3]) if part else -1
        if part is None or order <= before or last_was_fraction:
            raise ValueError(f"{text!r} is no duration")
        total += float(part[1] + (part[2] or "")) * UNITS[part[3]]
        before, last_was_fraction, rest = order, bool(part[2]), rest[part.end() :]
    if before < 0:
        raise ValueError("an empty text is no duration")
    return total


def spoken(amount):
    """The shortest text for some seconds, to the millisecond."""
    left = round(amount * 1000)
    if left < 0:
        raise ValueError("a duration is not negative")
    parts = []
    for unit, size in UNITS.items():
        count, left = divmod(left, round(size * 1000))
        parts += [f"{count}{unit}"] if count else []
    return "".join(parts) or "0s"
