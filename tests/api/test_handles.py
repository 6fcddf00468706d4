"""Handles of runs, sessions and tables, the progress bar, and calls that are refused."""

import asyncio
import builtins
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from proctor import api
from proctor.api.handles import Record, Run, Table, _library, _plain
from proctor.errors import NotFound, UsageError


@pytest.fixture
def board(library, tmp_path):
    """A run made of a table, with a score of its own rule."""
    rows = "".join(f"t{n},m,0.{n}\n" for n in range(1, 10))
    (tmp_path / "scores.csv").write_text(f"task,model,score\n{rows}")
    return library.import_table(Path("scores.csv"), run="board", pass_score=0.5)


def test_notes_of_an_import_are_notices_of_the_run(library, board, tmp_path):
    texts = [notice.text if hasattr(notice, "text") else str(notice) for notice in board.notices]
    assert any("a score of 0.5 or more counts as success" in text for text in texts)
    assert board.summary()["successCount"] == 5
    # Notices belong to the call that made them.
    with library.open_store() as store:
        assert store.run("board").notices == ()


def test_items_and_sessions_are_found_by_id(library, board):
    items = list(board.items())
    one = board.item(items[0].id)
    assert (one.prompt, one.to_dict()["runId"]) == (items[0].prompt, "board")
    assert repr(one) == f"<RunItem {one.id} {one.status}>" and repr(board) == "<Run board completed>"
    assert "prompt" in dir(one) and "session" in dir(one)
    with pytest.raises(NotFound, match="run board has no item nothing"):
        board.item("nothing")
    with pytest.raises(AttributeError, match="RunItem has no attribute 'colour'"):
        one.colour  # noqa: B018
    sessions = list(board.sessions())
    assert len(sessions) == 9 and repr(sessions[0]).startswith(f"<RunSession {sessions[0].id}")
    found = board.session(sessions[0].id[:20])
    assert found.id == sessions[0].id and found.tool_uses == [] and found.answer == "" and found.diff == ""
    with library.open_store() as store:
        assert store.session(sessions[0].id).id == sessions[0].id
        assert len(store.runs(limit=1)) == 1 and store.url.endswith("proctor.db")


def test_an_item_without_a_session_says_so(board):
    item = next(iter(board.items()))
    item._row = {**item._row, "sessionId": None}
    with pytest.raises(NotFound, match="has no session yet"):
        item.session  # noqa: B018


def test_a_run_that_was_opened_for_reading_cannot_be_resumed(board):
    bare = Run("board", board._store, now=board._now, environment={})
    with pytest.raises(UsageError, match="opened for reading only"):
        bare.resume()


def test_tables_are_aligned_and_named(board):
    assert str(Table()) == "(no rows)"
    table = Table([{"model": "a", "rate": 0.123456}, {"model": "longer", "rate": None}])
    assert str(table).splitlines() == ["model   rate", "a       0.1235", "longer  –"]
    assert len(list(board.rows("items"))) == 9 and len(list(board.rows("runs"))) == 1
    with pytest.raises(UsageError, match="there is no table nothing"):
        board.rows("nothing")
    assert _plain({"a": [1, "ü"], "b": {"c": 1}, "d": "x"}) == {"a": '[1, "ü"]', "b": '{"c": 1}', "d": "x"}
    with pytest.raises(UsageError, match="this needs the library no_such_library"):
        _library("no_such_library")


def test_columns_are_attributes_in_snake_case():
    record = Record({"costUsd": 2, "_private": 1})
    assert record.cost_usd == 2
    with pytest.raises(AttributeError):
        record._private  # noqa: B018


@pytest.mark.parametrize("name", ["report", "report.txt", "report.pdf"])
def test_a_report_of_another_format_is_refused(board, tmp_path, name):
    with pytest.raises(UsageError, match="a report has no format"):
        board.report(tmp_path / name)
    for good in ("new/r.html", "r.htm", "r.md", "r.markdown"):
        written = board.report(tmp_path / good)
        assert written.read_text().startswith("#") is good.endswith(("md", "markdown"))


# --- Calls ---


@pytest.mark.parametrize("workers", [0, -1, 1.5, "2"])
def test_a_number_of_workers_is_at_least_one(workers):
    with pytest.raises(UsageError, match="at least 1"):
        api._checked_workers(workers)
    assert api._checked_workers(1) == 1 and api._checked_workers(None) is None


def test_engines_are_known_by_name():
    assert api._checked_engine("ray", "there") == api.EngineOptions("ray", "there")
    with pytest.raises(UsageError, match="should be `local` or `ray`, not 'slurm'"):
        api._checked_engine("slurm", "auto")


def test_items_are_checked_before_they_are_stored(library):
    item = library.Item
    for items, message in (
        ([], "there is nothing to run"),
        ([item(prompt="a"), "b"], "item 2 is 'b'"),
        ([item(prompt=3)], "the prompt of item 1 should be text, not 3"),
        ([item(prompt="a", details={"x": object()})], "item 1 cannot be stored"),
        (
            [item(prompt="a", settings={"timeoutSec": 0})],
            "`timeoutSec` of item 1 should be a positive number",
        ),
        ([item(prompt="a", settings={"timeoutSec": True})], "`timeoutSec` of item 1"),
        ([item(prompt="a", settings={"timeoutSec": float("inf")})], "`timeoutSec` of item 1"),
        (
            [item(prompt="a", settings={"retries": -1})],
            "`retries` of item 1 should be a whole number from 0 on",
        ),
        ([item(prompt="a", settings={"retries": 1.0})], "`retries` of item 1"),
        ([item(prompt="a", settings={"retryOn": ["success"]})], "`retryOn` of item 1 should be a list"),
        ([item(prompt="a", settings={"retryOn": "error"})], "`retryOn` of item 1"),
        ([item(prompt="a", settings={"budget": 0})], "`budget` of item 1 should be a positive number of US"),
    ):
        with pytest.raises(UsageError, match=message):
            api._item_maker(items, "", "", {})
    with pytest.raises(UsageError, match="items have no override seed"):
        api._item_maker([item(prompt="a")], "", "", {"seed": 1})
    good = {"timeoutSec": 0.1, "retries": 0, "retryOn": ("error", "fail"), "budget": 0.01}
    assert len(list(api._item_maker([item(prompt="a", settings=good)], "", "", {})())) == 1


def test_items_get_the_agent_and_the_model_of_the_call(library):
    own = library.Item(prompt="a", agent="mine", model="own/m", runner="worktree")
    tree = library.Item(prompt="b", runner="worktree")
    plain = library.Item(prompt="c")
    made = list(api._item_maker([own, tree, plain, plain], "f", "m", {})())
    assert [(each.runner, each.agent, each.model, each.repeat) for each in made] == [
        ("worktree", "mine", "own/m", 1),
        ("worktree", "f", "m", 1),
        ("function", "f", "m", 1),
        ("function", "f", "m", 2),
    ]
    assert [each.runner for each in api._item_maker([plain], "", "m", {})()] == ["prompt"]


def test_the_bar_counts_what_is_finished_and_names_what_is_no_success(capsys):
    bar = api.ProgressBar(lambda run_id: (4, 1))
    finished = [
        SimpleNamespace(outcome=SimpleNamespace(status=status)) for status in ("success", "fail", "fail")
    ]

    async def shown() -> None:
        async with bar.watch("nightly", None):
            for each in finished:
                bar.item_finished(each)

    bar.item_finished(finished[0])
    asyncio.run(shown())
    text = capsys.readouterr().err
    assert "nightly 2 fail" in text and "4/4" in text and "success" not in text


def test_the_bar_of_a_notebook_needs_ipython_alone(library, monkeypatch):
    drawn: list[str] = []

    class ZMQInteractiveShell:
        """What IPython calls its shell in a notebook."""

    def display(shown, display_id):
        drawn.append(shown)
        return SimpleNamespace(update=drawn.append)

    monkeypatch.setattr(builtins, "get_ipython", ZMQInteractiveShell, raising=False)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(HTML=str, display=display))
    items = [library.Item(prompt=str(k), model="scripted/ok") for k in range(3)]

    async def cell():
        return library.run(items=items, run_id="nightly")

    asyncio.run(cell())

    assert drawn[0] == '<progress max="3" value="0"></progress> 0/3 nightly'
    assert drawn[-1] == '<progress max="3" value="3"></progress> 3/3 nightly'


def test_an_error_of_the_library_has_no_other_error_before_it(library):
    with pytest.raises(UsageError) as caught:
        library.run()

    assert caught.value.__context__ is None


async def test_inside_a_running_loop_errors_and_results_come_from_a_thread():
    async def works():
        return 7

    async def breaks():
        raise KeyError("x")

    assert api.outside_of_any_loop(works) == 7
    with pytest.raises(KeyError):
        api.outside_of_any_loop(breaks)


def test_the_observer_is_a_bar_where_it_is_asked_for(board):
    assert isinstance(api._observer(board._store, True), api.ProgressBar)
    assert api._observer(board._store, True)._total("board") == (9, 9)
    assert not isinstance(api._observer(board._store, False), api.ProgressBar)
