"""Defaults and limits of the numbers that commands take."""

from collections.abc import Iterator
from typing import Any

import typer

from proctor.cli.main import COMMANDS
from proctor.lazy_import import load

Limits = tuple[float | None, float | None, float | None]
"""The default, the lowest and the highest number."""
WHOLE, MONEY, SECONDS = (None, 1, None), (None, 0, None), (None, 0.001, None)
LISTED, PORT = (50, 1, None), (0, 0, 65535)
ONCE, PROCESSES = (1, 1, None), (None, 1, 1000)

OPTIONS: dict[str, dict[str, Limits]] = {
    "batch": {
        "concurrency": WHOLE,
        "workers": PROCESSES,
        "budget": MONEY,
        "timeout_sec": SECONDS,
        "retries": MONEY,
    },
    "bench": {"workers": PROCESSES, "timeout": SECONDS, "runs": WHOLE, "budget": MONEY},
    "tasks from-history": {"most": (30, 1, None), "timeout": (600, 0.001, None), "parallel": (0, 0, None)},
    "tasks check": {"runs": (3, 1, None), "parallel": (2, 1, None)},
    "simulate": {"workers": PROCESSES, "budget_limit": MONEY},
    "experiment": {"max_parallel": WHOLE, "workers": PROCESSES, "budget_limit": MONEY},
    "scenario run": {
        "runs": ONCE,
        "seed": (0, None, None),
        "max_turns": WHOLE,
        "max_parallel": ONCE,
        "workers": PROCESSES,
        "budget": MONEY,
        "timeout": SECONDS,
    },
    "scenario branch": {"at_turn": (None, 0, None)},
    "resume": {"concurrency": WHOLE, "workers": PROCESSES, "budget": MONEY},
    "evaluate list": {"limit": LISTED},
    "evaluate start": {
        "max_sessions": WHOLE,
        "votes": WHOLE,
        "budget": MONEY,
        "concurrency": WHOLE,
        "workers": PROCESSES,
        "timeout_sec": SECONDS,
        "retries": MONEY,
    },
    "evaluate run": {"workers": PROCESSES},
    "evaluators test": {"votes": ONCE},
    "evaluators calibrate": {"votes": ONCE, "repeats": ONCE, "seed": (0, None, None)},
    "runs": {"limit": LISTED},
    "show": {"limit": LISTED},
    "search": {"limit": (20, 1, 1000), "offset": (0, 0, None)},
    "power": {"power_": (0.8, None, None)},
    "review": {"limit": LISTED},
    "sessions list": {"limit": LISTED},
    "sessions continue": {"budget": MONEY},
    "init": {"repeats": (0, 0, None), "budget": (0, 0, None)},
    "serve": {"port": (8765, 0, 65535), "otlp_grpc": (None, 0, 65535)},
    "gateway": {"port": PORT},
}


def numbers(name: str, command: Any) -> Iterator[tuple[str, dict[str, Limits]]]:
    """The options with a number as a default or a limit, of a command and of those below it."""
    for below, nested in getattr(command, "commands", {}).items():
        yield from numbers(f"{name} {below}", nested)
    found: dict[str, Limits] = {}
    for option in command.params:
        limits = getattr(option, "min", None), getattr(option, "max", None)
        is_number = type(option.default) in (int, float)
        if is_number or limits != (None, None):
            found[option.name] = (option.default if is_number else None, *limits)
    if found:
        yield name, found


def test_numbers_of_commands_have_their_defaults_and_limits() -> None:
    found: dict[str, dict[str, Limits]] = {}
    for name, (module, _) in COMMANDS.items():
        command = typer.main.get_command(load(f"proctor.cli.{module}").apps[name])
        found |= dict(numbers(name, command))
    assert found == OPTIONS
