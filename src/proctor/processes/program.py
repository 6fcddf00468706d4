"""Runs programs under a supervisor process, the warden, so that everything they start can be ended.

The socket to the warden is all that has to be awaited: its messages say that the program has started and how
it ended, and closing it ends every process of the program.
"""

import asyncio
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from typing import IO, TypeVar

from proctor.errors import ProctorError, SandboxFailed
from proctor.formatting import KEPT_CHARACTERS, Clip
from proctor.processes import undisturbed, warden
from proctor.processes.streams import (
    ClippedStreamReader,
    LineSplitter,
    StreamReader,
    Unfinished,
    text_decoder,
)

T = TypeVar("T")
ATTEMPT_MARKER = "PROCTOR_ATTEMPT"
"""In the environment of everything an attempt starts, so that it can be found again."""
PROGRAM_MARKER = "PROCTOR_PROGRAM"
"""The same for one program: ending one must not end another of the same attempt."""


class CouldNotStart(ProctorError):
    """The program or folder does not exist, or may not be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramEnd:
    """How a program ended."""

    exit_code: int
    """Its own, or 128 + n when signal n ended it."""
    signal: int | None = None
    """The signal that ended it; None: it exited by itself."""
    leftovers: tuple[str, ...] = ()
    """Commands it had left running, which were ended. Empty unless the program ended by itself."""


Serve = Callable[[socket.socket], AbstractAsyncContextManager[None]]
"""Serves a listening socket while the context is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """How a program is confined; made by `sandbox/`."""

    wrap: "Callable[[Sequence[str], Launch, Mapping[str, int]], list[str]]"
    """The command that starts a program confined: from its arguments and the descriptors it inherits, by
    name: `channel`, to which the sockets of `ports` are sent, `report`, to which the sandbox writes that it
    has started the program, and those of `files`."""
    stays: bool = False
    """Whether the wrapping command is the parent of the program; otherwise it becomes the program."""
    reports: bool = False
    """Whether it writes to `report`."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """Resource limits of each process, by their names in `resource` without `RLIMIT_`."""
    most_processes: int | None = None
    """Number of processes above which all are ended; None: no limit, or the kernel enforces it."""
    files: "Mapping[str, Callable[[Launch], bytes]]" = field(default_factory=dict)
    """What the wrapping command reads from descriptors, by name: too long or too binary for an argument."""
    ports: Mapping[int, Serve] = field(default_factory=dict)
    """Ports on the program's own loopback interface that are served from outside."""
    sockets: Mapping[Path, Serve] = field(default_factory=dict)
    """Unix sockets that are served while the program runs."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Added to the environment of the program."""
    release: Callable[[], Coroutine[object, object, None]] | None = None
    """Called when the program has ended, however it did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A program to start."""

    command: Sequence[str] | str
    """A program and its arguments, or one string for `/bin/sh -c`."""
    folder: Path
    environment: Mapping[str, str]
    """The whole environment; the markers are added."""
    attempt: str
    typed: str | int | None
    """Text on standard input, or a descriptor to read it from; None: empty."""
    grace_seconds: float
    together: bool
    """Whether standard error goes where standard output goes."""
    confinement: Confinement | None = None
    """None: the program may do what this process may."""

    @property
    def arguments(self) -> list[str]:
        """The program and its arguments, unconfined. Raises `ValueError` if there are none."""
        if isinstance(self.command, str):
            return ["/bin/sh", "-c", self.command]
        if not self.command:
            raise ValueError("the command is empty")
        return list(self.command)

    def find_program(self) -> Path:
        """Path of the program. Raises `OSError` if it cannot be executed."""
        name = self.arguments[0]
        if "/" in name:
            # As the system does it: relative to the folder in which the program is started.
            path: str | None = shutil.which(self.folder / name)
        else:
            path = shutil.which(name, path=self.environment.get("PATH", os.defpath))
        if path is None:
            raise FileNotFoundError(2, os.strerror(2), name)
        return Path(path)


class Program:
    """A running program."""

    def __init__(self, link: socket.socket, process: "subprocess.Popen[bytes]", marker: str, grace: float):
        self._link, self._process, self._marker, self._grace = link, process, marker, grace
        self.output = StreamReader()
        """Standard output in chunks."""
        self._errors = ClippedStreamReader()
        self.spoken: Callable[[], str] = lambda: self.stderr
        """Where standard error is kept."""
        self._is_read = False
        self._is_ending = False
        self._loss = ""
        """Why the program did not end by itself, although nobody here ended it."""
        self.channel: socket.socket | None = None
        """To which its launcher sends a byte when it becomes the program; None: it has no launcher inside."""
        self._started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watching = asyncio.ensure_future(self._watch())

    async def lines(self, *, rest_seconds: float | None = None) -> AsyncIterator[str]:
        """Lines of standard output as they arrive, until the program closes it.

        Invalid UTF-8 is replaced; a line of more than 8 MiB is truncated. With `rest_seconds`, an incomplete
        line that does not continue for so long is yielded once as `Unfinished`, and again when complete.
        """
        async for block in self.blocks(rest_seconds=rest_seconds):
            if isinstance(block, Unfinished):
                yield block
            else:
                for line in block[:-1].split("\n"):
                    yield line

    async def blocks(self, *, rest_seconds: float | None = None) -> AsyncIterator[str]:
        """As `lines`, but all lines of a chunk as one text, each with its line end."""
        self._is_read = True
        lines = LineSplitter()
        rested = False
        while True:
            try:
                async with asyncio.timeout(rest_seconds if lines.has_begun and not rested else None):
                    chunk = await self.output.chunk()
            except TimeoutError:
                rested = True
                yield lines.begun
                continue
            if not chunk:
                break
            rested = False
            if block := lines.block(chunk):
                yield block
        for line in lines.rest():
            yield f"{line}\n"

    @property
    def stderr(self) -> str:
        """Standard error so far, head and tail."""
        return self._errors.clip.text

    async def ended(self) -> int:
        """Wait for the end of the program and of everything it started; its exit code.

        Output without a reader is discarded, so that a full pipe does not block the program.
        """
        return (await self.ending()).exit_code

    async def ending(self) -> ProgramEnd:
        """As `ended`, with signal and leftovers.

        Raises `SandboxFailed` if its supervisor or sandbox was killed, or failed: the program's own end is
        not known. Not if this side has ended it.
        """
        draining = None if self._is_read else asyncio.ensure_future(self.output.drain())
        try:
            end = await asyncio.shield(self._watching)
        finally:
            if draining:
                draining.cancel()
        await at_most(1, self._errors.closed())
        if self.channel and not _has_byte(self.channel):
            self.lose("its launcher was killed")
        if self._loss and not self._is_ending:
            raise SandboxFailed(f"the program did not end by itself: {self._loss}{self._reason()}")
        return end

    def _reason(self) -> str:
        """What bubblewrap said of a sandbox that it could not make; the program has said nothing then."""
        said = self.spoken().strip().rpartition("\n")[2]
        return f" ({said})" if said.startswith("bwrap: ") else ""

    def lose(self, why: str) -> None:
        """Declare the program's own end unknown: its sandbox failed."""
        self._loss = self._loss or why

    async def end(self) -> None:
        """End everything now: TERM, the grace period, KILL. Returns when it has ended."""
        if not self._is_ending:
            self._is_ending = True
            try:
                self._link.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # it has ended already
        # The warden needs no longer than this, unless something cannot be killed at all.
        await asyncio.wait({self._watching}, timeout=self._grace + 1)

    def close(self) -> None:
        """Close the pipes, read to the end or not."""
        self.output.close()
        self._errors.close()

    def expect_reader(self) -> None:
        """Announce a reader of `output`, so that it is not discarded."""
        self._is_read = True

    async def begin(self, environment: Mapping[str, str]) -> None:
        """Send the warden the environment, and wait until the program has started."""
        if self._process.stdout is not None:
            self.output.connect(self._process.stdout)
        if self._process.stderr is not None:
            self._errors.connect(self._process.stderr)
        try:
            await asyncio.get_running_loop().sock_sendall(self._link, _packed(environment))
        except ConnectionError:
            pass  # the warden has died; `_watch` reports it
        await self._started

    async def _watch(self) -> ProgramEnd:
        """Read the warden's messages until it exits."""
        messages = [line async for line in self._messages()]
        # The warden closes its end of the socket as it exits, so this waits for microseconds.
        self._process.wait()
        if not messages or (messages[-1] != "done" and not messages[-1].startswith("failed")):
            self.lose("its supervisor was killed")
            # The warden was killed. The processes it supervised still carry the marker.
            await asyncio.to_thread(end_marked, self._marker, self._grace)
        # A killed warden may have started the program without reporting it.
        code = self._process.returncode
        self._receive("started" if code < 0 else f"failed the warden exited with {code}")
        for line in messages:
            if line.startswith("lost "):
                self.lose(line.removeprefix("lost "))
        return _end_of(messages)

    async def _messages(self) -> AsyncIterator[str]:
        loop = asyncio.get_running_loop()
        lines = LineSplitter()
        try:
            while chunk := await loop.sock_recv(self._link, 65536):
                for line in lines.feed(chunk):
                    self._receive(line)
                    yield line
        except ConnectionError:
            pass
        finally:
            self._link.close()

    def _receive(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if self._started.done():
            return
        if word == "started":
            self._started.set_result(None)
        elif word == "failed":
            self._started.set_exception(CouldNotStart(rest))
            # The waiter may have been cancelled: mark the exception as retrieved.
            self._started.exception()


@asynccontextmanager
async def _running(launch: Launch) -> AsyncIterator[Program]:
    """A program whose ports are served. When the block is left, everything has ended."""
    confinement = launch.confinement
    async with AsyncExitStack() as stack:
        if confinement and confinement.release:
            stack.push_async_callback(confinement.release)
        for path, serve in confinement.sockets.items() if confinement else ():
            await stack.enter_async_context(serve(listening_socket(path)))
        ports = tuple(confinement.ports.values()) if confinement else ()
        near, channel = socket.socketpair() if ports else (None, None)
        if near:
            stack.callback(near.close)
        try:
            program = await start(launch, channel)
        finally:
            if channel:
                channel.close()
        try:
            if near:
                listeners = await _listeners(near, len(ports))
                if len(listeners) < len(ports):
                    program.lose("its launcher ended before it had opened the ports")
                program.channel = near
                for serve, listener in zip(ports, listeners, strict=False):
                    await stack.enter_async_context(serve(listener))
            yield program
        finally:
            try:
                await undisturbed(program.end())
            finally:
                program.close()


def listening_socket(path: Path) -> socket.socket:
    """A Unix socket that listens at a path of any length: an address has at most 107 bytes."""
    link = socket.socket(socket.AF_UNIX)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        link.bind(f"/proc/self/fd/{folder}/{path.name}" if Path("/proc/self/fd").exists() else str(path))
    finally:
        os.close(folder)
    link.listen(1024)
    return link


async def _listeners(near: socket.socket, count: int) -> list[socket.socket]:
    """The sockets that the program's launcher opens; none if it fails."""
    near.setblocking(False)
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(near, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(near)
    return [socket.socket(fileno=number) for number in socket.recv_fds(near, 1, count)[1]]


def _has_byte(channel: socket.socket) -> bool:
    try:
        return bool(channel.recv(1, socket.MSG_PEEK))
    except OSError:
        return False


async def start(launch: Launch, channel: socket.socket | None = None) -> Program:
    """Start a warden and its program. When cancelled meanwhile, everything is ended.

    The program inherits `channel`.
    """
    marker = uuid.uuid4().hex
    markers = {ATTEMPT_MARKER: launch.attempt, PROGRAM_MARKER: marker}
    variables = launch.confinement.variables if launch.confinement else {}
    link, far = socket.socketpair()
    link.setblocking(False)
    try:
        process = _start_warden(launch, far, f"{PROGRAM_MARKER}={marker}", channel)
    except (OSError, ValueError) as problem:
        link.close()
        raise CouldNotStart(str(problem)) from problem
    finally:
        far.close()
    program = Program(link, process, f"{PROGRAM_MARKER}={marker}", launch.grace_seconds)
    try:
        await program.begin({**launch.environment, **variables, **markers})
    except BaseException:
        await undisturbed(program.end())
        program.close()
        raise
    return program


def _start_warden(
    launch: Launch, far: socket.socket, marker: str, channel: socket.socket | None
) -> "subprocess.Popen[bytes]":
    arguments, confinement = launch.arguments, launch.confinement
    options: dict[str, int] = {}
    descriptors = {"channel": channel.fileno()} if channel else {}
    with ExitStack() as stack:
        if confinement:
            if confinement.reports:
                options["reports"], descriptors["report"] = os.pipe()
                for end in (options["reports"], descriptors["report"]):
                    stack.callback(os.close, end)
            for name, content in confinement.files.items():
                descriptors[name] = stack.enter_context(_file_of(content(launch))).fileno()
            arguments = confinement.wrap(arguments, launch, descriptors)
            options |= {
                str(getattr(resource, f"RLIMIT_{name}")): size for name, size in confinement.limits.items()
            }
            options |= descriptors
            options |= {"stays": 1} if confinement.stays else {}
            options |= {"processes": confinement.most_processes} if confinement.most_processes else {}
        text = ",".join(f"{name}={value}" for name, value in options.items())
        about = [str(far.fileno()), str(launch.grace_seconds), marker, text]
        stdin = stack.enter_context(_standard_input(launch.typed))
        inherited = [far.fileno(), *descriptors.values()]
        inherited += [options["reports"]] if "reports" in options else []
        return subprocess.Popen(
            [sys.executable, "-I", "-S", _warden_file(), *about, *arguments],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if launch.together else subprocess.PIPE,
            cwd=launch.folder,
            env=_warden_environment(launch),
            pass_fds=inherited,
            start_new_session=True,
        )


def _warden_file() -> str:
    """The compiled file of the warden if it is up to date: compiling is a sixth of its start.

    Checked at each start, because compiled files may be removed while a batch runs.
    """
    source, compiled = warden.__file__, str(getattr(warden, "__cached__", ""))
    try:
        with Path(compiled).open("rb") as file:
            header = file.read(16)
        state = Path(source).stat()
    except OSError:
        return source
    numbers = (0, int(state.st_mtime), state.st_size)
    expected = MAGIC_NUMBER + b"".join((number & 0xFFFFFFFF).to_bytes(4, "little") for number in numbers)
    return compiled if header == expected else source


def _warden_environment(launch: Launch) -> dict[str, str]:
    """The warden's own environment: none of the program's, except where Python finds its library."""
    # Without the second, Python would set LC_CTYPE for all that the warden starts.
    own = {ATTEMPT_MARKER: launch.attempt, "PYTHONCOERCECLOCALE": "0"}
    if library := launch.environment.get("LD_LIBRARY_PATH"):
        own["LD_LIBRARY_PATH"] = library
    return own


def _standard_input(typed: str | int | None) -> IO[bytes]:
    """A text is a finite file: nothing has to be written while the program runs, and it never waits."""
    if typed is None:
        return Path(os.devnull).open("rb")
    if isinstance(typed, int):
        return os.fdopen(typed, "rb", closefd=False)
    return _file_of(typed.encode("utf-8", "replace"))


def _file_of(content: bytes) -> IO[bytes]:
    """A file without a name."""
    if hasattr(os, "memfd_create"):
        file: IO[bytes] = os.fdopen(os.memfd_create("content"), "w+b")
    else:
        file = tempfile.TemporaryFile()  # noqa: SIM115 (closed by the caller)
    file.write(content)
    file.seek(0)
    return file


def _packed(environment: Mapping[str, str]) -> bytes:
    body = b"\0".join(os.fsencode(f"{name}={value}") for name, value in environment.items())
    return b"%08d" % len(body) + body


def _end_of(messages: Sequence[str]) -> ProgramEnd:
    reports = [line.partition(" ") for line in messages]
    statuses = [int(rest) for word, _, rest in reports if word == "status"]
    # Without a status the warden was killed, and then the program.
    code = os.waitstatus_to_exitcode(statuses[0]) if statuses else -9
    left = tuple(rest for word, _, rest in reports if word == "left")
    if code >= 0:
        return ProgramEnd(exit_code=code, leftovers=left)
    return ProgramEnd(exit_code=128 - code, signal=-code, leftovers=left)


def end_marked(marker: str, grace_seconds: float) -> list[str]:
    """End all processes with `NAME=value` in their environment and their descendants; their commands."""
    spared = {os.getpid()} | warden.ancestors_of(os.getpid())

    # A process that cleared its environment is known by its parent only, and remains when that has ended.
    known: dict[int, bytes] = {}

    def remaining() -> list[int]:
        marked = [pid for pid in warden.marked_with(marker) if pid not in spared]
        orphans = [
            pid for pid, born in known.items() if warden.birth_of(pid) == born and warden.is_alive(pid)
        ]
        below = [pid for parent in (*marked, *orphans) for pid in warden.descendants_of(parent)]
        every = [pid for pid in dict.fromkeys((*marked, *orphans, *below)) if pid not in spared]
        known.update({pid: warden.birth_of(pid) for pid in every})
        return every

    names = sorted(map(warden.name_of, remaining()))
    # A warden among them gives its own program a grace period, and must not be killed before that is over.
    warden.end_all(remaining, grace_seconds + 0.5, time.sleep)
    return names


async def at_most(seconds: float, work: Coroutine[object, object, None]) -> None:
    """Wait for `work` for this long at most, then cancel it silently."""
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        pass


GRACE_SECONDS = 5.0
"""How long a program may take after TERM before it is killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramResult:
    """A program that has ended, with its output."""

    exit_code: int
    """Its own, or 128 + n when signal n ended it."""
    output: str
    """Standard output and standard error interleaved, head and tail."""
    duration_ms: float
    timed_out: bool = False
    """It was ended at its time limit."""
    signal: int | None = None
    """The signal that ended it; None: it exited by itself."""
    leftovers: tuple[str, ...] = ()
    """Commands it had left running, which were ended."""


@asynccontextmanager
async def started(
    command: Sequence[str] | str,
    *,
    folder: Path,
    environment: Mapping[str, str],
    attempt: str,
    typed: str | int | None = None,
    grace_seconds: float = GRACE_SECONDS,
    confinement: Confinement | None = None,
) -> AsyncIterator[Program]:
    """Start a program; when the block is left, in whatever way, everything it started has ended.

    A list is a program and its arguments, a string is for `/bin/sh -c`. `environment` is the whole
    environment, `typed` the text on standard input, or a descriptor to read it from (None: empty). Raises
    `CouldNotStart`.
    """
    launch = Launch(
        command=command,
        folder=folder,
        environment=environment,
        attempt=attempt,
        typed=typed,
        grace_seconds=grace_seconds,
        together=False,
        confinement=confinement,
    )
    async with _running(launch) as program:
        yield program


async def run(
    command: Sequence[str] | str,
    *,
    folder: Path,
    environment: Mapping[str, str],
    attempt: str,
    typed: str | None = None,
    time_limit: float | None = None,
    grace_seconds: float = GRACE_SECONDS,
    keep: int = KEPT_CHARACTERS,
    confinement: Confinement | None = None,
) -> ProgramResult:
    """Run a program to its end, or to its time limit in seconds.

    The first arguments are those of `started`; `keep` is how many characters of the output's head,
    and of its tail, are kept.
    """
    launch = Launch(
        command=command,
        folder=folder,
        environment=environment,
        attempt=attempt,
        typed=typed,
        grace_seconds=grace_seconds,
        together=True,
        confinement=confinement,
    )
    started_at = time.monotonic()
    async with _running(launch) as program:
        output = _Output(program, keep)
        timed_out = await _run_within(time_limit, program, output)
        end = await program.ending()
    return ProgramResult(
        exit_code=end.exit_code,
        output=output.clip.text,
        duration_ms=(time.monotonic() - started_at) * 1000,
        timed_out=timed_out,
        signal=end.signal,
        leftovers=end.leftovers,
    )


async def _run_within(time_limit: float | None, program: Program, output: "_Output") -> bool:
    """Wait for the end of a program or its time limit; whether the limit was reached."""
    try:
        async with asyncio.timeout(time_limit):
            await output.read()
            await program.ending()
        return False
    except TimeoutError:
        return True
    finally:
        await undisturbed(program.end())
        # Output from before it was ended is still in the pipe.
        await at_most(1, output.read())


class _Output:
    """Output of a program as far as it has been read, head and tail."""

    def __init__(self, program: Program, keep: int) -> None:
        self.clip = Clip(keep)
        self._decode = text_decoder()
        self._program = program
        program.spoken = lambda: self.clip.text
        program.expect_reader()

    async def read(self) -> None:
        while chunk := await self._program.output.chunk():
            self.clip.add(self._decode(chunk))


def end_attempt(attempt: str, *, grace_seconds: float = GRACE_SECONDS) -> list[str]:
    """End what an attempt of a dead process has left running; the commands that were ended.

    Found by the marker in their environment. Never ends this process or one it descends from.
    Blocks for up to the grace period, so call it from a thread.
    """
    return end_marked(f"{ATTEMPT_MARKER}={attempt}", grace_seconds)
