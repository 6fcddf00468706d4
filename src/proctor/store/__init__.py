"""The store: batches, items, sessions and scores. Nothing else writes to its database."""

from proctor.store.batches import Resource, RetrySelection
from proctor.store.ledger import Drawn, MoneyLimits
from proctor.store.reader import ItemFilter, Scope, StoreReader
from proctor.store.recorder import Recorder, Totals
from proctor.store.store import Store
from proctor.store.tables import item_of
from proctor.store.writer import Ownership, Writer, timestamp

__all__ = [
    "Drawn",
    "ItemFilter",
    "MoneyLimits",
    "Ownership",
    "Recorder",
    "Resource",
    "RetrySelection",
    "Scope",
    "Store",
    "StoreReader",
    "Totals",
    "Writer",
    "item_of",
    "timestamp",
]
