"""Lists of items over HTTP: filters, order, neighbors of a session."""

import pytest
from stocked_runs import MODELS, add_session, stock

from proctor.session import Message

ANSWERS = ("It was Paris.", "It was\n\n  Rome.")


@pytest.fixture(scope="module")
def listed(shared):
    """A server with a run of sixty items, of which the first ten have sessions with scores."""
    store = shared.site.store
    made = stock(store)
    writer = store.writer()
    for number in range(10):
        session = f"s{number}"
        events = [
            Message(role="user", content="Where?"),
            Message(role="assistant", content=ANSWERS[number % 2]),
        ]
        add_session(store, session, events, "stocked", itemId=made[number].id)
        writer.change("batch_items", ("stocked", made[number].id), {"sessionId": session})
    writer.close()
    return shared


def positions(served, query=""):
    reply = served.get(f"/api/runs/stocked/items?limit=500&{query}")
    assert reply.status == 200, reply.text
    return [item["position"] for item in reply.json["items"]]


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
    add_session(listed.site.store, "s1-first", [], "stocked", itemId=item["id"])

    assert neighbors(listed, "s1-first") == ("s0", "s2", 2, 60)
