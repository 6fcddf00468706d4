"""Lines of the live views, and the progress of commands, by value."""

import asyncio
import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from filled import add_batch, carry_out, items, new_store
from proctor.cli import live, output, run
from proctor.item import STATUSES, Item
from proctor.job import ItemFinished
from proctor.runner import Outcome
from proctor.stats.intervals import wilson
from proctor.stats.progress import PoolUse, Progress, RunningItem


def printed(renderable: Any, width: int = 100) -> list[str]:
    console = Console(width=width, file=io.StringIO(), force_terminal=False)
    with console.capture() as capture:
        console.print(renderable)
    return [line.rstrip() for line in capture.get().splitlines()]


def running(**changes: Any) -> RunningItem:
    usual: dict[str, Any] = {"item_id": "0123456789", "repo": "/projects/shop/", "prompt": "do it"}
    usual |= {"model": "m", "agent": "a", "repeat": 1, "session_id": "s", "elapsed_seconds": 5.0}
    usual |= {"tokens": 0, "action": "bash"}
    return RunningItem(**usual | changes)


def under_way(**changes: Any) -> Progress:
    counts = {**dict.fromkeys(STATUSES, 0), "success": 3, "running": 1}
    usual: dict[str, Any] = {"run_id": "r", "status": "running", "counts": counts, "tokens": 0}
    usual |= {"cost_usd": None, "budget_usd": None, "elapsed_seconds": 4.0, "items_per_second": None}
    usual |= {"running": (), "pools": (), "stop_when": None}
    return Progress(**usual | changes)


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ({}, ["1 running  3 success", "4 s"]),
        ({"unchecked": 2}, ["1 running  1 success  2 unchecked", "4 s"]),
        ({"items_per_second": 0.5}, ["1 running  3 success", "4 s · 30 items/min · about 2 s remaining"]),
        ({"items_per_second": 0.5, "status": "completed"}, ["1 running  3 success", "4 s"]),
        ({"cost_usd": 0.0}, ["1 running  3 success", "4 s · $0.00"]),
        (
            {"cost_usd": 0.5, "budget_usd": 2.0, "tokens": 1500},
            ["1 running  3 success", "4 s · $0.50 of $2.00 · 1,500 tokens"],
        ),
        ({"counts": dict.fromkeys(STATUSES, 0)}, ["4 s"]),
    ],
)
def test_the_figures_of_a_run(changes: dict[str, Any], lines: list[str]) -> None:
    shown = [line for part in live._figures(under_way(**changes)) for line in printed(part)]
    assert shown == lines


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


@pytest.mark.parametrize(
    ("changes", "text", "style"),
    [
        ({}, "openai: 2 of 8 calls", "dim"),
        ({"waiting": 1, "waited_seconds": 1.0}, "openai: 2 of 8 calls, 1 waiting, 1 s waited", "dim"),
        ({"waited_seconds": 0.99, "refused": 3}, "openai: 2 of 8 calls, 3 rate limited (429)", "dim"),
        ({"held_seconds": 5.0}, "openai: 2 of 8 calls, paused for 5 s", "yellow"),
    ],
)
def test_the_calls_of_a_provider_are_a_line(changes: dict[str, Any], text: str, style: str) -> None:
    usual = {"name": "openai", "in_use": 2, "limit": 8, "waiting": 0, "waited_seconds": 0.0}
    pool = PoolUse(**usual | {"refused": 0, "held_seconds": 0.0} | changes)
    line = live._pool(pool)
    assert (line.plain, line.style) == (text, style)


@pytest.mark.parametrize(
    ("changes", "cells"),
    [
        ({}, ["5 s", "01234567", "shop", "a m", "bash", "do it"]),
        (
            {"repeat": 2, "tokens": 1500},
            ["5 s", "01234567 #2", "shop", "a m", "bash", "1,500 tokens", "do it"],
        ),
        ({"agent": "", "action": "user"}, ["5 s", "01234567", "shop", "m", "waiting for model", "do it"]),
        ({"model": "", "action": "system"}, ["5 s", "01234567", "shop", "a", "waiting for model", "do it"]),
    ],
)
def test_an_item_that_runs_is_a_row(changes: dict[str, Any], cells: list[str]) -> None:
    table = live._running(under_way(running=(running(**changes),)))
    assert [cell for cell in table.rows[0] if cell] == cells and list(table.right) == [0]


def test_times_are_aligned_to_the_right_and_other_cells_to_the_left() -> None:
    table = live.FittedTable([("5 s", "ab", "c"), ("12 s", "d", "ef")], right=[0])
    assert printed(table) == [" 5 s  ab  c", "12 s  d   ef"]
    assert printed(live.FittedTable([])) == []


def test_what_the_longest_item_of_each_run_is_doing() -> None:
    run_ = under_way(running=(running(), running(item_id="second")))
    (line,) = live._longest(run_)
    assert line.plain == "r  5 s  01234567  a  m  bash"
    assert live._longest(under_way()) == []
    assert printed(live.top_picture([])) == ["No live runs. Ctrl-C ends."]


@pytest.mark.parametrize(
    ("changes", "cells"),
    [
        ({}, ("r", "3/4", "–", "–", "–", "–")),
        (
            {
                "makers": (
                    SimpleNamespace(rate=wilson(1, 2)),
                    SimpleNamespace(rate=wilson(2, 2)),
                ),
                "items_per_second": 0.25,
                "cost_usd": 0.0,
            },
            ("r", "3/4", "75%", "15", "4 s", "$0.00"),
        ),
    ],
)
def test_a_live_run_is_a_row(changes: dict[str, Any], cells: tuple[str, ...]) -> None:
    assert live.top_cells(under_way(**changes)) == cells


@pytest.mark.parametrize(("makers", "shown"), [(0, False), (1, False), (2, True)])
def test_models_are_compared_where_there_are_several(makers: int, shown: bool) -> None:
    each = SimpleNamespace(name="the-model", rate=wilson(1, 2), finished=1, items=2)
    lines = printed(live.picture(under_way(makers=(each,) * makers)))
    assert any("the-model" in line for line in lines) is shown
    assert lines[0] == "r · running" and lines[1].endswith("3 of 4 items")


LONG = "x" * 300


def cut(width: int) -> str:
    return "x" * (width - 1) + "…"


def test_long_texts_are_cut_to_their_place() -> None:
    maker = SimpleNamespace(name=LONG, rate=wilson(1, 2), finished=1, items=2)
    (first,) = printed(live._makers([maker]), 400)  # type: ignore[list-item]
    assert first.startswith(cut(60) + " ")
    failure = live._failure(live.CountedFailure("fail", LONG, 2))
    assert failure.plain == f"2 × fail: {cut(160)}"
    assert live._running(under_way(running=(running(prompt=LONG),))).rows[0][-1] == cut(60)
    (longest,) = live._longest(under_way(running=(running(agent=LONG),)))
    assert cut(24) in longest.plain.split("  ")
    heading, row = printed(live.top_picture([under_way(run_id=LONG)]), 400)
    assert row.startswith(cut(60) + "   3/4 ") and heading.startswith("RUN")
    standing: Any = SimpleNamespace(
        model=LONG,
        state="s",
        elapsed_seconds=0.0,
        tokens=0,
        cost_usd=None,
        counts={},
        is_clustered=False,
        rate=wilson(0, 0),
    )
    table = live.leaderboard_picture([standing], "t")
    assert str(next(iter(table.columns[0].cells))) == cut(60)
    view = live.BenchView.__new__(live.BenchView)
    view._split = frozenset()  # type: ignore[assignment]
    end = finished("fail")
    object.__setattr__(end.outcome, "error", LONG)
    object.__setattr__(end.item, "factors", {"task": LONG, "model": "m"})
    line = view._line(end)
    assert f"  {cut(60)}  " in line and line.endswith(f"completed: {cut(160)}")
    assert run.line_of(end).endswith(f"completed: {cut(160)}")


@pytest.mark.parametrize(("counts", "total", "completed"), [({"success": 3, "running": 1}, 4, 3), ({}, 1, 0)])
def test_the_bar_shows_the_finished_items_of_all(
    counts: dict[str, int], total: int, completed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bars: list[Any] = []
    monkeypatch.setattr(live, "ProgressBar", lambda **named: bars.append(named) or "bar")
    live.picture(under_way(counts={**dict.fromkeys(STATUSES, 0), **counts}))
    assert bars == [{"total": total, "completed": completed}]


# --- Benchmarks ---


class Terminal(io.StringIO):
    """A terminal that keeps what is written to it."""

    def isatty(self) -> bool:
        return True


def finished(status: str = "success") -> ItemFinished:
    return ItemFinished(
        id="5c0ffee0",
        tokens=0,
        cost_usd=None,
        item=Item(runner="benchmark", prompt="x", factors={"task": "t", "model": "m"}),
        outcome=Outcome(status=status, reason="completed", error=""),
        session_id="s",
        attempts=1,
        work_seconds=2.0,
    )


@pytest.mark.parametrize("is_terminal", [False, True])
@pytest.mark.parametrize("quiet", [False, True])
@pytest.mark.parametrize("verbose", [False, True])
def test_a_benchmark_prints_lines_unless_it_draws_or_is_quiet(
    is_terminal: bool, quiet: bool, verbose: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Terminal() if is_terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    scores = [
        {"label": "pass", "evaluator": "tests"},
        {"label": None, "evaluator": "style"},
    ]
    with new_store(tmp_path, batch_items=items()[:3]) as store:
        view = live.BenchView(store, "compare", quiet=quiet, verbose=verbose)
        asked: list[Any] = []
        read = SimpleNamespace(of_session=lambda *arguments: asked.append(arguments) or scores)
        view._store = SimpleNamespace(read=read)  # type: ignore[assignment]
        view.item(finished())
    lines = ["[1/3] success  m  t  2 s"] if not quiet and not is_terminal else []
    # Scores are asked for; nothing else is shown then.
    lines += (
        ["        pass   tests", "        –      style"] if verbose and (quiet or not is_terminal) else []
    )
    assert stream.getvalue().splitlines() == lines
    assert asked == ([("scores", "s")] if verbose and (quiet or not is_terminal) else [])


@pytest.mark.parametrize("quiet", [False, True])
def test_a_resumed_benchmark_begins_with_what_is_finished(
    quiet: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def enter(view: live.BenchView) -> None:
        async with view as entered:
            assert entered is view and view._task is None

    with new_store(tmp_path, batch_items=items()[:3]) as store:
        carry_out(store, "compare", finished=2)
        asyncio.run(enter(live.BenchView(store, "compare", quiet=quiet)))
    assert capsys.readouterr().err == ("" if quiet else "compare: 3 runs, 2 finished already\n")


async def test_a_benchmark_is_drawn_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    view = live.BenchView.__new__(live.BenchView)
    view._is_live, view._quiet, view._task = True, False, None
    drawn = asyncio.Event()
    pictures: list[str] = []

    def picture() -> str:
        pictures.append(f"picture {len(pictures)}")
        return pictures[-1]

    async def sleep(seconds: float) -> None:
        assert seconds == 0.25
        drawn.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(view, "_picture", picture, raising=False)
    monkeypatch.setattr(live.asyncio, "sleep", sleep)
    async with view:
        assert view._task is not None
        await drawn.wait()
    # Once more at the end.
    assert view._task.cancelled() and pictures == ["picture 0", "picture 1"]


# --- Lines of a run ---


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
    view.item(finished(status))
    assert capsys.readouterr().err.startswith(f"[{number}/{items_}] {status}") is is_printed
    quiet = run.LineView("r", 1, 0, quiet=True)
    quiet.item(finished(status))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("changes", "result", "end"),
    [
        ({}, {}, "success  5c0ffee0  shop  a m  do it  2 s"),
        ({"cost_usd": 0.0}, {"merge": "merged"}, "success  5c0ffee0  shop  a m  do it  2 s  $0.00"),
        ({}, {"merge": "conflict"}, "success  5c0ffee0  shop  a m  do it  2 s  merge: conflict"),
        ({}, {"merge": "error"}, "success  5c0ffee0  shop  a m  do it  2 s  merge: error"),
    ],
)
def test_a_finished_item_is_one_line(changes: dict[str, Any], result: dict[str, Any], end: str) -> None:
    item = Item(runner="prompt", prompt="do it", agent="a", model="m", details={"repository": "shop"})
    usual = {"id": "5c0ffee0aa", "item": item, "work_seconds": 2.0, "cost_usd": None}
    outcome = SimpleNamespace(status="success", reason="completed", error="", result=result)
    ended: Any = SimpleNamespace(**usual | {"outcome": outcome} | changes)
    assert run.line_of(ended) == end
    outcome.status, outcome.reason, outcome.error = "fail", "checks_failed", "no\nfile"
    assert run.line_of(ended) == f"fail   {end[len('success') :]}  checks_failed: no file"


def test_the_label_of_an_item_stands_for_its_repository() -> None:
    item = Item(runner="prompt", prompt="p", settings={"label": "mine"}, details={"repository": "shop"})
    outcome = SimpleNamespace(status="success", reason="completed", error="", result={})
    ended: Any = SimpleNamespace(id="x", item=item, work_seconds=0.0, cost_usd=None, outcome=outcome)
    assert run.line_of(ended) == "success  x  mine  p  0 s"


@pytest.mark.parametrize("as_jsonl", [False, True])
@pytest.mark.parametrize("is_terminal", [False, True])
def test_how_a_run_is_shown(
    as_jsonl: bool, is_terminal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal() if is_terminal else io.StringIO())
    with new_store(tmp_path) as store:
        view = run.view_for(store, "compare", as_json=False, as_jsonl=as_jsonl)
    kinds = {(True, True): "JsonLines", (True, False): "JsonLines", (False, True): "LiveView"}
    assert type(view).__name__ == kinds.get((as_jsonl, is_terminal), "LineView")


# --- Progress of a command ---


def test_progress_is_shown_on_a_terminal_after_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with output.Working("reading") as silent:
        assert silent._thread.ident is None
    assert silent._ended.is_set() and output.SHOWN_AFTER_SECONDS == 2
    # It ends at once, without waiting for the two seconds, and shows nothing.
    monkeypatch.setattr(sys, "stderr", Terminal())
    with output.Working("reading") as quick:
        assert quick._thread.ident is not None and quick._thread.daemon
    assert not quick._thread.is_alive() and sys.stderr.getvalue() == ""  # type: ignore[attr-defined]


def test_the_progress_bar_says_how_far_a_command_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    working = output.Working("reading")
    working.update(2, 3000)
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        return len(waits) == 3

    working._ended = SimpleNamespace(wait=wait)  # type: ignore[assignment]
    working._show()
    assert waits == [2, 0.1, 0.1]
    assert "reading: 2 of 3,000" in sys.stderr.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("status", "variables", "is_terminal", "text"),
    [
        ("success", {}, True, "\x1b[32mx\x1b[0m"),
        ("running", {}, True, "\x1b[36mx\x1b[0m"),
        ("queued", {}, True, "x"),
        ("success", {"NO_COLOR": "1"}, True, "x"),
        ("success", {"TERM": "dumb"}, True, "x"),
        ("success", {}, False, "x"),
    ],
)
def test_statuses_are_colored_on_a_terminal(
    status: str, variables: dict[str, str], is_terminal: bool, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", Terminal() if is_terminal else io.StringIO())
    assert output.colored("x", status) == text


def test_a_prefix_of_another_run_is_not_typed(tmp_path: Path) -> None:
    name = "nightly-regression-one"
    with new_store(tmp_path) as store:
        for each in (name, "nightly-regression-two"):
            add_batch(store, each, items()[:1])
        # Only the first of the prefixes that fit is that of both runs.
        assert output.run_prefix(store, name, 20) == "nightly-regression-o"
        assert output.run_prefix(store, name, 19) == name
        assert output.run_prefix(store, name, 11) == name
