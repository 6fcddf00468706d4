"""What the runs in a folder show: read from files alone, ours or those of the original system."""

import html
import itertools
import json
import random
import re
import runpy
import sys
from dataclasses import replace

import pytest

import batch_analyzer
from proctor.jobs.scenario.analysis import BatchAnalyzer, experiment_text
from proctor.jobs.scenario.report import (
    charts_of,
    experiment_html,
    methods_paragraph,
    report_document,
    results_view,
    write_reports,
)
from proctor.report import as_markdown
from proctor.stats.experiment import (
    RunData,
    Study,
    level_contrasts,
    limitations,
    never_differs,
    of_no_spread,
    scale_of,
)


def write_runs(folder, runs, variations=None):
    """Runs as files: (label, status, metrics, cost, more) each."""
    for label, status, metrics, cost, more in runs:
        path = folder / "runs" / label
        path.mkdir(parents=True)
        (path / "scenario-state.json").write_text(json.dumps({"status": status, **more}))
        (path / "metrics.json").write_text(json.dumps({"final_metrics": metrics}))
        (path / "costs.json").write_text(json.dumps({"totals": {"total_cost_usd": cost}}))
    state = {"experiment_name": "Study", "failed_runs": [], "variations": variations or []}
    (folder / "batch-state.json").write_text(json.dumps(state))
    return BatchAnalyzer(folder)


def two_models(folder, *, n=12, calm=7.0, rash=4.0, fails=0, reason="validation_failed", seeds=True):
    chance = random.Random(1)
    runs = []
    for number, level in ((1, calm), (2, rash)):
        for run in range(1, n + 1):
            failed = number == 2 and run <= fails
            status = "failed" if failed else "completed"
            more = {"halt_reason": reason, "error": f"timeout after {run} s"} if failed else {}
            more |= {"execution_metadata": {"seed": 1000 + run}} if seeds else {}
            trust = level + chance.gauss(0, 1)
            runs.append((f"var-{number:03d}-run-{run:03d}", status, {"trust": trust}, 0.1 * number, more))
    variations = [
        {"variation_id": 1, "description": "port=calm", "factors": {"port": "calm"}},
        {"variation_id": 2, "description": "port=rash", "factors": {"port": "rash"}},
    ]
    return write_runs(folder, runs, variations)


def test_runs_without_a_seed_do_not_pair_whatever_their_numbers(tmp_path):
    analyzer = two_models(tmp_path, seeds=False)

    (pair,) = analyzer.compare_pairs("trust")
    (effect,) = analyzer.identify_patterns()["metric_effects"]

    assert (pair["is_paired"], pair["test"], effect["test"]) == (False, "Welch's t-test", "Welch's t-test")


def test_what_goes_with_success_is_stated_and_failures_are_grouped(tmp_path):
    patterns = two_models(tmp_path, fails=9).identify_patterns()

    (factor,) = patterns["success_factors"]
    assert (factor["factor"], factor["level"]) == ("port", "calm")
    assert 0 < factor["low"] < factor["value"] < factor["high"] <= 1 and factor["p_corrected"] < 0.05
    assert factor["statement"].startswith("With port = calm, the success rate is ")
    # 9 pairs gained and none lost of 12: exact McNemar 0.00390625.
    assert (factor["test"], factor["mcnemar_p"]) == ("paired, plus interval", pytest.approx(0.00390625))
    assert "McNemar p = 0.004" in factor["statement"]
    (effect,) = two_models(tmp_path / "all completed").identify_patterns()["metric_effects"]
    assert effect["statement"].startswith("With port = calm, trust is ")
    limits = f"95% CI {effect['low']:.4g} to {effect['high']:.4g}"
    assert limits in effect["statement"] and "corrected" in effect["statement"]
    cluster = patterns["failure_modes"][0]
    assert (cluster["runs"], cluster["reason"]) == (9, "validation_failed")
    assert cluster["message"] == "timeout after # s"
    assert patterns["success_rate"] == pytest.approx(15 / 24)
    assert (patterns["failed_runs"], patterns["errors"]) == (9, 0)
    assert patterns["best_variation"] == {"variation_id": 1, "success_rate": 1.0}


def test_errors_are_left_out_of_every_rate_and_what_they_would_make_of_it_is_said(tmp_path):
    analyzer = two_models(tmp_path, fails=9, reason="model_failed")

    patterns = analyzer.identify_patterns()

    assert patterns["success_factors"] == []
    assert (patterns["success_rate"], patterns["judged_runs"], patterns["errors"]) == (1.0, 15, 9)
    assert patterns["success_rate_if_errors_failed"] == pytest.approx(15 / 24)
    assert analyzer.calculate_variation_statistics()[2]["success_rate"] == 1.0


@pytest.mark.parametrize(
    "junk", ["[]", "3", '"words"', "null", "{broken", '{"failed_runs": 3, "variations": {"a": 1}}']
)
@pytest.mark.parametrize(
    "file",
    ["batch-state.json", "batch-summary.json"]
    + [f"runs/var-001-run-001/{name}.json" for name in ("scenario-state", "metrics", "costs")],
)
def test_a_file_of_another_shape_costs_no_more_than_what_it_would_have_told(tmp_path, file, junk):
    analyzer = two_models(tmp_path, n=2)
    (tmp_path / file).write_text(junk)

    patterns = analyzer.identify_patterns()

    assert patterns["total_runs"] == 4
    assert patterns["successful_runs"] == (3 if "scenario-state" in file else 4)


def study_of(chance, *, effect=0.0, kind="number", seeds=4):
    """A 2 × 2 × 3 design; `port` shifts a metric by `effect`, seeds shift it too."""
    shifts = [chance.gauss(0, 1) for _ in range(seeds)]
    factors = dict(enumerate(itertools.product(("calm", "rash"), "36", "abc"), 1))
    runs = []
    for number, levels in factors.items():
        for run, shift in enumerate(shifts):
            value = shift + chance.gauss(0, 1) + (effect if levels[0] == "calm" else 0)
            metrics = {"trust": value if kind == "number" else float(value > 0)}
            about = {"run_id": f"{number}-{run}", "variation_id": number, "repeat": run, "seed": run}
            runs.append(RunData(**about, status="completed", metrics=metrics))
    return Study(
        name="",
        runs=tuple(runs),
        descriptions=dict.fromkeys(factors, ""),
        factors={
            number: dict(zip(("port", "turns", "tone"), each, strict=True))
            for number, each in factors.items()
        },
        planned=len(runs),
        scales={} if kind == "number" else {"trust": (0.0, 1.0)},
    )


@pytest.mark.parametrize(("kind", "effect", "least"), [("number", 1.2, 0.85), ("boolean", 2.5, 0.65)])
def test_levels_without_effect_are_seldom_said_to_have_one_and_real_ones_are_found(kind, effect, least):
    """Error rate of all levels of three factors together at most 5% (a standard error of 70: 2.6%)."""
    chance, wrong, found = random.Random(21), 0, 0
    for _ in range(70):
        wrong += any(one.is_clear for one in level_contrasts(study_of(chance, kind=kind), ["trust"]))
    for _ in range(25):
        tested = level_contrasts(study_of(chance, kind=kind, effect=effect), ["trust"])
        found += any(one.is_clear and one.factor == "port" for one in tested)

    assert wrong / 70 <= 0.1
    assert found / 25 >= least


def test_shares_have_no_mcnemar_beside_their_difference():
    study = small_study(*((1 + place % 2, value) for place, value in enumerate([0.5, 1.0, 0.25, 0.75])))
    for values, has_test in (([0.5, 1.0, 0.25, 0.75], False), ([0.0, 1.0, 1.0, 1.0], True)):
        runs = [
            replace(run, seed=place // 2, metrics={"x": value})
            for place, (run, value) in enumerate(zip(study.runs, values, strict=True))
        ]
        scaled = replace(study, runs=tuple(runs), scales={"x": (0.0, 1.0)})
        (contrast,) = (one for one in level_contrasts(scaled, ["x"]) if one.metric)
        assert (contrast.mcnemar is not None) is has_test


def test_a_metric_that_was_never_extracted_is_missing_in_all_runs(tmp_path):
    analyzer = two_models(tmp_path, n=3)
    for run in (tmp_path / "runs").iterdir():
        document = json.loads((run / "metrics.json").read_text())
        document["metrics_definitions"] = {"trust": {"type": "float"}, "mood": {"type": "integer"}}
        document["metrics_definitions"]["verdict"] = {"type": "string"}
        document["metrics_by_turn"] = {"1": {"trust": 3, "mood": None, "calm.port": None}}
        (run / "metrics.json").write_text(json.dumps(document))

    statistics = analyzer.calculate_metric_statistics()
    report = as_markdown.render(report_document(analyzer))

    assert list(statistics) == ["calm.port", "mood", "trust"]
    assert (statistics["mood"]["n"], statistics["mood"]["missing"]) == (0, 6)
    assert statistics["mood"]["note"].startswith("missing in 6 of 6 runs")
    assert "| mood | 0 | 6 |" in report and "missing in 6 of 6 runs" in report


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e308, 10**400])
def test_values_that_are_no_numbers_are_missing_in_words_and_in_no_file(tmp_path, value):
    runs = [
        (f"var-{v:03d}-run-{n:03d}", "completed", {"trust": value if n == 1 else n * v}, 0.1, {})
        for v in (1, 2)
        for n in range(1, 8)
    ]
    analyzer = write_runs(tmp_path, runs)

    files = analyzer.save()

    text = "".join(path.read_text() for path in files)
    assert "NaN" not in text and "Infinity" not in text
    note = analyzer.calculate_metric_statistics()["trust"]["note"]
    assert "missing in 2 of 14 runs" in note and "in 2 of them not a number" in note


def test_versions_of_a_scenario_are_a_factor_and_not_pooled_silently(tmp_path):
    analyzer = two_models(tmp_path)
    state = json.loads((tmp_path / "batch-state.json").read_text())
    for variation in state["variations"]:
        variation["factors"] = {"port": "calm"}
    (tmp_path / "batch-state.json").write_text(json.dumps(state))

    patterns = analyzer.identify_patterns()

    assert any("runs of 2 versions" in note for note in patterns["notes"])
    assert {one["factor"] for one in patterns["metric_effects"]} == {"scenario version"}


def test_each_run_is_a_row_of_a_table_and_of_a_data_frame(tmp_path):
    turns = [{"started_at": "2026-01-01T00:00:00Z", "ended_at": "2026-01-01T00:00:02Z"}]
    more = {"turns": turns, "completed_turns": [1], "execution_metadata": {"seed": 7}}
    runs = [
        ("var-001-run-001", "completed", {"trust": 4, "seed": 9, "mood": "calm"}, 0.1, more),
        ("var-002-run-001", "failed", {}, None, {"halt_reason": "timeout"}),
    ]
    variations = [
        {"variation_id": 1, "description": "port=calm", "factors": {"port": "calm", "status": "new"}},
        {"variation_id": 2, "description": "port=rash", "factors": {"port": "rash", "status": "old"}},
    ]
    analyzer = write_runs(tmp_path, runs, variations)

    first, second = analyzer.run_rows()

    assert list(second) == list(first)
    assert (second["status"], second["trust"], second["duration_seconds"]) == ("failed", None, None)
    frame = analyzer.to_dataframe()
    assert list(frame.columns) == list(first)
    assert frame.groupby("port")["trust"].mean()["calm"] == 4
    analyzer.save()
    lines = (tmp_path / "analysis" / "runs.csv").read_text().splitlines()
    names = (
        "run_id,variation_id,variation,repeat,seed,status,reason,port,factor.status,metric.seed,trust,mood"
    )
    assert lines[0] == ",".join(first)
    assert lines[0].startswith(f"{names},turns_completed,cost_usd,tokens,duration_seconds,served_models,")
    assert lines[1].startswith(
        "var-001-run-001,1,port=calm,1,7,completed,,calm,new,9.0,4.0,calm,1,0.1,0,2.0,,"
    )


def test_scripts_of_the_original_import_the_analyzer_by_its_name(tmp_path, monkeypatch):
    two_models(tmp_path)
    analyzer = batch_analyzer.BatchAnalyzer(str(tmp_path))
    analyzer.collect_run_data()
    assert analyzer.compare_variations("trust")[0][0] == 1

    monkeypatch.setattr(sys, "argv", ["batch_analyzer", str(tmp_path), "--report"])
    monkeypatch.delitem(sys.modules, "batch_analyzer")
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("batch_analyzer", run_name="__main__")

    assert ended.value.code == 0
    assert (tmp_path / "analysis" / "analysis-report.md").is_file()


def four_variations(folder, n=8):
    """Two factors whose effects do not add up."""
    chance = random.Random(1)
    runs, variations = [], []
    for number, (port, ferry) in enumerate(itertools.product(("calm", "rash"), ("old", "new")), 1):
        variations.append(
            {
                "variation_id": number,
                "description": f"port={port}, ferry={ferry}",
                "factors": {"port": port, "ferry": ferry},
            }
        )
        for run in range(1, n + 1):
            trust = 3.0 * (port == "calm" and ferry == "new") - 2 + chance.gauss(0, 1)
            more = {"execution_metadata": {"seed": 1000 + run}}
            label = f"var-{number:03d}-run-{run:03d}"
            runs.append((label, "completed", {"trust": trust}, 0.1 * number, more))
    analyzer = write_runs(folder, runs, variations)
    for label, _, metrics, _, _ in runs:
        by_turn = {"1": {"trust": metrics["trust"] / 2}, "2": metrics}
        (folder / "runs" / label / "metrics.json").write_text(
            json.dumps({"final_metrics": metrics, "metrics_by_turn": by_turn})
        )
    return analyzer


def test_every_figure_says_what_it_shows_with_n_and_method_and_pages_link_to_it(tmp_path):
    analyzer = four_variations(tmp_path)
    charts = charts_of(analyzer)
    captions = [chart.caption for chart in charts["trust"]]

    assert [chart.title for chart in charts["trust"]] == [
        "Trust by variation",
        "Trust: main effects",
        "Trust: port by ferry",
        "Trust over the turns",
        "What a run costs against Trust",
    ]
    assert "95% CI: Student's t; n = 8 runs per variation, 32 in all." in captions[0]
    assert "n = 16 runs per level. Dashed line: mean of all 32 runs." in captions[1]
    # A point for each run and factor, and no line between levels without an order.
    assert charts["trust"][1].svg.count("c-raw") == 2 * 32 and "polyline" not in charts["trust"][1].svg
    assert "polyline" not in charts["trust"][2].svg
    assert "n = 8 runs per combination, 32 in all." in captions[2] and "F test, p = " in captions[2]
    assert "95% CI: Wilson; n = 8 runs per variation" in charts[""][0].caption

    files = write_reports(analyzer, tmp_path / "analysis")
    page = (tmp_path / "analysis" / "analysis-report.html").read_text()
    links = re.findall(r'href="(figures/[^"]+)"', page)
    assert {tmp_path / "analysis" / link for link in links} <= set(files)
    assert len(links) == 6
    assert "href" not in experiment_html(analyzer), "there are no files"
    methods = methods_paragraph(analyzer)
    assert methods in html.unescape(page) and "## Methods" in as_markdown.render(report_document(analyzer))
    assert methods.startswith(
        "We varied 2 factors of a multi-actor scenario: port (calm, rash); ferry (old, new), which makes 4 "
    )
    assert "Student's t for trust" in methods and "Bonferroni" in methods


def test_a_variable_that_a_factor_sets_is_no_outcome_unless_runs_change_it(tmp_path):
    analyzer = four_variations(tmp_path)
    state = json.loads((tmp_path / "batch-state.json").read_text())
    for number, variation in enumerate(state["variations"]):
        paths = {"variables.fee.initial": number, "variables.stock.initial": number}
        variation["modifications"] = {"scenario_overrides": paths}
    (tmp_path / "batch-state.json").write_text(json.dumps(state))
    for path in (tmp_path / "runs").glob("*/metrics.json"):
        document = json.loads(path.read_text())
        number = int(path.parent.name[4:7])
        document["metrics_by_turn"]["1"] |= {"fee": number, "stock": number}
        document["final_metrics"] |= {"fee": number, "stock": number + 1}
        rules = {"type": "float", "method": "rules"}
        document["metrics_definitions"] = {"fee": rules, "stock": rules}
        path.write_text(json.dumps(document))

    analyzer.collect_run_data()

    assert analyzer.metrics == ["stock", "trust"] and analyzer.run_rows()[0]["fee"] == 1
    notes = analyzer.identify_patterns()["notes"]
    assert "Not analyzed as outcomes: fee (set by a factor, changed by no run)." in notes


def test_the_terminal_counts_the_comparisons_that_it_does_not_list(tmp_path):
    runs = [
        (f"var-{number:03d}-run-{run:03d}", "completed", {"trust": number * 3 + run % 3}, 0.1, {})
        for number in range(1, 7)
        for run in range(1, 9)
    ]
    document = {
        name[:-5].replace("-", "_"): part for name, part in write_runs(tmp_path, runs).documents().items()
    }

    lines = experiment_text(document).splitlines()

    assert sum(line.startswith("  variation") for line in lines) == 10
    assert "  … and 5 more in comparisons.json" in lines


def test_interactions_use_the_seeds_as_blocks_and_are_corrected_over_all_metrics(tmp_path):
    """Without the seeds, whose shifts are large, this interaction had p = 0.4."""
    chance = random.Random(3)
    shifts = [chance.gauss(0, 10) for _ in range(8)]
    analyzer = four_variations(tmp_path)
    for path in (tmp_path / "runs").glob("*/metrics.json"):
        document, name = json.loads(path.read_text()), path.parent.name
        value = shifts[int(name[-3:]) - 1] + (2.0 if name[4:7] in ("001", "004") else 0.0)
        document["final_metrics"] = {
            "trust": value + chance.gauss(0, 0.5),
            "noise": chance.gauss(0, 1),
            "mood": "good" if value > 0 else "bad",
        }
        path.write_text(json.dumps(document))
    analyzer.collect_run_data()

    effects = {each["factor"]: each for each in analyzer.factor_effects("trust")}
    rows = {row["source"]: row for row in analyzer.test_tables()["metrics"]["trust"]["anova"]}
    interaction = rows["port × ferry"]
    assert effects["port × ferry"]["p"] == interaction["p"] < 1e-4
    # Two factors and their interaction, in two metrics.
    assert effects["port × ferry"]["p_corrected"] == pytest.approx(6 * interaction["p"])
    assert rows["seed"]["df"] == 7 and rows["seed"]["explained"] > 0.9
    assert 0.5 < interaction["low"] < interaction["partial_eta_squared"] < interaction["high"] < 1
    mood = analyzer.test_tables()["categories"]["mood"]["port"]
    assert mood["counts"]["calm"]["good"] + mood["counts"]["calm"]["bad"] == 16 and mood["p"] > 0.05


def test_levels_are_compared_in_pairs_and_by_trend_with_named_effect_sizes_and_odds(tmp_path):
    chance = random.Random(5)
    fees, runs, variations = ("10", "20", "40"), [], []
    for number, fee in enumerate(fees, 1):
        description = f"fee={fee}"
        variations.append({"variation_id": number, "description": description, "factors": {"fee": fee}})
        for run in range(1, 13):
            latent = chance.gauss(0.06 * float(fee), 1)
            metrics = {"trust": latent, "rating": min(5, max(1, round(latent + 1))), "signed": latent > 1.5}
            more = {"execution_metadata": {"seed": run}}
            runs.append((f"var-{number:03d}-run-{run:03d}", "completed", metrics, 0.1, more))
    analyzer = write_runs(tmp_path, runs, variations)
    for path in (tmp_path / "runs").glob("*/metrics.json"):
        document = json.loads(path.read_text())
        document["metrics_definitions"] = {"rating": {"type": "int", "range": [1, 5]}}
        path.write_text(json.dumps(document))
    analyzer.collect_run_data()
    tables = analyzer.test_tables()["metrics"]

    contrasts = {(each["level"], each["against"]): each for each in tables["trust"]["contrasts"]}
    assert list(contrasts) == [("20", "10"), ("40", "10"), ("40", "20"), ("linear trend", None)]
    trend = contrasts["linear trend", None]
    assert 0.03 < trend["value"] < 0.09 and trend["p_corrected"] < 0.01
    assert trend["statement"].startswith("Per unit of fee, trust changes by 0.0")
    widest = contrasts["40", "10"]
    low, high = widest["hedges_g_interval"]
    assert 0.5 < low < widest["hedges_g"] < high < 4
    assert widest["statement"].startswith("With fee = 40 against 10, trust is ")
    (rating, signed) = (tables[name]["model"] for name in ("rating", "signed"))
    assert (rating["method"], signed["method"]) == ("proportional odds", "logistic regression")
    assert [ratio["level"] for ratio in rating["ratios"]] == ["20", "40"]
    assert rating["ratios"][1]["low"] > 1 and tables["trust"]["model"] is None
    assert tables["rating"]["contrasts"][1]["test"] == "paired permutation and t-test"

    assert charts_of(analyzer)["trust"][1].svg.count("polyline") == 1, "the levels are numbers"
    report = as_markdown.render(report_document(analyzer))
    assert "| fee: 40 − 10 |" in report and "Partial η² (90% CI)" in report
    assert "Proportional odds, without interactions." in report
    document = {name[:-5].replace("-", "_"): part for name, part in analyzer.documents().items()}
    assert "  fee: F(2, 22) = " in experiment_text(document)
    assert "rank tests: Friedman" in methods_paragraph(analyzer)


def test_every_variable_of_the_world_has_its_trajectory_however_many_metrics_there_are(tmp_path):
    four_variations(tmp_path)
    for path in (tmp_path / "runs").glob("*/metrics.json"):
        document = json.loads(path.read_text())
        values = {f"metric {number}": number for number in range(8)} | {"water": 3, "storm": True}
        document["final_metrics"] |= values
        document["metrics_by_turn"]["1"] |= values
        document["metrics_by_turn"]["2"] |= values | {"water": 5}
        document["metrics_definitions"] = {
            "water": {"type": "float", "method": "rules"},
            "storm": {"type": "boolean", "method": "rules"},
            "harbor": {"type": "string", "method": "rules"},
        }
        path.write_text(json.dumps(document))
    analyzer = BatchAnalyzer(tmp_path)

    titles = [section.title for section in results_view(analyzer).sections if section.kind == "chart"]

    assert analyzer.study.variables == ("storm", "water")
    assert {"Storm over the turns", "Water over the turns"} <= set(titles)
    # Other metrics beyond the first six are in the analysis only.
    assert "Metric 7 over the turns" not in titles and "Trust over the turns" not in titles


def small_study(*values: tuple[int, float], descriptions: int = 2, **more: object) -> Study:
    runs = tuple(
        RunData(
            run_id=str(number),
            variation_id=variation,
            repeat=number,
            status="completed",
            metrics={"x": value},
        )
        for number, (variation, value) in enumerate(values)
    )
    return Study(
        name="s",
        runs=runs,
        descriptions={number: f"v{number}" for number in range(1, descriptions + 1)},
        factors={1: {"tone": "a"}, 2: {"tone": "b"}},
        planned=len(runs),
        metrics=("x",),
        **more,
    )


def test_repeats_that_never_differ_are_one_run():
    assert never_differs(small_study((1, 3.0), (1, 3.0), (2, 5.0)), "x")
    assert not never_differs(small_study((1, 3.0), (2, 5.0)), "x"), "nothing was repeated"
    assert not never_differs(small_study((1, 3.0), (1, 3.0), (2, 5.0), (2, 6.0)), "x")
    assert not never_differs(small_study((1, 1.0), (1, 1.0), (2, 0.0)), "x"), "0 and 1 are equal by chance"
    (sentence,) = of_no_spread(small_study((1, 3.0), (1, 3.0)), ["x", "y"])
    assert sentence.startswith("All runs of a variation came to the same x: ")
    assert of_no_spread(small_study((1, 3.0), (1, 4.0)), ["x"]) == []


@pytest.mark.parametrize(
    ("status", "words"), [("completed", "Every run was completed"), ("failed", "No run was completed")]
)
def test_a_study_without_failures_or_successes_or_of_few_runs_says_so(status, words):
    for values, fewest in (
        ([(1, 3.0), (2, 4.0), (2, 5.0)], "1 pair"),
        ([(1, 3.0), (1, 4.0), (2, 4.0), (2, 5.0), (2, 6.0)], "2 pairs"),
    ):
        study = small_study(*values)
        runs = [replace(run, status=status, reason="validation_failed") for run in study.runs]
        ended = replace(study, runs=tuple(runs))
        said = limitations(ended, level_contrasts(ended))
        assert f"{words}, so nothing can be said of what makes runs succeed." in said
        if status == "completed":
            assert said[0].startswith(
                "1 of 1 comparison of levels without a verdict: at least 6 pairs of runs "
            )
            assert said[0].endswith(f"the smallest has {fewest}.")


@pytest.mark.parametrize(
    ("metric", "values", "declared", "is_boolean", "expected"),
    [
        ("trust", [1.0, 5.0], (1.0, 5.0), False, (1.0, 5.0)),
        ("trust", [0.9, 5.0], (1.0, 5.0), False, None),
        ("trust", [1.0, 5.1], (1.0, 5.0), False, None),
        ("trust", [0.0, 1.0], (1.0, 5.0), False, None),
        ("trust", [0.0, 1.0], (0.0, 100.0), False, (0.0, 100.0)),
        ("score.tone", [1.0, 1.0], (1.0, 5.0), False, (1.0, 5.0)),
        ("trust", [0.0, 1.0], None, False, (0.0, 1.0)),
        ("trust", [2.0], (1.0, 5.0), True, (0.0, 1.0)),
        ("trust", [0.5], None, False, None),
        ("trust", [], None, False, None),
        ("score.tone", [0.0, 0.5, 1.0], None, False, (0.0, 1.0)),
        ("score.tone", [-0.1, 0.5], None, False, None),
        ("score.tone", [0.5, 1.1], None, False, None),
        ("score.tone", [], None, False, None),
    ],
)
def test_a_scale_is_declared_or_that_of_booleans_and_shares(metric, values, declared, is_boolean, expected):
    assert scale_of(metric, values, declared, is_boolean) == expected
