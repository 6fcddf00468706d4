"""The lines of the documents run unchanged beside `proctor shims`."""

import subprocess
import sys


def run(folder, *words: str) -> str:
    done = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_scripts_for_earlier_frameworks_run_unchanged(proctor, talking_desk) -> None:
    assert proctor("shims").returncode == 0
    more = ("--model", "scripted/talking", "--num_runs", "1", "--max_turns", "1", "--output_dir", "out")
    script = "from patienthub.utils.export import load_sessions; from batch_analyzer import BatchAnalyzer"

    run(
        talking_desk, "-m", "examples.batch_simulate", "--clients", "patientPsi", "--therapists", "CBT", *more
    )
    run(
        talking_desk,
        "-m",
        "examples.export",
        "--input_dir",
        "out",
        "--output",
        "messages.csv",
        "--level",
        "turn",
    )

    assert "content" in (talking_desk / "messages.csv").read_text()
    run(talking_desk, "src/batch_runner.py", "--help")
    assert run(talking_desk, "-c", f"{script}; print(len(load_sessions('out')))").strip() == "1"


def test_no_file_of_another_package_is_replaced(proctor, talking_desk) -> None:
    (talking_desk / "patienthub").mkdir()
    (talking_desk / "patienthub" / "__init__.py").write_text("real = True\n")

    done = proctor("shims")

    assert (done.returncode, "is not a shim of Proctor" in done.stderr) == (2, True)
    assert not (talking_desk / "examples").exists()
