"""Run programs so that everything they start can be ended, under a supervisor process (`warden.py`).

Names are loaded when they are first used: a run without programs loads none of it.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proctor.processes.program import (
        ATTEMPT_MARKER,
        CouldNotStart,
        Program,
        ProgramEnd,
        ProgramResult,
        end_attempt,
        run,
        started,
    )
    from proctor.processes.streams import Clip, clipped, undisturbed

__all__ = [
    "ATTEMPT_MARKER",
    "Clip",
    "CouldNotStart",
    "Program",
    "ProgramEnd",
    "ProgramResult",
    "clipped",
    "end_attempt",
    "run",
    "started",
    "undisturbed",
]

if not TYPE_CHECKING:

    def __getattr__(name):
        """Load a name from the module that defines it."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        home = "streams" if name in ("Clip", "clipped", "undisturbed") else "program"
        return getattr(import_module(f"{__name__}.{home}"), name)
