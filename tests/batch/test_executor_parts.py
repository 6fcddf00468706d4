"""The driver of a run: announcements, commits, limits, resources, and how a batch ends."""

import asyncio
import os
from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from work_items import NOW, Pages, queued, work

from proctor.batch import executor
from proctor.batch.engines.messages import (
    AttemptEnd,
)
from proctor.batch.executor import (
    CommitNotifier,
    SessionCache,
    StoreHost,
    WriterPace,
)
from proctor.batch.queue import WorkQueue
from proctor.errors import NotFound, StoreError
from proctor.git import Git
from proctor.job import ItemFinished
from proctor.runner import Outcome
from proctor.store import Store
from proctor.workspace.source_repository import open_source
from proctor.workspace.worktree import fill, make_tree, session_folder

ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}


class Committing:
    """A writer whose commits are made by hand."""

    def __init__(self):
        self.futures = []

    def flush(self, *, at_once=True):
        self.futures.append(Future())
        self.at_once = at_once
        return self.futures[-1]


async def test_observers_are_told_after_the_commit_in_order_and_no_more_once_they_fail():
    writer, told = Committing(), []
    notifier = CommitNotifier(writer, at_once=False)
    assert notifier.idle.is_set()
    for number in range(3):
        notifier.announce(lambda number=number: told.append(number))
    assert (len(writer.futures), told, notifier.idle.is_set(), writer.at_once) == (1, [], False, False)
    writer.futures[0].set_result(None)
    await asyncio.sleep(0.01)
    assert (told, len(writer.futures)) == ([0], 2)
    writer.futures[1].set_result(None)
    await asyncio.wait_for(notifier.idle.wait(), 30)
    assert told == [0, 1, 2]

    def fail():
        raise OSError("closed terminal")

    notifier.announce(fail)
    writer.futures[2].set_result(None)
    await asyncio.wait_for(notifier.idle.wait(), 30)
    notifier.announce(lambda: told.append("late"))
    writer.futures[3].set_result(None)
    await asyncio.wait_for(notifier.idle.wait(), 30)
    assert told == [0, 1, 2]


async def test_a_queue_waits_for_decisions_that_are_far_behind():
    writer = Committing()
    notifier = CommitNotifier(writer, at_once=True)
    queue = WorkQueue(Pages([queued(0), queued(1)]).load, caught_up=notifier.caught_up)
    for _ in range(executor.MOST_BEHIND + 1):
        notifier.announce(lambda: None)
    assert await queue.next(), "one is being committed, and as many as may wait do"

    notifier.announce(queue.stop)
    waiting = asyncio.create_task(queue.next())
    await asyncio.sleep(0)
    assert not waiting.done()
    writer.futures[0].set_result(None)
    await asyncio.sleep(0.01)
    writer.futures[1].set_result(None)
    assert await asyncio.wait_for(waiting, 30) is None


async def test_nobody_is_told_of_a_commit_that_failed():
    writer, told = Committing(), []
    notifier = CommitNotifier(writer, at_once=True)
    for number in range(2):
        notifier.announce(lambda number=number: told.append(number))
    writer.futures[0].set_exception(StoreError("full"))
    await asyncio.wait_for(notifier.idle.wait(), 30)
    assert (told, len(writer.futures)) == ([], 1)


def new_host(queue=None, writer=None, finished=None, people=None, store=None):
    return StoreHost(
        store,
        writer,
        queue,
        run_id="run",
        context=SimpleNamespace(now=lambda: NOW),
        limits=None,
        rows=writer,
        finished=finished,
        sessions=SessionCache(store),
        people=people,
        pace=WriterPace(writer),
    )


async def test_the_first_limit_halts_the_batch_and_ended_items_are_done_or_return():
    calls, finished = [], []
    queue = SimpleNamespace(
        stop=lambda: calls.append("stop"),
        done=lambda: calls.append("done"),
        retry=lambda work, delay: calls.append((work.id, delay)),
    )
    host = new_host(queue, finished=finished.append)
    end = ItemFinished(
        id="a",
        item=work().item,
        session_id="s",
        outcome=Outcome(status="success"),
        attempts=1,
        tokens=0,
        cost_usd=None,
        work_seconds=0.5,
    )
    host.attempt_ended(AttemptEnd(work=work(), finished=end))
    host.attempt_ended(AttemptEnd(work=work(), delay_seconds=0.0))
    host.attempt_ended(AttemptEnd(work=work(), halted_by="budget"))
    host.attempt_ended(AttemptEnd(work=work(), halted_by="cost_limit"))
    assert calls == ["done", ("a", 0.0), "stop", "done", "stop", "done"]
    assert (host.halted_by, finished) == ("budget", [end])
    assert await host.ask_person("a", "mayor", "?") == ""


async def test_a_resource_that_a_run_does_not_have_is_not_found(tmp_path):
    with Store(str(tmp_path / "a.db")) as store:
        with pytest.raises(NotFound, match="run run has no resource d1"):
            await new_host(store=store).resource("d1")


# --- Leftovers of killed attempts ---


@pytest.mark.parametrize("is_committed", [True, False])
def test_changes_that_cannot_be_committed_stay_where_they_are(repository, tmp_path, is_committed):
    """A branch may be in the way, the disk full, or the repository moved."""
    head = Git(repository, ENVIRONMENT)("rev-parse", "HEAD").strip()
    source = open_source(repository, ENVIRONMENT)
    branch = "batch/run/20260101-000000/abcdefgh"
    folder = session_folder(tmp_path / "home", "s1")
    tree = make_tree(folder / "work", source, branch, head, {})
    fill(tree)
    (tree.folder / "new.py").write_text("work = 1\n")
    if not is_committed:
        source.git("update-ref", "refs/heads/batch/run", head)
    session = {"id": "s1", "status": "running", "branch": branch, "repo": str(repository), "baseSha": head}
    notes = []

    executor.clear_leftovers([session], tmp_path / "home", ENVIRONMENT, notes.append)

    assert folder.exists() is not is_committed
    if is_committed:
        assert notes == []
    else:
        (note,) = notes
        assert note.startswith(f"the changes of session s1 could not be committed, and stay in {folder}: ")
        source.git("update-ref", "-d", "refs/heads/batch/run")
        executor.clear_leftovers([session], tmp_path / "home", ENVIRONMENT, notes.append)
        assert notes == [note] and not folder.exists()
    assert source.git("show", f"{branch}:new.py") == "work = 1\n"
