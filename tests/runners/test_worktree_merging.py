"""Work that passed is brought onto the base branch one at a time, and never at the cost of the user's."""

import asyncio
import fcntl
import os
import shutil
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from coding_sessions import attempt, git, repository

from proctor.errors import WorkspaceError
from proctor.testing import eventually_async
from proctor.workspace.merge_queue import clean_up, squash
from proctor.workspace.source_repository import open_source

ON_PASS = {"mergeOnPass": True}


@pytest.fixture
def repo(tmp_path):
    """`main` is not checked out: the user works on `mine`."""
    repo = repository(tmp_path / "project", {"a.txt": "a\n", "b.txt": "b\n"})
    git(repo, "checkout", "--quiet", "-b", "mine")
    git(repo, "config", "user.name", "User")
    git(repo, "config", "user.email", "user@example.org")
    return repo


async def overtaken(tmp_path, repo, first, second, *, settings=ON_PASS, **details):
    """Two sessions, the first of which is merged while the second works; both, and how the second ended."""
    wait = f"while [ ! -e {tmp_path}/go ]; do sleep 0.01; done"
    one, two = attempt(tmp_path, repo, first), attempt(tmp_path, repo, f"{wait}; {second}")
    running = asyncio.ensure_future(two.run("second", item_settings=settings, **details))
    await eventually_async(lambda: two.events[1:])
    await one.run("first", item_settings=ON_PASS, **details)
    (tmp_path / "go").touch()
    return one, two, await running


async def test_work_that_passed_becomes_one_commit_on_the_base_branch(tmp_path, repo):
    work = attempt(tmp_path, repo, "echo 1 > n; git add n; git commit -qm one; echo 2 > n")
    before = git(repo, "rev-parse", "main")

    outcome = await work.run("Add n\n\nplease", scriptCommand="test -f n", item_settings=ON_PASS)

    assert outcome.status == "success"
    assert git(repo, "log", "--format=%s", f"{before}..main") == "Add n"
    assert git(repo, "show", "main:n") == "2"
    assert git(repo, "rev-parse", "main^") == before
    (merged,) = work.merges
    assert (merged.result, merged.base_branch) == ("success", "main")
    assert (merged.before_sha, merged.after_sha) == (before, git(repo, "rev-parse", "main"))
    assert git(repo, "log", "--format=%s", f"{before}..{work.branch}").splitlines() == ["Add n", "one"]
    assert work.notes == []


async def test_a_checkout_of_the_base_branch_moves_with_it_and_keeps_its_own_changes(tmp_path, repo):
    git(repo, "checkout", "--quiet", "main")
    (repo / "b.txt").write_text("by hand\n")
    (repo / "untracked").write_text("mine\n")
    work = attempt(tmp_path, repo, "echo better > a.txt")

    outcome = await work.run(item_settings=ON_PASS)

    assert outcome.status == "success"
    assert (repo / "a.txt").read_text() == "better\n"
    assert (repo / "b.txt").read_text() == "by hand\n"
    assert git(repo, "status", "--porcelain").split() == ["M", "b.txt", "??", "untracked"]
    assert git(repo, "log", "-1", "--format=%s") == "Fix the bug"


async def test_a_checkout_whose_changes_would_be_lost_keeps_the_base_branch_where_it_is(tmp_path, repo):
    git(repo, "checkout", "--quiet", "main")
    (repo / "a.txt").write_text("by hand\n")
    before = git(repo, "rev-parse", "main")
    work = attempt(tmp_path, repo, "echo better > a.txt")

    outcome = await work.run(item_settings=ON_PASS)

    assert (outcome.status, outcome.result["merge"]) == ("success", "error")
    (note,) = work.notes
    assert "a.txt" in note and "overwritten" in note and f"proctor sessions merge {work.id}" in note
    assert work.merges[-1].result == "error"
    assert git(repo, "rev-parse", "main") == before
    assert (repo / "a.txt").read_text() == "by hand\n"
    assert git(repo, "show", f"{work.branch}:a.txt") == "better"


async def test_a_checkout_in_a_linked_work_tree_is_found(tmp_path, repo):
    git(repo, "worktree", "add", "--quiet", str(tmp_path / "linked"), "main")
    work = attempt(tmp_path, repo, "echo better > a.txt")

    await work.run(item_settings=ON_PASS)

    assert (tmp_path / "linked/a.txt").read_text() == "better\n"
    assert git(tmp_path / "linked", "status", "--porcelain") == ""


async def test_a_base_that_is_no_local_branch_cannot_be_merged_to(tmp_path, repo):
    git(repo, "tag", "v1")
    work = attempt(tmp_path, repo, "echo better > a.txt")

    outcome = await work.run(baseBranch="v1", item_settings=ON_PASS)

    assert (outcome.status, outcome.result["merge"]) == ("success", "error")
    assert "v1 is not a branch" in work.notes[0]


async def test_when_the_base_has_moved_the_check_runs_again_on_the_result(tmp_path, repo):
    check = f"echo checked >> {tmp_path}/checks; cat a.txt b.txt"

    one, two, outcome = await overtaken(
        tmp_path, repo, "echo 1 > a.txt", "echo 2 > b.txt", scriptCommand=check
    )

    assert outcome.status == "success"
    assert git(repo, "log", "--format=%s", "main").splitlines() == ["second", "first", "first"]
    assert (git(repo, "show", "main:a.txt"), git(repo, "show", "main:b.txt")) == ("1", "2")
    assert (tmp_path / "checks").read_text() == "checked\n" * 3
    assert one.notes == two.notes == []


@pytest.mark.parametrize(
    ("together", "end", "error"),
    [
        ("echo they break; exit 3", ("fail", "checks_failed_after_rebase"), "exited with 3: they break"),
        ("sleep 60", ("timeout", "timeout"), "was still running after 5 s"),
    ],
)
async def test_work_that_passes_alone_but_not_on_the_moved_base_is_not_merged(
    tmp_path, repo, together, end, error
):
    one, two, outcome = await overtaken(
        tmp_path,
        repo,
        "touch one",
        "touch two",
        settings={**ON_PASS, "checkTimeoutSec": 5},
        scriptCommand=f"if [ -e one -a -e two ]; then {together}; fi",
    )

    assert (outcome.status, outcome.reason) == end
    assert outcome.error.endswith(error)
    assert git(repo, "rev-parse", "main") == one.merges[-1].after_sha
    assert two.merges[-1].result == "error"


async def test_a_conflict_is_no_failure_of_the_work_names_its_files_and_leaves_the_branch(tmp_path, repo):
    conflicting = "echo theirs > a.txt; echo more >> b.txt"

    one, two, outcome = await overtaken(tmp_path, repo, "echo ours > a.txt", conflicting)

    assert (outcome.status, outcome.reason, outcome.result["merge"]) == ("success", "unchecked", "conflict")
    assert "not merged: conflicts with main in a.txt" in two.notes
    assert (two.merges[-1].result, two.merges[-1].conflict_files) == ("conflict", ("a.txt",))
    assert git(repo, "rev-parse", "main") == one.merges[-1].after_sha
    assert git(repo, "show", f"{two.branch}:a.txt") == "theirs"


async def test_a_queue_of_many_sessions_loses_none_and_breaks_nothing(tmp_path, repo):
    works = [
        attempt(tmp_path, repo, f"echo {n} > n{n}; echo {n} > {'same' if n % 2 == 0 else f'm{n}'}")
        for n in range(4)
    ]

    outcomes = await asyncio.gather(
        *(
            work.run(f"Task {n}", scriptCommand="test -e a.txt", item_settings=ON_PASS)
            for n, work in enumerate(works)
        )
    )

    merged = [n for n, outcome in enumerate(outcomes) if outcome.result["merge"] == "success"]
    assert {(outcome.status, outcome.reason) for outcome in outcomes} == {("success", "completed")}
    assert [outcome.result["merge"] for outcome in outcomes].count("conflict") == 1
    assert sorted(git(repo, "log", "--format=%s", "main").splitlines()[:-1]) == [f"Task {n}" for n in merged]
    assert {f"n{n}" for n in merged} < set(git(repo, "ls-tree", "--name-only", "main").split())
    assert git(repo, "log", "--merges", "main") == ""
    assert not list((tmp_path / "home/worktrees").glob("merging-*"))


async def test_commits_the_user_makes_meanwhile_are_never_lost(tmp_path, repo):
    git(repo, "checkout", "--quiet", "main")
    by_hand = "git -c user.name=U -c user.email=u@localhost commit -q --allow-empty -m 'by hand'"
    # The user commits while the check of the session runs.
    check = f"if [ ! -e {tmp_path}/once ]; then touch {tmp_path}/once; cd {repo} && {by_hand}; fi"
    work = attempt(tmp_path, repo, "echo better > b.txt")

    outcome = await work.run(scriptCommand=check, item_settings=ON_PASS)

    assert outcome.status == "success"
    assert git(repo, "log", "--format=%s", "main").splitlines() == ["Fix the bug", "by hand", "first"]


def open_files(path):
    """The descriptors of this process for a file."""
    # Other threads close theirs meanwhile.
    return [link for link in Path("/proc/self/fd").iterdir() if _target(link) == path]


def _target(link):
    with suppress(FileNotFoundError):
        return link.readlink()


async def test_merging_waits_for_whoever_else_merges_to_the_same_repository(tmp_path, repo):
    source = open_source(repo, {"PATH": os.environ["PATH"]})
    lock = tmp_path / "home/repos" / f"{source.key}.merge.lock"
    lock.parent.mkdir(parents=True)
    work = attempt(tmp_path, repo, "echo better > a.txt")
    with lock.open("w") as another:
        fcntl.flock(another, fcntl.LOCK_EX)
        running = asyncio.ensure_future(work.run(item_settings=ON_PASS))
        # This test has it open, and so has the merge that waits for it.
        await eventually_async(lambda: len(open_files(lock)) == 2)
        assert git(repo, "branch", "--list", "batch/*")
        assert work.merges == []
        assert not running.done()

    assert (await running).status == "success"
    assert git(repo, "show", "main:a.txt") == "better"


async def test_references_that_come_and_go_meanwhile_disturb_no_merge(tmp_path, repo):
    others = [repo / f".git/refs/others/{number}/deep" for number in range(200)]
    ended = threading.Event()

    def come_and_go():
        while not ended.is_set():
            for folder in others:
                folder.mkdir(parents=True)
            for folder in others:
                shutil.rmtree(folder.parent)

    user = threading.Thread(target=come_and_go)
    user.start()
    try:
        outcome = await attempt(tmp_path, repo, "echo better > a.txt").run(item_settings=ON_PASS)
    finally:
        ended.set()
        user.join()

    assert (outcome.status, git(repo, "show", "main:a.txt")) == ("success", "better")


KILLED = """#!/bin/sh
case "$*" in *"merge --ff-only"*) if mkdir {mark}; then
  for after; do :; done
  for name in a.txt n.txt; do {git} show "$after:$name" > $name; done
  touch .git/index.lock; kill -9 $$
fi;; esac
exec {git} "$@"
"""


async def test_a_merge_whose_git_was_killed_in_the_users_checkout_is_made_again(tmp_path, repo):
    git(repo, "checkout", "--quiet", "main")
    program = tmp_path / "bin/git"
    program.parent.mkdir()
    program.write_text(KILLED.format(mark=tmp_path / "killed", git=shutil.which("git")))
    program.chmod(0o755)
    work = attempt(tmp_path, repo, "echo better > a.txt; echo new > n.txt")

    outcome = await work.run(
        item_settings=ON_PASS, environment={"PATH": f"{program.parent}:{os.environ['PATH']}"}
    )

    assert (tmp_path / "killed").is_dir() and outcome.result["merge"] == "success", outcome.error
    assert git(repo, "status", "--porcelain") == ""
    assert ((repo / "a.txt").read_text(), (repo / "n.txt").read_text()) == ("better\n", "new\n")


async def test_nothing_to_merge_is_no_empty_commit(tmp_path, repo):
    before = git(repo, "rev-parse", "main")

    outcome = await attempt(tmp_path, repo, "true").run(scriptCommand="true", item_settings=ON_PASS)

    assert outcome.status == "success"
    assert git(repo, "rev-parse", "main") == before


# What can be done with a session afterward


@pytest.fixture
async def session(tmp_path, repo):
    work = attempt(tmp_path, repo, "echo 1 > n; git add n; git commit -qm one; echo 2 > n")
    await work.run("Add n", item_settings={"keep": "always"})
    return work


@pytest.fixture
def source(repo):
    return open_source(repo, {"PATH": os.environ["PATH"]})


def test_a_session_can_be_cleared_away_with_its_branch_or_without(tmp_path, repo, source, session):
    assert clean_up(tmp_path / "home", session.id) == ""
    assert not session.folder.exists()
    assert git(repo, "rev-parse", session.branch)

    assert clean_up(tmp_path / "home", session.id, source, session.branch) == ""
    assert git(repo, "branch", "--list", "batch/*") == ""


def test_only_branches_of_sessions_can_be_squashed_or_removed(tmp_path, repo, source):
    with pytest.raises(WorkspaceError, match="not under batch/"):
        squash(source, "mine", "main", "x")
    with pytest.raises(WorkspaceError, match="not under batch/"):
        clean_up(tmp_path / "home", "s", source, "main")


@pytest.mark.parametrize("session", ["", ".", ".."])
def test_clearing_away_no_session_in_particular_is_refused(tmp_path, session):
    with pytest.raises(ValueError, match="not a valid session ID"):
        clean_up(tmp_path / "home", session)


# As if it were merged by hand


def identify(repo, **settings):
    for name, value in {"user.name": "Ada", "user.email": "ada@example.org", **settings}.items():
        git(repo, "config", name.replace("__", "."), value)


@pytest.mark.parametrize("moved", [False, True])
async def test_a_merge_is_committed_by_the_user(tmp_path, repo, moved):
    identify(repo)
    move = (
        f"git -C {repo} worktree add -q {tmp_path}/w main; cd {tmp_path}/w; git commit -q --allow-empty -m m"
    )
    work = attempt(tmp_path, repo, "echo 1 > n" + (f"; ({move})" if moved else ""))

    await work.run("Add n", scriptCommand="test -f n", item_settings=ON_PASS)

    assert git(repo, "log", "-1", "--format=%an %ae %cn %s", "main") == "Ada ada@example.org Ada Add n"
    assert git(repo, "log", "-1", "--format=%an", work.branch) == "Proctor"
    assert not any("committed by Proctor" in note for note in work.notes)


async def test_a_merge_is_signed_where_the_repository_says_so_and_not_made_if_that_fails(tmp_path, repo):
    signer = tmp_path / "gpg"
    signer.write_text(
        "#!/bin/sh\ncat > /dev/null\nprintf '\\n[GNUPG:] SIG_CREATED x\\n' >&2\necho signature\n"
    )
    signer.chmod(0o755)
    identify(repo, commit__gpgSign="true", gpg__program=str(signer))
    before = git(repo, "rev-parse", "main")

    await attempt(tmp_path, repo, "echo 1 > n").run(scriptCommand="true", item_settings=ON_PASS)
    signed = git(repo, "rev-parse", "main")
    signer.write_text("#!/bin/sh\nexit 2\n")
    outcome = await attempt(tmp_path, repo, "echo 2 > m").run(scriptCommand="true", item_settings=ON_PASS)

    assert signed != before and "gpgsig signature" in git(repo, "cat-file", "commit", "main")
    assert (outcome.status, outcome.reason, outcome.result["merge"]) == ("success", "completed", "error")
    assert git(repo, "rev-parse", "main") == signed


@pytest.mark.parametrize("folder", [".git/hooks", ".githooks"])
async def test_hooks_that_a_merge_by_hand_would_run_are_named(tmp_path, repo, folder):
    identify(repo, **({"core__hooksPath": folder} if folder == ".githooks" else {}))
    (repo / folder).mkdir(exist_ok=True)
    (repo / folder / "pre-commit").write_text("#!/bin/sh\nexit 1\n")
    (repo / folder / "pre-commit").chmod(0o755)
    work = attempt(tmp_path, repo, "echo 1 > n")

    outcome = await work.run(scriptCommand="true", item_settings=ON_PASS)

    assert outcome.result["merge"] == "success"
    assert work.notes == ["hooks of the repository were not run for the merge: pre-commit"]


async def test_without_a_name_in_the_settings_a_merge_is_proctors_and_says_so(tmp_path):
    repo = repository(tmp_path / "anonymous")
    work = attempt(tmp_path, repo, "echo 1 > n")

    await work.run(scriptCommand="true", item_settings=ON_PASS)

    assert git(repo, "log", "-1", "--format=%an", "main") == "Proctor"
    assert work.notes == ["git has no user.name and user.email here: the merge was committed by Proctor"]
