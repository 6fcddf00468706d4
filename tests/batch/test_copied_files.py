"""Workers without the driver's disk: files are fetched once, and the work of those that died is published."""

import os
from types import SimpleNamespace

import pytest

from proctor.batch.engines.messages import Leftovers
from proctor.batch.engines.worker import CopiedFiles
from proctor.git import Git
from proctor.testing import make_git_repository
from proctor.workspace.source_repository import open_source
from proctor.workspace.transfer import copy_files, copy_repository, receive_branch
from proctor.workspace.worktree import fill, make_tree, session_folder

ENVIRONMENT = {"PATH": os.environ["PATH"]}


class Driver:
    """The driver's side, on the same machine."""

    def __init__(self):
        self.fetched = []

    async def copy_files(self, path):
        self.fetched.append(path.name)
        return copy_files(path)

    async def copy_repository(self, path, base, have):
        self.fetched.append((path.name, base, list(have)))
        return copy_repository(path, base, have, ENVIRONMENT)

    async def publish_branch(self, repository, branch, sha, bundle):
        receive_branch(open_source(repository, ENVIRONMENT), branch, sha, bundle)


@pytest.fixture
def repository(tmp_path):
    return make_git_repository(tmp_path / "shop", {"a.txt": "a"})


async def test_a_file_is_fetched_once_and_a_repository_with_what_is_new(tmp_path, repository):
    driver = Driver()
    files = CopiedFiles(driver, tmp_path / "home", ENVIRONMENT)
    (tmp_path / "notes.txt").write_text("notes")
    for _ in range(2):
        assert (await files.fetch(tmp_path / "notes.txt")).read_text() == "notes"
    assert driver.fetched == ["notes.txt"]
    first = Git(repository, ENVIRONMENT).commit_of("main")
    for _ in range(2):
        place = await files.repository(repository, "main")
        assert Git(place, ENVIRONMENT).commit_of("refs/heads/main") == first
    assert place.is_relative_to(tmp_path / "home" / "repositories")
    assert driver.fetched[1:] == [("shop", "main", []), ("shop", "main", [first])]


async def test_the_changes_of_a_worker_that_died_are_published_and_its_folders_removed(tmp_path, repository):
    driver, home = Driver(), tmp_path / "dead"
    place = await CopiedFiles(driver, home, ENVIRONMENT).repository(repository, "main")
    source = open_source(place, ENVIRONMENT)
    base = source.base_commit("main")
    folder = session_folder(home, "s1")
    tree = make_tree(folder, source, "batch/one", base, {})
    fill(tree)
    (tree.folder / "b.txt").write_text("half done")
    session = {"id": "s1", "branch": "batch/one", "baseSha": base, "repo": str(repository)}
    gone = session | {"id": "elsewhere"}

    files = CopiedFiles(driver, tmp_path / "home", ENVIRONMENT)
    await files.clear_leftovers(Leftovers((home,), (gone, session)))

    assert not folder.exists()
    git = Git(repository, ENVIRONMENT)
    assert git("show", "batch/one:b.txt") == "half done"
    assert git("rev-parse", "batch/one~1").strip() == base


async def test_work_that_cannot_be_rescued_does_not_stop_the_worker(tmp_path):
    folder = session_folder(tmp_path, "s1")
    folder.mkdir(parents=True)
    session = {"id": "s1", "branch": "batch/one", "baseSha": "x", "repo": "/nonexistent"}
    files = CopiedFiles(SimpleNamespace(), tmp_path / "home", ENVIRONMENT)
    await files.clear_leftovers(Leftovers((tmp_path,), (session,)))
    assert not folder.exists()
