"""How long tests wait, and what they wait for with `eventually`."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from command_server import StartedCommand

Value = TypeVar("Value")

TIME_LIMIT_SECONDS = 300.0
"""For anything a test waits for: other work on the machine may make it ten times slower."""


def while_running(process: StartedCommand, condition: Callable[[], Value]) -> Callable[[], Value]:
    """The condition; it fails at once, with what the process has printed, when the process has ended."""

    def checked() -> Value:
        assert process.poll() is None, process.stdout and process.stdout.read()
        return condition()

    return checked


def is_running(pid: int | str) -> bool:
    """Whether a process lives; one that waits to be reaped does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
