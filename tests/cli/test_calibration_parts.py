"""Labels of people in files, scales of judges, lines of `doctor`, and definitions of evaluators."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proctor.api.doctor import CheckResult
from proctor.cli import calibrate
from proctor.cli.inventory import _print_checks
from proctor.errors import UsageError
from proctor.score import Score


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_labels_are_read_with_their_lines_under_any_known_heading(tmp_path: Path) -> None:
    file = write(
        tmp_path / "labels.csv",
        "\ufeffSession_ID, Trace ,rater,LABEL,score,comment\ns1,turn-1,ana,Yes,0.5,why\ns2,,, No ,,\n",
    )
    usual = {"dimension": "", "evaluator": ""}
    assert calibrate.label_rows(file) == [
        (
            2,
            usual
            | {
                "session": "s1",
                "target": "turn-1",
                "who": "ana",
                "label": "Yes",
                "value": 0.5,
                "note": "why",
            },
        ),
        (3, usual | {"session": "s2", "target": "", "who": "", "label": "No", "value": None, "note": ""}),
    ]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("s,,", ":2: a label needs a session, and a label or a value"),
        (",Yes,1", ":2: a label needs a session, and a label or a value"),
        ("s,Yes,much", ":2: `much` is no number"),
    ],
)
def test_a_line_without_a_label_is_refused(row: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=problem):
        calibrate.label_rows(write(tmp_path / "l.csv", f"session,label,value\n{row}\n"))
    assert (
        calibrate.label_rows(write(tmp_path / "l.csv", "session,label,value\ns,,0\n"))[0][1]["value"] == 0.0
    )


def session(*ids: str) -> Any:
    calls = [SimpleNamespace(call_id="call")]
    return SimpleNamespace(traces=[SimpleNamespace(id=each) for each in ids], tool_calls=calls)


@pytest.mark.parametrize(
    ("ids", "target", "found"),
    [
        (("a", "b"), "turn-1", "a"),
        (("a", "b"), "turn-2", "b"),
        (("a", "b"), "turn-0", "turn-0"),
        (("a", "b"), "turn-3", "turn-3"),
        (("turn-2", "turn-1"), "turn-1", "turn-1"),
        (("a", "b"), "turn-x", "turn-x"),
        (("a", "b"), "step-1", "step-1"),
        (("a", "b"), "", ""),
    ],
)
def test_a_turn_is_named_by_its_number_or_its_id(ids: tuple[str, ...], target: str, found: str) -> None:
    assert calibrate.target_in(session(*ids), target) == found


def test_what_a_label_is_about() -> None:
    levels = [calibrate.level_of(session("a"), target) for target in ("", "a", "call")]
    assert levels == ["session", "trace", "tool_call"]
    with pytest.raises(UsageError, match=r"no turn and no tool call `x`\nIt has: a, b, c, d, e\.$"):
        calibrate.level_of(session(*"abcdef"), "x")


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
