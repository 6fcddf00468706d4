"""The wheel and the source archive install and work outside the checkout.

The core is tried here; `make test-package` installs every extra.
"""

import json
import os
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
EXTRAS = os.environ.get("PROCTOR_PACKAGE_EXTRAS", "")
"""Extras to install, comma-separated; `make test-package` names all."""


def _run(*words: object, folder: Path, **variables: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        list(map(str, words)),
        cwd=folder,
        env=environment | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not UV.exists():
        pytest.skip("uv is not installed: `make setup` installs it")
    folder = tmp_path_factory.mktemp("dist")
    # The wheel is built from the source archive, as whoever packages it does.
    _run(UV, "build", "--quiet", "--out-dir", folder, ROOT, folder=folder)
    return folder


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a fresh environment that has the wheel."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    (wheel,) = built.glob("*.whl")
    package = f"{wheel}[{EXTRAS}]" if EXTRAS else wheel
    python = folder / "bin" / "python"
    constraints = ROOT / "constraints.txt"
    _run(
        UV,
        "pip",
        "install",
        "--quiet",
        "--python",
        python,
        "--constraint",
        constraints,
        package,
        folder=folder,
    )
    return folder / "bin"


def test_the_source_archive_has_what_a_packager_needs_and_nothing_private(built: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        names = {name.partition("/")[2] for name in files.getnames()}

    assert {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "constraints.txt"} <= names
    assert "docs/proctor.1" in names
    assert not [name for name in names if name.startswith((".venv", "build", ".git/", ".ci"))]


def test_the_wheel_works_outside_the_checkout(installed: Path, tmp_path: Path) -> None:
    proctor = installed / "proctor"
    home = {"PROCTOR_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
    (tmp_path / "good.yaml").write_text("rules: [{reply: Paris}]")

    version = json.loads(_run(proctor, "--version", "--json", folder=tmp_path, **home))
    _run(proctor, "init", "--yes", "--models", "scripted/good", folder=tmp_path, **home)
    summary = json.loads(_run(proctor, "batch", "proctor-plan.yaml", "--json", folder=tmp_path, **home))
    report = _run(proctor, "report", "--run", summary["runId"], "--format", "html", folder=tmp_path, **home)
    ranked = json.loads(_run(proctor, "rank", summary["runId"], "--json", folder=tmp_path, **home))

    assert all(version["extras"][name] for name in EXTRAS.split(",") if name), version["extras"]
    assert (summary["status"], summary["successCount"]) == ("completed", 3)
    assert "<!doctype html>" in report.lower()
    assert ranked[0]["name"] == "scripted/good"
    assert (installed.parent / "share" / "man" / "man1" / "proctor.1").exists()
    python = installed / "python"
    where = _run(python, "-c", "import proctor; print(proctor.__file__)", folder=tmp_path, **home)
    assert Path(where.strip()).is_relative_to(installed.parent)
    pages = (
        "from importlib.resources import files\nimport proctor.web.app\n"
        "print(files('proctor.web').joinpath('static/app.js').is_file())"
    )
    assert _run(python, "-c", pages, folder=tmp_path, **home) == "True\n"
