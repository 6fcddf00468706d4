"""The wheel and the source archive install and work outside the checkout.

The core of the wheel is tried here; `make test-package` installs every extra, and the source archive, too.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
from pathlib import Path
from urllib.request import urlopen

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


@pytest.fixture(
    scope="module",
    params=[
        "wheel",
        # Building it again needs the network.
        pytest.param("archive", marks=pytest.mark.skipif(not EXTRAS, reason="`make test-package` tries it")),
    ],
)
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """The programs of a fresh environment that has the wheel, or the source archive with the extra `mcp`."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    (package,) = built.glob("*.whl" if request.param == "wheel" else "*.tar.gz")
    extras = EXTRAS if request.param == "wheel" else "mcp"
    words = ("--quiet", "--python", folder / "bin" / "python", "--constraint", ROOT / "constraints.txt")
    _run(UV, "pip", "install", *words, f"{package}[{extras}]" if extras else package, folder=folder)
    _copy_compiled(Path(sysconfig.get_path("purelib")), next(folder.glob("lib/python*/site-packages")))
    return folder / "bin"


def _copy_compiled(source: Path, target: Path) -> None:
    """Copy what this environment has compiled of the same packages: Python checks that it fits the source.

    It does where both are links to one file, as uv makes them. Compiling takes half of the test elsewhere.
    """
    for folder in [path for path in target.rglob("*") if path.is_dir()]:
        compiled = source / folder.relative_to(target) / "__pycache__"
        if compiled.is_dir() and folder.name != "__pycache__":
            shutil.copytree(compiled, folder / "__pycache__", dirs_exist_ok=True)


def test_the_source_archive_has_what_a_packager_needs_and_nothing_private(built: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        names = {name.partition("/")[2] for name in files.getnames()}

    assert {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "constraints.txt"} <= names
    assert "docs/proctor.1" in names
    assert not [name for name in names if name.startswith((".venv", "build", ".git/", ".ci"))]


def test_the_container_file_copies_all_that_the_build_needs() -> None:
    lines = (ROOT / "Containerfile").read_text().splitlines()
    copied = [word for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = [
        "pyproject.toml",
        "constraints.txt",
        project["project"]["readme"],
        *project["project"]["license-files"],
        *wheel["packages"],
        *wheel["force-include"],
        *wheel["shared-data"],
    ]

    assert [path for path in needed if not any(Path(path).is_relative_to(source) for source in copied)] == []
    assert [source for source in copied if not (ROOT / source).exists()] == []


def test_it_works_outside_the_checkout(installed: Path, tmp_path: Path) -> None:
    proctor = installed / "proctor"
    home = {"PROCTOR_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
    (tmp_path / "good.yaml").write_text("rules: [{reply: Paris}]")

    version = json.loads(_run(proctor, "--version", "--json", folder=tmp_path, **home))
    _run(proctor, "init", "--yes", "--models", "scripted/good", folder=tmp_path, **home)
    summary = json.loads(_run(proctor, "batch", "proctor-plan.yaml", "--json", folder=tmp_path, **home))
    report = _run(proctor, "report", "--run", summary["runId"], "--format", "html", folder=tmp_path, **home)

    if (installed / "ray").exists():
        assert all(version["extras"][name] for name in EXTRAS.split(",") if name), version["extras"]
    assert (summary["status"], summary["successCount"]) == ("completed", 3)
    assert "<!doctype html>" in report.lower()
    assert (installed.parent / "share" / "man" / "man1" / "proctor.1").exists()
    # It loads the module of every command.
    assert "_proctor" in _run(proctor, "completion", "bash", folder=tmp_path, **home)
    assert summary["runId"] in _page_of_the_web_app(proctor, tmp_path, home)
    if version["extras"]["mcp"]:
        tools = {"start", "watch", "show", "compare", "search"}
        assert _tools_for_assistants(proctor, tmp_path, home) >= tools


def _page_of_the_web_app(proctor: Path, folder: Path, variables: dict[str, str]) -> str:
    """What the server answers about runs, after its page and a script were fetched."""
    words = [proctor, "serve", "--port", "0", "--no-token", "--json"]
    with subprocess.Popen(
        words, cwd=folder, env=os.environ | variables, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            printed = ""
            for line in server.stdout:
                printed += line
                if match := re.search(r'"url": "(http://[^"/]+)', printed):
                    break
            assert match is not None, printed
            with urlopen(f"{match[1]}/", timeout=60) as page:
                (script,) = re.findall(r'src="(/?static/[^"]*app\.js[^"]*)"', page.read().decode())[:1]
            with urlopen(f"{match[1]}/{script.lstrip('/')}", timeout=60) as answer:
                assert answer.status == 200
            with urlopen(f"{match[1]}/api/runs", timeout=60) as answer:
                return str(answer.read().decode())
        finally:
            server.terminate()


def _tools_for_assistants(proctor: Path, folder: Path, variables: dict[str, str]) -> set[str]:
    """The names of the tools that `proctor mcp` lists."""
    client = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    with subprocess.Popen(
        [proctor, "mcp"],
        cwd=folder,
        env=os.environ | variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdin is not None and server.stdout is not None
        server.stdin.write("".join(f"{json.dumps(message)}\n" for message in messages))
        server.stdin.flush()
        json.loads(server.stdout.readline())
        answer = json.loads(server.stdout.readline())
        server.stdin.close()
    return {tool["name"] for tool in answer["result"]["tools"]}
