"""Parts of the driver: sessions, what is left of killed processes, pages, ends, imports."""

import socket
from pathlib import Path
from types import SimpleNamespace

import pytest
from work_items import Pages, queued

from proctor.batch import ingest
from proctor.batch.engines.processes import WorkerLauncher
from proctor.batch.engines.worker import make_worker_context
from proctor.batch.executor import Executor, clear_leftovers
from proctor.batch.queue import WorkQueue
from proctor.errors import ProctorError, WorkspaceError
from proctor.store import MoneyLimits
from proctor.telemetry import normalised


def bare(made, **members):
    """An object without what its constructor needs."""
    instance = made.__new__(made)
    for name, value in members.items():
        setattr(instance, name, value)
    return instance


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


# --- Engines ---


async def test_a_chunk_has_at_most_so_many_items():
    queue = WorkQueue(Pages([queued(number) for number in range(4)]).load)
    assert [each.id for each in await queue.chunk(3)] == ["i0", "i1", "i2"]
    assert [each.id for each in await queue.chunk(1)] == ["i3"]


def test_a_worker_process_needs_settings():
    spec = bare(SimpleNamespace, settings=None)
    with pytest.raises(TypeError, match="was given no settings for workers in other processes"):
        make_worker_context(spec)


def test_a_launcher_that_has_ended_starts_no_worker():
    near, far = socket.socketpair()
    far.close()
    near.close()
    launcher = bare(WorkerLauncher, _control=near, _program=None, _pid=0)
    with pytest.raises(ProctorError, match="the process that starts workers died"):
        launcher.start_worker()
    launcher.close()


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


def test_a_file_of_records_alone_has_work_to_come():
    content = ingest.FileContent()
    record = normalised(
        {"traceId": "t", "spanId": "s", "body": {"x": 1}, "timeUnixNano": 1, "attributes": {}}
    )
    assert list(content.counted([record, record])) == [record, record]
    assert (content.spans, content.records, content.has_work) == (0, 2, True)
