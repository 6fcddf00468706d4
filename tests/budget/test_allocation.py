"""What one process draws for a batch, and which attempts may start with it."""

import asyncio
import itertools

import pytest
from ledgers import Purse, ScriptedLedger, SettledRows, settled, worst

from clocks import Clock
from proctor.budget.allocation import LedgerClient
from proctor.budget.reservation import Hold
from proctor.errors import StoreError
from proctor.store import Drawn
from proctor.store.ledger import ROUNDING_USD
from waiting import TIME_LIMIT_SECONDS

REFUSED = Drawn(usd=0.0, short_of="budget")
OTHERS_HOLD = Drawn(usd=0.0, short_of="store_budget", others_hold=True)


def client_of(*script: Drawn | Exception) -> tuple[LedgerClient, ScriptedLedger, Clock]:
    ledger = ScriptedLedger(*script)
    client = LedgerClient(ledger, "me", is_limited=True)
    return client, ledger, clock_of(client)


def clock_of(client: LedgerClient) -> Clock:
    """Turned by hand: a refusal is remembered for a quarter of a second."""
    clock = Clock(100.0)
    client._time = clock  # type: ignore[method-assign]
    return clock


# What a process draws


async def test_a_draw_takes_all_that_is_missing_or_what_is_left() -> None:
    client, ledger, clock = client_of(Drawn(usd=0.5), Drawn(usd=0.25), REFUSED)
    clock.now = 0.0
    assert client.refusal == REFUSED, "an attempt that is stopped before any refusal is short of the budget"

    assert await client.draw(lambda: 0.0)
    assert await client.draw(lambda: -1.0)
    assert ledger.calls == [], "nothing is missing"
    assert await client.draw(lambda: 0.5)
    assert await client.draw(lambda: 0.5, takes_less=True)
    assert not await client.draw(lambda: 0.5, takes_less=True)

    assert ledger.calls == [(0.5, 0.5), (0.5, 0.0), (0.5, 0.0)]
    assert client.drawn_usd == 0.75


async def test_a_refused_draw_is_repeated_after_a_pause_or_for_less() -> None:
    client, ledger, clock = client_of(OTHERS_HOLD, REFUSED, Drawn(usd=0.1), Drawn(usd=0.5), Drawn(usd=0.6))
    assert not await client.draw(lambda: 0.5)
    assert client.refusal.others_hold

    clock.now += 0.24
    assert not await client.draw(lambda: 0.5)
    assert not await client.draw(lambda: 0.6)
    assert len(ledger.calls) == 1, "as much or more would be refused again"
    assert not await client.draw(lambda: 0.4)
    assert not client.refusal.others_hold
    assert await client.draw(lambda: 0.5, takes_less=True)
    assert len(ledger.calls) == 3, "less may be left"

    clock.now += 0.25
    assert await client.draw(lambda: 0.5)
    assert await client.draw(lambda: 0.6)


async def test_what_is_free_is_returned_once_and_nothing_is_not() -> None:
    client, ledger, _ = client_of(Drawn(usd=0.5))
    await client.draw(lambda: 0.5)

    for free in (0.125, 0.0, -0.5):
        await client.give_back(lambda free=free: free)

    assert client.drawn_usd == 0.375
    assert ledger.calls[1:] == [(-0.125,)]


# What attempts cost


async def test_an_attempt_is_expected_to_cost_the_mean_of_its_kind_or_its_highest_call() -> None:
    purse = Purse(10.0)
    past = purse.budget.past_costs("a")
    assert past.expected_usd == 0.0
    for cost, expected in ((0.1, 0.1), (0.5, 0.3)):
        reservation = await purse.open(f"s{cost}")
        for total in (cost / 2, cost):
            reservation.charge(total)
        reservation.close(cost)
        assert past.expected_usd == pytest.approx(expected)
    assert past.highest_call_usd == 0.25
    purse.budget.learn_cost("a", 0.125)
    assert past.highest_call_usd == 0.25, "a lower one does not replace it"
    purse.budget.learn_cost("a", 0.5)
    assert past.expected_usd == 0.5
    assert purse.budget.past_costs("b").expected_usd == 0.0


async def test_what_is_reserved_and_spent_is_not_free() -> None:
    purse = Purse(1.0)
    first = await purse.open("first")
    hold = await first.hold(worst(0.5))
    assert purse.budget.free_usd == pytest.approx(0.0, abs=1e-8)
    first.settle(hold, 0.2, is_recorded=False)
    first.charge(0.2)
    assert purse.budget.free_usd == pytest.approx(0.0, abs=1e-8), "reserved until it is returned"

    first.close(0.2)

    assert purse.budget.free_usd == pytest.approx(0.3)
    await purse.budget.return_free()
    assert purse.budget.free_usd == 0.0
    assert (purse.rows.reserved, purse.rows.spent) == (pytest.approx(0.0, abs=1e-12), 0.2)


# Who may start


async def test_an_attempt_starts_with_what_is_left_if_that_is_its_usual_cost_or_its_cap() -> None:
    for limit, opens in ((0.25, True), (0.2, False)):
        purse = Purse(limit)
        past = purse.budget.past_costs("a")
        past.is_known, past.highest_call_usd, past.worst_case_usd = True, 0.25, 0.5

        opened = await purse.budget.open("s", "s", kind="a", cap_usd=None, asks_first=True)

        assert (opened is not None) == opens
        assert purse.rows.rows == ([("s", 1, "reserve", 0.25, 0.0)] if opens else [])
    assert await purse.budget.open("c", "c", kind="a", cap_usd=0.25) is None, "nor with less than its cap"
    await purse.open("d", 0.2)
    assert purse.rows.rows == [("d", 1, "reserve", 0.2, 0.0)]


async def test_an_attempt_of_a_kind_that_cost_nothing_so_far_draws_more_than_rounding() -> None:
    ledger = ScriptedLedger(Drawn(usd=0.5))
    await Purse(ledger).open("s")
    assert ledger.calls == [(2 * ROUNDING_USD, 2 * ROUNDING_USD)]


async def test_while_other_processes_hold_money_an_attempt_waits_and_keeps_none(monkeypatch):
    """The free money returned here may be what another process waits for."""
    ledger = ScriptedLedger(Drawn(usd=0.1), OTHERS_HOLD, Drawn(usd=0.5))
    purse, sleep = Purse(ledger), asyncio.sleep
    clock = clock_of(purse.client)
    (await purse.open("first")).close(0.0)
    purse.budget.past_costs("a").highest_call_usd = 0.5
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        clock.now += seconds
        await sleep(0)

    # A real pause would be a quarter of a second, and its length unseen.
    monkeypatch.setattr("proctor.budget.allocation.asyncio.sleep", pause)
    await purse.open("second")

    assert pauses == [0.25]
    assert ledger.calls[1:] == [(pytest.approx(0.4), pytest.approx(0.4)), (-0.1,), (0.5, 0.5)]
    assert purse.rows.rows[-1] == ("second", 1, "reserve", 0.5, 0.0)


@pytest.mark.parametrize(("concurrency", "reserved"), [(4, [0.25, 0.25]), (1, [1.0, 0.875])])
async def test_agents_that_do_not_ask_first_share_what_is_free_among_the_places_left(concurrency, reserved):
    purse = Purse(8.0, concurrency=concurrency, exact=False)
    for kind in ("a", "b"):
        await purse.open(kind, kind=kind, asks_first=False)
    assert [row[3] for row in purse.rows.rows] == pytest.approx(reserved)
    await purse.open("cap", 0.125, kind="c")
    assert purse.rows.rows[-1][3] == 0.125, "a cap is what it may spend"


async def test_an_agent_that_does_not_ask_first_reserves_no_more_than_is_free() -> None:
    purse = Purse(1.0, concurrency=1)
    for kind, usd in (("a", 0.5), ("b", 0.25)):
        purse.budget.learn_cost(kind, usd)
        await purse.open(kind, kind=kind, asks_first=False)
        assert purse.rows.rows[-1][3] == usd, "twice as much, of which half was drawn"


async def test_no_attempt_starts_while_a_call_waits_for_money() -> None:
    purse = Purse(1.0)
    first = await purse.open("first")
    running = await first.hold(worst(0.75))
    waiting = asyncio.create_task(first.hold(worst(0.5)))
    await settled()
    second = asyncio.create_task(purse.open("second", kind="b"))
    await settled()
    assert not waiting.done() and not second.done()

    first.settle(running, 0.1)
    first.charge(0.1)

    assert await waiting == Hold(pytest.approx(0.5))
    await second
    assert [row[0] for row in purse.rows.rows if row[2] == "reserve"] == ["first", "second"]


async def test_the_worst_case_of_the_latest_call_is_what_the_next_attempt_reserves() -> None:
    purse = Purse(10.0)
    first = await purse.open("first")
    for usd in (0.75, 0.5):
        first.settle(await first.hold(worst(usd)), 0.1)
    await purse.open("second")
    assert purse.rows.rows[-1] == ("second", 1, "reserve", 0.5, 0.0)


@pytest.mark.parametrize(
    ("script", "returned_at", "least"),
    [
        # Money returned during the last refusal, or during the one before, is drawn.
        ([REFUSED, REFUSED, Drawn(usd=0.5)], 2, [0.5, 0.0, 0.5]),
        ([REFUSED, Drawn(usd=0.5)], 1, [0.5, 0.5]),
        # Another process has drawn it meanwhile: it is waited for.
        ([REFUSED, OTHERS_HOLD, Drawn(usd=0.5)], 0, [0.5, 0.0, 0.5]),
    ],
)
async def test_money_that_comes_back_while_it_is_refused_is_drawn(script, returned_at, least):
    """Races between a refusal and a return of money: the ledger decides when."""
    ledger = ScriptedLedger(*script)
    purse, times = Purse(ledger), itertools.count()
    # Pauses after a refusal are over at once.
    purse.client._time = lambda: float(next(times))  # type: ignore[method-assign]
    past = purse.budget.past_costs("a")
    past.is_known, past.highest_call_usd = True, 0.5
    ledger.on_draw = lambda: purse.budget.notify() if len(ledger.calls) == returned_at else None

    await purse.open("s")

    assert ledger.calls == [(0.5, amount) for amount in least]


async def test_a_row_of_the_ledger_names_session_item_run_and_process() -> None:
    rows: list[tuple[object, ...]] = []

    class Rows(SettledRows):
        def append(self, table: str, row: tuple[object, ...]) -> None:
            rows.append((table, *row))

    purse = Purse(1.0, rows=Rows())
    reservation = await purse.budget.open("session", "item", kind="a", cap_usd=0.25)
    assert reservation is not None
    reservation.close(0.125)

    moment = "2026-01-01T00:00:00"
    assert [(*row[:5], str(row[5])[:19], *row[6:]) for row in rows] == [
        ("ledger", "session", 1, "run", "item", moment, "reserve", 0.25, 0.0, "me"),
        ("ledger", "session", 2, "run", "item", moment, "settle", -0.25, 0.125, "me"),
    ]


async def test_others_of_a_kind_start_when_one_of_them_has_ended_or_has_a_known_cost() -> None:
    purse = Purse(8.0, exact=False)
    (await purse.open("first")).close(0.0)
    async with asyncio.timeout(TIME_LIMIT_SECONDS):
        await purse.open("second")
        await purse.open("third")
    first = await purse.open("blind", kind="b", asks_first=False)
    second = asyncio.create_task(purse.open("next", kind="b", asks_first=False))
    await settled()
    assert not second.done()

    first.charge(0.01)
    await settled()

    assert second.done()


async def test_a_call_draws_only_what_is_not_free() -> None:
    ledger = ScriptedLedger(Drawn(usd=0.125), Drawn(usd=0.375))
    purse = Purse(ledger)
    (await purse.open("first")).close(0.0)
    second = await purse.open("second")
    assert purse.budget.free_usd == pytest.approx(0.125)

    assert await second.hold(worst(0.5)) == Hold(0.5)

    assert ledger.calls[1:] == [(pytest.approx(0.375), pytest.approx(0.375))]


async def test_a_batch_that_ends_waits_for_draws_of_attempts_that_are_gone() -> None:
    release = asyncio.Event()

    class SlowLedger(ScriptedLedger):
        async def draw(self, holder: str, *, wanted_usd: float, least_usd: float) -> Drawn:
            await release.wait()
            return await super().draw(holder, wanted_usd=wanted_usd, least_usd=least_usd)

    purse = Purse(SlowLedger(Drawn(usd=0.5)))
    opening = asyncio.create_task(purse.open("s"))
    await settled()
    opening.cancel()
    ending = asyncio.create_task(purse.budget.idle())
    await settled()
    assert opening.cancelled() and not ending.done()

    release.set()
    await ending

    assert purse.budget.free_usd == 0.5


# Costs that nobody asked for


async def test_a_cost_beyond_what_is_reserved_is_drawn_as_far_as_it_is_not_free() -> None:
    ledger = ScriptedLedger(Drawn(usd=0.125), Drawn(usd=0.375))
    purse = Purse(ledger, concurrency=8)
    (await purse.open("first")).close(0.0)
    blind = await purse.open("second", asks_first=False)
    assert 0 < purse.budget.free_usd < 0.125

    blind.charge(0.5)
    await purse.budget.idle()

    assert ledger.calls[1:] == [(pytest.approx(0.375), pytest.approx(0.375))]
    assert purse.budget.free_usd == pytest.approx(0.0)
    assert purse.rows.reserved == pytest.approx(0.5)
    assert blind.overdrawn_usd == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        (OTHERS_HOLD, ["the budget of the store is spent ([budget] in proctor.toml)"]),
        (REFUSED, ["the budget is spent"]),
        # When the store fails, the cost stays undrawn and the attempt goes on.
        (StoreError("the disk is full"), []),
    ],
)
async def test_an_attempt_whose_cost_cannot_be_drawn_is_told_of_what_it_is_short(outcome, told):
    purse = Purse(ScriptedLedger(Drawn(usd=0.1), outcome))
    blind = await purse.open("s", asks_first=False)
    stopped: list[Exception] = []
    blind.stop = stopped.append

    blind.charge(0.5)
    await purse.budget.idle()

    assert [str(error) for error in stopped] == told
    assert purse.rows.reserved <= 0.1
    if isinstance(outcome, Drawn):
        assert purse.budget.short_of == outcome.short_of
