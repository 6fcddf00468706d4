"""Run programs so that everything they start can be ended, under a supervisor process (`warden.py`).

Names of `program.py` are loaded when they are first used: a run without programs loads none of it.
"""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from proctor.processes.program import (
        ATTEMPT_MARKER,
        Confinement,
        CouldNotStart,
        Launch,
        Program,
        ProgramEnd,
        ProgramResult,
        Serve,
        end_attempt,
        listening_socket,
        run,
        started,
    )

__all__ = [
    "ATTEMPT_MARKER",
    "Confinement",
    "CouldNotStart",
    "Launch",
    "Program",
    "ProgramEnd",
    "ProgramResult",
    "Serve",
    "end_attempt",
    "listening_socket",
    "run",
    "started",
    "undisturbed",
]

if not TYPE_CHECKING:

    def __getattr__(name):
        """Load a name of `program.py`."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"{__name__}.program"), name)


T = TypeVar("T")


async def undisturbed(work: Coroutine[object, object, T]) -> T:
    """Finish `work` even when cancelled meanwhile; the cancellation is raised afterward."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as late:
            cancelled = late
    if cancelled is not None:
        raise cancelled
    return task.result()
