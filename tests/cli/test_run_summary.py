"""The end of a run in words, as a document and as an exit code."""

from typing import Any

import pytest

from proctor.cli import run
from proctor.cli.run import OutputOptions
from proctor.job import BatchEnd

Printed = pytest.CaptureFixture[str]


def summary(**changes: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {"runId": "r", "status": "completed", "reason": "", "itemCount": 4}
    usual |= {"successCount": 4, "failCount": 0, "timeoutCount": 0, "errorCount": 0, "unfinishedCount": 0}
    return usual | {"costUsd": None, "tokensTotal": 0, "durationSec": 2.0} | changes


NEXT = "Next:  proctor show r  ·  proctor report --run r"
RESUME = "Resume with:  proctor resume r"
RAISE = "reached cost_per_run_limit. Raise it, then rerun with --resume."
STORE = "The store-wide budget is spent. Raise `usd` under [budget] in proctor.toml."
EARLY = "Stopped early by `stop_when`. Run the rest:  proctor resume r --no-stop"
UNFINISHED = {"successCount": 3, "unfinishedCount": 1}
FAILED = {"successCount": 3, "uncheckedCount": 1, "failCount": 1, "tokensTotal": 1500, "costUsd": 0.0}
ABORTED = {"successCount": 1, "timeoutCount": 1, "errorCount": 2, "abortedCount": 1, "status": "aborted"}
DECIDED = {"stopWhen": {"isDecided": True}}


def halted(reason: str, **changes: Any) -> dict[str, Any]:
    return {"status": "halted", "reason": reason, **changes}


@pytest.mark.parametrize(
    ("changes", "first", "lines"),
    [
        ({}, "completed in 2 s: 4 of 4", [NEXT]),
        (FAILED, "completed in 2 s: 2 of 4, 1 unchecked, 1 failed, 1,500 tokens, $0.00", [NEXT]),
        (
            ABORTED,
            "aborted in 2 s: 1 of 4, 1 timed out, 1 error, 1 aborted",
            [f"{NEXT}  ·  proctor resume r"],
        ),
        (
            halted("budget", **UNFINISHED),
            "halted in 2 s: 3 of 4, 1 not finished",
            ["The budget is reached: $0.00 spent.", f"{RESUME} --budget USD"],
        ),
        (halted("store_budget"), "halted in 2 s: 4 of 4", [STORE, RESUME]),
        ({"status": "interrupted"}, "interrupted in 2 s: 4 of 4", [RESUME]),
        (halted("cost_limit", runsOverLimit=["a", "b"]), "halted in 2 s: 4 of 4", [f"a, b {RAISE}"]),
        ({"reason": "cost_limit"}, "completed in 2 s: 4 of 4", [f"A run {RAISE}"]),
        (UNFINISHED | DECIDED, "completed in 2 s: 3 of 4, 1 not needed", [EARLY, NEXT]),
        (DECIDED, "completed in 2 s: 4 of 4", [NEXT]),
    ],
)
def test_the_end_of_a_run_in_words(
    changes: dict[str, Any], first: str, lines: list[str], capsys: Printed
) -> None:
    run.print_summary(summary(**changes))
    told = capsys.readouterr().err.replace("\n       ", "  ·  ").splitlines()
    assert told == [f"r {first.replace('of 4', 'of 4 items succeeded')}", *lines]


def test_a_run_with_nothing_left_says_why(capsys: Printed) -> None:
    run.print_summary(summary(), executed=False)
    first = capsys.readouterr().err.splitlines()[0]
    assert first == "r: nothing to resume, all 4 items are finished: 4 of 4 items succeeded"
    decided = summary(successCount=3, unfinishedCount=1, stopWhen={"isDecided": True})
    run.print_summary(decided, executed=False)
    first = capsys.readouterr().err.splitlines()[0]
    assert first == "r: nothing to resume, `stop_when` is decided: 3 of 4 items succeeded, 1 not needed"


@pytest.mark.parametrize(
    ("status", "changes", "code"),
    [
        ("completed", {}, 0),
        ("completed", {"failCount": 1}, 1),
        ("completed", {"timeoutCount": 1}, 1),
        ("completed", {"errorCount": 1}, 1),
        ("completed", {"unfinishedCount": 1}, 1),
        ("completed", {"unfinishedCount": 1, "stopWhen": {"isDecided": True}}, 0),
        ("completed", {"checks": {"unread": 1}}, 1),
        ("completed", {"checks": {"unread": 0}}, 0),
        ("halted", {}, 3),
        ("aborted", {}, 3),
        ("interrupted", {}, 130),
    ],
)
def test_the_exit_code_of_a_run(status: str, changes: dict[str, Any], code: int) -> None:
    assert run.exit_code(BatchEnd(status=status, reason=""), summary(**changes)) == code


@pytest.mark.parametrize(
    ("options", "printed"),
    [
        (OutputOptions(), ""),
        (OutputOptions(as_json=True), '{\n  "a": "ü"\n}\n'),
        (OutputOptions(as_jsonl=True), '{"type": "done", "a": "ü"}\n'),
    ],
)
def test_the_summary_for_programs(options: OutputOptions, printed: str, capsys: Printed) -> None:
    run.print_document({"a": "ü"}, options)
    assert capsys.readouterr().out == printed
