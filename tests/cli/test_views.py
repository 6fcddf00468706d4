"""What a run says of itself where nobody watches it live."""

import io
from typing import Any

import pytest
from rich.console import Console

from proctor.cli.live import picture
from proctor.cli.run import LineView
from proctor.item import STATUSES
from proctor.job import StopState
from proctor.stats.progress import Progress


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
    }
    console = Console(width=100, record=True, file=io.StringIO())
    progress = Progress(
        run_id="nightly",
        status="running",
        counts=dict.fromkeys(STATUSES, 1),
        tokens=0,
        cost_usd=None,
        budget_usd=None,
        elapsed_seconds=3.0,
        items_per_second=None,
        running=(),
        pools=(),
        stop_when=state,
    )
    console.print(picture(progress))
    text = console.export_text()

    assert "success by model with 95% intervals that are valid at any time:" in text
    assert "good  0.9  (0.61 to 0.99), 20 tasks" in text
    assert "bad   –  (no interval yet), 1 task" in text
    assert "undecided: good and bad are not told apart" in text
