"""A repository of the user's that sessions start from."""

import os
import shutil
from pathlib import Path

import pytest

from proctor.testing import make_git_repository
from proctor.workspace.source_repository import SourceRepository, open_source


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """As on a machine where nobody has configured anything."""
    return {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_git_repository(tmp_path_factory.mktemp("template") / "shop", {"a.txt": "one\n"})


@pytest.fixture
def source(template: Path, tmp_path: Path, environment: dict[str, str]) -> SourceRepository:
    """A copy, which the test may change."""
    shutil.copytree(template, tmp_path / "shop", symlinks=True)
    return open_source(tmp_path / "shop", environment)
