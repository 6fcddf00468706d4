"""Scenario experiments through the library: the same order of events as on the command line."""

import json

import pytest

from proctor.batch import lifecycle
from proctor.bootstrap import open_context
from proctor.errors import PlanError, UsageError
from proctor.job import PlanText, make_overrides
from proctor.jobs import recognize
from proctor.jobs.scenario.experiment import ExperimentOverrides
from proctor.jobs.scenario.job import JOB

CONFIG = """\
experiment_name: Fee study
base_scenario: scenario
output_dir: out
runs_per_variation: 2
variations: [{type: scenario_parameter, parameter: turns, values: [1, 2]}]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a scenario of two actors on scripted models."""
    actors = tmp_path / "scenario" / "actors"
    actors.mkdir(parents=True)
    (tmp_path / "scenario" / "scenario.yaml").write_text(
        "name: Harbor\ninitial_world_state: Spring\nturns: 2\nworld_state_model: scripted/world\n"
    )
    for short in ("port", "ferry"):
        (actors / f"{short}.yaml").write_text(
            f"name: The {short}\nshort_name: {short}\nllm_model: scripted/act\n"
        )
    (tmp_path / "scenario" / "world.yaml").write_text("rules: [{reply: 'UPDATED STATE: summer'}]\n")
    (tmp_path / "scenario" / "act.yaml").write_text("rules: [{reply: 'ACTION: waits'}]\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def ctx(folder):
    """A context with a store of its own."""
    with open_context(home=str(folder / "home"), store=str(folder / "store.db")) as context:
        yield context


def read(ctx, folder, text=CONFIG, **overrides):
    """The plan of a config that is no file."""
    return JOB.read(PlanText(text=text, folder=folder), ExperimentOverrides(**overrides), ctx)


async def test_an_experiment_runs_and_its_folder_follows_the_store(ctx, folder):
    result = await lifecycle.start(JOB, read(ctx, folder, max_parallel=2), ctx)

    assert (result.end.status, result.summary["successCount"]) == ("completed", 4)
    assert result.summary["experiment"] == "Fee study"
    assert result.summary["output"] == str(folder / "out")
    state = json.loads((folder / "out" / "batch-state.json").read_text())
    assert (state["run_id"], state["status"]) == (result.run_id, "completed")
    assert len(state["completed_runs"]) == 4
    assert (folder / "out" / "analysis" / "patterns.json").is_file()
    assert ctx.store.read.batch(result.run_id, ctx.now())["concurrency"] == 2


async def test_a_resumed_experiment_keeps_the_numbers_of_its_variations(ctx, folder):
    first = await lifecycle.start(JOB, read(ctx, folder), ctx)
    plan = read(ctx, folder, CONFIG.replace("[1, 2]", "[3, 2, 1]"))
    run_id = JOB.earlier(plan, ctx)

    preview = lifecycle.preview(plan, ctx, run_id=run_id)
    await lifecycle.resume(JOB, run_id, ctx, plan=plan)

    assert run_id == first.run_id
    assert [item.settings["label"] for item in preview.extension.new] == [
        "var-003-run-001",
        "var-003-run-002",
    ]
    assert preview.extension.reasons == {"turns": 2}, "the models only follow from other fields"
    state = json.loads((folder / "out" / "batch-state.json").read_text())
    described = {one["variation_id"]: one["description"] for one in state["variations"]}
    assert described == {1: "turns=1", 2: "turns=2", 3: "turns=3"}
    assert "[1, 2]" in (folder / "out" / "batch-config.1.yaml").read_text()


async def test_a_new_run_never_overwrites_an_experiment_whatever_it_is_called(ctx, folder):
    await lifecycle.start(JOB, read(ctx, folder), ctx)

    with pytest.raises(UsageError, match="already holds an experiment"):
        await lifecycle.start(JOB, read(ctx, folder), ctx, run_id="another")

    with pytest.raises(UsageError):
        ctx.store.read.batch("another", ctx.now())


def test_everything_missing_is_reported_at_its_place(ctx, folder):
    text = CONFIG + "evaluators:\n  - checks.py:missing\n  - nowhere.yaml\nbudget_limit: 1\n"
    text = text.replace("variations:", "# the models\nvariations:").replace(
        "parameter: turns, values: [1, 2]", "parameter: actors.port.llm_model, values: [scripted/nobody]"
    )

    with pytest.raises(PlanError) as refused:
        lifecycle.preview(read(ctx, folder, text), ctx)

    problems = {(problem.at.file, problem.at.line): problem.problem for problem in refused.value.problems}
    assert set(problems) == {("plan", 6), ("plan", 8), ("plan", 9)}
    assert "nobody" in problems["plan", 6]


def test_the_page_and_the_library_name_the_same_settings():
    overrides = make_overrides(JOB, {"concurrency": 3, "budget": 2.5, "human": "web"})

    assert overrides == ExperimentOverrides(max_parallel=3, budget_usd=2.5, human="web")
    assert recognize(CONFIG) is JOB
