"""Sessions of any origin are found by what they are, counted, and read from an index."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from proctor.score import Score
from proctor.session import Message, ModelCall, Session, Step, TimedEvent, ToolCall, Usage
from proctor.store import Store
from proctor.store.annotations import Annotation, Label
from proctor.store.item_lists import ScoreRange
from proctor.store.session_search import (
    SessionQuery,
    facets,
    find_sessions,
    first_prompts,
    matching_ids,
    period_scores,
    period_sums,
)
from stocked import record

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


def receive(store: Store, number: int, *, tool: str = "", **values: Any) -> str:
    """A received session, one an hour, that takes as many seconds and cents as its number."""
    at = NOW + timedelta(hours=number)
    call = ModelCall(model="m", usage=Usage(input_tokens=100 * number), cost_usd=number / 100)
    events = [Message(role="user", content=f"question {number}"), call]
    if tool:
        events.append(ToolCall(name=tool))
    step = Step(
        trace_id="t",
        events=[TimedEvent(event=event, at=at) for event in events],
        started_at=at,
        finished_at=at + timedelta(seconds=number),
    )
    times = {"started_at": at, "finished_at": step.finished_at}
    known = {"external_id": f"s{number}", "source": "otlp", "service": "shop", "model": "m", "steps": [step]}
    return store.save_imported(Session(**known | times | values), NOW)


@pytest.fixture
def ids(store: Store) -> dict[str, str]:
    """Six received sessions, one of a run and one of a judge, by a short name."""
    prompt = {"gen_ai.prompt.name": "greet", "gen_ai.prompt.version": 3}
    known = {
        "s1": receive(store, 1, tool="search"),
        "s2": receive(store, 2, tool="buy", status="fail"),
        "s3": receive(store, 3, agent="guide", agent_version="1.1"),
        "s4": receive(store, 4, agent="guide", agent_version="1.2", model="large"),
        "s5": receive(store, 5, service="bank", attributes=prompt),
        "s6": receive(store, 6, service="bank", scores=[Score(evaluator="Tone", value=0.9)]),
    }
    record(store, "own", Message(role="user", content="mine"), ends=True, agent="codex", model="m")
    score = Score(evaluator="Tone", value=0.2, judged_session=known["s1"])
    record(store, "judge", score, ends=True, job="evaluation")
    store.save_label(Label(session_id=known["s2"], evaluator="Tone", who="ann", value=1.0), NOW)
    store.annotate(Annotation(session_ids=[known["s3"]], kind="tag", text="odd"), NOW)
    return known | {"own": "own", "judge": "judge"}


CASES: list[tuple[dict[str, Any], str]] = [
    ({"services": ["bank"]}, "s6 s5"),
    ({"agents": ["guide"], "versions": ["1.1"]}, "s3"),
    ({"models": ["large"]}, "s4"),
    ({"prompts": ["greet@3"]}, "s5"),
    ({"statuses": ["fail"]}, "s2"),
    ({"runs": ["run"], "jobs": ["coding"]}, "own"),
    ({"start": NOW + timedelta(hours=3), "end": NOW + timedelta(hours=5)}, "s4 s3"),
    ({"cost_usd": (0.02, 0.03)}, "s3 s2"),
    ({"tokens": (None, 200), "services": ["shop"]}, "s2 s1"),
    ({"seconds": (5, None)}, "s6 s5"),
    ({"tools": ["search", "buy"]}, "s2 s1"),
    ({"scores": [ScoreRange(name="Tone")]}, "s6 s1"),
    ({"scores": [ScoreRange(name="Tone", low=0.5)]}, "s6"),
    ({"labels": [ScoreRange(name="Tone", low=1.0)]}, "s2"),
    ({"tags": ["odd"]}, "s3"),
    ({"jobs": ["evaluation"]}, "judge"),
]


@pytest.mark.parametrize(("members", "expected"), CASES, ids=lambda value: " ".join(value))
def test_each_filter_selects_its_sessions_the_newest_first(store, ids, members, expected):
    query = SessionQuery(**members)
    wanted = [ids[name] for name in expected.split()]

    counted = facets(store.read, query)

    assert [row["id"] for row in find_sessions(store.read, query)] == wanted
    assert [row["id"] for row in find_sessions(store.read, query, total=counted.total)] == wanted
    assert matching_ids(store.read, query, limit=10) == wanted
    assert (counted.total, counted.is_cut) == (len(wanted), False)


def test_counts_of_a_facet_are_without_its_own_filter(store, ids):
    query = SessionQuery(services=["bank"], statuses=["success"], excluded_jobs=["evaluation"])

    counted = facets(store.read, query)

    def values(name: str) -> dict[str, int]:
        return {each.value: each.sessions for each in counted.values[name]}

    assert counted.total == 2
    assert values("service") == {"": 1, "bank": 2, "shop": 3}
    assert values("status") == {"success": 2}
    assert values("prompt") == {"": 1, "greet@3": 1}


def test_pages_continue_after_the_last_session(store, ids):
    query = SessionQuery(excluded_jobs=["evaluation"])
    first = find_sessions(store.read, query, limit=4)
    last = (first[-1]["startedAt"] or "", first[-1]["id"])

    rest = find_sessions(store.read, query, after=last, limit=4)

    assert [row["id"] for row in first + rest] == matching_ids(store.read, query, limit=10)
    assert len(rest) == 3


def test_sums_and_scores_over_time_by_version_and_as_a_whole(store, ids):
    query = SessionQuery(excluded_jobs=["evaluation"], start=NOW)

    whole = period_sums(store.read, query, "", 10)
    by_version = period_sums(store.read, query, "version", 0)
    (score,) = period_scores(store.read, SessionQuery(services=["shop"]), "service", 7)

    received_ones = [row for row in whole if row["period"] == "2026-05-01"]
    assert [(row["name"], row["sessions"], row["failed"], row["priced"]) for row in received_ones] == [
        ("", 6, 1, 6)
    ]
    assert received_ones[0]["cost"] == pytest.approx(0.21)
    assert (received_ones[0]["tokens"], received_ones[0]["seconds"]) == (2100, 21.0)
    assert {row["name"]: row["sessions"] for row in by_version if row["name"]} == {"1.1": 1, "1.2": 1}
    assert (score["name"], score["period"], score["sessions"], score["total"]) == ("shop", "2026-05", 1, 0.2)


def test_words_select_the_sessions_that_have_them_in_one_event(store, ids):
    store.search_index.update()

    assert store.search_index.session_ids("question 3", limit=10) == [ids["s3"]]
    assert len(store.search_index.session_ids("quest*", limit=4)) == 4
    assert first_prompts(store.read, [ids["s3"], "own"], characters=5) == {ids["s3"]: "quest", "own": "mine"}


class _Plans:
    """A reader of SQLite that notes how the database executes each query."""

    def __init__(self, store: Store) -> None:
        self._read, self.steps = store.read, list[str]()

    def _note(self, sql: str, parameters: Any) -> None:
        plan = self._read.rows(dict, f"EXPLAIN QUERY PLAN {sql}", parameters)
        self.steps += [str(step["detail"]) for step in plan]

    def rows(self, shape: Any, sql: str, parameters: Any = ()) -> Any:
        self._note(sql, parameters)
        return self._read.rows(shape, sql, parameters)

    def value(self, kind: Any, sql: str, parameters: Any = ()) -> Any:
        self._note(sql, parameters)
        return self._read.value(kind, sql, parameters)

    def is_one_of(self, *of: Any) -> Any:
        return self._read.is_one_of(*of)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_no_search_reads_the_rows_of_all_sessions(store, ids):
    # The plan of a query is nothing that a user sees before the store is large.
    plans: Any = _Plans(store)
    for members, _ in CASES[:-1]:
        query = SessionQuery(**members, excluded_jobs=["evaluation"])
        facets(plans, query)
        find_sessions(plans, query, total=10)
        find_sessions(plans, query)

    scans = {step for step in plans.steps if step.startswith("SCAN s")}

    assert scans == {"SCAN s USING COVERING INDEX sessions_by_facets", "SCAN s USING INDEX sessions_by_time"}
    assert not [step for step in plans.steps if step.startswith("SCAN x")]
