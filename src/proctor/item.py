"""Items: units of work, fully resolved.

A plan expands to items, and an item holds everything its runner needs. The id is a digest of the inputs, so
an item has the same id in every file, order and machine. Resuming, extending and comparing runs rely on that.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from proctor.frozen import fast_init
from proctor.json_values import compact_encoder

QUEUED, RUNNING = "queued", "running"
SUCCESS, FAIL, TIMEOUT, ERROR = "success", "fail", "timeout", "error"
FINISHED = (SUCCESS, FAIL, TIMEOUT, ERROR)
"""`fail`: the work did not pass its check. `error`: Proctor or the infrastructure failed."""
UNCHECKED = "unchecked"
"""Reason of a success that nothing checked: it is neither ranked nor part of a success rate."""
STATUSES = (QUEUED, RUNNING, *FINISHED)
EVALUATION = "evaluation"
"""The runner of items that score a recorded session; how they end says nothing about an agent."""
SCENARIO = "scenario"
"""The runner of items that simulate a scenario."""
_canonical = compact_encoder(sort_keys=True)


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One unit of work, fully resolved: running it needs nothing else from the plan."""

    runner: str = "prompt"
    """How it is executed: the name of a module in `runners/`."""
    prompt: str
    agent: str = ""
    """Name of the agent, as `proctor agents` lists them. Empty: the runner needs none. `proctor.run` also
    takes a function, which it replaces with its name."""
    model: str = ""
    """`provider/model`, or the agent's own name of it. Empty: the agent's default. `proctor.run` also takes a
    function, which it replaces with its name."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Further inputs: repository, check, persona. Part of the id."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """How and where it is executed: paths, limits, retries. Not part of the id."""
    factors: Mapping[str, str] = field(default_factory=dict)
    """The levels analysis groups by: model, agent, task, any varied path. Not part of the id."""
    repeat: int = 1
    """1 for the first of several identical runs. Part of the id, so that repeats stay distinct."""

    if TYPE_CHECKING:
        # For type checkers alone: what is accepted is more than what an item has when it runs.
        def __init__(
            self,
            *,
            runner: str = ...,
            prompt: str,
            agent: str | Callable[..., object] = ...,
            model: str | Callable[[Any], object] = ...,
            details: Mapping[str, Any] = ...,
            settings: Mapping[str, Any] = ...,
            factors: Mapping[str, str] = ...,
            repeat: int = ...,
        ) -> None: ...

    @property
    def inputs(self) -> dict[str, Any]:
        """The fields that make up the id: nothing about this machine."""
        names = {"runner": self.runner, "agent": self.agent, "model": self.model, "prompt": self.prompt}
        return {**names, **self.details}

    @property
    def digest(self) -> str:
        """The same for all repeats of one item."""
        return digest_of(self.inputs)

    @property
    def id(self) -> str:
        """The same item has the same id on every machine."""
        return id_of(self.digest, self.repeat)


def shown_status(status: str, reason: str) -> str:
    """The status for people: a success that nothing checked is called so."""
    return UNCHECKED if status == SUCCESS and reason == UNCHECKED else status


def id_of(digest: str, repeat: int) -> str:
    """The id of one repeat of an item with this digest."""
    return hashlib.sha256(f"{digest}:{repeat}".encode()).hexdigest()[:16]


def digest_of(value: Any) -> str:
    """The SHA-256 of JSON data, independent of the order of keys."""
    return hashlib.sha256(_canonical(value).encode()).hexdigest()


RESOURCES = {"cpu": "CPU", "gpu": "GPU", "memory": "memory"}
"""Names of a plan's `resources`, and the names that Ray has for them."""
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([KMGT]?)i?B?")
_SIZE_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def read_resources(value: object) -> dict[str, float]:
    """The amounts of `resources` in a plan, by the names that Ray has for them; memory in bytes.

    Raises `ValueError` with what is wrong, as the end of a sentence about them.
    """
    if not isinstance(value, Mapping) or not value:
        raise ValueError("should name amounts: cpu, memory, gpu or custom")
    amounts = dict[str, float]()
    for name, amount in value.items():
        if name == "custom":
            if not isinstance(amount, Mapping) or not amount:
                raise ValueError("has a `custom` that names no amounts of the cluster's own resources")
            amounts |= {str(own): _amount(f"custom.{own}", number) for own, number in amount.items()}
        elif name in RESOURCES:
            amounts[RESOURCES[name]] = _amount(name, amount)
        else:
            raise ValueError(f"has no `{name}`; it may have: cpu, memory, gpu, custom")
    gpus = amounts.get("GPU", 0.0)
    if gpus > 1 and gpus != int(gpus):
        raise ValueError("has a `gpu` that is neither a whole number nor a part of one GPU")
    return amounts


def _amount(name: str, value: object) -> float:
    if isinstance(value, str) and name == "memory" and (match := _SIZE.fullmatch(value.strip())):
        value = float(match[1]) * _SIZE_UNITS[match[2]]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 2**62:
        example = " and no size like 4GiB" if name == "memory" else ""
        raise ValueError(f"has a `{name}` that is no number above 0{example}")
    return float(value)
