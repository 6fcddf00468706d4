"""Repositories and files for machines that share no disk."""

import os
from pathlib import Path

import pytest

from proctor.errors import WorkspaceError
from proctor.git import Git
from proctor.testing import make_git_repository
from proctor.workspace.transfer import copy_files, copy_repository, place_files

ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}


def test_a_repository_that_can_have_no_session_branches_is_not_copied(tmp_path: Path) -> None:
    repository = make_git_repository(tmp_path / "shop", {"a.txt": "one"})
    copied = copy_repository(repository, "main", (), ENVIRONMENT)
    assert (copied.base, Path(copied.root)) == ("main", repository.resolve())
    assert "refs/heads/main" in copied.references

    Git(repository, ENVIRONMENT).run("branch", "batch")
    with pytest.raises(WorkspaceError, match="has a branch `batch`"):
        copy_repository(repository, "main", (), ENVIRONMENT)


def test_a_folder_is_placed_once_as_it_was(tmp_path: Path) -> None:
    source, there = tmp_path / "data", tmp_path / "there"
    (source / "__pycache__").mkdir(parents=True)
    (source / "__pycache__" / "x.pyc").write_bytes(b"x")
    (source / "a.txt").write_text("one")
    there.mkdir()

    copied = copy_files(source)
    placed = place_files(copied, there)

    assert placed.name == "data" and (placed / "a.txt").read_text() == "one"
    assert not (placed / "__pycache__").exists()
    assert place_files(copied, there) == placed and len(list(there.iterdir())) == 1
    os.utime(source / "a.txt", (1, 1))
    assert copy_files(source).digest == copied.digest, "times do not matter"
