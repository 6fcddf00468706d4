"""Parts of attempts, hosts and engines on their own: agents, people, money, calls of workers, branches."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from proctor.batch import session_branch
from proctor.batch.engines import ray_node


def bare(made, **members):
    """An object without what its constructor needs."""
    instance = made.__new__(made)
    for name, value in members.items():
        setattr(instance, name, value)
    return instance


# --- A worker on a node ---


def node(**members):
    usual = {"_incoming": bytearray(), "_has_ended": False, "_arrived": asyncio.Event(), "_called_at": 0.0}
    return bare(ray_node.NodeActor, **{**usual, **members})


# --- Branches of sessions ---


def branch(**details):
    item = {
        "prompt": "  Repair\nit.",
        "details": json.dumps(details),
        "settings": json.dumps({"timeoutSec": 7, "sandbox": "none"}),
    }
    row = {"id": "s", "name": "n", "branch": "batch/r/1", "baseBranch": "main", "repo": "/x"}
    return session_branch.SessionBranch(row, item, SimpleNamespace(root=Path("/x")))


@pytest.mark.parametrize(
    ("prompt", "title"), [("", "A session"), ("x" * 80, "x" * 72), ("one\ntwo", "one"), (None, "A session")]
)
def test_the_title_of_a_squash(prompt, title):
    made = branch()
    made = session_branch.SessionBranch(made.row, None if prompt is None else {"prompt": prompt}, made.source)
    assert made.title == f"{title}\n\nn"
