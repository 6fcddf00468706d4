"""Templates and expressions of roles: Jinja in a sandbox.

Roles may come from others, and values come from models: neither can reach anything but the given values.
"""

import heapq
import math
import re
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from functools import lru_cache
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateError, nodes
from jinja2.meta import find_undeclared_variables
from jinja2.sandbox import ImmutableSandboxedEnvironment

from proctor.errors import UsageError
from proctor.json_values import JsonMap, JsonObject, as_sequence

_NO = re.compile(r"\W*(no\b|nein\b|non\b|否|不|没有)", re.IGNORECASE)
_WORD = re.compile(r"[^\W_]{3,}")


def distance(graph: Mapping[str, Mapping[str, float]], start: str, goal: str) -> float:
    """The length of the shortest path between two topics; infinity: none. Edges are undirected."""
    edges: dict[str, dict[str, float]] = {}
    for topic, neighbors in graph.items():
        for other, length in neighbors.items():
            edges.setdefault(topic, {})[other] = length
            edges.setdefault(other, {}).setdefault(topic, length)
    reached, visited = [(0.0, start)], set[str]()
    while reached:
        length, topic = heapq.heappop(reached)
        if topic == goal:
            return length
        if topic in visited:
            continue
        visited.add(topic)
        for other, step in edges.get(topic, {}).items():
            heapq.heappush(reached, (length + step, other))
    return math.inf


def nearest(text: str, passages: Mapping[str, str]) -> str:
    """The topic whose passage is most similar to a text; empty when none shares a word.

    Words are weighted by inverse document frequency.
    """
    words_by_topic = {topic: set(_tokens(f"{topic} {passage}")) for topic, passage in passages.items()}
    text_words = set(_tokens(text))
    if not text_words or not words_by_topic:
        return ""
    rare = {
        word: math.log(1 + len(words_by_topic) / sum(word in of for of in words_by_topic.values()))
        for word in _all(words_by_topic)
    }
    scores = {topic: sum(rare[word] for word in of & text_words) for topic, of in words_by_topic.items()}
    best = max(scores, key=lambda topic: scores[topic])
    return best if scores[best] > 0 else ""


def _tokens(text: str) -> list[str]:
    # Crude stems: "smoking" and "smoke", "drinks" and "drink" are about the same thing.
    return [re.sub(r"(ing|ed|es|s|e)$", "", word) for word in _WORD.findall(text.casefold())]


def _all(words_by_topic: Mapping[str, set[str]]) -> set[str]:
    return {word for of in words_by_topic.values() for word in of}


LONGEST_TEXT = 200_000
"""Maximum characters of a rendered template: more than any model reads."""


def _clamp(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


def _mixed(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, float]:
    """Two tables of weights, added."""
    return {name: _weight(first, name) + _weight(second, name) for name in {**first, **second}}


def _weight(table: Mapping[str, float], name: str) -> float:
    value = table.get(name, 0)
    return float(value) if isinstance(value, int | float) else 0.0


def _without(table: JsonMap, *names: str) -> JsonObject:
    return {name: value for name, value in table.items() if name not in names}


def _sharing(entries: Sequence[Mapping[str, object]], name: str, values: Sequence[object]) -> list[object]:
    """The entries whose list `name` has a value in common with `values`, case ignored."""
    folded = {str(value).casefold() for value in values}
    return [
        entry
        for entry in entries
        if folded & {str(value).casefold() for value in as_sequence(entry.get(name))}
    ]


FUNCTIONS: Mapping[str, Callable[..., object]] = {
    "clamp": _clamp,
    "mixed": _mixed,
    "without": _without,
    "sharing": _sharing,
    "distance": distance,
    "nearest": nearest,
    "min": min,
    "max": max,
    "average": lambda numbers: sum(numbers) / len(numbers) if numbers else 0.0,
}


class _Environment(ImmutableSandboxedEnvironment):
    def make_globals(self, d: MutableMapping[str, Any] | None) -> MutableMapping[str, Any]:
        """As a plain dictionary: Jinja's own mapping is copied key by key for each rendering, which takes
        longer than the rendering."""
        return {**self.globals, **(d or {})}


_ENVIRONMENT = _Environment(
    undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=False
)


_ENVIRONMENT.globals.update(FUNCTIONS)


_ENVIRONMENT.tests["no"] = lambda answer: bool(_NO.match(str(answer)))


@lru_cache(maxsize=2048)
def _template(text: str) -> Template:
    return _ENVIRONMENT.from_string(text)


@lru_cache(maxsize=2048)
def _expression(text: str) -> Callable[..., object]:
    return _ENVIRONMENT.compile_expression(text, undefined_to_none=False)


def check_template(text: str) -> tuple[int, str]:
    """The line and the message of an error in a template; 0 and empty: none."""
    try:
        _template(text)
    except TemplateError as error:
        return getattr(error, "lineno", None) or 1, str(error.message)
    return 0, ""


def check_expression(text: str) -> str:
    """The message of an error in an expression; empty: none."""
    try:
        _expression(text)
    except TemplateError as error:
        return str(error.message)
    return ""


def names_in(text: str, *, is_expression: bool = False) -> set[str]:
    """The variables that a valid template, or expression, uses and does not define."""
    parsed = _ENVIRONMENT.parse(f"{{{{ ({text}) }}}}" if is_expression else text)
    return set(find_undeclared_variables(parsed)) - set(_ENVIRONMENT.globals)


def members_needed(text: str, variable: str) -> set[str]:
    """The members of a variable that a valid template requires.

    Members in branches and loops, and members with a default, are not required.
    """
    members, optional = set[str](), set[str]()
    _collect_members(_ENVIRONMENT.parse(text), variable, members, optional)
    return members - optional - {name for name in dir(dict) if not name.startswith("_")}


def _collect_members(node: nodes.Node, variable: str, members: set[str], optional: set[str]) -> None:
    match node:
        # `profile.get("name")`
        case nodes.Call(node=nodes.Getattr(attr="get", node=nodes.Name(name=name)), args=[first, *_]):
            if name == variable and isinstance(first, nodes.Const):
                optional.add(str(first.value))
    if isinstance(node, nodes.Test | nodes.Filter) and node.name in ("defined", "default", "d"):
        inside = set[str]()
        _collect_members(node.node, variable, inside, optional) if node.node else None
        optional |= inside
        return
    if isinstance(node, nodes.Getattr) and _is_name(node.node, variable):
        members.add(node.attr)
    if (
        isinstance(node, nodes.Getitem)
        and _is_name(node.node, variable)
        and isinstance(node.arg, nodes.Const)
    ):
        members.add(str(node.arg.value))
    for child in node.iter_child_nodes(exclude=("body", "elif_", "else_", "expr1", "expr2", "right")):
        _collect_members(child, variable, members, optional)
    if isinstance(node, nodes.Template):
        for child in node.body:
            _collect_members(child, variable, members, optional)


def _is_name(node: nodes.Node, variable: str) -> bool:
    return isinstance(node, nodes.Name) and node.name == variable


def fill(text: str, values: JsonMap, what: str) -> str:
    """Render a template; `what` names it in an error."""
    try:
        return _template(text).render(values)[:LONGEST_TEXT].strip()
    except Exception as error:
        raise UsageError(f"{what}: {error}") from error


def evaluate(text: str, values: JsonMap, what: str) -> Any:
    """Evaluate an expression; `what` names it in an error."""
    try:
        value = _expression(text)(**values)
        # An undefined name raises only when it is used.
        if isinstance(value, StrictUndefined):
            str(value)
    except Exception as error:
        raise UsageError(f"{what}: `{text}`: {error}") from error
    return value


def value_of(written: object, values: JsonMap, what: str) -> Any:
    """Evaluate a text; anything else is its own value."""
    return evaluate(written, values, what) if isinstance(written, str) else written
