"""The server behind a reverse proxy: below a path, with forwarded headers, over TLS."""

import ipaddress
import json
import ssl
from http.client import HTTPSConnection

import pytest
from calling import Served, serving
from typed import PROMPTS
from websockets.exceptions import InvalidStatus

from certificates import make_certificate
from waiting import TIME_LIMIT_SECONDS

TOKEN = "a-token-behind-a-proxy"
FORM = {"content-type": "application/x-www-form-urlencoded"}
LOCAL = [ipaddress.ip_network("127.0.0.0/8")]


@pytest.fixture(scope="module")
def below(serve_shared) -> Served:
    """A server below a path, whose proxy is trusted."""
    return serve_shared(token=TOKEN, root_path="/proctor", proxies=LOCAL)


def test_everything_a_browser_does_stays_below_the_path(serve, open_page):
    served = serve(token=TOKEN, root_path="/proctor")
    page = open_page(f"{served.url}/proctor/settings")
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("websocket", lambda socket: requests.append(socket.url.replace("ws:", "http:")))

    page.fill("input[name=token]", TOKEN)
    page.click("button[type=submit]")
    page.wait_for_url("**/proctor/settings")
    page.click("nav >> text=New Batch")
    page.wait_for_url("**/proctor/new")
    answer = page.evaluate(
        "text => fetch('/proctor/api/runs', {method: 'POST', body: JSON.stringify({text}),"
        " headers: {'content-type': 'application/json'}}).then(reply => reply.json())",
        PROMPTS,
    )
    page.click("nav >> text=Batches")
    page.click(f"text={answer['runId']}")
    page.wait_for_url(f"**/proctor/runs/{answer['runId']}")
    page.wait_for_selector("#status >> text=Completed")
    page.click("text=Charts")
    page.wait_for_selector("#charts svg")
    page.click("#panel-charts >> text=Compare")
    page.wait_for_url("**/proctor/compare?**")
    page.click(".brand")
    page.wait_for_url("**/proctor/")

    assert any(url.endswith("/proctor/api/live") for url in requests)
    assert [url for url in requests if not url.startswith(f"{served.url}/proctor/")] == []


def test_a_proxy_may_remove_the_path_or_leave_it(below):
    for prefix in ("", "/proctor"):
        page = below.get(f"{prefix}/models?x=1")
        assert (page.status, page.headers["location"]) == (303, "/proctor/login?next=%2Fmodels%3Fx%3D1")
        login = below.get(f"{prefix}/login")
        assert 'action="/proctor/login"' in login.text
        assert below.get(f"{prefix}/static/app.js").status == 200
        assert below.get(f"{prefix}/api/runs", authorization=f"Bearer {TOKEN}").status == 200
    assert below.get("/proctor", authorization=f"Bearer {TOKEN}").status == 200
    assert below.get("/proctors/api/runs", authorization=f"Bearer {TOKEN}").status == 404
    described = below.get("/proctor/api/openapi.json", authorization=f"Bearer {TOKEN}")
    assert described.json["servers"] == [{"url": "/proctor"}]


def test_redirects_and_cookies_are_those_of_the_path(below):
    entered = below.ask("POST", "/login", f"next=%2Fmodels&token={TOKEN}".encode(), FORM)
    slash = below.get("/models/", authorization=f"Bearer {TOKEN}")

    assert entered.headers["location"] == "/proctor/models"
    assert "Path=/proctor;" in entered.headers["set-cookie"]
    assert "secure" not in entered.headers["set-cookie"].lower()
    assert slash.headers["location"] == "/proctor/models"


@pytest.mark.parametrize(
    ("scheme", "is_secure"),
    [("https", True), (" HTTPS ", True), ("http", False), ("gopher", False), ("", False)],
)
def test_a_trusted_proxy_says_whether_its_client_speaks_tls(below, scheme, is_secure):
    entered = below.ask("POST", "/login", f"token={TOKEN}".encode(), {**FORM, "x-forwarded-proto": scheme})

    assert ("; secure" in entered.headers["set-cookie"].lower()) is is_secure


@pytest.mark.parametrize(
    ("name", "origin", "status"),
    [
        ("team.example", "https://team.example", 303),
        ("team.example", "https://evil.example", 403),
        (" team.example:8443 , second.example", "https://Team.example:8443", 303),
        (" team.example:8443 , second.example", "https://second.example", 403),
        (",second.example", "https://second.example", 403),
    ],
)
def test_a_trusted_proxy_says_by_which_name_it_was_called(below, name, origin, status):
    headers = {**FORM, "x-forwarded-host": name, "origin": origin}

    assert below.ask("POST", "/login", f"token={TOKEN}".encode(), headers).status == status


@pytest.mark.parametrize(
    ("forwarded", "address"),
    [
        ("203.0.113.7", "203.0.113.7"),
        # A client can write the first ones itself; the last is what the proxy saw.
        ("10.9.9.9, 203.0.113.7", "203.0.113.7"),
        ("203.0.113.7, 127.0.0.5", "203.0.113.7"),
        ("10.9.9.9, 127.0.0.6 , 127.0.0.5,", "10.9.9.9"),
        ("127.0.0.6, 127.0.0.5", "127.0.0.6"),
        ("203.0.113.7, nonsense", "nonsense"),
        ("", "127.0.0.1"),
    ],
)
def test_the_address_is_the_last_that_no_trusted_proxy_has(below, forwarded, address):
    headers = {"authorization": f"Bearer {TOKEN}", "x-forwarded-for": forwarded}

    below.ask("POST", "/api/runs/none/abort", b"{}", headers)

    entry = below.get("/api/audit?limit=1", authorization=f"Bearer {TOKEN}").json["entries"][0]
    assert (entry["action"], entry["from"]) == ("POST /api/runs/{run_id}/abort", address)


def test_headers_of_anybody_else_are_ignored(serve_shared):
    server = serve_shared(token=TOKEN)
    spoofed = {"x-forwarded-for": "203.0.113.7", "x-forwarded-proto": "https"}

    entered = server.ask("POST", "/login", f"token={TOKEN}".encode(), {**FORM, **spoofed})
    renamed = server.ask(
        "POST", "/login", b"", {**FORM, "x-forwarded-host": "a.example", "origin": "https://a.example"}
    )

    assert "secure" not in entered.headers["set-cookie"].lower()
    assert renamed.status == 403
    entry = server.get("/api/audit?limit=1", authorization=f"Bearer {TOKEN}").json["entries"][0]
    assert entry["from"] == "127.0.0.1"


def test_live_updates_come_through_a_proxy_below_the_path(below):
    headers = {"authorization": f"Bearer {TOKEN}", "x-forwarded-host": "team.example"}
    path = "/proctor/api/live"

    with below.live(path, additional_headers=headers, origin="https://team.example") as live:
        assert live.watch(("runs", ""))["topic"] == "runs"
    evil = {"additional_headers": headers, "origin": "https://evil.example"}
    with pytest.raises(InvalidStatus), below.live(path, **evil):
        pass


def test_the_aws_client_signs_the_path_that_it_calls(below):
    boto3 = pytest.importorskip("boto3")
    client = boto3.client(
        "bedrock-agentcore-control",
        endpoint_url=f"{below.url}/proctor",
        region_name="us-east-1",
        aws_access_key_id="proctor",
        aws_secret_access_key=TOKEN,
    )

    assert client.list_evaluators()["evaluators"]


def test_the_server_speaks_tls_with_a_certificate_of_its_own(proctor):
    certificate, key = make_certificate(proctor.folder, "127.0.0.1", "IP:127.0.0.1")
    words = ("--tls-cert", str(certificate), "--tls-key", str(key))
    trusting = ssl.create_default_context(cafile=str(certificate))
    with serving(proctor, "--json", *words) as (_, line):
        document = json.loads(line)
        assert document["url"] == f"https://127.0.0.1:{document['port']}"
        connection = HTTPSConnection(
            "127.0.0.1", document["port"], timeout=TIME_LIMIT_SECONDS, context=trusting
        )
        connection.request("GET", f"/models?token={document['token']}")
        reply = connection.getresponse()
        assert (reply.status, reply.headers["location"]) == (303, "/models")
        assert "; secure" in reply.headers["set-cookie"].lower()
        connection.close()
