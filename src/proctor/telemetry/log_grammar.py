"""The grammar of the queries and JSON patterns of `log_query`, and what each of its rules means."""

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cmp_to_key, partial
from typing import TypeVar

from lark import Lark, Token, Tree, UnexpectedInput, UnexpectedToken

from proctor.patterns import Pattern, compile_pattern
from proctor.telemetry.log_query import (
    AGGREGATES,
    COMPARED,
    FUNCTIONS,
    MESSAGE,
    MOST_COMMANDS,
    QUERY_SECONDS,
    TIMESTAMP,
    Expression,
    LogQuery,
    LogRow,
    MalformedQuery,
    Rows,
    as_number,
    as_string,
    at_path,
    compare,
    has_path,
    safe_regex,
    search_in,
    time_text,
    truth,
)

_KEYWORDS = (
    "fields",
    "display",
    "filter",
    "parse",
    "stats",
    "sort",
    "dedup",
    "limit",
    "head",
    "as",
    "by",
    "or",
    "and",
    "not",
    "like",
    "in",
    "asc",
    "desc",
    "is",
    "null",
    "true",
    "false",
    "exists",
)
_GRAMMAR = r"""
query: command? (_BAR command?)*
?command: _FIELDS _terms                         -> fields
    | _DISPLAY _terms                            -> display
    | _FILTER labeled                            -> filter
    | _PARSE _name? (TEXT | REGEX) (_AS names)?  -> parse
    | _STATS aggregate ("," aggregate)* groups?  -> stats
    | _SORT order ("," order)*                   -> sort
    | _DEDUP _terms                              -> dedup
    | (_LIMIT | _HEAD) DIGITS                    -> limit

_terms: term ("," term)*
term: labeled (_AS _name)?
labeled: expression
names: _name ("," _name)*
_name: NAME | QUOTED
aggregate: combination (_AS _name)?
combination: NAME "(" ("*" | labeled)? ")"
groups: _BY _terms
order: labeled (_ASC | DESC)?

?expression: all_of | all_of (_or all_of)+       -> any_of
?all_of: negation | negation (_and negation)+
?negation: comparison | _NOT negation            -> negated
?comparison: sum
    | sum COMPARED sum                           -> compared
    | sum (_LIKE | "=~") TEXT                    -> contains
    | sum _NOT _LIKE TEXT                        -> not_contains
    | sum (_LIKE | "=~") REGEX                   -> matches
    | sum _NOT _LIKE REGEX                       -> not_matches
    | sum _IN _values                            -> among
    | sum _NOT _IN _values                       -> not_among
_values: "[" sum ("," sum)* "]"
?sum: product | product ((PLUS | MINUS) product)+      -> calculated
?product: atom | atom ((STAR | SLASH | PERCENT) atom)+ -> calculated
?atom: "(" expression ")"
    | "-" atom                                   -> negative
    | TEXT                                       -> text
    | NUMBER                                     -> number
    | _name                                      -> field
    | _BIN "(" PERIOD ")"                        -> bin
    | NAME "(" (expression ("," expression)*)? ")" -> function

?condition: all_match | all_match (_or all_match)+ -> any_of
?all_match: one_match | one_match (_and one_match)+ -> all_of
?one_match: "(" condition ")"
    | _NOT one_match                             -> negated
    | _name _IS _NULL                            -> is_null
    | _name _IS _TRUE                            -> is_true
    | _name _IS _FALSE                           -> is_false
    | _name _EXISTS                              -> exists
    | _name _NOT _EXISTS                         -> not_exists
    | _name COMPARED NUMBER                      -> compares
    | _name COMPARED (TEXT | _name)              -> resembles

_or: _OR | "||"
_and: _AND | "&&"
_BAR: "|"
PLUS: "+"
MINUS: "-"
STAR: "*"
SLASH: "/"
PERCENT: "%"
COMPARED: /!=|<=|>=|=(?!~)|<|>/
TEXT: /"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'/s
REGEX: /\/(?:[^\/\\]|\\.)+\//s
NUMBER: /\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])/
_BIN.2: /bin(?=\s*\()/i
DIGITS: /\d+(?![\w.])/
PERIOD: /\d+(?:ms|s|m|h|d|w)(?!\w)/
QUOTED: /`[^`]+`/
NAME: /[@A-Za-z_$][\w@$]*(?:\.[\w@$*-]+|\[\d+\])*/
COMMENT: /#[^\n]*/
%ignore /\s+/
%ignore COMMENT
"""
_Number = float | int
_OPERATIONS: Mapping[str, Callable[[_Number, _Number], _Number]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "%": operator.mod,
    # Whole numbers stay whole where they can.
    "/": lambda one, two: (
        one // two if isinstance(one, int) and isinstance(two, int) and one % two == 0 else one / two
    ),
}
_PERIODS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


_Node = Tree[Token]
_Command = Callable[[Rows], Rows]


@cache
def _parser() -> Lark:
    keywords = "\n".join(
        rf"{'' if word == 'desc' else '_'}{word.upper()}.2: /{word}(?![\w@$])/i" for word in _KEYWORDS
    )
    return Lark(_GRAMMAR + keywords, parser="lalr", start=["query", "condition"], propagate_positions=True)


def read_query(text: str) -> LogQuery:
    """The query that a text is. Raises `MalformedQuery`."""
    return _read(text, "query", _query)


def read_pattern(text: str) -> Expression:
    """The condition that a JSON pattern states, without its braces. Raises `MalformedQuery`."""
    return _read(text, "condition", lambda tree, _: _expression(tree))


_Meaning = TypeVar("_Meaning")


def _read(text: str, start: str, meaning: Callable[[_Node, str], _Meaning]) -> _Meaning:
    try:
        return meaning(_parser().parse(text, start=start), text)
    except UnexpectedInput as error:
        # Lark's own message lists terminals of the grammar; the place says enough.
        is_end = isinstance(error, UnexpectedToken) and error.token.type == "$END"
        at = len(text) if is_end else error.pos_in_stream or 0
        what = repr(text[at:].strip()[:40]) if text[at:].strip() else "end"
        raise MalformedQuery(f"unexpected {what} after {text[:at].strip()[-40:]!r}") from error
    except RecursionError as error:
        raise MalformedQuery("nested too deeply") from error


def _query(tree: _Node, text: str) -> LogQuery:
    if not 1 <= len(tree.children) <= MOST_COMMANDS:
        raise MalformedQuery("a query has 1 to 100 commands")
    commands = list[_Command]()
    columns, limits = dict[str, None](), list[int]()
    equalities: dict[str, Sequence[str]] = {}
    for command in _trees(tree):
        if command.data == "limit":
            limits.append(int(_tokens(command)[0]))
            continue
        if command.data in ("fields", "display"):
            if command.data == "display":
                columns.clear()
            columns.update(dict.fromkeys(term.name for term in _terms(command, text)))
        elif command.data == "filter":
            equalities |= _equality(_text_of(_trees(command)[0], text))
        commands.append(_command(command, text))
    return LogQuery(
        commands=commands,
        columns=list(columns) or [TIMESTAMP, MESSAGE],
        is_sorted=any(command.data in ("stats", "sort") for command in _trees(tree)),
        limit=min(limits, default=None),
        equalities=equalities,
    )


def _trees(node: _Node) -> list[_Node]:
    return [child for child in node.children if isinstance(child, Tree)]


def _tokens(node: _Node) -> list[str]:
    return [_plain(child) for child in node.children if isinstance(child, Token)]


def _plain(token: Token) -> str:
    """A token without its quotes."""
    if token.type == "TEXT":
        return re.sub(r"\\(.)", r"\1", token[1:-1], flags=re.DOTALL)
    return token[1:-1] if token.type in ("QUOTED", "REGEX") else str(token)


def _text_of(node: _Node, text: str) -> str:
    return text[node.meta.start_pos : node.meta.end_pos].strip("`")


@dataclass(frozen=True, slots=True)
class _Term:
    """An expression with its name: its alias, or its text."""

    name: str
    value: Expression


def _terms(node: _Node, text: str) -> list[_Term]:
    return [
        _Term(_tokens(term)[0] if _tokens(term) else _text_of(labeled, text), _expression(labeled))
        for term in _trees(node)
        for labeled in _trees(term)
    ]


def _expression(node: _Node) -> Expression:
    """The function of a row that an expression or condition is."""
    rule = str(node.data)
    if rule.startswith("not_"):
        opposite = _expression(Tree(rule.removeprefix("not_"), node.children))
        return lambda row: not opposite(row)
    parts, tokens = [_expression(part) for part in _trees(node)], _tokens(node)
    match rule:
        case "any_of":
            return lambda row: any(truth(part(row)) for part in parts)
        case "all_of":
            return lambda row: all(truth(part(row)) for part in parts)
        case "negated":
            return lambda row: not truth(parts[0](row))
        case "compared":
            decide = COMPARED[tokens[0]]
            return lambda row: decide(compare(parts[0](row), parts[1](row)))
        case "contains":
            return lambda row: (value := parts[0](row)) is not None and tokens[0] in as_string(value)
        case "matches":
            pattern = safe_regex(tokens[0])
            return lambda row: search_in(pattern, as_string(parts[0](row))) is not None
        case "among":
            return lambda row: any(compare(parts[0](row), value(row)) == 0 for value in parts[1:])
        case "calculated":
            return lambda row: _calculated(tokens, [part(row) for part in parts])
        case "negative":
            return lambda row: _calculated(["-"], [0, parts[0](row)])
        case "text":
            return lambda _: tokens[0]
        case "number":
            number = int(tokens[0]) if tokens[0].isdecimal() else float(tokens[0])
            return lambda _: number
        case "field":
            return lambda row: row.value(tokens[0])
        case "function":
            function = FUNCTIONS.get(tokens[0].lower())
            if function is None:
                raise MalformedQuery(f"there is no function {tokens[0]}()")
            return lambda row: function([part(row) for part in parts])
        case "bin":
            digits = tokens[0].rstrip("mshdw")
            size = max(1, int(digits) * _PERIODS[tokens[0].removeprefix(digits)])
            return lambda row: time_text(row.timestamp // size * size)
        case "labeled":
            return parts[0]
    path = _property(tokens[0])
    match rule:
        case "exists":
            return lambda row: has_path(row.parsed, path)
        case "is_null":
            return lambda row: at_path(row.parsed, path) is None and has_path(row.parsed, path)
        case "is_true":
            return lambda row: at_path(row.parsed, path) is True
        case "is_false":
            return lambda row: at_path(row.parsed, path) is False
        case "compares":
            limit = float(tokens[2])
            return lambda row: COMPARED[tokens[1]](compare(at_path(row.parsed, path), limit))
    if tokens[1] not in ("=", "!="):
        raise MalformedQuery(f"{tokens[0]} is compared with a text by = or !=")
    joined, is_equal = ".*".join(map(re.escape, tokens[2].split("*"))), tokens[1] == "="
    like = compile_pattern(rf"\A{joined}\Z", re.DOTALL, total_seconds=QUERY_SECONDS)

    def resembles(row: LogRow) -> bool:
        value = at_path(row.parsed, path)
        return value is not None and (search_in(like, as_string(value)) is not None) == is_equal

    return resembles


def _property(name: str) -> str:
    """The path of a property: `$.a[1].b` is `a.1.b`."""
    if not name.startswith("$."):
        raise MalformedQuery(f"a property begins with `$.`: {name}")
    return name[2:].replace("[", ".").replace("]", "")


def _calculated(symbols: Sequence[str], values: Sequence[object]) -> object:
    result = as_number(values[0])
    for symbol, value in zip(symbols, values[1:], strict=True):
        operand = as_number(value)
        if result is None or operand is None:
            return None
        try:
            result = _OPERATIONS[symbol](result, operand)
        except (ZeroDivisionError, OverflowError):
            return None
    return result


def _command(node: _Node, text: str) -> _Command:
    """The function of rows that a command is."""
    match str(node.data):
        case "fields" | "display":
            terms = _terms(node, text)
            return lambda rows: _named(rows, terms)
        case "filter":
            condition = _expression(_trees(node)[0])
            return lambda rows: (row for row in rows if truth(condition(row)))
        case "parse":
            return _parse(node)
        case "dedup":
            terms = _terms(node, text)
            return lambda rows: _deduplicated(rows, terms)
        case "sort":
            orders = [(_expression(_trees(order)[0]), -1 if _tokens(order) else 1) for order in _trees(node)]
            return lambda rows: sorted(rows, key=cmp_to_key(partial(_order, orders)))
    aggregates = [_aggregate(part, text) for part in _trees(node) if part.data == "aggregate"]
    groups = [term for part in _trees(node) if part.data == "groups" for term in _terms(part, text)]
    return lambda rows: _aggregated(rows, aggregates, groups)


def _parse(node: _Node) -> _Command:
    names = [name for part in _trees(node) for name in _tokens(part)]
    *source, written = _tokens(node)
    if any(isinstance(child, Token) and child.type == "REGEX" for child in node.children):
        pattern = safe_regex(written)
        names = names or list(pattern.names)
    else:
        pieces = written.split("*")
        joined = "(.*?)".join(map(re.escape, pieces)) + ("$" if pieces[-1] == "" else "")
        pattern = compile_pattern(joined, re.DOTALL, total_seconds=QUERY_SECONDS)
    if pattern.groups != len(names):
        raise MalformedQuery(f"parse has {pattern.groups} parts and {len(names)} names")
    return lambda rows: _parsed(rows, source[0] if source else MESSAGE, pattern, names)


@dataclass(frozen=True, slots=True)
class _Aggregate:
    name: str
    of: Expression | None
    """None: of rows, whatever they hold."""
    combine: Callable[[list[object]], object]


def _aggregate(node: _Node, text: str) -> _Aggregate:
    combination, alias = _trees(node)[0], _tokens(node)
    function, *_ = _tokens(combination)
    combine = AGGREGATES.get(function.lower())
    if combine is None:
        raise MalformedQuery(f"there is no aggregate {function}()")
    of = [_expression(argument) for argument in _trees(combination)]
    return _Aggregate(alias[0] if alias else _text_of(combination, text), of[0] if of else None, combine)


def _equality(condition: str) -> dict[str, Sequence[str]]:
    """What a condition of one equality says, for a search by index."""
    single = re.fullmatch(r"""\s*([\w.]+)\s*=\s*(["'])([^"']*)\2\s*""", condition)
    if single:
        return {single[1]: [single[3]]}
    several = re.fullmatch(r"""\s*([\w.]+)\s+in\s+\[((?:\s*(["'])[^"']*\3\s*,?)+)\]\s*""", condition)
    return {several[1]: re.findall(r"""["']([^"']*)["']""", several[2])} if several else {}


def _named(rows: Rows, terms: Sequence[_Term]) -> Iterator[LogRow]:
    """Computes what has an alias or is no plain field."""
    for row in rows:
        for term in terms:
            value = term.value(row)
            if value is not None and row.value(term.name) is None:
                row.named[term.name] = value
        yield row


def _parsed(rows: Rows, source: str, pattern: Pattern, names: Sequence[str]) -> Iterator[LogRow]:
    for row in rows:
        match = search_in(pattern, as_string(row.value(source)))
        if match is not None:
            row.named.update(zip(names, match.groups(), strict=True))
        yield row


def _aggregated(rows: Rows, aggregates: Sequence[_Aggregate], groups: Sequence[_Term]) -> Iterator[LogRow]:
    members_by_group: dict[tuple[str, ...], list[LogRow]] = {}
    for row in rows:
        group = tuple(as_string(term.value(row)) for term in groups)
        members_by_group.setdefault(group, []).append(row)
    for members in members_by_group.values():
        result = LogRow(timestamp=members[0].timestamp, message="", is_aggregate=True)
        for term in groups:
            value = term.value(members[0])
            if value is not None:
                result.named[term.name] = value
        for aggregate in aggregates:
            values: list[object] = list(members)
            if aggregate.of is not None:
                values = [value for row in members if (value := aggregate.of(row)) is not None]
            result.named[aggregate.name] = aggregate.combine(values)
        yield result


def _order(orders: Sequence[tuple[Expression, int]], first: LogRow, second: LogRow) -> int:
    for value, sign in orders:
        left, right = value(first), value(second)
        if left is None or right is None:
            order = (left is not None) - (right is not None)
        else:
            order = compare(left, right) or 0
        if order:
            return order * sign
    return 0


def _deduplicated(rows: Rows, terms: Sequence[_Term]) -> Iterator[LogRow]:
    seen = set[tuple[str, ...]]()
    for row in rows:
        key = tuple(as_string(term.value(row)) for term in terms)
        if key not in seen:
            seen.add(key)
            yield row
