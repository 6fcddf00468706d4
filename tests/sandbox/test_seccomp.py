"""The filter of system calls decides as it says, on each architecture."""

import struct
from collections.abc import Callable

import pytest

from proctor.sandbox.seccomp import (
    AUDIT_ARCHITECTURES,
    CLONE,
    CLONE3,
    DENIED,
    FIRST_PROCESS,
    IOCTL,
    OTHERS,
    SENDING,
    SETSOCKOPT,
    SHARED,
    SOCKET,
    SOCKETPAIR,
    filter_program,
)

ALLOWED, EPERM, ENOSYS = 0x7FFF0000, 0x50001, 0x50026
EPROTONOSUPPORT, EAFNOSUPPORT = 0x5005D, 0x50061
I386, X32_WRITE = 0x40000003, 0x40000001
READ, EXECVE = (0, 63), (59, 221)
NEW_USER, THREAD = 0x10000000, 0x3D0F00


@pytest.fixture(params=list(AUDIT_ARCHITECTURES))
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def decide(program: bytes, number: int, *arguments: int, architecture: int) -> int:
    """Run the filter as the kernel does."""
    data = struct.pack("=iIQ6Q", number, architecture, 0, *arguments, *[0] * (6 - len(arguments)))
    lines = list(struct.iter_unpack("=HBBI", program))
    loaded, position = 0, 0
    while True:
        operation, if_true, if_false, value = lines[position]
        position += 1
        if operation == 0x20:
            (loaded,) = struct.unpack_from("=I", data, value)
        elif operation == 0x54:
            loaded &= value
        elif operation == 0x06:
            return value
        else:
            holds = {0x15: loaded == value, 0x35: loaded >= value, 0x45: bool(loaded & value)}[operation]
            position += if_true if holds else if_false


def calls(machine: str, *, namespaces: bool = False, tcp_only: bool = True) -> Callable[..., int]:
    """What the filter decides for a call with these arguments."""
    program = filter_program(namespaces=namespaces, tcp_only=tcp_only, machine=machine)
    column, architecture = list(AUDIT_ARCHITECTURES).index(machine), AUDIT_ARCHITECTURES[machine]

    def call(numbers: tuple[int | None, int | None], *arguments: int) -> int:
        number = numbers[column]
        assert number is not None
        return decide(program, number, *arguments, architecture=architecture)

    return call


@pytest.mark.parametrize("namespaces", [False, True])
def test_what_no_program_needs_is_denied_and_the_rest_is_not(machine: str, namespaces: bool) -> None:
    call = calls(machine, namespaces=namespaces)
    column = list(AUDIT_ARCHITECTURES).index(machine)

    assert {call(numbers) for numbers in DENIED.values() if numbers[column] is not None} == {EPERM}
    assert {call(numbers) for numbers in SHARED.values()} == {ALLOWED if namespaces else EPERM}
    assert call(READ) == call(EXECVE) == ALLOWED
    # A thread is no namespace; libraries fall back from the call whose flags cannot be seen.
    assert (call(CLONE, THREAD), call(CLONE, NEW_USER), call(CLONE3)) == (ALLOWED, EPERM, ENOSYS)


def test_nothing_is_typed_for_the_user(machine: str) -> None:
    tcgets, tiocsti, tioclinux, upper_half = 0x5401, 0x5412, 0x541C, 1 << 32
    call = calls(machine)

    assert call(IOCTL, 0, tcgets) == ALLOWED
    assert {call(IOCTL, 0, request) for request in (tiocsti, tioclinux, tiocsti | upper_half)} == {EPERM}


def test_other_processes_keep_their_limits_and_priorities(machine: str) -> None:
    call, own = calls(machine), calls(machine, namespaces=True)

    for numbers, argument in OTHERS.values():
        before = [0] * argument
        assert (call(numbers, *before, 0), call(numbers, *before, 77)) == (ALLOWED, EPERM)
        assert own(numbers, *before, 77) == ALLOWED


def test_the_first_process_of_a_namespace_cannot_be_traced(machine: str) -> None:
    call = calls(machine, namespaces=True)

    for numbers, argument in FIRST_PROCESS.values():
        before = [0] * argument
        assert (call(numbers, *before, 1), call(numbers, *before, 2)) == (EPERM, ALLOWED)


def test_calls_in_the_form_of_another_architecture_do_not_exist(machine: str) -> None:
    program = filter_program(namespaces=True, tcp_only=False, machine=machine)

    assert decide(program, 3, architecture=I386) == ENOSYS
    if machine == "x86_64":
        assert decide(program, X32_WRITE, architecture=AUDIT_ARCHITECTURES[machine]) == ENOSYS


@pytest.mark.parametrize("tcp_only", [False, True])
def test_sockets(machine: str, tcp_only: bool) -> None:
    call = calls(machine, tcp_only=tcp_only)
    close_on_exec, mptcp, sctp, tcp, inet = 0o2000000, 262, 132, 6, (2, 10)

    assert {call(SOCKET, family, 1 | close_on_exec) for family in (1, 2, 10, 16)} == {ALLOWED}
    assert {call(SOCKET, family, 1, tcp) for family in inet} == {ALLOWED}
    assert {call(SOCKET, family, 1) for family in (15, 17, 30, 31, 38, 40, 43, 44)} == {EAFNOSUPPORT}
    others = {call(SOCKET, family, kind) for family in inet for kind in (2, 2 | close_on_exec, 3)}
    assert others == {EPERM if tcp_only else ALLOWED}
    streams = {call(SOCKET, family, 1, protocol) for family in inet for protocol in (mptcp, sctp)}
    assert streams == {EPROTONOSUPPORT if tcp_only else ALLOWED}
    # Libraries list addresses by the first protocol of netlink; the others are about the kernel.
    assert call(SOCKET, 1, 2) == call(SOCKET, 16, 3, 0) == ALLOWED
    assert {call(SOCKET, 16, 3, protocol) for protocol in (4, 9, 12, 15, 16, 21)} == {EPROTONOSUPPORT}
    assert (call(SOCKETPAIR, 1, 1), call(SOCKETPAIR, 30, 1)) == (ALLOWED, EAFNOSUPPORT)


@pytest.mark.parametrize("tcp_only", [False, True])
def test_no_connection_is_made_but_by_connect(machine: str, tcp_only: bool) -> None:
    call, denied = calls(machine, tcp_only=tcp_only), EPERM if tcp_only else ALLOWED
    fastopen, no_signal = 0x20000000, 0x4000

    for numbers, argument in SENDING.values():
        before = [0] * argument
        assert call(numbers, *before, no_signal) == ALLOWED
        assert call(numbers, *before, fastopen | no_signal) == denied
    assert (call(SETSOCKOPT, 3, 6, 31), call(SETSOCKOPT, 3, 6, 1)) == (denied, ALLOWED)
    assert call(SETSOCKOPT, 3, 1, 31) == ALLOWED


def test_an_architecture_without_a_filter_has_none() -> None:
    assert filter_program(namespaces=True, tcp_only=True, machine="riscv64") == b""
