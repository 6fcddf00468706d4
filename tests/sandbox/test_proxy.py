"""The proxy of a sandbox: which hosts it reaches, how long a request may be, and what is closed when."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from proctor.sandbox import proxy

LONGEST = 65536


@contextlib.asynccontextmanager
async def proxied(*hosts: str, resolver: proxy.Resolve = proxy.resolve) -> AsyncIterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    async with proxy.proxy_to(hosts, resolver)(listener):
        yield listener.getsockname()[1]


async def answer_to(request: str, port: int) -> str:
    """What a proxy answers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request.encode())
    writer.write_eof()
    answer = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    return answer.decode()


THIS_MACHINE, A_LINK, NO_HOST, PRIVATE = (
    "belongs to this machine",
    "is on a link of this machine, where clouds have their metadata",
    "is not an address of one host",
    "is in a private network; write this host itself, without `*`, in `network`",
)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        *((address, THIS_MACHINE) for address in ("127.0.0.1", "127.8.9.1", "0.0.0.0", "::1", "::")),
        *((address, THIS_MACHINE) for address in ("::ffff:127.0.0.1", "::ffff:0.0.0.0", "64:ff9b::7f00:1")),
        *((address, THIS_MACHINE) for address in ("2002:7f00:1::", "2002:7f00:1::5")),
        *((address, A_LINK) for address in ("169.254.169.254", "fe80::1", "fe80::1%lo", "fd00:ec2::254")),
        *(
            (address, A_LINK)
            for address in ("::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "100.100.100.200")
        ),
        *((address, NO_HOST) for address in ("224.0.0.1", "ff02::1", "255.255.255.255", "240.0.0.1")),
        *((address, NO_HOST) for address in ("::127.0.0.1",)),
        *((address, PRIVATE) for address in ("10.1.2.3", "192.168.1.1", "172.16.0.9", "100.64.0.1")),
        *((address, PRIVATE) for address in ("fd12::1", "::ffff:10.1.2.3", "64:ff9b::a01:203")),
        *((address, "") for address in ("8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808")),
    ],
)
async def test_where_a_name_may_not_lead(address: str, reason: str) -> None:
    assert proxy.refusal(address, is_exact=False) == reason
    assert proxy.refusal(address, is_exact=True) == ("" if reason == PRIVATE else reason)
    if not reason:
        return

    async def resolver(host: str, port: int) -> list[str]:
        assert (host, port) == ("x.a.test", 80)
        return [address]

    async with proxied("*.a.test", resolver=resolver) as port:
        for request in ("GET http://x.a.test/ HTTP/1.0\r\n\r\n", "CONNECT x.a.test:80 HTTP/1.1\r\n\r\n"):
            answer = await answer_to(request, port)
            assert answer.startswith("HTTP/1.1 502 ")
            assert f"x.a.test:80 cannot be reached: {address} {reason}\n" in answer


@pytest.mark.parametrize("host", ["2130706433", "0x7f000001", "0177.0.0.1", "127.1", "0"])
async def test_another_way_to_write_this_machine_is_refused(host: str) -> None:
    """The system's resolver reads numbers in many forms."""
    async with answered() as target, proxied(f"{host}:{target}") as port:
        answer = await answer_to(f"CONNECT {host}:{target} HTTP/1.1\r\n\r\n", port)
    assert answer.startswith("HTTP/1.1 502 ") and THIS_MACHINE in answer


async def test_an_address_of_this_machine_on_its_network_is_refused() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        try:
            udp.connect(("192.0.2.1", 53))
        except OSError:
            pytest.skip("this machine has no network")
        own = udp.getsockname()[0]
    assert proxy.refusal(own, is_exact=True) == THIS_MACHINE


async def test_a_name_is_resolved_once_and_only_the_checked_address_is_connected() -> None:
    """DNS rebinding: the second answer would be this machine."""
    answers = [["192.0.2.7", "::ffff:127.0.0.1"], ["127.0.0.1"], ["127.0.0.1"]]
    asked = []

    async def resolver(host: str, port: int) -> list[str]:
        asked.append(host)
        return answers[len(asked) - 1]

    async with answered() as target, proxied(f"*.a.test:{target}", resolver=resolver) as port:
        answer = await answer_to(f"CONNECT x.a.test:{target} HTTP/1.1\r\n\r\n", port)
    assert answer.startswith("HTTP/1.1 502 ")
    assert asked == ["x.a.test"]


async def test_the_first_address_that_may_be_reached_is_connected() -> None:
    async def resolver(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    async with answered() as target, proxied(f"localhost:{target}", resolver=resolver) as port:
        answer = await answer_to(f"CONNECT localhost:{target} HTTP/1.1\r\n\r\nhello", port)
    assert answer.endswith("from this machine")


@contextlib.asynccontextmanager
async def answered() -> AsyncIterator[int]:
    """The port of a service of this machine."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"from this machine")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


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


async def test_a_proxy_forwards_to_named_hosts_and_refuses_others() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"got " + head.splitlines()[0])
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    far = server.sockets[0].getsockname()[1]
    async with proxied(f"127.0.0.1:{far}", "127.0.0.1:1") as port:
        plain = await answer_to(f"GET http://127.0.0.1:{far}/a/b?c=1 HTTP/1.1\r\nHost: x\r\n\r\n", port)
        root = await answer_to(f"GET http://127.0.0.1:{far} HTTP/1.1\r\nHost: x\r\n\r\n", port)
        tunnel = await answer_to(f"CONNECT 127.0.0.1:{far} HTTP/1.1\r\n\r\nHELLO / HTTP/1.1\r\n\r\n", port)
        refused = await answer_to("GET http://127.0.0.2/ HTTP/1.1\r\n\r\n", port)
        gone = await answer_to("CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n", port)
        assert await answer_to("nonsense\r\n\r\n", port) == ""
    server.close()
    assert plain == "got GET /a/b?c=1 HTTP/1.1" and root == "got GET / HTTP/1.1"
    assert tunnel.startswith("HTTP/1.1 200 ") and tunnel.endswith("got HELLO / HTTP/1.1")
    body = "127.0.0.2:80 is not among the hosts of `network`\n"
    assert refused.startswith("HTTP/1.1 403 ") and refused.endswith(f"\r\n\r\n{body}")
    assert f"Content-Length: {len(body)}\r\n" in refused
    assert gone.startswith("HTTP/1.1 502 ") and "127.0.0.1:1 cannot be reached" in gone


async def test_a_connection_through_a_proxy_ends_with_the_proxy() -> None:
    ended = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        # Not only its own half is closed.
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0)
        writer.close()
        ended.set()

    server = await asyncio.start_server(wait, "127.0.0.1", 0)
    far = server.sockets[0].getsockname()[1]
    async with proxied(f"127.0.0.1:{far}") as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"CONNECT 127.0.0.1:{far} HTTP/1.1\r\n\r\n".encode())
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 200 Connection established\r\n\r\n"
    assert await asyncio.wait_for(reader.read(), 30) == b""
    await asyncio.wait_for(ended.wait(), 30)
    writer.close()
    server.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


@pytest.mark.parametrize(
    ("request_line", "destination"),
    [
        ("CONNECT a.test HTTP/1.1", ("a.test", 443)),
        ("CONNECT a.test:80 HTTP/1.1", ("a.test", 80)),
        ("GET http://a.test/x HTTP/1.0", ("a.test", 80)),
        ("GET http://a.test:443/ HTTP/1.1", ("a.test", 443)),
    ],
)
async def test_the_port_of_a_request_without_one(request_line: str, destination: tuple[str, int]) -> None:
    async def refuse(*address: object) -> list[str]:
        raise OSError(f"refused {address}")

    async with proxied("a.test", resolver=refuse) as port:
        answer = await answer_to(f"{request_line}\r\n\r\n", port)
    host, number = destination
    body = f"{host}:{number} cannot be reached: refused {destination}\n"
    head = f"HTTP/1.1 502 Refused by Proctor\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    assert answer == head + body
