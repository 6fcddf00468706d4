"""Ranks with intervals that hold together, ties and missing cells."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.stats import difference, holm, mean, ranks


def rank_table(**rows):
    return {name: dict(enumerate(values)) for name, values in rows.items()}


def places(ranked):
    return [(each.name, each.rank, each.rank_low, each.rank_high) for each in ranked]


def test_a_clear_order_has_certain_ranks_and_equal_models_tie():
    table = rank_table(mid=[0.5] * 60, low=[0.0] * 60, high=[1.0] * 60)

    assert places(ranks(table, lo=0, hi=1)) == [("high", 1, 1, 1), ("mid", 2, 2, 2), ("low", 3, 3, 3)]
    assert places(ranks(table, lo=0, hi=1, higher_is_better=False))[0] == ("low", 1, 1, 1)
    equal = rank_table(b=[1, 0] * 10, a=[1, 0] * 10, c=[0, 1] * 10)
    assert places(ranks(equal, lo=0, hi=1)) == [("a", 1, 1, 3), ("b", 1, 1, 3), ("c", 1, 1, 3)]


def test_separations_are_those_of_the_pairs_corrected_by_holm():
    rng = np.random.default_rng(11)
    rates = {"a": 0.9, "b": 0.75, "c": 0.6, "d": 0.3}
    table = {name: dict(enumerate((rng.random(40) < rate).astype(float))) for name, rate in rates.items()}
    ranked = {each.name: each for each in ranks(table, lo=0, hi=1)}

    names = list(table)
    pairs = [(one, other) for place, one in enumerate(names) for other in names[place + 1 :]]
    tested = [
        difference(list(table[one].values()), list(table[other].values()), lo=0, hi=1) for one, other in pairs
    ]
    wins = dict.fromkeys(names, 0)
    losses = dict.fromkeys(names, 0)
    for (one, other), change, p in zip(pairs, tested, holm([each.p for each in tested]), strict=True):
        if p <= 0.05:
            better, worse = (other, one) if change.value > 0 else (one, other)
            wins[better] += 1
            losses[worse] += 1
    assert sum(wins.values()) >= 2
    for name in names:
        assert (ranked[name].rank_low, ranked[name].rank_high) == (1 + losses[name], 4 - wins[name])
        own = mean(list(table[name].values()), lo=0, hi=1)
        assert (ranked[name].value, ranked[name].low, ranked[name].high) == (own.value, own.low, own.high)
        assert ranked[name].sem == own.sem


def test_costs_are_ranked_by_typical_ratios():
    rng = np.random.default_rng(3)
    base = rng.lognormal(0, 1.5, 30)
    table = rank_table(
        dear=base * rng.lognormal(0.7, 0.2, 30), cheap=base, same=base * rng.lognormal(0, 0.2, 30)
    )

    ranked = ranks(table, log=True, higher_is_better=False)

    assert ranked[-1].name == "dear"
    assert (ranked[-1].rank_low, ranked[-1].rank_high) == (3, 3)
    assert [(each.rank_low, each.rank_high) for each in ranked[:2]] == [(1, 2), (1, 2)]


def test_pairs_are_compared_on_common_tasks():
    full = dict.fromkeys(range(40), 1.0)
    late = dict.fromkeys(range(35, 60), 0.0)
    table = {"full": full, "late": late, "other": dict.fromkeys(range(40), 0.0)}

    ranked = {each.name: each for each in ranks(table, lo=0, hi=1)}

    # Five common tasks do not separate `full` from `late`; forty separate it from `other`.
    assert (ranked["full"].rank_low, ranked["full"].rank_high) == (1, 2)
    assert (ranked["late"].rank_low, ranked["late"].rank_high) == (1, 3)
    assert ranked["late"].note.endswith("Has 25 of 60 tasks.")


def test_missing_and_broken_values():
    table = {"a": {task: [1, None] for task in range(8)}, "none": dict.fromkeys(range(8))}
    table |= {"broken": {0: math.nan}, "empty": {}}

    first, *rest = ranks(table, lo=0, hi=1)

    assert (first.name, first.value) == ("a", 1)
    assert [(each.name, each.value, each.note) for each in rest] == [
        ("none", None, "No values."),
        ("broken", None, "1 of 1 values is NaN or infinite."),
        ("empty", None, "No values."),
    ]
    assert [(each.rank_low, each.rank_high) for each in rest] == [(1, 4)] * 3
    assert ranks({}) == []


@settings(max_examples=40)
@given(
    st.integers(2, 5).flatmap(
        lambda number: st.lists(
            st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=number, max_size=number),
            min_size=2,
            max_size=20,
        )
    )
)
def test_a_rank_lies_in_its_interval(rows):
    number = len(rows[0])
    table = {f"m{place}": {task: row[place] for task, row in enumerate(rows)} for place in range(number)}

    ranked = ranks(table, lo=0, hi=1)

    assert [each.rank for each in ranked] == sorted(each.rank for each in ranked)
    for each in ranked:
        assert 1 <= each.rank_low <= each.rank <= each.rank_high <= number
        if len(rows) < 6:
            assert (each.rank_low, each.rank_high) == (1, number)
        same = [other for other in ranked if other.value == each.value]
        assert len({other.rank for other in same}) == 1
