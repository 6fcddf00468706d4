"""Settings that a job refuses, and what it makes of those it takes."""

from pathlib import Path
from typing import Any

import pytest

from proctor.errors import UsageError
from proctor.job import plan_schema
from proctor.jobs.coding.plan import Overrides
from proctor.jobs.dialogue.world import read_policy, read_tasks, read_tools, read_world
from proctor.jobs.evaluation.prepare import stored_dataset
from proctor.jobs.evaluation.request import named
from proctor.jobs.imported.job import ImportedJob
from proctor.jobs.scenario.estimate import summed_costs, summed_expectations


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"timeout_sec": 0}, "`timeoutSec` should be more than 0, not the number 0"),
        ({"timeout_sec": -1.5}, "`timeoutSec` should be more than 0, not the number -1.5"),
        ({"timeout_sec": float("inf")}, "`timeoutSec` should be a finite number, not the number inf"),
        ({"retries": -1}, "`retries` should be at least 0, not the number -1"),
        ({"budget": 0}, "`budget` should be more than 0, not the number 0"),
        ({"budget": float("nan")}, "`budget` should be a finite number, not the number nan"),
        ({"model": " "}, "`model` should not be empty"),
        ({"agent": ""}, "`agent` should not be empty"),
        ({"concurrency": "two"}, "`concurrency` should be a whole number, not the text 'two'"),
    ],
)
def test_an_option_out_of_range_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        Overrides(**settings)
    assert str(refused.value) == message


def test_options_at_the_end_of_their_range_are_taken() -> None:
    options = Overrides(timeout_sec=0.001, retries=0, budget=0.01, model="m", agent="a", concurrency=1)
    defaults = options.defaults
    assert (defaults["model"], defaults["agent"], defaults["timeoutSec"]) == ("m", "a", 0.001)
    assert defaults["retries"] == 0


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


def test_evaluators_and_insights_are_named_as_text_or_by_their_id() -> None:
    document = {"evaluators": ["a", {"evaluatorId": "b"}], "insights": [{"insightId": "c"}]}
    assert (named(document, "evaluators"), named(document, "insights")) == (["a", "b"], ["c"])
    assert named({}, "evaluators") == []


def test_a_dataset_of_the_store_needs_a_store() -> None:
    with pytest.raises(UsageError, match="dataset:d needs a store, and there is none here"):
        stored_dataset(None, "dataset:d")


def test_an_imported_run_has_no_plan() -> None:
    job = ImportedJob()
    with pytest.raises(UsageError, match="an imported run has no plan"):
        job.read(None, None, None)  # type: ignore[arg-type]
    assert plan_schema(job) == {"not": {}}


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
