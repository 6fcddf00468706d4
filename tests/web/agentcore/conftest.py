"""Servers for the tests of this folder."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from wire_server import NOON, Served, servers

from clocks import Clock
from command_server import CommandServer


@pytest.fixture
def serve(
    tmp_path: Path, command_server: CommandServer, empty_store_file: Path
) -> Iterator[Callable[..., Served]]:
    """Starts servers over a store of this test."""
    with servers(tmp_path, command_server.program, empty_store_file) as start:
        yield start


@pytest.fixture
def served(serve: Callable[..., Served]) -> Served:
    """A server that lets everybody in."""
    return serve()


@pytest.fixture(scope="module")
def shared(
    tmp_path_factory: pytest.TempPathFactory, command_server: CommandServer, empty_store_file: Path
) -> Iterator[Served]:
    """A server for all tests of a module that change nothing: they are refused, or only asked to judge."""
    with servers(tmp_path_factory.mktemp("shared"), command_server.program, empty_store_file) as start:
        yield start()


@pytest.fixture
def clock() -> Clock:
    """Noon of 2 January 2026 until it is moved."""
    return Clock(NOON)


@pytest.fixture
def at_noon(serve: Callable[..., Served], clock: Clock) -> Served:
    """A server with this clock whose jobs are never executed: they stay as they were started."""
    rates = {"start_per_second": 0, "stop_per_second": 0}
    limits = {**rates, "active_jobs": 10, "watch_seconds": 3600, "take_up_seconds": 3600}
    return serve(now=clock, command=["true"], evaluation={"limits": limits})
