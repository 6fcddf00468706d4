"""A judge is held against people, and its own noise is part of what it says."""

import random
from statistics import NormalDist, fmean

import pytest

from proctor.stats.calibration import JudgedTargetPair, LabelValue, calibrate
from proctor.stats.reliability import Judgement, alpha, bootstrapped, correlation, judged_mean, kappa


def test_kappa_is_that_of_the_textbook():
    # Cohen's own layout: 20 yes/yes, 5 yes/no, 10 no/yes, 15 no/no, which is 0.4.
    pairs = [("y", "y")] * 20 + [("y", "n")] * 5 + [("n", "y")] * 10 + [("n", "n")] * 15

    assert kappa(pairs) == pytest.approx(0.4)


def test_weighted_kappa_forgives_neighbours_more_than_opposites():
    order = ["low", "middle", "high"]
    same = [("low", "low"), ("high", "high"), ("middle", "middle")] * 5

    near = kappa([*same, ("low", "middle")], order)
    far = kappa([*same, ("low", "high")], order)

    assert near > far
    # Worked by hand: seen 1/16; by chance (6·5·0 + 6·6·1 + 6·5·4 + 5·5·1 + … )/256.
    assert near == pytest.approx(
        1 - (1 / 16) / ((6 * 6 + 6 * 5 * 4 + 5 * 5 + 5 * 5 + 5 * 5 * 4 + 5 * 6) / 256)
    )


def test_kappa_of_one_word_throughout_says_nothing():
    assert kappa([("y", "y")] * 10) is None
    assert kappa([]) is None


def test_alpha_is_krippendorffs_own_example():
    # Two coders, ten units, nominal: alpha 0.095 in his paper on computing it.
    first = [0, 1, 0, 0, 0, 0, 0, 0, 1, 0]
    second = [1, 1, 1, 0, 0, 1, 0, 0, 0, 0]

    assert alpha(list(zip(first, second, strict=True))) == pytest.approx(0.095, abs=0.001)


def test_alpha_with_gaps_is_krippendorffs_four_coder_example():
    _ = None
    coders = [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, _, _, _],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, _, 3],
        [_, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, _],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, _],
    ]
    units = [[value for value in unit if value is not None] for unit in zip(*coders, strict=True)]

    assert alpha(units, "nominal") == pytest.approx(0.743, abs=0.001)
    assert alpha(units, "ordinal") == pytest.approx(0.815, abs=0.001)
    assert alpha(units, "interval") == pytest.approx(0.849, abs=0.001)


def test_rank_correlation_is_that_of_the_textbook():
    # Spearman's classic: IQ against hours of television, −0.1758.
    iq = [106, 86, 100, 101, 99, 103, 97, 113, 112, 110]
    hours = [7, 0, 27, 50, 28, 29, 20, 12, 6, 17]

    assert correlation(iq, hours) == pytest.approx(-29 / 165)
    assert correlation([1, 1, 1], [1, 2, 3]) is None


def test_intervals_are_the_same_for_the_same_seed_and_draw_whole_sessions():
    alone = {str(number): [float(number % 2)] for number in range(40)}
    together = {str(number): [float(number % 2)] * 10 for number in range(4)}

    def mean(drawn):
        return sum(drawn) / len(drawn)

    one, again = (bootstrapped(alone, mean, seed=1) for _ in range(2))
    few = bootstrapped(together, mean, seed=1)

    assert one == again
    assert few.high - few.low > one.high - one.low


def thing(number, human, machine, *, length=10, position=0, people=("ana",)):
    values = {"Yes": 1.0, "No": 0.0}
    return JudgedTargetPair(
        session=f"s{number}",
        human={who: LabelValue(label=human, value=values[human]) for who in people},
        machine=[LabelValue(label=word, value=values[word]) for word in machine],
        length=length,
        position=position,
    )


def test_a_judge_that_says_what_people_say_is_calibrated():
    words = ["Yes", "No"] * 30

    found = calibrate([thing(n, word, [word, word]) for n, word in enumerate(words)], order=["No", "Yes"])

    assert found.agreement.value == found.kappa.value == found.alpha.value == 1.0
    assert found.bias.value == 0.0 and found.retest.value == 1.0 and found.noise_variance == 0.0
    assert found.confusion == {("Yes", "Yes"): 30, ("No", "No"): 30}


def test_what_was_said_is_listed_from_lowest_to_highest_where_the_scale_has_an_order():
    said = ["Yes", "Maybe", "No"] * 12
    values = {"No": 0.0, "Maybe": 0.5, "Yes": 1.0}
    things = [
        JudgedTargetPair(
            session=f"s-{n}",
            human={"ann": LabelValue(label=word, value=values[word])},
            machine=[LabelValue(label=word, value=values[word])],
        )
        for n, word in enumerate(said)
    ]

    assert list(calibrate(things, order=["No", "Maybe", "Yes"]).words) == ["No", "Maybe", "Yes"]
    assert list(calibrate(things).words) == ["Maybe", "No", "Yes"]


def test_a_judge_that_tosses_a_coin_is_found_out():
    toss = random.Random(3)
    judged = [
        thing(n, ["Yes", "No"][n % 2], [toss.choice(["Yes", "No"]), toss.choice(["Yes", "No"])])
        for n in range(200)
    ]

    found = calibrate(judged, order=["No", "Yes"])

    assert abs(found.kappa.value) < 0.15 and found.kappa.low < 0 < found.kappa.high
    assert found.retest.value == pytest.approx(0.5, abs=0.1)
    assert found.noise_variance == pytest.approx(0.25, abs=0.03)
    assert found.mean.noise_share > 0.9 and found.mean.mean.n == 200


def test_a_judge_that_likes_long_answers_is_found_out():
    judged = [thing(n, "No", ["Yes" if n % 50 > 25 else "No"], length=n % 50) for n in range(200)]

    found = calibrate(judged, order=["No", "Yes"])
    leanings = {leaning.by: leaning.correlation for leaning in found.leanings}

    assert leanings["length"].low > 0.5
    assert any("longer answers" in remark for remark in found.remarks)
    assert found.bias.value == pytest.approx(0.48)


def test_few_labels_are_called_few():
    found = calibrate([thing(n, "Yes", ["Yes"]) for n in range(5)])

    assert any("too few" in remark for remark in found.remarks)
    assert any("one and the same label" in remark for remark in found.remarks)
    assert any("how much it wavers is not known" in remark for remark in found.remarks)


def test_people_who_disagree_among_themselves_are_told_of():
    judged = [
        JudgedTargetPair(
            session=str(n),
            human={"ana": LabelValue(label="Yes"), "ben": LabelValue(label="No" if n % 2 else "Yes")},
            machine=[LabelValue(label="Yes")],
        )
        for n in range(40)
    ]

    found = calibrate(judged)

    assert found.human_alpha is not None and found.human_alpha < 0.667
    assert any("among themselves" in remark for remark in found.remarks)
    assert found.people == 2 and found.bias.value is None


def test_nothing_labelled_is_nothing_known():
    found = calibrate([])

    assert found.things == 0 and found.kappa.value is None and found.agreement.value is None


def test_a_mean_of_single_judgements_has_students_interval():
    values = [0.0, 0.5, 1.0, 1.0]

    found = judged_mean([Judgement(session=str(n), value=value) for n, value in enumerate(values)])

    # t with 3 degrees of freedom is 3.18245, the sample's deviation 0.478714.
    assert found.mean.value == 0.625
    assert found.mean.high - found.mean.value == pytest.approx(3.18245 * 0.4787136 / 2, abs=1e-4)
    assert found.noise_variance is None


def test_judging_the_same_things_again_does_not_make_one_surer_of_others():
    once = [Judgement(session=str(n), value=float(n % 2)) for n in range(10)]
    thrice = [Judgement(session=j.session, value=j.value) for j in once for _ in range(3)]

    assert judged_mean(thrice).mean == judged_mean(once).mean
    assert judged_mean(thrice).judgements == 30 and judged_mean(thrice).noise_variance == 0.0


def test_known_noise_widens_the_interval_of_a_sample_that_happens_to_agree():
    lucky = [Judgement(session=str(n), value=1.0) for n in range(5)]

    assert judged_mean(lucky).mean.low == judged_mean(lucky).mean.high == 1.0
    wide = judged_mean(lucky, noise_variance=0.2).mean
    assert wide.high - wide.low == pytest.approx(2 * 2.776445 * (0.2 / 5) ** 0.5, abs=1e-4)


def test_votes_tell_the_noise_and_their_mean_has_less_of_it():
    noisy = [Judgement(session=str(n), value=0.5, votes=(0.0, 1.0)) for n in range(10)]

    found = judged_mean(noisy)

    assert found.noise_variance == pytest.approx(0.5)
    assert found.mean.high - found.mean.low == pytest.approx(2 * 2.262157 * (0.25 / 10) ** 0.5, abs=1e-4)


def test_a_single_session_has_the_interval_of_the_judges_noise_alone():
    found = judged_mean([Judgement(session="a", value=0.5, votes=(0.0, 1.0, 0.5))])

    assert found.mean.n == 1
    assert found.mean.high - 0.5 == pytest.approx(1.959964 * (0.25 / 3) ** 0.5, abs=1e-4)
    assert judged_mean([Judgement(session="a", value=0.5)]).mean.low is None


def test_the_noise_of_a_session_shrinks_with_the_number_of_its_judged_targets():
    # Votes about one target have a variance of 0.5: two votes leave 1/2 of it in a target, two targets 1/4.
    targets = [Judgement(session="a", target=name, value=0.5, votes=(0.0, 1.0)) for name in ("t0", "t1")]

    result = judged_mean(targets)

    assert result.noise_variance == pytest.approx(0.5)
    assert result.mean.high - result.mean.value == pytest.approx(1.959964 * 0.125**0.5, abs=1e-5)


def test_targets_with_fewer_votes_leave_more_noise_in_a_session():
    votes = {"t0": (0.0, 1.0), "t1": (), "t2": ()}
    judgements = [
        Judgement(session=session, target=target, value=0.5, votes=each)
        for session in ("a", "b")
        for target, each in votes.items()
    ]

    result = judged_mean(judgements, noise_variance=0.9)

    # (1/2 + 1 + 1) / 9 of the noise is left in each of two sessions; t is 12.706205 at 1 degree of freedom.
    assert result.mean.high - result.mean.value == pytest.approx(12.706205 * (0.25 / 2) ** 0.5, abs=1e-4)


def test_a_resampled_interval_leaves_out_a_fortieth_of_the_draws_at_either_end():
    values = [NormalDist().inv_cdf((n + 0.5) / 100) for n in range(100)]
    sessions = {str(n): [value] for n, value in enumerate(values)}

    estimate = bootstrapped(sessions, fmean, seed=1)

    error = (fmean(value * value for value in values) / 100) ** 0.5
    assert estimate.value == pytest.approx(0, abs=1e-12)
    assert (estimate.low, estimate.high) == pytest.approx((-1.96 * error, 1.96 * error), rel=0.05)


def test_values_without_a_label_are_compared_as_they_are_written():
    judged = [
        JudgedTargetPair(
            session=str(n), human={"ana": LabelValue(value=0.5)}, machine=[LabelValue(value=value)]
        )
        for n, value in enumerate([0.5, 0.5, 0.5, 0.25])
    ]

    result = calibrate(judged)

    assert (result.agreement.successes, result.agreement.trials) == (3, 4)
    assert result.confusion == {("0.5", "0.5"): 3, ("0.5", "0.25"): 1}
    assert list(result.words) == ["0.25", "0.5"]


def test_a_label_is_compared_rather_than_its_value_and_an_opinion_may_have_neither():
    assert LabelValue(label="Yes", value=1.0).word == "Yes"
    assert LabelValue(value=0.0).word == "0"
    assert LabelValue().word == ""
