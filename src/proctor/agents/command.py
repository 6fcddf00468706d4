"""Any program as an agent: it gets the prompt, works in the tree, and may print events.

The prompt is on standard input and in PROCTOR_PROMPT, the model in PROCTOR_MODEL. Lines of its
output that are JSON objects of these shapes become events (all members but `type` may be missing):

    {"type": "message", "role": "assistant", "text": "…"}
    {"type": "tool", "name": "edit", "args": {…}, "success": true, "duration_ms": 12}
    {"type": "usage", "model": "…", "input_tokens": 900, "cached_tokens": 100,
     "output_tokens": 40, "cost_usd": 0.01}

So do lines of Claude Code's stream JSON. Other lines are kept as text; the last paragraph is the program's
answer unless an event contains one.

A program that takes a base URL may use the gateway. Then the transcript, the tool calls and the cost are read
from its traffic, and what it prints is only kept as its output.
"""

import re
import shlex
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import cast, get_args

from proctor.agent import Agent, Assignment, Availability, Reach, WorkDone
from proctor.agents._program import Conversation, read_version, watch, with_loopback
from proctor.agents._stream_json import StreamJson, user_message
from proctor.errors import UsageError, WorkspaceError
from proctor.formatting import Clip, clipped
from proctor.json_values import JsonMap, as_amount, as_whole_number, json_object
from proctor.session import Message, ModelCall, Record, Role, ToolCall, Usage

STREAM_TYPES = frozenset({"system", "assistant", "user", "result"})
_BLANK_LINE = re.compile(r"\n[^\S\n]*\n")


@dataclass(frozen=True, kw_only=True)
class Command(Agent):
    """A program of the user."""

    command: str | list[str]
    """A list is a program and its arguments; text is for the shell."""
    gateway: bool = False
    """Whether it gets the gateway as base URL of OpenAI, Anthropic and Gemini."""
    messages: bool = False
    """Whether it reads messages while it works: its prompt and each message are a line of Claude Code's
    stream JSON, and its input ends when it has printed a `result`."""
    version_command: str | list[str] = ""
    """Prints the program's version, which is recorded with each session. Empty: the version is unknown."""

    def __post_init__(self) -> None:
        if not self.command or self.command == [""]:
            raise UsageError("agent `command` needs a program to run; `command` is empty")

    @property
    def reach(self) -> Reach:
        """The gateway, or its own access to models, if any."""
        return "gateway" if self.gateway else "own"

    @property
    def takes_messages(self) -> bool:
        """As the plan says."""
        return self.messages

    @property
    def records_transcript(self) -> bool:
        """On the gateway, the transcript is read from the traffic."""
        return not self.gateway

    def availability(self, environment: Mapping[str, str]) -> Availability:
        """Whether the program exists; not known for a shell command."""
        if isinstance(self.command, str):
            return Availability(ready=True)
        program = self.command[0]
        # A path is relative to the tree, which does not exist yet.
        if "/" in program or shutil.which(program, path=environment.get("PATH", "")):
            return Availability(ready=True)
        return Availability(
            ready=False, problem=f"`{program}` is not on the PATH", remedy=f"Install `{program}`."
        )

    def installed_version(self, environment: Mapping[str, str]) -> str:
        """What its `version_command` prints."""
        command = self.version_command
        if not command:
            return ""
        words = shlex.split(command) if isinstance(command, str) else command
        return read_version(words, environment, "").version

    async def work(self, assignment: Assignment, record: Record) -> WorkDone:
        """Run the program in the tree; it failed when its exit code is not 0."""
        variables = {"PROCTOR_PROMPT": assignment.prompt, "PROCTOR_MODEL": assignment.model}
        variables = {name: value.replace("\0", "") for name, value in variables.items() if _fits(value)}
        environment, access = {**assignment.environment, **variables}, assignment.access
        if not self.gateway:
            access = None
        elif access is None:
            raise WorkspaceError("the program is to use the gateway and was given no access to it")
        talk = Conversation(assignment.prompt, assignment.messages, user_message) if self.messages else None
        return await watch(
            self.command,
            replace(
                assignment,
                environment=with_loopback(environment, access.variables) if access else environment,
            ),
            _Lines((lambda _: None) if access else record, assignment.model, talk),
            record,
            typed=talk or assignment.prompt,
            secrets=[access.token] if access else [],
            is_users=True,
        )


def _fits(value: str) -> bool:
    """Linux rejects a variable beyond 128 KiB; such a prompt is on standard input only."""
    return len(value.encode("utf-8", "replace")) < 120_000


class _Lines:
    """Parses events in the format of this module or Claude Code's; other lines are collected as text."""

    def __init__(self, record: Record, model: str, conversation: Conversation | None = None) -> None:
        self._record = record
        self._model = model
        self._stream = StreamJson(record=record, model=model)
        self._stream.conversation = conversation
        self._paragraph = Clip()
        self._paragraph_is_over = False
        self._answered = False
        # Ordinary output may mention waiting for input; only an event is a question.
        self.awaiting = False

    @property
    def failure(self) -> str:
        return self._stream.failure

    def feed(self, line: str) -> bool:
        event = json_object(line)
        if event is None:
            self.feed_text(f"{line}\n")
            return False
        kind = str(event.get("type"))
        if kind in STREAM_TYPES:
            return self._stream.read_event(event)
        own = OWN_EVENTS.get(kind)
        if own is None:
            self.feed_text(f"{line}\n")
            return False
        parsed = own(event, self._model)
        self._answered = self._answered or (isinstance(parsed, Message) and parsed.role == "assistant")
        self._record(parsed)
        return True

    def feed_partial(self, partial: str) -> None:
        """Ignored: an unfinished line is not a question here, only an event is."""

    def finish(self) -> None:
        self._stream.finish()
        text = self._paragraph.text.strip()
        if text and not self._answered and not self._stream.last_text:
            self._record(Message(role="assistant", content=text))

    def read_stderr(self, stderr: str) -> None:
        """Ignored: standard error contains no events."""

    def feed_text(self, block: str) -> None:
        """Keep the last paragraph of the text so far."""
        body = block.rstrip()
        if not body:
            self._paragraph_is_over = True
            return
        end = block.find("\n", len(body)) + 1
        # Backwards, because only the last blank line counts.
        blank = _BLANK_LINE.search(f"{body[::-1]}\n")
        if blank or self._paragraph_is_over:
            self._paragraph = Clip()
        self._paragraph.add(block[len(body) - blank.start() if blank else 0 : end])
        self._paragraph_is_over = end < len(block)


def _message(event: JsonMap, model: str) -> Message:  # noqa: ARG001 (one shape for all)
    role = event.get("role")
    return Message(
        role=cast(Role, role) if role in get_args(Role) else "assistant",
        content=str(event.get("text", event.get("content", ""))),
    )


def _tool(event: JsonMap, model: str) -> ToolCall:  # noqa: ARG001 (one shape for all)
    args, success = event.get("args"), event.get("success")
    return ToolCall(
        name=str(event.get("name", "")),
        args=args if isinstance(args, dict) else {},
        success=success if isinstance(success, bool) else None,
        result=clipped(str(event.get("result", ""))),
        duration_ms=as_amount(event, "duration_ms"),
    )


def _usage(event: JsonMap, model: str) -> ModelCall:
    cost = as_amount(event, "cost_usd")
    return ModelCall(
        model=str(event.get("model") or model),
        usage=Usage(
            input_tokens=as_whole_number(event, "input_tokens"),
            cached_tokens=as_whole_number(event, "cached_tokens"),
            output_tokens=as_whole_number(event, "output_tokens"),
        ),
        cost_usd=cost,
        price_source="" if cost is None else "agent",
    )


OWN_EVENTS: Mapping[str, Callable[[JsonMap, str], Message | ToolCall | ModelCall]] = {
    "message": _message,
    "tool": _tool,
    "usage": _usage,
}
