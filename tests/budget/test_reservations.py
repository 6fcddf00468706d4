"""What an attempt may spend, call by call: held before, settled after, and closed at the end."""

import asyncio
from datetime import UTC, datetime

import pytest
from ledgers import MemoryLedger, SettledRows

from proctor.budget.allocation import BatchBudget, LedgerClient
from proctor.budget.reservation import USUAL_CALLS, Hold, Reservation
from proctor.errors import CostLimit, ModelError
from proctor.models.prices import SpendingRequest
from proctor.store.ledger import ROUNDING_USD
from waiting import TIME_LIMIT_SECONDS


class Purse:
    """A batch budget and the rows that it has written."""

    def __init__(self, limit_usd: float | None, *, concurrency: int = 4, exact: bool = True) -> None:
        self.ledger, self.rows = MemoryLedger(limit_usd or 0.0, exact=exact), SettledRows()
        client = LedgerClient(self.ledger, "me", is_limited=limit_usd is not None)
        moment = datetime(2026, 1, 1, tzinfo=UTC)
        self.budget = BatchBudget(
            client, run_id="run", concurrency=concurrency, rows=self.rows, now=lambda: moment
        )

    async def open(
        self, name: str, cap_usd: float | None = None, *, kind: str = "a", asks_first: bool = True
    ) -> Reservation:
        reservation = await self.budget.open(name, name, kind=kind, cap_usd=cap_usd, asks_first=asks_first)
        assert reservation is not None
        return reservation


def worst(
    usd: float | None,
    *,
    input_usd: float = 0.0,
    tokens: int = 1000,
    margin_usd: float = 0.0,
    model: str = "m",
) -> SpendingRequest:
    """A call that can cost so much, with an answer of a thousand tokens."""
    price = None if usd is None else (usd - input_usd) / tokens
    return SpendingRequest(
        model=model,
        input_tokens=0,
        output_tokens=tokens,
        input_usd=input_usd,
        output_usd_per_token=price,
        margin_usd=margin_usd,
    )


async def settled(purse: Purse) -> None:
    """Let all that can go on do so."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_call_that_has_ended_counts_until_it_is_charged_and_then_once():
    reservation = await Purse(10).open("s", 1.0)
    first = await reservation.hold(worst(0.4))
    second = await reservation.hold(worst(0.3))
    assert (first, second) == (Hold(0.4), Hold(0.3))

    reservation.settle(first, 0.2, is_recorded=False)
    third = await reservation.hold(worst(0.8))
    assert third == Hold(pytest.approx(0.5), output_limit=625), "1 - 0.2 that nobody charged yet - 0.3 held"
    reservation.settle(third, None)

    assert reservation.charge(0.2) is None
    fourth = await reservation.hold(worst(0.8))
    assert fourth == Hold(pytest.approx(0.5), output_limit=625), "the same 0.2 is not counted twice"


async def test_a_call_of_a_batch_without_cap_counts_until_it_is_charged_too():
    purse = Purse(1.0)
    reservation = await purse.open("s")
    hold = await reservation.hold(worst(0.6))
    reservation.settle(hold, 0.6, is_recorded=False)

    assert await reservation.hold(worst(0.8)) == Hold(pytest.approx(0.4), output_limit=500)
    assert purse.ledger.drawn_usd == pytest.approx(1.0)


async def test_what_is_not_enough_for_a_useful_answer_is_refused_and_given_back():
    reservation = await Purse(10).open("s", 1.0)
    reservation.charge(0.75)

    # 0.25 pay for 256 tokens of this price; at a higher one, for 255.
    assert await reservation.hold(worst(1000 / 1024)) == Hold(0.25, output_limit=256)
    reservation.settle(Hold(0.25), None)
    with pytest.raises(CostLimit) as refused:
        await reservation.hold(worst(0.98))
    assert str(refused.value) == "it has spent $0.7500 of its $1.0000, and a call could cost $0.9800"
    assert await reservation.hold(worst(0.25)) == Hold(0.25), "the refused one holds nothing"


async def test_the_prompt_is_paid_before_the_tokens_of_the_answer():
    reservation = await Purse(10).open("s", 1.0)
    assert await reservation.hold(worst(2.1, input_usd=0.1, tokens=1000)) == Hold(1.0, output_limit=450)


async def test_fifty_answers_are_shortened_to_what_all_of_them_may_cost():
    reservation = await Purse(10).open("s", 1.0)
    price, tokens = 2.0**-14, 1024
    fifty = SpendingRequest(
        model="m",
        input_tokens=0,
        output_tokens=tokens,
        input_usd=0.0,
        output_usd_per_token=price,
        answers=50,
    )
    assert fifty.cost_usd == 50 * 1024 / 2**14
    assert await reservation.hold(fifty) == Hold(1.0, output_limit=327)


async def test_an_attempt_may_spend_its_cap_and_not_more():
    reservation = await Purse(10).open("s", 0.5)
    assert reservation.charge(0.5) is None
    over = reservation.charge(0.5001)
    assert str(over) == "it has spent $0.5001 of the $0.5000 an item may spend"
    assert over is not None and over.reason == "cost_limit"


async def test_a_call_that_was_cut_off_counts_with_its_worst_case():
    purse = Purse(1.0)
    reservation = await purse.open("s")
    cut, free = await reservation.hold(worst(0.25)), Hold(0.0)
    reservation.lose(cut)
    reservation.lose(free)
    assert reservation.calls_lost == 1, "one that could cost nothing is no loss"
    assert await reservation.hold(worst(1.0, tokens=1024)) == Hold(0.75, output_limit=768)

    reservation.close(0.1)

    assert purse.rows.spent == pytest.approx(0.35)
    assert purse.rows.reserved == pytest.approx(0)
    assert purse.rows.rows[-1][2] == "settle"
    assert purse.rows.positions["s"] == list(range(1, len(purse.rows.positions["s"]) + 1))


async def test_a_call_that_was_cut_off_in_mid_answer_counts_once_with_its_worst_case():
    purse = Purse(1.0)
    reservation = await purse.open("s")
    cut = await reservation.hold(worst(0.25))
    reservation.charge(0.1)
    reservation.lose(cut, 0.1)

    reservation.close(0.1)

    assert purse.rows.spent == pytest.approx(0.25)


async def test_what_a_running_call_may_cost_is_committed_before_it_is_sent():
    purse, committed = Purse(1.0), list[float]()

    async def commit() -> None:
        committed.append(purse.rows.running)

    purse.budget._commit = commit
    reservation = await purse.open("s")

    hold = await reservation.hold(worst(0.25))
    assert committed == [0.25]
    reservation.settle(hold, 0.1, is_recorded=False)
    assert purse.rows.running == pytest.approx(0.25), "nobody has recorded what it cost"
    reservation.charge(0.1)
    assert purse.rows.running == pytest.approx(0.0)

    second = await reservation.hold(worst(0.5))
    reservation.settle(second, None)
    assert purse.rows.running == pytest.approx(0.0)
    third = await reservation.hold(worst(0.5))
    reservation.lose(third)
    assert purse.rows.running == pytest.approx(0.5), "cut off: it may be billed"


async def test_a_call_that_is_cancelled_before_it_is_sent_holds_nothing():
    purse, reached = Purse(1.0), asyncio.Event()

    async def commit() -> None:
        reached.set()
        await asyncio.sleep(60)

    purse.budget._commit = commit
    reservation = await purse.open("s")
    holding = asyncio.create_task(reservation.hold(worst(0.5)))
    await reached.wait()
    holding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await holding
    assert purse.rows.running == pytest.approx(0.0)
    purse.budget._commit = None
    assert await reservation.hold(worst(1.0)) == Hold(1.0)


async def test_of_an_attempt_whose_cost_nobody_knows_all_that_was_reserved_is_spent():
    purse = Purse(1.0)
    reservation = await purse.open("s", 0.5)

    reservation.close(None)

    assert purse.rows.rows == [("s", 1, "reserve", 0.5, 0.0), ("s", 2, "settle", -0.5, 0.5)]
    # What nobody knows is no experience: the next of its kind is not expected to cost as much.
    assert purse.budget.past_costs("a").expected_usd == 0.0


async def test_without_a_budget_nothing_is_held_and_nothing_written():
    purse = Purse(None)
    reservation = await purse.open("s")

    assert not reservation.is_limited
    assert await reservation.hold(worst(5.0)) == Hold(0.0)
    assert reservation.charge(7.0) is None
    reservation.close(7.0)
    assert purse.rows.rows == []


async def test_without_a_budget_a_cap_holds_all_the_same():
    reservation = await Purse(None).open("s", 0.5)
    assert reservation.is_limited
    assert await reservation.hold(worst(1.0)) == Hold(0.5, output_limit=500)


async def test_a_call_whose_price_is_unknown_is_not_made_where_there_is_a_limit():
    reservation = await Purse(1.0).open("s", 0.5)
    with pytest.raises(ModelError, match="the price of m is unknown"):
        await reservation.hold(worst(None))
    assert await (await Purse(None).open("s")).hold(worst(None)) == Hold(0.0)


async def test_a_provider_that_billed_more_than_the_worst_case_is_expected_to_do_so_again():
    purse = Purse(10)
    reservation = await purse.open("s", 1.0)
    notes: list[str] = []
    reservation.note = notes.append
    reservation.settle(await reservation.hold(worst(0.1)), 0.1 + ROUNDING_USD)
    second = await reservation.hold(worst(0.1))
    assert second == Hold(0.1), "as much as it could is no surprise"
    reservation.settle(second, 0.5)
    reservation.settle(await reservation.hold(worst(0.1)), 0.3)
    reservation.charge(0.0)

    # Half as much again as the highest excess so far.
    assert await reservation.hold(worst(0.1)) == Hold(pytest.approx(0.1 + 1.5 * 0.4))
    with pytest.raises(CostLimit, match=r"a call could cost \$0\.7000"):
        # A shorter answer would not make it cheaper for certain.
        await reservation.hold(worst(0.1))
    (note,) = notes
    assert note.startswith("a call cost $0.5000, more than the $0.1000 that its limits allow")
    other = await purse.open("o", 1.0)
    assert await other.hold(worst(0.1, model="other")) == Hold(0.1), "of another model nothing is known"


async def test_a_server_that_may_exceed_its_limits_gets_a_margin_until_it_has_shown_that_it_does_not():
    purse = Purse(10)
    reservation = await purse.open("s")
    for _ in range(USUAL_CALLS):
        hold = await reservation.hold(worst(0.1, margin_usd=2.0))
        assert hold == Hold(pytest.approx(2.1))
        reservation.settle(hold, 0.05)
    assert await reservation.hold(worst(0.1, margin_usd=2.0)) == Hold(0.1)


@pytest.mark.parametrize("cap_usd", [None, 1.0])
async def test_with_too_little_for_the_margin_its_first_calls_go_one_at_a_time(cap_usd):
    purse = Purse(1.0)
    reservation = await purse.open("s", cap_usd)
    first = await reservation.hold(worst(0.1, margin_usd=2.0))
    assert first == Hold(1.0), "all that is left"
    second = asyncio.create_task(reservation.hold(worst(0.1, margin_usd=2.0)))
    await settled(purse)
    assert not second.done()

    reservation.settle(first, 0.1)
    reservation.charge(0.1)
    assert await second == Hold(pytest.approx(0.9))
    reservation.settle(second.result(), 0.3)
    reservation.charge(0.4)

    with pytest.raises(CostLimit):
        # It has exceeded its limit: without the margin, there is no further call.
        await reservation.hold(worst(0.1, margin_usd=2.0))


async def test_a_call_waits_for_a_running_one_that_may_turn_out_cheaper():
    purse = Purse(1.0)
    reservation = await purse.open("s")
    first = await reservation.hold(worst(0.8))
    waits: list[float] = []
    reservation.waited = waits.append
    second = asyncio.create_task(reservation.hold(worst(0.5)))
    await settled(purse)
    assert not second.done()

    reservation.settle(first, 0.3)
    reservation.charge(0.3)

    assert await second == Hold(pytest.approx(0.5))
    assert waits[0] == 1.0 and 0 <= sum(waits) < 1.0


async def test_two_calls_that_wait_do_not_wait_for_each_other():
    purse = Purse(1.0)
    one, two = await purse.open("one", kind="a"), await purse.open("two", kind="b")
    for reservation in (one, two):
        reservation.settle(await reservation.hold(worst(0.4)), 0.4)
        reservation.charge(0.4)

    calls = {one: asyncio.create_task(one.hold(worst(0.3))), two: asyncio.create_task(two.hold(worst(0.3)))}
    async with asyncio.timeout(TIME_LIMIT_SECONDS):
        (granted,), (left,) = await asyncio.wait(calls.values(), return_when=asyncio.FIRST_COMPLETED)
        assert granted.result() == Hold(pytest.approx(0.2), output_limit=666)
        winner = next(reservation for reservation, call in calls.items() if call is granted)
        winner.settle(granted.result(), 0.2, is_recorded=False)
        with pytest.raises(CostLimit, match="the budget is spent") as refused:
            await left
    assert refused.value.reason == "halted"


async def test_one_that_has_waited_itself_is_waited_for_again():
    """An agent that does not ask first reserves on trust, and may need less."""
    purse = Purse(1.0, concurrency=1)
    blind = await purse.open("blind", asks_first=False)
    assert purse.ledger.drawn_usd > 0
    blind.settle(await blind.hold(worst(0.6)), 0.1)
    blind.charge(0.1)
    other = await purse.open("other", kind="b")
    waiting = asyncio.create_task(other.hold(worst(0.8)))
    await settled(purse)
    assert not waiting.done()

    blind.close(0.1)

    assert await waiting == Hold(pytest.approx(0.8))


async def test_what_is_reserved_for_no_call_is_taken_back_for_one_that_needs_it():
    purse = Purse(1.0)
    first = await purse.open("first")
    first.settle(await first.hold(worst(0.9)), 0.1)
    first.charge(0.1)
    second = await purse.open("second", kind="b")

    assert await second.hold(worst(0.8)) == Hold(pytest.approx(0.8))

    assert ("first", "return") in [(session, kind) for session, _, kind, *_ in purse.rows.rows]
    assert purse.rows.most_committed <= 1.0 + 1e-9


async def test_the_first_of_its_kind_starts_alone():
    purse = Purse(10.0)
    first = await purse.open("first")
    second = asyncio.create_task(purse.open("second"))
    third = await purse.open("third", kind="b")
    await settled(purse)
    assert not second.done()

    first.settle(await first.hold(worst(0.5)), 0.2)

    started = await second
    assert [row[:3] for row in purse.rows.rows if row[0] == "second"] == [("second", 1, "reserve")]
    assert purse.rows.rows[-1][3] == pytest.approx(0.5), "what its first call needs"
    for reservation in (first, third, started):
        reservation.close(0.0)


async def test_an_attempt_that_does_not_ask_first_reserves_twice_what_its_kind_has_cost():
    purse = Purse(10.0, concurrency=1_000, exact=False)
    first = await purse.open("first", asks_first=False)
    first.charge(0.25)
    await purse.budget.idle()
    first.close(0.25)

    await purse.open("second", asks_first=False)

    assert purse.rows.rows[-1][:3] == ("second", 1, "reserve")
    assert purse.rows.rows[-1][3] == pytest.approx(0.5)


async def test_an_attempt_that_does_not_ask_first_is_stopped_when_it_has_spent_all():
    purse = Purse(0.5)
    blind = await purse.open("blind", asks_first=False)
    stopped: list[CostLimit] = []
    blind.stop = stopped.append
    assert blind.charge(0.4) is None
    await purse.budget.idle()
    assert stopped == []

    assert blind.charge(0.7) is None
    await purse.budget.idle()

    assert [str(error) for error in stopped] == ["the budget is spent"]


async def test_a_budget_that_is_spent_opens_nothing():
    purse = Purse(0.5)
    first = await purse.open("first")
    first.settle(await first.hold(worst(0.5)), 0.5)
    first.charge(0.5)
    first.close(0.5)

    assert await purse.budget.open("second", "second", kind="a", cap_usd=None) is None
    assert await purse.budget.open("third", "third", kind="b", cap_usd=0.1) is None
    assert purse.budget.short_of == "budget"


# Amounts that differ by no more than rounding are equal.


async def test_a_cap_that_is_exceeded_by_rounding_holds():
    reservation = await Purse(10).open("s", 0.5)
    assert reservation.charge(0.5 + ROUNDING_USD) is None
    assert reservation.charge(0.5 + 3 * ROUNDING_USD) is not None


async def test_a_worst_case_that_fits_but_for_rounding_is_held():
    reservation = await Purse(10).open("s", 0.5 - ROUNDING_USD)
    assert await reservation.hold(worst(0.5)) == Hold(0.5)


async def test_what_may_cost_no_more_than_rounding_is_not_lost_missing_or_returned():
    purse = Purse(10)
    reservation = await purse.open("s")
    rows = len(purse.rows.rows)
    reservation.lose(Hold(ROUNDING_USD))
    assert reservation.calls_lost == 0
    reserved = reservation._reserved
    assert reservation.missing_usd(reserved + ROUNDING_USD) == 0.0
    assert reservation.missing_usd(reserved + 0.5) == pytest.approx(0.5)
    reservation._reserved = ROUNDING_USD
    assert not reservation.trim()
    reservation._held = ROUNDING_USD
    assert not reservation.may_return_money(reservation)
    reservation._held = 3 * ROUNDING_USD
    assert reservation.may_return_money(reservation)
    assert len(purse.rows.rows) == rows


async def test_a_running_call_that_may_cost_no_more_than_rounding_is_not_written():
    purse = Purse(10)
    reservation = await purse.open("s", 1.0)
    rows = len(purse.rows.positions["s"])
    reservation.settle(Hold(0.0), ROUNDING_USD, is_recorded=False)
    assert not reservation._enter_running()
    reservation.settle(Hold(0.0), ROUNDING_USD, is_recorded=False)
    assert reservation._enter_running()
    assert len(purse.rows.positions["s"]) == rows + 1


async def test_a_cost_beyond_what_is_reserved_by_rounding_needs_no_row():
    purse = Purse(10)
    reservation = await purse.open("s")
    reservation._reserved, reservation._cost = 0.25, 0.25
    rows = len(purse.rows.rows)
    reservation._cost += ROUNDING_USD / 2
    assert reservation.reserve_cost()
    assert len(purse.rows.rows) == rows
    purse.budget._ledger.drawn_usd = purse.budget._spent + purse.budget._reserved + 0.25
    reservation._cost = 0.75
    assert not reservation.reserve_cost(), "half of it was not drawn"
    reservation._cost = 0.5
    assert reservation.reserve_cost(), "as much as is free"
    assert purse.rows.rows[-1][2:4] == ("extend", pytest.approx(0.25))


async def test_an_agent_that_does_not_ask_first_doubles_what_it_has_reserved():
    purse = Purse(10, concurrency=1)
    blind = await purse.open("s", asks_first=False)
    blind._reserved, blind._cost = 0.25, 0.375
    purse.budget._ledger.drawn_usd = purse.budget._spent + purse.budget._reserved + 1.0
    assert blind.reserve_cost()
    assert purse.rows.rows[-1][2:4] == ("extend", pytest.approx(0.25)), "though 0.125 would do"
    assert not blind.trim(), "it may need it at any time"


async def test_a_closed_attempt_has_nothing_reserved():
    purse = Purse(10)
    reservation = await purse.open("s", 0.5)
    reservation.charge(0.25)
    reservation.close(0.25)
    assert reservation.overdrawn_usd == 0.25
    assert purse.budget.free_usd == pytest.approx(0.25)


# Amounts at their boundaries


async def test_a_cost_that_exceeds_what_is_reserved_or_free_by_rounding_exactly_is_covered():
    purse = Purse(10)
    reservation = await purse.open("s")
    budget = purse.budget
    reservation._reserved = budget._reserved = 0.0
    rows = len(purse.rows.rows)
    reservation._cost = ROUNDING_USD
    assert reservation.reserve_cost()
    assert len(purse.rows.rows) == rows

    budget._ledger.drawn_usd = 0.25
    reservation._cost = 0.25 + ROUNDING_USD
    assert reservation.reserve_cost()
    assert purse.rows.rows[-1][2:4] == ("extend", 0.25)


async def test_an_agent_that_asks_first_reserves_only_what_it_has_spent():
    purse = Purse(10)
    reservation = await purse.open("s")
    purse.budget._ledger.drawn_usd = purse.budget._reserved + 5.0
    reservation._cost = reservation._reserved + 0.25
    assert reservation.reserve_cost()
    assert purse.rows.rows[-1][2:4] == ("extend", pytest.approx(0.25))


async def test_calls_that_are_held_not_recorded_and_lost_add_up_in_the_ledger():
    purse, entered = Purse(10), list[tuple[object, ...]]()
    append = purse.rows.append
    purse.rows.append = lambda table, row: (entered.append(row), append(table, row))[1]  # type: ignore[method-assign]
    reservation = await purse.open("s")
    reservation.settle(await reservation.hold(worst(0.5)), 0.25, is_recorded=False)
    reservation.lose(await reservation.hold(worst(0.125)))
    await reservation.hold(worst(1.0))
    assert purse.rows.running == pytest.approx(0.25 + 0.125 + 1.0)
    calls = [row[6:8] for row in entered if row[5] == "call"]
    assert [reserved for reserved, _ in calls] == [0.5, pytest.approx(-0.125), 1.0]
    assert {spent for _, spent in calls} == {0.0}, "what it costs is known when it is settled"


async def test_without_a_budget_no_money_is_drawn_for_a_cost():
    purse = Purse(None)
    reservation = await purse.open("s")
    reservation.charge(0.5)
    assert not purse.budget._covering


async def test_an_attempt_that_nobody_can_stop_is_not_stopped():
    reservation = await Purse(10).open("s")
    assert reservation.stop(CostLimit("the budget is spent")) is None
