"""Drift of online evaluation: scores by session in their order, points of the lines, crossings and alerts.

Scores, points and crossings of one look are written together, so that a crossing is recorded once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypedDict

from proctor.item import FINISHED
from proctor.store.database import KEEP, Connection, Transaction, extended, literals
from proctor.store.reader import StoreReader
from proctor.store.tables import COLUMNS, DriftCrossingRow, DriftPointRow
from proctor.store.writer import timestamp

MOST_NEW = 10_000
"""Scores read at a time."""
MOST_POINTS = 1000
"""Points of a line that are read: those of the most recent 25,000 sessions."""
NONE, PENDING, SENT, FAILED = "none", "pending", "sent", "failed"


@dataclass(frozen=True, slots=True, order=True)
class LineKey:
    """Which line: an evaluator of an online configuration, and a dimension of its scale."""

    config_id: str
    evaluator: str
    dimension: str


class NewScore(TypedDict):
    """The mean score of a session that is not in its line yet."""

    evaluator: str
    dimension: str
    sessionId: str
    value: float
    at: str


class ComparedScore(TypedDict):
    """The mean score of a session in a line, with the attributes of the session."""

    evaluator: str
    dimension: str
    value: float
    at: str
    attributesJson: str


class LineSummary(TypedDict):
    """How many sessions a line has, and when the last of them was evaluated."""

    configId: str
    evaluator: str
    dimension: str
    sessions: int
    updatedAt: str


class Drift:
    """The lines of a store."""

    def __init__(self, transaction: Transaction, read: StoreReader) -> None:
        self._transaction = transaction
        self._read = read

    def new_scores(self, config_id: str, run_id: str, *, after: int) -> list[NewScore]:
        """Scores of an evaluation that are in no line yet, of its finished items from position `after` on, in
        the order in which they were evaluated."""
        return self._read.rows(
            NewScore,
            'SELECT c."evaluator", c."dimension", c."scoredSessionId" AS "sessionId", '
            'AVG(c."value") AS "value", MAX(c."timestamp") AS "at" FROM "batch_items" i '
            'JOIN "scores" c ON c."sessionId" = i."sessionId" '
            'WHERE i."runId" = ? AND i."position" >= ? '
            f'AND i."status" IN ({literals(FINISHED)}) AND c."value" IS NOT NULL '
            'AND c."scoredSessionId" <> \'\' AND NOT EXISTS (SELECT 1 FROM "drift_scores" d '
            'WHERE d."configId" = ? AND d."evaluator" = c."evaluator" AND d."dimension" = c."dimension" '
            'AND d."sessionId" = c."scoredSessionId") '
            'GROUP BY c."evaluator", c."dimension", c."scoredSessionId" ORDER BY 5, 3 LIMIT ?',
            (run_id, after, config_id, MOST_NEW),
        )

    def scores_of(self, config_id: str) -> list[ComparedScore]:
        """The scores of all sessions that a configuration has evaluated, in their order."""
        return self._read.rows(
            ComparedScore,
            'SELECT d."evaluator", d."dimension", d."value", d."at", s."attributesJson" '
            'FROM "drift_scores" d JOIN "sessions" s ON s."id" = d."sessionId" '
            'WHERE d."configId" = ? ORDER BY d."evaluator", d."dimension", d."position"',
            (config_id,),
        )

    def finished_up_to(self, run_id: str) -> int:
        """The first position of an evaluation whose item is not finished, or the number of its items."""
        first = self._read.value(
            int,
            'SELECT COALESCE(MIN(CASE WHEN "status" IN '
            f'({literals(FINISHED)}) THEN NULL ELSE "position" END), COUNT(*)) AS "position" '
            'FROM "batch_items" WHERE "runId" = ?',
            (run_id,),
        )
        return first or 0

    def add(
        self,
        key: LineKey,
        first: int,
        scores: Sequence[NewScore],
        points: Sequence[DriftPointRow],
        crossing: DriftCrossingRow | None,
    ) -> None:
        """Append scores to a line, from position `first` on, with what follows from them."""
        rows = [
            (
                key.config_id,
                key.evaluator,
                key.dimension,
                number,
                score["sessionId"],
                score["value"],
                score["at"],
            )
            for number, score in enumerate(scores, start=first)
        ]

        def work(connection: Connection) -> None:
            connection.insert_many("drift_scores", rows)
            for table, added in (
                ("drift_points", points),
                ("drift_crossings", [crossing] if crossing else []),
            ):
                columns = COLUMNS[table]
                values = [tuple(_values(row, columns)) for row in added]
                connection.insert_many(table, values, on_conflict=KEEP)

        self._transaction(work)

    def lines(self) -> list[LineSummary]:
        """Every line."""
        return self._read.rows(
            LineSummary,
            'SELECT "configId", "evaluator", "dimension", COUNT(*) AS "sessions", MAX("at") AS "updatedAt" '
            'FROM "drift_scores" GROUP BY "configId", "evaluator", "dimension" '
            'ORDER BY "configId", "evaluator", "dimension"',
        )

    def values(self, key: LineKey, *, after: int) -> list[float]:
        """The scores of a line from position `after` on."""
        return self._read.values(
            float,
            f'SELECT "value" FROM "drift_scores" WHERE {_LINE} AND "position" >= ? ORDER BY "position"',
            (key.config_id, key.evaluator, key.dimension, after),
        )

    def points(self, key: LineKey) -> list[DriftPointRow]:
        """The most recent points of a line, in order."""
        rows = self._read.rows(
            DriftPointRow,
            f'SELECT * FROM "drift_points" WHERE {_LINE} ORDER BY "position" DESC LIMIT ?',
            (key.config_id, key.evaluator, key.dimension, MOST_POINTS),
        )
        return rows[::-1]

    def crossings(self, key: LineKey) -> list[DriftCrossingRow]:
        """The crossings of a line, in order."""
        return self._read.rows(
            DriftCrossingRow,
            f'SELECT * FROM "drift_crossings" WHERE {_LINE} ORDER BY "position"',
            (key.config_id, key.evaluator, key.dimension),
        )

    def take_alert(self, now: datetime, *, until: timedelta) -> DriftCrossingRow | None:
        """The next alert to send, which no other process gets for a while; None: none is due."""

        def work(connection: Connection) -> DriftCrossingRow | None:
            connection.lock_table("drift_crossings")
            rows = connection.rows(
                'SELECT * FROM "drift_crossings" WHERE "alert" = \'pending\' AND "nextAt" <= ? '
                'ORDER BY "nextAt" LIMIT 1',
                (timestamp(now),),
            )
            if not rows:
                return None
            (row,) = (extended(DriftCrossingRow, each) for each in rows)
            _change(connection, row, {"attempts": row["attempts"] + 1, "nextAt": timestamp(now + until)})
            return extended(DriftCrossingRow, row, attempts=row["attempts"] + 1)

        return self._transaction(work)

    def settle_alert(
        self, crossing: DriftCrossingRow, alert: str, *, next_at: datetime | None = None, problem: str = ""
    ) -> None:
        """Record that an alert was sent, or when it is sent again and why."""
        values = {"alert": alert, "nextAt": timestamp(next_at) if next_at else None, "problem": problem}
        self._transaction(lambda connection: _change(connection, crossing, values))


_LINE = '"configId" = ? AND "evaluator" = ? AND "dimension" = ?'


def _change(connection: Connection, row: DriftCrossingRow, values: Mapping[str, object]) -> None:
    key = (row["configId"], row["evaluator"], row["dimension"], row["position"])
    connection.update("drift_crossings", values, f'{_LINE} AND "position" = ?', key)


def _values(row: Mapping[str, object], columns: Sequence[str]) -> list[object]:
    return [row[name] for name in columns]
