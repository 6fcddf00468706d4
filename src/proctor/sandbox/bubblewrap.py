"""Confinement by bubblewrap: own mount, process, IPC and network namespaces. Works for root and for users.

Writable are the session's folders; visible are the system and the program's installation; everything else is
absent. Paths are the same inside and outside. The program has no network but its own loopback interface, on
which Proctor serves the gateway: a launcher inside opens the port and sends the socket out.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from proctor.processes import Confinement, Launch
from proctor.sandbox import INSTALL, Policy, is_root
from proctor.sandbox.paths import (
    SYSTEM,
    SYSTEM_FILES,
    around,
    interpreter,
    is_system,
    python_installation,
    readable,
    unreadable_system,
)
from proctor.sandbox.seccomp import filter_program

TEMPORARY_BYTES = 1 << 30
"""Size of /tmp, which is in memory; TMPDIR is on disk."""
TRIAL_SECONDS = 20
COPY = """
[ "$1" = "$2" ] || [ -e "$2" ] || { mkdir -p "${2%/*}" && cp -a --reflink=auto "$1" "$2"; }
shift 2
exec "$@"
"""
"""Copies a cache unless the copy exists. Some file systems share the blocks until one of both changes."""


@cache
def program() -> str:
    """Path of bubblewrap; empty: it is not installed."""
    return shutil.which("bwrap") or ""


def problem() -> str:
    """Why bubblewrap does not work on this machine; empty: it works."""
    if not program():
        return f"`bwrap` is not on the PATH; install it: {INSTALL}"
    try:
        exit_code, stderr = _try_out()
        if exit_code < 0:
            # Killed by somebody else, which says nothing about it.
            exit_code, stderr = _try_out()
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"`bwrap` cannot be run: {error}"
    return "" if exit_code == 0 else stderr.strip()[:300] or f"exit code {exit_code}"


def _try_out() -> tuple[int, str]:
    """Run a program in a sandbox; exit code and standard error."""
    trial = [program(), "--unshare-pid", "--unshare-ipc", "--unshare-net", "--ro-bind", "/", "/"]
    with subprocess.Popen(
        [*trial, "--proc", "/proc", "--dev", "/dev", "/bin/true"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            # Not until the end of its output: see below.
            exit_code = process.wait(TRIAL_SECONDS)
        finally:
            # The first process of a sandbox waits for ever for a `bwrap` that was killed, also with
            # `--die-with-parent`, which it sets too late.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        _, stderr = process.communicate()
    return exit_code, stderr


def confine(policy: Policy) -> Confinement:
    """The confinement of a program under a policy."""

    def wrap(arguments: Sequence[str], launch: Launch, descriptors: Mapping[str, int]) -> list[str]:
        # A missing program would be reported by bubblewrap, as an exit code.
        launch.find_program()
        command = _copying(policy, list(arguments))
        channel = descriptors.get("channel")
        if channel is not None:
            ports = ",".join(map(str, policy.serve))
            launcher = str(Path(__file__).with_name("launcher.py"))
            command = [interpreter(), "-I", "-S", launcher, str(channel), ports, "-1", "-1", *command]
        elif command[0] != "/bin/sh":
            # A program that cannot be executed is a failure of its own, not of bubblewrap: `env` exits.
            command = ["/usr/bin/env", *command]
        named = {"filter": "--seccomp", "report": "--json-status-fd"}
        inherited = [
            part
            for name, option in named.items()
            if name in descriptors
            for part in (option, str(descriptors[name]))
        ]
        options = [*inherited, *_arguments(policy, arguments, launch, channel is not None)]
        return [program(), *options, "--", *command]

    limits = dict(policy.limits)
    # The kernel does not count the processes of root.
    most_processes = limits.pop("NPROC", None) if is_root() else None
    return Confinement(
        wrap=wrap,
        stays=True,
        limits=limits,
        most_processes=most_processes,
        reports=True,
        files={"filter": lambda _: rules}
        if (rules := filter_program(namespaces=True, tcp_only=False))
        else {},
        ports=policy.serve,
        variables=policy.variables,
    )


def _arguments(policy: Policy, command: Sequence[str], launch: Launch, has_launcher: bool) -> Iterator[str]:
    yield from ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
    # Without this, root could mount the system writable. Others have no capabilities inside anyway.
    yield from ("--cap-drop", "ALL")
    if policy.network != "full":
        yield "--unshare-net"
    yield from system_arguments()
    files, folders = unreadable_system()
    # What is gone meanwhile cannot be covered.
    for file in filter(os.path.lexists, files):
        yield from ("--ro-bind", "/dev/null", str(file))
    for folder in filter(os.path.lexists, folders):
        yield from ("--tmpfs", str(folder))
    private = (*policy.hidden, policy.user_home)
    for path in filter(is_system, private):
        if path.is_dir():
            yield from ("--tmpfs", str(path))
        elif path.exists():
            yield from ("--ro-bind", "/dev/null", str(path))
    places = readable(command[:1], launch.environment, policy)
    places += [part for place in policy.read for part in around(place, private)]
    if has_launcher:
        places += python_installation()
    yield from _shown(places)
    for folder in policy.write:
        yield from ("--bind", str(folder), str(folder))
    for target, folder in policy.mounts.items():
        yield from ("--bind", str(folder), target)
    yield from cache_arguments(policy)
    yield from ("--dir", str(launch.folder), "--remount-ro", "/", "--chdir", str(launch.folder))


def _shown(places: Iterable[Path]) -> Iterator[str]:
    """What can be read. A link stays one if what it leads to is visible: programs find their parts from
    there."""
    ordered = sorted(dict.fromkeys(places), key=lambda path: len(path.parts))
    visible = set(ordered)
    for path in ordered:
        if path.is_symlink() and visible.isdisjoint(path.parents):
            real = Path(os.path.realpath(path))
            if is_system(real) or not visible.isdisjoint((real, *real.parents)):
                yield from ("--symlink", str(real), str(path))
                continue
        yield from ("--ro-bind-try", str(path), str(path))


@cache
def system_arguments() -> tuple[str, ...]:
    """The parts of the file system that every program sees."""
    arguments: list[str] = []
    for root in map(Path, SYSTEM):
        if root.is_symlink():
            arguments += ["--symlink", str(root.readlink()), str(root)]
        elif root.is_dir():
            arguments += ["--ro-bind", str(root), str(root)]
    arguments += ["--ro-bind", "/etc", "/etc"]
    arguments += ["--proc", "/proc", "--dev", "/dev"]
    # Settings of the kernel belong to root, even without capabilities; one names a program to run. The memory
    # of the sandbox's first process, which reports how the program ended, belongs to everybody.
    arguments += ["--remount-ro", "/proc"]
    for path in SYSTEM_FILES:
        arguments += ["--ro-bind-try", path, path]
    size = str(TEMPORARY_BYTES)
    for path in ("/tmp", "/var/tmp"):
        arguments += ["--perms", "1777", "--size", size, "--tmpfs", path]
    arguments += ["--dir", "/run", "--symlink", "../run", "/var/run"]
    # The name servers, where a service of the system writes them.
    resolver = os.path.realpath("/etc/resolv.conf")
    if resolver.startswith("/run/"):
        arguments += ["--ro-bind-try", resolver, resolver]
    return tuple(arguments)


def cache_arguments(policy: Policy) -> Iterator[str]:
    """Caches of the user, at the same place below the program's HOME, or at their own place to be copied."""
    for shared in _caches(policy, "read"):
        _make_mount_point(policy.home, policy.inside(shared))
        yield from ("--ro-bind", str(shared), str(policy.inside(shared)))
    for copied in _caches(policy, "copy"):
        yield from ("--ro-bind", str(copied), str(copied))


def _make_mount_point(home: Path, target: Path) -> None:
    """Make a folder below HOME in place of anything else.

    bubblewrap would follow a link that a program of the session left, also to where it has the machine's
    files while it starts (`/oldroot`), and make the folder there.
    """
    if not target.is_relative_to(home):
        return
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    folder = os.open(home, flags)
    try:
        for part in target.relative_to(home).parts:
            try:
                inner = os.open(part, flags, dir_fd=folder)
            except OSError:
                with suppress(FileNotFoundError):
                    os.unlink(part, dir_fd=folder)
                os.mkdir(part, dir_fd=folder)
                inner = os.open(part, flags, dir_fd=folder)
            os.close(folder)
            folder = inner
    finally:
        os.close(folder)


def _caches(policy: Policy, mode: str) -> list[Path]:
    return [Path(folder) for folder, own in policy.cache.items() if own == mode and Path(folder).is_dir()]


def _copying(policy: Policy, command: list[str]) -> list[str]:
    """The command, after copies of the caches that it may change; made by the first program of a session."""
    for copied in _caches(policy, "copy"):
        command = ["/bin/sh", "-c", COPY, "sh", str(copied), str(policy.inside(copied)), *command]
    return command
