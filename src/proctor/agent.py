"""The contract of agents: given a prompt and a folder, an agent works and reports its events.

Implementations are in `agents/`, one file each: the name of the file is the name of the agent. An adapter is
a dataclass; its fields are the `settings:` of a plan.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol
from urllib.parse import urlsplit

from proctor.formatting import Clip
from proctor.model import Model
from proctor.session import Record

if TYPE_CHECKING:
    from proctor.processes import Confinement, Serve

Reach = Literal["own", "in_process", "gateway"]
"""How an agent reaches its models: through its own service (or none), through `Assignment.models`, or through
the gateway, with `Assignment.access`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Access of an agent program to the gateway, with a token for one attempt."""

    url: str
    """`http://127.0.0.1:PORT`. OpenAI's API starts at `/v1`, Anthropic's and Gemini's at the root."""
    token: str
    """The API key of the agent. Useless elsewhere and after the attempt."""
    serve: "Serve | None" = field(default=None, repr=False, compare=False)
    """Serves the gateway on a socket in the agent's own network. None: it cannot."""

    @property
    def ports(self) -> "dict[int, Serve]":
        """The gateway's port, for an agent with a network of its own."""
        port = urlsplit(self.url).port
        return {port: self.serve} if port and self.serve else {}

    @property
    def variables(self) -> dict[str, str]:
        """The same as environment variables, for programs that take a base URL."""
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
    """Everything an agent is given."""

    prompt: str
    folder: Path
    """The tree to work in, exclusive to this attempt."""
    home: Path
    """A HOME of its own, outside the tree."""
    environment: Mapping[str, str]
    """The whole environment of its programs: no keys; HOME and marker set."""
    attempt: str
    """The id of the session. Every process it starts carries it, so that all can be found and ended."""
    model: str = ""
    seed: int | None = None
    models: Model | None = None
    """For agents that call models in this process. None: there are none."""
    access: Access | None = None
    """For agents that call models over HTTP. None: this agent does not."""
    confinement: "Confinement | None" = None
    """Of all programs it starts. None: they are not confined."""
    keep_events: bool = True
    """Whether the agent's own event stream is recorded (`jsonLogs`)."""
    output: Clip = field(default_factory=Clip, repr=False, compare=False)
    """Gets what its program prints as it comes: still there when the agent is cut off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkDone:
    """How an agent's run ended, as the agent reports it. Proves nothing about the work."""

    exit_code: int | None = None
    """None: it is not a process."""
    output: str = ""
    """What it printed, head and tail."""
    failure: str = ""
    """Why the agent failed, as it reports; empty when it did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """Whether an agent can be used on this machine."""

    ready: bool
    version: str = ""
    problem: str = ""
    """What is missing, when not ready; otherwise a warning."""
    remedy: str = ""


class Agent(Protocol):
    """Works on a prompt in a folder and reports its events."""

    stand_in: ClassVar[bool]
    """True for a mock agent; reports mark its results."""

    def availability(self, environment: Mapping[str, str]) -> Availability:
        """Whether it could work here; must not cost money."""

    async def work(self, assignment: Assignment, record: Record) -> WorkDone:
        """Do the assignment, calling `record` with each event as it happens.

        Raise `AgentError` when it gave up, `ModelError` when its model did, anything else when
        it broke. When cancelled, leave no process behind.
        """


def model_access_of(agent: Agent) -> Reach:
    """How an agent reaches its models; `own` unless it declares otherwise."""
    reach: Reach = getattr(agent, "reach", "own")
    return reach


def login_files(agent: Agent) -> tuple[str, ...]:
    """Files in the user's HOME that an agent needs to use the user's login; empty: it does not use it."""
    return tuple(getattr(agent, "login_files", ())) if getattr(agent, "login", "") == "mine" else ()


def refusal_of(agent: Agent, model: str, environment: Mapping[str, str]) -> str:
    """Why an agent cannot use a model here, with the remedy in a second line; empty: it can.

    Agents that choose models by their own names declare it as `refusal`; it must not cost money.
    """
    refusal = getattr(agent, "refusal", None)
    return str(refusal(model, environment)) if refusal else ""


def problem_of(agent: Agent, name: str, prompt: str, model: str) -> tuple[str, str, str] | None:
    """Why an agent cannot work on a prompt with a model: the setting, the problem and the remedy."""
    if getattr(agent, "needs_model", False) and not model:
        return "model", f"the agent {name} has no `model`", "Add `model`: what it calls over the gateway."
    limit = getattr(agent, "longest_prompt", None)
    if limit is not None and len(prompt.encode("utf-8", "replace")) > limit:
        return (
            "prompt",
            f"the prompt is too long for the agent {name}, which takes it as an argument of its program: "
            f"at most {limit:,} bytes",
            "Put the long part into a file of the repository.",
        )
    return None


def needs_network(agent: Agent) -> bool:
    """Whether it talks to a service of its own (`needs_network`), so that it gets no closed network."""
    return bool(getattr(agent, "needs_network", False))


def records_transcript(agent: Agent) -> bool:
    """Whether its own events contain its messages and tool calls; otherwise they are read from gateway
    traffic. `tells_all` is its deprecated name in older adapters."""
    return bool(getattr(agent, "tells_all", getattr(agent, "records_transcript", True)))
