"""A store that cannot be written: the cause and the fix, as the command line prints them."""

import resource
import subprocess
import sys

PLAN = "{runId: full, concurrency: 4, matrix: [{prompt: hello, model: scripted/echo, runs: 3000}]}"


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
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, 2 << 20)),
    )

    assert started.returncode == 3, started.stderr
    assert "cannot be written: its disk is full" in started.stderr
    assert "then resume the run: proctor resume RUN" in started.stderr
    assert "Traceback" not in started.stderr
    resumed = proctor("resume", "full")
    assert resumed.returncode == 0, resumed.stderr
