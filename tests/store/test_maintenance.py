"""A store can be checked, backed up while it is written, restored, copied to another database, and pruned."""

import json
import os
import sqlite3
import threading
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from commands import Command
from databases import new_database, query
from proctor.errors import StoreError, UsageError
from proctor.item import Item
from proctor.score import Score
from proctor.session import Message
from proctor.store import Store
from proctor.store.keys import Keys, LocalKey, SigningKeyFile
from proctor.store.maintenance import back_up, check_store, copy_store, primary_key, restore
from proctor.store.tables import COLUMNS
from proctor.store.writer import this_process
from stocked import add_batch, finish_item

DATABASES = ["sqlite"]
NOW = datetime(2026, 11, 16, tzinfo=UTC)
KEYS = Keys(own=LocalKey(secret=bytes(32)))
LONG = "a long text " * 1000


def fill(store: Store, run_id: str = "run") -> None:
    """A run with three sessions, each with a score and a long text."""
    created = "2026-01-01T00:00:00.000Z"
    items = [Item(runner="prompt", prompt=f"{run_id} {n}", agent="", model="scripted/echo") for n in range(3)]
    add_batch(store, run_id, items, createdAt=created, status="completed")
    writer = store.writer()
    for number, item in enumerate(items):
        said = Message(role="user", content=LONG), Score(evaluator="exact", value=1.0)
        end = {"finishedAt": created}
        finish_item(writer, item.id, f"{run_id}-{number}", *said, run_id=run_id, columns=end)
    writer.close()
    store.end_batch(run_id, "completed", "", "", NOW)


@pytest.fixture
def filled(url: str) -> str:
    """The address of a store with one run."""
    with Store(url) as store:
        fill(store)
    return url


def content(url: str, keys: Keys = Keys()) -> dict[str, list[str]]:  # noqa: B008
    with Store(url, keys) as store:
        return {table: sorted(map(repr, query(store, f'SELECT * FROM "{table}"'))) for table in COLUMNS}


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
def test_the_check_finds_damaged_texts_and_results_of_others(url, tmp_path):
    keys = Keys(signing=SigningKeyFile(tmp_path / "signing.key"))
    with Store(url, keys) as store:
        fill(store)
        with closing(store.database.connect()) as connection:
            connection.run('UPDATE "batch_items" SET "costUsd" = 1 WHERE "position" = 1')
            connection.run('UPDATE "blobs" SET "data" = ?', (b"nothing",))

    texts = [problem.what for problem in check_store(url, keys, NOW).problems]

    assert texts[0] == "long texts that are damaged"
    assert texts[1].startswith("1 result of run run was written or changed by someone else")
    assert len(check_store(url, keys, NOW, texts=False).problems) == 1


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
def test_every_table_has_a_primary_key(store):
    for table in COLUMNS:
        names = ", ".join(f'"{name}"' for name in primary_key(table))
        assert query(store, f'SELECT {names} FROM "{table}"') == []


@pytest.mark.parametrize(("url", "keys"), [("sqlite", KEYS), ("postgresql", Keys())], indirect=["url"])
def test_a_sound_store_has_no_problems_and_its_backup_is_restored_with_every_row(url, keys, tmp_path):
    with Store(url, keys) as store:
        fill(store)
    backup = tmp_path / "backups" / "copy.db"

    made = back_up(url, backup)
    target = str(tmp_path / "other" / "proctor.db")
    restored = restore(backup, target, NOW)
    check = check_store(url, keys, NOW)

    assert check.is_ok, check.problems
    assert (check.rows["batch_items"], check.rows["blobs"]) == (3, 1)
    assert made.rows == restored.rows
    assert made.rows["messages"] == 3
    assert content(target, keys) == content(url, keys)
    assert oct(backup.stat().st_mode)[-3:] == "600"
    assert [path.name for path in backup.parent.iterdir()] == ["copy.db"]
    with pytest.raises(UsageError, match=r"exists\n.*--force"):
        back_up(url, backup)


def test_a_backup_of_a_store_that_is_being_written_holds_whole_transactions(url, tmp_path):
    with Store(url) as store:
        fill(store, "first")
        stop = threading.Event()

        def write() -> None:
            number = 0
            with Store(url) as other:
                while not stop.is_set():
                    fill(other, f"run{number}")
                    number += 1

        writing = threading.Thread(target=write)
        writing.start()
        try:
            for number in range(5):
                back_up(url, tmp_path / f"copy{number}.db")
        finally:
            stop.set()
            writing.join()
        for number in range(5):
            assert check_store(str(tmp_path / f"copy{number}.db"), Keys(), NOW).is_ok


def test_restoring_keeps_the_old_store_and_must_be_forced(url, tmp_path):
    with Store(url) as store:
        fill(store, "old")
    back_up(url, tmp_path / "copy.db")
    with Store(url) as store:
        fill(store, "new")

    with pytest.raises(UsageError, match=r"already a store at .*\n.*--force"):
        restore(tmp_path / "copy.db", url, NOW)
    result = restore(tmp_path / "copy.db", url, NOW, force=True)

    assert len(content(url)["batches"]) == 1
    assert len(content(result.kept_aside)["batches"]) == 2
    assert result.kept_aside.endswith("proctor.db.before-restore-20261116T000000")


def test_a_damaged_backup_is_refused_and_leaves_the_store(tmp_path, filled):
    back_up(filled, tmp_path / "copy.db")
    os.truncate(tmp_path / "copy.db", (tmp_path / "copy.db").stat().st_size // 2)

    with pytest.raises(StoreError, match=r"copy\.db is damaged"):
        restore(tmp_path / "copy.db", filled, NOW, force=True)

    assert check_store(filled, Keys(), NOW).is_ok


def test_a_store_is_copied_to_the_other_database_and_back(server, tmp_path):
    first, second = str(tmp_path / "first.db"), str(tmp_path / "second.db")
    keys = Keys(own=KEYS.own, signing=SigningKeyFile(tmp_path / "signing.key"))
    with Store(first, keys) as store:
        fill(store)
    middle = new_database(server)

    progress = list[tuple[int, int]]()
    copied = copy_store(first, middle, on_progress=lambda done, total: progress.append((done, total)))
    copy_store(middle, second)

    assert copied.rows["batch_items"] == 3
    assert progress == [(number, len(COLUMNS)) for number in range(1, len(COLUMNS) + 1)]
    assert content(first, keys) == content(middle, keys) == content(second, keys)
    for url in (middle, second):
        assert check_store(url, keys, NOW).is_ok
    assert restore(Path(first), new_database(server), NOW).rows["messages"] == 3
    assert back_up(middle, tmp_path / "backup.db").rows["messages"] == 3


def test_readable_rows_of_a_damaged_file_are_saved(url, tmp_path):
    with Store(url) as store:
        for number in range(60):
            fill(store, f"run{number:02}")
    raw = sqlite3.connect(url, isolation_level=None)
    (page,) = raw.execute("SELECT rootpage FROM sqlite_master WHERE name = 'scores'").fetchone()
    raw.close()
    with Path(url).open("r+b") as file:
        # A leaf in the middle of the table.
        file.seek((page - 1) * 4096 + 12)
        child = int.from_bytes(
            os.pread(file.fileno(), 4, (page - 1) * 4096 + int.from_bytes(file.read(2), "big")), "big"
        )
        file.seek((child - 1) * 4096)
        file.write(b"\xff" * 4096)

    assert not check_store(url, Keys(), NOW).is_ok
    with pytest.raises(StoreError, match="is damaged"):
        copy_store(url, str(tmp_path / "strict.db"))
    copied = copy_store(url, str(tmp_path / "saved.db"), skip_damaged=True)

    assert set(copied.skipped) == {"scores"}
    assert copied.rows["batch_items"] == 180
    assert 0 < copied.rows["scores"] < 180


def test_the_commands_check_back_up_and_restore(tmp_path, filled, proctor: Command):
    store = filled
    at = ("--store", store)

    checked = proctor("store", "check", "--json", *at)
    saved = proctor("store", "backup", "copy.db", *at)
    refused = proctor("store", "restore", "copy.db", *at)
    Path(store).write_bytes(b"")
    broken = proctor("store", "check", *at)
    doctor = proctor("doctor", "--store", "--json", *at)
    restored = proctor("store", "restore", "copy.db", "--force", "--json", *at)
    copied = proctor("store", "copy", store, "third.db", "--json")

    assert (checked.returncode, json.loads(checked.stdout)["ok"]) == (0, True)
    assert (saved.returncode, refused.returncode) == (0, 2)
    assert broken.returncode == 1
    assert "is empty (0 bytes)" in broken.stdout
    assert "proctor store restore FILE" in broken.stdout
    assert doctor.returncode == 1
    findings = [each for each in json.loads(doctor.stdout)["findings"] if each["name"] == "store check"]
    assert "is empty" in findings[0]["said"]
    assert json.loads(restored.stdout)["rows"]["batch_items"] == 3
    assert json.loads(copied.stdout)["rows"]["batch_items"] == 3
    assert proctor("store", "check", *at).returncode == 0
    assert proctor("store", "check", "--store", "nothing.db").returncode == 2
    assert not (tmp_path / "nothing.db").exists()


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
def test_old_runs_are_pruned_or_only_their_texts(url, tmp_path, proctor: Command):
    keys = Keys(signing=SigningKeyFile(tmp_path / "home" / "signing.key"))
    with Store(url, keys) as store:
        fill(store, "old")
        fill(store, "new")
        with closing(store.database.connect()) as connection:
            connection.run(
                'UPDATE "batches" SET "finishedAt" = ? WHERE "runId" = ?', ("2020-01-01T00:00:00.000Z", "old")
            )
            connection.run('DELETE FROM "signatures" WHERE "runId" = ? AND "position" > 3', ("old",))
    at = ("--older-than", "90d", "--json", "--store", url)

    sizes = json.loads(proctor("runs", "--size", "--json", "--store", url).stdout)["runs"]
    planned = json.loads(proctor("prune", "--dry-run", *at).stdout)
    texts = json.loads(proctor("prune", "--keep-scores", "--yes", *at).stdout)
    with Store(url, keys) as store:
        messages = query(store, 'SELECT "sessionId" FROM "messages"')
        scores = query(store, 'SELECT "value" FROM "scores"')
        assert not store.check_signatures("old", NOW).changed
    whole = json.loads(proctor("prune", "--yes", *at).stdout)
    with Store(url) as store:
        assert [row["runId"] for row in store.read.batches(NOW)] == ["new"]
        assert len(query(store, 'SELECT "digest" FROM "blobs"')) == 1

    assert min(each["bytes"] for each in sizes) > 100
    assert [each["runId"] for each in planned["runs"]] == ["old"]
    assert (planned["dryRun"], planned["freedBytes"]) == (True, None)
    assert texts["keepScores"]
    assert {row["sessionId"][:3] for row in messages} == {"new"}
    assert len(scores) == 6
    assert [each["runId"] for each in whole["runs"]] == ["old"]
    assert proctor("prune", "--older-than", "soon", "--yes", "--store", url).returncode == 2


def test_a_store_is_not_restored_from_itself_or_from_another_database(tmp_path, filled):
    with pytest.raises(UsageError, match="is the store itself"):
        restore(tmp_path / "proctor.db", filled, NOW, force=True)
    with sqlite3.connect(tmp_path / "other.db") as raw:
        raw.execute("CREATE TABLE t (a)")
    raw.close()
    with pytest.raises(StoreError, match=r"other\.db is not a store of this version"):
        restore(tmp_path / "other.db", str(tmp_path / "new.db"), NOW)
    newer = tmp_path / "newer.db"
    back_up(filled, newer)
    with sqlite3.connect(newer) as raw:
        raw.execute('UPDATE "schema_version" SET "version" = 1000')
    raw.close()
    with pytest.raises(StoreError, match="is not a store of this version"):
        restore(newer, str(tmp_path / "new.db"), NOW)
    assert not (tmp_path / "new.db").exists()


def test_a_backup_replaces_another_only_when_told(tmp_path, filled):
    copy = tmp_path / "copy.db"
    copy.write_text("old")
    (tmp_path / ".copy.db.new").write_text("left behind")
    assert back_up(filled, copy, force=True).rows["batch_items"] == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.db", "proctor.db"]


def test_a_missing_store_whose_log_is_there_is_set_aside_with_it(tmp_path):
    url = tmp_path / "proctor.db"
    with Store(str(tmp_path / "a.db")) as store:
        fill(store)
    back_up(str(tmp_path / "a.db"), tmp_path / "copy.db")
    log = tmp_path / "proctor.db-wal"
    log.write_text("changes")
    with pytest.raises(UsageError, match="already a store"):
        restore(tmp_path / "copy.db", str(url), NOW)
    result = restore(tmp_path / "copy.db", str(url), NOW, force=True)
    assert Path(f"{result.kept_aside}-wal").read_text() == "changes"
    assert check_store(str(url), Keys(), NOW).is_ok


def test_a_run_that_is_writing_prevents_a_restore_and_one_of_a_dead_process_does_not(url, tmp_path):
    with Store(url) as store:
        fill(store)
        back_up(url, tmp_path / "copy.db")
        owned = {"createdAt": "x", "job": "coding", "status": "running", "owner": "elsewhere:1:1:x"}
        for run_id, beat in (("none", None), ("old", "2026-11-15T23:59:00.000Z")):
            store.create_batch(owned | {"runId": run_id, "heartbeatAt": beat}, [])
        lately = {"heartbeatAt": "2026-11-15T23:59:59.000Z"}
        store.create_batch(owned | {"runId": "done", "status": "completed"} | lately, [])
        for writing in (lately, {"owner": this_process()}):
            store.create_batch(owned | {"runId": "live"} | writing, [])
            with pytest.raises(UsageError, match="run live is writing"):
                restore(tmp_path / "copy.db", url, NOW, force=True)
            store.delete_batch("live")
    assert restore(tmp_path / "copy.db", url, NOW, force=True).rows["batches"] == 1


def test_a_check_that_cannot_open_or_read_the_store_says_why(url, tmp_path):
    (tmp_path / "proctor.db").write_text("text " * 1000)
    (problem,) = check_store(url, Keys(), NOW).problems
    assert "is not a SQLite database" in problem.what and "restore" in problem.remedy
    (tmp_path / "proctor.db").unlink()
    with Store(url) as store:
        fill(store)
        for sql in ('DROP TABLE "questions"', 'DROP TABLE "merge_history"'):
            with closing(store.database.connect()) as connection:
                connection.run(sql)
    check = check_store(url, Keys(), NOW)
    whats = [problem.what for problem in check.problems]
    assert "questions cannot be read: store error: no such table: questions" in whats
    assert "a table cannot be read: store error: no such table: merge_history" in whats
    assert "questions" not in check.rows and check.rows["messages"] == 3
    with pytest.raises(StoreError, match="no such table"):
        copy_store(url, str(tmp_path / "strict.db"))
    saved = copy_store(url, str(tmp_path / "saved.db"), skip_damaged=True)
    assert saved.skipped["questions"] == "the table is missing"
    assert (saved.rows["questions"], saved.rows["messages"]) == (0, 3)


def test_what_a_locked_store_could_not_be_checked_for_is_remarked(url):
    with Store(url, KEYS) as store:
        fill(store)
        writer = store.writer()
        writer.change("batches", ("run",), {"optionsJson": '{"a": 1}'})
        writer.close()
    notes = check_store(url, Keys(), NOW).notes
    assert "batches: encrypted with a key that is not available; JSON is not checked" in notes
    assert "blobs: encrypted with a key that is not available; long texts are not checked" in notes
    assert check_store(url, KEYS, NOW).notes == []


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
def test_the_check_names_missing_texts_sessions_and_unreadable_json_with_some_examples(url):
    with Store(url) as store:
        for number in range(3):
            fill(store, f"run{number}")
        with closing(store.database.connect()) as connection:
            connection.run('UPDATE "batch_items" SET "sessionId" = "id"')
            connection.run('UPDATE "sessions" SET "notes" = \'{\'')
            connection.run('UPDATE "batches" SET "optionsJson" = \'{\' WHERE "runId" = \'run1\'')
            connection.run('UPDATE "blobs" SET "size" = "size" + 1')

    check = check_store(url, Keys(), NOW)

    problems = {problem.what: problem for problem in check.problems}
    assert {what: (problem.count, len(problem.examples)) for what, problem in problems.items()} == {
        "batch_items without session": (9, 5),
        "sessions with unreadable JSON": (9, 5),
        "batches with unreadable JSON": (1, 1),
        "long texts that are damaged": (1, 1),
    }
    assert problems["batches with unreadable JSON"].examples == ["run1"]
    assert all("proctor store restore" in problem.remedy for problem in check.problems)
    assert check.notes == ["3 runs with results that are not signed (older, or imported)"]
    for sql, what in (
        ('UPDATE "blobs" SET "size" = "size" - 1, "digest" = \'other\'', "long texts that are damaged"),
        ('DELETE FROM "blobs"', "messages without long text"),
    ):
        with Store(url) as store, closing(store.database.connect()) as connection:
            connection.run(sql)
        assert what in {problem.what for problem in check_store(url, Keys(), NOW).problems}


def test_a_store_that_is_not_there_is_not_backed_up_and_one_with_rows_is_not_copied_to(tmp_path, filled):
    missing = str(tmp_path / "none.db")
    for attempt in (
        lambda: back_up(missing, tmp_path / "copy.db"),
        lambda: copy_store(missing, str(tmp_path / "copy.db")),
        lambda: restore(tmp_path / "none.db", str(tmp_path / "other.db"), NOW),
    ):
        with pytest.raises(UsageError, match=r"there is no (store at|backup) .*none\.db"):
            attempt()
    assert [path.name for path in tmp_path.iterdir()] == ["proctor.db"]
    Store(missing).close()
    with pytest.raises(UsageError, match=r"proctor\.db is not empty \(table batches\)"):
        copy_store(missing, filled)
