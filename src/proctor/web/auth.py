"""Authentication and request checks: token, cookies, `Host` and `Origin`.

Every request is checked before its body is read: pages of other sites must not trigger actions (cross-site
requests, DNS rebinding), and without the token nothing is disclosed. Routes with their own authentication are
exempt from the token only.
"""

import asyncio
import math
import re
from collections.abc import Callable, Iterable, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address
from urllib.parse import parse_qs, parse_qsl, quote, urlencode, urlsplit, urlunsplit

from fastapi import APIRouter, Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proctor.web.access import (
    ADMIN,
    CHECKS,
    LOCAL,
    RECORD,
    ROLES,
    VIEW,
    Principal,
    RequestRecord,
)
from proctor.web.responses import HEADERS, page
from proctor.web.state import AppState

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
MOST_BODY_BYTES = 16 * 1024 * 1024
"""Larger than the largest plan; bodies are read into memory."""
BODY_SECONDS, BODY_BYTES_PER_SECOND = 30.0, 10_000
"""A body may take the first, and a second more for each of the second. No client is that slow."""
PUBLIC = ("/login", "/static/", "/favicon.ico")
"""Paths that need no token: the login page."""
_ESCAPED_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


class RequestGuard:
    """ASGI middleware that checks every request: caller, role, origin, size and time."""

    def __init__(
        self, app: ASGIApp, site: AppState, routes: Sequence[BaseRoute], exempt: Sequence[BaseRoute] = ()
    ) -> None:
        """`exempt` routes authenticate their callers themselves."""
        self._app = app
        self._site = site
        self._access = site.access
        self._routes = routes
        self._exempt = exempt

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or reject it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        scope = _below_root(forwarded(scope, self._site.proxies), self._site.root_path)
        record = RequestRecord(address=(scope.get("client") or ("",))[0])
        scope[RECORD] = record

        def audit(status: int) -> None:
            if record.action and record.principal:
                self._access.audit.write(
                    record.principal,
                    action=record.action,
                    address=record.address,
                    target=scope["path"],
                    status=status,
                )

        exchange = _RequestChannels(receive, send, root_path=self._site.root_path, responding=audit)
        response = self._refusal(scope, record)
        if response is None and scope["type"] == "http" and not self._is_exempt(scope):
            response = await _buffered(exchange)
        try:
            if response is None:
                await self._app(scope, exchange.receive, exchange.send)
            elif scope["type"] == "websocket":
                code = 4401 if response.status_code == 401 else 4403
                await send({"type": "websocket.close", "code": code})
            else:
                await response(scope, exchange.receive, exchange.send)
        except Exception:
            if not exchange.has_status:
                # It becomes a response outside of this middleware.
                audit(500)
            raise

    def _is_exempt(self, scope: Scope) -> bool:
        return any(route.matches(scope)[0] is Match.FULL for route in self._exempt)

    def _refusal(self, scope: Scope, record: RequestRecord) -> Response | None:
        headers = Headers(scope=scope)
        if "\0" in scope["path"] or _has_nul(scope["query_string"]):
            return refused(400, "the address contains a NUL character")
        if self._access.is_open and _name(headers.get("host", "")) not in self._site.hosts:
            return refused(
                403, "this server is not known by that name", "Call it by localhost, or give it a token."
            )
        if not _is_from_here(scope, headers):
            return refused(403, "a page of another site asked for this", "Use the pages of this server.")
        if self._is_exempt(scope):
            return None
        return self._denial(scope, headers, record) or _too_large(headers)

    def _denial(self, scope: Scope, headers: Headers, record: RequestRecord) -> Response | None:
        """The response to a caller without a token, or without the role that the route needs."""
        if scope["path"].startswith(PUBLIC):
            return None
        if self._access.is_open:
            record.principal = Principal(LOCAL, ADMIN)
        else:
            record.principal = self._access.find_cookie(headers.get("cookie", ""))
        if record.principal is None and (denial := self._check_bearer(scope, headers, record)):
            return denial
        if record.principal is None:
            return self._without_token(scope, record)
        name = self._route_name(scope)
        role = ROLES.get(name, VIEW)
        if role != VIEW and name not in CHECKS:
            record.action = name
        if record.principal.has(role):
            return None
        return refused(
            403,
            f"this needs the role `{role}`; {record.principal.name} has the role `{record.principal.role}`",
            "Ask the person who runs this server for another token.",
        )

    def _check_bearer(self, scope: Scope, headers: Headers, record: RequestRecord) -> Response | None:
        authorization = headers.get("authorization", "")
        if not authorization:
            return None
        if wait := self._access.guesses.seconds_to_wait(record.address):
            return too_many_guesses(wait)
        presented = authorization.removeprefix("Bearer ").strip()
        record.principal = self._access.find_token(presented)
        if record.principal is None:
            self._access.note_wrong(record.address, presented, f"token for {scope['path']}")
        return None

    def _route_name(self, scope: Scope) -> str:
        method = scope["method"] if scope["type"] == "http" else "WEBSOCKET"
        method = "GET" if method == "HEAD" else method
        for route in self._routes:
            if route.matches(scope)[0] is Match.FULL:
                return f"{method} {getattr(route, 'path', '')}"
        # Nothing is there.
        return ""

    def _without_token(self, scope: Scope, record: RequestRecord) -> Response:
        """For pages: with the token in the URL, set the cookie and redirect; otherwise, to the login page."""
        path = scope["path"]
        if path.startswith("/api") or scope["type"] == "websocket" or scope["method"] not in SAFE_METHODS:
            return refused(401, "this server wants a token", "Send it: Authorization: Bearer TOKEN.")
        query = parse_qsl(scope["query_string"].decode("latin-1"))
        presented = dict(query).get("token", "")
        rest = [(name, value) for name, value in query if name != "token"]
        here = inside(quote(path) + (f"?{urlencode(rest)}" if rest else ""))
        if not presented:
            return RedirectResponse(f"/login?next={quote(here, safe='')}", status_code=303)
        if wait := self._access.guesses.seconds_to_wait(record.address):
            return too_many_guesses(wait)
        principal = self._access.find_token(presented)
        if principal is None:
            self._access.note_wrong(record.address, presented, SIGN_IN)
            return RedirectResponse(f"/login?next={quote(here, safe='')}", status_code=303)
        record.principal, record.action = principal, SIGN_IN
        response = RedirectResponse(here, status_code=303)
        set_cookie(response, self._site, principal, is_secure=scope["scheme"] == "https")
        return response


class _RequestChannels:
    """The two channels of a request: limits the time of its body, adds headers to the response."""

    def __init__(
        self, receive: Receive, send: Send, *, root_path: str, responding: Callable[[int], None]
    ) -> None:
        """`responding` is called with the status before the response is sent."""
        self._receive, self._send, self._root_path = receive, send, root_path
        self._responding = responding
        self._deadline = asyncio.get_running_loop().time() + BODY_SECONDS
        self._body: bytes | None = None
        self._is_complete = False
        self.is_late = False
        self.has_status = False

    async def receive(self) -> Message:
        """The next message; a disconnect when the body comes too slowly."""
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        if self._is_complete:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            self.is_late = self._is_complete = True
            return {"type": "http.disconnect"}
        self._deadline += len(message.get("body", b"")) / BODY_BYTES_PER_SECOND
        self._is_complete = message["type"] != "http.request" or not message.get("more_body")
        return message

    async def buffer(self) -> bytes | None:
        """Read the whole body, and keep it for `receive`; None: the client has gone, or is too slow."""
        parts: list[bytes] = []
        while not self._is_complete:
            message = await self.receive()
            if message["type"] != "http.request":
                return None
            parts.append(message.get("body", b""))
        self._body = b"".join(parts)
        return self._body

    async def send(self, message: Message) -> None:
        """Send, with the headers of every response."""
        if message["type"] == "http.response.start":
            self.has_status = True
            self._responding(message["status"])
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            if not headers.get("cache-control"):
                # Responses change all the time, and may be confidential.
                headers["cache-control"] = "no-store"
            if location := headers.get("location"):
                headers["location"] = self._root_path + _on_this_server(location)
            if self.is_late:
                # The rest of the body would be read as the next request.
                headers["connection"] = "close"
        await self._send(message)


async def _buffered(exchange: _RequestChannels) -> Response | None:
    """Read the body of a request; a response if it cannot be accepted."""
    body = await exchange.buffer()
    if body is None:
        return refused(408, "the body took too long to arrive", "Send it again.")
    if _ESCAPED_NUL.search(body) or b"\0" in body:
        return refused(400, "the body contains a NUL character")
    return None


def forwarded(scope: Scope, proxies: Sequence[IPv4Network | IPv6Network]) -> Scope:
    """The request as the client sent it to a trusted proxy: address, scheme and host."""
    client = (scope.get("client") or ("", 0))[0]
    if not _is_trusted(client, proxies):
        return scope
    headers = Headers(scope=scope)
    changed: Scope = dict(scope)
    hops = [each.strip() for each in headers.get("x-forwarded-for", "").split(",") if each.strip()]
    # From the right: a client can forge everything left of the last untrusted address.
    while len(hops) > 1 and _is_trusted(hops[-1], proxies):
        hops.pop()
    if hops:
        changed["client"] = (hops[-1], 0)
    scheme = headers.get("x-forwarded-proto", "").strip().lower()
    if scheme in ("http", "https"):
        secure = scheme == "https"
        changed["scheme"] = scheme if scope["type"] == "http" else ("wss" if secure else "ws")
    if host := headers.get("x-forwarded-host", "").partition(",")[0].strip():
        others = [(name, value) for name, value in scope["headers"] if name != b"host"]
        changed["headers"] = [*others, (b"host", host.encode("latin-1", "replace"))]
    return changed


def _is_trusted(address: str, proxies: Sequence[IPv4Network | IPv6Network]) -> bool:
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    return any(parsed in network for network in proxies)


def _below_root(scope: Scope, root: str) -> Scope:
    """The request without the root path, whether or not the proxy has removed it."""
    path, raw = scope["path"], scope.get("raw_path") or b""
    if not root:
        return scope
    if path == root or path.startswith(f"{root}/"):
        path, raw = path[len(root) :] or "/", raw[len(quote(root)) :] or b"/"
    return {**scope, "path": path, "raw_path": raw}


def too_many_guesses(seconds: float) -> JSONResponse:
    """The response to an address that tries tokens."""
    wait = max(1, math.ceil(seconds))
    response = refused(429, "too many wrong tokens from this address", f"Wait {wait} s.")
    response.headers["retry-after"] = str(wait)
    return response


def refused(status: int, problem: str, remedy: str = "") -> JSONResponse:
    """An error response."""
    return JSONResponse({"error": {"problem": problem, "remedy": remedy}}, status_code=status)


def set_cookie(response: Response, site: AppState, principal: Principal, *, is_secure: bool) -> None:
    """Set the login cookie."""
    response.set_cookie(
        site.access.cookie_name,
        site.access.cookie_for(principal),
        httponly=True,
        samesite="strict",
        secure=is_secure,
        path=site.root_path or "/",
        max_age=30 * 24 * 3600,
    )


def _name(host: str) -> str:
    """The host name in a `Host` header, without the port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _is_from_here(scope: Scope, headers: Headers) -> bool:
    """Whether a request is safe, same-origin, or not from a browser."""
    if scope["type"] == "http" and scope["method"] in SAFE_METHODS:
        return True
    if origin := headers.get("origin"):
        try:
            # The scheme is ignored: a proxy may terminate TLS.
            return urlsplit(origin).netloc.lower() == headers.get("host", "").lower()
        except ValueError:
            return False
    return headers.get("sec-fetch-site", "none") in ("same-origin", "none")


def _has_nul(query: bytes) -> bool:
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    # `by` is the name of a recorded factor, which may contain anything.
    return any("\0" in name + value for name, value in pairs if name != "by")


def _too_large(headers: Headers) -> Response | None:
    if headers.get("transfer-encoding"):
        return refused(411, "say how long the body is", "Send Content-Length.")
    length = headers.get("content-length", "0")
    if not length.isdigit() or int(length) > MOST_BODY_BYTES:
        return refused(413, f"a body may have {MOST_BODY_BYTES:,} bytes")
    return None


def own_names(hosts: Iterable[str]) -> frozenset[str]:
    """The host names accepted for a server on these addresses."""
    return frozenset({"localhost", "127.0.0.1", "::1", *(host.lower() for host in hosts)})


MOST_BYTES = 10_000
SIGN_IN = "sign in"


def router(site: AppState) -> APIRouter:
    """The login page."""
    routes = APIRouter(include_in_schema=False)

    @routes.get("/login")
    def show_login(request: Request, next: str = "/") -> Response:  # noqa: A002  the word in the address
        if site.access.is_open:
            return RedirectResponse("/", status_code=303)
        return page(request, "login.html", title="Sign in", next=inside(next), problem="")

    @routes.post("/login")
    async def sign_in(request: Request) -> Response:
        body = await request.body()
        form = parse_qs(body[:MOST_BYTES].decode("utf-8", "replace"))
        target = inside(form.get("next", ["/"])[0])
        presented = form.get("token", [""])[0].strip()
        record: RequestRecord = request.scope[RECORD]

        def again(status: int, problem: str) -> Response:
            return page(request, "login.html", title="Sign in", status=status, next=target, problem=problem)

        if wait := site.access.guesses.seconds_to_wait(record.address):
            response = again(429, f"Too many wrong tokens. Wait {math.ceil(wait)} s.")
            response.headers["retry-after"] = str(math.ceil(wait))
            return response
        principal = site.access.find_token(presented)
        if principal is None:
            site.access.note_wrong(record.address, presented, SIGN_IN)
            return again(401, "Invalid token.")
        record.principal, record.action = principal, SIGN_IN
        response = RedirectResponse(target, status_code=303)
        set_cookie(response, site, principal, is_secure=request.scope["scheme"] == "https")
        return response

    return routes


def _on_this_server(location: str) -> str:
    """The target of a redirect as a path: no redirect leads to another site, whatever a request contains."""
    parts = urlsplit(location)
    return inside(urlunsplit(("", "", parts.path, parts.query, parts.fragment)))


def inside(path: str) -> str:
    """A path on this server; anything else becomes `/`."""
    # Browsers read `//host` and `/\host` as another site.
    good = path.startswith("/") and path.isprintable() and "\\" not in path
    return path if good and not path.startswith("//") else "/"
