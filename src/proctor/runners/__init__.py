"""One item → one session. The file name is the runner name; its class is `NameRunner`."""

from importlib import import_module
from typing import cast

from proctor.errors import NotFound
from proctor.runner import Runner


def find_runner(name: str) -> Runner:
    """The runner for items of one kind, ready to use; it keeps no state between items."""
    try:
        module = import_module(f"proctor.runners.{name}")
        return cast(Runner, getattr(module, f"{name.capitalize()}Runner")())
    except (ModuleNotFoundError, AttributeError) as error:
        raise NotFound(f"there is no runner called {name}") from error
