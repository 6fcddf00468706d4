"""The coding session from prompt to verdict."""

import asyncio
import os
import shutil
from dataclasses import dataclass
from datetime import timedelta, timezone
from typing import ClassVar

import pytest
from coding_sessions import NOW, Attempt, Shell, attempt, git, repository

from proctor.agent import Agent
from proctor.errors import AgentError, ModelError, TimeLimit, WorkspaceError
from proctor.git import is_address
from proctor.session import Workspace
from proctor.testing import eventually_async
from proctor.workspace.setup import session_name, slug_of, title_of


@pytest.fixture
def repo(tmp_path):
    return repository(tmp_path / "project")


# What happens to the work


async def test_what_the_agent_changed_is_committed_on_a_branch_of_the_users_repository(tmp_path, repo):
    work = attempt(tmp_path, repo, "echo more >> hello.txt; echo new > added.txt; rm src/app.py")

    outcome = await work.run("Fix the bug\n\nin detail")

    assert outcome.status == "success"
    changes = git(repo, "diff", "--name-status", f"main...{work.branch}")
    assert changes == "A\tadded.txt\nM\thello.txt\nD\tsrc/app.py"
    assert outcome.result == {"iterSha": git(repo, "rev-parse", work.branch)}
    assert git(repo, "log", "-1", "--format=%an <%ae>|%B", work.branch).splitlines() == [
        "Proctor <proctor@localhost>|Fix the bug",
        "",
        work.branch,
    ]
    step = work.iteration
    assert (step.changed_files, step.lines_added, step.lines_removed) == (3, 2, 1)


async def test_commits_of_the_agents_own_are_kept(tmp_path, repo):
    work = attempt(tmp_path, repo, "echo a > a; git add a; git commit -q -m 'mine'; echo b > b")

    await work.run()

    log = git(repo, "log", "--format=%an: %s", f"main..{work.branch}").splitlines()
    assert log == ["Proctor: Fix the bug", "Proctor agent: mine"]
    assert work.iteration.changed_files == 2


async def test_ignored_files_are_no_work_binary_ones_are_and_a_moved_file_counts_once(tmp_path):
    repo = repository(tmp_path / "project", {".gitignore": "*.log\n", "hello.txt": "hello\n"})
    (repo / ".git/info/exclude").write_text("private\n")
    command = "touch a.log private; printf 'a\\000b' > 'a b.bin'; git mv hello.txt bye.txt"
    work = attempt(tmp_path, repo, command)

    await work.run()

    changed = git(repo, "diff", "--name-only", "--no-renames", f"main...{work.branch}").splitlines()
    assert changed == ["a b.bin", "bye.txt", "hello.txt"]
    assert (work.iteration.changed_files, work.iteration.lines_added) == (2, 0)


# Who decides


async def test_the_check_decides_and_its_output_is_kept_and_not_what_it_leaves_in_the_tree(tmp_path, repo):
    # The word of the agent does not count.
    work = attempt(tmp_path, repo, "echo x > done; exit 9")

    outcome = await work.run(
        scriptCommand="echo testing; test -f done; echo junk > coverage.xml; echo all well"
    )

    assert (outcome.status, outcome.reason, outcome.error) == ("success", "completed", "")
    assert (work.iteration.test_result, work.iteration.test_exit_code) == ("pass", 0)
    assert (work.iteration.exit_code, work.iteration.test_output) == (9, "testing\nall well\n")
    assert work.iteration.test_duration_ms > 0
    assert git(repo, "diff", "--name-only", f"main...{work.branch}") == "done"


ENDS = {
    # What the agent does, the check, and what follows.
    "the check fails": (
        "echo x > done",
        "echo one; echo '2 tests failed'; exit 3",
        ("checks_failed", "`echo one; echo '2 tests failed'; exit 3` exited with 3: 2 tests failed"),
    ),
    "nothing was changed, and the agent has failed": (
        "echo no idea; exit 9",
        "true",
        ("agent_failed", "exited with 9"),
    ),
    "no check, and the agent has failed": ("echo x > a; exit 2", "", ("agent_failed", "exited with 2")),
    "no check and no change": (
        "true",
        "",
        ("no_changes", "the agent made no changes, and the plan has no scriptCommand to check the result"),
    ),
}


@pytest.mark.parametrize("case", ENDS)
async def test_a_session_fails_for_one_reason(tmp_path, repo, case):
    command, check, end = ENDS[case]
    work = attempt(tmp_path, repo, command)

    outcome = await work.run(scriptCommand=check)

    assert (outcome.status, outcome.reason, outcome.error) == ("fail", *end)
    result = ("fail", 3) if end[0] == "checks_failed" else ("", None)
    assert (work.iteration.test_result, work.iteration.test_exit_code) == result
    changed = git(repo, "diff", "--name-only", f"main...{work.branch}")
    assert changed == command.partition("> ")[2].partition(";")[0]


async def test_a_check_that_takes_too_long_is_ended_and_is_a_timeout(tmp_path, repo):
    work = attempt(tmp_path, repo, "echo x > a")

    outcome = await work.run(scriptCommand="echo begun; sleep 60", item_settings={"checkTimeoutSec": 2.0})

    assert (outcome.status, outcome.reason) == ("timeout", "timeout")
    assert "after 2 s" in outcome.error
    assert (work.iteration.test_result, work.iteration.test_output) == ("fail", "begun\n")


@dataclass
class Raises(Agent):
    """An agent that writes a file and then breaks off."""

    error: BaseException
    is_mock: ClassVar[bool] = True

    async def work(self, assignment, record):
        (assignment.folder / "half.txt").write_text("half\n")
        raise self.error


@pytest.mark.parametrize("error", [AgentError("too hard"), ModelError("no answer"), RuntimeError("a bug")])
async def test_what_was_done_is_kept_when_an_agent_gives_up_and_before_other_errors_pass(
    tmp_path, repo, error
):
    work = Attempt(tmp_path / "home", repo, Raises(error))

    if isinstance(error, AgentError):
        outcome = await work.run()
        assert (outcome.status, outcome.reason, outcome.error) == ("fail", "agent_failed", "too hard")
    else:
        with pytest.raises(type(error)):
            await work.run()

    assert git(repo, "diff", "--name-only", f"main...{work.branch}") == "half.txt"
    assert work.iteration.changed_files == 1


async def test_an_agent_that_takes_too_long_is_ended_and_its_work_so_far_is_kept(tmp_path, repo):
    work = attempt(tmp_path, repo, "echo half > half.txt; git add half.txt; sleep 60")

    with pytest.raises(TimeLimit):
        await work.run(item_settings={"timeoutSec": 0.5})

    assert git(repo, "diff", "--name-only", f"main...{work.branch}") == "half.txt"
    assert work.iteration.commit_sha == git(repo, "rev-parse", work.branch)


async def test_work_that_cannot_be_published_after_a_timeout_is_a_note_and_the_timeout_stays(tmp_path, repo):
    work = attempt(tmp_path, repo, f"echo half > half.txt; mv {repo} {tmp_path}/moved; sleep 60")

    with pytest.raises(TimeLimit):
        await work.run(item_settings={"timeoutSec": 1})

    assert (tmp_path / "moved").is_dir()
    assert sum(note.startswith("the agent's changes could not be committed: ") for note in work.notes) == 1
    assert (work.iteration.model, work.iteration.commit_sha) == ("m1", "")


@pytest.mark.parametrize("details", [{}, {"scriptCommand": "touch ../reached; sleep 60"}])
async def test_an_aborted_session_keeps_and_publishes_what_was_done(tmp_path, repo, details):
    command = "echo half > half.txt" + ("" if details else "; touch ../reached; sleep 60")
    work = attempt(tmp_path, repo, command)
    task = asyncio.ensure_future(work.run(**details))
    await eventually_async(lambda: (work.folder / "reached").exists())

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert git(repo, "diff", "--name-only", f"main...{work.branch}") == "half.txt"
    assert work.iteration.changed_files == 1


# What it is called


@pytest.mark.parametrize(
    ("prompt", "slug"),
    [
        ("Implement auth feature", "implement-auth-feature"),
        ("  Fix: the *BUG* in `x.lock`  ", "fix-the-bug-in-x-lock"),
        ("a" * 29 + " b c", "a" * 29),
        ("日本語", "session"),
        ("", "session"),
        ("../../etc/passwd\n~^:?*[\\@{", "etc-passwd"),
    ],
)
def test_a_session_is_named_for_its_prompt(tmp_path, prompt, slug):
    assert slug_of(prompt) == slug
    name = session_name(prompt, NOW, "a1b2c3d4e5f60718", 1)
    assert name == f"batch/{slug}/20260304-050607/a1b2c3d4"
    git(tmp_path, "check-ref-format", f"refs/heads/{name}")


def test_later_attempts_and_names_that_are_taken_get_others():
    at = NOW.astimezone(timezone(timedelta(hours=2)))
    start = "batch/x/20260304-050607/"
    assert session_name("x", at, "0123456789", 3) == f"{start}01234567-3"
    names = [f"{start}01234567", f"{start}012345678", f"{start}0123456789"]
    for taken, name in enumerate([*names, f"{names[2]}.1"]):
        assert session_name("x", at, "0123456789", 1, names[:taken]) == name


def test_a_commit_is_titled_with_the_first_line_that_says_something():
    assert title_of("\n\n  Fix it \nplease") == "Fix it"
    assert len(title_of("x" * 500)) == 72
    assert title_of(" \n") != ""


# What the agent finds


async def test_the_agent_has_a_home_a_port_and_a_temporary_folder_of_its_own(tmp_path, repo):
    secret = {
        "SSH_AUTH_SOCK": "/run/agent",
        "GIT_DIR": "/elsewhere",
        "XDG_RUNTIME_DIR": "/run",
        "LANG": "C.UTF-8",
        "PROCTOR_STORE": "/the/store",
    }
    work = attempt(tmp_path, repo, 'env -0 > "$TMPDIR/../../seen"; echo x > a')

    await work.run(
        "Say hi",
        environment=secret,
        env={"GREETING": "${LANG}!", "PORT": "1"},
        item_settings={"keep": "always"},
    )

    seen = dict(pair.split("=", 1) for pair in (work.folder / "seen").read_text().split("\0") if pair)
    home = work.folder / "home"
    assert seen["HOME"] == str(home)
    assert all(
        seen[f"XDG_{name}_HOME"].startswith(str(home)) for name in ("CONFIG", "DATA", "CACHE", "STATE")
    )
    assert seen["TMPDIR"].startswith(str(home))
    # Java does not read HOME.
    assert (seen["MAVEN_OPTS"], seen["GRADLE_USER_HOME"]) == (f"-Duser.home={home}", f"{home}/.gradle")
    assert seen["PWD"] == work.workspace.worktree
    assert seen["PROCTOR_PROMPT"] == "Say hi"
    assert seen["PROCTOR_MODEL"] == "m1"
    assert seen["PROCTOR_ATTEMPT"] == work.id
    assert seen["GREETING"] == "C.UTF-8!"
    assert (int(seen["PROCTOR_PORT"]), seen["PORT"]) == (int(seen["PROCTOR_PORT"]), "1")
    assert not any(name.startswith(("GIT_", "SSH_")) or name == "XDG_RUNTIME_DIR" for name in seen)
    own = {name.removeprefix("PROCTOR_") for name in seen if name.startswith("PROCTOR_")}
    assert own == {"PORT", "PROMPT", "MODEL", "ATTEMPT", "PROGRAM"}


async def test_a_prompt_that_no_variable_can_have_does_not_keep_the_agent_from_starting(tmp_path, repo):
    work = attempt(tmp_path, repo, 'printf %s "$PROCTOR_PROMPT" | wc -c > size')

    await work.run("Say\0 é" + "é" * 300_000)

    assert int(git(repo, "show", f"{work.branch}:size")) == 100_000


async def test_setup_runs_first_and_what_it_makes_is_by_its_name_alone_not_the_agents_work(tmp_path, repo):
    work = attempt(tmp_path, repo, "cp 'made/by setup' copied; touch starry.txt")

    names = "'*weird [name]' 'star*.txt' '#x' '!y' 'br[a]ck' 'q?'"
    outcome = await work.run(setup=f"mkdir made; echo x > 'made/by setup'; touch {names}; echo > hello.txt")

    assert outcome.status == "success"
    changed = git(repo, "diff", "--name-only", f"main...{work.branch}").split()
    assert changed == ["copied", "hello.txt", "starry.txt"]
    assert any("since setup made it" in note for note in work.notes)


@pytest.mark.parametrize(
    ("setup", "problem"),
    [
        (
            "seq 9999; echo broken; exit 4",
            r"(?s)broken; exit 4` exited with 4: broken\n.{1990,2000}\nbroken$",
        ),
        ("sleep 60", r"`sleep 60` was still running after 0\.2 s"),
    ],
)
async def test_a_setup_that_fails_or_takes_too_long_is_our_error_and_the_agent_does_not_start(
    tmp_path, repo, setup, problem
):
    work = attempt(tmp_path, repo, "touch ../started")
    settings = {"keep": "always", **({"setupTimeoutSec": 0.2} if "sleep" in setup else {})}

    with pytest.raises(WorkspaceError, match=problem) as caught:
        await work.run(setup=setup, item_settings=settings)

    assert caught.value.reason == "setup_failed"
    assert not (work.folder / "started").exists()


# Where it starts from


async def test_the_base_may_be_a_branch_of_origin_or_a_commit_and_tags_are_there(tmp_path, repo):
    git(repo, "tag", "v1")
    sha = git(repo, "rev-parse", "main")
    git(repo, "update-ref", "refs/remotes/origin/develop", sha)
    for base in ("develop", sha[:10]):
        work = attempt(tmp_path, repo, "git describe --tags > version")
        outcome = await work.run(base, baseBranch=base)
        assert outcome.status == "success"
        assert work.workspace.base_sha == sha
        assert git(repo, "show", f"{work.branch}:version") == "v1"


async def test_a_base_that_is_not_there_is_named_beside_those_that_are(tmp_path, repo):
    git(repo, "branch", "develop")
    with pytest.raises(
        WorkspaceError, match=r"no branch, tag or commit `trunk`.*(develop, main|main, develop)"
    ):
        await attempt(tmp_path, repo, "true").run(baseBranch="trunk")


async def test_a_subfolder_means_the_repository_around_it(tmp_path, repo):
    work = attempt(tmp_path, repo / "src", "ls > listing")

    await work.run()

    assert git(repo, "show", f"{work.branch}:listing").split() == ["hello.txt", "listing", "src"]
    assert any("works in all of it" in note for note in work.notes)


async def make_bare(tmp_path, repo):
    git(tmp_path, "clone", "--quiet", "--bare", str(repo), "bare.git")
    return tmp_path / "bare.git"


async def make_linked(tmp_path, repo):
    git(repo, "worktree", "add", "--quiet", "-b", "side", str(tmp_path / "linked"))
    return tmp_path / "linked"


async def make_borrowing(tmp_path, repo):
    git(tmp_path, "clone", "--quiet", "--shared", str(repo), "borrowing")
    alternates = tmp_path / "borrowing/.git/objects/info/alternates"
    alternates.write_text(os.path.relpath(repo / ".git/objects", tmp_path / "borrowing/.git/objects") + "\n")
    return tmp_path / "borrowing"


async def make_shallow(tmp_path, repo):
    for number in range(3):
        git(repo, "commit", "--quiet", "--allow-empty", "-m", str(number))
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{repo}", "shallow")
    return tmp_path / "shallow"


async def make_partial(tmp_path, repo):
    git(repo, "config", "uploadpack.allowFilter", "true")
    (repo / "hello.txt").write_text("changed\n")
    git(repo, "commit", "--quiet", "-a", "-m", "changed")
    git(tmp_path, "clone", "--quiet", "--filter=blob:none", f"file://{repo}", "partial")
    return tmp_path / "partial"


async def make_sha256(tmp_path, repo):
    return repository(tmp_path / "sha256", flags=["--object-format=sha256"])


async def make_strange(tmp_path, repo):
    return repository(tmp_path / "a b" / "-ünder [x].git.lock")


@pytest.mark.parametrize(
    "make", [make_bare, make_linked, make_borrowing, make_shallow, make_partial, make_sha256, make_strange]
)
async def test_every_kind_of_repository_can_be_worked_on(tmp_path, repo, make):
    kind = await make(tmp_path, repo)
    work = attempt(tmp_path, kind, "echo more >> hello.txt; git commit -q -a -m mine; echo x > a")

    outcome = await work.run()

    assert outcome.status == "success", outcome
    assert git(kind, "diff", "--name-only", f"main...{work.branch}").split() == ["a", "hello.txt"]
    assert work.notes == []
    git(kind, "fsck", "--strict")


async def test_line_ends_and_filters_are_those_of_the_users_repository(tmp_path):
    attributes = "*.up filter=upper\n*.safe filter=safe\n"
    files = {".gitattributes": attributes, "a.up": "quiet\n", "b.up": "still\n", "c.safe": "open\n"}
    repo = repository(tmp_path / "project", files)
    (repo / "a.up").chmod(0o755)
    git(repo, "commit", "--quiet", "-a", "-m", "a program")
    git(repo, "config", "filter.upper.smudge", 'tr a-z A-Z | sed "s/\\\\$/!/"')
    git(repo, "config", "filter.upper.clean", "tr A-Z a-z")
    git(repo, "config", "filter.safe.smudge", "cat")
    (tmp_path / "key").write_text("of the user")
    git(repo, "config", "filter.safe.clean", f"cat {tmp_path}/key > /dev/null && cat")
    git(repo, "config", "filter.safe.required", "true")
    command = "test -x a.up && cat a.up > seen.txt; echo MORE >> b.up; echo NEW > c.up; echo more >> c.safe"
    command += "; touch a.up"
    work = attempt(tmp_path, repo, command)

    outcome = await work.run(scriptCommand="echo x > a.up; cat b.up", item_settings={"baseline": True})

    assert outcome.status == "success"
    changed = git(repo, "diff", "--name-only", f"main...{work.branch}").split()
    assert changed == ["b.up", "c.up", "seen.txt"], "nobody changed a.up, and c.safe cannot be made safe"
    shown = [git(repo, "show", f"{work.branch}:{name}") for name in ("seen.txt", "b.up", "c.up")]
    assert shown == ["QUIET", "still\nmore", "new"]
    assert "c.safe is not committed as the agent left it: filter `safe` failed in the sandbox" in work.notes


# What stays


@pytest.mark.parametrize(
    ("keep", "command", "stays"),
    [
        ("always", "echo x > a", True),
        ("on_failure", "exit 1", True),
        ("never", "exit 1", False),
        (None, "echo x > a", False),
    ],
)
async def test_the_tree_stays_or_goes_as_the_plan_says_and_the_branch_stays(
    tmp_path, repo, keep, command, stays
):
    work = attempt(tmp_path, repo, command)

    await work.run(item_settings={"keep": keep})

    assert work.folder.exists() == stays
    assert git(repo, "rev-parse", "--verify", work.branch)


# Names and large files


@pytest.mark.parametrize("name", ["git", "home", "logs"])
async def test_a_repository_may_be_called_like_a_folder_of_proctors_own(tmp_path, name):
    repo = repository(tmp_path / name)
    work = attempt(tmp_path, repo, "git init -q inner; echo x > inner/file; echo y > a")

    await work.run()

    changed = git(repo, "diff", "--name-only", f"main...{work.branch}").splitlines()
    assert changed == ["a", "inner/file"]


LARGE_FILE_FILTER = """#!/bin/sh
content=$(mktemp); cat > "$content"
digest=$(sha256sum "$content" | cut -d' ' -f1)
place=$(git rev-parse --path-format=absolute --git-common-dir)/lfs/objects/$(echo $digest | cut -c1-2)
place=$place/$(echo $digest | cut -c3-4); mkdir -p "$place"; mv "$content" "$place/$digest"
printf 'version https://git-lfs.github.com/spec/v1\\noid sha256:%s\\nsize 9\\n' "$digest"
"""


async def test_large_files_of_the_agents_commit_reach_the_repository(tmp_path):
    repo = repository(tmp_path / "project", {".gitattributes": "*.bin filter=lfs\n"})
    program = tmp_path / "clean.sh"
    program.write_text(LARGE_FILE_FILTER)
    git(repo, "config", "filter.lfs.clean", f"sh {program}")
    work = attempt(
        tmp_path,
        repo,
        "printf 'big file\\n' > a.bin; mkdir -p ../git/lfs/objects/ab/cd; "
        "echo unrelated > ../git/lfs/objects/ab/cd/abcd",
    )

    await work.run(item_settings={"keep": "never"})

    pointer = git(repo, "show", f"{work.branch}:a.bin")
    digest = pointer.splitlines()[1].removeprefix("oid sha256:")
    stored = [path for path in (repo / ".git/lfs").rglob("*") if path.is_file()]
    assert [path.name for path in stored] == [digest]
    assert stored[0].read_text() == "big file\n"


# The check before the agent


@pytest.mark.parametrize(("check", "before"), [("true", "pass"), ("test -f done", "fail")])
async def test_the_check_can_be_run_before_the_agent_and_leaves_nothing(tmp_path, repo, check, before):
    work = attempt(tmp_path, repo, "test ! -e litter && grep -q hello hello.txt && echo x > done")

    outcome = await work.run(
        scriptCommand=f"echo > litter; echo > hello.txt; {check}", item_settings={"baseline": True}
    )

    assert outcome.status == "success"
    assert [event.baseline for event in work.of(Workspace) if event.baseline] == [before]
    assert any("passes already" in note for note in work.notes) is (before == "pass")
    assert git(repo, "diff", "--name-only", f"main...{work.branch}") == "done"


# Submodules and addresses


async def test_submodules_are_filled_in_from_the_users_checkout(tmp_path):
    inner = repository(tmp_path / "inner", {"deep.txt": "deep\n"})
    library = repository(tmp_path / "library", {"lib.py": "lib = 1\n"})
    allowed = ("-c", "protocol.file.allow=always")
    git(library, *allowed, "submodule", "--quiet", "add", str(inner), "inner")
    git(library, "commit", "-qm", "inner")
    repo = repository(tmp_path / "project")
    git(repo, *allowed, "submodule", "--quiet", "add", str(library), "vendor/lib")
    git(repo, *allowed, "submodule", "--quiet", "add", str(inner), "absent")
    git(repo, *allowed, "submodule", "--quiet", "add", str(inner), "far/linked")
    git(repo, "commit", "-qm", "library")
    git(repo, *allowed, "submodule", "--quiet", "update", "--init", "--recursive")
    git(repo, "submodule", "--quiet", "deinit", "--force", "absent")
    # A link to files that the user has elsewhere is not followed.
    git(tmp_path, "clone", "--quiet", str(inner), "elsewhere/linked")
    shutil.rmtree(repo / "far")
    (repo / "far").symlink_to(tmp_path / "elsewhere")
    work = attempt(
        tmp_path, repo, "cat vendor/lib/lib.py vendor/lib/inner/deep.txt > seen; echo x >> vendor/lib/lib.py"
    )

    outcome = await work.run(scriptCommand="true")

    assert outcome.status == "success"
    assert git(repo, "show", f"{work.branch}:seen") == "lib = 1\ndeep"
    assert git(repo, "diff", "--name-only", f"main...{work.branch}") == "seen"
    assert (repo / "vendor/lib/lib.py").read_text() == "lib = 1\n"
    assert "submodules whose files your checkout does not have are empty: absent, far/linked" in work.notes


@pytest.mark.parametrize(
    "command",
    [
        "cd vendor/lib; git init -q; git add .; git commit -qm x; echo 'rate = 2' > lib.py",
        "cd vendor/lib; rm lib.py; mkdir d; cd d; git init -q; echo x > x; git add .; git commit -qm x",
        "rm -r vendor/lib; ln -s /etc vendor/lib",
        "rm -r vendor; echo x > vendor",
        "echo 'rate = 2' > vendor/lib/lib.py; mkdir vendor/lib/sealed; echo x > vendor/lib/sealed/x; "
        "chmod 0 vendor/lib/sealed vendor/lib/lib.py",
    ],
)
async def test_whatever_an_agent_does_in_a_submodule_the_check_sees_the_files_of_its_commit(
    tmp_path, command
):
    library = repository(tmp_path / "library", {"lib.py": "rate = 1\n", ".gitignore": "built\n"})
    repo = repository(tmp_path / "project")
    git(repo, "-c", "protocol.file.allow=always", "submodule", "-q", "add", str(library), "vendor/lib")
    git(repo, "commit", "-qm", "library")
    work = attempt(tmp_path, repo, command)

    outcome = await work.run(
        scriptCommand="cd vendor/lib; grep 1 lib.py && ls -A",
        setup="echo x > vendor/lib/built; echo x > vendor/lib/made",
    )

    assert outcome.status == "success", outcome
    assert {".gitignore", "lib.py", "made"} <= {*work.iteration.test_output.split()}
    assert any("changes in submodules (vendor/lib)" in note for note in work.notes)


async def test_a_repository_may_be_an_address_and_is_mirrored_once(tmp_path, repo):
    address = f"file://{repo}"
    first, second = (Attempt(tmp_path / "home", repo, Shell("cat hello.txt > seen")) for _ in range(2))

    await asyncio.gather(
        *(work.run(item_settings={"repo": address}, baseBranch="HEAD") for work in (first, second))
    )

    (mirror,) = (tmp_path / "home/mirrors").glob("*/*")
    assert (mirror.name, git(mirror, "remote")) == ("project.git", "")
    assert first.workspace.repo == second.workspace.repo == str(mirror)
    assert (
        git(mirror, "show", f"{first.branch}:seen") == git(mirror, "show", f"{second.branch}:seen") == "hello"
    )
    assert git(repo, "branch", "--list", "batch/*") == ""


@pytest.mark.parametrize(
    ("repo", "expected"),
    [
        ("https://example.org/a/b.git", True),
        ("git@example.org:a/b.git", True),
        ("ext::sh -c x", False),
        ("https://-oProxyCommand=x", False),
        ("../project", False),
        ("/srv/git@home:1", False),
    ],
)
def test_what_is_an_address(repo, expected):
    assert is_address(repo) is expected


@pytest.mark.parametrize("cache", ["shared", "own"])
async def test_setup_may_share_caches_that_the_agent_does_not_see(tmp_path, repo, cache):
    keep = 'd="${PIP_CACHE_DIR:-$HOME}"; test -e "$d/wheel" && echo warm >> log || touch "$d/wheel"'
    for _ in range(2):
        work = attempt(tmp_path, repo, 'cp log seen; echo "cache:$PIP_CACHE_DIR" >> seen')
        await work.run(setup=f"touch log; {keep}", scriptCommand="true", item_settings={"cache": cache})

    expected = "warm\ncache:" if cache == "shared" else "cache:"
    assert git(repo, "show", f"{work.branch}:seen") == expected
    assert (tmp_path / "home/caches/pip/wheel").exists() is (cache == "shared")


# The user's login


@dataclass
class WithLogin(Shell):
    login: str = "mine"
    login_files: ClassVar[tuple[str, ...]] = (".tool/login.json", ".tool/other.json")


@pytest.mark.parametrize("trick", ["", "rm -r ~/.tool; ln -s {} ~/.tool"])
async def test_an_agent_may_use_a_copy_of_the_users_login_which_the_check_does_not_see(tmp_path, repo, trick):
    users = tmp_path / "home/of-the-user/.tool"
    users.mkdir(parents=True)
    (users / "login.json").write_text("secret")
    (users / "other.json").mkdir()
    command = f'test "$(cat ~/.tool/login.json)" = secret && echo x > a; {trick.format(users)}'
    work = Attempt(tmp_path / "home", repo, WithLogin(command))

    check = "test -f a" if trick else "test -f a && ! test -e ~/.tool/login.json"
    outcome = await work.run(scriptCommand=check, item_settings={"keep": "always"})

    assert outcome.status == "success"
    assert trick or not (work.folder / "home/.tool/login.json").exists()
    assert (users / "login.json").read_text() == "secret", "links of an agent cost the user no login"


async def test_without_a_login_to_use_the_agent_does_not_start(tmp_path, repo):
    work = Attempt(tmp_path / "home", repo, WithLogin("touch ../started"))
    with pytest.raises(WorkspaceError, match="there is no login of the agent"):
        await work.run()
    assert not (work.folder / "started").exists()
