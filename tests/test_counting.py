"""Words are counted as people of each language count them."""

import pytest

from proctor.formatting import count_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
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
)
def test_words_are_counted_in_every_script(text: str, words: int) -> None:
    assert count_words(text) == words
