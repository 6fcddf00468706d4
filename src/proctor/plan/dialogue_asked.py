"""What is asked of a simulation, by a config file and by flags that win over it.

Both are checked alike, and what is wrong is told of the one that says it.

Knows nothing of roles, or of what the settings come to.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from proctor.errors import Problem
from proctor.plan.dialogue_schema import CONFIG_KEYS, SimulationFile, vocabulary
from proctor.plan.reading import read_source
from proctor.plan.source import KeySpot, Path, Source, Spot, refuse
from proctor.plan.validate import Part, check_shape

FLAGS = "the command line"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a file and the flags say together; what is wrong is told of the one that says it."""

    flags: Source
    written: Source | None
    """None: there is no file."""

    @property
    def data(self) -> dict[str, Any]:
        """All settings; flags win."""
        return {**(self.written.data if self.written else {}), **self.flags.data}

    def misshapen(self) -> list[Problem]:
        """Everything that is not as a config wants it."""
        found = list(check_shape(self.flags, SimulationFile, _of_flags).problems)
        if self.written:
            found += check_shape(self.written, SimulationFile, vocabulary).problems
        return found

    def problem(self, path: Path, problem: str, remedy: str = "") -> Problem:
        """Something wrong at a path, in the flags or the file, whichever holds."""
        from_flag = self.written is None or (path and path[0] in self.flags.data)
        source = self.flags if from_flag else self.written
        assert source is not None
        return source.problem(path, problem, remedy)


def asked_for(text: str | bytes | None, overrides: Mapping[str, Any], *, file: str) -> Asked:
    """Read a config and the flags beside it. `text` is None when there are only flags."""
    return Asked(flags=_flags(overrides), written=_written(text, file))


def _flags(overrides: Mapping[str, Any]) -> Source:
    """The flags as a source of their own: all of them stand at its beginning."""
    return Source(
        FLAGS, "", dict(overrides), Spot(1, 1, {name: KeySpot(1, 1, Spot(1, 1)) for name in overrides})
    )


def _of_flags(path: Path) -> Part | None:
    return vocabulary(path) if path else Part(FLAGS, "A command line", CONFIG_KEYS)


def _written(text: str | bytes | None, file: str) -> Source | None:
    if text is None:
        return None
    source = read_source(text, file=file)
    if not isinstance(source.data, dict):
        remedy = f"It may have: {', '.join(CONFIG_KEYS)}."
        refuse([*source.problems, source.problem((), "the config is no mapping of names to values", remedy)])
    return source
