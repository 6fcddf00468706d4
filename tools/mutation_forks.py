"""Tests mutants in forks of one pytest process that has collected the tests: seconds a mutant, not a minute.

A pytest plugin for a work copy (`mutation_tests.py`), controlled by `run_in_forks`. A mutant in the body of
a function replaces the code of the loaded function; its file is changed as well, for modules that are loaded
later and for processes that tests start. Mutants outside of functions cannot be tested here: what they change
was executed when the module was loaded.

A mutant is killed when one of its tests fails, fails again in another fork, and passes without the mutant. A
test that exceeds its time limit twice, and needs less than a quarter of it without the mutant, is a hang.
"""

import ast
import ctypes
import gc
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from mutation_sites import Mutant, read_text

REQUESTS, RESULTS = "MUTANT_REQUESTS", "MUTANT_RESULTS"
"""Variables with the path of the file of mutants and tests, one JSON object a line, and with the descriptor
to which a result is written for each."""
PR_SET_PDEATHSIG = 1
Place = tuple[str, str, int]
"""File, qualified name and first line of a function."""


def is_in_function(mutant: Mutant, text: str) -> bool:
    """Whether a mutant is in the body of a function, and so takes effect when that is called next."""
    functions = (
        node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return any(node.body[0].lineno <= mutant.line <= (node.end_lineno or 0) for node in functions)


# --- In the pytest process ---


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Test the requested mutants instead of running the tests."""
    if REQUESTS not in os.environ:
        return None
    tests = {item.nodeid: item for item in session.items}
    output = os.fdopen(int(os.environ[RESULTS]), "w")
    with Path(os.environ[REQUESTS]).open(encoding="utf-8") as requests:
        for line in requests:
            request = json.loads(line)
            mutant = Mutant(**request["mutant"])
            chosen = [tests[name] for name in request["tests"] if name in tests]
            until = time.monotonic() + request["mutantSeconds"]
            trial = _Trial(session, mutant, request["testSeconds"], until)
            print(json.dumps({"mutant": request["number"], **trial.run(chosen)}), file=output, flush=True)
    return True


class _Trial:
    """One mutant and the tests that execute it."""

    def __init__(self, session: pytest.Session, mutant: Mutant, test_seconds: float, until: float) -> None:
        self.session, self.mutant, self.test_seconds, self.until = session, mutant, test_seconds, until
        self.file = Path.cwd() / mutant.path
        self.text = read_text(self.file)

    def run(self, tests: Sequence[pytest.Item]) -> dict[str, Any]:
        """Which test kills the mutant, and how."""
        waiting = list(tests)
        while waiting:
            if time.monotonic() > self.until:
                return {"killer": None, "hang": False, "complete": False}
            failed, is_hang = self._fork(waiting, mutated=True)
            if failed is None:
                break
            item = waiting[failed]
            again, hangs_again = self._fork([item], mutated=True)
            if again is not None:
                started = time.monotonic()
                unchanged, _ = self._fork([item], mutated=False)
                is_quick = time.monotonic() - started < self.test_seconds / 4
                if unchanged is None and (is_quick or not (is_hang and hangs_again)):
                    return {"killer": item.nodeid, "hang": is_hang and hangs_again, "complete": True}
            waiting = waiting[failed + 1 :]
        return {"killer": None, "hang": False, "complete": True}

    def _fork(self, tests: Sequence[pytest.Item], *, mutated: bool) -> tuple[int | None, bool]:
        """The index of the first test that fails in a fork of this process, and whether it hangs."""
        status = self.file.stat()
        if mutated:
            self.file.write_text(self.mutant.apply(self.text), encoding="utf-8")
            # Python recognizes stale bytecode by size and whole seconds.
            os.utime(self.file, (status.st_mtime + 1, status.st_mtime + 1))
        folder = tempfile.mkdtemp(prefix="proctor-mutant-", dir=_memory())
        reading, writing = os.pipe()
        process = os.fork()
        if process == 0:
            os.close(reading)
            self._run_tests(tests, Path(folder), writing, mutated=mutated)
        os.close(writing)
        _lead_group(process)
        try:
            return self._watch(reading)
        finally:
            os.close(reading)
            os.killpg(process, signal.SIGKILL)
            os.waitpid(process, 0)
            shutil.rmtree(folder, ignore_errors=True)
            self.file.write_text(self.text, encoding="utf-8")
            os.utime(self.file, (status.st_mtime, status.st_mtime))

    def _watch(self, reading: int) -> tuple[int | None, bool]:
        """Follow a fork, which writes a byte for each test that passes, then `F` (failed) or `E` (ended)."""
        passed = 0
        while True:
            ready, _, _ = select.select([reading], [], [], self.test_seconds)
            if not ready:
                return passed, True
            data = os.read(reading, 1)
            if data == b"E":
                return None, False
            if data != b".":
                # Also where the process has died.
                return passed, False
            passed += 1

    def _run_tests(self, tests: Sequence[pytest.Item], folder: Path, writing: int, *, mutated: bool) -> None:
        """Run tests in this fork until one fails. Does not return."""
        _lead_group(0)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        try:
            self.session.config._tmp_path_factory._basetemp = folder
            if mutated:
                _replace_functions(str(self.file), self.text, self.mutant.apply(self.text))
            watcher = _Watcher()
            self.session.config.pluginmanager.register(watcher)
            for index, item in enumerate(tests):
                following = tests[index + 1] if index + 1 < len(tests) else None
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if watcher.has_failed:
                    os.write(writing, b"F")
                    break
                os.write(writing, b".")
            else:
                os.write(writing, b"E")
        except BaseException:
            os.write(writing, b"F")
        finally:
            os._exit(0)


class _Watcher:
    def __init__(self) -> None:
        self.has_failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.has_failed |= report.failed


def _lead_group(process: int) -> None:
    """Make a process the leader of a group: called on both sides, since either may come first."""
    with suppress(OSError):
        os.setpgid(process, process)


def _memory() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _replace_functions(path: str, text: str, changed: str) -> None:
    """Give every loaded function of a file the code of its changed version."""
    replacements: dict[Place, CodeType] = {}
    _pair(compile(text, path, "exec"), compile(changed, path, "exec"), replacements)
    # Frozen objects are not listed.
    gc.unfreeze()
    for function in [each for each in gc.get_objects() if isinstance(each, FunctionType)]:
        code = function.__code__
        replacement = replacements.get((code.co_filename, code.co_qualname, code.co_firstlineno))
        if replacement is not None and len(replacement.co_freevars) == len(code.co_freevars):
            function.__code__ = replacement


def _pair(old: CodeType, new: CodeType, pairs: dict[Place, CodeType]) -> None:
    """Find the changed version of each function in a code object, by names and order."""
    pairs[old.co_filename, old.co_qualname, old.co_firstlineno] = new
    candidates = _nested(new)
    for part in _nested(old):
        same = next((each for each in candidates if each.co_name == part.co_name), None)
        if same is not None:
            candidates.remove(same)
            _pair(part, same, pairs)


def _nested(code: CodeType) -> list[CodeType]:
    return [each for each in code.co_consts if isinstance(each, CodeType)]


# --- In the process of `mutants.py` ---


def run_in_forks(
    command: Sequence[str],
    tree: Path,
    requests: Sequence[tuple[Mutant, Sequence[str]]],
    *,
    test_seconds: float,
    mutant_seconds: float,
    until: float,
) -> Iterator[dict[str, Any]]:
    """Test mutants with their tests: the number of each (`mutant`), the test that kills it (`killer`),
    whether that hangs (`hang`), and whether all tests were run (`complete`).

    `command` starts pytest in the work copy `tree`. Ends at `until` of the monotonic clock at the latest.
    """
    file = tree.parent / f"requests-{os.getpid()}"
    lines = (
        json.dumps(
            {
                "number": number,
                "mutant": asdict(mutant),
                "tests": tests,
                "testSeconds": test_seconds,
                "mutantSeconds": mutant_seconds,
            }
        )
        for number, (mutant, tests) in enumerate(requests)
    )
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    reading, writing = os.pipe()
    environment = os.environ | {REQUESTS: str(file), RESULTS: str(writing)}
    for name in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTEST_XDIST_WORKER"):
        environment.pop(name, None)
    with (tree.parent / "output").open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=tree,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=[writing],
            start_new_session=True,
        )
    os.close(writing)
    try:
        pending = b""
        while (left := until - time.monotonic()) > 0:
            ready, _, _ = select.select([reading], [], [], left)
            data = os.read(reading, 65536) if ready else b""
            if not data:
                break
            *complete, pending = (pending + data).split(b"\n")
            for line in complete:
                yield json.loads(line)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(reading)
