"""Details of the workspace: permissions, settings of repositories, sealed histories, reports of tests."""

import os
from pathlib import Path

import pytest

from proctor.git import Git
from proctor.testing import make_git_repository
from proctor.workspace.source_repository import open_source
from proctor.workspace.worktree import (
    make_home,
    make_tree,
    remove_home,
)

ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}


@pytest.mark.parametrize(
    ("folders", "is_removed"), [([], True), (["worktrees"], True), (["worktrees/x"], False)]
)
def test_a_home_with_worktrees_is_kept(tmp_path: Path, folders: list[str], is_removed: bool) -> None:
    home = tmp_path / "home"
    for folder in ("", *folders):
        (home / folder).mkdir(parents=True)
    remove_home(home)
    assert home.exists() is not is_removed


def test_a_home_of_a_session(tmp_path: Path) -> None:
    for _ in range(2):
        make_home(tmp_path / "home")
    folders = {
        str(path.relative_to(tmp_path / "home")) for path in (tmp_path / "home").rglob("*") if path.is_dir()
    }
    assert folders == {".config", ".local", ".local/share", ".local/state", ".cache", "tmp"}
    assert "[user]" in (tmp_path / "home/.gitconfig").read_text()


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
