"""Who may call the server, and what a browser may do with its answers."""

import contextlib
import http.client
import re
import socket
from urllib.parse import urlencode, urlsplit

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from proctor.cli import serve as serve_command
from proctor.web import auth
from waiting import TIME_LIMIT_SECONDS

TOKEN = "seven-horses-and-a-half"
PAGES = ("/", "/new", "/models", "/settings", "/api/docs", "/compare", "/evaluations", "/nowhere")


def test_every_answer_forbids_scripts_that_are_not_files_of_ours(shared):
    for path in (*PAGES, "/api/runs", "/api/openapi.json", "/static/app.js", "/api/nowhere"):
        policy = shared.get(path, accept="text/html").headers["content-security-policy"]

        assert "default-src 'none'" in policy, path
        assert "script-src 'self'" in policy, path
        assert "unsafe" not in policy, path


def test_a_page_of_another_site_cannot_make_the_server_act(shared):
    typed = {"text": "matrix: [{prompt: hello, model: scripted/echo}]"}

    for origin in ("http://evil.example", "http://127.0.0.1:1", "null", "http://[", "https://a"):
        refused = shared.post("/api/runs", typed, origin=origin)

        assert refused.status == 403
        assert refused.json["error"]["problem"] == "a page of another site asked for this"
    assert shared.get("/api/runs").json["all"] == 0


def test_what_a_browser_calls_cross_site_is_refused_even_without_an_origin(shared):
    assert shared.ask("DELETE", "/api/runs/x", headers={"sec-fetch-site": "cross-site"}).status == 403
    assert shared.ask("DELETE", "/api/runs/x", headers={"sec-fetch-site": "same-origin"}).status == 404


def test_the_servers_own_page_may_act(shared):
    reply = shared.post("/api/plans/check", {"text": "matrix: []"}, origin=shared.url)

    assert reply.status == 200


def test_a_name_that_was_pointed_here_opens_nothing(shared):
    for host in ("evil.example", "evil.example:8765", "localhost.evil.example", "", "[", "2130706433"):
        refused = shared.ask("GET", "/api/settings", headers={"host": host})

        assert refused.status == 403, host
        assert b"store" not in refused.body


def test_the_names_of_this_machine_are_known(shared):
    for host in ("localhost", "127.0.0.1:9", "[::1]:8765", "LOCALHOST"):
        assert shared.ask("GET", "/api/runs", headers={"host": host}).status == 200, host


def test_the_live_channel_takes_no_page_of_another_site(shared):
    address = f"ws://127.0.0.1:{shared.port}/api/live"

    with pytest.raises(InvalidStatus) as refused:
        connect(address, origin="http://evil.example")
    assert refused.value.response.status_code == 403
    with connect(address, origin=shared.url):
        pass


def test_static_files_are_those_of_their_folder(shared):
    for path in (
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/static//etc/passwd",
        "/static/%00",
        "/static/\\..\\app.py",
    ):
        connection = http.client.HTTPConnection("127.0.0.1", shared.port, timeout=TIME_LIMIT_SECONDS)
        # As it is: nothing between us and the server tidies the path.
        connection.putrequest("GET", path)
        connection.endheaders()
        reply = connection.getresponse()

        assert reply.status == (400 if "%00" in path else 404), path
        assert b"import" not in reply.read()
        connection.close()


@pytest.fixture(scope="module")
def locked(serve_shared):
    """A server with a token."""
    return serve_shared(token=TOKEN)


def test_browsers_keep_the_files_of_a_page_which_have_their_version_in_the_address(shared):
    [app] = re.findall(r'src="(/static/[0-9a-f]{12}/app\.js)"', shared.get("/", accept="text/html").text)
    kept, plain, older = (shared.get(path) for path in (app, "/static/app.js", "/static/0123456789ab/app.js"))

    assert kept.headers["cache-control"] == "max-age=31536000, immutable"
    # A page of before an update still works, and gets what there is.
    assert [reply.headers["cache-control"] for reply in (plain, older)] == ["no-cache", "no-cache"]
    assert kept.body == plain.body == older.body
    assert shared.get(app.replace("app.js", "../app.py")).status == 404


def test_without_the_token_only_the_way_to_give_it_can_be_seen(serve):
    locked = serve(token=TOKEN)

    for path in ("/api/runs", "/api/settings", "/api/openapi.json"):
        refused = locked.get(path)
        assert (refused.status, refused.json["error"]["problem"]) == (401, "this server wants a token")
    page = locked.get("/settings?x=1")
    assert (page.status, page.headers["location"]) == (303, "/login?next=%2Fsettings%3Fx%3D1")
    assert locked.get("/login").status == 200
    assert locked.get("/static/proctor.css").status == 200
    assert locked.post("/api/runs", {"text": ""}).status == 401
    with pytest.raises(InvalidStatus):
        connect(f"ws://127.0.0.1:{locked.port}/api/live")


def test_a_program_shows_the_token_as_bearer(serve):
    locked = serve(token=TOKEN)

    assert locked.get("/api/runs", authorization=f"Bearer {TOKEN}").status == 200
    for wrong in (f"Bearer {TOKEN}x", "Bearer", f"Basic {TOKEN}", "Bearer é"):
        assert locked.ask("GET", "/api/runs", headers={"authorization": wrong}).status == 401


def test_the_token_in_an_address_lets_a_browser_in_and_is_gone_from_the_address(serve):
    locked = serve(token=TOKEN)

    entered = locked.get(f"/settings?token={TOKEN}&x=1")

    assert (entered.status, entered.headers["location"]) == (303, "/settings?x=1")
    cookie = entered.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert TOKEN not in cookie
    held = cookie.partition(";")[0]
    assert locked.get("/api/settings", cookie=held).status == 200
    assert locked.get("/api/settings", cookie=held[:-1] + "0").status == 401
    assert "set-cookie" not in locked.get("/settings?token=wrong").headers
    assert locked.get(f"/api/settings?token={TOKEN}").status == 401


def test_whoever_signs_in_with_the_token_comes_to_the_page_they_wanted(serve):
    locked = serve(token=TOKEN)
    as_form = {"content-type": "application/x-www-form-urlencoded"}

    entered = locked.ask("POST", "/login", f"next=%2Fmodels&token={TOKEN}".encode(), as_form)
    wrong = locked.ask("POST", "/login", b"next=%2Fmodels&token=wrong", as_form)
    away = locked.ask("POST", "/login", f"next=%2F%2Fevil.example&token={TOKEN}".encode(), as_form)

    assert (entered.status, entered.headers["location"]) == (303, "/models")
    assert wrong.status == 401
    assert "Invalid token" in wrong.text
    assert away.headers["location"] == "/"


OFF_SITE = (
    "//evil.example",
    "/\\evil.example",
    "/\\/evil.example",
    "https://evil.example",
    "///evil.example",
)


@pytest.mark.parametrize(
    "target", [*OFF_SITE, "/\t/evil.example", "\\\\evil.example", "javascript:alert(1)", "evil", ""]
)
def test_signing_in_leads_to_no_other_site(locked, target):
    form = urlencode({"next": target, "token": TOKEN}).encode()

    entered = locked.ask("POST", "/login", form, {"content-type": "application/x-www-form-urlencoded"})
    shown = locked.get(f"/login?{urlencode({'next': target})}")

    assert entered.headers["location"] == "/"
    assert 'name="next" value="/"' in shown.text


@pytest.mark.parametrize(
    "path", [*OFF_SITE, "//evil.example/", "//evil.example/%2e%2e", "/runs//evil.example/"]
)
def test_no_address_redirects_to_another_site(locked, path):
    for query in ("", f"?token={TOKEN}"):
        connection = http.client.HTTPConnection("127.0.0.1", locked.port, timeout=TIME_LIMIT_SECONDS)
        connection.putrequest("GET", path + query, skip_host=True)
        # A server without a name for itself answers with a path.
        connection.putheader("host", "")
        connection.endheaders()
        reply = connection.getresponse()
        connection.close()

        location = reply.headers.get("location", "/")
        assert urlsplit(location).netloc == "", (path, query)
        assert not location.startswith(("//", "/\\")), (path, query)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/runs/a%00b"),
        ("GET", "/runs/%00"),
        ("GET", "/api/runs?search=%00"),
        ("GET", "/api/sessions/x/search?q=a%00"),
        ("GET", "/api/compare?run=%00"),
        ("GET", "/evaluators/%00"),
        ("POST", "/v1/traces%00"),
    ],
)
def test_a_nul_in_an_address_is_refused(shared, method, path):
    refused = shared.ask(method, path)

    assert refused.status == 400
    assert "NUL" in refused.json["error"]["problem"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/sessions/x/labels", rb'{"evaluator": "a\u0000b"}'),
        ("/api/runs", rb'{"text": "matrix: []", "overrides": {"runId": "\u0000"}}'),
        ("/api/plans/check", b'{"text": "\0"}'),
        ("/api/evaluations/files", rb'{"name": "\\\u0000", "text": ""}'),
    ],
)
def test_a_nul_in_a_body_is_refused(shared, path, body):
    refused = shared.ask("POST", path, body)

    assert refused.status == 400
    assert refused.json["error"]["problem"] == "the body contains a NUL character"


def test_the_escape_of_a_nul_is_text_like_any_other(shared):
    reply = shared.post("/api/plans/check", {"text": r"matrix: [{prompt: '\u0000', model: scripted/ok}]"})

    assert (reply.status, reply.json["itemCount"]) == (200, 1)


def test_headers_that_do_not_end_are_not_waited_for(shared, monkeypatch):
    monkeypatch.setattr(serve_command, "HEADER_SECONDS", 0.2)

    with socket.create_connection(("127.0.0.1", shared.port), timeout=TIME_LIMIT_SECONDS) as client:
        client.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\nx: ")

        assert receive_all(client) == b""


def test_a_connection_that_was_used_is_not_kept_by_half_a_request(shared, monkeypatch):
    monkeypatch.setattr(serve_command, "HEADER_SECONDS", 0.2)

    with socket.create_connection(("127.0.0.1", shared.port), timeout=TIME_LIMIT_SECONDS) as client:
        client.sendall(b"GET /static/mark.svg HTTP/1.1\r\nhost: localhost\r\n\r\nGET / HT")

        assert receive_all(client).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("path", "status"), [("/api/plans/check", 408), ("/v1/traces", 499), ("/evaluators", 400)]
)
def test_a_body_that_comes_too_slowly_ends_the_request(shared, monkeypatch, path, status):
    monkeypatch.setattr(auth, "BODY_SECONDS", 0.2)

    with socket.create_connection(("127.0.0.1", shared.port), timeout=TIME_LIMIT_SECONDS) as client:
        client.sendall(
            f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            "content-length: 9\r\n\r\n{".encode()
        )
        reply = receive_all(client)

    assert reply.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"connection: close" in reply


def receive_all(client):
    """What the server sends until it closes the connection; one that it resets is closed."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while data := client.recv(65536):
            received += data
    return received


def test_a_body_without_end_is_not_read(shared):
    too_long = shared.ask("POST", "/api/plans/check", headers={"content-length": str(10**12)})
    chunked = shared.ask("POST", "/api/plans/check", headers={"transfer-encoding": "chunked"})

    assert too_long.status == 413
    assert chunked.status == 411


def test_errors_have_one_shape(shared):
    missing = shared.get("/api/runs/none")
    malformed = shared.post("/api/plans/check", b"{")
    no_route = shared.get("/api/nowhere")

    assert [missing.status, malformed.status, no_route.status] == [404, 422, 404]
    for reply in (missing, malformed, no_route):
        assert reply.json["error"]["problem"]


def test_a_page_that_is_not_there_is_told_as_a_page(shared):
    reply = shared.get("/nowhere", accept="text/html")

    assert reply.status == 404
    assert "Not found" in reply.text
    assert 'href="/"' in reply.text


def test_no_key_is_shown_anywhere(serve, site):
    secret = "sk-do-not-show-this-1234567890"
    environment = {
        **site.environment,
        "OPENAI_API_KEY": secret,
        "ACME_BASE_URL": f"https://u:{secret}@acme.test/v1?k={secret}",
    }
    keys = {"AKIDEXAMPLE": secret}
    server = serve(environment=environment, access_keys=keys)

    told = server.get("/api/settings")

    assert secret not in told.text
    providers = {each["name"]: each for each in told.json["providers"]}
    assert providers["openai"] | {"address": ""} == {
        "name": "openai",
        "address": "",
        "keyVariable": "OPENAI_API_KEY",
        "key": "present",
    }
    assert providers["anthropic"]["key"] == "missing"
    assert providers["ollama"]["key"] == "not needed"
    assert providers["acme"]["address"] == "https://acme.test/v1"
    assert told.json["accessKeys"] == ["AKIDEXAMPLE"]


def test_what_the_machine_does_not_allow_is_told_in_the_shape_of_all_errors(served, site):
    # A file where a folder is to be made: what a full or a read-only disk comes to, for whoever may do all.
    (site.home / "serve").write_text("")

    refused = served.post("/api/runs", {"text": "matrix: [{prompt: hello, model: scripted/ok}]"})

    assert refused.status == 500
    assert refused.json["error"]["problem"].endswith("serve/plans: Not a directory")
    assert "is writable" in refused.json["error"]["remedy"]
    assert served.get("/api/runs").json["all"] == 0


def test_a_mistake_of_the_server_tells_nothing_of_itself_and_allows_no_script(serve):
    def now():
        raise ZeroDivisionError("what somebody said")

    for path in ("/api/runs", "/runs/x"):
        answer = serve(now=now).get(path, accept="text/html")

        assert answer.status == 500
        assert "internal server error" in answer.text
        assert "somebody" not in answer.text
        assert "script-src 'self'" in answer.headers["content-security-policy"]


def test_an_address_that_is_none_says_where_all_of_them_are(shared):
    for method, path, said in (
        ("GET", "/api/nowhere", "there is nothing at /api/nowhere"),
        ("PUT", "/api/runs", "/api/runs does not take PUT"),
    ):
        wrong = shared.ask(method, path).json["error"]

        assert wrong["problem"] == said
        assert "/api/docs" in wrong["remedy"]
