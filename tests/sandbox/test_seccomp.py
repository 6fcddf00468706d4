"""The filter of system calls decides as it says, on each architecture."""

import struct

import pytest

from proctor.sandbox.seccomp import (
    AUDIT_ARCHITECTURES,
    CLONE,
    CLONE3,
    DENIED,
    SOCKET,
    TRACING,
    filter_program,
)

ALLOWED, EPERM, ENOSYS, EAFNOSUPPORT = 0x7FFF0000, 0x50001, 0x50026, 0x50061
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


@pytest.mark.parametrize("traces", [False, True])
def test_what_no_program_needs_is_denied_and_the_rest_is_not(machine: str, traces: bool) -> None:
    program = filter_program(traces=traces, datagrams=True, machine=machine)
    column, architecture = list(AUDIT_ARCHITECTURES).index(machine), AUDIT_ARCHITECTURES[machine]

    def call(numbers: tuple[int | None, int | None], *arguments: int) -> int:
        number = numbers[column]
        assert number is not None
        return decide(program, number, *arguments, architecture=architecture)

    assert {call(numbers) for numbers in DENIED.values() if numbers[column] is not None} == {EPERM}
    assert {call(numbers) for numbers in TRACING.values()} == {ALLOWED if traces else EPERM}
    assert call(READ) == call(EXECVE) == ALLOWED
    # A thread is no namespace; libraries fall back from the call whose flags cannot be seen.
    assert (call(CLONE, THREAD), call(CLONE, NEW_USER), call(CLONE3)) == (ALLOWED, EPERM, ENOSYS)


def test_calls_in_the_form_of_another_architecture_do_not_exist(machine: str) -> None:
    program = filter_program(traces=True, datagrams=True, machine=machine)

    assert decide(program, 3, architecture=I386) == ENOSYS
    if machine == "x86_64":
        assert decide(program, X32_WRITE, architecture=AUDIT_ARCHITECTURES[machine]) == ENOSYS


@pytest.mark.parametrize("datagrams", [False, True])
def test_sockets(machine: str, datagrams: bool) -> None:
    program = filter_program(traces=True, datagrams=datagrams, machine=machine)
    number = SOCKET[list(AUDIT_ARCHITECTURES).index(machine)]
    close_on_exec = 0o2000000

    def socket(family: int, kind: int) -> int:
        return decide(program, number, family, kind, architecture=AUDIT_ARCHITECTURES[machine])

    assert {socket(family, 1 | close_on_exec) for family in (1, 2, 10, 16)} == {ALLOWED}
    assert {socket(family, 1) for family in (17, 31, 38, 40)} == {EAFNOSUPPORT}
    assert {socket(family, kind) for family in (2, 10) for kind in (2, 2 | close_on_exec, 3)} == {
        ALLOWED if datagrams else EPERM
    }
    assert {socket(family, 2) for family in (1, 16)} == {ALLOWED}


def test_an_architecture_without_a_filter_has_none() -> None:
    assert filter_program(traces=True, datagrams=True, machine="riscv64") == b""
