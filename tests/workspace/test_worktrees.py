"""What cannot be read, copied or committed is said with its place; nothing half done stays."""

import hashlib
import io
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proctor.errors import WorkspaceError
from proctor.git import Git, GitError
from proctor.workspace import commit, large_files, merge_queue, source_repository, worktree
from proctor.workspace.base_objects import base_objects, remove_unused_bases
from proctor.workspace.source_repository import SourceRepository, open_source
from proctor.workspace.test_reports import _common_folder, _report_cargo, _report_go
from proctor.workspace.worktree import Worktree, fill, make_tree

ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
MISSING = "f" * 40


@pytest.fixture
def tree(source: SourceRepository, tmp_path: Path) -> Worktree:
    made = make_tree(tmp_path / "place", source, "batch/run/1", source.base_commit("main"), {})
    fill(made)
    return made


@pytest.mark.parametrize(
    ("call", "problem"),
    [(fill, "filling the work tree of"), (worktree.restore, "restoring the work tree of")],
)
def test_a_tree_without_its_base_commit_is_refused(tree, call, problem):
    with pytest.raises(WorkspaceError, match=f"^{problem} {tree.source.root}: "):
        call(replace(tree, base_sha=MISSING))


def test_restoring_a_tree_leaves_what_git_ignores(tree: Worktree) -> None:
    (tree.control / "info/exclude").write_text("kept.txt\n")
    (tree.folder / "new").mkdir()
    for name in ("a.txt", "kept.txt", "new/file.txt", "other.txt"):
        (tree.folder / name).write_text("changed\n")
    worktree.restore(tree)
    assert (tree.folder / "a.txt").read_text() == "one\n"
    assert sorted(path.name for path in tree.folder.iterdir()) == [".git", "a.txt", "kept.txt"]


def test_only_branches_of_sessions_are_published(tree: Worktree, tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match=r"^main is not a session branch: it is not under batch/$"):
        worktree.publish(replace(tree, branch="main"))
    with pytest.raises(WorkspaceError, match=f"^copying batch/run/2 to {tree.source.root}: ") as raised:
        worktree.publish(replace(tree, branch="batch/run/2"))
    assert raised.value.reason == "publish_failed"
    worktree.publish(tree)
    assert tree.source.git.commit_of("refs/heads/batch/run/1") == tree.base_sha


def test_what_an_earlier_process_left_is_replaced(source: SourceRepository, tmp_path: Path) -> None:
    left = tmp_path / "place/left/file"
    left.parent.mkdir(parents=True)
    left.write_text("x")
    made = make_tree(tmp_path / "place", source, "batch/a/1", source.base_commit("main"), {})
    assert not left.exists() and made.folder == tmp_path / "place/shop"
    reopened = worktree.reopen_tree(tmp_path / "place", source, "batch/a/1", made.base_sha)
    assert reopened == made


def pointer(digest: str, size: int = 0) -> str:
    text = f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize 3\n"
    return text + "x" * max(0, size - len(text))


def test_large_files_are_published_if_they_are_what_their_pointers_say(tree: Worktree) -> None:
    contents = [b"one", b"two", b"three", b"four"]
    digests = [hashlib.sha256(content).hexdigest() for content in contents]
    for digest, content in zip(digests, [b"one", b"forged", b"three", b"four"], strict=True):
        place = tree.repository / "lfs/objects" / digest[:2] / digest[2:4] / digest
        place.parent.mkdir(parents=True)
        place.write_bytes(content)
    for number, (digest, size) in enumerate(zip(digests, (0, 0, 1024, 1025), strict=True)):
        (tree.folder / f"large{number}").write_text(pointer(digest, size))
    commit.commit_changes(tree, "large files")
    worktree.publish(tree)

    store = tree.source.common / "lfs/objects"
    found = {path.name: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    assert found == {digests[0]: b"one", digests[2]: b"three"}
    one = store / digests[0][:2] / digests[0][2:4] / digests[0]
    one.write_bytes(b"mine")
    worktree.publish(tree)
    assert one.read_bytes() == b"mine", "an object that is there is left"

    # Without its base a branch is not copied at all, so that `publish` does not come to its large files.
    with pytest.raises(WorkspaceError, match=f"^copying large files of batch/run/1 to {tree.source.root}: "):
        worktree._publish_large_files(replace(tree, base_sha=MISSING))


def test_the_filter_stores_a_large_file_and_leaves_its_pointer_as_it_is(tmp_path: Path) -> None:
    def packets(*contents: bytes) -> bytes:
        return b"".join(b"%04x%s" % (len(content) + 4, content) for content in contents) + b"0000"

    digest = hashlib.sha256(b"large").hexdigest()
    written = pointer(digest).replace("size 3", "size 5").encode()
    requests = [packets(b"command=clean\n") + packets(content) for content in (b"large", written)]
    source = io.BytesIO(packets(b"git-filter-client\n") + packets(b"capability=clean\n") + b"".join(requests))
    target = io.BytesIO()
    large_files.serve([tmp_path], source, target)

    assert target.getvalue().count(packets(written)) == 2
    stored = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [(path.name, path.read_bytes()) for path in stored] == [(digest, b"large")]


@pytest.mark.parametrize(
    ("references", "visible"),
    [
        (
            {"refs/tags/v1": "1", "refs/heads/main": "0", "refs/heads/x": "2"},
            {"refs/tags/v1", "refs/heads/main"},
        ),
        ({"refs/remotes/origin/main": "0"}, {"refs/heads/main"}),
        ({"refs/heads/other": "0"}, set()),
    ],
)
def test_a_session_sees_its_base_and_tags(references: dict[str, str], visible: set[str]) -> None:
    found = worktree.visible_references(references, "main", "b")
    assert set(found) == visible
    assert found.get("refs/heads/main", "b") == "b" and found.get("refs/tags/v1", "1") == "1"


def test_a_killed_attempt_is_rescued_once_its_files_were_there(source, tmp_path):
    base = source.base_commit("main")
    whole = make_tree(tmp_path / "whole", source, "batch/a/1", base, {})
    fill(whole)
    (whole.folder / "new.txt").write_text("new")
    commit.rescue(tmp_path / "whole", source, "batch/a/1", base)
    assert source.git("log", "-1", "--format=%B", "batch/a/1").split("\n")[:3] == [
        "Interrupted attempt",
        "",
        "batch/a/1",
    ]
    assert source.git("show", "batch/a/1:new.txt") == "new"
    make_tree(tmp_path / "empty", source, "batch/a/2", base, {})
    commit.rescue(tmp_path / "empty", source, "batch/a/2", base)
    assert source.git.commit_of("batch/a/2") == base


def test_an_attempt_of_an_earlier_version_is_rescued(source: SourceRepository, tmp_path: Path) -> None:
    """Its folder has the tree, a repository that borrows the user's objects, and no control repository."""
    base = source.base_commit("main")
    made = make_tree(tmp_path / "made", source, "batch/a/1", base, {})
    fill(made)
    folder = tmp_path / "worktrees/s1"
    folder.parent.mkdir()
    made.place.rename(folder)
    admin = folder / "git/worktrees/shop"
    (admin / "gitdir").write_text(f"{folder}/shop/.git\n")
    (folder / "shop/.git").write_text(f"gitdir: {admin}\n")
    (folder / "git/objects/info/alternates").write_text(f"{source.common}/objects\n")
    git = Git(folder / "shop", ENVIRONMENT)
    (folder / "shop/a.txt").write_text("two\n")
    git("-c", "user.name=U", "-c", "user.email=u@x", "commit", "--quiet", "-am", "own")
    (folder / "shop/new.txt").write_text("new")
    commit.rescue(folder, source, "batch/a/1", base)
    assert source.git("log", "--format=%s", f"{base}..batch/a/1").split("\n")[:2] == [
        "Interrupted attempt",
        "own",
    ]
    assert source.git("show", "batch/a/1:new.txt") == "new"
    assert worktree.remove_folder(folder) == ""


def test_a_store_of_a_base_is_shared_continued_and_removed(source: SourceRepository, tmp_path: Path) -> None:
    home = tmp_path / "home"
    source.git("tag", "v1")
    first = source.base_commit("main")
    source.git("commit", "--quiet", "--allow-empty", "-m", "later")
    source.git("tag", "-a", "v2", "-m", "later")
    second = source.base_commit("main")
    trees = [
        make_tree(home / "worktrees" / f"s{number}" / "work", source, f"batch/a/{number}", base, references)
        for number, base in enumerate((first, first, second))
        if (references := source.references())
    ]
    one, same, later = (tree.base for tree in trees)
    assert one == same and later.folders[1:] == one.folders
    assert [*one.tags] == ["refs/tags/v1"] and [*later.tags] == ["refs/tags/v1", "refs/tags/v2"]
    os.utime(one.place, (1, 1))
    used = base_objects(home / "bases", source, first, source.references())
    assert used == one and one.place.stat().st_mtime > 1
    old = Git(trees[0].repository, ENVIRONMENT)
    assert not old.commit_of(second) and old.commit_of("v1") == first

    after_a_day = time.time() + 90_000
    for number, left in enumerate(((one, later), (one, later), ())):
        remove_unused_bases(home, now=after_a_day)
        stores = {file.parent for file in (home / "bases").glob("*/*/about.json")}
        assert stores == {store.place for store in left}
        for session in ("s0", "s1") if number == 0 else ("s2",):
            worktree.remove_folder(home / "worktrees" / session)


def test_locks_that_a_killed_git_left_are_removed(tree: Worktree) -> None:
    (tree.folder / "new.txt").write_text("new")
    for lock in ("index.lock", "HEAD.lock", "refs/heads/batch/run/1.lock"):
        (tree.control / lock).write_text("")
    (tree.source.common / "refs/heads/batch/run").mkdir(parents=True)
    (tree.source.common / "refs/heads/batch/run/1.lock").write_text("")
    done = commit.commit_changes(tree, "work")
    worktree.publish(tree)
    assert tree.source.git.commit_of("batch/run/1") == done.sha


KILLED = """#!/bin/sh
case "$*" in *"add --all"*) if [ ! -e "$GIT_DIR/was-killed" ]; then
  touch "$GIT_DIR/was-killed" "$GIT_DIR/index.lock"; kill -9 $$; fi;;
esac
exec %s "$@"
"""


def test_a_git_that_is_killed_is_started_again(source: SourceRepository, tmp_path: Path) -> None:
    program = tmp_path / "bin/git"
    program.parent.mkdir()
    program.write_text(KILLED % shutil.which("git"))
    program.chmod(0o755)
    path = f"{program.parent}:{ENVIRONMENT['PATH']}"
    source = open_source(source.root, {**ENVIRONMENT, "PATH": path})
    tree = make_tree(tmp_path / "place", source, "batch/run/1", source.base_commit("main"), {})
    fill(tree)
    (tree.folder / "new.txt").write_text("new")
    done = commit.commit_changes(tree, "work")
    assert (tree.control / "was-killed").exists()
    assert tree.git("ls-tree", "--name-only", done.sha).split() == ["a.txt", "new.txt"]


def test_an_ignored_file_that_an_agent_staged_is_committed(tree: Worktree) -> None:
    git = Git(tree.folder, ENVIRONMENT)
    (tree.folder / ".gitignore").write_text("*.out\na.txt\n")
    for name in ("forced.out", "left.out"):
        (tree.folder / name).write_text("x")
    git("add", "--force", "forced.out")
    git("rm", "--quiet", "--cached", "a.txt")
    done = commit.commit_changes(tree, "work")
    assert tree.git("ls-tree", "--name-only", done.sha).split() == [".gitignore", "forced.out"]
    assert git("status", "--porcelain") == ""


async def test_a_mirror_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    address = f"file://{tmp_path}/none.git"
    with pytest.raises(WorkspaceError, match=f"^mirroring {address}: "):
        await source_repository.open_repository(address, ENVIRONMENT, tmp_path / "home")
    assert [path for path in (tmp_path / "home").rglob("*") if path.name.startswith("making-")] == []


async def test_a_scratch_clone_that_cannot_be_made_leaves_nothing(source, tmp_path):
    with pytest.raises(WorkspaceError, match="copying the history"):
        async with merge_queue.scratch_clone(tmp_path / "home", source, MISSING):
            pass
    assert list((tmp_path / "home/worktrees").iterdir()) == []


async def test_a_base_that_moves_while_it_is_merged_is_tried_again(source, tmp_path, monkeypatch):
    # No command moves the branch between the merge and the update of its reference.
    tries = list[str]()

    def move(merging: Any, before: str, after: str) -> None:
        tries.append(before)
        source.git("-c", "user.name=U", "-c", "user.email=u@x", "commit", "-q", "--allow-empty", "-m", "x")
        raise GitError(("update-ref",), 1, "moved")

    monkeypatch.setattr(merge_queue, "_advance", move)
    (tmp_path / "home/repos").mkdir(parents=True)
    tree = source.git.line("hash-object", "-w", "-t", "tree", "/dev/null")
    source.git("branch", "batch/run/1", source.git.commit_tree(tree, [source.git.commit_of("HEAD")], "work"))
    request = merge_queue.MergeRequest(
        repo=source.root, branch="batch/run/1", base_branch="main", message="m", environment=ENVIRONMENT
    )
    result = await merge_queue.merge(request, home=tmp_path / "home", environment=ENVIRONMENT)
    assert len(tries) == len(set(tries)) == 3
    assert [each.before_sha for each in result.merges] == tries
    assert {each.result for each in result.merges} == {"error"} and result.notes == ()


# What a runner of tests is told, and reads, shows in a run only where that runner is installed.
@pytest.mark.parametrize(
    ("files", "folder"),
    [
        (["/w/tests/a.js", "/w/tests/b/c.js"], "/w/"),
        (["/w/src/a.js", "/w/tests/b.js"], ""),
        (["/w/a.js", "/w/b.js"], "/w/"),
        (["/w/a.js"], "/w/"),
        ([], ""),
        (["/w/packages/a/x.js", "/w/packages/b/y.js"], "/w/"),
    ],
)
def test_the_folder_that_names_of_test_files_begin_with(files: list[str], folder: str) -> None:
    assert _common_folder(files) == folder


def test_go_and_cargo_report_to_a_file() -> None:
    report = Path("/r/report")
    assert _report_go("cd a && go test ./... && go test x", report) == (
        "cd a && go test -json -count=1 ./... && go test x > /r/report"
    )
    assert _report_cargo("cargo test && cargo test x", report) == (
        "cargo test --no-fail-fast && cargo test x > /r/report 2>&1"
    )
