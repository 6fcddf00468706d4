"""Access control: tokens with roles, the role of every route, slowed guesses, and the audit log.

Every route has an entry in `ROLES`; the application does not start when one is missing. Tokens are compared
in constant time and never stored or logged.
"""

import hashlib
import hmac
import ipaddress
import json
import logging
import os
import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from http.cookies import CookieError, SimpleCookie
from pathlib import Path

from starlette.routing import BaseRoute

from proctor.api.deprecated import OLD_NAMES_OF_AUDIT_ENTRIES, with_old_names
from proctor.config import ROLES_IN_ORDER, SHORTEST_TOKEN, ServeToken
from proctor.json_values import JsonMap, JsonObject, as_map, parse_json, timestamp
from proctor.secrets import open_private, private_folder

VIEW, LABEL, RUN, ADMIN = ROLES_IN_ORDER
MAIN = "proctor"
"""Name of the server's own token, whose role is admin; also its access key ID for signed requests."""
LOCAL = "local"
"""Name of every caller of a server without tokens."""
_log = logging.getLogger("proctor.web")

_ROUTES: Mapping[str, Sequence[str]] = {
    VIEW: (
        "GET /",
        "GET /new",
        "GET /compare",
        "GET /compare/sessions",
        "GET /models",
        "GET /settings",
        "GET /tasks",
        "GET /playground",
        "GET /api/tasks/history",
        "GET /api/datasets",
        "GET /api/datasets/{dataset_id}/examples",
        "GET /api/datasets/{dataset_id}/plan",
        "GET /runs/{run_id}",
        "GET /runs/{run_id}/items/{item_id}",
        "GET /sessions",
        "GET /sessions/{session_id}",
        "GET /api/sessions",
        "GET /api/session-ids",
        "GET /dashboard",
        "GET /api/session-trend",
        "GET /api/session-compare",
        "GET /labeling",
        "GET /api/labeling",
        "GET /api/labeling/progress",
        "GET /api/session-export",
        "GET /api/session-filters",
        "GET /evaluations",
        "GET /evaluations/new",
        "GET /evaluations/{evaluation_id}",
        "GET /style/charts.css",
        "GET /api/docs",
        "GET /api/openapi.json",
        "WEBSOCKET /api/live",
        "GET /api/runs",
        "GET /api/runs/{run_id}",
        "GET /api/runs/{run_id}/plan",
        "GET /api/runs/{run_id}/items",
        "GET /api/runs/{run_id}/charts",
        "GET /api/runs/{run_id}/export",
        "GET /api/runs/{run_id}/results",
        "GET /api/runs/{run_id}/report",
        "GET /api/runs/{run_id}/analysis",
        "GET /api/runs/{run_id}/neighbors",
        "GET /api/runs/{run_id}/levels",
        "GET /api/runs/{run_id}/failures",
        "GET /api/runs/{run_id}/matrix",
        "GET /api/runs/{run_id}/questions",
        "GET /api/runs/{run_id}/signatures",
        "GET /api/sessions/{session_id}",
        "GET /api/sessions/{session_id}/prompt",
        "POST /api/highlighted",
        "GET /api/sessions/{session_id}/events",
        "GET /api/sessions/{session_id}/search",
        "GET /api/sessions/{session_id}/calls",
        "GET /api/sessions/{session_id}/texts/{position}/{part}",
        "GET /api/sessions/{session_id}/steps/{step}/{part}",
        "GET /api/sessions/{session_id}/output",
        "GET /api/sessions/{session_id}/turns",
        "GET /api/sessions/{session_id}/spans",
        "GET /api/sessions/{session_id}/spans/{trace_id}/{span_id}",
        "GET /api/sessions/{session_id}/charts",
        "GET /api/sessions/{session_id}/diff",
        "GET /api/sessions/{session_id}/labels",
        "GET /api/sessions/{session_id}/annotations",
        "GET /api/tags",
        "GET /api/search",
        "GET /api/sessions/{session_id}/outline",
        "GET /api/compare",
        "GET /api/compare/report",
        "GET /api/compare/items",
        "GET /api/compare/counts",
        "GET /api/runs/{run_id}/matrix/items",
        "GET /review",
        "GET /api/review",
        "GET /trends",
        "GET /api/trends",
        "GET /api/trends/line",
        "GET /api/evaluations",
        "GET /api/evaluations/{evaluation_id}",
        "GET /api/evaluations/evaluators",
        "GET /api/evaluations/sources",
        "GET /api/evaluations/{evaluation_id}/sessions",
        "GET /api/evaluations/{evaluation_id}/sessions/{session_id}",
        "GET /api/evaluations/{evaluation_id}/records",
        "GET /api/evaluations/{evaluation_id}/report",
        "GET /api/judges",
        "GET /api/drift",
        "GET /api/plans/examples",
        "GET /api/plans/jobs",
        "GET /api/settings",
    ),
    LABEL: (
        "POST /api/labeling",
        "POST /api/test-cases",
        "POST /api/test-cases/from-sessions",
        "POST /api/sessions/{session_id}/labels",
        "POST /api/runs/{run_id}/questions/{question_id}",
        "POST /api/sessions/{session_id}/annotations",
        "POST /api/annotations",
        "POST /api/session-filters/{name}",
        "DELETE /api/session-filters/{name}",
        "DELETE /api/sessions/{session_id}/annotations/{annotation_id}",
    ),
    RUN: (
        # Reading a plan opens the files that it names, and may import code.
        "POST /api/plans/check",
        "POST /api/plans/validate",
        "POST /api/runs",
        "POST /api/tables",
        "POST /api/runs/{run_id}/abort",
        "POST /api/runs/{run_id}/resume",
        "POST /api/runs/{run_id}/retry",
        "POST /api/sessions/{session_id}/merge",
        "POST /api/sessions/{session_id}/discard",
        "POST /api/sessions/{session_id}/continue",
        "POST /api/sessions/{session_id}/messages",
        "POST /api/sessions/{session_id}/stop",
        "POST /api/evaluations",
        "POST /api/evaluations/files",
        "POST /api/evaluations/check",
        "POST /api/evaluations/preview",
        "POST /api/evaluations/truth",
        "POST /api/evaluations/{evaluation_id}/stop",
        "DELETE /api/datasets/{dataset_id}/examples/{example_id}",
        # They start programs.
        "GET /api/models",
        "GET /api/agents",
        "POST /api/trials",
        "GET /api/tasks",
    ),
    ADMIN: ("DELETE /api/runs/{run_id}", "DELETE /api/evaluations/{evaluation_id}", "GET /api/audit"),
}
ROLES: Mapping[str, str] = {route: role for role, routes in _ROUTES.items() for route in routes}
"""The role that each route needs."""
PUBLIC_ROUTES = frozenset({"GET /login", "POST /login"})
"""Routes that need no token."""
CHECKS = frozenset(
    {
        "POST /api/plans/check",
        "POST /api/plans/validate",
        "POST /api/evaluations/check",
        "POST /api/evaluations/preview",
        "POST /api/evaluations/truth",
        "GET /api/models",
        "GET /api/agents",
    }
)
"""Routes that change nothing; not in the audit log."""


def route_names(route: BaseRoute) -> list[str]:
    """`METHOD /path` for each method of a route."""
    methods = getattr(route, "methods", None) or ["WEBSOCKET"]
    return [f"{method} {getattr(route, 'path', '')}" for method in sorted(methods) if method != "HEAD"]


def check_roles(routes: Sequence[BaseRoute]) -> None:
    """Raise for routes without a role: a new route must be closed until somebody decides who may call it."""
    names = [name for route in routes for name in route_names(route)]
    missing = [name for name in names if name not in ROLES and name not in PUBLIC_ROUTES]
    if missing:
        raise LookupError(f"routes without a role in proctor.web.access: {', '.join(missing)}")


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller."""

    name: str
    role: str

    def has(self, role: str) -> bool:
        """Whether the caller's role includes this one."""
        return ROLES_IN_ORDER.index(self.role) >= ROLES_IN_ORDER.index(role)


@dataclass(slots=True)
class RequestRecord:
    """Properties of a request while it is handled."""

    address: str
    principal: Principal | None = None
    action: str = ""
    """Its entry in the audit log; empty: none."""


RECORD = "proctor.request"
"""Key of the `RequestRecord` in the scope of a request."""


def role_of(scope: Mapping[str, object]) -> str:
    """The role of the caller of a request; the lowest, if nobody has signed in."""
    record = scope.get(RECORD)
    return record.principal.role if isinstance(record, RequestRecord) and record.principal else VIEW


def person_of(scope: Mapping[str, object]) -> str:
    """The name of the caller's token; empty if the server's own token, or none, was used: it names nobody."""
    record = scope.get(RECORD)
    principal = record.principal if isinstance(record, RequestRecord) else None
    return principal.name if principal and principal.name not in (MAIN, LOCAL) else ""


class AccessControl:
    """The tokens of one server."""

    def __init__(
        self,
        *,
        token: str,
        tokens: Sequence[ServeToken] = (),
        access_keys: Mapping[str, str] | None = None,
        audit: "AuditLog",
        monotonic: Callable[[], float],
    ) -> None:
        """`token` is the server's own; empty: everybody has the role admin."""
        self.is_open = not token
        self._token = token
        main = [ServeToken(name=MAIN, role=ADMIN, token=token)] if token else []
        # Without its own token the server has no secret to sign the cookies with.
        self._tokens = [*main, *(tokens if token else ())]
        self._access_keys = dict(access_keys or {})
        self.audit = audit
        self.guesses = GuessLimiter(monotonic)

    @property
    def signs(self) -> bool:
        """Whether requests to the AWS-compatible interface need a signature or a token."""
        return bool(self._tokens or self._access_keys)

    @property
    def signing_secrets(self) -> Mapping[str, tuple[str, Principal]]:
        """Secret and caller, by access key ID. Tokens of which only the hash is known cannot sign."""
        named = {each.name: (each.token, _principal(each)) for each in self._tokens if each.token}
        keys = {name: (secret, Principal(name, ADMIN)) for name, secret in self._access_keys.items()}
        return {**named, **keys}

    def find_token(self, presented: str) -> Principal | None:
        """The caller with this token. All tokens are compared, in constant time."""
        digest = _sha256(presented)
        match: Principal | None = None
        for token in self._tokens:
            if hmac.compare_digest(digest, token.sha256 or _sha256(token.token)):
                match = _principal(token)
        return match if presented else None

    def find_cookie(self, header: str) -> Principal | None:
        """The caller with this login cookie."""
        try:
            cookie = SimpleCookie(header).get(self.cookie_name)
        except CookieError:
            return None
        value = cookie.value.encode("utf-8", "replace") if cookie is not None else b""
        match: Principal | None = None
        for token in self._tokens:
            if hmac.compare_digest(value, self._cookie_value(token).encode()):
                match = _principal(token)
        return match

    @property
    def cookie_name(self) -> str:
        # Cookies are shared across ports: servers on one machine need different names.
        return f"proctor-{self._digest('name')[:8]}"

    def cookie_for(self, principal: Principal) -> str:
        """The login cookie of a caller: it reveals no token, and cannot be made from the hash of one."""
        return next(self._cookie_value(each) for each in self._tokens if each.name == principal.name)

    def _cookie_value(self, token: ServeToken) -> str:
        return self._digest("value", token.name, token.role, token.sha256 or _sha256(token.token))

    def _digest(self, *purpose: str) -> str:
        text = json.dumps(["proctor cookie", *purpose])
        return hmac.new(self._token.encode(), text.encode(), hashlib.sha256).hexdigest()

    def note_wrong(self, address: str, presented: str, action: str) -> None:
        """Count a wrong token or signature."""
        guesses = self.guesses.fail(address, presented)
        if guesses:
            self.audit.write(Principal("", ""), action=action, address=address, status=401, guesses=guesses)


def _principal(token: ServeToken) -> Principal:
    return Principal(token.name, token.role)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


FREE_GUESSES = 5
"""Wrong tokens of one address before it has to wait."""
LONGEST_WAIT_SECONDS = 60.0
FORGET_SECONDS = 900.0
MOST_ADDRESSES = 10_000


@dataclass(slots=True)
class _Guesses:
    count: int = 0
    recent: deque[str] = field(default_factory=lambda: deque(maxlen=16))
    """Hashes of recent wrong tokens."""
    blocked_until: float = 0.0
    last: float = 0.0


class GuessLimiter:
    """Makes an address that tries different tokens wait: 1 s, 2 s, 4 s, … up to a minute.

    The same wrong token again does not count: it is a client with an old token, not a guess.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._by_network: dict[str, _Guesses] = {}

    def seconds_to_wait(self, address: str) -> float:
        """How long this address must wait before its next token is looked at."""
        with self._lock:
            entry = self._by_network.get(_network(address))
        return max(0.0, entry.blocked_until - self._monotonic()) if entry else 0.0

    def fail(self, address: str, presented: str) -> int:
        """Count a wrong token; the number of guesses so far, 0 for one that was counted before."""
        now, digest = self._monotonic(), _sha256(presented)
        with self._lock:
            entry = self._by_network.pop(_network(address), _Guesses())
            if now - entry.last > FORGET_SECONDS:
                entry = _Guesses()
            # Again at the end: the first entry is the oldest.
            self._by_network[_network(address)] = entry
            while len(self._by_network) > MOST_ADDRESSES:
                self._by_network.pop(next(iter(self._by_network)))
            entry.last = now
            if digest in entry.recent:
                return 0
            entry.recent.append(digest)
            entry.count += 1
            if entry.count > FREE_GUESSES:
                wait = min(LONGEST_WAIT_SECONDS, 2.0 ** min(entry.count - FREE_GUESSES - 1, 16))
                entry.blocked_until = now + wait
            return entry.count


def _network(address: str) -> str:
    """The address, or the /64 network of an IPv6 address: one machine has all addresses of it."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(ipaddress.ip_network((parsed, 64), strict=False)) if parsed.version == 6 else address


MOST_AUDIT_BYTES = 16 * 1024 * 1024
"""A larger audit log is renamed to `audit.1.jsonl`, which replaces the one before."""
LONGEST_TARGET = 500


class AuditLog:
    """JSON lines in a file that only the server's user can read: who did what, with which result."""

    def __init__(self, path: Path, now: Callable[[], datetime]) -> None:
        self._path, self._now = path, now
        self._lock = threading.Lock()

    def write(
        self,
        principal: Principal,
        *,
        action: str,
        address: str,
        status: int,
        target: str = "",
        guesses: int = 0,
    ) -> None:
        """Append a line. A log that cannot be written is reported, and stops nothing."""
        entry: JsonObject = {
            "at": timestamp(self._now()),
            "who": principal.name,
            "role": principal.role,
            "from": address,
            "action": action,
            "target": target[:LONGEST_TARGET],
            "status": status,
        }
        if guesses:
            entry["guesses"] = guesses
        try:
            with self._lock:
                self._append(json.dumps(with_old_names(entry, OLD_NAMES_OF_AUDIT_ENTRIES)).encode() + b"\n")
        except OSError as error:
            _log.error("cannot write the audit log %s: %s", self._path, error.strerror)

    def _append(self, line: bytes) -> None:
        private_folder(self._path.parent)
        if self._path.exists() and self._path.stat().st_size > MOST_AUDIT_BYTES:
            self._path.replace(self._path.with_suffix(".1.jsonl"))
        with open(self._path, "ab", opener=open_private) as file:
            file.write(line)

    def latest(self, limit: int) -> list[JsonMap]:
        """The newest entries, newest first."""
        entries: list[JsonMap] = []
        for line in self._lines():
            # A line that was cut short by a full disk is skipped.
            with suppress(ValueError):
                entry = as_map(parse_json(line))
                # Lines of earlier releases have no `action`.
                entries.append({"action": entry.get("act"), **entry})
            if len(entries) >= limit:
                break
        return entries

    def _lines(self) -> Iterator[bytes]:
        for path in (self._path, self._path.with_suffix(".1.jsonl")):
            if path.is_file():
                yield from reversed(path.read_bytes().splitlines())


def stored_token(folder: Path) -> str:
    """The token of this home: made at the first start, and kept, so that open pages and exporters survive a
    restart. Only the user can read the file; deleting it makes a new token at the next start. In a home that
    cannot be written, each start has a new one."""
    try:
        return _stored_token(folder)
    except OSError as error:
        _log.warning("the token of the server is not kept: %s", error)
        return secrets.token_urlsafe(32)


def _stored_token(folder: Path) -> str:
    path = private_folder(folder) / "token"
    if path.is_file():
        token = path.read_text(encoding="utf-8").strip()
        if len(token) >= SHORTEST_TOKEN and not path.stat().st_mode & 0o077:
            return token
        # Unusable, or others may have read it.
        path.unlink(missing_ok=True)
    draft = folder / f"token-{secrets.token_hex(8)}"
    try:
        with open(draft, "x", encoding="utf-8", opener=open_private) as file:
            file.write(f"{secrets.token_urlsafe(32)}\n")
        # Whole or not at all: of two servers that start at once, both use the token of the first.
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink(missing_ok=True)
    return path.read_text(encoding="utf-8").strip()
