"""Checks of every request before a route sees it: bodies, headers, addresses, proxies, cookies, the login."""

import asyncio
import json
from ipaddress import ip_network
from typing import Any

import pytest
from starlette.datastructures import Headers
from starlette.responses import Response

from proctor.errors import KeyMissing, NotFound, ProctorError, StoreError, UsageError
from proctor.web import actions, auth, responses
from proctor.web.access import ADMIN, Principal
from proctor.web.auth import RequestGuard, _RequestChannels
from proctor.web.state import AppState

# Bodies


class Wire:
    """The other side of a request: what it sends, and what it is sent."""

    def __init__(self, *messages: Any) -> None:
        self.messages = list(messages)
        self.sent: list[Any] = []
        self.statuses: list[int] = []

    async def receive(self) -> Any:
        if not self.messages:
            await asyncio.Event().wait()
        return self.messages.pop(0)

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    def channels(self, root_path: str = "") -> _RequestChannels:
        return _RequestChannels(self.receive, self.send, root_path=root_path, responding=self.statuses.append)


def part(body: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


GONE = {"type": "http.disconnect"}


async def test_a_body_is_read_whole_and_handed_on_once() -> None:
    wire = Wire(part(b"a", more=True), part(b"b", more=True), {"type": "http.request"}, GONE)
    channels = wire.channels()
    assert await channels.buffer() == b"ab"
    assert await channels.receive() == part(b"ab")
    # What comes after the body is whatever the server says next.
    assert await channels.receive() == GONE
    assert not channels.is_late


async def test_a_body_is_also_read_part_by_part() -> None:
    channels = Wire(part(b"a", more=True), part(b"b"), GONE).channels()
    assert await channels.receive() == part(b"a", more=True)
    assert await channels.receive() == part(b"b")
    assert await channels.receive() == GONE


async def test_an_empty_body_is_a_body() -> None:
    channels = Wire({"type": "http.request"}).channels()
    assert await channels.buffer() == b""
    assert await channels.receive() == part(b"")


async def test_a_client_that_goes_leaves_no_body() -> None:
    channels = Wire(part(b"a", more=True), GONE).channels()
    assert await channels.buffer() is None
    response = await auth._buffered(Wire(GONE).channels())
    assert response is not None and response.status_code == 408
    assert json.loads(response.body) == {
        "error": {"problem": "the body took too long to arrive", "remedy": "Send it again."}
    }


async def test_a_body_that_comes_too_slowly_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "BODY_SECONDS", 0.01)
    wire = Wire(part(b"a", more=True))
    channels = wire.channels()
    assert await channels.buffer() is None and channels.is_late
    await channels.send({"type": "http.response.start", "status": 408, "headers": []})
    assert Headers(raw=wire.sent[0]["headers"])["connection"] == "close"


async def test_a_longer_body_may_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    channels = Wire(part(b"x" * 50_000, more=True)).channels()
    before = channels._deadline
    assert before == pytest.approx(asyncio.get_running_loop().time() + 30, abs=5)
    await channels.receive()
    assert channels._deadline - before == pytest.approx(5.0)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"plain", None),
        (b"a\0b", 400),
        (b'"\\u0000"', 400),
        (b'"\\\\u0000"', None),
        (b'"\\\\\\u0000"', 400),
    ],
)
async def test_a_nul_in_a_body_is_refused_and_its_escape_is_not(body: bytes, status: int | None) -> None:
    response = await auth._buffered(Wire(part(body)).channels())
    assert (response and response.status_code) == status
    if response is not None:
        assert json.loads(response.body)["error"]["problem"] == "the body contains a NUL character"


# Responses


async def sent_headers(*headers: tuple[str, str], root_path: str = "") -> Headers:
    wire = Wire()
    pairs = [(name.encode(), value.encode()) for name, value in headers]
    channels = wire.channels(root_path)
    await channels.send({"type": "http.response.start", "status": 201, "headers": pairs})
    assert channels.has_status and wire.statuses == [201]
    await channels.send({"type": "http.response.body", "body": b"x"})
    assert wire.sent[1] == {"type": "http.response.body", "body": b"x"} and wire.statuses == [201]
    return Headers(raw=wire.sent[0]["headers"])


async def test_every_response_has_the_headers_of_security() -> None:
    headers = await sent_headers()
    assert {name: headers[name] for name in responses.HEADERS} == responses.HEADERS
    assert headers["cache-control"] == "no-store" and "connection" not in headers
    assert headers["x-frame-options"] == "DENY" and headers["x-content-type-options"] == "nosniff"
    own = await sent_headers(("cache-control", "no-cache"), ("content-security-policy", "mine"))
    assert (own["cache-control"], own["content-security-policy"]) == ("no-cache", "mine")
    assert own.getlist("content-security-policy") == ["mine"]


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("/a?b=c#d", "/root/a?b=c#d"),
        ("http://elsewhere/a?b", "/root/a?b"),
        ("//elsewhere/a", "/root/a"),
        ("a", "/root/"),
    ],
)
async def test_a_redirect_stays_on_this_server_below_its_root(location: str, target: str) -> None:
    assert (await sent_headers(("location", location), root_path="/root"))["location"] == target
    assert "location" not in await sent_headers(root_path="/root")


@pytest.mark.parametrize(
    ("path", "inside"),
    [
        ("/", "/"),
        ("/a/b?c=d", "/a/b?c=d"),
        ("//host", "/"),
        ("/\\host", "/"),
        ("/a\\b", "/"),
        ("a", "/"),
        ("", "/"),
        ("/a\nb", "/"),
        ("http://host/", "/"),
    ],
)
def test_only_a_path_of_this_server_is_a_target(path: str, inside: str) -> None:
    assert auth.inside(path) == inside


@pytest.mark.parametrize(("seconds", "wait"), [(0.2, 1), (1.0, 1), (1.1, 2), (59.5, 60)])
def test_a_caller_who_guesses_is_told_how_long_to_wait(seconds: float, wait: int) -> None:
    response = auth.too_many_guesses(seconds)
    assert (response.status_code, response.headers["retry-after"]) == (429, str(wait))
    assert json.loads(response.body) == {
        "error": {"problem": "too many wrong tokens from this address", "remedy": f"Wait {wait} s."}
    }


@pytest.mark.parametrize(("is_secure", "root"), [(False, ""), (True, "/proctor")])
def test_the_cookie_of_a_login_lasts_thirty_days(site: AppState, is_secure: bool, root: str) -> None:
    from app_states import changed_state

    here = changed_state(site, token="t" * 32, root_path=root)
    response = Response()
    auth.set_cookie(response, here, Principal("proctor", ADMIN), is_secure=is_secure)
    name, *attributes = response.headers["set-cookie"].split("; ")
    assert name == f"{here.access.cookie_name}={here.access.cookie_for(Principal('proctor', ADMIN))}"
    expected = {"HttpOnly", "Max-Age=2592000", f"Path={root or '/'}", "SameSite=strict"}
    assert set(attributes) == expected | ({"Secure"} if is_secure else set())


# Addresses and proxies


PROXIES = [ip_network("10.0.0.0/8"), ip_network("::1/128")]


def scope(client: str | None = "10.0.0.1", kind: str = "http", **headers: str) -> dict[str, Any]:
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {
        "type": kind,
        "client": (client, 1) if client is not None else None,
        "scheme": "ws" if kind == "websocket" else "http",
        "headers": [(b"host", b"inner"), *pairs],
    }


@pytest.mark.parametrize(
    ("hops", "address"),
    [
        ("", "10.0.0.1"),
        ("1.2.3.4", "1.2.3.4"),
        ("5.6.7.8, 1.2.3.4", "1.2.3.4"),
        ("5.6.7.8, 1.2.3.4 , 10.1.1.1,", "1.2.3.4"),
        ("10.2.2.2, 10.1.1.1", "10.2.2.2"),
        ("1.2.3.4, nonsense", "nonsense"),
    ],
)
def test_the_client_is_the_last_address_that_is_no_proxy(hops: str, address: str) -> None:
    assert auth.forwarded(scope(x_forwarded_for=hops), PROXIES)["client"][0] == address
    for stranger in ("1.1.1.1", "nonsense", None):
        plain = scope(stranger, x_forwarded_for=hops)
        assert auth.forwarded(plain, PROXIES) is plain


@pytest.mark.parametrize(
    ("kind", "proto", "scheme"),
    [
        ("http", "https", "https"),
        ("http", " HTTPS ", "https"),
        ("http", "http", "http"),
        ("http", "gopher", "http"),
        ("http", "", "http"),
        ("websocket", "https", "wss"),
        ("websocket", "http", "ws"),
    ],
)
def test_a_proxy_says_whether_its_client_speaks_tls(kind: str, proto: str, scheme: str) -> None:
    assert auth.forwarded(scope(kind=kind, x_forwarded_proto=proto), PROXIES)["scheme"] == scheme


@pytest.mark.parametrize(
    ("given", "host"),
    [("", "inner"), ("outer", "outer"), (" outer:8443 , second", "outer:8443"), (",x", "inner")],
)
def test_a_proxy_says_by_which_name_it_was_called(given: str, host: str) -> None:
    changed = auth.forwarded(scope(x_forwarded_host=given, accept="x"), PROXIES)
    headers = Headers(scope=changed)
    assert headers.getlist("host") == [host] and headers["accept"] == "x"


@pytest.mark.parametrize(
    ("root", "path", "raw", "below"),
    [
        ("", "/a", b"/a", ("/a", b"/a")),
        ("/r", "/r/a", b"/r/a", ("/a", b"/a")),
        ("/r", "/r", b"/r", ("/", b"/")),
        ("/r", "/ra", b"/ra", ("/ra", b"/ra")),
        ("/r", "/a", b"/a", ("/a", b"/a")),
        ("/ä", "/ä/b", b"/%C3%A4/b", ("/b", b"/b")),
    ],
)
def test_the_root_path_is_no_part_of_the_address(root: str, path: str, raw: bytes, below: Any) -> None:
    found = auth._below_root({"path": path, "raw_path": raw}, root)
    assert (found["path"], found["raw_path"]) == below


@pytest.mark.parametrize(
    ("host", "name"),
    [("localhost:80", "localhost"), ("LOCALHOST", "localhost"), ("[::1]:80", "::1"), ("", ""), ("[x", "")],
)
def test_the_name_of_a_host_has_no_port(host: str, name: str) -> None:
    assert auth._name(host) == name


def test_a_server_is_known_by_the_names_of_this_machine_and_its_own() -> None:
    assert auth.own_names(["Example.ORG"]) == {"localhost", "127.0.0.1", "::1", "example.org"}


@pytest.mark.parametrize(
    ("method", "headers", "is_here"),
    [
        ("GET", {"origin": "http://else"}, True),
        ("HEAD", {"origin": "http://else"}, True),
        ("OPTIONS", {"sec-fetch-site": "cross-site"}, True),
        ("POST", {}, True),
        ("POST", {"origin": "https://HERE:80"}, True),
        ("POST", {"origin": "http://here"}, False),
        ("POST", {"origin": "null"}, False),
        ("POST", {"origin": "http://[x"}, False),
        ("POST", {"sec-fetch-site": "same-origin"}, True),
        ("POST", {"sec-fetch-site": "none"}, True),
        ("POST", {"sec-fetch-site": "same-site"}, False),
        ("DELETE", {"sec-fetch-site": "cross-site"}, False),
        ("WEBSOCKET", {"origin": "http://else"}, False),
        ("WEBSOCKET", {"origin": "http://here:80"}, True),
    ],
)
def test_a_page_of_another_site_may_only_read(method: str, headers: Any, is_here: bool) -> None:
    found = {"type": "websocket"} if method == "WEBSOCKET" else {"type": "http", "method": method}
    assert auth._is_from_here(found, Headers({"host": "here:80", **headers})) is is_here


@pytest.mark.parametrize(
    ("query", "has_nul"),
    [
        ("a=b", False),
        ("a=%00", True),
        ("%00=a", True),
        ("by=%00", False),
        ("by=x&a=%00", True),
        ("%00", True),
    ],
)
def test_a_nul_may_stand_in_the_name_of_a_factor_alone(query: str, has_nul: bool) -> None:
    assert auth._has_nul(query.encode()) is has_nul


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, None),
        ({"content-length": "16777216"}, None),
        ({"content-length": "16777217"}, 413),
        ({"content-length": "-1"}, 413),
        ({"content-length": ""}, 413),
        ({"transfer-encoding": "chunked"}, 411),
    ],
)
def test_the_length_of_a_body_is_known_and_limited(headers: Any, status: int | None) -> None:
    response = auth._too_large(Headers(headers))
    assert (response and response.status_code) == status
    if status == 413:
        assert b"a body may have 16,777,216 bytes" in bytes(response.body)  # type: ignore[union-attr]


# The login, and errors of the whole server


def answer_of(app: Any, path: str, method: str = "GET", body: bytes = b"", **headers: str) -> Any:
    """Status, headers and body of one request to an application, without a server."""
    wire = Wire(part(body))
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    address, _, query = path.partition("?")
    request = {
        "type": "http",
        "method": method,
        "path": address,
        "raw_path": address.encode(),
        "query_string": query.encode(),
        "headers": [(b"host", b"localhost"), *pairs],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "scheme": "http",
        "root_path": "",
        "http_version": "1.1",
    }
    asyncio.run(app(request, wire.receive, wire.send))
    found = b"".join(each.get("body", b"") for each in wire.sent[1:])
    return wire.sent[0]["status"], Headers(raw=wire.sent[0]["headers"]), found


@pytest.fixture
def made(site: AppState) -> Any:
    from app_states import changed_state

    from proctor.web.app import create_app

    return lambda **changes: create_app(changed_state(site, **changes))


def test_a_server_that_knows_no_token_has_no_login(made: Any) -> None:
    status, headers, _ = answer_of(made(), "/login?next=/new")
    assert (status, headers["location"]) == (303, "/")


def test_a_wrong_token_is_asked_for_again_and_guesses_have_to_wait(made: Any) -> None:
    app = made(token="t" * 32)
    status, _, page = answer_of(app, "/login?next=/new%3Fa=b")
    assert status == 200 and b'value="/new?a=b"' in page and b"Invalid token" not in page
    for number in range(6):
        status, headers, page = answer_of(app, "/login", "POST", b"token=wrong%d&next=/new" % number)
        assert status == 401 and b"Invalid token." in page and b'value="/new"' in page
        assert "set-cookie" not in headers
    status, headers, page = answer_of(app, "/login", "POST", b"token=" + b"t" * 32)
    assert (status, headers["retry-after"]) == (429, "1") and b"Too many wrong tokens. Wait 1 s." in page
    status, headers, _ = answer_of(app, "/api/runs", authorization="Bearer " + "t" * 32)
    assert (status, headers["retry-after"]) == (429, "1")
    status, headers, _ = answer_of(app, "/?token=" + "t" * 32)
    assert status == 429


def test_whoever_signs_in_gets_a_cookie_and_goes_on(made: Any) -> None:
    app = made(token="t" * 32)
    status, headers, _ = answer_of(app, "/login", "POST", b"token=%20" + b"t" * 32 + b"%20&next=/new")
    assert (status, headers["location"]) == (303, "/new")
    cookie = headers["set-cookie"].partition(";")[0]
    assert answer_of(app, "/new", cookie=cookie)[0] == 200
    status, headers, _ = answer_of(app, "/login", "POST", b"token=" + b"t" * 32)
    assert (status, headers["location"]) == (303, "/")
    status, headers, _ = answer_of(app, "/new?a=b&token=" + "t" * 32)
    assert (status, headers["location"]) == (303, "/new?a=b") and "set-cookie" in headers
    status, headers, _ = answer_of(app, "/new?a=b&token=wrong")
    assert (status, headers["location"]) == (
        303,
        "/login?next=%2Fnew%3Fa%3Db",
    ) and "set-cookie" not in headers
    status, headers, _ = answer_of(app, "/new")
    assert (status, headers["location"]) == (303, "/login?next=%2Fnew")
    for path, method in (("/api/runs", "GET"), ("/new", "POST")):
        status, _, body = answer_of(app, path, method)
        assert (status, json.loads(body)["error"]) == (
            401,
            {"problem": "this server wants a token", "remedy": "Send it: Authorization: Bearer TOKEN."},
        )


@pytest.mark.parametrize(
    ("error", "status", "detail"),
    [
        (NotFound("no x\nLook."), 404, {"problem": "no x", "remedy": "Look."}),
        (UsageError("wrong\nFix."), 400, {"problem": "wrong", "remedy": "Fix."}),
        (StoreError("gone\nWait."), 503, {"problem": "gone", "remedy": "Wait."}),
        (KeyMissing("no key"), 503, {"problem": "no key", "remedy": ""}),
        (ProctorError("failed"), 502, {"problem": "failed", "remedy": ""}),
        (
            OSError(28, "No space left on device", "/x"),
            500,
            {
                "problem": "operating system error at /x: No space left on device",
                "remedy": "Check that Proctor's home exists, is writable, and has free space.",
            },
        ),
    ],
)
def test_the_status_of_each_kind_of_error(made: Any, error: Exception, status: int, detail: Any) -> None:
    app = made()

    def fail() -> None:
        raise error

    app.router.add_api_route("/api/fail", fail)
    found, _, body = answer_of(app, "/api/fail", accept="text/html")
    assert (found, json.loads(body)) == (status, {"error": detail})
    app.router.add_api_route("/fail", fail)
    found, headers, body = answer_of(app, "/fail", accept="text/html,*/*")
    assert found == status and headers["content-type"].startswith("text/html")
    assert (b"Not found" in body) is (status == 404)
    assert (b"That did not work" in body) is (status != 404)


@pytest.mark.parametrize(
    ("path", "method", "status", "detail"),
    [
        (
            "/api/none",
            "GET",
            404,
            {
                "problem": "there is nothing at /api/none",
                "remedy": "The HTTP interface is documented at /api/docs.",
            },
        ),
        (
            "/api/runs",
            "PUT",
            405,
            {
                "problem": "/api/runs does not take PUT",
                "remedy": "The HTTP interface is documented at /api/docs.",
            },
        ),
    ],
)
def test_an_address_or_method_that_is_not_there(
    made: Any, path: str, method: str, status: int, detail: Any
) -> None:
    found, headers, body = answer_of(made(), path, method)
    assert (found, json.loads(body)) == (status, {"error": detail})
    if status == 405:
        assert headers["allow"]


def test_parameters_that_do_not_fit_are_named(made: Any) -> None:
    status, _, body = answer_of(made(), "/api/evaluations?limit=x&offset=-1")
    problem = json.loads(body)["error"]["problem"]
    assert status == 422 and problem.startswith("query.limit: ") and "; query.offset: " in problem


@pytest.mark.parametrize(
    ("document", "messages", "message"),
    [
        ({"error": "in the document"}, "proctor: other", "in the document"),
        ({}, "note\nproctor: first\nproctor: no plan\n", "no plan"),
        ({}, " only a message \n", "only a message"),
        ({}, "", ""),
        ({"error": ""}, "x" * 2001, "x" * 2000),
    ],
)
def test_why_a_command_failed(document: Any, messages: str, message: str) -> None:
    assert actions.error_message(document, messages) == message


def test_requests_of_other_kinds_are_passed_on(site: AppState) -> None:
    passed: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        passed.append(scope)

    guard = RequestGuard(app, site, routes=[])
    asyncio.run(guard({"type": "lifespan"}, None, None))  # type: ignore[arg-type]
    assert passed == [{"type": "lifespan"}]
