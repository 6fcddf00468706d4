"""Sessions to evaluate are read a few at a time, each once, in bounded memory."""

import asyncio
from types import SimpleNamespace

import pytest

from proctor.batch import host
from proctor.batch.host import SessionCache
from proctor.cache import LruCache
from proctor.errors import NotFound
from proctor.evaluator import Reference
from proctor.session import Iteration, Message
from stocked import record


@pytest.fixture
def store(proctor_store):
    for number in range(40):
        record(proctor_store, f"s{number}", Message(role="user", content=f"question {number}"), Iteration())
    return proctor_store


def counted(store):
    """The store, and the groups of sessions read from it."""
    groups = []

    def first(ids, most):
        evidence = store.read.evidence_of_first(ids, most)
        groups.append(list(evidence))
        return evidence

    read = SimpleNamespace(evidence=store.read.evidence, evidence_of_first=first)
    return SimpleNamespace(read=read), groups


def announced(cache, ids):
    items = [SimpleNamespace(item=SimpleNamespace(settings={"session": each})) for each in ids]
    cache.announce(items)


async def test_sessions_that_come_next_are_read_together_and_each_once(store):
    counting, groups = counted(store)
    cache = SessionCache(counting)
    ids = [f"s{number}" for number in range(40)]
    announced(cache, [each for each in ids for _ in range(3)])

    evidence = await asyncio.gather(*(cache.load(each) for each in ids for _ in range(3)))

    assert [each.messages[0].content for each in evidence[::3]] == [f"question {n}" for n in range(40)]
    assert sorted(map(len, groups)) == [40 - host.READ_AHEAD, host.READ_AHEAD]


async def test_a_session_that_is_gone_costs_only_the_items_that_need_it(store):
    cache = SessionCache(store)
    announced(cache, ["s1", "gone", "s2"])

    one, gone, other = await asyncio.gather(
        *(cache.load(each) for each in ("s1", "gone", "s2")), return_exceptions=True
    )

    assert (one.session_id, other.session_id) == ("s1", "s2")
    assert isinstance(gone, NotFound)


async def test_an_item_that_is_cancelled_leaves_the_others_their_session(store):
    cache = SessionCache(store)
    first, second = (asyncio.create_task(cache.load("s5")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()

    assert (await second).session_id == "s5"


def test_a_cache_keeps_light_values_longer_than_heavy_ones():
    cache = LruCache(4, most_weight=10, least=2)
    for number in range(6):
        cache.put(number, number, weight=1)
    assert [cache.get(number) for number in range(6)] == [None, None, 2, 3, 4, 5]

    cache.put(6, 6, weight=9)
    assert [cache.get(number) for number in range(7)] == [None] * 5 + [5, 6]
    cache.put(7, 7, weight=50)
    assert [cache.get(number) for number in (5, 6, 7)] == [None, 6, 7]


async def test_the_ground_truth_of_a_session_is_found_once_for_each_scenario(store):
    asked = []

    def find(session_id, scenario):
        asked.append((session_id, scenario))
        return Reference(assertions=(f"{session_id} of {scenario}",))

    cache = SessionCache(store, find)
    scenarios = ["a", "a", "b", "b", "a"]
    evidence = [await cache.load("s1", scenario=scenario) for scenario in scenarios]

    assert [each.reference.assertions[0] for each in evidence] == [f"s1 of {name}" for name in scenarios]
    assert asked == [("s1", "a"), ("s1", "b"), ("s1", "a")]
