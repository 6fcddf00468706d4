"""Pairs the items of runs to compare, with their values of a metric.

Two items are paired if their inputs are equal apart from what is varied: an input with no value in common
between two groups. Evaluated sessions are paired by scenario or id.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from proctor.errors import NotFound, UsageError
from proctor.item import ERROR, FINISHED, SUCCESS
from proctor.store import StoreReader
from proctor.store.items import ItemWithTime, items_with_time
from proctor.store.scores import MeanScore, MeasuredValue, mean_scores, measured_values

FIGURES = ("success", "cost", "time", "tokens")
PAIRINGS = ("item", "scenario", "session")
SCORE, MEASURE = "score:", "metric:"


@dataclass(frozen=True, slots=True)
class _GroupedItem:
    """An item of a group with its factors and inputs."""

    row: ItemWithTime
    group: str
    levels: Mapping[str, str]
    inputs: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedItem:
    """One item, ready to be compared."""

    group: str
    run_id: str
    item_id: str
    words: str
    """Display name: prompt, task or session."""
    key: str
    """The same for items of different groups that belong together, and for repeats."""
    status: str
    values: Mapping[str, float | None]
    """By metric. None: it has no value."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """Of the evaluator of each score."""

    @property
    def is_error(self) -> bool:
        """Whether it ended in an infrastructure error and is excluded."""
        return self.status == ERROR


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Items to compare, by group."""

    names: tuple[str, ...]
    """The first is the baseline."""
    items: tuple[ComparedItem, ...]
    metrics: tuple[str, ...]
    """Metrics with a value in at least one item, in display order."""
    pair: str
    varied: tuple[str, ...] = ()
    """The inputs that differ between the groups."""
    stand_ins: tuple[str, ...] = ()


def groups_of_runs(read: StoreReader, runs: Sequence[str], now: datetime, *, pair: str = "") -> Groups:
    """Each run a group, the first one the baseline."""
    ids = [read.batch(run, now)["runId"] for run in runs]
    if len(set(ids)) < len(ids):
        raise UsageError("a run cannot be compared with itself\nGive --by to compare parts of one run.")
    items = [
        _grouped_item(row, json.loads(row["factors"]), run_id)
        for run_id in ids
        for row in items_with_time(read, run_id)
    ]
    return _grouped(read, ids, items, pair)


def groups_within(read: StoreReader, run: str, factor: str, now: datetime, *, pair: str = "") -> Groups:
    """Each level of a factor of one run a group; the first one in the plan is the baseline."""
    run_id = read.batch(run, now)["runId"]
    opened = [(row, json.loads(row["factors"])) for row in items_with_time(read, run_id)]
    items = [_grouped_item(row, factors, factors.get(factor, "")) for row, factors in opened]
    known = sorted({name for item in items for name in item.levels})
    levels = list(dict.fromkeys(item.group for item in items if item.group))
    if not levels:
        raise NotFound(f"items of {run_id} have no factor {factor}\nThere are: {', '.join(known) or 'none'}.")
    if len(levels) < 2:
        raise UsageError(f"all items of {run_id} have the same {factor}\nThere is nothing to compare.")
    return _grouped(read, levels, [item for item in items if item.group], pair)


def _grouped_item(row: ItemWithTime, levels: Mapping[str, str], group: str) -> _GroupedItem:
    return _GroupedItem(row, group, levels, json.loads(row["details"]))


def _grouped(read: StoreReader, names: Sequence[str], members: Sequence[_GroupedItem], pair: str) -> Groups:
    if pair and pair not in PAIRINGS:
        raise UsageError(f"items cannot be paired by {pair}\nThere are: {', '.join(PAIRINGS)}.")
    pair = pair or _pairing(members)
    varied: tuple[str, ...] = ()
    if pair == "item":
        inputs = [dict(_inputs(member)) for member in members]
        varied = _varied([member.group for member in members], inputs)
        keys = [_digest(values, frozenset(varied)) for values in inputs]
    else:
        keys = [_key(member, pair) for member in members]
    session_ids = [member.row["sessionId"] for member in members if member.row["sessionId"]]
    scores, digests = _scores(mean_scores(read, session_ids))
    measures = _measures(measured_values(read, session_ids))
    items = tuple(
        ComparedItem(
            group=member.group,
            run_id=member.row["runId"],
            item_id=member.row["id"],
            words=str(member.levels.get("scenario") or member.row["prompt"]),
            key=key,
            status=member.row["status"],
            values={
                **_figures(member.row),
                **scores.get(member.row["sessionId"] or "", {}),
                **measures.get(member.row["sessionId"] or "", {}),
            },
            digests=digests.get(member.row["sessionId"] or "", {}),
        )
        for member, key in zip(members, keys, strict=True)
        if member.row["status"] in FINISHED and key
    )
    return Groups(
        names=tuple(names),
        items=items,
        metrics=_metrics(items),
        pair=pair,
        varied=varied,
        stand_ins=tuple(
            sorted({item.row["model"] or item.row["agent"] for item in members if item.row["standIn"]})
        ),
    )


def _pairing(members: Sequence[_GroupedItem]) -> str:
    if any(member.row["runner"] != "evaluation" for member in members):
        return "item"
    scenarios: dict[str, set[str]] = defaultdict(set)
    for member in members:
        scenarios[member.group].add(member.levels.get("scenario", ""))
    shared = set[str].intersection(*scenarios.values()) - {""} if scenarios else set[str]()
    return "scenario" if shared else "session"


def _key(member: _GroupedItem, pair: str) -> str:
    """Key that items are paired by; empty: not paired."""
    if pair == "scenario":
        return str(member.levels.get("scenario") or member.levels.get("task") or "")
    return str(member.inputs.get("session") or member.row["prompt"])


def _digest(inputs: Mapping[str, str], varied: frozenset[str]) -> str:
    """Digest of an item's inputs without the varied ones."""
    same = "\n".join(f"{path}={inputs[path]}" for path in sorted(inputs) if path not in varied)
    return hashlib.sha256(same.encode()).hexdigest()


def _varied(members: Sequence[str], inputs: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    """The inputs of which no two groups have a value in common."""
    by_path: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    groups = set(members)
    for group, item_inputs in zip(members, inputs, strict=True):
        for path, value in item_inputs.items():
            by_path[path][group].add(value)
    varied = []
    for path, by_group in by_path.items():
        values = [by_group.get(group, set()) for group in groups]
        if sum(map(len, values)) == len(set[str]().union(*values)):
            varied.append(path)
    return tuple(sorted(varied))


def _inputs(member: _GroupedItem) -> Iterator[tuple[str, str]]:
    """Every input of an item as JSON, with its path; mappings are flattened."""
    row = member.row
    top = {"runner": row["runner"], "agent": row["agent"], "model": row["model"], "prompt": row["prompt"]}
    yield from _flat("", {**top, **member.inputs})


def _flat(path: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for name, part in value.items():
            yield from _flat(f"{path}.{name}" if path else name, part)
    else:
        yield path, json.dumps(value, sort_keys=True)


def _figures(row: ItemWithTime) -> dict[str, float | None]:
    if row["runner"] == "evaluation":
        # Whether a session could be judged says nothing about the session; what judging cost, neither.
        return {}
    succeeded = None if row["status"] == ERROR else float(row["status"] == SUCCESS)
    return {
        "success": succeeded,
        "cost": row["costUsd"],
        "time": row["workSeconds"],
        "tokens": float(row["tokensTotal"]) if row["tokensTotal"] else None,
    }


def _metrics(items: Sequence[ComparedItem]) -> tuple[str, ...]:
    names = {name for item in items for name, value in item.values.items() if value is not None}
    figures = [name for name in FIGURES if name in names]
    return (*figures, *sorted(names - set(figures)))


def _scores(
    rows: Iterable[MeanScore],
) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, str]]]:
    """The mean score of each session by evaluator and dimension, and the evaluators' digests.

    Those of its own attempt, else those that an evaluation gave the session later, the last one.
    """
    values: dict[str, dict[str, float]] = defaultdict(dict)
    digests: dict[str, dict[str, str]] = defaultdict(dict)
    for row in rows:
        name = score_name(row["evaluator"], row["dimension"])
        values[row["about"]][name] = row["mean"]
        digests[row["about"]][name] = row["evaluatorDigest"]
    return values, digests


def _measures(rows: Iterable[MeasuredValue]) -> dict[str, dict[str, float]]:
    """The last value of each number that was measured in a session."""
    scores: dict[str, dict[str, float]] = defaultdict(dict)
    for row in rows:
        scores[row["sessionId"]][MEASURE + row["name"]] = row["value"]
    return scores


def score_name(evaluator: str, dimension: str = "") -> str:
    """What a score is called as a metric."""
    return f"{SCORE}{evaluator}/{dimension}" if dimension else SCORE + evaluator
