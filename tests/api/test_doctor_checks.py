"""Sentences about a tried agent or model, and checks of the machine."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proctor.api import doctor
from proctor.context import Settings
from proctor.errors import ModelError, RateLimited, UsageError
from proctor.model_client import Answer
from proctor.session import ModelCall, Usage


def outcome(**changes: Any) -> Any:
    usual = {"status": "success", "standIn": False, "reason": "completed", "error": "", "seconds": 2.0}
    usual |= {"calls": 2, "failedCalls": [], "tokens": 1500, "costUsd": 0.25, "toolCalls": 1, "said": ""}
    return usual | changes


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "completed the task in 2 s"),
        ({"standIn": True}, "completed the task in 2 s (mock)"),
        (
            {"status": "fail", "reason": "checks_failed", "error": "no\nfile"},
            "fail (checks_failed) after 2 s: no file",
        ),
    ],
)
def test_how_an_agent_did(changes: dict[str, Any], text: str) -> None:
    assert doctor._outcome(outcome(**changes)) == text


@pytest.mark.parametrize(
    ("changes", "reach", "text"),
    [
        ({}, "own", ""),
        ({"calls": 0}, "gateway", "no model calls"),
        ({}, "gateway", "2 model calls, 1,500 tokens, $0.25"),
        ({"calls": 1, "costUsd": None}, "gateway", "1 model call, 1,500 tokens"),
        (
            {"failedCalls": ["500: a", "429: b"]},
            "gateway",
            "2 model calls, 1,500 tokens, $0.25, 2 failed (429: b)",
        ),
    ],
)
def test_the_calls_of_an_agent(changes: dict[str, Any], reach: Any, text: str) -> None:
    assert doctor._calls(outcome(**changes), reach) == text


@pytest.mark.parametrize(
    ("changes", "reach", "beginning"),
    [
        ({"calls": 0, "failedCalls": ["x"]}, "gateway", "It never called the gateway."),
        ({"calls": 0, "failedCalls": ["x"]}, "own", "Its model failed, not the agent."),
        ({"reason": "timeout"}, "gateway", "It did not finish in 120 s."),
        ({"reason": "checks_failed"}, "gateway", "It ran and made no hello.txt."),
        ({"reason": "no_changes"}, "own", "It ran and made no hello.txt."),
        ({"reason": "agent_failed"}, "gateway", "For its full output, run a plan of one item"),
    ],
)
def test_advice_about_an_agent_names_the_likeliest_cause(
    changes: dict[str, Any], reach: Any, beginning: str
) -> None:
    assert doctor._advice(outcome(**changes), reach).startswith(beginning)


def test_an_answer_of_a_model_is_described_with_its_time_tokens_and_price() -> None:
    call = ModelCall(
        model="m",
        usage=Usage(input_tokens=1, output_tokens=2000),
        cost_usd=0.5,
        latency_ms=1500.0,
        price_source="plan",
    )
    result = doctor._answered("openai/m", Answer(text=" OK\n", call=call))
    assert result.check.said == "answered in 1.5 s, 1 token in, 2,000 out, $0.50: OK"
    assert result.check.well and result.check.name == "model openai/m"
    assert result.document == {
        "name": "openai/m",
        "answered": True,
        "standIn": False,
        "text": " OK\n",
        "latencyMs": 1500.0,
        "promptTokens": 1,
        "completionTokens": 2000,
        "costUsd": 0.5,
        "priceSource": "plan",
    }
    mock = doctor._answered("scripted/ok", Answer(text="x" * 400, call=ModelCall(model="m")))
    assert mock.check.said.startswith("mock model, answered in 0 s, 0 tokens in, 0 out, price unknown: xxx")
    assert mock.document["standIn"] is True and mock.document["text"] == "x" * 300


ENDPOINT: Any = SimpleNamespace(
    provider="mine", base_url="http://h", key_variable="MINE_API_KEY", missing_key=False
)


def caused(error: ModelError, cause: BaseException) -> ModelError:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "endpoint", "problem", "remedy"),
    [
        (
            ModelError("no", reason="auth"),
            SimpleNamespace(**{**vars(ENDPOINT), "missing_key": True}),
            "needs a key, and MINE_API_KEY is not set",
            "Set it: export MINE_API_KEY=…",
        ),
        (
            ModelError("no", reason="auth"),
            ENDPOINT,
            "the provider rejected the key in MINE_API_KEY: no",
            "Set MINE_API_KEY to a valid key.",
        ),
        (ModelError("no", reason="auth"), None, "no", ""),
        (
            ModelError("no", reason="quota"),
            ENDPOINT,
            "the account has no credit left: no",
            "Add credit with the provider, or use another key.",
        ),
        (caused(ModelError("no"), TimeoutError()), None, "timed out: no", ""),
        (caused(ModelError("no"), OSError()), ENDPOINT, "cannot connect to http://h: no", "To use another"),
        (caused(ModelError("no"), OSError()), None, "no", ""),
        (ModelError("no"), ENDPOINT, "no", "To use another address than http://h, set "),
    ],
)
def test_why_a_model_does_not_answer(error: ModelError, endpoint: Any, problem: str, remedy: str) -> None:
    explained = doctor._explain(error, endpoint)
    assert explained[0] == problem and explained[1].startswith(remedy) and bool(explained[1]) == bool(remedy)


@pytest.mark.parametrize(("wait", "remedy"), [(None, "Retry later;"), (90.0, "Retry after 1 min 30 s;")])
def test_a_rate_limit_says_when_to_try_again(wait: float | None, remedy: str) -> None:
    problem, advice = doctor._explain(RateLimited("slow", retry_after_seconds=wait), None)
    assert problem == "rate limited: slow" and advice == f"{remedy} batches wait automatically."


def test_a_store_that_does_not_exist_yet_will_be_created(tmp_path: Path) -> None:
    result = doctor._store(Settings(home=tmp_path, store_url=str(tmp_path / "a" / "b.db")))
    assert result.well and result.said == f"{tmp_path}/a/b.db will be created by the first batch"
    assert doctor._existing(tmp_path / "a" / "b") == tmp_path
    (tmp_path / "c.db").write_text("no store")
    broken = doctor._store(Settings(home=tmp_path, store_url=str(tmp_path / "c.db")))
    assert broken.well is False and broken.remedy.startswith("Repair it, or choose another with --store")


def test_a_check_fails_only_if_it_is_neither_well_nor_a_remark() -> None:
    well, remark, bad = (doctor.CheckResult(name="n", well=each, said="") for each in (True, None, False))
    assert doctor.all_passed([well, remark]) and not doctor.all_passed([well, bad]) and doctor.all_passed([])


@pytest.mark.parametrize(("mode", "noted"), [(0o700, False), (0o710, True), (0o701, True)])
def test_a_home_that_others_may_enter_is_noted(mode: int, noted: bool, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    home.chmod(mode)
    results = list(doctor.check_store(Settings(home=home, store_url=str(home / "no.db"))))
    assert [(each.name, each.well) for each in results] == ([("home", None)] if noted else [])
    if noted:
        assert results[0].said == f"other users may enter {home} (mode {mode:o})"


def test_a_sandbox_that_cannot_be_had_is_a_problem_with_a_remedy() -> None:
    def refuse(_: object) -> str:
        raise UsageError("no bubblewrap\nInstall it.")

    def settings(kind: str) -> Any:
        confinement = SimpleNamespace(kind_of=lambda _: kind, summary=lambda _: f"by {kind}")
        return SimpleNamespace(confinement=confinement)

    refused: Any = SimpleNamespace(confinement=SimpleNamespace(kind_of=refuse))
    results = [doctor._sandbox(each) for each in (refused, settings("bwrap"), settings("none"))]
    assert [(each.well, each.said, bool(each.remedy)) for each in results] == [
        (False, "no bubblewrap", True),
        (True, "by bwrap", False),
        (None, "by none", True),
    ]
    assert results[0].remedy == "Install it."


@pytest.mark.parametrize(
    ("printed", "well"),
    [
        ("git version 2.30.9", False),
        ("git version 2.31.0", True),
        ("git version 2.100.1 (Apple Git-1)", True),
        ("git version 3.0", True),
        ("git version 1.99", False),
        ("git", False),
    ],
)
def test_git_has_what_worktrees_need_from_2_31_on(printed: str, well: bool, tmp_path: Path) -> None:
    program = tmp_path / "git"
    program.write_text(f"#!/bin/sh\necho '{printed}'\n")
    program.chmod(0o755)
    result = doctor._git({"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert (result.name, result.well, result.said) == ("git", well, printed)
    assert result.remedy == ("" if well else "Install git 2.31 or newer.")


def test_git_that_cannot_be_started_is_a_problem(tmp_path: Path) -> None:
    result = doctor._git({"PATH": str(tmp_path)})
    assert result.well is False and result.said.startswith("cannot be started: ")
    assert result.remedy == "Install git 2.31 or newer."


@pytest.mark.parametrize(
    ("version", "well"),
    [((3, 10), False), ((3, 11), True), ((3, 12), True), ((4, 0), True), ((2, 99), False)],
)
def test_python_is_3_11_or_newer(version: tuple[int, int], well: bool, monkeypatch: Any) -> None:
    monkeypatch.setattr(doctor.sys, "version_info", (*version, 7, "final", 0))
    result = doctor._python()
    assert (result.name, result.well) == ("python", well)
    assert result.remedy == ("" if well else "Install Python 3.11 or newer.")


@pytest.mark.parametrize(
    ("free", "well", "text"),
    [(2 * 1024**3, True, "2.0"), (2 * 1024**3 - 1, False, "2.0"), (3 * 1024**3 // 2, False, "1.5")],
)
def test_two_gibibytes_are_enough(free: int, well: bool, text: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    result = doctor._disk(tmp_path / "new")
    assert (result.name, result.well, result.said) == ("disk", well, f"{text} GiB free at {tmp_path}/new")
    assert bool(result.remedy) == (not well)
