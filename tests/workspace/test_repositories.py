"""Parts of the workspace on real repositories: sources, copies, starting files, commits and merges."""

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proctor.errors import WorkspaceError
from proctor.git import Git
from proctor.runner import MergeRequest
from proctor.testing import make_git_repository
from proctor.workspace import merge_queue, starting_files, transfer
from proctor.workspace.commit import commit_changes
from proctor.workspace.source_repository import (
    CopyOf,
    SourceRepository,
    _borrowed_by,
    _setting,
    address_problem,
    default_branch,
    differences,
    fingerprint,
    open_repository,
    open_source,
    own_references,
)
from proctor.workspace.worktree import Worktree, fill, make_tree, publish, session_folder

ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_git_repository(
        tmp_path_factory.mktemp("shop") / "shop.git", {"a.txt": "one\n", "b.txt": "b\n"}
    )


@pytest.fixture
def source(template: Path, tmp_path: Path) -> SourceRepository:
    subprocess.run(["cp", "-r", str(template), str(tmp_path / "shop.git")], check=True)
    return open_source(tmp_path / "shop.git", ENVIRONMENT)


def commit(folder: Path, **files: str | None) -> str:
    """Commit some files, by name without `.txt`; None removes one."""
    git = Git(folder, ENVIRONMENT)
    for name, text in files.items():
        file = folder / f"{name}.txt"
        if text is None:
            file.unlink()
        else:
            file.write_text(text)
    git("add", "--all")
    git("-c", "user.name=U", "-c", "user.email=u@x", "commit", "--quiet", "-m", "change")
    return git.commit_of("HEAD")


# --- The source ---


def test_a_session_starts_from_a_branch_before_a_tag_of_the_same_name(source: SourceRepository) -> None:
    first = source.base_commit("main")
    second = commit(source.root, c="c")
    source.git("tag", "main", first)
    source.git("tag", "v1", first)
    source.git("update-ref", "refs/remotes/origin/v1", second)
    source.git("update-ref", "refs/heads/batch/x/1", first)

    assert source.base_commit("main") == second
    assert source.base_commit("v1") == second
    assert source.base_commit(first[:10]) == first
    assert source.name == "shop"
    assert source.key.startswith("shop-") and len(source.key) == 17
    with pytest.raises(WorkspaceError, match="has no branch, tag or commit `none`"):
        source.base_commit("none")
    copied = SourceRepository(
        root=source.root,
        common=source.common,
        object_format="sha1",
        git=source.git,
        copy=CopyOf(bases={"main": "f" * 40}, is_inside=False),
    )
    assert copied.base_commit("main") == "f" * 40
    assert copied.base_commit("v1") == second
    assert fingerprint(copied, {"a": "b"}) == {}

    assert "refs/heads/batch/x/1" in source.all_references()
    assert set(source.references()) == {
        "refs/heads/main",
        "refs/tags/main",
        "refs/tags/v1",
        "refs/remotes/origin/v1",
    }
    assert own_references({"refs/heads/batch/a": "1", "refs/heads/batches": "2"}) == {
        "refs/heads/batches": "2"
    }


def test_why_no_session_branches_can_be_added(source: SourceRepository) -> None:
    assert source.write_problem() == ""
    source.check_names({"refs/heads/batches": "x"})
    with pytest.raises(WorkspaceError, match="has a branch `batch`"):
        source.check_names({"refs/heads/batch": "x"})
    source.git("branch", "batch")
    assert "has a branch `batch`" in source.write_problem()


def test_object_folders_of_others_are_listed_once(tmp_path: Path) -> None:
    chain = {"a": "../../b/objects\n# note\n\n", "b": "../../c/objects\n../../a/objects\n", "c": None}
    for name, text in chain.items():
        info = tmp_path / name / "objects" / "info"
        info.mkdir(parents=True)
        if text:
            (info / "alternates").write_text(text)
    source = SourceRepository(
        root=tmp_path, common=tmp_path / "a", object_format="sha1", git=Git(tmp_path, ENVIRONMENT)
    )

    assert source.object_folders() == [tmp_path / name / "objects" for name in "abc"]
    assert _borrowed_by(tmp_path / "c" / "objects") == []


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("core.eol", "lf", '[core]\n\teol = "lf"\n'),
        ("filter.lfs.clean", 'git-lfs "%f"\n', '[filter "lfs"]\n\tclean = "git-lfs \\"%f\\"\\n"\n'),
        ('filter.a"b.c', "x\\y", '[filter "a\\"b"]\n\tc = "x\\\\y"\n'),
    ],
)
def test_a_setting_is_a_section_of_its_own(name: str, value: str, text: str) -> None:
    assert _setting(name, value) == text


def test_settings_that_affect_files_are_taken(source: SourceRepository) -> None:
    source.git("config", "core.autocrlf", "input")
    source.git("config", "user.name", "Somebody")
    source.git("config", "core.excludesFile", "/mine")
    source.git("config", "filter.lfs.clean", "git-lfs clean")
    settings = source.settings()

    assert ("core.autocrlf", "input") in settings.core
    assert settings.files == (("core.excludesfile", "/mine"),)
    assert settings.filters == (("filter.lfs.clean", "git-lfs clean"),) and settings.has_large_files
    assert "Somebody" not in str(settings)


@pytest.mark.parametrize(
    ("files", "branch"),
    [
        ({".git/HEAD": "ref: refs/heads/dev\n"}, "dev"),
        ({".git/HEAD": "ref: refs/heads/dev\n", ".git/refs/heads/main": "x"}, "main"),
        ({".git/HEAD": "ref: refs/heads/dev\n", ".git/refs/remotes/origin/main": "x"}, "main"),
        ({".git/HEAD": "ref: refs/heads/dev\n", ".git/packed-refs": "abc refs/heads/main\n"}, "main"),
        ({".git/HEAD": "ref: refs/heads/dev\n", ".git/packed-refs": "abc refs/heads/maintain\n"}, "dev"),
        ({".git/HEAD": "ref: refs/heads/.invalid\n"}, "main"),
        ({".git/HEAD": "0123456789\n"}, "main"),
        ({".git/other": ""}, "main"),
        ({"HEAD": "ref: refs/heads/bare\n"}, "bare"),
        ({".git": "gitdir: admin\n", "admin/HEAD": "ref: refs/heads/linked\n"}, "linked"),
        (
            {
                ".git": "gitdir: admin\n",
                "admin/HEAD": "ref: refs/heads/linked\n",
                "admin/commondir": "../common\n",
                "common/refs/heads/main": "x",
            },
            "main",
        ),
        ({"x": ""}, "main"),
    ],
)
def test_the_branch_that_work_starts_from(files: dict[str, str], branch: str, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "below").mkdir(exist_ok=True)

    assert default_branch(tmp_path) == branch
    assert default_branch(tmp_path / "below") == branch


def test_what_a_session_must_not_change_is_noticed(source: SourceRepository) -> None:
    before = fingerprint(source, source.references())
    assert before["HEAD"] == "main"
    (source.root / "a.txt").write_text("changed\n")
    (source.root / "new.txt").write_text("new")
    (source.root / ".git" / "hooks").mkdir(exist_ok=True)
    (source.root / ".git" / "hooks" / "post-merge").write_text("x")
    source.git("config", "a.b", "c")
    source.git("branch", "other")
    changed = fingerprint(source, source.references())
    assert differences(before, changed) == [
        "a.txt is new",
        "its config changed",
        "its hooks changed" if "its hooks" in before else "its hooks is new",
        "new.txt is new",
        "refs/heads/other is new",
    ]
    assert differences(changed, before)[0] == "a.txt is gone"
    source.git("add", "b.txt", "new.txt")
    source.git("checkout", "--quiet", "--detach")
    staged = fingerprint(source, source.references())
    assert differences(changed, staged) == ["HEAD changed", "its index changed", "new.txt changed"]
    assert staged["HEAD"] == source.base_commit("main")
    (source.root / "a.txt").write_text("changed again\n")
    assert differences(staged, fingerprint(source, source.references())) == ["a.txt changed"]


def test_a_folder_that_is_no_repository_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="there is no folder"):
        open_source(tmp_path / "none", ENVIRONMENT)
    with pytest.raises(WorkspaceError, match="is not a git repository"):
        open_source(tmp_path, {**ENVIRONMENT, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)})
    with pytest.raises(WorkspaceError, match="git cannot be run"):
        open_source(tmp_path, {"PATH": "/nonexistent"})


async def test_an_address_is_mirrored_once(source: SourceRepository, tmp_path: Path) -> None:
    address = f"file://{source.root}"
    assert address_problem(address, ENVIRONMENT, "main") == ""
    assert address_problem(address, ENVIRONMENT, "0123456") == ""
    assert address_problem(address, ENVIRONMENT, "012345").endswith("has no branch or tag `012345`")
    assert "cannot be read" in address_problem(f"{address}-none", ENVIRONMENT, "main")

    home = tmp_path / "home"
    mirror = await open_repository(address, ENVIRONMENT, home)
    assert mirror.name == "shop" and mirror.root == mirror.common
    assert mirror.base_commit("main") == source.base_commit("main")
    assert mirror.git("remote").strip() == ""
    commit(source.root, c="c")
    again = await open_repository(address, ENVIRONMENT, home)
    assert again.base_commit("main") == mirror.base_commit("main")
    assert [path.name for path in mirror.root.parent.iterdir()] == ["shop.git"]


# --- Copies for other machines ---


def test_a_copy_has_what_a_session_needs_and_only_what_is_lacking(
    source: SourceRepository, tmp_path: Path
) -> None:
    first = source.base_commit("main")
    source.git("tag", "v1")
    source.git("branch", "other")
    (source.root / "below").mkdir()
    copied = transfer.copy_repository(source.root, "main", (), ENVIRONMENT)
    assert (copied.base_sha, copied.is_inside) == (first, False)
    assert set(copied.references) == {"refs/heads/main", "refs/tags/v1"}
    assert transfer.copy_repository(source.root / "below", "main", (), ENVIRONMENT).is_inside

    place = transfer.place_repository(copied, tmp_path / "there", ENVIRONMENT)
    assert place == transfer.place_of_copy(str(source.root), tmp_path / "there")
    assert place.name == "shop.git"
    there = open_source(place, ENVIRONMENT)
    assert there.copy == CopyOf(bases={"main": first}, is_inside=False)
    assert there.root == source.root

    assert transfer.copy_repository(source.root, "main", [first], ENVIRONMENT).content == b""
    second = commit(source.root, c="c")
    more = transfer.copy_repository(source.root, "main", [first], ENVIRONMENT)
    assert [int.from_bytes(each.content[8:12], "big") for each in (copied, more)] == [4, 3], "objects"
    packed = tmp_path / "pack"
    packed.write_bytes(more.content)
    transfer.place_repository(replace(more, content=packed, base="next"), tmp_path / "there", ENVIRONMENT)
    there = open_source(place, ENVIRONMENT)
    assert there.copy == CopyOf(bases={"main": first, "next": second}, is_inside=False)
    assert there.git("show", f"{second}:c.txt") == "c"


@pytest.mark.parametrize(
    ("root", "name"), [("/x/shop", "shop.git"), ("/x/shop.git", "shop.git"), ("/", "repository.git")]
)
def test_the_place_of_a_copy_has_the_name_of_the_original(root: str, name: str, tmp_path: Path) -> None:
    place = transfer.place_of_copy(root, tmp_path)
    assert place.name == name and len(place.parent.name) == 16 and place.parent.parent == tmp_path


def session(source: SourceRepository, home: Path, name: str = "batch/run/1") -> Worktree:
    """The worktree of a session that starts from the base branch."""
    tree = make_tree(session_folder(home, name), source, name, source.base_commit("main"), {})
    fill(tree)
    return tree


def test_a_branch_is_sent_as_what_it_adds(source: SourceRepository, tmp_path: Path) -> None:
    tree = session(source, tmp_path / "home")
    assert transfer.bundle_branch(tree) == (tree.base_sha, b"")
    transfer.receive_branch(source, "batch/run/1", tree.base_sha, b"")
    assert source.git.commit_of("refs/heads/batch/run/1") == tree.base_sha

    (tree.folder / "c.txt").write_text("c")
    committed = commit_changes(tree, "work")
    sha, bundle = transfer.bundle_branch(tree)
    assert sha == committed.sha and bundle
    transfer.receive_branch(source, "batch/run/1", sha, bundle)
    assert source.git.commit_of("refs/heads/batch/run/1") == sha
    with pytest.raises(WorkspaceError, match="is not a session branch"):
        transfer.receive_branch(source, "main", sha, bundle)


# --- Starting files ---


def test_files_replace_what_an_agent_left_in_their_place(tmp_path: Path) -> None:
    files, tree, outside = tmp_path / "files", tmp_path / "tree", tmp_path / "outside"
    starting_files.write_texts({"a/b.txt": "new", "c": "file", "d.txt": "plain", "e/f": "deep"}, files)
    outside.mkdir()
    tree.mkdir()
    (tree / "a").symlink_to(outside)
    (tree / "c").mkdir()
    (tree / "c" / "x").write_text("x")
    (tree / "d.txt").symlink_to(outside / "y")
    (tree / "e").write_text("a file")
    starting_files.copy_over(files, tree)

    assert (tree / "a" / "b.txt").read_text() == "new" and not (tree / "a").is_symlink()
    assert (tree / "c").read_text() == "file"
    assert (tree / "d.txt").read_text() == "plain" and not (tree / "d.txt").is_symlink()
    assert (tree / "e" / "f").read_text() == "deep"
    assert list(outside.iterdir()) == []


async def test_a_repository_of_a_tasks_files_is_made_once_and_is_the_same_everywhere(tmp_path: Path) -> None:
    texts = {"a.txt": "a", ".gitignore": "b.txt\n", "b.txt": "b"}
    digest = starting_files.digest_of_texts(texts)
    places = [
        await starting_files.starting_repository(tmp_path / home, texts, digest, ENVIRONMENT)
        for home in ("one", "two", "two")
    ]
    assert [place.name for place in places] == ["task"] * 3 and places[1] == places[2]
    commits = {Git(place, ENVIRONMENT).commit_of("main") for place in places}
    assert len(commits) == 1
    git = Git(places[0], ENVIRONMENT)
    assert git("ls-files").split() == [".gitignore", "a.txt", "b.txt"]
    assert "__pycache__/" in (places[0] / ".git" / "info" / "exclude").read_text()
    assert sorted(path.name for path in places[0].parent.iterdir()) == ["files", "task"]
    stored = await starting_files.stored_files(tmp_path / "one", texts, digest)
    assert stored == places[0].parent / "files"

    folder = tmp_path / "my files"
    starting_files.write_texts(texts, folder)
    named = await starting_files.starting_repository(tmp_path / "three", folder, digest, ENVIRONMENT)
    assert named.name == "my-files" and Git(named, ENVIRONMENT).commit_of("main") in commits
    with pytest.raises(WorkspaceError, match="have changed since this was planned"):
        await starting_files.starting_repository(tmp_path / "four", folder, "f" * 64, ENVIRONMENT)
    with pytest.raises(WorkspaceError, match="there is no folder"):
        await starting_files.stored_files(tmp_path / "four", tmp_path / "none", "f" * 64)
    assert list((tmp_path / "four" / "benchmarks" / ("f" * 64)).iterdir()) == []


# --- Merges ---


def request_of(source: SourceRepository, **more: Any) -> MergeRequest:
    settings = {"repo": source.root, "branch": "batch/run/1", "base_branch": "main", "message": "merge it"}
    return MergeRequest(**settings | {"environment": ENVIRONMENT} | more)


async def merged(source: SourceRepository, home: Path, **more: Any) -> Any:
    return await merge_queue.merge(request_of(source, **more), home=home, environment=ENVIRONMENT)


def worked(source: SourceRepository, home: Path, **files: str) -> str:
    """A published session that changed some files."""
    tree = session(source, home)
    for name, text in files.items():
        (tree.folder / f"{name}.txt").write_text(text)
    sha = commit_changes(tree, "work").sha
    publish(tree)
    return sha


async def test_a_session_is_merged_to_the_checked_out_branch(
    source: SourceRepository, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    before, tip = source.base_commit("main"), worked(source, home, c="c\n")
    hook = source.common / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    result = await merged(source, home, check="exit 1")

    (only,) = result.merges
    after = source.base_commit("main")
    assert (only.result, only.before_sha, only.after_sha, only.error) == ("success", before, after, "")
    assert (only.base_branch, only.message) == ("main", "merge it")
    assert result.notes == (
        "hooks of the repository were not run for the merge: pre-commit",
        "git has no user.name and user.email here: the merge was committed by Proctor",
    )
    assert (source.root / "c.txt").read_text() == "c\n", "the checkout moves along"
    assert source.git("log", "-1", "--format=%P %s", "main").split() == [before, "merge", "it"]
    assert merge_queue.was_merged(home, source, after)
    assert not merge_queue.was_merged(home, source, tip)
    assert not merge_queue.was_merged(tmp_path / "none", source, after)


async def test_a_moved_base_is_combined_and_checked_again(source: SourceRepository, tmp_path: Path) -> None:
    home = tmp_path / "home"
    worked(source, home, c="c\n")
    moved = commit(source.root, d="d\n")
    failed = await merged(source, home, check="test -e none.txt", attempt="x")
    (only,) = failed.merges
    assert (only.result, only.before_sha) == ("error", moved)
    assert only.error == "the check exited with 1 on top of the moved main"
    assert failed.recheck.exit_code == 1 and failed.notes == ()
    assert source.base_commit("main") == moved

    passed = await merged(source, home, check="test -e c.txt && test -e d.txt", attempt="x")
    assert passed.merges[0].result == "success" and passed.recheck is None
    assert source.git("ls-tree", "--name-only", "main").split() == ["a.txt", "b.txt", "c.txt", "d.txt"]
    left = [path.name for path in session_folder(home, "x").parent.iterdir()]
    assert not [name for name in left if name.startswith("merging-")]


async def test_a_conflict_names_its_files_and_changes_nothing(
    source: SourceRepository, tmp_path: Path
) -> None:
    worked(source, tmp_path / "home", a="mine\n", b="mine\n")
    moved = commit(source.root, a="theirs\n")
    (only,) = (await merged(source, tmp_path / "home")).merges

    assert (only.result, only.conflict_files, only.error) == ("conflict", ("a.txt",), "")
    assert source.base_commit("main") == moved


async def test_what_cannot_be_merged_is_said(source: SourceRepository, tmp_path: Path) -> None:
    (none,) = (await merged(source, tmp_path / "home", base_branch="v9")).merges
    assert none.result == "error" and none.error.startswith("v9 is not a branch of")
    (missing,) = (await merged(source, tmp_path / "home")).merges
    assert "there is no branch batch/run/1" in missing.error
    worked(source, tmp_path / "home", a="mine\n")
    (source.root / "a.txt").write_text("uncommitted\n")
    (refused,) = (await merged(source, tmp_path / "home")).merges
    assert refused.result == "error" and "a.txt" in refused.error


async def test_a_session_is_squashed_shown_rebased_and_removed(
    source: SourceRepository, tmp_path: Path
) -> None:
    home, branch = tmp_path / "home", "batch/run/1"
    start = source.base_commit("main")
    tree = session(source, home)
    for name in ("c", "d"):
        (tree.folder / f"{name}.txt").write_text(name)
        commit_changes(tree, f"add {name}")
    publish(tree)
    assert merge_queue.log(source, branch, "main").count("\ncommit ") == 1
    assert "+++ b/d.txt" in merge_queue.diff(source, branch, "main")
    assert merge_queue.diff(source, branch, "main", "--name-only").split() == ["c.txt", "d.txt"]

    squashed = merge_queue.squash(source, branch, "main", "both")
    assert source.git("log", "--format=%s %P", "-1", branch).split() == ["both", start]
    moved = commit(source.root, e="e")
    rebased, conflicts = await merge_queue.rebase(source, branch, "main", home)
    assert conflicts == () and rebased == source.git.commit_of(branch) != squashed
    assert source.git("log", "--format=%P", "-1", branch).strip() == moved
    commit(source.root, c="other")
    assert await merge_queue.rebase(source, branch, "main", home) == ("", ("c.txt",))
    assert source.git.commit_of(branch) == rebased

    assert merge_queue.clean_up(home, branch, source, branch) == ""
    assert not session_folder(home, branch).exists() and not source.git.commit_of(branch)
    with pytest.raises(WorkspaceError, match="has no branch batch/run/1"):
        merge_queue.diff(source, branch, "main")
    with pytest.raises(WorkspaceError, match="main is not a session branch"):
        merge_queue.squash(source, "main", "main", "x")


# --- Commits ---


def test_what_an_agent_left_is_committed_however_it_left_it(source: SourceRepository, tmp_path: Path) -> None:
    tree = session(source, tmp_path / "home")
    nothing = commit_changes(tree, "work")
    assert (nothing.sha, nothing.notes) == ("", ())

    nested = make_git_repository(tree.folder / "nested", {"n.txt": "n"})
    (tree.folder / "a.txt").unlink()
    os.mkfifo(tree.folder / "pipe")
    (tree.repository / "refs" / "stale.lock").write_text("")
    (tree.repository / "config").write_text("[core]\n\tfsmonitor = evil\n")
    first = commit_changes(tree, "work")
    assert tree.git("ls-tree", "-r", "--name-only", first.sha).split() == ["b.txt", "nested/n.txt"]
    assert (nested / ".git").is_dir()
    assert first.notes == ("the agent left links or pipes where git reads; they were removed: pipe",)
    assert (tree.repository / "config").read_text() == tree.settings
    assert first.changes.files == 2

    git = Git(tree.folder, ENVIRONMENT)
    git("checkout", "--quiet", "-b", "own")
    (tree.folder / "c.txt").write_text("c")
    git("add", "--all", ":!nested")
    git("update-index", "--assume-unchanged", "b.txt")
    (tree.folder / "b.txt").write_text("hidden change\n")
    second = commit_changes(tree, "more")
    assert tree.git("show", f"{second.sha}:b.txt") == "hidden change\n"
    assert tree.git("symbolic-ref", "HEAD").strip() == "refs/heads/batch/run/1"

    (tree.folder / ".git").unlink()
    (tree.folder / "d.txt").write_text("d")
    third = commit_changes(tree, "again")
    assert third.notes == (
        "the agent removed or replaced the tree's link to its repository; it was restored",
    )
    assert "d.txt" in tree.git("ls-tree", "--name-only", third.sha)


def test_an_agent_that_leaves_the_branch_or_breaks_its_repository_loses_no_file(
    source: SourceRepository, tmp_path: Path
) -> None:
    tree = session(source, tmp_path / "home")
    (tree.folder / "c.txt").write_text("c")
    first = commit_changes(tree, "work")
    git = Git(tree.folder, ENVIRONMENT)
    git("checkout", "--quiet", tree.base_sha)
    back = commit_changes(tree, "work")
    assert back.sha == first.sha
    assert back.notes == ("the agent left its tree on no branch, not on the session's branch",)
    assert (tree.folder / "c.txt").read_text() == "c"

    git("checkout", "--quiet", "--orphan", "apart")
    git("-c", "user.name=U", "-c", "user.email=u@x", "commit", "--quiet", "-m", "apart")
    git("checkout", "--quiet", "batch/run/1")
    assert commit_changes(tree, "x").notes == ("the agent left commits on other branches: apart",)

    (tree.folder / "e.txt").write_text("e")
    (tree.admin / "HEAD").unlink()
    rebuilt = commit_changes(tree, "rebuilt")
    assert "the agent broke its repository; its own commits are lost, its files are not" in rebuilt.notes
    assert tree.git("ls-tree", "--name-only", rebuilt.sha).split() == ["a.txt", "b.txt", "c.txt", "e.txt"]
    shutil.rmtree(tree.folder)
    assert "the agent removed its work tree" in commit_changes(tree, "gone").notes


# --- Ports, variables and the files of a session's repository ---


def test_a_session_ignores_what_its_source_ignores(source: SourceRepository, tmp_path: Path) -> None:
    info = source.common / "info"
    info.mkdir(exist_ok=True)
    (info / "exclude").write_text("secret.txt\n")
    (info / "attributes").write_text("*.bin binary\n")
    tree = session(source, tmp_path / "home")
    assert (tree.repository / "info" / "exclude").read_text() == "secret.txt\n"
    assert (tree.repository / "info" / "attributes").read_text() == "*.bin binary\n"
    (tree.folder / "secret.txt").write_text("x")
    assert commit_changes(tree, "work").sha == ""
