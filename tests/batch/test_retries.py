"""A retry adds an attempt and deletes none; what a second try cannot mend is not tried again."""

import random

import pytest
from stand_ins import call, doing

import proctor
from proctor.context import ItemRetryPolicy
from proctor.errors import AgentError, ModelError, RateLimited, TimeLimit, WorkspaceError
from proctor.item import Item
from proctor.store import ItemFilter
from proctor.testing import eventually_async


def plan(settings: str, runs: int = 1) -> str:
    return f"matrix: [{{prompt: hello, model: scripted/echo, runs: {runs}, {settings}}}]"


async def test_each_retry_is_an_attempt_of_its_own_and_none_is_lost(workshop):
    async def third_time_lucky(item, services):
        services.record(call(0.5))
        if services.attempt < 3:
            raise ModelError(f"no answer, time {services.attempt}")

    await workshop.run(plan("retries: 5"), find_runner=doing(third_time_lucky))

    (item,) = workshop.items()
    sessions = workshop.rows("sessions", '"attempt"')
    assert [(row["attempt"], row["status"], row["endReason"]) for row in sessions] == [
        (1, "error", "model_failed"),
        (2, "error", "model_failed"),
        (3, "success", "completed"),
    ]
    assert len({row["id"] for row in sessions}) == 3
    assert (item["status"], item["reason"], item["error"]) == ("success", "completed", "")
    assert item["sessionId"] == sessions[-1]["id"]
    assert (item["costUsd"], item["tokensTotal"]) == (1.5, 6), (
        "all that was spent, not the last attempt alone"
    )
    assert [(end.attempts, end.cost_usd) for end in workshop.finished] == [(3, 1.5)]


async def test_after_the_last_retry_the_last_reason_stands(workshop):
    async def fail(item, services):
        raise RateLimited(f"wait, {services.attempt}")

    await workshop.run(plan("retries: 2"), find_runner=doing(fail))

    (item,) = workshop.items()
    assert (item["status"], item["reason"], item["error"]) == ("error", "rate_limit", "wait, 3")
    assert len(workshop.rows("sessions")) == 3


@pytest.mark.parametrize(
    ("retry_on", "error", "attempts"),
    [
        ("", ModelError("x"), 3),
        ("", TimeLimit("x"), 3),
        ("", AgentError("x"), 1),
        ("retryOn: [timeout]", ModelError("x"), 1),
        ("retryOn: [timeout]", TimeLimit("x"), 3),
        ("retryOn: [fail]", AgentError("x"), 3),
        ("retryOn: [fail]", WorkspaceError("x"), 1),
        ("", ModelError("x", reason="auth"), 1),
        ("", ModelError("x", reason="bad_request"), 1),
    ],
)
async def test_what_is_tried_again_is_what_the_plan_says(workshop, retry_on, error, attempts):
    async def fail(item, services):
        raise error

    await workshop.run(plan(f"retries: 2, {retry_on}"), find_runner=doing(fail))

    assert len(workshop.rows("sessions")) == attempts


@pytest.mark.parametrize(("settings", "attempts"), [({}, 1), ({"retries": 1}, 2)])
def test_items_from_python_are_tried_again_only_if_they_say_so(tmp_path, monkeypatch, settings, attempts):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.yaml").write_text("{failures: {every: 1, status: 400}, rules: [{reply: x}]}")
    (tmp_path / "wrong.yaml").write_text("rules: [{reply: x}]")
    items = [
        Item(
            prompt="hello", model=f"scripted/{model}", settings=settings, details={"expect": {"equals": "y"}}
        )
        for model in ("broken", "wrong")
    ]

    run = proctor.run(items=items, home=tmp_path / "home", progress=False)

    assert [(item.status, len(item.attempts)) for item in run.items()] == [("error", attempts), ("fail", 1)]


async def test_other_items_are_carried_out_while_one_waits_for_its_next_try(workshop):
    order = []

    async def once(item, services):
        order.append((item.repeat, services.attempt))
        if item.repeat == 1 and services.attempt == 1:
            raise ModelError("later")

    text = "concurrency: 1\n" + plan("retries: 1", runs=4)
    await workshop.run(text, find_runner=doing(once))

    assert order == [(1, 1), (2, 1), (3, 1), (4, 1), (1, 2)]


async def test_an_item_that_waits_for_its_next_try_is_queued(workshop):
    seen = []

    async def fail(item, services):
        seen.extend(workshop.store.read.items("run", ItemFilter(search=item.prompt)))
        if services.attempt == 1:
            raise ModelError("later")

    await workshop.run(plan("retries: 1"), find_runner=doing(fail))

    assert [(row["status"], row["reason"]) for row in seen] == [("queued", ""), ("queued", "model_failed")]


async def test_many_items_that_all_come_back_at_once_are_all_done(workshop):
    async def once(item, services):
        if services.attempt == 1:
            raise ModelError("later")

    text = "concurrency: 300\n" + plan("retries: 1", runs=300)
    ending = await workshop.run(text, find_runner=doing(once))

    assert ending.status == "completed"
    assert workshop.outcomes() == [("success", "completed")] * 300
    assert len(workshop.rows("sessions")) == 600


def test_the_delay_doubles_has_a_top_and_is_spread():
    policy = ItemRetryPolicy(first_seconds=1, longest_seconds=10)
    rng = random.Random(1)

    def delays(tries):
        return [
            policy.delay(status="error", reason="x", tries=tries, retries=99, retry_on=("error",), rng=rng)
            for _ in range(50)
        ]

    for tries, longest in ((1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (60, 10)):
        found = delays(tries)
        assert longest / 2 <= min(found) < max(found) <= longest


async def test_tries_that_were_cut_off_do_not_count_against_the_retries(workshop):
    import asyncio

    async def slow(item: Item, services):
        if services.attempt <= 2:
            await asyncio.sleep(3600)
        raise ModelError("no")

    owner = workshop.launch(plan("retries: 1"))
    for _ in range(2):
        executor = workshop.executor(owner, find_runner=doing(slow))
        running = asyncio.create_task(executor.run())
        await eventually_async(
            lambda: [row["status"] for row in workshop.rows("sessions", '"attempt"')][-1:] == ["running"]
        )
        executor.interrupt()
        await running
        owner = workshop.take_over()
    await workshop.executor(owner, find_runner=doing(slow)).run()

    reasons = [row["endReason"] for row in workshop.rows("sessions", '"attempt"')]
    assert reasons == ["interrupted", "interrupted", "model_failed", "model_failed"]
