"""Runs of imported outcomes: each row of a table is an item with a session, however often it is imported."""

import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from databases import query
from filled import filled_store
from proctor.errors import UsageError
from proctor.item import id_of
from proctor.store import Store, timestamp
from proctor.store.imported_runs import ImportedFile, ImportedRows, TableOutcome, identity

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
DATABASES = ["sqlite"]
FIRST = ImportedFile(key="k1", path="a.csv", digest="d1")
OTHER = ImportedFile(key="k2", path="b.csv", digest="d2")


def outcome(task: str = "sum", **values: Any) -> TableOutcome:
    known = {"agent": "amp", "model": "m", "status": "success", "reason": "completed"}
    return TableOutcome(task=task, **known | {"file": "k1", "place": "a.csv:2"} | values)


def save(
    store: Store,
    outcomes: Sequence[TableOutcome],
    *,
    files: Sequence[ImportedFile] = (FIRST,),
    now: datetime = NOW,
) -> ImportedRows:
    return store.imported_runs.save_table("run", lambda known: (files, outcomes), now, "1.2")


def rows(store: Store, table: str, columns: str, order: str) -> list[tuple[object, ...]]:
    names = ", ".join(f'"{name}"' for name in columns.split())
    return [tuple(row.values()) for row in query(store, f'SELECT {names} FROM "{table}" ORDER BY {order}')]


def items(store: Store, columns: str) -> list[tuple[object, ...]]:
    return rows(store, "batch_items", columns, '"position"')


def test_a_row_becomes_an_item_a_session_a_call_and_scores(store: Store) -> None:
    scores = [("tidy", 0.5), ("fast", 1.0)]
    counts = save(
        store,
        [
            outcome(factors={"mood": "calm"}, cost_usd=0.25, seconds=90.0, tokens=12, scores=scores),
            outcome("walk", agent="", tokens=1, status="fail", reason="checks_failed", error="it fell"),
            outcome("walk", agent=""),
            outcome("walk", agent="", cost_usd=0.0),
        ],
    )

    assert counts == ImportedRows(added=4)
    group = identity("sum", "amp", "m", {"mood": "calm"})
    assert group.factors == {"task": "sum", "agent": "amp", "model": "m", "mood": "calm"}
    walk = identity("walk", "", "m")
    assert walk.factors == {"task": "walk", "model": "m"} and walk.details == {}
    ids = [id_of(group.digest, 1), *(id_of(walk.digest, repeat) for repeat in (1, 2, 3))]
    began, at = timestamp(NOW - timedelta(seconds=90)), timestamp(NOW)
    tasks = [(ids[0], 0, 1, "sum", "amp"), *((ids[n], n, n, "walk", "") for n in (1, 2, 3))]
    assert items(store, "id position repeat prompt agent") == tasks
    ends = [
        ("success", "completed", ""),
        ("fail", "checks_failed", "it fell"),
        *[("success", "completed", "")] * 2,
    ]
    assert items(store, "status reason error") == ends
    assert items(store, "runner model") == [("imported", "m")] * 4
    assert items(store, "factors details")[:2] == [
        ('{"task":"sum","agent":"amp","model":"m","mood":"calm"}', '{"factors":{"mood":"calm"}}'),
        ('{"task":"walk","model":"m"}', "{}"),
    ]
    assert items(store, "digest startedAt finishedAt tokensTotal toolCalls costUsd") == [
        (group.digest, began, at, 12, 0, 0.25),
        (walk.digest, None, None, 1, 0, None),
        (walk.digest, None, None, 0, 0, None),
        (walk.digest, None, None, 0, 0, 0.0),
    ]
    sessions = dict(items(store, "id sessionId"))
    columns = "id itemId runId job name agent model status endReason error source startedAt finishedAt"
    columns += " workSeconds promptTokens totalTokens costUsd unpricedCalls modelCalls"
    by_item = {row[1]: row for row in rows(store, "sessions", columns, '"id"')}
    first, second = by_item[ids[0]], by_item[ids[1]]
    assert first[:7] == (sessions[ids[0]], ids[0], "run", "imported", "sum", "amp", "m")
    assert first[7:] == ("success", "completed", "", "table", began, at, 90.0, 12, 12, 0.25, 0, 1)
    assert second[7:] == ("fail", "checks_failed", "it fell", "table", at, at, None, 1, 1, None, 1, 1)
    assert [by_item[each][-3:] for each in ids[2:]] == [(None, 0, 0), (0.0, 0, 1)]
    columns = "sessionId position step timestamp model promptTokens costUsd priceSource status"
    calls = {row[0]: row[1:] for row in rows(store, "model_calls", columns, '"sessionId"')}
    assert calls == {
        sessions[ids[0]]: (1, 1, at, "m", 12, 0.25, "table", "ok"),
        sessions[ids[1]]: (1, 1, at, "m", 1, None, "", "ok"),
        sessions[ids[3]]: (1, 1, at, "m", 0, 0.0, "table", "ok"),
    }
    columns = "sessionId position timestamp evaluator level value"
    assert rows(store, "scores", columns, '"position"') == [
        (sessions[ids[0]], 2, at, "tidy", "session", 0.5),
        (sessions[ids[0]], 3, at, "fast", "session", 1.0),
    ]
    columns = "runId createdAt job status reason finishedAt proctorVersion optionsJson"
    assert rows(store, "batches", columns, '"runId"') == [
        ("run", at, "imported", "completed", "", at, "1.2", '{"files":{"k1":{"path":"a.csv","digest":"d1"}}}')
    ]


def test_rows_that_are_no_longer_in_their_file_are_removed_and_those_of_others_stay(store: Store) -> None:
    other = outcome("other", file="k2", place="b.csv:2", scores=[("tidy", 1.0)], tokens=3)
    save(store, [outcome(), outcome("walk", scores=[("tidy", 0.5)], tokens=5)])
    assert save(store, [other], files=[OTHER]) == ImportedRows(added=1)

    assert save(store, [outcome()]) == ImportedRows(unchanged=1, removed=1)

    assert items(store, "prompt") == [("sum",), ("other",)]
    assert rows(store, "scores", "value", '"value"') == [(1.0,)]
    assert rows(store, "model_calls", "promptTokens", '"promptTokens"') == [(3,)]
    known: list[ImportedFile] = []

    def see(files: Sequence[ImportedFile]) -> tuple[Sequence[ImportedFile], list[TableOutcome]]:
        known.extend(files)
        return [], []

    store.imported_runs.save_table("run", see, NOW, "1.2")
    assert known == [FIRST, OTHER]


def test_equal_results_have_one_digest_and_others_another() -> None:
    first = outcome(cost_usd=0.5, seconds=1.0, tokens=2, error="e", scores=[("a", 1.0)])
    assert first.digest == dataclasses.replace(first, place="b.csv:7", task="x").digest
    assert len(first.digest) == 16
    changes = ({"cost_usd": 0.6}, {"seconds": 2.0}, {"tokens": 3}, {"error": ""}, {"scores": []})
    changes += ({"status": "fail"}, {"reason": "loop"})
    assert len({first.digest, *(dataclasses.replace(first, **change).digest for change in changes)}) == 8


def test_a_table_that_is_empty_leaves_no_run(store: Store) -> None:
    assert save(store, []) == ImportedRows()
    assert rows(store, "batches", "runId", '"runId"') == []
    store.imported_runs.begin("empty", NOW, "1")
    assert store.imported_runs.finish("empty", NOW) == 0


def test_a_run_is_incomplete_until_it_is_finished_and_no_other_run_is_opened(tmp_path: Path) -> None:
    with filled_store(tmp_path, finished=1) as store:
        with pytest.raises(UsageError, match="the run compare exists and was not imported"):
            store.imported_runs.begin("compare", NOW, "1")
        save(store, [outcome()])
        for _ in range(2):
            store.imported_runs.begin("run", NOW, "2")
            columns = 'SELECT "status", "reason", "proctorVersion" FROM "batches" WHERE "runId" = ?'
            assert [tuple(row.values()) for row in query(store, columns, ("run",))] == [
                ("interrupted", "the import did not finish", "1.2")
            ]
        assert store.imported_runs.finish("run", NOW) == 1
        assert query(store, columns, ("run",))[0]["status"] == "completed"


def loose(store: Store, session_id: str, **values: object) -> None:
    """A session that belongs to no run."""
    row = {"id": session_id, "job": "imported", "agent": "amp", "model": "m", "status": "success"}
    row |= {"name": f"name of {session_id}", "startedAt": timestamp(NOW), "finishedAt": timestamp(NOW)}
    row |= {"endReason": "completed", "totalTokens": 5, "toolCalls": 2, "costUsd": 0.5, "workSeconds": 3.0}
    writer = store.writer()
    writer.add("sessions", (session_id,), row | values)
    writer.close()


def test_sessions_become_items_of_a_run_by_the_task_they_name(store: Store) -> None:
    loose(store, "s1", attributesJson='{"task": "last", "task.id": "sum"}')
    loose(store, "s2", attributesJson='{"proctor.task": "sum"}', workSeconds=None)
    loose(store, "s3", attributesJson="{}")
    loose(store, "s4", name="", externalId="outside", totalTokens=0, toolCalls=0)
    store.imported_runs.begin("run", NOW, "1")

    assert [store.imported_runs.adopt("run", f"s{number}") for number in (1, 2, 3, 4)] == [""] * 4

    at = timestamp(NOW)
    assert items(
        store, "prompt position repeat sessionId startedAt finishedAt tokensTotal toolCalls costUsd"
    ) == [
        ("sum", 0, 1, "s1", at, at, 5, 2, 0.5),
        ("sum", 1, 2, "s2", None, None, 5, 2, 0.5),
        ("name of s3", 2, 1, "s3", at, at, 5, 2, 0.5),
        ("outside", 3, 1, "s4", at, at, 0, 0, 0.5),
    ]
    assert items(store, "status reason") == [("success", "completed")] * 4
    assert rows(store, "sessions", "runId", '"id"') == [("run",)] * 4
    before = items(store, "id position repeat")
    assert store.imported_runs.adopt("run", "s2") == ""
    assert items(store, "id position repeat") == before, "it keeps its item"
    store.imported_runs.begin("second", NOW, "1")
    assert store.imported_runs.adopt("second", "s2") == "run"
