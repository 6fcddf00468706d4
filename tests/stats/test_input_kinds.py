"""Every public function takes lists, numpy arrays and columns of data frames, and gives the same result."""

import numpy as np
import pandas as pd
import pytest

from proctor import stats
from proctor.stats.samples import sample

RNG = np.random.default_rng(4)
TASKS, REPEATS = 24, 2
TASK = np.repeat(np.arange(TASKS), REPEATS)
A, B = (RNG.random(TASKS * REPEATS) < rate for rate in (0.5, 0.7))
COST = RNG.lognormal(0, 1, TASKS * REPEATS)
OTHER = COST * RNG.lognormal(0.2, 0.3, len(COST))
COUNTS = RNG.integers(0, 6, TASKS)
LABELS = np.where(A, "yes", "no")
WORDS = np.where(A ^ (RNG.random(len(A)) < 0.2), "yes", "no")
NAMES = np.where(np.arange(len(TASK)) % 2 == 0, "x", "y")
SCALE = {"lo": 0, "hi": 1}

CALLS = {
    "mean": lambda to: stats.mean(to(A), to(TASK), **SCALE),
    "mean of these": lambda to: stats.mean(to(A), to(TASK), scope="these", **SCALE),
    "typical": lambda to: stats.geometric_mean(to(COST), to(TASK)),
    "bill": lambda to: stats.mean_cost(to(COST), to(TASK)),
    "per_success": lambda to: stats.per_success(to(COST), to(A), to(TASK)),
    "pass_at": lambda to: stats.pass_at(to(COUNTS), 5, 2),
    "pass_hat": lambda to: stats.pass_hat(to(COUNTS), to(np.full(TASKS, 5)), 2),
    "difference": lambda to: stats.difference(to(A), to(B), to(TASK), **SCALE),
    "unpaired": lambda to: stats.difference(
        to(A), to(B), task_a=to(TASK), task_b=to(TASK), paired=False, **SCALE
    ),
    "ratio": lambda to: stats.ratio(to(COST), to(OTHER), to(TASK)),
    "tasks_needed": lambda to: stats.tasks_needed(to(A), to(B), to(TASK), detect=0.1, **SCALE),
    "detectable": lambda to: stats.detectable(to(A), to(B), to(TASK), **SCALE),
    "ranks": lambda to: stats.ranks(stats.table_of(to(NAMES), to(TASK), to(A)), **SCALE),
    "kappa": lambda to: stats.kappa(to(LABELS), to(WORDS)),
    "kappa in order": lambda to: stats.kappa(to(LABELS), to(WORDS), order=to(np.array(["no", "yes"]))),
    "kappa by unit": lambda to: stats.kappa(to(LABELS), to(WORDS), unit=to(TASK)),
    "alpha": lambda to: stats.alpha([to(pair) for pair in A.reshape(-1, 2).astype(int)]),
    "rank_correlation": lambda to: stats.rank_correlation(to(COST), to(OTHER)),
    "rank_correlation by unit": lambda to: stats.rank_correlation(to(COST), to(OTHER), unit=to(TASK)),
    "holm": lambda to: stats.holm(to(np.array([0.01, 0.2, 0.03]))),
    "components": lambda to: stats.components({"task": to(TASK), "value": to(COST)}, ["task"], "value"),
    "mixed_model": lambda to: stats.mixed_model(
        {"task": to(TASK), "name": to(NAMES), "value": to(COST)}, "value", fixed="name", random=["task"]
    ),
    "factor_test": lambda to: stats.factor_test(
        to(COST), [()] * len(COST), [[float(name == "x")] for name in NAMES]
    ),
    "sequence": lambda to: stats.ConfidenceSequence(0, 1).add(*to(A.astype(float))).interval(),
    "plus_interval": lambda to: [
        float(each) for each in stats.plus_interval(to(A.astype(float)), 0, 1).interval(0.95)
    ],
}


@pytest.mark.parametrize("name", CALLS)
def test_lists_arrays_and_columns_give_the_same(name):
    frame = {}

    def column(values):
        frame["column"] = values
        return pd.DataFrame(frame, index=range(7, 7 + len(values)))["column"]

    call = CALLS[name]

    from_list = call(lambda values: values.tolist())

    assert repr(call(lambda values: values)) == repr(from_list)
    assert repr(call(column)) == repr(from_list)


def test_whole_numbers_in_an_array_group_values_as_the_same_labels_in_a_list_do():
    rng = np.random.default_rng(1)
    tasks = rng.integers(-5, 20, 200)
    values = [None if at % 7 == 0 else float(at) for at in range(200)]
    present = np.arange(200) % 11 != 0

    for marked in (None, present):
        listed, coded = sample(values, tasks.tolist(), marked), sample(values, tasks, marked)
        assert (coded.labels, coded.left_out) == (listed.labels, listed.left_out)
        np.testing.assert_array_equal(coded.codes, listed.codes)
        np.testing.assert_array_equal(coded.values, listed.values)
    with pytest.raises(ValueError, match="199 task labels"):
        sample(values, tasks[:199])
