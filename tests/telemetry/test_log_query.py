"""Queries of logs, each on the same six events."""

import json

import pytest

from proctor.telemetry.log_query import LogRow, MalformedQuery, parse_query

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
            [
                {"level": "error", "n": "2"},
                {"level": "info", "n": "2"},
                {"level": "warn", "n": "1"},
                {"n": "1"},
            ],
        ),
        (
            "stats sum(ms) as total, avg(ms) as mean, min(ms) as low, max(ms) as high",
            [
                {"total": "150", "mean": "30", "low": "10", "high": "50"},
            ],
        ),
        ("parse @message 'took * ms' as took | filter ispresent(took) | fields took", [{"took": "75"}]),
        (
            "fields level | filter ispresent(level) | dedup level | sort level",
            [
                {"level": "error"},
                {"level": "info"},
                {"level": "warn"},
            ],
        ),
        ("fields ms * 2 + 1 as more | filter ms = 10", [{"more": "21"}]),
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
        ("select ms", "there is no command 'select'"),
        ("limit ten", "limit takes a number"),
        ("limit 1.5", "limit takes a number"),
    ],
)
def test_what_is_not_understood_is_named(query, problem):
    with pytest.raises(MalformedQuery, match=problem):
        parse_query(query)


def test_a_hundred_commands_are_taken_and_equalities_are_for_the_index():
    assert parse_query("fields ms" + " | limit 7" * 99).limit == 7
    query = parse_query("filter traceId = 'x' | filter service in ['a', \"b\"] | filter ms > 1")
    assert query.equalities == {"traceId": ["x"], "service": ["a", "b"]}
    assert list(query.columns) == ["@timestamp", "@message"] and not query.is_sorted
