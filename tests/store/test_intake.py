"""Sessions of other tools, received spans and logs: saved, searched and built into sessions."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

from databases import query
from proctor.score import Score
from proctor.session import Message, ModelCall, Session, Step, TimedEvent, Usage
from proctor.store import Store, timestamp
from proctor.store.intake import DOCUMENTS_IN_PAGE, compressed, decompressed
from proctor.telemetry.documents import SessionMark, SessionName

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
DATABASES = ["sqlite"]
NANO = 1_000_000


def rows(store: Store, table: str, columns: str) -> list[tuple[object, ...]]:
    names = ", ".join(f'"{name}"' for name in columns.split())
    return sorted((tuple(row.values()) for row in query(store, f'SELECT {names} FROM "{table}"')), key=str)


# Sessions of other tools


def session(**values: Any) -> Session:
    at = [NOW + timedelta(seconds=second) for second in range(5)]
    call = ModelCall(model="m", usage=Usage(output_tokens=3), cost_usd=0.5)
    first = Step(
        trace_id="t1",
        started_at=at[0],
        finished_at=at[2],
        events=[
            TimedEvent(event=Message(role="user", content="hi"), at=at[1]),
            TimedEvent(event=call, at=None),
        ],
    )
    second = Step(trace_id="t2", events=[TimedEvent(event=Message(role="assistant", content="yo"), at=at[3])])
    known: dict[str, Any] = {"external_id": "e1", "source": "phoenix", "name": "n"}
    known |= {"agent": "amp", "model": "m"}
    known |= {"started_at": at[0], "finished_at": at[4], "steps": [first, second], "notes": ["odd"]}
    known |= {"scores": [Score(evaluator="tidy", value=0.5, level="session")], "is_mock": True}
    return Session(**known | values)


def test_an_imported_session_has_the_times_of_its_source(store: Store) -> None:
    session_id = store.save_imported(session(), NOW + timedelta(days=1))

    def stamp(seconds: int) -> str:
        return timestamp(NOW + timedelta(seconds=seconds))

    columns = "id job name agent model isMock status source externalId startedAt finishedAt workSeconds notes"
    expected = (session_id, "imported", "n", "amp", "m", 1, "success", "phoenix", "e1")
    assert rows(store, "sessions", columns) == [(*expected, stamp(0), stamp(4), 4.0, '["odd"]')]
    assert rows(store, "messages", "position step timestamp content") == [
        (1, 1, stamp(1), "hi"),
        (3, 2, stamp(3), "yo"),
    ]
    assert rows(store, "model_calls", "position step timestamp costUsd") == [(2, 1, stamp(1), 0.5)]
    assert rows(store, "iterations", "step startTime endTime model traceId") == [
        (1, stamp(0), stamp(2), "m", "t1"),
        (2, stamp(2), stamp(3), "", "t2"),
    ]
    assert rows(store, "scores", "position timestamp evaluator value") == [(4, stamp(3), "tidy", 0.5)]


def test_a_session_without_times_has_that_of_its_import_and_no_duration(store: Store) -> None:
    store.save_imported(session(started_at=None, finished_at=None, steps=[]), NOW)
    assert rows(store, "sessions", "startedAt finishedAt workSeconds waitingSeconds") == [
        (timestamp(NOW), timestamp(NOW), None, 0.0)
    ]
    store.save_imported(session(finished_at=NOW - timedelta(seconds=9), steps=[]), NOW)
    assert rows(store, "sessions", "workSeconds") == [(0.0,)], "not negative"


def test_importing_again_replaces_a_session_and_another_run_gets_a_copy(store: Store) -> None:
    first = store.save_imported(session(), NOW)
    assert store.save_imported(session(name="new"), NOW) == first
    assert rows(store, "sessions", "name") == [("new",)] and len(rows(store, "messages", "content")) == 2
    store.imported_runs.begin("one", NOW, "1")
    store.imported_runs.begin("two", NOW, "1")
    assert store.save_imported(session(task="sum", repeat=3), NOW, "one") == first
    copy = store.save_imported(session(), NOW, "two")
    assert copy != first and store.save_imported(session(), NOW, "two") == copy
    assert rows(store, "batch_items", "runId prompt repeat sessionId") == [
        ("one", "sum", 3, first),
        ("two", "n", 1, copy),
    ]
    store.save_imported(session(status="fail"), NOW)
    assert rows(store, "batch_items", "runId status") == [("one", "fail"), ("two", "success")]
    assert rows(store, "sessions", "status runId") == [("fail", "one"), ("success", "two")]


def test_the_task_of_a_session_is_named_or_that_of_its_title_or_its_id(store: Store) -> None:
    store.imported_runs.begin("run", NOW, "1")
    for number, values in enumerate(({"task": "t"}, {"name": "title"}, {"name": ""})):
        store.save_imported(session(external_id=f"e{number}", **values), NOW, "run")
    assert {prompt for (prompt,) in rows(store, "batch_items", "prompt")} == {"t", "title", "e2"}


def test_deleting_an_imported_session_leaves_nothing_of_it_and_all_of_the_others(store: Store) -> None:
    first, second = store.save_imported(session(), NOW), store.save_imported(session(external_id="e2"), NOW)
    store.delete_imported([first])
    assert rows(store, "sessions", "id") == [(second,)]
    for table in ("messages", "model_calls", "iterations", "scores"):
        assert {owner for (owner,) in rows(store, table, "sessionId")} == {second}


# Spans


def session_named(name: SessionName) -> Session:
    return session(
        external_id=name.external_id, service=name.service, log_group=name.log_group, source="otlp"
    )


def mark(trace: str, span: str = "s", **values: Any) -> SessionMark:
    known = {"part": "span", "parent_id": "", "session_key": "", "service": "svc", "log_group": "g"}
    known |= {"has_log_group": True, "started": 5 * NANO}
    return SessionMark(trace_id=trace, span_id=span, **known | values)


def found(store: Store, first: int = 0, last: int = 99, log_group: str = "", **more: Any) -> list[Any]:
    return list(store.arrivals.search(log_group=log_group, first_ms=first, last_ms=last, **more))


def test_spans_are_found_by_the_milliseconds_in_which_they_began(store: Store) -> None:
    starts = {"a": 5 * NANO, "b": 6 * NANO - 1, "c": 6 * NANO, "d": 4 * NANO + 999_999}
    store.arrivals.save([(mark(name, started=at), {"n": name}) for name, at in starts.items()], NOW)
    assert found(store, 5, 5) == [(("a", "s", "span"), 5, {"n": "a"}), (("b", "s", "span"), 5, {"n": "b"})]
    assert [key[0] for key, _, _ in found(store)] == ["d", "a", "b", "c"]
    assert found(store, 7, 9) == []
    # More than are read at once.
    many = [f"{number:05}" for number in range(DOCUMENTS_IN_PAGE + 3)]
    store.arrivals.save([(mark(name, started=9 * NANO), {}) for name in many], NOW)
    assert [key[0] for key, _, _ in found(store, 9, 9)] == many


def test_spans_and_records_of_a_group_are_found_apart_and_by_session_or_trace(store: Store) -> None:
    marks = [
        mark("a"),
        mark("a", part="log 1"),
        mark("b", part="log 2", log_group="h"),
        mark("c", session_key="k"),
    ]
    store.arrivals.save([(each, {}) for each in marks], NOW)
    assert [key for key, _, _ in found(store)] == [("a", "s", "span"), ("c", "s", "span")]
    assert [key for key, _, _ in found(store, log_group="g")] == [("a", "s", "log 1")]
    assert [key[0] for key, _, _ in found(store, session_keys=["k", ""])] == ["c"]
    assert [key[0] for key, _, _ in found(store, trace_ids=["a"])] == ["a"]


def test_a_span_that_comes_again_is_new_only_if_it_has_changed(store: Store) -> None:
    arrivals = store.arrivals
    assert not arrivals.has_new() and arrivals.oldest_new() is None
    arrivals.save([], NOW)
    arrivals.save([(mark("a"), {"n": 1})], NOW)
    assert arrivals.has_new() and arrivals.oldest_new() == timestamp(NOW)

    def build(name: SessionName, documents: Sequence[Any], left_out: int) -> Session:
        assert (list(documents), left_out) == ([{"n": 1}], 0)
        return session_named(name)

    built = arrivals.build_sessions(build, NOW)
    assert len(built.sessions) == 1 and built.removed == 0
    assert not arrivals.has_new()
    assert arrivals.sessions_of(["x", "a"]) == built.sessions
    assert list(arrivals.documents(built.sessions[0])) == [{"n": 1}]
    arrivals.save([(mark("a"), {"n": 1})], NOW + timedelta(hours=1))
    assert not arrivals.has_new()
    arrivals.save([(mark("a"), {"n": 2})], NOW + timedelta(hours=1))
    assert arrivals.oldest_new() == timestamp(NOW + timedelta(hours=1))


def test_others_write_while_sessions_are_built_and_what_they_send_is_built_too(store: Store) -> None:
    """The lock is held neither while documents are read into sessions nor for all sessions at once."""
    built: list[int] = []

    def build(name: SessionName, documents: Sequence[Any], left_out: int) -> Session:
        if not built:
            with ThreadPoolExecutor(1) as another:
                arrived = [(mark("a", "later", session_key="k"), {"n": 2})]
                another.submit(store.arrivals.save, arrived, NOW).result(timeout=10)
        built.append(len(documents))
        # Longer than a transaction should take, together.
        time.sleep(0.03)
        return session_named(name)

    store.arrivals.save([(mark("a", session_key="k"), {"n": 1})], NOW)
    store.arrivals.save([(mark(f"t{number}"), {}) for number in range(5)], NOW)
    assert len(store.arrivals.build_sessions(build, NOW).sessions) == 6
    assert built.count(2) == 1
    assert not store.arrivals.has_new()


def test_a_session_whose_spans_keep_coming_is_written_and_built_again_the_next_time(store: Store) -> None:
    built: list[int] = []

    def build(name: SessionName, documents: Sequence[Any], left_out: int) -> Session:
        built.append(len(documents))
        with ThreadPoolExecutor(1) as another:
            arrived = [(mark("a", f"later-{len(built)}"), {})]
            another.submit(store.arrivals.save, arrived, NOW + timedelta(seconds=1)).result(timeout=10)
        return session_named(name)

    store.arrivals.save([(mark("a"), {})], NOW)
    assert len(store.arrivals.build_sessions(build, NOW).sessions) == 1
    assert built == [1] and store.arrivals.has_new()
    store.arrivals.build_sessions(lambda name, documents, _: built.append(len(documents)), NOW)
    assert built == [1, 2] and not store.arrivals.has_new()


def test_only_sessions_whose_spans_are_new_or_were_of_another_one_are_built_again(store: Store) -> None:
    built: list[tuple[str, str, int]] = []

    def build(name: SessionName, documents: Sequence[Any], left_out: int) -> Session | None:
        built.append((name.external_id, name.service, len(documents)))
        return session_named(name)

    def arrived(*marks: SessionMark) -> tuple[list[tuple[str, str, int]], int]:
        built.clear()
        store.arrivals.save([(each, {}) for each in marks], NOW)
        removed = store.arrivals.build_sessions(build, NOW).removed
        return sorted(built), removed

    one, two = {"service": "one"}, {"service": "two"}
    assert arrived(mark("a", **one), mark("a", "b", **two), mark("c", **one)) == (
        [("a", "one", 1), ("a", "two", 1), ("c", "one", 1)],
        0,
    )
    assert arrived(mark("a", "d", **two)) == ([("a", "two", 2)], 0)
    assert len(rows(store, "sessions", "externalId service")) == 3
    store.imported_runs.begin("run", NOW, "0")
    for (session_id,) in rows(store, "sessions", "id"):
        assert not store.imported_runs.adopt("run", str(session_id))
    # The span of another service names the session of the whole trace.
    assert arrived(mark("a", "e", session_key="k", service="three", started=0)) == (
        [("k", "one", 1), ("k", "three", 1), ("k", "two", 2)],
        2,
    )
    assert rows(store, "sessions", "externalId service") == [
        ("c", "one"),
        ("k", "one"),
        ("k", "three"),
        ("k", "two"),
    ]
    assert len(store.read.items("run")) == 1


def test_a_document_is_stored_whole_whatever_its_text() -> None:
    document = {"a": ["é\n", 1.5, None]}
    assert decompressed(compressed(document)) == document
    assert decompressed(compressed({"a": "\ud800"})) == {"a": "?"}


def test_a_session_whose_spans_tell_nothing_leaves_its_run(store):
    def build(name, documents, left_out):
        return None if documents[0].get("gone") else session_named(name)

    store.arrivals.save([(mark("t"), {"a": 1})], NOW)
    (session_id,) = store.arrivals.build_sessions(build, NOW).sessions
    store.imported_runs.begin("run", NOW, "0")
    assert not store.imported_runs.adopt("run", session_id)
    assert len(store.read.items("run")) == 1
    store.arrivals.save([(mark("t"), {"gone": True})], NOW)
    assert store.arrivals.build_sessions(build, NOW).sessions == []
    assert store.read.items("run") == []
    assert query(store, 'SELECT "id" FROM "sessions"') == []


def test_ids_of_imported_sessions_stay_what_they_were(store):
    """Stores of earlier versions hold them."""
    one = Session(external_id="x", source="s", log_group="g", service="v")
    own = store.save_imported(one, NOW)
    for run_id in ("one", "two"):
        store.imported_runs.begin(run_id, NOW, "0")
        copy = store.save_imported(one, NOW, run_id)
    assert (own, copy) == ("b1d0295adecf74adee870b5dcf0f09bf", "1279c8db1530636b40f4bd18ebfc1d20")
