"""What tests wait for with `eventually`."""

from collections.abc import Callable
from typing import TypeVar

from command_server import StartedCommand

Value = TypeVar("Value")


def while_running(process: StartedCommand, condition: Callable[[], Value]) -> Callable[[], Value]:
    """The condition; it fails at once, with what the process has printed, when the process has ended."""

    def checked() -> Value:
        assert process.poll() is None, process.stdout and process.stdout.read()
        return condition()

    return checked
