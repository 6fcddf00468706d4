"""Lines of the live views, and the progress of commands, by value."""

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from filled import add_batch, items, new_store
from proctor.cli import live, output, run
from proctor.item import Item
from proctor.job import ItemFinished
from proctor.runner import Outcome
from proctor.stats.progress import RunningItem


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


# --- Benchmarks ---


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


# --- Progress of a command ---


def test_a_prefix_of_another_run_is_not_typed(tmp_path: Path) -> None:
    name = "nightly-regression-one"
    with new_store(tmp_path) as store:
        for each in (name, "nightly-regression-two"):
            add_batch(store, each, items()[:1])
        # Only the first of the prefixes that fit is that of both runs.
        assert output.run_prefix(store, name, 20) == "nightly-regression-o"
        assert output.run_prefix(store, name, 19) == name
        assert output.run_prefix(store, name, 11) == name
