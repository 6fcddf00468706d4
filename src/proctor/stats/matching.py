"""The items of runs that are to be compared: what each came to on a metric, and which belong together.

Two items belong together when they ask the same apart from what is varied. What is varied is found out:
an input that no two groups have a value of in common. Judged sessions belong together by their scenario or
by their id.

Knows nothing of statistics or of how a comparison is shown.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from proctor.errors import NotFound, UsageError
from proctor.item import ERROR, FINISHED, SUCCESS
from proctor.store import StoreReader
from proctor.store.database import places

FIGURES = ("success", "cost", "time", "tokens")


PAIRINGS = ("item", "scenario", "session")


SCORE, MEASURE = "score:", "metric:"


Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedItem:
    """One item, ready to be compared."""

    group: str
    run_id: str
    item_id: str
    words: str
    """What people call it: its prompt, its task, its session."""
    key: str
    """The same for items of different groups that belong together, and for repeats."""
    status: str
    values: Mapping[str, float | None]
    """By metric. None: it has no value."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """Of the evaluator of each score."""

    @property
    def is_error(self) -> bool:
        """Whether we or the infrastructure failed it, which says nothing about what is compared."""
        return self.status == ERROR


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """What is compared with what."""

    names: tuple[str, ...]
    """The first is what the others are held against."""
    items: tuple[ComparedItem, ...]
    metrics: tuple[str, ...]
    """Those that at least one item has a value of; in the order they are told."""
    pair: str
    varied: tuple[str, ...] = ()
    """The inputs that differ between the groups."""
    stand_ins: tuple[str, ...] = ()


def groups_of_runs(read: StoreReader, runs: Sequence[str], now: datetime, *, pair: str = "") -> Groups:
    """Each run a group, the first one the baseline."""
    ids = [read.batch(run, now)["runId"] for run in runs]
    if len(set(ids)) < len(ids):
        raise UsageError("a run cannot be compared with itself\nGive --by to compare parts of one run.")
    rows = [row | {"group": run_id} for run_id in ids for row in _rows(read, run_id)]
    return _grouped(read, ids, rows, pair)


def groups_within(read: StoreReader, run: str, factor: str, now: datetime, *, pair: str = "") -> Groups:
    """Each level of a factor of one run a group; the first one in the plan is the baseline."""
    run_id = read.batch(run, now)["runId"]
    rows = [row | {"group": row["levels"].get(factor, "")} for row in _rows(read, run_id)]
    known = sorted({name for row in rows for name in row["levels"]})
    levels = list(dict.fromkeys(row["group"] for row in rows if row["group"]))
    if not levels:
        raise NotFound(f"items of {run_id} have no factor {factor}\nThere are: {', '.join(known) or 'none'}.")
    if len(levels) < 2:
        raise UsageError(f"all items of {run_id} have the same {factor}\nThere is nothing to compare.")
    return _grouped(read, levels, [row for row in rows if row["group"]], pair)


def _rows(read: StoreReader, run_id: str) -> list[Row]:
    rows = read.query(
        'SELECT i.*, s."workSeconds", s."standIn" FROM "batch_items" i '
        'LEFT JOIN "sessions" s ON s."id" = i."sessionId" WHERE i."runId" = ? ORDER BY i."position"',
        (run_id,),
    )
    opened = {"levels": "factors", "asked": "details"}
    return [row | {name: json.loads(row[column]) for name, column in opened.items()} for row in rows]


def _grouped(read: StoreReader, names: Sequence[str], rows: list[Row], pair: str) -> Groups:
    if pair and pair not in PAIRINGS:
        raise UsageError(f"items cannot be paired by {pair}\nThere are: {', '.join(PAIRINGS)}.")
    pair = pair or _pairing(rows)
    varied: tuple[str, ...] = ()
    if pair == "item":
        inputs = [dict(_inputs(row)) for row in rows]
        varied = _varied([row["group"] for row in rows], inputs)
        keys = [_digest(given, frozenset(varied)) for given in inputs]
    else:
        keys = [_key(row, pair) for row in rows]
    scores, digests = _scores(read, rows)
    measures = _measures(read, rows)
    items = tuple(
        ComparedItem(
            group=row["group"],
            run_id=row["runId"],
            item_id=row["id"],
            words=str(row["levels"].get("scenario") or row["prompt"]),
            key=key,
            status=row["status"],
            values={
                **_figures(row),
                **scores.get(row["sessionId"], {}),
                **measures.get(row["sessionId"], {}),
            },
            digests=digests.get(row["sessionId"], {}),
        )
        for row, key in zip(rows, keys, strict=True)
        if row["status"] in FINISHED and key
    )
    return Groups(
        names=tuple(names),
        items=items,
        metrics=_metrics(items),
        pair=pair,
        varied=varied,
        stand_ins=tuple(sorted({row["model"] or row["agent"] for row in rows if row["standIn"]})),
    )


def _pairing(rows: Sequence[Row]) -> str:
    if any(row["runner"] != "evaluation" for row in rows):
        return "item"
    scenarios: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        scenarios[row["group"]].add(row["levels"].get("scenario", ""))
    shared = set[str].intersection(*scenarios.values()) - {""} if scenarios else set[str]()
    return "scenario" if shared else "session"


def _key(row: Row, pair: str) -> str:
    """What an item is paired by; empty: nothing."""
    if pair == "scenario":
        return str(row["levels"].get("scenario") or row["levels"].get("task") or "")
    return str(row["asked"].get("session") or row["prompt"])


def _digest(inputs: Mapping[str, str], varied: frozenset[str]) -> str:
    """The same for items that ask the same apart from what is varied."""
    same = "\n".join(f"{path}={inputs[path]}" for path in sorted(inputs) if path not in varied)
    return hashlib.sha256(same.encode()).hexdigest()


def _varied(members: Sequence[str], inputs: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    """The inputs of which no two groups have a value in common."""
    seen: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    groups = set(members)
    for group, given in zip(members, inputs, strict=True):
        for path, value in given.items():
            seen[path][group].add(value)
    found = []
    for path, by_group in seen.items():
        values = [by_group.get(group, set()) for group in groups]
        if sum(map(len, values)) == len(set[str]().union(*values)):
            found.append(path)
    return tuple(sorted(found))


def _inputs(row: Row) -> Iterator[tuple[str, str]]:
    """Every input of an item as JSON, with its path; what stands in mappings stands by itself."""
    top = {name: row[name] for name in ("runner", "agent", "model", "prompt")}
    yield from _flat("", {**top, **row["asked"]})


def _flat(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for name, part in value.items():
            yield from _flat(f"{path}.{name}" if path else name, part)
    else:
        yield path, json.dumps(value, sort_keys=True)


def _figures(row: Row) -> dict[str, float | None]:
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
    found = {name for item in items for name, value in item.values.items() if value is not None}
    figures = [name for name in FIGURES if name in found]
    return (*figures, *sorted(found - set(figures)))


def _scores(
    read: StoreReader, rows: Sequence[Row]
) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, str]]]:
    """The mean score of each session by evaluator and dimension, and the evaluators' digests.

    Those of its own attempt, else those that an evaluation gave the session later, the last one.
    """
    values: dict[str, dict[str, float]] = defaultdict(dict)
    digests: dict[str, dict[str, str]] = defaultdict(dict)
    for column, condition in (
        ("judgedSessionId", 'sc."sessionId" <> sc."judgedSessionId"'),
        ("sessionId", "1 = 1"),
    ):
        for page in _pages([row["sessionId"] for row in rows if row["sessionId"]]):
            for row in read.query(
                f'SELECT sc."{column}" AS "about", sc."evaluator", sc."evaluatorDigest", sc."dimension", '
                'AVG(sc."value") AS "mean", MAX(sc."timestamp") AS "at" FROM "scores" sc '
                f'WHERE sc."{column}" IN ({places(page)}) AND sc."value" IS NOT NULL AND {condition} '
                f'GROUP BY sc."{column}", sc."sessionId", sc."evaluator", sc."evaluatorDigest", '
                'sc."dimension" ORDER BY "at"',
                page,
            ):
                name = score_name(row["evaluator"], row["dimension"])
                values[row["about"]][name] = row["mean"]
                digests[row["about"]][name] = row["evaluatorDigest"]
    return values, digests


def _measures(read: StoreReader, rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """The last value of each number that was measured in a session."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for page in _pages([row["sessionId"] for row in rows if row["sessionId"]]):
        for row in read.query(
            f'SELECT "sessionId", "name", "value" FROM "metrics" WHERE "sessionId" IN ({places(page)}) '
            'AND "value" IS NOT NULL ORDER BY "step", "position"',
            page,
        ):
            found[row["sessionId"]][MEASURE + row["name"]] = row["value"]
    return found


def score_name(evaluator: str, dimension: str = "") -> str:
    """What a score is called as a metric."""
    return f"{SCORE}{evaluator}/{dimension}" if dimension else SCORE + evaluator


def _pages(ids: Iterable[str]) -> Iterator[tuple[str, ...]]:
    every = list(dict.fromkeys(ids))
    return (tuple(every[at : at + 500]) for at in range(0, len(every), 500))
