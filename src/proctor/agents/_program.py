"""Watch an agent that is a program of its own: start it, read what it prints, say how it ended.

Each kind of agent brings a reader that turns its lines into events. An agent that stops to ask is
given a while and then ended, since nobody is there to answer.

Knows nothing of any agent's format.
"""

import asyncio
import re
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from proctor.agent import Assignment, WorkDone
from proctor.errors import ModelError, RateLimited, WorkspaceError
from proctor.json_values import SHORT, json_object
from proctor.processes import CouldNotStart, started
from proctor.processes.streams import Clip, Unfinished, clipped
from proctor.session import Intervention, Message, Note, Record, ToolCall, Workspace

# A program writes a line at once; only one that asks leaves it open.
REST_SECONDS = 2.0


# Long enough for a question the agent then answers itself; short beside any agent's time limit.
UNANSWERED_SECONDS = 30.0


class OutputReader(Protocol):
    """Makes events of one agent's lines."""

    awaiting: bool
    """Whether the last thing it said was a question to a human."""

    @property
    def failure(self) -> str:
        """Why the agent says that it failed; empty when it does not."""

    def feed(self, line: str) -> bool:
        """Take a line; whether it was one of the agent's own events."""

    def rest(self, begun: str) -> None:
        """Take the beginning of a line that does not go on; `feed` will have the whole of it."""

    def finish(self) -> None:
        """Record what is known only at the end, however that came."""

    def hear(self, complaint: str) -> None:
        """Take what stood on standard error, head and tail, when the program has ended."""


async def watch(
    command: Sequence[str] | str,
    assignment: Assignment,
    reader: OutputReader,
    record: Record,
    *,
    typed: str | None = None,
    secrets: Sequence[str] = (),
    unanswered_seconds: float = UNANSWERED_SECONDS,
) -> WorkDone:
    """Run the agent's program to its end. `secrets` are struck out of everything it prints."""
    printed = Clip()
    unanswered = False
    try:
        async with started(
            command,
            folder=assignment.folder,
            environment=assignment.environment,
            attempt=assignment.attempt,
            typed=typed,
        ) as program:
            try:
                lines = program.lines(rest_seconds=min(REST_SECONDS, unanswered_seconds))
                while (line := await _next(lines, reader, unanswered_seconds)) is not None:
                    if isinstance(line, Unfinished):
                        reader.rest(_without(secrets, line))
                        continue
                    line = _without(secrets, line)
                    if not reader.feed(line) or assignment.keep_events:
                        printed.add(f"{line}\n")
            except TimeoutError:
                unanswered = True
                await program.end()
            finally:
                reader.finish()
            ending = await program.ending()
            complaint = _without(secrets, program.stderr)
    except CouldNotStart as cause:
        raise WorkspaceError(f"the agent's program could not be started: {cause}") from cause
    if ending.leftovers:
        record(Note(text=f"left running by the agent, and ended: {', '.join(ending.leftovers)}"))
    if complaint:
        printed.add(complaint)
        reader.hear(complaint)
    failure = reader.failure
    if unanswered:
        failure = failure or "it asked and waited for an answer that nobody is there to give"
    elif ending.exit_code != 0:
        failure = failure or f"it exited with {ending.exit_code}{_last_words(complaint, printed.text)}"
    return WorkDone(exit_code=ending.exit_code, output=printed.text, failure=failure)


async def _next(lines: AsyncIterator[str], reader: OutputReader, unanswered_seconds: float) -> str | None:
    async with asyncio.timeout(unanswered_seconds if reader.awaiting else None):
        return await anext(lines, None)


def _without(secrets: Sequence[str], text: str) -> str:
    for secret in secrets:
        text = text.replace(secret, "[key]")
    return text


def _last_words(*texts: str) -> str:
    for text in texts:
        if lines := text.strip().splitlines():
            return f": {lines[-1][:300]}"
    return ""


# Say what kind of failure an agent means when it reports that its model failed.


_OVERFLOW = re.compile(
    r"context.{0,2}(length|window|overflow|limit)|prompt.{0,4}too.{0,2}long|maximum context|too many tokens",
    re.IGNORECASE,
)


_RATE_LIMIT = re.compile(r"rate.{0,2}limit|too.many.requests|resource.exhausted", re.IGNORECASE)


_REFUSED = re.compile(
    r"authenticat|unauthori[sz]ed|forbidden|permission.?denied|(invalid|incorrect).{0,10}api.?key",
    re.IGNORECASE,
)


_STATUS = re.compile(r"\b([45]\d\d)\b")


def model_failure(said: str, status: int | None = None) -> ModelError:
    """The error for a failure the agent ascribes to its model; `status` when it gave one."""
    said = said.strip()[:SHORT] or "the model failed, and the agent does not say how"
    message = f"the agent's model call failed: {said}"
    if status is None and (found := _STATUS.search(said)):
        status = int(found[1])
    if _OVERFLOW.search(said) and status in (None, 400, 413, 422):
        return ModelError(message, reason="context_overflow")
    if status == 429 or (status is None and _RATE_LIMIT.search(said)):
        return RateLimited(message)
    if status in (401, 403) or (status is None and _REFUSED.search(said)):
        return ModelError(message, reason="auth")
    return ModelError(message)


# What the readers of agents' event streams have in common.


WAITING = re.compile(
    r"(waiting for|requires?)\b.{0,30}\b(input|approval|confirmation|permission)|awaiting[ _-]input|"
    r"[\[(]y(es)?/no?[\])]|press (enter|any key|return) to",
    re.IGNORECASE,
)


@dataclass(slots=True)
class _PendingTool:
    name: str
    args: Mapping[str, Any]
    since: float


@dataclass(kw_only=True)
class EventReader(ABC):
    """The state of one stream. Make one for each run of an agent."""

    record: Record
    clock: Callable[[], float] = time.monotonic
    awaiting: bool = field(default=False, init=False)
    """Whether the last thing it said was a question to a human."""
    failure: str = field(default="", init=False)
    """Why the agent says that it failed; empty when it does not."""
    model_error: ModelError | None = field(default=None, init=False)
    """Set when the agent says that it was its model that failed."""
    said: str = field(default="", init=False)
    """The last text of the assistant."""
    _pending: dict[str, _PendingTool] = field(default_factory=dict, init=False)
    _thread: str = field(default="", init=False)
    _rested: str = field(default="", init=False)

    @abstractmethod
    def take(self, event: Mapping[str, Any]) -> bool:
        """Read one event; whether it is one this reader knows."""

    def feed(self, line: str) -> bool:
        """Take a line; whether it was one of the agent's events."""
        event = json_object(line)
        if event is None:
            # A question that was taken while its line rested was asked once.
            self.text(line.removeprefix(self._rested))
            self._rested = ""
            return False
        self.awaiting = False
        return self.take(event)

    def rest(self, begun: str) -> None:
        """A line that does not go on: a question is often asked so, an event never."""
        if len(begun) < SHORT and not begun.lstrip().startswith("{") and WAITING.search(begun):
            self._rested = begun
            self.ask("question", begun.strip())

    def text(self, line: str) -> None:
        """A line that is no event: perhaps a question, which ends the silence it began."""
        if len(line) < SHORT and WAITING.search(line):
            self.ask("question", line.strip())
        elif line.strip():
            self.awaiting = False

    def finish(self) -> None:
        """Record the tools that never answered. A second call does nothing."""
        for each in self._pending.values():
            self.record(ToolCall(name=each.name, args=each.args))
        self._pending.clear()

    def hear(self, complaint: str) -> None:  # noqa: B027 (most have nothing to do here)
        """Take what stood on standard error; most agents say nothing there that counts."""

    def name_thread(self, thread: str, version: str = "") -> None:
        """The agent has said what it calls this conversation; only the first time counts."""
        if thread and not self._thread:
            self._thread = thread
            self.record(Workspace(thread=thread, agent_version=version))

    def say(self, text: str) -> None:
        """The assistant has said something; blank text is nothing."""
        if text.strip():
            self.said = text
            self.record(Message(role="assistant", content=text))

    def ask(self, kind: Literal["permission", "question"], text: str) -> None:
        """The agent has asked a human and may now wait for an answer."""
        self.awaiting = True
        self.record(Intervention(kind=kind, text=text))

    def begin_tool(self, identity: str, name: str, args: Mapping[str, Any]) -> None:
        """A tool has been called."""
        self._pending[identity] = _PendingTool(name, args, self.clock())

    def end_tool(
        self,
        identity: str,
        *,
        success: bool | None,
        result: str,
        duration_ms: float | None = None,
        name: str = "",
        args: Mapping[str, Any] | None = None,
    ) -> str:
        """A tool has answered; its name. The time since its call counts where the agent gives none."""
        use = self._pending.pop(identity, None)
        if use and duration_ms is None:
            duration_ms = (self.clock() - use.since) * 1000
        name = (use.name if use else "") or name
        args = use.args if use else args or {}
        self.record(
            ToolCall(name=name, args=args, success=success, result=clipped(result), duration_ms=duration_ms)
        )
        return name

    def blame_model(self, said: str, status: int | None = None) -> None:
        """The agent says that it failed, and that it was for its model."""
        self.model_error = model_failure(said, status)
        self.failure = said

    def recover(self) -> None:
        """What looked like the end was not: the agent goes on."""
        self.model_error, self.failure = None, ""
