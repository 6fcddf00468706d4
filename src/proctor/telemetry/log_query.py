"""The query language of CloudWatch Logs Insights, and the JSON patterns of `FilterLogEvents`.

Commands are separated by `|`: `fields`, `display`, `filter`, `parse`, `stats`, `sort`, `limit`, `dedup`. What
is not understood is a `MalformedQuery`, never an empty answer.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cmp_to_key
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
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)(?![\w.])
      | (?P<period>\d+(?:ms|s|m|h|d|w))(?!\w)
      | `(?P<quoted>[^`]+)`
      | (?P<name>[@A-Za-z_$][\w@$]*(?:\.[\w@$*-]+|\[\d+\])*)
      | (?P<symbol>!=|<=|>=|=~|&&|\|\||[=<>+\-*/%(),\[\]])
    )""",
    re.VERBOSE,
)
_REGEX = re.compile(r"\s*/((?:[^/\\]|\\.)+)/")
# A group that repeats and is repeated: such patterns can take forever.
_EXPLODING = re.compile(r"\([^()]*[+*}][^()]*\)[+*{]")
_PERIODS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


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


@dataclass(frozen=True, slots=True)
class Term:
    """An expression with its text, which names its column."""

    text: str
    value: Expression
    alias: str = ""

    @property
    def name(self) -> str:
        """The column's name."""
        return self.alias or self.text


class _Parser:
    """Parses expressions of one command."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    @property
    def is_done(self) -> bool:
        return not self._text[self._at :].strip()

    def peek(self) -> tuple[str, str]:
        """The next token: its kind and its text; both empty at the end."""
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            if self.is_done:
                return "", ""
            raise MalformedQuery(f"unexpected {self._text[self._at :].strip()[:40]!r}")
        kind = str(match.lastgroup)
        return kind, match[kind]

    def take(self) -> tuple[str, str]:
        """The next token, consumed."""
        kind, text = self.peek()
        match = _TOKEN.match(self._text, self._at)
        self._at = match.end() if match else len(self._text)
        return kind, text

    def word(self, *words: str) -> bool:
        """Whether the next token is one of these words or symbols; it is consumed."""
        kind, text = self.peek()
        if kind in ("name", "symbol") and text.lower() in words:
            self.take()
            return True
        return False

    def expect(self, symbol: str) -> None:
        """Take a symbol. Raises `MalformedQuery` if another one comes."""
        if not self.word(symbol):
            raise MalformedQuery(f"expected {symbol!r} before {self._text[self._at :].strip()[:40]!r}")

    def finish(self) -> None:
        """The command must end here."""
        if not self.is_done:
            raise MalformedQuery(f"unexpected {self._text[self._at :].strip()[:40]!r}")

    def name(self) -> str:
        """Take a name, quoted or not."""
        kind, text = self.take()
        if kind not in ("name", "quoted"):
            raise MalformedQuery(f"expected a name instead of {text!r}")
        return text

    def text(self) -> str:
        """Take a quoted text, without its quotes."""
        kind, text = self.take()
        if kind != "text":
            raise MalformedQuery(f"expected a quoted text instead of {text!r}")
        return _unquoted(text)

    def terms(self) -> list[Term]:
        """Expressions separated by commas, each with its name."""
        terms = [self.term()]
        while self.word(","):
            terms.append(self.term())
        return terms

    def term(self) -> Term:
        """One expression with the alias behind it."""
        began = self._at
        value = self.expression()
        text = self._text[began : self._at].strip().strip("`")
        return Term(text, value, self.name() if self.word("as") else "")

    def expression(self) -> Expression:
        """Take an expression: alternatives, the weakest operator."""
        parts = [self._conjunction()]
        while self.word("or", "||"):
            parts.append(self._conjunction())
        return parts[0] if len(parts) == 1 else lambda row: any(truth(part(row)) for part in parts)

    def _conjunction(self) -> Expression:
        parts = [self._negation()]
        while self.word("and", "&&"):
            parts.append(self._negation())
        return parts[0] if len(parts) == 1 else lambda row: all(truth(part(row)) for part in parts)

    def _negation(self) -> Expression:
        if self.word("not"):
            inner = self._negation()
            return lambda row: not truth(inner(row))
        return self._comparison()

    def _comparison(self) -> Expression:
        left = self._sum()
        if self.word("not"):
            if self.word("like"):
                like = self._like(left)
                return lambda row: not like(row)
            self.expect("in")
            among = self._among(left)
            return lambda row: not among(row)
        if self.word("like", "=~"):
            return self._like(left)
        if self.word("in"):
            return self._among(left)
        kind, symbol = self.peek()
        if kind == "symbol" and symbol in _COMPARED:
            self.take()
            right, compared = self._sum(), _COMPARED[symbol]
            return lambda row: compared(compare(left(row), right(row)))
        return left

    def _like(self, left: Expression) -> Expression:
        match = _REGEX.match(self._text, self._at)
        if match is not None:
            self._at = match.end()
            pattern = safe_regex(match[1])
            return lambda row: search_in(pattern, as_string(left(row))) is not None
        part = self.text()
        return lambda row: left(row) is not None and part in as_string(left(row))

    def _among(self, left: Expression) -> Expression:
        self.expect("[")
        values = [self._sum()]
        while self.word(","):
            values.append(self._sum())
        self.expect("]")
        return lambda row: any(compare(left(row), value(row)) == 0 for value in values)

    def _sum(self) -> Expression:
        value = self._product()
        while self.peek() in (("symbol", "+"), ("symbol", "-")):
            _, symbol = self.take()
            value = _calculated(symbol, value, self._product())
        return value

    def _product(self) -> Expression:
        value = self._single()
        while self.peek() in (("symbol", "*"), ("symbol", "/"), ("symbol", "%")):
            _, symbol = self.take()
            value = _calculated(symbol, value, self._single())
        return value

    def _single(self) -> Expression:
        if self.word("("):
            inner = self.expression()
            self.expect(")")
            return inner
        if self.word("-"):
            return _calculated("-", lambda _: 0, self._single())
        kind, text = self.take()
        if kind == "text":
            plain = _unquoted(text)
            return lambda _: plain
        if kind == "number":
            number = float(text) if "." in text or "e" in text.lower() else int(text)
            return lambda _: number
        if kind == "quoted":
            return lambda row: row.value(text)
        if kind != "name":
            raise MalformedQuery(f"expected a value instead of {text or 'the end'!r}")
        if self.word("("):
            return self._function(text)
        return lambda row: row.value(text)

    def _function(self, name: str) -> Expression:
        if name.lower() == "bin":
            kind, text = self.take()
            if kind != "period":
                raise MalformedQuery("bin() takes a period such as 5m")
            self.expect(")")
            size = int(text.rstrip("mshdw")) * _PERIODS[text.lstrip("0123456789")]
            return lambda row: time_text(row.timestamp // max(1, size) * max(1, size))
        function = _FUNCTIONS.get(name.lower())
        if function is None:
            raise MalformedQuery(f"there is no function {name}()")
        arguments = list[Expression]()
        if not self.word(")"):
            arguments.append(self.expression())
            while self.word(","):
                arguments.append(self.expression())
            self.expect(")")
        return lambda row: function([argument(row) for argument in arguments])


def safe_regex(pattern: str) -> Pattern:
    """A regular expression of a caller, if it is not known to take forever; it is given up when it does."""
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
    one, two = _number(left), _number(right)
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


def _number(value: object) -> float | int | None:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int | float):
        return value
    try:
        return int(value) if isinstance(value, str) and value.lstrip("-").isdecimal() else float(str(value))
    except ValueError:
        return None


def _calculated(symbol: str, left: Expression, right: Expression) -> Expression:
    def calculate(row: LogRow) -> object:
        one, two = _number(left(row)), _number(right(row))
        if one is None or two is None:
            return None
        try:
            if symbol == "/":
                whole = isinstance(one, int) and isinstance(two, int) and one % two == 0
                return one // two if whole else one / two
            return {"+": one + two, "-": one - two, "*": one * two}[symbol] if symbol != "%" else one % two
        except (ZeroDivisionError, OverflowError):
            return None

    return calculate


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1])


_COMPARED: Mapping[str, Callable[[int | None], bool]] = {
    "=": lambda order: order == 0,
    "!=": lambda order: order != 0,
    "<": lambda order: order is not None and order < 0,
    "<=": lambda order: order is not None and order <= 0,
    ">": lambda order: order is not None and order > 0,
    ">=": lambda order: order is not None and order >= 0,
}
_FUNCTIONS: Mapping[str, Callable[[Sequence[object]], object]] = {
    "ispresent": lambda values: all(value is not None for value in values),
    "isempty": lambda values: all(value in (None, "") for value in values),
    "isblank": lambda values: all(not as_string(value).strip() for value in values),
    "coalesce": lambda values: next((value for value in values if value is not None), None),
    "strcontains": lambda values: len(values) == 2 and as_string(values[1]) in as_string(values[0]),
    "strlen": lambda values: len(as_string(values[0])) if values else 0,
    "tolower": lambda values: as_string(values[0]).lower() if values else "",
    "toupper": lambda values: as_string(values[0]).upper() if values else "",
    "concat": lambda values: "".join(map(as_string, values)),
    "abs": lambda values: abs(_number(values[0]) or 0) if values else None,
    "floor": lambda values: int((_number(values[0]) or 0) // 1) if values else None,
    "ceil": lambda values: -int(-(_number(values[0]) or 0) // 1) if values else None,
}
_AGGREGATES: Mapping[str, Callable[[list[object]], object]] = {
    "count": len,
    "count_distinct": lambda values: len({as_string(value) for value in values}),
    "sum": lambda values: sum(_number(value) or 0 for value in values),
    "min": lambda values: _extreme(values, -1),
    "max": lambda values: _extreme(values, 1),
    "avg": lambda values: sum(_number(value) or 0 for value in values) / len(values) if values else None,
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


@dataclass(frozen=True, slots=True)
class _Aggregate:
    name: str
    of: Expression | None
    """None: of rows, whatever they hold."""
    combine: Callable[[list[object]], object]


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
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    commands = [part.strip() for part in _split("\n".join(lines)) if part.strip()]
    if not commands or len(commands) > MOST_COMMANDS:
        raise MalformedQuery("a query has 1 to 100 commands")
    steps = list[Callable[[Rows], Rows]]()
    columns, is_sorted, limit = dict[str, None](), False, None
    equalities: dict[str, Sequence[str]] = {}
    for command in commands:
        word, _, rest = command.partition(" ") if " " in command else (command, "", "")
        name = word.strip().lower()
        parser = _Parser(rest)
        if name in ("fields", "display"):
            terms = parser.terms()
            if name == "display":
                columns.clear()
            columns.update(dict.fromkeys(term.name for term in terms))
            steps.append(_naming(terms))
        elif name == "filter":
            equalities |= _equality(rest)
            steps.append(_filtering(parser.expression()))
        elif name == "parse":
            steps.append(_parsing(parser))
        elif name == "stats":
            steps.append(_aggregating(parser))
            is_sorted = True
        elif name == "sort":
            steps.append(_sorting(parser))
            is_sorted = True
        elif name == "dedup":
            steps.append(_deduplicating(parser.terms()))
        elif name in ("limit", "head"):
            kind, digits = parser.take()
            if kind != "number" or not digits.isdecimal():
                raise MalformedQuery("limit takes a number")
            limit = int(digits) if limit is None else min(limit, int(digits))
        else:
            raise MalformedQuery(f"there is no command {word[:40]!r}")
        parser.finish()
    return LogQuery(steps, list(columns) or [TIMESTAMP, MESSAGE], is_sorted, limit, equalities)


def _split(text: str) -> Iterator[str]:
    """Commands of a query: separated by bars outside quotes and regular expressions."""
    start, quote = 0, ""
    for at, character in enumerate(text):
        if quote:
            if character == quote and text[at - 1] != "\\":
                quote = ""
        elif character in "\"'`":
            quote = character
        elif character == "/" and re.search(r"(?:like|=~|parse\s+\S+)\s*$", text[start:at]):
            quote = "/"
        elif character == "|" and "||" not in (text[at : at + 2], text[at - 1 : at + 1]):
            yield text[start:at]
            start = at + 1
    yield text[start:]


def _equality(condition: str) -> dict[str, Sequence[str]]:
    """What a condition of one equality says, for a search by index."""
    single = re.fullmatch(r"""\s*([\w.]+)\s*=\s*(["'])([^"']*)\2\s*""", condition)
    if single:
        return {single[1]: [single[3]]}
    several = re.fullmatch(r"""\s*([\w.]+)\s+in\s+\[((?:\s*(["'])[^"']*\3\s*,?)+)\]\s*""", condition)
    return {several[1]: re.findall(r"""["']([^"']*)["']""", several[2])} if several else {}


def _filtering(condition: Expression) -> Callable[[Rows], Rows]:
    return lambda rows: (row for row in rows if truth(condition(row)))


def _naming(terms: Sequence[Term]) -> Callable[[Rows], Rows]:
    """Computes what has an alias or is no plain field."""

    def named(rows: Rows) -> Iterator[LogRow]:
        for row in rows:
            for term in terms:
                value = term.value(row)
                if value is not None and row.value(term.name) is None:
                    row.named[term.name] = value
            yield row

    return named


def _parsing(parser: _Parser) -> Callable[[Rows], Rows]:
    kind, text = parser.peek()
    source = MESSAGE
    if kind in ("name", "quoted"):
        parser.take()
        source = text
    match = _REGEX.match(parser._text, parser._at)
    if match is not None:
        parser._at = match.end()
        pattern = safe_regex(re.sub(r"\(\?<(?![=!])", "(?P<", match[1]))
        names = pattern.names
    else:
        parts = parser.text().split("*")
        joined = "(.*?)".join(map(re.escape, parts)) + ("$" if parts[-1] == "" else "")
        pattern = compile_pattern(joined, re.DOTALL, total_seconds=QUERY_SECONDS)
        names = []
    if parser.word("as"):
        names = [parser.name()]
        while parser.word(","):
            names.append(parser.name())
    if pattern.groups != len(names):
        raise MalformedQuery(f"parse has {pattern.groups} parts and {len(names)} names")

    def parsed(rows: Rows) -> Iterator[LogRow]:
        for row in rows:
            match = search_in(pattern, as_string(row.value(source)))
            if match is not None:
                row.named.update(zip(names, match.groups(), strict=True))
            yield row

    return parsed


def _aggregating(parser: _Parser) -> Callable[[Rows], Rows]:
    aggregates = [_aggregate(parser)]
    while parser.word(","):
        aggregates.append(_aggregate(parser))
    groups = parser.terms() if parser.word("by") else []

    def aggregated(rows: Rows) -> Iterator[LogRow]:
        gathered: dict[tuple[str, ...], list[LogRow]] = {}
        for row in rows:
            gathered.setdefault(tuple(as_string(term.value(row)) for term in groups), []).append(row)
        for members in gathered.values():
            aggregate = LogRow(timestamp=members[0].timestamp, message="", is_aggregate=True)
            for term in groups:
                value = term.value(members[0])
                if value is not None:
                    aggregate.named[term.name] = value
            for each in aggregates:
                values: list[object] = list(members)
                if each.of is not None:
                    values = [value for row in members if (value := each.of(row)) is not None]
                aggregate.named[each.name] = each.combine(values)
            yield aggregate

    return aggregated


def _aggregate(parser: _Parser) -> _Aggregate:
    name = parser.name()
    combine = _AGGREGATES.get(name.lower())
    if combine is None:
        raise MalformedQuery(f"there is no aggregate {name}()")
    parser.expect("(")
    if parser.word("*"):
        of, text = None, "*"
        parser.expect(")")
    elif parser.word(")"):
        of, text = None, ""
    else:
        term = parser.term()
        of, text = term.value, term.text
        parser.expect(")")
    alias = parser.name() if parser.word("as") else f"{name}({text})"
    return _Aggregate(alias, of, combine)


def _sorting(parser: _Parser) -> Callable[[Rows], Rows]:
    orders = list[tuple[Expression, int]]()
    while True:
        value = parser.expression()
        descending = parser.word("desc")
        if not descending:
            parser.word("asc")
        orders.append((value, -1 if descending else 1))
        if not parser.word(","):
            break

    def order(one: LogRow, two: LogRow) -> int:
        for value, sign in orders:
            left, right = value(one), value(two)
            if left is None or right is None:
                order = (left is not None) - (right is not None)
            else:
                order = compare(left, right) or 0
            if order:
                return order * sign
        return 0

    return lambda rows: sorted(rows, key=cmp_to_key(order))


def _deduplicating(terms: Sequence[Term]) -> Callable[[Rows], Rows]:
    def deduplicated(rows: Rows) -> Iterator[LogRow]:
        seen = set[tuple[str, ...]]()
        for row in rows:
            key = tuple(as_string(term.value(row)) for term in terms)
            if key not in seen:
                seen.add(key)
                yield row

    return deduplicated


def json_pattern(pattern: str) -> Callable[[str], bool]:
    """A JSON filter pattern: `{ $.attributes.session.id = "s" && $.count >= 3 }`."""
    inside = pattern.strip()
    if not (inside.startswith("{") and inside.endswith("}")):
        raise MalformedQuery("a JSON pattern stands in braces")
    parser = _PatternParser(inside[1:-1])
    condition = parser.expression()
    parser.finish()

    def matches(message: str) -> bool:
        row = LogRow(timestamp=0, message=message)
        return bool(row.parsed) and truth(condition(row))

    return matches


class _PatternParser(_Parser):
    """Conditions on properties: `$.a.b = "x*"`, `$.n > 1`, `$.a IS NULL`, `$.a NOT EXISTS`."""

    def _comparison(self) -> Expression:
        if self.word("("):
            inner = self.expression()
            self.expect(")")
            return inner
        selector = self.name()
        if not selector.startswith("$."):
            raise MalformedQuery(f"a property begins with `$.`: {selector}")
        path = selector[2:].replace("[", ".").replace("]", "")
        if self.word("is"):
            expected = {"null": None, "true": True, "false": False}
            _, word = self.take()
            if word.lower() not in expected:
                raise MalformedQuery("IS takes NULL, TRUE or FALSE")
            constant = expected[word.lower()]
            return lambda row: (
                at_path(row.parsed, path) is constant
                and (constant is not None or _has_path(row.parsed, path))
            )
        if self.word("not"):
            self.expect("exists")
            return lambda row: not _has_path(row.parsed, path)
        if self.word("exists"):
            return lambda row: _has_path(row.parsed, path)
        kind, symbol = self.take()
        if kind != "symbol" or symbol not in _COMPARED:
            raise MalformedQuery(f"expected a comparison behind {selector}")
        kind, text = self.take()
        if kind == "number":
            number = float(text)
            return lambda row: _COMPARED[symbol](compare(at_path(row.parsed, path), number))
        if kind not in ("text", "name", "quoted") or symbol not in ("=", "!="):
            raise MalformedQuery(f"{selector} is compared with a text by = or !=")
        literal = _unquoted(text) if kind == "text" else text
        joined = ".*".join(map(re.escape, literal.split("*")))
        like = compile_pattern(rf"\A{joined}\Z", re.DOTALL, total_seconds=QUERY_SECONDS)
        is_equal = symbol == "="

        def matches(row: LogRow) -> bool:
            value = at_path(row.parsed, path)
            return value is not None and (search_in(like, as_string(value)) is not None) == is_equal

        return matches


def _has_path(value: JsonMap, path: str) -> bool:
    if at_path(value, path) is not None:
        return True
    outer, _, last = path.rpartition(".")
    holder = at_path(value, outer) if outer else value
    return isinstance(holder, Mapping) and last in holder
