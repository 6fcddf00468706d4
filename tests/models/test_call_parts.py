"""Parts of a model call on their own: times, limits, idle connections, lists, prices of answers."""

import asyncio
import json
import socket
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from types import SimpleNamespace

import aiohttp
import pytest
from test_http import LARGEST, LIMITS, OK, http_client, raw_server, target

from proctor.models import discovery, prices, worst_case
from proctor.models.client import CallTarget, Client, ResponseStream
from proctor.models.gateway import server
from proctor.models.http import HttpClient, NoConnection, _HttpConnection
from proctor.models.prices import SpendingRequest, usual_limit
from proctor.models.providers import Endpoint
from proctor.models.rate_limits import RatePool, spent_window_seconds
from proctor.session import Usage

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ENDPOINT = Endpoint(provider="openai", model="tiny", base_url="http://127.0.0.1:1", key="k", wire="openai")


def test_a_pause_lasts_until_the_latest_exhausted_window_resets():
    headers = {
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "2s",
        "x-ratelimit-remaining-tokens": " 0 ",
        "x-ratelimit-reset-tokens": "7s",
        "x-ratelimit-remaining-images": "1",
        "x-ratelimit-reset-images": "90s",
    }
    assert spent_window_seconds(headers, NOW) == 7
    assert spent_window_seconds({"x-ratelimit-remaining-requests": "0"}, NOW) is None
    assert spent_window_seconds({"x-remaining": "0", "x-reset": "2s"}, NOW) is None


async def test_the_duration_of_a_call_is_in_milliseconds():
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    ticks = count()
    async with raw_server(answer) as server:
        client = Client(clock=lambda: next(ticks) / 4)
        called = CallTarget(ENDPOINT, f"http://127.0.0.1:{server.port}/v1", {})
        response = await client.post(called, b"{}")
        await client.close()

    assert response.latency_ms % 250 == 0 and 0 < response.latency_ms <= 1000
    assert response.waiting_ms == 0


def test_a_stream_releases_its_slot_once_and_counts_milliseconds():
    released, closed = list[str](), list[bool]()
    response = SimpleNamespace(status=200, headers={}, close=lambda: closed.append(True))
    client = Client(clock=lambda: 3.5)
    for refused in (None, b"no"):
        stream = ResponseStream(client, ENDPOINT, response, refused)
        stream.started = 1.0
        assert stream.latency_ms == 2500
        assert stream.refusal == (refused or b"")
        stream.release = released.append
        stream.close()
        stream.close()
    assert released == ["", ""] and closed == [True, True], "a complete refusal has no connection to close"


async def test_a_connection_is_used_again_for_fifteen_seconds():
    async with raw_server(OK) as server, http_client() as client:
        await client.post(target(server), b"{}")
        ((connection,),) = client._idle.values()
        connection.idle_since -= 14.5
        await client.post(target(server), b"{}")
        assert server.connections == 1

        connection.idle_since -= 15.5
        await client.post(target(server), b"{}")
        assert server.connections == 2 and connection.is_closing


async def test_the_first_failure_is_reported_when_no_address_answers(monkeypatch):
    client = HttpClient(LIMITS, largest_body_bytes=LARGEST)
    tried = list[object]()

    async def resolve(host, port):
        return [1, 2, 3]

    async def connect_to(target, address):
        tried.append(address)
        raise OSError(f"nobody at {address}")

    monkeypatch.setattr(client, "_resolve", resolve)
    monkeypatch.setattr(client, "_connect_to", connect_to)
    with pytest.raises(NoConnection, match="nobody at 1"):
        await client._connect(SimpleNamespace(host="h", port=1))
    assert tried == [1, 2, 3]

    async def programming_error(target, address):
        raise RuntimeError("a fault")

    monkeypatch.setattr(client, "_connect_to", programming_error)
    with pytest.raises(RuntimeError):
        await client._connect(SimpleNamespace(host="h", port=1))


async def test_a_connection_that_comes_late_is_closed(monkeypatch):
    """A further address was quicker."""
    client = HttpClient(LIMITS, largest_body_bytes=LARGEST)
    aborted, release = list[int](), asyncio.Event()
    addresses = [1, 2]

    async def resolve(host, port):
        return addresses

    async def connect_to(target, address):
        if address == 1:
            try:
                await release.wait()
            except asyncio.CancelledError:
                pass
        return SimpleNamespace(abort=lambda: aborted.append(address), address=address)

    monkeypatch.setattr(client, "_resolve", resolve)
    monkeypatch.setattr(client, "_connect_to", connect_to)
    monkeypatch.setattr("proctor.models.http.NEXT_ADDRESS_SECONDS", 0.001)
    assert (await client._connect(SimpleNamespace(host="h", port=1))).address == 2
    assert addresses == [2, 1], "the next connection begins with the one that answered"
    for _ in range(3):
        await asyncio.sleep(0)
    assert aborted == [1]


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("claude-3-opus-20240229", 4096),
        ("claude-3-5-sonnet", 8192),
        ("claude-sonnet-4", 64_000),
        ("gpt-5-mini", 128_000),
        ("o3", 100_000),
        ("gpt-4.1-nano", 32_768),
        ("gemini-2.5-pro", 65_536),
        ("mistral-large", 16_384),
    ],
)
def test_the_longest_answer_of_a_family_of_models(model, tokens):
    assert usual_limit(f"provider/{model}") == tokens


def test_the_length_of_answers_that_money_pays_for():
    request = {"model": "m", "input_tokens": 10, "output_tokens": 100, "input_usd": 1.0}
    priced = SpendingRequest(**request, output_usd_per_token=0.01, answers=2)
    assert priced.cost_usd == 1 + 2 * 100 * 0.01
    assert priced.affordable_tokens(2.0) == 50 and priced.affordable_tokens(1.0) == 0
    free = SpendingRequest(**request, output_usd_per_token=0.0)
    assert (free.cost_usd, free.affordable_tokens(5)) == (1.0, 0)
    unknown = SpendingRequest(**request | {"input_usd": None}, output_usd_per_token=0.01)
    assert (unknown.cost_usd, unknown.affordable_tokens(5)) == (None, 0)
    assert SpendingRequest(**request, output_usd_per_token=None).cost_usd is None


def test_the_constants_of_worst_cases():
    """A change of one changes what is reserved for every call."""
    assert (worst_case.BYTES_PER_TOKEN, prices.SMALLEST_THINKING_BUDGET) == (3, 1024)
    assert (worst_case.HOSTED_TOOL_USES, worst_case.SEARCH_RESULT_TOKENS) == (3, 8000)
    assert worst_case.MOST_TOKENS == 4_000_000


@pytest.mark.parametrize(
    ("status", "body", "problem"),
    [
        (404, b"{}", "it answered 404"),
        (200, b'"text"', "it did not answer with a list of models"),
        (200, b"[1" + b"0" * 400 + b"]", "its list has more than"),
        (200, b'{"data": []}', ""),
        (200, b"[]", ""),
    ],
)
async def test_only_a_list_of_models_is_read(status, body, problem, monkeypatch):
    monkeypatch.setattr(discovery, "LARGEST_LIST_BYTES", 300)
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head + body)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with aiohttp.ClientSession() as session:
        if problem:
            with pytest.raises(ValueError, match=problem):
                await discovery._get(session, f"http://127.0.0.1:{port}/", {})
        else:
            assert isinstance(await discovery._get(session, f"http://127.0.0.1:{port}/", {}), dict | list)
    server.close()


async def test_addresses_of_both_families_take_turns():
    """The second address is of the other family: one that is broken costs a quarter of a second."""
    client = HttpClient(LIMITS, largest_body_bytes=LARGEST)
    entries = [(socket.AF_INET6, 0, 0, "", (f"::{number}", 1, 0, 0)) for number in (1, 2, 2)]
    entries.append((socket.AF_INET, 0, 0, "", ("127.0.0.1", 1)))

    async def getaddrinfo(*_: object, **__: object):
        return entries

    client._loop = SimpleNamespace(getaddrinfo=getaddrinfo)
    assert await client._look_up("host", 1) == [("::1", 1), ("127.0.0.1", 1), ("::2", 1)]


def test_the_state_of_a_pool_says_when_the_next_probe_is_due():
    pool = RatePool("openai/tiny", clock=lambda: 10.0)
    held = []
    for started, unreachable, calls in ((None, True, 0), (9.0, True, 0), (9.0, False, 1), (9.0, False, 2)):
        pool._outage = replace(
            pool._outage,
            started=started,
            is_unreachable=unreachable,
            calls=set(range(calls)),
            next_probe=14.0,
            error="refused",
        )
        held.append((pool.state.held_seconds, pool.state.outage))
    assert held == [(0.0, ""), (4.0, "refused"), (0.0, "refused"), (4.0, "refused")]


async def test_an_answer_after_the_call_was_given_up_is_ignored():
    loop = asyncio.get_running_loop()
    connection = _HttpConnection(loop, set(), 1.0, LARGEST)
    connection._answer = given_up = loop.create_future()
    given_up.cancel()
    connection._finish()
    connection._finish()
    assert connection._has_answered and given_up.cancelled() and connection._answer is None


@pytest.mark.parametrize(
    ("head", "error", "message"),
    [
        (0, None, "the server closed the connection before its answer"),
        (9, None, "the server closed the connection in the middle of its answer"),
        (0, OSError("reset"), "the server closed the connection before its answer: reset"),
        (9, OSError(), "the server closed the connection in the middle of its answer"),
    ],
)
@pytest.mark.parametrize("has_answered", [False, True])
async def test_why_a_connection_ended(head, error, message, has_answered):
    loop, connections = asyncio.get_running_loop(), set()
    connection = _HttpConnection(loop, connections, 1.0, LARGEST)
    connections.add(connection)
    connection._transport = SimpleNamespace(abort=lambda: None, close=lambda: None)
    connection._answer = answer = loop.create_future()
    connection._timer = timer = loop.call_later(60, print)
    connection._sent_at, connection._head_size, connection._has_answered = loop.time(), head, has_answered
    connection.connection_lost(error)
    assert str(answer.exception()) == message
    assert connection.was_stale is (has_answered and not head)
    assert not connections and timer.cancelled() and connection._timer is None
    connection.connection_lost(error)
    assert connection._answer is None


def test_tokens_are_counted_from_zero_and_add_up():
    names = ("input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "cache_write_tokens")
    assert [getattr(Usage(), name) for name in names] == [0] * 5
    one = Usage(**{name: number for number, name in enumerate(names, 1)})
    both = one + Usage(**{name: 10 * number for number, name in enumerate(names, 1)})
    assert [getattr(both, name) for name in names] == [11, 22, 33, 44, 55]
    assert (one.total_tokens, both.total_tokens) == (4, 44)


@pytest.mark.parametrize(("given", "status"), [((), 200), ((404,), 404)])
def test_a_document_of_the_gateway_is_json(given, status):
    response = server._json({"a": "ü"}, *given)
    assert (response.status, response.content_type) == (status, "application/json")
    assert json.loads(response.body) == {"a": "ü"}


def test_a_free_call_costs_nothing_whatever_its_tokens():
    usage = Usage(input_tokens=9, cached_tokens=2, output_tokens=8, reasoning_tokens=1, cache_write_tokens=3)
    cost, _ = prices.FREE.for_call(usage)
    assert (cost, prices.FREE.source) == (0.0, "free")
