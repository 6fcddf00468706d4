"""The store's tests run on both databases: a file, and a PostgreSQL server of their own."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from databases import new_database, new_store
from proctor.store import Store


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a new store can be made; with `store`, the address of that one."""
    if request.param == "sqlite":
        path = tmp_path / "proctor.db"
        if "store" in request.fixturenames:
            shutil.copy(request.getfixturevalue("empty_store_file"), path)
        return str(path)
    make = new_store if "store" in request.fixturenames else new_database
    return make(request.getfixturevalue("server"))


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """An empty store, in each of the databases."""
    with Store(url) as opened:
        yield opened
