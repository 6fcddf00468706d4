"""Rows as they leave the store: documented columns first, ids that join, plain values.

Knows nothing of files or formats.
"""

import json
from collections.abc import Iterator
from typing import Any

from proctor.store import Reader, Scope
from proctor.store.tables import COLUMNS, OF_A_SESSION

Row = dict[str, Any]

TABLES = (
    *("sessions", "iterations", "tool_calls", "merge_history", "batches", "batch_items"),
    *("messages", "model_calls", "metrics", "scores"),
)
"""Everything that can be exported, in the order of the files."""

DOCUMENTED = {
    "batches": ("runId", "createdAt", "defaultsJson"),
    "batch_items": (
        *("id", "runId", "sessionId", "repo", "prompt", "status", "error", "startedAt", "finishedAt"),
        *("model", "iterSha", "tokensTotal", "toolCalls"),
    ),
}
"""Columns that come first, as the documents have them."""

NOT_EXPORTED = ("owner", "heartbeatAt")
"""How processes find each other: of no use in a file."""

FLAGS = ("success", "standIn")
OBJECTS = ("factors", "details", "settings", "notes")
"""Columns of JSON text that are objects or lists in formats that have those."""
OF_A_STEP = ("tool_calls", "messages", "model_calls")


def columns(table: str) -> tuple[str, ...]:
    """The columns of an exported table, in order."""
    stored = [
        name
        for name in COLUMNS[table]
        if name not in NOT_EXPORTED
        and not (name.endswith("Blob") and name.removesuffix("Blob") in COLUMNS[table])
    ]
    if table in OF_A_SESSION:
        stored.insert(0, "id")
    if table in OF_A_STEP:
        stored.insert(2, "iterationId")
    first = DOCUMENTED.get(table, ())
    return (*first, *(name for name in stored if name not in first))


def rows(read: Reader, table: str, scope: Scope) -> Iterator[Row]:
    """The rows of a scope in one table, long texts included, in little memory."""
    names = columns(table)
    for row in read.table(table, scope):
        yield {name: row[name] for name in names} if table not in OF_A_SESSION else _of_session(row, names)


def _of_session(row: Row, names: tuple[str, ...]) -> Row:
    session, step = row["sessionId"], row.get("step")
    # A step is one row of `iterations`; of anything else a step may have many.
    place = row.get("position", step)
    known = row | {"id": f"{session}:{place}", "iterationId": f"{session}:{step}"}
    return {name: known[name] for name in names}


def with_flags(row: Row) -> Row:
    """The same row with true and false where the store has 1 and 0."""
    return {
        name: bool(value) if name in FLAGS and value is not None else value for name, value in row.items()
    }


def with_objects(row: Row) -> Row:
    """The same row with objects and lists where the store has their text."""
    return {name: json.loads(value) if name in OBJECTS else value for name, value in row.items()}
