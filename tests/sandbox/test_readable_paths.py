"""Which files a confined program can read, and the rules that its launcher makes of them."""

import ctypes
import os
import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

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
        ["app/bin/tool", "app/lib/x.so", "app/share/doc", "app/.env", "app/config/key", "app/src/x"],
        "app/bin/tool",
        ["app/bin", "app/lib", "app/share"],
    ),
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
    found = paths.readable([], {"PATH": str(tmp_path / "project")}, policy(tmp_path))
    assert found == [tmp_path / "project/tool"]


def test_programs_in_memory_can_be_read_and_devices_are_the_sandboxs_own(tmp_path: Path) -> None:
    places = [Path(each) for each in ("/dev/shm/tools", "/dev/shm", "/dev/pts", "/proc/self", "/etc/ssl")]
    assert paths._without_private(places, [tmp_path]) == [Path("/dev/shm/tools")]
    assert paths._without_private([Path("/dev/shm/tools")], [Path("/dev/shm/tools/mine")]) == []


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
    for name in ("run.py", "helper.py", "package/__init__.py", "package/part.txt", "data/words.txt"):
        made(agent / name)
    for name in (".env", "solution.txt", "run.sh", "other/solution.py", ".hidden.py"):
        made(agent / name)
    (tmp_path / "data/inner").mkdir(parents=True)
    command = f"python {agent}/run.py --data={tmp_path}/data/inner 'x y' relative {tmp_path}/none"
    found = paths.readable([], {"PATH": "/none"}, policy(tmp_path, named=[command]))
    assert sorted(found) == sorted(
        [agent / "run.py", agent / "helper.py", agent / "package", tmp_path / "data/inner"]
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


def test_so_many_single_programs_of_a_folder_are_opened(tmp_path: Path) -> None:
    for number in range(120):
        made(tmp_path / f"project/tool{number}")
    found = paths.readable([], {"PATH": str(tmp_path / "project")}, policy(tmp_path))
    assert len(found) == 100


@pytest.mark.parametrize(
    ("script", "visible"),
    [
        ("run.sh", ["lib.sh", "run.sh"]),
        ("run", ["lib.sh", "run", "run.sh"]),
        ("run.mjs", ["lib.js", "node_modules", "package.json", "run.mjs"]),
        ("run.rb", ["run.rb"]),
        ("run.bin", ["run.bin"]),
    ],
)
def test_what_a_script_loads_from_its_folder(tmp_path: Path, script: str, visible: list[str]) -> None:
    agent = tmp_path / "agent"
    for name in ("run.sh", "lib.sh", "run", "run.mjs", "lib.js", "package.json", "node_modules/x/index.js"):
        made(agent / name)
    for name in ("run.rb", "run.bin", ".env", "key.pem"):
        made(agent / name)
    found = paths.readable([], {"PATH": "/none"}, policy(tmp_path, named=[str(agent / script)]))
    assert sorted(found) == [agent / name for name in visible]


@pytest.mark.parametrize(
    ("argument", "found"),
    [
        ("/a/b", ["/a/b"]),
        ("a b", ["a", "", "b", ""]),
        ("x='/a b'", ["x=/a b", "/a b"]),
        ("a\nb", ["a", "", "b", ""]),
        ("a;b", ["a;b", ""]),
        ("it's /a", ["it's", "/a"]),
        ("x" * 4096, ["x" * 4096]),
        ("x" * 4097, []),
    ],
)
def test_the_paths_in_an_argument(argument: str, found: list[str]) -> None:
    assert paths._paths_in(argument) == found


def test_only_whole_paths_that_exist_and_are_not_too_long_are_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "x"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    assert list(paths._existing([str(folder), f"{folder}/../x/", "x", "", "/none"])) == [folder, folder]
    monkeypatch.setattr(paths, "_LONGEST", len(str(folder)) + 1)
    assert list(paths._existing([str(folder)])) == [folder]
    monkeypatch.setattr(paths, "_LONGEST", len(str(folder)))
    assert list(paths._existing([str(folder)])) == []


@pytest.mark.parametrize(
    ("line", "is_found"),
    [
        ("#!{0}/x/bin/tool", True),
        ("#! {0}/x/bin/tool -a", True),
        ("#!/usr/bin/env tool", True),
        ("#!/usr/bin/env -S", False),
        ("#!/usr/bin/env", False),
        ("#!", False),
        ("{0}/x/bin/tool", False),
    ],
)
def test_a_script_is_read_with_its_interpreter(tmp_path: Path, line: str, is_found: bool) -> None:
    made(tmp_path / "x/bin/tool", f"#!{tmp_path}/y/deep\n")
    made(tmp_path / "x/lib/module")
    made(tmp_path / "y/deep")
    script = made(tmp_path / "scripts/script", line.format(tmp_path) + "\n")
    path = f"{tmp_path}/x/bin:/usr/bin"
    found = {*paths._interpreter(str(script), path)} - {script}
    own = {place for place in found if place.is_relative_to(tmp_path)}
    expected = {tmp_path / name for name in ("x/bin", "x/bin/tool", "x/lib", "y/deep")}
    assert own == (expected if is_found else set())


@pytest.mark.parametrize(
    ("places", "chosen"),
    [
        (["/data/a", "/data/b"], ["/data/a", "/data/b"]),
        (["/data/a/b", "/data/a"], ["/data/a"]),
        (["/data/a", "/data/ab"], ["/data/a", "/data/ab"]),
        (["/usr", "/usr/lib/x", "/opt/x", "/proc/1", "/etc/x", "/run"], []),
        (["/usrx"], ["/usrx"]),
        (["/", "/tmp", "/home", "/root", "/var", "/mnt"], []),
        (["/home/other", "/tmp/x"], ["/home/other", "/tmp/x"]),
        (["/work", "/work/private", "/work/private/x"], ["/work/private/x"]),
        (["/work/privately"], ["/work/privately"]),
    ],
)
def test_places_without_those_that_are_private_shared_or_given(places: list[str], chosen: list[str]) -> None:
    found = paths._without_private(map(Path, places), [Path("/work/private")])
    assert list(map(str, found)) == chosen


@pytest.mark.parametrize(
    ("place", "is_system"),
    [("/usr", True), ("/usr/bin/env", True), ("/usrx", False), ("/etc", False), ("/opt/x", True)],
)
def test_what_is_part_of_the_system(place: str, is_system: bool) -> None:
    assert paths.is_system(Path(place)) is is_system


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


def test_credentials_and_concealed_files_are_left_out_of_installations(tmp_path: Path) -> None:
    cargo = tmp_path / "user/.cargo"
    made(cargo / "bin/cargo")
    made(cargo / "credentials.toml")
    made(cargo / "config.toml")
    made(cargo / "own")
    found = paths.readable([], {"PATH": str(cargo / "bin")}, policy(tmp_path, concealed=[cargo / "own"]))
    assert sorted(found) == [cargo / "bin", cargo / "config.toml"]


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


@pytest.mark.parametrize("version", EVERY)
@pytest.mark.parametrize("network", [False, True])
def test_the_rights_of_each_version_of_landlock(
    restricted: Callable[[int, list[str]], list[tuple[object, ...]]], version: int, network: bool
) -> None:
    calls = restricted(version, ["port 81", *(["network"] if network else [])])
    connect = 2 if version >= 4 and not network else 0
    members = [EVERY[version], *([connect] if version >= 4 else []), *([3] if version >= 6 else [])]
    attributes = b"".join(member.to_bytes(8, "little") for member in members)
    port = [(445, 77, 2, struct.pack("QQ", 2, 81), 0)] if connect else []
    assert calls == [(444, attributes, len(attributes), 0), *port, ("capabilities",), (446, 77, 0)]


def test_the_rules_of_files_and_folders(
    restricted: Callable[[int, list[str]], list[tuple[object, ...]]], tmp_path: Path
) -> None:
    file = made(tmp_path / "file")
    before = set(Path("/proc/self/fd").iterdir())
    calls = restricted(
        6,
        [
            f"read {tmp_path}",
            f"read {file}",
            f"write {tmp_path}",
            f"write {file}",
            "read /none",
            "filter 0aff",
        ],
    )
    assert set(Path("/proc/self/fd").iterdir()) == before
    rules = [struct.unpack("=Qi", call[3])[0] for call in calls if call[0] == 445]  # type: ignore[arg-type]
    # Execute, read, list; of a file neither listing nor making; all; of a file what files have.
    assert rules == [0b1101, 0b0101, 0xFFFF, 0b1100_0000_0000_0111]
    assert [call[1:3] for call in calls if call[0] == 445] == [(77, 1)] * 4
    assert calls[-1] == ("filter", b"\x0a\xff") and calls[-2] == (446, 77, 0)


@pytest.mark.parametrize("failing", [444, 445, 446])
def test_a_call_to_the_kernel_that_fails_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failing: int
) -> None:
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


def test_a_filter_has_a_length_in_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[object, ...]] = []

    def prctl(option: int, *arguments: object) -> int:
        calls.append((option, arguments[0], arguments[1]._obj.length, *arguments[2:]))  # type: ignore[attr-defined]
        return 0

    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: SimpleNamespace(prctl=prctl))
    launcher.filter_calls(b"x" * 24)
    assert calls == [(22, 2, 3, 0, 0)]


def test_all_capabilities_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[object, ...]] = []
    library = SimpleNamespace(
        prctl=lambda *call: calls.append(call),
        capset=lambda head, data: calls.append(("capset", list(head), list(data))),
    )
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: library)
    launcher.drop_capabilities()
    assert calls == [
        *((24, capability, 0, 0, 0) for capability in range(64)),
        (38, 1, 0, 0, 0),
        ("capset", [0x20080522, 0], [0] * 6),
    ]


@pytest.mark.parametrize(("answer", "version"), [(6, 6), (0, 0), (-1, 0)])
def test_the_version_of_landlock(monkeypatch: pytest.MonkeyPatch, answer: int, version: int) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: SimpleNamespace(syscall=lambda *_: answer))
    assert launcher.landlock_abi() == version
