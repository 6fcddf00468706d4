"""What an experiment takes from its config, where it looks for files, and single runs and branches of it."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from scenario_folders import FERRY, SCENARIO, write_scenario

from proctor.errors import PlanError, UsageError
from proctor.jobs.scenario import estimate
from proctor.jobs.scenario.experiment import (
    Experiment,
    ExperimentOverrides,
    original_folder,
    read_config,
    read_experiment,
    slug_of,
)
from proctor.jobs.scenario.job import BranchPoint, as_experiment, branch_plan, config_of, parse_changes
from proctor.jobs.scenario.reader import read_scenario
from proctor.scenario.state import ScenarioCall, ScenarioRun, ScenarioTurn
from recorded_files import check

HEAD = "experiment_name: Fee Study\nbase_scenario: harbour\n"


def read(folder: Path, text: str = "", **limits: Any) -> Experiment:
    write_scenario(folder / "harbour")
    return read_experiment(
        HEAD + text,
        path=folder / "config.yaml",
        working_folder=folder,
        overrides=ExperimentOverrides(**limits).settings(),
    )


def refused(folder: Path, text: str, **given: Any) -> list[str]:
    with pytest.raises(PlanError) as error:
        read_experiment(text, path=folder / "config.yaml", working_folder=folder, **given)
    return [f"{each.at}: {each.problem} | {each.remedy}" for each in error.value.problems]


CONFIG = """\
description: About fees.
seed: 7
runs_per_variation: 3
max_parallel: 2
budget_limit: 5
cost_per_run_limit: 0.5
on_run_limit: fail
timeout_per_run: 60
retries: 0
save_individual_runs: false
aggregate_metrics: false
human: web
notify: mine
evaluators: [Builtin.Helpfulness]
branch: {turn: 2}
"""


def test_what_an_experiment_has_from_its_config_is_as_recorded(tmp_path: Path) -> None:
    experiments = {"defaults": read(tmp_path), "settings": read(tmp_path, CONFIG)}
    read_of = {}
    for name, one in experiments.items():
        first, *others = one.items()
        options = json.loads(str(one.columns["optionsJson"]))
        columns = ("defaultsJson", "concurrency", "seed", "budgetUsd")
        read_of[name] = {
            "columns": {key: one.columns[key] for key in columns},
            "options": {key: value for key, value in options.items() if key != "scenario"},
            "settings": {**first.settings, "scenarioDigest": "…"},
            "details": {key: first.details.get(key) for key in ("seed", "branch")},
            "factors": first.factors,
            "others": [(item.repeat, item.settings["label"]) for item in others],
            "of the experiment": {
                "name": one.name,
                "runs": one.run_count,
                "parallel": one.max_parallel,
                "budget": (one.budget_usd, one.cost_per_run_usd),
                "human": one.human,
                "aggregates": options["aggregateMetrics"],
                "output": one.output,
                "models": one.models,
            },
        }
        assert first.settings["scenarioDigest"] == one.scenario_digest
        assert (first.runner, first.prompt) == ("scenario", "Harbour Fee Talks")
    text = json.dumps(read_of, default=str).replace(str(tmp_path), "FOLDER")
    check(Path(__file__).parent / "recorded" / "experiments.txt", json.loads(text))


def test_limits_of_the_command_come_before_those_of_the_config(tmp_path: Path) -> None:
    limited = read(tmp_path, CONFIG, max_parallel=9, budget_limit=0.25, human="terminal")
    assert (limited.max_parallel, limited.budget_usd, limited.human) == (9, 0.25, "terminal")
    only_budget = next(read(tmp_path, "budget_limit: 1\n").items()).settings
    assert only_budget["oneCallAtATime"] is True and "budget" not in only_budget
    halting = next(read(tmp_path, "cost_per_run_limit: 1\n").items()).settings
    assert (halting["oneCallAtATime"], halting["haltAtLimit"]) == (True, True)


def test_people_have_no_time_limit_unless_the_config_sets_one(tmp_path: Path) -> None:
    people = {"actors/ferry.yaml": FERRY + "control: human\n"}
    write_scenario(tmp_path / "harbour", people)
    for text, expected in (("", None), ("timeout_per_run: 9\n", 9)):
        one = read_experiment(HEAD + text, path=tmp_path / "c.yaml", working_folder=tmp_path)
        assert next(one.items()).settings["timeoutSec"] == expected


def test_problems_of_a_config_without_a_usable_scenario_come_together(tmp_path: Path) -> None:
    (tmp_path / "harbour").mkdir()
    file = tmp_path / "config.yaml"
    assert refused(tmp_path, HEAD + "retries: many\n") == [
        f"{file}:2:16: {tmp_path}/harbour is no scenario: it has no scenario.yaml | "
        "Give the path of its folder.",
        f"{file}:3:10: `retries` of the config should be a whole number, not the text 'many' | ",
    ]
    with pytest.raises(UsageError, match=r"harbour is no scenario: it has no scenario\.yaml"):
        read_experiment(HEAD, path=file, working_folder=tmp_path)
    assert refused(tmp_path, "experiment_name: a\nbase_scenario: 5\n", file="plan") == [
        "plan:2:16: `base_scenario` of the config should be text, not the number 5 | Put it in quotes."
    ]
    assert refused(tmp_path, "[1]", file="plan")[0].startswith("plan:1:1: ")
    assert refused(tmp_path, HEAD.replace("harbour", "lost"), file="plan") == [
        f"plan:2:16: there is no folder lost | It was looked for in {tmp_path}, in {tmp_path} and above."
    ]


def test_two_variations_of_the_same_scenario_are_refused(tmp_path: Path) -> None:
    write_scenario(tmp_path / "harbour")
    text = HEAD + (
        "variations:\n- {type: actor_model, actor: port, values: [scripted/ok, scripted/echo]}\n"
        "- {type: scenario_parameter, parameter: actors.port, "
        "values: [{name: P, short_name: port, llm_model: a/b}]}\n"
    )
    (problem,) = refused(tmp_path, text, file="plan")
    assert problem.startswith("plan:4:1: `port=ok, actors.port={")
    assert "` and `port=echo, actors.port={" in problem
    assert problem.endswith("` are the same scenario | Remove one of the values.")


def test_a_model_of_an_evaluator_is_reported_where_it_is_named(tmp_path: Path) -> None:
    text = (
        "judge_model: openai/judge\n"
        "evaluators:\n- Builtin.Helpfulness\n- {name: Builtin.Correctness, model: openai/own}\n"
    )
    one = read(tmp_path, text)
    file = tmp_path / "config.yaml"
    assert one.models == ["scripted/echo", "scripted/ok", "openai/judge", "openai/own"]
    assert str(one.model_problem("openai/own", "it is missing").at) == f"{file}:6:38"
    assert str(one.model_problem("openai/judge", "it is missing").at) == f"{file}:3:14"
    scenario = tmp_path / "harbour" / "scenario.yaml"
    problem = one.model_problem("openai/other", "it is missing", "Get it.")
    assert (str(problem.at), problem.problem) == (f"{scenario}:10:20", "it is missing")
    assert problem.remedy == "Get it."


def test_paths_start_in_the_working_folder_or_beside_the_config_or_above(tmp_path: Path) -> None:
    config = tmp_path / "a" / "b" / "config.yaml"
    work = tmp_path / "work"
    work.mkdir()
    write_scenario(tmp_path / "a" / "harbour")
    one = read_experiment(HEAD, path=config, working_folder=work)
    assert one.output == tmp_path / "a" / "experiments" / "fee-study"
    assert one.bases[:4] == (work, config.parent, tmp_path / "a", tmp_path)
    write_scenario(work / "harbour")
    assert (
        read_experiment(HEAD, path=config, working_folder=work).output == work / "experiments" / "fee-study"
    )
    own = read_experiment(HEAD + "output_dir: out\n", path=config, working_folder=work)
    assert own.output == work / "out"
    (config.parent).mkdir()
    (config.parent / "batch-state.json").write_text("{}")
    assert read_experiment(HEAD, path=config, working_folder=work).output == config.parent
    (work / "out").mkdir()
    assert (
        read_experiment(HEAD + "output_dir: out\n", path=config, working_folder=work).output == work / "out"
    )


def test_an_experiments_folder_has_a_copy_of_its_scenario(tmp_path: Path) -> None:
    folder = tmp_path / "moved"
    write_scenario(folder / "base-scenario")
    one = read_experiment(HEAD, path=folder / "batch-config.yaml", working_folder=tmp_path)
    assert one.loaded.folder == folder / "base-scenario"
    assert one.output == tmp_path / "experiments" / "fee-study"


def test_identical_runs_come_from_the_folder_of_an_experiment(tmp_path: Path) -> None:
    (tmp_path / "earlier" / "runs").mkdir(parents=True)
    assert read(tmp_path, "resume_from: earlier\n").resume_from == tmp_path / "earlier"
    (tmp_path / "earlier" / "runs").rmdir()
    assert refused(tmp_path, HEAD + "resume_from: earlier\n", file="plan") == [
        f"plan:3:14: {tmp_path}/earlier holds no runs | Give the folder of an experiment."
    ]


@pytest.mark.parametrize(
    ("name", "slug"),
    [("Fee Study", "fee-study"), ("--A  b!", "a-b"), ("???", "experiment"), ("x" * 70, "x" * 60)],
)
def test_names_in_paths(name: str, slug: str) -> None:
    assert slug_of(name) == slug


def test_configs_are_files_or_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "batch-config.yaml").write_text("a: 1")
    assert read_config(tmp_path) == read_config(tmp_path / "batch-config.yaml") == b"a: 1"
    with pytest.raises(UsageError, match=r"Give a YAML file\."):
        read_config(tmp_path / "none.yaml")
    (tmp_path / "x" / "harbour").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "x")
    config = tmp_path / "y" / "c.yaml"
    assert original_folder("harbour", config) == tmp_path / "x" / "harbour"
    assert original_folder("x", config) == tmp_path / "x"
    assert original_folder("none", config) is None


def test_variations_keep_the_numbers_they_had(tmp_path: Path) -> None:
    one = read(tmp_path, "variations: [{type: scenario_parameter, parameter: turns, values: [3, 6, 9]}]\n")
    digests = [item.digest for item in one.items()]
    numbers = {digests[0]: 4, digests[2]: 2}
    again = one.renumbered(numbers)
    variations = [(each.number, each.description) for each in again.variations]
    assert variations == [(2, "turns=9"), (4, "turns=3"), (5, "turns=6")]
    labels = [item.settings["label"] for item in one.items(numbers)]
    assert labels == ["var-004-run-001", "var-005-run-001", "var-002-run-001"]


# --- Single runs ---


def test_changes_are_paths_and_values() -> None:
    assert parse_changes(()) == {}
    changes = {"turns": 5, "name": "a=b", "system_prompt": "", "tags": [1, "x"]}
    assert parse_changes([" turns =5", "name=a=b", "system_prompt=", "tags=[1, x]"]) == changes
    for argument in ("turns", "=5", " =5"):
        with pytest.raises(
            UsageError, match=f"^`{argument}` is not a change\nWrite PATH=VALUE, such as turns=5"
        ):
            parse_changes([argument])


def test_a_scenario_by_itself_is_an_experiment_of_one_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_scenario(tmp_path / "harbour")
    one = as_experiment(Path("harbour"))
    assert (one.name, one.run_count, one.seed) == ("harbour", 1, 0)
    assert one.output == tmp_path / "harbour" / "runs"
    with pytest.raises(
        UsageError, match=r"^there is no lost\nGive the folder of a scenario or of an experiment"
    ):
        as_experiment(Path("lost"))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "batch-config.yaml").write_text(HEAD)
    assert as_experiment(Path("out")).name == "Fee Study"
    (tmp_path / "config.yaml").write_text(HEAD.replace("Fee Study", "Other"))
    assert as_experiment(Path("config.yaml")).name == "Other"
    text = config_of(Path("/x/base-scenario"), Path("/y/out"), {"turns": 5}, runs=2, seed=3, timeout=9)
    assert text == (
        "experiment_name: out\nbase_scenario: /x/base-scenario\noutput_dir: /y/out\nruns_per_variation: 2\n"
        "seed: 3\ntimeout_per_run: 9\nvariations:\n- type: scenario_parameter\n  parameter: turns\n"
        "  values:\n  - 5\n"
    )


def turn(number: int) -> ScenarioTurn:
    return ScenarioTurn(number=number, world_state="", decisions={}, calls=(call("m"),))


@pytest.fixture
def branch_point(tmp_path: Path) -> BranchPoint:
    turns = (turn(1), turn(2), turn(3))
    run = ScenarioRun(item_id="item", label="var-002-run-003", seed=5, total_turns=3, turns=turns)
    folder = write_scenario(tmp_path / "base-scenario")
    return BranchPoint(run=run, changes={"turns": 4}, scenario_folder=folder)


def test_a_branch_continues_a_run_after_a_turn(tmp_path: Path, branch_point: BranchPoint) -> None:
    plan = branch_plan(branch_point, tmp_path / "new", turn=2, changes={"system_prompt": "Hurry."})
    imported = plan.imported
    assert imported is not None and imported.source == "branch" and imported.folder == tmp_path / "new"
    (item,) = imported.items
    start = imported.runs[item.id]
    assert (start.item_id, start.label, start.status) == (item.id, "var-001-run-001", "halted")
    assert [(each.number, each.calls) for each in start.turns] == [(1, ()), (2, ())]
    assert item.settings["changes"] == {"turns": 4, "system_prompt": "Hurry."}
    assert item.details["branch"] == {"turn": 2, "seed": 5, "of": "item:var-002-run-003"}
    again = branch_plan(branch_point, tmp_path / "new", turn=3, changes={"turns": 6}, seed=0)
    (other,) = again.experiment.items()
    assert other.details["branch"] == {"turn": 3, "seed": 0, "of": "item:var-002-run-003"}
    assert other.settings["changes"] == {"turns": 6}
    with pytest.raises(UsageError, match=r"^that run has finished 3 turns, so it cannot branch at turn 4$"):
        branch_plan(branch_point, tmp_path / "new", turn=4, changes={})


async def test_the_calls_of_a_run_are_counted_with_actors_that_talk_and_that_do_not(tmp_path: Path) -> None:
    rules = "checks: {world_state_coherence: true}\nvalidation_model: scripted/ok\n"
    text = SCENARIO.replace("enable_coalition_formation: false", "enable_coalition_formation: true")
    metrics = "metrics: {mood: {type: str, method: model, model: scripted/ok}}\n"
    folder = write_scenario(
        tmp_path,
        {
            "scenario.yaml": text.replace("[port, ferry]", "[port, ferry, mayor]"),
            "actors/mayor.yaml": FERRY.replace("Ferry Line", "Mayor").replace("ferry", "mayor"),
            "metrics.yaml": metrics,
            "exogenous-events.yaml": None,
            "validation-rules.yaml": rules,
        },
    )
    scenario = read_scenario(folder).scenario

    async def counted(talkative: bool) -> dict[str, tuple[int, int]]:
        """By purpose: how many calls there are, and the tokens of output of the last one."""
        calls = await estimate.count_calls(scenario, talkative=talkative)
        numbers = Counter(call.purpose for call in calls)
        return {call.purpose: (numbers[call.purpose], call.output_tokens) for call in calls}

    always = {"decision": (9, 343), "mood": (3, 1), "world state": (3, 708), "world_state_coherence": (3, 6)}
    assert await counted(False) == {**always, "private talk": (9, 105), "coalition": (9, 63)}
    assert await counted(True) == {
        **always,
        "private talk": (18, 106),
        "answer in a private talk": (18, 343),
        "coalition": (3, 64),
        "answer to a coalition": (6, 75),
        "word to a coalition": (9, 343),
    }


def call(model: str) -> ScenarioCall:
    return ScenarioCall(who="port", purpose="decision", model=model, turn=1, input_tokens=3, output_tokens=4)
