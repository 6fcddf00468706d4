"""What tests wait for with `eventually`."""

import subprocess
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")


def while_running(process: "subprocess.Popen[str]", condition: Callable[[], Value]) -> Callable[[], Value]:
    """The condition; it fails at once, with what the process has printed, when the process has ended."""

    def checked() -> Value:
        assert process.poll() is None, process.stdout and process.stdout.read()
        return condition()

    return checked
