"""Programs that prepare a confined process: listening sockets, where a program is, and forwarded ports."""

import os
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from proctor.sandbox import launcher, relay

LAUNCH = [sys.executable, "-I", "-S", launcher.__file__, "-1", "", "-1", "-1"]
"""Starts a command that is neither restricted nor given ports."""


def test_listening_sockets_on_loopback_are_sent_to_the_other_end() -> None:
    near, far = socket.socketpair()
    launcher.send_listeners(far, [0, 0])
    message, descriptors, _, _ = socket.recv_fds(near, 10, 5)
    assert message == b"l" and len(descriptors) == 2
    for descriptor in descriptors:
        with socket.socket(fileno=descriptor) as listener:
            host, port = listener.getsockname()
            assert host == "127.0.0.1"
            assert listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
            assert listener.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR) == 1
            with socket.create_connection((host, port), timeout=30):
                pass
    near.close()
    far.close()


def test_the_first_program_of_the_path_that_can_be_executed_is(tmp_path: Path) -> None:
    for name, text, mode in (("a", "echo a", 0o644), ("b", "echo $0 $1", 0o755), ("c", "echo c", 0o755)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tool").write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name / "tool").chmod(mode)
    path = ":".join(str(tmp_path / name) for name in ("none", "a", "b", "c"))
    ended = launched("tool", "x", PATH=path)
    assert ended.stdout == f"{tmp_path}/b/tool x\n"
    missing = launched("absent", PATH=path)
    assert (missing.returncode, missing.stderr) == (127, "absent: No such file or directory\n")


def launched(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*LAUNCH, *command], env=environment, capture_output=True, text=True, check=False)


def test_a_program_inherits_no_environment_but_its_own_and_none_of_pythons_signals() -> None:
    assert launched("/usr/bin/env", ONLY="this").stdout == "ONLY=this\n"
    ignored = int(
        launched("grep", "SigIgn", "/proc/self/status", PATH=os.environ["PATH"]).stdout.split()[1], 16
    )
    # SIGPIPE is 13 and SIGXFSZ 25.
    assert not ignored & (1 << 12 | 1 << 24)


@pytest.fixture
def echo_server(tmp_path: Path) -> str:
    """A server on a Unix socket that answers with what it received, in capitals, once that has ended."""
    path = str(tmp_path / "server")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()

    def serve() -> None:
        connection = listener.accept()[0]
        with connection:
            received = b""
            while chunk := connection.recv(1000):
                received += chunk
            connection.sendall(received.upper())

    threading.Thread(target=serve, daemon=True).start()
    return path


def test_a_connection_to_a_server_that_is_gone_is_closed_and_the_next_is_accepted(tmp_path: Path) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=relay.accept, args=(listener, str(tmp_path / "gone")), daemon=True).start()
    for _ in range(2):
        with socket.create_connection(listener.getsockname(), timeout=30) as client:
            assert client.recv(100) == b""


def test_a_command_behind_forwarded_ports_ends_as_it_does(echo_server: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    asking = (
        f"import socket; s = socket.create_connection(('127.0.0.1', {port})); s.sendall(b'hi');"
        "s.shutdown(1); print(s.recv(9)); raise SystemExit(5)"
    )
    command = [sys.executable, relay.__file__, f"{port}={echo_server}"]
    ended = subprocess.run(
        [*command, sys.executable, "-c", asking], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (5, "b'HI'\n")
    killed = subprocess.run([*command, "sh", "-c", "kill -9 $$"], check=False)
    assert killed.returncode == 137
    assert subprocess.run([*command, "true"], check=False).returncode == 0


def test_a_terminated_relay_terminates_its_command() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        sys.executable,
        relay.__file__,
        f"{port}=x",
        "sh",
        "-c",
        "trap 'exit 9' TERM; echo on; while :; do sleep 0.1; done",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.read(3) == b"on\n"
    # Only the main thread takes signals: in another one they would end the relay and leave its command.
    [thread] = [task for task in Path(f"/proc/{process.pid}/task").iterdir() if task.name != str(process.pid)]
    assert blocked_signals(thread) >= set(relay.FORWARDED)
    process.terminate()
    assert process.wait(60) == 9
    process.stdout.close()


def blocked_signals(thread: Path) -> set[int]:
    mask = int(re.search(r"^SigBlk:\s*(\w+)", (thread / "status").read_text(), re.MULTILINE)[1], 16)
    return {number for number in range(1, 65) if mask & 1 << number - 1}
