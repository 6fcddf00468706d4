"""Session files of Claude Code: `~/.claude/projects/*/*.jsonl`, including those of subagents.

One answer may span several lines with the same id and cumulative tokens: it counts once. Internal messages
(`isMeta`) are skipped. A file that is still being written is read up to its end. The files contain no prices.
"""

import re
from datetime import datetime
from pathlib import Path

from proctor.json_values import (
    JsonMap,
    args_of,
    as_cost,
    as_datetime,
    as_map,
    as_text,
    maps_in,
    message_text,
    usage_of_messages,
)
from proctor.records._reading import Read, TranscriptBuilder, head_of, read_lines
from proctor.session import ModelCall, Role, Session

kind = "claude-code"

# Written by the program in place of a model's answer.
_SYNTHETIC = "<synthetic>"
_INTERRUPTED = "[Request interrupted by user"
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ABOUT = ("cwd", "gitBranch", "entrypoint")


def recognizes(path: Path) -> bool:
    """Whether a file has the members that all lines of such a file have."""
    head = head_of(path, (".jsonl",))
    return b'"sessionId"' in head and (b'"parentUuid"' in head or b'"leafUuid"' in head)


def read(path: Path) -> Read:
    """The session of a file, and lines of it that could not be read."""
    return read_lines(path, _ClaudeCodeSession(path))


class _ClaudeCodeSession:
    """The session of the lines read so far."""

    def __init__(self, path: Path) -> None:
        self.transcript = TranscriptBuilder()
        self.notes: list[str] = []
        self._path = path
        self._first_values: dict[str, str] = {}
        self._about: dict[str, str] = {}
        self._model = ""
        self._failure = ""
        self._interrupted = False
        self._calls: dict[str, tuple[tuple[int, int], datetime | None, ModelCall]] = {}
        self._is_sidechain = True

    def take(self, entry: JsonMap) -> None:
        for name in ("sessionId", "agentId", "version", "summary", "customTitle", "aiTitle"):
            if value := as_text(entry.get(name)):
                self._first_values.setdefault(name, value)
        for name in _ABOUT:
            if value := as_text(entry.get(name)):
                self._about.setdefault(name, value)
        what, at = entry.get("type"), as_datetime(entry, "timestamp")
        if what in ("user", "assistant"):
            self._is_sidechain = self._is_sidechain and entry.get("isSidechain") is True
        if what == "user" and entry.get("isMeta") is not True:
            self._user(entry, at)
        elif what == "assistant":
            self._assistant(entry, at)
        elif what == "system" and entry.get("subtype") == "compact_boundary":
            self.notes.append("the conversation was summarized to save room")

    def finish(self) -> Session:
        """The session, after the last line."""
        self._add_model_calls()
        status, reason, error = self._ending()
        session = self._first_values.get("sessionId") or self._path.stem
        if _ID.fullmatch(self._path.stem):
            session = self._path.stem
        if self._is_sidechain:
            session = f"{session}/{self._first_values.get('agentId') or self._path.stem}"
        titles = (self._first_values.get(name, "") for name in ("customTitle", "aiTitle", "summary"))
        return Session(
            external_id=session,
            source=kind,
            name=next(filter(None, titles), ""),
            agent="claude",
            agent_version=self._first_values.get("version", ""),
            model=self._model,
            status=status,
            end_reason=reason,
            error=error,
            started_at=self.transcript.began_at,
            finished_at=self.transcript.ended_at,
            steps=self.transcript.steps,
            attributes={**self._about, **({"is_sidechain": True} if self._is_sidechain else {})},
            notes=self.notes,
        )

    def _user(self, entry: JsonMap, at: datetime | None) -> None:
        content = as_map(entry, "message").get("content")
        for block in maps_in(content):
            if block.get("type") == "tool_result":
                is_error = block.get("is_error")
                self.transcript.add_tool_result(
                    as_text(block, "tool_use_id"),
                    message_text(block, "content"),
                    # Successful results often have no `is_error`.
                    is_error is not True,
                    at,
                )
        parts = [each for each in maps_in(content) if each.get("type") != "tool_result"]
        text = message_text(content if isinstance(content, str) else parts)
        if text.startswith(_INTERRUPTED):
            self._interrupted = True
            self.notes.append("the user interrupted it")
        elif text and not text.startswith("<local-command-"):
            self._interrupted = False
            is_summary = entry.get("isCompactSummary") is True
            role: Role = "system" if is_summary else "user"
            self.transcript.add_message(role, text, at, "summary" if is_summary else "")

    def _assistant(self, entry: JsonMap, at: datetime | None) -> None:
        message = as_map(entry, "message")
        is_error = entry.get("isApiErrorMessage") is True
        self._failure = message_text(message, "content") if is_error else ""
        if is_error:
            # Written by the program, not by the model.
            return
        position, name = self.transcript.position(), ("subagent" if self._is_aside(entry) else "")
        for block in maps_in(message, "content"):
            if block.get("type") in ("tool_use", "server_tool_use", "mcp_tool_use"):
                call_id = as_text(block, "id")
                self.transcript.add_tool_call(as_text(block, "name"), args_of(block, "input"), call_id, at)
            elif as_text(block, "type").endswith("_tool_result"):
                self.transcript.add_tool_result(
                    as_text(block, "tool_use_id"), message_text(block, "content"), at=at
                )
            elif block.get("type") == "text":
                self.transcript.add_message("assistant", as_text(block, "text"), at, name)
        self.transcript.add_message("assistant", as_text(message, "content"), at, name)
        model = as_text(message, "model")
        if model and model != _SYNTHETIC:
            self._model = model
            self._count(entry, message, model, position, at)

    def _is_aside(self, entry: JsonMap) -> bool:
        """Whether an entry is of a subagent within this session."""
        return entry.get("isSidechain") is True and not self._is_sidechain

    def _count(
        self, entry: JsonMap, message: JsonMap, model: str, position: tuple[int, int], at: datetime | None
    ) -> None:
        cost = as_cost(entry, "costUSD")
        call_id = as_text(message, "id") or f"line-{len(self._calls) + 1}"
        call = ModelCall(
            model=model,
            provider="anthropic",
            usage=usage_of_messages(message.get("usage")),
            cost_usd=cost,
            price_source="" if cost is None else "agent",
            call_id=call_id,
        )
        first_place, first_at, _ = self._calls.get(call_id, (position, at, call))
        self._calls[call_id] = (first_place, first_at, call)

    def _add_model_calls(self) -> None:
        """Add the model calls, the last first: an insertion moves everything behind it."""
        in_order = sorted(self._calls.values(), key=lambda each: each[0])
        for position, at, call in reversed(in_order):
            self.transcript.add_model_call(call, at, before=position)

    def _ending(self) -> tuple[str, str, str]:
        if self._failure:
            return "error", "model_failed", self._failure
        if self._interrupted:
            return "error", "aborted", "the user interrupted it"
        if self.transcript.is_waiting_for_a_tool or self.transcript.is_waiting_for_the_agent:
            return "error", "interrupted", "the file ends before the agent had answered"
        return "success", "completed", ""
