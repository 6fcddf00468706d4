"""Figures, durations, money and texts as people read them."""

from datetime import UTC, datetime, timedelta

import pytest

from proctor import formatting

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
CASES: dict[str, list[tuple[object, object]]] = {
    "figure": [
        (None, "–"),
        (0.00421, "0.00421"),
        (43.834, "43.83"),
        (9999.4, "9999"),
        (9999.5, "10,000"),
        (-12345.6, "-12,346"),
        (-1_700_000_008.2, "-1,700,000,008"),
        (1e15, "1e+15"),
        (-2.247e-16, "0"),
    ],
    "count_words": [
        ("", 0),
        ("I don't know.", 3),
        ("well-being — that is it!", 4),
        ("¿Qué tal? Muy bien.", 4),
        ("我今天很累。", 5),
        ("我用 Python 写代码", 6),
        ("今日はコーヒーを飲んだ。", 8),
        ("오늘은 피곤해요", 2),
        ("…?!", 0),
    ],
    "whole": [(None, "–"), (12345.4, "12,345"), (0, "0")],
    "short": [
        (None, "–"),
        (0, "0"),
        (999.4, "999"),
        (999.5, "1 k"),
        (12345, "12.3 k"),
        (-4.5e6, "-4.5 M"),
        (2e9, "2 G"),
        (3e12, "3 T"),
        (999_500, "1 M"),
        (0.1234, "0.123"),
    ],
    "percent": [
        (None, "–"),
        (0, "0%"),
        (1, "100%"),
        (0.61, "61%"),
        (0.994, "99%"),
        (0.997, "99.7%"),
        (0.9996, ">99.9%"),
        (0.004, "0.4%"),
        (0.0004, "<0.1%"),
        (0.005, "0%"),
        (0.00499, "0.5%"),
    ],
    "chance": [(None, "–"), (0.0009, "< 0.001"), (0.001, "0.001"), (0.0336, "0.034")],
    "usd": [
        (None, "–"),
        (0, "$0.00"),
        (1234.5, "$1,234.50"),
        (0.1, "$0.10"),
        (0.0999, "$0.0999"),
        (0.0042, "$0.0042"),
        (0.05, "$0.050"),
        (0.0001, "$0.0001"),
        (0.00009, "$0.00009"),
        (0.0000029, "$0.0000029"),
        (5e-10, "$5e-10"),
        (-2, "$-2.00"),
    ],
    "seconds": [
        (None, "–"),
        (0, "0 s"),
        (0.000_009, "< 0.01 ms"),
        (0.000_01, "0.01 ms"),
        (0.000_119, "0.12 ms"),
        (0.001_3, "1.3 ms"),
        (0.009_96, "10 ms"),
        (0.424, "424 ms"),
        (0.9996, "1 s"),
        (9.94, "9.94 s"),
        (9.95, "10 s"),
        (38.4, "38 s"),
        (59.4, "59 s"),
        (59.5, "1 min"),
        (60, "1 min"),
        (192, "3 min 12 s"),
        (61, "1 min 01 s"),
        (3599, "59 min 59 s"),
        (3600, "1 h 00 min"),
        (7500, "2 h 05 min"),
        (3_600_000, "1,000 h 00 min"),
    ],
    "milliseconds": [(None, "–"), (340.4, "340 ms"), (999.4, "999 ms"), (1000, "1 s"), (2400, "2.4 s")],
    "size": [
        (0, "0 B"),
        (840, "840 B"),
        (999.4, "999 B"),
        (999.5, "1.0 kB"),
        (12_400, "12.4 kB"),
        (99_500, "100 kB"),
        (3.1e9, "3.1 GB"),
        (5e6, "5.0 MB"),
        (5e12, "5,000 GB"),
    ],
    "moment": [("", "–"), ("2026-03-01T12:34:56.789Z", "2026-03-01 12:34 UTC")],
    "snake_case": [
        ("costUsd", "cost_usd"),
        ("cost-usd", "cost_usd"),
        ("HTML", "HTML"),
        ("run2Id", "run2_id"),
    ],
    "interval": [
        ((None, 0.5), "–"),
        ((0.5, None), "–"),
        ((0.48, 0.72), "48% to 72%"),
        ((0.5, 0.52), "50% to 52%"),
        ((0.736, 0.741), "73.6% to 74.1%"),
        ((0.5, 0.5015), "50.00% to 50.15%"),
        ((0.5, 0.5), "50.000% to 50.000%"),
    ],
    "age": [
        (timedelta(seconds=-5), "0 s"),
        (timedelta(seconds=59), "59 s"),
        (timedelta(seconds=60), "1 min"),
        (timedelta(seconds=3599), "59 min"),
        (timedelta(hours=1), "1 h"),
        (timedelta(seconds=86_399), "23 h"),
        (timedelta(days=1), "1 d"),
        (timedelta(days=1000), "1,000 d"),
    ],
    "rank": [((2, 2, 2), "2"), ((2, 1, 3), "2 (1 to 3)")],
    "plural": [
        ((0, "item"), "0 items"),
        ((1, "item"), "1 item"),
        ((2000, "item"), "2,000 items"),
        ((2, "entry", "entries"), "2 entries"),
        ((1, "entry", "entries"), "1 entry"),
    ],
    "printable": [("a\nb\x1b", "a b ")],
    "one_line": [(("  a\n\n b ", 5), "a b"), (("abcdef", 5), "abcd…"), (("abcde", 5), "abcde")],
    "elapsed": [
        ((BEGAN, BEGAN + timedelta(seconds=1.5)), 1.5),
        ((BEGAN, BEGAN), 0),
        ((BEGAN, BEGAN - timedelta(seconds=1)), None),
        ((None, BEGAN), None),
        ((BEGAN, None), None),
    ],
    "in_markdown": [
        ("a|b*c", r"a\|b\*c"),
        ("# a #", r"\# a #"),
        ("1. a", "&#8288;1. a"),
        ("<b>&", "&lt;b&gt;&amp;"),
        ("a_b _c_", r"a_b \_c\_"),
        ("http://x", r"http\://x"),
        ("a@b", r"a\@b"),
        ("www.x.y", r"www\.x.y"),
    ],
}
"""Of each function: its argument, or several in a tuple, and what it returns."""


@pytest.mark.parametrize("name", CASES)
def test_a_value_in_words(name: str) -> None:
    function = getattr(formatting, name)
    shown = [
        (given, function(*given) if isinstance(given, tuple) else function(given)) for given, _ in CASES[name]
    ]
    assert shown == CASES[name]


def test_texts_are_cut_to_their_width() -> None:
    assert formatting.printable("abcd", width=4) == "abcd"
    assert formatting.printable("abcde", width=4) == "abc…"
    assert formatting.printable("a\nb\x1b", lines=True) == "a\nb�"


@pytest.mark.parametrize("pieces", [1, 3, 50])
def test_the_beginning_and_the_end_of_a_long_text_are_kept(pieces: int) -> None:
    text = "".join(chr(97 + number % 26) for number in range(100))
    clip = formatting.Clip(10)
    step = 100 // pieces
    for start in range(0, 100, step):
        clip.add(text[start : start + step])
    assert clip.text == f"{text[:10]}\n[… 80 characters left out …]\n{text[-10:]}"
    assert formatting.clipped(text[:20], 10) == text[:20]
    assert "[… 1 characters" in formatting.clipped(text[:21], 10)
