"""Parts of the driver: sessions, what is left of killed processes, pages, ends, imports."""

import asyncio
import os
import socket
import stat
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import pytest
from work_items import NOW, Pages, queued

from proctor.batch import executor, ingest, session_branch
from proctor.batch.engines import LocalEngine, processes, ray, ray_node
from proctor.batch.engines.messages import AttemptEnd, WorkerSpec
from proctor.batch.engines.processes import ProcessEngine, WorkerLauncher
from proctor.batch.engines.worker import Worker, make_worker_context
from proctor.batch.executor import Executor, SessionCache, StoreHost, clear_leftovers
from proctor.batch.queue import WorkQueue
from proctor.errors import Aborted, Interrupted, ProctorError, StoreError, UsageError, WorkspaceError
from proctor.evaluator import Evidence
from proctor.job import ItemFinished
from proctor.runner import Outcome
from proctor.store import MoneyLimits
from proctor.telemetry import normalised


def bare(made, **members):
    """An object without what its constructor needs."""
    instance = made.__new__(made)
    for name, value in members.items():
        setattr(instance, name, value)
    return instance


def finished(value=None):
    future = Future()
    future.set_result(value)
    return future


# --- Sessions ---


async def test_a_session_of_a_group_that_cannot_be_read_is_read_alone_and_kept():
    alone = []

    def evidence(session_id):
        alone.append(session_id)
        return Evidence(session_id=session_id)

    def of_first(ids, most):
        raise StoreError("one of them is damaged")

    cache = SessionCache(SimpleNamespace(read=SimpleNamespace(evidence=evidence, evidence_of_first=of_first)))
    for _ in range(2):
        assert (await cache.load("s1")).session_id == "s1"
    assert alone == ["s1"] and cache._loading == {}


async def test_sessions_that_were_too_long_to_read_ahead_stay_announced():
    groups = []

    def of_first(ids, most):
        groups.append((list(ids), most))
        return {each: Evidence(session_id=each) for each in list(ids)[:2]}

    cache = SessionCache(SimpleNamespace(read=SimpleNamespace(evidence_of_first=of_first)))
    cache._upcoming = dict.fromkeys(["a", "b", "c", "d"])
    await cache.load("b")
    assert groups == [(["b", "a", "c", "d"], executor.READ_AHEAD_CHARACTERS)]
    assert list(cache._upcoming) == ["c", "d"]


# --- What killed processes leave ---


@pytest.fixture
def leftovers(monkeypatch):
    """What is done with the worktrees of killed attempts; replaced functions say it."""
    calls = []

    def rescue(folder, source, branch, base_sha):
        calls.append(("rescue", folder.name, source, branch, base_sha))
        if branch.endswith("broken"):
            raise WorkspaceError("no commit")

    monkeypatch.setattr(
        "proctor.processes.program.end_attempt", lambda attempt: calls.append(("end", attempt))
    )
    monkeypatch.setattr("proctor.workspace.commit.rescue", rescue)
    monkeypatch.setattr(
        "proctor.workspace.source_repository.open_source", lambda path, environment: (path, dict(environment))
    )
    monkeypatch.setattr(
        "proctor.workspace.folders.remove_folder",
        lambda folder: calls.append(("remove", folder.name)) or ("busy" if folder.name == "s2" else ""),
    )
    return calls


def test_changes_of_killed_attempts_are_committed_and_their_worktrees_removed(leftovers, tmp_path):
    def session(number, status, branch):
        return {"id": f"s{number}", "status": status, "branch": branch, "repo": "/shop", "baseSha": "b"}

    sessions = [
        session(0, "error", "batch/a/0"),
        session(1, "running", "batch/a/1"),
        session(2, "error", "batch/a/2"),
        session(3, "running", "batch/a/broken"),
        session(4, "running", "main"),
    ]
    for number in (2, 3, 4):
        (tmp_path / f"worktrees/s{number}").mkdir(parents=True)
    notes = []
    environment = {"HOME": "/h", "PATH": "/bin", "OPENAI_API_KEY": "k"}
    clear_leftovers(sessions, tmp_path, environment, notes.append)
    source = (Path("/shop"), {"HOME": "/h", "PATH": "/bin"})
    assert leftovers == [
        ("end", "s1"),
        ("remove", "s1"),
        ("end", "s2"),
        ("rescue", "s2", source, "batch/a/2", "b"),
        ("remove", "s2"),
        ("end", "s3"),
        ("rescue", "s3", source, "batch/a/broken", "b"),
        ("end", "s4"),
        ("remove", "s4"),
    ]
    assert notes == [
        "the worktree of session s2 could not be removed: busy",
        f"the changes of session s3 could not be committed, and stay in {tmp_path}/worktrees/s3: no commit",
    ]
    clear_leftovers(sessions[3:4], tmp_path, environment)


# --- The executor ---


class Writer:
    """A writer whose flushes and transactions are noted."""

    def __init__(self, backlog=0):
        self.backlog, self.calls = backlog, []

    def flush(self):
        self.calls.append("flush")
        return finished()

    def submit(self, work):
        self.calls.append(work)
        return finished(work("connection"))


async def test_a_checkpoint_is_read_after_the_rows_of_the_last_attempt():
    writer = Writer()
    made = Executor(None, "run", "me", None, load_checkpoint=lambda item: (item, list(writer.calls)))
    assert await made._checkpoint("i1", writer) == ("i1", ["flush"])


def test_a_batch_is_stopped_once_and_a_failed_store_stops_it_too():
    stops, cancelled = [], []
    made = Executor(None, "run", "me", None, engine=SimpleNamespace(stop=stops.append))
    made.interrupt()
    made._running = SimpleNamespace(cancel=lambda: cancelled.append(1))
    made.abort()
    assert [type(each) for each in stops] == [Interrupted] and cancelled == []
    assert str(made._stop_reason) == "the batch was interrupted"
    error = StoreError("full")
    made._fail(error)
    assert made._failure is error and cancelled == [1]
    other = Executor(None, "run", "me", None, engine=SimpleNamespace(stop=stops.append))
    other._running = SimpleNamespace(cancel=lambda: cancelled.append(2))
    other.abort()
    assert isinstance(other._stop_reason, Aborted) and cancelled == [1, 2]
    assert str(stops[1]) == "the batch was aborted"
    waiting = Executor(None, "run", "me", None)
    waiting._fail(error)
    assert waiting._failure is error


@pytest.mark.parametrize("status", ["aborted", "completed"])
@pytest.mark.parametrize("finished_at", [None, "earlier"])
def test_the_end_of_a_batch_is_written_and_its_money_returned(monkeypatch, status, finished_at):
    calls = []
    monkeypatch.setattr(executor, "end_items", lambda *call: calls.append(("items", *call)))
    monkeypatch.setattr(executor, "finish", lambda *call: calls.append(("finish", *call)))
    monkeypatch.setattr(executor.ledger, "close", lambda *call: calls.append(("money", *call)))
    made = Executor(None, "run", "me", SimpleNamespace(now=lambda: NOW), finished_at=finished_at)
    end = SimpleNamespace(status=status, reason="why")
    made._close("connection", end)
    ended = ("items", "connection", "run", "aborted", "the batch was aborted", NOW)
    expected = [
        *([ended] if status == "aborted" else []),
        ("finish", "connection", "run", status, "why", finished_at or NOW),
        ("money", "connection", "run", "me", NOW),
    ]
    assert calls == expected
    made._host = SimpleNamespace(money_holders={"worker"})
    made._close("connection", end)
    assert calls[len(expected) :] == [*expected, ("money", "connection", "run", "worker", NOW)]


async def test_the_error_of_the_store_is_raised_and_not_what_followed_from_it(workshop):
    text = "matrix: [{prompt: hello, model: scripted/echo, runs: 3}]\n"
    made = workshop.executor(workshop.launch(text))
    error = StoreError("disk full")

    class Engine:
        async def run(self, queue, host, spec):
            made._failure = error
            raise asyncio.CancelledError

        def stop(self, reason):
            pass

    made._engine = Engine()
    with pytest.raises(StoreError, match=r"^disk full$"):
        await made.run()


async def test_errors_of_a_group_are_raised_alone(workshop):
    text = "matrix: [{prompt: hello, model: scripted/echo, runs: 3}]\n"
    made = workshop.executor(workshop.launch(text))

    class Engine:
        async def run(self, queue, host, spec):
            raise ExceptionGroup("two", [StoreError("first"), ValueError("second")])

        def stop(self, reason):
            pass

    made._engine = Engine()
    with pytest.raises(StoreError, match=r"^first$"):
        await made.run()


async def test_a_batch_ends_once_its_last_item_was_passed_on(workshop):
    made = workshop.executor(workshop.launch("matrix: [{prompt: hello, model: scripted/echo, runs: 1}]\n"))

    class Engine:
        async def run(self, queue, host, spec):
            (one,) = await queue.chunk(5)
            done = ItemFinished(
                id=one.id,
                item=one.item,
                session_id="s",
                outcome=Outcome(),
                attempts=1,
                tokens=0,
                cost_usd=None,
                work_seconds=0.0,
            )
            host.attempt_ended(AttemptEnd(work=one, finished=done))

        def stop(self, reason):
            pass

    class Monitor:
        is_decided = False

        def wants(self, item_id):
            return True

        def finished(self, item):
            self.is_decided = True

    made._engine, made._stopping = Engine(), Monitor()
    end = await made.run()
    assert (end.status, end.reason) == ("completed", "decided")
    assert len(workshop.finished) == 1


def spec_of(batch, limits, **more):
    context = SimpleNamespace(retry="retry", evaluators="evaluators")
    return Executor(None, "run", "me", context, **more)._worker_spec(batch, limits)


@pytest.mark.parametrize(
    ("seed", "limits", "is_budgeted"),
    [
        (None, MoneyLimits(run_usd=None, store_usd=None), False),
        (7, MoneyLimits(run_usd=1.0, store_usd=None), True),
        (0, MoneyLimits(run_usd=None, store_usd=1.0), True),
    ],
)
def test_what_a_worker_is_told_of_a_batch(seed, limits, is_budgeted):
    spec = spec_of({"job": "coding", "seed": seed, "concurrency": 3}, limits, models="m", functions="f")
    assert (spec.run_id, spec.job, spec.seed, spec.holder) == ("run", "coding", seed or 0, "me")
    assert (spec.concurrency, spec.is_budgeted, spec.retry) == (3, is_budgeted, "retry")
    assert (spec.settings, spec.models, spec.evaluators, spec.functions) == (None, "m", "evaluators", "f")


async def test_sessions_of_a_dead_worker_end_with_its_money_and_limits(monkeypatch):
    calls = []
    row = {"id": "s1", "status": "error"}
    monkeypatch.setattr(executor, "queue_lost", lambda *call: calls.append(("queue", *call)) or [row])
    monkeypatch.setattr(executor.ledger, "release", lambda *call: calls.append(("release", *call)))
    monkeypatch.setattr(executor.ledger, "withdraw", lambda *call, **named: calls.append((*call, named)))
    monkeypatch.setattr(executor.ledger, "spent_by", lambda *call: 0.5)
    monkeypatch.setattr(executor, "clear_leftovers", lambda *call: calls.append(("clear", *call)))
    writer = Writer()
    context = SimpleNamespace(now=lambda: NOW, home=Path("/home"), environment={"A": "1"})
    host = bare(StoreHost, writer=writer, context=context, _run_id="run", _limit_holders={"other"})
    assert await host.worker_lost("worker", ["s1"]) == ([row], {"s1": 0.5})
    assert calls == [
        ("queue", "connection", "run", ["s1"], NOW),
        ("release", "connection", "run", "worker", NOW),
        ("connection", "worker", {}),
        ("clear", [{"id": "s1", "status": "running"}], Path("/home"), {"A": "1"}),
    ]
    host.withdraw_limits()
    assert calls[4:] == [("connection", {"owner": "other"})]


async def test_money_is_drawn_within_the_limits_of_run_and_store():
    drawn = []
    store = SimpleNamespace(draw_money=lambda *call, **named: drawn.append((call, named)) or "drawn")
    host = bare(
        StoreHost,
        _store=store,
        _run_id="run",
        _limits="limits",
        context=SimpleNamespace(now=lambda: NOW),
        money_holders=set(),
    )
    assert await host.draw("holder", wanted_usd=2.0, least_usd=1.0) == "drawn"
    assert drawn == [
        (("run", "holder"), {"wanted_usd": 2.0, "least_usd": 1.0, "limits": "limits", "now": NOW}),
    ]
    assert host.money_holders == {"holder"}


def test_git_of_the_driver_sees_no_keys():
    context = SimpleNamespace(environment={"HOME": "/h", "PATH": "/bin", "OPENAI_API_KEY": "k"})
    assert bare(StoreHost, context=context)._git_environment == {"HOME": "/h", "PATH": "/bin"}


# --- Engines ---


async def test_a_local_engine_that_was_stopped_before_it_ran_says_why(monkeypatch):
    calls = []

    class Started:
        def __init__(self, *given):
            calls.append(given)

        def stop(self, reason):
            calls.append(reason)

        async def open(self):
            calls.append("open")

        async def run(self, work):
            calls.append(work)
            return "end"

        async def close(self):
            calls.append("close")

    monkeypatch.setattr("proctor.batch.engines.Worker", Started)
    engine, host = LocalEngine(), SimpleNamespace(context="c", rows="r", attempt_ended=calls.append)
    waiting = ["a", None, None]

    async def following():
        return waiting.pop(0)

    queue, spec = SimpleNamespace(next=following), SimpleNamespace(concurrency=2)
    engine.stop("early")
    await engine.run(queue, host, spec)
    assert calls == [(spec, "c", host, "r"), "early", "open", "a", "end", "close"]
    engine.stop("late")
    assert calls[-1] == "late"


async def test_a_queue_counts_the_items_that_run_or_wait_for_another_attempt():
    queue = WorkQueue(Pages([queued(0), queued(1)]).load)
    first, second = await queue.next(), await queue.next()
    assert queue._in_progress == 2
    queue.done()
    assert queue._in_progress == 1
    queue.retry(second, 0.0)
    assert queue._in_progress == 1, "until it returns"
    queue._return(first)
    assert (queue._in_progress, queue.ready) == (0, 1)
    moments = []
    loop = asyncio.get_running_loop()
    queue = WorkQueue(Pages().load)
    before = loop.time()
    call_later = loop.call_later
    loop.call_later = lambda delay, *call: moments.append((delay, call)) or call_later(delay, *call)
    try:
        queue.retry(second, 2.5)
    finally:
        del loop.call_later
    assert moments == [(2.5, (queue._return, second))] and loop.time() - before < 2.5


async def test_items_of_a_chunk_get_their_checkpoints_once():
    asked = []

    async def load_checkpoint(item_id):
        asked.append(item_id)
        return f"of {item_id}"

    rows = [queued(0, attempts=1), queued(1), queued(2, attempts=2)]
    queue = WorkQueue(Pages(rows).load, load_checkpoint)
    items = await queue.chunk(9)
    assert [each.checkpoint for each in items] == ["of i0", None, "of i2"]
    queue.retry(items[1], 0.0)
    queue._return(items[1])
    (again,) = await queue.chunk(1)
    assert (again.checkpoint, asked) == ("of i1", ["i0", "i2", "i1"])


async def test_a_chunk_has_at_most_so_many_items():
    queue = WorkQueue(Pages([queued(number) for number in range(4)]).load)
    assert [each.id for each in await queue.chunk(3)] == ["i0", "i1", "i2"]
    assert [each.id for each in await queue.chunk(1)] == ["i3"]


async def test_a_worker_clears_up_after_those_that_died_only_where_it_has_copies(monkeypatch):
    calls = []

    async def adopt(*call):
        calls.append(("adopt", *call))

    async def share(*call):
        await asyncio.Event().wait()

    monkeypatch.setattr("proctor.batch.engines.worker.adopt_limits", adopt)
    monkeypatch.setattr("proctor.batch.engines.worker.share_limits", share)

    async def clear(left):
        calls.append(left)

    async def idle():
        calls.append("idle")

    files = SimpleNamespace(clear_leftovers=clear)
    for has_files, left in ((True, "left"), (False, "left"), (True, None)):
        worker = bare(
            Worker,
            _context=SimpleNamespace(pools="pools"),
            _spec=SimpleNamespace(holder="me", leftovers=left),
            _host="host",
            _files=files if has_files else None,
            _budget=SimpleNamespace(idle=idle),
            _sharing=None,
        )
        await worker.open()
        sharing = worker._sharing
        await worker.close()
        assert sharing.cancelled()
    adopted = ("adopt", "pools", "host", "me")
    assert calls == [adopted, "left", "idle", adopted, "idle", adopted, "idle"]


def test_a_worker_process_needs_settings():
    spec = bare(SimpleNamespace, settings=None)
    with pytest.raises(TypeError, match="was given no settings for workers in other processes"):
        make_worker_context(spec)


class Launcher:
    """Starts no workers; their connections are numbers."""

    def __init__(self):
        self.started = 0

    def start_worker(self):
        self.started += 1
        return self.started


async def test_dead_workers_are_replaced_a_few_times(monkeypatch):
    async def opened(end):
        return end

    monkeypatch.setattr(processes.Channel, "open", opened)
    ends = []
    engine = ProcessEngine(2)
    engine._launcher = Launcher()

    async def follow(link, spec, queue, host):
        ends.append((link.channel, link.concurrency))
        return len(ends) == survives

    engine._follow_worker = follow
    survives, spec = 3, SimpleNamespace(concurrency=5)
    await engine._serve(None, None, spec)
    assert ends == [(1, 5), (2, 5), (3, 5)]
    survives = 0
    left = processes.RESTARTS * 2 - 2
    with pytest.raises(processes.WorkerError, match=f"died {processes.RESTARTS * 2 + 1} times"):
        await engine._serve(None, None, spec)
    assert engine._launcher.started == 3 + left + 1 and engine._restarts == 0
    engine._ending = True
    await engine._serve(None, None, spec)


@pytest.mark.parametrize(
    ("workers", "concurrency", "shares"), [(2, 5, [3, 2]), (4, 2, [1, 1]), (3, 9, [3, 3, 3]), (1, 4, [4])]
)
async def test_workers_share_the_concurrency_of_a_batch(workers, concurrency, shares):
    engine, specs = ProcessEngine(workers), []
    engine._launcher = Launcher()

    async def serve(queue, host, spec):
        specs.append((spec.concurrency, spec.limit_share))

    engine._serve = serve
    spec = WorkerSpec(
        run_id="r", job="j", seed=0, holder="h", concurrency=concurrency, is_budgeted=False, retry=None
    )
    for task in await engine._start_workers(None, None, spec):
        await task
    assert sorted(specs, reverse=True) == [(each, 1 / len(shares)) for each in shares]


def test_a_launcher_that_has_ended_starts_no_worker():
    near, far = socket.socketpair()
    far.close()
    near.close()
    launcher = bare(WorkerLauncher, _control=near, _program=None, _pid=0)
    with pytest.raises(ProctorError, match="the process that starts workers died"):
        launcher.start_worker()
    launcher.close()


def test_the_code_of_evaluators_is_what_their_commands_name(monkeypatch, tmp_path):
    asked, notes = [], []
    copies = ["copy", None]
    monkeypatch.setattr(ray, "copy_code", lambda *call: asked.append(call) or copies.pop(0))
    engine = ray.RayEngine(note=notes.append)
    definition = {"evaluatorConfig": {"codeBased": {"command": ["sh", "b.sh"]}}}
    evaluators = SimpleNamespace(
        folder=tmp_path,
        lambdas={"one": "module:function", "two": ["python3", "a.py"]},
        definitions={"own": definition, "judge": {"evaluatorConfig": {"llmAsAJudge": {}}}},
    )
    assert engine._copy_code(evaluators) == "copy" and notes == []
    assert asked == [(tmp_path, ["python3", "a.py", "sh", "b.sh"])]
    assert engine._copy_code(evaluators) is None
    assert notes == [
        f"{tmp_path} has more than {ray.MAX_MODULES:,} Python files: nodes do not get them, so evaluators in"
        " Python are found there only if they are installed"
    ]


def test_a_folder_on_a_node_is_locked_by_one_actor(tmp_path):
    first, second = bare(ray_node.NodeActor, _locks=[]), bare(ray_node.NodeActor, _locks=[])
    assert first._take(tmp_path) and not second._take(tmp_path)
    assert (len(first._locks), second._locks) == (1, [])
    assert stat.S_IMODE((tmp_path / "lock").stat().st_mode) == 0o600
    os.close(first._locks[0])
    assert second._take(tmp_path)
    os.close(second._locks[0])


# --- Imports and branches ---


class Imports:
    """A store of imported sessions."""

    def __init__(self, adopted=(), items=0, total=0):
        self.calls = []
        self.read = SimpleNamespace(totals=lambda run_id: {"items": items})
        self.arrivals = SimpleNamespace(has_new=lambda: False, sessions_of=lambda traces: list(traces))
        self.imported_runs = SimpleNamespace(
            begin=lambda *call: self.calls.append(("begin", *call)),
            adopt=lambda run_id, session: dict(adopted).get(session, ""),
            finish=lambda *call: self.calls.append(("finish", *call)) or total,
        )


def test_an_import_counts_the_items_that_its_run_did_not_have():
    store = Imports({"b": "other"}, items=3, total=5)
    done = ingest._begin(store, "run", NOW)
    done.session_ids = ["x", "a"]
    done.traces = dict.fromkeys(["a", "b"])
    ingest._build_and_count(store, done, NOW)
    assert (done.run_id, done.added, done.session_ids) == ("run", 2, ["x", "a", "b"])
    assert [(each.path, each.problem) for each in done.unreadable] == [("b", "it belongs to the run other")]
    assert store.calls[0][:3] == ("begin", "run", NOW) and store.calls[1] == ("finish", "run", NOW)


def test_an_import_without_a_run_adds_no_items():
    store = Imports(items=3, total=5)
    done = ingest._build_and_count(store, ingest._begin(store, "", NOW), NOW)
    assert (done.run_id, done.added, done.session_ids, store.calls) == ("", 0, [], [])


def test_a_file_of_records_alone_has_work_to_come():
    content = ingest.FileContent()
    record = normalised(
        {"traceId": "t", "spanId": "s", "body": {"x": 1}, "timeUnixNano": 1, "attributes": {}}
    )
    assert list(content.counted([record, record])) == [record, record]
    assert (content.spans, content.records, content.has_work) == (0, 2, True)


def test_a_session_without_a_branch_cannot_be_merged(monkeypatch):
    rows = {"id": "s1", "branch": "", "itemId": "i1", "runId": "r", "repo": "/shop"}
    asked = []
    read = SimpleNamespace(
        session=lambda session: rows, item=lambda *call: asked.append(call) or [{"prompt": "p"}, "more"]
    )
    store = SimpleNamespace(read=read)
    settings = SimpleNamespace(user_environment={"A": "1"})
    with pytest.raises(
        UsageError, match=r"^session s1 has no branch\nOnly sessions of a repository have one."
    ):
        session_branch.find_branch(store, settings, "s1")
    monkeypatch.setattr(session_branch, "open_source", lambda *call: call)
    rows["branch"] = "batch/x"
    found = session_branch.find_branch(store, settings, "s1")
    assert (found.item, found.source) == ({"prompt": "p"}, (Path("/shop"), {"A": "1"}))
    assert asked == [("i1", "r")]
    rows["itemId"] = None
    assert session_branch.find_branch(store, settings, "s1").item is None and len(asked) == 1
    rows.update(itemId="i1", runId=None)
    read.item = lambda *call: asked.append(call) or []
    assert session_branch.find_branch(store, settings, "s1").item is None and asked[1:] == [("i1", "")]
