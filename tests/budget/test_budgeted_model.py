"""One call within a budget: what it holds, what it counts as however it ends, and when it is tried again."""

import asyncio
from datetime import UTC, datetime

import pytest
from ledgers import MemoryLedger, SettledRows

from proctor.budget.allocation import BatchBudget, LedgerClient
from proctor.budget.budgeted_model import BudgetedModel, spend_guard
from proctor.budget.reservation import Hold, Reservation
from proctor.errors import NOT_SENT, CostLimit, ModelError
from proctor.model import Answer, Request
from proctor.models.prices import SpendingRequest
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
            models, reservation, worst_case=lambda request: worst(), record=self.recorded.append
        )

    async def call(self) -> Answer:
        return await self.model.answer(Request(model="m", messages=[]))


def worst(usd: float = 0.25) -> SpendingRequest:
    return SpendingRequest(
        model="m", input_tokens=0, output_tokens=1000, input_usd=0.0, output_usd_per_token=usd / 1000
    )


async def opened(limit_usd: float | None, cap_usd: float | None = None) -> Reservation:
    client = LedgerClient(MemoryLedger(limit_usd or 0.0), "me", is_limited=limit_usd is not None)
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    rows = SettledRows()
    budget = BatchBudget(client, run_id="run", concurrency=1, rows=rows, now=lambda: moment)
    reservation = await budget.open("s", "s", kind="a", cap_usd=cap_usd, asks_first=True)
    assert reservation is not None
    return reservation


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


async def test_without_any_limit_a_call_is_sent_as_it_is_and_a_failed_one_holds_nothing() -> None:
    one = await attempt(0.1, usd=None)
    assert (await one.call()).call.cost_usd == 0.1
    assert one.models.requests[0].parameters == {}
    assert one.reservation._unrecorded == one.reservation._held == 0.0


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


async def test_an_answer_that_is_complete_although_it_was_shortened_is_a_result() -> None:
    one = await attempt(0.1, usd=0.125, end="stop")
    assert (await one.call()).finish_reason == "stop"
    assert one.recorded == []


async def test_an_answer_that_reached_the_length_the_caller_wanted_is_a_result() -> None:
    one = await attempt(0.25, end="length")
    assert (await one.call()).finish_reason == "length"
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
async def test_a_call_that_ends_without_answer_counts_with_what_may_be_billed(
    error: BaseException, lost: float, calls_lost: int
) -> None:
    one = await attempt(error)

    with pytest.raises(type(error)):
        await one.call()

    assert len(one.models.requests) == 1
    assert one.reservation.calls_lost == calls_lost
    assert await left_of(one.reservation) == pytest.approx(10.0 - lost)


async def test_a_call_that_breaks_off_is_tried_five_times_each_paid_for() -> None:
    one = await attempt(BrokenOff("cut"))

    with pytest.raises(BrokenOff):
        await one.call()

    assert len(one.models.requests) == one.reservation.calls_lost == 5
    assert await left_of(one.reservation) == pytest.approx(10.0 - 5 * 0.25)


async def test_tries_during_an_outage_are_not_counted() -> None:
    one = await attempt(*[Outage("down")] * 7, *[BrokenOff("cut")] * 4, 0.1)

    assert (await one.call()).call.cost_usd == 0.1

    assert len(one.models.requests) == 12
    assert await left_of(one.reservation) == pytest.approx(10.0 - 11 * 0.25 - 0.1)


async def test_a_call_through_the_gateway_holds_its_worst_case_until_it_is_settled() -> None:
    reservation, ends = await opened(0.25), list[CostLimit]()

    grant = await spend_guard(reservation, ends.append)(worst())

    assert (grant.refused, grant.most_output_tokens, ends) == ("", None, [])
    assert reservation._held == 0.25
    assert grant.settle is not None
    grant.settle(0.1)
    assert reservation._held == 0.0 and reservation.calls_lost == 0
    reservation.charge(0.1)
    shorter = await spend_guard(reservation, ends.append)(worst())
    assert shorter.most_output_tokens == 600


@pytest.mark.parametrize(("recorded", "lost"), [(None, 0.25), (0.1, 0.15)])
async def test_a_call_through_the_gateway_that_broke_off_counts_with_its_worst_case(
    recorded: float | None, lost: float
) -> None:
    reservation, ends = await opened(10.0), list[CostLimit]()
    grant = await spend_guard(reservation, ends.append)(worst())

    assert grant.lose is not None
    grant.lose(recorded)

    assert reservation.calls_lost == 1
    assert await left_of(reservation) == pytest.approx(10.0 - lost)


async def test_a_call_through_the_gateway_that_cannot_be_paid_ends_the_attempt() -> None:
    reservation, ends = await opened(0.25), list[CostLimit]()
    await reservation.hold(worst())
    reservation.lose(Hold(0.25))

    grant = await spend_guard(reservation, ends.append)(worst())

    assert grant.refused == "the budget is spent"
    assert [str(error) for error in ends] == ["the budget is spent"]
    assert grant.settle is None and grant.lose is None
