"""Records, with `coverage`, what each Python process of a recording executes, test by test (`mutants.py`).

Imported by every process of the copy when it starts. A process belongs to the test that its nearest ancestor
runs. Sandboxed processes cannot write their recording, nor can those that are killed.
"""

import atexit
import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

import coverage

FOLDER = str(Path(sys.prefix).parent / "recordings")
SOURCE = Path(FOLDER).parent / "tree/src/proctor"
_exit = os._exit
_recording: coverage.Coverage | None = None
_test = ""
_lines: dict[str, dict[str, set[int]]] = {}
"""What this process has executed: lines by test and file."""


def enter(test: str) -> None:
    """Attribute what this process executes from now on, and processes that it starts, to a test."""
    path = Path(FOLDER) / f"current-{os.getpid()}"
    path.with_suffix(".new").write_text(test, encoding="utf-8")
    path.with_suffix(".new").replace(path)
    _note()
    global _test
    _test = test


def current_test() -> str:
    """The test that this process or its nearest ancestor runs; empty where none does."""
    process = os.getpid()
    while process > 1:
        try:
            return (Path(FOLDER) / f"current-{process}").read_text(encoding="utf-8")
        except OSError:
            pass
        try:
            status = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
        except OSError:
            break
        process = int(status.rpartition(")")[2].split()[1])
    return ""


def _start() -> None:
    global _recording, _test
    _lines.clear()
    _test = current_test()
    _recording = coverage.Coverage(data_file=None, include=[f"{SOURCE}/*"], config_file=False)
    _recording._warn_no_data = False
    _recording.start()


def _note() -> None:
    """Note what was executed for the current test.

    Not with `coverage`'s own contexts: they write to SQLite, which a process that was forked while another
    thread wrote to it waits for forever.
    """
    collector = _recording and _recording._collector
    if collector:
        for path, lines in collector.data.copy().items():
            _lines.setdefault(_test, {}).setdefault(path, set()).update(lines.copy())
        collector._clear_data()


def _save() -> None:
    global _recording
    if _recording is not None:
        _recording.stop()
        _note()
        _recording = None
        path = Path(FOLDER) / f"lines-{os.getpid()}-{time.monotonic_ns()}"
        with suppress(OSError):
            path.write_text(json.dumps(_lines, default=sorted), encoding="utf-8")


def _restart() -> None:
    if _recording is not None:
        _recording.stop()
        _start()


def _save_and_exit(code: int) -> None:
    _save()
    _exit(code)


_start()
atexit.register(_save)
os._exit = _save_and_exit  # type: ignore[assignment]
os.register_at_fork(after_in_child=_restart)
