"""Handles of runs, sessions and tables, the progress bar, and calls that are refused."""

import asyncio
import builtins
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from proctor.api import doctor
from proctor.api.handles import Table
from proctor.api.sessions import Record
from proctor.context import Settings
from proctor.errors import NotFound, UsageError


@pytest.fixture
def board(library, tmp_path):
    """A run made of a table, with a score of its own rule."""
    rows = "".join(f"t{n},m,0.{n}\n" for n in range(1, 10))
    (tmp_path / "scores.csv").write_text(f"task,model,score\n{rows}")
    return library.import_table(Path("scores.csv"), run="board", pass_score=0.5)


def test_notes_of_an_import_are_notices_of_the_run(library, board, tmp_path):
    (notice,) = board.notices
    assert "a score of 0.5 or more counts as success" in str(notice)
    assert board.summary()["successCount"] == 5
    # Notices belong to the call that made them.
    with library.open_store() as store:
        assert store.run("board").notices == ()


def test_items_and_sessions_are_found_by_id(library, board):
    items = list(board.items())
    one = board.item(items[0].id)
    assert (one.prompt, one.to_dict()["runId"]) == (items[0].prompt, "board")
    assert repr(one) == f"<RunItem {one.id} {one.status}>"
    assert repr(board).startswith("<Run board completed: ")
    assert "prompt" in dir(one) and "session" in dir(one)
    with pytest.raises(NotFound, match="run board has no item nothing"):
        board.item("nothing")
    with pytest.raises(AttributeError, match="RunItem has no attribute 'color'"):
        one.color  # noqa: B018
    sessions = list(board.sessions())
    assert len(sessions) == 9 and repr(sessions[0]).startswith(f"<RunSession {sessions[0].id}")
    found = board.session(sessions[0].id[:20])
    assert found.id == sessions[0].id and found.tool_uses == [] and found.answer == "" and found.diff == ""
    with library.open_store() as store:
        assert store.session(sessions[0].id).id == sessions[0].id
        assert len(store.runs(limit=1)) == 1 and store.url.endswith("proctor.db")


def test_tables_are_aligned_and_named(board):
    assert str(Table()) == "(no rows)"
    table = Table([{"model": "a", "rate": 0.123456}, {"model": "longer", "rate": None}])
    assert str(table).splitlines() == ["model   rate", "a       0.1235", "longer  –"]
    assert len(list(board.rows("items"))) == 9 and len(list(board.rows("runs"))) == 1
    with pytest.raises(UsageError, match="there is no table nothing"):
        board.rows("nothing")


def test_columns_are_attributes_in_snake_case():
    record = Record({"costUsd": 2, "_private": 1})
    assert record.cost_usd == 2
    with pytest.raises(AttributeError):
        getattr(record, "_private")  # noqa: B009


@pytest.mark.parametrize(("mode", "noted"), [(0o700, False), (0o710, True), (0o701, True)])
def test_a_home_that_others_may_enter_is_noted(mode, noted, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(mode)

    results = list(doctor.check_store(Settings(home=home, store_url=str(home / "no.db"))))

    found = [(each.name, each.ok, each.message) for each in results]
    assert found == ([("home", None, f"other users may enter {home} (mode {mode:o})")] if noted else [])


# White box: there is no notebook here; IPython is what the test says it is.
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
