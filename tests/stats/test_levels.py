"""The levels of one factor beside each other."""

import pytest

from filled import NOW, add_batch, new_store
from proctor.item import Item
from proctor.report.charts import plots
from proctor.stats.figures import factor_figures
from proctor.stats.results import load_results
from proctor.store import Recorder, timestamp


@pytest.fixture
def results(tmp_path):
    """Four items of two tempers, of which three have ended; what they cost and took is known."""
    items = [
        Item(runner="prompt", prompt=f"{n}", factors={"temper": "calm" if n < 3 else "rash"})
        for n in range(4)
    ]
    with new_store(tmp_path, "tempers", items) as store:
        writer = store.writer()
        ends = [("success", 0.1, 10), ("fail", 0.3, 20), ("error", None, 30)]
        for item, (status, cost, seconds) in zip(items, ends, strict=False):
            session = {"runId": "tempers", "itemId": item.id, "attempt": 1, "job": "coding"}
            recorder = Recorder(writer, f"s-{item.id}", session | {"startedAt": timestamp(NOW)}, lambda: NOW)
            recorder.end(status, "", "", work_seconds=seconds, waiting_seconds=0.0)
            changes = {"status": status, "costUsd": cost, "sessionId": f"s-{item.id}"}
            writer.change("batch_items", ("tempers", item.id), changes)
        writer.close()
        yield load_results(store.read, ["tempers"], NOW)


def test_levels_have_their_rates_and_the_means_of_what_is_known(results):
    (calm,) = factor_figures(results, "temper").levels

    assert (calm.name, sum(calm.counts.values()), calm.success.value) == ("calm", 3, 0.5)
    assert calm.with_errors.value == pytest.approx(1 / 3)
    # An error costs what nobody knows: it is left out of the mean, not taken for free.
    assert calm.cost_usd.value == pytest.approx(0.2)
    assert calm.cost_usd.n == 2
    assert calm.seconds.value == pytest.approx(20)


def test_items_without_the_factor_are_a_level_of_their_own(results):
    (only,) = factor_figures(results, "weather").levels

    assert (only.name, sum(only.counts.values())) == ("", 3)


def test_plots_show_what_there_are_figures_for(results):
    drawn = {each.title: each.svg for each in plots(factor_figures(results, "temper"))}

    assert list(drawn) == ["Success rate", "Mean cost of an item", "Mean time of an item"]
    assert "calm: $0.20" in drawn["Mean cost of an item"]
    assert "20 s" in drawn["Mean time of an item"]
    # No interval reaches below nothing.
    assert 'x1="-' not in drawn["Mean cost of an item"]


def test_too_many_levels_are_not_compared(tmp_path):
    items = [Item(runner="prompt", prompt=f"{n}", factors={"task": f"{n}"}) for n in range(60)]
    with new_store(tmp_path, "tasks", items) as store:
        add_batch(store, "few", items[:2])
        writer = store.writer()
        for run_id, some in (("tasks", items), ("few", items[:2])):
            for item in some:
                writer.change("batch_items", (run_id, item.id), {"status": "success"})
        writer.close()
        many = factor_figures(load_results(store.read, ["tasks"], NOW), "task")
        few = factor_figures(load_results(store.read, ["few"], NOW), "task")

    assert (many.is_too_many, many.levels, plots(many)) == (True, (), [])
    assert [level.name for level in few.levels] == ["0", "1"]
    # A task is no treatment: it has a rate of its own, about itself, and no rank.
    assert [level.success.scope for level in few.levels] == ["these tasks", "these tasks"]
    assert few.ranks == ()
