"""`kill -9` at any moment: resuming repeats at most what was in flight, loses nothing, doubles nothing."""

import random
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from databases import query
from proctor.store import ItemFilter, Store
from proctor.testing import eventually
from waiting import TIME_LIMIT_SECONDS, while_running

CONCURRENCY = 12
ITEMS = 160


def wait_for(what, process):
    eventually(while_running(process, what))


def kill(process):
    process.kill()
    process.wait()
    process.stdout.close()


def rows(store, sql):
    return query(store, sql)


def marked(session_ids) -> list[str]:
    """The commands of processes that still carry the mark of one of these sessions."""
    wanted = [session_id.encode() for session_id in session_ids]
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and any(mark in (entry / "environ").read_bytes() for mark in wanted):
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            pass
    return found


def check_sums(store: Store) -> None:
    """What an item's row says is what its sessions say, and they what their calls say."""
    (of_items,) = rows(store, 'SELECT SUM("tokensTotal") AS "n" FROM "batch_items"')
    (of_sessions,) = rows(
        store, 'SELECT SUM("totalTokens") AS "n", SUM("modelCalls") AS "calls" FROM "sessions"'
    )
    (of_calls,) = rows(
        store,
        'SELECT SUM("promptTokens" + "completionTokens") AS "n", COUNT(*) AS "calls" FROM "model_calls"',
    )
    assert of_items["n"] == of_sessions["n"] == of_calls["n"]
    assert of_sessions["calls"] == of_calls["calls"]


@pytest.mark.parametrize("seed", [1, 2])
def test_a_batch_that_is_killed_again_and_again_does_every_item_once(proctor, seed):
    (proctor.folder / "calm.yaml").write_text("{latency_seconds: 0.02, rules: [{reply: '{prompt}'}]}")
    (proctor.folder / "plan.yaml").write_text(
        f"{{runId: killed, concurrency: {CONCURRENCY}, "
        f"matrix: [{{prompt: hello, model: scripted/calm, runs: {ITEMS}}}]}}"
    )
    chance = random.Random(seed)
    moments = sorted(chance.sample(range(1, ITEMS - 50), 3))
    command = ("batch", "plan.yaml")
    with proctor.open_store() as store:
        done_before = set()
        for moment in moments:
            process = proctor.start(*command)
            wait_for(lambda moment=moment: finished(store) >= moment, process)
            time.sleep(chance.random() * 0.05)
            kill(process)
            assert store.read.batch("killed", _now())["status"] == "interrupted"
            done = {
                item["id"]
                for item in store.read.items("killed", ItemFilter(statuses=["success"]), limit=ITEMS)
            }
            assert done_before <= done, "what was done stays done"
            cut_off = rows(store, 'SELECT * FROM "sessions" WHERE "status" = \'running\'')
            assert len(cut_off) <= CONCURRENCY
            done_before, command = done, ("batch", "plan.yaml", "--resume")
            attempts_of_done = attempts(store, done)
        last = proctor(*command)

        assert last.returncode == 0, last.stderr
        sessions = rows(store, 'SELECT * FROM "sessions"')
        ended_well = Counter(row["itemId"] for row in sessions if row["status"] == "success")
        assert len(ended_well) == ITEMS
        assert set(ended_well.values()) == {1}
        cut_short = [row for row in sessions if row["status"] != "success"]
        assert {row["endReason"] for row in cut_short} <= {"interrupted"}
        assert len(cut_short) <= CONCURRENCY * len(moments)
        assert attempts(store, done_before) == attempts_of_done, "what was finished was not begun again"
        assert store.read.totals("killed")["counts"]["success"] == ITEMS
        assert store.read.batch("killed", _now())["status"] == "completed"
        check_sums(store)


def attempts(store, item_ids):
    found = Counter(row["itemId"] for row in rows(store, 'SELECT "itemId" FROM "sessions"'))
    return {item_id: found[item_id] for item_id in item_ids}


def finished(store) -> int:
    return store.read.totals("killed")["finished"]


def _now():
    return datetime.now(UTC)


def test_nothing_that_agents_had_started_outlives_a_killed_batch(proctor, repository):
    go = proctor.folder / "go"
    stuck = "setsid sleep 301 & sleep 302 & echo started > started.txt; sleep 303"
    command = f"test -e {go} || ({stuck}); echo fixed > shop.py"
    (proctor.folder / "plan.yaml").write_text(
        f"{{runId: killed, concurrency: 2, matrix: [{{repo: {repository}, prompt: work, agent: command, "
        f"command: '{command}', runs: 3}}]}}"
    )
    process = proctor.start("batch", "plan.yaml")
    with proctor.open_store() as store:
        home = proctor.folder / "proctor-home"
        wait_for(lambda: len(list(home.rglob("started.txt"))) == 2, process)
        sessions = [row["id"] for row in rows(store, 'SELECT "id" FROM "sessions"')]
        assert len(marked(sessions)) >= 6
        kill(process)

        eventually(lambda: not marked(sessions))

        go.touch()
        told = proctor("batch", "plan.yaml", "--resume", "killed")
        assert told.returncode == 0, told.stderr
        assert not list(home.rglob("started.txt")), "the work trees of killed attempts are gone"


def test_the_first_ctrl_c_stops_cleanly_and_the_same_plan_goes_on(proctor):
    (proctor.folder / "calm.yaml").write_text("{latency_seconds: 0.05, rules: [{reply: ok}]}")
    (proctor.folder / "plan.yaml").write_text(
        "{runId: killed, concurrency: 4, matrix: [{prompt: hello, model: scripted/calm, runs: 60}]}"
    )
    process = proctor.start("batch", "plan.yaml")
    with proctor.open_store() as store:
        wait_for(lambda: finished(store) >= 4 if rows(store, 'SELECT 1 FROM "batches"') else False, process)
        process.send_signal(2)
        process.communicate(timeout=TIME_LIMIT_SECONDS)

        assert process.returncode == 130
        assert rows(store, 'SELECT "status" FROM "batches"') == [{"status": "interrupted"}]
        assert rows(store, 'SELECT * FROM "batch_items" WHERE "status" = \'running\'') == []
        assert proctor("resume", "killed").returncode == 0
        assert store.read.totals("killed")["counts"]["success"] == 60


def start_endless(proctor):
    """A run of nine calls, three at a time, that are not answered."""
    (proctor.folder / "slow.yaml").write_text("{latency_seconds: 3600, rules: [{reply: late}]}")
    (proctor.folder / "plan.yaml").write_text(
        "{runId: killed, concurrency: 3, matrix: [{prompt: hello, model: scripted/slow, runs: 9}]}"
    )
    return proctor.start("batch", "plan.yaml")


def test_an_abort_from_another_shell_ends_the_batch_within_seconds(proctor):
    process = start_endless(proctor)
    with proctor.open_store() as store:
        wait_for(lambda: len(rows(store, 'SELECT 1 FROM "sessions"')) == 3, process)
        began = time.monotonic()
        told = proctor("abort-run", "killed")
        assert (told.returncode, told.stderr) == (0, "killed aborted\n")
        process.communicate(timeout=TIME_LIMIT_SECONDS)

        assert time.monotonic() - began < TIME_LIMIT_SECONDS
        assert process.returncode == 3
        found = {(row["status"], row["reason"]) for row in store.read.items("killed")}
        assert found == {("error", "aborted")}


def test_a_process_that_is_only_suspended_still_owns_its_batch(proctor):
    process = start_endless(proctor)
    with proctor.open_store() as store:
        wait_for(lambda: len(rows(store, 'SELECT 1 FROM "sessions"')) == 3, process)
        process.send_signal(19)
        try:
            refused = proctor("resume", "killed")
        finally:
            kill(process)

        assert refused.returncode == 2
        assert f"is already running in process {process.pid}" in refused.stderr
