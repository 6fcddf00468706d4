"""Tokens, roles, guesses and the audit log of a server that several people share."""

import hashlib
import stat
from datetime import UTC, datetime
from ipaddress import ip_network

import pytest
from calling import Served
from starlette.routing import Route
from stocked_runs import add_session
from websockets.exceptions import InvalidStatus

from proctor import agentcore
from proctor.agentcore import logs
from proctor.agentcore.operation import operation_role
from proctor.config import ServeToken
from proctor.session import Message
from proctor.web import access
from proctor.web.access import GuessLimiter, check_roles, stored_token

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
TOKEN = "the-token-of-the-server"
ROLES = ("view", "label", "run", "admin")
TOKENS = {role: f"the-token-of-role-{role}" for role in ROLES}
FORM = {"content-type": "application/x-www-form-urlencoded"}


def make_tokens():
    """One token for each role; of that for `view`, only the hash is known."""
    known = [ServeToken(name=f"the-{role}", role=role, token=TOKENS[role]) for role in ROLES[1:]]
    digest = hashlib.sha256(TOKENS["view"].encode()).hexdigest()
    return [*known, ServeToken(name="the-view", role="view", sha256=digest)]


@pytest.fixture(scope="module")
def team(serve_shared) -> Served:
    return serve_shared(token=TOKEN, tokens=make_tokens())


def as_role(role):
    return {"authorization": f"Bearer {TOKENS[role]}"}


@pytest.mark.parametrize(
    ("method", "path", "needed"),
    [
        ("GET", "/api/runs", "view"),
        ("GET", "/", "view"),
        ("POST", "/api/sessions/none/labels", "label"),
        ("POST", "/api/test-cases", "label"),
        ("DELETE", "/api/datasets/none/examples/none", "run"),
        ("POST", "/api/runs", "run"),
        ("POST", "/api/plans/check", "run"),
        ("POST", "/api/tables", "run"),
        ("POST", "/api/runs/none/abort", "run"),
        ("DELETE", "/api/runs/none", "admin"),
        ("GET", "/api/audit", "admin"),
    ],
)
def test_each_role_includes_the_ones_before_it(team, method, path, needed):
    for role in ROLES:
        reply = team.ask(method, path, b"{}", as_role(role))

        is_allowed = ROLES.index(role) >= ROLES.index(needed)
        assert (reply.status != 403) == is_allowed, (role, reply.text)
        if not is_allowed:
            assert f"this needs the role `{needed}`; the-{role} has" in reply.json["error"]["problem"]


def test_notes_and_labels_have_the_name_of_the_token(team):
    add_session(team.site.context.store, "noted", [Message(role="assistant", content="hello")])
    path, note = "/api/sessions/noted/annotations", {"kind": "note", "text": "odd", "author": "the-admin"}
    rating = {"evaluator": "Human.Rating", "who": "the-admin", "value": 4}

    assert team.post(path, note, **as_role("label")).status == 200
    assert team.post("/api/annotations", note | {"sessionIds": ["noted"]}, **as_role("run")).status == 200
    assert team.post("/api/sessions/noted/labels", rating, **as_role("label")).status == 200
    # The server's own token names nobody.
    assert team.post(path, note | {"author": "dana"}, authorization=f"Bearer {TOKEN}").status == 200
    answer = team.get(path, **as_role("view")).json

    assert [one["author"] for one in answer["annotations"]] == ["the-label", "the-run", "dana"]
    assert [one["who"] for one in answer["ratings"]] == ["the-label"]
    page = team.get("/sessions/noted", **as_role("label")).text
    assert 'data-person="the-label"' in page


def test_a_server_does_not_start_with_a_route_that_has_no_role():
    with pytest.raises(LookupError, match=r"routes without a role .*: DELETE /api/everything$"):
        check_roles([Route("/api/everything", lambda request: None, methods=["DELETE"])])


def test_every_operation_of_the_aws_interface_has_a_role():
    names = {each.name for each in (*agentcore.OPERATIONS, *logs.OPERATIONS)}
    roles = {name: operation_role(name) for name in names}

    reading = {name for name, role in roles.items() if role == "view"}
    assert {"GetBatchEvaluation", "ListEvaluators", "DescribeLogGroups", "FilterLogEvents"} < reading
    assert {"StartQuery", "StopQuery"} < reading
    assert roles["StartBatchEvaluation"] == roles["CreateEvaluator"] == roles["PutLogEvents"] == "run"
    assert {name for name, role in roles.items() if role == "admin"} == {
        name for name in names if name.startswith("Delete")
    }


def test_a_viewer_watches_live_and_sends_no_traces(team):
    with team.live(additional_headers=as_role("view")):
        pass
    with pytest.raises(InvalidStatus), team.live(additional_headers={"authorization": "Bearer no"}):
        pass

    for role, status in (("view", 403), ("label", 403), ("run", 200)):
        assert team.post("/v1/traces", {}, **as_role(role)).status == status


def test_a_browser_keeps_the_role_of_the_token_it_signed_in_with(team):
    entered = team.ask("POST", "/login", f"token={TOKENS['view']}".encode(), FORM)
    cookie = entered.headers["set-cookie"].partition(";")[0]

    assert team.get("/api/runs", cookie=cookie).status == 200
    assert team.ask("DELETE", "/api/runs/x", None, {"cookie": cookie}).status == 403
    # The hash of a token, which stands in the configuration, opens nothing.
    digest = hashlib.sha256(TOKENS["view"].encode()).hexdigest()
    name = cookie.partition("=")[0]
    assert team.get("/api/runs", cookie=f"{name}={digest}").status == 401
    assert team.get("/api/runs", authorization=f"Bearer {digest}").status == 401


def test_every_act_is_in_the_audit_log_and_nothing_that_only_reads(serve):
    team = serve(token=TOKEN, tokens=make_tokens())
    team.get("/api/runs", **as_role("run"))
    team.post("/api/plans/check", {"text": "matrix: []"}, **as_role("run"))
    team.post("/api/runs/none/abort", **as_role("run"))
    team.ask("DELETE", "/api/runs/other", None, as_role("run"))
    team.ask("POST", "/login", f"token={TOKENS['label']}".encode(), FORM)
    team.ask("POST", "/login", b"token=wrong", FORM)
    team.ask("DELETE", "/evaluators/x", None, as_role("admin"))

    entries = team.get("/api/audit", **as_role("admin")).json["entries"]

    acts = [(each["who"], each["action"], each["target"], each["status"]) for each in reversed(entries)]
    assert acts == [
        ("the-run", "POST /api/runs/{run_id}/abort", "/api/runs/none/abort", 404),
        ("the-run", "DELETE /api/runs/{run_id}", "/api/runs/other", 403),
        ("the-label", "sign in", "/login", 303),
        ("", "sign in", "", 401),
        ("the-admin", "DeleteEvaluator", "/evaluators/x", 400),
    ]
    assert {each["from"] for each in entries} == {"127.0.0.1"}
    assert len(team.get("/api/audit?limit=2", **as_role("admin")).json["entries"]) == 2
    path = team.site.home / "serve" / "audit.jsonl"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert TOKENS["run"] not in path.read_text()


def test_an_act_that_fails_inside_the_server_is_in_the_audit_log(serve, monkeypatch):
    # White-box: no request is known that makes the server fail, and the clock is that of the log too.
    server = serve()
    monkeypatch.setattr(type(server.site.context.store), "change", lambda *_: 1 / 0)

    failed = server.post("/api/runs/none/questions/1", {"answer": "yes"})

    entry = server.get("/api/audit").json["entries"][0]
    expected = (500, "POST /api/runs/{run_id}/questions/{question_id}", 500)
    assert (failed.status, entry["action"], entry["status"]) == expected


def test_the_audit_log_begins_a_second_file_and_survives_a_line_that_was_cut_short(serve, monkeypatch):
    server = serve(now=lambda: NOON)
    long_name = "x" * 600

    def entries(limit=10):
        found = server.get(f"/api/audit?limit={limit}").json["entries"]
        return [entry for entry in found if entry["action"] != "GET /api/audit"]

    server.post(f"/api/runs/{long_name}/abort")
    (first,) = entries()
    act = {"action": "POST /api/runs/{run_id}/abort", "target": f"/api/runs/{long_name}"[:500], "status": 422}
    caller = {"at": "2026-01-02T12:00:00.000Z", "who": "local", "role": "admin", "from": "127.0.0.1"}
    assert first == {**caller, **act, "act": act["action"], "guesses": 0}

    path = server.site.home / "serve" / "audit.jsonl"
    # White box: the real limit is many megabytes.
    monkeypatch.setattr(access, "MOST_AUDIT_BYTES", path.stat().st_size)
    server.post("/api/runs/two/abort")
    assert not path.with_suffix(".1.jsonl").exists()
    server.post("/api/runs/three/abort")
    assert len(path.read_text().splitlines()) == 1
    monkeypatch.undo()
    of_an_earlier_release = path.read_text().replace(f'"action": "{act["action"]}", ', "")
    path.write_text(of_an_earlier_release + '{"at": "2026')

    newest, older, oldest = entries()
    expected = ("/api/runs/three/abort", "/api/runs/two/abort", first)
    assert (newest["target"], older["target"], oldest) == expected
    assert '"action"' not in of_an_earlier_release and newest["action"] == act["action"]


def test_an_audit_log_that_cannot_be_written_stops_nothing(serve, site):
    (site.home / "serve").write_text("not a folder")

    assert serve().post("/api/runs/none/abort").status == 404


def test_whoever_tries_tokens_has_to_wait_and_nobody_else(serve):
    server = serve(token=TOKEN, proxies=[ip_network("127.0.0.0/8")], monotonic=lambda: 1000.0)

    def called_by(address, method="GET", path="/api/runs", body=None, **headers):
        return server.ask(method, path, body, {"x-forwarded-for": address, **headers})

    guesser, right = "203.0.113.7", {"authorization": f"Bearer {TOKEN}"}
    entered = called_by(guesser, "POST", "/login", f"token={TOKEN}".encode(), **FORM)
    cookie = entered.headers["set-cookie"].partition(";")[0]

    statuses = [called_by(guesser, authorization=f"Bearer guess-{n}").status for n in range(8)]

    assert statuses == [401] * 6 + [429] * 2
    # Even the right token, or a guess could be told from another.
    blocked = called_by(guesser, **right)
    assert (blocked.status, blocked.headers["retry-after"]) == (429, "1")
    expected = {"problem": "too many wrong tokens from this address", "remedy": "Wait 1 s."}
    assert blocked.json["error"] == expected
    login = called_by(guesser, "POST", "/login", f"token={TOKEN}".encode(), **FORM)
    assert (login.status, login.headers["retry-after"]) == (429, "1")
    assert "Too many wrong tokens. Wait 1 s." in login.text
    traces = called_by(guesser, "POST", "/v1/traces", {}, **right)
    assert (traces.status, traces.json["code"]) == (429, 8)
    assert called_by(guesser, path=f"/settings?token={TOKEN}").status == 429
    # Signed-in browsers and other addresses go on.
    assert called_by(guesser, cookie=cookie).status == 200
    assert called_by("203.0.113.8", **right).status == 200
    entries = server.get("/api/audit", cookie=cookie).json["entries"]
    assert [each.get("guesses") for each in reversed(entries)] == [0, 1, 2, 3, 4, 5, 6]
    assert {each["action"] for each in entries[:-1]} == {"token for /api/runs"}


def test_each_new_guess_doubles_the_wait_up_to_a_minute_until_it_is_forgotten():
    clock = [1000.0]
    limiter = GuessLimiter(lambda: clock[0])

    def fail(guess, address="192.0.2.1"):
        return limiter.fail(address, guess), limiter.seconds_to_wait(address)

    waits = [0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert [fail(f"guess {number}") for number in range(14)] == list(enumerate(waits, 1))
    clock[0] += 59.5
    assert limiter.seconds_to_wait("192.0.2.1") == 0.5
    clock[0] += 900 - 59.5
    assert fail("much later") == (15, 60)
    clock[0] += 900.1
    assert fail("later still") == (1, 0)


def test_who_counts_as_a_guesser(monkeypatch):
    limiter = GuessLimiter(lambda: 1000.0)
    # A client that repeats an old token does not, until it has used sixteen others.
    assert [limiter.fail("a", "old") for _ in range(100)] == [1] + [0] * 99
    assert [limiter.fail("a", f"new {number}") for number in range(16)] == list(range(2, 18))
    assert limiter.fail("a", "old") == 18
    # All addresses of an IPv6 network are one machine.
    guesses = [limiter.fail(f"2001:db8::{number:x}", f"guess {number}") for number in range(6)]
    assert (guesses, limiter.seconds_to_wait("2001:db8::ffff")) == ([1, 2, 3, 4, 5, 6], 1)
    others = ("2001:db8:0:1::1", "1.2.3.4", "1.2.3.5")
    assert [limiter.fail(address, "x") for address in others] == [1, 1, 1]
    # Of too many addresses, those are forgotten that have been quiet longest.
    monkeypatch.setattr(access, "MOST_ADDRESSES", 2)
    limiter = GuessLimiter(lambda: 1000.0)
    assert [limiter.fail(address, f"{n}") for n, address in enumerate("abacacb")] == [1, 1, 2, 1, 3, 2, 1]


def test_the_stored_token_survives_restarts_and_is_for_the_user_alone(tmp_path):
    first = stored_token(tmp_path / "serve")
    path = tmp_path / "serve" / "token"

    assert len(first) >= 43
    assert stored_token(tmp_path / "serve") == first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["token"]
    for mode in (0o640, 0o604, 0o610, 0o601):
        # Others may have read it.
        path.chmod(mode)
        assert stored_token(tmp_path / "serve") != first
    for token, is_kept in (("t" * 16, True), ("t" * 15, False)):
        path.write_text(token)
        assert (stored_token(tmp_path / "serve") == token) is is_kept
    # A home that cannot be written has a new one at each start.
    (tmp_path / "home").write_text("not a folder")
    first, second = (stored_token(tmp_path / "home" / "serve") for _ in range(2))
    assert len(first) >= 32 and first != second


@pytest.mark.parametrize(
    ("section", "named"),
    [
        (f'[serve.tokens.evil]\nsha256 = "{"0" * 64}"\nrole = "admin"\n', "tokens"),
        ('[serve.access_keys]\nAKIDEVIL = "secret-of-somebody-else"\n', "access keys"),
    ],
)
def test_tokens_and_access_keys_come_from_the_home_and_not_from_a_working_folder(proctor, section, named):
    (proctor.folder / "proctor.toml").write_text(section)

    refused = proctor("serve", "--port", "0")

    assert refused.returncode == 2
    assert f"names {named} of the server" in refused.stderr


def test_a_run_says_where_a_folder_of_somebody_else_sends_keys(proctor):
    (proctor.folder / "plan.yaml").write_text("matrix: [{prompt: one, model: scripted/echo}]\n")
    toml = proctor.folder / "proctor.toml"
    for provider, key in (("openai", ""), ("acme", 'key = "OPENAI_API_KEY"')):
        toml.write_text(f'[providers.{provider}]\nbase_url = "https://models.example"\n{key}\n')
        shown = proctor("batch", "plan.yaml", "--dry-run").stderr
        assert "note: the key OPENAI_API_KEY goes to https://models.example, as a proctor.toml" in shown

    for section in (
        '[providers.acme]\nbase_url = "https://models.example"\nkey = "ACME_KEY"\n',
        '[providers.openai]\nbase_url = "http://127.0.0.1:8000/v1"\n',
    ):
        toml.write_text(section)
        assert "goes to" not in proctor("batch", "plan.yaml", "--dry-run").stderr


@pytest.mark.parametrize(
    ("options", "environment", "message"),
    [
        (("--token", TOKEN), {}, "PROCTOR_TOKEN, or name a file:  --token-file FILE"),
        ((), {"PROCTOR_TOKEN": "short"}, "fewer than 16 characters"),
        (("--token-file", "missing"), {}, "missing is not a file"),
        (("--no-token",), {"PROCTOR_TOKEN": TOKEN}, "--no-token excludes"),
        (("--root-path", "/a/../b"), {}, "is not a path"),
        (("--trusted-proxy", "proxy"), {}, "is not an address or network"),
        (("--tls-cert", "cert.pem"), {}, "belong together"),
        (("--tls-cert", "cert.pem", "--tls-key", "key.pem"), {}, "cannot load the certificate"),
    ],
)
def test_a_server_that_could_not_be_trusted_does_not_start(proctor, options, environment, message):
    refused = proctor("serve", "--port", "0", *options, environment=environment)

    assert refused.returncode == 2
    assert message in refused.stderr
    assert "Traceback" not in refused.stderr
