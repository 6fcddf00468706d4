"""Transcripts of Cursor's agent: `~/.cursor/projects/*/agent-transcripts/**/*.jsonl`.

They have roles and content blocks, but no times, models, tokens, and mostly no results of tools.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from proctor.json_values import JsonMap, args_of, as_map, as_text, maps_in, message_text
from proctor.records._reading import Read, TranscriptBuilder, head_of, read_lines
from proctor.session import Session

kind = "cursor"
FOLDER = "agent-transcripts"
# What Cursor writes around a question, beside its own instructions.
_QUERY = re.compile(r"<user_query>\s*(.*?)\s*</user_query>", re.DOTALL)


def recognizes(path: Path) -> bool:
    """Whether a file is in a folder of transcripts and has roles with messages."""
    head = head_of(path, (".jsonl",))
    return FOLDER in path.absolute().parts and b'"role"' in head and b'"message"' in head


def read(path: Path) -> Read:
    """The session of a file, and lines of it that could not be read."""
    return read_lines(path, _CursorSession(path))


class _CursorSession:
    """The session of the lines read so far."""

    def __init__(self, path: Path) -> None:
        self.transcript = TranscriptBuilder()
        self.notes: list[str] = []
        self._path = path

    def take(self, line: JsonMap) -> None:
        """One message."""
        role, message = as_text(line, "role"), as_map(line, "message")
        if role == "user":
            for block in _blocks(message):
                if block.get("type") == "tool_result":
                    failed = block.get("is_error") is True
                    self.transcript.add_tool_result(
                        as_text(block, "tool_use_id"), message_text(block, "content"), not failed
                    )
            text = message_text(message, "content")
            asked = _QUERY.search(text)
            self.transcript.add_message("user", asked[1] if asked else text)
        elif role == "assistant":
            self.transcript.add_message("assistant", message_text(message, "content"))
            for block in _blocks(message):
                if block.get("type") == "tool_use":
                    self.transcript.add_tool_call(
                        as_text(block, "name"), args_of(block, "input"), as_text(block, "id")
                    )

    def finish(self) -> Session:
        """The session, after the last line."""
        waits = self.transcript.is_waiting_for_the_agent
        error = "the file ends before the agent had answered" if waits else ""
        return Session(
            external_id=self._path.stem,
            source=kind,
            agent="cursor",
            status="error" if waits else "success",
            end_reason="interrupted" if waits else "completed",
            error=error,
            steps=self.transcript.steps,
            notes=self.notes,
        )


def _blocks(message: JsonMap) -> Iterator[JsonMap]:
    return iter(maps_in(message, "content"))
