"""Tasks × models × runs as items."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proctor.agents import find_agent
from proctor.errors import UsageError
from proctor.jobs.benchmark.models import Candidate
from proctor.jobs.benchmark.plan import (
    BenchmarkDefinition,
    BenchmarkOverrides,
    agent_choices,
    complete_tasks,
    mock_candidate,
    script_of,
)
from proctor.tasks.task import Task, TaskCheck, TaskFolder, folder_of

TASK = Task(
    name="fix",
    title="Fix it",
    file=Path("/somewhere/tasks/fix.md"),
    prompt="# Task: Fix it",
    checks=(TaskCheck(criterion="It works", command="make"), TaskCheck(criterion="It is nice", command="")),
    start=TaskFolder(path=Path("/somewhere/tasks/fix/start"), digest="d1"),
)
GPT = Candidate(name="gpt-4", model="openai/gpt-4", settings={"temperature": 0.7})
LLAMA = Candidate(name="ollama/llama3", model="ollama/llama3")


def test_there_is_an_item_for_each_task_model_and_run() -> None:
    items = list(BenchmarkDefinition(tasks=(TASK,), models=(GPT, LLAMA), runs=2).items())

    assert [(item.model, item.repeat) for item in items] == [
        ("openai/gpt-4", 1),
        ("ollama/llama3", 1),
        ("openai/gpt-4", 2),
        ("ollama/llama3", 2),
    ]
    assert len({item.id for item in items}) == 4
    assert items[0].factors == {"model": "gpt-4", "agent": "builtin", "task": "fix"}
    assert items[0].details["settings"] == {"parameters": {"temperature": 0.7}}


def ids(**changes: Any) -> list[str]:
    return [
        item.id
        for item in BenchmarkDefinition(**{"tasks": (TASK,), "models": (GPT, LLAMA)} | changes).items()
    ]


def test_what_is_asked_and_what_is_begun_with_make_an_id() -> None:
    assert TASK.start
    moved = replace(
        TASK, file=Path("/home/me/fix.md"), start=replace(TASK.start, path=Path("/home/me/start"))
    )
    assert ids(tasks=(moved,), timeout_seconds=5, retries=3) == ids(), "the place and the time do not matter"
    for changes in (
        {"prompt": "# Task: Fix it well"},
        {"start": TaskFolder(path=Path("/x"), digest="d2")},
        {"checks": (TaskCheck(criterion="It works", command="make test"),)},
        {"check_files": TaskFolder(path=Path("/x"), digest="d3")},
        {"expect": {"contains": "x"}},
        {"agent": "aider"},
    ):
        assert not set(ids(tasks=(replace(TASK, **changes),))) & set(ids()), changes
    assert ids(models=(replace(GPT, settings={"temperature": 0}),))[0] not in ids()


def test_the_command_line_wins_over_the_task_and_the_task_over_the_file() -> None:
    task = replace(TASK, timeout_seconds=60, agent="aider")

    def first(**changes: Any) -> Any:
        return next(iter(BenchmarkDefinition(tasks=(task,), models=(LLAMA,), **changes).items()))

    assert first(default_timeout_seconds=5).settings["timeoutSec"] == 60
    assert first(timeout_seconds=9).settings["timeoutSec"] == 9
    assert first().agent == "aider"
    assert first(agents=agent_choices("claude")).agent == "claude"


@pytest.mark.parametrize(
    "text",
    [
        "f'{model} {seed}{prompt}'\n{model",
        "{model} {model}",
        "{seed}{seed}{seed} and {seed}\n",
        "a {prompt} b {model} c {prompt} d {model} e",
        "no hole at all {modal}",
        "",
    ],
)
def test_the_oracle_writes_the_solution_letter_for_letter_and_the_noop_nothing(tmp_path, text):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/a.py").write_text(text)
    task = replace(TASK, solution=TaskFolder(path=tmp_path, digest="s"), answer="Done.")

    *parts, answer = script_of(mock_candidate("oracle"), task)

    steps = [next(iter(step.values())) for step in parts]
    assert "".join(step["content"] for step in steps) == text
    assert {step["path"] for step in steps} == {"inner/a.py"} and answer == {"say": "Done."}
    # What an agent would fill in stands in no step.
    for placeholder in ("{prompt}", "{model}", "{seed}"):
        assert not any(placeholder in step["content"] for step in steps)
    find_agent("scripted", {"script": [*parts, answer]})
    assert script_of(mock_candidate("noop"), TASK) == []
    with pytest.raises(UsageError, match="no reference solution"):
        script_of(mock_candidate("oracle"), TASK)


def test_agents_are_crossed_with_models_and_programs_have_a_name() -> None:
    agents = agent_choices(["codex, claude", "mine=./agent.sh --fast, --quiet"])
    items = list(BenchmarkDefinition(tasks=(TASK,), models=(GPT, LLAMA), agents=agents).items())

    crossed = [(item.factors["model"], item.factors["agent"], item.agent) for item in items]
    assert crossed == [
        (model, name, agent)
        for model in ("gpt-4", "ollama/llama3")
        for name, agent in (("codex", "codex"), ("claude", "claude"), ("mine", "command"))
    ]
    assert [item.details.get("command") for item in items[:3]] == [None, None, "./agent.sh --fast, --quiet"]
    assert len({item.id for item in items}) == 6


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        (["a=./x", "a=./y"], "two agents have the name `a`"),
        (["a=./x", "b=./x"], "a and b run the same command"),
    ],
)
def test_programs_have_different_names_and_commands(entries: list[str], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        agent_choices(entries)


@pytest.mark.parametrize("entry", ["=./agent.sh", "mine=", "a,b=./agent.sh"])
def test_a_program_needs_a_name_and_a_command(entry: str) -> None:
    with pytest.raises(UsageError, match="is not a valid agent"):
        agent_choices([entry])


def test_an_oracle_runs_once_whatever_the_agents_are() -> None:
    task = replace(TASK, answer="42")
    benchmark = BenchmarkDefinition(
        tasks=(task,), models=(mock_candidate("oracle"),), agents=agent_choices("a,b")
    )
    assert [item.agent for item in benchmark.items()] == ["scripted"]


# What tasks begin with


def bare(folder: Path, **more: Any) -> Task:
    return Task(name="t", title="T", file=folder / "t.md", prompt="# Task: T", **more)


def test_a_task_without_files_is_refused_unless_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="begin with an empty folder"):
        complete_tasks([bare(tmp_path)], BenchmarkOverrides())
    (tmp_path / "start").mkdir()
    with pytest.raises(UsageError, match="begin with an empty folder"):
        complete_tasks([bare(tmp_path, start=folder_of(tmp_path / "start"))], BenchmarkOverrides())

    meant = bare(tmp_path, starts_empty=True)
    assert complete_tasks([meant], BenchmarkOverrides()) == (meant,)


def test_files_a_repository_and_a_check_can_be_given_to_tasks_that_name_none(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files/a.py").write_text("a = 1\n")

    (started,) = complete_tasks(
        [bare(tmp_path)], BenchmarkOverrides(start=str(tmp_path / "files"), check="make test")
    )
    (cloned,) = complete_tasks([bare(tmp_path)], BenchmarkOverrides(repo=str(tmp_path)))
    (own,) = complete_tasks([replace(TASK, repo=tmp_path)], BenchmarkOverrides(check="make test"))

    assert started.start == folder_of(tmp_path / "files")
    assert [check.command for check in started.checks] == ["make test"]
    assert (cloned.repo, cloned.start) == (tmp_path, None)
    assert own.checks == TASK.checks


def test_the_repository_in_the_text_of_a_task_is_used(tmp_path: Path) -> None:
    (tmp_path / "clones/acme/shop").mkdir(parents=True)
    (tmp_path / "shop").mkdir()
    beside = bare(tmp_path, facts={"repo": "`shop`"})
    hosted = bare(tmp_path, facts={"repo": "acme/shop"})

    assert complete_tasks([beside], BenchmarkOverrides())[0].repo == tmp_path / "shop"
    clones = BenchmarkOverrides(repos=str(tmp_path / "clones"))
    assert complete_tasks([hosted], clones)[0].repo == tmp_path / "clones/acme/shop"
    with pytest.raises(UsageError, match="no repository `acme/shop`"):
        complete_tasks([hosted], BenchmarkOverrides())
