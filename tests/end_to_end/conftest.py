"""A desk for tests of dialogues: a folder with a model that talks, and a home of its own."""

from pathlib import Path

import pytest
from conversations import TALKING


@pytest.fixture
def talking_desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in."""
    (tmp_path / "talking.yaml").write_text(TALKING)
    (tmp_path / "failing.yaml").write_text("failures: {every: 3, status: 500}\n" + TALKING)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROCTOR_HOME", str(tmp_path / "proctor-home"))
    return tmp_path
