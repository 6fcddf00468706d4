"""Several raters of one scale: all together, pair by pair, and where they differ."""

import numpy as np
import pytest

from proctor.stats.agreement import alpha
from proctor.stats.reliability import RatedTarget, reliability

# The four coders of Krippendorff (2011); a dot: not rated.
CODERS = {"A": "123321412...", "B": "1233224125.3", "C": ".3332342251.", "D": "12332441251."}


def coded(coders):
    units = zip(*coders.values(), strict=True)
    rated = [{who: word for who, word in zip(coders, unit, strict=True) if word != "."} for unit in units]
    return [RatedTarget(session=f"s{n}", ratings=ratings) for n, ratings in enumerate(rated)]


def test_all_raters_have_the_ordinal_alpha_of_krippendorffs_coders():
    """Of the package krippendorff; kappa of A and B by hand: one of nine differs, by one place of five."""
    found = reliability(coded(CODERS), people=["A", "B"], judges=["C", "D"])

    assert found.weighted and found.targets == 11
    assert round(found.alpha.value, 6) == 0.815388
    pairs = {(pair.first, pair.second): pair for pair in found.pairs}
    assert (pairs["A", "B"].targets, pairs["A", "B"].same) == (9, 8)
    # Sums of A: 19 and 49; of B: 20 and 52. By chance (49 + 52) / 9 - 2 * 19 * 20 / 81.
    assert round(pairs["A", "B"].kappa.value, 6) == round(1 - (1 / 9) / ((49 + 52) / 9 - 760 / 81), 6)
    assert found.disagreements[0].ratings == {"A": "1", "B": "2", "C": "3", "D": "4"}


def test_ratings_off_a_declared_scale_are_left_out_and_counted():
    found = reliability(coded({"A": "1239", "B": "1231"}), people=["A"], judges=["B"], order=["1", "2", "3"])

    assert (found.off_scale, found.targets, found.disagreements) == (1, 3, [])
    assert found.alpha.value == 1


def test_the_interval_of_alpha_takes_sessions_as_units():
    targets = coded({"A": "12" * 30, "B": "12" * 28 + "2112"})
    alone = reliability(targets, people=["A", "B"], judges=[])
    joined = [RatedTarget(session=f"s{n // 10}", ratings=each.ratings) for n, each in enumerate(targets)]

    assert not alone.weighted and alone.alpha.low < alone.alpha.value < alone.alpha.high
    assert reliability(joined, people=["A", "B"], judges=[]).alpha.note == "Fewer than 20 units: no interval."


@pytest.mark.parametrize(("runs_of", "noise"), [(30, 0.5), (60, 1.0)])
def test_intervals_of_weighted_kappa_and_ordinal_alpha_cover_the_true_values(runs_of, noise):
    """Two raters of five categories who see one latent value, each with noise of their own."""
    rng, repeats = np.random.default_rng(5), 250

    def rated(number):
        seen = 3 + 1.2 * rng.normal(size=number) + noise * rng.normal(size=(2, number))
        return np.clip(np.round(seen), 1, 5).astype(int)

    a, b = rated(200_000)
    true_kappa = 1 - ((a - b) ** 2).mean() / (a.var() + b.var() + (a.mean() - b.mean()) ** 2)
    true_alpha = alpha(np.stack([a, b], axis=1)[:20_000].tolist(), "ordinal").value
    covered = np.zeros(2)
    for _ in range(repeats):
        ratings = rated(runs_of).astype(str)
        by_unit = enumerate(zip(*ratings, strict=True))
        targets = [RatedTarget(session=f"s{n}", ratings={"A": a, "B": b}) for n, (a, b) in by_unit]
        found = reliability(targets, people=["A", "B"], judges=[], order=list("12345"))
        for place, (estimate, true) in enumerate(
            ((found.pairs[0].kappa, true_kappa), (found.alpha, true_alpha))
        ):
            covered[place] += estimate.low <= true <= estimate.high

    assert ((covered / repeats > 0.92) & (covered / repeats <= 0.99)).all()
