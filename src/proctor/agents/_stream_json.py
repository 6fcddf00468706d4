"""Read the stream JSON that Claude Code prints, and agents that print the same.

One object a line: `system` (its session's id), `assistant` (text and tool uses), `user` (tool
results), `result` (how it ended). Tool uses are paired with their results; tokens are taken from
the totals at the end where there are any, else from the messages, never from both; types and
members nobody knows are passed over.

Knows nothing of processes, and trusts no cost or success the agent claims.
"""

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from proctor.session import Intervention, Message, ModelCall, Record, ToolCall, Usage, Workspace
from proctor.streams import clipped
from proctor.untrusted import parse_json, whole_number

REFUSED = re.compile(
    r"requested permissions?|haven't granted|requires? approval|rejected by (the )?user", re.IGNORECASE
)
WAITING = re.compile(
    r"(waiting for|requires?)\b.{0,30}\b(input|approval|confirmation|permission)|awaiting[ _-]input|\[y/n\]",
    re.IGNORECASE,
)
ASKING_TYPES = re.compile(r"permission|awaiting|input_required|needs_input", re.IGNORECASE)
# A line this long that is no event is not searched for questions.
LONGEST_QUESTION = 2000


@dataclass(slots=True)
class _Pending:
    name: str
    args: Mapping[str, Any]
    since: float


@dataclass(kw_only=True)
class StreamJson:
    """The state of one stream. Make one for each run of an agent."""

    record: Record
    model: str = ""
    """What was asked for; the stream says what was used."""
    input_has_cached: bool = False
    """Whether the agent's `input_tokens` already hold the cached ones: Qwen's do, Claude's do not."""
    clock: Callable[[], float] = time.monotonic
    awaiting: bool = field(default=False, init=False)
    failure: str = field(default="", init=False)
    said: str = field(default="", init=False)
    """The last text of the assistant."""
    _pending: dict[str, _Pending] = field(default_factory=dict, init=False)
    _messages: dict[str, tuple[str, Usage]] = field(default_factory=dict, init=False)
    _totals: list[tuple[str, Usage]] = field(default_factory=list, init=False)
    _asked: set[str] = field(default_factory=set, init=False)
    _thread: str = field(default="", init=False)
    _finished: bool = field(default=False, init=False)

    def feed(self, line: str) -> bool:
        """Take a line; whether it was an event. Other lines are searched for a question."""
        event = json_object(line)
        if event is None:
            if len(line) < LONGEST_QUESTION and WAITING.search(line):
                self._ask("question", line.strip())
            elif line.strip():
                self.awaiting = False
            return False
        return self.take(event)

    def take(self, event: Mapping[str, Any]) -> bool:
        """The same for a line that is parsed already."""
        self.awaiting = False
        kind = event.get("type")
        if not self._thread and (thread := _text(event.get("session_id"))):
            self._thread = thread
            version = next((_text(value) for key, value in event.items() if key.endswith("_version")), "")
            self.record(Workspace(thread=thread, agent_version=version))
        if kind == "assistant":
            self._assistant(_map(event.get("message")))
        elif kind == "user":
            self._results(_map(event.get("message")))
        elif kind == "result":
            self._result(event)
        elif kind == "system" and event.get("subtype") == "init":
            self.model = _text(event.get("model")) or self.model
        elif ASKING_TYPES.search(f"{kind} {event.get('subtype')}"):
            self._ask("permission", _short(event.get("message") or event.get("tool_name") or event))
        else:
            return kind == "system"
        return True

    def finish(self) -> None:
        """Record the tokens, and the tools that never answered. A second call does nothing."""
        if self._finished:
            return
        self._finished = True
        for each in self._pending.values():
            self.record(ToolCall(name=each.name, args=each.args))
        for model, usage in self._totals or self._messages.values():
            if usage.total_tokens:
                self.record(ModelCall(model=model or self.model, usage=usage))

    def _assistant(self, message: Mapping[str, Any]) -> None:
        for block in _blocks(message):
            if block.get("type") == "text" and (text := _text(block.get("text"))).strip():
                self._say(text)
            elif block.get("type") == "tool_use":
                use = _Pending(_text(block.get("name")), _map(block.get("input")), self.clock())
                self._pending[_text(block.get("id"))] = use
        if usage := _map(message.get("usage")):
            # A message comes in several lines, one a block, each with the usage of all: count it once.
            name = _text(message.get("id")) or f"#{len(self._messages)}"
            self._messages[name] = (_text(message.get("model")), self._usage(usage))

    def _results(self, message: Mapping[str, Any]) -> None:
        for block in _blocks(message):
            if block.get("type") != "tool_result":
                continue
            identity = _text(block.get("tool_use_id"))
            use = self._pending.pop(identity, None) or _Pending("", {}, self.clock())
            result = clipped(_joined(block.get("content")))
            failed = block.get("is_error") is True
            duration = (self.clock() - use.since) * 1000
            self.record(
                ToolCall(
                    name=use.name, args=use.args, success=not failed, result=result, duration_ms=duration
                )
            )
            if failed and REFUSED.search(result[:LONGEST_QUESTION]):
                self._asked.add(identity)
                self.record(Intervention(kind="permission", text=f"{use.name}: {result[:LONGEST_QUESTION]}"))

    def _result(self, event: Mapping[str, Any]) -> None:
        text = _text(event.get("result"))
        if event.get("is_error") is True or _text(event.get("subtype")).startswith("error"):
            self.failure = (
                text or _text(event.get("error")) or _text(event.get("subtype")) or "it reported an error"
            )
        elif text.strip() and text != self.said:
            self._say(text)
        for denied in _list(event.get("permission_denials")):
            if (identity := _text(_map(denied).get("tool_use_id"))) not in self._asked or not identity:
                self.record(Intervention(kind="permission", text=_short(denied)))
        self._totals = self._totals_of(event)

    def _totals_of(self, event: Mapping[str, Any]) -> list[tuple[str, Usage]]:
        """Totals by model where the agent gives them (right even after a broken stream), else one."""
        by_model = _map(event.get("modelUsage"))
        totals = [(name, self._usage(_snake(_map(used)))) for name, used in by_model.items()]
        if any(usage.total_tokens for _, usage in totals):
            return totals
        usage = self._usage(_map(event.get("usage")))
        models = [model for model, _ in self._messages.values() if model]
        return [(models[-1] if models else self.model, usage)] if usage.total_tokens else []

    def _usage(self, usage: Mapping[str, Any]) -> Usage:
        cached = whole_number(usage.get("cache_read_input_tokens"))
        written = whole_number(usage.get("cache_creation_input_tokens"))
        given = whole_number(usage.get("input_tokens"))
        return Usage(
            input_tokens=given if self.input_has_cached else given + cached + written,
            cached_tokens=cached,
            cache_write_tokens=written,
            output_tokens=whole_number(usage.get("output_tokens")),
        )

    def _say(self, text: str) -> None:
        self.said = text
        self.record(Message(role="assistant", content=text))

    def _ask(self, kind: str, text: str) -> None:
        self.awaiting = True
        self.record(Intervention(kind="permission" if kind == "permission" else "question", text=text))


def json_object(line: str) -> dict[str, Any] | None:
    """The line as a JSON object; None when it is anything else."""
    if not line.lstrip().startswith("{"):
        return None
    try:
        found = parse_json(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _snake(used: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "input_tokens": used.get("inputTokens"),
        "output_tokens": used.get("outputTokens"),
        "cache_read_input_tokens": used.get("cacheReadInputTokens"),
        "cache_creation_input_tokens": used.get("cacheCreationInputTokens"),
    }


def _blocks(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in _list(content) if isinstance(block, Mapping)]


def _joined(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(_text(_map(part).get("text")) for part in _list(content))


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text[:LONGEST_QUESTION]
