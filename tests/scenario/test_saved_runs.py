"""A run is written to its folder, read from it, and summed up; paths name the values of its scenario."""

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from stage import PLAIN, Stage

from proctor.errors import WorkspaceError
from proctor.json_values import changed
from proctor.scenario.definition import NoSuchPath, Validation, Variable, check_path, flattened, scenario_of
from proctor.scenario.prompts import Prompts, fault_of, run_seed, seed_of
from proctor.scenario.run_files import documents, is_intact, read_run, state_document, write_run
from proctor.scenario.state import (
    Decision,
    Issue,
    PrivateTalk,
    ScenarioCall,
    ScenarioRun,
    ScenarioTurn,
    verdicts_of,
)
from proctor.scenario.validation import halting
from proctor.scenario.world import has_value, rule_problems
from proctor.score import Score
from recorded_files import check

CALL = ScenarioCall(
    who="port", purpose="decision", model="m", turn=1, input_tokens=10, output_tokens=2, cost_usd=0.25
)
TALK = PrivateTalk(
    kind="bilateral",
    participants=("port", "ferry"),
    messages=(("port", "hello"), ("ferry", "hi")),
    purpose="fees",
    outcome="formed",
    notes={"port": "be careful"},
)


def turn(number: int, **changes: Any) -> ScenarioTurn:
    values: dict[str, Any] = {
        "number": number,
        "world_state": f"state {number}",
        "decisions": {"port": Decision(action=f"act {number}"), "ferry": Decision(action="wait")},
        "key_changes": "the fee",
        "consequences": "less traffic",
        "metrics": {"trust": number, "mood": "low", "gap": None},
        "calls": (CALL,),
        "started_at": f"s{number}",
        "ended_at": f"e{number}",
    }
    return ScenarioTurn(**{**values, **changes})


def run(*turns: ScenarioTurn, **changes: Any) -> ScenarioRun:
    values: dict[str, Any] = {
        "item_id": "i",
        "label": "var-002-run-003",
        "seed": 5,
        "total_turns": 4,
        "started_at": "s0",
    }
    return ScenarioRun(**{**values, "turns": turns, **changes})


def scenario(**changes: Any) -> Any:
    return scenario_of({**PLAIN, **changes})


FULL = run(
    turn(
        1,
        talks=(TALK,),
        issues=(Issue(check="c", severity="low", actor="", text="a  b\nc"),),
        checks_unread=1,
        checks_run=2,
    ),
    turn(
        2,
        notes=("note  it",),
        metrics={"trust": 9},
        calls=(replace(CALL, who="narrator", turn=2, cost_usd=1.0),),
    ),
    status="completed",
    reason="ended early",
    error="why\nnot",
    variation="fees=high",
    variation_id=2,
    ended_at="e9",
    lost_calls=(replace(CALL, turn=3, cost_usd=None),),
    judge_calls=(replace(CALL, who="evaluators", turn=4),),
    scores={"Builtin.Help": 0.5, "label": "good"},
)


def test_the_files_of_runs_are_as_recorded() -> None:
    plain = turn(1, key_changes="", consequences="", variables={"fee": 3})
    runs = {"finished": FULL, "under way": run(plain), "not begun": run(status="completed", ended_at="e")}
    texts = {name: documents(scenario(turn_duration="2 weeks"), one) for name, one in runs.items()}
    check(
        Path(__file__).parent / "recorded" / "run-files.txt",
        {
            name: {
                "scenario-state.json": state_document(scenario(turn_duration="2 weeks"), runs[name]),
                **{
                    file: json.loads(text) if file.endswith(".json") else text.splitlines()
                    for file, text in sorted(files.items())
                },
            }
            for name, files in texts.items()
        },
    )
    later = documents(scenario(), FULL, since=2)
    assert "world-state-002.md" in later and "world-state-001.md" not in later


def test_a_run_comes_back_from_its_folder_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "run"
    write_run(folder, scenario(), FULL)
    assert read_run(folder) == FULL and is_intact(folder, FULL)
    assert not [file for file in folder.iterdir() if file.name.startswith(".")]
    assert (folder / "world-state-002.md").is_file()
    (folder / "world-state-002.md").write_text("")
    assert not is_intact(folder, FULL) and is_intact(folder, FULL, whole=False)
    (folder / "costs.json").write_text("{")
    assert not is_intact(folder, FULL, whole=False)


def test_without_texts_only_figures_and_a_state_without_texts_are_written(tmp_path: Path) -> None:
    write_run(tmp_path, scenario(), FULL, whole=False)
    names = {file.name for file in tmp_path.iterdir()}
    assert names == {"metrics.json", "costs.json", "scenario.log", "scenario-state.json"}
    slim = read_run(tmp_path)
    assert slim is not None and [each.world_state for each in slim.turns] == ["", ""]
    assert slim.turns[0].talks == () and slim.turns[0].metrics == {"trust": 1, "mood": "low", "gap": None}
    assert slim.turns[0].decisions == {} and slim.turns[0].key_changes == ""
    # A run that may be resumed needs its texts.
    write_run(tmp_path, scenario(), replace(FULL, status="running"), whole=False)
    kept = read_run(tmp_path)
    assert kept is not None and kept.turns == FULL.turns


@pytest.mark.parametrize("text", ["", "{", "[]", '{"execution_metadata": {"format": 1}}'])
def test_a_foreign_state_is_none(tmp_path: Path, text: str) -> None:
    assert read_run(tmp_path) is None
    (tmp_path / "scenario-state.json").write_text(text)
    assert read_run(tmp_path) is None


def test_an_evaluator_has_one_value_in_a_run() -> None:
    scores = [
        Score(evaluator="a", value=1.0),
        Score(evaluator="a", value=2.0, label="x"),
        Score(evaluator="a"),
        Score(evaluator="b"),
        Score(evaluator="b", label="good"),
        Score(evaluator="c"),
    ]
    assert verdicts_of(scores) == {"a": 1.5, "b": "good", "c": None}


# --- Paths of a scenario ---

WHOLE = {**PLAIN, "metrics": {"trust": {"type": "integer"}}, "about": {"tag": "x"},
         "validation": {"checks": {"coherence": {"severity": "low"}}}}  # fmt: skip


@pytest.mark.parametrize(
    ("path", "name", "where"),
    [
        ("turn", "turn", "a scenario"),
        ("actors.prt", "prt", "`actors`"),
        ("actors.port.goal", "goal", "`actors.port`"),
        ("validation.check", "check", "`validation`"),
        ("validation.checks.x", "x", "`validation.checks`"),
        ("validation.checks.coherence.x", "x", "the check `coherence`"),
        ("turns.x", "x", "`turns`"),
        ("rooms.x", "x", "`rooms`"),
    ],
)
def test_a_path_that_cannot_exist_is_named_with_what_is_known(path: str, name: str, where: str) -> None:
    with pytest.raises(NoSuchPath) as raised:
        check_path(WHOLE, path)
    assert (raised.value.name, raised.value.where) == (name, where)
    if where == "`actors`":
        assert raised.value.known == ["port", "ferry"]


def test_values_are_changed_in_a_copy_and_flattened_by_path() -> None:
    original = copy.deepcopy(WHOLE)
    made = changed(WHOLE, {"actors.port.goals": ["x"], "turns": 9, "prompts.a.b": 1})
    assert original == WHOLE
    assert check_path(WHOLE, "validation.checks.coherence.severity")[-1] == "severity"
    assert (made["actors"]["port"]["goals"], made["turns"], made["prompts"]) == (["x"], 9, {"a": {"b": 1}})
    flat = flattened(
        {"a": {"b": 1, "long": "x" * 81, "short": "x" * 80}, "list": [1], "about": {"c": 2}, "about2": 3}
    )
    assert set(flat) == {"a.b", "a.long", "a.short", "list", "about2"}
    assert flat["a.short"] == "x" * 80 and flat["a.long"].startswith("sha256:") and len(flat["a.long"]) == 23
    assert flat["list"].startswith("sha256:")


def test_the_models_and_people_of_a_scenario() -> None:
    actors = {**PLAIN["actors"], "me": {"name": "Me", "short_name": "me", "control": "human"}}
    made = scenario(
        actors=actors,
        summarization_model="narrator",
        metrics={
            "a": {"method": "model", "model": "reader"},
            "b": {"model": "unused"},
            "c": {"method": "model"},
        },
        validation={"validation_model": "checker"},
    )
    assert made.models == ["model-port", "model-ferry", "narrator", "reader", "checker"]
    assert made.humans == ["me"]
    assert made.models_by_path["validation.validation_model"] == "checker"
    assert "metrics.b.model" not in made.models_by_path and "metrics.c.model" not in made.models_by_path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": " "}, "should not be empty"),
        ({"metrics": {"a": {"pattern": "("}}}, "not a valid regular expression"),
        ({"turn_duration": "two weeks"}, "a number and a unit"),
        ({"metrics": {"a": {"range": [2, 1]}}}, "two numbers, the smallest"),
        ({"metrics": {"a": {"range": [1]}}}, "two numbers, the smallest"),
        ({"turns": 0}, "greater than or equal to 1"),
        *(
            ({"rooms": {"hall": {"members": ["port", "ferry"], "turn_range": turns}}}, "should be two turns")
            for turns in ([3, 1], [0, 1], [1, 2, 3])
        ),
    ],
)
def test_a_value_that_a_scenario_cannot_have_is_described(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        scenario(**changes)


# --- Variables, rules and templates ---


@pytest.mark.parametrize(
    ("variable", "value", "possible"),
    [
        ({"type": "number", "range": [0, 5]}, 5.0, True),
        ({"type": "number", "range": [0, 5]}, 5.1, False),
        ({"type": "number"}, 1e9, True),
        ({"type": "integer"}, 2.5, False),
        ({"type": "boolean"}, True, True),
        ({"type": "number"}, True, False),
        ({"type": "text"}, "x", True),
        ({"type": "choice", "values": ["a", "b"]}, "b", True),
        ({"type": "choice", "values": ["a", "b"]}, "c", False),
        ({"type": "text"}, 3.0, False),
        ({"type": "boolean"}, None, False),
    ],
)
def test_the_values_that_a_variable_can_have(variable: dict[str, Any], value: Any, possible: bool) -> None:
    assert has_value(_variable(**variable), value) is possible


def _variable(**values: Any) -> Variable:
    lists = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    return Variable(**{"initial": 0, **lists})


def test_rules_that_cannot_be_computed_are_named_by_position() -> None:
    made = scenario(
        variables={"fee": {"type": "number", "initial": 1}},
        metrics={"trust": {"type": "integer"}},
        rules=[{"do": text} for text in ("fee = fee + 1", "fee = lost", "trust = 3")],
    )
    problems = rule_problems(made)
    assert [index for index, _ in problems] == [1, 2]
    assert "`trust` is a metric: only variables are set" in str(problems[1][1])


def test_templates_with_faults_are_described() -> None:
    assert fault_of("{{ a }}") is None
    line, message = fault_of("one\n{% if %}") or (0, "")
    assert line == 2 and message
    with pytest.raises(WorkspaceError, match="the prompt template `actor` cannot be rendered"):
        Prompts({"actor": "{{ a.b.c }}"}).render("actor")


def test_the_seed_of_a_run_is_the_same_in_every_variation_and_a_branch_keeps_its_own() -> None:
    seeds = {run_seed({"seed": seed}, repeat) for seed in (1, 2) for repeat in (1, 2)}
    assert len(seeds) == 4 and all(0 <= seed < 2**31 for seed in seeds)
    assert run_seed({"seed": 1, "branch": {"seed": 7}}, 2) == 7
    assert run_seed({"seed": 1, "branch": {}}, 2) == run_seed({"seed": 1}, 2) == seed_of(1, 2)
    assert seed_of("a", "b") != seed_of("b", "a")


# --- Metrics and checks ---


async def test_a_metric_of_actors_is_read_from_what_each_does() -> None:
    def answer(request: Any) -> str | None:
        return (
            f"ACTION: bid {7 if request.model == 'model-port' else 8}"
            if request.model != "narrator"
            else None
        )

    bid = {"type": "integer", "pattern": r"bid (\d+)"}
    stage = Stage(
        answer,
        metrics={
            "bid": {**bid, "actor_specific": True},
            "ports": {**bid, "actor": "Port Authority"},
            "ferrys": {**bid, "actor": "FERRY"},
        },
    )
    made = await stage.play()
    assert made.metrics == {"bid.port": 7, "bid.ferry": 8, "ports": 7, "ferrys": 8}


def _issue(severity: str) -> Issue:
    return Issue(check="c", severity=severity, actor="", text="t")


@pytest.mark.parametrize(
    ("rules", "severities", "reason"),
    [
        (None, ["critical"], ""),
        ({}, ["critical"], ""),
        ({"halt_on_critical": True}, ["low"], ""),
        ({"halt_on_critical": True}, ["low", "critical"], "c found an issue of severity critical: t"),
        ({"severity_thresholds": {"low": "halt"}}, ["low"], "c found an issue of severity low: t"),
        ({"max_issues_before_halt": 2}, ["low"], ""),
        ({"max_issues_before_halt": 2}, ["low", "low"], "the checks have found 2 issues, and 2 end the run"),
    ],
)
def test_issues_end_a_run_where_its_rules_say_so(rules: Any, severities: list[str], reason: str) -> None:
    validation = None if rules is None else Validation(**rules)
    assert halting(validation, [_issue(severity) for severity in severities]) == reason
