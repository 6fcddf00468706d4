"""Items as rows, and rows as items.

Knows nothing of databases.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from proctor.item import QUEUED, Item, id_of
from proctor.session import Merge
from proctor.store.cleaning import clean


def row_of(run_id: str, position: int, item: Item) -> tuple[Any, ...]:
    """A new item's row, in the order of `batch_items`' columns."""
    digest = item.digest
    return (
        *(run_id, id_of(digest, item.repeat), position, digest, item.repeat, item.runner),
        *(clean(str(item.settings.get("repo", ""))), clean(item.prompt), item.agent, item.model),
        *(_json(item.factors), _json(item.details), _json(item.settings), QUEUED, "", "", None, None),
        *(None, None, 0, 0, None),
    )


def how_of(item: Item) -> tuple[str, str, str]:
    """The columns that may change while the item stays the same: settings, factors, repository."""
    return _json(item.settings), _json(item.factors), clean(str(item.settings.get("repo", "")))


def merge_row(session_id: str, position: int, when: str, merge: Merge) -> tuple[Any, ...]:
    """A try to merge, in the order of `merge_history`'s columns."""
    files = json.dumps(list(merge.conflict_files))
    head = (session_id, position, when, when, clean(merge.base_branch), merge.mode, merge.result, files)
    return (*head, clean(merge.message), merge.before_sha, merge.after_sha, clean(merge.error))


def item_of(row: Mapping[str, Any]) -> Item:
    """The item that a row was made from."""
    return Item(
        runner=row["runner"],
        prompt=row["prompt"],
        agent=row["agent"],
        model=row["model"],
        details=_mapping(row["details"]),
        settings=_mapping(row["settings"]),
        factors=_mapping(row["factors"]),
        repeat=row["repeat"],
    )


def _json(value: Mapping[str, Any]) -> str:
    return clean(_ENCODER.encode(dict(value)))


# The items of one plan share most of this, and nobody changes an item.
@lru_cache(maxsize=1024)
def _mapping(text: str) -> Mapping[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found


_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
