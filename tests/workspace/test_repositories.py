"""Parts of the workspace on real repositories: sources, copies, starting files, commits and merges."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from proctor.errors import WorkspaceError
from proctor.git import Git
from proctor.testing import make_git_repository
from proctor.workspace import starting_files, transfer
from proctor.workspace.commit import commit_changes
from proctor.workspace.source_repository import (
    CopyOf,
    SourceRepository,
    _borrowed_by,
    address_problem,
    default_branch,
    fingerprint,
    open_source,
    own_references,
)
from proctor.workspace.worktree import Worktree, fill, make_tree, remove_home, session_folder

ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}


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


def test_a_folder_that_is_no_repository_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="there is no folder"):
        open_source(tmp_path / "none", ENVIRONMENT)
    with pytest.raises(WorkspaceError, match="is not a git repository"):
        open_source(tmp_path, {**ENVIRONMENT, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)})
    with pytest.raises(WorkspaceError, match="git cannot be run"):
        open_source(tmp_path, {"PATH": "/nonexistent"})


def test_what_is_wrong_with_an_address_is_said(source: SourceRepository) -> None:
    address = f"file://{source.root}"
    assert address_problem(address, ENVIRONMENT, "main") == ""
    assert address_problem(address, ENVIRONMENT, "0123456") == ""
    assert address_problem(address, ENVIRONMENT, "012345").endswith("has no branch or tag `012345`")
    assert "cannot be read" in address_problem(f"{address}-none", ENVIRONMENT, "main")


# --- Copies for other machines ---


def test_a_copy_has_what_a_session_needs_and_only_what_is_lacking(source, tmp_path):
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
    assert [int.from_bytes(each.content[8:12], "big") for each in (copied, more)] == [3, 3], "objects"
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


def test_a_repository_that_can_have_no_session_branches_is_not_copied(tmp_path: Path) -> None:
    repository = make_git_repository(tmp_path / "shop", {"a.txt": "one"})
    copied = transfer.copy_repository(repository, "main", (), ENVIRONMENT)
    assert (copied.base, Path(copied.root)) == ("main", repository.resolve())
    assert "refs/heads/main" in copied.references

    Git(repository, ENVIRONMENT).run("branch", "batch")
    with pytest.raises(WorkspaceError, match="has a branch `batch`"):
        transfer.copy_repository(repository, "main", (), ENVIRONMENT)


def test_a_folder_is_placed_once_as_it_was_unless_it_is_too_large(tmp_path, monkeypatch):
    source, there = tmp_path / "data", tmp_path / "there"
    (source / "__pycache__").mkdir(parents=True)
    (source / "__pycache__" / "x.pyc").write_bytes(b"x")
    (source / "a.txt").write_text("one")
    there.mkdir()

    copied = transfer.copy_files(source)
    placed = transfer.place_files(copied, there)

    assert placed.name == "data" and (placed / "a.txt").read_text() == "one"
    assert not (placed / "__pycache__").exists()
    assert transfer.place_files(copied, there) == placed and len(list(there.iterdir())) == 1
    os.utime(source / "a.txt", (1, 1))
    assert transfer.copy_files(source).digest == copied.digest, "times do not matter"
    # The real limit is 1 GiB.
    monkeypatch.setattr(transfer, "MAX_FOLDER_BYTES", 2)
    with pytest.raises(WorkspaceError, match="is too large for another machine"):
        transfer.copy_files(source)


# --- Starting files ---


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
    (tmp_path / "files").mkdir()
    starting_files.write_texts(texts, tmp_path / "files")
    place = await starting_files.starting_repository(
        tmp_path / "five", tmp_path / "files", digest, ENVIRONMENT
    )
    assert place.name == "task", "beside the files themselves"
    with pytest.raises(WorkspaceError, match="have changed since this was planned"):
        await starting_files.starting_repository(tmp_path / "four", folder, "f" * 64, ENVIRONMENT)
    with pytest.raises(WorkspaceError, match="there is no folder"):
        await starting_files.stored_files(tmp_path / "four", tmp_path / "none", "f" * 64)
    assert list((tmp_path / "four" / "benchmarks" / ("f" * 64)).iterdir()) == []


# --- Homes and histories of sessions ---


@pytest.mark.parametrize(
    ("folders", "is_removed"), [([], True), (["worktrees"], True), (["worktrees/x"], False)]
)
def test_a_home_with_worktrees_is_kept(tmp_path: Path, folders: list[str], is_removed: bool) -> None:
    home = tmp_path / "home"
    for folder in ("", *folders):
        (home / folder).mkdir(parents=True)
    remove_home(home)
    assert home.exists() is not is_removed


def test_a_session_names_only_the_ends_of_its_own_shallow_history(tmp_path: Path) -> None:
    whole = make_git_repository(tmp_path / "whole", {"a.txt": "1"})
    git = Git(whole, ENVIRONMENT)
    identity = ("-c", "user.name=U", "-c", "user.email=u@x")
    git(*identity, "commit", "--quiet", "--allow-empty", "-m", "second")
    git("checkout", "--quiet", "--orphan", "other")
    git(*identity, "commit", "--quiet", "-m", "apart")
    git(*identity, "commit", "--quiet", "--allow-empty", "-m", "apart, second")
    git("checkout", "--quiet", "main")
    copy = tmp_path / "shallow"
    git("clone", "--quiet", "--depth", "1", "--no-single-branch", f"file://{whole}", str(copy))
    source = open_source(copy, ENVIRONMENT)
    main, other = (git.commit_of(name) for name in ("main", "other"))
    assert set((source.common / "shallow").read_text().split()) == {main, other}
    tree = make_tree(tmp_path / "place", source, "work", main, {})
    assert (tree.repository / "shallow").read_text().split() == [main]
