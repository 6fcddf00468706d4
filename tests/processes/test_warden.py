"""The supervisor of one program, part by part: without a program, by what it would do."""

import os
import resource
import signal
import socket
import subprocess
import time
from types import SimpleNamespace

import pytest

from proctor.processes import warden


class Clock:
    """Time that passes only where something waits for it."""

    def __init__(self, monkeypatch):
        self.now, self.waits = 100.0, []
        monkeypatch.setattr(warden, "time", SimpleNamespace(monotonic=lambda: self.now, sleep=self.wait))

    def wait(self, seconds):
        self.waits.append(round(seconds, 6))
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


@pytest.fixture
def sent(monkeypatch):
    """The signals that were sent, as (process, signal)."""
    sent = []
    monkeypatch.setattr(warden.os, "kill", lambda pid, number: sent.append((pid, number)))
    return sent


TERM, CONT, KILL = signal.SIGTERM, signal.SIGCONT, signal.SIGKILL


def test_processes_that_end_when_asked_are_not_killed(clock, sent):
    alive = [[5, 6], [5], [], [7]]
    assert warden.end_all(lambda: alive.pop(0), 3.0, clock.wait) == []
    assert sent == [(5, TERM), (5, CONT), (6, TERM), (6, CONT)]
    assert clock.waits == [0.05, 0.05]


def test_what_is_started_to_clean_up_is_asked_when_none_of_the_first_is_left(clock, sent):
    alive = [[5], [5, 6], [6], []]
    warden.end_all(lambda: alive.pop(0), 3.0, clock.wait)
    assert sent == [(5, TERM), (5, CONT), (6, TERM), (6, CONT)]


def test_processes_that_stay_are_killed_after_the_grace_period(clock, sent):
    killed = []

    def find():
        killed.extend(pid for pid, number in sent if number == KILL)
        return [] if len(killed) >= 2 else [5]

    assert warden.end_all(find, 0.12, clock.wait) == []
    assert clock.waits == [0.05, 0.05, 0.02, 0.005, 0.005]
    assert sent == [(5, TERM), (5, CONT), (5, KILL), (5, KILL)]


def test_without_a_grace_period_processes_are_killed_at_once(clock, sent):
    alive = [[5], []]
    assert warden.end_all(lambda: alive.pop(0), 0, clock.wait) == []
    assert sent == [(5, KILL)] and clock.waits == [0.005]


def test_killing_is_given_up_after_ten_seconds(clock, sent):
    assert warden.end_all(lambda: [5], 0, clock.wait) == [5]
    assert clock.now == pytest.approx(110.0, abs=0.01)
    assert {number for _, number in sent} == {KILL}


def test_a_signal_to_a_process_that_is_gone_does_not_keep_it_from_the_next(monkeypatch):
    sent = []

    def kill(pid, number):
        if pid == 5:
            raise ProcessLookupError
        sent.append((pid, number))

    monkeypatch.setattr(warden.os, "kill", kill)
    warden.send([5, 6], TERM, CONT)
    assert sent == [(6, TERM), (6, CONT)]


@pytest.mark.parametrize(
    ("hard", "size", "expected"),
    [(resource.RLIM_INFINITY, 7, 7), (9, 7, 7), (5, 7, 5), (7, 7, 7)],
)
def test_limits_are_never_above_those_of_this_process(monkeypatch, hard, size, expected):
    limits = []
    monkeypatch.setattr(resource, "getrlimit", lambda number: (1, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda number, pair: limits.append((number, pair)))
    warden.set_limits({"3": size, "processes": 4, "stays": 1, "8": 1})
    assert limits == [(3, (expected, expected)), (8, (1, 1))]


# --- The class ---


def bare(**members):
    """A supervisor that has taken over no signals."""
    made = warden.Warden.__new__(warden.Warden)
    usual = {"program": 50, "sandbox": "", "status": None, "is_ending": False, "options": {}, "marker": "M=1"}
    for name, value in {**usual, **members}.items():
        setattr(made, name, value)
    return made


@pytest.fixture
def tree(monkeypatch):
    """The processes there are: children and names by id."""
    tree = SimpleNamespace(children={}, names={}, every=[1], marked=[])
    monkeypatch.setattr(warden, "children_of", lambda pid: tree.children.get(pid, []))
    monkeypatch.setattr(warden, "name_of", lambda pid: tree.names.get(pid, f"process {pid}"))
    monkeypatch.setattr(warden, "is_alive", lambda pid: pid > 0)
    monkeypatch.setattr(warden, "every_process", lambda: tree.every)
    monkeypatch.setattr(warden, "marked_with", lambda marker: tree.marked if marker == "M=1" else [0])
    monkeypatch.setattr(warden.os, "getpid", lambda: 40)
    return tree


def test_descendants_are_found_through_their_parents_each_once(tree):
    tree.children = {40: [50, 51], 50: [60, 51], 60: [-1, 70]}
    assert warden.descendants_of(40) == [50, 51, 60, 70]
    assert warden.descendants_of(70) == []


@pytest.mark.parametrize(
    ("most", "found"), [(1, [50, 51]), (2, [50, 51, 60, 61]), (3, [50, 51, 60, 61]), (9, 6)]
)
def test_the_search_for_processes_ends_when_there_are_more_than_allowed(tree, most, found):
    tree.children = {40: [50, 51], 50: [60, 61], 60: [70, 71]}
    started = warden.started_by(40, most)
    assert started == found if isinstance(found, list) else len(started) == found


def test_what_remains_are_descendants_or_else_those_with_the_marker(tree):
    tree.children = {40: [50, 51]}
    tree.marked = [90]
    assert bare().remaining() == [50, 51]
    tree.children = {}
    assert bare().remaining() == [90]
    tree.marked = []
    assert bare().remaining() == []


def test_a_sandbox_remains_only_when_nothing_in_it_does(tree):
    tree.children, tree.names = {40: [50], 50: [60]}, {50: "box", 60: "tool"}
    assert bare(sandbox="box").remaining() == [60]
    tree.children = {40: [50]}
    assert bare(sandbox="box").remaining() == [50]
    assert bare(sandbox="box")._confined([50, 60]) == [60]
    assert bare()._confined([50, 60]) == [50, 60]


def test_processes_have_a_moment_to_end_by_themselves(clock, tree):
    made = bare()
    made.wait = clock.wait
    tree.children, tree.names = {40: [51, 50]}, {50: "b", 51: "a"}
    assert made.left_behind() == ["a", "b"]
    assert clock.waits == [0.01] * 5
    tree.children = {}
    assert made.left_behind() == [] and len(clock.waits) == 5


@pytest.mark.parametrize(("sandbox", "allowed"), [("", 2), ("box", 4)])
@pytest.mark.parametrize("over", [0, 1])
def test_all_processes_are_killed_when_there_are_more_than_allowed(tree, monkeypatch, sandbox, allowed, over):
    reading, writing = os.pipe()
    made = bare(options={"processes": 2}, sandbox=sandbox, errors=writing)
    tree.children = {40: list(range(50, 50 + allowed + over))}
    waits, killed = [], []

    def wait(seconds):
        waits.append(seconds)
        if len(waits) == 3:
            made.status = 0

    made.wait, made.kill_all = wait, lambda: killed.append(len(waits))
    made.watch()
    os.close(writing)
    assert waits == [0.2] * 3 and killed == [1, 2, 3][: 3 * over]
    text = "proctor: more than 2 processes (limits.processes): all were killed\n"
    assert os.read(reading, 1000).decode() == text * 3 * over
    os.close(reading)


def test_the_first_process_of_a_sandbox_and_the_group_are_killed(tree, sent):
    made = bare(sandbox="box")
    made.wait = lambda seconds: None
    tree.children, tree.names = {50: [60]}, {50: "box"}
    made.kill_all()
    assert sent == [(60, KILL), (-50, KILL)]
    made.sandbox = ""
    made.kill_all()
    assert sent[2:] == [(-50, KILL)]


class Scripted:
    """In place of the supervisor: says how the program ended."""

    is_ending, status, left, problem = False, 768, (), None

    def __init__(self, control, grace, marker, options):
        self.program, self.calls = 77, [grace, marker, options]
        Scripted.made = self

    def start(self, command, environment):
        self.calls.append((command, environment))
        if self.problem:
            raise OSError(self.problem)

    def watch(self):
        self.calls.append("watch")

    def left_behind(self):
        self.calls.append("left behind")
        return list(self.left)

    def end(self):
        self.calls.append("end")

    def loss(self):
        return ""


def reported(monkeypatch, options="", **members):
    """What `main` reports of a program that ends so."""
    near, far = socket.socketpair()
    monkeypatch.setattr(warden, "Warden", type("Ending", (Scripted,), members))
    monkeypatch.setattr(warden, "become_subreaper", lambda: None)
    monkeypatch.setattr(warden, "detach_streams", lambda: None)
    body = b"A=1\0B=x=y\0C="
    near.sendall(b"%08d" % len(body) + body)
    number = far.detach()
    warden.main([str(number), "1.5", "M=1", options, "tool", "x"])
    os.close(number)
    lines = b""
    while chunk := near.recv(65536):
        lines += chunk
    near.close()
    return lines.decode().splitlines()


def test_a_program_that_ends_by_itself_is_reported_with_what_it_left(monkeypatch):
    names = [f"n{number}" for number in range(60)]
    lines = reported(monkeypatch, "processes=3,stays=1", left=tuple(names))
    assert lines == ["started 77", "status 768", *(f"left {name}" for name in names[:50]), "done"]
    assert Scripted.made.calls == [
        1.5,
        "M=1",
        {"processes": 3, "stays": 1},
        (["tool", "x"], {"A": "1", "B": "x=y", "C": ""}),
        "watch",
        "left behind",
        "end",
    ]


def test_a_program_that_is_ended_has_left_nothing(monkeypatch):
    assert reported(monkeypatch, left=("x",), is_ending=True) == ["started 77", "status 768", "done"]
    assert Scripted.made.calls[-2:] == ["watch", "end"]
    assert reported(monkeypatch, status=None) == ["started 77", "status 9", "done"]
    assert reported(monkeypatch, status=0)[1] == "status 0"


def test_a_program_that_cannot_be_started_is_reported(monkeypatch):
    lines = reported(monkeypatch, problem="no\nsuch program")
    assert lines == ["failed no such program"]


# --- Processes as the system shows them ---


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
    clock, monkeypatch, tmp_path, reads, parent, environment, sleeps
):
    contents = list(reads)

    def read(path, mode):
        file = tmp_path / "content"
        file.write_text(contents.pop(0))
        return file.open(mode)

    monkeypatch.setattr(warden, "open", read, raising=False)
    monkeypatch.setattr(warden, "state_and_parent", lambda pid: ("R", parent))
    assert warden._environment_of(5) == environment
    assert clock.waits == [0.001] * sleeps and contents == []
