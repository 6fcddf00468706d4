"""Re-encrypts a store: texts under retired keys, and plain texts from before there was a key.

Works table by table, in pages of one transaction each. The rows themselves show what is done, so that an
interrupted rotation can be resumed.
"""

import hashlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from proctor.store.database import KEEP, Connection, Row, id_pages, in_transaction, literals, places
from proctor.store.sealer import (
    EMPTY,
    ENCRYPTED,
    KEYED,
    LEVELS,
    MARK,
    Sealer,
    is_digest,
    is_encrypted,
    parts_of,
)
from proctor.store.tables import COLUMNS

PAGE = 500
"""Rows in one transaction; other writers wait for it."""
ROW_IDS: Mapping[str, tuple[str, ...]] = {
    "batches": ("runId",),
    "batch_items": ("runId", "id"),
    "sessions": ("id",),
    "iterations": ("sessionId", "step"),
    "labels": ("sessionId", "evaluator", "target", "dimension", "who"),
    "calibrations": ("evaluator", "evaluatorDigest", "dimension", "at"),
    "questions": ("runId", "id"),
    "run_resources": ("runId", "digest"),
    "evaluations": ("id",),
    "evaluator_definitions": ("id",),
    "online_configs": ("id",),
    "datasets": ("id",),
    "dataset_examples": ("datasetId", "version", "position"),
    "recommendations": ("id",),
    "defined_resources": ("id",),
    "arrivals": ("traceId", "spanId", "part"),
    "log_events": ("logGroup", "logStream", "position"),
    "annotations": ("sessionId", "id"),
    "session_filters": ("name",),
}
"""Primary keys, where they are not session and position."""
BYTES = ("arrivals.data", "blobs.data")


@dataclass(frozen=True, slots=True, kw_only=True)
class RotationCounts:
    """Number of texts of a table by key."""

    current: int
    """With the current key of the store."""
    retired: int
    """With an older key of the store."""
    own: int
    """With the own key of a run or an evaluator."""
    plain: int


def count(connection: Connection, sealer: Sealer) -> dict[str, RotationCounts]:
    """Count the texts by table and key."""
    return {table: _counted(connection, sealer, table) for table in ENCRYPTED}


def reencrypt(connection: Connection, sealer: Sealer, on_progress: Callable[[str, int], None]) -> int:
    """Encrypt with the current key everything that is not under the own key of a run or an evaluator.

    Returns the number of rows; `on_progress` is called after each page with the table and the rows so far.
    """
    changed = 0
    for table in ENCRYPTED:
        if table == "blobs":
            continue
        after: tuple[object, ...] = ()
        while rows := _reencrypt_page(connection, sealer, table, after):
            changed += len(rows)
            after = tuple(rows[-1][name] for name in _ids(table))
            on_progress(table, changed)
    delete_unused_blobs(connection)
    return changed


def delete_unused_blobs(connection: Connection) -> None:
    """Delete long texts that no row refers to; the connection decrypts nothing.

    They are searched for while others write, and examined again in the transactions that delete them.
    """
    used = " UNION ALL ".join(
        f'SELECT "{column}" FROM "{table}" WHERE "{column}" IS NOT NULL' for table, column in _REFERENCES
    )
    unused = connection.tuples(f'SELECT "digest" FROM "blobs" WHERE "digest" NOT IN ({used})')
    for page in id_pages([str(digest) for (digest,) in unused]):
        in_transaction(connection, partial(_delete_unused, connection, page))


def _delete_unused(connection: Connection, digests: Sequence[str]) -> None:
    # Locked: a concurrent transaction may be about to refer to one.
    connection.lock_table("blobs")
    used = " UNION ALL ".join(
        f'SELECT "{column}" FROM "{table}" WHERE "{column}" IN ({places(digests)})'
        for table, column in _REFERENCES
    )
    connection.run(
        f'DELETE FROM "blobs" WHERE "digest" IN ({places(digests)}) AND "digest" NOT IN ({used})',
        list(digests) * (1 + len(_REFERENCES)),
    )


_REFERENCES = [
    (table, column) for table, columns in COLUMNS.items() for column in columns if column.endswith("Blob")
]
"""Columns with digests of long texts; each has an index."""


def _reencrypt_page(
    connection: Connection, sealer: Sealer, table: str, after: tuple[object, ...]
) -> list[Row]:
    connection.begin()
    try:
        connection.lock_table(table)
        where, parameters = _outdated(sealer, table)
        ids, columns = _ids(table), _columns(table)
        further = f"AND ({_quoted(ids)}) > ({', '.join('?' * len(ids))}) " if after else ""
        rows = connection.rows(
            f'SELECT {_quoted((*ids, *columns))} FROM "{table}" WHERE ({where}) {further}'
            f"ORDER BY {_quoted(ids)} LIMIT {PAGE}",
            (*parameters, *after),
        )
        mine = " AND ".join(f'"{name}" = ?' for name in ids)
        # Blobs first: a concurrent reader of a row must find its blob.
        values = [
            [_reencrypted(connection, sealer, table, name, row[name]) for name in columns] for row in rows
        ]
        connection.update_many(
            table,
            columns,
            mine,
            [(*new, *(row[name] for name in ids)) for new, row in zip(values, rows, strict=True)],
        )
        connection.commit()
    except BaseException:
        connection.rollback()
        raise
    return rows


def _reencrypted(
    connection: Connection, sealer: Sealer, table: str, column: str, value: str | bytes | None
) -> str | bytes | None:
    """A value under the current key; one under the own key of a run or an evaluator is unchanged."""
    if value is None or value in EMPTY or _key_of(value) in sealer.current_or_own():
        return value
    place = f"{table}.{column}"
    if isinstance(value, str) and place in LEVELS:
        return sealer.encrypt_current(place, sealer.decrypt_levels(value))
    if isinstance(value, str) and is_digest(table, column):
        return _reencrypted_blob(connection, sealer, value)
    plain = sealer.decrypt(value, column, f'"{table}" "{column}"') if is_encrypted(value) else value
    return sealer.encrypt_current(place, plain)


def _reencrypted_blob(connection: Connection, sealer: Sealer, digest: str) -> str:
    rows = connection.rows('SELECT "size", "data" FROM "blobs" WHERE "digest" = ?', (digest,))
    if not rows:
        return digest
    data = rows[0]["data"]
    plain = sealer.decrypt(data, "data", '"blobs" "data"') if is_encrypted(data) else data
    assert isinstance(plain, bytes)
    sha = hashlib.sha256(zlib.decompress(plain)).hexdigest()
    new = sealer.keyed(sealer.current, sha)
    connection.insert("blobs", (new, rows[0]["size"], sealer.encrypt_current("blobs.data", plain)), KEEP)
    return new


def _key_of(value: str | bytes) -> str:
    """The data key of a value or of the digest of a long text; empty: none."""
    if isinstance(value, str) and value.startswith("{"):
        inner = value.partition(f'"{MARK}')[2]
        return inner.partition(":")[0]
    if isinstance(value, str) and value.startswith(KEYED):
        return value.split(":")[1]
    parts = parts_of(value) if is_encrypted(value) else None
    return parts[0] if parts else ""


def _outdated(sealer: Sealer, table: str) -> tuple[str, list[object]]:
    """A condition on the rows with a value that is not under the current or an own key."""
    parts, parameters = list[str](), list[object]()
    for column in _columns(table):
        if f"{table}.{column}" in LEVELS:
            # An object has no prefix; a row with one always has other texts.
            continue
        begins = _prefixes(table, column, sealer.current_or_own())
        parts.append(
            f'({_is_not_empty(column, table)} AND SUBSTR("{column}", 1, {len(begins[0])}) NOT IN '
            f"({', '.join('?' * len(begins))}))"
        )
        parameters += begins
    return " OR ".join(parts), parameters


def _counted(connection: Connection, sealer: Sealer, table: str) -> RotationCounts:
    sums = {"current": 0, "retired": 0, "own": 0, "all": 0}
    kinds = sealer.kinds()
    for column in ENCRYPTED[table]:
        if f"{table}.{column}" in LEVELS:
            continue
        cases, parameters = list[str](), list[object]()
        for kind in ("current", "retired", "own"):
            begins = _prefixes(table, column, kinds[kind] or ["-" * 12])
            head = f'SUBSTR("{column}", 1, {len(begins[0])})'
            cases.append(f'SUM(CASE WHEN {head} IN ({places(begins)}) THEN 1 ELSE 0 END) AS "{kind}"')
            parameters += begins
        (row,) = connection.rows(
            f'SELECT {", ".join(cases)}, COUNT(*) AS "all" FROM "{table}" '
            f"WHERE {_is_not_empty(column, table)}",
            parameters,
        )
        for kind in sums:
            sums[kind] += row[kind] or 0
    every = sums.pop("all")
    return RotationCounts(**sums, plain=every - sum(sums.values()))


def _is_not_empty(column: str, table: str) -> str:
    """A condition: the column is not empty."""
    if f"{table}.{column}" in BYTES or is_digest(table, column):
        return f'"{column}" IS NOT NULL'
    return f'"{column}" NOT IN ({literals(EMPTY)})'


def _prefixes(table: str, column: str, key_ids: list[str]) -> list[str] | list[bytes]:
    """Prefixes of the values of a column under these keys. All key ids have the same length."""
    head = KEYED if is_digest(table, column) else MARK
    begins = [f"{head}{key_id}:" for key_id in key_ids]
    return [each.encode() for each in begins] if f"{table}.{column}" in BYTES else begins


def _columns(table: str) -> tuple[str, ...]:
    return (*ENCRYPTED[table], *(name for name in COLUMNS[table] if name.endswith("Blob")))


def _ids(table: str) -> tuple[str, ...]:
    return ROW_IDS.get(table, ("sessionId", "position"))


def _quoted(names: tuple[str, ...]) -> str:
    return ", ".join(f'"{name}"' for name in names)
