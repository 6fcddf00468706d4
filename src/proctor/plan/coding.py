"""A coding plan: the text that `proctor batch` is given, checked, and the items it comes to.

Knows nothing of agents, models, repositories on the disk or the store; those who do can ask where
in the text an item's setting stands, to say there what is wrong with it.
"""

import hashlib
import itertools
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proctor.errors import Place, Problem
from proctor.item import Item
from proctor.plan import source as sources
from proctor.plan.checks import Checker
from proctor.plan.expand import expand
from proctor.plan.grid import AXES, as_list
from proctor.plan.layout import Layout, lay_out
from proctor.plan.overrides import NO_OVERRIDES, Overrides
from proctor.plan.reading import read_source
from proctor.plan.repositories import resolved
from proctor.plan.schema import CodingPlan
from proctor.plan.settle import BUILT_IN, DEFAULT_AGENT, DEFAULT_CONCURRENCY, with_agent
from proctor.plan.source import Source
from proctor.plan.validate import check_shape
from proctor.plan.words import vocabulary


def read_plan(
    text: str | bytes,
    *,
    file: str,
    folder: Path,
    home: Path | None = None,
    overrides: Overrides | None = None,
) -> "Plan":
    """Read and check a plan before anything is started.

    `folder` is what its relative paths start from, `home` what `~` stands for (None: the user's).
    Raises `PlanError` with everything that is wrong. Where the command line says more, hand it over
    as `overrides`, so that what is wrong only together with it is reported too; without them, that
    is found when items are asked for.
    """
    source = read_source(text, file=file)
    home = home or Path.home()
    shape = check_shape(source, CodingPlan, vocabulary)
    problems, scripts = list(shape.problems), dict[str, Any]()
    if isinstance(source.data, dict):
        # Cut to one setting of the defaults or of an entry.
        broken = frozenset(path[: 2 if path[:1] == ("defaults",) else 3] for path in shape.paths)
        problems += Checker(source, folder, home, broken, scripts).problems()
    if problems:
        sources.refuse(problems)
    plan = Plan(source, folder.absolute(), home, scripts)
    if overrides is not None:
        plan.layout(overrides)
    return plan


@dataclass(frozen=True)
class Plan:
    """A plan whose every setting is right. `read_plan` makes them."""

    source: Source
    folder: Path
    home: Path
    scripts: Mapping[str, Any] = field(repr=False)
    """The contents of the script files it names."""
    _layouts: dict[Overrides, Layout] = field(default_factory=dict, repr=False, compare=False)

    @property
    def text(self) -> str:
        """The plan as it was written."""
        return self.source.text

    @property
    def digest(self) -> str:
        """The SHA-256 of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def run_id(self) -> str | None:
        """What the batch shall be called. None: whoever starts it makes up a name."""
        given: str | None = self._setting("runId")
        return given

    @property
    def budget_usd(self) -> float | None:
        """What the whole batch may cost. None: no limit."""
        given: float | None = self._setting("budget")
        return given

    @property
    def seed(self) -> int | None:
        """None: the plan does not say."""
        given: int | None = self._setting("seed")
        return given

    @property
    def notify(self) -> str | None:
        """The command to run at the end, or `desktop`. None: nobody is told."""
        given: str | None = self._setting("notify")
        return given

    @property
    def record(self) -> str | None:
        """The file that shall keep the traffic with models. None: it is not kept."""
        return self._file("record")

    @property
    def replay(self) -> str | None:
        """The recording that shall answer in the models' place. None: they answer themselves."""
        return self._file("replay")

    def _file(self, name: str) -> str | None:
        given: str | None = self._setting(name)
        return None if given is None else resolved(given, folder=self.folder, home=self.home)

    @property
    def prices(self) -> Mapping[str, Mapping[str, float]]:
        """USD per million tokens of each model the plan has a price for: input, output, cached."""
        given = self._setting("prices") or {}
        return {model: {k: v for k, v in price.items() if v is not None} for model, price in given.items()}

    def budget(self, overrides: Overrides = NO_OVERRIDES) -> float | None:
        """What the whole batch may cost under these overrides. None: no limit."""
        return self.budget_usd if overrides.budget_usd is None else overrides.budget_usd

    def concurrency(self, overrides: Overrides = NO_OVERRIDES) -> int:
        """How many items run at once."""
        return overrides.concurrency or self._setting("concurrency") or DEFAULT_CONCURRENCY

    def defaults_json(self, overrides: Overrides = NO_OVERRIDES) -> dict[str, Any]:
        """The defaults that really hold, as plain data for the record."""
        given = {name: value for name, value in self._defaults(overrides).items() if value is not None}
        holds = {**BUILT_IN, "agent": DEFAULT_AGENT, **with_agent(given)}
        return {**holds, "concurrency": self.concurrency(overrides)}

    def item_count(self, overrides: Overrides = NO_OVERRIDES) -> int:
        """How many items there are, without making them."""
        return self.layout(overrides).item_count

    def items(self, overrides: Overrides = NO_OVERRIDES) -> Iterator[Item]:
        """The items, one after the other, in a fixed order.

        Raises `PlanError` at once, before the first, for what is wrong only with these overrides.
        """
        layout = self.layout(overrides)
        return expand(layout.grids, layout.repositories)

    def place(self, position: int, key: str, overrides: Overrides = NO_OVERRIDES) -> Place:
        """Where item number `position`, from 0, gets its `key` from: its entry, else the defaults.

        The entry itself when neither says anything, or when the command line does.
        """
        return self.source.place(self._path(position, key, overrides))

    def problem(
        self, position: int, key: str, problem: str, remedy: str = "", *, overrides: Overrides = NO_OVERRIDES
    ) -> Problem:
        """Something wrong with an item's `key`, found by those who know more than the plan."""
        return self.source.problem(self._path(position, key, overrides), problem, remedy)

    def layout(self, overrides: Overrides = NO_OVERRIDES) -> Layout:
        """The plan's grids under these overrides. Raises `PlanError` for what is wrong with them."""
        if overrides not in self._layouts:
            defaults = self._defaults(overrides)
            self._layouts[overrides] = lay_out(self.source, defaults, self.scripts, self.folder, self.home)
        return self._layouts[overrides]

    def _setting(self, name: str) -> Any:
        return self.source.data.get(name)

    def _defaults(self, overrides: Overrides) -> dict[str, Any]:
        return {**(self._setting("defaults") or {}), **overrides.as_defaults()}

    def _path(self, position: int, key: str, overrides: Overrides) -> sources.Path:
        layout = self.layout(overrides)
        number = bisect_right(layout.starts, position) - 1
        grid = layout.grids[number]
        entry = self.source.data["matrix"][grid.entry]
        at: sources.Path = ("matrix", grid.entry)
        level, path = entry, (*at, key)
        if key not in entry:
            level, path = self._setting("defaults") or {}, ("defaults", key)
            if level.get(key) is None or key in overrides.as_defaults():
                return at
        if key in AXES and isinstance(level[key], list):
            offset = (position - layout.starts[number]) // grid.runs
            combination = next(itertools.islice(grid.combinations(), offset, None))
            axis = AXES.index(key)
            index = grid.axes[axis].index(combination[axis])
            return (*path, index) if len(as_list(level[key])) == len(grid.axes[axis]) else path
        return path
