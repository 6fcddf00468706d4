"""Program that prepares its own process and becomes a confined program.

`python -I -S launcher.py CHANNEL PORTS REPORT POLICY COMMAND…`. PORTS (joined by commas) are opened on
loopback; the listening sockets are sent over the descriptor CHANNEL, and a byte before the command is
executed. POLICY is a descriptor with rules for
Landlock, one per line: `read PATH`, `list PATH` (names in a folder), `write PATH`, `port NUMBER` (only to
these are TCP connections possible), `network` (no restriction), or `filter HEX` (system calls, as the kernel
reads it). A byte is written to the descriptor REPORT before the command is executed. -1 is no descriptor.

Imports only the standard library, and little of it: one is started for many programs.
"""

import _signal  # type: ignore[import-not-found]
import _socket
import os
import sys


def main(channel: int, ports: list[int], report: int, policy: int, command: list[str]) -> None:
    """Prepare this process, then execute the command."""
    # As it was given: Python may have added a variable for the locale.
    with open("/proc/self/environ", "rb") as file:  # noqa: PTH123
        pairs = (pair.partition(b"=") for pair in file.read().split(b"\0") if pair)
        environment = {name: value for name, _, value in pairs}
    link = _socket.socket(fileno=channel) if channel >= 0 else None
    if link:
        send_listeners(link, ports)
    if policy >= 0:
        with os.fdopen(policy, "rb") as rules:
            restrict(os.fsdecode(rules.read()).split("\n"))
    for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
        # Python ignores these two; the program must not inherit that.
        _signal.signal(number, _signal.SIG_DFL)
    if link:
        link.send(b"r")
        link.close()
    if report >= 0:
        os.write(report, b"r")
        os.close(report)
    path = os.fsdecode(environment.get(b"PATH", b""))
    for program in candidates(command[0], path):
        try:
            os.execve(program, command, environment)
        except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
            problem: OSError = error
    os.write(2, f"{command[0]}: {problem.strerror}\n".encode())
    os._exit(127)


def send_listeners(link: _socket.socket, ports: list[int]) -> None:
    """Open the ports and send their sockets to the other end of the channel."""
    listeners = []
    for port in ports:
        listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        listener.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(4096)
        listeners.append(listener)
    numbers = b"".join(listener.fileno().to_bytes(4, sys.byteorder) for listener in listeners)
    link.sendmsg([b"l"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, numbers)])


CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
"""Numbers of Landlock's system calls, the same on all architectures."""
PATH_RULES = {"read": 0b1101, "list": 0b1000, "write": 0xFFFF}
"""Rights by rule: execute, read a file and list a folder; list a folder; all."""
FILE_RIGHTS = 0b1100_0000_0000_0111
"""Rights that a file may have; the others are for folders."""
RIGHTS = (0, 0x1FFF, 0x3FFF, 0x7FFF, 0x7FFF, 0xFFFF)
"""All rights on files, by version of Landlock."""
CONNECT = 2
PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP, PR_SET_SECCOMP = 38, 24, 22
CAPABILITY_VERSION = 0x20080522


def landlock_abi() -> int:
    """The version of Landlock; 0: there is none."""
    import ctypes

    return max(0, int(ctypes.CDLL(None).syscall(CREATE_RULESET, None, 0, 1)))


def restrict(rules: list[str]) -> None:
    """Restrict this process, and all it starts, to what the rules allow. Raises `OSError`."""
    # Takes longer to load than all the rest; only Landlock needs them.
    import ctypes
    import struct

    call = ctypes.CDLL(None, use_errno=True).syscall
    version = landlock_abi()
    every = RIGHTS[min(version, len(RIGHTS) - 1)]
    network = CONNECT if version >= 4 and "network" not in rules else 0
    # Signals and abstract sockets.
    scopes = 3 if version >= 6 else 0
    members = (every, network, scopes)[: 1 if version < 4 else 2 if version < 6 else 3]
    attributes = struct.pack(f"{len(members)}Q", *members)
    ruleset = checked(call(CREATE_RULESET, attributes, len(attributes), 0), ctypes.get_errno())
    for rule in rules:
        kind, _, value = rule.partition(" ")
        if kind == "port" and network:
            checked(call(ADD_RULE, ruleset, 2, struct.pack("QQ", CONNECT, int(value)), 0), ctypes.get_errno())
        elif kind in PATH_RULES:
            try:
                place = os.open(value, os.O_PATH)
            except OSError:
                continue
            rights = PATH_RULES[kind] & every
            if not os.path.isdir(value):  # noqa: PTH112
                rights &= FILE_RIGHTS & every
            checked(call(ADD_RULE, ruleset, 1, struct.pack("=Qi", rights, place), 0), ctypes.get_errno())
            os.close(place)
    drop_capabilities()
    checked(call(RESTRICT_SELF, ruleset, 0), ctypes.get_errno())
    os.close(ruleset)
    for rule in rules:
        if rule.startswith("filter "):
            filter_calls(bytes.fromhex(rule[7:]))


def filter_calls(program: bytes) -> None:
    """Restrict system calls of this process, and of all it starts. Raises `OSError`."""
    import ctypes

    class Filter(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("program", ctypes.c_char_p))

    library = ctypes.CDLL(None, use_errno=True)
    rules = Filter(len(program) // 8, program)
    checked(library.prctl(PR_SET_SECCOMP, 2, ctypes.byref(rules), 0, 0), ctypes.get_errno())


def drop_capabilities() -> None:
    """Give up all capabilities for good: root keeps its files, and nothing else."""
    import ctypes

    library = ctypes.CDLL(None)
    for capability in range(64):
        library.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    library.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    library.capset((ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)())


def checked(result: int, error: int) -> int:
    """The result of a system call; raises `OSError` if it failed."""
    if result < 0:
        raise OSError(error, os.strerror(error))
    return result


def candidates(program: str, path: str) -> list[str]:
    """Where a program may be."""
    if "/" in program:
        return [program]
    return [f"{folder or '.'}/{program}" for folder in (path or os.defpath).split(":")]


if __name__ == "__main__":
    opened = [int(port) for port in sys.argv[2].split(",") if port]
    main(int(sys.argv[1]), opened, int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:])
