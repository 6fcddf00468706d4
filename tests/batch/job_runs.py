"""Runs of the same plan in this process and with workers elsewhere, and what both must have in common."""

import asyncio
import re
import sqlite3
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, closing
from pathlib import Path
from typing import Any

from databases import query
from proctor.batch import lifecycle
from proctor.batch.engines import Engine, LocalEngine
from proctor.batch.executor import Observer
from proctor.bootstrap import open_context
from proctor.context import People, RunContext
from proctor.job import Job, PlanText, make_overrides
from proctor.jobs.benchmark.job import JOB as BENCHMARK
from proctor.jobs.coding.job import JOB as CODING
from proctor.jobs.dialogue.job import JOB as DIALOGUE
from proctor.jobs.evaluation.job import JOB as EVALUATION
from proctor.jobs.scenario.job import JOB as SCENARIO
from proctor.store import Scope, Store
from proctor.testing import make_git_repository

MERGED_EDITS = """
        concurrency: 3
        defaults: {mergeOnPass: true, agent: command, scriptCommand: test -f shop.py}
        matrix:
          - {repo: ./shop, prompt: one, command: "echo 1 > one.txt"}
          - {repo: ./shop, prompt: two, command: "echo 2 > two.txt"}
          - {repo: ./shop, prompt: three, command: "echo 3 > three.txt"}
        """


class StoppingWhen(Observer):
    """Interrupts a run as soon as `is_time`."""

    def is_time(self) -> bool:
        """Whether to interrupt it now."""
        return True

    @asynccontextmanager
    async def watch(self, run_id: str, control: Any) -> AsyncIterator[None]:
        waiting = asyncio.create_task(self._wait(control))
        yield
        waiting.cancel()

    async def _wait(self, control: Any) -> None:
        while not self.is_time():
            await asyncio.sleep(0.01)
        control.interrupt()


class StoppingAfterTurns(StoppingWhen):
    """Interrupts a run once three turns are recorded."""

    def __init__(self, store: str, run_id: str) -> None:
        self._store, self._run_id = store, run_id

    sql = (
        'SELECT COUNT(*) FROM "iterations" i JOIN "sessions" s ON s."id" = i."sessionId" WHERE s."runId" = ?'
    )

    def is_time(self) -> bool:
        with closing(sqlite3.connect(self._store)) as database:
            return int(database.execute(self.sql, (self._run_id,)).fetchone()[0]) >= 3


class StoppingAmidSlowItems(StoppingAfterTurns):
    """Interrupts a run once an item has finished while both items of its slow model are running."""

    sql = (
        'SELECT (SELECT COUNT(*) FROM "batch_items" WHERE "status" = \'running\' AND "model" LIKE \'%slow\') '
        '+ MIN(1, COUNT(*)) FROM "batch_items" WHERE "runId" = ? AND "status" = \'success\''
    )


class Runs:
    """Runs of one plan text: in this process, and with workers elsewhere."""

    coding_defaults = "{}"
    """`defaults` of coding plans."""

    def __init__(self, folder: Path, make_engine: Callable[[], Engine], job: Job = CODING) -> None:
        self.folder = folder
        self.job = job
        self.make_engine = make_engine
        self.far = make_engine()
        self.people: People | None = None

    async def both(self, text: str) -> tuple[dict[str, Any], dict[str, Any]]:
        return await self.run(text, LocalEngine(), "local"), await self.run(text, self.far, "far")

    async def run(self, text: str, engine, run_id: str, **more: Any) -> dict[str, Any]:
        """Run a plan; everything about it that does not depend on time or place."""
        with self.context() as ctx:
            overrides = make_overrides(self.job, self.overrides(run_id))
            text = text.replace("RUN", run_id)
            plan = self.job.read(PlanText(text=text, folder=self.folder), overrides, ctx)
            result = await lifecycle.start(self.job, plan, ctx, run_id=run_id, engine=engine, **more)
            return {"end": result.end, **self.facts(ctx.store, result.run_id)}

    def context(self) -> AbstractContextManager[RunContext]:
        home = str(self.folder / "home")
        return open_context([self.folder], home=home, store=self.store, people=self.people)

    async def resume(self, run_id: str, engine) -> dict[str, Any]:
        with self.context() as ctx:
            result = await lifecycle.resume(self.job, run_id, ctx, engine=engine)
            return {"end": result.end, **self.facts(ctx.store, run_id)}

    def overrides(self, run_id: str) -> dict[str, object]:
        return {"output_dir": str(self.folder / run_id)} if self.job is DIALOGUE else {}

    @property
    def store(self) -> str:
        return str(self.folder / "proctor.db")

    def facts(self, store, run_id: str) -> dict[str, Any]:
        items = store.read.items(run_id, limit=1000)
        columns = ("id", "status", "reason", "error", "tokensTotal", "toolCalls", "costUsd")
        reserved, spent = store.read.reserved_and_spent(run_id)
        return {
            "items": [{name: item.get(name) for name in columns} for item in items],
            "sessions": self._rows(
                store,
                'SELECT "itemId", "attempt", "status", "endReason" FROM "sessions" '
                'WHERE "runId" = ? ORDER BY "itemId", "attempt"',
                run_id,
            ),
            "iterations": self._rows(
                store,
                'SELECT "itemId", i."changedFiles", i."linesAdded", i."testResult", i."exitCode" '
                'FROM "iterations" i JOIN "sessions" s ON s."id" = i."sessionId" '
                'WHERE s."runId" = ? ORDER BY "itemId", "attempt"',
                run_id,
            ),
            "scores": self._rows(
                store,
                'SELECT "evaluator", "target", x."value", x."label" FROM "scores" x JOIN "sessions" s '
                'ON s."id" = x."sessionId" WHERE s."runId" = ? ORDER BY "itemId", "attempt", "target"',
                run_id,
            ),
            "texts": [self._texts(store, item["sessionId"]) for item in items],
            "money": (round(reserved, 9), round(spent, 9)),
        }

    def notes_of(self, run_id: str) -> list[str]:
        with Store(self.store) as store:
            return [row["notes"] for row in store.read.sessions(Scope(run_id=run_id), limit=1000)]

    def _texts(self, store, session_id: str) -> list[tuple[object, ...]]:
        sql = 'SELECT "role", "content" FROM "messages" WHERE "sessionId" = ? ORDER BY "position"'
        return self._rows(store, sql, session_id)

    def _rows(self, store, sql: str, parameter: str) -> list[tuple[object, ...]]:
        return [tuple(row.values()) for row in query(store, sql, (parameter,))]


DIALOGUES = """
clients: [consistentMI]
therapists: [eliza, CBT]
num_runs: 2
max_turns: 8
max_workers: 2
seed: 7
loop_turns: 0
model_name: scripted/talking
"""
TALKING = "rules: [{reply: [It began slowly., It began at home., It began with a letter.]}]"


EXPERIMENT = """
experiment_name: Fees
base_scenario: scenario
output_dir: RUN
runs_per_variation: 2
max_parallel: 2
evaluators: [Builtin.Helpfulness]
judge_model: scripted/judge
prices:
  scripted/judge: {input: 10, output: 10}
  scripted/world: {input: 1, output: 1}
  scripted/act: {input: 1, output: 1}
variations: []
"""
WORLD = "rules: [{reply: ['UPDATED STATE: rain', 'UPDATED STATE: sun', 'UPDATED STATE: fog']}]\n"
JUDGE = """rules: [{reply: '{"reasoning": "It helps.", "score": "Very Helpful"}'}]\n"""


def add_scenario(folder: Path) -> None:
    """A scenario of two actors on scripted models."""
    actors = folder / "scenario" / "actors"
    actors.mkdir(parents=True)
    (actors.parent / "scenario.yaml").write_text(
        "name: Harbor\ninitial_world_state: Spring\nturns: 4\nworld_state_model: scripted/world\n"
    )
    for short in ("port", "ferry"):
        (actors / f"{short}.yaml").write_text(
            f"name: The {short}\nshort_name: {short}\nllm_model: scripted/act\n"
        )
    (actors.parent / "world.yaml").write_text(WORLD)
    (actors.parent / "act.yaml").write_text("rules: [{reply: ['ACTION: waits', 'ACTION: sails']}]\n")
    (folder / "judge.yaml").write_text(JUDGE)


def files_of(folder: Path) -> dict[str, str]:
    """The files of an experiment's runs, without times."""
    time = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
    return {
        str(path.relative_to(folder)): time.sub("TIME", path.read_text())
        for path in sorted((folder / "runs").rglob("*"))
        if path.is_file()
    }


TASK = """---
start: start
check: sh check.sh
check_files: checks
---
Write hello to answer.txt
"""


def git(repository: Path, *arguments: str) -> str:
    """The output of a git command."""
    command = ["git", "-C", str(repository), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


async def check_prompts(runs: Runs, successes: int = 60) -> Any:
    """Prompts that succeed and fail have the same outcome, which is returned."""
    local, far = await runs.both(f"""
        concurrency: 4
        defaults: {{retries: 1}}
        matrix:
          - {{prompt: hello, model: scripted/echo, runs: {successes}, expect: {{contains: hello}}}}
          - {{prompt: good bye, model: scripted/echo, runs: 5, expect: {{contains: hello}}}}
    """)

    assert local == far
    assert far["end"].status == "completed"
    assert [item["status"] for item in far["items"]] == ["success"] * successes + ["fail"] * 5
    return far


async def check_coding(runs: Runs) -> None:
    """Coding sessions leave branches, and what passes is merged."""
    repository = make_git_repository(runs.folder / "shop", {"shop.py": "total = 1 - 1\n"})
    local, far = await runs.both(f"""
        concurrency: 3
        defaults: {runs.coding_defaults}
        matrix:
          - repo: ./shop
            prompt: Fix the sum.
            agent: command
            command: "echo 'total = 1 + 1' > shop.py"
            scriptCommand: grep -q + shop.py
            runs: 2
          - {{repo: ./shop, prompt: Do nothing., agent: command, command: "true"}}
    """)

    assert local == far
    assert [item["reason"] for item in far["items"]] == ["completed", "completed", "no_changes"]
    with Store(runs.store) as store:
        rows = store.read.sessions(Scope(run_id="far"), limit=10)
    assert {row["repo"] for row in rows} == {str(repository)}
    for row in rows:
        if row["endReason"] == "completed":
            assert "total = 1 + 1" in git(repository, "show", f"{row['branch']}:shop.py")

    merged = await runs.run(MERGED_EDITS, runs.make_engine(), "merged")
    assert [(item["reason"], item["error"]) for item in merged["items"]] == [("completed", "")] * 3
    assert {"one.txt", "two.txt", "three.txt"} <= {path.name for path in repository.iterdir()}


def dear_calls(count: int, *, concurrency: int) -> str:
    """A plan of calls that cost a cent each."""
    return f"""
        concurrency: {concurrency}
        budget: 10
        prices: {{scripted/dear: {{input: 0, output: 10000}}}}
        matrix: [{{prompt: hello, model: scripted/dear, runs: {count}, settings: {{max_tokens: 1}}}}]
    """


def check_lost_attempts(far: Any, *, items: int, most: int) -> int:
    """Every item succeeded once, though some attempts died with their worker; how many did."""
    ended = Counter((item_id, status) for item_id, _, status, _ in far["sessions"])
    assert {item["status"] for item in far["items"]} == {"success"}
    assert [ended[item["id"], "success"] for item in far["items"]] == [1] * items, "each to its end once"
    lost = [row for row in far["sessions"] if row[2] != "success"]
    assert 1 <= len(lost) <= most
    assert {(attempt, status, reason) for _, attempt, status, reason in lost} == {(1, "error", "interrupted")}
    assert far["money"][0] == 0
    return len(lost)


async def check_retries(runs: Runs) -> None:
    """Attempts that time out are retried once, wherever they run."""
    (runs.folder / "silent.yaml").write_text("{latency_seconds: 3600, rules: [{reply: ok}]}")
    local, far = await runs.both("""
        concurrency: 3
        defaults: {retries: 1, timeoutSec: 0.05}
        matrix: [{prompt: hello, model: scripted/silent, runs: 3}]
    """)

    assert local == far
    assert [item["status"] for item in far["items"]] == ["timeout"] * 3
    assert [attempt for _, attempt, *_ in far["sessions"]] == [1, 2] * 3


async def check_dialogues(runs: Runs) -> None:
    """Dialogues have the same turns."""
    runs.job = DIALOGUE
    (runs.folder / "talking.yaml").write_text(TALKING)

    local, far = await runs.both(DIALOGUES)

    assert local == far
    assert [item["status"] for item in far["items"]] == ["success"] * 4


async def check_scenarios(runs: Runs) -> None:
    """Scenarios have the same turns and files."""
    runs.job = SCENARIO
    add_scenario(runs.folder)

    local, far = await runs.both(EXPERIMENT)

    assert local == far
    assert [item["status"] for item in far["items"]] == ["success"] * 2
    assert [label for *_, label in far["scores"]] == ["Very Helpful"] * 8
    assert files_of(runs.folder / "local") == files_of(runs.folder / "far")


async def check_evaluations(runs: Runs) -> None:
    """Sessions get the same scores, by a judge and by a function that imports another module."""
    await runs.run("matrix: [{prompt: hello, model: scripted/echo, runs: 6}]", LocalEngine(), "prompts")
    (runs.folder / "judge.yaml").write_text(JUDGE)
    (runs.folder / "checks.py").write_text(
        "import words\ndef short(event):\n    return {'label': words.LABEL, 'value': 1.0}\n"
    )
    (runs.folder / "words.py").write_text("LABEL = 'short'\n")
    runs.job = EVALUATION

    local, far = await runs.both("""
        batchEvaluationName: RUN
        evaluators: [Builtin.Helpfulness, 'checks:short']
        judge: scripted/judge
        dataSourceConfig: {store: {runIds: [prompts]}}
    """)

    assert [item["status"] for item in far["items"]] == ["success"] * 12
    assert sorted(local["scores"], key=str) == sorted(far["scores"], key=str)
    assert len(far["scores"]) == 12


async def check_benchmark(runs: Runs) -> None:
    """A task with starting files and files of its check has the same outcome."""
    runs.job = BENCHMARK
    task = runs.folder / "tasks" / "words.md"
    for name, text in {"start/answer.txt": "hello", "checks/check.sh": "grep -q hello answer.txt"}.items():
        path = task.parent / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    task.write_text(TASK)
    facts = {}
    for run_id, engine in (("local", LocalEngine()), ("far", runs.far)):
        with runs.context() as ctx:
            values = {"noop": True, "parallel": 2, "runs": 3, "output": str(runs.folder / run_id)}
            plan = BENCHMARK.read(
                PlanText(text="", path=task, folder=task.parent), make_overrides(BENCHMARK, values), ctx
            )
            result = await lifecycle.start(BENCHMARK, plan, ctx, run_id=run_id, engine=engine)
            facts[run_id] = {"end": result.end, **runs.facts(ctx.store, run_id)}

    assert facts["local"] == facts["far"]
    assert [item["status"] for item in facts["far"]["items"]] == ["success"] * 3


JOB_CHECKS = {
    "prompts": check_prompts,
    "coding": check_coding,
    "dialogues": check_dialogues,
    "scenarios": check_scenarios,
    "evaluations": check_evaluations,
    "benchmark": check_benchmark,
}
"""What every engine must pass, by job."""
