"""How items ended, counted from sums of the store."""

import hashlib

import pytest

from proctor.results.summary import outcomes_of
from proctor.stats.outcomes import group_failures, message_pattern


def test_reasons_are_listed_by_status_then_by_frequency_then_by_name():
    rows = [("error", "setup_failed", 9), ("fail", "b", 2), ("fail", "a", 2), ("fail", "c", 4)]
    rows += [("success", "completed", 1), ("fail", "b", 1), ("queued", "", 8)]
    sums = [{"status": status, "reason": reason, "items": items} for status, reason, items in rows]
    assert [tuple(row.values()) for row in outcomes_of(sums)] == [
        ("success", "completed", 1),
        ("fail", "c", 4),
        ("fail", "b", 3),
        ("fail", "a", 2),
        ("error", "setup_failed", 9),
    ]


# Messages that are alike


@pytest.mark.parametrize(
    ("message", "pattern"),
    [
        (
            "answer does not contain 'Paris'; it began 'It\\'s Rome'",
            'answer does not contain "…"; it began "…"',
        ),
        ('answer does not contain "it\'s"; it was empty', 'answer does not contain "…"; it was empty'),
        ("exited with 137 after 2.5 s, 1,024 lines", "exited with # after # s, # lines"),
        ("no file /home/me/a b.py: gone", "no file <path> b.py: gone"),
        ("see https://example.com/x?y=1, then retry", "see <path>, then retry"),
        ("commit 3f9a2c71 of 550e8400-e29b-41d4-a716-446655440000 failed", "commit <id> of <id> failed"),
        ("the facade of a cafe is decade-old", "the facade of a cafe is decade-old"),
        ("it doesn't and can't work", "it doesn't and can't work"),
        ("cut in the middle of 'a quo", 'cut in the middle of "…"'),
        ("two\n\nlines\twith  space", "two lines with space"),
        ("", ""),
    ],
)
def test_a_pattern_leaves_out_what_differs_from_item_to_item(message, pattern):
    assert message_pattern(message) == pattern


def test_groups_are_by_reason_and_pattern_and_count_the_items_of_a_list():
    groups = group_failures(
        [(0, "timeout", ""), (4, "checks_failed", "exited with 1"), (9, "checks_failed", "exited with 2"),
         (10, "setup_failed", "exited with 1")]
    )  # fmt: skip

    assert [(group.reason, group.items) for group in groups.of([0, 1, 4, 9])] == [
        ("checks_failed", 2), ("timeout", 1),
    ]  # fmt: skip
    largest, *_ = groups.of(range(11))
    assert groups.positions(largest.key) == {4, 9}
    assert groups.positions("") == set()


def test_the_key_of_a_group_depends_on_reason_and_pattern():
    """It is part of addresses of pages: it stays the same."""
    groups = group_failures([(0, "timeout", "after 7 s"), (1, "error", "after 9 s")]).groups
    expected = [
        hashlib.blake2b(f"{group.reason}\n{group.pattern}".encode(), digest_size=8).hexdigest()
        for group in groups
    ]
    assert [group.key for group in groups] == expected
    assert len(set(expected)) == 2
