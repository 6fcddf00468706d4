"""Anthropic's messages: system text apart, tools as content blocks, cached tokens counted apart.

Anthropic takes no seed, so a request's seed is not sent.

Knows nothing of HTTP, prices or retries.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from proctor.model import Request, ToolRequest
from proctor.models.providers import Endpoint
from proctor.models.wire import Reading
from proctor.session import Usage
from proctor.untrusted import whole_number

API_VERSION = "2023-06-01"
# The format demands a limit; every model that is still served allows this one.
DEFAULT_MAX_TOKENS = 4096

FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
}
"""Anthropic's word → the word used in our records."""


def url(endpoint: Endpoint) -> str:
    """Where messages are posted."""
    return f"{endpoint.base_url}/v1/messages"


def headers(endpoint: Endpoint) -> dict[str, str]:
    """The key has a header of its own here."""
    sent = {"Content-Type": "application/json", "anthropic-version": API_VERSION}
    if endpoint.key:
        sent["x-api-key"] = endpoint.key
    return sent


def body(request: Request, endpoint: Endpoint) -> dict[str, Any]:
    """The request in Anthropic's shape; parameters it names differently are renamed."""
    asked = dict(request.parameters)
    asked.pop("stream", None)
    limit = asked.pop("max_completion_tokens", None) or asked.pop("max_tokens", None)
    if (stop := asked.pop("stop", None)) is not None:
        asked["stop_sequences"] = [stop] if isinstance(stop, str) else list(stop)
    if (shape := asked.pop("response_format", None)) and shape.get("type") == "json_schema":
        schema = shape.get("json_schema", {}).get("schema", {})
        asked["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
    asked |= {"model": endpoint.model, "max_tokens": limit or DEFAULT_MAX_TOKENS}
    system = "\n\n".join(_text(each) for each in request.messages if each["role"] == "system")
    if system:
        asked["system"] = system
    asked["messages"] = _messages(request.messages)
    if request.tools:
        asked["tools"] = [_tool(each["function"]) for each in request.tools]
    return asked


def read(answer: Mapping[str, Any]) -> Reading:
    """The text blocks joined, tool uses as tool requests, tokens with the cached ones added in."""
    blocks = answer["content"]
    ended = answer.get("stop_reason") or "end_turn"
    return Reading(
        "".join(block["text"] for block in blocks if block.get("type") == "text"),
        _usage(answer.get("usage") or {}),
        tuple(
            ToolRequest(id=block["id"], name=block["name"], arguments=json.dumps(block.get("input") or {}))
            for block in blocks
            if block.get("type") == "tool_use"
        ),
        FINISH_REASONS.get(ended, ended),
    )


def _messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Turns must alternate here: neighbours of one role become one turn with several blocks."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "system":
            continue
        role = "assistant" if message["role"] == "assistant" else "user"
        blocks = _blocks(message)
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": blocks})
    return turns


def _blocks(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    text = _text(message)
    if message["role"] == "tool":
        return [{"type": "tool_result", "tool_use_id": message.get("tool_call_id", ""), "content": text}]
    # An empty text block is refused, and an assistant that only called tools said nothing.
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    for call in message.get("tool_calls") or ():
        function = call["function"]
        arguments = _arguments(function.get("arguments"))
        blocks.append({"type": "tool_use", "id": call["id"], "name": function["name"], "input": arguments})
    return blocks


def _arguments(written: Any) -> Any:
    """A model's own arguments, sent back to it. What did not parse goes back as it was written."""
    try:
        parsed = json.loads(written or "{}")
    except ValueError:
        return {"unreadable": written}
    return parsed if isinstance(parsed, dict) else {"unreadable": written}


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""


def _tool(function: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": function["name"],
        "description": function.get("description", ""),
        "input_schema": function.get("parameters") or {"type": "object", "properties": {}},
    }


def _usage(usage: Mapping[str, Any]) -> Usage:
    cached = whole_number(usage.get("cache_read_input_tokens"))
    written = whole_number(usage.get("cache_creation_input_tokens"))
    return Usage(
        input_tokens=whole_number(usage.get("input_tokens")) + cached + written,
        cached_tokens=cached,
        cache_write_tokens=written,
        output_tokens=whole_number(usage.get("output_tokens")),
    )
