"""The folder of an experiment is read run by run, whatever its files contain, and summed up."""

import csv
import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from proctor.errors import UsageError
from proctor.jobs.scenario.analysis import BatchAnalyzer, analysis_folder, around, cost_limits, read_study
from proctor.jobs.scenario.report import methods_paragraph, results_view
from recorded_files import check


def write(path: Path, document: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document))


def run(folder: Path, variation: int, repeat: int, trust: float | None, **changes: Any) -> Path:
    path = folder / "runs" / f"var-{variation:03d}-run-{repeat:03d}"
    turns = [
        {
            "started_at": "2026-01-01T00:00:00Z",
            "ended_at": "2026-01-01T00:00:02.5Z",
            "checks_run": 2,
            "issues": [1],
        },
        {"started_at": "2026-01-01T01:00:00Z", "ended_at": "2026-01-01T01:00:01Z", "checks_unread": 1},
        {"started_at": "2026-01-01T03:00:00Z", "ended_at": "2026-01-01T02:00:01Z"},
    ]
    state = {
        "status": "completed",
        "completed_turns": [1, 2],
        "turns": turns,
        "execution_metadata": {"seed": repeat},
    }
    write(path / "scenario-state.json", {**state, **changes.get("state", {})})
    final = {"trust": trust, "mood": "low", "huge": 1e200}
    by_turn = {"1": {"trust": 1}, "2": {"trust": trust}, "x": {"trust": 5}}
    metrics = {
        "final_metrics": final,
        "metrics_by_turn": by_turn,
        "metrics_definitions": {"trust": {"range": [0, 10]}, "tone": {"type": "string"}},
    }
    write(path / "metrics.json", changes.get("metrics", {**metrics, "scores": {"Help": repeat}}))
    write(
        path / "costs.json",
        {"total_cost": 0.5 * variation, "totals": {"total_tokens": 100}, **changes.get("costs", {})},
    )
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for variation in (1, 2):
        for repeat in (1, 2, 3):
            run(tmp_path, variation, repeat, 2.0 * variation + repeat)
    run(tmp_path, 1, 4, 9, state={"status": "completed"}, costs={"total_cost": None})
    run(tmp_path, 2, 4, 1, state={"status": "halted", "halt_reason": "validation_failed", "error": "odd"})
    failed = run(tmp_path, 2, 5, 1, state={"status": "running"})
    (failed / "metrics.json").write_text("{")
    (tmp_path / "runs" / "var-other").mkdir()
    variations = [
        {"variation_id": 1, "description": "low fee", "factors": {"fee": 1}},
        {"variation_id": 2, "description": "high fee", "modifications": {"a": {"fee": "2"}, "b": 3}},
        {"description": "never run"},
    ]
    write(
        tmp_path / "batch-state.json",
        {
            "experiment_name": "fees",
            "variations": variations,
            "failed_runs": [{"run_id": "var-002-run-005", "reason": "error", "error": "down"}, 3],
        },
    )
    write(
        tmp_path / "batch-summary.json",
        {"total_runs_planned": 12, "stand_ins": ["scripted/x"], "description": "about"},
    )
    return tmp_path


def test_the_runs_of_a_folder_and_their_rows_are_as_recorded(folder: Path) -> None:
    rows = BatchAnalyzer(folder).run_rows()
    assert len({tuple(row) for row in rows}) == 1 and len(rows) == 9
    study = {**dataclasses.asdict(read_study(folder)), "first row": rows[0]}
    text = json.dumps(study, default=sorted).replace(str(folder), "FOLDER")
    check(Path(__file__).parent / "recorded" / "study.txt", json.loads(text))


def test_other_dialects_of_files_are_read(tmp_path: Path) -> None:
    listed = [
        {"name": "trust", "turn": 2, "value": 5},
        {"name": "trust", "turn": 1, "value": 3},
        {"name": "x", "value": 1},
        3,
    ]
    run(
        tmp_path, 1, 1, 0, metrics=listed, state={"completed_turns": [], "turns": []}, costs={"total_cost": 1}
    )
    path = tmp_path / "runs" / "var-001-run-001"
    write(path / "costs.json", {"totals": {"total_cost_usd": 2.5}})
    study = read_study(tmp_path)
    (only,) = study.runs
    assert only.metrics == {"trust": 5.0, "x": 1.0} and only.by_turn[1] == {"trust": 3.0}
    assert (only.cost_usd, only.turns, only.seconds, only.tokens) == (2.5, 3, None, 0)
    assert study.name == tmp_path.name and study.planned == 1 and study.descriptions == {1: "variation 1"}
    (path / "scenario-state.json").unlink()
    (bare,) = read_study(tmp_path).runs
    assert (bare.status, bare.reason, bare.seed) == ("failed", "no state", None)
    assert read_study(tmp_path).damaged == ()


def test_statistics_of_variations(folder: Path) -> None:
    analyzer = BatchAnalyzer(folder)
    one, two, three = analyzer.calculate_variation_statistics().values()
    assert (one["total_runs"], one["successful_runs"], one["errors"], one["judged_runs"]) == (4, 4, 0, 4)
    assert one["success_rate"] == 1.0
    assert one["cost"] == {"total": 1.5, "mean": 0.5, "min": 0.5, "max": 0.5, "unknown": 1}
    assert one["labels"] == {"mood": {"low": 4}}
    assert (two["total_runs"], two["successful_runs"]) == (5, 3) and two["cost"]["total"] == 5.0
    assert (three["total_runs"], three["success_rate"], three["cost"]["mean"]) == (0, 0.0, None)
    assert analyzer.compare_variations("trust") == [(2, 6.0), (1, 5.25)]
    (pair,) = [each for each in analyzer.compare_pairs("trust") if each["variations"] == [1, 2]]
    assert pair["descriptions"] == ["low fee", "high fee"]
    patterns = analyzer.identify_patterns()
    assert (patterns["total_runs"], patterns["successful_runs"]) == (9, 7)
    assert patterns["judged_runs"] + patterns["errors"] + patterns["unfinished_runs"] == 9
    assert patterns["success_rate"] == pytest.approx(7 / patterns["judged_runs"])
    assert patterns["best_variation"] == {"variation_id": 1, "success_rate": 1.0}
    assert patterns["checks"] == {"run": 18, "issues": 9, "unread": 9}
    assert patterns["stand_ins"] == ["scripted/x"]
    assert "Damaged, and not in these figures: var-002-run-005/metrics.json. " in patterns["notes"][0]
    efficiency = {each["variation_id"]: each for each in patterns["cost_efficiency"]}
    assert efficiency[1]["runs_per_dollar"] == 2.0
    assert efficiency[2]["cost_per_success"] == pytest.approx(5 / 3)
    assert [each["variation_id"] for each in patterns["cost_efficiency"]] == [1, 2]
    turns = analyzer.turns_of("trust", 2)
    assert [(each["turn"], each["mean"], each["n"]) for each in turns] == [(1, 1.0, 3), (2, 6.0, 3)]
    assert analyzer.turns_of("trust")[0]["n"] == 7


def test_a_study_of_one_metric_and_of_no_runs(folder: Path, tmp_path: Path) -> None:
    assert BatchAnalyzer(folder, metric="trust").metrics == ["trust"]
    with pytest.raises(UsageError, match=r"there is no metric `lost`\nThere are: huge, score.Help, trust"):
        BatchAnalyzer(folder, metric="lost").metrics  # noqa: B018
    with pytest.raises(UsageError, match="holds no runs"):
        BatchAnalyzer(tmp_path / "none").collect_run_data()
    assert analysis_folder(tmp_path, "a b") != analysis_folder(tmp_path, "") == tmp_path / "analysis"


def test_an_analysis_is_saved_as_a_table_and_documents(folder: Path) -> None:
    written = BatchAnalyzer(folder).save()
    assert written[0].name == "runs.csv" and {path.name for path in written[1:]} == {
        "metrics-analysis.json",
        "variation-statistics.json",
        "patterns.json",
        "comparisons.json",
        "effects.json",
        "tests.json",
    }
    with written[0].open(encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == 9


def test_a_factor_with_the_name_of_a_column_has_a_prefix(tmp_path: Path) -> None:
    run(tmp_path, 1, 1, 2)
    write(
        tmp_path / "batch-state.json",
        {"variations": [{"variation_id": 1, "factors": {"status": "x", "trust": "y"}}]},
    )
    (row,) = BatchAnalyzer(tmp_path).run_rows()
    assert (row["status"], row["factor.status"], row["trust"]) == ("completed", "x", "y")
    assert row["metric.trust"] == 2.0


def test_many_damaged_files_are_counted(folder: Path) -> None:
    for number in range(1, 4):
        for name in ("metrics.json", "costs.json"):
            (folder / "runs" / f"var-001-run-00{number}" / name).write_text("{")
    note = BatchAnalyzer(folder).identify_patterns()["notes"][0]
    assert "and 2 more." in note and note.count(".json") == 5


@pytest.mark.parametrize(
    ("one", "words"),
    [
        ({"low": 1.0, "high": 2.0}, "1 to 2"),
        ({"low": None, "high": 2.0, "needs": 3}, "none; needs 3 runs"),
        ({"low": 1.0, "high": None, "runs_needed": 4}, "none; needs 4 runs"),
        ({"low": None, "high": None}, "none"),
    ],
)
def test_an_interval_in_words(one: dict[str, Any], words: str) -> None:
    assert around(one) == words


@pytest.mark.parametrize(
    ("one", "words"),
    [
        ({"low": None, "high": 1.0}, "none"),
        ({"low": 1.0, "high": 2.0}, "$1.00 to $2.00"),
        ({"low": 1.0, "high": None}, "from $1.00, no upper limit"),
    ],
)
def test_the_interval_of_a_cost_in_words(one: dict[str, Any], words: str) -> None:
    assert cost_limits(one) == words


def test_the_page_of_an_experiment_has_its_effects_its_metrics_and_their_turns(folder: Path) -> None:
    own = {"status": "failed", "halt_reason": "checks_failed"}
    for repeat in (6, 7):
        run(folder, 2, repeat, 1, state=own)
    view = results_view(BatchAnalyzer(folder))

    charts = {section.title: section for section in view.sections if section.kind == "chart"}
    assert list(charts) == [
        "Completed runs by variation",
        "Help score: main effects",
        "Trust: main effects",
        "Trust over the turns",
    ]
    first, second = charts["Completed runs by variation"].marks
    assert (first.label, first.text, first.n) == ("1: low fee", "100%", 4)
    assert (second.label, second.text, second.n) == ("2: high fee", "60%", 5)
    assert second.items == {"factor": ["variation=var-002"]}
    # Wilson's interval of 3 of 5.
    assert (second.low, second.high) == (pytest.approx(0.2307, abs=1e-4), pytest.approx(0.8824, abs=1e-4))
    low, high = charts["Trust: main effects"].marks
    assert (low.label, low.value, low.n, low.items) == ("fee = 1", 5.25, 4, {"factor": ["fee=1"]})
    assert (high.label, high.value, high.low, high.high) == ("fee = 2", 6.0, 0.0, 10.0)
    turns = [(mark.label, mark.value, mark.n) for mark in charts["Trust over the turns"].marks]
    assert turns == [
        ("1: low fee, turn 1", 1.0, 4),
        ("1: low fee, turn 2", 5.25, 4),
        ("2: high fee, turn 1", 1.0, 3),
        ("2: high fee, turn 2", 6.0, 3),
    ]
    assert view.remarks[0].startswith("Damaged, and not in these figures: var-002-run-005/metrics.json. ")


def test_the_methods_of_an_experiment_are_told_in_a_paragraph(folder: Path, tmp_path: Path) -> None:
    text = methods_paragraph(BatchAnalyzer(folder))

    assert text.startswith(
        "We varied 1 factor of a multi-actor scenario: fee (1, 2), which makes 3 variations (n = 0 to 5 runs "
        "per variation, 9 in all). 7 runs completed, 0 failed, and 1 ended in infrastructure errors; metrics "
        "are the last values of completed runs. Runs of equal number have the same random seed in every "
        "variation, and comparisons are paired by seed where both runs completed. "
    )
    assert "Student's t for score.Help; the plus interval within the scale for trust" in text
    assert "The runs used mock models (scripted/x): they say nothing about real ones. " in text
    assert "Interactions" not in text

    alone = tmp_path / "alone"
    run(alone, 1, 1, 2.0)
    run(alone, 1, 2, 3.0)
    bare = methods_paragraph(BatchAnalyzer(alone))
    assert bare.startswith(
        "The scenario was run without variations (n = 2 runs per variation). 2 runs completed; metrics are "
    )
    assert "mock" not in bare and "Levels of factors" not in bare


def test_more_than_twelve_variations_are_compared_with_the_first(tmp_path: Path) -> None:
    for variation in range(1, 14):
        for repeat in (1, 2):
            run(tmp_path, variation, repeat, float(variation + repeat))

    pairs = BatchAnalyzer(tmp_path).compare_pairs("trust")
    assert [pair["variations"] for pair in pairs] == [[1, number] for number in range(2, 14)]
    shutil.rmtree(tmp_path / "runs" / "var-013-run-001")
    shutil.rmtree(tmp_path / "runs" / "var-013-run-002")
    assert len(BatchAnalyzer(tmp_path).compare_pairs("trust")) == 66


def test_human_codes_of_a_manual_metric_enter_the_analysis_without_a_new_run(
    tmp_path: Path, proctor: Any
) -> None:
    rules = {
        "warmth": {"method": "manual", "range": [1, 5]},
        "ended_well": {"method": "manual", "type": "boolean"},
    }
    for variation in (1, 2):
        for repeat in (1, 2, 3):
            run(tmp_path, variation, repeat, 1, metrics={"final_metrics": {}, "metrics_definitions": rules})
    write(tmp_path / "batch-state.json", {"experiment_name": "fees"})
    rows = [
        f"var-00{variation}-run-00{repeat},warmth,{variation + off},{who}"
        for variation in (1, 2)
        for repeat in (1, 2, 3)
        for who, off in (("ana", 0), ("ben", 1))
    ]
    truths = ["var-001-run-001,ended_well,yes,ana", "var-001-run-001,ended_well,no,ben"]
    table = tmp_path / "codes.csv"
    table.write_text(
        "\n".join(["run_id,metric,value,who", *rows, *truths, "var-001-run-002,ended_well,yes,ana"])
    )

    done = proctor("analyze", str(tmp_path), "--codes", str(table), "--json")
    assert done.returncode == 0, done.stderr
    study = read_study(tmp_path)
    assert [each.metrics.get("warmth") for each in study.runs] == [1.5] * 3 + [2.5] * 3
    assert study.scales["warmth"] == (1, 5)
    # Ordinal, by hand: three pairs 1-2 and three 2-3; ranks 1.5, 6 and 10.5: 1 - 11 * 243 / 2916.
    coded = json.loads(done.stdout)["human_codes"]["warmth"]
    assert (coded["coders"], coded["runs"]) == (["ana", "ben"], 6)
    assert coded["alpha"] == pytest.approx(1 / 12)
    assert [each.metrics.get("ended_well") for each in study.runs[:3]] == [None, 1, None]

    table.write_text("run_id,metric,value,who\nvar-001-run-001,warmth,4,ana\n")
    again = proctor("analyze", str(tmp_path), "--codes", str(table))
    assert read_study(tmp_path).runs[0].metrics["warmth"] == 3
    assert "warmth: coded by ana, ben; alpha " in again.stdout

    bad = ["var-009-run-001,warmth,1,a", "var-001-run-001,trust,1,a", "var-001-run-001,warmth,6,a"]
    table.write_text("\n".join(["run_id,metric,value,who", *bad, "../runs,warmth,1,a"]))
    refused = proctor("analyze", str(tmp_path), "--codes", str(table))
    assert refused.returncode == 2
    assert "codes.csv:2: there is no run `var-009-run-001`" in refused.stderr
    assert "codes.csv:3: `trust` is no manual metric; there are: warmth, ended_well" in refused.stderr
    assert "codes.csv:4: 6 is out of the range of `warmth`" in refused.stderr
    assert "codes.csv:5: there is no run `../runs`" in refused.stderr
    assert read_study(tmp_path).runs[0].metrics["warmth"] == 3
