"""A store is made, brought up to date, and refused when it comes from the future."""

import gzip
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest
from whole_store import fill

import proctor
from databases import new_database, query
from proctor.errors import StoreError
from proctor.store import Store, postgres
from proctor.store.database import migrate, open_database
from proctor.store.tables import COLUMNS, OLD_NAMES
from waiting import TIME_LIMIT_SECONDS

STORES = sorted((Path(__file__).parent / "stores").glob("version-*.db.gz"))
"""One file for each earlier version of the schema."""
MIGRATIONS = Path(proctor.__file__).parent / "store" / "migrations"


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where there is no store yet."""
    is_file = request.param == "sqlite"
    return str(tmp_path / "new.db") if is_file else new_database(request.getfixturevalue("server"))


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(StoreError, match="cannot open the store"):
        Store(str(tmp_path / "file" / "proctor.db"))


def test_a_migration_that_fails_leaves_nothing_half_way(url, monkeypatch):
    """No migration that is delivered fails."""
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
        for _ in range(4)
    ]
    assert [process.stdout.readline() for process in processes] == ["ready\n"] * 4
    for process in processes:
        process.stdin.close()
        process.stdin = None

    told = [process.communicate(timeout=TIME_LIMIT_SECONDS) for process in processes]

    assert told == [("made\n", "")] * 4


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
    """Without the ten seconds that a server has to come up."""
    monkeypatch.setattr(postgres, "FIRST_SECONDS", 0)
    url = "postgresql://me:pass-word@127.0.0.1:1/none"

    with pytest.raises(StoreError) as caught:
        Store(url)

    assert "pass-word" not in str(caught.value)
    assert open_database(url).url == "postgresql://me@127.0.0.1:1/none"
    assert open_database("postgresql:///db?password=pass-word&host=h").url == "postgresql:///db?host=h"


def columns_of(store, table):
    if store.url.startswith("sqlite"):
        rows = query(store, f"SELECT name FROM pragma_table_info('{table}')")
    else:
        places = "SELECT column_name AS name FROM information_schema.columns WHERE table_name = ? "
        places += "AND is_generated = 'NEVER'"
        rows = query(store, f"{places} ORDER BY ordinal_position", (table,))
    return tuple(row["name"] for row in rows)


def test_both_databases_have_the_tables_and_columns_that_we_write_and_no_others(store):
    assert {table: columns_of(store, table) for table in COLUMNS} == COLUMNS
    if store.url.startswith("sqlite"):
        tables = {row["name"] for row in query(store, "SELECT name FROM sqlite_master WHERE type = 'table'")}
        # The index of transcripts is derived, and made when it is first needed.
        assert tables == {*COLUMNS, "schema_version", "search_sessions"}


def test_renamed_columns_keep_what_an_earlier_version_has_written(tmp_path):
    (tmp_path / "old.db").write_bytes(gzip.decompress(STORES[0].with_name("version-18.db.gz").read_bytes()))
    with closing(sqlite3.connect(tmp_path / "old.db")) as raw:
        written = {
            new: sorted(raw.execute(f'SELECT "{old}" FROM "{table}"'))
            for table, names in OLD_NAMES.items()
            for new, old in names.items()
        }
    with Store(str(tmp_path / "old.db")) as store:
        for table, names in OLD_NAMES.items():
            for new in names:
                rows = query(store, f'SELECT "{new}" FROM "{table}" ORDER BY 1')
                assert [(row[new],) for row in rows] == written[new] != []


def test_a_renamed_column_can_still_be_read_by_its_old_name(store):
    fill(store)
    for table, names in OLD_NAMES.items():
        for new, old in names.items():
            rows = query(store, f'SELECT "{new}" AS "new", "{old}" AS "old" FROM "{table}"')
            assert any(row["new"] for row in rows) and all(row["new"] == row["old"] for row in rows), table


def test_a_store_of_a_newer_proctor_is_refused_and_told_apart_from_a_broken_one(url):
    for _ in range(2):
        Store(url).close()
    with closing(open_database(url).connect()) as connection:
        assert len(connection.rows('SELECT "version" FROM "schema_version"')) == 1, (
            "opening again adds nothing"
        )
        connection.run('UPDATE "schema_version" SET "version" = 99')

    newest = max(int(path.name[:4]) for path in MIGRATIONS.glob("*.sql"))
    with pytest.raises(
        StoreError, match=rf"newer Proctor \(version 99, this one knows {newest}\).*\nUpgrade Proctor"
    ):
        Store(url)


@pytest.mark.parametrize("packed", STORES, ids=lambda path: path.name.partition(".")[0])
def test_a_store_of_an_earlier_version_opens_and_its_runs_resume(packed, tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    (home / "proctor.db").write_bytes(gzip.decompress(packed.read_bytes()))
    monkeypatch.setenv("PROCTOR_HOME", str(home))
    monkeypatch.chdir(tmp_path)

    with proctor.open_store() as store:
        runs = {run.id: run for run in store.runs()}
        prompts = runs["prompts"]
        assert (prompts.status, prompts.summary()["unfinishedCount"]) == ("interrupted", 1)
        answers = {item.session.answer for item in prompts.items(status="success")}
        assert answers == {"OK"}
        assert {score.evaluator for item in prompts.items() for score in item.session.scores} >= {
            "checks:polite"
        }

        resumed = prompts.resume()

        assert (resumed.status, resumed.summary()["itemCount"]) == ("completed", 8)
        assert resumed.summary()["unfinishedCount"] == 0
        assert "prompts" in resumed.report(tmp_path / "report.md").read_text()
        assert len(runs) == 4


def test_the_newest_schema_but_one_is_kept_as_a_file():
    newest = max(int(path.name[:4]) for path in MIGRATIONS.glob("*.sql"))

    assert (Path(__file__).parent / "stores" / f"version-{newest - 1}.db.gz").exists()
