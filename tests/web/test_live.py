"""One channel a page: what changes is told, and what was missed."""

import os
import signal
import time
from datetime import UTC, datetime
from operator import sub

import pytest
from stocked_runs import add_run
from typed import PROMPTS, SLOW
from websockets.exceptions import ConnectionClosedError

from proctor.errors import StoreError
from proctor.testing import eventually

RUNS = ("runs", "")


def test_a_page_that_watches_the_runs_is_told_what_changes(served, slow_model):
    with served.live() as live:
        first = live.watch(RUNS)
        assert (first["full"], first["changes"]["changed"]) == (True, [])

        run_id = served.start(SLOW, overrides={"runId": "watched"})
        seen = next_change(live, lambda run: run["counts"]["running"] == 2)
        assert (seen["runId"], seen["status"], seen["itemCount"]) == (run_id, "running", 4)

        served.post("/api/runs/watched/abort")
        ended = next_change(live, lambda run: run["status"] == "aborted")
        assert ended["counts"]["error"] == 4

        served.ask("DELETE", "/api/runs/watched")
        while not (told := live.next())["changes"]["removed"]:
            pass
        assert told["changes"]["removed"] == ["watched"]


def test_a_run_whose_process_is_killed_is_told_although_nothing_is_committed(served, slow_model):
    with served.live() as live:
        live.watch(RUNS)
        run_id = served.start(SLOW, overrides={"runId": "killed"})
        next_change(live, lambda run: run["counts"]["running"] == 2)
        process = int(served.site.context.store.read.exact_batch(run_id)[0]["owner"].split(":")[-3])
        os.kill(process, signal.SIGKILL)
        assert next_change(live, lambda run: run["status"] != "running")["status"] == "interrupted"


def next_change(live, wanted):
    """The next line of a run that is as wanted."""
    while True:
        for run in live.next()["changes"]["changed"]:
            if wanted(run):
                return run


def test_a_page_that_was_away_is_told_only_what_it_missed(served):
    with served.live() as live:
        live.watch(RUNS)
        served.start(PROMPTS, overrides={"runId": "seen"})
        while (known := live.next())["changes"]["changed"][0]["status"] != "completed":
            pass
    served.wait_for(served.start(PROMPTS, overrides={"runId": "missed"}), "completed")

    again = {"topic": "runs", "id": "", "version": known["version"], "epoch": known["epoch"]}
    with served.live() as live:
        told = live.watch(again)
    assert (told["full"], told["epoch"]) == (False, known["epoch"])
    assert [run["runId"] for run in told["changes"]["changed"]] == ["missed"]

    # Of a server before this one, or in no form that a version has: nothing that the page has counts.
    for wrong in ({"epoch": "another"}, {"version": str(known["version"])}):
        with served.live() as live:
            assert live.watch(again | wrong)["full"] is True


def test_who_watches_what_is_not_there_is_told_so(shared):
    with shared.live() as live:
        told = [live.watch(("weather", "x"), ("run", "none")), live.next()]

    expected = ["there is no topic weather", "there is no run none"]
    assert [each["error"]["problem"] for each in told] == expected


def test_who_watches_a_run_that_is_deleted_is_told_so(shared):
    add_run(shared.site.context.store, "brief")
    with shared.live() as live:
        live.watch(("run", "brief"))
        shared.ask("DELETE", "/api/runs/brief")
        assert live.next()["error"]["problem"] == "there is no run brief"


@pytest.mark.parametrize(
    "message", ["{", "[]", '{"watch": 1}', '{"watch": [' + "1," * 30 + "1]}", "x" * 30_000, b"\xff\xfe"]
)
def test_a_message_that_makes_no_sense_ends_the_channel_and_nothing_else(shared, message):
    with shared.live() as live:
        live.socket.send(message)
        with pytest.raises(ConnectionClosedError, match="4400"):
            live.next()

    assert shared.get("/api/runs").status == 200


class FailingClock:
    """The time, and once an error instead, as of a store that cannot be read."""

    error = None

    def __call__(self):
        if self.error:
            error, self.error = self.error, None
            raise error
        return datetime.now(UTC)


def test_a_store_that_does_not_answer_for_a_moment_ends_no_channel(serve):
    clock = FailingClock()
    served = serve(now=clock)
    with served.live() as live:
        clock.error = StoreError("store error: database is locked")
        assert live.watch(RUNS)["full"] is True
    assert clock.error is None


def test_a_page_that_cannot_be_told_is_cut_off_so_that_it_connects_anew(serve):
    clock = FailingClock()
    served = serve(now=clock)
    with served.live() as live:
        clock.error = ValueError("a mistake of ours")
        with pytest.raises(ConnectionClosedError):
            live.watch(RUNS)

    with served.live() as live:
        assert live.watch(RUNS)["full"] is True


class RecordingClock:
    """The time; remembers when it was asked for, which each read of a topic does."""

    def __init__(self):
        self.asked = list[float]()

    def __call__(self):
        self.asked.append(time.monotonic())
        return datetime.now(UTC)

    def pauses(self):
        """Seconds between reads; calls that follow within a tenth of a second belong to one read."""
        return [pause for pause in map(sub, self.asked[1:], self.asked) if pause > 0.1]


def test_a_store_without_commits_is_not_read_at_every_tick(serve):
    clock = RecordingClock()
    with serve(now=clock).live() as live:
        live.watch(RUNS)
        clock.asked.clear()
        eventually(lambda: len(clock.pauses()) == 2)

    # A tick is 0.3 s.
    assert min(clock.pauses()) > 0.5
