"""Stand beside one program and end everything it started.

A warden is a process of its own, between Proctor and the program: `python -I -S warden.py FD GRACE
MARKER COMMAND…`. It adopts whatever the program orphans (also what moved to a session of its own),
and when the program exits, or the other end of its socket closes because Proctor has ended or died,
it ends all of it: TERM, a grace period, KILL, until nothing is left. Then it says how it went.

On the socket it first reads the program's environment (eight digits of length, then `NAME=value`
joined by NULs) and then waits for its end. It writes lines: `started PID` or `failed WHY`,
`status WAITSTATUS`, `left NAME` for each process the program left behind, and `done`.

Imports only the standard library, and little of that: one is started for every program that runs.
Knows nothing of Proctor.
"""

# ruff: noqa: PTH123, PTH208
# pathlib would add a third to the time a warden takes to start.

import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable

PR_SET_CHILD_SUBREAPER = 36


# What the program leaves behind often ends by itself within a moment: the rest of a pipeline.
SETTLING_SECONDS = 0.05


# How long killing is tried. What survives this sits in the kernel, or belongs to another user.
KILLING_SECONDS = 10.0


def children_of(pid: int) -> list[int]:
    """The processes this one has started or adopted; none when it is gone."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as children:
                found.extend(map(int, children.read().split()))
    except OSError:
        pass
    return found


def descendants_of(pid: int) -> list[int]:
    """All that still runs and descends from a process, parents before their children."""
    found = [pid]
    for parent in found:
        found.extend(child for child in children_of(parent) if child not in found)
    return [pid for pid in found[1:] if is_alive(pid)]


def marked_with(marker: str) -> list[int]:
    """All running processes that carry `NAME=value` in the environment they were started with."""
    wanted = b"\0" + marker.encode() + b"\0"
    found = []
    for pid in sorted(every_process()):
        try:
            with open(f"/proc/{pid}/environ", "rb") as environment:
                carries = wanted in b"\0" + environment.read() + b"\0"
        except OSError:
            continue
        if carries and is_alive(pid):
            found.append(pid)
    return found


def every_process() -> list[int]:
    """The ids of all processes there are; empty where the system does not show them as files."""
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def is_alive(pid: int) -> bool:
    """Whether a process still runs. One that has ended and was not collected does not."""
    return state_and_parent(pid)[0] not in "ZX"


def ancestors_of(pid: int) -> set[int]:
    """The parent of a process, its parent, and so on."""
    found: set[int] = set()
    parent = state_and_parent(pid)[1]
    while parent > 0 and parent not in found:
        found.add(parent)
        parent = state_and_parent(parent)[1]
    return found


def state_and_parent(pid: int) -> tuple[str, int]:
    """The state letter and the parent's id; `X`, 0 when there is no such process."""
    fields = _stat(pid)
    return (fields[0].decode(), int(fields[1])) if fields else ("X", 0)


def birth_of(pid: int) -> bytes:
    """When a process was started, in the system's own count; ids are used again, these are not."""
    fields = _stat(pid)
    return fields[19] if fields else b""


def _stat(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            # The name before the last bracket may itself hold brackets and spaces.
            return stat.read().rpartition(b")")[2].split()
    except OSError:
        return []


def name_of(pid: int) -> str:
    """The command a process was started with, short enough to be read."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as command:
            words = command.read(400).replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        words = ""
    shown = "".join(c if c.isprintable() else " " for c in words).strip()
    return shown[:80] or f"process {pid}"


def send(pids: Iterable[int], *signals: signal.Signals) -> None:
    """Send signals to processes; those that are gone or not ours to signal are passed over."""
    for pid in pids:
        for number in signals:
            try:
                os.kill(pid, number)
            except OSError:
                pass


def end_all(find: Callable[[], list[int]], grace: float, wait: Callable[[float], None]) -> list[int]:
    """Ask whatever `find` finds to end, wait no longer than needed, then kill it.

    It finds parents before their children: a script whose command was ended before it would go on
    with the next one. It is called again and again, since those who were asked may start others to
    clean up with; these are asked only when nobody else is left. Returns what could not be ended.
    """
    asked: set[int] = set()
    kill_from = time.monotonic() + grace
    while (alive := find()) and (left := kill_from - time.monotonic()) > 0:
        if asked.isdisjoint(alive):
            # A stopped process sees TERM only after CONT.
            send(alive, signal.SIGTERM, signal.SIGCONT)
            asked.update(alive)
        wait(min(0.05, left))
    give_up_at = time.monotonic() + KILLING_SECONDS
    while alive and time.monotonic() < give_up_at:
        send(alive, signal.SIGKILL)
        wait(0.005)
        alive = find()
    return alive


class Warden:
    """One program and all that comes of it."""

    def __init__(self, control: socket.socket, grace: float, marker: str) -> None:
        self.control, self.grace, self.marker = control, grace, marker
        self.program = 0
        self.status: int | None = None
        """What the system says about the program's end; None while it runs."""
        self.told_to_end = False
        self.awake, wake = socket.socketpair()
        self.awake.setblocking(False)
        wake.setblocking(False)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        self._wake = wake
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._be_told)

    def _be_told(self, *_: object) -> None:
        self.told_to_end = True

    def start(self, command: list[str], environment: dict[str, str]) -> None:
        """Start the program in a session of its own, with this and no other environment."""
        # The search for a program without a path uses our own PATH.
        os.environ["PATH"] = environment.get("PATH", os.defpath)
        # Python ignores these two; the program must not inherit that.
        own = [signal.SIGPIPE, signal.SIGXFSZ]
        self.program = os.posix_spawnp(
            command[0], command, environment, setsid=True, setsigdef=own, setsigmask=[]
        )

    def watch(self) -> None:
        """Return when the program has ended or is to be ended."""
        while self.status is None and not self.told_to_end:
            self.wait(None)

    def wait(self, seconds: float | None) -> None:
        """Sleep until something happens; collect what has ended."""
        watched = [self.awake] if self.told_to_end else [self.awake, self.control]
        ready = select.select(watched, [], [], seconds)[0]
        if self.awake in ready:
            try:
                while self.awake.recv(4096):
                    pass
            except BlockingIOError:
                pass
        if self.control in ready:
            self.told_to_end = True
        self._collect()

    def _collect(self) -> None:
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self.program:
                    self.status = status
        except ChildProcessError:
            return

    def remaining(self) -> list[int]:
        """What still runs of all the program started, itself included."""
        if not every_process():
            return self._group()
        # Reading every environment is the dearer way, and finds only what another process adopted.
        return descendants_of(os.getpid()) or marked_with(self.marker)

    def _group(self) -> list[int]:
        """Where processes cannot be listed: the program's group, as the one number that means it."""
        try:
            os.kill(-self.program, 0)
        except OSError:
            return []
        return [-self.program]

    def left_behind(self) -> list[str]:
        """The names of what outlived the program, after a moment in which it may end by itself."""
        settled_at = time.monotonic() + SETTLING_SECONDS
        while (alive := self.remaining()) and time.monotonic() < settled_at:
            self.wait(0.01)
        return sorted(name_of(pid) for pid in alive if pid > 0)

    def end(self) -> None:
        """End all that remains, and collect the program's status."""
        end_all(self.remaining, self.grace, self.wait)
        self._collect()


def main(arguments: list[str]) -> None:
    """Be the warden of one program."""
    control = socket.socket(fileno=int(arguments[0]))
    control.set_inheritable(False)
    become_subreaper()
    warden = Warden(control, float(arguments[1]), arguments[2])
    environment = read_environment(control)
    try:
        warden.start(arguments[3:], environment)
    except (OSError, ValueError) as problem:
        say(control, f"failed {problem}")
        return
    let_go_of_the_streams()
    say(control, f"started {warden.program}")
    warden.watch()
    left: list[str] = [] if warden.told_to_end else warden.left_behind()
    warden.end()
    say(control, f"status {warden.status if warden.status is not None else signal.SIGKILL.value}")
    for name in left[:50]:
        say(control, f"left {name}")
    say(control, "done")


def become_subreaper() -> None:
    """Adopt the orphans among our descendants. Where that cannot be had, go on without."""
    try:
        # Here and not above: importing it takes as long as the rest of the start together, and
        # those who import this module for its functions do not need it.
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        pass


def read_environment(control: socket.socket) -> dict[str, str]:
    """What Proctor sends first; a connection that breaks off means that there is nothing to start."""
    data = b""
    size = 8
    while len(data) < size:
        chunk = control.recv(65536)
        if not chunk:
            sys.exit(1)
        data += chunk
        if len(data) >= 8:
            size = 8 + int(data[:8])
    pairs = (os.fsdecode(pair).partition("=") for pair in data[8:].split(b"\0") if pair)
    return {name: value for name, _, value in pairs}


def let_go_of_the_streams() -> None:
    """Only the program may hold its pipes open, so that their end is its end."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)


def say(control: socket.socket, line: str) -> None:
    """Report a line; nobody may be there to hear it."""
    try:
        control.sendall(line.replace("\n", " ").encode("utf-8", "replace") + b"\n")
    except OSError:
        pass


if __name__ == "__main__":
    main(sys.argv[1:])
