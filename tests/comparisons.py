"""Comparisons straight from a store, as the command and the library make them in two steps."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from proctor.stats.comparison import Comparison, compare_groups, groups_of_runs, groups_within
from proctor.store import StoreReader


def compare_runs(
    read: StoreReader, runs: Sequence[str], now: datetime, *, pair: str = "", **options: Any
) -> Comparison:
    """Compare runs of any job with the first of them; the options are those of `compare_groups`."""
    return compare_groups(groups_of_runs(read, runs, now, pair=pair), **options)


def compare_within(
    read: StoreReader,
    run: str,
    factor: str,
    now: datetime,
    *,
    pair: str = "",
    against: str = "",
    **options: Any,
) -> Comparison:
    """Compare the levels of a factor of one run with one of them."""
    return compare_groups(groups_within(read, run, factor, now, pair=pair, against=against), **options)
