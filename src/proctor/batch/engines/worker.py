"""The engine of one process: runs attempts with the models, gateway, rate limits and money of that process.

A worker reaches the store only through its host, whose arguments and answers can be pickled, and through the
rows it writes. It can therefore run in another process or on another machine.
"""

import asyncio
import random
import time
from collections import OrderedDict
from collections.abc import Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from proctor import secrets
from proctor.batch.attempt import Attempt, SharedTimers
from proctor.batch.engines.messages import AttemptEnd, Leftovers, RowBatch, RowBuffer, WorkerSpec
from proctor.batch.queue import WorkItem
from proctor.budget.allocation import BatchBudget, LedgerClient
from proctor.context import WorkerContext, evaluator_registry, make_models
from proctor.errors import AttemptError, ProctorError
from proctor.models.rate_limits import PoolState, RatePools
from proctor.processes import undisturbed
from proctor.runner import MergeRequest, MergeResult
from proctor.store import Drawn
from proctor.store.recorder import Rows
from proctor.store.tables import SessionRow

if TYPE_CHECKING:
    from proctor.evaluator import Evidence
    from proctor.workspace.starting_files import Files
    from proctor.workspace.transfer import FileCopy, RepositoryCopy

CACHED_RESOURCES = 64
"""Resources kept in memory: more than most plans have roles, each of some kilobytes."""
SHARING_SECONDS = 1.0
"""How often a worker shares its rate limits."""


class Host(Protocol):
    """What a worker may call on the driver."""

    async def write(self, batch: RowBatch) -> None:
        """Write rows, in order."""

    async def committed(self) -> None:
        """Wait until all rows so far are committed."""

    async def draw(self, holder: str, *, wanted_usd: float, least_usd: float) -> Drawn:
        """Draw money from the ledger."""

    async def give_back(self, holder: str, usd: float) -> None:
        """Return drawn money."""

    async def share_limits(self, holder: str, states: Sequence[PoolState]) -> Sequence[PoolState]:
        """Publish the rate limits of this worker; those of all others on the store."""

    async def load_session(
        self, session_id: str, traces: Sequence[str] = (), scenario: str = ""
    ) -> "Evidence":
        """A recorded session with its ground truth."""

    async def resource(self, digest: str) -> str:
        """The text of a resource of the run. Raises `NotFound`."""

    async def merge(self, request: MergeRequest) -> MergeResult:
        """Merge a session to its base branch, after all earlier requests."""

    async def ask_person(self, item_id: str, actor: str, prompt: str) -> str:
        """The answer of the person who plays an actor; empty: there is none."""

    async def copy_files(self, path: Path) -> "FileCopy":
        """A file or folder of the driver as data."""

    async def copy_repository(self, path: Path, base: str, have: Collection[str]) -> "RepositoryCopy":
        """What a session that starts from `base` needs of a repository, without the commits `have`."""

    async def starting_repository(self, files: "Files | None", digest: str) -> Path:
        """The repository of a task's starting files, on the driver's machine."""

    async def publish_branch(self, repository: Path, branch: str, sha: str, bundle: bytes) -> None:
        """Fetch a session's branch into a repository of the driver; empty `bundle`: it adds no commit."""


class CopiedFiles:
    """Copies of the driver's files and repositories on this machine, each fetched once."""

    def __init__(self, host: Host, home: Path, environment: Mapping[str, str]) -> None:
        """`environment` is that of git."""
        self._host = host
        self._home = home
        self._environment = environment
        self._locks: dict[Path, asyncio.Lock] = {}
        self._files: dict[Path, Path] = {}
        self._commits: dict[Path, set[str]] = {}
        """Of each repository: commits that its copy has, with all that they reach."""

    async def fetch(self, path: Path) -> Path:
        """A copy of a file or folder of the driver, on this machine."""
        from proctor.workspace.transfer import place_files

        async with self._lock(path):
            if path not in self._files:
                copy = await self._host.copy_files(path)
                self._files[path] = await asyncio.to_thread(place_files, copy, self._folder("files"))
        return self._files[path]

    async def repository(self, path: Path, base: str) -> Path:
        """A copy of a repository of the driver on this machine, up to date with the branch `base`."""
        from proctor.workspace.transfer import place_repository

        async with self._lock(path):
            commits = self._commits.setdefault(path, set())
            copy = await self._host.copy_repository(path, base, sorted(commits))
            place = await undisturbed(
                asyncio.to_thread(place_repository, copy, self._folder("repositories"), self._environment)
            )
            commits |= {copy.base_sha, *copy.references.values()}
        return place

    async def starting_repository(self, files: "Files | None", digest: str) -> Path:
        """The repository of a task's starting files, on the driver's machine."""
        return await self._host.starting_repository(files, digest)

    async def publish(self, repository: Path, branch: str, sha: str, bundle: bytes) -> None:
        """Fetch a session's branch into a repository of the driver."""
        await self._host.publish_branch(repository, branch, sha, bundle)

    async def clear_leftovers(self, leftovers: Leftovers) -> None:
        """Clear up after workers of the run that died on this machine.

        The changes of attempts that were cut off are committed and published first.
        """
        from proctor.workspace.folders import remove_folder
        from proctor.workspace.worktree import remove_home, session_folder

        for home in leftovers.homes:
            for session in leftovers.sessions:
                if (folder := session_folder(home, session["id"])).exists():
                    # What cannot be rescued is lost; the item runs again all the same.
                    with suppress(ProctorError, OSError):
                        await self._rescue(session, home)
                    await asyncio.to_thread(remove_folder, folder)
            await asyncio.to_thread(remove_home, home)

    async def _rescue(self, session: SessionRow, home: Path) -> None:
        from proctor.processes import end_attempt
        from proctor.workspace.commit import rescue
        from proctor.workspace.source_repository import open_source
        from proctor.workspace.transfer import bundle_branch, place_of_copy
        from proctor.workspace.worktree import session_folder

        folder, branch, base_sha = session_folder(home, session["id"]), session["branch"], session["baseSha"]
        await asyncio.to_thread(end_attempt, session["id"])
        path = place_of_copy(session["repo"], home / "repositories")
        source = await asyncio.to_thread(open_source, path, self._environment)
        tree = await asyncio.to_thread(rescue, folder, source, branch, base_sha)
        sha, bundle = await asyncio.to_thread(bundle_branch, tree)
        await self._host.publish_branch(source.root, branch, sha, bundle)

    def _lock(self, path: Path) -> asyncio.Lock:
        return self._locks.setdefault(path, asyncio.Lock())

    def _folder(self, name: str) -> Path:
        folder = self._home / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder


class Worker:
    """Runs the attempts of one batch in this process and event loop. Open it first, close it at the end."""

    def __init__(self, spec: WorkerSpec, context: WorkerContext, host: Host, rows: Rows) -> None:
        """`rows` receives what attempts record: the store's writer, or a buffer that is sent to the host."""
        self._spec = spec
        self._id_rng = random.Random()
        self._last_moment: datetime | None = None
        self._id_prefix = ""
        self._sharing: asyncio.Task[None] | None = None
        self._resources: OrderedDict[str, str] = OrderedDict()
        self.run_id, self.job, self.retry = spec.run_id, spec.job, spec.retry
        self.context, self.host, self.rows = context, host, rows
        self.rng = random.Random(spec.seed)
        self.budget = BatchBudget(
            LedgerClient(host, spec.holder, is_limited=spec.is_budgeted),
            run_id=spec.run_id,
            concurrency=spec.concurrency,
            rows=rows,
            now=context.now,
            commit=self.commit,
        )
        self.files = None if spec.shares_disk else CopiedFiles(host, context.home, context.git_environment)
        """None: this is the driver's machine."""
        self.find_runner = cache(context.find_runner)
        self.sandbox = context.settings.confinement
        self.redact = secrets.redactor(context.environment)
        self.timers = SharedTimers()
        self.stop_reason: AttemptError | None = None
        """Why running attempts are being cancelled; set before cancelling."""

    async def open(self) -> None:
        """Adopt the rate limits that others know, and share this worker's from now on; clear up after workers
        that died."""
        pools, holder = self.context.models.pools, self._spec.holder
        await adopt_limits(pools, self.host, holder)
        self._sharing = asyncio.create_task(share_limits(pools, self.host, holder))
        if self.files and self._spec.leftovers:
            await self.files.clear_leftovers(self._spec.leftovers)

    async def close(self) -> None:
        """Wait until no money is being drawn."""
        if self._sharing:
            self._sharing.cancel()
            await asyncio.wait([self._sharing])
        await self.budget.idle()

    async def return_money(self) -> None:
        """Return the money that no attempt has reserved, for other workers."""
        await self.budget.return_free()

    def run(self, work: WorkItem) -> Coroutine[Any, Any, AttemptEnd]:
        """Make one attempt at an item. Raises nothing but what ends the batch."""
        return Attempt(self, work).run()

    async def commit(self) -> None:
        """Wait until everything recorded so far is in the store."""
        if isinstance(self.rows, RowBuffer):
            await self.host.write(RowBatch(self.rows.take()))
        await self.host.committed()

    async def load_resource(self, digest: str) -> str:
        """The text of a resource of the run, by its digest. Raises `NotFound`."""
        content = self._resources.get(digest)
        if content is None:
            content = self._resources[digest] = await self.host.resource(digest)
            while len(self._resources) > CACHED_RESOURCES:
                self._resources.popitem(last=False)
        return content

    def new_session_id(self) -> str:
        """An ID that sorts by time."""
        # Not `secrets`, whose system call costs more than writing the session.
        moment = self.context.now()
        # The clock of a batch returns the same object within a millisecond.
        if moment is not self._last_moment:
            self._last_moment, self._id_prefix = moment, f"{int(moment.timestamp() * 1000):012x}"
        return f"{self._id_prefix}{self._id_rng.getrandbits(32):08x}"


async def adopt_limits(pools: RatePools, host: Host, holder: str) -> None:
    """Adopt what others on the store know, before this process sends its first request."""
    others = await host.share_limits(holder, ())
    names = {
        other.name
        for other in others
        if other.cut_seconds_ago is not None or other.held_seconds or pools.declared(other.name)
    }
    apply_shares(pools, [pools.pool(name).state for name in sorted(names)], others)


async def share_limits(pools: RatePools, host: Host, holder: str) -> None:
    """Share what is known of providers' rate limits with every other process on the store, until cancelled.

    Each publishes its demand and its rejected calls, and takes its share of the common limit: more demand
    gives a larger share, and the latest 429 counts for all.
    """
    while True:
        await asyncio.sleep(SHARING_SECONDS)
        if states := pools.states:
            apply_shares(pools, states, await host.share_limits(holder, states))


def apply_shares(pools: RatePools, states: Sequence[PoolState], others: Sequence[PoolState]) -> None:
    """Give each pool its share of the common limit."""
    for state in states:
        rest = [other for other in others if other.name == state.name]
        pool = pools.pool(state.name)
        pool.agree(*limit_and_share(pool.limit, state, rest))
        for other in rest:
            if other.held_seconds > 0:
                pool.hold(other.held_seconds)


def limit_and_share(limit: float, state: PoolState, rest: Sequence[PoolState]) -> tuple[float, float]:
    """The common limit of all processes, and the share of the one whose state this is."""
    demand = state.in_use + state.waiting + 1
    share = demand / (demand + sum(other.in_use + other.waiting + 1 for other in rest))
    limit = _latest_limit(limit, state, rest)
    # Processes above their share release it only when their calls end.
    unused = max(0.0, limit - sum(other.in_use for other in rest))
    return limit, min(share, unused / limit)


def _latest_limit(limit: float, state: PoolState, rest: Sequence[PoolState]) -> float:
    """The limit of the process whose call was rejected last: earlier knowledge is out of date."""
    rejected = [
        (-other.cut_seconds_ago, other.limit_of_all) for other in rest if other.cut_seconds_ago is not None
    ]
    if state.cut_seconds_ago is not None:
        rejected.append((-state.cut_seconds_ago, limit))
    return max(rejected)[1] if rejected else limit


def make_worker_context(spec: WorkerSpec) -> WorkerContext:
    """The dependencies of attempts in a process that has nothing but the spec; close its models."""
    if spec.settings is None:
        raise TypeError("the executor of this batch was given no settings for workers in other processes")
    models = make_models(spec.settings, spec.models, functions=spec.functions, limit_share=spec.limit_share)
    context = WorkerContext(
        settings=spec.settings,
        # With the keys that the plan names, so that they are redacted.
        environment={**spec.models.variables, **spec.settings.environment},
        models=models,
        now=lambda: datetime.now(UTC),
        monotonic=time.monotonic,
        functions=spec.functions,
    )
    if spec.evaluators is None:
        return context
    registry = evaluator_registry(spec.settings, spec.evaluators)
    find = replace(registry, objects=spec.functions.evaluators).finder(spec.evaluators.definitions)
    return replace(context, find_evaluator=find, evaluators=spec.evaluators)
