"""A whole batch on each of the databases: run, stopped, resumed, extended, budgeted, deleted."""

import asyncio

from proctor.errors import ModelError
from proctor.runner import Outcome
from proctor.session import Message, ModelCall, ToolCall, Usage
from proctor.store import Scope

PLAN = """
budget: 2.0
concurrency: 20
matrix: [{{prompt: {prompt}, model: scripted/echo, runs: 30, retries: 1}}]
"""
LONG = "a text that is kept once\n" * 1000


class Busy:
    """Does a bit of everything; every tenth item needs a second try, every fifteenth fails."""

    async def run(self, item, services):
        services.record(Message(role="user", content=LONG))
        services.record(ModelCall(model="m", usage=Usage(input_tokens=7, output_tokens=3), cost_usd=0.001))
        services.record(ToolCall(name="edit", args={"path": "ü ? % _"}, success=True))
        await asyncio.sleep(0.005)
        if item.repeat % 10 == 0 and services.attempt == 1:
            raise ModelError("again")
        return Outcome(status="fail", reason="checks_failed") if item.repeat % 15 == 0 else Outcome()


async def test_a_batch_is_stopped_resumed_extended_and_deleted(workshop):
    owner = workshop.launch(PLAN.format(prompt="hello"))
    seen = []
    changes = {"find_runner": lambda name: Busy()}

    def stop_half_way(end):
        seen.append(end.id)
        if len(seen) == 12:
            executor.interrupt()

    executor = workshop.executor(owner, watch=stop_half_way, **changes)
    assert (await executor.run()).end.status == "interrupted"
    assert (await workshop.resume(**changes)).status == "completed"

    totals = workshop.store.read.totals("run")
    sessions = workshop.rows("sessions")
    assert (totals["counts"]["success"], totals["counts"]["fail"]) == (28, 2)
    assert totals["tokens"] == 10 * len(sessions) == sum(row["totalTokens"] for row in sessions)
    tried_again = [row for row in sessions if row["endReason"] in ("model_failed", "interrupted")]
    assert len(sessions) == 30 + len(tried_again)
    assert len(workshop.rows("blobs")) == 1
    reserved, spent = workshop.store.read.reserved_and_spent("run")
    assert abs(reserved) < 1e-9
    assert abs(spent - 0.001 * len(sessions)) < 1e-9

    owner = workshop.take_over()
    extended = PLAN.format(prompt="[hello, goodbye]")
    told = workshop.extend(extended)
    assert (told.added, told.dropped) == (30, 0)
    assert (await workshop.executor(owner, **changes).run()).end.status == "completed"
    assert len(list(workshop.store.read.table("messages", Scope(run_id="run")))) == len(
        workshop.rows("sessions")
    )

    workshop.store.delete_batch("run")
    for table in ("batches", "batch_items", "sessions", "messages", "model_calls", "ledger", "blobs"):
        assert workshop.rows(table) == []
