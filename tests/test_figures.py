"""Numbers as people read them."""

import pytest

from proctor.formatting import figure


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "–"),
        (0.00421, "0.00421"),
        (43.8251, "43.83"),
        (9999.4, "9999"),
        (12345.6, "12,346"),
        (-1_700_000_008.2, "-1,700,000,008"),
        (1e25, "1e+25"),
    ],
)
def test_a_figure_has_the_digits_that_matter_and_no_power_of_ten_before_it_is_needed(value, said):
    assert figure(value) == said
