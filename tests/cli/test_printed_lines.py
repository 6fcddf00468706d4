"""Lines that commands print: progress of indexing, runs of a benchmark, ranks."""

from types import SimpleNamespace
from typing import Any

import pytest

from proctor.cli import compare
from proctor.cli.live import BenchView, leaderboard_picture
from proctor.cli.sessions import NOTE_EVERY, _IndexingNotes
from proctor.stats.intervals import wilson
from proctor.stats.results import OtherModel


def test_indexing_is_noted_at_the_beginning_and_every_so_many_sessions(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress = _IndexingNotes()
    for indexed in (0, 100, NOTE_EVERY - 1, NOTE_EVERY, NOTE_EVERY + 1, 2 * NOTE_EVERY):
        progress(SimpleNamespace(indexed=indexed, pending=1))  # type: ignore[arg-type]
    progress(SimpleNamespace(indexed=5 * NOTE_EVERY, pending=0))  # type: ignore[arg-type]
    assert capsys.readouterr().err.splitlines() == [
        "indexing transcripts: 0 of 1 session",
        "indexing transcripts: 5,000 of 5,001 sessions",
        "indexing transcripts: 10,000 of 10,001 sessions",
    ]


def finished(status: str = "success", repeat: int = 1, **changes: Any) -> Any:
    item = SimpleNamespace(factors={"model": "m", "agent": "a", "task": "t"}, repeat=repeat)
    result = SimpleNamespace(
        status=status, reason="completed" if status == "success" else "broken", error="e"
    )
    return SimpleNamespace(
        **{"item": item, "outcome": result, "work_seconds": 2.0, "tokens": 0, "cost_usd": None, **changes}
    )


@pytest.mark.parametrize(
    ("end", "line"),
    [
        (finished(), "success  m  t  2 s"),
        (finished(repeat=2), "success  m  t  run 2  2 s"),
        (finished(tokens=1200, cost_usd=0.0), "success  m  t  2 s  1,200 tokens  $0.00"),
        (finished(status="error"), "error    m  t  2 s  broken: e"),
    ],
)
def test_a_finished_run_of_a_benchmark_is_one_line(end: Any, line: str) -> None:
    view = BenchView.__new__(BenchView)
    view._split = frozenset()
    assert " ".join(view._line(end).split()) == " ".join(line.split())
    assert view._line(end).startswith(f"{end.outcome.status:<7}  ")


@pytest.mark.parametrize(("items", "columns"), [(1, 5), (2, 6)])
def test_rates_stand_in_the_leaderboard_if_a_model_has_several_runs(items: int, columns: int) -> None:
    row: Any = SimpleNamespace(
        model="m",
        state="running",
        elapsed_seconds=0.0,
        tokens=0,
        cost_usd=None,
        counts={"success": items},
        is_clustered=False,
        rate=wilson(items, items),
    )
    table = leaderboard_picture([row], "title")
    cells = [next(iter(column.cells)) for column in table.columns]
    assert [str(cell) for cell in cells[:5]] == ["m", "running", "–", "–", "–"] and len(cells) == columns


def test_ranks_name_models_that_answered_for_others(capsys: pytest.CaptureFixture[str]) -> None:
    results: Any = SimpleNamespace(
        stand_ins=(),
        answered=(OtherModel(requested="a", answered="b", items=2),),
        unfinished={"r": 1},
        is_error=None,
    )
    compare._print_ranks(results, [], "model", "cost")
    notes = capsys.readouterr().err.splitlines()
    assert notes[:2] == [
        "note: a was requested, b answered (2 items)",
        "note: r has 1 item without a result: ranks will change",
    ]
    assert notes[-1] == "typical values; less is better, for tasks like these"
