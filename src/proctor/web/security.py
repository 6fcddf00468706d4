"""Who may call, and what a browser may do with the answers.

Every request passes here before anything of it is read. A page of another site must not be able to make
this one act (its `Origin` is not ours, its `Host` may be a name that was pointed here), a caller without
the token learns nothing where there is one, and no page of ours runs a script that is not a file of ours.

Routes that tell callers apart by themselves (by signature, by bearer) are exempt from the token, never
from the rest.

Knows nothing of what the routes do.
"""

import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proctor.web.site import Site

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
"""On every answer. A route that sends a document of its own may set another policy, which then stays."""
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
MOST_BODY_BYTES = 16 * 1024 * 1024
"""Larger than the largest plan; what a page sends has to fit into memory."""
PUBLIC = ("/login", "/static/", "/favicon.ico")
"""What may be seen without the token: how to give it."""


class Guard:
    """Stands before all routes."""

    def __init__(self, app: ASGIApp, site: Site, exempt: Sequence[BaseRoute] = ()) -> None:
        self._app = app
        self._site = site
        self._exempt = exempt

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer in the routes' place."""
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
        return self._welcome(scope)

    def _welcome(self, scope: Scope) -> Response:
        """A page was asked for: with the token in its address it opens, without that address."""
        path, query = scope["path"], parse_qsl(scope["query_string"].decode("latin-1"))
        shown = dict(query).get("token", "")
        rest = [(name, value) for name, value in query if name != "token"]
        here = quote(path) + (f"?{urlencode(rest)}" if rest else "")
        if not is_token(shown, self._site.token):
            return RedirectResponse(f"/login?next={quote(here, safe='')}", status_code=303)
        response = RedirectResponse(here, status_code=303)
        set_cookie(response, self._site.token)
        return response


def refused(status: int, problem: str, remedy: str = "") -> JSONResponse:
    """An answer that says why not, in the shape all our errors have."""
    return JSONResponse({"error": {"problem": problem, "remedy": remedy}}, status_code=status)


def is_token(shown: str, token: str) -> bool:
    """Whether this is the token, in a time that does not tell how near it was."""
    return hmac.compare_digest(shown.encode("utf-8", "replace"), token.encode("utf-8", "replace"))


def has_cookie(headers: Mapping[str, str], token: str) -> bool:
    """Whether the browser has shown the token before."""
    try:
        cookies = SimpleCookie(headers.get("cookie", ""))
    except CookieError:
        return False
    found = cookies.get(_cookie_name(token))
    return found is not None and is_token(found.value, _cookie_value(token))


def set_cookie(response: Response, token: str) -> None:
    """Let this browser in from now on. The cookie proves the token and does not hold it."""
    response.set_cookie(
        _cookie_name(token), _cookie_value(token), httponly=True, samesite="strict", max_age=30 * 24 * 3600
    )


def _cookie_name(token: str) -> str:
    # Cookies know no ports: two servers on one machine must not throw each other's away.
    return f"proctor-{_digest(token, 'name')[:8]}"


def _cookie_value(token: str) -> str:
    return _digest(token, "value")


def _digest(token: str, purpose: str) -> str:
    return hmac.new(token.encode(), f"proctor cookie {purpose}".encode(), hashlib.sha256).hexdigest()


def _name(host: str) -> str:
    """The name in a `Host` header, without its port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _is_from_here(scope: Scope, headers: Headers) -> bool:
    """Whether a request that may change something comes from a page of ours, or from no page at all."""
    if scope["type"] == "http" and scope["method"] in SAFE_METHODS:
        return True
    if origin := headers.get("origin"):
        try:
            # Not the scheme: behind a proxy that encrypts, ours is another.
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
                # What pages show changes all the time, and some of it is secret.
                headers["cache-control"] = "no-store"
        await send(message)

    return sending


def own_names(hosts: Iterable[str]) -> frozenset[str]:
    """The names a server on these addresses is rightly called by."""
    return frozenset({"localhost", "127.0.0.1", "::1", *(host.lower() for host in hosts)})
