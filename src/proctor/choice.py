"""Which level of a factor to use: the cheapest that is not worse than the baseline by more than a margin."""

from collections.abc import Sequence
from dataclasses import dataclass

from proctor.json_values import CamelJson

MARGIN = 0.05
"""How much lower a success rate may be if the reader sets nothing else."""
BASELINE, PASS, FAIL = "baseline", "pass", "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option(CamelJson):
    """One level, against the baseline."""

    name: str
    success: float | None
    cost_usd: float | None
    """Mean cost of an item; None: unknown."""
    difference: float | None = None
    """Of success, this level minus the baseline."""
    low: float | None = None
    high: float | None = None
    verdict: str
    """`baseline`, `pass` (within the margin), `fail` (worse) or `inconclusive`."""
    reason: str = ""
    depends_on_errors: bool = False
    """Whether the verdict is another one with infrastructure errors counted as failures."""
    more_tasks: int | None = None
    """About how many more tasks would decide it; None: decided, or unknown."""
    more_usd: float | None = None
    """What these would cost, for this level and the baseline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice(CamelJson):
    """Which level to use."""

    factor: str
    baseline: str
    """The highest success rate, unless the reader chose another one."""
    is_best: bool
    """Whether the baseline has the highest success rate."""
    margin: float
    chosen: str
    tasks: int
    unit: str
    """What `tasks` counts: `task`, or `run` where there is only one task."""
    options: Sequence[Option]
    """All levels, the highest success rate first."""
    unfinished: int = 0
    """Items without a result: with any, nothing is decided."""

    def option(self, name: str) -> Option:
        """The option of a level."""
        return next(option for option in self.options if option.name == name)

    @property
    def undecided(self) -> list[Option]:
        """Levels of which it is not known whether they are within the margin."""
        return [option for option in self.options if option.verdict not in (BASELINE, PASS, FAIL)]

    @property
    def is_open(self) -> bool:
        """Whether nothing at all is decided."""
        return len(self.undecided) == len(self.options) - 1
