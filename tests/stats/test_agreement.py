"""Kappa, alpha and rank correlation against published values, with intervals that hold."""

import numpy as np
import pytest

from proctor.stats.agreement import alpha, kappa, rank_correlation


def labels_of(table, names="abc"):
    """The labels of two raters from their table."""
    pairs = [
        (names[i], names[j])
        for i, row in enumerate(table)
        for j, count in enumerate(row)
        for _ in range(count)
    ]
    return [a for a, _ in pairs], [b for _, b in pairs]


THREE = [[10, 2, 1], [1, 8, 2], [0, 3, 9]]


def test_kappa_is_that_of_statsmodels():
    """statsmodels cohens_kappa: 0.4; 0.625866, with quadratic weights 0.750289."""
    assert kappa(*labels_of([[20, 5], [10, 15]])).value == pytest.approx(0.4)
    assert kappa(*labels_of(THREE)).value == pytest.approx(0.625866, abs=1e-6)
    assert kappa(*labels_of(THREE), order="abc").value == pytest.approx(0.750289, abs=1e-6)


def drawn(rng, n, true, prevalence):
    """Labels of two raters with this kappa."""
    first = rng.random(n) < prevalence
    same = rng.random(n) < true
    second = np.where(same, first, rng.random(n) < prevalence)
    return first.tolist(), second.tolist()


@pytest.mark.parametrize(("n", "true", "prevalence"), [(50, 0.4, 0.5), (50, 0.8, 0.5), (100, 0.8, 0.8)])
def test_the_interval_of_kappa_covers_the_true_one(n, true, prevalence):
    rng = np.random.default_rng(1)
    intervals = [kappa(*drawn(rng, n, true, prevalence)) for _ in range(400)]
    covered = [each.low <= true <= each.high for each in intervals if each.low is not None]

    assert 0.92 <= np.mean(covered) <= 0.985


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ([], [], "Nothing was rated by both."),
        (["y"] * 30, ["y"] * 30, "One label throughout: kappa is not defined."),
        (["y", "n"] * 9, ["y", "n"] * 9, "Fewer than 20 units: no interval."),
        (["y"] * 28 + ["n"] * 2, ["y"] * 28 + ["n"] * 2, "One label has 93%: no interval below 50 units."),
        (["y"] * 25 + ["n"] * 5, ["y"] * 25 + ["n"] * 5, "One label has 83%: no interval below 50 units."),
    ],
)
def test_kappa_without_evidence_gives_words(first, second, words):
    interval = kappa(first, second)

    assert (interval.low, interval.high) == (None, None) and interval.note.startswith(words)


def test_a_label_that_has_four_fifths_of_both_sides_is_not_too_frequent():
    labels, even = ["y"] * 24 + ["n"] * 6, ["y"] * 15 + ["n"] * 15
    assert kappa(labels, labels).low > 0
    for one, other in ((labels, even), (even, labels)):
        assert kappa(one, other).note == ""


def krippendorff():
    _ = None
    coders = [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, _, _, _],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, _, 3],
        [_, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, _],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, _],
    ]
    return [[value for value in unit if value is not None] for unit in zip(*coders, strict=True)]


def test_alpha_is_that_of_krippendorffs_four_coders():
    """Values of the package krippendorff."""
    units = krippendorff()

    assert alpha(units, "nominal").value == pytest.approx(0.743421, abs=1e-6)
    assert alpha(units, "ordinal").value == pytest.approx(0.815388, abs=1e-6)
    assert alpha(units, "interval").value == pytest.approx(0.849107, abs=1e-6)
    assert alpha(units).note == "Fewer than 20 units: no interval." and alpha(units).left_out == 1


def rated(rng, n, agreement, raters=3):
    truth = rng.random(n) < 0.5
    keep = rng.random((n, raters)) < agreement
    return np.where(keep, truth[:, None], rng.random((n, raters)) < 0.5).astype(int).tolist()


@pytest.mark.parametrize(("n", "agreement"), [(30, 0.9), (60, 0.7)])
def test_the_interval_of_alpha_covers_the_true_one(n, agreement):
    # Two raters agree beyond chance where both keep the truth: alpha is the product of both chances.
    rng, runs, true = np.random.default_rng(3), 250, agreement**2
    covered = 0
    for _ in range(runs):
        interval = alpha(rated(rng, n, agreement))
        covered += interval.low <= true <= interval.high

    assert 0.92 <= covered / runs <= 0.985


def test_perfect_agreement_has_an_interval_that_is_no_point():
    of_alpha, of_kappa = alpha([[n % 2, n % 2] for n in range(40)]), kappa(*labels_of([[30, 0], [0, 30]]))

    assert of_alpha.value == of_kappa.value == of_alpha.high == of_kappa.high == 1
    assert 0.4 < of_alpha.low < 0.9 and 0.7 < of_kappa.low < 0.9
    assert "two units of opposite ratings" in of_alpha.note


def test_alpha_without_evidence_gives_words():
    for units, words in (([], "Nothing was rated twice."), ([[1], [2]], "Nothing was rated twice.")):
        assert (alpha(units).value, alpha(units).note) == (None, words)
    assert alpha([[1, 1]] * 30).value is None and alpha([[1, 1]] * 30).note.startswith("One rating")


def test_rank_correlation_is_that_of_the_textbook():
    # Spearman's classic: IQ against hours of television, -0.1758.
    iq = [106, 86, 100, 101, 99, 103, 97, 113, 112, 110]
    hours = [7, 0, 27, 50, 28, 29, 20, 12, 6, 17]

    assert rank_correlation(iq, hours).value == pytest.approx(-29 / 165)
    assert rank_correlation(iq, hours).note == "Fewer than 20 units: no interval."
    assert rank_correlation([1, 1, 1], [1, 2, 3]).value is None


def test_the_interval_of_a_rank_correlation_covers_zero_where_there_is_none():
    rng, covered = np.random.default_rng(4), 0
    for _ in range(200):
        interval = rank_correlation(rng.normal(size=40), rng.normal(size=40))
        covered += interval.low <= 0 <= interval.high

    assert 0.91 <= covered / 200 <= 0.99


def test_agreement_on_one_label_counts_units_and_not_pairs():
    alone = kappa(["y"] * 10, ["y"] * 10)
    repeated = kappa(["y"] * 100, ["y"] * 100, unit=[n // 10 for n in range(100)])

    assert alone.note.endswith("95% CI 0.72 to 1.")
    assert repeated.note == alone.note
