"""Tasks that need their image run in it where a container engine works."""

import json
from pathlib import Path

import pytest
from test_sealed import run_task

from proctor.errors import UsageError
from proctor.sandbox import container
from proctor.tasks.formats import read_task_set
from proctor.tasks.task import commands_of

DOCKERFILE = "FROM python:3.12\nRUN pip install numpy\nWORKDIR /app\nCOPY image/app /app\n"


def harbor(folder: Path, toml: str = "") -> Path:
    place = folder / "hello"
    for name in ("environment/image/app", "tests", "solution"):
        (place / name).mkdir(parents=True)
    (place / "task.toml").write_text(f"[agent]\ntimeout_sec = 60\n[environment]\n{toml}")
    (place / "instruction.md").write_text("Copy data.txt to copy.txt\n")
    (place / "environment/Dockerfile").write_text(DOCKERFILE)
    (place / "environment/image/app/data.txt").write_text("hello\n")
    (place / "solution/solve.sh").write_text("cp data.txt copy.txt\n")
    (place / "tests/test.sh").write_text(
        "cmp data.txt copy.txt && echo 1 > $PROCTOR_VERIFIER_LOGS/reward.txt || true\n"
    )
    return place


def arguments(calls: Path, word: str) -> list[list[str]]:
    lines = [json.loads(line)[0] for line in calls.read_text().splitlines()]
    return [line for line in lines if line[0] == word]


async def test_a_task_runs_in_the_image_that_it_needs(workshop, engine_calls, tmp_path):
    place = harbor(tmp_path)
    [task] = read_task_set(place).tasks
    assert f"build the image of {place / 'environment'}" in commands_of([task])
    assert "bash /solution/solve.sh" in commands_of([task], with_solutions=True)
    assert not arguments(engine_calls, "build"), "reading a task builds nothing"

    ran = await run_task(workshop, task, [{"run": "cp data.txt copy.txt"}])

    assert ran["outcome"][0] == "success", ran["error"]
    [built] = arguments(engine_calls, "build")
    runs = arguments(engine_calls, "run")
    assert runs and all(built[2] in line for line in runs)
    for target in ("/app", "/logs"):
        assert all(any(word.endswith(f":{target}") for word in line) for line in runs)
    assert not any(word.endswith(":/tests") for word in runs[0]), "tests are not there while the agent works"
    assert any(word.endswith(":/tests") for word in runs[-1])


def test_a_published_image_is_pulled(engine_calls: Path, tmp_path: Path) -> None:
    [task] = read_task_set(harbor(tmp_path, 'docker_image = "example/hello:1"\n')).tasks
    assert task.image and (task.image.name, task.image.context) == ("example/hello:1", None)
    assert "pull the image example/hello:1" in commands_of([task])


def test_without_an_engine_the_reason_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    container.engine.cache_clear()
    try:
        with pytest.raises(UsageError, match="it needs its image, which runs `pip install numpy`"):
            read_task_set(harbor(tmp_path / "a"))
        with pytest.raises(UsageError, match="it needs its image example/hello:1"):
            read_task_set(harbor(tmp_path / "b", 'docker_image = "example/hello:1"\n'))
    finally:
        container.engine.cache_clear()
