"""HTTP proxy that reaches only the hosts a plan allows, for programs without a network of their own.

It serves CONNECT and plain HTTP requests on a socket inside the sandbox, and connects from outside.
"""

import asyncio
import ipaddress
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

from proctor.processes import Serve

PORT = 3128
"""In the sandbox's own network, where no other program has it."""
VARIABLES = dict.fromkeys(
    ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), f"http://127.0.0.1:{PORT}"
) | {"NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}
LONGEST_HEAD = 64 * 1024
HEAD_SECONDS = 30
CONNECT_SECONDS = 30
USUAL_PORTS = (80, 443)


def is_allowed(host: str, port: int, hosts: Sequence[str]) -> bool:
    """Whether a host is one of those in a plan: `example.com`, `*.example.com` or `example.com:8443`."""
    for pattern in hosts:
        name, colon, number = pattern.rpartition(":") if ":" in pattern else (pattern, "", "")
        if port not in ((int(number),) if colon else USUAL_PORTS):
            continue
        if name.startswith("*."):
            if host.lower().endswith(name[1:].lower()):
                return True
        elif host.lower().rstrip(".") == name.lower():
            return True
    return False


def proxy_to(hosts: Sequence[str]) -> Serve:
    """A proxy that reaches only these hosts."""

    @asynccontextmanager
    async def serve(listener: socket.socket) -> AsyncIterator[None]:
        connections: set[asyncio.Task[None]] = set()

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            connections.add(task)
            try:
                await _handle(reader, writer, hosts)
            except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                pass  # A closed connection, or an invalid request.
            finally:
                connections.discard(task)
                writer.close()

        listener.setblocking(False)
        server = await asyncio.start_server(handle, sock=listener, limit=LONGEST_HEAD)
        try:
            yield
        finally:
            server.close()
            for task in connections:
                task.cancel()
            if connections:
                await asyncio.wait(connections)

    return serve


async def _handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hosts: Sequence[str]) -> None:
    async with asyncio.timeout(HEAD_SECONDS):
        head = await reader.readuntil(b"\r\n\r\n")
    line, _, rest = head.partition(b"\r\n")
    method, target, version = line.decode("latin-1").split(" ")
    address = urlsplit(f"//{target}" if method == "CONNECT" else target)
    host, port = address.hostname or "", address.port or (443 if method == "CONNECT" else 80)
    if not is_allowed(host, port, hosts):
        await _refuse(writer, 403, f"{host}:{port} is not among the hosts of `network`")
        return
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            far_reader, far_writer = await _connect(host, port)
    except (OSError, TimeoutError) as error:
        await _refuse(writer, 502, f"{host}:{port} cannot be reached: {error}")
        return
    try:
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            path = (address.path or "/") + (f"?{address.query}" if address.query else "")
            far_writer.write(f"{method} {path} {version}\r\n".encode("latin-1") + rest)
        await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
    finally:
        far_writer.close()


async def _connect(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a host, but to an address of this machine only if the plan names it."""
    answers = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(each[4][0]) for each in answers]
    with suppress(ValueError):
        ipaddress.ip_address(host)
        return await asyncio.open_connection(host, port)
    public = [each for each in addresses if host == "localhost" or not _is_local(each)]
    if not public:
        raise OSError("its address belongs to this machine")
    return await asyncio.open_connection(public[0], port)


def _is_local(address: str) -> bool:
    value = ipaddress.ip_address(address.partition("%")[0])
    return value.is_loopback or value.is_link_local or value.is_unspecified


async def _refuse(writer: asyncio.StreamWriter, status: int, message: str) -> None:
    body = f"{message}\n".encode()
    head = f"HTTP/1.1 {status} Refused by Proctor\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
    finally:
        with suppress(OSError, RuntimeError):
            writer.write_eof()
