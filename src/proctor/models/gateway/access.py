"""Who may ask through the gateway: a token for each attempt, good until it is shut.

What a caller is told and held to goes with its token: the model it is given, where its calls are
recorded, what it may spend.

Knows nothing of HTTP or of wire formats.
"""

import hashlib
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from proctor.agent import Access
from proctor.models.gateway.telling import Telling
from proctor.models.recording import RecordedTake
from proctor.models.replay import Replay, ReplayedTake
from proctor.models.router import Tape
from proctor.models.spending import Grant, SpendingRequest
from proctor.session import Note, Record


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


class UnderWay(Protocol):
    """A call that has not ended."""

    def stop(self) -> None:
        """Record it as far as it has come, now, and end it."""


class OpenAccess:
    """An access while it is worth something."""

    def __init__(self, caller: Caller, tape: Tape | None) -> None:
        self.caller = caller
        self.telling = Telling(caller.record) if caller.tell else None
        self.take: RecordedTake | ReplayedTake | None = (
            tape.take(caller.item_id, "gateway", caller.volatile) if tape else None
        )
        self.calls: set[UnderWay] = set()
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
