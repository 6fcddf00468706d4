"""What is observed of the items of a run with `stop_when`: task, level, and value on the rule's scale."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from proctor.item import ERROR, SUCCESS, UNCHECKED, Item
from proctor.metric import MEASURE, METRICS, SCORE, find_metric, score_name
from proctor.results.loading import InputReader
from proctor.stats.adaptive import Pair
from proctor.stats.results import Labels
from proctor.stop_rule import StopRule
from proctor.store import StoreReader
from proctor.store.results import FinishedColumns, metric_values


@dataclass(frozen=True, slots=True)
class Scale:
    """The ends of what is observed, and which of them is the better one."""

    low: float
    high: float
    better: str
    """`higher` or `lower`."""

    @classmethod
    def of(cls, rule: StopRule) -> "Scale":
        """That of a rule's metric; the scale of a score is what the rule says, the worst end first."""
        if rule.metric in METRICS:
            return cls(0.0, 1.0, "lower" if find_metric(rule.metric).better == "lower" else "higher")
        low, high = sorted(rule.scale)
        return cls(low, high, "higher" if rule.scale[0] == low else "lower")

    @property
    def worst(self) -> float:
        """The value of an error that counts as a failure."""
        return self.low if self.better == "higher" else self.high

    def pair(self, values: Pair) -> Pair:
        """Values as shares of the scale, with 1 for the best."""
        left_out, as_failure = map(self._share, values)
        return left_out, as_failure

    def _share(self, value: float | None) -> float | None:
        if value is None:
            return None
        share = (value - self.low) / (self.high - self.low)
        return share if self.better == "higher" else 1 - share


def level_of(factors: Mapping[str, object], factor: str) -> str:
    """The level of a factor that an item has; empty: none."""
    level = factors.get(factor, "")
    return level if isinstance(level, str) else json.dumps(level)


def inputs_of(items: Sequence[Item]) -> InputReader:
    """A reader with the inputs of items that are not stored yet."""
    reader = InputReader()
    reader.add(
        {
            "digest": [item.digest for item in items],
            "runner": [item.runner for item in items],
            "agent": [item.agent for item in items],
            "model": [item.model for item in items],
            "prompt": [item.prompt for item in items],
            "details": [json.dumps(dict(item.details)) for item in items],
        }
    )
    return reader


def tasks_of(reader: InputReader, levels: Labels, repeats: Sequence[int], unit: str) -> list[int]:
    """The task of each item, in order of appearance: its inputs without what differs between levels."""
    inputs = reader.inputs()
    varied = inputs.varied(levels.codes)
    codes: list[int] = inputs.coded(*(path for path in inputs.paths if path not in varied)).tolist()
    if unit == "task":
        return codes
    numbers = dict[tuple[int, int], int]()
    return [numbers.setdefault(key, len(numbers)) for key in zip(codes, repeats, strict=True)]


def item_values(rule: StopRule, read: StoreReader, rows: FinishedColumns) -> list[float | None]:
    """What is observed of finished items; None: an infrastructure error, or nothing was measured."""
    metric = rule.metric
    ends = list(zip(rows["status"], rows["reason"], rows["sessionId"], strict=True))
    if metric == SUCCESS:
        values = [None if reason == UNCHECKED else float(status == SUCCESS) for status, reason, _ in ends]
    elif find_metric(metric).item_column:
        values = [amount or None for amount in metric_values(rows)[metric]]
    else:
        values = [_scored(rule, read, session) for _, _, session in ends]
    return [None if end[0] == ERROR else value for end, value in zip(ends, values, strict=True)]


def _scored(rule: StopRule, read: StoreReader, session: str | None) -> float | None:
    """The mean score of a session, or the number that was measured in it, on the scale."""
    values = _measured(rule.metric, read, session) if session else []
    if not values:
        return None
    low, high = sorted(rule.scale)
    return min(high, max(low, sum(values) / len(values)))


def _measured(metric: str, read: StoreReader, session: str) -> list[float]:
    """The scores of a session, or the last value of a number that was measured in it."""
    if metric.startswith(MEASURE):
        name = metric.removeprefix(MEASURE)
        rows = read.of_session("metrics", session)
        return [row["value"] for row in rows if row["name"] == name and row["value"] is not None][-1:]
    return [
        row["value"]
        for row in read.of_session("scores", session)
        if metric in (SCORE + row["evaluator"], score_name(row["evaluator"], row["dimension"]))
        and row["value"] is not None
    ]
