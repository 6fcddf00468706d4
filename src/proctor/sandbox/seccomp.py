"""Filter of system calls for confined programs: what no build or test needs, and what would undo a sandbox.

A program for the kernel's BPF machine, made for this machine's architecture. Denied calls fail with EPERM;
`clone3` is reported as absent, so that libraries use `clone`, whose flags can be checked.
"""

import os
import struct
from functools import cache

AUDIT_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_COLUMNS = tuple(AUDIT_ARCHITECTURES)
DENIED: dict[str, tuple[int | None, int | None]] = {
    # The kernel's own modules, programs and keys.
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "userfaultfd": (323, 282),
    "syslog": (103, 116),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "lookup_dcookie": (212, 18),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    # File systems and namespaces.
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_by_handle_at": (304, 265),
    "unshare": (272, 97),
    "setns": (308, 268),
    # Opens sockets and files without a system call that could be checked.
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
}
"""Numbers of the calls by architecture; None: it has no such call."""
TRACING = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
}
"""Calls that reach into other processes. Harmless in a process namespace, where debuggers and leak checkers
need them."""
CLONE, CLONE3, SOCKET = (56, 220), (435, 435), (41, 198)
NEW_NAMESPACES = 0x7E020000
"""Flags of `clone` that make namespaces."""
AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
"""Other kinds of sockets are not part of a network namespace, such as those to the host of a virtual machine,
or are attacked more than used."""
SOCK_STREAM, TYPE_MASK = 1, 0xF

_LOAD, _EQUAL, _AT_LEAST, _SET, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND = 0, 4, 16, 24
"""Offsets in `seccomp_data`; of an argument, its lower half."""
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_EPERM, _ENOSYS, _EAFNOSUPPORT = _ERROR | 1, _ERROR | 38, _ERROR | 97
_X32 = 0x40000000


@cache
def filter_program(*, traces: bool, datagrams: bool, machine: str = os.uname().machine) -> bytes:
    """The filter as the kernel reads it; empty: there is none for the architecture.

    `traces`: programs may trace their own processes. `datagrams`: they may open IP sockets other than
    TCP.
    """
    if machine not in AUDIT_ARCHITECTURES:
        return b""
    column = _COLUMNS.index(machine)
    calls = {**DENIED, **({} if traces else TRACING)}
    denied = [number for numbers in calls.values() if (number := numbers[column]) is not None]
    program = _FilterProgram()
    program.add(_LOAD, _ARCHITECTURE)
    program.unless_equal(AUDIT_ARCHITECTURES[machine], _ENOSYS)
    program.add(_LOAD, _NUMBER)
    if machine == "x86_64":
        program.add(_AT_LEAST, _X32, 0, 1)
        program.add(_RETURN, _ENOSYS)
    for number in denied:
        program.add(_EQUAL, number, 0, 1)
        program.add(_RETURN, _EPERM)
    program.add(_EQUAL, CLONE3[column], 0, 1)
    program.add(_RETURN, _ENOSYS)
    program.add(_EQUAL, CLONE[column], 0, 4)
    program.add(_LOAD, _FIRST)
    program.add(_SET, NEW_NAMESPACES, 0, 1)
    program.add(_RETURN, _EPERM)
    program.add(_RETURN, _ALLOW)
    program.unless_equal(SOCKET[column], _ALLOW)
    program.add(_LOAD, _FIRST)
    for family in (AF_UNIX, AF_NETLINK):
        program.add(_EQUAL, family, 0, 1)
        program.add(_RETURN, _ALLOW)
    program.add(_EQUAL, AF_INET, 2, 0)
    program.add(_EQUAL, AF_INET6, 1, 0)
    program.add(_RETURN, _EAFNOSUPPORT)
    if not datagrams:
        program.add(_LOAD, _SECOND)
        program.add(_AND, TYPE_MASK)
        program.unless_equal(SOCK_STREAM, _EPERM)
    program.add(_RETURN, _ALLOW)
    return bytes(program.code)


class _FilterProgram:
    """Instructions of a filter; jumps count the instructions to skip."""

    def __init__(self) -> None:
        self.code = bytearray()

    def add(self, operation: int, value: int, if_true: int = 0, if_false: int = 0) -> None:
        """Append an instruction; jumps are counted from the next one."""
        self.code += struct.pack("=HBBI", operation, if_true, if_false, value)

    def unless_equal(self, value: int, result: int) -> None:
        """Return the result unless the loaded value is this."""
        self.add(_EQUAL, value, 1, 0)
        self.add(_RETURN, result)
