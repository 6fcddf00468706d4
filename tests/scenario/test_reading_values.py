"""What counts as the value of a metric, and what is missing."""

import pytest

from proctor.scenario.definition import Measure
from proctor.scenario.metrics import _by_keywords, read_text, typed


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,250.5", 1250.5),
        ("10 000 000 people", 10_000_000),
        ("7 of 10", 7),
        ("5, 6 or 7", 5),
        ("12, 15", 12),
        ("−3", -3),
        ("10^25 FLOPS", 1e25),
    ],
)
def test_a_number_is_read_as_people_write_it(text, value):
    assert typed(Measure(type="float"), text) == value


@pytest.mark.parametrize("text", ["3,5", "12,15", "0,500", "1.250,5"])
def test_a_number_that_could_be_two_is_missing_and_not_a_third(text):
    assert typed(Measure(type="float"), text) is None


@pytest.mark.parametrize(
    ("pattern", "text", "value"),
    [
        (r"agreement: (yes|no)", "Agreement: no", False),
        (r"peace: (\w+)", "peace: true", True),
        (r"peace: (\w+)", "nothing of the kind", None),
        (r"(deal|treaty) (signed|sealed)", "The treaty sealed it.", True),
        (r"(deal|treaty) (signed|sealed)", "They quarrel.", False),
        (r"deal.*?(signed|sealed)", "a deal was at last signed", True),
        ("ceasefire", "A ceasefire holds.", True),
    ],
)
def test_a_pattern_reads_a_yes_or_no_or_asks_whether_something_is_there(pattern, text, value):
    assert read_text(Measure(type="boolean", method="regex", pattern=pattern), text) is value


def test_keywords_are_found_in_scripts_that_put_nothing_between_words():
    chinese = Measure(type="integer", method="keyword", keywords=("合作",))
    english = Measure(type="integer", method="keyword", keywords=("trust",))

    assert read_text(chinese, "我们合作很好，继续合作。") == 2
    assert read_text(english, "Trust and distrust.") == 1


def test_density_counts_the_words_of_such_scripts_one_by_one():
    rule = Measure(type="float", method="keyword", keywords=("合作",), scoring="density")

    assert read_text(rule, "我们合作很好，合作好。") == pytest.approx(2 * 100 / 9)


@pytest.mark.parametrize(
    ("word", "text", "count"),
    [
        ("A合", "BA合", 0),
        ("A合", "A合B", 1),
        ("合A", "B合A", 1),
        ("合A", "合AB", 0),
        ("a.b", "a.b axb a.bc", 1),
    ],
)
def test_the_ends_of_a_word_decide_whether_it_may_stand_inside_another(word, text, count):
    measure = Measure(type="integer", method="keyword", keywords=(word,))
    assert _by_keywords(measure, text) == count
