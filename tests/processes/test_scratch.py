"""Temporary folders of processes that died are found again, and those of others are left alone."""

import subprocess
import sys
from pathlib import Path

import pytest

from proctor.processes.scratch import abandoned_folders, scratch_folder

OWNER = """
import os
from proctor.processes.scratch import scratch_folder
with scratch_folder("test") as folder:
    (folder / "file").write_text("x")
    os.kill(os.getpid(), 9)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def test_only_the_folder_of_a_dead_process_is_abandoned(temporary: Path) -> None:
    subprocess.run([sys.executable, "-c", OWNER], check=False)
    (temporary / "proctor-other").mkdir()
    with scratch_folder("live") as live:
        left = [path for path in temporary.iterdir() if path.name not in (live.name, "proctor-other")]
        assert len(left) == 1
        assert list(abandoned_folders()) == left
    assert not live.exists()


def test_an_exception_of_the_body_is_raised() -> None:
    with pytest.raises(FileNotFoundError), scratch_folder("test") as folder:
        (folder / "none").read_text()
    assert not folder.exists()
