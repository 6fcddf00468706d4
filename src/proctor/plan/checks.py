"""Find what is wrong with a coding plan beyond the shape of each setting.

Settings that contradict each other, an agent without its program, a plain prompt with a set-up, a
script that cannot be read. Looks at the parts whose shape is right, so that everything wrong is
reported together.

Knows nothing of items; the only files it opens are the scripts that the plan names.
"""

import errno
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proctor.errors import PlanError, Problem
from proctor.plan import source as sources
from proctor.plan.grid import as_list
from proctor.plan.reading import MOST_BYTES, read_source
from proctor.plan.repositories import resolved
from proctor.plan.schema import is_finite
from proctor.plan.settle import IMPLIED_AGENTS, settled
from proctor.plan.source import Source
from proctor.plan.words import vocabulary

_ABOUT_AGENTS = ("agent", *IMPLIED_AGENTS)
_ONLY_WITH_REPO = (
    "agent",
    "command",
    "script",
    "setup",
    "scriptCommand",
    "baseBranch",
    "mergeOnPass",
    "env",
    "keep",
)


@dataclass(frozen=True, slots=True)
class Checker:
    """Looks through one plan. `scripts` is filled with the script files it reads."""

    source: Source
    folder: Path
    home: Path
    broken: frozenset[sources.Path]
    """The settings of entries and defaults, or whole ones, whose shape is wrong already."""
    scripts: dict[str, Any] = field(default_factory=dict)

    def problems(self) -> list[Problem]:
        """Everything these checks find."""
        found: list[Problem] = []
        defaults = self._level(("defaults",), self.source.data.get("defaults"))
        found += self._of_level(("defaults",), defaults)
        matrix = self.source.data.get("matrix")
        for index, entry in enumerate(matrix if isinstance(matrix, list) else ()):
            path = ("matrix", index)
            level = self._level(path, entry)
            found += self._of_level(path, level)
            found += self._of_entry(path, level)
            found += self._of_agent(path, level, defaults)
        return found

    def _level(self, path: sources.Path, level: Any) -> Mapping[str, Any]:
        return level if isinstance(level, dict) and path not in self.broken else {}

    def _is_sound(self, path: sources.Path, *names: str) -> bool:
        return path not in self.broken and not any((*path, name) in self.broken for name in names)

    def _of_level(self, path: sources.Path, level: Mapping[str, Any]) -> Iterator[Problem]:
        if self._is_sound(path, *_ABOUT_AGENTS):
            yield from self._of_implied_agents(path, level)
        if isinstance(level.get("script"), str) and self._is_sound(path, "script"):
            yield from self._of_script((*path, "script"), level["script"])
        if level.get("expect") is not None and self._is_sound(path, "expect"):
            yield from self._of_expectation((*path, "expect"), level["expect"])

    def _of_implied_agents(self, path: sources.Path, level: Mapping[str, Any]) -> Iterator[Problem]:
        given = [name for name in IMPLIED_AGENTS if level.get(name) is not None]
        agents = as_list(level["agent"]) if level.get("agent") is not None else None
        if len(given) > 1 and agents is None:
            problem = f"{_name(path)} has a `command` and a `script`"
            yield self.source.problem((*path, given[1]), problem, "Keep one of them.", of_key=True)
        for name in given:
            agent = IMPLIED_AGENTS[name]
            if agents is not None and agent not in agents:
                problem = f"{_name(path)} has a `{name}`, but its agent is `{agents[0]}`"
                remedy = f"Remove one of them, or say `agent: {agent}`."
                yield self.source.problem((*path, name), problem, remedy, of_key=True)

    def _of_entry(self, path: sources.Path, entry: Mapping[str, Any]) -> Iterator[Problem]:
        if not self._is_sound(path, "repo"):
            return
        if entry.get("repo") is None:
            for name in _ONLY_WITH_REPO:
                # Saying that nothing shall be merged is true of a plain prompt.
                if entry.get(name) is not None and entry[name] is not False:
                    remedy = f"Without one it is a single call of a model. Add `repo`, or remove `{name}`."
                    problem = f"{_name(path)} has `{name}`, but no `repo`"
                    yield self.source.problem((*path, name), problem, remedy, of_key=True)
        elif entry.get("system") is not None:
            problem = f"{_name(path)} has `system`, but an agent brings its own system prompt"
            remedy = "Put it into the prompt, or remove `repo` for a single call of a model."
            yield self.source.problem((*path, "system"), problem, remedy, of_key=True)

    def _of_agent(
        self, path: sources.Path, entry: Mapping[str, Any], defaults: Mapping[str, Any]
    ) -> Iterator[Problem]:
        sound = self._is_sound(path, "repo", *_ABOUT_AGENTS) and self._is_sound(("defaults",), *_ABOUT_AGENTS)
        if not sound or entry.get("repo") is None:
            return
        holds = settled(
            *({name: level[name] for name in _ABOUT_AGENTS if name in level} for level in (entry, defaults))
        )
        for name, agent in IMPLIED_AGENTS.items():
            if agent in as_list(holds.get("agent")) and holds.get(name) is None:
                at = (*path, "agent") if "agent" in entry else path
                problem = f"{_name(path)} has the agent `{agent}`, but no `{name}`"
                yield self.source.problem(at, problem, f"Add `{name}`: what it shall run.")

    def _of_expectation(self, path: sources.Path, expect: Mapping[str, Any]) -> Iterator[Problem]:
        if all(value is None for value in expect.values()):
            remedy = "It may have: contains, equals, regex, json_schema."
            yield self.source.problem(path, f"`expect` of {_name(path[:-1])} says nothing", remedy)
        schema = expect.get("json_schema")
        fault = _fault_of(schema) if schema is not None else ""
        if fault:
            problem = f"`expect.json_schema` of {_name(path[:-1])} is no JSON schema: {fault}"
            yield self.source.problem((*path, "json_schema"), problem)

    def _of_script(self, path: sources.Path, written: str) -> Iterator[Problem]:
        if written in self.scripts:
            return
        file = Path(resolved(written, folder=self.folder, home=self.home))
        try:
            self.scripts[written] = read_script(file)
        except OSError as error:
            problem = f"the script {sources.shortened(written, 60)} cannot be read: {error.strerror}"
            yield self.source.problem(path, problem, f"It was looked for at {file}.")
        except PlanError as error:
            yield from error.problems


def read_script(file: Path) -> Any:
    """The steps in a script file. Raises `OSError`, or `PlanError` with places in that file."""
    if not file.is_file():
        raise FileNotFoundError(errno.ENOENT, "there is no such file")
    with file.open("rb") as opened:
        # One byte more than is allowed is enough to see that it is too much.
        read = read_source(opened.read(MOST_BYTES + 1), file=str(file))
    problems = list(read.problems)
    if not isinstance(read.data, (list, dict)) or not read.data:
        problems.append(read.problem((), "a script is a list of steps, or a mapping"))
    try:
        is_finite(read.data)
    except ValueError as error:
        problems.append(read.problem((), f"the script {error}"))
    if problems:
        sources.refuse(problems)
    return read.data


def _name(path: sources.Path) -> str:
    part = vocabulary(path)
    return part.name if part else "the plan"


def _fault_of(schema: Any) -> str:
    # A tenth of a second to import, and few plans have one.
    import jsonschema

    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        return sources.shortened(error.message, 120)
    return ""
