"""Every combination of the lists that one entry holds, less those it excludes.

Knows nothing of YAML, files or items; an axis is a name and its values.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proctor.plan.schema import is_grid_of_commands

AXES = (
    "repo",
    "prompt",
    "agent",
    "model",
    "baseBranch",
    "scriptCommand",
    "command",
    "setup",
    "seed",
    "system",
    "timeoutSec",
)
"""What may be a list, in the order of the product: the last changes fastest."""
REPO, PROMPT, AGENT, COMMAND = (AXES.index(name) for name in ("repo", "prompt", "agent", "command"))
WORKTREE_ONLY = frozenset({"agent", "baseBranch", "scriptCommand", "command", "setup"})
"""What a plain prompt has no use for."""

Combination = tuple[Any, ...]
"""One value for each axis; None where there is none."""


@dataclass(frozen=True, slots=True)
class Exclusion:
    """A combination to leave out: one that has one of the values on every axis named here."""

    path: tuple[str | int, ...]
    """Where in the plan it stands."""
    wanted: tuple[tuple[int, Sequence[Any]], ...]

    def matches(self, combination: Combination) -> bool:
        return all(combination[axis] in values for axis, values in self.wanted)


@dataclass(frozen=True, slots=True)
class Grid:
    """One entry of a plan with everything that holds for it."""

    entry: int
    """Its index in the plan's matrix."""
    settled: Mapping[str, Any]
    axes: tuple[Sequence[Any], ...]
    exclusions: tuple[Exclusion, ...] = ()

    @property
    def is_prompt(self) -> bool:
        """Whether it is plain prompts, without a repository."""
        return self.axes[REPO][0] is None

    @property
    def runs(self) -> int:
        return int(self.settled["runs"])

    @property
    def size(self) -> int:
        """How many combinations there are before any is left out."""
        return math.prod(map(len, self.axes))

    @property
    def is_whole(self) -> bool:
        """Whether no combination can be left out, so that none needs to be looked at."""
        return not self.exclusions and not self._mixes_commands

    @property
    def _mixes_commands(self) -> bool:
        return len(self.axes[COMMAND]) > 1 and len(self.axes[AGENT]) > 1

    def _makes_sense(self, combination: Combination) -> bool:
        """Several commands are several items to the agent `command`, and to the others none."""
        return (
            not self._mixes_commands
            or combination[AGENT] == "command"
            or combination[COMMAND] is self.axes[COMMAND][0]
        )

    def all_combinations(self) -> Iterator[Combination]:
        """Every one in its fixed order, also those that are excluded."""
        every = itertools.product(*self.axes)
        return filter(self._makes_sense, every) if self._mixes_commands else every

    def has(self, combination: Combination) -> bool:
        """Whether a combination makes sense and is not excluded."""
        return self._makes_sense(combination) and not any(
            exclusion.matches(combination) for exclusion in self.exclusions
        )

    def combinations(self) -> Iterator[Combination]:
        """Those that are left, in their fixed order."""
        every = itertools.product(*self.axes)
        return every if self.is_whole else filter(self.has, every)


def axes_of(settled: Mapping[str, Any], *, default_agent: str) -> tuple[list[Any], ...]:
    """The values on each axis; `[None]` where an entry has none or has no use for them."""
    is_prompt = settled.get("repo") is None
    return tuple(_values(settled, axis, is_prompt, default_agent) for axis in AXES)


def _values(settled: Mapping[str, Any], axis: str, is_prompt: bool, default_agent: str) -> list[Any]:
    if is_prompt and axis in WORKTREE_ONLY:
        return [None]
    value = settled.get(axis, default_agent if axis == "agent" else None)
    if axis == "command":
        if "command" not in as_list(settled.get("agent")):
            return [None]
        return list(value) if is_grid_of_commands(value) else [value]
    if axis == "system" and not is_prompt:
        return [None]
    return as_list(value)


def as_list(value: Any) -> list[Any]:
    """One value, or many, as many."""
    return list(value) if isinstance(value, list) else [value]
