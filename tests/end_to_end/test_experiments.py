"""Scenario experiments through the command line, against a model server on loopback."""

import asyncio
import json
import re
import shutil
from xml.etree import ElementTree

import pytest
from harbours import SCENARIO, VARIED, in_the_harbour, write_config

from proctor.testing.model_server import failure, reply


async def test_two_actors_and_three_turns_make_exactly_three_turns(harbour):
    config = write_config(harbour.folder, more="variations: []")

    await harbour.run("experiment", config)

    run = harbour.output / "runs" / "var-001-run-001"
    assert sorted(path.name for path in run.iterdir()) == sorted(
        [f"world-state-{n:03d}.md" for n in range(4)]
        + [f"actor-{who}-{n:03d}.md" for who in ("port", "ferry") for n in (1, 2, 3)]
        + ["metrics.json", "costs.json", "scenario-state.json", "scenario.log"]
    )
    assert len(harbour.server.requests) == 9
    state = harbour.file("runs/var-001-run-001/scenario-state.json")
    assert (state["status"], state["current_turn"], state["completed_turns"]) == ("completed", 3, [1, 2, 3])
    again = await harbour.run("experiment", config, code=2)
    assert "already holds an experiment" in again["error"]


async def test_the_files_of_the_document_say_what_the_store_says(harbour):
    config = write_config(harbour.folder, runs=3, parallel=3)

    told = await harbour.run("experiment", config)

    summary, costs, state = map(harbour.file, ("batch-summary.json", "batch-costs.json", "batch-state.json"))
    names = ("total_variations", "total_runs_planned", "runs_completed")
    assert [summary[name] for name in names] == [2, 6, 6]
    assert summary["failed_runs"] == state["failed_runs"] == []
    assert state["completed_runs"][0] == "var-001-run-001" and len(state["completed_runs"]) == 6
    # Nine calls a run, a thousand tokens a call, ten dollars a million.
    assert costs["summary"]["total_spent"] == pytest.approx(0.54) == pytest.approx(told["costUsd"])
    assert [run["cost"] for run in costs["run_costs"]] == pytest.approx([0.09] * 6)
    assert costs["variation_statistics"]["1"]["avg_cost_per_run"] == pytest.approx(0.09)
    own = harbour.file("runs/var-001-run-001/costs.json")
    assert own["totals"]["total_cost_usd"] == pytest.approx(own["total_cost"]) == pytest.approx(0.09)
    assert own["costs_by_actor"]["Port Authority"]["total_cost"] == pytest.approx(0.03)
    assert state["variations"][1]["modifications"]["actor_models"] == {"port": "openai/rash"}


async def test_an_analysis_is_written_with_its_plots_and_read_by_the_documents_own_snippet(
    harbour, monkeypatch, capsys
):
    config = write_config(harbour.folder, runs=4, parallel=4)
    await harbour.run("experiment", config)
    stale = harbour.output / "analysis" / "plots" / "99-stale.svg"
    stale.parent.mkdir(parents=True, exist_ok=True)
    stale.write_text("<svg/>")

    document = await harbour.run("analyze", "experiments/fees", "--report")

    (pair,) = document["comparisons"]["cooperation_level"]
    # Run n has one seed in all variations.
    assert (pair["is_paired"], pair["test"]) == (True, "paired t-test")
    assert document["metrics_analysis"]["cooperation_level"]["n"] == 8
    analysis = harbour.output / "analysis"
    for name in ("metrics-analysis.json", "variation-statistics.json", "patterns.json"):
        assert (analysis / name).is_file()
    page = (analysis / "analysis-report.html").read_text()
    for part in ("Cooperation level by variation", "Cooperation level over the turns", "paired t-test"):
        assert part in page
    assert "<script" not in page
    shown = re.findall(r"!\[[^\]]+\]\((plots/[^)]+\.svg)\)", (analysis / "analysis-report.md").read_text())
    assert set(shown) == {f"plots/{path.name}" for path in (analysis / "plots").iterdir()} and len(shown) >= 4
    dots = next(name for name in shown if "cooperation-level-by-variation" in name)
    # Each variation by its number, and by the whole level of each factor.
    drawn = (analysis / dots).read_text()
    assert all(f">{text}<" in drawn for text in ("1", "2", "openai/calm", "openai/rash"))
    assert all(ElementTree.fromstring((analysis / name).read_text()).get("width") for name in shown)

    snippet = """
from proctor import BatchAnalyzer

analyzer = BatchAnalyzer('experiments/fees')
analyzer.collect_run_data()
analyzer.collect_run_data()

metrics = analyzer.calculate_metric_statistics()
print(f"Average cooperation_level: {metrics['cooperation_level']['mean']:.2f}")
comparison = analyzer.compare_variations('cooperation_level')
print("Best variation:", comparison[0])
patterns = analyzer.identify_patterns()
print(f"Success rate: {patterns['success_rate']*100:.1f}%", patterns['total_runs'])
"""
    monkeypatch.chdir(harbour.folder)
    exec(snippet, {})
    assert capsys.readouterr().out.splitlines() == [
        "Average cooperation_level: 5.00",
        "Best variation: (1, 8.0)",
        "Success rate: 100.0% 8",
    ]


async def test_equal_seeds_give_equal_worlds(harbour):
    def by_seed(request):
        if request["model"] == "narrator":
            return reply(f"UPDATED STATE: cooperation level: {request['seed'] % 10}")
        return reply(f"ACTION: {request['seed']}")

    harbour.answers["how"] = by_seed
    config = write_config(harbour.folder, runs=3, parallel=3, more="variations: []\nseed: 11")
    await harbour.run("experiment", config)
    first = harbour.states()
    shutil.rmtree(harbour.output / "runs")
    (harbour.output / "batch-state.json").unlink()

    await harbour.run("experiment", config)

    assert harbour.states() == first
    assert len({texts[1] for texts in first.values()}) > 1, "runs of one variation differ"


async def test_a_run_whose_calls_all_fail_has_failed(harbour):
    harbour.answers["how"] = lambda _: failure(400, "no such model")
    config = write_config(harbour.folder, more="variations: []")

    told = await harbour.run("experiment", config, code=1)

    assert (told["successCount"], told["errorCount"]) == (0, 1)
    (failed,) = harbour.file("batch-summary.json")["failed_runs"]
    assert failed["run_id"] == "var-001-run-001" and "no such model" in failed["error"]
    assert harbour.file("runs/var-001-run-001/scenario-state.json")["status"] == "failed"
    assert "no such model" in (harbour.output / "runs" / "var-001-run-001" / "scenario.log").read_text()
    patterns = (await harbour.run("analyze", "experiments/fees"))["patterns"]
    assert (patterns["success_rate_if_errors_failed"], patterns["errors"]) == (0.0, 1)


async def test_a_run_whose_folder_is_gone_is_not_taken_over(harbour):
    harbour.answers["how"] = failing_after(7)
    await harbour.run("experiment", write_config(harbour.folder, more="variations: []"), code=1)
    (batch,) = (await harbour.run("runs"))["runs"]
    harbour.output.rename(harbour.folder / "elsewhere")

    refused = await asyncio.to_thread(harbour.proctor, "resume", batch["runId"], "--retry-errors")

    assert refused.returncode == 2
    assert "does not exist any more" in refused.stderr
    assert (await harbour.run("runs"))["runs"][0]["status"] == "completed"
    assert not harbour.output.exists()


async def test_retries_go_on_behind_the_last_turn_too(harbour):
    """In the second turn and in the third one actor says nothing: each is played again, and no other."""
    harbour.answers["how"] = failing(at={5, 10})
    config = write_config(harbour.folder, retries=2, more="variations: []")

    await harbour.run("experiment", config)

    assert harbour.file("runs/var-001-run-001/scenario-state.json")["completed_turns"] == [1, 2, 3]
    assert len(harbour.server.requests) == 13


async def test_the_folder_alone_is_enough_to_go_on_elsewhere(harbour):
    harbour.answers["how"] = failing_after(16)
    config = write_config(harbour.folder, runs=2, more="variations: []")
    await harbour.run("experiment", config, code=1)
    spent = harbour.file("batch-costs.json")["summary"]["total_spent"]
    elsewhere = harbour.folder / "elsewhere"
    shutil.copytree(harbour.output, elsewhere)
    shutil.rmtree(harbour.folder / "scenarios")
    shutil.rmtree(harbour.output)
    harbour.answers["how"] = in_the_harbour
    harbour.server.requests.clear()
    harbour.proctor.environment["PROCTOR_HOME"] = str(harbour.folder / "another-home")

    told = await harbour.run("experiment", str(elsewhere), "--resume")

    assert told["successCount"] == 2
    assert len(harbour.server.requests) == 3
    harbour.output = elsewhere
    assert harbour.file("batch-costs.json")["summary"]["total_spent"] == pytest.approx(spent + 0.03)


async def test_a_copy_of_an_experiment_is_one_of_its_own(harbour):
    config = write_config(harbour.folder, more="variations: []")
    await harbour.run("experiment", config)
    copy = harbour.folder / "copy"
    shutil.copytree(harbour.output, copy)
    text = (copy / "batch-config.yaml").read_text()
    (copy / "batch-config.yaml").write_text(
        text.replace("experiments/fees", "copy").replace("runs_per_variation: 1", "runs_per_variation: 2")
    )
    harbour.server.requests.clear()

    told = await harbour.run("experiment", "copy", "--resume")

    assert told["successCount"] == 2
    assert len(harbour.server.requests) == 9
    assert len(harbour.file("batch-state.json")["completed_runs"]) == 1, "the original is as it was"


async def test_a_spent_budget_halts_and_more_money_goes_on(harbour):
    config = write_config(harbour.folder, runs=4, more="variations: []\nbudget_limit: 0.20")

    done = await asyncio.to_thread(harbour.proctor, "experiment", config, "--json")
    told = json.loads(done.stdout)

    assert (done.returncode, told["status"], told["reason"]) == (3, "halted", "budget")
    assert "The budget is reached: $0.18 spent." in done.stderr
    summary = harbour.file("batch-summary.json")
    assert summary["cost_summary"]["total_spent"] <= 0.20
    assert summary["runs_completed"] == 2 and summary["runs_pending"] == 2

    write_config(harbour.folder, runs=4, more="variations: []\nbudget_limit: 1.00")
    told = await harbour.run("experiment", config, "--resume")

    assert told["successCount"] == 4
    assert harbour.file("batch-costs.json")["summary"]["total_spent"] == pytest.approx(0.36)
    assert "budget_limit: 1.00" in (harbour.output / "batch-config.yaml").read_text()
    assert "budget_limit: 0.20" in (harbour.output / "batch-config.1.yaml").read_text()


async def test_a_run_that_reaches_its_own_limit_halts_and_goes_on_once_it_may_spend_more(harbour):
    config = write_config(harbour.folder, runs=2, more="variations: []\ncost_per_run_limit: 0.05")

    done = await asyncio.to_thread(harbour.proctor, "experiment", config, "--json")
    told = json.loads(done.stdout)

    assert (done.returncode, told["status"], told["runsOverLimit"]) == (3, "halted", ["var-001-run-001"])
    assert "var-001-run-001 reached cost_per_run_limit." in done.stderr
    (failed,) = harbour.file("batch-summary.json")["failed_runs"]
    assert (failed["run_id"], failed["status"]) == ("var-001-run-001", "cost_limit_exceeded")
    assert all(run["cost"] <= 0.05 for run in harbour.file("batch-costs.json")["run_costs"])
    state = harbour.file("runs/var-001-run-001/scenario-state.json")
    assert (state["status"], state["completed_turns"]) == ("halted", [1])

    write_config(harbour.folder, runs=2, more="variations: []\ncost_per_run_limit: 0.50")
    harbour.server.requests.clear()
    told = await harbour.run("experiment", config, "--resume")

    assert told["successCount"] == 2
    assert len(harbour.server.requests) == 6 + 9


async def test_a_run_whose_first_call_could_pass_its_limit_halts_before_it(harbour):
    config = write_config(harbour.folder, runs=2, more="variations: []\ncost_per_run_limit: 0.005")

    told = await harbour.run("experiment", config, code=3)

    assert (told["status"], told["reason"], told["unfinishedCount"]) == ("halted", "cost_limit", 2)
    assert harbour.server.requests == []
    assert harbour.file("batch-state.json")["pending_runs"] == ["var-001-run-001", "var-001-run-002"]

    told = await harbour.run("experiment", config, "--resume", code=3)

    assert (told["status"], harbour.server.requests) == ("halted", []), "nothing was raised"

    write_config(harbour.folder, runs=2, more="variations: []\ncost_per_run_limit: 0.50")
    assert (await harbour.run("experiment", config, "--resume"))["successCount"] == 2


async def test_a_price_nobody_knows_is_refused_before_the_first_call(harbour):
    config = write_config(harbour.folder, more="variations: []\nbudget_limit: 1")
    text = (harbour.output / "batch-config.yaml").read_text()
    (harbour.output / "batch-config.yaml").write_text(text.replace("openai/narrator: ", "openai/other: "))

    told = await harbour.run("experiment", config, code=2)

    assert "no price is known for openai/narrator" in told["error"]
    assert harbour.server.requests == []


async def test_a_run_that_takes_too_long_is_stopped(harbour):
    harbour.answers["how"] = lambda _: reply("ACTION: waits", delay_seconds=3600)
    config = write_config(harbour.folder, more="variations: []\ntimeout_per_run: 0.3")

    told = await harbour.run("experiment", config, code=1)

    assert told["timeoutCount"] == 1
    assert told["durationSec"] < 3600


async def test_runs_are_really_parallel(harbour):
    harbour.answers["how"] = lambda request: reply("UPDATED STATE: x", delay_seconds=0.1)
    config = write_config(harbour.folder, runs=6, parallel=6, more="variations: []")

    await harbour.run("experiment", config)

    assert harbour.server.most_at_once > 6


async def test_the_general_commands_know_experiments_and_go_on_behind_the_last_turn(harbour):
    harbour.answers["how"] = failing_after(7)
    config = write_config(harbour.folder, more="variations: []")
    told = await harbour.run("experiment", config, code=1)
    asked = len(harbour.server.requests)
    harbour.answers["how"] = in_the_harbour

    resumed = await harbour.run("resume", told["runId"], "--retry-errors")

    assert resumed["successCount"] == 1
    assert len(harbour.server.requests) - asked == 3, "only the third turn is played"
    costs = harbour.file("runs/var-001-run-001/costs.json")
    assert costs["total_cost"] == pytest.approx(harbour.file("batch-costs.json")["summary"]["total_spent"])
    assert costs["unfinished_turns"]["cost"] == pytest.approx(0.01)
    assert harbour.file("batch-state.json")["completed_runs"] == ["var-001-run-001"]
    shown = await harbour.run("show", told["runId"])
    assert shown["items"][0]["factors"] == {"variation": "var-001"}
    report = await harbour.run("report", "--run", told["runId"])
    assert told["runId"] in report["report"]


async def test_only_figures_are_kept_where_runs_are_not_saved(harbour):
    config = write_config(harbour.folder, runs=2, more="variations: []\nsave_individual_runs: false")

    await harbour.run("experiment", config)

    names = {path.name for path in (harbour.output / "runs" / "var-001-run-001").iterdir()}
    assert names == {"metrics.json", "costs.json", "scenario-state.json", "scenario.log"}
    analyzed = await harbour.run("analyze", "experiments/fees")
    assert analyzed["metrics_analysis"]["cooperation_level"]["n"] == 2


async def test_no_key_is_in_any_file(harbour):
    harbour.answers["how"] = lambda _: reply("ACTION: tells that the key is sk-loopback-0123456789")
    config = write_config(harbour.folder, more="variations: []")

    await harbour.run("experiment", config)

    assert "[secret]" in (harbour.output / "runs" / "var-001-run-001" / "actor-port-001.md").read_text()
    written = [path.read_bytes() for path in harbour.output.rglob("*") if path.is_file()]
    assert not any(b"sk-loopback" in content for content in written)


async def test_a_scenario_can_be_run_branched_and_estimated_by_itself(harbour):
    await harbour.run("scenario", "run", "scenarios/harbour", "--output", "once", "--seed", "5")
    asked = len(harbour.server.requests)

    told = await harbour.run(
        "scenario", "branch", "once/runs/var-001-run-001", "--at-turn", "1", "--set", "turns=2",
        "--set", "actors.port.llm_model=openai/rash", "--output", "branched",
    )  # fmt: skip

    assert len(harbour.server.requests) - asked == 3
    assert told["successCount"] == 1
    harbour.output = harbour.folder / "branched"
    run = harbour.file("runs/var-001-run-001/scenario-state.json")
    original = json.loads((harbour.folder / "once/runs/var-001-run-001/scenario-state.json").read_text())
    assert run["world_state"]["states"]["1"] == original["world_state"]["states"]["1"]
    assert "cooperation level: 2" in run["world_state"]["states"]["2"]
    assert run["execution_metadata"]["seed"] == original["execution_metadata"]["seed"]


async def test_an_estimate_rests_on_earlier_runs_and_says_when_there_are_none(harbour):
    config = write_config(harbour.folder, runs=3, more=VARIED)
    harbour.proctor.environment["COLUMNS"] = "200"

    guessed = await asyncio.to_thread(harbour.proctor, "scenario", "estimate", config)
    assert "The store has no earlier run of this scenario" in guessed.stdout
    document = await harbour.run("scenario", "estimate", config)
    assert document["total"]["calls"] == [54, 54] and document["total"]["from_earlier_runs"] is None

    write_config(harbour.folder, runs=2, more="variations: []")
    await harbour.run("experiment", config)
    write_config(
        harbour.folder,
        runs=3,
        more=VARIED.replace("]}]", "]}, {type: scenario_parameter, parameter: turns, values: [4]}]"),
    )
    told = (await harbour.run("scenario", "estimate", config))["total"]["from_earlier_runs"]

    assert told["runs"] == 2
    assert told["calls"]["mean"] == 2 * 3 * 4 * 3, "variations, runs, turns, calls a turn"
    assert told["cost_usd"]["mean"] == pytest.approx(0.72)
    assert told["cost_usd"]["low"] <= told["cost_usd"]["mean"] <= told["cost_usd"]["high"]
    (note,) = told["notes"]
    assert note == "port never had openai/rash: counted as if it wrote as much as openai/calm"


async def test_a_person_can_play_an_actor_at_the_terminal(harbour):
    path = harbour.folder / "scenarios" / "harbour" / "actors" / "ferry.yaml"
    path.write_text("name: Ferry Line\nshort_name: ferry\ncontrol: human\n")
    (path.parent.parent / "scenario.yaml").write_text(SCENARIO.replace("turns: 3", "turns: 2"))
    typed = "I sail at dawn.\n.\nACTION: I stay.\n.\n"

    done = await asyncio.to_thread(
        harbour.proctor, "scenario", "run", "scenarios/harbour", "--output", "played", stdin=typed
    )

    assert done.returncode == 0, done.stderr
    assert "Decide what Ferry Line does" in done.stderr
    assert "secret of port" not in done.stderr
    played = harbour.folder / "played" / "runs" / "var-001-run-001"
    assert "I sail at dawn." in (played / "actor-ferry-001.md").read_text()
    assert "I stay." in (played / "actor-ferry-002.md").read_text()


def failing_after(number):
    """As in the harbour, until so many calls were answered; then never again."""
    answered = []

    def answer(request):
        answered.append(request)
        return in_the_harbour(request) if len(answered) <= number else failure(400, "no more")

    return answer


def failing(*, at):
    """As in the harbour, but that calls of these numbers are answered with nothing."""
    asked = []

    def answer(request):
        asked.append(request)
        return reply(" ") if len(asked) in at else in_the_harbour(request)

    return answer
