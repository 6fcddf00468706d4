"""Tasks in rows: HumanEval, MBPP, SWE-bench, and plain datasets."""

import gzip
import json
import time
from pathlib import Path

import pytest

from proctor.errors import PlanError, UsageError
from proctor.tasks import rows
from proctor.tasks.formats import read_task_set


def test_a_thousand_rows_load_in_a_second(tmp_path: Path) -> None:
    rows = [{"task_id": f"Own/{number}", "prompt": f"Say {number}", "answer": "x"} for number in range(1000)]
    file = tmp_path / "own.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))

    # Of this process: others on the machine must not decide.
    started = time.process_time()
    found = read_task_set(file)

    assert len(found.tasks) == 1000
    assert time.process_time() - started < 1


def test_parquet_rows_are_read_like_lines(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    file = tmp_path / "rows.parquet"
    duckdb.connect().execute(
        f"COPY (SELECT 'Say OK' AS prompt, 'OK' AS expected) TO '{file}' (FORMAT parquet)"
    )

    (task,) = read_task_set(file).tasks

    assert (task.prompt, task.expect) == ("Say OK", {"equals": "OK"})


def test_a_file_that_is_no_utf8_is_refused_at_its_line(tmp_path: Path) -> None:
    file = tmp_path / "words.jsonl"
    file.write_bytes('{"prompt": "one"}\n{"prompt": "two"}\n{"prompt": "café"}\n'.encode("latin-1"))

    with pytest.raises(PlanError) as error:
        read_task_set(file)

    assert str(error.value).startswith(f"{file}:3:1: this is no UTF-8\n")
    assert "Save the file as UTF-8 text." in str(error.value)


# White box: a file of the real limit would be too large for a test.
def test_every_row_of_a_large_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans have at most 16 MiB; datasets may be larger, up to a limit that is told."""
    file = tmp_path / "large.jsonl"
    row = json.dumps({"prompt": "x" * 6_000_000, "answer": "1"})
    file.write_text(f"{row}\n" * 3)

    assert len(read_task_set(file).tasks) == 3

    monkeypatch.setattr(rows, "MOST_BYTES", 17 << 20)
    with pytest.raises(UsageError) as error:
        read_task_set(file)
    assert str(error.value) == f"{file} is larger than 17 MiB\nGive a part of it."


@pytest.mark.parametrize(
    "content", [b"\x1f\x8bnope", b"no gzip at all", gzip.compress(b"{}", mtime=0)[:-9] + b"123456789"]
)
def test_a_damaged_packed_file_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "rows.jsonl.gz"
    file.write_bytes(content)

    with pytest.raises(UsageError) as error:
        read_task_set(file)

    first, remedy = str(error.value).split("\n")
    assert first.startswith(f"cannot read {file}: ") and remedy == "Give a file of tasks."


@pytest.mark.parametrize(
    ("repo", "files", "command"),
    [
        (
            "django/django",
            ["tests/queries/models.py", "tests/queries/test_qs.py", "tests/queries/tests.py"],
            "env PYTHONPATH=. python3 tests/runtests.py --verbosity 2 --settings=test_sqlite --parallel 1 "
            "queries.test_qs queries.tests > ",
        ),
        (
            "django/django",
            [],
            "env PYTHONPATH=. python3 tests/runtests.py --verbosity 2 --settings=test_sqlite --parallel 1 "
            "queries.tests > ",
        ),
        (
            "sympy/sympy",
            ["sympy/core/tests/test_args.py"],
            "python3 bin/test -C --verbose --no-colors sympy/core/tests/test_args.py > ",
        ),
        ("o/n", ["tests/test_a.py"], "python3 -m pytest -p no:cacheprovider -q --junitxml="),
    ],
)
def test_rows_of_swe_bench_are_checked_by_the_runner_of_their_repository(tmp_path, repo, files, command):
    (tmp_path / repo).mkdir(parents=True)
    row = {
        "instance_id": "x-1",
        "repo": repo,
        "base_commit": "c",
        "problem_statement": "Fix it",
        "FAIL_TO_PASS": '["test_a (queries.tests.Case)", "test_b (queries.tests.Case.test_b)"]',
        "test_patch": "".join(f"--- a/{file}\n+++ b/{file}\n" for file in files),
    }
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(row))

    (task,) = read_task_set(file).tasks

    assert task.commands[0].command.startswith(command)
