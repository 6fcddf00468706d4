"""One piece of work, fully decided.

A plan expands to items; everything a runner needs to know is in its item. The id is a digest of
what is asked, so the same item has the same id in every file, order and machine: resuming,
extending and comparing batches rest on that.

Knows nothing of plans, files, agents or clocks.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

QUEUED, RUNNING = "queued", "running"


SUCCESS, FAIL, TIMEOUT, ERROR = "success", "fail", "timeout", "error"


FINISHED = (SUCCESS, FAIL, TIMEOUT, ERROR)
"""`fail`: the agent's work did not pass. `error`: we or the infrastructure failed."""


STATUSES = (QUEUED, RUNNING, *FINISHED)


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One piece of work, fully decided: running it needs nothing more from the plan."""

    runner: str = "prompt"
    """How it is executed: the name of a module in `runners/`."""
    prompt: str
    agent: str = ""
    """Which adapter does it; a name that `proctor agents` prints. Empty: the runner needs none."""
    model: str = ""
    """`provider/model`, or what the agent itself calls it. Empty: the agent's own default."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What else is asked: a repository's name, a check, a persona. Part of the id."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """How and where it is carried out: paths, limits, retries. Not part of the id."""
    factors: Mapping[str, str] = field(default_factory=dict)
    """The levels analysis groups by: model, agent, task, any varied path. Not part of the id."""
    repeat: int = 1
    """1 for the first of several equal runs. In the id, so that repeats stay apart."""

    @property
    def inputs(self) -> dict[str, Any]:
        """What is asked, and nothing about this machine: the fields an id is made of."""
        asked = {"runner": self.runner, "agent": self.agent, "model": self.model}
        return asked | {"prompt": self.prompt} | dict(self.details)

    @property
    def digest(self) -> str:
        """The same for all repeats of one item."""
        return digest_of(self.inputs)

    @property
    def id(self) -> str:
        """The same item has the same id on every machine."""
        return id_of(self.digest, self.repeat)


def id_of(digest: str, repeat: int) -> str:
    """The id of one repeat of an item whose digest is already known."""
    return hashlib.sha256(f"{digest}:{repeat}".encode()).hexdigest()[:16]


def digest_of(value: Any) -> str:
    """The SHA-256 of plain data, whatever the order of its keys."""
    return hashlib.sha256(_CANONICAL.encode(value).encode()).hexdigest()
