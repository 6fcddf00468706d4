"""A judge is held against people, and its own noise is part of what it says."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from proctor.stats import intervals
from proctor.stats.calibration import (
    CalibrationPair,
    JudgedTargetPair,
    LabelValue,
    calibrate,
    mean_of_targets,
)
from proctor.stats.corrected_means import corrected_mean, labels_for_width


def target(number, human, machine, *, length=10):
    """A target that a person and a judge labeled `Yes` or `No`; a person's label may be those of several."""
    labels = human if isinstance(human, dict) else {"ana": human}
    return JudgedTargetPair(
        session=f"s{number}",
        human={who: LabelValue(label=word, value=float(word == "Yes")) for who, word in labels.items()},
        machine=[LabelValue(label=word, value=float(word == "Yes")) for word in machine],
        length=length,
    )


def test_a_judge_that_says_what_people_say_is_calibrated():
    words = ["Yes", "No"] * 30

    found = calibrate([target(n, word, [word, word]) for n, word in enumerate(words)], order=["No", "Yes"])

    assert found.agreement.value == found.kappa.value == found.alpha.value == 1.0
    assert found.bias.value == 0.0 and found.retest.value == 1.0 and found.noise_variance == 0.0
    assert found.agreement.low < 1 and found.kappa.low < 1 and found.alpha.low < 1
    assert found.confusion == {("Yes", "Yes"): 30, ("No", "No"): 30}


def test_a_judge_that_tosses_a_coin_is_found_out():
    toss = random.Random(3)
    judged = [
        target(n, ["Yes", "No"][n % 2], [toss.choice(["Yes", "No"]), toss.choice(["Yes", "No"])])
        for n in range(200)
    ]

    found = calibrate(judged, order=["No", "Yes"])

    assert abs(found.kappa.value) < 0.15 and found.kappa.low < 0 < found.kappa.high
    assert found.retest.value == pytest.approx(0.5, abs=0.1)
    assert found.noise_variance == pytest.approx(0.25, abs=0.03)
    assert found.noise_share > 0.9 and found.mean.n == 200


def test_a_judge_that_likes_long_answers_is_found_out():
    judged = [target(n, "No", ["Yes" if n % 50 > 25 else "No"], length=n % 50) for n in range(200)]

    found = calibrate(judged, order=["No", "Yes"])
    leanings = {leaning.by: leaning.correlation for leaning in found.leanings}

    assert leanings["length"].low > 0.5
    assert any("longer answers" in remark for remark in found.remarks)
    assert found.bias.value == pytest.approx(0.48)


def test_people_who_disagree_among_themselves_are_told_of():
    judged = [
        target(n, {"ana": "Yes", "ben": "No" if n % 2 else "Yes", "cleo": "No" if n % 3 else "Yes"}, ["Yes"])
        for n in range(40)
    ]

    found = calibrate(judged)

    assert found.human_alpha is not None and found.human_alpha < 0.667
    assert any("among themselves" in remark for remark in found.remarks)
    assert found.people == 3


def test_a_tie_between_people_is_no_label_unless_somebody_adjudicates():
    two = {"ana": "Yes", "ben": "No"}
    judged = [
        target(n, two | more, ["Yes"]) for n, more in enumerate([{}, {"cleo": "No"}, {"Adjudication": "Yes"}])
    ]

    result = calibrate(judged, order=["No", "Yes"], scale=(0, 1))

    assert (result.things, result.ties) == (2, 1)
    assert result.confusion == {("No", "Yes"): 1, ("Yes", "Yes"): 1}
    assert "Left out: 1 target with tied labels and no adjudication." in result.remarks
    assert [pair.human for pair in result.pairs] == [0.0, 1.0]


def test_alpha_counts_the_targets_on_which_people_disagree():
    """Two people who differ on 16 % of the targets; values of the package krippendorff."""
    rng, scale = random.Random(17), ["poor", "fair", "good"]
    judged = []
    for number in range(85):
        first = rng.choice(scale)
        second = first if rng.random() > 0.18 else rng.choice([word for word in scale if word != first])
        judge = first if rng.random() < 0.8 else rng.choice(scale)
        human = {"ana": LabelValue(label=first), "ben": LabelValue(label=second)}
        judged.append(
            JudgedTargetPair(session=f"s{number}", human=human, machine=[LabelValue(label=judge)], length=1)
        )

    ordinal, nominal = calibrate(judged, order=scale), calibrate(judged)

    assert ordinal.ties == 14
    assert (ordinal.human_alpha, nominal.human_alpha) == pytest.approx((0.81893, 0.75292), abs=1e-5)
    assert (ordinal.alpha.value, nominal.alpha.value) == pytest.approx((0.61977, 0.64545), abs=1e-5)


def test_each_target_counts_once_however_many_its_session_has():
    """The judge is right in long sessions: two thirds of the targets, half of the sessions."""
    sizes = [2, 4] * 20
    judged = [
        replace(target(n, "Yes", ["Yes" if size == 4 else "No"]), target=str(turn))
        for n, size in enumerate(sizes)
        for turn in range(size)
    ]

    found = calibrate(judged, scale=(0, 1))

    assert found.mean.value == pytest.approx(2 / 3) == found.agreement.value
    assert found.bias.value == pytest.approx(-1 / 3)
    assert found.agreement.low < 2 / 3 < found.agreement.high


@pytest.mark.parametrize(("groups", "narrow"), [(30, 0.93), (100, 0.75)])
def test_the_interval_of_targets_covers_where_long_sessions_are_judged_better(groups, narrow):
    rng, sizes, covered, of_sessions, runs = np.random.default_rng(7), np.arange(1, 13), 0, 0, 500
    right = 0.55 + 0.03 * sizes
    truth = (sizes * right).sum() / sizes.sum()
    for _ in range(runs):
        size = rng.integers(1, 13, groups)
        shares = rng.beta(4 * right[size - 1], 4 * (1 - right[size - 1]))
        values = [
            float(rng.random() < share) for n, share in zip(size, shares, strict=True) for _ in range(n)
        ]
        sessions = [str(number) for number, n in enumerate(size) for _ in range(n)]
        estimate, other = (which(values, sessions, lo=0, hi=1) for which in (mean_of_targets, intervals.mean))
        covered += estimate.low <= truth <= estimate.high
        of_sessions += other.low <= truth <= other.high

    assert covered / runs >= 0.93
    assert of_sessions / runs < narrow


def test_intervals_of_a_calibration_draw_whole_sessions():
    rng = random.Random(5)
    words = [rng.choice(["Yes", "No"]) for _ in range(40)]
    machine = [word if rng.random() < 0.7 else "No" for word in words]
    alone = [target(n, word, [machine[n]]) for n, word in enumerate(words)]
    together = [target(n, word, [machine[n]]) for n, word in enumerate(words) for _ in range(5)]

    once, five = calibrate(alone, scale=(0, 1)), calibrate(together, scale=(0, 1))

    assert (five.things, five.sessions) == (200, 40)
    assert five.bias.low == pytest.approx(once.bias.low) and five.bias.high == pytest.approx(once.bias.high)
    assert five.agreement.low == pytest.approx(once.agreement.low)
    assert five.kappa.high - five.kappa.low == pytest.approx(once.kappa.high - once.kappa.low, rel=0.15)


def yes_and_no(rng, size, share, sensitivity, specificity):
    """What people and a judge say, as 0 and 1."""
    human = rng.random(size) < share
    judge = np.where(human, rng.random(size) < sensitivity, rng.random(size) >= specificity)
    return human.astype(float), judge.astype(float)


def pairs_of(human, judge):
    return [
        CalibrationPair(session=f"c{n}", human=h, judge=j)
        for n, (h, j) in enumerate(zip(human, judge, strict=True))
    ]


@pytest.mark.parametrize("labeled_share", [0.5, 0.8])
def test_the_corrected_share_covers_what_people_would_say_also_where_labeled_sessions_differ(labeled_share):
    """A judge that is right in 90 % of yes and 80 % of no: the plain mean covers in half of the runs."""
    rng, runs, covered, plain = np.random.default_rng(1), 200, 0, 0
    for _ in range(runs):
        _, judged = yes_and_no(rng, 300, 0.5, 0.9, 0.8)
        pairs = pairs_of(*yes_and_no(rng, 100, labeled_share, 0.9, 0.8))
        estimate = corrected_mean(judged, pairs, lo=0, hi=1)
        covered += estimate.low <= 0.5 <= estimate.high
        plain += abs(judged.mean() - 0.5) <= 1.96 * 0.5 / 300**0.5

    assert covered / runs >= 0.94
    assert plain / runs < 0.75


@pytest.mark.parametrize("labeled", [40, 100])
def test_labeled_sessions_that_are_among_the_evaluated_are_not_counted_twice(labeled):
    """100 sessions, a judge right in 70 %; if all are labeled, the interval is that of people's labels."""
    rng, covered, widths, runs = np.random.default_rng(11), 0, [], 300
    for _ in range(runs):
        human, judge = yes_and_no(rng, 100, 0.5, 0.7, 0.7)
        names = {f"c{number}" for number in range(100)}
        pairs = pairs_of(human, judge)[:labeled]
        estimate = corrected_mean(judge, pairs, lo=0, hi=1, evaluated=names)
        covered += estimate.low <= 0.5 <= estimate.high
        widths.append(estimate.high - estimate.low)

    assert covered / runs >= 0.93
    # Before, 0.40 and 0.29.
    assert np.mean(widths) == pytest.approx({40: 0.34, 100: 0.198}[labeled], abs=0.01)


def test_a_lenient_judge_of_a_scale_is_corrected_by_its_mean_error():
    """Scores from 1 to 5, a judge half a point too kind; 200 runs of 60 sessions, 40 labeled."""
    rng, covered, runs = np.random.default_rng(3), 0, 200
    for _ in range(runs):
        human = rng.choice([1, 2, 3, 4, 5], 100, p=[0.1, 0.2, 0.3, 0.3, 0.1]).astype(float)
        judge = np.minimum(5, human + rng.integers(0, 2, 100))
        estimate = corrected_mean(judge[:60], pairs_of(human[60:], judge[60:]), lo=1, hi=5)
        covered += estimate.low <= 3.1 <= estimate.high
        assert 1 <= estimate.low < estimate.value < estimate.high <= 5

    assert covered / runs >= 0.93


def test_a_judge_that_rates_the_labeled_sessions_otherwise_is_named():
    rng = np.random.default_rng(4)
    human = rng.choice([3.0, 4.0], 40)
    judged = rng.choice([1.0, 2.0], 60)

    estimate = corrected_mean(judged, pairs_of(human, human), lo=1, hi=5)

    assert "the correction may not carry over" in estimate.note


def test_so_many_labels_as_are_said_to_be_needed_narrow_the_mean_to_the_width():
    """A scale from 0 to 1 and a judge that is a bit too kind; 60 runs of 600 sessions, 40 of them labeled."""
    rng, widths, width = np.random.default_rng(7), [], 0.08
    for _ in range(60):
        human = rng.choice([0, 0.25, 0.5, 0.75, 1], 600, p=[0.1, 0.1, 0.2, 0.3, 0.3])
        judge = np.clip(human + rng.choice([-0.25, 0, 0.25], 600, p=[0.1, 0.5, 0.4]), 0, 1)
        pairs = pairs_of(human, judge)
        names = {pair.session for pair in pairs}

        more, text = labels_for_width(judge, pairs[:40], lo=0, hi=1, width=width, evaluated=names)

        assert text == f"about {more} more labels narrow it to a width of 0.08"
        estimate = corrected_mean(judge, pairs[: 40 + more], lo=0, hi=1, evaluated=names)
        widths.append(estimate.high - estimate.low)

    assert np.mean(widths) == pytest.approx(width, rel=0.03)


def test_why_no_number_of_labels_can_be_named():
    judge = np.array([float(n % 2) for n in range(100)])
    pairs = pairs_of([1.0 - value if n % 5 == 0 else value for n, value in enumerate(judge)], judge)

    def needed(count, width):
        return labels_for_width(judge, pairs[:count], lo=0, hi=1, width=width)

    assert needed(15, 0.1) == (None, "5 more labels until the mean can be corrected")
    assert needed(30, 0.9) == (0, "the interval is as narrow as wanted")
    assert needed(30, 0.01) == (None, "these sessions are too few for such a width, however many are labeled")
    assert needed(100, 0.01) == (None, "all sessions are labeled: only more sessions narrow the interval")


@pytest.mark.parametrize(
    ("things", "words"),
    [
        (29, "29 labeled targets are too few"),
        (30, "With 30 labeled targets the intervals are wide"),
        (99, "With 99 labeled targets the intervals are wide"),
        (100, ""),
    ],
)
def test_few_labels_are_remarked_upon(things, words):
    pairs = [
        target(number, "Yes" if number % 2 else "No", ["Yes" if number % 3 else "No"] * 2, length=0)
        for number in range(things)
    ]
    (*remarks,) = calibrate(pairs).remarks
    assert [each[: len(words)] for each in remarks] == ([words] if words else [])
    once = calibrate([replace(pair, machine=pair.machine[:1]) for pair in pairs]).remarks
    assert [each for each in once if each not in remarks] == [
        "The judge scored each target once: its noise is unknown (--repeats 3)."
    ]


def answers(yes, no, *, sessions=80):
    """Pairs of people and a judge: of as many who say yes and no each, so many with the same answer."""
    pairs = [(1.0, 1.0)] * yes[0] + [(1.0, 0.0)] * (yes[1] - yes[0])
    pairs += [(0.0, 0.0)] * no[0] + [(0.0, 1.0)] * (no[1] - no[0])
    return [
        CalibrationPair(session=f"s{at % sessions}", human=human, judge=judge)
        for at, (human, judge) in enumerate(pairs)
    ]


FEW = "labeled sessions: a correction needs at least 20."
ONE_LABEL, CHANCE = "People gave one label only", "The judge is hardly better than chance"


@pytest.mark.parametrize(
    ("judged", "pairs", "words"),
    [
        (10, [], f"0 {FEW}"),
        (10, answers((20, 20), (20, 20), sessions=19), f"19 {FEW}"),
        (10, answers((20, 20), (20, 20), sessions=20), None),
        (1, answers((20, 20), (20, 20)), "One session: no correction."),
        (10, answers((30, 40), (0, 0)), ONE_LABEL),
        (10, answers((0, 0), (30, 40)), ONE_LABEL),
        # Of 20 and 20, with one more of each outcome: (right + 1) / 22 twice, less 1, is at least 0.1.
        (10, answers((11, 20), (11, 20)), CHANCE),
        (10, answers((12, 20), (12, 20)), None),
    ],
)
def test_a_mean_is_corrected_by_enough_labels_of_both_kinds_and_a_judge_better_than_chance(
    judged, pairs, words
):
    found = corrected_mean(np.array([1.0, 0.0] * 5)[:judged], pairs, lo=0, hi=1)

    assert (found.value is None) is (words is not None)
    assert found.note.startswith(words or "")
    assert found.needs == (20 if words and FEW in words else None)


def test_a_corrected_share_is_that_of_rogan_and_gladen():
    """On a scale from 1 to 5: 30 of 40 yes are found, 18 of 20 no; 33 of 50 sessions judged yes."""
    yes = [(5.0, 5.0)] * 30 + [(5.0, 1.0)] * 10
    no = [(1.0, 1.0)] * 18 + [(1.0, 5.0)] * 2
    pairs = [CalibrationPair(session=f"s{at}", human=h, judge=j) for at, (h, j) in enumerate(yes + no)]
    judged = np.array([5.0] * 33 + [1.0] * 17)

    found = corrected_mean(judged, pairs, lo=1.0, hi=5.0, level=0.9)

    sensitivity, specificity, positive = 31 / 42, 19 / 22, 34 / 52
    youden = sensitivity + specificity - 1
    share = (positive + specificity - 1) / youden
    variance = positive * (1 - positive) / 52
    variance += share**2 * sensitivity * (1 - sensitivity) / 42
    variance += (1 - share) ** 2 * specificity * (1 - specificity) / 22
    error = math.sqrt(variance) / youden
    # Of Student's t with 49 degrees of freedom, as scipy 1.17 has it.
    reach = 1.6765508926168535 * error
    assert found.value == pytest.approx(1 + 4 * share)
    assert found.sem == pytest.approx(4 * error)
    assert found.low == pytest.approx(1 + 4 * max(0, share - reach))
    assert found.high == pytest.approx(1 + 4 * min(1, share + reach))
    assert (found.n, found.runs, found.level) == (50, 60, 0.9)
    few = corrected_mean(judged[:3], pairs, lo=1.0, hi=5.0)
    assert few.sem is not None and (few.low, few.high) == (1.0, 5.0), "two degrees of freedom"


def test_values_on_which_people_differ_have_a_mean_that_is_no_category():
    """Values without labels are an ordinal scale: kappa is 1 - 0.2 / 2.7 on the 20 agreed targets."""
    judged = [
        JudgedTargetPair(
            session=f"s{n}",
            human={"ana": LabelValue(value=1 + n % 4), "ben": LabelValue(value=1 + n % 4 + (n >= 20))},
            machine=[LabelValue(value=1 + n % 4 + (n % 5 == 0))],
        )
        for n in range(30)
    ]

    found = calibrate(judged)

    assert sum(found.confusion.values()) == 20 and not any("." in word for word in found.words)
    assert found.weighted and found.kappa.value == pytest.approx(25 / 27)
    assert found.things == 30 and found.ties == 0
    assert found.bias.value == pytest.approx((6 * 1 - 10 * 0.5) / 30)
    assert any(remark.startswith("10 targets have several values") for remark in found.remarks)
