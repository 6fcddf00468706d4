"""Parts of the prediction of totals, with chance replaced by known numbers."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from proctor.models.prices import Price, Rates
from proctor.stats import estimate
from proctor.stats.estimate import (
    LEAST_SPREAD,
    Group,
    PromptShare,
    _bootstrap,
    _cost,
    _draw,
    _draw_lognormal,
    _Draws,
    _figure,
    _pooled,
    _samples,
    _Spread,
    _totals,
    predict_total,
)


@pytest.mark.parametrize(
    ("values", "freedom", "zeros"),
    [([1.0, 2.0, 8.0], 2, 0), ([0.0, 2.0, 0.0, 8.0], 1, 2), ([0.0, 3.0], 0, 1), ([0.0, 0.0], 0, 2)],
)
def test_a_spread_is_of_the_logs_of_positive_values(values, freedom, zeros):
    spread = _Spread.of(np.array(values))
    logs = [math.log(value) for value in values if value > 0]
    squares = sum((each - sum(logs) / len(logs)) ** 2 for each in logs)
    assert spread.squares == pytest.approx(squares)
    assert (spread.freedom, spread.zeros, spread.values) == (freedom, zeros, len(values))


@pytest.mark.parametrize(("freedom", "drawn_with"), [(0, 1), (1, 2), (2, 3), (3, 3), (4, 4), (9, 9)])
def test_the_assumed_spread_counts_as_one_value_where_there_are_fewer_than_four(freedom, drawn_with):
    asked = []

    def chisquare(freedom, draws):
        asked.append(freedom)
        return np.full(draws, 2.0)

    sigma = _Spread(0.5, freedom, 0, freedom + 1).sigma(3, SimpleNamespace(chisquare=chisquare))
    assert asked == [drawn_with]
    assert sigma == pytest.approx([math.sqrt((0.5 + LEAST_SPREAD**2) / 2)] * 3)


@pytest.mark.parametrize(
    ("past", "expected"),
    [
        # One task needs no repeats of others; several need four degrees of freedom together.
        ({"a": [1.0]}, (0, 0, 1)),
        ({"a": [1.0, 2.0, 4.0], "b": [1.0, 3.0]}, None),
        ({"a": [1.0, 2.0, 4.0], "b": [1.0, 3.0, 9.0]}, (4, 0, 6)),
        ({"a": [1.0, 2.0, 4.0, 0.0], "b": [1.0, 3.0, 9.0], "c": [5.0]}, (4, 1, 8)),
    ],
)
def test_the_spread_within_tasks_is_known_from_enough_repeats_on(past, expected):
    spread = _pooled(past)
    if expected is None:
        assert spread is None
        return
    assert (spread.freedom, spread.zeros, spread.values) == expected
    assert spread.squares == pytest.approx(sum(_Spread.of(np.array(each)).squares for each in past.values()))


class NoChance:
    """A random generator without chance: normal numbers are 0, all others as told."""

    def __init__(self, *, normal=0.0, zeros=0.0):
        self.normal, self.zeros = normal, zeros
        self.beta_of = None

    def chisquare(self, freedom, draws):
        return np.full(draws, float(freedom))

    def standard_normal(self, shape):
        return np.full(shape, self.normal)

    def beta(self, first, second, draws):
        self.beta_of = first, second
        return np.full(draws, 0.25)

    def random(self, shape):
        return np.full(shape, self.zeros)


def drawn_total(samples, items, *, rng=None, weights=None, spread=None):
    arrays = [np.array(each, dtype=float) for each in samples]
    draws = _Draws(2)
    spread = spread or _Spread.of(np.concatenate(arrays))
    _draw_lognormal(arrays, np.array(items), spread, draws, rng or NoChance(), weights)
    assert draws.total[0] == draws.total[1] and draws.longest[0] == draws.longest[1]
    return draws.total[0], draws.longest[0]


def test_values_without_noise_are_the_geometric_means_of_few_tasks():
    assert drawn_total([[1.0, 4.0], [3.0, 27.0]], [3, 2]) == pytest.approx((3 * 2 + 2 * 9, 9))
    # One sample whose values count with weights.
    assert drawn_total([[1.0, 4.0]], [3], weights=np.array([5.0, 1.0, 2.0])) == pytest.approx((16, 2))
    # A task whose values are all 0 has the mean of the others.
    assert drawn_total([[2.0, 8.0], [0.0]], [1, 1], rng=NoChance(zeros=0.9)) == pytest.approx((8, 4))
    assert drawn_total([[0.0, 0.0]], [4]) == (0, 0)


def test_of_many_items_of_a_task_a_thousand_are_drawn_and_stand_for_all(monkeypatch):
    shapes = []

    class Watched(NoChance):
        def standard_normal(self, shape):
            shapes.append(shape)
            return super().standard_normal(shape)

    assert drawn_total([[2.0, 2.0]], [2500], rng=Watched()) == pytest.approx((5000, 2))
    assert shapes == [(2, 1), (2, 1000)]
    shapes.clear()
    # In blocks: the items of a task keep its mean.
    monkeypatch.setattr(estimate, "BLOCK", 800)
    tasks = [[2.0, 2.0], [3.0, 3.0], [5.0, 5.0]]
    assert drawn_total(tasks, [600, 500, 100], rng=Watched()) == pytest.approx((3200, 5))
    assert shapes == [(2, 1), (2, 400), (2, 2), (2, 400), (2, 2), (2, 400)]


def test_the_mean_of_a_task_is_the_same_in_all_blocks(monkeypatch):
    """Means of tasks are drawn as 1, 2, 3 ..., items without noise: equal items have equal values."""
    drawn = iter(range(1, 100))

    class Counting(NoChance):
        def standard_normal(self, shape):
            return np.zeros(shape) if shape[1] == 3 else np.full(shape, float(next(drawn)))

    monkeypatch.setattr(estimate, "BLOCK", 6)
    total, longest = drawn_total([[2.0] * 4], [9], rng=Counting(), spread=_Spread(0.02, 3, 0, 4))
    sigma = math.sqrt((0.02 + LEAST_SPREAD**2) / 3)
    value = 2 * math.exp(sigma * 1 / math.sqrt(4))
    assert (total, longest) == pytest.approx((9 * value, value))


def test_many_tasks_are_drawn_about_their_arithmetic_means():
    """From five tasks on: the mean of a lognormal value lies half its variance above its center."""
    samples = [[1.0, 3.0], [2.0, 2.0], [4.0, 6.0], [1.0, 1.0], [5.0, 5.0]]
    spread = _Spread(0.29, 5, 0, 10)
    variance = (0.29 + LEAST_SPREAD**2) / 5
    arithmetic = [2.0, 2.0, 5.0, 1.0, 5.0]
    shift = math.exp(-variance / 2 * (1 + 1 / 2))
    total, longest = drawn_total(samples, [1] * 5, spread=spread)
    assert total == pytest.approx(sum(arithmetic) * shift)
    assert longest == pytest.approx(5 * shift)
    few, _ = drawn_total(samples[:4], [1] * 4, spread=spread)
    assert few == pytest.approx(math.sqrt(3) + 2 + math.sqrt(24) + 1)


def test_noise_is_that_of_the_mean_and_of_the_item():
    spread = _Spread(0.15, 3, 0, 4)
    sigma = math.sqrt((0.15 + LEAST_SPREAD**2) / 3)
    total, _ = drawn_total([[2.0] * 4], [1], rng=NoChance(normal=1.0), spread=spread)
    assert total == pytest.approx(2 * math.exp(sigma * (1 / math.sqrt(4) + 1)))


@pytest.mark.parametrize(("chance", "is_zero"), [(0.2, True), (0.25, False), (0.3, False)])
def test_a_share_of_the_items_is_zero_where_earlier_ones_were(chance, is_zero):
    rng = NoChance(zeros=chance)
    total, _ = drawn_total([[0.0, 2.0, 2.0]], [4], rng=rng)
    assert rng.beta_of == (1.5, 2.5)
    assert total == pytest.approx(0 if is_zero else 8)


def test_draws_add_up_and_keep_the_longest():
    draws = _Draws(2)
    draws.add(np.array([1.0, 2.0]), np.array([1.0, 5.0]))
    draws.add(np.array([3.0, 4.0]), np.array([3.0, 4.0]))
    assert (draws.total.tolist(), draws.longest.tolist()) == ([4.0, 6.0], [3.0, 5.0])


@pytest.mark.parametrize(
    ("past", "planned", "lognormal", "bootstrap"),
    [
        # Items of a known task: a bootstrap from eight values of a single task on.
        ({"a": range(1, 8)}, {"a": 3}, [([7], [3], None)], None),
        ({"a": range(1, 9)}, {"a": 3}, [([8], [3], None)], (8, [1.0, 1.0, 1.0])),
        ({"a": range(1, 9), "b": [1]}, {"a": 3}, [([8], [3], None)], None),
        # New tasks: single values stand for them below five tasks, then the means of tasks.
        ({"a": [1, 2], "b": [3, 4]}, {"x": 3, "y": 2}, [([4], [2], [3, 2])], None),
        (
            {"a": [1, 2], "b": [3, 4], "c": [1, 2], "d": [2, 2]},
            {"x": 3},
            [([8], [1], [3])],
            (8, [3]),
        ),
        ({name: [1, 2] for name in "abcde"}, {"x": 3}, [([5], [1], [3])], None),
        ({name: [1, 2] for name in "abcdefgh"}, {"x": 3}, [([8], [1], [3])], (8, [3])),
        # Both kinds.
        (
            {name: [1, 2] for name in "abcdefgh"},
            {"x": 3, "a": 2},
            [([2], [2], None), ([8], [1], [3])],
            None,
        ),
    ],
)
def test_what_is_drawn_depends_on_how_many_values_are_known(monkeypatch, past, planned, lognormal, bootstrap):
    drawn = []

    def draw_lognormal(samples, items, spread, draws, rng, weights=None):
        sizes, counts = [len(each) for each in samples], items.tolist()
        drawn.append((sizes, counts, None if weights is None else weights.tolist()))

    monkeypatch.setattr(estimate, "_draw_lognormal", draw_lognormal)
    monkeypatch.setattr(estimate, "_bootstrap", lambda values, weights, like, rng: (len(values), weights))
    group = Group(
        past={name: [float(each) for each in values] for name, values in past.items()}, planned=planned
    )

    assert _draw(group, _Draws(1), NoChance()) == bootstrap
    assert drawn == lognormal


def test_a_bootstrap_studentizes_the_log_of_the_mean():
    """Two draws from three values, of four items with weights 2 and 1, by the formula."""
    values = np.array([1.0, 2.0, 6.0])
    again, coming = np.array([[0, 1, 2], [0, 0, 1]]), np.array([[2, 1], [0, 1]])
    given = iter([again, coming])
    rng = SimpleNamespace(integers=lambda low, high, shape: next(given))

    result = _bootstrap(values, [2.0, 1.0], _Draws(2), rng)

    relative = values.std(ddof=1) / 3
    effective = 3**2 / (2**2 + 1**2)
    for place, (drawn, new) in enumerate(((values[again[0]], (6, 2)), (values[again[1]], (1, 2)))):
        total = (2 * new[0] + new[1]) / 3
        error = drawn.std(ddof=1) / drawn.mean() * math.sqrt(1 / 3 + 1 / 2)
        pivot = math.log(total / drawn.mean()) / error
        expected = 3 * math.exp(pivot * relative * math.sqrt(1 / 3 + 1 / effective)) * 3
        assert result.total[place] == pytest.approx(expected)
    assert result.longest.tolist() == [6.0, 2.0]


def test_a_resample_without_spread_or_value_says_nothing_and_one_far_away_is_bounded():
    values = np.array([0.0, 1.0, 1.000001])
    again = np.array([[1, 1, 1], [0, 0, 0], [1, 1, 2]])
    coming = np.array([[1], [1], [0]])
    given = iter([again, coming])
    rng = SimpleNamespace(integers=lambda low, high, shape: next(given))
    result = _bootstrap(values, [1.0], _Draws(3), rng)
    assert result.total == pytest.approx(np.full(3, values.mean()))
    given = iter([np.array([[1, 1, 2]]), np.array([[2]])])
    values = np.array([1e-30, 1.0, 1.000001])
    relative = values.std(ddof=1) / values.mean()
    pivot = math.log(1.000001 / np.array([1, 1, 1.000001]).mean())
    pivot /= np.array([1, 1, 1.000001]).std(ddof=1) / np.array([1, 1, 1.000001]).mean() * math.sqrt(4 / 3)
    (total,) = _bootstrap(values, [1.0], _Draws(1), rng).total
    assert total == pytest.approx(values.mean() * math.exp(pivot * relative * math.sqrt(4 / 3)))
    given = iter([np.array([[1, 1, 2]]), np.array([[0]])])
    (total,) = _bootstrap(values, [1.0], _Draws(1), rng).total
    assert total == pytest.approx(values.mean() * math.exp(-50 * relative * math.sqrt(4 / 3)))


@pytest.mark.parametrize(
    ("planned", "draws", "expected"),
    [
        ({"a": 1}, 4000, 4000),
        ({"a": 1}, 100, 400),
        # Eight million numbers at most, of which a task has a thousand at most.
        (dict.fromkeys("abcd", 1000), 4000, 2000),
        ({"a": 9000, "b": 3000}, 4000, 4000),
        ({str(number): 1000 for number in range(100)}, 4000, 400),
    ],
)
def test_the_draws_of_a_prediction_are_bounded(monkeypatch, planned, draws, expected):
    numbers = []

    def draw(group, own, rng):
        numbers.append(len(own.total))

    monkeypatch.setattr(estimate, "_draw", draw)
    predict_total([Group(past={"a": [1.0, 2.0]}, planned=planned)], draws=draws)
    assert numbers == [expected]


@pytest.mark.parametrize(
    ("columns", "guesses", "expected"),
    [
        ([{0: 1.0, 1: 3.0}], [9.0], [4.0, 12.0]),
        ([{0: 1.0, 1: 3.0}, {1: 5.0}], [9.0, 9.0], [24.0, 32.0]),
        ([{0: 1.0, 1: 3.0}, {}], [9.0, 2.0], [12.0, 20.0]),
        ([{0: 1.0, 1: None}], [9.0], None),
        ([{0: 1.0, 1: 3.0}, {}], [9.0, None], None),
    ],
)
def test_a_run_that_lacks_a_role_counts_with_the_average_of_that_role(columns, guesses, expected):
    assert _totals(columns, guesses, [0, 1], turns=4) == expected


def share(who, model, calls=2.0):
    return PromptShare(who=who, model=model, calls=calls, input_tokens=30.0, output_tokens=8.0)


def test_the_figures_of_a_role():
    def price(model, tokens_in, tokens_out):
        return None if model == "unknown" else tokens_in + 10 * tokens_out

    one = share("port", "a")
    assert [_figure(name, one, "a", price) for name in ("calls", "tokens")] == [2.0, 38.0]
    # Two calls of fifteen and four tokens each.
    assert _figure("cost_usd", one, "a", price) == 2 * (15 + 40)
    assert _figure("cost_usd", one, "unknown", price) is None
    assert _figure("cost_usd", share("port", "a", calls=0), "unknown", price) == 0.0


def test_a_role_is_that_with_the_same_model_where_any_run_has_it():
    port, other, ferry = share("port", "a"), share("port", "b"), share("ferry", "a")
    earlier = [[other, port], [ferry], [other], [ferry, port]]
    assert _samples(earlier, port) == {0: port, 3: port}
    assert _samples(earlier, share("port", "c")) == {0: other, 2: other, 3: port}
    assert _samples(earlier, share("pilot", "a")) == {}


def sums(**more):
    row = {"provider": "p", "model": "m", "calls": 2, "promptTokens": 200, "cachedTokens": 0}
    return row | {"completionTokens": 100, "priceSource": "table", "cost": 9.0} | more


@pytest.mark.parametrize(
    ("row", "cost", "names"),
    [
        # Two calls of 100 and 50 tokens, at $1 and $10 per million.
        (sums(), 2 * 600 / 1_000_000, []),
        (sums(provider=""), None, ["m"]),
        (sums(provider="", model="p/m"), 2 * 600 / 1_000_000, []),
        (sums(model="q/m"), None, ["q/m"]),
        (sums(model="other"), None, ["p/other"]),
        (sums(model="other", priceSource="agent"), 9.0, []),
        (sums(model="other", priceSource="agent", cost=None), None, ["p/other"]),
        # Without tokens there is nothing to price: what the agent was charged, or nothing.
        (sums(promptTokens=0, completionTokens=0), 0.0, []),
        (sums(promptTokens=0, completionTokens=0, priceSource="agent"), 9.0, []),
    ],
)
def test_the_cost_of_a_session_is_that_of_its_average_calls(row, cost, names):
    unknown = []

    def price(name):
        return Price("plan", Rates(1.0, 0.1, 1.0, 10.0)) if name == "p/m" else None

    found = _cost([row], price, unknown)
    assert found == (cost if cost is None else pytest.approx(cost))
    assert unknown == names


def test_a_bootstrap_in_blocks_fills_every_draw(monkeypatch):
    """Five draws of three values: blocks of one, of two with one left over, and of three."""
    values = np.array([1.0, 2.0, 6.0])
    again, coming = (
        np.array([[0, 1, 2], [0, 0, 1], [2, 2, 1], [0, 2, 1], [1, 1, 0]]),
        np.array([[2], [1]] * 3),
    )

    def totals(block):
        place = {3: 0, 1: 0}
        monkeypatch.setattr(estimate, "BLOCK", block)

        def integers(low, high, shape):
            start = place[shape[1]]
            place[shape[1]] += shape[0]
            assert (low, high) == (0, 3)
            return (again if shape[1] == 3 else coming)[start : start + shape[0]]

        result = _bootstrap(values, [1.0], _Draws(5), SimpleNamespace(integers=integers))
        return result.total.tolist(), result.longest.tolist()

    whole = totals(500_000)
    assert min(whole[0]) > 0 and whole[1] == [6.0, 2.0, 6.0, 2.0, 6.0]
    assert totals(3) == totals(6) == totals(9) == whole


def test_a_bootstrap_of_many_values_draws_from_a_thousand_of_them():
    values = np.arange(1.0, 1502.0)
    drawn = []

    def choice(all_values, size, replace):
        drawn.append((len(all_values), size, replace))
        return all_values[:size]

    def integers(low, high, shape):
        drawn.append((low, high, shape))
        return np.zeros(shape, dtype=int)

    result = _bootstrap(values, [1.0] * 1200, _Draws(2), SimpleNamespace(choice=choice, integers=integers))
    assert drawn == [(1501, 1000, False), (0, 1000, (2, 1000)), (0, 1000, (2, 1000))]
    assert result.total == pytest.approx([1200 * values.mean()] * 2), "resamples without spread say nothing"
