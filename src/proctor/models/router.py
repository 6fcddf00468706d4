"""Ask any model by name: find who has it, ask, price the call, and record it.

The one place where a model's name, its key, its price and its wire format meet. Keys come in with
the environment and go out in request headers; they are in no record.

Knows nothing of batches, budgets or the store.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from proctor.errors import ModelError, UsageError
from proctor.model import Answer, Model, Request
from proctor.models import anthropic, local, openai, recording, routes, scripted
from proctor.models.client import CallTarget, Client, Waited
from proctor.models.prices import FREE, Price, SpendingRequest, most_it_can_cost, output_limit, price_of
from proctor.models.providers import Endpoint, find_endpoint, is_loopback
from proctor.models.rate_limits import RatePools
from proctor.models.recording import RecordedTake, Recording, Replay, ReplayedTake, find_recording
from proctor.models.routes import (
    LitellmRoute,
    LocalRoute,
    RemoteRoute,
    ReplayRoute,
    Route,
    ScriptedRoute,
    recorded,
    replayed,
)
from proctor.models.scripted import find_script
from proctor.models.wire import WireFormat

WIRES: Mapping[str, WireFormat] = {"openai": openai, "anthropic": anthropic}


Tape = Recording | Replay
"""A file that traffic is kept in, or had again from."""


Take = RecordedTake | ReplayedTake


Say = Callable[[str], None]
"""Told what a reader of the session should know."""


def is_stand_in(model: str) -> bool:
    """Whether `model` only rehearses; a report that shows its results must say so."""
    return model.startswith((scripted.PREFIX, recording.PREFIX))


class ModelRouter:
    """Every model there is, for one batch. Use it on one event loop; close it at the end."""

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        folders: Iterable[Path] = (),
        prices: Mapping[str, Mapping[str, float]] | None = None,
        client: Client | None = None,
        pools: RatePools | None = None,
        keep_bodies: bool = False,
        tape: Tape | None = None,
        needs_prices: bool = False,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`folders` are searched for scripts; `prices` are the user's own; `keep_bodies` records
        what went over the wire word for word, which repeats what the messages say; a `tape` records
        all traffic or answers in its place, and is the caller's to close; with `needs_prices` a model
        that nobody can price cannot be asked."""
        self._environment = environment
        self.folders = tuple(folders)
        """Where scripts are looked for."""
        self._needs_prices = needs_prices
        self._declared = prices or {}
        self.pools = pools or RatePools()
        """How much may be asked of each provider and model at once."""
        self.client = client or Client(pools=pools)
        self.tape = tape
        self._keep_bodies = keep_bodies
        # Prices depend on the day; one batch has the prices of the day it began.
        self._priced_at = now()
        self._routes: dict[str, Route] = {}
        self._local = local.LocalServer(environment)
        self._said: set[tuple[str, str]] = set()
        self._unwatched = self.watched(None)

    async def answer(self, request: Request) -> Answer:
        """Answer, or raise a `ModelError`. When cancelled, close the connection."""
        return await self._unwatched.answer(request)

    def watched(
        self,
        waited: Waited | None,
        *,
        item_id: str = "",
        volatile: Sequence[str] = (),
        say: Say | None = None,
    ) -> Model:
        """The same models, for one attempt that wants to know how long it is made to wait.

        `waited` is called with the seconds before each pause begins, in time to put off a limit.
        On a tape its calls stand under `item_id`; `volatile` texts are its own folders and ids. `say`
        is told where it departs from a recording, and which parameters its provider does not take.
        """
        take = self.tape.take(item_id, "process", volatile) if self.tape else None
        return _AttemptModels(self, waited, take, say)

    def route(self, model: str) -> Route:
        """How `model` is asked, for someone at work; a name nobody has is a `ModelError`."""
        return self._found(model)

    async def reached(self, model: str) -> Route:
        """As `route`, with its server started where that is for us to do."""
        route = self._found(model)
        return await route.reached() if isinstance(route, LocalRoute) else route

    def check(self, model: str) -> None:
        """Raise `NotFound` or `UsageError` when `model` cannot be asked at all; ask nothing."""
        if isinstance(self.tape, Replay):
            return
        route = self._route(model)
        if self._needs_prices and route.price is None:
            raise UsageError(
                f"the price of {model} is not known, so the budget of the store cannot be held\n"
                f'Declare it in proctor.toml:  [prices."{model}"]  input = 1.0  output = 2.0  '
                "(USD per million tokens)."
            )

    def missing_key(self, model: str) -> str | None:
        """The variable that has to be set before `model` can be asked; None when nothing is missing."""
        if (
            is_stand_in(model)
            or model.startswith((routes.PREFIX, routes.PYTHON_PREFIX))
            or isinstance(self.tape, Replay)
        ):
            return None
        return find_endpoint(model, self._environment).missing_key

    def has_price(self, model: str) -> bool:
        """Whether calls of `model` can be priced, without which no budget can be kept."""
        return isinstance(self.tape, Replay) or self._route(model).price is not None

    def worst_case(self, request: Request) -> SpendingRequest:
        """What a call could cost at most; one that nobody can price, or make, could cost anything."""
        if isinstance(self.tape, Replay):
            return most_it_can_cost(request.model, "", None, FREE)
        route = self._found(request.model)
        limit = output_limit(request.parameters)
        if limit is None and route.endpoint and route.endpoint.wire == "anthropic":
            limit = anthropic.DEFAULT_MAX_TOKENS
        body = (request.messages, request.tools, request.parameters)
        return most_it_can_cost(request.model, body, limit, route.price)

    def get_ready(self) -> None:
        """Load what the models that were checked need to be asked. Call it before anything runs."""
        if any(route.endpoint for route in self._routes.values()):
            self.client.get_ready()

    def add_route(self, model: str, route: Route) -> None:
        """Answer this model by a route of the caller's."""
        self._routes[model] = route

    async def close(self) -> None:
        """Close all connections."""
        await self.client.close()
        await self._local.close()
        for route in self._routes.values():
            if isinstance(route, ReplayRoute):
                route.replay.close()

    def _found(self, model: str) -> Route:
        """As `_route`, for someone who is already at work and cannot be told to write it differently."""
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
            route = self._routes[model] = self._made(model)
        return route

    def _made(self, model: str) -> Route:
        if model.startswith(scripted.PREFIX):
            return ScriptedRoute(find_script(model, self.folders), self._price(model))
        if model.startswith(recording.PREFIX):
            return ReplayRoute(find_recording(model, self.folders), self._price(model))
        if model.startswith(routes.PREFIX):
            price = self._price(model) or self._price(model.removeprefix(routes.PREFIX))
            return LitellmRoute(routes.load(), price)
        if model.startswith(routes.PYTHON_PREFIX):
            return routes.CallableRoute(routes.imported_function(model))
        endpoint = find_endpoint(model, self._environment)
        declared = self._declared
        if model in declared:
            declared = {f"{endpoint.provider}/{endpoint.model}": declared[model]}
        name = f"{endpoint.provider}/{endpoint.model}"
        find_price = partial(price_of, name, declared, at=self._priced_at)
        if local.is_ours(model, self._environment):
            local.require()

            def at(url: str) -> RemoteRoute:
                return self._remote(replace(endpoint, base_url=url), find_price)

            return LocalRoute(self._local, at, find_price())
        return self._remote(endpoint, find_price)

    def _remote(self, endpoint: Endpoint, find_price: Callable[[], Price | None]) -> RemoteRoute:
        wire = WIRES[endpoint.wire]
        is_local = is_loopback(endpoint.base_url)
        target = CallTarget(endpoint, wire.url(endpoint), wire.headers(endpoint), is_local)
        return RemoteRoute(self.client, wire, target, find_price, self._keep_bodies)

    def _price(self, model: str) -> Price | None:
        return price_of(model, self._declared, at=self._priced_at)

    def _say_not_sent(self, request: Request, route: Route, say: Say) -> None:
        """Tell once of a batch which parameters a provider has no place for."""
        for name in route.not_sent(request):
            if (request.model, name) not in self._said:
                self._said.add((request.model, name))
                say(f"{request.model} was not sent `{name}`: {route.provider} does not take it")


class _AttemptModels:
    """The models as one attempt has them: it waits, is recorded and is told things by itself."""

    def __init__(
        self, models: ModelRouter, waited: Waited | None, take: Take | None, say: Say | None
    ) -> None:
        self._models = models
        self._waited = waited
        self._take = take
        self._say = say or _nothing

    async def answer(self, request: Request) -> Answer:
        if isinstance(self._take, ReplayedTake):
            return replayed(self._take, request, self._say)
        route = self._models._found(request.model)
        if request.parameters or request.seed is not None:
            self._models._say_not_sent(request, route, self._say)
        if self._take is None:
            return await route.answer(request, self._waited)
        return await recorded(self._take, request, route, self._waited)


def _nothing(_: str) -> None:
    return None
