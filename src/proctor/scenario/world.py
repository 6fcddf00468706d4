"""Shared variables of a scenario and the rules that compute them each turn.

Values are typed and within their range. The values of a turn follow from those before it, from what actors
set, from metrics and events, and from the run's seed: never from what a narrator writes.
"""

import ast
import io
import math
import operator
import random
import re
import tokenize
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Literal, NoReturn

from proctor.evaluators.answer_parser import sections
from proctor.scenario.definition import Actor, Measure, Scenario, Variable
from proctor.scenario.metrics import typed
from proctor.scenario.state import Value

# The language of rules: assignments with a condition, such as `treasury -= 5 if vote == "no"`. Expressions
# are Python's, reduced to a white list of nodes: numbers, texts, names, arithmetic, comparisons, `and`, `or`,
# `not`, `a if b else c`, and the functions below. They are checked against the types of the names when the
# scenario is read, and interpreted node by node: no code is ever compiled or executed.

Kind = Literal["number", "boolean", "text"]
Scalar = float | int | bool | str
Group = Mapping[str, Scalar]
"""The values of a variable that each actor has one of, by short name."""
LONGEST_TEXT = 1000
MOST_NODES = 300
LARGEST = 1e15
"""Numbers beyond it are an error: a rule that multiplies every turn would grow without bound."""
_EACH = re.compile(r"\s*for\s+each\s+actor\s+in\s+([\w-]+)\s*:")
OPERATORS = {"=": "=", "+=": "+", "-=": "-", "*=": "*", "/=": "/"}
_ARITHMETIC: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_ORDER: Mapping[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_OF_NUMBERS: Mapping[str, tuple[int, int, Callable[..., float]]] = {
    "min": (2, 9, min),
    "max": (2, 9, max),
    "abs": (1, 1, abs),
    "round": (1, 2, lambda value, digits=0: round(value, int(digits))),
    "floor": (1, 1, math.floor),
    "ceil": (1, 1, math.ceil),
    "sqrt": (1, 1, math.sqrt),
    "exp": (1, 1, math.exp),
    "log": (1, 1, math.log),
    "clamp": (3, 3, lambda value, low, high: max(low, min(value, high))),
}
"""Functions of numbers: fewest and most arguments."""
_OF_GROUPS: Mapping[str, Callable[[Sequence[float]], float]] = {"sum": sum, "mean": fmean}
FUNCTIONS = (*_OF_NUMBERS, *_OF_GROUPS, "count", "of", "event", "random")


class ExpressionError(Exception):
    """A rule is not valid; `column` is the position of the fault in its text, from 1."""

    def __init__(self, problem: str, column: int = 1, remedy: str = "") -> None:
        super().__init__(problem)
        self.problem, self.column, self.remedy = problem, column, remedy


class NoValue(Exception):
    """An expression has no value in this turn: a metric is missing, or a division is by zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NameType:
    """The type of a name in an expression."""

    kind: Kind
    choices: tuple[str, ...] = ()
    """The values of a text that is one of a list; empty: any text."""
    actors: tuple[str, ...] = ()
    """The actors that have a value each; empty: it is a single value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleNames:
    """The names that expressions of a scenario may use."""

    types: Mapping[str, NameType] = field(default_factory=dict)
    events: Sequence[str] = ()
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The actors of each group."""
    is_each: bool = False
    """Whether the name of a variable that each actor has a value of means the value of one actor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleScope:
    """The values of the names in one turn."""

    values: Mapping[str, Scalar | Group | None]
    events: Sequence[str] = ()
    """Events that occur in this turn."""
    random: Callable[[], float] = lambda: 0.0
    actor: str = ""
    """The actor that a rule `for each actor` is applied to; empty: it is no such rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleAssignment:
    """A parsed rule."""

    target: str
    actor: str
    """The actor whose value is set: `vote.port = "no"`. Empty: the variable has one value."""
    operator: str
    """`=`, or the arithmetic operator of `+=`, `-=`, `*=` or `/=`."""
    value: ast.expr
    condition: ast.expr | None
    members: Sequence[str] = ()
    """The actors of a rule `for each actor`, for whom it is applied one after the other."""

    def result(self, current: Scalar, scope: RuleScope) -> Scalar | None:
        """The new value of the target; None: the condition does not hold. Raises `NoValue`."""
        if self.condition is not None and not _evaluate(self.condition, scope):
            return None
        value = _scalar(_evaluate(self.value, scope))
        if self.operator == "=":
            return value
        node = {"+": ast.Add, "-": ast.Sub, "*": ast.Mult, "/": ast.Div}[self.operator]
        return _finite(_ARITHMETIC[node], float(current), float(value))


def parse_rule(text: str, names: RuleNames) -> RuleAssignment:
    """Parse and check a rule. Raises `ExpressionError`."""
    members: Sequence[str] = ()
    if each := _EACH.match(text):
        if each[1] not in names.groups:
            remedy = f"There are: {', '.join(names.groups)}."
            raise ExpressionError(f"there is no group `{each[1]}`", each.start(1) + 1, remedy)
        members, names = names.groups[each[1]], replace(names, is_each=True)
        # As long as before, so that columns stay what they are.
        text = text[each.end() :].rjust(len(text))
    tokens = _tokens(text)
    at = next((index for index, token in enumerate(tokens) if token.string in OPERATORS), None)
    if at is None:
        raise ExpressionError("a rule assigns a value", remedy="Write `treasury -= 5 if treasury > 10`.")
    target, actor = _target(tokens[:at], names)
    rest = tokens[at + 1 :]
    start = rest[0].start[1] if rest else len(text)
    split = _condition_at(rest)
    end = split.start[1] if split else len(text)
    value = _parse(text, start, end)
    condition = _parse(text, split.end[1], len(text)) if split else None
    kind, target_kind = _kind(value, names), names.types[target].kind
    if OPERATORS[tokens[at].string] != "=" and target_kind != "number":
        raise ExpressionError(f"`{target}` is a {target_kind}; only `=` sets it", tokens[at].start[1] + 1)
    if kind != target_kind:
        raise ExpressionError(f"`{target}` is a {target_kind}, and this is a {kind}", value.col_offset + 1)
    _check_choice(names.types[target], value, target)
    if condition is not None and _kind(condition, names) != "boolean":
        raise ExpressionError("a condition is true or false", condition.col_offset + 1)
    return RuleAssignment(
        target=target,
        actor=actor,
        operator=OPERATORS[tokens[at].string],
        value=value,
        condition=condition,
        members=members,
    )


def _tokens(text: str) -> list[tokenize.TokenInfo]:
    if len(text) > LONGEST_TEXT:
        raise ExpressionError(f"a rule has at most {LONGEST_TEXT} characters")
    if "\n" in text.strip():
        raise ExpressionError("a rule is one line", remedy="Make a list entry of each line.")
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError, IndentationError) as error:
        raise ExpressionError(f"cannot be read: {error.args[0]}", len(text)) from error
    ignored = (tokenize.NEWLINE, tokenize.NL, tokenize.ENDMARKER, tokenize.INDENT, tokenize.DEDENT)
    return [token for token in tokens if token.type not in (*ignored, tokenize.COMMENT)]


def _target(tokens: Sequence[tokenize.TokenInfo], names: RuleNames) -> tuple[str, str]:
    """The variable on the left side, and the actor whose value it is."""
    texts = [token.string for token in tokens]
    if not texts or tokens[0].type != tokenize.NAME:
        raise ExpressionError("a rule begins with the name of a variable")
    name, rest = texts[0], texts[1:]
    known = names.types.get(name)
    if known is None:
        _unknown(name, names, tokens[0].start[1] + 1)
    actor = "".join(rest[1:]) if rest[:1] == ["."] else ""
    if rest and not actor:
        raise ExpressionError("the left side is the name of a variable", tokens[1].start[1] + 1)
    if bool(actor) != bool(known.actors) and not (names.is_each and known.actors):
        remedy = f"Write `{name}.ACTOR`." if known.actors else f"Write `{name}`."
        problem = f"`{name}` has {'a value for each actor' if known.actors else 'one value'}"
        raise ExpressionError(problem, tokens[0].start[1] + 1, remedy)
    if actor and actor not in known.actors:
        raise ExpressionError(
            f"there is no actor `{actor}`", tokens[2].start[1] + 1, f"There are: {', '.join(known.actors)}."
        )
    return name, actor


def _condition_at(tokens: Sequence[tokenize.TokenInfo]) -> tokenize.TokenInfo | None:
    """The `if` that begins the condition of a rule: the last one outside of brackets that has no `else`."""
    depth, open_ifs = 0, list[tokenize.TokenInfo]()
    for token in tokens:
        depth += token.string in ("(", "[")
        depth -= token.string in (")", "]")
        if depth == 0 and token.type == tokenize.NAME:
            if token.string == "if":
                open_ifs.append(token)
            elif token.string == "else" and open_ifs:
                open_ifs.pop()
    return open_ifs[-1] if open_ifs else None


def _parse(text: str, start: int, end: int) -> ast.expr:
    """The expression between two positions; its nodes have their columns in the whole text."""
    part = text[start:end]
    if not part.strip():
        raise ExpressionError("something is missing here", start + 1)
    indent = len(part) - len(part.lstrip())
    try:
        tree = ast.parse(part.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        column = (getattr(error, "offset", None) or 1) + start + indent
        message = getattr(error, "msg", "") or str(error)
        raise ExpressionError(f"cannot be read: {message}", column) from error
    nodes = list(ast.walk(tree))
    if len(nodes) > MOST_NODES:
        raise ExpressionError("this is too long; split it into several rules", start + 1)
    for node in nodes:
        if isinstance(node, ast.expr):
            node.col_offset += start + indent
    return tree.body


def _unknown(name: str, names: RuleNames, column: int) -> NoReturn:
    known = ", ".join(names.types) or "none"
    raise ExpressionError(f"there is no variable or metric `{name}`", column, f"There are: {known}.")


def _kind(node: ast.expr, names: RuleNames) -> Kind:
    """The type of an expression. Raises `ExpressionError` for what the language does not have."""
    column = node.col_offset + 1
    match node:
        case ast.Constant(value=bool()):
            return "boolean"
        case ast.Constant(value=int() | float()):
            return "number"
        case ast.Constant(value=str()):
            return "text"
        case ast.Name(id="true" | "false"):
            return "boolean"
        case ast.Name(id="turn"):
            return "number"
        case ast.Name(id=name):
            known = names.types.get(name) or _unknown(name, names, column)
            if known.actors and not names.is_each:
                remedy = f"Write `{name}.ACTOR`, or `count({name}, …)`, `sum({name})`, `mean({name})`."
                raise ExpressionError(f"`{name}` has a value for each actor", column, remedy)
            return known.kind
        case ast.Attribute(value=ast.Name(id=name), attr=actor):
            return _member(name, actor, names, column)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _all("boolean", [operand], names)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            return _all("number", [operand], names)
        case ast.BoolOp(values=values):
            return _all("boolean", values, names)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            return _all("number", [left, right], names)
        case ast.IfExp(test=test, body=body, orelse=other):
            _all("boolean", [test], names)
            return _all(_kind(body, names), [other], names)
        case ast.Compare():
            return _comparison(node, names)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
            return _call(name, args, names, column)
    raise ExpressionError("this is not part of the language of rules", column)


def _all(kind: Kind, nodes: Sequence[ast.expr], names: RuleNames) -> Kind:
    for node in nodes:
        actual = _kind(node, names)
        if actual != kind:
            raise ExpressionError(f"a {kind} is needed here, and this is a {actual}", node.col_offset + 1)
    return kind


def _member(name: str, actor: str, names: RuleNames, column: int) -> Kind:
    known = names.types.get(name) or _unknown(name, names, column)
    if actor not in known.actors:
        there = f"There are: {', '.join(known.actors)}." if known.actors else ""
        raise ExpressionError(f"`{name}` has no value of `{actor}`", column, there)
    return known.kind


def _comparison(node: ast.Compare, names: RuleNames) -> Kind:
    sides = [node.left, *node.comparators]
    for left, op, right in zip(sides, node.ops, sides[1:], strict=False):
        if isinstance(op, ast.In | ast.NotIn):
            if not isinstance(right, ast.List | ast.Tuple):
                remedy = 'Write `x in ["a", "b"]`.'
                raise ExpressionError("`in` needs a list", right.col_offset + 1, remedy)
            _all(_kind(left, names), right.elts, names)
            for element in right.elts:
                _check_sides(left, element, names)
        elif isinstance(op, ast.Eq | ast.NotEq):
            _all(_kind(left, names), [right], names)
            _check_sides(left, right, names)
            _check_sides(right, left, names)
        elif type(op) in _ORDER:
            _all("number", [left, right], names)
        else:
            raise ExpressionError("this comparison is not part of the language", node.col_offset + 1)
    return "boolean"


def _check_sides(named: ast.expr, value: ast.expr, names: RuleNames) -> None:
    """Check that a name is compared with one of its own values."""
    name = named.id if isinstance(named, ast.Name) else ""
    if isinstance(named, ast.Attribute) and isinstance(named.value, ast.Name):
        name = named.value.id
    if name in names.types:
        _check_choice(names.types[name], value, name)


def _check_choice(known: NameType, value: ast.expr, name: str) -> None:
    if known.choices and isinstance(value, ast.Constant) and value.value not in known.choices:
        remedy = f"There are: {', '.join(known.choices)}."
        raise ExpressionError(f"`{name}` is never `{value.value!s}`", value.col_offset + 1, remedy)


def _call(name: str, args: Sequence[ast.expr], names: RuleNames, column: int) -> Kind:
    if name == "random" and not args:
        return "number"
    if name == "event" and len(args) == 1:
        literal = args[0].value if isinstance(args[0], ast.Constant) else None
        if literal not in names.events:
            remedy = f"There are: {', '.join(names.events) or 'none'}."
            raise ExpressionError("`event` needs the name of an event", args[0].col_offset + 1, remedy)
        return "boolean"
    if name in _OF_GROUPS and len(args) == 1:
        known = _group(args[0], names)
        if known.kind != "number":
            raise ExpressionError(f"`{name}` needs numbers", args[0].col_offset + 1)
        return "number"
    if name in ("count", "of") and len(args) == 2:
        known = _group(args[0], names)
        if name == "count":
            _all(known.kind, [args[1]], names)
            _check_choice(known, args[1], getattr(args[0], "id", ""))
            return "number"
        actor = args[1].value if isinstance(args[1], ast.Constant) else None
        return _member(getattr(args[0], "id", ""), str(actor), names, args[1].col_offset + 1)
    if name in _OF_NUMBERS:
        least, most, _ = _OF_NUMBERS[name]
        if least <= len(args) <= most:
            return _all("number", args, names)
    if name in FUNCTIONS:
        raise ExpressionError(f"`{name}` has other arguments", column)
    raise ExpressionError(f"there is no function `{name}`", column, f"There are: {', '.join(FUNCTIONS)}.")


def _group(node: ast.expr, names: RuleNames) -> NameType:
    known = names.types.get(node.id) if isinstance(node, ast.Name) else None
    if known is None or not known.actors:
        raise ExpressionError("this needs a variable with a value for each actor", node.col_offset + 1)
    return known


def _evaluate(node: ast.expr, scope: RuleScope) -> Scalar | Group:
    match node:
        case ast.Constant(value=bool() | int() | float() | str() as value):
            return value
        case ast.Name(id="true" | "false" as word):
            return word == "true"
        case ast.Name(id=name):
            named = scope.values.get(name)
            if named is None:
                raise NoValue(f"`{name}` has no value")
            return _of(name, scope.actor, scope) if scope.actor and isinstance(named, Mapping) else named
        case ast.Attribute(value=ast.Name(id=name), attr=actor):
            return _of(name, actor, scope)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _evaluate(operand, scope)
        case ast.UnaryOp(op=op, operand=operand):
            value = _number(operand, scope)
            return -value if isinstance(op, ast.USub) else value
        case ast.BoolOp(op=op, values=values):
            test = any if isinstance(op, ast.Or) else all
            return test(_evaluate(value, scope) for value in values)
        case ast.BinOp(left=left, op=op, right=right):
            return _finite(_ARITHMETIC[type(op)], _number(left, scope), _number(right, scope))
        case ast.IfExp(test=test_node, body=body, orelse=other):
            return _evaluate(body if _evaluate(test_node, scope) else other, scope)
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            sides = [left, *comparators]
            return all(
                _compares(op, side, other, scope)
                for side, op, other in zip(sides, ops, sides[1:], strict=False)
            )
        case ast.Call(func=ast.Name(id=name), args=args):
            return _called(name, args, scope)
    raise NoValue("this is not part of the language of rules")


def _compares(op: ast.cmpop, left: ast.expr, right: ast.expr, scope: RuleScope) -> bool:
    if isinstance(right, ast.List | ast.Tuple):
        is_in = _evaluate(left, scope) in [_evaluate(each, scope) for each in right.elts]
        return is_in if isinstance(op, ast.In) else not is_in
    if type(op) in _ORDER:
        return _ORDER[type(op)](_number(left, scope), _number(right, scope))
    equal = _evaluate(left, scope) == _evaluate(right, scope)
    return equal if isinstance(op, ast.Eq) else not equal


def _called(name: str, args: Sequence[ast.expr], scope: RuleScope) -> Scalar:
    if name == "random":
        return scope.random()
    if name == "event":
        return _evaluate(args[0], scope) in scope.events
    if name in ("of", "count", *_OF_GROUPS):
        variable = getattr(args[0], "id", "")
        if name == "of":
            return _of(variable, str(_evaluate(args[1], scope)), scope)
        group = scope.values.get(variable)
        if not isinstance(group, Mapping):
            raise NoValue(f"`{variable}` has no value")
        if name == "count":
            counted = _evaluate(args[1], scope)
            return sum(value == counted for value in group.values())
        return _OF_GROUPS[name]([float(value) for value in group.values()])
    return _finite(_OF_NUMBERS[name][2], *(_number(each, scope) for each in args))


def _of(name: str, actor: str, scope: RuleScope) -> Scalar:
    group = scope.values.get(name)
    value = group.get(actor) if isinstance(group, Mapping) else None
    if value is None:
        raise NoValue(f"`{name}` of {actor} has no value")
    return value


def _scalar(value: Scalar | Group) -> Scalar:
    assert not isinstance(value, Mapping)
    return value


def _number(node: ast.expr, scope: RuleScope) -> float:
    return float(_scalar(_evaluate(node, scope)))


def _finite(function: Callable[..., float], *numbers: float) -> float:
    """The result of a function of numbers. Raises `NoValue` where it has none within bounds."""
    try:
        value = function(*numbers)
    except (ArithmeticError, ValueError) as error:
        raise NoValue(str(error)) from error
    if isinstance(value, complex) or not abs(value) <= LARGEST:
        raise NoValue("the result is too large, or no number")
    return value


# Variables, and how rules compute them.


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
    groups = {ALL: everybody, **scenario.groups}
    return RuleNames(types=types, events=tuple(scenario.events), groups=groups)


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
            own = OWN if owner == short else ALL
            if not short or known_to is None or not {ALL, short, own}.isdisjoint(known_to):
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
            for member in rule.members or ("",):
                known = self._scope(current, metrics, turn)
                scope = RuleScope(values=known, events=events, random=rng.random, actor=member)
                try:
                    self._apply(rule, scope, current)
                except NoValue as error:
                    of_member = f" for {member}" if member else ""
                    notes.append(f"rule `{name}` was not applied{of_member}: {error}")
        return WorldUpdate(values=current, notes=tuple(notes))

    def _apply(self, rule: RuleAssignment, scope: RuleScope, current: dict[str, Value]) -> None:
        """Set the target of a rule in the current values, if its condition holds. Raises `NoValue`."""
        variable = self._scenario.variables[rule.target]
        key = self._key(rule.target, rule.actor or scope.actor)
        before = current[key]
        if before is None:
            raise NoValue(f"`{key}` has no value")
        value = rule.result(before, scope)
        if value is None:
            return
        result = _within(variable, value)
        if result is None:
            raise NoValue(f"{value_label(value)} is no value of `{key}`")
        current[key] = result

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
