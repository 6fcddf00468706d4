"""A scenario: what the simulation runs, without the files it was read from.

The same data has two forms: plain mappings, which can be varied by path, digested and serialized, and these
classes, which are validated and immutable.
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter

from proctor.item import digest_of
from proctor.patterns import compile_pattern

SHORT_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
DURATION = re.compile(
    r"\d+\s+(second|minute|hour|day|week|month|quarter|year|decade|turn|round|session|season)s?",
    re.IGNORECASE,
)
CONDITION = re.compile(r"(>=|<=|==|!=|>|<)\s*(.+)")
_SEPARATOR = re.compile(r"\s+and\s+(?=[<>=!])", re.IGNORECASE)
STRICT = ConfigDict(extra="forbid")
"""Unknown names are errors."""


def _not_empty(text: str) -> str:
    if not text.strip():
        raise ValueError("should not be empty")
    return text


def _is_regex(pattern: str) -> str:
    try:
        compile_pattern(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"is not a valid regular expression: {error}") from error
    return pattern


def _is_duration(text: str) -> str:
    if text and not DURATION.fullmatch(text.strip()):
        raise ValueError('should be a number and a unit, such as "2 weeks"')
    return text


def _is_range(turns: tuple[int, ...] | None) -> tuple[int, ...] | None:
    if turns is not None and (len(turns) != 2 or turns[0] > turns[1] or turns[0] < 1):
        raise ValueError("should be two turns, the first and the last: [1, 3]")
    return turns


def _is_span(span: tuple[float, ...] | None) -> tuple[float, ...] | None:
    if span is not None and (len(span) != 2 or span[0] > span[1]):
        raise ValueError("should be two numbers, the smallest and the largest: [0, 10]")
    return span


def comparisons_of(condition: str) -> list[str]:
    """The comparisons of a condition: `> 3 and < 7` has two."""
    return _SEPARATOR.split(condition.strip())


def _is_condition(text: str) -> str:
    if not all(map(CONDITION.fullmatch, comparisons_of(text))):
        raise ValueError('should be a comparison such as ">= 7"')
    return text


Text = Annotated[str, AfterValidator(_not_empty)]
Texts = tuple[str, ...]
Number = Annotated[float, Field(allow_inf_nan=False)]
Turns = Annotated[int, Field(ge=1, le=10_000)]
TurnRange = Annotated[tuple[int, ...] | None, AfterValidator(_is_range)]
Pattern = Annotated[str, AfterValidator(_is_regex)]
Conditions = dict[str, Annotated[str, AfterValidator(_is_condition)]]
"""By metric: the comparison its latest value must satisfy, or several joined by `and`."""
Severity = Literal["low", "medium", "high", "critical"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """A participant. All of this is sent to its own model, and none of it to the others'."""

    __pydantic_config__ = STRICT
    name: Text
    short_name: Text
    llm_model: str = ""
    """The model that plays it. Empty: a person does."""
    system_prompt: str = ""
    description: str = ""
    role: str = ""
    goals: Texts = ()
    constraints: Texts = ()
    expertise: Texts = ()
    """Each a field with its level: `finance: expert`."""
    decision_style: str = ""
    private_information: str = ""
    personality_traits: Texts = ()
    expertise_level: str = ""
    communication_style: str = ""
    preferred_coalitions: Texts = ()
    notes: Texts = ()
    """Other properties that the author wrote."""
    control: Literal["ai", "human"] = "ai"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A metric and how it is extracted from a text. A value that cannot be read is missing, never 0."""

    __pydantic_config__ = STRICT
    description: str = ""
    type: Literal["integer", "float", "boolean", "string"] = "float"
    method: Literal["regex", "keyword", "model", "manual"] = "regex"
    pattern: Pattern = ""
    keywords: Texts = ()
    scoring: Literal["count", "presence", "density"] = "count"
    """`density`: matches per hundred words."""
    prompt: str = ""
    model: str = ""
    """The model that extracts it, for the method `model`. Empty: the narrator's model."""
    categories: Texts = ()
    range: Annotated[tuple[Number, ...] | None, AfterValidator(_is_span)] = None
    """A value outside of it counts as missing."""
    unit: str = ""
    actor_specific: bool = False
    actor: str = ""
    """The only actor it is extracted for. Empty: all, when it is actor-specific."""
    aggregation: Literal["", "max", "sum", "last"] = ""
    """How several values in one text become one. Empty: the last."""
    warning_threshold: Number | None = None
    critical_threshold: Number | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventEffect:
    """The effect of an event, in some turns or in all."""

    __pydantic_config__ = STRICT
    text: Text
    turn_range: TurnRange = None
    """The first and last turn in which it applies. None: any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextCondition:
    """A pattern that the world state must contain."""

    __pydantic_config__ = STRICT
    pattern: Pattern
    sensitivity: Pattern = ""
    """A second pattern that must match in the same paragraph. Empty: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioEvent:
    """An external event, which affects all actors whatever they decide."""

    __pydantic_config__ = STRICT
    type: Literal["trend", "random", "conditional", "scheduled"]
    description: Text
    effects: tuple[EventEffect, ...] = ()
    turn_range: TurnRange = None
    """The first and last turn in which it may occur. None: any."""
    once: bool = True
    frequency: Annotated[int, Field(ge=1)] = 1
    probability: Annotated[float, Field(ge=0, le=1)] | None = None
    """Per turn. None: a trend always occurs, a random event never."""
    conditions: Conditions = field(default_factory=dict)
    world_state_contains: tuple[TextCondition, ...] = ()
    """Patterns that the world state before the turn must contain, besides the conditions."""
    turn: Annotated[int, Field(ge=1)] | None = None
    turns: tuple[Annotated[int, Field(ge=1)], ...] = ()
    """The turns of an event that is scheduled more than once."""

    def text_in(self, turn: int) -> str:
        """The event as the narrator reads it in this turn: the description, and the effects of the turn."""
        effects = [
            effect.text.strip()
            for effect in self.effects
            if effect.turn_range is None or effect.turn_range[0] <= turn <= effect.turn_range[1]
        ]
        is_sentence = not effects or self.description.rstrip().endswith((".", "!", "?", ":", ";"))
        return " ".join([self.description if is_sentence else f"{self.description.rstrip()}.", *effects])


VariableType = Literal["number", "integer", "boolean", "choice", "text"]
VariableValue = float | int | bool | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A typed value of the world, which rules and actors change."""

    __pydantic_config__ = STRICT
    type: VariableType
    initial: VariableValue | dict[str, VariableValue]
    """The value before the first turn; by actor where each has one of its own."""
    values: Texts = ()
    """The values of a choice."""
    range: Annotated[tuple[Number, ...] | None, AfterValidator(_is_span)] = None
    """Numbers outside of it become its nearest end."""
    unit: str = ""
    description: str = ""
    per_actor: bool = False
    """Whether each actor has a value of its own."""
    set_by: Texts = ()
    """Short names of the actors that set it in their decisions, or `all`."""
    visible_to: Texts | None = None
    """Short names of the actors that know it; `own`: each knows its own value. None, `all`: all. The narrator
    always does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """An assignment that is computed in each turn, after the decisions."""

    __pydantic_config__ = STRICT
    do: Text
    when: str = ""
    """A condition, if `do` has none."""
    name: str = ""

    @property
    def text(self) -> str:
        """The rule on one line."""
        return f"{self.do.strip()} if {self.when.strip()}" if self.when.strip() else self.do.strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """A place where several actors talk in each turn, and hear all that is said."""

    __pydantic_config__ = STRICT
    members: Texts = ()
    """Short names, in the order in which they speak. Empty: all actors."""
    description: str = ""
    rounds: Annotated[int, Field(ge=1, le=50)] = 1
    """How often each may speak in a turn."""
    turn_range: TurnRange = None
    """The first and last turn in which it meets. None: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationCheck:
    """Something that the validation model checks."""

    __pydantic_config__ = STRICT
    enabled: bool = True
    severity: Severity = "medium"
    description: str = ""
    prompt_template: str = ""
    """With placeholders such as {actor_profile} and {world_state}. Empty: the built-in prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reporting:
    """What the reports of checks contain."""

    __pydantic_config__ = STRICT
    verbosity: Literal["minimal", "standard", "detailed"] = "standard"
    """`minimal`: counts only; `detailed`: the explanation of each issue as well."""
    include_suggestions: bool = False
    """Whether the validation model is asked how each issue can be avoided."""
    halt_on_critical: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """What is checked, when, and the consequence of an issue."""

    __pydantic_config__ = STRICT
    validation_model: str = ""
    """Empty: the narrator's."""
    checks: dict[str, ValidationCheck] = field(default_factory=dict)
    run_after_each_turn: bool = True
    run_at_scenario_end: bool = False
    generate_turn_reports: bool = True
    generate_summary: bool = True
    report_format: Literal["markdown", "json", "both"] = "markdown"
    """Format of the check reports."""
    halt_on_critical: bool = False
    """Stop the run at an issue of severity `high` or `critical`."""
    max_issues_before_halt: Annotated[int, Field(ge=1)] | None = None
    severity_thresholds: dict[str, Literal["log", "warn", "halt"]] = field(default_factory=dict)
    scenario_specific_rules: str = ""
    """What every check has to consider besides its own question."""
    reporting: Reporting = field(default_factory=Reporting)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A complete scenario."""

    __pydantic_config__ = STRICT
    name: Text
    initial_world_state: Text
    turns: Turns
    actors: Annotated[dict[str, Actor], Field(min_length=1)]
    """By short name, in the order in which they act."""
    description: str = ""
    system_prompt: str = ""
    stop_when: Conditions = field(default_factory=dict)
    """The run ends after a turn in which all of these are satisfied; at the latest after `turns`."""
    turn_duration: Annotated[str, AfterValidator(_is_duration)] = ""
    world_state_model: Text = "openai/gpt-4o-mini"
    context_window_size: Annotated[int, Field(ge=1)] = 3
    """Turns that prompts contain in full; older ones are summarized."""
    max_context_tokens: Annotated[int, Field(ge=1)] | None = None
    """Turns leave the window sooner when an actor's context would exceed this. None: no limit."""
    summarization_model: str = ""
    """Empty: the narrator's."""
    enable_bilateral_communication: bool = False
    enable_coalition_formation: bool = False
    enable_public_statements: bool = False
    max_communications_per_turn: Annotated[int, Field(ge=0)] = 2
    """Maximum private talks that one actor may open in a turn."""
    temperature: Annotated[float, Field(ge=0, le=5)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    metrics: dict[str, Measure] = field(default_factory=dict)
    metrics_csv: bool = False
    """Whether a run's metrics are also written as CSV."""
    events: dict[str, ScenarioEvent] = field(default_factory=dict)
    validation: Validation | None = None
    variables: dict[str, Variable] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    """Computed in this order; each sees the results of those before it."""
    groups: dict[str, Annotated[Texts, Field(min_length=1)]] = field(default_factory=dict)
    """Short names of actors, by the name that rules have for them together."""
    rooms: dict[str, Room] = field(default_factory=dict)
    prompts: dict[str, str] = field(default_factory=dict)
    """Templates that replace built-in ones, by name."""
    about: dict[str, Any] = field(default_factory=dict)
    """Metadata of the author: tags, criteria, dates. Not sent to any model."""

    @property
    def models_by_path(self) -> dict[str, str]:
        """Every model it may call, by the path of the setting that names it."""
        named = {
            f"actors.{short}.llm_model": actor.llm_model
            for short, actor in self.actors.items()
            if actor.control == "ai"
        }
        named |= {
            "world_state_model": self.world_state_model,
            "summarization_model": self.summarization_model,
        }
        named |= {
            f"metrics.{name}.model": measure.model
            for name, measure in self.metrics.items()
            if measure.method == "model"
        }
        if self.validation:
            named["validation.validation_model"] = self.validation.validation_model
        return {path: model for path, model in named.items() if model}

    @property
    def outcomes(self) -> list[str]:
        """The metrics that patterns and keywords read from texts, and that no rule, event, or end of a run
        depends on: they can be read again from the texts of a run."""
        conditions = [self.stop_when, *(event.conditions for event in self.events.values())]
        steering = {name.partition(".")[0] for each in conditions for name in each}
        steering |= {word for rule in self.rules for word in re.findall(r"\w+", rule.text)}
        return [
            name
            for name, measure in self.metrics.items()
            if measure.method in ("regex", "keyword") and name not in steering
        ]

    @property
    def models(self) -> list[str]:
        """Every model it may call, once each."""
        return list(dict.fromkeys(self.models_by_path.values()))

    @property
    def humans(self) -> list[str]:
        """Short names of the actors played by people."""
        return [short for short, actor in self.actors.items() if actor.control == "human"]


Plain = dict[str, Any]


@cache
def _adapter() -> TypeAdapter[Scenario]:
    return TypeAdapter(Scenario)


def scenario_of(plain: Mapping[str, Any]) -> Scenario:
    """The scenario of a plain form. Raises pydantic's `ValidationError`, whose locations are paths."""
    return _adapter().validate_json(json.dumps(plain), strict=True)


def names_of(part: type) -> list[str]:
    """The field names of one of these classes."""
    return [name for name in part.__dataclass_fields__ if not name.startswith("_")]  # type: ignore[attr-defined]


# Paths name values of a scenario: `turns`, `actors.port.system_prompt`, `metrics.trust.pattern`.


LONGEST_LEVEL = 80
"""A longer value is represented by its digest in item ids."""
_PARTS: Mapping[str, type] = {
    "actors": Actor,
    "metrics": Measure,
    "events": ScenarioEvent,
    "variables": Variable,
    "rooms": Room,
}


class NoSuchPath(Exception):
    """A scenario has no value at a path; `known` are the names it has there."""

    def __init__(self, name: str, known: list[str], where: str) -> None:
        super().__init__(name)
        self.name, self.known, self.where = name, known, where


def check_path(plain: Plain, path: str) -> tuple[str, ...]:
    """The steps of a path that exists or may exist in this scenario. Raises `NoSuchPath`."""
    steps = tuple(path.split("."))
    _known(steps[0], names_of(Scenario), "a scenario")
    if len(steps) == 1:
        return steps
    if steps[0] == "validation" and len(steps) > 1:
        _known(steps[1], names_of(Validation), "`validation`")
        if steps[1] == "checks" and len(steps) > 2:
            _known(steps[2], list((plain.get("validation") or {}).get("checks", {})), "`validation.checks`")
            if len(steps) > 3:
                _known(steps[3], names_of(ValidationCheck), f"the check `{steps[2]}`")
        return steps
    if steps[0] in _PARTS:
        _known(steps[1], list(plain.get(steps[0], {})), f"`{steps[0]}`")
        if len(steps) > 2:
            _known(steps[2], names_of(_PARTS[steps[0]]), f"`{steps[0]}.{steps[1]}`")
        return steps
    if not isinstance(plain.get(steps[0], {}), dict):
        raise NoSuchPath(steps[1], [], f"`{steps[0]}`")
    return steps


def _known(name: str, names: list[str], where: str) -> None:
    if name not in names:
        raise NoSuchPath(name, names, where)


def flattened(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Each value of a scenario by its path; long ones as their digest. Without the metadata in `about`."""
    values: dict[str, Any] = {}
    _flatten({name: value for name, value in plain.items() if name != "about"}, "", values)
    return values


EXTRACTION = ("pattern", "keywords")
"""Settings of a metric that say how it is read from a text."""


def run_inputs(plain: Plain, changes: Collection[str] = ()) -> dict[str, Any]:
    """Each value that a run of a scenario depends on, by its path. How an outcome is read from its texts is
    none, unless it is one of the `changes` of a variation."""
    outcomes = scenario_of(plain).outcomes
    left_out = {f"metrics.{name}.{key}" for name in outcomes for key in EXTRACTION}
    left_out -= {
        path for path in left_out if any(path == each or path.startswith(f"{each}.") for each in changes)
    }
    return {path: value for path, value in flattened(plain).items() if path not in left_out}


def _flatten(part: Mapping[str, Any], above: str, values: dict[str, Any]) -> None:
    for name, value in part.items():
        if isinstance(value, Mapping):
            _flatten(value, f"{above}{name}.", values)
        elif (isinstance(value, str) and len(value) > LONGEST_LEVEL) or isinstance(value, list):
            values[f"{above}{name}"] = f"sha256:{digest_of(value)[:16]}"
        else:
            values[f"{above}{name}"] = value
