"""Settings that are read from texts and files: stop rules, resources, tokens; caches and secrets."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from proctor.cache import LruCache, ResultCache
from proctor.config import checked_token, read_token_file, serve_tokens
from proctor.errors import UsageError, WorkspaceError, blame
from proctor.item import read_resources, shown_status
from proctor.secrets import is_secret, machine_part, on_machine, private_folder, redactor, referenced, visible


@pytest.mark.parametrize(
    ("given", "amounts"),
    [
        ({"cpu": 2, "gpu": 0.5}, {"CPU": 2.0, "GPU": 0.5}),
        ({"gpu": 1}, {"GPU": 1.0}),
        ({"gpu": 3}, {"GPU": 3.0}),
        ({"memory": "4GiB"}, {"memory": 4.0 * 2**30}),
        ({"memory": "1.5 M"}, {"memory": 1.5 * 2**20}),
        ({"memory": "2KB"}, {"memory": 2048.0}),
        ({"memory": "1T"}, {"memory": 2.0**40}),
        ({"memory": 100}, {"memory": 100.0}),
        ({"memory": 2**62 - 1024}, {"memory": 2.0**62 - 1024}),
        ({"custom": {"tpu": 1}}, {"tpu": 1.0}),
    ],
)
def test_the_resources_of_a_plan(given: dict[str, Any], amounts: dict[str, float]) -> None:
    assert read_resources(given) == amounts


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "should name amounts"),
        ([1], "should name amounts"),
        ({"custom": {}}, "names no amounts"),
        ({"custom": 3}, "names no amounts"),
        ({"disk": 1}, "has no `disk`"),
        ({"cpu": 0}, "`cpu` that is no number above 0$"),
        ({"cpu": -1}, "no number above 0"),
        ({"cpu": True}, "no number above 0"),
        ({"cpu": "2"}, "no number above 0"),
        ({"cpu": 2**62}, "no number above 0"),
        ({"memory": "4 apples"}, "no number above 0 and no size like 4GiB"),
        ({"memory": 2**62}, "no number above 0 and no size like 4GiB"),
        ({"custom": {"tpu": 0}}, "`custom.tpu`"),
        ({"gpu": 1.5}, "neither a whole number nor a part of one GPU"),
    ],
)
def test_resources_that_cannot_be_are_described(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_resources(given)


def test_a_success_that_nothing_checked_is_shown_as_that() -> None:
    assert shown_status("success", "unchecked") == "unchecked"
    assert shown_status("success", "completed") == "success" and shown_status("fail", "unchecked") == "fail"


# --- Tokens ---

TOKEN = "t" * 16


@pytest.mark.parametrize(
    ("token", "problem"),
    [
        (TOKEN, ""),
        ("t" * 15, "fewer than 16 characters"),
        ("t" * 15 + "ü", "only ASCII"),
        ("t" * 8 + " " + "t" * 8, "no spaces"),
        ("t" * 16 + "\x07", "only ASCII"),
    ],
)
def test_a_token_that_can_be_sent_and_not_guessed(token: str, problem: str) -> None:
    if problem:
        with pytest.raises(UsageError, match=f"here: .*{problem}"):
            checked_token(token, "here")
    else:
        assert checked_token(token, "here") == token


def test_tokens_come_from_files_the_environment_and_digests(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f" {TOKEN}\n")
    entries = {
        "file": {"role": "admin", "token_file": str(tmp_path / "token")},
        "env": {"role": "viewer", "token_env": "MINE"},
        "digest": {"role": "viewer", "sha256": "AB" * 32},
    }
    made = {token.name: token for token in serve_tokens(entries, {"MINE": "m" * 20})}
    assert (made["file"].token, made["file"].role) == (TOKEN, "admin")
    assert (made["env"].token, made["digest"].sha256) == ("m" * 20, "ab" * 32)
    with pytest.raises(UsageError, match="MINE is not set"):
        serve_tokens(entries, {})
    with pytest.raises(UsageError, match="is not a file"):
        read_token_file(tmp_path, "here")
    (tmp_path / "token").write_bytes(b"\xff" * 20)
    with pytest.raises(UsageError, match="cannot read"):
        read_token_file(tmp_path / "token", "here")


# --- Caches ---


def test_the_least_recently_used_value_is_dropped() -> None:
    cache = LruCache[str, int](2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1
    cache.put("c", 3)
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (1, None, 3)


def test_heavy_values_are_dropped_sooner_but_not_below_the_least() -> None:
    cache = LruCache[str, int](9, most_weight=10, least=1)
    for name, weight in (("a", 5), ("b", 5)):
        cache.put(name, 1, weight)
    assert cache.get("a") == 1 and cache.get("b") == 1
    cache.put("a", 2, 6)
    assert cache.get("b") is None and cache.get("a") == 2
    cache.put("c", 3, 99)
    assert cache.get("a") is None and cache.get("c") == 3
    cache.put("c", 4, 1)
    cache.put("d", 5, 9)
    assert cache.get("c") == 4 and cache.get("d") == 5


def test_a_result_is_valid_until_its_run_changes_or_for_a_few_seconds() -> None:
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    cache = ResultCache[int](lambda: now[0], while_running=timedelta(seconds=5))
    computed = iter(range(100))
    running = {"runId": "r", "status": "running", "owner": "o", "finished": 1}

    def result(batch: dict[str, Any], about: str = "x") -> int:
        return cache.get(batch, about, lambda: next(computed))

    assert result(running) == result({**running, "finished": 2}) == 0
    assert result(running, "y") == 1 and result({**running, "owner": "other"}) == 2
    assert result(running) == 3
    now[0] += timedelta(seconds=4.9)
    assert result(running) == 3
    now[0] += timedelta(seconds=0.1)
    assert result(running) == 4
    now[0] -= timedelta(seconds=6)
    assert result(running) == 5
    ended = {**running, "status": "success"}
    assert result(ended) == 6
    now[0] += timedelta(days=9)
    assert result(ended) == 6 and result({**ended, "finished": 3}) == 7 and result(running) == 8


# --- Secrets ---


def test_secrets_are_removed_as_text_and_as_json() -> None:
    redact = redactor(
        {"MY_TOKEN": 'abc"defgh', "API_KEY": "short", "KEY_FILE": "/etc/long/path", "PATH": "/usr/bin:/bin"}
    )
    assert redact('x abc"defgh y') == "x [secret] y" and redact('{"a": "abc\\"defgh"}') == '{"a": "[secret]"}'
    assert redact("short /etc/long/path /usr/bin:/bin") == "short /etc/long/path /usr/bin:/bin"
    assert redactor({"MY_TOKEN": "1234567"})("1234567") == "1234567"
    assert redactor({"MY_TOKEN": "12345678"})("12345678") == "[secret]"
    assert redactor({"A_TOKEN": "12345678", "B_TOKEN": "1234567890"})("1234567890") == "[secret]"


def test_what_agents_and_machines_see_of_an_environment() -> None:
    names = ["PATH", "LC_ALL", "FOO_BIN", "MINE", "API_TOKEN", "HOME", "TERM"]
    environment = {name: f"of {name}" for name in names}
    seen = {"PATH", "LC_ALL", "FOO_BIN", "MINE", "TERM", *({"HOME"} & set(visible({"HOME": ""})))}
    assert set(visible(environment, named=["MINE"])) == seen
    assert set(machine_part(environment)) == {"PATH", "FOO_BIN", "HOME"}
    stay = {name: environment[name] for name in ("LC_ALL", "MINE", "API_TOKEN", "TERM")}
    assert on_machine(environment, {"PATH": "q"}) == {**stay, "PATH": "q"}
    assert referenced(["${A} and ${B_2}", "$C"]) == {"A", "B_2"}
    assert is_secret("my_password") and is_secret("AUTH_X") and not is_secret("PATH")


def test_a_private_folder_is_for_its_owner_only(tmp_path: Path) -> None:
    made = private_folder(tmp_path / "a" / "b")
    assert made.stat().st_mode & 0o777 == 0o700
    made.chmod(0o755)
    assert private_folder(made).stat().st_mode & 0o777 == 0o755


def test_an_error_is_attributed_to_its_boundary() -> None:
    with pytest.raises(WorkspaceError, match=r"^copying: no space$"), blame(WorkspaceError, "copying"):
        raise OSError("no space")
    with pytest.raises(WorkspaceError, match=r"^copying: KeyError$"), blame(WorkspaceError, "copying"):
        raise KeyError
