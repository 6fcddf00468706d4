"""How a command line is read before its command is loaded."""

import gc
from types import SimpleNamespace
from typing import Any

import pytest

from proctor import __version__
from proctor.cli import main as dispatch
from proctor.cli.main import COMMANDS, INTERNAL, main


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Which command of which module was called with what."""
    made: list[Any] = []

    def load(module: str) -> Any:
        def command(name: str) -> Any:
            def call(
                *, args: list[str], prog_name: str, standalone_mode: bool, obj: dict[str, str]
            ) -> int | None:
                made.append((module, name, args, prog_name, standalone_mode, obj))
                return 3 if "--fail" in args else None

            return call

        return SimpleNamespace(apps={name: command(name) for name in (*COMMANDS, *INTERNAL)})

    monkeypatch.setattr(dispatch, "load", load)
    monkeypatch.setattr(gc, "freeze", lambda: None)
    monkeypatch.setattr(gc, "set_threshold", lambda *_: None)
    return made


def test_a_command_gets_its_words_and_the_global_options(calls: list[Any]) -> None:
    assert main(["runs", "--limit", "3", "--store", "s.db"]) == 0
    assert main(["--home=h", "experiment", "c.yaml", "--fail"]) == 3
    assert main(["launched", "r"]) == 0
    assert calls == [
        ("proctor.cli.runs", "runs", ["--limit", "3"], "proctor runs", False, {"store": "s.db"}),
        (
            "proctor.cli.scenario",
            "experiment",
            ["c.yaml", "--fail"],
            "proctor experiment",
            False,
            {"home": "h"},
        ),
        ("proctor.cli.resume", "launched", ["r"], "proctor launched", False, {}),
    ]


def test_an_unknown_command_is_named(calls: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rnus"]) == 2
    printed = capsys.readouterr()
    assert "rnus" in printed.err and "runs" in printed.err and printed.out == ""
    assert main(["--store", "s.db"]) == 2
    assert calls == []


def test_help_and_version_load_no_command(calls: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert [main([]), main(["--help"]), main(["-h"]), main(["help"])] == [2, 0, 0, 0]
    text = capsys.readouterr().out
    assert text.count("proctor COMMAND [OPTIONS]\n") == 4
    assert "\nRun:\n  batch       Run a plan of repositories × prompts × agents.\n  bench       Run" in text
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"proctor {__version__}\n"
    assert main(["--version", "--json"]) == 0
    assert f'"version": "{__version__}"' in capsys.readouterr().out
    assert calls == []
