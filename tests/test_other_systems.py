"""What is Linux-only degrades: as on macOS, with `/proc` and the calls of Linux taken away."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from proctor.batch.engines import processes
from proctor.store import writer

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def without_proc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # /proc cannot be taken away from a process of Linux.
    def elsewhere(path: str) -> Path:
        return Path(path.replace("/proc", str(tmp_path / "nothing")))

    for module in (writer, processes):
        monkeypatch.setattr(module, "Path", elsewhere)


@pytest.mark.usefixtures("without_proc")
def test_the_owner_of_a_run_is_known_by_its_heartbeat() -> None:
    owner = writer.this_process()

    assert writer.is_alive(owner, NOW - timedelta(seconds=9), NOW)
    assert not writer.is_alive(owner, NOW - timedelta(seconds=11), NOW)
    assert not writer.is_alive(owner, None, NOW)


@pytest.mark.usefixtures("without_proc")
def test_workers_are_started_as_new_processes() -> None:
    assert processes.can_fork() is False
