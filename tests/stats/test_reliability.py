"""Several raters of one scale: all together, pair by pair, and where they differ."""

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
