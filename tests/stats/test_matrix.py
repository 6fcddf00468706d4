"""Tasks × levels of a factor."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from filled import NOW, carry_out, new_store, task_items
from proctor.errors import NotFound
from proctor.results.loading import load_results
from proctor.stats.figures import MOST_LEVELS, Matrix, factor_of_columns
from proctor.stats.results import Labels, Results
from proctor.store import Store


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Two repeats of three tasks by two models: the outcomes follow each other (see `filled`)."""
    with new_store(tmp_path_factory.mktemp("matrix"), "run", task_items("ab", 3, 2)) as store:
        carry_out(store, "run")
        return with_scores(load_results(store.read, ["run"], NOW))


def with_scores(results: Results) -> Results:
    scores = np.asarray([1.0, 2.0, 4.0, np.nan, 5.0, 5.0, 5.0, 5.0, np.nan, np.nan, 7.0, 1.0])
    costs = np.asarray([1.0, 3.0, *[np.nan] * 2, *[2.0] * 8])
    metrics = {**results.metrics, "score:tidy": scores, "score:brave": scores, "cost": costs}
    return Results(
        **{name: getattr(results, name) for name in Results.__dataclass_fields__ if name != "metrics"},
        metrics=metrics,
    )


def test_cells_are_the_finished_items_of_a_task_and_a_level(results: Results) -> None:
    matrix = Matrix(results, "model")
    assert (matrix.by, matrix.levels, matrix.has_more_levels, len(matrix)) == ("model", ("a", "b"), False, 3)
    assert matrix.scores == ("brave", "tidy")
    rows = matrix.rows([0, 1, 2], "tidy")
    cells = [[(each.items, each.decided, each.passed) for each in row.cells if each] for row in rows]
    # success, success, fail, success, timeout, error, and again.
    assert cells == [[(2, 2, 2), (2, 2, 1)], [(2, 1, 0), (2, 2, 2)], [(2, 2, 1), (2, 1, 0)]]
    figures = [[(each.score, each.cost_usd) for each in row.cells if each] for row in rows]
    assert figures == [[(1.5, 2.0), (4.0, None)], [(5.0, 2.0), (5.0, 2.0)], [(None, 2.0), (4.0, 2.0)]]
    ids = [[each.item_id for each in row.cells if each] for row in rows]
    assert [one for pair in ids for one in pair] == list(results.item_ids[::2])
    every = [one for row in rows for each in row.cells if each for one in each.item_ids]
    assert every == list(results.item_ids)
    assert len({row.task for row in rows}) == 3
    assert all(each is None or each.score is None for row in matrix.rows([0, 2]) for each in row.cells)


def test_tasks_on_which_levels_differ_most_come_first(results: Results) -> None:
    matrix = Matrix(results, "model")
    assert matrix.tasks().tolist() == [0, 1, 2]
    assert matrix.tasks(disagree=True).tolist() == [1, 0, 2], (
        "0 against 1; then a half, in the order of the plan"
    )
    assert matrix.tasks(disagree=True, metric="score:tidy").tolist() == [0]
    assert matrix.tasks(search="TASK 2").tolist() == [2]
    assert matrix.tasks(search="task 1", disagree=True).tolist() == [1]
    assert matrix.tasks(search="nowhere", disagree=True).tolist() == []
    with pytest.raises(NotFound, match=r"the items have no score:odd\nThere are: success, .*score:tidy"):
        matrix.tasks(metric="score:odd", disagree=True)
    with pytest.raises(NotFound):
        matrix.rows([0], "odd")


def test_a_task_that_a_level_did_not_do_has_an_empty_cell(tmp_path: Path) -> None:
    with new_store(tmp_path, "run", task_items("ab", 2, 1, missing=[("a", 1)])) as store:
        carry_out(store, "run")
        matrix = Matrix(load_results(store.read, ["run"], NOW), "")
    rows = matrix.rows(matrix.tasks())
    assert [[cell is None for cell in row.cells] for row in rows] == [[False, False], [True, False]]
    assert matrix.tasks(disagree=True).tolist() == []


def test_a_cell_lists_at_most_fifty_items(tmp_path: Path) -> None:
    with new_store(tmp_path, "run", task_items("ab", 1, 51)) as store:
        carry_out(store, "run")
        (row,) = Matrix(load_results(store.read, ["run"], NOW), "model").rows([0])
    assert [(len(cell.item_ids), cell.items) for cell in row.cells if cell] == [(50, 51), (50, 51)]


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    levels = [f"m{number:02}" for number in range(MOST_LEVELS + 1)]
    with new_store(tmp_path_factory.mktemp("wide"), "run", task_items(levels, 1)) as store:
        carry_out(store, "run")
        yield store


def test_there_are_at_most_24_columns(wide: Store) -> None:
    results = load_results(wide.read, ["run"], NOW)
    matrix = Matrix(results, "model")
    assert (len(matrix.levels), matrix.has_more_levels) == (24, True)
    (row,) = matrix.rows([0])
    assert len(row.cells) == 24 and all(row.cells)
    fewer = Matrix(results.where(~results.column("model").mask("m24")), "model")
    assert len(fewer.levels) == 24


def test_the_columns_are_a_factor_that_varies(results: Results) -> None:
    def factors(**levels: str) -> Results:
        columns = {name: Labels.of((text * 12)[:12]) for name, text in levels.items()}
        changed = {name: getattr(results, name) for name in Results.__dataclass_fields__}
        return Results(**changed | {"factors": columns})

    assert factor_of_columns(results, "") == "model"
    assert factor_of_columns(results, "task") == "task"
    with pytest.raises(NotFound):
        factor_of_columns(results, "color")
    assert factor_of_columns(factors(size="abc", agent="ab", model="a"), "") == "agent"
    assert factor_of_columns(factors(size="abc", color="ab", model="a"), "") == "color", "the fewest levels"
    assert factor_of_columns(factors(size="a", color="b"), "") == "size", "none varies"
    assert factor_of_columns(factors(), "") == ""
    alone = Matrix(factors(), "")
    assert (alone.by, alone.levels, alone.has_more_levels) == ("", (), False)
