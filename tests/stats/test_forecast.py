"""What a batch is going to take, from what the same agents and models took before."""

from datetime import UTC, datetime

import numpy as np
import pytest

from filled import add_batch
from proctor.batch.estimate import Group, forecast, predict_total
from proctor.item import Item
from proctor.job import Work
from proctor.models.prices import Price, Rates, price_of
from proctor.report.estimate import basis, forecast_lines
from proctor.session import ModelCall, Usage
from stocked import finish_item

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
MILLION = 1_000_000


def a_dollar_a_million(_model):
    return Price("plan", Rates(1.0, 1.0, 1.0, 1.0))


def foreseen(store, work, *, concurrency=1, price=a_dollar_a_million):
    """The forecast of so many items of each kind of work, given as agent, model and task."""
    planned = {Work(*kind): items for kind, items in work.items()}
    return forecast(store.read, "coding", planned, concurrency=concurrency, price=price)


@pytest.fixture
def remember(store):
    """Writes down a session that has been: `remember(agent, model, seconds, usd)`, at $1 per 1M tokens."""
    count = iter(range(1000))

    def kept(agent, model, seconds, usd, status="success", job="coding", task="fix", mock=0, **call):
        number = next(count)
        item = Item(prompt=f"do it {number}", factors={"task": task})
        add_batch(store, f"old-{number}", [item])
        usage = Usage(input_tokens=round(usd * MILLION))
        made = ModelCall(**{"model": model, "usage": usage, "cost_usd": 77.0, **call})
        about = {"run_id": f"old-{number}", "job": job, "agent": agent, "model": model, "isMock": mock}
        writer = store.writer()
        finish_item(writer, item.id, f"s{number}", made, status=status, seconds=seconds, **about)
        writer.close()

    return kept


def test_items_take_what_such_sessions_took_on_average(store, remember):
    for seconds, usd in ((10, 0.1), (20, 0.3)):
        remember("claude", "opus", seconds, usd)
    remember("claude", "opus", 9999, 99.0, status="error")
    remember("claude", "opus", 9999, 99.0, job="benchmark")
    remember("codex", "opus", 9999, 99.0)

    found = foreseen(store, {("claude", "opus", "fix"): 8}, concurrency=4)

    assert found.cost_usd.value == pytest.approx(1.6)
    assert found.seconds.value == pytest.approx(30)
    assert (found.seconds.sessions, found.seconds.items, found.items) == (2, 8, 8)
    assert basis(found) == "From 2 earlier sessions of the same agents and models."


def test_who_was_never_at_work_is_named_and_not_guessed_at(store, remember):
    remember("", "gpt", 1, 0.01)

    found = foreseen(store, {("", "gpt", "fix"): 10, ("amp", "new", "fix"): 5})

    assert found.cost_usd.value == pytest.approx(0.1)
    assert (found.seconds.items, found.items) == (10, 15)
    assert "for 10 of 15 items: nothing is known of amp with new." in basis(found)
    assert forecast_lines(found)[0] == (
        "cost: about $0.10, from 1 like session, too few for an interval for 10 of 15 items; "
        "unknown: amp with new"
    )


def test_without_any_experience_nothing_is_said(store):
    found = foreseen(store, {("amp", "new", "fix"): 5})

    assert (found.cost_usd.value, found.seconds.value) == (None, None)
    assert basis(found).startswith("Nothing like it was done here before")
    assert forecast_lines(found)[0] == "cost: unknown, no like sessions in the store (amp with new)"


def test_a_task_is_predicted_from_its_own_sessions_and_others_only_where_it_has_none(store, remember):
    for number in range(6):
        remember("", "gpt", 1, 1 + 0.01 * number, task="cheap")
        remember("", "gpt", 1, 100 + number, task="dear")

    def cost(task):
        return foreseen(store, {("", "gpt", task): 10}).cost_usd

    assert cost("cheap").value == pytest.approx(10.25) and cost("cheap").high < 12
    assert cost("dear").value == pytest.approx(1025) and cost("dear").low > 900
    assert cost("new").value == pytest.approx((10.25 + 1025) / 2)
    assert cost("new").low < 12 and cost("new").high > 1000, "which kind it is, is not known"


def test_the_prices_of_another_plan_are_never_borrowed(store, remember):
    for _ in range(5):
        # Recorded at $77 under the `prices:` of another plan.
        remember("", "openai/gpt-4o", 1, 1.0, price_source="plan")
        remember("", "acme/one", 1, 1.0, price_source="plan")
    work = {("", "openai/gpt-4o", "fix"): 1, ("", "acme/one", "fix"): 1}

    def found(**declared):
        prices = {name: {"input": rate, "output": rate} for name, rate in declared.items()}
        return foreseen(store, work, price=lambda name: price_of(name, prices, at=NOW)).cost_usd

    listed = price_of("openai/gpt-4o", {}, at=NOW).rates.input
    assert found().value == pytest.approx(listed) and found().unknown == ("acme/one",)
    assert found().items == 1
    assert found(one=3.0).value == pytest.approx(listed + 3.0) and found(one=3.0).unknown == ()


def test_what_an_agent_was_charged_counts_where_no_price_is_known(store, remember):
    for usd in (0.4, 0.5, 0.6):
        remember("amp", "secret", 1, 1.0, cost_usd=usd, price_source="agent")

    found = foreseen(store, {("amp", "secret", "fix"): 2}, price=lambda _: None)

    assert found.cost_usd.value == pytest.approx(1.0) and found.cost_usd.unknown == ()


CHARGED = {"cost_usd": 0.5, "price_source": "agent"}


@pytest.mark.parametrize(
    ("model", "call", "priced", "cost"),
    [
        # A call of a million tokens, at $1 for each.
        ("m", {"provider": "p"}, "p/m", 1.0),
        ("q/m", {"provider": "p"}, "q/m", 1.0),
        ("m", {"provider": ""}, "m", 1.0),
        ("m", {"provider": "p"}, "m", None),
        ("m", {"provider": "p", **CHARGED}, "other", 0.5),
        ("m", {"provider": "p", **CHARGED, "cost_usd": None}, "other", None),
        # Without tokens there is nothing to price: what the agent was charged, or nothing.
        ("m", {"provider": "p", **CHARGED, "usage": Usage()}, "p/m", 0.5),
        ("m", {"provider": "p", "usage": Usage()}, "p/m", 0.0),
    ],
)
def test_earlier_calls_cost_what_their_model_costs_now(store, remember, model, call, priced, cost):
    remember("amp", model, 1, 1.0, **call)

    def price(name):
        return a_dollar_a_million(name) if name == priced else None

    found = foreseen(store, {("amp", model, "fix"): 1}, price=price).cost_usd
    assert found.value == (None if cost is None else pytest.approx(cost))


def test_mock_sessions_count_only_where_there_are_no_others(store, remember):
    remember("", "gpt", 0.001, 0.0, mock=1)

    def seconds():
        return foreseen(store, {("", "gpt", "fix"): 1}).seconds

    assert seconds().value == 0.001
    remember("", "gpt", 30, 0.1)
    assert (seconds().value, seconds().sessions) == (30, 1)


def test_free_models_cost_nothing_for_certain():
    group = Group(past={"": [0.0, 0.0]}, planned={"": 9})

    assert predict_total([group]) == (0, 0, 0)


def test_equal_sessions_are_no_proof_of_equal_cost():
    value, low, high = predict_total([Group(past={"": [2.0] * 5}, planned={"": 10})])

    assert value == 20 and 17 < low < 19.5 and 20.5 < high < 24
    assert predict_total([Group(past={"": [2.0]}, planned={"": 10})]) == (20, None, None)


def _coverage(draw, pilot, items, *, tasks=False, concurrency=None, runs=150):
    """Share of intervals that cover what the items come to."""
    rng = np.random.default_rng(7)
    covered = 0
    for seed in range(runs):
        past, coming = draw(rng, pilot), draw(rng, items)
        group = Group(past={"": past.tolist()}, planned={"": items})
        if tasks:
            past_tasks = {f"old {n}": [value] for n, value in enumerate(past.tolist())}
            group = Group(past=past_tasks, planned={f"new {n}": 1 for n in range(items)})
        _, low, high = predict_total([group], concurrency=concurrency, draws=400, seed=seed)
        truth = coming.sum() if concurrency is None else max(coming.sum() / concurrency, coming.max())
        covered += low <= truth <= high
    return covered / runs


@pytest.mark.parametrize("items", [10, 100])
@pytest.mark.parametrize("pilot", [5, 20, 80])
def test_the_interval_of_a_total_covers_lognormal_costs(pilot, items):
    """Nominal 0.95; two standard errors of 150 simulations are 0.036."""
    assert 0.91 <= _coverage(lambda rng, n: rng.lognormal(0, 1, n), pilot, items) <= 0.995


def test_the_interval_covers_new_tasks_skewed_gamma_costs_and_time():
    assert 0.91 <= _coverage(lambda rng, n: rng.lognormal(0, 1, n), 20, 10, tasks=True) <= 0.995
    assert _coverage(lambda rng, n: rng.gamma(0.5, 1, n), 80, 100) >= 0.91
    assert 0.91 <= _coverage(lambda rng, n: rng.lognormal(0, 1, n), 20, 100, concurrency=8) <= 0.995


@pytest.mark.parametrize("repeats", [1, 2])
def test_the_interval_covers_more_items_of_known_tasks(repeats):
    rng = np.random.default_rng(11)
    covered = 0
    for seed in range(150):
        effects = rng.normal(0, 1, 20)
        past = {str(n): rng.lognormal(mu, 0.5, repeats).tolist() for n, mu in enumerate(effects)}
        total = sum(rng.lognormal(mu, 0.5, 3).sum() for mu in effects)
        _, low, high = predict_total([Group(past=past, planned=dict.fromkeys(past, 3))], draws=400, seed=seed)
        covered += low <= total <= high
    # One session per task cannot tell the spread of a task from that of all tasks: wider than need be.
    assert 0.91 <= covered / 150 <= (0.99 if repeats > 1 else 1)


def test_the_time_of_items_side_by_side_is_at_least_that_of_the_longest():
    short = Group(past={"a": [1.0, 1.0, 1.0]}, planned={"a": 10})
    long = Group(past={"b": [40.0, 40.0]}, planned={"b": 1})
    assert predict_total([short, long])[0] == 50.0
    for groups in ([short, long], [long, short]):
        assert predict_total(groups, concurrency=10)[0] == 40.0
    assert predict_total([short], concurrency=5)[0] == 2.0
    assert predict_total([], concurrency=5) == (0.0, 0.0, 0.0)


def test_the_time_of_a_forecast_is_that_of_as_many_items_side_by_side_as_there_are(store, remember):
    for _ in range(2):
        remember("claude", "opus", 10, 0.1)
    for concurrency, seconds in ((1, 80.0), (2, 40.0), (8, 10.0), (100, 10.0), (0, 80.0)):
        found = foreseen(store, {("claude", "opus", "fix"): 8}, concurrency=concurrency)
        assert found.seconds.value == pytest.approx(seconds)
        assert found.cost_usd.value == pytest.approx(0.8)
