"""What is new, dropped and kept when a plan has changed."""

from work_items import item

from proctor.batch.extend import Extension, diff, extend


def test_an_extension_counts_what_is_new_dropped_and_kept(store):
    row = {"runId": "run", "createdAt": "t", "job": "coding", "status": "running"}
    old = [item(name) for name in ("done", "gone", "queued", "dropped")]
    store.create_batch(row, old)
    writer = store.writer()
    for each in old[:2]:
        writer.change("batch_items", ("run", each.id), {"status": "success"})
    writer.close()
    plan = [old[0], old[2], item("new"), item("done", model="other")]
    expected = Extension(
        added=2, reasons={"prompt": 1, "model": 1}, dropped=1, retained=1, done=1, new=plan[2:]
    )
    assert diff(store.read, "run", plan) == expected
    assert diff(store.read, "run", plan, derived_fields=frozenset({"model"})).reasons == {
        "prompt": 1,
        "repeat": 1,
    }
    assert len(store.read.items("run")) == 4
    assert extend(store, "run", {}, plan) == expected
    assert [each["prompt"] for each in store.read.items("run")] == ["done", "gone", "queued", "new", "done"]
    assert expected.sentences("task") == [
        "2 new tasks since the last run (new because of 1 task: prompt; 1 task: model)",
        "no longer in the plan: 1 dropped from the queue, 1 with results kept",
    ]
    assert Extension().sentences("task") == []
    assert len(Extension(retained=1).sentences("task")) == len(Extension(dropped=1).sentences("task")) == 1
