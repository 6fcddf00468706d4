"""Check, back up, restore and copy a store.

All of these work on the database as it is: encrypted texts stay encrypted, and no key is needed but to check
what they contain.
"""

import hashlib
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from glob import escape
from pathlib import Path

from proctor.errors import KeyMissing, StoreError, StoreUnavailable, UsageError
from proctor.formatting import plural
from proctor.json_values import JsonObject
from proctor.secrets import private_folder
from proctor.store.database import (
    KEEP,
    Connection,
    Database,
    SqliteDatabase,
    migrate,
    open_database,
    schema_versions,
)
from proctor.store.key_rotation import ROW_IDS
from proctor.store.keys import Keys
from proctor.store.sealer import KEYED
from proctor.store.store import Store
from proctor.store.tables import COLUMNS, OF_A_SESSION, OLD_NAMES
from proctor.store.writer import is_alive

PAGE = 1000
"""Rows written at a time."""
MOST_EXAMPLES = 5
RESTORE = "Restore a backup: proctor store restore FILE"
JSON_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "batches": ("defaultsJson", "optionsJson"),
    "batch_items": ("factors", "details", "settings"),
    "sessions": ("notes", "attributesJson", "toolsJson", "servedModels", "validity"),
    "tool_calls": ("argsJson",),
    "model_calls": ("price", "notSent"),
    "scores": ("ignored", "votes", "ballots"),
    "merge_history": ("conflictFiles",),
    "calibrations": ("documentJson",),
}
OTHER_IDS: Mapping[str, tuple[str, ...]] = {
    "blobs": ("digest",),
    "pools": ("name", "owner"),
    "signatures": ("runId", "position"),
    "online_sessions": ("configId", "sessionId"),
    "drift_scores": ("configId", "evaluator", "dimension", "position"),
    "drift_points": ("configId", "evaluator", "dimension", "position"),
    "drift_crossings": ("configId", "evaluator", "dimension", "position"),
    "dataset_versions": ("datasetId", "version"),
    "resource_tags": ("arn", "key"),
    "client_tokens": ("operation", "token"),
    "log_streams": ("logGroup", "logStream"),
    "data_keys": ("id",),
}
"""Primary keys of the tables that hold no encrypted texts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreProblem:
    """Something that is wrong in a store. Field names are those of the JSON document."""

    what: str
    count: int = 1
    examples: Sequence[str] = ()
    remedy: str = RESTORE


@dataclass(slots=True, kw_only=True)
class StoreCheck:
    """The result of a check of a store."""

    url: str
    problems: list[StoreProblem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What could not be checked, and what is worth knowing."""
    rows: dict[str, int] = field(default_factory=dict)
    """Rows by table."""

    @property
    def is_ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def document(self) -> JsonObject:
        """The JSON document of `proctor store check`."""
        return {
            "store": self.url,
            "ok": self.is_ok,
            "problems": [asdict(problem) for problem in self.problems],
            "notes": self.notes,
            "rows": self.rows,
        }


def check_store(url: str, keys: Keys, now: datetime, *, texts: bool = True) -> StoreCheck:
    """Check a store: its file, its rows, its texts and its signatures. Changes nothing.

    Without `texts`, long texts are not decompressed: this takes most of the time.
    """
    check = StoreCheck(url=open_database(url).url)
    try:
        with Store(url, keys) as store:
            _check_store(store, check, now, texts=texts)
    except StoreError as error:
        problem, _, remedy = str(error).partition("\n")
        check.problems.insert(0, StoreProblem(what=problem, remedy=remedy or RESTORE))
    return check


def _check_store(store: Store, check: StoreCheck, now: datetime, *, texts: bool) -> None:
    with closing(store.database.connect()) as connection:
        steps: list[Callable[[], Iterator[StoreProblem]]] = [
            lambda: _file_problems(connection, store.url),
            lambda: _reference_problems(connection),
            lambda: _json_problems(connection, check),
            lambda: _text_problems(connection, check) if texts else iter(()),
            lambda: _signature_problems(store, check, now),
        ]
        for table in COLUMNS:
            try:
                check.rows[table] = connection.rows(f'SELECT COUNT(*) AS "n" FROM "{table}"')[0]["n"]
            except StoreError as error:
                check.problems.append(_unreadable(table, error))
        for step in steps:
            try:
                check.problems += step()
            except StoreError as error:
                check.problems.append(_unreadable("a table", error))


def _unreadable(table: str, error: StoreError) -> StoreProblem:
    problem, _, remedy = str(error).partition("\n")
    return StoreProblem(what=f"{table} cannot be read: {problem}", remedy=remedy or RESTORE)


def _file_problems(connection: Connection, url: str) -> Iterator[StoreProblem]:
    if not url.startswith("sqlite:"):
        return
    lines = [str(line[0]) for line in connection.tuples("PRAGMA integrity_check(100)")]
    if lines != ["ok"]:
        examples = [line for text in lines for line in text.splitlines() if not line.startswith("***")]
        yield StoreProblem(
            what="the file is damaged",
            count=len(examples),
            examples=examples[:MOST_EXAMPLES],
            remedy=f"{RESTORE}. Without one, save the readable rows to a new file: "
            "proctor store copy DAMAGED NEW --skip-damaged",
        )
    if broken := connection.tuples("PRAGMA foreign_key_check"):
        yield StoreProblem(what="rows that refer to missing rows", count=len(broken))


def _reference_problems(connection: Connection) -> Iterator[StoreProblem]:
    """Rows whose batch, session or long text is missing."""
    parents = [
        *((table, "sessionId", "sessions", "id") for table in OF_A_SESSION),
        ("batch_items", "runId", "batches", "runId"),
        ("batch_items", "sessionId", "sessions", "id"),
        ("sessions", "runId", "batches", "runId"),
    ]
    parents += [
        (table, column, "blobs", "digest")
        for table, columns in COLUMNS.items()
        for column in columns
        if column.endswith("Blob")
    ]
    for table, column, parent, key in parents:
        missing = (
            f'FROM "{table}" t LEFT JOIN "{parent}" p ON p."{key}" = t."{column}" '
            f'WHERE t."{column}" IS NOT NULL AND t."{column}" <> \'\' AND p."{key}" IS NULL'
        )
        (row,) = connection.rows(f'SELECT COUNT(*) AS "n" {missing}')
        if row["n"]:
            examples = connection.tuples(f'SELECT DISTINCT t."{column}" {missing} LIMIT {MOST_EXAMPLES}')
            noun = {"blobs": "long text", "sessions": "session", "batches": "batch"}[parent]
            yield StoreProblem(
                what=f"{table} without {noun}", count=row["n"], examples=[str(each[0]) for each in examples]
            )


def _json_problems(connection: Connection, check: StoreCheck) -> Iterator[StoreProblem]:
    for table, columns in JSON_COLUMNS.items():
        ids = primary_key(table)
        unreadable, is_locked = list[str](), False
        for row in connection.stream(f'SELECT {_quoted((*ids, *columns))} FROM "{table}"'):
            try:
                for column in columns:
                    if row[column]:
                        json.loads(row[column])
            except KeyMissing:
                is_locked = True
                break
            except ValueError:
                unreadable.append("/".join(str(row[name]) for name in ids))
        if is_locked:
            check.notes.append(f"{table}: encrypted with a key that is not available; JSON is not checked")
        if unreadable:
            yield StoreProblem(
                what=f"{table} with unreadable JSON",
                count=len(unreadable),
                examples=unreadable[:MOST_EXAMPLES],
            )


def _text_problems(connection: Connection, check: StoreCheck) -> Iterator[StoreProblem]:
    unreadable, is_locked = list[str](), False
    for row in connection.stream('SELECT "digest", "size", "data" FROM "blobs"'):
        try:
            text = zlib.decompress(row["data"])
        except KeyMissing:
            is_locked = True
            break
        except zlib.error:
            unreadable.append(row["digest"])
            continue
        is_keyed = row["digest"].startswith(KEYED)
        if len(text) != row["size"] or not (is_keyed or hashlib.sha256(text).hexdigest() == row["digest"]):
            unreadable.append(row["digest"])
    if is_locked:
        check.notes.append("blobs: encrypted with a key that is not available; long texts are not checked")
    if unreadable:
        yield StoreProblem(
            what="long texts that are damaged", count=len(unreadable), examples=unreadable[:MOST_EXAMPLES]
        )


def _signature_problems(store: Store, check: StoreCheck, now: datetime) -> Iterator[StoreProblem]:
    unsigned = 0
    for batch in store.read.batches(now, limit=1_000_000):
        signatures = store.check_signatures(batch["runId"], now)
        if signatures.is_forged:
            for note in signatures.notes(unsigned=False):
                yield StoreProblem(
                    what=note,
                    remedy="Do not rely on this run: run it again, or restore a backup that you trust.",
                )
        elif signatures.unknown_keys:
            check.notes += signatures.notes()
        unsigned += bool(signatures.unsigned and not signatures.is_signed)
    if unsigned:
        check.notes.append(f"{plural(unsigned, 'run')} with results that are not signed (older, or imported)")


# Copies.


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCopy:
    """A copy of a store that was compared with its source."""

    url: str
    rows: Mapping[str, int]
    """Rows by table."""
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Tables of which rows could not be read, and why."""
    kept_aside: str = ""
    """The file that was replaced, under its new name."""

    def document(self) -> JsonObject:
        """The JSON document of `proctor store backup`, `restore` and `copy`."""
        return asdict(self)


def back_up(url: str, file: Path, *, force: bool = False) -> StoreCopy:
    """Copy a store to a new SQLite file, also while runs are writing to it."""
    database = open_database(url)
    if isinstance(database, SqliteDatabase) and not database.path.exists():
        raise UsageError(f"there is no store at {database.path}\nName one with --store or --home.")
    if file.exists() and not force:
        raise UsageError(f"{file} exists\nChoose another name, or pass --force to replace it.")
    private_folder(file.parent)
    with _new_file(file) as new:
        if isinstance(database, SqliteDatabase):
            rows: Mapping[str, int] = _clone(database, new)
        else:
            rows = copy_store(url, str(new)).rows
        new.replace(file)
    return StoreCopy(url=f"sqlite:///{file}", rows=rows)


def restore(file: Path, url: str, now: datetime, *, force: bool = False) -> StoreCopy:
    """Put a backup in the place of a store. A file that is replaced is kept under another name."""
    if not file.is_file():
        raise UsageError(f"there is no backup {file}\nName the file that proctor store backup has written.")
    database = open_database(url)
    if not isinstance(database, SqliteDatabase):
        return copy_store(str(file), url)
    target = database.path
    exists = target.exists() or any(path.exists() for path in _companions(target))
    if exists and target.exists() and file.samefile(target):
        raise UsageError(f"{file} is the store itself\nName a backup.")
    if exists and not force:
        raise UsageError(
            f"there is already a store at {target}\n"
            "Pass --force to replace it; the old file is kept under another name."
        )
    # A missing store has no runs, and looking for them would create it.
    if exists and (running := _running(database, now)):
        raise UsageError(f"run {running} is writing to {target}\nStop it first:  proctor abort-run {running}")
    private_folder(target.parent)
    set_aside = ""
    with _new_file(target) as new:
        rows = _clone(SqliteDatabase(file), new)
        if exists:
            set_aside = _set_aside(target, now)
        new.replace(target)
    return StoreCopy(url=database.url, rows=rows, kept_aside=set_aside)


@contextmanager
def _new_file(file: Path) -> Iterator[Path]:
    """The name under which a store is written before it is put in place whole: never half of one.

    What an earlier process left there when it was killed is removed.
    """
    new = file.with_name(f".{file.name}.new")
    # A store is empty under a third name first (`SqliteDatabase._create`).
    begun = file.parent.glob(f".{escape(new.name)}.*")
    for path in (new, *_companions(new), *begun):
        path.unlink(missing_ok=True)
    try:
        yield new
    finally:
        for path in (new, *_companions(new)):
            path.unlink(missing_ok=True)


def copy_store(
    source_url: str,
    target_url: str,
    *,
    skip_damaged: bool = False,
    on_progress: Callable[[int, int], None] = lambda done, total: None,  # noqa: ARG005
) -> StoreCopy:
    """Copy all tables to an empty store, of the same or the other kind of database, and compare the two.

    With `skip_damaged`, rows that cannot be read are left out. `on_progress` is called with the number of
    tables that are done, and of all.
    """
    source, target = open_database(source_url), open_database(target_url)
    if isinstance(source, SqliteDatabase) and not source.path.exists():
        raise UsageError(f"there is no store at {source.path}\nName the store to copy from.")
    skip_damaged = skip_damaged and isinstance(source, SqliteDatabase)
    if not skip_damaged:
        migrate(source)
    if isinstance(target, SqliteDatabase) and not target.path.exists():
        private_folder(target.path.parent)
        with _new_file(target.path) as new:
            copied = _copy_into(source, SqliteDatabase(new), skip_damaged, on_progress)
            new.replace(target.path)
        return replace(copied, url=target.url)
    return _copy_into(source, target, skip_damaged, on_progress)


def _copy_into(
    source: Database, target: Database, skip_damaged: bool, on_progress: Callable[[int, int], None]
) -> StoreCopy:
    migrate(target)
    skipped = dict[str, str]()
    with closing(source.connect()) as reading, closing(target.connect()) as writing:
        if filled := [table for table in COLUMNS if writing.rows(f'SELECT 1 AS "x" FROM "{table}" LIMIT 1')]:
            raise UsageError(
                f"the store {target.url} is not empty (table {filled[0]})\nCopy to a new file or database."
            )
        writing.begin()
        try:
            with _snapshot(reading, source):
                rows = dict[str, int]()
                for table in COLUMNS:
                    rows[table] = _copy_table(table, reading, writing, skipped if skip_damaged else None)
                    on_progress(len(rows), len(COLUMNS))
            writing.commit()
        except BaseException:
            writing.rollback()
            raise
    return StoreCopy(url=target.url, rows=rows, skipped=skipped)


def primary_key(table: str) -> tuple[str, ...]:
    """The columns that identify a row."""
    return ROW_IDS.get(table) or OTHER_IDS.get(table) or ("sessionId", "position")


def _copy_table(table: str, reading: Connection, writing: Connection, skipped: dict[str, str] | None) -> int:
    columns, selected = COLUMNS[table], _quoted(COLUMNS[table])
    if skipped is not None:
        stored = _stored_columns(table, reading)
        columns = tuple(stored)
        selected = ", ".join(f'"{name}" AS "{column}"' for column, name in stored.items())
    if not columns:
        assert skipped is not None
        skipped[table] = "the table is missing"
        return 0
    query = f'SELECT {selected} FROM "{table}"'
    expected = _Digest()
    orders = [""] if skipped is None else ["", f" ORDER BY {_quoted(primary_key(table), ' DESC')}"]
    for order in orders:
        rows = (tuple(row.values()) for row in reading.stream(query + order))
        try:
            for page in _pages(rows, expected):
                writing.insert_many(table, page, columns, KEEP)
            break
        except StoreError as error:
            if skipped is None:
                raise
            # What comes before the damage was read; what comes after it is read from the other end.
            skipped[table] = str(error).partition("\n")[0]
    written = _Digest()
    for row in writing.stream(f'SELECT {_quoted(columns)} FROM "{table}"'):
        written.add(tuple(row.values()))
    if table not in (skipped or ()) and written != expected:
        raise StoreError(
            f"the copy of {table} differs from its source: {written.rows:,} of {expected.rows:,} rows\n"
            "Nothing was copied. Try again while no run is writing."
        )
    return written.rows


def _pages(rows: Iterator[tuple[object, ...]], digest: "_Digest") -> Iterator[list[tuple[object, ...]]]:
    page = list[tuple[object, ...]]()
    try:
        for row in rows:
            digest.add(row)
            page.append(row)
            if len(page) == PAGE:
                yield page
                page = []
    except StoreError:
        # The rows before the damage are good.
        yield page
        raise
    yield page


class _Digest:
    """A digest of rows that does not depend on their order."""

    def __init__(self) -> None:
        self.rows = 0
        self._sum = 0

    def add(self, row: tuple[object, ...]) -> None:
        """Add a row; the order of rows does not matter."""
        self.rows += 1
        digest = hashlib.blake2b(repr(row).encode("utf-8", "surrogatepass"), digest_size=16).digest()
        self._sum = (self._sum + int.from_bytes(digest, "big")) % (1 << 128)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Digest) and (self.rows, self._sum) == (other.rows, other._sum)

    __hash__ = None  # type: ignore[assignment]


def _stored_columns(table: str, reading: Connection) -> dict[str, str]:
    """The columns that a damaged store, or one of an earlier version, has, and their names there."""
    try:
        names = {str(row[0]) for row in reading.tuples(f"SELECT name FROM pragma_table_info('{table}')")}
    except StoreError:
        names = set(COLUMNS[table])
    old = OLD_NAMES.get(table, {})
    stored = {column: column if column in names else old.get(column, "") for column in COLUMNS[table]}
    return {column: name for column, name in stored.items() if name in names}


@contextmanager
def _snapshot(connection: Connection, database: Database) -> Iterator[None]:
    """Read the state of one moment while others write."""
    if isinstance(database, SqliteDatabase):
        connection.run("BEGIN")
    else:
        connection.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    try:
        yield
    finally:
        connection.rollback()


def _clone(database: SqliteDatabase, new: Path) -> dict[str, int]:
    """Copy a SQLite file as it is at one moment, and check the copy; the number of rows by table."""
    with closing(database.connect()) as source:
        newest, version = schema_versions(source)
        if not 0 < version <= newest:
            raise StoreUnavailable(
                f"{database.path} is not a store of this version of Proctor (or an earlier)"
            )
        source.back_up(new)
    with closing(SqliteDatabase(new).connect()) as copy:
        for problem in _file_problems(copy, f"sqlite:///{new}"):
            raise StoreUnavailable(
                f"{database.path} is damaged: {problem.examples[0] if problem.examples else problem.what}\n"
                f"{problem.remedy}"
            )
        tables = [table for table in COLUMNS if _stored_columns(table, copy)]
        rows = {table: copy.rows(f'SELECT COUNT(*) AS "n" FROM "{table}"')[0]["n"] for table in tables}
        # The copy is one file: nothing of it is left in a log.
        copy.tuples("PRAGMA wal_checkpoint(TRUNCATE)")
    return rows


def _running(database: SqliteDatabase, now: datetime) -> str:
    """A run that a living process writes to the store; empty: none, or the store cannot be read."""
    try:
        with closing(database.connect()) as connection:
            rows = connection.rows(
                'SELECT "runId", "owner", "heartbeatAt" FROM "batches" WHERE "status" = \'running\''
            )
    except StoreError:
        return ""
    for row in rows:
        heartbeat = datetime.fromisoformat(row["heartbeatAt"]) if row["heartbeatAt"] else None
        if is_alive(row["owner"], heartbeat, now):
            return str(row["runId"])
    return ""


def _set_aside(target: Path, now: datetime) -> str:
    aside = target.with_name(f"{target.name}.before-restore-{now:%Y%m%dT%H%M%S}")
    for old, new in zip((target, *_companions(target)), (aside, *_companions(aside)), strict=True):
        if old.exists():
            old.replace(new)
    return str(aside)


def _companions(path: Path) -> tuple[Path, Path]:
    return path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")


def _quoted(names: Sequence[str], after: str = "") -> str:
    return ", ".join(f'"{name}"{after}' for name in names)
