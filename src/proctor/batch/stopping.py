"""Stop a run once what its plan wants to know is decided, with intervals that stay valid while it runs.

The tasks of such a run are put in a random order before the first one starts, and every level of the compared
factor works through them in that order. Results feed a `Monitor`, whose intervals hold however often one
looks. Items of levels that can decide nothing more are not started, so the next ones go to the others.
"""

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from proctor.batch.executor import STOP_RULE
from proctor.errors import UsageError
from proctor.item import ERROR, FINISHED, SUCCESS, Item
from proctor.job import ItemFinished, StopRule
from proctor.json_values import as_map
from proctor.stats.intervals import Estimate
from proctor.stats.results import InputReader, Ints, Labels
from proctor.stats.sequential import DifferenceGoal, Goal, GoalStatus, Monitor, RankGoal, WidthGoal
from proctor.store import Resource, StoreReader
from proctor.store.results import PlannedRow, planned_rows

RATIOS = ("cost", "time")


def goals_of(rule: StopRule, levels: Sequence[str]) -> list[Goal]:
    """The goals for the levels of a plan. Raises `UsageError` for a baseline that is none of them."""
    baseline = rule.baseline or levels[0]
    if baseline not in levels:
        raise UsageError(
            f"`stop_when`: no item has {baseline} as its {rule.by}\nThere are: {', '.join(levels)}."
        )
    goals: list[Goal] = []
    if rule.decided:
        others = [level for level in levels if level != baseline]
        goals += [DifferenceGoal(baseline=baseline, candidate=each, margin=rule.margin) for each in others]
    if rule.width is not None:
        goals += [WidthGoal(cell=level, width=rule.width) for level in levels]
    if rule.ranks is not None and len(levels) > 1:
        goals.append(RankGoal(cells=tuple(levels), places=rule.ranks or None))
    return goals


def rule_resource(rule: StopRule) -> Resource:
    """The rule as it is stored with its run."""
    return Resource(kind=STOP_RULE, name=STOP_RULE, digest=STOP_RULE, content=json.dumps(asdict(rule)))


def stored_rule(read: StoreReader, run_id: str) -> StopRule | None:
    """The rule of a run; None: it runs to its end."""
    content = read.resource(run_id, STOP_RULE)
    if content is None:
        return None
    values = dict(as_map(json.loads(content)))
    values["scale"] = tuple(values["scale"])  # type: ignore[arg-type]
    return StopRule(**values)  # type: ignore[arg-type]


def arranged(items: Iterable[Item], rule: StopRule, seed: int) -> list[Item]:
    """The items with their tasks in random order; the levels of a task, and its repeats, stay together."""
    every = list(items)
    reader = InputReader()
    for item in every:
        top = {"runner": item.runner, "agent": item.agent, "model": item.model, "prompt": item.prompt}
        reader.add(item.digest, top, json.dumps(dict(item.details)))
    levels = Labels.of(str(item.factors.get(rule.by, "")) for item in every)
    _check(levels, rule)
    tasks = _tasks(reader, levels)
    places = list(range(int(tasks.max()) + 1 if len(tasks) else 0))
    random.Random(seed).shuffle(places)
    order = sorted(range(len(every)), key=lambda at: (places[tasks[at]], every[at].repeat, at))
    return [every[at] for at in order]


def _check(levels: Labels, rule: StopRule) -> None:
    if not levels.labels:
        raise UsageError(f"`stop_when`: no item has a factor {rule.by}\nName another one in `by`.")
    if not goals_of(rule, levels.labels):
        raise UsageError(
            f"`stop_when`: all items have the same {rule.by}, so there is nothing to compare\n"
            "Use `width`, or add a level."
        )


def _tasks(reader: InputReader, levels: Labels) -> Ints:
    """The task of each item, in order of appearance: its inputs without what differs between levels."""
    inputs = reader.inputs()
    varied = inputs.varied(levels.codes)
    return inputs.coded(*(path for path in inputs.paths if path not in varied))


@dataclass(slots=True)
class _LevelTask:
    """One task of one level."""

    level: str
    position: int
    values: dict[str, float | None] = field(default_factory=dict)
    """Of its finished repeats; None: an infrastructure error."""
    planned: int = 0


class StopMonitor:
    """What the finished items of a run have decided. Made from the store, then told each item that ends."""

    def __init__(self, rule: StopRule, read: StoreReader, run_id: str) -> None:
        self.rule = rule
        self._read = read
        rows = list(planned_rows(read, run_id))
        reader = InputReader()
        for row in rows:
            reader.add(row["digest"], _top(row), row["details"])
        levels = Labels.of(_level(row, rule.by) for row in rows)
        _check(levels, rule)
        tasks = _tasks(reader, levels)
        is_ratio = rule.metric in RATIOS
        self._monitor = Monitor(
            goals_of(rule, levels.labels),
            lo=rule.scale[0] if rule.metric not in (SUCCESS, *RATIOS) else 0.0,
            hi=rule.scale[1] if rule.metric not in (SUCCESS, *RATIOS) else 1.0,
            alpha=1 - rule.confidence,
            higher_is_better=not is_ratio,
            ratio=is_ratio,
        )
        self.levels = levels.labels
        self._cells: dict[tuple[int, int], _LevelTask] = {}
        self._cell_of: dict[str, _LevelTask] = {}
        for row, level, task in zip(rows, levels.codes.tolist(), tasks.tolist(), strict=True):
            if level >= 0:
                cell = self._cells.setdefault((level, task), _LevelTask(levels.labels[level], task))
                cell.planned += 1
                self._cell_of[row["id"]] = cell
        for level, label in enumerate(levels.labels):
            for task in range(int(tasks.max()) + 1):
                if (level, task) not in self._cells:
                    # A level that lacks a task is not held up by it.
                    self._monitor.add(label, task, [])
        self._undecided = set(self._monitor.undecided())
        for row in rows:
            if row["status"] in FINISHED:
                self._add(row["id"], row["status"], row["costUsd"], row["workSeconds"], row["sessionId"])
        self._refresh()

    @property
    def is_decided(self) -> bool:
        """Whether nothing is left to decide."""
        return not self._undecided

    def wants(self, item_id: str) -> bool:
        """Whether an item can still decide something."""
        cell = self._cell_of.get(item_id)
        return cell is not None and cell.level in self._undecided

    def finished(self, item: ItemFinished) -> list[GoalStatus]:
        """An item has ended, and that is committed; what is decided by it."""
        before = {decision.goal for decision in self.decisions() if decision.is_decided}
        if self._add(item.id, item.outcome.status, item.cost_usd, item.work_seconds, item.session_id):
            self._refresh()
        return [each for each in self.decisions() if each.is_decided and each.goal not in before]

    def decisions(self) -> list[GoalStatus]:
        """What is decided and what is not, in the order of the rule."""
        return self._monitor.decisions()

    def intervals(self) -> dict[str, Estimate]:
        """The valid interval of each level."""
        return {level: self._monitor.estimate(level) for level in self.levels}

    def difference(self, baseline: str, candidate: str) -> Estimate:
        """The valid interval of a difference, or ratio, that a goal is about."""
        return self._monitor.estimate(baseline, candidate)

    def document(self) -> dict[str, object]:
        """The state as JSON, for summaries and pages."""
        return {
            "by": self.rule.by,
            "metric": self.rule.metric,
            "confidence": self.rule.confidence,
            "isDecided": self.is_decided,
            "decisions": [
                {"outcome": each.outcome, "reason": each.reason, "undecided": list(each.undecided)}
                for each in self.decisions()
            ],
            "intervals": [
                {
                    "name": level,
                    "value": one.value,
                    "low": one.low,
                    "high": one.high,
                    "tasks": self._monitor.finished(level),
                    "isUndecided": level in self._undecided,
                }
                for level, one in self.intervals().items()
            ],
        }

    def _add(
        self, item_id: str, status: str, cost: float | None, seconds: float | None, session: str | None
    ) -> bool:
        """Note the value of an item; whether its task is complete by it."""
        cell = self._cell_of.get(item_id)
        if cell is None or item_id in cell.values:
            return False
        cell.values[item_id] = None if status == ERROR else self._value(status, cost, seconds, session)
        if len(cell.values) < cell.planned:
            return False
        self._monitor.add(cell.level, cell.position, list(cell.values.values()))
        return True

    def _value(
        self, status: str, cost: float | None, seconds: float | None, session: str | None
    ) -> float | None:
        if self.rule.metric == "success":
            return float(status == SUCCESS)
        if self.rule.metric in RATIOS:
            amount = cost if self.rule.metric == "cost" else seconds
            return amount if amount else None
        name = self.rule.metric.partition(":")[2]
        scores = self._read.of_session("scores", session) if session else []
        values = [row["value"] for row in scores if row["evaluator"] == name and row["value"] is not None]
        if not values:
            return None
        low, high = self.rule.scale
        return min(high, max(low, sum(values) / len(values)))

    def _refresh(self) -> None:
        self._undecided = set(self._monitor.undecided())


def _top(row: PlannedRow) -> Mapping[str, str]:
    return {"runner": row["runner"], "agent": row["agent"], "model": row["model"], "prompt": row["prompt"]}


def _level(row: PlannedRow, factor: str) -> str:
    factors: Mapping[str, object] = json.loads(row["factors"])
    level = factors.get(factor, "")
    return level if isinstance(level, str) else json.dumps(level)
