"""A coding plan: validation of its text, overrides, and its items.

Later checks report problems of an item through `CodingPlan.problem`, at the position of its setting.
"""

import errno
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proctor.errors import PlanError, Problem
from proctor.jobs.coding.schema import (
    IMPLIED_AGENTS,
    CodingPlanFile,
    Defaults,
    settled,
    vocabulary,
)
from proctor.json_values import JsonMap, JsonObject
from proctor.plan import source as sources
from proctor.plan.source import MOST_BYTES, PlanSource, resolved
from proctor.plan.validate import as_list, is_finite, overrides_of
from proctor.plan.yaml_loader import read_source

_ABOUT_AGENTS = ("agent", *IMPLIED_AGENTS)
_ONLY_WITH_REPO = (
    "agent",
    "command",
    "script",
    "setup",
    "setupOnce",
    "setupOnceFiles",
    "scriptCommand",
    "baseBranch",
    "mergeOnPass",
    "env",
    "keep",
    "setupTimeoutSec",
    "checkTimeoutSec",
    "baseline",
    "cache",
    "login",
)
_CHECKED = frozenset({"repo", "system", *_ABOUT_AGENTS, *_ONLY_WITH_REPO})
"""Settings that do not go with every other one. Most entries of a long plan have none of them."""


@dataclass(frozen=True, slots=True)
class Checker:
    """Checks that involve several settings of a plan. `scripts` receives the script files it reads."""

    source: PlanSource
    folder: Path
    home: Path
    broken: frozenset[sources.KeyPath]
    """Paths of settings, or of whole entries, that the schema has rejected."""
    scripts: JsonObject = field(default_factory=dict)

    def problems(self) -> list[Problem]:
        """All problems."""
        problems: list[Problem] = []
        defaults = self._level(("defaults",), self.source.data.get("defaults"))
        problems += self._of_level(("defaults",), defaults)
        matrix = self.source.data.get("matrix")
        for index, entry in enumerate(matrix if isinstance(matrix, list) else ()):
            path = ("matrix", index)
            level = self._level(path, entry)
            if _CHECKED.isdisjoint(level):
                # Nothing else that is checked here, in most entries of a long plan.
                if level.get("expect") is not None and not _is_plain_expectation(level["expect"]):
                    problems += self._of_level(path, level)
                continue
            problems += self._of_level(path, level)
            problems += self._of_entry(path, level)
            problems += self._of_agent(path, level, defaults)
        return problems

    def _level(self, path: sources.KeyPath, level: object) -> Mapping[str, Any]:
        return level if isinstance(level, dict) and path not in self.broken else {}

    def _is_sound(self, path: sources.KeyPath, *names: str) -> bool:
        return path not in self.broken and not any((*path, name) in self.broken for name in names)

    def _of_level(self, path: sources.KeyPath, level: Mapping[str, Any]) -> Iterator[Problem]:
        if not _CHECKED.isdisjoint(level) and self._is_sound(path, *_ABOUT_AGENTS):
            yield from self._of_implied_agents(path, level)
        if isinstance(level.get("script"), str) and self._is_sound(path, "script"):
            yield from self._of_script((*path, "script"), level["script"])
        if level.get("expect") is not None and self._is_sound(path, "expect"):
            yield from self._of_expectation((*path, "expect"), level["expect"])

    def _of_implied_agents(self, path: sources.KeyPath, level: JsonMap) -> Iterator[Problem]:
        implied = [name for name in IMPLIED_AGENTS if level.get(name) is not None]
        agents = as_list(level["agent"]) if level.get("agent") is not None else None
        if len(implied) > 1 and agents is None:
            problem = f"{_name(path)} has a `command` and a `script`"
            yield self.source.problem((*path, implied[1]), problem, "Keep one of them.", of_key=True)
        for name in implied:
            agent = IMPLIED_AGENTS[name]
            if agents is not None and agent not in agents:
                problem = f"{_name(path)} has a `{name}`, but its agent is `{agents[0]}`"
                remedy = f"Remove one of them, or say `agent: {agent}`."
                yield self.source.problem((*path, name), problem, remedy, of_key=True)

    def _of_entry(self, path: sources.KeyPath, entry: JsonMap) -> Iterator[Problem]:
        if not self._is_sound(path, "repo"):
            return
        if entry.get("repo") is None:
            for name in _ONLY_WITH_REPO:
                # `mergeOnPass: false` is valid for a plain prompt.
                if entry.get(name) is not None and entry[name] is not False:
                    remedy = f"Without one it is a single call of a model. Add `repo`, or remove `{name}`."
                    problem = f"{_name(path)} has `{name}`, but no `repo`"
                    yield self.source.problem((*path, name), problem, remedy, of_key=True)
        elif entry.get("system") is not None:
            problem = f"{_name(path)} has `system`, but an agent brings its own system prompt"
            remedy = "Put it into the prompt, or remove `repo` for a single call of a model."
            yield self.source.problem((*path, "system"), problem, remedy, of_key=True)

    def _of_agent(self, path: sources.KeyPath, entry: JsonMap, defaults: JsonMap) -> Iterator[Problem]:
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

    def _of_expectation(self, path: sources.KeyPath, expect: JsonMap) -> Iterator[Problem]:
        if all(value is None for value in expect.values()):
            remedy = "It may have: contains, equals, regex, json_schema."
            yield self.source.problem(path, f"`expect` of {_name(path[:-1])} is empty", remedy)
        schema = expect.get("json_schema")
        fault = _fault_of(schema) if schema is not None else ""
        if fault:
            problem = f"`expect.json_schema` of {_name(path[:-1])} is not a valid JSON schema: {fault}"
            yield self.source.problem((*path, "json_schema"), problem)

    def _of_script(self, path: sources.KeyPath, written: str) -> Iterator[Problem]:
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


def _is_plain_expectation(expect: object) -> bool:
    """Whether an expectation says something, and has no schema that could be wrong."""
    return (
        isinstance(expect, dict)
        and "json_schema" not in expect
        and None not in expect.values()
        and bool(expect)
    )


def read_script(file: Path) -> object:
    """The steps in a script file. Raises `OSError`, or `PlanError` with places in that file."""
    if not file.is_file():
        raise FileNotFoundError(errno.ENOENT, "there is no such file")
    with file.open("rb") as opened:
        # One byte more than is allowed shows that the file is too large.
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


def _name(path: sources.KeyPath) -> str:
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


class Overrides(overrides_of(CodingPlanFile, defaults=Defaults)):  # type: ignore[misc]  # made from them
    """Options that replace defaults of the plan; values set on an item take precedence. None: not set."""

    @property
    def defaults(self) -> JsonObject:
        """Those of `defaults`."""
        settings: JsonObject = self.settings().get("defaults", {})
        return settings


NO_OVERRIDES = Overrides()
