"""Every call of git is alone with its repository: no hook, no prompt, no variable of whoever called."""

import os

import pytest

from proctor import git as git_module
from proctor.git import Changes, Git, GitError
from proctor.processes.warden import is_alive
from proctor.testing import eventually


@pytest.fixture
def environment(tmp_path):
    (tmp_path / "home").mkdir()
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home")}


@pytest.fixture
def git(tmp_path, environment):
    folder = tmp_path / "repo"
    folder.mkdir()
    git = Git(folder, environment)
    git("init", "--quiet", "--initial-branch=main")
    return git


def commit(git, message="x", **files):
    for name, content in files.items():
        (git.folder / name).write_text(content)
    git("add", "--all")
    git("commit", "--quiet", "--allow-empty", "-m", message)
    return git.commit_of("HEAD")


def test_variables_that_lead_git_elsewhere_are_not_heard(tmp_path, environment, git):
    elsewhere = {"GIT_DIR": str(tmp_path / "nowhere"), "GIT_INDEX_FILE": "/dev/null", "GIT_AUTHOR_NAME": "X"}
    misled = Git(git.folder, environment | elsewhere)
    commit(misled, a="1")
    assert misled.line("rev-parse", "--git-dir") == ".git"
    assert misled.line("log", "-1", "--format=%an") == "Proctor"


def test_hooks_of_the_repository_do_not_run(git):
    for name in ("pre-commit", "post-commit", "reference-transaction", "post-checkout"):
        hook = git.folder / ".git/hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text("#!/bin/sh\ntouch ran\nexit 1\n")
        hook.chmod(0o755)
    commit(git)
    git("checkout", "--quiet", "-b", "other")
    assert not (git.folder / "ran").exists()


def test_looking_at_a_checkout_does_not_rewrite_its_index(git):
    commit(git, a="1")
    index = git.folder / ".git/index"
    (git.folder / "a").touch()
    before = index.stat().st_mtime_ns, index.read_bytes()
    git("status", "--porcelain")
    assert (index.stat().st_mtime_ns, index.read_bytes()) == before


def test_an_error_says_which_command_it_was_and_what_git_said(git):
    with pytest.raises(GitError, match=r"`git checkout nowhere` exited with 1: .*nowhere") as caught:
        git("checkout", "nowhere")
    assert caught.value.exit_code == 1
    assert git("checkout", "nowhere", allowed=(1,)) == ""


def test_a_call_that_does_not_end_is_ended_with_all_it_started(git, monkeypatch):
    # The real limit is five minutes.
    monkeypatch.setattr(git_module, "TIME_LIMIT_SECONDS", 1)
    git("config", "alias.wait", "!echo $$ > pid; sleep 1000")
    with pytest.raises(GitError, match="still running after 1 s"):
        git("wait")
    pid = int((git.folder / "pid").read_text())
    # A killed process closes its files before it counts as ended.
    eventually(lambda: not is_alive(pid))


def test_a_name_that_looks_like_an_option_is_a_name(git):
    commit(git)
    assert git.commit_of("--all") == ""
    assert git.commit_of("main") == git.commit_of("HEAD") != ""


def test_changes_are_counted_whatever_files_are_called(git):
    first = commit(git, **{"moved.txt": "one\ntwo\nthree\nfour\n", "gone": "1\n2\n"})
    (git.folder / "moved.txt").rename(git.folder / "to here.txt")
    (git.folder / "gone").unlink()
    (git.folder / "binary").write_bytes(bytes(range(256)))
    last = commit(git, **{"tab\tand\nline": "x\n", "ünï": "y\nz\n"})
    assert git.changes(first, last) == Changes(files=5, lines_added=3, lines_removed=2)
    assert git.changes(last, last) == Changes()
