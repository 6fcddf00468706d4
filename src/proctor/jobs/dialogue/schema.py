"""The config of a simulation as pydantic models, and config and overrides as one set of settings."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, make_dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from proctor.errors import Place, Problem
from proctor.job import MOST_CONCURRENT
from proctor.jobs.dialogue.roles import MOST_TEMPERATURE
from proctor.jobs.dialogue.world import TaskEntry, ToolEntry
from proctor.json_values import JsonMap, JsonObject
from proctor.plan.criteria import as_entry
from proctor.plan.source import KeyPath, KeyPlace, PlanSource, ValuePlace, refuse
from proctor.plan.validate import (
    ExcludeWhen,
    Flag,
    OneOrMany,
    OutagePatience,
    PlanResources,
    PlanSandbox,
    ProviderService,
    SectionLabel,
    StopWhen,
    check_shape,
    flags_of,
    sections_of,
)
from proctor.plan.yaml_loader import read_source

_STRICT = ConfigDict(extra="forbid", strict=True)
Count = Annotated[int, Field(ge=1)]
Language = Annotated[str, Field(pattern=r"^[a-z]{2,3}(-[A-Za-z0-9]+)*$")]
Temperature = Annotated[float, Field(ge=0, le=MOST_TEMPERATURE)]


def as_list(value: object) -> list[Any]:
    """A value as a list; a text is split at commas."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value if isinstance(value, list) else [value]


_AS_LIST = BeforeValidator(as_list)
Names = Annotated[list[str], Field(min_length=1), _AS_LIST, OneOrMany()]


class RoleEntry(BaseModel):
    """One client or therapist, when there is more to say than its role's name."""

    model_config = _STRICT
    role: Annotated[str, Field(min_length=1)]
    label: Annotated[str, Field(min_length=1)] | None = None
    profile: str | int | list[str | int] | None = None
    profiles_file: str | None = None
    options: JsonObject | None = None
    model: str | None = None
    temperature: Temperature | None = None
    tools: str | list[ToolEntry] | None = None
    policy: Annotated[str, Field(min_length=1)] | None = None
    previous: str | None = None


class AspectEntry(BaseModel):
    """One question below a dimension."""

    model_config = _STRICT
    name: str
    description: str
    paradigm: str | None = None
    range: list[int] | None = None
    labels: list[str] | None = None


class EvaluatorEntry(BaseModel):
    """One question a judge answers about each session."""

    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=True)
    name: Annotated[str, Field(min_length=1)]
    instructions: Annotated[str, Field(min_length=1)] | None = None
    description: str | None = None
    scale: Literal["binary", "scalar", "categorical", "extraction"] | None = None
    level: Literal["session", "turn"] | None = None
    target: Literal["client", "therapist"] | None = None
    range: Annotated[list[int], Field(min_length=2, max_length=2)] | None = None
    labels: Annotated[list[str], Field(min_length=2)] | None = None
    sees_profile: bool | None = None
    model: str | None = None
    passes_at: float | None = None
    aspects: list[AspectEntry] | None = None
    expect: JsonObject | None = None
    paradigm: str | None = None


Entries = Annotated[list[Annotated[RoleEntry, as_entry("role")]], Field(min_length=1), _AS_LIST, OneOrMany()]


class PriceEntry(BaseModel):
    """USD per million tokens."""

    model_config = _STRICT
    input: Annotated[float, Field(ge=0)]
    output: Annotated[float, Field(ge=0)]
    cached: Annotated[float, Field(ge=0)] | None = None
    cache_write: Annotated[float, Field(ge=0)] | None = None


class SimulationFile(BaseModel):
    """A whole config: each field is a key of it, an argument of Python, and with `Flag` a flag."""

    model_config = _STRICT
    clients: Annotated[Entries, Flag(str)] = Field(
        default=[RoleEntry(role="patientPsi")],
        description="Client roles, separated by commas (default: patientPsi).",
    )
    therapists: Annotated[Entries, Flag(str)] = Field(
        default=[RoleEntry(role="CBT")], description="Therapist roles, separated by commas (default: CBT)."
    )
    num_runs: Annotated[Count, Flag(int)] = Field(
        default=5, description="Repeats per combination (default: 5)."
    )
    max_turns: Annotated[Count, Flag(int)] = Field(
        default=20, description="Maximum turns per session (default: 20)."
    )
    max_workers: Annotated[Count, Field(le=MOST_CONCURRENT), Flag(int)] = Field(
        default=4, description="Maximum dialogues in parallel (default: 4)."
    )
    output_dir: Annotated[str | None, Flag(str, ("--output", "--output-dir"))] = Field(
        default=None, description="Output folder (default: outputs/batch/<timestamp>)."
    )
    seed: Annotated[int | None, Field(ge=-(2**63), lt=2**63), Flag(int)] = Field(
        default=None, description="Random seed; makes a run repeatable."
    )
    model_type: str | None = None
    model_name: Names | None = None
    temperature: Annotated[
        Annotated[list[Temperature], Field(min_length=1), _AS_LIST, OneOrMany()] | None, Flag(float)
    ] = Field(default=None, description="Sampling temperature of the models.")
    max_tokens: Count | None = None
    client_model: Annotated[Names | None, Flag(str)] = Field(
        default=None, description="Model of the clients; several, separated by commas, are all run."
    )
    therapist_model: Annotated[Names | None, Flag(str)] = Field(
        default=None, description="Model of the therapists; several, separated by commas, are all run."
    )
    judge_model: str | None = None
    lang: Language = "en"
    language: Annotated[Language | None, Flag(str, ("--lang", "--language"))] = Field(
        default=None, description="Language of the roles: en, de, zh, … (default: en)."
    )
    opens: Literal["client", "therapist"] | None = None
    under_test: Literal["client", "therapist"] = "therapist"
    reminder_turns: Annotated[int, Field(ge=0)] = 2
    loop_turns: Annotated[int, Field(ge=0)] = 3
    timeout_sec: Annotated[float, Field(gt=0)] | None = None
    retries: Annotated[int, Field(ge=0)] = 0
    budget_limit: Annotated[
        Annotated[float, Field(ge=0, allow_inf_nan=False)] | None, Flag(float, ("--budget",), minimum=0)
    ] = Field(default=None, description="Budget of the whole run in USD.")
    cost_per_run_limit: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    prices: dict[str, PriceEntry] | None = None
    evaluators: list[Annotated[EvaluatorEntry, as_entry("name")]] | None = None
    record: str | None = None
    replay: str | None = None
    notify: str | None = None
    tags: list[str] | None = None
    world: str | JsonObject | None = None
    tasks: str | Annotated[list[TaskEntry], Field(min_length=1)] | None = None
    attribution_model: str | None = None
    human: Annotated[Literal["terminal", "web"] | None, Flag(str)] = Field(
        default=None, description="Where a person who plays a role answers: terminal (default) or web."
    )
    pairs: (
        Annotated[list[Annotated[list[str], Field(min_length=2, max_length=2)]], Field(min_length=1)] | None
    ) = None
    stop_when: StopWhen | None = Field(default=None, description="Stop early, once something is decided.")
    exclude_when: ExcludeWhen | None = None
    sandbox: PlanSandbox = None
    outage_patience: OutagePatience = None
    service: ProviderService = None
    resources: PlanResources = None


DEFAULTS = SimulationFile().model_dump(exclude={"clients": True, "therapists": True}) | {
    "clients": ["patientPsi"],
    "therapists": ["CBT"],
}
CONFIG_KEYS = tuple(SimulationFile.model_fields)
_ARGUMENTS: Any = make_dataclass(
    "_ARGUMENTS",
    [(name, setting.annotation, None) for name, setting in SimulationFile.model_fields.items()],
    kw_only=True,
)


@dataclass(kw_only=True)
class DialogueOverrides(_ARGUMENTS):  # type: ignore[misc]  # made from the model
    """The settings of a config that take precedence over it, each by its key. None: not set."""

    model: str | None = None
    """Model of both sides as `provider/model`: replaces `model_name` and `model_type`."""

    flags: ClassVar = flags_of(SimulationFile)

    def settings(self) -> JsonObject:
        """The settings that are set, as a config has them."""
        values = {key.name: getattr(self, key.name) for key in fields(DialogueOverrides)}
        model = values.pop("model")
        if model is not None:
            values["model_name"] = model
            provider, slash, _ = model.partition("/")
            if provider and slash:
                # The config's `model_type` must not be put before a name that has its provider.
                values["model_type"] = ""
        return {name: _plain(value) for name, value in values.items() if value is not None}


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


vocabulary = sections_of(SimulationFile, "config")
FLAGS = "the command line"


@dataclass(frozen=True, kw_only=True)
class DialogueSettings:
    """Config and overrides together; a problem is reported where its setting is."""

    flags: PlanSource
    written: PlanSource | None
    """None: there is no file."""
    arguments: Mapping[int, str] = field(default_factory=dict)
    """Overrides from Python: the argument at each line of `flags`."""

    @property
    def data(self) -> JsonObject:
        """All settings; overrides take precedence."""
        return {**(self.written.data if self.written else {}), **self.flags.data}

    def shape_problems(self) -> list[Problem]:
        """Problems of names and types."""
        label = _of_flags(self.flags.file)
        problems = list(map(self._named, check_shape(self.flags, SimulationFile, label).problems))
        if self.written:
            problems += check_shape(self.written, SimulationFile, vocabulary).problems
        return problems

    def problem(self, path: KeyPath, problem: str, remedy: str = "") -> Problem:
        """A problem at a path, in the overrides or the file, whichever sets it."""
        from_flag = self.written is None or (path and path[0] in self.flags.data)
        source = self.flags if from_flag else self.written
        assert source is not None
        return self._named(source.problem(path, problem, remedy))

    def _named(self, problem: Problem) -> Problem:
        """A problem of an override from Python, at its argument."""
        if not self.arguments or problem.at.file != self.flags.file:
            return problem
        argument = self.arguments.get(problem.at.line, "")
        place = f"{self.flags.file}.{argument}" if argument else self.flags.file
        return replace(problem, at=Place(place, 0, 0))


def read_settings(
    text: str | bytes | None, overrides: JsonMap, *, file: str, caller: str = ""
) -> DialogueSettings:
    """Read a config and its overrides. `text` is None when there is no config.

    `caller` is the class or function whose arguments the overrides are; empty: flags.
    """
    if not caller:
        return DialogueSettings(flags=_flags(overrides), written=_written(text, file))
    arguments = dict[int, str]()
    places = _argument_places(dict(overrides), "", arguments)
    source = PlanSource(caller, "", dict(overrides), places)
    return DialogueSettings(flags=source, written=_written(text, file), arguments=arguments)


def _argument_places(value: object, name: str, arguments: dict[int, str]) -> ValuePlace:
    """Positions of a value and its parts, each on a line of its own, and what is at each line."""
    line = len(arguments) + 1
    arguments[line] = name
    if isinstance(value, dict):
        inside = {
            key: KeyPlace(place.line, 1, place)
            for key, inner in value.items()
            for place in [_argument_places(inner, f"{name}.{key}" if name else str(key), arguments)]
        }
        return ValuePlace(line, 1, inside)
    if isinstance(value, list):
        parts = [
            _argument_places(inner, f"{name}[{number}]", arguments) for number, inner in enumerate(value)
        ]
        return ValuePlace(line, 1, parts)
    return ValuePlace(line, 1)


def _flags(overrides: JsonMap) -> PlanSource:
    """The overrides as a source; all are at its first position."""
    return PlanSource(
        FLAGS,
        "",
        dict(overrides),
        ValuePlace(1, 1, {name: KeyPlace(1, 1, ValuePlace(1, 1)) for name in overrides}),
    )


def _of_flags(name: str) -> Callable[[KeyPath], SectionLabel | None]:
    title = "A command line" if name == FLAGS else f"A {name}"
    return lambda path: vocabulary(path) if path else SectionLabel(name, title, CONFIG_KEYS)


def _written(text: str | bytes | None, file: str) -> PlanSource | None:
    if text is None:
        return None
    source = read_source(text, file=file)
    if not isinstance(source.data, dict):
        remedy = f"It may have: {', '.join(CONFIG_KEYS)}."
        refuse(
            [*source.problems, source.problem((), "the config is not a mapping of names to values", remedy)]
        )
    return source
