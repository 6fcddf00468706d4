"""What an attempt may spend, call by call: held before, settled after, and closed at the end."""

import asyncio

import pytest
from ledgers import Purse, settled, worst

from proctor.budget.reservation import USUAL_CALLS, Hold
from proctor.errors import CostLimit, ModelError
from proctor.models.prices import SpendingRequest
from proctor.store.ledger import ROUNDING_USD
from waiting import TIME_LIMIT_SECONDS

FIFTY_ANSWERS = SpendingRequest(
    model="m", input_tokens=0, output_tokens=1024, input_usd=0.0, output_usd_per_token=2.0**-14, answers=50
)


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


async def test_of_an_attempt_whose_cost_nobody_knows_all_that_was_reserved_is_spent():
    purse = Purse(1.0)
    reservation = await purse.open("s", 0.5)

    reservation.close(None)

    assert purse.rows.rows == [("s", 1, "reserve", 0.5, 0.0), ("s", 2, "settle", -0.5, 0.5)]
    # What nobody knows is no experience: the next of its kind is not expected to cost as much.
    assert purse.budget.past_costs("a").expected_usd == 0.0


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
    cut = await other.hold(worst(0.1, model="other"))
    assert cut == Hold(0.1), "of another model nothing is known"
    # One that is cut off after it has cost more shows the same.
    other.note = notes.append
    other.charge(0.3)
    other.lose(cut, 0.3)
    assert notes[1].startswith("a call cost $0.3000, more than the $0.1000")
    assert await (await purse.open("p", 1.0)).hold(worst(0.1, model="other")) == Hold(pytest.approx(0.4))


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
    for _ in range(2):
        await settled()
        assert not second.done()
        purse.budget.notify()

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
    await settled()
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
    await settled()
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
    await settled()
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


@pytest.mark.parametrize(
    ("cap_usd", "spent_usd", "request_", "expected"),
    [
        (1.0, 0.75, worst(0.25), Hold(0.25)),
        # The prompt is paid before the tokens of the answer.
        (1.0, 0.0, worst(2.1, input_usd=0.1), Hold(1.0, output_limit=450)),
        (1.0, 0.0, FIFTY_ANSWERS, Hold(1.0, output_limit=327)),
        # 0.25 pay for 256 tokens of this price; at a higher one, for 255, which is no useful answer.
        (1.0, 0.75, worst(1000 / 1024), Hold(0.25, output_limit=256)),
        (1.0, 0.75, worst(0.98), "it has spent $0.7500 of its $1.0000, and a call could cost $0.9800"),
        (0.5 - ROUNDING_USD, 0.0, worst(0.5), Hold(0.5)),
    ],
)
async def test_an_answer_is_as_long_as_the_cap_of_its_attempt_pays(cap_usd, spent_usd, request_, expected):
    for limit in (10.0, None):
        reservation = await Purse(limit).open("s", cap_usd)
        reservation.charge(spent_usd)
        if isinstance(expected, Hold):
            assert await reservation.hold(request_) == expected
            continue
        with pytest.raises(CostLimit) as refused:
            await reservation.hold(request_)
        assert str(refused.value) == expected
        left = cap_usd - spent_usd
        assert await reservation.hold(worst(left)) == Hold(left), "the refused one holds nothing"


async def test_an_attempt_may_spend_its_cap_and_not_more_but_for_rounding():
    reservation = await Purse(10).open("s", 0.5)
    assert reservation.charge(0.5) is None
    assert reservation.charge(0.5 + ROUNDING_USD) is None
    assert reservation.charge(0.5 + 3 * ROUNDING_USD) is not None
    over = reservation.charge(0.5001)
    assert str(over) == "it has spent $0.5001 of the $0.5000 an item may spend"
    assert over is not None and over.reason == "cost_limit"


async def test_a_call_that_was_cut_off_counts_once_with_its_worst_case():
    purse = Purse(1.0)
    reservation = await purse.open("s")
    reservation.lose(await reservation.hold(worst(0.25)))
    for nothing in (0.0, ROUNDING_USD):
        reservation.lose(Hold(nothing))
    assert reservation.calls_lost == 1, "one that could cost nothing is no loss"
    assert await reservation.hold(worst(1.0, tokens=1024)) == Hold(0.75, output_limit=768)
    reservation.close(0.1)
    assert (purse.rows.spent, purse.rows.reserved) == (pytest.approx(0.35), pytest.approx(0))
    assert purse.rows.rows[-1][2] == "settle"
    assert purse.rows.positions["s"] == list(range(1, len(purse.rows.positions["s"]) + 1))

    purse = Purse(1.0)
    reservation = await purse.open("s")
    cut = await reservation.hold(worst(0.25))
    reservation.charge(0.1)
    reservation.lose(cut, 0.1)
    reservation.close(0.1)
    assert purse.rows.spent == pytest.approx(0.25), "what was recorded of it is part of that"


async def test_what_a_running_call_may_cost_is_committed_before_it_is_sent():
    committed = list[float]()

    async def commit() -> None:
        committed.append(purse.rows.running)

    purse = Purse(1.0, commit=commit)
    reservation = await purse.open("s")

    hold = await reservation.hold(worst(0.25))
    assert committed == [0.25]
    reservation.settle(hold, 0.1, is_recorded=False)
    assert purse.rows.running == pytest.approx(0.25), "nobody has recorded what it cost"
    reservation.charge(0.1)
    assert purse.rows.running == pytest.approx(0.0)

    reservation.settle(await reservation.hold(worst(0.5)), None)
    assert purse.rows.running == pytest.approx(0.0)
    reservation.lose(await reservation.hold(worst(0.5)))
    assert purse.rows.running == pytest.approx(0.5), "cut off: it may be billed"


async def test_a_call_that_is_cancelled_before_it_is_sent_holds_nothing():
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def commit() -> None:
        reached.set()
        await go_on.wait()

    purse = Purse(1.0, commit=commit)
    reservation = await purse.open("s")
    holding = asyncio.create_task(reservation.hold(worst(0.5)))
    await reached.wait()
    holding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await holding
    assert purse.rows.running == pytest.approx(0.0)
    go_on.set()
    assert await reservation.hold(worst(1.0)) == Hold(1.0)


async def test_without_a_limit_nothing_is_held_and_nothing_written():
    purse = Purse(None)
    reservation = await purse.open("s")

    assert not reservation.is_limited
    for usd in (5.0, None):
        assert await reservation.hold(worst(usd)) == Hold(0.0)
    assert reservation.charge(7.0) is None
    reservation.close(7.0)
    await purse.budget.idle()
    assert (purse.rows.rows, purse.ledger.drawn_usd) == ([], 0.0)
    capped = await purse.open("s", 0.5)
    assert capped.is_limited
    with pytest.raises(ModelError, match="the price of m is unknown"):
        await capped.hold(worst(None))


async def test_a_cost_is_reserved_when_it_exceeds_what_is_reserved_by_more_than_rounding():
    purse = Purse(10)
    reservation = await purse.open("s")
    reservation.settle(await reservation.hold(worst(0.25)), 0.25)
    rows = list(purse.rows.rows)
    reservation.charge(0.25 + ROUNDING_USD / 2)
    await purse.budget.idle()
    assert purse.rows.rows == rows
    reservation.charge(0.5)
    await purse.budget.idle()
    assert purse.rows.rows[-1][2:] == ("extend", pytest.approx(0.25), 0.0), "an agent that asks first"
    blind = await purse.open("b", kind="b", asks_first=False)
    reserved = [purse.rows.rows[-1][3]]
    for total in (0.5, 0.75):
        blind.charge(total)
        await purse.budget.idle()
        reserved.append(purse.rows.reserved - 0.5)
    assert reserved[1:] == [pytest.approx(0.5), pytest.approx(0.75)]
