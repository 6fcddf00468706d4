"""How models are called: the router, its local server and gateway, and parts of a call on their own."""

import asyncio
import contextlib
import json
import socket
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from proctor.errors import ModelError, ProctorError, UsageError
from proctor.model import Answer, Request, ToolRequest, WireAnswer
from proctor.models import ModelRouter, routes, worst_case
from proctor.models.gateway import call as gateway_calls
from proctor.models.gateway.access import Caller
from proctor.models.gateway.server import Gateway
from proctor.models.prices import FREE, Price, price_of
from proctor.models.rate_limits import RatePools
from proctor.models.recording import Exchange, _around
from proctor.session import ModelCall, Usage

REQUEST = Request(model="m", messages=[{"role": "user", "content": "Hi"}])


def price(dollars: float) -> Price:
    return price_of("m", {"m": {"input": dollars, "output": dollars}}, at=datetime.now(UTC))


# --- Routers ---


@pytest.mark.parametrize(
    ("models", "here"),
    [
        ([], False),
        (["scripted/ok"], True),
        (["scripted/ok", "near/a"], True),
        (["scripted/ok", "far/a"], False),
        (["python/json:dumps"], False),
    ],
)
def test_whether_all_models_answer_on_this_machine(models, here):
    router = ModelRouter({"NEAR_BASE_URL": "http://127.0.0.1:1", "FAR_BASE_URL": "http://far.test"})
    for model in models:
        router.route(model)

    assert router.are_on_this_machine is here


def test_the_lowest_limit_is_of_the_models_that_were_checked():
    pools = RatePools(most={"near": 9, "far/a": 4, "other": 1})
    environment = {
        "NEAR_BASE_URL": "http://127.0.0.1:1",
        "FAR_BASE_URL": "http://far.test",
        "FREE_BASE_URL": "http://127.0.0.1:2",
    }
    router = ModelRouter(environment, pools=pools)
    assert router.lowest_limit is None
    for model, limit in (("scripted/ok", None), ("free/a", None), ("near/a", 9), ("far/a", 4)):
        router.route(model)
        assert router.lowest_limit == limit


def test_a_store_with_a_budget_refuses_a_model_without_a_price():
    environment = {"ACME_BASE_URL": "http://127.0.0.1:1"}
    with pytest.raises(UsageError, match="the price of acme/x is unknown"):
        ModelRouter(environment, needs_prices=True).check("acme/x")
    ModelRouter(environment).check("acme/x")
    ModelRouter(environment, needs_prices=True, prices={"acme/x": {"input": 1, "output": 2}}).check("acme/x")


async def test_the_route_of_a_local_model_is_made_once_and_with_its_price():
    made = list[str]()

    class Remote:
        def __init__(self, url: str) -> None:
            made.append(url)

        async def answer(self, request: Request, waited: object) -> tuple[Request, object]:
            return request, waited

    class Server:
        async def url(self) -> str:
            return "http://here/v1"

    route = routes.LocalRoute(Server(), Remote, price(1))
    router = ModelRouter({})
    router.add_route("m", route)
    router.add_route("n", routes.CallableRoute(str))

    assert await route.answer(REQUEST, len) == (REQUEST, len)
    assert await router.reached("m") is await route.reached()
    assert (await router.reached("n")).provider == "python"
    assert made == ["http://here/v1"]
    assert route.price.source == price(1).source


async def test_the_gateway_also_answers_on_a_socket_that_it_is_given():
    gateway = Gateway(ModelRouter({}))
    await gateway.start()
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/health"
    try:
        async with gateway.serve(listener), aiohttp.ClientSession() as session, session.get(url) as response:
            assert (await response.json())["service"] == "proctor gateway"
        assert listener.fileno() == -1
    finally:
        await gateway.close()
        await gateway.close()


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (ProctorError("out of order"), 500, "out of order"),
        (ZeroDivisionError("secret"), 500, "the gateway failed: ZeroDivisionError"),
    ],
)
async def test_a_fault_of_the_gateway_ends_one_call_in_the_format_of_its_client(error, status, message):
    gateway = Gateway(ModelRouter({}))
    await gateway.start()

    async def answer(*_: object) -> None:
        raise error

    gateway._answering = SimpleNamespace(answer=answer)
    events = list[Any]()
    access = gateway.open(Caller(record=events.append, model="scripted/ok"))
    headers = {"Authorization": f"Bearer {access.token}"}
    body = json.dumps({"model": "m", "messages": []})
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{access.url}/v1/chat/completions", data=body, headers=headers) as response,
        ):
            assert response.status == status
            assert (await response.json())["error"]["message"] == message
    finally:
        await gateway.close()


# --- Parts of calls ---


@pytest.mark.parametrize(
    ("outcome", "reason", "whole"),
    [
        (ModelError("no", reason="auth"), "auth", True),
        (asyncio.CancelledError(), "cancelled", False),
        (None, None, True),
    ],
)
async def test_a_recorded_call_has_its_outcome_and_is_replayed_with_it(outcome, reason, whole):
    written = list[tuple[int, Exchange]]()
    take = SimpleNamespace(begin=lambda: 3, write=lambda *line: written.append(line))
    usage = Usage(input_tokens=4, output_tokens=2)
    calls = (ToolRequest(id="c", name="f", arguments="{}"),)

    class Route:
        async def answer(self, request: Request, waited: object) -> Answer:
            if outcome:
                raise outcome
            call = ModelCall(model="m", usage=usage, cost_usd=1.0)
            return Answer(text="Hi", call=call, tool_requests=calls, finish_reason="tool_calls")

    with contextlib.suppress(ModelError, asyncio.CancelledError):
        await routes.answer_recorded(take, REQUEST, Route(), None)
        assert outcome is None
    ((number, exchange),) = written
    assert (number, exchange.whole, exchange.status) == (3, whole, 502 if outcome else 200)

    found = list[tuple[Any, ...]]()

    def find(*asked: Any) -> SimpleNamespace:
        found.append(asked)
        return SimpleNamespace(mismatch="another prompt", exchange=exchange)

    notes = list[str]()
    if reason:
        with pytest.raises(ModelError) as raised:
            routes.answer_replayed(SimpleNamespace(find=find), REQUEST, notes.append)
        assert raised.value.reason == reason
    else:
        answer = routes.answer_replayed(SimpleNamespace(find=find), REQUEST, notes.append)
        assert (answer.text, answer.tool_requests, answer.finish_reason) == ("Hi", calls, "tool_calls")
        assert (answer.call.usage, answer.call.cost_usd, answer.call.latency_ms) == (usage, 0.0, 0.0)
    assert notes == ["another prompt"] and found[0][2] == "m"


async def test_a_request_that_is_no_json_is_refused():
    router = ModelRouter({"NEAR_BASE_URL": "http://127.0.0.1:1"})
    with pytest.raises(ModelError, match="the request cannot be sent") as raised:
        await router.answer(Request(model="near/a", messages=[{"role": "user", "content": {1, 2}}]))
    assert raised.value.reason == "bad_request"


@pytest.mark.parametrize(
    ("path", "is_known"),
    [
        ("/v1/chat/completions", True),
        ("/v1/v1/chat/completions/", True),
        ("/chat/completions", True),
        ("/v1/chat/v1/completions", False),
        ("/v10/chat/completions", False),
    ],
)
def test_a_path_may_name_its_version_once_or_twice_at_its_beginning(path, is_known):
    assert (gateway_calls.find("POST", path, {}) is not None) is is_known


@pytest.mark.parametrize("path", ["/v1/models/v1/x:generateContent"])
def test_a_version_in_the_name_of_a_model_stays(path):
    assert gateway_calls.find("POST", path, {}).model == "v1/x"


@pytest.mark.parametrize(
    ("reading", "usage", "noted"),
    [
        (WireAnswer("Hi", Usage(input_tokens=5, output_tokens=3)), (5, 3), False),
        (WireAnswer("Hi there", Usage()), None, True),
        (WireAnswer("", Usage(), (ToolRequest(id="", name="f", arguments='{"a": 1}'),)), None, True),
        (WireAnswer("", Usage()), (0, 0), False),
    ],
)
@pytest.mark.parametrize("provider", ["openai", "replay"])
def test_tokens_are_estimated_where_a_provider_sends_none(reading, usage, noted, provider):
    notes = list[str]()
    body = {"model": "m", "messages": [{"role": "user", "content": "x" * 400}]}
    call = SimpleNamespace(
        dialect=SimpleNamespace(output_limit=lambda body: None),
        body=body,
        price=FREE,
        status="ok",
        error="",
        is_estimated=False,
        model="m",
        provider=provider,
        access=SimpleNamespace(note_once=notes.append),
    )
    counted = gateway_calls.GatewayCall._counted(call, reading)

    assert bool(notes) is (noted and provider != "replay")
    if usage is not None:
        assert (counted.input_tokens, counted.output_tokens) == usage
    else:
        assert counted.input_tokens >= worst_case.estimated_tokens(body)
        assert counted.output_tokens >= worst_case.answer_tokens(reading, body)


@pytest.mark.parametrize(
    ("recorded", "now", "position"),
    [("abc", "abd", 3), ("abc", "abcd", 4), ("abcd", "abc", 4), ("", "x", 1)],
)
def test_where_two_texts_differ(recorded, now, position):
    assert _around(recorded, now).endswith(f"(from character {position} on)")
