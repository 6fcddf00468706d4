"""Programs start in a sandbox however they were installed: the folder structures that package managers make.

Each layout is built from its files and links, as the tool makes them; docs/trust.md has the table of real
programs that was tried.
"""

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from proctor import secrets
from proctor.item import Item
from proctor.processes import ProgramResult, run
from proctor.sandbox import Policy, Sandbox, problem_of
from proctor.sandbox.paths import readable
from proctor.workspace.setup import session_environment

NODE = shutil.which("node")
"""Finds packages from where a file really is, as no other program of the table does."""
CLI = "#!/usr/bin/env node\nrequire('dep');\n"
"""A package whose program needs another package."""
DEP = "console.log('started');\n"
WRAPPER = '#!/bin/sh\nbasedir=$(dirname "$(echo "$0" | sed -e \'s,\\\\,/,g\')")\n'


def package(folder: str, name: str = "tool", code: str = CLI) -> dict[str, str]:
    """The files of a package of Node."""
    return {f"{folder}/{name}/package.json": f'{{"name": "{name}"}}', f"{folder}/{name}/index.js": code}


@dataclass(frozen=True)
class Layout:
    """What is installed in the user's HOME."""

    files: Mapping[str, str]
    """Text by path; a text that begins with `-> ` is a link. `{home}` is the HOME."""
    program: str
    variables: Mapping[str, str] = field(default_factory=dict)
    private: str = ".env"
    """A file that stays hidden."""


LAYOUTS = {
    "npm project": Layout(
        {
            **package("app/node_modules"),
            **package("app/node_modules", "dep", DEP),
            "app/node_modules/.bin/tool": "-> ../tool/index.js",
        },
        "app/node_modules/.bin/tool",
        private="app/.env",
    ),
    "npm -g": Layout(
        {
            **package(".npm-global/lib/node_modules"),
            **package(".npm-global/lib/node_modules/tool/node_modules", "dep", DEP),
            ".npm-global/bin/tool": "-> ../lib/node_modules/tool/index.js",
        },
        ".npm-global/bin/tool",
    ),
    "npm workspaces: a package of one's own": Layout(
        {
            **package("mono/packages"),
            **package("mono/node_modules", "dep", DEP),
            "mono/node_modules/tool": "-> ../packages/tool",
            "mono/node_modules/.bin/tool": "-> ../tool/index.js",
        },
        "mono/node_modules/.bin/tool",
        private="mono/.env",
    ),
    "pnpm": Layout(
        {
            **package("app/node_modules/.pnpm/tool@1.0.0/node_modules"),
            **package("app/node_modules/.pnpm/dep@2.0.0/node_modules", "dep", DEP),
            "app/node_modules/.pnpm/tool@1.0.0/node_modules/dep": "-> ../../dep@2.0.0/node_modules/dep",
            "app/node_modules/tool": "-> .pnpm/tool@1.0.0/node_modules/tool",
            "app/node_modules/.bin/tool": WRAPPER + 'exec node "$basedir/../tool/index.js" "$@"\n',
        },
        "app/node_modules/.bin/tool",
    ),
    "pnpm -g": Layout(
        {
            **package(".local/share/pnpm/global/5/.pnpm/tool@1.0.0/node_modules"),
            **package(".local/share/pnpm/global/5/.pnpm/dep@2.0.0/node_modules", "dep", DEP),
            ".local/share/pnpm/global/5/.pnpm/tool@1.0.0/node_modules/dep": (
                "-> ../../dep@2.0.0/node_modules/dep"
            ),
            ".local/share/pnpm/tool": WRAPPER
            + 'exec node "$basedir/global/5/.pnpm/tool@1.0.0/node_modules/tool/index.js" "$@"\n',
            ".local/share/pnpm/store/v10/x": "",
        },
        ".local/share/pnpm/tool",
        private=".local/share/pnpm/store/key",
    ),
    "pnpm with a global virtual store": Layout(
        {
            **package(".local/share/pnpm/store/v10/links/tool/1.0.0/abc/node_modules"),
            **package(".local/share/pnpm/store/v10/links/dep/2.0.0/def/node_modules", "dep", DEP),
            ".local/share/pnpm/store/v10/files/00/x": "",
            ".local/share/pnpm/store/v10/links/tool/1.0.0/abc/node_modules/dep": (
                "-> ../../../../dep/2.0.0/def/node_modules/dep"
            ),
            "app/node_modules/tool": (
                "-> ../../.local/share/pnpm/store/v10/links/tool/1.0.0/abc/node_modules/tool"
            ),
            "app/node_modules/.bin/tool": "-> ../tool/index.js",
        },
        "app/node_modules/.bin/tool",
    ),
    "npx": Layout(
        {
            **package(".npm/_npx/0a1b/node_modules"),
            **package(".npm/_npx/0a1b/node_modules", "dep", DEP),
            ".npm/_npx/0a1b/node_modules/.bin/tool": "-> ../tool/index.js",
        },
        ".npm/_npx/0a1b/node_modules/.bin/tool",
    ),
    "bun": Layout(
        {
            **package(".bun/install/global/node_modules"),
            **package(".bun/install/global/node_modules", "dep", DEP),
            ".bun/bin/tool": "-> ../install/global/node_modules/tool/index.js",
        },
        ".bun/bin/tool",
    ),
    "nvm": Layout(
        {
            **package(".nvm/versions/node/v20.1.0/lib/node_modules"),
            **package(".nvm/versions/node/v20.1.0/lib/node_modules/tool/node_modules", "dep", DEP),
            ".nvm/versions/node/v20.1.0/bin/node": f"-> {NODE}",
            ".nvm/versions/node/v20.1.0/bin/tool": "-> ../lib/node_modules/tool/index.js",
        },
        ".nvm/versions/node/v20.1.0/bin/tool",
    ),
    "volta": Layout(
        {
            **package(".volta/tools/image/packages/tool/lib/node_modules"),
            **package(".volta/tools/image/packages/tool/lib/node_modules", "dep", DEP),
            # The shim is a program that finds the image below VOLTA_HOME, else HOME.
            ".volta/bin/volta-shim": '#!/bin/sh\nroot="${VOLTA_HOME:-$HOME/.volta}"\n'
            'exec node "$root/tools/image/packages/${0##*/}/lib/node_modules/${0##*/}/index.js"\n',
            ".volta/bin/tool": "-> volta-shim",
        },
        ".volta/bin/tool",
    ),
    "rustup": Layout(
        {
            ".cargo/bin/rustup": '#!/bin/sh\nroot="${RUSTUP_HOME:-$HOME/.rustup}"\n'
            'exec "$root/toolchains/stable/bin/${0##*/}"\n',
            ".cargo/bin/tool": "-> rustup",
            ".rustup/toolchains/stable/bin/tool": "#!/bin/sh\necho started\n",
        },
        ".cargo/bin/tool",
        private=".cargo/credentials.toml",
    ),
    "uv tool, with a Python of uv": Layout(
        {
            "uv/python/cpython-3.12.1-linux/bin/python3.12": '#!/bin/sh\n. "$(readlink -f "$0")-library"\n',
            "uv/python/cpython-3.12.1-linux/bin/python3.12-library": "echo started\n",
            "uv/python/cpython-3.12.1-linux/bin/python3": "-> python3.12",
            "uv/python/cpython-3.12.1-linux/lib/python3.12/os.py": "",
            # One for each minor version.
            "uv/python/cpython-3.12-linux": "-> cpython-3.12.1-linux",
            "uv/tools/tool/pyvenv.cfg": "home = {home}/uv/python/cpython-3.12-linux/bin\n",
            "uv/tools/tool/bin/python": "-> {home}/uv/python/cpython-3.12-linux/bin/python3.12",
            "uv/tools/tool/bin/tool": "#!{home}/uv/tools/tool/bin/python\n",
            ".local/bin/tool": "-> {home}/uv/tools/tool/bin/tool",
        },
        ".local/bin/tool",
    ),
    "conda": Layout(
        {
            "conda/envs/agents/conda-meta/history": "",
            "conda/envs/agents/ssl/part": "echo started\n",
            "conda/envs/agents/bin/tool": '#!/bin/sh\n. "$(dirname "$0")/../ssl/part"\n',
        },
        "conda/envs/agents/bin/tool",
    ),
    "a link elsewhere": Layout(
        {
            **package(".npm-global/lib/node_modules"),
            **package(".npm-global/lib/node_modules/tool/node_modules", "dep", DEP),
            ".npm-global/bin/tool": "-> ../lib/node_modules/tool/index.js",
            "links/tool": "-> ../.npm-global/bin/tool",
        },
        "links/tool",
        private="links/notes.txt",
    ),
    "a link to a folder": Layout(
        {
            **package(".npm-global/lib/node_modules"),
            **package(".npm-global/lib/node_modules/tool/node_modules", "dep", DEP),
            ".npm-global/bin/tool": "-> ../lib/node_modules/tool/index.js",
            "tools/current": "-> ../.npm-global",
        },
        "tools/current/bin/tool",
        private="tools/notes.txt",
    ),
    "a wrapper": Layout(
        {
            **package("app/node_modules"),
            **package("app/node_modules", "dep", DEP),
            "app/node_modules/.bin/tool": "-> ../tool/index.js",
            "bin/tool": '#!/bin/sh\n# cat {home}/app/.env\nexec {home}/app/node_modules/.bin/tool "$@"\n',
        },
        "bin/tool",
        private="app/.env",
    ),
    "a wrapper that finds its program from its own folder": Layout(
        {
            "tools/agent/run": "#!/bin/sh\necho started\n",
            "tools/bin/tool": "#!/usr/bin/env bash\n"
            'HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"\nexec "$HERE/agent/run" "$@"\n',
        },
        "tools/bin/tool",
        private="tools/agent/key.pem",
    ),
    "a wrapper that enters an environment": Layout(
        {
            "app/venv/pyvenv.cfg": "",
            "app/venv/bin/activate": 'PATH="{home}/app/venv/bin:$PATH"\n',
            "app/venv/bin/tool": "#!/bin/sh\necho started\n",
            "bin/tool": "#!/bin/sh\n. {home}/app/venv/bin/activate\nexec tool\n",
        },
        "bin/tool",
        private="app/.env",
    ),
}


def install(home: Path, layout: Layout) -> None:
    """Make the files and links of a layout."""
    for name, text in layout.files.items():
        place, content = home / name, text.replace("{home}", str(home))
        place.parent.mkdir(parents=True, exist_ok=True)
        if content.startswith("-> "):
            place.symlink_to(content[3:])
        else:
            place.write_text(content)
            place.chmod(0o755 if content.startswith("#!") else 0o644)


async def started(home: Path, kind: str, program: str, path: str, phase: str = "agent") -> ProgramResult:
    """Run a program as a session of a user with this HOME does."""
    place = home / ".local/share/proctor/worktrees/one/work"
    for name in ("tree", "home/tmp"):
        (place / name).mkdir(parents=True, exist_ok=True)
    visible = secrets.visible({"PATH": path, "HOME": str(home)}, named={"HOME"})
    item = Item(runner="worktree", agent="command", prompt="Go.")
    confinement = Sandbox(hidden=(place.parents[2],), user_home=home).confine(
        phase,  # type: ignore[arg-type]
        kind,
        folders=[place / "tree", place / "home"],
        home=place / "home",
    )
    environment = session_environment(item, visible, place / "home", place / "tree", 20_000)
    return await run(
        [program],
        folder=place / "tree",
        environment=environment,
        attempt="test",
        confinement=confinement,
        time_limit=60,
    )


@pytest.fixture(params=("bubblewrap", "landlock"))
def kind(request: pytest.FixtureRequest) -> str:
    if problem := problem_of(request.param):
        pytest.skip(problem)
    return str(request.param)


@pytest.mark.skipif(NODE is None, reason="Node is not installed")
@pytest.mark.parametrize("name", LAYOUTS)
async def test_a_program_starts_however_it_was_installed(tmp_path: Path, kind: str, name: str) -> None:
    layout = LAYOUTS[name]
    install(tmp_path, layout)
    (tmp_path / layout.private).touch(0o600)
    program = tmp_path / layout.program
    folders = os.pathsep.join([str(program.parent), os.environ["PATH"]])

    by_path = await started(tmp_path, kind, str(program), os.environ["PATH"])
    on_path = await started(tmp_path, kind, program.name, folders)

    assert (by_path.output, on_path.output) == ("started\n", "started\n")
    policy = Policy(write=[], home=tmp_path / "home", user_home=tmp_path)
    opened = readable([str(program)], {"PATH": folders}, policy)
    assert not {*opened} & {tmp_path / layout.private, *(tmp_path / layout.private).parents}


@pytest.mark.skipif(not os.access("/run", os.W_OK), reason="only root may make links in /run")
async def test_a_program_starts_from_a_link_below_run(tmp_path: Path, kind: str) -> None:
    """As fnm makes one for each shell, and NixOS for its system."""
    folder = Path(tempfile.mkdtemp(dir="/run"))
    try:
        install(tmp_path, LAYOUTS["npm -g"])
        (folder / "shell").symlink_to(tmp_path / ".npm-global")
        path = f"{folder}/shell/bin:{os.environ['PATH']}"
        shown = secrets.visible({"PATH": path, "TOOL_BIN": f"{folder}/shell/bin/tool"})
        on_path = await started(tmp_path, kind, "tool", shown["PATH"])
        by_path = await started(tmp_path, kind, shown["TOOL_BIN"], os.environ["PATH"])
        assert (on_path.output, by_path.output) == ("started\n", "started\n")
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("setup", "variable"),
    [("cargo fetch", ".rustup"), ("", ".rustup"), ("rustup toolchain install nightly", None)],
)
def test_a_setup_that_installs_toolchains_does_so_in_the_home_of_the_session(tmp_path, setup, variable):
    (tmp_path / ".rustup").mkdir()
    visible = secrets.visible({"PATH": "/bin", "HOME": str(tmp_path)}, named={"HOME"})
    item = Item(runner="worktree", agent="command", prompt="Go.", details={"setup": setup})
    environment = session_environment(item, visible, tmp_path / "home", tmp_path, 20_000)
    assert environment.get("RUSTUP_HOME") == (str(tmp_path / variable) if variable else None)
