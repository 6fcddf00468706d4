"""Expand a plan's grids into the items they ask for.

One after the other, as they are asked for, in a fixed order. The same plan always gives the same
items with the same ids; resuming relies on that. What is absent is left out of an item, so that a
setting nobody knew of yesterday changes no id today. Equal items are repeats of one another,
wherever in the plan they stand.

Knows nothing of YAML, agents, disks or clocks.
"""

import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from proctor.item import Item
from proctor.plan.grid import AGENT, AXES, COMMAND, PROMPT, REPO, Combination, Grid

LONGEST_TASK = 80
_FIXED_DETAILS = ("env", "settings", "expect")
_SETTINGS = ("timeoutSec", "retries", "retryOn", "mergeOnPass", "keep", "tags", "jsonLogs", "budget")
_PROMPT_SETTINGS = ("timeoutSec", "retries", "retryOn", "tags", "jsonLogs", "budget")
_TIMEOUT = AXES.index("timeoutSec")


def expand(grids: Iterable[Grid], repositories: Mapping[str, str]) -> Iterator[Item]:
    """All items of all grids. `repositories` gives each path the name it has on every machine."""
    repeats: dict[int, int] = {}
    for grid in grids:
        maker = _Maker(grid, repositories)
        runs = grid.runs
        for combination, mark in maker.marked():
            done = repeats.get(mark, 0)
            repeats[mark] = done + runs
            for repeat in range(done + 1, done + runs + 1):
                yield maker.item(combination, repeat)


def task_of(prompt: str) -> str:
    """What a task is called in tables: the first line of its prompt, cut short."""
    lines = prompt.strip().splitlines()
    return lines[0][:LONGEST_TASK] if lines else ""


class _Maker:
    """Makes the items of one grid; what they share is made once."""

    def __init__(self, grid: Grid, repositories: Mapping[str, str]) -> None:
        self.grid, self.repositories = grid, repositories
        names = ("settings", "expect") if grid.is_prompt else _FIXED_DETAILS
        self.fixed = {name: grid.settled[name] for name in names if name in grid.settled}
        self.script = grid.settled.get("script")
        self.tasks = {prompt: task_of(prompt) for prompt in grid.axes[PROMPT]}
        self.settings: dict[tuple[Any, Any], dict[str, Any]] = {}
        self.item = self._prompt_item if grid.is_prompt else self._worktree_item

    def marked(self) -> Iterator[tuple[Combination, int]]:
        """Each combination with a number that equal items share, in whatever entry they stand.

        Eight bytes of digest: should two items ever share them by chance, one is called the second
        repeat of nothing, and its id is still its own.
        """
        marks = [[self._mark(axis, value) for value in values] for axis, values in enumerate(self.grid.axes)]
        fixed = _mark_of(self.fixed)
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
        # How long an item may take is not part of what it is.
        if value is None or axis == _TIMEOUT:
            return ""
        if axis == REPO:
            value = self.repositories[value]
        elif axis == AGENT and value == "scripted":
            value = [value, self.script]
        return _mark_of_text(value) if isinstance(value, str) else _mark_of(value)

    def _worktree_item(self, combination: Combination, repeat: int) -> Item:
        repo, prompt, agent, model, branch, check, command, setup, seed, _, timeout = combination
        repository = self.repositories[repo]
        details: dict[str, Any] = {"repository": repository, "baseBranch": branch, **self.fixed}
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

    def _settings(self, timeout: float, repo: str | None) -> dict[str, Any]:
        if (timeout, repo) not in self.settings:
            names = _PROMPT_SETTINGS if repo is None else _SETTINGS
            made = {name: self.grid.settled[name] for name in names if name in self.grid.settled}
            made["timeoutSec"] = timeout
            self.settings[timeout, repo] = made if repo is None else {"repo": repo, **made}
        return self.settings[timeout, repo]


@lru_cache(maxsize=4096)
def _mark_of_text(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _mark_of(value: Any) -> str:
    return _mark_of_text(json.dumps(value, sort_keys=True))
