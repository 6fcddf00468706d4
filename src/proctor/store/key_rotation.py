"""Seal a whole store anew: what is under an old key, and what was written before there was one.

Table by table, some rows at a time, each lot in a transaction of its own. What is done is told by the
rows themselves, so that whoever begins again after having been killed goes on.

Knows nothing of what the rows mean.
"""

import hashlib
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from proctor.store.database import Connection, Row, insertion, places
from proctor.store.sealer import EMPTY, KEYED, LEVELS, MARK, SEALED, Sealer, is_digest, is_sealed, parts_of
from proctor.store.tables import COLUMNS

LOT = 500
"""Rows sealed in one transaction: others who want to write wait for so long."""


ROW_IDS: Mapping[str, tuple[str, ...]] = {
    "batches": ("runId",),
    "batch_items": ("runId", "id"),
    "sessions": ("id",),
    "iterations": ("sessionId", "step"),
    "labels": ("sessionId", "evaluator", "target", "dimension", "who"),
    "questions": ("runId", "id"),
    "run_resources": ("runId", "digest"),
    "evaluations": ("id",),
    "evaluator_definitions": ("id",),
    "online_configs": ("id",),
    "arrivals": ("traceId", "spanId", "part"),
    "log_events": ("logGroup", "logStream", "position"),
}
"""What a row is known by, where that is not its session and position."""


BYTES = ("arrivals.data", "blobs.data")


@dataclass(frozen=True, slots=True, kw_only=True)
class RotationCounts:
    """How many texts of a table stand in which form."""

    current: int
    """Under the key that seals what is new."""
    retired: int
    """Under an older key of the store."""
    own: int
    """Under the key of a run or an evaluator."""
    plain: int


def count(connection: Connection, sealer: Sealer) -> dict[str, RotationCounts]:
    """By table, the texts there are and how they stand."""
    return {table: _counted(connection, sealer, table) for table in SEALED}


def reseal(connection: Connection, sealer: Sealer, told: Callable[[str, int], None]) -> int:
    """Seal everything with the store's current key that is not under a run's or an evaluator's own.

    How many rows that were; `told` hears of each lot: the table, and the rows so far.
    """
    changed = 0
    for table in SEALED:
        if table == "blobs":
            continue
        after: tuple[object, ...] = ()
        while lot := _lot(connection, sealer, table, after):
            changed += len(lot)
            after = tuple(lot[-1][name] for name in _ids(table))
            told(table, changed)
    connection.begin()
    drop_unused_texts(connection)
    connection.commit()
    return changed


def drop_unused_texts(connection: Connection) -> None:
    """Remove long texts that no row refers to."""
    # A text that someone is about to refer to must not go.
    connection.hold("blobs")
    held = " UNION ALL ".join(
        f'SELECT "{column}" FROM "{table}" WHERE "{column}" IS NOT NULL'
        for table, columns in COLUMNS.items()
        for column in columns
        if column.endswith("Blob")
    )
    connection.run(f'DELETE FROM "blobs" WHERE "digest" NOT IN ({held})')


def _lot(connection: Connection, sealer: Sealer, table: str, after: tuple[object, ...]) -> list[Row]:
    connection.begin()
    try:
        connection.hold(table)
        where, parameters = _unsealed(sealer, table)
        ids, columns = _ids(table), _columns(table)
        further = f"AND ({_quoted(ids)}) > ({', '.join('?' * len(ids))}) " if after else ""
        rows = connection.rows(
            f'SELECT {_quoted((*ids, *columns))} FROM "{table}" WHERE ({where}) {further}'
            f"ORDER BY {_quoted(ids)} LIMIT {LOT}",
            (*parameters, *after),
        )
        mine = " AND ".join(f'"{name}" = ?' for name in ids)
        assigned = ", ".join(f'"{name}" = ?' for name in columns)
        # Texts first: whoever reads a row meanwhile must find what it refers to.
        values = [[_anew(connection, sealer, table, name, row[name]) for name in columns] for row in rows]
        connection.run_many(
            f'UPDATE "{table}" SET {assigned} WHERE {mine}',
            [(*new, *(row[name] for name in ids)) for new, row in zip(values, rows, strict=True)],
        )
        connection.commit()
    except BaseException:
        connection.rollback()
        raise
    return rows


def _anew(connection: Connection, sealer: Sealer, table: str, column: str, value: Any) -> Any:
    """A value as it stands under the current key; one that has a key of its own stays as it is."""
    if value is None or value in EMPTY or _key_of(value) in sealer.lasting():
        return value
    if f"{table}.{column}" in LEVELS:
        return sealer.seal_again(f"{table}.{column}", sealer.opened_levels(value))
    if is_digest(table, column):
        return _text_anew(connection, sealer, value)
    place = f"{table}.{column}"
    plain = sealer.open(value, column, f'"{table}" "{column}"') if is_sealed(value) else value
    return sealer.seal_again(place, plain)


def _text_anew(connection: Connection, sealer: Sealer, digest: str) -> str:
    found = connection.rows('SELECT "size", "data" FROM "blobs" WHERE "digest" = ?', (digest,))
    if not found:
        return digest
    data = found[0]["data"]
    plain = sealer.open(data, "data", '"blobs" "data"') if is_sealed(data) else data
    assert isinstance(plain, bytes)
    sha = hashlib.sha256(zlib.decompress(plain)).hexdigest()
    new = sealer.keyed(sealer.current, sha)
    connection.run(
        f"{insertion('blobs', COLUMNS['blobs'])} ON CONFLICT DO NOTHING",
        (new, found[0]["size"], sealer.seal_again("blobs.data", plain)),
    )
    return new


def _key_of(value: str | bytes) -> str:
    """The data key that a value, or the digest of a long text, is under; empty: none."""
    if isinstance(value, str) and value.startswith("{"):
        inner = value.partition(f'"{MARK}')[2]
        return inner.partition(":")[0]
    if isinstance(value, str) and value.startswith(KEYED):
        return value.split(":")[1]
    found = parts_of(value) if is_sealed(value) else None
    return found[0] if found else ""


def _unsealed(sealer: Sealer, table: str) -> tuple[str, list[Any]]:
    """A condition on the rows that hold something not under a key that lasts."""
    parts, parameters = list[str](), list[Any]()
    for column in _columns(table):
        if f"{table}.{column}" in LEVELS:
            # Objects tell nothing by how they begin; no item has one and nothing else.
            continue
        begins = _beginnings(table, column, sealer.lasting())
        parts.append(
            f'({_says(column, table)} AND SUBSTR("{column}", 1, {len(begins[0])}) NOT IN '
            f"({', '.join('?' * len(begins))}))"
        )
        parameters += begins
    return " OR ".join(parts), parameters


def _counted(connection: Connection, sealer: Sealer, table: str) -> RotationCounts:
    sums = {"current": 0, "retired": 0, "own": 0, "all": 0}
    kinds = sealer.kinds()
    for column in SEALED[table]:
        if f"{table}.{column}" in LEVELS:
            continue
        cases, parameters = list[str](), list[Any]()
        for kind in ("current", "retired", "own"):
            begins = _beginnings(table, column, kinds[kind] or ["-" * 12])
            head = f'SUBSTR("{column}", 1, {len(begins[0])})'
            cases.append(f'SUM(CASE WHEN {head} IN ({places(begins)}) THEN 1 ELSE 0 END) AS "{kind}"')
            parameters += begins
        (found,) = connection.rows(
            f'SELECT {", ".join(cases)}, COUNT(*) AS "all" FROM "{table}" WHERE {_says(column, table)}',
            parameters,
        )
        for kind in sums:
            sums[kind] += found[kind] or 0
    every = sums.pop("all")
    return RotationCounts(**sums, plain=every - sum(sums.values()))


def _says(column: str, table: str) -> str:
    """A condition: the column holds something."""
    if f"{table}.{column}" in BYTES or is_digest(table, column):
        return f'"{column}" IS NOT NULL'
    empty = ", ".join(f"'{text}'" for text in EMPTY)
    return f'"{column}" NOT IN ({empty})'


def _beginnings(table: str, column: str, key_ids: list[str]) -> list[Any]:
    """How values in a column begin that are under these keys. All keys' ids have the same length."""
    head = KEYED if is_digest(table, column) else MARK
    begins = [f"{head}{key_id}:" for key_id in key_ids]
    return [each.encode() for each in begins] if f"{table}.{column}" in BYTES else list(begins)


def _columns(table: str) -> tuple[str, ...]:
    return (*SEALED[table], *(name for name in COLUMNS[table] if name.endswith("Blob")))


def _ids(table: str) -> tuple[str, ...]:
    return ROW_IDS.get(table, ("sessionId", "position"))


def _quoted(names: tuple[str, ...]) -> str:
    return ", ".join(f'"{name}"' for name in names)
