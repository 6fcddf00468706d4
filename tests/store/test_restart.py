"""A PostgreSQL server that restarts is waited for: nothing is lost, and nothing is written twice."""

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from databases import PostgresServer, new_database, query
from proctor.errors import StoreUnavailable
from proctor.store import MoneyLimits, Ownership, Store, database, ledger, postgres
from proctor.store.database import open_database
from proctor.store.writer import this_process
from proctor.testing import eventually
from stocked import NOW, add_batch
from waiting import TIME_LIMIT_SECONDS


@pytest.fixture(scope="module")
def restarting() -> Iterator[PostgresServer]:
    made = PostgresServer()
    try:
        made.start()
        yield made
    finally:
        made.remove()


def ledger_row(number: int) -> tuple[object, ...]:
    return (f"s{number}", 1, "run", "", "2026-01-01T00:00:00.000Z", "settle", 0.0, 0.01, "me")


def test_readers_transactions_and_the_writer_go_on_when_the_server_is_back(restarting):
    failures = list[Exception]()
    with Store(new_database(restarting.url)) as store:
        owner = this_process()
        add_batch(store, "run", owner=owner)
        ownership = Ownership(run_id="run", owner=owner, aborted=lambda: None, failed=failures.append)
        writer = store.writer(ownership)
        writer.append("ledger", ledger_row(0))
        writer.flush().result(timeout=TIME_LIMIT_SECONDS)
        commits = store.commits()

        restarting.stop()
        for number in range(1, 20):
            writer.append("ledger", ledger_row(number))
        flushed = writer.flush()
        amounts = {"wanted_usd": 0.1, "least_usd": 0.1, "limits": MoneyLimits(run_usd=10.0)}
        drawn = list[float]()
        drawing = threading.Thread(
            target=lambda: drawn.append(store.change(ledger.draw, "run", owner, **amounts, now=NOW).usd)
        )
        drawing.start()
        assert not flushed.done()
        restarting.start(waits=False)

        flushed.result(timeout=TIME_LIMIT_SECONDS)
        # What was committed meanwhile is unknown: pages look again.
        eventually(lambda: store.commits() != commits)
        drawing.join(timeout=TIME_LIMIT_SECONDS)
        assert drawn and drawn[0] >= 0.1
        assert store.read.batch("run", NOW)["runId"] == "run"
        writer.close()
        rows = query(store, 'SELECT "sessionId" FROM "ledger" WHERE "kind" = ?', ("settle",))
        assert len(rows) == 20
    assert failures == []


def test_a_transaction_that_the_restart_cut_is_repeated_as_a_whole(restarting):
    url = new_database(restarting.url)
    with closing(open_database(url).connect()) as connection:
        connection.run('CREATE TABLE "marks" ("n" BIGINT PRIMARY KEY)')
        tries = list[int]()

        def work() -> None:
            connection.run('INSERT INTO "marks" VALUES (1)')
            tries.append(1)
            if len(tries) == 1:
                restarting.stop()
                restarting.start()
            connection.run('INSERT INTO "marks" VALUES (2)')

        database.in_transaction(connection, work)

        assert len(tries) == 2
        assert [row["n"] for row in connection.rows('SELECT "n" FROM "marks" ORDER BY "n"')] == [1, 2]


def test_a_server_that_does_not_come_back_is_an_error_in_the_end(restarting, monkeypatch):
    """Sooner than the minutes that it is waited for."""
    monkeypatch.setattr(postgres, "RECONNECT_SECONDS", 0.2)
    with closing(open_database(new_database(restarting.url)).connect()) as connection:
        restarting.stop()
        try:
            with pytest.raises(StoreUnavailable, match="cannot open the store"):
                connection.rows("SELECT 1")
        finally:
            restarting.start()
        eventually(lambda: connection.rows('SELECT 1 AS "n"') == [{"n": 1}])


def test_a_command_that_starts_while_the_server_restarts_waits_for_it(restarting):
    url = new_database(restarting.url)
    restarting.stop()
    results = list[object]()

    def open_store() -> None:
        with closing(open_database(url).connect()) as connection:
            results.append(connection.rows('SELECT 1 AS "n"'))

    opening = threading.Thread(target=open_store)
    opening.start()
    restarting.start(waits=False)
    opening.join(timeout=TIME_LIMIT_SECONDS)

    assert results == [[{"n": 1}]]


def test_a_database_that_does_not_exist_is_an_error_at_once(restarting, monkeypatch):
    """That nothing is waited for shows only in the pauses."""
    pauses = list[float]()
    monkeypatch.setattr(postgres.time, "sleep", pauses.append)

    with pytest.raises(StoreUnavailable, match="does not exist"):
        open_database(restarting.url.replace("/postgres?", "/missing?")).connect()

    assert pauses == [0.05]
