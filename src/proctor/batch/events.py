"""Notifies observers of finished items, after the commit."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future

from proctor.job import ItemFinished
from proctor.store import Writer


class CommitNotifier:
    """Collects finished items and passes them on after their commit, many at a time."""

    def __init__(self, watch: Callable[[ItemFinished], None], writer: Writer) -> None:
        self._watch = watch
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._pending: list[ItemFinished] = []
        self.idle = asyncio.Event()
        """Set while there is nothing left to pass on."""
        self.idle.set()

    def announce(self, item: ItemFinished) -> None:
        """Pass an item on as soon as its rows are committed."""
        self._pending.append(item)
        if self.idle.is_set():
            self.idle.clear()
            self._flush()

    def _flush(self) -> None:
        items, self._pending = self._pending, []
        committed = self._writer.flush()
        committed.add_done_callback(
            lambda future: call_on_loop(self._loop, lambda: self._deliver(future, items))
        )

    def _deliver(self, committed: "Future[None]", items: list[ItemFinished]) -> None:
        if committed.exception():
            # The commit failed: do not notify. The executor receives the error too.
            self._pending.clear()
            items = []
        try:
            for item in items:
                self._watch(item)
        except Exception:
            # The run continues without its observer: a closed terminal is no reason to stop.
            self._watch = _ignore
        if self._pending:
            self._flush()
        else:
            self.idle.set()


def _ignore(_: ItemFinished) -> None:
    return None


def call_on_loop(loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> None:
    """Call a function on a loop from another thread, unless the loop has ended."""
    try:
        loop.call_soon_threadsafe(function)
    except RuntimeError:
        pass
