"""Who may call the server, and what a browser may do with its answers."""

import contextlib
import http.client
import re
import socket
from urllib.parse import urlencode, urlsplit

import pytest
from websockets.exceptions import InvalidStatus

from proctor.cli import serve as serve_command
from proctor.errors import KeyMissing, NotFound, ProctorError, StoreError, UsageError
from proctor.store import Store
from proctor.store.keys import Keys, LocalKey
from proctor.web import auth
from proctor.web.auth import own_names
from waiting import TIME_LIMIT_SECONDS

KEY = bytes(range(32))
TOKEN = "seven-horses-and-a-half"
FORM = {"content-type": "application/x-www-form-urlencoded"}
PAGES = ("/", "/new", "/models", "/settings", "/api/docs", "/compare", "/evaluations", "/nowhere")


def test_every_answer_forbids_scripts_that_are_not_files_of_ours_frames_and_guessed_types(shared):
    for path in (*PAGES, "/api/runs", "/api/openapi.json", "/static/app.js", "/api/nowhere"):
        headers = shared.get(path, accept="text/html").headers
        policy = headers["content-security-policy"]

        assert (headers["x-frame-options"], headers["x-content-type-options"]) == ("DENY", "nosniff"), path
        assert "default-src 'none'" in policy, path
        assert "script-src 'self'" in policy, path
        assert "unsafe" not in policy, path
    assert shared.get("/api/runs").headers["cache-control"] == "no-store"


ANOTHER_SITE = "a page of another site asked for this"


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "http://127.0.0.1:1", "null", "http://[", "https://a"]
)
def test_a_page_of_another_site_cannot_make_the_server_act(shared, origin):
    typed = {"text": "matrix: [{prompt: hello, model: scripted/echo}]"}

    refused = shared.post("/api/runs", typed, origin=origin)

    assert (refused.status, refused.json["error"]["problem"]) == (403, ANOTHER_SITE)
    assert shared.get("/api/runs", origin=origin).json["all"] == 0


@pytest.mark.parametrize(
    ("site", "status"), [("cross-site", 403), ("same-site", 403), ("same-origin", 404), ("none", 404)]
)
def test_what_a_browser_calls_cross_site_is_refused_even_without_an_origin(shared, site, status):
    assert shared.ask("DELETE", "/api/runs/x", headers={"sec-fetch-site": site}).status == status


def test_the_servers_own_page_may_act_also_behind_a_proxy_that_ends_tls(shared):
    for origin in (shared.url, shared.url.replace("http:", "https:")):
        assert shared.post("/api/plans/check", {"text": "matrix: []"}, origin=origin).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8765", "localhost.evil.example", "", "[", "2130706433"]
)
def test_a_name_that_was_pointed_here_opens_nothing(shared, host):
    refused = shared.ask("GET", "/api/settings", headers={"host": host})

    expected = (403, "this server is not known by that name")
    assert (refused.status, refused.json["error"]["problem"]) == expected


def test_the_names_of_this_machine_and_of_the_server_are_known(serve_shared):
    server = serve_shared(hosts=own_names(["Team.Example"]))
    for host in ("localhost", "127.0.0.1:9", "[::1]:8765", "LOCALHOST", "team.example:80"):
        assert server.ask("GET", "/api/runs", headers={"host": host}).status == 200, host


def test_the_live_channel_takes_no_page_of_another_site(shared):
    with pytest.raises(InvalidStatus) as refused, shared.live(origin="http://evil.example"):
        pass
    assert refused.value.response.status_code == 403
    with shared.live(origin=shared.url):
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


def test_without_the_token_only_the_way_to_give_it_can_be_seen(locked, shared):
    wants_a_token = {
        "problem": "this server wants a token",
        "remedy": "Send it: Authorization: Bearer TOKEN.",
    }
    for path, body in (
        ("/api/runs", None),
        ("/api/openapi.json", None),
        ("/api/runs", b"{}"),
        ("/new", b"{}"),
    ):
        refused = locked.ask("POST" if body else "GET", path, body)
        assert (refused.status, refused.json["error"]) == (401, wants_a_token), path
    page = locked.get("/settings?x=1")
    assert (page.status, page.headers["location"]) == (303, "/login?next=%2Fsettings%3Fx%3D1")
    login = locked.get("/login?next=/new%3Fa=b")
    assert login.status == 200 and 'value="/new?a=b"' in login.text and "Invalid token" not in login.text
    assert locked.get("/static/proctor.css").status == 200
    # A server without one has no login.
    assert shared.get("/login?next=/new").headers["location"] == "/"
    with pytest.raises(InvalidStatus), locked.live():
        pass


def test_a_program_shows_the_token_as_bearer(locked):
    assert locked.get("/api/runs", authorization=f"Bearer {TOKEN}").status == 200
    for wrong in (f"Bearer {TOKEN}x", "Bearer", f"Basic {TOKEN}", "Bearer é"):
        assert locked.ask("GET", "/api/runs", headers={"authorization": wrong}).status == 401


def test_the_token_in_an_address_lets_a_browser_in_and_is_gone_from_the_address(locked, serve_shared):
    entered = locked.get(f"/settings?token={TOKEN}&x=1")

    assert (entered.status, entered.headers["location"]) == (303, "/settings?x=1")
    held, *attributes = entered.headers["set-cookie"].split("; ")
    assert set(attributes) == {"HttpOnly", "Max-Age=2592000", "Path=/", "SameSite=strict"}
    assert TOKEN not in held
    assert locked.get("/api/settings", cookie=f"a=b; {held}").status == 200
    name, _, value = held.partition("=")
    for wrong in (held[:-1] + "0", f"{name}=", f"other={value}", "\x01=;;"):
        assert locked.get("/api/settings", cookie=wrong).status == 401
    wrong = locked.get("/settings?token=wrong&x=1")
    assert "set-cookie" not in wrong.headers
    assert wrong.headers["location"] == "/login?next=%2Fsettings%3Fx%3D1"
    assert locked.get(f"/api/settings?token={TOKEN}").status == 401
    # Another token makes another cookie, under another name: browsers share cookies between ports.
    other = serve_shared(token=f"{TOKEN}!")
    assert other.get("/api/settings", cookie=held).status == 401
    cookie = other.get(f"/?token={TOKEN}!").headers["set-cookie"]
    assert cookie.startswith("proctor-") and cookie.partition("=")[0] != name


def test_whoever_signs_in_with_the_token_comes_to_the_page_they_wanted(locked):
    def sign_in(form):
        return locked.ask("POST", "/login", form.encode(), FORM)

    entered = sign_in(f"next=%2Fmodels&token=+{TOKEN}+")
    wrong = sign_in("next=%2Fmodels&token=wrong")

    assert (entered.status, entered.headers["location"]) == (303, "/models")
    assert sign_in(f"token={TOKEN}").headers["location"] == "/"
    assert (wrong.status, "set-cookie" in wrong.headers) == (401, False)
    assert "Invalid token" in wrong.text and 'value="/models"' in wrong.text


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

    entered = locked.ask("POST", "/login", form, FORM)
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
        ("GET", "/api/runs?%00"),
        ("GET", "/api/runs?by=x&a=%00"),
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
    # A recorded factor may have any name.
    assert shared.get("/api/runs/none/charts?by=%00").status == 404


def test_headers_that_do_not_end_are_not_waited_for(shared, monkeypatch):
    # White box: the real time is many seconds.
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
    # The time for headers is over before: it is no limit for the rest of a request.
    monkeypatch.setattr(serve_command, "HEADER_SECONDS", 0.1)
    monkeypatch.setattr(auth, "BODY_SECONDS", 0.3)

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


@pytest.mark.parametrize(
    ("headers", "status", "problem"),
    [
        ({"content-length": str(16 * 1024**2 + 1)}, 413, "a body may have 16,777,216 bytes"),
        ({"content-length": str(10**12)}, 413, "a body may have 16,777,216 bytes"),
        ({"transfer-encoding": "chunked"}, 411, "say how long the body is"),
    ],
)
def test_a_body_without_end_is_not_read(shared, headers, status, problem):
    refused = shared.ask("POST", "/api/plans/check", headers=headers)

    assert (refused.status, refused.json["error"]["problem"]) == (status, problem)


LISTING = "`proctor runs` lists the runs there are."
DOCUMENTED = "The HTTP interface is documented at /api/docs."


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "problem", "remedy"),
    [
        ("GET", "/api/runs/none", None, 404, "there is no run none", LISTING),
        ("GET", "/api/nowhere", None, 404, "there is nothing at /api/nowhere", DOCUMENTED),
        ("PUT", "/api/runs", None, 405, "/api/runs does not take PUT", DOCUMENTED),
        ("GET", "/api/evaluations?limit=x&offset=-1", None, 422, "query.limit: ", ""),
        ("POST", "/api/plans/check", b"{", 422, "body.1: ", ""),
    ],
)
def test_errors_have_one_shape(shared, method, path, body, status, problem, remedy):
    refused = shared.ask(method, path, body)

    assert refused.status == status
    assert refused.json["error"]["problem"].startswith(problem)
    assert refused.json["error"]["remedy"] == remedy
    if "offset" in path:
        assert "; query.offset: " in refused.json["error"]["problem"]


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
    expected = {"name": "openai", "address": "", "keyVariable": "OPENAI_API_KEY", "key": "present"}
    assert providers["openai"] | {"address": ""} == expected
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


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (NotFound("no x\nLook."), 404, "no x"),
        (UsageError("wrong\nFix."), 400, "wrong"),
        (StoreError("gone\nWait."), 503, "gone"),
        (KeyMissing("no key"), 503, "no key"),
        (ProctorError("failed"), 502, "failed"),
        (ZeroDivisionError("what somebody said"), 500, "internal server error"),
    ],
)
def test_an_error_has_the_status_of_its_kind_and_a_mistake_of_the_server_tells_nothing(
    serve_shared, error, status, said
):
    def now():
        raise error

    server = serve_shared(now=now)
    answer, page = (server.get(path, accept="text/html") for path in ("/api/runs", "/runs/x"))

    assert (answer.status, answer.json["error"]["problem"], page.status) == (status, said, status)
    assert said in page.text and "somebody" not in page.text
    assert ("Not found" in page.text) == (status == 404)
    assert "script-src 'self'" in page.headers["content-security-policy"]


def test_a_server_on_an_encrypted_store_keeps_no_copies_beside_it(serve, site):
    with Store(site.context.store.url, Keys(own=LocalKey(secret=KEY))) as store:
        environment = {**site.environment, "PROCTOR_ENCRYPTION_KEY": KEY.hex()}
        server = serve(store=store, environment=environment, user_environment=environment)
        found = server.get("/api/search?text=okapi").json
        file = server.post("/api/evaluations/files", {"name": "a.jsonl", "text": "okapi"})
        table = server.ask("POST", "/api/tables?run=a&file=a.csv", b"a,b", {"content-type": "text/csv"})
        server.wait_for(server.start("matrix: [{prompt: okapi, model: scripted/echo}]"), "completed")
        serve.end()

    assert "encrypted: its transcripts are not searchable" in found["problem"] and found["hits"] == []
    for refused in (file, table):
        assert refused.status == 400
        assert refused.json["error"]["problem"] == "the store is encrypted, and an uploaded file would not be"
    assert [path for path in site.home.rglob("*") if path.is_file() and b"okapi" in path.read_bytes()] == []
