"""Who may ask through the gateway: a token for each attempt, good until it is shut.

What a caller is told and held to goes with its token: the model it is given, where its calls are
recorded, what it may spend.

Knows nothing of HTTP or of wire formats.
"""

import hashlib
import json
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from proctor.agent import Access
from proctor.item import digest_of
from proctor.json_values import parse_json
from proctor.model import ToolRequest
from proctor.models.gateway.dialect import ClientRequest, text_of
from proctor.models.prices import Grant, SpendingRequest
from proctor.models.recording import RecordedTake, Replay, ReplayedTake, Tape
from proctor.models.wire import WireAnswer
from proctor.session import Message, Note, Record, Role, ToolCall

if TYPE_CHECKING:
    pass

# Tell what was said and done from an agent's traffic with its model.


ROLES = ("system", "user", "assistant")


class TrafficTranscript:
    """What has been told of one attempt."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._told: Counter[str] = Counter()
        self._wanted: tuple[ToolRequest, ...] = ()
        """The tool calls of the last answer, of which no request has spoken yet."""

    def asked(self, asked: ClientRequest) -> None:
        """Tell what a request has that none before it had."""
        self._wanted = ()
        here: Counter[str] = Counter()
        calls: dict[str, Mapping[str, Any]] = {}
        for message in asked.request.messages:
            for call in message.get("tool_calls") or ():
                calls[str(call.get("id"))] = call.get("function") or {}
            key = _key_of(message)
            here[key] += 1
            if here[key] <= self._told[key]:
                continue
            if message.get("role") == "tool":
                self._told[key] += 1
                self._result(message, calls, asked.failed_tools)
            elif (text := text_of(message.get("content"))).strip():
                self._say(str(message.get("role")), text)

    def answered(self, reading: WireAnswer) -> None:
        """Tell what the model said; its tool calls wait for their results."""
        if reading.text.strip():
            self._say("assistant", reading.text)
        self._wanted = reading.tool_requests

    def end(self) -> None:
        """Tell the tool calls nobody ever spoke of again."""
        for each in self._wanted:
            self._record(ToolCall(name=each.name, args=_args(each.arguments)))
        self._wanted = ()

    def _say(self, role: str, text: str) -> None:
        self._told[_key(role, text)] += 1
        known = cast("Role", role if role in ROLES else "user")
        self._record(Message(role=known, content=text))

    def _result(
        self,
        message: Mapping[str, Any],
        calls: Mapping[str, Mapping[str, Any]],
        failed: frozenset[str] | None,
    ) -> None:
        made = str(message.get("tool_call_id", ""))
        function = calls.get(made) or {}
        self._record(
            ToolCall(
                name=str(function.get("name") or "unknown"),
                args=_args(function.get("arguments") or "{}"),
                success=None if failed is None else made not in failed,
                result=text_of(message.get("content")),
            )
        )


def _key_of(message: Mapping[str, Any]) -> str:
    """What a message is known by when it is repeated."""
    if message.get("role") == "tool":
        return f"tool {message.get('tool_call_id')}"
    return _key(str(message.get("role")), text_of(message.get("content")))


def _key(role: str, text: str) -> str:
    """Clients trim what they repeat."""
    return digest_of([role, text.strip()])


def _args(written: Any) -> Mapping[str, Any]:
    try:
        parsed = parse_json(written) if isinstance(written, str) else written
    except ValueError:
        return {"unreadable": written}
    return parsed if isinstance(parsed, dict) else {"unreadable": json.dumps(parsed)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Someone who is given access: one attempt at one item."""

    record: Record
    """Handed a `ModelCall` for each call, and notes."""
    model: str = ""
    """The item's model: whatever is asked for is answered by it. Empty: the one that is asked for."""
    waited: Callable[[float], None] | None = None
    """Called with the seconds before each pause that a provider's limit makes."""
    spend: Callable[[SpendingRequest], Awaitable[Grant]] | None = None
    """Asked before each call. None: everything is granted."""
    tell: bool = False
    """Whether messages and tool calls are read out of the traffic, for agents that do not tell them."""
    item_id: str = ""
    """Under which its calls stand in a recording."""
    volatile: tuple[str, ...] = ()
    """Texts of this attempt alone, its folders and ids: they make no request unlike a recorded one."""


class OpenCall(Protocol):
    """A call that has not ended."""

    def stop(self) -> None:
        """Record it as far as it has come, now, and end it."""


class OpenAccess:
    """An access while it is worth something."""

    def __init__(self, caller: Caller, tape: Tape | None) -> None:
        self.caller = caller
        self.telling = TrafficTranscript(caller.record) if caller.tell else None
        self.take: RecordedTake | ReplayedTake | None = (
            tape.take(caller.item_id, "gateway", caller.volatile) if tape else None
        )
        self.calls: set[OpenCall] = set()
        self.name = secrets.token_hex(6)
        """In the ids of answers that are made here."""
        self.answers = 0
        self._replays: dict[Replay, ReplayedTake] = {}
        self._said: set[str] = set()

    def say_once(self, text: str) -> None:
        """Note something a reader of the session should know, however often it happens."""
        if text not in self._said:
            self._said.add(text)
            self.caller.record(Note(text=text))

    def replayed_by(self, replay: Replay) -> ReplayedTake:
        """This caller's place in the recording that is its model."""
        if replay not in self._replays:
            self._replays[replay] = replay.take(self.caller.item_id, "gateway", self.caller.volatile)
        return self._replays[replay]

    def end(self) -> None:
        """Record and end what is under way."""
        for call in list(self.calls):
            call.stop()
        if self.telling:
            self.telling.end()


class Accesses:
    """The accesses that are open."""

    def __init__(self) -> None:
        self._open: dict[bytes, OpenAccess] = {}

    def open(self, url: str, caller: Caller, tape: Tape | None) -> Access:
        """Give access under a new token."""
        # Longer than any real word: some agents blot their key out wherever they see it.
        token = f"proctor-{secrets.token_urlsafe(32)}"
        self._open[_digest(token)] = OpenAccess(caller, tape)
        return Access(url=url, token=token)

    def find(self, token: str) -> OpenAccess | None:
        """Whose token this is; None when it is nobody's, or no longer anybody's."""
        # Looked up by its digest: how long that takes tells nothing about any token.
        return self._open.get(_digest(token))

    def shut(self, token: str) -> None:
        """Make a token worthless and end its calls; nothing happens when it is already."""
        access = self._open.pop(_digest(token), None)
        if access:
            access.end()

    def shut_all(self) -> None:
        """Make every token worthless."""
        while self._open:
            self._open.popitem()[1].end()


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()
