"""What an item of a benchmark has from its task, its model and the options, also of an earlier run."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proctor.batch import lifecycle
from proctor.bootstrap import open_context
from proctor.errors import UsageError
from proctor.item import Item
from proctor.job import PlanText
from proctor.jobs.benchmark.job import JOB, BenchmarkJobPlan, commits_of
from proctor.jobs.benchmark.models import Candidate
from proctor.jobs.benchmark.plan import (
    BenchmarkDefinition,
    BenchmarkOverrides,
    agent_choices,
    complete_tasks,
    is_for,
    mock_candidate,
)
from proctor.tasks.task import Task, TaskCheck, TaskFolder, TaskSet, TaskStep
from recorded_files import check

TASK = Task(name="fix", title="Fix it", file=Path("/tasks/fix.md"), prompt="# Task: Fix it")
GPT = Candidate(name="gpt-4", model="openai/gpt-4", settings={"temperature": 0.7}, cutoff="2025-01-01")
LLAMA = Candidate(name="llama", model="ollama/llama3")


def only(task: Task = TASK, model: Candidate = LLAMA, **changes: Any) -> Item:
    (item,) = BenchmarkDefinition(tasks=(task,), models=(model,), **changes).items()
    return item


def test_a_repository_of_a_task_must_exist(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        commits_of((replace(TASK, repo=tmp_path),), dict(os.environ))
    text = str(error.value)
    assert text.startswith("/tasks/fix.md: ") and text.endswith("\nGive `repo` the path of a git repository.")
    assert commits_of((TASK,), {}) == {}


@pytest.mark.parametrize(
    ("text", "points"),
    [
        ("# Task: Fix it", 1000),
        ("intro\n#  Task", 1000),
        ("---\nagent: a\n---\n\n# Fix it", 1000),
        ("---\nagent: a\n---\nFix it", 0),
        ("# Tasks", 0),
        ("matrix: []", 0),
    ],
)
def test_a_markdown_task_is_recognized(text: str, points: int) -> None:
    assert JOB.recognizes(text) == points


def test_an_item_of_a_rich_task() -> None:
    folder = TaskFolder(path=Path("/x"), digest="d1")
    step = TaskStep(prompt="Next", files=folder, check_files=folder, continues=True, min_reward=0.5)
    task = replace(
        TASK,
        checks=(TaskCheck(criterion="It works", command="make"), TaskCheck(criterion="", command="ls")),
        check_files=folder,
        hidden=TaskFolder(path=Path("/h"), digest="d2"),
        test_patch="diff",
        solution_paths=("a.py",),
        sealed=True,
        setup="make setup",
        expect={"contains": "x"},
        difficulty="hard",
        date="2025-02-01",
        environment={"A": "1"},
        places={"/app": "start"},
        retry_with_output=True,
        min_reward=0.0,
        steps=(step, TaskStep(prompt="Last")),
        repo=Path("/r"),
        agent="aider",
        settings={"edit": "diff"},
        resources={"db": 1},
        timeout_seconds=60,
    )
    item = only(task, GPT, commits={"fix": "c0ffee"}, path=Path("/tasks"), retries=2, resources={"gpu": 1})
    parts = {"details": item.details, "settings": item.settings, "factors": item.factors}
    check(Path(__file__).parent / "recorded" / "rich-item.txt", parts)
    for date, after in (("2025-01-01", "no"), ("2024-12-31", "no"), ("2025-01-02", "yes")):
        assert only(replace(TASK, date=date), GPT).factors["after_cutoff"] == after
    assert "after_cutoff" not in only(replace(TASK, date="2025-01-02"), LLAMA).factors
    assert only(TASK, LLAMA, resources={"gpu": 1}).settings["resources"] == {"gpu": 1}


def test_settings_of_a_model_are_for_the_builtin_agent_and_those_of_a_task_for_its_own() -> None:
    own = replace(TASK, agent="aider", settings={"edit": "diff"})
    assert "settings" not in only(own, GPT, agents=agent_choices("codex")).details
    program = only(own, GPT, agents=agent_choices(["mine=./run"])).details
    assert program["command"] == "./run" and "settings" not in program


def test_a_task_that_is_a_prompt_calls_the_model_alone() -> None:
    task = replace(TASK, format="rows", expect={"equals": "4"}, system="Be brief.")
    item = only(task, GPT)
    assert (item.runner, item.agent, item.factors["agent"]) == ("prompt", "", "prompt")
    assert item.details == {
        "task": "fix",
        "expect": {"equals": "4"},
        "system": "Be brief.",
        "settings": {"temperature": 0.7},
    }
    assert only(replace(TASK, format="rows")).details == {"task": "fix"}


def test_network_is_granted_if_the_task_asks_and_the_command_allows_it() -> None:
    asks = replace(TASK, network={"agent": True}, sandbox={"a": 1})
    assert only(asks, task_network=True).settings["sandbox"] == {"a": 1, "network": {"agent": True}}
    assert only(asks).settings["sandbox"] == {"a": 1}
    assert "sandbox" not in only(TASK, task_network=True).settings


@pytest.mark.parametrize(
    ("named", "model", "expected"),
    [
        ((), LLAMA, True),
        (("llama",), LLAMA, True),
        (("ollama/llama3",), LLAMA, True),
        (("gpt-4",), LLAMA, False),
        (("gpt-4",), mock_candidate("oracle"), True),
        (("noop",), mock_candidate("oracle"), False),
        (("oracle",), mock_candidate("oracle"), True),
        (("oracle",), LLAMA, False),
    ],
)
def test_some_tasks_are_for_some_models(named: tuple[str, ...], model: Candidate, expected: bool) -> None:
    assert is_for(replace(TASK, models=named), model) is expected


def test_a_benchmark_is_called_like_its_task_or_its_folder() -> None:
    def label(*files: str) -> str:
        tasks = tuple(replace(TASK, name=Path(file).stem, file=Path(file)) for file in files)
        return BenchmarkDefinition(tasks=tasks, models=()).label

    assert label("/tasks/easy/a.md") == "a"
    assert label("/tasks/easy/a.md", "/tasks/easy/b.md") == "easy"
    assert label("/tasks/easy/a.md", "/tasks/hard/b.md") == "2 tasks"


def test_folders_of_options_must_exist(tmp_path: Path) -> None:
    for option in ("start", "repo"):
        with pytest.raises(UsageError) as error:
            complete_tasks([TASK], BenchmarkOverrides(**{option: f"{tmp_path}/lost"}))
        assert str(error.value) == f"there is no folder {tmp_path}/lost\nCheck --{option}."
    with pytest.raises(UsageError, match=r"^--repo and --start exclude each other\nA task begins with"):
        complete_tasks([TASK], BenchmarkOverrides(start=str(tmp_path), repo=str(tmp_path)))


@pytest.mark.parametrize(
    ("options", "is_asked"),
    [
        ({"oracle": True}, False),
        ({"oracle": True, "models": "scripted/echo"}, True),
        ({"agent": ["mine=true"]}, False),
        ({"agent": ["mine=true"], "models": "scripted/echo"}, True),
        ({}, True),
    ],
)
def test_servers_are_asked_for_models_only_where_models_are_chosen(options, is_asked, tmp_path):
    task = replace(TASK, starts_empty=True, answer="42")
    with open_context((tmp_path,), home=str(tmp_path / "home")) as ctx:
        plan = BenchmarkJobPlan(TaskSet(tasks=(task,)), BenchmarkOverrides(**options), ctx, path=tmp_path)

        assert (plan.supply.discovered is not None) is is_asked


def bench(ctx: Any, folder: Path, **options: Any) -> BenchmarkJobPlan:
    task = "---\nempty: true\ncheck: 'true'\n---\n# Task: Fix it\n\nDo it.\n"
    return JOB.read(PlanText(text=task, folder=folder), BenchmarkOverrides(**options), ctx)


@pytest.fixture
def ctx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    with open_context((tmp_path,), home=str(tmp_path / "home")) as context:
        yield context


MODELS = """\
models:
- {name: keyed, provider: openai, enabled: true, api_key: "${MINE}"}
"""


def test_what_a_benchmark_lacks_is_told_before_it_starts(ctx: Any, tmp_path: Path) -> None:
    (tmp_path / "models_config.yaml").write_text(MODELS)
    with pytest.raises(UsageError) as refused:
        lifecycle.preview(bench(ctx, tmp_path, models="keyed", budget=1.0), ctx)
    assert str(refused.value).startswith("keyed needs a key, and MINE is not set\nSet it: export MINE=…")
    assert "no price is known for keyed, so the budget cannot be enforced\nDeclare it" in str(refused.value)
    with pytest.raises(UsageError, match=r"ollama/x: nothing answers at .*\nStart ollama"):
        lifecycle.preview(bench(ctx, tmp_path, models="ollama/x"), ctx)


@pytest.mark.parametrize(
    ("parallel", "concurrency"),
    [(None, 1), ("auto", 3), ("7", 7), (0, None), ("-1", None), ("x", None)],
)
def test_runs_in_parallel(ctx: Any, tmp_path: Path, parallel: Any, concurrency: int | None) -> None:
    if concurrency:
        assert bench(ctx, tmp_path, oracle=True, parallel=parallel).concurrency == concurrency
        return
    with pytest.raises(UsageError, match=f"--parallel takes a number, not {parallel}\nWithout"):
        bench(ctx, tmp_path, oracle=True, parallel=parallel)


async def test_a_folder_that_cannot_be_written_is_named(ctx: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    plan = bench(ctx, tmp_path, noop=True)
    plan.output = tmp_path / "file"
    with pytest.raises(UsageError) as refused:
        await lifecycle.start(JOB, plan, ctx)
    assert str(refused.value) == (
        f"cannot write to {tmp_path}/file: File exists\nGive another folder with --output."
    )
    plan.output = tmp_path / "out"
    done = await lifecycle.start(JOB, plan, ctx, run_id="other")
    assert (tmp_path / "out" / "noop_result.json").is_file()
    assert "noop" in JOB.documents(done.run_id, ctx).analysis()


def test_a_resumed_benchmark_has_the_options_of_the_run_where_nothing_else_is_named(tmp_path: Path) -> None:
    first = BenchmarkOverrides(
        agent=["a", "b=c"],
        timeout=9.0,
        budget=2.0,
        record=Path("/r"),
        task_network=True,
        stop_when="by=model",
        check="make",
        repo="/repo",
        start="/start",
    )
    config = tmp_path / "models.yaml"
    config.write_text("")
    stored = {"asked": {**first.options(), "models": "a", "runs": 3}, "modelsConfig": str(config)}

    assert BenchmarkOverrides().with_defaults(stored) == replace(
        first, models="a", runs=3, models_config=config
    )
    assert BenchmarkOverrides().with_defaults({"modelsConfig": "/lost.yaml"}) == BenchmarkOverrides()
    named = {"agent": ["x"], "timeout": 1.0, "budget": 0.0, "replay": Path("/p"), "stop_when": "by=task"}
    named |= {"check": "ls", "repo": "/own", "start": "/mine", "models": "b", "runs": 1}
    own = BenchmarkOverrides(**named, task_network=True, models_config=Path("/other"))
    assert own.with_defaults(stored) == own


@pytest.mark.parametrize("mock", ["oracle", "noop"])
def test_a_mock_of_an_earlier_run_is_repeated_unless_models_are_named(mock: str) -> None:
    earlier = {"asked": {**BenchmarkOverrides(**{mock: True}).options(), "models": "a"}}
    again = BenchmarkOverrides().with_defaults(earlier)
    assert (getattr(again, mock), again.models) == (True, "a")
    named = BenchmarkOverrides(models="b").with_defaults(earlier)
    assert (getattr(named, mock), named.models) == (False, "b")
    now = BenchmarkOverrides(**{mock: True}).with_defaults({"asked": {"models": "a"}})
    assert (getattr(now, mock), now.models) == (True, "")
    beside = BenchmarkOverrides(**{mock: True}).with_defaults({"asked": {"models": "a", "agent": "x"}})
    assert (beside.agent, beside.models) == ("x", "a")
