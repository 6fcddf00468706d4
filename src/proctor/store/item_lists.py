"""Lists of the items of a run: filtered, sorted and counted in the database, paged by position."""

import re
from array import array
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TypedDict

from proctor.errors import NotFound, UsageError
from proctor.item import ERROR, FAIL, STATUSES, TIMEOUT
from proctor.store.annotations import NOTE, STAR, TAG, annotations
from proctor.store.codec import cut, head
from proctor.store.database import id_pages, literals, places
from proctor.store.items import CUT, PLAIN, ItemOutcome, OutcomeScore, level_of
from proctor.store.reader import ItemFilter, StoreReader, item_where, seconds_between, uses_postgres
from proctor.store.transcripts import head_of_blob

SECONDS = "seconds"
"""Orders by duration."""
FACTOR, SCORE = "factor:", "score:"
"""Prefixes of an order by the level of a factor, or by the score of an evaluator."""
ORDERS = (*(name for name in (*PLAIN, *CUT) if name != "factors"), SECONDS)
MOST_LEVELS = 500
SCORE_NAME = "sc.\"evaluator\" || CASE WHEN sc.\"dimension\" = '' THEN '' ELSE '/' || sc.\"dimension\" END"
"""Name of a score `sc`: the evaluator, with the dimension if it has several."""
_SESSION = '"batch_items"."sessionId"'
# As in statistics: the session's own scores count; without any, those of the last evaluation of it.
_SCORE = (
    f'COALESCE((SELECT AVG(sc."value") FROM "scores" sc WHERE sc."sessionId" = {_SESSION} '
    f"AND {SCORE_NAME} = ?), "
    f'(SELECT AVG(sc."value") FROM "scores" sc WHERE sc."scoredSessionId" = {_SESSION} '
    f'AND {SCORE_NAME} = ? AND sc."value" IS NOT NULL GROUP BY sc."sessionId" '
    'ORDER BY MAX(sc."timestamp") DESC LIMIT 1))'
)


Range = tuple[float | None, float | None]
"""None: no limit."""
_LIMIT = r"-?\d*\.?\d*"
_RANGE = re.compile(rf"(?P<low>{_LIMIT})\.\.(?P<high>{_LIMIT})")


def range_of(text: str, unit: str, *, is_signed: bool = False) -> Range:
    """The limits in `LOW..HIGH`, of which one may be missing; negative ones only where `is_signed`."""
    try:
        match = _RANGE.fullmatch(text)
        if match is None or ("-" in text and not is_signed):
            raise ValueError
        low, high = (float(match[name]) if match[name] else None for name in ("low", "high"))
    except ValueError:
        raise UsageError(f"{text} is no range of {unit}\nWrite LOW..HIGH.") from None
    return low, high


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRange:
    """Items whose score of an evaluator is in a range; both limits belong to it."""

    name: str
    """Evaluator, or evaluator/dimension."""
    low: float | None = None
    high: float | None = None

    @classmethod
    def parse(cls, text: str, *, needs_range: bool = True) -> "ScoreRange":
        """The range in `EVALUATOR=LOW..HIGH`; without the need of one, `EVALUATOR` alone is any value."""
        name, _, limits = text.rpartition("=")
        if not name and not needs_range:
            return cls(name=text)
        try:
            low, high = range_of(limits, "scores", is_signed=True)
        except UsageError:
            name = ""
        if not name:
            raise UsageError(f"{text} is no range of scores\nWrite EVALUATOR=LOW..HIGH.")
        return cls(name=name, low=low, high=high)


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemQuery:
    """Filter and order of the items of a run. Several values of one member: any of them."""

    search: str = ""
    statuses: Sequence[str] = ()
    models: Sequence[str] = ()
    agents: Sequence[str] = ()
    reasons: Sequence[str] = ()
    factors: Sequence[tuple[str, str]] = ()
    """Name and level; several levels of one factor: any of them."""
    scores: Sequence[ScoreRange] = ()
    durations: Sequence[Range] = ()
    """Ranges of seconds from start to end; the lower limit belongs to a range, the upper one does not."""
    """All of them hold."""
    tags: Sequence[str] = ()
    is_noted: bool = False
    """Only items whose session has a note."""
    is_starred: bool = False
    failure_group: str = ""
    """Key of a group of failures. Not a part of the SQL condition: groups are made of texts."""
    order: str = "position"
    """A column, `factor:NAME` or `score:NAME`."""
    descending: bool = False

    def __post_init__(self) -> None:
        # Here, and not where it is used: it becomes a part of an SQL statement.
        if not self.order.startswith((FACTOR, SCORE)) and self.order not in ORDERS:
            raise NotFound(f"items cannot be sorted by {self.order}\nThey can by: {', '.join(ORDERS)}.")

    @property
    def is_volatile(self) -> bool:
        """Whether the result can change without a change of the run's items."""
        annotated = bool(self.tags) or self.is_noted or self.is_starred
        return annotated or bool(self.scores) or self.order.startswith(SCORE)


@dataclass(frozen=True, slots=True)
class Listing:
    """Items in some order: their positions in the plan and their statuses."""

    positions: "array[int]"
    statuses: bytes
    """Of each position, as an index into `STATUSES`."""

    def counts(self) -> dict[str, int]:
        """How many there are in each status; every status is there."""
        counts = Counter(self.statuses)
        return {status: counts[index] for index, status in enumerate(STATUSES)}

    def only(self, positions: Collection[int]) -> "Listing":
        """The same items without those at other positions."""
        pairs = [
            (position, status)
            for position, status in zip(self.positions, self.statuses, strict=True)
            if position in positions
        ]
        return Listing(array("q", [position for position, _ in pairs]), bytes(status for _, status in pairs))

    def of(self, statuses: Sequence[str]) -> "array[int]":
        """Positions of the items in these statuses; no statuses: all."""
        if not statuses:
            return self.positions
        codes = {STATUSES.index(status) for status in statuses}
        pairs = zip(self.positions, self.statuses, strict=True)
        return array("q", [position for position, status in pairs if status in codes])


def listing(read: StoreReader, run_id: str, query: ItemQuery) -> Listing:
    """The items that match, in every status, sorted; missing values come last in both directions."""
    on_postgres = uses_postgres(read)
    where, parameters = _where(read, run_id, query, on_postgres)
    by, named = _expression(query.order, on_postgres)
    direction = "DESC" if query.descending else "ASC"
    ordering = f'"key" {direction} NULLS LAST, "position"'
    # One text of numbers: fetching 100,000 rows would take as long as sorting them.
    code = " ".join(f"WHEN '{status}' THEN {number}" for number, status in enumerate(STATUSES))
    number = f'"position" * {len(STATUSES)} + CASE "status" {code} END AS "number"'
    joined = "STRING_AGG(CAST(\"number\" AS TEXT), ',')" if on_postgres else 'GROUP_CONCAT("number")'
    text = read.value(
        str,
        # Materialized: SQLite computes a key that is a subquery several times while it sorts.
        f'WITH "keyed" AS MATERIALIZED (SELECT {number}, "position", {by} AS "key" FROM "batch_items" '
        f'WHERE {where}) SELECT {joined} AS "numbers" FROM '
        f'(SELECT "number" FROM "keyed" ORDER BY {ordering}) AS "ordered"',
        (*named, *parameters),
    )
    numbers, size = list(map(int, text.split(","))) if text else [], len(STATUSES)
    return Listing(
        array("q", [number // size for number in numbers]), bytes(number % size for number in numbers)
    )


def _where(read: StoreReader, run_id: str, query: ItemQuery, on_postgres: bool) -> tuple[str, list[object]]:
    condition, parameters = item_where(run_id, ItemFilter(search=query.search, reasons=query.reasons))
    parts = [condition]
    for column, values in (("model", query.models), ("agent", query.agents)):
        if values:
            parts.append(f'"{column}" IN ({places(values)})')
            parameters += values
    for factor in dict.fromkeys(name for name, _ in query.factors):
        levels = {level for name, level in query.factors if name == factor}
        part, named = _has_level(read, run_id, factor, levels, on_postgres)
        parts.append(part)
        parameters += named
    for score in query.scores:
        limits = [("<=", score.high), (">=", score.low)]
        known = [(sign, limit) for sign, limit in limits if limit is not None]
        for sign, limit in known:
            parts.append(f"{_SCORE} {sign} ?")
            parameters += [score.name, score.name, limit]
        if not known:
            parts.append(f"{_SCORE} IS NOT NULL")
            parameters += [score.name, score.name]
    took = seconds_between('"startedAt"', '"finishedAt"', is_postgres=on_postgres)
    for duration in query.durations:
        # Without limits: every item that has both times.
        parts.append(f"{took} >= ?")
        parameters.append(duration[0] or 0.0)
        if duration[1] is not None:
            parts.append(f"{took} < ?")
            parameters.append(duration[1])
    if query.tags:
        is_tag, tags = read.is_one_of("a.text", "annotations.text", query.tags)
        parts.append(_annotated(is_tag))
        parameters += [TAG, *tags]
    for kind, is_needed in ((NOTE, query.is_noted), (STAR, query.is_starred)):
        if is_needed:
            parts.append(_annotated("1 = 1"))
            parameters.append(kind)
    return " AND ".join(parts), parameters


def _annotated(condition: str) -> str:
    return f'{_SESSION} IN (SELECT a."sessionId" FROM "annotations" a WHERE a."kind" = ? AND {condition})'


class _LevelPlace(TypedDict):
    level: object
    position: int
    items: int


def _has_level(
    read: StoreReader, run_id: str, factor: str, levels: Collection[str], on_postgres: bool
) -> tuple[str, list[object]]:
    """Condition of the items with one of these levels of a factor, and its parameters."""
    # By items that have them: in an encrypted store, the text of a level cannot be compared.
    level, named = level_of(factor, is_postgres=on_postgres)
    first = [row["position"] for row in _levels(read, run_id, factor) if str(row["level"]) in levels]
    if not first:
        return "1 = 0", []
    other, _ = level_of(factor, is_postgres=on_postgres, items="o")
    return (
        f'{level} IN (SELECT {other} FROM "batch_items" o WHERE o."runId" = ? '
        f'AND o."position" IN ({places(first)}))',
        [*named, *named, run_id, *first],
    )


def _levels(read: StoreReader, run_id: str, factor: str) -> list[_LevelPlace]:
    """Each level of a factor, with its first item and the number of its items."""
    level, named = level_of(factor, is_postgres=uses_postgres(read))
    return read.rows(
        _LevelPlace,
        'SELECT "level", MIN("position") AS "position", COUNT(*) AS "items" FROM '
        f'(SELECT {level} AS "level", "position" FROM "batch_items" WHERE "runId" = ?) AS "each" '
        'WHERE "level" IS NOT NULL GROUP BY "level" ORDER BY "position"',
        (*named, run_id),
    )


def _expression(order: str, is_postgres: bool) -> tuple[str, list[object]]:
    """SQL expression of an order, and its parameters."""
    if order.startswith(FACTOR):
        return level_of(order.removeprefix(FACTOR), is_postgres=is_postgres)
    if order.startswith(SCORE):
        return _SCORE, [order.removeprefix(SCORE)] * 2
    if order == SECONDS:
        if is_postgres:
            return 'CAST("finishedAt" AS timestamptz) - CAST("startedAt" AS timestamptz)', []
        return 'julianday("finishedAt") - julianday("startedAt")', []
    return f'"{order}"', []


def position_of(read: StoreReader, run_id: str, session_id: str) -> int | None:
    """Position of the item that a session is an attempt at; None: it is of no item of the run."""
    return read.value(
        int,
        'SELECT i."position" FROM "sessions" s JOIN "batch_items" i '
        'ON i."runId" = s."runId" AND i."id" = s."itemId" WHERE s."id" = ? AND s."runId" = ?',
        (session_id, run_id),
    )


def sessions_at(read: StoreReader, run_id: str, positions: Sequence[int]) -> list[str | None]:
    """The last session of the items at these positions, in the order given; None: not started."""
    if not positions:
        return []
    rows = read.pairs(
        'SELECT "position", "sessionId" FROM "batch_items" '
        f'WHERE "runId" = ? AND "position" IN ({places(positions)})',
        (run_id, *positions),
    )
    sessions = dict(rows)
    return [sessions.get(position) for position in positions]


class LevelCount(TypedDict):
    """A value that items are filtered by, and the number of items that have it."""

    value: str
    items: int


class ScoreExtent(LevelCount):
    """A score of items, by evaluator and dimension, with its lowest and highest value."""

    low: float | None
    high: float | None


def factor_levels(read: StoreReader, run_id: str, factor: str) -> list[LevelCount]:
    """The levels of a factor in plan order."""
    rows = _levels(read, run_id, factor)[:MOST_LEVELS]
    return [{"value": str(row["level"]), "items": row["items"]} for row in rows]


def column_levels(read: StoreReader, run_id: str, column: str) -> list[LevelCount]:
    """The values of `model`, `agent` or `reason`, the most frequent first; empty ones are left out."""
    return read.rows(
        LevelCount,
        f'SELECT "{column}" AS "value", COUNT(*) AS "items" FROM "batch_items" '
        f'WHERE "runId" = ? AND "{column}" <> \'\' GROUP BY "{column}" '
        f'ORDER BY "items" DESC, "value" LIMIT {MOST_LEVELS}',
        (run_id,),
    )


def score_extents(read: StoreReader, run_id: str) -> list[ScoreExtent]:
    """The scores that items have: their own, and those of evaluations of their sessions."""
    sources = " UNION ALL ".join(
        f'SELECT i."position", {SCORE_NAME} AS "name", sc."value" FROM "batch_items" i '
        f'JOIN "scores" sc ON sc."{column}" = i."sessionId" WHERE i."runId" = ?'
        for column in ("sessionId", "scoredSessionId")
    )
    return read.rows(
        ScoreExtent,
        'SELECT "name" AS "value", COUNT(DISTINCT "position") AS "items", MIN("value") AS "low", '
        f'MAX("value") AS "high" FROM ({sources}) AS "each" GROUP BY "name" ORDER BY "name" '
        f"LIMIT {MOST_LEVELS}",
        (run_id, run_id),
    )


class FailureText(TypedDict):
    """Why an item did not succeed; the message is cut."""

    position: int
    reason: str
    error: str


def failure_texts(read: StoreReader, run_id: str, *, characters: int) -> Iterator[FailureText]:
    """The reasons and messages of all items that did not succeed."""
    rows = read.stream(
        FailureText,
        f'SELECT "position", "reason", {head("error", characters)} FROM "batch_items" '
        f'WHERE "runId" = ? AND "status" IN ({literals((FAIL, TIMEOUT, ERROR))})',
        (run_id,),
    )
    return cut(rows, characters, "error")


class SessionText(TypedDict):
    """One text of a session."""

    sessionId: str
    text: str
    textBlob: str | None


class _NamedScore(OutcomeScore):
    sessionId: str
    name: str
    labels: int


_LAST_ANSWER = (
    'SELECT m."position" FROM "messages" m WHERE m."sessionId" = s."id" AND m."role" = \'assistant\' '
    'AND (m."content" <> \'\' OR m."contentBlob" IS NOT NULL) ORDER BY m."position" DESC LIMIT 1'
)
_LAST_CHECK = (
    'SELECT m."step" FROM "iterations" m WHERE m."sessionId" = s."id" AND m."testResult" <> \'\' '
    'ORDER BY m."step" DESC LIMIT 1'
)


def outcomes(read: StoreReader, sessions: Sequence[str], *, characters: int) -> dict[str, ItemOutcome]:
    """Answers, check outputs and scores of sessions, by session; long texts are cut."""
    outcomes = {session: ItemOutcome() for session in sessions}
    for part in id_pages(sessions):
        for row in texts_of(read, part, "messages", "position", "content", _LAST_ANSWER):
            text = head_of_blob(read, row["textBlob"]).text if row["textBlob"] else row["text"]
            outcomes[row["sessionId"]].answer = text[:characters]
        for row in texts_of(read, part, "iterations", "step", "testOutput", _LAST_CHECK):
            text = read.blob(row["textBlob"]) if row["textBlob"] else row["text"]
            outcomes[row["sessionId"]].check_output = text.strip()[-characters:]
        for score in _scores(read, part):
            label = score["label"] if score["labels"] == 1 else ""
            outcomes[score["sessionId"]].scores[score["name"]] = {"value": score["value"], "label": label}
    for annotation in annotations(read, sessions):
        outcome = outcomes[annotation["sessionId"]]
        if annotation["kind"] == TAG:
            outcome.tags.append(annotation["text"])
        outcome.notes += annotation["kind"] == NOTE
        outcome.is_starred |= annotation["kind"] == STAR
    return outcomes


def texts_of(
    read: StoreReader, sessions: Sequence[str], table: str, key: str, column: str, last: str
) -> list[SessionText]:
    """One text of each session: that of the row which `last` selects."""
    return read.rows(
        SessionText,
        f'SELECT t."sessionId", t."{column}" AS "text", t."{column}Blob" AS "textBlob" FROM '
        f'(SELECT s."id" AS "id", ({last}) AS "last" FROM "sessions" s '
        f'WHERE s."id" IN ({places(sessions)})) l '
        f'JOIN "{table}" t ON t."sessionId" = l."id" AND t."{key}" = l."last"',
        tuple(sessions),
    )


def _scores(read: StoreReader, sessions: Sequence[str]) -> Iterator[_NamedScore]:
    """Scores of sessions; of several with one name, the last counts: own ones after those of evaluations."""
    for column, condition in (
        ("scoredSessionId", 'sc."sessionId" <> sc."scoredSessionId"'),
        ("sessionId", "1 = 1"),
    ):
        yield from read.rows(
            _NamedScore,
            f'SELECT sc."{column}" AS "sessionId", {SCORE_NAME} AS "name", AVG(sc."value") AS "value", '
            'MIN(sc."label") AS "label", COUNT(DISTINCT sc."label") AS "labels" FROM "scores" sc '
            f'WHERE sc."{column}" IN ({places(sessions)}) AND {condition} AND sc."error" = \'\' '
            f'GROUP BY sc."{column}", sc."sessionId", {SCORE_NAME} ORDER BY MAX(sc."timestamp")',
            tuple(sessions),
        )
