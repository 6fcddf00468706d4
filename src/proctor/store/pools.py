"""Let the processes on one store tell each other what they found out about providers' limits.

Each process writes its own rows and reads the others'; a row that is not renewed is forgotten.

Knows nothing of models, or of what becomes of what is told.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from proctor.store.database import Connection, Row, insertion
from proctor.store.tables import COLUMNS
from proctor.store.writer import timestamp

FRESH = timedelta(seconds=5)
"""Rows are renewed every second; one that is older belongs to nobody who is still asking."""


def exchange(
    connection: Connection, owner: str, rows: Iterable[Mapping[str, Any]], now: datetime
) -> list[Row]:
    """Write what this process knows; what the others know."""
    connection.run(
        'DELETE FROM "pools" WHERE "owner" = ? OR "heartbeatAt" < ?', (owner, timestamp(now - FRESH))
    )
    told = [{**row, "owner": owner, "heartbeatAt": timestamp(now)} for row in rows]
    columns = COLUMNS["pools"]
    connection.run_many(insertion("pools", columns), [tuple(row[name] for name in columns) for row in told])
    return connection.rows('SELECT * FROM "pools" WHERE "owner" <> ?', (owner,))


def withdraw(connection: Connection, owner: str) -> None:
    """This process asks nobody any more."""
    connection.run('DELETE FROM "pools" WHERE "owner" = ?', (owner,))
