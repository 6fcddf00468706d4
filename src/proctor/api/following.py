"""Follow a session while its agent works: transcript, output, and state, from any process on this machine."""

from collections.abc import Sequence
from dataclasses import dataclass

from proctor.api.sessions import RunSession, find_session
from proctor.context import RunContext
from proctor.errors import Contradiction, UsageError
from proctor.item import RUNNING
from proctor.json_values import CamelJson
from proctor.store.transcripts import TranscriptEvent
from proctor.workspace import live_session
from proctor.workspace.live_session import read_live_output
from proctor.workspace.worktree import session_folder

MOST_EVENTS = 500
"""Events that one look returns at most; the next one continues."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionUpdate(CamelJson):
    """What is new in a session since the last look."""

    events: Sequence[TranscriptEvent]
    output: str
    """Whole lines that the agent has printed, without events, if it runs on this machine."""
    status: str
    is_running: bool
    takes_messages: bool
    """Whether its agent works on this machine, and reads messages while it works."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSoFar(CamelJson):
    """What a running agent has printed, without events."""

    text: str
    """Whole lines. Empty: nothing new, or the agent does not run on this machine."""
    offset: int
    """Where the next look continues."""
    takes_messages: bool = False
    """Whether the agent works on this machine, and reads messages while it works."""
    can_be_stopped: bool = False
    """Whether the agent works on this machine."""


def output_so_far(ctx: RunContext, session_id: str, offset: int = 0) -> OutputSoFar:
    """What the agent of a running session has printed after an offset. `session_id` is a whole ID."""
    folder = session_folder(ctx.home, session_id)
    text, offset = read_live_output(folder, offset)
    # Events are in the transcript.
    others = (line for line in text.splitlines(keepends=True) if not line.lstrip().startswith("{"))
    takes_messages = live_session.takes_messages(folder)
    return OutputSoFar(
        text="".join(others),
        offset=offset,
        takes_messages=bool(takes_messages),
        can_be_stopped=takes_messages is not None,
    )


def send_message(ctx: RunContext, session_id: str, text: str) -> None:
    """Tell the agent of a running session something, which it reads after its current step.

    `session_id` is a whole ID. Raises `Contradiction` for an agent that reads no messages, or does not work
    on this machine.
    """
    if not text.strip():
        raise UsageError(
            "the message is empty\nExample: proctor attach SESSION --message 'Keep the old name'"
        )
    folder = session_folder(ctx.home, session_id)
    if live_session.takes_messages(folder) is False:
        raise Contradiction(
            f"the agent {find_session(ctx, session_id).agent} reads no messages while it works\n"
            "Stop it with `proctor attach SESSION --stop`, then use `proctor sessions continue`."
        )
    live_session.send(folder, {"message": text})


def stop_session(ctx: RunContext, session_id: str) -> None:
    """Stop the agent of a running session; the other items of its run go on.

    `session_id` is a whole ID. The agent's changes are committed to its branch. Raises `Contradiction`.
    """
    live_session.send(session_folder(ctx.home, session_id), {"stop": True})


class SessionFollower:
    """Follows one session; each look returns what is new."""

    def __init__(self, ctx: RunContext, session_id: str) -> None:
        """`session_id`: as `find_session` takes it, or the ID of an item for its last attempt."""
        self.session: RunSession = find_session(ctx, session_id)
        """As it was when following began."""
        self._ctx = ctx
        self._position = 0
        self._offset = 0

    def look(self) -> SessionUpdate:
        """What is new. After the last event of a session that has ended, nothing is."""
        # First, so that what is recorded before the end is not missed.
        state = self.session.state()
        output = output_so_far(self._ctx, self.session.id, self._offset)
        self._offset = output.offset
        page = self.session.events(after=self._position, limit=MOST_EVENTS)
        self._position = page.last_position
        return SessionUpdate(
            events=page.events,
            output=output.text,
            status=str(state["status"]),
            is_running=state["status"] == RUNNING or page.has_more,
            takes_messages=output.takes_messages,
        )
