"""Agents that are programs and reach models through the gateway.

Each defines its command line and a reader of its output; the rest is shared. The gateway accepts the token of
the attempt as a key and records every call, so that tokens and cost reported by the agent are not needed. The
program gets the last part of the model's name, which the gateway resolves, whatever other models the program
requests.
"""

import json
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Final

from proctor.agent import Access, Assignment, Availability, Reach, WorkDone
from proctor.agents._program import UNANSWERED_SECONDS, EventReader, watch
from proctor.errors import WorkspaceError
from proctor.json_values import json_object
from proctor.session import Record

# The slowest takes four seconds to print its version on a busy machine.
VERSION_SECONDS = 20


_VERSION_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class Installable:
    """A program with the version known to work."""

    agent: str
    """Name of the agent in a plan."""
    program: str
    """Its name on the PATH."""
    install: str
    """The command that installs the known version."""
    also_named_by: Sequence[str] = ()
    """Variables besides `<AGENT>_BIN` that may name the program."""

    @property
    def variable(self) -> str:
        """The variable that names another program than the one on the PATH."""
        return f"{self.agent.upper().replace('-', '_')}_BIN"

    def find(self, environment: Mapping[str, str]) -> str | None:
        """Where the program is; None when it is not here."""
        names = (environment.get(name) for name in (self.variable, *self.also_named_by))
        chosen = next(filter(None, names), self.program)
        return shutil.which(chosen, path=environment.get("PATH", ""))

    def require(self, environment: Mapping[str, str]) -> str:
        """Where the program is; `WorkspaceError` says how to install it."""
        if program := self.find(environment):
            return program
        raise WorkspaceError(f"`{self.program}` is not on the PATH; install it with: {self.install}")

    def availability(self, environment: Mapping[str, str]) -> Availability:
        """Whether it is here, and in which version."""
        program = self.find(environment)
        if program is None:
            problem = f"`{self.program}` is not on the PATH"
            return Availability(ready=False, problem=problem, remedy=self.install)
        return _asked(program, environment, self.install)


def _asked(program: str, environment: Mapping[str, str], install: str) -> Availability:
    """Its version, or what is wrong with it. Only one that cannot even be started is of no use."""
    try:
        process = subprocess.run(
            [program, "--version"],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=VERSION_SECONDS,
            check=False,
        )
    except OSError as error:
        problem = f"`{program}` cannot be started: {error.strerror}"
        return Availability(ready=False, problem=problem, remedy=install)
    except subprocess.TimeoutExpired:
        return Availability(ready=True, problem=f"did not say its version within {VERSION_SECONDS} s")
    # Most say it on standard output and warn on the other; pi says it on the other.
    output_lines = (process.stdout.strip() or process.stderr.strip()).splitlines()
    first = output_lines[0][:_VERSION_CHARACTERS] if output_lines else ""
    if process.returncode:
        return Availability(ready=True, problem=f"`--version` failed ({process.returncode}): {first}")
    return Availability(ready=True, version=first)


# What agents that call their models through litellm have in common.


LITELLM_VARIABLES: Final = {
    # It would look for a newer list of prices on the network at every start.
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOG": "ERROR",
    # They are written in Python, which would keep what they print to itself until there is much of it.
    "PYTHONUNBUFFERED": "1",
}


_MODEL_ERRORS = frozenset(
    {
        *("APIConnectionError", "APIError", "APIResponseValidationError", "AuthenticationError"),
        *("BadGatewayError", "BadRequestError", "ContentPolicyViolationError", "ContextWindowExceededError"),
        *("InternalServerError", "NotFoundError", "PermissionDeniedError", "RateLimitError"),
        *("ServiceUnavailableError", "Timeout", "UnprocessableEntityError", "UnsupportedParamsError"),
        # What OpenHands makes of them.
        *(
            "LLMAuthenticationError",
            "LLMBadRequestError",
            "LLMContextWindowExceedError",
            "LLMNoResponseError",
        ),
        *("LLMRateLimitError", "LLMServiceUnavailableError", "LLMTimeoutError"),
    }
)


def is_model_error(name: str) -> bool:
    """Whether an exception of this name means that the model failed, and not the agent."""
    return name in _MODEL_ERRORS


# Linux refuses a program with one argument beyond 128 KiB.
LONGEST_ARGUMENT_BYTES = 120_000


# A trajectory with every answer in it has been seen at some megabytes.
LARGEST_FILE = 64 * 1024 * 1024


UNNAMED_MODEL = "default"
"""What a program that insists on a name is told when the plan has none."""


# The gateway is on loopback; a proxy could not reach it.
DIRECTLY = "127.0.0.1,localhost"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramCall:
    """How a program is called for one assignment."""

    arguments: Sequence[str]
    variables: Mapping[str, str] = field(default_factory=dict)
    """Its own variables, added to the assignment's environment."""
    typed: str | None = None
    """What stands on standard input; None: nothing does."""


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """One assignment, with what such programs want to know of it."""

    assignment: Assignment
    access: Access
    record: Record

    @property
    def prompt(self) -> str:
        return self.assignment.prompt

    @property
    def home(self) -> Path:
        return self.assignment.home

    @property
    def model(self) -> str:
        """The last part of the plan's name, which programs may know; never empty."""
        return self.assignment.model.rpartition("/")[2] or UNNAMED_MODEL

    @property
    def token(self) -> str:
        return self.access.token

    @property
    def url(self) -> str:
        """Where Anthropic's and Gemini's wires begin."""
        return self.access.url

    @property
    def openai_url(self) -> str:
        """Where OpenAI's wire begins."""
        return f"{self.access.url}/v1"


@dataclass(frozen=True, kw_only=True)
class GatewayProgram(ABC):
    """A program that is given a base URL and a token, and is watched at work."""

    arguments: list[str] = field(default_factory=list)
    """More arguments for the program, put among ours."""
    unanswered_seconds: float = UNANSWERED_SECONDS
    """How long it may wait for an answer to a question before it is ended."""

    stand_in: ClassVar[bool] = False
    reach: ClassVar[Reach] = "gateway"
    records_transcript: ClassVar[bool] = True
    installable: ClassVar[Installable]

    @abstractmethod
    def call(self, run: ProgramRun) -> ProgramCall:
        """How the program is called; writes the configuration it needs into the run's home."""

    @abstractmethod
    def reader(self, run: ProgramRun) -> EventReader:
        """Someone to read what it prints in this run."""

    def availability(self, environment: Mapping[str, str]) -> Availability:
        """Whether the program is here, and in which version."""
        return self.installable.availability(environment)

    async def work(self, assignment: Assignment, record: Record) -> WorkDone:
        """Hand the program the prompt and record what it says it does."""
        access = assignment.access
        if access is None:
            raise WorkspaceError(
                f"{self.installable.agent} needs the gateway to reach its model and was given no access to it"
            )
        program = self.installable.require(assignment.environment)
        run = ProgramRun(assignment, access, record)
        call, reader = self.call(run), self.reader(run)
        done = await watch(
            [program, *call.arguments],
            replace(assignment, environment=with_loopback(assignment.environment, call.variables)),
            reader,
            record,
            typed=call.typed,
            secrets=[access.token],
            unanswered_seconds=self.unanswered_seconds,
        )
        if reader.model_error is not None:
            raise reader.model_error
        return done


def with_loopback(environment: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """An environment with a program's own variables, in which this machine is reached by no proxy."""
    unproxied = ",".join(filter(None, [environment.get("NO_PROXY") or environment.get("no_proxy"), DIRECTLY]))
    return {**environment, "NO_PROXY": unproxied, "no_proxy": unproxied, **variables}


def as_argument(prompt: str) -> str:
    """A prompt that no program takes for an option or a file; too long a one is refused."""
    if len(prompt.encode("utf-8", "replace")) > LONGEST_ARGUMENT_BYTES:
        raise WorkspaceError(
            f"the prompt has more than {LONGEST_ARGUMENT_BYTES} bytes, and this agent takes it only as an"
            " argument; put the long part of it into a file of the repository"
        )
    prompt = prompt.replace("\0", "")
    return f"\n{prompt}" if prompt.startswith(("-", "@")) else prompt


def write_file(file: Path, text: str) -> Path:
    """Put a file into the agent's home, readable to nobody else: it may hold the token."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch(mode=0o600)
    file.write_text(text, encoding="utf-8")
    return file


def write_json(file: Path, document: Mapping[str, Any]) -> Path:
    """The same for JSON."""
    return write_file(file, json.dumps(document, indent=2, ensure_ascii=False))


def read_text(file: Path, token: str) -> str:
    """What the agent wrote into a file, without the token; empty when there is none."""
    try:
        with file.open("rb") as opened:
            return opened.read(LARGEST_FILE).decode("utf-8", "replace").replace(token, "[key]")
    except OSError:
        return ""


def read_json(file: Path, token: str) -> Mapping[str, Any] | None:
    """The same for a JSON object; None when it is none."""
    return json_object(read_text(file, token))
