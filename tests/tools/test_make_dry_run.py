"""`make -n` prints what a target would do, and does none of it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize(("target", "printed"), [("test", "pytest -n"), ("demo", "examples/demo/run.py")])
def test_a_dry_run_of_make_starts_nothing(tmp_path: Path, target: str, printed: str) -> None:
    started = tmp_path / "started"
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("python", "uv", "ruff", "mypy"):
        (programs / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {started}\n')
        (programs / name).chmod(0o755)
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).touch()
    outside = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}

    done = subprocess.run(
        ("make", "-n", target, "PYTHON=python3"),
        cwd=tmp_path,
        env=outside,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert printed in done.stdout
    assert not started.exists(), started.read_text()
