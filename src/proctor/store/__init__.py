"""The only code that writes what a batch produced."""

from proctor.store.batches import Again
from proctor.store.ledger import Drawn, MoneyLimits
from proctor.store.reading import ItemFilter, Reader, Scope
from proctor.store.recorder import Recorder, Totals
from proctor.store.rows import item_of
from proctor.store.store import Store
from proctor.store.writer import Ownership, Writer, timestamp

__all__ = [
    "Again",
    "Drawn",
    "ItemFilter",
    "MoneyLimits",
    "Ownership",
    "Reader",
    "Recorder",
    "Scope",
    "Store",
    "Totals",
    "Writer",
    "item_of",
    "timestamp",
]
