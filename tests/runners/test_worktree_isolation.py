"""Whatever an agent does with git, the user's repository and the sessions beside it do not notice."""

import asyncio
import shutil

import pytest
from coding_sessions import attempt, git, repository, snapshot

from proctor.errors import WorkspaceError
from proctor.testing import eventually_async


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A repository in use: a dirty checkout, staged changes, a stash, a remote."""
    folder = tmp_path_factory.mktemp("used")
    repo = repository(folder / "project")
    git(repo, "branch", "develop")
    git(folder, "clone", "--quiet", "--bare", str(repo), "origin.git")
    git(repo, "remote", "add", "origin", "../origin.git")
    (repo / "hello.txt").write_text("stashed\n")
    git(repo, "stash", "--quiet")
    (repo / "hello.txt").write_text("edited by hand\n")
    (repo / "staged.txt").write_text("staged\n")
    git(repo, "add", "staged.txt")
    (repo / "untracked.txt").write_text("untracked\n")
    return folder


@pytest.fixture
def repo(tmp_path, template):
    """A copy of it, with hooks that say when they run."""
    for name in ("project", "origin.git"):
        shutil.copytree(template / name, tmp_path / name)
    repo = tmp_path / "project"
    git(repo, "status")
    hooks = "post-checkout pre-commit commit-msg post-commit reference-transaction post-merge"
    for name in hooks.split():
        hook = repo / ".git/hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/a-hook-ran\nexit 1\n")
        hook.chmod(0o755)
    return repo


HOSTILE = {
    "settings": "git config user.name Mallory; git config core.bare true; git config core.hooksPath /tmp",
    "branches": "git branch -D main; git branch -f develop HEAD; git tag -f v9",
    "another branch": "git checkout -q main; echo y >> hello.txt; git commit -qam x",
    "a stash": "echo y > b; git add b; git stash; git stash list; git stash pop; git stash drop",
    "pushing": "git commit -q --allow-empty -m x; git push; git push --all; git push origin HEAD:main",
    "no link": "rm -rf .git",
    "a repository of its own": "rm -rf .git; git init -q; git add -A; git commit -qm mine",
    "a broken repository": 'rm -rf "$(git rev-parse --git-common-dir)"',
    "a broken index": 'echo garbage > "$(git rev-parse --git-dir)/index"',
    "locks": "touch $(git rev-parse --git-dir)/index.lock $(git rev-parse --git-common-dir)/config.lock",
    "an upkeep": "git gc -q --prune=now --aggressive; git prune; git worktree prune; git reflog expire --all",
    "a hook": "h=$(git rev-parse --git-common-dir)/hooks; mkdir -p $h; cp $(command -v false) $h/pre-commit",
    "a filter": (
        "git config filter.f.clean false; git config filter.f.required 1; echo '* filter=f' > .gitattributes"
    ),
    "hidden files": (
        "echo changed > hello.txt; git update-index --assume-unchanged hello.txt;"
        "git update-index --skip-worktree src/app.py; rm src/app.py"
    ),
    "a rewritten history": "git commit -q --amend -m other; git checkout -q --orphan new",
    "no branch": "git checkout -q --detach; git commit -q --allow-empty -m x",
    "a graft": (
        "echo y > b; git add b; git commit -qm b;"
        'echo "$(git rev-parse HEAD) $(printf %040d 1)" > "$(git rev-parse --git-common-dir)/info/grafts"'
    ),
    "a link as repository": "mv ../git ../old; mkdir ../new; ln -s a ../new/a; ln -s new ../git",
    "pipes that git reads": "rm src/app.py; mkfifo .gitignore src/.gitattributes src/app.py",
    "pipes in the repository": 'mkfifo "$(git rev-parse --git-dir)/MERGE_HEAD"',
    "a pipe as HEAD": 'cd "$(git rev-parse --git-dir)"; rm HEAD; mkfifo HEAD; cd "$OLDPWD"',
}


LINK = "the agent removed or replaced the tree's link to its repository; it was restored"
BROKEN = "the agent broke its repository; its own commits are lost, its files are not"
REMOVED = "the agent left links or pipes where git reads; they were removed:"
LEFT, OTHERS = "the agent left its tree on", "the agent left commits on other branches:"
NOTES = {
    "another branch": [f"{LEFT} main, not on the session's branch", f"{OTHERS} main"],
    "no link": [LINK],
    "a repository of its own": [LINK],
    "a broken repository": [BROKEN],
    "a rewritten history": [f"{OTHERS} main"],
    "no branch": [f"{LEFT} no branch, not on the session's branch"],
    "a link as repository": [f"{REMOVED} git", BROKEN],
    "pipes that git reads": [f"{REMOVED} .gitattributes, .gitignore, app.py"],
    "pipes in the repository": [f"{REMOVED} MERGE_HEAD"],
    "a pipe as HEAD": [f"{REMOVED} HEAD", BROKEN],
}
CHANGED = {
    "another branch": "A a M hello.txt",
    "a stash": "A a A b",
    "a filter": "A .gitattributes A a",
    "a graft": "A a A b",
    "hidden files": "A a M hello.txt D src/app.py",
    "pipes that git reads": "A a D src/app.py",
}


@pytest.mark.parametrize("trick", HOSTILE)
async def test_the_users_repository_is_the_same_byte_for_byte(tmp_path, repo, trick):
    before, origin = snapshot(repo), snapshot(tmp_path / "origin.git")
    work = attempt(tmp_path, repo, f"{HOSTILE[trick]}; echo x > a")

    outcome = await work.run()

    assert snapshot(repo) == before
    assert snapshot(tmp_path / "origin.git") == origin
    assert not (tmp_path / "a-hook-ran").exists()
    # and the work is there
    assert outcome.status == "success", (outcome, work.iteration.output)
    assert git(repo, "show", f"{work.branch}:a") == "x"
    changed = git(repo, "diff", "--name-status", "main", work.branch).split()
    assert changed == CHANGED.get(trick, "A a").split()
    assert work.notes == NOTES.get(trick, [])
    git(repo, "fsck", "--connectivity-only")


async def test_sessions_side_by_side_share_neither_branches_nor_stash_nor_settings(tmp_path, repo):
    first = attempt(
        tmp_path,
        repo,
        "echo $PORT > port; git checkout -q -b fix; git config user.name First; echo 1 > a;"
        " git add a; git stash -q; touch ../ready; while [ ! -e ../go ]; do sleep 0.01; done;"
        " git stash pop -q",
    )
    second = attempt(
        tmp_path,
        repo,
        "echo $PORT > port; git checkout -q -b fix &&"
        " (git branch -a; git stash list; git config user.name; git log --all --format=%s) > seen",
    )
    # Their ports are looked for from the same number.
    first.id, second.id = "session-12", "session-21"
    running = asyncio.ensure_future(first.run("one"))
    await eventually_async(lambda: (first.folder / "ready").exists())

    assert (await second.run("two")).status == "success"
    (first.folder / "go").touch()
    assert (await running).status == "success"

    assert git(repo, "show", f"{first.branch}:a") == "1"
    assert git(repo, "show", f"{first.branch}:port") != git(repo, "show", f"{second.branch}:port")
    seen = git(repo, "show", f"{second.branch}:seen")
    assert seen.split() == [second.branch, "*", "fix", "main", "Proctor", "agent", "first"]


TOUCHED = {
    "echo oops >> $REPO/hello.txt": "hello.txt changed",
    "echo new > $REPO/stray.txt": "stray.txt is new",
    "git -C $REPO -c core.hooksPath=/dev/null branch agents-own": "refs/heads/agents-own is new",
    "git -C $REPO config a.b c": "its config changed",
    "git -C $REPO reset -q staged.txt": "its index changed",
    "git -C $REPO -c core.hooksPath=/dev/null update-ref --no-deref HEAD stash": "HEAD changed",
    "touch $REPO/.git/hooks/update": "its hooks changed",
}


async def test_what_an_agent_does_to_the_users_checkout_is_said(tmp_path, repo):
    git(repo, "-c", "core.hooksPath=/dev/null", "checkout", "--quiet", "--detach")
    work = attempt(tmp_path, repo, "echo x > a; " + "; ".join(TOUCHED))

    outcome = await work.run(env={"REPO": str(repo)})

    assert outcome.status == "success"
    (note,) = work.notes
    begin, _, changes = note.partition(" changed: ")
    assert begin == f"while this ran, the repository at {repo}"
    assert set(changes.split("; ")) >= {*TOUCHED.values()}


# Whatever state it leaves


async def test_a_merge_left_in_the_middle_is_ended_with_its_files_kept(tmp_path, repo):
    command = (
        "git checkout -q -b other; echo theirs > hello.txt; git commit -qam theirs; git checkout -q -;"
        "echo ours > hello.txt; git commit -qam ours; git merge -q other; echo x > a"
    )
    work = attempt(tmp_path, repo, command)

    assert (await work.run()).status == "success"

    content = git(repo, "show", f"{work.branch}:hello.txt")
    assert "ours" in content and "theirs" in content
    assert git(repo, "show", f"{work.branch}:a") == "x"
    assert {"ours", "theirs"} < set(git(repo, "log", "--format=%s", work.branch).splitlines())
    assert any("in the middle" in note for note in work.notes)


async def test_a_rebase_left_in_the_middle_loses_no_commit(tmp_path, repo):
    command = (
        "b=$(git branch --show-current); git checkout -q -b onto;"
        "echo theirs > hello.txt; git commit -qam theirs;"
        "git checkout -q $b; echo ours > hello.txt; git commit -qam ours;"
        "echo y > y; git add y; git commit -qm second;"
        "git rebase onto; echo x > a"
    )
    work = attempt(tmp_path, repo, command)

    assert (await work.run()).status == "success"

    assert git(repo, "show", f"{work.branch}:a") == "x"
    assert {"ours", "second", "theirs"} < set(git(repo, "log", "--format=%s", work.branch).splitlines())


async def test_an_agent_that_only_looks_at_another_branch_at_the_end_loses_nothing(tmp_path, repo):
    work = attempt(tmp_path, repo, "echo x > a; git add a; git commit -qm mine; git checkout -q main")

    outcome = await work.run(scriptCommand="cat a")

    assert outcome.status == "success"
    assert git(repo, "log", "--format=%s", f"main..{work.branch}") == "mine"
    assert any("left its tree on main" in note for note in work.notes)


async def test_repositories_inside_the_tree_are_kept_as_files(tmp_path, repo):
    command = (
        "git init -q empty; echo 1 > empty/file; git init -q full; cd full; echo 2 > file; git add file;"
        "git commit -qm x; git init -q inner; echo 3 > inner/file; cd ../src; git init -q; echo 4 > file"
    )
    work = attempt(tmp_path, repo, command)

    outcome = await work.run(scriptCommand="test -d empty/.git -a -d full/inner/.git")

    assert outcome.status == "success", outcome.error
    changed = git(repo, "diff", "--name-only", f"main...{work.branch}").split()
    assert changed == ["empty/file", "full/file", "full/inner/file", "src/file"]


async def test_settings_of_a_submodule_start_no_program(tmp_path, repo):
    command = (
        "git init -q sub; cd sub; echo 1 > file; git add file; git commit -qm x;"
        f"git config filter.f.clean 'touch {tmp_path}/a-filter-ran; cat';"
        "echo '* filter=f' > .gitattributes; cd ..; git add sub; git commit -qm sub;"
        "git config -f .gitmodules submodule.sub.path sub;"
        "git config -f .gitmodules submodule.sub.ignore none;"
        "echo 2 > sub/file; echo x > a"
    )
    work = attempt(tmp_path, repo, command)

    outcome = await work.run(scriptCommand="test -d sub/.git")

    assert outcome.status == "success", outcome.error
    assert git(repo, "show", f"{work.branch}:a") == "x"
    assert not (tmp_path / "a-filter-ran").exists()


async def test_a_replaced_commit_hides_no_changes(tmp_path, repo):
    command = (
        "echo x > a; git add a; base=$(git rev-parse HEAD);"
        "git replace $base $(git commit-tree -m x $(git write-tree))"
    )
    work = attempt(tmp_path, repo, command)

    outcome = await work.run()

    assert outcome.status == "success", outcome.error
    assert (work.iteration.changed_files, work.iteration.lines_added) == (1, 1)


async def test_an_agent_that_removes_its_whole_tree_has_deleted_everything(tmp_path, repo):
    work = attempt(tmp_path, repo, 'rm -rf "$PWD"')

    outcome = await work.run(scriptCommand="test ! -e hello.txt")

    assert outcome.status == "success"
    assert "the agent removed its work tree" in work.notes
    assert git(repo, "ls-tree", "-r", "--name-only", work.branch) == ""


async def test_a_branch_called_batch_is_named_as_what_stands_in_the_way(tmp_path, repo):
    git(repo, "-c", "core.hooksPath=/dev/null", "branch", "batch")
    with pytest.raises(WorkspaceError, match="has a branch `batch`"):
        await attempt(tmp_path, repo, "true").run()
