"""Stop a run once its rule is decided, with intervals that stay valid while it runs.

The tasks of such a run are put in a random order before the first one starts, and every level of the compared
factor works through them in that order. Results feed a `Monitor`, whose intervals hold however often one
looks. Items of levels that can decide nothing more are not started, so the next ones go to the others.
"""

import json
import random
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from proctor.errors import UsageError
from proctor.item import ERROR, SUCCESS, UNCHECKED, Item
from proctor.json_values import as_map
from proctor.metric import MEASURE, METRICS, SCORE, find_metric
from proctor.stats.intervals import Estimate
from proctor.stats.results import InputReader, Labels, score_name
from proctor.stats.sequential import DifferenceGoal, Goal, GoalStatus, Monitor, RankGoal, WidthGoal
from proctor.stop_rule import STOP_RULE, StopRule, StopState
from proctor.store import Resource, StoreReader
from proctor.store.results import FinishedColumns, finished_columns, metric_values, planned_columns

REFRESH_SECONDS = 1.0
"""How old the state of a running run may be when it is shown."""
REFRESH_SHARE = 10
"""Reading a large run takes at most one part in this many of the time."""


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


def check_items(items: Iterable[Item], rule: StopRule) -> None:
    """Raise `UsageError` where the items of a plan have nothing that the rule could decide."""
    names = dict[str, None]()
    levels = dict[str, None]()
    for item in items:
        names |= dict.fromkeys(item.factors)
        levels[level_of(item.factors, rule.by)] = None
    _check([level for level in levels if level], names, rule)


def is_same_rule(first: StopRule | None, other: StopRule | None) -> bool:
    """Whether a plan has the rule of a run; what counts as one observation follows from the items."""
    if first is None or other is None:
        return first is other
    return replace(first, unit=other.unit) == other


def arranged(items: Iterable[Item], rule: StopRule, seed: int) -> tuple[list[Item], StopRule]:
    """The items with their tasks in random order; the levels of a task, and its repeats, stay together.

    Also the rule as it applies to them: where there is only one task, its repeats are what is observed.
    """
    every = list(items)
    reader = InputReader()
    reader.add(
        {
            "digest": [item.digest for item in every],
            "runner": [item.runner for item in every],
            "agent": [item.agent for item in every],
            "model": [item.model for item in every],
            "prompt": [item.prompt for item in every],
            "details": [json.dumps(dict(item.details)) for item in every],
        }
    )
    levels = Labels.of(level_of(item.factors, rule.by) for item in every)
    repeats = [item.repeat for item in every]
    tasks = _tasks(reader, levels, repeats, rule)
    if not any(tasks) and max(repeats, default=1) > 1:
        rule = replace(rule, unit="repeat")
        tasks = _tasks(reader, levels, repeats, rule)
    places = list(range(max(tasks, default=-1) + 1))
    random.Random(seed).shuffle(places)
    order = sorted(range(len(every)), key=lambda at: (places[tasks[at]], every[at].repeat, at))
    return [every[at] for at in order], rule


def level_of(factors: Mapping[str, object], factor: str) -> str:
    """The level of a factor that an item has; empty: none."""
    level = factors.get(factor, "")
    return level if isinstance(level, str) else json.dumps(level)


def _check(levels: Sequence[str], names: Iterable[str], rule: StopRule) -> None:
    if not levels:
        raise UsageError(
            f"`stop_when`: no item has a factor {rule.by}\n"
            f"Name another one in `by`. There are: {', '.join(sorted(names)) or 'none'}."
        )
    goals_of(rule, levels)
    if len(levels) < 2 and (rule.decided or rule.ranks is not None):
        raise UsageError(
            f"`stop_when`: all items have {levels[0]} as their {rule.by}, so there is nothing to compare\n"
            "Use `width` alone, add a level, or name another factor in `by`."
        )


def _tasks(reader: InputReader, levels: Labels, repeats: Sequence[int], rule: StopRule) -> list[int]:
    """The task of each item, in order of appearance: its inputs without what differs between levels."""
    inputs = reader.inputs()
    varied = inputs.varied(levels.codes)
    codes: list[int] = inputs.coded(*(path for path in inputs.paths if path not in varied)).tolist()
    if rule.unit == "task":
        return codes
    numbers = dict[tuple[int, int], int]()
    return [numbers.setdefault(key, len(numbers)) for key in zip(codes, repeats, strict=True)]


@dataclass(slots=True)
class _LevelTask:
    """One task of one level."""

    level: str
    position: int
    values: dict[str, float | None] = field(default_factory=dict)
    """Of its finished repeats; None: an infrastructure error."""
    planned: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Who leads a run, by intervals that are valid at any time."""

    leader: str
    estimate: Estimate
    rivals: tuple[str, ...]
    """Levels that are not separated from the leader; empty: it is decided."""
    tasks: int
    """Tasks of the leader that its estimate is of: without those that ended in an infrastructure error."""
    unit: str
    needs: int | None
    """About how many further tasks would decide it, if they are like those so far; None: unknown."""
    left: int
    """Tasks of the leader that are not finished."""


class StopMonitor:
    """What the finished items of a run have decided. Built from the store, then fed with finished items."""

    def __init__(self, rule: StopRule, read: StoreReader, run_id: str) -> None:
        self.rule = rule
        self.run_id = run_id
        self._read = read
        reader = InputReader()
        ids, repeats, names = list[str](), list[int](), list[str]()
        factors = dict[str, None]()
        for page in planned_columns(read, run_id):
            reader.add(page)
            ids += page["id"]
            repeats += page["repeat"]
            # Each text once, and all of a page together: parsing row by row takes four times as long.
            texts = list(dict.fromkeys(page["factors"]))
            level_names = dict[str, str]()
            for text, known in zip(texts, json.loads(f"[{','.join(texts)}]"), strict=True):
                factors |= dict.fromkeys(as_map(known))
                level_names[text] = level_of(as_map(known), rule.by)
            names += map(level_names.__getitem__, page["factors"])
        levels = Labels.of(names)
        _check(levels.labels, factors, rule)
        tasks = _tasks(reader, levels, repeats, rule)
        metric = find_metric(rule.metric)
        # The scale of a score is what the rule says.
        is_bounded = rule.metric in METRICS
        self._monitor = Monitor(
            goals_of(rule, levels.labels),
            lo=0.0 if is_bounded else rule.scale[0],
            hi=1.0 if is_bounded else rule.scale[1],
            alpha=1 - rule.confidence,
            higher_is_better=metric.better != "lower",
            ratio=metric.is_skewed,
        )
        self.levels = levels.labels
        self.task_count = max(tasks, default=-1) + 1
        self._of_item: dict[str, _LevelTask] = {}
        cells: dict[tuple[int, int], _LevelTask] = {}
        for item_id, level, task in zip(ids, levels.codes.tolist(), tasks, strict=True):
            if level >= 0:
                cell = cells.get((level, task))
                if cell is None:
                    cell = cells[level, task] = _LevelTask(levels.labels[level], task)
                cell.planned += 1
                self._of_item[item_id] = cell
        for level, label in enumerate(levels.labels):
            for task in range(self.task_count):
                if (level, task) not in cells:
                    # A level that lacks a task is not held up by it.
                    self._monitor.add(label, task, [])
        self.read_finished()

    @property
    def is_decided(self) -> bool:
        """Whether nothing is left to decide."""
        return not self._undecided

    def wants(self, item_id: str) -> bool:
        """Whether an item can still decide something; items without a level always can."""
        cell = self._of_item.get(item_id)
        return cell is None or cell.level in self._undecided

    def finished(self, item_id: str, status: str, reason: str, session_id: str) -> None:
        """Add an item that has ended, and that is committed."""
        row = FinishedColumns(id=[item_id], status=[status], reason=[reason], sessionId=[session_id])
        is_column = find_metric(self.rule.metric).item_column
        pages = finished_columns(self._read, self.run_id, item_id) if is_column else [row]
        if any(self._add(page) for page in pages):
            self._undecided = set(self._monitor.undecided())

    def read_finished(self) -> None:
        """Add the items of the store that have ended since."""
        for page in finished_columns(self._read, self.run_id):
            self._add(page)
        self._undecided = set(self._monitor.undecided())

    def decisions(self) -> list[GoalStatus]:
        """What is decided and what is not, in the order of the rule."""
        return self._monitor.decisions()

    def intervals(self) -> dict[str, Estimate]:
        """The valid interval of each level."""
        return {level: self._monitor.estimate(level) for level in self.levels}

    def difference(self, baseline: str, candidate: str, *, errors_fail: bool = False) -> Estimate:
        """The valid interval of a difference, or ratio, that a goal is about."""
        return self._monitor.estimate(baseline, candidate, errors_fail=errors_fail)

    def standing(self) -> "Standing | None":
        """Who leads, and what would decide it; None: the rule ranks nothing, or no task counts yet."""
        if self.rule.ranks is None:
            return None
        intervals = self.intervals()
        known = {name: one for name, one in intervals.items() if one.value is not None}
        if len(known) < 2:
            return None
        sign = -1 if find_metric(self.rule.metric).better == "lower" else 1
        leader = max(known, key=lambda name: sign * (known[name].value or 0.0))
        needs = {
            name: self._monitor.tasks_to_separate(leader, name) for name in self.levels if name != leader
        }
        rivals = tuple(name for name, number in needs.items() if number != 0)
        projected = [needs[name] for name in rivals]
        return Standing(
            leader=leader,
            estimate=known[leader],
            rivals=rivals,
            tasks=known[leader].n,
            unit=self.rule.unit,
            needs=None if None in projected else max((each or 0 for each in projected), default=0),
            left=self.task_count - self._monitor.finished(leader),
        )

    def document(self) -> StopState:
        """The state as JSON, for summaries and pages."""
        return {
            "by": self.rule.by,
            "metric": self.rule.metric,
            "confidence": self.rule.confidence,
            "unit": self.rule.unit,
            "isDecided": self.is_decided,
            "taskCount": self.task_count,
            "decisions": [
                {"outcome": each.outcome, "reason": each.reason, "undecided": list(each.undecided)}
                for each in self.decisions()
            ],
            "intervals": [
                {
                    "name": level,
                    "value": interval.value,
                    "low": interval.low,
                    "high": interval.high,
                    "tasks": self._monitor.finished(level),
                    "isUndecided": level in self._undecided,
                }
                for level, interval in self.intervals().items()
            ],
        }

    def _add(self, rows: FinishedColumns) -> bool:
        """Note the values of items; whether a task is complete by them."""
        values, is_complete = self._values(rows), False
        cells = map(self._of_item.get, rows["id"])
        for at, (item_id, cell) in enumerate(zip(rows["id"], cells, strict=True)):
            if cell is None or item_id in cell.values:
                continue
            is_error = rows["status"][at] == ERROR
            cell.values[item_id] = (
                None if is_error else values[at] if values else self._scored(rows["sessionId"][at])
            )
            if len(cell.values) == cell.planned:
                self._monitor.add(cell.level, cell.position, list(cell.values.values()))
                is_complete = True
        return is_complete

    def _values(self, rows: FinishedColumns) -> Sequence[float | None]:
        """The values of items as far as their rows have them; empty: they are those of their sessions."""
        metric = self.rule.metric
        if metric == SUCCESS:
            ends = zip(rows["status"], rows["reason"], strict=True)
            return [None if reason == UNCHECKED else float(status == SUCCESS) for status, reason in ends]
        has_column = find_metric(metric).item_column
        return [amount or None for amount in metric_values(rows)[metric]] if has_column else []

    def _scored(self, session: str | None) -> float | None:
        """The mean score of a session, or the number that was measured in it, on the scale."""
        values = self._measured(session) if session else []
        if not values:
            return None
        low, high = self.rule.scale
        return min(high, max(low, sum(values) / len(values)))

    def _measured(self, session: str) -> list[float]:
        """The scores of a session, or the last value of a number that was measured in it."""
        metric = self.rule.metric
        if metric.startswith(MEASURE):
            rows = self._read.of_session("metrics", session)
            name = metric.removeprefix(MEASURE)
            return [row["value"] for row in rows if row["name"] == name and row["value"] is not None][-1:]
        return [
            row["value"]
            for row in self._read.of_session("scores", session)
            if metric in (SCORE + row["evaluator"], score_name(row["evaluator"], row["dimension"]))
            and row["value"] is not None
        ]


def stop_document(read: StoreReader, run_id: str) -> StopState | None:
    """The state of a run's rule as JSON; None: it has no rule."""
    rule = stored_rule(read, run_id)
    return StopMonitor(rule, read, run_id).document() if rule else None


class StopFollower:
    """The state of the rule of a run that another process may be executing, for views that look often."""

    def __init__(self, rule: StopRule, read: StoreReader, run_id: str) -> None:
        self._rule, self._read, self._run_id = rule, read, run_id
        self._lock = threading.Lock()
        self._monitor: StopMonitor | None = None
        self._seen: tuple[int, int] = (0, 0)
        self._next = 0.0
        self._document: StopState | None = None

    def monitor(self, items: int, finished: int) -> StopMonitor:
        """The monitor, as current as `document`."""
        self.document(items, finished)
        assert self._monitor is not None
        return self._monitor

    def document(self, items: int, finished: int) -> StopState:
        """The state as JSON, at most a second old while items finish; `items` of the run are `finished`."""
        with self._lock:
            began = time.monotonic()
            if (
                self._monitor is None
                or self._document is None
                or items != self._seen[0]
                or finished < self._seen[1]
            ):
                # Extended, or items that had ended are executed again.
                self._monitor = StopMonitor(self._rule, self._read, self._run_id)
            elif finished == self._seen[1] or (began < self._next and finished < items):
                return self._document
            else:
                self._monitor.read_finished()
            self._seen = (items, finished)
            self._document = self._monitor.document()
            ended = time.monotonic()
            self._next = ended + max(REFRESH_SECONDS, REFRESH_SHARE * (ended - began))
            return self._document
