"""Experiments: what is foreseen, what is never written over, and what an analysis says of errors."""

import shutil

from harbours import SCENARIO, write_config

SCRIPT = "rules:\n  - reply: 'UPDATED STATE: cooperation level: 5'\n"


async def test_a_dry_run_of_a_resume_says_which_runs_would_be_new_and_why(harbour):
    config = write_config(harbour.folder, runs=1, parallel=2)
    await harbour.run("experiment", config)
    asked = len(harbour.server.requests)
    turns = "  - {type: scenario_parameter, parameter: turns, values: [3, 2]}"
    first = "variations:\n  - {type: actor_model, actor: port, values: [openai/calm, openai/rash]}\n"
    write_config(harbour.folder, runs=1, more=first + turns)

    told = await harbour.run("experiment", config, "--resume", "--dry-run")

    assert told["resume"]["new"] == ["var-003-run-001", "var-004-run-001"]
    assert told["resume"]["reasons"] == {"turns": 2}
    described = {one["variation_id"]: one["description"] for one in told["variations"]}
    assert described[3] == "port=calm, turns=2", "numbered as the resumed experiment would be"
    assert len(harbour.server.requests) == asked
    done = await harbour.run("experiment", config, "--resume")
    assert done["itemCount"] == 4 and (harbour.output / "runs" / "var-004-run-001").is_dir()


async def test_the_analysis_of_one_metric_leaves_that_of_all_alone(harbour):
    metrics = harbour.folder / "scenarios" / "harbour" / "metrics.yaml"
    metrics.write_text(
        metrics.read_text() + "  acts: {type: int, keywords: [level], description: how often}\n"
    )
    await harbour.run("experiment", write_config(harbour.folder, runs=1))
    whole = harbour.file("analysis/metrics-analysis.json")

    await harbour.run("analyze", "experiments/fees", "--metric", "acts", "--report")

    assert set(whole) == {"acts", "cooperation_level"}
    assert harbour.file("analysis/metrics-analysis.json") == whole
    assert set(harbour.file("analysis/only-acts/metrics-analysis.json")) == {"acts"}
    assert (harbour.output / "analysis" / "only-acts" / "analysis-report.html").is_file()


async def test_a_branch_is_never_written_over_another_experiment(harbour):
    await harbour.run("experiment", write_config(harbour.folder, more="variations: []"))
    run = "experiments/fees/runs/var-001-run-001"
    await harbour.run("scenario", "branch", run, "--at-turn", "2", "--output", "branched")
    before = (harbour.folder / "branched" / "batch-state.json").read_text()

    for output in ("branched", "experiments/fees"):
        done = harbour.proctor("scenario", "branch", run, "--at-turn", "1", "--output", output)

        assert done.returncode == 2
        assert "already holds an experiment" in done.stderr
    assert (harbour.folder / "branched" / "batch-state.json").read_text() == before


async def test_scripts_may_stand_below_definition_like_everything_else(harbour):
    root, nested = harbour.folder / "scenarios" / "harbour", harbour.folder / "scenarios" / "nested"
    shutil.copytree(root, nested / "definition")
    main = nested / "definition" / "scenario.yaml"
    main.write_text(SCENARIO.replace("openai/narrator", "scripted/teller"))
    (nested / "definition" / "teller.yaml").write_text(SCRIPT)

    await harbour.run("scenario", "run", "scenarios/nested", "--output", "played")

    state = (harbour.folder / "played" / "runs" / "var-001-run-001" / "world-state-003.md").read_text()
    assert "cooperation level: 5" in state
