"""Intervals that stay valid however often a run is looked at, and the decision when it may stop.

`ConfidenceSequence` is the hedged betting sequence of Waudby-Smith & Ramdas (2024) for a bounded mean: its
intervals hold at all times together with probability 1 - alpha, so that stopping at any of them is allowed.
`LogConfidenceSequence` is the asymptotic one (Waudby-Smith et al. 2024) for ratios of cost or time, which
have no bounds; it is approximate. `Monitor` applies them to the goals of a run.

One observation is one finished task: the mean of its planned repeats. The order of the tasks is random and
fixed before the first result.
"""

import math
import random
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, Literal, Protocol, Self

from proctor.errors import UsageError
from proctor.stats.intervals import LIKE, Estimate

STEP = 0.001
"""Distance of candidate means on a scale of length 1."""
BLOCK = 256
"""Observations processed together, which bounds the memory: each has one row of candidates."""
FIRST_LOOK = 30
"""Observations before the asymptotic sequence gives an interval."""
TUNED_FOR = 100
"""Number of observations at which the asymptotic sequence is narrowest."""
TUNED_AT = (1 / 5, 2 / 3)
"""Shares of a run's tasks at which the two bets of a tuned sequence are narrowest."""
CAP, TUNED_CAP = 0.5, 0.75
"""Largest share of the wealth that a bet can lose, without and with a known number of tasks."""
NO_MEAN = "No mean fits the observations: their order is not random, or the mean has changed."
FEWEST_PROJECTED, MOST_PROJECTED = 10, 20_000
"""Observations from which further ones are projected, and how many at most."""
BETTING, ASYMPTOTIC = "betting confidence sequence", "asymptotic confidence sequence (approximate)"


def stakes_of(x: Any, alpha: float, earlier: tuple[int, float, float] = (0, 0.0, 0.0)) -> Any:
    """The stake lambda of each observation in [0, 1]: it depends on earlier observations only.

    `earlier` are the number, the sum and the sum of squared deviations of the observations before `x`.
    """
    import numpy as np

    count, total, squares = earlier
    numbers = count + np.arange(1, len(x) + 1)
    means = (0.5 + total + np.cumsum(x)) / (numbers + 1)
    variances = (0.25 + squares + np.cumsum((x - means) ** 2)) / (numbers + 1)
    before = np.concatenate(([(0.25 + squares) / (count + 1)], variances[:-1]))
    return np.sqrt(2 * math.log(2 / alpha) / (before * numbers * np.log(numbers + 1)))


def tuned_stakes_of(
    x: Any, alpha: float, tasks: int, earlier: tuple[int, float, float] = (0, 0.0, 0.0)
) -> Any:
    """The stakes of two bets on each observation in [0, 1], as rows: narrowest early, and near the end, of so
    many tasks.

    `earlier` are the number, the sum and the sum of squares of the observations before `x`.
    """
    import numpy as np

    count, total, squares = earlier
    before = count + np.arange(len(x)) + 2
    totals = total + np.concatenate(([0.0], np.cumsum(x)[:-1])) + 1
    variances = (squares + np.concatenate(([0.0], np.cumsum(x**2)[:-1])) + 1) / before - (
        totals / before
    ) ** 2
    horizons = np.array([[share * tasks] for share in TUNED_AT])
    return np.sqrt(2 * math.log(2 / alpha) / (variances * horizons))


def log_wealths(x: Any, v: Any, stakes: Any, cap: float = CAP) -> Any:
    """Logarithms of the wealth of betting on a mean above `v`, and below `v`, after each observation.

    Rows are observations in [0, 1], columns candidate means in (0, 1); the result has a layer for each bet.
    """
    import numpy as np

    gaps = np.asarray(x)[:, None] - v
    above = np.log1p(np.minimum(stakes[:, None], cap / v) * gaps)
    below = np.log1p(-np.minimum(stakes[:, None], cap / (1 - v)) * gaps)
    return np.cumsum([above, below], axis=1)


def hedged(wealths: Any) -> Any:
    """Logarithm of the bets' mean wealth; at 1/alpha the candidate is excluded (Ville's inequality)."""
    import numpy as np

    return np.logaddexp.reduce(wealths, axis=0) - math.log(len(wealths))


class AnytimeInterval(Protocol):
    """Takes observations in their order and gives an interval that is valid at any time."""

    n: int

    def add(self, *values: float) -> Self:
        """Add the next observations."""

    def interval(self) -> Estimate:
        """The interval after the observations so far."""

    def state(self) -> dict[str, Any]:
        """Everything as JSON values, with the observations as `values`."""


class ConfidenceSequence:
    """Anytime-valid interval of the mean of observations between `lo` and `hi`.

    >>> ConfidenceSequence(0, 1, alpha=0.05).add(1, 1, 0, 1, 1, 1, 0, 1, 1, 1).interval().high
    1.0
    """

    def __init__(
        self,
        lo: float = 0.0,
        hi: float = 1.0,
        alpha: float = 0.05,
        *,
        scope: str = LIKE,
        step: float = STEP,
        tasks: int = 0,
    ) -> None:
        """`step` is the distance of candidate means on a scale of length 1.

        `tasks` is the number of observations that are planned, for which the stakes are tuned; it stays valid
        after them. 0: not known.
        """
        import numpy as np

        if not (math.isfinite(lo) and math.isfinite(hi) and lo < hi):
            raise UsageError(
                f"{lo} and {hi} are no bounds of a scale\nGive two numbers, the lower one first."
            )
        _check_alpha(alpha)
        self.lo, self.hi, self.alpha, self.scope = float(lo), float(hi), float(alpha), scope
        self.n = 0
        self._values: list[float] = []
        self.step, self.tasks = step, tasks
        self._total = self._squares = self._squared_gaps = 0.0
        # The remaining candidates only: an excluded one stays excluded, so its wealth is of no use.
        self._means = np.arange(step / 2, 1, step)
        self._wealths = np.zeros((4 if tasks else 2, len(self._means)))
        """Of each bet, as logarithms."""

    def add(self, *values: float) -> Self:
        """Add the next observations, in their order. A candidate mean that was excluded stays excluded."""
        import numpy as np

        for value in values:
            if not self.lo <= value <= self.hi:
                raise UsageError(f"{value} is not on the scale from {self.lo:g} to {self.hi:g}")
        for start in range(0, len(values), BLOCK):
            block = values[start : start + BLOCK]
            x = (np.array(block, dtype=float) - self.lo) / (self.hi - self.lo)
            wealths = self._bets(x) + self._wealths[:, None]
            remaining = (hedged(wealths) < -math.log(self.alpha)).all(axis=0)
            self._means = self._means[remaining]
            self._wealths = wealths[:, -1, remaining]
            for scaled in map(float, x):
                self.n += 1
                self._total += scaled
                self._squares += scaled**2
                self._squared_gaps += (scaled - (0.5 + self._total) / (self.n + 1)) ** 2
            self._values += map(float, block)
        return self

    def _bets(self, x: Any) -> Any:
        """Logarithms of what each bet gains on the next observations."""
        import numpy as np

        if not self.tasks:
            stakes = stakes_of(x, self.alpha, (self.n, self._total, self._squared_gaps))
            return log_wealths(x, self._means, stakes)
        tuned = tuned_stakes_of(x, self.alpha, self.tasks, (self.n, self._total, self._squares))
        return np.concatenate([log_wealths(x, self._means, stakes, TUNED_CAP) for stakes in tuned])

    def candidates(self) -> tuple[float, float] | None:
        """The lowest and the highest remaining candidate mean, on the scale 0 to 1; None: none is left."""
        means = self._means
        return (round(float(means[0]), 9), round(float(means[-1]), 9)) if len(means) else None

    def interval(self) -> Estimate:
        """The intersection of the intervals so far; its width is never zero."""
        bounds = self.candidates()
        low, high, note = None, None, "" if self.n else "No task has finished."
        if bounds is None:
            note = NO_MEAN
        else:
            # A candidate represents the means up to half a step on either side.
            low = round(self.lo + (self.hi - self.lo) * (bounds[0] - self.step / 2), 9)
            high = round(self.lo + (self.hi - self.lo) * (bounds[1] + self.step / 2), 9)
        return Estimate(
            value=math.fsum(self._values) / self.n if self.n else None,
            low=low,
            high=high,
            n=self.n,
            level=1 - self.alpha,
            scope=self.scope,
            method=BETTING,
            note=note,
        )

    def state(self) -> dict[str, Any]:
        """Everything as JSON values; `from_state` replays the observations."""
        arguments = {"lo": self.lo, "hi": self.hi, "alpha": self.alpha, "scope": self.scope}
        return {**arguments, "tasks": self.tasks, "values": list(self._values)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "ConfidenceSequence":
        """The sequence that `state` describes."""
        tasks = state.get("tasks", 0)
        sequence = cls(state["lo"], state["hi"], state["alpha"], scope=state["scope"], tasks=tasks)
        return sequence.add(*state["values"])


class LogConfidenceSequence:
    """Approximate anytime-valid interval of a geometric mean, from logarithms of ratios.

    Estimates are on the scale of the ratio: `value` 1.2 is 20 % more. There is no interval before 30
    observations, nor where all are equal.
    """

    def __init__(self, alpha: float = 0.05, *, scope: str = LIKE) -> None:
        _check_alpha(alpha)
        self.alpha, self.scope = float(alpha), scope
        self.n = 0
        self._values: list[float] = []
        self._mean = self._squares = 0.0
        self._low, self._high = -math.inf, math.inf

    def add(self, *values: float) -> Self:
        """Add the next logarithms of ratios, in their order."""
        for value in values:
            if not math.isfinite(value):
                raise UsageError(f"{value} is no logarithm of a ratio\nLeave out tasks that cost nothing.")
            self.n += 1
            gap = value - self._mean
            self._mean += gap / self.n
            self._squares += gap * (value - self._mean)
            self._values.append(float(value))
            if self.n >= FIRST_LOOK and self._squares > 0:
                reach = math.sqrt(self._squares / (self.n - 1)) * asymptotic_reach(self.n, self.alpha)
                self._low = max(self._low, self._mean - reach)
                self._high = min(self._high, self._mean + reach)
        return self

    def interval(self) -> Estimate:
        """The intersection of the intervals so far, as a ratio."""
        low, high, note, needs = None, None, "", None
        if self.n < FIRST_LOOK:
            note, needs = f"No interval before {FIRST_LOOK} tasks.", FIRST_LOOK
        elif self._squares <= 0:
            note = "All ratios are equal: no interval."
        elif self._low > self._high:
            note = NO_MEAN
        else:
            low, high = math.exp(self._low), math.exp(self._high)
        return Estimate(
            value=math.exp(self._mean) if self.n else None,
            low=low,
            high=high,
            n=self.n,
            level=1 - self.alpha,
            scope=self.scope,
            method=ASYMPTOTIC,
            note=note,
            needs=needs,
        )

    def state(self) -> dict[str, Any]:
        """Everything as JSON values; `from_state` replays the observations."""
        return {"alpha": self.alpha, "scope": self.scope, "values": list(self._values)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "LogConfidenceSequence":
        """The sequence that `state` describes."""
        return cls(state["alpha"], scope=state["scope"]).add(*state["values"])


def asymptotic_reach(n: int, alpha: float) -> float:
    """Half the width of the asymptotic sequence in standard deviations.

    Widened as Student's quantile is wider than the normal one, because the deviation is estimated. At
    alpha = 5 % the true ratio is ever excluded in 2.6 % of simulations with normal logarithms, 2.1 % with
    t(4), 4.8 % with logarithms of gamma(0.5) and 6.9 % with exponential ones: it is approximate.
    """
    from scipy.special import ndtri, stdtrit

    odds = -2 * math.log(alpha)
    rho2 = (odds + math.log(odds + 1)) / TUNED_FOR
    reach = math.sqrt(2 * (n * rho2 + 1) / (n * n * rho2) * math.log(math.sqrt(n * rho2 + 1) / alpha))
    return reach * float(stdtrit(n - 1, 1 - alpha / 2) / ndtri(1 - alpha / 2))


def _check_alpha(alpha: float) -> None:
    if not 0 < alpha < 1:
        raise UsageError(f"an error rate of {alpha}\nGive a number between 0 and 1.")


# Goals of a run.


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceGoal:
    """Decide whether a candidate differs from a baseline, on the tasks that both have finished."""

    baseline: str
    candidate: str
    margin: float | None = None
    """Also decided when the candidate is not worse by more than this; for ratios a share, 0.1 for 10 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WidthGoal:
    """Make the interval of a cell's mean at most this wide, from end to end."""

    cell: str
    width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGoal:
    """Separate the cells of the first places from all others."""

    cells: tuple[str, ...]
    places: int | None = None
    """How many places, the best first; None: every pair of cells is separated."""


Goal = DifferenceGoal | WidthGoal | RankGoal
Outcome = Literal["better", "worse", "within margin", "narrow", "settled", "open"]
Key = tuple[str, ...]
"""A cell, or a baseline and a candidate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalStatus:
    """The state of a goal after the finished tasks."""

    goal: Goal
    outcome: Outcome
    """`open`: undecided. A difference is `better`, `worse` or `within margin`, a width `narrow`, ranks
    `settled`."""
    reason: str
    """One sentence."""
    undecided: tuple[str, ...] = ()
    """Cells whose further tasks can decide it; empty once it is decided."""

    @property
    def is_decided(self) -> bool:
        """Whether no further task is needed."""
        return self.outcome != "open"


class Monitor:
    """Which goals of a running batch are decided, with anytime-valid intervals.

    A cell is a level of the compared factor (a model). Its tasks are numbered by their position in a random
    order, the same for all cells, that was fixed before the first result. Feed it each *finished* task:

    >>> goal = DifferenceGoal(baseline="old", candidate="new")
    >>> monitor = Monitor([goal], alpha=0.05)
    >>> for position in range(40):
    ...     monitor.add("old", position, [0.0, 0.0, 1.0])
    ...     monitor.add("new", position, [1.0, 1.0, None])
    >>> [decision.outcome for decision in monitor.decisions()]
    ['better']

    `add` takes the values of all planned repeats of the task; None is a repeat lost to an infrastructure
    error. Tasks may finish in any order and cells at any pace: a result counts once all earlier positions of
    its cell have finished, because which tasks finish early may depend on how they end.

    `decisions()` gives one `GoalStatus` per goal, `undecided()` the cells that should get the next tasks,
    `estimate(cell)` and `estimate(baseline, candidate)` the intervals to show, `ranks()` rank intervals.
    All goals together are wrong with a probability of at most `alpha`, whenever the run is stopped.

    What the caller must keep: the next task of a cell is the next in its order; its number of repeats is
    fixed before it starts; no repeats are added because of the task's own results. Which cell gets the next
    task may depend on everything. The goals do not change during the run.

    Errors are handled both ways: left out, and counted as the worst value. A goal is decided only where
    both agree. There is nothing to save: feeding the finished tasks of the store again gives the same state.
    """

    def __init__(
        self,
        goals: Sequence[Goal],
        *,
        lo: float = 0.0,
        hi: float = 1.0,
        alpha: float = 0.05,
        higher_is_better: bool = True,
        ratio: bool = False,
        tasks: int = 0,
    ) -> None:
        """`lo` and `hi` are the bounds of the values. With `ratio` the values are positive amounts without
        bounds (cost, seconds); comparisons are ratios, and approximate. `tasks` of a cell are planned: that
        makes intervals narrower; 0: unknown.
        """
        _check_alpha(alpha)
        self.goals, self.alpha, self.lo, self.hi = tuple(goals), alpha, lo, hi
        self._higher_is_better, self._is_ratio, self._tasks = higher_is_better, ratio, tasks
        # A pair that several goals need, in either direction, is one sequence.
        keys = {frozenset(key): key for goal in self.goals for key in _keys(goal)}.values()
        self._cells = {name: _CellProgress() for key in keys for name in key}
        corrected = alpha / max(1, len(keys))
        self._tracks = {key: _Track(self._sequence(key, corrected)) for key in keys}
        for name in self._cells:
            # For display only: no goal depends on it.
            self._tracks.setdefault((name,), _Track(self._sequence((name,), alpha)))

    def add(self, cell: str, position: int, repeats: Sequence[float | None]) -> None:
        """A task of a cell has finished: the values of its planned repeats, None for an error."""
        if cell not in self._cells:
            raise UsageError(f"no goal is about {cell}\nThere are: {', '.join(self._cells)}.")
        if self._cells[cell].has(position):
            raise UsageError(f"task {position} of {cell} was already added")
        self._cells[cell].waiting[position] = self._observed(repeats)
        self._cells[cell].advance()

    def decisions(self) -> list[GoalStatus]:
        """What is decided, in the order of the goals."""
        return [self._decision(goal) for goal in self.goals]

    def undecided(self) -> list[str]:
        """The cells of undecided goals, those with the fewest finished tasks first; empty: stop."""
        names = dict.fromkeys(name for each in self.decisions() for name in each.undecided)
        return sorted(names, key=lambda name: len(self._cells[name].finished))

    def finished(self, cell: str) -> int:
        """How many tasks of a cell count: those before the first unfinished position."""
        return len(self._cells[cell].finished)

    def estimate(self, *key: str, errors_fail: bool = False) -> Estimate:
        """The valid interval of a cell, or of a baseline and a candidate: candidate less baseline.

        With `errors_fail` errors count as the worst value, otherwise they are left out.
        """
        if key in self._tracks:
            return self._fed(key).estimate(errors_fail)
        if key[::-1] not in self._tracks:
            raise UsageError(f"no goal is about {' and '.join(key)}")
        return _reversed(self._fed(key[::-1]).estimate(errors_fail), is_ratio=self._is_ratio)

    def tasks_to_separate(self, first: str, other: str) -> int | None:
        """About how many further tasks of both separate two cells, if the next ones are like those so far.

        0: they are separated. None: too few are finished, or it takes more than `MOST_PROJECTED`.
        """
        key = (first, other) if (first, other) in self._tracks else (other, first)
        if self._better(key):
            return 0
        equal = 1.0 if self._is_ratio else 0.0
        return self._fed(key).observations_to_exclude(equal)

    def ranks(self) -> dict[str, tuple[int, int]]:
        """For each cell the best and the worst rank that the compared pairs leave open."""
        beaten = dict.fromkeys(self._cells, 0)
        beats = dict.fromkeys(self._cells, 0)
        for key in self._tracks:
            if len(key) == 2:
                better = self._better(key)
                if better:
                    beats[better] += 1
                    beaten[key[0] if better == key[1] else key[1]] += 1
        return {name: (1 + beaten[name], len(self._cells) - beats[name]) for name in self._cells}

    def _sequence(self, key: Key, alpha: float) -> AnytimeInterval:
        """An empty sequence for a cell or a pair."""
        if self._is_ratio:
            return LogConfidenceSequence(alpha)
        span = self.hi - self.lo
        bounds = (self.lo, self.hi) if len(key) == 1 else (-span, span)
        return ConfidenceSequence(*bounds, alpha, tasks=self._tasks)

    def _observed(self, repeats: Sequence[float | None]) -> "_Observed":
        values = [value for value in repeats if value is not None]
        for value in values:
            if self._is_ratio and not 0 < value < math.inf:
                raise UsageError(f"{value} is no positive amount")
            if not self._is_ratio and not self.lo <= value <= self.hi:
                raise UsageError(f"{value} is not on the scale from {self.lo:g} to {self.hi:g}")
        mean = math.fsum(values) / len(values) if values else None
        if self._is_ratio:
            # An error has no cost to count instead.
            return _Observed(mean, mean)
        worst = self.lo if self._higher_is_better else self.hi
        errors = len(repeats) - len(values)
        return _Observed(mean, (math.fsum(values) + errors * worst) / len(repeats) if repeats else None)

    def _fed(self, key: Key) -> "_Track":
        """The track of a cell or pair, with all tasks that count by now."""
        track = self._tracks[key]
        columns = [self._cells[name].finished for name in key]
        ready = min(map(len, columns))
        for row in zip(*(column[track.position : ready] for column in columns), strict=True):
            track.add(
                self._value([each.left_out for each in row]), self._value([each.as_failures for each in row])
            )
        track.position = ready
        return track

    def _value(self, row: Sequence[float | None]) -> float | None:
        values = [value for value in row if value is not None]
        if len(values) < len(row):
            return None
        if self._is_ratio:
            logs = [math.log(value) for value in values]
            return logs[-1] - logs[0] if len(logs) > 1 else logs[0]
        return values[0] if len(values) == 1 else values[1] - values[0]

    def _decision(self, goal: Goal) -> GoalStatus:
        if isinstance(goal, WidthGoal):
            return self._width(goal)
        if isinstance(goal, RankGoal):
            return self._ranking(goal)
        key = (goal.baseline, goal.candidate)
        outcomes = [self._outcome(self.estimate(*key, errors_fail=way), goal.margin) for way in (False, True)]
        if outcomes[0] == outcomes[1] and outcomes[0] != "open":
            reasons = {
                "better": f"{goal.candidate} is better than {goal.baseline}",
                "worse": f"{goal.candidate} is worse than {goal.baseline}",
                "within margin": f"{goal.candidate} is at most the margin worse than {goal.baseline}",
            }
            return GoalStatus(goal=goal, outcome=outcomes[0], reason=reasons[outcomes[0]])
        reason = f"{goal.candidate} and {goal.baseline} are not separated"
        if outcomes[0] != outcomes[1]:
            reason += ": errors decide it"
        return GoalStatus(goal=goal, outcome="open", reason=reason, undecided=key)

    def _width(self, goal: WidthGoal) -> GoalStatus:
        estimates = [self.estimate(goal.cell, errors_fail=way) for way in (False, True)]
        widths = [
            math.inf if each.low is None or each.high is None else each.high - each.low for each in estimates
        ]
        if max(widths) <= goal.width:
            return GoalStatus(
                goal=goal,
                outcome="narrow",
                reason=f"the interval of {goal.cell} is at most {goal.width:g} wide",
            )
        return GoalStatus(
            goal=goal,
            outcome="open",
            reason=f"the interval of {goal.cell} is wider than {goal.width:g}",
            undecided=(goal.cell,),
        )

    def _ranking(self, goal: RankGoal) -> GoalStatus:
        order = sorted(goal.cells, key=self._standing, reverse=True)
        first = order if goal.places is None else order[: goal.places]
        pairs = [
            pair for pair in _keys(goal) if (pair[0] in first or pair[1] in first) and not self._better(pair)
        ]
        if not pairs:
            return GoalStatus(goal=goal, outcome="settled", reason=f"the order is {', '.join(first)}")
        cells = tuple(dict.fromkeys(name for pair in pairs for name in pair))
        return GoalStatus(
            goal=goal,
            outcome="open",
            reason=f"{len(pairs)} of the pairs that matter are not separated",
            undecided=cells,
        )

    def _standing(self, cell: str) -> float:
        value = self.estimate(cell).value
        if value is None:
            return -math.inf
        return value if self._higher_is_better else -value

    def _outcome(self, estimate: Estimate, margin: float | None) -> Outcome:
        """Of a candidate less a baseline, or their ratio."""
        if estimate.low is None or estimate.high is None:
            return "open"
        equal = 1.0 if self._is_ratio else 0.0
        low, high = estimate.low, estimate.high
        if low > equal:
            return "better" if self._higher_is_better else self._worse(high, margin)
        if high < equal:
            return self._worse(low, margin) if self._higher_is_better else "better"
        worst = low if self._higher_is_better else high
        return "within margin" if self._is_within(worst, margin) else "open"

    def _worse(self, limit: float, margin: float | None) -> Outcome:
        return "within margin" if self._is_within(limit, margin) else "worse"

    def _is_within(self, limit: float, margin: float | None) -> bool:
        """Whether a limit of the interval, the one on the bad side, is within the margin."""
        if margin is None:
            return False
        if self._is_ratio:
            return limit > 1 / (1 + margin) if self._higher_is_better else limit < 1 + margin
        return limit > -margin if self._higher_is_better else limit < margin

    def _better(self, pair: Key) -> str:
        """The better cell of a pair; empty while they are not separated."""
        outcomes = {self._outcome(self.estimate(*pair, errors_fail=way), None) for way in (False, True)}
        return pair[1] if outcomes == {"better"} else pair[0] if outcomes == {"worse"} else ""


@dataclass(frozen=True, slots=True)
class _Observed:
    """A finished task: the mean without errors, and with errors as the worst value. None: no value."""

    left_out: float | None
    as_failures: float | None


@dataclass(slots=True)
class _CellProgress:
    finished: list[_Observed] = field(default_factory=list)
    """Without a gap, by position."""
    waiting: dict[int, _Observed] = field(default_factory=dict)

    def has(self, position: int) -> bool:
        """Whether the task at a position has a value, in its turn or early."""
        return position < len(self.finished) or position in self.waiting

    def advance(self) -> None:
        """Take the values that came early as soon as it is their turn: the order decides, not the speed."""
        while len(self.finished) in self.waiting:
            self.finished.append(self.waiting.pop(len(self.finished)))


class _Track:
    """The observations of one cell or pair, with errors left out and with errors as failures."""

    def __init__(self, sequence: AnytimeInterval) -> None:
        self.position = 0
        self._errors_out = self._errors_fail = sequence
        self._left_out = 0
        self._new: list[float] = []
        """Observations since the last look, without errors: adding many at once is a hundred times faster."""
        self._new_with_errors: list[float] = []

    def add(self, left_out: float | None, as_failures: float | None) -> None:
        """Add a task: its value without errors, and with errors as failures; None: it has none."""
        if left_out != as_failures and self._errors_fail is self._errors_out:
            self._add_new()
            self._errors_fail = deepcopy(self._errors_out)
        self._left_out += left_out is None
        if left_out is not None:
            self._new.append(left_out)
        if as_failures is not None and self._errors_fail is not self._errors_out:
            self._new_with_errors.append(as_failures)

    def _add_new(self) -> None:
        self._errors_out.add(*self._new)
        if self._errors_fail is not self._errors_out:
            self._errors_fail.add(*self._new_with_errors)
        self._new, self._new_with_errors = [], []

    def observations_to_exclude(self, value: float) -> int | None:
        """How many further observations exclude a value, with those so far drawn again in random order."""
        self._add_new()
        sequence = deepcopy(self._errors_out)
        observed = sequence.state()["values"]
        if len(observed) < FEWEST_PROJECTED:
            return None
        rng, drawn = random.Random(0), 0
        step = max(1, len(observed) // 20)
        while drawn < MOST_PROJECTED:
            drawn += step
            interval = sequence.add(*rng.choices(observed, k=step)).interval()
            if interval.low is None or interval.high is None:
                continue
            if not interval.low <= value <= interval.high:
                return drawn
            step = max(step, drawn // 10)
        return None

    def estimate(self, errors_fail: bool) -> Estimate:
        """The estimate so far, with errors left out or as failures."""
        self._add_new()
        if errors_fail:
            return self._errors_fail.interval()
        return replace(self._errors_out.interval(), left_out=self._left_out)


def _keys(goal: Goal) -> list[Key]:
    if isinstance(goal, WidthGoal):
        return [(goal.cell,)]
    if isinstance(goal, DifferenceGoal):
        return [(goal.baseline, goal.candidate)]
    return list(combinations(goal.cells, 2))


def _reversed(estimate: Estimate, *, is_ratio: bool) -> Estimate:
    """The estimate of the baseline less the candidate."""

    def turned(value: float | None) -> float | None:
        return None if value is None else 1 / value if is_ratio else -value

    return replace(
        estimate, value=turned(estimate.value), low=turned(estimate.high), high=turned(estimate.low)
    )
