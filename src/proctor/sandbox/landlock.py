"""Confinement by Landlock, the kernel's own: needs no program and no privilege, where bubblewrap is absent.

Writes are possible only in the session's folders, reads only in what a program needs, TCP connections only to
the gateway's port and the session's own. Signals and abstract sockets reach no process outside (Linux 6.12).
A filter of system calls denies UDP and other ways to connect, tracing, and shared memory. Weaker than
bubblewrap: process ids and command lines of others are visible, Unix sockets in folders can be reached, files
can be seen and their permissions changed, /dev/shm is shared, no program has a terminal, and a port is
allowed on every host.
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from proctor.processes import Confinement, Launch
from proctor.sandbox import Policy
from proctor.sandbox.launcher import landlock_abi
from proctor.sandbox.paths import (
    SYSTEM,
    SYSTEM_FILES,
    around,
    interpreter,
    listed,
    readable,
    unreadable_system,
)
from proctor.sandbox.seccomp import filter_program

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/shm")
"""No terminals: Landlock cannot tell those of the user from those that a program makes."""
RANDOM = ("/dev/random", "/dev/urandom")
OWN_PORTS = ("PORT", "PROCTOR_PORT")
"""Variables with ports that belong to the session."""


def problem() -> str:
    """Why Landlock does not work on this machine; empty: it works."""
    return (
        "" if sys.platform == "linux" and _abi() > 0 else "the kernel has no Landlock, or it is switched off"
    )


@cache
def _abi() -> int:
    return landlock_abi()


def confine(policy: Policy) -> Confinement:
    """The confinement of a program under a policy."""

    def wrap(arguments: Sequence[str], launch: Launch, descriptors: Mapping[str, int]) -> list[str]:
        launch.find_program()
        launcher = str(Path(__file__).with_name("launcher.py"))
        inherited = (str(descriptors[name]) for name in ("report", "policy"))
        return [interpreter(), "-I", "-S", launcher, "-1", "", *inherited, *arguments]

    def rules(launch: Launch) -> bytes:
        return os.fsencode("\n".join(_rules(policy, launch.arguments, launch)))

    limits = dict(policy.limits)
    # The kernel would count all processes of the user, and none of root.
    most_processes = limits.pop("NPROC", None)
    return Confinement(
        wrap=wrap,
        reports=True,
        limits=limits,
        most_processes=most_processes,
        files={"policy": rules},
        variables=policy.variables,
    )


def _rules(policy: Policy, command: Sequence[str], launch: Launch) -> Iterator[str]:
    """The rules as the launcher reads them."""
    places = [
        *readable(command[:1], launch.environment, policy),
        *(Path(path) for path in (*SYSTEM_FILES, "/proc", *RANDOM)),
        *_system(),
        *(part for place in policy.read for part in around(place, (*policy.hidden, policy.user_home))),
        *map(Path, policy.cache),
        Path(os.path.realpath("/etc/resolv.conf")),
    ]
    yield from (f"read {place}" for place in places if "\n" not in str(place))
    yield from (f"list {place}" for place in listed(policy) if "\n" not in str(place))
    yield from (f"write {place}" for place in (*DEVICES, *policy.write))
    if program := filter_program(namespaces=False, tcp_only=policy.network != "full"):
        yield f"filter {program.hex()}"
    if policy.network == "full":
        yield "network"
        return
    ports = {*map(str, policy.serve), *(launch.environment.get(name, "") for name in OWN_PORTS)}
    yield from (f"port {port}" for port in sorted(ports) if port.isdigit())


@cache
def _system() -> tuple[Path, ...]:
    """What may be read of the system: all, or for root what everybody may read."""
    files, folders = unreadable_system()
    closed = (*files, *folders)
    roots = (Path(root) for root in (*SYSTEM, "/etc"))
    return tuple(
        part for root in roots for part in (around(root, closed) if not root.is_symlink() else [root])
    )
