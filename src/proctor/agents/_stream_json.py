"""Reads the stream JSON of Claude Code, and of agents with the same format.

One object per line: `system` (session id), `assistant` (text and tool uses), `user` (tool results), `result`
(outcome). Tool uses are paired with their results; tokens come from the final totals, or from the messages,
never from both; unknown types and members are ignored. Reported cost and success are not trusted.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from proctor.agents._program import EventReader
from proctor.json_values import (
    SHORT,
    JsonMap,
    JsonObject,
    as_integer,
    as_list,
    as_map,
    as_text,
    as_whole_number,
    content_text,
    short_text,
    usage_of_messages,
)
from proctor.session import Intervention, ModelCall, Usage

REFUSED = re.compile(
    r"requested permissions?|haven't granted|requires? approval|rejected by (the )?user", re.IGNORECASE
)
ASKING_TYPES = re.compile(r"permission|awaiting|input_required|needs_input", re.IGNORECASE)


@dataclass(kw_only=True)
class StreamJson(EventReader):
    """State of one stream. Make one per run of an agent."""

    model: str = ""
    """The requested model; the stream reports the one in use."""
    input_has_cached: bool = False
    """Whether the agent's `input_tokens` include cached ones: Qwen's do, Claude's do not."""
    counts_tokens: bool = True
    """False when the gateway counts all calls."""
    _messages: dict[str, tuple[str, Usage]] = field(default_factory=dict, init=False)
    _totals: list[tuple[str, Usage]] = field(default_factory=list, init=False)
    _requested: set[str] = field(default_factory=set, init=False)

    def read_event(self, event: JsonMap) -> bool:
        """Read one event; whether it is one of this format."""
        self.awaiting = False
        kind = event.get("type")
        if thread := as_text(event, "session_id"):
            version = next((as_text(value) for key, value in event.items() if key.endswith("_version")), "")
            self.record_thread(thread, version)
        if kind == "assistant":
            self._assistant(as_map(event, "message"))
        elif kind == "user":
            self._results(as_map(event, "message"))
        elif kind == "result":
            self._result(event)
        elif kind == "system" and event.get("subtype") == "init":
            self.model = as_text(event, "model") or self.model
        elif ASKING_TYPES.search(f"{kind} {event.get('subtype')}"):
            self.ask("permission", short_text(event.get("message") or event.get("tool_name") or event))
        else:
            return kind == "system"
        return True

    def finish(self) -> None:
        """Record usage, and tool calls without a result; idempotent."""
        super().finish()
        for model, usage in self._totals or self._messages.values():
            if usage.total_tokens and self.counts_tokens:
                self.record(ModelCall(model=model or self.model, usage=usage))
        self._totals, self._messages = [], {}

    def _assistant(self, message: JsonMap) -> None:
        for block in _blocks(message):
            if block.get("type") == "text":
                self.record_message(as_text(block, "text"))
            elif block.get("type") == "tool_use":
                self.begin_tool(as_text(block, "id"), as_text(block, "name"), as_map(block, "input"))
        if usage := as_map(message, "usage"):
            # A message comes in several lines, one per block, each with the usage of all: count it once.
            name = as_text(message, "id") or f"#{len(self._messages)}"
            self._messages[name] = (as_text(message, "model"), self._usage(usage))

    def _results(self, message: JsonMap) -> None:
        for block in _blocks(message):
            if block.get("type") != "tool_result":
                continue
            identity = as_text(block, "tool_use_id")
            result = content_text(block, "content")
            failed = block.get("is_error") is True
            name = self.end_tool(identity, success=not failed, result=result)
            if failed and REFUSED.search(result[:SHORT]):
                self._requested.add(identity)
                self.record(Intervention(kind="permission", text=f"{name}: {result[:SHORT]}"))

    def _result(self, event: JsonMap) -> None:
        text = as_text(event, "result")
        if event.get("is_error") is True or as_text(event, "subtype").startswith("error"):
            self._fail(event, text)
        elif text != self.last_text:
            self.record_message(text)
        for denied in as_list(event, "permission_denials"):
            if (identity := as_text(denied, "tool_use_id")) not in self._requested or not identity:
                self.record(Intervention(kind="permission", text=short_text(denied)))
        self._totals = self._totals_of(event)
        if self.conversation:
            self.conversation.end_of_turn()

    def _fail(self, event: JsonMap, text: str) -> None:
        reasons = [text, as_text(event, "error"), *map(as_text, as_list(event, "errors"))]
        reasons += [as_text(event, "subtype"), "it reported an error"]
        self.failure = next(reason for reason in reasons if reason)
        if (status := as_integer(event, "api_error_status")) is not None:
            self.report_model_failure(self.failure, status)

    def _totals_of(self, event: JsonMap) -> list[tuple[str, Usage]]:
        """Totals by model where the agent reports them (also after a broken stream), else one total."""
        by_model = as_map(event, "modelUsage")
        totals = [(name, self._usage(_snake(as_map(used)))) for name, used in by_model.items()]
        if any(usage.total_tokens for _, usage in totals):
            return totals
        usage = self._usage(as_map(event, "usage"))
        models = [model for model, _ in self._messages.values() if model]
        return [(models[-1] if models else self.model, usage)] if usage.total_tokens else []

    def _usage(self, usage: JsonMap) -> Usage:
        counts = usage_of_messages(usage)
        if self.input_has_cached:
            return replace(counts, input_tokens=as_whole_number(usage, "input_tokens"))
        return counts


def user_message(text: str) -> str:
    """A message as an agent with this format reads it on standard input."""
    content = [{"type": "text", "text": text}]
    return json.dumps({"type": "user", "message": {"role": "user", "content": content}}, ensure_ascii=False)


def _snake(used: JsonMap) -> JsonObject:
    return {
        "input_tokens": used.get("inputTokens"),
        "output_tokens": used.get("outputTokens"),
        "cache_read_input_tokens": used.get("cacheReadInputTokens"),
        "cache_creation_input_tokens": used.get("cacheCreationInputTokens"),
    }


def _blocks(message: JsonMap) -> list[JsonMap]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in as_list(content) if isinstance(block, Mapping)]
