"""Numbers as people read them."""

import pytest

from proctor.report import words


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (words.whole(12345.4), "12,345"),
        (words.whole(None), "–"),
        (words.short(950), "950"),
        (words.short(12_345), "12.3 k"),
        (words.short(999_999), "1 M"),
        (words.percent(0.6), "60 %"),
        (words.percent(0.998), "99.8 %"),
        (words.percent(0.9999), "> 99.9 %"),
        (words.percent(0.0001), "< 0.1 %"),
        (words.percent(0.0), "0 %"),
        (words.percent(1.0), "100 %"),
        (words.interval(0.48, 0.72), "48 to 72 %"),
        (words.interval(0.7361, 0.7414), "73.6 to 74.1 %"),
        (words.interval(None, None), "–"),
        (words.usd(0.0), "$0.00"),
        (words.usd(None), "–"),
        (words.usd(1234.5), "$1,234.50"),
        (words.usd(0.0042), "$0.0042"),
        (words.usd(0.000012), "$0.000012"),
        (words.usd(0.0000029), "$0.0000029"),
        (words.seconds(0.42), "0.42 s"),
        (words.seconds(38.2), "38 s"),
        (words.seconds(59.7), "1 min"),
        (words.seconds(192), "3 min 12 s"),
        (words.seconds(7500), "2 h 05 min"),
        (words.milliseconds(340), "340 ms"),
        (words.milliseconds(2400), "2.4 s"),
        (words.moment("2026-03-01T12:34:56.789Z"), "2026-03-01 12:34 UTC"),
        (words.plural(1, "item"), "1 item"),
        (words.plural(1200, "item"), "1,200 items"),
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
    assert words.in_markdown(text) == expected
