"""Settings that a job refuses, and what it makes of those it takes."""

from pathlib import Path
from typing import Any

import pytest

from proctor.cli.evaluate import _narrowed
from proctor.errors import UsageError
from proctor.jobs.benchmark.plan import AgentChoice, agent_choices
from proctor.jobs.coding.plan import Overrides
from proctor.jobs.coding.schema import (
    _is_command,
    _is_run_id,
    _is_script,
    _is_variable,
    is_grid_of_commands,
)
from proctor.jobs.dialogue.world import read_policy, read_tasks, read_tools, read_world
from proctor.jobs.evaluation.prepare import stored_dataset
from proctor.jobs.evaluation.request import _sessions, named
from proctor.jobs.imported.job import ImportedJob
from proctor.jobs.scenario.single import summed_costs, summed_expectations


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"timeout_sec": 0}, "the timeout should be more than 0 seconds, not 0"),
        ({"timeout_sec": -1.5}, "the timeout should be more than 0 seconds, not -1.5"),
        ({"timeout_sec": float("inf")}, "the timeout should be more than 0 seconds, not inf"),
        ({"timeout_sec": float("nan")}, "the timeout should be more than 0 seconds, not nan"),
        ({"retries": -1}, "the retries should be at least 0, not -1"),
        ({"budget_usd": 0}, "the budget should be more than 0 dollars, not 0"),
        ({"model": " "}, "the model's name should not be empty"),
        ({"agent": ""}, "the agent's name should not be empty"),
    ],
)
def test_an_option_out_of_range_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        Overrides(**settings)
    assert str(refused.value) == message


def test_options_at_the_end_of_their_range_are_taken() -> None:
    options = Overrides(timeout_sec=0.001, retries=0, budget_usd=0.01, model="m", agent="a", concurrency=1)
    defaults = options.as_defaults()
    assert (defaults["model"], defaults["agent"], defaults["timeoutSec"], defaults["retries"]) == (
        "m",
        "a",
        0.001,
        0,
    )


def test_agents_are_names_or_programs_of_one_name() -> None:
    assert agent_choices(" a, b,,a ") == (
        AgentChoice(name="a", agent="a"),
        AgentChoice(name="b", agent="b"),
    )
    program, other = agent_choices(["mine = run --it=1", "c"])
    assert (program.name, program.agent, program.command) == ("mine", "command", "run --it=1")
    assert program.settings == {"command": "run --it=1"} and other.settings == {}
    for entry in ("=x", "a=", "a,b=x"):
        with pytest.raises(UsageError, match=f"`{entry}` is not a valid agent"):
            agent_choices([entry])


def test_names_of_runs_and_variables() -> None:
    for value in ("a", "A-1_b.c", "a" * 128):
        assert _is_run_id(value) == value
    for value in ("", ".a", "-a", "a b", "a" * 129, "a/b"):
        with pytest.raises(ValueError, match="should be 1 to 128 letters"):
            _is_run_id(value)
    assert _is_variable("A") == "A"
    for value in ("", "A=B"):
        with pytest.raises(ValueError, match="no environment variable can have"):
            _is_variable(value)


def test_commands_are_a_line_or_words_or_several_of_them() -> None:
    for value in ("make test", ["make", "test"], [["a"], ["b", ""]], [["a"], "b"]):
        assert _is_command(value) is value
    for value in ("", " ", [], [" ", "a"], ["a", 1], [["a"], []], [["a"], [1]]):
        with pytest.raises(ValueError, match="should be a command line, a list of words"):
            _is_command(value)
    assert [is_grid_of_commands(value) for value in ("a", ["a"], [["a"]], ["a", ["b"]])] == [
        False,
        False,
        True,
        True,
    ]
    for script in ("file", ["x"], {"a": 1}):
        assert _is_script(script) is script
    for script in ("", [], {}, 5, None):  # type: ignore[assignment]
        with pytest.raises(ValueError, match="should be a file's path, or the steps themselves"):
            _is_script(script)


# Worlds of dialogues


def test_names_of_tools_and_tasks_are_unique(tmp_path: Path) -> None:
    tool = {"name": "look", "description": "d", "parameters": {}}
    with pytest.raises(UsageError, match="two tools are called `look`"):
        read_tools([tool, tool], tmp_path)
    with pytest.raises(UsageError, match="two tasks are called `one`"):
        read_tasks([{"name": "One", "goal": "g"}, {"name": "oNE", "goal": "g"}], tmp_path)


def test_policies_and_worlds_are_written_out_or_in_files(tmp_path: Path) -> None:
    (tmp_path / "policy.md").write_text("Be kind.")
    (tmp_path / "world.yaml").write_text("a: 1")
    (tmp_path / "list.yaml").write_text("- 1")
    assert read_policy("policy.md", tmp_path) == "Be kind."
    for text in ("Read policy", "Read\npolicy.md"):
        assert read_policy(text, tmp_path) == text
    assert read_world("world.yaml", tmp_path) == read_world({"a": 1}, tmp_path) == {"a": 1}
    with pytest.raises(UsageError, match=r"list\.yaml: the state of a world is a mapping"):
        read_world("list.yaml", tmp_path)


# Evaluations


def test_sessions_come_from_one_source() -> None:
    for config in ({}, {"store": None}, {"store": {}, "files": {"paths": ["a"]}}):
        with pytest.raises(UsageError, match="the source of sessions should be one of"):
            _sessions(config, None)
    with pytest.raises(UsageError, match="there is no source of sessions called tape"):
        _sessions({"tape": {}}, None)
    with pytest.raises(UsageError, match="online configurations are known to `proctor serve` only"):
        _sessions({"onlineEvaluationConfigSource": {"onlineEvaluationConfigArn": "a"}}, None)
    files: Any = _sessions({"files": {"paths": ["a"], "sessionIds": ["s"]}, "store": None}, None)
    assert (files.paths, files.kind, files.session_ids) == (("a",), "auto", ("s",))
    kinds: Any = _sessions({"files": {"paths": ["a"], "kind": "otlp"}}, None)
    assert kinds.kind == "otlp"
    own: Any = _sessions({"store": {"runIds": ["r"]}}, None)
    assert (own.run_ids, own.jobs, own.excluded_jobs) == (("r",), (), ("evaluation",))
    evaluations: Any = _sessions({"store": {"jobs": ["evaluation"]}}, None)
    assert evaluations.excluded_jobs == ()


def test_evaluators_and_insights_are_named_as_text_or_by_their_id() -> None:
    document = {"evaluators": ["a", {"evaluatorId": "b"}], "insights": [{"insightId": "c"}]}
    assert (named(document, "evaluators"), named(document, "insights")) == (["a", "b"], ["c"])
    assert named({}, "evaluators") == []


def test_flags_narrow_the_source_of_a_plan() -> None:
    assert _narrowed({"store": {"runIds": ["r"]}}, [], {}) == {}
    period = {"endTime": "e"}
    assert _narrowed({"store": {"runIds": ["r"], "timeRange": {"startTime": "s"}}}, ["x"], period) == {
        "store": {"runIds": ["r"], "sessionIds": ["x"], "timeRange": {"startTime": "s", "endTime": "e"}}
    }
    logs = {"logGroupNames": ["g"], "filterConfig": {"sessionTraceIds": [1], "other": 2}}
    narrowed: Any = _narrowed({"cloudWatchLogs": logs}, ["x"], {})
    assert narrowed["cloudWatchLogs"]["logGroupNames"] == ["g"]
    assert narrowed["cloudWatchLogs"]["filterConfig"] == {"other": 2, "sessionIds": ["x"]}
    with pytest.raises(UsageError, match="--session-id does not apply to an online configuration"):
        _narrowed({"onlineEvaluationConfigSource": {}}, ["x"], {})


def test_a_dataset_of_the_store_needs_a_store() -> None:
    with pytest.raises(UsageError, match="dataset:d needs a store, and there is none here"):
        stored_dataset(None, "dataset:d")


def test_an_imported_run_has_no_plan() -> None:
    job = ImportedJob()
    with pytest.raises(UsageError, match="an imported run has no plan"):
        job.read(None, None, None)  # type: ignore[arg-type]
    assert job.schema() == {"not": {}}


# Estimates of scenarios


def test_costs_of_all_runs_are_known_only_if_each_is() -> None:
    rows = [{"cost_usd": [1.0, 2.0]}, {"cost_usd": [0.5, 3.0]}]
    assert summed_costs(rows, 4) == [6.0, 20.0]
    assert summed_costs([*rows, {"cost_usd": None}], 4) is None


def expectation(runs: int, mean: float | None, note: str) -> dict[str, Any]:
    one = {"mean": mean, "low": 1.0, "high": 4.0}
    figures = {"calls": one, "tokens": one, "cost_usd": one}
    return {"from_earlier_runs": {"runs": runs, "all_runs": figures, "notes": [note, "b"]}}


def test_expectations_of_variations_are_added_end_by_end() -> None:
    total = summed_expectations([expectation(2, 2.0, "a"), expectation(5, 3.0, "a")])
    assert total is not None and (total["runs"], total["notes"]) == (5, ["a", "b"])
    assert total["calls"] == total["tokens"] == total["cost_usd"] == {"mean": 5.0, "low": 2.0, "high": 8.0}
    unknown = summed_expectations([expectation(2, None, "a"), expectation(5, 3.0, "a")])
    assert unknown is not None and unknown["calls"] == {"mean": None, "low": 2.0, "high": 8.0}
    assert summed_expectations([expectation(2, 2.0, "a"), {"from_earlier_runs": None}]) is None
