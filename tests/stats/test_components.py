"""Where the variance of a crossed experiment comes from, with and without balance."""

import random
from typing import NamedTuple

import pytest

from proctor.stats.dialogue import crossing, measures_of
from proctor.stats.variance import Components, components


class Observation(NamedTuple):
    row: str
    column: str
    value: float


def fitted(observations: list[Observation]) -> Components:
    return components([each._asdict() for each in observations], ["row", "column"], "value")


def found(observations: list[Observation]) -> dict[str, float | None]:
    known = {each.source: each.variance.value for each in fitted(observations).components}
    names = {"row": "row", "column": "column", "pairing": "row:column", "repeat": "repeat"}
    return {name: known.get(source) for name, source in names.items()}


def test_balanced_data_give_what_the_analysis_of_variance_gives() -> None:
    cells = {("a", "x"): (1, 3), ("a", "y"): (5, 7), ("b", "x"): (11, 13), ("b", "y"): (9, 11)}
    data = [Observation(*cell, float(value)) for cell, values in cells.items() for value in values]

    # Mean squares: rows 98, columns 2, pairing 18, within 2; two rows, two columns, two repeats.
    assert found(data) == pytest.approx(
        {"row": (98 - 18) / 4, "column": 0.0, "pairing": (18 - 2) / 2, "repeat": 2.0}
    )


def simulated(seed: int, *, lost: float = 0.0) -> list[Observation]:
    chance = random.Random(seed)
    # The likelihood of missing cells takes at most 1,500 observations.
    size = 20 if lost else 30
    rows = {f"r{n}": chance.gauss(0, 3) for n in range(size)}
    columns = {f"c{n}": chance.gauss(0, 2) for n in range(size)}
    made = []
    for row, of_row in rows.items():
        for column, of_column in columns.items():
            pairing = chance.gauss(0, 1.5)
            for _ in range(3):
                value = 1000 + of_row + of_column + pairing + chance.gauss(0, 1)
                if chance.random() >= lost:
                    made.append(Observation(row, column, value))
    return made


@pytest.mark.parametrize("lost", [0.0, 0.4])
def test_the_variances_that_were_put_in_come_out_also_when_runs_are_missing(lost: float) -> None:
    runs = [found(simulated(seed, lost=lost)) for seed in range(6)]

    means = {name: sum(run[name] for run in runs) / len(runs) for name in runs[0]}
    assert means["row"] == pytest.approx(9, rel=0.35)
    assert means["column"] == pytest.approx(4, rel=0.35)
    assert means["pairing"] == pytest.approx(2.25, rel=0.15)
    assert means["repeat"] == pytest.approx(1, rel=0.1)


def test_what_cannot_be_told_is_not_guessed() -> None:
    one_client = [Observation("a", column, value) for column in "xy" for value in (1.0, 2.0)]
    one_run_each = [
        Observation(row, column, float(ord(row) * ord(column))) for row in "abc" for column in "xyz"
    ]

    assert found(one_client)["row"] is None
    assert found(one_client)["pairing"] is None
    assert found(one_run_each)["pairing"] is None
    assert found(one_run_each)["repeat"] is not None
    assert set(found([Observation("a", "x", 1.0)]).values()) == {None}


def test_a_measure_is_shown_by_combination_with_its_interval() -> None:
    rows = [
        {"client": "Abe", "therapist": "CBT", "num_turns": turns, "status": "success"} for turns in (4, 6, 8)
    ] + [{"client": "Abe", "therapist": "MI", "num_turns": 9, "status": "success"}]

    result = crossing(rows, "num_turns")

    cbt, mi = result.cells
    assert measures_of(rows) == ["num_turns"]
    assert (cbt.mean.value, cbt.mean.n, cbt.std) == (6, 3, 2)
    assert cbt.mean.low is None and "Fewer than 5 dialogues: no interval" in cbt.mean.note
    assert (mi.mean.value, mi.mean.low, mi.std) == (9, None, None)
