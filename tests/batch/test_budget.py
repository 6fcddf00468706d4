"""Money is set aside before an attempt and settled after it, and never passes the limit."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from stand_ins import call, doing

from databases import query
from proctor.errors import ModelError, OwnershipLost
from proctor.model import Answer, Request
from proctor.models import ModelRouter
from proctor.models.prices import price_of
from proctor.models.routes import CallableRoute
from proctor.session import ModelCall, Usage
from proctor.store import MoneyLimits, batches
from proctor.store.ledger import draw
from proctor.testing import eventually_async

PRICED = """
    budget: {limit}
    concurrency: {concurrency}
    prices: {{scripted/dear: {{input: 0, output: 10000}}}}
    defaults: {{settings: {{max_tokens: 1}}}}
    matrix: [{{prompt: hello, model: scripted/dear, runs: {runs}{more}}}]
"""


def priced(limit, *, runs, concurrency=20, more=""):
    """A plan of calls that cost one cent each."""
    return PRICED.format(limit=limit, runs=runs, concurrency=concurrency, more=more)


@pytest.fixture
def shop(workshop):
    """A workshop with a model that costs a cent a call, and a clock no two rows agree on."""
    (workshop.folder / "dear.yaml").write_text(
        "{latency_seconds: 0.002, rules: [{reply: ok, usage: {input_tokens: 1, output_tokens: 1}}]}"
    )
    ticks = iter(range(10**9))
    start = datetime.now(UTC)
    workshop.context = replace(workshop.context, now=lambda: start + timedelta(milliseconds=next(ticks)))
    return workshop


def request_to(model):
    """A call that may cost a cent."""
    messages = [{"role": "user", "content": "hello"}]
    return Request(model=model, messages=messages, parameters={"max_tokens": 1})


async def lose_process(shop, running):
    """As after kill -9: the rows are as they were, and nobody tidies up."""
    shop.store.change(batches.change, "run", {"owner": "gone:1:1:x", "heartbeatAt": None})
    query(shop.store, 'UPDATE "ledger" SET "holder" = ?', ("gone:1:1:x",))
    with pytest.raises(OwnershipLost, match="taken over"):
        await running


def ledger(workshop):
    """What attempts have set aside and settled."""
    rows = workshop.rows("ledger", '"timestamp", "position"')
    return [row for row in rows if row["kind"] not in ("draw", "close")]


def most_committed(workshop) -> float:
    """The most that was ever spent and reserved together."""
    committed = most = 0.0
    for row in ledger(workshop):
        if row["kind"] == "call":
            # Of what is reserved, the part of running calls.
            continue
        committed += row["reservedUsd"] + row["spentUsd"]
        most = max(most, committed)
    return most


async def test_a_budget_that_fits_is_spent_to_the_last_cent(shop):
    ending = await shop.run(priced(0.30, runs=30))

    assert ending.status == "completed"
    assert shop.store.read.reserved_and_spent("run") == (pytest.approx(0, abs=1e-9), pytest.approx(0.30))
    assert most_committed(shop) <= 0.30 + 1e-9


async def test_with_twenty_at_once_spent_and_reserved_never_pass_the_limit(shop):
    ending = await shop.run(priced(0.255, runs=100))

    counts = shop.store.read.totals("run")["counts"]
    assert (ending.status, ending.reason) == ("halted", "budget")
    assert shop.batch()["status"] == "halted"
    assert most_committed(shop) <= 0.255 + 1e-9
    assert counts["success"] == 25, "what there was money for was done"
    assert counts["queued"] == 75


async def test_a_limit_for_each_item_is_reserved_in_full(shop):
    ending = await shop.run(priced(0.2, runs=20, more=", budget: 0.05"))

    first = [row["reservedUsd"] for row in ledger(shop) if row["kind"] == "reserve"]
    assert ending.status == "halted"
    assert set(first) == {0.05}
    assert most_committed(shop) <= 0.2 + 1e-9
    # A cent each, until less than the five are left that an item may want.
    assert shop.store.read.totals("run")["counts"]["success"] == 16


async def test_a_halted_batch_goes_on_when_there_is_more_money(shop):
    await shop.run(priced(0.05, runs=20))
    done = shop.store.read.totals("run")["counts"]["success"]
    assert (await shop.resume()).status == "halted"
    assert shop.store.read.totals("run")["counts"]["success"] == done == 5

    owner = shop.take_over()
    shop.store.change(batches.change, "run", {"budgetUsd": 0.2})
    ending = (await shop.executor(owner).run()).end

    assert ending.status == "completed"
    assert shop.outcomes() == [("success", "completed")] * 20
    assert {row["attempt"] for row in shop.rows("sessions")} == {1}, "nothing was done twice"
    assert most_committed(shop) <= 0.2 + 1e-9


async def test_an_item_that_runs_out_of_the_batchs_money_is_queued_again_not_failed(shop):
    async def spend(item, services):
        for _ in range(5):
            services.record(call(0.03))
            await asyncio.sleep(0.05)

    ending = await shop.run(priced(0.1, runs=2, concurrency=1), find_runner=doing(spend))

    assert ending.status == "halted"
    assert [item["status"] for item in shop.items()] == ["queued", "queued"]
    assert [row["endReason"] for row in shop.rows("sessions")] == ["halted"]


async def test_work_that_is_done_is_kept_though_its_last_call_was_dearer_than_what_was_left(shop):
    async def spend(item, services):
        services.record(call(0.5))

    ending = await shop.run(priced(0.1, runs=2, concurrency=1), find_runner=doing(spend))

    assert ending.status == "halted"
    assert shop.outcomes() == [("success", "completed"), ("queued", "")]


async def test_calls_that_were_refused_cost_nothing(shop):
    async def refused(item, services):
        services.record(ModelCall(model="m", status="rate_limit"))
        raise ModelError("no")

    ending = await shop.run(priced(0.1, runs=30), find_runner=doing(refused))

    assert ending.status == "completed"
    assert shop.store.read.reserved_and_spent("run")[1] == 0


async def test_a_call_whose_price_nobody_knows_takes_all_that_was_set_aside_for_it(shop):
    async def unknown(item, services):
        services.record(call(None))

    await shop.run(
        "{budget: 1.0, concurrency: 1, matrix: [{prompt: hello, model: real/one, runs: 4, budget: 0.5}]}",
        find_runner=doing(unknown),
    )

    assert shop.batch()["status"] == "halted"
    assert shop.store.read.reserved_and_spent("run") == (0.0, 1.0)
    assert shop.store.read.totals("run")["counts"]["success"] == 2


async def test_an_agent_whose_calls_nobody_saw_takes_all_that_was_set_aside_for_it(shop, repository):
    work = f"{{repo: {repository}, prompt: work, agent: command, command: echo x > a, budget: 0.5, runs: 4}}"

    await shop.run(f"{{budget: 1.0, concurrency: 1, matrix: [{work}]}}")

    assert shop.batch()["status"] == "halted"
    assert shop.store.read.reserved_and_spent("run") == (0.0, 1.0)


async def test_a_call_that_was_cut_off_takes_what_it_could_have_cost_and_not_all_an_item_may_spend(shop):
    (shop.folder / "slow.yaml").write_text("{latency_seconds: 3600, rules: [{reply: ok}]}")

    async def cut_off(item, services):
        try:
            async with asyncio.timeout(0.5):
                await services.models.answer(request_to(item.model))
        except TimeoutError:
            services.record(ModelCall(model=item.model, status="cancelled"))
            raise ModelError("no") from None

    ending = await shop.run(
        priced(1.0, runs=4, more=", budget: 0.5").replace("dear", "slow"), find_runner=doing(cut_off)
    )

    assert ending.status == "completed"
    assert shop.store.read.reserved_and_spent("run") == (0.0, pytest.approx(4 * 0.01))


async def test_without_a_budget_nothing_is_written_to_the_ledger(shop):
    await shop.run("matrix: [{prompt: hello, model: scripted/echo, runs: 5}]")

    assert ledger(shop) == []


async def test_money_held_by_a_process_that_died_is_settled_for_what_it_spent(shop):
    async def half_way(item, services):
        services.record(call(0.01))
        await asyncio.sleep(3600)

    owner = shop.launch(priced(0.1, runs=4, concurrency=2))
    running = asyncio.create_task(shop.executor(owner, find_runner=doing(half_way)).run())
    await eventually_async(lambda: len(shop.rows("model_calls")) == 2)
    await lose_process(shop, running)
    assert shop.store.read.reserved_and_spent("run")[0] > 0

    ending = await shop.resume()

    reserved, spent = shop.store.read.reserved_and_spent("run")
    assert ending.status == "completed"
    assert reserved == pytest.approx(0, abs=1e-9)
    assert spent == pytest.approx(0.06)
    assert sum(item["costUsd"] for item in shop.items()) == pytest.approx(0.06)


async def test_a_call_that_was_under_way_when_its_process_died_stays_charged(shop):
    """Its provider may bill it: the reserved cent counts until someone knows better."""

    script = (shop.folder / "dear.yaml").read_text()
    (shop.folder / "dear.yaml").write_text("{latency_seconds: 3600, rules: [{reply: ok}]}")
    owner = shop.launch(priced(0.1, runs=4, concurrency=2))
    running = asyncio.create_task(shop.executor(owner).run())
    await eventually_async(lambda: sum(row["kind"] == "call" for row in ledger(shop)) == 2)
    await lose_process(shop, running)
    (shop.folder / "dear.yaml").write_text(script)

    ending = await shop.resume()

    assert ending.status == "completed"
    assert shop.store.read.reserved_and_spent("run") == (pytest.approx(0, abs=1e-9), pytest.approx(0.06))
    estimates = [row for row in ledger(shop) if row["kind"] == "estimate"]
    assert [row["spentUsd"] for row in estimates] == [pytest.approx(0.01)] * 2

    # What it came to arrives late: that counts, and the difference can be spent.
    writer = shop.store.writer()
    for row in estimates:
        late = ("settle", -0.01, 0.002, row["holder"])
        writer.append("ledger", (row["sessionId"], 99, "run", row["itemId"], row["timestamp"], *late))
    writer.close()
    assert shop.store.read.reserved_and_spent("run")[1] == pytest.approx(0.044)
    limits = MoneyLimits(run_usd=0.1)
    drawn = shop.store.change(
        draw, "run", "me", wanted_usd=1, least_usd=0, limits=limits, now=datetime.now(UTC)
    )
    assert drawn.usd == pytest.approx(0.1 - 0.044)


async def test_a_call_that_has_ended_is_charged_once_though_its_process_dies(shop):
    async def half_way(item, services):
        services.record((await services.models.answer(request_to(item.model))).call)
        await asyncio.sleep(3600)

    owner = shop.launch(priced(0.1, runs=1))
    running = asyncio.create_task(shop.executor(owner, find_runner=doing(half_way)).run())
    await eventually_async(lambda: len(shop.rows("model_calls")) == 1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert sum(row["reservedUsd"] for row in ledger(shop) if row["kind"] == "call") == pytest.approx(0)
    assert shop.store.read.reserved_and_spent("run")[1] == pytest.approx(0.01)


async def test_a_call_that_might_pass_the_limit_waits_for_calls_that_turn_out_cheaper(shop):
    """Each could cost ten cents and costs one: with nineteen cents only one can be made at a time."""
    (shop.folder / "modest.yaml").write_text(
        "{latency_seconds: 0.005, rules: [{reply: ok, usage: {input_tokens: 1, output_tokens: 1}}]}"
    )
    plan = """
        budget: 0.19
        concurrency: 4
        prices: {scripted/modest: {input: 0, output: 10000}}
        matrix: [{prompt: hello, model: scripted/modest, runs: 9, settings: {max_tokens: 10}}]
    """

    ending = await shop.run(plan)

    assert ending.status == "completed"
    assert most_committed(shop) <= 0.19 + 1e-9
    assert {row["attempt"] for row in shop.rows("sessions")} == {1}


async def test_an_answer_that_broke_off_for_want_of_money_is_paid_for_and_asked_for_again(shop):
    """With three cents left of what could cost a hundred, 300 tokens are all that can be paid."""
    asked = []

    def talk(request):
        limit = request.parameters["max_tokens"]
        asked.append(limit)
        tokens, ended = min(limit, 400), "length" if limit < 400 else "stop"
        made = ModelCall(model="m", usage=Usage(input_tokens=1, output_tokens=tokens), cost_usd=tokens / 1e4)
        return Answer(text="x", call=made, finish_reason=ended)

    def talking():
        route = CallableRoute(talk)
        route.price = price_of(
            "scripted/echo", {"scripted/echo": {"input": 0, "output": 100}}, at=datetime.now(UTC)
        )
        models = ModelRouter({})
        models.add_route("scripted/echo", route)
        return models

    plan = """
        budget: 0.03
        prices: {scripted/echo: {input: 0, output: 100}}
        matrix: [{prompt: hello, model: scripted/echo, settings: {max_tokens: 10000}}]
    """
    ending = await shop.run(plan, models=talking())

    assert asked == [300]
    assert (ending.status, ending.reason) == ("halted", "budget")
    assert shop.outcomes() == [("queued", "halted")]
    assert shop.store.read.reserved_and_spent("run") == (pytest.approx(0, abs=1e-9), pytest.approx(0.03))

    owner = shop.take_over()
    shop.store.change(batches.change, "run", {"budgetUsd": 0.2})
    await shop.executor(owner, models=talking()).run()

    assert shop.outcomes() == [("success", "completed")]
