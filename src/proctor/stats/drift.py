"""Detect that the mean of a series of scores has changed, however often it is looked at.

As long as the mean stays the same, the probability that a line is ever crossed is at most `alpha`, at any
number of observations and looks. New confidence sequences start at regular positions, and each has its share
of `alpha`, so all of them together contain a constant mean with probability 1 - alpha. Where two of them have
no value in common, the mean has changed (Shekhar & Ramdas 2023). The sequences that start soon after a change
find it soon, however long the mean was constant before.

After a crossing a new line starts, with a new share of error: `alpha` is the probability for each line.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from proctor.errors import UsageError
from proctor.stats.sequential import ConfidenceSequence

BLOCK = 25
"""Observations between two starts of a sequence, and between two points of a line."""
MOST_SEQUENCES = 8
"""Sequences that are followed at once. Their starts get sparser with age."""
MOST_OBSERVATIONS = 20_000
"""Of one sequence. Its interval, by then some 0.02 of the scale wide, stays valid."""
STEP = 0.002
"""Distance of candidate means on a scale of length 1: a tenth of that."""
SHARES = 2 * 2.6123753486854883
"""The sum of k ** -1.5 is 2.612…: the sequences after the first have half of `alpha` together."""
Direction = Literal["up", "down"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftSettings:
    """What counts as a change."""

    lo: float = 0.0
    hi: float = 1.0
    alpha: float = 0.01
    """Probability that a line is ever crossed although the mean has not changed."""
    margin: float = 0.0
    """Smallest change that counts, in units of the score."""
    reference: float | None = None
    """The mean that is expected; None: that of the earlier observations."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.margin) and self.margin >= 0):
            raise UsageError(f"`margin` is {self.margin}\nGive a number that is not negative.")
        if self.reference is not None and not self.lo <= self.reference <= self.hi:
            raise UsageError(
                f"`reference` is {self.reference:g}: not on the scale from {self.lo:g} to {self.hi:g}"
            )
        if not 0 < self.alpha < 1:
            raise UsageError(f"`alpha` is {self.alpha}\nGive a number between 0 and 1.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The observations of one sequence."""

    start: int
    """Position of its first observation in the line, from 0."""
    n: int
    mean: float
    mean_before: float | None
    """Mean of the observations of the line before it; None: it has the first one."""
    low: float
    high: float
    """The anytime-valid interval of its mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """A change of the mean."""

    position: int
    """Number of observations when it was detected, of all lines together."""
    direction: Direction
    before: Window | None
    """None: the reference was given."""
    after: Window


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftPoint:
    """A point of the line."""

    position: int
    """Number of observations up to here, of all lines together."""
    mean: float
    """Mean of the observations since the last point."""
    low: float
    high: float
    """The interval of the mean since the line started, if it has not changed."""


class DriftMonitor:
    """Follows one series of scores.

    >>> monitor = DriftMonitor(DriftSettings(alpha=0.01))
    >>> monitor.add([1.0] * 100) is None
    True
    >>> monitor.add([0.0] * 50).direction
    'down'
    """

    def __init__(
        self, settings: DriftSettings, position: int = 0, latest: tuple[float, float] | None = None
    ) -> None:
        """`position` is the number of observations before the first line, which are unknown here. `latest` is
        the interval after the crossing at this position."""
        self.settings = settings
        self._outside = self._side(*latest) if latest else None
        """On which side of the reference the mean was at the last crossing."""
        self.position = position
        """Number of observations so far."""
        self.clipped = 0
        """Observations outside of the scale, which count as its nearest end."""
        self.points: list[DriftPoint] = []
        self.restart()

    def restart(self) -> None:
        """Start a new line after the observations so far."""
        self._line_start = self.position
        self._starts = 0
        self._sequences: list[_Sequence] = []
        self._low, self._high = self.settings.lo, self.settings.hi
        """Bounds that all sequences of the line have in common; the lower one is higher after a change."""
        self._low_window: Window | None = None
        self._high_window: Window | None = None
        self._block: list[float] = []
        self._total = 0.0

    def add(self, values: Sequence[float]) -> Crossing | None:
        """Add the next observations; the crossing after them, if there is one. A new line then starts."""
        values = [self._on_scale(value) for value in values]
        while values:
            space = BLOCK - len(self._block)
            self._add_to_block(values[:space])
            values = values[space:]
        return self._check()

    def interval(self) -> tuple[float, float]:
        """The interval of the mean since the line started, if it has not changed."""
        return self._low, self._high

    def _on_scale(self, value: float) -> float:
        on_scale = min(max(value, self.settings.lo), self.settings.hi)
        self.clipped += on_scale != value
        return on_scale

    def _add_to_block(self, values: Sequence[float]) -> None:
        if not self._block:
            self._start_sequence()
        self._block += values
        self._total += math.fsum(values)
        self.position += len(values)
        for sequence in self._sequences:
            sequence.add(values)
            self._narrow(sequence)
        self._sequences = [sequence for sequence in self._sequences if not sequence.is_over]
        if len(self._block) == BLOCK:
            mean = math.fsum(self._block) / BLOCK
            self.points.append(DriftPoint(position=self.position, mean=mean, low=self._low, high=self._high))
            self._block = []

    def _start_sequence(self) -> None:
        settings = self.settings
        share = 0.5 if not self._starts else self._starts**-1.5 / SHARES
        self._starts += 1
        if len(self._sequences) >= MOST_SEQUENCES:
            del self._sequences[_sparsest(self._sequences, self.position - self._line_start)]
        sequence = ConfidenceSequence(settings.lo, settings.hi, settings.alpha * share, step=STEP)
        self._sequences.append(_Sequence(sequence, self.position - self._line_start, self._total))

    def _narrow(self, sequence: "_Sequence") -> None:
        window = sequence.window()
        if window is None:
            return
        if window.low > self._low:
            self._low, self._low_window = window.low, window
        if window.high < self._high:
            self._high, self._high_window = window.high, window

    def _check(self) -> Crossing | None:
        crossing = self._from_reference() if self.settings.reference is not None else self._between_windows()
        if crossing:
            self.restart()
        return crossing

    def _between_windows(self) -> Crossing | None:
        low, high = self._low_window, self._high_window
        if low is None or high is None or self._low - self._high <= self.settings.margin:
            return None
        # The window that started later, or else has more observations, shows the mean after the change.
        fell = (high.start, high.n) > (low.start, low.n)
        before, after = (low, high) if fell else (high, low)
        if after.mean_before is not None:
            # The earlier window may end after the change.
            before = replace(before, mean=after.mean_before)
        return Crossing(
            position=self.position, direction="down" if fell else "up", before=before, after=after
        )

    def _from_reference(self) -> Crossing | None:
        """A mean that leaves the reference, or that comes back to it: while it stays away, nothing is new."""
        low, high, outside = self._low_window, self._high_window, self._outside
        reference, margin = self.settings.reference or 0.0, self.settings.margin
        lower = reference + margin if outside == "up" else reference - margin
        upper = reference - margin if outside == "down" else reference + margin
        if high and outside != "down" and high.high < lower:
            crossing = Crossing(position=self.position, direction="down", before=None, after=high)
        elif low and outside != "up" and low.low > upper:
            crossing = Crossing(position=self.position, direction="up", before=None, after=low)
        else:
            return None
        self._outside = self._side(crossing.after.low, crossing.after.high)
        return crossing

    def _side(self, low: float, high: float) -> Direction | None:
        """On which side of the reference an interval is, beyond the margin; None: not beyond it."""
        settings = self.settings
        if settings.reference is None:
            return None
        if high < settings.reference - settings.margin:
            return "down"
        return "up" if low > settings.reference + settings.margin else None


class _Sequence:
    """A confidence sequence that started at some position of the line."""

    def __init__(self, sequence: ConfidenceSequence, start: int, total_before: float) -> None:
        self._sequence, self.start = sequence, start
        self._mean_before = total_before / start if start else None
        self._total = 0.0

    def add(self, values: Sequence[float]) -> None:
        self._sequence.add(*values)
        self._total += math.fsum(values)

    @property
    def is_over(self) -> bool:
        """Whether no constant mean fits its observations any more, or it has enough of them.

        Its last interval stays valid.
        """
        return self._sequence.n >= MOST_OBSERVATIONS or self._sequence.candidates() is None

    def window(self) -> Window | None:
        """The values since the start, with the bounds of their mean; None: every mean is still possible."""
        bounds = self._sequence.candidates()
        if bounds is None:
            return None
        lo, span = self._sequence.lo, self._sequence.hi - self._sequence.lo
        return Window(
            start=self.start,
            n=self._sequence.n,
            mean=self._total / self._sequence.n,
            mean_before=self._mean_before,
            low=lo + span * max(0.0, bounds[0] - self._sequence.step / 2),
            high=lo + span * min(1.0, bounds[1] + self._sequence.step / 2),
        )


def _sparsest(sequences: Sequence[_Sequence], position: int) -> int:
    """Index of the sequence that is missed least: its neighbors are closest to each other in age.

    Never that of the oldest. `position` is that in the line.
    """
    ages = [position - sequence.start for sequence in sequences]
    return min(range(1, len(ages) - 1), key=lambda index: ages[index - 1] / ages[index + 1])
