"""Shared variables of a scenario and the rules that compute them each turn.

Values are typed and within their range. The values of a turn follow from those before it, from what actors
set, from metrics and events, and from the run's seed: never from what a narrator writes.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from proctor.evaluators.answer_parser import sections
from proctor.scenario.definition import Actor, Measure, Scenario, Variable
from proctor.scenario.expressions import (
    ExpressionError,
    Group,
    Kind,
    NameType,
    NoValue,
    RuleAssignment,
    RuleNames,
    RuleScope,
    Scalar,
    parse_rule,
)
from proctor.scenario.metrics import typed
from proctor.scenario.state import Value

SET = "SET"
"""The heading under which an actor sets variables in its decision."""
_KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(("number", "integer", "float"), "number"),
    "boolean": "boolean",
    **dict.fromkeys(("choice", "text", "string"), "text"),
}
_SETTING = re.compile(r"^[ \t*`•-]*+([\w.-]++)[\s*`]*+(?:=|:)\s*+(.+)$", re.MULTILINE)
ALL, OWN = "all", "own"


def has_value(variable: Variable, value: Value) -> bool:
    """Whether a variable can have a value as it is."""
    return value is not None and _within(variable, value) == value


def names_of(scenario: Scenario) -> RuleNames:
    """The names that the rules of a scenario may use."""
    everybody = tuple(scenario.actors)
    types = {
        name: NameType(
            kind=_KINDS[variable.type],
            choices=variable.values,
            actors=everybody if variable.per_actor else (),
        )
        for name, variable in scenario.variables.items()
    }
    for name, measure in scenario.metrics.items():
        actors = everybody if measure.actor_specific and not measure.actor else ()
        types.setdefault(name, NameType(kind=_KINDS[measure.type], choices=measure.categories, actors=actors))
    return RuleNames(types=types, events=tuple(scenario.events))


def rule_problems(scenario: Scenario) -> list[tuple[int, ExpressionError]]:
    """The rules that cannot be computed, by position."""
    names, problems = names_of(scenario), list[tuple[int, ExpressionError]]()
    for index, rule in enumerate(scenario.rules):
        try:
            assignment = parse_rule(rule.text, names)
        except ExpressionError as error:
            problems.append((index, error))
            continue
        if assignment.target not in scenario.variables:
            message = f"`{assignment.target}` is a metric: only variables are set"
            problems.append((index, ExpressionError(message)))
    return problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A variable that an actor may set, as its prompt names it."""

    name: str
    values: str
    """The values that it can have, in words."""
    description: str
    now: Value


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldUpdate:
    """The variables after a turn."""

    values: Mapping[str, Value]
    notes: tuple[str, ...] = ()
    """What actors set, and which rules had no value."""


class ScenarioWorld:
    """The variables of one scenario. Values are by name, or by `name.actor` where each actor has one."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        names = names_of(scenario)
        self._rules: list[tuple[str, RuleAssignment]] = [
            (rule.name or rule.text, parse_rule(rule.text, names)) for rule in scenario.rules
        ]

    def initial(self) -> dict[str, Value]:
        """The values before the first turn."""
        values: dict[str, Value] = {}
        for name, variable in self._scenario.variables.items():
            initial = variable.initial
            if not variable.per_actor:
                values[name] = None if isinstance(initial, Mapping) else initial
                continue
            for short in self._scenario.actors:
                values[f"{name}.{short}"] = initial.get(short) if isinstance(initial, Mapping) else initial
        return values

    def settable(self, actor: Actor, values: Mapping[str, Value]) -> list[Setting]:
        """The variables that an actor may set in its decision."""
        return [
            Setting(
                name=name,
                values=_allowed_values(variable),
                description=variable.description,
                now=values.get(self._key(name, actor.short_name)),
            )
            for name, variable in self._scenario.variables.items()
            if actor.short_name in variable.set_by or ALL in variable.set_by
        ]

    def visible(self, values: Mapping[str, Value], actor: Actor | None = None) -> list[tuple[str, str]]:
        """Name and value of each variable that an actor sees, in words; without one, of all."""
        rows = []
        for key, value in values.items():
            name, _, owner = key.partition(".")
            variable = self._scenario.variables[name]
            known_to = variable.visible_to
            short = actor.short_name if actor else ""
            if not short or known_to is None or short in known_to or (OWN in known_to and owner == short):
                unit = f" {variable.unit}" if variable.unit else ""
                rows.append((key, f"{value_label(value)}{unit}"))
        return rows

    def read_settings(self, actor: Actor, answer: str) -> dict[str, Value]:
        """What an actor sets in its answer, by key; None: a value that the variable cannot have."""
        settable = {setting.name for setting in self.settable(actor, {})}
        text = sections(answer, (SET,)).get(SET, "") if settable else ""
        settings: dict[str, Value] = {}
        for match in _SETTING.finditer(text):
            name = match[1].partition(".")[0]
            if name in settable:
                variable = self._scenario.variables[name]
                settings[self._key(name, actor.short_name)] = _within(
                    variable, typed(_measure(variable), match[2].rstrip("*` \t\r"))
                )
        return settings

    def update(
        self,
        values: Mapping[str, Value],
        *,
        settings: Mapping[str, Mapping[str, Value]],
        metrics: Mapping[str, Value],
        events: Sequence[str],
        turn: int,
        seed: int,
    ) -> WorldUpdate:
        """The values after the settings of the actors, by short name, and all rules, in their order."""
        current, notes = dict(values), list[str]()
        for short, mine in settings.items():
            for key, value in mine.items():
                if value is None:
                    notes.append(f"{short} gives {key} a value that it cannot have; it stays as it is")
                else:
                    current[key] = value
                    notes.append(f"{short} sets {key} = {value_label(value)}")
        for index, (name, rule) in enumerate(self._rules):
            rng = random.Random(f"{seed}|{turn}|rule {index}")
            scope = RuleScope(values=self._scope(current, metrics, turn), events=events, random=rng.random)
            key = f"{rule.target}.{rule.actor}" if rule.actor else rule.target
            before = current[key]
            try:
                if before is None:
                    raise NoValue(f"`{key}` has no value")
                value = rule.result(before, scope)
                if value is None:
                    continue
                result = _within(self._scenario.variables[rule.target], value)
                if result is None:
                    raise NoValue(f"{value_label(value)} is no value of `{key}`")
            except NoValue as error:
                notes.append(f"rule `{name}` was not applied: {error}")
                continue
            current[key] = result
        return WorldUpdate(values=current, notes=tuple(notes))

    def _scope(
        self, values: Mapping[str, Value], metrics: Mapping[str, Value], turn: int
    ) -> dict[str, Scalar | Group | None]:
        scope: dict[str, Scalar | Group | None] = {}
        for key, value in (*metrics.items(), *values.items()):
            name, _, actor = key.partition(".")
            if not actor:
                scope[name] = value
            elif value is not None:
                group = scope.get(name)
                scope[name] = {**(group if isinstance(group, Mapping) else {}), actor: value}
        return {**scope, "turn": turn}

    def _key(self, name: str, short: str) -> str:
        return f"{name}.{short}" if self._scenario.variables[name].per_actor else name


def value_label(value: Value) -> str:
    """A value in words."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _within(variable: Variable, value: Value) -> Value:
    """A value as the variable can have it; None: it cannot."""
    if isinstance(value, bool) or value is None:
        return value if variable.type == "boolean" else None
    if isinstance(value, str):
        is_one = variable.type == "text" or (variable.type == "choice" and value in variable.values)
        return value if is_one else None
    if variable.type not in ("number", "integer"):
        return None
    if variable.range is not None:
        value = max(variable.range[0], min(value, variable.range[1]))
    return round(value) if variable.type == "integer" else float(value)


def _measure(variable: Variable) -> Measure:
    """How a value of a variable is read from a text."""
    if variable.type == "boolean":
        return Measure(type="boolean")
    if variable.type in ("number", "integer"):
        return Measure(type="float")
    return Measure(type="string", categories=variable.values)


def _allowed_values(variable: Variable) -> str:
    if variable.type == "choice":
        return " or ".join(variable.values)
    if variable.type == "boolean":
        return "true or false"
    if variable.range is None:
        return {"integer": "a whole number", "number": "a number"}.get(variable.type, "a text")
    low, high = (f"{limit:g}" for limit in variable.range)
    return f"{'a whole number' if variable.type == 'integer' else 'a number'} from {low} to {high}"
