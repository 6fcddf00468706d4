"""Runs, their worktrees, branches and texts are deleted, and nothing else."""

import random
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from proctor.batch import deletion
from proctor.batch.deletion import delete_run, delete_sessions, imported_sessions, prune_runs
from proctor.errors import UsageError
from proctor.git import Git
from proctor.item import Item
from proctor.session import Message, Session
from proctor.store import Recorder, timestamp
from proctor.testing import make_git_repository
from proctor.workspace.worktree import session_folder

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)


def add_run(store, run_id="run", home=None, status="completed", branches=("",), repo="", **more):
    """A run with a session for each branch, each with a worktree if there is a home."""
    row = {"runId": run_id, "createdAt": timestamp(NOW), "job": "coding", "status": status}
    store.create_batch(
        row | {"finishedAt": timestamp(NOW)} | more, [Item(runner="prompt", prompt="p", model="m")]
    )
    writer = store.writer()
    for number, branch in enumerate(branches):
        session_id = f"{run_id}-{number}"
        session = {"runId": run_id, "itemId": "i", "job": "coding", "status": "running", "branch": branch}
        session |= {"startedAt": timestamp(NOW), "repo": str(repo)}
        if home:
            folder = session_folder(home, session_id)
            folder.mkdir(parents=True)
            (folder / "file").write_text("x")
            session["worktree"] = str(folder)
        text = random.Random(session_id).randbytes(100_000).hex()
        Recorder(writer, session_id, session, lambda: NOW).record(Message(role="user", content=text))
    writer.close()


def context(store, home):
    settings = SimpleNamespace(user_environment={})
    return SimpleNamespace(store=store, home=home, now=lambda: LATER, settings=settings)


def run_ids(store):
    return sorted(batch["runId"] for batch in store.read.batches(LATER))


def test_a_run_is_deleted_with_its_worktrees_and_if_told_with_its_branches(store, tmp_path):
    home, repo = tmp_path / "home", make_git_repository(tmp_path / "repo", {"a.txt": "a"})
    git = Git(repo, {})
    for branch in ("batch/one", "mine", "batch/two"):
        git("branch", branch)
    branches = ("batch/one", "mine", "batch/gone", "")
    add_run(store, home=home, branches=branches, repo=repo)
    add_run(store, "other", home=home)

    removal = delete_run(store, "run", home, {}, branches=True)

    assert (removal.branches, removal.problems, run_ids(store)) == (1, [], ["other"])
    assert {git.commit_of(f"refs/heads/{name}") is not None for name in ("mine", "batch/two")} == {True}
    assert not git.commit_of("refs/heads/batch/one")
    assert not session_folder(home, "run-0").exists()
    assert session_folder(home, "other-0").exists()
    add_run(store, "again", branches=("batch/two",), repo=repo)
    assert delete_run(store, "again", home, {}, branches=False).branches == 0
    assert git.commit_of("refs/heads/batch/two")


def test_a_branch_that_is_checked_out_stays_and_is_a_problem(store, tmp_path):
    repo = make_git_repository(tmp_path / "repo", {"a.txt": "a"})
    Git(repo, {})("checkout", "-q", "-b", "batch/one")
    add_run(store, branches=("batch/one",), repo=repo)
    removal = delete_run(store, "run", tmp_path, {}, branches=True)
    assert removal.branches == 0 and run_ids(store) == []
    (problem,) = removal.problems
    assert problem.startswith(f"the branch batch/one in {repo}: ")


def test_old_runs_are_pruned_and_their_space_is_freed(store, tmp_path):
    home = tmp_path / "home"
    add_run(store, "old", home=home)
    add_run(store, "new", finishedAt=timestamp(LATER))
    planned = prune_runs(context(store, home), LATER, keep_scores=False, dry_run=True)
    size = planned.runs[0]["bytes"]
    assert planned.document() == {
        "runs": [{"runId": "old", "createdAt": timestamp(NOW), "bytes": size}],
        "bytes": size,
        "keepScores": False,
        "dryRun": True,
        "freedBytes": None,
        "problems": [],
    }
    assert run_ids(store) == ["new", "old"] and size > 100

    before = store.file_bytes()
    texts = prune_runs(context(store, home), LATER, keep_scores=True, dry_run=False)
    assert (texts.keep_scores, texts.dry_run, texts.problems) == (True, False, [])
    assert texts.file_bytes == before - store.file_bytes() > 50_000 and run_ids(store) == ["new", "old"]
    assert not session_folder(home, "old-0").exists()
    assert store.read.of_session("messages", "old-0") == []
    assert len(store.read.of_session("messages", "new-0")) == 1

    assert [
        run["runId"] for run in prune_runs(context(store, home), LATER, keep_scores=False, dry_run=False).runs
    ] == ["old"]
    assert run_ids(store) == ["new"]
    assert prune_runs(context(store, home), LATER, keep_scores=False, dry_run=False).file_bytes is None


def test_an_active_run_is_not_pruned_and_keeps_the_file_as_large_as_it_is(store, tmp_path):
    add_run(store, "old")
    beat = {"owner": "elsewhere:1:1:x", "heartbeatAt": timestamp(LATER)}
    add_run(store, "active", status="running", **beat)
    pruned = prune_runs(context(store, tmp_path), LATER + timedelta(days=1), keep_scores=False, dry_run=False)
    assert [run["runId"] for run in pruned.runs] == ["old"]
    assert pruned.file_bytes is None
    assert pruned.problems == ["a run is active: the space is used again, but the file is not made smaller"]
    assert run_ids(store) == ["active"]


def test_imported_sessions_are_named_and_deleted_in_parts(store, monkeypatch):
    ids = [store.save_imported(Session(external_id=f"x{n}", source="s"), NOW) for n in range(5)]
    add_run(store)
    assert sorted(imported_sessions(store, NOW)) == sorted(ids)
    assert imported_sessions(store, NOW, session_ids=["x1", ids[1]]) == [ids[1]]
    with pytest.raises(UsageError, match=r"session run-0 belongs to the run run\nIt goes with its run"):
        imported_sessions(store, NOW, session_ids=["run-0"])
    # White-box: as many sessions as are deleted at once would take long to make.
    monkeypatch.setattr(deletion, "AT_ONCE", 2)
    delete_sessions(store, ids[:3])
    assert sorted(imported_sessions(store, NOW)) == sorted(ids[3:])
