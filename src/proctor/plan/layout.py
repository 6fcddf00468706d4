"""Lay a checked plan out as grids, and find what is wrong only once defaults and overrides are in.

A plain prompt nobody gave a model, an exclusion that excludes nothing, a plan that comes to no item
or to absurdly many.

Knows nothing of items, agents or disks.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proctor.errors import Problem
from proctor.plan import source as sources
from proctor.plan.grid import AXES, REPO, Combination, Exclusion, Grid, as_list, axes_of
from proctor.plan.repositories import repository_names, resolved
from proctor.plan.settle import DEFAULT_AGENT, settled
from proctor.plan.source import Source
from proctor.plan.validate import subject
from proctor.plan.words import vocabulary

MOST_ITEMS = 1_000_000
"""Ten times what a batch is made for; beyond it, someone's lists multiplied by accident."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The grids of a plan, and which items come from which."""

    grids: Sequence[Grid]
    starts: Sequence[int]
    """The position of each grid's first item."""
    item_count: int
    repositories: Mapping[str, str]
    """The name of each repository by its path."""


def lay_out(
    source: Source, defaults: Mapping[str, Any], scripts: Mapping[str, Any], folder: Path, home: Path
) -> Layout:
    """The grids of the plan in `source`, under these defaults. Raises `PlanError`."""
    maker = _Maker(source.data, defaults, scripts, folder, home)
    grids = maker.grids()
    used: set[sources.Path] = set()
    counts: list[int] = []
    problems = list(_without_model(source, grids)) + list(_too_many(source, grids))
    if not problems:
        counts = [_count(grid, used) * grid.runs for grid in grids]
        problems += _of_exclusions(source, grids, used, counts)
    if problems:
        sources.refuse(problems)
    starts = [0]
    for count in counts:
        starts.append(starts[-1] + count)
    # A grid of which nothing is left would hide the one that starts at the same position.
    kept = [index for index, count in enumerate(counts) if count]
    paths = {repo for grid in grids for repo in grid.axes[REPO] if repo is not None}
    return Layout(
        grids=[grids[index] for index in kept],
        starts=[starts[index] for index in kept],
        item_count=starts[-1],
        repositories=repository_names(paths),
    )


@dataclass(frozen=True, slots=True)
class _Maker:
    data: Mapping[str, Any]
    defaults: Mapping[str, Any]
    scripts: Mapping[str, Any]
    folder: Path
    home: Path

    def grids(self) -> list[Grid]:
        everywhere = self._exclusions(("exclude",), self.data.get("exclude"))
        return [self._grid(index, entry, everywhere) for index, entry in enumerate(self.data["matrix"])]

    def _grid(self, index: int, entry: Mapping[str, Any], everywhere: tuple[Exclusion, ...]) -> Grid:
        holds = settled(entry, self.defaults)
        if isinstance(holds.get("script"), str):
            holds["script"] = self.scripts[holds["script"]]
        if "repo" in holds:
            holds["repo"] = [self._path(repo) for repo in as_list(holds["repo"])]
        own = self._exclusions(("matrix", index, "exclude"), entry.get("exclude"))
        return Grid(index, holds, axes_of(holds, default_agent=DEFAULT_AGENT), own + everywhere)

    def _exclusions(self, path: sources.Path, given: Sequence[Any] | None) -> tuple[Exclusion, ...]:
        return tuple(
            Exclusion((*path, number), tuple(self._wanted(name, value) for name, value in each.items()))
            for number, each in enumerate(given or ())
        )

    def _wanted(self, name: str, value: Any) -> tuple[int, list[Any]]:
        values = as_list(value)
        if name == "repo":
            values = [repo if repo is None else self._path(repo) for repo in values]
        return AXES.index(name), values

    def _path(self, written: str) -> str:
        return resolved(written, folder=self.folder, home=self.home)


def _without_model(source: Source, grids: Sequence[Grid]) -> Iterator[Problem]:
    for grid in grids:
        if grid.is_prompt and grid.settled.get("model") is None:
            path = ("matrix", grid.entry)
            remedy = "Without a `repo` it is a call of a model. Add `model`, here or in `defaults`."
            yield source.problem(path, f"{subject(path, vocabulary)} has no `model`", remedy)


def _too_many(source: Source, grids: Sequence[Grid]) -> Iterator[Problem]:
    total = sum(grid.size * grid.runs for grid in grids)
    if total > MOST_ITEMS:
        remedy = f"At most {MOST_ITEMS:,} are run in one batch. Shorten its lists, or `runs`."
        yield source.problem(("matrix",), f"the plan asks for {total:,} items", remedy, of_key=True)


def _count(grid: Grid, used: set[sources.Path]) -> int:
    """How many combinations are left; notes which exclusions took one away."""
    if grid.is_whole:
        return grid.size
    every = grid.all_combinations()
    return sum(not _is_excluded(grid, combination, used) for combination in every)


def _is_excluded(grid: Grid, combination: Combination, used: set[sources.Path]) -> bool:
    matching = {exclusion.path for exclusion in grid.exclusions if exclusion.matches(combination)}
    used |= matching
    return bool(matching)


def _of_exclusions(
    source: Source, grids: Sequence[Grid], used: set[sources.Path], counts: Sequence[int]
) -> Iterator[Problem]:
    every = {exclusion.path for grid in grids for exclusion in grid.exclusions}
    for path in every - used:
        remedy = "Check its values against the lists above, or remove it."
        yield source.problem(path, f"{subject(path, vocabulary)} matches no combination", remedy)
    if not any(counts):
        remedy = "Nothing would be run. Remove one of the exclusions."
        yield source.problem(("matrix",), "the plan excludes every item it has", remedy, of_key=True)
        return
    for grid, count in zip(grids, counts, strict=True):
        path = ("matrix", grid.entry)
        if not count and source.deepest((*path, "exclude")) != path:
            problem = f"{subject(path, vocabulary)} excludes every combination it has"
            yield source.problem((*path, "exclude"), problem, "Remove one of the exclusions.", of_key=True)
