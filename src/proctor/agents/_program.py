"""Runs an agent that is a program: starts it, reads its output, reports how it ended.

Each agent defines its command line and a reader that turns lines of output into events. An agent that waits
for a human is ended after a while, since nobody answers.

Most reach models through the gateway (`GatewayProgram`). The gateway accepts the token of the attempt as a
key and records every call, so that tokens and cost reported by the agent are not needed. The program gets the
last part of the model's name; the gateway resolves it, whichever other models the program requests.
"""

import asyncio
import json
import os
import re
import shutil
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Final, Literal, Protocol

from proctor.agent import Access, Agent, Assignment, Availability, Reach, WorkDone
from proctor.errors import CONTEXT_OVERFLOW, AgentNotStarted, ModelError, RateLimited, WorkspaceError
from proctor.formatting import Clip, clipped
from proctor.json_values import SHORT, JsonMap, json_object
from proctor.model import is_overflow
from proctor.processes import CouldNotStart, Program, started
from proctor.processes.error_lines import error_line
from proctor.processes.streams import Unfinished
from proctor.session import Intervention, Message, Note, Record, ToolCall, Workspace
from proctor.workspace.beneath import write_private

# Programs write lines at once; only a prompt for input stays unfinished.
REST_SECONDS = 2.0

# Long enough for a question the agent answers itself, short compared with any time limit.
UNANSWERED_SECONDS = 30.0


class OutputReader(Protocol):
    """Turns one agent's output into events."""

    awaiting: bool
    """Whether its last output was a question to a human."""

    @property
    def failure(self) -> str:
        """Why the agent failed, as it reports; empty when it did not."""

    def feed(self, line: str) -> bool:
        """Read a line that may be an event; whether it was one."""

    def feed_text(self, block: str) -> None:
        """Read lines that cannot be events, each with its line end."""

    def feed_partial(self, partial: str) -> None:
        """Read the beginning of an unfinished line; the whole line comes later."""

    def finish(self) -> None:
        """Record what is known only at the end."""

    def read_stderr(self, stderr: str) -> None:
        """Read standard error, head and tail, after the program has ended."""


async def watch(
    command: Sequence[str] | str,
    assignment: Assignment,
    reader: OutputReader,
    record: Record,
    *,
    typed: "str | Conversation | None" = None,
    secrets: Sequence[str] = (),
    unanswered_seconds: float = UNANSWERED_SECONDS,
    is_users: bool = False,
) -> WorkDone:
    """Run the agent's program to its end. `secrets` are removed from its output.

    A `Conversation` is typed as long as there are messages: the program ends when its input does.

    Raises `AgentNotStarted` if the program rejects how it is called, unless the user wrote the command.
    """
    printed = assignment.output
    try:
        async with (
            _typing(typed) as text,
            started(
                command,
                folder=assignment.folder,
                environment=assignment.environment,
                attempt=assignment.attempt,
                typed=text,
                confinement=assignment.confinement,
            ) as program,
        ):
            has_begun, unanswered = await _read_output(
                program, assignment, reader, secrets, unanswered_seconds
            )
            ending = await program.ending()
            stderr = _without(secrets, program.stderr)
    except CouldNotStart as cause:
        raise AgentNotStarted(f"the agent's program could not be started: {cause}") from cause
    if ending.leftovers:
        record(Note(text=f"left running by the agent, and ended: {', '.join(ending.leftovers)}"))
    if stderr:
        printed.add(stderr)
        reader.read_stderr(stderr)
    failure = reader.failure
    if unanswered:
        failure = failure or "it waited for an answer from a human, and none is available"
    elif ending.exit_code != 0:
        if not is_users and not has_begun and (complaint := _BAD_CALL.search(printed.text[:SHORT])):
            raise AgentNotStarted(
                f"the agent's program rejects how it is called: {complaint[0].strip()[:300]}"
            )
        line = error_line(stderr, printed.text)
        failure = failure or f"it exited with {ending.exit_code}{f': {line}' if line else ''}"
    return WorkDone(exit_code=ending.exit_code, output=printed.text, failure=failure)


@dataclass(slots=True)
class Conversation:
    """Standard input of a program that reads messages while it works, each a line, until it ends."""

    prompt: str
    messages: "asyncio.Queue[str]"
    line_of: Callable[[str], str]
    """A message as the program reads it, without the line end."""
    patience_seconds: float = 1e9
    """Its input ends if it has printed nothing by then: a wrapper may read all of it before it starts."""
    _is_started: bool = False
    _is_over: asyncio.Event = field(default_factory=asyncio.Event)

    def end_of_turn(self) -> None:
        """The program has answered: its input ends, unless there is another message."""
        if self.messages.empty():
            self.end()

    def has_printed(self) -> None:
        """The program has printed something: it has started."""
        self._is_started = True

    def end(self) -> None:
        """End the input; messages that come later are not read."""
        self._is_over.set()

    async def type_to(self, descriptor: int) -> None:
        """Write the prompt, and each message as it comes, until the last one was answered."""
        text = self.prompt
        over = asyncio.ensure_future(self._is_over.wait())
        timer = asyncio.get_running_loop().call_later(self.patience_seconds, self._end_if_silent)
        try:
            while True:
                line = f"{self.line_of(text)}\n".encode("utf-8", "replace")
                # In a thread: a program that does not read yet would block everything else.
                await asyncio.to_thread(_write, descriptor, line)
                coming = asyncio.ensure_future(self.messages.get())
                await asyncio.wait([coming, over], return_when=asyncio.FIRST_COMPLETED)
                if not coming.done():
                    coming.cancel()
                    return
                text = coming.result()
        finally:
            over.cancel()
            timer.cancel()

    def _end_if_silent(self) -> None:
        if not self._is_started:
            self.end()


def _write(descriptor: int, data: bytes) -> None:
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except BrokenPipeError:
        pass  # it has ended


@asynccontextmanager
async def _typing(typed: str | Conversation | None) -> AsyncIterator[str | int | None]:
    """What a program reads as its standard input: a text, or the end of a pipe."""
    if not isinstance(typed, Conversation):
        yield typed
        return
    reading, writing = os.pipe()

    async def type_all() -> None:
        try:
            await typed.type_to(writing)
        finally:
            os.close(writing)

    task = asyncio.create_task(type_all())
    try:
        yield reading
    finally:
        # Nobody reads anymore: a thread that still writes gets an error.
        os.close(reading)
        typed.end()
        await asyncio.wait([task])


async def _read_output(
    program: Program,
    assignment: Assignment,
    reader: OutputReader,
    secrets: Sequence[str],
    unanswered_seconds: float,
) -> tuple[bool, bool]:
    """Read standard output to its end. Whether there was an event, and whether the program was ended because
    it waited for an answer."""
    printed, has_begun = assignment.output, False
    others = None if assignment.keep_events else printed
    try:
        blocks = program.blocks(rest_seconds=min(REST_SECONDS, unanswered_seconds))
        while block := await _next(blocks, reader, unanswered_seconds):
            redacted = _without(secrets, block)
            if isinstance(block, Unfinished):
                reader.feed_partial(redacted)
                continue
            has_begun = _read(redacted, reader, others) or has_begun
            if assignment.keep_events:
                printed.add(redacted)
    except TimeoutError:
        await program.end()
        return has_begun, True
    except BaseException:
        printed.add(_without(secrets, program.stderr))
        raise
    finally:
        reader.finish()
    return has_begun, False


async def _next(blocks: AsyncIterator[str], reader: OutputReader, unanswered_seconds: float) -> str:
    """The next lines; empty at the end."""
    async with asyncio.timeout(unanswered_seconds if reader.awaiting else None):
        return await anext(blocks, "")


_OBJECT = re.compile(r"^[^\S\n]*\{.*\n", re.MULTILINE)


def _read(block: str, reader: OutputReader, others: Clip | None) -> bool:
    """Pass lines to the reader: those that may be events one by one, text between them at once, because
    a program may print millions of lines. `others` receives what is not an event. Whether there was one."""
    start, has_event = 0, False
    for match in _OBJECT.finditer(block) if "{" in block else ():
        if match.start() > start:
            text = block[start : match.start()]
            reader.feed_text(text)
            if others is not None:
                others.add(text)
        start = match.end()
        if reader.feed(match[0][:-1]):
            has_event = True
        elif others is not None:
            others.add(match[0])
    if start < len(block):
        reader.feed_text(block[start:])
        if others is not None:
            others.add(block[start:])
    return has_event


def _without(secrets: Sequence[str], text: str) -> str:
    for secret in secrets:
        text = text.replace(secret, "[key]")
    return text


# What programs print that reject an option; at the beginning of their output, for they have done nothing.
_BAD_CALL = re.compile(
    r"^.*(unknown|unrecogni[sz]ed|unexpected|invalid) (option|argument|flag|switch)\b.*$",
    re.IGNORECASE | re.MULTILINE,
)
_RATE_LIMIT = re.compile(r"rate.{0,2}limit|too.many.requests|resource.exhausted", re.IGNORECASE)
_REFUSED = re.compile(
    r"authenticat|unauthori[sz]ed|forbidden|permission.?denied|(invalid|incorrect).{0,10}api.?key",
    re.IGNORECASE,
)
_STATUS = re.compile(r"\b([45]\d\d)\b")


def model_failure(report: str, status: int | None = None) -> ModelError:
    """The error for a failure that the agent attributes to its model; `status` when it reports one."""
    report = report.strip()[:SHORT] or "the model failed, without details"
    message = f"the agent's model call failed: {report}"
    if status is None and (match := _STATUS.search(report)):
        status = int(match[1])
    if is_overflow(report, status):
        return ModelError(message, reason=CONTEXT_OVERFLOW)
    if status == 429 or (status is None and _RATE_LIMIT.search(report)):
        return RateLimited(message)
    if status in (401, 403) or (status is None and _REFUSED.search(report)):
        return ModelError(message, reason="auth")
    return ModelError(message)


# Each line that `WAITING` matches contains one of the first, or two of the others.
_QUESTION_WORDS = ("y/n", "yes/n", "press ")
_WAITING_WORDS = ("waiting for", "require", "awaiting")
_AWAITED_WORDS = ("input", "approval", "confirmation", "permission")
WAITING = re.compile(
    r"(waiting for|requires?)\b.{0,30}\b(input|approval|confirmation|permission)|awaiting[ _-]input|"
    r"[\[(]y(es)?/no?[\])]|press (enter|any key|return) to",
    re.IGNORECASE,
)


def _possible_questions(block: str) -> list[int]:
    """Where the lines begin that `WAITING` may match. Much faster than matching all lines."""
    # Only of ASCII: lowercase of other characters may have another length.
    lower = block.lower() if block.isascii() else re.sub("[A-Z]+", lambda match: match[0].lower(), block)
    waits = any(word in lower for word in _WAITING_WORDS)
    starts = set[int]()
    for word in (*_QUESTION_WORDS, *(_AWAITED_WORDS if waits else ())):
        at = lower.find(word)
        while at >= 0:
            starts.add(lower.rfind("\n", 0, at) + 1)
            end = lower.find("\n", at)
            at = lower.find(word, end) if end >= 0 else -1
    return sorted(starts)


@dataclass(slots=True)
class _PendingTool:
    name: str
    args: JsonMap
    since: float


@dataclass(kw_only=True)
class EventReader(ABC):
    """State of one event stream. Make one per run of an agent."""

    record: Record
    clock: Callable[[], float] = time.monotonic
    awaiting: bool = field(default=False, init=False)
    """Whether its last output was a question to a human."""
    failure: str = field(default="", init=False)
    """Why the agent failed, as it reports; empty when it did not."""
    model_error: ModelError | None = field(default=None, init=False)
    """Set when the agent reports that its model failed."""
    last_text: str = field(default="", init=False)
    """Last text of the assistant."""
    conversation: Conversation | None = field(default=None, init=False)
    """What the program reads, which ends with its answer; None: only its prompt."""
    _pending: dict[str, _PendingTool] = field(default_factory=dict, init=False)
    _thread: str = field(default="", init=False)
    _partial: str = field(default="", init=False)

    @abstractmethod
    def read_event(self, event: JsonMap) -> bool:
        """Read one event; whether it is known."""

    def feed(self, line: str) -> bool:
        """Read a line that may be an event; whether it was one."""
        if self.conversation:
            self.conversation.has_printed()
        event = json_object(line)
        if event is None:
            self.feed_text(f"{line}\n")
            return False
        self.awaiting = False
        return self.read_event(event)

    def feed_partial(self, partial: str) -> None:
        """An unfinished line: often a question, never an event."""
        if len(partial) < SHORT and not partial.lstrip().startswith("{") and WAITING.search(partial):
            self._partial = partial
            self.ask("question", partial.strip())

    def feed_text(self, block: str) -> None:
        """Lines that are not events: possibly questions."""
        # A question already recorded from its unfinished line.
        block = block.removeprefix(self._partial)
        self._partial = ""
        body = block.rstrip()
        if not body:
            return
        self.awaiting = False
        last = body.rfind("\n") + 1
        for start in _possible_questions(block):
            line = block[start : block.find("\n", start)]
            if len(line) < SHORT and WAITING.search(line):
                self.ask("question", line.strip())
                self.awaiting = start >= last

    def finish(self) -> None:
        """Record tool calls without a result; idempotent."""
        for call in self._pending.values():
            self.record(ToolCall(name=call.name, args=call.args))
        self._pending.clear()

    def read_stderr(self, stderr: str) -> None:  # noqa: B027 (most have nothing to do here)
        """Read standard error; most agents report nothing there."""

    def record_thread(self, thread: str, version: str = "") -> None:
        """Record the agent's id of the conversation; only the first counts."""
        if thread and not self._thread:
            self._thread = thread
            self.record(Workspace(thread=thread, agent_version=version))

    def record_message(self, text: str) -> None:
        """Record a message of the assistant; blank text is ignored."""
        if text.strip():
            self.last_text = text
            self.record(Message(role="assistant", content=text))

    def ask(self, kind: Literal["permission", "question"], text: str) -> None:
        """Record a question to a human; the agent may now wait."""
        self.awaiting = True
        self.record(Intervention(kind=kind, text=text))

    def begin_tool(self, identity: str, name: str, args: JsonMap) -> None:
        """A tool call started."""
        self._pending[identity] = _PendingTool(name, args, self.clock())

    def end_tool(
        self,
        identity: str,
        *,
        success: bool | None,
        result: str,
        duration_ms: float | None = None,
        name: str = "",
        args: JsonMap | None = None,
    ) -> str:
        """A tool call ended; returns its name. Its duration is measured where the agent reports none."""
        use = self._pending.pop(identity, None)
        if use and duration_ms is None:
            duration_ms = (self.clock() - use.since) * 1000
        name = (use.name if use else "") or name
        if success:
            success = self.has_succeeded(name, result)
        args = use.args if use else args or {}
        self.record(
            ToolCall(name=name, args=args, success=success, result=clipped(result), duration_ms=duration_ms)
        )
        return name

    def has_succeeded(self, tool: str, result: str) -> bool | None:  # noqa: ARG002 (most report it correctly)
        """Whether a tool call that the agent reports as successful was; None: unknown."""
        return True

    def report_model_failure(self, report: str, status: int | None = None) -> None:
        """The agent reports that its model failed."""
        self.model_error = model_failure(report, status)
        self.failure = report

    def recover(self) -> None:
        """The agent continues after a reported failure."""
        self.model_error, self.failure = None, ""


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
        """The absolute path of the program; None when it is not installed."""
        # Relative to where Proctor was started, as the user wrote it; the program is started elsewhere.
        chosen = os.path.expanduser(self._chosen(environment) or self.program)  # noqa: PTH111 (a name is no path)
        found = shutil.which(chosen, path=environment.get("PATH", ""))
        return found and str(Path(found).absolute())

    def _chosen(self, environment: Mapping[str, str]) -> str:
        """The program that a variable names; empty: none does."""
        names = (environment.get(name) for name in (self.variable, *self.also_named_by))
        return next(filter(None, names), "")

    def missing(self, environment: Mapping[str, str]) -> str:
        """Why the program is not found."""
        if chosen := self._chosen(environment):
            names = (self.variable, *self.also_named_by)
            variable = next(name for name in names if environment.get(name))
            return f"{variable} is `{chosen}`, which is not a program (a path, or a name on the PATH)"
        return f"`{self.program}` is not on the PATH"

    def require(self, environment: Mapping[str, str]) -> str:
        """The path of the program; `AgentNotStarted` says how to install it."""
        if program := self.find(environment):
            return program
        raise AgentNotStarted(f"{self.missing(environment)}; install it with: {self.install}")

    def start(self, environment: Mapping[str, str]) -> tuple[str, str] | None:
        """The program and its option for the version; None when it is not installed."""
        program = self.find(environment)
        return None if program is None else (program, self.version_option)

    def availability(self, environment: Mapping[str, str]) -> Availability:
        """Whether it is installed, and in which version."""
        program = self.find(environment)
        if program is None:
            return Availability(ready=False, problem=self.missing(environment), remedy=self.install)
        return read_version([program, self.version_option], environment, self.install)


def run_with_option(
    command: Sequence[str], environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a program that only prints something, like its version or its help."""
    return subprocess.run(
        list(command),
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=VERSION_SECONDS,
        check=False,
    )


_versions: dict[tuple[object, ...], Availability] = {}
_version_locks: dict[tuple[object, ...], threading.Lock] = {}


def read_version(command: Sequence[str], environment: Mapping[str, str], install: str) -> Availability:
    """The version that a command prints, or its problem. Only a program that cannot be started is not ready.

    Programs start once in each process, however many attempts record their versions.
    """
    program = command[0]
    try:
        changed_at = Path(program).stat().st_mtime_ns
    except OSError:
        changed_at = 0
    key = (*command, changed_at)
    with _version_locks.setdefault(key, threading.Lock()):
        known = _versions.get(key) or _read_version(command, environment, install)
        if known.version:
            _versions[key] = known
    return known


def _read_version(command: Sequence[str], environment: Mapping[str, str], install: str) -> Availability:
    try:
        process = run_with_option(command, environment)
    except OSError as error:
        problem = f"`{command[0]}` cannot be started: {error.strerror}"
        return Availability(ready=False, problem=problem, remedy=install)
    except subprocess.TimeoutExpired:
        return Availability(ready=True, problem=f"did not print its version within {VERSION_SECONDS} s")
    # Most print it on standard output and warnings on standard error; pi prints it on standard error.
    output_lines = (process.stdout.strip() or process.stderr.strip()).splitlines()
    first = output_lines[0][:_VERSION_CHARACTERS] if output_lines else ""
    if process.returncode:
        option = " ".join(command[1:])
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
        "APIConnectionError",
        "APIError",
        "APIResponseValidationError",
        "AuthenticationError",
        "BadGatewayError",
        "BadRequestError",
        "ContentPolicyViolationError",
        "ContextWindowExceededError",
        "InternalServerError",
        "NotFoundError",
        "PermissionDeniedError",
        "RateLimitError",
        "ServiceUnavailableError",
        "Timeout",
        "UnprocessableEntityError",
        "UnsupportedParamsError",
        # Names of the same errors in OpenHands.
        "LLMAuthenticationError",
        "LLMBadRequestError",
        "LLMContextWindowExceedError",
        "LLMNoResponseError",
        "LLMRateLimitError",
        "LLMServiceUnavailableError",
        "LLMTimeoutError",
    }
)


def is_model_error(name: str) -> bool:
    """Whether an exception of this name means that the model failed, and not the agent."""
    return name in _MODEL_ERRORS


# Linux rejects a single argument beyond 128 KiB.
LONGEST_ARGUMENT_BYTES = 120_000

# Trajectories with all answers have reached some megabytes.
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
    typed: "str | Conversation | None" = None
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
class GatewayProgram(Agent, ABC):
    """A program that gets a base URL and a token, and whose output is recorded."""

    arguments: list[str] = field(default_factory=list)
    """Additional arguments, placed among those of the adapter."""
    unanswered_seconds: float = UNANSWERED_SECONDS
    """How long it may wait for an answer to a question before it is ended."""

    installable: ClassVar[Installable]

    @property
    def reach(self) -> Reach:
        """With a login of the user, it talks to its own service."""
        return "own" if self.login else "gateway"

    @property
    def needs_network(self) -> bool:
        return bool(self.login)

    @property
    def needs_model(self) -> bool:
        return not self.login

    @abstractmethod
    def call(self, run: ProgramRun) -> ProgramCall:
        """How the program is called; writes the configuration it needs into the run's home."""

    @abstractmethod
    def reader(self, run: ProgramRun) -> EventReader:
        """The reader of its output in this run."""

    def availability(self, environment: Mapping[str, str]) -> Availability:
        """Whether the program is installed, and in which version."""
        return self.installable.availability(environment)

    def program(self, environment: Mapping[str, str]) -> tuple[str, str] | None:
        """The installed program, and its option for the version."""
        return self.installable.start(environment)

    async def work(self, assignment: Assignment, record: Record) -> WorkDone:
        """Run the program with the prompt and record its events."""
        access = assignment.access
        if access is None and self.copied_logins():
            access = Access(url="", token="")
        if access is None:
            raise WorkspaceError(
                f"{self.installable.agent} needs the gateway to reach its model and was given no access to it"
            )
        program = self.installable.require(assignment.environment)
        run = ProgramRun(assignment, access, record)
        call, reader = self.call(run), self.reader(run)
        reader.conversation = call.typed if isinstance(call.typed, Conversation) else None
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


def write_json(home: Path, name: str, document: JsonMap) -> Path:
    """Write a JSON document to an agent's HOME, in place of what is there; only its owner can read it."""
    return write_private(home, name, json.dumps(document, indent=2, ensure_ascii=False))


def read_text(file: Path, token: str) -> str:
    """The text of a file of the agent, without the token; empty when there is none."""
    try:
        if file.resolve() != file or not file.is_file():
            # A link could lead outside of the agent's folders; reading a pipe could block.
            return ""
        with file.open("rb") as opened:
            return opened.read(LARGEST_FILE).decode("utf-8", "replace").replace(token, "[key]")
    except OSError:
        return ""


def read_json(file: Path, token: str) -> JsonMap | None:
    """The JSON object in a file of the agent; None when there is none."""
    return json_object(read_text(file, token))
