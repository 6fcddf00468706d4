"""Records, with `coverage`, what each Python process of a recording executes, test by test (`mutants.py`).

Imported by every process of the copy when it starts. A process belongs to the test that its nearest ancestor
runs. Sandboxed processes cannot write their recording, nor can those that are killed.
"""

import atexit
import os
import sys
from pathlib import Path

import coverage

FOLDER = str(Path(sys.prefix).parent / "recordings")
SOURCE = Path(FOLDER).parent / "tree/src/proctor"
_exit = os._exit
_recording: coverage.Coverage | None = None


def enter(test: str) -> None:
    """Attribute what this process executes from now on, and processes that it starts, to a test."""
    path = Path(FOLDER) / f"current-{os.getpid()}"
    path.with_suffix(".new").write_text(test, encoding="utf-8")
    path.with_suffix(".new").replace(path)
    if _recording is not None:
        _recording.switch_context(test)


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
    global _recording
    _recording = coverage.Coverage(
        data_file=f"{FOLDER}/data", data_suffix=True, include=[f"{SOURCE}/*"], config_file=False
    )
    _recording._warn_no_data = False
    _recording.start()
    _recording.switch_context(current_test())


def _save() -> None:
    global _recording
    ended, _recording = _recording, None
    if ended is not None:
        try:
            ended.stop()
            ended.save()
        except Exception:
            pass


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
