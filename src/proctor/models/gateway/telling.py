"""Tell what was said and done from an agent's traffic with its model.

Every request repeats the conversation so far, and some agents hold several at once. What is new in
a request is told, a tool call together with its result; what the model answers is told at once.

Knows nothing of HTTP or of wire formats.
"""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, cast

from proctor.item import digest_of
from proctor.model import ToolRequest
from proctor.models.gateway.dialect import Asked, text_of
from proctor.models.wire import Reading
from proctor.session import Message, Record, Role, ToolCall
from proctor.untrusted import parse_json

ROLES = ("system", "user", "assistant")


class Telling:
    """What has been told of one attempt."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._told: Counter[str] = Counter()
        self._wanted: tuple[ToolRequest, ...] = ()
        """The tool calls of the last answer, of which no request has spoken yet."""

    def asked(self, asked: Asked) -> None:
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

    def answered(self, reading: Reading) -> None:
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
