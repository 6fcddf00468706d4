"""The contract of agents: given a prompt and a folder, an agent works and reports its events.

Implementations are in `agents/`, one file each: the name of the file is the name of the agent. An adapter is
a dataclass; its fields are the `settings:` of a plan.
"""

import asyncio
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
    messages: "asyncio.Queue[str]" = field(default_factory=asyncio.Queue, repr=False, compare=False)
    """What people tell the agent while it works, if it takes messages. Already recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkDone:
    """How an agent's run ended, as the agent reports it. Proves nothing about the work."""

    exit_code: int | None = None
    """None: it is not a process."""
    output: str = ""
    """What it printed, head and tail."""
    failure: str = ""
    """Why the agent failed, as it reports; empty when it did not."""
    has_started: bool = True
    """False: its program ended before its first model call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """Whether an agent can be used on this machine."""

    ready: bool
    version: str = ""
    problem: str = ""
    """What is missing, when not ready; otherwise a warning."""
    remedy: str = ""


class Agent(Protocol):
    """Works on a prompt in a folder and reports its events.

    Adapters inherit what they do not declare; a plain dataclass gets it when it is found.
    """

    is_mock: ClassVar[bool] = False
    """True for a mock agent; reports mark its results."""
    keys: ClassVar[tuple[str, ...]] = ()
    """Environment variables with keys that it requires; no other agent sees them."""
    longest_prompt: ClassVar[int | None] = None
    """Bytes of a prompt that its program takes as an argument. None: any length."""
    login: str = ""
    """`mine`: it uses the user's login, from a copy of `login_files`."""
    login_files: ClassVar[tuple[str, ...]] = ()
    """Files of a login, in the user's HOME."""

    @property
    def reach(self) -> Reach:
        """How it reaches its models."""
        return "own"

    @property
    def needs_model(self) -> bool:
        """Whether an item must set a model."""
        return False

    @property
    def needs_network(self) -> bool:
        """Whether it talks to its own service, so that it gets no closed network."""
        return False

    @property
    def needs_terminal(self) -> bool:
        """Whether it runs its commands in a terminal of its own, as tmux makes it."""
        return False

    @property
    def takes_messages(self) -> bool:
        """Whether it reads `Assignment.messages` while it works."""
        return False

    @property
    def records_transcript(self) -> bool:
        """Whether its own events contain its messages and tool calls; otherwise they are read from gateway
        traffic."""
        return True

    def availability(self, environment: Mapping[str, str]) -> Availability:  # noqa: ARG002
        """Whether it could work here; must not cost money."""
        return Availability(ready=True)

    def program(self, environment: Mapping[str, str]) -> tuple[str, str] | None:  # noqa: ARG002
        """The program that it starts, and the option with which that only prints its version. None: it starts
        none, or `availability` says what is missing."""
        return None

    def installed_version(self, environment: Mapping[str, str]) -> str:
        """Its version, for the record; empty: unknown. Called once for each attempt, while it works."""
        return self.availability(environment).version

    def refusal(self, model: str, environment: Mapping[str, str]) -> str:  # noqa: ARG002
        """Why it cannot use a model here, with the fix in a second line; must not cost money."""
        return ""

    async def work(self, assignment: Assignment, record: Record) -> WorkDone:
        """Do the assignment, calling `record` with each event as it happens.

        Raise `AgentError` when it gave up, `ModelError` when its model did, anything else when
        it broke. When cancelled, leave no process behind.
        """
        raise NotImplementedError

    def copied_logins(self) -> tuple[str, ...]:
        """Files in the user's HOME to copy for it; empty: it does not use the user's login."""
        return self.login_files if self.login == "mine" else ()

    def problem(self, name: str, prompt: str, model: str) -> tuple[str, str, str] | None:
        """Why it cannot work on a prompt with a model: the setting, the problem and the fix."""
        if self.needs_model and not model:
            return "model", f"the agent {name} has no `model`", "Add `model`: what it calls over the gateway."
        limit = self.longest_prompt
        if limit is not None and len(prompt.encode("utf-8", "replace")) > limit:
            return (
                "prompt",
                f"the prompt is too long for the agent {name}, which takes it as an argument of its program: "
                f"at most {limit:,} bytes",
                "Put the long part into a file of the repository.",
            )
        return None
