"""What takes long to work out about a run is kept while it holds, and no longer."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from stocked_runs import NOW, stock

from proctor.cache import ResultCache
from proctor.store import RetrySelection, timestamp
from proctor.web.app import MOST_THREADS

ENDED = {"runId": "one", "status": "completed", "owner": "me", "finishedAt": timestamp(NOW)}
RUNNING = {"runId": "one", "status": "running", "owner": "me", "finishedAt": None}


class Clock:
    """Stands still until it is moved."""

    now = NOW

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def ask(clock):
    """Ask a question about a run; how often it was worked out so far."""
    kept, worked = ResultCache(clock, while_running=timedelta(seconds=3)), []

    def asked(batch, about=""):
        return kept.get(batch, about, lambda: worked.append(about) or len(worked))

    return asked


def test_a_run_that_has_ended_is_worked_out_once(ask, clock):
    assert ask(ENDED) == 1
    clock.now += timedelta(days=1)

    assert ask(ENDED) == 1
    assert ask(ENDED, "by model") == 2
    assert ask(ENDED | {"runId": "two"}) == 3


@pytest.mark.parametrize(
    "change", [{"finishedAt": "later"}, {"owner": "somebody else"}, {"status": "aborted"}]
)
def test_a_run_that_was_taken_up_again_is_worked_out_anew(ask, change):
    ask(ENDED)

    assert ask(ENDED | change) == 2


def test_a_run_under_way_is_worked_out_every_few_seconds(ask, clock):
    assert ask(RUNNING) == 1
    clock.now += timedelta(seconds=2)
    assert ask(RUNNING) == 1
    clock.now += timedelta(seconds=2)
    assert ask(RUNNING) == 2
    assert ask(RUNNING | {"owner": "somebody else"}) == 3
    assert ask(ENDED) == 4


def test_the_page_of_a_run_shows_what_was_done_to_it_since(served, site):
    items = stock(site.store)
    before = served.get("/api/runs/stocked").json
    drawn = served.get("/api/runs/stocked/charts").json

    site.store.resume_batch("stocked", "host:1:x", RetrySelection(failures=True), site.now())
    writer = site.store.writer()
    for item in items:
        writer.change("batch_items", ("stocked", item.id), {"status": "success", "tokensTotal": 7})
    writer.close()
    site.store.change_batch("stocked", {"status": "completed", "finishedAt": timestamp(site.now())})

    after = served.get("/api/runs/stocked").json
    assert (before["counts"]["success"], after["counts"]["success"]) == (22, 60)
    assert after["tokens"] == 60 * 7
    assert served.get("/api/runs/stocked/charts").json != drawn


def test_many_who_ask_at_once_share_a_few_connections_to_the_store(served, site):
    stock(site.store)
    with ThreadPoolExecutor(30) as callers:
        replies = list(callers.map(lambda _: served.get("/api/runs/stocked/items").status, range(60)))

    assert set(replies) == {200}
    workers = [thread for thread in threading.enumerate() if "AnyIO" in thread.name]
    assert 0 < len(workers) <= MOST_THREADS
