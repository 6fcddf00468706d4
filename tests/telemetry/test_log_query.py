"""Queries of logs, each on the same six events."""

import json

import pytest

from proctor.telemetry.log_query import (
    LogRow,
    MalformedQuery,
    as_string,
    at_path,
    json_pattern,
    parse_query,
)

EVENTS = [
    {"level": "error", "ms": 10, "user": {"id": "a"}},
    {"level": "info", "ms": 20, "user": {"id": "b"}},
    {"level": "error", "ms": 30, "user": {"id": "a"}},
    {"level": "info", "ms": 40},
    {"level": "warn", "ms": 50, "note": "slow | very"},
]


def answer(query: str) -> list[dict[str, str]]:
    rows = [LogRow(1000 * number, json.dumps(event), "s", "g") for number, event in enumerate(EVENTS)]
    rows.append(LogRow(9000, "took 75 ms", "t", "g"))
    parsed = parse_query(query)
    return [dict(parsed.fields_of(row)) for row in parsed.run(rows)]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("fields ms | filter level = 'error'", [{"ms": "30"}, {"ms": "10"}]),
        ("fields ms | filter level = 'error' | sort ms asc", [{"ms": "10"}, {"ms": "30"}]),
        ("fields ms | filter ms > 20 and ms <= 40 | sort ms desc", [{"ms": "40"}, {"ms": "30"}]),
        ("fields ms | filter ms < 20 or level = 'warn'", [{"ms": "50"}, {"ms": "10"}]),
        ("fields ms | filter user.id = 'b'", [{"ms": "20"}]),
        ("fields ms | filter note like /slow \\| very/", [{"ms": "50"}]),
        ("fields ms\n# a comment\n| filter ispresent(ms) | sort ms | limit 2 | head 1", [{"ms": "10"}]),
        ("display level | filter ms = 50", [{"level": "warn"}]),
        ("fields level, ms | display ms | filter ms = 50", [{"ms": "50"}]),
        (
            "stats count(*) as n by level | sort level",
            [{"level": level, "n": n} for level, n in zip(("error", "info", "warn"), "221", strict=True)]
            + [{"n": "1"}],
        ),
        (
            "stats sum(ms) as total, avg(ms) as mean, min(ms) as low, max(ms) as high",
            [{"total": "150", "mean": "30", "low": "10", "high": "50"}],
        ),
        ("parse @message 'took * ms' as took | filter ispresent(took) | fields took", [{"took": "75"}]),
        (
            "fields level | filter ispresent(level) | dedup level | sort level",
            [{"level": "error"}, {"level": "info"}, {"level": "warn"}],
        ),
        ("fields ms * 2 + 1 as more | filter ms = 10", [{"more": "21"}]),
        ("fields ms | filter level = 'error' | sort level asc", [{"ms": "10"}, {"ms": "30"}]),
    ],
)
def test_a_query_answers_what_its_commands_say(query, expected):
    found = answer(query)
    if "stats count" in query:
        found = sorted(found, key=lambda row: row.get("level", "~"))
    assert found == expected


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("", "a query has 1 to 100 commands"),
        ("fields ms" + " | limit 1" * 100, "a query has 1 to 100 commands"),
        ("select ms", "unexpected 'select ms'"),
        ("limit ten", "unexpected 'ten' after 'limit'"),
        ("limit 1.5", "unexpected '1.5'"),
        ("fields ms ~", "unexpected '~'"),
        ("fields ms ms", "unexpected 'ms'"),
        ("filter (ms = 1", "unexpected end after 'filter .ms = 1'"),
        ("filter ms in 1", "unexpected '1' after 'filter ms in'"),
        ("filter ms not 1", "unexpected '1' after 'filter ms not'"),
        ("filter ms =", "unexpected end after 'filter ms ='"),
        ("filter ms = )", r"unexpected '\)'"),
        ("filter ms like 1", "unexpected '1' after 'filter ms like'"),
        ("fields ms as 1", "unexpected '1' after 'fields ms as'"),
        ("fields bin(5)", "unexpected '5\\)'"),
        ("fields none(ms)", r"there is no function none\(\)"),
        ("stats none(ms)", r"there is no aggregate none\(\)"),
        ("stats sum ms", "unexpected 'ms'"),
        ("filter s like /(a+)+b/", "too long or repeats a repetition"),
        ("filter s like /" + "a" * 501 + "/", "too long or repeats a repetition"),
        ("filter s like /(/", "the regular expression is wrong"),
        ("parse @message '* *' as one", "parse has 2 parts and 1 names"),
        ("parse @message /(a)(b)/ as one", "parse has 2 parts and 1 names"),
        ("limit", "unexpected end after 'limit'"),
        ("filter " + "not " * 3000 + "ms", "nested too deeply"),
        ("sort ms ascending", "unexpected 'ascending'"),
    ],
)
def test_what_is_not_understood_is_named(query, problem):
    with pytest.raises(MalformedQuery, match=problem):
        parse_query(query)


def test_the_longest_queries_and_expressions_are_taken_and_equalities_are_for_the_index():
    assert parse_query("fields ms" + " | limit 7" * 99).limit == 7
    assert len(parse_query("filter s like /" + "a" * 500 + "/").commands) == 1
    query = parse_query("filter traceId = 'x' | filter service in ['a', \"b\"] | filter ms > 1")
    assert query.equalities == {"traceId": ["x"], "service": ["a", "b"]}
    assert list(query.columns) == ["@timestamp", "@message"] and not query.is_sorted


VALUES = {
    "n": 7,
    "f": 2.5,
    "s": "Text",
    "digits": "12",
    "empty": "",
    "blank": "  ",
    "yes": True,
    "no": False,
    "null": None,
    "zero": "0",
    "list": [{"a": 1}, {"a": 2}],
    "map": {"a.b": 3, "c": {"d": 4}},
    "odd-name": 5,
}


def value(expression: str) -> str | None:
    """An expression on one event; None: it has no value."""
    parsed = parse_query(f"fields {expression} as x")
    (row,) = parsed.run([LogRow(61_234, json.dumps(VALUES), "stream", "group")])
    return dict(parsed.fields_of(row)).get("x")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("n + 1 * 2", "9"),
        *((f"{name}(s)", "0") for name in ("ceil", "floor", "abs")),
        ("(n + 1) * 2", "16"),
        ("n - 2 - 1", "4"),
        ("-n + 1", "-6"),
        ("n / 2", "3.5"),
        ("digits / 4", "3"),
        ("n % 4", "3"),
        ("n / 0", None),
        ("s + 1", None),
        ("f * 2", "5"),
        ("f / 2.5", "1"),
        ("1e3 + 0", "1000"),
        ("yes + 1", "2"),
        ("null + 1", None),
        ("n = 7", "1"),
        ("n = '7'", "1"),
        ("n != 7", "0"),
        ("null != 7", "1"),
        ("null < 7", "0"),
        ("n < 7", "0"),
        ("n <= 7", "1"),
        ("n > 7", "0"),
        ("n >= 7", "1"),
        ("s < 'Texu'", "1"),
        ("s > 'Texu'", "0"),
        ("digits > 7", "1"),
        ("not n = 7", "0"),
        ("not not n = 7", "1"),
        ("n = 1 or n = 7 and s = 'x'", "0"),
        ("(n = 7 or n = 1) and s = 'Text'", "1"),
        ("n = 1 || n = 7", "1"),
        ("n = 7 && n = 1", "0"),
        ("s like 'ex'", "1"),
        ("s like 'EX'", "0"),
        ("null like ''", "0"),
        ("s not like 'ex'", "0"),
        ("s =~ /^T.x/", "1"),
        ("s like /^x/", "0"),
        ("s not like /^x/", "1"),
        ("n in [1, 7]", "1"),
        ("n in [1]", "0"),
        ("n not in [1, 7]", "0"),
        ("s in ['Text', 'x']", "1"),
        ("`odd-name`", "5"),
        ("list.1.a", "2"),
        ("list.2.a", None),
        ("list.x.a", None),
        ("list.100000.a", None),
        ("map.a.b", "3"),
        ("map.c.d", "4"),
        ("map.c.e", None),
        ("n.a", None),
        ("map.c", '{"d": 4}'),
        ("list", '[{"a": 1}, {"a": 2}]'),
        ("yes", "1"),
        ("no", "0"),
        ("@logStream", "stream"),
        ("@log", "group"),
        ("bin(1m)", "1970-01-01 00:01:00.000"),
        ("bin(500ms)", "1970-01-01 00:01:01.000"),
        ("bin(0s)", "1970-01-01 00:01:01.234"),
        ("bin(1d)", "1970-01-01 00:00:00.000"),
        ("ispresent(n, s)", "1"),
        ("ispresent(n, null)", "0"),
        ("isempty(empty, null)", "1"),
        ("isempty(blank)", "0"),
        ("isblank(blank, null)", "1"),
        ("isblank(blank, n)", "0"),
        ("coalesce(null, n, s)", "7"),
        ("coalesce(null)", None),
        ("strcontains(s, 'ex')", "1"),
        ("strcontains(s, 'x', 'y')", "0"),
        ("strcontains('ex', s)", "0"),
        ("strlen(s)", "4"),
        ("strlen()", "0"),
        ("tolower(s)", "text"),
        ("toupper(s)", "TEXT"),
        ("concat(s, n, '!')", "Text7!"),
        ("abs(-f)", "2.5"),
        ("floor(f)", "2"),
        ("floor(-f)", "-3"),
        ("ceil(f)", "3"),
        ("ceil(-f)", "-2"),
        ("ceil(1.2)", "2"),
        ("floor(1.8)", "1"),
        ("'it\\'s'", "it's"),
        ('"a\\"b"', 'a"b'),
    ],
)
def test_an_expression_has_its_value(expression, expected):
    assert value(expression) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("fields ms | sort level desc, ms desc | limit 3", ["50", "40", "20"]),
        ("fields ms | sort level, ms asc | filter ispresent(ms)", ["10", "30", "20", "40", "50"]),
        ("fields ms | sort note desc, ms | limit 2", ["50", None]),
        ("fields ms | sort note, ms | limit 2", [None, "10"]),
        ("fields ms | filter ispresent(ms) | dedup level | sort ms", ["10", "20", "50"]),
        ("fields ms | filter ispresent(ms) | limit 2 | limit 3", ["50", "40"]),
        ("parse @message /took (?<ms>\\d+)/ | fields ms | filter ms = 75", ["75"]),
        ("parse note '* | *' as left, right | fields left as x | filter ispresent(left)", ["slow"]),
        ("parse note '* | *' as left, right | fields right as x | filter ispresent(right)", ["very"]),
        ("parse @message /(\\d+) m/ as ms | fields ms | filter ms > 50", ["75"]),
        ("fields level | filter level = 'none'", []),
        ("fields user.id as x | filter level = 'error'", ["a", "a"]),
    ],
)
def test_rows_are_sorted_parsed_and_deduplicated(query, expected):
    assert [next(iter(row.values()), None) for row in answer(query)] == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("stats count() as n", [{"n": "6"}]),
        (
            "stats count(ms) as n, count(*) by user.id",
            [
                {"n": "2", "count(*)": "2", "user.id": "a"},
                {"n": "1", "count(*)": "1", "user.id": "b"},
                {"n": "2", "count(*)": "3"},
            ],
        ),
        ("stats count(ms)", [{"count(ms)": "5"}]),
        ("stats sum(ms * 2) as n", [{"n": "300"}]),
        ("stats sum(note) as n", [{"n": "0"}]),
        ("stats min(none) as low | sort low", [{}]),
        ("stats count_distinct(level) as n", [{"n": "3"}]),
        ("stats max(ms) as high by level | sort high desc | limit 1", [{"level": "warn", "high": "50"}]),
        ("stats count(*) as n by bin(1h)", [{"bin(1h)": "1970-01-01 00:00:00.000", "n": "6"}]),
    ],
)
def test_rows_are_aggregated(query, expected):
    assert answer(query) == expected


EVENT = json.dumps({"a": {"b": "text", "n": 3, "null": None, "yes": True}, "list": [5, 6], "m": "x/y"})


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ('{ $.a.b = "text" }', True),
        ('{ $.a.b = "te*" }', True),
        ('{ $.a.b = "*e*t" }', True),
        ('{ $.a.b = "tex" }', False),
        ('{ $.a.b != "tex" }', True),
        ('{ $.a.b != "te*" }', False),
        ('{ $.none != "x" }', False),
        ("{ $.a.b = text }", True),
        ("{ $.a.n = 3 }", True),
        ("{ $.a.n > 2.5 }", True),
        ("{ $.a.n > 3 }", False),
        ("{ $.a.n >= 3 }", True),
        ("{ $.a.n < 3 }", False),
        ("{ $.a.n <= 3 }", True),
        ("{ $.list[1] = 6 }", True),
        ("{ $.list[0] = 6 }", False),
        ("{ $.list[1] EXISTS }", True),
        ("{ $.list[2] EXISTS }", False),
        ("{ $.a.null IS NULL }", True),
        ("{ $.a.none IS NULL }", False),
        ("{ $.a.b IS NULL }", False),
        ("{ $.a.yes IS TRUE }", True),
        ("{ $.a.yes IS FALSE }", False),
        ("{ $.a.null EXISTS }", True),
        ("{ $.a.none EXISTS }", False),
        ("{ $.a.none NOT EXISTS }", True),
        ("{ $.a NOT EXISTS }", False),
        ("{ $.m EXISTS }", True),
        ("{ ($.a.n = 3) && ($.a.b = x || $.a.b = text) }", True),
        ("{ $.a.n = 3 && $.a.b = x }", False),
    ],
)
def test_a_json_pattern_matches_properties(pattern, expected):
    assert json_pattern(pattern)(EVENT) is expected
    assert json_pattern(pattern)("no json") is False


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("$.a = 1", "stands in braces"),
        ("{ $.a = 1", "stands in braces"),
        ("{ a = 1 }", r"a property begins with `\$\.`: a"),
        ("{ $.a IS 1 }", "unexpected '1'"),
        ("{ $.a NOT 1 }", "unexpected '1'"),
        ("{ $.a 1 }", "unexpected '1'"),
        ('{ $.a > "x" }', r"\$\.a is compared with a text by = or !="),
        ("{ $.a = ( }", r"unexpected '\('"),
        ("{ $.a = 1 ) }", r"unexpected '\)'"),
        ("{ ($.a = 1 }", "unexpected end"),
    ],
)
def test_what_is_wrong_in_a_json_pattern_is_named(pattern, problem):
    with pytest.raises(MalformedQuery, match=problem):
        json_pattern(pattern)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (1.5, "1.5"),
        (1e-7, "0.0000001"),
        (2e15, "2000000000000000"),
        (1e14, "100000000000000"),
        (None, ""),
        (3, "3"),
    ],
)
def test_numbers_have_no_exponent(given, expected):
    assert as_string(given) == expected


def test_bars_in_quotes_and_expressions_separate_no_commands():
    for query in ("filter a = 'x | y'", 'filter a = "x | y"', "filter a like /x|y/", "filter a = 1 || b = 2"):
        assert len(parse_query(query).commands) == 1
    assert len(parse_query("filter a = 6 / 2 | fields b").commands) == 2
    assert len(parse_query("parse a /(x|y)/ as z | fields b").commands) == 2
    assert len(parse_query("fields a|fields b").commands) == 2


def test_without_a_limit_the_newest_rows_are_returned_up_to_a_number():
    rows = [LogRow(number, "{}") for number in range(4)]
    assert [row.timestamp for row in parse_query("fields a").run(rows, most=2)] == [3, 2]
    assert [row.timestamp for row in parse_query("fields a | limit 3").run(rows, most=2)] == [3, 2, 1]
    assert parse_query("stats count(*)").is_sorted and parse_query("sort a").is_sorted


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("a.b", 1),
        ("a.c", 2),
        ("a.b.c", 3),
        ("x.y.z.w", 4),
        (".x.y.z.w", 4),
        ("l.1", "second"),
        ("l.2", None),
        ("l.1.k", None),
        ("l.123456", None),
        ("k.0", None),
        ("..a", None),
    ],
)
def test_a_path_is_found_by_its_longest_key_first(path, value):
    document = {
        "a.b": 1,
        "a": {"c": 2, "b": {"c": 3}},
        "x.y": {"other": 0},
        "x": {"y.z": {"w": 4}},
        "l": ["first", "second"],
        "k": {"a": 1},
    }
    assert at_path(document, path) == value
