"""The transcript of a session in parts: events, steps, outlines, pieces of long texts, hits, evidence."""

from typing import get_type_hints

import pytest

from proctor.errors import NotFound
from proctor.score import Score
from proctor.session import Iteration, Message, Metric, ModelCall, ToolCall
from proctor.store import transcripts
from stocked import LONG, record


def test_events_are_told_in_order_with_the_beginnings_of_what_is_long(store):
    long = "é日" * 6000
    record(
        store,
        "s1",
        Message(role="user", content=long),
        Metric(name="mood", value=1.0),
        ToolCall(name="run", result="short"),
        ModelCall(model="m", request="r" * 5000),
        Iteration(output=long, test_output="ok"),
    )
    record(store, "s2", Message(role="user", content="another's"))

    first, *rest = transcripts.events(store.read, "s1", after=0, limit=10)

    assert [(row["kind"], row["position"]) for row in rest] == [("tool_call", 3), ("model_call", 4)]
    assert (first["content"].text, first["content"].is_cut) == (long[:4000], True)
    assert first["content"].size == len(long.encode())
    assert rest[0]["result"] == transcripts.TranscriptPiece(text="short", size=5, is_cut=False)
    assert transcripts.extent(store.read, "s1") == (4, 3)
    (step,) = transcripts.steps(store.read, "s1")
    assert (step["output"].is_cut, step["testOutput"].text) == (True, "ok")
    assert transcripts.step_text(store.read, "s1", 1, "output") == long
    assert transcripts.step_count(store.read, "s1") == 1

    piece = transcripts.text_part(store.read, "s1", 1, "content", offset=11_990, limit=100)
    assert (piece.text, piece.size, piece.is_cut) == (long[11_990:], 12_000, False)
    with pytest.raises(NotFound):
        transcripts.text_part(store.read, "s1", 3, "content", offset=0, limit=10)
    with pytest.raises(NotFound):
        transcripts.step_text(store.read, "s1", 2, "output")


def test_events_and_steps_have_the_columns_of_their_types(store):
    said = Message(role="user", content="x")
    record(store, "s1", said, ToolCall(name="run"), ModelCall(model="m"), Iteration(output="x"))
    kinds = {
        "message": transcripts.MessageEvent,
        "tool_call": transcripts.ToolCallEvent,
        "model_call": transcripts.ModelCallEvent,
    }

    events = transcripts.events(store.read, "s1", after=0, limit=9)
    calls = transcripts.calls(store.read, "s1", after=0, limit=9)
    outline = transcripts.outline(store.read, "s1")
    (step,) = transcripts.steps(store.read, "s1")

    assert [row["kind"] for row in events] == list(kinds)
    assert all(set(row) == set(get_type_hints(kinds[row["kind"]])) for row in events)
    texts = {"argsJson", "result", "request", "response"}
    assert all(set(row) == set(get_type_hints(kinds[row["kind"]])) - texts for row in calls)
    required = transcripts.OutlineEvent.__required_keys__
    assert all(required <= set(row) <= set(get_type_hints(transcripts.OutlineEvent)) for row in outline)
    assert set(step) == set(get_type_hints(transcripts.TranscriptStep))
    assert [row["position"] for row in transcripts.outline(store.read, "s1", limit=2)] == [1, 2]
    two = transcripts.events(store.read, "s1", after=0, limit=2)
    assert [row["position"] for row in two] == [1, 2], "of all tables together"
    assert transcripts.extent(store.read, "none") == (0, 0)


def test_a_session_has_the_scores_that_were_given_in_it_and_to_it(store):
    record(store, "s1", Score(evaluator="own", value=1.0))
    judged = {"of the first": "s1", "of another": "s3"}
    record(store, "s2", *(Score(evaluator=name, judged_session=each) for name, each in judged.items()))

    assert [row["evaluator"] for row in transcripts.scores(store.read, "s1")] == ["own", "of the first"]
    assert len(transcripts.scores(store.read, "s2")) == 2


def test_a_search_goes_on_where_it_stopped_at_its_limit(store):
    texts = ("a needle 1", "b needle 2", "c nothing 3", f"{LONG}NEEDLE{LONG}", "e nothing 5")
    record(store, "s1", *(Message(role="user", content=text) for text in texts), ends=True)

    first = transcripts.search(store.read, "s1", "needle", limit=2)
    assert ([hit.position for hit in first.hits], first.last_position, first.has_more) == ([1, 2], 2, True)
    rest = transcripts.search(store.read, "s1", "needle", after=first.last_position, limit=2)
    assert ([hit.position for hit in rest.hits], rest.last_position, rest.has_more) == ([4], 5, False)
    short, long = first.hits[0], rest.hits[0]
    assert (short.before, short.match, short.after, short.offset) == ("a ", "needle", " 1", 2)
    around = transcripts.AROUND_CHARACTERS
    assert (long.before, long.match, long.after) == (LONG[-around:], "NEEDLE", LONG[:around])


def test_heads_and_pieces_of_texts_say_whether_they_go_on(store):
    texts = ["x" * 4000, "x" * 4001, "é" * 5000, "end"]
    record(store, "s1", *(Message(role="user", content=text) for text in texts))
    heads = [row["content"] for row in transcripts.events(store.read, "s1", after=0, limit=9)]
    assert [(len(head.text), head.size, head.is_cut) for head in heads] == [
        (4000, 4000, False),
        (4000, 4001, True),
        (4000, 10_000, True),
        (3, 3, False),
    ]
    assert [row["position"] for row in transcripts.events(store.read, "s1", after=1, limit=2)] == [2, 3]

    def piece(position, offset, limit):
        found = transcripts.text_part(store.read, "s1", position, "content", offset=offset, limit=limit)
        return found.text, found.size, found.is_cut

    assert piece(4, 0, 3) == ("end", 3, False)
    assert piece(4, 0, 2) == ("en", 3, True)
    assert piece(4, 1, 9) == ("nd", 3, False)
    assert piece(3, 4998, 9) == ("éé", 5000, False)


def test_evidence_is_read_of_as_many_sessions_as_have_so_many_characters(store):
    for session_id, texts in (("a", ["xx", "yyy"]), ("b", ["z" * 5]), ("c", [LONG]), ("d", [])):
        said = [Message(role="user", content=text) for text in texts]
        record(store, session_id, *said, ToolCall(name="t", result="r" * 5))

    def first(ids, most):
        return list(store.read.evidence_of_first(ids, most))

    assert first(["a"], 0) == ["a"], "at least one"
    assert first(["a", "b"], 19) == ["a"]
    assert first(["a", "b"], 20) == ["a", "b"]
    assert first(["a", "c", "b"], 10_010) == ["a"]
    assert sorted(first(["a", "c", "b"], 10_015)) == ["a", "c"]
    assert sorted(first(["a", "c", "b"], 10_025)) == ["a", "b", "c"]
    assert first(["c", "a"], 1) == ["c"]
    assert first([], 1) == []
    assert first(["none", "d"], 5) == ["d"]
