"""The driver's side of `--engine ray`, with the actors of two nodes in this process.

The workers are processes, as on a cluster. `make test-ray` runs the same jobs on Ray itself.
"""

import asyncio
import json
import socket
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from job_runs import JUDGE, Runs, check_benchmark, git

import proctor
from proctor import __version__
from proctor.batch.engines import LocalEngine, processes
from proctor.batch.engines import ray as ray_module
from proctor.batch.engines.ray import Node, RayEngine, alive_nodes
from proctor.batch.engines.ray_node import NodeActor
from proctor.errors import UsageError
from proctor.jobs.evaluation.job import JOB as EVALUATION
from proctor.store import Scope, Store
from proctor.testing import make_git_repository

LONG = 1e6
"""An actor whose driver is silent for so long ends its process: here that of the tests."""


class RayError(Exception):
    """As `ray.exceptions.RayError`."""


class Handle:
    """An actor in this process, with calls as Ray has them."""

    def __init__(self, cluster: "Cluster", node_id: str, actor: NodeActor) -> None:
        self._cluster, self.node_id, self._actor = cluster, node_id, actor

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: object) -> object:
            if self.node_id in self._cluster.unreachable:
                raise RayError("the actor died")
            if name == "collect" and self.node_id in self._cluster.failing:
                # Once: the worker of its next actor lives.
                self._cluster.failing.remove(self.node_id)
                raise RayError("the actor died")
            value = await getattr(self._actor, name)(*arguments)
            if name == "start":
                value = replace(value, version=self._cluster.versions.get(self.node_id, __version__))
            return value

        return SimpleNamespace(remote=call)


class Cluster:
    """The part of the modules of Ray that the driver calls."""

    def __init__(self, **nodes: Mapping[str, float]) -> None:
        self.resources = nodes
        self.dead = set[str]()
        self.unreachable = set[str]()
        self.failing = set[str]()
        self.versions = dict[str, str]()
        self.actors = list[Handle]()
        self.killed = list[Handle]()
        self.calls = list[object]()
        self.is_connected = True
        self.refusal: Exception | None = None
        self.exceptions = SimpleNamespace(RayError=RayError)
        self.AuthenticationMode = SimpleNamespace(TOKEN="token")
        self.mode = "token"

    def is_initialized(self) -> bool:
        return self.is_connected

    def init(self, **options: object) -> None:
        self.calls.append(options)
        if self.refusal:
            raise self.refusal

    def shutdown(self) -> None:
        self.calls.append("shutdown")

    def get_authentication_mode(self) -> str:
        return self.mode

    def nodes(self) -> list[dict[str, object]]:
        return [
            {"NodeID": name, "NodeManagerHostname": f"{name}.lan", "Resources": resources}
            | {"Alive": name not in self.dead}
            for name, resources in self.resources.items()
        ]

    def put(self, content: bytes) -> bytes:
        if self.refusal:
            raise self.refusal
        self.calls.append(content)
        return content

    def remote(self, actor: type[NodeActor]) -> Any:
        def options(*, scheduling_strategy: str, **limits: int) -> Any:
            assert limits == {"num_cpus": 0, "max_restarts": 0, "max_task_retries": 0}

            def start(*arguments: Any) -> Handle:
                handle = Handle(self, scheduling_strategy, actor(*arguments))
                self.actors.append(handle)
                return handle

            return SimpleNamespace(remote=start)

        return SimpleNamespace(options=options)

    def NodeAffinitySchedulingStrategy(self, node_id: str, *, soft: bool) -> str:  # noqa: N802
        assert not soft, "an actor belongs to one node"
        return node_id

    def kill(self, handle: Handle) -> None:
        self.killed.append(handle)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cluster:
    made = Cluster(a={"CPU": 1.0}, b={"CPU": 2.0, "license": 1.0}, head={"CPU": 0.0}, bare={})
    for name in ("ray", "ray.exceptions", "ray._raylet", "ray.util.scheduling_strategies"):
        monkeypatch.setitem(sys.modules, name, made.exceptions if name == "ray.exceptions" else made)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(ray_module, "NODES_SECONDS", 0.02)
    return made


@pytest.fixture
def runs(tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> "OnNodes":
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.chdir(tmp_path)
    # Workers are copies of this process: a new one takes a second to load everything.
    monkeypatch.setattr(processes, "can_fork", lambda: True)
    return OnNodes(tmp_path)


def engine(notes: list[str] | None = None, **options: Any) -> RayEngine:
    notes = [] if notes is None else notes
    return RayEngine(note=notes.append, driver_seconds=LONG, **options)


class OnNodes(Runs):
    """Runs in this process and on the nodes."""

    def __init__(self, folder: Path) -> None:
        self.messages = list[str]()
        super().__init__(folder, lambda: engine(self.messages))


async def test_sessions_on_nodes_leave_their_branches_with_the_driver_which_merges(runs, cluster):
    """And what items need decides where they run, also when no node has it free at first."""
    repository = make_git_repository(runs.folder / "shop", {"shop.py": "total = 1 - 1\n", "sub/a.txt": "a\n"})

    end = await runs.run(
        """
        concurrency: 2
        defaults: {mergeOnPass: true, agent: command, scriptCommand: test -f shop.py}
        matrix:
          - {repo: ./shop, prompt: one, command: "echo 1 > one.txt", resources: {custom: {license: 1}}}
          - {repo: ./shop, prompt: two, command: "echo 2 > two.txt", resources: {custom: {license: 1}}}
          - repo: ./shop/sub
            prompt: three
            command: "git log --format=%s > three.txt; git add -A; git commit -m own"
        """,
        runs.far,
        "far",
    )

    assert [item["reason"] for item in end["items"]] == ["completed"] * 3
    merged = {path.name for path in repository.iterdir()}
    assert {"one.txt", "two.txt", "three.txt"} <= merged, "by the driver"
    with Store(runs.store) as store:
        rows = store.read.sessions(Scope(run_id="far"), limit=10)
    assert {row["repo"] for row in rows} == {str(repository)}
    assert not [row for row in rows if str(runs.folder / "home") in (row["worktree"] or "")]
    notes = " ".join(row["notes"] for row in rows)
    assert "is inside the repository" in notes and "the repository at" not in notes
    branches = [git(repository, "show", "--name-only", "--format=", row["branch"]).strip() for row in rows]
    assert {"one.txt", "two.txt"} <= set(branches)
    assert {handle.node_id for handle in cluster.actors} == {"a", "b"}, "the head has no processors"
    assert set(cluster.killed) == set(cluster.actors)
    assert "shutdown" not in cluster.calls, "the connection is another's"
    homes = list((runs.folder / "temporary").glob("proctor-*/far-*"))
    assert homes == [], "the nodes have no files of the run left"


async def test_evaluators_that_the_driver_has_evaluate_on_nodes_and_code_is_copied_once(runs, cluster):
    await runs.run("matrix: [{prompt: hello, model: scripted/echo, runs: 3}]", LocalEngine(), "prompts")
    (runs.folder / "checks.py").write_text(
        "import words\ndef short(event):\n    return {'label': words.LABEL, 'value': 1.0}\n"
    )
    (runs.folder / "words.py").write_text("LABEL = 'short'\n")
    scale = [{"label": "Good", "value": 1, "definition": "kind"}]
    scale.append({"label": "Bad", "value": 0, "definition": ""})
    judge = {"instructions": "Was it polite? {assistant_turn}", "ratingScale": {"numerical": scale}}
    judge["modelConfig"] = {"bedrockEvaluatorModelConfig": {"modelId": "scripted/judge"}}
    polite = {"evaluatorName": "polite", "level": "TRACE", "evaluatorConfig": {"llmAsAJudge": judge}}
    (runs.folder / "home" / "evaluators").mkdir(parents=True)
    (runs.folder / "home" / "evaluators" / "polite.json").write_text(json.dumps(polite))
    (runs.folder / "judge.yaml").write_text(JUDGE.replace("Very Helpful", "Good"))
    runs.job = EVALUATION

    end = await runs.run(
        """
        batchEvaluationName: RUN
        evaluators: ['checks:short', polite]
        dataSourceConfig: {store: {runIds: [prompts]}}
        """,
        runs.far,
        "far",
    )

    assert [(item["status"], item["error"]) for item in end["items"]] == [("success", "")] * 6
    scores = sorted((name, value, label) for name, _, value, label in end["scores"])
    assert scores == [("checks:short", 1.0, "short")] * 3 + [("polite", 1.0, "Good")] * 3
    assert len([content for content in cluster.calls if isinstance(content, bytes)]) == 1


async def test_the_files_of_a_task_travel_to_the_nodes(runs):
    await check_benchmark(runs)


async def test_the_items_of_a_worker_that_died_run_again_on_a_new_one(runs, cluster):
    """And a node of another version is left out and named."""
    cluster.failing.add("a")
    cluster.versions["b"] = "0.0.1"
    text = "{concurrency: 2, matrix: [{prompt: hello, model: scripted/echo, runs: 3}]}"

    end = await runs.run(text, runs.far, "far")

    assert [item["status"] for item in end["items"]] == ["success"] * 3
    refused = f"node b.lan has Proctor 0.0.1, this machine {__version__}; the run goes on without this node"
    assert [note for note in runs.messages if "died" not in note] == [refused]
    assert sorted(handle.node_id for handle in cluster.actors) == ["a", "a", "b"]
    assert set(cluster.killed) == set(cluster.actors)


def test_nodes_that_are_dead_or_have_no_processors_run_nothing(cluster):
    cluster.dead.add("a")

    assert alive_nodes() == {"b": Node(id="b", name="b.lan", resources={"CPU": 2.0, "license": 1.0})}
    assert alive_nodes()["b"].cpus == 2.0
    assert Node(id="x", name="x", resources={}).cpus == 0.0


def test_a_connection_of_ones_own_is_closed_and_one_without_a_token_is_warned_of(cluster):
    cluster.is_connected = False
    notes = list[str]()
    made = engine(notes)
    made.close()
    assert cluster.calls == [], "nothing to close"

    made.connect()

    common = {"log_to_driver": False, "logging_level": "ERROR", "namespace": "proctor"}
    assert cluster.calls == [{"address": "auto", **common}] and notes == []
    made.close()
    made.close()
    assert cluster.calls[1:] == ["shutdown"]

    cluster.mode = "none"
    engine(notes, address="local").connect()
    assert cluster.calls[2:] == [{"address": "local", "include_dashboard": False, **common}]
    assert len(notes) == 1 and "no token authentication" in notes[0]

    cluster.refusal = ConnectionError("nobody")
    with pytest.raises(UsageError, match="there is no Ray cluster at `auto`: nobody"):
        made.connect()
    cluster.is_connected = True
    made.connect()
    made.connect()
    assert len(notes) == 2, "a connection of the program is warned of as well, once"
    made.close()
    assert cluster.calls[-1] != "shutdown", "it stays the program's"


async def test_a_run_that_cannot_be_created_leaves_no_connection_behind(cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("PROCTOR_HOME", str(tmp_path / "home"))
    cluster.is_connected = False
    items = [proctor.Item(prompt="hello", model="scripted/ok")]
    await proctor.run_async(items=items, run_id="nightly")

    with pytest.raises(UsageError, match="nightly"):
        await proctor.run_async(items=items, run_id="nightly", engine="ray")

    assert cluster.calls[0]["address"] == "auto" and cluster.calls[1:] == ["shutdown"]


def test_an_address_is_tried_before_ray_waits_for_it(cluster):
    cluster.is_connected = False
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        engine(address=address).connect()
    with pytest.raises(UsageError, match=f"there is no Ray cluster at `{address}`"):
        engine(address=address).connect()
    engine(address="ray://nowhere:1").connect()
    assert len(cluster.calls) == 2


async def test_the_folders_of_dead_actors_are_found_by_the_next_of_their_run(cluster, tmp_path):
    homes = Path(tempfile.gettempdir())
    first, second = NodeActor("run", LONG), NodeActor("run", LONG)
    facts = await first.start()
    assert facts.leftovers == () and facts.version == __version__ and facts.home.is_relative_to(homes)
    dead = facts.home.parent / ("run-" + "0" * 12)
    dead.mkdir()
    (facts.home.parent / ("other-" + "0" * 12)).mkdir()

    facts = await second.start()

    assert facts.leftovers == (dead,), "the other is alive"
    path = await second.store("digest", b"content")
    assert path.read_bytes() == b"content" and path.is_relative_to(facts.home)
    await asyncio.gather(first.close(), second.close())
    assert await first.collect() == (b"", True)
    assert [folder.name for folder in facts.home.parent.iterdir()].count(facts.home.name) == 0
