"""Each change that a store offers is committed when it returns, and seen by another connection."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from databases import query
from filled import NOW, filled_store
from proctor.errors import UsageError
from proctor.item import Item
from proctor.session import Merge
from proctor.store import Resource, RetrySelection, Store, timestamp
from proctor.store.annotations import (
    CalibrationRecord,
    Label,
    labeled_evaluators,
    labeled_scores,
    labels_state,
    newest_calibration,
)

LATER = NOW + timedelta(hours=1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store with a run whose first two items have ended and whose third is running."""
    with filled_store(tmp_path, finished=2) as opened:
        yield opened


def one(store: Store, sql: str, *parameters: object) -> tuple[Any, ...]:
    (row,) = query(store, sql, parameters)
    return tuple(row.values())


def batch(store: Store, *columns: str) -> tuple[Any, ...]:
    return one(store, f'SELECT {", ".join(columns)} FROM "batches" WHERE "runId" = ?', "compare")


def statuses(store: Store) -> list[str]:
    return [row["status"] for row in store.read.items("compare", limit=4)]


def test_columns_of_a_batch_and_requests_to_stop_it(store):
    store.change_batch("compare", {"budgetUsd": 7.5, "concurrency": 2})
    assert batch(store, '"budgetUsd"', '"concurrency"') == (7.5, 2)
    store.request_abort("compare", NOW)
    store.request_abort("compare", LATER)
    assert batch(store, '"abortRequestedAt"') == (timestamp(NOW),), "the first request counts"


def test_items_are_queued_again_and_a_batch_ends_with_all_of_them(store):
    assert statuses(store) == ["success", "success", "running", "queued"]
    first, *_ = store.read.items("compare", limit=2)
    store.requeue("compare", [first["id"]])
    assert statuses(store) == ["queued", "success", "running", "queued"]
    store.end_batch("compare", "aborted", "abort", "stopped by Ann", LATER)
    assert batch(store, '"status"', '"reason"', '"finishedAt"') == ("aborted", "abort", timestamp(LATER))
    assert statuses(store) == ["error", "success", "error", "error"]
    ended = one(store, 'SELECT "reason", "error" FROM "batch_items" WHERE "id" = ?', first["id"])
    assert ended == ("abort", "stopped by Ann")


def test_a_batch_does_not_end_before_it_began(store):
    store.end_batch("compare", "aborted", "abort", "", NOW - timedelta(days=1))
    assert batch(store, '"finishedAt"') == (timestamp(NOW),)


def test_resources_are_added_once(store):
    text = Resource(kind="role", name="ann", digest="d1", content="be kind")
    store.add_resources("compare", [text])
    store.add_resources("compare", [text, Resource(kind="role", name="bob", digest="d2", content="x")])
    assert store.read.resource("compare", "d1") == "be kind"
    assert store.read.resource_digests("compare") == {"d1", "d2"}
    assert store.read.resource("compare", "d3") is None


def test_a_batch_is_extended_by_items_at_its_end(store):
    new = Item(runner="worktree", prompt="new", agent="amp", model="m", factors={"task": "new"})
    queued = store.read.items("compare", limit=1, offset=35)[0]["id"]
    store.extend_batch("compare", {"budgetUsd": 9.0}, add=[new], settle=[], drop=[queued])
    assert batch(store, '"budgetUsd"') == (9.0,)
    last = one(store, 'SELECT "id", "position" FROM "batch_items" ORDER BY "position" DESC LIMIT 1')
    assert last == (new.id, 35)
    assert query(store, 'SELECT 1 FROM "batch_items" WHERE "id" = ?', (queued,)) == []


def test_a_merge_after_the_end_is_numbered_after_the_others(store):
    (item,) = store.read.items("compare", limit=1)
    merge = Merge(base_branch="main", result="conflict", conflict_files=("a.py",))
    before = len(query(store, 'SELECT 1 FROM "merge_history" WHERE "sessionId" = ?', (item["sessionId"],)))
    for _ in range(2):
        store.save_merge(item["sessionId"], merge, LATER)
    sql = 'SELECT "position", "startedAt", "result" FROM "merge_history" WHERE "sessionId" = ? ORDER BY 1'
    rows = [tuple(row.values()) for row in query(store, sql, (item["sessionId"],))]
    assert len(rows) == before + 2
    assert [row[1:] for row in rows[-2:]] == [(timestamp(LATER), "conflict")] * 2
    assert rows[-1][0] == rows[-2][0] + 1


def test_labels_replace_those_of_the_same_person_and_target(store):
    def label(**values: Any) -> Label:
        return Label(**{"session_id": "s", "evaluator": "tidy", "who": "ann", "label": "good"} | values)

    store.save_label(label(), NOW)
    store.save_label(label(label="bad", value=0.25, note="n" * 5000), LATER)
    store.save_label(label(who="bob", value=0.0, label=""), NOW)
    store.save_label(label(evaluator="other", target="t", level="trace", dimension="d"), NOW)
    found = [
        (row["who"], row["label"], row["value"], len(row["note"])) for row in store.labels(evaluator="tidy")
    ]
    assert found == [("bob", "", 0.0, 0), ("ann", "bad", 0.25, 5000)]
    assert len(store.labels(session_ids=["s"])) == 3 and store.labels(session_ids=["x"]) == []
    with pytest.raises(UsageError, match="a label needs a word or a value"):
        store.save_label(label(label=""), NOW)
    assert [tuple(row.values()) for row in labeled_evaluators(store.read)] == [
        ("tidy", "", "session", 2),
        ("other", "d", "trace", 1),
    ]
    assert len(labeled_evaluators(store.read, "other")) == 1
    state = labels_state(store.read, "tidy")
    assert (state["n"], state["at"]) == (2, timestamp(LATER)) and labels_state(store.read)["n"] == 3


def test_a_label_stands_beside_the_scores_of_its_target(store):
    score = query(store, 'SELECT * FROM "scores" WHERE "error" = \'\' AND "judgedSessionId" = \'\' LIMIT 1')[
        0
    ]
    known = {"session_id": score["sessionId"], "evaluator": score["evaluator"], "target": score["target"]}
    store.save_label(Label(**known, dimension=score["dimension"], who="ann", value=0.75), NOW)
    (pair,) = labeled_scores(store.read, score["evaluator"])
    assert (pair["about"], pair["humanValue"], pair["value"]) == (score["sessionId"], 0.75, score["value"])
    assert labeled_scores(store.read) == [pair] and labeled_scores(store.read, "nobody") == []


def test_the_newest_calibration_of_a_version_counts(store):
    def calibration(things: int, **values: Any) -> CalibrationRecord:
        known = {
            "evaluator": "tidy",
            "evaluator_digest": "d",
            "things": things,
            "document": {"results": things},
        }
        return CalibrationRecord(**known | values)

    for things, at in ((1, NOW), (2, LATER), (3, LATER), (4, NOW)):
        store.save_calibration(calibration(things), at)
    store.save_calibration(calibration(9, evaluator_digest="e", dimension="x"), NOW)
    newest = newest_calibration(store.read, "tidy", "d")
    assert newest is not None and (newest["things"], newest["at"]) == (3, timestamp(LATER))
    assert newest_calibration(store.read, "tidy", "e") is None
    other = newest_calibration(store.read, "tidy", "e", "x")
    assert other is not None and other["things"] == 9
    assert len(query(store, 'SELECT 1 FROM "calibrations"')) == 3


def test_texts_of_a_run_are_deleted_and_its_results_stay(store):
    size = store.run_sizes(["compare", "none"])
    assert size["compare"] > 1000 and size["none"] == 0 and store.run_sizes([]) == {}
    before = statuses(store)
    assert query(store, 'SELECT 1 FROM "tool_calls" WHERE "argsJson" <> \'{}\'')

    store.delete_texts("compare")

    assert query(store, 'SELECT 1 FROM "messages"') == []
    assert query(store, 'SELECT 1 FROM "tool_calls" WHERE "argsJson" <> \'{}\' OR "result" <> \'\'') == []
    assert statuses(store) == before
    assert store.run_sizes(["compare"])["compare"] < size["compare"]


def test_runs_that_ended_before_a_time(store):
    assert store.runs_ended_before(datetime.now(UTC) + timedelta(days=1)) == ["compare"]
    assert store.runs_ended_before(NOW) == []
    store.end_batch("compare", "completed", "", "", NOW)
    assert store.runs_ended_before(NOW) == []
    assert store.runs_ended_before(NOW + timedelta(milliseconds=1)) == ["compare"]


def test_a_deleted_run_gives_its_space_back(store):
    other = {"runId": "other", "createdAt": timestamp(NOW), "job": "coding", "status": "completed"}
    store.create_batch(other, [])
    commits, full = store.commits(), store.file_bytes()
    store.delete_batch("compare")
    assert store.commits() != commits
    assert [row["runId"] for row in query(store, 'SELECT "runId" FROM "batches"')] == ["other"]
    for table in ("batch_items", "sessions", "messages", "scores", "ledger"):
        assert query(store, f'SELECT 1 FROM "{table}"') == []
    store.purge()
    assert store.file_bytes() < full


def test_a_resumed_batch_returns_the_sessions_that_were_cut_off(store):
    cut_off = store.resume_batch(
        "compare", "me:1:1:x", RetrySelection(), datetime.now(UTC) + timedelta(days=1)
    )
    assert [row["status"] for row in cut_off] == ["running"]
    assert statuses(store) == ["success", "success", "queued", "queued"]
    assert batch(store, '"owner"', '"status"') == ("me:1:1:x", "running")
    row = one(store, 'SELECT "status", "endReason" FROM "sessions" WHERE "id" = ?', cut_off[0]["id"])
    assert row == ("error", "interrupted")
