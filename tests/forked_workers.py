"""`pytest --workers 4` runs the tests in forks of one process that has collected them.

Collecting ten thousand tests takes five seconds of processor time, and eighteen where no test file is
compiled. `pytest -n 4` of pytest-xdist does it in each of its workers; here it is done once.

Each worker begins with a part of the tests of its own, in their order. One that has nothing left takes over
half of what another has left, by whole files if there are several: fixtures of a file are made seldom twice.
A worker that dies fails the test that it was running, and another goes on.
"""

import os
import random
import sys
import threading
import traceback
import warnings
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, NoReturn

import pytest

CHECK_SECONDS = 5.0
"""How often the workers are checked. A process that a dead one has forked may keep its connection open."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=0, help="run the tests in so many forks of this process")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in forks, if the command line says so."""
    count = min(session.config.getoption("workers"), len(session.items))
    is_refused = session.testsfailed and not session.config.option.continue_on_collection_errors
    if count < 1 or is_refused or session.config.option.collectonly:
        return None
    _Pool(session, count).run()
    return True


@dataclass(eq=False)
class _Worker:
    number: int
    process: int
    connection: Connection
    waiting: deque[int]
    """Indexes of its tests that it has not been given yet."""
    given: deque[int] = field(default_factory=deque)
    """Those that it has: the one that it runs, and the next, which decides what is torn down."""
    is_ending: bool = False
    """It knows that there is nothing more."""


class _Pool:
    def __init__(self, session: pytest.Session, count: int) -> None:
        self._session, self._config, self._count = session, session.config, count
        self._workers: list[_Worker] = []
        self._forks = 0
        self._files = [item.path for item in session.items]

    def run(self) -> None:
        """Run all tests, or as many as the session's options allow."""
        # Made before the forks, which have folders of their own in it.
        self._config._tmp_path_factory.getbasetemp()
        self._warn_of_threads()
        number, count = len(self._files), self._count
        parts = [range(number * part // count, number * (part + 1) // count) for part in range(count)]
        try:
            for part in parts:
                self._start(part)
            while self._workers:
                self._receive()
        finally:
            # Where we end early: they end after the test that they run, and what they have started with them.
            for worker in self._workers:
                worker.connection.close()
            for worker in self._workers:
                os.waitpid(worker.process, 0)

    @property
    def _is_stopped(self) -> bool:
        return bool(self._session.shouldstop or self._session.shouldfail)

    def _warn_of_threads(self) -> None:
        if others := [thread.name for thread in threading.enumerate()[1:]]:
            warnings.warn(f"threads are lost in the workers: {', '.join(others)}", stacklevel=2)

    def _start(self, indexes: Sequence[int]) -> None:
        mine, its = Pipe()
        number, self._forks = self._forks, self._forks + 1
        sys.stdout.flush()
        sys.stderr.flush()
        process = os.fork()
        if process == 0:
            mine.close()
            for other in self._workers:
                other.connection.close()
            _run_worker(self._session, number, its)
        its.close()
        worker = _Worker(number, process, mine, deque(indexes))
        self._workers.append(worker)
        self._give(worker)
        self._give(worker)

    def _give(self, worker: _Worker) -> None:
        """Give it its next test, or say that there is none."""
        if worker.is_ending:
            return
        is_stopped = self._is_stopped
        if not worker.waiting and not is_stopped:
            worker.waiting.extend(self._take_over())
        index = worker.waiting.popleft() if worker.waiting and not is_stopped else None
        if index is None:
            worker.is_ending = True
        else:
            worker.given.append(index)
        try:
            worker.connection.send(index)
        except OSError:
            # It has died; the end of its connection comes with what it had sent.
            pass

    def _take_over(self) -> list[int]:
        """The second half of the longest list of tests that nobody runs yet."""
        waiting = max((worker.waiting for worker in self._workers), key=len)
        indexes = list(waiting)
        middle = len(indexes) // 2
        firsts = [
            place
            for place in range(middle // 2 + 1, len(indexes) - middle // 2)
            if self._files[indexes[place]] != self._files[indexes[place - 1]]
        ]
        cut = min(firsts, key=lambda place: abs(place - middle), default=middle)
        waiting.clear()
        waiting.extend(indexes[:cut])
        return indexes[cut:]

    def _receive(self) -> None:
        ready = wait([worker.connection for worker in self._workers], CHECK_SECONDS)
        for worker in [worker for worker in self._workers if worker.connection in ready]:
            try:
                message = worker.connection.recv()
            except (EOFError, OSError):
                self._end(worker, os.waitstatus_to_exitcode(os.waitpid(worker.process, 0)[1]))
                continue
            getattr(self, f"_on_{message[0]}")(worker, *message[1:])
        if not ready:
            for worker in list(self._workers):
                process, status = os.waitpid(worker.process, os.WNOHANG)
                if process:
                    self._end(worker, os.waitstatus_to_exitcode(status))

    def _on_report(self, worker: _Worker, data: dict[str, Any]) -> None:
        hook = self._config.hook
        hook.pytest_runtest_logreport(
            report=hook.pytest_report_from_serializable(config=self._config, data=data)
        )

    def _on_warning(self, worker: _Worker, warning: dict[str, Any], when: str, nodeid: str) -> None:
        message = warnings.WarningMessage(**warning)
        self._config.hook.pytest_warning_recorded.call_historic(
            kwargs={"warning_message": message, "when": when, "nodeid": nodeid, "location": None}
        )

    def _on_finished(self, worker: _Worker, index: int) -> None:
        worker.given.remove(index)
        item = self._session.items[index]
        self._config.hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        self._give(worker)

    def _end(self, worker: _Worker, code: int) -> None:
        """Forget a worker; start another for what it had left if it died."""
        self._workers.remove(worker)
        worker.connection.close()
        if worker.given:
            item = self._session.items[worker.given.popleft()]
            text = f"the worker died of this test: exit code {code}"
            report = pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")
            self._config.hook.pytest_runtest_logreport(report=report)
        elif code:
            raise RuntimeError(f"worker {worker.number} ended with exit code {code}")
        if (left := [*worker.given, *worker.waiting]) and not self._is_stopped:
            self._start(left)


def _run_worker(session: pytest.Session, number: int, connection: Connection) -> NoReturn:
    """Run the tests whose indexes come, and report on them."""
    code = 1
    try:
        _separate(session.config, number)
        messages = _Messages(session.config, connection)
        session.config.pluginmanager.register(messages)
        messages.are_sent = True
        current = connection.recv()
        while current is not None:
            following = connection.recv()
            item, next_item = session.items[current], None if following is None else session.items[following]
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=next_item)
            connection.send(("finished", current))
            current = following
        code = 0
    except (EOFError, KeyboardInterrupt):
        # Whoever started us has ended, or ends.
        pass
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
    finally:
        try:
            session._setupstate.teardown_exact(None)
            weakref.finalize._exitfunc()
        finally:
            # Nothing else of pytest's end: it is that of the first process.
            os._exit(code)


def _separate(config: pytest.Config, number: int) -> None:
    """Give a worker what it must not share with the others."""
    random.seed()
    for inherited in list(weakref.finalize._registry):
        inherited.detach()
    manager = config.pluginmanager
    if reporter := manager.get_plugin("terminalreporter"):
        manager.unregister(reporter)
    # Its files for captured output are open in all of them.
    capture = manager.get_plugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture()
    folder = config._tmp_path_factory.getbasetemp() / f"worker{number}"
    folder.mkdir(mode=0o700)
    config._tmp_path_factory._basetemp = folder


class _Messages:
    """Sends what happens in a worker to the first process."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config, self._connection = config, connection
        self.are_sent = False
        """Not while it is registered: it then gets all earlier warnings."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._connection.send(("report", data))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str
    ) -> None:
        if not self.are_sent:
            return
        text = f"{warning_message.category.__name__}: {warning_message.message}"
        warning = {"message": text, "category": UserWarning, "filename": warning_message.filename}
        self._connection.send(("warning", warning | {"lineno": warning_message.lineno}, when, nodeid))
