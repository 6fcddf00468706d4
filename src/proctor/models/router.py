"""Call any model by name: find its provider, send the request, price and record the call.

Keys come in with the environment and leave in request headers only; no record contains one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proctor.errors import ModelError, UsageError
from proctor.model import Answer, Model, Request
from proctor.models import routes, scripted
from proctor.models.prices import FREE, Price, SpendingRequest, price_of
from proctor.models.rate_limits import RatePools
from proctor.models.routes import (
    LitellmRoute,
    LocalRoute,
    RemoteRoute,
    ReplayRoute,
    Route,
    ScriptedRoute,
    answer_limit,
    answer_recorded,
    answer_replayed,
    request_body,
)
from proctor.models.scripted import ScriptedModel, find_script
from proctor.secrets import is_loopback

if TYPE_CHECKING:
    from proctor.agent import Access
    from proctor.models.client import Client, Waited
    from proctor.models.gateway.access import Caller
    from proctor.models.gateway.server import Gateway
    from proctor.models.key_filter import KeyFilter
    from proctor.models.local import LocalServer
    from proctor.models.providers import Endpoint, WireFormat
    from proctor.models.recording import RecordedTake, RecordingOrReplay, ReplayedTake

    Take = RecordedTake | ReplayedTake

MOCK_PREFIXES = (scripted.PREFIX, "replay/")
"""Models that are scripted or replayed; reports mark their results."""
AddNote = Callable[[str], None]
"""Called with a note for the session."""


def is_in_process(model: str) -> bool:
    """Whether `model` is a function, a script or a recording: only an item itself can name such a model."""
    return model.startswith((*MOCK_PREFIXES, routes.PYTHON_PREFIX))


def short_names(model: str) -> tuple[str, ...]:
    """A model's name, and the same without its provider and without its vendor, as agents write it."""
    return tuple(dict.fromkeys((model, model.partition("/")[2] or model, model.rpartition("/")[2])))


def is_mock(model: str) -> bool:
    """Whether `model` is a mock (scripted or replayed); reports mark its results."""
    return model.startswith(MOCK_PREFIXES)


class ModelRouter:
    """All models, for one batch. Use it on one event loop; close it at the end."""

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        folders: Iterable[Path] = (),
        scripts: Mapping[str, ScriptedModel] | None = None,
        prices: Mapping[str, Mapping[str, float]] | None = None,
        agent_models: Sequence[str] | None = (),
        client: Client | None = None,
        pools: RatePools | None = None,
        keep_bodies: bool = False,
        recording: RecordingOrReplay | None = None,
        needs_prices: bool = False,
        service: str = "",
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`scripts` are scripted models by name, `folders` are searched for others; `prices` are declared
        prices; `agent_models` are what agents without a model may request from the gateway, None: every model
        of a known provider; `keep_bodies` records the bodies of requests and answers; `recording` records or
        replays all traffic; the caller closes it. With `needs_prices`, `check` rejects models without a known
        price. `service` is `batch` to send calls as batches of the provider, except those of agents.
        """
        self._environment = environment
        self.folders = tuple(folders)
        """Searched for scripts."""
        self._scripts = scripts or {}
        self._needs_prices = needs_prices
        self._service = service
        self.batches_folder: Path | None = None
        """Keeps what was sent as batches, until it is answered. None: the run has not begun."""
        self._declared = prices or {}
        self.agent_models = agent_models
        """What agents without a model of their own may request; None: every model of a known provider."""
        self.pools = pools or RatePools()
        """Limits on concurrent calls, by provider and model."""
        self._client = client
        self._given_pools = pools
        self.recording = recording
        self._keep_bodies = keep_bodies
        # Prices depend on the date; a batch uses those of its start.
        self._priced_at = now()
        self._routes: dict[str, Route] = {}
        self._local: LocalServer | None = None
        self._filters: dict[str | None, KeyFilter] = {}
        """By the key; None: of routes whose keys a library has."""
        self._reported: set[tuple[str, str]] = set()
        self._plain = self.for_attempt(None)
        self.gateway = LazyGateway(self)
        """The same models over HTTP, for agents."""

    @property
    def client(self) -> Client:
        """The HTTP client, made when it is first needed."""
        if self._client is None:
            from proctor.models.client import Client

            self._client = Client(pools=self._given_pools, environment=self._environment)
        return self._client

    @property
    def is_replayed(self) -> bool:
        """Whether a recording answers in place of the models."""
        return self.recording is not None and self.recording.replays

    def is_mock(self, model: str) -> bool:
        """Whether calls to `model` are answered by a mock.

        A recording of real models says what these said; one of scripted models is a mock, whatever the name.
        """
        replay = self.recording if self.recording is not None and self.recording.replays is True else None
        if replay is None and model.startswith("replay/"):
            route = self._routes.get(model)
            replay = route.replay if isinstance(route, ReplayRoute) else None
        if replay is None:
            return is_mock(model)
        return (is_mock(model) and not model.startswith("replay/")) or any(map(is_mock, replay.models))

    @property
    def are_on_this_machine(self) -> bool:
        """Whether all checked models run on this machine, so that its processor is the limit."""
        return bool(self._routes) and all(
            isinstance(route, ScriptedRoute) or (isinstance(route, RemoteRoute) and route.is_local)
            for route in self._routes.values()
        )

    @property
    def scripts(self) -> dict[str, ScriptedModel]:
        """The scripted models that were checked, by name."""
        return {
            name: route.script for name, route in self._routes.items() if isinstance(route, ScriptedRoute)
        }

    @property
    def lowest_limit(self) -> int | None:
        """The lowest declared limit on concurrent calls to a model that was checked; None: there is none."""
        endpoints = [route.endpoint for route in self._routes.values() if route.endpoint]
        limits = [self.pools.declared(f"{each.provider}/{each.model}") for each in endpoints]
        return min((limit for limit in limits if limit), default=None)

    @property
    def single_process_reason(self) -> str:
        """Why one process must make all calls to the models that were checked; empty: several can."""
        if self.recording is not None:
            return "recordings number the calls of one process"
        for route in self._routes.values():
            if isinstance(route, ReplayRoute):
                return "a recording answers the calls of one process"
            if isinstance(route, LocalRoute):
                return "each would start its own server of the local model"
        if self._service:
            return "batches collect the calls of one process"
        return ""

    def answer(self, request: Request) -> Coroutine[Any, Any, Answer]:
        """Answer, or raise a `ModelError`. When cancelled, close the connection."""
        return self._plain.answer(request)

    def for_attempt(
        self,
        waited: Waited | None,
        *,
        item_id: str = "",
        volatile: Sequence[str] = (),
        note: AddNote | None = None,
    ) -> Model:
        """The same models, for one attempt.

        `waited` is called with the seconds before each pause, so that a time limit can be extended. Recorded
        calls are filed under `item_id`; `volatile` are the folders and ids of this attempt. `note` receives
        recording mismatches and parameters that the provider does not support.
        """
        take = self.recording.take(item_id, "process", volatile) if self.recording else None
        return _AttemptModel(self, waited, take, note, set() if item_id else self._reported, item_id)

    def route(self, model: str) -> Route:
        """The route of `model`; a `ModelError` when there is none."""
        return self._route_of_request(model)

    async def reached(self, model: str) -> Route:
        """Like `route`, with the local server started where it needs one."""
        route = self._route_of_request(model)
        return await route.reached() if isinstance(route, LocalRoute) else route

    def requested(self, name: str) -> str | None:
        """The model that an agent may request by this name, when its item has none; None: it may not.

        Models that run in this process, or start a program here, have to be named by the user.
        """
        if self.agent_models is not None:
            names = (each for each in self.agent_models if name in short_names(each))
            return next((each for each in names if not is_in_process(each)), None)
        from proctor.models.providers import is_of_known_provider

        return name if is_of_known_provider(name) else None

    def check(self, model: str) -> None:
        """Raise `NotFound` or `UsageError` when `model` cannot be called; makes no request."""
        if self.is_replayed:
            return
        route = self._route(model)
        if self._needs_prices and route.price is None:
            raise UsageError(
                f"the price of {model} is unknown, so the store-wide budget cannot be enforced\n"
                f'Declare it in proctor.toml:  [prices."{model}"]  input = 1.0  output = 2.0  '
                "(USD per million tokens)."
            )

    def keys_of(self, route: Route) -> KeyFilter:
        """Removes the keys that calls by this route are made with."""
        from proctor.models.key_filter import KeyFilter, library_keys

        key = route.endpoint.key if route.endpoint else None
        if key not in self._filters:
            self._filters[key] = KeyFilter(library_keys(self._environment) if key is None else [key])
        return self._filters[key]

    def check_request(self, model: str) -> None:
        """Raise `UsageError` when agents cannot be allowed to request `model`."""
        if is_in_process(model):
            raise UsageError(f"`{model}` cannot be requested by an agent\nSet it as `model` of the item.")
        self.check(model)

    def missing_key(self, model: str) -> str | None:
        """The environment variable to set before `model` can be called; None: nothing is missing."""
        keyless = (routes.PREFIX, routes.PYTHON_PREFIX)
        if is_mock(model) or model.startswith(keyless) or self.is_replayed:
            return None
        from proctor.models.providers import find_endpoint

        return find_endpoint(model, self._environment).missing_key

    def has_price(self, model: str) -> bool:
        """Whether the price of `model` is known, which a budget requires."""
        return self.is_replayed or self._route(model).price is not None

    def expected_price(self, model: str) -> Price | None:
        """The price that most calls to `model` will have; None: unknown."""
        route = self.route(model)
        return route.expected_price if isinstance(route, RemoteRoute) else route.price

    def worst_case(self, request: Request) -> SpendingRequest:
        """Worst-case cost of a call; unknown when the model has no price or no route."""
        # Loaded here: only a run with a budget needs it.
        from proctor.models.worst_case import worst_case_of

        if self.is_replayed:
            return worst_case_of(request.model, {}, None, FREE)
        route = self._route_of_request(request.model)
        limit = answer_limit(request, route)
        body = request_body(request, route)
        price = route.price_of(request) if isinstance(route, RemoteRoute) else route.price
        return worst_case_of(request.model, body, limit, price, endpoint=route.endpoint)

    def get_ready(self) -> None:
        """Load what the checked models need, before anything runs."""
        if any(route.endpoint for route in self._routes.values()):
            self.client.get_ready()

    def add_route(self, model: str, route: Route) -> None:
        """Answer this model by a route of the caller's."""
        self._routes[model] = route

    async def cancel_batches(self) -> list[str]:
        """Cancel at the providers what was sent as batches and has not ended; what went wrong."""
        if not (self._service and self.batches_folder and self.batches_folder.is_dir()):
            return []
        from proctor.models.provider_batches import BatchRoute, models_in

        routes = map(self.route, sorted(models_in(self.batches_folder)))
        return [problem for each in routes if isinstance(each, BatchRoute) for problem in await each.cancel()]

    async def close(self) -> None:
        """Close the gateway and all connections."""
        await self.gateway.close()
        for route in self._routes.values():
            if isinstance(route, RemoteRoute):
                await route.close()
        if self._client is not None:
            await self._client.close()
        if self._local is not None:
            await self._local.close()
        self.close_files()

    def close_files(self) -> None:
        """Close the recordings that models answer from; enough when no model was called."""
        for route in self._routes.values():
            if isinstance(route, ReplayRoute):
                route.replay.close()

    def _route_of_request(self, model: str) -> Route:
        """Like `_route`, but an unknown name is a `ModelError`: the batch is already running."""
        route = self._routes.get(model)
        if route is not None:
            return route
        try:
            return self._route(model)
        except UsageError as cause:
            raise ModelError(str(cause), reason="bad_request") from cause

    def _route(self, model: str) -> Route:
        route = self._routes.get(model)
        if route is None:
            route = self._routes[model] = self._create_route(model)
        return route

    def _create_route(self, model: str) -> Route:
        if model.startswith(scripted.PREFIX):
            script = self._scripts.get(model) or find_script(model, self.folders)
            return ScriptedRoute(script, self._price(model))
        # What a kind of route needs is loaded with the first of it.
        if model.startswith("replay/"):
            from proctor.models.recording import find_recording

            return ReplayRoute(find_recording(model, self.folders), self._price(model))
        if model.startswith(routes.PREFIX):
            price = self._price(model) or self._price(model.removeprefix(routes.PREFIX))
            return LitellmRoute(routes.load_litellm(), price)
        if model.startswith(routes.PYTHON_PREFIX):
            return routes.CallableRoute(routes.imported_function(model))
        from proctor.models import local
        from proctor.models.providers import find_endpoint

        endpoint = find_endpoint(model, self._environment)
        declared = self._declared
        if model in declared:
            declared = {f"{endpoint.provider}/{endpoint.model}": declared[model]}
        name = f"{endpoint.provider}/{endpoint.model}"
        find_price = partial(price_of, name, declared, at=self._priced_at)
        if local.is_ours(model, self._environment):
            local.require(self._environment, self.pools.notify)

            def at(url: str) -> RemoteRoute:
                return self._remote(replace(endpoint, base_url=url), find_price)

            if self._local is None:
                self._local = local.LocalServer(self._environment)
            return LocalRoute(self._local, at, find_price())
        return self._remote(endpoint, find_price)

    def _remote(self, endpoint: Endpoint, find_price: Callable[[], Price | None]) -> RemoteRoute:
        from proctor.models import anthropic, openai
        from proctor.models.client import CallTarget

        wires: Mapping[str, WireFormat] = {"openai": openai, "anthropic": anthropic}
        wire = wires[endpoint.wire]
        is_local = is_loopback(endpoint.base_url)
        target = CallTarget(endpoint, wire.url(endpoint), wire.headers(endpoint), is_local)
        known = (self.client, wire, target, find_price, self._keep_bodies)
        if not self._service:
            return RemoteRoute(*known)
        # Loaded here: few runs need it.
        from proctor.models.provider_batches import INTERFACES, BatchRoute

        if endpoint.provider not in INTERFACES:
            raise UsageError(
                f"`service: batch`: {endpoint.provider} has no batches that Proctor can send\n"
                f"Remove `service`, or choose a model of {' or '.join(INTERFACES)}."
            )
        return BatchRoute(*known, folder=lambda: self.batches_folder)

    def _price(self, model: str) -> Price | None:
        return price_of(model, self._declared, at=self._priced_at)


class _AttemptModel:
    """The models as one attempt uses them, with its own waiting, recording and notes."""

    def __init__(
        self,
        models: ModelRouter,
        waited: Waited | None,
        take: Take | None,
        note: AddNote | None,
        reported: set[tuple[str, str]],
        item_id: str,
    ) -> None:
        """`reported` are models with parameters that were noted already."""
        self._item_id = item_id
        self._models = models
        self._waited = waited
        self._take = take
        self._note: AddNote = note or (lambda _: None)
        self._reported = reported

    def answer(self, request: Request) -> Coroutine[Any, Any, Answer]:
        if self._take is not None and self._take.replays is True:
            return answer_replayed(self._take, request, self._note)
        route = self._models._route_of_request(request.model)
        if request.parameters or request.seed is not None:
            self._report_not_sent(request, route)
        if self._take is None:
            if isinstance(route, RemoteRoute):
                return route.answer_item(self._item_id, request, self._waited)
            return route.answer(request, self._waited)
        return answer_recorded(self._take, request, route, self._waited)

    def _report_not_sent(self, request: Request, route: Route) -> None:
        """Note once per attempt which parameters a provider does not support."""
        for name in route.not_sent(request):
            if (request.model, name) not in self._reported:
                self._reported.add((request.model, name))
                self._note(f"{request.model} was not sent `{name}`: {route.provider} does not take it")


class LazyGateway:
    """The gateway of one run, started when the first agent needs it. Use it on one event loop; close it."""

    def __init__(self, models: ModelRouter) -> None:
        self._models = models
        self._gateway: Gateway | None = None
        self._starting = asyncio.Lock()

    async def open(self, caller: Caller) -> Access:
        """Give an attempt access to models over HTTP."""
        async with self._starting:
            if self._gateway is None:
                # Loaded here: it takes a third of a second that few runs need.
                from proctor.models.gateway.server import Gateway

                gateway = Gateway(self._models)
                await gateway.start()
                self._gateway = gateway
        return self._gateway.open(caller)

    def shut(self, token: str) -> None:
        """Revoke the access. When this returns, all calls of the attempt have been recorded."""
        if self._gateway is not None:
            self._gateway.shut(token)

    async def close(self) -> None:
        """Revoke every access and stop listening."""
        if self._gateway is not None:
            await self._gateway.close()
