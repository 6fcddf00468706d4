"""Draws on the budget of a batch and of the store, entry by entry, and rate limits that processes share."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import stocked
from databases import query
from proctor.errors import OwnershipLost
from proctor.session import ModelCall
from proctor.store import Drawn, MoneyLimits, Store, batches, ledger, timestamp
from proctor.store.ledger import ROUNDING_USD
from proctor.store.tables import COLUMNS
from proctor.store.writer import RowGroups, this_process

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
ME, AWAY = this_process(), "elsewhere:1:1:x"
Entry = tuple[object, ...]


class Books:
    """A store with batches, and what the functions of the ledger do to it."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def batch(self, run_id: str = "run", owner: str = ME, **values: object) -> None:
        row = {"runId": run_id, "job": "coding", "status": "running", "owner": owner}
        times = {"createdAt": timestamp(NOW), "heartbeatAt": timestamp(NOW)}
        self.store.create_batch(row | times | values, [])

    def do(self, function: Any, *arguments: Any, **options: Any) -> Any:
        return self.store._transaction(lambda connection: function(connection, *arguments, **options))

    def draw(
        self, wanted: float, least: float = 0.0, *, run: str = "run", by: str = ME, **limits: float
    ) -> Drawn:
        options = {"wanted_usd": wanted, "least_usd": least, "limits": MoneyLimits(**limits), "now": NOW}
        return self.do(ledger.draw, run, by, **options)

    def enter(self, *entries: Entry) -> None:
        """Rows of session, position, run, item, kind, reserved, spent and holder."""
        writer = self.store.writer()
        for session, position, run, item, *amounts in entries:
            writer.append("ledger", (session, position, run, item, timestamp(NOW), *amounts))
        writer.close()

    def entries(self, where: str = "1 = 1") -> list[Entry]:
        columns = '"sessionId", "position", "kind", "reservedUsd", "spentUsd", "holder"'
        found = query(self.store, f'SELECT {columns} FROM "ledger" WHERE {where} ORDER BY 1, 2')
        return [tuple(row.values()) for row in found]


@pytest.fixture
def books(proctor_store: Store) -> Books:
    return Books(proctor_store)


# Draws


def test_a_draw_is_an_eighth_of_the_rest_or_what_is_wanted_and_never_more_than_is_left(books: Books) -> None:
    books.batch()
    assert books.draw(0.01, run_usd=8.0) == Drawn(usd=1.0)
    assert books.draw(3.0, run_usd=8.0) == Drawn(usd=3.0)
    assert books.draw(9.0, run_usd=8.0) == Drawn(usd=4.0)
    assert books.entries() == [
        (ME, number, "draw", usd, 0.0, ME) for number, usd in ((1, 1.0), (2, 3.0), (3, 4.0))
    ]
    assert books.draw(0.1, run_usd=8.0) == Drawn(usd=0.0, short_of="budget")
    books.do(ledger.give_back, "run", ME, 0.25, NOW)
    assert books.entries()[-1] == (ME, 4, "draw", -0.25, 0.0, ME)
    assert books.draw(1.0, run_usd=8.0) == Drawn(usd=0.25), "what is returned can be drawn again"


def test_less_than_the_least_is_refused_and_as_much_is_granted(books: Books) -> None:
    books.batch()
    assert books.draw(0.5, 0.5, run_usd=0.25) == Drawn(usd=0.0, short_of="budget")
    assert books.draw(0.5, 0.25 + ROUNDING_USD, run_usd=0.25) == Drawn(usd=0.25)
    books.batch("tiny")
    assert books.draw(0.5, run="tiny", run_usd=ROUNDING_USD).usd == 0.0, "what is left of rounding"
    assert books.draw(0.5, run="tiny", run_usd=3 * ROUNDING_USD).usd == 3 * ROUNDING_USD


def test_the_smaller_remainder_counts_and_is_named(books: Books) -> None:
    books.batch()
    books.batch("other", AWAY)
    books.draw(0.5, run="other", by=AWAY, store_usd=1.0)
    assert books.draw(0.75, 0.75, run_usd=2.0, store_usd=1.0) == Drawn(
        usd=0.0, short_of="store_budget", others_hold=True
    )
    assert books.draw(0.75, 0.75, run_usd=0.25, store_usd=4.0).short_of == "budget"
    assert books.draw(0.5, 0.5, run_usd=2.0, store_usd=1.0).usd == 0.5


def test_what_another_process_has_drawn_and_spent_is_not_waited_for(books: Books) -> None:
    books.batch()
    books.batch("other", AWAY)
    books.draw(0.5, run="other", by=AWAY, store_usd=0.5)
    assert books.draw(0.1, store_usd=0.5) == Drawn(usd=0.0, short_of="store_budget", others_hold=True)
    books.enter(("s", 1, "other", "i", "settle", 0.0, 0.5, AWAY))
    assert books.draw(0.1, store_usd=0.5) == Drawn(usd=0.0, short_of="store_budget")


# The end of a process


def test_a_process_that_ends_returns_what_it_has_not_spent(books: Books) -> None:
    books.batch()
    books.draw(1.0, run_usd=1.0)
    books.enter(
        ("s", 1, "run", "i", "reserve", 0.5, 0.0, ME),
        ("s", 2, "run", "i", "call", 0.25, 0.0, ME),
        ("s", 3, "run", "i", "settle", -0.5, 0.375, ME),
    )
    assert books.do(ledger.holders, "run") == [ME]

    books.do(ledger.close, "run", ME, NOW)
    books.do(ledger.close, "run", ME, NOW)

    closed = books.entries("\"kind\" = 'close'")
    assert closed == [(ME, 2, "close", -0.625, 0.0, ME)], "once"
    assert books.do(ledger.holders, "run") == []


@pytest.mark.parametrize(
    ("drawn", "spent", "closed"), [(0.0, 0.0, False), (0.5, 0.5, True), (0.0, ROUNDING_USD, False)]
)
def test_who_has_spent_all_is_closed_and_who_drew_nothing_or_spent_but_rounding_is_not(
    books: Books, drawn: float, spent: float, closed: bool
) -> None:
    books.batch()
    if drawn:
        books.draw(drawn, run_usd=drawn)
    books.enter(("s", 1, "run", "i", "settle", 0.0, spent, ME))
    books.do(ledger.close, "run", ME, NOW)
    assert books.entries("\"kind\" = 'close'") == ([(ME, 2, "close", 0.0, 0.0, ME)] if closed else [])


def test_attempts_of_a_dead_process_count_with_known_cost_and_running_calls(books: Books) -> None:
    books.batch(owner=AWAY)
    books.draw(2.0, by=AWAY, run_usd=2.0)
    books.enter(
        ("one", 1, "run", "i1", "reserve", 0.5, 0.0, AWAY),
        ("one", 2, "run", "i1", "call", 0.25, 0.0, AWAY),
        ("two", 1, "run", "i2", "reserve", 0.75, 0.0, AWAY),
        ("two", 2, "run", "i2", "call", ROUNDING_USD, 0.0, AWAY),
        ("three", 1, "run", "i3", "reserve", 0.25, 0.0, AWAY),
        ("three", 2, "run", "i3", "settle", -0.25, 0.125, AWAY),
        ("mine", 1, "run", "i4", "reserve", 0.25, 0.0, ME),
    )
    writer = books.store.writer()
    recorder = stocked.session(writer, "one")
    for cost in (0.125, None, 0.0625):
        recorder.record(ModelCall(model="m", cost_usd=cost))
    writer.close()

    books.do(ledger.release, "run", AWAY, NOW)

    assert books.entries("\"kind\" = 'estimate'") == [
        ("one", -1, "estimate", -0.5, 0.4375, AWAY),
        ("two", -1, "estimate", -0.75, 0.0, AWAY),
    ]
    assert books.entries("\"kind\" = 'close'") == [(AWAY, 2, "close", 0.4375 + 0.125 - 2.0, 0.0, AWAY)]
    books.do(ledger.settle_open_attempts, "run", AWAY, NOW)
    assert len(books.entries("\"kind\" = 'estimate'")) == 2, "once"


def test_a_process_whose_batch_was_taken_over_draws_nothing(books: Books) -> None:
    books.batch(owner=AWAY, heartbeatAt=timestamp(NOW - timedelta(hours=1)))
    books.draw(0.5, by=AWAY, run_usd=1.0)
    (row,) = query(books.store, 'SELECT "heartbeatAt" FROM "batches"')
    assert row["heartbeatAt"] == timestamp(NOW), "a draw is a heartbeat of the owner"
    books.do(ledger.release, "run", AWAY, NOW)
    assert books.draw(0.25, by=AWAY, run_usd=1.0).usd == 0.25, "it still owns the batch"
    books.store.change(batches.change, "run", {"owner": ME})
    with pytest.raises(OwnershipLost, match="the batch run was taken over by another process"):
        books.draw(0.25, by=AWAY, run_usd=1.0)
    assert books.draw(0.25, by="helper:1:1:x", run_usd=1.0).usd == 0.25, "a further process of the batch"


@pytest.mark.parametrize(
    ("status", "silent", "is_dead"), [("running", 9, False), ("running", 11, True), ("completed", 1, True)]
)
def test_money_of_a_dead_process_is_drawn_by_who_needs_it(books, status, silent, is_dead):
    books.batch()
    books.batch("other", AWAY)
    books.draw(1.0, run="other", by=AWAY, store_usd=1.0)
    heartbeat = timestamp(NOW - timedelta(seconds=silent))
    books.store.change(batches.change, "other", {"status": status, "heartbeatAt": heartbeat})

    drawn = books.draw(0.5, 0.5, store_usd=1.0)

    assert drawn == (Drawn(usd=0.5) if is_dead else Drawn(usd=0.0, short_of="store_budget", others_hold=True))


def test_costs_that_no_process_has_drawn_are_counted_with_the_next_draw(books: Books) -> None:
    books.batch()
    books.enter(("s", 1, "run", "i", "settle", 0.0, 0.25, ""))
    for _ in range(2):
        assert books.draw(1.0, 1.0, run_usd=1.0) == Drawn(usd=0.0, short_of="budget")
    assert books.entries("\"kind\" = 'close'") == [("earlier:run", 1, "close", 0.25, 0.0, "")]


# Settled late


def test_a_late_settlement_replaces_the_estimate(books: Books) -> None:
    books.batch()
    books.enter(
        ("one", -1, "run", "i1", "estimate", -0.5, 0.4, AWAY),
        ("two", -1, "run", "i2", "estimate", -0.25, 0.3, AWAY),
        ("three", -1, "run", "i3", "estimate", -0.5, 0.1, AWAY),
    )
    late = RowGroups()
    at = timestamp(NOW)
    late.append("ledger", ("one", 4, "run", "i1", at, "call", -0.25, 0.0, AWAY))
    late.append("ledger", ("one", 5, "run", "i1", at, "settle", -0.5, 0.125, AWAY))
    for session in ("two", "three"):
        late.append("ledger", (session, 4, "run", f"i {session}", at, "call", -0.25, 0.0, AWAY))
    for cost in (0.0625, None):
        row = {"sessionId": "two", "position": 9, "costUsd": cost}
        late.append("model_calls", tuple(row.get(name) for name in COLUMNS["model_calls"]))

    books.do(ledger.settle_late, late, NOW)

    assert books.entries('"position" = -2') == [
        ("one", -2, "settle", -0.5, 0.125, AWAY),
        ("three", -2, "settle", -0.5, 0.0, AWAY),
        ("two", -2, "settle", -0.25, pytest.approx(0.1125), AWAY),
    ]
    books.do(ledger.settle_late, late, NOW)
    assert len(books.entries('"position" = -2')) == 3, "once"


def test_what_a_late_settlement_saves_can_be_drawn(books: Books) -> None:
    books.batch(owner=AWAY)
    books.draw(1.0, by=AWAY, run_usd=1.0)
    books.enter(
        ("one", 1, "run", "i1", "reserve", 0.75, 0.0, AWAY), ("one", 2, "run", "i1", "call", 0.5, 0.0, AWAY)
    )
    books.do(ledger.release, "run", AWAY, NOW)
    books.store.change(batches.change, "run", {"owner": ME})
    late = RowGroups()
    late.append("ledger", ("one", 3, "run", "i1", timestamp(NOW), "settle", -0.75, 0.125, AWAY))
    books.do(ledger.settle_late, late, NOW)

    assert books.draw(9.0, run_usd=1.0) == Drawn(usd=0.875)

    closed = books.entries("\"kind\" = 'close'")
    assert closed == [(AWAY, 2, "close", -0.5, 0.0, AWAY), (AWAY, 3, "close", -0.375, 0.0, AWAY)]


@pytest.mark.parametrize(
    ("holder", "is_alive"), [("helper:1:1:x", True), (ME.split(":")[0] + ":4194303:1:x", False)]
)
def test_a_further_process_of_a_batch_is_dead_only_if_that_is_known(books, holder, is_alive):
    books.batch()
    books.batch("other", AWAY, status="completed")
    books.draw(1.0, run="other", by=holder, store_usd=1.0)
    drawn = books.draw(0.5, 0.5, store_usd=1.0)
    assert (drawn.usd, drawn.others_hold) == ((0.0, True) if is_alive else (0.5, False))


# Rate limits


def pool(name: str) -> dict[str, object]:
    row = {"name": name, "runId": "run", "limit": 2.0, "inUse": 1, "waiting": 0, "calls": 3, "limited": 0}
    return row | {"waitedSeconds": 0.0, "heldUntil": None, "cutAt": None}


def test_rate_limits_of_others_are_seen_for_five_seconds(books: Books) -> None:
    def exchange(owner: str, names: str, seconds: float) -> list[tuple[str, str]]:
        moment = NOW + timedelta(seconds=seconds)
        others = books.do(ledger.exchange, owner, [pool(name) for name in names], moment)
        return sorted((row["owner"], row["name"]) for row in others)

    assert exchange("a", "xy", 0) == []
    assert exchange("b", "x", 1) == [("a", "x"), ("a", "y")]
    assert exchange("a", "y", 2) == [("b", "x")]
    assert exchange("b", "", 7) == [("a", "y")]
    assert exchange("b", "", 7.001) == []
    exchange("a", "x", 8)
    books.do(ledger.withdraw, "a")
    assert exchange("b", "", 8) == []
