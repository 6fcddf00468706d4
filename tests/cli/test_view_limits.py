"""How much of a long list the views of a run print, and what they say about the rest."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from filled import add_batch, items, new_store
from proctor.cli import live, output, runs
from proctor.item import FAIL
from proctor.stats.intervals import wilson


def printed(renderable: Any) -> list[str]:
    console = Console(width=100, file=None, record=True, quiet=False, force_terminal=False)
    with console.capture() as capture:
        console.print(renderable)
    return [line.rstrip() for line in capture.get().splitlines()]


def maker(number: int, trials: int = 4) -> Any:
    return SimpleNamespace(name=f"m{number}", rate=wilson(min(1, trials), trials), finished=1000, items=2000)


@pytest.mark.parametrize(
    ("number", "last"), [(1, "m0"), (12, "m11"), (13, "… and 1 more"), (20, "… and 8 more")]
)
def test_twelve_models_are_shown_and_the_others_counted(number: int, last: str) -> None:
    lines = printed(live._makers([maker(each) for each in range(number)]))
    assert len(lines) == min(number, 13) and lines[-1].startswith(last)
    assert lines[0].split("  ")[0] == "m0" and "25%" in lines[0] and lines[0].endswith("1,000 of 2,000")
    assert "(" in lines[0] and "(" not in printed(live._makers([maker(0, trials=0)]))[0]


def failure(count: int, example: str) -> Any:
    return SimpleNamespace(count=count, status=FAIL, example=example)


def test_repeated_failures_are_shown_most_frequent_first() -> None:
    failures = [failure(1, "once"), *(failure(each, f"e{each}") for each in range(2, 30))]
    shown = live._most(failures)
    assert [group.count for group in shown] == list(range(29, 29 - live.SHOWN_FAILURES, -1))
    assert live._most(failures[:1]) == []
    assert live._failure(failure(1234, "no\x1b good")).plain == "1,234 × fail: no  good"


def test_the_first_twenty_kinds_of_failures_are_printed_once_each() -> None:
    view = live.LiveView.__new__(live.LiveView)
    printed: list[Any] = []
    console = SimpleNamespace(
        print=lambda text, soft_wrap: printed.append((text.plain, text.style, soft_wrap))
    )
    view._live, view._failures = SimpleNamespace(console=console), {}  # type: ignore[assignment]
    words = [f"{first}{second} broke" for first in "abcde" for second in "vwxyz"]
    item = SimpleNamespace(prompt="do\nit")
    for word in (*words, *words):
        outcome = SimpleNamespace(status=FAIL, error=word, reason="r")
        view.item(SimpleNamespace(id="0123456789", item=item, outcome=outcome))  # type: ignore[arg-type]
    success: Any = SimpleNamespace(outcome=SimpleNamespace(status="success"))
    view.item(success)
    assert printed == [(f"fail 01234567 do it: {word}", "red", False) for word in words[:20]]
    assert [(each.status, each.example, each.count) for each in view._failures.values()] == [
        (FAIL, word, 2) for word in words
    ]


async def test_the_view_of_all_runs_is_read_twice_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[Any] = []

    async def sleep(seconds: float) -> None:
        events.append(seconds)
        if len(events) == 4:
            raise KeyboardInterrupt

    view = live.TopView.__new__(live.TopView)
    monkeypatch.setattr(view, "read", lambda: events.append("read") or [], raising=False)
    monkeypatch.setattr(live.asyncio, "sleep", sleep)
    with pytest.raises(KeyboardInterrupt):
        await view.show()
    assert events == ["read", 0.5, "read", 0.5]


@pytest.mark.parametrize(("kinds", "more"), [(5, ""), (6, "… and 1 more kind"), (8, "… and 3 more kinds")])
def test_five_kinds_of_failures_are_listed_and_the_others_counted(
    kinds: int, more: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("apple", "bridge", "cloud", "desert", "engine", "forest", "garden", "harbor")
    with new_store(tmp_path) as store:
        writer = store.writer()
        for number, row in enumerate(store.read.items("compare", limit=kinds + 1)):
            word = words[number % kinds]
            changes = {"status": "fail", "reason": f"because_{word}", "error": f"{word} {word} {word}"}
            writer.change("batch_items", ("compare", row["id"]), changes)
        writer.close()
        runs._print_failures(store, "compare")
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["", lines[1]] and lines[1].split() == ["FAILURES", "REASON", "FOR", "EXAMPLE"]
    assert lines[2].split()[:2] == ["2", "because_apple"]
    assert (lines[7:] or [""])[0] == more and len(lines) == 7 + bool(more)


def test_a_run_without_failures_lists_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with new_store(tmp_path) as store:
        runs._print_failures(store, "compare")
    assert capsys.readouterr().out == ""


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
    with new_store(tmp_path) as store:
        add_batch(store, name, items()[:1])
        assert output.run_prefix(store, name, room) == typed


def test_the_longest_of_the_next_commands_fits_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "nightly-regression-of-support"
    monkeypatch.setattr(output, "terminal_width", lambda: 46)
    with new_store(tmp_path) as store:
        add_batch(store, name, items()[:1])
        output.print_next([f"proctor show {name}", f"proctor report --run {name}"], run_id=name, store=store)
    assert capsys.readouterr().err == (
        "Next:  proctor show nightly-regression\n       proctor report --run nightly-regression\n"
    )


def test_the_leaderboard_is_that_of_the_run_under_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "standing", lambda read, run_id, _: [SimpleNamespace(model=f"{read} {run_id}")])
    monkeypatch.setattr(live, "leaderboard_picture", lambda rows, title: (rows[0].model, title))
    view = live.BenchView.__new__(live.BenchView)
    view._store, view._run_id = SimpleNamespace(read="read"), "run\x1b"  # type: ignore[assignment]
    assert view._picture() == ("read run\x1b", "run ")  # type: ignore[comparison-overlap]
