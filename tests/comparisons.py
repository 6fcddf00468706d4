"""Comparisons straight from a store, as the command and the library make them in two steps."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from proctor.results.loading import load_results
from proctor.results.stopping import with_stop_rule
from proctor.stats.comparison import Comparison, Groups, compare_groups, groups_by, groups_of
from proctor.store import StoreReader


def groups_of_runs(read: StoreReader, runs: Sequence[str], now: datetime, *, pair: str = "") -> Groups:
    """Each run a group, the first one the baseline."""
    return groups_of(load_results(read, runs, now), pair=pair)


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
    groups = groups_by(load_results(read, [run], now), factor, pair=pair, against=against)
    return compare_groups(with_stop_rule(groups, read, run, factor), **options)
