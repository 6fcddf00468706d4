"""What `--engine ray` does without a cluster: which node gets which items, and what is refused."""

import asyncio
import json
import os
import pickle
import subprocess
import sys

import pytest
from job_runs import DIALOGUES, EXPERIMENT, TALKING, Runs, add_scenario

from databases import query
from proctor.batch.engines import LocalEngine
from proctor.batch.engines.messages import SetConcurrency, WorkChunk
from proctor.batch.engines.ray import ActorChannel, Node, NodeLink, RayEngine, shares
from proctor.batch.engines.worker_process import HEADER
from proctor.batch.queue import WorkItem
from proctor.bootstrap import open_context
from proctor.errors import PlanError, WorkerError
from proctor.item import Item, read_resources
from proctor.job import PlanText, make_overrides
from proctor.jobs import find_job
from proctor.jobs.benchmark.job import JOB as BENCHMARK
from proctor.processes.warden import is_alive
from proctor.secrets import on_machine
from proctor.store import Store
from proctor.testing import eventually
from waiting import TIME_LIMIT_SECONDS

GIB = 2**30


class Sent:
    """A channel that keeps what is sent."""

    def __init__(self) -> None:
        self.items = list[WorkItem]()

    def send(self, message: object) -> None:
        if isinstance(message, WorkChunk):
            self.items += message.items
        else:
            assert isinstance(message, SetConcurrency)
            self.concurrency = message.concurrency


def node_link(name: str, concurrency: int = 4, **resources: float) -> NodeLink:
    node = Node(id=name, name=name, resources={"CPU": 4.0, "memory": 8.0 * GIB, **resources})
    return NodeLink(Sent(), concurrency, lambda: 0.0, node=node, actor=None)


def work(number: int, **resources: object) -> WorkItem:
    settings = {"resources": resources} if resources else {}
    return WorkItem(item=Item(prompt="hello", settings=settings), id=f"item{number}", attempts=0, tries=0)


# White-box: which node gets an item shows only in a cluster of several, and there by chance.
def engine_of(*links: NodeLink) -> RayEngine:
    engine = RayEngine()
    engine._links = set(links)
    engine._concurrency = 20
    return engine


def ids(link: NodeLink) -> list[str]:
    return [each.id for each in link.channel.items]


def test_amounts_have_the_names_of_the_cluster():
    declared = {"cpu": 2, "memory": "1.5GiB", "gpu": 0.5, "custom": {"license": 1}}
    assert read_resources(declared) == {"CPU": 2, "memory": 1.5 * GIB, "GPU": 0.5, "license": 1}
    assert read_resources({"memory": 1024}) == {"memory": 1024}


@pytest.mark.parametrize(
    ("resources", "problem"),
    [
        ({"cpu": 0}, "has a `cpu` that is no number above 0"),
        ({"cpu": True}, "has a `cpu` that is no number above 0"),
        ({"memory": "lots"}, "has a `memory` that is no number above 0 and no size like 4GiB"),
        ({"gpu": 1.5}, "has a `gpu` that is neither a whole number nor a part of one GPU"),
        ({"gpus": 1}, "has no `gpus`; it may have: cpu, memory, gpu, custom"),
        ({"custom": {"license": "one"}}, "has a `custom.license` that is no number above 0"),
        ({"custom": []}, "has a `custom` that names no amounts of the cluster's own resources"),
        ({}, "should name amounts: cpu, memory, gpu or custom"),
        (3, "should name amounts: cpu, memory, gpu or custom"),
    ],
)
def test_wrong_resources_are_described(resources, problem):
    with pytest.raises(ValueError) as error:
        read_resources(resources)
    assert str(error.value) == problem


def test_concurrency_is_shared_by_processors_and_every_node_has_a_part():
    assert shares(10, [1, 3]) == [3, 7]
    assert shares(4, [1, 100]) == [1, 3]
    assert shares(2, [8, 8, 8]) == [1, 1, 0]
    assert [sum(shares(total, [1, 2, 5])) for total in range(1, 30)] == [*range(1, 30)]


def test_items_without_resources_go_where_most_room_is():
    small, large = node_link("small", 1), node_link("large", 3)

    left = engine_of(small, large)._place([work(number) for number in range(5)])

    assert (len(ids(small)), len(ids(large)), [each.id for each in left]) == (1, 3, ["item4"])


def test_a_node_that_joins_gets_items_once_the_others_have_fewer():
    first, second = node_link("first", 3), node_link("second", 0)
    engine = engine_of(first, second)
    engine._concurrency = 3
    assert engine._place([work(number) for number in range(3)]) == []
    first.concurrency, second.concurrency = 1, 2

    left = engine._place([work(3), work(4)])
    assert [each.id for each in left] == ["item3", "item4"], "three are running"
    first.take_back("item0")
    left = engine._place(left)

    assert (ids(second), [each.id for each in left]) == (["item3"], ["item4"])


def test_items_wait_for_resources_and_hold_up_no_others():
    plain, licensed = node_link("plain"), node_link("licensed", license=1)
    engine = engine_of(plain, licensed)
    needing = {"custom": {"license": 1}}

    left = engine._place([work(0, **needing), work(1, **needing), work(2, cpu=4), work(3, cpu=4), work(4)])

    assert ids(licensed)[0] == "item0"
    assert {"item2", "item3", "item4"} <= {*ids(plain), *ids(licensed)}
    assert [each.id for each in left] == ["item1"]
    licensed.take_back("item0")
    assert engine._place(left) == []
    assert ids(licensed)[-1] == "item1"


def test_items_do_not_share_a_gpu_unless_they_declare_a_part_of_one():
    link = node_link("gpus", 9, GPU=3)
    engine = engine_of(link)

    left = engine._place([work(0, gpu=1), work(1, gpu=0.5), work(2, gpu=0.5), work(3, gpu=1), work(4, gpu=1)])

    devices = {each.id: each.variables["CUDA_VISIBLE_DEVICES"] for each in link.channel.items}
    assert devices == {"item0": "0", "item1": "1", "item2": "1", "item3": "2"}
    assert [each.id for each in left] == ["item4"]
    link.take_back("item1")
    assert engine._place(left) == left
    link.take_back("item2")
    assert engine._place(left) == []
    assert left[0].variables == {"CUDA_VISIBLE_DEVICES": "1"}


def test_an_item_that_no_node_can_ever_run_ends_the_run_after_a_while():
    link = node_link("small")
    engine = engine_of(link)
    engine._waiting = engine._place([work(0, cpu=64)])

    engine._check_placeable([], now=0)
    engine._impossible_since = 0
    engine._check_placeable([link.node], now=30)
    with pytest.raises(WorkerError, match="no node of the Ray cluster has what item item0 needs: 64 CPU"):
        engine._check_placeable([link.node], now=61)


def test_an_environment_gets_the_paths_of_another_machine_and_keeps_its_keys():
    driver = {
        "PATH": "/driver",
        "HOME": "/home/me",
        "OPENAI_API_KEY": "key",
        "JAVA_HOME": "/java",
        "LANG": "C",
    }
    node = {"PATH": "/node", "HOME": "/root"}
    assert on_machine(driver, node) == {
        "PATH": "/node",
        "HOME": "/root",
        "OPENAI_API_KEY": "key",
        "LANG": "C",
    }


def test_an_actor_whose_driver_is_silent_ends_with_its_worker(tmp_path):
    program = """
import asyncio, os
from proctor.batch.engines.ray_node import NodeActor
from proctor.job import PlanText, make_overrides
from proctor.jobs import find_job
from proctor.jobs.benchmark.job import JOB as BENCHMARK
from proctor.processes.warden import descendants_of

async def main():
    actor = NodeActor("run", driver_seconds=1.0)
    await actor.start()
    while len(descendants_of(os.getpid())) < 2:
        await asyncio.sleep(0.01)
        await asyncio.wait([asyncio.create_task(actor.deliver(b""))])
    print(*descendants_of(os.getpid()), flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_SECONDS,
    )

    assert done.returncode == 1, done.stderr
    started = [int(pid) for pid in done.stdout.split()]
    assert len(started) >= 2
    eventually(lambda: not [pid for pid in started if is_alive(pid)])


@pytest.mark.parametrize(
    ("plan", "words", "problem"),
    [
        ("", ["--workers", "2"], "`--workers` counts processes on this machine"),
        ("record: calls.jsonl, ", [], "recordings number the calls of one process"),
        ("", ["--ray-address", "127.0.0.1:1"], "there is no Ray cluster at `127.0.0.1:1`"),
        ("", ["--ray-address", "somewhere:port"], "there is no Ray cluster at `somewhere:port`"),
    ],
)
def test_what_cannot_run_on_a_cluster_is_refused_before_anything_starts(proctor, plan, words, problem):
    (proctor.folder / "plan.yaml").write_text(f"{{{plan}matrix: [{{prompt: hello, model: scripted/echo}}]}}")

    done = proctor("batch", "plan.yaml", "--engine", "ray", *words)

    assert done.returncode == 2
    assert problem in done.stderr
    assert proctor.json("runs") == {"runs": []}


def test_without_ray_the_command_says_how_to_install_it(proctor):
    (proctor.folder / "plan.yaml").write_text("matrix: [{prompt: hello, model: scripted/echo}]")
    (proctor.folder / "ray.py").write_text("raise ImportError('No module named ray')")

    done = proctor.process(
        "batch", "plan.yaml", "--engine", "ray", environment={"PYTHONPATH": str(proctor.folder)}
    )

    assert done.returncode == 2
    assert "`--engine ray` needs Ray" in done.stderr and "proctor[ray]" in done.stderr


PLANS = {
    "coding": "{defaults: {RESOURCES}, matrix: [{prompt: hello, model: scripted/echo}]}",
    "dialogue": DIALOGUES.replace("num_runs: 2", "num_runs: 1\nRESOURCES").replace("[eliza, CBT]", "[eliza]"),
    "scenario": EXPERIMENT.replace("runs_per_variation: 2", "runs_per_variation: 1\nRESOURCES"),
    "evaluation": "{batchEvaluationName: RUN, evaluators: [Builtin.Helpfulness], judge: scripted/judge, "
    "dataSourceConfig: {store: {runIds: [coding]}}, RESOURCES}",
}


async def test_every_plan_may_say_what_its_items_need(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "talking.yaml").write_text(TALKING)
    add_scenario(tmp_path)
    runs = Runs(tmp_path, LocalEngine)
    for name, text in PLANS.items():
        runs.job = find_job(name)
        with pytest.raises(PlanError, match="`cpu` that is no number above 0"):
            await runs.run(text.replace("RESOURCES", "resources: {cpu: none}"), LocalEngine(), name)
        needs = "resources: {cpu: 2, memory: 1GiB}"
        end = await runs.run(text.replace("RESOURCES", needs), LocalEngine(), name)
        assert end["end"].status == "completed"
    with Store(runs.store) as store:
        rows = query(store, 'SELECT "runId", "settings" FROM "batch_items"')
    assert len({row["runId"] for row in rows}) == len(PLANS)
    assert {json.dumps(json.loads(row["settings"])["resources"]) for row in rows} == {
        '{"cpu": 2, "memory": "1GiB"}'
    }


def test_a_task_may_say_what_it_needs_and_else_the_settings_of_the_benchmark_do(tmp_path):
    (tmp_path / "own.md").write_text("---\nempty: true\nresources: {gpu: 1}\n---\n# Task: Own\n\nSay hello\n")
    (tmp_path / "other.md").write_text("---\nempty: true\n---\n# Task: Other\n\nSay hello\n")
    (tmp_path / "models.yaml").write_text(
        "models: [{name: echo, provider: scripted}]\nbatch_settings: {resources: {cpu: 4}}\n"
    )
    with open_context([tmp_path], home=str(tmp_path)) as ctx:
        overrides = make_overrides(BENCHMARK, {"models_config": str(tmp_path / "models.yaml")})
        plan = BENCHMARK.read(PlanText(text="", path=tmp_path, folder=tmp_path), overrides, ctx)
        needs = {item.details["task"]: item.settings["resources"] for item in plan.items()}

    assert needs == {"own": {"gpu": 1}, "other": {"cpu": 4}}


class Relay:
    """An actor that returns frames in pieces, keeps what is delivered, and then dies."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces, self.delivered = list(pieces), list[bytes]()
        self.collect, self.deliver = self, self
        self.is_dead = False

    async def remote(self, *frames: bytes) -> object:
        if self.is_dead:
            raise RuntimeError("the actor died")
        if frames:
            self.delivered.append(frames[0])
            return None
        return self.pieces.pop(0), not self.pieces


def frame(message: object) -> bytes:
    data = pickle.dumps(message, protocol=5)
    return HEADER.pack(len(data)) + data


async def test_messages_of_a_node_are_read_however_they_arrive():
    messages = ["one", {"two": 2}, ["three"]]
    whole = b"".join(map(frame, messages))
    for cuts in ([], [1], [2, 5], [len(frame("one"))], [len(frame("one")) + 4], range(1, len(whole))):
        ends = [*cuts, len(whole)]
        pieces = [whole[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        channel = ActorChannel(Relay(*pieces), RuntimeError)
        assert [await channel.receive() for _ in range(4)] == [*messages, None]


async def test_a_node_that_has_died_sends_and_gets_nothing():
    relay = Relay(frame("one"), b"")
    channel = ActorChannel(relay, RuntimeError)
    channel.send("first")
    channel.send("second")
    assert await channel.receive() == "one"
    await asyncio.sleep(0.01)
    assert b"".join(relay.delivered) == frame("first") + frame("second")
    relay.is_dead = True
    assert await channel.receive() is None
    channel.send("lost")
    await asyncio.sleep(0.01)
    channel.close()
    assert await channel.receive() is None and len(relay.delivered) == 1
