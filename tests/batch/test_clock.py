"""A clock that is set back while a batch runs gives no negative duration, and the session says so."""

from datetime import UTC, datetime, timedelta

from proctor.batch.executor import run_summary
from proctor.formatting import elapsed
from proctor.store import batches

START = datetime(2026, 11, 16, 12, tzinfo=UTC)
PLAN = "matrix: [{prompt: [one, two], model: scripted/echo}]\nconcurrency: 1\n"


class JumpingClock:
    """Advances a second at each reading, and is set back an hour again and again."""

    def __init__(self) -> None:
        self._readings = 0

    def __call__(self) -> datetime:
        self._readings += 1
        hours_back = self._readings // 4
        return START + timedelta(seconds=self._readings) - timedelta(hours=hours_back)


async def test_no_time_is_before_an_earlier_one_and_no_duration_negative(workshop):
    owner = workshop.launch(PLAN)
    await workshop.executor(owner, now=JumpingClock()).run()

    sessions, items = workshop.rows("sessions"), workshop.items()
    assert all(row["startedAt"] <= row["finishedAt"] for row in [*sessions, *items])
    assert all(row["workSeconds"] >= 0 for row in sessions)
    assert any("the clock was set back" in row["notes"] for row in sessions)
    for row in sessions:
        events = [message["timestamp"] for message in workshop.store.read.of_session("messages", row["id"])]
        assert [row["startedAt"], *events, row["finishedAt"]] == sorted(
            [row["startedAt"], *events, row["finishedAt"]]
        )
    batch = workshop.batch()
    assert batch["createdAt"] <= batch["finishedAt"]
    summary = run_summary(workshop.store, batch, START - timedelta(days=1))
    assert summary["durationSec"] >= 0


async def test_times_that_an_earlier_version_wrote_give_no_negative_duration(workshop):
    await workshop.run(PLAN)
    changes = {"createdAt": "2026-11-16T12:00:00.000Z", "finishedAt": "2026-11-16T11:00:00.000Z"}
    workshop.store.change(batches.change, "run", changes)

    summary = run_summary(workshop.store, workshop.batch(), START)

    assert summary["durationSec"] is None
    assert elapsed(START, START - timedelta(seconds=1)) is None
    assert elapsed(START, START + timedelta(seconds=2)) == 2.0
