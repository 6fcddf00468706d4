"""Temporary folders of processes that died are found again, and those of others are left alone."""

import subprocess
import sys
from pathlib import Path

import pytest

from proctor.processes.scratch import abandoned_folders, scratch_folder
from proctor.workspace.folders import remove_abandoned

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


def test_folders_of_any_depth_in_it_are_no_error(temporary: Path) -> None:
    """What a confined program leaves there must not end the item with an error."""
    script = "import os; [(os.mkdir('d'), os.chdir('d')) for _ in range(1500)]"
    with scratch_folder("test") as folder:
        subprocess.run([sys.executable, "-c", script], cwd=folder, check=True)

    remove_abandoned(temporary)

    assert not folder.exists()
