"""However many spend at once and in whatever order, the limit holds, and nobody waits for ever."""

import asyncio
import random
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from ledgers import Purse

from databases import query
from proctor.budget.allocation import BatchBudget, LedgerClient
from proctor.budget.reservation import BudgetedModel
from proctor.errors import CostLimit
from proctor.model import Answer, Request
from proctor.models.prices import SpendingRequest
from proctor.session import ModelCall, Usage
from proctor.store import Drawn, MoneyLimits, Ownership, Store, ledger, timestamp
from proctor.store.writer import this_process
from waiting import TIME_LIMIT_SECONDS


def now() -> datetime:
    return datetime.now(UTC)


class StoreLedger:
    """The ledger of one batch in a store."""

    def __init__(self, store: Store, run_id: str, limits: MoneyLimits) -> None:
        self.store, self.run_id, self.limits = store, run_id, limits

    async def draw(self, holder: str, *, wanted_usd: float, least_usd: float) -> Drawn:
        return await asyncio.to_thread(
            self.store.change,
            ledger.draw,
            self.run_id,
            holder,
            wanted_usd=wanted_usd,
            least_usd=least_usd,
            limits=self.limits,
            now=now(),
        )

    async def give_back(self, holder: str, usd: float) -> None:
        await asyncio.to_thread(self.store.change, ledger.give_back, self.run_id, holder, usd, now())


PRICE_USD = 1e-4
"""Of one token of output."""


class Provider:
    """A model that bills a random part of what a call may cost, and now and then more than that."""

    def __init__(self, rng: random.Random, overbills: float) -> None:
        self.rng, self.overbills = rng, overbills
        self.billed = self.overbilled = 0.0

    async def answer(self, request: Request) -> Answer:
        tokens = request.parameters["max_tokens"]
        used = self.rng.choice([tokens, tokens, self.rng.randint(0, tokens)])
        cost = used * PRICE_USD
        if self.rng.random() < self.overbills:
            cost = tokens * PRICE_USD * 1.5
            self.overbilled += cost - tokens * PRICE_USD
        # The provider bills a call that its client cuts off all the same.
        self.billed += cost
        for _ in range(self.rng.randint(0, 8)):
            await asyncio.sleep(0)
        call = ModelCall(model="m", usage=Usage(output_tokens=used), cost_usd=cost)
        return Answer(text="", call=call, finish_reason="length" if used == tokens else "stop")


def bound(request: Request) -> SpendingRequest:
    return SpendingRequest(
        model="m",
        input_tokens=0,
        output_tokens=request.parameters["max_tokens"],
        input_usd=0.0,
        output_usd_per_token=PRICE_USD,
    )


async def attempt_with(budget: BatchBudget, provider: Provider, rng: random.Random, name: str) -> bool:
    """One attempt of several calls, some at once, some cut off; whether there was money for all of it."""
    cap = rng.choice([None, None, 0.5])
    asks_first = rng.random() < 0.85
    reservation = await budget.open(name, name, kind=rng.choice("ab"), cap_usd=cap, asks_first=asks_first)
    if reservation is None:
        return False
    total, stopped = 0.0, list[CostLimit]()
    reservation.stop = stopped.append

    def record(event: Any) -> None:
        nonlocal total
        total += event.cost_usd
        reservation.charge(total)

    model = BudgetedModel(provider, reservation, worst_case=bound, record=record)

    async def one_call() -> None:
        tokens = rng.choice([300, 1000, 4000])
        record((await model.answer(Request(model="m", messages=[], parameters={"max_tokens": tokens}))).call)

    enough = True
    for _ in range(rng.randint(1, 4)):
        calls = [asyncio.create_task(one_call()) for _ in range(rng.choice([1, 1, 3]))]
        if rng.random() < 0.15:
            await asyncio.sleep(0)
            calls[0].cancel()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        failures = [error for error in outcomes if error is not None]
        assert all(isinstance(error, CostLimit | asyncio.CancelledError) for error in failures)
        enough = not stopped and not any(isinstance(error, CostLimit) for error in failures)
        if not enough:
            break
    reservation.close(total)
    return enough or cap is not None


async def spend(budget: BatchBudget, provider: Provider, rng: random.Random, places: int, name: str) -> None:
    """Make random attempts until thirty are made or money is short."""
    left = 30

    async def work() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            if not await attempt_with(budget, provider, rng, f"{name}-{left}"):
                left = 0

    async with asyncio.timeout(TIME_LIMIT_SECONDS):
        await asyncio.gather(*(work() for _ in range(places)))
        await budget.idle()


@pytest.mark.parametrize("overbills", [0.0, 0.05])
async def test_the_budget_is_exceeded_by_nothing_but_what_the_provider_overbills(overbills: float) -> None:
    for seed in range(100):
        rng = random.Random(seed)
        limit, places = rng.choice([0.05, 0.4, 2.0]), rng.choice([1, 4, 16])
        purse, provider = Purse(limit, concurrency=places, exact=False), Provider(rng, overbills)

        await spend(purse.budget, provider, rng, places, f"{seed}")

        assert provider.billed <= limit + provider.overbilled + 1e-9, f"seed {seed}"
        assert purse.rows.most_committed <= limit + provider.overbilled + 1e-9, f"seed {seed}"
        assert purse.rows.reserved == pytest.approx(0, abs=1e-9), f"seed {seed}"
        assert purse.ledger.drawn_usd <= limit + 1e-9, f"seed {seed}"


def drawn(store: Store) -> float:
    """What all have drawn together, at this moment."""
    (row,) = query(
        store,
        'SELECT COALESCE(SUM("reservedUsd"), 0) AS "usd" FROM "ledger" WHERE "kind" IN (?, ?)',
        ("draw", "close"),
    )
    return float(row["usd"])


async def watch(store: Store, seen: list[float]) -> None:
    while True:
        seen.append(drawn(store))
        await asyncio.sleep(0.002)


async def spend_in(store: Store, run_id: str, limits: MoneyLimits, provider: Provider) -> None:
    """Spend as one batch of a store, and return what is left."""
    rng, owner = provider.rng, this_process()
    row = {"runId": run_id, "job": "coding", "status": "running", "owner": owner}
    store.create_batch({**row, "createdAt": timestamp(now()), "heartbeatAt": timestamp(now())}, [])
    callbacks = {"aborted": lambda: None, "failed": lambda error: None}
    writer = store.writer(Ownership(run_id=run_id, owner=owner, **callbacks))
    client = LedgerClient(StoreLedger(store, run_id, limits), owner, is_limited=True)
    places = rng.choice([1, 3, 8])
    budget = BatchBudget(client, run_id=run_id, concurrency=places, rows=writer, now=now)
    await spend(budget, provider, rng, places, run_id)
    closed = writer.submit(lambda connection: ledger.close(connection, run_id, owner, now()))
    await asyncio.wrap_future(closed)
    writer.close()


@pytest.mark.parametrize("seed", range(8))
async def test_two_batches_on_one_store_spend_to_the_limit_and_not_beyond(store: Store, seed: int) -> None:
    rng = random.Random(seed)
    limit = rng.choice([0.2, 0.5, 1.0])
    providers = {run_id: Provider(random.Random(f"{seed} {run_id}"), 0.0) for run_id in ("one", "two")}

    seen = [0.0]
    watching = asyncio.create_task(watch(store, seen))
    await asyncio.gather(
        *(
            spend_in(store, name, MoneyLimits(store_usd=limit, run_usd=rng.choice([None, limit * 0.7])), each)
            for name, each in providers.items()
        )
    )
    watching.cancel()

    settled = [store.read.reserved_and_spent(run_id) for run_id in providers]
    spent = sum(paid for _, paid in settled)
    assert sum(provider.billed for provider in providers.values()) <= spent + 1e-9
    assert 0.3 * limit < spent <= limit + 1e-9
    assert max(seen) <= limit + 1e-9
    assert drawn(store) == pytest.approx(spent), "at the end nothing is held that was not spent"
    assert [reserved for reserved, _ in settled] == [pytest.approx(0, abs=1e-9)] * 2


def client_of(store: Store, limit: float = 0.8) -> LedgerClient:
    """The ledger client of a batch that has begun and spent nothing."""
    owner = this_process()
    row = {"runId": "run", "job": "coding", "status": "running", "owner": owner}
    store.create_batch({**row, "createdAt": timestamp(now()), "heartbeatAt": timestamp(now())}, [])
    ledger = StoreLedger(store, "run", MoneyLimits(run_usd=limit))
    return LedgerClient(ledger, owner, is_limited=True)


async def test_two_that_are_short_of_the_same_money_at_once_draw_it_once(store: Store) -> None:
    client = client_of(store)

    def short() -> float:
        return 0.1 - client.drawn_usd

    assert await asyncio.gather(client.draw(short), client.draw(short)) == [True, True]

    assert client.drawn_usd == pytest.approx(0.1)
    assert drawn(store) == pytest.approx(0.1)


async def test_what_is_free_is_known_only_when_a_draw_under_way_has_ended(store: Store) -> None:
    client = client_of(store)

    await asyncio.gather(client.draw(lambda: 0.1), client.give_back(lambda: client.drawn_usd))

    assert client.drawn_usd == pytest.approx(0)
    assert drawn(store) == pytest.approx(0)


class SlowStore(Store):
    """A store that keeps whoever draws money waiting."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.asked, self.may_go_on = threading.Event(), threading.Event()

    def change(self, work: Callable[..., Any], *args: Any, **settings: Any) -> Any:
        if work is ledger.draw:
            self.asked.set()
            assert self.may_go_on.wait(TIME_LIMIT_SECONDS)
        return super().change(work, *args, **settings)


async def test_money_drawn_for_someone_who_has_gone_meanwhile_is_not_forgotten(store: Store) -> None:
    with SlowStore(store.url) as slow:
        client = client_of(slow)
        drawing = asyncio.create_task(client.draw(lambda: 0.1))
        await asyncio.to_thread(slow.asked.wait, 20)

        drawing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await drawing
        slow.may_go_on.set()
        await client.idle()

        assert client.drawn_usd == pytest.approx(0.1)
        assert drawn(slow) == pytest.approx(0.1)
