"""What a batch is going to take, from what the same agents and models took before."""

from datetime import UTC, datetime

import pytest

from proctor.session import ModelCall, Usage
from proctor.stats.estimate import AgentModel, forecast
from proctor.store import Recorder, timestamp

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def remember(store):
    """Writes down a session that has been: `remember(agent, model, seconds, usd)`."""
    count = iter(range(1000))

    def kept(agent, model, seconds, usd, status="success", job="coding"):
        writer = store.writer()
        row = {"runId": "old", "itemId": "i", "job": job, "status": "running", "agent": agent, "model": model}
        recorder = Recorder(writer, f"s{next(count)}", row | {"startedAt": timestamp(NOW)}, lambda: NOW, str)
        call = ModelCall(model=model, usage=Usage(input_tokens=1), cost_usd=usd, price_source="test")
        recorder.record(call)
        recorder.end(status, "completed", "", work_seconds=seconds, waiting_seconds=0.0)
        writer.close()

    return kept


def test_items_take_what_such_sessions_took_on_average(store, remember):
    for seconds, usd in ((10, 0.1), (20, 0.3)):
        remember("claude", "opus", seconds, usd)
    remember("claude", "opus", 9999, 99.0, status="error")
    remember("claude", "opus", 9999, 99.0, job="benchmark")
    remember("codex", "opus", 9999, 99.0)

    found = forecast(store.read, "coding", {AgentModel("claude", "opus"): 8}, concurrency=4)

    assert found.cost_usd == pytest.approx(1.6)
    assert found.seconds == pytest.approx(30)
    assert (found.sessions, found.known_items, found.items) == (2, 8, 8)
    assert found.basis == "From 2 earlier sessions of the same agents and models."


def test_nothing_takes_less_time_than_its_longest_item(store, remember):
    remember("claude", "opus", 60, None)

    found = forecast(store.read, "coding", {AgentModel("claude", "opus"): 2}, concurrency=100)

    assert found.seconds == 60
    assert found.cost_usd is None


def test_who_was_never_at_work_is_named_and_not_guessed_at(store, remember):
    remember("", "gpt", 1, 0.01)

    found = forecast(
        store.read, "coding", {AgentModel("", "gpt"): 10, AgentModel("amp", "new"): 5}, concurrency=1
    )

    assert found.cost_usd == pytest.approx(0.1)
    assert (found.known_items, found.items) == (10, 15)
    assert "for 10 of 15 items: nothing is known of amp with new." in found.basis


def test_without_any_experience_nothing_is_said(store):
    found = forecast(store.read, "coding", {AgentModel("amp", "new"): 5}, concurrency=1)

    assert (found.cost_usd, found.seconds) == (None, None)
    assert found.basis.startswith("Nothing like it was done here before")
