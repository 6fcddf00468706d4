"""Runs `proctor` commands in forks of one process that has loaded it already.

Loading `proctor` takes half a second of processor time, most commands a few milliseconds. A fork is still a
process: working folder, environment, signal handlers, event loop, caches and exit are its own, and several
commands can run at the same time. What it does not show is how `proctor` starts; `Command.process` and
`Command.start` are for that.

Run as a program, this file is the server. It imports nothing of the tests.
"""

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

MAX_REQUEST_BYTES = 1 << 20
MAX_REPLY_BYTES = 1 << 12


@dataclass
class CommandServer:
    """Client of the server process, which is started by the first command and ended by `close`."""

    environment: Mapping[str, str]
    """Of the server itself. Commands get the environment they are given."""
    _control: socket.socket | None = None
    _process: "subprocess.Popen[bytes] | None" = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(
        self,
        words: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        stdin: str,
        timeout: float,
    ) -> "subprocess.CompletedProcess[str]":
        """Run one command to its end; may be called from several threads."""
        request = {"words": list(words), "folder": str(folder), "environment": dict(environment)}
        with (
            tempfile.TemporaryFile() as read,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
        ):
            read.write(stdin.encode())
            read.seek(0)
            returncode = self._ask(request, [read.fileno(), out.fileno(), err.fileno()], timeout)
            printed, notes = (_text(file.fileno()) for file in (out, err))
        return subprocess.CompletedProcess(["proctor", *words], returncode, printed, notes)

    def close(self) -> None:
        """End the server. Commands that are still running go on."""
        if self._control and self._process:
            self._control.close()
            self._process.wait(timeout=10)

    def _ask(self, request: Mapping[str, Any], files: list[int], timeout: float) -> int:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        deadline = time.monotonic() + timeout
        with ours:
            with theirs, self._lock:
                socket.send_fds(self._started(), [json.dumps(request).encode()], [theirs.fileno(), *files])
            pid = 0
            while True:
                ours.settimeout(max(0.01, deadline - time.monotonic()))
                try:
                    reply = json.loads(ours.recv(MAX_REPLY_BYTES) or "{}")
                except TimeoutError:
                    os.kill(pid, signal.SIGKILL)
                    raise subprocess.TimeoutExpired(request["words"], timeout) from None
                if "returncode" in reply:
                    return int(reply["returncode"])
                assert reply, "the command server has ended"
                pid = reply["pid"]

    def _started(self) -> socket.socket:
        if self._control is None:
            self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_REQUEST_BYTES)
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, __file__, str(theirs.fileno())],
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                )
        return self._control


def _text(number: int) -> str:
    # As `subprocess` reads text: line ends are \n.
    data = os.pread(number, os.fstat(number).st_size, 0)
    return data.decode().replace("\r\n", "\n").replace("\r", "\n")


class _ImportReporter:
    """Meta path finder that finds nothing, and writes down the name of each module a command loads."""

    def __init__(self, names: BinaryIO) -> None:
        self._names = names

    def find_spec(self, name: str, *_: Any) -> None:
        self._names.write(f"{name}\n".encode())
        self._names.flush()


@dataclass
class _Running:
    """A command that has not ended yet, as the server sees it."""

    pid: int
    reply: socket.socket
    names: BinaryIO
    """The modules it loads, one a line. At its end when the process has ended, however that came."""

    def end(self) -> None:
        """Report the exit code; then load what the command had to load, so that the next need not."""
        loaded = self.names.read().decode().split()
        _, status = os.waitpid(self.pid, 0)
        returncode = os.waitstatus_to_exitcode(status)
        with self.reply, self.names:
            self.reply.send(json.dumps({"returncode": returncode}).encode())
        for name in loaded:
            _load(name)


def serve(control: socket.socket) -> None:
    """Fork a process for each request until the client closes its end."""
    # A terminal's Ctrl-C reaches every process of its group; the client decides when we end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The folder of this file: a command has its working folder there.
    del sys.path[0]
    _load("proctor.__main__")
    selector = selectors.DefaultSelector()
    selector.register(control, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is not control:
                selector.unregister(key.fileobj)
                key.data.end()
                continue
            data, files, *_ = socket.recv_fds(control, MAX_REQUEST_BYTES, 4)
            if not data:
                return
            running = _fork(json.loads(data), files, control)
            selector.register(running.names, selectors.EVENT_READ, running)


def _fork(request: Mapping[str, Any], files: Sequence[int], control: socket.socket) -> _Running:
    reply, *standard = files
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        control.close()
        os.close(reading)
        os.close(reply)
        sys.meta_path.insert(0, _ImportReporter(os.fdopen(writing, "wb")))  # type: ignore[arg-type]
        _become(request, standard)
    os.close(writing)
    for number in standard:
        os.close(number)
    answered = socket.socket(fileno=reply)
    answered.send(json.dumps({"pid": pid}).encode())
    return _Running(pid, answered, os.fdopen(reading, "rb"))


def _become(request: Mapping[str, Any], standard: Sequence[int]) -> NoReturn:
    """Be `python -m proctor WORDS…` in the given folder and environment."""
    from proctor import __main__

    for number, file in enumerate(standard):
        os.dup2(file, number)
        os.close(file)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    tempfile.tempdir = None
    sys.path.insert(0, request["folder"])
    sys.argv[:] = [str(__main__.__file__), *request["words"]]
    try:
        __main__.run()
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    os._exit(1)


def _load(name: str) -> None:
    try:
        import_module(name)
    except Exception:
        # A module of the command's own folder, or one that is not installed.
        pass


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as given:
        serve(given)
