"""What killed processes leave is removed, and nothing else: clones, worktrees, locks, halves of a merge."""

import json
import os
import shutil
import sqlite3
import subprocess
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest

from commands import Command
from databases import query
from proctor.batch import host
from proctor.git import Git
from proctor.testing import eventually, make_git_repository
from proctor.workspace.source_repository import open_source
from proctor.workspace.worktree import fill, make_tree, session_folder

ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}

RESUME, DELETE, PRUNE = (
    ("resume", "killed"),
    ("delete", "killed", "--yes"),
    ("prune", "--older-than", "0d", "--yes"),
)


def start(proctor: Command, folder: Path, **item: object) -> Path:
    """The folder of the worktrees of a plan with one item, once it is written."""
    repository = make_git_repository(folder / "shop", {"shop.py": "total = 1\n"})
    entry = {"repo": str(repository), "prompt": "Work.", "sandbox": "none", "keep": "never", **item}
    (folder / "plan.yaml").write_text(json.dumps({"runId": "killed", "matrix": [entry]}))
    return folder / "proctor-home" / "worktrees"


def names(trees: Path, pattern: str) -> list[str]:
    return [path.name for path in trees.glob(pattern)]


@pytest.mark.parametrize("command", [RESUME, DELETE, PRUNE], ids=["resume", "delete", "prune"])
def test_a_clone_of_a_killed_merge_is_removed(proctor, tmp_path, command):
    shop, mark = tmp_path / "shop", tmp_path / "merging"
    commit = f"git -C {shop} -c user.name=u -c user.email=u@x commit -q --allow-empty -m moved"
    move = f"{commit}; echo more >> shop.py"
    trees = start(
        proctor,
        tmp_path,
        command=["bash", "-c", move],
        mergeOnPass=True,
        scriptCommand=f"case $PWD in *merging-*) test -e {mark} || {{ touch {mark}; sleep 600; }};; esac",
    )
    started = proctor.start("batch", "plan.yaml")
    try:
        eventually(mark.exists)
        proctor(*PRUNE)
        assert len(names(trees, "merging-*")) == 2, "a clone whose process lives stays, with its lock"
    finally:
        started.kill()
        started.wait()
    assert names(trees, "merging-*")

    ended = proctor(*command)

    assert ended.returncode == 0, ended.stderr
    # Only the run itself, when it is resumed or deleted, removes the worktree of its attempt.
    assert names(trees, "merging-*" if command == PRUNE else "*") == []


def test_a_worktree_whose_removal_was_cut_short_is_neither_committed_nor_kept(proctor, tmp_path):
    write = "python3 -c \"[open(str(n), 'w') for n in range(15000)]\""
    many = f"echo more >> shop.py; mkdir ~/many; cd ~/many; {write}"
    trees = start(proctor, tmp_path, command=["bash", "-c", many], scriptCommand="true")
    started = proctor.start("batch", "plan.yaml")
    try:
        eventually(lambda: names(trees, "removed-*"))
    finally:
        started.kill()
        started.wait()
    assert len(names(trees, "removed-*")) == 1, "it was killed while it removed the worktree"

    resumed = proctor("resume", "killed")

    assert resumed.returncode == 0, resumed.stderr
    assert names(trees, "*") == []
    listed = subprocess.run(
        ["git", "-C", str(tmp_path / "shop"), "log", "--branches=batch/*", "--format=%s"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Interrupted attempt" not in listed.stdout


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

    host.clear_leftovers([session], tmp_path / "home", ENVIRONMENT, notes.append)

    assert folder.exists() is not is_committed
    if is_committed:
        assert notes == []
    else:
        (note,) = notes
        assert note.startswith(f"the changes of session s1 could not be committed, and stay in {folder}: ")
        source.git("update-ref", "-d", "refs/heads/batch/run")
        host.clear_leftovers([session], tmp_path / "home", ENVIRONMENT, notes.append)
        assert notes == [note] and not folder.exists()
    assert source.git("show", f"{branch}:new.py") == "work = 1\n"


KILLED_GIT = """#!/bin/sh
case "$*" in *--ff-only*) if mkdir {mark}; then
    touch .git/index.lock
    echo ha > new.py
    echo half > shop.py
    kill -9 $$
fi;; esac
exec {git} "$@"
"""


def test_a_git_that_is_killed_in_a_merge_is_started_again_and_leaves_the_users_changes(proctor, tmp_path):
    start(
        proctor,
        tmp_path,
        command=["bash", "-c", "echo more >> shop.py; echo new > new.py"],
        scriptCommand="true",
        mergeOnPass=True,
    )
    shop, programs, mark = tmp_path / "shop", tmp_path / "programs", tmp_path / "killed"
    (shop / "notes.txt").write_text("mine\n")
    programs.mkdir()
    (programs / "git").write_text(KILLED_GIT.format(mark=mark, git=shutil.which("git")))
    (programs / "git").chmod(0o755)
    proctor.environment["PATH"] = f"{programs}:{os.environ['PATH']}"

    ended = proctor("batch", "plan.yaml")

    assert ended.returncode == 0, ended.stdout
    assert mark.exists()
    git = ["git", "-C", str(shop), "status", "--porcelain"]
    assert subprocess.run(git, capture_output=True, text=True, check=True).stdout == "?? notes.txt\n"
    assert [(shop / name).read_text() for name in ("shop.py", "new.py")] == ["total = 1\nmore\n", "new\n"]
    assert not (shop / ".git/index.lock").exists()


def test_a_worktree_is_made_only_for_a_session_that_is_in_the_store(proctor: Command, tmp_path: Path) -> None:
    """A process that is killed before that would leave a folder that belongs to no run."""
    trees = start(proctor, tmp_path, command="true", scriptCommand="true", runs=5)
    process = proctor.start("batch", "plan.yaml")
    with proctor.open_store() as store:
        eventually(lambda: query(store, 'SELECT 1 FROM "batches"'))
    seen = set[str]()
    while process.poll() is None:
        with closing(sqlite3.connect(trees.parent / "proctor.db", timeout=20)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            recorded = {row[0] for row in holder.execute('SELECT "id" FROM "sessions"')}
            until = time.monotonic() + 0.2
            while time.monotonic() < until:
                made = {name for name in names(trees, "*") if not name.startswith("removed-")}
                assert made <= recorded
                seen |= made
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
    assert process.returncode == 0, process.communicate()[0]
    assert seen
