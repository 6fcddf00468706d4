"""Analyses of variance, odds ratios and rank tests against published output of R, and their error rates."""

import numpy as np
import pytest

from proctor.stats.effects import (
    anova,
    eta_interval,
    friedman,
    hedges_g,
    kruskal,
    rank_test,
    signed_rank,
)
from proctor.stats.odds import odds_model

# R: npk, a factorial of three fertilizers in six blocks (Venables and Ripley).
NPK = """1011 49.5|1110 62.8|1000 46.8|1101 57.0|2100 59.8|2111 58.5|2001 55.5|2010 56.0|3010 62.8|3111 55.8
3100 69.5|3001 55.0|4100 62.0|4111 48.8|4001 45.5|4010 44.2|5110 52.0|5000 51.5|5101 49.8|5011 48.8|6101 57.2
6110 59.0|6011 53.2|6000 56.0"""
PLOTS = [plot.split() for plot in NPK.replace("\n", "|").split("|")]


def test_an_analysis_of_variance_with_blocks_is_that_of_r():
    """summary(aov(yield ~ block + N*P*K - N:P:K, npk)): the printed figures."""
    yields = [float(value) for _, value in PLOTS]
    factors = {name: [plot[place] for plot, _ in PLOTS] for place, name in enumerate("NPK", start=1)}
    rows = {row.source: row for row in anova(yields, factors, [plot[0] for plot, _ in PLOTS])}

    assert {name: (row.df, round(row.sum_of_squares, 1)) for name, row in rows.items()} == {
        "N": (1, 189.3),
        "P": (1, 8.4),
        "K": (1, 95.2),
        "N × P": (1, 21.3),
        "N × K": (1, 33.1),
        "P × K": (1, 0.5),
        "seed": (5, 343.3),
        "residual": (12, 185.3),
    }
    pooled = {
        name: (round(row.f, 3), round(row.p, 5)) for name, row in rows.items() if row.error == "residual"
    }
    assert pooled["K"] == (6.166, 0.02880)
    assert pooled["seed"] == (4.447, 0.01594)
    assert pooled["N × P"] == (1.378, 0.26317)


@pytest.mark.parametrize(("f", "df", "error", "low"), [(40.72, 2, 18, 0.66), (33.77, 1, 9, 0.49)])
def test_the_interval_of_a_partial_eta_squared_is_that_of_effectsize(f, df, error, low):
    """F_to_eta2 of R's effectsize: 0.82 [0.66, 1.00] and 0.79 [0.49, 1.00], one-sided at 95%."""
    assert round(eta_interval(f, df, error)[0], 2) == low


def test_hedges_g_is_that_of_the_textbook():
    """Borenstein et al. (2009), formulas 4.18 to 4.24: means 103 and 100, g = 0.5924, variance 0.0411."""
    a = np.array([-1.0, 1.0] * 25)
    first, second = 100 + a * 4.5 / np.std(a, ddof=1), 103 + a * 5.5 / np.std(a, ddof=1)
    within = np.sqrt((4.5**2 + 5.5**2) / 2)
    g, low, high = hedges_g(3.0, within * np.sqrt(2 / 50), list(first), list(second))
    assert round(g, 3) == 0.592
    assert (high - low) / 2 / 1.98447 / 0.9923 == pytest.approx(np.sqrt(0.0411) / 0.9923, rel=0.01)


# MASS: satisfaction of 1,681 residents by influence, type of housing, and contact.
HOUSING = """21 21 28 34 22 36 10 11 36 61 23 17 43 35 40 26 18 54 13 9 10 8 8 12 6 7 9 18 6 7 15 13 13 7 5 11
14 19 37 17 23 40 3 5 23 78 46 43 48 45 86 15 25 62 20 23 20 10 22 24 7 10 21 57 23 13 31 21 13 5 6 13"""


def test_ordinal_regression_is_that_of_polr():
    """polr(Sat ~ Infl + Type + Cont, weights = Freq, data = housing): coefficients and errors."""
    cells = [
        (satisfaction, influence, kind, contact)
        for contact in ("low", "high")
        for kind in ("tower", "apartment", "atrium", "terrace")
        for influence in ("low", "medium", "high")
        for satisfaction in range(3)
    ]
    model = odds_model(
        [cell[0] for cell in cells],
        {
            name: [cell[place] for cell in cells]
            for place, name in enumerate(("infl", "type", "cont"), start=1)
        },
        weights=list(map(float, HOUSING.split())),
    )
    found = {
        each.level: (round(each.log, 4), round(each.error, 4))
        for each in model.ratios
        if each.factor != "cont"
    }
    assert found["medium"] == (0.5664, 0.1047) and found["high"] == (1.2888, 0.1272)
    assert found["apartment"] == (-0.5724, 0.1192) and found["atrium"] == (-0.3662, 0.1552)
    assert found["terrace"] == (-1.0910, 0.1515)
    assert [round(each, 4) for each in model.thresholds] == [-0.4961, 0.6907]
    assert round(model.deviance, 3) == 3479.149


def test_logistic_regression_is_that_of_glm():
    """glm(am ~ factor(vs), binomial, mtcars): 0.6931 (0.7319), p = 0.344; residual deviance 42.323."""
    engines = [(1, 0)] * 6 + [(1, 1)] * 7 + [(0, 0)] * 12 + [(0, 1)] * 7
    model = odds_model([am for am, _ in engines], {"vs": [str(vs) for _, vs in engines]})
    (ratio,) = model.ratios
    assert (round(abs(ratio.log), 4), round(ratio.error, 4), round(ratio.p, 3)) == (0.6931, 0.7319, 0.344)
    assert round(model.deviance, 3) == 42.323


# R: friedman.test(RoundingTimes), Hollander and Wolfe (1973).
ROUNDING = """\
5.40 5.50 5.55 5.85 5.70 5.75 5.20 5.60 5.50 5.55 5.50 5.40 5.90 5.85 5.70 5.45 5.55 5.60 5.40 5.40
5.35 5.45 5.50 5.35 5.25 5.15 5.00 5.85 5.80 5.70 5.25 5.20 5.10 5.65 5.55 5.45 5.60 5.35 5.45 5.05
5.00 4.95 5.50 5.50 5.40 5.45 5.55 5.50 5.55 5.55 5.35 5.45 5.50 5.55 5.50 5.45 5.25 5.65 5.60 5.40
5.70 5.65 5.55 6.30 6.30 6.25"""


def test_rank_tests_are_those_of_r():
    """friedman.test: 0.003805; kruskal.test of Hollander and Wolfe: 0.68; wilcox.test: 0.01953, one-sided."""
    times = list(map(float, ROUNDING.split()))
    assert round(friedman([times[at : at + 3] for at in range(0, 66, 3)]), 6) == 0.003805
    assert (
        round(kruskal([[2.9, 3.0, 2.5, 2.6, 3.2], [3.8, 2.7, 4.0, 2.4], [2.8, 3.4, 3.7, 2.2, 2.0]]), 2)
        == 0.68
    )
    before = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30]
    after = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29]
    assert round(signed_rank([b - a for a, b in zip(before, after, strict=True)]), 5) == 0.03906
    name, p = rank_test(times, ["a", "b", "c"] * 22, [at // 3 for at in range(66)])
    assert (name, round(p, 6)) == ("Friedman", 0.003805)
