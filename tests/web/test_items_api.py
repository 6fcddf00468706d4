"""Lists of items over HTTP: filters, order, neighbors of a session."""

import pytest
from stocked_runs import MODELS, NOW, add_run, add_score, add_session, change_items, positions, stock

from proctor.item import Item
from proctor.session import Message
from proctor.store import timestamp
from proctor.store.annotations import Annotation

ANSWERS = ("It was Paris.", "It was\n\n  Rome.")


@pytest.fixture(scope="module")
def listed(shared):
    """A server with a run of sixty items, of which the first ten have sessions with scores."""
    store = shared.site.context.store
    made = stock(store)
    for number in range(10):
        session = f"s{number}"
        events = [
            Message(role="user", content="Where?"),
            Message(role="assistant", content=ANSWERS[number % 2]),
        ]
        add_session(store, session, events, "stocked", itemId=made[number].id)
        change_items(store, "stocked", {made[number].id: {"sessionId": session}})
    return shared


@pytest.fixture(scope="module")
def judged(listed):
    """The same, with scores: of the sessions themselves, and of two evaluations of them."""
    writer = listed.site.context.store.writer()
    for number in range(5):
        add_score(writer, f"s{number}", evaluator="tone", value=number / 10, label="kind")
        add_score(
            writer, f"s{number}", evaluator="grade", dimension="style", value=1.0, judged_session=f"s{number}"
        )
    for number in range(3, 8):
        add_score(writer, f"old{number}", evaluator="tone", value=0.9, judged_session=f"s{number}")
        add_score(writer, f"new{number}", minute=1, evaluator="tone", value=0.6, judged_session=f"s{number}")
        add_score(writer, f"new{number}", minute=1, evaluator="tone", value=0.8, judged_session=f"s{number}")
    writer.close()
    return listed


def neighbors(served, session, query=""):
    reply = served.get(f"/api/runs/stocked/neighbors?session={session}&{query}")
    assert reply.status == 200, reply.text
    return tuple(reply.json[name] for name in ("previous", "next", "position", "total"))


def test_items_are_filtered_by_model_agent_reason_and_factor(listed):
    assert positions(listed, f"model={MODELS[0]}") == list(range(0, 60, 3))
    assert positions(listed, f"model={MODELS[0]}&model={MODELS[1]}&search=test+1") == [
        1, 10, 12, 13, 15, 16, 18, 19,
    ]  # fmt: skip
    assert positions(listed, "agent=codex") == []
    assert positions(listed, "reason=timeout&reason=setup_failed") == [
        at for at in range(54) if at % 5 in (3, 4)
    ]
    assert positions(listed, "factor=temper%3Da&factor=repository%3Dshop") == list(range(0, 60, 6))
    assert positions(listed, "factor=temper%3Da&factor=temper%3Db&status=queued") == [54, 55, 57, 58]
    assert positions(listed, "factor=temper%3Dx") == []
    assert positions(listed, "factor=weather%3Da") == []
    assert listed.get("/api/runs/stocked/items?factor=temper").status == 400


def test_neighbors_of_a_session_are_those_of_the_same_filtered_list(listed):
    assert neighbors(listed, "s3") == ("s2", "s4", 4, 60)
    assert neighbors(listed, "s0") == (None, "s1", 1, 60)
    # The items behind it have not started.
    assert neighbors(listed, "s9") == ("s8", None, 10, 60)
    assert neighbors(listed, "s2", "status=fail") == (None, "s7", 1, 11)
    assert neighbors(listed, "s3", "factor=temper%3Da&descending=true") == ("s6", "s0", 19, 20)
    assert neighbors(listed, "s3", "status=success") == (None, None, None, 22)
    assert listed.get("/api/runs/stocked/neighbors?session=nobody").status == 404


def test_neighbors_of_an_earlier_attempt_are_those_of_its_item(listed):
    item = listed.get("/api/runs/stocked/items?limit=2").json["items"][1]
    add_session(listed.site.context.store, "s1-first", [], "stocked", itemId=item["id"])

    assert neighbors(listed, "s1-first") == ("s0", "s2", 2, 60)


def test_items_come_with_answers_and_scores_where_they_are_asked_for(judged):
    items = judged.get("/api/runs/stocked/items?limit=12&outcomes=true").json["items"]
    plain = judged.get("/api/runs/stocked/items?limit=1").json["items"]

    assert plain[0]["outcome"] is None
    assert items[11]["outcome"] is None
    assert [items[at]["outcome"]["answer"] for at in (0, 1)] == ["It was Paris.", "It was Rome."]
    # Its own score counts, not that of an evaluation; of two evaluations, the later one.
    assert items[3]["outcome"]["scores"] == {
        "tone": {"value": 0.3, "label": "kind"}, "grade/style": {"value": 1.0, "label": ""},
    }  # fmt: skip
    assert items[6]["outcome"]["scores"] == {"tone": {"value": pytest.approx(0.7), "label": ""}}
    assert items[9]["outcome"]["scores"] == {}


def test_items_are_filtered_and_sorted_by_score(judged):
    assert positions(judged, "score=tone%3D0.15..0.3") == [2, 3]
    assert positions(judged, "score=tone%3D..0.1") == [0, 1]
    assert positions(judged, "score=tone%3D0.5..&order=score:tone") == [5, 6, 7]
    assert positions(judged, "score=tone%3D..") == list(range(8))
    assert positions(judged, "score=tone%3D0.2..&score=grade/style%3D1..1") == [2, 3, 4]
    assert positions(judged, "order=score:tone&descending=true")[:9] == [5, 6, 7, 4, 3, 2, 1, 0, 8]
    assert judged.get("/api/runs/stocked/items?score=tone").status == 400
    assert judged.get("/api/runs/stocked/items?score=tone%3D1.1.1..").status == 400
    # More conditions than a database takes are refused before it is asked.
    for several in ("factor=f{}%3Da", "score=s{}%3D0..1"):
        query = "&".join(several.format(number) for number in range(1100))
        assert judged.get(f"/api/runs/stocked/items?{query}").status == 400
    levels = "&".join(f"factor=task%3D{number}" for number in range(1100))
    assert judged.get(f"/api/runs/stocked/items?{levels}").status == 200


def test_values_to_filter_by_are_listed_with_their_numbers_of_items(judged):
    def levels(of):
        return judged.get(f"/api/runs/stocked/levels?of={of}").json["levels"]

    assert [(one["value"], one["items"]) for one in levels("model")] == [
        (model, 20) for model in sorted(MODELS)
    ]
    assert [(one["value"], one["items"]) for one in levels("reason")] == [
        ("completed", 22), ("checks_failed", 11), ("timeout", 11), ("setup_failed", 10),
    ]  # fmt: skip
    assert [one["value"] for one in levels("factor:temper")] == ["a", "b", "c"]
    assert levels("factor:weather") == []
    assert levels("score") == [
        {"value": "grade/style", "items": 5, "low": 1.0, "high": 1.0},
        {"value": "tone", "items": 8, "low": 0.0, "high": 0.9},
    ]
    assert judged.get("/api/runs/stocked/levels?of=weather").status == 404


def test_failures_are_grouped_by_reason_and_likeness_of_message(served, site):
    made = stock(site.context.store, "messy")
    messages = [f"answer does not contain 'X{at}'; it began 'No {at}'" for at in range(11)]
    failed = zip(messages, made[2::5], strict=False)
    change_items(site.context.store, "messy", {item.id: {"error": message} for message, item in failed})

    answer = served.get("/api/runs/messy/failures").json
    of_one_model = served.get(f"/api/runs/messy/failures?model={MODELS[2]}&status=success&limit=1").json
    filtered = served.get(f"/api/runs/messy/items?group={answer['groups'][0]['key']}&limit=500").json

    assert [(one["items"], one["reason"], one["pattern"]) for one in answer["groups"]] == [
        (11, "checks_failed", 'answer does not contain "…"; it began "…"'),
        (11, "timeout", ""),
        (10, "setup_failed", "no such branch"),
    ]
    assert (answer["groupCount"], answer["items"]) == (3, 32)
    assert answer["groups"][0]["example"] == messages[0]
    assert [one["items"] for one in of_one_model["groups"]] == [4]
    assert (of_one_model["groupCount"], of_one_model["items"]) == (3, 11)
    assert [item["position"] for item in filtered["items"]] == list(range(2, 54, 5))
    assert filtered["counts"]["fail"] == filtered["total"] == 11
    assert served.get("/api/runs/messy/items?group=unknown").json["total"] == 0


def test_items_are_filtered_by_tags_notes_and_stars_of_their_sessions(listed):
    save = listed.site.context.store.annotate
    save(Annotation(session_ids=["s1", "s2"], kind="tag", text="odd"), NOW)
    save(Annotation(session_ids=["s3"], kind="tag", text="slow"), NOW)
    save(Annotation(session_ids=["s2"], kind="note", text="odd"), NOW)
    save(Annotation(session_ids=["s4", "s2"], kind="star"), NOW)

    assert positions(listed, "tag=odd") == [1, 2]
    assert positions(listed, "tag=odd&tag=slow") == [1, 2, 3]
    assert positions(listed, "noted=true") == [2]
    assert positions(listed, "starred=true&order=position&descending=true") == [4, 2]
    outcome = listed.get("/api/runs/stocked/items?noted=true&outcomes=true").json["items"][0]["outcome"]
    assert (outcome["tags"], outcome["notes"], outcome["isStarred"]) == (["odd"], 1, True)
    levels = listed.get("/api/runs/stocked/levels?of=tag").json["levels"]
    assert [(one["value"], one["items"]) for one in levels] == [("odd", 2), ("slow", 1)]


def stock_matrix(site):
    """Three tasks by two models, twice each."""
    tasks, models = ["one", "two", "three"], MODELS[:2]
    made = [
        Item(runner="prompt", prompt=task, model=model, factors={"model": model, "task": task}, repeat=repeat)
        for task in tasks
        for model in models
        for repeat in (1, 2)
    ]
    add_run(site.context.store, "grid", made, finishedAt=timestamp(NOW), job="benchmark")
    changes = {}
    # Both models pass the first; the second one fails the others, of which one repeat is missing.
    for number, (item, status) in enumerate(zip(made, "ssss ssff ssfq".replace(" ", ""), strict=True)):
        ends = {"s": "success", "f": "fail", "q": "queued"}
        session = f"g{number}"
        add_session(
            site.context.store, session, [Message(role="assistant", content=f"answer {number}")], "grid"
        )
        changes[item.id] = {"status": ends[status], "sessionId": session, "costUsd": number / 10}
    change_items(site.context.store, "grid", changes)
    return tasks, models, made


def test_all_repeats_of_a_cell_can_be_read(served, site):
    _, _, made = stock_matrix(site)

    reply = served.get(f"/api/runs/grid/matrix/items?item={made[7].id}&item={made[6].id}&item=none").json

    expected = [(made[6].id, 1, "fail"), (made[7].id, 2, "fail")]
    assert [(one["id"], one["repeat"], one["status"]) for one in reply["items"]] == expected
    assert reply["items"][0]["outcome"]["answer"] == "answer 6"
    assert served.get("/api/runs/grid/matrix/items").status == 422


def test_the_first_tasks_of_a_large_run_are_there_while_all_items_are_read(served, site, gate):
    tasks, models, _ = stock_matrix(site)

    first = served.get("/api/runs/grid/matrix?wait=0").json
    searched = served.get("/api/runs/grid/matrix?wait=0&search=two").json
    charts = served.get("/api/runs/grid/charts?by=model&wait=0").json
    gate.set()
    whole = served.get("/api/runs/grid/matrix").json

    assert (first["isCurrent"], first["levels"], first["rows"][0]["task"]) == (False, list(models), "one")
    assert [cell["passed"] for cell in first["rows"][0]["cells"]] == [2, 2]
    assert (searched["isCurrent"], searched["rows"]) == (False, [])
    assert (charts["isCurrent"], charts["charts"]) == (False, [])
    assert (whole["isCurrent"], [row["task"] for row in whole["rows"]]) == (True, tasks)
    assert served.get("/api/runs/grid/charts?by=model&wait=0").json["charts"]
