"""Authentication and request checks: token, cookies, AWS signatures, `Host` and `Origin`.

Every request is checked before its body is read: pages of other sites must not trigger actions (cross-site
requests, DNS rebinding), and without the token nothing is disclosed. Routes with their own authentication are
exempt from the token only.
"""

import asyncio
import hashlib
import hmac
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Network, IPv6Network, ip_address
from urllib.parse import parse_qs, parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

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
    AccessControl,
    Principal,
    RequestRecord,
)
from proctor.web.agentcore.errors import (
    AccessDeniedException,
    SignatureRefused,
    UnauthorizedException,
    WireError,
)
from proctor.web.responses import HEADERS, page
from proctor.web.state import AppState

ALGORITHM = "AWS4-HMAC-SHA256"
CLOCKS_DIFFER_AT_MOST = timedelta(minutes=15)
UNRESERVED = "-_.~"
_FIELDS = re.compile(
    rf"{ALGORITHM} +Credential=(?P<key>[^/,\s]+)/(?P<day>\d{{8}})/(?P<region>[^/,\s]+)/(?P<service>[^/,\s]+)"
    r"/aws4_request, *SignedHeaders=(?P<headers>[^,\s]+), *Signature=(?P<signature>[0-9a-f]{64})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedRequest:
    """The parts of a raw request that a signature covers."""

    method: str
    path: str
    """Percent-encoded, as sent."""
    query: str
    headers: Mapping[str, str]
    """By lower-case name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """An AWS Signature Version 4: well-formed, recent, with a known access key."""

    request: SignedRequest
    key_id: str
    secret: str
    day: str
    region: str
    service: str
    signed_headers: str
    stamp: str
    signature: str

    def check(self, body: bytes) -> None:
        """Raise unless the signature matches the request and this body."""
        expected = hmac.new(self._signing_key(), self._string_to_sign(body).encode(), hashlib.sha256)
        if not hmac.compare_digest(expected.hexdigest(), self.signature):
            raise SignatureRefused(
                "InvalidSignatureException",
                "The request signature we calculated does not match the signature you provided. "
                "Check the secret access key, and that nothing altered the request on its way.",
            )

    def _signing_key(self) -> bytes:
        key = f"AWS4{self.secret}".encode()
        for part in (self.day, self.region, self.service, "aws4_request"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        return key

    def _string_to_sign(self, body: bytes) -> str:
        scope = f"{self.day}/{self.region}/{self.service}/aws4_request"
        canonical = hashlib.sha256(self._canonical_request(body).encode()).hexdigest()
        return "\n".join((ALGORITHM, self.stamp, scope, canonical))

    def _canonical_request(self, body: bytes) -> str:
        request = self.request
        headers = [
            f"{name}:{' '.join(request.headers.get(name, '').split())}"
            for name in self.signed_headers.split(";")
        ]
        # Always the hash of the received body: unsigned payloads are not accepted.
        payload = hashlib.sha256(body).hexdigest()
        lines = (request.method, _canonical_path(request.path), _canonical_query(request.query))
        return "\n".join((*lines, *headers, "", self.signed_headers, payload))


def signature_of(
    request: SignedRequest, secrets: Mapping[str, str], *, service: str, now: datetime
) -> Signature:
    """Read the signature of a request; raises if it is invalid whatever the body is."""
    fields = _FIELDS.fullmatch(request.headers.get("authorization", "").strip())
    if fields is None:
        raise SignatureRefused(
            "IncompleteSignatureException", f"The Authorization header is no {ALGORITHM} signature."
        )
    secret = _secret_of(fields["key"], secrets)
    stamp = request.headers.get("x-amz-date", "")
    _check_time(stamp, fields["day"], now)
    if fields["service"] != service:
        raise SignatureRefused(
            "InvalidSignatureException",
            f"Credential should be scoped to correct service: '{service}'.",
        )
    signed = fields["headers"].lower().split(";")
    if not {"host", "x-amz-date"} <= set(signed):
        raise SignatureRefused(
            "InvalidSignatureException", "The headers 'host' and 'x-amz-date' must be signed."
        )
    return Signature(
        request=request,
        key_id=fields["key"],
        secret=secret,
        day=fields["day"],
        region=fields["region"],
        service=fields["service"],
        signed_headers=fields["headers"].lower(),
        stamp=stamp,
        signature=fields["signature"],
    )


def _secret_of(key_id: str, secrets: Mapping[str, str]) -> str:
    # In constant time, so that the duration does not reveal key IDs.
    secret = ""
    for known, value in secrets.items():
        if hmac.compare_digest(known.encode(), key_id.encode()):
            secret = value
    if not secret:
        raise SignatureRefused(
            "UnrecognizedClientException", "The security token included in the request is invalid."
        )
    return secret


def _check_time(stamp: str, day: str, now: datetime) -> None:
    try:
        signed_at = datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        raise SignatureRefused(
            "IncompleteSignatureException", "The X-Amz-Date header must be written as 20261115T055720Z."
        ) from None
    if not stamp.startswith(day):
        raise SignatureRefused(
            "InvalidSignatureException", "Date in Credential scope does not match X-Amz-Date."
        )
    if now - signed_at > CLOCKS_DIFFER_AT_MOST:
        raise SignatureRefused(
            "InvalidSignatureException",
            f"Signature expired: {stamp} is more than 15 minutes before {now:%Y%m%dT%H%M%SZ}.",
        )
    if signed_at - now > CLOCKS_DIFFER_AT_MOST:
        raise SignatureRefused(
            "InvalidSignatureException",
            f"Signature not yet current: {stamp} is more than 15 minutes after {now:%Y%m%dT%H%M%SZ}.",
        )


def _canonical_path(path: str) -> str:
    # Encoded twice, as the algorithm requires: %3A becomes %253A.
    return quote(path or "/", safe=f"/{UNRESERVED}")


def _canonical_query(query: str) -> str:
    pairs = [part.partition("=") for part in query.split("&") if part]
    encoded = [(_normalized(name), _normalized(value)) for name, _, value in pairs]
    return "&".join(f"{name}={value}" for name, value in sorted(encoded))


def _normalized(text: str) -> str:
    return quote(unquote(text), safe=UNRESERVED)


def admit(
    access: AccessControl, request: SignedRequest, *, service: str, bearer_status: int, now: datetime
) -> tuple[Principal, Signature | None]:
    """Authenticate by bearer token or signature; the caller, and the signature to check with the body.

    Everybody is accepted if neither tokens nor access keys are configured.
    """
    if not access.signs:
        return Principal(LOCAL, ADMIN), None
    authorization = request.headers.get("authorization", "")
    if authorization.startswith("Bearer "):
        if principal := access.find_token(authorization.removeprefix("Bearer ").strip()):
            return principal, None
        refusal: type[WireError] = UnauthorizedException if bearer_status == 401 else AccessDeniedException
        raise refusal("The bearer token is not the one this server knows.")
    if not authorization:
        raise SignatureRefused(
            "MissingAuthenticationTokenException", "The request has no Authorization header."
        )
    known = access.signing_secrets
    secrets = {key_id: secret for key_id, (secret, _) in known.items()}
    signature = signature_of(request, secrets, service=service, now=now)
    return known[signature.key_id][1], signature


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
            if record.act and record.principal:
                self._access.audit.write(
                    record.principal,
                    act=record.act,
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
            record.act = name
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
        record.principal, record.act = principal, SIGN_IN
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
    changed: Scope = {**scope}
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
        record.principal, record.act = principal, SIGN_IN
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
