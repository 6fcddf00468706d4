"""Arguments that no statistic takes: what is wrong is named, and the last good value beside it is taken."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from proctor.errors import NotFound, UsageError
from proctor.jobs.dialogue.results import analysis
from proctor.stats import classical, differences, drift, intervals, power, samples, sequential, variance

VALUES = [0.2, 0.5, 0.9, 0.4, 0.7, 0.1, 0.8]
OTHERS = [0.3, 0.4, 0.8, 0.6, 0.9, 0.2, 0.7]
TABLE = {"model": list("aabb") * 3, "task": list("xxxxyyyyzzzz")}
TABLE |= {"score": [1, 2, 3, 3, 2, 2, 4, 5, 1, 1, 2, 3]}  # type: ignore[dict-item]


def of_level(level: float) -> object:
    return intervals.mean(VALUES, level=level)


def of_scale(lo: float, hi: float) -> object:
    return intervals.mean(VALUES, lo=lo, hi=hi)


def difference(**options: Any) -> object:
    return differences.difference(VALUES, OTHERS, **options)


def mixed(**options: Any) -> object:
    return variance.mixed_model(TABLE, "score", fixed="model", random=["task"], draws=50, **options)


def monitor() -> sequential.Monitor:
    return sequential.Monitor([sequential.DifferenceGoal(baseline="a", candidate="b")])


REFUSED: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: of_level(0.0), ValueError, "level must lie between 0 and 1, not 0.0"),
    (lambda: of_level(1.0), ValueError, "level must lie between 0 and 1, not 1.0"),
    (lambda: of_scale(1.0, 1.0), ValueError, "the scale must have lo < hi, not 1.0 and 1.0"),
    (lambda: of_scale(0.0, math.inf), ValueError, "the ends of a scale must be finite"),
    (lambda: of_scale(math.nan, 1.0), ValueError, "the ends of a scale must be finite"),
    (lambda: intervals.mean(VALUES, scope="all"), ValueError, 'scope must be "like" or "these"'),  # type: ignore[arg-type]
    (lambda: intervals.geometric_mean(VALUES, level=1.0), ValueError, "level must lie between"),
    (lambda: intervals.mean_cost(VALUES, level=0.0), ValueError, "level must lie between"),
    (lambda: intervals.per_success(VALUES, VALUES, level=1.0), ValueError, "level must lie between"),
    (lambda: intervals.mean([1, 2, 3], ["a", "b"]), ValueError, "3 values, but 2 task labels"),
    (lambda: intervals.per_success([1, 2], [1]), ValueError, "2 costs, but 1 outcomes"),
    (lambda: intervals.pass_at([3], 2, 1), ValueError, "between 0 and the runs"),
    (lambda: intervals.pass_at([1], 2, 0), ValueError, "k must be at least 1"),
    (lambda: intervals.pass_hat([1], 2, 1, level=0.0), ValueError, "level must lie between"),
    (lambda: difference(level=0.0), ValueError, "level must lie between 0 and 1, not 0.0"),
    (lambda: difference(level=1.0), ValueError, "level must lie between 0 and 1, not 1.0"),
    (lambda: difference(family=0), ValueError, "a family has at least one comparison"),
    (lambda: difference(lo=0.5, hi=0.5), ValueError, "the scale must have finite ends lo < hi"),
    (lambda: difference(lo=-math.inf, hi=1.0), ValueError, "the scale must have finite ends lo < hi"),
    (lambda: difference(lo=0.0, hi=math.inf), ValueError, "the scale must have finite ends lo < hi"),
    (lambda: difference(span=0.0), ValueError, "span must be positive"),
    (lambda: difference(span=math.inf), ValueError, "span must be positive"),
    (lambda: differences.ratio(VALUES, OTHERS, level=1.0), ValueError, "level must lie between"),
    (lambda: differences.ratio(VALUES, OTHERS, family=0), ValueError, "a family has at least one"),
    (lambda: difference(task=VALUES, task_a=VALUES), ValueError, "pass either task, or task_a and task_b"),
    (lambda: difference(task=VALUES, task_b=VALUES), ValueError, "pass either task, or task_a and task_b"),
    (lambda: difference(task_a=VALUES), ValueError, "task_a and task_b belong together"),
    (lambda: difference(task_b=VALUES), ValueError, "task_a and task_b belong together"),
    (lambda: samples.parse(np.zeros((2, 2))), ValueError, "values must be a flat sequence"),
    (lambda: samples.parse(["a", "b"]), TypeError, "values must be numbers, not "),  # type: ignore[list-item]
    (lambda: samples.parse([None, "b"]), TypeError, "values must be numbers, not 'b'"),  # type: ignore[list-item]
    (lambda: power.tasks_needed(VALUES, detect=0.0), ValueError, "detect must be a difference other than 0"),
    (lambda: power.tasks_needed(VALUES, detect=math.inf), ValueError, "detect must be a difference"),
    (lambda: power.tasks_for_gate(0.0), ValueError, "margin and loss must be positive"),
    (lambda: power.tasks_for_gate(0.1, 0.0), ValueError, "margin and loss must be positive"),
    (lambda: classical.newcombe(0, 0, 1, 2), ValueError, "both sides need trials"),
    (lambda: classical.newcombe(1, 2, 0, 0), ValueError, "both sides need trials"),
    (lambda: classical.newcombe_paired(0, 0, 0, 0), ValueError, "there are no pairs"),
    (lambda: sequential.ConfidenceSequence(alpha=0.0), UsageError, "an error rate of 0.0"),
    (lambda: sequential.ConfidenceSequence(alpha=1.0), UsageError, "an error rate of 1.0"),
    (lambda: sequential.LogConfidenceSequence(1.0), UsageError, "an error rate of 1.0"),
    (lambda: sequential.ConfidenceSequence(1.0, 1.0), UsageError, "are no bounds of a scale"),
    (lambda: sequential.ConfidenceSequence(0.0, math.inf), UsageError, "are no bounds of a scale"),
    (lambda: sequential.ConfidenceSequence(-math.inf, 0.0), UsageError, "are no bounds of a scale"),
    (lambda: sequential.ConfidenceSequence().add(1.01), UsageError, "is not on the scale from 0 to 1"),
    (lambda: sequential.ConfidenceSequence().add(-0.01), UsageError, "is not on the scale from 0 to 1"),
    (lambda: sequential.LogConfidenceSequence().add(-math.inf), UsageError, "is no logarithm of a ratio"),
    (
        lambda: differences.gate(differences.difference(VALUES, OTHERS), math.nan),
        ValueError,
        "the margin must",
    ),
    (lambda: samples.plus_interval(np.ones(1), 0.0, 1.0), ValueError, "at least two tasks"),
    (lambda: monitor().estimate("a", "z"), UsageError, "no goal is about a and z"),
    (lambda: monitor().estimate("z", "a"), UsageError, "no goal is about z and a"),
    (lambda: monitor().add("a", 0, [1.5]), UsageError, "1.5 is not on the scale from 0 to 1"),
    (lambda: drift.DriftSettings(margin=-1), UsageError, "margin"),
    (lambda: drift.DriftSettings(alpha=0), UsageError, "alpha"),
    (lambda: drift.DriftSettings(alpha=1), UsageError, "alpha"),
    (lambda: drift.DriftSettings(reference=2), UsageError, "not on the scale from 0 to 1"),
    (lambda: mixed(baseline="c"), UsageError, "no level c\nThere are: a, b."),
    (lambda: mixed(contrasts={"x": {"a": 1.0, "z": -1.0}}), UsageError, "contrast x: no level z"),
    (lambda: variance.components(TABLE, [], "score"), UsageError, "no random factor was named"),
    (lambda: variance.components(TABLE, ["who"], "score"), UsageError, "the table has no column who"),
    (
        lambda: variance.components(TABLE, ["task"], "score", draws=50).of("model"),
        UsageError,
        "no component model\nThere are: task",
    ),
    (lambda: analysis([{"alliance": 1.0}], "depth"), NotFound, "have no numeric column `depth`"),
    (lambda: analysis([{"alliance": 1.0}], by="school"), NotFound, "have no factor `school`"),
]


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_what_no_statistic_takes_is_refused_by_name(case: int) -> None:
    call, error, message = REFUSED[case]
    with pytest.raises(error) as refused:
        call()
    assert message in str(refused.value)
    assert not message.startswith("no level") or str(refused.value).startswith(message)


def test_the_last_good_values_are_taken() -> None:
    assert intervals.pass_at([1], 2, 1).value == 0.5
    assert power.tasks_for_gate(0.5, 0.5) == power.tasks_for_gate(0.6, 0.5) == 1
    assert power.tasks_for_gate(0.05) == 72
    assert classical.newcombe(1, 1, 0, 1)[0] == -1.0
    assert classical.newcombe_paired(0, 0, 1, 0)[0] == 1.0
    assert sequential.ConfidenceSequence().add(0.0, 1.0).n == 2
    assert variance.components(TABLE, ["task"], "score", draws=50).of("task").source == "task"
    numbers, present = samples.parse([None, 2, True])
    assert numbers.tolist() == [0.0, 2.0, 1.0] and present.tolist() == [False, True, True]
    assert samples.parse([])[0].tolist() == []


def test_a_positive_correlation_smaller_than_its_correction_is_none() -> None:
    assert classical.newcombe_paired(1, 1, 1, 2) == pytest.approx(classical.newcombe(2, 5, 2, 5))
    # Above it, paired rates are closer than independent ones.
    paired, independent = classical.newcombe_paired(9, 1, 1, 9), classical.newcombe(10, 20, 10, 20)
    assert paired[2] - paired[1] < independent[2] - independent[1]
