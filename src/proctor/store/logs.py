"""Log groups and streams that callers write to, event by event.

Groups and streams that only stand for something else that is kept here (results of evaluations, sessions that
arrived) need no rows and have none.

Knows nothing of what the events say.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from proctor.errors import Contradiction, NotFound
from proctor.store.cleaning import clean
from proctor.store.database import Connection, Row, insertion
from proctor.store.reading import Reader
from proctor.store.tables import COLUMNS
from proctor.store.texts import kept
from proctor.store.writer import timestamp

T = TypeVar("T")
Transaction = Callable[[Callable[[Connection], T]], T]
GROUP = ""
"""The name a group's own row has instead of a stream's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEvent:
    """One line of a stream."""

    timestamp_ms: int
    message: str


class Logs:
    """Every question about streams that were written to, and every change of one."""

    def __init__(self, transaction: Transaction[Any], read: Reader) -> None:
        self._transaction = transaction
        self._read = read

    def create(self, group: str, stream: str, now: datetime) -> None:
        """Make a group (the stream's name is empty) or a stream in it. Raises when there is one."""

        def work(connection: Connection) -> None:
            if connection.rows(
                'SELECT 1 FROM "log_streams" WHERE "logGroup" = ? AND "logStream" = ?', (group, stream)
            ):
                raise Contradiction("the log stream is there already" if stream else "the log group is there")
            connection.run(insertion("log_streams", COLUMNS["log_streams"]), (group, stream, timestamp(now)))

        self._transaction(work)

    def put(self, group: str, stream: str, events: Sequence[LogEvent], now: datetime) -> None:
        """Append events to a stream."""

        def work(connection: Connection) -> None:
            connection.hold("log_events")
            if not connection.rows(
                'SELECT 1 FROM "log_streams" WHERE "logGroup" = ? AND "logStream" = ?', (group, stream)
            ):
                raise NotFound("The specified log stream does not exist.")
            (last,) = connection.rows(
                'SELECT COALESCE(MAX("position"), -1) AS "n" FROM "log_events" '
                'WHERE "logGroup" = ? AND "logStream" = ?',
                (group, stream),
            )
            ingested = int(now.timestamp() * 1000)
            for position, event in enumerate(events, start=last["n"] + 1):
                text, blob = kept(clean(event.message))
                if blob:
                    connection.run(f"{insertion('blobs', COLUMNS['blobs'])} ON CONFLICT DO NOTHING", blob)
                row = (group, stream, position, event.timestamp_ms, ingested, text, blob[0] if blob else None)
                connection.run(insertion("log_events", COLUMNS["log_events"]), row)

        self._transaction(work)

    def streams(self) -> list[Row]:
        """Every stream with the times of its events; groups have an empty stream."""
        return self._read.query(
            'SELECT s."logGroup", s."logStream", s."createdAt", '
            'MIN(e."timestamp") AS "first", MAX(e."timestamp") AS "last", MAX(e."ingestedAt") AS "ingested" '
            'FROM "log_streams" s LEFT JOIN "log_events" e '
            'ON e."logGroup" = s."logGroup" AND e."logStream" = s."logStream" '
            'GROUP BY s."logGroup", s."logStream", s."createdAt" ORDER BY s."logGroup", s."logStream"'
        )

    def events(self, group: str, stream: str) -> list[Row]:
        """The events of a stream in the order of their times."""
        rows = self._read.query(
            'SELECT * FROM "log_events" WHERE "logGroup" = ? AND "logStream" = ? '
            'ORDER BY "timestamp", "position"',
            (group, stream),
        )
        return list(self._read.whole(rows))
