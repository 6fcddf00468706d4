"""Designs that answer with a tolerance: which model to use (`pick`), and whether one is not worse (`check`).

`PickRace` is the fully sequential selection of Kim and Nelson (2001) with running variances: in at most 5% of
races it names a level that is more than the tolerance worse than the best. The error is measured, not proved
(`benchmarks/adaptive.py`). `CheckTest` has two test martingales with the stakes of Wald's test; by Ville's
inequality a candidate that is worse by the tolerance passes, and one that is as good fails, each with
probability at most alpha, at all looks together.

Both read observations in the order of their positions, which is random and fixed before the first result, and
handle errors both ways, left out and as the worst value: only what holds both ways is decided.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from proctor.errors import UsageError

FEWEST_TASKS = 10
"""Common tasks before a level can leave a race."""
SUCCESS_WEIGHT, SCORE_WEIGHT = 1.0, 3.0
"""Pseudo-tasks at each end of the scale; scores need three because rare collapses hide in few tasks."""
CONSTANT = 1.7
"""In place of Kim and Nelson's 2; with the pseudo-tasks the measured error stays below 5%."""
LARGEST_VARIANCE = 0.25
"""Of a difference of two successes, for forecasts: half of all tasks tell two levels apart by one run."""
BETWEEN_TASKS = 0.4
"""Share of a difference's variance that repeats cannot reduce: 0.25 to 0.4 on public tables."""
MOST_TASKS = 100_000
"""Of a suite, in forecasts."""

Pair = tuple[float | None, float | None]
"""An observation from 0 to 1, the best: errors left out, and as the worst value. None: it has none."""


def race_constant(levels: int, alpha: float = 0.05) -> float:
    """`g` of the triangle of a race between so many levels."""
    return math.log((levels - 1) / (CONSTANT * alpha))


def race_boundary(
    total: float,
    squares: float,
    tasks: int,
    *,
    tolerance: float,
    constant: float,
    weight: float = SUCCESS_WEIGHT,
) -> float:
    """How large a sum of differences must be for the other level to leave, after so many tasks."""
    return float(
        boundary_of(np.array(total), np.array(squares), np.array(tasks), tolerance, constant, weight)
    )


def variance_of(total: Any, squares: Any, tasks: Any, weight: float) -> Any:
    """The variance of differences from their sums, with so many pseudo-tasks at each end of the scale."""
    padded = tasks + 2 * weight
    return (squares + 2 * weight) / padded - (total / padded) ** 2


def boundary_of(
    total: Any, squares: Any, tasks: Any, tolerance: float, constant: float, weight: float
) -> Any:
    """`race_boundary` of arrays."""
    variance = variance_of(total, squares, tasks, weight)
    return np.maximum(0.0, constant * variance / tolerance - tolerance * tasks / 2)


class _Differences:
    """Sums of the differences of task means between all pairs of levels."""

    def __init__(self, levels: int, tasks: int) -> None:
        self._sums = np.zeros((levels, tasks))
        self._counts = np.zeros((levels, tasks), dtype=np.int64)
        self.totals = np.zeros((levels, levels))
        self.squares = np.zeros((levels, levels))
        self.tasks = np.zeros((levels, levels), dtype=np.int64)

    def add(self, task: int, values: Sequence[float | None]) -> None:
        """The next observation of a task, one value for each level."""
        self._count(task, -1)
        for level, value in enumerate(values):
            if value is not None:
                self._sums[level, task] += value
                self._counts[level, task] += 1
        self._count(task, 1)

    def _count(self, task: int, sign: int) -> None:
        counts = self._counts[:, task]
        means = self._sums[:, task] / np.maximum(counts, 1)
        is_common = (counts[:, None] > 0) & (counts[None, :] > 0)
        differences = np.where(is_common, means[:, None] - means[None, :], 0.0)
        self.totals += sign * differences
        self.squares += sign * differences**2
        self.tasks += sign * is_common

    def mean(self, level: int) -> float | None:
        """The mean of the means of a level's tasks."""
        counts = self._counts[level]
        has_value = counts > 0
        if not has_value.any():
            return None
        return float((self._sums[level][has_value] / counts[has_value]).mean())


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceLevel:
    """How one level of a race stands."""

    name: str
    is_in: bool
    out_at: int | None
    """Number of positions after which it left; None: it is in the race."""
    rival: str
    """The level that is nearest to putting it out, or did; empty: none is ahead of it."""
    share: float
    """Of the way out that it has gone, 0 to 1, measured against that rival."""


class PickRace:
    """Which level to use: losers leave the race, and the last one is named.

    Position p is the (p div tasks + 1)-th run of task p mod tasks. All levels that are left run the same
    positions; a look follows each position that all of them have finished.

    >>> race = PickRace(["old", "new"], tasks=60, tolerance=0.2)
    >>> for position in range(60):
    ...     race.add("old", position, (0.0, 0.0))
    ...     race.add("new", position, (1.0, 1.0))
    >>> race.pick, race.looks
    ('new', 10)
    """

    def __init__(
        self,
        levels: Sequence[str],
        *,
        tasks: int,
        repeats: int = 1,
        tolerance: float,
        alpha: float = 0.05,
        weight: float = SUCCESS_WEIGHT,
    ) -> None:
        if len(levels) < 2:
            raise UsageError("a race needs at least two levels")
        if not 0 < tolerance < 1:
            raise UsageError(
                f"a tolerance of {tolerance:g}\nGive a share of the scale between 0 and 1, such as 0.1."
            )
        self.levels, self.tasks, self.repeats, self.tolerance = tuple(levels), tasks, repeats, tolerance
        self.constant, self.weight = race_constant(len(levels), alpha), weight
        self.looks = 0
        """Positions that have been looked at."""
        self.out_at: dict[str, int] = {}
        self._number = {level: number for number, level in enumerate(levels)}
        self._waiting: dict[int, dict[int, Pair]] = {}
        # Errors left out, and as the worst value; one object while there was no error.
        self._sides = [_Differences(len(levels), tasks), _Differences(len(levels), tasks)]

    @property
    def left(self) -> list[str]:
        """The levels in the race, in the order of the plan."""
        return [level for level in self.levels if level not in self.out_at]

    @property
    def pick(self) -> str:
        """The level that is named; empty: the race is open."""
        left = self.left
        return left[0] if len(left) == 1 else ""

    @property
    def is_over(self) -> bool:
        """Whether a level is named, or all positions are used up."""
        return bool(self.pick) or self.looks == self.tasks * self.repeats

    def add(self, level: str, position: int, value: Pair) -> None:
        """A level has finished a position. Late results of a level that has left change nothing."""
        self._waiting.setdefault(position, {})[self._number[level]] = value
        self._look()

    def _look(self) -> None:
        while not self.is_over:
            values = self._waiting.get(self.looks, {})
            numbers = [self._number[level] for level in self.left]
            if any(number not in values for number in numbers):
                return
            del self._waiting[self.looks]
            for way, side in enumerate(self._sides):
                row = [
                    values[number][way] if number in numbers else None for number in range(len(self.levels))
                ]
                side.add(self.looks % self.tasks, row)
            self.looks += 1
            self._put_out(numbers)

    def _put_out(self, numbers: list[int]) -> None:
        ahead = [self._leads(side)[np.ix_(numbers, numbers)].any(axis=0) for side in self._sides]
        out = [number for at, number in enumerate(numbers) if ahead[0][at] and ahead[1][at]]
        if len(out) == len(numbers):
            out.remove(max(out, key=self._mean))
        for number in out:
            self.out_at[self.levels[number]] = self.looks

    def _leads(self, side: _Differences) -> Any:
        """Whether the level of a row puts out the level of a column."""
        boundary = boundary_of(
            side.totals, side.squares, side.tasks, self.tolerance, self.constant, self.weight
        )
        return (side.totals >= boundary) & (side.totals > 0) & (side.tasks >= FEWEST_TASKS)

    def _mean(self, number: int) -> float:
        value = self._sides[1].mean(number)
        return -math.inf if value is None else value

    @property
    def leader(self) -> str:
        """The level with the highest mean of those left; empty: none has a value."""
        known = [level for level in self.left if self._mean(self._number[level]) > -math.inf]
        return max(known, key=lambda level: self._mean(self._number[level]), default="")

    def standings(self) -> list[RaceLevel]:
        """How each level stands, in the order of the plan."""
        return [self._standing(level) for level in self.levels]

    def _standing(self, level: str) -> RaceLevel:
        number, share, rival = self._number[level], 0.0, ""
        if level not in self.out_at:
            for other in self.left:
                gone = min(self._gone(side, self._number[other], number) for side in self._sides)
                if gone > share:
                    share, rival = gone, other
        is_in = level not in self.out_at
        return RaceLevel(
            name=level, is_in=is_in, out_at=self.out_at.get(level), rival=rival, share=share if is_in else 1.0
        )

    def _gone(self, side: _Differences, ahead: int, behind: int) -> float:
        """The share of the way out that one level has driven another."""
        tasks = int(side.tasks[ahead, behind])
        total = float(side.totals[ahead, behind])
        if tasks == 0 or total <= 0:
            return 0.0
        boundary = race_boundary(
            total,
            float(side.squares[ahead, behind]),
            tasks,
            tolerance=self.tolerance,
            constant=self.constant,
            weight=self.weight,
        )
        return min(1.0, total / boundary if boundary > 0 else 1.0, tasks / FEWEST_TASKS)

    def at_most_worse(self) -> float | None:
        """By how much the leader may be worse than another level that is left; approximate, for one look."""
        leader = self._number.get(self.leader)
        if leader is None:
            return None
        reaches = []
        for side in self._sides:
            for level in self.left:
                other = self._number[level]
                tasks = int(side.tasks[leader, other])
                if other == leader or not tasks:
                    continue
                gap = float(side.totals[leader, other]) / tasks
                variance = float(
                    variance_of(side.totals[leader, other], side.squares[leader, other], tasks, self.weight)
                )
                reaches.append(math.sqrt(gap**2 + 2 * self.constant * variance / tasks) - gap)
        return max(reaches, default=None)


# Check: is the candidate not worse than the baseline?

STAKES = (1, 2)
CheckOutcome = Literal["pass", "fail", "open"]


@dataclass(slots=True)
class Martingales:
    """Evidence in differences, candidate less baseline: against being worse by `margin`, and as good."""

    margin: float
    tasks: int = 0
    _total: float = 0.0
    _squares: float = 0.0
    _pass: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """Logarithms of the wealth of each stake."""
    _fail: list[float] = field(default_factory=lambda: [0.0, 0.0])

    def add(self, difference: float) -> None:
        """The difference on the next task, within -1 to 1."""
        variance = float(variance_of(self._total, self._squares, self.tasks, SUCCESS_WEIGHT))
        for at, stake in enumerate(STAKES):
            rate = stake * self.margin / variance
            self._pass[at] += math.log1p(min(rate, 0.9 / (1 - self.margin)) * (difference + self.margin))
            self._fail[at] += math.log1p(-min(rate, 0.9) * difference)
        self.tasks += 1
        self._total += difference
        self._squares += difference**2

    @property
    def log_pass(self) -> float:
        """Logarithm of the evidence that it is not worse by the margin."""
        return _log_mean(self._pass)

    @property
    def log_fail(self) -> float:
        """Logarithm of the evidence that it is worse."""
        return _log_mean(self._fail)


def _log_mean(logarithms: Sequence[float]) -> float:
    first, second = logarithms
    return float(np.logaddexp(first, second)) - math.log(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckState:
    """What a check has found for one candidate."""

    candidate: str
    outcome: CheckOutcome
    tasks: int
    """Common tasks that were read, of the stage that decided it or that goes on."""
    share: float
    """Of the evidence that the nearer verdict needs, 0 to 1."""
    leans: Literal["pass", "fail"]
    depends_on_errors: bool = False
    """Open because errors, left out or as failures, lead to different verdicts."""


class CheckTest:
    """Whether candidates are not worse than a baseline by a margin: pass, fail or open.

    The first stage reads the first run of each task. Where tasks are repeated, a second stage then reads the
    means of all runs of a task; each stage has half of alpha.
    """

    def __init__(
        self,
        baseline: str,
        candidates: Sequence[str],
        *,
        tasks: int,
        repeats: int = 1,
        margin: float,
        alpha: float = 0.05,
    ) -> None:
        if not candidates:
            raise UsageError("a check needs at least one candidate")
        if not 0 < margin < 1:
            raise UsageError(
                f"a margin of {margin:g}\nGive a share of the scale between 0 and 1, such as 0.1."
            )
        self.baseline, self.candidates, self.margin = baseline, tuple(candidates), margin
        self.limit = check_limit(len(candidates), repeats, alpha)
        stages = 1 if repeats == 1 else 2
        self._comparisons = {
            candidate: [_Stage(margin, tasks, self.limit) for _ in range(stages)] for candidate in candidates
        }

    def add(self, level: str, position: int, value: Pair, *, stage: int = 0) -> None:
        """A level has finished a task of a stage: its first run, or in stage 1 the mean of all its runs."""
        for candidate, stages in self._comparisons.items():
            if stage < len(stages) and level in (self.baseline, candidate):
                stages[stage].add(position, value, is_candidate=level == candidate)

    def add_baseline(self, candidate: str, position: int, value: Pair, *, stage: int = 0) -> None:
        """The stored result of the baseline that a candidate is compared with."""
        self._comparisons[candidate][stage].add(position, value, is_candidate=False)

    def state(self, candidate: str) -> CheckState:
        """What is decided about a candidate."""
        stages = self._comparisons[candidate]
        for stage in stages:
            if stage.outcome != "open" or not stage.is_over:
                break
        return CheckState(
            candidate=candidate,
            outcome=stage.outcome,
            tasks=stage.read,
            share=stage.share,
            leans=stage.leans,
            depends_on_errors=stage.depends_on_errors,
        )

    def states(self) -> list[CheckState]:
        """What is decided about all candidates, in the order of the plan."""
        return [self.state(candidate) for candidate in self.candidates]

    def undecided(self) -> list[str]:
        """The levels whose further runs can decide something."""
        candidates = [
            candidate
            for candidate, stages in self._comparisons.items()
            if self.state(candidate).outcome == "open" and not all(stage.is_over for stage in stages)
        ]
        return [self.baseline, *candidates] if candidates else []


class _Stage:
    """One pass over the tasks, of one candidate and the baseline."""

    def __init__(self, margin: float, tasks: int, limit: float) -> None:
        self.read = 0
        self._planned, self._limit = tasks, limit
        self._waiting: dict[int, list[Pair | None]] = {}
        self._position = 0
        self._sides = [Martingales(margin), Martingales(margin)]
        self._outcomes: list[CheckOutcome] = ["open", "open"]

    @property
    def is_over(self) -> bool:
        """Whether it is decided, or all tasks are read."""
        return self.outcome != "open" or self._position >= self._planned

    @property
    def outcome(self) -> CheckOutcome:
        """What holds with errors left out and with errors as failures."""
        return self._outcomes[0] if self._outcomes[0] == self._outcomes[1] else "open"

    @property
    def depends_on_errors(self) -> bool:
        return self._outcomes[0] != self._outcomes[1]

    def add(self, position: int, value: Pair, *, is_candidate: bool) -> None:
        self._waiting.setdefault(position, [None, None])[is_candidate] = value
        while self.outcome == "open" and self._position < self._planned:
            pair = self._waiting.get(self._position)
            if pair is None or pair[0] is None or pair[1] is None:
                return
            del self._waiting[self._position]
            self._position += 1
            is_read = [self._read(way, pair[0][way], pair[1][way]) for way in range(2)]
            self.read += any(is_read)

    def _read(self, way: int, baseline: float | None, candidate: float | None) -> bool:
        if baseline is None or candidate is None:
            return False
        side = self._sides[way]
        if self._outcomes[way] == "open":
            side.add(candidate - baseline)
            if side.log_pass >= self._limit:
                self._outcomes[way] = "pass"
            elif side.log_fail >= self._limit:
                self._outcomes[way] = "fail"
        return True

    @property
    def leans(self) -> Literal["pass", "fail"]:
        return "pass" if self._weaker("pass") >= self._weaker("fail") else "fail"

    @property
    def share(self) -> float:
        return 1.0 if self.outcome != "open" else max(0.0, min(1.0, self._weaker(self.leans) / self._limit))

    def _weaker(self, verdict: str) -> float:
        """The evidence of the side that has less of it."""
        return min(side.log_pass if verdict == "pass" else side.log_fail for side in self._sides)


def check_limit(candidates: int, repeats: int, alpha: float = 0.05) -> float:
    """Logarithm of the evidence that decides, corrected for candidates and for stages."""
    return math.log(candidates * (1 if repeats == 1 else 2) / alpha)


# Before a run.


def race_needs(
    levels: int, *, tolerance: float, alpha: float = 0.05, variance: float = LARGEST_VARIANCE
) -> int:
    """Tasks for each level with which a race ends for sure, at a known variance of a difference."""
    return math.ceil(2 * race_constant(levels, alpha) * variance / tolerance**2)


def race_expects(
    levels: int, gap: float, *, tolerance: float, alpha: float = 0.05, variance: float = LARGEST_VARIANCE
) -> int:
    """Tasks for each level until one that is worse by `gap`, at least the tolerance, leaves on average."""
    return math.ceil(race_constant(levels, alpha) * variance / (tolerance * (gap + tolerance / 2)))


def smallest_tolerance(
    levels: int, tasks: int, repeats: int = 1, *, alpha: float = 0.05, variance: float = LARGEST_VARIANCE
) -> float:
    """The smallest tolerance with which a race over so many tasks ends for sure."""
    reduced = variance * (BETWEEN_TASKS + (1 - BETWEEN_TASKS) / repeats)
    return math.sqrt(2 * race_constant(levels, alpha) * reduced / tasks)


def check_needs(candidates: int, *, margin: float, repeats: int = 1, alpha: float = 0.05) -> int:
    """The fewest tasks with which a check can pass: none of them differs."""
    limit, martingales = check_limit(candidates, repeats, alpha), Martingales(margin)
    while martingales.log_pass < limit and martingales.tasks < MOST_TASKS:
        martingales.add(0.0)
    return martingales.tasks


def check_expects(*, margin: float, variance: float = LARGEST_VARIANCE) -> int:
    """Tasks until a candidate that is as good as the baseline passes, on average (simulated)."""
    return math.ceil(6.4 * variance / margin**2)


def smallest_margin(candidates: int, tasks: int, repeats: int = 1, *, alpha: float = 0.05) -> float | None:
    """The smallest margin, in hundredths, with which so many tasks can pass; None: none below 1."""
    for hundredths in range(1, 100):
        if check_needs(candidates, margin=hundredths / 100, repeats=repeats, alpha=alpha) <= tasks:
            return hundredths / 100
    return None


def positions(tasks: int, repeats: int) -> Iterator[tuple[int, int]]:
    """Task and number of the run of each position of a race: all tasks once before any twice."""
    return ((task, run) for run in range(repeats) for task in range(tasks))


def stored_pairs(values: Mapping[int, Sequence[float | None]], tasks: int, worst: float = 0.0) -> list[Pair]:
    """The means of stored runs by task: errors left out, and as the worst value."""
    return [mean_pair(values.get(task, ()), worst) for task in range(tasks)]


def mean_pair(values: Sequence[float | None], worst: float = 0.0) -> Pair:
    """The mean of the runs of a task, both ways; None is a run that an infrastructure error ended."""
    known = [value for value in values if value is not None]
    left_out = math.fsum(known) / len(known) if known else None
    if not values:
        return left_out, None
    return left_out, (math.fsum(known) + worst * (len(values) - len(known))) / len(values)
