"""What takes long to work out about a run is kept while it holds, and no longer."""

import threading
from concurrent.futures import ThreadPoolExecutor

from stocked_runs import change_items, positions, stock

from proctor.store import RetrySelection, batches, timestamp
from proctor.web.app import MOST_THREADS


def test_the_page_of_a_run_shows_what_was_done_to_it_since(served, site):
    items = stock(site.context.store)
    before = served.get("/api/runs/stocked").json
    drawn = served.get("/api/runs/stocked/charts").json

    site.context.store.resume_batch("stocked", "host:1:x", RetrySelection(failures=True), site.now())
    change_items(
        site.context.store, "stocked", {item.id: {"status": "success", "tokensTotal": 7} for item in items}
    )
    site.context.store.change(
        batches.change, "stocked", {"status": "completed", "finishedAt": timestamp(site.now())}
    )

    after = served.get("/api/runs/stocked").json
    assert (before["counts"]["success"], after["counts"]["success"]) == (22, 60)
    assert after["tokens"] == 60 * 7
    assert served.get("/api/runs/stocked/charts").json != drawn


def test_many_who_ask_for_the_same_order_at_once_all_get_it_over_a_few_connections_to_the_store(served, site):
    stock(site.context.store, count=500)
    with ThreadPoolExecutor(30) as callers:
        replies = list(callers.map(lambda _: positions(served, "order=costUsd"), range(60)))

    assert len(replies[0]) == 500
    assert all(reply == replies[0] for reply in replies)
    workers = [thread for thread in threading.enumerate() if "AnyIO" in thread.name]
    assert 0 < len(workers) <= MOST_THREADS
