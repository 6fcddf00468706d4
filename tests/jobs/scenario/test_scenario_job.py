"""Scenario experiments through the library: the same order of events as on the command line."""

import json
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from proctor.api.comparing import power_of_runs
from proctor.batch import lifecycle
from proctor.batch.executor import Observer
from proctor.bootstrap import open_context
from proctor.cli.run import OutputOptions, exit_code
from proctor.cli.scenario import present
from proctor.errors import NotFound, PlanError, UsageError
from proctor.job import PlanText, make_overrides
from proctor.jobs import recognize
from proctor.jobs.scenario.analysis import BatchAnalyzer
from proctor.jobs.scenario.experiment import ExperimentOverrides
from proctor.jobs.scenario.job import JOB, find_branch_point, turns_of
from proctor.jobs.scenario.report import experiment_html, report_document
from proctor.report import as_markdown
from proctor.store import batches

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


def refused(ctx, folder, text):
    """The problems of a config, found when it is read or checked."""
    with pytest.raises(PlanError) as error:
        lifecycle.preview(read(ctx, folder, text), ctx)
    return error.value.problems


def places(problems):
    """The file and line of each problem."""
    return [(Path(problem.at.file).name, problem.at.line) for problem in problems]


async def test_the_power_of_an_experiment_counts_pairs_of_runs_and_not_variations(ctx, folder):
    config = CONFIG.replace("runs_per_variation: 2", "runs_per_variation: 7")
    started = await lifecycle.start(JOB, read(ctx, folder, config), ctx)

    analysis = power_of_runs(ctx, [started.run_id], detect=0.2)

    assert (analysis.tasks, analysis.unit, len(analysis.designs)) == (7, "pair of runs", 1)
    assert analysis.note.startswith("From turns = 1 and 2.") and "task" not in analysis.designs[0].note


async def test_names_given_later_are_those_of_the_files_and_no_run_is_new(ctx, folder):
    first = await lifecycle.start(JOB, read(ctx, folder), ctx)
    after = CONFIG.replace(
        "turns, values: [1, 2]", "turns, name: length, values: [{label: short, value: 1}, 2]"
    )
    plan = read(ctx, folder, after)

    assert lifecycle.preview(plan, ctx, run_id=first.run_id).extension.new == []
    await lifecycle.resume(JOB, first.run_id, ctx, plan=plan)

    rows = BatchAnalyzer(folder / "out").run_rows()
    assert [(row["variation"], row["length"]) for row in rows[1:3]] == [
        ("length=short", "short"),
        ("length=2", "2"),
    ]


METRICS = "metrics: {warmth: {type: int, extraction_method: regex, pattern: 'cold (\\d+)'}}\n"
WARM = METRICS.replace("cold", "warm")


def extracted(folder):
    """The last warmth of each run, in its files."""
    paths = sorted((folder / "out" / "runs").glob("*/metrics.json"))
    return [json.loads(path.read_text())["final_metrics"]["warmth"] for path in paths]


async def resume_with(ctx, folder, metrics):
    """Resume with these metrics; the number of new runs."""
    (folder / "scenario" / "metrics.yaml").write_text(metrics)
    plan = read(ctx, folder)
    run_id = JOB.earlier(plan, ctx)
    new = lifecycle.preview(plan, ctx, run_id=run_id).extension.new
    await lifecycle.resume(JOB, run_id, ctx, plan=plan)
    return len(new)


async def test_a_changed_pattern_makes_no_run_new_and_is_read_from_the_texts_of_finished_ones(ctx, folder):
    (folder / "scenario" / "world.yaml").write_text("rules: [{reply: 'UPDATED STATE: cold 3, warm 8'}]\n")
    (folder / "scenario" / "metrics.yaml").write_text(METRICS)
    await lifecycle.start(JOB, read(ctx, folder), ctx)

    assert extracted(folder) == [3, 3, 3, 3]
    assert await resume_with(ctx, folder, WARM) == 0
    assert extracted(folder) == [8, 8, 8, 8]
    assert set(BatchAnalyzer(folder / "out").study.levels) == {"turns"}


async def test_a_changed_pattern_makes_runs_new_that_it_steers(ctx, folder):
    scenario = folder / "scenario" / "scenario.yaml"
    scenario.write_text(scenario.read_text() + "scenario_length: {condition: {warmth: '> 5'}}\n")
    (folder / "scenario" / "metrics.yaml").write_text(METRICS)
    await lifecycle.start(JOB, read(ctx, folder), ctx)

    assert await resume_with(ctx, folder, WARM) == 4


BY_PATTERN = {
    "9f26e655c0cda5e26130e42ce708bab33acb40d225d74e919e5e3b87df144bcc": 1,
    "294007b3876c9a17e7fb1caa2c039f5f27115e632528157abe72cbea39368161": 2,
}
"""Digests of these variations in stores of versions that knew runs by their patterns as well."""


def test_runs_that_were_known_by_their_patterns_keep_their_items(ctx, folder):
    (folder / "scenario" / "metrics.yaml").write_text(METRICS)
    experiment = read(ctx, folder).experiment

    assert {item.digest for item in experiment.items(BY_PATTERN)} == set(BY_PATTERN)
    assert not {item.digest for item in experiment.items()} & set(BY_PATTERN)


# White box: the process must die between the commit of the run and its first file.
async def test_an_experiment_that_died_before_it_had_a_folder_is_resumed(ctx, folder, monkeypatch):
    class Killed(BaseException):
        """The process ended here."""

    def die(*_, **__):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("proctor.jobs.scenario.folder.ExperimentFolder.begin", die)
        with pytest.raises(Killed):
            await lifecycle.start(JOB, read(ctx, folder), ctx, run_id="dead")
    assert not (folder / "out").exists()
    ctx.store.change(batches.change, "dead", {"owner": "gone:1:1:x", "heartbeatAt": None})

    result = await lifecycle.resume(JOB, "dead", ctx)

    assert (result.end.status, result.summary["successCount"]) == ("completed", 4)
    assert (folder / "out" / "batch-state.json").is_file()


async def test_a_new_run_never_overwrites_an_experiment_whatever_it_is_called(ctx, folder):
    result = await lifecycle.start(JOB, read(ctx, folder, max_parallel=2), ctx)
    assert ctx.store.read.batch(result.run_id, ctx.now())["concurrency"] == 2
    assert (folder / "out" / "analysis" / "patterns.json").is_file()

    with pytest.raises(UsageError, match="already holds an experiment"):
        await lifecycle.start(JOB, read(ctx, folder), ctx, run_id="another")

    with pytest.raises(UsageError):
        ctx.store.read.batch("another", ctx.now())


def test_everything_missing_is_reported_at_its_place(ctx, folder):
    text = CONFIG + "evaluators:\n  - checks.py:missing\n  - nowhere.yaml\nbudget_limit: 1\n"
    text = text.replace("variations:", "# the models\nvariations:").replace(
        "parameter: turns, values: [1, 2]", "parameter: actors.port.llm_model, values: [scripted/nobody]"
    )

    problems = refused(ctx, folder, text)

    assert sorted(places(problems)) == [("plan", 6), ("plan", 8), ("plan", 9)]
    assert "nobody" in next(each.problem for each in problems if each.at.line == 6)


def test_the_page_and_the_library_name_the_same_settings():
    overrides = make_overrides(JOB, {"concurrency": 3, "budget": 2.5, "human": "web"})

    assert overrides == ExperimentOverrides(max_parallel=3, budget_limit=2.5, human="web")
    assert recognize(CONFIG) is JOB


class StoppingAtOnce(Observer):
    """Interrupts a run before its first item."""

    def watch(self, run_id, control):
        control.interrupt()
        return super().watch(run_id, control)


async def test_a_run_of_a_version_that_kept_the_scenario_in_a_file_resumes(ctx, folder):
    stopped = await lifecycle.start(JOB, read(ctx, folder), ctx, observer=StoppingAtOnce())
    with closing(sqlite3.connect(ctx.settings.store_url)) as database:
        database.execute('DELETE FROM "run_resources"')
        database.execute(
            """UPDATE "batch_items" SET "settings" = json_remove("settings", '$.scenarioDigest')"""
        )
        database.commit()

    resumed = await lifecycle.resume(JOB, stopped.run_id, ctx)

    assert (stopped.end.status, resumed.end.status) == ("interrupted", "completed")
    assert resumed.summary["successCount"] == 4


DIES_AFTER_THE_COMMIT = """\
import os, sys
from proctor.cli.main import main
from proctor.jobs.scenario.folder import ExperimentFolder

ExperimentFolder.item_finished = lambda folder, item: os._exit(9)
sys.argv = ["proctor", "experiment", "config.yaml", "--max-parallel", "1"]
main()
"""


async def test_a_driver_that_dies_after_the_commit_of_a_run_leaves_a_folder_that_a_resume_repairs(
    ctx, folder
):
    config = CONFIG.replace("[1, 2]", "[3, 1]")
    await lifecycle.start(JOB, read(ctx, folder, config.replace(": out", ": undisturbed")), ctx)
    (folder / "config.yaml").write_text(config)
    world = folder / "scenario" / "world.yaml"
    script = world.read_text()
    # So that the beginning of the run is written before its end.
    world.write_text(f"latency_seconds: 0.3\n{script}")
    environment = {
        **os.environ,
        "PROCTOR_HOME": str(folder / "home"),
        "PROCTOR_STORE": ctx.settings.store_url,
    }

    died = subprocess.run(
        [sys.executable, "-c", DIES_AFTER_THE_COMMIT], cwd=folder, env=environment, capture_output=True
    )

    world.write_text(script)
    run = folder / "out" / "runs" / "var-001-run-001"
    assert died.returncode == 9, died.stderr
    plan = read(ctx, folder, config)
    run_id = JOB.earlier(plan, ctx)
    assert run_id is not None
    assert ctx.store.read.totals(run_id)["counts"]["success"] == 1
    state = json.loads((run / "scenario-state.json").read_text())
    assert (state["status"], state["completed_turns"]) == ("running", [1, 2]), "turn by turn"

    resumed = await lifecycle.resume(JOB, run_id, ctx, plan=plan)

    assert (resumed.end.status, resumed.summary["successCount"]) == ("completed", 4)
    assert len(ctx.store.read.attempts(run_id, first_item(ctx, run_id))) == 1, "it is not run again"
    assert files_of(run) == files_of(folder / "undisturbed" / "runs" / run.name)


def first_item(ctx, run_id):
    """The id of the first item of a run."""
    return ctx.store.read.items(run_id, limit=1)[0]["id"]


def files_of(folder):
    """The files of a run, without times."""
    time = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
    return {path.name: time.sub("TIME", path.read_text()) for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("verdict", "counts", "code", "words"),
    [
        ("It depends.", {"run": 6, "issues": 0, "unread": 6}, 1, "6 checks, no verdict could be read"),
        ("VERDICT: pass", {"run": 6, "issues": 0, "unread": 0}, 0, "6 checks, 0 issues"),
    ],
)
async def test_verdicts_that_cannot_be_read_are_counted_wherever_the_run_is_reported(
    ctx, folder, capsys, verdict, counts, code, words
):
    (folder / "scenario" / "validation-rules.yaml").write_text(
        "validation_model: scripted/checker\nchecks: {world_state_coherence: true}\n"
    )
    (folder / "scenario" / "checker.yaml").write_text(f"rules: [{{reply: '{verdict}'}}]\n")

    result = await lifecycle.start(JOB, read(ctx, folder), ctx)
    present(ctx, result, OutputOptions())

    assert result.summary["checks"] == counts
    assert json.loads((folder / "out" / "batch-summary.json").read_text())["checks"] == counts
    assert exit_code(result.end, result.summary) == code
    assert words in capsys.readouterr().err
    analyzer = BatchAnalyzer(folder / "out")
    assert analyzer.identify_patterns()["checks"] == counts
    assert f"Checks of the scenario: {words}." in experiment_html(analyzer)
    assert f"Checks of the scenario: {words}." in as_markdown.render(report_document(analyzer))
    resumed = await lifecycle.resume(JOB, result.run_id, ctx)
    assert resumed.summary["checks"] == counts


@pytest.mark.parametrize(
    ("variations", "line"),
    [
        ("variations: {actor_models: {port: [scripted/nobody]}}", ("plan", 5)),
        ("variations: [{type: actor_model, actor: port, values: [scripted/act]}]", ("metrics.yaml", 1)),
        ("variations: [{type: scenario_parameter, parameter: actors.port.role, values: [scripted/nobody]}]",
         ("port.yaml", 3)),
    ],
)  # fmt: skip
def test_a_model_that_is_missing_is_reported_where_a_run_uses_it(ctx, folder, variations, line):
    port = folder / "scenario" / "actors" / "port.yaml"
    port.write_text(port.read_text().replace("scripted/act", "scripted/nobody"))
    (folder / "scenario" / "metrics.yaml").write_text(
        "metrics: {mood: {type: str, method: model, model: scripted/nobody}}\n"
    )
    text = CONFIG.replace(CONFIG.splitlines()[-1], variations)

    assert places(refused(ctx, folder, text)) == [line]


def test_errors_of_the_config_its_variations_and_the_scenario_come_together(ctx, folder):
    text = CONFIG.replace("turns, values: [1, 2]", "turns, values: [-1]") + (
        "max_paralel: 2\ncost_per_run_limit: much\nevaluators: [nobody]\n"
    )
    assert [line for _, line in places(refused(ctx, folder, text))] == [5, 6, 7, 8]

    (folder / "scenario" / "metrics.yaml").write_text("metrics: {a: {pattern: '('}}\n")
    text = CONFIG.replace("scenario_parameter", "scenario_parameters") + "max_paralel: 2\n"
    assert places(refused(ctx, folder, text)) == [("metrics.yaml", 1), ("plan", 5), ("plan", 6)]


async def test_damaged_files_of_runs_are_rebuilt_from_the_store(ctx, folder):
    result = await lifecycle.start(JOB, read(ctx, folder), ctx)
    runs = sorted((folder / "out" / "runs").iterdir())
    names = ("metrics.json", "costs.json", "scenario-state.json", "world-state-001.md")
    before = {run / name: (run / name).read_bytes() for run, name in zip(runs, names, strict=True)}
    for path, text in before.items():
        path.write_bytes(text[:40] if path.suffix == ".json" else b"")
    (folder / "out" / "batch-state.json").write_text('{"run_')

    notes = " ".join(BatchAnalyzer(folder / "out").identify_patterns()["notes"])
    plan = read(ctx, folder, CONFIG + "description: Changed.\n")
    resumed = await lifecycle.resume(JOB, JOB.earlier(plan, ctx), ctx, plan=plan)

    damaged = ", ".join(f"{path.parent.name}/{path.name}" for path in before if path.suffix == ".json")
    assert f"Damaged, and not in these figures: {damaged}." in notes
    assert {path: path.read_bytes() for path in before} == before
    assert (resumed.run_id, resumed.executed) == (result.run_id, False)


async def test_pauses_between_executions_do_not_count_as_time_of_the_experiment(ctx, folder):
    result = await lifecycle.start(JOB, read(ctx, folder), ctx)
    with closing(sqlite3.connect(folder / "store.db")) as store, store:
        store.execute("UPDATE batches SET \"createdAt\" = '2020-01-01T00:00:00.000Z'")

    resumed = await lifecycle.resume(JOB, result.run_id, ctx)

    assert resumed.summary["durationSec"] < 3600
    assert json.loads((folder / "out" / "batch-summary.json").read_text())["duration_seconds"] < 3600


@pytest.mark.parametrize(("setting", "is_refused"), [("", True), ("human: web\n", False)])
def test_a_person_at_the_terminal_answers_one_question_at_a_time(ctx, folder, setting, is_refused):
    port = folder / "scenario" / "actors" / "port.yaml"
    port.write_text(port.read_text() + "control: human\n")
    text = f"{CONFIG}max_parallel: 2\n{setting}"

    if not is_refused:
        lifecycle.preview(read(ctx, folder, text), ctx)
        return
    (problem,) = refused(ctx, folder, text)
    assert problem.at.line == 6
    assert problem.problem == "a person at the terminal can answer only one question at a time"
    assert problem.remedy == "Set `max_parallel: 1` or `human: web`, or give the actor a model."


async def test_a_run_branches_by_its_item_or_its_folder_and_shows_its_turns(ctx, folder):
    result = await lifecycle.start(JOB, read(ctx, folder), ctx)
    item = ctx.store.read.items(result.run_id)[-1]
    label = json.loads(item["settings"])["label"]

    by_item = find_branch_point(ctx.store, item["id"])
    by_folder = find_branch_point(ctx.store, str(folder / "out" / "runs" / label))

    assert by_item.changes == by_folder.changes == {"turns": 2}
    assert by_item.scenario_folder == by_folder.scenario_folder == folder / "out" / "base-scenario"
    assert len(by_item.run.turns) == len(by_folder.run.turns) == len(turns_of(item, ctx.store)) == 2
    for source, problem in (
        ("nobody", "there is no run nobody\nGive its folder, or the id that `proctor show` prints"),
        (str(folder), "holds no run\nGive a folder such as …/runs/var-001-run-001"),
    ):
        with pytest.raises(UsageError, match=problem):
            find_branch_point(ctx.store, source)
    (folder / "out" / "batch-state.json").write_text("[]")
    with pytest.raises(UsageError, match="out is not the folder of an experiment: "):
        find_branch_point(ctx.store, str(folder / "out" / "runs" / label))


async def test_the_page_and_the_analysis_of_an_experiment_need_its_folder(ctx, folder):
    result = await lifecycle.start(JOB, read(ctx, folder), ctx)
    assert JOB.documents(result.run_id, ctx).results() is not None
    assert "Fee study" in JOB.documents(result.run_id, ctx).analysis()

    (folder / "out").rename(folder / "moved")

    assert JOB.documents(result.run_id, ctx).results() is None
    with pytest.raises(NotFound, match="does not exist\nRestore it, or use the report"):
        JOB.documents(result.run_id, ctx).analysis()
    (folder / "out").write_text("")
    with pytest.raises(UsageError, match=r"cannot write to .*: File exists\nName another"):
        await lifecycle.start(JOB, read(ctx, folder), ctx, run_id="other")
