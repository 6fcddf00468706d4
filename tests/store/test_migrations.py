"""A store is made, brought up to date, and refused when it comes from the future."""

import sqlite3
import subprocess
import sys
import threading

import pytest

from databases import query
from proctor.errors import StoreError
from proctor.store import Store, postgres
from proctor.store.database import migrate, open_database
from proctor.store.tables import COLUMNS
from waiting import TIME_LIMIT_SECONDS


def test_a_new_store_has_every_table_with_the_columns_we_write(url):
    with Store(url) as store:
        for table, columns in COLUMNS.items():
            names = ", ".join(f'"{name}"' for name in columns)
            assert query(store, f'SELECT {names} FROM "{table}"') == []


def test_the_list_of_columns_is_the_database_in_the_same_order(tmp_path):
    with Store(str(tmp_path / "a.db")):
        pass
    raw = sqlite3.connect(tmp_path / "a.db")
    tables = {name for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    found = {
        table: tuple(row[1] for row in raw.execute(f'PRAGMA table_info("{table}")')) for table in COLUMNS
    }

    # The index of transcripts is derived, and made when it is first needed.
    assert tables == {*COLUMNS, "schema_version", "search_sessions"}
    assert found == COLUMNS


def test_both_databases_have_the_same_columns(store):
    if store.url.startswith("sqlite"):
        found = {
            table: [row["name"] for row in query(store, f"SELECT name FROM pragma_table_info('{table}')")]
            for table in COLUMNS
        }
    else:
        found = {
            table: [
                row["column_name"]
                for row in query(
                    store,
                    "SELECT column_name FROM information_schema.columns WHERE table_name = ? "
                    "ORDER BY ordinal_position",
                    (table,),
                )
            ]
            for table in COLUMNS
        }

    assert found == {table: list(columns) for table, columns in COLUMNS.items()}


def test_opening_a_store_again_changes_nothing(url):
    with Store(url):
        pass
    with Store(url) as store:
        assert len(query(store, 'SELECT "version" FROM "schema_version"')) == 1


def test_a_store_of_a_newer_proctor_is_refused_and_told_apart_from_a_broken_one(url):
    with Store(url):
        pass
    connection = open_database(url).connect()
    connection.run('UPDATE "schema_version" SET "version" = 99')
    connection.close()

    with pytest.raises(StoreError, match=r"newer Proctor \(version 99.*\nUpgrade Proctor"):
        Store(url)


def test_a_file_that_is_no_store_is_refused_with_its_path(tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text("not a database, but long enough to be looked at as one" * 50)

    with pytest.raises(StoreError, match=r"notes\.txt"):
        Store(str(file))


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(StoreError, match="cannot open the store"):
        Store(str(tmp_path / "file" / "proctor.db"))


def test_a_migration_that_fails_leaves_nothing_half_way(url, monkeypatch):
    texts = {
        "0001_a.sql": 'CREATE TABLE "a" ("x" TEXT);',
        "0002_b.sql": 'CREATE TABLE "b" ("x" TEXT); nonsense;',
    }
    monkeypatch.setattr("proctor.store.database._steps", lambda: list(texts))
    monkeypatch.setattr("proctor.store.database._texts", lambda name, kind: [texts[name]])

    with pytest.raises(StoreError):
        migrate(open_database(url))

    connection = open_database(url).connect()
    for table in ("a", "schema_version"):
        with pytest.raises(StoreError):
            connection.rows(f'SELECT * FROM "{table}"')
    connection.close()


def test_many_processes_may_create_one_store_at_once(url):
    program = (
        "import sys; from proctor.store import Store; print('ready', flush=True); sys.stdin.read(); "
        "Store(sys.argv[1]).close(); print('made')"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(6)
    ]
    assert [process.stdout.readline() for process in processes] == ["ready\n"] * 6
    for process in processes:
        process.stdin.close()
        process.stdin = None

    told = [process.communicate(timeout=TIME_LIMIT_SECONDS) for process in processes]

    assert told == [("made\n", "")] * 6


def test_a_file_that_another_process_is_just_creating_is_waited_for(tmp_path):
    raw = sqlite3.connect(tmp_path / "new.db", isolation_level=None, check_same_thread=False)
    raw.execute("BEGIN EXCLUSIVE")
    raw.execute("PRAGMA user_version=1")
    release = threading.Timer(0.3, lambda: raw.execute("COMMIT"))
    release.start()

    with Store(str(tmp_path / "new.db")) as store:
        assert query(store, "PRAGMA journal_mode") == [{"journal_mode": "wal"}]
    release.join()


def test_a_password_is_in_no_message(monkeypatch):
    monkeypatch.setattr(postgres, "FIRST_SECONDS", 0)
    url = "postgresql://me:pass-word@127.0.0.1:1/none"

    with pytest.raises(StoreError) as caught:
        Store(url)

    assert "pass-word" not in str(caught.value)
    assert open_database(url).url == "postgresql://me@127.0.0.1:1/none"
    assert open_database("postgresql:///db?password=pass-word&host=h").url == "postgresql:///db?host=h"
