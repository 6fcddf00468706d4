"""The real programs, at work in a real repository on a model on loopback.

`make test-agents` installs them and sets PROCTOR_REAL_AGENTS; without it none of these tests is run.
"""

import os
from pathlib import Path

import pytest
from real_desk import Desk

collect_ignore_glob = [] if os.environ.get("PROCTOR_REAL_AGENTS") == "1" else ["test_*.py"]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    home = tmp_path / "home"
    for folder in (".config", ".local/share", ".local/state", ".cache", "tmp"):
        (home / folder).mkdir(parents=True)
    (home / ".gitconfig").write_text("[user]\n\tname = Agent\n\temail = agent@example.test\n")
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "hello.txt").write_text("hello\n")
    desk = Desk(repository, home)
    desk.git("init", "--quiet", "--initial-branch=main")
    desk.git("add", ".")
    desk.git("commit", "--quiet", "-m", "a start")
    # As in a batch, the agent works in a linked work tree.
    desk.git("worktree", "add", "--quiet", "-b", "work", str(tmp_path / "tree"))
    desk.folder = tmp_path / "tree"
    return desk
