"""The store's tests run on both databases: a file, and a PostgreSQL server of their own."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from databases import new_store
from proctor.store import Store

BOTH = ["sqlite", "postgresql"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Both, unless a test or the `DATABASES` of its module say which: what no statement decides needs one."""
    marks = metafunc.definition.iter_markers("parametrize")
    if "url" in metafunc.fixturenames and not any("url" in mark.args[0] for mark in marks):
        metafunc.parametrize("url", getattr(metafunc.module, "DATABASES", BOTH), indirect=True)


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store."""
    if request.param == "sqlite":
        return str(shutil.copy(request.getfixturevalue("empty_store_file"), tmp_path / "proctor.db"))
    return new_store(request.getfixturevalue("server"))


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """An empty store."""
    with Store(url) as opened:
        yield opened
