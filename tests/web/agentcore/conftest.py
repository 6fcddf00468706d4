"""Servers for the tests of this folder."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from app_states import make_state
from wire_server import Served, servers

from command_server import CommandServer
from proctor.store import Store
from proctor.web.agentcore.service import Service


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


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.time = datetime(2026, 1, 2, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.time

    def forward(self, **by: float) -> None:
        self.time += timedelta(**by)


@pytest.fixture
def clock() -> Clock:
    """The clock of `operate` and `service`: noon of 2 January 2026 until it is moved."""
    return Clock()


@pytest.fixture
def operate(proctor_store: Store, tmp_path: Path, clock: Clock) -> Callable[..., Service]:
    """Makes services over a store of this test, without a server; their jobs are never executed."""

    def make(**options: Any) -> Service:
        environment = options.pop("environment", {})
        site = make_state(
            proctor_store,
            home=tmp_path / "home",
            folder=tmp_path,
            command=["true"],
            environment=environment,
            now=clock,
            **options,
        )
        return Service(site)

    return make


@pytest.fixture
def service(operate: Callable[..., Service]) -> Service:
    """What operations work on, without a server."""
    return operate()
