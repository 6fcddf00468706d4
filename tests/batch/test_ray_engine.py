"""The nodes of a Ray cluster share a run: the same results as this process, and nothing lost when one dies."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from job_runs import Runs

pytest.importorskip("ray", reason="tests of --engine ray need the extra `ray`: pip install -e '.[ray]'")

import ray
from ray.cluster_utils import Cluster

from proctor.batch.engines.ray import RayEngine

STORE_BYTES = 80 * 2**20


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head that runs no items, and two nodes."""
    import os, types
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
def runs(tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Runs:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.chdir(tmp_path)
    return Runs(tmp_path, lambda: RayEngine(cluster.address))


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
