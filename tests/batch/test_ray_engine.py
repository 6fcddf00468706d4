"""The nodes of a Ray cluster share a run: the same results as this process, and nothing lost when one dies."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from job_runs import DIALOGUES, EXPERIMENT, JUDGE, TALKING, Runs, add_scenario, files_of

pytest.importorskip("ray", reason="tests of --engine ray need the extra `ray`: pip install -e '.[ray]'")

import ray
from ray.cluster_utils import Cluster

from proctor.batch import lifecycle
from proctor.batch.engines import LocalEngine
from proctor.batch.engines.ray import RayEngine
from proctor.job import PlanText, make_overrides
from proctor.jobs.benchmark.job import JOB as BENCHMARK
from proctor.jobs.dialogue.job import JOB as DIALOGUE
from proctor.jobs.evaluation.job import JOB as EVALUATION
from proctor.jobs.scenario.job import JOB as SCENARIO
from proctor.store import Scope, Store
from proctor.testing import make_git_repository

STORE_BYTES = 80 * 2**20


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head that runs no items, and two nodes."""
    import os
    import types

    if "TRY_RAY" in os.environ:
        yield types.SimpleNamespace(address=os.environ["TRY_RAY"])
        return
    options = {"object_store_memory": STORE_BYTES, "include_dashboard": False}
    started = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **options})
    started.add_node(num_cpus=1, object_store_memory=STORE_BYTES)
    started.add_node(num_cpus=2, object_store_memory=STORE_BYTES)
    yield started
    ray.shutdown()
    started.shutdown()


@pytest.fixture
def runs(tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> "Clustered":
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.chdir(tmp_path)
    return Clustered(tmp_path, cluster.address)


class Clustered(Runs):
    """Runs in this process and on the nodes of a cluster."""

    def __init__(self, folder: Path, address: str) -> None:
        self.address = address
        self.notes = list[str]()
        super().__init__(folder, self.engine)

    def engine(self) -> RayEngine:
        return RayEngine(self.address, note=self.notes.append)


def git(repository: Path, *arguments: str) -> str:
    command = ["git", "-C", str(repository), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


async def test_prompts_have_the_same_outcome_on_two_nodes(runs):
    local, far = await runs.both("""
        concurrency: 4
        defaults: {retries: 1}
        matrix:
          - {prompt: hello, model: scripted/echo, runs: 300, expect: {contains: hello}}
          - {prompt: good bye, model: scripted/echo, runs: 5, expect: {contains: hello}}
    """)

    assert local == far
    assert far["end"].status == "completed"
    assert [item["status"] for item in far["items"]] == ["success"] * 300 + ["fail"] * 5


async def test_coding_sessions_work_on_copies_and_their_branches_come_back(runs):
    repository = make_git_repository(runs.folder / "shop", {"shop.py": "total = 1 - 1\n"})
    local, far = await runs.both("""
        concurrency: 3
        matrix:
          - repo: ./shop
            prompt: Fix the sum.
            agent: command
            command: "echo 'total = 1 + 1' > shop.py"
            scriptCommand: grep -q + shop.py
            runs: 2
          - {repo: ./shop, prompt: Do nothing., agent: command, command: "true"}
    """)

    assert local == far
    assert [item["reason"] for item in far["items"]] == ["completed", "completed", "no_changes"]
    with Store(runs.store) as store:
        rows = store.read.sessions(Scope(run_id="far"), limit=10)
    assert {row["repo"] for row in rows} == {str(repository)}
    changed = [row for row in rows if row["endReason"] == "completed"]
    for row in changed:
        assert "total = 1 + 1" in git(repository, "show", f"{row['branch']}:shop.py")
    assert not [row for row in rows if str(runs.folder) in row["worktree"]]

    merged = await runs.run(
        """
        concurrency: 3
        defaults: {mergeOnPass: true, agent: command, scriptCommand: test -f shop.py}
        matrix:
          - {repo: ./shop, prompt: one, command: "echo 1 > one.txt"}
          - {repo: ./shop, prompt: two, command: "echo 2 > two.txt"}
          - {repo: ./shop, prompt: three, command: "echo 3 > three.txt"}
        """,
        runs.engine(),
        "merged",
    )
    assert [item["reason"] for item in merged["items"]] == ["completed"] * 3
    assert {"one.txt", "two.txt", "three.txt"} <= {path.name for path in repository.iterdir()}


async def test_dialogues_have_the_same_outcome_on_two_nodes(runs):
    runs.job = DIALOGUE
    (runs.folder / "talking.yaml").write_text(TALKING)

    local, far = await runs.both(DIALOGUES)

    assert local == far
    assert [item["status"] for item in far["items"]] == ["success"] * 4


async def test_scenarios_have_the_same_outcome_and_files_on_two_nodes(runs):
    runs.job = SCENARIO
    add_scenario(runs.folder)

    local, far = await runs.both(EXPERIMENT)

    assert local == far
    assert [item["status"] for item in far["items"]] == ["success"] * 2
    assert files_of(runs.folder / "local") == files_of(runs.folder / "far")


async def test_sessions_are_evaluated_on_two_nodes(runs):
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


TASK = """---
files: start
check: sh check.sh
check_files: checks
---
Write hello to answer.txt
"""


async def test_a_benchmark_has_the_same_outcome_on_two_nodes(runs):
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
