"""What a runner promises: one item in, one session out.

The folder `runners/` holds those who keep it. A runner gets nothing from the batch but its item
and these services, so that it can as well run on another machine.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from proctor.agent import Access, Agent
from proctor.errors import NotFound
from proctor.evaluator import Evaluator, Evidence
from proctor.item import SUCCESS, Item
from proctor.model import Model
from proctor.score import Score
from proctor.session import Record


class LoadSession(Protocol):
    """Reads a recorded session for those who judge it."""

    async def __call__(self, session_id: str, traces: Sequence[str] = (), scenario: str = "") -> Evidence:
        """The session with its ground truth; only `traces` of it are to be judged, if any are named."""


async def no_sessions(
    session_id: str,
    traces: Sequence[str] = (),  # noqa: ARG001
    scenario: str = "",  # noqa: ARG001
) -> Evidence:
    """Where nobody can look a session up."""
    raise NotFound(f"there is no session {session_id} to look at here")


def no_evaluator(name: str, settings: Mapping[str, Any]) -> Evaluator:  # noqa: ARG001
    """Where nobody knows any evaluators."""
    raise NotFound(f"there is no evaluator {name} here")


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What a runner may use. The batch makes one for each attempt."""

    attempt: str
    """The id of the session being made."""
    number: int
    """1 for the first attempt at this item."""
    record: Record
    score: Callable[[Score], None]
    """Keep a judgement of this session."""
    models: Model
    access: Callable[[Agent], Awaitable[Access | None]]
    """An agent's way to models over HTTP, for as long as the attempt lasts; None: it needs none."""
    agent: Callable[[str, Mapping[str, Any]], Agent]
    """Find an agent by name and give it its settings."""
    home: Path
    """Proctor's own folder: work trees, copies of repositories and agents' homes live below it."""
    environment: Mapping[str, str]
    """What an agent may see of the user's environment: no keys, no tokens."""
    now: Callable[[], datetime]
    time_limit: Callable[[float | None, str], AbstractAsyncContextManager[None]]
    """`async with time_limit(seconds, "the agent")`: ends what is inside with a `TimeLimit`.
    Time spent waiting for a rate limit does not count. None: no limit."""
    evaluator: Callable[[str, Mapping[str, Any]], Evaluator] = no_evaluator
    """Find an evaluator by name; `judge`, `votes` and `parameters` say whom it asks, and how. What it
    asks and is told is recorded and paid for as part of this attempt."""
    evidence: LoadSession = no_sessions


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What an attempt came to."""

    status: str = SUCCESS
    reason: str = "completed"
    error: str = ""
    """For people: what did not pass. Empty on success."""
    result: Mapping[str, Any] = field(default_factory=dict)
    """What else the item's row gets: `iterSha`."""


class Runner(Protocol):
    """Someone who carries out items of one kind."""

    async def run(self, item: Item, services: Services) -> Outcome:
        """Carry out one attempt. Raise an `AttemptError` for what the class says it means.

        When cancelled, stop and clean up everything the attempt has started, then let the
        cancellation pass.
        """


def agent_settings(item: Item) -> dict[str, Any]:
    """What an item's agent is configured with: its settings, and the command or script it is given."""
    given = {name: item.details[name] for name in ("command", "script") if name in item.details}
    return {**(item.details.get("settings") or {}), **given}
