"""Session files of Copilot CLI: `~/.copilot/session-state/*/events.jsonl`, and its output as JSON.

Files have the tokens of answers only, which would give half a price: they are a note. Tool calls stand in the
answer that requested them and in events of their own: the former count.
"""

from datetime import datetime
from pathlib import Path

from proctor.json_values import (
    JsonMap,
    args_of,
    as_datetime,
    as_map,
    as_text,
    as_whole_number,
    maps_in,
    without_empty,
)
from proctor.records._reading import Read, TranscriptBuilder, head_of, read_lines
from proctor.session import ModelCall, Session, Usage

kind = "copilot"
_TYPES = (b'"assistant.message"', b'"user.message"', b'"session.start"')


def recognizes(path: Path) -> bool:
    """Whether a file has events of Copilot."""
    head = head_of(path, (".jsonl",))
    return b'"data"' in head and any(kind in head for kind in _TYPES)


def read(path: Path) -> Read:
    """The session of a file, and lines of it that could not be read."""
    return read_lines(path, _CopilotSession(path))


class _CopilotSession:
    """The session of the lines read so far."""

    def __init__(self, path: Path) -> None:
        self.transcript = TranscriptBuilder()
        self.notes: list[str] = []
        self._path = path
        self._id = self._version = self._model = self._error = ""
        self._context: JsonMap = {}
        self._aborted = False
        self._requested = set[str]()
        self._output_tokens = 0

    def take(self, line: JsonMap) -> None:
        """One event."""
        at, what, data = as_datetime(line, "timestamp"), as_text(line, "type"), as_map(line, "data")
        self._id = as_text(data, "sessionId") or as_text(line, "sessionId") or self._id
        if what == "session.start":
            self._version = as_text(data, "copilotVersion") or as_text(data, "version")
            self._context = as_map(data, "context")
        elif what == "system.message":
            self.transcript.add_message("system", as_text(data, "content"), at)
        elif what == "user.message":
            self._error, self._aborted = "", False
            self.transcript.add_message("user", as_text(data, "content"), at)
        elif what == "assistant.message":
            self._answer(data, at)
        elif what == "tool.execution_start" and as_text(data, "toolCallId") not in self._requested:
            self._call(as_text(data, "toolName"), data, at)
        elif what == "tool.execution_complete":
            self._complete(data, at)
        elif what == "session.error":
            self._error = as_text(data, "message") or "the session had an error"
        elif what == "abort":
            self._aborted = True

    def finish(self) -> Session:
        """The session, after the last line."""
        known = {name: as_text(self._context, name) for name in ("cwd", "branch", "repository")}
        status, reason, error = self._ending()
        if self._output_tokens:
            self.notes.append(f"{self._output_tokens:,} output tokens; the file has no input tokens")
        return Session(
            external_id=self._id or self._path.parent.name,
            source=kind,
            agent="copilot",
            agent_version=self._version,
            model=self._model,
            status=status,
            end_reason=reason,
            error=error,
            started_at=self.transcript.began_at,
            finished_at=self.transcript.ended_at,
            steps=self.transcript.steps,
            attributes=without_empty(known),
            notes=self.notes,
        )

    def _answer(self, data: JsonMap, at: datetime | None) -> None:
        self._model = as_text(data, "model") or self._model
        self._output_tokens += as_whole_number(data, "outputTokens")
        self.transcript.add_model_call(ModelCall(model=self._model, usage=Usage()), at)
        self.transcript.add_message("assistant", as_text(data, "content"), at)
        for request in maps_in(data, "toolRequests"):
            self._requested.add(as_text(request, "toolCallId"))
            self._call(as_text(request, "name"), request, at)

    def _call(self, name: str, request: JsonMap, at: datetime | None) -> None:
        call_id = as_text(request, "toolCallId")
        self.transcript.add_tool_call(name, args_of(request, "arguments"), call_id, at)

    def _complete(self, data: JsonMap, at: datetime | None) -> None:
        result = as_map(data, "result").get("content") or as_map(data, "error").get("message") or ""
        success = data.get("success")
        self.transcript.add_tool_result(
            as_text(data, "toolCallId"), str(result), success if isinstance(success, bool) else None, at
        )

    def _ending(self) -> tuple[str, str, str]:
        if self._aborted:
            return "error", "aborted", "the turn was aborted"
        if self._error:
            return "error", "model_failed", self._error
        if self.transcript.is_waiting_for_a_tool or self.transcript.is_waiting_for_the_agent:
            return "error", "interrupted", "the file ends before the agent had answered"
        return "success", "completed", ""
