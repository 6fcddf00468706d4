"""Windows of items in any order, and transcripts in parts, from both databases."""

from datetime import timedelta
from typing import get_type_hints

import pytest
from stocked import NOW, add_batch, session

from proctor.errors import NotFound
from proctor.item import STATUSES, Item
from proctor.score import Score
from proctor.session import Iteration, Message, Metric, ModelCall, ToolCall
from proctor.store import items as pages
from proctor.store import timestamp, transcripts
from proctor.store.item_lists import ItemQuery, factor_levels, listing

ENDS = ("success", "fail", "queued")
HARM = 'a"\\\x01'


@pytest.fixture
def made(store):
    """Twelve items: every third is queued, costs go up and down, one factor has a name that means harm."""
    add_batch(store, "other", 3)
    items = [
        Item(
            runner="prompt",
            prompt=f"question {n}",
            model="m",
            factors={"size": "SML"[n % 3], HARM: f"{n % 2}"},
        )
        for n in range(12)
    ]
    row = {"runId": "run", "createdAt": timestamp(NOW), "job": "coding", "status": "running"}
    store.create_batch(row, items)
    writer = store.writer()
    for number, item in enumerate(items):
        status = ENDS[number % 3]
        values = {"status": status, "costUsd": None if number == 4 else number * 5 % 12 / 10}
        if status != "queued":
            values["startedAt"] = timestamp(NOW)
            values["finishedAt"] = timestamp(NOW + timedelta(seconds=12 - number))
        writer.change("batch_items", ("run", item.id), values)
    writer.close()
    return items


def test_an_order_holds_every_item_of_the_batch_and_no_other(store, made):
    found = listing(store.read, "run", ItemQuery(order="position", descending=True))

    assert list(found.positions) == list(range(11, -1, -1))
    assert found.counts() == {**dict.fromkeys(STATUSES, 0), "success": 4, "fail": 4, "queued": 4}
    assert len(listing(store.read, "nothing", ItemQuery(order="position", descending=False)).positions) == 0


@pytest.mark.parametrize("descending", [True, False])
def test_what_an_item_does_not_have_is_sorted_last(store, made, descending):
    by_cost = listing(store.read, "run", ItemQuery(order="costUsd", descending=descending))
    by_time = listing(store.read, "run", ItemQuery(order="seconds", descending=descending))

    assert by_cost.positions[-1] == 4
    assert list(by_time.positions[-4:]) == [2, 5, 8, 11]
    assert list(by_time.positions[:2]) == ([0, 1] if descending else [10, 9])


def test_items_are_sorted_by_a_factor_whatever_it_is_called(store, made):
    by_size = listing(store.read, "run", ItemQuery(order="factor:size", descending=False))
    by_harm = listing(store.read, "run", ItemQuery(order=f"factor:{HARM}", descending=True))

    assert list(by_size.positions) == [2, 5, 8, 11, 1, 4, 7, 10, 0, 3, 6, 9]
    assert list(by_harm.positions[:6]) == [1, 3, 5, 7, 9, 11]
    with pytest.raises(NotFound, match="cannot be sorted by"):
        listing(store.read, "run", ItemQuery(order='id" DESC; --', descending=False))


def test_a_window_is_cut_out_of_the_items_in_some_statuses(store, made):
    found = listing(store.read, "run", ItemQuery(search="QUESTION 1", order="position", descending=False))

    positions = found.of(["success", "fail"])

    assert (list(found.positions), list(positions)) == ([1, 10, 11], [1, 10])
    assert list(found.only({11}).of(["queued"])) == [11]
    rows = pages.rows_at(store.read, "run", [11, 0, 99])
    assert [(row["position"], row["factors"]["size"]) for row in rows] == [(11, "L"), (0, "S")]
    assert [row["position"] for row in pages.first_rows(store.read, "run", offset=10, limit=5)] == [10, 11]
    assert pages.rows_at(store.read, "run", []) == []


def test_items_are_filtered_by_levels_of_factors_whatever_they_are_called(store, made):
    def positions(*factors):
        return list(listing(store.read, "run", ItemQuery(factors=factors)).positions)

    assert positions(("size", "S"), ("size", "L")) == [0, 2, 3, 5, 6, 8, 9, 11]
    assert positions(("size", "S"), (HARM, "1")) == [3, 9]
    assert positions((HARM, "' OR 1 = 1; --")) == []
    assert factor_levels(store.read, "run", "size") == [{"value": level, "items": 4} for level in "SML"]


def test_what_was_begun_lately_and_what_is_under_way_is_found_without_reading_all(store, made):
    writer = store.writer()
    session(writer, "early", item_id=made[0].id)
    session(writer, "late", item_id=made[1].id, startedAt=timestamp(NOW + timedelta(seconds=9)))
    writer.change("batch_items", ("run", made[1].id), {"status": "running"})
    writer.close()

    assert pages.items_started_since(store.read, "run", timestamp(NOW + timedelta(seconds=5)), limit=9) == {
        made[1].id
    }
    assert pages.running_ids(store.read, "run", limit=9) == {made[1].id}
    assert [row["id"] for row in pages.items_by_id(store.read, "run", [made[5].id, made[2].id])] == [
        made[2].id, made[5].id,
    ]  # fmt: skip
    assert pages.agent_model_counts(store.read, "run") == [{"agent": "", "model": "m", "items": 12}]
    assert pages.factor_names(store.read, "run") == [HARM, "size"]
    assert pages.status_counts(store.read, "run")["running"] == 1


def test_events_are_told_in_order_with_the_beginnings_of_what_is_long(store):
    writer = store.writer()
    recorder = session(writer, "s1")
    long = "é日" * 6000
    recorder.record(Message(role="user", content=long))
    recorder.record(Metric(name="mood", value=1.0))
    recorder.record(ToolCall(name="run", result="short"))
    recorder.record(ModelCall(model="m", request="r" * 5000))
    recorder.record(Iteration(output=long, test_output="ok"))
    session(writer, "s2").record(Message(role="user", content="another's"))
    writer.close()

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
    assert piece == transcripts.TranscriptPiece(text=long[11_990:], size=12_000, is_cut=False)
    with pytest.raises(NotFound):
        transcripts.text_part(store.read, "s1", 3, "content", offset=0, limit=10)
    with pytest.raises(NotFound):
        transcripts.step_text(store.read, "s1", 2, "output")


def test_events_and_steps_have_the_columns_of_their_types(store):
    writer = store.writer()
    recorder = session(writer, "s1")
    for event in (Message(role="user", content="x"), ToolCall(name="run"), ModelCall(model="m")):
        recorder.record(event)
    recorder.record(Iteration(output="x"))
    writer.close()
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
    assert [set(row) for row in calls] == [kinds[row["kind"]].__required_keys__ for row in calls]
    required = transcripts.OutlineEvent.__required_keys__
    assert all(required <= set(row) <= set(get_type_hints(transcripts.OutlineEvent)) for row in outline)
    assert set(step) == set(get_type_hints(transcripts.TranscriptStep))


def test_a_session_has_the_scores_that_were_given_in_it_and_to_it(store):
    writer = store.writer()
    session(writer, "s1").score(Score(evaluator="own", value=1.0))
    judge = session(writer, "s2")
    judge.score(Score(evaluator="of the first", value=0.5, judged_session="s1"))
    judge.score(Score(evaluator="of another", value=0.5, judged_session="s3"))
    writer.close()

    assert [row["evaluator"] for row in transcripts.scores(store.read, "s1")] == ["own", "of the first"]
    assert len(transcripts.scores(store.read, "s2")) == 2


def searched(store):
    """A session with five messages of ten characters, three of which say it."""
    writer = store.writer()
    recorder = session(writer, "s1")
    for text in ("a needle 1", "b needle 2", "c nothing 3", "d NEEDLE 4", "e nothing 5"):
        recorder.record(Message(role="user", content=text))
    recorder.end("success", "completed", "", work_seconds=1, waiting_seconds=0)
    writer.close()
    return store.read


def test_a_search_goes_on_where_it_stopped_at_its_limit(store):
    read = searched(store)

    first = transcripts.search(read, "s1", "needle", limit=2)
    assert ([hit.position for hit in first.hits], first.last_position, first.has_more) == ([1, 2], 2, True)
    rest = transcripts.search(read, "s1", "needle", after=first.last_position, limit=2)
    assert ([hit.position for hit in rest.hits], rest.last_position, rest.has_more) == ([4], 5, False)
