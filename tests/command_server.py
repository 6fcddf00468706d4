"""Runs `proctor` commands in forks of one process that has loaded it already.

Loading `proctor` takes half a second of processor time, most commands a few milliseconds. A fork is still a
process: working folder, environment, signal handlers, event loop, caches and exit are its own, it can be
killed, and several commands can run at the same time. What it does not show is how `proctor` starts;
`Command.process` is for that.

Run as a program, this file is the server. It imports nothing of the tests.
"""

import gc
import json
import os
import resource
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

MAX_REQUEST_BYTES = 1 << 17
MAX_REPLY_BYTES = 1 << 10
GC_THRESHOLD = (100_000, 50, 100)
"""A search for garbage is only worth its time in processes that live longer."""
FORWARDING = Path(__file__).parent / "forwarded_command.py"


class CommandServer:
    """Client of the server process, which is started by the first command and ended by `close`."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """`environment` is the server's own; commands are given theirs."""
        self._environment = environment
        # Not in pytest's folder: the path of a socket has at most 107 characters.
        self._folder = tempfile.TemporaryDirectory(prefix="proctor-commands-")
        self._path = Path(self._folder.name) / "socket"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(self._path))
        self._listener.listen(100)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def program(self) -> list[str]:
        """The words of a command line that runs the words behind it in a fork."""
        self.start_process()
        # Neither the environment nor site-packages matter to it: it starts in 20 ms.
        return [sys.executable, "-I", "-S", str(FORWARDING), str(self._path)]

    def run(
        self,
        words: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        stdin: str = "",
        timeout: float = 600,
    ) -> "subprocess.CompletedProcess[str]":
        """Run one command to its end; may be called from several threads."""
        request = {"words": words, "folder": str(folder), "environment": dict(environment)}
        with (
            tempfile.TemporaryFile() as given,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
        ):
            given.write(stdin.encode())
            given.seek(0)
            returncode = self._ask(request, [given.fileno(), out.fileno(), err.fileno()], timeout)
            printed, notes = (_text(file.fileno()) for file in (out, err))
        return subprocess.CompletedProcess(["proctor", *words], returncode, printed, notes)

    def start(
        self,
        words: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        separate_errors: bool = False,
    ) -> "StartedCommand":
        """Start one command and go on; whoever starts it ends it.

        Standard error goes to `stdout` unless it is to be separate.
        """
        self.start_process()
        request = {"words": words, "folder": str(folder), "environment": dict(environment)}
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.connect(str(self._path))
        pipes = [os.pipe() for _ in range(2 if separate_errors else 1)]
        nothing = os.open(os.devnull, os.O_RDONLY)
        files = [nothing, pipes[0][1], pipes[-1][1]]
        socket.send_fds(connection, [json.dumps(request).encode()], files)
        for file in set(files):
            os.close(file)
        return StartedCommand(["proctor", *words], connection, [reading for reading, _ in pipes])

    def close(self) -> None:
        """End the server. Commands that are still running go on."""
        self._listener.close()
        if self._process and self._process.stdin:
            self._process.stdin.close()
            self._process.wait(timeout=600)
        self._folder.cleanup()

    def _ask(self, request: Mapping[str, Any], files: Sequence[int], timeout: float) -> int:
        self.start_process()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(str(self._path))
            socket.send_fds(connection, [json.dumps(request).encode()], files)
            connection.settimeout(timeout)
            try:
                _receive(connection)
                return _receive(connection)
            except TimeoutError:
                # The server kills a command whose client has gone.
                raise subprocess.TimeoutExpired(request["words"], timeout) from None

    def start_process(self) -> None:
        """Start the server, unless it runs."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(self._listener.fileno())],
                env=self._environment,
                stdin=subprocess.PIPE,
                pass_fds=[self._listener.fileno()],
            )


class StartedCommand:
    """A command that runs in a fork, with the members of `subprocess.Popen` that tests use."""

    def __init__(self, args: Sequence[str], connection: socket.socket, outputs: Sequence[int]) -> None:
        self.args, self._connection = args, connection
        self._outputs = [os.fdopen(each, encoding="utf-8") for each in outputs]
        self.stdout = self._outputs[0]
        self.stderr = self._outputs[1] if len(outputs) > 1 else None
        self.returncode: int | None = None
        self.pid = _receive(connection)

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; the exit code."""
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                self.returncode = _receive(self._connection)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(self.args, timeout or 0) from None
            self._connection.close()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for its end and for that of its outputs; the outputs."""
        until = None if timeout is None else time.monotonic() + timeout
        parts = dict.fromkeys(self._outputs, b"")
        with selectors.DefaultSelector() as selector:
            for file in self._outputs:
                selector.register(file, selectors.EVENT_READ)
            while selector.get_map():
                ready = selector.select(None if until is None else max(0.0, until - time.monotonic()))
                if not ready:
                    raise subprocess.TimeoutExpired(self.args, timeout or 0)
                for key, _ in ready:
                    part = os.read(key.fd, 1 << 16)
                    parts[key.fileobj] += part  # type: ignore[index]
                    if not part:
                        selector.unregister(key.fileobj)
        self.wait(None if until is None else max(0.1, until - time.monotonic()))
        self._close()
        texts = [part.decode() for part in parts.values()]
        return texts[0], texts[1] if self.stderr else ""

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            # Its parent, the server of commands, may have waited for it meanwhile.
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> "StartedCommand":
        return self

    def __exit__(self, *_: object) -> None:
        self._close()
        self.wait()

    def _close(self) -> None:
        for file in self._outputs:
            file.close()


def _receive(connection: socket.socket) -> int:
    """A number from the server: first the id of the process, then its exit code."""
    reply = connection.recv(MAX_REPLY_BYTES)
    assert reply, "the server of commands has ended"
    return int(reply)


def _text(file: int) -> str:
    # As `subprocess` reads text: lines end with \n.
    data = os.pread(file, os.fstat(file).st_size, 0)
    return data.decode().replace("\r\n", "\n").replace("\r", "\n")


class _ImportReporter:
    """Meta path finder that finds nothing, and writes the name of each module a command loads to a pipe."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    def find_spec(self, name: str, *_: Any) -> None:
        os.write(self._pipe, f"{name} ".encode())


@dataclass
class _Running:
    """A command that has not ended yet, as the server sees it."""

    pid: int
    client: socket.socket
    pipe: int
    """The names of the modules it loads. At its end when the process has ended, however that came."""
    loaded: bytes = b""

    def has_ended(self) -> bool:
        """Read what is in the pipe, and whether there is no more to come."""
        part = os.read(self.pipe, 1 << 16)
        self.loaded += part
        return not part

    def report(self) -> None:
        """Send the exit code; then load what the command had to load, so that the next need not."""
        os.close(self.pipe)
        _, status = os.waitpid(self.pid, 0)
        with self.client:
            try:
                self.client.send(str(os.waitstatus_to_exitcode(status)).encode())
            except OSError:
                # The client has gone, and the command was killed.
                return
        for name in self.loaded.decode().split():
            _load(name)
        # A collection would write to pages that all forks share.
        gc.freeze()


def serve(listener: socket.socket) -> None:
    """Fork a process for each request until standard input ends."""
    # A terminal's Ctrl-C reaches every process of its group; the client decides when we end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The folder of this file: a command has its working folder there.
    del sys.path[0]
    gc.set_threshold(*GC_THRESHOLD)
    _load("proctor.__main__")
    selector = selectors.DefaultSelector()
    selector.register(sys.stdin, selectors.EVENT_READ)
    selector.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            running: _Running = key.data
            if key.fileobj is sys.stdin:
                return
            if key.fileobj is listener:
                client, _ = listener.accept()
                data, files, *_ = socket.recv_fds(client, MAX_REQUEST_BYTES, 3)
                running = _fork(json.loads(data), files, client)
                selector.register(running.pipe, selectors.EVENT_READ, running)
                selector.register(client, selectors.EVENT_READ, running)
            elif key.fileobj is running.client:
                # It has nothing more to send: it has gone.
                selector.unregister(running.client)
                os.kill(running.pid, signal.SIGKILL)
            elif running.has_ended():
                selector.unregister(running.pipe)
                if running.client in selector.get_map():
                    selector.unregister(running.client)
                running.report()
                # What else was ready may have belonged to it.
                break


def _fork(request: Mapping[str, Any], files: Sequence[int], client: socket.socket) -> _Running:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        for number, file in enumerate(files):
            os.dup2(file, number)
        os.closerange(3, writing)
        os.closerange(writing + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        sys.meta_path.insert(0, _ImportReporter(writing))  # type: ignore[arg-type]
        _become(request)
    os.close(writing)
    for file in files:
        os.close(file)
    client.send(str(pid).encode())
    return _Running(pid, client, reading)


def _become(request: Mapping[str, Any]) -> NoReturn:
    """Be `python -m proctor WORDS…` in the given folder and environment."""
    from proctor import __main__

    signal.signal(signal.SIGINT, signal.default_int_handler)
    if request.get("session"):
        os.setsid()
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    if os.environ.get("PYTHONUNBUFFERED"):
        # Python reads it when it starts, and this process has started.
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    time.tzset()
    tempfile.tempdir = None
    sys.path.insert(0, request["folder"])
    sys.argv[:] = [str(__main__.__file__), *request["words"]]
    try:
        __main__.run()
    except BaseException:
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(1)


def _load(name: str) -> None:
    try:
        module = import_module(name)
    except Exception:
        # A module of the command's own folder, or one that is not installed.
        return
    for model in vars(module).values() if name.startswith("proctor.") else ():
        # The schema of a plan, which is built when one is first read.
        if getattr(model, "__module__", "") == name and not getattr(model, "__pydantic_complete__", True):
            model.model_rebuild()
    if name == "proctor.report.render":
        # Compiling the template of a report takes longer than most commands.
        for template in module._TEMPLATES:
            module._environment(escaped=".html" in template).get_template(template)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
