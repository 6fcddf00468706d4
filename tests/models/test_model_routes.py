"""How models are called: the router, its local server and gateway, and parts of a call on their own."""

import asyncio
import contextlib
import json
import socket
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from proctor.errors import ModelError, ProctorError, UsageError
from proctor.model import Answer, Request, ToolRequest, WireAnswer
from proctor.models import ModelRouter, local, local_server, routes, scripted, worst_case
from proctor.models.gateway import call as gateway_calls
from proctor.models.gateway.access import Accesses, Caller
from proctor.models.gateway.server import Gateway
from proctor.models.http import _HttpConnection
from proctor.models.prices import FREE, Price, price_of
from proctor.models.rate_limits import RatePools
from proctor.models.recording import Exchange, _around
from proctor.models.router import LazyGateway
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


def test_why_one_process_must_make_all_calls(tmp_path):
    assert ModelRouter({}).single_process_reason == ""
    router = ModelRouter({}, recording=SimpleNamespace(replays=False, take=lambda *_: None))
    assert router.single_process_reason == "recordings number the calls of one process"
    for route, reason in (
        (routes.LocalRoute(None, None, None), "each would start its own server of the local model"),
        (
            routes.ReplayRoute(SimpleNamespace(take=lambda *_: None), None),
            "a recording answers the calls of one process",
        ),
    ):
        router = ModelRouter({})
        router.add_route("m", route)
        assert router.single_process_reason == reason


def test_a_store_with_a_budget_refuses_a_model_without_a_price():
    environment = {"ACME_BASE_URL": "http://127.0.0.1:1"}
    with pytest.raises(UsageError, match="the price of acme/x is unknown"):
        ModelRouter(environment, needs_prices=True).check("acme/x")
    ModelRouter(environment).check("acme/x")
    ModelRouter(environment, needs_prices=True, prices={"acme/x": {"input": 1, "output": 2}}).check("acme/x")


def test_a_batch_loads_what_it_needs_before_its_first_call():
    for model, times in (("scripted/ok", 0), ("near/a", 1)):
        loaded = list[bool]()
        client = SimpleNamespace(get_ready=lambda loaded=loaded: loaded.append(True))
        router = ModelRouter({"NEAR_BASE_URL": "http://127.0.0.1:1"}, client=client)
        router.route(model)
        router.get_ready()
        assert len(loaded) == times


async def test_a_router_closes_its_connections_its_server_and_its_recordings():
    closed = list[str]()

    class Part:
        def __init__(self, name: str) -> None:
            self.name = name

        async def close(self) -> None:
            closed.append(self.name)

    router = ModelRouter({}, client=Part("client"))
    router._local = Part("server")
    replay = SimpleNamespace(take=lambda *_: None, close=lambda: closed.append("recording"))
    router.add_route("m", routes.ReplayRoute(replay, None))
    router.add_route("n", routes.CallableRoute(str))
    await router.close()
    assert closed == ["client", "server", "recording"]

    await ModelRouter({}).close()


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


async def test_the_gateway_of_a_run_is_started_once_and_closed():
    gateway = LazyGateway(ModelRouter({}))
    gateway.shut("nothing is open yet")
    await gateway.close()
    first, second = await asyncio.gather(*(gateway.open(Caller(record=print)) for _ in range(2)))
    try:
        assert first.url == second.url and first.token != second.token
        accesses = gateway._gateway._accesses
        assert accesses.find(first.token) is not None
        gateway.shut(first.token)
        assert accesses.find(first.token) is None and accesses.find(second.token) is not None
    finally:
        await gateway.close()
    assert accesses.find(second.token) is None
    await gateway.close()


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


def test_answers_of_an_access_are_numbered_from_its_beginning():
    accesses = Accesses()
    access = accesses.open("http://here", Caller(record=print), None)
    opened = accesses.find(access.token)

    assert (opened.answers, opened.calls) == (0, set())
    notes = list[str]()
    opened.caller = SimpleNamespace(record=lambda note: notes.append(note.text))
    for text in ("a", "b", "a"):
        opened.note_once(text)
    assert notes == ["a", "b"]


# --- The local server ---


class Parameters:
    def __init__(self) -> None:
        self.model, self.cpuparams, self.cpuparams_batch = (SimpleNamespace() for _ in range(3))


def test_the_local_server_answers_on_this_machine_only_one_at_a_time_and_without_a_network(
    monkeypatch, capsys
):
    served = list[Parameters]()

    def server(parameters: Parameters) -> SimpleNamespace:
        served.append(parameters)
        return SimpleNamespace(listening_address="http://127.0.0.1:7")

    library = SimpleNamespace(CommonParams=Parameters, Server=server)
    monkeypatch.setitem(sys.modules, "xllamacpp", library)
    paused = list[str]()
    monkeypatch.setattr(local_server.signal, "pause", lambda: paused.append(capsys.readouterr().out))
    local_server.main("/weights")

    (parameters,) = served
    assert parameters.model.path == "/weights" and parameters.model_alias == {"smollm2"}
    assert (parameters.hostnames, parameters.port, parameters.offline) == (["127.0.0.1"], 0, True)
    assert (parameters.n_ctx, parameters.n_parallel) == (8192, 1)
    assert (parameters.cpuparams.n_threads, parameters.cpuparams_batch.n_threads) == (1, 1)
    assert paused == ["http://127.0.0.1:7\n"], "it waits once its address is printed"


@pytest.fixture
def serving(monkeypatch, tmp_path):
    """A local server that is this script instead."""
    monkeypatch.setattr(local, "weights_file", lambda environment: Path("/weights"))
    script = tmp_path / "server.py"
    monkeypatch.setattr(local.local_server, "__file__", str(script))

    def write(text: str) -> local.LocalServer:
        script.write_text(text)
        return local.LocalServer({"PATH": "/usr/bin:/bin", "SECRET": "x"})

    return write


async def test_a_local_server_is_started_once_and_ended(serving, tmp_path):
    pid = tmp_path / "pid"
    server = serving(
        "import os, pathlib, sys, time\n"
        f"with open({str(pid)!r}, 'a') as file: print(os.getpid(), 'SECRET' in os.environ, file=file)\n"
        "print('http://127.0.0.1:7' + sys.argv[1], flush=True)\n"
        "time.sleep(1000)\n"
    )
    assert await asyncio.gather(server.url(), server.url()) == ["http://127.0.0.1:7/weights/v1"] * 2
    await server.close()

    ((started, has_secret),) = [line.split() for line in pid.read_text().splitlines()]
    assert has_secret == "False"
    assert not Path(f"/proc/{started}").exists()


async def test_a_local_server_that_does_not_start_is_tried_again_and_says_why(serving):
    server = serving("import sys\nprint('no', file=sys.stderr)\nsys.exit('out of memory')\n")
    for _ in range(2):
        with pytest.raises(ModelError, match="the server of local/smollm2 did not start: out of memory"):
            await server.url()
    await server.close()


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


async def test_the_time_and_the_wait_of_a_call_are_not_confused():
    async def post(target: object, body: bytes, waited: object) -> SimpleNamespace:
        answer = {"choices": [{"message": {"content": "Hi"}}], "usage": {"prompt_tokens": 1}}
        return SimpleNamespace(answer=answer, body=b"raw", latency_ms=250.0, waiting_ms=4000.0)

    for keep in (False, True):
        router = ModelRouter(
            {"NEAR_BASE_URL": "http://127.0.0.1:1"}, client=SimpleNamespace(post=post), keep_bodies=keep
        )
        call = (await router.answer(Request(model="near/a", messages=REQUEST.messages))).call
        assert (call.latency_ms, call.waiting_ms) == (250.0, 4000.0)
        assert (call.response == "raw") is keep
        assert ("Hi" in call.request) is keep


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


@pytest.mark.parametrize(("content", "tokens"), [("", 1), ("abc", 1), ("abcd", 2), ("x" * 41, 11)])
def test_a_scripted_model_counts_a_token_for_four_characters(content, tokens):
    request = Request(
        model="m", messages=[{"role": "user", "content": content}, {"role": "user", "content": None}]
    )
    rule = scripted.ScriptedRule(replies=(content,), tools=())
    answer = scripted._answer_of(rule, request, "", None)

    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (tokens, tokens)


@pytest.mark.parametrize(
    ("recorded", "now", "position"),
    [("abc", "abd", 3), ("abc", "abcd", 4), ("abcd", "abc", 4), ("", "x", 1)],
)
def test_where_two_texts_differ(recorded, now, position):
    assert _around(recorded, now).endswith(f"(from character {position} on)")


async def test_a_timer_that_ends_early_is_set_again():
    now, timers = 10.0, list[float]()
    loop = SimpleNamespace(
        time=lambda: now,
        call_at=lambda due, call: timers.append(due),
        create_future=asyncio.get_running_loop().create_future,
    )
    connection = _HttpConnection(loop, set(), 5.0, 1000)
    connection._transport = SimpleNamespace(is_closing=lambda: False, write=lambda _: None)
    answer = connection.send(b"", 100.0)
    assert timers == [15.0]
    connection._last_byte, now = 12.0, 15.0
    connection._check_time()
    assert timers == [15.0, 17.0] and not answer.done()
    connection._last_byte, now = 98.0, 99.0
    connection._check_time()
    assert timers[-1] == 100.0


async def test_a_closed_connection_sends_nothing():
    loop = asyncio.get_running_loop()
    for has_answered in (False, True):
        connection = _HttpConnection(loop, set(), 5.0, 1000)
        connection._transport = SimpleNamespace(is_closing=lambda: True)
        connection._has_answered = has_answered
        with pytest.raises(OSError, match="the server closed the connection"):
            connection.send(b"", 100.0)
        assert connection.was_stale is has_answered


async def test_a_replayed_model_answers_from_the_calls_of_this_process():
    taken, found = list[Any](), list[Any]()
    outcome = {"text": "Hi", "usage": {}, "tool_requests": [], "finish_reason": "stop"}
    exchange = SimpleNamespace(chunks=(json.dumps(outcome).encode(),))

    def find(*asked: Any) -> SimpleNamespace:
        found.append(asked)
        return SimpleNamespace(mismatch="other", exchange=exchange)

    def take(*asked: Any) -> SimpleNamespace:
        taken.append(asked)
        return SimpleNamespace(find=find)

    route = routes.ReplayRoute(SimpleNamespace(take=take), price(1))
    answer = await route.answer(REQUEST, None)

    assert (answer.text, taken, len(found)) == ("Hi", [("", "process")], 1)
    assert route.price.source == price(1).source and route.not_sent(REQUEST) == ()


@pytest.mark.parametrize(
    ("head", "until_end"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\n\r\n", True),
        (b"HTTP/1.1 204 No\r\n\r\n", False),
        (b"HTTP/1.1 304 No\r\n\r\n", False),
        (b"HTTP/1.1 205 No\r\n\r\n", True),
    ],
)
async def test_an_answer_without_a_length_ends_with_its_connection(head, until_end):
    connection = _HttpConnection(asyncio.get_running_loop(), set(), 5.0, 1000)
    connection._transport = SimpleNamespace(
        is_closing=lambda: False,
        write=lambda _: None,
        close=lambda: None,
        abort=lambda: None,
        get_write_buffer_size=lambda: 0,
    )
    connection.send(b"", asyncio.get_running_loop().time() + 100)
    connection._parser.feed_data(head)
    assert connection._until_end is until_end
    if connection._timer:
        connection._timer.cancel()
