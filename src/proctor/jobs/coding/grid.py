"""Grids of a valid plan and their expansion into items, once defaults and overrides are known.

Reports what only then can be wrong: a plain prompt without a model, an exclusion that matches nothing, a plan
with no items or far too many.
"""

import hashlib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from proctor.errors import Problem
from proctor.frozen import fast_init
from proctor.item import Item
from proctor.jobs.coding.schema import (
    DEFAULT_AGENT,
    EntrySettings,
    is_grid_of_commands,
    settings_of,
    settled,
    vocabulary,
)
from proctor.json_values import JsonMap, JsonObject, compact_encoder
from proctor.plan import source as sources
from proctor.plan.source import PlanSource, repository_names, resolved
from proctor.plan.validate import as_list, subject

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
"""Settings that may be lists, in the order of the product: the last changes fastest."""
_AXIS_NUMBERS = {name: number for number, name in enumerate(AXES)}
REPO, PROMPT, AGENT, MODEL, COMMAND = (
    _AXIS_NUMBERS[name] for name in ("repo", "prompt", "agent", "model", "command")
)
WORKTREE_ONLY = frozenset({"agent", "baseBranch", "scriptCommand", "command", "setup"})
"""Axes that plain prompts ignore."""
Combination = tuple[Any, ...]
"""One value for each axis; None where there is none."""


@dataclass(frozen=True, slots=True)
class GridExclusion:
    """Excludes combinations that have one of the values on each of its axes."""

    path: tuple[str | int, ...]
    """Its position in the plan."""
    axes: tuple[tuple[int, Sequence[object]], ...]

    def matches(self, combination: Combination) -> bool:
        """Whether a combination is excluded: it has one of the values on every axis named."""
        return all(combination[axis] in values for axis, values in self.axes)


@fast_init
@dataclass(frozen=True, slots=True)
class Grid:
    """One entry of a plan with its effective settings."""

    entry: int
    """Its index in the plan's matrix."""
    settled: Mapping[str, Any]
    axes: tuple[Sequence[Any], ...]
    exclusions: tuple[GridExclusion, ...] = ()
    own_branches: Mapping[str, str] = field(default_factory=dict)
    """The branch of each repository, where the plan names none."""

    @property
    def is_prompt(self) -> bool:
        """Whether its items are plain prompts, without a repository."""
        return self.axes[REPO][0] is None

    @property
    def runs(self) -> int:
        return int(self.settled["runs"])

    @property
    def size(self) -> int:
        """Number of combinations before exclusions."""
        return math.prod(map(len, self.axes))

    @property
    def is_whole(self) -> bool:
        """Whether no combination is excluded, so that none needs to be checked."""
        return not self.exclusions and not self._mixes_commands

    @property
    def _mixes_commands(self) -> bool:
        return len(self.axes[COMMAND]) > 1 and len(self.axes[AGENT]) > 1

    def _is_applicable(self, combination: Combination) -> bool:
        """Several commands multiply the items of the agent `command` only."""
        return (
            not self._mixes_commands
            or combination[AGENT] == "command"
            or combination[COMMAND] is self.axes[COMMAND][0]
        )

    def all_combinations(self) -> Iterator[Combination]:
        """All combinations in a fixed order, including excluded ones."""
        every = itertools.product(*self.axes)
        return filter(self._is_applicable, every) if self._mixes_commands else every

    def has(self, combination: Combination) -> bool:
        """Whether a combination is applicable and not excluded."""
        return self._is_applicable(combination) and not any(
            exclusion.matches(combination) for exclusion in self.exclusions
        )

    def combinations(self) -> Iterator[Combination]:
        """The remaining combinations, in a fixed order."""
        every = itertools.product(*self.axes)
        return every if self.is_whole else filter(self.has, every)


_NO_VALUE: Sequence[Any] = (None,)
_NO_MARK = ("",)


def axes_of(settled: JsonMap) -> tuple[Sequence[Any], ...]:
    """The values on each axis; only None: the entry has none, or ignores them."""
    is_prompt = settled.get("repo") is None
    return tuple(_values(settled, axis, is_prompt) for axis in AXES)


def _values(settled: JsonMap, axis: str, is_prompt: bool) -> Sequence[Any]:
    if is_prompt and axis in WORKTREE_ONLY:
        return _NO_VALUE
    value = settled.get(axis, DEFAULT_AGENT if axis == "agent" else None)
    if axis == "command":
        if "command" not in as_list(settled.get("agent")):
            return _NO_VALUE
        return as_list(value) if is_grid_of_commands(value) else [value]
    if value is None or (axis == "system" and not is_prompt):
        return _NO_VALUE
    if isinstance(value, list):
        return as_list(value)
    return (value,) if axis == "prompt" else _single(value)


@lru_cache(maxsize=256, typed=True)
def _single(value: object) -> Sequence[Any]:
    """One value as an axis. Shared: thousands of entries have the same model and time limit."""
    return (value,)


LONGEST_TASK = 80
_FIXED_DETAILS = ("env", "settings", "expect", "setupOnce", "setupOnceFiles")
_SETTINGS = (
    "timeoutSec",
    "retries",
    "retryOn",
    "mergeOnPass",
    "keep",
    "tags",
    "jsonLogs",
    "budget",
    "sandbox",
    "setupTimeoutSec",
    "checkTimeoutSec",
    "baseline",
    "cache",
    "resources",
)
_PROMPT_SETTINGS = ("timeoutSec", "retries", "retryOn", "tags", "jsonLogs", "budget", "resources")
_OWN_SETTINGS = frozenset(_PROMPT_SETTINGS) - {"timeoutSec"}
_TIMEOUT = AXES.index("timeoutSec")


def expand(grids: Iterable[Grid], repositories: Mapping[str, str]) -> Iterator[Item]:
    """All items of all grids. `repositories` maps paths to names that are the same on every machine."""
    repeats: dict[int, int] = {}
    maker: _ItemBuilder | None = None
    for grid in grids:
        maker = _ItemBuilder(grid, repositories, maker)
        runs = grid.runs
        for combination, mark in maker.marked():
            done = repeats.get(mark, 0)
            repeats[mark] = done + runs
            for repeat in range(done + 1, done + runs + 1):
                yield maker.item(combination, repeat)


def representatives(layout: "Layout") -> Iterator[tuple[int, Item]]:
    """Items that together name everything the items of a plan name, each with its position.

    Plain prompts name nothing but models and expectations: one for each model of an entry is enough, and one
    of all entries with the same.
    """
    seen: set[tuple[object, ...]] = set()
    for grid, start in zip(layout.grids, layout.starts, strict=True):
        if not grid.is_prompt or not grid.is_whole:
            yield from enumerate(expand([grid], layout.repositories), start)
            continue
        named = (*grid.axes[MODEL], repr(grid.settled.get("expect")))
        if named in seen:
            continue
        seen.add(named)
        builder = _ItemBuilder(grid, layout.repositories)
        first = [values[0] for values in grid.axes]
        distance = math.prod(map(len, grid.axes[MODEL + 1 :])) * grid.runs
        for number, model in enumerate(grid.axes[MODEL]):
            first[MODEL] = model
            yield start + number * distance, builder.item(tuple(first), 1)


def task_of(prompt: str) -> str:
    """Name of a task in tables: the first line of its prompt, shortened."""
    lines = prompt.strip().splitlines()
    return lines[0][:LONGEST_TASK] if lines else ""


class _ItemBuilder:
    """Builds the items of one grid; shared parts are built once."""

    def __init__(
        self, grid: Grid, repositories: Mapping[str, str], earlier: "_ItemBuilder | None" = None
    ) -> None:
        """`earlier` built another grid: its settings are used again where they are the same."""
        self.grid, self.repositories = grid, repositories
        self.shared: JsonObject | None = earlier.shared if earlier else None
        self.of_defaults: dict[float, JsonObject] = earlier.of_defaults if earlier else {}
        """Settings of prompts whose entries set none of them, by time limit."""
        names = ("settings", "expect") if grid.is_prompt else _FIXED_DETAILS
        self.fixed = {name: grid.settled[name] for name in names if name in grid.settled}
        if grid.settled.get("login") and not grid.is_prompt:
            # A setting of the agent, which not every agent has.
            self.fixed["settings"] = {**self.fixed.get("settings", {}), "login": grid.settled["login"]}
        self.script = grid.settled.get("script")
        self.tasks = {prompt: task_of(prompt) for prompt in grid.axes[PROMPT]}
        self.settings: dict[tuple[float, str | None], JsonObject] = {}

    def item(self, combination: Combination, repeat: int) -> Item:
        """The item of a combination: a prompt, or work in a repository."""
        return (self._prompt_item if self.grid.is_prompt else self._worktree_item)(combination, repeat)

    def marked(self) -> Iterator[tuple[Combination, int]]:
        """Each combination with a number that equal items of all entries share.

        Eight bytes of digest: a collision would only number an item as a second repeat; its id stays unique.
        """
        fixed = _mark_of(self.fixed)
        if self.grid.is_prompt:
            for combination in self.grid.combinations():
                _, prompt, _, model, _, _, _, _, seed, system, _ = combination
                # As text: -1 and -2 have the same hash.
                yield combination, hash((fixed, prompt, model, repr(seed), system))
            return
        marks = [
            _NO_MARK if values is _NO_VALUE else [self._mark(axis, value) for value in values]
            for axis, values in enumerate(self.grid.axes)
        ]
        is_whole = self.grid.is_whole
        every = zip(itertools.product(*self.grid.axes), itertools.product(*marks), strict=True)
        for combination, parts in every:
            if is_whole or self.grid.has(combination):
                # A command is part of an item only where it is the agent.
                relevant = (
                    parts if combination[AGENT] == "command" else (*parts[:COMMAND], *parts[COMMAND + 1 :])
                )
                digest = hashlib.blake2b("|".join((fixed, *relevant)).encode(), digest_size=8).digest()
                yield combination, int.from_bytes(digest)

    def _mark(self, axis: int, value: Any) -> str:
        # The timeout is not part of an item's identity.
        if value is None or axis == _TIMEOUT:
            return ""
        if axis == REPO:
            value = self.repositories[value]
        elif axis == AGENT and value == "scripted":
            value = [value, self.script]
        if axis == PROMPT:
            # Rarely the same as an earlier one.
            return hashlib.blake2b(value.encode(), digest_size=8).hexdigest()
        return _mark_of_text(value) if isinstance(value, str) else _mark_of(value)

    def _worktree_item(self, combination: Combination, repeat: int) -> Item:
        repo, prompt, agent, model, branch, check, command, setup, seed, _, timeout = combination
        repository = self.repositories[repo]
        branch = self.grid.own_branches.get(repo, branch)
        details: JsonObject = {"repository": repository, "baseBranch": branch, **self.fixed}
        if check is not None:
            details["scriptCommand"] = check
        if setup is not None:
            details["setup"] = setup
        if agent == "command":
            details["command"] = command
        elif agent == "scripted":
            details["script"] = self.script
        if seed is not None:
            details["seed"] = seed
        model = model or ""
        return Item(
            runner="worktree",
            agent=agent,
            model=model,
            prompt=prompt,
            details=details,
            settings=self._settings(timeout, repo),
            factors={"model": model, "agent": agent, "repository": repository, "task": self.tasks[prompt]},
            repeat=repeat,
        )

    def _prompt_item(self, combination: Combination, repeat: int) -> Item:
        _, prompt, _, model, _, _, _, _, seed, system, timeout = combination
        details = dict(self.fixed)
        if system is not None:
            details["system"] = system
        if seed is not None:
            details["seed"] = seed
        return Item(
            runner="prompt",
            model=model,
            prompt=prompt,
            details=details,
            settings=self._settings(timeout, None),
            factors={"model": model, "task": self.tasks[prompt]},
            repeat=repeat,
        )

    def _settings(self, timeout: float, repo: str | None) -> JsonObject:
        settled = self.grid.settled
        is_default = (
            repo is None and isinstance(settled, EntrySettings) and _OWN_SETTINGS.isdisjoint(settled.own)
        )
        if is_default and timeout in self.of_defaults:
            return self.of_defaults[timeout]
        if is_default:
            self.of_defaults[timeout] = self._make_settings(timeout, repo)
            return self.of_defaults[timeout]
        return self._make_settings(timeout, repo)

    def _make_settings(self, timeout: float, repo: str | None) -> JsonObject:
        if (timeout, repo) not in self.settings:
            names = _PROMPT_SETTINGS if repo is None else _SETTINGS
            values = {name: self.grid.settled[name] for name in names if name in self.grid.settled}
            values["timeoutSec"] = timeout
            values = values if repo is None else {"repo": repo, **values}
            # Most entries of a plan have the same: one object for all of them.
            self.settings[timeout, repo] = self.shared if values == self.shared else values
            self.shared = self.settings[timeout, repo]
        return self.settings[timeout, repo]


@lru_cache(maxsize=4096)
def _mark_of_text(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


_canonical = compact_encoder(sort_keys=True)


def _mark_of(value: object) -> str:
    return _mark_of_text(_canonical(value))


MOST_ITEMS = 1_000_000
"""Ten times the designed size of a batch; more is a grid that multiplied by accident."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The grids of a plan and the positions of their items."""

    grids: Sequence[Grid]
    starts: Sequence[int]
    """The position of each grid's first item."""
    item_count: int
    repositories: Mapping[str, str]
    """The name of each repository by its path."""


def lay_out(source: PlanSource, defaults: JsonMap, scripts: JsonMap, folder: Path, home: Path) -> Layout:
    """The grids of a plan under these defaults. Raises `PlanError`."""
    maker = _LayoutBuilder(source.data, defaults, scripts, folder, home, settled({}, defaults))
    grids = maker.grids()
    used: set[sources.KeyPath] = set()
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
    # An empty grid would hide the next one, which starts at the same position.
    nonempty = [index for index, count in enumerate(counts) if count]
    paths = {repo for grid in grids for repo in grid.axes[REPO] if repo is not None}
    return Layout(
        grids=[grids[index] for index in nonempty],
        starts=[starts[index] for index in nonempty],
        item_count=starts[-1],
        repositories=repository_names(paths),
    )


@dataclass(frozen=True, slots=True)
class _LayoutBuilder:
    data: Mapping[str, Any]
    defaults: JsonMap
    scripts: JsonMap
    folder: Path
    home: Path
    whole_defaults: Mapping[str, Any]
    """Settings of an entry that sets nothing."""
    branches: dict[str, str] = field(default_factory=dict)
    """The default branch of each repository."""
    default_axes: list[Sequence[Any]] = field(default_factory=list)
    """Those of an entry that sets nothing; empty: not made yet."""

    def grids(self) -> list[Grid]:
        """A grid for each entry of `matrix`, with the exclusions of the plan and its own."""
        everywhere = self._exclusions(("exclude",), self.data.get("exclude"))
        return [self._grid(index, entry, everywhere) for index, entry in enumerate(self.data["matrix"])]

    def _grid(self, index: int, entry: Mapping[str, Any], everywhere: tuple[GridExclusion, ...]) -> Grid:
        holds = settings_of(entry, self.defaults, self.whole_defaults)
        if isinstance(holds.get("script"), str):
            holds = {**holds, "script": self.scripts[holds["script"]]}
        if "repo" in holds:
            holds = {**holds, "repo": [self._path(repo) for repo in as_list(holds["repo"])]}
        own = self._exclusions(("matrix", index, "exclude"), entry.get("exclude"))
        axes = self._axes(holds)
        return Grid(index, holds, axes, own + everywhere, self._own_branches(entry, axes[REPO]))

    def _axes(self, holds: Mapping[str, Any]) -> tuple[Sequence[Any], ...]:
        if not isinstance(holds, EntrySettings):
            return axes_of(holds)
        if not self.default_axes:
            self.default_axes.extend(axes_of(self.whole_defaults))
        # It sets neither a repository nor an agent: the other axes are those of the defaults.
        axes, is_prompt = list(self.default_axes), self.whole_defaults.get("repo") is None
        for name in holds.own:
            if (axis := _AXIS_NUMBERS.get(name)) is not None:
                axes[axis] = _values(holds, name, is_prompt)
        return tuple(axes)

    def _own_branches(self, entry: Mapping[str, Any], repos: Sequence[str | None]) -> Mapping[str, str]:
        """The branches of repositories, unless the plan names one."""
        is_named = entry.get("baseBranch") is not None or self.defaults.get("baseBranch") is not None
        if is_named or repos[0] is None:
            return {}
        # Loaded here: plans of plain prompts have no repository.
        from proctor.git import is_address
        from proctor.workspace.source_repository import default_branch

        for repo in repos:
            if repo is not None and repo not in self.branches:
                self.branches[repo] = "HEAD" if is_address(repo) else default_branch(Path(repo))
        return {repo: self.branches[repo] for repo in repos if repo is not None}

    def _exclusions(
        self, path: sources.KeyPath, entries: Sequence[JsonMap] | None
    ) -> tuple[GridExclusion, ...]:
        return tuple(
            GridExclusion(
                (*path, number), tuple(self._axis_values(name, value) for name, value in entry.items())
            )
            for number, entry in enumerate(entries or ())
        )

    def _axis_values(self, name: str, value: object) -> tuple[int, list[Any]]:
        values = as_list(value)
        if name == "repo":
            values = [repo if repo is None else self._path(repo) for repo in values]
        return AXES.index(name), values

    def _path(self, written: str) -> str:
        # As above.
        from proctor.git import is_address

        if is_address(written):
            return written
        return resolved(written, folder=self.folder, home=self.home)


def _without_model(source: PlanSource, grids: Sequence[Grid]) -> Iterator[Problem]:
    for grid in grids:
        if grid.is_prompt and grid.settled.get("model") is None:
            path = ("matrix", grid.entry)
            remedy = "Without a `repo` it is a call of a model. Add `model`, here or in `defaults`."
            yield source.problem(path, f"{subject(path, vocabulary)} has no `model`", remedy)


def _too_many(source: PlanSource, grids: Sequence[Grid]) -> Iterator[Problem]:
    total = sum(grid.size * grid.runs for grid in grids)
    if total > MOST_ITEMS:
        remedy = f"At most {MOST_ITEMS:,} are run in one batch. Shorten its lists, or `runs`."
        yield source.problem(("matrix",), f"the plan asks for {total:,} items", remedy, of_key=True)


def _count(grid: Grid, used: set[sources.KeyPath]) -> int:
    """Number of remaining combinations; adds the exclusions that matched to `used`."""
    if grid.is_whole:
        return grid.size
    every = grid.all_combinations()
    return sum(not _is_excluded(grid, combination, used) for combination in every)


def _is_excluded(grid: Grid, combination: Combination, used: set[sources.KeyPath]) -> bool:
    matching = {exclusion.path for exclusion in grid.exclusions if exclusion.matches(combination)}
    used |= matching
    return bool(matching)


def _of_exclusions(
    source: PlanSource, grids: Sequence[Grid], used: set[sources.KeyPath], counts: Sequence[int]
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
