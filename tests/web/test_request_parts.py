"""Functions behind routes, without a server: filters, sources of sessions, OTLP answers, tokens, the log."""

import gzip
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proctor.config import ServeToken
from proctor.errors import NotFound, UsageError
from proctor.telemetry.otlp import LOGS, METRICS, TRACES, DecodedSpans
from proctor.web import access, auth, otlp
from proctor.web.access import AccessControl, AuditLog, GuessLimiter, Principal
from proctor.web.compare import _CompareQuery
from proctor.web.items import MOST_CONDITIONS, _duration, _range, item_query
from proctor.web.new_evaluation import NewEvaluation, SessionSource, _check_truth

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)

# Filters of items


def test_a_filter_of_items_is_read_from_the_query() -> None:
    query = item_query(
        search="a\0b",
        status=["fail", "error"],
        model=["m", "m", "n\0"],
        factor=["a=b=c", "a="],
        score=["tidy=0.5..1", "x=y=..-2"],
        duration=["1.5..", "..3"],
        group="g\0",
        order="score:x\0",
        descending=True,
        noted=True,
    )
    assert (query.search, query.statuses, query.models) == ("ab", ("fail", "error"), ("m", "n"))
    assert query.factors == (("a", "b=c"), ("a", ""))
    assert [(each.name, each.low, each.high) for each in query.scores] == [
        ("tidy", 0.5, 1.0),
        ("x=y", None, -2.0),
    ]
    assert query.durations == ((1.5, None), (None, 3.0))
    assert (query.failure_group, query.order, query.descending) == ("g", "score:x", True)
    assert (query.is_noted, query.is_starred) == (True, False)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("status", ["done"], "there is no status done\nThere are: queued, running"),
        ("factor", ["model"], "model is no level of a factor\nWrite NAME=LEVEL."),
        ("score", ["tidy=1"], "tidy=1 is no range of scores\nWrite EVALUATOR=LOW..HIGH."),
        ("score", ["tidy=1.2.3..4"], "tidy=1.2.3..4 is no range of scores"),
        ("duration", ["5"], "5 is no range of seconds\nWrite LOW..HIGH."),
        ("duration", ["-1..2"], "-1..2 is no range of seconds"),
    ],
)
def test_a_filter_that_means_nothing_is_refused(name: str, values: list[str], message: str) -> None:
    with pytest.raises((UsageError, NotFound)) as refused:
        item_query(**{name: values})  # type: ignore[arg-type]
    assert str(refused.value).startswith(message)


def test_a_filter_has_so_many_conditions_at_most() -> None:
    for name, text in (("factor", "f{}=x"), ("score", "s{}=1..2"), ("duration", "{}..")):
        given: dict[str, Any] = {name: [text.format(each) for each in range(MOST_CONDITIONS)]}
        item_query(**given)
        given[name].append(text.format(MOST_CONDITIONS))
        with pytest.raises(UsageError, match=f"by at most {MOST_CONDITIONS} factors and as many scores"):
            item_query(**given)
    # Levels of one factor are one condition.
    item_query(factor=[f"f={each}" for each in range(MOST_CONDITIONS + 1)])
    assert _range("a=..").low is None and _duration("..") == (None, None)


@pytest.mark.parametrize(
    ("runs", "by", "message"),
    [
        (("a", "b"), "model", "a factor divides one run"),
        ((), "model", "a factor divides one run"),
        (("a",), "", "there is nothing to compare"),
        ((), "", "there is nothing to compare"),
        (("a",), "model", ""),
        (("a", "b"), "", ""),
    ],
)
def test_two_runs_are_compared_or_the_levels_of_one(runs: tuple[str, ...], by: str, message: str) -> None:
    query = _CompareQuery(runs=runs, by=by, pair="")
    if message:
        with pytest.raises(UsageError, match=message):
            query.check()
    else:
        query.check()


# New evaluations


@pytest.mark.parametrize(
    ("source", "document"),
    [
        ({"kind": "files", "paths": ["a"]}, {"files": {"paths": ["a"], "kind": "auto"}}),
        ({"kind": "files", "paths": ["a"], "file_kind": "otlp"}, {"files": {"paths": ["a"], "kind": "otlp"}}),
        ({"kind": "runs"}, {"store": {}}),
        (
            {"kind": "runs", "run_ids": ["r"], "models": ["m"], "session_ids": ["s"]},
            {"store": {"runIds": ["r"], "models": ["m"], "sessionIds": ["s"]}},
        ),
        ({"kind": "arrived"}, {"cloudWatchLogs": {"logGroupNamePrefixes": [""]}}),
        (
            {"kind": "arrived", "services": ["s"], "start": "2026-01-31T14:00Z"},
            {
                "cloudWatchLogs": {
                    "serviceNames": ["s"],
                    "filterConfig": {"timeRange": {"startTime": "2026-01-31T14:00Z"}},
                }
            },
        ),
    ],
)
def test_a_source_of_sessions_as_the_request_has_it(source: dict[str, Any], document: object) -> None:
    assert SessionSource(**source).document == document


def test_a_source_of_files_names_some() -> None:
    with pytest.raises(UsageError, match="name a file or a folder"):
        _ = SessionSource(kind="files").document


def test_what_is_left_empty_is_no_part_of_a_request(tmp_path: Path) -> None:
    new = NewEvaluation(name="n", source=SessionSource(kind="runs"), evaluators=["e"])
    document = new.pending(tmp_path).document
    assert not {"judge", "budget", "maxSessions", "concurrency", "description", "groundTruth"} & set(document)
    full = NewEvaluation(
        name="n",
        source=SessionSource(kind="runs"),
        evaluators=["e"],
        judge="j",
        budget=1.5,
        max_sessions=3,
        concurrency=2,
        votes=3,
        description="d",
    )
    members = full.pending(tmp_path).document
    assert (members["judge"], members["budget"], members["maxSessions"]) == ("j", 1.5, 3)
    assert (members["concurrency"], members["votes"], members["description"]) == (2, 3, "d")


def test_ground_truth_is_checked_with_its_problems() -> None:
    assert _check_truth("- [").problems


# Answers to exporters


@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (0, b"\x00"),
        (1, b"\x01"),
        (127, b"\x7f"),
        (128, b"\x80\x01"),
        (300, b"\xac\x02"),
        (16384, b"\x80\x80\x01"),
    ],
)
def test_numbers_of_protocol_buffers(number: int, encoded: bytes) -> None:
    assert otlp._varint(number) == encoded


def decoded(rejected: int = 0, why: str = "") -> DecodedSpans:
    return SimpleNamespace(rejected=rejected, why=why, documents=[])  # type: ignore[return-value]


METRICS_TEXT = "metrics are taken and not kept: sessions are made of traces and logs"


@pytest.mark.parametrize(
    ("result", "signal", "document", "message"),
    [
        (decoded(), TRACES, {}, b""),
        (
            decoded(3, "bad"),
            TRACES,
            {"partialSuccess": {"rejectedSpans": "3", "errorMessage": "bad"}},
            b"\x0a\x07\x08\x03\x12\x03bad",
        ),
        (decoded(2), LOGS, {"partialSuccess": {"rejectedLogRecords": "2"}}, b"\x0a\x02\x08\x02"),
        (
            decoded(1, "bad"),
            METRICS,
            {"partialSuccess": {"rejectedDataPoints": "1", "errorMessage": METRICS_TEXT}},
            b"\x0a\x48\x08\x01\x12\x44" + METRICS_TEXT.encode(),
        ),
    ],
)
def test_an_exporter_is_told_what_was_not_taken(
    result: DecodedSpans, signal: str, document: object, message: bytes
) -> None:
    as_json = otlp._accepted(result, signal, otlp.JSON)
    assert json.loads(as_json.body) == document and as_json.media_type == "application/json"
    packed = otlp._accepted(result, signal, otlp.PROTOBUF)
    assert packed.body == message and packed.media_type == "application/x-protobuf"


@pytest.mark.parametrize(("status", "retry"), [(503, "5"), (413, None)])
def test_a_refusal_has_a_code_and_a_text(status: int, retry: str | None) -> None:
    refusal = otlp.RejectedRequest(status, 14, "later")
    as_json, packed = (otlp._refusal(refusal, each) for each in (otlp.JSON, otlp.PROTOBUF))
    assert json.loads(as_json.body) == {"code": 14, "message": "later"}
    assert packed.body == b"\x08\x0e\x12\x05later"
    assert {each.status_code for each in (as_json, packed)} == {status}
    assert {each.headers.get("retry-after") for each in (as_json, packed)} == {retry}


@pytest.mark.parametrize("compression", ["gzip", " GZIP ", "x-gzip", "", "identity", "br", "zstd"])
def test_bodies_are_packed_with_gzip_or_not_at_all(compression: str) -> None:
    plain = b'{"resourceSpans": []}'
    body = gzip.compress(plain) if "gzip" in compression.lower() else plain
    if compression in ("br", "zstd"):
        with pytest.raises(otlp.RejectedRequest, match="the body may be packed with gzip") as refused:
            otlp._decode(body, compression, TRACES, otlp.JSON)
        assert (refused.value.status, refused.value.code) == (415, 3)
    else:
        assert list(otlp._decode(body, compression, TRACES, otlp.JSON).documents) == []


def test_a_body_that_cannot_be_read_is_the_senders_mistake() -> None:
    with pytest.raises(otlp.RejectedRequest) as refused:
        otlp._decode(b"{", "", TRACES, otlp.JSON)
    assert (refused.value.status, refused.value.code) == (400, 3)


def intake(token: str = "t" * 32) -> tuple[otlp.Intake, AccessControl]:
    control = access_control(token)
    receiver = otlp.Intake.__new__(otlp.Intake)
    receiver._site = SimpleNamespace(access=control)  # type: ignore[assignment]
    return receiver, control


def test_traces_are_taken_from_callers_with_the_role_run() -> None:
    receiver, _ = intake()
    receiver.check_token("Bearer " + "t" * 32, "1.2.3.4", "/v1/traces")
    receiver.check_token("Bearer " + "r" * 32, "1.2.3.4", "/v1/traces")
    for token, status, code, message in (
        ("v" * 32, 403, 7, "sending traces needs the role `run`"),
        ("", 401, 16, "this server wants a token"),
        ("wrong", 401, 16, "this server wants a token"),
    ):
        with pytest.raises(otlp.RejectedRequest, match=message) as refused:
            receiver.check_token(f"Bearer {token}", "1.2.3.4", "/v1/traces")
        assert (refused.value.status, refused.value.code) == (status, code)
    intake("")[0].check_token("", "1.2.3.4", "/v1/traces")


def test_an_address_that_tries_many_tokens_waits() -> None:
    receiver, control = intake()
    for number in range(access.FREE_GUESSES + 1):
        with pytest.raises(otlp.RejectedRequest, match="wants a token"):
            receiver.check_token(f"Bearer wrong-{number}", "1.2.3.4", "/v1/traces")
    with pytest.raises(otlp.RejectedRequest, match="too many wrong tokens from this address") as refused:
        receiver.check_token("Bearer " + "t" * 32, "1.2.3.4", "/v1/traces")
    assert (refused.value.status, refused.value.code) == (429, 8)
    receiver.check_token("Bearer " + "t" * 32, "1.2.3.5", "/v1/traces")
    assert control.audit.lines[0]["act"] == "token for /v1/traces"  # type: ignore[attr-defined]


# Tokens, guesses and the audit log


class Log:
    """An audit log in memory."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def write(self, principal: Principal, **members: Any) -> None:
        self.lines.append({"who": principal.name, **members})


def access_control(token: str = "t" * 32) -> AccessControl:
    tokens = [
        ServeToken(name="runner", role="run", token="r" * 32),
        ServeToken(name="viewer", role="view", token="", sha256=access._sha256("v" * 32)),
    ]
    return AccessControl(
        token=token,
        tokens=tokens,
        access_keys={"AKID": "secret"} if token else {},
        audit=Log(),  # type: ignore[arg-type]
        monotonic=lambda: 0.0,
    )


def test_a_caller_is_known_by_the_token_or_by_its_cookie() -> None:
    control = access_control()
    callers = [control.find_token(each * 32) for each in "trv"]
    assert callers == [Principal("proctor", "admin"), Principal("runner", "run"), Principal("viewer", "view")]
    for caller in callers:
        assert caller is not None
        cookie = f"a=b; {control.cookie_name}={control.cookie_for(caller)}"
        assert control.find_cookie(cookie) == caller
    assert control.find_token("") is None and control.find_token("x") is None
    assert control.find_cookie("") is None and control.find_cookie(f"{control.cookie_name}=x") is None
    assert control.cookie_name.startswith("proctor-") and len(control.cookie_name) == 16
    # A token of which only the hash is known cannot sign.
    assert {name: secret for name, (secret, _) in control.signing_secrets.items()} == {
        "proctor": "t" * 32,
        "runner": "r" * 32,
        "AKID": "secret",
    }
    assert control.signing_secrets["AKID"][1] == Principal("AKID", "admin")


def test_a_server_without_a_token_knows_none() -> None:
    control = access_control("")
    assert control.is_open and not control.signs and control.find_token("r" * 32) is None
    assert not access_control().is_open and access_control().signs


@pytest.mark.parametrize(
    ("role", "includes"),
    [("view", 1), ("label", 2), ("run", 3), ("admin", 4)],
)
def test_a_role_includes_the_lower_ones(role: str, includes: int) -> None:
    roles = ("view", "label", "run", "admin")
    assert [Principal("p", role).has(each) for each in roles] == [True] * includes + [False] * (4 - includes)


def test_names_of_people_are_those_of_their_tokens() -> None:
    def scope(name: str, role: str) -> dict[str, object]:
        return {access.RECORD: access.RequestRecord(address="", principal=Principal(name, role))}

    assert access.person_of(scope("ana", "label")) == "ana"
    assert access.person_of(scope("proctor", "admin")) == access.person_of(scope("local", "admin")) == ""
    assert access.person_of({}) == "" and access.role_of({}) == "view"
    assert access.role_of(scope("ana", "label")) == "label"


def test_each_new_guess_doubles_the_wait_up_to_a_minute() -> None:
    clock = SimpleNamespace(now=1000.0)
    limiter = GuessLimiter(lambda: clock.now)
    waits = []
    for number in range(14):
        assert limiter.fail("1.2.3.4", f"guess {number}") == number + 1
        waits.append(limiter.seconds_to_wait("1.2.3.4"))
    assert waits == [0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert limiter.fail("1.2.3.4", "guess 13") == 0 and limiter.seconds_to_wait("9.9.9.9") == 0
    clock.now += 59
    assert limiter.seconds_to_wait("1.2.3.4") == 1
    clock.now += 2
    assert limiter.seconds_to_wait("1.2.3.4") == 0
    clock.now += access.FORGET_SECONDS
    assert limiter.fail("1.2.3.4", "another") == 1


def test_addresses_of_one_ipv6_network_are_one_caller() -> None:
    assert access._network("2001:db8:1:2:3::4") == access._network("2001:db8:1:2::1") == "2001:db8:1:2::/64"
    assert access._network("2001:db8:1:3::1") != "2001:db8:1:2::/64"
    assert (access._network("1.2.3.4"), access._network("unix")) == ("1.2.3.4", "unix")


def test_the_audit_log_is_read_newest_first_over_two_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "private" / "audit.jsonl"
    log = AuditLog(path, lambda: NOON)
    log.write(Principal("ana", "run"), act="abort", address="a", status=200, target="x" * 501)
    monkeypatch.setattr(access, "MOST_AUDIT_BYTES", 10)
    log.write(Principal("", ""), act="login", address="b", status=401, guesses=3)
    with path.open("ab") as file:
        file.write(b'{"cut')
    assert path.stat().st_mode & 0o777 == 0o600
    newest, oldest = log.latest(10)
    assert newest == {
        "at": "2026-01-02T12:00:00.000Z",
        "who": "",
        "role": "",
        "from": "b",
        "act": "login",
        "target": "",
        "status": 401,
        "guesses": 3,
    }
    assert oldest["target"] == "x" * 500 and "guesses" not in oldest
    assert log.latest(1) == [newest] and path.with_suffix(".1.jsonl").exists()


# Signatures


@pytest.mark.parametrize(
    ("stamp", "day", "problem"),
    [
        ("20260102T120000Z", "20260102", ""),
        ("20260102T114500Z", "20260102", ""),
        ("20260102T121500Z", "20260102", ""),
        (
            "20260102T114459Z",
            "20260102",
            "Signature expired: 20260102T114459Z is more than 15 minutes before",
        ),
        ("20260102T121501Z", "20260102", "Signature not yet current: 20260102T121501Z is more than 15"),
        ("20260102T120000Z", "20260103", "Date in Credential scope does not match X-Amz-Date."),
        ("2026-01-02", "20260102", "The X-Amz-Date header must be written as"),
    ],
)
def test_a_signature_is_fifteen_minutes_old_at_most(stamp: str, day: str, problem: str) -> None:
    if not problem:
        auth._check_time(stamp, day, NOON)
        return
    with pytest.raises(auth.SignatureRefused, match=problem):
        auth._check_time(stamp, day, NOON)
    assert timedelta(minutes=15) == auth.CLOCKS_DIFFER_AT_MOST


def test_paths_and_queries_are_written_in_one_way_for_a_signature() -> None:
    assert (auth._canonical_path(""), auth._canonical_path("/a%3Ab/-_.~")) == ("/", "/a%253Ab/-_.~")
    assert auth._canonical_query("b=2&a=%7e&&a=1 x&c") == "a=1%20x&a=~&b=2&c="
    assert auth._secret_of("b", {"a": "1", "b": "2"}) == "2"
    with pytest.raises(auth.SignatureRefused, match="security token included in the request is invalid"):
        auth._secret_of("c", {"a": "1"})
