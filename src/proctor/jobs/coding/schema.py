"""Schema of a coding plan as pydantic models, defaults, and the names of its sections in messages.

The models only validate and describe. The plan itself stays plain data, in which a missing key and a key set
to `null` are different.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic.json_schema import WithJsonSchema

from proctor.job import MOST_CONCURRENT, RUN_ID
from proctor.json_values import JsonMap, JsonObject, as_map, without_none
from proctor.plan.validate import (
    Anything,
    Expectation,
    Flag,
    ModelPrice,
    OneOrMany,
    OutagePatience,
    PlanModel,
    PlanResources,
    PlanSandbox,
    ProviderService,
    Seconds,
    Seed,
    StopWhen,
    Text,
    Texts,
    Usd,
    as_list,
    is_finite,
    sections_of,
)
from proctor.sandbox import merge_settings


def _is_run_id(value: str) -> str:
    if not re.fullmatch(RUN_ID, value):
        raise ValueError(
            "should be 1 to 128 letters, digits, dots, dashes or underscores, the first no dot or dash"
        )
    return value


def _is_variable(value: str) -> str:
    if not value or "=" in value:
        raise ValueError("has a name that no environment variable can have")
    return value


def _is_command(value: Any) -> Any:
    for command in value if is_grid_of_commands(value) else [value]:
        arguments = command if isinstance(command, list) else [command]
        if not arguments or not all(isinstance(word, str) for word in arguments) or not arguments[0].strip():
            raise ValueError("should be a command line, a list of words, or a list of such lists")
    return value


def _is_script(value: object) -> object:
    if not isinstance(value, (str, list, dict)) or not value:
        raise ValueError("should be a file's path, or the steps themselves")
    return is_finite(value)


def is_grid_of_commands(value: object) -> bool:
    """Whether this is several commands: a list of arguments is one, a list with lists several."""
    return isinstance(value, list) and any(isinstance(word, list) for word in value)


_WORDS = {"type": "array", "items": {"type": "string"}, "minItems": 1}
Command = Annotated[
    Any,
    AfterValidator(_is_command),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                _WORDS,
                {"type": "array", "items": {"anyOf": [_WORDS, {"type": "string"}]}},
            ]
        }
    ),
]

Script = Annotated[
    Any,
    AfterValidator(_is_script),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array"}, {"type": "object"}]}),
]


class Exclusion(PlanModel):
    """A combination that is left out: one that has all of these values."""

    noun: ClassVar = "exclusion"
    repo: Texts | None = None
    prompt: Texts | None = None
    agent: Texts | None = None
    model: Texts | None = None
    base_branch: Texts | None = None
    script_command: Texts | None = None
    setup: Texts | None = None
    seed: Annotated[list[Seed], BeforeValidator(as_list), OneOrMany()] | None = None
    system: Texts | None = None
    timeout_sec: Annotated[list[Seconds], BeforeValidator(as_list), OneOrMany()] | None = None


class Defaults(PlanModel):
    """What holds for every item that does not say otherwise."""

    base_branch: Texts | None = Field(
        None, description="Branch the work starts from. Default: main, else the one checked out."
    )
    script_command: Texts | None = Field(None, description="Check run after the agent; it decides.")
    model: Annotated[Texts | None, Flag(str, metavar="MODEL", help="Model for items that don't set one.")] = (
        Field(None, description="Which model; a list makes items for each.")
    )
    json_logs: Annotated[
        bool | None, Flag(bool, ("--json-logs/--no-json-logs",), help="Keep the agents' own event streams.")
    ] = Field(None, description="Keep the agent's event stream. Default: true.")
    timeout_sec: Annotated[
        Annotated[list[Seconds], Field(min_length=1), BeforeValidator(as_list), OneOrMany()] | None,
        Flag(
            float,
            minimum=0.001,
            metavar="SECONDS",
            help="Agent timeout in seconds, for items that don't set one.",
        ),
    ] = Field(None, description="Seconds the agent may take. Default: 900.")
    setup_timeout_sec: Seconds | None = Field(
        None, description="Seconds `setup` may take. Default: 900, or `timeoutSec` if that is longer."
    )
    check_timeout_sec: Seconds | None = Field(
        None, description="Seconds the check may take. Default: 900, or `timeoutSec` if that is longer."
    )
    login: Literal["mine"] | None = Field(
        None, description="`mine`: the agent uses the user's login with its own service."
    )
    cache: Literal["shared", "own"] | None = Field(
        None, description="Whether `setup` shares package caches with other sessions. Default: own."
    )
    baseline: bool | None = Field(
        None, description="Run the check before the agent, too, and record the result. Default: false."
    )
    retries: Annotated[
        Annotated[int, Field(ge=0, le=1000)] | None,
        Flag(int, minimum=0, metavar="N", help="Further attempts, for items that don't set them."),
    ] = Field(None, description="Default: 0.")
    merge_on_pass: Annotated[
        bool | None,
        Flag(bool, ("--merge-on-pass/--no-merge-on-pass",), help="Merge the work that passes its check."),
    ] = Field(None, description="Merge work that passed. Default: false.")
    agent: Annotated[Texts | None, Flag(str, metavar="AGENT", help="Agent for items that don't set one.")] = (
        Field(None, description="Who does the work. Default: amp.")
    )
    command: Command | None = Field(None, description="The program of the agent `command`.")
    script: Script | None = Field(None, description="The steps of the agent `scripted`, or their file.")
    setup: Texts | None = Field(None, description="Command run in the work tree before the agent.")
    setup_once: Text | None = Field(
        None, description="Command that installs in `$PROCTOR_ENVIRONMENT`, once for all sessions."
    )
    setup_once_files: list[Text] | None = Field(
        None, description="Files that `setupOnce` depends on, as patterns. Default: all."
    )
    env: dict[Annotated[str, AfterValidator(_is_variable)], str | None] | None = Field(
        None, description="Environment variables of the agent, the setup and the check."
    )
    tags: list[Text] | None = Field(None, description="Words to find items by.")
    runs: Annotated[int, Field(ge=1)] | None = Field(None, description="How often. Default: 1.")
    seed: Annotated[list[Seed], Field(min_length=1), BeforeValidator(as_list), OneOrMany()] | None = None
    budget: Usd | None = Field(None, description="US dollars that one item may cost.")
    retry_on: list[Literal["error", "timeout", "fail"]] | None = Field(
        None, description="What is tried again. Default: error, timeout."
    )
    keep: Literal["always", "on_failure", "never"] | None = Field(
        None, description="When the work tree is kept. Default: on_failure."
    )
    settings: dict[str, Anything] | None = Field(None, description="The agent's, or the model's parameters.")
    system: Texts | None = Field(None, description="System prompt of a plain prompt.")
    expect: Expectation | None = Field(None, description="What the answer is checked for.")
    sandbox: PlanSandbox = None
    resources: PlanResources = None


class Entry(Defaults):
    """An item, or many: a list in place of a value makes items for each."""

    noun: ClassVar = "item"
    prompt: Texts = Field(description="What is asked.")
    repo: Texts | None = Field(None, description="The git repository. Without it: one call of a model.")
    exclude: list[Exclusion] | None = Field(None, description="Combinations of this entry to leave out.")


class CodingPlanFile(PlanModel):
    """A plan for `proctor batch`."""

    run_id: Annotated[str, AfterValidator(_is_run_id)] | None = Field(
        None, description="Name of the batch.", json_schema_extra={"pattern": RUN_ID}
    )
    concurrency: Annotated[
        Annotated[int, Field(ge=1, le=MOST_CONCURRENT)] | None,
        Flag(int, minimum=1, metavar="N", help="Maximum items in parallel; overrides the plan."),
    ] = Field(None, description="Items at once. Default: 4.")
    workers: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        None, description="Processes that share the work. Default: as many as are worth it."
    )
    defaults: Defaults | None = None
    matrix: list[Entry] = Field(min_length=1)
    exclude: list[Exclusion] | None = Field(None, description="Combinations to leave out.")
    budget: Annotated[
        Usd | None,
        Flag(float, minimum=0, metavar="USD", help="Budget of the whole run in USD; overrides the plan."),
    ] = Field(None, description="US dollars that the whole batch may cost.")
    seed: Seed | None = None
    stop_when: StopWhen | None = Field(
        None, alias="stop_when", description="Stop early, once something is decided."
    )
    outage_patience: OutagePatience = None
    service: ProviderService = None
    notify: Text | None = Field(None, description="Command run at the end, or the word `desktop`.")
    prices: dict[str, ModelPrice] | None = None
    models: Texts | None = Field(
        None, description="What agents without `model` may request from the gateway. Default: nothing."
    )
    record: Text | None = Field(None, description="File that keeps the traffic with models.")
    replay: Text | None = Field(None, description="File of a recording that answers in their place.")


DEFAULT_AGENT = "amp"
DEFAULT_CONCURRENCY = 4
BUILT_IN: JsonMap = {
    "baseBranch": "main",
    "jsonLogs": True,
    "timeoutSec": 900,
    "retries": 0,
    "mergeOnPass": False,
    "runs": 1,
    "retryOn": ["error", "timeout"],
    "keep": "on_failure",
    "tags": [],
}
IMPLIED_AGENTS = {"command": "command", "script": "scripted"}
"""Settings that imply an agent when none is named."""
_JOINED = ("env", "settings")


def with_agent(level: JsonMap) -> JsonObject:
    """An entry or the defaults, with the agent that its own settings imply."""
    if level.get("agent") is None:
        for setting, agent in IMPLIED_AGENTS.items():
            if level.get(setting) is not None:
                return {**level, "agent": agent}
    return dict(level)


def settled(entry: JsonMap, defaults: JsonMap) -> dict[str, Any]:
    """All settings of an entry: its own, then the defaults, then the built-in ones."""
    joined: JsonObject = {
        name: _joined(entry, defaults, name) for name in _JOINED if name in entry or name in defaults
    }
    if "sandbox" in entry or "sandbox" in defaults:
        joined["sandbox"] = merge_settings(defaults.get("sandbox"), entry.get("sandbox"))
    merged = {**with_agent(defaults), **with_agent(entry), **joined}
    return {**BUILT_IN, **without_none(merged)}


class EntrySettings(Mapping[str, Any]):
    """The settings of an entry that only adds to the defaults: as `settled`, in a tenth of the memory."""

    __slots__ = ("_defaults", "_entry")

    def __init__(self, entry: JsonMap, defaults: Mapping[str, Any]) -> None:
        self._entry, self._defaults = entry, defaults

    @property
    def own(self) -> JsonMap:
        """What the entry itself sets."""
        return self._entry

    def __getitem__(self, name: str) -> Any:
        return self._entry[name] if name in self._entry else self._defaults[name]

    # The inherited ones raise and catch an exception for each missing name, ten times an entry.

    def __contains__(self, name: object) -> bool:
        return name in self._entry or name in self._defaults

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a setting, or `default`."""
        return self._entry[name] if name in self._entry else self._defaults.get(name, default)

    def __iter__(self) -> Iterator[str]:
        return iter({**self._defaults, **self._entry})

    def __len__(self) -> int:
        return len(self._defaults.keys() | self._entry.keys())


_COMBINED = frozenset({"repo", "agent", "sandbox", *IMPLIED_AGENTS, *_JOINED})
"""Settings that are not simply replaced by those of an entry."""


def settings_of(entry: JsonMap, defaults: JsonMap, whole_defaults: Mapping[str, Any]) -> Mapping[str, Any]:
    """As `settled`; `whole_defaults` are the settings of an empty entry."""
    if not _COMBINED.isdisjoint(entry) or None in entry.values() or "script" in whole_defaults:
        return settled(entry, defaults)
    return EntrySettings(entry, whole_defaults)


def _joined(entry: JsonMap, defaults: JsonMap, name: str) -> JsonObject | None:
    if name in entry and entry[name] is None:
        return None
    both = {**as_map(defaults, name), **as_map(entry, name)}
    return {key: value for key, value in both.items() if value is not None} or None


vocabulary = sections_of(CodingPlanFile, "plan")
