"""What commands print about runs, items, tasks, agents, models, roles and stores, by value."""

import asyncio
import io
import json
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from filled import add_batch, items, new_store
from proctor.cli import inventory, output, report, run, runs, serve, tasks
from proctor.cli import store as store_commands
from proctor.cli.main import main
from proctor.cli.run import JsonLines, OutputOptions
from proctor.errors import NotFound, UsageError
from proctor.item import Item
from proctor.job import BatchEnd
from proctor.store import Store

Printed = pytest.CaptureFixture[str]


# --- The end of a run ---


def summary(**changes: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {"runId": "r", "status": "completed", "reason": "", "itemCount": 4}
    usual |= {"successCount": 4, "failCount": 0, "timeoutCount": 0, "errorCount": 0, "unfinishedCount": 0}
    return usual | {"costUsd": None, "tokensTotal": 0, "durationSec": 2.0} | changes


NEXT = "Next:  proctor show r  ·  proctor report --run r"


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ({}, ["r completed in 2 s: 4 of 4 items succeeded", NEXT]),
        (
            {"successCount": 3, "uncheckedCount": 1, "failCount": 1, "tokensTotal": 1500, "costUsd": 0.0},
            ["r completed in 2 s: 2 of 4 items succeeded, 1 unchecked, 1 failed, 1,500 tokens, $0.00", NEXT],
        ),
        (
            {"successCount": 1, "timeoutCount": 1, "errorCount": 2, "abortedCount": 1, "status": "aborted"},
            [
                "r aborted in 2 s: 1 of 4 items succeeded, 1 timed out, 1 errors, 1 aborted",
                f"{NEXT}  ·  proctor resume r",
            ],
        ),
        (
            {
                "successCount": 3,
                "unfinishedCount": 1,
                "status": "halted",
                "reason": "budget",
                "costUsd": None,
            },
            [
                "r halted in 2 s: 3 of 4 items succeeded, 1 not finished",
                "The budget is reached: $0.00 spent.",
                "Resume with:  proctor resume r --budget USD",
            ],
        ),
        (
            {"status": "halted", "reason": "store_budget"},
            [
                "r halted in 2 s: 4 of 4 items succeeded",
                "The store-wide budget is spent. Raise `usd` under [budget] in proctor.toml.",
                "Resume with:  proctor resume r",
            ],
        ),
        (
            {"status": "interrupted"},
            ["r interrupted in 2 s: 4 of 4 items succeeded", "Resume with:  proctor resume r"],
        ),
        (
            {"status": "halted", "reason": "cost_limit", "runsOverLimit": ["a", "b"]},
            [
                "r halted in 2 s: 4 of 4 items succeeded",
                "a, b reached cost_per_run_limit. Raise it, then rerun with --resume.",
            ],
        ),
        (
            {"status": "completed", "reason": "cost_limit"},
            [
                "r completed in 2 s: 4 of 4 items succeeded",
                "A run reached cost_per_run_limit. Raise it, then rerun with --resume.",
            ],
        ),
        (
            {"successCount": 3, "unfinishedCount": 1, "stopWhen": {"isDecided": True}},
            [
                "r completed in 2 s: 3 of 4 items succeeded, 1 not needed",
                "Stopped early by `stop_when`. Run the rest:  proctor resume r --no-stop",
                NEXT,
            ],
        ),
        ({"stopWhen": {"isDecided": True}}, ["r completed in 2 s: 4 of 4 items succeeded", NEXT]),
    ],
)
def test_the_end_of_a_run_in_words(changes: dict[str, Any], lines: list[str], capsys: Printed) -> None:
    run.print_summary(summary(**changes))
    assert capsys.readouterr().err.replace("\n       ", "  ·  ").splitlines() == lines


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


def test_each_item_is_a_record_for_programs(capsys: Printed) -> None:
    records = JsonLines("r", 3)
    outcome = SimpleNamespace(status="fail", reason="x", error="e", result={"merge": "conflict"})
    end: Any = SimpleNamespace(
        id="i",
        outcome=outcome,
        session_id="s",
        item=Item(runner="prompt", prompt="p", model="m", settings={"repo": "/r"}),
        attempts=2,
        tokens=5,
        cost_usd=0.5,
        work_seconds=1.23456,
    )
    records.item(end)
    outcome.result = {}
    records.item(end)
    launch, first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert launch == {"type": "launch", "runId": "r", "itemCount": 3}
    assert first == second | {"merge": "conflict"}
    assert second == {
        "type": "item",
        "runId": "r",
        "id": "i",
        "status": "fail",
        "reason": "x",
        "error": "e",
        "sessionId": "s",
        "repo": "/r",
        "prompt": "p",
        "agent": None,
        "model": "m",
        "attempts": 2,
        "tokensTotal": 5,
        "costUsd": 0.5,
        "workSeconds": 1.235,
    }


@pytest.mark.parametrize(
    ("command", "platform", "arguments"),
    [
        ("echo done", "linux", ["/bin/sh", "-c", "echo done"]),
        ("desktop", "linux", ["notify-send", "Proctor", "r: completed, 4 of 4"]),
        (
            "desktop",
            "darwin",
            ["osascript", "-e", 'display notification "r: completed, 4 of 4" with title "Proctor"'],
        ),
    ],
)
def test_who_is_to_be_notified_is(
    command: str, platform: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    started: list[Any] = []
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(run.subprocess, "run", lambda words, **named: started.append((words, named)))
    run.notify("", summary())
    run.notify(None, summary())
    assert started == []
    run.notify(command, summary())
    ((words, named),) = started
    environment = named["env"]
    assert words == arguments and named["check"] is True and named["timeout"] == 30
    assert (environment["PROCTOR_RUN"], environment["PROCTOR_STATUS"]) == ("r", "completed")
    assert (environment["PROCTOR_ITEMCOUNT"], environment["PROCTOR_SUCCESSCOUNT"]) == ("4", "4")
    assert environment["PROCTOR_MESSAGE"] == "r: completed, 4 of 4"

    def missing(*_: Any, **__: Any) -> None:
        raise FileNotFoundError(2, "no program")

    monkeypatch.setattr(run.subprocess, "run", missing)
    run.notify(command, summary())
    assert capsys.readouterr().err.startswith("note: could not notify: ")


@pytest.mark.parametrize(
    ("soft", "hard", "limit"),
    [(1024, -1, 65_536), (1024, 4096, 4096), (1024, 100_000, 65_536), (65_536, -1, None), (70_000, -1, None)],
)
def test_the_limit_of_open_files_is_raised(
    soft: int, hard: int, limit: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed: list[Any] = []
    monkeypatch.setattr(run.resource, "RLIM_INFINITY", -1)
    monkeypatch.setattr(run.resource, "getrlimit", lambda which: (soft, hard))
    monkeypatch.setattr(run.resource, "setrlimit", lambda which, limits: changed.append(limits))
    run._allow_many_files()
    assert changed == ([] if limit is None else [(limit, hard)])


async def test_the_first_signal_stops_cleanly_and_the_second_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    handlers: dict[int, Any] = {}
    ended: list[Any] = []
    loop = SimpleNamespace(add_signal_handler=lambda number, *call: handlers.update({number: call}))
    monkeypatch.setattr(run.asyncio, "get_running_loop", lambda: loop)
    monkeypatch.setattr(run.os, "_exit", lambda code: ended.append(code))
    control: Any = SimpleNamespace(interrupt=lambda: ended.append("interrupt"))
    run._stop_at_signals(control)
    assert set(handlers) == {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    stop, number = handlers[signal.SIGTERM]
    assert number == signal.SIGTERM
    stop(number)
    assert ended == ["interrupt"]
    assert capsys.readouterr().err == "Stopping running items… Press Ctrl-C again to quit now.\n"
    stop(number)
    assert ended[1] == 130


# --- Runs, items and sessions ---


def test_a_run_is_a_row() -> None:
    totals = {"finished": 5, "items": 7, "costUsd": None, "counts": {"success": 4}, "tokens": 1500}
    row: Any = {"runId": "r", "createdAt": "2026-03-01T12:00:00.000Z", "job": "coding", "status": "x"}
    row |= {"totals": totals, "crashes": 0}
    cells = ("coding", "x", "3/7", "3", "1,500", "")
    assert runs._run_cells(row, 1, 2, age_at=None) == ("r", "2026-03-01 12:00:00", *cells)
    totals["costUsd"] = 0.0
    later = datetime(2026, 3, 1, 15, tzinfo=UTC)
    aged = runs._run_cells(row, 1, 2, age_at=later)
    assert aged[1].startswith("3 h") and aged[-1] == "$0.00"


@pytest.mark.parametrize(("status", "code"), [("aborted", 0), ("completed", 3)])
def test_a_run_is_aborted(
    status: str, code: int, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    with Store(str(folder / "home" / "proctor.db")) as store:
        add_batch(store, "nightly-42", items()[:1])
    asked: list[str] = []
    monkeypatch.setattr(runs, "abort_run", lambda store, run_id, **_: asked.append(run_id) or status)
    assert main(["abort-run", "nightly"]) == code
    assert asked == ["nightly-42"] and capsys.readouterr().err == f"nightly-42 {status}\n"


def test_the_head_of_a_session(capsys: Printed) -> None:
    texts = ("answeredModel", "baseline", "repo", "worktree", "error")
    row: Any = dict.fromkeys(texts, "") | {"id": "s", "status": "success", "endReason": "completed"}
    row |= {"name": "n", "agent": "a", "model": "m", "branch": "b", "workSeconds": 2.0, "totalTokens": 1500}
    row |= {"costUsd": 0.0, "standIn": 1, "notes": '["one", "two"]', "checkoutSeconds": 1.0}
    row |= {"setupSeconds": None, "agentSeconds": 0.0, "checkSeconds": None}
    runs._print_head(row)
    assert capsys.readouterr().out.splitlines() == [
        "session s  success  completed  n",
        "  agent      a",
        "  model      m",
        "  branch     b",
        "  worked     2 s (checkout 1 s, agent 0 s)",
        "  tokens     1,500",
        "  cost       $0.00",
        "  mock session (scripted or replayed)",
        "  note       one",
        "  note       two",
    ]
    row |= {"standIn": 0, "notes": "[]", "costUsd": None, "checkoutSeconds": None, "agentSeconds": None}
    runs._print_head(row)
    assert capsys.readouterr().out.splitlines()[4:] == ["  worked     2 s", "  tokens     1,500"]


@pytest.mark.parametrize(
    ("success", "duration", "text"),
    [
        (1, 12.4, "── tool bash (ok, 12 ms)  {}\nout"),
        (0, None, "── tool bash (failed)  {}\nout"),
        (None, 0.0, "── tool bash (?, 0 ms)  {}\nout"),
    ],
)
def test_a_tool_call_in_words(success: int | None, duration: float | None, text: str) -> None:
    row = {"success": success, "durationMs": duration, "toolName": "bash", "argsJson": "{}", "result": "out"}
    assert runs._tool(row, False) == text
    long = runs._tool(row | {"argsJson": "x" * 300}, False)
    assert "x" * 199 + "…" in long and "x" * 300 in runs._tool(row | {"argsJson": "x" * 300}, True)


def test_long_texts_are_cut() -> None:
    assert runs._cut("x" * 2000, False) == "x" * 2000
    assert runs._cut("x" * 3001, False) == "x" * 2000 + "\n… 1,001 more characters (--full)"
    assert runs._cut("x" * 3001, True) == "x" * 3001
    assert runs._message({"name": "", "role": "user", "content": "hi"}, False) == "── user\nhi"
    assert runs._message({"name": "ana", "role": "user", "content": "hi"}, False) == "── ana\nhi"


@pytest.mark.parametrize(("duration", "took"), [(1500, "1.5 s"), (None, "0 s")])
def test_a_step_has_its_check(duration: int | None, took: str, capsys: Printed) -> None:
    step = {"changedFiles": 2, "linesAdded": 3, "linesRemoved": 4, "step": 1, "commitSha": "0123456789abcdef"}
    step |= {"testResult": "", "testDurationMs": duration, "testExitCode": 1, "testOutput": "no"}
    runs._print_step(step, False)
    assert capsys.readouterr().out == "\nstep 1: 2 files, +3 −4  0123456789ab\n"
    runs._print_step(step | {"testResult": "fail"}, False)
    assert capsys.readouterr().out.splitlines()[2:] == [f"check: fail (exit code 1, {took})", "no"]


def test_an_item_has_its_merge_and_its_error(capsys: Printed) -> None:
    attempt = {"attempt": 1, "id": "s", "status": "fail", "endReason": "x", "workSeconds": 2.0}
    attempt |= {"totalTokens": 5, "costUsd": None, "branch": "b"}
    store: Any = SimpleNamespace(read=SimpleNamespace(attempts=lambda run_id, item_id: [attempt]))
    row: Any = {"id": "i", "runId": "r", "status": "fail", "reason": "x", "prompt": "p" * 2001}
    runs._show_item(store, row | {"error": "e", "merge": "conflict"}, False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:5] == ["item i of r  fail  x", "p" * 2000, "error: e", "merge: conflict", ""]
    assert lines[6].split() == ["1", "s", "fail", "x", "2", "s", "5", "b"]
    runs._show_item(store, row | {"error": "", "merge": ""}, False)
    assert not {"error:", "merge:"} & {
        line.split(" ")[0] for line in capsys.readouterr().out.splitlines()[1:]
    }


@pytest.mark.parametrize(("as_json", "is_terminal"), [(True, True), (False, False)])
async def test_a_run_is_watched_until_it_ends(
    as_json: bool, is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = ["running", "running", "completed"]
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(runs.asyncio, "sleep", sleep)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal, raising=False)
    store: Any = SimpleNamespace(read=SimpleNamespace(batch=lambda run_id, now: {"status": states.pop(0)}))
    await runs._watch(store, "r", as_json=as_json)
    assert pauses == [0.25, 0.25] and states == []


async def test_a_run_is_drawn_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    states = ["running", "running", "completed"]
    pauses: list[float] = []

    class View:
        def __init__(self, store: Any, run_id: str) -> None:
            assert (store, run_id) == ("store", "r")

        async def __aenter__(self) -> Any:
            return self

        async def __aexit__(self, *_: object) -> None:
            pass

        async def refresh(self) -> Any:
            return SimpleNamespace(status=states.pop(0))

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(runs, "LiveView", View)
    monkeypatch.setattr(runs.asyncio, "sleep", sleep)
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda: True))
    await runs._watch("store", "r", as_json=False)  # type: ignore[arg-type]
    assert pauses == [0.25, 0.25] and states == []


@pytest.mark.parametrize(
    ("status", "changes", "code"),
    [("completed", {}, 0), ("completed", {"failCount": 1}, 1), ("aborted", {}, 3)],
)
def test_the_end_of_a_watched_run(
    status: str,
    changes: dict[str, Any],
    code: int,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Printed,
) -> None:
    with Store(str(folder / "home" / "proctor.db")) as store:
        add_batch(store, "nightly-42", items()[:1])

    async def watched(store: Any, run_id: str, *, as_json: bool) -> None:
        store.change_batch(run_id, {"status": status})

    monkeypatch.setattr(runs, "_watch", watched)
    monkeypatch.setattr(runs, "summarize", lambda store, batch, now: summary(**changes))
    assert main(["watch", "nightly"]) == code
    assert capsys.readouterr().err == f"nightly-42 {status}: 4 of 4 passed\n"


def test_without_live_runs_there_is_nothing_to_show(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Printed
) -> None:
    monkeypatch.setattr(runs.TopView, "read", lambda self: [])
    with new_store(tmp_path) as store:
        assert runs._top(store, as_json=False) == 0
        assert capsys.readouterr().err == "No live runs. Start one:  proctor batch plan.yaml\n"
        assert runs._top(store, as_json=True) == 0
        assert json.loads(capsys.readouterr().out) == {"runs": []}


# --- Confirmation and reports ---


@pytest.mark.parametrize("is_terminal", [True, False])
def test_confirmation_needs_a_terminal(is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def abort(question: str, err: bool) -> bool:
        raise output.typer.Abort

    monkeypatch.setattr(output.typer, "confirm", abort)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: is_terminal))
    expected = KeyboardInterrupt if is_terminal else UsageError
    with pytest.raises(expected):
        output.is_sure("Delete 1 run?")


def test_a_report_is_that_of_the_job_or_of_every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(report, "FORMATS", {"html": lambda summary: f"html of {summary}"})
    monkeypatch.setattr(report, "summarise", lambda read, scope, now: f"{scope.run_id or 'days'}")
    monkeypatch.setattr(report, "portable", lambda text, read, run_id: f"portable {text} {run_id}")
    of_job: list[Any] = [None]
    monkeypatch.setattr(
        report, "_report_of_job", lambda ctx, run_id, kind: calls.append((run_id, kind)) or of_job[0]
    )
    ctx: Any = SimpleNamespace(store=SimpleNamespace(read=None), now=lambda: None)
    scope: Any = SimpleNamespace(run_id="r")
    assert report._report(ctx, scope, "html") == "html of r" and calls == [("r", "html")]
    assert report._report(ctx, scope, "portable") == "portable html of r r"
    of_job[0] = "of the job"
    assert report._report(ctx, scope, "html") == "of the job"
    scope.run_id = ""
    calls.clear()
    assert report._report(ctx, scope, "html") == "html of days" and calls == []
    for make in (lambda: report._report(ctx, scope, "portable"), lambda: report._json_report(ctx, scope)):
        with pytest.raises(UsageError, match="is about one run"):
            make()


# --- Stores ---


def test_what_a_check_of_the_store_found(capsys: Printed) -> None:
    problem = SimpleNamespace(what="damaged rows", count=1200, examples=["a", "b"], remedy="restore it")
    single = SimpleNamespace(what="one row", count=1, examples=[], remedy="delete it")
    result: Any = SimpleNamespace(
        rows={"a": 2, "b": 3}, is_well=False, url="u", problems=[problem, single], remarks=["a remark"]
    )
    store_commands.print_check(result)
    assert capsys.readouterr().out.splitlines() == [
        "FAIL   damaged rows (1,200)",
        "         a",
        "         b",
        "       → restore it",
        "FAIL   one row",
        "       → delete it",
        "       a remark",
    ]
    result.is_well, result.problems, result.remarks = True, [], []
    store_commands.print_check(result)
    assert capsys.readouterr().out == "ok     u: 5 rows, nothing is damaged\n"


@pytest.mark.parametrize(
    ("aside", "skipped", "code", "lines"),
    [
        ("", {}, 0, []),
        ("old.db", {}, 0, ["the old store is now old.db"]),
        ("", {"t": "bad"}, 1, ["note: rows of t were skipped: bad"]),
    ],
)
def test_a_copy_of_a_store(aside: str, skipped: Any, code: int, lines: list[str], capsys: Printed) -> None:
    copied: Any = SimpleNamespace(rows={"a": 1}, kept_aside=aside, skipped=skipped)
    assert store_commands._print_copy(copied, "copied", as_json=False) == code
    assert capsys.readouterr().err.splitlines() == ["copied: 1 row, verified", *lines]


def test_a_store_must_exist(tmp_path: Path) -> None:
    path = tmp_path / "proctor.db"
    for url in (str(path), f"sqlite:///{path}"):
        with pytest.raises(UsageError, match="there is no store at"):
            store_commands._require_store(url)
    store_commands._require_store("postgresql://host/db")
    (tmp_path / "proctor.db-wal").write_text("")
    store_commands._require_store(str(path))
    (tmp_path / "proctor.db-wal").unlink()
    path.write_text("")
    store_commands._require_store(str(path))


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ({}, ["1 run (2.0 kB) were deleted"]),
        ({"keep_scores": True, "dry_run": True}, ["texts of 1 run (2.0 kB) would be deleted"]),
        (
            {"file_bytes": 0, "problems": ["p"]},
            ["1 run (2.0 kB) were deleted", "the store is 0 B smaller", "note: p"],
        ),
    ],
)
def test_what_was_pruned(changes: dict[str, Any], lines: list[str], capsys: Printed) -> None:
    usual: dict[str, Any] = {"runs": [{"runId": "r", "createdAt": "2026-03-01T12:00:00Z", "bytes": 2000}]}
    usual |= {"dry_run": False, "keep_scores": False, "file_bytes": None, "problems": []}
    pruned: Any = SimpleNamespace(**usual | changes)
    store_commands._print_pruned(pruned)
    printed = capsys.readouterr()
    shown = [line.replace("2 kB", "2.0 kB") for line in printed.err.splitlines()]
    assert shown == lines
    assert ("2026-03-01" in printed.out) is bool(changes.get("dry_run"))


# --- Tasks ---


def task(**changes: Any) -> Any:
    usual: dict[str, Any] = {"name": "t", "format": "markdown", "file": Path("t.md"), "line": 0, "repo": None}
    usual |= {
        "ref": "main",
        "sealed": False,
        "image": None,
        "network": None,
        "start": None,
        "prompt": "Do.\nIt.",
    }
    usual |= {"check_files": None, "setup": "", "all_commands": [], "expect": {}}
    return SimpleNamespace(**usual | changes)


def test_a_task_is_shown_with_all_that_it_would_run(monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    monkeypatch.setattr(tasks, "network_text", lambda network: network or "")
    monkeypatch.setattr(tasks, "file_names", lambda folder: [f"{folder}{number}" for number in range(21)])
    tasks._print_task(task())
    assert capsys.readouterr().out == "t (markdown)\nFile:      t.md\n\nDo.\nIt.\n"
    whole = task(
        line=7,
        repo="/r",
        sealed=True,
        image=SimpleNamespace(command="docker run"),
        network="hosts: a",
        start="s",
        check_files="h",
        setup="make",
        all_commands=[SimpleNamespace(command="pytest")],
        expect={"contains": "x"},
    )
    tasks._print_task(whole)
    names = {each: ", ".join(f"{each}{number}" for number in range(20)) for each in "sh"}
    assert capsys.readouterr().out.splitlines() == [
        "t (markdown)",
        "File:      t.md:7",
        "Start:     /r at main, sealed",
        "Image:     docker run",
        "Network:   hosts: a, with --task-network",
        f"Start:     {names['s']}",
        f"Hidden:    {names['h']}",
        "Setup:     make",
        "Check:     pytest",
        "Expect:    contains x",
        "",
        "Do.",
        "It.",
    ]
    tasks._print_task(task(repo="/r"))
    assert "Start:     /r at main\n" in capsys.readouterr().out


def test_a_task_is_chosen_by_its_name_or_because_it_is_the_only_one() -> None:
    one, two = task(name="a"), task(name="b")
    both: Any = SimpleNamespace(tasks=[one, two])
    single: Any = SimpleNamespace(tasks=[one])
    assert tasks._chosen(single, Path("p"), "") is one and tasks._chosen(both, Path("p"), "b") is two
    with pytest.raises(NotFound, match="p has 2 tasks"):
        tasks._chosen(both, Path("p"), "")
    with pytest.raises(NotFound, match="there is no task `c` in p"):
        tasks._chosen(single, Path("p"), "c")


def test_checks_of_tasks_are_counted(capsys: Printed) -> None:
    checked = [
        SimpleNamespace(task="a", oracle="pass", noop="fail", note="", is_well=True),
        SimpleNamespace(task="b", oracle="fail", noop="fail", note="why", is_well=False),
    ]
    result: Any = SimpleNamespace(tasks=checked, not_read=["x: broken"])
    tasks._print_checks(result, Path("p"))
    printed = capsys.readouterr()
    assert [line.split() for line in printed.out.splitlines()][1:] == [
        ["a", "pass", "fail"],
        ["b", "fail", "fail", "why"],
    ]
    assert printed.err.splitlines() == ["not read: x: broken", "p: 1 of 2 tasks well"]


def mined(tasks_: int = 1, reasons: Any = ()) -> Any:
    candidate = SimpleNamespace(
        commit="c" * 40, title="Fix", date="2026-03-01T12:00", source=["a"], tests=["b", "c"], lines=9
    )
    task_ = SimpleNamespace(folder="f", fail_to_pass=["x"], pass_to_pass=["y", "z"], commit="c" * 40)
    return SimpleNamespace(
        candidates=[candidate],
        tasks=[task_] * tasks_,
        rejected=[SimpleNamespace(reason=reason) for reason in reasons],
        flaky=["q"],
    )


def test_the_result_of_mining_a_history(capsys: Printed) -> None:
    many = [f"reason {number}: {other}" for number in range(11) for other in range(number + 1)]
    tasks._show(mined(reasons=many), dry_run=False)
    printed = capsys.readouterr()
    assert printed.out.splitlines()[1].split() == ["f", "1", "2", "Fix"]
    lines = printed.err.splitlines()
    assert lines[0] == "   11 not taken: reason 10" and len(lines) == 11
    assert lines[-1] == "1 candidate, 1 task, 1 flaky."
    tasks._show(mined(), dry_run=True)
    printed = capsys.readouterr()
    assert printed.out.splitlines()[1].split() == ["c" * 10, "2026-03-01", "1", "2", "9", "Fix"]
    assert printed.err == "1 candidate, 1 task, 1 flaky. Dry run: nothing was run.\n"


@pytest.mark.parametrize(
    ("number", "reason", "dry_run", "is_advised"),
    [
        (0, "the tests report no result", False, True),
        (0, "no test passes after it", False, True),
        (0, "another", False, False),
        (1, "the tests report no result", False, False),
        (0, "the tests report no result", True, False),
    ],
)
def test_tests_that_did_not_run_come_with_advice(
    number: int, reason: str, dry_run: bool, is_advised: bool, capsys: Printed
) -> None:
    tasks._show(mined(number, [reason]), dry_run=dry_run)
    assert ("The tests did not run." in capsys.readouterr().err) is is_advised


def test_progress_of_mining_is_a_line_for_each_commit_or_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    with tasks._progress(2, 3, quiet=True) as quiet:
        assert quiet is None
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with tasks._progress(2, 3, quiet=False) as lines:
        assert lines is tasks._print_line


# --- Agents, models and roles ---


def test_an_agent_is_a_row() -> None:
    def cells(stand_in: bool = False, **changes: Any) -> tuple[str, ...]:
        usual: dict[str, Any] = {"ready": True, "version": "1.2", "problem": "", "remedy": "pip install a"}
        agent: Any = SimpleNamespace(
            name="a", availability=SimpleNamespace(**usual | changes), stand_in=stand_in
        )
        return inventory._agent_cells(agent)

    assert cells() == ("a", "yes", "1.2", "", "")
    assert cells(True) == ("a", "yes", "1.2", "mock agent, for tests and demos", "")
    absent = cells(ready=False, version="", problem="not installed")
    assert absent == ("a", "no", "", "not installed", "pip install a")


def test_a_model_is_a_row_with_its_prices() -> None:
    def cells(**changes: Any) -> tuple[str, ...]:
        usual: dict[str, Any] = {"name": "m", "source": "here", "answers": True, "remark": "r", "price": None}
        model: Any = SimpleNamespace(**usual | {"stand_in": False} | changes)
        return inventory._model_cells(model)

    rates = SimpleNamespace(rates=SimpleNamespace(input=1.5, output=3.0))
    assert cells(price=rates) == ("m", "here", "1.5", "3", "yes", "r")
    assert cells(answers=False, remark="") == ("m", "here", "unknown", "unknown", "no", "")
    assert cells(stand_in=True)[-1] == "mock model"


def test_a_role_is_a_row() -> None:
    role: Any = SimpleNamespace(
        languages=(),
        is_built_in=True,
        plays=("client", "therapist"),
        profiles={"a": 1, "b": 2},
        description="d",
    )
    assert inventory._role_cells("r", "broken") == ("r", "–", "–", "–", "cannot be read: broken")
    cells: Any = inventory._role_cells
    assert cells("r", role) == ("r", "client, therapist", "2", "any", "d")
    role.is_built_in, role.languages = False, ("en", "de")
    assert cells("r", role) == ("r (yours)", "client, therapist", "2", "en, de", "d")


@pytest.mark.parametrize("address", ["", "http://h"])
def test_a_small_model_is_installed_unless_a_server_has_it(
    address: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    required: list[Any] = []
    local = inventory.local
    monkeypatch.setattr(local, "require", lambda environment, note: required.append(note))
    monkeypatch.setattr(local, "weights_file", lambda environment: Path("/weights"))
    if address:
        monkeypatch.setenv(local.ADDRESS_VARIABLE, address)
    else:
        monkeypatch.delenv(local.ADDRESS_VARIABLE, raising=False)
    assert main(["models", "install"]) == 0
    assert bool(required) is not bool(address)
    text = (
        f"{local.MODEL} is served at http://h ({local.ADDRESS_VARIABLE}): nothing to install"
        if address
        else f"{local.MODEL} is installed: /weights"
    )
    assert capsys.readouterr().err == f"{text}\n"


# --- Serve ---


def test_a_server_is_started_with_the_options(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    class Server:
        def __init__(self, site: Any, address: Any, credentials: Any, **named: Any) -> None:
            made.append((site, address, credentials, named))

        async def run(self, listener: Any) -> int:
            made.append(listener.getsockname())
            return 5

    monkeypatch.setattr(serve, "_Server", Server)
    monkeypatch.setattr(serve, "protect_memory", lambda: made.append("protected"))
    monkeypatch.setenv("PROCTOR_ACCESS_KEYS", "AK=secret")
    monkeypatch.setenv("PROCTOR_TOKEN", "t" * 32)
    words = [
        "serve",
        "--port",
        "0",
        "--root-path",
        "proctor/",
        "--trusted-proxy",
        "10.0.0.0/8",
        "--open",
        "--json",
    ]
    assert main(words) == 5
    protected, (site, address, credentials, named), (host, port) = made
    assert protected == "protected" and host == "127.0.0.1" and port > 0
    assert address.url == f"http://127.0.0.1:{port}/proctor"
    assert named == {"tls": None, "open_page": True, "as_json": True}
    assert (site.root_path, site.token, credentials.token) == ("/proctor", "t" * 32, "t" * 32)
    assert site.access_keys == {"AK": "secret"} and site.grpc_address == ""
    assert [str(each) for each in site.proxies] == ["10.0.0.0/8"]
    assert site.command == [sys.executable, "-m", "proctor", "--home", str(folder / "home")]
    made.clear()
    # A browser cannot open the address of all interfaces.
    assert main(["serve", "--port", "0", "--host", "0.0.0.0"]) == 5
    assert made[1][1].host == "127.0.0.1" and made[1][3]["open_page"] is False


def test_a_server_without_a_token_listens_on_this_machine_alone(folder: Path, capsys: Printed) -> None:
    assert main(["serve", "--no-token", "--host", "0.0.0.0"]) == 2
    assert "accepts every caller" in capsys.readouterr().err


def test_the_web_server_is_configured_for_proxies_and_slow_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    options: list[Any] = []
    monkeypatch.setattr(serve, "create_app", lambda site: "app")
    monkeypatch.setattr(
        serve.uvicorn, "Config", lambda app, **named: options.append((app, named)) or "config"
    )
    monkeypatch.setattr(serve.uvicorn, "Server", lambda config: f"server of {config}")
    site: Any = None
    address: Any = None
    credentials: Any = None
    tls = (Path("c"), Path("k"))
    server = serve._Server(site, address, credentials, tls=tls, open_page=True, as_json=False)
    app, named = options.pop()
    assert (app, server._server, server._signal) == ("app", "server of config", None)
    assert (named["ssl_certfile"], named["ssl_keyfile"]) == tls
    assert (named["proxy_headers"], named["server_header"], named["access_log"]) == (False, False, False)
    assert (named["ws_max_size"], named["timeout_graceful_shutdown"]) == (65_536, 2)
    assert named["http"] is serve.TimedProtocol
    serve._Server(site, address, credentials, tls=None, open_page=True, as_json=False)
    assert options[0][1]["ssl_certfile"] is None and options[0][1]["ssl_keyfile"] is None


@pytest.mark.parametrize("is_busy", [True, False])
def test_busy_threads_are_abandoned_at_the_end(is_busy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(serve, "_is_busy", lambda thread: is_busy)
    monkeypatch.setattr(serve.os, "_exit", lambda code: ended.append(code))

    async def serving() -> int:
        return 7 if await asyncio.to_thread(lambda: True) else 0

    assert serve._run(serving()) == 7
    assert ended == ([7] if is_busy else [])


async def test_a_gateway_is_open_until_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[Any] = []

    class Gateway:
        def __init__(self, models: Any, now: Any) -> None:
            pass

        async def start(self, *, port: int) -> None:
            events.append(("start", port))

        def open(self, caller: Any) -> Any:
            events.append((caller.model, caller.item_id))
            return SimpleNamespace(token="token")

        def shut(self, token: str) -> None:
            events.append(("shut", token))

        async def close(self) -> None:
            events.append("gateway closed")

    async def stopped() -> None:
        events.append("waited")

    async def closed() -> None:
        events.append("models closed")

    session: Any = SimpleNamespace(
        record=None,
        model="m",
        session_id="s",
        begin=lambda: events.append("begin"),
        end=lambda: events.append("end"),
        close=lambda: events.append("session closed"),
    )
    monkeypatch.setattr(serve, "Gateway", Gateway)
    monkeypatch.setattr(serve, "_until_stopped", stopped)
    monkeypatch.setattr(
        serve, "_print_access", lambda access, session_id, as_json: events.append((session_id, as_json))
    )
    models: Any = SimpleNamespace(close=closed)
    assert await serve._serve(models, session, 5, as_json=True) == 0
    assert events == [
        ("start", 5),
        "begin",
        ("m", "gateway"),
        ("s", True),
        "waited",
        ("shut", "token"),
        "end",
        "gateway closed",
        "models closed",
        "session closed",
    ]
