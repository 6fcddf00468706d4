"""The results of a run over HTTP: sections by job, current while it runs, quick for large runs."""

from datetime import timedelta

from stocked_runs import NOW

from proctor.item import Item
from proctor.store import timestamp


def results(served, run_id):
    reply = served.get(f"/api/runs/{run_id}/results?wait=30")
    assert reply.status == 200, reply.text
    assert reply.json["isCurrent"]
    return reply.json


def of_kind(answer, kind):
    return [section for section in answer["sections"] if section["kind"] == kind]


def finish(store, run_id, items, is_success):
    """Give items their results."""
    writer = store.writer()
    for number, item in enumerate(items):
        ok = is_success(number, item)
        start = NOW + timedelta(seconds=number)
        writer.change(
            "batch_items",
            (run_id, item.id),
            {
                "status": "success" if ok else "fail",
                "reason": "completed" if ok else "checks_failed",
                "startedAt": timestamp(start),
                "finishedAt": timestamp(start + timedelta(seconds=2)),
                "costUsd": 0.01 if item.model == "dear/model" else 0.001,
            },
        )
    writer.close()


def duel(count):
    """Two models on the same tasks."""
    return [
        Item(runner="prompt", prompt=f"Task {n}", model=model, agent="", factors={"model": model})
        for n in range(count)
        for model in ("dear/model", "cheap/model")
    ]


def add_duel(store, run_id, count, is_success, *, finished=None, **batch):
    items = duel(count)
    row = {"runId": run_id, "createdAt": timestamp(NOW), "job": "coding", "status": "completed"}
    store.create_batch({**row, "finishedAt": timestamp(NOW), **batch}, items)
    finish(store, run_id, items[: 2 * (count if finished is None else finished)], is_success)


def test_the_models_of_a_run_are_ranked_with_their_intervals_and_costs(shared, serve_shared):
    add_duel(shared.site.store, "duel", 60, lambda n, item: item.model == "dear/model" or n % 8 == 1)
    answer = results(shared, "duel")

    (sentence,) = of_kind(answer, "sentence")
    assert sentence["text"].startswith("The winner is clear: dear/model (100% of 60 tasks")
    assert sentence["tone"] == "good" and not sentence["offersStop"]
    (table,) = of_kind(answer, "table")
    assert [column["title"] for column in table["columns"]][:3] == ["Rank", "Model", "Success rate"]
    first, second = table["rows"]
    assert (first[0]["text"], first[1]["text"]) == ("1", "dear/model")
    rate = second[2]["figure"]
    assert (rate["value"], rate["n"]) == (0.25, 60) and rate["low"] < 0.25 < rate["high"]
    assert rate["items"] == {"factor": ["model=cheap/model"]}
    (chart,) = of_kind(answer, "chart")
    assert chart["title"] == "Success against cost by model"
    assert [mark["label"] for mark in chart["marks"]] == ["dear/model", "cheap/model"]
    assert 'data-mark="0"' in chart["svg"] and 'data-mark="1"' in chart["svg"]
    (matrix,) = of_kind(answer, "matrix")
    assert matrix["columns"] == ["dear/model", "cheap/model"] and len(matrix["rows"]) == 60
    # Tasks in which the models differ come first.
    name, cells = matrix["rows"][0]
    assert name == "Task 1" and [cell["status"] for cell in cells] == ["success", "fail"]
    assert len(cells[0]["itemIds"]) == 1
