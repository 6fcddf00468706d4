"""Read the files of a scenario folder and track the origin of each value.

A scenario has one plain form, whatever the dialect of its files; problems with a value of that form are
reported at its place in the file.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proctor.errors import Place, PlanError, Problem
from proctor.plan import source as sources
from proctor.plan.source import PlanSource, bytes_of
from proctor.plan.validate import did_you_mean
from proctor.plan.yaml_loader import read_source

Steps = tuple[str | int, ...]


@dataclass(slots=True)
class FolderReader:
    """Collects the origins of values, problems and remarks while a folder is read."""

    problems: list[Problem] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    """Remarks that do not prevent a run."""
    origins: dict[Steps, tuple[PlanSource, Steps]] = field(default_factory=dict)

    def came_from(self, steps: Steps, source: PlanSource, path: Steps) -> None:
        """Record the origin of the value at `steps` of the plain form."""
        self.origins[steps] = (source, path)

    def problem(self, steps: Steps, problem: str, remedy: str = "") -> None:
        """Add a problem with a value of the plain form, at its place in a file."""
        self.problems.append(self.at(steps, problem, remedy))

    def at(self, steps: Steps, problem: str, remedy: str = "") -> Problem:
        """The problem at the place of the value, or of the nearest enclosing value that a file has."""
        for depth in range(len(steps), -1, -1):
            if steps[:depth] in self.origins:
                source, path = self.origins[steps[:depth]]
                return source.problem((*path, *steps[depth:]), problem, remedy)
        return Problem(at=Place("scenario", 1, 1), problem=problem, remedy=remedy)

    def unknown(self, source: PlanSource, path: Steps, known: Iterable[str], what: str) -> None:
        """Remark on an unknown name, which may be a typing error."""
        name, names = str(path[-1]), list(known)
        place = source.place(path, of_key=True)
        meant = did_you_mean(name, names)
        self.remarks.append(f"{place}: {what} has no `{name}`; it is not used. {meant}".rstrip())


def read_file(path: Path, findings: FolderReader) -> PlanSource | None:
    """A YAML file with a mapping; None when it cannot be read."""
    try:
        source = read_source(bytes_of(path), file=str(path))
    except PlanError as error:
        findings.problems += error.problems
        return None
    findings.problems += source.problems
    if not isinstance(source.data, dict):
        findings.problems.append(source.problem((), "this should be a mapping of names to values"))
        return None
    return source


def find_file(folders: Sequence[Path], *names: str) -> Path | None:
    """The first of these files that one of the folders has."""
    return next((folder / name for folder in folders for name in names if (folder / name).is_file()), None)


def as_texts(value: Any) -> Any:
    """A list of texts, from a list, a bulleted text or a mapping; anything else as it is."""
    if isinstance(value, str):
        lines = [line.strip().lstrip("-*•").strip() for line in value.splitlines()]
        return [line for line in lines if line]
    if isinstance(value, dict):
        return [f"{name}: {_words(level)}" for name, level in value.items()]
    if isinstance(value, list):
        return [entry for part in value for entry in _entries(part)]
    return value


def as_text(value: Any) -> Any:
    """One text, from a text or a list of texts; anything else as it is."""
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return "\n".join(f"- {part}" for part in value)
    if isinstance(value, dict):
        return "\n".join(f"{name}: {_words(part)}" for name, part in value.items())
    return value


def refuse(findings: FolderReader) -> None:
    """Raise `PlanError` if there are problems."""
    if findings.problems:
        sources.refuse(findings.problems)


def _entries(part: Any) -> list[Any]:
    if isinstance(part, dict):
        return [f"{name}: {_words(level)}" for name, level in part.items()]
    return [part]


def _words(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_words, value))
    if isinstance(value, dict):
        return ", ".join(f"{name} {_words(part)}" for name, part in value.items())
    return str(value)
