"""Races and checks: reference values of independent scripts, and their errors by seeded simulation."""

import numpy as np
import pytest

from proctor.errors import UsageError
from proctor.stats.adaptive import (
    CheckTest,
    Martingales,
    PickRace,
    check_needs,
    mean_pair,
    positions,
    race_boundary,
    race_constant,
    race_expects,
    race_needs,
    smallest_margin,
    smallest_tolerance,
)
from proctor.stats.sequential import ConfidenceSequence

DIFFERENCES = [1, 0, 0, 1, 1, 0, -1, 1, 0, 1, 0, 1, 1, 0, 0, 1, -1, 1, 1, 0, 1, 0, 0, 1, 0, 1, 0, 0, 1, 1]
TIE, LOSS, DRAWN = (
    [0, 0, 1, 0, -1, 0, 0, 1, 0, 0],
    [0, -1, 0, 0, -1, 0, 1, 0, 0, -1],
    [0, 0, 1, 0, -1] + [0] * 5,
)


def both(value: float) -> tuple[float, float]:
    return float(value), float(value)


def raced(outcomes, tolerance: float, **settings) -> PickRace:
    """A race with outcomes by level, task and repeat."""
    levels, tasks, repeats = outcomes.shape
    race = PickRace("abcdefgh"[:levels], tasks=tasks, repeats=repeats, tolerance=tolerance, **settings)
    for position, (task, repeat) in enumerate(positions(tasks, repeats)):
        for number, level in enumerate(race.levels):
            race.add(level, position, both(outcomes[number, task, repeat]))
    return race


def checked(differences, margin: float, candidates: int = 1) -> tuple[str, int]:
    test = CheckTest("base", ["new", "x", "y"][:candidates], tasks=len(differences), margin=margin)
    for position, difference in enumerate(differences):
        test.add("base", position, both(difference < 0))
        test.add("new", position, both(difference > 0))
    return test.state("new").outcome, test.state("new").tasks


def test_the_boundary_of_a_race_is_that_of_the_reference():
    constants = {2: 2.465104, 3: 3.158251, 4: 3.563716, 6: 4.074542, 13: 4.950011}
    assert {levels: round(race_constant(levels), 6) for levels in constants} == constants
    assert race_constant(2, 0.1) == pytest.approx(1.771957, abs=1e-6)
    expected = {
        10: (13.195022, 5.847511, 22.136344),
        20: (11.427384, 4.213692, 19.541079),
        25: (9.976537, 3.113268, 17.306213),
        30: (9.068171, 2.284085, 15.968007),
    }
    for tasks, values in expected.items():
        seen = DIFFERENCES[:tasks]
        for (tolerance, levels), value in zip([(0.1, 2), (0.2, 2), (0.1, 6)], values, strict=True):
            boundary = race_boundary(
                sum(seen),
                sum(each * each for each in seen),
                tasks,
                tolerance=tolerance,
                constant=race_constant(levels),
            )
            assert boundary == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize(("tolerance", "looks"), [(0.1, 25), (0.2, 13)])
def test_a_race_of_two_ends_where_the_reference_does(tolerance, looks):
    outcomes = np.array([[[each < 0] for each in DIFFERENCES], [[each > 0] for each in DIFFERENCES]])

    race = raced(outcomes, tolerance)

    assert (race.pick, race.looks, race.out_at) == ("b", looks, {"a": looks})


@pytest.mark.parametrize(("tolerance", "out"), [(0.05, (90, 193)), (0.1, (29, 64)), (0.2, (18, 27))])
def test_losers_leave_a_race_of_three(tolerance, out):
    outcomes = np.random.default_rng(7).random((3, 200)) < [[0.7], [0.5], [0.6]]

    race = raced(outcomes[:, :, None], tolerance)

    assert (race.pick, race.out_at) == ("a", {"b": out[0], "c": out[1]})
    assert [(level.is_in, level.share) for level in race.standings()] == [
        (True, 0.0),
        (False, 1.0),
        (False, 1.0),
    ]


def test_repeats_come_after_all_tasks_and_an_open_race_says_what_is_left():
    rng = np.random.default_rng(11)
    outcomes = rng.random((2, 12, 3)) < 0.5
    outcomes[1] |= rng.random((12, 3)) < 0.6

    race = raced(outcomes, 0.2)
    assert (race.pick, race.looks) == ("b", 10)
    race = raced(outcomes, 0.1)
    assert (race.pick, race.looks, race.is_over, race.left, race.leader) == ("", 36, True, ["a", "b"], "b")
    assert race.at_most_worse() == pytest.approx(0.143705, abs=1e-6)
    behind, ahead = race.standings()
    assert (behind.rival, ahead.rival, ahead.share) == ("b", "", 0.0) and 0.5 < behind.share < 1


def test_the_order_of_positions_counts_and_not_that_of_finishing():
    outcomes = np.random.default_rng(7).random((3, 200)) < [[0.7], [0.5], [0.6]]
    race = PickRace("abc", tasks=200, tolerance=0.1)
    for position in reversed(range(200)):
        for number, level in enumerate("abc"):
            race.add(level, position, both(outcomes[number, position]))
    assert (race.pick, race.out_at) == ("a", {"b": 29, "c": 64})


def test_a_level_leaves_only_if_errors_do_not_decide_it():
    """The worse level fails where the other succeeds; with errors as failures it is the better one."""
    for errors, picked in ((False, "b"), (True, "")):
        race = PickRace("ab", tasks=40, tolerance=0.1)
        for position in range(40):
            is_error = errors and position % 2
            race.add("a", position, both(position % 2 if errors else 0))
            race.add("b", position, (None, 0.0) if is_error else (1.0, 1.0))
        assert race.pick == picked


@pytest.mark.parametrize(
    ("pattern", "values", "ends"),
    [
        (
            TIE,
            [(0.434576, -0.493429), (0.966619, -1.135407), (2.674808, -2.785880), (5.652557, -5.345906)],
            [("pass", 53), ("pass", 103), ("pass", 73)],
        ),
        (
            LOSS,
            [(-0.455497, 0.325955), (-1.011887, 0.744504), (-2.437831, 2.096583), (-4.531328, 4.463248)],
            [("fail", 65), ("fail", 92), ("fail", 85)],
        ),
        (
            DRAWN,
            [(0.165435, -0.092373), (0.370715, -0.464730), (0.793051, -1.493875), (1.660443, -2.763157)],
            [("pass", 143), ("pass", 543), ("pass", 184)],
        ),
    ],
)
def test_the_evidence_of_a_check_is_that_of_the_reference(pattern, values, ends):
    martingales, seen = Martingales(0.1), []
    for difference in pattern * 10:
        martingales.add(difference)
        if martingales.tasks in (10, 20, 50, 100):
            seen.append((martingales.log_pass, martingales.log_fail))

    assert np.array(seen) == pytest.approx(np.array(values), abs=1e-6)
    cases = [(0.1, 1), (0.05, 1), (0.1, 3)]
    assert [checked(pattern * 60, margin, candidates) for margin, candidates in cases] == ends


def test_a_check_with_repeats_has_a_second_stage_of_their_means():
    test = CheckTest("base", ["new"], tasks=60, repeats=3, margin=0.2)
    for position in range(60):
        for level in ("base", "new"):
            test.add(level, position, both((position + (level == "new")) % 2))
    assert test.state("new").outcome == "open" and test.undecided() == ["base", "new"]
    for position in range(60):
        for level in ("base", "new"):
            test.add(level, position, both(0.5), stage=1)
    assert (test.state("new").outcome, test.state("new").tasks, test.undecided()) == ("pass", 21, [])


def test_what_a_design_needs_is_known_before():
    assert [[check_needs(c, margin=m) for m in (0.02, 0.05, 0.1, 0.2)] for c in (1, 2)] == [
        [197, 77, 38, 18],
        [235, 92, 45, 21],
    ]
    assert [race_needs(levels, tolerance=0.1) for levels in (2, 6)] == [124, 204]
    assert [race_needs(levels, tolerance=0.05) for levels in (2, 6)] == [494, 815]
    assert [race_expects(levels, 0.2, tolerance=0.1) for levels in (2, 6)] == [25, 41]
    assert smallest_tolerance(2, 124) == pytest.approx(0.1, abs=1e-3)
    assert smallest_tolerance(2, 124, 5) < smallest_tolerance(2, 124)
    assert (smallest_margin(1, 38), smallest_margin(1, 37), smallest_margin(1, 2)) == (0.1, 0.11, None)
    for design in (
        lambda: PickRace(["a"], tasks=9, tolerance=0.1),
        lambda: PickRace("ab", tasks=9, tolerance=1.0),
        lambda: CheckTest("a", [], tasks=9, margin=0.1),
        lambda: CheckTest("a", ["b"], tasks=9, margin=0.0),
    ):
        with pytest.raises(UsageError):
            design()


def test_the_mean_of_a_task_is_taken_both_ways():
    assert mean_pair([1.0, None]) == (1.0, 0.5)
    assert mean_pair([None, None], 1.0) == (None, 1.0)
    assert mean_pair([]) == (None, None)


def test_tuned_intervals_are_those_of_the_reference():
    successes, differences = [1, 1, 0, 1, 1, 1, 0, 1, 1, 1] * 10, TIE * 10
    ends = [ConfidenceSequence(tasks=100).add(*successes[:n]).interval() for n in (20, 50, 100)]
    assert [(end.low, end.high) for end in ends] == [(0.476, 1.0), (0.599, 0.919), (0.653, 0.89)]
    ends = [ConfidenceSequence(-1, 1, tasks=100).add(*differences[:n]).interval() for n in (50, 100)]
    assert [(end.low, end.high) for end in ends] == [(-0.126, 0.332), (-0.06, 0.264)]
    one, many = ConfidenceSequence(tasks=600), ConfidenceSequence(tasks=600).add(*successes * 6)
    for value in successes * 6:
        one.add(value)
    assert one.interval() == many.interval() == ConfidenceSequence.from_state(many.state()).interval()


def test_the_errors_of_a_race_and_of_a_check_are_at_most_a_twentieth():
    """At a gap of exactly the tolerance, where errors are most frequent; standard error 0.011 at 0.05."""
    rng, runs, tasks, gap = np.random.default_rng(3), 400, 60, 0.2
    wrong = passed = failed = 0
    for _ in range(runs):
        difficulty = rng.beta(1, 1, tasks)
        draws = rng.random((2, tasks))
        good, bad = (
            draws[0] < np.minimum(1, difficulty + gap / 2),
            draws[1] < np.maximum(0, difficulty - gap / 2),
        )
        wrong += raced(np.stack([bad, good])[:, :, None], gap).pick == "a"
        passed += checked((bad * 1.0 - good).tolist(), gap)[0] == "pass"
        equal = (draws[1] < difficulty) * 1.0 - (draws[0] < difficulty)
        failed += checked(equal.tolist(), gap)[0] == "fail"
    assert [wrong / runs <= 0.06, passed / runs <= 0.06, failed / runs <= 0.06] == [True] * 3
    assert wrong + passed + failed > 6
