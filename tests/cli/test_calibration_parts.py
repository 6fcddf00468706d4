"""Labels of people in files, scales of judges, lines of `doctor`, and definitions of evaluators."""

from typing import Any

import pytest

from proctor.api.doctor import CheckResult
from proctor.cli.inventory import _print_checks
from proctor.score import Score


def score(target: str, error: str = "", **changes: Any) -> Score:
    usual: dict[str, Any] = {"evaluator": "e", "level": "trace", "target": target, "error": error}
    return Score(**usual | changes)


# --- Lines of `doctor` ---


def test_checks_are_printed_in_columns(capsys: pytest.CaptureFixture[str]) -> None:
    checks = [
        CheckResult(name="git", well=True, said="2.40"),
        CheckResult(name="python", well=False, said="3.9", remedy="install 3.11"),
        CheckResult(name="disk", well=None, said="full"),
    ]
    _print_checks(checks)
    assert capsys.readouterr().out.splitlines() == [
        "ok     git     2.40",
        "FAIL   python  3.9",
        "               → install 3.11",
        "       disk    full",
    ]
