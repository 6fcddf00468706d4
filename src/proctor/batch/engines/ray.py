"""The nodes of a Ray cluster share a batch: one actor, and one worker, on each node.

The driver stays the only owner of queue, store, ledger, merges and people. The items of a node that dies run
again on others; nodes that join take part. When the driver dies, the actors end with everything that they had
started, and the run is resumed from the store.
"""

import asyncio
import math
import pickle
import socket
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from proctor import __version__
from proctor.batch.engines.messages import Finish, HostCall, Leftovers, SetConcurrency, WorkerSpec
from proctor.batch.engines.ray_node import DRIVER_SECONDS, NodeActor, NodeFacts
from proctor.batch.engines.remote import Link, RemoteEngine
from proctor.batch.engines.worker_process import HEADER
from proctor.batch.queue import WorkItem, WorkQueue
from proctor.context import EvaluatorSettings
from proctor.errors import UsageError, WorkerError
from proctor.item import read_resources
from proctor.json_values import as_map, texts_in
from proctor.lazy_import import load
from proctor.runner import MergeRequest
from proctor.secrets import machine_part, on_machine
from proctor.workspace.transfer import MAX_MODULES, FileCopy, RepositoryCopy, copy_code

if TYPE_CHECKING:
    from proctor.batch.host import DriverHost

RESTARTS = 3
"""Replacements for the worker of one node. More deaths have a cause that another worker would meet too."""
NODES_SECONDS = 1.0
"""How often the driver looks for nodes that have joined."""
START_SECONDS = 60.0
"""How long items wait for a node whose worker has not started, while others have."""
NO_NODE_SECONDS = 60.0
"""How long a run without any node waits for one to join."""
MOST_WAITING = 1000
"""Items that may wait for resources while others go ahead."""
ROUNDING = 1e-6
MOST_CONTENTS = 64
"""Files and repositories that stay in the object store, for nodes that need them next."""
FILE_METHODS = frozenset({"copy_files", "copy_repository", "starting_repository", "publish_branch"})
"""What the worker of a node may call on the driver besides what every worker may."""
ANSWER_SECONDS = 10.0
"""How long the head of a cluster may take to accept a connection."""
CLOSE_SECONDS = 30.0
"""How long an actor may take to remove its files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node of the cluster that can run items."""

    id: str
    name: str
    resources: Mapping[str, float]
    """As Ray names them: `CPU`, `GPU`, `memory` in bytes, and resources of the cluster's own."""

    @property
    def cpus(self) -> float:
        return self.resources.get("CPU", 0.0)


def alive_nodes() -> dict[str, Node]:
    """The nodes that can run items, by id. Blocks.

    A node without processors, such as many a head node, runs none.
    """
    ray = load("ray")
    return {
        entry["NodeID"]: Node(
            id=entry["NodeID"], name=entry["NodeManagerHostname"], resources=dict(entry["Resources"])
        )
        for entry in ray.nodes()
        if entry["Alive"] and entry["Resources"].get("CPU", 0) > 0
    }


class ActorChannel:
    """Messages between the driver and the worker of a node, relayed by the node's actor.

    One call for each direction is under way at a time, which keeps the messages in order.
    """

    def __init__(self, actor: Any, error: type[Exception]) -> None:
        """`error` is raised by calls of an actor that has died."""
        self._actor = actor
        self._error = error
        self._outgoing = bytearray()
        self._incoming = bytearray()
        self._messages = deque[object]()
        self._has_ended = False
        self._sending: asyncio.Task[None] | None = None

    def send(self, message: object) -> None:
        """Send a message; to a worker that has died, nothing is sent."""
        data = pickle.dumps(message, protocol=5)
        self._outgoing += HEADER.pack(len(data)) + data
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send())

    async def receive(self) -> object | None:
        """The next message; None when the worker has died."""
        while not self._messages:
            if self._has_ended:
                return None
            try:
                frames, self._has_ended = await self._actor.collect.remote()
            except self._error:
                return None
            self._incoming += frames
            self._read_messages()
        return self._messages.popleft()

    def close(self) -> None:
        """Send nothing more."""
        self._outgoing.clear()
        self._has_ended = True

    async def _send(self) -> None:
        while self._outgoing:
            frames = bytes(self._outgoing)
            self._outgoing.clear()
            try:
                await self._actor.deliver.remote(frames)
            except self._error:
                # `receive` notices that it has died.
                return

    def _read_messages(self) -> None:
        start = 0
        while len(self._incoming) >= start + HEADER.size:
            (size,) = HEADER.unpack_from(self._incoming, start)
            if len(self._incoming) < start + HEADER.size + size:
                break
            start += HEADER.size
            self._messages.append(pickle.loads(memoryview(self._incoming)[start : start + size]))
            start += size
        del self._incoming[:start]


@dataclass(slots=True, eq=False, kw_only=True)
class NodeLink(Link):
    """The worker of a node, as the driver sees it, and what its items use of the node's resources."""

    node: Node
    actor: Any
    paths: set[Path] = field(default_factory=set)
    """Repositories of the driver that its sessions have copies of."""
    _used: Counter[str] = field(default_factory=Counter)
    _gpus: dict[int, float] = field(default_factory=dict)
    """The used part of each GPU."""
    _gpus_of: dict[str, list[int]] = field(default_factory=dict)
    """By item."""

    def fits(self, needs: Mapping[str, float]) -> bool:
        """Whether the node has these resources free."""
        free = {name: self.node.resources.get(name, 0.0) - self._used[name] for name in needs}
        return all(free[name] >= amount - ROUNDING for name, amount in needs.items())

    def set_concurrency(self, concurrency: int) -> None:
        """Change how many attempts it makes in parallel."""
        self.concurrency = concurrency
        self.channel.send(SetConcurrency(concurrency))

    def give(self, items: Sequence[WorkItem]) -> None:
        """Send it items, and reserve what they need."""
        for work in items:
            if needs := needs_of(work):
                self._used.update(needs)
                work.variables = self._assign_gpus(work.id, needs.get("GPU", 0.0))
        Link.give(self, items)

    def take_back(self, item_id: str) -> WorkItem:
        """An item whose attempt there has ended; what it needed is free again."""
        work = Link.take_back(self, item_id)
        if needs := needs_of(work):
            self._used.subtract(needs)
            for gpu in self._gpus_of.pop(item_id, ()):
                self._gpus[gpu] -= min(1.0, needs["GPU"])
        return work

    def _assign_gpus(self, item_id: str, count: float) -> dict[str, str]:
        """Choose GPUs for an item; the variables by which its programs know them."""
        if not count:
            return {}
        share = min(1.0, count)
        all_gpus = range(int(self.node.resources.get("GPU", 0)))
        # A part of one: first of those that others use a part of.
        fitting = [gpu for gpu in all_gpus if self._gpus.get(gpu, 0.0) + share <= 1 + ROUNDING]
        fitting.sort(key=lambda gpu: -self._gpus.get(gpu, 0.0))
        chosen = fitting[: max(1, int(count))]
        for gpu in chosen:
            self._gpus[gpu] = self._gpus.get(gpu, 0.0) + share
        self._gpus_of[item_id] = chosen
        return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, chosen))}


def needs_of(work: WorkItem) -> Mapping[str, float]:
    """The resources that an item needs, by Ray's names; empty: nothing in particular."""
    declared = work.item.settings.get("resources")
    return read_resources(declared) if declared else {}


class RayEngine(RemoteEngine):
    """Runs the items of a batch on the nodes of a Ray cluster. Use once."""

    worker_noun = "worker on a node"
    shares_disk = False

    def __init__(
        self,
        address: str = "auto",
        *,
        note: Callable[[str], None] = lambda _: None,
        info: Callable[[str], None] = lambda _: None,
        most_nodes: int | None = None,
        driver_seconds: float = DRIVER_SECONDS,
    ) -> None:
        """`address`: of the cluster; `auto`: the one that this machine is part of; `local`: one on this
        machine alone, for this run. `note` and `info` receive messages for the user. At most `most_nodes` are
        used: each needs a call of every rate limit. Actors end when they have not heard of this process for
        `driver_seconds`."""
        super().__init__(note=note, info=info)
        self._address = address
        self._driver_seconds = driver_seconds
        self._most_nodes = most_nodes
        self._concurrency = 1
        self._weights: dict[NodeLink, float] = {}
        self._is_connected = False
        self._disconnects = False
        """Whether the connection is this engine's own; a program's own Ray connection stays."""
        self._starting: int | None = None
        """Nodes whose workers start first; None: not known yet."""
        self._waiting = list[WorkItem]()
        """Items for which no node has room now."""
        self._impossible_since = 0.0
        """When all waiting items could last be run by some node."""
        self._code: FileCopy | None = None
        self._contents: dict[str, asyncio.Task[Any]] = {}
        """References to what is in the object store, by digest."""

    def connect(self) -> None:
        """Connect to the cluster. Blocks. Raises `UsageError` when there is none."""
        self._check_address()
        try:
            ray = load("ray")
        except ImportError as error:
            raise UsageError(
                f"`--engine ray` needs Ray: {error}\nInstall it with: pip install 'proctor[ray]'"
            ) from error
        if not ray.is_initialized():
            self._initialize(ray)
        raylet = load("ray._raylet")
        if not self._is_connected and raylet.get_authentication_mode() != raylet.AuthenticationMode.TOKEN:
            self._note(
                "the Ray cluster has no token authentication: everyone who reaches its ports can run "
                "programs on its nodes (docs/cluster.md)"
            )
        self._is_connected = True

    def _initialize(self, ray: Any) -> None:
        options: dict[str, object] = {"include_dashboard": False} if self._address == "local" else {}
        try:
            ray.init(
                address=self._address,
                log_to_driver=False,
                logging_level="ERROR",
                namespace="proctor",
                **options,
            )
        except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            raise self._no_cluster(error) from error
        self._disconnects = True

    def _check_address(self) -> None:
        """Raise `UsageError` for an address that does not answer; Ray itself would wait for minutes."""
        host, _, port = self._address.rpartition(":")
        if not host or "://" in self._address:
            return
        try:
            socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS).close()
        except (OSError, ValueError) as error:
            raise self._no_cluster(error) from error

    def _no_cluster(self, error: Exception) -> UsageError:
        return UsageError(
            f"there is no Ray cluster at `{self._address}`: {error}\n"
            "Start one with `ray start --head`, or let the run start its own: --ray-address local"
        )

    def close(self) -> None:
        """Disconnect; a cluster of this run's own ends."""
        self._is_connected = False
        if self._disconnects:
            self._disconnects = False
            load("ray").shutdown()

    async def _start_workers(self, host: "DriverHost", spec: WorkerSpec) -> "set[asyncio.Task[None]]":
        self._concurrency = spec.concurrency
        await asyncio.to_thread(self.connect)
        if spec.evaluators:
            self._code = await asyncio.to_thread(self._copy_code, spec.evaluators)
        return {asyncio.create_task(self._serve_nodes(host, spec))}

    def _copy_code(self, evaluators: EvaluatorSettings) -> FileCopy | None:
        """The code of a plan's evaluators as data."""
        commands = [each for each in evaluators.lambdas.values() if not isinstance(each, str)]
        for definition in evaluators.definitions.values():
            commands.append(texts_in(as_map(definition, "evaluatorConfig", "codeBased"), "command"))
        code = copy_code(evaluators.folder, [word for command in commands for word in command])
        if code is None:
            self._note(
                f"{evaluators.folder} has more than {MAX_MODULES:,} Python files: nodes do not get them, so "
                "evaluators in Python are found there only if they are installed"
            )
        return code

    async def _serve_nodes(self, host: "DriverHost", spec: WorkerSpec) -> None:
        """Have a worker on every node until the run ends."""
        clock = asyncio.get_running_loop().time
        serving = dict[str, asyncio.Task[None]]()
        refused = dict[str, WorkerError]()
        last_node_at = clock()
        try:
            while True:
                nodes = await asyncio.to_thread(alive_nodes)
                nodes = {node_id: node for node_id, node in nodes.items() if node_id not in refused}
                self._check_placeable(nodes.values(), clock())
                if not self._ending:
                    for node in self._nodes_to_start(nodes, serving):
                        share = replace(spec, limit_share=1 / max(1, self._most_of(nodes)))
                        serving[node.id] = asyncio.create_task(self._serve(node, host, share))
                    if self._starting is None:
                        self._starting = len(serving) or None
                if serving:
                    last_node_at = clock()
                    await asyncio.wait(
                        serving.values(), timeout=NODES_SECONDS, return_when=asyncio.FIRST_COMPLETED
                    )
                elif self._ending:
                    return
                elif refused and not nodes:
                    raise list(refused.values())[-1]
                elif clock() - last_node_at > NO_NODE_SECONDS:
                    raise WorkerError(
                        "no node of the Ray cluster can run items\n"
                        "Items need nodes with processors (--num-cpus); then resume the run."
                    )
                else:
                    await asyncio.sleep(NODES_SECONDS)
                for node_id, task in list(serving.items()):
                    if task.done():
                        del serving[node_id]
                        self._starting = min(self._starting or 0, len(serving))
                        self._has_room.set()
                        try:
                            task.result()
                        except WorkerError as error:
                            # The others can do its work.
                            refused[node_id] = error
                            self._note(f"{str(error).splitlines()[0]}; the run goes on without this node")
        finally:
            if serving:
                self._stop_workers()
                await asyncio.wait(serving.values())

    def _most_of(self, nodes: Collection[str]) -> int:
        """How many of the nodes are used: not more than there are items or calls in parallel."""
        return min(self._most_nodes or len(nodes), len(nodes), self._concurrency)

    def _nodes_to_start(self, nodes: Mapping[str, Node], serving: Collection[str]) -> list[Node]:
        """The nodes that get a worker next: up to the most, and those that an item waits for."""
        others = [node for node_id, node in sorted(nodes.items()) if node_id not in serving]
        chosen = others[: max(0, self._most_of(nodes) - len(serving))]
        used = [nodes[node_id] for node_id in serving if node_id in nodes] + chosen
        for work in self._waiting:
            needs = needs_of(work)
            if needs and not any(has_resources(node, needs) for node in used):
                suitable = [node for node in others if has_resources(node, needs)][:1]
                chosen += suitable
                used += suitable
        return chosen

    async def _serve(self, node: Node, host: "DriverHost", spec: WorkerSpec) -> None:
        """Have a worker on a node until the run ends or the node dies."""
        errors = load("ray.exceptions")
        for _ in range(RESTARTS + 1):
            actor = self._make_actor(node, spec.run_id)
            try:
                facts: NodeFacts = await actor.start.remote()
                if facts.version != __version__:
                    raise WorkerError(
                        f"node {node.name} has Proctor {facts.version}, this machine {__version__}\n"
                        "Install the same version on every node."
                    )
                if await self._work(node, actor, facts, host, spec) or self._ending:
                    return
            except errors.RayError as error:
                if node.id not in await asyncio.to_thread(alive_nodes):
                    return
                raise WorkerError(
                    f"no worker can be started on node {node.name}: {error}\n"
                    f"Every node needs Proctor {__version__} and its Python packages."
                ) from error
            finally:
                await self._end_actor(actor)
            if node.id not in await asyncio.to_thread(alive_nodes):
                return
        raise WorkerError(
            f"the worker on node {node.name} died {RESTARTS + 1} times\n"
            "Look for what ends it, such as a lack of memory; then resume the run."
        )

    async def _feed(self, queue: WorkQueue) -> None:
        """Send items to nodes that have what they need. Items that wait for resources hold up no others."""
        await self._wait_for_first_nodes()
        fetching: asyncio.Task[list[WorkItem]] | None = None
        try:
            while True:
                self._waiting = self._place(self._waiting)
                most_room = min(self._room, max((link.room for link in self._links), default=0))
                if fetching is None and most_room and len(self._waiting) < MOST_WAITING:
                    share = math.ceil(queue.ready / len(self._links))
                    fetching = asyncio.create_task(queue.chunk(min(most_room, max(1, share))))
                self._has_room.clear()
                woken = asyncio.create_task(self._has_room.wait())
                await asyncio.wait({woken, fetching or woken}, return_when=asyncio.FIRST_COMPLETED)
                woken.cancel()
                if fetching and fetching.done():
                    items, fetching = fetching.result(), None
                    if not items:
                        break
                    self._waiting += items
        finally:
            if fetching:
                fetching.cancel()
        self._end_workers(Finish())

    async def _wait_for_first_nodes(self) -> None:
        """Wait until the nodes that are there at first have started, so that each gets its share."""
        with suppress(TimeoutError):
            async with asyncio.timeout(START_SECONDS):
                while self._starting is None or len(self._links) < self._starting:
                    self._has_room.clear()
                    await self._has_room.wait()

    @property
    def _room(self) -> int:
        """How many more items all nodes together can have."""
        return max(0, self._concurrency + sum(link.ahead - len(link.items) for link in self._links))

    def _place(self, items: Sequence[WorkItem]) -> list[WorkItem]:
        """Send items to nodes; those for which no node has room now."""
        chunks = dict[NodeLink, list[WorkItem]]()
        left = list[WorkItem]()
        room_of_all = self._room
        links = [link for link in self._links if isinstance(link, NodeLink)]
        room = {link: link.room for link in links}
        for work in items:
            needs = needs_of(work)
            # With resources, they decide, and not the node's share of the concurrency.
            fitting = [link for link in links if (link.fits(needs) if needs else room[link])]
            link = max(fitting, key=room.__getitem__, default=None) if room_of_all else None
            if link is None:
                left.append(work)
                continue
            room_of_all -= 1
            room[link] -= 1
            if needs:
                if room[link] < 0:
                    room[link] = 0
                    link.set_concurrency(link.concurrency + 1)
                # At once: the next item must know what is left.
                link.give([work])
            else:
                chunks.setdefault(link, []).append(work)
        for link, chunk in chunks.items():
            link.give(chunk)
        return left

    def _check_placeable(self, nodes: Iterable[Node], now: float) -> None:
        """Raise `WorkerError` when an item has waited long for a node with the resources that it needs."""
        impossible = [
            work
            for work in self._waiting
            if (needs := needs_of(work)) and not any(has_resources(node, needs) for node in nodes)
        ]
        if not impossible:
            self._impossible_since = now
        elif now - self._impossible_since > NO_NODE_SECONDS:
            needs = needs_of(impossible[0])
            raise WorkerError(
                f"no node of the Ray cluster has what item {impossible[0].id} needs: "
                f"{', '.join(f'{amount:g} {name}' for name, amount in needs.items())}\n"
                "Add such a node, or change `resources` in the plan; then resume the run."
            )

    async def _work(
        self, node: Node, actor: Any, facts: NodeFacts, host: "DriverHost", spec: WorkerSpec
    ) -> bool:
        """Follow the worker of a node to its end. False: it died."""
        clock = asyncio.get_running_loop().time
        channel = ActorChannel(actor, load("ray.exceptions").RayError)
        link = NodeLink(channel, 0, clock, _counted_at=clock(), node=node, actor=actor)
        self._weights[link] = node.cpus
        self._share_concurrency(starting=link)
        try:
            spec = await self._on_node(spec, link, facts)
            return await self._follow_worker(link, spec, host)
        finally:
            del self._weights[link]
            self._share_concurrency()

    async def _on_node(self, spec: WorkerSpec, link: NodeLink, facts: NodeFacts) -> WorkerSpec:
        """The same configuration with the paths and programs of a node."""
        settings, evaluators = spec.settings, spec.evaluators
        if settings is None:
            raise TypeError("the executor of this batch was given no settings for workers in other processes")
        settings = replace(
            settings,
            home=facts.home,
            folders=(),
            hidden_files=(),
            environment=on_machine(settings.environment, facts.environment),
            user_environment=on_machine(settings.user_environment, facts.environment),
        )
        sessions = tuple(self._lost_sessions)
        link.paths |= {Path(session["repo"]) for session in sessions if session["repo"]}
        if evaluators and self._code:
            reference = await self._stored(self._code)
            folder = await link.actor.place.remote(replace(self._code, content=b""), reference)
            evaluators = replace(evaluators, folder=folder)
        return replace(
            spec,
            settings=settings,
            evaluators=evaluators,
            shares_disk=False,
            leftovers=Leftovers(facts.leftovers, sessions) if facts.leftovers and sessions else None,
            concurrency=max(1, link.concurrency),
        )

    async def _call_host(self, link: Link, call: HostCall, host: "DriverHost") -> object:
        assert isinstance(link, NodeLink)
        if call.method == "merge":
            (request,) = cast("tuple[MergeRequest]", call.arguments)
            # The check runs here.
            environment = on_machine(request.environment, machine_part(host.context.environment))
            call = replace(call, arguments=(replace(request, environment=environment),))
        if call.method not in FILE_METHODS:
            return await super()._call_host(link, call, host)
        self._check_path(link, call)
        value: object = await getattr(host, call.method)(*call.arguments, **call.options)
        if isinstance(value, Path):
            link.paths.add(value)
        elif isinstance(value, RepositoryCopy):
            link.paths.add(Path(value.root))
        if isinstance(value, FileCopy | RepositoryCopy) and value.content:
            return replace(value, content=await self._send_content(link, value))
        return value

    @staticmethod
    def _check_path(link: NodeLink, call: HostCall) -> None:
        """Raise for a path that no item of the node names: a node may not read everything here."""
        path = call.arguments[0]
        if path is None or not isinstance(path, Path) or path in link.paths:
            return
        named = (value for work in link.items.values() for value in work.item.settings.values())
        if not any(isinstance(value, str) and Path(value) == path for value in named):
            raise PermissionError(f"no item on node {link.node.name} needs {path}")

    async def _send_content(self, link: NodeLink, copy: FileCopy | RepositoryCopy) -> Path:
        """Send content to a node through the object store, which has it once for all; its path there."""
        path: Path = await link.actor.store.remote(copy.digest, await self._stored(copy))
        return path

    async def _stored(self, copy: FileCopy | RepositoryCopy) -> Any:
        """The reference to content in the object store."""
        if copy.digest not in self._contents:
            storing = asyncio.create_task(asyncio.to_thread(load("ray").put, copy.content))
            self._contents[copy.digest] = storing
            if len(self._contents) > MOST_CONTENTS:
                del self._contents[next(iter(self._contents))]
        try:
            # Nodes that start together wait for the same task, which outlives each of them.
            return await asyncio.shield(self._contents[copy.digest])
        except Exception:
            self._contents.pop(copy.digest, None)
            raise

    def _make_actor(self, node: Node, run_id: str) -> Any:
        ray = load("ray")
        strategies = load("ray.util.scheduling_strategies")
        return (
            ray.remote(NodeActor)
            .options(
                num_cpus=0,
                max_restarts=0,
                max_task_retries=0,
                scheduling_strategy=strategies.NodeAffinitySchedulingStrategy(node.id, soft=False),
            )
            .remote(run_id, self._driver_seconds)
        )

    async def _end_actor(self, actor: Any) -> None:
        ray = load("ray")
        with suppress(ray.exceptions.RayError, TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await actor.close.remote()
        with suppress(ray.exceptions.RayError):
            ray.kill(actor)

    def _share_concurrency(self, starting: NodeLink | None = None) -> None:
        """Share the concurrency of the run between its nodes by their processors.

        The worker that is `starting` learns its share with its configuration."""
        links = list(self._weights)
        for link, share in zip(links, shares(self._concurrency, list(self._weights.values())), strict=True):
            if link.concurrency != share:
                if link is starting:
                    link.concurrency = share
                else:
                    link.set_concurrency(share)
        self._has_room.set()


def has_resources(node: Node, needs: Mapping[str, float]) -> bool:
    """Whether a node without items has these resources."""
    return all(node.resources.get(name, 0.0) >= amount - ROUNDING for name, amount in needs.items())


def shares(total: int, weights: Sequence[float]) -> list[int]:
    """Whole shares of a number in proportion to weights, each at least 1 while that lasts."""
    whole = sum(weights)
    least = [int(number < total) for number in range(len(weights))]
    rest = total - sum(least)
    exact = [rest * weight / whole for weight in weights]
    result = [first + int(share) for first, share in zip(least, exact, strict=True)]
    by_remainder = sorted(range(len(weights)), key=lambda number: int(exact[number]) - exact[number])
    for number in by_remainder[: total - sum(result)]:
        result[number] += 1
    return result
