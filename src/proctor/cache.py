"""Answers about runs that take a while to work out, kept for as long as they hold.

A run that has ended stays as it is until it is taken up again, which its row in the record tells. One that
is carried out changes all the time; what was worked out of it is handed out for a few seconds more.

Knows nothing of what the answers are.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from proctor.item import RUNNING

MOST_KEPT = 200


Answer = TypeVar("Answer")


State = Mapping[str, Any]


class ResultCache(Generic[Answer]):
    """The answers that were asked for lately."""

    def __init__(self, now: Callable[[], datetime], *, while_running: timedelta) -> None:
        """`while_running` is how long an answer about a run that is carried out is good for."""
        self._now = now
        self._while_running = while_running
        self._kept: OrderedDict[Hashable, tuple[State, datetime, Answer]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, batch: State, about: Hashable, work_out: Callable[[], Answer]) -> Answer:
        """The answer to one question about a run, whose row is as it is now."""
        key = (batch["runId"], about)
        # One at a time: twenty who look at the same run would else have it worked out twenty times.
        with self._lock:
            if (entry := self._kept.get(key)) and self._holds(entry[0], entry[1], batch):
                self._kept.move_to_end(key)
                return entry[2]
            began, answer = self._now(), work_out()
            self._kept[key] = (batch, began, answer)
            self._kept.move_to_end(key)
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
            return answer

    def _holds(self, before: State, began: datetime, batch: State) -> bool:
        if batch["status"] != RUNNING:
            return before == batch
        same = before["status"] == RUNNING and before["owner"] == batch["owner"]
        return same and self._now() - began < self._while_running
