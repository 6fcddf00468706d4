"""One item → one session. The file's name is the runner's name; the class has it too."""

from importlib import import_module
from typing import cast

from proctor.errors import NotFound
from proctor.runner import Runner


def find_runner(name: str) -> Runner:
    """The runner for items of one kind, ready to use; it keeps no state between items."""
    try:
        module = import_module(f"proctor.runners.{name}")
        return cast(Runner, getattr(module, name.capitalize())())
    except (ModuleNotFoundError, AttributeError) as error:
        raise NotFound(f"there is no runner called {name}") from error
