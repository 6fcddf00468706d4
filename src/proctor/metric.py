"""Metrics: what items are compared, ranked, gated and stopped by, and how people read their values.

`METRICS` has those that every item may have. A new one is one entry there: its column of items is read, and
commands, plans, pages and reports know it. Scores are metrics called `score:EVALUATOR`, and numbers that are
measured in sessions `metric:NAME`: `find_metric` makes them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from proctor.formatting import UNKNOWN, figure, percent, seconds, short, usd

Unit = Literal["share", "usd", "seconds", "count", "number"]
_FORMATTERS: Mapping[Unit, Callable[[float | None], str]] = {
    "share": percent,
    "usd": usd,
    "seconds": seconds,
    "count": short,
    "number": figure,
}
SCORE, MEASURE = "score:", "metric:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One way to measure an item."""

    name: str
    title: str
    """What a page calls it."""
    unit: Unit = "number"
    better: Literal["higher", "lower", "neither"] = "higher"
    is_skewed: bool = False
    """Whether it is compared as a ratio, and summarized by typical values: a few items are far above most."""
    item_column: str = ""
    """The column of items with its values. Empty: they are computed."""
    session_column: str = ""
    """The same of sessions, for those that belong to no run."""
    is_zero_unknown: bool = False
    """Whether 0 means that nothing was counted."""
    more: str = ""
    """What is said of one that has more of it: `costs more`."""
    less: str = ""

    @property
    def word(self) -> str:
        """What it is called in a sentence: `cost`, `Helpfulness`."""
        return self.name if self.name in METRICS else self.title

    def say(self, value: float | None) -> str:
        """A value as people read it."""
        return _FORMATTERS[self.unit](value)

    def say_change(self, value: float | None) -> str:
        """A difference of two values as people read it, with its sign."""
        if value is None:
            return UNKNOWN
        sign = "+" if value > 0 else "−" if value < 0 else "±"
        if self.unit == "share":
            return f"{sign}{abs(value) * 100:.1f} pp"
        return f"{sign}{self.say(abs(value))}"


METRICS = {
    metric.name: metric
    for metric in (
        Metric(
            name="success",
            title="Success",
            unit="share",
            more="succeeds more often",
            less="succeeds less often",
        ),
        Metric(
            name="cost",
            title="Cost",
            unit="usd",
            better="lower",
            is_skewed=True,
            item_column="costUsd",
            session_column="costUsd",
            more="costs more",
            less="costs less",
        ),
        Metric(
            name="time",
            title="Time",
            unit="seconds",
            better="lower",
            is_skewed=True,
            item_column="workSeconds",
            session_column="workSeconds",
            more="takes longer",
            less="takes less time",
        ),
        Metric(
            name="tokens",
            title="Tokens",
            unit="count",
            better="lower",
            is_skewed=True,
            item_column="tokensTotal",
            session_column="totalTokens",
            is_zero_unknown=True,
            more="uses more tokens",
            less="uses fewer tokens",
        ),
    )
}
"""Metrics that every item may have, in the order in which they are shown."""
METRIC_TITLES = {name: metric.title for name, metric in METRICS.items()}
METRICS_HELP = f"{', '.join(METRICS)}, {SCORE}EVALUATOR, or {MEASURE}NAME"
"""All metrics, for help texts."""


@cache
def find_metric(name: str) -> Metric:
    """A metric by its name; scores and measured numbers by their beginning."""
    if name in METRICS:
        return METRICS[name]
    title = name.removeprefix(SCORE).removeprefix(MEASURE).removeprefix("Builtin.")
    return Metric(name=name, title=title, better="neither" if name.startswith(MEASURE) else "higher")


def measure_title(name: str) -> str:
    """What people call a measure of a study: `berth_fee` is Berth fee, `num_turns` Number of turns, and
    `score.Help` Help score."""
    bare = name.removeprefix("score.")
    words = bare.replace("_", " ") + (" score" if bare != name else "")
    words = f"number of {words[4:]}" if words.startswith("num ") else words
    return words[:1].upper() + words[1:]


def score_name(evaluator: str, dimension: str = "") -> str:
    """What a score is called as a metric."""
    return f"{SCORE}{evaluator}/{dimension}" if dimension else SCORE + evaluator
