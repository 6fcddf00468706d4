"""Servers for the tests of this folder."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from wire_server import Served, servers

from command_server import CommandServer


@pytest.fixture
def serve(tmp_path: Path, command_server: CommandServer) -> Iterator[Callable[..., Served]]:
    """Starts servers over a store of this test."""
    with servers(tmp_path, command_server.program) as start:
        yield start


@pytest.fixture
def served(serve: Callable[..., Served]) -> Served:
    """A server that lets everybody in."""
    return serve()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, command_server: CommandServer) -> Iterator[Served]:
    """A server for all tests of a module that change nothing: they are refused, or only asked to judge."""
    with servers(tmp_path_factory.mktemp("shared"), command_server.program) as start:
        yield start()
