"""`proctor rank`, `proctor power` and `proctor report --format json`, of runs and of files of results."""

import csv
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from commands import Command

RANK = {"name", "value", "sem", "low", "high", "rank", "rankLow", "rankHigh", "tasks", "runs", "note"}
GOOD, POOR = ["11"] * 12, ["10"] * 4 + ["00"] * 8


def rows_of(model: str, tasks: Sequence[str], **more: object) -> list[dict[str, object]]:
    statuses = {"1": "success", "0": "fail", "e": "error"}
    return [
        {"task": f"t{task}", "model": model, "repeat": number, "status": statuses[letter], **more}
        for task, letters in enumerate(tasks)
        for number, letter in enumerate(letters, 1)
    ]


def write(path: Path, rows: Sequence[Mapping[str, object]]) -> str:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return str(path)


@pytest.fixture
def table(proctor: Command) -> str:
    """A file with two models, twelve tasks, two repeats."""
    return write(proctor.folder / "results.csv", rows_of("good", GOOD) + rows_of("poor", POOR))


@pytest.fixture
def imported(proctor: Command, table: str) -> str:
    """The same as a run."""
    done = proctor("import", "table", table, "--run", "board")
    assert done.returncode == 0, done.stderr
    return "board"


def document(done: Any) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_file_and_the_run_it_was_imported_to_rank_alike(proctor, table, imported):
    from_file = document(proctor("rank", table, "--json"))
    from_run = document(proctor("rank", imported, "--json"))

    assert from_file == from_run
    assert [set(row) for row in from_file] == [RANK, RANK]
    good, poor = from_file
    assert (good["name"], good["value"], good["tasks"], good["runs"]) == ("good", 1.0, 12, 24)
    assert (good["rank"], good["rankLow"], good["rankHigh"]) == (1, 1, 1)
    assert (poor["rank"], poor["rankLow"], poor["rankHigh"]) == (2, 2, 2)
    assert poor["value"] == pytest.approx(2 / 12)
    # s / sqrt(T) of four task means of 1/2 and eight of 0.
    assert poor["sem"] == pytest.approx(0.0710669, abs=1e-6)
    assert poor["low"] < poor["value"] < poor["high"]


def test_the_terminal_shows_both_orders_and_the_errors_beside_the_rate(proctor: Command) -> None:
    rows = rows_of("honest", ["11"] * 8 + ["00"] * 2) + rows_of("crashing", ["11"] * 5 + ["ee"] * 5)
    done = proctor("rank", write(proctor.folder / "r.csv", rows))

    assert done.returncode == 0, done.stderr
    head, first, second = done.stdout.splitlines()[:3]
    assert "ERRORS AS FAILURES" in head and "PASS^2" in head and "RANK BY PASS^2" in head
    assert "crashing" in first and "100%" in first and "50%" in first
    assert "honest" in second and "80%" in second
    assert "errors decide the order" in done.stderr
    assert "tasks like these" in done.stderr


def test_ranking_by_cost_puts_the_cheaper_one_first(proctor: Command) -> None:
    rows = []
    for task in range(10):
        rows += [{"task": f"t{task}", "model": "dear", "success": 1, "cost": 2.0 + 0.1 * task}]
        rows += [{"task": f"t{task}", "model": "cheap", "success": 1, "cost": 0.2 + 0.013 * task}]
    path = write(proctor.folder / "r.csv", rows)
    ranked = document(proctor("rank", path, "--metric", "cost", "--json"))

    assert [(row["name"], row["rankHigh"]) for row in ranked] == [("cheap", 1), ("dear", 2)]


def test_power_says_the_tasks_that_a_difference_needs(proctor: Command, table: str, imported: str) -> None:
    answer = document(proctor("power", "--baseline", table, "--detect", "0.2", "--json"))
    of_run = document(proctor("power", "--baseline", imported, "--detect", "0.2", "--json"))

    assert answer["designs"] == of_run["designs"]
    assert answer["tasks"] == 12
    assert [each["repeats"] for each in answer["designs"]] == [1, 3, 5, 10]
    needed = [each["tasks"] for each in answer["designs"]]
    assert needed == sorted(needed, reverse=True)
    half = document(proctor("power", "--baseline", table, "--detect", "0.1", "--json"))
    # Half the difference takes about four times the tasks.
    assert half["designs"][0]["tasks"] > 3 * needed[0]
    assert 0 < answer["detectable"] < 1


def test_the_json_report_has_pass_at_k_overall_and_for_each_level(proctor: Command, imported: str) -> None:
    report = document(proctor("report", "--run", imported, "--format", "json"))

    assert report["runId"] == imported
    assert report["counts"] == {"success": 28, "fail": 20, "timeout": 0, "error": 0}
    levels = report["factors"]["model"]["levels"]
    for part in (report, levels["good"], levels["poor"]):
        for name in ("passAtK", "passHatK"):
            assert [each["k"] for each in part[name]] == [1, 2]
            assert all({"k", "value", "sem", "low", "high"} <= set(each) for each in part[name])
    assert [each["value"] for each in levels["poor"]["passAtK"]] == [
        pytest.approx(1 / 6),
        pytest.approx(1 / 3),
    ]
    assert [each["value"] for each in levels["poor"]["passHatK"]] == [pytest.approx(1 / 6), 0.0]
    assert levels["good"]["success"]["scope"] == "tasks like these"
    assert [each["name"] for each in report["factors"]["model"]["ranks"]] == ["good", "poor"]
    assert report["flakyTaskCount"] == 4
    assert {task["by"] for task in report["flakyTasks"]} == {"poor"}
    assert report["paretoFront"] == ["good"]
    rank = document(proctor("rank", imported, "--json"))
    # One number, one interval, wherever it stands.
    assert rank[0]["low"] == levels["good"]["success"]["low"]
    assert rank[1]["high"] == levels["poor"]["success"]["high"]


def _scored(rows: Sequence[dict[str, object]], score: str, cost: str) -> list[dict[str, object]]:
    return [{**row, "score": score, "cost": cost} for row in rows]


DEGENERATE = {
    "one item": rows_of("a", ["1"]),
    "all equal": _scored(rows_of("a", ["11"] * 7) + rows_of("b", ["11"] * 7), "0.5", "0.1"),
    "all errors": rows_of("a", ["e"] * 7) + rows_of("b", ["e"] * 7),
    "one cluster": rows_of("a", ["1010101010"]) + rows_of("b", ["0101010101"]),
    "missing cells": rows_of("a", ["1", "", "0", "", "1", "0"]) + rows_of("b", ["", "1", "0", "1", "", ""]),
    "NaN": _scored(rows_of("a", ["1"] * 7) + rows_of("b", ["1"] * 7), "nan", "0.1"),
    "the smallest numbers": _scored(
        rows_of("a", ["1", "0"] * 4) + rows_of("b", ["1"] * 8), "3e-320", "5e-320"
    ),
    "the largest numbers": _scored(rows_of("a", ["1", "0"] * 4) + rows_of("b", ["1"] * 8), "1e12", "1e12"),
}


@pytest.mark.parametrize("kind", DEGENERATE)
def test_degenerate_results_give_words_and_no_interval_without_width(proctor: Command, kind: str) -> None:
    table = write(proctor.folder / "results.csv", DEGENERATE[kind])
    assert proctor("import", "table", table, "--run", "odd").returncode == 0
    is_comparable = kind != "one item"

    for words, code in (
        (["compare", "odd", "--by", "model", "--gate", "success>=-0.05"], 4 if is_comparable else 2),
        (["rank", "odd"], 0),
        (["rank", "odd", "--metric", "cost"], 0),
        (["report", "--run", "odd", "--format", "md"], 0),
        (["power", "--baseline", "odd", "--detect", "0.05"], 0),
    ):
        done = proctor(*words)
        text = done.stdout + done.stderr
        assert done.returncode == code, (words, text)
        assert "Traceback" not in text and "Warning" not in text and "nan" not in text, (words, text)
        assert not re.search(r"(\S*\d\S*) to \1(?!\S)", text), (words, text)


def test_runs_of_a_single_task_are_counted_as_runs_and_spoken_of_as_runs(proctor: Command) -> None:
    write(proctor.folder / "one.csv", DEGENERATE["one cluster"])
    proctor("import", "table", "one.csv", "--run", "one")

    done = proctor("compare", "one", "--by", "model", "--gate", "success>=-0.05")
    page = proctor("compare", "one", "--by", "model", "--format", "md").stdout

    assert done.returncode == 4
    assert "RUNS" in done.stdout and "TASKS" not in done.stdout and "10 + 10" in done.stdout
    assert "10 runs: fewer than 72" in done.stdout and "10 tasks" not in done.stdout
    assert "generalize to further runs of this task" in page and "tasks like these" not in page


def test_sides_that_do_not_pair_have_the_number_of_tasks_of_each(proctor: Command) -> None:
    rows = rows_of("a", ["1", "0"] * 4) + [
        {**row, "task": f"other {row['task']}"} for row in rows_of("b", ["1"] * 9)
    ]
    write(proctor.folder / "apart.csv", rows)
    proctor("import", "table", "apart.csv", "--run", "apart")

    for form in ("text", "md", "html"):
        assert "8 + 9" in proctor("compare", "apart", "--by", "model", "--format", form).stdout


def test_items_without_what_is_ranked_are_named_with_what_they_could_be_ranked_by(proctor, imported):
    folder = proctor.folder / "theirs"
    folder.mkdir()
    write(folder / "theirs.csv", [{"task": f"t{n}", "agent": "x", "success": n % 2} for n in range(12)])

    done = proctor("rank", imported, "theirs")

    assert "note: theirs: 12 items without model are not ranked; all of its items have: " in done.stderr
    assert "agent, run (--by)" in done.stderr
    assert [each["name"] for each in document(proctor("rank", imported, "theirs", "--by", "run", "--json"))]
    assert "not ranked" not in proctor("rank", imported).stderr
