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
from typing import ClassVar, Final

from proctor.agent import Access, Assignment, Availability, Reach, WorkDone, login_files
from proctor.agents._program import UNANSWERED_SECONDS, EventReader, watch
from proctor.errors import WorkspaceError
from proctor.json_values import JsonMap, json_object
from proctor.secrets import write_private
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
    version_option: str = "--version"
    """Option with which the program prints its version in the first line."""

    @property
    def variable(self) -> str:
        """The variable that names another program than the one on the PATH."""
        return f"{self.agent.upper().replace('-', '_')}_BIN"

    def find(self, environment: Mapping[str, str]) -> str | None:
        """The path of the program; None when it is not installed."""
        names = (environment.get(name) for name in (self.variable, *self.also_named_by))
        chosen = next(filter(None, names), self.program)
        return shutil.which(chosen, path=environment.get("PATH", ""))

    def require(self, environment: Mapping[str, str]) -> str:
        """The path of the program; `WorkspaceError` says how to install it."""
        if program := self.find(environment):
            return program
        raise WorkspaceError(f"`{self.program}` is not on the PATH; install it with: {self.install}")

    def availability(self, environment: Mapping[str, str]) -> Availability:
        """Whether it is installed, and in which version."""
        program = self.find(environment)
        if program is None:
            problem = f"`{self.program}` is not on the PATH"
            return Availability(ready=False, problem=problem, remedy=self.install)
        return _read_version(program, self.version_option, environment, self.install)


def _read_version(program: str, option: str, environment: Mapping[str, str], install: str) -> Availability:
    """Its version, or what is wrong with it. Only a program that cannot be started is not ready."""
    try:
        process = subprocess.run(
            [program, option],
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
    # Most print it on standard output and warnings on standard error; pi prints it on standard error.
    output_lines = (process.stdout.strip() or process.stderr.strip()).splitlines()
    first = output_lines[0][:_VERSION_CHARACTERS] if output_lines else ""
    if process.returncode:
        return Availability(ready=True, problem=f"`{option}` failed ({process.returncode}): {first}")
    return Availability(ready=True, version=first)


LITELLM_VARIABLES: Final = {
    # Otherwise it downloads a list of prices at every start.
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOG": "ERROR",
    # They are Python programs; their output must not be buffered.
    "PYTHONUNBUFFERED": "1",
}

_MODEL_ERRORS = frozenset(
    {
        *("APIConnectionError", "APIError", "APIResponseValidationError", "AuthenticationError"),
        *("BadGatewayError", "BadRequestError", "ContentPolicyViolationError", "ContextWindowExceededError"),
        *("InternalServerError", "NotFoundError", "PermissionDeniedError", "RateLimitError"),
        *("ServiceUnavailableError", "Timeout", "UnprocessableEntityError", "UnsupportedParamsError"),
        # Names of the same errors in OpenHands.
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


# Linux rejects a single argument beyond 128 KiB.
LONGEST_ARGUMENT_BYTES = 120_000

# A trajectory with every answer in it has been seen at some megabytes.
LARGEST_FILE = 64 * 1024 * 1024
UNNAMED_MODEL = "default"
"""Model name for programs that require one when the plan has none."""

# The gateway is on loopback; a proxy could not reach it.
DIRECTLY = "127.0.0.1,localhost"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramCall:
    """How a program is called for one assignment."""

    arguments: Sequence[str]
    variables: Mapping[str, str] = field(default_factory=dict)
    """Its own variables, added to the assignment's environment."""
    typed: str | None = None
    """Standard input; None: empty."""


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """One assignment, with the values that command lines need."""

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
        """Base URL of Anthropic's and Gemini's APIs."""
        return self.access.url

    @property
    def openai_url(self) -> str:
        """Base URL of OpenAI's API."""
        return f"{self.access.url}/v1"


@dataclass(frozen=True, kw_only=True)
class GatewayProgram(ABC):
    """A program that gets a base URL and a token, and whose output is recorded."""

    arguments: list[str] = field(default_factory=list)
    """Additional arguments, placed among those of the adapter."""
    unanswered_seconds: float = UNANSWERED_SECONDS
    """How long it may wait for an answer to a question before it is ended."""

    stand_in: ClassVar[bool] = False
    reach: ClassVar[Reach] = "gateway"
    records_transcript: ClassVar[bool] = True
    needs_model: ClassVar[bool] = True
    longest_prompt: ClassVar[int | None] = None
    """Bytes of a prompt that is passed as an argument; None: it is not, and may have any length."""
    installable: ClassVar[Installable]

    @abstractmethod
    def call(self, run: ProgramRun) -> ProgramCall:
        """How the program is called; writes the configuration it needs into the run's home."""

    @abstractmethod
    def reader(self, run: ProgramRun) -> EventReader:
        """The reader of its output in this run."""

    def availability(self, environment: Mapping[str, str]) -> Availability:
        """Whether the program is installed, and in which version."""
        return self.installable.availability(environment)

    async def work(self, assignment: Assignment, record: Record) -> WorkDone:
        """Run the program with the prompt and record its events."""
        access = assignment.access
        if access is None and login_files(self):
            access = Access(url="", token="")
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
            secrets=[access.token] if access.token else [],
            unanswered_seconds=self.unanswered_seconds,
        )
        if reader.model_error is not None:
            raise reader.model_error
        return done


def with_loopback(environment: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """An environment with the variables of a program, in which loopback addresses bypass the proxy."""
    unproxied = ",".join(filter(None, [environment.get("NO_PROXY") or environment.get("no_proxy"), DIRECTLY]))
    return {**environment, "NO_PROXY": unproxied, "no_proxy": unproxied, **variables}


def as_argument(prompt: str) -> str:
    """A prompt that is not mistaken for an option or a file; `WorkspaceError` when it is too long."""
    if len(prompt.encode("utf-8", "replace")) > LONGEST_ARGUMENT_BYTES:
        raise WorkspaceError(
            f"the prompt has more than {LONGEST_ARGUMENT_BYTES} bytes, and this agent takes it only as an"
            " argument; put the long part of it into a file of the repository"
        )
    prompt = prompt.replace("\0", "")
    return f"\n{prompt}" if prompt.startswith(("-", "@")) else prompt


def write_json(file: Path, document: JsonMap) -> Path:
    """The same for JSON."""
    return write_private(file, json.dumps(document, indent=2, ensure_ascii=False))


def read_text(file: Path, token: str) -> str:
    """The text of a file of the agent, without the token; empty when there is none."""
    try:
        if file.resolve() != file or not file.is_file():
            # A link would lead us where the agent cannot go itself; a pipe would make us wait.
            return ""
        with file.open("rb") as opened:
            return opened.read(LARGEST_FILE).decode("utf-8", "replace").replace(token, "[key]")
    except OSError:
        return ""


def read_json(file: Path, token: str) -> JsonMap | None:
    """The JSON object in a file of the agent; None when there is none."""
    return json_object(read_text(file, token))
