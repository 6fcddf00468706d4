"""Workers need nothing of the driver but messages: a run gives the same results when they are far apart."""

import asyncio
import json
import pickle
import re
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from job_runs import (
    DIALOGUES,
    EXPERIMENT,
    JUDGE,
    TALKING,
    WORLD,
    Runs,
    StoppingAfterTurns,
    add_scenario,
    files_of,
)

from proctor.batch import lifecycle
from proctor.batch.engines import LocalEngine
from proctor.batch.engines.messages import RowBatch, RowBuffer, Stop, WorkChunk
from proctor.batch.engines.worker import Worker, make_worker_context
from proctor.job import PlanText, make_overrides
from proctor.jobs.benchmark.job import JOB as BENCHMARK
from proctor.jobs.dialogue.job import JOB as DIALOGUE
from proctor.jobs.evaluation.job import JOB as EVALUATION
from proctor.jobs.scenario.job import JOB as SCENARIO
from proctor.processes import undisturbed
from proctor.store import Scope, Store
from proctor.testing import make_git_repository


class Driver:
    """What workers may call on the driver: its host, and the next items."""

    def __init__(self, queue, host) -> None:
        self._queue, self._host = queue, host

    async def next_chunk(self) -> WorkChunk | None:
        work = await self._queue.next()
        return work and WorkChunk((work,))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._host, name)


class RemoteHost:
    """Calls the driver on its own event loop. Arguments and answers cross as bytes."""

    def __init__(self, driver: Driver, loop: asyncio.AbstractEventLoop) -> None:
        self._driver, self._loop = driver, loop
        self.messages = set[str]()

    def __getattr__(self, method: str) -> Any:
        async def call(*arguments: object, **named: object) -> object:
            self.messages.add(method)
            request = pickle.dumps((arguments, named))
            answer = asyncio.run_coroutine_threadsafe(self._answer(method, request), self._loop)
            return pickle.loads(await asyncio.wrap_future(answer))

        return call

    async def _answer(self, method: str, request: bytes) -> bytes:
        arguments, named = pickle.loads(request)
        return pickle.dumps(await getattr(self._driver, method)(*arguments, **named))


FILE_EVENTS = ("open", "os.mkdir", "os.rename", "os.listdir", "os.scandir")
WORKERS: dict[int, set[str]] = {}
"""Threads of workers, with the paths that each has used."""


def _watch_files(event: str, arguments: tuple[object, ...]) -> None:
    if event in FILE_EVENTS and WORKERS and threading.get_ident() in WORKERS:
        WORKERS[threading.get_ident()].update(map(str, arguments[:2]))


sys.addaudithook(_watch_files)


class PicklingEngine:
    """One worker in a thread, with an event loop and a home of its own; every message is pickled."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.messages = set[str]()
        self.paths = set[str]()
        """Files and folders that the worker has used."""
        self._stop_message = b""
        self._worker: Worker | None = None

    async def run(self, queue, host, spec) -> None:
        spec = replace(spec, settings=replace(spec.settings, home=self.home))
        remote = RemoteHost(Driver(queue, host), asyncio.get_running_loop())
        self.messages = remote.messages
        running = asyncio.create_task(asyncio.to_thread(self._run_thread, pickle.dumps(spec), remote))
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            self._loop.call_soon_threadsafe(self._cancel)
            await asyncio.wait([running])
            raise

    def stop(self, reason) -> None:
        self._stop_message = pickle.dumps(Stop(reason))

    def _run_thread(self, spec: bytes, host: RemoteHost) -> None:
        self._loop = asyncio.new_event_loop()
        WORKERS[threading.get_ident()] = self.paths
        try:
            self._loop.run_until_complete(self._run(pickle.loads(spec), host))
        finally:
            self._loop.close()
            del WORKERS[threading.get_ident()]

    def _cancel(self) -> None:
        if self._stop_message and self._worker:
            self._worker.stop(pickle.loads(self._stop_message).reason)
        self._task.cancel()

    async def _run(self, spec, host: RemoteHost) -> None:
        self._task = asyncio.current_task()
        context, models = make_worker_context(spec)
        rows = RowBuffer()
        worker = self._worker = Worker(spec, context, host, rows)
        await worker.open()
        sending = asyncio.create_task(self._send(host, rows))
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(spec.concurrency):
                    group.create_task(self._work(worker, host, rows))
        except asyncio.CancelledError:
            pass
        finally:
            sending.cancel()
            await undisturbed(host.write(RowBatch(rows.take())))
            await undisturbed(worker.close())
            await context.gateway.close()
            await models.close()

    async def _send(self, host: RemoteHost, rows: RowBuffer) -> None:
        """Send rows while attempts run, so that a step reaches the driver before the next begins."""
        while True:
            await asyncio.sleep(0.01)
            await undisturbed(host.write(RowBatch(rows.take())))

    async def _work(self, worker: Worker, host: RemoteHost, rows: RowBuffer) -> None:
        while chunk := await host.next_chunk():
            for work in chunk.items:
                end = await worker.run(work)
                await undisturbed(host.write(RowBatch(rows.take(), (end,))))


class OtherMachine(PicklingEngine):
    """The same, for a worker that does not see the driver's files."""

    shares_disk = False

    async def run(self, queue, host, spec) -> None:
        await super().run(queue, host, replace(spec, shares_disk=False))


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    return Runs(tmp_path, lambda: PicklingEngine(tmp_path / "worker-home"))


@pytest.fixture
def dialogues(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> Runs:
    # A plan without a file finds its models here when it is resumed.
    monkeypatch.chdir(runs.folder)
    runs.job = DIALOGUE
    (runs.folder / "talking.yaml").write_text(TALKING)
    return runs


async def test_an_interrupted_dialogue_resumes_after_its_last_turn_on_another_worker(dialogues):
    whole = await dialogues.run(DIALOGUES, LocalEngine(), "whole")
    (dialogues.folder / "talking.yaml").write_text(f"latency_seconds: 0.05\n{TALKING}")
    stopping = StoppingAfterTurns(dialogues.store, "cut")
    cut = await dialogues.run(DIALOGUES, LocalEngine(), "cut", observer=stopping)
    (dialogues.folder / "talking.yaml").write_text(TALKING)

    resumed = await dialogues.resume("cut", dialogues.far)

    assert cut["end"].status == "interrupted"
    assert resumed["end"].status == "completed"
    assert resumed["texts"] == whole["texts"]
    assert any("resumed after turn" in note for note in dialogues.notes("cut"))
    assert not (dialogues.folder / "cut" / ".unfinished").exists()


@pytest.fixture
def scenarios(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """A scenario of two actors on scripted models."""
    monkeypatch.chdir(runs.folder)
    runs.job = SCENARIO
    add_scenario(runs.folder)
    return runs


async def test_scenarios_have_the_same_outcome_and_files_wherever_they_run(scenarios):
    local, far = await scenarios.both(EXPERIMENT)

    assert local == far
    assert [item["status"] for item in far["items"]] == ["success"] * 2
    assert [label for *_, label in far["scores"]] == ["Very Helpful"] * 8
    assert files_of(scenarios.folder / "local") == files_of(scenarios.folder / "far")
    assert len(files_of(scenarios.folder / "far")) == 2 * (1 + 4 * 3 + 4)
    assert not [path for path in scenarios.far.paths if str(scenarios.folder / "far" / "runs") in path]
    assert not (scenarios.folder / "worker-home").exists()


async def test_an_interrupted_scenario_resumes_after_its_last_turn_on_another_worker(scenarios):
    await scenarios.run(EXPERIMENT, LocalEngine(), "whole")
    (scenarios.folder / "scenario" / "world.yaml").write_text(f"latency_seconds: 0.5\n{WORLD}")
    stopping = StoppingAfterTurns(scenarios.store, "cut")
    cut = await scenarios.run(EXPERIMENT, scenarios.far, "cut", observer=stopping)
    turns = [len(states(scenarios.folder / "cut", run)) for run in (1, 2)]
    (scenarios.folder / "cut" / "base-scenario" / "world.yaml").write_text(WORLD)

    far = PicklingEngine(scenarios.folder / "worker-home")
    resumed = await scenarios.resume("cut", far)

    assert cut["end"].status == "interrupted" and 3 <= sum(turns) < 8
    assert resumed["end"].status == "completed"
    for run in (1, 2):
        assert states(scenarios.folder / "cut", run) == states(scenarios.folder / "whole", run)
    assert any("resumed after turn" in note for note in scenarios.notes("cut"))
    assert not [path for path in far.paths if str(scenarios.folder / "cut" / "runs") in path]


def states(folder: Path, run: int) -> list[str]:
    """The states of the world after each turn of a run."""
    state = json.loads((folder / "runs" / f"var-001-run-00{run}" / "scenario-state.json").read_text())
    return [state["world_state"]["states"][str(turn)] for turn in state["completed_turns"]]


class Person:
    """Answers for an actor, but once in the second turn."""

    def __init__(self) -> None:
        self.turns: list[str] = []
        self.threads = set[int]()

    async def ask(self, item_id: str, actor: str, prompt: str) -> str:
        assert actor == "ferry"
        self.threads.add(threading.get_ident())
        self.turns += re.findall(r"in turn (\d)", prompt)[-1:]
        return "" if len(self.turns) == 2 else f"ACTION: sails {len(self.turns)} times"


async def test_a_person_at_the_driver_is_asked_and_a_failed_run_continues_after_its_last_turn(scenarios):
    scenarios.people = person = Person()
    ferry = scenarios.folder / "scenario" / "actors" / "ferry.yaml"
    ferry.write_text("name: The ferry\nshort_name: ferry\ncontrol: human\n")

    text = EXPERIMENT.replace("runs_per_variation: 2", "runs_per_variation: 1").replace(": 2\n", ": 1\n")
    far = await scenarios.run(text, scenarios.far, "far")

    assert [item["status"] for item in far["items"]] == ["success"]
    assert person.turns == ["1", "2", "2", "3", "4"]
    assert person.threads == {threading.get_ident()}
    assert [attempt for _, attempt, *_ in far["sessions"]] == [1, 2]
    run = scenarios.folder / "far" / "runs" / "var-001-run-001"
    costs = json.loads((run / "costs.json").read_text())
    assert {turn["turn"]: turn["calls"] for turn in costs["costs_by_actor"]["The ferry"]["turns"]} == {
        1: 1, 2: 2, 3: 1, 4: 1,
    }  # fmt: skip
    assert costs["unfinished_turns"]["calls"] == 2, "one of the person, and one of the other actor"
    assert (
        "ferry, decision: human/ferry 0+0 tokens unknown (of a turn that"
        in (run / "scenario.log").read_text()
    )


async def test_an_evaluator_that_only_the_driver_has_evaluates_wherever_it_runs(runs):
    await runs.run("matrix: [{prompt: hello, model: scripted/echo, runs: 3}]", LocalEngine(), "prompts")
    scale = [
        {"label": "Good", "value": 1, "definition": "kind"},
        {"label": "Bad", "value": 0, "definition": ""},
    ]
    judge = {"instructions": "Was it polite? {assistant_turn}", "ratingScale": {"numerical": scale}}
    judge["modelConfig"] = {"bedrockEvaluatorModelConfig": {"modelId": "scripted/judge"}}
    (runs.folder / "home" / "evaluators").mkdir(parents=True)
    (runs.folder / "home" / "evaluators" / "polite.json").write_text(
        json.dumps({"evaluatorName": "polite", "level": "TRACE", "evaluatorConfig": {"llmAsAJudge": judge}})
    )
    (runs.folder / "judge.yaml").write_text(JUDGE.replace("Very Helpful", "Good"))
    runs.job = EVALUATION

    local, far = await runs.both("""
        batchEvaluationName: RUN
        evaluators: [polite]
        dataSourceConfig: {store: {runIds: [prompts]}}
    """)

    assert {**local, "items": 0, "sessions": 0, "texts": 0} == {**far, "items": 0, "sessions": 0, "texts": 0}
    assert [item["status"] for item in far["items"]] == ["success"] * 3
    assert [row[0::2] for row in far["scores"]] == [("polite", 1.0)] * 3
    assert "load_session" in runs.far.messages


async def test_coding_sessions_work_on_a_copy_where_the_disk_is_not_shared(runs):
    repository = make_git_repository(runs.folder / "shop", {"shop.py": "total = 1 - 1\n", "sub/a.txt": "a\n"})
    runs.far = OtherMachine(runs.folder / "worker-home")
    far = await runs.run(
        """
        concurrency: 2
        defaults: {agent: command, scriptCommand: test -f shop.py, mergeOnPass: true}
        matrix:
          - {repo: ./shop, prompt: one, command: "echo RUN > one.txt"}
          - {repo: ./shop, prompt: two, command: "echo RUN > two.txt"}
          - repo: ./shop/sub
            prompt: three
            command: "git log --format=%s > three.txt; git add -A; git commit -m own"
        """,
        runs.far,
        "far",
    )

    assert [item["reason"] for item in far["items"]] == ["completed"] * 3
    assert (repository / "one.txt").read_text() == "far\n"
    assert (repository / "three.txt").is_file()
    assert {"copy_repository", "publish_branch", "merge"} <= runs.far.messages
    assert not [path for path in runs.far.paths if path.startswith(str(repository))]
    with Store(runs.store) as store:
        sessions = store.read.sessions(Scope(run_id="far"), limit=10)
    assert {row["repo"] for row in sessions} == {str(repository)}
    notes = " ".join(row["notes"] for row in sessions)
    assert "is inside the repository" in notes and "the repository at" not in notes


async def test_files_of_tasks_travel_where_the_disk_is_not_shared(runs):
    folder = runs.folder / "tasks"
    files = {
        "words.md": "---\nstart: start\ncheck: sh check.sh\ncheck_files: checks\n---\nSay hello\n",
        "start/answer.txt": "hello",
        "checks/check.sh": "grep -q hello answer.txt",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    far = OtherMachine(runs.folder / "worker-home")
    facts = {}
    for run_id, engine in (("local", LocalEngine()), ("far", far)):
        with runs.context() as ctx:
            overrides = make_overrides(BENCHMARK, {"noop": True, "output": str(runs.folder / run_id)})
            source = PlanText(text="", path=folder / "words.md", folder=folder)
            plan = BENCHMARK.read(source, overrides, ctx)
            result = await lifecycle.start(BENCHMARK, plan, ctx, run_id=run_id, engine=engine)
            facts[run_id] = {"end": result.end, **runs.facts(ctx.store, run_id)}

    assert facts["local"] == facts["far"]
    assert [item["status"] for item in facts["far"]["items"]] == ["success"]
    assert {"starting_repository", "copy_repository", "copy_files"} <= far.messages
    assert not [path for path in far.paths if path.startswith(str(folder))]


class Capturing(PicklingEngine):
    """Remembers the configuration of its worker."""

    async def run(self, queue, host, spec) -> None:
        self.settings = pickle.loads(pickle.dumps(spec.settings))
        await super().run(queue, host, spec)


async def test_programs_of_a_worker_do_not_see_the_store_that_the_worker_does_not_know(runs):
    far = Capturing(runs.folder / "worker-home")

    await runs.run("matrix: [{prompt: hello, model: scripted/echo}]", far, "far")

    assert far.settings.store_url == ""
    hidden = set(far.settings.confinement.hidden)
    assert {Path(f"{runs.store}{end}") for end in ("", "-wal", "-shm")} <= hidden
    assert Path.cwd() not in hidden
