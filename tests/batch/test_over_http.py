"""Whole batches against a provider on loopback, with its refusals and its bad days."""

import asyncio
import sqlite3
from dataclasses import replace

import aiohttp
import pytest

from proctor.models import ModelRouter, rate_limits
from proctor.models.client import CallRetryPolicy, Client
from proctor.models.rate_limits import RatePools
from proctor.testing import eventually_async
from proctor.testing.model_server import ModelServer, failure, hang_up, reply

KEY = "sk-loopback-0123456789"
QUESTIONS = "{{concurrency: 8, matrix: [{{prompt: hello, model: openai/gpt-5, runs: {runs}, {more}}}]}}"


@pytest.fixture
def ask(workshop):
    """Run a plan of questions against a server."""

    async def run(server, runs=1, more="retries: 0"):
        environment = {**workshop.context.environment, "OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": KEY}
        workshop.context = replace(workshop.context, environment=environment)
        owner = workshop.launch(QUESTIONS.format(runs=runs, more=more))
        workshop.models = ModelRouter(environment)
        return await workshop.executor(owner, models=workshop.models).run()

    return run


async def test_answers_are_recorded_with_their_tokens_and_their_price(workshop, ask):
    async with ModelServer([reply("Hi.", input_tokens=1000, output_tokens=100, cached_tokens=200)]) as server:
        await ask(server, runs=20)

    assert workshop.outcomes() == [("success", "completed")] * 20
    assert len(server.requests) == 20
    (tokens,) = {
        (row["promptTokens"], row["cachedTokens"], row["completionTokens"])
        for row in workshop.rows("sessions")
    }
    assert tokens == (1000, 200, 100)
    calls = workshop.rows("model_calls")
    assert all(row["costUsd"] > 0 and row["priceSource"] for row in calls)
    assert workshop.store.read.totals("run")["costUsd"] == pytest.approx(sum(row["costUsd"] for row in calls))
    assert {row["isMock"] for row in workshop.rows("sessions")} == {0}


async def test_the_key_goes_to_the_provider_and_into_no_record(workshop, ask):
    def tell_tale(request):
        return reply(f"your key is {KEY}")

    async with ModelServer(tell_tale) as server:
        await ask(server)

    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
    written = b"".join(file.read_bytes() for file in workshop.folder.glob("proctor.db*"))
    assert KEY.encode() not in written
    assert [row["content"] for row in workshop.rows("messages") if row["role"] == "assistant"] == [
        "your key is [secret]"
    ]


async def test_a_bad_key_is_said_once_and_not_tried_again(workshop, ask):
    async with ModelServer([failure(401, "Incorrect API key")]) as server:
        await ask(server, more="retries: 3")

    assert workshop.outcomes() == [("error", "auth")]
    assert len(workshop.rows("sessions")) == 1


async def test_a_connection_that_breaks_off_costs_an_attempt_not_the_batch(workshop, ask):
    answers = iter([hang_up()])

    def sometimes(request):
        return next(answers, reply("Hi."))

    async with ModelServer(sometimes) as server:
        await ask(server, runs=10, more="retries: 2")

    assert workshop.outcomes() == [("success", "completed")] * 10
    assert server.most_at_once <= 8


async def test_no_item_starts_while_earlier_ones_cannot_be_committed(workshop, ask):
    """What has ended and is not committed is paid again after a crash: it must not become more and more."""
    locked = sqlite3.connect(workshop.folder / "proctor.db", check_same_thread=False, isolation_level=None)

    def lock_at_the_tenth(request):
        if len(server.requests) == 10:
            locked.execute("BEGIN IMMEDIATE")
        return reply("Hi.")

    async with ModelServer(lock_at_the_tenth) as server:
        running = asyncio.create_task(ask(server, runs=600))
        await eventually_async(lambda: locked.in_transaction)
        # Calls that a run without pauses would have made by now.
        async with aiohttp.ClientSession() as session:
            for _ in range(300):
                await session.post(f"{server.url}/chat/completions", json={"messages": []})
        made = len(server.requests) - 300
        locked.execute("ROLLBACK")
        await running
    locked.close()

    assert made < 150
    assert workshop.outcomes() == [("success", "completed")] * 600


async def test_an_outage_in_the_middle_of_a_run_costs_no_item_and_no_time(workshop, monkeypatch):
    """The server goes away and comes back: every item is done at its first attempt, within its time limit."""
    monkeypatch.setattr(rate_limits, "FIRST_PROBE_SECONDS", 0.02)
    monkeypatch.setattr(rate_limits, "LONGEST_PROBE_SECONDS", 0.05)
    pools = RatePools(outage_patience_seconds=60)
    pools.waits_for_outages = True
    messages = list[str]()
    pools.notify = messages.append
    async with ModelServer([reply("Hi.", delay_seconds=0.02)]) as server:
        port = int(server.url.rpartition(":")[2].partition("/")[0])
        environment = {**workshop.context.environment, "OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": KEY}
        workshop.context = replace(workshop.context, environment=environment)
        owner = workshop.launch(QUESTIONS.format(runs=40, more="retries: 0, timeoutSec: 30"))
        client = Client(CallRetryPolicy(first_pause_seconds=0.01), pools=pools)
        models = ModelRouter(environment, client=client, pools=pools)
        executor = workshop.executor(owner, models=models)
        running = asyncio.create_task(executor.run())
        await eventually_async(lambda: len(server.requests) > 8)
    await eventually_async(lambda: bool(messages))
    assert not running.done()
    async with ModelServer([reply("Hi.")], port=port):
        await running
    await models.close()

    assert workshop.outcomes() == [("success", "completed")] * 40
    assert {row["attempt"] for row in workshop.rows("sessions")} == {1}
    assert "openai/gpt-5 is unreachable, probing" in messages[0]
    assert max(row["waitingSeconds"] for row in workshop.rows("sessions")) > 0
