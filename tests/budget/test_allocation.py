"""What one process draws for a batch, and which attempts may start with it."""

import asyncio
import itertools
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from ledgers import MemoryLedger, SettledRows

from proctor.budget.allocation import BatchBudget, Ledger, LedgerClient, PastCosts
from proctor.budget.reservation import Hold, Reservation
from proctor.errors import StoreError
from proctor.models.prices import SpendingRequest
from proctor.store import Drawn
from proctor.store.ledger import ROUNDING_USD
from waiting import TIME_LIMIT_SECONDS

REFUSED = Drawn(usd=0.0, short_of="budget")
OTHERS_HOLD = Drawn(usd=0.0, short_of="store_budget", others_hold=True)


class ScriptedLedger:
    """Grants what a script says; `calls` has what was wanted, the least, and what was returned, negative."""

    def __init__(self, *script: Drawn | Exception) -> None:
        self.script, self.calls = list(script), list[tuple[float, ...]]()
        self.on_draw: Callable[[], None] = lambda: None

    async def draw(self, holder: str, *, wanted_usd: float, least_usd: float) -> Drawn:
        assert holder == "me"
        self.calls.append((wanted_usd, least_usd))
        self.on_draw()
        outcome = self.script.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def give_back(self, holder: str, usd: float) -> None:
        self.calls.append((-usd,))


class Clock:
    def __init__(self, client: LedgerClient) -> None:
        self.seconds = 100.0
        client._time = lambda: self.seconds  # type: ignore[method-assign]


def client_of(*script: Drawn | Exception) -> tuple[LedgerClient, ScriptedLedger, Clock]:
    ledger = ScriptedLedger(*script)
    client = LedgerClient(ledger, "me", is_limited=True)
    return client, ledger, Clock(client)


def budget_of(
    ledger: Ledger, *, concurrency: int = 4, rows: SettledRows | None = None
) -> tuple[BatchBudget, SettledRows]:
    rows = rows or SettledRows()
    client = LedgerClient(ledger, "me", is_limited=True)
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    budget = BatchBudget(client, run_id="run", concurrency=concurrency, rows=rows, now=lambda: moment)
    return budget, rows


def worst(usd: float) -> SpendingRequest:
    return SpendingRequest(
        model="m", input_tokens=0, output_tokens=1000, input_usd=0.0, output_usd_per_token=usd / 1000
    )


async def open_attempt(
    budget: BatchBudget, name: str, *, kind: str = "a", blind: bool = False
) -> Reservation:
    reservation = await budget.open(name, name, kind=kind, cap_usd=None, asks_first=not blind)
    assert reservation is not None
    return reservation


async def settled() -> None:
    """Let all that can go on do so."""
    for _ in range(20):
        await asyncio.sleep(0)


# What a process draws


async def test_nothing_is_drawn_when_nothing_is_missing() -> None:
    client, ledger, _ = client_of()
    assert await client.draw(lambda: 0.0)
    assert await client.draw(lambda: -1.0)
    assert ledger.calls == []


async def test_a_draw_takes_all_that_is_missing_or_what_is_left() -> None:
    client, ledger, _ = client_of(Drawn(usd=0.5), Drawn(usd=0.25), REFUSED)

    assert await client.draw(lambda: 0.5)
    assert await client.draw(lambda: 0.5, takes_less=True)
    assert not await client.draw(lambda: 0.5, takes_less=True)

    assert ledger.calls == [(0.5, 0.5), (0.5, 0.0), (0.5, 0.0)]
    assert client.drawn_usd == 0.75
    assert client.refusal == REFUSED


async def test_a_refused_draw_is_repeated_after_a_pause_or_for_less() -> None:
    client, ledger, clock = client_of(OTHERS_HOLD, REFUSED, Drawn(usd=0.1), Drawn(usd=0.5), Drawn(usd=0.6))
    assert not await client.draw(lambda: 0.5)
    assert client.refusal.others_hold

    clock.seconds += 0.24
    assert not await client.draw(lambda: 0.5)
    assert not await client.draw(lambda: 0.6)
    assert len(ledger.calls) == 1, "as much or more would be refused again"
    assert not await client.draw(lambda: 0.4)
    assert not client.refusal.others_hold
    assert await client.draw(lambda: 0.5, takes_less=True)
    assert len(ledger.calls) == 3, "less may be left"

    clock.seconds += 0.25
    assert await client.draw(lambda: 0.5)
    assert await client.draw(lambda: 0.6)


async def test_an_attempt_that_is_stopped_before_any_refusal_is_short_of_the_budget() -> None:
    client, _, _ = client_of()
    assert client.refusal == REFUSED
    budget, _ = budget_of(ScriptedLedger())
    assert str(budget.shortage()) == "the budget is spent"


async def test_before_any_refusal_every_draw_is_made() -> None:
    client, _, clock = client_of(Drawn(usd=0.5))
    clock.seconds = 0.0
    assert await client.draw(lambda: 0.5)


async def test_what_is_free_is_returned_once_and_nothing_is_not() -> None:
    client, ledger, _ = client_of(Drawn(usd=0.5))
    await client.draw(lambda: 0.5)

    await client.give_back(lambda: 0.125)
    await client.give_back(lambda: 0.0)
    await client.give_back(lambda: -0.5)

    assert client.drawn_usd == 0.375
    assert ledger.calls[1:] == [(-0.125,)]


# What attempts cost


def test_an_attempt_is_expected_to_cost_the_mean_or_the_highest_call() -> None:
    past = PastCosts()
    assert past.expected_usd == 0.0
    past.highest_call_usd = 0.1
    assert past.expected_usd == 0.1
    past.attempts, past.spent_usd = 2, 0.5
    assert past.expected_usd == 0.25
    past.highest_call_usd = 0.3
    assert past.expected_usd == 0.3


async def test_costs_are_remembered_by_kind() -> None:
    budget, _ = budget_of(MemoryLedger(10.0))
    for cost in (0.1, 0.5):
        reservation = await open_attempt(budget, f"s{cost}")
        reservation.charge(cost / 2)
        reservation.charge(cost)
        reservation.close(cost)
    past = budget.past_costs("a")
    assert (past.attempts, past.spent_usd, past.highest_call_usd) == (2, pytest.approx(0.6), 0.25)
    assert budget.past_costs("b").attempts == 0


async def test_the_cost_of_a_lower_call_does_not_replace_that_of_a_higher_one() -> None:
    budget, _ = budget_of(MemoryLedger(10.0))
    budget.learn_cost("a", 0.5)
    budget.learn_cost("a", 0.1)
    assert budget.past_costs("a").highest_call_usd == 0.5


async def test_what_is_reserved_and_spent_is_not_free() -> None:
    budget, rows = budget_of(MemoryLedger(1.0, exact=True))
    first = await open_attempt(budget, "first")
    hold = await first.hold(worst(0.5))
    assert budget.free_usd == pytest.approx(0.0, abs=1e-8)
    first.settle(hold, 0.2, is_recorded=False)
    first.charge(0.2)
    assert budget.free_usd == pytest.approx(0.0, abs=1e-8), "reserved until it is returned"

    first.close(0.2)

    assert budget.free_usd == pytest.approx(0.3)
    await budget.return_free()
    assert budget.free_usd == 0.0
    assert (rows.reserved, rows.spent) == (pytest.approx(0.0, abs=1e-12), 0.2)


# Who may start


async def test_an_attempt_starts_with_less_than_the_worst_case_when_its_usual_cost_is_left() -> None:
    budget, rows = budget_of(MemoryLedger(0.25, exact=True))
    past = budget.past_costs("a")
    past.is_known, past.highest_call_usd, past.worst_case_usd = True, 0.25, 0.5

    await open_attempt(budget, "s")

    assert rows.rows == [("s", 1, "reserve", 0.25, 0.0)]


async def test_an_attempt_does_not_start_when_less_than_its_usual_cost_is_left() -> None:
    budget, rows = budget_of(MemoryLedger(0.2, exact=True))
    past = budget.past_costs("a")
    past.is_known, past.highest_call_usd, past.worst_case_usd = True, 0.25, 0.5

    assert await budget.open("s", "s", kind="a", cap_usd=None, asks_first=True) is None

    assert rows.rows == []
    assert await budget.open("c", "c", kind="a", cap_usd=0.25) is None, "nor with less than its cap"
    capped = await budget.open("d", "d", kind="a", cap_usd=0.2)
    assert capped is not None and rows.rows == [("d", 1, "reserve", 0.2, 0.0)]


async def test_while_other_processes_hold_money_an_attempt_waits_and_keeps_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The free money returned here may be what another process waits for."""
    ledger = ScriptedLedger(Drawn(usd=0.1), OTHERS_HOLD, Drawn(usd=0.5))
    budget, rows = budget_of(ledger)
    first = await open_attempt(budget, "first")
    first.close(0.0)
    past = budget.past_costs("a")
    past.highest_call_usd = 0.5
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        # The refusal is forgotten by then.
        budget._ledger._refused_until = 0.0
        await sleep(0)

    monkeypatch.setattr("proctor.budget.allocation.asyncio.sleep", pause)
    await open_attempt(budget, "second")

    assert pauses == [0.25]
    assert ledger.calls[1:] == [(pytest.approx(0.4), pytest.approx(0.4)), (-0.1,), (0.5, 0.5)]
    assert rows.rows[-1] == ("second", 1, "reserve", 0.5, 0.0)


async def test_agents_that_do_not_ask_first_share_what_is_free_among_the_places_left() -> None:
    budget, rows = budget_of(MemoryLedger(8.0), concurrency=4)
    await open_attempt(budget, "one", kind="a", blind=True)
    await open_attempt(budget, "two", kind="b", blind=True)
    assert [row[3] for row in rows.rows] == [pytest.approx(0.25), pytest.approx(0.25)]

    capped = await budget.open("cap", "cap", kind="c", cap_usd=0.125)
    assert capped is not None and rows.rows[-1][3] == 0.125, "a cap is what it may spend"


async def test_an_agent_that_does_not_ask_first_reserves_no_more_than_is_free() -> None:
    budget, rows = budget_of(MemoryLedger(1.0, exact=True), concurrency=1)
    budget.learn_cost("a", 0.5)
    await open_attempt(budget, "one", blind=True)
    assert rows.rows[-1][3] == 0.5, "twice 0.5, of which 0.5 were drawn"
    budget.learn_cost("b", 0.25)
    await open_attempt(budget, "two", kind="b", blind=True)
    assert rows.rows[-1][3] == 0.25, "the last place and more are taken"


async def test_an_agent_that_does_not_ask_first_gets_all_that_is_free_when_no_place_is_left() -> None:
    budget, rows = budget_of(MemoryLedger(8.0), concurrency=1)
    await open_attempt(budget, "one", kind="a", blind=True)
    await open_attempt(budget, "two", kind="b", blind=True)
    assert [row[3] for row in rows.rows] == [pytest.approx(1.0), pytest.approx(0.875)]


async def test_an_attempt_of_a_kind_that_cost_nothing_so_far_draws_more_than_rounding() -> None:
    ledger = ScriptedLedger(Drawn(usd=0.5))
    budget, _ = budget_of(ledger)
    await open_attempt(budget, "s")
    assert ledger.calls == [(2 * ROUNDING_USD, 2 * ROUNDING_USD)]


async def test_no_attempt_starts_while_a_call_waits_for_money() -> None:
    budget, rows = budget_of(MemoryLedger(1.0, exact=True))
    first = await open_attempt(budget, "first", kind="a")
    running = await first.hold(worst(0.75))
    waiting = asyncio.create_task(first.hold(worst(0.5)))
    await settled()
    second = asyncio.create_task(open_attempt(budget, "second", kind="b"))
    await settled()
    assert not waiting.done() and not second.done()

    first.settle(running, 0.1)
    first.charge(0.1)

    assert await waiting == Hold(pytest.approx(0.5))
    await second
    assert [row[0] for row in rows.rows if row[2] == "reserve"] == ["first", "second"]


async def test_when_a_call_has_its_money_waiting_attempts_look_again() -> None:
    budget, _ = budget_of(MemoryLedger(1.0))
    await open_attempt(budget, "first", kind="b")
    with budget._before_new_attempts():
        opening = asyncio.create_task(open_attempt(budget, "second"))
        await settled()
        assert not opening.done()
    await settled()
    assert opening.done()


async def test_a_wait_that_is_over_before_it_begins_is_not_reported() -> None:
    budget, _ = budget_of(MemoryLedger(1.0))
    waits: list[float] = []
    await budget._wait(budget._changes - 1, waits.append)
    assert waits == []


async def test_what_is_left_of_rounding_opens_nothing() -> None:
    budget, _ = budget_of(MemoryLedger(1.0))
    reservation = Reservation(budget, "s", "i", "a", None, is_blind=False)
    budget._ledger.drawn_usd = ROUNDING_USD
    assert not budget._reserve(reservation, 0.0)
    budget._ledger.drawn_usd = 0.5 - ROUNDING_USD
    assert budget._reserve(reservation, 0.5), "a budget that fits exactly is enough"


async def test_the_worst_case_of_the_latest_call_is_what_the_next_attempt_reserves() -> None:
    budget, rows = budget_of(MemoryLedger(10.0, exact=True))
    first = await open_attempt(budget, "first")
    first.settle(await first.hold(worst(0.75)), 0.1)
    first.settle(await first.hold(worst(0.5)), 0.1)
    await open_attempt(budget, "second")
    assert rows.rows[-1] == ("second", 1, "reserve", 0.5, 0.0)


def waiting_budget(*script: Drawn) -> tuple[BatchBudget, ScriptedLedger]:
    """A budget that is short of money at first, and whose pauses after a refusal are over at once."""
    ledger = ScriptedLedger(*script)
    budget, _ = budget_of(ledger)
    times = itertools.count()
    budget._ledger._time = lambda: float(next(times))  # type: ignore[method-assign]
    past = budget.past_costs("a")
    past.is_known, past.highest_call_usd = True, 0.5
    return budget, ledger


async def test_money_returned_during_the_last_refusal_is_drawn() -> None:
    budget, ledger = waiting_budget(REFUSED, REFUSED, Drawn(usd=0.5))
    ledger.on_draw = lambda: budget.notify() if len(ledger.calls) == 2 else None

    await open_attempt(budget, "s")

    assert ledger.calls == [(0.5, 0.5), (0.5, 0.0), (0.5, 0.5)]


async def test_money_returned_during_a_refusal_is_drawn_before_an_attempt_starts_with_less() -> None:
    budget, ledger = waiting_budget(REFUSED, Drawn(usd=0.5))
    ledger.on_draw = lambda: budget.notify() if len(ledger.calls) == 1 else None

    await open_attempt(budget, "s")

    assert ledger.calls == [(0.5, 0.5), (0.5, 0.5)]


async def test_while_another_attempt_has_started_during_the_last_refusal_the_budget_is_not_spent() -> None:
    budget, ledger = waiting_budget(REFUSED, REFUSED, Drawn(usd=0.5))
    other = Reservation(budget, "other", "item", "b", 0.1, is_blind=False)
    ledger.on_draw = lambda: budget._open.add(other) if len(ledger.calls) == 2 else None

    await open_attempt(budget, "s")

    assert ledger.calls == [(0.5, 0.5), (0.5, 0.0), (0.5, 0.5)]


async def test_money_that_another_process_has_drawn_meanwhile_is_waited_for() -> None:
    budget, ledger = waiting_budget(REFUSED, OTHERS_HOLD, Drawn(usd=0.5))
    await open_attempt(budget, "s")
    assert ledger.calls == [(0.5, 0.5), (0.5, 0.0), (0.5, 0.5)]


async def test_a_row_of_the_ledger_names_session_item_run_and_process() -> None:
    rows: list[tuple[object, ...]] = []

    class Rows(SettledRows):
        def append(self, table: str, row: tuple[object, ...]) -> None:
            rows.append((table, *row))

    budget, _ = budget_of(MemoryLedger(1.0), rows=Rows())
    reservation = await budget.open("session", "item", kind="a", cap_usd=0.25)
    assert reservation is not None
    reservation.close(0.125)

    moment = "2026-01-01T00:00:00"
    assert [(*row[:5], str(row[5])[:19], *row[6:]) for row in rows] == [
        ("ledger", "session", 1, "run", "item", moment, "reserve", 0.25, 0.0, "me"),
        ("ledger", "session", 2, "run", "item", moment, "settle", -0.25, 0.125, "me"),
    ]


async def test_a_kind_of_which_one_has_ended_without_a_call_is_known() -> None:
    budget, _ = budget_of(MemoryLedger(1.0))
    (await open_attempt(budget, "first")).close(0.0)
    async with asyncio.timeout(TIME_LIMIT_SECONDS):
        await open_attempt(budget, "second")
        await open_attempt(budget, "third")


async def test_the_first_known_cost_of_a_kind_starts_those_that_wait_for_it() -> None:
    budget, _ = budget_of(MemoryLedger(8.0), concurrency=4)
    first = await open_attempt(budget, "first", blind=True)
    second = asyncio.create_task(open_attempt(budget, "second", blind=True))
    await settled()
    assert not second.done()

    first.charge(0.01)
    await settled()

    assert second.done()


async def test_a_call_draws_only_what_is_not_free() -> None:
    ledger = ScriptedLedger(Drawn(usd=0.125), Drawn(usd=0.375))
    budget, _ = budget_of(ledger)
    (await open_attempt(budget, "first")).close(0.0)
    second = await open_attempt(budget, "second")
    assert budget.free_usd == pytest.approx(0.125)

    assert await second.hold(worst(0.5)) == Hold(0.5)

    assert ledger.calls[1:] == [(pytest.approx(0.375), pytest.approx(0.375))]


async def test_a_call_that_fits_but_for_rounding_draws_nothing() -> None:
    ledger = ScriptedLedger(Drawn(usd=0.25))
    budget, rows = budget_of(ledger)
    reservation = await open_attempt(budget, "s")
    # All that was drawn is free.
    reservation._reserved = budget._reserved = 0.0

    await budget.cover(reservation, 0.25 + ROUNDING_USD)

    assert len(ledger.calls) == 1
    assert rows.rows[-1][2:4] == ("extend", 0.25 + ROUNDING_USD)


async def test_a_batch_that_ends_waits_for_draws_of_attempts_that_are_gone() -> None:
    release = asyncio.Event()

    class SlowLedger(ScriptedLedger):
        async def draw(self, holder: str, *, wanted_usd: float, least_usd: float) -> Drawn:
            await release.wait()
            return await super().draw(holder, wanted_usd=wanted_usd, least_usd=least_usd)

    budget, _ = budget_of(SlowLedger(Drawn(usd=0.5)))
    opening = asyncio.create_task(open_attempt(budget, "s"))
    await settled()
    opening.cancel()
    ending = asyncio.create_task(budget.idle())
    await settled()
    assert opening.cancelled() and not ending.done()

    release.set()
    await ending

    assert budget.free_usd == 0.5


# Costs that nobody asked for


async def test_a_cost_draws_only_what_is_not_free() -> None:
    ledger = ScriptedLedger(Drawn(usd=0.125), Drawn(usd=0.375))
    budget, _ = budget_of(ledger, concurrency=8)
    (await open_attempt(budget, "first")).close(0.0)
    blind = await open_attempt(budget, "second", blind=True)
    reserved = 0.125 - budget.free_usd
    assert 0 < reserved < 0.125

    blind.charge(0.5)
    await budget.idle()

    assert ledger.calls[1:] == [(pytest.approx(0.375), pytest.approx(0.375))]
    assert budget.free_usd == pytest.approx(0.0)


async def test_a_cost_beyond_what_is_reserved_is_drawn() -> None:
    budget, rows = budget_of(MemoryLedger(1.0, exact=True))
    blind = await open_attempt(budget, "s", blind=True)

    blind.charge(0.5)
    await budget.idle()

    assert rows.reserved == pytest.approx(0.5)
    assert blind.overdrawn_usd == pytest.approx(0.0)


async def test_when_the_store_fails_a_cost_stays_undrawn_and_the_attempt_is_not_stopped() -> None:
    ledger = ScriptedLedger(Drawn(usd=0.1), StoreError("the disk is full"))
    budget, rows = budget_of(ledger)
    blind = await open_attempt(budget, "s", blind=True)
    stopped: list[Exception] = []
    blind.stop = stopped.append

    blind.charge(0.5)
    await budget.idle()

    assert stopped == [] and rows.reserved <= 0.1


async def test_an_attempt_over_the_budget_of_the_store_is_told_so() -> None:
    ledger = ScriptedLedger(Drawn(usd=0.1), OTHERS_HOLD)
    budget, _ = budget_of(ledger)
    blind = await open_attempt(budget, "s", blind=True)
    stopped: list[Exception] = []
    blind.stop = stopped.append

    blind.charge(0.5)
    await budget.idle()

    assert [str(error) for error in stopped] == [
        "the budget of the store is spent ([budget] in proctor.toml)"
    ]
    assert budget.short_of == "store_budget"
