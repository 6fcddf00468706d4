"""The proxy of a sandbox: how long a request may be, what is closed when, and what a host is named."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from proctor.sandbox import proxy

LONGEST = 65536


class Recorded:
    """A writer that keeps what is done with it, in order."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def write(self, data: bytes) -> None:
        self.calls.append(data)

    def write_eof(self) -> None:
        self.calls.append("end")

    def close(self) -> None:
        self.calls.append("close")

    async def drain(self) -> None:
        self.calls.append("drain")


def reading(*chunks: bytes) -> asyncio.StreamReader:
    """A reader of these bytes, which then ends."""
    reader = asyncio.StreamReader()
    for chunk in chunks:
        reader.feed_data(chunk)
    reader.feed_eof()
    return reader


async def handled(monkeypatch: pytest.MonkeyPatch, request: bytes, answer: bytes) -> tuple[list[Any], ...]:
    """What a proxy writes to its client and to the host."""
    near, far = Recorded(), Recorded()

    async def connect(host: str, port: int) -> tuple[asyncio.StreamReader, Recorded]:
        assert (host, port) == ("a.test", 80)
        return reading(answer), far

    monkeypatch.setattr(proxy, "_connect", connect)
    await proxy._handle(reading(request), near, ["a.test"])  # type: ignore[arg-type]
    return near.calls, far.calls


async def test_a_request_and_its_answer_are_written_at_once_and_then_both_sides_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    near, far = await handled(
        monkeypatch, b"POST http://a.test/x?y=1 HTTP/1.0\r\nHost: a.test\r\n\r\nbody", b"answer"
    )
    assert far == [
        b"POST /x?y=1 HTTP/1.0\r\nHost: a.test\r\n\r\n",
        b"body",
        "drain",
        "end",
        "close",
    ]
    assert near == [b"answer", "drain", "end"]


async def test_a_tunnel_says_that_it_is_open_and_sends_nothing_of_the_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    near, far = await handled(monkeypatch, b"CONNECT a.test:80 HTTP/1.1\r\nX: y\r\n\r\nhello", b"answer")
    assert far == [b"hello", "drain", "end", "close"]
    assert near == [b"HTTP/1.1 200 Connection established\r\n\r\n", b"answer", "drain", "end"]


async def test_a_refusal_is_written_at_once() -> None:
    near = Recorded()
    await proxy._refuse(near, 403, "no")  # type: ignore[arg-type]
    assert near.calls == [
        b"HTTP/1.1 403 Refused by Proctor\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno\n",
        "drain",
    ]


async def test_the_end_of_a_side_that_is_gone_is_not_an_error() -> None:
    class Gone(Recorded):
        def write_eof(self) -> None:
            raise RuntimeError("closed")

    gone = Gone()
    await proxy._copy(reading(b"x"), gone)  # type: ignore[arg-type]
    assert gone.calls == [b"x", "drain"]


@contextlib.asynccontextmanager
async def proxied(*hosts: str) -> AsyncIterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    async with proxy.proxy_to(hosts)(listener):
        yield listener.getsockname()[1]


@pytest.mark.parametrize(("size", "is_answered"), [(LONGEST, True), (LONGEST + 1, False)])
async def test_a_request_without_end_is_closed_quietly(size: int, is_answered: bool) -> None:
    problems: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    begin = b"GET http://other.test/ HTTP/1.1\r\nX: "
    async with proxied("a.test") as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(begin + b"x" * (size - len(begin)) + b"\r\n\r\n")
        answer = b""
        # What it has not read when it closes resets the connection.
        with contextlib.suppress(ConnectionError):
            answer = await asyncio.wait_for(reader.read(), 60)
        writer.close()
    assert answer.startswith(b"HTTP/1.1 403 ") is is_answered
    assert problems == []


async def test_no_connection_is_handled_after_the_proxy_has_ended() -> None:
    before = asyncio.all_tasks()
    async with proxied("a.test") as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET ")
        await writer.drain()
        while not (handling := asyncio.all_tasks() - before):
            await asyncio.sleep(0)
    assert all(task.done() for task in handling)
    writer.close()


@pytest.mark.parametrize(
    ("host", "port", "pattern", "allowed"),
    [
        ("a.test", 80, "a.test", True),
        ("a.test", 443, "a.test", True),
        ("a.test", 81, "a.test", False),
        ("a.test", 442, "a.test", False),
        ("a.test", 81, "a.test:81", True),
        ("a.test", 80, "a.test:81", False),
        ("A.Test.", 80, "a.TEST", True),
        ("x.A.Test", 80, "*.a.TEST", True),
        ("x.a.test", 81, "*.a.test:81", True),
        ("xa.test", 80, "*.a.test", False),
        ("", 80, "a.test", False),
    ],
)
def test_a_host_matches_one_pattern(host: str, port: int, pattern: str, allowed: bool) -> None:
    assert proxy.is_allowed(host, port, [pattern]) is allowed
    assert proxy.is_allowed(host, port, ["other.test", pattern]) is allowed
    assert not proxy.is_allowed(host, port, [])
