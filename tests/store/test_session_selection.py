"""Which sessions an evaluation is about, by what was received or by what ran here."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import filled
from filled import filled_store
from proctor.errors import UsageError
from proctor.session import Iteration, Message, Session, Step, ToolCall
from proctor.store import Store
from proctor.store.session_selection import (
    FileSessions,
    LogGroupSessions,
    OwnSessions,
    Period,
    Sessions,
    quiet_sessions,
    session_contents,
    session_heads,
    session_ids,
)
from proctor.telemetry.documents import SessionMark
from stocked import LONG
from stocked import session as recorded

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


def hours(number: float) -> datetime:
    return NOW + timedelta(hours=number)


def received(name: str, begin: float, **values: Any) -> Session:
    """A session of one hour."""
    known = {"external_id": name, "source": "otlp", "service": "shop", "log_group": "/a/one", "model": "m"}
    steps = [Step(trace_id="t", started_at=hours(begin), finished_at=hours(begin + 1))]
    times = {"started_at": hours(begin), "finished_at": hours(begin + 1), "steps": steps}
    return Session(**known | times | values)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    folder: Path = tmp_path_factory.mktemp("selected")
    with filled_store(folder, finished=6) as opened:
        opened.save_imported(received("first", 0), NOW)
        opened.save_imported(received("second", 2, service="bank", log_group="/a/two"), NOW)
        opened.save_imported(received("third", 4, log_group="/b/three", model="n", steps=[]), NOW)
        yield opened


def names(store: Store, sessions: Sessions) -> list[str]:
    """External ids of the received sessions that are selected, the most recent first."""
    heads = session_heads(store.read, session_ids(store.read, sessions))
    return [heads[each]["externalId"] for each in session_ids(store.read, sessions)]


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({}, ["third", "second", "first"]),
        ({"names": ("/a/one", "/b/three")}, ["third", "first"]),
        ({"prefixes": ("/a/",)}, ["second", "first"]),
        ({"names": ("/b/three",), "prefixes": ("/a/t",)}, ["third", "second"]),
        ({"services": ("shop",)}, ["third", "first"]),
        ({"services": ("shop", "bank"), "session_ids": ("second",)}, ["second"]),
        ({"traces": {"first": ("t",)}, "session_ids": ("third",)}, ["third", "first"]),
        ({"services": ("bank",), "prefixes": ("/b",)}, []),
    ],
)
def test_received_sessions_are_selected_by_group_service_and_id(store, conditions, expected):
    assert names(store, LogGroupSessions(**conditions)) == expected


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (None, 0, []),
        (None, 0.001, ["first"]),
        (1, 2, ["first"]),
        (1.001, 2, []),
        (1.001, 2.001, ["second"]),
        (3, 4.001, ["third", "second"]),
        (5, None, ["third"]),
        (5.001, None, []),
    ],
)
def test_a_period_includes_its_start_and_not_its_end(store, start, end, expected):
    period = Period(start=None if start is None else hours(start), end=None if end is None else hours(end))
    assert names(store, LogGroupSessions(period=period)) == expected


def test_sessions_of_this_store_are_selected_by_run_job_model_role_and_id(store):
    def count(**conditions: Any) -> int:
        return len(session_ids(store.read, OwnSessions(**conditions)))

    (item,) = store.read.items("compare", limit=1)
    assert count(run_ids=("compare",)) == 5, "all that ended, but the error"
    assert count(run_ids=("compare",), statuses=("error",)) == 1, "its first attempt was superseded"
    assert count(run_ids=("compare",), statuses=("success", "fail")) == 4
    assert count(run_ids=("none",)) == 0
    assert count(jobs=("imported",)) == 3 and count(jobs=("imported", "coding")) == 8
    assert count(jobs=("imported", "coding"), excluded_jobs=("imported",)) == 5
    assert count(models=("gpt-5", "n")) == 3
    assert count(roles=("shop",)) == 5
    # Neither a pattern nor the name of a factor.
    assert [count(roles=(role,)) for role in ("nobody", "sh_p", "repo")] == [0, 0, 0]
    assert count(session_ids=(item["id"],)) == count(session_ids=(item["sessionId"],)) == 1
    assert count(session_ids=("first", "third")) == 2
    assert count(session_ids=("first",), models=("n",)) == 0


def test_files_select_the_sessions_that_were_imported_from_them(store):
    ids = session_ids(store.read, LogGroupSessions(services=("shop",)))
    assert session_ids(store.read, FileSessions(paths=("x",), session_ids=tuple(ids[:1]))) == ids[:1]


def test_the_head_of_a_session_has_the_factors_of_its_item(store):
    (item,) = store.read.items("compare", limit=1)
    (own,) = session_heads(store.read, [item["sessionId"]]).values()
    assert (own["runId"], own["model"]) == ("compare", "gpt-5") and '"repo"' in str(own["factors"])
    (other,) = session_heads(
        store.read, session_ids(store.read, LogGroupSessions(names=("/a/two",)))
    ).values()
    assert (other["externalId"], other["service"], other["factors"]) == ("second", "bank", None)


def test_a_session_is_quiet_when_its_last_span_came_in_time_and_nobody_has_decided(tmp_path):
    def mark(trace: str, **values: Any) -> SessionMark:
        known = {"part": "span", "parent_id": "", "session_key": "", "service": "shop", "log_group": "/a"}
        return SessionMark(trace_id=trace, span_id="s", has_log_group=True, started=1, **known | values)

    def build(name: Any, documents: Any, left_out: int) -> Session:
        return received(name.external_id, 0, service=name.service, log_group=name.log_group)

    with Store(str(tmp_path / "proctor.db")) as store:
        for number, trace in enumerate(("early", "middle", "late")):
            store.arrivals.save([(mark(trace), {})], hours(number))
        store.arrivals.save([(mark("other", service="bank"), {})], hours(1))
        store.arrivals.build_sessions(build, NOW)

        def quiet(**values: Any) -> list[str]:
            known = {"service": "shop", "log_groups": ["/a"], "prefixes": [], "since": "", "until": "9"}
            return sorted(row["externalId"] for row in quiet_sessions(store.read, "c", **known | values))

        stamps = {
            row["at"] for row in store.read.rows(dict, 'SELECT DISTINCT "arrivedAt" AS "at" FROM "arrivals"')
        }
        first, second, third = sorted(stamps)
        assert quiet() == ["early", "late", "middle"]
        assert quiet(since=second, until=second) == ["middle"]
        assert quiet(until=second) == ["early", "middle"] and quiet(since=third) == ["late"]
        assert quiet(log_groups=["/b"]) == []
        assert quiet(log_groups=[], prefixes=["/"], until=first) == ["early"]
        assert quiet(service="bank") == ["other"]
        ids = session_ids(store.read, LogGroupSessions(session_ids=("middle",)))
        store.definitions.record_decisions("c", {ids[0]: "skipped"}, NOW)
        assert quiet() == ["early", "late"]


def test_the_digest_of_a_session_depends_on_each_of_its_parts(proctor_store):
    def content(*events, step="t", name="s"):
        writer = proctor_store.writer()
        recorder = recorded(writer, name)
        for event in events:
            recorder.record(event)
        recorder.record(Iteration(trace_id=step))
        writer.close()
        return session_contents(proctor_store.read, [name])[name]

    call = {"name": "edit", "args": {"a": 1}, "result": "ok", "call_id": "c", "success": True}
    variants = [
        [Message(role="user", content="hi")],
        [Message(role="assistant", content="hi")],
        [Message(role="user", name="Ann", content="hi")],
        [Message(role="user", content="ho")],
        [Message(role="user", content=LONG)],
        *(
            [ToolCall(**call | change)]
            for change in (
                {},
                {"name": "run"},
                {"args": {"a": 2}},
                {"result": "no"},
                {"result": LONG},
                {"call_id": "d"},
                {"success": False},
                {"success": None},
            )
        ),
    ]
    made = [content(*events, name=f"s{number}") for number, events in enumerate(variants)]
    made.append(content(*variants[0], step="other", name="last"))
    assert len({each.digest for each in made}) == len(made)
    assert made[0].digest == content(*variants[0], name="same").digest
    assert [(each.characters, each.tool_calls, each.traces) for each in (made[0], made[4], made[5])] == [
        (2, 0, 1),
        (len(LONG), 0, 1),
        (2 + len('{"a": 1}'), 1, 1),
    ]
    assert content(ToolCall(name="x", result=""), name="empty").characters == 2
    # Digests are kept with results: they do not change.
    assert [made[0].digest, made[5].digest] == [
        "1c33c2bb12482f72d81e289ee08bdc3b",
        "ca2d66d5cf8b6016882bd4c656108f10",
    ]


def test_sessions_of_this_store_are_selected_by_something(store):
    for nothing in (OwnSessions(), OwnSessions(statuses=("fail",), excluded_jobs=("evaluation",))):
        with pytest.raises(UsageError, match=r"no sessions are selected\nGive a run, a job"):
            session_ids(store.read, nothing)
    assert session_ids(store.read, OwnSessions(period=Period(end=filled.NOW))) == []
    assert session_ids(store.read, OwnSessions(jobs=("coding",), excluded_jobs=("coding",))) == []
