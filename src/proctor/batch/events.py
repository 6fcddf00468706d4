"""Tell those who watch of items that ended, once that is committed.

Knows nothing of what a watcher does with it.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future

from proctor.job import ItemFinished
from proctor.store import Writer


class CommitNotifier:
    """Collects what ended and tells it after its commit, many at a time."""

    def __init__(self, watch: Callable[[ItemFinished], None], writer: Writer) -> None:
        self._watch = watch
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._waiting: list[ItemFinished] = []
        self.idle = asyncio.Event()
        """Set while there is nothing left to tell."""
        self.idle.set()

    def announce(self, end: ItemFinished) -> None:
        """Tell of this item as soon as it is written for good."""
        self._waiting.append(end)
        if self.idle.is_set():
            self.idle.clear()
            self._flush()

    def _flush(self) -> None:
        ends, self._waiting = self._waiting, []
        committed = self._writer.flush()
        committed.add_done_callback(lambda answer: tell(self._loop, lambda: self._deliver(answer, ends)))

    def _deliver(self, committed: "Future[None]", ends: list[ItemFinished]) -> None:
        if committed.exception():
            # It was not written, so it is not so. Whoever carries out the batch hears of it too.
            self._waiting.clear()
            ends = []
        try:
            for end in ends:
                self._watch(end)
        except Exception:
            # The work goes on unwatched: a terminal that was closed is no reason to stop it.
            self._watch = _nobody
        if self._waiting:
            self._flush()
        else:
            self.idle.set()


def _nobody(_: ItemFinished) -> None:
    return None


def tell(loop: asyncio.AbstractEventLoop, what: Callable[[], object]) -> None:
    """Call something on a loop from another thread, unless the loop has ended."""
    try:
        loop.call_soon_threadsafe(what)
    except RuntimeError:
        pass
