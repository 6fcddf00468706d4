"""The query language of CloudWatch Logs Insights, and the JSON patterns of `FilterLogEvents`.

Commands are separated by `|`: `fields`, `display`, `filter`, `parse`, `stats`, `sort`, `limit`, `dedup`. What
is not understood is a `MalformedQuery`, never an empty answer.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice

from proctor.json_values import JsonMap, parse_json
from proctor.patterns import Pattern, PatternMatch, PatternTimeout, compile_pattern

MOST_COMMANDS = 100
LONGEST_REGEX = 500
QUERY_SECONDS = 5.0
"""For the regular expressions of a query on all rows together, apart from those that cannot take long."""
MOST_ROWS = 10_000
"""Rows of an answer without `limit`."""
TIMESTAMP, MESSAGE = "@timestamp", "@message"
# A group that repeats and is repeated: such patterns can take forever.
_EXPLODING = re.compile(r"\([^()]*[+*}][^()]*\)[+*{]")


class MalformedQuery(ValueError):
    """A query that is not understood."""


@dataclass(slots=True)
class LogRow:
    """One log event, or a row of aggregates."""

    timestamp: int
    """Milliseconds since 1970."""
    message: str
    stream: str = ""
    group: str = ""
    named: dict[str, object] = field(default_factory=dict)
    """Fields that commands have named or computed."""
    is_aggregate: bool = False
    _parsed: object = None

    @property
    def parsed(self) -> JsonMap:
        """The message as JSON; empty when it is none."""
        if self._parsed is None:
            try:
                value = parse_json(self.message)
            except ValueError:
                value = {}
            self._parsed = value if isinstance(value, Mapping) else {}
        return self._parsed if isinstance(self._parsed, Mapping) else {}

    def value(self, name: str) -> object:
        """The value of a field; None: the row does not have it."""
        if name in self.named:
            return self.named[name]
        if self.is_aggregate:
            return None
        if name in _SYSTEM:
            return _SYSTEM[name](self)
        return at_path(self.parsed, name)


def at_path(value: object, path: str) -> object:
    """The value at a dotted path; dots may belong to a key: `attributes.session.id`. None: there is none."""
    if path == "":
        return value
    if isinstance(value, list):
        head, _, rest = path.partition(".")
        number = int(head) if head.isdigit() and len(head) < 6 else len(value)
        return at_path(value[number], rest) if number < len(value) else None
    if not isinstance(value, Mapping):
        return None
    path = path.removeprefix(".")
    if path in value:
        return value[path]
    cut = path.rfind(".")
    while cut > 0:
        if path[:cut] in value:
            inner = at_path(value[path[:cut]], path[cut + 1 :])
            if inner is not None:
                return inner
        cut = path.rfind(".", 0, cut)
    return None


def time_text(milliseconds: int) -> str:
    """A time as Logs Insights writes it."""
    at = datetime.fromtimestamp(milliseconds // 1000, UTC)
    return f"{at:%Y-%m-%d %H:%M:%S}.{milliseconds % 1000:03d}"


_SYSTEM: Mapping[str, Callable[[LogRow], object]] = {
    TIMESTAMP: lambda row: row.timestamp,
    "@ingestionTime": lambda row: row.timestamp,
    MESSAGE: lambda row: row.message,
    "@logStream": lambda row: row.stream,
    "@log": lambda row: row.group,
}

Expression = Callable[[LogRow], object]


def safe_regex(pattern: str) -> Pattern:
    """A regular expression of a caller, if it is not known to take forever; it is given up when it does."""
    pattern = re.sub(r"\(\?<(?![=!])", "(?P<", pattern)
    if len(pattern) > LONGEST_REGEX or _EXPLODING.search(pattern):
        raise MalformedQuery("the regular expression is too long or repeats a repetition")
    try:
        return compile_pattern(pattern.replace("\\/", "/"), total_seconds=QUERY_SECONDS)
    except re.error as error:
        raise MalformedQuery(f"the regular expression is wrong: {error}") from error


def search_in(pattern: Pattern, text: str) -> PatternMatch | None:
    """The first match of a query's regular expression. Raises `MalformedQuery` if it takes too long."""
    try:
        return pattern.search(text)
    except PatternTimeout as timeout:
        raise MalformedQuery(timeout.problem) from timeout


def compare(left: object, right: object) -> int | None:
    """-1, 0 or 1; None: one of them is missing or they cannot be compared."""
    if left is None or right is None:
        return None
    one, two = as_number(left), as_number(right)
    if one is not None and two is not None:
        return (one > two) - (one < two)
    first, second = as_string(left), as_string(right)
    return (first > second) - (first < second)


def truth(value: object) -> bool:
    """Whether a value counts as true."""
    return bool(value) and value not in ("0", "false")


def as_string(value: object) -> str:
    """A value as an answer shows it. Numbers have no exponent; objects are JSON."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, float):
        text = f"{value:.15g}" if abs(value) < 1e15 else f"{value:.0f}"
        return f"{value:.10f}".rstrip("0").rstrip(".") if "e" in text else text
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else str(value)


def as_number(value: object) -> float | int | None:
    """The number that a value is or spells; None: it is none."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int | float):
        return value
    try:
        return int(value) if isinstance(value, str) and value.lstrip("-").isdecimal() else float(str(value))
    except ValueError:
        return None


COMPARED: Mapping[str, Callable[[int | None], bool]] = {
    "=": lambda order: order == 0,
    "!=": lambda order: order != 0,
    "<": lambda order: order is not None and order < 0,
    "<=": lambda order: order is not None and order <= 0,
    ">": lambda order: order is not None and order > 0,
    ">=": lambda order: order is not None and order >= 0,
}
FUNCTIONS: Mapping[str, Callable[[Sequence[object]], object]] = {
    "ispresent": lambda values: all(value is not None for value in values),
    "isempty": lambda values: all(value in (None, "") for value in values),
    "isblank": lambda values: all(not as_string(value).strip() for value in values),
    "coalesce": lambda values: next((value for value in values if value is not None), None),
    "strcontains": lambda values: len(values) == 2 and as_string(values[1]) in as_string(values[0]),
    "strlen": lambda values: len(as_string(values[0])) if values else 0,
    "tolower": lambda values: as_string(values[0]).lower() if values else "",
    "toupper": lambda values: as_string(values[0]).upper() if values else "",
    "concat": lambda values: "".join(map(as_string, values)),
    "abs": lambda values: abs(as_number(values[0]) or 0) if values else None,
    "floor": lambda values: int((as_number(values[0]) or 0) // 1) if values else None,
    "ceil": lambda values: -int(-(as_number(values[0]) or 0) // 1) if values else None,
}
AGGREGATES: Mapping[str, Callable[[list[object]], object]] = {
    "count": len,
    "count_distinct": lambda values: len({as_string(value) for value in values}),
    "sum": lambda values: sum(as_number(value) or 0 for value in values),
    "min": lambda values: _extreme(values, -1),
    "max": lambda values: _extreme(values, 1),
    "avg": lambda values: sum(as_number(value) or 0 for value in values) / len(values) if values else None,
    "earliest": lambda values: values[0] if values else None,
    "latest": lambda values: values[-1] if values else None,
}


def _extreme(values: Iterable[object], sign: int) -> object:
    best: object = None
    for value in values:
        order = compare(value, best)
        if best is None or (order is not None and order == sign):
            best = value
    return best


Rows = Iterable[LogRow]


@dataclass(frozen=True, slots=True)
class LogQuery:
    """A parsed query."""

    commands: Sequence[Callable[[Rows], Rows]]
    columns: Sequence[str]
    is_sorted: bool
    limit: int | None
    equalities: Mapping[str, Sequence[str]]
    """Values that a field must have one of, for a search by index: `attributes.session.id`, `traceId`."""

    def run(self, rows: Rows, most: int = MOST_ROWS) -> list[LogRow]:
        """The answer: the newest first unless it is sorted."""
        for command in self.commands:
            rows = command(rows)
        if not self.is_sorted:
            rows = sorted(rows, key=lambda row: -row.timestamp)
        return list(islice(rows, self.limit if self.limit is not None else most))

    def fields_of(self, row: LogRow) -> Iterator[tuple[str, str]]:
        """The columns that a row has, as text."""
        for name in row.named if row.is_aggregate else self.columns:
            value = row.value(name)
            if value is not None:
                is_time = name in (TIMESTAMP, "@ingestionTime") and isinstance(value, int)
                yield name, time_text(value) if is_time and isinstance(value, int) else as_string(value)


def parse_query(text: str) -> LogQuery:
    """Parse a query; a `MalformedQuery` says what is wrong with it."""
    # Lark takes a tenth of a second to import, and few servers are asked for logs.
    from proctor.telemetry.log_grammar import read_query

    return read_query(text)


def json_pattern(pattern: str) -> Callable[[str], bool]:
    """A JSON filter pattern: `{ $.attributes.session.id = "s" && $.count >= 3 }`."""
    from proctor.telemetry.log_grammar import read_pattern

    inside = pattern.strip()
    if not (inside.startswith("{") and inside.endswith("}")):
        raise MalformedQuery("a JSON pattern stands in braces")
    condition = read_pattern(inside[1:-1])

    def matches(message: str) -> bool:
        row = LogRow(timestamp=0, message=message)
        return bool(row.parsed) and truth(condition(row))

    return matches


def has_path(value: JsonMap, path: str) -> bool:
    """Whether there is a value at a path, be it null."""
    if at_path(value, path) is not None:
        return True
    outer, _, last = path.rpartition(".")
    holder = at_path(value, outer) if outer else value
    return isinstance(holder, Mapping) and last in holder
