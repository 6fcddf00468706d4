"""Where measures of dialogues vary: roles, profiles, settings and repeats, with intervals or words."""

import json
import math

import numpy as np
import pytest

from proctor.errors import NotFound, UsageError
from proctor.jobs.dialogue.results import DESIGN, analysis
from proctor.jobs.dialogue.tables import analysis_document
from proctor.stats.crossing import crossing, measure_estimate

VARIANCES = {"client": 1.0, "profile": 0.5, "client:therapist": 0.3, "repeat": 0.6}


def dialogues(rng, *, clients=4, profiles=4, repeats=3, temperatures=("0.7",), effect=0.0):
    """Clients with profiles of their own and two therapists, the second one better by `effect`."""
    of_client = rng.normal(0, VARIANCES["client"] ** 0.5, clients)
    of_profile = rng.normal(0, VARIANCES["profile"] ** 0.5, (clients, profiles))
    of_pair = rng.normal(0, VARIANCES["client:therapist"] ** 0.5, (clients, 2))
    return [
        {
            "client": f"c{client}",
            "therapist": f"t{therapist}",
            "profile": f"c{client}p{profile}",
            "temperature": temperature,
            "run_id": repeat,
            "turns": 20
            + of_client[client]
            + of_profile[client, profile]
            + of_pair[client, therapist]
            + effect * therapist
            + 5 * temperatures.index(temperature)
            + rng.normal(0, VARIANCES["repeat"] ** 0.5),
        }
        for client in range(clients)
        for therapist in range(2)
        for profile in range(profiles)
        for temperature in temperatures
        for repeat in range(repeats)
    ]


def parts(result):
    return {each.source: each for each in result.components}


def test_ratings_that_are_all_at_an_end_of_their_scale_have_an_interval_on_it():
    """Taken for shares of 0 and 1, they had 0.98 to 1 on a scale from 1 to 5."""
    session = {"messages": [], "num_turns": 3, "client": "c", "therapist": "t"}
    scores = [{"evaluator": "warmth", "value": 1.0, "scale": [1.0, 5.0]}, {"evaluator": "ok", "value": 1.0}]
    document = analysis_document([{**session, "scores": scores}] * 190, "study")
    overall = {each["measure"]: each["overall"] for each in document["measures"]}

    assert (overall["score.warmth"]["low"], overall["score.warmth"]["method"]) == (1.0, "plus")
    assert 1.0 < overall["score.warmth"]["high"] < 1.2
    assert (overall["score.ok"]["high"], overall["score.ok"]["method"]) == (1.0, "Wilson")


def test_profiles_are_a_component_of_their_own_and_not_repeats():
    """Before, the variance of the profiles was part of the repeats: here that would be 1.1 and not 0.6."""
    rng = np.random.default_rng(4)
    fitted = [parts(crossing(DESIGN, dialogues(rng), "turns")) for _ in range(30)]

    means = {source: np.mean([each[source].variance for each in fitted]) for source in ("profile", "repeat")}
    assert means["repeat"] == pytest.approx(0.6, rel=0.1)
    assert means["profile"] == pytest.approx(0.5, rel=0.3)
    # A variance below 0 counts as 0 and has an upper limit; only rounding errors have none.
    zeros = [each for fit in fitted for each in fit.values() if each.variance == 0 and each.low is not None]
    assert zeros and min(each.high for each in zeros) > 0.01
    one = fitted[0]
    assert one["repeat"].low < one["repeat"].variance < one["repeat"].high
    assert one["profile"].levels == 16
    # Repeats are no factor: they have no levels.
    assert (one["repeat"].levels, one["therapist"].levels) == (0, 2)
    assert "2 levels only: no interval" in one["therapist"].note and one["therapist"].low is None


def test_intervals_of_dialogue_components_cover_what_was_put_in():
    sources = ("profile", "repeat", "client", "client:therapist")
    rng, covered, runs = np.random.default_rng(9), dict.fromkeys(sources, 0), 120
    for _ in range(runs):
        found = parts(crossing(DESIGN, dialogues(rng, clients=6), "turns"))
        for source in covered:
            covered[source] += found[source].low <= VARIANCES[source] <= found[source].high

    assert min(covered.values()) / runs >= 0.91, covered


def test_a_varied_setting_is_a_factor_and_not_pooled_as_repeats():
    """Temperatures differ by 5: pooled, the variance of the repeats would be above 6."""
    result = crossing(
        DESIGN, dialogues(np.random.default_rng(2), temperatures=("0", "1")), "turns", by="temperature"
    )

    found = parts(result)
    assert found["repeat"].variance < 1
    assert len(result.cells) == 4 * 2 * 2 and result.cells[0].settings == {"temperature": "0"}
    (effect,) = result.effects
    assert (effect.contrast, effect.is_significant) == ("1 - 0", True)
    assert effect.low < 5 < effect.high


@pytest.mark.parametrize(("effect", "runs", "low", "high"), [(0.0, 80, 0.0, 0.1), (3.0, 30, 0.7, 1.0)])
def test_the_effect_of_a_therapist_is_about_clients_like_these(effect, runs, low, high):
    """Clients differ in the effect of a therapist: over 96 independent dialogues, 30% would be found."""
    rng, found = np.random.default_rng(3), 0
    for _ in range(runs):
        (one,) = crossing(DESIGN, dialogues(rng, effect=effect), "turns", by="therapist").effects
        found += one.is_significant
        assert (one.low > 0 or one.high < 0) == one.is_significant

    assert low <= found / runs <= high


def test_effects_of_all_measures_are_one_family_and_may_have_another_baseline():
    rows = [{**row, "words": row["turns"] ** 2, "same": 3} for row in dialogues(np.random.default_rng(1))]

    turns, words, same = analysis(rows, against="t1")

    (effect,) = turns["effects"]
    assert effect["contrast"] == "t0 - t1"
    assert effect["p_corrected"] == pytest.approx(min(1, 2 * effect["p"])), "a constant is no member"
    assert [each["p"] for each in same["effects"]] == [None] and "equal" in same["note"]
    assert words["by"] == "therapist"
    with pytest.raises(UsageError, match="therapist has no level t9"):
        analysis(rows, against="t9")
    with pytest.raises(NotFound, match="no factor `weather`"):
        analysis(rows, by="weather")


def test_shares_of_yes_and_scores_stay_in_bounds_and_have_a_width():
    rows = [
        {"client": "c", "therapist": "t", "score.safe": 1.0, "score.warm": 0.9 + n % 2 / 10} for n in range(8)
    ]

    safe, warm = (measure_estimate(rows, name, "dialogue") for name in ("score.safe", "score.warm"))

    assert (safe.value, safe.high, safe.method) == (1, 1, "Wilson")
    assert safe.low == pytest.approx(0.6756, abs=1e-4)
    assert 0 < warm.low < 0.95 < warm.high <= 1


@pytest.mark.parametrize(
    "values",
    [[], [3.0], [2.0] * 6, [math.nan, 1.0, 2.0], [1e308, -1e308, 1.0], [None, None, 4.0], [True, False]],
)
def test_data_that_tell_nothing_give_words_and_no_broken_numbers(values):
    rows = [{"client": "c", "therapist": f"t{n % 2}", "turns": value} for n, value in enumerate(values)]

    document = [crossing(DESIGN, rows, "turns", by="therapist")] if rows else analysis(rows)

    text = json.dumps([str(each) for each in document]) + json.dumps(analysis(rows), allow_nan=False)
    assert "nan" not in text.lower() and "infinity" not in text.lower()
    for each in document:
        assert each.overall.low is None and each.overall.note


def test_rounding_errors_of_equal_values_are_no_variance():
    """Each therapist always uses as many words: nothing else varies."""
    rows = [
        {**row, "turns": 2.0 if row["therapist"] == "t0" else 19.0 / 3}
        for row in dialogues(np.random.default_rng(1), clients=2, profiles=3)
    ]

    found = parts(crossing(DESIGN, rows, "turns"))

    assert found["therapist"].share == pytest.approx(1.0)
    for source in ("profile", "therapist:profile", "client:therapist", "repeat"):
        each = found[source]
        assert each.variance in (0.0, None) and each.low is None
    (effect,) = crossing(DESIGN, rows, "turns", by="therapist").effects
    assert effect.value == pytest.approx(13 / 3)
    assert (effect.low, effect.p) == (None, None) and "do not vary within the levels" in effect.note


@pytest.mark.parametrize(("clients", "is_few"), [(2, True), (3, False)])
def test_an_effect_over_fewer_than_three_levels_of_another_factor_has_a_proviso(clients, is_few):
    rows = [
        {
            "client": f"c{client}",
            "therapist": f"t{therapist}",
            "turns": 3.0 + client + therapist + 0.1 * repeat**2,
        }
        for client in range(clients)
        for therapist in range(2)
        for repeat in range(3)
    ]
    (effect,) = crossing(DESIGN, rows, "turns", by="therapist").effects
    assert effect.value == pytest.approx(1.0)
    assert ("fewer than 3 levels of client" in effect.note) is is_few


def test_a_source_with_a_single_level_is_listed_without_a_variance():
    rows = [
        {"client": f"c{at // 3}", "therapist": "t", "profile": "p", "turns": value}
        for at, value in enumerate([3.0, 4.0, 5.0, 6.0, 7.0, 5.0, 2.0, 2.0, 3.0, 8.0, 7.0, 9.0])
    ]
    found = parts(crossing(DESIGN, rows, "turns"))
    assert found["client"].variance == pytest.approx(5.75) and found["client"].levels == 4
    for name in ("therapist", "profile"):
        assert (found[name].levels, found[name].variance, found[name].share) == (1, None, None)
        assert found[name].note == f"one {name} only: its variance cannot be told from the mean"
    assert list(found) == ["client", "repeat", "therapist", "profile"]


def test_a_combination_has_a_spread_from_two_dialogues_on():
    rows = [
        {"client": client, "therapist": "t", "turns": value}
        for client, value in (("a", 3.0), ("a", 7.0), ("b", 4.0), ("c", None))
    ]
    cells = crossing(DESIGN, rows, "turns").cells
    assert [(cell.levels["client"], cell.mean.value, cell.std) for cell in cells] == [
        ("a", 5.0, pytest.approx(8**0.5)),
        ("b", 4.0, None),
    ]
    assert crossing(DESIGN, rows, "turns").missing == 1


def test_limits_of_a_difference_end_at_the_width_of_the_scale():
    def effect(scores):
        rows = [
            {"client": f"c{place % 2}", "therapist": f"t{place // 2 % 2}", "score.warm": score}
            for place, score in enumerate(scores)
        ]
        (found,) = crossing(DESIGN, rows, "score.warm", by="therapist").effects
        return found

    few, many = effect([0.0, 0.2, 1.0, 0.7] * 2), effect([0.4, 0.41, 0.6, 0.61, 0.42, 0.4, 0.6, 0.59] * 4)
    assert (few.low, few.high) == (-1.0, 1.0)
    assert 0 < many.low < many.value < many.high < 1
