"""What the readers of agents' event streams have in common.

A reader takes one line at a time, records what was said and done, and remembers how it ended. Tool
calls are recorded when their result is known, or at the end without one; lines that are no events
are searched for a question to a human.

Knows nothing of any agent's format, and nothing of processes.
"""

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from proctor.agents._blame import model_failure
from proctor.agents._json import SHORT, json_object
from proctor.errors import ModelError
from proctor.processes.streams import clipped
from proctor.session import Intervention, Message, Record, ToolCall, Workspace

WAITING = re.compile(
    r"(waiting for|requires?)\b.{0,30}\b(input|approval|confirmation|permission)|awaiting[ _-]input|"
    r"[\[(]y(es)?/no?[\])]|press (enter|any key|return) to",
    re.IGNORECASE,
)


@dataclass(slots=True)
class _Pending:
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
    _pending: dict[str, _Pending] = field(default_factory=dict, init=False)
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
        self._pending[identity] = _Pending(name, args, self.clock())

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
