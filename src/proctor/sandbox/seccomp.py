"""Filter of system calls for confined programs: what no build or test needs, and what would undo a sandbox.

A program for the kernel's BPF machine, made for this machine's architecture. Denied calls fail with EPERM;
`clone3` is reported as absent, so that libraries use `clone`, whose flags can be checked.
"""

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
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
    # Watches what other programs do with files.
    "fanotify_init": (300, 262),
    # Takes descriptors of other processes, such as the one on which a sandbox learns how its program ended.
    "pidfd_getfd": (438, 438),
}
"""Numbers of the calls by architecture; None: it has no such call."""
SHARED = {
    # Reach into other processes.
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    # Memory, queues and semaphores that all programs of a user share.
    "shmget": (29, 194),
    "shmctl": (31, 195),
    "shmat": (30, 196),
    "semget": (64, 190),
    "semctl": (66, 191),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "msgget": (68, 186),
    "msgctl": (71, 187),
    "msgrcv": (70, 188),
    "msgsnd": (69, 189),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
}
"""Calls that reach other processes, where a sandbox has no namespaces of its own. Harmless in namespaces,
where debuggers, leak checkers and databases need them."""
OTHERS: dict[str, tuple[tuple[int, int], int]] = {
    "prlimit64": ((302, 261), 0),
    "sched_setaffinity": ((203, 122), 0),
    "sched_setparam": ((142, 118), 0),
    "sched_setscheduler": ((144, 119), 0),
    "sched_setattr": ((314, 274), 0),
    "setpriority": ((141, 140), 1),
    "ioprio_set": ((251, 30), 1),
}
"""Calls that change limits and priorities of the process in this argument. Without namespaces, only 0 is
allowed: the process itself."""
FIRST_PROCESS: dict[str, tuple[tuple[int, int], int]] = {
    "ptrace": ((101, 117), 1),
    "process_vm_writev": ((311, 271), 0),
}
"""Calls that could end the first process of a namespace, which reports how the program ended, by the argument
that must not be 1."""
CLONE, CLONE3, SOCKET, SOCKETPAIR = (56, 220), (435, 435), (41, 198), (53, 199)
IOCTL, SETSOCKOPT = (16, 29), (54, 208)
SENDING: dict[str, tuple[tuple[int, int], int]] = {
    "sendto": ((44, 206), 3),
    "sendmsg": ((46, 211), 2),
    "sendmmsg": ((307, 269), 3),
}
"""Calls that send, by the argument with their flags."""
FASTOPEN = 0x20000000
"""Flag of sending that connects first, which Landlock does not check."""
NEW_NAMESPACES = 0x7E020000
"""Flags of `clone` that make namespaces."""
TERMINAL_REQUESTS = (0x5412, 0x541C)
"""`TIOCSTI` and `TIOCLINUX`: type for the user, and read the screen."""
AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
"""Other kinds of sockets are not part of a network namespace, such as those to the host of a virtual machine,
or are attacked more than used."""
NETLINK_ROUTE = 0
"""The one protocol of netlink that libraries need, to list addresses."""
SOCK_STREAM, TYPE_MASK = 1, 0xF
TCP_PROTOCOLS = (0, 6)
"""Others that are streams, like MPTCP and SCTP, are connected without a check by Landlock."""
SOL_TCP, TCP_ULP = 6, 31
"""Option that turns a TCP socket into one of another protocol."""

_INSTRUCTION_BYTES = 8
_LOAD, _EQUAL, _AT_LEAST, _SET, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
"""Offsets in `seccomp_data`. Of an argument, the lower half is compared: the kernel ignores the other."""
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_EPERM, _ENOSYS, _EPROTONOSUPPORT, _EAFNOSUPPORT = _ERROR | 1, _ERROR | 38, _ERROR | 93, _ERROR | 97
_X32 = 0x40000000


@cache
def filter_program(*, namespaces: bool, tcp_only: bool, machine: str = os.uname().machine) -> bytes:
    """The filter as the kernel reads it; empty: there is none for the architecture.

    `namespaces`: programs have processes and IPC of their own. `tcp_only`: their IP sockets can only be those
    of TCP, which a rule for `connect` covers.
    """
    if machine not in AUDIT_ARCHITECTURES:
        return b""
    column = _COLUMNS.index(machine)
    calls = {**DENIED, **({} if namespaces else SHARED)}
    denied = [number for numbers in calls.values() if (number := numbers[column]) is not None]
    program = _FilterProgram()
    program.add(_LOAD, _ARCHITECTURE)
    program.unless_equal(AUDIT_ARCHITECTURES[machine], _ENOSYS)
    program.add(_LOAD, _NUMBER)
    if machine == "x86_64":
        program.add(_AT_LEAST, _X32, 0, 1)
        program.add(_RETURN, _ENOSYS)
    for number in denied:
        program.if_equal(number, _EPERM)
    program.if_equal(CLONE3[column], _ENOSYS)
    with program.call(CLONE[column]) as call:
        call.load(0)
        call.if_any(NEW_NAMESPACES, _EPERM)
    with program.call(IOCTL[column]) as call:
        call.load(1)
        for request in TERMINAL_REQUESTS:
            call.if_equal(request, _EPERM)
    with program.call(SOCKETPAIR[column]) as call:
        call.load(0)
        call.unless_equal(AF_UNIX, _EAFNOSUPPORT)
    if namespaces:
        for numbers, argument in FIRST_PROCESS.values():
            with program.call(numbers[column]) as call:
                call.load(argument)
                call.if_equal(1, _EPERM)
    else:
        for numbers, argument in OTHERS.values():
            with program.call(numbers[column]) as call:
                call.load(argument)
                call.unless_equal(0, _EPERM)
    if tcp_only:
        for numbers, argument in SENDING.values():
            with program.call(numbers[column]) as call:
                call.load(argument)
                call.if_any(FASTOPEN, _EPERM)
        with program.call(SETSOCKOPT[column]) as call:
            call.load(1)
            call.unless_equal(SOL_TCP, _ALLOW)
            call.load(2)
            call.if_equal(TCP_ULP, _EPERM)
    program.unless_equal(SOCKET[column], _ALLOW)
    program.load(0)
    program.if_equal(AF_UNIX, _ALLOW)
    program.add(_EQUAL, AF_NETLINK, 0, 4)
    program.load(2)
    program.unless_equal(NETLINK_ROUTE, _EPROTONOSUPPORT)
    program.add(_RETURN, _ALLOW)
    program.add(_EQUAL, AF_INET, 2, 0)
    program.add(_EQUAL, AF_INET6, 1, 0)
    program.add(_RETURN, _EAFNOSUPPORT)
    if tcp_only:
        program.load(1)
        program.add(_AND, TYPE_MASK)
        program.unless_equal(SOCK_STREAM, _EPERM)
        program.load(2)
        for protocol in TCP_PROTOCOLS:
            program.if_equal(protocol, _ALLOW)
        program.add(_RETURN, _EPROTONOSUPPORT)
    program.add(_RETURN, _ALLOW)
    return bytes(program.code)


class _FilterProgram:
    """Instructions of a filter; jumps count the instructions to skip."""

    def __init__(self) -> None:
        self.code = bytearray()

    def add(self, operation: int, value: int, if_true: int = 0, if_false: int = 0) -> None:
        """Append an instruction; jumps are counted from the next one."""
        self.code += struct.pack("=HBBI", operation, if_true, if_false, value)

    def load(self, argument: int) -> None:
        """Load an argument of the call."""
        self.add(_LOAD, _ARGUMENTS + 8 * argument)

    def if_equal(self, value: int, result: int) -> None:
        """Return the result if the loaded value is this."""
        self.add(_EQUAL, value, 0, 1)
        self.add(_RETURN, result)

    def unless_equal(self, value: int, result: int) -> None:
        """Return the result unless the loaded value is this."""
        self.add(_EQUAL, value, 1, 0)
        self.add(_RETURN, result)

    def if_any(self, flags: int, result: int) -> None:
        """Return the result if the loaded value has any of these flags."""
        self.add(_SET, flags, 0, 1)
        self.add(_RETURN, result)

    @contextmanager
    def call(self, number: int) -> "Iterator[_FilterProgram]":
        """Rules for one call; it is allowed unless they return. The number has to be loaded, and stays so."""
        rules = _FilterProgram()
        yield rules
        rules.add(_RETURN, _ALLOW)
        self.add(_EQUAL, number, 0, len(rules.code) // _INSTRUCTION_BYTES)
        self.code += rules.code
