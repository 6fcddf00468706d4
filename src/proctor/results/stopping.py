"""Stop a run once its rule is decided, with intervals that stay valid while it runs.

The tasks of such a run are put in a random order before the first one starts, and every level of the compared
factor works through them in that order. Results feed a `Monitor`, whose intervals hold however often one
looks, and with a tolerance a race or a check (`stats/adaptive.py`). Items of levels that can decide nothing
more are not started, so the next ones go to the others.
"""

import json
import math
import random
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import cast

from proctor.errors import UsageError
from proctor.formatting import plural
from proctor.item import SUCCESS, Item
from proctor.json_values import as_map
from proctor.metric import find_metric
from proctor.results.loading import InputReader
from proctor.results.observations import Scale, inputs_of, item_values, level_of, tasks_of
from proctor.results.stored_baseline import with_baseline_run, with_stored_results
from proctor.stats.adaptive import (
    FEWEST_TASKS,
    SCORE_WEIGHT,
    SUCCESS_WEIGHT,
    CheckTest,
    PickRace,
    check_expects,
    check_needs,
    mean_pair,
    race_expects,
    race_needs,
    smallest_margin,
    smallest_tolerance,
)
from proctor.stats.comparison import Groups
from proctor.stats.intervals import Estimate
from proctor.stats.results import Labels
from proctor.stats.sequential import DifferenceGoal, Goal, Monitor, RankGoal, WidthGoal
from proctor.stop_rule import STOP_RULE, RaceStanding, StopDecision, StopRule, StopState
from proctor.store import Resource, StoreReader
from proctor.store.results import FinishedColumns, finished_columns, planned_columns

REFRESH_SECONDS = 1.0
"""How old the state of a running run may be when it is shown."""
REFRESH_SHARE = 10
"""Reading a large run takes at most one part in this many of the time."""


def goals_of(rule: StopRule, levels: Sequence[str]) -> list[Goal]:
    """The goals for the levels of a plan. Raises `UsageError` for a baseline that is none of them."""
    if rule.against:
        return [WidthGoal(cell=level, width=0.0) for level in levels]
    if rule.pick is not None:
        # For the intervals that are shown beside the race; the pairs are not tested again.
        return [RankGoal(cells=tuple(levels))]
    baseline = rule.baseline or levels[0]
    if baseline not in levels:
        raise UsageError(
            f"`stop_when`: no item has {baseline} as its {rule.by}\nThere are: {', '.join(levels)}."
        )
    goals: list[Goal] = []
    if rule.decided or rule.check is not None:
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


def check_items(items: Iterable[Item], rule: StopRule, read: StoreReader) -> list[str]:
    """What the rule needs of the items of a plan, as sentences.

    Raise `UsageError` where they have nothing that the rule could decide.
    """
    if rule.is_adaptive:
        ordered, rule = arranged(items, rule, 0, read)
        return _forecast(rule, _levels(ordered, rule), _repeats(ordered, rule))
    names = dict[str, None]()
    levels = dict[str, None]()
    for item in items:
        names |= dict.fromkeys(item.factors)
        levels[level_of(item.factors, rule.by)] = None
    _check([level for level in levels if level], names, rule)
    return []


def is_same_rule(first: StopRule | None, other: StopRule | None) -> bool:
    """Whether a plan has the rule of a run; what is observed follows from the items and the store."""
    if first is None or other is None:
        return first is other
    known = replace(first, unit=other.unit, tasks=other.tasks, against=other.against, stored=other.stored)
    return known == other


def arranged(
    items: Iterable[Item], rule: StopRule, seed: int, read: StoreReader
) -> tuple[list[Item], StopRule]:
    """The items with their tasks in random order; the levels of a task, and its repeats, stay together.

    With a tolerance all tasks come once before any is repeated. Also the rule as it applies to them: where
    there is only one task, its repeats are what is observed; and a stored baseline has its results of now.
    """
    every = list(items)
    rule = with_baseline_run(rule, _levels(every, rule), read)
    reader = inputs_of(every)
    levels = Labels.of(level_of(item.factors, rule.by) for item in every)
    repeats = [item.repeat for item in every]
    tasks = tasks_of(reader, levels, repeats, rule.unit)
    if not any(tasks) and max(repeats, default=1) > 1:
        rule = replace(rule, unit="repeat")
        tasks = tasks_of(reader, levels, repeats, rule.unit)
    places = list(range(max(tasks, default=-1) + 1))
    random.Random(seed).shuffle(places)

    def pass_of(repeat: int) -> int:
        """Before it come all tasks of the pass before. A check takes the repeats of a task together."""
        if not rule.is_adaptive or rule.unit == "repeat":
            return 0
        return repeat if rule.pick is not None else int(repeat > 1)

    order = sorted(
        range(len(every)),
        key=lambda at: (pass_of(every[at].repeat), places[tasks[at]], every[at].repeat, at),
    )
    ordered, rule = [every[at] for at in order], replace(rule, tasks=len(places))
    if rule.against:
        rule = with_stored_results(rule, ordered, read)
    if rule.is_adaptive:
        names = dict.fromkeys(name for item in every for name in item.factors)
        _check(_levels(ordered, rule), names, rule)
        common = _common_tasks(rule) if rule.against else _least_shared(levels, tasks, rule)
        _check_size(rule, _levels(ordered, rule), _repeats(ordered, rule), common)
    return ordered, rule


def _least_shared(levels: Labels, tasks: Sequence[int], rule: StopRule) -> int:
    """The fewest tasks that two levels which are compared have in common."""
    own: list[set[int]] = [set() for _ in levels.labels]
    for level, task in zip(levels.codes.tolist(), tasks, strict=True):
        if level >= 0:
            own[level].add(task)
    baseline = levels.labels.index(rule.baseline) if rule.baseline else 0
    firsts = own if rule.pick is not None else [own[baseline]]
    return min((len(one & other) for one in firsts for other in own), default=0)


def _levels(items: Iterable[Item], rule: StopRule) -> list[str]:
    levels = dict.fromkeys(level_of(item.factors, rule.by) for item in items)
    return [level for level in levels if level]


def _repeats(items: Iterable[Item], rule: StopRule) -> int:
    """Planned runs of a task by one level."""
    return max((item.repeat for item in items), default=1) if rule.unit == "task" else 1


def _check(levels: Sequence[str], names: Iterable[str], rule: StopRule) -> None:
    if not levels:
        raise UsageError(
            f"`stop_when`: no item has a factor {rule.by}\n"
            f"Name another one in `by`. There are: {', '.join(sorted(names)) or 'none'}."
        )
    goals_of(rule, levels)
    needs_two = rule.decided or rule.ranks is not None or (rule.is_adaptive and not rule.against)
    if len(levels) < 2 and needs_two:
        raise UsageError(
            f"`stop_when`: all items have {levels[0]} as their {rule.by}, so there is nothing to compare\n"
            "Use `width` alone, add a level, or name another factor in `by`."
        )


def _check_size(rule: StopRule, levels: Sequence[str], repeats: int, tasks: int) -> None:
    """Refuse what so few common tasks cannot decide, with the number that could."""
    shared = f", of which a {rule.by} and another share {tasks}" if tasks < _common_tasks(rule) else ""
    if rule.pick is not None and tasks < FEWEST_TASKS:
        raise UsageError(
            f"`stop_when`: a race needs at least {FEWEST_TASKS} tasks, the plan has {rule.tasks}{shared}\n"
            "Add tasks."
        )
    if rule.check is None:
        return
    candidates = len(levels) - (0 if rule.against else 1)
    alpha = 1 - rule.confidence
    needed = check_needs(candidates, margin=rule.check, repeats=repeats, alpha=alpha)
    if tasks < needed:
        margin = smallest_margin(candidates, tasks, repeats, alpha=alpha)
        fitting = "" if margin is None else f", or choose a margin of at least {margin:g}"
        where = f" in common with run {rule.against}" if rule.against else ""
        raise UsageError(
            f"`stop_when`: a check with margin {rule.check:g} needs at least {needed} tasks to pass, and "
            f"the plan has {rule.tasks if shared else tasks}{where}{shared}\nAdd tasks{fitting}."
        )


def _common_tasks(rule: StopRule) -> int:
    """Tasks that can be observed: with a stored baseline, those that it has finished."""
    known = [sum(pair[1] is not None for pair in pairs) for pairs in rule.stored.values()]
    return min(known, default=rule.tasks)


def _forecast(rule: StopRule, levels: Sequence[str], repeats: int) -> list[str]:
    """What the rule needs at most, what it is expected to need, and what fits the plan."""
    tasks, count, alpha = _common_tasks(rule), len(levels), 1 - rule.confidence
    if rule.pick is not None:
        tolerance = rule.pick
        gaps = ", ".join(
            f"{race_expects(count, gap, tolerance=tolerance, alpha=alpha)} if it is {gap:.2g} worse"
            for gap in (tolerance, 2 * tolerance, 3 * tolerance)
        )
        most = plural(race_needs(count, tolerance=tolerance, alpha=alpha), rule.unit)
        sentences = [
            f"a race with tolerance {tolerance:g} needs at most {most} for each {rule.by}; "
            f"one leaves after about {gaps}"
        ]
        # Rounded up: the tolerance that is suggested has to be enough.
        fitting = math.ceil(100 * smallest_tolerance(count, tasks, repeats, alpha=alpha)) / 100
        if fitting > tolerance:
            sentences.append(
                f"{plural(tasks, rule.unit)} may leave it open: a tolerance of {fitting:g} would end it"
            )
        return sentences
    assert rule.check is not None
    candidates = count - (0 if rule.against else 1)
    fewest = check_needs(candidates, margin=rule.check, repeats=repeats, alpha=alpha)
    expected = max(fewest, check_expects(margin=rule.check))
    sentences = [
        f"a check with margin {rule.check:g} of a candidate that is as good passes after {fewest} to about "
        f"{plural(expected, rule.unit)}; the plan has {tasks}"
    ]
    if rule.against:
        sentences.append(f"the baseline is what run {rule.against} has stored, which is not run again")
    return sentences


@dataclass(slots=True)
class _LevelTask:
    """One observation of one level: a task with its repeats, or, with a tolerance, one run of it."""

    level: str
    position: int
    stage: int = 0
    """Of a race the number of the run, counted from 0; of a check 1 for all runs of a task together."""
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
        tasks = tasks_of(reader, levels, repeats, rule.unit)
        self.levels = levels.labels
        self.task_count = max(tasks, default=-1) + 1
        self._runs = max(repeats, default=1) if rule.is_adaptive and rule.unit == "task" else 1
        self._reads_first_runs = rule.unit == "task" and (rule.is_adaptive or rule.first_runs)
        self._scale = Scale.of(rule)
        self._monitor = self._new_monitor()
        self._race = self._new_race()
        self._check = self._new_check()
        self._of_item: dict[str, list[_LevelTask]] = {}
        self._level_of_item: dict[str, str] = {}
        self._ended = set[str]()
        cells: dict[tuple[int, int, int], _LevelTask] = {}
        for item_id, level, task, repeat in zip(ids, levels.codes.tolist(), tasks, repeats, strict=True):
            if level >= 0:
                self._level_of_item[item_id] = levels.labels[level]
                of_item = self._of_item[item_id] = []
                for stage in self._stages(repeat):
                    cell = cells.get((level, task, stage))
                    if cell is None:
                        cell = _LevelTask(levels.labels[level], task, stage)
                        cells[level, task, stage] = cell
                    cell.planned += 1
                    of_item.append(cell)
        stages = self._runs if self._race else 1 + (self._runs > 1)
        for level, label in enumerate(levels.labels):
            for task in range(self.task_count):
                for stage in range(stages):
                    if (level, task, stage) not in cells:
                        # A level that lacks a task is not held up by it.
                        self._observe(_LevelTask(label, task, stage))
        self.read_finished()

    def _stages(self, repeat: int) -> Iterator[int]:
        """The observations that a run of a task belongs to."""
        if self._race:
            yield min(repeat, self._runs) - 1
            return
        if repeat == 1 or not self._reads_first_runs:
            yield 0
        if self._check and self._runs > 1:
            yield 1

    def _new_monitor(self) -> Monitor:
        metric = find_metric(self.rule.metric)
        return Monitor(
            goals_of(self.rule, self.levels),
            lo=self._scale.low,
            hi=self._scale.high,
            alpha=1 - self.rule.confidence,
            higher_is_better=self._scale.better == "higher",
            ratio=metric.is_skewed,
            tasks=self.rule.tasks,
        )

    def _new_race(self) -> PickRace | None:
        if self.rule.pick is None:
            return None
        return PickRace(
            self.levels,
            tasks=self.task_count,
            repeats=self._runs,
            tolerance=self.rule.pick,
            alpha=1 - self.rule.confidence,
            weight=SUCCESS_WEIGHT if self.rule.metric == SUCCESS else SCORE_WEIGHT,
        )

    def _new_check(self) -> CheckTest | None:
        rule = self.rule
        if rule.check is None:
            return None
        baseline = rule.against or rule.baseline or self.levels[0]
        test = CheckTest(
            baseline,
            [level for level in self.levels if level != baseline],
            tasks=self.task_count,
            repeats=self._runs,
            margin=rule.check,
            alpha=1 - rule.confidence,
        )
        for level, pairs in rule.stored.items():
            for stage in range(1 + (self._runs > 1)):
                for position in range(self.task_count):
                    left_out, as_failure = pairs[position] if position < len(pairs) else (None, None)
                    test.add_baseline(level, position, (left_out, as_failure), stage=stage)
        return test

    @property
    def is_decided(self) -> bool:
        """Whether nothing is left to decide."""
        if self._race:
            return bool(self._race.pick)
        if self._check:
            return all(state.outcome != "open" for state in self._check.states())
        return not self._undecided

    def wants(self, item_id: str) -> bool:
        """Whether an item can still decide something; items without a level always can."""
        level = self._level_of_item.get(item_id)
        return level is None or level in self._undecided

    def finished(self, item_id: str, status: str, reason: str, session_id: str) -> None:
        """Add an item that has ended, and that is committed."""
        row = FinishedColumns(id=[item_id], status=[status], reason=[reason], sessionId=[session_id])
        is_column = find_metric(self.rule.metric).item_column
        pages = finished_columns(self._read, self.run_id, item_id) if is_column else [row]
        if any(self._add(page) for page in pages):
            self._undecided = self._find_undecided()

    def read_finished(self) -> None:
        """Add the items of the store that have ended since."""
        for page in finished_columns(self._read, self.run_id):
            self._add(page)
        self._undecided = self._find_undecided()

    def _find_undecided(self) -> set[str]:
        """The levels whose further items can decide something."""
        if self._race:
            return set() if self._race.is_over else set(self._race.left)
        return set(self._check.undecided() if self._check else self._monitor.undecided())

    def decisions(self) -> list[StopDecision]:
        """What is decided and what is not, in the order of the rule."""
        if self._race:
            return [_race_decision(self._race, self.rule)]
        if self._check:
            return _check_decisions(self._check)
        return [
            {"outcome": status.outcome, "reason": status.reason, "undecided": list(status.undecided)}
            for status in self._monitor.decisions()
        ]

    def intervals(self) -> dict[str, Estimate]:
        """The valid interval of each level; with a tolerance, of the first run of its tasks."""
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
            "decisions": self.decisions(),
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
            "mode": "pick" if self._race else "check" if self._check else "watch",
            "tolerance": self.rule.pick if self._race else self.rule.check,
            "race": self._standings(),
            "finishedRuns": len(self._ended),
            "plannedRuns": len(self._of_item),
        }

    def _standings(self) -> list[RaceStanding]:
        if self._race:
            return [
                {
                    "name": level.name,
                    "state": "picked" if level.name == self._race.pick else "in" if level.is_in else "out",
                    "tasks": self._race.looks if level.out_at is None else level.out_at,
                    "share": level.share,
                    "against": level.rival,
                }
                for level in self._race.standings()
            ]
        if self._check:
            return [
                {
                    "name": state.candidate,
                    "state": state.outcome,
                    "tasks": state.tasks,
                    "share": state.share,
                    "against": self._check.baseline,
                }
                for state in self._check.states()
            ]
        return []

    def _add(self, rows: FinishedColumns) -> bool:
        """Note the values of items; whether a task is complete by them."""
        new = [
            at
            for at, item_id in enumerate(rows["id"])
            if item_id in self._of_item and item_id not in self._ended
        ]
        rows = cast(
            "FinishedColumns",
            {
                name: [column[at] for at in new]
                for name, column in cast("dict[str, list[object]]", rows).items()
            },
        )
        is_complete = False
        for item_id, value in zip(rows["id"], item_values(self.rule, self._read, rows), strict=True):
            self._ended.add(item_id)
            for cell in self._of_item[item_id]:
                cell.values[item_id] = value
                if len(cell.values) == cell.planned:
                    self._observe(cell)
                    is_complete = True
        return is_complete

    def _observe(self, cell: _LevelTask) -> None:
        """Pass on an observation that is complete."""
        values = list(cell.values.values())
        if cell.stage == 0:
            self._monitor.add(cell.level, cell.position, values)
        if self._race or self._check:
            pair = self._scale.pair(mean_pair(values, self._scale.worst))
            if self._race:
                self._race.add(cell.level, cell.stage * self.task_count + cell.position, pair)
            if self._check:
                self._check.add(cell.level, cell.position, pair, stage=cell.stage)


MEASURED_CONFIDENCE = 0.95
"""The error of races was simulated at this confidence only."""


def _race_decision(race: PickRace, rule: StopRule) -> StopDecision:
    if race.pick:
        reason = f"use {race.pick}: it is at most {race.tolerance:g} worse than the best"
        if rule.confidence == MEASURED_CONFIDENCE:
            reason += " (wrong in at most 5% of races, measured)"
        return {"outcome": "picked", "reason": reason, "undecided": []}
    left = race.left
    if not race.is_over:
        return {"outcome": "open", "reason": f"{', '.join(left)} are in the race", "undecided": left}
    worst = race.at_most_worse()
    reason = f"{', '.join(left)} are left after all {rule.unit}s"
    if race.leader and worst is not None:
        reason += f"; {race.leader} leads, and is at most {worst:.2g} worse than another"
    return {"outcome": "open", "reason": reason, "undecided": left}


def _check_decisions(check: CheckTest) -> list[StopDecision]:
    undecided = set(check.undecided())
    decisions: list[StopDecision] = []
    for state in check.states():
        candidate, reason = state.candidate, f"{state.candidate} and {check.baseline}: not decided"
        if state.outcome == "pass":
            reason = f"{candidate} is not worse than {check.baseline} by {check.margin:g}"
        elif state.outcome == "fail":
            reason = f"{candidate} is worse than {check.baseline}"
        elif state.depends_on_errors:
            reason += ": errors decide it"
        levels = [check.baseline, candidate] if candidate in undecided else []
        decisions.append({"outcome": state.outcome, "reason": reason, "undecided": levels})
    return decisions


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


def with_stop_rule(groups: Groups, read: StoreReader, run: str, factor: str) -> Groups:
    """The levels of a run's factor, with the rule by which it could stop early; `run` may be abbreviated.

    As they are when `run` is no run of the store, but the name of a file.
    """
    run_id = groups.results.runs.labels[0]
    rule = stored_rule(read, run_id) if run_id.startswith(run) else None
    if rule is None or rule.by != factor:
        return replace(groups, rule=rule)
    return replace(groups, rule=rule, anytime=lambda rule: StopMonitor(rule, read, run_id))
