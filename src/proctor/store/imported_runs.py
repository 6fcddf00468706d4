"""Runs of imported outcomes: batches, items and sessions in the tables of every other run.

An item is identified by its task, agent, model, further factors and repeat. A session, or a row of a table,
keeps its item when it is imported again, so that importing twice makes no second copy.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import islice

from proctor.errors import UsageError
from proctor.item import Item, id_of
from proctor.json_values import CamelJson, as_map, as_name, as_text
from proctor.store.database import Connection, Row, Transaction
from proctor.store.tables import (
    IMPORTED,
    NEW_ITEM,
    TABLE,
    amount,
    clean,
    finite,
    row_of,
    short,
    whole,
)
from proctor.store.writer import timestamp

INCOMPLETE = ("interrupted", "the import did not finish")
"""Status and reason of a run while it is imported; they stay if the import is killed."""
TASK_ATTRIBUTES = ("proctor.task", "task.id", "task_id", "task.name", "task")
"""Attributes of a session that name its task."""
PAGE = 2000
"""Rows written at a time."""
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_RESULT = {
    "status": "status",
    "reason": "endReason",
    "error": "error",
    "startedAt": "startedAt",
    "finishedAt": "finishedAt",
    "sessionId": "id",
    "tokensTotal": "totalTokens",
    "toolCalls": "toolCalls",
    "costUsd": "costUsd",
}
"""Columns of an item, and those of its session that they repeat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOutcome:
    """One row of a table: what was done, and how it ended."""

    task: str
    agent: str = ""
    model: str = ""
    factors: Mapping[str, str] = field(default_factory=dict)
    """Besides task, agent and model."""
    repeat: int | None = None
    """None: unknown; repeats are counted."""
    status: str
    reason: str
    error: str = ""
    cost_usd: float | None = None
    seconds: float | None = None
    tokens: int = 0
    scores: Sequence[tuple[str, float]] = ()
    """Evaluators and their values."""
    file: str
    """Digest that identifies its file within the run."""
    place: str
    """File and line, for messages."""

    @property
    def digest(self) -> str:
        """The same for equal results."""
        values = (self.status, self.reason, self.error, self.cost_usd, self.seconds, self.tokens, self.scores)
        return _short_digest(repr(values), 16)


@dataclass(slots=True)
class ImportedRows:
    """How many rows of a table changed the run."""

    added: int = 0
    replaced: int = 0
    unchanged: int = 0
    removed: int = 0
    """Items whose rows are no longer in their file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableImport(CamelJson):
    """The result of an import of tables."""

    run_id: str
    files: int
    rows: int
    added: int
    replaced: int
    unchanged: int
    removed: int
    """Items whose rows are no longer in their file."""
    notes: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedFile:
    """A file of a run."""

    key: str
    """Digest of its first content; identifies it within the run."""
    path: str
    digest: str


def identity(
    task: str, agent: str = "", model: str = "", factors: Mapping[str, str] | None = None, repeat: int = 1
) -> Item:
    """The item of a task, agent, model and further factors."""
    more = {clean(name): clean(level) for name, level in (factors or {}).items()}
    known = {"task": clean(task), "agent": clean(agent), "model": clean(model)}
    return Item(
        runner=IMPORTED,
        prompt=known["task"],
        agent=known["agent"],
        model=known["model"],
        details={"factors": more} if more else {},
        factors={name: level for name, level in known.items() if level} | more,
        repeat=repeat,
    )


@dataclass(frozen=True, slots=True)
class _ItemRepeats:
    """The repeats of one item, as they are written."""

    item: Item
    digest: str
    factors: str
    details: str


# Repeats of a task follow each other in most tables, and encoding them is half of the work.
@lru_cache(maxsize=1024)
def _group(task: str, agent: str, model: str, factors: tuple[tuple[str, str], ...]) -> _ItemRepeats:
    item = identity(task, agent, model, dict(factors))
    return _ItemRepeats(item, item.digest, _json(item.factors), _json(item.details))


def _short_digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:length]


# Sessions of a run.


def add_session(connection: Connection, run_id: str, session: Row, item: Item, repeat: int | None) -> None:
    """Make a stored session an item of a run; an item it already has there is replaced."""
    connection.set_key_scope(run_id)
    position = None
    if session.get("itemId"):
        for row in connection.rows(
            'SELECT "digest", "repeat", "position" FROM "batch_items" WHERE "runId" = ? AND "id" = ?',
            (run_id, session["itemId"]),
        ):
            position = row["position"]
            repeat = row["repeat"] if row["digest"] == item.digest else repeat
        _delete_items(connection, run_id, [session["itemId"]])
    number = repeat or 1
    while _exists(connection, run_id, id_of(item.digest, number)):
        number += 1
    if position is None:
        position = _next_position(connection, run_id)
    row = dict(zip(NEW_ITEM, row_of(run_id, position, item), strict=True))
    row |= {"id": id_of(item.digest, number), "repeat": number, **_result(session)}
    connection.insert("batch_items", row)
    connection.update("sessions", {"runId": run_id, "itemId": row["id"]}, '"id" = ?', (session["id"],))


def update_item(connection: Connection, session: Row) -> None:
    """Give the item of a session that was imported again its result."""
    item = (session["runId"], session["itemId"])
    connection.update("batch_items", _result(session), '"runId" = ? AND "id" = ?', item)


def delete_item_of(connection: Connection, session_id: str) -> None:
    """Delete the item of an imported session that is deleted."""
    for row in connection.rows(
        'SELECT "runId", "itemId" FROM "sessions" WHERE "id" = ? AND "job" = ? AND "runId" IS NOT NULL',
        (session_id, IMPORTED),
    ):
        _delete_items(connection, row["runId"], [row["itemId"]])


def _result(session: Row) -> dict[str, object]:
    result = {name: session.get(column) for name, column in _RESULT.items()}
    if session.get("workSeconds") is None:
        # The source has no times; those of the session are the time of the import.
        result |= {"startedAt": None, "finishedAt": None}
    return result | {"tokensTotal": result["tokensTotal"] or 0, "toolCalls": result["toolCalls"] or 0}


def _exists(connection: Connection, run_id: str, item_id: str) -> bool:
    return bool(
        connection.rows('SELECT 1 FROM "batch_items" WHERE "runId" = ? AND "id" = ?', (run_id, item_id))
    )


def _next_position(connection: Connection, run_id: str) -> int:
    (last,) = connection.rows(
        'SELECT COALESCE(MAX("position"), -1) AS "n" FROM "batch_items" WHERE "runId" = ?', (run_id,)
    )
    return int(last["n"]) + 1


def _delete_items(connection: Connection, run_id: str, item_ids: Iterable[str]) -> None:
    connection.run_many(
        'DELETE FROM "batch_items" WHERE "runId" = ? AND "id" = ?', [(run_id, each) for each in item_ids]
    )


# Rows of tables.


@dataclass(slots=True)
class _KnownItem:
    """An item that the run already has."""

    repeat: int
    position: int
    session_id: str
    file: str
    row: str
    """Digest of its result."""


class _TableWriter:
    """Writes the rows of tables to a run, in one transaction."""

    def __init__(self, connection: Connection, run_id: str, files: Sequence[str], now: datetime) -> None:
        self._connection, self._run_id, self._now = connection, run_id, now
        self._at = timestamp(now)
        self._known = {row["id"]: _known_item(row) for row in self._items()}
        self._item_of_session = {each.session_id: item_id for item_id, each in self._known.items()}
        self._position = 1 + max((each.position for each in self._known.values()), default=-1)
        self._missing = {item_id for item_id, each in self._known.items() if each.file in set(files)}
        self._used = set(self._known)
        self._places: dict[str, str] = {}
        """Where items with a repeat of their own come from."""
        self._rows_of_group: Counter[tuple[str, str]] = Counter()
        self._next_repeat: dict[str, int] = {}
        self._pending: dict[str, list[tuple[object, ...]]] = {}
        self.counts = ImportedRows()

    def _items(self) -> Iterator[Row]:
        return self._connection.stream(
            'SELECT "id", "repeat", "position", "sessionId", "settings" FROM "batch_items" WHERE "runId" = ?',
            (self._run_id,),
        )

    def write(self, outcomes: Iterable[TableOutcome]) -> None:
        """Write rows; items of these files that have no row any more are deleted."""
        remaining = iter(outcomes)
        while page := list(islice(remaining, PAGE)):
            for outcome in page:
                self._add(outcome)
            self._flush()
        self.counts.removed = len(self._missing)
        self._delete(sorted(self._missing))
        self._flush()

    def _add(self, outcome: TableOutcome) -> None:
        group = _group(outcome.task, outcome.agent, outcome.model, tuple(outcome.factors.items()))
        repeat, session_id = self._slot(outcome, group.digest)
        item_id = id_of(group.digest, repeat)
        self._used.add(item_id)
        self._missing.discard(item_id)
        known, result = self._known.get(item_id), outcome.digest
        if known and (known.file, known.row, known.session_id) == (outcome.file, result, session_id):
            self.counts.unchanged += 1
            return
        position = self._position
        if known:
            self.counts.replaced += 1
            position = known.position
            self._delete([item_id])
        else:
            self.counts.added += 1
            self._position += 1
        settings = {"file": outcome.file, "place": clean(outcome.place), "row": result}
        self._append(group, item_id, repeat, position, session_id, outcome, _json(settings))

    def _slot(self, outcome: TableOutcome, group: str) -> tuple[int, str]:
        """Repeat and session of a row."""
        if outcome.repeat is not None:
            item_id = id_of(group, outcome.repeat)
            if item_id in self._places:
                raise UsageError(
                    f"{outcome.place}: the same task, factors and repeat as in {self._places[item_id]}\n"
                    "Remove one of the rows, or add the column in which they differ."
                )
            self._places[item_id] = outcome.place
            return outcome.repeat, _short_digest(f"{TABLE}\0{self._run_id}\0{item_id}", 32)
        self._rows_of_group[outcome.file, group] += 1
        number = self._rows_of_group[outcome.file, group]
        session_id = _short_digest(f"{TABLE}\0{self._run_id}\0{outcome.file}\0{group}\0{number}", 32)
        known = self._item_of_session.get(session_id)
        if known is not None:
            return self._known[known].repeat, session_id
        repeat = self._next_repeat.get(group, 1)
        while id_of(group, repeat) in self._used:
            repeat += 1
        self._next_repeat[group] = repeat + 1
        return repeat, session_id

    def _append(
        self,
        group: _ItemRepeats,
        item_id: str,
        repeat: int,
        position: int,
        session_id: str,
        outcome: TableOutcome,
        settings: str,
    ) -> None:
        item, at = group.item, self._at
        began = at if outcome.seconds is None else timestamp(self._now - timedelta(seconds=outcome.seconds))
        cost, tokens = amount(outcome.cost_usd), whole(outcome.tokens)
        error = short(clean(outcome.error))
        times = (None, None) if outcome.seconds is None else (began, at)
        self._pending.setdefault("batch_items", []).append(
            (
                self._run_id,
                item_id,
                position,
                group.digest,
                repeat,
                IMPORTED,
                "",
                item.prompt,
                item.agent,
                item.model,
                group.factors,
                group.details,
                settings,
                outcome.status,
                outcome.reason,
                error,
                *times,
                session_id,
                tokens,
                cost,
            )
        )
        has_usage = cost is not None or tokens > 0
        self._pending.setdefault("sessions", []).append(
            (
                session_id,
                self._run_id,
                item_id,
                IMPORTED,
                item.prompt,
                item.agent,
                item.model,
                outcome.status,
                outcome.reason,
                error,
                TABLE,
                began,
                at,
                outcome.seconds,
                tokens,
                tokens,
                cost,
                int(has_usage and cost is None),
                int(has_usage),
            )
        )
        if has_usage:
            self._pending.setdefault("model_calls", []).append(
                (session_id, 1, 1, at, item.model, tokens, cost, "" if cost is None else TABLE, "ok")
            )
        self._pending.setdefault("scores", []).extend(
            (session_id, number, at, clean(name), "session", finite(value))
            for number, (name, value) in enumerate(outcome.scores, start=2)
        )

    def _delete(self, item_ids: Sequence[str]) -> None:
        _delete_items(self._connection, self._run_id, item_ids)
        sessions = [(self._known[each].session_id,) for each in item_ids]
        for table in ("model_calls", "scores"):
            self._connection.run_many(f'DELETE FROM "{table}" WHERE "sessionId" = ?', sessions)
        self._connection.run_many('DELETE FROM "sessions" WHERE "id" = ?', sessions)

    def _flush(self) -> None:
        for table, rows in self._pending.items():
            self._connection.insert_many(table, rows, _WRITTEN[table])
        self._pending.clear()


_WRITTEN: Mapping[str, Sequence[str]] = {
    "batch_items": (
        *NEW_ITEM,
        *("reason", "error", "startedAt", "finishedAt", "sessionId", "tokensTotal", "costUsd"),
    ),
    "sessions": (
        "id",
        "runId",
        "itemId",
        "job",
        "name",
        "agent",
        "model",
        "status",
        "endReason",
        "error",
        "source",
        "startedAt",
        "finishedAt",
        "workSeconds",
        "promptTokens",
        "totalTokens",
        "costUsd",
        "unpricedCalls",
        "modelCalls",
    ),
    "model_calls": (
        "sessionId",
        "position",
        "step",
        "timestamp",
        "model",
        "promptTokens",
        "costUsd",
        "priceSource",
        "status",
    ),
    "scores": ("sessionId", "position", "timestamp", "evaluator", "level", "value"),
}
"""The columns that a row of a table fills; the others have their defaults."""


def _known_item(row: Row) -> _KnownItem:
    settings = as_map(json.loads(row["settings"]))
    return _KnownItem(
        repeat=row["repeat"],
        position=row["position"],
        session_id=row["sessionId"] or "",
        file=as_text(settings.get("file")),
        row=as_text(settings.get("row")),
    )


def _json(value: Mapping[str, object]) -> str:
    return _ENCODER.encode(value)


class ImportedBatches:
    """Changes of imported runs."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def begin(self, run_id: str, now: datetime, version: str) -> None:
        """Create the run, or open it to add to it. Raises if a run of that name was not imported."""
        self._transaction(lambda connection: _begin(connection, run_id, now, version))

    def finish(self, run_id: str, now: datetime) -> int:
        """Mark the run as complete and return its number of items; a run without items is deleted."""
        return self._transaction(lambda connection: _finish(connection, run_id, now))

    def adopt(self, run_id: str, session_id: str) -> str:
        """Make a stored session an item of the run; the other run that has it, or "" if it was added."""
        return self._transaction(lambda connection: _adopt(connection, run_id, session_id))

    def save_table(
        self,
        run_id: str,
        files: Callable[[Sequence[ImportedFile]], tuple[Sequence[ImportedFile], Iterable[TableOutcome]]],
        now: datetime,
        version: str,
    ) -> ImportedRows:
        """Write the rows of tables in one transaction: all or none.

        `files` gets the files that the run has and returns those that are imported, with their rows.
        """

        def work(connection: Connection) -> ImportedRows:
            _begin(connection, run_id, now, version)
            known = _files(connection, run_id)
            added, outcomes = files(list(known.values()))
            writer = _TableWriter(connection, run_id, [each.key for each in added], now)
            writer.write(outcomes)
            known |= {each.key: each for each in added}
            _save_files(connection, run_id, known.values())
            _finish(connection, run_id, now)
            return writer.counts

        return self._transaction(work)


def _begin(connection: Connection, run_id: str, now: datetime, version: str) -> None:
    connection.set_key_scope(run_id)
    rows = connection.rows('SELECT "job" FROM "batches" WHERE "runId" = ?', (run_id,))
    if rows and rows[0]["job"] != IMPORTED:
        raise UsageError(
            f"the run {run_id} exists and was not imported\nChoose another name, or delete the run: "
            f"proctor delete {run_id}"
        )
    status, reason = INCOMPLETE
    if rows:
        connection.update("batches", {"status": status, "reason": reason}, '"runId" = ?', (run_id,))
        return
    batch = {
        "runId": run_id,
        "createdAt": timestamp(now),
        "job": IMPORTED,
        "status": status,
        "reason": reason,
        "proctorVersion": version,
    }
    connection.insert("batches", batch)


def _finish(connection: Connection, run_id: str, now: datetime) -> int:
    (count,) = connection.rows('SELECT COUNT(*) AS "n" FROM "batch_items" WHERE "runId" = ?', (run_id,))
    if not count["n"]:
        connection.run('DELETE FROM "batches" WHERE "runId" = ?', (run_id,))
        return 0
    values = {"status": "completed", "reason": "", "finishedAt": timestamp(now)}
    connection.update("batches", values, '"runId" = ?', (run_id,))
    return int(count["n"])


def _adopt(connection: Connection, run_id: str, session_id: str) -> str:
    (session,) = connection.rows('SELECT * FROM "sessions" WHERE "id" = ?', (session_id,))
    if session["runId"] and session["runId"] != run_id:
        return str(session["runId"])
    attributes = as_map(json.loads(session["attributesJson"] or "{}"))
    named = (as_name(attributes.get(name)) for name in TASK_ATTRIBUTES)
    task = next(filter(None, named), "") or session["name"] or session["externalId"]
    add_session(connection, run_id, session, identity(task, session["agent"], session["model"]), None)
    return ""


def _files(connection: Connection, run_id: str) -> dict[str, ImportedFile]:
    (row,) = connection.rows('SELECT "optionsJson" FROM "batches" WHERE "runId" = ?', (run_id,))
    files = as_map(json.loads(row["optionsJson"]), "files")
    return {
        key: ImportedFile(key=key, path=as_text(file, "path"), digest=as_text(file, "digest"))
        for key, file in files.items()
    }


def _save_files(connection: Connection, run_id: str, files: Iterable[ImportedFile]) -> None:
    options = {"files": {each.key: {"path": clean(each.path), "digest": each.digest} for each in files}}
    connection.update("batches", {"optionsJson": _json(options)}, '"runId" = ?', (run_id,))
