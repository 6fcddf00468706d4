"""The engine of one process: runs attempts with the models, gateway, rate limits and money of that process.

A worker reaches the store only through its host, whose arguments and answers can be pickled, and through the
rows it writes. It can therefore run in another process or on another machine.
"""

import asyncio
import random
import time
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from proctor import secrets
from proctor.batch.attempt import Attempt, AttemptSupport
from proctor.batch.engines.messages import AttemptEnd, Leftovers, RowBatch, RowBuffer, WorkerSpec
from proctor.batch.queue import WorkItem
from proctor.budget.allocation import BatchBudget, LedgerClient
from proctor.context import AttemptContext, evaluator_registry, make_attempt_context, make_models
from proctor.errors import AttemptError, CostLimit, ProctorError
from proctor.item import SUCCESS, Item
from proctor.models import ModelRouter
from proctor.models.rate_limits import PoolState, RatePools
from proctor.processes import undisturbed
from proctor.runner import MergeRequest, MergeResult, Outcome
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
        place = place_of_copy(session["repo"], home / "repositories")
        source = await asyncio.to_thread(open_source, place, self._environment)
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

    def __init__(self, spec: WorkerSpec, context: AttemptContext, host: Host, rows: Rows) -> None:
        """`rows` receives what attempts record: the store's writer, or a buffer that is sent to the host."""
        self._spec = spec
        self._context = context
        self._host = host
        self._rows = rows
        self._rng = random.Random(spec.seed)
        self._id_rng = random.Random()
        self._last_moment: datetime | None = None
        self._id_prefix = ""
        ledger = LedgerClient(host, spec.holder, is_limited=spec.is_budgeted)
        self._budget = BatchBudget(
            ledger,
            run_id=spec.run_id,
            concurrency=spec.concurrency,
            rows=rows,
            now=context.now,
            commit=self._commit,
        )
        git_environment = secrets.visible(context.environment, named={"HOME"})
        self._files = None if spec.shares_disk else CopiedFiles(host, context.home, git_environment)
        self._support = AttemptSupport(
            run_id=spec.run_id,
            job=spec.job,
            context=context,
            rows=rows,
            find_runner=cache(context.find_runner),
            load_session=host.load_session,
            load_resource=self._load_resource,
            merge=host.merge,
            commit=self._commit,
            ask_person=host.ask_person,
            redact=secrets.redactor(context.environment),
            driver_files=self._files,
        )
        self._sharing: asyncio.Task[None] | None = None
        self._resources: OrderedDict[str, str] = OrderedDict()

    async def open(self) -> None:
        """Adopt the rate limits that others know, and share this worker's from now on; clear up after workers
        that died."""
        pools, holder = self._context.pools, self._spec.holder
        await adopt_limits(pools, self._host, holder)
        self._sharing = asyncio.create_task(share_limits(pools, self._host, holder))
        if self._files and self._spec.leftovers:
            await self._files.clear_leftovers(self._spec.leftovers)

    async def close(self) -> None:
        """Wait until no money is being drawn."""
        if self._sharing:
            self._sharing.cancel()
            await asyncio.wait([self._sharing])
        await self._budget.idle()

    async def return_money(self) -> None:
        """Return the money that no attempt has reserved, for other workers."""
        await self._budget.return_free()

    def stop(self, reason: AttemptError) -> None:
        """Set why attempts are about to be cancelled."""
        self._support.stop_reason = reason

    async def run(self, work: WorkItem) -> AttemptEnd:
        """Make one attempt at an item. Raises nothing but what ends the batch."""
        item, cap_usd = work.item, _cap_usd(work)
        if cap_usd is not None and cap_usd <= 0 and _halts_at_limit(item):
            # Its earlier attempts have spent everything it may spend.
            return AttemptEnd(work=work, halted_by="cost_limit")
        reservation = await self._budget.open(
            self._new_session_id(),
            work.id,
            kind=item.model or item.agent,
            cap_usd=cap_usd,
            asks_first=not item.agent,
        )
        if reservation is None:
            return AttemptEnd(work=work, halted_by=self._budget.short_of)
        work.attempts += 1
        attempt = Attempt(self._support, work, reservation)
        if cap_usd is not None and cap_usd <= 0:
            spent = f"earlier attempts have spent ${_spent_usd(work):.4f}, or may have"
            outcome = attempt.refuse(CostLimit(f"{spent}, of the ${item.settings['budget']:.4f} of the item"))
        else:
            outcome = await attempt.run()
        work.tries += 1
        # The driver has the next one.
        work.checkpoint = None
        return self._end(work, attempt, outcome)

    def _end(self, work: WorkItem, attempt: Attempt, outcome: Outcome) -> AttemptEnd:
        settings = work.item.settings
        delay = None
        if outcome.status != SUCCESS:
            delay = self._spec.retry.delay(
                status=outcome.status,
                reason=outcome.reason,
                tries=work.tries,
                retries=settings.get("retries", 0),
                retry_on=settings.get("retryOn", ("error", "timeout")),
                rng=self._rng,
            )
        halted_by = ""
        if outcome.reason == "cost_limit" and _halts_at_limit(work.item):
            halted_by = "cost_limit"
        elif outcome.reason == "halted":
            halted_by = self._budget.short_of
        waits = bool(halted_by) or delay is not None
        attempt.write_item(outcome, waits=waits)
        finished = None if waits else attempt.finished(outcome)
        return AttemptEnd(work=work, delay_seconds=delay, halted_by=halted_by, finished=finished)

    async def _commit(self) -> None:
        if isinstance(self._rows, RowBuffer):
            await self._host.write(RowBatch(self._rows.take()))
        await self._host.committed()

    async def _load_resource(self, digest: str) -> str:
        content = self._resources.get(digest)
        if content is None:
            content = self._resources[digest] = await self._host.resource(digest)
            while len(self._resources) > CACHED_RESOURCES:
                self._resources.popitem(last=False)
        return content

    def _new_session_id(self) -> str:
        # Sorts by time. Not `secrets`, whose system call costs more than writing the session.
        moment = self._context.now()
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


def make_worker_context(spec: WorkerSpec) -> tuple[AttemptContext, ModelRouter]:
    """The dependencies of attempts in a process that has nothing but the spec, and the models to close."""
    if spec.settings is None:
        raise TypeError("the executor of this batch was given no settings for workers in other processes")
    functions = spec.functions
    models = make_models(spec.settings, spec.models, functions=functions, limit_share=spec.limit_share)
    context = make_attempt_context(
        spec.settings,
        models,
        now=lambda: datetime.now(UTC),
        monotonic=time.monotonic,
        functions=functions,
    )
    if spec.evaluators:
        registry = replace(evaluator_registry(spec.settings, spec.evaluators), objects=functions.evaluators)
        find = registry.finder(spec.evaluators.definitions)
        context = replace(context, find_evaluator=find, evaluators=spec.evaluators)
    # With the keys that the plan names, so that they are redacted.
    environment = {**spec.models.variables, **context.environment}
    return replace(context, retry=spec.retry, environment=environment), models


def _halts_at_limit(item: Item) -> bool:
    """Whether an item that has spent what it may spend halts the batch and waits for more."""
    return bool(item.settings.get("haltAtLimit"))


def _cap_usd(work: WorkItem) -> float | None:
    """What the next attempt may spend: what earlier ones have left, also those of processes that died."""
    cap: float | None = work.item.settings.get("budget")
    return None if cap is None else max(0.0, cap - _spent_usd(work))


def _spent_usd(work: WorkItem) -> float:
    """What earlier attempts have spent or may have; records of older versions have only the former."""
    return max(work.cost_usd or 0.0, work.spent_usd)
