"""Variance components and mixed models against published fits, by simulation, and with too little data."""

import numpy as np
import pytest

from proctor.stats.variance import components, mixed_model

# Penicillin (Davies & Goldsmith 1972; lme4): growth on 24 plates, 6 samples each.
PENICILLIN = """
27 23 26 23 23 21, 27 23 26 23 23 21, 25 21 25 24 24 20, 26 23 25 23 23 20, 25 22 26 22 23 20,
24 22 25 23 22 19, 24 20 23 21 22 19, 26 22 26 24 24 21, 24 21 24 22 22 20, 24 21 24 23 22 19,
26 23 26 24 24 21, 25 22 26 24 24 20, 26 24 26 24 25 22, 26 23 26 23 23 20, 26 23 25 24 24 22,
25 22 25 23 23 20, 25 21 24 23 23 20, 25 22 24 23 23 19, 24 21 23 21 21 19, 26 23 26 24 24 21,
25 21 24 22 22 18, 25 22 25 22 22 20, 24 21 24 22 24 19, 24 21 24 22 21 18"""

# Machines (Milliken & Johnson 1992; nlme): 3 scores of each of 6 workers on each of 3 machines.
MACHINES = {
    "A": "52 52.8 53.1 51.8 52.8 53.1 60 60.2 58.4 51.1 52.3 50.3 50.9 51.8 51.4 46.4 44.8 49.2",
    "B": "62.1 62.6 64 59.7 60 59 68.6 65.8 69.7 63.2 62.8 62.2 64.8 65 65.4 43.7 44.2 43",
    "C": "67.5 67.2 66.9 61.5 61.7 62.3 70.8 70.6 71 64.1 66.2 64 72.1 72 71.1 62 61.4 60.5",
}
# Batches of dyestuff (Davies & Goldsmith 1972; lme4): the second set was made up to have no variance between.
DYESTUFF2 = """
7.298 3.846 2.434 9.566 7.990, 5.220 6.556 0.608 11.788 -0.892, 0.110 10.386 13.434 5.510 8.166,
2.212 4.852 7.092 9.288 4.980, 0.282 9.014 4.458 9.446 7.198, 1.722 4.782 8.106 0.758 3.758"""


def penicillin():
    return [
        {"plate": plate, "sample": sample, "diameter": float(value)}
        for plate, line in enumerate(PENICILLIN.split(","))
        for sample, value in zip("ABCDEF", line.split(), strict=True)
    ]


def machines():
    return [
        {"machine": machine, "worker": place // 3, "score": float(value)}
        for machine, line in MACHINES.items()
        for place, value in enumerate(line.split())
    ]


def values(result):
    return {each.source: each.variance.value for each in result.components}


def test_one_factor_has_the_mean_squares_of_the_textbook():
    """MSB 18.083333 and MSW 0.833333 of 4 groups of 3: (MSB - MSW) / 3 = 5.75."""
    table = {"team": list("aaabbbcccddd"), "score": [3, 4, 5, 6, 7, 5, 2, 2, 3, 8, 7, 9]}

    result = components(table, ["team"], "score")

    assert values(result) == pytest.approx({"team": 5.75, "repeat": 0.833333}, abs=1e-6)
    assert result.of("team").share == pytest.approx(0.873418, abs=1e-6)
    # Of chi-squared with 8 degrees of freedom: 17.5345 and 2.1797.
    assert result.of("repeat").variance.low == pytest.approx(8 * 0.833333 / 17.5345, rel=0.05)
    assert result.of("repeat").variance.high == pytest.approx(8 * 0.833333 / 2.1797, rel=0.05)


def test_a_balanced_crossing_is_fitted_as_by_lme4():
    """lmer(diameter ~ 1 + (1|plate) + (1|sample), Penicillin): 0.7169, 3.7309, 0.3024; 22.9722 (0.8086)."""
    result = components(penicillin(), ["plate", "sample"], "diameter")

    fitted = values(result)
    assert (fitted["plate"], fitted["sample"], fitted["repeat"]) == pytest.approx(
        (0.7169, 3.7309, 0.3024), abs=1e-4
    )
    assert (result.mean.value, result.mean.sem) == pytest.approx((22.9722, 0.8086), abs=1e-4)
    assert fitted["plate:sample"] is None
    assert "one run of each" in result.of("plate:sample").variance.note


def test_a_crossing_with_missing_cells_is_fitted_as_by_statsmodels():
    """Every fifth row removed; MixedLM with vc_formula for plate and sample, REML, statsmodels 0.15:
    0.69951, 3.62132, 0.30035; 22.97067 (0.79708).
    """
    rows = [row for place, row in enumerate(penicillin()) if place % 5]

    result = components(rows, ["plate", "sample"], "diameter")

    fitted = values(result)
    assert (fitted["plate"], fitted["sample"], fitted["repeat"]) == pytest.approx(
        (0.69951, 3.62132, 0.30035), abs=2e-5
    )
    assert (result.mean.value, result.mean.sem) == pytest.approx((22.97067, 0.79708), abs=1e-5)
    assert result.of("plate").variance.method.startswith("REML")


def test_a_mixed_model_is_that_of_lme4_with_satterthwaites_degrees_of_freedom():
    """lmer(score ~ Machine + (1|Worker) + (1|Worker:Machine)): 22.858, 13.909, 0.9246; B 7.967, C 13.917
    (2.177, 10 df in lmerTest).
    """
    result = mixed_model(machines(), "score", fixed="machine", random=["worker"])

    assert values(result) == pytest.approx(
        {"worker": 22.858, "machine:worker": 13.909, "repeat": 0.9246}, abs=1e-3
    )
    b, c = result.contrasts["B - A"], result.contrasts["C - A"]
    assert (b.value, b.sem, c.value, c.sem) == pytest.approx((7.9667, 2.1770, 13.9167, 2.1770), abs=1e-4)
    assert b.method.endswith("df 10.0") and b.p == pytest.approx(0.00439, abs=1e-5)
    # t at 10 degrees of freedom is 2.228139.
    assert (b.low, b.high) == pytest.approx(
        (7.9667 - 2.228139 * 2.1770, 7.9667 + 2.228139 * 2.1770), abs=1e-3
    )
    assert (result.means["A"].value, result.means["A"].sem) == pytest.approx((52.3556, 2.4858), abs=1e-4)


def test_an_unbalanced_mixed_model_is_that_of_pinheiro_and_bates():
    """Their fit of Machines without ten rows: standard deviations 4.7387, 3.7728, 0.9332."""
    lost = {1, 2, 5, 7, 8, 11, 18, 19, 26, 32}
    rows = [row for place, row in enumerate(machines()) if place not in lost]

    result = mixed_model(rows, "score", fixed="machine", random=["worker"], baseline="C")

    assert {name: value**0.5 for name, value in values(result).items()} == pytest.approx(
        {"worker": 4.7387, "machine:worker": 3.7728, "repeat": 0.9332}, abs=1e-4
    )
    assert result.contrasts["A - C"].value == pytest.approx(-13.918, abs=1e-3)
    assert (result.n, set(result.contrasts)) == (44, {"A - C", "B - C"})


def test_a_negative_estimate_counts_as_zero():
    """lme4 gives Dyestuff2 a variance of 0 between batches and a mean of 5.6656."""
    table = {
        "batch": [batch for batch in "ABCDEF" for _ in range(5)],
        "y": [float(value) for line in DYESTUFF2.split(",") for value in line.split()],
    }

    result = components(table, ["batch"], "y")

    batch = result.of("batch").variance
    assert (batch.value, batch.low) == (0, 0) and batch.high > 0
    assert result.mean.value == pytest.approx(5.6656, abs=1e-4)


SIZES = {"client": 6, "therapist": 5, "profile": 3}
TRUE = {
    "client": 0.3,
    "therapist": 0.2,
    "profile": 0.1,
    "client:therapist": 0.1,
    "client:profile": 0.05,
    "therapist:profile": 0.05,
    "client:therapist:profile": 0.05,
    "repeat": 0.5,
}


def crossed(rng, true=TRUE, *, lost=0.0, repeats=2):
    """A table of a crossed design with these components, without a share of its cells."""
    shape = (*SIZES.values(), repeats)
    y = np.zeros(shape)
    for source, variance in true.items():
        own = set(SIZES) | {"repeat"} if source == "repeat" else set(source.split(":"))
        sizes = [size if name in own else 1 for name, size in zip([*SIZES, "repeat"], shape, strict=True)]
        y = y + rng.normal(0, variance**0.5, sizes)
    places = np.indices(shape).reshape(4, -1)
    kept = np.repeat(rng.random(y.size // repeats) >= lost, repeats)
    columns = {name: places[axis][kept].tolist() for axis, name in enumerate(SIZES)}
    return {**columns, "y": y.ravel()[kept].tolist()}


@pytest.mark.parametrize(("lost", "runs", "least"), [(0.0, 100, 0.89), (0.2, 30, 0.86)])
def test_intervals_cover_what_was_put_in_also_with_missing_cells(lost, runs, least):
    """Coverage of the components with 2,000 balanced runs: 0.94 to 0.97; with 600 runs without a fifth of
    the cells: 0.92 to 0.98; without a quarter of the runs: 0.94 to 0.96.
    """
    rng, covered = np.random.default_rng(8), dict.fromkeys(TRUE, 0)
    for _ in range(runs):
        for component in components(crossed(rng, lost=lost), list(SIZES), "y", draws=800).components:
            low, high = component.variance.low, component.variance.high
            covered[component.source] += low <= TRUE[component.source] <= high

    rates = {source: hits / runs for source, hits in covered.items()}
    assert min(rates.values()) >= least and max(rates.values()) <= 1


def test_an_effect_is_covered_where_its_levels_differ_between_tasks():
    """Two models on 8 tasks with 3 repeats; a task changes the difference (0.25) more than repeats do."""
    rng, missed, runs = np.random.default_rng(2), 0, 200
    for _ in range(runs):
        shift = rng.normal(0, 1, 8)[:, None, None] + rng.normal(0, 0.5, (8, 2, 1))
        y = shift + np.array([0, 0.25])[None, :, None] + rng.normal(0, 0.3, (8, 2, 3))
        place = np.indices(y.shape).reshape(3, -1)
        table = {"task": place[0].tolist(), "model": place[1].tolist(), "y": y.ravel().tolist()}
        effect = mixed_model(table, "y", fixed="model", random=["task"], draws=10).contrasts["1 - 0"]
        missed += not effect.low <= 0.25 <= effect.high

    # Ignoring the tasks (48 independent runs) misses it in a third of them.
    assert 0.03 <= missed / runs <= 0.075


def test_too_few_levels_give_words_in_place_of_limits():
    rng = np.random.default_rng(1)
    table = {
        "client": [n % 2 for n in range(48)],
        "therapist": [n // 2 % 4 for n in range(48)],
        "judge": ["only one"] * 48,
        "y": rng.normal(0, 1, 48).tolist(),
    }

    result = components(table, ["client", "therapist", "judge"], "y")

    client, therapist = result.of("client").variance, result.of("therapist").variance
    assert (client.low, client.high) == (None, None) and "2 levels only: no interval" in client.note
    assert therapist.low == 0 and "(4 levels only)" in therapist.note
    assert result.of("judge").variance.note == "one judge only: its variance cannot be told from the mean"


def test_factors_that_change_together_are_called_confounded():
    rows = [{"client": n % 6, "profile": f"p{n % 6}", "y": float(n * n % 7)} for n in range(24)]

    result = components(rows, ["client", "profile"], "y")

    assert "profile changes with client" in result.of("profile").variance.note
    assert result.of("client").variance.value is not None


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"a": [], "y": []}, "no row has a value"),
        ({"a": ["x"], "y": [1.0]}, "nothing varies"),
        ({"a": list("xxyy"), "y": [2.0] * 4}, "all values are equal"),
        (
            {"a": list("xxyyzz"), "y": [None, float("nan"), "no", float("inf"), None, 1e300]},
            "no row has a value",
        ),
    ],
)
def test_data_without_variance_give_words(table, words):
    result = components(table, ["a"], "y")

    assert words in result.note
    assert all(each.variance.value is None and each.variance.note for each in result.components)
    assert result.mean.low is None and result.mean.note


@pytest.mark.parametrize(
    ("factors", "is_balanced"),
    [
        ({"a": "aabb", "b": "xyxy"}, True),
        ({"a": "aabb", "b": "xyxx"}, False),
        ({"a": "aabbb", "b": "xyxyy"}, False),
        ({"a": "aaaabbbb", "fine": "12123434"}, True),
        ({"a": "aaaabbbb", "fine": "12113444"}, False),
        ({"a": "aaabbbbb", "fine": "11122233"}, False),
        # Two factors that one third refines, and neither the other; then a chain.
        ({"a": "aaaabbbb", "b": "xxyyxxyy", "fine": "11223344"}, False),
        ({"a": "aaaaaaaabbbbbbbb", "fine": "1122334455667788", "finest": "abcdefghijklmnop"}, True),
        # With a fixed factor: one random level, levels that refine the fixed ones, levels that these share.
        ({"fixed": "ppqq", "a": "xyxy"}, True),
        ({"fixed": "ppqq", "a": "xyxx"}, False),
        ({"fixed": "ppqq", "a": "xxxx"}, True),
        ({"fixed": "ppppqqqq", "a": "wwxxyyzz"}, True),
        ({"fixed": "ppqqrrss", "a": "xxxxyyyy"}, False),
    ],
)
def test_designs_in_which_all_combinations_occur_equally_often_have_mean_squares(factors, is_balanced):
    table = {name: list(levels) * 2 for name, levels in factors.items()}
    table["y"] = [place * place * 7 % 11 + place / 10 for place in range(len(table["a"]))]
    random = [name for name in factors if name != "fixed"]
    if "fixed" in factors:
        result = mixed_model(table, "y", fixed="fixed", random=random, draws=50)
    else:
        result = components(table, random, "y", draws=50)

    methods = {each.source: each.variance.method for each in result.components}
    assert methods["repeat"].startswith("mean squares" if is_balanced else "REML")


def test_an_incomplete_design_that_is_too_large_is_refused_with_a_remedy():
    for size, is_refused in ((1500, False), (1501, True)):
        teams = [f"team {min(place, 1400) % 3}" for place in range(size)]
        table = {"team": teams, "y": [float(place * 7 % 11) for place in range(size)]}
        fitted = components(table, ["team"], "y", draws=50)
        assert ("more than 1500 observations" in fitted.note) is is_refused
        assert (fitted.components == ()) is is_refused


def test_a_mixed_model_of_no_values_has_no_means_and_words():
    result = mixed_model({"a": ["x", None], "b": ["u", "v"], "y": [None, 1.0]}, "y", fixed="a", random=["b"])

    assert (result.n, result.left_out, result.means, result.contrasts) == (0, 2, {}, {})
    assert result.components == () and "no row has a value" in result.note


def test_a_level_for_every_value_leaves_nothing_to_tell_components_apart_by():
    table = {"a": list("abc"), "b": list("xyz"), "y": [1.0, 2.0, 4.0]}
    result = mixed_model(table, "y", fixed="a", random=["b"])

    assert result.note == "no repeats and no further combinations: the components cannot be told apart"
    assert {level: each.value for level, each in result.means.items()} == {"a": 1.0, "b": 2.0, "c": 4.0}
