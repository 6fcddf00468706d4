"""HTTP proxy that reaches only the hosts a plan allows, for programs without a network of their own.

It serves CONNECT and plain HTTP requests on a socket inside the sandbox, and connects from outside. A name is
resolved once, and connected is an address that was checked: a name that the plan allows cannot lead to this
machine, to the metadata service of a cloud, or (unless the plan has the very name) into a private network.
"""

import asyncio
import ipaddress
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
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
METADATA = tuple(map(ipaddress.ip_address, ("100.100.100.200", "168.63.129.16", "fd00:ec2::254")))
"""Addresses of the metadata services of clouds that are not on a link of the machine."""
_TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")
"""Addresses that a gateway of a network without IPv4 turns into the IPv4 address in the last four bytes."""
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host."""


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


async def resolve(host: str, port: int) -> list[str]:
    """The addresses of a host, as the system resolves it."""
    answers = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(answer[4][0]) for answer in answers))


def proxy_to(hosts: Sequence[str], resolver: Resolve = resolve) -> Serve:
    """A proxy that reaches only these hosts."""

    @asynccontextmanager
    async def serve(listener: socket.socket) -> AsyncIterator[None]:
        connections: set[asyncio.Task[None]] = set()

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            connections.add(task)
            try:
                await _handle(reader, writer, hosts, resolver)
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


async def _handle(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    hosts: Sequence[str],
    resolver: Resolve = resolve,
) -> None:
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
            far_reader, far_writer = await _connect(host, port, hosts, resolver)
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


async def _connect(
    host: str, port: int, hosts: Sequence[str], resolver: Resolve
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to an address of a host that may be reached."""
    with suppress(ValueError):
        # The plan has this very address.
        return await asyncio.open_connection(str(ipaddress.ip_address(host)), port)
    is_exact = any(not pattern.startswith("*.") and is_allowed(host, port, [pattern]) for pattern in hosts)
    problem: OSError = OSError("it has no address")
    for address in await resolver(host, port):
        if host != "localhost" and (reason := refusal(address, is_exact=is_exact)):
            problem = OSError(f"{address} {reason}")
            continue
        try:
            return await asyncio.open_connection(address, port)
        except OSError as error:
            problem = error
    raise problem


def refusal(address: str, *, is_exact: bool) -> str:
    """Why a name may not lead to an address; empty: it may. `is_exact`: the plan has the very name."""
    for value in _meanings(ipaddress.ip_address(address.partition("%")[0])):
        if value.is_loopback or value.is_unspecified:
            return "belongs to this machine"
        if value.is_link_local or value in METADATA:
            return "is on a link of this machine, where clouds have their metadata"
        if value.is_multicast or value.is_reserved:
            return "is not an address of one host"
        if _is_own(value):
            return "belongs to this machine"
        if not value.is_global and not is_exact:
            return "is in a private network; write this host itself, without `*`, in `network`"
    return ""


def _meanings(value: Address) -> list[Address]:
    """The addresses that are connected to in the end: also those of IPv4 in one of IPv6."""
    if isinstance(value, ipaddress.IPv4Address):
        return [value]
    if value.ipv4_mapped:
        return [value.ipv4_mapped]
    if value in _TRANSLATED:
        return [ipaddress.IPv4Address(int(value) & 0xFFFFFFFF)]
    return [value, *([value.sixtofour] if value.sixtofour else []), *(value.teredo or ())]


def _is_own(value: Address) -> bool:
    """Whether an address is one of this machine: then it reaches it from the same address. Sends nothing."""
    family = socket.AF_INET if value.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(value), USUAL_PORTS[0]))
            return ipaddress.ip_address(probe.getsockname()[0]) == value
    except OSError:
        return False


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
