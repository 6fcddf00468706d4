"""Agents: one adapter per file. Finds an agent by name and applies its settings.

The file name is the agent's name (`mini-swe-agent` is `mini_swe_agent.py`); files with a leading underscore
are shared code. Other packages use an entry point in the group `proctor.agents`; `module:Class` works where a
name does. Only the requested agent is imported.
"""

import difflib
import inspect
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType, UnionType, new_class
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

from proctor.agent import Agent, Assignment, Availability, WorkDone
from proctor.agents._function import FunctionAgent
from proctor.errors import NotFound, UsageError
from proctor.json_values import JsonMap, JsonObject
from proctor.lazy_import import plugins
from proctor.session import Record

__all__ = ["agent_names", "find_agent", "with_keys"]


GROUP = "proctor.agents"


def agent_names() -> list[str]:
    """Names of built-in and installed agents, sorted."""
    return sorted({*_own_names(), *(entry.name for entry in plugins(GROUP))})


def find_agent(name: str, settings: JsonMap) -> Agent:
    """The agent `name` with its settings; `NotFound` or `UsageError` when it cannot be used."""
    if ":" in name and (function := _function(name)) is not None:
        return FunctionAgent(function)
    adapter = _adapter(name)
    _check(name, adapter, settings)
    return cast(Agent, adapter(**settings))


@cache
def _own_names() -> tuple[str, ...]:
    modules = pkgutil.iter_modules([str(Path(__file__).parent)])
    return tuple(module.name.replace("_", "-") for module in modules if not module.name.startswith("_"))


def _adapter(name: str) -> type:
    if name in _own_names():
        return _only_adapter(import_module(f"proctor.agents.{name.replace('-', '_')}"))
    for entry in plugins(GROUP):
        if entry.name == name:
            return _as_adapter(entry.value, entry.load())
    module_name, colon, class_name = name.partition(":")
    if colon:
        return _named(name, module_name, class_name)
    raise NotFound(f"there is no agent `{name}`{_near(name, agent_names())}")


def _function(name: str) -> Callable[..., object] | None:
    """The function that `module:function` names; None when it names something else."""
    module_name, _, attribute = name.partition(":")
    try:
        function = getattr(import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError):
        return None
    return function if inspect.isfunction(function) else None


def _named(name: str, module_name: str, class_name: str) -> type:
    try:
        return _as_adapter(name, getattr(import_module(module_name), class_name))
    except (ImportError, AttributeError, ValueError) as cause:
        raise NotFound(f"there is no agent `{name}`: {cause}") from cause


def _only_adapter(module: ModuleType) -> type:
    """The one adapter class of an agent's file."""
    adapters = [
        member
        for member in vars(module).values()
        if isinstance(member, type)
        and member.__module__ == module.__name__
        and not member.__name__.startswith("_")
        and is_dataclass(member)
        and hasattr(member, "work")
    ]
    if len(adapters) != 1:
        raise TypeError(f"{module.__name__} holds {len(adapters)} adapters; an agent's file holds one")
    return _with_defaults(adapters[0])


def _as_adapter(name: str, loaded: object) -> type:
    if not (isinstance(loaded, type) and is_dataclass(loaded) and hasattr(loaded, "work")):
        raise NotFound(f"`{name}` is not an agent: an adapter is a dataclass with a method `work`")
    return _with_defaults(loaded)


def _with_defaults(adapter: type) -> type:
    """The adapter with the members of `Agent` that it does not declare."""
    members: JsonObject = {"__module__": adapter.__module__, "__doc__": adapter.__doc__}
    # Deprecated names in older adapters.
    if hasattr(adapter, "tells_all"):
        members["records_transcript"] = property(lambda agent: bool(agent.tells_all))
    if hasattr(adapter, "stand_in"):
        members["is_mock"] = adapter.stand_in
    if len(members) == 2 and Agent in adapter.__mro__:
        return adapter
    return new_class(adapter.__name__, (adapter, Agent), exec_body=lambda body: body.update(members))


def _check(name: str, adapter: type, settings: JsonMap) -> None:
    hints = get_type_hints(adapter)
    known = {each.name: each for each in fields(adapter) if each.init}
    for setting, value in settings.items():
        if setting not in known:
            raise UsageError(f"agent `{name}` has no setting `{setting}`{_near(setting, sorted(known))}")
        if not _fits(value, hints[setting]):
            expected = _type_name(hints[setting])
            raise UsageError(f"agent `{name}`: `{setting}` must be {expected}, not {type(value).__name__}")
    for field_ in known.values():
        if field_.default is MISSING and field_.default_factory is MISSING and field_.name not in settings:
            raise UsageError(f"agent `{name}` needs a setting `{field_.name}`")


def _fits(value: object, hint: Any) -> bool:
    """Whether plain data from a plan fits the annotation of a field."""
    if hint in (Any, object):
        return True
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in inner)
    if origin is None:
        if isinstance(value, bool):
            return hint is bool
        return isinstance(value, int | float if hint is float else hint)
    if issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(_fits(each, inner[1]) for each in value.values())
    if issubclass(origin, Sequence):
        return isinstance(value, list | tuple) and all(_fits(each, inner[0]) for each in value)
    return isinstance(value, origin)


def _type_name(hint: Any) -> str:
    """The name of a type for users of plan files."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(_type_name(each) for each in inner)
    if origin is not None:
        return "a map" if issubclass(origin, Mapping) else f"a list of {_type_name(inner[0])}"
    plain = {str: "text", int: "a whole number", float: "a number", bool: "true or false", object: "anything"}
    return plain.get(hint, "nothing" if hint is type(None) else str(getattr(hint, "__name__", hint)))


def _near(name: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"\nDid you mean `{near[0]}`? " if near else "\n"
    return f"{hint}There is: {', '.join(names)}." if names else f"{hint}It has none."


def with_keys(agent: Agent, environment: Mapping[str, str]) -> Agent:
    """The same agent with the keys it declares, from the user's whole `environment`."""
    keys = {name: environment[name] for name in agent.keys if environment.get(name)}
    # `is_mock` is a property of the wrapper, which the protocol declares as a class variable.
    return cast(Agent, _Keyed(agent, keys)) if keys else agent


@dataclass(frozen=True, slots=True, repr=False)
class _Keyed:
    agent: Agent
    key_variables: Mapping[str, str]

    def __getattr__(self, name: str) -> object:
        """What else the agent declares: that it needs the network, which models it refuses."""
        if name.startswith("_") or name == "agent":
            raise AttributeError(name)
        return getattr(self.agent, name)

    @property
    def is_mock(self) -> bool:
        return self.agent.is_mock

    @property
    def keys(self) -> tuple[str, ...]:
        return self.agent.keys

    def availability(self, environment: Mapping[str, str]) -> Availability:
        return self.agent.availability(environment)

    async def work(self, assignment: Assignment, record: Record) -> WorkDone:
        environment = {**assignment.environment, **self.key_variables}
        return await self.agent.work(replace(assignment, environment=environment), record)
