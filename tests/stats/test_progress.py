"""How far a batch is, asked again and again."""

from datetime import timedelta

import pytest

from filled import NOW, filled_store, new_store
from proctor.stats.progress import progress
from proctor.store import timestamp


def test_a_batch_under_way_says_how_far_it_is_and_what_runs(tmp_path):
    with filled_store(tmp_path, finished=12) as store:
        found = progress(store.read, "compare", NOW + timedelta(minutes=10))

    assert (found.total, found.finished, found.counts["running"]) == (36, 12, 1)
    (running,) = found.running
    assert running.tokens == 1112
    assert running.elapsed_seconds > 300
    assert found.budget_usd == 5.0


def test_tokens_and_cost_are_of_finished_items_and_of_those_under_way(tmp_path):
    with filled_store(tmp_path, finished=3) as store:
        found = progress(store.read, "compare", NOW)

    assert found.tokens == sum(1100 + index for index in range(4))
    assert found.cost_usd == pytest.approx(0.04)


def test_going_on_from_the_previous_answer_gives_the_same_sums(tmp_path):
    with filled_store(tmp_path, finished=9) as store:
        first = progress(store.read, "compare", NOW)
        writer = store.writer()
        (row,) = store.read.items("compare", limit=1, offset=9)
        writer.change("batch_items", ("compare", row["id"]), {"status": "success", "tokensTotal": 500})
        writer.close()

        again = progress(store.read, "compare", NOW, first)

        assert again.tokens == progress(store.read, "compare", NOW).tokens
        assert again.tokens == first.tokens - 1109 + 500


def test_items_taken_up_again_are_no_longer_counted_as_settled(tmp_path):
    with filled_store(tmp_path, finished=9) as store:
        first = progress(store.read, "compare", NOW)
        writer = store.writer()
        (row,) = store.read.items("compare", limit=1, offset=2)
        writer.change("batch_items", ("compare", row["id"]), {"status": "queued", "tokensTotal": 0})
        writer.close()

        assert progress(store.read, "compare", NOW, first).tokens == first.tokens - 1102


def test_the_rate_is_that_of_the_last_looks_and_gives_an_eta(tmp_path):
    with filled_store(tmp_path, finished=0) as store:
        begin = NOW + timedelta(seconds=100)
        writer = store.writer()
        writer.change("batches", ("compare",), {"owner": "elsewhere:1:1:x", "heartbeatAt": timestamp(begin)})
        writer.flush().result()
        found = progress(store.read, "compare", begin)
        assert (found.items_per_second, found.eta_seconds) == (None, None)

        for row in store.read.items("compare", limit=8):
            writer.change("batch_items", ("compare", row["id"]), {"status": "success"})
        writer.close()
        found = progress(store.read, "compare", begin + timedelta(seconds=4), found)

    assert found.items_per_second == 2.0
    assert found.eta_seconds == 14.0


def test_a_batch_whose_process_died_is_interrupted_and_has_no_eta(tmp_path):
    with filled_store(tmp_path, finished=6) as store:
        found = progress(store.read, "compare", NOW + timedelta(days=400))

    assert found.status == "interrupted"
    assert found.eta_seconds is None


def test_a_finished_batch_stands_still(store):
    early = progress(store.read, "compare", NOW + timedelta(hours=1))
    late = progress(store.read, "compare", NOW + timedelta(hours=2))

    assert early.elapsed_seconds == late.elapsed_seconds > 0
    assert (early.running, early.eta_seconds) == ((), None)


def test_an_empty_batch_is_no_trouble(tmp_path):
    with new_store(tmp_path, "empty", []) as store:
        found = progress(store.read, "empty", NOW)

    assert (found.total, found.tokens, found.cost_usd, found.items_per_second) == (0, 0, None, None)
