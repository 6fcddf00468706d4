"""The HTTP client for model calls, against a server that speaks bytes as a test gives them."""

import asyncio
import gzip
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from certificates import make_certificate
from proctor.model import Request
from proctor.models import ModelRouter
from proctor.models.http import (
    LARGEST_HEAD_BYTES,
    HttpClient,
    NoConnection,
    PostTarget,
    Response,
    ResponseError,
    ResponseTooLarge,
    TimeLimits,
    proxy_of,
)
from waiting import TIME_LIMIT_SECONDS

LIMITS = TimeLimits(total=10, connect=5, silence=5)
LARGEST = 100_000
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK"
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class RawServer:
    """Accepts connections and handles each request with the next of its scripts; the last one is repeated."""

    def __init__(self, *answers: "bytes | Talk") -> None:
        self.answers = list(answers)
        self.requests: list[bytes] = []
        self.connections = 0
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                self.requests.append(head + await reader.readexactly(length))
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                if callable(answer):
                    await answer(reader, writer)
                else:
                    writer.write(answer)
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def raw_server(
    *answers: "bytes | Talk", tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[RawServer]:
    served = RawServer(*answers)
    server = await asyncio.start_server(served.serve, host, 0, ssl=tls)
    served.port = server.sockets[0].getsockname()[1]
    try:
        yield served
    finally:
        server.close()


@asynccontextmanager
async def http_client(limits: TimeLimits = LIMITS, **more: object) -> AsyncIterator[HttpClient]:
    client = HttpClient(limits, largest_body_bytes=LARGEST, **more)
    yield client
    await client.close()


def sending(*parts: bytes, then: str = "close") -> Talk:
    """Send some parts, then close the connection, abort it, or stay silent."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)
        if then == "close":
            writer.close()
            await writer.wait_closed()
        elif then == "abort":
            writer.transport.abort()
        else:
            await reader.read()

    return talk


async def post(server: RawServer, limits: TimeLimits = LIMITS) -> Response:
    async with http_client(limits) as client:
        return await client.post(target(server), b"{}")


def target(server: RawServer, path: str = "/v1") -> PostTarget:
    return PostTarget(f"http://127.0.0.1:{server.port}{path}", {"X-Key": "k"})


async def test_a_request_has_the_headers_and_the_length_of_its_body() -> None:
    async with raw_server(OK) as server:
        response = await post(server)

    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [
        b"POST /v1 HTTP/1.1",
        b"Host: 127.0.0.1:%d" % server.port,
        b"Accept: */*",
        b"Accept-Encoding: gzip, deflate",
        b"X-Key: k",
        b"Content-Length: 2",
    ]
    assert body == b"{}"
    assert response == Response(200, {"content-length": "2"}, b"OK")


async def test_names_of_headers_ignore_case_and_repeated_headers_are_joined() -> None:
    answer = b"HTTP/1.1 429 No\r\nRetry-After: 3\r\nVia: a\r\nvia: b\r\nContent-Length: 0\r\n\r\n"
    async with raw_server(answer) as server:
        response = await post(server)

    assert response.status == 429
    assert response.headers["RETRY-AFTER"] == response.headers.get("retry-after") == "3"
    assert "Via" in response.headers and response.headers["via"] == "a, b"
    assert response.headers.get("Date") is None


async def test_a_connection_is_used_again() -> None:
    async with raw_server(OK) as server, http_client() as client:
        for _ in range(5):
            await client.post(target(server), b"{}")
        assert server.connections == 1

        await asyncio.gather(*(client.post(target(server), b"{}") for _ in range(5)))
        assert server.connections == 5


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nO\r\n1\r\nK\r\n0\r\n\r\n",
            id="chunks",
        ),
        pytest.param(
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + OK, id="1xx"
        ),
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\nOK", id="until-the-end"),
        pytest.param(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nOK", id="http-1.0"),
    ],
)
@pytest.mark.parametrize("bytewise", [False, True])
async def test_an_answer_is_read_however_it_arrives(answer: bytes, bytewise: bool) -> None:
    parts = [answer[i : i + 1] for i in range(len(answer))] if bytewise else [answer]
    async with raw_server(sending(*parts)) as server:
        response = await post(server)

    assert (response.status, response.body) == (200, b"OK")
    assert "link" not in response.headers


def compressed(coding: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", gzip.compress(b"O") + gzip.compress(b"K")),
        ("GZIP", gzip.compress(b"OK")),
        ("deflate", zlib.compress(b"OK")),
        ("deflate", zlib.compress(b"OK", wbits=-15)),
        ("deflate, gzip", gzip.compress(zlib.compress(b"OK"))),
        ("identity", b"OK"),
    ],
    # The bytes of gzip contain the time.
    ids=["members", "upper-case", "zlib", "raw", "both", "identity"],
)
async def test_a_compressed_answer_is_decompressed(coding: str, body: bytes) -> None:
    async with raw_server(compressed(coding, body)) as server:
        assert (await post(server)).body == b"OK"


@pytest.mark.parametrize(
    ("coding", "body"),
    [("gzip", gzip.compress(b"OK")[:-5]), ("gzip", b"not compressed"), ("deflate", b"x"), ("br", b"x")],
    ids=["cut", "garbled", "short", "unknown"],
)
async def test_a_damaged_compressed_answer_is_an_error(coding: str, body: bytes) -> None:
    async with raw_server(compressed(coding, body)) as server:
        with pytest.raises(ResponseError):
            await post(server)


@pytest.mark.parametrize(
    "answer",
    [
        compressed("gzip", gzip.compress(b" " * (LARGEST + 1))),
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (LARGEST + 1) + b" " * (LARGEST + 1),
    ],
    ids=["compressed", "plain"],
)
async def test_an_answer_beyond_the_limit_is_not_read(answer: bytes) -> None:
    async with raw_server(answer) as server:
        with pytest.raises(ResponseTooLarge):
            await post(server)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Le", id="half of the headers"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nOK", id="half of the body"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nOK", id="half of a chunk"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n", id="only 100"),
        pytest.param(b"hello\r\n\r\n", id="not HTTP"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\nOK", id="a length that is no number"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nOK", id="a negative length"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nOK!", id="two lengths"
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            id="length and chunks",
        ),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxx\r\n", id="a wrong chunk"),
        pytest.param(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", id="upgrade"),
    ],
)
async def test_an_incomplete_or_invalid_answer_is_an_error(answer: bytes) -> None:
    async with raw_server(sending(answer)) as server:
        with pytest.raises(ResponseError):
            await post(server)
    # A fresh connection that fails is not tried again here: its request may have been carried out.
    assert len(server.requests) == 1


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("extra", [OK, b"garbage", b"\x00"])
async def test_bytes_after_an_answer_do_not_reach_the_next_one(extra: bytes, late: bool) -> None:
    wrong = extra.replace(b"OK", b"NO")

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK if late else OK + wrong)
        await writer.drain()
        if late:
            sent.set()
            await received.wait()
            writer.write(wrong)

    sent, received = asyncio.Event(), asyncio.Event()
    async with raw_server(talk, OK) as server, http_client() as client:
        assert (await client.post(target(server), b"{}")).body == b"OK"
        received.set()
        if late:
            # The bytes arrive while nobody waits for them: only its list of connections shows when.
            while client._connections:
                await asyncio.sleep(0)
        assert (await client.post(target(server), b"{}")).body == b"OK"
        assert server.connections == 2


async def test_a_cancelled_call_closes_its_connection() -> None:
    ended = asyncio.Event()
    reached = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        await reader.read()
        ended.set()

    async with raw_server(talk, OK) as server, http_client() as client:
        call = asyncio.create_task(client.post(target(server), b"{}"))
        await reached.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.wait_for(ended.wait(), TIME_LIMIT_SECONDS)
        assert (await client.post(target(server), b"{}")).body == b"OK"


async def test_an_early_answer_ends_the_connection() -> None:
    async def early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        await reader.read()

    server = await asyncio.start_server(early, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with http_client() as client:
        # Larger than the buffers of the sockets and of the reader, so that a part of it is left.
        response = await client.post(PostTarget(f"http://127.0.0.1:{port}/", {}), b"x" * 30_000_000)
        assert response.status == 413
    server.close()


@pytest.mark.parametrize(
    ("url", "headers"),
    [
        ("http://127.0.0.1:1/", {"Authorization": "Bearer a\r\nX: y"}),
        ("http://127.0.0.1:1/", {"Authorization": "Bearer a\nX: y"}),
        ("http://127.0.0.1:1/", {"Authorization": "Bearer a\x00"}),
        ("http://127.0.0.1:1/", {"X\r\nY": "z"}),
        ("http://127.0.0.1:1/", {"X Y": "z"}),
        ("http://127.0.0.1:1/", {"": "z"}),
        ("http://127.0.0.1:1/", {"Content-Length": "0"}),
        ("http://127.0.0.1:1/", {"Transfer-Encoding": "chunked"}),
        ("http://user:pass@127.0.0.1:1/", {"Authorization": "Bearer a"}),
        ("http://a b/", {}),
        ("http://127.0.0.1:99999/", {}),
        ("http://", {}),
        ("127.0.0.1", {}),
    ],
)
def test_a_malformed_url_or_header_is_refused(url: str, headers: dict[str, str]) -> None:
    with pytest.raises(ValueError):
        PostTarget(url, headers)


@pytest.mark.parametrize(
    ("url", "line", "host"),
    [
        ("http://a.test", b"POST / ", b"a.test"),
        ("http://a.test:80/x y?q=1 2#f", b"POST /x%20y?q=1%202 ", b"a.test:80"),
        ("https://a.test/v1%2Fx", b"POST /v1%2Fx ", b"a.test"),
        ("http://[::1]:80/\r\n", b"POST / ", b"[::1]:80"),
        ("http://bücher.test/ü", b"POST /%C3%BC ", b"xn--bcher-kva.test"),
    ],
)
def test_urls_are_encoded(url: str, line: bytes, host: bytes) -> None:
    request = PostTarget(url, {}).request(b"")
    assert request.startswith(line)
    assert request.split(b"\r\n")[1] == b"Host: " + host


async def test_a_password_in_the_url_is_sent_as_a_header_only() -> None:
    async with raw_server(OK) as server, http_client() as client:
        await client.post(PostTarget(f"http://me:p%40ss@127.0.0.1:{server.port}/", {}), b"")
    assert b"Authorization: Basic bWU6cEBzcw==" in server.requests[0]
    assert b"me:p" not in server.requests[0]


async def test_a_name_is_resolved_once_and_a_dead_address_is_passed_over() -> None:
    async with raw_server(OK) as server, http_client() as client:
        resolved = list[str]()

        async def look_up(host: str, port: int) -> list[tuple[str, int]]:
            resolved.append(host)
            return [("127.0.0.1", 1), ("127.0.0.1", port)]

        # No name on this machine has two addresses, one of them dead.
        client._look_up = look_up
        there = PostTarget(f"http://models.test:{server.port}/", {})
        await asyncio.gather(*(client.post(there, b"") for _ in range(3)))
        assert resolved == ["models.test"]
        assert server.requests[0].split(b"\r\n")[1] == b"Host: models.test:%d" % server.port


async def test_tls_checks_the_certificate_and_the_name(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path, "localhost", "DNS:localhost")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    names = list[str | None]()
    tls.sni_callback = lambda _, name, __: names.append(name)
    trusting = ssl.create_default_context(cafile=certificate)
    async with raw_server(OK, tls=tls) as server:
        there = PostTarget(f"https://localhost:{server.port}/", {})
        async with http_client(tls=trusting) as client:
            for _ in range(2):
                assert (await client.post(there, b"{}")).body == b"OK"
            assert (server.connections, names) == (1, ["localhost"])
            with pytest.raises(NoConnection, match=r"certificate of 127\.0\.0\.1 is not valid"):
                await client.post(PostTarget(f"https://127.0.0.1:{server.port}/", {}), b"{}")
        async with http_client() as client:
            with pytest.raises(NoConnection, match="certificate of localhost is not valid"):
                await client.post(there, b"{}")
    assert len(server.requests) == 2


async def test_a_connection_that_is_not_made_in_time_is_given_up() -> None:
    # TLS to a server that never shakes hands.
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100_000)
        await asyncio.sleep(5)

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with http_client(TimeLimits(total=9, connect=0.05, silence=9)) as client:
        with pytest.raises(NoConnection, match=r"no connection to 127\.0\.0\.1"):
            await client.post(PostTarget(f"https://127.0.0.1:{port}/", {}), b"")
    server.close()


@pytest.mark.parametrize(
    ("environment", "proxy"),
    [
        ({}, None),
        ({"HTTPS_PROXY": "http://proxy:1"}, "http://proxy:1"),
        ({"https_proxy": "proxy:1"}, "http://proxy:1"),
        ({"ALL_PROXY": "http://proxy:1"}, "http://proxy:1"),
        ({"HTTP_PROXY": "http://proxy:1"}, None),
        ({"HTTPS_PROXY": "http://proxy:1", "NO_PROXY": "*"}, None),
        ({"HTTPS_PROXY": "http://proxy:1", "no_proxy": "other.test, .models.test"}, None),
        ({"HTTPS_PROXY": "http://proxy:1", "NO_PROXY": "models.test:444"}, "http://proxy:1"),
        ({"HTTPS_PROXY": "http://proxy:1", "NO_PROXY": "odels.test,,"}, "http://proxy:1"),
    ],
)
def test_the_environment_names_proxies(environment: dict[str, str], proxy: str | None) -> None:
    assert proxy_of("https://api.models.test/v1", environment) == proxy


async def test_a_call_through_a_proxy_names_the_whole_url() -> None:
    body = b'{"choices": [{"message": {"content": "Paris"}}]}'
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    async with raw_server(answer) as server:
        environment = {
            "OPENAI_BASE_URL": "http://models.test/v1",
            "OPENAI_API_KEY": "k",
            "HTTP_PROXY": f"http://127.0.0.1:{server.port}",
        }
        models = ModelRouter(environment, prices={"openai/tiny": {"input": 1, "output": 10}})
        answered = await models.answer(Request(model="openai/tiny", messages=[]))
        await models.close()
    assert answered.text == "Paris"
    assert server.requests[0].startswith(b"POST http://models.test/v1/chat/completions HTTP/1.1\r\n")


async def test_a_reset_in_the_middle_of_an_answer_is_an_error() -> None:
    async with raw_server(OK, sending(OK[:-1], then="abort")) as server, http_client() as client:
        await client.post(target(server), b"{}")
        with pytest.raises(ResponseError, match="in the middle"):
            await client.post(target(server), b"{}")
    assert len(server.requests) == 2


async def test_a_connection_that_was_closed_while_idle_is_replaced() -> None:
    async with raw_server(OK, sending(then="abort"), OK) as server, http_client() as client:
        for _ in range(2):
            assert (await client.post(target(server), b"{}")).body == b"OK"
    assert (server.connections, len(server.requests)) == (2, 3)


async def test_connection_close_is_obeyed() -> None:
    answer = OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    async with raw_server(answer) as server, http_client() as client:
        for _ in range(2):
            await client.post(target(server), b"{}")
    assert server.connections == 2


@pytest.mark.parametrize("part", [b"", b"HTTP/1.1 200 OK\r\n", OK[:-1]])
async def test_a_server_that_falls_silent_is_given_up_also_on_a_connection_that_was_used(part: bytes) -> None:
    limits = TimeLimits(total=10, connect=5, silence=0.05)
    async with raw_server(OK, sending(part, then="stay")) as server, http_client(limits) as client:
        await client.post(target(server), b"{}")
        with pytest.raises(TimeoutError, match="nothing arrived"):
            await client.post(target(server), b"{}")
    assert server.connections == 1


async def test_an_answer_that_trickles_is_given_up_at_the_total_limit() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while not writer.is_closing():
            writer.write(b" ")
            await asyncio.sleep(0.01)

    async with raw_server(talk) as server:
        with pytest.raises(TimeoutError, match="in time"):
            await post(server, TimeLimits(total=0.1, connect=5, silence=5))


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (b"HTTP/1.1 200 OK\r\nX: ", b"y" * 1000),
        (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 200),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 40),
    ],
    ids=["one header", "many headers", "interim answers"],
)
async def test_an_endless_head_is_not_read(begin: bytes, more: bytes) -> None:
    async with raw_server(sending(begin, *[more] * (10 * LARGEST_HEAD_BYTES // 1000))) as server:
        with pytest.raises(ResponseError, match="64 KiB"):
            await post(server)


async def test_an_answer_that_comes_slowly_but_steadily_has_its_time() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK[:-2])
        for letter in (b"O", b"K"):
            # Time is what this test is about: both pauses together exceed the limit of silence.
            await asyncio.sleep(0.6)
            writer.write(letter)

    async with raw_server(talk) as server:
        assert (await post(server, TimeLimits(total=60, connect=60, silence=1.1))).body == b"OK"
