"""Numbers as people read them."""

import pytest

from proctor import formatting


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (formatting.whole(12345.4), "12,345"),
        (formatting.whole(None), "–"),
        (formatting.short(950), "950"),
        (formatting.short(12_345), "12.3 k"),
        (formatting.short(999_999), "1 M"),
        (formatting.percent(0.6), "60%"),
        (formatting.percent(0.998), "99.8%"),
        (formatting.percent(0.9999), ">99.9%"),
        (formatting.percent(0.0001), "<0.1%"),
        (formatting.percent(0.0), "0%"),
        (formatting.percent(1.0), "100%"),
        (formatting.interval(0.48, 0.72), "48% to 72%"),
        (formatting.interval(0.7361, 0.7414), "73.6% to 74.1%"),
        (formatting.interval(None, None), "–"),
        (formatting.usd(0.0), "$0.00"),
        (formatting.usd(None), "–"),
        (formatting.usd(1234.5), "$1,234.50"),
        (formatting.usd(0.0042), "$0.0042"),
        (formatting.usd(0.000012), "$0.000012"),
        (formatting.usd(0.0000029), "$0.0000029"),
        (formatting.seconds(0.42), "0.42 s"),
        (formatting.seconds(38.2), "38 s"),
        (formatting.seconds(59.7), "1 min"),
        (formatting.seconds(192), "3 min 12 s"),
        (formatting.seconds(7500), "2 h 05 min"),
        (formatting.milliseconds(340), "340 ms"),
        (formatting.milliseconds(2400), "2.4 s"),
        (formatting.moment("2026-03-01T12:34:56.789Z"), "2026-03-01 12:34 UTC"),
        (formatting.plural(1, "item"), "1 item"),
        (formatting.plural(1200, "item"), "1,200 items"),
        (formatting.plural(2, "batch", "batches"), "2 batches"),
        (formatting.usd(None, unknown="unknown"), "unknown"),
    ],
)
def test_numbers_are_said_as_people_say_them(said, expected):
    assert said == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpt-5", "gpt-5"),
        ("checks_failed", "checks_failed"),
        ("_so_", r"\_so\_"),
        ("a|b\nc", r"a\|b c"),
        ("<img src=x>", "&lt;img src=x&gt;"),
        ("https://x.example", r"https\://x.example"),
        ("- item", r"\- item"),
        ("# title", r"\# title"),
        ("![x](y)", r"!\[x\](y)"),
        ("a\u202eb\x1b[0m", r"ab\[0m"),
    ],
)
def test_text_means_nothing_but_itself_in_markdown(text, expected):
    assert formatting.in_markdown(text) == expected
