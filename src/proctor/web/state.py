"""State of one server: context, access rules, and how detached processes are started."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING

from proctor.api.launch import Launcher
from proctor.cache import LruCache
from proctor.config import ServeToken
from proctor.context import ModelOptions, RunContext
from proctor.item import FINISHED, RUNNING
from proctor.models import ModelRouter
from proctor.session import DEFAULT_LOG_GROUP
from proctor.store import Store
from proctor.store.items import status_counts
from proctor.store.runs import last_change
from proctor.store.tables import BatchRow
from proctor.web.access import AccessControl, AuditLog

if TYPE_CHECKING:
    from proctor.config import EvaluationSection
    from proctor.stats.results import Results


MOST_RESULTS, MOST_RESULT_ITEMS, LEAST_RESULTS = 4, 1_000_000, 1
"""Runs whose results are in memory, and their items; some forty megabytes for a hundred thousand items."""
LARGE = 20_000
"""Finished items from which a request does not wait for results."""
REFRESH_SECONDS, REFRESH_SHARE = 20.0, 10
"""Results of a running run are at least so old before they are loaded again, and loading them takes at most
one part in so many of the time."""


@dataclass(frozen=True, slots=True)
class _Loaded:
    """The results of a run, and the state of the run they are of."""

    results: "Results"
    state: tuple[object, ...]
    ended: float
    seconds: float


class LoadedResults:
    """The finished items of runs as statistics read them, loaded once for all pages; thread-safe."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._cache: LruCache[str, _Loaded] = LruCache(
            MOST_RESULTS, most_weight=MOST_RESULT_ITEMS, least=LEAST_RESULTS
        )
        self._lock = Lock()
        self._loading: dict[str, Lock] = {}
        self._pending: dict[str, Future[None]] = {}

    def of(self, run_id: str) -> "Results":
        """The results of a run, by its whole ID. Loading a hundred thousand items takes seconds."""
        # numpy is loaded with the first results, not with the server.
        from proctor.stats.results import load_results

        # Once for each run, so that its pages do not load it several times.
        with self._lock:
            loading = self._loading.setdefault(run_id, Lock())
        with loading:
            state = self.state(run_id)
            cached = self._cached(run_id)
            if cached is None or cached.state != state:
                began = self._context.monotonic()
                results = load_results(self._context.store.read, [run_id], self._context.now())
                ended = self._context.monotonic()
                cached = _Loaded(results, state, ended, ended - began)
                with self._lock:
                    self._cache.put(run_id, cached, weight=len(results))
            return cached.results

    def within(self, batch: BatchRow, seconds: float) -> "tuple[Results | None, bool]":
        """The results of a run if they are there or come within some seconds, else the last ones, else None;
        and whether they are current. Those of a running run are current for a while.

        Results of a large run are loaded by a thread of their own, so that no request waits for them.
        """
        run_id = batch["runId"]
        # Counting the items of a large run takes a while: once.
        counts = status_counts(self._context.store.read, run_id)
        state, cached = self._state(batch, counts), self._cached(run_id)
        if cached is not None:
            age = self._context.monotonic() - cached.ended
            is_recent = age < max(REFRESH_SECONDS, REFRESH_SHARE * cached.seconds)
            if cached.state == state or (batch["status"] == RUNNING and is_recent):
                return cached.results, True
        if sum(counts[status] for status in FINISHED) <= LARGE:
            return self.of(run_id), True
        pending = self._start(run_id)
        wait([pending], timeout=seconds)
        if pending.done():
            # Raises what the thread raised.
            pending.result()
            cached = self._cached(run_id)
        return (cached.results if cached else None), pending.done()

    def _cached(self, run_id: str) -> _Loaded | None:
        with self._lock:
            return self._cache.get(run_id)

    def _start(self, run_id: str) -> "Future[None]":
        with self._lock:
            if run_id in self._pending:
                return self._pending[run_id]
            pending = self._pending[run_id] = Future()

        def load() -> None:
            try:
                self.of(run_id)
            except Exception as error:
                pending.set_exception(error)
            else:
                pending.set_result(None)
            finally:
                with self._lock:
                    del self._pending[run_id]

        # A daemon: the server does not wait for figures that nobody will see.
        Thread(target=load, daemon=True, name="load results").start()
        return pending

    def state(self, run_id: str) -> tuple[object, ...]:
        """A value that changes whenever the results may have changed, also by later evaluations."""
        read = self._context.store.read
        return self._state(read.batch(run_id, self._context.now()), status_counts(read, run_id))

    def _state(self, batch: BatchRow, counts: Mapping[str, int]) -> tuple[object, ...]:
        last = last_change(self._context.store.read)
        return batch["finishedAt"], *counts.values(), last["at"], last["end"]


@dataclass(frozen=True, kw_only=True)
class AppState:
    """One server over one store."""

    context: RunContext
    """Settings, store and clock; its first folder is the base of relative paths in typed plans."""
    command: Sequence[str]
    """Program and global options of a `proctor` on this store and home."""
    token: str = ""
    """The server's own token, with the role admin. Empty: every caller on this machine is accepted."""
    tokens: Sequence[ServeToken] = ()
    """Named tokens of a team."""
    root_path: str = ""
    """Path below which a proxy serves this server: `/proctor`."""
    proxies: Sequence[IPv4Network | IPv6Network] = ()
    """Addresses of proxies whose `X-Forwarded-` headers are believed."""
    hosts: frozenset[str] = frozenset({"localhost", "127.0.0.1", "::1"})
    """Host names accepted without a token, so that a page of another site whose name resolves to this
    address is rejected."""
    access_keys: Mapping[str, str] = field(default_factory=dict)
    """Secrets of callers that sign their requests, by access key ID."""
    log_group: str = DEFAULT_LOG_GROUP
    """Log group of sessions that arrive without one."""
    grpc_address: str = ""
    """Host and port of the OTLP receiver over gRPC. Empty: none."""
    grpc_tls: tuple[Path, Path] | None = None
    """Certificate and key of that receiver. None: not encrypted."""
    region: str = "us-east-1"
    account: str = "000000000000"
    """Region and account in resource names."""

    @cached_property
    def results(self) -> LoadedResults:
        """Results of runs."""
        return LoadedResults(self.context)

    @cached_property
    def access(self) -> AccessControl:
        """Tokens, roles and the audit log."""
        return AccessControl(
            token=self.token,
            tokens=self.tokens,
            access_keys=self.access_keys,
            audit=AuditLog(self.data_folder / "audit.jsonl", lambda: self.now()),
            monotonic=self.context.monotonic,
        )

    @property
    def store(self) -> Store:
        """The store of the server."""
        return self.context.store

    @property
    def now(self) -> Callable[[], datetime]:
        """The clock."""
        return self.context.now

    @property
    def home(self) -> Path:
        """Folder of the store and the worktrees."""
        return self.context.home

    @property
    def folder(self) -> Path:
        """Base of relative paths in typed plans."""
        return self.context.settings.folders[0]

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment with the providers of `proctor.toml`. Holds keys: never shown."""
        return self.context.settings.environment

    @property
    def evaluation(self) -> "EvaluationSection":
        """The section `[evaluation]` of the configuration."""
        return self.context.settings.evaluation

    @property
    def data_folder(self) -> Path:
        """The server's own folder: typed plans, logs of detached processes."""
        return self.home / "serve"

    @property
    def launcher(self) -> Launcher:
        """Starts processes that outlive the server."""
        return Launcher(
            command=self.command,
            environment={**self.environment, "PROCTOR_STORE": self.context.settings.store_url},
            folder=self.folder,
            logs=self.data_folder / "logs",
            is_encrypted=self.store.data_keys.is_encrypted,
        )

    def make_models(self) -> ModelRouter:
        """All reachable models; close it after use."""
        return self.context.models(ModelOptions(folders=self.context.settings.folders))
