"""Access to the gateway: a token per attempt, its limits, and the transcript of its traffic."""

import hashlib
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from proctor.agent import Access
from proctor.item import digest_of
from proctor.json_values import JsonMap, tool_arguments
from proctor.model import ToolRequest, WireAnswer
from proctor.models.gateway.dialect import ClientRequest, text_of
from proctor.models.prices import Grant, SpendingRequest
from proctor.models.recording import RecordedTake, RecordingOrReplay, Replay, ReplayedTake
from proctor.session import Message, Note, Record, Role, ToolCall

if TYPE_CHECKING:
    from proctor.processes import Serve

ROLES = ("system", "user", "assistant")
MOST_NOTES = 100
"""Different notes on one access."""


class TrafficTranscript:
    """Records messages and tool calls from the traffic of one attempt."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._seen: Counter[str] = Counter()
        self._open_calls: tuple[ToolRequest, ...] = ()
        """The tool calls of the last answer, whose results no request contains yet."""

    def record_request(self, request: ClientRequest) -> None:
        """Record what is new in a request."""
        self._open_calls = ()
        here: Counter[str] = Counter()
        calls: dict[str, JsonMap] = {}
        for message in request.request.messages:
            for call in message.get("tool_calls") or ():
                calls[str(call.get("id"))] = call.get("function") or {}
            key = _key_of(message)
            here[key] += 1
            if here[key] <= self._seen[key]:
                continue
            if message.get("role") == "tool":
                self._seen[key] += 1
                self._record_result(message, calls, request.failed_tools)
            elif (text := text_of(message.get("content"))).strip():
                self._record_message(str(message.get("role")), text)

    def record_answer(self, reading: WireAnswer) -> None:
        """Record the model's answer; its tool calls wait for their results."""
        if reading.text.strip():
            self._record_message("assistant", reading.text)
        self._open_calls = reading.tool_requests

    def end(self) -> None:
        """Record tool calls without a result."""
        for call in self._open_calls:
            self._record(ToolCall(name=call.name, args=tool_arguments(call.arguments)))
        self._open_calls = ()

    def _record_message(self, role: str, text: str) -> None:
        self._seen[_key(role, text)] += 1
        known = cast("Role", role if role in ROLES else "user")
        self._record(Message(role=known, content=text))

    def _record_result(
        self, message: JsonMap, calls: Mapping[str, JsonMap], failed: frozenset[str] | None
    ) -> None:
        call_id = str(message.get("tool_call_id", ""))
        function = calls.get(call_id) or {}
        self._record(
            ToolCall(
                name=str(function.get("name") or "unknown"),
                args=tool_arguments(function.get("arguments")),
                success=None if failed is None else call_id not in failed,
                result=text_of(message.get("content")),
            )
        )


def _key_of(message: JsonMap) -> str:
    """Identity of a message that is sent repeatedly."""
    if message.get("role") == "tool":
        return f"tool {message.get('tool_call_id')}"
    return _key(str(message.get("role")), text_of(message.get("content")))


def _key(role: str, text: str) -> str:
    """Clients trim repeated messages."""
    return digest_of([role, text.strip()])


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """An attempt that is given access."""

    record: Record
    """Receives a `ModelCall` per call, and notes."""
    model: str = ""
    """The item's model, which answers all requests. Empty: the requested one, where it is allowed."""
    waited: Callable[[float], None] | None = None
    """Called with the seconds before each pause for a rate limit."""
    spend: Callable[[SpendingRequest], Awaitable[Grant]] | None = None
    """Called before each call. None: no limit."""
    reads_traffic: bool = False
    """Whether messages and tool calls are read from the traffic, for agents that do not report them."""
    item_id: str = ""
    """Its key in a recording."""
    volatile: tuple[str, ...] = ()
    """Folders and ids of this attempt, ignored when requests are compared."""


class OpenCall(Protocol):
    """A running call."""

    def stop(self) -> None:
        """Record it as far as it has come, and end it."""


class OpenAccess:
    """An open access."""

    def __init__(self, caller: Caller, recording: RecordingOrReplay | None) -> None:
        self.caller = caller
        self.transcript = TrafficTranscript(caller.record) if caller.reads_traffic else None
        self.take: RecordedTake | ReplayedTake | None = (
            recording.take(caller.item_id, "gateway", caller.volatile) if recording else None
        )
        self.calls: set[OpenCall] = set()
        self.name = secrets.token_hex(6)
        """In the ids of answers that are made here."""
        self.answers = 0
        self._replays: dict[Replay, ReplayedTake] = {}
        self._noted: set[str] = set()

    def note_once(self, text: str) -> None:
        """Record a note once. Clients choose words of notes: there is a limit, and no control characters."""
        text = "".join(letter if letter.isprintable() else "?" for letter in text)
        if text in self._noted or len(self._noted) > MOST_NOTES:
            return
        self._noted.add(text)
        is_last = len(self._noted) > MOST_NOTES
        self.caller.record(
            Note(text="further notes on this agent's calls are not recorded" if is_last else text)
        )

    def replayed_by(self, replay: Replay) -> ReplayedTake:
        """The position of this caller in a recording."""
        if replay not in self._replays:
            self._replays[replay] = replay.take(self.caller.item_id, "gateway", self.caller.volatile)
        return self._replays[replay]

    def end(self) -> None:
        """Record and end running calls."""
        for call in list(self.calls):
            call.stop()
        if self.transcript:
            self.transcript.end()


class Accesses:
    """All open accesses."""

    def __init__(self) -> None:
        self._open: dict[bytes, OpenAccess] = {}

    def open(
        self, url: str, caller: Caller, recording: RecordingOrReplay | None, serve: "Serve | None" = None
    ) -> Access:
        """Open an access with a new token."""
        # Longer than any word: some agents mask their key wherever it occurs.
        token = f"proctor-{secrets.token_urlsafe(32)}"
        self._open[_digest(token)] = OpenAccess(caller, recording)
        return Access(url=url, token=token, serve=serve)

    def find(self, token: str) -> OpenAccess | None:
        """The access of a token; None: unknown or closed."""
        # Looked up by digest: timing reveals nothing about tokens.
        return self._open.get(_digest(token))

    def shut(self, token: str) -> None:
        """Invalidate a token and end its calls; no effect when it is closed."""
        access = self._open.pop(_digest(token), None)
        if access:
            access.end()

    def shut_all(self) -> None:
        """Invalidate all tokens."""
        while self._open:
            self._open.popitem()[1].end()


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()
