"""Results of runs as statistics read them, loaded once and shared by all that show them."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

from proctor.cache import LruCache
from proctor.context import RunContext
from proctor.formatting import whole
from proctor.item import FINISHED, RUNNING
from proctor.json_values import CamelJson
from proctor.store.items import status_counts
from proctor.store.runs import last_change
from proctor.store.tables import BatchRow

if TYPE_CHECKING:
    from proctor.stats.results import Results

MOST_RESULTS, MOST_RESULT_ITEMS, LEAST_RESULTS = 4, 1_000_000, 1
"""Runs whose results are in memory, and their items; some forty megabytes for a hundred thousand items."""
MOST_COUNTS = 200
LARGE = 20_000
"""Finished items from which a request does not wait for results."""
REFRESH_SECONDS, REFRESH_SHARE = 20.0, 10
"""Results of a running run are at least so old before they are loaded again, and loading them takes at most
one part in so many of the time."""
STOP_SECONDS = 5.0
"""How long a server that ends waits for each thread that computes results."""

RunIds = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Loaded:
    """The results of a run, and the state of the run they are of."""

    results: "Results"
    state: tuple[object, ...]
    ended: float
    seconds: float


@dataclass(slots=True)
class Reading(CamelJson):
    """Progress of reading the items of large runs."""

    read: int
    """Items that have been read."""
    total: int
    """Items to read."""

    def __str__(self) -> str:
        return f"{whole(self.read)} of {whole(self.total)} items read"


class LoadingStopped(Exception):
    """The server ends while results are loaded."""


class ItemCounts:
    """Items of runs by status; those of a large run that has ended are counted once, as long as its row stays
    the same: a million take a third of a second, and each request needs them."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._cache: LruCache[str, tuple[BatchRow, dict[str, int]]] = LruCache(MOST_COUNTS)
        self._lock = Lock()

    def of(self, batch: BatchRow) -> dict[str, int]:
        """The number of items in each status; 0 where there are none."""
        with self._lock:
            cached = self._cache.get(batch["runId"])
        if cached is not None and cached[0] == batch:
            return cached[1]
        counts = status_counts(self._context.store.read, batch["runId"])
        if batch["status"] != RUNNING and finished_count(counts) > LARGE:
            with self._lock:
                self._cache.put(batch["runId"], (batch, counts))
        return counts


class LoadedResults:
    """The finished items of runs as statistics read them, loaded once for all pages; thread-safe."""

    def __init__(self, context: RunContext, item_counts: ItemCounts) -> None:
        self._context = context
        self._item_counts = item_counts
        self._cache: LruCache[RunIds, _Loaded] = LruCache(
            MOST_RESULTS, most_weight=MOST_RESULT_ITEMS, least=LEAST_RESULTS
        )
        self._lock = Lock()
        self._loading: dict[RunIds, tuple[Lock, int]] = {}
        """A lock, and how many load these runs or wait for that."""
        self._reading: dict[RunIds, Reading] = {}
        self._pending: dict[RunIds, Future[None]] = {}
        self._threads: set[Thread] = set()
        self._is_closed = Event()

    def of(self, *run_ids: str) -> "Results":
        """The results of runs together, by their whole IDs. A hundred thousand items take a second."""
        # numpy is loaded with the first results, not with the server.
        from proctor.results.loading import load_results

        # Once for each run, so that its pages do not load it several times.
        with self._one_at_a_time(run_ids):
            batches, counts = self._current(run_ids)
            state = self._state(batches, counts)
            cached = self._cached(run_ids)
            if cached is None or cached.state != state:
                began = self._context.monotonic()
                reading = Reading(0, sum(map(finished_count, counts)))
                with self._lock:
                    self._reading[run_ids] = reading

                def add(items: int) -> None:
                    reading.read += items
                    if self._is_closed.is_set():
                        raise LoadingStopped

                try:
                    results = load_results(self._context.store.read, run_ids, self._context.now(), add)
                finally:
                    with self._lock:
                        del self._reading[run_ids]
                ended = self._context.monotonic()
                cached = _Loaded(results, state, ended, ended - began)
                with self._lock:
                    self._cache.put(run_ids, cached, weight=len(results))
            return cached.results

    def within(
        self, batches: Sequence[BatchRow], seconds: float, *, recent: bool = True
    ) -> "tuple[Results | None, bool]":
        """The results of runs together if they are there or come within some seconds, else the last ones,
        else None; and whether they are current. Those of a running run are current for a while, unless not
        `recent` and the run is small.

        Results of large runs are loaded by a thread of their own, so that no request waits for them.
        """
        run_ids = tuple(batch["runId"] for batch in batches)
        counts = [self._item_counts.of(batch) for batch in batches]
        state, cached = self._state(batches, counts), self._cached(run_ids)
        is_large = sum(map(finished_count, counts)) > LARGE
        if cached is not None:
            age = self._context.monotonic() - cached.ended
            is_recent = age < max(REFRESH_SECONDS, REFRESH_SHARE * cached.seconds)
            is_running = any(batch["status"] == RUNNING for batch in batches)
            if cached.state == state or (is_running and is_recent and (recent or is_large)):
                return cached.results, True
        if not is_large:
            return self.of(*run_ids), True
        pending = self._start(run_ids)
        wait([pending], timeout=seconds)
        if pending.done():
            # Raises what the thread raised.
            pending.result()
            cached = self._cached(run_ids)
        return (cached.results if cached else None), pending.done()

    def reading(self, *run_ids: str) -> Reading | None:
        """How far the items of runs have been read; None: they are not being read."""
        with self._lock:
            reading = self._reading.get(run_ids)
            return replace(reading) if reading else None

    def open(self) -> None:
        """Allow loading again after `close`."""
        self._is_closed.clear()

    def close(self) -> None:
        """Stop the threads that load results."""
        self._is_closed.set()
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join(STOP_SECONDS)

    @contextmanager
    def _one_at_a_time(self, run_ids: RunIds) -> Iterator[None]:
        """Waits for others that load these runs."""
        with self._lock:
            loading, users = self._loading.get(run_ids, (Lock(), 0))
            self._loading[run_ids] = loading, users + 1
        try:
            with loading:
                yield
        finally:
            with self._lock:
                loading, users = self._loading.pop(run_ids)
                if users > 1:
                    self._loading[run_ids] = loading, users - 1

    def _cached(self, run_ids: RunIds) -> _Loaded | None:
        with self._lock:
            return self._cache.get(run_ids)

    def _start(self, run_ids: RunIds) -> "Future[None]":
        with self._lock:
            if run_ids in self._pending:
                return self._pending[run_ids]
            pending = self._pending[run_ids] = Future()

        def load() -> None:
            try:
                # What draws them takes a fifth of a second to import: before anybody waits for it.
                import proctor.report.render  # noqa: F401

                self.of(*run_ids)
            except Exception as error:
                pending.set_exception(error)
            else:
                pending.set_result(None)
            finally:
                with self._lock:
                    del self._pending[run_ids]
                    self._threads.discard(thread)

        # A daemon: a server that ends waits for a while, but not for a slow disk.
        thread = Thread(target=load, daemon=True, name="load results")
        with self._lock:
            self._threads.add(thread)
        thread.start()
        return pending

    def _current(self, run_ids: RunIds) -> tuple[list[BatchRow], list[dict[str, int]]]:
        read, now = self._context.store.read, self._context.now()
        batches = [read.batch(run_id, now) for run_id in run_ids]
        return batches, [self._item_counts.of(batch) for batch in batches]

    def _state(self, batches: Sequence[BatchRow], counts: Sequence[Mapping[str, int]]) -> tuple[object, ...]:
        """A value that changes whenever the results may have changed, also by later evaluations."""
        last = last_change(self._context.store.read)
        of_runs = [
            (batch["runId"], batch["finishedAt"], *numbers.values())
            for batch, numbers in zip(batches, counts, strict=True)
        ]
        return *of_runs, last["at"], last["end"]


def finished_count(counts: Mapping[str, int]) -> int:
    """The number of finished items, by the number in each status."""
    return sum(counts[status] for status in FINISHED)
