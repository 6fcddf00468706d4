"""One channel a page: what changes is told, and what was missed."""

import json
from types import SimpleNamespace

import pytest
from typed import PROMPTS, SLOW
from websockets.exceptions import ConnectionClosedError
from websockets.sync.client import connect

from proctor.errors import StoreError
from proctor.web.live import TICK_SECONDS, Hub, RunsTopic
from waiting import TIME_LIMIT_SECONDS


def test_a_page_that_watches_the_runs_is_told_what_changes(served, slow_model):
    with connect(f"ws://127.0.0.1:{served.port}/api/live") as live:
        live.send(json.dumps({"watch": [{"topic": "runs", "id": ""}]}))
        first = json.loads(live.recv(timeout=TIME_LIMIT_SECONDS))
        assert (first["full"], first["changes"]["changed"]) == (True, [])

        run_id = served.start(SLOW, overrides={"runId": "watched"})
        seen = next_change(live, lambda run: run["counts"]["running"] == 2)
        assert (seen["runId"], seen["status"], seen["itemCount"]) == (run_id, "running", 4)

        served.post("/api/runs/watched/abort")
        ended = next_change(live, lambda run: run["status"] == "aborted")
        assert ended["counts"]["error"] == 4

        served.ask("DELETE", "/api/runs/watched")
        while not (told := json.loads(live.recv(timeout=TIME_LIMIT_SECONDS)))["changes"]["removed"]:
            pass
        assert told["changes"]["removed"] == ["watched"]


def next_change(live, wanted):
    """The next line of a run that is as wanted."""
    while True:
        for run in json.loads(live.recv(timeout=TIME_LIMIT_SECONDS))["changes"]["changed"]:
            if wanted(run):
                return run


def test_a_page_that_was_away_is_told_only_what_it_missed(served):
    address = f"ws://127.0.0.1:{served.port}/api/live"
    with connect(address) as live:
        live.send(json.dumps({"watch": [{"topic": "runs", "id": ""}]}))
        live.recv(timeout=TIME_LIMIT_SECONDS)
        served.start(PROMPTS, overrides={"runId": "seen"})
        while (known := json.loads(live.recv(timeout=TIME_LIMIT_SECONDS)))["changes"]["changed"][0][
            "status"
        ] != "completed":
            pass
    served.wait_for(served.start(PROMPTS, overrides={"runId": "missed"}), "completed")

    with connect(address) as live:
        again = {"topic": "runs", "id": "", "version": known["version"], "epoch": known["epoch"]}
        live.send(json.dumps({"watch": [again]}))
        told = json.loads(live.recv(timeout=TIME_LIMIT_SECONDS))
    assert (told["full"], told["epoch"]) == (False, known["epoch"])
    assert [run["runId"] for run in told["changes"]["changed"]] == ["missed"]

    with connect(address) as live:
        # Of a server before this one: nothing that the page has counts.
        live.send(json.dumps({"watch": [{**again, "epoch": "another"}]}))
        assert json.loads(live.recv(timeout=TIME_LIMIT_SECONDS))["full"] is True


def test_who_watches_what_is_not_there_is_told_so(served):
    with connect(f"ws://127.0.0.1:{served.port}/api/live") as live:
        live.send(json.dumps({"watch": [{"topic": "weather", "id": "x"}, {"topic": "run", "id": "none"}]}))

        told = [json.loads(live.recv(timeout=TIME_LIMIT_SECONDS)) for _ in range(2)]

    assert [each["error"]["problem"] for each in told] == [
        "there is no topic weather",
        "there is no run none",
    ]


@pytest.mark.parametrize(
    "message", ["{", "[]", '{"watch": 1}', '{"watch": [' + "1," * 30 + "1]}", "x" * 30_000, b"\xff\xfe"]
)
def test_a_message_that_makes_no_sense_ends_the_channel_and_nothing_else(served, message):
    with connect(f"ws://127.0.0.1:{served.port}/api/live") as live:
        live.send(message)
        with pytest.raises(ConnectionClosedError, match="4400"):
            live.recv(timeout=TIME_LIMIT_SECONDS)

    assert served.get("/api/runs").status == 200


def fails_once(monkeypatch, error):
    """The topic of all runs fails when it is asked for the first time."""
    answers, left = RunsTopic.state, [error]

    async def state(topic, version):
        if left:
            raise left.pop()
        return await answers(topic, version)

    monkeypatch.setattr(RunsTopic, "state", state)


def test_a_store_that_does_not_answer_for_a_moment_ends_no_channel(served, monkeypatch):
    fails_once(monkeypatch, StoreError("store error: database is locked"))
    with connect(f"ws://127.0.0.1:{served.port}/api/live") as live:
        live.send(json.dumps({"watch": [{"topic": "runs", "id": ""}]}))
        assert json.loads(live.recv(timeout=TIME_LIMIT_SECONDS))["full"] is True


def test_a_page_that_cannot_be_told_is_cut_off_so_that_it_connects_anew(served, monkeypatch):
    fails_once(monkeypatch, ValueError("a mistake of ours"))
    watched = json.dumps({"watch": [{"topic": "runs", "id": ""}]})
    with connect(f"ws://127.0.0.1:{served.port}/api/live") as live:
        live.send(watched)
        with pytest.raises(ConnectionClosedError):
            live.recv(timeout=TIME_LIMIT_SECONDS)

    with connect(f"ws://127.0.0.1:{served.port}/api/live") as live:
        live.send(watched)
        assert json.loads(live.recv(timeout=TIME_LIMIT_SECONDS))["full"] is True


async def test_a_topic_is_read_after_a_commit_and_once_a_second_without_one(monkeypatch):
    clock, commits, reads = [1000.0], [1], list[int]()

    class Counted:
        async def state(self, version):
            reads.append(version)
            return 1, {"full": True}

    monkeypatch.setattr("proctor.web.live.time.monotonic", lambda: clock[0])
    site = SimpleNamespace(store=SimpleNamespace(commits=lambda: commits[0]))
    hub = Hub(site, {"counted": lambda *_: Counted()})
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
