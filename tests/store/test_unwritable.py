"""A store that cannot be written, or only in part: the cause and the fix, as the command line prints them."""

import resource
import subprocess
import sys
from pathlib import Path

from databases import query
from proctor.store import Store
from proctor.testing import eventually
from waiting import while_running

PLAN = "{runId: full, concurrency: 4, matrix: [{prompt: hello, model: scripted/echo, runs: 600}]}"


def test_a_full_disk_is_named_with_what_to_do_and_the_run_resumes(proctor):
    (proctor.folder / "plan.yaml").write_text(PLAN)
    started = subprocess.run(
        [sys.executable, "-m", "proctor", "batch", "plan.yaml", "--workers", "1"],
        cwd=proctor.folder,
        env=proctor.environment,
        capture_output=True,
        text=True,
        check=False,
        # As a full disk, for every file.
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)),
    )

    assert started.returncode == 3, started.stderr
    assert "cannot be written: its disk is full" in started.stderr
    assert "then resume the run: proctor resume RUN" in started.stderr
    assert "Traceback" not in started.stderr
    resumed = proctor("resume", "full")
    assert resumed.returncode == 0, resumed.stderr


MANY_ROWS = (
    'WITH RECURSIVE "n" ("i") AS (SELECT 1 UNION ALL SELECT "i" + 1 FROM "n" WHERE "i" < 50000) '
    'INSERT INTO "metrics" SELECT \'s\', "i", 0, \'speed\', 1.0, NULL FROM "n"'
)


def test_a_copy_that_is_killed_leaves_no_store(proctor):
    """An empty one would open, and its runs would seem never to have been made."""
    source, target = proctor.folder / "source.db", proctor.folder / "target.db"
    with Store(str(source)) as store:
        query(store, MANY_ROWS)
    process = proctor.start("store", "copy", str(source), str(target))
    eventually(while_running(process, lambda: any(proctor.folder.glob("*target.db*"))))
    process.kill()
    process.communicate()

    assert not target.exists()
    # Killed even earlier, while the empty store is made.
    (proctor.folder / "..target.db.new.123-456").touch()
    assert proctor("store", "copy", str(source), str(target)).returncode == 0
    assert [path.name for path in sorted(proctor.folder.glob("*target.db*"))] == ["target.db"]
    with Store(str(target)) as store:
        assert query(store, 'SELECT COUNT(*) AS "n" FROM "metrics"') == [{"n": 50_000}]


def test_a_run_that_was_killed_survives_the_loss_of_the_write_ahead_log(proctor):
    (proctor.folder / "slow.yaml").write_text("{latency_seconds: 60, rules: [{reply: hi}]}")
    (proctor.folder / "plan.yaml").write_text(
        "{runId: lost, matrix: [{prompt: hello, model: scripted/slow, runs: 3}]}"
    )
    process = proctor.start("batch", "plan.yaml")
    with proctor.open_store() as store:
        eventually(while_running(process, lambda: query(store, 'SELECT 1 FROM "sessions"')))
    process.kill()
    process.communicate()
    for name in ("proctor.db-wal", "proctor.db-shm"):
        (Path(proctor.environment["PROCTOR_HOME"]) / name).unlink(missing_ok=True)

    assert "lost" in proctor("runs").stdout
