"""The nodes of a Ray cluster share a run: the same results as this process, nothing lost when one dies.

`make test-ray` runs these: a cluster takes half a minute to start.
"""

import json
import os
import secrets
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from job_runs import JOB_CHECKS, Runs, StoppingWhen, check_lost_attempts, dear_calls, git

from databases import query
from proctor.batch.executor import Observer
from proctor.store import Scope, Store
from proctor.testing import eventually, make_git_repository
from proctor.testing.model_server import ModelServer, reply
from waiting import while_running

if "PROCTOR_RAY" not in os.environ:
    pytest.skip("--engine ray is tested by `make test-ray`", allow_module_level=True)

TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16), "RAY_USAGE_STATS_ENABLED": "0"}
# Ray reads them when it is imported.
os.environ.update(TOKEN)

import ray  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402

from proctor.batch.engines.ray import RayEngine  # noqa: E402
from waiting import TIME_LIMIT_SECONDS  # noqa: E402

STORE_BYTES = 80 * 2**20
OTHER_MACHINE = Path(__file__).parent / "other_machine"


class Nodes:
    """A cluster on this machine whose nodes see no folder of the tests; its head runs no items."""

    def __init__(self, folder: Path, hidden: Path) -> None:
        """`folder` is where nodes have their files."""
        self.folder = folder
        self._variables = {
            "PYTHONPATH": str(OTHER_MACHINE),
            "HIDDEN_FROM_NODES": str(hidden),
            "TMPDIR": str(folder),
        }
        self._cluster = Cluster()
        self.add(num_cpus=0, include_dashboard=False)

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def add(self, **options: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self._variables.items():
                patch.setenv(name, value)
            return self._cluster.add_node(object_store_memory=STORE_BYTES, **options)

    def kill(self, node: Any) -> None:
        self._cluster.remove_node(node, allow_graceful=False)

    def shutdown(self) -> None:
        self._cluster.shutdown()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    # Ray's sockets are below it, and their paths must be short.
    with tempfile.TemporaryDirectory(prefix="nodes-") as folder:
        started = Nodes(Path(folder), tmp_path_factory.getbasetemp())
        started.add(num_cpus=1)
        started.add(num_cpus=2, resources={"license": 1})
        # Connected once: each engine would take a second for it.
        ray.init(address=started.address, log_to_driver=False, logging_level="ERROR")
        yield started
        ray.shutdown()
        started.shutdown()


@pytest.fixture
def runs(tmp_path: Path, cluster: Nodes, monkeypatch: pytest.MonkeyPatch) -> "Clustered":
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


@pytest.mark.parametrize("job", JOB_CHECKS)
async def test_a_job_has_the_same_outcome_on_two_nodes(runs, job):
    await JOB_CHECKS[job](runs)

    with Store(runs.store) as store:
        rows = store.read.sessions(Scope(run_id="far"), limit=1000)
    assert not [row for row in rows if str(runs.folder) in (row["worktree"] or "")], "nodes have copies"


async def test_resources_place_items_and_nodes_keep_shared_limits_and_budget(runs, monkeypatch):
    (runs.folder / "proctor.toml").write_text('[limits."openai"]\nconcurrency = 4\n')
    async with ModelServer() as server:
        server.answers = lambda _: reply("ok", delay_seconds=0.02)
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "key")
        far = await runs.run(
            """
            concurrency: 12
            budget: 0.5
            prices: {openai/gpt-x: {input: 0, output: 10000}}
            defaults: {model: openai/gpt-x, settings: {max_tokens: 5}}
            matrix:
              - {prompt: licensed, runs: 3, resources: {custom: {license: 1}}}
              - {prompt: free, runs: 30}
            """,
            runs.far,
            "far",
        )
        assert server.most_at_once <= 4

    assert (far["end"].status, far["end"].reason) == ("halted", "budget")
    assert far["money"] == (0, 0.5), "all of it, and not a cent more"
    assert Counter(item["status"] for item in far["items"]) == {"success": 10, "queued": 23}
    with Store(runs.store) as store:
        sql = 'SELECT s."startedAt", s."finishedAt" FROM "sessions" s JOIN "batch_items" i '
        sql += 'ON i."id" = s."itemId" AND i."runId" = s."runId" WHERE i."prompt" = \'licensed\' ORDER BY 1'
        times = [tuple(row.values()) for row in query(store, sql)]
    assert all(end <= start for (_, end), (start, _) in pairwise(times)), "one at a time"


def processes_with(text: str) -> list[int]:
    """Processes whose environment has a text: what attempts of a home have started."""
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if text.encode() in (entry / "environ").read_bytes():
                    pids.append(int(entry.name))
    return pids


class StoppingWhenStarted(StoppingWhen):
    """Interrupts a run once the programs of its agents run, or do not within a time limit."""

    def __init__(self, folder: Path, count: int) -> None:
        self._folder, self._count = folder, count
        self._deadline = time.monotonic() + TIME_LIMIT_SECONDS

    def is_time(self) -> bool:
        started = list(self._folder.glob("stopped-*/worktrees/*/work/*/half.txt"))
        return len(started) >= self._count or time.monotonic() > self._deadline


async def test_confinement_time_limits_and_a_stop_reach_the_programs_on_nodes(runs, cluster):
    repository = make_git_repository(runs.folder / "shop", {"shop.py": "total = 1 - 1\n"})
    homes = cluster.folder / f"proctor-{os.getuid()}"
    confined = await runs.run(
        f"""
        concurrency: 3
        defaults: {{agent: command, scriptCommand: test -f shop.py}}
        matrix:
          - {{repo: ./shop, prompt: look, command: "cat {homes}/*/lock > seen.txt; echo $? > code.txt"}}
          - {{repo: ./shop, prompt: late, timeoutSec: 0.5, command: "setsid sleep 302 & sleep 302"}}
        """,
        runs.far,
        "confined",
    )
    assert [item["reason"] for item in confined["items"]] == ["completed", "timeout"]
    with Store(runs.store) as store:
        rows = store.read.sessions(Scope(run_id="confined"), limit=10)
    look = next(row for row in rows if row["endReason"] == "completed")
    assert look["sandbox"] == "bubblewrap"
    assert git(repository, "show", f"{look['branch']}:code.txt") != "0\n", "files of the run are hidden"
    assert not processes_with(f"HOME={homes}")

    stopped = await runs.run(
        """
        concurrency: 3
        defaults: {agent: command}
        matrix:
          - repo: ./shop
            prompt: wait
            command: "setsid sleep 301 & echo half > half.txt; sleep 301"
            runs: 3
        """,
        runs.engine(),
        "stopped",
        observer=StoppingWhenStarted(homes, 3),
    )

    assert stopped["end"].status == "interrupted"
    assert {(item["status"], item["reason"]) for item in stopped["items"]} == {("queued", "interrupted")}
    assert not processes_with(f"HOME={homes}")
    with Store(runs.store) as store:
        rows = store.read.sessions(Scope(run_id="stopped"), limit=10)
    assert {git(repository, "show", f"{row['branch']}:half.txt") for row in rows} == {"half\n"}


class KillingNode(Observer):
    """Kills a node after the tenth item."""

    def __init__(self, cluster: Nodes, node: Any) -> None:
        self._killing = threading.Thread(target=cluster.kill, args=[node])
        self._finished = 0

    def item_finished(self, item: Any) -> None:
        self._finished += 1
        if self._finished == 10:
            self._killing.start()


async def test_the_items_of_a_killed_node_run_again_on_others(runs, cluster):
    (runs.folder / "dear.yaml").write_text(
        "{latency_seconds: 0.5, rules: [{reply: ok, usage: {input_tokens: 1, output_tokens: 1}}]}"
    )
    doomed = cluster.add(num_cpus=3)

    far = await runs.run(
        dear_calls(80, concurrency=12), runs.far, "far", observer=KillingNode(cluster, doomed)
    )

    assert far["end"].status == "completed"
    assert [note for note in runs.notes if note.startswith("a worker on a node died; ")]
    check_lost_attempts(far, items=80, most=12)


def test_nothing_outlives_a_killed_driver_and_the_run_resumes_with_its_work(proctor, repository, cluster):
    proctor.environment |= TOKEN
    go = cluster.folder / "go"
    wait = f"until test -e {go}; do sleep 0.05; done"
    command = f"setsid sleep 301 & echo half > half.txt; {wait}; echo fixed > shop.py"
    (proctor.folder / "plan.yaml").write_text(
        "{runId: killed, concurrency: 3, defaults: {sandbox: none, scriptCommand: test -f shop.py}, "
        f"matrix: [{{repo: {repository}, prompt: work, agent: command, command: '{command}', runs: 4}}]}}"
    )
    words = ("batch", "plan.yaml", "--engine", "ray", "--ray-address", cluster.address)
    process = proctor.start(*words)
    homes = cluster.folder / f"proctor-{os.getuid()}"
    eventually(
        while_running(process, lambda: len(list(homes.glob("killed-*/worktrees/*/work/*/half.txt"))) == 3)
    )
    started = processes_with(f"HOME={homes}")
    assert len(started) >= 3 * 2
    process.kill()
    process.wait()
    process.stdout.close()

    eventually(lambda: not processes_with(f"HOME={homes}"))
    go.touch()
    resumed = proctor.process(*words, "--resume", "--json")

    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["successCount"] == 4
    with proctor.open_store() as store:
        rows = store.read.sessions(Scope(run_id="killed"), limit=20)
    ends = Counter((row["status"], row["endReason"]) for row in rows)
    assert ends == {("success", "completed"): 4, ("error", "interrupted"): 3}
    for row in rows:
        if row["endReason"] == "interrupted":
            assert git(repository, "show", f"{row['branch']}:half.txt") == "half\n", "the work is not lost"
    assert not list(homes.glob("killed-*"))
