"""Documents arrive in any order and more than once; the sessions in the store are always up to date."""

import random
import threading
from datetime import UTC, datetime, timedelta

import pytest
from spans_by_hand import agent, chat, hexed, record, span, text, tool

from databases import query
from proctor.batch.deletion import delete_sessions, imported_sessions
from proctor.batch.ingest import build_sessions, keep_arrivals
from proctor.errors import NotFound
from proctor.telemetry.sessions import session_of

NOW = datetime(2026, 5, 1, tzinfo=UTC)


@pytest.fixture
def store(either_store):
    return either_store


def conversation(session="s-1", turns=2):
    for turn in range(turns):
        trace, result = f"{session}/{turn}", "x" * 10_000
        said = {"asked": f"question {turn}", "answered": f"answer {turn}"}
        yield agent(trace=trace, session=session, at=turn * 10, seconds=5, **said)
        below = {"trace": trace, "session": None, "parent": "invoke_agent A", "at": turn * 10 + 1}
        yield tool("t", gen_ai__tool__call__result=result, **below)


def arrive(store, *documents, **more):
    keep_arrivals(store, documents, NOW, **more)
    return build_sessions(store, NOW)


def sessions(store):
    return query(store, 'SELECT * FROM "sessions" ORDER BY "externalId"')


def test_what_arrives_becomes_a_session_with_a_step_for_each_trace(store):
    documents = list(conversation())
    arrive(store, *documents[:2], fallback="/here")
    (session_id,) = arrive(store, *documents[2:], fallback="/here").sessions

    (row,) = sessions(store)
    found = store.read.evidence(row["id"])
    assert (row["externalId"], row["service"], row["logGroup"]) == ("s-1", "Calc.DEFAULT", "/here")
    assert (row["job"], row["source"], row["runId"], row["itemId"]) == ("imported", "otlp", None, None)
    assert [(trace.prompt, trace.answer) for trace in found.traces] == [
        ("question 0", "answer 0"),
        ("question 1", "answer 1"),
    ]
    assert [call.result for call in found.tool_calls] == ["x" * 10_000] * 2
    assert store.read.session("s-1")["id"] == row["id"] == session_id
    assert list(store.arrivals.documents(session_id)) == documents
    assert arrive(store, *documents, fallback="/here").sessions == [], "they are unchanged"


def test_any_order_in_any_pieces_comes_to_the_same(store):
    documents = [each for name in ("s-1", "s-2") for each in conversation(name)]
    mixed = documents * 2
    random.Random(1).shuffle(mixed)
    for document in mixed:
        arrive(store, document)
    piecemeal = {row["externalId"]: store.read.evidence(row["id"]) for row in sessions(store)}

    for name in ("s-1", "s-2"):
        arrive(store, *conversation(name, turns=2))
    at_once = {row["externalId"]: store.read.evidence(row["id"]) for row in sessions(store)}

    assert piecemeal == at_once
    assert sorted(piecemeal) == ["s-1", "s-2"]
    assert [len(found.traces) for found in piecemeal.values()] == [2, 2]


def test_a_trace_that_was_a_session_joins_the_one_a_later_span_names(store):
    arrive(store, tool("t", session=None, parent="invoke_agent A"))
    assert [row["externalId"] for row in sessions(store)] == [hexed("t1", 32)]

    told = arrive(store, agent(seconds=5))

    (row,) = sessions(store)
    assert row["externalId"] == "s-1" and row["toolCalls"] == 1
    assert told.removed == 1
    assert len(query(store, 'SELECT * FROM "tool_calls"')) == 1


def test_records_that_were_sent_to_a_log_group_bring_their_spans_there(store):
    body = {"input": {"messages": [text("user", "hi")]}, "output": {"messages": [text("assistant", "ho")]}}
    keep_arrivals(store, [agent()], NOW, fallback="/default")
    build_sessions(store, NOW)
    keep_arrivals(
        store, [record("invoke_agent A", body=body)], NOW, log_group="/runtime", fallback="/default"
    )
    build_sessions(store, NOW)

    (row,) = sessions(store)
    assert row["logGroup"] == "/runtime"
    assert store.read.evidence(row["id"]).traces[0].prompt == "hi"


def test_the_same_session_in_two_log_groups_is_two(store):
    arrive(store, agent(trace="t1"), log_group="/one")
    arrive(store, agent(trace="t2"), log_group="/two")

    assert sorted(row["logGroup"] for row in sessions(store)) == ["/one", "/two"]


def test_spans_that_tell_of_no_work_make_no_session_and_are_not_looked_at_again(store):
    arrive(store, span("GET /", scope="opentelemetry.instrumentation.fastapi", session=None))

    assert sessions(store) == []
    assert not store.arrivals.has_new()


def test_several_who_keep_and_tell_at_once_lose_and_double_nothing(store):
    def work(number):
        for name in range(5):
            arrive(store, *conversation(f"s-{number}-{name}"), *conversation("shared"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    found = sessions(store)
    assert len(found) == 21
    assert all(row["toolCalls"] == 2 for row in found)
    assert not store.arrivals.has_new()


def test_a_call_of_a_model_on_the_price_list_arrives_with_its_cost(store):
    tokens = {"gen_ai.usage.input_tokens": 2_000_000, "gen_ai.usage.output_tokens": 1_000_000}
    model = {"gen_ai.request.model": "gpt-4o-mini", "gen_ai.provider.name": "openai"}
    called = chat("chat", trace="s-1/0", parent="invoke_agent A", at=2, **tokens, **model)

    arrive(store, *conversation(turns=1), called)

    (row,) = sessions(store)
    (call,) = store.read.of_session("model_calls", row["id"])
    assert (row["costUsd"], row["unpricedCalls"]) == (pytest.approx(0.90), 0)
    assert call["priceSource"].startswith("genai-prices ")


def test_forgotten_sessions_are_gone_with_their_documents_and_others_stay(store):
    arrive(store, *conversation("s-1"), fallback="/one")
    arrive(store, *conversation("s-2"), fallback="/two")

    delete_sessions(store, imported_sessions(store, NOW, log_group="/one"))

    (row,) = sessions(store)
    assert row["externalId"] == "s-2"
    assert not arrive(store).sessions, "nothing is left that a session could be told from again"
    (kept,) = query(store, 'SELECT COUNT(*) AS "n" FROM "arrivals"')
    (texts,) = query(store, 'SELECT COUNT(*) AS "n" FROM "blobs"')
    assert (kept["n"], texts["n"]) == (4, 1)


def test_sessions_are_old_when_nothing_happened_in_them_since(store):
    arrive(store, *conversation("s-1"))
    (row,) = sessions(store)
    ended = datetime.fromisoformat(row["finishedAt"])

    assert imported_sessions(store, NOW, before=ended) == []
    assert imported_sessions(store, NOW, before=ended + timedelta(seconds=1)) == [row["id"]]
    assert imported_sessions(store, NOW, before=ended + timedelta(seconds=1), log_group="/other") == []


WRONG = ["maybe", [], {"a": [1]}, True, -1, 10**30, float("nan"), "\x00"]


def test_whoever_writes_nonsense_under_our_own_name_gets_a_session_and_nothing_breaks(store):
    figures = ("success", "duration_ms", "cost_usd", "latency_ms", "waiting_ms", "price_source", "call.id")
    ending = ("session.status", "session.end_reason", "session.stand_in", "session.name", "trace.id")
    for number, wrong in enumerate(WRONG):
        ours = {f"proctor.{name}": wrong for name in (*figures, *ending)}
        of = {"scope": "proctor", "session": f"s-{number}", "trace": f"t{number}", **ours}
        arrive(
            store,
            agent(**of),
            tool("tool", parent="invoke_agent A", **of),
            chat("model", parent="invoke_agent A", **of),
        )

    told = [(row["status"], row["toolCalls"], row["modelCalls"]) for row in sessions(store)]
    assert told == [("success", 1, 1)] * len(WRONG)


def test_hostile_names_and_texts_are_kept(store):
    long = "\0 \ud800 " + "x" * 100_000
    hostile = agent(session="\0 \ud800", service="\0", gen_ai__task__input=long)
    hostile["traceId"] = "t\0"

    (session_id,) = arrive(store, hostile).sessions

    assert len(store.read.evidence(session_id).messages[0].content) > 100_000
    with pytest.raises(NotFound):
        store.read.recorded("nothing")


def test_a_session_that_cannot_be_read_fails_alone_and_says_so(store, monkeypatch):
    def read(documents, *, external_id, **more):
        if external_id == "bad":
            raise KeyError("something nobody thought of")
        return session_of(documents, external_id=external_id, **more)

    # White box: no span is known whose reading raises.
    monkeypatch.setattr("proctor.batch.ingest.session_of", read)
    arrive(store, *conversation("bad"), *conversation("good"))

    bad, good = sessions(store)
    assert (bad["status"], bad["endReason"]) == ("error", "internal_error")
    assert "cannot be read: KeyError" in bad["error"]
    assert good["status"] == "success"
    assert not store.arrivals.has_new()
