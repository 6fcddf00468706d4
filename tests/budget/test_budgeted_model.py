"""One call within a budget: what it holds, what it counts as however it ends, and when it is tried again."""

import asyncio

import pytest
from ledgers import Purse, worst

from proctor.budget.reservation import BudgetedModel, Hold, Reservation, spend_guard
from proctor.errors import NOT_SENT, CostLimit, ModelError
from proctor.model import Answer, Request
from proctor.session import Event, ModelCall


class BrokenOff(ModelError):
    may_be_billed = True


class Outage(BrokenOff):
    is_outage = True


class Models:
    """Answers with a cost, or raises, as a script says; the last entry is repeated."""

    def __init__(self, *script: float | BaseException, finish_reason: str = "stop") -> None:
        self.script, self.finish_reason = list(script), finish_reason
        self.requests: list[Request] = []

    async def answer(self, request: Request) -> Answer:
        self.requests.append(request)
        outcome = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(outcome, BaseException):
            raise outcome
        call = ModelCall(model="m", cost_usd=outcome)
        return Answer(text="", call=call, finish_reason=self.finish_reason)


class Attempt:
    """An attempt with a budget, each call of which may cost $0.25 for a thousand tokens."""

    def __init__(self, models: Models, reservation: Reservation) -> None:
        self.models, self.reservation = models, reservation
        self.recorded: list[Event] = []
        self.model = BudgetedModel(
            models, reservation, worst_case=lambda request: worst(0.25), record=self.recorded.append
        )

    async def call(self) -> Answer:
        return await self.model.answer(Request(model="m", messages=[]))


async def opened(limit_usd: float | None, cap_usd: float | None = None) -> Reservation:
    return await Purse(limit_usd, concurrency=1, exact=False).open("s", cap_usd)


async def attempt(*script: float | BaseException, usd: float | None = 10.0, end: str = "stop") -> Attempt:
    return Attempt(Models(*script, finish_reason=end), await opened(usd))


async def left_of(reservation: Reservation, limit_usd: float = 10.0) -> float:
    """What another call could have."""
    hold = await reservation.hold(worst(limit_usd))
    reservation.settle(hold, None)
    return hold.usd


async def test_a_call_counts_with_its_cost_until_the_caller_records_it() -> None:
    one = await attempt(0.1)

    answer = await one.call()

    assert answer.call.cost_usd == 0.1
    assert one.recorded == [], "the caller does"
    assert await left_of(one.reservation) == pytest.approx(9.9)
    one.reservation.charge(0.1)
    assert await left_of(one.reservation) == pytest.approx(9.9)
    assert one.models.requests == [Request(model="m", messages=[])], "its length is not limited"


async def test_without_any_limit_a_call_is_sent_as_it_is() -> None:
    one = await attempt(0.1, usd=None)
    assert (await one.call()).call.cost_usd == 0.1
    assert one.models.requests[0].parameters == {}


async def test_an_answer_that_was_cut_off_for_lack_of_money_is_recorded_and_no_result() -> None:
    one = await attempt(0.125, usd=0.125, end="length")

    with pytest.raises(CostLimit, match="the budget is spent") as cut:
        await one.call()

    assert cut.value.reason == "halted"
    assert [request.parameters for request in one.models.requests] == [{"max_tokens": 500}]
    assert [event.cost_usd for event in one.recorded if isinstance(event, ModelCall)] == [0.125]


async def test_the_message_of_a_capped_attempt_names_what_its_call_could_cost() -> None:
    one = Attempt(Models(0.125, finish_reason="length"), await opened(10.0, cap_usd=0.125))
    with pytest.raises(CostLimit, match=r"a call could cost \$0\.2500"):
        await one.call()


@pytest.mark.parametrize(("usd", "cost", "end"), [(0.125, 0.1, "stop"), (10.0, 0.25, "length")])
async def test_an_answer_that_is_complete_or_as_long_as_the_caller_wanted_is_a_result(usd, cost, end):
    one = await attempt(cost, usd=usd, end=end)
    assert (await one.call()).finish_reason == end
    assert one.recorded == []


@pytest.mark.parametrize(
    ("error", "lost", "calls_lost"),
    [
        (ModelError("refused"), 0.0, 0),
        (asyncio.CancelledError(NOT_SENT), 0.0, 0),
        (asyncio.CancelledError(), 0.25, 1),
        (asyncio.CancelledError("other"), 0.25, 1),
        (ValueError("a fault of ours"), 0.0, 0),
    ],
    ids=["refused", "not sent", "cancelled", "cancelled with a reason", "other"],
)
async def test_a_call_that_ends_without_answer_counts_with_what_may_be_billed(error, lost, calls_lost):
    one = await attempt(error)

    with pytest.raises(type(error)):
        await one.call()

    assert len(one.models.requests) == 1
    assert one.reservation.calls_lost == calls_lost
    assert await left_of(one.reservation) == pytest.approx(10.0 - lost)


async def test_a_call_that_breaks_off_is_tried_five_times_each_paid_for_and_longer_in_an_outage() -> None:
    one = await attempt(BrokenOff("cut"))
    with pytest.raises(BrokenOff):
        await one.call()
    assert len(one.models.requests) == one.reservation.calls_lost == 5
    assert await left_of(one.reservation) == pytest.approx(10.0 - 5 * 0.25)

    one = await attempt(*[Outage("down")] * 7, *[BrokenOff("cut")] * 4, 0.1)
    assert (await one.call()).call.cost_usd == 0.1
    assert len(one.models.requests) == 12
    assert await left_of(one.reservation) == pytest.approx(10.0 - 11 * 0.25 - 0.1)


async def test_a_call_through_the_gateway_holds_its_worst_case_until_it_is_settled() -> None:
    reservation, ends = await opened(0.25), list[CostLimit]()

    grant = await spend_guard(reservation, ends.append)(worst(0.25))

    assert (grant.refused, grant.most_output_tokens, ends) == ("", None, [])
    assert grant.settle is not None
    grant.settle(0.1)
    assert reservation.calls_lost == 0
    reservation.charge(0.1)
    shorter = await spend_guard(reservation, ends.append)(worst(0.25))
    assert shorter.most_output_tokens == 600


@pytest.mark.parametrize(("recorded", "lost"), [(None, 0.25), (0.1, 0.15)])
async def test_a_call_through_the_gateway_that_broke_off_counts_with_its_worst_case(recorded, lost):
    reservation, ends = await opened(10.0), list[CostLimit]()
    grant = await spend_guard(reservation, ends.append)(worst(0.25))

    assert grant.lose is not None
    grant.lose(recorded)

    assert reservation.calls_lost == 1
    assert await left_of(reservation) == pytest.approx(10.0 - lost)


async def test_a_call_through_the_gateway_that_cannot_be_paid_ends_the_attempt() -> None:
    reservation, ends = await opened(0.25), list[CostLimit]()
    await reservation.hold(worst(0.25))
    reservation.lose(Hold(0.25))

    grant = await spend_guard(reservation, ends.append)(worst(0.25))

    assert grant.refused == "the budget is spent"
    assert [str(error) for error in ends] == ["the budget is spent"]
    assert grant.settle is None and grant.lose is None
