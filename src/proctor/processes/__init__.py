"""Run programs so that everything they start can be ended, under a supervisor process (`warden.py`)."""

from proctor.processes.program import (
    ATTEMPT_MARKER,
    CouldNotStart,
    Program,
    ProgramEnd,
    ProgramResult,
    end_attempt,
    run,
    started,
    undisturbed,
)
from proctor.processes.streams import Clip, clipped

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
