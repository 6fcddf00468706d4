"""The levels of one factor beside each other."""

import pytest

from filled import add_batch, new_store
from proctor.item import Item
from proctor.report.charts import plots
from proctor.stats.outcomes import by_factor
from proctor.store import Scope
from proctor.store.aggregates import level_sums, select


@pytest.fixture
def selection(tmp_path):
    """Four items of two tempers, of which three have ended; what they cost and took is known."""
    items = [
        Item(runner="prompt", prompt=f"{n}", factors={"temper": "calm" if n < 3 else "rash"})
        for n in range(4)
    ]
    with new_store(tmp_path, "tempers", items) as store:
        writer = store.writer()
        ends = [("success", 0.1, 10), ("fail", 0.3, 20), ("error", None, 30)]
        for item, (status, cost, seconds) in zip(items, ends, strict=False):
            times = {
                "startedAt": "2026-03-01T12:00:00.000Z",
                "finishedAt": f"2026-03-01T12:00:{seconds}.000Z",
            }
            writer.change("batch_items", ("tempers", item.id), {"status": status, "costUsd": cost, **times})
        writer.close()
        yield select(store.read, Scope(run_id="tempers"))


def test_levels_have_their_rates_and_the_means_of_what_is_known(selection):
    calm, rash = by_factor("temper", level_sums(selection, "temper")).levels

    assert (calm.name, calm.tally.items, calm.tally.rate.value) == ("calm", 3, 0.5)
    # An error costs what nobody knows: it is left out of the mean, not taken for free.
    assert calm.cost_usd.value == pytest.approx(0.2)
    assert calm.cost_usd.n == 2
    assert calm.seconds.value == pytest.approx(20)
    assert (rash.tally.rate.value, rash.cost_usd.value, rash.seconds.value) == (None, None, None)


def test_items_without_the_factor_are_a_level_of_their_own(selection):
    (only,) = by_factor("weather", level_sums(selection, "weather")).levels

    assert (only.name, only.tally.items) == ("", 4)


def test_plots_show_what_there_are_figures_for(selection):
    drawn = dict(plots(by_factor("temper", level_sums(selection, "temper"))))

    assert list(drawn) == ["Success rate", "Mean cost of an item", "Mean time of an item"]
    assert "calm: $0.20" in drawn["Mean cost of an item"]
    assert "20 s" in drawn["Mean time of an item"]
    # No interval reaches below nothing.
    assert 'x1="-' not in drawn["Mean cost of an item"]


def test_too_many_levels_are_not_compared(tmp_path):
    items = [Item(runner="prompt", prompt=f"{n}", factors={"task": f"{n}"}) for n in range(60)]
    with new_store(tmp_path, "tasks", items) as store:
        add_batch(store, "few", items[:2])
        many = by_factor("task", level_sums(select(store.read, Scope(run_id="tasks")), "task"))
        few = by_factor("task", level_sums(select(store.read, Scope(run_id="few")), "task"))

    assert (many.is_too_many, many.levels, plots(many)) == (True, (), [])
    assert [level.name for level in few.levels] == ["0", "1"]
