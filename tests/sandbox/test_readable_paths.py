"""Which files a confined program can read, and the rules that its launcher makes of them."""

import ctypes
import os
import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from proctor.processes import Launch
from proctor.sandbox import Policy, bubblewrap, landlock, launcher, paths


def made(path: Path, text: str = "", mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def policy(folder: Path, **more: object) -> Policy:
    usual: dict[str, object] = {"write": [folder / "work"], "home": folder / "work"}
    return Policy(**{**usual, "user_home": folder / "user", **more})  # type: ignore[arg-type]


# --- What a program needs ---


def test_installations_on_the_path_can_be_read_and_folders_of_the_user_cannot(tmp_path: Path) -> None:
    user = tmp_path / "user"
    for name in ("tools/bin", "user/.local/bin", "user/bin", "plain", "user/.nvm/shims"):
        (tmp_path / name).mkdir(parents=True)
    path = ":".join(str(tmp_path / name) for name in ("tools/bin", "plain", "none")) + ":/usr/bin:relative"
    path += f":{user}/.local/bin:{user}/bin:{user}/.nvm/shims"
    found = paths.readable([], {"PATH": path}, policy(tmp_path))
    assert sorted(found) == sorted(
        [tmp_path / "tools", tmp_path / "plain", user / ".local/bin", user / "bin", user / ".nvm"]
    )


def test_programs_in_memory_can_be_read_and_devices_are_the_sandboxs_own(tmp_path: Path) -> None:
    places = [Path(each) for each in ("/dev/shm/tools", "/dev/shm", "/dev/pts", "/proc/self", "/etc/ssl")]
    assert paths._without_private(places, [tmp_path]) == [Path("/dev/shm/tools")]
    assert paths._without_private([Path("/dev/shm/tools")], [Path("/dev/shm/tools/mine")]) == []


def test_links_on_the_path_lead_to_their_installations(tmp_path: Path) -> None:
    made(tmp_path / "suite/bin/one")
    made(tmp_path / "other/two")
    (tmp_path / "links").mkdir()
    (tmp_path / "links/one").symlink_to(tmp_path / "suite/bin/one")
    (tmp_path / "links/two").symlink_to(tmp_path / "other/two")
    (tmp_path / "links/sh").symlink_to("/usr/bin/env")
    found = paths.readable([], {"PATH": str(tmp_path / "links")}, policy(tmp_path))
    assert sorted(found) == [tmp_path / "links", tmp_path / "other", tmp_path / "suite"]


def test_so_many_links_of_a_folder_are_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert paths._MOST_LINKS == 500
    monkeypatch.setattr(paths, "_MOST_LINKS", 2)
    links = tmp_path / "links"
    links.mkdir()
    for name in "abc":
        made(tmp_path / name / "tool")
        (links / name).symlink_to(tmp_path / name / "tool")
    found = paths._installation(links, ())
    assert len(list(found)) == 3


def test_variables_name_installations_and_no_keys(tmp_path: Path) -> None:
    for name in ("a", "b", "keys"):
        (tmp_path / name).mkdir()
    environment = {
        "PATH": "",
        "PYTHONPATH": f"{tmp_path}/a:{tmp_path}/none::{tmp_path}/b/",
        "GOOGLE_APPLICATION_CREDENTIALS": f"{tmp_path}/keys",
    }
    assert paths.readable([], environment, policy(tmp_path)) == [tmp_path / "a", tmp_path / "b"]


def test_the_files_that_a_plan_names_can_be_read_with_their_folders(tmp_path: Path) -> None:
    script = made(tmp_path / "scripts/run.py")
    target = made(tmp_path / "real/bin/tool")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked/tool").symlink_to(target)
    (tmp_path / "data/inner").mkdir(parents=True)
    command = f"python {script} --data={tmp_path}/data/inner 'x y' relative"
    named = list(paths._named([command, str(tmp_path / "linked/tool"), str(tmp_path / "none")]))
    assert named == [
        script,
        script.parent,
        script.parent,
        tmp_path / "data/inner",
        tmp_path / "linked/tool",
        tmp_path / "linked",
        tmp_path / "real",
    ]


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


def test_a_script_is_read_with_its_interpreter_and_that_of_the_interpreter(tmp_path: Path) -> None:
    first = made(tmp_path / "one/bin/first", "#!/usr/bin/env second\n")
    second = made(tmp_path / "two/second", f"#!{tmp_path}/three/bin/third -x\n")
    third = made(tmp_path / "three/bin/third", f"#!{tmp_path}/four/fourth\n")
    made(tmp_path / "four/fourth", "")
    path = f"{tmp_path}/one/bin:{tmp_path}/two"
    assert list(dict.fromkeys(paths._interpreter("first", path))) == [
        first,
        tmp_path / "one",
        second,
        tmp_path / "two",
        third,
        tmp_path / "three",
    ]
    assert list(paths._interpreter("absent", path)) == []


@pytest.mark.parametrize(
    ("line", "interpreter"),
    [
        ("#!{0}/x/tool", "x"),
        ("#! {0}/x/tool -a", "x"),
        ("#!/usr/bin/env tool", "x"),
        ("#!/usr/bin/env -S", ""),
        ("#!/usr/bin/env", ""),
        ("#!", ""),
        ("{0}/x/tool", ""),
    ],
)
def test_the_interpreter_in_a_first_line(tmp_path: Path, line: str, interpreter: str) -> None:
    made(tmp_path / "x/tool")
    made(tmp_path / "script", line.format(tmp_path) + "\n")
    path = f"{tmp_path}:{tmp_path}/x:/usr/bin"
    found = set(paths._interpreter("script", path)) - {tmp_path / "script", tmp_path}
    expected = {tmp_path / "x/tool", tmp_path / "x"} if interpreter else set()
    assert {each for each in found if each.is_relative_to(tmp_path)} == expected


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


# --- What the kinds of sandboxes make of it ---


def launch(folder: Path, **environment: str) -> Launch:
    return Launch(
        command=["sh"],
        folder=folder,
        environment={"PATH": "/bin", **environment},
        attempt="a1",
        typed=None,
        grace_seconds=1,
        together=True,
    )


@pytest.mark.parametrize("network", ["none", "gateway", "full"])
def test_the_rules_of_landlock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, network: str) -> None:
    monkeypatch.setattr(landlock, "readable", lambda *call: [Path("/need"), Path("/two\nlines")])
    monkeypatch.setattr(landlock, "_settings", lambda: (Path("/etc/open"),))
    filters: list[dict[str, bool]] = []

    def filter_program(**flags: bool) -> bytes:
        filters.append(flags)
        return b"\x01"

    monkeypatch.setattr(landlock, "filter_program", filter_program)
    shared = made(tmp_path / "shared")
    given = policy(tmp_path, network=network, read=[shared], serve={82: None, 9: None}, cache={"/c": "read"})
    started = launch(tmp_path, PORT="81", PROCTOR_PORT="x")
    rules = list(landlock._rules(given, ["sh", "x"], started))
    reads = [rule.removeprefix("read ") for rule in rules if rule.startswith("read ")]
    assert reads[0] == "/need" and "/two\nlines" not in reads
    assert {"/usr", "/sys/devices/system/cpu", "/proc", "/dev/random", "/etc/open", str(shared), "/c"} <= {
        *reads
    }
    writes = [rule for rule in rules if rule.startswith("write ")]
    assert writes == [*(f"write {device}" for device in landlock.DEVICES), f"write {tmp_path}/work"]
    end = ["network"] if network == "full" else ["port 81", "port 82", "port 9"]
    assert rules[-len(end) - 1 :] == ["filter 01", *end]
    assert filters == [{"traces": False, "datagrams": network == "full"}]


def test_landlock_counts_processes_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    limits = {"NPROC": 5, "CORE": 0}
    confinement = landlock.confine(policy(tmp_path, limits=limits, variables={"V": "1"}))
    assert (confinement.most_processes, confinement.limits) == (5, {"CORE": 0})
    assert confinement.variables == {"V": "1"} and not confinement.stays and limits["NPROC"] == 5
    line = confinement.wrap(["sh", "-c", "x"], launch(tmp_path), {})
    assert line[1:6] == ["-I", "-S", launcher.__file__, "-1", ""] and line[7:] == ["sh", "-c", "x"]
    with pytest.raises(FileNotFoundError):
        confinement.wrap(["x"], Launch(**{**fields_of(launch(tmp_path)), "command": ["absent"]}), {})


def fields_of(started: Launch) -> dict[str, object]:
    return {name: getattr(started, name) for name in started.__slots__}


@pytest.mark.parametrize(("abi", "works"), [(0, False), (1, True)])
def test_landlock_works_where_the_kernel_has_it(
    monkeypatch: pytest.MonkeyPatch, abi: int, works: bool
) -> None:
    monkeypatch.setattr(landlock, "_abi", lambda: abi)
    assert landlock.problem() == ("" if works else "the kernel has no Landlock, or it is switched off")


@pytest.mark.parametrize("is_root", [False, True])
def test_what_root_may_read_of_the_settings(monkeypatch: pytest.MonkeyPatch, is_root: bool) -> None:
    monkeypatch.setattr(landlock, "is_root", lambda: is_root)
    monkeypatch.setattr(landlock, "unreadable_settings", lambda: ((Path("/etc/passwd"),), (Path("/etc/x"),)))
    found = landlock._settings.__wrapped__()
    assert (Path("/etc") in found) is not is_root
    assert is_root is (Path("/etc/hostname") in found or Path("/etc/group") in found)
    assert Path("/etc/passwd") not in found


@pytest.mark.parametrize("is_root", [False, True])
@pytest.mark.parametrize("network", ["none", "full"])
def test_the_command_line_of_bubblewrap(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_root: bool, network: str
) -> None:
    monkeypatch.setattr(bubblewrap, "is_root", lambda: is_root)
    monkeypatch.setattr(bubblewrap, "program", lambda: "/bwrap")
    monkeypatch.setattr(bubblewrap, "system_arguments", lambda: ("--system",))
    monkeypatch.setattr(bubblewrap, "readable", lambda *call: [Path("/b/c"), Path("/a"), Path("/a")])
    for name in ("shared", "cache", "copied"):
        (tmp_path / name).mkdir()
    given = policy(
        tmp_path,
        network=network,
        read=[tmp_path / "shared"],
        hidden=[Path("/usr/share"), Path("/usr/bin/env"), Path("/usr/none")],
        limits={"NPROC": 5, "CORE": 0},
        mounts={"/at": tmp_path / "mounted"},
        cache={str(tmp_path / "cache"): "read", str(tmp_path / "copied"): "copy", "/no/cache": "read"},
        user_home=tmp_path,
        serve={81: None, 82: None},
        variables={"V": "1"},
    )
    confinement = bubblewrap.confine(given)
    plain = confinement.wrap(["sh", "x"], launch(tmp_path), {})
    unshared = "--unshare-pid --unshare-ipc --unshare-uts --unshare-cgroup-try --cap-drop ALL"
    begin = f"/bwrap {unshared}{' --unshare-net' if network == 'none' else ''} --system"
    hidden = "--tmpfs /usr/share --ro-bind /dev/null /usr/bin/env"
    shared = tmp_path / "shared"
    binds = f"--ro-bind-try /a /a --ro-bind-try /b/c /b/c --ro-bind-try {shared} {shared}"
    cache, copied, work = tmp_path / "cache", tmp_path / "copied", tmp_path / "work"
    end = (
        f"--bind {work} {work} --bind {tmp_path}/mounted /at --ro-bind {cache} {work}/cache "
        f"--ro-bind {copied} {copied} --dir {tmp_path} --remount-ro / --chdir {tmp_path}"
    )
    copying = ["/bin/sh", "-c", bubblewrap.COPY, "sh", str(copied), f"{work}/copied"]
    assert plain == [*f"{begin} {hidden} {binds} {end} --".split(), *copying, "sh", "x"]
    assert confinement.stays and confinement.ports == given.serve and confinement.variables == {"V": "1"}
    assert confinement.most_processes == (5 if is_root else None)
    assert confinement.limits == ({"CORE": 0} if is_root else {"NPROC": 5, "CORE": 0})

    served = confinement.wrap(["sh", "x"], launch(tmp_path), {"channel": 7, "filter": 8})
    assert served[:3] == ["/bwrap", "--seccomp", "8"]
    command = served[served.index("--") + 1 :]
    assert command == [
        paths.interpreter(),
        "-I",
        "-S",
        launcher.__file__,
        "7",
        "81,82",
        "-",
        *copying,
        "sh",
        "x",
    ]
    for place in paths.python_installation():
        assert str(place) in served and str(place) not in plain


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], list[str]]:
    """The parts of the file system that all programs see, for root or for others."""

    def arguments(is_root: bool) -> list[str]:
        monkeypatch.setattr(bubblewrap, "is_root", lambda: is_root)
        monkeypatch.setattr(bubblewrap, "unreadable_settings", lambda: ((Path("/etc/f"),), (Path("/etc/d"),)))
        return list(bubblewrap.system_arguments.__wrapped__())

    return arguments


def test_the_system_as_programs_see_it(system: Callable[[bool], list[str]]) -> None:
    own, root = (" ".join(system(is_root)) for is_root in (False, True))
    hidden = "--ro-bind /dev/null /etc/f --tmpfs /etc/d"
    assert "--ro-bind /etc /etc --proc /proc --dev /dev --ro-bind-try /sys" in own
    assert (
        f"--ro-bind /etc /etc {hidden} --proc /proc --dev /dev --remount-ro /proc --ro-bind-try /sys" in root
    )
    size = "--perms 1777 --size 1073741824 --tmpfs"
    assert f"{size} /tmp {size} /var/tmp --dir /run --symlink ../run /var/run" in own
    assert "--ro-bind /usr /usr" in own
    for name in ("/bin", "/lib"):
        expected = (
            f"--symlink {Path(name).readlink()} {name}" if Path(name).is_symlink() else f"--ro-bind {name}"
        )
        assert expected in own
