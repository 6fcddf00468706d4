"""Finished items as columns."""

from pathlib import Path

import numpy as np
import pytest

from filled import NOW, carry_out, filled_store, new_store
from proctor.errors import NotFound
from proctor.item import FINISHED, Item
from proctor.jobs.imported.table import import_table
from proctor.stats.results import Labels, load_results


def test_items_are_columns_with_levels_and_figures(tmp_path: Path) -> None:
    store = filled_store(tmp_path)
    results = load_results(store.read, ["compare"], NOW)
    assert len(results) == 36
    assert results.column("model").labels == ("gpt-5", "claude-opus", "qwen3:8b")
    counts = {status: int((results.status == at).sum()) for at, status in enumerate(FINISHED)}
    assert counts == {"success": 18, "fail": 6, "timeout": 6, "error": 6}
    assert int(np.isnan(results.metrics["success"]).sum()) == counts["error"]
    assert float(np.nansum(results.metrics["success"])) == 18
    assert float(results.with_errors_failed.mean()) == 0.5
    with pytest.raises(NotFound, match="There are: repo, "):
        results.column("color")


def test_a_task_is_the_same_for_every_model_and_repeat(tmp_path: Path) -> None:
    results = load_results(filled_store(tmp_path).read, ["compare"], NOW)
    by_model, varied = results.tasks(results.column("model"))
    assert varied == ("model",)
    # Three repositories with two agents each; models and repeats share a task.
    assert len(by_model.labels) == 6
    every, left_out = results.tasks()
    assert left_out == ("agent", "model") and len(every.labels) == 3
    first = results.where(results.column("model").mask("gpt-5"))
    assert len(first) == 12 and set(first.column("model").codes) == {0}


def test_labels_are_coded_in_the_order_they_appear() -> None:
    column = Labels.of(["b", None, "a", "b", ""])
    assert column.labels == ("b", "a")
    assert column.codes.tolist() == [0, -1, 1, 0, -1]
    assert column.mask("a").tolist() == [False, False, True, False, False]


def test_results_of_another_tool_pair_by_the_name_of_the_task(tmp_path: Path) -> None:
    table = tmp_path / "theirs.csv"
    table.write_text("task,model,success\n" + "".join(f"task {n},m,1\n" for n in range(8)))
    items = [
        Item(prompt=f"Please do {n}", model="a", factors={"task": f"task {n}"}, details={"x": n})
        for n in range(8)
    ]
    store = new_store(tmp_path, "ours", items)
    carry_out(store, "ours")
    import_table(store, [table], "theirs", NOW)

    results = load_results(store.read, ["ours", "theirs"], NOW)

    assert results.pairing() == "task"
    assert len(results.tasks(results.runs, "task")[0].labels) == 8
    assert load_results(store.read, ["ours"], NOW).pairing() == "item"
