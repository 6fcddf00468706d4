"""What tests of commands in this process share."""

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a home, in which commands run."""
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path)
    for name in ("PROCTOR_STORE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PROCTOR_HOME", str(tmp_path / "home"))
    return tmp_path
