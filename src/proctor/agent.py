"""What an agent promises: handed a prompt and a folder, it works and is watched.

The folder `agents/` holds those who keep it, one a file: the file's name is the agent's name.
An adapter is a dataclass; its fields are the `settings:` a plan may give it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, Protocol

from proctor.model import Model
from proctor.session import Record

Reach = Literal["own", "in_process", "gateway"]
"""How an agent gets to its models: by a service of its own (or not at all), through
`Assignment.models`, or through our gateway, under `Assignment.access`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The way to models that an agent program is given: our gateway, under a token of this attempt."""

    url: str
    """`http://127.0.0.1:PORT`. OpenAI's wire begins at `/v1`, Anthropic's and Gemini's at the root."""
    token: str
    """What the agent gives as its API key. Worth nothing elsewhere, and nothing after the attempt."""

    @property
    def variables(self) -> dict[str, str]:
        """The same in the words of the environment, as programs that take a base URL look for it."""
        return {
            "OPENAI_BASE_URL": f"{self.url}/v1",
            "OPENAI_API_BASE": f"{self.url}/v1",
            "OPENAI_API_KEY": self.token,
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": self.token,
            "GOOGLE_GEMINI_BASE_URL": self.url,
            "GEMINI_API_KEY": self.token,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """All that an agent is told."""

    prompt: str
    folder: Path
    """The tree to work in. Its own: nobody else works there."""
    home: Path
    """A HOME of its own, outside the tree."""
    environment: Mapping[str, str]
    """The whole environment for whatever it starts: no key, HOME and marker set."""
    attempt: str
    """The session's id; whatever is started carries it, so that all of it can be found and ended."""
    model: str = ""
    seed: int | None = None
    models: Model | None = None
    """For agents that call a model in this process. None: there is none to call."""
    access: Access | None = None
    """For agents that reach models over HTTP. None: this agent does not."""
    keep_events: bool = True
    """Whether the agent's own event stream is kept in the record (`jsonLogs`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkDone:
    """How an agent's run ended, in its own words. Proves nothing about the work."""

    exit_code: int | None = None
    """None: it is no process."""
    output: str = ""
    """What it printed, head and tail."""
    failure: str = ""
    """Why the agent itself says that it failed; empty when it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """Whether an agent can be used on this machine."""

    ready: bool
    version: str = ""
    problem: str = ""
    """What is missing, when not ready; else what is odd about it."""
    remedy: str = ""


class Agent(Protocol):
    """Someone who can be handed a prompt and a folder, and be watched at work."""

    stand_in: ClassVar[bool]
    """True for one that only rehearses; every report then says so."""

    def availability(self, environment: Mapping[str, str]) -> Availability:
        """Say whether it could work here, without starting anything that costs money."""

    async def work(self, assignment: Assignment, record: Record) -> WorkDone:
        """Do the assignment, calling `record` with each event as it happens.

        Raise `AgentError` when it gave up, `ModelError` when its model did, anything else when
        it broke. When cancelled, leave no process behind.
        """


def reach_of(agent: Agent) -> Reach:
    """How an agent gets to its models; those that say nothing have their own way."""
    reach: Reach = getattr(agent, "reach", "own")
    return reach


def tells_all(agent: Agent) -> bool:
    """Whether its own events tell what was said and done; if not, the gateway's traffic has to."""
    return bool(getattr(agent, "tells_all", True))
