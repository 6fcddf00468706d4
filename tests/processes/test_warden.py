"""What the supervisor of a program reads of processes."""

import os
import socket
import subprocess
import time
from types import SimpleNamespace

import pytest

from clocks import Clock
from proctor.processes import warden


@pytest.mark.parametrize(
    ("text", "short"),
    [("a b", "a b"), (" a\nb\t ", "a b"), ("x" * 90, "x" * 80), ("", ""), (" " * 400 + "x", "")],
)
def test_a_command_line_is_shortened_to_one_line(text, short):
    assert warden.shortened(text) == short


def test_a_process_is_known_by_its_start():
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "bufsize": 0}
    # Its group is its own: not that of its parent.
    with subprocess.Popen(["cat", "-"], start_new_session=True, **pipes) as process:
        process.stdin.write(b"x")
        assert process.stdout.read(1) == b"x"
        assert warden.name_of(process.pid) == "cat -"
        assert warden.is_alive(process.pid)
        assert warden.state_and_parent(process.pid)[1] == os.getpid()
        assert os.getpid() in warden.ancestors_of(process.pid)
        assert process.pid not in warden.ancestors_of(process.pid)
        ticks = int(warden.birth_of(process.pid)) / os.sysconf("SC_CLK_TCK")
        assert 0 <= time.clock_gettime(time.CLOCK_BOOTTIME) - ticks < 60
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert not warden.is_alive(process.pid)
    assert warden.birth_of(process.pid) == b"" and warden.name_of(process.pid) == f"process {process.pid}"
    assert warden.state_and_parent(process.pid) == ("X", 0)
    assert warden.children_of(process.pid) == [] and warden.ancestors_of(process.pid) == set()


def test_an_environment_is_read_in_any_number_of_parts():
    near, far = socket.socketpair()
    for part in (b"000", b"00007", b"A=1\0", b"B=2"):
        near.sendall(part)
    assert warden.read_environment(far.fileno()) == {"A": "1", "B": "2"}
    near.sendall(b"00000000")
    assert warden.read_environment(far.fileno()) == {}
    near.sendall(b"00000009A=1")
    near.close()
    with pytest.raises(SystemExit) as raised:
        warden.read_environment(far.fileno())
    assert raised.value.code == 1
    far.close()


@pytest.mark.parametrize(
    ("reads", "parent", "environment", "sleeps"),
    [
        (["A=1\0"], 1, b"A=1\0", 0),
        (["", "cmd"], 1, b"", 0),
        (["", ""], 0, b"", 0),
        (["", ""], 2, b"", 0),
        (["", "", "A=1\0"], 1, b"A=1\0", 1),
        (["", ""] * 5, 1, b"", 5),
    ],
)
def test_a_program_that_is_just_being_loaded_is_looked_at_again(
    monkeypatch, tmp_path, reads, parent, environment, sleeps
):
    # Between fork and exec a process shows no environment: no program can be held there.
    contents, clock, waits = list(reads), Clock(100.0), []

    def wait(seconds):
        waits.append(round(seconds, 6))
        clock.now += seconds

    def read(path, mode):
        file = tmp_path / "content"
        file.write_text(contents.pop(0))
        return file.open(mode)

    monkeypatch.setattr(warden, "time", SimpleNamespace(monotonic=clock, sleep=wait))
    monkeypatch.setattr(warden, "open", read, raising=False)
    monkeypatch.setattr(warden, "state_and_parent", lambda pid: ("R", parent))
    assert warden._environment_of(5) == environment
    assert waits == [0.001] * sleeps and contents == []
