"""What a comparison says in sentences."""

from proctor.report.comparison import sentence
from proctor.stats.comparison import Contrast, Mean
from proctor.stats.contrasts import Difference


def contrast(**difference):
    sides = {"baseline_mean": Mean(value=10.0), "candidate_mean": Mean(value=15.0)}
    found = Difference(**difference)
    return Contrast(metric="tokens", baseline="a", candidate="b", **sides, difference=found, pairs=5)


def test_a_difference_without_any_spread_is_told_and_not_tested():
    said = sentence(contrast(value=5.0, low=5.0, high=5.0, p=None))

    assert said.startswith("+5 in each of 5 paired tasks")
    assert "p =" not in said


def test_no_difference_in_any_task_is_said_so():
    assert sentence(contrast(value=0.0, low=0.0, high=0.0)) == "No difference, 5 paired tasks."
