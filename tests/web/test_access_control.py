"""Tokens, roles, slowed guesses, the audit log and the server's own token, without a server."""

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from proctor.config import ServeToken
from proctor.web import access
from proctor.web.access import (
    AccessControl,
    AuditLog,
    GuessLimiter,
    Principal,
    RequestRecord,
    check_roles,
    operation_role,
    role_of,
    stored_token,
)

MAIN = "m" * 32
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def control(folder: Path, token: str = MAIN, **options: Any) -> AccessControl:
    audit = AuditLog(folder / "serve" / "audit.jsonl", lambda: NOW)
    return AccessControl(token=token, audit=audit, monotonic=Clock(), **options)


DIGEST = hashlib.sha256(b"d" * 20).hexdigest()
TOKENS = (
    ServeToken(name="ann", role="view", token="a" * 20),
    ServeToken(name="bob", role="run", sha256=DIGEST),
)


def test_a_token_is_found_with_its_role_and_nothing_else_is(tmp_path: Path) -> None:
    made = control(tmp_path, tokens=TOKENS)
    assert made.find_token(MAIN) == Principal("proctor", "admin")
    assert made.find_token("a" * 20) == Principal("ann", "view") and made.find_token("d" * 20) == Principal(
        "bob", "run"
    )
    for wrong in ("", "a" * 19, DIGEST, "ü"):
        assert made.find_token(wrong) is None
    assert not made.is_open and made.signs
    opened = control(tmp_path, token="", tokens=TOKENS)
    assert opened.is_open and opened.find_token("a" * 20) is None and not opened.signs
    assert control(tmp_path, token="", access_keys={"AK": "s"}).signs


def test_only_known_secrets_can_sign(tmp_path: Path) -> None:
    made = control(tmp_path, tokens=TOKENS, access_keys={"AK": "secret"})
    assert set(made.signing_secrets) == {"proctor", "ann", "AK"}
    assert made.signing_secrets["AK"] == ("secret", Principal("AK", "admin"))
    assert made.signing_secrets["ann"] == ("a" * 20, Principal("ann", "view"))


def test_a_login_cookie_is_of_one_token_of_one_server(tmp_path: Path) -> None:
    made = control(tmp_path, tokens=TOKENS)
    ann = Principal("ann", "view")
    cookie = made.cookie_for(ann)
    assert made.find_cookie(f"{made.cookie_name}={cookie}") == ann
    for header in (
        "",
        f"{made.cookie_name}={cookie[:-1]}",
        f"other={cookie}",
        f"{made.cookie_name}=",
        "\0=;;",
    ):
        assert made.find_cookie(header) is None
    other = control(tmp_path, token="n" * 32, tokens=TOKENS)
    assert other.cookie_name != made.cookie_name and other.cookie_for(ann) != cookie
    promoted = control(tmp_path, tokens=[ServeToken(name="ann", role="run", token="a" * 20)])
    assert promoted.find_cookie(f"{made.cookie_name}={cookie}") is None
    assert (
        "a" * 20 not in cookie
        and len({made.cookie_for(Principal(name, "")) for name in ("proctor", "ann", "bob")}) == 3
    )


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("GetX", "view"),
        ("ListX", "view"),
        ("DescribeX", "view"),
        ("FilterLogEvents", "view"),
        ("StartQuery", "view"),
        ("StopQuery", "view"),
        ("StartBatch", "run"),
        ("CreateX", "run"),
        ("DeleteX", "admin"),
    ],
)
def test_the_role_of_an_operation_is_that_of_its_verb(name: str, role: str) -> None:
    assert operation_role(name) == role


def test_a_role_includes_those_below_it() -> None:
    roles = ("view", "label", "run", "admin")
    for high, mine in enumerate(roles):
        assert [Principal("x", mine).has(role) for role in roles] == [low <= high for low in range(4)]
    assert role_of({}) == "view" and role_of({access.RECORD: RequestRecord("::1")}) == "view"
    assert role_of({access.RECORD: RequestRecord("::1", Principal("x", "run"))}) == "run"


class Route:
    def __init__(self, path: str, *methods: str) -> None:
        self.path, self.methods = path, set(methods) or None


def test_a_route_without_a_role_stops_the_server() -> None:
    check_roles([Route("/api/runs", "GET", "HEAD"), Route("/login", "POST"), Route("/api/live")])  # type: ignore[list-item]
    with pytest.raises(LookupError, match=r"DELETE /api/runs$"):
        check_roles([Route("/api/runs", "DELETE", "GET", "HEAD")])  # type: ignore[list-item]


# --- Guesses ---


def test_an_address_waits_longer_with_each_guess_after_the_fifth() -> None:
    clock = Clock()
    limiter = GuessLimiter(clock)
    waits = list[float]()
    for number in range(1, 14):
        assert limiter.fail("1.2.3.4", f"guess {number}") == number
        waits.append(limiter.seconds_to_wait("1.2.3.4"))
    assert waits == [0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60]
    assert limiter.seconds_to_wait("1.2.3.5") == 0
    clock.now += 59.5
    assert limiter.seconds_to_wait("1.2.3.4") == 0.5
    clock.now += 10
    assert limiter.seconds_to_wait("1.2.3.4") == 0


def test_the_same_wrong_token_again_is_no_guess() -> None:
    limiter = GuessLimiter(Clock())
    assert [
        limiter.fail("a", "x"),
        limiter.fail("a", "x"),
        limiter.fail("a", "y"),
        limiter.fail("a", "x"),
    ] == [1, 0, 2, 0]
    for number in range(16):
        limiter.fail("a", f"more {number}")
    assert limiter.fail("a", "x") == 19


def test_guesses_are_forgotten_after_a_quarter_of_an_hour() -> None:
    clock = Clock()
    limiter = GuessLimiter(clock)
    limiter.fail("a", "x")
    clock.now += 900
    assert limiter.fail("a", "y") == 2
    clock.now += 900.1
    assert limiter.fail("a", "z") == 1


def test_the_addresses_of_one_network_are_one_guesser_and_the_oldest_are_forgotten(monkeypatch: Any) -> None:
    limiter = GuessLimiter(Clock())
    assert limiter.fail("2001:db8::1", "x") == 1 and limiter.fail("2001:db8::2", "y") == 2
    assert (
        limiter.fail("2001:db8:0:1::1", "z") == 1
        and limiter.fail("1.2.3.4", "z") == 1
        and limiter.fail("1.2.3.5", "z") == 1
    )
    monkeypatch.setattr(access, "MOST_ADDRESSES", 2)
    limiter = GuessLimiter(Clock())
    for address in ("a", "b", "a", "c"):
        limiter.fail(address, f"of {address}")
    assert (limiter.fail("a", "next"), limiter.fail("c", "next")) == (2, 2)
    assert limiter.fail("b", "next") == 1


def test_a_wrong_token_is_in_the_audit_log_once(tmp_path: Path) -> None:
    made = control(tmp_path)
    for presented in ("x", "x", "y"):
        made.note_wrong("1.2.3.4", presented, "sign in")
    entries = made.audit.latest(10)
    assert [(each["guesses"], each["status"], each["from"], each["act"]) for each in entries] == [
        (2, 401, "1.2.3.4", "sign in"),
        (1, 401, "1.2.3.4", "sign in"),
    ]


# --- Audit log ---


def test_the_audit_log_is_private_and_read_from_its_end(tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "serve" / "audit.jsonl"
    log = AuditLog(path, lambda: NOW)
    assert log.latest(5) == []
    for number in range(3):
        log.write(Principal("ann", "run"), act=f"act {number}", address="::1", status=200, target="t" * 501)
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
    assert [each["act"] for each in log.latest(2)] == ["act 2", "act 1"]
    first = log.latest(1)[0]
    assert len(str(first["target"])) == 500 and "guesses" not in first
    assert (first["who"], first["role"], first["at"]) == ("ann", "run", "2026-01-02T03:04:05.000Z")
    monkeypatch.setattr(access, "MOST_AUDIT_BYTES", path.stat().st_size)
    log.write(Principal("ann", "run"), act="act 3", address="::1", status=200)
    assert not (tmp_path / "serve" / "audit.1.jsonl").exists()
    log.write(Principal("ann", "run"), act="act 4", address="::1", status=200)
    assert len(path.read_text().splitlines()) == 1
    assert [each["act"] for each in log.latest(10)] == [f"act {number}" for number in (4, 3, 2, 1, 0)]
    with path.open("a") as file:
        file.write('{"cut')
    assert log.latest(1)[0]["act"] == "act 4"
    assert json.loads(path.read_text().splitlines()[0])["status"] == 200


def test_an_audit_log_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "serve").write_text("a file")
    AuditLog(tmp_path / "serve" / "audit.jsonl", lambda: NOW).write(
        Principal("a", "run"), act="x", address="", status=1
    )


# --- The server's own token ---


def test_the_token_of_a_home_is_kept_unless_others_could_read_it(tmp_path: Path) -> None:
    token = stored_token(tmp_path / "home")
    path = tmp_path / "home" / "token"
    assert len(token) >= 32 and path.stat().st_mode & 0o777 == 0o600
    assert stored_token(tmp_path / "home") == token and [file.name for file in path.parent.iterdir()] == [
        "token"
    ]
    for mode in (0o640, 0o604, 0o610, 0o601):
        path.chmod(mode)
        replaced = stored_token(tmp_path / "home")
        assert replaced != token
        token = replaced
    for length, kept in ((16, True), (15, False)):
        path.write_text("t" * length)
        assert (stored_token(tmp_path / "home") == "t" * length) is kept
    (tmp_path / "file").write_text("")
    assert stored_token(tmp_path / "file") != stored_token(tmp_path / "file")
