"""One channel a page: what changes is told, and what was missed."""

from datetime import UTC, datetime

import pytest
from stocked_runs import add_run
from typed import PROMPTS, SLOW
from websockets.exceptions import ConnectionClosedError

from proctor.errors import StoreError
from proctor.web.live import TICK_SECONDS, Hub

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


async def test_a_topic_is_read_after_a_commit_and_once_a_second_without_one(monkeypatch):
    # White-box: how often the store is read is no part of any answer.
    clock, commits, reads = [1000.0], [1], list[int]()

    class Counted:
        def since(self, version):
            reads.append(version)
            return 1, {"full": True}

    monkeypatch.setattr("proctor.web.live.time.monotonic", lambda: clock[0])
    hub = Hub(lambda: commits[0], {"counted": lambda _: Counted()})
    await hub.watch("counted", "")

    async def next_tick(version):
        clock[0] += TICK_SECONDS
        return await hub.changes("counted", "", version)

    assert await next_tick(0) == (1, {"full": True})
    assert await next_tick(1) == (1, {})
    assert reads == [0]
    # A page that has nothing yet is answered at once.
    assert await next_tick(0) == (1, {"full": True})
    commits[0] += 1
    await next_tick(1)
    assert reads == [0, 0, 1]
    for _ in range(4):
        await next_tick(1)
    assert reads == [0, 0, 1, 1]
