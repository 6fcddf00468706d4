"""Finished items as columns: what comparisons, ranks, reports and power are computed from.

One row is one finished item, of a run or of an imported table. A task is everything an item was given, apart
from what differs between the groups that are compared: so the same task of two models, or of two runs, has
the same code, and so have repeats.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from proctor.errors import NotFound, UsageError
from proctor.formatting import plural
from proctor.item import ERROR, FINISHED, UNCHECKED

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

PAIRINGS = BY_ITEM, BY_TASK, BY_SCENARIO, BY_SESSION = ("item", "task", "scenario", "session")
"""What two items have in common that are compared with each other."""
SHOWN_REST = 40
"""Characters of the rest of a prompt that are shown where the names of tasks agree."""
AGENT_VERSION = "agentVersion"
SERVED_MODEL = "servedModel"
"""A factor where an agent has several versions among the results."""
TREATMENT = ("agent", "model")
"""Inputs that identify the agent or model, not the task."""
SIDE_LABEL = "label"
SIDE_INPUTS = (SIDE_LABEL, "model", "profileName")
"""Inputs below the name of a side, where several agents or roles take part in an item."""
OF_SIDES = ("combination", "model", "prompt")
"""Inputs that only name the sides of an item."""


@dataclass(frozen=True, slots=True)
class Labels:
    """One label for each row, as codes. A code of -1: the row has none."""

    codes: Ints
    labels: tuple[str, ...]

    @classmethod
    def of(cls, values: Iterable[str | None]) -> "Labels":
        """A column of labels in the order of their first appearance; None and '' are missing."""
        known: dict[str, int] = {}
        codes = [known.setdefault(value, len(known)) if value else -1 for value in values]
        return cls(np.asarray(codes, dtype=np.int64), tuple(known))

    def where(self, mask: Mask) -> "Labels":
        """The rows of a mask; the labels stay."""
        return Labels(self.codes[mask], self.labels)

    def mask(self, label: str) -> Mask:
        """The rows that have a label; `""`: those that have none. No row has an unknown one."""
        if label and label not in self.labels:
            return np.zeros(len(self.codes), dtype=np.bool_)
        return np.asarray(self.codes == (self.labels.index(label) if label else -1))


def versioned(agent: str, version: str) -> str:
    """An agent with its version. Most programs print only a number."""
    return version if agent in version else f"{agent} {version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherModel:
    """Items whose agent used another model than the requested one; they count for the one that answered."""

    requested: str
    answered: str
    items: int

    def __str__(self) -> str:
        return f"{self.requested} was requested, {self.answered} answered ({plural(self.items, 'item')})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """Who answered the calls to one model, as its provider says."""

    requested: str
    answered: tuple[tuple[str, int], ...]
    """The models that answered, with their numbers of calls."""

    @property
    def is_mixed(self) -> bool:
        """Whether several models answered under one name: results under it are not of one model."""
        return len(self.answered) > 1

    def __str__(self) -> str:
        names = " and ".join(f"{name} ({plural(calls, 'call')})" for name, calls in self.answered)
        return f"{self.requested} was answered by {names}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Finished items as columns of equal length."""

    runs: Labels
    factors: Mapping[str, Labels]
    """The levels of each factor."""
    labels: tuple[str, ...]
    """How people call the task of each row. Rows are paired by it where nothing else is known of a task."""
    item_ids: tuple[str, ...]
    status: Ints
    """Indexes in `FINISHED`."""
    reasons: Labels
    repeat: Ints
    metrics: Mapping[str, Floats]
    """By name: `success`, `cost`, `time`, `tokens`, `score:EVALUATOR`, `metric:NAME`. NaN: no value."""
    evaluators: Mapping[str, Labels]
    """The digests of the evaluators behind the scores, by metric."""
    scales: Mapping[str, tuple[float, float]]
    """The lowest and the highest value that evaluators and scenarios declare, by metric."""
    inputs: "Inputs"
    is_evaluation: Mask
    """Rows that evaluate a session: whether they ended well says nothing about the session."""
    stand_ins: tuple[str, ...] = ()
    """Scripted and mock agents and models among them."""
    answered: tuple[OtherModel, ...] = ()
    """Where another model answered than the requested one."""
    served: tuple[ServedModel, ...] = ()
    """Who answered the calls to each model, as the providers say."""
    agent_versions: tuple[str, ...] = ()
    """The agents whose versions are known: `codex 0.45.0`."""
    imported: frozenset[str] = frozenset()
    """Runs whose results come from another tool."""
    unfinished: Mapping[str, int] = field(default_factory=dict)
    """Items of each run that have no result yet."""
    time_limit: float | None = None
    """The longest that any item may work, in seconds; None: unknown, or there is none."""
    rests: tuple[str, ...] = ()
    """What follows in the prompt of each row whose label is only its beginning; empty: no row has any."""

    @classmethod
    def of(
        cls,
        *,
        tasks: Sequence[str],
        status: Sequence[str],
        repeat: Sequence[int],
        factors: Mapping[str, Iterable[str | None]],
        metrics: Mapping[str, Iterable[float | None]],
    ) -> "Results":
        """Finished items that are no items of the store as they are. Nothing is known of their inputs."""
        count = len(status)
        return cls(
            runs=Labels.of([""] * count),
            factors={name: Labels.of(levels) for name, levels in factors.items()},
            labels=tuple(tasks),
            item_ids=("",) * count,
            status=np.asarray([FINISHED.index(each) for each in status], dtype=np.int64),
            reasons=Labels.of([""] * count),
            repeat=np.asarray(repeat, dtype=np.int64),
            # None becomes NaN.
            metrics={name: np.asarray(list(values), dtype=np.float64) for name, values in metrics.items()},
            evaluators={},
            scales={},
            inputs=Inputs(np.zeros((count, 0), dtype=np.uint64), ()),
            is_evaluation=np.zeros(count, dtype=np.bool_),
        )

    def __len__(self) -> int:
        return len(self.status)

    @property
    def is_error(self) -> Mask:
        """Rows that ended in an infrastructure error: they have no success, and are counted."""
        return np.asarray(self.status == FINISHED.index(ERROR))

    @property
    def is_unchecked(self) -> Mask:
        """Rows that nothing checked: they have no success either."""
        return self.reasons.mask(UNCHECKED)

    @property
    def with_errors_failed(self) -> Floats:
        """Success, with every infrastructure error counted as a failure."""
        return np.asarray(np.where(self.is_error & ~self.is_evaluation, 0.0, self.metrics["success"]))

    def with_failed_errors(self) -> "Results":
        """The same with every infrastructure error counted as a failure."""
        return replace(self, metrics={**self.metrics, "success": self.with_errors_failed})

    def where(self, mask: Mask) -> "Results":
        """The rows of a mask."""
        rows = np.flatnonzero(mask).tolist()
        return replace(
            self,
            runs=self.runs.where(mask),
            factors={name: column.where(mask) for name, column in self.factors.items()},
            labels=tuple(map(self.labels.__getitem__, rows)),
            rests=tuple(map(self.rests.__getitem__, rows)) if self.rests else (),
            item_ids=tuple(map(self.item_ids.__getitem__, rows)),
            status=self.status[mask],
            reasons=self.reasons.where(mask),
            repeat=self.repeat[mask],
            metrics={name: values[mask] for name, values in self.metrics.items()},
            evaluators={name: column.where(mask) for name, column in self.evaluators.items()},
            inputs=Inputs(self.inputs.digests[mask], self.inputs.paths),
            is_evaluation=self.is_evaluation[mask],
        )

    def column(self, name: str) -> Labels:
        """The runs (`run`), or the levels of a factor."""
        if name == "run":
            return self.runs
        if name not in self.factors:
            known = ", ".join(self.factors) or "none"
            raise NotFound(f"the items have no factor {name}\nThere are: {known}.")
        return self.factors[name]

    def tasks(self, groups: Labels | None = None, pair: str = BY_ITEM) -> tuple[Labels, tuple[str, ...]]:
        """The task of each row, and the inputs that vary between the groups and are not part of it.

        Without groups, agent and model and what differs with them are left out: they do not make a task.
        """
        if pair not in PAIRINGS:
            raise UsageError(f"items cannot be paired by {pair}\nThere are: {', '.join(PAIRINGS)}.")
        if pair == BY_TASK:
            return Labels.of(self.labels), ()
        if pair == BY_SCENARIO:
            column = self.factors.get("scenario") or self.factors.get("task")
            empty = np.full(len(self), -1, dtype=np.int64)
            return column or Labels(empty, ()), ()
        if pair == BY_SESSION:
            codes = self.inputs.coded("session" if "session" in self.inputs.paths else "prompt")
            return self._named(codes), ()
        varied = self.inputs.varied(groups.codes) if groups else self._treatment()
        same = [path for path in self.inputs.paths if path not in varied]
        return self._named(self.inputs.coded(*same)), tuple(sorted(varied))

    def _treatment(self) -> set[str]:
        """Agent and model, and what differs with them; commands that are agents differ by their names."""
        known = [self.factors[name].codes for name in TREATMENT if name in self.factors]
        if len(known) > 1:
            known.append(known[0] * (int(known[1].max(initial=-1)) + 2) + known[1])
        return self.inputs.treatment().union(*map(self.inputs.treatment, known))

    def _named(self, codes: Ints) -> Labels:
        """Codes with the label of the first row of each; where labels are cut, such that they differ."""
        first = np.zeros(int(codes.max(initial=-1)) + 1, dtype=np.int64)
        # Of several assignments the last remains: that of the first row.
        first[codes[::-1]] = np.arange(len(codes))[::-1]
        labels = tuple(map(self.labels.__getitem__, first.tolist()))
        if self.rests:
            labels = distinct_labels(labels, [self.rests[row] for row in first.tolist()])
        return Labels(codes, labels)

    def pairing(self) -> str:
        """How rows pair unless somebody says otherwise: sessions that were evaluated by their scenario, and
        results of another tool, of which only the name of the task is known, by that name."""
        if 0 < len(self.imported) < len(self.runs.labels):
            return BY_TASK
        if not len(self) or not bool(self.is_evaluation.all()):
            return BY_ITEM
        scenarios = self.factors.get("scenario")
        if scenarios is None:
            return BY_SESSION
        shared = set(scenarios.codes[self.runs.codes == 0])
        for run in range(1, len(self.runs.labels)):
            shared &= set(scenarios.codes[self.runs.codes == run])
        return BY_SCENARIO if shared - {-1} else BY_SESSION


def distinct_labels(labels: Sequence[str], rests: Sequence[str]) -> tuple[str, ...]:
    """Labels that are cut and agree, each with the part of its rest by which it differs, or else a number.

    >>> distinct_labels(["Fix", "Fix", "Add", "Mend"], [" the slow test", " the slow build", "", " all"])
    ('Fix … test', 'Fix … build', 'Add', 'Mend…')
    """
    alike: dict[str, list[int]] = {}
    for index, (label, rest) in enumerate(zip(labels, rests, strict=True)):
        if rest:
            alike.setdefault(label, []).append(index)
    named = list(labels)
    for places in alike.values():
        if len(places) < 2:
            named[places[0]] += "…"
            continue
        first, last = (choose(rests[place] for place in places) for choose in (min, max))
        shared = next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
        # From the beginning of the word in which they differ.
        start = first.rfind(" ", 0, shared) + 1
        used: Counter[str] = Counter()
        for row in places:
            part = rests[row][start : start + SHOWN_REST].strip()
            name = f"{labels[row]} … {part}" if part else labels[row]
            used[name] += 1
            named[row] = name if used[name] == 1 else f"{name} ({used[name]})"
    return tuple(named)


@dataclass(frozen=True, slots=True)
class Inputs:
    """What items were given, as digests: one row an item, one column for each path."""

    digests: NDArray[np.uint64]
    """0: the row does not have it."""
    paths: tuple[str, ...]
    _treatments: list[frozenset[str]] = field(default_factory=list, compare=False, repr=False)
    """The treatment without groups, once it is known: it takes a tenth of a second for 100,000 items."""

    def coded(self, *paths: str) -> Ints:
        """One code for each distinct row of some paths, in order of appearance."""
        # One number for each row: sorting rows of many columns would take seconds.
        mixed = np.zeros(len(self.digests), dtype=np.uint64)
        for path in paths:
            mixed = _mix(mixed ^ self.digests[:, self.paths.index(path)])
        _, first, inverse = np.unique(mixed, return_index=True, return_inverse=True)
        places = np.empty(len(first), dtype=np.int64)
        places[np.argsort(first, kind="stable")] = np.arange(len(first))
        return np.asarray(places[inverse], dtype=np.int64)

    def varied(self, groups: Ints) -> set[str]:
        """The paths of which no two groups share a value; agent and model also where each group has one.

        Where a side of an item is compared, also its other inputs, unless all groups have the same values
        of them: a role without a model is compared with roles that share one.
        """
        if len(np.unique(groups)) < 2:
            return set()
        varied = {path for at, path in enumerate(self.paths) if _is_varied(self.digests[:, at], groups)}
        varied |= {path for path in TREATMENT if path in self.paths and self._is_of_groups(path, groups)}
        sides = [side for side, _, name in (path.partition(".") for path in self.paths) if name == SIDE_LABEL]
        compared = [side for side in sides if varied & {f"{side}.{name}" for name in SIDE_INPUTS}]
        if not compared:
            return varied
        prefixes = tuple(f"{side}." for side in compared)
        varied |= {
            path
            for at, path in enumerate(self.paths)
            if path.startswith(prefixes) and not _is_crossed(self.digests[:, at], groups)
        }
        return varied | {path for path in OF_SIDES if path in self.paths}

    def _is_of_groups(self, path: str, groups: Ints) -> bool:
        """Whether each group has one value of a path, and not all the same; some may share theirs."""
        codes = self.coded(path)
        return bool(codes.any()) and _distinct(groups, codes) == len(np.unique(groups))

    def treatment(self, groups: Ints | None = None) -> set[str]:
        """Agent and model, and the paths that differ with them, or between groups, and make no tasks.

        Where groups worked on different tasks, what makes tasks within a group differs between groups as
        well, and is no treatment.
        """
        chosen = [path for path in self.paths if path in TREATMENT]
        groupings = [self.coded(path) for path in chosen] + [self.coded(*chosen)]
        distinct: list[Ints] = []
        for grouping in groupings:
            if not any(np.array_equal(grouping, other) for other in distinct):
                distinct.append(grouping)
        if not self._treatments:
            self._treatments.append(
                frozenset(chosen).union(*(self._apart(each, chosen) for each in distinct))
            )
        own = set(self._treatments[0])
        if groups is None or any(np.array_equal(groups, other) for other in distinct):
            return own
        return own | self._apart(groups, chosen)

    def _apart(self, groups: Ints, chosen: Sequence[str]) -> set[str]:
        """The paths that vary between groups and make no tasks within one."""
        varied = self.varied(groups)
        if not varied:
            return varied
        tasks = self.coded(*(path for path in self.paths if path not in chosen))
        rest = self.coded(*(path for path in self.paths if path not in chosen and path not in varied))
        if _distinct(groups, tasks) == _distinct(groups, rest):
            return varied
        number = len(np.unique(groups))
        return {path for path in varied if _distinct(groups, self.coded(path)) == number}


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A bijective mixer of 64-bit numbers (the finalizer of SplitMix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray((values ^ (values >> np.uint64(31))) + np.uint64(0x9E3779B97F4A7C15))


def _distinct(groups: Ints, codes: Ints) -> int:
    """How many pairs of a group and a code there are."""
    width = int(codes.max(initial=0)) + 1
    return len(np.unique(groups.astype(np.int64) * width + codes))


def _is_varied(values: NDArray[np.uint64], groups: Ints) -> bool:
    """Whether no two groups have a value of an input in common."""
    if len(values) and values[0] and bool((values == values[0]).all()):
        # Most inputs are the same in all rows.
        return False
    present = values != 0
    # Groups are few: a pair of value and group is one number, since equal values differ only by group.
    pairs = _mix(values[present]) + groups[present].astype(np.uint64)
    return len(np.unique(pairs)) == len(np.unique(values[present]))


def _is_crossed(values: NDArray[np.uint64], groups: Ints) -> bool:
    """Whether all groups have the same values of an input; none is one of them."""
    sets = [np.unique(values[groups == group]) for group in np.unique(groups)]
    return all(np.array_equal(sets[0], other) for other in sets[1:])
