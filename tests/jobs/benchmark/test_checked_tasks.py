"""What a check of tasks says about them, and which results of other benchmarks can be read."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proctor.jobs.benchmark import plan as benchmark_plan
from proctor.jobs.benchmark.checking import CheckedTask, TaskChecks, _summary
from proctor.jobs.benchmark.models import _is_date, _is_name, _is_reference
from proctor.jobs.benchmark.results import COUNTS, NUMBERS, TEXTS, _runs_in, read_object


@pytest.mark.parametrize(
    ("members", "is_well", "note"),
    [
        ({"oracle": "pass", "noop": "fail"}, True, ""),
        ({"oracle": "none", "noop": "fail"}, True, "no reference solution"),
        ({"oracle": "fail", "noop": "fail"}, False, "the reference solution does not pass"),
        (
            {"oracle": "fail", "noop": "fail", "error": "exit 1"},
            False,
            "the reference solution does not pass: exit 1",
        ),
        ({"oracle": "flaky", "noop": "fail"}, False, "the check is flaky"),
        ({"oracle": "pass", "noop": "flaky"}, False, "the check is flaky"),
        ({"oracle": "pass", "noop": "pass"}, False, "passes without any work"),
        ({"oracle": "pass", "noop": "fail", "duplicate_of": "b"}, False, "the same as b"),
        (
            {"oracle": "none", "noop": "pass", "duplicate_of": "b"},
            False,
            "passes without any work; the same as b; no reference solution",
        ),
    ],
)
def test_a_task_is_well_if_its_check_tells_work_from_none(
    members: dict[str, Any], is_well: bool, note: str
) -> None:
    task = CheckedTask(task="a", **members)
    assert (task.is_well, task.note) == (is_well, note)
    good = CheckedTask(task="b", oracle="pass", noop="fail")
    checks = TaskChecks(tasks=(good, task), not_read=(), run_id="r")
    assert checks.is_well == is_well
    first, second = checks.document()["tasks"]
    assert first["duplicateOf"] is None and first["id"] == "b"
    assert (second["id"], second["oracle"], second["noop"]) == ("a", task.oracle, task.noop)
    assert second["duplicateOf"] == (task.duplicate_of or None)


@pytest.mark.parametrize(
    ("ends", "summary"),
    [(["success"], "pass"), (["fail", "fail"], "fail"), (["success", "fail"], "flaky")],
)
def test_runs_that_end_differently_are_flaky(ends: list[str], summary: str) -> None:
    assert _summary([(end, "") for end in ends]) == summary


def test_dates_of_prices_are_days_and_the_last_one_of_a_month() -> None:
    assert (_is_date("2024-06"), _is_date("2024-06-30")) == ("2024-06-31", "2024-06-30")
    for value in ("2024", "2024-6", "2024-06-3", "June 2024"):
        with pytest.raises(ValueError, match="should be a month or a day"):
            _is_date(value)


def test_names_of_models_and_keys() -> None:
    assert _is_name("a/B-1._:@+") == "a/B-1._:@+" and _is_name("a" * 256)
    for value in ("", "a b", "a" * 257):
        with pytest.raises(ValueError, match="should be 1 to 256 letters"):
            _is_name(value)
    assert _is_reference("${KEY}") == "${KEY}"
    for value in ("sk-123", "${KEY} ", "$KEY"):
        with pytest.raises(ValueError, match="should name the variable that holds the key"):
            _is_reference(value)


RUN: dict[str, Any] = (
    dict.fromkeys(TEXTS, "")
    | dict.fromkeys(COUNTS, 0)
    | dict.fromkeys(NUMBERS, 1.5)
    | {"status": "success", "criteria": []}
)


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ([], "it lacks the list `runs`"),
        ({"runs": {}}, "it lacks the list `runs`"),
        ({"runs": ["x"]}, "one of its runs is no object"),
        *(({"runs": [RUN | {name: 5}]}, f"`{name}` of a run is no text") for name in TEXTS),
        *(({"runs": [RUN | {name: -1}]}, f"`{name}` of a run is no count") for name in COUNTS),
        *(({"runs": [RUN | {name: True}]}, f"`{name}` of a run is no count") for name in COUNTS),
        *(({"runs": [RUN | {name: "1"}]}, f"`{name}` of a run is no number") for name in NUMBERS),
        ({"runs": [RUN | {"timestamp": "noon"}]}, "`timestamp` of a run is no moment"),
        ({"runs": [RUN | {"status": "running"}]}, "a run has the status 'running', which is none"),
        ({"runs": [RUN | {"criteria": {}}]}, "`criteria` of a run is no list"),
    ],
)
def test_a_file_of_results_that_cannot_be_read_says_why(document: Any, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    file.write_text(json.dumps(document))
    with pytest.raises(ValueError) as refused:
        _runs_in(file)
    assert str(refused.value) == problem


def test_results_of_a_file_and_files_without_an_object(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    runs = [RUN, RUN | dict.fromkeys(NUMBERS) | {"timestamp": "2026-01-02T12:00:00"}]
    file.write_text(json.dumps({"runs": runs}))
    assert _runs_in(file) == runs and read_object(file) == {"runs": runs}
    file.write_text("[1]")
    assert read_object(file) == read_object(tmp_path / "none.json") == {}


@pytest.mark.parametrize(
    ("plan", "task", "network", "is_granted", "image", "sandbox"),
    [
        ({}, {}, None, True, None, None),
        ({"kind": "none"}, {}, None, True, None, ({"kind": "none"}, {}, None, None)),
        ({"a": 1}, {"a": 2}, "full", True, None, ({"a": 1}, {"a": 2}, {"network": "full"}, None)),
        ({"a": 1}, {}, "full", False, "img", ({"a": 1}, {}, None, {"container": "img"})),
    ],
)
def test_the_sandbox_of_a_task_is_merged_from_plan_task_grants_and_image(
    plan: Any,
    task: Any,
    network: str | None,
    is_granted: bool,
    image: str | None,
    sandbox: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(benchmark_plan, "merge_settings", lambda *parts: parts if any(parts) else None)
    definition: Any = SimpleNamespace(
        timeout_seconds=None,
        default_timeout_seconds=1800,
        retries=2,
        path=None,
        sandbox=plan,
        task_network=is_granted,
        resources=None,
    )
    picture = SimpleNamespace(name=image, setting=f"setting of {image}") if image else None
    chosen: Any = SimpleNamespace(
        timeout_seconds=None,
        title="t",
        checks=[SimpleNamespace(criterion="c"), SimpleNamespace(criterion="")],
        repo=None,
        network=network,
        image=picture,
        sandbox=task,
        test_patch=None,
        resources=None,
        start=None,
        check_files=None,
        hidden=None,
        steps=(),
        places={},
        solution=None,
    )
    model: Any = SimpleNamespace(display_name="", name="m", model="scripted/ok")
    found = benchmark_plan.BenchmarkDefinition._settings(definition, chosen, model)
    assert found.get("sandbox") == sandbox and found.get("image") == (picture and picture.setting)
    assert (found["timeoutSec"], found["retries"], found["criteria"]) == (1800, 2, ["c"])
    assert found["displayName"] == "m" and "taskPath" not in found and "repo" not in found
    chosen.timeout_seconds = 60
    assert benchmark_plan.BenchmarkDefinition._settings(definition, chosen, model)["timeoutSec"] == 60
    definition.timeout_seconds = 5
    assert benchmark_plan.BenchmarkDefinition._settings(definition, chosen, model)["timeoutSec"] == 5
