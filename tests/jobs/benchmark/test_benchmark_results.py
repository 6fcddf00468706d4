"""Result files of a benchmark are written, read back, imported, and compared."""

import csv
import json
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from proctor.batch.lifecycle import create
from proctor.errors import NotFound, UsageError
from proctor.item import Item
from proctor.jobs.benchmark import results
from proctor.jobs.benchmark.leaderboard import compare
from proctor.jobs.benchmark.report import benchmark_html, grid_of, machine_info, machine_text, rank_text
from proctor.jobs.benchmark.results import (
    document_of,
    find_earlier,
    import_runs,
    new_run_id,
    read_results,
    requeue,
    result_of,
    write_comparison,
)
from proctor.store import Store
from recorded_files import check

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def item(task: str, model: str, repeat: int = 1) -> Item:
    factors = {"task": task, "model": model}
    return Item(
        runner="benchmark", prompt=task, agent="scripted", model=model, factors=factors, repeat=repeat
    )


ITEMS = [item(task, model) for task in ("sum", "sort") for model in ("a/x", "b/y")]


def run(of: Item, **changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "item_id": of.id,
        "model": of.model,
        "task": of.factors["task"],
        "status": "success",
        "reason": "completed",
        "timestamp": "2026-03-01T11:00:10.000Z",
        "session_id": f"{of.id}ab",
        "agent": "scripted",
        "run": 1,
        "prompts_sent": 3,
        "human_interventions": 1,
        "files_modified": 2,
        "lines_added": 5,
        "lines_removed": 4,
        "tool_calls": 6,
        "prompt_tokens": 70,
        "completion_tokens": 8,
        "total_tokens": 78,
        "unpriced_calls": 0,
        "attempts": 1,
        "completion_time": 9.0,
        "wall_time": 10.0,
        "cost_usd": 0.25,
        "criteria": [{"criterion": "works", "passed": True, "explanation": "yes"}],
    }
    return {**values, **changes}


@pytest.fixture
def store(proctor_store: Store) -> Store:
    add_run(proctor_store, "benchmark", ITEMS, "b1")
    return proctor_store


def add_run(store: Store, job: str, items: list[Item], run_id: str) -> None:
    create(store, job, {"concurrency": 1}, iter(items), run_id=run_id, owner="o", version="0", now=NOW)


def test_runs_of_a_folder_are_imported_once_and_errors_are_repeated(store: Store) -> None:
    first, second, third, _ = ITEMS
    broken = [{"criterion": "expect.contains", "passed": False}, {"criterion": "open", "passed": None}, 3]
    failed = run(
        second,
        status="fail",
        reason="checks_failed",
        error="no",
        criteria=broken,
        session_id="x",
        unchecked=True,
    )
    runs = [run(first), failed, run(third, status="error"), run(first, item_id="foreign")]
    assert import_runs(store, "b1", runs, "folder") == 2
    assert import_runs(store, "b1", runs, "folder") == 0
    rows = {row["id"]: row for row in store.read.items("b1", limit=10)}
    assert [rows[each.id]["status"] for each in ITEMS] == ["success", "fail", "queued", "queued"]
    row = rows[first.id]
    assert (row["tokensTotal"], row["toolCalls"], row["costUsd"]) == (78, 6, 0.25)
    assert row["sessionId"] == f"{first.id}ab"
    assert row["startedAt"].startswith("2026-03-01T11:00:00")
    assert row["finishedAt"].startswith("2026-03-01T11:00:10")
    session = store.read.session(f"{first.id}ab")
    assert (session["workSeconds"], session["modelCalls"], session["interventions"]) == (9.0, 3, 1)
    assert (session["promptTokens"], session["completionTokens"], session["source"]) == (70, 8, "folder")
    assert json.loads(session["notes"]) == ["imported from folder, without its transcript"]
    scores = [
        (each["evaluator"], each["value"], each["label"])
        for each in store.read.of_session("scores", session["id"])
    ]
    assert scores == [("check: works", 1.0, "pass")]
    # An id that is not valid is replaced.
    other = rows[second.id]["sessionId"]
    assert other == f"{second.id}0000"
    kinds = [(each["evaluator"], each["label"]) for each in store.read.of_session("scores", other)]
    assert kinds == [("expect.contains", "fail"), ("unchecked", "")]
    (step,) = store.read.of_session("iterations", session["id"])
    assert (step["changedFiles"], step["linesAdded"], step["linesRemoved"]) == (2, 5, 4)


def test_finished_items_of_a_model_are_queued_again(store: Store) -> None:
    import_runs(store, "b1", [run(each) for each in ITEMS[:3]], "folder")
    assert requeue(store, "b1", ["a/x"]) == 2
    rows = {row["id"]: row["status"] for row in store.read.items("b1", limit=10)}
    assert [rows[each.id] for each in ITEMS] == ["queued", "success", "queued", "queued"]


def test_the_comparison_counts_and_lists_every_run(store: Store, tmp_path: Path) -> None:
    first, second, third, _ = ITEMS
    both = [{"criterion": "works", "passed": True}, {"criterion": "is fast", "passed": False}]
    runs = [
        run(first, criteria=both),
        run(second, status="timeout", cost_usd=None, wall_time=None),
        run(third, completion_time=11.0, cost_usd=0.75),
    ]
    import_runs(store, "b1", runs, "folder")
    comparison = compare(store.read, "b1", NOW)
    document = document_of(comparison, {"cpu": 1}, NOW)
    whole = {figures.name: result_of(comparison, figures) for figures in comparison.models}
    written = results.write_result(tmp_path / "new", "m_result.json", comparison, comparison.models[0])
    assert written == tmp_path / "new" / "m_result.json"
    assert json.loads(written.read_text()) == json.loads(json.dumps(whole[comparison.models[0].name]))
    write_comparison(tmp_path, comparison, {}, NOW)
    with (tmp_path / "comparison_report.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert json.loads((tmp_path / "comparison_report.json").read_text())["batch_id"] == "b1"
    assert not [file for file in tmp_path.iterdir() if file.name.endswith(".making")]
    page = benchmark_html(comparison, {}, NOW)
    assert "a/x" in page and "<script" not in page
    assert [*rows[0]] == list(results.COLUMNS)
    assert sorted((row["checks"], row["checks_passed"]) for row in rows) == [
        ("1", "1"),
        ("1", "1"),
        ("2", "1"),
    ]
    ranks = [rank_text(ranking, place) for ranking in comparison.rankings for place in ranking.places]
    # Their figures are those of the leaderboard.
    left_out = ("models", "ranks", "notes", "runs")
    files = {
        name: {key: value for key, value in each.items() if key not in left_out}
        for name, each in {"comparison": document, **whole}.items()
    }
    recorded = {**files, "grid": grid_of(comparison), "ranks": ranks}
    check(Path(__file__).parent / "recorded" / "comparison.txt", json.loads(json.dumps(recorded)))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"model": 3}, "`model` of a run is no text"),
        ({"session_id": None}, "`session_id` of a run is no text"),
        ({"run": -1}, "`run` of a run is no count"),
        ({"tool_calls": 1.0}, "`tool_calls` of a run is no count"),
        ({"attempts": True}, "`attempts` of a run is no count"),
        ({"cost_usd": "1"}, "`cost_usd` of a run is no number"),
        ({"wall_time": True}, "`wall_time` of a run is no number"),
        ({"timestamp": "yesterday"}, "`timestamp` of a run is no moment"),
        ({"status": "running"}, "a run has the status 'running', which is none"),
        ({"criteria": None}, "`criteria` of a run is no list"),
    ],
)
def test_a_damaged_result_file_is_renamed_with_its_problem(tmp_path, changes, problem):
    good = run(ITEMS[0], cost_usd=None, completion_time=3, run=0, timestamp="")
    (tmp_path / "good_result.json").write_text(json.dumps({"runs": [good]}))
    (tmp_path / "m_result.json").write_text(json.dumps({"runs": [{**good, **changes}]}))
    read = read_results(tmp_path)
    assert list(read.runs) == [good]
    (damaged,) = read.damaged
    assert (damaged.name, damaged.why, damaged.aside) == ("m_result.json", problem, "m_result.json.damaged")
    assert (tmp_path / damaged.aside).exists() and not (tmp_path / "m_result.json").exists()


@pytest.mark.parametrize(
    ("text", "problem"),
    [("[]", "lacks the list `runs`"), ('{"runs": 3}', "lacks the list"), ('{"runs": [3]}', "no object")],
)
def test_a_file_without_runs_is_damaged(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "m_result.json").write_text(text)
    assert problem in read_results(tmp_path).damaged[0].why


# White box: a file of the real limit would be too large for a test.
def test_a_file_that_is_too_large_is_damaged(tmp_path: Path, monkeypatch: Any) -> None:
    file = tmp_path / "m_result.json"
    file.write_text('{"runs": []}')
    monkeypatch.setattr(results, "LARGEST_RESULT_BYTES", file.stat().st_size)
    assert read_results(tmp_path).damaged == ()
    monkeypatch.setattr(results, "LARGEST_RESULT_BYTES", file.stat().st_size - 1)
    assert "larger than" in read_results(tmp_path).damaged[0].why


def test_an_earlier_benchmark_is_found_by_its_run_and_by_its_folder(store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    known = find_earlier(store, "b1", None)
    assert (known.run_id, known.path, known.is_known) == ("b1", None, True)
    folder = tmp_path / "moved"
    folder.mkdir()
    results.write_about(folder, "b1", {"plan": "x"})
    assert find_earlier(store, str(folder), None).path == folder
    assert json.loads((folder / "batch.json").read_text()) == {"batch_id": "b1", "format": 1, "plan": "x"}
    results.write_about(folder, "../elsewhere", {"plan": "x"})
    foreign = find_earlier(store, str(folder), None)
    assert (foreign.run_id, foreign.is_known, foreign.options["plan"]) == ("elsewhere", False, "x")
    with pytest.raises(NotFound, match=r"Did you mean b1\?"):
        find_earlier(store, "b11", None)
    add_run(store, "coding", ITEMS[:1], "c1")
    with pytest.raises(UsageError, match="c1 is not a benchmark"):
        find_earlier(store, "c1", None)


def test_a_new_run_is_named_by_its_time_and_numbered(store: Store, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert new_run_id(store, NOW) == "batch_20260301_120000"
    (results.RESULTS / "batch_20260301_120000").mkdir(parents=True)
    assert new_run_id(store, NOW) == "batch_20260301_120000_2"
    add_run(store, "coding", ITEMS[:1], "batch_20260301_120000_2")
    assert new_run_id(store, NOW) == "batch_20260301_120000_3"
    assert new_run_id(store, NOW + timedelta(seconds=1)) == "batch_20260301_120001"


@pytest.mark.parametrize(
    ("card", "ollama", "graphics", "version"),
    [
        (
            "echo 'Card 1, 24564, 550.1'; echo 'Card 2, 1, 2'",
            "echo ollama version is 0.5.1",
            {"nvidia": {"model": "Card 1", "memory_mb": 24564.0, "driver": "550.1"}},
            "0.5.1",
        ),
        ("echo 'Card 1, 24564'", "echo ollama version is 0.5.1; exit 1", None, None),
        ("exit 0", "", None, None),
    ],
)
def test_the_machine_its_graphics_card_and_its_ollama(tmp_path, monkeypatch, card, ollama, graphics, version):
    for name, text in (("nvidia-smi", card), ("ollama", ollama)):
        if text:
            (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
            (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    models = [f"m{number}" for number in range(12)]

    machine: Any = machine_info(NOW, tmp_path, models)

    assert (machine["gpu"], machine["timestamp"]) == (graphics, NOW.isoformat())
    assert machine["ollama"] == {"version": version, "models_count": 12, "models": models[:10]}
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    assert machine["memory"]["total_gb"] == pytest.approx(memory, abs=0.01)
    assert 0 < machine["memory"]["available_gb"] < memory
    disk = shutil.disk_usage(tmp_path)
    assert machine["disk"]["total_gb"] == pytest.approx(disk.total / 2**30, abs=0.01)
    assert 0 < machine["disk"]["free_gb"] <= machine["disk"]["total_gb"]
    assert machine["cpu"]["logical_cores"] == os.cpu_count()
    elsewhere: Any = machine_info(NOW, tmp_path / "lost")
    assert (elsewhere["disk"], elsewhere["ollama"]) == (None, None)


def test_the_machine_in_one_line() -> None:
    machine = {
        "system": {"hostname": "h", "platform": "Linux", "release": "6"},
        "cpu": {"model": "x", "logical_cores": 4},
        "memory": {"total_gb": 7.5},
        "gpu": {"nvidia": {"model": "card"}},
    }
    assert machine_text(machine) == "h · Linux 6 · x · 4 cores · 7.5 GB memory · card"
    assert machine_text({}) == ""


def test_a_success_that_nothing_checked_is_counted_apart(store: Store) -> None:
    first, second, third, _ = ITEMS
    import_runs(
        store, "b1", [run(first), run(second, reason="unchecked"), run(third, status="fail")], "folder"
    )

    document = document_of(compare(store.read, "b1", NOW), {}, NOW)

    assert [document[name] for name in ("successful", "unchecked", "failed")] == [1, 1, 1]
