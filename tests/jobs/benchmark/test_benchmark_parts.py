"""Parts of the benchmark job: preflight, the machine, what items have, and files that cannot be written."""

import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proctor.errors import NotFound, UsageError
from proctor.item import Item
from proctor.jobs.benchmark import job, report, results
from proctor.jobs.benchmark.models import Candidate, ModelsConfig, ModelSupply
from proctor.jobs.benchmark.plan import (
    BenchmarkDefinition,
    BenchmarkOverrides,
    agent_choices,
    complete_tasks,
    is_for,
    stand_in,
)
from proctor.tasks.task import Task, TaskCheck, TaskFolder, TaskStep

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
TASK = Task(name="fix", title="Fix it", file=Path("/tasks/fix.md"), prompt="# Task: Fix it")
GPT = Candidate(name="gpt-4", model="openai/gpt-4", settings={"temperature": 0.7}, cutoff="2025-01-01")
LLAMA = Candidate(name="llama", model="ollama/llama3")


def only(task: Task = TASK, model: Candidate = LLAMA, **changes: Any) -> Item:
    (item,) = BenchmarkDefinition(tasks=(task,), models=(model,), **changes).items()
    return item


# --- Preflight ---


class Models:
    """A directory in which some models are missing, some have no key and some no price."""

    def check(self, model: str) -> None:
        if model == "lost/model":
            raise UsageError("there is no lost/model")

    def missing_key(self, model: str) -> str | None:
        return "OPENAI_API_KEY" if model.startswith("openai/") else None

    def has_price(self, model: str) -> bool:
        if model == "lost/model":
            raise UsageError("there is no lost/model")
        return model == "openai/gpt-4"


def context(**environment: str) -> Any:
    return SimpleNamespace(models=Models(), environment=environment)


def test_a_model_needs_its_key() -> None:
    assert list(job._model(GPT, context(), {})) == [
        "gpt-4 needs a key, and OPENAI_API_KEY is not set\nSet it: export OPENAI_API_KEY=…"
    ]
    own = {"openai/gpt-4": "MINE", "ollama/llama3": "MINE"}
    assert list(job._model(LLAMA, context(), own)) == [
        "llama needs a key, and MINE is not set\nSet it: export MINE=…"
    ]
    assert list(job._model(LLAMA, context(MINE="x"), own)) == list(job._model(LLAMA, context(), {})) == []
    lost = Candidate(name="lost", model="lost/model")
    assert list(job._model(lost, context(), {"lost/model": "MINE"})) == ["there is no lost/model"]


def test_a_budget_needs_prices() -> None:
    models = (GPT, LLAMA, stand_in("noop"), Candidate(name="lost", model="lost/model"))
    benchmark = BenchmarkDefinition(tasks=(TASK,), models=models)
    assert list(job._prices(benchmark, context())) == [
        "no price is known for llama, so the budget cannot be enforced\n"
        'Declare it in proctor.toml:  [prices."ollama/llama3"]  input = 1.0  output = 2.0  '
        "(USD per million tokens)."
    ]


def test_agents_that_are_not_confined_can_read_the_answer() -> None:
    def exposed(kind: str, **details: Any) -> set[str]:
        def kind_of(setting: object) -> str:
            if kind == "unknown":
                raise UsageError("there is no such sandbox")
            return kind

        item = replace(only(), details=details)
        return job._exposed(item, SimpleNamespace(sandbox=SimpleNamespace(kind_of=kind_of)))  # type: ignore[arg-type]

    remark = "agents are not confined: they can read hidden tests, reference solutions and your repository"
    for name in ("hidden", "testPatch", "checkFiles"):
        assert exposed("none", **{name: "x"}) == {remark}
        assert exposed("bubblewrap", **{name: "x"}) == exposed("unknown", **{name: "x"}) == set()
    assert exposed("none", setup="x") == set()


def test_absolute_paths_need_a_sandbox_that_can_show_them() -> None:
    def unmapped(kind: str) -> str:
        def kind_of(setting: object) -> str:
            if kind == "unknown":
                raise UsageError("there is no such sandbox")
            return kind

        item = replace(only(), details={"task": "fix", "places": {"/app": "start", "/tests": "hidden"}})
        return job._unmapped(item, SimpleNamespace(sandbox=SimpleNamespace(kind_of=kind_of)))  # type: ignore[arg-type]

    mounting = job.MOUNTING[0]
    assert unmapped("none") == (
        f"fix: its programs use /app, /tests, and only {mounting} can show folders there (here: none)\n"
        f"Install the package `{mounting}`, and do not switch `sandbox` off."
    )
    assert unmapped(mounting) == unmapped("unknown") == ""


def test_an_agent_with_the_same_settings_is_checked_once() -> None:
    base = only()
    distinct = [
        replace(base, details={"settings": {"a": 1}}),
        replace(base, details={"script": [1]}),
        replace(base, details={"command": "x"}),
        replace(base, details={"places": {"/a": "start"}}),
        replace(base, settings={"sandbox": "none"}),
        replace(base, agent="other"),
    ]
    same = [
        base,
        replace(base, model="other"),
        replace(base, details={"task": "other"}),
        replace(base, agent=""),
    ]
    assert list(job._distinct(iter([*same, *distinct, *distinct]))) == [base, *distinct]


def test_a_repository_of_a_task_must_exist(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        job.commits_of((replace(TASK, repo=tmp_path),), dict(os.environ))
    text = str(error.value)
    assert text.startswith("/tasks/fix.md: ") and text.endswith("\nGive `repo` the path of a git repository.")
    assert job.commits_of((TASK,), {}) == {}


@pytest.mark.parametrize(
    ("parallel", "concurrency"), [(None, 1), ("auto", 4), (3, 3), ("7", 7), ("1", 1), (1, 1)]
)
def test_runs_in_parallel(parallel: int | str | None, concurrency: int) -> None:
    assert job._concurrency(parallel, 4) == concurrency


@pytest.mark.parametrize("parallel", [0, "0", "-1", "many", "1.5"])
def test_parallel_takes_a_number(parallel: int | str) -> None:
    with pytest.raises(UsageError) as error:
        job._concurrency(parallel, 4)
    assert str(error.value) == f"--parallel takes a number, not {parallel}\nWithout a number it means 4."


def test_files_are_looked_up_beside_the_tasks_and_above_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "bench" / "tasks" / "easy"
    inner.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert job._folders(None) == (tmp_path,)
    assert job._folders(inner / "a.md") == job._folders(inner) == (inner, tmp_path / "bench", tmp_path)
    assert job._folders(tmp_path / "a.md") == (tmp_path,)


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
    assert job.JOB.recognizes(text) == points


# --- Models ---


def supply(listed: Any = None, **environment: str) -> ModelSupply:
    return ModelSupply(
        config=ModelsConfig(),
        config_path=None,
        environment=environment,
        variables={},
        prices={},
        own=frozenset(),
        discovered=listed,
    )


class Known:
    """Calls every model but one."""

    def check(self, word: str) -> None:
        if word == "lost":
            raise NotFound("there is no lost")


def test_a_model_that_no_server_lists_is_called_if_it_can_be() -> None:
    known: Any = Known()
    assert supply().other(known, "lost") is None
    for word in ("scripted/ok", "replay/x", "litellm/a/b"):
        assert supply().other(known, word) == Candidate(name=word, model=word, is_usual=False)
    assert supply(OPENAI_API_KEY="k").other(known, "openai/gpt-9") == Candidate(
        name="openai/gpt-9", model="openai/gpt-9", is_usual=False
    )
    listed = SimpleNamespace(models=[SimpleNamespace(name="ollama/llama3")], silent={})
    assert supply(listed).other(known, "ollama/other") is None
    for answers in (None, SimpleNamespace(models=[SimpleNamespace(name="openai/x")], silent={})):
        with pytest.raises(UsageError) as error:
            supply(answers).other(known, "ollama/other")
        assert str(error.value) == (
            "ollama/other: nothing answers at http://127.0.0.1:11434/v1\nStart ollama first."
        )


# --- Items ---


def test_an_item_has_what_its_task_and_model_say() -> None:
    plain = only()
    assert (plain.runner, plain.agent, plain.model, plain.prompt, plain.repeat) == (
        "benchmark",
        "builtin",
        "ollama/llama3",
        "# Task: Fix it",
        1,
    )
    assert plain.details == {"task": "fix", "start": TASK.start_digest, "baseBranch": "main", "checks": []}
    assert plain.settings == {
        "timeoutSec": 1800,
        "retries": 0,
        "title": "Fix it",
        "criteria": [],
        "displayName": "llama",
    }
    assert plain.factors == {"model": "llama", "agent": "builtin", "task": "fix"}


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
    details = dict(item.details)
    assert details.pop("checks") == [each.document() for each in task.commands]
    assert details.pop("testPatch") and details.pop("steps") == [
        {
            "prompt": "Next",
            "checks": [],
            "files": "d1",
            "checkFiles": "d1",
            "continues": True,
            "minReward": 0.5,
        },
        {"prompt": "Last", "checks": []},
    ]
    assert details == {
        "task": "fix",
        "start": "c0ffee",
        "baseBranch": "c0ffee",
        "env": {"A": "1"},
        "places": {"/app": "start"},
        "secondTry": True,
        "minReward": 0.0,
        "reward": task.reward,
        "checkFiles": "d1",
        "hidden": "d2",
        "solutionPaths": ["a.py"],
        "sealed": True,
        "setup": "make setup",
        "expect": {"contains": "x"},
        "settings": {"edit": "diff"},
    }
    assert item.settings == {
        "timeoutSec": 60,
        "retries": 2,
        "title": "Fix it",
        "criteria": ["It works"],
        "displayName": "gpt-4",
        "taskPath": "/tasks",
        "repo": "/r",
        "testPatch": "diff",
        "resources": {"db": 1},
        "checkFiles": folder.setting,
        "hidden": TaskFolder(path=Path("/h"), digest="d2").setting,
        "files0": folder.setting,
        "checkFiles0": folder.setting,
    }
    assert item.factors == {
        "model": "gpt-4",
        "agent": "aider",
        "task": "fix",
        "difficulty": "hard",
        "after_cutoff": "yes",
    }
    for date, after in (("2025-01-01", "no"), ("2024-12-31", "no"), ("2025-01-02", "yes")):
        assert only(replace(TASK, date=date), GPT).factors["after_cutoff"] == after
    assert "after_cutoff" not in only(replace(TASK, date="2025-01-02"), LLAMA).factors
    assert only(TASK, LLAMA, resources={"gpu": 1}).settings["resources"] == {"gpu": 1}


def test_settings_of_a_model_are_for_the_builtin_agent_and_those_of_a_task_for_its_own() -> None:
    own = replace(TASK, agent="aider", settings={"edit": "diff"})
    assert only(TASK, GPT).details["settings"] == {"parameters": {"temperature": 0.7}}
    assert only(own, GPT).details["settings"] == {"edit": "diff"}
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
        (("gpt-4",), stand_in("oracle"), True),
        (("noop",), stand_in("oracle"), False),
        (("oracle",), stand_in("oracle"), True),
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


# --- The machine ---


def test_the_processor_and_the_memory_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    core = "physical id : {}\ncore id : {}\ncpu MHz : {}\nmodel name : Chip 9\nflags\n"
    (tmp_path / "cpuinfo").write_text(
        "".join(core.format(*each) for each in ((0, 0, 900.5), (0, 1, 1), (0, 0, 2)))
    )
    (tmp_path / "meminfo").write_text("MemTotal: 16777216 kB\nMemAvailable: 1572864 kB\nOdd: many\n")
    read = report._facts
    monkeypatch.setattr(report, "_facts", lambda file: read(tmp_path / file.name))
    assert report._processor() == {
        "physical_cores": 2,
        "logical_cores": os.cpu_count(),
        "frequency": 900.5,
        "model": "Chip 9",
    }
    assert report._memory() == {"total_gb": 16.0, "available_gb": 1.5}
    for name in ("cpuinfo", "meminfo"):
        (tmp_path / name).unlink()
    monkeypatch.setattr("platform.processor", lambda: "")
    bare = report._processor()
    assert (bare["physical_cores"], bare["frequency"], bare["model"]) == (None, None, None)
    assert report._memory() == {"total_gb": None, "available_gb": None}


def test_the_disk_of_a_folder_in_gigabytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = SimpleNamespace(total=3 * 2**30, free=2**29 + 2**20)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: usage)
    assert report._disk(tmp_path) == {"total_gb": 3.0, "free_gb": 0.5}
    monkeypatch.undo()
    assert report._disk(tmp_path / "lost") is None


def program(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_the_graphics_card_and_ollama_are_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    program(tmp_path, "nvidia-smi", "echo 'Card 1, 24564, 550.1'; echo 'Card 2, 1, 2'")
    program(tmp_path, "ollama", "echo ollama version is 0.5.1")
    assert report._graphics() == {"nvidia": {"model": "Card 1", "memory_mb": 24564.0, "driver": "550.1"}}
    models = [f"m{number}" for number in range(12)]
    assert report._ollama(models) == {"version": "0.5.1", "models_count": 12, "models": models[:10]}
    assert report._ollama(None) is None
    program(tmp_path, "nvidia-smi", "echo 'Card 1, 24564'")
    program(tmp_path, "ollama", "echo ollama version is 0.5.1; exit 1")
    assert report._graphics() is None
    assert report._ollama([]) == {"version": None, "models_count": 0, "models": []}
    program(tmp_path, "nvidia-smi", "exit 0")
    (tmp_path / "ollama").unlink()
    assert report._graphics() is None and report._ollama([])["version"] is None  # type: ignore[index]
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    assert report._graphics() == {"apple_silicon": True}
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    assert report._graphics() is None


# --- Result files ---


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError) as error:
        results.write_file(tmp_path / "file" / "a.json", "x")
    assert str(error.value) == (
        f"cannot write to {tmp_path}/file: File exists\nGive another folder with --output."
    )
    monkeypatch.setattr(results, "document_of", lambda *_: {"results": []})
    (tmp_path / "comparison_report.csv").mkdir()
    with pytest.raises(UsageError) as error:
        results.write_comparison(tmp_path, SimpleNamespace(), {}, NOW)  # type: ignore[arg-type]
    assert str(error.value) == (
        f"cannot write to {tmp_path}: Is a directory\nGive another folder with --output."
    )


def test_a_result_that_cannot_be_written_during_the_run_is_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    item = only()
    figures = [
        SimpleNamespace(name="a", runs=[SimpleNamespace(item_id="other")]),
        SimpleNamespace(name="b", runs=[SimpleNamespace(item_id="other"), SimpleNamespace(item_id=item.id)]),
    ]
    written: list[tuple[str, str]] = []
    folder = results.ResultFolder(
        tmp_path,
        "r",
        SimpleNamespace(note=notes.append),
        saves_intermediate=True,  # type: ignore[arg-type]
    )
    monkeypatch.setattr(folder, "_compare", lambda: SimpleNamespace(models=figures))
    monkeypatch.setattr(folder, "_file_names", lambda: {"a": "a.json", "b": "b.json"})
    monkeypatch.setattr(results, "write_result", lambda _, name, __, of: written.append((name, of.name)))
    finished: Any = SimpleNamespace(item=item)
    folder.item_finished(finished)
    assert written == [("b.json", "b")] and notes == []

    def fail(*_: object) -> None:
        raise UsageError("cannot write to out: disk full\nGive another folder.")

    monkeypatch.setattr(results, "write_result", fail)
    folder.item_finished(finished)
    assert notes == ["cannot write to out: disk full"]
    folder._saves_intermediate = False
    folder.item_finished(finished)
    assert notes == ["cannot write to out: disk full"]


def test_there_are_at_most_999_runs_of_a_second() -> None:
    def store(*free: str) -> Any:
        return SimpleNamespace(read=SimpleNamespace(exact_batch=lambda name: name not in free))

    assert results.new_run_id(store("batch_20260301_120000_999"), NOW) == "batch_20260301_120000_999"
    full = store("batch_20260301_120000_1", "batch_20260301_120000_1000")
    with pytest.raises(UsageError, match=r"^there are too many runs called batch_20260301_120000$"):
        results.new_run_id(full, NOW)


def test_the_options_of_an_earlier_run_hold_where_nothing_is_set(tmp_path: Path) -> None:
    config = tmp_path / "models.yaml"
    config.write_text("")
    asked = {"models": "a", "runs": 3, "timeout": 9.0, "agent": "codex", "budget": 2.0, "record": "/r"}
    asked |= {
        "taskNetwork": True,
        "stopWhen": "by=model",
        "check": "make",
        "repo": "/repo",
        "start": "/start",
    }
    kept = BenchmarkOverrides().with_defaults({"asked": asked, "modelsConfig": str(config)})
    assert kept == BenchmarkOverrides(
        models="a",
        runs=3,
        timeout=9.0,
        agent="codex",
        budget=2.0,
        record=Path("/r"),
        models_config=config,
        task_network=True,
        stop_when="by=model",
        check="make",
        repo="/repo",
        start="/start",
    )
    chosen = {"models": "b", "runs": 1, "timeout": 1.0, "agent": "x", "budget": 0.0, "stop_when": "by=task"}
    chosen |= {"replay": Path("/p"), "check": "ls", "models_config": Path("/other")}
    own = BenchmarkOverrides(**chosen).with_defaults({"asked": asked, "modelsConfig": str(config)})  # type: ignore[arg-type]
    assert own == BenchmarkOverrides(**chosen, task_network=True, repo="/repo", start="/start")  # type: ignore[arg-type]
    assert (
        BenchmarkOverrides().with_defaults({"modelsConfig": str(tmp_path / "lost")}) == BenchmarkOverrides()
    )
    recorded = BenchmarkOverrides(record=Path("/x")).with_defaults({"asked": {"replay": "/p"}})
    assert (recorded.record, recorded.replay) == (Path("/x"), None)


@pytest.mark.parametrize("mock", ["oracle", "noop"])
def test_a_mock_of_an_earlier_run_is_repeated_unless_models_are_named(mock: str) -> None:
    earlier = {"asked": {mock: True, "models": "a"}}
    again = BenchmarkOverrides().with_defaults(earlier)
    assert (getattr(again, mock), again.models) == (True, "a")
    named = BenchmarkOverrides(models="b").with_defaults(earlier)
    assert (getattr(named, mock), named.models) == (False, "b")
    now = BenchmarkOverrides(**{mock: True}).with_defaults({"asked": {"models": "a"}})
    assert (getattr(now, mock), now.models) == (True, "")
    assert BenchmarkOverrides().with_defaults({}) == BenchmarkOverrides()


def test_what_a_resume_needs_is_stored() -> None:
    assert BenchmarkOverrides().options() == {
        "agent": "",
        "timeout": None,
        "budget": None,
        "record": None,
        "replay": None,
        "oracle": False,
        "noop": False,
    }
    full = BenchmarkOverrides(
        agent=["a", "b=c"],
        timeout=9.0,
        budget=2.0,
        record=Path("/r"),
        noop=True,
        task_network=True,
        stop_when="by=model",
        check="make",
        repo="/repo",
        start="/start",
    )
    assert full.options() == {
        "agent": ["a", "b=c"],
        "timeout": 9.0,
        "budget": 2.0,
        "record": "/r",
        "replay": None,
        "oracle": False,
        "noop": True,
        "taskNetwork": True,
        "stopWhen": "by=model",
        "check": "make",
        "repo": "/repo",
        "start": "/start",
    }


@pytest.mark.parametrize(
    ("key", "low", "high", "text"),
    [
        ("most_successful", None, None, "50%"),
        ("most_successful", 0.25, 0.75, "50% (25% to 75%)"),
        ("most_successful", 0.25, None, "50% (from 25%, no upper limit)"),
        ("fastest", 0.25, 0.75, "0.5 s (0.25 s to 0.75 s)"),
        ("best_value", 0.25, 0.75, "$0.50 ($0.25 to $0.75)"),
        ("most_efficient", 0.25, 0.75, "0.5 (0.25 to 0.75)"),
    ],
)
def test_the_figure_of_a_rank(key: str, low: float | None, high: float | None, text: str) -> None:
    ranking: Any = SimpleNamespace(key=key)
    place: Any = SimpleNamespace(value=0.5, low=low, high=high)
    assert report.rank_text(ranking, place) == text


def test_a_ranking_is_undecided_if_some_share_their_ranks() -> None:
    def undecided(*ranks: tuple[int, int]) -> bool:
        places = [SimpleNamespace(rank_low=low, rank_high=high) for low, high in ranks]
        return report.is_undecided(SimpleNamespace(places=places))  # type: ignore[arg-type]

    assert not undecided() and not undecided((1, 1), (2, 2)) and undecided((1, 1), (2, 3))


def figures(name: str, rate: float | None, cost: float | None, time: float | None = 1.0) -> Any:
    return SimpleNamespace(
        name=name,
        display_name=name.upper(),
        rate=SimpleNamespace(value=rate, low=0.25, high=0.75, runs=2),
        cost_per_run_usd=cost,
        typical_work=SimpleNamespace(value=time),
        work=SimpleNamespace(value=time, low=0.5, high=2.0),
        runs=[SimpleNamespace(succeeded=True), SimpleNamespace(succeeded=False)],
    )


def test_models_that_none_beats_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(
        report, "scatter", lambda title, points, **more: drawn.append((points, more)) or "plot"
    )
    models = [figures("a", 0.9, 1.0), figures("b", 0.5, 0.5), figures("c", 0.4, 0.6), figures("d", None, 1.0)]
    models += [figures("e", 0.5, None), figures("f", 1.0, 2.0, None)]
    assert report.cost_against_success(SimpleNamespace(models=models)) == "plot"  # type: ignore[arg-type]
    ((points, more),) = drawn
    assert [(each.label, each.x, each.y, each.low, each.high, each.is_marked) for each in points] == [
        ("A", 1.0, 0.9, 0.25, 0.75, True),
        ("B", 0.5, 0.5, 0.25, 0.75, True),
        ("C", 0.6, 0.4, 0.25, 0.75, False),
        ("F", 2.0, 1.0, 0.25, 0.75, False),
    ]
    assert more["y_top"] == 1.0
    for few in (models[:1], [figures("a", 0.5, 0.0), figures("b", 0.5, 0.0)]):
        assert report.cost_against_success(SimpleNamespace(models=few)) == ""  # type: ignore[arg-type]
    two: Any = SimpleNamespace(models=[figures("a", 0.5, 0.0), figures("b", 0.5, 1.0)])
    assert report.cost_against_success(two) == "plot"


def test_rates_and_times_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(
        report, "bars", lambda title, entries, **more: drawn.append((entries, more)) or "plot"
    )
    many = [figures(f"m{number}", 0.5, 1.0, 40.0 - number) for number in range(31)]
    assert report.success_rates(SimpleNamespace(models=many)) == "plot"  # type: ignore[arg-type]
    entries, more = drawn.pop()
    assert len(entries) == 30 and more["top"] == 1.0
    assert (entries[0].label, entries[0].value, entries[0].low, entries[0].high, entries[0].note) == (
        "M0",
        0.5,
        0.25,
        0.75,
        "1/2 (25% to 75%)",
    )
    assert report.completion_times(SimpleNamespace(models=many)) == "plot"  # type: ignore[arg-type]
    entries, _ = drawn.pop()
    assert [each.label for each in entries[:2]] == ["M30", "M29"] and len(entries) == 30
    assert (entries[0].value, entries[0].low, entries[0].high) == (10.0, 0.5, 2.0)
    none: Any = SimpleNamespace(models=[figures("a", 0.5, 1.0, None)])
    assert report.completion_times(none) == "" and drawn == []
    unjudged = figures("a", None, None)
    unjudged.rate.runs = 0
    assert report._rate_text(unjudged) == "–"
