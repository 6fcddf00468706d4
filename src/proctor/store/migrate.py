"""Bring a store to the shape this version of Proctor writes.

Each file in `migrations/` is one step, named by its number; the store remembers the last one done.
A step and its number are written in one transaction, so a killed migration leaves nothing half-way.

Knows nothing of what the tables are for.
"""

from importlib import resources

from proctor.errors import StoreError, StoreUnavailable
from proctor.store.database import Connection, Database


def migrate(database: Database) -> None:
    """Make the store current. Costs one small query when it already is."""
    connection = database.connect()
    try:
        newest = len(_steps())
        found = _version(connection)
        if found > newest:
            raise StoreUnavailable(
                f"the store {database.url} was written by a newer Proctor (version {found}, this one knows "
                f"{newest})\nUpgrade Proctor, or name another store with --store."
            )
        if found < newest:
            _upgrade(connection)
    finally:
        connection.close()


def _upgrade(connection: Connection) -> None:
    connection.begin()
    try:
        connection.script('CREATE TABLE IF NOT EXISTS "schema_version" ("version" BIGINT NOT NULL)')
        # Asked again inside the transaction: another process may have been quicker.
        done = _version(connection)
        for number, name in enumerate(_steps(), start=1):
            if number > done:
                connection.script(_text(name))
                connection.run('DELETE FROM "schema_version"')
                connection.run('INSERT INTO "schema_version" ("version") VALUES (?)', (number,))
        connection.commit()
    except BaseException:
        connection.rollback()
        raise


def _version(connection: Connection) -> int:
    try:
        rows = connection.rows('SELECT "version" FROM "schema_version"')
    except StoreError as error:
        if "schema_version" in str(error):
            return 0
        raise
    return int(rows[0]["version"]) if rows else 0


def _steps() -> list[str]:
    folder = resources.files("proctor.store.migrations")
    return sorted(file.name for file in folder.iterdir() if file.name.endswith(".sql"))


def _text(name: str) -> str:
    return (resources.files("proctor.store.migrations") / name).read_text(encoding="utf-8")
