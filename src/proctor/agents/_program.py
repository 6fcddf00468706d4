"""Watch an agent that is a program of its own: start it, read what it prints, say how it ended.

Each kind of agent brings a reader that turns its lines into events. An agent that stops to ask is
given a while and then ended, since nobody is there to answer.

Knows nothing of any agent's format.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from proctor.agent import Assignment, WorkDone
from proctor.errors import WorkspaceError
from proctor.processes import CouldNotStart, started
from proctor.processes.streams import Clip, Unfinished
from proctor.session import Note, Record

# A program writes a line at once; only one that asks leaves it open.
REST_SECONDS = 2.0
# Long enough for a question the agent then answers itself; short beside any agent's time limit.
UNANSWERED_SECONDS = 30.0


class Reader(Protocol):
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
    reader: Reader,
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


async def _next(lines: AsyncIterator[str], reader: Reader, unanswered_seconds: float) -> str | None:
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
