"""Which files a confined program can read, and the rules that its launcher makes of them."""

import ctypes
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from proctor.sandbox import Policy, launcher, paths


def made(path: Path, text: str = "", mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def policy(folder: Path, **more: object) -> Policy:
    usual: dict[str, object] = {"write": [folder / "work"], "home": folder / "work"}
    return Policy(**{**usual, "user_home": folder / "user", **more})  # type: ignore[arg-type]


# --- What a program needs ---


LAYOUTS = {
    # What is installed; the program that a link on the PATH leads to; what can be read of it.
    "uv tool": (["tool/pyvenv.cfg", "tool/bin/run", "tool/lib/x.py"], "tool/bin/run", ["tool"]),
    "npm -g": (
        [".npm-x/lib/node_modules/pkg/cli.js", ".npm-x/lib/node_modules/pkg/node_modules/inner/x.js"],
        ".npm-x/lib/node_modules/pkg/cli.js",
        [".npm-x/lib/node_modules"],
    ),
    "programs deep in a package": (
        ["app/node_modules/pkg/dist/x/y/bin/tool", "app/.env"],
        "app/node_modules/pkg/dist/x/y/bin/tool",
        ["app/node_modules"],
    ),
    "nvm": (
        [".nvm/versions/node/v20/bin/node", ".nvm/versions/node/v20/lib/x", ".nvm/alias/default"],
        ".nvm/versions/node/v20/bin/node",
        [".nvm/versions/node/v20/bin", ".nvm/versions/node/v20/lib"],
    ),
    "pyenv": (
        [".pyenv/libexec/pyenv", ".pyenv/versions/x", ".pyenv/bin/x"],
        ".pyenv/libexec/pyenv",
        [".pyenv"],
    ),
    "cargo": ([".cargo/bin/tool", ".cargo/env"], ".cargo/bin/tool", [".cargo/bin", ".cargo/env"]),
    "volta": ([".volta/bin/volta-shim", ".volta/tools/x"], ".volta/bin/volta-shim", [".volta"]),
    "conda": (["mini/conda-meta/history", "mini/bin/python", "mini/ssl/x"], "mini/bin/python", ["mini"]),
    "Java": (["jdk/release", "jdk/bin/java", "jdk/lib/modules", "jdk/conf/x"], "jdk/bin/java", ["jdk"]),
    "prefix": (
        ["app/bin/tool", "app/lib/x.so", "app/share/doc", "app/config/key", "app/src/x"],
        "app/bin/tool",
        ["app/bin", "app/lib", "app/share"],
    ),
    "repository": (["shop/bin/tool", "shop/lib/customers.json", "shop/.git/HEAD"], "shop/bin/tool", []),
    "project with keys": (["shop/bin/tool", "shop/share/customers.json", "shop/.env"], "shop/bin/tool", []),
    "project": (["secret-project/run.sh", "secret-project/.env"], "secret-project/run.sh", []),
    "project with bin": (["secret-project/bin/run", "secret-project/.env"], "secret-project/bin/run", []),
    "project in lib": (
        ["work/bin/x", "work/lib/project/run", "work/lib/project/.env"],
        "work/lib/project/run",
        [],
    ),
    "one file": (
        [".local/share/claude/versions/1.0", ".local/lib/x"],
        ".local/share/claude/versions/1.0",
        [],
    ),
    "in .local": ([".local/libexec/x", ".local/lib/x", ".local/share/keyrings/x"], ".local/libexec/x", []),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_link_on_the_path_opens_its_program_and_a_known_installation(tmp_path: Path, name: str) -> None:
    files, program, visible = LAYOUTS[name]
    user = tmp_path / "user"
    for file in files:
        made(user / file)
    (user / "bin").mkdir()
    (user / "bin/tool").symlink_to(user / program)
    found = paths.readable([], {"PATH": f"{user}/bin:/usr/bin:relative:/none"}, policy(tmp_path))
    named = (
        [user / program] if not any((user / program).is_relative_to(user / part) for part in visible) else []
    )
    assert sorted(found) == sorted([user / "bin", *named, *(user / part for part in visible)])


def test_an_environment_of_python_opens_the_python_that_it_is_based_on(tmp_path: Path) -> None:
    made(tmp_path / "python/bin/python3.12")
    made(tmp_path / "python/lib/os.py")
    (tmp_path / "python/bin/python3").symlink_to("python3.12")
    made(tmp_path / "tool/pyvenv.cfg", f"home = {tmp_path}/python/bin\nversion = 3.12\n")
    made(tmp_path / "tool/bin/run")
    found = paths.readable([], {"PATH": str(tmp_path / "tool/bin")}, policy(tmp_path))
    assert sorted(found) == [tmp_path / "python/bin", tmp_path / "python/lib", tmp_path / "tool"]


def test_of_a_folder_on_the_path_that_is_not_for_programs_only_these_can_be_read(tmp_path: Path) -> None:
    made(tmp_path / "project/tool")
    made(tmp_path / "project/.env", mode=0o600)
    made(tmp_path / "project/data.csv", mode=0o644)
    made(tmp_path / "project/inner/run")
    (tmp_path / "project/notes").symlink_to(made(tmp_path / "elsewhere/notes", mode=0o644))
    found = paths.readable([], {"PATH": str(tmp_path / "project")}, policy(tmp_path))
    assert found == [tmp_path / "project/tool"]


def test_variables_name_installations_and_no_keys(tmp_path: Path) -> None:
    for name in ("a", "b", "keys"):
        (tmp_path / name).mkdir()
    environment = {
        "PATH": "",
        "PYTHONPATH": f"{tmp_path}/a:{tmp_path}/none::{tmp_path}/b/",
        "GOOGLE_APPLICATION_CREDENTIALS": f"{tmp_path}/keys",
    }
    assert paths.readable([], environment, policy(tmp_path)) == [tmp_path / "a", tmp_path / "b"]


def test_the_files_that_a_plan_names_can_be_read_with_the_modules_beside_them(tmp_path: Path) -> None:
    agent = tmp_path / "agent"
    made(agent / "run.py", "import os, helper\nfrom package.inner import tools")
    made(agent / "helper.py", "from package import missing")
    made(agent / "package/inner/tools.py", "from ..base import Base")
    for name in ("package/__init__.py", "package/inner/__init__.py", "package/base.py"):
        made(agent / name)
    for name in ("package/part.txt", "package/.env", "package/solution.py", "data/words.txt", ".env"):
        made(agent / name)
    for name in ("customers.json", "solution.py", "run.sh", "tasks/__init__.py", ".hidden.py"):
        made(agent / name)
    (tmp_path / "data/inner").mkdir(parents=True)
    command = f"python {agent}/run.py --data={tmp_path}/data/inner 'x y' relative {tmp_path}/none"
    found = paths.readable([], {"PATH": "/none"}, policy(tmp_path, named=[command]))
    assert sorted(found) == sorted(
        [
            *(agent / name for name in ("run.py", "helper.py", "package/__init__.py", "package/base.py")),
            *(agent / name for name in ("package/inner/__init__.py", "package/inner/tools.py")),
            tmp_path / "data/inner",
        ]
    )


def test_what_an_earlier_program_left_in_its_folder_opens_nothing(tmp_path: Path) -> None:
    """Links, first lines and settings of environments in the session's folder are an agent's."""
    secret = made(tmp_path / "user/secret/bin/key")
    made(tmp_path / "user/secret/lib/key")
    tree = tmp_path / "work/tree"
    made(tree / ".venv/pyvenv.cfg", f"home = {secret.parent}\n")
    (tree / ".venv/bin").mkdir()
    (tree / ".venv/bin/python3").symlink_to(secret)
    (tree / "linked").symlink_to(secret.parent)
    script = made(tree / "run.sh", f"#!{secret}\n")
    environment = {"PATH": f"{tree}/.venv/bin:{tree}/linked", "VIRTUAL_ENV": f"{tree}/linked"}
    named = [str(script), str(tree / "linked"), str(tree / "linked/key")]
    assert paths.readable([str(script), "python3"], environment, policy(tmp_path, named=named)) == []
    assert paths.listed(policy(tmp_path, named=named)) == []


def test_a_script_in_a_private_folder_opens_only_itself(tmp_path: Path) -> None:
    for name in ("user/run.py", "user/secret.py", "user/project/__init__.py"):
        made(tmp_path / name)
    script = str(tmp_path / "user/run.py")
    found = paths.readable([], {"PATH": "/none"}, policy(tmp_path, named=[script]))
    assert found == [tmp_path / "user/run.py"]


@pytest.mark.parametrize(
    ("script", "text", "visible"),
    [
        ("run.sh", '. "$(dirname "$0")/lib.sh"\n', ["lib.sh", "run.sh"]),
        (
            "run",
            '#!/bin/bash\nD=${0%/*}\nsource $D/lib.sh\n"$D/tool" <"$D/key.pem"',
            ["lib.sh", "run", "tool"],
        ),
        ("run", "no script: $(dirname $0)/lib.sh", ["run"]),
        ("run.sh", "cat lib.sh; . $HOME/lib.sh; . ~/tool\n# . {agent}/lib.sh", ["run.sh"]),
        ("run.sh", ". {agent}/.env; . {agent}/key.pem; cat {agent}/customers.json", ["run.sh"]),
        ("run.mjs", 'import x from "./lib.js"', ["lib.js", "node_modules", "package.json", "run.mjs"]),
        ("run.mjs", 'import "x"; import "./customers.json"', ["node_modules", "package.json", "run.mjs"]),
        ("run.mjs", 'require("../other/solution.js")', ["node_modules", "package.json", "run.mjs"]),
        ("run.rb", "require_relative 'lib'", ["lib.rb", "run.rb"]),
        ("run.py", "import out", ["run.py"]),
        ("run.py", "this is no Python", ["run.py"]),
        ("run.bin", "", ["run.bin"]),
    ],
)
def test_a_script_opens_the_code_that_it_loads_and_nothing_else_beside_it(tmp_path, script, text, visible):
    agent = tmp_path / "agent"
    for name in ("lib.sh", "lib.js", "lib.rb", "package.json", "node_modules/x/index.js"):
        made(agent / name)
    made(tmp_path / "other/solution.js")
    for name in ("solution.py", "solution.sh", "customers.json", ".env", "key.pem", "../other/secret.py"):
        made(agent / name, mode=0o600)
    made(agent / "tool", "#!/bin/sh\n")
    (agent / "out.py").symlink_to(tmp_path / "other/secret.py")
    made(agent / script, text.replace("{agent}", str(agent)))
    found = paths.readable([], {"PATH": "/none"}, policy(tmp_path, named=[str(agent / script)]))
    assert sorted(found) == sorted(agent / name for name in visible)


def test_a_program_below_the_folder_of_its_package_finds_what_it_needs(tmp_path: Path) -> None:
    agent = tmp_path / "agent"
    made(agent / "package.json", "{}")
    made(agent / "node_modules/x/index.js")
    made(agent / "bin/run.js", "import '../dist/main.js'")
    made(agent / "dist/main.js", "export * from './part'")
    for name in ("dist/part.js", "dist/other.js", "data.json", ".env"):
        made(agent / name)
    found = paths.readable([], {"PATH": "/none"}, policy(tmp_path, named=[str(agent / "bin/run.js")]))
    names = ("bin/run.js", "dist/main.js", "dist/part.js", "node_modules", "package.json")
    assert sorted(found) == [agent / name for name in names]


def test_what_is_hidden_is_left_out_of_a_folder(tmp_path: Path) -> None:
    for name in ("a/x", "a/secret/y", "a/b/z", "a/b/key", "keys"):
        made(tmp_path / name)
    (tmp_path / "a/link").symlink_to(tmp_path / "a/secret/y")
    hidden = [tmp_path / "a/secret", tmp_path / "a/b/key", tmp_path / "key"]
    found = sorted(paths.around(tmp_path / "a", hidden))
    assert found == [tmp_path / "a/b/z", tmp_path / "a/x"]
    assert list(paths.around(tmp_path / "keys", hidden)) == [tmp_path / "keys"]
    assert list(paths.around(tmp_path / "a/secret", hidden)) == []
    assert list(paths.around(tmp_path / "none", hidden)) == []
    assert list(paths.around(tmp_path / "a/b", [])) == [tmp_path / "a/b"]


def test_settings_that_only_their_owner_may_read(tmp_path: Path) -> None:
    for name, mode in (("open", 0o644), ("shadow", 0o640), ("own", 0o600), ("shown/inner", 0o600)):
        made(tmp_path / name, mode=mode)
    for name, mode in (("closed", 0o750), ("listed", 0o754), ("entered", 0o751), ("shown", 0o755)):
        (tmp_path / name).mkdir(exist_ok=True)
        made(tmp_path / name / "file", mode=0o600 if name != "shown" else 0o644)
        (tmp_path / name).chmod(mode)
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    (tmp_path / "linked").symlink_to(tmp_path / "own")
    (tmp_path / "linked-folder").symlink_to(tmp_path / "closed")
    files, folders = paths.unreadable_in(str(tmp_path))
    assert sorted(path.name for path in files) == ["inner", "own", "shadow"]
    assert sorted(path.name for path in folders) == ["closed", "entered", "listed"]
    assert all(path.is_absolute() and path.exists() for path in (*files, *folders))


# White-box: the search of the system itself takes long, and its place is the machine's own.
@pytest.mark.skipif(os.geteuid() != 0, reason="only root has files that others may not read")
@pytest.mark.parametrize(
    ("age", "mode", "change", "is_used"),
    [
        (0, 0o600, "", True),
        (550, 0o600, "", True),
        (650, 0o600, "", False),
        (-50, 0o600, "", False),
        (0, 0o640, "", False),
        (0, 0o600, "system/a/b/new", False),
        (0, 0o600, "search.json", False),
    ],
)
def test_a_stored_search_of_the_system_is_used_if_it_is_roots_own_and_recent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age: float, mode: int, change: str, is_used: bool
) -> None:
    file = tmp_path / "search.json"
    monkeypatch.setattr(paths, "_SEARCH_FILE", file)
    monkeypatch.setattr(paths, "SYSTEM", (str(tmp_path / "system"),))
    search = paths.unreadable_system.__wrapped__
    first = made(tmp_path / "system/a/b/c/secret", mode=0o600)
    assert first in search()[0] and file.stat().st_mode & 0o777 == 0o600

    # It is deeper than the folders whose changes are looked at.
    later = made(first.with_name("later"), mode=0o600)
    if change:
        made(tmp_path / change, "{")
    file.chmod(mode)
    os.utime(file, (time.time() - age, time.time() - age))
    assert (later not in search()[0]) is is_used


# --- What a launcher makes of it ---


class Kernel:
    """The calls of the launcher to the kernel, which answers that all is well."""

    def __init__(self, version: int) -> None:
        self.version, self.calls = version, list[tuple[object, ...]]()

    def syscall(self, number: int, *arguments: object) -> int:
        if number == 444 and arguments[0] is None:
            assert arguments == (None, 0, 1)
            return self.version
        self.calls.append((number, *arguments))
        return 77 if number == 444 else 0


@pytest.fixture
def restricted(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, list[str]], list[tuple[object, ...]]]:
    """Restrict by rules on a kernel with a version of Landlock; the calls."""

    def restrict(version: int, rules: list[str]) -> list[tuple[object, ...]]:
        kernel = Kernel(version)
        close = os.close
        monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: kernel)
        monkeypatch.setattr(launcher, "drop_capabilities", lambda: kernel.calls.append(("capabilities",)))
        monkeypatch.setattr(
            launcher, "filter_calls", lambda program: kernel.calls.append(("filter", program))
        )
        monkeypatch.setattr(launcher.os, "close", lambda number: close(number) if number != 77 else None)
        launcher.restrict(rules)
        return kernel.calls

    return restrict


EVERY = {1: 0x1FFF, 2: 0x3FFF, 3: 0x7FFF, 4: 0x7FFF, 5: 0xFFFF, 6: 0xFFFF, 9: 0xFFFF}


# White-box: this machine has one version of Landlock, and a program must be confined on all others too.
@pytest.mark.parametrize("version", EVERY)
@pytest.mark.parametrize("network", [False, True])
def test_the_rights_of_each_version_of_landlock(restricted, version, network):
    calls = restricted(version, ["port 81", *(["network"] if network else [])])
    connect = 2 if version >= 4 and not network else 0
    members = [EVERY[version], *([connect] if version >= 4 else []), *([3] if version >= 6 else [])]
    attributes = b"".join(member.to_bytes(8, "little") for member in members)
    port = [(445, 77, 2, struct.pack("QQ", 2, 81), 0)] if connect else []
    assert calls == [(444, attributes, len(attributes), 0), *port, ("capabilities",), (446, 77, 0)]


# White-box: no kernel can be made to refuse these calls, and a refusal must never leave a program unconfined.
@pytest.mark.parametrize("failing", [444, 445, 446])
def test_a_call_to_the_kernel_that_fails_is_an_error(monkeypatch, tmp_path, failing):
    class Refusing(Kernel):
        def syscall(self, number: int, *arguments: object) -> int:
            answer = super().syscall(number, *arguments)
            return -1 if number == failing and arguments[0] is not None else answer

    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: Refusing(6))
    monkeypatch.setattr(ctypes, "get_errno", lambda: 13)
    monkeypatch.setattr(launcher, "drop_capabilities", lambda: None)
    for rules in ([f"read {tmp_path}"], ["port 81"]):
        with pytest.raises(PermissionError):
            launcher.restrict(rules)
