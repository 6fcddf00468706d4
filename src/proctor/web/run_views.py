"""Views of items, and of the progress of reading them, for pages and API."""

from datetime import datetime

from proctor.store.database import Row, extended
from proctor.store.items import PageItem
from proctor.web.run_schemas import (
    ItemShape,
)


def item_shape(row: PageItem) -> ItemShape:
    """The response shape of an item row."""
    return ItemShape(**extended(Row, row, seconds=_seconds(row["startedAt"], row["finishedAt"])))


def _seconds(start: str | None, end: str | None) -> float | None:
    if start is None or end is None:
        return None
    return max(0.0, (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds())
