"""The world of a simulation: its initial state, the tools of roles, and tasks, from files or the config."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, cast

from pydantic import BaseModel, ConfigDict, Field

from proctor.dialogue.task import check_problems
from proctor.dialogue.tools import ToolSpec, merged, tool_problems, with_signature
from proctor.errors import UsageError
from proctor.item import digest_of
from proctor.json_values import JsonMap, JsonObject, as_map, maps_in, without_none
from proctor.plan.criteria import read_data, read_text_file, read_yaml_source
from proctor.plan.source import refuse
from proctor.plan.validate import check_shape, sections_of

_STRICT = ConfigDict(extra="forbid", strict=True, populate_by_name=True)
Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$")]
Sentence = Annotated[str, Field(min_length=1)]


class RequirementEntry(BaseModel):
    """A condition of a call."""

    model_config = _STRICT
    that: Sentence
    else_: str | None = Field(default=None, alias="else")


class HttpEntry(BaseModel):
    """A tool behind a server."""

    model_config = _STRICT
    url: Annotated[str, Field(pattern=r"^https?://")]
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] | None = None
    headers: dict[str, str] | None = None
    shares_state: bool | None = None


class ToolEntry(BaseModel):
    """A tool of a role."""

    model_config = _STRICT
    name: Name
    description: str | None = None
    parameters: JsonObject | None = None
    require: list[RequirementEntry] | None = None
    set: JsonObject | None = None
    delete: list[str] | None = None
    returns: str | None = None
    python: Annotated[str, Field(pattern=r"^[^:]+:[A-Za-z_]\w*$")] | None = None
    http: HttpEntry | None = None
    command: Annotated[list[str], Field(min_length=1)] | None = None
    timeout_sec: Annotated[float, Field(gt=0)] | None = None


class TaskEntry(BaseModel):
    """A task of the dialogues."""

    model_config = _STRICT
    name: Name
    goal: Sentence
    profile: JsonObject | None = None
    state: JsonObject | None = None
    checks: JsonObject | None = None


class ToolFile(BaseModel):
    """A file of tools."""

    model_config = _STRICT
    tools: list[ToolEntry]


class TaskFile(BaseModel):
    """A file of tasks."""

    model_config = _STRICT
    tasks: Annotated[list[TaskEntry], Field(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class DialogueTask:
    """A task: what the simulated side wants, the state it starts from, and the checks of the end."""

    name: str
    goal: str
    profile: JsonMap = field(default_factory=dict)
    """Members of the simulated side's profile."""
    state: JsonMap = field(default_factory=dict)
    """Differences from the initial state of the world."""
    checks: JsonMap = field(default_factory=dict)

    def profile_of(self, profile: JsonMap) -> JsonObject:
        return {**profile, **self.profile, "goal": self.goal}

    @property
    def details(self) -> JsonObject:
        """The part of an item's details that is about the task."""
        return {"name": self.name, "goal": self.goal, "state": dict(self.state)}


def read_tools(written: object, folder: Path) -> tuple[ToolSpec, ...]:
    """Tools as a role stores them, from a list or the name of a file. Raises `UsageError`."""
    place = folder
    if isinstance(written, str):
        path = _file(written, folder, "tools")
        place, written = path.parent, _checked(path, ToolFile)["tools"]
    specs = [cast("ToolSpec", without_none(entry)) for entry in maps_in(written)]
    names = [spec["name"] for spec in specs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"two tools are called `{twice}`")
    if place.resolve() != folder.resolve():
        specs = [_relative(spec, place, folder) for spec in specs]
    return tuple(with_signature(spec, folder) for spec in specs)


def read_policy(written: str, folder: Path) -> str:
    """A policy: text, or the name of a text file."""
    is_name = "\n" not in written and written.endswith((".md", ".txt"))
    return read_text_file(_file(written, folder, "the policy")) if is_name else written


def read_world(written: object, folder: Path) -> JsonMap:
    """The initial state, from a mapping or the name of a file."""
    if isinstance(written, str):
        path = _file(written, folder, "the world")
        written = read_data(path)
        if not isinstance(written, Mapping):
            raise UsageError(f"{path}: the state of a world is a mapping of names to values")
    return dict(as_map(written))


def read_tasks(written: object, folder: Path) -> list[DialogueTask]:
    """Tasks, from a list or the name of a file. Raises `UsageError`."""
    if isinstance(written, str):
        written = _checked(_file(written, folder, "tasks"), TaskFile)["tasks"]
    tasks = [DialogueTask(**without_none(entry)) for entry in maps_in(written)]  # type: ignore[arg-type]
    names = [task.name.casefold() for task in tasks]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"two tasks are called `{twice}`")
    return tasks


def world_problems(
    state: JsonMap, tasks: Sequence[DialogueTask], tools: Sequence[ToolSpec], their_tools: Sequence[ToolSpec]
) -> Iterator[str]:
    """What is wrong between state, tools (of the side under test, and of the other) and tasks."""
    names = [*state, *(name for task in tasks for name in task.state)]
    for spec in (*tools, *their_tools):
        try:
            yield from (f"the tool `{spec['name']}` {problem}" for problem in tool_problems(spec, names))
        except UsageError as error:
            yield f"the tool `{spec['name']}`: {error}"
    for task in tasks:
        initial = as_map(merged(state, task.state))
        for problem in check_problems(task.checks, initial, tools, their_tools):
            yield f"the task `{task.name}`: {problem}"


def world_digest(state: JsonMap) -> str:
    """Digest of an initial state."""
    return digest_of(dict(state))[:16]


def _file(name: str, folder: Path, what: str) -> Path:
    path = folder / Path(name).expanduser()
    if not path.is_file():
        raise UsageError(f"there is no file {path} with {what}")
    return path


def _checked(path: Path, model: type[BaseModel]) -> JsonMap:
    source = read_yaml_source(path)
    if problems := [*source.problems, *check_shape(source, model, sections_of(model, "file")).problems]:
        refuse(problems)
    return as_map(source.data)


def _relative(spec: ToolSpec, path: Path, folder: Path) -> ToolSpec:
    """A tool of a file in another folder, with the names of its files from the config's folder."""

    def from_folder(name: str) -> str:
        return os.path.relpath(path / name, folder) if (path / name).is_file() else name

    moved: ToolSpec = {**spec}
    if "python" in spec:
        file, _, function = spec["python"].rpartition(":")
        moved["python"] = f"{from_folder(file)}:{function}"
    if "command" in spec:
        moved["command"] = [from_folder(word) for word in spec["command"]]
    return moved
