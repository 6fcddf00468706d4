"""What a coding session is called.

    batch/<slug of the prompt>/<yyyymmdd-HHMMss>/<start of the item's id>

The name is the session's name and its branch, so it is made of nothing git would refuse.

Knows nothing of git itself, disks or clocks.
"""

import re
from collections.abc import Collection
from datetime import UTC, datetime

SLUG_LENGTH = 30
ID_LENGTH = 8


def slug_of(prompt: str) -> str:
    """The prompt's beginning as a word for a name; `session` when nothing of it can be used."""
    words = re.sub(r"[^a-z0-9]+", "-", prompt[:1000].lower()).strip("-")
    slug = words[:SLUG_LENGTH].strip("-")
    # git takes a name that ends in this for a lock of its own.
    slug = slug.removesuffix(".lock")
    return slug or "session"


def session_name(prompt: str, at: datetime, item_id: str, number: int, taken: Collection[str] = ()) -> str:
    """The name of attempt `number` at an item; with more of the id when a name is `taken`."""
    stamp = at.astimezone(UTC).strftime("%Y%m%d-%H%M%S")
    suffix = f"-{number}" if number > 1 else ""
    start = f"batch/{slug_of(prompt)}/{stamp}/"
    lengths = range(ID_LENGTH, max(len(item_id), ID_LENGTH) + 1)
    names = [f"{start}{item_id[:length]}{suffix}" for length in lengths]
    names += [f"{names[-1]}.{again}" for again in range(1, 100)]
    return next((name for name in names if name not in taken), names[-1])


def title_of(prompt: str) -> str:
    """The first line of a prompt, short enough for the subject of a commit."""
    lines = (line.strip() for line in prompt.splitlines())
    first = next((line for line in lines if line), "Changes by the agent")
    return first if len(first) <= 72 else first[:71].rstrip() + "…"
