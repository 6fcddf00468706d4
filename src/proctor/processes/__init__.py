"""Run programs so that everything they start can be ended. See `running`."""

from proctor.processes.program import ATTEMPT_MARKER, CouldNotStart, Ending, Program, undisturbed
from proctor.processes.running import Finished, end_attempt, run, started
from proctor.processes.streams import Clip, clipped

__all__ = [
    "ATTEMPT_MARKER",
    "Clip",
    "CouldNotStart",
    "Ending",
    "Finished",
    "Program",
    "clipped",
    "end_attempt",
    "run",
    "started",
    "undisturbed",
]
