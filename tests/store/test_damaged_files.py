"""A store file that is empty, damaged or something else is refused with its name, the problem and the fix."""

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from commands import Command
from proctor.store import Store

COMMANDS = [
    ("show", "run"),
    ("report", "--run", "run"),
    ("export", "--run", "run", "--out", "out"),
    ("abort-run", "run"),
    ("delete", "run", "--yes"),
    ("encryption", "status"),
    ("resume", "run"),
    ("runs",),
    ("batch", "plan.yaml"),
]
PLAN = """
runId: run
defaults: {model: scripted/echo}
matrix: [{prompt: hello}]
"""
FIX = ("--store", "proctor store restore", "proctor store copy", "delete", "Name a file")


def _batch(run_id: str) -> dict[str, object]:
    created = "2026-01-01T00:00:00.000Z"
    row = {"runId": run_id, "createdAt": created, "job": "coding", "status": "completed"}
    return row | {"planText": "x" * 4000}


def _filled(path: Path) -> None:
    with Store(str(path)) as store:
        for number in range(40):
            store.create_batch(_batch(f"run{number}"), [])


def _truncate(path: Path) -> None:
    _filled(path)
    os.truncate(path, path.stat().st_size // 2)


def _overwrite_first_page(path: Path) -> None:
    _filled(path)
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 3000)


def _write_other_tables(path: Path) -> None:
    raw = sqlite3.connect(path, isolation_level=None)
    for name in "dcba":
        raw.execute(f"CREATE TABLE {name} (x)")
    raw.close()


DAMAGES = {
    "empty": (lambda path: path.write_bytes(b""), "is empty (0 bytes)"),
    "text": (
        lambda path: path.write_text("long enough " * 100),
        "is not a store: it is not a SQLite database",
    ),
    "truncated": (_truncate, "is damaged"),
    "overwritten": (_overwrite_first_page, "is damaged"),
    "folder": (lambda path: path.mkdir(), "is a folder"),
    "only a log": (
        lambda path: path.with_name(f"{path.name}-wal").write_bytes(b"x" * 5000),
        "is missing, but its write-ahead log broken.db-wal is there",
    ),
    "another program": (
        _write_other_tables,
        "is not a store: it is a SQLite database with other tables (a, b, c)",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_no_command_takes_a_damaged_file_for_a_new_store(name, tmp_path, proctor: Command):
    store = tmp_path / "broken.db"
    damage, problem = DAMAGES[name]
    damage(store)
    (tmp_path / "plan.yaml").write_text(PLAN)
    before = {path.name: path.stat().st_size for path in tmp_path.glob("broken.db*")}

    for command in COMMANDS if name == "empty" else COMMANDS[-1:]:
        result = proctor(*command, "--store", str(store))
        assert result.returncode == 2, (command, result)
        assert "Traceback" not in result.stderr, command
        assert f"broken.db {problem}" in result.stderr, (command, result.stderr)
        assert any(fix in result.stderr for fix in FIX), (command, result.stderr)

    after = {path.name: path.stat().st_size for path in tmp_path.glob("broken.db*")}
    assert {name: after[name] for name in before} == before


SCHEMA_PAGES = 120
"""Pages at the beginning of a new store: the schema, and the first page of each table and index."""


def test_a_page_that_was_overwritten_is_reported_when_it_is_read(tmp_path, proctor: Command):
    _filled(tmp_path / "proctor.db")
    with (tmp_path / "proctor.db").open("r+b") as file:
        # Leave the first pages, which hold the schema.
        file.seek(4096 * SCHEMA_PAGES)
        file.write(b"\xee" * ((tmp_path / "proctor.db").stat().st_size - 4096 * SCHEMA_PAGES))

    result = proctor("runs", "--limit", "1000", "--store", str(tmp_path / "proctor.db"))

    assert result.returncode == 3
    assert "is damaged" in result.stderr
    assert "proctor store check" in result.stderr


def test_a_value_that_was_overwritten_is_reported_without_a_traceback(tmp_path, proctor: Command):
    store = tmp_path / "proctor.db"
    _filled(store)
    raw = sqlite3.connect(store, isolation_level=None)
    raw.execute(
        'UPDATE "batches" SET "createdAt" = ?, "optionsJson" = ? WHERE "runId" = ?', ("x", "{", "run1")
    )
    raw.execute('UPDATE "batches" SET "optionsJson" = ? WHERE "runId" = ?', ("{", "run2"))
    raw.close()

    for command, code in ((("show", "run1"), 3), (("resume", "run2"), 2)):
        result = proctor(*command, "--store", str(store))
        assert result.returncode == code
        assert "Traceback" not in result.stderr
        assert "cannot be read" in result.stderr, result.stderr


def test_files_are_private_whatever_the_umask(tmp_path):
    program = (
        "import os, sys; os.umask(0); from proctor.bootstrap import open_context\n"
        "with open_context(home=sys.argv[1]) as ctx:\n"
        "    ctx.store.create_batch({'runId': 'a', 'createdAt': 'x', 'job': 'coding', 'status': 'x'}, [])\n"
        "    print(*sorted(oct(os.stat(os.path.join(sys.argv[1], n)).st_mode)[-3:] for n in "
        "os.listdir(sys.argv[1])), oct(os.stat(sys.argv[1]).st_mode)[-3:])"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PROCTOR_")}

    result = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "new" / "home")],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )

    *files, home = result.stdout.split()
    assert home == "700"
    assert len(files) >= 3
    assert set(files) == {"600"}


needs_bubblewrap = pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")


def _read_only(folder: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    """Run a command of Proctor where the folder cannot be written, not even by root."""
    program = ["bwrap", "--dev-bind", "/", "/", "--ro-bind", str(folder), str(folder)]
    return subprocess.run(
        [*program, sys.executable, "-m", "proctor", *command, "--home", str(folder)],
        capture_output=True,
        text=True,
        cwd=folder,
    )


@needs_bubblewrap
def test_a_read_only_home_can_be_read_and_refuses_changes(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    _filled(home / "proctor.db")

    listed = _read_only(home, "runs", "--json")
    deleted = _read_only(home, "delete", "run1", "--yes")

    assert listed.returncode == 0, listed.stderr
    assert listed.stdout.count('"runId"') == 40
    assert deleted.returncode == 3
    assert "is read-only here" in deleted.stderr
    assert sorted(path.name for path in home.iterdir()) == ["proctor.db"]


@needs_bubblewrap
def test_a_read_only_home_is_read_with_the_log_of_a_killed_process(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    _filled(tmp_path / "other.db")
    with Store(str(tmp_path / "other.db")) as store:
        store.create_batch(_batch("last"), [])
        for suffix in ("", "-wal", "-shm"):
            shutil.copyfile(tmp_path / f"other.db{suffix}", home / f"proctor.db{suffix}")

    shown = _read_only(home, "show", "last")
    (home / "proctor.db-shm").unlink()
    without_index = _read_only(home, "show", "last")

    assert shown.returncode == 0, shown.stderr
    assert "holds changes that are not in the file" in without_index.stderr


@needs_bubblewrap
def test_a_read_only_store_of_an_earlier_version_says_that_it_needs_a_migration(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    _filled(home / "proctor.db")
    raw = sqlite3.connect(home / "proctor.db", isolation_level=None)
    raw.execute('UPDATE "schema_version" SET "version" = 3')
    raw.close()

    result = _read_only(home, "runs")

    assert result.returncode == 2
    assert "written by an earlier Proctor (version 3" in result.stderr
