"""The table that is shown while a benchmark runs."""

from datetime import timedelta
from typing import Any

from rich.console import Console

from proctor.cli.bench import leaderboard_picture
from proctor.item import Item
from proctor.jobs.benchmark.leaderboard import standing


def item(model: str, repeat: int = 1) -> Item:
    return Item(
        runner="benchmark", prompt="x", model=model, factors={"model": model, "task": "t"}, repeat=repeat
    )


def stocked(workshop: Any) -> Any:
    now = workshop.context.now()
    stamp = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    row = {"runId": "run", "createdAt": stamp, "job": "benchmark", "status": "running"}
    items = [item("gpt-4"), item("llama3"), item("llama3", 2), item("idle")]
    workshop.store.create_batch(row, items)
    writer = workshop.store.writer()
    done = {"status": "success", "startedAt": stamp, "finishedAt": stamp, "tokensTotal": 900, "costUsd": 0.25}
    writer.change("batch_items", ("run", items[0].id), done)
    running = {"status": "running", "startedAt": stamp, "sessionId": "s1"}
    writer.change("batch_items", ("run", items[1].id), running)
    writer.add("sessions", ("s1",), {"id": "s1", "runId": "run", "job": "benchmark", "status": "running"})
    call = {"sessionId": "s1", "position": 1, "step": 1, "model": "m", "status": "ok"}
    writer.add("model_calls", ("s1", "1"), {**call, "promptTokens": 100, "completionTokens": 20})
    writer.close()
    return now


async def test_each_model_has_a_row_with_its_state_time_tokens_and_cost(workshop: Any) -> None:
    began = stocked(workshop)

    rows = standing(workshop.store.read, "run", began + timedelta(seconds=5))
    console = Console(width=100, record=True)
    console.print(leaderboard_picture(rows, "batch_1"))
    shown = console.export_text()

    assert [row.state for row in rows] == ["success", "0 of 2 · 1 running", "queued"]
    lines = {line.split()[1]: line for line in shown.splitlines() if "│" in line}
    assert "900" in lines["gpt-4"] and "$0.25" in lines["gpt-4"]
    assert "5 s" in lines["llama3"] and "120" in lines["llama3"]
    assert "queued" in lines["idle"]
    # Without a price the cost is not known: it is not nothing.
    assert {row.model: row.cost_usd for row in rows} == {"gpt-4": 0.25, "llama3": None, "idle": None}
