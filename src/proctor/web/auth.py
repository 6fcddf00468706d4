"""Authentication and request checks: token, cookies, AWS signatures, `Host` and `Origin`.

Every request is checked before its body is read: pages of other sites must not trigger actions (cross-site
requests, DNS rebinding), and without the token nothing is disclosed. Routes with their own authentication are
exempt from the token only.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, parse_qsl, quote, unquote, urlencode, urlsplit

from fastapi import APIRouter, Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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


TOKEN_KEY_ID = "proctor"
"""The access key ID whose secret is the server's token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceGuard:
    """Authenticates by signature or bearer token; accepts everybody if neither is configured."""

    token: str
    access_keys: Mapping[str, str]

    def admit(
        self, request: SignedRequest, *, service: str, bearer_status: int, now: datetime
    ) -> Signature | None:
        """Raise for an unauthenticated caller; the signature to check once the body is read."""
        if not self.token and not self.access_keys:
            return None
        authorization = request.headers.get("authorization", "")
        if authorization.startswith("Bearer "):
            self._check_bearer(authorization.removeprefix("Bearer ").strip(), bearer_status)
            return None
        if not authorization:
            raise SignatureRefused(
                "MissingAuthenticationTokenException", "The request has no Authorization header."
            )
        secrets = {TOKEN_KEY_ID: self.token} if self.token else {}
        return signature_of(request, {**secrets, **self.access_keys}, service=service, now=now)

    def _check_bearer(self, presented: str, status: int) -> None:
        known = self.token.encode("utf-8", "replace")
        if known and hmac.compare_digest(presented.encode("utf-8", "replace"), known):
            return
        refused: type[WireError] = UnauthorizedException if status == 401 else AccessDeniedException
        raise refused("The bearer token is not the one this server knows.")


SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
MOST_BODY_BYTES = 16 * 1024 * 1024
"""Larger than the largest plan; bodies are read into memory."""
PUBLIC = ("/login", "/static/", "/favicon.ico")
"""Paths that need no token: the login page."""


class RequestGuard:
    """ASGI middleware that checks every request."""

    def __init__(self, app: ASGIApp, site: AppState, exempt: Sequence[BaseRoute] = ()) -> None:
        self._app = app
        self._site = site
        self._exempt = exempt

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or reject it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is None:
            await self._app(scope, receive, _with_headers(send))
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 4401 if refusal.status_code == 401 else 4403})
        else:
            await refusal(scope, receive, _with_headers(send))

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if not self._site.token and _name(headers.get("host", "")) not in self._site.hosts:
            return refused(
                403, "this server is not known by that name", "Call it by localhost, or give it a token."
            )
        if not _is_from_here(scope, headers):
            return refused(403, "a page of another site asked for this", "Use the pages of this server.")
        if any(route.matches(scope)[0] is Match.FULL for route in self._exempt):
            return None
        return self._without_token(scope, headers) or _too_large(headers)

    def _without_token(self, scope: Scope, headers: Headers) -> Response | None:
        path = scope["path"]
        if not self._site.token or path.startswith(PUBLIC):
            return None
        bearer = headers.get("authorization", "").removeprefix("Bearer ").strip()
        if is_token(bearer, self._site.token) or has_cookie(headers, self._site.token):
            return None
        if path.startswith("/api") or scope["type"] == "websocket" or scope["method"] not in SAFE_METHODS:
            return refused(401, "this server wants a token", "Send it: Authorization: Bearer TOKEN.")
        return self._login_redirect(scope)

    def _login_redirect(self, scope: Scope) -> Response:
        """For pages: with the token in the URL, set the cookie and redirect; otherwise, to the login page."""
        path, query = scope["path"], parse_qsl(scope["query_string"].decode("latin-1"))
        presented = dict(query).get("token", "")
        rest = [(name, value) for name, value in query if name != "token"]
        here = quote(path) + (f"?{urlencode(rest)}" if rest else "")
        if not is_token(presented, self._site.token):
            return RedirectResponse(f"/login?next={quote(here, safe='')}", status_code=303)
        response = RedirectResponse(here, status_code=303)
        set_cookie(response, self._site.token)
        return response


def refused(status: int, problem: str, remedy: str = "") -> JSONResponse:
    """An error response."""
    return JSONResponse({"error": {"problem": problem, "remedy": remedy}}, status_code=status)


def is_token(presented: str, token: str) -> bool:
    """Whether this is the token; compared in constant time."""
    return hmac.compare_digest(presented.encode("utf-8", "replace"), token.encode("utf-8", "replace"))


def has_cookie(headers: Mapping[str, str], token: str) -> bool:
    """Whether the request has the login cookie."""
    try:
        cookies = SimpleCookie(headers.get("cookie", ""))
    except CookieError:
        return False
    cookie = cookies.get(_cookie_name(token))
    return cookie is not None and is_token(cookie.value, _cookie_value(token))


def set_cookie(response: Response, token: str) -> None:
    """Set the login cookie: a digest of the token, not the token."""
    response.set_cookie(
        _cookie_name(token), _cookie_value(token), httponly=True, samesite="strict", max_age=30 * 24 * 3600
    )


def _cookie_name(token: str) -> str:
    # Cookies are shared across ports: servers on one machine need different names.
    return f"proctor-{_digest(token, 'name')[:8]}"


def _cookie_value(token: str) -> str:
    return _digest(token, "value")


def _digest(token: str, purpose: str) -> str:
    return hmac.new(token.encode(), f"proctor cookie {purpose}".encode(), hashlib.sha256).hexdigest()


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


def _too_large(headers: Headers) -> Response | None:
    if headers.get("transfer-encoding"):
        return refused(411, "say how long the body is", "Send Content-Length.")
    length = headers.get("content-length", "0")
    if not length.isdigit() or int(length) > MOST_BODY_BYTES:
        return refused(413, f"a body may have {MOST_BODY_BYTES:,} bytes")
    return None


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            if not headers.get("cache-control"):
                # Responses change all the time, and may be confidential.
                headers["cache-control"] = "no-store"
        await send(message)

    return sending


def own_names(hosts: Iterable[str]) -> frozenset[str]:
    """The host names accepted for a server on these addresses."""
    return frozenset({"localhost", "127.0.0.1", "::1", *(host.lower() for host in hosts)})


MOST_BYTES = 10_000


def router(site: AppState) -> APIRouter:
    """The login page."""
    routes = APIRouter(include_in_schema=False)

    @routes.get("/login")
    def ask(request: Request, next: str = "/") -> Response:  # noqa: A002  the word in the address
        if not site.token:
            return RedirectResponse("/", status_code=303)
        return page(request, "login.html", title="Sign in", next=_inside(next), refused=False)

    @routes.post("/login")
    async def enter(request: Request) -> Response:
        body = await request.body()
        form = parse_qs(body[:MOST_BYTES].decode("utf-8", "replace"))
        target = _inside(form.get("next", ["/"])[0])
        if not site.token or not is_token(form.get("token", [""])[0].strip(), site.token):
            return page(request, "login.html", title="Sign in", status=401, next=target, refused=True)
        response = RedirectResponse(target, status_code=303)
        set_cookie(response, site.token)
        return response

    return routes


def _inside(path: str) -> str:
    """A path on this server; anything else becomes `/`."""
    good = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if good else "/"
