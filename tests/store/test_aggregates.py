"""How much of a large run is listed: its longest, slowest, first and latest."""

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta

import pytest

from proctor.store import Store, StoreReader, aggregates, item_lists, items, results, runs, timestamp
from proctor.store.reader import Scope
from proctor.store.tables import COLUMNS
from proctor.store.writer import this_process
from stocked import NOW, add_batch

LONG = "p" * 301
CHANGED = ("runId", "factors")


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreReader]:
    """Runs with one more row than is listed: failures, running items, mocks, tool calls, scenarios."""
    with Store(str(tmp_path_factory.mktemp("large") / "proctor.db")) as store:
        add_batch(store, "failed", 201)
        add_batch(store, "running", 11)
        add_batch(store, "finished", 1001)
        add_batch(store, "towns", 201, job="scenario")
        starts = [(timestamp(NOW + timedelta(seconds=number)), number) for number in range(1001)]
        with closing(store._database.connect()) as connection:
            connection.begin()
            run, many = connection.run, connection.run_many
            run("""UPDATE "batch_items" SET "status" = 'fail' WHERE "runId" = 'failed'""")
            run("""UPDATE "batch_items" SET "status" = 'running' WHERE "runId" = 'running'""")
            run("""UPDATE "batch_items" SET "status" = 'success' WHERE "runId" IN ('finished', 'towns')""")
            run("""UPDATE "batch_items" SET "prompt" = ? WHERE "runId" <> 'towns'""", (LONG,))
            run("""UPDATE "batch_items" SET "prompt" = 'town' WHERE "runId" = 'towns'""")
            run("""UPDATE "batch_items" SET "startedAt" = ?""", (timestamp(NOW),))
            many('UPDATE "batch_items" SET "finishedAt" = ? WHERE "position" = ?', starts)
            many(
                """UPDATE "batch_items" SET "model" = ?, "factors" = ?
                WHERE "runId" = 'finished' AND "position" = ?""",
                [(f"m{number:04}", f'{{"evaluator": "e{number:04}"}}', number) for number in range(1001)],
            )
            many(
                """INSERT INTO "sessions" ("id", "runId", "itemId", "job", "status", "agent", "model",
                "isMock", "startedAt") VALUES (?, 'failed', '', 'coding', 'success', ?, 'm', 1, ?)""",
                [(f"s{number:03}", f"a{number:03}", timestamp(NOW)) for number in range(101)],
            )
            many(
                """INSERT INTO "tool_calls" ("sessionId", "position", "step", "timestamp", "toolName",
                "durationMs") VALUES ('s000', ?, 1, '', 'run', ?)""",
                [(number, 10 * number) for number in range(11)],
            )
            columns = ", ".join(f'"{name}"' for name in COLUMNS["batch_items"] if name not in CHANGED)
            for number in range(201):
                name = f"benchmark {number:03}"
                values = (name, timestamp(NOW + timedelta(seconds=number)))
                run(
                    """INSERT INTO "batches" ("runId", "createdAt", "job", "status")
                    VALUES (?, ?, 'benchmark', 'completed')""",
                    values,
                )
                run(
                    f"""INSERT INTO "batch_items" ("runId", "factors", {columns})
                    SELECT ?, '{{"task": "t"}}', {columns} FROM "batch_items"
                    WHERE "runId" = 'finished' AND "position" = 0""",
                    (name,),
                )
            connection.commit()
        yield store.read


def of(read: StoreReader, run_id: str) -> aggregates.Selection:
    return aggregates.select(read, Scope(run_id=run_id))


def test_the_ten_slowest_tool_calls_follow_the_sums_of_their_tool(read: StoreReader) -> None:
    sums, *slowest = aggregates.tool_sums(of(read, "failed"))

    assert (sums["calls"], sums["ms"], sums["session"]) == (11, 550, None)
    assert sorted(row["ms"] for row in slowest) == [10 * number for number in range(1, 11)]


def test_rows_of_a_digest_are_left_out_of_a_page() -> None:
    page = {"digest": ["a", "b", "a", "c"], "model": ("k", "l", "m", "n")}
    assert results.without_digest(page, "a") == {"digest": ("b", "c"), "model": ("l", "n")}


def test_a_trend_has_the_runs_with_items_that_are_not_running(proctor_store: Store) -> None:
    for number, (run_id, status, count) in enumerate(
        [("done", "completed", 1), ("empty", "completed", 0), ("runs", "running", 1), ("idle", "running", 0)]
    ):
        created = timestamp(NOW + timedelta(hours=number))
        add_batch(proctor_store, run_id, count, status=status, owner=this_process(), createdAt=created)
    assert [row["runId"] for row in runs.trend_runs(proctor_store.read, NOW)] == ["done"]


def numbered(prefix: str, numbers: range, width: int) -> list[str]:
    return [f"{prefix}{number:0{width}}" for number in numbers]


def test_of_failures_running_items_mocks_and_levels_the_first_are_listed(read: StoreReader) -> None:
    failed, running = aggregates.failed_items(of(read, "failed")), aggregates.running_items(read, "running")
    assert (len(failed), len(running)) == (200, 10)
    assert {row["prompt"] for row in [*failed, *running]} == {LONG[:300]}, "with the beginnings of texts"
    mocks = aggregates.mock_sessions(of(read, "failed"))
    assert [row["agent"] for row in mocks] == numbered("a", range(100), 3)
    factors = item_lists.factor_levels(read, "finished", "evaluator")
    columns = item_lists.column_levels(read, "finished", "model")
    assert [row["value"] for row in factors] == numbered("e", range(500), 4)
    assert [row["value"] for row in columns] == numbered("m", range(500), 4)
    evaluators = runs.evaluators_of(read, ["finished", "towns"])
    assert {run_id: sorted(names) for run_id, names in evaluators.items()} == {
        "finished": numbered("e", range(1001), 4)
    }, "all of them"


def test_of_scenarios_and_tasks_the_newest_two_hundred_runs_are_read(read: StoreReader) -> None:
    assert len(aggregates.scenario_items(read, "town")) == 200
    assert len(aggregates.scenario_totals(read, "town")) == 201
    rows = items.task_results(read, ["benchmark"])
    assert [row["runId"] for row in rows] == numbered("benchmark ", range(200, 0, -1), 3)


def test_of_more_than_a_thousand_durations_every_second_is_read(read: StoreReader) -> None:
    rows = aggregates.ranked_durations(of(read, "finished"))
    assert [row["rank"] for row in rows] == [1, *range(2, 1001, 2), 1001]
    assert (rows[0]["n"], rows[0]["total"], rows[-1]["v"]) == (1001, 500_500, 1000)
    assert [row["rank"] for row in aggregates.ranked_durations(of(read, "towns"))] == list(range(1, 202))
