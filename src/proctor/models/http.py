"""HTTP/1.1 client for posting requests with complete answers, on an `asyncio.Protocol` and httptools.

A call takes a third of the processor time that aiohttp needs. A connection serves one request at a time and
is reused only after an answer that ended where it said it would, with nothing behind it.
"""

import asyncio
import base64
import re
import socket
import zlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, cast
from urllib.parse import quote, unquote, urlsplit

import httptools

if TYPE_CHECKING:
    import ssl

# Providers send a few kilobytes of headers.
LARGEST_HEAD_BYTES = 64 * 1024

# Load balancers close idle connections after a minute or more; most servers keep them longer than this.
IDLE_SECONDS = 15.0
ADDRESS_SECONDS = 300.0
"""How long the addresses of a host are cached."""

# Within it, a connection that ends before an answer was closed while idle; later, the server may have worked.
STALE_SECONDS = 1.0

# As RFC 8305 recommends: then the next address is tried in parallel.
NEXT_ADDRESS_SECONDS = 0.25
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
HEADER_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")
COMPRESSED = {"gzip": 16 + zlib.MAX_WBITS, "x-gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
"""`wbits` of zlib by content coding."""

SocketAddress = tuple[str, int]


class ResponseError(ConnectionError):
    """The server broke off, or its answer is not valid HTTP."""


class NoConnection(ConnectionError):
    """There is no connection to the server: nothing was sent."""


class ResponseTooLarge(Exception):
    """The answer exceeds the limit."""


class Headers(dict[str, str]):
    """Headers of a response by lower-case name; lookups ignore case."""

    def __getitem__(self, name: str) -> str:
        return super().__getitem__(name.lower())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and super().__contains__(name.lower())

    def get(self, name: str, default: str | None = None) -> str | None:  # type: ignore[override]
        """The value of a header, or `default`."""
        return super().get(name.lower(), default)


class Response(NamedTuple):
    """A complete answer, decompressed."""

    status: int
    headers: Headers
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimits:
    """In seconds."""

    total: float
    connect: float
    silence: float
    """Without a byte from the server."""


class PostTarget:
    """Where to post, with the head of the request prepared; `ValueError` for a malformed URL or header."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("the URL is not one of a web server")
        self.headers = headers
        self.is_secure = parts.scheme == "https"
        host = parts.hostname
        self.host = host if host.isascii() else host.encode("idna").decode()
        self.port = parts.port or (443 if self.is_secure else 80)
        self.origin = (self.is_secure, self.host, self.port)
        path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~")
        query = "?" + quote(parts.query, safe="/%:@!$&'()*+,;=~?") if parts.query else ""
        authority = f"[{self.host}]" if ":" in self.host else self.host
        if parts.port is not None:
            authority += f":{parts.port}"
        lines = {"Host": authority, "Accept": "*/*", "Accept-Encoding": "gzip, deflate"}
        if parts.username is not None:
            if any(name.lower() == "authorization" for name in headers):
                raise ValueError("the URL contains a password beside the header Authorization")
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            lines["Authorization"] = "Basic " + base64.b64encode(user.encode()).decode()
        own_names = {name.lower() for name in headers}
        if own_names & {"content-length", "transfer-encoding", "connection"}:
            raise ValueError("a header that the client sets itself")
        fields = [(name, value) for name, value in lines.items() if name.lower() not in own_names]
        head = [f"POST {path}{query} HTTP/1.1"]
        for name, value in [*fields, *headers.items()]:
            # A line break in a key would add a header, or a request.
            if not HEADER_NAME.fullmatch(name) or not HEADER_VALUE.fullmatch(value):
                raise ValueError("a header is malformed")
            head.append(f"{name}: {value}")
        if not HEADER_VALUE.fullmatch(authority) or " " in authority:
            raise ValueError("the host is malformed")
        self._head = "\r\n".join([*head, "Content-Length: "]).encode()

    def request(self, body: bytes) -> bytes:
        return b"%b%d\r\n\r\n%b" % (self._head, len(body), body)


class HttpClient:
    """A pool of connections. Use it on one event loop; close it at the end.

    The number of connections is not limited: the callers limit concurrency.
    """

    def __init__(
        self, limits: TimeLimits, *, largest_body_bytes: int, tls: "ssl.SSLContext | None" = None
    ) -> None:
        """`tls`: None for the certificate authorities of this machine."""
        self._limits = limits
        self._largest_body_bytes = largest_body_bytes
        self._loop = asyncio.get_running_loop()
        self._idle: dict[tuple[bool, str, int], deque[_HttpConnection]] = {}
        self._connections: set[_HttpConnection] = set()
        self._addresses: dict[tuple[str, int], tuple[float, asyncio.Future[list[SocketAddress]]]] = {}
        if tls is not None:
            self._tls = tls

    @cached_property
    def _tls(self) -> "ssl.SSLContext":
        # Reading the certificates takes 40 ms, which calls to this machine need not spend.
        import ssl

        context = ssl.create_default_context()
        context.set_alpn_protocols(["http/1.1"])
        return context

    async def post(self, target: PostTarget, body: bytes) -> Response:
        """Send `body`, and return the answer whatever its status is.

        Raises `NoConnection` when nothing was sent, and another `OSError` (`ResponseError`, `TimeoutError`)
        when there is no answer. A reused connection that ends at once was closed while idle: another one is
        used.
        """
        request = target.request(body)
        deadline = self._loop.time() + self._limits.total
        connection = self._take_idle(target)
        if connection is not None:
            try:
                return await self._exchange(connection, target, request, deadline)
            except ResponseError:
                if not connection.was_stale:
                    raise
        connection = await self._connect(target)
        return await self._exchange(connection, target, request, deadline)

    async def _exchange(
        self, connection: "_HttpConnection", target: PostTarget, request: bytes, deadline: float
    ) -> Response:
        try:
            response = await connection.send(request, deadline)
        except BaseException:
            connection.abort()
            raise
        if connection.is_reusable:
            connection.idle_since = self._loop.time()
            self._idle[target.origin].append(connection)
        else:
            connection.abort()
        return response

    async def close(self) -> None:
        for connection in list(self._connections):
            connection.close()
        self._idle.clear()
        # Lets the transports close their sockets, after the close_notify of TLS.
        await asyncio.sleep(0)
        for connection in list(self._connections):
            connection.abort()

    def _take_idle(self, target: PostTarget) -> "_HttpConnection | None":
        idle = self._idle.get(target.origin)
        if idle is None:
            idle = self._idle[target.origin] = deque()
        if not idle:
            return None
        oldest = self._loop.time() - IDLE_SECONDS
        while idle and idle[0].idle_since < oldest:
            idle.popleft().close()
        while idle:
            connection = idle.pop()
            if not connection.is_closing:
                return connection
        return None

    async def _connect(self, target: PostTarget) -> "_HttpConnection":
        seconds = min(self._limits.connect, self._limits.total)
        try:
            async with asyncio.timeout(seconds):
                return await self._connect_to_any(target)
        except TimeoutError as cause:
            raise NoConnection(f"no connection to {target.host} within {seconds:g} s") from cause
        except OSError as cause:
            raise NoConnection(str(cause) or type(cause).__name__) from cause

    async def _connect_to_any(self, target: PostTarget) -> "_HttpConnection":
        """Connect to the first address that answers; a further one is tried when an earlier one is slow."""
        addresses = await self._resolve(target.host, target.port)
        if len(addresses) == 1:
            return await self._connect_to(target, addresses[0])
        waiting, failures = deque(addresses), list[OSError]()
        running: dict[asyncio.Task[_HttpConnection], SocketAddress] = {}
        try:
            while waiting or running:
                if waiting:
                    address = waiting.popleft()
                    running[asyncio.create_task(self._connect_to(target, address))] = address
                done, _ = await asyncio.wait(
                    running,
                    timeout=NEXT_ADDRESS_SECONDS if waiting else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for task in done:
                    address = running.pop(task)
                    failure = task.exception()
                    if failure is None:
                        # Further connections begin with the address that answered.
                        addresses.remove(address)
                        addresses.insert(0, address)
                        return task.result()
                    if not isinstance(failure, OSError):
                        raise failure
                    failures.append(failure)
        finally:
            for task in running:
                task.cancel()
                task.add_done_callback(_abort_late_connection)
        raise failures[0]

    async def _connect_to(self, target: PostTarget, address: SocketAddress) -> "_HttpConnection":
        def new_connection() -> _HttpConnection:
            return _HttpConnection(
                self._loop, self._connections, self._limits.silence, self._largest_body_bytes
            )

        if not target.is_secure:
            return (await self._loop.create_connection(new_connection, *address))[1]
        import ssl

        try:
            _, connection = await self._loop.create_connection(
                new_connection, *address, ssl=self._tls, server_hostname=target.host
            )
        except ssl.SSLCertVerificationError as cause:
            # It is a ValueError as well, and would pass as a malformed URL.
            raise NoConnection(f"the certificate of {target.host} is not valid: {cause}") from cause
        return connection

    async def _resolve(self, host: str, port: int) -> list[SocketAddress]:
        """The addresses of a host, IPv6 and IPv4 in turn; looked up once for concurrent calls."""
        now = self._loop.time()
        expires, lookup = self._addresses.get((host, port), (0.0, None))
        if lookup is None or expires < now or (lookup.done() and lookup.exception()):
            lookup = asyncio.ensure_future(self._look_up(host, port))
            self._addresses[host, port] = now + ADDRESS_SECONDS, lookup
        # A call that is cancelled does not cancel the lookup of the others.
        return await asyncio.shield(lookup)

    async def _look_up(self, host: str, port: int) -> list[SocketAddress]:
        entries = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        families: dict[int, list[SocketAddress]] = {}
        for family, _, _, _, address in entries:
            families.setdefault(family, []).append((str(address[0]), int(address[1])))
        turns = [list(dict.fromkeys(addresses)) for addresses in families.values()]
        most = max(map(len, turns), default=0)
        return [addresses[turn] for turn in range(most) for addresses in turns if turn < len(addresses)]


def _abort_late_connection(task: "asyncio.Task[_HttpConnection]") -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().abort()


class _HttpConnection(asyncio.Protocol):
    """One connection. httptools calls its methods `on_…` while it reads an answer."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connections: "set[_HttpConnection]",
        silence_seconds: float,
        largest_body_bytes: int,
    ) -> None:
        self._loop = loop
        self._connections = connections
        self._silence_seconds = silence_seconds
        self._largest_body_bytes = largest_body_bytes
        self._parser = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[Response] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._has_answered = False
        """Whether an answer was complete before the current request."""
        self.idle_since = 0.0
        self.is_reusable = False
        self.was_stale = False
        """Whether it ended before the first byte of an answer, after an earlier answer."""

    # The current exchange

    def send(self, request: bytes, deadline: float) -> "asyncio.Future[Response]":
        """Send a request; its answer. The caller aborts the connection after an exception."""
        if self.is_closing:
            self.was_stale = self._has_answered
            raise ResponseError("the server closed the connection")
        self._status = 0
        self._raw_headers: list[tuple[bytes, bytes]] = []
        self._headers = Headers()
        self._body: list[bytes] = []
        self._size = self._head_size = 0
        self._in_head, self._until_end, self._is_complete = True, False, False
        self.is_reusable = False
        self._deadline, self._sent_at = deadline, self._loop.time()
        self._last_byte = self._sent_at
        answer: asyncio.Future[Response] = self._loop.create_future()
        self._answer = answer
        self._transport.write(request)
        if self._timer is None:
            # A reused connection still has a timer, which re-arms itself if it fires too early.
            self._set_timer()
        return answer

    @property
    def is_closing(self) -> bool:
        """Whether it has ended, or is about to."""
        return self._transport.is_closing()

    def close(self) -> None:
        """Close it after what is being sent."""
        self._transport.close()

    def abort(self) -> None:
        """Close it at once."""
        self._transport.abort()

    def _set_timer(self) -> None:
        due = min(self._deadline, self._last_byte + self._silence_seconds)
        self._timer = self._loop.call_at(due, self._check_time)

    def _check_time(self) -> None:
        self._timer = None
        if self._answer is None:
            return
        now = self._loop.time()
        if now >= self._deadline:
            self._fail(TimeoutError("the answer was not complete in time"))
        elif now >= self._last_byte + self._silence_seconds:
            self._fail(TimeoutError(f"nothing arrived for {self._silence_seconds:g} s"))
        else:
            self._set_timer()

    def _fail(self, error: Exception) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(error)
        self._transport.abort()

    def _finish(self) -> None:
        answer, self._answer = self._answer, None
        self._has_answered = True
        if answer is None or answer.done():
            return
        try:
            body = b"".join(self._body) if len(self._body) != 1 else self._body[0]
            coding = dict.get(self._headers, "content-encoding")
            if coding and body:
                body = _decompressed(body, coding, self._largest_body_bytes)
        except (ResponseError, ResponseTooLarge) as error:
            answer.set_exception(error)
        else:
            answer.set_result(Response(self._status, self._headers, body))

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        if self._answer is None:
            # Not an answer to a request: the next answer could not be distinguished from it.
            self._transport.abort()
            return
        self._last_byte = self._loop.time()
        if self._in_head:
            self._head_size += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.is_reusable = False
            # The answer is complete when only data after it is invalid.
            if not self._is_complete:
                self._fail(ResponseError(f"the answer is not valid HTTP: {error}"))
                return
        if self._size > self._largest_body_bytes:
            self._fail(ResponseTooLarge())
        elif self._is_complete:
            self._finish()
        elif self._in_head and self._head_size > LARGEST_HEAD_BYTES:
            self._fail(ResponseError(f"the headers exceed {LARGEST_HEAD_BYTES >> 10} KiB"))

    def eof_received(self) -> None:
        if self._answer is not None and self._until_end:
            self._finish()

    def connection_lost(self, error: Exception | None) -> None:
        self._connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._answer is not None:
            is_early = self._loop.time() < self._sent_at + STALE_SECONDS
            self.was_stale = self._has_answered and not self._head_size and is_early
            when = "before" if not self._head_size else "in the middle of"
            reason = f": {error}" if error is not None and str(error) else ""
            self._fail(ResponseError(f"the server closed the connection {when} its answer{reason}"))

    # Called by httptools

    def on_message_begin(self) -> None:
        if self._is_complete:
            # A second answer to one request.
            self.is_reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_complete:
            self._raw_headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._is_complete:
            return
        self._status = self._parser.get_status_code()
        if self._status < 200:
            return
        self._in_head = False
        headers = dict[str, str]()
        for name, value in self._raw_headers:
            key, text = name.decode("latin-1").lower(), value.decode("utf-8", "surrogateescape")
            headers[key] = f"{headers[key]}, {text}" if key in headers else text
        self._headers = Headers(headers)
        self._until_end = (
            "content-length" not in headers
            and "transfer-encoding" not in headers
            and self._status not in (204, 304)
        )

    def on_body(self, data: bytes) -> None:
        if not self._is_complete:
            self._size += len(data)
            if self._size <= self._largest_body_bytes:
                self._body.append(data)

    def on_message_complete(self) -> None:
        if self._is_complete:
            return
        if self._status < 200:
            # 100 Continue and 103 Early Hints precede the answer.
            self._raw_headers.clear()
            return
        self._is_complete = True
        # An answer may come before the request was read; its rest would follow on the connection.
        self.is_reusable = self._parser.should_keep_alive() and not self._transport.get_write_buffer_size()


def _decompressed(body: bytes, coding: str, largest_bytes: int) -> bytes:
    """The body without its content coding. `ResponseTooLarge` before a small answer fills the memory."""
    for name in reversed([part.strip().lower() for part in coding.split(",")]):
        if name == "identity":
            continue
        if name not in COMPRESSED:
            raise ResponseError(f"the answer has an unknown content coding: {name[:40]}")
        wbits = COMPRESSED[name]
        if name == "deflate" and (body[0] & 0x0F) != 8:
            # Some servers send it without the header of zlib.
            wbits = -zlib.MAX_WBITS
        parts, size = list[bytes](), 0
        try:
            while body:
                # A gzip body may have several members.
                stream = zlib.decompressobj(wbits)
                parts.append(stream.decompress(body, largest_bytes - size + 1))
                size += len(parts[-1])
                if size > largest_bytes:
                    raise ResponseTooLarge
                if not stream.eof:
                    raise ResponseError("the compressed answer is incomplete")
                body = stream.unused_data
        except zlib.error as error:
            raise ResponseError(f"the compressed answer is damaged: {error}") from error
        body = b"".join(parts)
    return body


def proxy_of(url: str, environment: Mapping[str, str]) -> str | None:
    """The proxy that the environment names for this URL; None: it is called directly."""
    parts = urlsplit(url)
    proxies = {name.lower(): value for name, value in environment.items() if name.lower().endswith("_proxy")}
    proxy = proxies.get(f"{parts.scheme}_proxy") or proxies.get("all_proxy")
    if not proxy:
        return None
    host = (parts.hostname or "").lower()
    for entry in proxies.get("no_proxy", "").lower().split(","):
        name, port = entry.strip().lstrip("."), ""
        if name.count(":") == 1:
            name, _, port = name.partition(":")
        is_host = name == "*" or (name and (host == name or host.endswith(f".{name}")))
        if is_host and (not port or port == str(parts.port)):
            return None
    return proxy if "://" in proxy else f"http://{proxy}"
