"""Windows of the items of a run: in any order, filtered by anything, searched; and what each came to."""

from datetime import timedelta

import pytest

from proctor.errors import NotFound
from proctor.item import STATUSES, Item
from proctor.score import Score
from proctor.store import ItemFilter, item_lists, timestamp
from proctor.store import items as pages
from proctor.store.item_lists import ItemQuery, ScoreRange, factor_levels, listing
from stocked import NOW, add_batch, at, change_items, record

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


def positions(store, run_id="run", **query):
    return list(listing(store.read, run_id, ItemQuery(**query)).positions)


def test_every_item_of_a_run_is_listed_in_an_order_and_no_other(store, made):
    found = listing(store.read, "run", ItemQuery(order="position", descending=True))

    assert list(found.positions) == list(range(11, -1, -1))
    assert found.counts() == {**dict.fromkeys(STATUSES, 0), "success": 4, "fail": 4, "queued": 4}
    assert positions(store, "nothing") == []
    by_time = [positions(store, order="seconds", descending=down) for down in (True, False)]
    assert [each[:2] for each in by_time] == [[0, 1], [10, 9]]
    assert [each[-4:] for each in by_time] == [[2, 5, 8, 11]] * 2, "what an item does not have is last"
    assert [positions(store, order="costUsd", descending=down)[-1] for down in (True, False)] == [4, 4]
    assert positions(store, order="factor:size") == [2, 5, 8, 11, 1, 4, 7, 10, 0, 3, 6, 9]
    assert positions(store, order=f"factor:{HARM}", descending=True)[:6] == [1, 3, 5, 7, 9, 11]
    assert positions(store, order="model", descending=True) == list(range(12)), "equal: as in the plan"
    with pytest.raises(NotFound, match="cannot be sorted by"):
        positions(store, order='id" DESC; --')


def test_items_are_filtered_by_levels_of_factors_whatever_they_are_called(store, made):
    assert positions(store, factors=[("size", "S"), ("size", "L")]) == [0, 2, 3, 5, 6, 8, 9, 11]
    assert positions(store, factors=[("size", "S"), (HARM, "1")]) == [3, 9]
    assert positions(store, factors=[(HARM, "' OR 1 = 1; --")]) == []
    assert factor_levels(store.read, "run", "size") == [{"value": level, "items": 4} for level in "SML"]
    assert pages.factor_names(store.read, "run") == [HARM, "size"]
    assert pages.agent_model_counts(store.read, "run") == [{"agent": "", "model": "m", "items": 12}]


def test_items_are_filtered_by_a_range_of_a_score_or_of_their_duration(store):
    add_batch(store, count=5)
    for number, value in enumerate((0.25, 0.5, 0.75)):
        record(store, f"s{number}", Score(evaluator="tidy", value=value))
        change_items(store, {number: {"sessionId": f"s{number}"}})
    for number, (began, ended) in enumerate([(0, 0), (0, 10), (5, 25), (0, None)]):
        end = None if ended is None else at(ended)
        change_items(store, {number: {"startedAt": at(began), "finishedAt": end}})

    def scored(**limits):
        return positions(store, scores=[ScoreRange(name="tidy", **limits)])

    assert (scored(), scored(low=0.5), scored(high=0.5)) == ([0, 1, 2], [1, 2], [0, 1])
    assert (scored(low=0.5, high=0.5), scored(low=0.8)) == ([1], [])
    assert positions(store, order="score:tidy") == [0, 1, 2, 3, 4]
    assert positions(store, order="score:tidy", descending=True) == [2, 1, 0, 3, 4]

    def lasting(*durations):
        return positions(store, durations=durations)

    assert [lasting((None, None)), lasting((10.0, None)), lasting((10.5, None))] == [[0, 1, 2], [1, 2], [2]]
    assert [lasting((None, 10.0)), lasting((None, 20.5)), lasting((0.0, 0.5))] == [[0], [0, 1, 2], [0]]
    assert lasting((5.0, None), (None, 15.0)) == [1]


def test_a_window_is_cut_out_of_the_items_in_some_statuses(store, made):
    found = listing(store.read, "run", ItemQuery(search="QUESTION 1"))

    assert (list(found.positions), list(found.of(["success", "fail"]))) == ([1, 10, 11], [1, 10])
    only = found.only({1, 11})
    assert (list(only.positions), list(only.of(["queued"])), only.counts()["queued"]) == ([1, 11], [11], 1)
    rows = pages.rows_at(store.read, "run", [11, 0, 99])
    assert [(row["position"], row["factors"]["size"]) for row in rows] == [(11, "L"), (0, "S")]
    assert [row["position"] for row in pages.first_rows(store.read, "run", offset=10, limit=5)] == [10, 11]
    assert pages.rows_at(store.read, "run", []) == []
    first = store.read.items("run", limit=7, offset=4)
    assert [row["position"] for row in first] == list(range(4, 11))


def test_what_was_begun_lately_and_what_is_under_way_is_found_without_reading_all(store, made):
    record(store, "early", item_id=made[0].id)
    record(store, "late", item_id=made[1].id, startedAt=at(9))
    change_items(store, {1: {"status": "running"}})

    assert pages.items_started_since(store.read, "run", at(5), limit=9) == {made[1].id}
    assert pages.running_ids(store.read, "run", limit=9) == {made[1].id}
    found = pages.items_by_id(store.read, "run", [made[5].id, made[2].id])
    assert [row["id"] for row in found] == [made[2].id, made[5].id]
    counts = pages.status_counts(store.read, "run")
    assert counts == {**dict.fromkeys(STATUSES, 0), "success": 4, "fail": 3, "queued": 4, "running": 1}
    assert set(pages.status_counts(store.read, "none").values()) == {0}


@pytest.mark.parametrize(
    ("values", "is_volatile"),
    [
        ({}, False),
        ({"search": "x", "models": ["m"], "order": "costUsd"}, False),
        ({"tags": ["t"]}, True),
        ({"is_noted": True}, True),
        ({"is_starred": True}, True),
        ({"scores": [ScoreRange(name="tidy")]}, True),
        ({"order": "score:tidy"}, True),
        ({"order": "factor:task"}, False),
    ],
)
def test_a_list_is_volatile_if_notes_or_scores_decide(values, is_volatile):
    assert ItemQuery(**values).is_volatile is is_volatile


def test_search_finds_what_was_typed_and_nothing_else(store):
    texts = ["is it 100% sure?", "snake a_b", "aXb 100x", "what!", "it's \\ so"]
    models = {"snake a_b": "gpt-5", "aXb 100x": "GPT-4"}
    given = [Item(runner="prompt", prompt=text, model=models.get(text, "m")) for text in texts]
    store.create_batch(
        {"runId": "run", "createdAt": timestamp(NOW), "job": "coding", "status": "running"}, given
    )
    expected = {
        "100%": ["is it 100% sure?"],
        "a_b": ["snake a_b"],
        "SNAKE": ["snake a_b"],
        "!": ["what!"],
        "what?": [],
        "?": ["is it 100% sure?"],
        "'": ["it's \\ so"],
        "\\": ["it's \\ so"],
        "gpt": ["snake a_b", "aXb 100x"],
        "": texts,
    }

    for sought, found in expected.items():
        wanted = ItemFilter(search=sought)
        assert [row["prompt"] for row in store.read.items("run", wanted)] == found, sought
        assert store.read.count_items("run", wanted) == len(found), sought


def test_items_are_filtered_by_status(store):
    add_batch(store, count=4)
    statuses = ("success", "fail", "error", "queued")
    change_items(store, {number: {"status": status} for number, status in enumerate(statuses)})

    wanted = ItemFilter(statuses=("fail", "error"), search="question")
    assert [row["status"] for row in store.read.items("run", wanted)] == ["fail", "error"]
    assert store.read.count_items("run", ItemFilter(statuses=("success",))) == 1


def test_an_outcome_has_the_label_that_all_scores_of_a_name_share(store):
    labels = (("one", "good"), ("two", "good"), ("two", "bad"), ("same", "ok"), ("same", "ok"), ("none", ""))
    record(store, "s1", *(Score(evaluator=name, value=0.5, label=label) for name, label in labels))

    scores = item_lists.outcomes(store.read, ["s1"], characters=9)["s1"].scores
    found = {name: score["label"] or "" for name, score in scores.items()}
    assert found == {"one": "good", "two": "", "same": "ok", "none": ""}
