"""In-memory caches: a bounded LRU cache, and one of results about runs that stay valid as long as the run."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from proctor.item import RUNNING
from proctor.json_values import JsonMap

MAX_RESULTS = 200
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class LruCache(Generic[Key, Value]):
    """Keeps the most recently used values. Not safe for use by several threads at once."""

    def __init__(self, size: int, *, most_weight: int | None = None, least: int = 0) -> None:
        """At most `size` values; with `most_weight`, fewer when they weigh more, but at least `least`."""
        self._size = size
        self._most_weight = most_weight
        self._least = least
        self._weight = 0
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._weights: dict[Key, int] = {}

    def get(self, key: Key) -> Value | None:
        """The value of a key; None when it is not cached."""
        if key not in self._values:
            return None
        self._values.move_to_end(key)
        return self._values[key]

    def put(self, key: Key, value: Value, weight: int = 0) -> None:
        """Cache a value, and drop the least recently used ones when there are too many."""
        self._weight += weight - self._weights.get(key, 0)
        self._weights[key] = weight
        self._values[key] = value
        self._values.move_to_end(key)
        while len(self._values) > self._size or (
            self._most_weight is not None
            and self._weight > self._most_weight
            and len(self._values) > self._least
        ):
            dropped, _ = self._values.popitem(last=False)
            self._weight -= self._weights.pop(dropped)


class ResultCache(Generic[Value]):
    """Results computed from runs.

    The result of a run that has ended is valid until its row changes, as on resume; that of a running one for
    a few seconds.
    """

    def __init__(self, now: Callable[[], datetime], *, while_running: timedelta) -> None:
        """`while_running` is how long the result of a running run is valid."""
        self._now = now
        self._while_running = while_running
        self._results: LruCache[Hashable, tuple[JsonMap, datetime, Value]] = LruCache(MAX_RESULTS)
        self._lock = threading.Lock()

    def get(self, batch: JsonMap, about: Hashable, compute: Callable[[], Value]) -> Value:
        """The result `about` a run, whose current row is `batch`."""
        key = (batch["runId"], about)
        # One at a time: concurrent requests for the same run must not each compute it.
        with self._lock:
            if (entry := self._results.get(key)) and self._is_valid(entry[0], entry[1], batch):
                return entry[2]
            began, result = self._now(), compute()
            self._results.put(key, (batch, began, result))
            return result

    def _is_valid(self, before: JsonMap, began: datetime, batch: JsonMap) -> bool:
        if batch["status"] != RUNNING:
            return before == batch
        same = before["status"] == RUNNING and before["owner"] == batch["owner"]
        # Also out of date if the clock was set back.
        return same and abs(self._now() - began) < self._while_running
