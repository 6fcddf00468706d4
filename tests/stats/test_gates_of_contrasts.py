"""What gates say of one contrast, and when errors decide it."""

import pytest

from proctor.stats.comparison import (
    Contrast,
    Mean,
    gate_of,
)
from proctor.stats.differences import Difference, difference


def contrast(change: Difference | None, baseline: float | None = 0.5, **more: object) -> Contrast:
    known = {
        "metric": "success",
        "baseline": "a",
        "candidate": "b",
        "baseline_mean": Mean(value=baseline),
        "candidate_mean": Mean(value=baseline),
        "difference": change,
        "is_member": True,
    }
    return Contrast(**known | more)  # type: ignore[arg-type]


BETTER = difference([0.0] * 20, [1.0] * 20, lo=0.0, hi=1.0)
WORSE = difference([1.0] * 20, [0.0] * 20, lo=0.0, hi=1.0)
OPEN = difference([0.0, 1.0] * 10, [1.0, 0.0] * 10, lo=0.0, hi=1.0)


@pytest.mark.parametrize(
    ("gate", "is_ratio", "base", "margin"),
    [
        ("success>=-0.1", False, 0.5, 0.1),
        ("success>=-10%", False, 0.5, 0.05),
        ("success>=-10%", False, -0.5, 0.05),
        ("success<=0.1", False, 0.5, 0.1),
        ("cost<=10%", True, 2.0, 0.1),
        ("cost<=0.5", True, 2.0, 0.25),
        ("cost<=0.5", True, None, None),
    ],
)
def test_the_margin_of_a_gate_is_on_the_scale_of_the_difference(
    gate: str, is_ratio: bool, base: float | None, margin: float | None
) -> None:
    change = Difference(value=1.0, null=1.0 if is_ratio else 0.0)
    assert gate_of(gate).margin(contrast(change, base)) == (None if margin is None else pytest.approx(margin))


def test_errors_decide_where_counting_them_as_failures_changes_the_direction() -> None:
    assert contrast(BETTER, with_errors=WORSE).errors_decide
    assert contrast(BETTER, with_errors=OPEN).errors_decide
    assert not contrast(BETTER, with_errors=BETTER).errors_decide
    assert not contrast(BETTER).errors_decide and not contrast(None, with_errors=BETTER).errors_decide
    assert contrast(BETTER).is_significant and contrast(BETTER, with_errors=BETTER).is_significant
    assert not contrast(BETTER, with_errors=WORSE).is_significant
    assert not contrast(BETTER, is_member=False).is_significant and not contrast(None).is_significant
    assert contrast(BETTER, is_member=False).p_corrected is None
    assert contrast(BETTER).p_corrected == BETTER.p_adjusted
    assert contrast(BETTER, with_errors=WORSE).if_errors_failed == WORSE.value
    assert contrast(BETTER).if_errors_failed is None
