"""Parts of attempts, hosts and engines on their own: agents, people, money, calls of workers, branches."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from proctor.batch import session_branch
from proctor.batch.attempt import Attempt
from proctor.batch.engines import ray_node
from proctor.batch.engines.messages import HostCall, HostReply, SetConcurrency, WorkChunk
from proctor.batch.engines.remote import RemoteEngine
from proctor.batch.engines.worker_process import _ProcessWorker
from proctor.batch.executor import StoreHost
from proctor.errors import CostLimit, UsageError
from proctor.runner import MergeRequest
from proctor.sandbox import Sandbox

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def bare(made, **members):
    """An object without what its constructor needs."""
    instance = made.__new__(made)
    for name, value in members.items():
        setattr(instance, name, value)
    return instance


# --- An attempt ---


@pytest.mark.parametrize("is_stand_in", [False, True])
@pytest.mark.parametrize("was_known", [False, True])
@pytest.mark.parametrize("reach", ["own", "gateway", "models"])
def test_an_agent_is_found_and_noted(is_stand_in, was_known, reach):
    changes, found = [], []
    agent = SimpleNamespace(stand_in=is_stand_in, reach=reach)

    def find_agent(name, settings):
        found.append((name, settings))
        return agent

    attempt = bare(
        Attempt,
        _agent_was_called=False,
        _context=SimpleNamespace(find_agent=find_agent),
        _reservation=SimpleNamespace(is_blind=None),
        _stand_in=was_known,
        _session_id="s",
        _support=SimpleNamespace(rows=SimpleNamespace(change=lambda *change: changes.append(change))),
    )
    assert attempt._agent("a", {"x": 1}) is agent
    assert found == [("a", {"x": 1})]
    assert attempt._agent_was_called is True
    assert attempt._reservation.is_blind is (reach == "own")
    assert attempt._stand_in is (is_stand_in or was_known)
    is_changed = is_stand_in and not was_known
    assert changes == ([("sessions", ("s",), {"standIn": 1})] if is_changed else [])


@pytest.mark.parametrize(
    ("earlier", "runs", "is_cut_off"), [(None, True, True), (None, False, False), ("first", True, False)]
)
def test_an_attempt_is_cut_off_once_while_it_runs(earlier, runs, is_cut_off):
    cancelled = []
    task = SimpleNamespace(cancel=lambda: cancelled.append(1)) if runs else None
    attempt = bare(Attempt, _limit_reached=earlier, _task=task)
    limit = CostLimit("too much")
    attempt._cut_off(limit)
    assert attempt._limit_reached is (limit if is_cut_off else earlier)
    assert len(cancelled) == is_cut_off


async def test_the_time_in_which_a_person_thinks_is_no_work_of_the_agent(monkeypatch):
    monkeypatch.setattr("proctor.batch.attempt.PAUSE_SECONDS", 0.01)
    waited, asked = [], []

    async def ask(*question):
        asked.append(question)
        await asyncio.sleep(0.03)
        return "yes"

    attempt = bare(
        Attempt,
        _support=SimpleNamespace(ask_person=ask),
        _work=SimpleNamespace(id="i"),
        _clock=SimpleNamespace(waited=waited.append),
    )
    began = asyncio.get_running_loop().time()
    assert await attempt._ask_person("actor", "prompt") == "yes"
    took = asyncio.get_running_loop().time() - began
    assert asked == [("i", "actor", "prompt")]
    assert waited.count(0.01) >= 1 and min(waited) >= 0.0
    # Never less than what passed.
    assert sum(waited) >= took - 0.02
    attempt._support.ask_person = None
    assert await attempt._ask_person("actor", "prompt") == ""


async def test_a_person_is_not_asked_any_longer_when_the_attempt_is_cancelled():
    ended = []

    async def ask(*_):
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(1)

    attempt = bare(
        Attempt,
        _support=SimpleNamespace(ask_person=ask),
        _work=SimpleNamespace(id="i"),
        _clock=SimpleNamespace(waited=lambda seconds: None),
    )
    task = asyncio.create_task(attempt._ask_person("a", "p"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [1]


# --- The host and its workers ---


async def test_money_is_returned_to_the_ledger():
    returned = []
    store = SimpleNamespace(return_money=lambda *call: returned.append(call))
    host = bare(StoreHost, _store=store, _run_id="r", context=SimpleNamespace(now=lambda: NOW))
    await host.give_back("holder", 0.5)
    assert returned == [("r", "holder", 0.5, NOW)]


class Engine(RemoteEngine):
    """Splits limits and reclaims money visibly."""

    async def _start_workers(self, queue, host, spec):
        return set()

    def close(self):
        pass

    def _split_limits(self, link, states, others):
        return "split", link, states, others

    def _reclaim_money(self, link):
        self.reclaimed = link


async def test_calls_of_workers_to_the_host():
    calls = []

    async def method(*arguments, **options):
        calls.append((arguments, options))
        return "value"

    host = SimpleNamespace(share_limits=method, give_back=method, secret=method)
    engine = bare(Engine)
    shared = await engine._call_host("link", HostCall(1, "share_limits", ("holder", ["state"]), {}), host)
    assert shared == ("split", "link", ["state"], "value")
    assert await engine._call_host("link", HostCall(2, "give_back", ("h", 1), {"x": 2}), host) == "value"
    assert calls == [(("holder", ["state"]), {}), (("h", 1), {"x": 2})]
    with pytest.raises(TypeError, match="workers cannot call secret"):
        await engine._call_host("link", HostCall(3, "secret", (), {}), host)


async def test_a_call_that_has_ended_is_answered():
    sent = []
    link = SimpleNamespace(calls={1: "x", 2: "y", 3: "z"}, channel=SimpleNamespace(send=sent.append))

    async def fail():
        raise ValueError("no")

    async def give():
        return 5

    tasks = [asyncio.create_task(give()), asyncio.create_task(fail()), asyncio.create_task(give())]
    tasks[2].cancel()
    await asyncio.wait(tasks)
    for number, task in enumerate(tasks, start=1):
        RemoteEngine._reply(link, number, task)
    assert link.calls == {}
    assert [(reply.number, getattr(reply, "value", None)) for reply in sent if not reply.error] == [
        (1, 5),
        (3, None),
    ]
    (failed,) = (reply for reply in sent if reply.error)
    assert failed.number == 2 and isinstance(failed, HostReply) and str(failed.error) == "no"


async def test_the_error_of_one_task_stops_the_workers_and_is_raised_when_all_have_ended():
    stopped, ended = asyncio.Event(), []

    async def work():
        await stopped.wait()
        ended.append(1)

    async def fail():
        raise ValueError("no")

    engine = bare(Engine)
    engine._stop_workers = stopped.set
    with pytest.raises(ValueError, match=r"^no$"):
        await engine._wait_for({asyncio.create_task(work()), asyncio.create_task(fail())})
    assert ended == [1]
    stopped.clear()

    async def nothing():
        pass

    await engine._wait_for({asyncio.create_task(nothing())})
    assert not stopped.is_set()


async def test_messages_start_what_waits_in_a_worker(monkeypatch):
    messages = [
        WorkChunk(items=["a", "b"]),
        SetConcurrency(concurrency=5),
        SetConcurrency(concurrency=2),
        HostReply(7),
        None,
    ]
    starts, answered = [], []

    async def receive():
        return messages.pop(0)

    def leave(code):
        raise SystemExit(code)

    monkeypatch.setattr("proctor.batch.engines.worker_process.os._exit", leave)
    worker = bare(
        _ProcessWorker,
        _channel=SimpleNamespace(receive=receive),
        _waiting=[],
        _concurrency=3,
        _wanted_concurrency=3,
        _host=SimpleNamespace(answered=answered.append),
        _worker=None,
    )
    worker._start_waiting = lambda: starts.append((len(worker._waiting), worker._concurrency))
    with pytest.raises(SystemExit) as raised:
        await worker._read()
    assert raised.value.code == 1
    assert starts == [(2, 3), (2, 5), (2, 5)]
    assert worker._wanted_concurrency == 2 and [reply.number for reply in answered] == [7]


# --- A worker on a node ---


def node(**members):
    usual = {"_incoming": bytearray(), "_has_ended": False, "_arrived": asyncio.Event(), "_called_at": 0.0}
    return bare(ray_node.NodeActor, **{**usual, **members})


async def test_messages_to_and_from_the_worker_of_a_node():
    written = []

    async def drain():
        written.append("drain")

    worker = node(_writer=SimpleNamespace(write=written.append, drain=drain))
    await worker.deliver(b"frames")
    assert written == [b"frames", "drain"] and worker._called_at > 0

    chunks = [b"ab", b"cd", b""]

    async def read(size):
        return chunks.pop(0)

    worker._reader = SimpleNamespace(read=read)
    await worker._read()
    assert worker._arrived.is_set()
    assert await worker.collect() == (b"abcd", True)
    assert await worker.collect() == (b"", True)


async def test_messages_of_a_running_worker_are_waited_for(monkeypatch):
    worker = node()

    async def arrive():
        worker._incoming += b"x"
        worker._arrived.set()

    task = asyncio.create_task(arrive())
    assert await worker.collect() == (b"x", False)
    await task
    monkeypatch.setattr(ray_node, "COLLECT_SECONDS", 0.001)
    assert await worker.collect() == (b"", False)


# --- Branches of sessions ---


def branch(**details):
    item = {
        "prompt": "  Repair\nit.",
        "details": json.dumps(details),
        "settings": json.dumps({"timeoutSec": 7, "sandbox": "none"}),
    }
    row = {"id": "s", "name": "n", "branch": "batch/r/1", "baseBranch": "main", "repo": "/x"}
    return session_branch.SessionBranch(row, item, SimpleNamespace(root=Path("/x")))


@pytest.fixture
def merges(monkeypatch):
    """Requests to merge, which succeed."""
    calls = []

    async def merge(request, **settings):
        calls.append((request, settings))
        return SimpleNamespace(merges=["one", "two"])

    monkeypatch.setattr(session_branch.merge_queue, "merge", merge)
    return calls


SETTINGS = SimpleNamespace(
    home=Path("/home"), user_environment={"A": "1", "HOME": "/h"}, confinement=Sandbox(), environment={}
)


async def test_a_session_is_merged_to_its_base_or_to_another_branch(merges):
    saved = []
    store = SimpleNamespace(save_merge=lambda *call: saved.append(call))
    await session_branch.merge_branch(store, SETTINGS, branch(), lambda: NOW)
    await session_branch.merge_branch(store, SETTINGS, branch(), lambda: NOW, onto="other", message="m")
    first, second = (request for request, _ in merges)
    assert (first.base_branch, first.message, first.branch) == ("main", "Repair\n\nn", "batch/r/1")
    assert (second.base_branch, second.message, second.repo) == ("other", "m", Path("/x"))
    assert saved[:2] == [("s", "one", NOW), ("s", "two", NOW)]
    assert merges[0][1] == {
        "home": Path("/home"),
        "environment": SETTINGS.user_environment,
        "sandbox": SETTINGS.confinement,
    }


@pytest.mark.parametrize("check", [False, True])
async def test_the_check_of_an_item_runs_again_unless_it_is_left_out(merges, check):
    store = SimpleNamespace(save_merge=lambda *call: None)
    made = branch(scriptCommand="make test")
    await session_branch.merge_branch(store, SETTINGS, made, lambda: NOW, check=check)
    ((request, _),) = merges
    assert isinstance(request, MergeRequest)
    assert request.check == ("make test" if check else MergeRequest.__dataclass_fields__["check"].default)
    if check:
        assert (request.attempt, request.time_limit, request.sandbox) == ("merge-s", 7, "none")


@pytest.mark.parametrize(
    ("prompt", "title"), [("", "A session"), ("x" * 80, "x" * 72), ("one\ntwo", "one"), (None, "A session")]
)
def test_the_title_of_a_squash(prompt, title):
    made = branch()
    made = session_branch.SessionBranch(made.row, None if prompt is None else {"prompt": prompt}, made.source)
    assert made.title == f"{title}\n\nn"


@pytest.mark.parametrize(
    ("result", "files", "error", "problem"),
    [
        ("success", (), "", ""),
        ("conflict", ("a", "b"), "x", "conflicts in a, b"),
        ("failed", (), "why", "why"),
    ],
)
def test_why_a_session_was_not_merged(result, files, error, problem):
    end = SimpleNamespace(result=result, conflict_files=files, error=error)
    assert session_branch.merge_problem(SimpleNamespace(result=end)) == problem


def rows_of(*statuses, run="r"):
    return [
        {"id": f"s{number}", "status": status, "startedAt": started, "runId": run}
        for number, (status, started) in enumerate(statuses)
    ]


@pytest.mark.parametrize(
    ("run_status", "session_status", "is_refused"),
    [("running", "running", True), ("running", "success", False), ("interrupted", "running", False)],
)
def test_sessions_of_a_running_run_are_not_cleaned_up(run_status, session_status, is_refused):
    rows = rows_of(("success", "2"), (session_status, None), ("success", "1"))
    read = SimpleNamespace(
        batch=lambda run, moment: {"runId": "whole", "status": run_status},
        sessions=lambda scope, limit: list(rows) if scope.run_id == "whole" else [],
        session=lambda session: rows[1],
    )
    store = SimpleNamespace(read=read)
    for asked in ({"run": "r"}, {"session": "s1"}):
        if is_refused:
            with pytest.raises(UsageError, match="the run is still running"):
                session_branch.sessions_to_clean(store, NOW, **asked)
        else:
            found = session_branch.sessions_to_clean(store, NOW, **asked)
            assert [row["id"] for row in found] == (["s1", "s2", "s0"] if "run" in asked else ["s1"])
