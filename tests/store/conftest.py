"""The store's tests run on both databases: a file, and a PostgreSQL server of their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from databases import new_database
from proctor.store import Store


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a new store can be made."""
    if request.param == "sqlite":
        return str(tmp_path / "proctor.db")
    return new_database(request.getfixturevalue("server"))


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """An empty store, in each of the databases."""
    with Store(url) as opened:
        yield opened
