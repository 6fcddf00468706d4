"""Time, tokens, cost and tools of a run, from sums of the store."""

import pytest

from proctor.stats.usage import (
    Bin,
    Cost,
    SlowCall,
    Steps,
    Tokens,
    ToolUsage,
    cost_of,
    durations,
    merges,
    model_usage,
    nice_step,
    steps,
    tokens_of,
    tool_usage,
)
from proctor.store.aggregates import ModelSums, RankedDuration, ToolSums


def ranked(*values: float, only: set[int] | None = None) -> list[RankedDuration]:
    """Rows of ordered durations; `only` leaves out all but some ranks."""
    n, total, squares = len(values), sum(values), sum(value * value for value in values)
    return [
        {"n": n, "total": total, "squares": squares, "rank": rank, "v": value}
        for rank, value in enumerate(values, 1)
        if only is None or rank in only
    ]


def bars(*values: float) -> list[tuple[float, float, int]]:
    return [(each.low, each.high, each.count) for each in durations(ranked(*values)).bins]


def test_without_items_there_are_no_durations():
    none = durations([])
    assert (none.items, none.mean, none.std, none.median, none.p90, none.longest) == (0, *[None] * 5)
    assert none.bins == ()


def test_durations_have_mean_spread_median_and_tail():
    even = durations(ranked(1, 2, 4, 9))
    assert (even.items, even.mean, even.median, even.p90, even.longest) == (4, 4.0, 3.0, 9, 9)
    assert even.std == pytest.approx(3.559026)
    assert durations(ranked(1, 2, 9)).median == 2.0
    ten = durations(ranked(*range(1, 11)))
    assert (ten.median, ten.p90, ten.longest) == (5.5, 9, 10)
    eleven = durations(ranked(*range(1, 12)))
    assert (eleven.median, eleven.p90) == (6.0, 10)


def test_durations_need_only_the_ranks_that_are_read():
    few = durations(ranked(*range(1, 11), only={1, 5, 6, 9, 10}))
    assert (few.median, few.p90, few.longest) == (5.5, 9, 10)


def test_a_duration_is_not_negative_though_a_clock_was_set_back():
    back = durations(ranked(-5.0, 3.0))
    assert back.median == 1.5
    assert back.bins[0].low == 0.0 and sum(each.count for each in back.bins) == 2


def test_bars_have_round_widths_and_the_last_includes_its_end():
    assert bars(0.5, 1.0, 1.5, 11.0) == [
        (0.0, 1.0, 1),
        (1.0, 2.0, 2),
        *((low, low + 1.0, 0) for low in range(2, 11)),
        (11.0, 12.0, 1),
    ]
    assert bars(24.0)[1:3] == [(2.0, 4.0, 0), (4.0, 6.0, 0)]
    assert bars(24.0)[-1] == (24.0, 26.0, 1)


def test_items_that_took_no_time_are_one_bar():
    assert bars(0.0, 0.0) == [(0.0, 1.0, 2)]


def test_a_long_tail_is_one_bar_so_that_the_rest_can_be_seen():
    values = [*range(1, 200), 1000.0]
    shown = durations(ranked(*values)).bins
    assert shown[0] == Bin(low=0.0, high=20.0, count=19)
    assert shown[-1] == Bin(low=200.0, high=1000.0, count=1)
    assert sum(each.count for each in shown) == 200

    usual = durations(ranked(*range(1, 200), 297.0)).bins
    assert usual[-1].low < 297.0 < usual[-1].high, "one and a half times the 99th percentile is no long tail"
    assert durations(ranked(*range(1, 200), 298.0)).bins[-1].high == 298.0


@pytest.mark.parametrize(
    ("rough", "step"),
    [(0.9, 1.0), (1.0, 1.0), (1.1, 2.0), (2.0, 2.0), (2.1, 5.0), (5.1, 10.0), (30, 50.0), (0.03, 0.05)],
)
def test_steps_are_those_people_count_in(rough, step):
    assert nice_step(rough) == pytest.approx(step)


def test_rounding_makes_a_step_no_larger():
    assert nice_step(0.2 * (1 + 1e-10)) == pytest.approx(0.2)
    assert nice_step(0.2 * (1 + 1e-8)) == pytest.approx(0.5)


def sums(model: str, **more: float | None) -> ModelSums:
    row = {"model": model, "calls": 2, "failed": 1, "prompt": 10, "cached": 4, "completion": 6}
    row |= {"reasoning": 3, "cost": None, "unpriced": 2}
    return row | more  # type: ignore[return-value]


def test_models_are_listed_by_tokens_and_then_by_name():
    used = model_usage([sums("b"), sums("c", prompt=11), sums("a")])
    assert [usage.model for usage in used] == ["c", "a", "b"]
    first = used[0]
    assert (first.total_tokens, first.average_tokens, first.failed_calls) == (17, 8.5, 1)
    assert model_usage([sums("none", calls=0)])[0].average_tokens == 0.0


def test_tokens_and_cost_of_all_models_together():
    used = model_usage([sums("a", cost=0.5, unpriced=0), sums("b", prompt=20), sums("c", cost=0.25)])
    assert tokens_of(used) == Tokens(prompt=40, cached=12, completion=18, reasoning=9, calls=6)
    assert tokens_of(used).total == 58
    cost = cost_of(used, 0.125)
    assert cost == Cost(known_usd=0.75, unpriced_calls=4, judging_usd=0.125)
    assert not cost.is_complete
    assert cost_of(used[-1:], None).known_usd == 0.25


def test_a_cost_without_any_price_is_unknown_and_one_with_all_prices_complete():
    assert cost_of(model_usage([sums("a")]), None).known_usd is None
    free = cost_of(model_usage([sums("a", cost=0.0, unpriced=0)]), None)
    assert free.known_usd == 0.0 and free.is_complete


def tool(name: str, **more: object) -> ToolSums:
    row = {"tool": name, "calls": 4, "succeeded": 1, "judged": 2, "ms": 30.0, "measured": 3}
    return row | {"session": None, "position": None} | more  # type: ignore[return-value]


def test_tools_are_listed_by_calls_and_then_by_name_with_their_share_of_successes():
    usage, slow = tool_usage(
        [
            tool("write"),
            tool("bash", calls=5, ms=None, measured=0),
            tool("read", succeeded=None, judged=0),
        ],
        lambda session, position: "",
    )
    assert usage == (
        ToolUsage(tool="bash", calls=5, succeeded=1, judged=2, average_ms=None),
        ToolUsage(tool="read", calls=4, succeeded=0, judged=0, average_ms=10.0),
        ToolUsage(tool="write", calls=4, succeeded=1, judged=2, average_ms=10.0),
    )
    assert [each.success_rate for each in usage] == [0.5, None, 0.5]
    assert slow == ()


def test_the_slowest_calls_come_first_with_their_arguments():
    calls = [
        tool("a", session="s2", position=1, ms=5.0, succeeded=0, judged=1),
        tool("b", session="s1", position=7, ms=5.0, succeeded=None, judged=0),
        tool("c", session="s1", position=3, ms=5.0),
        tool("d", session="s3", position=0, ms=9.0),
        tool("e", session="s3", position=2, ms=None),
    ]
    usage, slow = tool_usage(calls, lambda session, position: f"{session}:{position}")
    assert usage == ()
    assert [(call.tool, call.arguments, call.success) for call in slow] == [
        ("d", "s3:0", True),
        ("c", "s1:3", True),
        ("b", "s1:7", None),
        ("a", "s2:1", False),
    ]
    assert slow[0] == SlowCall(tool="d", duration_ms=9.0, success=True, session_id="s3", arguments="s3:0")


def test_steps_that_nobody_counted_are_none():
    some = {"n": 4, "checks": 3, "passed": 2, "files": 5, "added": 7, "removed": 6}
    assert steps(some) == Steps(  # type: ignore[arg-type]
        iterations=4, checks=3, checks_passed=2, changed_files=5, lines_added=7, lines_removed=6
    )
    nothing = dict.fromkeys(some) | {"n": 0}
    assert steps(nothing) == Steps(  # type: ignore[arg-type]
        iterations=0, checks=0, checks_passed=0, changed_files=0, lines_added=0, lines_removed=0
    )
    assert merges([{"result": "merged", "n": 2}, {"result": "conflict", "n": 1}]) == {
        "merged": 2,
        "conflict": 1,
    }


@pytest.mark.parametrize(
    ("rough", "step"),
    [
        (0.7, 1),
        (1.0, 1),
        (1.1, 2),
        (2.0, 2),
        (2.1, 5),
        (5.0, 5),
        (5.1, 10),
        (0.03, 0.05),
        (200.0, 200),
        (3e-4, 5e-4),
    ],
)
def test_steps_are_numbers_that_people_count_in(rough, step):
    assert nice_step(rough) == pytest.approx(step)
    assert nice_step(rough * (1 + 1e-12)) == pytest.approx(step), "but for rounding"


def test_a_histogram_has_about_twelve_bars():
    assert [len(bars(*range(1, longest + 1))) for longest in (12, 13, 24, 25)] == [13, 7, 13, 6]


@pytest.mark.parametrize(
    ("usual", "longest", "has_tail"),
    [(0.2, 0.4, True), (0.2, 0.3, False), (10.0, 16.0, True), (10.0, 15.0, False), (0.0, 5.0, False)],
)
def test_a_tail_begins_at_half_as_much_again_as_what_is_usual(usual, longest, has_tail):
    """199 items of one duration and one of another, also where that is below a second."""
    bins = durations(ranked(*[usual] * 199, longest)).bins
    assert (bins[-1].high == longest and bins[-1].count == 1 and bins[-1].low <= usual * 1.2) is has_tail
    assert sum(each.count for each in bins) == 200
