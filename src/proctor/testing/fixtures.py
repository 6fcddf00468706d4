"""pytest fixtures for tests of agents, evaluators and plans that run on Proctor.

    # conftest.py
    pytest_plugins = ["proctor.testing.fixtures"]

    # test_my_agent.py
    from proctor.testing import eventually
    from proctor.testing.model_server import reply

    def test_my_agent(proctor_store, model_server, git_repository):
        model_server.answers = [reply("Paris.")]
        ...
        eventually(lambda: len(model_server.requests) == 1, timeout=5)

Everything is real (a database, HTTP, git), belongs to one test, and needs neither network nor key.
"""

import asyncio
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from proctor.store import Store
from proctor.testing import make_git_repository
from proctor.testing.model_server import ModelServer


@pytest.fixture(scope="session")
def empty_store_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of an empty store, to copy: creating the tables takes four times as long."""
    path = tmp_path_factory.mktemp("empty-store") / "proctor.db"
    Store(str(path)).close()
    return path


@pytest.fixture
def proctor_store(tmp_path: Path, empty_store_file: Path) -> Iterator[Store]:
    """An empty store in a file of its own."""
    with Store(str(shutil.copy(empty_store_file, tmp_path / "proctor.db"))) as store:
        yield store


@pytest.fixture
def git_repository(tmp_path: Path) -> Path:
    """A git repository with one commit on `main`."""
    return make_git_repository(tmp_path / "repository", {"README.md": "# A project\n"})


@pytest.fixture
def model_server() -> Iterator[ModelServer]:
    """A provider on loopback with the OpenAI chat completions interface, in a thread of its own.

    It answers every request with "OK." until its `answers` are set.
    """
    server = ModelServer()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="model-server", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result()
        yield server
        asyncio.run_coroutine_threadsafe(server.__aexit__(None, None, None), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
