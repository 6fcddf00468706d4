"""Supervisor process of one program: ends everything the program started.

`python -I -S warden.py FD GRACE MARKER OPTIONS COMMAND…` runs between Proctor and the program. It adopts the
program's orphans (also those in a session of their own). When the program exits, or the other end of
the socket closes because Proctor has ended or died, it ends all of them: TERM, a grace period, KILL, until
nothing is left. Then it reports the result.

On the socket it first reads the program's environment (eight digits of length, then `NAME=value` joined by
NULs), and then waits for it to close. It writes lines: `started PID` or `failed WHY`, `status WAITSTATUS`,
`lost WHY` if that is not the program's own status because its sandbox was killed or failed, `left NAME` for
each process the program left behind, and `done`. Without `done`, the warden itself was killed.

OPTIONS are `NAME=NUMBER`, joined by commas: resource limits by their numbers; `channel`, `filter`, `policy`
and `report`, descriptors that the program inherits and the warden closes; `reports`, the descriptor from
which it reads what the sandbox writes to `report`; `stays=1`, if the command is a sandbox whose child is the
program; `processes`, the number of processes above which all are killed.

Imports little of the standard library and nothing else, because one is started for every program that runs.
"""

# ruff: noqa: PTH123, PTH208
# pathlib would add a third to the time a warden takes to start, signal a third, and socket a fifth.

import _signal as signal  # type: ignore[import-not-found]
import os
import select
import sys
import time
from collections.abc import Callable, Iterable

PR_SET_CHILD_SUBREAPER = 36

# What the program leaves behind often ends by itself within a moment: the rest of a pipeline.
SETTLING_SECONDS = 0.05

# How long killing is tried. A process that survives this is stuck in the kernel or has another owner.
KILLING_SECONDS = 10.0


COUNTING_SECONDS = 0.2
"""How often processes are counted, where that has a limit."""
SANDBOX_PROCESSES = 2
"""Processes of a sandbox itself, which do not count."""
KILLED = 128 + signal.SIGKILL
"""Exit code of a sandbox whose program, or first process, was killed."""


def children_of(pid: int) -> list[int]:
    """The processes this one has started or adopted; none when it has ended."""
    children: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                children.extend(map(int, file.read().split()))
    except OSError:
        pass
    return children


def descendants_of(pid: int) -> list[int]:
    """All running descendants of a process, parents before their children."""
    descendants = [pid]
    for parent in descendants:
        descendants.extend(child for child in children_of(parent) if child not in descendants)
    return [pid for pid in descendants[1:] if is_alive(pid)]


def started_by(pid: int, most: int) -> list[int]:
    """Descendants of a process, zombies included; stops looking for more after `most`."""
    descendants = [pid]
    for parent in descendants:
        descendants.extend(children_of(parent))
        if len(descendants) > most + 1:
            break
    return descendants[1:]


EXEC_READS, EXEC_SECONDS = 5, 0.001
"""How often, and how far apart, a process without environment and command line is looked at."""
KERNEL_THREADS = 2
"""The parent of the kernel's threads."""


def marked_with(marker: str) -> list[int]:
    """All running processes that were started with `NAME=value` in their environment."""
    pattern = b"\0" + marker.encode() + b"\0"
    marked = []
    for pid in sorted(every_process()):
        matches = pattern in b"\0" + _environment_of(pid) + b"\0"
        if matches and is_alive(pid):
            marked.append(pid)
    return marked


def _environment_of(pid: int) -> bytes:
    """The environment of a process; empty: it has none, or it may not be read."""
    for _ in range(EXEC_READS):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if environment := file.read():
                    return environment
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if file.read(1):
                    return b""
        except OSError:
            return b""
        # Neither: a thread of the kernel, or a program that is just being loaded.
        if state_and_parent(pid)[1] in (0, KERNEL_THREADS):
            return b""
        time.sleep(EXEC_SECONDS)
    return b""


def every_process() -> list[int]:
    """The ids of all processes; empty where the system has no `/proc`."""
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def is_alive(pid: int) -> bool:
    """Whether a process still runs. A zombie does not."""
    return state_and_parent(pid)[0] not in "ZX"


def ancestors_of(pid: int) -> set[int]:
    """The parent of a process, its parent, and so on."""
    ancestors: set[int] = set()
    parent = state_and_parent(pid)[1]
    while parent > 0 and parent not in ancestors:
        ancestors.add(parent)
        parent = state_and_parent(parent)[1]
    return ancestors


def state_and_parent(pid: int) -> tuple[str, int]:
    """The state letter and the parent's id; `X`, 0 when there is no such process."""
    fields = _stat(pid)
    return (fields[0].decode(), int(fields[1])) if fields else ("X", 0)


def birth_of(pid: int) -> bytes:
    """Start time of a process in clock ticks: distinguishes processes that reuse an id."""
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
            command_line = command.read(400).replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        command_line = ""
    return shortened(command_line) or f"process {pid}"


def shortened(command_line: str) -> str:
    """The start of a command line, on one line."""
    printable = "".join(c if c.isprintable() else " " for c in command_line[:400]).strip()
    return printable[:80]


def send(pids: Iterable[int], *signals: int) -> None:
    """Send signals to processes; those that have ended or have another owner are skipped."""
    for pid in pids:
        for number in signals:
            try:
                os.kill(pid, number)
            except OSError:
                pass


def end_all(find: Callable[[], list[int]], grace: float, wait: Callable[[float], None]) -> list[int]:
    """Terminate the processes that `find` returns, wait no longer than necessary, then kill them.

    `find` returns parents before their children: a script whose command is ended first would continue with
    the next one. It is called repeatedly, since terminated processes may start others to clean up; those are
    terminated only when none of the first is left. Returns what could not be ended.
    """
    terminated: set[int] = set()
    kill_from = time.monotonic() + grace
    while (alive := find()) and (left := kill_from - time.monotonic()) > 0:
        if terminated.isdisjoint(alive):
            # A stopped process sees TERM only after CONT.
            send(alive, signal.SIGTERM, signal.SIGCONT)
            terminated.update(alive)
        wait(min(0.05, left))
    give_up_at = time.monotonic() + KILLING_SECONDS
    while alive and time.monotonic() < give_up_at:
        send(alive, signal.SIGKILL)
        wait(0.005)
        alive = find()
    return alive


class Warden:
    """Supervises one program and its descendants."""

    def __init__(self, control: int, grace: float, marker: str, options: dict[str, int]) -> None:
        self.control, self.grace, self.marker, self.options = control, grace, marker, options
        self.program = 0
        self.sandbox = ""
        """Command line of the sandbox that runs the program; empty: there is none."""
        self.status: int | None = None
        """Wait status of the program; None while it runs."""
        self.is_ending = False
        self.signal = 0
        """The signal that asked this process to end; 0: none did."""
        self.has_killed = False
        """Whether this process killed the program, for its number of processes."""
        self.has_adopted = False
        """Whether another process than the program was reaped."""
        self.errors = -1
        """The program's standard error, where its processes are counted."""
        self.awake, wake = os.pipe()
        os.set_blocking(self.awake, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._request_end)

    def _request_end(self, number: int, _: object) -> None:
        self.signal = number
        self.is_ending = True

    def start(self, command: list[str], environment: dict[str, str]) -> None:
        """Start the program in a session of its own, with exactly this environment."""
        # The search for a program without a path uses the PATH of this process.
        os.environ["PATH"] = environment.get("PATH", os.defpath)
        # Python ignores these two; the program must not inherit that.
        own = [signal.SIGPIPE, signal.SIGXFSZ]
        set_limits(self.options)
        if "processes" in self.options:
            # The streams of this process are closed soon.
            self.errors = os.dup(2)
        self.program = os.posix_spawnp(
            command[0], command, environment, setsid=True, setsigdef=own, setsigmask=[]
        )
        for name in ("channel", "filter", "policy", "report"):
            if name in self.options:
                os.close(self.options[name])
        if "stays" in self.options:
            # Not read from the process: just after its start, it has no command line yet.
            self.sandbox = shortened(" ".join(command))

    def watch(self) -> None:
        """Return when the program has ended or has to be ended."""
        most = self.options.get("processes", 0)
        allowed = most + (SANDBOX_PROCESSES if self.sandbox else 0)
        while self.status is None and not self.is_ending:
            self.wait(COUNTING_SECONDS if most else None)
            if most and len(started_by(os.getpid(), allowed)) > allowed:
                text = f"proctor: more than {most} processes (limits.processes): all were killed\n"
                os.write(self.errors, text.encode())
                self.kill_all()

    def kill_all(self) -> None:
        """Kill all processes of the program at once, even if they start others all the time."""
        self.has_killed = True
        # The first process of a process namespace takes the others with it, and so does a process group.
        first = children_of(self.program) if self.sandbox else []
        send([*first, -self.program], signal.SIGKILL)
        end_all(self.remaining, 0, self.wait)

    def wait(self, seconds: float | None) -> None:
        """Sleep until something happens; reap processes that have ended."""
        watched = [self.awake] if self.is_ending else [self.awake, self.control]
        ready = select.select(watched, [], [], seconds)[0]
        if self.awake in ready:
            try:
                while os.read(self.awake, 4096):
                    pass
            except BlockingIOError:
                pass
        if self.control in ready:
            self.is_ending = True
        self._reap()

    def _reap(self) -> None:
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self.program:
                    self.status = status
                else:
                    self.has_adopted = True
        except ChildProcessError:
            return

    def remaining(self) -> list[int]:
        """Running processes of the program, itself included."""
        if not every_process():
            return self._group()
        # Reading every environment is slower, and only finds what another process adopted.
        every = descendants_of(os.getpid()) or marked_with(self.marker)
        # A sandbox ends by itself when all in it have ended, and reports the program's exit code.
        return self._confined(every) or every

    def _confined(self, pids: list[int]) -> list[int]:
        """These processes without those of the sandbox itself."""
        return [pid for pid in pids if not self.sandbox or name_of(pid) != self.sandbox]

    def _group(self) -> list[int]:
        """Where processes cannot be listed: the program's process group, as its negative id."""
        try:
            os.kill(-self.program, 0)
        except OSError:
            return []
        return [-self.program]

    def left_behind(self) -> list[str]:
        """Names of processes that outlive the program, after a moment in which they may end by themselves."""
        settled_at = time.monotonic() + SETTLING_SECONDS
        while (alive := self.remaining()) and time.monotonic() < settled_at:
            self.wait(0.01)
        return sorted(name_of(pid) for pid in self._confined(alive) if pid > 0)

    def end(self) -> None:
        """End all remaining processes, and get the program's status."""
        end_all(self.remaining, self.grace, self.wait)
        self._reap()

    def loss(self) -> str:
        """Why the status is not the program's own; empty: it is. For after the end.

        Nothing here depends on what a confined program can do: it reaches neither this process nor the
        sandbox's own processes, so that it cannot present its failure as one of the machine.
        """
        if self.signal:
            return f"its supervisor received signal {self.signal}"
        if self.is_ending or self.has_killed or self.status is None:
            return ""
        code = os.waitstatus_to_exitcode(self.status)
        how = f"was killed by signal {-code}" if code < 0 else f"failed with exit code {code}"
        if self.sandbox and code < 0:
            return f"its sandbox {how}"
        if "reports" not in self.options:
            return ""
        report = self._report()
        if not self.sandbox:
            # The launcher reports just before it becomes the program.
            return "" if report else f"its launcher {how}"
        # bubblewrap writes this when a program that it had started has ended.
        if b'"exit-code"' not in report:
            return f"its sandbox {how}"
        # The first process of its namespace, which nothing inside can kill, reports the end of the program
        # and is then left to this process. If it was killed before that, bubblewrap has reaped it.
        if code == KILLED and not self.has_adopted:
            return "its sandbox was killed"
        return ""

    def _report(self) -> bytes:
        reports = self.options["reports"]
        os.set_blocking(reports, False)
        try:
            return os.read(reports, 65536)
        except BlockingIOError:
            return b""


def main(arguments: list[str]) -> None:
    """Supervise one program."""
    control = int(arguments[0])
    pairs = (option.split("=") for option in arguments[3].split(",") if option)
    options = {name: int(value) for name, value in pairs}
    for own in (control, options.get("reports", control)):
        os.set_inheritable(own, False)
    become_subreaper()
    warden = Warden(control, float(arguments[1]), arguments[2], options)
    environment = read_environment(control)
    try:
        warden.start(arguments[4:], environment)
    except (OSError, ValueError) as problem:
        report(control, f"failed {problem}")
        return
    detach_streams()
    report(control, f"started {warden.program}")
    warden.watch()
    left: list[str] = [] if warden.is_ending else warden.left_behind()
    warden.end()
    report(control, f"status {warden.status if warden.status is not None else signal.SIGKILL}")
    if loss := warden.loss():
        report(control, f"lost {loss}")
    for name in left[:50]:
        report(control, f"left {name}")
    report(control, "done")


def set_limits(options: dict[str, int]) -> None:
    """Set resource limits of this process, which the program inherits; never above the present ones."""
    for name, size in options.items():
        if name.isdigit():
            import resource

            hard = resource.getrlimit(int(name))[1]
            size = size if hard == resource.RLIM_INFINITY else min(size, hard)
            resource.setrlimit(int(name), (size, size))


def become_subreaper() -> None:
    """Adopt orphaned descendants, where the system supports it."""
    try:
        # ctypes itself would add a fifth to the start-up time. Importers of this module need neither.
        import _ctypes

        prctl = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]
        _ctypes.call_function(prctl, (PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
    except (ImportError, OSError, AttributeError):
        pass


def read_environment(control: int) -> dict[str, str]:
    """Read the environment that Proctor sends first; exit when the connection closes before that."""
    data = b""
    size = 8
    while len(data) < size:
        chunk = os.read(control, 65536)
        if not chunk:
            sys.exit(1)
        data += chunk
        if len(data) >= 8:
            size = 8 + int(data[:8])
    pairs = (os.fsdecode(pair).partition("=") for pair in data[8:].split(b"\0") if pair)
    return {name: value for name, _, value in pairs}


def detach_streams() -> None:
    """Close this process's copies of the program's pipes, so that they close when the program ends."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)


def report(control: int, line: str) -> None:
    """Send a line to Proctor, which may have ended."""
    data = line.replace("\n", " ").encode("utf-8", "replace") + b"\n"
    try:
        while data:
            data = data[os.write(control, data) :]
    except OSError:
        pass


if __name__ == "__main__":
    main(sys.argv[1:])
