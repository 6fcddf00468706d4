"""What a comparison says in sentences."""

from dataclasses import replace

from proctor.report.comparison import finding, sentence
from proctor.stats.comparison import Contrast, Mean
from proctor.stats.differences import Difference, difference, ratio


def contrast(found: Difference, metric: str = "success", **more: object) -> Contrast:
    sides = {"baseline_mean": Mean(value=found.mean_a), "candidate_mean": Mean(value=found.mean_b)}
    values = {"is_member": True, "pairs": found.n, **more}
    return Contrast(metric=metric, baseline="a", candidate="b", **sides, difference=found, **values)


def test_no_difference_in_any_task_has_an_interval_all_the_same():
    same = contrast(difference([1, 0] * 5, [1, 0] * 5, lo=0, hi=1))

    said = sentence(same)

    assert said.startswith("No significant difference: ±0.0 pp (95% CI −27.8 pp to +27.8 pp, p = 1.000, 10")
    assert "Minimum detectable effect" in said
    assert finding(same) == "not significant"


def test_costs_are_told_as_relative_changes():
    base = [0.1, 0.2, 0.4, 0.3, 0.25, 0.15]
    dearer = contrast(ratio(base, [2 * cost * (1 + at / 50) for at, cost in enumerate(base)]), "cost")

    assert sentence(dearer).startswith("Significant: b costs more, +109.9% (95% CI +102.2% to +117.9%")
    assert finding(dearer) == "higher"
    tenfold = contrast(ratio(base, [10 * cost * (1 + at / 50) for at, cost in enumerate(base)]), "cost")
    assert "×10.5 (95% CI ×10" in sentence(tenfold)


def test_a_metric_outside_the_family_has_no_verdict():
    found = difference([0] * 9, [1] * 9, lo=0, hi=1)
    aside = contrast(found, is_member=False)

    assert sentence(aside).startswith("Descriptive, no verdict: +100.0 pp")
    assert finding(aside) == "descriptive"
    assert not aside.is_significant


def test_errors_that_change_the_conclusion_leave_it_open():
    better = difference([0] * 12, [1] * 12, lo=0, hi=1)
    level = difference([0] * 12, [0, 1] * 6, lo=0, hi=1)
    open_ = contrast(better, with_errors=replace(level, value=0.0))

    assert finding(open_) == "errors decide it"
    assert sentence(open_).startswith(
        "Inconclusive: infrastructure errors decide it. Errors excluded +100.0 pp"
    )


def test_too_few_tasks_are_told_with_how_many_would_do():
    few = contrast(difference([0, 0, 0], [1, 1, 1], lo=0, hi=1))

    assert finding(few) == "too few tasks"
    assert "A verdict needs at least 6 tasks." in sentence(few)
