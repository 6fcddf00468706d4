"""Lines and live views of runs: what they show, and how they fit the terminal."""

import io
import json
import os
import pty
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from filled import NOW, add_batch, carry_out, filled_store, items, new_store, task_items
from proctor.api.run_state import RunFollower, RunningItem, RunState
from proctor.api.runs import short_id
from proctor.bootstrap import now, open_context
from proctor.cli import live, output, run
from proctor.cli.live import LiveView, picture, top_picture
from proctor.cli.output import Working, print_table
from proctor.cli.run import LineView, print_summary
from proctor.item import STATUSES, Item
from proctor.job import ItemFinished
from proctor.runner import Outcome
from proctor.stop_rule import StopState
from proctor.store import RetrySelection
from proctor.store.writer import this_process


@pytest.mark.parametrize(
    ("items", "finished", "said"),
    [
        (1, 0, "nightly: 1 item"),
        (6, 0, "nightly: 6 items"),
        (1200, 1100, "nightly: 1,200 items, 1,100 finished already"),
    ],
)
def test_a_run_begins_by_saying_what_is_to_be_done(items: int, finished: int, said: str, capsys: Any) -> None:
    LineView("nightly", items, finished, quiet=False)

    assert capsys.readouterr().err == f"{said}\n"


def run_state(run_id: str, **members: Any) -> RunState:
    """A run of which little is known."""
    unknown: dict[str, Any] = dict.fromkeys(
        ("finished_at", "cost_usd", "budget_usd", "items_per_minute", "eta_seconds")
    )
    some = {"counts": dict.fromkeys(STATUSES, 1), "item_count": 6, "finished_count": 4, "tokens": 0}
    some |= {"is_stopping": False, "cost_is_lower_bound": False, "spent_usd": 0.0, "reserved_usd": 0.0}
    some |= {"status": "running", "reason": "", "elapsed_seconds": 3.0, "running": (), "pools": ()}
    return RunState(run_id=run_id, **(unknown | some | members))


def test_the_live_view_shows_the_intervals_of_a_run_that_may_stop_early() -> None:
    state: StopState = {
        "by": "model",
        "metric": "success",
        "confidence": 0.95,
        "unit": "task",
        "isDecided": False,
        "taskCount": 60,
        "decisions": [
            {"outcome": "open", "reason": "good and bad are not told apart", "undecided": ["good"]}
        ],
        "intervals": [
            {"name": "good", "value": 0.9, "low": 0.61, "high": 0.99, "tasks": 20, "isUndecided": True},
            {"name": "bad", "value": None, "low": None, "high": None, "tasks": 1, "isUndecided": True},
        ],
        "mode": "watch",
        "tolerance": None,
        "race": [],
        "finishedRuns": 21,
        "plannedRuns": 120,
    }
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(picture(run_state("nightly", stop_when=state)))
    text = console.export_text()

    assert "success by model with 95% intervals that are valid at any time:" in text
    assert "good  0.9  (0.61 to 0.99), 20 tasks" in text
    assert "bad   –  (no interval yet), 1 task" in text
    assert "undecided: good and bad are not told apart" in text


def finished(error: str = "", status: str = "fail", prompt: str = "Even or odd?") -> ItemFinished:
    return ItemFinished(
        id="5c0ffee0",
        tokens=0,
        cost_usd=None,
        item=Item(runner="prompt", prompt=prompt),
        outcome=Outcome(status=status, reason="check", error=error),
        session_id="s",
        attempts=1,
        work_seconds=0.1,
    )


async def test_equal_failures_are_printed_once_and_counted_in_the_live_view(
    tmp_path: Path, capsys: Any
) -> None:
    filled_store(tmp_path, finished=12).close()
    with open_context(home=str(tmp_path)) as ctx:
        view = LiveView(ctx, "compare")
        for number in range(40):
            view.item(finished(f"answer {number} does not contain 'odd {number}'; see /tmp/x{number}/log"))
        view.item(finished("the server closed the connection", "error"))
        async with view:
            pass
    printed = capsys.readouterr().err

    assert "does not contain 'odd 7'" not in printed
    assert "40 × fail: answer 0 does not contain" in printed
    assert printed.count("the server closed the connection") == 1


@pytest.mark.parametrize("has_repeats", [False, True])
def test_the_live_view_shows_models_with_intervals_and_what_each_item_is_doing(
    tmp_path: Path, has_repeats: bool
) -> None:
    batch_items = items() if has_repeats else [each for each in items() if each.repeat == 1]
    with new_store(tmp_path, batch_items=batch_items) as store:
        carry_out(store, "compare", finished=12)
        follower = RunFollower(store.read, "compare")
        current = follower.look(NOW + timedelta(minutes=10))
        rows = follower.agents_and_models(current, NOW)
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(picture(current, rows))
    text = console.export_text()

    assert len(rows) > 1
    for row in rows:
        line = next(line for line in text.splitlines() if line.startswith(row.name))
        assert f"{row.finished} of {row.items}" in line
        # Repeats of a task are not independent, and no interval for every look is known for them.
        assert (" to " in line) == (bool(row.rate.trials) and not has_repeats)
    assert sum(row.finished for row in rows) == 12
    (running,) = current.running
    assert running.item_id[:8] in text
    assert running.action
    assert running.action in text


def _under_way(run_id: str) -> RunState:
    """A run with long names whose items wait for a model."""
    items = [
        RunningItem(
            item_id=f"c0ffee0{number}aa",
            repo="",
            prompt="Explain at length why the previous answer was wrong, and what follows from it",
            model="provider/long-model-name-instruct-2026-11-preview",
            agent="",
            repeat=number,
            session_id="s",
            elapsed_seconds=75.0 * number,
            tokens=0,
            action="user",
        )
        for number in (1, 2)
    ]
    return run_state(
        run_id,
        counts=dict.fromkeys(STATUSES, 1200),
        item_count=7200,
        finished_count=4800,
        tokens=1_234_567,
        cost_usd=12.3456,
        budget_usd=50.0,
        elapsed_seconds=4000.0,
        items_per_minute=150.0,
        eta_seconds=960,
        running=items,
    )


@pytest.mark.parametrize("width", [60, 80])
def test_live_views_cut_names_before_figures_and_never_wrap(width: int) -> None:
    names = ["nightly", "six-models-on-questions-with-a-rather-long-run-name-2026-11"]
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(top_picture([_under_way(name) for name in names]))
    console.print(picture(_under_way("nightly")))
    lines = console.export_text().splitlines()
    console.print(picture(_under_way(names[1])))
    title, bar, *long = console.export_text().splitlines()

    # The status of a run with a long name is on the same line; no figure is cut.
    assert title.startswith("six-models-on-questions-with-a") and title.rstrip().endswith("· running")
    assert "4,800 of 7,200" in bar
    assert not any("…" in line for line in long if "items/min" in line)
    assert all(len(line.rstrip()) <= width for line in (title, bar, *long))
    assert all(len(line.rstrip()) <= width for line in lines)
    heading, first, second, *_ = lines
    assert heading.split() == ["RUN", "DONE", "PASSED", "ITEMS/MIN", "LEFT", "COST"]
    for line in (first, second):
        assert "4,800/7,200" in line and "150" in line and "16 min" in line and line.endswith("$12.35")
    # The rows of the items that run: time, ID and repeat are whole.
    rows = [line for line in lines if "c0ffee0" in line]
    assert len(rows) == 4
    assert rows[2].split()[:4] == ["1", "min", "15", "s"]
    assert ("c0ffee02 #2" if width == 80 else "c0ffee02 ") in rows[3]
    assert "waiting" in rows[3]
    assert any("4,800 of 7,200 items" in line for line in lines)
    assert any(line.startswith("1 h 06 min · 150 items/min") for line in lines)


@pytest.mark.parametrize(
    ("agent", "model", "doing"),
    [
        ("", "openai/m", "waiting for model"),
        ("codex", "openai/m", "waiting for model"),
        ("command", "openai/m", "working"),
        ("scripted", "", "working"),
    ],
)
def test_a_command_that_calls_no_model_does_not_wait_for_one(agent: str, model: str, doing: str) -> None:
    under_way = _under_way("nightly")
    item = replace(under_way.running[0], agent=agent, model=model)
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(picture(replace(under_way, running=[item])))

    (line,) = [line for line in console.export_text().splitlines() if "c0ffee0" in line]
    assert doing in line


def test_commands_to_type_next_fit_the_terminal_with_a_prefix_of_a_long_name(
    proctor: Any, monkeypatch: Any, capsys: Any
) -> None:
    proctor("runs")
    name = "2026-11-16-nightly-regression-of-the-support-assistant"
    with open_context(home=str(proctor.folder / "proctor-home")) as ctx:
        for run_id in (f"{name}-v1", f"{name}-v2", "2026-11-15-other"):
            add_batch(ctx.store, run_id, items()[:1])
        monkeypatch.setenv("COLUMNS", "80")
        commands = [f"proctor show {name}-v1", f"proctor report --run {name}-v1"]
        output.print_next(commands, run_id=f"{name}-v1", ctx=ctx)
        # No prefix that fits is that of one run only.
        assert f"proctor show {name}-v1\n" in capsys.readouterr().err
        other = "2026-11-15-other"
        output.print_next([f"proctor show {other} {'x' * 50}"], run_id=other, ctx=ctx)
        assert capsys.readouterr().err.startswith(f"Next:  proctor show {other} x")
        add_batch(ctx.store, "weekly-regression-of-the-support-assistant-with-all-of-its-tools", items()[:1])

    shown = proctor("show", "weekly", environment={"COLUMNS": "60"})
    assert all(len(line) <= 60 for line in shown.stderr.splitlines()), shown.stderr
    typed = shown.stderr.split("proctor report --run ")[1].split()[0]
    assert "weekly-regression".startswith(typed[:17]) and proctor("show", typed).returncode == 0


def test_failures_of_a_run_with_more_items_than_are_printed_are_listed_by_kind(proctor: Any) -> None:
    proctor("runs")
    with proctor.open_store() as store:
        add_batch(store, "nightly", items()[:6])
        writer = store.writer()
        for number, row in enumerate(store.read.items("nightly", limit=6)):
            end = {"status": "fail", "reason": "checks_failed", "error": f"exited with {number % 2}"}
            end = {"status": "success", "reason": "completed"} if number > 3 else end
            writer.change("batch_items", ("nightly", row["id"]), end)
        writer.close()

    cut = proctor("show", "nightly", "--limit", "2").stdout
    assert "FAILURES  REASON         FOR EXAMPLE\n4         checks_failed  exited with " in cut
    assert "FOR EXAMPLE" not in proctor("show", "nightly").stdout


def test_the_rate_of_a_model_whose_tasks_are_repeated_is_that_over_tasks(proctor: Any) -> None:
    proctor("runs")
    batch_items = task_items(tasks=10, repeats=10)
    with proctor.open_store() as store:
        for run_id in ("ended", "running"):
            add_batch(store, run_id, batch_items)
            writer = store.writer()
            for each in batch_items:
                end = "success" if int(each.prompt.split()[1]) % 2 else "fail"
                writer.change("batch_items", (run_id, each.id), {"status": end, "reason": "completed"})
            writer.close()
        store.end_batch("ended", "completed", "", "", NOW)
        store.resume_batch("running", this_process(), RetrySelection(), now())

    # Over items, it was 40% to 60%.
    assert "a      100/100  50/100  50%   16% to 84%" in proctor("show", "ended").stdout
    # No interval for every look is known for repeated tasks.
    assert "a      100/100  50/100  50%   –" in proctor("show", "running").stdout


def test_items_that_an_abort_ended_are_neither_done_nor_errors(proctor: Any, capsys: Any) -> None:
    proctor("runs")
    with proctor.open_store() as store:
        add_batch(store, "nightly", items()[:6])
        rows = store.read.items("nightly", limit=6)
        writer = store.writer()
        ends = [("success", "completed"), ("error", "setup_failed"), *[("error", "aborted")] * 4]
        for row, (status, reason) in zip(rows, ends, strict=True):
            writer.change("batch_items", ("nightly", row["id"]), {"status": status, "reason": reason})
        writer.close()
        store.end_batch("nightly", "aborted", "", "", NOW)

    assert "aborted  2/6" in proctor("runs").stdout
    shown = proctor("show", "nightly")
    assert "1 success  0 fail  0 timeout  1 error  4 aborted  0 unfinished" in shown.stdout
    document = json.loads(proctor("show", "nightly", "--json").stdout)
    assert (document["errorCount"], document["abortedCount"]) == (5, 4)
    print_summary(document)
    printed = capsys.readouterr().err
    assert "1 of 6 items succeeded, 1 error, 4 aborted" in printed
    assert "proctor resume nightly" in printed


# Tables


HEADS = ("RUN", "AGENT", "MODEL", "STATUS", "ERROR")
ROWS = [
    ("run-20261115-222959-4acc", "", "openai/gpt-5", "fail", "the answer does not contain what was expected"),
    ("nightly", "", "anthropic/claude-sonnet-4-5", "success", ""),
]


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_no_line_of_a_table_is_wider_than_the_terminal(columns: int, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    print_table(HEADS, ROWS, drop=("MODEL",))
    lines = capsys.readouterr().out.splitlines()

    assert max(map(len, lines)) <= columns
    assert len(lines) == 3
    assert ("MODEL" in lines[0]) == (columns == 200)
    assert "AGENT" not in lines[0], "a column without a value"
    assert lines[1].startswith("run-20")
    assert ("…" in lines[1]) == (columns < 80)


@pytest.mark.parametrize(
    ("variables", "shown"),
    [
        ({"TERM": "xterm"}, "\x1b[31mfailed\x1b[0m"),
        ({"TERM": "dumb"}, "failed"),
        ({"TERM": "xterm", "NO_COLOR": "1"}, "failed"),
    ],
)
def test_a_status_has_its_color_on_a_terminal_that_shows_colors(
    variables: dict[str, str], shown: str, monkeypatch: Any
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert output.colored("failed", "fail") == shown
    assert output.colored("failed", "nonsense") == "failed"


# Progress bars


def _shown_by(work: Callable[[Working], None], monkeypatch: Any, *, after: float) -> str:
    """What a command writes to a terminal while it works."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal, os.fdopen(ours, "rb", buffering=0) as screen:
        monkeypatch.setattr("sys.stderr", terminal)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setattr(output, "SHOWN_AFTER_SECONDS", after)
        shown = bytearray()

        with Working("exporting rows") as working:
            work(working)
            while after == 0 and b"of 4,000" not in shown:
                shown += screen.read(4096)
        terminal.write("END")
        terminal.flush()
        while b"END" not in shown:
            shown += screen.read(4096)
    return shown.decode()


def test_a_command_that_takes_long_shows_how_far_it_is(monkeypatch: Any) -> None:
    shown = _shown_by(
        lambda working: working.update(1234, 4000, title="exporting rows"), monkeypatch, after=0
    )

    assert "exporting rows: 1,234 of 4,000" in shown


def test_a_command_that_ends_soon_shows_no_progress_bar(monkeypatch: Any) -> None:
    assert _shown_by(lambda working: working.update(1), monkeypatch, after=30) == "END"


@pytest.mark.parametrize("command", [("tasks", "list"), ("compare", "x"), ("sessions", "import")])
def test_a_text_in_place_of_a_path_is_refused_without_a_traceback(proctor, command):
    done = proctor(*command, "long " * 1000)

    assert (done.returncode, "Traceback" in done.stderr) == (2, False)


def printed(renderable: Any, width: int = 100) -> list[str]:
    console = Console(width=width, file=io.StringIO(), force_terminal=False)
    with console.capture() as capture:
        console.print(renderable)
    return [line.rstrip() for line in capture.get().splitlines()]


def test_a_line_loses_its_last_parts_where_the_terminal_is_narrow() -> None:
    parts = ("abc", "def", "ghi")
    assert printed(live.FittedLine(parts), 15) == ["abc · def · ghi"]
    assert printed(live.FittedLine(parts), 14) == ["abc · def"]
    assert printed(live.FittedLine(parts), 9) == ["abc · def"]
    assert printed(live.FittedLine(parts), 8) == ["abc"]
    assert printed(live.FittedLine(("abcdef",)), 4) == ["abc…"]


def test_a_long_run_id_is_cut_before_its_status() -> None:
    assert printed(live.RunTitle("abcdefgh", "running"), 18) == ["abcdefgh · running"]
    assert printed(live.RunTitle("abcdefgh", "running"), 17) == ["abcdef… · running"]


def test_times_are_aligned_to_the_right_and_other_cells_to_the_left() -> None:
    table = live.FittedTable([("5 s", "ab", "c"), ("12 s", "d", "ef")], right=[0])
    assert printed(table) == [" 5 s  ab  c", "12 s  d   ef"]
    assert printed(live.FittedTable([])) == []


@pytest.mark.parametrize(
    ("items_", "number", "status", "is_printed"),
    [
        (2000, 1, "success", True),
        (2001, 1, "success", False),
        (2001, 99, "success", False),
        (2001, 100, "success", True),
        (2001, 1, "fail", True),
    ],
)
def test_large_runs_print_every_hundredth_item_and_all_failures(
    items_: int, number: int, status: str, is_printed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    view = run.LineView("r", items_, number - 1, quiet=False)
    capsys.readouterr()
    view.item(finished(status=status))
    assert capsys.readouterr().err.startswith(f"[{number}/{items_}] {status}") is is_printed
    quiet = run.LineView("r", 1, 0, quiet=True)
    quiet.item(finished(status=status))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("letters", "shown"), [(50, "p" * 50), (51, "p" * 49 + "…")])
def test_a_line_of_an_item_has_the_start_of_its_prompt(
    letters: int, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    view = run.LineView("r", 1, 0, quiet=False)
    view.item(finished("no", prompt="p" * letters))
    assert f"  {shown}  " in capsys.readouterr().err


def test_a_prefix_of_another_run_is_not_typed(tmp_path: Path) -> None:
    name = "nightly-regression-one"
    with open_context(home=str(tmp_path)) as ctx:
        for run_id in (name, "nightly-regression-two"):
            add_batch(ctx.store, run_id, items()[:1])
        # Only the first of the prefixes that fit is that of both runs.
        assert short_id(ctx, name, 20) == "nightly-regression-o"
        assert short_id(ctx, name, 19) == name


@pytest.mark.parametrize(
    ("room", "typed"),
    [
        (11, "nightly-regression-of-support"),
        (12, "nightly-regr"),
        (17, "nightly-regressio"),
        (18, "nightly-regression"),
        (20, "nightly-regression"),
        (28, "nightly-regression-of"),
        (29, "nightly-regression-of-support"),
    ],
)
def test_a_run_is_typed_as_a_prefix_that_ends_with_a_word_if_there_is_room(
    room: int, typed: str, tmp_path: Path
) -> None:
    name = "nightly-regression-of-support"
    with open_context(home=str(tmp_path)) as ctx:
        add_batch(ctx.store, name, items()[:1])
        assert short_id(ctx, name, room) == typed
